"""Parts of Markdown that all pages have."""

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `python -m tests.reference_pages`. Do not edit. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, with the white space of each cell as single spaces."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def fence(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"


def code(text: str) -> str:
    """Text as code; nothing for an empty text."""
    return f"`{text}`" if text else ""


def page(*parts: str) -> str:
    """Parts of a page, with the note that it is generated after its title."""
    title, *others = parts
    return "\n\n".join([title, NOTE, *filter(None, others)]) + "\n"
