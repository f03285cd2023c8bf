"""Evaluation documents, what is like them and what contains them, taken out of a corpus.

    texts.parquet             TEXTS: what documents are compared with
    part-00000.parquet, ...   the documents that stay, and the ledger of the others

An evaluation document is known by the record that it was read from, whatever the arm calls its source. Any other
document is compared as it was extracted, and as it is trained on where a step has edited it. It is compared with the
evaluation documents in three forms: as they are evaluated, before they were cut, and as this corpus's own extraction
has them. Evaluation documents without a record have no source: they are identified only by their texts.

A rewrite of an evaluation document has what that says, and so has the document that an evaluated rewrite is from. Both
are known by the record that was rewritten.
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
from gristmill.tasks.language_model.rewrite import DERIVED, source_records

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


def rewrites_folder(folder: str) -> str:
    return files.join(folder, "rewrites")


def rewritten_folder(folder: str) -> str:
    return files.join(folder, "rewritten")


def find_shard(folder: str, shard: int, extracted: str, evaluation: str) -> dict:
    """Write the ids and texts that evaluation documents have in a shard of extracted documents, the ids of rewrites of
    evaluation documents, and the records from which evaluated rewrites are; no file if there is none. Holds the places
    of all its documents."""
    evaluation_records = parquet.read_table(evaluation, ["record"])["record"].combine_chunks()
    rows = np.flatnonzero(pc.is_in(records(parquet.read_table(extracted, PLACE)), evaluation_records))
    if len(rows):
        path = files.join(found_folder(folder), f"{shard:05d}.parquet")
        parquet.write_table(path, read_rows(extracted, rows, _FOUND.names).cast(_FOUND))
    if set(DERIVED) <= set(parquet.columns(extracted)):
        table = parquet.read_table(extracted, ["id", *DERIVED])
        origins = source_records(table)
        _write(rewrites_folder(folder), shard, "id", table["id"].filter(pc.is_in(origins, evaluation_records)))
        _write(rewritten_folder(folder), shard, "record", origins.take(pa.array(rows)).drop_null())
    return {"found": len(rows)}


def _write(folder: str, shard: int, name: str, values: pa.ChunkedArray) -> None:
    if len(values):
        parquet.write_table(files.join(folder, f"{shard:05d}.parquet"), pa.table({name: values}))


def _related(folder: str, shard: int, extracted: str) -> dict[str, str]:
    """By id the rule for each document of a shard that is a rewrite of an evaluation document, or what an evaluated
    rewrite is from."""
    path = files.join(rewrites_folder(folder), f"{shard:05d}.parquet")
    ids = parquet.read_table(path)["id"].to_pylist() if files.exists(path) else []
    found = dict.fromkeys(ids, "rewrite_of_evaluation_document")
    if tables := parquet.read_tables(parquet.paths_in(rewritten_folder(folder))):
        origins = pa.concat_tables(tables)["record"].combine_chunks()
        table = parquet.read_table(extracted, ["id", *PLACE])
        sources = table["id"].filter(pc.is_in(records(table), origins)).to_pylist()
        found |= dict.fromkeys(sources, "source_of_evaluation_document")
    return found


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
    """Write which documents of a shard stay: those that are not evaluation documents, are not near-duplicates of one
    and do not contain one.

    `forms`: the parts with the texts of the shard's documents, the extracted ones first; `least`: the fewest shingles
    with which an evaluation document counts as contained. A document that is like one text and contains another goes by
    the rule `near_duplicate`, of the highest value. Holds the ids of the shard and of what it is compared with,
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
    there = set(arriving["id"].to_pylist())
    related = {
        each: rule
        for each, rule in _related(folder, shard, forms[0]).items()
        if each in there and each not in known_ids and each not in worst
    }
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
    losses += [{"id": document, "step": STEP, "rule": rule} for document, rule in related.items()]
    return ledger.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(losses))])
