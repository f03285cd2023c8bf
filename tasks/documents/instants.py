"""Times as archives and pages write them. Separate: deduplication and expressions read them alike."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant(date: str | None) -> int | None:
    """Microseconds since 1970 of a date as archives have it; None for what is none.

    ISO 8601 and its profile for WARC (W3C-DTF), which may stop after the year or the month; finer parts than given are
    taken as the least, and a time without a zone as UTC.
    """
    text = (date or "").strip()
    if text.isascii() and text[:4].isdigit() and len(text) in (4, 7):
        text += "-01-01" if len(text) == 4 else "-01"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MICROSECOND
