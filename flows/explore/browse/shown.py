"""Documents as the pages show them, and one static page of a corpus to hand around."""

from typing import Any
from urllib.parse import urlencode

from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.opened import Opened, summary
from gristmill.flows.explore.search.phrases import FoundDocument
from gristmill.flows.explore.search.words import RankedDocument
from gristmill.flows.recipe.recipe import dump
from gristmill.flows.reports import pages
from gristmill.flows.reports.marking import Piece, beginning
from gristmill.flows.reports.pages import Shown, Vote, shown_drop
from gristmill.flows.reports.tables import short
from gristmill.flows.stats.distributions import QUANTILES
from gristmill.storage import files

MOST_BYTES = 5_000_000
# Documents of a rule, and characters of each that are shown: what fits first is taken.
_SIZES = ((5, 1500), (5, 600), (3, 300), (1, 300), (0, 0))


def page(opened: Opened, seed: int = 1) -> str:
    """One page to hand around; the same stages and seed give the same bytes. Holds what is shown. Raises ValueError
    where the funnel and the summaries alone are too large."""
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
    raise ValueError(f"the page of {opened.recipe.name} is larger than {MOST_BYTES:,} bytes without any document")


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
