"""The step `code_syntax` at work: parsers in a guarded process."""

from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.guard.parent import Guard
from gristmill.tasks.source_code.language import CODE_LANGUAGE
from gristmill.tasks.source_code.syntax import GRAMMARS, CodeSyntax

_SIGNAL = "code_syntax_errors"


def measure(step: CodeSyntax, documents: Batch) -> dict[str, pa.Array]:
    """The signal of a batch. Raises ModuleNotFoundError, which names the remedy, where no grammars are installed."""
    languages = documents[CODE_LANGUAGE].to_pylist()
    given = [
        (text, language)
        for text, language in zip(documents["text"].to_pylist(), languages, strict=True)
        if language in GRAMMARS
    ]
    found: list[float | None] = []
    if given:
        _check()
        with Guard(f"{__name__}:{errors.__name__}", step.limits, ("x = 1", "Python")) as guard:
            found = [result.get("errors") for result in guard.map(given)]
    values = iter(found)
    signal = [next(values) if language in GRAMMARS else None for language in languages]
    return {_SIGNAL: pa.array(signal, pa.float64())}


def _check() -> None:
    try:
        import tree_sitter  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`code_syntax` needs tree-sitter and its grammars: `pip install 'gristmill[code]'`, or take the step out"
        ) from error


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
