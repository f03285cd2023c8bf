"""Near-duplicates of one document or of a text file: who they are, how like they are, and what differs first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from flows.reports.status import folders
from storage import files, layout, parquet
from tasks.dedup.near.settings import MinHash, s_curve
from tasks.dedup.near.sign import by_this_code
from tasks.dedup.near_reports import lookup
from tasks.dedup.near_reports.lookup import Like, Signed
from tasks.documents.normalize import Normalize
from tasks.documents.rows import read_rows

_AHEAD = 400  # words behind the first difference that are compared
_SHOWN = 40  # words of either text that are shown
_BEFORE = 8  # words of them that stand before the first difference


@dataclass(frozen=True)
class Asked:
    """What is looked up: a text; of a document its id, too, and its shard in the stage where it is looked up, if it is
    there."""

    text: str
    id: str | None = None
    shard: int | None = None


@dataclass(frozen=True)
class Found:
    """A document like the one that was looked up; `fate`: what each stage `near_duplicates` decided about it."""

    id: str
    jaccard: float
    source: str
    url: str | None
    fate: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Looked:
    """The look-up in one stage `signatures`.

    `fate`: of the document itself, if the stage has it; `sharing`: documents that share a band with it; `like`: those
    of them that are like enough; `found`: the first of these, the likest first.
    """

    stage: str
    settings: MinHash
    threshold: float
    asked: Asked
    fate: tuple[str, ...]
    sharing: int
    like: int
    found: tuple[Found, ...]


def look_up(
    home: str,
    document: str,
    redis: str,
    bands: int | None,
    rows: int | None,
    threshold: float,
    n: int,
    told: Callable[[str, int, int], None],
) -> Iterator[Looked]:
    """Look up a text file, or the document whose id begins with `document`, in each stage `signatures` of the home.

    `redis`: address of the Redis that keeps the index, or empty; `bands`, `rows`: by default those of the signatures;
    `threshold`: least Jaccard similarity, above 0; `n`: documents of each stage; `told(stage, done, total)`: documents
    put into an index. Signatures that another version of the code has made are passed over. Raises LookupError where
    there is no such stage or document.
    """
    there = _finished(home)
    texts = {made.key: made for made in there if made.parts and "text" in parquet.columns(made.parts[0])}
    signed = {
        made.key: _among(made, texts[made.inputs["documents"]], bands, rows)
        for made in there
        if made.is_a("signatures") and made.parts and made.inputs["documents"] in texts
    }
    current = [
        made
        for made in there
        if (among := signed.get(made.key)) and by_this_code(among.signatures, among.documents, among.settings)
    ]
    if not current:
        raise LookupError(
            f"no stage `signatures` that this version has made, with its texts, is finished in {home}: run a recipe "
            "with the step `minhash`"
        )
    asked = _asked(home, texts, document)
    for made in current:
        among = signed[made.key]
        this = asked(made.inputs["documents"])
        sought = lookup.sought(this.text, among.settings)
        ask = partial(lookup.in_redis, address=redis) if redis else lookup.in_memory
        docs = ask(among, sought.signature, told=partial(told, among.name))
        likes = lookup.alike(among, sought, docs, threshold)
        others = [like for like in likes if like.id != this.id]
        decided = _decided(made, there)
        yield Looked(
            stage=among.name,
            settings=among.settings,
            threshold=threshold,
            asked=this,
            fate=() if this.shard is None else _fate(decided, this.shard, this.id),
            sharing=len(docs) - (len(likes) - len(others)),
            like=len(others),
            found=tuple(_found(among, like, _fate(decided, like.shard, like.id)) for like in others[:n]),
        )


@dataclass(frozen=True)
class _Made:
    """A finished stage."""

    name: str
    folder: str
    key: str
    settings: dict
    inputs: dict[str, str]

    def is_a(self, stage: str) -> bool:
        return self.name == f"{stage}-{self.key}"

    @cached_property
    def parts(self) -> tuple[str, ...]:
        names = [name for name in files.names(self.folder) if name.startswith("part-") and name.endswith(".parquet")]
        return tuple(files.join(self.folder, name) for name in names)


def _finished(home: str) -> list[_Made]:
    found = [(name, folder, layout.manifest(folder)) for name, folder in folders(home)]
    return [_Made(name, folder, m["key"], m["settings"], m["inputs"]) for name, folder, m in found if m is not None]


def _asked(home: str, texts: dict[str, _Made], document: str) -> Callable[[str], Asked]:
    """What is asked for, by the key of the stage whose documents it is looked up among."""
    if Path(document).is_file():
        text = _read(document)
        return lambda key: Asked(_normalized(texts[key], texts, text))
    places = []
    for made in texts.values():
        for shard, part in enumerate(made.parts):
            ids = parquet.read_table(part, ["id"])["id"]
            rows = np.flatnonzero(pc.starts_with(ids, document).to_numpy())
            places += [(made.key, part, shard, row, ids[int(row)].as_py()) for row in rows]
    known = sorted({place[-1] for place in places})
    if not known:
        raise LookupError(
            f"there is no file {document}, and no document in {home} has an id that begins so; "
            "`gristmill show` prints ids"
        )
    if len(known) > 1:
        raise LookupError(
            f"{len(known)} documents have an id that begins with {document}, as {' and '.join(known[:2])}"
        )
    found = {
        key: Asked(read_rows(part, np.array([row]), ["text"])["text"][0].as_py(), known[0], shard)
        for key, part, shard, row, _ in places
    }
    # where a stage does not have the document, its text from another
    elsewhere = replace(next(iter(found.values())), shard=None)
    return lambda key: found.get(key, elsewhere)


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}): convert it first") from None


def _normalized(made: _Made, texts: dict[str, _Made], text: str) -> str:
    """The text as the extraction of a stage's documents would have left it."""
    while "normalize" not in made.settings and made.inputs.get("documents") in texts:
        made = texts[made.inputs["documents"]]
    if settings := made.settings.get("normalize"):
        [text] = Normalize.model_validate(settings).rewrite(pa.array([text], pa.large_string())).to_pylist()
    return text


