"""Values of columns that JSON has no type for, in exported lines."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import orjson
import pyarrow as pa

from gristmill.tasks.documents.export import _writing, shard_name
from gristmill.tasks.reading.members import zstd


def test_lines_have_decimals_binary_values_and_durations_as_text(tmp_path):
    table = pa.table(
        {
            "price": pa.array([Decimal("0.10"), None], pa.decimal128(10, 2)),
            "raw": [b"\xff\x00", b""],
            "took": pa.array([timedelta(seconds=90), None]),
            "at": pa.array([datetime(2024, 5, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "score": [float("inf"), 0.5],
        }
    )
    with _writing(str(tmp_path), 0, "jsonl", table.schema) as write:
        write(table)
    lines = zstd.decompress((tmp_path / shard_name(0, "jsonl")).read_bytes()).splitlines()
    assert [*map(orjson.loads, lines)] == [
        {"price": "0.10", "raw": "ff00", "took": "0:01:30", "at": "2024-05-01T00:00:00+00:00", "score": None},
        {"price": None, "raw": "", "took": None, "at": None, "score": 0.5},
    ]
