"""Rows of steps on documents beside the rules: languages, addresses, personal data, expressions, code, topics."""

from gristmill.tasks.models.language import MIN_SCORES
from gristmill.tasks.pii.step import NATIONAL_IDS
from tests.golden.rows.row import (
    ADDRESSES,
    ANY,
    EDGES,
    EVERY,
    LANGUAGES,
    PERSONAL,
    SEEN,
    WEB,
    Row,
    Settings,
    each_alone,
    row,
)

CODE: Settings = {"name": "code", "code": ["{fixture}/code/repo", "{fixture}/code/packed.*", "{fixture}/code/gpl"]}
REPOSITORIES: Settings = {
    **CODE,
    "name": "repositories",
    "unit": "repository",
    "document_bytes": 3000,
    "leave_out": ["generated", "vendored", "minified", "data"],
    "repeated_headers": True,
    "file_header": "# {path}",
}
NAMED: Settings = {"step": "code_language"}

LISTS: Settings = {
    "blocklists": ["{fixture}/lists/black", "{fixture}/lists/hosts.txt"],
    "takedowns": ["{fixture}/lists/takedown.txt"],
    "strict_substrings": ["{fixture}/lists/strict.txt"],
    "hard_words": ["{fixture}/lists/hard.txt"],
    "soft_words": ["{fixture}/lists/soft.txt"],
}

MEASURED, LID_MEASURED = [*MIN_SCORES["py3langid"]], [*MIN_SCORES["lid.176"]]
ALL_IDS = [*NATIONAL_IDS]


def _edges(name: str, *steps: Settings) -> Row:
    return row(name, [EDGES], steps, SEEN)


def _languages() -> list[Row]:
    every = [*LANGUAGES, "en"]
    lid: Settings = {"step": "language", "model": "lid.176"}
    return [
        _edges("language-default", {"step": "language"}),
        _edges(
            "language-many",
            {
                "step": "language",
                "keep": every,
                "min_score": 0.5,
                "languages": {"ru": {"min_score": 0.9}},
                "characters": 60,
                "unknown_below": 0.4,
            },
        ),
        _edges("language-unknown", {"step": "language", "keep": ["de", "cs", "pl", "unknown"], "characters": 1}),
        row("language-measured", [EVERY], [{"step": "language", "keep": [*MEASURED, *every, "unknown"]}], SEEN),
        row("language-every", [EVERY], [{**lid, "keep": [*LID_MEASURED, "en", "unknown"]}], SEEN),
        row("language-certain", [EVERY], [{**lid, "keep": [*LID_MEASURED, *every]}], SEEN),
        row(
            "mixed_languages-every",
            [EVERY],
            [
                {"step": "language", "keep": [*MEASURED, *every, "unknown"]},
                {"step": "mixed_languages", "cut": True},
            ],
            SEEN,
        ),
        _edges(
            "mixed_languages-cut",
            {**lid, "keep": every},
            {"step": "mixed_languages", "model": "lid.176", "cut": True, "keep": ["de", "ru"]},
        ),
        _edges(
            "mixed_languages-share",
            ANY,
            {"step": "mixed_languages", "max_share": 0.25, "min_characters": 20, "min_score": 0.5, "characters": 30},
        ),
    ]


def _addresses() -> list[Row]:
    seen = ("documents", "rules")
    datatrove: Settings = {
        "step": "url",
        **LISTS,
        "definition": "datatrove",
        "subdomains": False,
        "private_suffixes": True,
        "categories": ["adult"],
        "max_soft_words": 0,
    }
    folded = {"fold_scheme": True, "fold_www": True, "tracking": ["utm_*", "sid", "b"]}
    return [
        row("url", [ADDRESSES], [{"step": "ccnet", "min_characters": 1}, {"step": "url", **LISTS}], seen),
        row("url-datatrove", [ADDRESSES], [{"step": "ccnet", "min_characters": 1}, datatrove], seen),
        row(
            "url-first",
            [ADDRESSES],
            [
                {"step": "url", **LISTS, "canonical": folded, "max_soft_words": 2},
                {"step": "ccnet", "min_characters": 6},
            ],
            seen,
        ),
        row(
            "url-on-copies",
            [ADDRESSES],
            [{"step": "url", "canonical": {"fold_www": True}}, {"step": "url_dedup"}],
            ("url_duplicates",),
        ),
    ]


