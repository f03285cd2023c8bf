"""Which instants dates have, as crawls, mail, servers, databases and people write them."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from gristmill.tasks.documents.instants import instant
from gristmill.tasks.reading.tables import as_text

_SECOND = 1_704_164_645  # 2024-01-02T03:04:05Z


@pytest.mark.parametrize(
    "value",
    [
        *(_SECOND, _SECOND * 10**3, _SECOND * 10**6, _SECOND * 10**9, float(_SECOND), _SECOND * 1000.0, f"{_SECOND}"),
        *(f" {_SECOND}.0 ", Decimal(_SECOND), _SECOND * 1e9, 20240102030405, "20240102030405000"),
        *("Tue, 02 Jan 2024 03:04:05 +0000", "Mon, 01 Jan 2024 19:04:05 -0800", "Mon, 01 Jan 2024 22:04:05 EST"),
        *(
            "Tue,02 Jan 2024 03:04:05 +0000",
            "2 Jan 2024 03:04:05 UT",
            "Tue, 02 Jan 2024 04:04:05 +0100 (CET)",
            "tue,  2 jan 2024\r\n 03:04:05 gmt",
        ),
        *("Tuesday, 02-Jan-24 03:04:05 GMT", "Tue Jan  2 03:04:05 2024", "Tue Jan  2 03:04:05 UTC 2024"),
        *("Tue Jan 02 03:04:05 +0000 2024", "02/Jan/2024:04:04:05 +0100", "Tue, 02-Jan-2024 03:04:05 GMT"),
        "Tue Jan 02 2024 04:04:05 GMT+0100 (Central European Standard Time)",
        *("2024-01-02T03:04:05Z", "2024-01-02t03:04:05z", "20240102T083405+0530", "2024-01-02T05:04:05+02"),
        *("2024-01-02 03:04:05", "2024-01-02 03:04:05 UTC", "2024-01-02 04:04:05+01", "2024-01-02T03:04:05 +00:00"),
        *("2024-01-02T04:04:05+01:00[Europe/Paris]", "2024-01-02 03:04:05 +0000 UTC", "2024-W01-2T03:04:05"),
        *("\ufeff2024-01-02T03:04:05Z\n", "2024/1/2 3:04:05", "2024.01.02 03:04:05", "2-Jan-2024 03:04:05"),
        *("January 2nd, 2024 at 3:04:05 a.m.", "Jan. 2, 2024, 03:04:05 AM UTC", "2nd of January 2024 03:04:05"),
        datetime(2024, 1, 2, 3, 4, 5),
        datetime(2024, 1, 2, 8, 34, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_one_second_in_many_forms(value):
    assert instant(as_text(value)) == _SECOND * 10**6


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("2024", "2024-01-01"),
        ("2024-03", "2024-03-01"),
        ("March 2024", "2024-03-01"),
        ("20240229", "2024-02-29"),
        ("2024-060", "2024-02-29"),
        ("2024060", "2024-02-29"),
        ("Sept. 5, 2023", "2023-09-05"),
        ("Sat, 02 Jan 99 00:00:00 GMT", "1999-01-02"),
        ("02-JAN-24", "2024-01-02"),
        ("2024-01-02T24:00:00Z", "2024-01-03"),
        ("2024-02-29T23:59:60Z", "2024-02-29T23:59:59"),
        ("May 5, 2023 12:04 AM", "2023-05-05T00:04:00"),
        ("-315619200", "1960-01-01"),
        ("999999999999", "2001-09-09T01:46:39.999"),
        ("202401020304", "2024-01-02T03:04:00"),
        ("1704164645.25", "2024-01-02T03:04:05.25"),
        ("2024-01-02T03:04:05,5Z", "2024-01-02T03:04:05.5"),
        (str(date(2024, 1, 2)), "2024-01-02"),
    ],
)
def test_instants(text, right):
    moment = datetime.fromisoformat(right).replace(tzinfo=UTC)
    assert instant(text) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "null", "NaN", "N/A", "-", "True", "yesterday", "3 days ago", "12:30", "Jan 2", "555-0123"),
        *("01/02/2024", "13/01/2024", "01/02/03", "45293", "45293.5", "1e+30", "inf", "9" * 5000, "99999999999"),
        *(
            "2024-02-30",
            "2023-366",
            "2024-13-01",
            "0000-00-00 00:00:00",
            "00000000000000",
            "20241302",
            "20240102996060",
        ),
        *("February 30, 2024", "Tue, 32 Jan 2024 03:04:05 +0000", "Jan 2, 2024 13:04 PM", "2024-01-02T25:00:00Z"),
        # a fraction of a minute or an hour (ISO 8601), which is rare and none of a second
        *("2024-01-02T03:04,15Z", "2024-01-02T03.5Z", "20240102T0304.25Z", "2024-01-02 03:04.5"),
        *("2 janvier 2024", "mar. 2 janv. 2024", "2 mars 2024", "2 marraskuuta 2024", "2024年1月2日", "10.1.2.24"),
        *("0001-01-01T00:00:00Z", "9999-12-31", "2024-01-02T" + "0" * 100_000, "[2024, 1, 2]", "1.2.2024-rc1"),
    ],
)
def test_what_is_no_date_or_has_two_readings_is_none(text):
    assert instant(text) is None
