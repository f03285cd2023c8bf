"""`python -m tests.golden.mutate FILE.json [NUMBER...]`: whether the golden guard sees mutations of the code.

The file is a list of {"number", "what", "file", "old", "new", "step"}: `old`, which occurs once in the file, is
replaced by `new` in a copy of the checkout, and the rows that cover `step` (names, separated by commas) are run there,
against its table. A mutation that no row sees has survived.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILT = ("tasks/models/compiled",)  # which git does not know
LIMIT = 900  # seconds of a mutation, which may go on for ever
_IMPORT = re.compile(r"(?:from|import) gristmill\.([\w.]+)(?: import \(?([\w, ]+))?")


@dataclass(frozen=True)
class Outcome:
    """`said`: the last line of a run that was red."""

    number: Any
    step: str
    what: str
    red: bool
    seconds: float
    said: str


def copied(folder: Path) -> Path:
    """The files that git knows, or would add, in a folder, with their times, by which kernels that were compiled are
    known."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.is_file():
            shutil.copy2(source, target)
    for name in BUILT:
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    return folder


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"XDG_CACHE_HOME": str(folder.with_name("caches"))}  # which no other checkout clears
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)


def _kernels(folder: Path) -> Path:
    """Where the copy keeps compiled kernels: another folder for other sources."""
    done = _python(folder, "-c", "from gristmill.tasks.kernels.compiled import FOLDER; print(FOLDER)")
    return Path(done.stdout.strip() or folder / "none")


def _behind(folder: Path, changed: str) -> set[str]:
    """The names of the modules that import a file, by way of others, too; and its own."""
    modules = {
        path.relative_to(folder).with_suffix("").as_posix().replace("/", "."): path.read_text(encoding="utf-8")
        for path in (folder / "tasks").rglob("*.py")
    }
    imported = {}
    for name, text in modules.items():
        found = _IMPORT.findall(text)
        imported[name] = {module for module, _ in found}
        imported[name] |= {f"{module}.{each.strip()}" for module, names in found for each in names.split(",")}
    stale = {changed.removesuffix(".py").replace("/", ".")}
    while more := {name for name, names in imported.items() if names & stale} - stale:
        stale |= more
    return {name.rpartition(".")[2] for name in stale}


@contextmanager
def _warm(folder: Path, before: Path, changed: str) -> Iterator[None]:
    """The kernels that a mutation leaves as they are need not be compiled again."""
    now = _kernels(folder)
    if now == before or now.exists() or not before.exists():
        yield
        return
    stale = _behind(folder, changed)
    shutil.copytree(before, now, ignore=lambda _, names: [name for name in names if name.split(".")[0] in stale])
    try:
        yield
    finally:
        shutil.rmtree(now)


def _guard(folder: Path, steps: str) -> tuple[int, str]:
    try:
        done = _python(folder, "-m", "tests.golden", "--only", steps, "--slow")
    except subprocess.TimeoutExpired:
        return 1, f"no end within {LIMIT} seconds"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def tried(folder: Path, mutation: dict[str, Any], kernels: Path) -> Outcome:
    """Apply a mutation in the copy, run the guard there, and restore the file. Raises ValueError for one that fits
    nowhere, or in several places."""
    path = folder / mutation["file"]
    whole, times = path.read_text(encoding="utf-8"), path.stat()
    if (count := whole.count(mutation["old"])) != 1:
        raise ValueError(f"mutation {mutation['number']}: {mutation['file']} has {mutation['old']!r} {count} times")
    path.write_text(whole.replace(mutation["old"], mutation["new"]), encoding="utf-8")
    began = time.monotonic()
    try:
        with _warm(folder, kernels, mutation["file"]):
            code, said = _guard(folder, mutation["step"])
    finally:
        path.write_text(whole, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return Outcome(mutation["number"], mutation["step"], mutation["what"], code != 0, time.monotonic() - began, said)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.golden.mutate", description="try mutations on the golden guard")
    parser.add_argument("file", type=Path)
    parser.add_argument("numbers", nargs="*")
    asked = parser.parse_args(given)
    mutations = json.loads(asked.file.read_text(encoding="utf-8"))
    if asked.numbers:
        mutations = [each for each in mutations if str(each["number"]) in asked.numbers]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        folder = copied(Path(scratch) / "checkout")
        kernels = _kernels(folder)
        code, said = _guard(folder, ",".join(sorted({mutation["step"] for mutation in mutations})))
        if code:
            raise SystemExit(f"the guard is red without a mutation: {said}")
        for mutation in mutations:
            outcome = tried(folder, mutation, kernels)
            outcomes.append(outcome)
            shown = "red  " if outcome.red else "GREEN"
            line = f"{outcome.number!s:>4}  {outcome.step[:24]:24} {shown} {outcome.seconds:6.1f} s  {outcome.said}"
            print(line[:200], flush=True)
    survivors = [each for each in outcomes if not each.red]
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutations were seen")
    for each in survivors:
        print(f"survived: {each.number} {each.step}: {each.what}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
