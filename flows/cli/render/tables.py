"""Tables for the terminal: funnels, stages, rules, capacity, evaluations."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import yaml
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from gristmill.flows.reports.funnel import FunnelRow
from gristmill.flows.reports.status import StageNode, StageStatus

if TYPE_CHECKING:
    from gristmill.flows.experiments.models.evaluation import Evaluation
    from gristmill.flows.reports.mixture_plan import PlannedSource
    from gristmill.flows.reports.rules import Book, CutRow, Row, Threshold
    from gristmill.flows.reports.thresholds import Proposals
    from gristmill.flows.reports.whatif import ComparedStep, Replay
    from gristmill.storage.home import Verified


def top_reasons(reasons: Mapping[str, int], most: int = 3) -> str:
    """The rules that drop or cut most, with their counts. `reasons`: most first."""
    return ", ".join(f"{rule} {count:,}" for rule, count in list(reasons.items())[:most])


NARROW = 100  # columns: below this reasons stand in lines of their own, for a rule's name is what --rule takes


def status_table(rows: Iterable[StageStatus], width: int) -> Table:
    """A row for each stage of the home, in so many columns of a terminal, at least 80."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("finished", "stage", "recipe", "documents"):
        table.add_column(name, no_wrap=True, justify="right" if name == "documents" else "left")
    if width >= NARROW + 40:
        table.add_column("most dropped by")
    for row in rows:
        *cells, drops = _status_cells(row)
        if width >= NARROW + 40:
            table.add_row(*cells, drops)
        else:
            table.add_row(*cells)
            for reason in drops.split(", ") if drops else ():
                table.add_row("", f"  {reason}")
    return table


def _status_cells(row: StageStatus) -> tuple[str, ...]:
    finished = _time(row.modified) if row.state == "finished" else row.state
    counts = _documents(row) if row.state != "unfinished" else f"{row.jobs_done:,} jobs done"
    return finished, row.stage, ", ".join(row.recipes), counts, top_reasons(row.drops)


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%d %b %H:%M")


def _documents(row: StageStatus) -> str:
    counts = [f"{n:,}" for n in (row.documents_in, row.documents_out) if n is not None]
    return " → ".join(counts)


def status_lines(rows: Iterable[StageStatus]) -> list[str]:
    """A line for each stage, with tabs between the columns of `status_table`: for a pipe, nothing is cut off."""
    return ["\t".join(_status_cells(row)) for row in rows]


def stage_tree(recipe: str, nodes: Iterable[StageNode]) -> Tree:
    """A recipe's stages, each with the first 8 characters of its key, its documents and tokens."""
    tree = Tree(Text(recipe, style="bold"))
    for node in nodes:
        _grow(tree, node)
    return tree


def _grow(tree: Tree, node: StageNode) -> None:
    row = node.stage
    name, _, key = row.stage.rpartition("-")
    counts = [_documents(row), f"{row.tokens:,} tokens" if row.tokens is not None else ""]
    if row.state != "finished":
        counts = [f"{row.state}, {row.jobs_done:,} jobs done" if row.state == "unfinished" else row.state]
    branch = tree.add(Text("  ".join([name, key[:8], *filter(None, counts)])))
    for other in node.aside:
        _grow(branch, other)


def status_remarks(rows: Iterable[StageStatus]) -> list[str]:
    """Why stages cannot be read."""
    return [row.trouble for row in rows if row.trouble]


def verified_line(result: "Verified") -> str:
    """What was read of a stage, and what is wrong with it."""
    name = result.folder.rpartition("/")[2]
    if not result.damages:
        return f"{name}: {result.files:,} files, {result.bytes:,} bytes, as they were written"
    wrong = [f"  {damage.path} {damage.trouble}" for damage in result.damages]
    return "\n".join([f"{name}: damaged; remove the stage's folder and run the recipe again", *wrong])


def funnel_table(
    title: str,
    rows: Iterable[FunnelRow],
    characters_per_token: float | None = None,
    tokens: int | None = None,
    width: int = 120,
) -> Table:
    """A row for each step, and one for the tokens, in so many columns of a terminal.

    Tokens before tokenization are characters over the characters per token of what was tokenized in the end, hence the
    `~`; those of the last row are counted. Where there are none, characters stand in their place.
    """
    size = "characters" if characters_per_token is None else "tokens"
    columns = [Column("step", no_wrap=True)]
    columns += [Column(name, no_wrap=True, justify="right") for name in ("documents", "kept", size)]
    columns += [Column("top reasons for drops")] if width >= NARROW else []
    table = Table(*columns, title=title, title_justify="left")
    documents = 0
    for row in rows:
        documents = row.documents_out
        kept = "-" if row.kept is None else f"{row.kept:.1%}"
        about = (_about(characters, characters_per_token) for characters in (row.characters_in, row.characters_out))
        cells, reasons = (row.name, _flow(row), kept, " → ".join(about)), top_reasons(row.reasons)
        if width >= NARROW:
            table.add_row(*cells, reasons)
        else:
            table.add_row(*cells)
            for reason in reasons.split(", ") if reasons else ():
                table.add_row(f"  {reason}")
    if tokens is not None:
        table.add_row("tokens", f"{documents:,}", "100.0%", f"{tokens:,}")
    return table


