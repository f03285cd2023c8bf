"""Expressions over columns beside duckdb on the same Parquet file: what each keeps, what it drops, what is missing."""

import ast
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.tasks.documents.where.evaluate import evaluate, truth
from gristmill.tasks.documents.where.syntax import ExpressionError, clauses, columns, parsed

duckdb = pytest.importorskip("duckdb", reason="duckdb is in the extra `dev`")

# An expression, and what a user of duckdb writes for it. `when` is a timestamp, `date` a text.
PAIRS = [
    ("topic == 'science'", "topic = 'science'"),
    ("topic != 'science'", "topic <> 'science'"),
    ("score >= 0.5", "score >= 0.5"),
    ("words < 100", "words < 100"),
    ("topic == 'science' and score >= 0.5 and words < 100", "topic = 'science' and score >= 0.5 and words < 100"),
    ("topic == 'science' or score > 0.9", "topic = 'science' or score > 0.9"),
    ("not (topic == 'science')", "not (topic = 'science')"),
    ("not (topic == 'science' and score > 0.3)", "not (topic = 'science' and score > 0.3)"),
    ("topic is None", "topic is null"),
    ("topic is not None and score is None", "topic is not null and score is null"),
    ("topic in ('science', 'law')", "topic in ('science', 'law')"),
    ("topic not in ['science', 'law']", "topic not in ('science', 'law')"),
    ("words in (1, 50, 99)", "words in (1, 50, 99)"),
    ("words not in (1, 50, 99) or topic is None", "words not in (1, 50, 99) or topic is null"),
    ("score in (0, 1)", "score in (0.0, 1.0)"),
    ("10 <= words < 60", "words between 10 and 59"),
    ("0.2 < score <= 0.7 < 1", "score > 0.2 and score <= 0.7"),
    ("words + 10 > 60", "words + 10 > 60"),
    ("words / 3 > 20", "words / 3 > 20"),
    ("words * 2 - 5 <= 90", "words * 2 - 5 <= 90"),
    ("words / (words - 50) > 2", "words / nullif(words - 50, 0) > 2"),
    ("-score < -0.5", "-score < -0.5"),
    (
        "('high' if score > 0.7 else topic if words < 50 else None) == 'high'",
        "case when score > 0.7 then 'high' when words < 50 then topic end = 'high'",
    ),
    ("(words if is_short else score) > 0.5", "case when is_short then words else score end > 0.5"),
    ("(title if is_short else topic) == 'law'", "case when is_short then title else topic end = 'law'"),
    ("score > 0.1 and -5 <= words", "score > 0.1 and words >= -5"),
    ("topic > 'law'", "topic > 'law'"),
    ("title >= 'M' and title < 'n'", "title >= 'M' and title < 'n'"),
    ("lower(title) == 'über uns'", "lower(title) = 'über uns'"),
    ("upper(topic) == 'LAW'", "upper(topic) = 'LAW'"),
    ("length(title) > 8", "length(title) > 8"),
    ("'mill' in lower(title)", "contains(lower(title), 'mill')"),
    ("'mill' not in title", "not contains(title, 'mill')"),
    (
        "starts_with(url, 'https://') and not ends_with(url, '/')",
        "starts_with(url, 'https://') and not suffix(url, '/')",
    ),
    ("matches(title, '^[A-Z].*[0-9]$')", "regexp_matches(title, '^[A-Z].*[0-9]$')"),
    ("matches(url, r'\\.(edu|gov)(/|$)')", r"regexp_matches(url, '\.(edu|gov)(/|$)')"),
    ("'news' in tags", "list_contains(tags, 'news')"),
    ("'news' not in tags and length(tags) >= 2", "not list_contains(tags, 'news') and len(tags) >= 2"),
    ("7 in counts", "list_contains(counts, 7)"),
    ("is_short", "is_short"),
    ("is_short == True or topic == 'law'", "is_short = true or topic = 'law'"),
    ("not is_short and score < 0.5", "not is_short and score < 0.5"),
    ("when >= '2024-03-01'", "\"when\" >= timestamptz '2024-03-01 00:00:00+00'"),
    (
        "when < '2024-03-01T12:30:00Z' and year(when) == 2024",
        '"when" < timestamptz \'2024-03-01 12:30:00+00\' and year("when") = 2024',
    ),
    ("month(when) in (1, 12) or day(when) > 28", 'month("when") in (1, 12) or day("when") > 28'),
    ("time(date) > '2023-06-15'", "try_cast(date as timestamptz) > timestamptz '2023-06-15 00:00:00+00'"),
    ("year(date) >= 2023 and date is not None", "year(try_cast(date as timestamptz)) >= 2023 and date is not null"),
    ("float(number) > 10", "try_cast(number as double) > 10"),
    (
        "int(number) == 12",
        "case when regexp_full_match(trim(number), '[+-]?[0-9]+') then try_cast(number as bigint) end = 12",
    ),
    ("int(score * 10) == 3", "trunc(score * 10)::bigint = 3"),
    (
        "string(words) == '50' or starts_with(string(words), '7')",
        "words::varchar = '50' or starts_with(words::varchar, '7')",
    ),
    ("coalesce(score, 0) < 0.2", "coalesce(score, 0.0) < 0.2"),
    ("coalesce(topic, title, 'none') == 'none'", "coalesce(topic, title, 'none') = 'none'"),
    ("abs(score - 0.5) < 0.1 and floor(score * 4) == 2", "abs(score - 0.5) < 0.1 and floor(score * 4) = 2"),
    ("ceil(score * 4) != 2", "ceil(score * 4) <> 2"),
    ("score == words / 100", "score = words / 100"),
    ("(topic == 'law') == (score > 0.5)", "(topic = 'law') = (score > 0.5)"),
    ("topic in ()", "topic is null and null"),
    ("None is None and topic == 'law'", "topic = 'law'"),
]


