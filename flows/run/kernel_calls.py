"""The calls that compile all kernels: the code of every stage, on a few small documents that need every kernel.

    python -P -m gristmill.flows.run.kernel_calls PART

is a process that `kernel_compilation` starts. It prints the name of each kernel that it compiles. Kernels that are
compiled already are only loaded.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
from numba.core import event

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.flows.run.kernel_compilation import COMPILED
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import DocumentStep, EditStep
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.kernels import duplicates
from gristmill.tasks.kernels.minhash import holdout, signatures
from gristmill.tasks.models import byte_ngrams
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from gristmill.tasks.search.index import Pieces
from gristmill.tasks.search.look_ups import ShardIndex

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


def _extraction() -> None:
    main_text(PAGE)


def _rules() -> None:
    """Run each document step with its defaults and with DCLM's definition, directly and after each editing step."""
    with tempfile.TemporaryDirectory(prefix="gristmill-kernels-") as folder:
        words = Path(folder) / "words.txt"
        words.write_text("flour\nrye bread\n", encoding="utf-8")
        settings = {"bad_words": {"lists": {"any": str(words)}}}
        columns = {
            "id": [f"{i:032x}" for i in range(len(TEXTS))],
            "url": ["https://mill.example.org/"] * len(TEXTS),
            "text": pa.array(TEXTS, pa.large_string()),
            "language": ["en"] * len(TEXTS),
            "language_score": [1.0] * len(TEXTS),
        }
        table = pa.table(columns)
        byte_ngrams.predict(TEXTS)  # of the step `language`, whose columns the table has
        # Other kernels do not read URLs, models or code. If packages of a step are missing, its kernels are compiled
        # when it first runs.
        steps = [
            kind.model_validate(settings.get(name, {}))
            for name, kind in BUILT_IN.items()
            if issubclass(kind, DocumentStep)
            and name != "url"
            and kind.signals  # else it measures nothing
            and not kind.__module__.startswith(("gristmill.tasks.models.", "gristmill.tasks.source_code."))
        ]
        steps = [step for step in steps if not step.shortage() and {*step.reads} <= {*columns}]
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
            if BUILT_IN[step["step"]].model_validate(step).shortage():
                continue
            recipe = {"name": "mill", "sources": [source], "steps": [extract, step]}
            for _ in curate(context, Recipe.model_validate(recipe | {"mixture": {"weights": {"mill": 1}}})):
                pass
    hashes, ends = np.arange(4, dtype=np.uint64), np.array([0, 2, 4])
    signatures(hashes, ends, 2, 1)
    holdout(hashes, ends, 1)
    head, following = duplicates.chains(hashes, ends)
    duplicates.mark_found(hashes, ends, hashes, ends, head, following, np.zeros(2, np.bool_))
    for dtype in ("<u2", "<u4"):
        # files that are mapped into memory cannot be written
        tokens, order = (np.frombuffer(np.arange(2, dtype=of).tobytes(), of) for of in (dtype, "<u4"))
        index = ShardIndex(tokens, order, [2], Pieces((b"rye", b"meal")))
        index.has(b"yemeal")


CALLS: dict[str, Callable[[], None]] = {"extraction": _extraction, "rules": _rules, "deduplication": _deduplication}


def main(part: str) -> None:
    """Compile the kernels of a part, and print their names as they are done."""

    class Print(event.Listener):
        def on_start(self, event: event.Event) -> None:
            pass

        def on_end(self, event: event.Event) -> None:
            function = event.data["dispatcher"].py_func
            # steps run under a guard that keeps what they print
            print(f"{COMPILED}{function.__module__}.{function.__qualname__}", flush=True, file=sys.__stdout__)

    event.register("numba:compile", Print())
    CALLS[part]()


if __name__ == "__main__":
    main(sys.argv[1])
