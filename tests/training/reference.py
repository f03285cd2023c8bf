"""Training restated from the papers: one process, float64, every formula written out, nothing of the product.

RMSNorm (Zhang, Sennrich 2019), rotary positions as complex factors (Su et al. 2021) on the pairs that Llama's layout on
the Hub has (i, i + d/2), grouped queries (Ainslie et al. 2023), QK-norm ahead of the rotation (Qwen3), SwiGLU (Shazeer
2020), logit softcap (Gemma 2), z-loss (PaLM), clipping by the global norm (Pascanu et al. 2013), AdamW (Loshchilov,
Hutter 2019), Muon (Jordan et al. 2024) with the factor 0.2 sqrt(longer side) (Liu et al. 2025, arXiv 2502.16982).

The block nanochat is that of `modeling_nanochat.py` in transformers (Karpathy 2025): no norm has gains, one more is
behind the embedding, positions turn the other way, QK-norm follows the rotation, and the feed-forward network is
squared ReLU between two matrices (Primer, So et al. 2021).

Weights carry the names of `LlamaForCausalLM` or `NanoChatForCausalLM`. `m` and `t` are settings of the model and of
training, as dicts.
"""

import math

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
IN_BLOCKS = ("proj.weight", "fc1.weight", "fc2.weight")  # how names of the blocks' matrices end


