"""How often the encoding is told right, and how fast, on chardet's test files; prints, asserts nothing."""

import codecs
import os
import tarfile
import time
from pathlib import Path

import pytest
from resiliparse.parse.encoding import detect_encoding

from gristmill.tasks.reading.charset import decode, guess

# Folders named otherwise than Python's codec; of EUC-TW it has none.
_CODECS = {"GB2312": "gb18030", "SHIFT_JIS": "cp932", "EUC-KR": "cp949", "Big5": "big5hkscs", "TIS-620": "cp874"}
_CODECS |= {"MacCyrillic": "mac_cyrillic", "MacRoman": "mac_roman", "iso-8859-1": "cp1252"}


def true_codec(folder: str) -> str | None:
    """`windows-1251-russian` is cp1251: the longest beginning that names a codec."""
    parts = _CODECS.get(folder, folder).split("-")
    for size in range(len(parts), 0, -1):
        try:
            return codecs.lookup("-".join(parts[:size])).name
        except LookupError:
            continue
    return None


def files(data: Path) -> list[tuple[str, bytes]]:
    found = []
    with tarfile.open(data / "encoding_chardet_425.tar.gz") as archive:
        for member in archive:
            codec = true_codec(Path(member.name).parent.name)
            if member.isfile() and codec:
                found.append((codec, archive.extractfile(member).read()))
    return found


def detectors() -> dict:
    """Ours, resiliparse's as it is, and the others that are installed."""
    found = {"guess": guess, "resiliparse": detect_encoding}
    for name in ("charset_normalizer", "chardet", "cchardet"):
        try:
            found[name] = __import__(name).detect
        except ImportError:
            continue
    return found


@pytest.mark.bench
def test_charset(capsys):
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder with the data sets")
    samples = files(Path(os.environ["GRISTMILL_TEST_DATA"]))
    size = sum(len(payload) for _, payload in samples)
    with capsys.disabled():
        print(f"\n{len(samples)} files, {size / 1e6:.1f} MB; right: decoded to the text of the true encoding")
        for name, detector in detectors().items():
            started = time.thread_time()
            answers = [detector(payload) for _, payload in samples]
            seconds = time.thread_time() - started
            named = [a["encoding"] if isinstance(a, dict) else a for a in answers]
            pairs = list(zip(samples, named, strict=True))
            right = sum(same(payload, codec, answer or "utf-8") for (codec, payload), answer in pairs)
            print(f"{name:20s} {right / len(samples):.3f} right, {size / 1e6 / seconds:6.1f} MB/s")


def same(payload: bytes, codec: str, answer: str) -> bool:
    return decode(payload, answer).lstrip("\ufeff") == payload.decode(codec, "replace").lstrip("\ufeff")
