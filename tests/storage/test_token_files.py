"""Files of tokens as nanoGPT and llm.c write them, byte by byte."""

import struct

import numpy as np
import pytest

from gristmill.storage.token_shards import token_file

IDS = [50256, 15496, 11, 995, 50256, 1, 2]


def llm_c(magic: int, version: int, ids: list[int], code: str, count: int | None = None) -> bytes:
    header = struct.pack("<256i", magic, version, len(ids) if count is None else count, *[0] * 253)
    return header + struct.pack(f"<{len(ids)}{code}", *ids)


@pytest.mark.parametrize(
    ("content", "dtype", "ids"),
    [
        (struct.pack("<7H", *IDS), "<u2", IDS),
        (struct.pack("<H", 7), "<u2", [7]),
        (llm_c(20240520, 1, IDS, "H"), "<u2", IDS),
        (llm_c(20240801, 7, [128_000, 5], "I"), "<u4", [128_000, 5]),
    ],
)
def test_ids_are_found(tmp_path, content, dtype, ids):
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    found = token_file(path)
    assert found.dtype == dtype and found.tokens == len(ids)
    assert np.memmap(path, found.dtype, "r", found.offset).tolist() == ids


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (b"", "0 bytes, which are not uint16 tokens"),
        (b"abc", "3 bytes, which are not uint16 tokens"),
        (llm_c(20240520, 1, IDS, "H")[:-2], "1036 bytes, but 7 tokens take 1038"),
        (llm_c(20240520, 1, IDS, "H", count=-1), "but -1 tokens"),
        (llm_c(20240520, 2, IDS, "H"), "version 2 of llm.c's format"),
        (llm_c(20240522, 1, IDS, "H"), "multiple-choice examples of llm.c"),
    ],
)
def test_what_is_no_file_of_tokens_is_refused(tmp_path, content, trouble):
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"train.bin.*{trouble}"):
        token_file(path)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder; name the files in it"):
        token_file(tmp_path)
