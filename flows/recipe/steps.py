"""The table of steps. It determines the steps of recipes, the functions that make their stages, what can be replayed,
and `gristmill recipe rules`.

Only settings are imported here. The functions that make stages, and the work, are imported when they are needed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import (
    Discriminator,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
    WrapSerializer,
    WrapValidator,
)

from gristmill.flows.machine.wrong_values import did_you_mean, listed
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.errors import KeyPath
from gristmill.tasks.decontamination.step import Decontamination
from gristmill.tasks.dedup.exact import ContentDedup, UrlDedup
from gristmill.tasks.dedup.host_lines import HostLines
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.passages import LineDedup, ParagraphDedup, SentenceDedup
from gristmill.tasks.dedup.semantic import Diversify, SemanticDedup
from gristmill.tasks.dedup.substrings import SubstringDedup
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.scope import SCOPE
from gristmill.tasks.documents.step import (
    LANGUAGE,
    CorpusStep,
    DocumentStep,
    Step,
    StepError,
    base_name_of,
    named_kind,
)
from gristmill.tasks.documents.where import Where
from gristmill.tasks.extraction.extract import ENGINE_NAMES, UNION, Extract
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.models.distillation.step import Distill, column_problem
from gristmill.tasks.models.embedding import Embedding
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.harm import AdultContent, Toxicity
from gristmill.tasks.models.language import Language
from gristmill.tasks.models.mixed_languages import MixedLanguages
from gristmill.tasks.models.perplexity import Perplexity
from gristmill.tasks.models.quality import Quality, QualityBucket
from gristmill.tasks.models.topic import Topic
from gristmill.tasks.pii.step import Pii
from gristmill.tasks.reading.sources import Source
from gristmill.tasks.rights.step import Rights
from gristmill.tasks.rules.bad_words import BadWords
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.ccnet import CCNet
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from gristmill.tasks.rules.madlad import Madlad
from gristmill.tasks.rules.refinedweb import RefinedWebLines
from gristmill.tasks.rules.textbook import Textbook
from gristmill.tasks.source_code.language import CodeLanguage
from gristmill.tasks.source_code.rule_sets import OpenCoder, StackV2
from gristmill.tasks.source_code.signals import CodeSignals
from gristmill.tasks.source_code.syntax import CodeSyntax
from gristmill.tasks.url.step import Url


@dataclass(frozen=True)
class TableRow:
    """A step: its settings and, for a corpus step, the function that makes its stages, as `module:function`. Adjacent
    document steps are measured in one pass and decided together."""

    settings: type[Step]
    stages: str = ""


_LEARNED = "gristmill.flows.stages.learned_filters:learned_filter"
TABLE = (
    TableRow(Url),
    TableRow(Extract),
    TableRow(Normalize),
    TableRow(Language),
    TableRow(MixedLanguages),
    TableRow(Textbook),
    TableRow(GopherQuality),
    TableRow(GopherRepetition),
    TableRow(C4),
    TableRow(FineWebQuality),
    TableRow(RefinedWebLines),
    TableRow(Madlad),
    TableRow(CCNet),
    TableRow(BadWords),
    TableRow(CodeLanguage),
    TableRow(CodeSignals),
    TableRow(CodeSyntax),
    TableRow(StackV2),
    TableRow(OpenCoder),
    TableRow(Topic),
    TableRow(Pii),
    TableRow(Rights),
    TableRow(Where),
    TableRow(ContentDedup, "gristmill.flows.stages.dedup.exact_duplicates:content_duplicates"),
    TableRow(UrlDedup, "gristmill.flows.stages.dedup.exact_duplicates:url_duplicates"),
    TableRow(LineDedup, "gristmill.flows.stages.dedup.exact_duplicates:passage_dedup"),
    TableRow(ParagraphDedup, "gristmill.flows.stages.dedup.exact_duplicates:passage_dedup"),
    TableRow(SentenceDedup, "gristmill.flows.stages.dedup.exact_duplicates:passage_dedup"),
    TableRow(HostLines, "gristmill.flows.stages.dedup.exact_duplicates:host_lines"),
    TableRow(SubstringDedup, "gristmill.flows.stages.dedup.exact_duplicates:substring_dedup"),
    TableRow(MinHash, "gristmill.flows.stages.dedup.near_duplicates:minhash"),
    TableRow(Decontamination, "gristmill.flows.stages.removal:decontamination"),
    TableRow(Perplexity, "gristmill.flows.stages.learned_filters:perplexity"),
    TableRow(Quality, _LEARNED),
    TableRow(Toxicity, _LEARNED),
    TableRow(AdultContent, _LEARNED),
    TableRow(Embedding, "gristmill.flows.stages.learned_filters:embedding"),
    TableRow(Distill, "gristmill.flows.stages.distillation:distillation"),
    TableRow(SemanticDedup, "gristmill.flows.stages.dedup.semantic_duplicates:semantic_duplicates"),
    TableRow(Diversify, "gristmill.flows.stages.dedup.semantic_duplicates:semantic_duplicates"),
    TableRow(Annotate, "gristmill.flows.stages.language_model:annotate"),
    TableRow(QualityBucket, "gristmill.flows.stages.signals:quality_bucket"),
)
BUILT_IN: dict[str, type[Step]] = {row.settings.model_fields["step"].default: row.settings for row in TABLE}
_STAGES = {row.settings: row.stages for row in TABLE}


def _read(entry: Any, built_in: Callable[[Any], Step]) -> Step:
    """A step of a recipe: a built-in one, or a user's by name or as `module:Class`, with or without a suffix."""
    if isinstance(entry, Step):
        own_steps.checked(type(entry), BUILT_IN)
        return entry
    name = entry.get("step") if isinstance(entry, dict) else None
    if name == "extract":
        return built_in(_with_engines(entry))
    if not isinstance(name, str) or _built_in_name(entry) in BUILT_IN:
        return built_in(entry)
    base, hyphen, suffix = name.partition("-")
    kind = own_steps.find(base, BUILT_IN)
    if kind is None:
        return built_in(entry)  # whose error names all steps that there are
    values = {key: value for key, value in entry.items() if key != "step"}
    return own_steps.made(kind, values | ({"step": f"{own_steps.name_of(kind)}-{suffix}"} if hyphen else {}))


