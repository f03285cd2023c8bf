"""Jobs of the step `decontamination`: hits of a shard, drops and cuts of its documents, the split of the benchmarks."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, EDITS, LEDGER, SELECTION, carried
from gristmill.tasks.decontamination.find import find
from gristmill.tasks.decontamination.index import items_of, load_index
from gristmill.tasks.decontamination.step import Decontamination, Indexing, Policy
from gristmill.tasks.documents.edits import applied, merged, removals, rows, write_cut
from gristmill.tasks.documents.measure import schema, slices
from gristmill.tasks.documents.selection import select, select_groups
from gristmill.tasks.kernels.characters import NO_TRACE, UNSPACED, among, word_characters
from gristmill.tasks.kernels.scan import scan


def word_places(
    texts: pa.ChunkedArray, row: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(start, stop, text) of spans of words, row[i] of the texts from word start[i] to before stop[i], as
    `kernels.ngrams` counts words: code points, int64, and the text between. Rows are ascending."""
    starts, stops, hit_texts = np.empty(len(row), np.int64), np.empty(len(row), np.int64), []
    last, text, begin, end = -1, "", np.empty(0, np.int64), np.empty(0, np.int64)
    for index, (document, first, end_word) in enumerate(zip(row.tolist(), start.tolist(), stop.tolist(), strict=True)):
        if document != last:
            last, text = document, texts[document].as_py()
            begin, end = _words(text)
        starts[index], stops[index] = begin[first], end[end_word - 1]
        hit_texts.append(text[starts[index] : stops[index]])
    return starts, stops, hit_texts


