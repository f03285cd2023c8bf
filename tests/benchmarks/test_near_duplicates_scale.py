"""Time, memory and disk of the near-duplicate step as corpora grow: of many documents, of a template, of a new crawl.

`NEAR_SCALE_DOCUMENTS`: sizes (200000,800000); `NEAR_TEMPLATE_DOCUMENTS`: of which half are of the template (200000);
`NEAR_EARLIER_DOCUMENTS`: of the earlier crawl (400000); `NEAR_TURNS`: runs of each that is compared (3). Phases are
timed on workers that have everything loaded; their input is read from the disk.
"""

import os
from collections.abc import Iterator
from shutil import rmtree

import numpy as np
import pytest

from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.engine.executors import executor
from tests.benchmarks.near_corpus import Planted
from tests.benchmarks.near_run import SHARD, Run, Watch, forget, near_duplicates, warm, write_corpus

pytestmark = [pytest.mark.bench, pytest.mark.timeout(4 * 3600)]

SCALE = tuple(int(n) for n in os.environ.get("NEAR_SCALE_DOCUMENTS", "200000,800000").split(","))
TEMPLATE = int(os.environ.get("NEAR_TEMPLATE_DOCUMENTS", 200_000))
EARLIER = int(os.environ.get("NEAR_EARLIER_DOCUMENTS", 400_000))
NEW = 0.05
TURNS = int(os.environ.get("NEAR_TURNS", 3))
WORKERS = 2
STEP = MinHash()


@pytest.fixture
def home(tmp_path) -> Iterator[str]:
    """A folder that does not outlive its test: it grows to 12 kB a document."""
    yield str(tmp_path)
    rmtree(tmp_path)


def written(home: str, planted: Planted, shard: int = SHARD, **sources: tuple[int, int]) -> Corpus:
    with executor("local", WORKERS) as pool:
        return write_corpus(home, planted, pool, sources, shard)


def measured(home: str, corpus: Corpus, step: MinHash = STEP) -> tuple[Run, Watch]:
    """The step in fresh worker processes, which have done it once on a few documents, over files on disk alone."""
    with executor("local", WORKERS) as pool:
        warm(STEP, pool)
        forget(home)
        with Watch() as watch:
            return near_duplicates(home, corpus, step, pool), watch


def in_turn(home: str, *variants: tuple[Corpus, MinHash]) -> list[list[tuple[Run, Watch]]]:
    """The runs of each variant, `TURNS`: they take turns, since a machine's speed drifts. Those before the last are set
    aside."""
    taken: list[list[tuple[Run, Watch]]] = [[] for _ in variants]
    for turn in range(TURNS):
        for number, (variant, runs) in enumerate(zip(variants, taken, strict=True)):
            for earlier in runs[-1:]:
                earlier[0].set_aside(f"{home}/aside-{turn}-{number}")
            runs.append(measured(home, *variant))
    return taken


def median(runs: list[tuple[Run, Watch]]) -> tuple[Run, Watch]:
    """The run of median time."""
    return sorted(runs, key=lambda run: run[0].wall)[len(runs) // 2]


def ratios(ones: list[tuple[Run, Watch]], others: list[tuple[Run, Watch]]) -> str:
    """Of time and of CPU time: of the medians, and of each turn."""
    (one, one_watch), (other, other_watch) = median(ones), median(others)
    turns = zip(ones, others, strict=True)
    wall, cpu = zip(*((a[0].wall / b[0].wall, a[1].cpu / b[1].cpu) for a, b in turns), strict=True)
    return (
        f"{one.wall / other.wall:.3f} ({', '.join(f'{turn:.3f}' for turn in wall)}), of CPU time "
        f"{one_watch.cpu / other_watch.cpu:.3f} ({', '.join(f'{turn:.3f}' for turn in cpu)})"
    )


def told(name: str, run: Run, watch: Watch, documents: int) -> str:
    phases = [f"    {phase:32} {seconds:8.1f} s" for phase, seconds in run.seconds.items() if seconds >= 0.05]
    memory = ", ".join(f"{process} {held / 1e9:.2f}" for process, held in sorted(watch.memory.items()))
    disk = ", ".join(f"{stage} {size / 1e9:.2f}" for stage, size in run.stages.items())
    dropped, left_out = (run.kept.result[name] for name in ("dropped", "left_out"))
    return "\n".join(
        [
            f"  {name}: {documents:,} documents, {run.wall:.1f} s, {watch.cpu:.1f} s of CPU, "
            f"{documents / run.wall:,.0f} documents/s;"
            f" dropped {dropped:,}, left out {left_out:,}",
            *phases,
            f"    most memory, GB: {memory}",
            f"    disk, GB: {disk}",
        ]
    )


def test_time_and_memory_as_the_corpus_grows(home, capsys):
    """Each larger corpus between two runs over the first, since a machine's speed drifts."""
    corpora = {documents: written(home, Planted(documents, seed=1)) for documents in SCALE}
    for documents in SCALE[1:]:
        taken = []
        for turn, size in enumerate((SCALE[0], documents, SCALE[0])):
            run, watch = measured(home, corpora[size])
            run.set_aside(f"{home}/aside-{documents}-{turn}")
            taken.append(np.array([run.wall, watch.cpu]))
            with capsys.disabled():
                print("\n" + told("planted", run, watch, size))
        wall, cpu = 2 * taken[1] / (taken[0] + taken[2]) * SCALE[0] / documents
        with capsys.disabled():
            print(f"  {documents / SCALE[0]:.2f} times the documents: {wall:.3f} of linear, {cpu:.3f} in CPU time")


def test_a_template_against_distinct_documents(home, capsys):
    corpora = [Planted(TEMPLATE, seed=1, copies=0, template=template) for template in (0, TEMPLATE // 2)]
    distinct, template = in_turn(home, *((written(home, planted), STEP) for planted in corpora))
    with capsys.disabled():
        print("\n" + told("distinct", *median(distinct), TEMPLATE))
        print(told("half of them copies of a template", *median(template), TEMPLATE))
        print(f"  ratio {ratios(template, distinct)}")


def test_a_new_crawl_beside_an_earlier_one(home, capsys):
    step = MinHash(keep=("source", "longest"))
    documents = EARLIER + round(NEW * EARLIER)
    planted = Planted(documents, seed=1)
    crawls = {"earlier": (0, EARLIER), "new": (EARLIER, documents)}
    shard = min(SHARD, -(-(documents - EARLIER) // WORKERS))  # work for all even of the small crawl
    earlier, earlier_watch = measured(home, written(home, planted, earlier=crawls["earlier"]), step)
    grown = step.model_copy(update={"earlier": (earlier.kept.folder,)})
    at_once, new = in_turn(
        home, (written(home, planted, **crawls), step), (written(home, planted, shard, new=crawls["new"]), grown)
    )
    with capsys.disabled():
        print("\n" + told("both at once", *median(at_once), documents))
        print(told("earlier", earlier, earlier_watch, EARLIER))
        print(told("new", *median(new), documents - EARLIER))
        print(f"  the new crawl costs of both at once {ratios(new, at_once)}")
    apart = {row["id"]: row["representative"] for run in (earlier, new[-1][0]) for row in run.dropped()}
    assert apart == {row["id"]: row["representative"] for row in at_once[-1][0].dropped()}
