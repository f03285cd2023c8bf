"""OLMo-core: raw arrays of ids and the configuration of a composable instance source.

Source: olmo_core/data/composable/numpy_document_source.py, mixing_instance_source.py and config.py of
https://github.com/allenai/OLMo-core (3.0). Its arrays have no header. Shares and repetition it follows; then each
source's shards are given as they are. Where it takes the order, the samples are one source of seq_len + 1 tokens
each, with a mask of targets, and nothing is shuffled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from gristmill.samples.formats.export import OutFile, TokenExport, heldout_file, json_file, shard_chunks, tokenizer_file

COMPOSABLE = "olmo_core.data.composable"
CLASS = "_CLASS_"  # as olmo_core.config.Config names it


def files_of(export: TokenExport) -> Iterator[OutFile]:
    if export.ordered:
        yield from _samples(export)
    else:
        yield from _shards(export)
    yield json_file("instances.json", instances(export))
    yield json_file("loader.json", loader(export))
    yield heldout_file(export, "heldout.npy")
    yield tokenizer_file(export)


def _shards(export: TokenExport) -> Iterator[OutFile]:
    for number, source in enumerate(export.data.sources):
        tokens = export.tokens(source)
        for shard, entry in enumerate(source.shards if source.share else ()):

            def write(f: IO[bytes], shard: int = shard, tokens: Any = tokens) -> None:
                for chunk in shard_chunks(tokens, shard):
                    f.write(chunk.tobytes())

            yield OutFile(_shard(number, shard), entry.tokens * export.dtype.itemsize, write)


def _samples(export: TokenExport) -> Iterator[OutFile]:
    masked = export.data.row_length is not None
    for number, begin, end in export.cut(export.row * export.dtype.itemsize):

        def write(f: IO[bytes], begin: int = begin, end: int = end) -> None:
            for ids in export.ids(begin, end):
                f.write(ids.tobytes())

        def mask(f: IO[bytes], begin: int = begin, end: int = end) -> None:
            for rows in export.rows(begin, end):
                f.write((rows >= 0).tobytes())

        tokens = (end - begin) * export.row
        yield OutFile(f"samples/{number:05d}.npy", tokens * export.dtype.itemsize, write)
        if masked:
            yield OutFile(f"targets/{number:05d}.npy", tokens, mask)


def _shard(source: int, shard: int) -> str:
    return f"source-{source:03d}/{shard:05d}.npy"


def sequence_length(export: TokenExport) -> int:
    """OLMo-core makes labels of the tokens that it reads: a sample in order has all of its labels in one token more."""
    return export.row if export.ordered else export.source.seq_len


def instances(export: TokenExport) -> dict[str, Any]:
    """For `olmo_core.config.Config.from_dict`: an instance source. Paths are relative to the folder."""
    if export.ordered:
        count = sum(1 for _ in export.cut(export.row * export.dtype.itemsize))
        masks = [f"targets/{number:05d}.npy" for number in range(count)] if export.data.row_length else None
        return _chunks(export, [f"samples/{number:05d}.npy" for number in range(count)], "samples", masks)
    specs = []
    for number, source in enumerate(export.data.sources):
        if source.share:
            paths = [_shard(number, shard) for shard in range(len(source.shards))]
            # whole instances alone are drawn: some of a shard's last tokens fill none
            whole = sum(shard.tokens // sequence_length(export) for shard in source.shards)
            drawn = source.share * len(export.source) / max(whole, 1)
            most = math.ceil(100 * max(1.0, source.epochs, drawn)) / 100 + 0.05
            specs.append(
                {
                    CLASS: f"{COMPOSABLE}.mixing_instance_source.MixingInstanceSourceSpecConfig",
                    "source": _chunks(export, paths, source.name, None),
                    "ratio": source.share,
                    "max_repetition_factor": most,
                    "label": source.name,
                }
            )
    return {
        CLASS: f"{COMPOSABLE}.mixing_instance_source.MixingInstanceSourceConfig",
        "source_specs": specs,
        "seed": export.source.seed,
        "num_instances": len(export.source),
    }


def _tokenizer(export: TokenExport) -> dict[str, Any]:
    end = export.data.end_of_text
    return {
        CLASS: "olmo_core.data.tokenizer.TokenizerConfig",
        "vocab_size": export.data.vocab_size,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def _chunks(export: TokenExport, paths: list[str], label: str, masks: list[str] | None) -> dict[str, Any]:
    documents = {
        CLASS: f"{COMPOSABLE}.numpy_document_source.NumpyDocumentSourceConfig",
        "source_paths": paths,
        "label_mask_paths": masks,
        "tokenizer": _tokenizer(export),
        "dtype": np.dtype(export.data.dtype).name,
        "source_permutation_seed": None,  # the order of the files
        "source_group_size": -1,  # files of one source follow each other
    }
    return {
        CLASS: f"{COMPOSABLE}.concat_and_chunk_instance_source.ConcatAndChunkInstanceSourceConfig",
        "sources": [documents],
        "sequence_length": sequence_length(export),
        "label": label,
    }


def loader(export: TokenExport) -> dict[str, Any]:
    """For `olmo_core.config.Config.from_dict`: the data loader."""
    return {
        CLASS: f"{COMPOSABLE}.data_loader.ComposableDataLoaderConfig",
        "tokenizer": _tokenizer(export),
        "global_batch_size": export.source.batch * sequence_length(export),
        "seed": export.source.seed,
        "work_dir": "work",
        "shuffle": not export.ordered,
    }


def start(export: TokenExport) -> list[str]:
    lines = [
        "From this folder:",
        "",
        "    import json",
        "    from olmo_core.config import Config",
        '    source = Config.from_dict(json.load(open("instances.json"))).build("work")',
        '    loader = Config.from_dict(json.load(open("loader.json"))).build(source, dp_process_group=group)',
        "",
        f"and `Duration.steps({export.source.steps})` in the trainer's configuration.",
        "",
    ]
    if export.ordered:
        return [
            *lines,
            f"The samples are in the order of the run, {export.row:,} tokens each, and include phases, "
            "repetitions and packing. OLMo-core makes labels from the tokens that it reads, so its "
            "sequences have one token more than the model's context in the recipe.",
            *(["`targets` is False for tokens that are not trained on."] if export.data.row_length else []),
        ]
    return [
        *lines,
        "OLMo-core draws by the shares of the sources and reads a source as often as they ask for; the order within is "
        "its own.",
    ]
