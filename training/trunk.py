"""What a training has in common with the one that it begins with: the samples, the model, the learning rates. Separate:
flows compare trainings, and no run does. Imports torch only for learning rates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import TrainingConfig

# Of the shape of a model, what may differ between trunk and branch: no weight has another size by it.
_FREE = ("seq_len", "rope_theta")
# Settings of objectives that a sample depends on.
_OBJECTIVE = ("objective", "corruption_rate", "mean_span", "fim_rate", "fim_spm_rate")


def read_digest(manifest: TrainingManifest, training: TrainingConfig, seq_len: int, samples: int) -> str:
    """SHA-256 of everything that decides the tokens of the first samples of a mixture, and of nothing else.

    Token shards and packed rows count by the digests of their contents. Shares count as far as the samples reach: not
    those of phases that begin later. Two trainings with one digest read the same tokens in the same order.
    """
    causal = training.objective == "causal"
    phases = [(round(phase.first / seq_len), phase.shares) for phase in manifest.phases]
    value = {
        "samples": samples,
        "seed": training.data_seed,
        "seq_len": seq_len,
        "row_length": manifest.row_length,
        "vocabulary": [manifest.vocab_size, manifest.dtype, manifest.end_of_text],
        "objective": "causal" if causal else [getattr(training, name) for name in _OBJECTIVE],
        "tokenizer": "" if causal else manifest.tokenizer.digest,
        "shares": [] if phases else [source.share for source in manifest.sources],
        "phases": [phase for phase in phases if phase[0] < samples],
        "sources": [
            (
                source.name,
                [(shard.tokens, shard.digest) for shard in source.shards],
                [(rows.rows, rows.digest) for rows in source.rows],
            )
            for source in manifest.sources
        ],
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def unlike_trunk(
    model: Mapping[str, Any], training: Mapping[str, Any], trunk_model: Mapping[str, Any], trunk: Mapping[str, Any]
) -> Iterator[str]:
    """Settings, as JSON, in which a branch cannot differ from its trunk, and do: the state of one would not fit the
    other. A sentence for each."""
    pairs = [(f"model.{name}", trunk_model.get(name), value) for name, value in model.items() if name not in _FREE]
    pairs.append(("training.optimizer", trunk.get("optimizer"), training["optimizer"]))
    masked = tuple(each.get("objective") == "masked" for each in (trunk, training))
    if masked[0] != masked[1]:
        pairs.append(("training.objective", trunk.get("objective"), training["objective"]))
    for name, theirs, ours in pairs:
        if theirs != ours:
            yield f"{name} is {json.dumps(ours)}, but the trunk has {json.dumps(theirs)}"


def same_rates(one: TrainingConfig, other: TrainingConfig, seq_len: int, steps: int) -> bool:
    """Whether two trainings with equal batches have the same learning rate, to the bit, in each of their first
    steps."""
    from gristmill.training.step.optimizer import learning_rate  # imports torch

    def rate(training: TrainingConfig, step: int) -> float:
        plan = training.batches(seq_len)
        done, warmup, total = (plan.first(count) * seq_len for count in (step, training.warmup_steps, training.steps))
        return learning_rate(done, total, training, warmup)

    return all(rate(one, step) == rate(other, step) for step in range(1, steps + 1))
