"""Token shards by group have each document once, in the group that its columns say."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.mixture import mixture
from gristmill.flows.stages.tokens import grouped_tokens
from gristmill.samples.order import Order
from gristmill.storage import files, layout, parquet
from gristmill.storage.token_shards import write_tokens
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.tokens.grouping import find_edges, group_shard, points_folder, score_points
from gristmill.tasks.tokens.mixture import Column
from tests import corpora
from tests.corpora import planted_stage

SHARDS, DOCUMENTS = 3, 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Shards with a language, a score with ties and gaps, and cluster sizes; every tenth document is held out."""
    folder, rng, shards = tmp_path_factory.mktemp("grouping"), np.random.default_rng(0), []
    for shard in range(SHARDS):
        ids = [f"{shard}-{i}" for i in range(DOCUMENTS)]
        score = np.where(rng.random(DOCUMENTS) < 0.1, np.nan, rng.integers(0, 20, DOCUMENTS) / 4)
        language = [["en", "de", None][i] for i in rng.choice(3, DOCUMENTS, p=[0.6, 0.3, 0.1])]
        table = pa.table(
            {
                "id": ids,
                "language": pa.array(language, pa.string()),
                "score": pa.array(score, from_pandas=True),
                "cluster_size": rng.integers(1, 6, DOCUMENTS),
            }
        )
        parquet.write_table(f"{folder}/signals-{shard}.parquet", table)
        train = [i for i in range(DOCUMENTS) if i % 10]
        tokens = [np.append(rng.integers(3, 500, rng.integers(1, 60)), 2).astype("<u2") for _ in train]
        write_tokens(f"{folder}/train-{shard:05d}.bin", [ids[i] for i in train], tokens, np.dtype("<u2"))
        done = {f"train-{shard:05d}.bin": {"content": files.checksum(f"{folder}/train-{shard:05d}.bin")}}
        layout.mark_done(str(folder), "encode", shard, {"record": {}, "files": done})
        shards.append((table.take(train).to_pylist(), dict(zip([ids[i] for i in train], tokens, strict=True))))
    return folder, shards


def arguments(folder, shard: int, columns: tuple[Column, ...]) -> dict:
    signals = f"{folder}/signals-{shard}.parquet"
    places = {"tokens": str(folder), "source": "web", "documents": signals, "kept": signals, "signals": (signals,)}
    return places | {"columns": columns}


def grouped(corpus, to, columns, rehydrate=None):
    """group: [(document, its tokens as they were written)]"""
    folder, shards = corpus
    edges = {}
    if columns[-1].quantiles:
        for i in range(SHARDS):
            score_points(str(to), i, **arguments(folder, i, columns))
        points = [layout.part(points_folder(str(to)), i) for i in range(SHARDS)]
        edges = find_edges(str(to), 0, points, columns[-1].quantiles)["edges"]
    found: dict[str, list] = {}
    for i, (rows, _) in enumerate(shards):
        made = group_shard(str(to), i, rehydrate=rehydrate or {}, edges=edges, **arguments(folder, i, columns))
        known = {row["id"]: row for row in rows}
        for name, file, tokens, documents in made["groups"]:
            ids = np.fromfile(to / file, "<u2")
            index = parquet.read_table(str(to / file.replace(".bin", ".parquet"))).to_pylist()
            assert (len(ids), len(index)) == (tokens, documents)
            cut = [ids[row["offset"] : row["offset"] + row["length"]] for row in index]
            found.setdefault(name, []).extend((known[row["id"]], part) for row, part in zip(index, cut, strict=True))
    every = {row["id"]: part for group in found.values() for row, part in group}
    assert sum(map(len, found.values())) == len(every) == sum(len(tokens) for _, tokens in shards)
    for _, tokens in shards:
        for name, part in tokens.items():
            assert np.array_equal(every[name], part)
    return found


def test_each_document_is_in_the_group_of_its_values(corpus, tmp_path):
    columns = (Column(column="source"), Column(column="language"), Column(column="score", edges=(1, 2.5)))
    found = grouped(corpus, tmp_path, columns)
    for name, documents in found.items():
        for row, _ in documents:
            score = row["score"]
            ranged = "none" if score is None else "<1" if score < 1 else "1-2.5" if score < 2.5 else ">=2.5"
            assert name == f"web/{row['language'] or 'none'}/{ranged}"


