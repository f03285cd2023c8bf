"""A `SampleSource` as an instance source of OLMo-core (ai2-olmo-core 3.0), in whose environment this is imported.

    instances = OlmoInstances(source, work_dir)
    loader = ComposableDataLoaderConfig(
        tokenizer=tokenizer, global_batch_size=source.batch * source.seq_len, work_dir=work_dir, shuffle=False
    ).build(instances, collator=OlmoCollator(source, document_mask=True), dp_process_group=group)

OLMo-core makes labels of the tokens that it reads, so the last one of a sequence has none. The collator gives a batch
the labels of the samples, and the trainer takes those of a batch that has some. `shuffle` has to be False: the order
is the source's. OLMo-core's loader gives rank r the samples r, r + n, ... of a batch, as Gristmill's does, and goes
on from the batch that its state says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from olmo_core.data import DataCollator
from olmo_core.data.composable.instance_source import Instance, InstanceSource
from olmo_core.data.composable.source_abc import SourceABC

from gristmill.samples.source import SampleSource
from gristmill.samples.torch_batches import collate


class OlmoInstances(InstanceSource):
    """The inputs of the samples, seq_len tokens each; the collator has the rest."""

    def __init__(self, source: SampleSource, work_dir: str | Path) -> None:
        super().__init__(work_dir=work_dir, sequence_length=source.seq_len)
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    @property
    def fingerprint(self) -> str:
        """A run that goes on compares it with that of its checkpoint."""
        return self.source.fingerprint

    def children(self) -> Iterable[SourceABC]:
        return []

    def __getitem__(self, index: int) -> Instance:
        return {"input_ids": self.source[index].input_ids}


class OlmoCollator(DataCollator):
    """Batches with `labels`, of the samples by the numbers that the loader gives its instances, so the source is
    the loader's only one. `document_mask`: a batch also has `doc_lens`, by which OLMo-core keeps documents apart as
    `training.document_mask` does: a document begins with the end-of-text token ahead of it."""

    def __init__(self, source: SampleSource, document_mask: bool = False) -> None:
        super().__init__(pad_token_id=source.manifest.end_of_text, vocab_size=source.manifest.vocab_size)
        self.source, self.document_mask = source, document_mask

    def __call__(self, items: Sequence[Any]) -> dict[str, Any]:
        batch = super().__call__(items)
        samples = collate(self.source.__getitems__([item["index"] for item in items]))
        batch["labels"] = samples["labels"]
        if self.document_mask:
            batch["doc_lens"] = samples["document_lengths"]
            batch["max_doc_lens"] = samples["document_lengths"].amax(1).tolist()
        return batch
