"""From a token of a shard to its document, its record, and the same token derived from that record again.

Extraction, normalization and the document steps of the stage `documents` run once more. What later steps cut out of a
text depends on other documents, or on signals that did, so it is taken from the ledgers of edits.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from gristmill.flows.recipe.steps import AnyStep
from gristmill.flows.reports.lineage import ORIGIN, Lineage, lineage_of, record_again, rows_of
from gristmill.storage import files, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.schema import DOCUMENTS, carried, own_of
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.normalize import Normalize, rewrite
from gristmill.tasks.documents.step import DocumentStep, EditStep
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import SPACED
from gristmill.tasks.extraction.texts import page_guard
from gristmill.tasks.reading.record import Record
from gristmill.tasks.tokens.encoding import encoder
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle, parts
from gristmill.tasks.tokens.tokenizer import load

_STEPS = TypeAdapter(tuple[AnyStep, ...])
_RECORD_PLACE = ["id", "source", "file", "offset", "length", "url", "record_id", "engine"]
_OF_RECORD = ("url", "date", "ip", "status", "truncated", "note", "record_id", "digest")


@dataclass
class DerivedTexts:
    """`texts`: by document, as a record gives them; `troubles`: by document, why a record gives none."""

    texts: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)


def derive_texts(
    through: Sequence[FinishedStage], number: int, documents: Sequence[str], remote_io: RemoteIOConfig
) -> DerivedTexts:
    """Texts of some documents of a shard as the last of some stages has them. `through`: a stage `documents` and those
    that rewrote its texts, in order; `number`: of the shard. Holds the texts.

    Raises ValueError for a step that this machine does not know.
    """
    first, *later = through
    found = DerivedTexts()
    pages = _pages(first, number, documents, remote_io, found.troubles)
    schema = parquet.schema(first.part(number))
    table = pa.Table.from_pylist(list(pages), schema=pa.schema([schema.field(name) for name in carried(schema)]))
    source = table["source"][0].as_py() if len(table) else ""  # one for all documents of a shard
    settings = first.settings["normalize"]
    if settings and (normalize := Normalize.model_validate(settings)).applies_to(source):
        spaced = pc.is_in(table["engine"], pa.array(SPACED))
        texts = rewrite(normalize, table["text"], spaced)
        table = table.set_column(table.schema.get_field_index("text"), DOCUMENTS.field("text"), texts)
    table = _edited(first, table, source)
    found.texts.update(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    for stage in later:
        _cut(stage, number, found.texts)
    return found


def _pages(
    stage: FinishedStage,
    number: int,
    documents: Sequence[str],
    remote_io: RemoteIOConfig,
    troubles: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """A row of DOCUMENTS for each record that gives a text."""
    [extract] = _STEPS.validate_python([stage.settings["extract"]])  # an engine of a user's has to be allowed
    assert isinstance(extract, Extract)
    source = next((row["source"] for row in rows_of(stage.part(number), documents[:1], ["source"])), "")
    extract = extract if extract.applies_to(source) else Extract()
    records = _records(stage, number, documents, remote_io, troubles)
    waiting: deque[dict[str, Any]] = deque()

    def calls() -> Iterator[tuple]:
        for row, record in records:
            waiting.append(row | {name: getattr(record, name) for name in _OF_RECORD})
            # of a union the one that gave this text; what is no HTML is read by none of them
            engine = row["engine"] if row["engine"] in extract.asked else extract.asked[0]
            page = record.payload, record.content_type, record.charset, record.url
            yield (*page, engine, extract.format, extract.types)

    with page_guard(extract) as guard:
        for page in guard.map(calls()):
            row = waiting.popleft()
            if "rule" in page:
                troubles[row["id"]] = f"{page['rule']}: {page['detail']}"
            else:
                given = {name: value for name, value in page.items() if value is not None}
                yield row | given | {"characters": len(page["text"])}


def _records(
    stage: FinishedStage,
    number: int,
    documents: Sequence[str],
    remote_io: RemoteIOConfig,
    troubles: dict[str, str],
) -> Iterator[tuple[dict[str, Any], Record]]:
    own = own_of(parquet.schema(stage.part(number)))  # which steps may read
    for row in rows_of(stage.part(number), documents, [*_RECORD_PLACE, *own]):
        record, trouble = record_again(stage, number, row, remote_io)
        if record is None:
            troubles[row["id"]] = trouble
        elif record.problem:
            troubles[row["id"]] = ": ".join(record.problem)
        else:
            yield row, record


def _edited(stage: FinishedStage, table: pa.Table, source: str) -> pa.Table:
    """The documents of a source after the last step of the stage that changes texts."""
    given = _STEPS.validate_python([*stage.settings["before"], *stage.settings["steps"]])
    steps = [step for step in given if isinstance(step, DocumentStep)]
    behind = max((at + 1 for at, step in enumerate(steps) if isinstance(step, EditStep)), default=0)
    return measured(table, steps[:behind], source).table if behind and len(table) else table


def _cut(stage: FinishedStage, number: int, texts: dict[str, str]) -> None:
    """Cut out of the texts what a stage did, step by step in its order."""
    edits = parquet.read_table(stage.edits(number))
    own = edits.filter(pc.is_in(edits["id"], pa.array(texts, pa.string()))).to_pylist()
    own.sort(key=lambda row: row["id"])  # stable: of each document in the order of steps and places
    for (document, _), rows in groupby(own, lambda row: (row["id"], row["step"])):
        texts[document] = _without(texts[document], rows)


def _without(text: str, edits: Iterable[dict[str, Any]]) -> str:
    """The text with the spans of a step's rows of EDITS replaced."""
    pieces, at = [], 0
    for row in edits:
        pieces += [text[at : row["start"]], row["replacement"]]
        at = row["stop"]
    return "".join([*pieces, text[at:]])


