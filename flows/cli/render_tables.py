"""Reports as tables, and what a table does not cover as sentences."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import yaml
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from flows.reports.funnel import FunnelRow
from flows.reports.status import StageStatus

if TYPE_CHECKING:
    from flows.reports.mixture_plan import PlannedSource
    from flows.reports.thresholds import Proposals
    from flows.reports.whatif import ComparedStep, Replay
    from tasks.engine.verify import Verified


def top_reasons(reasons: Mapping[str, int], most: int = 3) -> str:
    """The rules that drop or cut most, with their counts. `reasons`: most first."""
    return ", ".join(f"{rule} {count:,}" for rule, count in list(reasons.items())[:most])


def status_table(rows: Iterable[StageStatus]) -> Table:
    """A row for each stage of the home: it fits 80 columns."""
    cells = [_status_cells(row) for row in rows]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for at, name in enumerate(("finished", "stage", "recipe", "documents")):
        widest = max((len(row[at]) for row in cells), default=0)
        table.add_column(name, no_wrap=True, min_width=widest, justify="right" if name == "documents" else "left")
    # of columns that all may not wrap rich narrows each, down to nothing; of these only this one is narrowed
    table.add_column(Text("most dropped by", no_wrap=True, overflow="ellipsis"))
    for *row, drops in cells:
        table.add_row(*row, Text(drops, no_wrap=True, overflow="ellipsis"))
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


def status_remarks(rows: Iterable[StageStatus]) -> list[str]:
    """Why stages cannot be read."""
    return [row.trouble for row in rows if row.trouble]


def verified_line(found: "Verified") -> str:
    """What was read of a stage, and what is wrong with it."""
    name = found.folder.rpartition("/")[2]
    if not found.damages:
        return f"{name}: {found.files:,} files, {found.bytes:,} bytes, as they were written"
    wrong = [f"  {damage.path} {damage.trouble}" for damage in found.damages]
    return "\n".join([f"{name}: damaged; remove the stage's folder and run the recipe again", *wrong])


def funnel_table(
    title: str, rows: Iterable[FunnelRow], characters_per_token: float | None = None, tokens: int | None = None
) -> Table:
    """A row for each step, and one for the tokens.

    Tokens before tokenization are characters over the characters per token of what was tokenized in the end, hence the
    `~`; those of the last row are counted. Where there are none, characters stand in their place.
    """
    size = "characters" if characters_per_token is None else "tokens"
    columns = [Column("step", no_wrap=True)]
    columns += [Column(name, no_wrap=True, justify="right") for name in ("documents", "kept", size)]
    table = Table(*columns, "top reasons for drops", title=title, title_justify="left")
    documents = 0
    for row in rows:
        documents = row.documents_out
        kept = "-" if row.kept is None else f"{row.kept:.1%}"
        about = (_about(characters, characters_per_token) for characters in (row.characters_in, row.characters_out))
        table.add_row(row.name, _flow(row), kept, " → ".join(about), top_reasons(row.reasons))
    if tokens is not None:
        table.add_row("tokens", f"{documents:,}", "100.0%", f"{tokens:,}", "")
    return table


def _about(characters: int | None, per_token: float | None) -> str:
    if characters is None:
        return "-"
    return f"{characters / 1e3:,.0f}k" if per_token is None else f"~{characters / per_token / 1e3:,.0f}k"


def _flow(row: FunnelRow) -> str:
    return f"{row.documents_in:,} → {row.documents_out:,}"


def whatif_table(rows: "Iterable[ComparedStep]") -> Table:
    """A row for each step, and of replayed steps one for each rule that drops documents."""
    table = Table("step", "documents, as run", "kept", "what if", "kept", "difference")
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


def thresholds_table(found: "Proposals") -> Table:
    """A row for each proposal."""
    table = Table("setting", "language", "threshold", "drops of the reference", "drops here", "proposed", "drops then")
    for row in found.rows:
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


def thresholds_remarks(found: "Proposals", least: int) -> list[str]:
    """What the proposals do not cover."""
    remarks = []
    if found.few:
        few = ", ".join(f"{language} {count:,}" for language, count in found.few.items())
        remarks.append(f"Left out, with fewer than {least:,} documents: {few}.")
    if found.idle:
        remarks.append(f"Without a proposal, since they drop nothing of the reference: {', '.join(found.idle)}.")
    if found.without:
        remarks.append(f"Without a proposal, since they have no thresholds for languages: {', '.join(found.without)}.")
    return remarks + [f"Without a proposal: {reason}." for reason in found.unmatched]


def recipe_part(found: "Proposals") -> str:
    """The proposals as YAML, to be pasted into a recipe."""
    return yaml.safe_dump(found.recipe_part(), sort_keys=False, allow_unicode=True)


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
            given = row.packing
            cells = [given.concatenated_cut, given.best_fit_cut, 0, given.best_fit_padding]
            table.add_row(Text(row.name), *(f"{cell:.2%}" for cell in cells))
    return table
