"""Rows of rule sets: by their defaults, by others, and with each of their thresholds alone."""

from typing import Any

from tests.golden.rows.row import ANY, EDGES, SEEN, Row, Settings, each_alone, row

BAD_WORDS = {
    "any": "{fixture}/lists/bad_en.txt",
    "de": "{fixture}/lists/bad_de.txt",
    "ja": "{fixture}/lists/bad_ja.txt",
}
FREE_C4: Settings = {
    "citations": False,
    "max_word_characters": None,
    "terminal_punctuation": [],
    "min_words_per_line": 5,
    "citation_words": False,
    "javascript": False,
    "policy": ["use of cookie", "grain"],
    "max_lorem_ipsum": 1,
    "max_curly_bracket": 1,
    "min_sentences": 3,
    "min_long_lines": 3,
}


def _rules(step: str, **second: Any) -> list[Row]:
    """A rule set by its defaults, with other settings of its signals, and each of its thresholds alone."""
    return [
        row(f"{step}-default", [EDGES], [{"step": step}], SEEN),
        row(f"{step}-other", [EDGES], [{"step": step, **second}], SEEN),
        each_alone(f"{step}-each", [EDGES], [], step),
    ]


def _edges(name: str, *steps: Settings) -> Row:
    return row(name, [EDGES], steps, SEEN)


def _texts() -> list[Row]:
    dclm = {"definition": "dclm"}
    return [
        *_rules(
            "textbook",
            min_characters=300,
            max_special_characters=0.2,
            max_symbol_word_ratio=0.125,
            max_repeated_lines=2,
        ),
        *_rules("gopher_quality", **dclm, max_hash_ratio=None, max_ellipsis_ratio=None, max_symbol_ratio=0.1),
        each_alone("gopher_quality-each-dclm", [EDGES], [], "gopher_quality", **dclm),
        _edges(
            "gopher_quality-symbols",
            {
                "step": "gopher_quality",
                "max_symbol_ratio": 0.1,
                "max_hash_ratio": None,
                "max_ellipsis_ratio": None,
                "min_words": None,
                "min_stop_words": None,
                "min_alpha_words": None,
            },
        ),
        row(
            "gopher_quality-languages",
            [EDGES],
            [
                ANY,
                {
                    "step": "gopher_quality",
                    "stop_words_by_language": {"de": "{fixture}/lists/stop_de.txt", "fr": ["la", "le"]},
                    "languages": {"de": {"min_words": 20, "max_mean_word_length": 6}},
                },
            ],
            SEEN,
        ),
        *_rules("gopher_repetition", **dclm),
        each_alone("gopher_repetition-each-dclm", [EDGES], [], "gopher_repetition", **dclm),
        *_rules("c4", **FREE_C4),
        _edges(
            "c4-bare",
            {
                "step": "c4",
                "policy": [],
                "javascript": False,
                "min_words_per_line": 0,
                "max_word_characters": 999,
                "terminal_punctuation": [".", "..."],
                "min_sentences": None,
                "max_curly_bracket": None,
            },
        ),
        *_rules("fineweb_quality", exclude_zero=True, short_line_characters=29),
        *_rules(
            "refinedweb_lines",
            max_uppercase=0.4,
            max_numeric=0.5,
            counters=False,
            min_words_per_line=1,
            phrases=False,
            max_removed_words=0.1,
        ),
        _edges(
            "refinedweb_lines-off",
            {
                "step": "refinedweb_lines",
                "max_uppercase": None,
                "max_numeric": None,
                "max_removed_words": None,
                "min_words_per_line": 3,
            },
        ),
        *_rules("madlad", checks=["list_case", "cursed"], across_lines=True, max_questionable=0.2),
        _edges(
            "madlad-own",
            {
                "step": "madlad",
                "cursed": ["^The old", "mill\\.$"],
                "checks": ["cursed", "length", "technical"],
                "min_sentences": 4,
            },
        ),
        *_rules("ccnet", min_characters=150),
        *(_edges(f"ccnet-{size}", {"step": "ccnet", "min_characters": size}) for size in (100, 151)),
        row("bad_words", [EDGES], [ANY, {"step": "bad_words", "lists": BAD_WORDS}], SEEN),
        row(
            "bad_words-share",
            [EDGES],
            [
                ANY,
                {
                    "step": "bad_words",
                    "lists": BAD_WORDS,
                    "max_hits": 1,
                    "max_word_share": 0.1,
                    "unspaced": ["ja"],
                    "allowed": ["川"],
                },
            ],
            SEEN,
        ),
        row(
            "several",
            [EDGES],
            [
                {"step": "normalize"},
                {"step": "textbook", "max_symbol_word_ratio": 1},
                {"step": "c4", "min_sentences": 2, "terminal_punctuation": []},
                {"step": "refinedweb_lines", "max_removed_words": 0.5},
                {"step": "gopher_repetition"},
            ],
            ("normalize", *SEEN),
        ),
    ]


ROWS = tuple(_texts())
