"""The harvest: genuine WARC files, the same bytes each time, and modules that cost only themselves."""

import base64
import gzip
import hashlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import packaging
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from gristmill.flows.demo import HarvestSettings, harvest
from gristmill.flows.demo.modules import standard_library, submodules
from gristmill.flows.demo.packages import Page, is_reference, main_text, manual_pages, prose_words

pytestmark = pytest.mark.extended

SECRET = "s3cr3t-5f1d0c"

PLANTED = {
    "__init__.py": '"""A package whose modules misbehave."""',
    "a_prints.py": 'import os\nprint(\'{"event": "end", "size": 0}\')\nos.write(1, b\'noise\\n\' * 100000)\n',
    "b_exits.py": "import sys\nsys.exit(3)\n",
    "c_loops.py": "while True:\n    pass\n",
    "d_crashes.py": "import ctypes\nctypes.string_at(0)\n",
    "e_leaves.py": "import os\nos._exit(7)\n",
    "f_raises.py": "raise ValueError(__file__)\n",
    "g_tells.py": '''
"""Told by the last module of the package."""
import os, sys

ENVIRONMENT = dict(os.environ)
HERE = __file__


def told(thing=object(), environment=dict(os.environ), here=__file__, home=os.path.expanduser("~"), path=sys.path):
    """Words of the last module."""


class Base:
    def inherited(self):
        """Documented where it is defined."""


class Derived(Base):
    def own(self):
        """Documented in its own right."""
''',
    "h_long.py": f'"""{"long " * 60_000}"""\n',
}

SHELL = '<!DOCTYPE html><html><head><title>App</title></head><body><div id="root"></div></body></html>\n'
LICENCE = "Permission is granted, naturally, to use this software. Ström © 2001\n"

DISTRIBUTION = {
    "boxed-1.0.dist-info/METADATA": (
        b"Metadata-Version: 2.1\nName: Boxed\nVersion: 1.0\nDescription-Content-Type: text/markdown\n\n"
        b"# Boxed\n\nIt *renders* its [description](https://example.org).\n"
    ),
    "boxed-1.0.dist-info/licenses/LICENSE": LICENCE.encode("latin-1"),
    "boxed-1.0.dist-info/licenses/COPYING.BSD": LICENCE.encode(),
    "boxed/README.md": b"Read | me\n--- | ---\n1 | 2\n",
    "boxed/static/index.html": SHELL.encode(),
    "boxed/locale/ja/notes.txt": "これは日本語の文章です。\n".encode(),
    "boxed/data.txt": b"no text for readers\n",
    "boxed/license.py": b"print('no licence')\n",
    "boxed/NOTICE": b"binary\0notice",
}


def plant(folder: Path) -> str:
    (folder / "planted").mkdir(parents=True)
    for name, source in PLANTED.items():
        (folder / "planted" / name).write_text(source)
    for name, data in DISTRIBUTION.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    record = folder / "boxed-1.0.dist-info/RECORD"
    record.write_text("".join(f"{name},,\n" for name in (*DISTRIBUTION, "boxed/missing.html", "../../bin/README")))
    in_place = folder / "inplace-1.0.dist-info"
    in_place.mkdir()
    (in_place / "METADATA").write_text("Metadata-Version: 2.1\nName: inplace\nVersion: 1.0\n\nWork in progress\n")
    (in_place / "direct_url.json").write_text('{"url": "file:///work", "dir_info": {"editable": true}}')
    return str(folder)


def small(search_path: str, **changes) -> HarvestSettings:
    settings = {
        "packages": ("planted", "tasks_no_such_package"),
        "library": ("json", "json.decoder", "os", "os.path", "builtins"),
        "distributions": ("boxed", "inplace", "packaging"),
        "manual": False,
        "search_path": (search_path,),
        "seconds_per_module": 2.0,
        "pages_per_file": 5,
    }
    return HarvestSettings(**(settings | changes))


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """The same small harvest into two folders, with one child at a time and with three."""
    root = tmp_path_factory.mktemp("harvest")
    settings = small(plant(root / "packages"))
    seen = []
    os.environ["HARVEST_TEST_SECRET"] = SECRET
    try:
        first = harvest(root / "one", processes=1, settings=settings)
        second = harvest(
            root / "two", processes=3, settings=settings, progress=lambda done, total: seen.append((done, total))
        )
    finally:
        del os.environ["HARVEST_TEST_SECRET"]
    return root, settings, first, second, seen


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def read(folder: Path) -> dict[str, bytes]:
    """Payloads by address, read by fastwarc."""
    payloads = {}
    for file in sorted(folder.glob("*.warc.gz")):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                payloads[record.headers["WARC-Target-URI"]] = record.reader.read()
    return payloads


@pytest.mark.slow
def test_two_harvests_are_byte_identical(twice):
    root, _, first, second, _ = twice
    assert first == second
    assert contents(root / "one") == contents(root / "two")
    assert {file.name for file in root.iterdir() if file.is_dir()} == {"packages", "one", "two"}


