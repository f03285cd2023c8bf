"""One document: its text, its raw page, where it comes from, its scores among all, and what every stage decided."""

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from gristmill.flows.explore.browse.draws import TAKEN
from gristmill.flows.explore.browse.opened import Opened, Summary
from gristmill.flows.reports.lineage import Decision, Lineage, lineage_of, row_of

_PARSED = 500_000  # characters of a raw page whose outline is read
_HEADINGS = 60  # of the outline that are shown
_COUNTED = ("p", "li", "table", "pre", "math", "blockquote", "a", "img", "form", "script", "nav")


@dataclass(frozen=True)
class Heading:
    """A heading of the raw page. `kept`: whether the extracted text has it."""

    level: int
    text: str
    kept: bool


@dataclass(frozen=True)
class Outline:
    """The structure of a raw page: its headings, and how many elements of some kinds it has."""

    headings: list[Heading]
    elements: dict[str, int]


@dataclass(frozen=True)
class Score:
    """A column of a document. `below`: the share of all documents with a smaller value, None for what is no number."""

    stage: str
    name: str
    value: Any
    below: float | None


@dataclass(frozen=True)
class Document:
    """`text`: as it is kept, or as it was extracted where it was dropped; None for a record that never became a
    document. `cut`: whether steps have changed it since the extraction. `decisions`: those of this recipe's stages, a
    home may have others, too."""

    shard: int
    lineage: Lineage
    text: str | None
    cut: bool
    outline: Outline | None
    decisions: list[Decision]
    scores: list[Score]
    kept: bool


def document(opened: Opened, shard: int, id_: str, summary: Summary) -> Document:
    """A record of a shard, by its whole id. Reads its row groups, and its record from the source's file. Raises
    LookupError for one that the shard does not have, or that was taken down."""
    stage = opened.extracted
    if not 0 <= shard < len(stage.part_records):
        raise LookupError(f"no shard {shard}")
    row = row_of(stage.part(shard), id_) or row_of(stage.ledger(shard), id_)
    if row is None:
        raise LookupError(f"no document {id_} in shard {shard}")
    if opened.taken_down([(id_, row.get("url"))]):
        raise LookupError(TAKEN)
    if row["offset"] is None:
        raise LookupError(f"{id_} never became a document, and the ledger does not say where its record is")
    lineage = lineage_of(stage, shard, row, opened.settings.remote_io)
    extracted = row.get("text")
    last = row_of(opened.corpus.documents.part(shard), id_) if extracted is not None else None
    text = last["text"] if last else extracted
    kept = row_of(opened.kept.part(shard), id_) is not None
    labels = {step.stage.label for step in opened.steps} | {opened.extracted.label, opened.kept.label}
    labels |= {f"{each.name}-{each.key}" for each in opened.corpus.measured}
    outline = None
    if lineage.record is not None and not lineage.record.problem and extracted is not None:
        outline = outline_of(lineage.raw[:_PARSED], extracted)
    decisions = [made for made in lineage.decisions if made.stage in labels]
    scores = _scores(lineage, labels, summary)
    return Document(shard, lineage, text, text != extracted, outline, decisions, scores, kept)


def _scores(lineage: Lineage, labels: set[str], summary: Summary) -> list[Score]:
    """The scores that the stages of this recipe gave: a home may have those of others."""
    found = []
    for stage, scores in ({lineage.stage: lineage.signals} | lineage.scores).items():
        for name, value in scores.items() if stage in labels else ():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            known = summary.columns.get(name) if number else None
            if value is not None:
                found.append(Score(stage, name, value, None if known is None else known.below(value)))
    return found


class _Outlined(HTMLParser):
    """Python's own parser, which runs nothing and follows nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.headings: list[tuple[int, list[str]]] = []
        self.elements: dict[str, int] = {}
        self._within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _COUNTED:
            self.elements[tag] = self.elements.get(tag, 0) + 1
        if len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.headings.append((int(tag[1]), []))
            self._within = True

    def handle_endtag(self, tag: str) -> None:
        if len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self._within = False

    def handle_data(self, data: str) -> None:
        if self._within:
            self.headings[-1][1].append(data)


def outline_of(page: str, text: str) -> Outline | None:
    """The outline of a page in HTML; None where it has no element of a kind that is counted."""
    parser = _Outlined()
    parser.feed(page)
    words = " ".join(text.split())
    headings = []
    for level, pieces in parser.headings[:_HEADINGS]:
        heading = " ".join("".join(pieces).split())
        if heading:
            headings.append(Heading(level, heading[:200], heading in words))
    return Outline(headings, parser.elements) if headings or parser.elements else None