def rms_norm(x, weight, eps):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def rotated(x, theta, sign):
    """x: (positions, d). The pair (i, i + d/2) is a complex number, turned by sign * position * theta^(-2i/d)."""
    positions, d = x.shape
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * theta ** (
        -2 * torch.arange(d // 2, dtype=torch.float64) / d
    )
    turned = torch.complex(x[:, : d // 2], x[:, d // 2 :]) * torch.polar(torch.ones_like(angle), sign * angle)
    return torch.cat([turned.real, turned.imag], -1)


def visible(tokens, end_of_text, document_mask):
    """(query, key): whether it is seen. A document begins with the end-of-text token ahead of it."""
    n = len(tokens)
    document, number = [], 0
    for token in tokens:
        number += token == end_of_text
        document.append(number)
    return torch.tensor(
        [[k <= q and (not document_mask or document[k] == document[q]) for k in range(n)] for q in range(n)]
    )


def hidden(weights, tokens, seen, m):
    """(positions, dim) of one sequence."""
    nanochat = m["block"] == "nanochat"

    def norm(x, name=None):
        """`name`: of the gains, which nanochat has not."""
        return rms_norm(x, 1 if nanochat else weights[f"model.{name}.weight"], m["norm_eps"])

    def turned(x):
        return rotated(x, m["rope_theta"], -1 if nanochat else 1)

    x = weights[EMBEDDING][tokens]
    if nanochat:
        x = norm(x)
    heads, groups = m["heads"], m["kv_heads"] or m["heads"]
    d = m["dim"] // heads
    for layer in range(m["layers"]):

        def w(name, layer=layer):
            return weights[f"model.layers.{layer}.{name}.weight"]

        h = norm(x, f"layers.{layer}.input_layernorm")
        mixed = []
        for head in range(heads):
            group = head // (heads // groups)
            q = h @ w("self_attn.q_proj")[head * d : (head + 1) * d].T
            k = h @ w("self_attn.k_proj")[group * d : (group + 1) * d].T
            v = h @ w("self_attn.v_proj")[group * d : (group + 1) * d].T
            if nanochat:
                q, k = turned(q), turned(k)
            if m["qk_norm"]:
                q = norm(q, f"layers.{layer}.self_attn.q_norm")
                k = norm(k, f"layers.{layer}.self_attn.k_norm")
            if not nanochat:
                q, k = turned(q), turned(k)
            scores = q @ k.T / math.sqrt(d)
            mixed.append(torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ v)
        x = x + torch.cat(mixed, -1) @ w("self_attn.o_proj").T
        h = norm(x, f"layers.{layer}.post_attention_layernorm")
        if nanochat:
            x = x + (h @ w("mlp.fc1").T).clamp(min=0) ** 2 @ w("mlp.fc2").T
        else:
            gate = h @ w("mlp.gate_proj").T
            x = x + (gate * torch.sigmoid(gate) * (h @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    return norm(x, "norm")


def losses(weights, batch, end_of_text, m, t):
    """The mean of the cross-entropies of all targets, and what is minimised: with the z-loss. batch: (rows,
    seq_len + 1), ~id for a token that is no target."""
    entropies, squares = [], []
    for row in batch.tolist():
        tokens = [token if token >= 0 else ~token for token in row]
        seen = visible(tokens[:-1], end_of_text, t["document_mask"])
        logits = hidden(weights, tokens[:-1], seen, m) @ weights[EMBEDDING if m["tie_embeddings"] else HEAD].T
        if m["logit_softcap"]:
            logits = m["logit_softcap"] * torch.tanh(logits / m["logit_softcap"])
        log_z = torch.log(torch.exp(logits).sum(-1))
        for place, target in enumerate(row[1:]):
            if target >= 0:
                entropies.append(log_z[place] - logits[place, target])
                squares.append(log_z[place] ** 2)
    entropy = torch.stack(entropies).mean()
    return entropy, entropy + t["z_loss"] * torch.stack(squares).mean()


def rate(step, t):
    """The learning rate of a step, counted from 1."""
    peak, last, end, warm = t["learning_rate"], t["final_ratio"], t["steps"], t["warmup_steps"]
    if step < warm:
        return peak * step / warm
    begin = warm if t["schedule"] != "wsd" else (1 - t["decay_ratio"]) * end
    done = max(0.0, (step - begin) / (end - begin))
    falls = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "wsd": 1 - math.sqrt(done)}
    return peak * (last + (1 - last) * falls[t["schedule"]])


def orthogonal(matrix):
    """Five steps of Newton-Schulz, which Jordan runs in bfloat16 on a GPU; a CPU's are in full precision."""
    a, b, c = NEWTON_SCHULZ
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class Optimizer:
    """One update after the other, by hand. Matrices of linear layers decay; embedding and norms do not. The learning
    rate of a group is a multiple of that of the blocks' matrices, in its decay too."""

    def __init__(self, weights, t):
        self.t, self.step = t, 0
        self.first = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.second = {name: torch.zeros_like(w) for name, w in weights.items()}

    def update(self, weights, gradients, peak):
        self.step += 1
        t, (b1, b2) = self.t, self.t["betas"]
        for name, g in gradients.items():
            w = weights[name]
            of_group = {EMBEDDING: t["embedding_rate"], HEAD: t["head_rate"]}
            lr = peak * (of_group.get(name, 1) if w.ndim == 2 else t["vector_rate"])
            if w.ndim == 2 and name != EMBEDDING:
                w = w * (1 - lr * t["weight_decay"])
            m = self.first[name]
            if t["optimizer"] == "muon" and name.endswith(IN_BLOCKS):
                # Jordan sums beta m + g; the mean is that times 1 - beta, which matters to the rounding alone
                beta = t["momentum"]
                m = self.first[name] = beta * m + (1 - beta) * g
                weights[name] = w - lr * 0.2 * math.sqrt(max(g.shape)) * orthogonal((1 - beta) * g + beta * m)
                continue
            m = self.first[name] = b1 * m + (1 - b1) * g
            v = self.second[name] = b2 * self.second[name] + (1 - b2) * g * g
            unbiased = torch.sqrt(v / (1 - b2**self.step)) + t["eps"]
            weights[name] = w - lr * m / (1 - b1**self.step) / unbiased


def train(weights, batches, end_of_text, m, t):
    """[(loss, gradient norm, learning rate)] of the steps, and the weights after them. `batches`: one of each step."""
    weights = {name: w.double() for name, w in weights.items()}
    optimizer, history = Optimizer(weights, t), []
    for step, batch in enumerate(batches, start=1):
        leaves = {name: w.requires_grad_() for name, w in weights.items()}
        loss, minimised = losses(leaves, batch, end_of_text, m, t)
        gradients = dict(zip(leaves, torch.autograd.grad(minimised, list(leaves.values())), strict=True))
        norm = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
        factor = 1.0 if t["clip_norm"] is None else min(1.0, t["clip_norm"] / norm)
        history.append((loss.item(), norm, rate(step, t)))
        weights = {name: w.detach() for name, w in leaves.items()}
        optimizer.update(weights, {name: g * factor for name, g in gradients.items()}, rate(step, t))
    return history, weights