def _words(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Where each word begins and ends; characters that leave no trace may be inside one."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    kinds = word_characters()[points]
    [positions] = np.nonzero(kinds != NO_TRACE)
    inside = kinds[positions] != 0
    alone = _unspaced()[points[positions]] & inside
    before = np.append(False, inside[:-1]) if len(positions) else inside
    parted = alone | (np.append(False, alone[:-1]) if len(positions) else alone)
    begins = inside & (~before | parted)
    ends = inside & np.append(~inside[1:] | parted[1:], True)[: len(positions)]
    return positions[begins], positions[ends] + 1


@cache
def _unspaced() -> np.ndarray:
    return among(UNSPACED)


STEP = "decontamination"
_DROP, _CUT, _SHORT = "benchmark_item", "benchmark_item", "min_characters"
SCORES = pa.schema([DOCUMENTS.field("id"), *schema(Decontamination)])
HITS = pa.schema(
    [
        pa.field("id", pa.string(), False, metadata={"what": "of the document"}),
        pa.field("benchmark", pa.string(), False),
        pa.field("item", pa.string(), False, metadata={"what": "its id in the benchmark"}),
        pa.field("score", pa.float64(), False),
        pa.field("question", pa.float64(), metadata={"what": "share of it that the document has"}),
        pa.field("answer", pa.float64(), metadata={"what": "likewise; null for an item without"}),
        pa.field("passage", pa.float64(), metadata={"what": "likewise; null for an item without"}),
        pa.field("start", pa.int64(), False, metadata={"what": "code points of the text that reached the step"}),
        pa.field("stop", pa.int64(), False),
        pa.field("found", pa.large_string(), False, metadata={"what": "the text from start to stop"}),
    ]
)


def hits_folder(folder: str) -> str:
    return files.join(folder, "hits")


def hits_file(folder: str, shard: int) -> str:
    return layout.part(hits_folder(folder), shard)


def find_shard(folder: str, shard: int, documents: str, kept: str, index: str, settings: Indexing) -> dict:
    """Write the scores of a shard's documents, and its hits. Holds the index, a row group of texts, and what `find`
    holds for two megabytes of them or one document."""
    benchmark_index = load_index(index, settings)
    hits, scores = [HITS.empty_table()], [SCORES.empty_table()]
    for group in select_groups(documents, kept, ["text"]):
        for part in slices(group):
            matches = find(benchmark_index, part["text"])
            ids = part["id"].combine_chunks()
            best, benchmark = np.zeros(len(part)), np.full(len(part), "", object)
            # of equal scores the first item's
            for hit in np.lexsort((-matches.item, matches.score)).tolist():
                document = matches.document[hit]
                best[document], benchmark[document] = matches.score[hit], benchmark_index.benchmark[matches.item[hit]]
            scores.append(pa.table([ids, pa.array(best), pa.array(benchmark, pa.string())], schema=SCORES))
            touched, row = np.unique(matches.document, return_inverse=True)
            start, stop, text = word_places(part["text"].take(pa.array(touched)), row, matches.start, matches.stop)
            columns = {
                "id": ids.take(pa.array(matches.document)),
                "benchmark": [benchmark_index.benchmark[item] for item in matches.item],
                "item": [benchmark_index.id[item] for item in matches.item],
                "score": matches.score,
                **{
                    name: pa.array(getattr(matches, name), pa.float64(), from_pandas=True)
                    for name in ("question", "answer", "passage")
                },
                "start": start,
                "stop": stop,
                "found": text,
            }
            hits.append(pa.table(columns).cast(HITS))
    table = pa.concat_tables(hits)
    parquet.write_table(hits_file(folder, shard), table)
    parquet.write_table(layout.part(folder, shard), pa.concat_tables(scores))
    return {"hits": len(table), "documents": len(pc.unique(table["id"]))}


def unsearched_shard(folder: str, shard: int, kept: str) -> dict:
    """Write null scores and no hits for a selection of a source without the step."""
    ids = parquet.read_table(kept, ["id"])["id"]
    nulls = {field.name: pa.nulls(len(ids), field.type) for field in SCORES if field.name != "id"}
    parquet.write_table(hits_file(folder, shard), HITS.empty_table())
    parquet.write_table(layout.part(folder, shard), pa.table({"id": ids, **nulls}, schema=SCORES))
    return {"hits": 0, "documents": 0}


def drop_shard(folder: str, shard: int, kept: str, hits: str, threshold: float) -> dict:
    """Write which documents of a shard stay: those without a hit. The ledger names the item of the highest score."""
    arriving = parquet.read_table(kept, SELECTION.names)
    matches = parquet.read_table(hits, ["id", "benchmark", "item", "score"])
    order = pc.sort_indices(matches, [("id", "ascending"), ("score", "descending")])
    matches = matches.take(order)
    ids = matches["id"].to_numpy(zero_copy_only=False)
    worst = matches.take(pa.array(np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])))
    items = pc.binary_join_element_wise(worst["benchmark"], worst["item"], ":")
    drops = ledger.drops(STEP, _DROP, worst["id"], value=worst["score"], threshold=threshold, detail=items)
    return ledger.write_selection(folder, shard, arriving, [(STEP, drops)])


def cut_shard(folder: str, shard: int, documents: str, kept: str, hits: str, policy: Policy) -> dict:
    """Write a shard's documents without the places of the hits, and the ledgers of cuts and drops. Holds the shard's
    texts three times."""
    arriving = select(documents, kept, carried(parquet.schema(documents)))
    matches = parquet.read_table(hits, ["id", "start", "stop"])
    row = pc.index_in(matches["id"], arriving["id"].combine_chunks()).to_numpy()
    touched, document = np.unique(row, return_inverse=True)
    spans = _join(document, matches["start"].to_numpy(), matches["stop"].to_numpy())
    texts, cuts, drops = [pa.array([], pa.large_string())], [EDITS.empty_table()], [LEDGER.empty_table()]
    first_row = 0
    for part in slices(arriving.take(pa.array(touched))):
        here = slice(*np.searchsorted(spans[0], [first_row, first_row + len(part)]))
        text = scan(part["text"])
        document_of, start, stop = spans[0][here] - first_row, spans[1][here], spans[2][here]
        start, stop = _bytes(part["text"], document_of, start), _bytes(part["text"], document_of, stop)
        edits = merged(removals(document_of, start, stop, np.zeros(len(document_of), np.int32), (_CUT,)))
        ids = part["id"].combine_chunks()
        remaining = applied(part["text"], edits)
        lengths = np.asarray(pc.utf8_length(remaining), np.int64)
        short = np.flatnonzero(lengths < policy.min_characters)
        texts.append(remaining)
        cuts.append(rows(ids, STEP, text, edits, keeps_removed=True))
        drops.append(
            ledger.drops(
                STEP,
                _SHORT,
                ids.take(pa.array(short)),
                value=lengths[short].astype(np.float64),
                threshold=policy.min_characters,
            )
        )
        first_row += len(part)
    whole = pa.chunked_array(texts)
    return write_cut(folder, shard, STEP, arriving, touched, whole, pa.concat_tables(cuts), pa.concat_tables(drops))


