"""From any token to its document and the bytes that the crawler wrote, and back to the token."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.cli.documents import token_lineage as rendered
from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load as load_recipe
from gristmill.flows.reports.token_lineage import derive_texts, token_source, trace_token
from gristmill.storage import parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.home import open_stage
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.tokens.tokenizer import load
from tests.conftest import page, write_warc
from tests.corpora import context


@pytest.fixture(scope="module")
def home(undisturbed) -> str:
    return str(undisturbed.home("undisturbed"))


@pytest.fixture(scope="module")
def folder(undisturbed) -> Path:
    [found] = [path for name, path in undisturbed.stages("undisturbed").items() if name.startswith("tokens-")]
    return found


def documents_of(path: Path) -> list[tuple[str, np.ndarray]]:
    """The ids and tokens of a shard's documents, cut at the token that ends each."""
    tokens = np.fromfile(path, "<u2")
    parts = np.split(tokens, np.flatnonzero(tokens == 2)[:-1] + 1) if len(tokens) else []
    return list(zip(parquet.read_table(str(path.with_suffix(".parquet")))["id"].to_pylist(), parts, strict=True))


def member(content: bytes, size: int) -> bytes:
    """A gzip member of some size: the name of a file in its header fills it up."""
    packed = io.BytesIO()
    with gzip.GzipFile("n" * (size - len(gzip.compress(content, mtime=0)) - 1), "wb", 9, packed, 0) as f:
        f.write(content)
    assert len(packed.getvalue()) == size
    return packed.getvalue()


@pytest.mark.extended
def test_every_document_of_every_shard_derives_from_its_record(home, folder, crawl):
    rng = Random(1)
    traced = 0
    for path in sorted(folder.glob("*.bin")):
        documents = documents_of(path)
        if not documents:
            continue
        source = token_source(home, f"{folder.name}/{path.name}")
        derived = source.derive([name for name, _ in documents], RemoteIOConfig())
        first = 0
        for number, (name, tokens) in enumerate(documents):
            at = rng.randrange(len(tokens))
            place = source.locate(first + at)
            assert (place.document, place.row["id"], place.first) == (number, name, first)
            assert place.token_id == tokens[at] and np.array_equal(place.tokens, tokens)
            assert derived[name].same(place), derived[name]
            row = place.row
            stored = (crawl.folder / row["file"]).read_bytes()[row["offset"] : row["offset"] + row["length"]]
            assert row["url"].encode() in gzip.decompress(stored)
            first += len(tokens)
            traced += 1
    assert traced > 80


def test_texts_of_tables_derive_as_they_were_normalised(tmp_path):
    """White space within a line of a text that is no page is its own."""
    rows = [{"text": "def  mill():\n    return   1  \n"}, {"text": "A table:   \nrye    3\nwheat  4"}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"name": "texts", "sources": [{"name": "web", "jsonl": [f"{tmp_path}/texts.jsonl"]}]}
    steps = [{"step": "extract"}, {"step": "normalize"}]
    *_, last = curate(context(str(tmp_path / "home")), load_recipe(given | {"steps": steps}))
    stage = open_stage(last.left.documents.folder)
    texts = {row["id"]: row["text"] for row in parquet.read_table(stage.part(0), ["id", "text"]).to_pylist()}
    assert any("rye    3" in text for text in texts.values())
    assert derive_texts([stage], 0, list(texts), RemoteIOConfig()).texts == texts


@pytest.mark.extended
def test_texts_of_a_union_derive_by_the_engine_that_gave_each(tmp_path):
    """Behind a rule on words that one engine's text of half of the pages meets, and the other's does not."""
    foot = "<footer><p>" + "The miller notes each sack of grain and flour that leaves the mill. " * 8 + "</p></footer>"
    pages = [
        page([f"Page {n} of the mill is a short one."]).replace(b"</body>", foot.encode() * (n % 2)) for n in range(8)
    ]
    write_warc(
        tmp_path / "a.warc.gz", [(f"https://a.example/{n}", p, "200 OK", "text/html") for n, p in enumerate(pages)]
    )
    steps = [
        {"step": "extract", "engine": "union", "engines": ["trafilatura", "plain"]},
        {"step": "gopher_quality", "min_words": 40, "min_stop_words": 0},
    ]
    given = {"name": "united", "sources": [{"name": "web", "warc": [f"{tmp_path}/a.warc.gz"]}], "steps": steps}
    *_, last = curate(context(str(tmp_path / "home")), load_recipe(given))
    stage = open_stage(last.left.documents.folder)
    rows = parquet.read_table(stage.part(0), ["id", "text", "engine"]).to_pylist()
    assert {row["engine"] for row in rows} == {"trafilatura", "plain"}
    texts = {row["id"]: row["text"] for row in rows}
    assert derive_texts([stage], 0, list(texts), RemoteIOConfig()).texts == texts


