"""The page of a comparison: what differs between two corpora, on one HTML page that needs no server and no network."""

from gristmill.flows.diff.difference import Difference
from gristmill.flows.reports import templates
from gristmill.storage import files


def write(found: Difference, to: str) -> str:
    """Write the page to a file, and return its path."""
    files.write_bytes(to, page(found).encode())
    return to


def page(found: Difference) -> str:
    """The page; the same difference gives the same bytes. It holds first passages of texts that differ."""
    return templates.template("diff_page.html").render(found=found)
