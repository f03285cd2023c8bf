"""Verdicts of the recipe `dclm` beside those of DCLM's own mappers on the same pages, and what differences come from.

DCLM's code is run from a checkout, `--dclm FOLDER`, with the settings of its own configuration. Needed besides:
nltk, uniseg, retrie, transformers, Unidecode, beautifulsoup4. Prints, for each of its filters, how many verdicts differ
with `definition: datatrove` and with `definition: dclm`, and the causes of the rest. A cause is found by computing: a
verdict is explained by words if ours, in plain Python with uniseg's words in place of ours, is DCLM's.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
import yaml
from fastwarc.warc import ArchiveIterator, WarcRecordType

from gristmill.flows.recipe.recipe import load
from gristmill.tasks.documents.edits import applied, merged
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import DocumentStep, work_of
from tests.tasks.rules import dclm_reference, reference, segmentation
from tests.tasks.rules.web import web_texts

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

PACKAGES = "nltk uniseg retrie transformers Unidecode beautifulsoup4"
MOST = 0.01
BATCH = 256
DATATROVE = {"definition": "datatrove", "max_hash_ratio": 0.1, "max_ellipsis_ratio": 0.1, "max_symbol_ratio": None}

# Our rules that stand for each of DCLM's filters, in the order of its configuration.
RULES = {
    "page_length_filter": ("words",),
    "word_length_filter": ("mean_word_length",),
    "symbol_ratio_filter": ("symbol_ratio", "hash_ratio", "ellipsis_ratio"),
    "bullet_count_filter": ("bullet_lines",),
    "ellipsis_count_filter": ("ellipsis_lines",),
    "alphabetic_word_ratio_filter": ("alpha_words",),
    "stop_word_filter": ("stop_words",),
    "massive_web_repetition_filters": tuple(dclm_reference.REPETITION),
}
LINES = ("word_counter_enricher", "word_removal_ratio_filter")  # the first and the last of its line-wise part


@dataclass(frozen=True)
class Dclm:
    """DCLM's mappers by name, and the steps of its configuration."""

    root: Path
    mappers: dict[str, Callable]
    steps: list[dict]
    split_words: Callable[..., list[str]]

    def mapper(self, step: dict) -> Callable[[dict], list[dict]]:
        settings = {name: value for name, value in step.items() if name != "func"}
        function = self.mappers[step["func"]]
        if getattr(function, "_is_factory", False):
            return function(**settings)
        return lambda page: function(page, **settings)

    def step(self, name: str) -> dict:
        (found,) = [step for step in self.steps if step["func"] == name]
        return found

    def lines(self) -> list[Callable[[dict], list[dict]]]:
        names = [step["func"] for step in self.steps]
        return [self.mapper(step) for step in self.steps[names.index(LINES[0]) : names.index(LINES[1]) + 1]]


@pytest.fixture(scope="module")
def dclm(request) -> Iterator[Dclm]:
    if not (folder := request.config.getoption("--dclm")):
        pytest.skip("give --dclm FOLDER, a checkout of github.com/mlfoundations/dclm")
    for needed in ("nltk", "uniseg", "retrie", "transformers", "unidecode", "bs4"):
        pytest.importorskip(needed, reason=f"pip install {PACKAGES}")
    root = Path(folder)
    # packages without their `__init__`, which import all mappers and what every one of them needs
    for name in (
        "core",
        "baselines",
        "baselines.core",
        *(f"baselines.mappers{p}" for p in ("", ".filters", ".enrichers")),
    ):
        package = ModuleType(name)
        package.__path__ = [str(root / "baselines" / "core" if name == "core" else root / name.replace(".", "/"))]
        sys.modules[name] = package
    mappers: dict[str, Callable] = {}
    for name in ("filters.content_filters", "filters.metadata_filters", "modifiers", "enrichers.enrichers"):
        mappers |= vars(import_module(f"baselines.mappers.{name}"))
    config = root / "baselines" / "baselines_configs" / "dclm_baseline_refinedweb.yaml"
    (pipeline,) = yaml.safe_load(config.read_text(encoding="utf-8"))
    yield Dclm(root, mappers, pipeline["steps"], import_module("baselines.mappers.core_utils").split_words)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("core", "baselines")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> list[str]:
    return web_texts(tmp_path_factory.mktemp("web"))


