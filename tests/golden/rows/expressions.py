"""Rows of the step `where`: comparisons, functions, nulls, branches."""

from tests.golden.rows.row import WEB, Row, row


def _wheres() -> list[Row]:
    seen = ("documents", "rules")
    length = {"step": "ccnet", "min_characters": 20}
    return [
        row(
            "where-keep",
            [WEB],
            [length, {"step": "where", "keep": "characters > 200 and (grade >= 0.25 or sort = 'essay')"}],
            seen,
        ),
        row(
            "where-drop",
            [WEB],
            [
                length,
                {
                    "step": "where",
                    "drop": "grade = 1 or count in (1, 2, 3) or sort = 'É' and ccnet_characters <= 150",
                },
            ],
            seen,
        ),
        row(
            "where-nulls",
            [WEB],
            [
                length,
                {"step": "where", "keep": "grade < 0.75", "nulls": "keep"},
                {"step": "where_not", "drop": "not sort = 'shop'", "nulls": "drop"},
            ],
            seen,
        ),
        row(
            "where-numbers",
            [WEB],
            [length, {"step": "where", "keep": "count * 2 + 1 > 5 and characters / 2 >= 60 and grade - 0.5 < 0.5"}],
            seen,
        ),
        row(
            "where-functions",
            [WEB],
            [
                length,
                {
                    "step": "where",
                    "keep": "lower(sort) = 'é' or upper(sort) != 'ESSAY' and length(sort) > 4 or "
                    "starts_with(sort, 'ess') and ends_with(url, '1') or regexp_matches(url, 'host[23]')",
                },
            ],
            seen,
        ),
        row(
            "where-times",
            [WEB],
            [
                length,
                {
                    "step": "where",
                    "keep": "year(date::timestamptz) = 2024 and month(date::date) >= 3 and "
                    "day(date::timestamptz) <= 15 and date::timestamptz < '2024-06-15'",
                },
            ],
            seen,
        ),
        row(
            "where-casts",
            [WEB],
            [
                length,
                {
                    "step": "where",
                    "drop": "trunc(grade * 3)::bigint = 1 or floor(grade) != ceil(grade) and abs(count - 5) > 3 or "
                    "count::varchar::double = 7 or coalesce(grade, 2) > 1.5",
                },
            ],
            seen,
        ),
        row(
            "where-branches",
            [WEB],
            [
                length,
                {
                    "step": "where",
                    "keep": "case when sort = 'shop' then count else 9 end > 4 and "
                    "(grade is null or -grade < -0.1) and sort not in ('x', 'É') and 1 < count and count <= 9",
                    "nulls": "drop",
                },
            ],
            seen,
        ),
        row(
            "where-bools",
            [WEB],
            [length, {"step": "where", "keep": "flag or flag::double < 0.5 and not flag = true"}],
            seen,
        ),
        row("where-said", [WEB], [length, {"step": "where", "drop": "said::double >= 2 or said::bigint = 1"}], seen),
        row(
            "where-lists",
            [WEB],
            [length, {"step": "where", "keep": "length(tags) = 1 or flag::varchar = 'true'"}],
            seen,
        ),
        row(
            "where-dates",
            [WEB],
            [length, {"step": "where", "keep": "said::timestamptz > '2024-03-03' or count::varchar in ('1', '10')"}],
            seen,
        ),
        row(
            "where-names",
            [WEB],
            [length, {"step": "where", "drop": "tld = 'example' and host = 'host1.example'"}],
            seen,
        ),
    ]


ROWS = tuple(_wheres())
