"""All kernels compiled once per machine, ahead of the first run, in processes of their own.

numba compiles a kernel for the types that it is called with, and keeps it in
`gristmill.tasks.kernels.compiled.FOLDER`. So every stage's own code is called on a few small documents, which need
every kernel. What is compiled already is only loaded.

    python -P -m gristmill.flows.run.kernel_compilation PART

is one such process: it prints the name of each kernel that it has compiled.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from filelock import FileLock, Timeout

import gristmill
from gristmill.flows.run.progress import progress_bar

PACKAGE = Path(gristmill.__file__).resolve().parent
_OLD_SECONDS = 30 * 24 * 3600
_WAIT_SECONDS = 2.0
_LINE_SECONDS = 10.0
# a kernel that is inlined is compiled with the kernels that call it
_KERNEL = re.compile(r"^@nb\.njit\((?!.*inline=).*\n(?:@.*\n)*def (\w+)", re.MULTILINE)

_SENTENCES = (
    "The mill by the river grinds the grain of forty farms, and the water has turned its wheel since 1874.",
    "Call the miller at +1 202 555 0143, write to miller@example.com, or visit https://mill.example.org/ at noon.",
    "A sack of flour costs more in winter; the baker, who needs two of them a day, pays at the end of every week.",
)
_BULLETS = "- Wheat is ground on Mondays…\n* Rye is ground on Fridays, as lorem ipsum has it {so}"
TEXTS = (
    "\n\n".join([*_SENTENCES, _BULLETS, *_SENTENCES[1:]]),
    "\n\n".join([*_SENTENCES, _BULLETS, "One line more, that no other document of these four has at its end."]),
    "\n".join([_SENTENCES[0], "12 likes", "", "", "NO SENTENCE", "Please, read more...", _SENTENCES[2], "No sentence"]),
    "Le moulin tourne au bord de la rivière et le grain arrive chaque matin dans de grands sacs de toile.",
)
PAGE = (
    '<html><head><title>Mill</title><meta name="description" content="A mill"><style>p {}</style></head><body>'
    '<nav class="menu"><ul><li><a href="/">Home</a></li></ul></nav><main id="content"><h1>Mill</h1>'
    + "".join(f"<p>{sentence}</p>" for sentence in _SENTENCES)
    + "<table><tr><td>1</td></tr></table><pre>a\n b</pre></main><footer>&copy; 2024</footer></body></html>"
)


def kernels() -> set[str]:
    """The names of all kernels, as `module.function`, by the texts of their modules."""
    return {
        f"gristmill.{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}.{name}"
        for path in sorted((PACKAGE / "tasks").rglob("*.py"))
        for name in _KERNEL.findall(path.read_text(encoding="utf-8"))
    }


def compile_kernels(say: Callable[[str], None]) -> int:
    """Compile what is not compiled yet, and return how many kernels that were; at once, if all are there.

    `say` is given a line at the beginning and every ten seconds; a terminal has a bar besides. Of two processes that
    ask at once the second waits for the first. Raises RuntimeError with the last words of a process that failed.
    """
    complete = complete_file()
    if complete.is_file():
        return 0
    wanted, compiled = kernels(), set[str]()
    say(f"kernels: compiling {len(wanted)}, once on this machine (a minute of two cores)")
    said = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("kernels", total=len(wanted))
        for names in _until(complete):
            compiled |= (names or set()) & wanted
            bar.update(task, completed=len(compiled))
            if time.monotonic() - said > _LINE_SECONDS:
                said = time.monotonic()
                waits = "waiting for the process that compiles them"
                say(f"kernels: {waits if names is None else f'{len(compiled)} of {len(wanted)} compiled'}")
    return len(compiled)


def complete_file() -> Path:
    """The file that is there once all kernels of this version are compiled for this machine."""
    import numba

    from gristmill.tasks.kernels.compiled import FOLDER

    # numba compiles anew for another numba, and for another processor
    return FOLDER / f"complete-{sys.implementation.cache_tag}-numba-{numba.__version__}-{_processor()}"


def _until(complete: Path) -> Iterator[set[str] | None]:
    """The names of kernels, often none, until the file says that all are there; None while another process works."""
    complete.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(complete.parent / ".lock")
    try:
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_WAIT_SECONDS)
            except Timeout:
                yield None
        if not complete.is_file():
            _remove_old(complete.parent)
            yield from _compiled()
            complete.touch()
    finally:
        lock.release()


def _processor() -> str:
    """The processor that numba compiles for: this one, unless `NUMBA_CPU_NAME` names another."""
    from llvmlite import binding

    return os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()


def _remove_old(folder: Path) -> None:
    """Kernels of other sources that nobody has compiled in a month."""
    for other in folder.parent.glob("kernels-*"):
        if other != folder and time.time() - other.stat().st_mtime > _OLD_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _compiled() -> Iterator[set[str]]:
    """The names of kernels as processes compile them; none of them every few seconds."""
    lines: SimpleQueue[tuple[str, str | None]] = SimpleQueue()
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    children: dict[str, subprocess.Popen[str]] = {}

    def forward(part: str, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put((part, line.rstrip()))
        lines.put((part, None))

    try:
        for part in PARTS:
            children[part] = subprocess.Popen(
                [sys.executable, "-P", "-m", "gristmill.flows.run.kernel_compilation", part],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=os.environ | {"PYTHONPATH": path},
            )
            threading.Thread(target=forward, args=(part, children[part]), daemon=True).start()
        words: dict[str, list[str]] = {part: [] for part in children}
        while children:
            try:
                part, line = lines.get(timeout=_WAIT_SECONDS)
            except Empty:
                yield set()
                continue
            if line is None:
                if code := children.pop(part).wait():
                    last = "\n".join(words[part][-15:])
                    raise RuntimeError(f"compilation of the kernels of {part} ended with code {code}:\n{last}")
            elif line.startswith(_COMPILED):
                yield {line.removeprefix(_COMPILED)}
            else:
                words[part].append(line)
    finally:
        for child in children.values():
            child.kill()
            child.wait()


def _extraction() -> None:
    from gristmill.tasks.extraction.engines import blocks

    blocks(PAGE)


def _rules() -> None:
    """Each document step as it is by default, and as DCLM defines it, by itself and behind each that edits."""
    import pyarrow as pa

    from gristmill.flows.recipe.steps import BUILT_IN
    from gristmill.tasks.documents.measure import measured
    from gristmill.tasks.documents.step import DocumentStep, EditStep
    from gristmill.tasks.rules.gopher_quality import GopherQuality
    from gristmill.tasks.rules.gopher_repetition import GopherRepetition

    with tempfile.TemporaryDirectory(prefix="gristmill-kernels-") as folder:
        words = Path(folder) / "words.txt"
        words.write_text("flour\nrye bread\n", encoding="utf-8")
        given = {"bad_words": {"lists": {"any": str(words)}}}
        columns = {
            "id": [f"{i:032x}" for i in range(len(TEXTS))],
            "url": ["https://mill.example.org/"] * len(TEXTS),
            "text": pa.array(TEXTS, pa.large_string()),
            "language": ["en"] * len(TEXTS),
            "language_score": [1.0] * len(TEXTS),
        }
        table = pa.table(columns)
        # neither URLs nor models nor code are read by kernels
        steps = [
            kind.model_validate(given.get(name, {}))
            for name, kind in BUILT_IN.items()
            if issubclass(kind, DocumentStep)
            and name != "url"
            and kind.signals  # else it measures nothing
            and not kind.__module__.startswith(("gristmill.tasks.models.", "gristmill.tasks.source_code."))
        ]
        steps += [GopherQuality(definition="dclm"), GopherRepetition(definition="dclm")]
        for step in steps:
            measured(table, [step])
        # what an edit leaves is scanned into arrays of another type
        for edit in steps:
            if isinstance(edit, EditStep):
                measured(table, [edit, *(step for step in steps if step != edit)])


def _deduplication() -> None:
    """Each step that removes duplicates or items of benchmarks, on a corpus of its own; signatures of sets; runs of
    words; phrases looked up."""
    import numpy as np

    from gristmill.flows.curation import curate
    from gristmill.flows.machine.context import RunContext
    from gristmill.flows.machine.settings import MachineSettings
    from gristmill.flows.recipe.recipe import Recipe
    from gristmill.tasks.engine.executors import Threads
    from gristmill.tasks.engine.make import find_or_make
    from gristmill.tasks.engine.phases import Silent
    from gristmill.tasks.kernels.duplicates import contained
    from gristmill.tasks.kernels.minhash import holdout, signatures
    from gristmill.tasks.search.pieces import Pieces
    from gristmill.tasks.search.shards import ShardIndex

    extract = {"step": "extract", "engine": "plain"}  # which has no kernels
    steps: list[dict[str, Any]] = [
        {"step": "content_dedup"},
        {"step": "line_dedup"},
        {"step": "paragraph_dedup"},
        {"step": "sentence_dedup"},
        {"step": "substring_dedup"},
        {"step": "minhash"},
        {"step": "minhash", "unit": "characters"},
        {"step": "minhash", "verify": "containment"},
    ]
    with tempfile.TemporaryDirectory(prefix="gristmill-kernels-") as folder:
        items = Path(folder) / "items.jsonl"
        items.write_text(json.dumps({"question": _SENTENCES[0], "answer": _SENTENCES[1]}), encoding="utf-8")
        benchmark = {"name": "mill", "path": str(items), "question": ["question"], "answer": "answer"}
        steps.append({"step": "decontamination", "benchmarks": [benchmark], "policy": "cut"})
        for i, text in enumerate((*TEXTS, TEXTS[0])):
            (Path(folder) / f"{i}.txt").write_text(text, encoding="utf-8")
        source = {"name": "mill", "text": [f"{folder}/*.txt"]}
        build = partial(
            find_or_make, folder, executor=Threads(1, SimpleQueue()), progress=lambda: nullcontext(Silent())
        )
        context = RunContext(MachineSettings(home=folder), build)
        for step in steps:
            recipe = {"name": "mill", "sources": [source], "steps": [extract, step]}
            for _ in curate(context, Recipe.model_validate(recipe | {"mixture": {"weights": {"mill": 1}}})):
                pass
    hashes, ends = np.arange(4, dtype=np.uint64), np.array([0, 2, 4])
    signatures(hashes, ends, 2, 1)
    holdout(hashes, ends, 1)
    head, following = contained.chains(hashes, ends)
    contained.mark_found(hashes, ends, hashes, ends, head, following, np.zeros(2, np.bool_))
    for dtype in ("<u2", "<u4"):
        # files that are mapped into memory cannot be written
        tokens, order = (np.frombuffer(np.arange(2, dtype=of).tobytes(), of) for of in (dtype, "<u4"))
        index = ShardIndex(tokens, order, [2], Pieces((b"rye", b"meal")))
        index.has(b"yemeal")


PARTS: dict[str, Callable[[], None]] = {"extraction": _extraction, "rules": _rules, "deduplication": _deduplication}
_COMPILED = "compiled "


def main(part: str) -> None:
    """Compile the kernels of a part, and print their names as they are done."""
    from numba.core import event

    class Print(event.Listener):
        def on_start(self, event: event.Event) -> None:
            pass

        def on_end(self, event: event.Event) -> None:
            function = event.data["dispatcher"].py_func
            print(f"{_COMPILED}{function.__module__}.{function.__qualname__}", flush=True)

    event.register("numba:compile", Print())
    PARTS[part]()


if __name__ == "__main__":
    main(sys.argv[1])
