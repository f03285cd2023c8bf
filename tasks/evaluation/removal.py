"""Evaluation documents, what is like them and what contains them, taken out of a corpus.

    texts.parquet             TEXTS: what documents are compared with
    part-00000.parquet, ...   the documents that stay, and the ledger of the others

An evaluation document is known by the record that it was read from, whatever the arm calls its source. Any other
document is compared as it was extracted, and as it is trained on where a step has edited it. It is compared with the
evaluation documents in three forms: as they are evaluated, before they were cut, and as this corpus's own extraction
has them. Evaluation documents without a record are of no source: they are known by their texts alone.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.selection import read_rows, select_groups
from gristmill.tasks.evaluation.documents import PLACE, records
from gristmill.tasks.evaluation.similar import given, likest, read_given, write_given

STEP = "evaluation_removal"
_FOUND = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("text")])
TEXTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"what": "of the document, or `<set>:<id>`"}),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)


def texts_file(folder: str) -> str:
    return files.join(folder, "texts.parquet")


def found_folder(folder: str) -> str:
    return files.join(folder, "found")


def given_folder(folder: str) -> str:
    return files.join(folder, "given")


def find_shard(folder: str, shard: int, extracted: str, evaluation: str) -> dict:
    """Write the ids and texts that evaluation documents have in a shard of extracted documents; no file if there is
    none. Holds the places of all its documents."""
    evaluation_records = parquet.read_table(evaluation, ["record"])["record"].combine_chunks()
    rows = np.flatnonzero(pc.is_in(records(parquet.read_table(extracted, PLACE)), evaluation_records))
    if len(rows):
        path = files.join(found_folder(folder), f"{shard:05d}.parquet")
        parquet.write_table(path, read_rows(extracted, rows, _FOUND.names).cast(_FOUND))
    return {"found": len(rows)}


def collect_texts(folder: str, number: int, evaluation: str) -> dict:
    """Write what documents are compared with, each text once, by id: all forms of the evaluation documents, those that
    were found in the shards among them. Holds them."""
    selection = parquet.read_table(evaluation, ["id", "set", "text", "whole", "record"])
    # an id of the sources' own is made of names, which files apart may have as well
    alone = pc.binary_join_element_wise(selection["set"], selection["id"], ":")
    selection = selection.set_column(0, "id", pc.if_else(pc.equal(selection["record"], ""), alone, selection["id"]))
    forms = [selection.select(["id", "text"]), selection.select(["id", "whole"]).rename_columns(["id", "text"])]
    forms += parquet.read_tables(parquet.paths_in(found_folder(folder)))
    texts = pa.concat_tables([form.cast(_FOUND) for form in forms])
    distinct = texts.group_by(["id", "text"]).aggregate([]).select(["id", "text"])
    table = distinct.sort_by([("id", "ascending"), ("text", "ascending")]).cast(TEXTS)
    parquet.write_table(texts_file(folder), table)
    return {"texts": len(table)}


def index_texts(folder: str, number: int, shingling: Shingling) -> dict:
    """Write the shingles of what documents are compared with. Holds them."""
    write_given(given_folder(folder), given(parquet.read_table(texts_file(folder), ["text"])["text"], shingling))
    return {}


def remove_shard(
    folder: str,
    shard: int,
    kept: str,
    forms: tuple[str, ...],
    shingling: Shingling,
    threshold: float,
    least: int,
) -> dict:
    """Write which documents of a shard stay: those that are no evaluation document, like none and contain none.

    `forms`: the parts with the texts of the shard's documents; `least`: the fewest shingles with which an evaluation
    document counts as contained. A document that is like one text and contains another
    goes by the rule `near_duplicate`, of the highest value. Holds the ids of the shard and of what it is compared with,
    what `read_given` holds, and the texts and shingles of a row group.
    """
    arriving = parquet.read_table(kept, SELECTION.names)
    own = parquet.read_table(texts_file(folder), ["id"])["id"].combine_chunks()
    by_id = arriving["id"].filter(pc.is_in(arriving["id"], own))
    shingles, names = read_given(given_folder(folder), shingling), own.to_pylist()
    enough = np.full(len(names), least)
    worst: dict[str, tuple[bool, float, int]] = {}
    for form in forms:
        for group in select_groups(form, kept, ["text"]):
            likest_texts = likest(shingles, group["text"], threshold, enough)
            [rows] = np.nonzero(likest_texts.given >= 0)
            ids = group["id"].take(pa.array(rows)).to_pylist()
            columns = (likest_texts.like[rows], likest_texts.value[rows], likest_texts.given[rows])
            for document, like, value, index in zip(ids, *(column.tolist() for column in columns), strict=True):
                if document not in worst or worst[document][:2] < (like, value):
                    worst[document] = like, value, index
    known_ids = set(by_id.to_pylist())
    losses = [{"id": document, "step": STEP, "rule": "evaluation_document"} for document in by_id.to_pylist()] + [
        {
            "id": document,
            "step": STEP,
            "rule": "near_duplicate" if like else "contains_evaluation_document",
            "value": value,
            "threshold": threshold,
            "representative": names[index],
        }
        for document, (like, value, index) in worst.items()
        if document not in known_ids
    ]
    return ledger.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(losses))])
