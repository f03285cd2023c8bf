"""Verdicts of the rules beside those of datatrove's own filters on the same texts, and what each difference comes from.

Prints the share of equal verdicts of each filter and a table of the others by rule and cause. A cause is found by
computing the rules in plain Python with datatrove's words, or its sentences, in place of ours.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pytest

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import DocumentStep, work_of
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from tests.tasks.rules import reference, segmentation
from tests.tasks.rules.web import web_texts

pytest.importorskip("spacy", reason="datatrove cuts English with spaCy: pip install -e '.[bench]'")
filters = pytest.importorskip("datatrove.pipeline.filters", reason="pip install -e '.[bench]'")
from datatrove.data import Document  # noqa: E402
from datatrove.utils.text import split_into_sentences, split_into_words  # noqa: E402

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

LEAST = 0.98
BATCH = 256

# What a run without white space is, for the table: the first that matches. A cause is of all such runs of a page.
CLASSES = {
    "address, URL or name": re.compile(r"://|www\.|@|\w\.(com|org|net|edu|gov|html?)\b"),
    "contraction or possessive": re.compile(r"(?i)n['’]t\b|\w['’](s|m|d|re|ve|ll|em|tis)\b|cannot|gonna|^['’]"),
    "abbreviation or initial": re.compile(r"\b\w{1,4}\.\W*$|\w\.\w+\."),
    "number, date, time or unit": re.compile(r"\d"),
    "run of one mark": re.compile(r"([^\w\s])\1"),
    "emoticon or symbol": re.compile(r"[:;=8][-^o']?[)(DPp/\\|\]\[]|[^\x00-\u2fff]"),
    "command, path or option": re.compile(r"^\W*[-./~\\]\w|\w/|/\w|_"),
    "marks inside": re.compile(r"\w[^\w\s]+\w"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> list[str]:
    return web_texts(tmp_path_factory.mktemp("web"))


def passed(step: DocumentStep, values: dict) -> str:
    """The first rule that the values fail, or nothing."""
    for bound in step.decisions():
        value = values[bound.signal]
        if (bound.low is not None and value < bound.low) or (bound.high is not None and value > bound.high):
            return bound.rule
    return ""


def ours(step: DocumentStep, texts: list[str]) -> Iterator[str]:
    for i in range(0, len(texts), BATCH):
        batch = Batch(pa.table({"id": texts[i : i + BATCH], "text": pa.array(texts[i : i + BATCH], pa.large_string())}))
        columns = (
            work_of(step).edit(step, batch)[1] | {"c4_characters": pa.repeat(1, len(batch))}
            if isinstance(step, C4)
            else None
        )
        for row in pa.table(columns or work_of(step).measure(step, batch)).to_pylist():
            yield passed(step, row)


def theirs(judge, texts: list[str]) -> Iterator[str]:
    for text in texts:
        verdict = judge.filter(Document(text=text, id=""))
        yield "" if verdict is True else verdict[1]


def by_field(text: str, words: list[str]) -> list[list[str]]:
    """datatrove's words of each run without white space; one across runs goes to the first."""
    found, at, begin = [], 0, 0
    for field in text.split():
        begin = text.index(field, begin)
        end = begin + len(field)
        found.append([])
        while at < len(words) and (place := text.find(words[at], begin)) >= 0 and place < end:
            found[-1].append(words[at])
            begin = place + len(words[at])
            at += 1
        begin = max(begin, end)
    return found


def kind(field: str) -> str:
    return next((name for name, pattern in CLASSES.items() if pattern.search(field)), "marks around a word")


