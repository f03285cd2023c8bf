"""Archives of code through a recipe: documents with licences, drops that add up, and the way back to each file."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.lineage import trace
from gristmill.flows.reports.token_lineage import token_source
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.tokens import file_tokenizer, tokens
from gristmill.storage import parquet
from gristmill.storage.home import open_stage
from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle
from gristmill.tasks.tokens.tokenizer import load as load_tokenizer
from gristmill.tasks.tokens.tokenizer import train_byte_bpe
from tests.corpora import check_balance, context

STEPS = [{"step": "code_language"}, {"step": "code"}, {"step": "stack_v2"}]


@pytest.fixture
def archives(tmp_path):
    """Six archives and a folder, each with a good file, a notebook, a binary and a link."""
    for n in range(6):
        path = tmp_path / "code" / f"pack-{n}.tar.gz"
        path.parent.mkdir(exist_ok=True)
        with tarfile.open(path, "w:gz") as archive:
            for name, data in {
                "pack/one.py": f"# Copyright Jane\n\ndef number():\n    return {n}\n".encode(),
                "pack/two.py": f"# Copyright Jane\n\ndef other():\n    return {n}\n".encode(),
                "pack/PKG-INFO": b"Metadata-Version: 2.4\nName: pack\nLicense-Expression: MIT\n",
                "pack/book.ipynb": b'{"cells": [{"cell_type": "code", "source": "x = 1"}]}',
                "pack/image.png": b"\x89PNG\0\0",
            }.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            info = tarfile.TarInfo("pack/link.py")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    folder = tmp_path / "code" / "checkout"
    folder.mkdir()
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    return [{"name": "code", "code": [str(tmp_path / "code" / "*")]}]


def made_of(home, sources, workers=1):
    recipe = load({"name": "code", "sources": sources, "steps": STEPS})
    made = documents(context(str(home), Threads(workers, None)), recipe, recipe.steps[:2])
    stage = open_stage(made.documents.folder)
    rows = [row for part in stage.parts for row in parquet.read_table(part).to_pylist()]
    drops = [row for n in range(len(stage.parts)) for row in parquet.read_table(stage.ledger(n)).to_pylist()]
    return made, stage, rows, drops


@pytest.mark.extended
def test_files_are_documents_and_what_is_none_is_in_the_ledger(tmp_path, archives):
    made, stage, rows, drops = made_of(tmp_path / "home", archives)
    check_balance(made.documents.folder, stage.part_records)
    assert made.documents.result["sources"]["code"]["records"] == len(rows) + len(drops) == 6 * 6 + 1
    assert {(drop["rule"], drop["file"]) for drop in drops} == {
        (rule, f"pack-{n}.tar.gz") for n in range(6) for rule in ("binary", "link")
    }
    of_one = {row["path"]: row for row in rows if row["repository"] == "pack-3"}
    assert of_one["pack/two.py"]["text"] == "def other():\n    return 3"
    assert of_one["pack/two.py"]["header_characters"] == len("# Copyright Jane")
    assert of_one["pack/book.ipynb"]["text"] == "```\nx = 1\n```"
    assert {row["license"] for row in of_one.values()} == {"MIT"}
    assert [row["code_language"] for row in rows if row["repository"] == "checkout"] == ["C"]


def test_names_that_are_no_text_end_no_run(tmp_path):
    """Linux takes any bytes but zero and `/`."""
    folder = tmp_path / "code" / "plain"
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/a\n\xfe.py")).write_text("x = 1\n")
    source = [{"name": "code", "code": [str(tmp_path / "code" / "*")]}]
    made, stage, rows, drops = made_of(tmp_path / "home", source)
    check_balance(made.documents.folder, stage.part_records)
    assert [row["path"] for row in rows] == ["a\n\\xfe.py"] and drops == []
    # a repository's own name is that of the source's file
    Path(os.fsdecode(os.fsencode(folder.parent) + b"/pack-\xfd.zip")).write_bytes(b"")
    with pytest.raises(ValueError, match=r"pack-\\udcfd.zip is not in UTF-8.*rename"):
        made_of(tmp_path / "home", source)


@pytest.mark.extended
def test_a_document_leads_back_to_its_file(tmp_path, archives):
    *_, rows, drops = made_of(tmp_path / "home", archives)
    for row in rows[::5]:
        [found] = trace(str(tmp_path / "home"), row["id"], DEFAULT)
        assert found.record.payload.decode().strip("\n") == row["text"] and not found.trouble
        assert found.record.record_id == row["path"]
    [found] = trace(str(tmp_path / "home"), drops[0]["id"], DEFAULT)
    assert found.record.problem[0] == drops[0]["rule"]


@pytest.mark.extended
def test_several_workers_write_the_same_bytes(tmp_path, archives):
    one, *_ = made_of(tmp_path / "one", archives)
    two, *_ = made_of(tmp_path / "two", archives, workers=2)
    parts = [sorted(open_stage(made.documents.folder).parts) for made in (one, two)]
    assert len(parts[0]) > 1
    assert [open(part, "rb").read() for part in parts[0]] == [open(part, "rb").read() for part in parts[1]]


@pytest.mark.extended
def test_the_key_holds_a_folders_files(tmp_path, archives):
    home = tmp_path / "home"
    assert not made_of(home, archives)[0].documents.reused
    assert made_of(home, archives)[0].documents.reused
    (tmp_path / "code" / "checkout" / "main.c").write_text("int main(void) { return 1; }\n")
    assert not made_of(home, archives)[0].documents.reused
    assert not made_of(home, [archives[0] | {"unit": "repository"}])[0].documents.reused


@pytest.mark.extended
def test_tokens_of_documents_that_are_cut_lead_back_to_their_files(tmp_path, archives):
    fim = FillInTheMiddle(rate=0.7)
    data, _ = train_byte_bpe(iter(["# Copyright Jane\n\ndef number():\n    return 1\n"] * 20), 320, fim.tokens)
    (tmp_path / "tokenizer.json").write_bytes(data)
    run = context(str(tmp_path / "home"), Threads(1, None))
    corpus = documents(run, load({"name": "code", "sources": archives, "steps": STEPS}), ())
    made = tokens(run, corpus, file_tokenizer(run, tmp_path / "tokenizer.json"), fim)
    uncut = tokens(run, corpus, file_tokenizer(run, tmp_path / "tokenizer.json"))
    assert made.key != uncut.key
    cut = total = 0
    for path in sorted(Path(made.folder).glob("train-*.bin")):
        source = token_source(str(tmp_path / "home"), str(path))
        index = parquet.read_table(str(path.with_suffix(".parquet"))).to_pylist()
        derived = source.derive([row["id"] for row in index], DEFAULT)
        for row in index:
            place = source.locate(row["offset"])
            assert derived[row["id"]].same(place)
            cut += load_tokenizer(source.tokenizer).names[place.token_id] == fim.prefix
            total += 1
    assert total == 6 * 4 + 1 and 10 < cut < total


def test_a_rule_set_without_its_signals_is_refused():
    with pytest.raises(RecipeError, match=r"`stack_v2` reads code_language.*add `code_language` before it"):
        load({"name": "x", "sources": [{"name": "c", "code": ["*"]}], "steps": STEPS[2:]})
