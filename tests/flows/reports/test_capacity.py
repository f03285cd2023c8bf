"""The capacity of a crawl follows from what the files of a run say."""

import json

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.capacity import SECONDS_A_JOB, WORKER, Machines, Prices, _Crawl, _phase, capacity
from gristmill.flows.reports.finished import finished
from gristmill.storage import layout
from gristmill.tasks.engine.job_costs import JobCost, PhaseCost


def test_a_crawl_of_ten_times_the_documents_takes_ten_times_as_much(undisturbed, recipe):
    path = undisturbed.write(recipe)
    report = finished(str(path), MachineSettings(home=str(undisturbed.home("undisturbed"))))
    pages = report.steps[0].documents_in
    machines, prices = Machines(4, 8, 64 << 30), Prices(core_hour=36.0, terabyte_month=1e6, million_requests=2.0)
    shards = len(report.corpus.sources)
    found = capacity(report, 10 * pages, machines, prices, shard_pages=-(-pages // shards))
    hours = size = requests = jobs = 0.0
    constant = {"perplexity_model", "quality_model", "tokenizer", "evaluation_tokens"}
    for name, folder in undisturbed.stages("undisturbed").items():
        stage = name.rpartition("-")[0]
        if stage == "model":
            continue
        phases = json.loads((folder / "cost.json").read_text())["phases"]
        for phase in phases.values():
            factor = 10 if phase["grows"] == "documents" else 1
            assert factor == 10 or phase["once"] or stage in (*constant, "documents")
            hours += factor * phase["cpu_seconds"] / 3600
            jobs += 1 if phase["once"] else factor * phase["jobs"]
            requests += factor * (2 * phase["reads"] + phase["writes"])
            assert phase["reads"] + phase["writes"] > 0 and phase["longest"] <= phase["cpu_seconds"]
        left = dict.fromkeys(phases, 0)
        for part in layout.parts(str(folder), layout.manifest(str(folder))):
            left[part.phase] += sum(facts["bytes"] for facts in part.files.values())
        assert left == {name: phase["bytes"] for name, phase in phases.items()}
        size += sum((10 if phases[name]["grows"] == "documents" else 1) * of for name, of in left.items())
    assert found.measured == pages and found.unmeasured == ()
    assert found.core_hours == pytest.approx(hours) and found.bytes == pytest.approx(size, abs=20)
    assert found.requests == pytest.approx(requests) and found.jobs == jobs
    assert found.computing == pytest.approx(36 * hours) and found.storing == pytest.approx(size / 1e6)
    assert found.requesting == pytest.approx(requests / 5e5)
    assert found.dispatching == pytest.approx(jobs * SECONDS_A_JOB / 3600)
    assert found.stages[0].documents_in == 10 * pages
    assert found.tokens == 10 * report.tokens
    for phase in found.phases:
        assert phase.hours >= phase.core_hours / phase.workers - 1e-9
        assert phase.workers <= min(32, phase.jobs) and (not phase.alone or phase.hours == phase.core_hours)
        assert phase.memory is None or phase.memory >= WORKER


def test_what_compares_documents_in_clusters_takes_their_root_more():
    """Four times the documents: eight times the CPU time, four times the jobs."""
    cost = PhaseCost("documents^1.5")
    for _ in range(3):
        cost.add(JobCost(100.0, 1 << 20, 2, 1), 10)
    crawl = _Crawl(factor=4.0, had=5, shards=40, machines=Machines())
    found = _phase("semantic_duplicates", "choose", cost, crawl)
    assert (found.core_hours, found.jobs) == (pytest.approx(300 * 8 / 3600), 12)


def test_memory_of_a_machine_limits_how_many_of_its_cores_work(undisturbed, recipe):
    path = undisturbed.write(recipe)
    report = finished(str(path), MachineSettings(home=str(undisturbed.home("undisturbed"))))
    roomy, narrow = (
        capacity(report, 10**6, Machines(1, 64, memory), shard_pages=1000) for memory in (None, 2 * WORKER)
    )
    assert narrow.hours > roomy.hours
    assert all(phase.workers <= 2 for phase in narrow.phases if phase.memory)
    assert max(phase.workers for phase in roomy.phases) == 64
