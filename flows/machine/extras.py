"""What a command needs beyond the core, and how it is installed."""

from importlib.util import find_spec

EXTRAS = {"train": ("torch", "mlflow")}


class MissingExtraError(RuntimeError):
    """A package of an extra is not installed."""


def require(extra: str, purpose: str) -> None:
    """Raise MissingExtraError, which says how it is installed, if a package of the extra is missing. Imports none."""
    if missing := [name for name in EXTRAS[extra] if find_spec(name) is None]:
        raise MissingExtraError(f"{purpose} needs {' and '.join(missing)}: pip install 'gristmill[{extra}]'")
