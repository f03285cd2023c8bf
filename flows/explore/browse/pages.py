"""The pages as HTML. Every text is escaped, and every address is below the page's own."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import yaml
from markupsafe import Markup

from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.document import Score, document, link, shown_document, shown_match
from gristmill.flows.explore.browse.draws import search, shard_of
from gristmill.flows.explore.browse.opened import Opened, Step, Summary, summary
from gristmill.flows.explore.browse.replay import Replayed, Replays, Threshold, thresholds
from gristmill.flows.explore.browse.topics import topic_map, vectors
from gristmill.flows.explore.browse.votes import cast, vote_on
from gristmill.flows.reports import pages
from gristmill.flows.reports.marking import beginning
from gristmill.flows.reports.pages import Shown, Vote, charts, shown_drop
from gristmill.flows.reports.search.phrases import find
from gristmill.flows.reports.search.words import INDEX_PACKAGES, find_words
from gristmill.flows.reports.tables import listed, short
from gristmill.flows.reports.whatif import ComparedStep
from gristmill.tasks.documents.expressions import ExpressionError
from gristmill.tasks.engine import extras

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
        names = ("step", "rule", "replay", "documents", "document", "find", "phrase", "words", "map")
        return {"": self.funnel} | {name: getattr(self, name) for name in names}

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
        return self._written("overview.html", self.opened.recipe.name, keys=[step.key for step in self.opened.steps])

    def step(self, query: Query) -> str:
        """A step's rules, and the settings that can be replayed."""
        return self._step(self.opened.step(query.get("step", "")))

    def rule(self, query: Query) -> str:
        """What a rule dropped, drawn by a seed."""
        step, rule, seed = self.opened.step(query.get("step", "")), query.get("rule", ""), _seed(query)
        if rule not in step.drops:
            raise LookupError(f"{step.row.step} has no rule {rule} that dropped documents")
        count, arrived = step.drops[rule], step.row.documents_in
        return self._documents(
            f"{step.row.name}.{rule}",
            step=step,
            sentence=f"{_counted(count)} dropped, {count / arrived:.2%} of those that reached the step",
            others=link("rule", step=step.key, rule=rule, seed=_next(seed)),
            seed=seed,
            shown=[self._drop(one, step.stage.label) for one in draws.dropped(self.opened, step, rule, _N, seed)],
            controls=[one for one in self._controls(step) if one.threshold.rule in ("", rule)],
        )

    def replay(self, query: Query) -> str:
        """A step's page, with what another threshold would have done."""
        step, found, error = self.opened.step(query.get("step", "")), None, ""
        try:
            found = self.replayed(query)
        except ValueError as trouble:
            error = str(trouble)
        return self._step(step, query.get("setting", ""), query.get("value", ""), found, error, _seed(query))

    def _step(
        self,
        step: Step,
        setting: str = "",
        value: str = "",
        found: Replayed | None = None,
        error: str = "",
        seed: int = 1,
    ) -> str:
        arrived = step.row.documents_in
        rules = [
            (pages.anchor(link("rule", step=step.key, rule=rule), rule), documents,
             f"{documents / arrived:.2%}", charts.bar(documents, arrived, True))
            for rule, documents in step.drops.items()
        ]  # fmt: skip
        moved = f"{found.enter.documents:,} added, {found.leave.documents:,} dropped" if found else ""
        return self._written(
            "step.html",
            step.row.name,
            step=step,
            rules=rules,
            controls=self._controls(step, setting, value),
            setting=setting,
            moved=moved,
            replayed=found,
            rows=[_replayed_row(row) for row in found.rows if row.position != "ahead"] if found else [],
            enter=[shown_document(one, 600) for one in found.enter.examples] if found else [],
            leave=[shown_document(one, 600) for one in found.leave.examples] if found else [],
            error=error,
            seed=seed,
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
            raise ValueError("give a value, or null for no limit")
        try:
            given = yaml.safe_load(value)
        except yaml.YAMLError:
            given = value
        return self._replays.replay({f"{step.row.step}.{setting}": given}, _seed(query))

    def documents(self, query: Query) -> str:
        """Kept documents, drawn by a seed; or those for which an expression is true, of all that were extracted too."""
        where, seed, error = query.get("where", "").strip(), _seed(query), ""
        everything = query.get("of") == "extracted"
        of = {"of": "extracted"} if everything else {}
        drawn, sentence, further = [], "", ""
        try:
            if where:
                found = search(self.opened, where, _N, seed, _number(query, "from", 0), everything)
                drawn = found.documents
                shards = f"{found.end - found.begin:,} of {found.shards:,} shard{'s' * (found.shards != 1)}"
                sentence = f"{found.matching:,} of {_counted(found.read)} in {shards} match"
                if found.end < found.shards:
                    further = link("documents", where=where, seed=seed, **{"from": found.end} | of)
            else:
                drawn = draws.kept(self.opened, _N, seed)
                sentence = f"{_counted(self.opened.report.corpus.rows)} kept"
        except ExpressionError as trouble:
            error = str(trouble)
        stage = "" if everything else self.opened.kept.label
        return self._documents(
            "Documents" if everything else "Kept documents",
            form="where",
            value=where,
            everything=everything,
            error=error,
            sentence=sentence,
            others=link("documents", **({"where": where} if where else {}), seed=_next(seed), **of),
            further=further,
            seed=seed,
            shown=[self._kept(one, stage, not where) for one in drawn],
        )

    def find(self, query: Query) -> str:
        """The document whose id begins as it is asked."""
        id_ = query.get("id", "").strip()
        if not id_ or (place := shard_of(self.opened, id_)) is None:
            raise LookupError(f"no document has an id that begins with {id_ or 'nothing'}")
        return self.document({"shard": str(place[0]), "id": place[1]})

    def phrase(self, query: Query) -> str:
        """Documents with a phrase, kept and dropped, where the corpus has its index."""
        phrase, index, sentence, shown = query.get("phrase", ""), self.opened.index, "", []
        if phrase and index is not None:
            found = find(index, phrase, _N)
            kept, gone = found.kept, found.dropped.documents
            rules = listed(found.rules)
            sentence = (
                f"{_counted(kept.documents)} of the training data contain it ({kept.times:,} times), and {gone:,} that "
            )
            sentence += f"were dropped: {rules}" if rules else "were dropped"
            shown = [shown_match(one, {"times": f"{one.times:,}"}) for one in found.documents]
        missing = "gristmill explain index" if index is None else ""
        return self._documents("Phrases", form="phrase", value=phrase, missing=missing, sentence=sentence, shown=shown)

    def words(self, query: Query) -> str:
        """The documents that have some words, the best first, where the corpus has their index."""
        given, index, error, sentence, shown = query.get("words", ""), self.opened.words, "", "", []
        if given.strip() and index is not None:
            try:
                found = find_words(index, given, _N)
                sentence = f"{_counted(found.matching)} match, kept and dropped"
                shown = [shown_match(one, {"score": f"{one.score:.2f}"}) for one in found.documents]
            except ValueError as trouble:
                error = str(trouble)
        error = error or extras.shortage("search by words", INDEX_PACKAGES)
        missing = "gristmill explain find --words" if index is None and not error else ""
        return self._documents(
            "Words", form="words", value=given, missing=missing, error=error, sentence=sentence, shown=shown
        )

    def map(self, query: Query) -> str:
        """Documents by their vectors, where the recipe stores some."""
        stage, seed = vectors(self.opened), _seed(query)
        made = topic_map(self.opened, stage, seed) if stage is not None else None
        points = made.points if made else []
        shown = [(one.x, one.y, link("document", shard=one.shard, id=one.id), one.name) for one in points]
        plot = charts.scatter(shown, "documents on two principal components")
        others = link("map", seed=_next(seed))
        return self._written("map.html", "Map", stored=stage is not None, map=made, plot=plot, others=others)

    def document(self, query: Query) -> str:
        """One document."""
        one = document(self.opened, _number(query, "shard", -1), query.get("id", ""), self.summary)
        row = one.lineage.row
        dropped = next((made.stage for made in reversed(one.decisions) if not made.kept), "")
        deciding = {step.stage.label for step in self.opened.steps}
        stage = self.opened.kept.label if one.kept else dropped if dropped in deciding else ""
        return self._written(
            "document.html",
            short(row["id"], 60),
            one=one,
            raw=beginning(one.lineage.raw, _WHOLE),
            text=None if one.text is None else beginning(one.text, _WHOLE),
            summary=self.summary,
            scores=[_score(each) for each in one.scores],
            vote=self._vote(stage, one.shard, row["id"], query.get("drawn") == "1") if one.text else None,
        )

    def vote(self, query: Query) -> None:
        """Keep a reader's vote on a document, or remove it where the vote is empty."""
        shard, drawn = _number(query, "shard", -1), query.get("drawn") == "1"
        cast(self.opened, query.get("stage", ""), shard, query.get("id", ""), query.get("vote", ""), drawn)

    def error(self, message: str) -> str:
        """A page with one sentence."""
        return self._written("overview.html", "Error", error=message)

    def _vote(self, stage: str, shard: int, id_: str, drawn: bool) -> Vote | None:
        """The buttons for a document, where a stage has decided about it."""
        to = link("vote", stage=stage, shard=shard, id=id_, drawn=int(drawn))
        return Vote(to, vote_on(self.opened, stage, id_)) if stage else None

    def _drop(self, one: draws.DrawnDrop, stage: str) -> Shown:
        id_ = one.dropped.row["id"]
        vote = self._vote(stage if one.dropped.text else "", one.shard, id_, True)
        return shown_drop(one.dropped, _CHARACTERS, link("document", shard=one.shard, id=id_, drawn=1), vote)

    def _kept(self, one: draws.DrawnDocument, stage: str, drawn: bool) -> Shown:
        return shown_document(one, _CHARACTERS, self._vote(stage, one.shard, one.id, drawn), drawn=int(drawn))

    def _documents(self, title: str, **given: Any) -> str:
        """A page with documents; which form finds them, a sentence on how many there are, and a link to others."""
        empty = dict.fromkeys(("form", "missing", "error", "sentence", "others", "further", "step", "controls"), "")
        return self._written("documents.html", title, **empty | {"everything": False, "seed": 1} | given)

    def _written(self, name: str, title: str, **given: Any) -> str:
        known = {"opened": self.opened, "link": link, "title": title, "error": ""}
        return pages.render(name, "gristmill.flows.explore.browse", **known | given)

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
                edges, logarithmic = charts.bins(numbers, marks)
                counts = numbers.histogram(edges)
                series = [("part", np.zeros_like(counts), counts)]
                cuts = [(mark, "cut") for mark in marks]
                plot = charts.histogram(edges, series, cuts, one.signal, logarithmic)
                found.append(Control(one, now, (float(edges[0]), float(edges[-1]), logarithmic), plot))
            else:
                found.append(Control(one, now, None if one.ends is None else (*one.ends, False)))
        return found


def _score(one: Score) -> tuple[Any, ...]:
    value = f"{one.value:.4g}" if isinstance(one.value, float) else f"{one.value}"
    if one.below is None:
        return one.name, short(value), None, None
    place = charts.strip(one.below, f"{one.name}: {one.below:.1%} of values are smaller")
    return one.name, short(value), f"{one.below:.1%}", place


def _replayed_row(row: ComparedStep) -> tuple[Any, ...]:
    changed = [f"{rule} {was:,} → {now:,}" for rule, (was, now) in row.rules.items() if was != now]
    recorded = row.recorded.documents_out if row.recorded else "-"
    return row.step, recorded, row.replayed.documents_out if row.replayed else "not replayed", ", ".join(changed)


def _counted(documents: int) -> str:
    return f"{documents:,} document{'s' * (documents != 1)}"


def _next(seed: int) -> int:
    return (seed + 1) % _SEEDS


def _seed(query: Query) -> int:
    return _number(query, "seed", 1) % _SEEDS


def _number(query: Query, name: str, default: int) -> int:
    given = query.get(name, "")
    if not given:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise ValueError(f"{name} is not a number")
    return int(given)
