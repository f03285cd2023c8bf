"""The step `pii`: personal data and keys are masked, documents with much of them dropped."""

import re
from typing import ClassVar, Literal, get_args

import numpy as np
import phonenumbers
import pyarrow as pa
from pydantic import Field, field_validator

from tasks.documents.edits import Edits
from tasks.documents.step import Batch, Bound, EditStep, Settings, signal
from tasks.kernels.buffers import utf8
from tasks.pii.addresses import ipv4, ipv6
from tasks.pii.candidates import ACCOUNT, HEXTETS, KEY, MAILBOX, NUMBER, QUAD, candidates
from tasks.pii.cards import cards
from tasks.pii.emails import emails
from tasks.pii.ibans import ibans
from tasks.pii.keys import BEGINNINGS, keys
from tasks.pii.phones import phones

Kind = Literal["email", "api_key", "iban", "credit_card", "ip", "phone"]
# Of two that overlap, the earlier kind is masked: the one whose form leaves less to chance.
KINDS: tuple[Kind, ...] = get_args(Kind)

_SOURCE = "tasks/pii"
_DOLMA = "tasks/pii; the count by which Dolma masks or drops (Soldaini et al. 2024, arXiv 2402.00159)"
_BEFORE, _AFTER = 80, 12  # bytes of its surroundings by which a candidate is judged


class Replacements(Settings):
    """What stands in the text instead. The defaults are Dolma's, and of the same form where Dolma has no such kind.

    FineWeb puts `email@example.com` and `22.214.171.124` (datatrove src/datatrove/pipeline/formatters/pii.py).
    """

    email: str = "|||EMAIL_ADDRESS|||"
    api_key: str = "|||API_KEY|||"
    iban: str = "|||IBAN|||"
    credit_card: str = "|||CREDIT_CARD|||"
    ip: str = "|||IP_ADDRESS|||"
    phone: str = "|||PHONE_NUMBER|||"


class Pii(EditStep):
    """Masks e-mail and IP addresses, phone, account and card numbers and keys; drops documents with many of them.

    What counts as one of them, and what does not, is said in `tasks/pii/emails.py` and its neighbours: where a kind
    cannot be told from what looks like it, the text stays as it is. Only the text is masked: the title and the
    URLs stay, and so do the texts in stages made before this step. A kind that is not looked for counts 0. `edit`
    holds 32 bytes for every 64 of the batch, and a tuple for each span that it finds.
    """

    step: Literal["pii"] = "pii"
    keeps_removed: ClassVar[bool] = False
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="what is looked for")
    max_spans: int | None = Field(
        5, ge=0, description="most spans of a document that stays (Dolma: 5); null: all stay, masked"
    )
    regions: tuple[str, ...] = Field(
        ("US",), description="whose phone numbers are found without a country code: ISO 3166 codes of countries"
    )
    replacements: Replacements = Replacements()

    signals: ClassVar[pa.Schema] = pa.schema(
        [
            signal("pii_spans", pa.int64(), "spans", _DOLMA),
            *(signal(f"pii_{kind}s", pa.int64(), "spans", _SOURCE) for kind in KINDS),
            signal("pii_characters", pa.int64(), "code points that are left", _SOURCE),
        ]
    )
    signal_fields: ClassVar[tuple[str, ...]] = ("kinds", "regions", "replacements")

    @field_validator("kinds", "regions")
    @classmethod
    def _as_a_set(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """In one order, each once: the order says nothing, and must not make another stage of the same settings."""
        return tuple(sorted(set(values)))

    @field_validator("regions")
    @classmethod
    def _known(cls, regions: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [region for region in regions if region not in phonenumbers.SUPPORTED_REGIONS]:
            raise ValueError(f"regions {unknown} have no numbering plan in phonenumbers; codes are like US, GB, DE")
        return regions

    def edit(self, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
        data, offsets = utf8(documents["text"])
        document, start, stop, kind = self._spans(data, offsets)
        texts = pa.array([getattr(self.replacements, name) for name in KINDS])
        edits = Edits(document, start, stop, kind.astype(np.int32), KINDS, texts.take(pa.array(kind)))
        rows = len(offsets) - 1
        counts = {
            f"pii_{name}s": pa.array(np.bincount(document[kind == number], minlength=rows))
            for number, name in enumerate(KINDS)
        }
        return edits, {"pii_spans": pa.array(np.bincount(document, minlength=rows)), **counts}

    def decisions(self) -> list[Bound]:
        return [Bound("spans", "pii_spans", high=self.max_spans), self.not_empty()]

    def _spans(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Documents, starts and stops in them, numbers of the kinds: int64, shape (4, n), sorted, not overlapping."""
        places = candidates(data, offsets, BEGINNINGS)
        order = np.lexsort((places.stop, places.start))
        text = memoryview(data)
        marks = b"|".join(re.escape(mark.encode()[:8]) for mark in self.replacements.model_dump().values() if mark)
        # What was left because of what follows it must be left when that is masked, too.
        masked = re.compile(rb"[\s,.:/+*=^-]{0,4}(?:" + marks + rb")") if marks else None
        spans = []
        edge = 0
        columns = [column[order] for column in (places.shape, places.document, places.start, places.stop)]
        begins, ends = offsets[columns[1]], offsets[columns[1] + 1]
        for shape, document, start, stop, begin, end in zip(
            *(column.tolist() for column in (*columns, begins, ends)), strict=True
        ):
            value = bytes(text[start:stop])
            after = bytes(text[stop : min(end, stop + _AFTER)])
            if masked and masked.match(after):
                continue
            before = bytes(text[max(begin, start - _BEFORE) : start])
            if start - len(before) < edge <= start:  # what is masked says nothing about what stands behind it
                before = b"|" + bytes(text[edge:start])
            for kind, (first, last) in self._judged(shape, value, before, after):
                spans.append((document, start - begin + first, start - begin + last, KINDS.index(kind)))
                edge = max(edge, start + last)
        return np.array(_apart(sorted(spans)), np.int64).reshape(-1, 4).T

    def _judged(self, shape: int, value: bytes, before: bytes, after: bytes) -> list[tuple[Kind, tuple[int, int]]]:
        """The kinds that stand in a candidate, with their places in it."""
        judged = []
        for kind, judge in _JUDGES[shape]:
            if kind in self.kinds:
                more = (self.regions,) if kind == "phone" else ()
                judged += [(kind, span) for span in judge(value, before, after, *more)]
        return judged


_JUDGES = {
    MAILBOX: [("email", emails)],
    QUAD: [("ip", ipv4)],
    HEXTETS: [("ip", ipv6)],
    NUMBER: [("credit_card", cards), ("phone", phones)],
    ACCOUNT: [("iban", ibans)],
    KEY: [("api_key", keys)],
}


def _apart(spans: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Sorted spans (document, start, stop, kind); of two that overlap the one of the lower kind, or the first."""
    kept = []
    for span in spans:
        if kept and kept[-1][0] == span[0] and span[1] < kept[-1][2]:
            if span[3] < kept[-1][3]:
                kept[-1] = span
        else:
            kept.append(span)
    return kept
