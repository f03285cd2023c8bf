"""How a stale verdict is shown: a line in the terminal, a note on its page, a tag in MLflow.

A page in the home is a file that a decision wrote once. Its note is between two comments below the heading, so that it
can be replaced and removed.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markupsafe import escape

from gristmill.storage import files

if TYPE_CHECKING:
    from gristmill.flows.reports.dependents.retractions import Staleness

TAG = "gristmill.stale"  # of MLflow runs
MAX_TAG = 5000  # characters of a tag that MLflow takes
_BEGIN, _END = "<!-- stale -->", "<!-- end of stale -->"
_NOTE = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_HEADING = "</h1>"


def lines(reasons: Sequence[str]) -> Iterator[str]:
    """What is printed above a verdict."""
    yield from (f"stale: {reason}" for reason in reasons)


def marked(page: str, reasons: Sequence[str]) -> str:
    """A page of a verdict with a note of why it is stale; without one if there is no reason. A page without a heading
    stays as it is."""
    plain = _NOTE.sub("", page)
    if not reasons or _HEADING not in plain:
        return plain
    said = "".join(f"<p><strong>Stale:</strong> {escape(reason)}.</p>" for reason in reasons)
    head, heading, body = plain.partition(_HEADING)
    return f"{head}{heading}{_BEGIN}{said}{_END}{body}"


def mark_pages(staleness: "Staleness") -> tuple[list[str], list[str]]:
    """Write the notes of the pages of all verdicts of a home as they must be now: the pages that were changed, and a
    sentence for each that cannot be read or written."""
    changed, gaps = [], []
    for verdict in staleness.graph.verdicts:
        path = f"{verdict.file.removesuffix('.json')}.html"
        try:
            if not files.exists(path):
                continue
            before = files.read_bytes(path).decode("utf-8")
            after = marked(before, staleness.of_verdict(verdict))
            if after != before:
                files.write_bytes(path, after.encode())
                changed.append(path)
        except (OSError, UnicodeDecodeError) as error:
            gaps.append(f"the page {path} has no note: {error}")
    return changed, gaps


def tag_of(reasons: Sequence[str]) -> str:
    """The value of the tag."""
    return "; ".join(reasons)[:MAX_TAG]
