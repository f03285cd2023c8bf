"""The step `where` measures nothing: it decides by what others have measured."""

from collections.abc import Mapping

import pyarrow as pa

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.documents.where.where import Where


def measure(step: Where, batch: Batch) -> Mapping[str, pa.Array]:
    """No column."""
    return {}