def _built_in_name(value: Any) -> Any:
    """The name of a step in the table; None for a value without one."""
    name = value.get("step") if isinstance(value, Mapping) else getattr(value, "step", None)
    base = base_name_of(name) if isinstance(name, str) else name
    if named_kind(base) is not None:
        return named_kind(name) or name  # a step with a name of its own has no suffix
    return base


def _with_engines(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of `extract`, with users' engines by their addresses."""
    settings = dict(values)
    if "engine" in values:
        settings["engine"] = _engine(values["engine"], (*ENGINE_NAMES, UNION))
    if isinstance(engines := values.get("engines"), list | tuple):
        settings["engines"] = [_engine(engine, ENGINE_NAMES) for engine in engines]
    return settings


def _engine(engine: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(engine, str) or engine in names:
        return engine
    address = own_steps.address_of(engine, own_steps.ENGINES)
    if address is None:
        there = [*names, *own_steps.names_of(own_steps.ENGINES)]
        hint = did_you_mean(engine, there) or f"give one of {', '.join(there)}, or your own as module:function"
        raise StepError(f"there is no engine {engine!r}; {hint}")
    return address


def read_source(value: Any) -> Any:
    """A source of a recipe, with a user's reader by its address."""
    if not isinstance(value, Mapping) or not isinstance(reader := value.get("reader"), str):
        return value
    address = own_steps.address_of(reader, own_steps.READERS)
    if address is None:
        there = own_steps.names_of(own_steps.READERS)
        hint = did_you_mean(reader, there) or (
            f"installed packages have {', '.join(there) or 'none'}; name your own as module:function"
        )
        raise StepError(f"there is no reader {reader!r}; {hint}")
    return {**value, "reader": address}


def _write(step: Step, built_in: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    """A step in the form that `_read` reads."""
    if type(step) in BUILT_IN.values():
        return built_in(step)
    suffix = step.step.removeprefix(step.base_name)
    return step.model_dump(mode=info.mode) | {"step": f"{own_steps.address(type(step))}{suffix}"}


if TYPE_CHECKING:
    AnyStep = Step  # a type checker cannot follow a union made of a table
else:
    AnyStep = Annotated[
        Union[tuple(Annotated[kind, Tag(name)] for name, kind in BUILT_IN.items())],  # noqa: UP007  (the table's)
        Discriminator(_built_in_name),
        WrapValidator(_read),
        WrapSerializer(_write),
    ]


def builder_of(step: CorpusStep) -> Callable[..., Any]:
    """The function that makes the stages of a corpus step. A user's corpus step is a learned filter."""
    module, function = _STAGES.get(type(step), _LEARNED).split(":")
    return getattr(import_module(module), function)


def filter_stages(steps: Iterable[Step]) -> tuple[str, ...]:
    """Names of the stages of learned filters: of all shipped ones, and of users' filters among `steps`.

    A filter has `<step>_model`, `<step>` and `<step>_cut` (`gristmill.flows.stages.learned_filters`).
    """
    kinds = {**BUILT_IN, **{step.step: type(step) for step in steps}}
    names = [name for name, kind in kinds.items() if issubclass(kind, LearnedFilter)]
    return tuple(stage for name in names for stage in (f"{name}_model", name, f"{name}_cut"))


def thresholds_of(step: Step) -> tuple[str, ...]:
    """The settings that only apply to stored signals or scores, so they can be replayed."""
    if isinstance(step, DocumentStep):
        return tuple(name for name in type(step).model_fields if name not in ("step", *SCOPE, *step.signal_fields))
    return step.decision_fields if isinstance(step, CorpusStep) else ()


def modules_of(step: Step) -> tuple[str, ...]:
    """The modules with the code of a step: its settings and its work. Raises ValueError for `__main__`."""
    kind = type(step)
    if "__main__" in (kind.__module__, kind.work):
        raise ValueError(f"the step {step.step} is defined in __main__: move it to a module that workers can import")
    return tuple(dict.fromkeys((kind.__module__, kind.work or kind.__module__, *step.modules)))


def document_steps() -> dict[str, type[DocumentStep]]:
    """All document steps by name: built-in, of entry points, and of the modules in GRISTMILL_STEPS."""
    return {
        name: kind for name, kind in (BUILT_IN | own_steps.known(BUILT_IN)).items() if issubclass(kind, DocumentStep)
    }


# The sources that the steps of a recipe apply to: which lists of sources have no meaning, and which steps may repeat.
#
# A step may be in a recipe several times if each source has one of them. Each then has its own name.


def repeated_steps(steps: Sequence[Step], sources: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Problems with steps that a recipe has more than once."""
    for index, step in enumerate(steps):
        earlier = [one for one in steps[:index] if one.base_name == step.base_name]
        if step.step in [one.step for one in earlier]:
            yield ("steps", index), f"`{step.step}` is listed more than once; {_remedy(step)}"
        elif both := [name for name in sources if step.applies_to(name) and any(o.applies_to(name) for o in earlier)]:
            yield (
                ("steps", index),
                f"`{step.step}` and `{earlier[-1].step}` both apply to {listed(both)}; use `only` and `except` so that "
                "each source has one of them",
            )


def _remedy(step: Step) -> str:
    if (kind := named_kind(step.step)) is not None:
        return f"give the later one a different name, as `step: {kind}_short`"
    if isinstance(step, DocumentStep):
        return (
            f"for other settings for other sources, give the later one a name, as `step: {step.base_name}-2`, and use "
            "`only` or `except` in both"
        )
    if isinstance(step, Distill):
        return (
            "a recipe has it only once; for a second score, use another recipe whose source is the export of this one"
        )
    return "a recipe can have this step only once"


def source_problems(index: int, step: Step, sources: Sequence[Source]) -> Iterator[tuple[KeyPath, str]]:
    """Problems with the sources of a step, which is given by its path."""
    key = "except" if step.only is None else "only"
    exempt = {source.name for source in sources if not step.applies_to(source.name)}
    left = [source.name for source in sources if source.name not in exempt]
    reference = getattr(step, "reference", ())
    if not left:
        yield ("steps", index, key), f"leaves no source for `{step.step}`; change it, or remove the step"
    elif exempt and reference and set(left) <= set(reference):
        yield (
            ("steps", index, key),
            f"leaves only {listed(left)}, from which `{step.step}` learns, so there is nothing to score; add a source",
        )
    pages = [source.name for source in sources if source.name in exempt and source.needs_extraction]
    if isinstance(step, Extract) and pages:
        yield ("steps", index, key), f"leaves out {listed(pages)}, whose pages have no text without `extract`"


def unmeasured_columns(steps: Sequence[Step], sources: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Steps that read columns which no earlier step measures for all of their sources."""
    measured: dict[str, set[str]] = {}
    for index, step in enumerate(steps):
        for name in _read_by(step):
            missing = [
                source
                for source in sources
                if step.applies_to(source) and name in measured and source not in measured[name]
            ]
            if missing:
                yield (
                    ("steps", index),
                    f"`{step.step}` reads {name}, which no step before it measures for {listed(missing)}; "
                    + _how_to_read(step, missing),
                )
        for signal in step.signals:
            measured.setdefault(signal.name, set()).update(filter(step.applies_to, sources))


def column_problems(steps: Sequence[Step], sources: Sequence[Source]) -> Iterator[tuple[KeyPath, str]]:
    """Problems with the columns that steps read."""
    yield from unmeasured_columns(steps, [source.name for source in sources])
    yield from annotation_problems(steps, sources)


def annotation_problems(steps: Sequence[Step], sources: Sequence[Source]) -> Iterator[tuple[KeyPath, str]]:
    """Problems with the columns of annotations that steps learn from."""
    own = [name for source in sources for name, _ in source.read_columns.own]
    every = any(
        source.read_columns.every for source in sources
    )  # the columns of its files are known when these are read
    signals: dict[str, str] = {}
    for index, step in enumerate(steps):
        if isinstance(step, Distill):
            if step.of in signals:
                if problem := column_problem(step, signals[step.of]):
                    yield ("steps", index, "of"), f"cannot be learned from: {problem}"
            elif step.of not in own and not every:
                hint = did_you_mean(step.of, [*signals, *own]) or (
                    "add the step that annotates before it, or add a column of a source to its `columns`"
                )
                yield ("steps", index, "of"), f"is {step.of}, but no step before it or source has this column; {hint}"
            if step.weight is not None and step.weight not in {*signals, *own} and not every:
                hint = did_you_mean(step.weight, [*signals, *own]) or "name a column of weights, or remove `weight`"
                yield ("steps", index, "weight"), f"is {step.weight}, which no step before it or source has; {hint}"
        signals |= {signal.name: signal.kind for signal in step.signals}


def _read_by(step: Step) -> tuple[str, ...]:
    """The columns that a step needs: without them it fails or drops documents."""
    if isinstance(step, Where):
        return tuple(step.columns) if step.nulls is None else ()
    reads = step.reads if isinstance(step, DocumentStep | CorpusStep) else ()
    return (*reads, LANGUAGE) if getattr(step, "languages", None) and LANGUAGE not in reads else reads


def _how_to_read(step: Step, missing: Sequence[str]) -> str:
    own = f"add `except: [{', '.join(missing)}]` to `{step.step}`"
    if step.only is not None:
        own = f"remove {'it' if len(missing) == 1 else 'them'} from `only` of `{step.step}`"
    if step.left_out is not None:
        own = f"add {'it' if len(missing) == 1 else 'them'} to `except` of `{step.step}`"
    return f"{own}, or set `nulls` to keep or drop" if isinstance(step, Where) else own
