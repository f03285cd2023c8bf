"""One pass over a text tells how far a model would write it token by token."""

import numpy as np
import pytest
import torch

from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.sample import generate, verbatim
from gristmill.training.model_config import ModelConfig

VOCABULARY, PROMPT, CONTINUATION = 40, 5, 8


@pytest.fixture(scope="module")
def model() -> Decoder:
    torch.manual_seed(2)
    return Decoder(ModelConfig(dim=32, layers=2, heads=2, seq_len=16), VOCABULARY).eval()


def test_as_far_as_the_model_writes_it_token_by_token(model):
    draw = np.random.default_rng(1)
    texts, wanted = [], []
    for same in [*range(CONTINUATION + 1), CONTINUATION]:
        prompt = draw.integers(VOCABULARY, size=PROMPT).tolist()
        written = generate(model, prompt, CONTINUATION, temperature=0, top_k=0, seed=0)
        behind = list(written)
        if same < CONTINUATION:
            behind[same] = (behind[same] + 1) % VOCABULARY
        texts.append(prompt + behind)
        wanted.append(same)
    found = verbatim(model, np.array(texts), PROMPT)
    assert found.tolist() == wanted


def test_a_text_beyond_the_context_is_refused(model):
    assert len(verbatim(model, np.zeros((3, 17), np.int64), 5)) == 3
    with pytest.raises(ValueError, match="18 tokens, and the model reads 16"):
        verbatim(model, np.zeros((1, 18), np.int64), 5)
