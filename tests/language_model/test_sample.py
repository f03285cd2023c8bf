"""The sample that a step annotates, against brute force over all documents."""

import math
import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.selection import uniform
from gristmill.tasks.language_model.sample import (
    SAMPLE,
    candidates_shard,
    columns_of_few,
    described_sample,
    find_thresholds,
    numbers_shard,
    quotas,
    sampled,
    thresholds_of,
)
from tests.recorded import recorded

COLUMNS = ("topic", "good", "size", "grade")
TYPES = {"id": pa.string(), "topic": pa.string(), "good": pa.bool_(), "size": pa.float64(), "grade": pa.float64()}


def documents(count: int, seed: int) -> list[dict]:
    draw = random.Random(seed)
    grades = (0, 1, 2, 2.5, 3, 40, -1, math.nan, None)
    sizes = (0, 0.5, 1, 3.99, 4, 15, 16, 1e6, 4.0**30, -7, math.inf, -math.inf, math.nan, None)
    documents = [
        {
            "id": f"d{number}",
            "topic": draw.choice([None, "law", "law", "law", 'a "b"', "", "null", "ไทย"]),
            "good": draw.choice([True, False, None]),
            "size": draw.choice(sizes),
            "grade": draw.choice(grades),
        }
        for number in range(count)
    ]
    many = {"topic": "law", "good": None, "grade": 0}  # in its first shards, a column of more than MAX_NUMBERS
    return [*documents, *({"id": f"m{number}", "size": 4.0 + number, **many} for number in range(40))]


def group(value, name):
    """The group of a value, by comparison with every power of four; a grade, of which few differ, by itself."""
    if value is None or isinstance(value, bool | str) or (name == "grade" and not math.isnan(value)):
        return repr(value)
    if math.isnan(value):
        return "not a number"
    if value < 1:
        return "below"
    return "infinite" if value == math.inf else max(power for power in range(64) if 4.0**power <= value)


def chosen(folder, shards: list[list[dict]], by: tuple[str, ...], of: int, seed: int = 0) -> set[str]:
    """The ids of the sample that the product draws from shards."""
    home = files.join(str(folder), f"{len(shards)}-{by}-{of}-{seed}")
    counts: Counter[str] = Counter()
    tables, numbers = [], []
    for number, shard in enumerate(shards):
        table = pa.Table.from_pylist(shard, schema=pa.schema(list(TYPES.items())))
        part = layout.part(f"{home}/documents", number)
        parquet.write_table(part, table)
        numbers.append(numbers_shard(home, number, part, part, (), by))
        tables.append(table)
    single = columns_of_few(numbers, by)
    for number in range(len(shards)):
        part = layout.part(f"{home}/documents", number)
        counts.update(candidates_shard(home, number, part, part, (), by, of, seed, single)["counts"])
    sizes = quotas(counts, of)
    find_thresholds(home, 0, [layout.part(home, number) for number in range(len(shards))], sizes)
    thresholds = thresholds_of((recorded(files.join(home, SAMPLE)),))
    found: set[str] = set()
    for table in tables:
        found |= set(table["id"].filter(pa.array(sampled(table, by, seed, thresholds))).to_pylist())
    return found


def expected(docs: list[dict], by: tuple[str, ...], of: int, seed: int = 0) -> set[str]:
    """Documents by the hash of their ids, in turns, one of each stratum that has some left; without a last turn that
    has fewer places than strata."""
    hashes = dict(
        zip((d["id"] for d in docs), uniform(pa.array([d["id"] for d in docs]), seed, "annotate"), strict=True)
    )
    strata: dict[tuple, list[str]] = {}
    for document in sorted(docs, key=lambda d: hashes[d["id"]]):
        strata.setdefault(tuple(group(document[name], name) for name in by), []).append(document["id"])
    sizes = {key: 0 for key in strata}
    left = min(of, len(docs))
    while left:
        least = min(sizes[key] for key in strata if sizes[key] < len(strata[key]))
        turn = [key for key in strata if sizes[key] == least and sizes[key] < len(strata[key])]
        if left < len(turn):
            break
        for key in turn:
            sizes[key] += 1
            left -= 1
    return {id for key in strata for id in strata[key][: sizes[key]]}


@pytest.mark.parametrize("by", [(), *(pytest.param((name,), marks=pytest.mark.extended) for name in COLUMNS), COLUMNS])
@pytest.mark.parametrize("of", [1, 60, pytest.param(5000, marks=pytest.mark.extended)])
def test_a_sample_is_that_of_brute_force_for_any_shards(tmp_path, by, of):
    docs = documents(200, 3)
    shuffled = random.Random(5).sample(docs, len(docs))
    one = chosen(tmp_path, [docs], by, of)
    assert len(one) == min(of, len(docs))
    certain = expected(docs, by, of)
    assert certain <= one
    strata = Counter(tuple(group(document[name], name) for name in by) for document in docs)
    extra = Counter(tuple(group(d[name], name) for name in by) for d in docs if d["id"] in one - certain)
    assert all(count == 1 for count in extra.values()), "of the places of the last turn, each stratum has at most one"
    assert len(one - certain) < max(2, len(strata))
    for shards in ([shuffled[:1], [], shuffled[1:150], shuffled[150:]], [shuffled[i::7] for i in range(7)]):
        assert chosen(tmp_path, shards, by, of) == one


def test_another_seed_is_another_sample_and_more_documents_keep_the_smaller_sample(tmp_path):
    docs = documents(300, 4)
    small, large = (chosen(tmp_path, [docs], ("topic",), of) for of in (40, 120))
    assert small < large
    assert chosen(tmp_path, [docs], ("topic",), 40, seed=1) != small


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=3), st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 200))
def test_quotas_are_as_equal_as_the_strata_permit(counts, of):
    sizes = quotas(counts, of)
    assert sum(sizes.values()) == min(of, sum(counts.values()))
    assert all(0 <= sizes[name] <= counts[name] for name in counts)
    short = [sizes[name] for name in counts if sizes[name] < counts[name]]
    if short:
        assert max(sizes.values()) - min(short) <= 1
        assert all(sizes[name] == counts[name] for name in counts if counts[name] < min(short))


def test_columns_with_a_value_for_each_document_are_refused_by_their_first_shard(tmp_path):
    schema = pa.schema(list(TYPES.items()))
    rows = [
        {"id": f"d{number}", "topic": f"t{number}", "good": None, "size": None, "grade": None}
        for number in range(10_001)
    ]
    part = layout.part(f"{tmp_path}/documents", 0)
    parquet.write_table(part, pa.Table.from_pylist(rows, schema=schema))
    with pytest.raises(ValueError, match=r"^topic have more than 10,000 different values; use fewer columns in `by`"):
        candidates_shard(str(tmp_path), 0, part, part, (), ("topic",), 5, 0)
    parquet.write_table(part, pa.Table.from_pylist(rows[1:], schema=schema))
    assert sum(candidates_shard(str(tmp_path), 0, part, part, (), ("topic",), 5, 0)["counts"].values()) == 10_000


def test_the_log_has_the_strata_and_their_sizes():
    counts = {'[3, "web"]': 1200, '["from 4", null]': 7, '[2.5, "a"]': 1}
    sizes = {'[3, "web"]': 12, '["from 4", null]': 7}
    assert described_sample(("grade", "source"), counts, sizes) == (
        "sample by grade, source: 3, web: 12 of 1,200; from 4, null: 7 of 7; 2.5, a: 0 of 1"
    )
    many = {f"[{number}]": number for number in range(25)}
    assert described_sample(("grade",), many, many).endswith("; 5: 5 of 5; 5 more strata")
