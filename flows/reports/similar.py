"""Near-duplicates of a document or of a text file, with their similarity and whether they were kept."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports.lineage import Decision, decision
from gristmill.storage import parquet
from gristmill.storage.home import FinishedStage, Home
from gristmill.tasks.dedup.near import lookup
from gristmill.tasks.dedup.near.lookup import Like, Signed
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.near.sign import by_this_code
from gristmill.tasks.documents.normalize import Normalize, rewrite
from gristmill.tasks.documents.selection import read_rows


@dataclass(frozen=True)
class Query:
    """What is looked up: a text; of a document its id, too, and its shard in the stage where it is looked up, if it is
    there."""

    text: str
    id: str | None = None
    shard: int | None = None


@dataclass(frozen=True)
class Match:
    """A document like the one that was looked up. `decisions`: of each stage `near_duplicates` about it."""

    id: str
    jaccard: float
    source: str
    url: str | None
    decisions: tuple[Decision, ...]
    text: str


@dataclass(frozen=True)
class LookUp:
    """The look-up in one stage `signatures`.

    `decisions`: about the document itself, if the stage has it; `sharing`: documents that share a band with it;
    `like`: those of them that are like enough; `matches`: the first of these, the likest first.
    """

    stage: str
    settings: MinHash
    threshold: float
    query: Query
    decisions: tuple[Decision, ...]
    sharing: int
    like: int
    matches: tuple[Match, ...]


def look_up(
    home: str,
    document: str,
    redis: str,
    bands: int | None,
    rows: int | None,
    threshold: float,
    n: int,
    progress: Callable[[str, int, int], None],
    signatures: str = "signatures",
) -> Iterator[LookUp]:
    """Look up a text file, or the document whose id begins with `document`, in each stage `signatures` of the home, or
    in the one with a label.

    `redis`: address of the Redis that keeps the index, or empty; `bands`, `rows`: by default those of the step that the
    signatures were made for; `threshold`: least Jaccard similarity, above 0; `n`: documents of each stage;
    `progress(stage, done, total)`: documents put into an index. Signatures that another version of the code has made
    are passed over. Raises LookupError where there is no such stage or document.
    """
    found = Home(home)
    texts = [stage for stage in found.stages() if stage.parts and "text" in parquet.columns(stage.parts[0])]
    indexed = [
        (stage, documents, _signed(stage, documents, bands, rows))
        for stage, documents in _with_texts(found, texts, signatures)
    ]
    current = [
        (stage, documents, signed)
        for stage, documents, signed in indexed
        if by_this_code(signed.signatures, signed.documents, signed.settings)
    ]
    if not current:
        raise LookupError(
            f"{home} has no finished stage `signatures` of this version with its texts: run a recipe with "
            "the step `minhash`"
        )
    query_among = _query(home, texts, document)
    for stage, documents, signed in current:
        yield _look_up(stage, signed, query_among(documents), redis, threshold, n, progress)


def _with_texts(home: Home, texts: list[FinishedStage], name: str) -> list[tuple[FinishedStage, FinishedStage]]:
    """The stages with a name, or a label, whose texts are in the home, each with the stage that has them."""
    made = ((stage, stage.documents) for stage in home.stages(name) if stage.parts)
    return [(stage, documents) for stage, documents in made if documents is not None and documents in texts]


def _look_up(
    stage: FinishedStage,
    signed: Signed,
    query: Query,
    redis: str,
    threshold: float,
    n: int,
    progress: Callable[[str, int, int], None],
) -> LookUp:
    sought = lookup.sought(query.text, signed.settings)

    def count(done: int, total: int) -> None:
        progress(stage.label, done, total)

    if redis:
        nodes = lookup.in_redis(signed, sought.signature, redis, count)
    else:
        nodes = lookup.in_memory(signed, sought.signature, count)
    likes = lookup.alike(signed, sought, nodes, threshold)
    others = [like for like in likes if like.id != query.id]
    deciding = _deciding(stage)
    return LookUp(
        stage=stage.label,
        settings=signed.settings,
        threshold=threshold,
        query=query,
        decisions=() if query.shard is None or query.id is None else _decisions(deciding, query.shard, query.id),
        sharing=len(nodes) - (len(likes) - len(others)),
        like=len(others),
        matches=tuple(_match(signed, like, _decisions(deciding, like.shard, like.id)) for like in others[:n]),
    )


def _query(home: str, texts: list[FinishedStage], document: str) -> Callable[[FinishedStage], Query]:
    """What is looked up, by the stage whose documents it is looked up among."""
    if Path(document).is_file():
        text = read_text(document)
        return lambda stage: Query(_normalized(stage, text))
    rows_of = []
    for stage in texts:
        for shard, part in enumerate(stage.parts):
            ids = parquet.read_table(part, ["id"])["id"]
            rows = np.flatnonzero(pc.starts_with(ids, document).to_numpy())
            rows_of += [(stage.key, part, shard, row, ids[int(row)].as_py()) for row in rows]
    known = sorted({found[-1] for found in rows_of})
    if not known:
        raise LookupError(
            f"no file {document}, and no document in {home} has an id that begins with it; `gristmill "
            "explain show` prints ids"
        )
    if len(known) > 1:
        raise LookupError(
            f"{len(known)} documents have an id that begins with {document}, such as {' and '.join(known[:2])}"
        )
    queries = {
        key: Query(read_rows(part, np.array([row]), ["text"])["text"][0].as_py(), known[0], shard)
        for key, part, shard, row, _ in rows_of
    }
    # where a stage does not have the document, its text from another
    elsewhere = replace(next(iter(queries.values())), shard=None)
    return lambda stage: queries.get(stage.key, elsewhere)


def read_text(path: str) -> str:
    """The text in a file. Raises ValueError unless it is UTF-8."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}): convert it first") from None


def _normalized(stage: FinishedStage, text: str) -> str:
    """The text as the extraction of a stage's documents would have left it."""
    while "normalize" not in stage.settings and stage.documents is not None:
        stage = stage.documents
    if settings := stage.settings.get("normalize"):
        [text] = rewrite(Normalize.model_validate(settings), pa.array([text], pa.large_string())).to_pylist()
    return text


def _signed(stage: FinishedStage, documents: FinishedStage, bands: int | None, rows: int | None) -> Signed:
    given = {name: value for name, value in (("bands", bands), ("rows", rows)) if value is not None}
    settings = MinHash.model_validate(stage.settings["shingling"] | stage.settings["banding"] | given)
    return Signed(stage.label, stage.parts, documents.parts, settings)


def _deciding(signatures: FinishedStage) -> list[FinishedStage]:
    """The stages `near_duplicates` that were made of the signatures."""
    made = signatures.home.stages("near_duplicates")
    return [stage for stage in made if stage.reads("signatures", signatures)]


def _decisions(stages: list[FinishedStage], shard: int, document: str) -> tuple[Decision, ...]:
    found = (decision(stage, shard, document) for stage in stages)
    return tuple(made for made in found if made is not None)


def _match(signed: Signed, like: Like, decisions: tuple[Decision, ...]) -> Match:
    columns = ["source", "url", "text"]
    [row] = read_rows(signed.documents[like.shard], np.array([like.at]), columns).to_pylist()
    return Match(like.id, like.jaccard, row["source"], row["url"], decisions, row["text"])
