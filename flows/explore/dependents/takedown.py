"""Take documents down: the plan, the entries in the recipe's list, and the receipt.

This module writes the list, and removes the stages that it releases after a run with it. The command `corpus` or `run`
does the run itself.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from gristmill.flows.explore.dependents import receipt as receipts
from gristmill.flows.explore.dependents.affected import Affected, affected_by_documents
from gristmill.flows.explore.dependents.documents import FoundDocuments
from gristmill.flows.explore.dependents.erasure import LIKE, Request, Target, find_targets
from gristmill.flows.explore.dependents.receipt import Receipt
from gristmill.flows.machine.runs import forget, runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.dependents.graph import HomeGraph, graph_of, open_stage_at
from gristmill.flows.reports.recorded import WouldMake, would_make
from gristmill.flows.run import garbage
from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.tasks.language_model.answers import AnswerStore

# Stages that a run makes after the takedown lists, without training.
LATE = (
    *("group_losses", "heldout", "heldout_documents", "evaluation_removal", "tokens", "grouped_tokens"),
    *("evaluation_tokens", "mixture", "search_index", "word_index"),
)


@dataclass(frozen=True)
class Plan:
    """The plan of a takedown. `lines`: the entries to add to the recipe's list; `work`: what a run with them would
    make; `list`: the path of the list."""

    graph: HomeGraph
    request: Request
    found: FoundDocuments
    targets: tuple[Target, ...]
    report: Affected
    list: str
    lines: tuple[str, ...]
    work: WouldMake


def plan(settings: MachineSettings, recipe: Recipe, request: Request, exports: Sequence[str] = ()) -> Plan:
    """Find what a takedown affects, and the work that it requires. Changes nothing.

    Raises LookupError if no document matches, ValueError for a recipe without its own takedown list.
    """
    path = list_of(recipe)
    graph = graph_of(settings.home, exports)
    found, targets = find_targets(settings, graph, request)
    report = affected_by_documents(settings, graph, "takedown", "document", found)
    lines = tuple(_new_lines(path, request, targets))
    return Plan(graph, request, found, tuple(targets), report, path, lines, _work(settings, recipe, path, lines))


def list_of(recipe: Recipe) -> str:
    """The list to add entries to: the recipe's first list that is a plain local file. Raises ValueError."""
    for address in recipe.takedowns:
        path = files.absolute(address)
        if files.is_local(address) and Path(path).is_file() and not path.endswith((".gz", ".zst")):
            return path
    raise ValueError(
        f"the recipe {recipe.name} has no takedown list that can be written. Make an empty file takedown.txt next to "
        "it, and add `takedowns: [takedown.txt]` to the recipe"
    )


def _new_lines(path: str, request: Request, targets: Sequence[Target]) -> Iterator[str]:
    """The entries of a request, and the URLs of documents that were found by their texts, since ids change in a new
    extraction; for documents without a URL, their ids."""
    there = set(Path(path).read_text("utf-8").splitlines())
    entries = list(request.entries)
    for each in request.lists:
        if files.absolute(each) != path:
            lines = Path(each).read_text("utf-8").splitlines()
            entries += [line for line in lines if line.strip() and not line.startswith("#")]
    by_text = [target for target in targets if target.entry.startswith((LIKE, "like", "contains"))]
    entries += [target.url or target.id for target in by_text]
    yield from (entry for entry in dict.fromkeys(entries) if entry not in there)


def _work(settings: MachineSettings, recipe: Recipe, path: str, lines: Sequence[str]) -> WouldMake:
    """What a run would make if the list also had these entries."""
    with TemporaryDirectory(prefix="gristmill-") as folder:
        longer = Path(folder, Path(path).name)
        longer.write_text(_with_lines(path, lines, "a takedown"), encoding="utf-8")
        lists = [str(longer) if files.absolute(each) == path else each for each in recipe.takedowns]
        return would_make(recipe.model_copy(update={"takedowns": tuple(lists)}), settings)


def _with_lines(path: str, lines: Sequence[str], title: str) -> str:
    before = Path(path).read_text("utf-8")
    end = "" if not before or before.endswith("\n") else "\n"
    added = "".join(f"{line}\n" for line in lines)
    return f"{before}{end}# {title}\n{added}" if lines else before


def write(settings: MachineSettings, made: Plan) -> Receipt:
    """Write the receipt of the current state, and then the entries into the list."""
    receipt = receipts.begin(settings.home, made.graph, made.request, made.found, made.targets, made.report)
    if made.lines:
        title = f"takedown {receipt.id}, {datetime.now(UTC):%Y-%m-%d}"
        files.write_bytes(made.list, _with_lines(made.list, made.lines, title).encode())
    return receipt


def remove_released(settings: MachineSettings, receipt: Receipt, recipe: str) -> list[str]:
    """Remove the stages that depend on the documents and that no recorded run holds anymore, after a run of the recipe
    with the list. Returns their labels. Also removes the answers of language models about the documents. Trained
    models, which contain no text, and caches are left to `gristmill home gc`.

    A run with a new list has released earlier runs. This also releases runs that still hold documents which the newest
    run does not, for example if a step `url` was added to a recipe with the same list.
    """
    AnswerStore(settings.home).remove(receipt.value.get("answers", ()))
    graph = graph_of(settings.home)
    held = [one["stage"] for one in receipt.value["stages"] if one["stage"] in graph.stages]
    runs = [run for run in runs_of(settings.home, recipe) if run.ended]
    for run in runs[1:]:
        if set(held) & (graph.origins(run.stages) - graph.origins(runs[0].stages)):
            forget(settings.home, run)
    reached = set(graph.dependents(held))
    texts = {label for label in reached if graph.stages[label].name not in ("model", "proxy", "doremi")}
    found = garbage.find(settings.home, 0)
    return [one.label for one in found.garbage if one.label in texts and garbage.remove(settings.home, one)]


def plan_lines(made: Plan) -> Iterator[str]:
    """The plan as sentences, without the tables of affected stages."""
    near = sum(target.entry.startswith(LIKE) for target in made.targets)
    yield f"{len(made.targets):,} documents, {near:,} of them near-duplicates of the others"
    for line in made.lines:
        yield f"to be added to {made.list}: {line}"
    yield from made.work.sentences()
    seconds = sum(one.core_seconds or 0.0 for one in made.report.stages if one.stage.rpartition("-")[0] in LATE)
    yield f"stages after the lists took {seconds:,.1f} CPU s the last time; token shards without them are copied"
    for one in made.report.trainings:
        if one.has_read and one.read != 0:
            yield f"{one.stage} has read them and cannot forget them; a run with the list releases it for removal"
    for each in made.report.exports:
        yield f"export that stays until you delete it: {redact_url(each.address)}{_replacement(each.address)}"


def _replacement(address: str) -> str:
    """The command that exports again without the documents, after the run; "" if it is not an export of documents. An
    export is not rewritten in place, since users edit its README and readers may have it open."""
    try:
        stage = open_stage_at(address)
        form, where = stage.settings["format"], stage.settings.get("where")
    except (OSError, LookupError, RuntimeError, ValueError):
        return ""
    options = f" --format {form}" + (f" --where {shlex.quote(where)}" if where else "")
    return f"; after the run: gristmill export documents RECIPE --to NEW_FOLDER{options}"
