"""Rows of deduplication: exact, by address, of passages and and of substrings."""

from tests.golden.rows.row import (
    BOOKS,
    COPIES,
    EDGES,
    Row,
    Settings,
    row,
)

LENGTH: Settings = {"step": "ccnet", "min_characters": 1}
SHORT: Settings = {"step": "minhash", "shingle": 3, "bands": 32, "rows": 4}
WIDE: Settings = {"step": "minhash", "bands": 64, "rows": 2}
NEAR = ("signatures", "candidates", "near_duplicates")


def _exact() -> list[Row]:
    content, url = ("content_duplicates",), ("url_duplicates",)
    return [
        row("content", [COPIES], [LENGTH, {"step": "content_dedup"}], content),
        row(
            "content-longest",
            [BOOKS, COPIES],
            [LENGTH, {"step": "content_dedup", "keep": ["longest", "newest"], "partitions": 3}],
            content,
        ),
        row(
            "content-best",
            [COPIES],
            [LENGTH, {"step": "content_dedup", "keep": ["best", "oldest"], "best": "ccnet_characters"}],
            content,
        ),
        row("content-oldest", [COPIES, EDGES], [{"step": "content_dedup", "keep": ["oldest", "source"]}], content),
        row(
            "content-source",
            [{**EDGES, "name": "first"}, EDGES, BOOKS],
            [{"step": "content_dedup", "keep": ["source"]}],
            content,
        ),
        row("url-newest", [COPIES], [{"step": "url_dedup"}], url),
        row(
            "url-oldest",
            [COPIES],
            [
                LENGTH,
                {
                    "step": "url_dedup",
                    "keep": ["oldest", "longest"],
                    "canonical": {"fold_www": True, "fold_scheme": True, "tracking": []},
                    "partitions": 2,
                },
            ],
            url,
        ),
        row("url-best", [COPIES], [LENGTH, {"step": "url_dedup", "keep": ["best"], "best": "ccnet_characters"}], url),
    ]


def _passages() -> list[Row]:
    return [
        row("lines", [COPIES], [{"step": "line_dedup"}], ("line_dedup",)),
        row(
            "lines-short",
            [COPIES, EDGES],
            [{"step": "line_dedup", "min_characters": 9, "min_words": 5, "partitions": 3}],
            ("line_dedup",),
        ),
        row("lines-long", [EDGES], [{"step": "line_dedup", "min_characters": 11, "min_words": 2}], ("line_dedup",)),
        row("hosts", [COPIES], [{"step": "host_lines"}], ("host_lines",)),
        row(
            "hosts-few",
            [COPIES, EDGES],
            [{"step": "host_lines", "min_pages": 2, "min_share": 0.1, "min_characters": 5, "min_words": 3}],
            ("host_lines",),
        ),
        row("paragraphs", [COPIES], [{"step": "paragraph_dedup"}], ("paragraph_dedup",)),
        row(
            "paragraphs-short",
            [COPIES, EDGES],
            [{"step": "paragraph_dedup", "min_characters": 11, "min_words": 12}],
            ("paragraph_dedup",),
        ),
        row("sentences", [COPIES], [{"step": "sentence_dedup"}], ("sentence_dedup",)),
        row(
            "sentences-one",
            [COPIES, EDGES],
            [
                {
                    "step": "sentence_dedup",
                    "sentences": 1,
                    "min_characters": 20,
                    "min_words": 8,
                    "min_sentences": 2,
                    "partitions": 2,
                }
            ],
            ("sentence_dedup",),
        ),
        row(
            "sentences-two",
            [EDGES],
            [{"step": "sentence_dedup", "sentences": 2, "min_sentences": 1, "min_words": 1}],
            ("sentence_dedup",),
        ),
    ]


def _substrings() -> list[Row]:
    both = ("substring_spans", "substring_dedup")
    return [
        row("substrings", [COPIES], [{"step": "substring_dedup"}], both),
        row(
            "substrings-short",
            [COPIES],
            [{"step": "substring_dedup", "min_length": 20, "keep": "none", "block_bytes": 4096, "min_characters": 100}],
            both,
        ),
        row(
            "substrings-bytes",
            [COPIES],
            [{"step": "substring_dedup", "unit": "bytes", "min_length": 100, "policy": "drop"}],
            both,
        ),
        row(
            "substrings-drop",
            [COPIES, EDGES],
            [{"step": "substring_dedup", "min_length": 19, "policy": "drop", "max_share": 0.4}],
            both,
        ),
        row(
            "substrings-few-bytes",
            [COPIES],
            [{"step": "substring_dedup", "unit": "bytes", "min_length": 50, "keep": "none", "min_characters": 21}],
            both,
        ),
    ]


ROWS = (*_exact(), *_passages(), *_substrings())
