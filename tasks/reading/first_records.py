"""A look at the first files of each source, before all are read: whether there is anything to be read."""

from collections.abc import Sequence
from itertools import islice

from gristmill.storage import files
from gristmill.storage.remote.redact import redact_url
from gristmill.tasks.engine.options import current
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.shard import read
from gristmill.tasks.reading.sources import format_of

# files that are looked at, and records of a file after which it is believed
FILES = 3
_RECORDS = 1000


def look(folder: str, number: int, source: str, shards: Sequence[Shard], max_bytes: int) -> dict:
    """Read the first local files of a source up to the first record that can be one of a document.

    Raises ValueError, which names a file, the recipe's key and the remedy, if none of the files has one.
    """
    looked = [shard for shard in shards if format_of(shard.format).wanted and files.is_local(shard.path)]
    problems = [_problem(shard, max_bytes) for shard in looked]
    if problems and None not in problems:
        kind = format_of(looked[0].format)
        more = f", nor have {len(looked) - 1} others" if len(looked) > 1 else ""
        raise ValueError(
            f"the source {source}: {redact_url(looked[0].path)} {problems[0]}{more}: name files under `{kind.key}` "
            f"that have {kind.wanted.format(text=looked[0].columns.text)}, or take the source out of the recipe"
        )
    return {"files": len(looked)}


def _problem(shard: Shard, max_bytes: int) -> str | None:
    """Why nothing can be read of a file; None if something can, or it has many records."""
    seen = 0
    rules = set()
    for _, record in islice(read(shard, max_bytes, False, current().remote_io), _RECORDS):
        if record.problem is None:
            return None
        seen += 1
        rules.add(record.problem[0])
    if seen == _RECORDS:
        return None
    return f"has nothing that can be read ({', '.join(sorted(rules))})" if seen else "is empty"