def _personal() -> list[Row]:
    seen = ("documents", "rules")
    return [
        row("pii", [PERSONAL], [{"step": "pii"}], seen),
        row(
            "pii-everything",
            [PERSONAL],
            [
                ANY,
                {
                    "step": "pii",
                    "national_ids": ALL_IDS,
                    "regions": ["US", "GB", "DE", "FR", "AU", "JP", "RU", "CN"],
                    "columns": ["title", "url"],
                    "max_spans": 4,
                    "replacements": {"email": "", "ip": "1.1.1.1", "phone": "\u260e"},
                },
            ],
            seen,
        ),
        row(
            "pii-few",
            [PERSONAL],
            [
                ANY,
                {
                    "step": "pii",
                    "kinds": ["phone", "ip"],
                    "regions_by_language": {"de": ["DE"], "en": ["GB"]},
                    "regions": [],
                    "max_spans": None,
                },
            ],
            seen,
        ),
        row("pii-on-edges", [EDGES], [{"step": "pii", "max_spans": 0}], seen),
    ]


def _code() -> list[Row]:
    seen = ("documents", "rules")
    named = [NAMED]
    return [
        row("code", [CODE], [*named, {"step": "code"}, {"step": "code_syntax"}], seen),
        row(
            "code-strict",
            [CODE],
            [
                {"step": "code_language", "content": True, "keep": ["Python", "C", "Java", "Text"]},
                {
                    "step": "code",
                    "generated": False,
                    "vendored": False,
                    "minified": False,
                    "data": False,
                    "max_mean_line": 60,
                    "max_line": 100,
                    "min_alphanumeric": 0.4,
                    "min_comments": 0.02,
                    "max_comments": 0.5,
                },
                {"step": "code_syntax", "max_errors": 0.1},
            ],
            seen,
        ),
        row(
            "code-dropped",
            [CODE],
            [{"step": "code_language", "drop": ["JSON", "CSV", "Markdown"]}, {"step": "code", "max_line": 999}],
            seen,
        ),
        row("stack_v2", [CODE], [*named, {"step": "code"}, {"step": "stack_v2"}], seen),
        row(
            "stack_v2-loose",
            [CODE],
            [
                *named,
                {"step": "code"},
                {"step": "stack_v2", "max_lines": 40, "min_alphabetic": 0.5, "generated": True, "named_texts": False},
            ],
            seen,
        ),
        row("opencoder", [CODE], [*named, {"step": "code"}, {"step": "opencoder"}], seen),
        row(
            "opencoder-loose",
            [CODE],
            [
                *named,
                {"step": "code"},
                {"step": "opencoder", "xml_start": True, "generated": True, "min_lines": 9, "min_words": 31},
            ],
            seen,
        ),
        each_alone("stack_v2-each", [CODE], [*named, {"step": "code"}], "stack_v2"),
        each_alone("opencoder-each", [CODE], [*named, {"step": "code"}], "opencoder"),
        row("repositories", [REPOSITORIES], [{"step": "ccnet", "min_characters": 10}], seen),
    ]


def _topics() -> list[Row]:
    model = "{fixture}/models/topics.bin"
    return [
        row("topic", [WEB], [{"step": "topic", "model": model}], SEEN),
        row(
            "topic-kept",
            [WEB],
            [
                {
                    "step": "topic",
                    "model": model,
                    "characters": 40,
                    "lowercase": True,
                    "least_probability": 0.6,
                    "keep": ["mills", "other"],
                    "drop": ["ships"],
                }
            ],
            SEEN,
        ),
    ]


def _apart() -> list[Row]:
    """Steps behind a step on the corpus, which measure and edit in stages of their own."""
    once: Settings = {"step": "content_dedup"}
    return [
        row("signals-behind", [EDGES], [once, {"step": "gopher_quality"}, {"step": "textbook"}], ("signals", "rules")),
        row("signals-others", [EDGES], [once, {"step": "fineweb_quality"}, {"step": "ccnet"}], ("signals", "rules")),
        row("edited-behind", [EDGES], [once, {"step": "c4"}, {"step": "textbook"}], ("edited", "rules")),
        row(
            "edited-others",
            [PERSONAL],
            [once, ANY, {"step": "pii", "columns": ["title"]}, {"step": "refinedweb_lines"}],
            ("edited", "rules"),
        ),
    ]


ROWS = (*_languages(), *_addresses(), *_personal(), *_code(), *_topics(), *_apart())
