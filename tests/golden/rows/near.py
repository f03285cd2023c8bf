"""Rows of near-duplicates, with earlier crawls too; of what is counted of what was dropped; and of group losses."""

import json
from typing import Any

from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.dedup.earlier_crawls import Drawing, EarlierCrawl, earlier_crawls, lost_text
from gristmill.flows.stages.dedup.near_duplicates import pairs_of_copies
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.group_losses import group_losses
from gristmill.tasks.dedup.near.settings import MinHash
from tests.golden.rows.row import (
    ADDRESSES,
    BOOKS,
    COPIES,
    EDGES,
    GROUPS,
    WEB,
    Row,
    Settings,
    curated,
    lines,
    placed,
    recipe,
    row,
)
from tests.golden.run import Golden

LENGTH: Settings = {"step": "ccnet", "min_characters": 1}
SHORT: Settings = {"step": "minhash", "shingle": 3, "bands": 32, "rows": 4}
WIDE: Settings = {"step": "minhash", "bands": 64, "rows": 2}
NEAR = ("signatures", "candidates", "near_duplicates")


def _near() -> list[Row]:
    lists = {"takedowns": ["{fixture}/lists/takedown.txt", "{fixture}/lists/taken.txt"]}
    return [
        row("near", [COPIES], [{"step": "minhash"}], NEAR),
        row("near-wide", [COPIES], [WIDE], NEAR),
        row(
            "near-oldest",
            [COPIES, ADDRESSES],
            [{**WIDE, "keep": ["oldest", "longest"], "threshold": 0.7, "partitions": 3}],
            NEAR,
        ),
        row(
            "near-best",
            [COPIES],
            [LENGTH, {**WIDE, "keep": ["best"], "best": "ccnet_characters", "threshold": 0.9, "comparisons": 1}],
            NEAR,
        ),
        row("near-none", [COPIES], [{**WIDE, "keep": []}], NEAR),
        row(
            "near-source",
            [BOOKS, {**COPIES, "name": "web"}, EDGES],
            [{**WIDE, "keep": ["source", "newest"], "seed": 2}],
            NEAR,
        ),
        row(
            "near-characters",
            [COPIES],
            [{"step": "minhash", "unit": "characters", "shingle": 9, "bands": 64, "rows": 2}],
            NEAR,
        ),
        row("near-few-comparisons", [COPIES], [{**SHORT, "comparisons": 2, "threshold": 0.75}], NEAR),
        row("near-components", [COPIES], [{"step": "minhash", "threshold": None, "bands": 32, "rows": 4}], NEAR),
        row(
            "near-components-oldest",
            [COPIES, EDGES],
            [{"step": "minhash", "threshold": None, "keep": ["newest"], "partitions": 2}],
            NEAR,
        ),
        row("near-contained", [COPIES], [{**WIDE, "verify": "containment"}], NEAR),
        row(
            "near-partly-contained",
            [COPIES],
            [
                {
                    "step": "minhash",
                    "shingle": 2,
                    "bands": 128,
                    "rows": 1,
                    "verify": "containment",
                    "contained": 0.9,
                    "keep": ["longest", "oldest"],
                }
            ],
            NEAR,
        ),
        row("near-taken-down", [COPIES], [{**WIDE, **lists}], NEAR),
        row("near-edges", [EDGES], [{**SHORT, "threshold": 0.5}], NEAR),
    ]


EARLIER = lines("earlier", id_column="id", date_column="date")


def _earlier(golden: Golden, steps: list[Settings], more: Settings) -> Corpus:
    """A second crawl, whose documents are compared with those that were kept of the first."""
    first = curated(golden, recipe([EARLIER], [*steps, more]))
    assert first is not None
    folder = next(stage.folder for stage in first.stages if stage.name == "near_duplicates")
    second = curated(golden, recipe([COPIES], [*steps, {**more, "earlier": [folder]}]))
    assert second is not None
    return second


def _lost(golden: Golden, step: Settings, drawing: Settings, with_earlier: bool = False) -> None:
    given = placed(recipe([COPIES], [step]), golden)
    loaded = load(given)
    if with_earlier:
        left = _earlier(golden, [], step)
        before = next(s for s in left.stages if s.name == "near_duplicates")
        assert before.result["inputs_layout"]["earlier"]
    else:
        _, left = golden.curated(given)
    arriving = documents(golden.context(), loaded, ())
    crawls: tuple[EarlierCrawl, ...] = ()
    if with_earlier:
        folder = next(s.folder for s in golden.asked.values() if s.name == "near_duplicates")
        crawls = tuple(earlier_crawls(MinHash.model_validate({**step, "earlier": (folder,)})))
    lost_text(golden.context(), arriving, left, crawls, Drawing(**drawing))


def _pairs(golden: Golden, step: Settings) -> None:
    corpus = curated(golden, recipe([COPIES], [step]))
    assert corpus is not None
    pairs_of_copies(golden.context(), corpus)


def _own(name: str, covers: tuple[str, ...], make: Any, *given: Any, slow: bool = False) -> Row:
    return Row(name, covers, lambda golden: make(golden, *given), json.dumps(given), slow)


def _counted() -> list[Row]:
    return [
        _own("earlier", NEAR, _earlier, [], WIDE),
        _own("earlier-contained", NEAR, _earlier, [LENGTH], {**WIDE, "verify": "containment", "keep": ["longest"]}),
        _own("lost", ("lost_text",), _lost, {"step": "content_dedup"}, {"draws": 300}),
        _own("lost-near", ("lost_text",), _lost, WIDE, {"draws": 200, "shown": 3, "seed": 2}),
        _own("lost-earlier", ("lost_text",), _lost, WIDE, {"draws": 150, "shown": 200}, True),
        _own("pairs", ("pairs_of_copies",), _pairs, WIDE),
        _own("pairs-components", ("pairs_of_copies",), _pairs, {**SHORT, "threshold": None}),
    ]


def _looked_at(golden: Golden, sources: list[Settings], steps: list[Settings], limits: Settings) -> None:
    """What steps took of groups of documents."""
    loaded, corpus = golden.curated(placed(recipe(sources, steps, group_losses={"then": "warn", **limits}), golden))
    group_losses(golden.context(), loaded, corpus)


def _losses() -> list[Row]:
    covers = ("group_losses",)
    few = [lines(f"groups{at}", "groups" if at else "books") for at in range(4)]
    return [
        _own("losses", covers, _looked_at, [GROUPS, BOOKS], [{"step": "ccnet", "min_characters": 60}], {"least": 20}),
        _own(
            "losses-languages",
            covers,
            _looked_at,
            [GROUPS, WEB],
            [{"step": "language", "keep": ["en", "de", "unknown"]}, {"step": "ccnet", "min_characters": 40}],
            {"least": 10, "kept": 0.6, "by": ["language", "host"]},
        ),
        _own(
            "losses-sources",
            covers,
            _looked_at,
            few,
            [{"step": "ccnet", "min_characters": 300}, {"step": "content_dedup"}],
            {"least": 10, "kept": 0.9, "by": ["source"]},
        ),
        row("takedowns", [COPIES, ADDRESSES], [LENGTH], ("takedowns",), takedowns=["{fixture}/lists/takedown.txt"]),
        row(
            "takedowns-two",
            [COPIES, ADDRESSES],
            [LENGTH, {"step": "line_dedup"}],
            ("takedowns",),
            takedowns=["{fixture}/lists/taken.txt", "{fixture}/lists/takedown.txt"],
        ),
    ]


ROWS = (*_near(), *_counted(), *_losses())
