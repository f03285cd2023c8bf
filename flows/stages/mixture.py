"""`mixture`: the plan of the training data, shares of the sources within the token budget of the run; and all stages
from a corpus to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.trunk import BranchPoint, Trunk, is_branch, trunk_of
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.heldout import (
    Data,
    before_takedowns,
    heldout,
    heldout_documents,
    named_texts,
)
from gristmill.flows.stages.tokens import evaluation_tokens, grouped_tokens, tokenizer, tokenizer_of, tokens
from gristmill.storage import files, layout, token_shards
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import pack_shards, plan_mixture, windows


class MixturePlan(Settings):
    """`heldout`: the sets that training is evaluated on, each with the digest of its documents, if that is to be known;
    `seq_len`: the model's, where documents are packed for it."""

    mixture: Mixture
    budget: int
    heldout: dict[str, str]
    seq_len: int | None = None


Listed = tuple[str, int, str]  # path, tokens, digest


@dataclass(frozen=True)
class MixturePlaces:
    """`train`, `heldout`: the name of each shard's source or set, and the shard; `tokenizer`: its file. Paths of these
    are as they are seen from the mixture's folder. `end_of_text`: the id of that token."""

    train: tuple[tuple[str, Listed], ...]
    heldout: tuple[tuple[str, Listed], ...]
    tokenizer: RecordedFile
    token_bytes: RecordedFile
    end_of_text: int


def training_data(context: RunContext, recipe: Recipe, corpus: Corpus) -> Data:
    """All that training needs of a curated corpus."""
    split = heldout(context, recipe, corpus)
    named = named_texts(context, recipe)
    evaluation = (heldout_documents(context, recipe, corpus), *(() if named is None else (named,)))
    trunk = _trunk(context, recipe)
    model = tokenizer(context, recipe, before_takedowns(context, recipe, split), trunk)
    shards = tokens(context, split.train, model, recipe.tokenizer.fim)
    evaluated = evaluation_tokens(context, evaluation, model)
    grouped = grouped_tokens(context, recipe, split.train, model, shards)
    settings = recipe.training_mixture()
    digests = {name: facts["digest"] for stage in evaluation for name, facts in sorted(stage.result["sets"].items())}
    seq_len = recipe.model.seq_len if settings.packing == "best_fit" else None
    budget, branch = recipe.training.token_budget(recipe.model.seq_len), None
    if trunk is not None:
        read = tuple(stage for stage in (shards, model, grouped) if stage is not None)
        record = MixturePlan(mixture=settings, budget=budget, heldout={}, seq_len=seq_len)
        samples = trunk.samples_read() if _is_same_data(trunk, recipe, record, read) else 0
        branch = BranchPoint(key=trunk.key, step=trunk.step, samples=samples)
        plan_of_batches = recipe.training.batches(recipe.model.seq_len)
        rest = plan_of_batches.first(recipe.training.steps) - plan_of_batches.first(trunk.step)
        budget = (samples + rest) * recipe.model.seq_len
    plan = mixture(
        context,
        settings,
        budget,
        corpus.sources,
        model,
        shards,
        dict(sorted(digests.items())),
        evaluated,
        grouped,
        seq_len,
    )
    return Data(corpus, split, evaluation, model, shards, evaluated, grouped, plan, branch)


def _trunk(context: RunContext, recipe: Recipe) -> Trunk | None:
    """The trunk of a recipe that is a branch. What a run knew of it is noted, as what it saw outside of the home."""
    if not is_branch(context.settings, recipe):
        return None
    subject = {"trunk": recipe.training.init_from}
    return Trunk(**context.outside(subject, lambda: trunk_of(context.settings, recipe).facts()))


def _is_same_data(trunk: Trunk, recipe: Recipe, record: MixturePlan, read: Sequence[StageResult]) -> bool:
    """Whether a branch reads the trunk's mixture, in the trunk's order, and so reads on after the trunk's last sample.
    Its budget may be another one. `read`: the stages that its mixture is planned from."""
    theirs = MixturePlan.model_validate({**trunk.mixture, "budget": record.budget, "heldout": {}})
    ours, of_trunk = recipe.training, trunk.config()
    names = ("data_seed", "objective", "corruption_rate", "mean_span", "fim_rate", "fim_spm_rate")
    return (
        theirs == record
        and trunk.inputs == {stage.name: stage.contents for stage in read}
        and trunk.model["seq_len"] == recipe.model.seq_len
        and all(getattr(ours, name) == getattr(of_trunk, name) for name in names)
    )


