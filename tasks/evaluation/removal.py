"""Remove the documents that models are evaluated on, and their near-duplicates, from the documents that are trained on.

`heldout` holds out documents of the corpus itself. `evaluation_removal` removes the documents of evaluation sets, also
from other corpora. A stage's files:

    texts.parquet             TEXTS: the texts that documents are compared with; only of `evaluation_removal`
    part-00000.parquet, ...   the documents that stay, and the ledger of the others

All documents are compared as they were extracted, and as they are trained on if a step has edited them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.selection import Heldout, read_rows
from gristmill.tasks.evaluation.documents import PLACE, evaluated_part, records
from gristmill.tasks.evaluation.similar import index_folder, index_of, likest_by_id, read_index, write_index
from gristmill.tasks.language_model.rewrite import DERIVED, source_records

HELDOUT_STEP, STEP = "heldout", "evaluation_removal"
_TEXTS = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("text")])
_NAMES = pa.schema(
    [
        DOCUMENTS.field("id"),
        pa.field("wordless", pa.large_string(), metadata={"what": "the text, where it has no shingle"}),
    ]
)
TEXTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"what": "of the document, or `<set>:<id>`"}),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)


# Held-out documents.
#
# They are sampled by their ids from all documents of the sources, including those that a recipe drops. So no recipe
# trains on near-duplicates of them, and the held-out documents of one recipe can measure the model of another. They are
# also compared as they are evaluated, which is the beginning of a long text.


def _names_file(folder: str) -> str:
    return files.join(index_folder(folder), "names.parquet")


def drawn_folder(folder: str) -> str:
    return files.join(folder, "drawn")


def draw_shard(folder: str, shard: int, forms: tuple[str, ...], heldout: Heldout, characters: int) -> dict:
    """Write the ids and texts of a shard's held-out documents, and the part of each that is evaluated, each text once;
    no file if there is none. Holds them, the ids of the shard and the texts of a row group.

    `forms`: the parts with the texts of the shard's documents; `characters`: code points of a text that are evaluated.
    """
    tables = [_TEXTS.empty_table()]
    for form in forms:
        rows = np.flatnonzero(heldout.mask(parquet.read_table(form, ["id", "source"])))
        tables.append(read_rows(form, rows, _TEXTS.names).cast(_TEXTS))
    tables += [table.set_column(1, _TEXTS.field("text"), evaluated_part(table["text"], characters)) for table in tables]
    distinct = pa.concat_tables(tables).group_by(_TEXTS.names).aggregate([]).select(_TEXTS.names)
    if len(distinct):
        path = files.join(drawn_folder(folder), f"{shard:05d}.parquet")
        parquet.write_table(path, distinct.sort_by([(name, "ascending") for name in _TEXTS.names]))
    return {"texts": len(distinct)}


def collect_heldout(folder: str, number: int, shingling: Shingling) -> dict:
    """Write the index that documents are compared with, of the held-out texts of all shards. Holds these, and 60 bytes
    for each of their shingles."""
    texts = pa.concat_tables([_TEXTS.empty_table(), *parquet.read_tables(parquet.paths_in(drawn_folder(folder)))])
    index = index_of(texts["text"], shingling)
    write_index(index_folder(folder), index)
    wordless = pc.if_else(pa.array(index.sizes == 0), texts["text"], None)
    parquet.write_table(_names_file(folder), pa.table([texts["id"], wordless], schema=_NAMES))
    return {"texts": len(texts)}


def split_shard(
    folder: str, shard: int, kept: str, forms: tuple[str, ...], shingling: Shingling, threshold: float
) -> dict:
    """Write which documents of a shard are trained on: those that are neither held out nor near-duplicates of
    a held-out document.

    `forms`: the parts with the texts of the shard's documents, which the part `kept` names. Holds what `read_index`
    holds, the ids of the held-out documents, and the texts and shingles of a row group.
    """
    arriving = parquet.read_table(kept, SELECTION.names)
    names, wordless = (column.combine_chunks() for column in parquet.read_table(_names_file(folder)).columns)
    index = read_index(index_folder(folder), shingling)
    never = np.full(len(names), np.iinfo(np.int64).max)  # a document that contains a text is not like it
    own = set(arriving["id"].filter(pc.is_in(arriving["id"], names)).to_pylist())
    worst = likest_by_id(index, forms, kept, threshold, never, wordless)
    lost = [
        {"id": document, "step": HELDOUT_STEP, "rule": "held_out"}
        for document in arriving["id"].to_pylist()
        if document in own
    ]
    lost += [
        {
            "id": document,
            "step": HELDOUT_STEP,
            "rule": "near_duplicate",
            "value": similarity,
            "threshold": threshold,
            "representative": names[number].as_py(),
        }
        for document, (_, similarity, number) in worst.items()
        if document not in own
    ]
    counts = ledger.write_selection(folder, shard, arriving, [(HELDOUT_STEP, ledger.from_rows(lost))])
    return counts | {"heldout": len(own)}


# Evaluation documents.
#
# An evaluation document is identified by the record that it was read from, whatever the arm calls its source. Any other
# document is compared with three forms of the evaluation documents: as they are evaluated, before they were cut, and as
# this corpus has extracted them. Evaluation documents without a record have no source: they are identified only by
# their texts.
#
# A rewrite of an evaluation document has its contents, and so has the document that an evaluated rewrite is from. Both
# are identified by the record that was rewritten.


def texts_file(folder: str) -> str:
    return files.join(folder, "texts.parquet")


def found_folder(folder: str) -> str:
    return files.join(folder, "found")


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
        parquet.write_table(path, read_rows(extracted, rows, _TEXTS.names).cast(_TEXTS))
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
    """The rule, by id, for each document of a shard that is a rewrite of an evaluation document, or what an evaluated
    rewrite is from."""
    path = files.join(rewrites_folder(folder), f"{shard:05d}.parquet")
    ids = parquet.read_table(path)["id"].to_pylist() if files.exists(path) else []
    rules = dict.fromkeys(ids, "rewrite_of_evaluation_document")
    if tables := parquet.read_tables(parquet.paths_in(rewritten_folder(folder))):
        origins = pa.concat_tables(tables)["record"].combine_chunks()
        table = parquet.read_table(extracted, ["id", *PLACE])
        sources = table["id"].filter(pc.is_in(records(table), origins)).to_pylist()
        rules |= dict.fromkeys(sources, "source_of_evaluation_document")
    return rules


def collect_texts(folder: str, number: int, evaluation: str) -> dict:
    """Write what documents are compared with, each text once, by id: all forms of the evaluation documents, those that
    were found in the shards among them. Holds them."""
    selection = parquet.read_table(evaluation, ["id", "set", "text", "whole", "record"])
    # an id of the sources' own is made of names, which files apart may have as well
    alone = pc.binary_join_element_wise(selection["set"], selection["id"], ":")
    selection = selection.set_column(0, "id", pc.if_else(pc.equal(selection["record"], ""), alone, selection["id"]))
    forms = [selection.select(["id", "text"]), selection.select(["id", "whole"]).rename_columns(["id", "text"])]
    forms += parquet.read_tables(parquet.paths_in(found_folder(folder)))
    texts = pa.concat_tables([form.cast(_TEXTS) for form in forms])
    distinct = texts.group_by(["id", "text"]).aggregate([]).select(["id", "text"])
    table = distinct.sort_by([("id", "ascending"), ("text", "ascending")]).cast(TEXTS)
    parquet.write_table(texts_file(folder), table)
    return {"texts": len(table)}


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
    what `read_index` holds, and the texts and shingles of a row group.
    """
    arriving = parquet.read_table(kept, SELECTION.names)
    own = parquet.read_table(texts_file(folder), ["id"])["id"].combine_chunks()
    by_id = arriving["id"].filter(pc.is_in(arriving["id"], own))
    names = own.to_pylist()
    index = read_index(index_folder(folder), shingling)
    worst = likest_by_id(index, forms, kept, threshold, np.full(len(names), least))
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
            "representative": names[number],
        }
        for document, (like, value, number) in worst.items()
        if document not in known_ids
    ]
    losses += [{"id": document, "step": STEP, "rule": rule} for document, rule in related.items()]
    return ledger.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(losses))])