@pytest.mark.parametrize(
    ("expression", "case"),
    [
        ("case when score > 3 then 'high' when score <= 1 then 'low' else 'mid' end",
         "if(score > 3, 'high', if(score <= 1, 'low', 'mid'))"),
        ("upper(language)", "upper(language)"),
        ("cluster_size > 2 and score is not null", "if(cluster_size > 2 and score is not null, 'True', 'False')"),
        ("score > 2", "case when score > 2 then 'True' when score <= 2 then 'False' end"),
        ("trunc(score)::bigint", "cast(floor(score) as integer)::varchar"),
        ("case when language = 'de' then null else cluster_size::varchar end",
         "if(language = 'de', null, cluster_size::varchar)"),
        ("source", "'web'"),
        ("case when source = 'web' then 'ours' else 'theirs' end", "'ours'"),
    ],
)  # fmt: skip
def test_an_expression_makes_the_groups_that_duckdb_makes(corpus, tmp_path, expression, case):
    """Those without a value are the group `none`."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is in the extra `dev`")
    ask = duckdb.connect()
    ask.register("rows", pa.Table.from_pylist([row for rows, _ in corpus[1] for row in rows]))
    expected = dict(ask.sql(f"select id, coalesce({case}, 'none') from rows").fetchall())
    found = grouped(corpus, tmp_path, (Column(column=expression), Column(column="language")))
    got = {row["id"]: (name, row["language"]) for name, documents in found.items() for row, _ in documents}
    assert got == {
        row["id"]: (f"{expected[row['id']]}/{row['language'] or 'none'}", row["language"])
        for rows, _ in corpus[1]
        for row in rows
    }


def test_ranges_of_an_expression_are_those_of_its_values(corpus, tmp_path):
    (tmp_path / "edges").mkdir()
    found = grouped(corpus, tmp_path / "edges", (Column(column="score * 2 + cluster_size", edges=(4, 9)),))
    for name, documents in found.items():
        for row, _ in documents:
            value = None if row["score"] is None else row["score"] * 2 + row["cluster_size"]
            assert name == ("none" if value is None else "<4" if value < 4 else "4-9" if value < 9 else ">=9")
    (tmp_path / "mirrored").mkdir()
    columns = (Column(column="'web'"), Column(column="-score", quantiles=2))
    mirrored = grouped(corpus, tmp_path / "mirrored", columns)
    assert min(row["score"] for row, _ in mirrored["web/q01"]) >= max(row["score"] for row, _ in mirrored["web/q02"])


def test_an_expression_that_has_no_meaning_is_refused(corpus, tmp_path):
    for expression, said in (
        ("score / 2", "edges or quantiles"),
        ("language > 3", "Cannot compare values of type VARCHAR"),
    ):
        with pytest.raises(ValueError, match=said):
            grouped(corpus, tmp_path, (Column(column=expression),))


def test_cluster_sizes_become_repetitions(corpus, tmp_path):
    found = grouped(corpus, tmp_path, (Column(column="source"),), {1: 1, 2: 3, 4: 2})
    for name, documents in found.items():
        assert {row["cluster_size"] for row, _ in documents} == {"web/x1": {1}, "web/x3": {2, 3}, "web/x2": {4, 5}}[
            name
        ]


def test_ranges_have_equally_many_tokens_in_each_language_and_ascend(corpus, tmp_path):
    columns = (Column(column="language"), Column(column="score", quantiles=4))
    found = grouped(corpus, tmp_path, columns)
    for language in ("en", "de"):
        ranges = [found[f"{language}/q{n:02d}"] for n in range(1, 5)]
        sizes = [sum(len(part) for _, part in documents) for documents in ranges]
        assert max(sizes) - min(sizes) < 2 * 61 + 0.01 * sum(sizes)  # a document at each edge, and the points
        ends = [(min(row["score"] for row, _ in each), max(row["score"] for row, _ in each)) for each in ranges]
        assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))
    assert all(row["score"] is None for name in found if name.endswith("/none") for row, _ in found[name])


def test_numbers_that_are_not_cut_are_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match="score.*edges or quantiles"):
        grouped(corpus, tmp_path, (Column(column="score"),))
    assert Counter(
        name.split("/")[0] for name in grouped(corpus, tmp_path, (Column(column="cluster_size"),))
    ) == Counter("12345")


def test_training_reads_groups_through_all_phases(corpus, tmp_path):
    """The stages of a recipe with groups, cluster sizes and an ordered phase, up to the order of training."""
    folder, shards = corpus
    home = str(tmp_path)
    signals = planted_stage("documents", str(tmp_path / "signals"))
    signals.manifest["result"]["own"] = ["score"]
    parts, counts = [], [sum(map(len, tokens.values())) for _, tokens in shards]
    for i, count in enumerate(counts):
        (tmp_path / "signals").mkdir(exist_ok=True)
        signal = parquet.read_table(str(folder / f"signals-{i}.parquet"))
        parquet.write_table(str(tmp_path / "signals" / f"part-{i:05d}.parquet"), signal)
        names = [f"train-{i:05d}.{suffix}" for suffix in ("bin", "parquet")]
        for name in names:
            (tmp_path / "stages" / "tokens-planted").mkdir(parents=True, exist_ok=True)
            there = tmp_path / "stages" / "tokens-planted" / name
            if name.endswith("bin"):
                shutil.copy(folder / name, there)
            else:
                parquet.write_table(str(there), parquet.read_table(str(folder / name)))
        split = {"tokens": count, "documents": 1}
        record = {"train": split, "heldout": split}
        heldout = names[0].replace("train", "heldout")
        shutil.copy(folder / names[0], tmp_path / "stages" / "tokens-planted" / heldout)
        digest = files.checksum(str(folder / names[0]))
        parts.append(
            layout.Part("encode", i, record, {name: {"content": digest, "bytes": 1} for name in (names[0], heldout)})
        )
    at = str(tmp_path / "stages" / "tokens-planted")
    for part in parts:
        layout.mark_done(at, part.phase, part.number, {"record": part.record, "files": part.files})
    tokens = StageResult("tokens", "planted", at, layout.write_manifest(at, {"result": {}}, parts), False)
    (tmp_path / "stages" / "tokenizer-planted").mkdir()
    (tmp_path / "stages" / "tokenizer-planted" / "token_bytes.json").write_text(json.dumps([1] * 500))
    (tmp_path / "stages" / "tokenizer-planted" / "tokenizer.model").write_text("model")
    beside = str(tmp_path / "stages" / "tokenizer-planted")
    made = {
        n: {"content": files.checksum(f"{beside}/{n}"), "bytes": 1} for n in ("token_bytes.json", "tokenizer.model")
    }
    facts = {"tokenizer": {"file": "tokenizer.model", "vocab_size": 500, "end_of_text": 2}}
    written = layout.write_manifest(beside, {"result": facts}, [layout.Part("train", 0, {}, made)])
    tokenizer = StageResult("tokenizer", "planted", beside, written, False)
    recipe = load(
        {
            "name": "grouped",
            "sources": [{"name": name, "jsonl": ["a.jsonl"]} for name in ("web", "books")],
            "steps": [{"step": "extract"}, {"step": "minhash"}],
            "mixture": {
                "by": ["source", {"column": "characters", "quantiles": 3}],
                "weights": {"web": 3, "books": 1},
                "rehydrate": {1: 1, 2: 3},
                "phases": [
                    {"share": 0.6, "order": "ascending"},
                    {"share": 0.3},
                    {"share": 0.1, "weights": {"books": 1}},
                ],
            },
            "model": {"seq_len": 8},
            "training": {"steps": 100, "batch": 20},
        }
    )
    settings = recipe.training_mixture().model_copy(
        update={"by": (Column(column="source"), Column(column="score", quantiles=3))}
    )
    recipe = recipe.model_copy(update={"mixture": settings})
    sources = ("web", "web", "books")
    corpus_stages = Corpus(sources, signals, signals, (signals,), (signals,))
    context = corpora.context(home)
    grouped = grouped_tokens(context, recipe, corpus_stages, tokenizer, tokens)
    assert grouped is not None and sum(grouped.result["tokens"].values()) == sum(counts)
    sets = dict.fromkeys(("clean", "heldout/books", "heldout/web"), "")
    plan = mixture(context, settings, 100 * 20 * 8, sources, tokenizer, tokens, sets, tokens, grouped)
    manifest = load_training_manifest(Path(plan.folder) / "mixture.json")
    order = Order(manifest, seq_len=8, batch=20, seed=0)
    order.check_epochs(100)
    drawn = [order.sources[order.schedule.draw(n)[0]].name for n in range(2000)]
    assert sum(name.startswith("books") for name in drawn) == pytest.approx(2000 * (0.9 / 4 + 0.1), abs=8)
    ranges = [name.rsplit("/", 1)[1] for name in drawn[:1200]]
    assert ranges == sorted(ranges, key=lambda label: "" if label == "none" else label) and len(set(ranges)) == 4
    assert all(name.startswith("books/") for name in drawn[1801:])
    reads = Counter(drawn)
    epochs = {name: reads[name] * 8 / grouped.result["tokens"][name] for name in reads if name.startswith("web")}
    thrice = np.mean([e for name, e in epochs.items() if "/x3/" in name])
    assert thrice == pytest.approx(3 * np.mean([e for name, e in epochs.items() if "/x1/" in name]), rel=0.1)
    assert order.batch(0).shape == (20, 9)

    best_fit = settings.model_copy(update={"packing": "best_fit"})
    packed = mixture(context, best_fit, 100 * 20 * 8, sources, tokenizer, tokens, sets, tokens, grouped, 8)
    whole = Order(load_training_manifest(Path(packed.folder) / "mixture.json"), seq_len=8, batch=20, seed=0)
    whole.check_epochs(100)
    assert [source.name for source in whole.sources] == [source.name for source in order.sources]
    for source, read, pieces in zip(whole.sources, whole.read, whole.tokens, strict=True):
        rows = [read(row) for row in range(len(read))]
        counts = packed.result["sources"][source.name]
        assert counts["padding"] == pytest.approx(1 - len(pieces) / (8 * len(rows))) and 0 <= counts["cut"] <= 1
        asked = np.concatenate([row[1:][row[1:] >= 0] for row in rows])
        missing = Counter(pieces.read(0, len(pieces)).tolist()) - Counter(asked.tolist())
        assert not Counter(asked.tolist()) - Counter(pieces.read(0, len(pieces)).tolist())
        assert missing.total() < max(1, len(rows))
