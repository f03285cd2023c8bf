"""Stages, runs and decisions that a test plants in a home, for tests of what depends on what."""

from collections.abc import Mapping
from typing import Any

from gristmill.flows.machine.runs import RunRecorder
from gristmill.storage import checked_json
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from tests.corpora import build_in
from tests.flows.decisions import report


class Planted(Settings):
    values: dict[str, Any] = {}
    trunk: dict[str, Any] | None = None
    takedowns: dict[str, Any] | None = None
    hosts: dict[str, Any] | None = None
    formats: dict[str, Any] = {}
    limit: int | None = None
    says: str = ""


def _plant(phases: PhaseRunner, record: Planted, places: None) -> dict:
    """Plant a stage without files."""
    return {"says": record.says, "values": record.values, "train": 100}


def stage(home: str, name: str, inputs: Mapping[str, StageResult | str] = {}, **given: Any) -> StageResult:
    """A finished stage. `given`: the version and versions of steps; the rest is in its record."""
    version, versions = given.pop("version", 1), given.pop("versions", {})
    spec = StageSpec(
        name=name,
        version=version,
        body=_plant,
        record=Planted(**given),
        inputs=inputs,
        work=Work(versions=versions),
    )
    return build_in(home)(spec)


def run(home: str, recipe: str, *stages: StageResult, flow: str = "corpus", **given: Any) -> RunRecorder:
    """A finished run."""
    recorder = RunRecorder(home, recipe, flow=flow, recipe={"name": recipe, **given})
    recorder.add(*(one.label for one in stages))
    recorder.finished()
    return recorder


def decision(home: str, base: str, *proxies: StageResult) -> str:
    """The path of a decision that rests on some runs, with a page."""
    value = report({"without minhash": 0.1}).as_json()
    value |= {"base": base, "id": proxies[0].key, "runs": [{"key": one.key} for one in proxies]}
    value["arms"][base] = value["arms"].pop("base")
    path = f"{home}/decisions/{base}-{proxies[0].key}.json"
    checked_json.write(path, value)
    with open(path.replace(".json", ".html"), "w", encoding="utf-8") as page:
        page.write("<html><body><h1>A decision</h1><p>better</p></body></html>")
    return path
