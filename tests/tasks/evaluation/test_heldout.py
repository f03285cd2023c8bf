"""What is held out, and what goes with it, against all pairs of texts."""

from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from gristmill.flows.stages import heldout as heldout_stages
from gristmill.flows.stages.corpus import Corpus, held_out
from gristmill.flows.stages.evaluation import documents as evaluation_documents
from gristmill.flows.stages.evaluation.documents import CHARACTERS, read
from gristmill.flows.stages.heldout import Split, heldout, heldout_documents
from gristmill.storage import layout, parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.evaluation import similar
from gristmill.tasks.evaluation.documents import evaluation_file
from gristmill.tasks.evaluation.similar import THRESHOLD
from tests.corpora import Texts, context, fresh, plain_jaccard, planted_stage

RECIPE = SimpleNamespace(
    heldout_fraction=0.1,
    heldout_documents=10_000,
    sources=[SimpleNamespace(name="web"), SimpleNamespace(name="books")],
    training=SimpleNamespace(eval_tokens=100_000),
    before=(),
    evaluation={},
    takedowns=(),
)
DRAWN = Heldout(fractions=dict.fromkeys(["web", "books"], RECIPE.heldout_fraction))


def mask(ids: list[str]) -> list[bool]:
    """Which documents are held out, whatever their source."""
    return DRAWN.mask(pa.table({"id": ids, "source": ["web"] * len(ids)})).tolist()


def edited(draw: Random, text: str, vocabulary: list[str]) -> str:
    """The text with some of its words dropped, replaced, moved or added."""
    words = text.split()
    for _ in range(draw.choice([0, 1, 1, 2, 3, 4, 6, 9])):
        at = draw.randrange(len(words))
        match draw.choice(["drop", "replace", "add", "move"]):
            case "drop" if len(words) > 1:
                del words[at]
            case "add":
                words.insert(at, draw.choice(vocabulary))
            case "move":
                words.append(words.pop(at))
            case _:
                words[at] = draw.choice(vocabulary)
    return " ".join(words)


