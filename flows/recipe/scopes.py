"""The sources that the steps of a recipe apply to: which lists of sources have no meaning, and which steps may repeat.

A step may be in a recipe several times if each source has one of them. Each then has its own name.
"""

from collections.abc import Iterator, Sequence

from gristmill.flows.machine.wrong_values import listed
from gristmill.flows.recipe.errors import KeyPath
from gristmill.tasks.documents.step import LANGUAGE, CorpusStep, DocumentStep, Step
from gristmill.tasks.documents.where import Where, is_where
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.reading.sources import Source


def repeated(steps: Sequence[Step], sources: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with steps that a recipe has more than once."""
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
    if is_where(step.step):
        return "give the later one a different name, as `step: where_short`"
    if isinstance(step, DocumentStep):
        return (
            f"for other settings for other sources, give the later one a name, as `step: {step.base_name}-2`, and use "
            "`only` or `except` in both"
        )
    return "a recipe can have this step only once"


def of_step(index: int, step: Step, sources: Sequence[Source]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with the sources of a step, given by its place."""
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


def unmeasured(steps: Sequence[Step], sources: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Steps that read what an earlier step does not measure for all of their sources."""
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


def _read_by(step: Step) -> tuple[str, ...]:
    """The columns without which a step fails, or drops documents."""
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
