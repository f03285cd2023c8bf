"""Notebooks of Jupyter as one text: their cells of text, and of code between fences, in turn."""

import re
from typing import Any

import orjson

_FENCE = 3  # backticks
_TICKS = re.compile("`+")


class NotebookError(ValueError):
    """A file is no notebook."""


def rendered(data: bytes | str) -> str:
    """The cells of a notebook (nbformat 3 and 4) in their order: text as it is, code between fences with its language;
    outputs, attachments and empty cells are left out. A fence is longer than any run of backticks in the code. Raises
    NotebookError."""
    try:
        notebook = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotebookError(f"no JSON: {error}") from error
    if not isinstance(notebook, dict):
        raise NotebookError(f"no JSON object but a {type(notebook).__name__}")
    language = _language(notebook)
    parts = []
    for cell in _cells(notebook):
        source = _source(cell)
        if not source.strip():
            continue
        if cell.get("cell_type") == "code":
            fence = "`" * max(_FENCE, 1 + max(map(len, _TICKS.findall(source)), default=0))
            parts.append(f"{fence}{language}\n{source.rstrip()}\n{fence}")
        else:
            parts.append(source.strip("\n"))
    return "\n\n".join(parts)


def _cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    sheets = notebook.get("worksheets")  # nbformat 3
    lists = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)] if isinstance(sheets, list) else []
    cells = notebook.get("cells", [cell for cells in lists if isinstance(cells, list) for cell in cells])
    if not isinstance(cells, list) or not ("cells" in notebook or lists):
        raise NotebookError("it has no list of cells")
    return [cell for cell in cells if isinstance(cell, dict)]


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _language(notebook: dict[str, Any]) -> str:
    """As the notebook's kernel names it; "" if it does not say."""
    metadata = notebook.get("metadata")
    if isinstance(metadata, dict):
        for key, name in (("language_info", "name"), ("kernelspec", "language")):
            section = metadata.get(key)
            if isinstance(section, dict) and isinstance(section.get(name), str):
                return "".join(
                    character for character in section[name].lower() if character.isalnum() or character in "+#"
                )
    return ""
