"""What a model has memorized: how often it continues its training text verbatim, by the number of copies, beside
held-out text.

Prompts are drawn evenly from the tokens of what is trained on; how often the drawn text occurs there is counted by the
index. Carlini et al. 2023 (arXiv 2202.07646) call text memorized that a model's likeliest continuation of the 50 tokens
before gives for 50 tokens; Lee et al. 2022 (arXiv 2107.06499) find ten times less of it after deduplication.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import wrapt
from markupsafe import Markup

from gristmill.flows.experiments.models.evaluation import trained_model
from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer
from gristmill.flows.reports.search.opened import PhraseIndex
from gristmill.flows.reports.tables import Table
from gristmill.samples.shards import Tokens
from gristmill.storage import files
from gristmill.tasks.search import look_ups
from gristmill.tasks.search.look_ups import drawn
from gristmill.training.evaluate.heldout import document_ends
from gristmill.training.evaluate.sample import verbatim

if TYPE_CHECKING:
    from scipy import stats
else:
    stats = wrapt.lazy_import("scipy.stats")

PROMPTS, TOKENS = 2_000, 50
# The fewest copies of each group; the first is of held-out text.
COPIES = (0, 1, 2, 4, 16, 64)
LEVEL = 0.95


@dataclass(frozen=True)
class Group:
    """Drawn texts with so many copies in what is trained on, `least` to `most` (None: any number), of held-out text 0.

    `prompts`: how many; `share`: of those that the model continues verbatim, and `low`, `high`: its Wilson interval at
    LEVEL; `tokens`: the mean share of the continuation that it gives before the first other token.
    """

    least: int
    most: int | None
    prompts: int
    share: float
    low: float
    high: float
    tokens: float

    @property
    def name(self) -> str:
        if not self.least:
            return "held out"
        return (
            f"{self.least:,} or more"
            if self.most is None
            else f"{self.least}" + f" to {self.most}" * (self.most > self.least)
        )


@dataclass(frozen=True)
class Memorized:
    """`groups`: those with a prompt; `epochs`: how often training read each source."""

    model: str
    prompt: int
    continuation: int
    epochs: dict[str, float]
    groups: tuple[Group, ...]

    @property
    def table(self) -> Table:
        """Groups of prompts by their copies."""
        columns = ("copies in the training data", "#prompts", "#continued verbatim|.2%", f"#{LEVEL:.0%} interval|.2%")
        rows = [(one.name, one.prompts, one.share, (one.low, one.high), one.tokens) for one in self.groups]
        title = f"{self.prompt} prompt tokens, and the next {self.continuation} tokens expected from {self.model}"
        return Table((*columns, "#tokens before the first difference|.1%"), rows, title)

    def _repr_html_(self) -> str:
        return pages.notebook([self.table.title], [self.table])


def memorized(
    index: PhraseIndex,
    prompts: int = PROMPTS,
    prompt: int = TOKENS,
    continuation: int = TOKENS,
    seed: int = 1,
) -> Memorized:
    """Continue `prompts` texts of the training data, of `prompt` tokens each, and as many of held-out text, with the
    recipe's model.

    The same seed draws the same texts. Every drawn text is looked up in every shard. Raises NotFinishedError where the
    model is not trained, ValueError where no document is so long, and for texts that are longer than its context.
    """
    model = trained_model(index.recipe, index.settings)
    data = model.saved.data
    assert data is not None, "a recipe's model"
    draw, size = np.random.default_rng(seed), prompt + continuation
    texts, copies = _of_training(index, draw, prompts, size)
    loaded = model.saved.load()
    groups = []
    held = [Tokens(each.shards, data.vocab_size, data.dtype) for each in data.heldout]
    bounds = [document_ends(one, each, data.end_of_text) for one, each in zip(held, data.heldout, strict=True)]
    groups.append(_group(0, 0, verbatim(loaded, _of_heldout(held, bounds, draw, prompts, size), prompt), continuation))
    found = verbatim(loaded, texts, prompt)
    for least, following in zip(COPIES[1:], [*COPIES[2:], None], strict=True):
        most = None if following is None else following - 1
        within = (copies >= least) & (copies <= (np.inf if most is None else most))
        if within.any():
            groups.append(_group(least, most, found[within], continuation))
    assert index.texts.mixture is not None, "a model is trained with a mixture"
    epochs = {name: source["epochs"] for name, source in index.texts.mixture.result["sources"].items()}
    return Memorized(model.name, prompt, continuation, epochs, tuple(groups))


def _group(least: int, most: int | None, found: np.ndarray, continuation: int) -> Group:
    whole = int((found == continuation).sum())
    low, high = stats.binomtest(whole, len(found)).proportion_ci(LEVEL, "wilson")
    return Group(
        least, most, len(found), whole / len(found), float(low), float(high), float(found.mean() / continuation)
    )


def _too_short(size: int, what: str) -> ValueError:
    return ValueError(f"no document of {what} has {size} tokens: use shorter prompts or continuations")


def _of_training(index: PhraseIndex, draw: np.random.Generator, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts of what is trained on, token ids (texts, size), and how often each occurs there, int64 (texts,)."""
    with index.workers(count) as workers:
        each = partial(index.each, workers, dropped=False)
        places = [room for _, some in each(partial(look_ups.rooms, size=size)) for room in some]
        if not sum(places):
            raise _too_short(size, "the training data")
        wanted = draw.multinomial(count, np.array(places) / sum(places))
        seeds = draw.integers(1 << 62, size=len(places))
        # only of shards that a text is drawn from: at most as many as texts, however many shards there are
        asked = {int(shard): (int(wanted[shard]), int(seeds[shard])) for shard in np.flatnonzero(wanted)}
        given = partial(look_ups.texts, wanted=asked, size=size)
        texts = np.concatenate([text for _, some in each(given) for text in some])
        phrases = [index.pieces.text(text) for text in texts]
        copies = np.sum([some for _, some in each(partial(look_ups.copies, phrases=phrases))], axis=0)
    return texts, copies


