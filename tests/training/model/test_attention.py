"""Masks of documents as blocks, and what selective recomputation keeps."""

from collections import Counter

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from gristmill.training.decoder import KEPT, Block, document_blocks, document_mask, rotary
from gristmill.training.layout.context import UNDIVIDED
from gristmill.training.model_config import ModelConfig

SIDE = 128  # of a block of flex attention
AFTER = {"none": 0, "selective": 0, "full": 1}  # forward passes behind the first


@pytest.mark.extended
def test_blocks_are_those_of_the_dense_mask_and_compiled_once():
    make = torch.compile(create_block_mask, backend="eager")
    graphs = []
    for seed in range(3):
        tokens = torch.randint(0, 90, (2, 3 * SIDE), generator=torch.Generator().manual_seed(seed))
        dense = document_mask(tokens, 0)
        assert isinstance(dense, torch.Tensor) and (tokens == 0).any()
        blocks = document_blocks(tokens, 0, make)
        graphs.append(counters["stats"]["unique_graphs"])
        length = tokens.shape[1]
        assert torch.equal(create_mask(blocks.mask_mod, 2, None, length, length, "cpu"), dense)
        some = dense.unflatten(3, (3, SIDE)).any(4).unflatten(2, (3, SIDE)).any(3)
        assert torch.equal(blocks.to_dense().bool(), some)
    assert len(set(graphs)) == 1, "the second batch was compiled again"


class Counted(TorchDispatchMode):
    """How often each operation ran."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations[str(function)] += 1
        return function(*args, **(kwargs or {}))


def test_what_is_kept():
    """Products, also in fp8, and attention of every kind."""
    assert {str(operation) for operation in KEPT} == {
        *("aten.mm.default", "aten._scaled_mm.default", "flex_attention"),
        *(f"aten._scaled_dot_product_{kind}_attention.default" for kind in ("flash", "efficient", "cudnn")),
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
    }


@pytest.mark.parametrize("recompute", AFTER)
def test_products_and_attention_are_not_computed_again(recompute):
    config = ModelConfig(dim=32, layers=1, heads=4, seq_len=16)
    block = Block(config, True, UNDIVIDED)
    block.recompute = recompute
    x = torch.randn(2, 16, 32, requires_grad=True)
    found = block(x, *rotary(16, config.head_dim, 1e4, x.device), None)
    with Counted() as behind:
        found.sum().backward()
    # seven gradients of inputs, seven of weights; the output of the last product is not wanted again
    assert behind.operations["aten.mm.default"] == 14 + 6 * AFTER[recompute]
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert behind.operations[attention] == AFTER[recompute]


class InFp8(torch.autograd.Function):
    """A product whose second factor is constant."""

    @staticmethod
    def forward(context, a, b):
        one = torch.ones(())
        eighths = (matrix.to(torch.float8_e4m3fn) for matrix in (a, b))
        context.save_for_backward(b)
        return torch._scaled_mm(*eighths, scale_a=one, scale_b=one, out_dtype=torch.float32)

    @staticmethod
    def backward(context, gradient):
        (b,) = context.saved_tensors
        return gradient @ b.T, None


@pytest.mark.parametrize("kept, again", [(list(KEPT), 0), ([torch.ops.aten.mm.default], 1)])
def test_products_in_fp8_are_not_computed_again(kept, again):
    a, b = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16).T.contiguous().T
    found = checkpoint(
        lambda given: InFp8.apply(given.exp(), b).square(),
        a,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(kept),
    )
    with Counted() as behind:
        found.sum().backward()
    assert behind.operations["aten._scaled_mm.default"] == again
