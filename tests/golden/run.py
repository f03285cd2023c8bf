"""Runs rows in this process, in one home, and writes down what each stage that they ask for has made."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec
from tests import corpora
from tests.golden.contents import contents, numbers, other_releases, others, versions

Entry = dict[str, Any]
Table = dict[str, dict[str, Entry]]


@dataclass
class Golden:
    """The home that rows share, and the folder of the fixture. `asked`: the stages that a row has asked for, by key, in
    order; `known`: entries of stages, by key; `others`: other releases that made them, by key."""

    home: str
    fixture: Path
    threads: int = 1
    asked: dict[str, StageResult] = field(default_factory=dict)
    known: dict[tuple[str, bool], Entry] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    def context(self) -> RunContext:
        given = corpora.context(self.home, Threads(self.threads, None))

        def build(spec: StageSpec) -> StageResult:
            made = given.build(spec)
            place = f"{made.key} {made.folder}"
            self.asked.setdefault(place, made)
            self.others[place] = other_releases(spec.work)
            return made

        return RunContext(given.settings, build)

    def path(self, name: str) -> str:
        return str(self.fixture / name)

    def curated(self, recipe: dict[str, Any], **given: Any) -> tuple[Recipe, Corpus]:
        """The recipe, and the corpus behind its last step."""
        loaded = load(recipe)
        *_, last = curate(self.context(), loaded, **given)
        return loaded, last.left

    def entries(self, make: Callable[["Golden"], None], floats: tuple[str, ...]) -> dict[str, Entry]:
        """Run a row; its entries by the labels of stages."""
        self.asked.clear()
        make(self)
        counts: dict[str, int] = {}
        labels = {}
        found = {}
        for place, stage in self.asked.items():
            counts[stage.name] = number = counts.get(stage.name, 0) + 1
            labels[stage.label] = label = stage.name if number == 1 else f"{stage.name} {number}"
            found[label] = self._entry(place, stage, stage.name in floats) | self._inputs(stage, labels)
        return found

    def _entry(self, place: str, stage: StageResult, is_float: bool) -> Entry:
        if (place, is_float) not in self.known:
            version, steps = versions(stage)
            made = {"numbers": numbers(stage), "rest": others(stage)} if is_float else {"contents": contents(stage)}
            releases = {"others": self.others[place]} if self.others[place] else {}
            self.known[place, is_float] = {"version": version, "versions": steps} | made | releases
        return self.known[place, is_float]

    def _inputs(self, stage: StageResult, labels: dict[str, str]) -> Entry:
        return {"inputs": sorted({labels[read] for read in stage.manifest["read"].values() if read in labels})}


def stages_of(found: dict[str, Entry]) -> Iterator[str]:
    """The names of the stages of a row's entries."""
    return (label.split(" ")[0] for label in found)
