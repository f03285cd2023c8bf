"""Rows as a data frame of pandas, for a notebook."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """A data frame with a row for each mapping. Raises ImportError, which names the remedy, where pandas is missing."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "data frames of a report need pandas, which is not installed: `pip install pandas`"
        ) from error
    return pandas.DataFrame.from_records(list(rows))
