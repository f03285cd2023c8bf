"""A small run, from pages to a plan of training and an export, in a process of its own that a fault may end.

The stages are those of the flow `tokens`, made in one process without Prefect. The process is forked from one that has
imported all, so that a run takes as long as its work.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.export import check_target, export
from gristmill.flows.stages.mixture import training_data
from gristmill.tasks.dedup import exchange
from gristmill.tasks.engine import lease, options
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import StageResult, find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec
from tests.conftest import page, write_warc
from tests.fault_boundaries.trace import Acting, Disk, Lasting, Recorder, installed
from tests.planted.text import pydoc_paragraphs

NAME = "faults"
_SHARDS, _PAGES = 3, 12


def write_recipe(folder: Path) -> Path:
    """A recipe with temporary phases of every kind: held-out and evaluated documents, exchanges that are merged."""
    draw, prose = random.Random(5), pydoc_paragraphs()
    texts = [draw.sample(prose, 6) for _ in range(_SHARDS * _PAGES)]
    for number, near in zip(range(1, 7), range(20, 26), strict=True):
        texts[near] = [*texts[number][:-1], texts[number][-1] + " This sentence was added later."]
    texts[30] = texts[8]
    pages = [(f"https://web.example/{i}", page(text), "200 OK", "text/html") for i, text in enumerate(texts)]
    for shard in range(_SHARDS):
        write_warc(folder / f"web-{shard:05d}.warc.gz", pages[shard::_SHARDS])
    evaluated = [json.dumps({"text": "\n\n".join(draw.sample(prose, 6))}) + "\n" for _ in range(6)]
    (folder / "evaluated.jsonl").write_text("".join(evaluated), encoding="utf-8")
    recipe = {
        "name": NAME,
        "seed": 3,
        "sources": [{"name": "web", "warc": [f"{folder}/web-*.warc.gz"]}],
        "steps": [
            {"step": "extract"},
            {"step": "content_dedup"},
            {"step": "minhash"},
            {"step": "gopher_quality", "min_alpha_words": 0.5},
        ],
        "tokenizer": {"vocab_size": 320, "sample_bytes": 20_000},
        "mixture": {"weights": {"web": 1.0}, "heldout_fraction": 0.3},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {"steps": 2, "batch": 2, "micro_batch": 1, "warmup_steps": 1, "eval_tokens": 1024},
        "evaluation": {"own": f"{folder}/evaluated.jsonl"},
        "export": {"to": "{home}/export"},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Run:
    """`recipe`: its file; `last`: the label of the stage behind which the run ends, None for all of them; `threads`:
    that do jobs; `unnamed`: whether the disk has files without a name; `plant`: puts a defect into the product."""

    recipe: Path
    home: Path
    last: str | None = None
    threads: int = 1
    unnamed: bool = True
    plant: Callable[[], None] | None = None

    def make(self, acting: Acting, lasting: Lasting | None = None) -> list[str]:
        """Find or make the stages, in this process, which is not to be used afterwards. Returns their labels."""
        # an exchange between three shards is merged as one between thousands is, and nobody waits a minute for a lease
        exchange.FAN_IN = exchange.MIN_FAN_IN = 2
        lease.HEARTBEAT_SECONDS, lease.SILENCE_SECONDS, lease.POLL_SECONDS = 0.1, 2.0, 0.02
        os.environ["GRISTMILL_HOME"] = str(self.home)
        disk, settings, recipe = Disk(str(self.home), acting, lasting), MachineSettings(), load(str(self.recipe))
        options.configure(job_options(settings))
        last_run, made = RunRecorder(settings.home, recipe.name), []

        def build(spec: StageSpec) -> StageResult:
            label = f"{spec.name}-{spec.key}"
            if self.last is not None and self.last in made and label not in made:
                raise _EndedError
            disk.at = label
            last_run.add(spec.label(settings.home))
            stage = find_or_make(settings.home, spec, Threads(self.threads, None), lambda: nullcontext(Silent()))
            made.extend([label] if label not in made else [])
            return stage

        context = RunContext(settings, build, outside=last_run.outside)
        with installed(disk, self.unnamed):
            if self.plant is not None:
                self.plant()
            try:
                check_target(context, recipe)
                *_, corpus = curate(context, recipe)
                export(context, recipe, corpus.left)
                training_data(context, recipe, corpus.left)
                disk.at = "end"
                last_run.finished()
            except _EndedError:
                pass
        return made

    def prepare(self, home: Path) -> None:
        """Run it in this process once: libraries and kernels are loaded ahead of those that are forked."""
        replace(self, home=home).make(Recorder())

    def start(self, log: Path, work: Callable[["Run"], object]) -> "Process":
        """A process of its own, forked from this one, that does `work` with the run and appends what it says to `log`.
        It fails if that raises."""
        sys.stdout.flush()
        if (process := os.fork()) != 0:
            return Process(process, log)
        code = 1
        try:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            scratch = self.home.with_name(f"{self.home.name}.tmp")
            scratch.mkdir(exist_ok=True)
            tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
            work(self)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


class _EndedError(Exception):
    """The last stage that the run was to make is made."""


@dataclass(frozen=True)
class Process:
    """A run that was started."""

    pid: int
    log: Path

    def wait(self, seconds: float) -> int | None:
        """Its exit status, negative for a signal; None if it has not ended in so many seconds, and was killed."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (ended := self._ended()) is not None:
                return ended
            time.sleep(0.01)
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return None

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def said(self) -> str:
        """What became of it, by the last line of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return next((line for line in reversed(lines) if not line.startswith("job ")), "nothing")
