"""Metrics in files and in a real MLflow database: the same points, each once, whatever was interrupted."""

import gzip
import json
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from gristmill.storage import checked_json
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.checkpoint import keeping
from gristmill.training.config import TrackingConfig, TrainingConfig
from gristmill.training.run.loop import train
from gristmill.training.run.tracking import GUARD_TAG, METRICS, TIMING, MlflowSender, TrackedNames, Tracker, as_read
from gristmill.training.step.guard import EVENTS, Event, event_line, write_events

KNOWN = [
    *("heldout/loss", "heldout/bits_per_byte", "heldout/web/bits_per_byte", "evaluation/mine/bits_per_byte"),
    *("unigram/bits_per_byte", "train/loss", "train/tokens", "monitor/gradient_norm/layer_00", "tasks/arc/accuracy"),
]
ROLLBACK = Event(step=6, what="rollback", why="data window", began=5, to=2, window=(4, 12))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(uri)
    return client, uri, client.create_experiment("training", artifact_location=(folder / "artifacts").as_uri())


@pytest.fixture
def tracking(server, monkeypatch):
    client, uri, experiment = server
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return TrackingConfig(run_id=client.create_run(experiment).info.run_id)


def in_mlflow(server, tracking) -> list[tuple[str, int, float]]:
    client = server[0]
    keys = client.get_run(tracking.run_id).data.metrics
    return sorted(
        (key, point.step, point.value) for key in keys for point in client.get_metric_history(tracking.run_id, key)
    )


def in_files(out) -> list[tuple[str, int, float]]:
    lines = [json.loads(line) for name in (METRICS, TIMING) for line in (out / name).read_text().splitlines()]
    return sorted((key, line["step"], value) for line in lines for key, value in line.items() if key != "step")


def traced(server, tracking, out) -> int:
    """Look-ups of embeddings in the trace, after the artifact was compared with the file."""
    name = "profile/trace-steps-3-5.json.gz"
    artifact = server[0].download_artifacts(tracking.run_id, name)
    assert Path(artifact).read_bytes() == (out / name).read_bytes()
    events = json.loads(gzip.decompress((out / name).read_bytes()))["traceEvents"]
    return sum(event["name"] == "aten::embedding" for event in events)


@pytest.mark.extended
def test_mlflow_has_the_points_of_the_files(server, tracking, make_run, run_small, tmp_path, caplog):
    run = make_run(tmp_path, tracking=tracking, training={"profile_steps": [3, 5]})
    train(run)
    assert traced(server, tracking, tmp_path) == 3 * 4, "the micro-batches of three steps"
    assert (tmp_path / METRICS).read_bytes() == (run_small.out / METRICS).read_bytes()
    points = in_files(tmp_path)
    assert in_mlflow(server, tracking) == points
    assert "did not reach MLflow" not in caplog.text
    names = {key for key, _, _ in points}
    assert names == {
        *(f"train/{k}" for k in ("loss", "grad_norm", "learning_rate", "tokens", "clip_fraction", "noise_scale")),
        *("train/tokens_per_second", "train/data_wait_fraction", "train/mfu_measured", "train/mfu_measured_causal"),
        *("system/processes", "system/cpu_percent", "system/memory_gib", "system/memory_peak_gib"),
        *(f"time/{k}_seconds" for k in ("forward", "backward", "optimizer", "data", "evaluation", "checkpoint")),
        *("heldout/loss", "heldout/bits_per_byte", "unigram/loss", "unigram/bits_per_byte"),
        *("heldout/web/bits_per_byte", "heldout/books/bits_per_byte"),
    }
    # Back to an earlier checkpoint: what is trained again has the same values and is not sent again.
    metrics = (tmp_path / METRICS).read_bytes()
    (tmp_path / "checkpoints" / "step-00000040" / keeping.COMMIT).unlink()
    train(run)
    assert (tmp_path / METRICS).read_bytes() == metrics
    again = in_mlflow(server, tracking)
    assert [p[:2] for p in again] == [p[:2] for p in points]


def test_names_hold_what_was_evaluated_and_the_tokenizer_of_a_loss():
    """Of a run whose evaluated documents are fixed; other names stay."""
    sets = {"heldout/web": "a" * 32, "heldout/books": "b" * 32, "evaluation/mine": "c" * 32}
    names, joint = TrackedNames(sets, "d" * 32), TrackedNames(sets, "").digest("heldout")[:6]
    assert {name: names(name) for name in KNOWN} == {
        "heldout/loss": f"heldout-{joint}/loss-by-tokenizer-dddddd",
        "heldout/bits_per_byte": f"heldout-{joint}/bits_per_byte",
        "heldout/web/bits_per_byte": "heldout-aaaaaa/web/bits_per_byte",
        "evaluation/mine/bits_per_byte": "evaluation-cccccc/mine/bits_per_byte",
        "unigram/bits_per_byte": f"unigram-{joint}/bits_per_byte",
        "train/loss": "train/loss-by-tokenizer-dddddd",
        "train/tokens": "train/tokens",
        "monitor/gradient_norm/layer_00": "monitor/gradient_norm/layer_00",
        "tasks/arc/accuracy": "tasks/arc/accuracy",
    }
    # a change of one document, or of the sets, is another name; the order of sets and other kinds are none
    assert TrackedNames(dict(reversed(sets.items())), "").digest("heldout")[:6] == joint
    assert TrackedNames(sets | {"evaluation/mine": "e" * 32}, "").digest("heldout")[:6] == joint
    for other in (sets | {"heldout/web": "e" * 32}, sets | {"heldout/code": "e" * 32}, {"heldout/web": "a" * 32}):
        assert TrackedNames(other, "").digest("heldout")[:6] != joint
    plain = TrackedNames(dict.fromkeys(sets, ""), "d" * 32)
    assert all(plain(name) == name for name in KNOWN)


