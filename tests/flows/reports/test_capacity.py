"""The capacity of a crawl follows from what the files of a run say."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gristmill.flows.experiments.options import CrawlOptions
from gristmill.flows.experiments.planning.capacity import capacity, limiting_cores
from gristmill.flows.experiments.planning.phase_costs import (
    FEW,
    FIRST,
    SAME,
    SHARED,
    SHORT,
    UNFILLED,
    VARIED,
    WORKER,
    Crawl,
    phase_capacity,
)
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.finished import finished
from gristmill.storage import layout
from gristmill.tasks.engine.job_costs import SAMPLE, JobCost, PhaseCost
from gristmill.tasks.engine.shared import JOB_COST, MAX_SCHEDULER_SHARE, TASK_COST


def test_a_crawl_of_ten_times_the_documents_takes_ten_times_as_much(undisturbed, recipe):
    path = undisturbed.write(recipe)
    report = finished(str(path), MachineSettings(home=str(undisturbed.home("undisturbed"))))
    pages = report.steps[0].documents_in
    shards = len(report.corpus.sources)
    machines = {"machines": 4, "cores": 8, "memory": 64.0}
    prices = {"core_hour": 36.0, "terabyte_month": 1e6, "million_requests": 2.0}
    found = capacity(report, CrawlOptions(10 * pages, -(-pages // shards), **machines, **prices))
    size = requests = jobs = 0.0
    constant = {"perplexity_model", "quality_model", "tokenizer", "evaluation_tokens"}
    for name, folder in undisturbed.stages("undisturbed").items():
        stage = name.rpartition("-")[0]
        if stage == "model":
            continue
        phases = json.loads((folder / "cost.json").read_text())["phases"]
        for phase in phases.values():
            factor = 10 if phase["grows"] == "documents" else min(10, phase["full"])
            assert phase["grows"] == "documents" or phase["once"] or stage in (*constant, "documents")
            jobs += 1 if phase["once"] else factor * phase["jobs"]
            assert phase["once"] or phase["full"] == 1
            requests += factor * (2 * phase["reads"] + phase["writes"])
            assert phase["reads"] + phase["writes"] > 0 and phase["longest"] <= phase["cpu_seconds"]
            assert 1 <= phase["processes"] <= min(2, phase["jobs"])
            assert phase["start_seconds"] + phase["first_seconds"] <= phase["cpu_seconds"] + 1e-6
            assert len(phase["sizes"]) == phase["jobs"]
        left = dict.fromkeys(phases, 0)
        for part in layout.parts(str(folder), layout.manifest(str(folder))):
            left[part.phase] += sum(facts["bytes"] for facts in part.files.values())
        assert left == {name: phase["bytes"] for name, phase in phases.items()}
        size += sum((10 if phases[name]["grows"] == "documents" else 1) * of for name, of in left.items())
    assert found.measured == pages and found.unmeasured == ()
    assert found.bytes == pytest.approx(size, abs=20)
    assert found.requests == pytest.approx(requests, rel=1e-3) and found.jobs == jobs
    printed = found.as_json()
    assert printed["core_hours"] == found.core_hours and set(printed["gaps"]) >= {phase.label for phase in found.gaps}
    assert found.storing == pytest.approx(size / 1e6)
    if found.core_hours is None:  # all of the run took a few seconds
        assert found.computing is None and found.hours is None and found.gaps
        assert "gristmill run --tokens-only" in found.remedy
        corpus = replace(found, stages=tuple(stage for stage in found.stages if stage.stage != "tokens"))
        assert "gristmill corpus" in corpus.remedy  # a recipe without a mixture has no tokens
    else:
        assert found.computing == found.core_hours.times(36) and not found.gaps
    assert found.requesting == pytest.approx(requests / 5e5, rel=1e-3)
    divided = sum(phase.jobs for phase in found.phases if not phase.alone)
    for seconds in (3600 * found.scheduling.low, 3600 * found.scheduling.high):
        assert divided * JOB_COST <= seconds <= divided * (JOB_COST + TASK_COST)
    assert found.stages[0].documents_in == 10 * pages
    assert found.tokens == 10 * report.tokens
    for phase in found.phases:
        assert phase.core_hours.low <= phase.core_hours.high and phase.core_hours.is_known != bool(phase.basis.gap)
        assert phase.hours.low >= phase.core_hours.low / phase.workers - 1e-9
        assert phase.workers <= min(32, phase.jobs) and (not phase.alone or phase.hours == phase.core_hours)
        assert phase.memory is None or phase.memory >= WORKER


def planted(rng, law, documents, processes, deviation, counted=1.0):
    """The cost of a phase whose jobs take what a law says: seconds of a process, of a job, of a document, of a byte."""
    of_process, of_job, of_document, of_byte = law
    cost = PhaseCost("documents")
    for number, held in enumerate(documents):
        first, size = number < processes, int(held * 3000 * rng.lognormal(0, 0.2))
        true = first * of_process + of_job + of_document * held + of_byte * size
        seconds = true * rng.lognormal(-(deviation**2) / 2, deviation) + abs(rng.normal(0, 0.01))
        cost.add(JobCost(seconds + first * counted, first * counted, first, read_bytes=size), 10, int(held))
    return cost


def shapes(rng):
    """Pages of files: of one size, of very different ones, small ones beside large ones."""
    files = int(rng.integers(1, 40))
    return [
        np.full(files, 300),
        np.maximum(1, rng.lognormal(5, 1, files)).astype(int),
        rng.choice([10, 1000], files),
        np.array([3000, 2900, 40]),
    ][rng.integers(4)]


def test_ranges_hold_what_planted_laws_take_or_are_not_known():
    """200 runs with laws, sizes of files and numbers of processes of all kinds, and crawls of 4 to 100,000 times the
    pages: of the ranges that are narrow enough to be reported, at least 95% hold what the crawl takes."""
    rng = np.random.default_rng(60)
    held, widths = [], []
    for _ in range(200):
        law = rng.choice([0, 0.3, 3]), rng.choice([0, 0.05, 0.5]), rng.choice([1e-3, 1e-2]), rng.choice([0, 1e-6])
        documents, deviation = shapes(rng), rng.choice([0.03, 0.1, 0.2])
        processes = min(len(documents), int(rng.integers(1, 9)))
        cost = planted(rng, law, documents, processes, deviation)
        factor, larger = rng.choice([4, 16, 1000, 1e5]), rng.choice([1, 1, 4, 50])
        shards = max(1, round(len(documents) * factor / larger))
        cores = int(rng.choice([processes, 64]))
        found = phase_capacity("s", "p", cost, Crawl(factor, len(documents), shards, CrawlOptions(cores=cores)))
        assert found.jobs == shards and found.workers == min(cores, shards)
        if not found.core_hours.is_known:
            assert found.basis.gap in (SHORT, FEW, FIRST, SAME, VARIED)
            continue
        assert not found.basis.gap
        again = planted(rng, law, documents, 0, deviation)
        true = (
            (again.cpu_seconds) * factor + found.workers * (law[0] + 1.0) - law[1] * (len(documents) * factor - shards)
        )
        held.append(found.core_hours.low <= true / 3600 <= found.core_hours.high)
        widths.append(found.core_hours.high / found.core_hours.low)
    assert len(held) > 80, "most are known"
    assert np.mean(held) >= 0.95
    assert np.median(widths) < 2


def test_two_large_files_of_two_workers_are_not_taken_for_their_start():
    """With one small file more, the sum was 57 times too low."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cost = planted(rng, (0.3, 0.02, 4e-3, 0), np.array([3000, 2900, 40]), 2, 0.1)
        crawl = Crawl(444_444, 3, 90_000, CrawlOptions())
        found = phase_capacity("documents", "extract", cost, crawl)
        true = 5940 * 444_444 * 4e-3 / 3600
        assert not found.core_hours.is_known or found.core_hours.low <= true <= found.core_hours.high
        assert found.core_hours.high > true, "it is never promised for less"


