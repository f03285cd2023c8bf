"""Near-duplicate removal end to end, against its definition, computed over all pairs by brute force."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gristmill.flows.stages.dedup import near_duplicates
from gristmill.storage import checked_json, layout, parquet, sorted_files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.schema import DOCUMENTS
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.near import sign
from gristmill.tasks.dedup.near.settings import MinHash, curve_message, s_curve
from gristmill.tasks.dedup.near.sign import band_hashes, signed
from gristmill.tasks.kernels.duplicates import representatives
from tests.corpora import Texts, context, job_memory, ledger, planted_stage, read
from tests.scripts import EDITS, SCRIPTS, edited, text_of
from tests.tasks.dedup.near.test_signatures import shingled


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is done for large corpora is done here for small ones."""
    monkeypatch.setattr(exchange, "SMALL_BYTES", 5_000)


WORDS = 100
SHINGLES = WORDS - 4


def plain_set(text: str) -> frozenset:
    words = text.lower().replace("!", "").split()
    return frozenset(tuple(words[i : i + 5]) for i in range(max(len(words) - 4, 1)))


def jaccard(one: frozenset, other: frozenset) -> float:
    return len(one & other) / len(one | other)


def definition(
    documents: list[dict], settings: MinHash, order, given: tuple[dict, ...] = (), set_of: Callable = plain_set
) -> dict[str, tuple]:
    """Who is dropped for whom, and how like it is: the sentence in `MinHash`, all pairs by plain sets.

    Shared bands are those of the signatures, whose kernels have tests of their own.
    """
    everyone = [*given, *sorted(documents, key=order)]
    table = pa.table(
        {"id": [d["id"] for d in everyone], "at": range(len(everyone)), "text": [d["text"] for d in everyone]}
    )
    bands = band_hashes(signed(table, settings)["signature"], settings)
    sets = [set_of(d["text"]) for d in everyone]
    kept, dropped = [], {}
    for i, document in enumerate(everyone):
        for s in kept if i >= len(given) else ():
            like = jaccard(sets[i], sets[s]) if (bands[i] == bands[s]).any() else 0
            if like >= settings.threshold:
                dropped[document["id"]] = (everyone[s]["id"], like)
                break
        else:
            kept.append(i)
    return dropped


def longest(document: dict) -> tuple:
    return -len(document["text"]), document["id"]


def fresh(rng, count: int) -> list[str]:
    return [f"w{x:x}" for x in rng.integers(0, 2**48, count)]


def pair(rng, target: float) -> tuple[str, str, float]:
    """Two texts of 100 unlike words whose ends differ: with k common shingles, J = k / (2 * 96 - k)."""
    same = round(2 * SHINGLES * target / (1 + target))
    common = fresh(rng, same + 4)
    texts = [" ".join(common + fresh(rng, WORDS - len(common))) for _ in range(2)]
    return *texts, same / (2 * SHINGLES - same)


