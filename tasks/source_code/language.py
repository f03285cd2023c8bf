"""The step `code_language`: which programming language a file is in."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Clause, Decision, DocumentStep, Signal
from gristmill.tasks.engine import extras
from gristmill.tasks.source_code.recognition import SHARED, by_name, by_pattern, by_shebang, extension_of

if TYPE_CHECKING:
    from magika import Magika


CODE_LANGUAGE = "code_language"
NO_CODE = "no_code"
PATH = "path"
_SOURCE = "Linguist's names of languages and heuristics; content: magika (Fratantonio et al. 2024, arXiv 2409.13768)"


Name = Annotated[str, Field(pattern=r"^[^'\\]+$")]


class CodeLanguage(DocumentStep):
    """Identify the programming language of a document from a source of code, or of any table with a column `path`.

    The file name decides: the whole name (`Makefile`) or the extension; otherwise the interpreter in the first line. If
    several languages share an extension (`.h`, `.m`), lines that only one of them has decide. With `content`, magika
    reads the text if none of these decides. Without it, such a file has the usual language of the extension, or
    `unknown`. A document without a path is `no_code`, and the steps on code keep it.
    """

    step: Literal["code_language"] = "code_language"
    content: bool = Field(
        False,
        description="Let magika classify files whose names are ambiguous, 5 ms each. Requires `pip install "
        "gristmill[code]`.",
    )
    keep: tuple[Name, ...] | None = Field(None, description="Languages to keep, such as [Python, C++]. null: all.")
    drop: tuple[Name, ...] = Field((), description="Languages to drop.")

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
        clauses: list[Decision] = []
        if self.keep is not None:
            clauses.append(Clause("language", f"{CODE_LANGUAGE} in ({_listed((*self.keep, NO_CODE))})", "false"))
        if self.drop:
            clauses.append(Clause("language", f"{CODE_LANGUAGE} in ({_listed(self.drop)})", "true"))
        return clauses


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


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
    languages = [
        (NO_CODE, "none") if path is None else _language(path, text, step.content)
        for path, text in zip(paths(documents), documents["text"].to_pylist(), strict=True)
    ]
    names = [signal.name for signal in step.signals]
    return {name: pa.array([each[index] for each in languages], pa.string()) for index, name in enumerate(names)}


def paths(documents: Batch) -> list[str | None]:
    """The column `path`, without one null for each."""
    if PATH not in documents.table.column_names:
        return [None] * len(documents)
    return documents[PATH].to_pylist()


def _language(path: str, text: str, content: bool) -> tuple[str, str]:
    name_language = by_name(path)
    if name_language and name_language[1]:
        return name_language[0], "name"
    if shebang_language := by_shebang(text):
        return shebang_language, "shebang"
    if shown := by_pattern(path, text):
        return shown, "pattern"
    if content and (seen := by_content(text)):
        shared = SHARED.get(extension_of(path))
        # a text of few lines looks like many languages: what shares an extension is one of these
        if shared is None or seen in shared:
            return seen, "content"
    return (name_language[0], "name") if name_language else (UNKNOWN, "none")


def by_content(text: str) -> str | None:
    """The language that magika sees in a text, None where it is not sure, or sees something else than a language."""
    seen = magika().identify_bytes(text.encode("utf-8", "replace"))
    return _LABELS.get(str(seen.output.label)) if seen.ok else None


@cache
def magika() -> "Magika":
    """Raises MissingExtraError where it is not installed."""
    extras.require_all("`code_language: {content: true}`", ["magika"])
    import magika as library

    model: Any = library.Magika()
    return model