def planted(seed: int, documents: int = 240) -> Texts:
    """Texts of some length from few words, most of them edited copies of others, a few short or without a word."""
    draw, rng = Random(seed), np.random.default_rng(seed)
    vocabulary = fresh(rng, 3000)
    texts = [" ".join(draw.choices(vocabulary, k=draw.choice([3, 8, 30, 60, 120]))) for _ in range(documents // 8)]
    while len(texts) < documents - 6:
        texts.append(edited(draw, draw.choice(texts), vocabulary))
    texts += ["...", "...", "...", "?!", "?!", ""]
    draw.shuffle(texts)
    rows = [{"id": f"{rng.integers(2**62):032x}", "text": text} for text in texts]
    return Texts([rows[i::3] for i in range(3)], ["web", "web", "books"])


def like(one: str, other: str) -> bool:
    has_words = all(any(c.isalnum() for c in text) for text in (one, other))
    return one == other or (has_words and plain_jaccard(one, other) >= THRESHOLD)


def kept_by(corpus: Corpus, folder: Path, chosen: set[str]) -> Corpus:
    """The corpus behind a step that keeps some documents."""
    stage = replace(planted_stage("rules", str(folder)), key=folder.name)
    for shard in corpus.places.shards():
        documents = parquet.read_table(corpus.documents.part(shard), SELECTION.names)
        mask = [document in chosen for document in documents["id"].to_pylist()]
        parquet.write_table(stage.part(shard), documents.filter(pa.array(mask)))
    return corpus.then(stage)


def ids(parts: list[str]) -> set[str]:
    return {document for part in parts for document in parquet.read_table(part, ["id"])["id"].to_pylist()}


def trained_on(split: Split) -> set[str]:
    return ids(list(split.train.places.kept))


def evaluated(home: str, recipe: SimpleNamespace, split: Split) -> dict[str, dict[str, str]]:
    """By set the texts that models are evaluated on, by id."""
    stage = heldout_documents(context(home), recipe, split.corpus)
    found: dict[str, dict[str, str]] = {}
    for row in read(stage).to_pylist():
        found.setdefault(row["set"], {})[row["id"]] = row["text"]
    assert {name: len(texts) for name, texts in found.items()} == {
        name: facts["documents"] for name, facts in stage.result["sets"].items()
    }
    return found


@pytest.mark.extended
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_like_a_held_out_document_is_trained_on_and_nothing_else_is_lost(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(similar, "_SHARED", 50)  # several pieces of a batch
    texts = planted(seed)
    of = {row["id"]: row["text"] for shard in texts.shards for row in shard}
    whole = texts.corpus(str(tmp_path / "home"))
    drawn = {i for i in of if mask([i])[0]}
    near = {i for i in of if i not in drawn and any(like(of[i], of[held]) for held in drawn)}
    assert len(drawn) > 10 and len(near) > 10, "there is something to find"
    for name, chosen in {"all": set(of), "some": set(list(of)[::2])}.items():
        corpus = kept_by(whole, tmp_path / name, chosen)
        split = heldout(context(str(tmp_path / "home")), RECIPE, corpus)
        # those that this recipe drops count, too
        assert trained_on(split) == chosen - drawn - near
        rows = [
            row for i in range(3) for row in parquet.read_table(layout.ledger_part(split.stage.folder, i)).to_pylist()
        ]
        assert {(row["id"], row["rule"]) for row in rows} == {(i, "held_out") for i in chosen & drawn} | {
            (i, "near_duplicate") for i in chosen & near
        }
        for row in rows:
            if row["rule"] == "near_duplicate":
                assert row["representative"] in drawn and like(of[row["id"]], of[row["representative"]])
        [count] = split.stage.step_counts
        assert (count["step"], count["rows_in"], count["rows_out"]) == (
            "heldout",
            len(chosen),
            len(chosen - drawn - near),
        )


def test_texts_that_a_step_has_edited_are_compared_in_both_forms(tmp_path):
    """A document that was cut until it is like a held-out one goes, and so does one that was like it before."""
    rng = np.random.default_rng(1)
    base, other = (" ".join(fresh(rng, 60)) for _ in range(2))
    names = [f"{i:032x}" for i in range(400)]
    drawn = mask(names)
    held, free = (
        [n for n, out in zip(names, drawn, strict=True) if out],
        [n for n, out in zip(names, drawn, strict=True) if not out],
    )
    before = {held[0]: base, free[0]: f"{base} {other}", free[1]: base, free[2]: " ".join(fresh(rng, 60))}
    after = {**before, free[0]: base, free[1]: other}
    home = str(tmp_path / "home")
    extracted = Texts([[{"id": i, "text": t} for i, t in before.items()]]).corpus(home)
    cut = Texts([[{"id": i, "text": t} for i, t in after.items()]]).corpus(home, "cut")
    split = heldout(context(home), RECIPE, extracted.rewritten(cut.documents))
    assert trained_on(split) == {free[2]}
    # and as the sources have it: a step's edits change nothing of what is evaluated
    held_out = {held[0]: base}
    assert evaluated(home, RECIPE, split) == {"heldout/web": held_out, "survivors/web": held_out}


def test_what_is_like_the_part_that_is_evaluated_goes_too(tmp_path):
    """Of a long document the beginning is evaluated: a copy of the beginning is not like the whole."""
    rng = np.random.default_rng(6)
    words = fresh(rng, 6000)
    names = [f"{i:032x}" for i in range(400)]
    out = mask(names)
    held, free = names[out.index(True)], [n for n, o in zip(names, out, strict=True) if not o]
    whole = " ".join(words)
    texts = {held: whole, free[0]: f"{whole[:CHARACTERS]} and more", free[1]: whole[-CHARACTERS:]}
    assert len(whole) > 3 * CHARACTERS and not like(texts[held], texts[free[0]])
    home = str(tmp_path / "home")
    split = heldout(context(home), RECIPE, Texts([[{"id": i, "text": t} for i, t in texts.items()]]).corpus(home))
    assert evaluated(home, RECIPE, split)["heldout/web"] == {held: whole[:CHARACTERS]}
    assert trained_on(split) == {free[1]}


def test_what_models_are_evaluated_on_is_the_same_for_recipes_that_keep_other_documents(tmp_path):
    home, texts = str(tmp_path / "home"), planted(4)
    whole, of = texts.corpus(home), {row["id"]: row["text"] for shard in texts.shards for row in shard}
    source = {row["id"]: name for shard, name in zip(texts.shards, texts.sources, strict=True) for row in shard}
    drawn = {i for i in of if mask([i])[0] and any(c.isalnum() for c in of[i])}
    found = {}
    for name, chosen in {"all": set(of), "some": set(list(of)[::2])}.items():
        found[name] = evaluated(home, RECIPE, heldout(context(home), RECIPE, kept_by(whole, tmp_path / name, chosen)))
        for each in ("web", "books"):
            held_out = found[name][f"heldout/{each}"]
            assert found[name][f"survivors/{each}"] == {i: text for i, text in held_out.items() if i in chosen}
            # near copies once: none is like another, and each that is left out is like one
            candidates = {i for i in drawn if source[i] == each}
            assert held_out == {i: of[i][:CHARACTERS] for i in held_out} and held_out.keys() <= candidates
            assert not any(like(of[a], of[b]) for a in held_out for b in held_out if a < b)
            assert all(any(like(of[a], of[b]) for b in held_out) for a in candidates)
    assert all(found["all"][f"heldout/{each}"] == found["some"][f"heldout/{each}"] for each in ("web", "books"))


def test_a_set_has_no_more_text_than_there_is_room_for(tmp_path):
    """The documents of a smaller set are those of the larger one, and their number follows from bytes alone."""
    home, rng = str(tmp_path / "home"), np.random.default_rng(3)
    rows = [{"id": f"{i:032x}", "text": " ".join(fresh(rng, 10 + i % 7)) + " é" * (i % 3)} for i in range(400)]
    split = heldout(context(home), RECIPE, Texts([rows[::2], rows[1::2]]).corpus(home))
    whole = evaluated(home, RECIPE, split)["heldout/web"]
    sizes = {i: len(text.encode()) for i, text in whole.items()}
    for tokens in (1, 500, 1000):
        recipe = SimpleNamespace(**vars(RECIPE) | {"training": SimpleNamespace(eval_tokens=tokens)})
        some = evaluated(home, recipe, split)["heldout/web"]
        assert some.items() < whole.items()
        size = sum(sizes[i] for i in some)
        assert len(some) == 1 if tokens == 1 else 4 * tokens - max(sizes.values()) < size <= 4 * tokens


@pytest.mark.parametrize(
    ("count", "sentence"),
    [(2, "none of 2 documents is held out, with a fraction of 1e-09"), (1, "add documents to the sources")],
)
def test_a_recipe_that_holds_nothing_out_ends_with_a_sentence(tmp_path, count, sentence):
    texts = Texts([[{"id": str(n), "text": "one two three"} for n in range(count)]])
    corpus = texts.corpus(str(tmp_path))
    with pytest.raises(ValueError, match=sentence):
        heldout(context(str(tmp_path)), SimpleNamespace(**vars(RECIPE) | {"heldout_fraction": 1e-9}), corpus)


def test_the_same_bytes_twice(tmp_path):
    texts, written = planted(5, 60), []
    for name in ("a", "b"):
        split = heldout(context(str(tmp_path / name)), RECIPE, texts.corpus(str(tmp_path / name)))
        chosen = heldout_documents(context(str(tmp_path / name)), RECIPE, split.corpus)
        paths = [
            *split.train.places.kept,
            evaluation_file(chosen.folder),
            *(layout.ledger_part(split.stage.folder, i) for i in range(3)),
        ]
        written.append([open(path, "rb").read() for path in paths])
    assert written[0] == written[1]


def test_of_a_large_source_fewer_are_held_out_and_they_are_some_of_the_others(tmp_path):
    rng = np.random.default_rng(7)
    rows = [{"id": f"{i:032x}", "text": " ".join(fresh(rng, 8))} for i in range(900)]
    texts = Texts([rows[:400], rows[400:800], rows[800:]], ["web", "web", "books"])
    lost = {}
    for most in (10_000, 80, 30):
        home = str(tmp_path / str(most))
        recipe = SimpleNamespace(**vars(RECIPE) | {"heldout_documents": most})
        corpus = texts.corpus(home)
        split = heldout(context(home), recipe, corpus)
        lost[most] = {row["id"] for row in rows} - trained_on(split)
        fractions = {10_000: [0.1, 0.1], 80: [0.1, 0.1], 30: [0.025, 0.1]}[most]
        assert held_out(recipe, corpus) == Heldout(fractions=dict(zip(["web", "books"], fractions, strict=True)))
    books = {row["id"] for row in rows[800:]}
    assert lost[10_000] == lost[80] > lost[30] > lost[30] & books == lost[80] & books


@pytest.mark.extended
def test_of_many_documents_those_with_a_small_hash_are_looked_at_and_the_sets_are_the_same(tmp_path, monkeypatch):
    """Fewer are sampled, and the same ones chosen."""
    rng = np.random.default_rng(5)
    rows = [{"id": f"{i:032x}", "text": " ".join(fresh(rng, 8))} for i in range(1200)]
    recipe = SimpleNamespace(**vars(RECIPE) | {"training": SimpleNamespace(eval_tokens=32)})
    found, counted = [], []
    sample = heldout_stages.sample_shard

    def sampled(folder: str, shard: int, **given) -> dict:
        made = sample(folder, shard, **given)
        counted[-1] += made["sampled"]
        return made

    monkeypatch.setattr(heldout_stages, "sample_shard", sampled)
    for least in (10**9, 16):
        monkeypatch.setattr(evaluation_documents, "_MIN_SAMPLED", least)
        home = str(tmp_path / str(least))
        split = heldout(context(home), RECIPE, Texts([rows[i::40] for i in range(40)]).corpus(home))
        counted.append(0)
        found.append(evaluated(home, recipe, split)["heldout/web"])
    assert found[0] == found[1] and len(found[0]) >= 1
    assert counted[1] < counted[0]
