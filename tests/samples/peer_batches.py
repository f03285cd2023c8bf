"""Batches as another trainer's loader gives them, in that trainer's environment: tests/samples/test_peers.py runs it.

    PYTHON peer_batches.py olmo_core MIXTURE.JSON FOLDER SEQ_LEN BATCH SEED    (also under torchrun)

Of each rank the file FOLDER/<rank>-of-<world>.npz: inputs, labels, documents (padded lengths) of batches 0 to 99, and
`resumed_*` of 50 to 99 of a loader that was begun at batch 50.
"""

import os
import pickle
import sys
from pathlib import Path

import numpy as np

from gristmill.samples import SampleSource

KIND, MANIFEST, FOLDER = sys.argv[1:4]
STEPS, RESUME = 100, 50


def arrays(batches, most):
    """Of dicts with input_ids, labels and, where there are some, padded lengths of documents."""
    batches = list(batches)
    documents = np.zeros((len(batches), len(batches[0]["input_ids"]), most), np.int64)
    for number, batch in enumerate(batches):
        lengths = np.asarray(batch["documents"])
        documents[number, :, : lengths.shape[1]] = lengths
    return {
        "inputs": np.stack([np.asarray(batch["input_ids"]) for batch in batches]),
        "labels": np.stack([np.asarray(batch["labels"]) for batch in batches]),
        "documents": documents,
    }


def olmo_core(source, rank, world, state):
    import torch.distributed as dist
    from olmo_core.data import TokenizerConfig
    from olmo_core.data.composable import ComposableDataLoaderConfig

    from gristmill.samples.olmo_core import OlmoCollator, OlmoInstances

    end, work = source.manifest.end_of_text, f"{FOLDER}/work"
    config = ComposableDataLoaderConfig(
        tokenizer=TokenizerConfig(vocab_size=source.manifest.vocab_size, eos_token_id=end, pad_token_id=end),
        global_batch_size=source.batch * source.seq_len,
        work_dir=work,
        shuffle=False,
        display_source_visualization=False,
    )
    group = dist.group.WORLD if world > 1 else None
    collator = OlmoCollator(source, document_mask=True)
    loader = config.build(OlmoInstances(source, work), collator=collator, dp_process_group=group)
    if state:
        loader.load_state_dict(state)
    loader.reshuffle(1)
    for batch in loader:
        yield {**batch, "documents": batch["doc_lens"]}, loader.state_dict()


def torchtitan(source, rank, world, state):
    """Local batches of two rows, so that a step takes several."""
    from gristmill.samples.torchtitan import SampleLoader

    config = SampleLoader.Config(manifest=MANIFEST, batch=source.batch, seed=source.seed)
    runtime = {"tokenizer": None, "seq_len": source.seq_len, "local_batch_size": 2, "snapshot_every_n_steps": 1}
    loader = config.build(dp_world_size=world, dp_rank=rank, **runtime)
    if state:
        loader.load_state_dict(state)
    inputs, labels = [], []
    for given, asked in loader:
        inputs.append(given["input"])
        labels.append(asked)
        if 2 * len(inputs) == source.batch // world:
            rows = {"input_ids": np.concatenate(inputs), "labels": np.concatenate(labels)}
            yield rows | {"documents": np.zeros((len(rows["labels"]), 1), np.int64)}, loader.state_dict()
            inputs, labels = [], []


def grain(source, rank, world, state):
    """Grain's own loader: a source is a data source of it as it is."""
    import grain.python as pygrain

    data = pygrain.MapDataset.source(source)[rank::world].map(
        lambda sample: {"input_ids": sample.input_ids, "labels": sample.labels, "lengths": sample.document_lengths}
    )
    iterator = iter(data.batch(source.batch // world, batch_fn=lambda rows: rows).to_iter_dataset())
    if state:
        iterator.set_state(state)
    for rows in iterator:
        yield _padded(rows), iterator.get_state()


def _padded(rows):
    most = max(len(row["lengths"]) for row in rows)
    documents = np.zeros((len(rows), most), np.int64)
    for number, row in enumerate(rows):
        documents[number, : len(row["lengths"])] = row["lengths"]
    return {
        "input_ids": np.stack([row["input_ids"] for row in rows]),
        "labels": np.stack([row["labels"] for row in rows]),
        "documents": documents,
    }


def main():
    import torch.distributed as dist

    world = int(os.environ.get("WORLD_SIZE", 1))
    ranks = [int(os.environ.get("RANK", 0))]
    if KIND == "olmo_core" and world > 1:
        dist.init_process_group("gloo")
    source = SampleSource(MANIFEST, *map(int, sys.argv[4:]))
    source = pickle.loads(pickle.dumps(source))
    loader = {"olmo_core": olmo_core, "torchtitan": torchtitan, "grain": grain}[KIND]
    for rank in ranks:
        whole, state = [], None
        for number, (batch, after) in enumerate(loader(source, rank, world, None)):
            whole.append(batch)
            state = after if number + 1 == RESUME else state
            if number + 1 == STEPS:
                break
        rest = []
        for _, (batch, _) in zip(range(STEPS - RESUME), loader(source, rank, world, state), strict=False):
            rest.append(batch)
        found = arrays(whole, source.seq_len)
        found |= {f"resumed_{name}": array for name, array in arrays(rest, source.seq_len).items()}
        np.savez(Path(FOLDER) / f"{rank}-of-{world}.npz", **found)


if __name__ == "__main__":
    main()
