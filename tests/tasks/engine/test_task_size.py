"""How many jobs are sent together, beside a simulation of a scheduler that sends tasks one after the other."""

import heapq

import pytest

from gristmill.tasks.engine.shared import MAX_SCHEDULER_SHARE, SECONDS, TASK_COST, task_size


def simulate(threads: int, job_seconds: float, jobs: int, together: int) -> tuple[float, float]:
    """Return the seconds until the last of the jobs has ended, and those that the scheduler is busy."""
    free, sent = [0.0] * min(threads, jobs), 0.0
    for start in range(0, jobs, together):
        sent += TASK_COST
        begins = max(sent, heapq.heappop(free))
        heapq.heappush(free, begins + job_seconds * min(together, jobs - start))
    return max(free), sent


def largest_first(size: int) -> list[int]:
    """All sizes to try: at least 20 per factor of ten."""
    return sorted({max(1, round(10 ** (power / 20))) for power in range(100)} & set(range(1, size + 1)))


@pytest.mark.parametrize("threads", [200, 1_600, 6_400])
@pytest.mark.parametrize("job_seconds", [0.01, 0.3, 1.0, 8.0, 20.0])
def test_a_long_phase_keeps_the_scheduler_busy_for_less_than_its_share(threads, job_seconds):
    jobs = 10**9
    size = task_size(threads, job_seconds, jobs)
    assert threads / (size.jobs * job_seconds) * TASK_COST <= MAX_SCHEDULER_SHARE * 1.001
    assert size.jobs == 1 or (size.jobs - 1) * job_seconds <= size.seconds, "and no more are sent together"


@pytest.mark.parametrize("threads,jobs", [(200, 300), (1_600, 4_000), (6_400, 6_400), (6_400, 20_000)])
@pytest.mark.parametrize("job_seconds", [0.05, 0.5, 2.0])
def test_few_jobs_end_about_as_early_as_with_the_best_size(threads, jobs, job_seconds):
    ends, _ = simulate(threads, job_seconds, jobs, task_size(threads, job_seconds, jobs).jobs)
    best = min(simulate(threads, job_seconds, jobs, size)[0] for size in largest_first(-(-jobs // threads) * 20))
    assert ends <= 1.6 * best + SECONDS
    if threads == jobs == 6_400 and job_seconds < 1:
        assert ends < 0.7 * simulate(threads, job_seconds, jobs, 1)[0], "earlier than one by one"


def test_small_clusters_send_as_much_together_as_a_quarter_of_a_second():
    for threads in (1, 8, 32):
        assert task_size(threads, 0.01, 10_000) == (SECONDS, 25)
        assert task_size(threads, 30.0, 10_000) == (SECONDS, 1)
        assert task_size(threads, 0.0, 10_000) == (SECONDS, 64), "jobs that do nothing"
    assert task_size(6_400, 0.01, 0) == (SECONDS, 25), "unknown how many remain"