def _about(characters: int | None, per_token: float | None) -> str:
    if characters is None:
        return "-"
    return f"{characters / 1e3:,.0f}k" if per_token is None else f"~{characters / per_token / 1e3:,.0f}k"


def _flow(row: FunnelRow) -> str:
    return f"{row.documents_in:,} → {row.documents_out:,}"


def whatif_table(rows: "Iterable[ComparedStep]") -> Table:
    """A row for each step, and of replayed steps one for each rule that drops documents."""
    # where the terminal is narrow, numbers break at their spaces, and no name of a rule is cut off
    table = Table(Column("step", no_wrap=True), "as run", "kept", "what if", "kept", "change")
    for row in rows:
        recorded = ("not run", "") if row.recorded is None else _flow_and_share(row.recorded)
        if row.position == "replayed" and row.recorded and row.replayed:
            difference = row.replayed.documents_out - row.recorded.documents_out
            table.add_row(row.step, *recorded, *_flow_and_share(row.replayed), f"{difference:+,}")
        else:
            same = row.position == "ahead" or row.replayed is not None
            table.add_row(row.step, *recorded, "the same" if same else "not replayed", "", "")
        for rule, (was, now) in row.rules.items():
            table.add_row(f"  {rule}", f"dropped {was:,}", "", f"dropped {now:,}", "", f"{now - was:+,}")
    return table


def _flow_and_share(row: FunnelRow) -> tuple[str, str]:
    return _flow(row), "-" if row.kept is None else f"{row.kept:.2%}"


def whatif_remarks(replay: "Replay") -> list[str]:
    """What the funnel does not cover."""
    if replay.unchanged:
        return ["The same documents stay, so all that comes behind is as recorded."]
    if not replay.behind:
        return []
    return [
        f"Not replayed: {', '.join(replay.behind)}. A step that looks at all documents together may decide otherwise "
        "even about those that stay: run the changed recipe to know."
    ]


def thresholds_table(proposals: "Proposals") -> Table:
    """A row for each proposal."""
    table = Table("setting", "language", "threshold", "drops of the reference", "drops here", "proposed", "drops then")
    for row in proposals.rows:
        table.add_row(
            f"{row.step}.{row.setting}",
            row.language,
            f"{row.threshold:g}",
            f"{row.reference:.2%}",
            f"{row.now:.2%}",
            f"{row.proposed:g}",
            f"{row.then:.2%}",
        )
    return table


def thresholds_remarks(proposals: "Proposals", least: int) -> list[str]:
    """What the proposals do not cover."""
    remarks = []
    if proposals.few:
        few = ", ".join(f"{language} {count:,}" for language, count in proposals.few.items())
        remarks.append(f"Left out, with fewer than {least:,} documents: {few}.")
    if proposals.idle:
        remarks.append(f"Without a proposal, since they drop nothing of the reference: {', '.join(proposals.idle)}.")
    if proposals.without:
        remarks.append(
            f"Without a proposal, since they have no thresholds for languages: {', '.join(proposals.without)}."
        )
    return remarks + [f"Without a proposal: {reason}." for reason in proposals.unmatched]


def recipe_part(proposals: "Proposals") -> str:
    """The proposals as YAML, to be pasted into a recipe."""
    return yaml.safe_dump(proposals.recipe_part(), sort_keys=False, allow_unicode=True)


def plan_table(rows: Iterable["PlannedSource"]) -> Table:
    """A row for each source of a mixture."""
    right = [Column(name, justify="right") for name in ("weight", "share", "has", "takes", "epochs")]
    table = Table("source", *right, "", box=SIMPLE_HEAD)
    for row in rows:
        cells = [f"{row.wanted:.2%}", f"{row.share:.2%}", f"{row.has:,}", f"{row.takes:,}", f"{row.epochs:.2f}"]
        table.add_row(Text(row.name), *cells, row.remark)
    return table


def packing_table(rows: Iterable["PlannedSource"]) -> Table:
    """A row for each source that was packed."""
    names = ("documents cut: concatenate", "best_fit", "padding: concatenate", "best_fit")
    table = Table("source", *(Column(name, justify="right") for name in names), box=SIMPLE_HEAD)
    for row in rows:
        if row.packing:
            packing = row.packing
            cells = [packing.concatenated_cut, packing.best_fit_cut, 0, packing.best_fit_padding]
            table.add_row(Text(row.name), *(f"{cell:.2%}" for cell in cells))
    return table


