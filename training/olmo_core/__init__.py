"""OLMo-core's model and parallel layouts under our loop (ai2-olmo-core 3.0), in an environment that has it.

    loop ──▶ model    meshes of replicas, shards, tensor and context; who reads which samples; OLMo-core's Transformer,
                      parallelized by OLMo-core, in the place of our Decoder
                └──▶ names    of the same tensors in both

So batches, the objective, the optimizer, the guard, checkpoints, evaluation and records are those of every run, and a
checkpoint of one engine is one of the other. `lacks` says which settings OLMo-core has nothing for: `gristmill check`
asks it, in our own environment. `requirements.txt` beside it is what the environment needs.
"""

from pathlib import Path

REQUIREMENTS = str(Path(__file__).with_name("requirements.txt"))
