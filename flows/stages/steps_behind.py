"""What enters a stage's key for the steps that it runs: files that they name, their code, releases of libraries."""

from collections.abc import Iterable
from importlib import import_module

from flows.context import RunContext
from flows.steps import modules_of
from tasks.documents.step import DocumentStep, Step


def pinned(context: RunContext, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, those that name files tied to the content that these have now."""

    def pin(step: Step) -> Step:
        step = context.placed(step)
        work = import_module(step.work or type(step).__module__) if step.pins_files else None
        return work.pinned(step) if work else step

    return tuple(pin(step) if isinstance(step, DocumentStep) else step for step in steps)


def modules(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(sorted({name for step in steps for name in modules_of(step)}))


def libraries(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(sorted({name for step in steps for name in step.libraries}))
