"""The step `code_syntax`: how much of a file its language's grammar cannot read."""

from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, DocumentStep, Signal
from gristmill.tasks.engine import extras
from gristmill.tasks.guard.parent import Guard, Limits
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
    """Count syntax errors with tree-sitter in files of fifteen languages. The step `code_language` must come first.

    A grammar continues after an error, and the text that it skips is the extent of the error. Dialects that a grammar
    does not know, such as macros in C, also count as errors. The signal is null for other languages, and for a file
    whose parser exceeds its limits or crashes, in a separate process. It needs `pip install 'gristmill[code]'`.
    """

    libraries: ClassVar = ("tree-sitter", *sorted({module.replace("_", "-") for module, _ in GRAMMARS.values()}))

    step: Literal["code_syntax"] = "code_syntax"
    max_errors: float | None = Field(
        None, ge=0, le=1, description="Maximum fraction of bytes that the grammar cannot parse; null: no limit."
    )
    limits: Limits = Field(Limits(page_seconds=5.0), description="Time and memory limits for one file.")

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


_SIGNAL = "code_syntax_errors"


def measure(step: CodeSyntax, documents: Batch) -> dict[str, pa.Array]:
    """The signal of a batch. Raises MissingExtraError where grammars are not installed."""
    languages = documents[CODE_LANGUAGE].to_pylist()
    parsable_texts = [
        (text, language)
        for text, language in zip(documents["text"].to_pylist(), languages, strict=True)
        if language in GRAMMARS
    ]
    error_shares: list[float | None] = []
    if parsable_texts:
        extras.require_all("step code_syntax", step.libraries)
        with Guard(f"{__name__}:{errors.__name__}", step.limits, ("x = 1", "Python")) as guard:
            error_shares = [result.get("errors") for result in guard.map(parsable_texts)]
    values = iter(error_shares)
    signal = [next(values) if language in GRAMMARS else None for language in languages]
    return {_SIGNAL: pa.array(signal, pa.float64())}


def errors(text: str, language: str) -> dict[str, Any]:
    """The fraction of a text's bytes that are in nodes of errors; a missing one counts as a byte."""
    import tree_sitter

    data = text.encode("utf-8", "replace")
    tree = tree_sitter.Parser(_grammar(language)).parse(data)
    cursor, wrong = tree.walk(), 0
    while True:
        node = cursor.node
        assert node is not None
        if node.is_error:
            wrong += node.end_byte - node.start_byte
        elif node.is_missing:
            wrong += 1
        if not node.is_error and node.has_error and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return {"errors": min(1.0, wrong / max(1, len(data)))}


@cache
def _grammar(language: str) -> Any:
    import tree_sitter

    module, function = GRAMMARS[language]
    return tree_sitter.Language(getattr(import_module(module), function)())
