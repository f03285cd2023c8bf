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
# A tokenizer may take this much memory, and this many bytes for each of its file: those million merges take 20 each.
_MEMORY, _MEMORY_PER_BYTE = 512 << 20, 40
# Texts that normalizers and pre-tokenizers change, by what they are.
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
    """`names`: of the tokens, by id; `changes`: what of PROBES does not come back, in words; `stripping`: tokens that
    take the white space beside them, of a tokenizer.json."""

    names: tuple[str, ...]
    changes: tuple[str, ...]
    stripping: tuple[str, ...]


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
    return Tried(*(tuple(result[name]) for name in ("names", "changes", "stripping")))


def try_tokenizer(data: bytes, path: str, end_of_text: str | None) -> dict[str, Any]:
    """The fields of `Tried`, or `error`. Called in the guarded process."""
    try:
        kept, name = given.given_tokenizer(data, path, end_of_text)
        tokenizer = tokenizer_files.read_tokenizer(kept, name)
        changes, stripping = _losses(data) if name == given.JSON else ([], [])
        for text in (*PROBES.values(), *_REPEATED, _LETTERS):
            if len(tokenizer.encode(text)) > _MAX_GROWTH * len(text.encode()):
                return {"error": f"{path} makes more than {_MAX_GROWTH} tokens per letter; use another tokenizer"}
    except ValueError as error:
        return {"error": f"{error}"}
    return {"names": tokenizer.names, "changes": changes, "stripping": stripping}


def _losses(data: bytes) -> tuple[list[str], list[str]]:
    """Each probe that decodes to another text, with that text (a blank before the first word does not count); and added
    tokens that absorb white space."""
    tokenizer = tokenizers.Tokenizer.from_buffer(data)
    changes: list[str] = []
    for what, probe in PROBES.items():
        ids = tokenizer.encode(probe, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if tokenizer.decoder is None:  # which would put blanks between all tokens
            back = probe if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(probe)
        if back not in (probe, f" {probe}", probe.removeprefix(" ")):
            changes.append(f"{what} ({probe!r} is {back!r})")
    added = tokenizer.get_added_tokens_decoder().values()
    return changes, [token.content for token in added if token.lstrip or token.rstrip]
