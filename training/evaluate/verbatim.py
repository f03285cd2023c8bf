"""How far a model continues texts as they are."""

from __future__ import annotations

import numpy as np
import torch

from gristmill.training.evaluate.document_losses import TOKENS
from gristmill.training.model.decoder import Decoder


@torch.no_grad()
def verbatim(model: Decoder, texts: np.ndarray, prompt: int) -> np.ndarray:
    """How many tokens behind the prompt the model's likeliest continuation has as the text has them, before the first
    that differs: int64 (texts,).

    `texts`: token ids, int64 (texts, tokens), the first `prompt` of which are given. One pass gives what the model
    would write token by token: as long as all before are the text's, what it sees is the text. Raises ValueError for
    texts that are longer than the model's context.
    """
    seq_len = model.config.seq_len
    if texts.shape[1] - 1 > seq_len:
        raise ValueError(
            f"a prompt and its continuation are {texts.shape[1]} tokens, and the model reads {seq_len}: ask for fewer"
        )
    device = next(model.parameters()).device
    found = np.empty(len(texts), np.int64)
    rows = max(1, TOKENS // texts.shape[1])
    for begin in range(0, len(texts), rows):
        ids = torch.from_numpy(texts[begin : begin + rows]).to(device)
        written = model(ids[:, :-1])[:, prompt - 1 :].argmax(-1)
        same = written == ids[:, prompt:]
        found[begin : begin + rows] = same.int().cumprod(1).sum(1).cpu().numpy()
    return found