def test_the_reference_text_is_what_a_reader_of_the_reference_pages_sees(twice):
    root, _, report, _, _ = twice
    rows = [json.loads(line) for line in (root / "one/reference.jsonl").read_text().splitlines()]
    assert len(rows) == report.kinds["reference"].pages
    assert sum(len(row["text"].encode()) for row in rows) == report.kinds["reference"].text_bytes
    assert {row["url"] for row in rows} <= read(root / "one").keys()


def test_progress_counts_every_module_once(twice):
    *_, seen = twice
    assert sorted(done for done, _ in seen) == list(range(1, len(PLANTED) + 5 + 1))
    assert {total for _, total in seen} == {len(PLANTED) + 5}


def test_records_hold_their_digests(twice):
    root, _, report, _, _ = twice
    ids = set()
    for file in sorted((root / "one").glob("*.warc.gz")):
        with file.open("rb") as stream:
            records = 0
            for record in ArchiveIterator(stream, parse_http=False):
                ids.add(record.record_id)
                assert record.verify_block_digest()
                records += 1
                assert (record.record_type == WarcRecordType.warcinfo) == (records == 1)
        assert records > 1
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                payload = record.reader.read()
                assert int(record.http_headers["Content-Length"]) == len(payload)
                digest = base64.b32encode(hashlib.sha1(payload).digest()).decode()
                assert record.headers["WARC-Payload-Digest"] == f"sha1:{digest}"
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                assert record.verify_payload_digest()
    assert len(ids) == report.pages + sum(len(kind.files) for kind in report.kinds.values())


def test_every_record_is_a_gzip_member_with_the_headers_of_warc_1_1(twice):
    root, _, report, _, _ = twice
    named = gzip.decompress((root / "one/warc.paths.gz").read_bytes()).decode().splitlines()
    assert named == [name for kind in report.kinds.values() for name in kind.files]
    pages = 0
    for name in named:
        rest = (root / "one" / name).read_bytes()
        while rest:
            member = zlib.decompressobj(wbits=31)
            head, _, block = member.decompress(rest).partition(b"\r\n\r\n")
            rest = member.unused_data
            assert member.eof and block.endswith(b"\r\n\r\n")
            version, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            digest = base64.b32encode(hashlib.sha1(block[:-4]).digest()).decode()
            assert version == "WARC/1.1"
            assert headers["WARC-Date"] == "2024-01-01T00:00:00Z"
            assert headers["WARC-Block-Digest"] == f"sha1:{digest}"
            assert int(headers["Content-Length"]) == len(block) - 4
            if headers["WARC-Type"] == "response":
                pages += 1
                assert headers["WARC-IP-Address"] == "127.0.0.1"
                assert re.match(r"https://(\w+\.)?\w+\.harvest\.invalid/", headers["WARC-Target-URI"])
                assert block.startswith(b"HTTP/1.1 200 OK\r\n")
    assert pages == report.pages


def test_pages_tell_nothing_of_the_machine(twice):
    root, settings, _, _, _ = twice
    pages = {url: payload.decode("utf-8", "replace") for url, payload in read(root / "one").items()}
    told = pages["https://planted.modules.harvest.invalid/planted.g_tells.html"]
    assert "Words of the last module." in told and "ENVIRONMENT" in told
    assert "object at ..." in told.replace("&nbsp;", " ")
    for url, page in pages.items():
        assert SECRET not in page, url
        assert not re.search(r"\bat(\s|&nbsp;)+0x[0-9a-f]{6,}", page), url
        for folder in {str(root), sys.prefix, sys.base_prefix, *settings.search_path} - {"/usr"}:  # as everywhere
            assert folder not in page, url
        assert not re.search(r"/(home|Users)/\w", page), url
        assert "harvest-" not in page, url
    assert not re.search(r"0x[0-9a-f]{6,}", told)
    assert str(Path.home()) not in told
    assert SECRET.encode() not in (root / "one/harvest.json").read_bytes()


def test_a_member_stands_once_where_it_is_defined(twice):
    root, *_ = twice
    told = read(root / "one")["https://planted.modules.harvest.invalid/planted.g_tells.html"].decode()
    assert told.count("Documented where it is defined.") == 1
    assert told.count("Documented in its own right.") == 1


def test_a_bad_module_costs_only_itself(twice):
    root, _, report, _, _ = twice
    assert report.lost == {
        "builtins": "longer than 200000 bytes",
        "planted.b_exits": "SystemExit: 3",
        "planted.c_loops": "no answer within 2 s",
        "planted.d_crashes": "killed by SIGSEGV",
        "planted.e_leaves": "ended the interpreter with status 7",
        "planted.f_raises": "ValueError: planted/f_raises.py",
        "planted.h_long": "longer than 200000 bytes",
    }
    modules = {url.split("/")[-1].removesuffix(".html") for url in read(root / "one") if ".modules." in url}
    rendered = {"planted", "planted.a_prints", "planted.g_tells", "json", "json.decoder", "os", "os.path"}
    assert modules == rendered