def planted(seed: int = 20) -> list[dict]:
    """Pairs, chains, families and copies among unlike documents; ids do not follow the order of planting."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(fresh(rng, WORDS)) for _ in range(80)]
    for target in np.repeat([0.3, 0.5, 0.7, 0.76, 0.79, 0.81, 0.85, 0.95], 8):
        texts += pair(rng, target)[:2]
    for _ in range(8):
        chain = fresh(rng, WORDS + 60)
        texts += [" ".join(chain[i : i + WORDS + i % 3]) for i in range(0, 60, 6)]
    for _ in range(4):
        template = fresh(rng, WORDS)
        for _ in range(12):
            words = list(template)
            words[rng.integers(WORDS)] = fresh(rng, 1)[0]
            texts.append(" ".join(words))
    texts += texts[:10] + texts[:5] + texts[200:210]
    texts += ["one", "One!", "two words", "two"]
    return [{"id": f"d{k:04d}", "text": text} for k, text in zip(rng.permutation(len(texts)), texts, strict=True)]


def dealt(documents: list[dict], n: int, seed: int | None = None) -> list[list[dict]]:
    documents = list(documents)
    if seed is not None:
        random.Random(seed).shuffle(documents)
    return [documents[i::n] for i in range(n)]


def deduplicate(home: Path, texts: Texts, settings: MinHash, name: str = "texts", memory: int = 1 << 30):
    corpus = texts.corpus(str(home), name)
    with job_memory(memory):
        return near_duplicates.minhash(context(str(home)), texts.recipe, corpus, settings)


def drops(corpus) -> dict[str, tuple]:
    rows = ledger(corpus.kept, corpus.places.shards()).to_pylist()
    return {r["id"]: (r["representative"], r["value"]) for r in rows if r["rule"] == "near_duplicate"}


@pytest.mark.extended
@pytest.mark.parametrize("settings", [MinHash(partitions=3), MinHash(threshold=0.6, bands=32, rows=4, partitions=2)])
def test_the_kept_documents_are_those_of_the_definition(tmp_path, settings):
    documents = planted()
    left = deduplicate(tmp_path, Texts(dealt(documents, 3)), settings)
    found = drops(left)
    assert found == definition(documents, settings, longest)
    assert len(found) > 60
    assert min(value for _, value in found.values()) >= settings.threshold
    kept = {row["id"]: row["cluster_size"] for row in read(left.kept, left.places.shards()).to_pylist()}
    assert sorted([*kept, *found]) == sorted(d["id"] for d in documents)
    representatives = [representative for representative, _ in found.values()]
    assert kept == {document: 1 + representatives.count(document) for document in kept}


def test_a_chain_does_not_drop_what_is_unlike_its_representative(tmp_path):
    rng = np.random.default_rng(1)
    chain = fresh(rng, WORDS + 60)
    documents = [{"id": f"c{i:02d}", "text": " ".join(chain[i : i + WORDS])} for i in range(0, 60, 6)]
    found = drops(deduplicate(tmp_path, Texts([documents]), MinHash(keep=(), bands=64, rows=2)))
    texts = {d["id"]: d["text"] for d in documents}
    for document, (representative, value) in found.items():
        assert value == jaccard(plain_set(texts[document]), plain_set(texts[representative])) >= 0.8
    # Each is like the next; had likeness been handed on, one would be left of ten.
    assert sorted(set(texts) - set(found)) == ["c00", "c12", "c24", "c36", "c48"]


def test_one_edit_in_400_characters_is_dropped_in_every_script(tmp_path):
    """A letter replaced, inserted or deleted; two and three that are replaced only if the definition says so."""
    draw = random.Random(4)
    documents = []
    for script in SCRIPTS:
        for number in range(3):
            base = text_of(script, 400, draw)
            edits = [edited(base, kind, 1, script, draw) for kind in EDITS]
            edits += [edited(base, "replaced", count, script, draw) for count in (2, 3)]
            named = enumerate([base, *edits])
            documents += [{"id": f"{script} {number} {version}", "text": text} for version, text in named]
    # every pair shares one of so many bands: what is left is the comparison
    settings = MinHash(keep=("oldest",), bands=128, rows=1, comparisons=10_000, partitions=2)
    found = drops(deduplicate(tmp_path, Texts(dealt(documents, 2, 5)), settings))
    assert found == definition(documents, settings, lambda d: d["id"], set_of=lambda text: shingled(text, 5))
    assert {d["id"] for d in documents if d["id"].endswith(("1", "2", "3"))} <= set(found)
    assert all(value > 0.9 for name, (_, value) in found.items() if name.startswith(("Han ", "Thai", "Khmer")))


def test_documents_without_words_stay(tmp_path):
    documents = [{"id": f"e{i}", "text": text} for i, text in enumerate(["", "...", "", "— ! —"])]
    left = deduplicate(tmp_path, Texts([documents]), MinHash())
    assert len(read(left.kept, [0])) == 4


@pytest.mark.extended
def test_nothing_depends_on_shards_partitions_order_or_memory(tmp_path, monkeypatch):
    documents = planted()
    expected = None
    for number, (n, seed, changes) in enumerate(
        [
            (1, None, {}),
            (4, 5, {"partitions": 1}),
            (3, 6, {"partitions": 7}),
            (2, 7, {"memory": 10_000}),
            (2, 8, {"partitions": None}),  # by size
            (9, 9, {"partitions": 5, "fan_in": 2}),  # several passes of merging
            (9, 10, {"partitions": None, "fan_in": 3}),
        ]
    ):
        fan_in = changes.pop("fan_in", 512)
        monkeypatch.setattr(exchange, "FAN_IN", fan_in)
        monkeypatch.setattr(exchange, "MIN_FAN_IN", min(fan_in, 32))
        # enough for the labels, but less than the sets take, which are then in a temporary file
        memory = changes.pop("memory", 1 << 30)
        settings = MinHash(partitions=2).model_copy(update=changes)
        left = deduplicate(tmp_path / str(number), Texts(dealt(documents, n, seed)), settings, memory=memory)
        table = read(left.kept, left.places.shards()).sort_by("id").combine_chunks()
        rows = ledger(left.kept, left.places.shards()).sort_by("id").combine_chunks()
        expected = expected or (table, rows)
        assert table.equals(expected[0]) and rows.equals(expected[1])
        of_stages = {path.name for folder in left.stages[1:] for path in Path(folder.folder).iterdir() if path.is_dir()}
        assert of_stages == {"done", "bands", "index", "edges", "labels", "decided", "ledger", "kept"}
    assert left.kept.result["partitions"] > 1  # by size


def order_newest(document: dict) -> tuple:
    return [-ord(c) for c in document["date"]], document["id"]


@pytest.mark.extended
def test_keep_criteria(tmp_path):
    documents = [d | {"date": f"20{i % 30:02d}-01-01T00:00:00Z"} for i, d in enumerate(planted())]
    settings = MinHash(keep=("newest",), partitions=2)
    assert drops(deduplicate(tmp_path / "n", Texts(dealt(documents, 2)), settings)) == definition(
        documents, settings, order_newest
    )
    sources = ["b", "a", "b"]
    parts = dealt(documents, 3)
    where = {d["id"]: ["b", "a"].index(source) for part, source in zip(parts, sources, strict=True) for d in part}
    settings = MinHash(keep=("source", "longest"), partitions=2)
    found = drops(deduplicate(tmp_path / "s", Texts(parts, sources), settings))
    assert found == definition(documents, settings, lambda d: (where[d["id"]], longest(d)))


@pytest.mark.extended
@pytest.mark.parametrize(("number_of_crawls", "fan_in"), [(2, 512), (3, 512), (3, 2)])
def test_crawl_after_crawl_gives_what_all_at_once_give(tmp_path, monkeypatch, number_of_crawls, fan_in):
    monkeypatch.setattr(exchange, "FAN_IN", fan_in)
    monkeypatch.setattr(exchange, "MIN_FAN_IN", min(fan_in, 32))
    documents = planted()
    crawls = [documents[i::number_of_crawls] for i in range(number_of_crawls)]
    parts = [dealt(crawl, shards_there) for crawl, shards_there in zip(crawls, (5, 3, 2), strict=False)]
    sources = [f"c{number}" for number, some in enumerate(parts) for _ in some]
    at_once = Texts([part for some in parts for part in some], sources)
    expected = drops(deduplicate(tmp_path / "once", at_once, MinHash(keep=("source", "longest"), partitions=3)))
    earlier, found = (), {}
    for number, some in enumerate(parts):
        settings = MinHash(partitions=2 + number, earlier=earlier)
        left = deduplicate(tmp_path / "home", Texts(some), settings, f"crawl {number}")
        found |= drops(left)
        earlier = (*earlier, left.kept.folder)
    assert found == expected
    assert any(
        representative in {d["id"] for d in crawls[0]}
        for d, (representative, _) in found.items()
        if d in {d["id"] for d in crawls[1]}
    )


def test_who_was_taken_down_in_an_earlier_crawl_drops_nobody_later(tmp_path):
    texts = [d["text"] for d in planted()]
    takedowns = tmp_path / "takedowns.txt"
    takedowns.write_text("a0\n")
    first = Texts([[{"id": "a0", "text": texts[0]}, {"id": "a1", "text": texts[1]}]])
    second = Texts([[{"id": "b0", "text": texts[0]}, {"id": "b1", "text": texts[1]}]])
    before = deduplicate(tmp_path, first, MinHash(partitions=2, takedowns=(str(takedowns),)), "a")
    left = deduplicate(tmp_path, second, MinHash(partitions=2, earlier=(before.kept.folder,)), "b")
    assert read(left.kept, [0])["id"].to_pylist() == ["b0"]
    assert drops(left) == {"b1": ("a1", 1.0)}


@pytest.mark.extended
def test_crawls_may_use_the_same_ids(tmp_path):
    texts = [d["text"] for d in planted()]
    first = Texts([[{"id": f"d{i}", "text": text} for i, text in enumerate(texts[:3])]])
    second = Texts([[{"id": f"d{i}", "text": text} for i, text in enumerate([texts[0], texts[5], texts[1]])]])
    before = deduplicate(tmp_path, first, MinHash(partitions=1), "a")
    left = deduplicate(tmp_path, second, MinHash(partitions=1, earlier=(before.kept.folder,)), "b")
    assert drops(left) == {"d0": ("d0", 1.0), "d2": ("d1", 1.0)}
    assert read(left.kept, [0])["id"].to_pylist() == ["d1"]
    with pytest.raises(ValueError, match="have the id 'd0': rename their sources"):
        twice = Texts([[{"id": "d0", "text": texts[0]}], [{"id": "d0", "text": texts[0] + " more"}]])
        deduplicate(tmp_path, twice, MinHash(partitions=1), "twice")


def test_best_and_longest_after_texts_were_cut(tmp_path):
    """The lengths that count are those of the texts as they are now, not of a stage before."""
    documents = [{"id": f"x{i}", "text": planted()[0]["text"] + " end" * i} for i in range(3)]
    texts = Texts([documents])
    corpus = texts.corpus(str(tmp_path))
    stage = planted_stage("scores", str(tmp_path / "scores"))
    scores = pa.table({"id": ["x0", "x1", "x2"], "score": [1.0, 1.0, 1.0], "characters": [900, 5, 1]})
    parquet.write_table(stage.part(0), scores)
    scored = corpus.measuring(stage)
    settings = MinHash(partitions=1, keep=("best", "longest"), best="score")
    left = near_duplicates.minhash(context(str(tmp_path)), texts.recipe, scored, settings)
    assert read(left.kept, [0])["id"].to_pylist() == ["x2"]


def of_other_code(near_duplicates: str) -> None:
    """Change what a stage's signatures are, as another version of the kernels would have made them."""
    home = Path(near_duplicates).parent
    for part in home.glob("signatures-*/part-00000.parquet"):
        table = parquet.read_table(str(part))
        contents = pa.array(table["content"].to_numpy() + np.uint64(1))
        parquet.write_table(str(part), table.set_column(table.column_names.index("content"), "content", contents))


