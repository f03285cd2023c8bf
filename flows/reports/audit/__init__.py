"""The audit of learned filters: documents that a person judges without knowing what the filter did with them.

A page has the documents nearest the cut and a sample of all, as many that are kept as that are dropped, shuffled by a
keyed hash, and of each the text alone. Of a step that drops nothing and gives a label it has the label, too. Votes are
saved from the page as JSON; `agreement` compares them with the filter.
"""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from gristmill.flows.curation import Passed, curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports import templates
from gristmill.flows.reports.audit.drawn import Draw, Drawn, draw
from gristmill.flows.reports.marking import before_edits
from gristmill.flows.reports.recorded import open_run
from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import EditStep, Step
from gristmill.tasks.engine import options

_CHARACTERS = 6000  # shown of a text
_OF_LABELS = "Does the label fit?"


@dataclass(frozen=True)
class Text:
    """A text on the page: its document's id, its beginning, how many characters follow, and the label, if one is
    shown."""

    id: str
    text: str
    left_out: int
    label: str = ""


def write(recipe: Any, step: str = "", settings: MachineSettings | None = None) -> list[str]:
    """Write a page for each learned filter of a finished recipe that dropped documents or gives labels, or for one,
    and return the paths: `<home>/reports/<recipe>-audit-<step>-<key>.html`.

    The same stages give the same bytes. Reads all scores, a shard at a time, and few texts. Raises NotFinishedError;
    ValueError where there is no such filter, or it dropped nothing.
    """
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context, recipe = open_run(settings, recipe)
    filters = [each.step for each in recipe.steps if each.question]
    if not filters or step not in ("", *filters):
        there = f"its learned filters are {', '.join(filters)}" if filters else "it has no learned filter"
        raise ValueError(f"{recipe.name} has no learned filter {step}".rstrip() + f" to audit; {there}")
    paths = []
    for passed in curate(context, recipe):
        for one in passed.steps:
            cuts = drops(passed, one)
            if not one.question or step not in ("", one.step) or not (cuts or one.certainty):
                continue
            stage = passed.left.kept
            path = files.join(settings.home, "reports", f"{recipe.name}-audit-{one.step}-{stage.key}.html")
            drawn = draw(passed, one, by_label=not cuts)
            shown = texts(passed, one, drawn.documents, labels=not cuts)
            question = one.question if cuts else _OF_LABELS
            written = page(recipe, one.step, question, f"{stage.name}-{stage.key}", drawn, shown)
            files.write_bytes(path, written.encode())
            paths.append(path)
    if not paths:
        raise ValueError(f"the learned filter {step or filters[0]} of {recipe.name} dropped nothing: there is no cut")
    return paths


def drops(passed: Passed, step: Step) -> bool:
    """Whether a step dropped documents."""
    if passed.left.kept is passed.arriving.kept:  # the step makes no cut
        return False
    counts = [count for count in passed.left.kept.step_counts if count["step"] == step.step]
    return any(dropped for count in counts for dropped in count["drops"].values())


def texts(passed: Passed, step: Step, documents: list[Drawn], labels: bool = False) -> list[Text]:
    """The texts of documents, in their order, as they reached a step: what it and those behind it in one pass have cut
    is there. Holds the texts of one shard, and what was cut out of them."""
    places = passed.arriving.places
    names = [each.step for each in passed.steps]
    edited = any(isinstance(each, EditStep) for each in passed.steps[names.index(step.step) :])
    found: dict[str, str] = {}
    for shard in sorted({one.shard for one in documents}):
        ids = pa.array([one.id for one in documents if one.shard == shard])
        table = select(places.documents[shard], places.kept[shard], ["text"])
        table = table.filter(pc.is_in(table["id"], ids))
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        if edited:
            cut = parquet.read_table(layout.edits_part(passed.arriving.documents.folder, shard))
            cut = cut.filter(pc.is_in(cut["id"], ids)).sort_by("start")
            for id_ in ids.to_pylist():
                found[id_], _ = before_edits(found[id_], cut.filter(pc.equal(cut["id"], id_)), step.step, names)
    return [
        Text(
            one.id,
            found[one.id][:_CHARACTERS],
            max(0, len(found[one.id]) - _CHARACTERS),
            one.side if labels else "",
        )
        for one in documents
    ]


def page(recipe: Recipe, step: str, question: str, stage: str, drawn: Draw, documents: list[Text]) -> str:
    """The page. It says of no document whether the filter keeps it, and loads nothing."""
    script = resources("gristmill.flows.reports").joinpath("audit", "votes.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    labels = {one.id: one.label for one in documents if one.label}
    about = {
        "recipe": recipe.name,
        "stage": stage,
        "step": step,
        "sizes": drawn.sizes,
        "nearest": [one.id for one in drawn.documents if one.nearest],
        "sampled": [one.id for one in drawn.documents if one.sampled],
        "labels": labels,
    }
    return templates.template("audit/page.html").render(
        recipe=recipe.name,
        step=step,
        question=question,
        labelled=bool(labels),
        about=orjson.dumps(about).decode(),
        documents=documents,
        script=Markup(script),
        digest=digest,
    )
