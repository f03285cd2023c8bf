"""Files of tokens that others have written: where their ids begin, of which type they are, and how many.

nanoGPT's are uint16 and nothing else (https://github.com/karpathy/nanoGPT, data/openwebtext/prepare.py). llm.c's have a
header of 256 int32: a magic number, a version and the number of tokens (https://github.com/karpathy/llm.c,
dev/data/data_common.py). In both a text is parted from the next one by the end-of-text token.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from gristmill.storage.tokens.training_manifest import TokenDtype

HEADER = 256  # int32
# Of llm.c: magic number and version of GPT-2's tokens and of Llama 3's
KINDS: dict[tuple[int, int], TokenDtype] = {(20240520, 1): "<u2", (20240801, 7): "<u4"}
EVALUATION = 20240522


class TokenFile(NamedTuple):
    """`offset`: bytes ahead of the first id."""

    path: Path
    dtype: TokenDtype
    offset: int
    tokens: int


def token_file(path: Path) -> TokenFile:
    """The kind of a file of tokens, by its first bytes: one without a header of llm.c is nanoGPT's.

    Raises FileNotFoundError, or ValueError for a folder, and a file that is cut off or holds no tokens.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name the files in it, as {path}/*.bin")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = np.frombuffer(file.read(12), "<i4", min(3, size // 4)).tolist()
    magic, version, count = (*head, 0, 0, 0)[:3]
    if magic == EVALUATION:
        raise ValueError(f"{path} has the multiple-choice examples of llm.c, no text to train on; leave it out")
    if magic not in {magic for magic, _ in KINDS}:
        if size % 2 or not size:
            raise ValueError(f"{path} has {size} bytes, which are no uint16 tokens; write it again")
        return TokenFile(path, "<u2", 0, size // 2)
    if (magic, version) not in KINDS:
        raise ValueError(f"{path} is of version {version} of llm.c's format, which is not known; write it with llm.c")
    dtype = KINDS[magic, version]
    expected = 4 * HEADER + count * np.dtype(dtype).itemsize
    if count <= 0 or size != expected:
        raise ValueError(f"{path} has {size} bytes, but {count} tokens take {expected}; write it again")
    return TokenFile(path, dtype, 4 * HEADER, count)