@pytest.mark.extended
def test_shards_to_which_nothing_was_written(tmp_path):
    """As extraction leaves them where an archive has no page: without any row group."""
    first, second = planted()[:2]
    texts = Texts([[], [first], [], [{**second, "text": first["text"] + " end"}], []])
    corpus = texts.corpus(str(tmp_path))
    for number in (0, 2, 4):
        with parquet.create(corpus.documents.part(number), DOCUMENTS):
            pass
    left = near_duplicates.minhash(context(str(tmp_path)), texts.recipe, corpus, MinHash(partitions=2))
    assert list(drops(left)) == [first["id"]]


def made_of(near_duplicates: str) -> list[str]:
    """The names of the stages that one was made of."""
    return list((layout.manifest(near_duplicates) or {})["read"].values())


@pytest.mark.extended
def test_earlier_crawls_must_fit(tmp_path):
    first, second = planted(1), planted(2)
    made = deduplicate(tmp_path, Texts([first]), MinHash(partitions=1), "a").kept.folder
    other = deduplicate(tmp_path, Texts([second]), MinHash(partitions=1), "b").kept.folder
    third = Texts([planted(3)])
    with pytest.raises(ValueError, match="was built with nothing as its own `earlier`"):
        deduplicate(tmp_path, third, MinHash(partitions=1, earlier=(made, other)), "c")
    with pytest.raises(ValueError, match="`threshold` is 0.8, but here it is 0.9"):
        deduplicate(tmp_path, third, MinHash(partitions=1, threshold=0.9, earlier=(made,)), "c")
    kept = Path(made) / "kept"
    kept.rename(Path(made) / "gone")
    with pytest.raises(ValueError, match=r"has no .*kept.*; run the recipe of that crawl again"):
        deduplicate(tmp_path, third, MinHash(partitions=1, earlier=(made,)), "c")
    (Path(made) / "gone").rename(kept)
    [signed] = [
        path for path in Path(made).parent.glob("signatures-*/manifest.json") if path.parent.name in made_of(made)
    ]
    signed.rename(tmp_path / "gone")
    with pytest.raises(
        ValueError, match=r"whose .*signatures-.* is not a finished stage: run the recipe of that crawl"
    ):
        deduplicate(tmp_path, third, MinHash(partitions=1, earlier=(made,)), "c")
    (tmp_path / "gone").rename(signed)
    of_other_code(made)
    with pytest.raises(ValueError, match="differ from those that this version computes"):
        deduplicate(tmp_path, third, MinHash(partitions=1, earlier=(made,)), "c")
    with pytest.raises(ValueError, match="is not a finished stage"):
        deduplicate(tmp_path, third, MinHash(partitions=1, earlier=(str(tmp_path),)), "c")
    checked_json.write(str(tmp_path / "manifest.json"), {"stage": "near_duplicates", "format": 5})
    with pytest.raises(ValueError, match="another version of gristmill made the stage; run its recipe again"):
        deduplicate(tmp_path, third, MinHash(partitions=1, earlier=(str(tmp_path),)), "c")


