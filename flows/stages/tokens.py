"""`tokens`: every shard of documents as token shards, those held out in files of their own.

A shard whose documents are those of an earlier stage, with the same texts and tokenizer, is taken from there: after a
takedown the shards that it hits are encoded, and no other.
"""

from dataclasses import dataclass, field

from flows.context import RunContext
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.heldout import Split
from flows.stages.tokenizer import library_of, tokenizer_of
from storage import files, layout
from storage.home import Home
from storage.recorded_file import RecordedFile
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.encode import SPLITS, Encoded, encode_shard


class Record(Settings):
    """Nothing of the recipe: texts, selections and tokenizer are inputs."""


@dataclass(frozen=True)
class TokensPlaces:
    """`heldout`: the parts that name held-out documents, by shard, or none; `earlier`: by shard the files of earlier
    stages."""

    corpus: CorpusPlaces
    heldout: tuple[str, ...]
    tokenizer: RecordedFile
    earlier: dict[int, tuple[Encoded, ...]] = field(default_factory=dict)

    def kept(self, i: int) -> dict[str, str]:
        """The parts that name the documents of the splits of a shard."""
        return dict(zip(SPLITS, (self.corpus.kept[i], *self.heldout[i : i + 1]), strict=False))


def tokens(context: RunContext, split: Split, tokenizer: StageResult) -> StageResult:
    return encoded(context, split.train, tokenizer, split.heldout)


def encoded(context: RunContext, train: Corpus, tokenizer: StageResult, heldout: tuple[str, ...] = ()) -> StageResult:
    """`heldout`: by shard, the parts that name held-out documents, of the stage that chose what is trained on."""

    def places() -> TokensPlaces:
        earlier = _earlier(context.settings.home, spec)
        return TokensPlaces(train.places, heldout, tokenizer_of(tokenizer), earlier)

    inputs = train.inputs() | {"tokenizer": tokenizer.key}
    spec = StageSpec("tokens", _encode, Record(), inputs, places, libraries=("gigatoken", library_of(tokenizer)))
    return context.build(spec)


def _encode(phases: PhaseRunner, record: Record, places: TokensPlaces) -> dict:
    """Encode every shard of documents."""
    jobs = {
        i: {
            "documents": places.corpus.documents[i],
            "kept": places.kept(i),
            "tokenizer": places.tokenizer,
            "earlier": places.earlier.get(i, ()),
        }
        for i in places.corpus.shards()
    }
    records = phases.map("encode", encode_shard, jobs).values()
    return {split: sum(counts[split]["tokens"] for counts in records) for split in SPLITS}


def _earlier(home: str, spec: StageSpec) -> dict[int, tuple[Encoded, ...]]:
    """By shard, the files of the finished stages that differ from this one in the chosen documents alone."""

    def same(identity: dict) -> dict:
        inputs = {name: key for name, key in identity["inputs"].items() if name != "kept"}
        return {name: identity[name] for name in spec.identity} | {"inputs": inputs}

    found: dict[int, tuple[Encoded, ...]] = {}
    for stage in (stage for stage in Home(home).stages() if stage.name == spec.name):
        manifest = layout.manifest(stage.folder)
        if manifest is None or same(manifest) != same(spec.identity):
            continue
        for part in layout.parts(stage.folder, manifest):
            recorded = ((files.join(stage.folder, name), facts["content"]) for name, facts in part.files.items())
            encoded = tuple(RecordedFile(path, digest) for path, digest in sorted(recorded))
            found[part.number] = (*found.get(part.number, ()), encoded)
    return found
