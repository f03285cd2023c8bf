"""What an objective other than the causal one asks for: its denoisers, the tokens that it reads of a sample, and the
names of its own tokens. Imports neither torch nor numpy.

- span_corruption: T5 (Raffel et al. 2020, arXiv 1910.10683, section 3.1.4): spans of a mean length, and a share of the
  tokens, are replaced by sentinels, and are the targets.
- ul2: the seven denoisers of UL2 (Tay et al. 2022, arXiv 2205.05131, table 1), one a sample, each as likely; a token of
  the mode comes first.
- prefix_lm: the tokens after a random place are the targets.
- masked: BERT (Devlin et al. 2018, arXiv 1810.04805, appendix A.1), see `gristmill.training.objectives`.
- fill_in_the_middle: Bavarian et al. 2022 (arXiv 2207.14255), see `gristmill.training.objectives`.
"""

from __future__ import annotations

from typing import NamedTuple

from gristmill.training.config import TrainingConfig

FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
MASK = "<|mask|>"
FIM_TOKENS = 128  # of a sample for each document that may be rearranged, which adds len(FIM) tokens
MIN_TOKENS = 8  # tokens of a sample


class Denoiser(NamedTuple):
    """Spans of `mean` tokens that are the share `rate` of a sample; no mean: one span, the end. `mode`: the name of
    a token, or empty."""

    mean: float | None
    rate: float
    mode: str = ""

    def counts(self, tokens: int) -> tuple[int, int]:
        """(corrupted tokens, spans) of a sample of `tokens` tokens, by T5's rules: rounded, at least one of each, and
        at least one token stays before each span."""
        corrupted = min(max(round(tokens * self.rate), 1), tokens - 1)
        if self.mean is None:
            return corrupted, 1
        return corrupted, min(max(round(corrupted / self.mean), 1), corrupted, tokens - corrupted)

    def length(self, tokens: int) -> int:
        """Tokens that are read: the mode, the remaining tokens, a sentinel for each span; then each span after its
        sentinel, and a last sentinel."""
        own = 0 if self.mean is None else 2 * self.counts(tokens)[1] + 1
        return bool(self.mode) + tokens + own


R, S, X = "<|mode_r|>", "<|mode_s|>", "<|mode_x|>"
UL2 = (
    Denoiser(3, 0.15, R), Denoiser(8, 0.15, R), Denoiser(None, 0.25, S), Denoiser(3, 0.5, X), Denoiser(8, 0.5, X),
    Denoiser(64, 0.15, X), Denoiser(64, 0.5, X),
)  # fmt: skip


def denoisers(training: TrainingConfig) -> tuple[Denoiser, ...]:
    """The denoisers of the objective; none if it corrupts nothing."""
    if training.objective == "span_corruption":
        return (Denoiser(training.mean_span, training.corruption_rate),)
    return UL2 if training.objective == "ul2" else ()


def tokens_read(training: TrainingConfig, seq_len: int) -> int:
    """Tokens of text in a sample, so that what the objective makes of them has at most seq_len + 1. Raises ValueError
    where a context is too short."""
    room = seq_len + 1
    if training.objective == "fill_in_the_middle":
        room -= len(FIM) * max(1, seq_len // FIM_TOKENS)
    each = denoisers(training)
    while room >= MIN_TOKENS and any(one.length(room) > seq_len + 1 for one in each):
        room -= 1
    if room < MIN_TOKENS:
        raise ValueError(
            f"model.seq_len is {seq_len}, which has no room for {MIN_TOKENS} tokens of text with "
            f"training.objective {training.objective}; raise it"
        )
    return room


def sentinel(number: int) -> str:
    """The name that T5's vocabulary has for it."""
    return f"<extra_id_{number}>"


def own_tokens(training: TrainingConfig, seq_len: int) -> tuple[str, ...]:
    """Names of the tokens that the objective needs in the vocabulary."""
    tokens = 0 if training.objective == "causal" else tokens_read(training, seq_len)
    if training.objective == "fill_in_the_middle":
        return FIM
    if training.objective == "masked":
        return (MASK,)
    each = denoisers(training)
    if not each:
        return ()
    count = 1 + max(one.counts(tokens)[1] for one in each)
    modes = dict.fromkeys(one.mode for one in each if one.mode)
    return (*modes, *(sentinel(number) for number in range(count)))


def missing_tokens(training: TrainingConfig, seq_len: int, symbols: tuple[str, ...]) -> str:
    """A sentence where own tokens of the objective are not among the symbols of a tokenizer, else empty."""
    token_names = own_tokens(training, seq_len)
    absent = [name for name in token_names if name not in symbols]
    if not absent:
        return ""
    return (
        f"training.objective {training.objective} needs {len(token_names)} special tokens, but the tokenizer "
        f"lacks {len(absent)}, such as {absent[0]}; remove tokenizer.path, so that a tokenizer is trained "
        "with them, or use one that has them"
    )
