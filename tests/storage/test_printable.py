"""What commands a terminal is written out; what is to be read stays."""

import unicodedata

import pytest

from gristmill.storage.printable import one_line, printable

DIRECTIONS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
EVERY = [chr(code) for code in range(0x11000)]


def test_every_control_character_and_surrogate_is_written_out_and_nothing_else_but_directions():
    for character in EVERY:
        shown = printable(character)
        directs = unicodedata.bidirectional(character) in (
            "LRE",
            "RLE",
            "PDF",
            "LRO",
            "RLO",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
        commands = unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
        if directs or commands:
            assert shown.isascii() and shown.isprintable() and shown.startswith("\\")
        else:
            assert shown == character
        assert one_line(character).splitlines() in ([one_line(character)], [])


@pytest.mark.parametrize(
    "text,shown",
    [("\x1b[2J", "\\x1b[2J"), ("a\r\nb\rc", "a\nb\\rc"), ("\x9b1m\u202e", "\\x9b1m\\u202e"), ("\ud800", "\\ud800")],
)
def test_what_is_written_out(text, shown):
    assert printable(text) == shown
    assert one_line("a\n\tb\u2028") == "a\\n\\tb\\u2028"
