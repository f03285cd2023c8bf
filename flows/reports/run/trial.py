"""A recipe on a sample of its documents: what its first steps drop, before there is a run.

The sample goes through the stages of a run, in this process and in a temporary home, so it is dropped by the same code
as in a run. Corpus steps, which compare documents with each other, are left out.
"""

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import pyarrow.compute as pc

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.dropped import Dropped, samples
from gristmill.flows.reports.funnel import FunnelRow, funnel
from gristmill.storage import parquet
from gristmill.storage.home import open_stage
from gristmill.tasks.engine import options
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import find_or_make
from gristmill.tasks.engine.phases import Silent

SAMPLE = 200  # documents of each source
SAMPLE_PDF = 20  # of a source of PDF documents, which take long to read
DROPS = 10  # that are shown
ALPHA_WORDS = "alpha_words"
# Gopher asks for .8 of the words; datatrove's tokenizer, which its definition in recipes follows, counts punctuation as
# words, too, so recipes, lists and biographies have .7 to .8.
LOOSER_ALPHA_WORDS = 0.7
MIN_NEAR, MIN_NEAR_SHARE = 3, 0.02  # documents between the two thresholds that decide for the looser one


@dataclass(frozen=True)
class Trial:
    """What the steps did to a sample.

    `steps`: its funnel; `drops`: up to DROPS dropped documents, of each rule in turn, the rule that dropped most first;
    `near_alpha_words`: how many documents the rule `alpha_words` dropped that have LOOSER_ALPHA_WORDS at least.
    """

    steps: tuple[FunnelRow, ...]
    drops: tuple[Dropped, ...]
    near_alpha_words: int

    @property
    def documents(self) -> int:
        """How many documents the sample has."""
        return self.steps[0].documents_out

    @property
    def kept(self) -> int:
        """How many of them the steps keep."""
        return self.steps[-1].documents_out

    @property
    def is_punctuation_counted(self) -> bool:
        """Whether enough documents are dropped because punctuation counts as words."""
        return self.near_alpha_words >= max(MIN_NEAR, MIN_NEAR_SHARE * self.documents)


def trial(recipe: Recipe) -> Trial:
    """Run the first steps, those on documents, on the first documents of each source: SAMPLE, or SAMPLE_PDF.

    Raises NothingLeftError for a source that gives no document, and what the stages raise. Holds the sample's ledgers.
    """
    has_pdf = any(hasattr(source, "pages") for source in recipe.sources)
    sample = recipe.model_copy(update={"limit": SAMPLE_PDF if has_pdf else SAMPLE})
    with tempfile.TemporaryDirectory(prefix="gristmill-trial-") as home:
        settings = MachineSettings(home=home)
        options.begin_making(job_options(settings))
        executor = Threads(1, SimpleQueue())
        build = partial(find_or_make, home, executor=executor, progress=lambda: nullcontext(Silent()))
        for passed in curate(RunContext(settings, build), sample):
            corpus = passed.left
            if passed.steps:  # the steps on documents, which come first
                break
        drops: dict[tuple[str, str], list[Dropped]] = {}
        near = 0
        for stage in corpus.stages:
            if stage.step_counts:
                opened = open_stage(stage.folder)
                drops |= samples(opened, corpus.sources, DROPS)
                near += sum(_count_near(opened.ledger(shard)) for shard in range(len(opened.part_records)))
        steps = tuple(funnel(corpus.stages))
    return Trial(steps, tuple(_take_turns(drops, steps)), near)


def _count_near(ledger: str) -> int:
    """Rows of a ledger that a looser threshold of `alpha_words` would not have."""
    rows = parquet.read_table(ledger, ["rule", "value"])
    is_near = pc.and_(pc.equal(rows["rule"], ALPHA_WORDS), pc.greater_equal(rows["value"], LOOSER_ALPHA_WORDS))
    return pc.sum(is_near).as_py() or 0


def _take_turns(drops: dict[tuple[str, str], list[Dropped]], steps: tuple[FunnelRow, ...]) -> list[Dropped]:
    counts = {(row.step, rule): count for row in steps for rule, count in row.drops.items()}
    ranked = sorted(drops.items(), key=lambda item: -counts.get(item[0], 0))
    turns = [(turn, rank, one) for rank, (_, some) in enumerate(ranked) for turn, one in enumerate(some)]
    return [one for _, _, one in sorted(turns, key=lambda each: each[:2])][:DROPS]
