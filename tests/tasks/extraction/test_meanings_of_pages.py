"""40 pages with roles, small tags, hidden text and signs of Markdown. Someone who had not read the code wrote down what
their text must have, before the code was changed for such pages."""

import json
import re
from pathlib import Path

from gristmill.tasks.extraction.classifier import main_text

CASES = Path(__file__).with_name("meanings.jsonl")
RIGHT = 36  # as measured when they were first seen


def is_right(case: dict, markdown: bool) -> bool:
    """Whether the text has what it must have, and at least one of each group of alternatives, and nothing else that it
    must not have."""
    text = main_text(case["html"], markdown)
    if case.get("collapse_spaces"):
        text = re.sub(r"[^\S\n]+", " ", text)
    refused = [*case["must_not"], *(case.get("must_not_markdown", ()) if markdown else ())]
    return (
        all(each in text for each in case["must"])
        and all(any(each in text for each in group) for group in case.get("any", ()))
        and not any(each in text for each in refused)
    )


def test_pages_have_the_text_that_a_reader_expects():
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    right = [case["id"] for case in cases if is_right(case, False) and is_right(case, True)]
    assert len(cases) == 40 and len(right) >= RIGHT, sorted({case["id"] for case in cases} - {*right})
