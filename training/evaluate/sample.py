"""Text from a model, and how far a model continues given texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.heldout import TOKENS


@torch.no_grad()
def verbatim(model: Decoder, texts: np.ndarray, prompt: int) -> np.ndarray:
    """How many tokens after the prompt are equal in the model's likeliest continuation and in the text, before the
    first that differs: int64 (texts,).

    `texts`: token ids, int64 (texts, tokens), the first `prompt` of which are given. One pass gives what the model
    would write token by token: as long as all before are the text's, what it sees is the text. Raises ValueError for
    texts that are longer than the model's context.
    """
    model.check_causal()
    seq_len = model.config.seq_len
    if texts.shape[1] - 1 > seq_len:
        raise ValueError(
            f"a prompt and its continuation are {texts.shape[1]} tokens, and the model reads {seq_len}: ask for fewer"
        )
    device = next(model.parameters()).device
    lengths = np.empty(len(texts), np.int64)
    rows = max(1, TOKENS // texts.shape[1])
    for begin in range(0, len(texts), rows):
        ids = torch.from_numpy(texts[begin : begin + rows]).to(device)
        likeliest = model(ids[:, :-1])[:, prompt - 1 :].argmax(-1)
        same = likeliest == ids[:, prompt:]
        lengths[begin : begin + rows] = same.int().cumprod(1).sum(1).cpu().numpy()
    return lengths


@torch.no_grad()
def generate(
    model: Decoder, tokens: list[int], count: int, *, temperature: float, top_k: int, seed: int, end: int = -1
) -> list[int]:
    """Continue `tokens` (at least one) by up to `count` more, stopping at the token `end`; returns only new
    ones.

    temperature 0 takes the likeliest token. top_k 0 draws from the whole vocabulary. The context is the last
    seq_len tokens, and is computed again for each token: fine for samples, slow for serving.
    """
    model.check_causal()
    generator = torch.Generator().manual_seed(seed)
    context, new = list(tokens), []
    for _ in range(count):
        logits = model(torch.tensor([context[-model.config.seq_len :]]))[0, -1].float()
        if temperature == 0:
            token = int(logits.argmax())
        else:
            if top_k:
                floor = logits.topk(min(top_k, len(logits))).values[-1]
                logits = logits.masked_fill(logits < floor, -torch.inf)
            chances = torch.softmax(logits / temperature, dim=-1)
            token = int(torch.multinomial(chances, 1, generator=generator))
        if token == end:
            break
        context.append(token)
        new.append(token)
    return new


def sample_text(
    model: Decoder,
    tokenizer: Path,
    count: int,
    *,
    prompt: str = "",
    temperature: float,
    top_k: int,
    seed: int,
) -> str:
    """Text of up to `count` tokens that the model writes after `prompt`, at the start of a document."""
    tokens = load_tokenizer(tokenizer)
    if tokens.vocab_size != model.vocab_size:
        raise ValueError(
            f"{tokenizer}: {tokens.vocab_size} tokens, but the model has "
            f"{model.vocab_size}; sample with the tokenizer that made the training shards"
        )
    # Documents end with the end-of-text token, so after one the model is at the start of the next.
    start = [tokens.end_of_text, *tokens.encode(prompt)]
    new = generate(model, start, count, temperature=temperature, top_k=top_k, seed=seed, end=tokens.end_of_text)
    return prompt + tokens.decode(new)