def test_an_earlier_crawl_of_which_one_script_was_signed_otherwise_is_refused(tmp_path):
    documents = [{"id": "a0", "text": "one two"}, {"id": "a1", "text": "磨坊主磨黑麦和燕麦"}]
    made = deduplicate(tmp_path, Texts([documents]), MinHash(partitions=1), "a")
    path = made.stages[-3].part(0)
    table = parquet.read_table(path)
    contents = pa.array(table["content"].to_numpy() + np.array([0, 1], np.uint64))
    parquet.write_table(path, table.set_column(table.column_names.index("content"), "content", contents))
    with pytest.raises(ValueError, match="differ from those that this version computes"):
        deduplicate(tmp_path, Texts([planted(2)]), MinHash(partitions=1, earlier=(made.kept.folder,)), "b")


@pytest.mark.extended
def test_the_index_of_an_earlier_crawl_must_have_it(tmp_path):
    """The file that should have its first band may lack it, be damaged, or be no sorted file."""
    left = deduplicate(tmp_path, Texts([planted(1)]), MinHash(partitions=7), "a")
    index = sorted((Path(left.stages[-2].folder) / "index").iterdir())
    assert len(index) == 7
    signatures = parquet.read_table(layout.part(left.stages[-3].folder, 0))
    first = int(band_hashes(signatures["signature"], MinHash())[0, 0])
    [of_first] = [path for path in index if first in sorted_files.read(str(path), 0, 1 << 64)["hash"].to_pylist()]
    whole = of_first.read_bytes()

    def later(name: str):
        return deduplicate(tmp_path, Texts([planted(2)]), MinHash(partitions=7, earlier=(left.kept.folder,)), name)

    table = sorted_files.read(str(of_first), 0, 1 << 64)
    sorted_files.write(str(of_first), table.filter(pc.not_equal(table["hash"], pa.scalar(first, pa.uint64()))), "hash")
    with pytest.raises(ValueError, match="differ from those that this version computes"):
        later("b")
    of_first.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :])
    with pytest.raises(ValueError, match="cannot be used: .* is damaged between bytes"):
        later("b")
    parquet.write_table(str(of_first), table)
    with pytest.raises(ValueError, match="cannot be used: .* not a sorted file"):
        later("b")
    of_first.write_bytes(whole)
    assert later("b").kept.result["inputs_layout"]["earlier"]


