"""The report page: what a recipe made of its documents, on one HTML page that needs no server and no network.

It is in the home beside the stages, `<home>/reports/<recipe>-<key>.html`, by the key of the last stage that it shows.
It holds texts of the crawl as they reached the rules that dropped them, before later edits such as those of `pii`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import dump
from gristmill.flows.reports import near_duplicates, pages
from gristmill.flows.reports.dropped import draw, samples
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.funnel import ranked
from gristmill.flows.reports.lineage import rows_of
from gristmill.flows.reports.marking import beginning
from gristmill.flows.reports.pages import Shown, share
from gristmill.flows.reports.pages.charts import bar
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run.agreement import annotators_of_run
from gristmill.flows.reports.run.bill import RunBill, bill
from gristmill.flows.reports.run.source_losses import SourceLoss
from gristmill.flows.reports.run_page import plots
from gristmill.flows.reports.run_page.plots import (
    Counts,
    Judged,
    count,
    cross_fitted,
    curves,
    judged,
    trained_classifier,
)
from gristmill.flows.reports.tables import short
from gristmill.flows.stages.removal import takedown_lists
from gristmill.storage import parquet
from gristmill.storage.home import open_stage
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.takedowns import RULE as TAKEDOWN
from gristmill.tasks.dedup.takedowns import hidden_ids
from gristmill.tasks.models.distillation.held_out import described_cut, described_measures

_EACH = 3  # documents shown of a rule, and of what a source keeps
_MOST = 8  # of a rule, where there are more sources than _EACH
_CHARACTERS = 1500  # shown of a text
_PAIRS = 3  # of near-duplicates, of each decile of similarity
_LANGUAGES = 15
_RULES = 10  # that dropped most
_ENCODINGS = 8  # of each kind of record


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
    by, one shard at a time, and few texts. Raises NotFinishedError with the fix.
    """
    return write_page(finished(recipe, settings))


def write_page(report: Run) -> str:
    """The same of a report."""
    last = report.trained.model if report.trained else report.corpus.kept
    return pages.write(report.settings.home, f"{report.recipe.name}-{last.key}.html", page(report))


def page(report: Run) -> str:
    """The page."""
    counts, model = count(report.corpus), trained_classifier(report.corpus)
    taken = bill(report)
    dropping = rules(report)
    return pages.render(
        "report.html",
        report=report,
        figures=list(_figures(report)),
        most=_most(report, dropping),
        hints=report.hints(),
        lost=[_lost(one) for one in report.lost_groups],
        source_losses=[_source_loss(one) for one in report.source_losses],
        records=list(_records(report, counts)),
        counts=counts,
        sources=[_source(report, name, both) for name, both in counts.sources.items()],
        languages=_languages(counts),
        rarer=max(0, len(counts.languages) - _LANGUAGES),
        lengths=plots.lengths(counts),
        signals=_signals(report),
        each=_each(report),
        rules=dropping,
        kept=_kept(report),
        classifier=model.result["model"] if model else None,
        curves=curves(*cross_fitted(model)) if model else (),
        agreements=annotators_of_run(report.recipe, report.settings),
        distilled=_distilled(report),
        duplicates=_duplicates(report),
        losses=plots.losses(report) if report.trained else None,
        model=[_evaluated(report, *each) for each in _MODELS] if report.trained else [],
        bill=taken,
        stages=list(_stages(taken)),
        recipe=dump(report.recipe),
    )


def _distilled(report: Run) -> dict[str, Any] | None:
    """What held-out annotations say of a score that the run has learned, and of the cut; None without one."""
    stages = {stage.name: stage.result for stage in report.corpus.stages}
    if "distill_model" not in stages:
        return None
    model, reasons = stages["distill_model"]["model"], stages["distill_cut"]["reasons"]
    rows = [
        (f"{row['score']:.3f}", f"{row['label']:.3f}", _ends(row), f"{row['documents']:,}")
        for row in model["reliability"]
    ]
    return {"lines": [described_measures(model), *([described_cut(reasons)] if reasons else [])], "rows": rows}


def _ends(row: Mapping[str, Any]) -> str:
    return f"{row['low']:.3f} to {row['high']:.3f}" if "low" in row else ""


_MODELS = (
    ("trained model, held-out documents", "heldout"),
    ("unigram model, the same documents", "unigram"),
)


def _figures(report: Run) -> Iterator[tuple[str, Any]]:
    """What came out, in a few numbers."""
    first, last = report.steps[0].documents_in, report.corpus.rows
    yield "documents kept", f"{last:,} of {first:,}"
    yield "kept", share(last, first)
    yield "tokens", report.tokens
    yield "characters per token", report.characters_per_token and f"{report.characters_per_token:.2f}"
    if report.trained:
        yield "bits per byte, held out", f"{report.result['heldout/bits_per_byte']:.4f}"


def _most(report: Run, dropping: list["Rule"]) -> list[tuple[Any, ...]]:
    """The rules that dropped most."""
    first = report.steps[0].documents_in
    ranks = sorted(dropping, key=lambda one: (-one.dropped, one.step, one.name))[:_RULES]
    return [
        (f"{one.step}.{one.name}", one.dropped, share(one.dropped, first), bar(one.dropped, first, True))
        for one in ranks
    ]


