"""`evaluation_tokens`: the evaluation documents as token shards, one for each set."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.stages.tokenizer import library_of, tokenizer_of
from storage.recorded_file import RecordedFile
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.evaluation.documents import evaluation_file
from tasks.evaluation.encode import encode_set


class Record(Settings):
    sets: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationTokensPlaces:
    evaluation: str
    tokenizer: RecordedFile


def evaluation_tokens(context: RunContext, evaluation: StageResult, tokenizer: StageResult) -> StageResult:
    """Shard n has the documents of the n-th set, by name, in their order."""
    record = Record(sets=tuple(sorted(evaluation.result["sets"])))
    inputs = {"evaluation_documents": evaluation.key, "tokenizer": tokenizer.key}

    def places() -> EvaluationTokensPlaces:
        return EvaluationTokensPlaces(evaluation_file(evaluation.folder), tokenizer_of(tokenizer))

    spec = StageSpec(
        "evaluation_tokens", _encode, record, inputs, places, libraries=("gigatoken", library_of(tokenizer))
    )
    return context.build(spec)


def _encode(phases: PhaseRunner, record: Record, places: EvaluationTokensPlaces) -> dict:
    """Encode the evaluation documents."""
    given = {"evaluation": places.evaluation, "tokenizer": places.tokenizer}
    encoded = phases.map("encode", encode_set, {n: given | {"name": name} for n, name in enumerate(record.sets)})
    return {"tokens": {record["set"]: record["heldout"]["tokens"] for record in encoded.values()}}
