"""Shells of pages: known notes are dropped with a reason, and short documents that look like them are kept."""

import pytest

from gristmill.tasks.extraction.page import extract_page
from gristmill.tasks.extraction.shells import shell
from tests.golden.made.unrendered import NOTES, REAL


@pytest.mark.parametrize("note", NOTES)
def test_notes_of_libraries_and_servers_are_shells(note):
    assert shell(note)
    assert shell(f"My App\n{note}") or note.startswith("©")


@pytest.mark.parametrize("text", REAL)
def test_short_documents_that_look_like_them_are_none(text):
    assert shell(text) is None


@pytest.mark.parametrize(
    ("note", "kind"),
    [
        ("You need to enable JavaScript to run this app.", "javascript"),
        ("Please wait...", "loading"),
        ("Just a moment...\nVerifying you are human. This may take a few seconds.", "check"),
        ("403 Forbidden\nnginx/1.18.0", "denied"),
        ("It works!", "server"),
        ("The document has moved here.", "redirect"),
        ("Ihr Browser unterstützt keine Frames.", "frames"),
        ("We use cookies to improve your experience.\nAccept all\nReject all", "consent"),
        ("Copyright © 1999 Mill Ltd. All rights reserved.", "copyright"),
    ],
)
def test_kinds(note, kind):
    assert shell(note) == kind


def test_a_shell_is_a_drop_with_its_kind_and_text():
    page = b"<html><body><h1>Access denied</h1><p>You are not authorized to access this page.</p></body></html>"
    assert extract_page(page, "text/html", None, "https://a.example", "plain", "plain") == {
        "rule": "page_shell",
        "detail": "denied: Access denied You are not authorized to access this page.",
    }
    text = extract_page(b"Please wait...", "text/plain", None, "https://a.example", "plain", "plain")
    assert text["text"] == "Please wait..."
