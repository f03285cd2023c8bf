"""Model, data order, parallelism, loop, checkpoints and evaluation.

Runs under torchrun and, with one process, in plain Python. Nothing is imported here, so that
`gristmill.training.config` stays light enough for a recipe and `gristmill.training.run.launch` can ask the kernel for
its death signal before torch is loaded.
"""
