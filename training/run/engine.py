"""The engine of a run: whose model it trains, and what its processes are to each other.

All else is the same: samples, objective, optimizer, guard, checkpoints, evaluation and records are those of the loop,
which sees a Decoder in either case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from gristmill.storage.tokens.training_manifest import TrainingManifest
from gristmill.training.config import RunConfig
from gristmill.training.model.decoder import Decoder
from gristmill.training.model.parallel import World, empty_sharded_model, processes, world_of


@contextmanager
def joined(run: RunConfig) -> Iterator[World]:
    """The processes of a run, as its engine lays them out. Raises ValueError where they cannot be divided so."""
    training = run.training
    if training.engine == "olmo_core":
        logging.getLogger("olmo_core").setLevel(logging.WARNING)  # it describes a model in hundreds of lines
        from gristmill.training.olmo_core.layout import olmo_world  # of an environment with OLMo-core

        world = partial(olmo_world, training=training)
    else:
        world = partial(world_of, parallel=training.parallel)
    with processes(run.timeout_seconds, world) as found:
        yield found


def empty_model(run: RunConfig, manifest: TrainingManifest, world: World) -> Decoder:
    """The model of a run, sharded, whose weights are still to be set or loaded; a collective."""
    if run.training.engine == "olmo_core":
        from gristmill.training.olmo_core.model import olmo_model

        return olmo_model(run.model, run.training, manifest.vocab_size, world)
    return empty_sharded_model(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
