"""Texts from elsewhere, made safe for a terminal or a log. Separate: all rooms use it."""

import re

# C0 but tab and line feed, DEL, C1; surrogates, which no output takes; embeddings, overrides and isolates of
# directions (UAX #9), by which a line reads otherwise than it is
_COMMANDS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile("[\t\n\u2028\u2029]")


def printable(text: str) -> str:
    r"""The text with control characters as `\x1b`; its line ends and tabs stay, CR LF becomes LF."""
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    r"""The same in one line: line ends and tabs as `\n` and `\t`, too."""
    return _BREAKS.sub(_escape, printable(text))


def _escape(match: re.Match) -> str:
    return match[0].encode("unicode_escape").decode()