def test_of_one_job_the_second_that_a_start_may_take_is_all_that_is_in_doubt():
    cost = PhaseCost("documents", once=True)
    cost.add(JobCost(30.0, first=True, memory=1 << 20, read_bytes=10**6), 10)
    found = phase_capacity("candidates", "label", cost, Crawl(100.0, 4, 400, CrawlOptions()))
    assert found.core_hours.low * 3600 == pytest.approx((29 * 100 + 1) / 1.15)
    assert found.core_hours.high * 3600 == pytest.approx(3000 * 1.15)
    assert found.hours == found.core_hours and found.memory == WORKER + (100 << 20) and not found.basis.gap


def test_less_than_a_second_is_a_bound_and_says_nothing_of_memory():
    cost = PhaseCost("documents", once=True)
    cost.add(JobCost(0.3, first=True, memory=1 << 20, read_bytes=10**6), 10)
    found = phase_capacity("candidates", "label", cost, Crawl(100.0, 4, 400, CrawlOptions()))
    assert (found.core_hours.low * 3600, found.core_hours.high * 3600) == pytest.approx((0.3 / 1.6, 30 * 1.6))
    assert found.basis.gap == SHORT and found.memory is None


def test_what_all_jobs_read_and_what_grows_with_the_corpus_widens_the_range():
    """A corpus ten times as large fills it, so a crawl a hundred times as large may take ten times as much a job."""
    rng = np.random.default_rng(1)
    found = []
    for shared in (1.0, 10.0):
        cost = planted(rng, (0, 0, 1e-2, 0), np.full(20, 300), 2, 0.05)
        cost.shared = shared
        found.append(phase_capacity("heldout", "split", cost, Crawl(100.0, 20, 2000, CrawlOptions())))
    alone, together = found
    assert together.core_hours.high == pytest.approx(10 * alone.core_hours.high, rel=0.2)
    assert not alone.basis.gap and together.basis.gap == SHARED


