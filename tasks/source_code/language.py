"""The step `code_language`: which programming language a file is in."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.step import Clause, Decision, DocumentStep, Signal

CODE_LANGUAGE = "code_language"
NO_CODE = "no_code"
PATH = "path"
_SOURCE = "Linguist's names of languages and heuristics; content: magika (Fratantonio et al. 2024, arXiv 2409.13768)"


Name = Annotated[str, Field(pattern=r"^[^'\\]+$")]


class CodeLanguage(DocumentStep):
    """The programming language of a document of a source of code, or of any table with a column `path`.

    Its name says it: the whole of it (`Makefile`) or its extension; else the interpreter that its first line names.
    Where several languages share an extension (`.h`, `.m`) lines that one of them alone has say it. With `content`
    magika looks at the text where these do not, or where nothing else says anything; such a file is else of the
    language that is usual for the extension, or `unknown`. A document
    without a path is `no_code`; the steps on code keep it.
    """

    work: ClassVar = "gristmill.tasks.source_code.language_work"

    step: Literal["code_language"] = "code_language"
    content: bool = Field(
        False, description="magika looks at texts whose names leave it open, 5 ms each: `pip install gristmill[code]`"
    )
    keep: tuple[Name, ...] | None = Field(None, description="languages, as [Python, C++]; null: all")
    drop: tuple[Name, ...] = Field((), description="languages that are dropped")

    signal_fields: ClassVar = ("content",)
    signals: ClassVar = (
        Signal(
            CODE_LANGUAGE,
            "string",
            "language",
            _SOURCE,
            description="Programming language, `unknown`, or `no_code` of a document without a path.",
        ),
        Signal(
            "code_language_by",
            "string",
            "label",
            _SOURCE,
            description="What says so: `name`, `shebang`, `pattern`, `content`, or `none`.",
        ),
    )

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return ("magika",) if self.content else ()

    @property
    def considers(self) -> tuple[str, ...]:
        return (PATH,)

    def decisions(self) -> list[Decision]:
        found: list[Decision] = []
        if self.keep is not None:
            found.append(Clause("language", f"{CODE_LANGUAGE} in ({_listed((*self.keep, NO_CODE))})", "false"))
        if self.drop:
            found.append(Clause("language", f"{CODE_LANGUAGE} in ({_listed(self.drop)})", "true"))
        return found


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)