def rows(count: int) -> pa.Table:
    draw = random.Random(11)

    def some(values, missing=0.15):
        return [None if draw.random() < missing else draw.choice(values) for _ in range(count)]

    titles = [
        "Mill 7",
        "The old mill",
        "Über uns",
        "ÜBER UNS",
        "Wheel 42",
        "",
        "mill",
        "Grain\nand more",
        "naïve Ωmega",
        "粉屋",
    ]
    urls = [
        "https://a.example/",
        "http://uni.edu/x",
        "https://city.gov",
        "https://b.example/mill.html",
        "http://c.org/d/",
    ]
    dates = [
        "2024-05-01T10:00:00Z",
        "2023-06-15T00:00:00Z",
        "2022-12-31T23:59:59Z",
        "no date",
        "",
        "2024-02-30T00:00:00Z",
    ]
    numbers = ["12", " 12 ", "+12", "12.5", "1e3", "twelve", "", "-3", ".5", "7"]
    tags = [[], ["news"], ["news", "law"], ["sport", "art"], [None, "news"], ["art"]]
    counts = [[], [7], [1, 2, 7], [8], [None]]
    moments = [1_700_000_000, 1_704_067_200, 1_709_251_200, 1_709_296_200, 1_735_603_200, 1_717_200_000]
    return pa.table(
        {
            "topic": pa.array(some(["science", "law", "sport", "", "Science"]), pa.string()),
            "title": pa.array(some(titles), pa.large_string()),
            "url": pa.array(some(urls), pa.string()),
            "score": pa.array(some([0.0, 0.05, 0.3, 0.31, 0.5, 0.55, 0.7, 0.95, 1.0]), pa.float64()),
            "words": pa.array(some([1, 10, 30, 50, 59, 60, 70, 99, 500]), pa.int32()),
            "is_short": pa.array(some([True, False]), pa.bool_()),
            "date": pa.array(some(dates), pa.string()),
            "when": pa.array([None if s is None else s * 10**6 for s in some(moments)], pa.timestamp("us", "UTC")),
            "number": pa.array(some(numbers), pa.string()),
            "tags": pa.array(some(tags), pa.list_(pa.string())),
            "counts": pa.array(some(counts), pa.list_(pa.int64())),
        }
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    path = tmp_path_factory.mktemp("where") / "rows.parquet"
    table = rows(3000)
    pq.write_table(table, path, row_group_size=700)
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return pq.read_table(path), connection, path


@pytest.mark.parametrize(("expression", "sql"), PAIRS, ids=[each for each, _ in PAIRS])
def test_expressions_are_those_of_duckdb(planted, expression, sql):
    table, connection, path = planted
    expected = [value for (value,) in connection.execute(f"select ({sql}) from read_parquet('{path}')").fetchall()]
    found = truth(parsed(expression), table).to_pylist()
    assert found == expected


def test_the_planted_rows_tell_expressions_apart(planted):
    """Nearly all are true of some rows, false of others, and missing for some."""
    kinds = [{*truth(parsed(expression), planted[0]).to_pylist()} for expression, _ in PAIRS]
    assert sum(len(each) == 3 for each in kinds) > 40


def test_numbers_that_are_none_are_missing():
    table = pa.table({"score": [1.0, float("nan"), None]})
    assert truth(parsed("score > 0"), table).to_pylist() == [True, None, None]
    assert truth(parsed("score is None"), table).to_pylist() == [False, True, True]


def test_hosts_top_level_domains_and_kinds_of_content():
    urls = [
        "https://WWW.Mill.Example:8080/a?b", "http://me:pw@grain.co.uk/", "https://192.0.2.1/x", "http://[2001:db8::1]/",
        "mailto:me@mill.example", "https://mill.example", "", None, "HTTPS://Über.example/x#y", "ftp://mill.example./f",
    ]  # fmt: skip
    kinds = ["text/html; charset=utf-8", "Text/HTML", " application/pdf ", "", None, *["a/b"] * 5]
    table = pa.table({"url": urls, "content_type": kinds})
    hosts = [
        "www.mill.example", "grain.co.uk", "192.0.2.1", "[2001:db8::1]", None, "mill.example", None, None,
        "über.example", "mill.example.",
    ]  # fmt: skip
    assert evaluate(parsed("host"), table).to_pylist() == hosts
    assert evaluate(parsed("tld"), table).to_pylist() == [
        "example", "uk", None, None, None, "example", None, None, "example", "example",
    ]  # fmt: skip
    found = evaluate(parsed("mime"), table).to_pylist()
    assert found == ["text/html", "text/html", "application/pdf", None, None, *["a/b"] * 5]
    own = pa.table({"host": ["mine"], "url": ["https://other.example"]})
    assert evaluate(parsed("host"), own).to_pylist() == ["mine"]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("topic = 'law'", "two values are compared by =="),
        ("topic == 'law' AND score > 1", "write `and`, `or`, `not`"),
        ("topic is null", "write `is None`"),
        ("topic == None", "write `is None` or `is not None`"),
        ("topic == null", "null is written None"),
        ("__import__('os')", "there is no function __import__"),
        ("topic.upper() == 'A'", "only columns, constants"),
        ("(lambda: 1)()", "only columns, constants"),
        ("[x for x in tags]", "only columns, constants"),
        ("topic[0] == 'a'", "only columns, constants"),
        ("f'{topic}' == 'a'", "only columns, constants"),
        ("topic if score else title", "score is a number, neither true nor false"),
        ("(topic if score > 0 else words) == 'a'", "is a text or a number; let both be of a kind"),
        ("lower(topic, title) == 'a'", "it takes 1"),
        ("topic in ('a', None)", "constants alone"),
        ("lower(topic=title)", "only columns, constants"),
        ("2 ** 9999999 > words", "only columns, constants"),
        ("not " * 60 + "is_short", "levels deep"),
        ("(" * 300 + "is_short" + ")" * 300, "cannot be read"),
        ("topic == '" + "a" * 5000 + "'", "4,000 are read at most"),
        ("", "cannot be read"),
        ("words > 99999999999999999999", "no number of 64 bits"),
        ("words in (1, 99999999999999999999)", "no number of 64 bits"),
        ("topic in ('a', '\\ud800')", "half a character"),
        ("topic > 5", "compares topic, a text, with 5, a number"),
        ("words == '5'", "use string()"),
        ("topic", "neither true nor false"),
        ("score and is_short", "score is a number, neither true nor false"),
        ("lower(words) == 'a'", "not a text"),
        ("topic + 1 > 2", "not a number"),
        ("matches(title, '(')", "regular expression"),
        ("when > 'yesterday'", "'yesterday' is no time"),
        ("tags == tags", "ask whether a value is in a list"),
        ("topic in title", "what is sought in title is a constant"),
        ("5 in tags", "the list holds values of another kind"),
        ("missing == 1", "there is no column missing"),
        ("is_short > False", "has no order"),
    ],
)
def test_what_has_no_meaning_says_why(planted, expression, said):
    with pytest.raises(ExpressionError, match=None) as found:
        truth(parsed(expression), planted[0].slice(0, 0))
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n > 0.5", [True, True, False, None]),
        ("n + 1 > n", [False, True, True, None]),  # float64 has neither 2^53 + 1 nor 2^53 + 1 + 1 of it
        ("n == 9007199254740993", [True, False, False, None]),
        ("n in (9007199254740993, 5)", [True, False, False, None]),
        ("n in (0.5, 1)", [False, True, False, None]),
    ],
)
def test_an_integer_above_the_floats_ends_no_run(expression, expected):
    table = pa.table({"n": pa.array([2**53 + 1, 1, -5, None], pa.int64())})
    assert truth(parsed(expression), table).to_pylist() == expected


def test_columns_and_clauses_of_an_expression():
    tree = parsed("lower(topic) == 'a' and (host in ('b', 'c') or score > 1) and not is_short and topic != title")
    assert columns(tree) == ["topic", "host", "score", "is_short", "title"]
    assert [ast.unparse(each) for each in clauses(tree, ast.And)] == [
        "lower(topic) == 'a'", "host in ('b', 'c') or score > 1", "not is_short", "topic != title",
    ]  # fmt: skip
    assert len(clauses(tree, ast.Or)) == 1


def test_whole_numbers_that_64_bits_do_not_hold_are_missing():
    column = pa.array([3, 2**63 - 1, 2**63, 2**64 - 1, None], pa.uint64())
    found = evaluate(parsed("int(count)"), pa.table({"count": column}))
    assert found.to_pylist() == [3, 2**63 - 1, None, None, None]
