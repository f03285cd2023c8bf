"""Documents written again behind a corpus step that cut into their texts, with the ledgers of cuts and drops."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import DOCUMENTS


def write_cut(
    folder: str,
    shard: int,
    step: str,
    arriving: pa.Table,
    touched: np.ndarray,
    texts: pa.Array | pa.ChunkedArray,
    edits: pa.Table,
    drops: pa.Table,
) -> dict:
    """Write a shard's documents, its rows of EDITS and of the LEDGER, and return its record.

    arriving: the documents (DOCUMENTS) as they reached the step; touched: the rows of those that were cut, ascending;
    texts: what is left of these. Holds the texts twice.
    """
    remaining = _replaced(arriving, touched, texts)
    staying = remaining.filter(pc.invert(pc.is_in(remaining["id"], drops["id"].combine_chunks())))
    parquet.write_table(layout.part(folder, shard), staying)
    parquet.write_table(layout.edits_part(folder, shard), edits)
    ledger.write_ledger(folder, shard, drops)
    before, after = (pc.sum(table["characters"]).as_py() or 0 for table in (arriving, staying))
    cuts = {rule: n for (rule,), n in sorted(ledger.tally(edits, "rule").items())}
    return {
        "rows_in": len(arriving),
        "rows_out": len(staying),
        "steps": [ledger.count(step, len(arriving), before, drops, before - after) | {"edits": cuts}],
    }


def _replaced(documents: pa.Table, touched: np.ndarray, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The documents with other texts in the rows `touched`."""
    indices = np.arange(len(documents))
    indices[touched] = len(documents) + np.arange(len(touched))
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    whole = pa.chunked_array([*documents["text"].chunks, *chunks], pa.large_string()).take(pa.array(indices))
    columns = {"characters": pc.utf8_length(whole).cast(pa.int64()), "text": whole}
    for name, column in columns.items():
        documents = documents.set_column(documents.schema.get_field_index(name), DOCUMENTS.field(name), column)
    return documents
