"""Problems with the files that steps and sources name: key and sentence of each, in their order."""

import json

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.flows.recipe.steps import AnyStep
from gristmill.storage import parquet
from gristmill.tasks.reading.sources import FORMATS, Source

CORRECT = "correct the path or pattern; relative paths start in the folder of the recipe file"
STEPS = (
    (
        {"step": "url", "takedowns": ["no", "words", "folder"], "hard_words": ["no"], "blocklists": ["ut1", "folder"]},
        {
            "takedowns 0": "the list no does not exist; correct the address",
            "takedowns 2": "the list folder is a folder; name a file",
            "hard_words 0": "the list no does not exist; correct the address",
            "blocklists 1": "the folder folder has no files domains, urls, expressions; give a folder in UT1's layout",
        },
    ),
    (
        {"step": "minhash", "earlier": ["folder"], "takedowns": ["no", "https://example.org/list"]},
        {
            "takedowns 0": "the list no does not exist; correct the address",
            "earlier 0": "folder is not a finished stage `near_duplicates`; give its folder in the home of an earlier "
            "crawl",
        },
    ),
    (
        {"step": "rights", "protocols": ["robots"], "hosts": ["words", "hosts"]},
        {
            "hosts 1": "the list hosts has the line 'a.example:8443'; give an id, a host without its port, a URL, or a "
            "folder as https://host/path/*"
        },
    ),
    (
        {"step": "bad_words", "lists": {"any": "no", "de": "words"}},
        {"lists any": "the list no does not exist; correct the address"},
    ),
    (
        {"step": "gopher_quality", "stop_words_by_language": {"en": ["a"], "de": "no"}},
        {"stop_words_by_language de": "the list no does not exist; correct the address"},
    ),
    (
        {
            "step": "decontamination",
            "benchmarks": [
                {"name": "one", "path": "items.jsonl", "question": ["q"]},
                {"name": "two", "path": "{home}/no.jsonl", "question": ["q"]},
            ],
        },
        {"benchmarks 1": "the benchmark HOME/no.jsonl does not exist; correct the path"},
    ),
    *(
        ({"step": step, "model": "no.bin", "label": "hq"}, {"model": f"no.bin does not exist; {CORRECT}"})
        for step in ("quality", "toxicity", "adult_content")
    ),
    *(
        ({"step": step, "model": "no.bin"}, {"model": f"no.bin does not exist; {CORRECT}"})
        for step in ("language", "mixed_languages", "topic")
    ),
    (
        {"step": "embedding", "model": "folder", "kind": "static", "heads": {"good": "no", "far": "https://a.b/c"}},
        {
            "model": "FOLDER/folder has no model.safetensors; save the embedder with model2vec, or correct the path",
            "heads good": f"no does not exist; {CORRECT}",
        },
    ),
    (
        {"step": "perplexity", "models": {"en": "en.arpa.bin", "de": "https://a.b/de.arpa.bin"}, "cutoffs": "no.csv"},
        {
            "models en": "en.arpa.bin does not exist; train one with `gristmill train lm`, or correct the path",
            "cutoffs": f"no.csv does not exist; {CORRECT}",
        },
    ),
)
SOURCES = (
    (
        {"jsonl": ["web.jsonl", "*.none", "folder"]},
        {
            "jsonl 1": f"no file matches the source's pattern *.none; {CORRECT}",
            "jsonl 2": "the source's file folder is a folder: name the files in it, as folder/*",
        },
    ),
    ({"jsonl": ["empty.jsonl"]}, {"jsonl": "is empty.jsonl, but every file is empty; give files with documents"}),
    (
        {"jsonl": ["web.jsonl", "folder/*.jsonl"]},
        {
            "jsonl": "FOLDER/folder/web.jsonl and FOLDER/web.jsonl both have the name web.jsonl, and ids are computed "
            "from names: use one glob for both folders, as folder/*/*.warc.gz, or two sources"
        },
    ),
    (
        {"jsonl": ["web.jsonl"], "columns": "*"},
        {
            "columns": 'the source web has `columns: "*"`, but documents cannot have the column names id; '
            'write `columns: {their_id: "id", kind: "kind"}`, without those that you do not want'
        },
    ),
    (
        {"parquet": ["table.parquet"], "columns": "*"},
        {
            "columns": 'the source web has `columns: "*"`, but documents cannot have the column names url; '
            'write `columns: {more: "more", their_url: "url"}`, without those that you do not want'
        },
    ),
    ({"code": ["folder", "no"]}, {"code 1": f"the source's file no does not exist; {CORRECT}"}),
    ({"reader": "no.module:read", "files": ["no"]}, {"files 0": f"the source's file no does not exist; {CORRECT}"}),
    (
        {"warc": ["{local}/harvest/web-*.warc.gz"]},
        {
            "warc 0": "no file matches the source's pattern HOME/harvest/web-*.warc.gz; write the files by "
            "`gristmill demo --crawl-only`"
        },
    ),
    (
        {"snapshot": "CC-MAIN-2024-22", "base": "folder"},
        {"snapshot": f"CC-MAIN-2024-22 does not exist; {CORRECT}"},
    ),
    ({"index": ["no.parquet"]}, {"index": f"the source's file no.parquet does not exist; {CORRECT}"}),
    ({"snapshot": "CC-MAIN-2024-22"}, {}),
)


@pytest.fixture
def machine(tmp_path, monkeypatch) -> MachineSettings:
    for name in ("folder", "ut1/adult"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("web.jsonl", "folder/web.jsonl"):
        (tmp_path / name).write_text('{"text": "A text.", "id": "1", "kind": "a"}\n')
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "words").write_text("bad\n")
    (tmp_path / "hosts").write_bytes(b"# ours\r\n\r\na.example\r\na.example:8443\r\n*\r\n")
    (tmp_path / "ut1/adult/domains").write_text("a.example\n")
    (tmp_path / "items.jsonl").write_text(json.dumps({"q": "What is the question of this item?"}))
    parquet.write_table(str(tmp_path / "table.parquet"), pa.table({"text": ["a"], "more": [1], "url": ["u"]}))
    monkeypatch.chdir(tmp_path)
    return MachineSettings(home=str(tmp_path / "home"))


def sentences(problems, machine) -> dict[str, str]:
    folder = machine.home.removesuffix("/home")
    return {
        " ".join(map(str, key[2:])): what.replace(machine.home, "HOME").replace(folder, "FOLDER")
        for key, what in problems
    }


@pytest.mark.parametrize(("given", "expected"), STEPS, ids=lambda given: given.get("step"))
def test_problems_of_a_step(given, expected, machine):
    step = TypeAdapter(AnyStep).validate_python(given)
    assert list(sentences(check.step_problems({3: step}, machine, False), machine).items()) == list(expected.items())


@pytest.mark.parametrize(("given", "expected"), SOURCES, ids=lambda given: next(iter(given), None))
def test_problems_of_a_source(given, expected, machine):
    source = TypeAdapter(Source).validate_python({"name": "web", **given})
    _, problems = check.source_problems({1: source}, machine, False)
    assert list(sentences(problems, machine).items()) == list(expected.items())


def test_each_format_has_its_own_key_and_an_example_of_it():
    assert len({kind.key for kind in FORMATS}) == len(FORMATS)
    for kind in FORMATS:
        source = TypeAdapter(Source).validate_python(kind.examples)
        assert type(source) is kind and kind.key in kind.examples
