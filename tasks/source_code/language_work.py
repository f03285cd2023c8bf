"""The step `code_language` at work."""

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.source_code.language import NO_CODE, PATH, CodeLanguage
from gristmill.tasks.source_code.names import SHARED, by_name, by_pattern, by_shebang, extension_of

if TYPE_CHECKING:
    from magika import Magika

UNKNOWN = "unknown"
# magika's labels of what Linguist has other names for
_LABELS = {
    "asm": "Assembly",
    "batch": "Batchfile",
    "c": "C",
    "clojure": "Clojure",
    "cmake": "CMake",
    "cobol": "COBOL",
    "coffeescript": "CoffeeScript",
    "cpp": "C++",
    "cs": "C#",
    "css": "CSS",
    "csv": "CSV",
    "dart": "Dart",
    "dockerfile": "Dockerfile",
    "elixir": "Elixir",
    "erlang": "Erlang",
    "fortran": "Fortran",
    "go": "Go",
    "gradle": "Groovy",
    "groovy": "Groovy",
    "haskell": "Haskell",
    "hcl": "HCL",
    "html": "HTML",
    "ini": "INI",
    "ipynb": "Jupyter Notebook",
    "java": "Java",
    "javascript": "JavaScript",
    "jinja": "Jinja",
    "json": "JSON",
    "jsonl": "JSON",
    "julia": "Julia",
    "kotlin": "Kotlin",
    "latex": "TeX",
    "lisp": "Common Lisp",
    "lua": "Lua",
    "m4": "M4Sugar",
    "makefile": "Makefile",
    "markdown": "Markdown",
    "matlab": "MATLAB",
    "objectivec": "Objective-C",
    "ocaml": "OCaml",
    "pascal": "Pascal",
    "perl": "Perl",
    "php": "PHP",
    "powershell": "PowerShell",
    "prolog": "Prolog",
    "proto": "Protocol Buffer",
    "python": "Python",
    "r": "R",
    "rst": "reStructuredText",
    "ruby": "Ruby",
    "rust": "Rust",
    "scala": "Scala",
    "scss": "SCSS",
    "shell": "Shell",
    "sql": "SQL",
    "svg": "SVG",
    "swift": "Swift",
    "tcl": "Tcl",
    "tex": "TeX",
    "toml": "TOML",
    "tsv": "TSV",
    "tsx": "TSX",
    "txt": "Text",
    "typescript": "TypeScript",
    "vba": "Visual Basic .NET",
    "verilog": "Verilog",
    "vhdl": "VHDL",
    "vue": "Vue",
    "xml": "XML",
    "yaml": "YAML",
    "zig": "Zig",
}


def measure(step: CodeLanguage, documents: Batch) -> dict[str, pa.Array]:
    """The signals of a batch."""
    found = [
        (NO_CODE, "none") if path is None else _language(path, text, step.content)
        for path, text in zip(paths(documents), documents["text"].to_pylist(), strict=True)
    ]
    names = [signal.name for signal in step.signals]
    return {name: pa.array([each[at] for each in found], pa.string()) for at, name in enumerate(names)}


def paths(documents: Batch) -> list[str | None]:
    """The column `path`, without one null for each."""
    if PATH not in documents.table.column_names:
        return [None] * len(documents)
    return documents[PATH].to_pylist()


def _language(path: str, text: str, content: bool) -> tuple[str, str]:
    named = by_name(path)
    if named and named[1]:
        return named[0], "name"
    if told := by_shebang(text):
        return told, "shebang"
    if shown := by_pattern(path, text):
        return shown, "pattern"
    if content and (seen := by_content(text)):
        shared = SHARED.get(extension_of(path))
        # a text of few lines looks like many languages: what shares an extension is one of these
        if shared is None or seen in shared:
            return seen, "content"
    return (named[0], "name") if named else (UNKNOWN, "none")


def by_content(text: str) -> str | None:
    """The language that magika sees in a text, None where it is not sure, or sees something else than a language."""
    seen = magika().identify_bytes(text.encode("utf-8", "replace"))
    return _LABELS.get(str(seen.output.label)) if seen.ok else None


@cache
def magika() -> "Magika":
    """Raises ModuleNotFoundError, which names the remedy, where it is not installed."""
    try:
        import magika as library
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`code_language: {content: true}` needs magika: `pip install 'gristmill[code]'`, or take `content` out"
        ) from error
    found: Any = library.Magika()
    return found
