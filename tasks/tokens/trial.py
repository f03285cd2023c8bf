"""A tokenizer of others, loaded and tried in a guarded process before any work; apart, since no stage needs it.

A tokenizer.json is a program: its normalizer may write many letters for one, and its patterns may need time that
doubles with each letter of a text. Where it is used, among the jobs of a stage, nothing limits it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.tasks.guard.parent import Guard, Limits

if TYPE_CHECKING:
    import tokenizers

    from gristmill.storage import tokenizer_files
    from gristmill.tasks.tokens import tokenizer as given
else:
    tokenizers = wrapt.lazy_import("tokenizers")
    tokenizer_files = wrapt.lazy_import("gristmill.storage.tokenizer_files")
    given = wrapt.lazy_import("gristmill.tasks.tokens.tokenizer")

SECONDS = 60  # of processor time: a million merges in 30 MB of JSON take 10 s to load
# A tokenizer may take so much memory, and so many bytes for each of its file: those million merges take 20 each.
_MEMORY, _MEMORY_PER_BYTE = 512 << 20, 40
# Texts that normalizers change, by what they are.
PROBES = {
    "forms of one letter": "ﬁ ① Ａ x²",
    "case": "Ab",
    "accents": "é",
    "letters in two parts": "e\u0301",
    "white space": " a  b\tc\n\nd ",
    "quotes": "“a” ‘b’",
}
# Texts on which patterns go astray: one character many times, and then another.
_REPEATED = tuple(f"{character * 64}{end}" for character in "aA0 .\n_é日" for end in "b!")
_LETTERS = "".join(map(chr, range(0x20, 0x7F)))
_MAX_GROWTH = 64  # tokens for each byte of a text


@dataclass(frozen=True)
class Tried:
    """`names`: of the tokens, by id; `changes`: what its normalizer changes in PROBES, in words."""

    names: tuple[str, ...]
    changes: tuple[str, ...]


@lru_cache(1)  # a check asks several times
def tried(data: bytes, path: str, end_of_text: str | None) -> Tried:
    """The tokenizer of a file's content. `end_of_text`: as for `gristmill.tasks.tokens.tokenizer.take_tokenizer`.

    Raises ValueError, which names the path, as `take_tokenizer` does, and for one that takes too much time or memory
    with a short text, or ends its process.
    """
    memory = _MEMORY + _MEMORY_PER_BYTE * len(data)
    limits = Limits(page_seconds=SECONDS, page_wall_seconds=20 * SECONDS, page_memory=memory, page_result=memory)
    with Guard(f"{__name__}:try_tokenizer", limits) as guard:
        [result] = guard.map([(data, path, end_of_text)])
    if "rule" in result:
        raise ValueError(f"{path} cannot be used on a short text: {result['detail']}; give another tokenizer")
    if "error" in result:
        raise ValueError(result["error"])
    return Tried(tuple(result["names"]), tuple(result["changes"]))


def try_tokenizer(data: bytes, path: str, end_of_text: str | None) -> dict[str, Any]:
    """The fields of `Tried`, or `error`. Called in the guarded process."""
    try:
        kept, name = given.given_tokenizer(data, path, end_of_text)
        tokenizer = tokenizer_files.read_tokenizer(kept, name)
        changes = _changes(data) if name == given.JSON else []
        for text in (*PROBES.values(), *_REPEATED, _LETTERS):
            if len(tokenizer.encode(text)) > _MAX_GROWTH * len(text.encode()):
                return {"error": f"{path} makes more than {_MAX_GROWTH} tokens of a letter; give another tokenizer"}
    except ValueError as error:
        return {"error": f"{error}"}
    return {"names": tokenizer.names, "changes": changes}


def _changes(data: bytes) -> list[str]:
    normalizer = tokenizers.Tokenizer.from_buffer(data).normalizer
    if normalizer is None:
        return []
    return [
        f"{what} ({probe!r} is {normalized!r})"
        for what, probe in PROBES.items()
        if (normalized := normalizer.normalize_str(probe)) != probe
    ]
