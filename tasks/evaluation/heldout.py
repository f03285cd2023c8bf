"""The held-out documents of a corpus, and what is like them, taken out of what is trained on.

    part-00000.parquet, ...    the documents that are trained on, and the ledger of the others

Documents are drawn by their ids from all that the sources have. So those that a recipe drops count, too: what is like
them is in no recipe's training either, and the held-out documents of one recipe measure the model of another. All are
compared as they were extracted, and as they are trained on where a step has edited them; what is held out, as it is
evaluated, too: the beginning of a long text.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, ledger, parquet, shards
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.evaluation.documents import evaluated_part
from gristmill.tasks.evaluation.similar import given, likest

STEP = "heldout"
RULE = "held_out"
BLOCK = 32 << 20  # bytes of the texts that documents are compared with at a time: some 300 MB of their shingles
_TEXTS = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("text")])


def texts_folder(folder: str) -> str:
    return files.join(folder, "texts")


def texts_file(folder: str, block: int) -> str:
    return files.join(texts_folder(folder), f"{block:05d}.parquet")


def drawn_folder(folder: str) -> str:
    return files.join(folder, "drawn")


def drawn_file(folder: str, shard: int) -> str:
    return files.join(drawn_folder(folder), f"{shard:05d}.parquet")


def draw_shard(folder: str, shard: int, forms: tuple[str, ...], heldout: Heldout, characters: int) -> dict:
    """Write the ids and texts of a shard's held-out documents, and the part of each that is evaluated, each text once.
    Holds them and a row group.

    `forms`: the parts with the texts of the shard's documents; `characters`: code points of a text that are evaluated.
    """
    found = [_TEXTS.empty_table()]
    for form in forms:
        found += [heldout_of(group, heldout) for group in parquet.groups(form, _TEXTS.names)]
    found += [table.set_column(1, _TEXTS.field("text"), evaluated_part(table["text"], characters)) for table in found]
    distinct = pa.concat_tables(found).group_by(_TEXTS.names).aggregate([]).select(_TEXTS.names)
    parquet.write_table(drawn_file(folder, shard), distinct.sort_by([(name, "ascending") for name in _TEXTS.names]))
    return {"texts": len(distinct)}


def heldout_of(documents: pa.Table, heldout: Heldout) -> pa.Table:
    """The held-out rows of a table with the columns `id` and `text`."""
    return documents.filter(pa.array(heldout.mask(documents))).cast(_TEXTS)


def collect_texts(folder: str, number: int, drawn: tuple[str, ...]) -> dict:
    """Write the texts of all shards in files of some BLOCK bytes. Holds one of them, and the texts of a shard."""
    blocks = 0
    for blocks, table in enumerate(_blocks(drawn), 1):
        parquet.write_table(texts_file(folder, blocks - 1), table)
    return {"blocks": blocks}


def split_shard(
    folder: str,
    shard: int,
    kept: str,
    forms: tuple[str, ...],
    texts: tuple[str, ...],
    shingling: Shingling,
    threshold: float,
) -> dict:
    """Write which documents of a shard are trained on: those that are not held out, nor like one that is.

    `forms`: the parts with the texts of the shard's documents, which the part `kept` names; `texts`: files with the ids
    and texts of held-out documents. Holds, file by file of these, the shingles of its texts, and the texts and shingles
    of a row group.
    """
    arriving = parquet.read_table(kept, SELECTION.names)
    own: set[str] = set()
    worst: dict[str, tuple[float, str]] = {}
    for path in texts:
        against = parquet.read_table(path)
        own |= set(arriving["id"].filter(pc.is_in(arriving["id"], against["id"].combine_chunks())).to_pylist())
        for document, similarity, name in _like(against, kept, forms, shingling, threshold):
            if document not in worst or worst[document][0] < similarity:
                worst[document] = similarity, name
    lost = [{"id": document, "step": STEP, "rule": RULE} for document in arriving["id"].to_pylist() if document in own]
    lost += [
        {
            "id": document,
            "step": STEP,
            "rule": "near_duplicate",
            "value": similarity,
            "threshold": threshold,
            "representative": name,
        }
        for document, (similarity, name) in worst.items()
        if document not in own
    ]
    return shards.write_selection(folder, shard, arriving, [(STEP, ledger.from_rows(lost))]) | {"heldout": len(own)}


def _like(
    against: pa.Table, kept: str, forms: tuple[str, ...], shingling: Shingling, threshold: float
) -> Iterator[tuple[str, float, str]]:
    """Documents that are like one of these texts, or the same, each with its Jaccard similarity and whose text it is;
    one may come more than once."""
    known, names = given(against["text"], shingling), against["id"].to_pylist()
    never = np.full(len(names), np.iinfo(np.int64).max)  # what contains a text is not like it
    same_texts = against["text"].combine_chunks()
    for form in forms:
        for group in select_groups(form, kept, ["text"]):
            found = likest(known, group["text"], threshold, never)
            # a text without a word has no shingles
            same = pc.index_in(group["text"], same_texts).fill_null(-1).to_numpy()
            at = np.where(same >= 0, same, found.given)
            value = np.where(same >= 0, 1.0, found.value)
            [rows] = np.nonzero(at >= 0)
            ids = group["id"].take(pa.array(rows)).to_pylist()
            for document, similarity, which in zip(ids, value[rows].tolist(), at[rows].tolist(), strict=True):
                yield document, similarity, names[which]


def _blocks(paths: tuple[str, ...]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for table in map(parquet.read_table, paths):
        if held and sum(each.nbytes for each in held) + table.nbytes > BLOCK:
            yield pa.concat_tables(held)
            held = []
        held.append(table)
    if held:
        yield pa.concat_tables(held)
