"""What stages that ask a language model have in common: the sample of documents, the phase that asks, and the bill."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.storage import checked_json, files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts, PartsOfSeveral
from gristmill.tasks.engine import options
from gristmill.tasks.engine.lease import lease
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.language_model.answers import FOLDER as ANSWERS
from gristmill.tasks.language_model.ask import DocumentShards, Questions, ask_client
from gristmill.tasks.language_model.sample import (
    SAMPLE,
    WEIGHTS,
    Sampling,
    candidates_shard,
    check_strata,
    columns_of_few,
    described_sample,
    find_thresholds,
    numbers_shard,
    quotas,
)

ASKING = "asking"  # in the folder of answers: leases of stages that ask, by model and prompt
# 2: one for each number of columns with few different ones
# 3: the weights of their documents are written, and a column of the annotations
STRATA = 3
BILL = "bill.json"  # in a stage's folder: what its answers cost on the server that gave them


def document_sample(context: RunContext, corpus: Corpus, sampling: Sampling, name: str) -> StageResult:
    """The sample of documents that a model is asked about, as a number per stratum. `name`: of the stage."""
    spec = StageSpec(
        name=name,
        version=1,
        body=_sample,
        record=sampling,
        inputs=corpus.inputs(signals=bool(sampling.by)),
        places=corpus.places,
        work=Work(versions={"strata": STRATA} if sampling.by else {}),
    )
    return context.build(spec)


def _sample(phases: PhaseRunner, record: Sampling, places: CorpusPlaces) -> dict:
    """Draw a sample of documents."""
    jobs = Each(places.applied, lambda i: {**places.shard(i), "signals": places.signals[i] if record.by else ()})
    common: dict[str, Any] = {"by": record.by, "of": record.of, "seed": record.seed, "bounds": record.bounds}
    if record.by:
        numbers = phases.map("numbers", numbers_shard, jobs, temporary=True, common={"by": record.by})
        common["single"] = columns_of_few(numbers.values(), record.by)
    counted = phases.map("candidates", candidates_shard, jobs, common=common)
    counts = Counter[str]()
    for each in counted.values():
        counts.update(each["counts"])
        check_strata(counts, record.by)
    sizes = quotas(counts, record.of or 0)
    if record.by:
        phases.message(described_sample(record.by, counts, sizes))
    parts = Parts(phases.folder, places.applied)
    arguments = {"candidates": parts, "quotas": sizes, "counts": counts if record.by else None}
    phases.once("choose", find_thresholds, arguments, grows="documents")
    return {"documents": dict(sorted(counts.items())), "sample": sizes}


@dataclass(frozen=True)
class AskingPlaces:
    """`home`: where answers are kept; `sample`: the file with the sample, none for all documents, and with strata the
    one with their weights."""

    corpus: CorpusPlaces
    home: str
    sample: tuple[RecordedFile, ...]


def sample_files(sample: StageResult | None, by: tuple[str, ...]) -> tuple[RecordedFile, ...]:
    """The files of a sample, as `AskingPlaces` has them."""
    if sample is None:
        return ()
    return tuple(map(sample.file, (SAMPLE, WEIGHTS) if by else (SAMPLE,)))


def measured_by(places: AskingPlaces, questions: Questions) -> PartsOfSeveral:
    """The parts with the signals that a stage's questions read; none if they read no columns."""
    signals = places.corpus.signals
    return signals if questions.reads or questions.by else replace(signals, folders=())


def ask(phases: PhaseRunner, questions: Questions, places: AskingPlaces) -> list[dict[str, Any]]:
    """Ask about the documents, so that all answers are in the home. Returns the counts of each client. Waits for
    another stage that asks with the same model and prompt, so that neither asks what the other one pays for."""
    corpus, clients = places.corpus, options.current().lm.clients
    folder = files.join(places.home, ANSWERS, ASKING, questions.template.digest[:16])

    def waits(line: str) -> None:
        phases.message(f"{questions.step}: another run asks with the same model and prompt; {line}")

    with lease(folder, waits, phases.check):
        # jobs of other numbers of clients ask about other documents, so they are other phases
        asked = phases.map(
            f"ask-{clients}",
            ask_client,
            dict.fromkeys(range(clients), {}),
            temporary=True,
            common={
                "home": places.home,
                "questions": questions,
                "sample": places.sample,
                "clients": clients,
                "shards": corpus.applied,
                "places": DocumentShards(corpus.documents, corpus.kept, measured_by(places, questions)),
            },
        )
        return list(asked.values())


def write_bill(phases: PhaseRunner, step: str, bill: dict[str, Any], asked: Iterable[dict[str, Any]]) -> None:
    """Write the bill beside the manifest, since prices and attempts differ from machine to machine, and a line of the
    log. `step`: its name there; `asked`: the counts of each client."""
    server, counts = options.current().lm, Counter[str]()
    for each in asked:
        counts.update(each["attempts"])
    price = server.price(bill["prompt_tokens"], bill["completion_tokens"])
    prices = {"price_in": server.price_in, "price_out": server.price_out, "price": round(price, 6)}
    whole = {**bill, **prices, "host": server.host, "attempts": dict(counts)}
    checked_json.write(files.join(phases.folder, BILL), whole)
    phases.message(
        f"{step}: {bill['requests']:,} answers, {bill['prompt_tokens']:,} prompt and "
        f"{bill['completion_tokens']:,} completion tokens{f', price {price:.2f}' if price else ''}"
    )
