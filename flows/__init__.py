"""What runs, in which order, with what settings.

from flows import pipeline
pipeline("demo.yaml")
"""

import sys
from importlib import import_module
from types import ModuleType

import flows.prefect_env  # noqa: F401  (before anything imports prefect)

__all__ = ["corpus", "pipeline", "pretrain", "tokens"]


def __getattr__(name: str):
    """The flows are imported when one is asked for: what needs no Prefect does not wait the seconds that it takes."""
    if name in __all__:
        return getattr(import_module("flows.pipeline"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    def __setattr__(self, name: str, value) -> None:
        # the import of the module flows.pipeline would hide the flow of that name
        if not (name == "pipeline" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