def test_masked_losses_have_names_of_their_own_for_each_share():
    trainings = [TrainingConfig()] + [TrainingConfig(objective="masked", corruption_rate=rate) for rate in (0.15, 0.3)]
    digests = [as_read("a" * 32, training) for training in trainings]
    assert digests[0] == "a" * 32 and len(set(digests)) == 3
    assert {as_read("", training) for training in trainings} == {""}


@pytest.mark.extended
def test_mlflow_has_names_with_digests_from_training_on_and_none_twice_after_a_resume(
    server, tracking, corpus, make_run, tmp_path
):
    given = checked_json.read(str(corpus))
    for held in given["heldout"]:
        held |= {"kind": "heldout", "digest": {"web": "a", "books": "b"}[held["name"]] * 32}
    fixed = corpus.with_name("fixed.json")
    checked_json.write(str(fixed), given)
    run = make_run(tmp_path, tracking=tracking).model_copy(update={"data": fixed})
    result = train(run)
    names = TrackedNames.of(load_training_manifest(fixed), TrainingConfig())
    points = sorted((names(name), step, value) for name, step, value in in_files(tmp_path))
    assert in_mlflow(server, tracking) == points
    shown = server[0].get_run(tracking.run_id).data.metrics
    assert shown["heldout-bbbbbb/books/bits_per_byte"] == result["heldout/books/bits_per_byte"]
    (tmp_path / "checkpoints" / "step-00000040" / keeping.COMMIT).unlink()
    train(run)
    assert [point[:2] for point in in_mlflow(server, tracking)] == [point[:2] for point in points]


def test_points_that_a_crash_kept_from_mlflow_are_sent_on_resume(server, tracking, tmp_path):
    first = Tracker(tmp_path, -1, None, {})  # as if killed before the sender's first turn
    for step in range(1, 8):
        first.log(step, {"a": step / 2}, {"b": step * 2.0})
    first.close()
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 8, "a"')
    second = Tracker(tmp_path, 5, tracking, {})
    second.log(6, {"a": 3.0}, {"b": 12.0})
    assert second.close() == 0
    assert [json.loads(line)["step"] for line in (tmp_path / METRICS).read_text().splitlines()] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert in_mlflow(server, tracking) == in_files(tmp_path)


@pytest.mark.extended
def test_a_failed_request_is_neither_lost_nor_doubled(server, tracking, caplog):
    """The server takes a batch, but the answer does not arrive: the sender must ask before it sends again."""
    sender = MlflowSender(tracking, period=0.05)
    client = MlflowClient()
    real, failures = client.log_batch, []

    def answer_is_lost(run_id, metrics):
        real(run_id, metrics=metrics)
        if not failures:
            failures.append(len(metrics))
            raise ConnectionError("answer lost")

    client.log_batch = answer_is_lost
    sender.client = client
    for step in range(1500):
        sender.add(step, {"x": float(step), "y": -float(step)})
    assert sender.close() == 0
    assert failures and "answer lost" in caplog.text
    expected = sorted([("x", s, float(s)) for s in range(1500)] + [("y", s, -float(s)) for s in range(1500)])
    assert in_mlflow(server, tracking) == expected


@pytest.mark.extended
def test_no_server_is_a_warning_and_a_count(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    tracker = Tracker(tmp_path, -1, TrackingConfig(run_id="none"), {})
    tracker.log(1, {"a": 1.0}, {"b": 2.0})
    assert tracker.close() == 2
    assert "2 metric points did not reach MLflow" in caplog.text
    assert "secret" not in caplog.text
    assert json.loads((tmp_path / METRICS).read_text()) == {"step": 1, "a": 1.0}


def test_a_full_queue_gives_up_the_oldest(server, tracking):
    sender = MlflowSender(tracking, period=3600, limit=10)
    for step in range(25):
        sender.add(step, {"x": float(step)})
    assert sender.close() == 15
    assert in_mlflow(server, tracking) == [("x", step, float(step)) for step in range(15, 25)]


def test_what_the_guard_decided_is_in_mlflow(server, tracking, tmp_path):
    """The points of steps that a rollback left behind stay there; which steps these are, a tag says."""
    tracker = Tracker(tmp_path, -1, tracking, {})
    for step in range(1, 7):
        tracker.log(step, {"a": float(step)}, {})
    write_events(tmp_path / EVENTS, [ROLLBACK])
    tracker.go_back(2)
    for step in range(3, 5):
        tracker.log(step, {"a": -float(step)}, {})
    stop = Event(step=4, what="stop", why="learning rate")
    write_events(tmp_path / EVENTS, [ROLLBACK, stop])
    assert tracker.close() == 0
    tag = server[0].get_run(tracking.run_id).data.tags[GUARD_TAG]
    assert tag.splitlines() == [
        "step 6: rollback, data window; steps 3 to 6 are left after, batches 4 to 11 left out",
        "step 4: stop, learning rate",
    ]
    points = server[0].get_metric_history(tracking.run_id, "a")
    newest = {point.step: point.value for point in sorted(points, key=lambda point: point.timestamp)}
    assert newest == {1: 1, 2: 2, 3: -3, 4: -4, 5: 5, 6: 6} and len(points) == 8
    write_events(tmp_path / EVENTS, [ROLLBACK] * 1000)  # of a long run the newest that have room
    again = Tracker(tmp_path, -1, tracking, {})
    assert again.close() == 0
    tag = server[0].get_run(tracking.run_id).data.tags[GUARD_TAG]
    assert 4900 < len(tag) <= 5000 and set(tag.splitlines()) == {event_line(ROLLBACK)}
