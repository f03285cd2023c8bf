"""nanoGPT: `train.bin` and `val.bin`, raw uint16 ids, and a file of settings.

Source: https://github.com/karpathy/nanoGPT, data/openwebtext/prepare.py and `get_batch` of train.py, which reads
windows at random places of one file. So it gets the samples in their order, seq_len + 1 tokens each: then the file
has the shares of the mixture. `meta.pkl` is where train.py looks for the size of the vocabulary.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import IO

from gristmill.samples.formats.export import OutFile, TokenExport, content, heldout_file, tokenizer_file

IN_ORDER = """\
rows = data.reshape(-1, block_size + 1)  # instead of ix, x and y in get_batch of train.py
at = iter_num * gradient_accumulation_steps * batch_size + micro_step * batch_size
x = torch.from_numpy(rows[at : at + batch_size, :-1].astype(np.int64))
y = torch.from_numpy(rows[at : at + batch_size, 1:].astype(np.int64))"""


def files_of(export: TokenExport) -> Iterator[OutFile]:
    """Raises ValueError for a vocabulary whose ids are no uint16."""
    if export.dtype.str != "<u2":
        raise ValueError(
            f"the vocabulary has {export.data.vocab_size:,} tokens, but nanoGPT reads only uint16 ids: "
            "export for another trainer, or set tokenizer.vocab_size to at most 65536"
        )

    def write(f: IO[bytes]) -> None:
        for ids in export.ids():
            f.write(ids.tobytes())

    source = export.source
    yield OutFile("train.bin", len(source) * export.row * 2, write)
    yield heldout_file(export, "val.bin")
    yield content("meta.pkl", pickle.dumps({"vocab_size": export.data.vocab_size}, protocol=4))
    settings = [
        f"# {export.name}: the settings that nanoGPT supports; choose the model and its optimizer yourself",
        'dataset = "gristmill"',
        f"block_size = {source.seq_len}",
        f"batch_size = {source.batch}",
        "gradient_accumulation_steps = 1",
        f"max_iters = {source.steps}",
        f"lr_decay_iters = {source.steps}",
    ]
    yield content("train_gristmill.py", "\n".join([*settings, ""]).encode())
    yield tokenizer_file(export)


def start(export: TokenExport) -> list[str]:
    return [
        "In a checkout of nanoGPT, with this folder as `data/gristmill`:",
        "",
        "    python train.py data/gristmill/train_gristmill.py",
        "",
        f"nanoGPT reads windows at random positions of `train.bin`, which has the samples of the run, {export.row:,} "
        "tokens each, in order, so their shares match the mixture. To read them in order too, on one process:",
        "",
        *(f"    {line}" for line in IN_ORDER.splitlines()),
    ]
