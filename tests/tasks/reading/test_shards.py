"""How many shards files have, at least, against those that they are put into."""

from hypothesis import given
from hypothesis import strategies as st

from gristmill.tasks.reading.listing import Shard, least_shards, together


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.integers(1, 10**6))
def test_there_are_as_many_as_a_check_says(sizes, shard_bytes):
    read = [Shard("jsonl", f"folder/{number:02d}.jsonl", f"{number:02d}.jsonl") for number in range(len(sizes))]
    assert least_shards(len(sizes), sum(sizes), shard_bytes) <= len(together(read, sizes, shard_bytes))


def test_equal_small_files_are_a_sixteenth_of_the_source_together():
    read = [Shard("jsonl", f"folder/{number:03d}.jsonl", f"{number:03d}.jsonl") for number in range(160)]
    assert len(together(read, [1_000] * 160, 10**9)) == least_shards(160, 160_000, 10**9) == 16
    assert least_shards(160, None, 10**9) == 160  # sizes are unknown: none are put together