def mixture(
    context: RunContext,
    settings: Mixture,
    budget: int,
    sources: Sequence[str],
    tokenizer: StageResult,
    tokens: StageResult,
    heldout: dict[str, str],
    heldout_tokens: StageResult,
    grouped: StageResult | None = None,
    seq_len: int | None = None,
) -> StageResult:
    """The plan of `budget` tokens. `sources`: the source of each token shard; `heldout`: what training is evaluated on,
    the set of each shard of `heldout_tokens`, with the digest of its documents or an empty one; `grouped`: what is
    trained on instead of the sources' shards; `seq_len`: of the rows that documents are packed into, None: they are
    not."""

    def places() -> MixturePlaces:
        facts, model = tokenizer.result["tokenizer"], tokenizer_of(tokenizer)
        beside = RecordedFile(f"{_beside(tokenizer)}/{facts['file']}", model.digest)
        train = _listed(tokens, "train", sources) if grouped is None else _grouped(grouped)
        held_out = _listed(heldout_tokens, "heldout", tuple(heldout))
        return MixturePlaces(train, held_out, beside, tokenizer.file("token_bytes.json"), facts["end_of_text"])

    inputs = {stage.name: stage for stage in (tokens, heldout_tokens, tokenizer, *([grouped] if grouped else ()))}
    spec = StageSpec(
        name="mixture",
        version=2,  # 2: shares of groups below their caps do not depend on the budget, not even in the last digit
        body=_plan,
        record=MixturePlan(mixture=settings, budget=budget, heldout=heldout, seq_len=seq_len),
        inputs=inputs,
        places=places,
        work=Work(unicode=False),
    )
    return context.build(spec)


def _plan(phases: PhaseRunner, record: MixturePlan, places: MixturePlaces) -> dict:
    """Plan the shares of the sources."""
    tokens = {name: _entries(places.train, name) for name in _groups(record.mixture, places)}
    shards = {"tokens": tokens, "heldout": {name: _entries(places.heldout, name) for name in record.heldout}}
    arguments = {
        "digests": record.heldout,
        "tokenizer": places.tokenizer,
        "token_bytes": places.token_bytes,
        "end_of_text": places.end_of_text,
        "budget": record.budget,
        "settings": record.mixture,
    }
    if record.seq_len is None:
        return _written(phases, shards, arguments)
    packed = _pack(phases, tokens, record.seq_len)
    rows = {name: [result["entry"] for result in packs] for name, packs in packed.items()}
    plan = _written(phases, shards | {"rows": rows}, arguments | {"row_length": record.seq_len})
    for name, source in plan["sources"].items():
        filled = source["tokens"] / (record.seq_len * sum(entry["rows"] for entry in rows[name]))
        cut, documents = (sum(result[key] for result in packed[name]) for key in ("cut", "documents"))
        source |= {"padding": 1 - filled, "cut": cut / documents}
    return plan


def _listed(tokens: StageResult, split: str, names: Sequence[str]) -> tuple[tuple[str, Listed], ...]:
    """The shards of a split, each with its name."""
    encoded = [part for part in layout.parts(tokens.folder, tokens.manifest) if part.phase == "encode"]
    entries = []
    for name, part in zip(names, encoded, strict=True):
        path = token_shards.bin_path(_beside(tokens), split, part.number)
        entries.append((name, (path, part.record[split]["tokens"], part.files[path.rsplit("/", 1)[1]]["content"])))
    return tuple(entries)


def _grouped(stage: StageResult) -> tuple[tuple[str, Listed], ...]:
    """The shards by group, each with its name."""
    groups = []
    for part in layout.parts(stage.folder, stage.manifest):
        for name, file, count, _ in part.record["groups"]:
            groups.append((name, (f"{_beside(stage)}/{file}", count, part.files[file]["content"])))
    return tuple(groups)


def _written(phases: PhaseRunner, shards: Mapping[str, Any], values: Mapping[str, Any]) -> dict:
    """The job that writes the plan. It finds the shards in a file: there may be very many."""
    listed = files.join(phases.folder, "listed.json")
    files.write_json(listed, shards)
    plan = phases.once("plan", plan_mixture, {"listed": listed, **values}, grows="documents")
    files.remove(listed)
    return plan


def _pack(phases: PhaseRunner, tokens: dict[str, list[dict]], seq_len: int) -> dict[str, list[dict]]:
    """The records of the jobs that pack the shards of each source."""
    jobs: dict[int, dict] = {}
    names: list[str] = []
    for name, shards in sorted(tokens.items()):
        for begin, run in windows([(shard["path"], shard["tokens"]) for shard in shards]):
            jobs[len(names)] = {"shards": run, "begin": begin}
            names.append(name)
    packed: dict[str, list[dict]] = {}
    for number, result in sorted(phases.map("pack", pack_shards, jobs, common={"seq_len": seq_len}).items()):
        packed.setdefault(names[number], []).append(result)
    return packed


def _groups(settings: Mixture, places: MixturePlaces) -> list[str]:
    """The groups that may be trained on: all that there are, but of sources with weights those that are named."""
    if settings.by_source and settings.strategy == "weights":
        return sorted(settings.named)
    return sorted({name for name, (_, tokens, _) in places.train if tokens})


def _entries(shards: tuple[tuple[str, Listed], ...], wanted: str) -> list[dict]:
    entries = [listed for name, listed in shards if name == wanted]
    return [{"path": path, "tokens": tokens, "digest": digest} for path, tokens, digest in entries if tokens]


def _beside(stage: StageResult) -> str:
    """The stage's folder as seen from the folder of another stage: holds wherever the home is moved."""
    return f"../{stage.label}"
