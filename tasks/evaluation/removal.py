"""Evaluation documents and what is like them, taken out of a corpus.

    texts.parquet             `id`, `text`: what documents are compared with
    part-00000.parquet, ...   the documents that stay, and the ledger of the others

An evaluation document is known by the record that it was read from, whatever the arm calls its source. Any other
document is compared as it was extracted, and as it is trained on where a step has edited it. It is compared with the
evaluation documents in three forms: as they are evaluated, before they were cut, and as this corpus's own extraction
has them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, ledger, parquet, shards
from storage.schema import DOCUMENTS, SELECTION
from tasks.dedup.near.settings import Shingling
from tasks.documents.rows import read_rows
from tasks.documents.selection import select_groups
from tasks.evaluation.documents import PLACE, records
from tasks.evaluation.similar import given, most_similar

STEP = "evaluation_removal"
_TEXTS = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("text")])


def texts_file(folder: str) -> str:
    return files.join(folder, "texts.parquet")


def found_folder(folder: str) -> str:
    return files.join(folder, "found")


def found_file(folder: str, shard: int) -> str:
    return files.join(found_folder(folder), f"{shard:05d}.parquet")


def find_shard(folder: str, shard: int, extracted: str, evaluation: str) -> dict:
    """Write the ids and texts that evaluation documents have in a shard of extracted documents. Holds the places of
    all its documents."""
    wanted = parquet.read_table(evaluation, ["record"])["record"].combine_chunks()
    rows = np.flatnonzero(pc.is_in(records(parquet.read_table(extracted, PLACE)), wanted))
    parquet.write_table(found_file(folder, shard), read_rows(extracted, rows, ["id", "text"]).cast(_TEXTS))
    return {"found": len(rows)}


def collect_texts(folder: str, number: int, evaluation: str, found: tuple[str, ...]) -> dict:
    """Write all forms of the evaluation documents, each once, by id. Holds them."""
    chosen = parquet.read_table(evaluation, ["id", "text", "whole"])
    forms = [chosen.select(["id", "text"]), chosen.select(["id", "whole"]).rename_columns(["id", "text"])]
    forms += [parquet.read_table(path) for path in found]
    distinct = pa.concat_tables([form.cast(_TEXTS) for form in forms]).group_by(["id", "text"]).aggregate([])
    distinct = distinct.select(["id", "text"]).sort_by([("id", "ascending"), ("text", "ascending")])
    parquet.write_table(texts_file(folder), distinct.cast(_TEXTS))
    return {"texts": len(distinct)}


def remove_shard(
    folder: str,
    shard: int,
    kept: str,
    forms: tuple[str, ...],
    texts: str,
    shingling: Shingling,
    threshold: float,
) -> dict:
    """Write which documents of a shard stay: those that are no evaluation document, and like none.

    `forms`: the parts with the texts of the shard's documents; `texts`: what they are compared with, and the ids of
    evaluation documents. Holds the ids of the shard, the sets of what is compared with, and the texts and shingles of a
    row group.
    """
    arriving = parquet.read_table(kept, SELECTION.names)
    against = parquet.read_table(texts)
    by_id = arriving["id"].filter(pc.is_in(arriving["id"], against["id"].combine_chunks()))
    known = given(against["text"], shingling, threshold)
    likest: dict[str, tuple[float, str]] = {}
    for form in forms:
        for group in select_groups(form, kept, ["text"]):
            best, similarity = most_similar(known, group["text"])
            [rows] = np.nonzero(best >= 0)
            names = against["id"].take(pa.array(best[rows])).to_pylist()
            ids = group["id"].take(pa.array(rows)).to_pylist()
            for document, jaccard, name in zip(ids, similarity[rows].tolist(), names, strict=True):
                if document not in likest or likest[document][0] < jaccard:
                    likest[document] = jaccard, name
    own = set(by_id.to_pylist())
    near = [(document, *found) for document, found in likest.items() if document not in own]
    losses = [{"id": document, "step": STEP, "rule": "evaluation_document"} for document in by_id.to_pylist()] + [
        {
            "id": document,
            "step": STEP,
            "rule": "near_duplicate",
            "value": jaccard,
            "threshold": threshold,
            "representative": name,
        }
        for document, jaccard, name in near
    ]
    return shards.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(losses))])
