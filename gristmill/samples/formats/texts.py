"""nanochat and torchtitan: documents as texts, in Parquet, since both encode texts while they train.

Source: nanochat/dataset.py and dataloader.py of https://github.com/karpathy/nanochat: files `shard_00000.parquet`,
... with a column `text`, read in the order of their names by row groups, of which each rank takes its own; the last
file is validation. torchtitan/hf_datasets/text_datasets.py of https://github.com/pytorch/torchtitan (0.3):
`datasets.load_dataset` of a folder with a column `text`.

A document is given where the sample is read in which it begins, so the shares, phases and epochs are those of the
recipe, document by document. Its text is what the tokenizer makes of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from gristmill.samples.formats.export import AT_ONCE, OutFile, TokenExport, content, tokenizer_file
from gristmill.samples.shards import PackedRows, Tokens
from gristmill.storage.tokenizer_files import TextTokenizer, load_tokenizer

FILE_TOKENS = 1 << 26  # of samples whose documents are in one file
GROUP = 256  # documents of a row group: nanochat's ranks take groups in turn
SCHEMA = pa.schema([pa.field("text", pa.string(), nullable=False)])
NANOCHAT = "base_data_climbmix"  # its DATA_DIR; `base_data` before March 2026
LOOK = 4096  # tokens that are looked through at once for the end of a document


def nanochat_files(export: TokenExport) -> Iterator[OutFile]:
    yield from _files(export, NANOCHAT, [*_train(export), _heldout(export)])
    yield content("nanochat.env", b"NANOCHAT_BASE_DIR=.\n")


def torchtitan_files(export: TokenExport) -> Iterator[OutFile]:
    """Raises ValueError for a tokenizer that is no tokenizer.json."""
    name = export.data.tokenizer.path.name
    if name != "tokenizer.json":
        raise ValueError(
            f"the tokenizer is {name}, but torchtitan reads only tokenizer.json: set `tokenizer.kind: "
            "byte_bpe`, or read the samples with gristmill.samples (docs/guides/other-trainers.md)"
        )
    yield from _files(export, "train", _train(export))
    yield from _files(export, "heldout", [_heldout(export)])
    source = export.source
    lines = [
        "--dataloader.dataset c4_test",  # its reader of a folder with a column `text`
        "--dataloader.dataset_path train",
        "--hf_assets_path .",
        f"--training.seq_len {source.seq_len}",
        f"--training.global_batch_size {source.batch}",
        f"--training.steps {source.steps}",
    ]
    yield content("torchtitan.args", "\n".join([*lines, ""]).encode())
    yield tokenizer_file(export)


def nanochat_start(export: TokenExport) -> list[str]:
    return [
        "In a checkout of nanochat, with the absolute path of this folder:",
        "",
        "    export NANOCHAT_BASE_DIR=FOLDER",
        f"    python -m scripts.base_train --max-seq-len={export.source.seq_len} "
        f"--total-batch-size={export.source.batch * export.source.seq_len} --num-iterations={export.source.steps}",
        "",
        "nanochat encodes texts with its own tokenizer (`python -m scripts.tok_train`) and cuts them into rows "
        "itself, so it gets documents, each at the position of the sample in which it begins. The last file is "
        f"validation. A checkout from before March 2026 looks for `{NANOCHAT}` under the name `base_data`.",
    ]


def torchtitan_start(export: TokenExport) -> list[str]:
    return [
        "From this folder:",
        "",
        "    torchrun ... -m torchtitan.train --module llama3 --config CONFIG $(cat torchtitan.args)",
        "",
        "torchtitan encodes texts with this tokenizer and cuts them into rows itself, so it gets documents, "
        "each at the position of the sample in which it begins. To get exactly the same samples, use "
        "gristmill.samples: docs/guides/other-trainers.md.",
    ]


def _files(export: TokenExport, folder: str, parts: list[Iterator[np.ndarray]]) -> Iterator[OutFile]:
    tokenizer = load_tokenizer(export.data.tokenizer.path)
    for number, documents in enumerate(parts):

        def write(f: IO[bytes], documents: Iterator[np.ndarray] = documents) -> None:
            with pyarrow.parquet.ParquetWriter(f, SCHEMA, compression="zstd") as out:
                texts: list[str] = []
                for ids in documents:
                    texts.append(_text(tokenizer, ids))
                    if len(texts) == GROUP:
                        out.write_table(pa.table({"text": texts}, SCHEMA))
                        texts = []
                if texts:
                    out.write_table(pa.table({"text": texts}, SCHEMA))

        yield OutFile(f"{folder}/shard_{number:05d}.parquet", None, write)


def _text(tokenizer: TextTokenizer, ids: np.ndarray) -> str:
    return tokenizer.decode(ids[:-1].tolist() if ids[-1] == tokenizer.end_of_text else ids.tolist())


def _train(export: TokenExport) -> list[Iterator[np.ndarray]]:
    each = max(1, FILE_TOKENS // export.source.seq_len)
    total = len(export.source)
    return [begun(export, begin, min(begin + each, total)) for begin in range(0, total, each)]


def _heldout(export: TokenExport) -> Iterator[np.ndarray]:
    for part in export.data.heldout:
        tokens = export.tokens(part)
        position = 0
        while position < len(tokens):
            ids = document(tokens, position, export.data.end_of_text)
            position += len(ids)
            yield ids


def begun(export: TokenExport, begin: int, end: int) -> Iterator[np.ndarray]:
    """The documents that begin in the samples [begin, end), in the order of these."""
    order, end_of_text = export.source.order, export.data.end_of_text
    for first in range(begin, end, AT_ONCE):
        for source, _, window in order.windows_of(range(first, min(first + AT_ONCE, end))):
            read, tokens = order.read[source], order.tokens[source]
            if isinstance(read, PackedRows):
                starts = [start for _, start, _, before in read.pieces(window) if before == end_of_text]
            else:
                window_start = window * read.seq_len
                stop = window_start + read.seq_len
                before = tokens.read(max(window_start - 1, 0), stop - 1)
                starts = (np.flatnonzero(before == end_of_text) + max(window_start - 1, 0) + 1).tolist()
                starts = [0, *starts] if window_start == 0 else starts
            for start in starts:
                yield document(tokens, start, end_of_text)


def document(tokens: Tokens, start: int, end_of_text: int) -> np.ndarray:
    """The tokens of a source from `start` to the end of that text."""
    pieces, position = [], start
    while position < len(tokens):
        piece = tokens.read(position, min(position + LOOK, len(tokens)))
        ends = np.flatnonzero(piece == end_of_text)
        pieces.append(piece[: ends[0] + 1] if len(ends) else piece)
        if len(ends):
            break
        position += len(piece)
    return np.concatenate(pieces)
