"""What a stage holds, in a few values: logical digests of JSON and of all parts, and counts of documents summed up.
The digest of rows is in `gristmill.storage.row_digest`.

Two stages with equal digests hold the same values, whatever libraries wrote their files, in whatever folder, at
whatever time. Digests are xxh3-128, hexadecimal.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import xxhash

# A stage's folder as another stage's files name it, `../<name>-<key>/`: the key says how the stage was made, and
# nothing about its contents.
_STAGE_PATH = re.compile(rb"\.\./([A-Za-z0-9_]+)-[0-9a-f]{16}/")


def digest_json(value: Any) -> str:
    """The digest of a JSON value: keys sorted, and without the keys of stages in paths."""
    return xxhash.xxh3_128_hexdigest(_plain(value))


# In a job's record: addresses that it read from. They say where its input was, and nothing about the contents.
ADDRESSES = "read_from"


class PartsDigest:
    """The digest of what a stage's jobs recorded and wrote, and of its result."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_128()

    def add(self, number: int, record: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a job: its number, its record, and what is known of its files, as `gristmill.storage.files.facts`."""
        known = {name: of_file(facts) for name, facts in files.items()}
        own = {name: value for name, value in record.items() if name != ADDRESSES}
        given = [number, own, {name: digest for name, digest in known.items() if digest}]
        self._digest.update(_plain(given) + b"\n")

    def hexdigest(self, result: Any) -> str:
        """The digest of all jobs and of the stage's result."""
        whole = self._digest.copy()
        whole.update(_plain(result))
        return whole.hexdigest()


def of_file(facts: Mapping[str, Any]) -> str:
    """The logical digest of a file by what is recorded of it: of its bytes, where it has no other. Empty for a file
    that is no part of the contents, such as a log with times."""
    return str(facts["values"] if "values" in facts else facts["content"])


def _plain(value: Any) -> bytes:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return _STAGE_PATH.sub(rb"../\1/", data)


_SUMMED = ("rows_in", "rows_out", "characters_in", "characters_out")


def sum_counts(shards: Iterable[list[dict]]) -> list[dict]:
    """The counts of steps (`gristmill.storage.ledger.count`) over shards, in the order of the steps."""
    totals: dict[str, dict] = {}
    for steps in shards:
        for step in steps:
            tallies: dict[str, dict[str, int]] = {name: {} for name in ("drops", "edits") if name in step}
            total = totals.setdefault(step["step"], {**step, **tallies, **dict.fromkeys(_SUMMED, 0)})
            for name in _SUMMED:
                total[name] = None if step[name] is None else total[name] + step[name]
            for tally in tallies:
                for rule, number in step[tally].items():
                    total[tally][rule] = total[tally].get(rule, 0) + number
    return list(totals.values())
