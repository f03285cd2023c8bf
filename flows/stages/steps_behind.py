"""What enters a stage's key for the steps that it runs: files that they name, their code, releases of libraries."""

from collections.abc import Iterable

from flows.context import RunContext
from flows.steps import modules_of
from tasks.documents.step import DocumentStep, Step


def pinned(context: RunContext, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, those that name files tied to the content that these have now."""
    return tuple(
        context.placed(step).pinned() if isinstance(step, DocumentStep) or step.pins_files else step for step in steps
    )


def modules(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(sorted({name for step in steps for name in modules_of(step)}))


def classes(steps: Iterable[Step]) -> tuple[str, ...]:
    """The classes of steps as `module:Class`: two of one name may be in one module."""
    return tuple(f"{type(step).__module__}:{type(step).__qualname__}" for step in steps)


def libraries(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(sorted({name for step in steps for name in step.libraries}))