def _join(document: np.ndarray, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spans of documents, those that overlap or touch made one, in order."""
    spans: list[list[int]] = []
    for d, first, last in sorted(zip(document.tolist(), start.tolist(), stop.tolist(), strict=True)):
        if spans and spans[-1][0] == d and first <= spans[-1][2]:
            spans[-1][2] = max(spans[-1][2], last)
        else:
            spans.append([d, first, last])
    columns = np.array(spans, np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _bytes(texts: pa.ChunkedArray, document: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Places in code points as bytes of each document's text."""
    strings = texts.take(pa.array(document)).to_pylist()
    lengths = [len(text[:position].encode()) for text, position in zip(strings, place.tolist(), strict=True)]
    return np.array(lengths, np.int64)


def split_file(folder: str, kind: str, benchmark: str) -> str:
    """The items of a benchmark that no document holds (`clean`), or that some do (`dirty`), as lines of JSON."""
    return files.join(folder, "split", kind, f"{benchmark}.jsonl")


def items_file(folder: str) -> str:
    return files.join(folder, "items.parquet")


def split_benchmarks(folder: str, number: int, index: str, hits: Sequence[str]) -> dict:
    """Write for every item how many documents hold it and the highest score, and each benchmark's items as they are
    in its file, clean and dirty ones apart; a file without an item is not written. Holds the items, and a shard's hits
    without their texts."""
    items = items_of(index)
    documents = dict.fromkeys(items["benchmark"].to_pylist(), 0)
    results: dict[tuple[str, str], tuple[int, float]] = {}
    for path in hits:
        matches = parquet.read_table(path, ["id", "benchmark", "item", "score"])
        for row in matches.group_by("benchmark").aggregate([("id", "count_distinct")]).to_pylist():
            documents[row["benchmark"]] += row["id_count_distinct"]
        of_item = matches.group_by(["benchmark", "item"]).aggregate([("id", "count_distinct"), ("score", "max")])
        for row in of_item.to_pylist():
            count, score = results.get(key := (row["benchmark"], row["item"]), (0, 0.0))
            results[key] = count + row["id_count_distinct"], max(score, row["score_max"])
    item_results = [
        results.get(key, (0, 0.0)) for key in zip(items["benchmark"].to_pylist(), items["id"].to_pylist(), strict=True)
    ]
    table = items.select(["benchmark", "id", "words", "judged"])
    table = table.append_column("documents", pa.array([count for count, _ in item_results], pa.int64()))
    table = table.append_column("score", pa.array([score for _, score in item_results], pa.float64()))
    parquet.write_table(items_file(folder), table)
    counts = {}
    lines = items["row"].to_pylist()
    benchmark_of = np.array(items["benchmark"].to_pylist(), object)
    dirty = table["documents"].to_numpy() > 0
    for name, holding in documents.items():
        for kind, there in (("clean", ~dirty), ("dirty", dirty)):
            some = [lines[row_index] for row_index in np.flatnonzero((benchmark_of == name) & there)]
            if some:
                files.write_bytes(split_file(folder, kind, name), "".join(f"{line}\n" for line in some).encode())
        mine = table.filter(pa.array(benchmark_of == name))
        counts[name] = {
            "items": len(mine),
            "judged": pc.sum(mine["judged"]).as_py(),
            "dirty": int(dirty[benchmark_of == name].sum()),
            "documents": holding,
        }
    return {"benchmarks": counts}
