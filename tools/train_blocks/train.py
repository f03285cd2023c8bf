"""Trains the classifier of blocks: `python -m tools.train_blocks.train FOLDER [MODEL]`.

FOLDER holds the sets of `gold`; only the pages that `Gold.trains` names are read for the model, less those of hosts
that the others have too. Needs lightgbm, holds some 3 GB for a thousand pages and takes minutes. One thread and fixed
seeds: the same pages and versions give the same file.

The model in the package was made by this command with lightgbm 4.7.0 from four sets (docs/explanation/extraction.md).
"""

import hashlib
import html
import logging
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import lightgbm
import numpy as np
from safetensors.numpy import save_file

from gristmill.storage import files
from gristmill.tasks.extraction.blocks import Page, scan
from gristmill.tasks.extraction.classifier import MODEL, SECOND, context, second
from gristmill.tasks.extraction.description import Described, describe
from gristmill.tasks.extraction.features import FEATURES, features
from tools.train_blocks import gold
from tools.train_blocks.gold import covered

log = logging.getLogger(__name__)

FOLDS = 4
ROUNDS = 200
PARAMETERS = {
    "objective": "cross_entropy",  # labels are shares
    "learning_rate": 0.07,
    "num_leaves": 24,
    "min_data_in_leaf": 20,
    "min_sum_hessian_in_leaf": 2.0,
    "lambda_l2": 5.0,
    "feature_fraction": 0.25,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 63,
    "seed": 1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
_WORD = re.compile(r"\w+")


class Example(NamedTuple):
    """A page as the classifier sees it, and for each of its blocks the share of words that the gold text has."""

    gold: gold.Gold
    page: Page
    described: Described
    rows: np.ndarray
    words: np.ndarray
    share: np.ndarray


def example(page: gold.Gold) -> Example | None:
    """None for a page without text. Holds about 1 KB for each block."""
    data = np.frombuffer(page.html.encode("utf-8", "replace"), np.uint8)
    scanned = scan(data)
    n = len(scanned.blocks.begin)
    if not n:
        return None
    described = describe(data, scanned)
    rows = np.empty((n, len(FEATURES)), np.float32)
    features(scanned, described, 0, n, rows)
    text = scanned.text.tobytes()
    spans = zip(scanned.blocks.begin.tolist(), scanned.blocks.end.tolist(), strict=True)
    words = [_WORD.findall(html.unescape(text[begin:end].decode()).lower()) for begin, end in spans]
    counts = np.array([len(found) for found in words])
    inside = covered([word for found in words for word in found], _WORD.findall(page.text.lower()))
    hits = np.bincount(np.repeat(np.arange(n), counts), weights=inside, minlength=n)
    return Example(page, scanned, described, rows, counts, hits / np.maximum(1, counts))


def _fit(examples: list[Example], rows: list[np.ndarray]) -> lightgbm.Booster:
    # A block counts by its words to the power 0.7, so that headings are learned too. Every set counts the same, and
    # every page of a set: of the training pages five in six are WCXB's, whose makers leave out more than others do.
    pages = Counter(_collection(e.gold) for e in examples)
    worth = {name: 100 * len(examples) / len(pages) / count for name, count in pages.items()}
    weights = [worth[_collection(e.gold)] * e.words**0.7 / max(1.0, (e.words**0.7).sum()) for e in examples]
    # a block that is mostly covered is meant whole
    labels = np.concatenate([np.clip((e.share - 0.5) * 1.6 + 0.5, 0, 1) for e in examples])
    weight = np.concatenate(weights)
    used = weight > 0
    data = lightgbm.Dataset(np.concatenate(rows)[used], labels[used], weight=weight[used], params=PARAMETERS)
    return lightgbm.train(PARAMETERS, data, ROUNDS)


def _unseen(examples: list[Example], rows: list[np.ndarray]) -> list[np.ndarray]:
    """The probability of each block by a classifier that has not learned from a page of its host."""
    given: list[np.ndarray] = [np.empty(0)] * len(examples)
    folds = [_fold(e.gold) for e in examples]
    for fold in range(FOLDS):
        chosen = [i for i in range(len(examples)) if folds[i] != fold]
        booster = _fit([examples[i] for i in chosen], [rows[i] for i in chosen])
        for i in range(len(examples)):
            if folds[i] == fold:
                given[i] = booster.predict(rows[i]).astype(np.float32)
    return given


def _collection(page: gold.Gold) -> str:
    return page.set.removesuffix("-train")


def _fold(page: gold.Gold) -> int:
    return hashlib.sha256((page.host or f"{page.set}/{page.name}").encode()).digest()[0] % FOLDS


def _second_rows(e: Example, first: np.ndarray) -> np.ndarray:
    rows = np.empty((len(first), len(SECOND)), np.float32)
    rows[:, : len(FEATURES)] = e.rows
    second(e.page, e.described, first, context(e.page, e.described, first), 0, len(first), rows)
    return rows


def flatten(booster: lightgbm.Booster) -> dict[str, np.ndarray]:
    """The trees of a booster in the layout of `forest.Forest`."""
    feature: list[int] = []
    right: list[int] = []
    start: list[int] = []
    threshold: list[np.float32] = []
    value: list[float] = []
    for tree in booster.dump_model()["tree_info"]:
        start.append(len(feature))
        waiting = [(tree["tree_structure"], -1)]
        while waiting:
            node, parent = waiting.pop()
            at = len(feature)
            if parent >= 0:
                right[parent] = at
            leaf = "leaf_value" in node
            limit = 0.0 if leaf else node["threshold"]
            # rounded down: a float32 is not above the threshold exactly if it is not above this
            rounded = np.float32(limit)
            if float(rounded) > limit:
                rounded = np.nextafter(rounded, np.float32(-np.inf))
            feature.append(-1 if leaf else node["split_feature"])
            threshold.append(rounded)
            right.append(0)
            value.append(node["leaf_value"] if leaf else 0.0)
            if not leaf:
                waiting += [(node["right_child"], at), (node["left_child"], -1)]
    return {
        "feature": np.array(feature, np.int16),
        "threshold": np.array(threshold, np.float32),
        "right": np.array(right, np.int32),
        "value": np.array(value, np.float32),
        "start": np.array(start, np.int32),
        "bias": np.zeros(1, np.float32),
    }


def train(folder: Path, model: Path) -> None:
    """Write the model that the training halves of the sets in `folder` give.

    Holds the examples of all pages: some 3 GB for a thousand.
    """
    pages = gold.read(folder)
    hosts = {page.host for page in pages if not page.trains} - {""}
    learned = [page for page in pages if page.trains and page.host not in hosts]
    examples = [e for page in learned if (e := example(page))]
    log.info("%d pages, %d to learn from, %d blocks", len(pages), len(examples), sum(len(e.rows) for e in examples))
    rows = [e.rows for e in examples]
    first = _unseen(examples, rows)
    second_rows = [_second_rows(e, p) for e, p in zip(examples, first, strict=True)]
    arrays = {f"first.{name}": array for name, array in flatten(_fit(examples, rows)).items()}
    arrays |= {f"second.{name}": array for name, array in flatten(_fit(examples, second_rows)).items()}
    # one entry: the library writes several in any order
    save_file(arrays, model, {"features": f"{len(FEATURES)} {len(SECOND)}"})
    log.info("%s: MODEL_CHECKSUM = %r", model, files.checksum(str(model)))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else MODEL)