def test_texts_that_are_not_those_that_were_signed_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sign, "_SIGNED_AGAIN", 1)
    texts = [d["text"] for d in planted()[:4]]
    before = deduplicate(
        tmp_path, Texts([[{"id": f"a{i}", "text": text} for i, text in enumerate(texts)]]), MinHash(partitions=1), "a"
    )
    [part] = Path(before.documents.folder).glob("part-*.parquet")
    table = parquet.read_table(str(part))
    changed = pa.array([texts[0], texts[1], texts[2] + " more", texts[3]], pa.large_string())
    parquet.write_table(str(part), table.set_column(table.column_names.index("text"), "text", changed))
    copies = [{"id": f"b{i}", "text": text + " end"} for i, text in enumerate(texts)]
    with pytest.raises(RuntimeError, match="has other texts than were signed"):
        settings = MinHash(partitions=1, earlier=(before.kept.folder,))
        deduplicate(tmp_path, Texts([copies]), settings, "b")


@pytest.mark.extended
def test_a_takedown_promotes_the_next_and_signs_nothing_again(tmp_path):
    documents = planted()
    before = deduplicate(tmp_path, Texts(dealt(documents, 2)), MinHash(partitions=2))
    representatives = sorted({representative for representative, _ in drops(before).values()})
    by_id, by_url = representatives[:4], representatives[4:6]
    takedowns = tmp_path / "takedowns.txt"
    takedowns.write_text("\n".join(["# court order", *by_id, *(f"https://web.example/{i}" for i in by_url), ""]))
    settings = MinHash(partitions=2, takedowns=(str(takedowns),))
    after = deduplicate(tmp_path, Texts(dealt(documents, 2)), settings)
    gone = {*by_id, *by_url}
    rows = ledger(after.kept, after.places.shards()).to_pylist()
    assert {row["id"] for row in rows if row["rule"] == "takedown"} == gone
    assert drops(after) == definition([d for d in documents if d["id"] not in gone], settings, longest)
    assert drops(after) != drops(before)
    assert [built.reused for built in after.stages[-3:]] == [True, True, False]