def test_jobs_without_sizes_are_not_measured():
    assert not PhaseCost("documents", jobs=3, cpu_seconds=9.0).is_sized


def test_a_phase_keeps_the_sizes_of_some_of_its_jobs():
    cost = PhaseCost("documents")
    for number in range(10_000):
        cost.add(JobCost(1.0, read_bytes=number), 1, number)
    assert SAMPLE <= len(cost.sizes) <= 2 * SAMPLE
    assert [size.documents for size in cost.sizes] == list(range(0, 10_000, cost.stride))
    assert PhaseCost.from_json(json.loads(json.dumps(cost.as_json()))) == cost


@pytest.mark.parametrize("full, factor", [(1.0, 1), (3.0, 3), (100.0, 8)])
def test_what_works_on_a_sample_grows_at_most_until_that_is_full(full, factor):
    cost = PhaseCost("constant", once=True, full=full)
    cost.add(JobCost(5.0, first=True, memory=1 << 20, read_bytes=10), 10)
    found = phase_capacity("tokenizer", "train", cost, Crawl(8.0, 4, 32, CrawlOptions()))
    assert found.core_hours.low * 3600 == pytest.approx(5 / 1.15) and found.memory == WORKER + factor * (1 << 20)
    assert found.core_hours.high * 3600 == pytest.approx(5 * factor * 1.15)
    assert found.basis.gap == ("" if factor == 1 else UNFILLED)


def test_what_compares_documents_in_clusters_takes_their_root_more():
    """Four times the documents: eight times the CPU time, four times the jobs."""
    cost = PhaseCost("documents^1.5")
    for number in range(9):
        cost.add(JobCost(100.0, first=not number, memory=1 << 20, reads=2, writes=1, read_bytes=10**6), 10)
    found = phase_capacity("semantic_duplicates", "choose", cost, Crawl(4.0, 5, 40, CrawlOptions()))
    assert found.core_hours.low < 900 * 8 / 3600 < found.core_hours.high and found.jobs == 36


def test_memory_of_a_machine_limits_how_many_of_its_cores_work(undisturbed, recipe):
    path = undisturbed.write(recipe)
    report = finished(str(path), MachineSettings(home=str(undisturbed.home("undisturbed"))))
    roomy, narrow = (
        capacity(report, CrawlOptions(10**6, 1000, cores=64, memory=memory)) for memory in (None, 2 * WORKER / 1e9)
    )
    slower = [(a, b) for a, b in zip(narrow.phases, roomy.phases, strict=True) if a.hours.high > b.hours.high]
    assert slower and all(a.workers < b.workers for a, b in slower)
    assert all(phase.workers <= 2 for phase in narrow.phases if phase.memory)
    assert max(phase.workers for phase in roomy.phases) == 64


def test_more_cores_than_the_scheduler_can_serve_shorten_nothing():
    cost = planted(np.random.default_rng(2), (0, 0, 1e-2, 0), np.full(20, 300), 2, 0.05)  # jobs of three seconds
    found = {
        cores: phase_capacity("s", "p", cost, Crawl(5_000.0, 20, 100_000, CrawlOptions(cores=cores)))
        for cores in (100, 600, 20_000, 100_000)
    }
    for cores, phase in found.items():
        assert phase.hours.low >= phase.scheduling.low and phase.hours.high >= phase.scheduling.high
        assert phase.scheduling.low * 3600 >= 100_000 * JOB_COST
        if cores <= 600:
            assert phase.scheduling.high * 3600 == pytest.approx(100_000 * (JOB_COST + TASK_COST)), "one job a task"
            assert phase.hours.high == pytest.approx(phase.core_hours.high / cores)
    # several short jobs in a task keep the scheduler free
    assert found[20_000].scheduling.high < found[600].scheduling.high


@pytest.mark.parametrize("seconds", [0.5, 4.0, 60.0])
def test_the_scheduler_is_the_limit_where_workers_end_jobs_faster_than_it_hands_them_out(seconds):
    """Endless jobs: tasks take at most MAX_SCHEDULER_SHARE of its time, and the rest is enough for
    (1 - MAX_SCHEDULER_SHARE) / JOB_COST jobs a second."""

    def busy(cores: int) -> float:
        together = math.ceil(cores * TASK_COST / MAX_SCHEDULER_SHARE / seconds)
        return cores / seconds * (JOB_COST + TASK_COST / together)

    cores = limiting_cores([(10**9, seconds)])
    least = seconds * (1 - MAX_SCHEDULER_SHARE) / JOB_COST
    assert least <= cores <= 1.25 * least
    assert busy(cores - 1) < 1 <= busy(cores)


def test_few_long_jobs_never_have_the_scheduler_as_their_limit():
    assert limiting_cores([(100, 60.0), (1, 5.0)]) is None
    assert limiting_cores([]) is None
    assert limiting_cores([(100, 60.0), (10**6, 0.01)]) is not None