def batches(texts: list[str]) -> Iterator[Batch]:
    for i in range(0, len(texts), BATCH):
        part = texts[i : i + BATCH]
        yield Batch(pa.table({"id": list(map(str, range(len(part)))), "text": pa.array(part, pa.large_string())}))


def failed(step: DocumentStep, values: dict) -> set[str]:
    """The rules that the values fail."""
    return {
        bound.rule
        for bound in step.decisions()
        if (bound.low is not None and values[bound.signal] < bound.low)
        or (bound.high is not None and values[bound.signal] > bound.high)
    }


def step_of(filter_name: str, **changed) -> DocumentStep:
    name = "gopher_repetition" if filter_name == "massive_web_repetition_filters" else "gopher_quality"
    step = next(step for step in load("dclm").steps if step.step == name)
    return step.model_copy(update={key: value for key, value in changed.items() if key in type(step).model_fields})


def kept(step: DocumentStep, rules: tuple[str, ...], texts: list[str]) -> list[bool]:
    rows = [row for batch in batches(texts) for row in pa.table(work_of(step).measure(step, batch)).to_pylist()]
    return [not failed(step, row) & set(rules) for row in rows]


def cause(dclm: Dclm, step: DocumentStep, rules: tuple[str, ...], text: str, theirs: bool) -> str:
    own = segmentation.words(text)
    uniseg = dclm.split_words(text, model="uniseg")
    if not dclm_reference.lines(text):
        return "no line with text"
    measures = dclm_reference.REPETITION if step.step == "gopher_repetition" else dclm_reference.QUALITY
    document = reference.Document(text, uniseg)
    values = {f"{step.step}_{name}": measure(document) for name, measure in measures.items()}
    if bool(failed(step, values) & set(rules)) == theirs:
        return "NOT THE WORDS"
    unlike = [word for words in (Counter(uniseg) - Counter(own), Counter(own) - Counter(uniseg)) for word in words]
    spaceless = (segmentation.hiragana, segmentation.katakana, segmentation.alone, segmentation.spaceless)
    if all(any(kind(c) for kind in spaceless) for word in unlike if word[0].isalnum() for c in word[:1]):
        return "words of scripts without spaces"
    return f"words: {' '.join(unlike[:5])}"


@pytest.mark.parametrize("name", RULES)
def test_verdicts_are_those_of_dclm(name, dclm, pages, capsys):
    judge = dclm.mapper(dclm.step(name))
    theirs = [bool(judge({"text": text})) for text in pages]
    before, after = (kept(step_of(name, **changed), RULES[name], pages) for changed in (DATATROVE, {}))
    differing = [i for i, verdict in enumerate(theirs) if after[i] != verdict]
    step = step_of(name)
    table = Counter(cause(dclm, step, RULES[name], pages[i], theirs[i]) for i in differing)
    with capsys.disabled():
        print(f"\n{name}: of {len(pages)} pages DCLM drops {theirs.count(False)}; verdicts that differ:")
        print(
            f"  definition datatrove {sum(a != b for a, b in zip(before, theirs, strict=True))}, dclm {len(differing)}"
        )
        for why, count in table.most_common():
            print(f"  {count:4}  {why}")
    assert 0 < theirs.count(False) < len(pages)
    assert len(differing) <= MOST * len(pages)
    assert not [why for why in table if why.startswith("NOT")]


