"""The documents of a run between two stages: where they are stored, which are kept, and the inputs of the next stage.

If no document is left, the run ends with an error before it makes stages of nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import Any, TypeVar

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import modules_of
from gristmill.tasks.documents.by_shard import Names, Parts, PartsOfSeveral, Shards
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import DocumentStep, Step
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each
from gristmill.tasks.engine.spec import FinishedInput, Work

S = TypeVar("S", bound=Step)
EXEMPT = "exempt"  # among the inputs of a stage: the sources that its step does not apply to


@dataclass(frozen=True)
class CorpusPlaces:
    """By shard: the name of the source, the part with the texts, the part that names the kept documents, and the parts
    with signals. The size does not depend on the number of shards. `exempt`: sources that the step of the stage does
    not apply to. Their documents pass and are not counted."""

    sources: Names
    documents: Parts
    kept: Parts
    signals: PartsOfSeveral
    exempt: tuple[str, ...] = ()

    @property
    def applied(self) -> Shards:
        """The shards of the sources that the step applies to."""
        return self.shards(without=self.exempt)

    def shards(self, without: tuple[str, ...] = ()) -> Shards:
        return self.sources.shards(name for name, _ in self.sources.runs if name not in without)

    def shard(self, i: int) -> dict[str, str]:
        """The arguments by which a job finds its documents."""
        return {"documents": self.documents[i], "kept": self.kept[i]}

    def judged(self, reference: Iterable[str] = ()) -> tuple[Shards, Each]:
        """The shards whose documents a step judges, and jobs for all other shards, whose documents pass: those of the
        sources of its reference, and of sources that it does not apply to."""
        passing = (*reference, *self.exempt)
        return self.shards(without=passing), Each(self.sources.shards(passing), lambda i: {"kept": self.kept[i]})

    def source_numbers(self) -> list[int]:
        """The place of each shard's source among the sources, whose shards are in the recipe's order."""
        numbers = {source: number for number, source in enumerate(self.sources.distinct())}
        return [numbers[source] for source in self.sources]

    def numbered(self, arguments: Callable[[int], dict[str, Any]]) -> Each:
        """Jobs for the shards that the step applies to, numbered without gaps, as the files that they write for other
        jobs are. `arguments`: of a shard, besides those of `shard` and its number."""
        shards = self.applied
        return Each(range(len(shards)), lambda n: {"shard": shards[n], **self.shard(shards[n]), **arguments(shards[n])})

    def parts(self, names: Iterable[str], signals: bool = False) -> PartsOfSeveral:
        """The parts of each shard of some sources: documents, kept and, with `signals`, those with signals."""
        more = self.signals.folders if signals else ()
        return PartsOfSeveral((self.documents.folder, self.kept.folder, *more), self.sources.shards(names))


@dataclass(frozen=True)
class CorpusAndStage:
    """The shards of a corpus, and `stage`: the folder of one more stage, whose files the jobs read."""

    corpus: CorpusPlaces
    stage: str


@dataclass(frozen=True)
class Corpus:
    """The documents of a run and which of them are kept: shard i of all its stages has the same documents.

    `sources`: the source of each shard; `documents`: the stage with the texts; `kept`: the stage whose parts
    name what is kept; `measured`: those with signals of steps; `stages`: all that led here, in order. `exempt`: sources
    that the step does not apply to for which the corpus is given to a builder; these are in the keys of its stages.
    """

    sources: Sequence[str]
    documents: StageResult
    kept: StageResult
    measured: tuple[StageResult, ...]
    stages: tuple[StageResult, ...]
    exempt: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def places(self) -> CorpusPlaces:
        sources = Names.of(self.sources)
        shards = Shards(((0, len(sources)),))
        measured = tuple(stage.folder for stage in self.measured)
        return CorpusPlaces(
            sources,
            Parts(self.documents.folder, shards),
            Parts(self.kept.folder, shards),
            PartsOfSeveral(measured, shards),
            self.exempt,
        )

    @property
    def extracted(self) -> StageResult:
        """The stage that read the records of the sources."""
        return next(stage for stage in self.stages if stage.name == "documents")

    @property
    def rows(self) -> int:
        """How many documents are kept."""
        return self.kept.manifest["counts"]["rows_out"]

    def inputs(self, *others: StageResult, signals: bool = False) -> dict[str, FinishedInput | str]:
        """The stages with the documents, with what is kept, other stages and, if they are read, those with signals."""
        read: dict[str, FinishedInput | str] = {"documents": self.documents, "kept": self.kept}
        read |= {stage.name: stage for stage in others}
        read |= {EXEMPT: ", ".join(self.exempt)} if self.exempt else {}
        return read | ({f"measured {i}": stage for i, stage in enumerate(self.measured)} if signals else {})

    def for_step(self, step: Step) -> "Corpus":
        """The corpus for the builder of a step."""
        return replace(self, exempt=step.exempt(Names.of(self.sources).distinct()))

    def then(self, kept: StageResult, *through: StageResult) -> "Corpus":
        """The corpus after a stage that keeps some documents, and the stages that led there."""
        return replace(self, kept=kept, stages=(*self.stages, *through, kept))

    def through(self, stage: StageResult) -> "Corpus":
        """The same corpus after a stage that neither drops documents nor cuts texts."""
        return replace(self, stages=(*self.stages, stage))

    def measuring(self, stage: StageResult) -> "Corpus":
        """The corpus with the signals of a stage."""
        return replace(self, measured=(*self.measured, stage))

    def rewritten(self, stage: StageResult, *through: StageResult) -> "Corpus":
        """The corpus after a stage that rewrote the texts, and the stages that led there."""
        return replace(self, documents=stage, kept=stage, stages=(*self.stages, *through, stage))


def held_out(recipe: Recipe, corpus: Corpus) -> Heldout:
    """The documents that no training of a recipe sees. They follow from the records of its sources, and no step of the
    recipe changes them."""
    fractions = {}
    for name, counts in corpus.extracted.result["sources"].items():
        # by halves, so that a source with a few records more has the same ones held out
        halves = ceil(log2(max(1.0, recipe.heldout_fraction * counts["records"] / recipe.heldout_documents)))
        fractions[name] = recipe.heldout_fraction / 2**halves
    return Heldout(fractions=fractions)


def heldout_full(recipe: Recipe, corpus: Corpus) -> int:
    """About how many times as large the sources may become before no more of their documents are held out."""
    records = {name: counts["records"] for name, counts in corpus.extracted.result["sources"].items()}
    drawn = sum(share * records[name] for name, share in held_out(recipe, corpus).fractions.items())
    return max(1, round(recipe.heldout_documents * len(records) / max(1.0, drawn)))


def pinned(context: RunContext, steps: tuple[S, ...]) -> tuple[S, ...]:
    """The steps, with the current content of the files that they name."""

    def pin(step: S) -> S:
        local = context.placed(step) if isinstance(step, DocumentStep) or step.pins_files else step
        if not step.pins_files:
            return local
        named = {"step": local.model_dump(mode="json")}
        return type(step).model_validate(context.outside(named, lambda: local.pinned().model_dump(mode="json")))

    return tuple(pin(step) for step in steps)


def work_of_steps(steps: Iterable[Step], functions: Iterable[str] = ()) -> Work:
    """The versions of steps, their modules, libraries and package data, for a stage that does their work. `functions`:
    readers of users that the stage calls, as `module:function`."""
    steps = tuple(steps)
    versions = {name: version for step in steps for name, version in own_steps.versions_of(step).items()}
    versions |= {address: own_steps.version_at(address) for address in functions}
    owners = {address.partition(":")[0] for address in functions}
    return Work(
        versions=versions,
        modules=tuple(sorted({*owners, *(name for step in steps for name in modules_of(step))})),
        libraries=tuple(
            sorted(
                {name for step in steps for name in step.libraries}
                | {name for owner in owners for name in own_steps.libraries_of(owner)}
            )
        ),
        data=tuple(sorted({address for step in steps for address in step.package_data})),
    )


_SHOWN = 3


class NothingLeftError(ValueError):
    """A source, or the whole corpus, has no document left."""


def check_sources(corpus: Corpus) -> None:
    """Raise NothingLeftError for a source of whose files no document could be made."""
    for source, counts in corpus.documents.result["sources"].items():
        if not counts["documents"]:
            raise NothingLeftError(
                f"the source {source} gives no documents: of its {counts['records']:,} records, "
                f"{dropped(counts['drops'])}. See `gristmill explain show dropped`, then use other files, "
                f"loosen these steps or remove {source} from the recipe{_types_hint(counts['drops'])}"
            )


def _types_hint(drops: Mapping[str, int]) -> str:
    """How records are read whose type `extract` has dropped, such as a folder of PDF documents."""
    is_of_type = any(rule.endswith("content_type") for rule, count in drops.items() if count)
    return ". PDF documents are read with `types: [html, text, pdf]` in the step `extract`" if is_of_type else ""


def check_left(corpus: Corpus, steps: tuple[Step, ...]) -> None:
    """Raise NothingLeftError if the last of the steps that were made left no document."""
    counts = corpus.kept.step_counts
    if not counts or counts[-1]["rows_out"]:
        return
    emptied = next(count for count in counts if not count["rows_out"])
    named = " and ".join(f"`{step.step}`" for step in steps if step.step == emptied["step"]) or emptied["step"]
    raise NothingLeftError(
        f"the corpus is empty after the step {named}: of {emptied['rows_in']:,} documents, "
        f"{dropped(emptied['drops'])}. Loosen {named} in the recipe; `gristmill decide whatif` tries its thresholds"
    )


def dropped(drops: dict[str, int]) -> str:
    """The rules that dropped most, in words."""
    most = sorted(drops.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
    return ", ".join(f"the rule {rule} dropped {n:,}" for rule, n in most) or "none is left"
