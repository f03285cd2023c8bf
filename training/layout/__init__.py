"""How processes divide a model: which of them do what, and the code that each way of dividing needs.

    mesh       the processes as a grid: pipeline, replica, shard, context, tensor, from the slowest to the fastest
    tensor     each matrix over processes (torch.distributed.tensor.parallel), with a loss over parts of the vocabulary
    context    the tokens of each sequence over processes, with heads exchanged around attention
    pipeline   blocks over processes, by torch.distributed.pipelining
    limits     what a layout cannot do, in sentences for `gristmill check`; imports no torch

FSDP2 shards what remains, see `gristmill.training.world`. Parameters keep the names and shapes of the whole model in
every layout, so a checkpoint of one loads into any other.
"""
