"""The pages as HTML. Every text is escaped, and every address is below the page's own."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlencode

import numpy as np
import yaml
from markupsafe import Markup

from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.document import document
from gristmill.flows.explore.browse.opened import Opened, Step, Summary, summary
from gristmill.flows.explore.browse.replay import Replayed, Replays, Threshold, thresholds
from gristmill.flows.explore.browse.search import search, shard_of
from gristmill.flows.explore.browse.topics import topic_map, vectors
from gristmill.flows.explore.browse.votes import cast, vote_on
from gristmill.flows.explore.search.phrases import find
from gristmill.flows.explore.search.words import find_words
from gristmill.flows.reports import templates
from gristmill.flows.reports.diff.columns import Numbers
from gristmill.flows.reports.marking import beginning, excerpt
from gristmill.flows.reports.plots import charts
from gristmill.tasks.documents.expressions import ExpressionError

_BINS = 48
_TAIL = 0.005  # of the documents, that the axis leaves out at either end


def axis(numbers: Numbers, marks: Sequence[float]) -> tuple[float, float, bool]:
    """The ends of an axis over most of the values and all marks, and whether it is logarithmic."""
    ends = [number for number in (numbers.quantile(_TAIL), numbers.quantile(1 - _TAIL)) if number is not None]
    return charts.axis([*ends, *marks])


def distribution(numbers: Numbers, marks: Sequence[float], label: str) -> Markup:
    """How many documents have each value, with lines at the marks."""
    low, high, logarithmic = axis(numbers, marks)
    edges = np.geomspace(low, high, _BINS + 1) if logarithmic else np.linspace(low, high, _BINS + 1)
    counts = numbers.histogram(edges)
    return charts.histogram(
        edges, [("part", np.zeros_like(counts), counts)], [(mark, "cut") for mark in marks], label, logarithmic
    )


_N = 10  # documents of a page
_CHARACTERS = 1500  # shown of a text among others
_WHOLE = 200_000  # shown of a text, and of a raw page, by themselves
_SEEDS = 1 << 32

Query = Mapping[str, str]


@dataclass(frozen=True)
class Control:
    """A field for a threshold. `now`: what is in it; `axis`: ends of a slider, and whether it is logarithmic; `plot`:
    the distribution of its signal on the same axis."""

    threshold: Threshold
    now: Any
    axis: tuple[float, float, bool] | None = None
    plot: Markup | None = None

    @property
    def whole(self) -> bool:
        return isinstance(self.threshold.value, int)


class Pages:
    """The pages of a corpus, by name; each is given the address's query. Raises LookupError for what is not there,
    ValueError for a query without sense."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._replays = Replays(opened)
        self._summary_lock = threading.Lock()

    @property
    def by_name(self) -> dict[str, Callable[[Query], str]]:
        return {
            "": self.funnel,
            "step": self.step,
            "rule": self.rule,
            "replay": self.replay,
            "documents": self.documents,
            "document": self.document,
            "find": self.find,
            "phrase": self.phrase,
            "words": self.words,
            "map": self.map,
        }

    @cached_property
    def _summary(self) -> Summary:
        return summary(self.opened)

    @property
    def summary(self) -> Summary:
        """Read when a page first needs it, once."""
        with self._summary_lock:
            return self._summary

    def funnel(self, query: Query) -> str:
        """The first page; of the documents it needs none."""
        return self._written("funnel.html", first=self.opened.steps[0].row.documents_in)

    def step(self, query: Query) -> str:
        """A step's rules, and the settings that can be replayed."""
        step = self.opened.step(query.get("step", ""))
        return self._written(
            "step.html", step=step, controls=self._controls(step), replayed=None, error="", seed=1, given={}
        )

    def rule(self, query: Query) -> str:
        """What a rule dropped, drawn by a seed."""
        step, rule, seed = self.opened.step(query.get("step", "")), query.get("rule", ""), _seed(query)
        if rule not in step.drops:
            raise LookupError(f"{step.row.step} has no rule {rule} that dropped documents")
        shown = [
            (one.shard, one.dropped, [] if one.dropped.text is None else _excerpt(one.dropped))
            for one in draws.dropped(self.opened, step, rule, _N, seed)
        ]
        controls = [one for one in self._controls(step) if one.threshold.rule in ("", rule)]
        return self._written("rule.html", step=step, rule=rule, shown=shown, seed=seed, controls=controls)

    def replay(self, query: Query) -> str:
        """A step's page, with what another threshold would have done."""
        step = self.opened.step(query.get("step", ""))
        seed, found, error = _seed(query), None, ""
        try:
            found = self.replayed(query)
        except ValueError as trouble:
            error = str(trouble)
        given = {"setting": query.get("setting", ""), "value": query.get("value", "")}
        controls = self._controls(step, given["setting"], given["value"])
        return self._written(
            "step.html", step=step, controls=controls, replayed=found, error=error, seed=seed, given=given
        )

    def replayed(self, query: Query) -> Replayed:
        """What another threshold would have done. Raises ValueError."""
        step = self.opened.step(query.get("step", ""))
        setting, value = query.get("setting", ""), query.get("value", "")
        if setting not in {one.setting for one in self._thresholds(step)}:
            raise ValueError(f"{step.row.step} has no setting {setting} that can be replayed")
        if len(value) > 4000:
            raise ValueError("the value is too long")
        if not value.strip():
            raise ValueError("give a value, or null for none")
        try:
            given = yaml.safe_load(value)
        except yaml.YAMLError:
            given = value
        return self._replays.replay({f"{step.row.step}.{setting}": given}, _seed(query))

    def documents(self, query: Query) -> str:
        """Kept documents, drawn by a seed; or those for which an expression is true, of all that were extracted too."""
        where, seed, error, found = query.get("where", "").strip(), _seed(query), "", None
        everything = query.get("of") == "extracted"
        drawn = []
        try:
            if where:
                found = search(self.opened, where, _N, seed, _number(query, "from", 0), everything)
                drawn = found.documents
            else:
                drawn = draws.kept(self.opened, _N, seed)
        except ExpressionError as trouble:
            error = str(trouble)
        shown = [(one, beginning(one.text, _CHARACTERS)) for one in drawn]
        of = {"of": "extracted"} if everything else {}
        further = of if found is None else {"from": found.end} | of
        return self._written(
            "documents.html",
            where=where,
            of=of,
            further=further,
            seed=seed,
            shown=shown,
            found=found,
            error=error,
        )

    def find(self, query: Query) -> str:
        """The document whose id begins as it is asked."""
        id_ = query.get("id", "").strip()
        if not id_ or (place := shard_of(self.opened, id_)) is None:
            raise LookupError(f"no document has an id that begins with {id_ or 'nothing'}")
        return self.document({"shard": str(place[0]), "id": place[1]})

    def phrase(self, query: Query) -> str:
        """Documents with a phrase, kept and dropped, where the corpus has its index."""
        phrase, index = query.get("phrase", ""), self.opened.index
        found = find(index, phrase, _N) if phrase and index is not None else None
        return self._written("phrase.html", phrase=phrase, found=found)

    def words(self, query: Query) -> str:
        """The documents that have some words, the best first, where the corpus has their index."""
        given, index, error, found = query.get("words", ""), self.opened.words, "", None
        if given.strip() and index is not None:
            try:
                found = find_words(index, given, _N)
            except ValueError as trouble:
                error = str(trouble)
        return self._written("words.html", given=given, found=found, error=error)

    def map(self, query: Query) -> str:
        """Documents by their vectors, where the recipe stores some."""
        stage, seed = vectors(self.opened), _seed(query)
        made = topic_map(self.opened, stage, seed) if stage is not None else None
        points = made.points if made else []
        shown = [(one.x, one.y, _link("document", shard=one.shard, id=one.id), one.name) for one in points]
        plot = charts.scatter(shown, "documents by two directions")
        return self._written("topics.html", stored=stage is not None, map=made, plot=plot, seed=seed)

    def document(self, query: Query) -> str:
        """One document."""
        one = document(self.opened, _number(query, "shard", -1), query.get("id", ""), self.summary)
        raw = beginning(one.lineage.raw, _WHOLE)
        text = [] if one.text is None else beginning(one.text, _WHOLE)
        dropped = next((made.stage for made in reversed(one.decisions) if not made.kept), "")
        deciding = {step.stage.label for step in self.opened.steps}
        stage = self.opened.kept.label if one.kept else dropped if dropped in deciding else ""
        drawn = query.get("drawn") == "1"
        return self._written(
            "document.html", one=one, raw=raw, text=text, summary=self.summary, stage=stage, drawn=drawn
        )

    def vote(self, query: Query) -> None:
        """Keep a reader's vote on a document, or remove it where the vote is empty."""
        shard, drawn = _number(query, "shard", -1), query.get("drawn") == "1"
        cast(self.opened, query.get("stage", ""), shard, query.get("id", ""), query.get("vote", ""), drawn)

    def error(self, message: str) -> str:
        """A page with one sentence."""
        return self._written("error.html", message=message)

    def _written(self, name: str, **given: Any) -> str:
        known = {
            "opened": self.opened,
            "vote_on": partial(vote_on, self.opened),
            "link": _link,
            "static": False,
            "next_seed": _next,
        }
        return templates.template(name, "gristmill.flows.explore.browse").render(known | given)

    def _thresholds(self, step: Step) -> list[Threshold]:
        made = self.opened.recipe_steps.get(step.row.step)
        behind = {each.step for each in self.opened.recipe.after}
        # the funnel has the cuts of a step in a row of their own, which no threshold moves
        if made is None or made.step not in behind or step.row.edits is not None:
            return []
        return thresholds(made)

    def _controls(self, step: Step, setting: str = "", value: str = "") -> list[Control]:
        """The fields of all settings that can be replayed; `value`: in that of one setting, else the run's."""
        found = []
        for one in self._thresholds(step):
            now = value if setting == one.setting else one.value
            numbers = self.summary.columns.get(one.signal) if one.signal else None
            marks = [float(one.value)] if one.is_number else []
            if numbers is not None and numbers.documents and (marks or one.value is None):
                plot = distribution(numbers, marks, one.signal)
                found.append(Control(one, now, axis(numbers, marks), plot))
            else:
                found.append(Control(one, now, None if one.ends is None else (*one.ends, False)))
        return found


def _excerpt(one: Any) -> list:
    return excerpt(one.text, one.marks, _CHARACTERS)


def _link(page: str, **query: Any) -> str:
    """An address below the page's own."""
    return f"{page or './'}?{urlencode(query)}" if query else page or "./"


def _next(seed: int) -> int:
    return (seed + 1) % _SEEDS


def _seed(query: Query) -> int:
    return _number(query, "seed", 1) % _SEEDS


def _number(query: Query, name: str, default: int) -> int:
    given = query.get(name, "")
    if not given:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise ValueError(f"{name} is no number")
    return int(given)
