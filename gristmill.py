"""Gristmill from Python: web crawls in, a trained language model out.

import gristmill
report = gristmill.pipeline("demo")
report.result["heldout/bits_per_byte"]

`load` reads a recipe; `corpus`, `tokens` and `pretrain` are the parts of `pipeline`. All return a `Report`. `ablate`
compares recipes, and returns a `DecisionReport`; `mix` looks for a mixture of sources (`FoundMixture`), `scale` fits a
scaling law (`ScalingReport`), `agreement` says whether recipes keep their order at another size (`AgreementReport`).
Each is imported when it is asked for: the flows take seconds, since Prefect does.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.decisions.ablate import ablate
    from flows.decisions.report import DecisionReport
    from flows.mixing.mix import mix
    from flows.mixing.mixed_recipe import FoundMixture
    from flows.pipeline import corpus, pipeline, pretrain, tokens
    from flows.recipe.recipe import load
    from flows.reports.run import Report
    from flows.scaling.report import AgreementReport, ScalingReport
    from flows.scaling.scale import agreement, scale

    __version__: str

__all__ = [
    "AgreementReport",
    "DecisionReport",
    "FoundMixture",
    "Report",
    "ScalingReport",
    "__version__",
    "ablate",
    "agreement",
    "corpus",
    "load",
    "mix",
    "pipeline",
    "pretrain",
    "scale",
    "tokens",
]

_MODULES = {
    "AgreementReport": "flows.scaling.report",
    "DecisionReport": "flows.decisions.report",
    "FoundMixture": "flows.mixing.mixed_recipe",
    "Report": "flows.reports.run",
    "ScalingReport": "flows.scaling.report",
    "ablate": "flows.decisions.ablate",
    "agreement": "flows.scaling.scale",
    "corpus": "flows.pipeline",
    "load": "flows.recipe.recipe",
    "mix": "flows.mixing.mix",
    "pipeline": "flows.pipeline",
    "pretrain": "flows.pipeline",
    "scale": "flows.scaling.scale",
    "tokens": "flows.pipeline",
}
_PACKAGES = ("flows", "storage", "tasks", "training")


def _check_packages() -> None:
    """Raise ImportError where another package hides one of ours. Imports none."""
    here = Path(__file__).resolve().parent
    for name in _PACKAGES:
        found = _path_of(name)
        if found is None:
            raise ImportError(f"gristmill's own package `{name}` is not in {here}: install gristmill again")
        if found != here / name:
            raise ImportError(
                f"gristmill needs its own package `{name}` in {here}, but Python finds another of that name first: "
                f"{found}. Start Python in another folder, take that one out of PYTHONPATH, or rename or uninstall the "
                "other package"
            )


def _path_of(name: str) -> Path | None:
    """Folder of a package, or file of a module, that `import` would take; None if there is none."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is not None:
        path = Path(spec.origin).resolve()
        return path.parent if spec.submodule_search_locations is not None else path
    return next((Path(folder).resolve() for folder in spec.submodule_search_locations or ()), None)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("gristmill")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_check_packages()
