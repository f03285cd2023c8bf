"""Rows of the step `where`: comparisons, functions, nulls, branches."""

from tests.golden.rows.row import WEB, Row, row


def _wheres() -> list[Row]:
    seen = ("documents", "rules")
    length = {"step": "ccnet", "min_characters": 20}
    return [
        row(
            "where-keep",
            [WEB],
            [length, {"step": "where", "keep": "characters > 200 and (grade >= 0.25 or sort == 'essay')"}],
            seen,
        ),
        row(
            "where-drop",
            [WEB],
            [
                length,
                {
                    "step": "where",
                    "drop": "grade == 1 or count in (1, 2, 3) or sort == 'É' and ccnet_characters <= 150",
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
                {"step": "where_not", "drop": "not sort == 'shop'", "nulls": "drop"},
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
                    "keep": "lower(sort) == 'é' or upper(sort) != 'ESSAY' and length(sort) > 4 or "
                    "starts_with(sort, 'ess') and ends_with(url, '1') or matches(url, 'host[23]')",
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
                    "keep": "year(date) == 2024 and month(date) >= 3 and day(date) <= 15 and time(date) < '2024-06-15'",
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
                    "drop": "int(grade * 3) == 1 or floor(grade) != ceil(grade) and abs(count - 5) > 3 or "
                    "float(string(count)) == 7 or coalesce(grade, 2) > 1.5",
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
                    "keep": "(count if sort == 'shop' else 9) > 4 and (grade is None or -grade < -0.1) and "
                    "sort not in ('x', 'É') and 1 < count <= 9",
                    "nulls": "drop",
                },
            ],
            seen,
        ),
        row(
            "where-bools",
            [WEB],
            [length, {"step": "where", "keep": "flag or float(flag) < 0.5 and not flag == True"}],
            seen,
        ),
        row("where-said", [WEB], [length, {"step": "where", "drop": "float(said) >= 2 or int(said) == 1"}], seen),
        row(
            "where-lists",
            [WEB],
            [length, {"step": "where", "keep": "length(tags) == 1 or string(flag) == 'true'"}],
            seen,
        ),
        row(
            "where-dates",
            [WEB],
            [length, {"step": "where", "keep": "time(said) > '2024-03-03' or string(count) in ('1', '10')"}],
            seen,
        ),
        row(
            "where-names",
            [WEB],
            [length, {"step": "where", "drop": "tld == 'example' and host == 'host1.example'"}],
            seen,
        ),
    ]


ROWS = tuple(_wheres())
