"""Finds users' steps (classes), engines and readers (functions) by name or address.

A recipe by itself cannot run code. A class is imported from a module only if an installed distribution declares it as
an entry point of the group `gristmill.steps` (name = module:Class), or if the machine setting GRISTMILL_STEPS lists the
module or a package that contains it. Then a recipe can use its name, or `module:Class`. The same applies to functions:
the groups are `gristmill.engines` and `gristmill.readers`, and a recipe has `module:function`, or an entry point.
"""

import inspect
import re
from collections.abc import Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import wrapt
from pydantic import ValidationError

from gristmill.flows.machine.settings import MachineSettings
from gristmill.tasks.documents.accepted import accepted_decisions
from gristmill.tasks.documents.step import (
    DocumentStep,
    EditStep,
    Settings,
    Step,
    StepError,
    imported,
    named_kind,
    work_of,
)
from gristmill.tasks.engine import own_code
from gristmill.tasks.models.filter import LearnedFilter

if TYPE_CHECKING:
    from gristmill.tasks.engine import code_version
else:
    code_version = wrapt.lazy_import("gristmill.tasks.engine.code_version")

GROUP = "gristmill.steps"
ENGINES, READERS = "gristmill.engines", "gristmill.readers"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ADDRESS = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*):([A-Za-z_]\w*)")

Steps = Mapping[str, type[Step]]
_KINDS = (DocumentStep, LearnedFilter)


def find(name: str, built_in: Steps) -> type[Step] | None:
    """The class of a step in a recipe, None if there is none.

    `name`: its name, or `module:Class`. Raises StepError for a module that is missing or not allowed, and for a class
    that is not a valid step.
    """
    if ":" in name:
        return checked(_at(name, allowed=_allowed(name)), built_in)
    return known(built_in).get(name) if name in _entry_points() or _listed() else None


def address_of(name: str, group: str) -> str | None:
    """The address `module:function` of an engine or reader in a recipe; None for an unknown name. Does not import it.
    `group`: ENGINES or READERS. Raises StepError for a module that is not allowed."""
    if ":" not in name:
        point = _entry_points(group).get(name)
        return point.value if point else None
    if not _ADDRESS.fullmatch(name):
        raise StepError(f"{name!r} is not a function: write module:function, such as my_package.mail:mbox")
    if not _allowed(name, group):
        raise _not_allowed(f"a function of the module {name.partition(':')[0]}", name.partition(":")[0])
    return name


def libraries_of(module: str) -> tuple[str, ...]:
    """The distributions whose release affects the results of a user's module: its LIBRARIES."""
    return tuple(getattr(imported(module), "LIBRARIES", ()))


def versions_of(step: Step) -> dict[str, int | str]:
    """The versions in keys for a step: its own version by its name, and for each user's class or module that does its
    work, by address, the declared version or the digest of the code."""
    kind = type(step)
    if not code_version.is_ours(kind.__module__):
        if "work_version" in vars(kind):
            return {address(kind): kind.work_version}
        modules = (kind.__module__, kind.work or kind.__module__, *step.modules)
        return {address(kind): f"code {code_version.own_code(modules)}"}
    return {
        step.base_name: kind.work_version,
        **step.part_versions,
        **{name: version_at(f"{name}:") for name in step.modules if not code_version.is_ours(name)},
    }


def version_at(address: str) -> int | str:
    """The VERSION that the module of a user's function declares, or the digest of its code. Raises StepError if VERSION
    is not an integer."""
    module = address.partition(":")[0]
    declared = getattr(imported(module), "VERSION", None)
    if declared is not None and not isinstance(declared, int):
        raise StepError(f"VERSION of the module {module} is {declared!r}: use a whole number, or remove it")
    return f"code {code_version.own_code((module,))}" if declared is None else declared


def names_of(group: str) -> list[str]:
    """The names of engines or readers in installed packages."""
    return sorted(_entry_points(group))


def may_be_known(name: str) -> bool:
    """Whether this name or address may be a user's step on this machine. Does not import code."""
    return _allowed(name) if ":" in name else name in _entry_points() or bool(_listed())


def known(built_in: Steps) -> dict[str, type[Step]]:
    """All users' steps on this machine, by name. Raises StepError if two have the same name."""
    by_name: dict[str, type[Step]] = {}
    kinds = [checked(_at(point.value, allowed=True), built_in, point.name) for point in _entry_points().values()]
    for module in _listed():
        for kind in vars(imported(module)).values():
            own = inspect.isclass(kind) and f"{kind.__module__}.".startswith(f"{module}.")
            if own and issubclass(kind, _KINDS) and not kind.model_fields["step"].is_required():
                kinds.append(checked(kind, built_in))
    for kind in kinds:
        other = by_name.setdefault(name_of(kind), kind)
        if other is not kind:
            raise StepError(
                f"two steps have the name {name_of(kind)}: {address(other)} and {address(kind)}; rename one"
            )
    return by_name


