"""The documents of a shard for which an expression is true."""

import pyarrow as pa

from gristmill.storage import parquet
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.where.evaluate import truth
from gristmill.tasks.documents.where.syntax import columns, parsed, stored


def matching(parts: tuple[str, ...], kept: str, expression: str) -> pa.Table:
    """`id` and the stored columns that an expression names, of the documents of the selection `kept` for which it is
    true, in their order.

    Holds these columns of one shard. Raises ExpressionError for an expression that has no meaning on them, LookupError
    for a column that is in no part, or a document that is not in one.
    """
    there = list(dict.fromkeys(name for part in parts for name in parquet.columns(part)))
    tree = parsed(expression)
    table = gather(parts, kept, list(dict.fromkeys(stored(name, there) for name in columns(tree))))
    return table.filter(truth(tree, table))
