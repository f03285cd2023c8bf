"""The folder that `gristmill export tokens` writes: a trainer's files, a card and digests.

    gristmill.json    which tokens in which order for which trainer; written first
    ...               the trainer's files, each of which appears when all of it is there
    README.md         the card
    SHA256SUMS        of all others, as `sha256sum --check` reads it; written last: only a folder with it is whole

A run that was stopped goes on with the file that is missing. A folder that is whole is compared with its digests, and
what differs is written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any, NamedTuple, cast

from gristmill.samples.formats import litgpt, megatron, mosaic, nanogpt, olmo_core, texts
from gristmill.samples.formats.export import OutFile, TokenExport, content
from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError


def card(export: TokenExport, trainer: str, start: Sequence[str]) -> str:
    """Markdown. `start`: what the trainer's own module says."""
    data, source = export.data, export.source
    lines = [
        f"# {export.name}: tokens for {trainer}",
        "",
        *_table(
            ("", ""),
            [
                ("recipe", export.name),
                ("stage", f"mixture-{export.key}" if export.key else "train-tokens"),
                ("tokenizer", f"{data.tokenizer.path.name}, xxh3-128 {data.tokenizer.digest}"),
                ("tokens of the vocabulary", f"{data.vocab_size:,}"),
                ("end of a text", f"{data.end_of_text}"),
                ("target tokens of the run", f"{len(source) * source.seq_len:,}"),
                ("sequences", f"{len(source):,} of {source.seq_len:,} tokens, {source.batch:,} a step"),
                ("steps", f"{source.steps:,}"),
                ("seed of the order", f"{source.seed}"),
                ("packing", "best fit" if data.row_length else "concatenation"),
            ],
        ),
        "",
        "## Sources",
        "",
        *_table(
            ("source", "share", "tokens", "times read"),
            ((one.name, f"{one.share:.4%}", f"{one.tokens:,}", f"{one.epochs:.3f}") for one in data.sources),
        ),
        "",
        *_phases(export),
        "## How to begin",
        "",
        *start,
        "",
        "`sha256sum --check SHA256SUMS` compares the files.",
        "",
        *(["## Recipe", "", "~~~yaml", *export.recipe.splitlines(), "~~~", ""] if export.recipe else []),
    ]
    return "\n".join(lines)


def _phases(export: TokenExport) -> list[str]:
    if not export.data.phases:
        return []
    names = [source.name for source in export.data.sources]
    rows = ((f"{phase.first:,}", *(f"{share:.2%}" for share in phase.shares)) for phase in export.data.phases)
    return ["## Phases", "", *_table(("from target token", *names), rows), ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines]


IDENTITY, CARD, SUMS = "gristmill.json", "README.md", "SHA256SUMS"
CHUNK = 1 << 22  # bytes


class Trainer(NamedTuple):
    """`files`: in their order, always the same bytes; `start`: how to begin, for the card."""

    files: Callable[[TokenExport], Iterator[OutFile]]
    start: Callable[[TokenExport], list[str]]


TRAINERS = {
    "olmo-core": Trainer(olmo_core.files_of, olmo_core.start),
    "torchtitan": Trainer(texts.torchtitan_files, texts.torchtitan_start),
    "megatron": Trainer(megatron.files_of, megatron.start),
    "nanogpt": Trainer(nanogpt.files_of, nanogpt.start),
    "nanochat": Trainer(texts.nanochat_files, texts.nanochat_start),
    "litgpt": Trainer(litgpt.files_of, litgpt.start),
    "mosaic": Trainer(mosaic.files_of, mosaic.start),
}


Progress = Callable[[str, int], None]


class _Hashed:
    """A file whose SHA-256 is taken while it is written; `flush`, `tell` and `closed` are for pyarrow."""

    closed = False

    def __init__(self, f: IO[bytes], progress: Callable[[int], None]) -> None:
        self.f, self.sum, self.progress = f, hashlib.sha256(), progress

    def write(self, data: bytes) -> int:
        self.sum.update(data)
        self.progress(memoryview(data).nbytes)
        return self.f.write(data)

    def flush(self) -> None:
        self.f.flush()

    def tell(self) -> int:
        return self.f.tell()


def write_export(export: TokenExport, trainer: str, to: str, progress: Progress = lambda name, size: None) -> bool:
    """Write the folder or address `to`; False where it was there already, and whole. `progress` gets the name of a
    file, and how many bytes more of it are done.

    Raises FileExistsError where the folder holds anything else; ValueError for what the trainer does not read. Holds
    a few hundred samples.
    """
    trainer_format = TRAINERS[trainer]
    trainer_files = trainer_format.files(export)
    first = next(trainer_files)  # so that what a trainer cannot read is refused before anything is written
    identity = _identity(export, trainer)
    sums = _begin(to, identity)
    card_file = content(CARD, card(export, trainer, trainer_format.start(export)).encode())
    digests: dict[str, str] = {}
    has_written = False
    for out in chain([first], trainer_files, [card_file]):
        path = files.join(to, out.name)
        digest = _digest_of(path, out, sums, progress)
        if digest is None:
            digest, has_written = _write(path, out, progress), True
        digests[out.name] = digest
    digests[IDENTITY] = hashlib.sha256(files.read_bytes(files.join(to, IDENTITY))).hexdigest()
    if sums != digests:
        lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
        files.write_bytes(files.join(to, SUMS), "".join(lines).encode())
        has_written = True
    return has_written


def _identity(export: TokenExport, trainer: str) -> dict[str, Any]:
    source = export.source
    settings = {"seq_len": source.seq_len, "batch": source.batch, "seed": source.seed, "steps": source.steps}
    return {"trainer": trainer, "mixture": source.checksum, **settings}


def _begin(to: str, identity: dict[str, Any]) -> dict[str, str]:
    """The digests of a folder that is whole, by name; none of one that is begun. Raises FileExistsError."""
    there = files.join(to, IDENTITY)
    if not files.exists(there):
        if files.names(to):
            raise FileExistsError(
                f"{to} contains files that are not an export of tokens: choose another folder, or empty it"
            )
        checked_json.write(there, identity)
        return {}
    try:
        noted = checked_json.read(there)
    except DamagedFileError:
        raise FileExistsError(f"{there} is not what was written: remove {to}, and export again") from None
    if noted != identity:
        differs = ", ".join(f"{name} {noted.get(name)}" for name in identity if noted.get(name) != identity[name])
        raise FileExistsError(f"{to} has a different export, of {differs}: choose another folder, or remove it")
    sums = files.join(to, SUMS)
    if not files.exists(sums):
        return {}
    lines = files.read_bytes(sums).decode().splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _digest_of(path: str, out: OutFile, sums: dict[str, str], progress: Progress) -> str | None:
    """SHA-256 of a file that is there, and as it should be; else None."""
    if not files.exists(path) or (out.size is not None and files.info(path)["size"] != out.size):
        return None
    digest = hashlib.sha256()
    with files.open_stream(path) as f:
        while piece := f.read(CHUNK):
            digest.update(piece)
            progress(out.name, len(piece))
    return digest.hexdigest() if sums.get(out.name, digest.hexdigest()) == digest.hexdigest() else None


def _write(path: str, out: OutFile, progress: Progress) -> str:
    with files.create(path) as f:
        hashed = _Hashed(f, lambda size: progress(out.name, size))
        out.write(cast(IO[bytes], hashed))
        if out.size is not None and f.tell() != out.size:
            raise RuntimeError(f"{path} has {f.tell():,} bytes instead of {out.size:,}")
    return hashed.sum.hexdigest()
