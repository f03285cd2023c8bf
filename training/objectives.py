"""Samples of an objective other than the causal one: a pure function of the seed, the sample and its text.

    tokens of text ──Objective──▶ seq_len + 1 ids, of which ~id is read and no target, padded with end-of-text tokens

Span corruption, for a decoder: the remaining text with a sentinel instead of each span; then each span after its
sentinel, and a last sentinel. With sentinels A, B, C, and the targets after the bar:

    the quick brown fox jumps over      the A fox B | A quick brown B jumps over C

A text begins with what stays and ends with a span, as T5's do. Prefix LM, and UL2's mode S: the text as it is, its end
is the targets. Fill in the middle, on each document of a sample, or the part of one, with the probability fim_rate:

    PSM    <prefix> p <suffix> s <middle> m
    SPM    <prefix> <suffix> s <middle> p m

the second as in the paper's joint training (its appendix D, variant 2). Two places cut the tokens, where the paper cuts
characters; all are targets, as there; the end-of-text token stays at the end. Attention is causal but for `masked`: a
share of the tokens are targets at their own places, read as the mask token (80%), a random one (10%) or as they are
(10%).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from gristmill.samples.order import permute
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import TrainingConfig
from gristmill.training.denoisers import (
    FIM,
    MASK,
    Denoiser,
    denoisers,
    missing_tokens,
    own_tokens,
    sentinel,
    tokens_read,
)
from gristmill.training.loss import IN_PLACE

Drawn: TypeAlias = Callable[[str, int], int]  # (what for, n): a number below n


def _drawn(seed: int, sample: int, what: str, below: int) -> int:
    digest = hashlib.blake2b(f"{seed}\0objective\0{sample}\0{what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % below


class Objective:
    """Makes samples. `tokens`: of text in one; `seq_len`: of the model.

    Raises ValueError for a vocabulary without the objective's own tokens, and for packed rows.
    """

    def __init__(self, training: TrainingConfig, seq_len: int, manifest: TrainingManifest) -> None:
        if manifest.row_length is not None:
            raise ValueError(
                f"training.objective is {training.objective}, which does not read packed rows; remove "
                "`packing` from the recipe's `mixture`"
            )
        path = manifest.tokenizer.path
        names = read_tokenizer(path.read_bytes(), str(path)).names
        if wrong := missing_tokens(training, seq_len, tuple(names)):
            raise ValueError(wrong)
        self.training, self.seq_len, self.seed = training, seq_len, training.data_seed
        self.tokens = tokens_read(training, seq_len)
        self.end_of_text, self.vocab_size = manifest.end_of_text, manifest.vocab_size
        self.denoisers = denoisers(training)
        self.ids = {name: names.index(name) for name in own_tokens(training, seq_len)}

    def __call__(self, text: np.ndarray, sample: int) -> np.ndarray:
        """Ids, int64 (seq_len + 1,), of a sample's text, int64 (tokens,)."""
        drawn = partial(_drawn, self.seed, sample)
        if self.training.objective == "fill_in_the_middle":
            ids = self._rearranged(text, drawn)
        elif self.denoisers:
            denoiser = self.denoisers[drawn("denoiser", len(self.denoisers))]
            ids = self._denoised(text, denoiser, drawn)
        elif self.training.objective == "masked":
            ids = self._masked(text, sample)
        else:
            ids = _prefixed(text, 1 + drawn("prefix", len(text) - 1))
        padding = np.full(self.seq_len + 1 - len(ids), ~self.end_of_text)
        return np.concatenate([ids, padding])

    def _masked(self, text: np.ndarray, sample: int) -> np.ndarray:
        digest = hashlib.shake_256(f"{self.seed}\0masked\0{sample}".encode()).digest(12 * len(text))
        order, kinds, others = np.frombuffer(digest, "<u4").reshape(3, -1)
        count = max(round(self.training.corruption_rate * (len(text) - 1)), 1)
        chosen = np.argsort(order[:-1], kind="stable")[:count]  # the last one begins the next window
        target, kind = text[chosen], kinds[chosen] % 10
        read = np.where(kind == 8, others[chosen] % self.vocab_size, np.where(kind == 9, target, self.ids[MASK]))
        ids = ~text
        ids[chosen] = (target + 1) * IN_PLACE + read
        return ids

    def _denoised(self, text: np.ndarray, denoiser: Denoiser, drawn: Drawn) -> np.ndarray:
        corrupted, spans = denoiser.counts(len(text))
        mode = [~self.ids[denoiser.mode]] if denoiser.mode else []
        if denoiser.mean is None:
            return np.concatenate([mode, _prefixed(text, len(text) - corrupted)]).astype(np.int64)
        stays = _parts(len(text) - corrupted, spans, drawn("kept", 1 << 62))
        goes = _parts(corrupted, spans, drawn("corrupted", 1 << 62))
        read: list[np.ndarray | list[int]] = [mode]
        targets: list[np.ndarray | list[int]] = []
        position = 0
        for number, (kept_length, masked_length) in enumerate(zip(stays, goes, strict=True)):
            mark = self.ids[sentinel(number)]
            read += [~text[position : position + kept_length], [~mark]]
            targets += [[mark], text[position + kept_length : position + kept_length + masked_length]]
            position += kept_length + masked_length
        return np.concatenate([*read, *targets, [self.ids[sentinel(spans)]]]).astype(np.int64)

    def _rearranged(self, text: np.ndarray, drawn: Drawn) -> np.ndarray:
        prefix, suffix, middle = (self.ids[name] for name in FIM)
        ends = np.flatnonzero(text == self.end_of_text) + 1
        parts: list[np.ndarray | list[int]] = []
        room = self.seq_len + 1 - len(text)
        for number, piece in enumerate(np.split(text, ends)):
            ended = len(piece) and piece[-1] == self.end_of_text
            content, end = (piece[:-1], piece[-1:]) if ended else (piece, piece[:0])
            if room < len(FIM) or not len(content) or not _chance(drawn, f"{number} fim", self.training.fim_rate):
                parts.append(piece)
                continue
            room -= len(FIM)
            first, second = sorted(drawn(f"{number} {place}", len(content) + 1) for place in ("first", "second"))
            p, m, s = content[:first], content[first:second], content[second:]
            if _chance(drawn, f"{number} spm", self.training.fim_spm_rate):
                parts += [[prefix, suffix], s, [middle], p, m, end]
            else:
                parts += [[prefix], p, [suffix], s, [middle], m, end]
        return np.concatenate(parts).astype(np.int64)


def _chance(drawn: Drawn, what: str, probability: float) -> bool:
    return drawn(what, 1 << 53) < probability * (1 << 53)


def _prefixed(text: np.ndarray, prefix: int) -> np.ndarray:
    return np.concatenate([~text[:prefix], text[prefix:]])


def _parts(total: int, parts: int, key: int) -> list[int]:
    """A random one of the ways to write `total` as a sum of `parts` numbers above 0, each as likely."""
    if parts == 1:
        return [total]
    cuts = np.sort(permute(np.arange(parts - 1), total - 1, str(key).encode())) + 1
    return np.diff([0, *cuts, total]).tolist()


def objective(training: TrainingConfig, seq_len: int, manifest: TrainingManifest) -> Objective | None:
    """None for the causal one, whose samples are the windows."""
    return None if training.objective == "causal" else Objective(training, seq_len, manifest)