def _of_heldout(
    sets: Sequence[Tokens], ends: Sequence[np.ndarray], draw: np.random.Generator, count: int, size: int
) -> np.ndarray:
    """Held-out texts, token ids (texts, size)."""
    lengths = [np.diff(each, prepend=0) for each in ends]
    places = [int(np.maximum(each - size, 0).sum()) for each in lengths]
    if not sum(places):
        raise _too_short(size, "the held-out text")
    found = []
    for tokens, bound, length, asked in zip(
        sets, ends, lengths, draw.multinomial(count, np.array(places) / sum(places)), strict=True
    ):
        if asked:
            firsts = drawn(bound - length, length, draw, asked, size)
            found += [tokens.read(first, first + size) for first in firsts.tolist()]
    return np.array(found)


def write(found: Memorized, home: str) -> str:
    """Write the page into the home's `reports`; returns its path."""
    content = page(found)
    return pages.write(home, f"memorized-{found.model}-{files.digest(content.encode())[:16]}.html", content)


def page(found: Memorized) -> str:
    """The page; the same figures give the same bytes."""
    read = ", ".join(f"{name} {times:.2f} times" for name, times in found.epochs.items())
    return pages.render("memorized.html", found=found, read=read, plot=_plot(found))


def _plot(found: Memorized) -> Markup:
    held, groups = found.groups[0], [group for group in found.groups if group.least]
    shares, low, high = ([getattr(group, name) for group in groups] for name in ("share", "low", "high"))
    return charts.plot(
        "share continued verbatim, by copies in the training data",
        Axis("copies in the training data", names=[group.name for group in groups]),
        Axis("continued verbatim", show=(0,), form=".1%"),
        Layer("band", [], [], "soft", "", [held.low], [held.high]),
        Layer("line", [-np.inf, np.inf], [held.share] * 2, "soft", "held-out text"),
        Layer("points", [*range(len(groups))], shares, "part", f"training text, {LEVEL:.0%} interval", low, high),
    )
