"""The folder of a run's papers. From the home only, and the same bytes for the same home."""

import csv
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from gristmill.flows.reports.provenance.annotations import write_shard
from gristmill.flows.reports.provenance.figures import TOP_DOMAINS, answers, readable
from gristmill.flows.reports.provenance.lineage import CROISSANT, croissant
from gristmill.flows.reports.provenance.papers import CARD, DOMAINS, SUMMARY, data_card, training_summary
from gristmill.flows.reports.run import Run
from gristmill.storage import files, layout
from gristmill.storage.printable import redact_url

FIGURES = "figures.json"
_BATCH = 10_000  # rows of top-domains.csv that are held


@dataclass(frozen=True)
class Papers:
    """`folder`: where they are; `figures`: how many numbers and tables; `annotations`: rows of the annotation table;
    `model`: whether they include a trained model."""

    folder: str
    figures: int
    annotations: int
    model: bool


def write_papers(run: Run, to: str, say: Callable[[str], None] = lambda line: None) -> Papers:
    """Write the papers of a run into a folder or to an address: a new or empty one, or one with papers of the same run,
    which are written again. `say`: is told what is written.

    Reads the texts of the curated documents twice, and holds the records of a shard. Raises FileExistsError for a
    folder with other files.
    """
    to = files.absolute(to)
    key = layout.digest_of([run.recipe.name, *(stage.contents for _, stage in run.built)])
    _check_folder(to, key)
    about = _about(run)
    say("figures")
    found = answers(run)
    content = {"about": about, "key": key, "figures": [each.json for each in found.values()]}
    files.write_bytes(
        files.join(to, FIGURES), orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    say(DOMAINS)
    domains = _domains(run)
    files.write_bytes(files.join(to, DOMAINS), domains)
    papers = {
        CARD: data_card(run, found, about),
        SUMMARY: training_summary(run, found, about, TOP_DOMAINS),
    }
    for name, text in papers.items():
        files.write_bytes(files.join(to, name), text.encode())
    digest = hashlib.sha256(domains).hexdigest()
    files.write_bytes(files.join(to, CROISSANT), croissant(run, found, about, domains, digest))
    rows, shards = 0, len(run.corpus.sources)
    for shard in range(shards):
        if shard % 100 == 0:
            say(f"annotations, shard {shard:,} of {shards:,}")
        rows += write_shard(run, shard, to, about)
    return Papers(to, len(found), rows, run.trained is not None)


def _check_folder(to: str, key: str) -> None:
    if not files.names(to):
        return
    try:
        there = orjson.loads(files.read_bytes(files.join(to, FIGURES))).get("key")
    except (FileNotFoundError, orjson.JSONDecodeError):
        raise FileExistsError(f"{redact_url(to)} contains other files: choose another folder, or empty it") from None
    if there != key:
        raise FileExistsError(
            f"{redact_url(to)} contains the papers of another run: choose another folder, or empty it"
        )


def _about(run: Run) -> str:
    """What the papers were written from, in a sentence."""
    what = f"corpus {run.corpus.kept.label}"
    if run.data is not None:
        what += f", tokens {run.data.tokens.label}"
    if run.trained is not None:
        what += f" and model {run.trained.model.label}"
    return f"Written by `gristmill export provenance` from the home of the recipe {run.recipe.name}: {what}."


def _domains(run: Run) -> bytes:
    result = run.sql(TOP_DOMAINS)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(result.columns)
    with readable():
        for batch in result.to_arrow_reader(_BATCH):
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return out.getvalue().encode()
