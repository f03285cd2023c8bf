"""Keep or drop documents by an expression over their columns."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from gristmill.tasks.documents.expressions import parsed
from gristmill.tasks.documents.step import Clause, Decision, DocumentStep

EXPRESSIONS = ("keep", "drop")  # settings with an expression; a step has one of them
_NAME = r"^where(_[a-z0-9]+)*$"


class Where(DocumentStep):
    """Keep documents for which an expression is true, or drop them.

    The expression is SQL over columns of documents, signals and scores of the steps before it, and columns of the
    sources' own files: `topic = 'science' and quality_bucket >= 15 and characters < 100000`. The ledger has the part
    of `keep` between two `and`, or of `drop` between two `or`, that decided, and the values of its columns. A recipe
    may have the step several times, each with its own name: `step: where`, `step: where_short`.
    """

    # 2: expressions are SQL, and so are the rules in the ledger
    work_version: ClassVar[int] = 2
    modules: ClassVar = ("gristmill.tasks.documents.expressions",)

    step: str = Field("where", pattern=_NAME, max_length=100)
    keep: str | None = Field(
        None, description="SQL expression. Documents are kept if it is true, such as `language in ('en', 'de')`."
    )
    drop: str | None = Field(
        None,
        description="SQL expression. Documents are dropped if it is true, such as `tld = 'xyz' or toxicity > 0.5`.",
    )
    nulls: Literal["keep", "drop", "error"] | None = Field(
        None,
        description="What to do if the expression is neither true nor false because a column has no value. "
        "null: as in SQL, `keep` does not keep the document and `drop` does not drop it.",
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
        return [] if self.expression is None else parsed(self.expression).columns

    def decisions(self) -> Sequence[Decision]:
        if self.expression is None:
            return []
        keeps, whole = self.keep is not None, parsed(self.expression)
        parts = whole.clauses("and" if keeps else "or")
        rules = [Clause(part.sql, part.sql, "false" if keeps else "true") for part in parts]
        if (self.nulls or ("drop" if keeps else "keep")) != "keep":
            rules.append(Clause("null", whole.sql, "null", is_error=self.nulls == "error"))
        return rules