def tidy(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def test_lines_are_those_of_dclm(dclm, pages, capsys):
    step = next(step for step in load("dclm").steps if step.step == "refinedweb_lines")
    judges = dclm.lines()
    verdicts, texts, causes = 0, 0, Counter()
    at = 0
    for batch in batches(pages):
        edits, columns = work_of(step).edit(step, batch)
        left = applied(batch["text"], merged(edits)).to_pylist()
        for text, removed in zip(left, columns["refinedweb_lines_removed_words"].to_pylist(), strict=True):
            page = {"text": pages[at]}
            theirs = all(judge(page) for judge in judges)
            own = bool(text.strip()) and not removed > step.max_removed_words
            if own != theirs:
                verdicts += 1
                counted = dclm.split_words(pages[at], ignore_punctuation=True)
                causes["UNKNOWN" if counted else "no word begins with a letter or number: DCLM drops it"] += 1
            texts += theirs and tidy(text) != tidy(page["text"])
            at += 1
    with capsys.disabled():
        print(
            f"\nrefinedweb_lines: of {len(pages)} pages {verdicts} verdicts differ, {dict(causes)}; of those that stay"
        )
        print(f"  {texts} texts differ in more than blank lines")
    assert verdicts <= MOST * len(pages) and "UNKNOWN" not in causes
    assert texts == 0


@pytest.fixture(scope="module")
def urls() -> list[str]:
    if not (data := os.environ.get("GRISTMILL_TEST_DATA")):
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/web/*.warc.gz")
    found = []
    for path in sorted(Path(data, "warc", "web").glob("*.warc.gz")):
        with open(path, "rb") as stream:
            records = ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=False)
            found += [record.headers["WARC-Target-URI"] for record in records]
    return found


def url_cause(url: str, subdomains: bool) -> str:
    place = urlsplit(url).netloc
    if "www" in place:
        return "DCLM takes `www` out of a host and leaves its dot"
    if ":" in place:
        return "DCLM compares the port, too"
    if place.startswith("."):
        return "no canonical form, so on no list"
    return "a host below one of the list" if subdomains else "UNKNOWN"


def test_urls_are_those_of_dclm(dclm, urls, tmp_path, capsys):
    """DCLM's list of hosts is not in its repository: in its place stands every tenth of the pages', with parents."""
    hosts = sorted({(urlsplit(url).hostname or "").removeprefix("www.") for url in urls})[::10]
    hosts += [parent for host in hosts[::2] if "." in (parent := host.partition(".")[2])]
    given = [step for step in dclm.steps if step["func"] == "url_substring_filter"]
    by_host, *by_words = (step["banlist_from_fname"] for step in given)
    settings = ("blocklists", "strict_substrings", "hard_words", "soft_words")
    names = dict(zip((by_host, *by_words), settings, strict=True))
    addresses = {path: dclm.root / path for path in by_words} | {by_host: tmp_path / "hosts"}
    addresses[by_host].write_text("\n".join(hosts), encoding="utf-8")
    judges = [dclm.mapper(step | {"banlist_from_fname": str(addresses[step["banlist_from_fname"]])}) for step in given]
    theirs = [[bool(judge({"url": url})) for judge in judges] for url in urls]
    step = next(step for step in load("dclm").steps if step.step == "url")
    step = step.model_copy(update={name: (str(addresses[path]),) for path, name in names.items()})
    with capsys.disabled():
        dropped = [column.count(False) for column in zip(*theirs, strict=True)]
        print(f"\nurl: of {len(urls)} URLs DCLM's four filters drop {dropped}")
    for subdomains in (True, False):
        chosen = step.model_copy(update={"subdomains": subdomains})
        found = work_of(chosen).measure(chosen, Batch(pa.table({"id": urls, "url": urls})))
        own = [
            found["url_blocklist"].to_pylist(),
            found["url_strict_substring"].to_pylist(),
            found["url_hard_word"].to_pylist(),
            [count > chosen.max_soft_words for count in found["url_soft_words"].to_pylist()],
        ]
        table: Counter[tuple[str, str]] = Counter()
        for url, drops, keeps in zip(urls, zip(*own, strict=True), theirs, strict=True):
            unlike = [name for name, a, b in zip(names.values(), drops, keeps, strict=True) if bool(a) == b]
            table.update((name, url_cause(url, subdomains)) for name in unlike)
        with capsys.disabled():
            print(f"  verdicts that differ with `subdomains: {str(subdomains).lower()}`: {dict(table)}")
    assert "UNKNOWN" not in [why for _, why in table]
