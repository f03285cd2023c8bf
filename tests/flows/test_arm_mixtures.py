"""Mixtures and tokenizers of arms: what their runs read, by an independent reading of the token shards."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from string import ascii_lowercase

import numpy as np
import pytest

from gristmill.flows.experiments.decisions.arm_data import arm_data
from gristmill.flows.experiments.decisions.device import text_bytes
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.variants import variant
from gristmill.flows.stages.evaluation import documents as chosen
from gristmill.samples import SampleSource
from gristmill.storage import parquet
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import StageResult
from tests.corpora import context

SEQ_LEN = 32
PROXY = {"step_tokens": 256, "vocab_size": 400, "sample_bytes": 60_000, "per_source": 5}
RANGES = ["web/q01", "web/q02", "web/q03"]
BY = "[source, {column: rank, quantiles: 3}]"


def write(path: Path, seed: str, count: int = 150) -> str:
    """Texts with a rank each, in a random order."""
    draw, rows = Random(seed), []
    for i in range(count):
        text = " ".join(
            "".join(draw.choices(ascii_lowercase, k=draw.randint(3, 7))) for _ in range(draw.randint(8, 14))
        )
        rows.append({"text": text, "rank": i, "topic": "rare" if i % 5 == 0 else "common"})
    draw.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Recipe:
    folder = tmp_path_factory.mktemp("texts")
    columns = {"rank": "rank", "topic": "topic"}
    sources = [{"name": "web", "jsonl": [write(folder / "web.jsonl", "web")], "columns": columns}]
    steps, mixture = [{"step": "extract"}], {"weights": {"web": 1}}
    return load({"name": "base", "sources": sources, "steps": steps, "mixture": mixture})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return context(str(tmp_path_factory.mktemp("home")))


def made(home, recipes: dict[str, Recipe], **options):
    contexts = dict.fromkeys(recipes, SEQ_LEN)
    return arm_data(home, recipes, **{"tokens": 10**9, "contexts": contexts} | PROXY | options)


def grouped(recipe: Recipe, *settings: str) -> Recipe:
    return variant(recipe, "mixture.weights={}", "mixture.strategy=proportional", *settings).recipe


def source_of(plan: StageResult, tokens: int, seed: int = 3) -> SampleSource:
    return SampleSource(Path(plan.folder, "mixture.json"), SEQ_LEN, 8, seed, steps=tokens // (8 * SEQ_LEN))


def ranks_read(data, name: str, tokens: int) -> list[set[int]]:
    """Of each sample that a run reads, in order, the ranks of the documents that it has tokens of."""
    plan, corpus = data.mixture(name, 1, tokens), data.arms[name].corpus
    rank = dict(zip(*parquet.read_table(corpus.documents.part(0), ["id", "rank"]).to_pydict().values(), strict=True))
    source = source_of(plan, tokens)
    shards = {one.name: one.shards for one in load_training_manifest(source.path).sources}
    read = []
    for number in range(tokens // SEQ_LEN):
        sample, ranks = source[number], set()
        for _, shard, offset, length in sample.spans:
            index = parquet.read_table(str(shards[sample.source][shard].path.with_suffix(".parquet"))).to_pydict()
            ends = np.array(index["offset"]) + np.array(index["length"])
            first, last = np.searchsorted(ends, [offset, offset + length - 1], side="right")
            ranks |= {rank[one] for one in index["id"][first : last + 1]}
        read.append(ranks)
    return read


@pytest.mark.extended
def test_samples_are_read_in_the_order_of_the_ranges(home, base):
    arms = {
        "base": base,
        "up": grouped(base, f"mixture.by={BY}", "mixture.phases=[{share: 1, order: ascending}]"),
        "down": grouped(base, f"mixture.by={BY}", "mixture.phases=[{share: 1, order: descending}]"),
    }
    data = made(home, arms)
    budget = data.budget_tokens
    assert budget > 8 * 256
    for name, wanted in (("up", RANGES), ("down", RANGES[::-1])):
        for tokens in (budget, budget // 512 * 256):
            read = ranks_read(data, name, tokens)
            source = source_of(data.mixture(name, 1, tokens), tokens)
            ranges = [source[number].source for number in range(tokens // SEQ_LEN)]
            assert [*dict.fromkeys(ranges)] == wanted, "whole runs and half runs have every range, in order"
            parts = [set().union(*(r for r, of in zip(read, ranges, strict=True) if of == one)) for one in wanted]
            order = parts if name == "up" else parts[::-1]
            assert all(max(lower) < min(higher) for lower, higher in pairwise(order))
            assert [*map(wanted.index, ranges)] == sorted(map(wanted.index, ranges))
    assert data.mixture("base", 1, budget // 2) is data.mixture("base", 1), "shares do not depend on the length"
    mixed = ranks_read(data, "base", budget)
    early, late = set().union(*mixed[: len(mixed) // 2]), set().union(*mixed[len(mixed) // 2 :])
    assert max(early) > min(late) and max(late) > min(early), "without phases there is no such order"


def test_weights_of_groups_are_met_and_no_group_is_read_more_than_once(home, base):
    by = "mixture.by=[topic]"
    weighted = variant(base, by, "mixture.weights={rare: 1, common: 1}").recipe
    data = made(home, {"base": base, "weighted": weighted})
    arm = data.arms["weighted"]
    assert arm.shares == pytest.approx({"rare": 0.5, "common": 0.5}) and max(arm.epochs.values()) <= 1
    tokens = arm.mixture.result["sources"]["rare"]["tokens"]
    assert data.budget_tokens == int(2 * tokens) // 256 * 256, "twice the tokens of the smaller group"
    counts = Counter(source_of(arm.mixture, data.budget_tokens)[n].source for n in range(data.budget_tokens // SEQ_LEN))
    assert abs(counts["rare"] - counts["common"]) <= 2
    capped = made(home, {"base": variant(weighted, "mixture.max_epochs=0.5").recipe})
    assert capped.budget_tokens == int(tokens) // 256 * 256


def test_fixed_tokens_of_groups_are_scaled_to_the_run(home, base):
    given = ("mixture.by=[topic]", "mixture.tokens={rare: 600}", "training.steps=4", "training.batch=2")
    recipe = grouped(base, *given, "training.warmup_steps=1", "model.seq_len=1000")
    data = made(home, {"base": recipe})
    assert data.arms["base"].shares["rare"] == pytest.approx(600 / 8000, rel=0.01), "of the recipe's 8,000 tokens"
    most = made(home, {"base": variant(recipe, "mixture.tokens={rare: 6400}").recipe})
    tokens = most.arms["base"].mixture.result["sources"]["rare"]["tokens"]
    assert most.budget_tokens == int(tokens * 8000 / 6400) // 256 * 256


def test_upsampling_has_the_curve_of_the_whole_training(home, base):
    given = ("mixture.by=[source, {column: rank, quantiles: 4}]", "mixture.upsample={max_copies: 2, discard: 0.25}")
    whole = grouped(base, *given, "training.steps=40", "training.batch=4", "model.seq_len=50")  # 8,000 tokens
    data = made(home, {"base": base, "up": whole})
    arm, budget = data.arms["up"], data.budget_tokens
    tokens = [arm.mixture.result["sources"][f"web/q0{n}"]["tokens"] for n in (2, 3, 4)]
    everything = sum(arm.source_tokens.values())
    first = everything - sum(tokens)

    def copies(power: float) -> list[float]:
        places = np.array([first, *tokens]).cumsum() / everything
        integral = np.maximum((places - 0.25) / 0.75, 0) ** (power + 1)
        return (np.diff(integral) * 8000 / np.array(tokens)).tolist()

    # the steepest curve up to 8 with which the best range has two copies in the whole training, on a grid
    power = max(each for each in np.linspace(0, 8, 4001) if copies(each)[-1] <= 2)
    shares = [arm.shares[f"web/q0{n}"] for n in (2, 3, 4)]
    expected = [often * count / 8000 for often, count in zip(copies(power), tokens, strict=True)]
    assert shares == pytest.approx([each / sum(expected) for each in expected], rel=0.02)
    assert 0.9 < max(arm.epochs.values()) <= 1 + 1e-9 and budget < 8000
    part = variant(whole, "training.steps=4000").recipe  # of more tokens than the documents give
    flat = made(home, {"up": part}).arms["up"]
    often = [epochs for name, epochs in flat.epochs.items() if name != "web/q01"]
    assert max(often) < 1.1 * min(often), "every range that is not discarded, as often as may be"
    with pytest.raises(ValueError, match="^up: a run takes .* with mixture.upsample.max_copies 2: use fewer tokens"):
        made(home, {"up": whole}, tokens=3 * budget, repeat=True)


def test_packed_documents_are_not_cut(home, base):
    longer = {"packed": variant(base, "mixture.packing=best_fit").recipe}
    data = made(home, {"base": base} | longer, contexts={"base": SEQ_LEN, "packed": 128})
    manifest = load_training_manifest(Path(data.arms["packed"].mixture.folder, "mixture.json"))
    assert manifest.row_length == 128
    [shard] = manifest.sources[0].shards
    index = parquet.read_table(str(shard.path.with_suffix(".parquet")))
    lengths = np.array(index["length"].to_pylist())
    fits = dict(zip(index["offset"].to_pylist(), lengths.tolist(), strict=True))
    assert max(lengths) <= 128
    source = SampleSource(manifest_path := Path(data.arms["packed"].mixture.folder, "mixture.json"), 128, 2, 3)
    assert manifest_path.exists()
    cut = 0
    for number in range(data.budget_tokens // 256 * 2):
        for _, _, offset, length in source[number].spans:
            end = offset + length
            while offset < end:  # a span is of whole documents
                cut += offset not in fits
                offset += fits.get(offset, end)
            cut += offset != end
    assert cut == 0
    read = text_bytes(home.settings, data)
    assert read["packed"] < read["base"], "rows are filled up"


def test_each_arm_has_its_own_tokenizer_and_the_same_evaluation_documents(home, base):
    arms = {
        "base": variant(base, "tokenizer.vocab_size=400", "tokenizer.sample_bytes=60000").recipe,
        "larger": variant(base, "tokenizer.vocab_size=700", "tokenizer.sample_bytes=60000").recipe,
        "bytes": variant(
            base, "tokenizer.kind=byte_bpe", "tokenizer.vocab_size=400", "tokenizer.sample_bytes=60000"
        ).recipe,
    }
    data = made(home, arms, own_tokenizers=True)
    texts = chosen.read(data.evaluation)["text"].to_pylist()
    for name, size in (("base", 400), ("larger", 700), ("bytes", 400)):
        manifest = load_training_manifest(Path(data.arms[name].mixture.folder, "mixture.json"))
        assert manifest.vocab_size == size
        [shard] = manifest.heldout[0].shards
        ids = np.fromfile(shard.path, manifest.dtype)
        ends = np.flatnonzero(ids == manifest.end_of_text)
        decode = load_tokenizer(manifest.tokenizer.path).decode
        documents = np.split(ids, ends[:-1] + 1)
        assert [decode(each[:-1].tolist()) for each in documents] == texts
        counted = [int(np.array(manifest.token_bytes)[each].sum()) for each in documents]
        assert counted == [len(text.encode()) for text in texts], "bits per byte are over the same bytes"
    read = text_bytes(MachineSettings(home=home.settings.home), data)
    assert read["larger"] > 1.1 * read["base"], "longer tokens, more text"
    whole = {name: sum(len(text) for text in texts_of(data, name)) for name in arms}
    for name, arm in data.arms.items():
        assert read[name] == pytest.approx(whole[name] * data.budget_tokens / sum(arm.source_tokens.values()), rel=0.05)
    one = made(home, {"base": base})
    assert text_bytes(home.settings, one) == {}


def texts_of(data, name: str) -> list[str]:
    corpus = data.arms[name].corpus
    kept = {one for path in corpus.places.kept for one in parquet.read_table(path, ["id"])["id"].to_pylist()}
    table = parquet.read_table(corpus.documents.part(0), ["id", "text"]).to_pylist()
    return [row["text"] for row in table if row["id"] in kept]


def test_what_does_not_combine_is_refused_with_the_reason(home, base):
    by = variant(base, "mixture.by=[topic]", "mixture.weights={rare: 1, common: 1}").recipe
    with pytest.raises(ValueError, match=r"^by: --resample counts the halves of sources, not of groups: remove --res"):
        made(home, {"base": base, "by": by}, pairs=range(0, 3))
    with pytest.raises(ValueError, match="^by: mixtures are compared by the weights of their sources: remove `by`"):
        made(home, {"base": base, "by": by}, contexts=None)
    none = variant(base, "mixture.by=[topic]", "mixture.weights={rare: 1, none: 1}").recipe
    with pytest.raises(ValueError, match="^none: the mixture names none, but these have no documents left"):
        made(home, {"base": base, "none": none})
    few = variant(by, "mixture.phases=[{share: 0.5, weights: {rare: 1}}, {share: 0.5, weights: {common: 1}}]").recipe
    with pytest.raises(ValueError, match=r"^few: a run takes .* tokens, but the sources have common .*, rare "):
        made(home, {"few": few}, tokens=20_000, repeat=True)
