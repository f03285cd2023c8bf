"""Tokenizers side by side on a finished corpus: what they make of its texts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.tables import Table
from gristmill.flows.stages.corpus import CorpusPlaces
from gristmill.flows.stages.tokens import tokenizer_of
from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.storage.tokenizer_files import TextTokenizer
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.tokens import tokenizer as tokenizing
from gristmill.tasks.tokens import trial as trials
from gristmill.tasks.tokens.encoding import encoder

Group = tuple[str, str]  # source, and language, empty where the recipe finds none


@dataclass
class TokenizerFigures:
    """`tokens`, `bytes` (of UTF-8), `words` (runs without white space): by source and language. `inexact`: documents
    that do not come back from their tokens. `unused`: ordinary tokens that no text has. `shared`: the share of ordinary
    tokens whose text is one of the first tokenizer, too. `embedding`: parameters of the embedding and, untied, of the
    output, for the recipe's model."""

    name: str
    vocab_size: int
    embedding: int
    shared: float
    unused: int = 0
    inexact: int = 0
    tokens: dict[Group, int] = field(default_factory=lambda: defaultdict(int))
    bytes: dict[Group, int] = field(default_factory=lambda: defaultdict(int))
    words: dict[Group, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def table(self) -> Table:
        """A row for all texts, and one for each source and language."""
        title = (
            f"{self.name}: vocabulary {self.vocab_size:,}, {self.unused:,} unused, {self.shared:.1%} shared with the "
            f"first, embedding {self.embedding:,} parameters, {self.inexact:,} documents not reproduced exactly"
        )
        groups: list[tuple[Group, Group | None, int]] = [(("all", ""), None, sum(self.tokens.values()))]
        groups += [(group, group, self.tokens[group]) for group in sorted(self.tokens)]
        rows = [(*name, self.bytes_per_token(group), self.fertility(group), n) for name, group, n in groups]
        return Table(("source", "language", "#bytes per token|.3f", "#tokens per word|.3f", "#tokens"), rows, title)

    def bytes_per_token(self, group: Group | None = None) -> float:
        return _ratio(self.bytes, self.tokens, group)

    def fertility(self, group: Group | None = None) -> float:
        """Tokens a word."""
        return _ratio(self.tokens, self.words, group)


def _ratio(above: dict[Group, int], below: dict[Group, int], group: Group | None) -> float:
    of = [group] if group is not None else list(above)
    return sum(above[each] for each in of) / max(1, sum(below[each] for each in of))


def tokenizer_figures(
    given: Any, others: Sequence[Path] = (), settings: MachineSettings | None = None
) -> list[TokenizerFigures]:
    """The recipe's own tokenizer, if it is made, and those of other files, on all documents of its finished corpus.

    Reads a shard at a time. Raises NotFinishedError where the corpus is not finished; ValueError for a file that is no
    tokenizer.
    """
    recipe = load(given)
    report = finished(recipe, settings)
    with TemporaryDirectory() as folder:
        recorded = [(recipe.name, tokenizer_of(report.data.tokenizer))] if report.data is not None else []
        recorded += [(f"{path}", _kept(path, f"{folder}/{at}")) for at, path in enumerate(others)]
        if not recorded:
            raise ValueError(
                f"the tokenizer of {recipe.name} is not finished, and no other tokenizer is given; give a "
                f"file, or run `gristmill run {recipe.name} --tokens-only`"
            )
        places = report.corpus.places
        shards = ([*_documents(recipe, places, i)] for i in range(len(places.sources)))
        copies = recipe.model.dim * (1 if recipe.model.tie_embeddings else 2)
        return measured(recorded, shards, copies)


def measured(
    recorded: Sequence[tuple[str, RecordedFile]], shards: Iterable[list[tuple[Group, str]]], width: int
) -> list[TokenizerFigures]:
    """The figures of tokenizers, by name and file, on texts with their groups. `width`: parameters of the embedding for
    each token."""
    loaded = [tokenizing.load(file) for _, file in recorded]
    first = _texts(loaded[0])
    found = [
        TokenizerFigures(name, one.vocab_size, one.vocab_size * width, _shared(one, first))
        for (name, _), one in zip(recorded, loaded, strict=True)
    ]
    counts = [np.zeros(one.vocab_size, np.int64) for one in loaded]
    for documents in shards:
        for at, (figures, one) in enumerate(zip(found, loaded, strict=True)):
            encode = encoder(recorded[at][1], [text for _, text in documents])
            for group, text in documents:
                ids = encode(text)
                counts[at] += np.bincount(ids, minlength=len(counts[at]))
                figures.tokens[group] += len(ids)
                figures.bytes[group] += len(text.encode())
                figures.words[group] += len(text.split())
                figures.inexact += one.decode(ids.tolist()) != text
    for figures, one, count in zip(found, loaded, counts, strict=True):
        ordinary = np.array([size > 0 for size in one.token_bytes()])
        figures.unused = int((ordinary & (count == 0)).sum())
    return found


def _kept(path: Path, folder: str) -> RecordedFile:
    """A user's file as a stage would keep it."""
    trials.tried(path.read_bytes(), f"{path}", None)
    given = RecordedFile(str(path), files.checksum(str(path)))
    record = tokenizing.take_tokenizer(folder, 0, given)
    kept = files.join(folder, record["file"])
    return RecordedFile(kept, files.checksum(kept))


def _documents(recipe: Recipe, places: CorpusPlaces, i: int) -> Iterator[tuple[Group, str]]:
    """The documents of a shard, each with its source and language."""
    table = select(places.documents[i], places.kept[i], ["text"])
    known = {}
    if any(signal.name == "language" for step in recipe.steps for signal in step.signals):
        languages = gather(places.signals[i], places.kept[i], ["language"])
        known = dict(zip(languages["id"].to_pylist(), languages["language"].to_pylist(), strict=True))
    for name, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
        yield (places.sources[i], known.get(name) or ""), text


def _texts(tokenizer: TextTokenizer) -> set[str]:
    """What the ordinary tokens decode to, those left out that are parts of a character."""
    return {tokenizer.decode([i]) for i, size in enumerate(tokenizer.token_bytes()) if size > 0} - {"\ufffd"}


def _shared(tokenizer: TextTokenizer, first: set[str]) -> float:
    own = _texts(tokenizer)
    return len(own & first) / max(1, len(own))
