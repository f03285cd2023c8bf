"""KenLM's `lmplz` and `build_binary`, compiled from KenLM's own sources when the project is installed.

`native/lmplz/build_hook.py` builds them; it runs inside pip and is not part of the installed package.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

_BIN = Path(__file__).with_name("lmplz_bin")

LMPLZ = _BIN / "lmplz"
BUILD_BINARY = _BIN / "build_binary"

_MEMORY = "1G"
_POINTER_BITS = 22  # of Bhiksha's compression, at most: as KenLM's page has it in its example


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


def estimate(text: Path, model: Path, order: int, prune: Sequence[int] = (), bits: int | None = None) -> None:
    """Write a model of n-grams up to `order`, a trie, from lines of words separated by one space.

    `prune`: n-grams with a count of at most so many are left out, by order from 1, the last for all higher ones.
    `bits`: probabilities and back-offs are quantised to so many each. Sorts on disk beside `model`, within 1 GB.
    Raises RuntimeError with the tool's own last words.
    """
    arpa = model.with_name(f"{model.name}.arpa")
    # small texts lack the counts of counts that Kneser-Ney discounts need
    options = ["-o", str(order), "-S", _MEMORY, "-T", str(model.parent), "--discount_fallback", "--skip_symbols"]
    if prune:
        options += ["--prune", *map(str, prune)]
    _run([str(tool("lmplz")), *options, "--text", str(text), "--arpa", str(arpa)])
    quantised = [] if bits is None else ["-q", str(bits), "-b", str(bits), "-a", str(_POINTER_BITS)]
    _run([str(tool("build_binary")), *quantised, "trie", str(arpa), str(model)])
    arpa.unlink()


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}: {result.stderr.strip()[-800:]}")