def word_cause(step: DocumentStep, text: str, verdict: str) -> str:
    """The one class of runs whose words make the difference, if there is one."""
    rules = reference.RULES[step.step]

    def judged(words: list[str], tokens: list[str]) -> bool:
        document = reference.Document(text, words, tokens)
        return not passed(step, {f"{step.step}_{name}": measure(document) for name, measure in rules.items()})

    kept = not verdict
    all_theirs = split_into_words(text)
    if judged(all_theirs, all_theirs) != kept:
        return "NOT THE WORDS"
    fields = text.split()
    pairs = [
        (f, segmentation.words(f), reference.tokens(f), them)
        for f, them in zip(fields, by_field(text, all_theirs), strict=True)
    ]
    counted = Counter(kind(f) for f, words, tokens, them in pairs if words != them or tokens != them)
    alone = []
    for name, _ in counted.most_common():
        words = [w for f, own, _, them in pairs for w in (them if kind(f) == name else own)]
        tokens = [w for f, _, own, them in pairs for w in (them if kind(f) == name else own)]
        if judged(words, tokens) == kept:
            alone.append(name)
    return alone[0] if alone else "only together: " + ", ".join(sorted(n for n, _ in counted.most_common(2)))


def sentence_cause(step: C4, text: str, verdict: str) -> str:
    def judged(split) -> reference.C4:
        return reference.c4(text, step.terminal_punctuation, step.min_words_per_line, step.citation_words, split)

    found = judged(split_into_sentences)
    values = {
        f"c4_{name}": getattr(found, name) for name in ("lorem_ipsum", "curly_bracket", "sentences", "long_lines")
    }
    if bool(passed(step, values | {"c4_characters": 1})) != bool(verdict):
        return "NOT THE SENTENCES"
    causes: Counter[str] = Counter()
    for line in found.kept:
        own, other = starts(line, reference.c4_sentences(line)), starts(line, split_into_sentences(line))
        causes.update(boundary(line, place) for place in own ^ other)
    return causes.most_common(1)[0][0]


def starts(line: str, sentences: list[str]) -> set[int]:
    found, at = set(), 0
    for sentence in map(str.strip, sentences):
        at = line.index(sentence, at)
        found.add(at)
        at += len(sentence)
    return found


def boundary(line: str, place: int) -> str:
    """What stands where only one of the two begins a sentence."""
    before, after = line[:place].rstrip(), line[place:]
    if before.endswith(("..", "…")):
        return "dots before it"
    if re.search(r"(^|\W)(\w{1,4}|\w+\.\w+)\.$", before):
        return "abbreviation, initial or number before it"
    if not line[:place].endswith((" ", "\t")):
        return "no white space before it"
    if unicodedata.category(after[0]) == "Ll":
        return "it begins in lower case"
    return "marks or brackets around it"


@cache
def peers() -> dict[str, tuple]:
    return {
        "gopher_repetition": (GopherRepetition(), filters.GopherRepetitionFilter(), word_cause),
        "gopher_quality": (GopherQuality(), filters.GopherQualityFilter(), word_cause),
        "c4, any line end": (
            C4(terminal_punctuation=()),
            filters.C4QualityFilter(filter_no_terminal_punct=False),
            sentence_cause,
        ),
        "c4, terminal punctuation": (C4(), filters.C4QualityFilter(), sentence_cause),
        "fineweb_quality": (FineWebQuality(), filters.FineWebQualityFilter(), word_cause),
    }


@pytest.mark.parametrize("name", peers())
def test_verdicts_are_those_of_datatrove(name, pages, capsys):
    step, judge, cause = peers()[name]
    pairs = list(zip(pages, ours(step, pages), theirs(judge, pages), strict=True))
    differing = [(text, us, them) for text, us, them in pairs if bool(us) != bool(them)]
    equal = 1 - len(differing) / len(pairs)
    same_rule = sum(bool(us) and bool(them) for _, us, them in pairs)
    table = Counter((them or "kept", us or "kept", cause(step, text, them)) for text, us, them in differing)
    with capsys.disabled():
        print(f"\n{name}: {len(pairs)} pages, both drop {same_rule}, verdicts equal {equal:.2%}")
        for (them, us, why), count in table.most_common():
            print(f"  {count:4}  datatrove {them:28} ours {us:14} {why}")
    assert equal >= LEAST
    assert not [why for _, _, why in table if why.startswith("NOT")]
