"""Instants of the dates that crawls, mail, servers, databases and people write.

What has two readings (`01/02/2024`), is in months of other languages, is relative or is a day number of a spreadsheet
has no instant: a wrong date is worse than none.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone

from gristmill.storage.printable import one_line

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# A longer value is not a date.
_LONGEST = 128

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("jan january", "feb february", "mar march", "apr april", "may", "jun june", "jul july", "aug august"),
            *("sep sept september", "oct october", "nov november", "dec december"),
        ),
        1,
    )
    for name in names.split()
}
_AMERICAN = (("E", -5), ("C", -6), ("M", -7), ("P", -8))
# RFC 5322, 4.3; ISO 8601 and RFC 3339 have Z.
_ZONES = {"Z": 0, "UT": 0, "UTC": 0, "GMT": 0}
_ZONES |= {f"{zone}{kind}T": hours + (kind == "D") for zone, hours in _AMERICAN for kind in "SD"}

_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?\.?(?:, ?| ))?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_YEAR = r"(?P<year>\d{4})"
_ANY_YEAR = r"(?P<year>\d{4}|\d\d)"
_TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,12}))?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?"
)
_NAMED_ZONE = rf"(?P<zone>{'|'.join(sorted(_ZONES, key=len, reverse=True))})"
_ZONE = rf"(?: ?{_NAMED_ZONE})?(?: ?(?P<offset>[+-]\d\d(?::?\d\d)?))?(?: UTC)?"
_THEN = rf"(?:(?:,? (?:at )?|T){_TIME}{_ZONE})?"
_FORMS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # ISO 8601 with what `datetime.fromisoformat` refuses, and years first by other signs
        rf"{_YEAR}(?P<sign>[-/.])(?P<number>\d{{1,2}})(?P=sign)(?P<day>\d{{1,2}}){_THEN}",
        # RFC 5322, RFC 850, Netscape's cookies, Oracle
        rf"{_WEEKDAY}{_DAY}(?: of )?[ -]?{_MONTH},?[ -]{_ANY_YEAR}{_THEN}",
        # JavaScript, newspapers
        rf"{_WEEKDAY}{_MONTH} {_DAY},? {_YEAR}{_THEN}",
        # asctime, date(1), Twitter
        rf"{_WEEKDAY}{_MONTH} {_DAY} {_TIME}{_ZONE} {_YEAR}",
        # the Common Log Format
        rf"{_DAY}/{_MONTH}/{_YEAR}:{_TIME}{_ZONE}",
        rf"{_MONTH},? {_YEAR}",
    )
]
_ORDINAL = re.compile(r"(\d{4})-?(\d{3})")
_DIGITS = re.compile(r"\d{14}(?:\d{3})?|\d{12}")
_NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?(?:e\+?\d{1,2})?", re.IGNORECASE)
# What follows a date and says nothing more of it: a comment of mail, the zone's name by RFC 9557.
_REMARK = re.compile(r" ?\([^()]*\)$|\[[^\[\]]*\]$")
# A fraction of an hour or a minute (ISO 8601), which `datetime.fromisoformat` takes for one of a second.
_PART_OF_A_MINUTE = re.compile(r"[-\d]{8,10}[Tt ]\d\d(?::?\d\d)?[.,]")
# Of Unix times the digits before the point, by their unit: 1973 to 2286, and as long before 1970.
_UNITS = ((9, 10, 10**6), (12, 13, 10**3), (15, 16, 1), (18, 19, 10**-3))
# Years that databases write for no date.
_PLACEHOLDERS = (1, 9999)


def instant(value: str | None) -> int | None:
    """Microseconds since 1970 of a date as it is written; None for what is none.

    ISO 8601 and its profile for WARC (W3C-DTF), which may stop after the year or the month; Unix times in seconds,
    milliseconds, microseconds and nanoseconds (1973 to 2286); dates of mail (RFC 5322), HTTP (RFC 9110) and the Common
    Log Format; the 14 digits of archives; year, month, day with `-`, `/` or `.`; English with the month by its name.
    Finer parts than given are taken as the least, and a time without a zone as UTC. Years of two digits are 1950 to
    2049. A leap second is the second before it. Raises nothing.
    """
    text = (value or "").strip("\ufeff \t\r\n")
    if not text or len(text) > _LONGEST or not text.isascii():
        return None
    try:
        moment = _moment(text)
        if moment is None or moment.year in _PLACEHOLDERS:
            return None
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def _moment(text: str) -> datetime | None:
    """Raises ValueError, OverflowError for days and hours that there are not."""
    if text[:4].isdigit() and len(text) in (4, 7) and text[4:5] in ("", "-"):
        text += "-01-01" if len(text) == 4 else "-01"
    if _PART_OF_A_MINUTE.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    if _NUMBER.fullmatch(text):
        return _of_number(text)
    if ordinal := _ORDINAL.fullmatch(text):
        return _of_ordinal(int(ordinal[1]), int(ordinal[2]))
    text = " ".join(_REMARK.sub("", text).split())
    match = next((match for form in _FORMS if (match := form.fullmatch(text))), None)
    return _of_parts(match.groupdict()) if match else None


def _of_number(text: str) -> datetime | None:
    whole = text.removesuffix(".0")
    if _DIGITS.fullmatch(whole):
        form = "%Y%m%d%H%M" if len(whole) == 12 else "%Y%m%d%H%M%S"
        try:
            return datetime.strptime(whole[:14], form) + timedelta(milliseconds=int(whole[14:] or 0))
        except ValueError:
            pass  # twelve digits may be milliseconds
    if ordinal := _ORDINAL.fullmatch(whole):
        return _of_ordinal(int(ordinal[1]), int(ordinal[2]))
    digits = whole if whole.lstrip("-").isdigit() else f"{float(whole):.6f}"
    size = len(digits.lstrip("-").partition(".")[0].lstrip("0"))
    for least, most, microseconds in _UNITS:
        if least <= size <= most:
            number = int(digits) if "." not in digits else float(digits)
            return _EPOCH + timedelta(
                microseconds=int(number * microseconds) if microseconds >= 1 else int(number) // 1000
            )
    return None


def _of_ordinal(year: int, day: int) -> datetime:
    moment = datetime(year, 1, 1) + timedelta(days=day - 1)
    if moment.year != year:
        raise ValueError(f"{year} has no day {day}")
    return moment


def _of_parts(parts: dict[str, str | None]) -> datetime:
    get = parts.get
    year = int(get("year") or 0)
    if year < 100 and len(get("year") or "") == 2:
        year += 2000 if year < 50 else 1900
    number = get("number")
    month = int(number) if number else _MONTHS[(get("month") or "").lower()]
    day = date(year, month, int(get("day") or 1))
    hour, minute = int(get("hour") or 0), int(get("minute") or 0)
    if half := (get("half") or "").lower():
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} is not an hour of twelve")
        hour = hour % 12 + 12 * (half == "p")
    days = hour == 24 and not minute and not int(get("second") or 0)
    microsecond = int((get("fraction") or "0").ljust(6, "0")[:6])
    second = min(int(get("second") or 0), 59) if get("second") == "60" else int(get("second") or 0)
    moment = datetime(day.year, day.month, day.day, 0 if days else hour, minute, second, microsecond, _zone(parts))
    return moment + timedelta(days=int(days))


def _zone(parts: dict[str, str | None]) -> timezone:
    offset = (parts.get("offset") or "").replace(":", "")
    minutes = 60 * _ZONES[(parts.get("zone") or "Z").upper()]
    if offset:
        minutes += (1 if offset[0] == "+" else -1) * (60 * int(offset[1:3]) + int(offset[3:] or 0))
    return timezone(timedelta(minutes=minutes))


_SHOWN_DATES, _SHOWN_DATE = 3, 40  # that cannot be read, and characters of each


@dataclass
class DateCounts:
    """How many documents have no date, and how many one that says no instant, of which `examples` are the first."""

    none: int = 0
    unread: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, dates: Iterable[str | None]) -> None:
        for text in dates:
            if not (text and text.strip()):
                self.none += 1
            elif instant(text) is None:
                self.unread += 1
                shown = one_line(text)[:_SHOWN_DATE]
                if len(self.examples) < _SHOWN_DATES and shown not in self.examples:
                    self.examples.append(shown)
