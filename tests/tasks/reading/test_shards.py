"""About how many shards files have, against those that they are put into."""

import pytest

from gristmill.tasks.reading.listing import Shard, expected_shards, together


@pytest.mark.parametrize("files", [1, 2, 16, 160, 1_600])
@pytest.mark.parametrize("shard_bytes", [4_000, 10**9])
def test_of_equal_files_there_are_as_many_as_expected(files, shard_bytes):
    read = [Shard("jsonl", f"folder/{number:04d}.jsonl", f"{number:04d}.jsonl") for number in range(files)]
    assert len(together(read, [1_000] * files, shard_bytes)) == expected_shards(files, 1_000 * files, shard_bytes)
    assert expected_shards(files, None, shard_bytes) == files  # sizes are unknown: none are put together
