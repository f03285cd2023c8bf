"""The command: a synthetic crawl in a folder, as Parquet with texts or as WARC files with pages."""

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tools.harvest import archives
from tools.harvest.pages import LANGUAGES, WORDS, pages
from tools.harvest.texts import texts
from tools.harvest.texts import words as vocabulary

_BATCH = 2048  # documents that are written together
_SCHEMA = pa.schema([(name, pa.string()) for name in ("url", "date", "language")]).append(
    pa.field("text", pa.large_string())
)


def write_file(number: int, folder: str, kind: str, documents: int, files: int, seed: int, words: float) -> int:
    """Write the file with this number, unless it is there; returns its bytes. Holds a batch of documents, of a WARC
    file all of it."""
    path = Path(folder) / f"{number:06d}.{'parquet' if kind == 'parquet' else 'warc.gz'}"
    if path.exists():
        return path.stat().st_size
    first, behind = documents * number // files, documents * (number + 1) // files
    new = path.with_suffix(".tmp")
    if kind == "warc":
        new.write_bytes(archives.archive(pages(documents, first, behind, seed, words), seed))
    else:
        with pq.ParquetWriter(new, _SCHEMA, compression="zstd", compression_level=1) as out:
            for begin in range(first, behind, _BATCH):
                out.write_table(_table(documents, begin, min(begin + _BATCH, behind), seed, words))
    os.replace(new, path)
    return path.stat().st_size


def _table(documents: int, first: int, behind: int, seed: int, words: float) -> pa.Table:
    some = pages(documents, first, behind, seed, words)
    names = list(LANGUAGES)
    rows = range(behind - first)
    columns = [
        [archives.address(some, at) for at in rows],
        [archives.day(some, at) for at in rows],
        [names[language] for language in some.language.tolist()],
    ]
    return pa.table([*(pa.array(column) for column in columns), texts(some, seed)], schema=_SCHEMA)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.harvest", description=__doc__)
    parser.add_argument("kind", choices=["parquet", "warc"], help="texts with url and date, or pages as they were sent")
    parser.add_argument("folder", help="where the files go; those that are there are not written again")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0, help="another one gives other documents")
    parser.add_argument("--words", type=float, default=WORDS, help="of a document, in the median")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args(arguments)
    if not 1 <= given.files <= given.documents:
        parser.error(f"--files is {given.files}: give between 1 and --documents, {given.documents}")

    settings = {name: getattr(given, name) for name in ("kind", "documents", "files", "seed", "words")}
    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "harvest.json"
    if note.exists() and json.loads(note.read_text()) != settings:
        parser.error(f"{folder} has another crawl, {note.read_text()}: name another folder, or remove this one")
    note.write_text(json.dumps(settings))

    vocabulary()  # once, for all processes
    began, written, shown = time.monotonic(), 0, 0.0
    write = partial(write_file, folder=str(folder), **settings)
    with ProcessPoolExecutor(given.processes) as pool:
        chunk = max(1, min(100, given.files // (8 * (given.processes or 1))))
        for done, size in enumerate(pool.map(write, range(given.files), chunksize=chunk), 1):
            written += size
            passed = time.monotonic() - began
            if passed > shown + 2 or done == given.files:
                shown = passed
                print(f"{done:,} of {given.files:,} files, {written / 1e6:,.0f} MB, {written / 1e6 / passed:,.0f} MB/s")


if __name__ == "__main__":
    main(sys.argv[1:])
