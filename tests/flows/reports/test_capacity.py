"""The capacity of a crawl follows from what the files of a run say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.experiments.planning.capacity import (
    SECONDS_A_JOB,
    WORKER,
    _Crawl,
    _phase,
    capacity,
)
from gristmill.flows.experiments.planning.options import CrawlOptions
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.finished import finished
from gristmill.storage import layout
from gristmill.tasks.engine.job_costs import JobCost, PhaseCost


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
        left = dict.fromkeys(phases, 0)
        for part in layout.parts(str(folder), layout.manifest(str(folder))):
            left[part.phase] += sum(facts["bytes"] for facts in part.files.values())
        assert left == {name: phase["bytes"] for name, phase in phases.items()}
        size += sum((10 if phases[name]["grows"] == "documents" else 1) * of for name, of in left.items())
    assert found.measured == pages and found.unmeasured == ()
    assert found.bytes == pytest.approx(size, abs=20)
    assert found.requests == pytest.approx(requests, rel=1e-3) and found.jobs == jobs
    assert found.computing == pytest.approx(36 * found.core_hours) and found.storing == pytest.approx(size / 1e6)
    assert found.requesting == pytest.approx(requests / 5e5, rel=1e-3)
    assert found.dispatching == pytest.approx(jobs * SECONDS_A_JOB / 3600)
    assert found.stages[0].documents_in == 10 * pages
    assert found.tokens == 10 * report.tokens
    for phase in found.phases:
        assert phase.hours >= phase.core_hours / phase.workers - 1e-9
        assert phase.workers <= min(32, phase.jobs) and (not phase.alone or phase.hours == phase.core_hours)
        assert phase.memory is None or phase.memory >= WORKER


SECONDS = st.floats(0, 2)


@given(SECONDS, SECONDS, SECONDS, st.floats(1e-4, 1e-1), st.integers(2, 40), st.integers(1, 8), st.integers(1, 50))
def test_of_what_is_planted_starts_grow_with_processes_and_jobs_with_files(
    imports, table, each, rate, files, processes, times
):
    """A phase whose processes import for `imports` and make a table for `table`, whose jobs take `each` whatever they
    hold, and `rate` a document: a crawl of `times` as many files as large takes what these say."""
    held, processes = 10, min(processes, files - 1)
    cost = PhaseCost("documents")
    for number in range(files):
        first = number < processes
        taken = each + rate * held + first * (imports + table)
        cost.add(JobCost(taken, start_seconds=first * imports, first=first), 10)
    crawl = _Crawl(times, files, files * times, CrawlOptions(cores=processes), cheapest=each)
    found = _phase("stage", "phase", cost, crawl)
    jobs = files * times
    assert found.jobs == jobs and found.workers == processes
    assert found.starting * 3600 == pytest.approx(processes * (imports + table), abs=1e-3)
    assert found.each * 3600 == pytest.approx(each * jobs, abs=1e-3 * times)
    true = processes * (imports + table) + jobs * (each + rate * held)
    assert found.core_hours * 3600 == pytest.approx(true, abs=1e-3 * times)


@given(SECONDS, SECONDS, st.integers(1, 8), st.integers(2, 50))
def test_where_each_process_had_one_job_what_it_counted_is_its_start(imports, work, processes, times):
    cost = PhaseCost("documents")
    for _ in range(processes):
        cost.add(JobCost(imports + work, start_seconds=imports, first=True), 10)
    crawl = _Crawl(times, processes, processes * times, CrawlOptions(cores=processes))
    true = processes * (imports + work * times)
    assert _phase("stage", "phase", cost, crawl).core_hours * 3600 == pytest.approx(true, abs=1e-3 * times)


@pytest.mark.parametrize("full, factor", [(1.0, 1), (3.0, 3), (100.0, 8)])
def test_what_works_on_a_sample_grows_until_that_is_full(full, factor):
    cost = PhaseCost("constant", once=True, full=full)
    cost.add(JobCost(5.0, first=True, memory=1 << 20), 10)
    found = _phase("tokenizer", "train", cost, _Crawl(8.0, 4, 32, CrawlOptions()))
    assert found.core_hours * 3600 == pytest.approx(5 * factor) and found.memory == WORKER + factor * (1 << 20)


def test_what_compares_documents_in_clusters_takes_their_root_more():
    """Four times the documents: eight times the CPU time, four times the jobs."""
    cost = PhaseCost("documents^1.5")
    for number in range(3):
        cost.add(JobCost(100.0, first=not number, memory=1 << 20, reads=2, writes=1), 10)
    crawl = _Crawl(factor=4.0, had=5, shards=40, options=CrawlOptions())
    found = _phase("semantic_duplicates", "choose", cost, crawl)
    assert (found.core_hours, found.jobs) == (pytest.approx(300 * 8 / 3600), 12)


def test_memory_of_a_machine_limits_how_many_of_its_cores_work(undisturbed, recipe):
    path = undisturbed.write(recipe)
    report = finished(str(path), MachineSettings(home=str(undisturbed.home("undisturbed"))))
    roomy, narrow = (
        capacity(report, CrawlOptions(10**6, 1000, cores=64, memory=memory)) for memory in (None, 2 * WORKER / 1e9)
    )
    assert narrow.hours > roomy.hours
    assert all(phase.workers <= 2 for phase in narrow.phases if phase.memory)
    assert max(phase.workers for phase in roomy.phases) == 64