def test_files_of_a_distribution(twice):
    root, *_ = twice
    base = "https://boxed.packages.harvest.invalid/1.0/"
    pages = {url.removeprefix(base): page for url, page in read(root / "one").items() if url.startswith(base)}
    described, readme = pages.pop("description.html").decode(), pages.pop("files/boxed/README.md").decode()
    assert '<em>renders</em> its <a href="https://example.org">' in described
    assert "<th>Read</th>" in readme
    told = {f"files/{name}": data for name, data in DISTRIBUTION.items()}
    for left_out in ("METADATA", "README.md", "data.txt", "license.py", "NOTICE"):
        told = {url: data for url, data in told.items() if not url.endswith(left_out)}
    assert pages == told
    assert not any("inplace" in url for url in read(root / "one"))


def test_content_types_name_the_charset(twice):
    root, *_ = twice
    types = {}
    for file in sorted((root / "one").glob("packages-*.warc.gz")):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                if "//boxed." in (url := record.headers["WARC-Target-URI"]):
                    types[url.rsplit("/", 1)[-1]] = record.http_headers["Content-Type"]
    assert types["LICENSE"] == "text/plain; charset=iso-8859-1"
    assert types["COPYING.BSD"] == "text/plain; charset=utf-8"
    assert types["index.html"] == "text/html; charset=utf-8"


def test_a_finished_harvest_is_returned_and_another_environment_is_not(tmp_path):
    settings = HarvestSettings(packages=(), library=("json",), distributions=(), manual=False)
    first = harvest(tmp_path / "out", settings=settings)
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    calls = []
    again = harvest(tmp_path / "out", settings=settings, progress=lambda *counts: calls.append(counts))
    assert again == first and not calls
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == written

    [archive] = (tmp_path / "out").glob("*-00000.warc.gz")
    archive.write_bytes(b"cut short")
    assert harvest(tmp_path / "out", settings=settings) == first
    assert read(tmp_path / "out").keys() == {"https://json.modules.harvest.invalid/json.html"}

    other = harvest(tmp_path / "out", settings=settings.model_copy(update={"library": ("json.decoder",)}))
    assert other.fingerprint != first.fingerprint
    assert read(tmp_path / "out").keys() == {"https://json.modules.harvest.invalid/json.decoder.html"}


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="contains other files"):
        harvest(tmp_path / "out", settings=HarvestSettings(packages=(), library=(), distributions=(), manual=False))
    assert contents(tmp_path / "out") == {"thesis.txt": b"years of work"}


@pytest.mark.slow
def test_a_killed_harvest_leaves_nothing_half(tmp_path):
    settings = small(plant(tmp_path / "packages"), distributions=("boxed",), library=("json",))
    code = (
        "import sys; from pathlib import Path; from gristmill.flows.demo import *\n"
        "harvest(Path(sys.argv[1]), settings=HarvestSettings.model_validate_json(sys.argv[2]))"
    )
    root = Path(__file__).parents[2]
    killed = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "out"), settings.model_dump_json()], cwd=root)
    while not (tmp_path / ".out.partial").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "out").exists()
    harvest(tmp_path / "out", settings=settings)
    harvest(tmp_path / "undisturbed", settings=settings)
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")
    assert not (tmp_path / ".out.partial").exists()


def test_submodules_are_those_pkgutil_finds():
    found = {"packaging"} | {module.name for module in pkgutil.walk_packages(packaging.__path__, "packaging.")}
    assert set(submodules("packaging", sys.path)) == {name for name in found if "__main__" not in name}
    assert submodules("no_such_package", sys.path) == []


def test_the_standard_library_is_listed_without_what_acts_on_import():
    names = standard_library()
    assert {"json", "json.decoder", "email.message", "time"} <= set(names)
    assert not {"antigravity", "this", "turtledemo", "idlelib", "tkinter", "test"} & {n.split(".")[0] for n in names}
    assert not any("__main__" in name for name in names)


def test_reference_pages_are_prose_and_drawn_by_lot():
    pages = list(manual_pages())
    texts = {page.url: main_text(page) for page in pages}
    good = {page.url for page in pages if is_reference(page, texts[page.url], 1.0)}
    drawn = {page.url for page in pages if is_reference(page, texts[page.url], 0.6)}
    assert not any(is_reference(page, texts[page.url], 0.0) for page in pages)
    assert drawn < good and 0.3 < len(drawn) / len(good) < 0.9
    assert "https://manual.harvest.invalid/assignment.html" in good

    prose = "This is a sentence that a person has written for others, and it is as long as it has to be.\n\n" * 10
    stub = "\n\n".join(f"get_{i}(self, key: str = None, *, timeout: float = 1.0) -> Item_{i}" for i in range(50))
    words, total = prose_words(prose)
    assert words == total == 210
    assert prose_words(stub)[0] == 0
    licence = Page("https://x.invalid/LICENSE", "packages", "text/plain; charset=utf-8", prose.encode())
    assert not is_reference(licence, prose, 1.0)
