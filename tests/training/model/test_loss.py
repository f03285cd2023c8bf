"""The loss and its gradients, whole, in pieces and compiled, against float64 written out."""

import pytest
import torch

from gristmill.training.loss import IGNORE, chunked, in_pieces, loss_sums, token_losses, token_scores

TOKENS, DIM, VOCABULARY = 37, 24, 61


def given():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(TOKENS, DIM, generator=generator)
    weight = torch.randn(VOCABULARY, DIM, generator=generator) / 4
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=generator)
    targets[::5] = IGNORE
    return x.requires_grad_(), weight.requires_grad_(), targets


def truth(softcap: float | None, z_loss: float):
    x, weight, targets = (t.detach().double() if t.is_floating_point() else t for t in given())
    x.requires_grad_(), weight.requires_grad_()
    nats = squares = torch.zeros((), dtype=torch.float64)
    for row, target in zip(x, targets.tolist(), strict=True):
        if target != IGNORE:
            logits = weight @ row
            if softcap:
                logits = softcap * torch.tanh(logits / softcap)
            total = logits.exp().sum().log()
            nats, squares = nats + total - logits[target], squares + total**2
    sums = torch.stack([nats, z_loss * squares])
    (sums.sum() / 29).backward()
    return sums.detach(), x.grad, weight.grad


@pytest.mark.parametrize("softcap, z_loss", [(None, 0.0), (None, 0.01), (2.0, 0.0), (2.0, 0.01)])
@pytest.mark.parametrize(
    "chunks, compiled", [(1, False), (4, False), pytest.param(1, True, marks=pytest.mark.slow), (50, False)]
)
def test_loss_and_gradients(softcap, z_loss, chunks, compiled):
    x, weight, targets = given()
    sums = chunked(torch.compile(loss_sums) if compiled else loss_sums, chunks)
    found = sums(x, weight, targets, softcap, z_loss)
    (found.sum() / 29).backward()
    for ours, expected in zip((found.detach(), x.grad, weight.grad), truth(softcap, z_loss), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("logits", [1, 5 * VOCABULARY, 10**6])
def test_losses_of_tokens_add_up_to_the_sum_with_its_gradients(softcap, logits):
    x, weight, targets = given()
    each = in_pieces(token_losses, logits)(x, weight, targets, softcap)
    assert each.shape == (1, TOKENS) and (each[0, targets == IGNORE] == 0).all()
    (each.sum() / 29).backward()
    sums, *gradients = truth(softcap, 0.0)
    for ours, expected in zip((each.sum(), x.grad, weight.grad), (sums[0], *gradients), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-6)
    losses, missed = in_pieces(token_scores, logits)(x, weight, targets, softcap)
    assert torch.equal(losses, each[0])
    likeliest = (x.detach() @ weight.detach().T).argmax(1)
    assert missed.tolist() == [
        t not in (IGNORE, best) for t, best in zip(targets.tolist(), likeliest.tolist(), strict=True)
    ]
