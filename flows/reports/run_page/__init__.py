"""The report page: what a recipe made of its documents, on one HTML page that needs no server and no network.

It is in the home beside the stages, `<home>/reports/<recipe>-<key>.html`, by the key of the last stage that it shows.
It holds texts of the crawl as they reached the rules that dropped them, ahead of later edits such as those of `pii`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import dump
from gristmill.flows.reports import near_duplicates, templates
from gristmill.flows.reports.bill import bill
from gristmill.flows.reports.dropped import Dropped, draw, samples
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.funnel import ranked
from gristmill.flows.reports.lineage import rows_of
from gristmill.flows.reports.marking import Piece, beginning, excerpt
from gristmill.flows.reports.plots.figures import cross_fitted, curves, trained_classifier
from gristmill.flows.reports.run import Report
from gristmill.flows.reports.run_page import plots
from gristmill.flows.reports.run_page.plots import count
from gristmill.flows.reports.run_page.signals import Judged, judged
from gristmill.storage import files, parquet
from gristmill.storage.home import open_stage
from gristmill.tasks.dedup.near.settings import MinHash

_EACH = 3  # documents shown of a rule, and of what a source keeps
_MOST = 8  # of a rule, where there are more sources than _EACH
_CHARACTERS = 1500  # shown of a text
_PAIRS = 3  # of near-duplicates, of each decile of similarity
_LANGUAGES = 15


@dataclass(frozen=True)
class Shown:
    """A document on the page: its id, where it comes from, facts about it, and pieces of its text, if there is one."""

    id: str
    url: str | None
    facts: dict[str, Any]
    pieces: list[Piece]


@dataclass(frozen=True)
class Rule:
    """A rule of a step, how many documents reached the step, how many of them it dropped, and some of those."""

    step: str
    name: str
    arrived: int
    dropped: int
    shown: list[Shown]


def write(recipe: Any, settings: MachineSettings | None = None) -> str:
    """Write the page of a recipe's finished corpus, with training if that is finished, and return its path.

    The same stages give the same bytes. Reads every shard's ids, languages, lengths and the signals that rules decide
    by, one shard at a time, and few texts. Raises NotFinishedError, which names the remedy.
    """
    return write_page(finished(recipe, settings))


def write_page(report: Report) -> str:
    """The same of a report."""
    last = report.trained.model if report.trained else report.corpus.kept
    path = files.join(report.settings.home, "reports", f"{report.recipe.name}-{last.key}.html")
    files.write_bytes(path, page(report).encode())
    return path


def page(report: Report) -> str:
    """The page."""
    counts = count(report.corpus)
    languages = ranked({language: both.arrived for language, both in counts.languages.items()})
    return templates.template("run_page/page.html").render(
        report=report,
        recipe=dump(report.recipe),
        rules=rules(report),
        kept=_kept(report),
        counts=counts,
        languages=list(languages)[:_LANGUAGES],
        rarer=max(0, len(languages) - _LANGUAGES),
        lengths=plots.lengths(counts),
        signals=_signals(report),
        each=_each(report),
        duplicates=_duplicates(report),
        losses=plots.losses_svg(report) if report.trained else None,
        classifier=_classifier(report),
        bill=bill(report),
    )


def rules(report: Report) -> list[Rule]:
    """The rules that dropped documents, in the order of the steps, those of a step by what they drop."""
    found = []
    for stage in report.corpus.stages:
        shown = samples(open_stage(stage.folder), report.corpus.sources, _each(report)) if stage.step_counts else {}
        for step in stage.step_counts:
            for rule, dropped in ranked(step["drops"]).items():
                # a page is handed around: what was taken down is not on it
                some = [] if "takedown" in rule else shown[step["step"], rule]
                found.append(Rule(step["step"], rule, step["rows_in"], dropped, [*map(_shown, some)]))
    return found


def _classifier(report: Report) -> tuple[dict[str, Any], Markup] | None:
    """The measures of the classifier that the run has trained, and its curves."""
    model = trained_classifier(report.corpus)
    return None if model is None else (model.result["model"], curves("classifier", *cross_fitted(model)))


def _shown(one: Dropped) -> Shown:
    left_out = ("id", "url", "step", "rule")
    facts = {name: value for name, value in one.row.items() if name not in left_out and value is not None}
    if one.unmarked:
        facts["not marked"] = one.unmarked
    if one.remark:
        facts["marks"] = one.remark
    pieces = [] if one.text is None else excerpt(one.text, one.marks, _CHARACTERS)
    return Shown(one.row["id"], one.row.get("url"), facts, pieces)


def _each(report: Report) -> int:
    """Documents shown of a rule: one of each source, where these are not too many."""
    return min(max(_EACH, len(set(report.corpus.sources))), _MOST)


def _signals(report: Report) -> dict[str, list[tuple[Judged, Markup | None]]]:
    """By step its rules, those about numbers each with a plot."""
    found = judged(report.corpus).items()
    return {step: [(one, None if one.is_text else plots.signal(one)) for one in rules] for step, rules in found}


def _kept(report: Report) -> dict[str, list[Shown]]:
    """Some documents that are kept of each source, drawn by a keyed hash of their ids. Holds the ids of one shard, and
    a row group of its texts."""
    drawn: dict[str, list[tuple[float, int, str]]] = {source: [] for source in report.corpus.sources}
    places = report.corpus.places
    for shard, source in enumerate(places.sources):
        ids = parquet.read_table(places.kept[shard], ["id"])["id"]
        numbers = draw(ids)
        rows = np.argsort(numbers, kind="stable")[:_EACH].tolist()
        drawn[source] = sorted([*drawn[source], *((float(numbers[at]), shard, ids[at].as_py()) for at in rows)])[:_EACH]
    return {source: [_kept_one(places.documents[at], id_) for _, at, id_ in some] for source, some in drawn.items()}


def _kept_one(documents: str, id_: str) -> Shown:
    [row] = rows_of(documents, [id_], ["id", "url", "title", "characters", "text"])
    facts = {name: row[name] for name in ("title", "characters") if row[name] is not None}
    return Shown(id_, row["url"], facts, beginning(row["text"], _CHARACTERS))


def _duplicates(report: Report) -> near_duplicates.Overview | None:
    step = next((step for step in report.recipe.steps if isinstance(step, MinHash)), None)
    kept = next((stage for stage in report.corpus.stages if stage.name == "near_duplicates"), None)
    if step is None or kept is None:
        return None
    placed = report.settings.placed(step)
    return near_duplicates.overview(
        placed, kept, _PAIRS, report.data.tokens if report.data else None, report.characters_per_token
    )
