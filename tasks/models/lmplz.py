"""KenLM's `lmplz` and `build_binary`, compiled from KenLM's own sources when the project is installed.

`native/lmplz/build_hook.py` builds them; it runs inside pip and is not part of the installed package.
"""

from pathlib import Path

_BIN = Path(__file__).with_name("lmplz_bin")

LMPLZ = _BIN / "lmplz"
BUILD_BINARY = _BIN / "build_binary"


def tool(name: str, folder: Path = _BIN) -> Path:
    """Path of the executable `name`, "lmplz" or "build_binary", in `folder`.

    Raises ValueError for another name, and FileNotFoundError, with the remedy, where it was never built (a
    tree that is on the path but was not installed).
    """
    if name not in (LMPLZ.name, BUILD_BINARY.name):
        raise ValueError(f"{name!r} is not a KenLM tool built here; {LMPLZ.name} and {BUILD_BINARY.name} are")
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: KenLM's tools are compiled by the installation; "
            "run `make venv`, or `pip install -e .` in the project's folder"
        )
    return path