def test_a_token_is_shown_with_the_lineage_of_its_document(home, folder, undisturbed):
    path = next(path for path in sorted(folder.glob("train-*.bin")) if path.stat().st_size)
    name, tokens = documents_of(path)[1]
    first = len(documents_of(path)[0][1])
    found = trace_token(home, str(path), first + 3, RemoteIOConfig())
    lines = "\n".join(rendered(found, 100))
    [model] = [f for stage, f in undisturbed.stages("undisturbed").items() if stage.startswith("tokenizer-")]
    pieces = load(RecordedFile(str(model / "tokenizer.model"), token_source(home, str(path)).tokenizer.digest))
    assert found.piece == pieces.names[int(tokens[3])]
    for shown in (f"token {first + 3:,}: {tokens[3]} {found.piece!r}, 4 of the {len(tokens):,}", name, "-- raw"):
        assert shown in lines
    assert f"{len(tokens):,} tokens from the record, identical to the shard" in lines
    assert {stage.rsplit("-", 1)[0] for stage in found.document.scores} >= {"edited", "perplexity", "quality"}
    assert all(decision.kept for decision in found.document.decisions)


def test_a_record_that_gives_other_tokens_by_now_is_said_to(home, folder, crawl):
    path = next(path for path in sorted(folder.glob("train-*.bin")) if path.stat().st_size)
    arguments = ["explain", "lineage", "--shard", f"{folder.name}/{path.stem}", "--token", "5"]
    shown = CliRunner().invoke(app, arguments, env={"GRISTMILL_HOME": home})
    assert shown.exit_code == 0 and "identical to the shard" in shown.stdout
    row = token_source(home, str(path)).locate(5).row
    archive = crawl.folder / row["file"]
    whole = archive.read_bytes()
    try:
        begin, end = row["offset"], row["offset"] + row["length"]
        content = gzip.decompress(whole[begin:end])
        half = len(content) // 2
        other = member(content[:half] + b" " * (len(content) - half - 4) + b"\r\n\r\n", end - begin)
        archive.write_bytes(whole[:begin] + other + whole[end:])
        shown = CliRunner().invoke(app, arguments, env={"GRISTMILL_HOME": home})
        assert shown.exit_code == 1 and "different from the shard from token" in shown.stdout
        archive.unlink()
        shown = CliRunner().invoke(app, arguments, env={"GRISTMILL_HOME": home})
        assert shown.exit_code == 1 and "cannot derive the tokens:" in shown.stdout and str(archive) in shown.stdout
    finally:
        archive.write_bytes(whole)


@pytest.mark.slow
def test_a_token_is_derived_where_no_kernel_is_compiled_yet(home, folder, tmp_path):
    """What a page may take does not hold the time in which kernels are compiled."""
    path = next(path for path in sorted(folder.glob("train-*.bin")) if path.stat().st_size)
    command = [sys.executable, "-c", "from gristmill.flows.cli import main; main()", "explain", "lineage"]
    shown = subprocess.run(
        [*command, "--shard", f"{folder.name}/{path.stem}", "--token", "5"],
        env=os.environ | {"GRISTMILL_HOME": home, "XDG_CACHE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert list(tmp_path.rglob("*.nbc"))
    assert shown.returncode == 0 and "identical to the shard" in shown.stdout


def test_what_is_no_token_of_a_shard_is_an_error(home, folder):
    path = next(path for path in sorted(folder.glob("train-*.bin")) if path.stat().st_size)
    tokens = path.stat().st_size // 2
    with pytest.raises(IndexError, match=f"has {tokens:,} tokens, counted from 0, so there is no token"):
        token_source(home, str(path)).locate(tokens)
    for name in ("tokens-none/train-00000.bin", f"{folder}/parts.json"):
        with pytest.raises(LookupError, match="is not a token shard: give one as"):
            token_source(home, name)
    shown = CliRunner().invoke(app, ["explain", "lineage", "--token", "1"], env={"GRISTMILL_HOME": home})
    assert shown.exit_code == 2 and "--shard and --token" in shown.output