def with_templates() -> list[dict]:
    """The planted documents and copies of two templates, like the longest of them, or less like it, or equal to it."""
    rng = np.random.default_rng(9)
    texts = []
    for copies in (150, 170):
        template = fresh(rng, 3 * WORDS)
        for _ in range(copies):
            words = list(template)
            for place in rng.integers(3 * WORDS, size=rng.integers(1, 6)):
                words[place] = fresh(rng, 1)[0]
            texts.append(" ".join(words))
        longest_text = max(texts[-copies:], key=len)
        texts += [longest_text.upper(), longest_text.upper() + "!", *texts[-copies : 20 - copies]]
    numbers = rng.permutation(len(texts))
    return planted() + [{"id": f"t{k:04d}", "text": text} for k, text in zip(numbers, texts, strict=True)]


@pytest.mark.extended
@pytest.mark.parametrize(("shards_there", "partitions", "memory"), [(1, 1, 1 << 30), (3, 2, 30_000)])
def test_an_oversized_component_is_decided_as_others_are(tmp_path, shards_there, partitions, memory):
    documents = with_templates()
    settings = MinHash(partitions=partitions)
    left = deduplicate(tmp_path, Texts(dealt(documents, shards_there, 3)), settings, memory=memory)
    assert drops(left) == definition(documents, settings, longest)
    assert left.kept.result["largest_component"] > 150
    assert not (Path(left.kept.folder) / "gathered").exists()
    templates = {representative for representative, _ in drops(left).values() if representative.startswith("t")}
    gone = sorted(templates)[:2]
    takedowns = tmp_path / "takedowns.txt"
    takedowns.write_text("\n".join(gone))
    settings = settings.model_copy(update={"takedowns": (str(takedowns),)})
    left = deduplicate(tmp_path, Texts(dealt(documents, shards_there, 3)), settings, memory=memory)
    assert drops(left) == definition([d for d in documents if d["id"] not in gone], settings, longest)


def test_the_best_may_also_be_the_longest(tmp_path):
    documents = [{"id": f"x{i}", "text": planted()[0]["text"] + " end" * i} for i in range(3)]
    settings = MinHash(partitions=1, keep=("best", "longest"), best="characters")
    left = deduplicate(tmp_path, Texts([documents]), settings)
    assert read(left.kept, [0])["id"].to_pylist() == ["x2"]


def test_a_stage_that_lost_but_its_manifest_is_the_same(tmp_path):
    documents = with_templates()
    found = []
    for _ in range(2):
        left = deduplicate(tmp_path, Texts(dealt(documents, 2)), MinHash(partitions=2))
        folder = Path(left.kept.folder)
        found.append({path.name: path.read_bytes() for path in [*folder.rglob("*.parquet"), folder / "manifest.json"]})
        (folder / "manifest.json").unlink()
    assert found[0] == found[1]


