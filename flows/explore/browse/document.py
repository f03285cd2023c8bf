"""Documents as pages show them: one with all that is known of it, several in a list, and a static page of a corpus."""

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.draws import TAKEN
from gristmill.flows.explore.browse.opened import Opened, Summary, summary
from gristmill.flows.recipe.recipe import dump
from gristmill.flows.reports import pages
from gristmill.flows.reports.lineage import Decision, Lineage, lineage_of, row_of
from gristmill.flows.reports.marking import Piece, beginning
from gristmill.flows.reports.pages import Shown, Vote, shown_drop
from gristmill.flows.reports.search.phrases import FoundDocument
from gristmill.flows.reports.search.words import RankedDocument
from gristmill.flows.reports.tables import short
from gristmill.flows.stats.distributions import QUANTILES
from gristmill.storage import files

MOST_BYTES = 5_000_000
# Documents of a rule, and characters of each that are shown: what fits first is taken.
_SIZES = ((5, 1500), (5, 600), (3, 300), (1, 300), (0, 0))


def page(opened: Opened, seed: int = 1) -> str:
    """One page to hand around; the same stages and seed give the same bytes. Holds what is shown. Raises ValueError
    if the funnel and the summaries are too large by themselves."""
    most, _ = _SIZES[0]
    dropped = {
        (step.key, rule): draws.dropped(opened, step, rule, most, seed)
        for step in opened.steps
        for rule in step.drops
        if "takedown" not in rule and "takedown" not in step.row.step
    }
    kept, found = draws.kept(opened, 2 * most, seed), summary(opened)
    columns = [(name, numbers) for name, numbers in found.columns.items() if numbers.documents]
    values = [(name, one.documents, one.mean, *(one.quantile(share) for share in QUANTILES)) for name, one in columns]
    for each, characters in _SIZES:
        written = pages.render(
            "static.html",
            "gristmill.flows.explore.browse",
            opened=opened,
            seed=seed,
            each=each,
            dropped={
                key: [shown_drop(one.dropped, characters) for one in some[:each]] for key, some in dropped.items()
            },
            kept=[shown_document(one, characters, linked=False) for one in kept[: 2 * each]],
            summary=found,
            quantiles=[f"#{share}" for share in QUANTILES],
            values=values,
            recipe=dump(opened.recipe),
        )
        if len(written.encode("utf-8", "replace")) < MOST_BYTES:
            return written
    raise ValueError(f"the page of {opened.recipe.name} is larger than {MOST_BYTES:,} bytes even without documents")


def write(opened: Opened, to: str, seed: int = 1) -> str:
    """Write the static page, and return its path."""
    files.write_bytes(to, page(opened, seed).encode("utf-8", "replace"))
    return to


def link(page: str, **query: Any) -> str:
    """An address below the page's own."""
    return f"{page or './'}?{urlencode(query)}" if query else page or "./"


def shown_document(
    one: draws.DrawnDocument, characters: int, vote: Vote | None = None, linked: bool = True, **query: Any
) -> Shown:
    facts = {"source": one.source, "characters": f"{one.characters:,}", "id": one.id, "url": one.url}
    href = link("document", shard=one.shard, id=one.id, **query) if linked else ""
    return Shown(one.title or one.url or one.id, facts, beginning(one.text, characters), (), href, vote)


def shown_match(one: FoundDocument | RankedDocument, measured: dict[str, str]) -> Shown:
    """A document that was looked for, with the text around its first match."""
    record = one.record
    decided = {"kept": "yes"} if one.kept else {"dropped by": f"{one.step}.{one.rule}"}
    facts = decided | measured | {"source": record.get("source"), "id": one.id, "url": record.get("url")}
    pieces = [Piece(f"… {one.before}", False), Piece(short(one.match, 2000), True), Piece(f"{one.after} …", False)]
    title = record.get("title") or record.get("url") or one.id
    return Shown(title, facts, pieces, (), link("document", shard=one.shard, id=one.id))


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
        raise LookupError(f"{id_} did not become a document, and the ledger does not have the location of its record")
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
