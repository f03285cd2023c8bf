"""The step `code_syntax`: how much of a file its language's grammar cannot read."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.step import Bound, DocumentStep, Signal
from gristmill.tasks.guard.limits import Limits
from gristmill.tasks.source_code.language import CODE_LANGUAGE

# By language the module and the function of its grammar.
GRAMMARS = {
    "C": ("tree_sitter_c", "language"),
    "C#": ("tree_sitter_c_sharp", "language"),
    "C++": ("tree_sitter_cpp", "language"),
    "CSS": ("tree_sitter_css", "language"),
    "Go": ("tree_sitter_go", "language"),
    "HTML": ("tree_sitter_html", "language"),
    "Java": ("tree_sitter_java", "language"),
    "JavaScript": ("tree_sitter_javascript", "language"),
    "PHP": ("tree_sitter_php", "language_php"),
    "Python": ("tree_sitter_python", "language"),
    "Ruby": ("tree_sitter_ruby", "language"),
    "Rust": ("tree_sitter_rust", "language"),
    "Shell": ("tree_sitter_bash", "language"),
    "TSX": ("tree_sitter_typescript", "language_tsx"),
    "TypeScript": ("tree_sitter_typescript", "language_typescript"),
}


class CodeSyntax(DocumentStep):
    """Errors that tree-sitter finds in files of fifteen languages; the step `code_language` stands before it.

    A grammar reads on behind an error, and what it passes over is an error's extent. Dialects that a grammar does not
    know, as macros in C, are such errors, too. The signal is null for other languages, and for a file whose parser ends
    over its limits or crashes, which it does in a process of its own. It needs `pip install 'gristmill[code]'`.
    """

    work: ClassVar = "gristmill.tasks.source_code.syntax_work"
    libraries: ClassVar = ("tree-sitter", *sorted({module.replace("_", "-") for module, _ in GRAMMARS.values()}))

    step: Literal["code_syntax"] = "code_syntax"
    max_errors: float | None = Field(
        None, ge=0, le=1, description="most bytes that the grammar cannot read, as a fraction; null: any"
    )
    limits: Limits = Field(Limits(page_seconds=5.0), description="time and memory that one file may take")

    signal_fields: ClassVar = ("limits",)
    signals: ClassVar = (
        Signal(
            "code_syntax_errors",
            "float64",
            "fraction of bytes",
            "tree-sitter: nodes of errors, and of what is missing",
            description="Bytes in what the language's grammar cannot read; null if there is no grammar.",
        ),
    )

    @property
    def reads(self) -> tuple[str, ...]:
        return (CODE_LANGUAGE,)

    def decisions(self) -> list[Bound]:
        return [Bound("errors", "code_syntax_errors", high=self.max_errors, keeps_null=True)]
