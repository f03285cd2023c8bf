"""Metrics: always to files next to the run, and to MLflow if there is a run to log to. Rank 0 only.

metrics.jsonl  {"step", metric: value, ...}, what the weights decide: the same bytes for the same run
timing.jsonl   the same for what the machine decides: tokens a second

The files are the truth and MLflow is their copy. A resume cuts the files back to its checkpoint, then
offers all of their points to MLflow, which is asked for the newest step that it has of each metric: what it
lacks is sent, what it has is not sent twice.

MLflow shows runs side by side by the names of their metrics. So there the name of an evaluation holds the digest of
what was evaluated: runs whose metrics have one name were evaluated on the same bytes. In the files, which are of one
run, it does not.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from gristmill.storage.damage import DamagedFileError
from gristmill.storage.printable import redact_urls
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import TrackingConfig, TrainingConfig
from gristmill.training.step.guard import EVENTS, event_line, read_events

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)

METRICS, TIMING = "metrics.jsonl", "timing.jsonl"
GO_BACK = ""  # no name of a metric
BATCH = 1000  # the most metrics that MLflow's REST API takes in one log_batch
GUARD_TAG, TAG_CHARACTERS = "gristmill.guard", 5000  # of a tag's value; older servers take no more


SHORT = 6  # hexadecimal digits of a digest in a name


@dataclass(frozen=True)
class TrackedNames:
    """What MLflow calls the metrics of a run.

    `sets`: the digest of the documents of each set that the run is evaluated on (`heldout/web`), empty where they are
    not fixed; `tokenizer`: its digest. `heldout/web/bits_per_byte` is `heldout-1a2b3c/web/bits_per_byte`, and that of
    all held-out documents has a digest of all of their sets. A loss by token is comparable only with one tokenizer:
    `heldout/loss` is `heldout-1a2b3c/loss-by-tokenizer-4d5e6f`, `train/loss` is `train/loss-by-tokenizer-4d5e6f`.
    """

    sets: Mapping[str, str]
    tokenizer: str

    @staticmethod
    def of(manifest: TrainingManifest, training: TrainingConfig) -> TrackedNames:
        sets = {f"{heldout.kind}/{heldout.name}": as_read(heldout.digest, training) for heldout in manifest.heldout}
        return TrackedNames(sets, manifest.tokenizer.digest)

    def __call__(self, metric: str) -> str:
        kind, _, rest = metric.partition("/")
        source, _, figure = rest.rpartition("/")
        set_kind = "heldout" if kind == "unigram" else kind
        digest = self.sets.get(f"{set_kind}/{source}", "") if source else self.digest(set_kind)
        if figure == "loss" and any(self.sets.values()):
            figure = f"loss-by-tokenizer-{self.tokenizer[:SHORT]}"
        set_name = f"{kind}-{digest[:SHORT]}" if digest else kind
        return "/".join(filter(None, (set_name, source, figure)))

    def digest(self, kind: str) -> str:
        """xxh3-128 of all sets of a kind; empty if there is none with fixed documents."""
        fixed = [f"{name} {digest}" for name, digest in sorted(self.sets.items()) if digest]
        own = [line for line in fixed if line.startswith(f"{kind}/")]
        return xxhash.xxh3_128_hexdigest("\n".join(own).encode()) if own else ""


def as_read(digest: str, training: TrainingConfig) -> str:
    """The digest of documents as a model of this training is evaluated on them: with the objective masked another one
    for each share of masked tokens, since the loss of masked tokens compares with no other."""
    if not digest or training.objective != "masked":
        return digest
    return xxhash.xxh3_128_hexdigest(f"{digest} masked {training.corruption_rate}".encode())


class JsonLines:
    """An append-only file of {"step": ..., ...} lines, cut back to `step` when it is opened.

    `written`: digest of the lines up to `step`, None where it is not known. Raises DamagedFileError for other lines.
    """

    def __init__(self, path: Path, step: int, written: str | None) -> None:
        exists = path.exists()
        try:
            kept = [line for line in path.read_text().splitlines(True) if _is_upto(line, step)] if exists else []
        except (ValueError, KeyError, TypeError):
            raise _damaged(path) from None
        self._digest = xxhash.xxh3_128("".join(kept).encode())
        if exists and written not in (None, self.digest):
            raise _damaged(path)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text("".join(kept))
        temporary.replace(path)
        self.history = [json.loads(line) for line in kept]
        self.file = path.open("a")

    def append(self, step: int, values: dict[str, float]) -> None:
        line = json.dumps({"step": step, **values}) + "\n"
        self._digest.update(line.encode())
        self.file.write(line)
        self.file.flush()

    @property
    def digest(self) -> str:
        """xxh3-128 of the lines so far, hexadecimal."""
        return self._digest.hexdigest()

    def sync(self) -> None:
        os.fsync(self.file.fileno())


def _damaged(path: Path) -> DamagedFileError:
    return DamagedFileError(
        f"{path} is not what was written; remove it and run again, which continues without the metrics so far, or "
        f"remove {path.parent} to train again"
    )


def _is_upto(line: str, step: int) -> bool:
    # A line without its newline was cut off by a crash: it is of a step that no checkpoint has.
    return line.endswith("\n") and json.loads(line)["step"] <= step


def quiet_database() -> None:
    """Keep MLflow from logging errors of its database with pages of traceback; it also raises them."""
    # a filter, since MLflow and Prefect set levels of loggers again
    logging.getLogger("mlflow.store.db.utils").addFilter(_is_without_trace)


def _is_without_trace(record: logging.LogRecord) -> bool:
    return not record.exc_info


class MlflowSender:
    """Sends points to an MLflow run from a thread of its own; nothing it meets reaches the training loop.

    Points wait in memory (`limit` at most, the oldest are given up first) and go out every `period` seconds
    in batches. After a failure the server is asked again what it has, since a request that failed here may
    have succeeded there. `lost` counts the points that never arrived. MLflow cannot forget a point, so those of steps
    that a rollback discarded stay there next to the new ones, which are later; `decisions` lists these steps.
    """

    def __init__(self, tracking: TrackingConfig, period: float = 3.0, limit: int = 200_000) -> None:
        self.tracking, self.period = tracking, period
        self.waiting: deque[tuple[str, float, int, int]] = deque(maxlen=limit)
        self.lost = 0
        self.client: MlflowClient | None = None
        self.artifacts: deque[tuple[Path, str]] = deque()
        self.decisions = self.decided = ""  # the value of GUARD_TAG as it shall be, and as the server has it
        self.newest: dict[str, int] | None = None  # step by metric; None: the server must be asked
        self.lock = threading.Lock()
        self.wake = threading.Event()
        self.closing = self.failing = False
        self.thread = threading.Thread(target=self._run, name="mlflow-sender", daemon=True)
        self.thread.start()

    def add(self, step: int, values: dict[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        with self.lock:
            for key, value in values.items():
                self.lost += len(self.waiting) == self.waiting.maxlen
                self.waiting.append((key, value, now, step))

    def add_artifact(self, path: Path, folder: str) -> None:
        """Send a file into a folder of the run's artifacts, after the points that wait."""
        self.artifacts.append((path, folder))

    def go_back(self, step: int) -> None:
        """Points of steps after `step` that are added from now on are new ones, and sent in addition to the old
        ones."""
        with self.lock:
            self.waiting.append((GO_BACK, 0.0, 0, step))

    def flush(self) -> None:
        """Ask for the waiting points to be sent now; does not wait for it."""
        self.wake.set()

    def close(self, timeout: float = 60.0) -> int:
        """Send what waits, within `timeout` seconds, and return how many points were lost."""
        self.closing = True
        self.wake.set()
        self.thread.join(timeout)
        with self.lock:
            self.lost += len(self.waiting)
            self.waiting.clear()
        if self.lost:
            log.warning("%d metric points did not reach MLflow; they are in %s and %s", self.lost, METRICS, TIMING)
        for path, _ in self.artifacts:
            log.warning("%s did not reach MLflow", path)
        return self.lost

    def _run(self) -> None:
        while True:
            self.wake.wait(self.period)
            self.wake.clear()
            last = self.closing
            for attempt in range(3 if last else 1):
                try:
                    self._send()
                    self.failing = False
                    break
                except Exception as error:
                    self.newest = None
                    if not self.failing:  # once, until it takes points again
                        message = redact_urls(" ".join(f"{type(error).__name__}: {error}".split()))[:300]
                        log.warning("MLflow does not accept points, which wait (%s); training continues", message)
                    self.failing = True
                    if last and attempt < 2:
                        time.sleep(1)
            if last:
                return

    def _send(self) -> None:
        if self.client is None:
            from mlflow.tracking import MlflowClient

            quiet_database()
            self.client = MlflowClient()
        from mlflow.entities import Metric

        run_id = self.tracking.run_id
        if (decisions := self.decisions) != self.decided:
            self.client.set_tag(run_id, GUARD_TAG, decisions)
            self.decided = decisions
        if self.newest is None:
            metrics = self.client.get_run(run_id).data.metrics
            self.newest = {
                key: max(point.step for point in self.client.get_metric_history(run_id, key)) for key in metrics
            }
        while True:
            with self.lock:
                batch = [self.waiting[i] for i in range(min(BATCH, len(self.waiting)))]
            if not batch:
                break
            back = next((i for i, point in enumerate(batch) if point[0] == GO_BACK), len(batch))
            if back == 0:
                self.newest = {key: min(newest, batch[0][3]) for key, newest in self.newest.items()}
            batch = batch[: max(1, back)]
            fresh = [point for point in batch if point[0] != GO_BACK and point[3] > self.newest.get(point[0], -1)]
            if fresh:
                self.client.log_batch(run_id, metrics=[Metric(*point) for point in fresh])
            # Only now: a point leaves the queue when the server has it.
            self.newest |= {key: step for key, _, _, step in fresh}
            with self.lock:
                for point in batch:
                    if self.waiting and self.waiting[0] == point:
                        self.waiting.popleft()
        while self.artifacts:
            path, folder = self.artifacts[0]
            self.client.log_artifact(run_id, str(path), folder)
            self.artifacts.popleft()


