"""Documents chosen by an expression over what is known of them."""

import ast
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gristmill.tasks.documents.step import Clause, Decision, DocumentStep
from gristmill.tasks.documents.where.syntax import clauses, columns, parsed, spelled

EXPRESSIONS = ("keep", "drop")  # the settings that are one, of which a step has one alone
_NAME = r"^where(_[a-z0-9]+)*$"


def is_where(name: Any) -> bool:
    """Whether a recipe calls a step `where` so: `where`, or that and a name of its own, as `where_short`."""
    return isinstance(name, str) and re.fullmatch(_NAME, name) is not None


class Where(DocumentStep):
    """Keep documents for which an expression is true, or drop those for which one is.

    It measures nothing. It reads columns of documents, signals and scores of the steps before it, and columns of the
    sources' own, as `topic == 'science' and quality_bucket >= 15 and characters < 100000`. The ledger has the part
    between two `and` of `keep`, or two `or` of `drop`, that decided, and the values of its columns. A recipe may have
    it several times, each with a name of its own: `step: where`, `step: where_short`.
    """

    modules: ClassVar = ("gristmill.tasks.documents.where.evaluate", "gristmill.tasks.documents.where.syntax")

    step: str = Field("where", pattern=_NAME, max_length=100)
    keep: str | None = Field(None, description="documents stay for which this is true, as `language in ('en', 'de')`")
    drop: str | None = Field(
        None, description="documents go for which this is true, as `tld == 'xyz' or toxicity > 0.5`"
    )
    nulls: Literal["keep", "drop", "error"] | None = Field(
        None,
        description="documents for which it is neither true nor false, as a column has no value; null: as SQL has it, "
        "`keep` does not keep them, and `drop` does not drop them",
    )

    @model_validator(mode="after")
    def _readable(self) -> Self:
        for name in EXPRESSIONS:
            if (expression := getattr(self, name)) is not None:
                try:
                    parsed(expression)
                except ValueError as error:
                    raise ValueError(f"`{name}`: {error}") from error
        if self.keep is not None and self.drop is not None:
            raise ValueError("has both `keep` and `drop`: write `keep: (...) and not (...)`")
        return self

    @property
    def expression(self) -> str | None:
        return self.drop if self.keep is None else self.keep

    @property
    def columns(self) -> list[str]:
        """The columns that the expression names."""
        return [] if self.expression is None else columns(parsed(self.expression))

    def decisions(self) -> Sequence[Decision]:
        if self.expression is None:
            return []
        keeps, whole = self.keep is not None, parsed(self.expression)
        parts = clauses(whole, ast.And if keeps else ast.Or)
        rules = [Clause(spelled(part), spelled(part), "false" if keeps else "true") for part in parts]
        if (self.nulls or ("drop" if keeps else "keep")) != "keep":
            rules.append(Clause("null", spelled(whole), "null", is_error=self.nulls == "error"))
        return rules
