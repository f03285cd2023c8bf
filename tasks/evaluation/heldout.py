"""The held-out documents of a corpus, and what is like them, taken out of what is trained on.

    part-00000.parquet, ...    the documents that are trained on, and the ledger of the others

Documents are drawn by their ids from all that the sources have. So those that a recipe drops count, too: what is like
them is in no recipe's training either, and the held-out documents of one recipe measure the model of another. All are
compared as they were extracted, and as they are trained on where a step has edited them; what is held out, as it is
evaluated, too: the beginning of a long text.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.selection import Heldout, read_rows, select_groups
from gristmill.tasks.evaluation.documents import evaluated_part
from gristmill.tasks.evaluation.similar import given, likest, read_given, write_given

STEP = "heldout"
RULE = "held_out"
_TEXTS = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("text")])
_NAMES = pa.schema(
    [
        DOCUMENTS.field("id"),
        pa.field("wordless", pa.large_string(), metadata={"what": "the text, where it has no shingle"}),
    ]
)


def given_folder(folder: str) -> str:
    return files.join(folder, "given")


def _names_file(folder: str) -> str:
    return files.join(given_folder(folder), "names.parquet")


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


def collect_texts(folder: str, number: int, shingling: Shingling) -> dict:
    """Write what documents are compared with: the texts of all shards, as they were drawn. Holds them, and 60 bytes for
    each of their shingles."""
    texts = pa.concat_tables([_TEXTS.empty_table(), *parquet.read_tables(parquet.paths_in(drawn_folder(folder)))])
    shingles = given(texts["text"], shingling)
    write_given(given_folder(folder), shingles)
    wordless = pc.if_else(pa.array(shingles.sizes == 0), texts["text"], None)
    parquet.write_table(_names_file(folder), pa.table([texts["id"], wordless], schema=_NAMES))
    return {"texts": len(texts)}


def split_shard(
    folder: str, shard: int, kept: str, forms: tuple[str, ...], shingling: Shingling, threshold: float
) -> dict:
    """Write which documents of a shard are trained on: those that are not held out, nor like one that is.

    `forms`: the parts with the texts of the shard's documents, which the part `kept` names. Holds what `read_given`
    holds, the ids of the held-out documents, and the texts and shingles of a row group.
    """
    arriving = parquet.read_table(kept, SELECTION.names)
    names, wordless = (column.combine_chunks() for column in parquet.read_table(_names_file(folder)).columns)
    shingles = read_given(given_folder(folder), shingling)
    never = np.full(len(names), np.iinfo(np.int64).max)  # what contains a text is not like it
    own = set(arriving["id"].filter(pc.is_in(arriving["id"], names)).to_pylist())
    worst: dict[str, tuple[float, int]] = {}
    for form in forms:
        for group in select_groups(form, kept, ["text"]):
            likest_texts = likest(shingles, group["text"], threshold, never)
            same = pc.index_in(group["text"], wordless).fill_null(-1).to_numpy()
            indices = np.where(same >= 0, same, likest_texts.given)
            value = np.where(same >= 0, 1.0, likest_texts.value)
            [rows] = np.nonzero(indices >= 0)
            ids = group["id"].take(pa.array(rows)).to_pylist()
            for document, similarity, which in zip(ids, value[rows].tolist(), indices[rows].tolist(), strict=True):
                if document not in worst or worst[document][0] < similarity:
                    worst[document] = similarity, which
    lost = [{"id": document, "step": STEP, "rule": RULE} for document in arriving["id"].to_pylist() if document in own]
    lost += [
        {
            "id": document,
            "step": STEP,
            "rule": "near_duplicate",
            "value": similarity,
            "threshold": threshold,
            "representative": names[which].as_py(),
        }
        for document, (similarity, which) in worst.items()
        if document not in own
    ]
    return ledger.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(lost))]) | {"heldout": len(own)}
