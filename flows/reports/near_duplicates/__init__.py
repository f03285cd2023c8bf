"""The evidence page: what near-duplicate removal did in a finished run, on one HTML page that needs no server.

It lies in the home beside the stages, `<home>/evidence/near_duplicates-<key>.html`, and not in the stage's folder: what
is there was made by the code that the stage's key names, and does not change once it is finished; the page may be
written anew by other code.
"""

from typing import Any

import jinja2
import numpy as np
import pyarrow.compute as pc
from markupsafe import Markup

from flows.context import StageResult, step_counts
from flows.curation import curate
from flows.machine import MachineSettings
from flows.recipe import load
from flows.reports.near_duplicates import differences, plots
from flows.reports.whatif import lookup
from flows.stages import near_duplicates
from flows.stages.all_stages import placed
from storage import files, layout, parquet
from storage.remote import retry
from tasks.dedup.near.settings import MinHash, s_curve
from tasks.dedup.near.verify import decided_file
from tasks.dedup.near_reports import recall, summary

_LARGEST = 20  # clusters that are listed
_EACH = 20  # pairs shown of a decile
_CHARACTERS = 20_000  # of a text are read
# Control characters have pictures of their own; HTML has no way to write most of them.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}


def write(recipe: Any, settings: MachineSettings | None = None) -> str:
    """Write the page of a recipe's finished near-duplicate removal and return its path; the same stage, the same bytes.

    Only looks stages up; those behind the removal need not be there. Raises ValueError if the recipe has no step
    `minhash`, NotFinishedError, which says what to run. Held: see `tasks.dedup.near_reports.recall.holdout_pairs`.
    """
    recipe = load(recipe)
    if not any(isinstance(step, MinHash) for step in recipe.steps):
        raise ValueError(f"the recipe {recipe.name} has no step `minhash`: there is nothing to show the evidence of")
    settings = settings or MachineSettings()
    retry.configure(settings.remote_io)
    shop = lookup(settings, recipe)
    [step], kept = next(
        (passed.steps, passed.left.kept)
        for passed in curate(shop, recipe)
        if any(isinstance(step, MinHash) for step in passed.steps)
    )
    path = files.join(settings.home, "evidence", f"{kept.name}-{kept.key}.html")
    files.write_bytes(path, page(recipe.name, placed(step, shop), kept).encode())
    return path


def page(name: str, step: MinHash, kept: StageResult) -> str:
    """The page for a finished stage `near_duplicates` of the recipe `name`."""
    crawls = [*near_duplicates.earlier_crawls(step), near_duplicates.EarlierCrawl(kept.folder, kept.manifest)]
    locations = (shard for number, crawl in enumerate(crawls) for shard in crawl.shards(number))
    crawl = recall.Crawl(len(crawls) - 1, tuple(locations), step, _taken_down(kept))
    decided = [decided_file(kept.folder, p) for p in range(len(kept.manifest["verified"]))]

    clusters = summary.clusters(decided, crawl.number, _LARGEST, _EACH)
    held_out = recall.holdout_pairs(crawl)
    below, in_decile = summary.below_threshold(crawl, held_out.pairs, held_out.group, _EACH)
    examples = summary.examples(crawl, clusters.dropped, below, _EACH, _CHARACTERS)
    bins = recall.curve(held_out, step)
    docs = clusters.largest["doc"].to_numpy()
    largest = summary.documents(crawl, docs, 0)
    [counts] = step_counts(kept) or [{"rows_in": 0, "rows_out": 0, "drops": {}}]
    return _template().render(
        recipe=name,
        stage=f"{kept.name}-{kept.key}",
        settings=step,
        arriving=counts["rows_in"],
        staying=counts["rows_out"],
        dropped=counts["drops"].get("near_duplicate", 0),
        taken_down=counts["drops"].get("takedown", 0),
        left_out=sum(verified["left_out"] for verified in kept.manifest["verified"]),
        s_curve=[(at, s_curve(step.bands, step.rows, at)) for at in (np.arange(1, 20) / 20).tolist()],
        clusters=clusters,
        sizes=plots.sizes(clusters),
        largest=list(zip(clusters.largest["cluster_size"].to_pylist(), map(largest.get, docs.tolist()), strict=True)),
        held_out=held_out,
        bins=bins,
        recall=plots.recall(bins, step),
        at_threshold=s_curve(step.bands, step.rows, step.threshold),
        above=recall.share_banded(held_out, step, step.threshold),
        deciles=[
            {
                "told": f"{number / 10} to {(number + 1) / 10}" if number < summary.DECILES - 1 else "1 (equal sets)",
                "dropped": int(clusters.in_decile[number]),
                "below": int(in_decile[number]),
                "pairs": [
                    {"example": one, "sides": differences.side_by_side(one.first.text, one.second.text)} for one in some
                ],
            }
            for number, some in enumerate(examples)
        ],
    )


def _taken_down(kept: StageResult) -> tuple[str, ...]:
    """The ids of the documents that a stage dropped for a takedown list."""
    ledgers = (parquet.read_table(layout.ledger_part(kept.folder, n)) for n in range(len(kept.manifest["shards"])))
    return tuple(name for rows in ledgers for name in rows.filter(pc.equal(rows["rule"], "takedown"))["id"].to_pylist())


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("flows.reports.near_duplicates", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_written,
        trim_blocks=True,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "share": lambda part, whole: f"{part / whole:.2%}" if whole else "-",
    }
    return environment.get_template("page.html")


def _written(value: Any) -> Any:
    """A value as it is to be escaped, or the markup that needs no escaping."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else str(value).translate(_PICTURES)