@pytest.mark.extended
def test_a_template_of_an_earlier_crawl_drops_the_next_one_s(tmp_path):
    documents = with_templates()
    crawls = [documents[::2], documents[1::2]]
    at_once = Texts([*dealt(crawls[0], 2), *dealt(crawls[1], 2)], ["c0", "c0", "c1", "c1"])
    settings = MinHash(keep=("source", "longest"), partitions=1)
    expected = drops(deduplicate(tmp_path / "once", at_once, settings))
    before = deduplicate(tmp_path / "home", Texts(dealt(crawls[0], 2)), MinHash(partitions=1), "a")
    settings = MinHash(partitions=1, earlier=(before.kept.folder,))
    left = deduplicate(tmp_path / "home", Texts(dealt(crawls[1], 2)), settings, "b")
    assert drops(before) | drops(left) == expected


def test_a_damaged_file_is_named(tmp_path):
    left = deduplicate(tmp_path, Texts(dealt(planted(), 2)), MinHash(partitions=2))
    path = Path(left.stages[-2].folder) / "labels" / "00000.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=f"{path.name} is damaged .*; remove the stage's folder"):
        deduplicate(tmp_path, Texts(dealt(planted(), 2)), MinHash(partitions=2, threshold=0.7))


def test_comparisons_are_bounded_and_those_left_out_are_counted():
    rng = np.random.default_rng(3)
    sets = np.sort(rng.integers(0, 2**64, (50, 20), np.uint64), axis=1)
    sets[49] = sets[40]
    offsets = np.arange(51) * 20
    buckets = np.zeros((50, 1), np.int64)
    kept, _, comparisons, left_out = representatives(sets.ravel(), offsets, buckets, 1, 0, 0.8, 100)
    assert kept[49] == 40 and left_out == 0 and comparisons == 49 * 48 // 2 + 41
    kept, _, comparisons, left_out = representatives(sets.ravel(), offsets, buckets, 1, 0, 0.8, 10)
    assert kept[49] == 49 and left_out == 39 and comparisons == 45 + 10 * 40


def test_a_bucket_is_not_compared_in_full_beyond_the_limit(tmp_path):
    """Of 140 unlike documents that share a band, the next is compared with the first 128 only, and so is kept although
    it is like the last of them; with one more comparison it is dropped."""
    rng = np.random.default_rng(6)
    common = fresh(rng, 60)
    texts = [" ".join(common + fresh(rng, 40)) for _ in range(140)]
    documents = [{"id": f"k{i:03d}", "text": text} for i, text in enumerate(texts)]
    documents.append({"id": "last", "text": texts[128] + " end"})
    settings = MinHash(keep=(), bands=128, rows=1, partitions=1)
    left = deduplicate(tmp_path, Texts([documents]), settings)
    assert drops(left) == {} != definition(documents, settings, lambda d: d["id"])
    assert left.kept.result["left_out"] == 12
    more = settings.model_copy(update={"comparisons": 129})
    assert list(drops(deduplicate(tmp_path, Texts([documents]), more))) == ["last"]


@pytest.mark.extended
def test_recall_follows_the_curve(tmp_path):
    rng, each = np.random.default_rng(5), 1000
    documents, truth = [], {}
    for target in (0.7, 0.8, 0.9, 0.95):
        for k in range(each):
            one, other, exact = pair(rng, target)
            documents += [{"id": f"{target}-{k}-{half}", "text": text} for half, text in enumerate((one, other))]
            truth[f"{target}-{k}"] = (target, exact)
    settings = MinHash(threshold=0.6, partitions=1)
    found = {document.rpartition("-")[0] for document in drops(deduplicate(tmp_path, Texts([documents]), settings))}
    for target in (0.7, 0.8, 0.9, 0.95):
        exact = next(j for t, j in truth.values() if t == target)
        expected = s_curve(settings.bands, settings.rows, exact)
        share = sum(key in found for key, (t, _) in truth.items() if t == target) / each
        assert abs(share - expected) < 4 * (expected * (1 - expected) / each) ** 0.5 + 0.002


def test_the_message_has_the_curve_with_published_values():
    """The values for FineWeb's 14 bands of 8 and for Dolma 3's 26 of 11."""
    fineweb, dolma = MinHash(bands=14, rows=8, threshold=0.75), MinHash(bands=26, rows=11, permutations=286)
    assert "5.3% at 0.5, 21.1% at 0.6, 56.5% at 0.7, 92.4% at 0.8" in curve_message(fineweb)
    assert "1.3% at 0.5, 9.0% at 0.6, 40.5% at 0.7, 90.3% at 0.8" in curve_message(dolma)
