"""The table of rows: each runs steps or stages on the fixture by some settings."""

from tests.golden.rows import (
    careless,
    copies,
    documents,
    evaluation,
    expressions,
    models,
    near,
    rules,
    steps,
    ties,
    tokens,
    training,
)
from tests.golden.rows.row import Row

ROWS: tuple[Row, ...] = (
    *documents.ROWS,
    *rules.ROWS,
    *steps.ROWS,
    *expressions.ROWS,
    *copies.ROWS,
    *near.ROWS,
    *models.ROWS,
    *ties.ROWS,
    *evaluation.ROWS,
    *tokens.ROWS,
    *training.ROWS,
    *careless.ROWS,
)


def covering(names: set[str]) -> tuple[Row, ...]:
    """The rows that cover one of some steps or stages."""
    return tuple(row for row in ROWS if names & {*row.covers})
