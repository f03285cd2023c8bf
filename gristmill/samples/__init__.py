"""The samples that a training reads, for any trainer: token ids, targets, documents, and where each token is from.

    from gristmill.samples import SampleSource

    samples = SampleSource(".gristmill/stages/mixture-KEY/mixture.json", seq_len=2048, batch=256, seed=0)
    samples[0].input_ids    # of the first sequence of the first batch; the i-th is read at step i // batch
    len(samples)            # those of the whole run

They are those of Gristmill's own training, by the same code: shares, phases, epochs and packing, for any number of
processes. Rank r of n takes the samples r, r + n, ... of each batch. Needs only numpy and xxhash, so it runs beside
any trainer: `pip install --no-deps gristmill && pip install numpy xxhash`. A store's address needs Gristmill's other
libraries.

    samples ─▶ torch_dataset          batches of tensors: torch, torchtitan, nanochat, litgpt
            ─▶ itself                 Grain: a data source is what has a length and items
            ─▶ olmo_core              an InstanceSource and its collator

docs/guides/other-trainers.md has the commands.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.samples.source import Sample, SampleSource, TokenPlace

__all__ = ["Sample", "SampleSource", "TokenPlace"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # here, since settings import `gristmill.samples.batch_plan`, which needs no numpy
        from gristmill.samples import source

        return getattr(source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