def _lost(one: dict[str, Any]) -> tuple[Any, ...]:
    lost, documents = one["lost"], one["documents"]
    name, like = f"{one['by']} {short(one['group'])}", f"{one['like_lost']:.1%}"
    return name, documents, lost, share(lost, documents), like, one["step"], one["step_lost"]


def _source_loss(one: SourceLoss) -> tuple[Any, ...]:
    interval = f"{one.low:.1%} to {one.high:.1%}"
    own = share(one.dropped, one.documents)
    return one.source, one.step, one.documents, one.dropped, own, interval, f"{one.median:.1%}", one.others, one.fix


def _records(report: Run, counts: Counts) -> Iterator[tuple[Any, ...]]:
    """What the records are: by encoding, by engine, of types that no text is read of, and those that became no
    document, by what was wrong."""
    first = report.steps[0].documents_in
    groups = (
        ("encoding", counts.encodings),
        ("declared and read:", report.relabeled),
        ("text by engine", report.engines),
        ("no text was extracted from type", report.types),
        (f"dropped by {report.steps[0].step}:", report.steps[0].drops),
    )
    for what, found in groups:
        for name, number in [*ranked(found).items()][:_ENCODINGS]:
            yield f"{what} {short(name, 60)}", number, share(number, first)


def _source(report: Run, name: str, both: plots.Both) -> tuple[Any, ...]:
    documents = both.arrived, both.kept, share(both.kept, both.arrived)
    characters = both.characters_arrived, both.characters_kept, share(both.characters_kept, both.characters_arrived)
    if not report.mixture:
        return name, *documents, *characters
    mixed = next((one for one in report.mixture if one.name == name), None)
    return name, *documents, *characters, mixed and f"{mixed.share:.1%}", mixed and f"{mixed.epochs:.2f}"


def _languages(counts: Counts) -> list[tuple[Any, ...]]:
    order = ranked({language: both.arrived for language, both in counts.languages.items()})
    most = next(iter(order.values()), 0)
    found = [(name, counts.languages[name]) for name in [*order][:_LANGUAGES]]
    return [
        (short(name, 40), both.arrived, both.kept, share(both.kept, both.arrived), bar(both.arrived, most))
        for name, both in found
    ]


def _evaluated(report: Run, name: str, key: str) -> tuple[str, str, str]:
    result = report.result
    return name, f"{result[f'{key}/bits_per_byte']:.4f}", f"{result[f'{key}/loss']:.4f}"


def _stages(bill: RunBill) -> Iterator[tuple[Any, ...]]:
    for row in bill.stages:
        hours = "not measured" if row.core_hours is None else f"{row.core_hours:.4f}"
        yield row.stage, hours, f"{row.bytes / 1e6:.1f}", row.requests
    yield "all", f"{bill.core_hours:.4f}", f"{bill.bytes / 1e6:.1f}", bill.requests


def rules(report: Run) -> list[Rule]:
    """The rules that dropped documents, in the order of the steps, those of a step by what they drop."""
    found = []
    for stage in report.corpus.stages:
        shown = samples(open_stage(stage.folder), report.corpus.sources, _each(report)) if stage.step_counts else {}
        # a page is handed around: what was taken down is not on it, whatever dropped it
        every = [one.row for some in shown.values() for one in some]
        hidden = _hidden(report, ((row["id"], row.get("url")) for row in every))
        for step in stage.step_counts:
            for rule, dropped in ranked(step["drops"]).items():
                some = [one for one in shown[step["step"], rule] if one.row["id"] not in hidden]
                some = [] if rule == TAKEDOWN else some
                texts = [pages.shown_drop(one, _CHARACTERS) for one in some]
                found.append(Rule(step["step"], rule, step["rows_in"], dropped, texts))
    return found


def _hidden(report: Run, documents: Iterable[tuple[str, str | None]]) -> set[str]:
    """The ids of the documents that the recipe's takedown lists name."""
    if not report.recipe.takedowns:
        return set()
    return hidden_ids(takedown_lists(open_run(report.settings, report.recipe)[0], report.recipe), documents)


def _each(report: Run) -> int:
    """Documents shown of a rule: one of each source, where these are not too many."""
    return min(max(_EACH, len(set(report.corpus.sources))), _MOST)


def _signals(report: Run) -> dict[str, list[tuple[Judged, Markup | None]]]:
    """By step its rules, those about numbers each with a plot."""
    found = judged(report.corpus).items()
    return {step: [(one, None if one.is_text else plots.signal(one)) for one in rules] for step, rules in found}


def _kept(report: Run) -> dict[str, list[Shown]]:
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
    facts = {name: row[name] for name in ("id", "title", "characters")}
    return Shown(row["url"] or id_, facts, beginning(row["text"], _CHARACTERS))


def _duplicates(report: Run) -> near_duplicates.Overview | None:
    step = next((step for step in report.recipe.steps if isinstance(step, MinHash)), None)
    kept = next((stage for stage in report.corpus.stages if stage.name == "near_duplicates"), None)
    if step is None or kept is None:
        return None
    placed = report.settings.placed(step)
    overview = near_duplicates.overview(
        placed, kept, _PAIRS, report.data.tokens if report.data else None, report.characters_per_token
    )
    sides = [(pair["example"].first, pair["example"].second) for pair in overview.pairs]
    hidden = _hidden(report, ((one.id, one.url) for both in sides for one in both))
    pairs = [pair for pair, both in zip(overview.pairs, sides, strict=True) if not hidden & {one.id for one in both}]
    return replace(overview, pairs=pairs)