_NAME = re.compile(r"train-(\d+)(?:-\d+)?\.bin")


@dataclass(frozen=True)
class TokenPlace:
    """A token of a shard, counted from 0, and where it comes from.

    `document`: the number in the shard of the document that has it; `first`: the number of that document's first
    token; `tokens`: all of the document's, shape (n,), with the one that ends it; `row`: its source, its URL and where
    its record is.
    """

    token: int
    document: int
    first: int
    tokens: np.ndarray
    row: dict[str, Any]

    @property
    def token_id(self) -> int:
        return int(self.tokens[self.token - self.first])


@dataclass(frozen=True)
class Derived:
    """A document's tokens as its record gives them now, with the one that ends it; or None, and `trouble` is why."""

    tokens: np.ndarray | None
    trouble: str = ""

    def same(self, place: TokenPlace) -> bool:
        """Whether they are those of the shard."""
        return self.tokens is not None and np.array_equal(self.tokens, place.tokens)


@dataclass(frozen=True)
class TokenLineage:
    """A token of the shard `path`: what it stands for, its document's lineage, and its document's tokens derived."""

    path: str
    piece: str
    place: TokenPlace
    document: Lineage
    derived: Derived


@dataclass(frozen=True)
class TokenSource:
    """A token shard and the stages that it was made from.

    `stage`: that of the shard; `texts`: those whose texts it has had, from the stage `documents` to the one that was
    encoded; `number`: of the shard in all of them.
    """

    path: str
    stage: FinishedStage
    texts: tuple[FinishedStage, ...]
    number: int

    def locate(self, token: int) -> TokenPlace:
        """The token's document, and where that was read. Holds the index of the shard and the ids of its documents.
        Raises IndexError for a token that the shard does not have, DamagedFileError for a shard that is not what was
        written."""
        index = parquet.read_table(f"{self.path.removesuffix('.bin')}.parquet")
        dtype = np.dtype(index.schema.metadata[b"dtype"].decode())
        begins, lengths = index["offset"].to_numpy(), index["length"].to_numpy()
        tokens = int(lengths.sum())
        if not 0 <= token < tokens:
            raise IndexError(f"{self.path} has {tokens:,} tokens, counted from 0, so there is no token {token:,}")
        at = int(np.searchsorted(begins, token, side="right")) - 1
        with open(self.stage.file(self.path.rpartition("/")[2]).local(), "rb") as f:
            f.seek(int(begins[at]) * dtype.itemsize)
            own = np.frombuffer(f.read(int(lengths[at]) * dtype.itemsize), dtype)
        [row] = rows_of(self.texts[0].part(self.number), [index["id"][at].as_py()], ORIGIN)
        return TokenPlace(token, at, int(begins[at]), own, row)

    def derive(self, documents: Sequence[str], remote_io: RemoteIOConfig) -> dict[str, Derived]:
        """Tokens of some documents of the shard, by id, from their records. Holds their texts."""
        found = derive_texts(self.texts, self.number, documents, remote_io)
        encode, fim = encoder(self.tokenizer, found.texts.values()), self.fim
        derived = {
            document: Derived(encode.document(text, parts(fim, document, text) if fim else None))
            for document, text in found.texts.items()
        }
        return derived | {document: Derived(None, trouble) for document, trouble in found.troubles.items()}

    @property
    def fim(self) -> FillInTheMiddle | None:
        """How the documents of the shard were cut for fill-in-the-middle, if they were."""
        made = self.stage
        while (of := made.input("tokens")) is not None:  # grouped, or halved
            made = of
        given = made.settings.get("fim")
        return FillInTheMiddle.model_validate(given) if given else None

    @cached_property
    def tokenizer(self) -> RecordedFile:
        """The file of the tokenizer that the shard was encoded with."""
        made = self.stage.input("tokenizer")
        if made is None:
            raise LookupError(
                f"the home of {self.stage.label} does not have the tokenizer that the stage was encoded with"
            )
        return made.file(made.result["tokenizer"]["file"])


def token_source(home: str, shard: str) -> TokenSource:
    """The token shard at a path, or at a path below the `stages` of a home, as `tokens-KEY/train-00000.bin`.

    Raises LookupError for what is no shard of a finished stage of tokens, or of one whose documents are not there.
    """
    path = shard if shard.endswith(".bin") else f"{shard}.bin"
    if not files.exists(path):
        path = files.join(home, "stages", path)
    folder, _, name = files.absolute(path).rpartition("/")
    named = _NAME.fullmatch(name)
    if named is None or not files.exists(path):
        raise LookupError(f"{shard} is not a token shard: give one as `tokens-KEY/train-00000.bin`, or its path")
    stage = open_stage(folder)
    texts: list[FinishedStage] = []
    found = stage.documents
    while found is not None:
        texts.insert(0, found)
        found = found.documents
    if not texts or "files" not in texts[0].inputs:
        raise LookupError(f"{stage.label} was not made from documents in its home, {stage.home.address}")
    return TokenSource(f"{folder}/{name}", stage, tuple(texts), int(named[1]))


def trace_token(home: str, shard: str, token: int, remote_io: RemoteIOConfig) -> TokenLineage:
    """All that is known of a token. Raises as `token_source` and `TokenSource.locate` do."""
    source = token_source(home, shard)
    place = source.locate(token)
    document, documents = place.row["id"], source.texts[0]
    [row] = rows_of(documents.part(source.number), [document])
    lineage = lineage_of(documents, source.number, row, remote_io)
    derived = source.derive([document], remote_io)[document]
    return TokenLineage(source.path, load(source.tokenizer).names[place.token_id], place, lineage, derived)