def _among(made: _Made, documents: _Made, bands: int | None, rows: int | None) -> Signed:
    given = {name: value for name, value in (("bands", bands), ("rows", rows)) if value is not None}
    settings = {name: value for name, value in made.settings.items() if name in MinHash.model_fields}
    return Signed(made.name, made.parts, documents.parts, MinHash.model_validate(settings | given))


def _decided(signatures: _Made, there: list[_Made]) -> list[_Made]:
    """The stages `near_duplicates` that were made of the signatures."""
    keys = [made.key for made in _candidates(signatures, there)]
    return [made for made in there if made.is_a("near_duplicates") and made.inputs.get("candidates") in keys]


def _candidates(signatures: _Made, there: list[_Made]) -> list[_Made]:
    return [made for made in there if made.is_a("candidates") and made.inputs.get("signatures") == signatures.key]


def _fate(decided: list[_Made], shard: int, document: str) -> tuple[str, ...]:
    """A line for each stage that decided about a document."""
    told = []
    for made in decided:
        if kept := _row(layout.part(made.folder, shard), document):
            told.append(f"{made.name}: kept, cluster of {kept['cluster_size']:,}")
        elif gone := _row(layout.ledger_part(made.folder, shard), document):
            by = f"{gone['step']}.{gone['rule']}"
            of = f" for {gone['representative']}, Jaccard {gone['value']:.4f}" if gone["representative"] else ""
            told.append(f"{made.name}: dropped by {by}{of}")
    return tuple(told)


def _row(part: str, document: str) -> dict | None:
    table = parquet.read_table(part)
    return next(iter(table.filter(pc.equal(table["id"], document)).to_pylist()), None)


def _found(among: Signed, like: Like, fate: tuple[str, ...]) -> Found:
    columns = ["source", "url", "text"]
    [row] = read_rows(among.documents[like.shard], np.array([like.at]), columns).to_pylist()
    return Found(like.id, like.jaccard, row["source"], row["url"], fate, row["text"])


def readable(looked: Looked) -> Iterator[Text]:
    """What was found, for a reader, each with the first passage in which it differs."""
    settings, least = looked.settings, looked.threshold
    caught = [s_curve(settings.bands, settings.rows, jaccard) for jaccard in (least, 0.8)]
    told = [
        f"== {looked.stage}",
        *(f"the document itself: {fate}" for fate in looked.fate),
        f"others that share one of {settings.bands} bands of {settings.rows} rows with it: {looked.sharing:,} (of "
        f"those at Jaccard {least:g} {caught[0]:.1%} do, of those at 0.8 {caught[1]:.1%})",
        f"with a Jaccard similarity of {least:g} or more, by shingles of {settings.shingle} {settings.unit}: "
        f"{looked.like:,}",
    ]
    yield Text("\n".join(told) + "\n")
    for found in looked.found:
        lines = [f"{found.jaccard:.4f}  {found.id}  {found.source}", found.url, *found.fate]
        text = Text("\n".join(line for line in lines if line) + "\n")
        yield text.append(difference(looked.asked.text, found.text))


def difference(this: str, other: str) -> Text:
    """The first passage in which two texts differ by words, of both; what differs in ⟦brackets⟧."""
    ours, theirs = this.split(), other.split()
    same = next(
        (at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    if same == len(ours) == len(theirs):
        return Text("no word differs\n")
    first = max(same - _BEFORE, 0)
    ours, theirs = ours[first : same + _AHEAD], theirs[first : same + _AHEAD]
    changes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    told = Text()
    for name, words, low in (("this ", ours, 1), ("other", theirs, 3)):
        told.append(f"  {name} {' ...' if first else ''}")
        for change in changes:
            begin, end = change[low : low + 2]
            passage = " ".join(words[begin : min(end, _SHOWN)])
            if begin < _SHOWN:
                told.append(" ")
                told.append(*((passage,) if change[0] == "equal" else (f"⟦{passage}⟧", "bold red")))
        told.append(" ...\n" if len(words) > _SHOWN else "\n")
    return told