ORDER = (
    "The rules of a step are asked in the order of their numbers. The first that a document fails is the reason of its "
    "drop, in the ledger and in the funnel. Shown are the recipe's keys with their defaults; null does not bind."
)
_FIXED = {"low": "at least", "high": "at most", "allowed": "must be", "excluded": "must not be"}


def rules(books: Iterable["Book"], width: int) -> Iterator[str]:
    """Of each step what it cuts, by which rules it drops documents, and what else it measures; paragraphs of lines of
    at most `width` characters."""
    yield _wrapped(ORDER, width)
    for book in books:
        yield f"\n{book.step}"
        yield from (_wrapped(line, width) for line in _lines(book))


def _lines(book: "Book") -> Iterator[str]:
    sources = {row.source for row in book.rows}
    with_source = len(sources) > 1
    if not with_source:
        yield f"  {''.join(sources)}"
    if book.cuts:
        yield "  cuts out of texts:"
    for number, cut in enumerate(book.cuts, 1):
        yield from _cut(number, cut)
    if book.cuts:
        yield "  drops documents:"
    for number, row in enumerate(book.rows, 1):
        yield from _row(number, row, with_source)


def _cut(number: int, cut: "CutRow") -> Iterator[str]:
    yield _head(f"{number:2} {cut.rule}", [f"{name} {_value(value)}" for name, value in cut.settings.items()])
    yield f"     {cut.description}"


def _row(number: int, row: "Row", with_source: bool) -> Iterator[str]:
    source = f"; {row.source}" if with_source else ""
    if row.rule:
        of_groups = [f"{name} {_value(value)} (of some languages)" for name, value in row.groups]
        yield _head(f"{number:2} {row.rule}", [*map(_threshold, row.thresholds), *of_groups])
        yield f"     {row.description}"
        yield f"     {row.signal} ({row.unit}){source}"
    else:
        yield f"   - {row.signal} ({row.unit}), measured only{source}"
        yield f"     {row.description}"


def _head(name: str, settings: list[str]) -> str:
    return f"  {name}: {', '.join(settings)}" if settings else f"  {name}"


def _threshold(threshold: "Threshold") -> str:
    """An end of a rule as a recipe sets it, or what the step asks for whatever the recipe says."""
    return f"{threshold.setting or _FIXED[threshold.end]} {_value(threshold.value)}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) if any(value) else "empty"
    return json.dumps(value)


def _wrapped(line: str, width: int) -> str:
    text = line.lstrip(" ")
    indent, further = (" " * (len(line) - len(text)), " " * 5) if line != text else ("", "")
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)


def heldout_table(evaluation: "Evaluation") -> Table:
    table = Table("held-out text", title=evaluation.model)
    table.add_column("bits per byte", justify="right")
    for name, value in evaluation.heldout.items():
        if name.endswith("bits_per_byte"):
            kind, _, source = name.removesuffix("/bits_per_byte").partition("/")
            shown = source or "all"
            table.add_row(
                {"heldout": shown, "survivors": f"{shown}, kept by the recipe"}.get(kind, source), f"{value:.4f}"
            )
    return table


def tasks_table(evaluation: "Evaluation") -> Table:
    """Accuracies in percent, with their standard errors."""
    table = Table("task", title=evaluation.model)
    for head in ("examples", "acc %", "acc_norm %", "acc_bytes %", "chance %", "perplexity", "bits per byte"):
        table.add_column(head, justify="right")
    for name, figures in evaluation.tasks.items():
        table.add_row(
            name,
            f"{figures['examples']:,}",
            _share(figures, "acc"),
            _share(figures, "acc_norm"),
            _share(figures, "acc_bytes"),
            _share(figures, "chance"),
            _number(figures.get("perplexity"), ",.2f"),
            _number(figures["bits_per_byte"], ".3f"),
        )
    return table


def remarks(evaluation: "Evaluation") -> Iterator[str]:
    for name, figures in evaluation.tasks.items():
        if figures["cut"]:
            yield f"{name}: the context of {figures['cut']:,} pairs was cut at its left to fit the model"
    yield from (f"not scored: {sentence}" for sentence in evaluation.unknown)
    yield f"report: {evaluation.path}"
    if evaluation.mlflow_run:
        yield f"logged to the MLflow run {evaluation.mlflow_run}"


def _share(figures: dict[str, Any], name: str) -> str:
    value, error = figures.get(name), figures.get(f"{name}_stderr")
    if value is None:
        return ""
    return f"{100 * value:.2f}" + ("" if error is None else f" ± {100 * error:.2f}")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
