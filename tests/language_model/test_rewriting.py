"""The checks of rewrites, and what is measured of them, one text at a time."""

import pytest

from gristmill.tasks.language_model.answers import Answer
from gristmill.tasks.language_model.rewrite import (
    Checks,
    RewriteRecord,
    RewriteSettings,
    new_names,
    new_numbers,
    refused,
)

USER = "Rewrite what stands below so that a careful reader from another country can follow each single step of it.\n"
SOURCE = "The mill grinds rye on Mondays. Its stones were cut in 1871, by the Harrow brothers. " * 2


def asked(**checks) -> RewriteRecord:
    settings = RewriteSettings(model="m", prompt={"user": USER + "{{ document }}"}, max_tokens=100)
    return RewriteRecord(
        settings=settings, name="own", checks=Checks(**checks), by=(), seed=0, of_source=False, identify=None
    )


def rule(text: str, finish: str = "stop", source: str = SOURCE, **checks) -> str | None:
    found = refused(asked(**checks), source, Answer(text, "m", finish, 1, 1))
    return None if found is None else found.rule


GOOD = "On Mondays rye is ground at the mill, whose stones the Harrow brothers cut in 1871 from the quarry."


def test_a_rewrite_passes():
    assert rule(GOOD) is None


@pytest.mark.parametrize("finish", ["refusal", "content_filter", "error", "length"])
def test_the_end_of_an_answer_is_the_reason(finish):
    assert rule(GOOD, finish) == finish


def test_lengths_are_bounded_at_both_ends():
    assert rule("Rye.") == "too_short"
    assert rule("x" * 50, min_characters=50) is None and rule("x" * 49, min_characters=50) == "too_short"
    assert rule(GOOD, max_ratio=len(GOOD) / len(SOURCE)) is None
    assert rule(f"{GOOD}!", max_ratio=len(GOOD) / len(SOURCE)) == "too_long"
    assert rule(GOOD, min_ratio=1.1) == "too_short"


def test_a_refusal_counts_at_the_beginning_and_not_where_the_source_has_it():
    refusal = "I\u2019m sorry, but I can\u2019t rewrite this text for you because it is about milling."
    assert rule(refusal) == "refusal_phrase"
    assert rule(refusal, source=f"{refusal} {SOURCE}") is None
    assert rule(f"{GOOD * 4} {refusal}") is None
    assert rule(refusal, refusals=()) is None


def test_a_long_run_of_the_words_of_the_prompt_is_a_copy():
    words = "a careful reader from another country can follow each single step of it"  # 13
    assert rule(f"{GOOD} {words}") == "copies_prompt"
    assert rule(f"{GOOD} {words.upper()}!") == "copies_prompt"
    assert rule(f"{GOOD} {' '.join(words.split()[:11])}") is None
    assert rule(f"{GOOD} {words}", prompt_words=None) is None
    assert rule(f"{GOOD} {words}", prompt_words=14) is None


def test_numbers_that_the_source_lacks():
    assert new_numbers("in 1871 and 1,200", "1871, 1,200") == 0
    assert new_numbers("in 1871", "1871 or 1872, 3.5") == 2
    assert new_numbers("7", "7 and 7") == 1


def test_names_that_the_source_lacks():
    assert new_names(SOURCE, "Then came Harrow, and with him Anna of the Ouse. Anna left.") == 2
    assert new_names(SOURCE, "Later they left. Nobody knows why.") == 0
    assert new_names("ANNA", "so Anna went") == 0
    assert new_names("", "\u6570\u636e \u5f00\u59cb") == 0
