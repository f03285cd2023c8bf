"""The decoder, its schedule and its optimizer against formulas written out by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder, flops_per_token, initial, parameter_count, rotary, rotate
from gristmill.training.evaluate.sample import generate
from gristmill.training.model_config import ModelConfig
from gristmill.training.step.optimizer import learning_rate, optimizers

VOCABULARY = 50
SHAPES = {
    "tied": ModelConfig(dim=32, layers=2, heads=4, seq_len=16, qk_norm=False),
    "untied, grouped": ModelConfig(
        dim=32, layers=2, heads=4, kv_heads=2, seq_len=16, tie_embeddings=False, qk_norm=False
    ),
    "normed, capped": ModelConfig(dim=32, layers=2, heads=4, seq_len=16, qk_norm=True, logit_softcap=2.0),
    "nanochat, tied": ModelConfig(block="nanochat", qk_norm=True, dim=32, layers=2, heads=4, seq_len=16),
    "nanochat, untied, grouped": ModelConfig(
        block="nanochat", qk_norm=True, dim=32, layers=2, heads=4, kv_heads=2, ffn=48, seq_len=16, tie_embeddings=False
    ),
    "nanochat, capped": ModelConfig(
        block="nanochat", qk_norm=True, dim=32, layers=2, heads=2, seq_len=16, logit_softcap=2.0
    ),
}


def decoder(config: ModelConfig, seed: int = 1, causal: bool = True) -> Decoder:
    model = Decoder(config, VOCABULARY, causal=causal)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Ten times the usual spread, and norms that are not 1, so that every part of the model shows.
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
            parameter.copy_(initial(name, parameter.shape, config, seed) * 10 + 0.1 * noise)
    return model.eval()


def naive(
    weights: dict[str, torch.Tensor], config: ModelConfig, tokens: list[int], causal: bool = True
) -> torch.Tensor:
    """Llama, or NanoChat of transformers' modeling_nanochat.py, for one sequence: a token, a head and a position at a
    time, in float64, rotations as complex numbers."""
    nanochat = config.block == "nanochat"
    w = {name: tensor.double() for name, tensor in weights.items()}
    d = config.head_dim

    def norm(x, weight=1.0):
        return x / torch.sqrt((x * x).mean() + config.norm_eps) * weight

    def turned(x, position):
        pairs = torch.complex(x[: d // 2], x[d // 2 :])
        angles = torch.tensor([position / config.rope_theta ** (2 * j / d) for j in range(d // 2)]).double()
        pairs = pairs * torch.exp((-1j if nanochat else 1j) * angles)
        return torch.cat([pairs.real, pairs.imag])

    xs = [w["embed_tokens.weight"][token] for token in tokens]
    if nanochat:
        xs = [norm(x) for x in xs]
    for layer in range(config.layers):
        p = {n.removeprefix(f"layers.{layer}."): t for n, t in w.items() if n.startswith(f"layers.{layer}.")}
        normed = [norm(x) if nanochat else norm(x, p["input_layernorm.weight"]) for x in xs]
        heads = {kind: [(p[f"self_attn.{kind}_proj.weight"] @ x).split(d) for x in normed] for kind in ("q", "k", "v")}
        for kind in ("q", "k"):
            if config.qk_norm and not nanochat:
                scale = p[f"self_attn.{kind}_norm.weight"]
                heads[kind] = [tuple(norm(x, scale) for x in some) for some in heads[kind]]
            heads[kind] = [tuple(turned(x, place) for x in some) for place, some in enumerate(heads[kind])]
            if nanochat:
                heads[kind] = [tuple(norm(x) for x in some) for some in heads[kind]]
        for here in range(len(xs)):
            out = []
            for head in range(config.heads):
                shared = head // (config.heads // config.kv_head_count)
                q = heads["q"][here][head]
                scores = [q @ heads["k"][i][shared] / math.sqrt(d) for i in range(here + 1 if causal else len(xs))]
                parts = torch.softmax(torch.stack(scores), 0)
                out.append(sum(part * heads["v"][i][shared] for i, part in enumerate(parts)))
            x = xs[here] + p["self_attn.o_proj.weight"] @ torch.cat(out)
            if nanochat:
                xs[here] = x + p["mlp.fc2.weight"] @ torch.relu(p["mlp.fc1.weight"] @ norm(x)) ** 2
                continue
            y = norm(x, p["post_attention_layernorm.weight"])
            gate = p["mlp.gate_proj.weight"] @ y
            xs[here] = x + p["mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * (p["mlp.up_proj.weight"] @ y))
    output = w.get("lm_head.weight", w["embed_tokens.weight"])
    logits = torch.stack([output @ (norm(x) if nanochat else norm(x, w["norm.weight"])) for x in xs])
    return logits if config.logit_softcap is None else config.logit_softcap * torch.tanh(logits / config.logit_softcap)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_decoder_is_llama_or_nanochat(shape, causal):
    config, model = SHAPES[shape], decoder(SHAPES[shape], causal=causal)
    tokens = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = model(tokens)
    for row, ids in zip(logits, tokens.tolist(), strict=True):
        expected = naive(dict(model.named_parameters()), config, ids, causal).detach()
        assert expected.abs().max() > 1
        torch.testing.assert_close(row.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_token_sees_the_future(shape):
    model = decoder(SHAPES[shape])
    tokens = torch.randint(0, VOCABULARY, (1, 16), generator=torch.Generator().manual_seed(3))
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % VOCABULARY
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[0, :10], after[0, :10])
    assert not torch.allclose(before[0, 10:], after[0, 10:])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_that_is_not_causal_sees_both_sides(shape):
    model = decoder(SHAPES[shape], causal=False)
    tokens = torch.randint(0, VOCABULARY, (1, 16), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)  # so that no token attends to one other alone
        before = model(tokens)
        for place in (0, 7, 15):
            changed = tokens.clone()
            changed[0, place] = (changed[0, place] + 1) % VOCABULARY
            assert ((model(changed) - before)[0].abs().amax(-1) > 1e-4).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_documents_apart_are_documents_one_by_one(shape):
    config, end = SHAPES[shape], 2
    whole = decoder(config)
    apart = Decoder(config, VOCABULARY, end)
    apart.load_state_dict(whole.state_dict())
    tokens = torch.randint(3, VOCABULARY, (3, 16), generator=torch.Generator().manual_seed(6))
    for row, places in enumerate([(0, 4, 5, 11), (7,), ()]):
        tokens[row, list(places)] = end
        with torch.no_grad():
            ours = apart(tokens[row : row + 1])[0]
            bounds = sorted({0, *places, 16})
            alone = [whole(tokens[row : row + 1, a:b])[0] for a, b in itertools.pairwise(bounds)]
        torch.testing.assert_close(ours, torch.cat(alone), rtol=1e-3, atol=1e-3)


def test_rotary_scores_depend_on_the_distance_only():
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(4))
    cos, sin = rotary(40, 8, 10_000.0, torch.device("cpu"))
    turned = [rotate(x.expand(1, 1, 40, 8), cos, sin)[0, 0] for x in (q, k)]
    scores = turned[0] @ turned[1].T
    for distance in (0, 3, 17):
        along = torch.diagonal(scores, -distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=1e-4, atol=1e-5)


def test_first_weights_follow_the_rule():
    config = ModelConfig(dim=256, layers=8, heads=4)
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in Decoder(config, 512).named_parameters()}
    for name, shape in shapes.items():
        value = initial(name, shape, config, 0)
        if "norm" in name:
            assert (value == 1).all()
            continue
        std = 0.02 / 4 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        assert abs(value.std() / std - 1) < 0.02 and abs(value.mean()) < std / 20
        assert (value == initial(name, shape, config, 0)).all()
        assert (value != initial(name, shape, config, 1)).all()
    pair = [initial(f"layers.{i}.mlp.up_proj.weight", (9, 9), config, 0) for i in range(2)]
    assert (pair[0] != pair[1]).all()


def test_counts_against_the_model_itself():
    for config in SHAPES.values():
        model = Decoder(config, VOCABULARY)
        assert parameter_count(config, VOCABULARY) == sum(p.numel() for p in model.parameters())
        # Matrix products of one sequence, counted by running it: 2 a multiply-add, thrice with the backward.
        counted = 0

        def count(module, inputs, output):
            nonlocal counted
            counted += 2 * inputs[0].shape[1] * module.weight.numel()

        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(count)
        model(torch.zeros(1, config.seq_len, dtype=torch.long))
        counted += 2 * config.seq_len * model.embed_tokens.weight.numel()  # the output, tied or not
        scores_and_values = config.layers * config.heads * 2 * 2 * config.seq_len**2 * config.head_dim
        expected = 3 * (counted + scores_and_values) / config.seq_len
        assert flops_per_token(config, VOCABULARY) == expected


@pytest.mark.parametrize("steps, warmup", [(100, 10), (50, 0), (3, 2), (1, 0)])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_schedule(steps, warmup, schedule):
    training = TrainingConfig(
        steps=steps, warmup_steps=warmup, learning_rate=0.5, final_ratio=0.1, schedule=schedule, decay_ratio=0.25
    )
    rates = [learning_rate(done * 64, steps * 64, training) for done in range(1, steps + 1)]
    np.testing.assert_allclose(rates[:warmup], [0.5 * (i + 1) / warmup for i in range(warmup)])
    begin = max(warmup, 0.75 * steps) if schedule == "wsd" else warmup
    tail = (np.arange(warmup + 1, steps + 1) - begin) / (steps - begin)
    left = {"cosine": (1 + np.cos(np.pi * tail)) / 2, "linear": 1 - tail, "wsd": 1 - np.sqrt(tail.clip(0))}[schedule]
    np.testing.assert_allclose(rates[warmup:], 0.05 + 0.45 * left, rtol=1e-12)
    assert rates[-1] == pytest.approx(0.05)
    # of tokens alone: half the batch sees the same rates, and those between
    again = [learning_rate(done * 32, steps * 64, training) for done in range(1, 2 * steps + 1)]
    assert again[1::2] == rates


def test_adamw_moves_as_its_formula_says():
    training = TrainingConfig(optimizer="adamw", learning_rate=0.01)
    model = Decoder(SHAPES["tied"], VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    optimizer = optimizers(model, training)
    w = model.layers[0].mlp.up_proj.weight
    expected, m, v = w.detach().double().clone(), 0.0, 0.0
    for t in range(1, 4):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(t))
        g = w.grad.double()
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g**2
        update = (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-8)
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * update
        for parameter in model.parameters():
            parameter.grad *= 8
        optimizer.step(0.01, torch.tensor(8.0), torch.tensor(False))
    torch.testing.assert_close(w.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_muon_makes_updates_orthogonal():
    training = TrainingConfig(optimizer="muon", learning_rate=0.01)
    model = decoder(SHAPES["tied"])
    optimizer = optimizers(model, training)
    matrices = {n: p for n, p in model.named_parameters() if n.startswith("layers.") and p.ndim == 2}
    assert {id(p) for g in optimizer.muon.param_groups for p in g["params"]} == {id(p) for p in matrices.values()}
    before = {name: p.detach().clone() for name, p in matrices.items()}
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7))
    optimizer.step(0.01, torch.tensor(1.0), torch.tensor(False))
    for name, parameter in matrices.items():
        moved = before[name] * (1 - 0.01 * 0.1) - parameter.detach()
        singular = torch.linalg.svdvals(moved / (0.01 * 0.2 * math.sqrt(max(parameter.shape))))
        # Newton-Schulz with Muon's coefficients leaves singular values near 1, by design not at it
        assert 0.5 < singular.min() and singular.max() < 1.3, name


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_skipped_update_changes_nothing(kind):
    model = decoder(SHAPES["tied"])
    optimizer = optimizers(model, TrainingConfig(optimizer=kind))

    def step(value: float, skip: bool) -> None:
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        optimizer.step(0.01, torch.tensor(1.0), torch.tensor(skip))

    step(0.5, False)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    adam = {p: {k: v.clone() for k, v in kept.items()} for p, kept in optimizer.adamw.state.items()}
    step(math.nan, True)
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    assert all(torch.equal(v, optimizer.adamw.state[p][k]) for p, kept in adam.items() for k, v in kept.items())
    step(0.5, False)
    assert all(p.isfinite().all() and not torch.equal(before[n], p) for n, p in model.named_parameters())


def test_sampling_follows_the_model():
    model = decoder(SHAPES["tied"])
    draw = {"temperature": 1.0, "top_k": 0, "seed": 0}
    assert generate(model, [1], 8, **draw) == generate(model, [1], 8, **draw)
    assert generate(model, [1], 8, **draw) != generate(model, [1], 8, **(draw | {"seed": 1}))
    greedy = generate(model, [1, 2], 20, temperature=0, top_k=0, seed=0)
    context = [1, 2]
    for token in greedy:  # past the end of the context too
        with torch.no_grad():
            assert token == int(model(torch.tensor([context[-16:]]))[0, -1].argmax())
        context.append(token)
    assert generate(model, [1, 2], 20, temperature=1.0, top_k=1, seed=5) == greedy
    assert (
        generate(model, [1, 2], 20, temperature=0, top_k=0, seed=0, end=greedy[3]) == greedy[: greedy.index(greedy[3])]
    )
    with torch.no_grad():
        chances = F.softmax(model(torch.tensor([[7]]))[0, -1] / 0.7, -1)
    likely = set(chances.topk(3).indices.tolist())
    drawn = [generate(model, [7], 1, temperature=0.7, top_k=3, seed=s)[0] for s in range(200)]
    assert set(drawn) <= likely
    best = int(chances.argmax())
    share = float(chances.max() / chances.topk(3).values.sum())
    assert abs(drawn.count(best) / 200 - share) < 0.15