def made(kind: type[Step], values: Mapping[str, Any]) -> Step:
    """Create a user's step with these settings, and call its methods once: the decisions, or the slices of a filter's
    settings. Raises StepError for their errors, ValidationError for invalid settings."""
    label = f"step {name_of(kind)}"
    try:
        step = kind.model_validate(dict(values))
    except ValidationError:
        raise
    except Exception as error:
        raise StepError(str(own_code.raised(label, kind.__module__, error))) from error
    try:
        if isinstance(step, DocumentStep):
            columns = [signal.name for signal in step.signals]
            accept = partial(accepted_decisions, [*columns, *step.reads, *step.considers] if columns else [])
            own_code.call(label, step.decisions, accept=accept)
        elif isinstance(step, LearnedFilter):
            for slice_of in (step.training_settings, step.scoring_settings, step.decision_settings):
                own_code.call(label, slice_of, accept=_accepted_settings)
    except own_code.OwnCodeError as error:
        raise StepError(str(error)) from error
    return step


def _accepted_settings(result: Any) -> Settings:
    if not isinstance(result, Settings):
        raise own_code.Unacceptable(f"returned {own_code.shown(result)}; return Settings")
    return result


def address(kind: type[Step]) -> str:
    """`module:Class`, the address of a step's class in a recipe."""
    return f"{kind.__module__}:{kind.__qualname__}"


def checked(kind: type, built_in: Steps, entry_point: str = "") -> type[Step]:
    """Return the class if it is in the table of steps, or can be used in addition to it. Raises StepError."""
    if kind in built_in.values():
        return kind
    if not (inspect.isclass(kind) and issubclass(kind, _KINDS)):
        raise StepError(
            f"{getattr(kind, '__name__', kind)!r} is not a document step: derive it from DocumentStep or LearnedFilter"
        )
    where = address(kind)
    name = name_of(kind)
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise StepError(f'{where} has no name: add step: Literal["my_step"] = "my_step", in lowercase')
    if name in built_in or named_kind(name):
        raise StepError(f"{where} has the name of the built-in step {name}: choose another name")
    if entry_point and entry_point != name:
        raise StepError(
            f"the entry point {entry_point} of {GROUP} refers to {where}, whose name is {name}: "
            "use the same name for both"
        )
    for function in _functions(kind):
        if not kind.work and not hasattr(work_of(kind), function.partition("(")[0]):
            raise StepError(f"{kind.__module__} has no function {function}, and {where} does not name another module")
    return kind


def _functions(kind: type[Step]) -> tuple[str, ...]:
    """What the work module of a step must have."""
    if issubclass(kind, LearnedFilter):
        return "score_shard(folder, shard, documents, kept, models, settings)", "bounds(settings, scores)"
    return ("edit(step, documents)",) if issubclass(kind, EditStep) else ("measure(step, documents)",)


def name_of(kind: type[Step]) -> str:
    """The name of a class's steps."""
    return kind.model_fields["step"].default


def _at(address: str, allowed: bool) -> type:
    match = _ADDRESS.fullmatch(address)
    if not match:
        raise StepError(f"{address!r} is not a step: write module:Class, such as my_package.my_steps:Profanity")
    module, name = match.groups()
    if not allowed:
        raise _not_allowed(f"a step of the module {module}", module)
    kind = getattr(imported(module), name, None)
    if kind is None:
        raise StepError(f"the module {module} has no class {name}")
    return kind


def _not_allowed(what: str, module: str) -> StepError:
    return StepError(
        f"the recipe uses {what}, which this machine does not allow: if you trust its code, set "
        f"GRISTMILL_STEPS={','.join((*_listed(), module))}"
    )


def _allowed(address: str, group: str = GROUP) -> bool:
    module = address.partition(":")[0]
    of_entry_point = any(point.value == address for point in _entry_points(group).values())
    return of_entry_point or any(f"{module}.".startswith(f"{listed}.") for listed in _listed())


def _listed() -> tuple[str, ...]:
    return MachineSettings().steps


def _entry_points(group: str = GROUP) -> dict[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        if points.setdefault(point.name, point).value != point.value:
            raise StepError(f"two entry points of {group} have the name {point.name}: uninstall one of their packages")
    return points