class Tracker:
    """Where the loop writes its metrics. `step` is the number of steps that the checkpoint resumed from had done;
    `written` is what `checkpoint` gave for it; `names` are MLflow's."""

    def __init__(
        self,
        out: Path,
        step: int,
        tracking: TrackingConfig | None,
        written: Mapping[str, str],
        names: Callable[[str], str] = str,
    ) -> None:
        self.out, self.names = out, names
        self._open(step, written)
        self.sender = MlflowSender(tracking) if tracking else None
        if self.sender:
            for line in (*self.metrics.history, *self.timing.history):
                self._send(line["step"], {key: value for key, value in line.items() if key != "step"})

    def _open(self, step: int, written: Mapping[str, str]) -> None:
        self.metrics = JsonLines(self.out / METRICS, step, written.get(METRICS))
        self.timing = JsonLines(self.out / TIMING, step, written.get(TIMING))

    def go_back(self, step: int) -> None:
        """Forget the steps after `step` in the files. MLflow keeps its points, and gets the new ones in addition."""
        self.metrics.file.close()
        self.timing.file.close()
        self._open(step, {})
        if self.sender:
            self._tell_decisions()
            self.sender.go_back(step)

    def log(self, step: int, metrics: dict[str, float], timing: dict[str, float]) -> None:
        self.metrics.append(step, metrics)
        self.timing.append(step, timing)
        if self.sender:
            self._send(step, metrics | timing)

    def _send(self, step: int, values: dict[str, float]) -> None:
        assert self.sender, "asked for where there is one"
        self.sender.add(step, {self.names(name): value for name, value in values.items()})

    def artifact(self, path: Path, folder: str) -> None:
        """Send a file to the MLflow run, if there is one; it stays where it is."""
        if self.sender:
            self.sender.add_artifact(path, folder)

    def checkpoint(self) -> dict[str, str]:
        """Called before a checkpoint is committed: what the files say up to here must not be lost after it.

        Returns their digests.
        """
        self.metrics.sync()
        self.timing.sync()
        if self.sender:
            self._tell_decisions()
            self.sender.flush()
        return {METRICS: self.metrics.digest, TIMING: self.timing.digest}

    def close(self) -> int:
        """Returns how many points MLflow did not get."""
        self.metrics.file.close()
        self.timing.file.close()
        if self.sender is None:
            return 0
        self._tell_decisions()
        return self.sender.close()

    def _tell_decisions(self) -> None:
        """The guard's, as far as a tag has room: the newest."""
        assert self.sender, "asked for where there is one"
        lines: list[str] = []
        for event in reversed(read_events(self.out / EVENTS)):
            lines.insert(0, event_line(event))
            if len("\n".join(lines)) > TAG_CHARACTERS:
                lines.pop(0)
                break
        self.sender.decisions = "\n".join(lines)
