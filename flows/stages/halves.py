"""`half_tokens`: the tokens of a corpus that are of half of its hosts, by the number of a pair of runs.

Runs that read one corpus say how much runs differ, and nothing of the pages that the corpus happens to have. Runs that
read halves of its hosts differ by these, too. `half_counts` says how many tokens each half has, ahead of all of them.
"""

from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.storage.tokens.token_shards import PHASE, SPLIT
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.tokens.halves import count_shard, cut_shard


class CountsRecord(Settings):
    """The numbers of the halves: the first, and one past the last."""

    first: int
    end: int


class Record(Settings):
    """`number`: of the half."""

    number: int


@dataclass(frozen=True)
class Places:
    """`tokens`: the stage with the tokens of each shard."""

    corpus: CorpusPlaces
    tokens: str

    def job(self, i: int) -> dict[str, str]:
        return {"documents": self.corpus.documents[i]}


def half_counts(context: RunContext, corpus: Corpus, tokens: StageResult, numbers: range) -> dict[int, dict[str, int]]:
    """By number the tokens of each source in that half."""
    record = CountsRecord(first=numbers.start, end=numbers.stop)
    places = Places(corpus.places, tokens.folder)
    made = context.build(StageSpec("half_counts", _count, record, corpus.inputs(tokens), places, version=1))
    return {number: made.result["tokens"][f"{number}"] for number in numbers}


def half_tokens(context: RunContext, corpus: Corpus, tokens: StageResult, number: int) -> StageResult:
    """Shard i has the documents of shard i of `tokens` that are in the half of a number."""
    places = Places(corpus.places, tokens.folder)
    spec = StageSpec("half_tokens", _cut, Record(number=number), corpus.inputs(tokens), places, version=1)
    return context.build(spec)


def _count(phases: PhaseRunner, record: CountsRecord, places: Places) -> dict:
    """Count the tokens of halves of the hosts."""
    given = {"tokens": places.tokens, "first": record.first, "end": record.end}
    numbers = range(record.first, record.end)
    sources = places.corpus.sources.distinct()
    totals = {f"{number}": dict.fromkeys(sources, 0) for number in numbers}
    counted = phases.map("count", count_shard, Each(places.corpus.shards(), places.job), common=given)
    for source, counts in zip(places.corpus.sources, counted.values(), strict=True):
        for number, tokens in zip(numbers, counts["tokens"], strict=True):
            totals[f"{number}"][source] += tokens
    return {"tokens": totals}


def _cut(phases: PhaseRunner, record: Record, places: Places) -> dict:
    """Take the tokens of half of the hosts."""
    given = {"tokens": places.tokens, "number": record.number}
    made = phases.map(PHASE, cut_shard, Each(places.corpus.shards(), places.job), common=given).values()
    return {SPLIT: sum(counts[SPLIT]["tokens"] for counts in made)}
