"""Tokenizers that take time or memory without end, or end a process, are refused in a sentence before any work."""

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from gristmill.tasks.tokens import trial
from gristmill.tasks.tokens.trial import tried

DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
ASTRAY = {"type": "Split", "pattern": {"Regex": r"(a+a+)+y|(a|aa)+$"}, "behavior": "Isolated", "invert": False}

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def content(**parts: object) -> bytes:
    """A byte-level BPE without merges, with other parts of its JSON."""
    made = Tokenizer(BPE({letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<|endoftext|>"])
    return json.dumps(json.loads(made.to_str()) | parts).encode()


def test_a_tokenizer_is_tried_with_its_names_and_what_its_normalizer_changes():
    plain = tried(content(), "plain.json", None)
    assert len(plain.names) == 257 and plain.changes == ()
    lower = tried(content(normalizer={"type": "Lowercase"}), "lower.json", None)
    assert lower.changes == ("forms of one letter ('ﬁ ① Ａ x²' is 'ﬁ ① ａ x²')", "case ('Ab' is 'ab')")


@pytest.mark.extended
@pytest.mark.parametrize(
    "parts, message, remedy",
    [
        (
            {"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 40}},
            "cannot be used on a short text: ",
            "give another tokenizer",
        ),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [DOUBLING] * 7}},
            "more than 64 tokens per letter",
            "use another tokenizer",
        ),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [ASTRAY, BYTES]}},
            "cannot be used on",
            "give another tokenizer",
        ),
        (
            {"model": {"type": "BPE", "vocab": {"a": 2**32 - 1}, "merges": []}},
            "has a token with the id 4,294,967,295; use",
            "use a tokenizer with ids below 16,777,216",
        ),
        (
            {"model": {"type": "BPE", "vocab": {}, "merges": [["x", "y"]]}},
            "is not a valid tokenizer.json of Hugging",
            "give another one",
        ),
    ],
)
def test_a_tokenizer_that_goes_astray_is_one_sentence(monkeypatch, parts, message, remedy):
    monkeypatch.setattr(trial, "SECONDS", 3)
    with pytest.raises(ValueError, match=message) as error:
        tried(content(**parts), "given.json", None)
    assert f"{error.value}".startswith("given.json ") and f"; {remedy}" in f"{error.value}"
    assert "\n" not in f"{error.value}"
