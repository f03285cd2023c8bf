"""The step `pii`: personal data and keys are masked, documents with much of them dropped."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator
from wrapt import lazy_import

from gristmill.tasks import kernels
from gristmill.tasks.documents.edits import Edits, applied
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, Cut, EditStep, Settings, Signal
from gristmill.tasks.models.language import CODES
from gristmill.tasks.pii.credentials import (
    BEGINNINGS,
    access_keys,
    basic,
    blocks,
    hooks,
    keys,
    named_passwords,
    of_curl,
    passwords,
    tokens,
)
from gristmill.tasks.pii.emails import emails, escaped_emails, spelled, wide_emails
from gristmill.tasks.pii.named_keys import named
from gristmill.tasks.pii.phone_words import BY_LANGUAGE, REGIONS
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES

if TYPE_CHECKING:
    from gristmill.tasks.pii import candidates, identifiers, phones
else:
    candidates = lazy_import("gristmill.tasks.pii.candidates")
    identifiers = lazy_import("gristmill.tasks.pii.identifiers")
    phones = lazy_import("gristmill.tasks.pii.phones")

Kind = Literal["email", "api_key", "iban", "credit_card", "national_id", "ip", "phone"]
# Of two that overlap, the earlier kind is masked: the one whose form leaves less to chance.
KINDS: tuple[Kind, ...] = get_args(Kind)
# The countries whose identity numbers `gristmill.tasks.pii.identifiers` knows.
NATIONAL_IDS = tuple(
    (
        "AR AU BE BG BR CA CH CL CN CZ DE DK EE ES FI FR GB GR HR IE IL IN IT JP KR LT MX NL NO PL PT RO SE TH TR US ZA"
    ).split()
)

_SOURCE = "tasks/pii"
_DOLMA = "tasks/pii; the count by which Dolma masks or drops (Soldaini et al. 2024, arXiv 2402.00159)"


class Replacements(Settings):
    """Text that replaces a match. The defaults are Dolma's, and follow Dolma's form for kinds that Dolma does not have.

    FineWeb puts `email@example.com` and `22.214.171.124` (datatrove src/datatrove/pipeline/formatters/pii.py).
    """

    email: str = Field("|||EMAIL_ADDRESS|||", description="For an e-mail address.")
    api_key: str = Field("|||API_KEY|||", description="For a key or token of a service.")
    iban: str = Field("|||IBAN|||", description="For a bank account number.")
    credit_card: str = Field("|||CREDIT_CARD|||", description="For a credit card number.")
    national_id: str = Field("|||NATIONAL_ID|||", description="For an identity number.")
    ip: str = Field("|||IP_ADDRESS|||", description="For an IP address.")
    phone: str = Field("|||PHONE_NUMBER|||", description="For a phone number.")


class Pii(EditStep):
    """Mask e-mail and IP addresses, keys, and numbers of phones, accounts, cards and identity documents. Drop documents
    with many of them.

    `tasks/pii/emails.py` and the modules next to it describe what counts as each kind. If a kind cannot be
    distinguished from text that looks like it, the text is not changed. The texts in stages made before this step are
    not changed, and neither are titles and URLs unless `columns` names them; what is masked there is not counted. A
    kind that is not searched for counts 0. `edit` holds 32 bytes for every 64 of the batch, and a tuple for each span
    that it finds.
    """

    libraries: ClassVar = ("phonenumbers", "python-stdnum")  # which carry numbering plans
    package_data: ClassVar = (PUBLIC_SUFFIXES,)

    # 2: keys that only their names tell are masked
    # 3: phone numbers of more countries are masked after words that announce them in their languages
    work_version: ClassVar[int] = 3
    step: Literal["pii"] = "pii"
    keeps_removed: ClassVar[bool] = False
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="Kinds of personal data to mask.")
    max_spans: int | None = Field(
        5, ge=0, description="Maximum number of masked spans in a document that is kept (Dolma: 5). null: no limit."
    )
    regions: tuple[str, ...] = Field(
        ("US",), description="Countries whose phone numbers are detected without a country code, as ISO 3166 codes."
    )
    regions_by_language: Mapping[str, tuple[str, ...]] = Field(
        BY_LANGUAGE,
        description="Additional countries whose phone numbers are detected, by the document's language, if "
        "a step `language` comes before this one. {} disables it.",
    )
    national_ids: tuple[str, ...] = Field(
        (),
        description="Countries whose identity numbers are detected, as ISO 3166 codes; see tasks/pii/identifiers.py.",
    )
    columns: tuple[Literal["title", "url", "canonical_url"], ...] = Field(
        (), description="Other columns to mask in the same way as the text."
    )
    replacements: Replacements = Field(Replacements(), description="Text that replaces each kind.")

    cuts: ClassVar = tuple(
        Cut(kind, (), description=f"Spans of the kind `{kind}`, if `kinds` has it.") for kind in KINDS
    )
    signals: ClassVar = (
        Signal("pii_spans", "int64", "spans", _DOLMA, description="Spans of all kinds that are masked."),
        *(
            Signal(
                f"pii_{kind}s", "int64", "spans", _SOURCE, description=f"Spans of the kind `{kind}` that are masked."
            )
            for kind in KINDS
        ),
        Signal("pii_characters", "int64", "characters", _SOURCE, description="Characters that the step leaves."),
    )
    signal_fields: ClassVar[tuple[str, ...]] = (
        *("kinds", "regions", "regions_by_language", "national_ids", "columns", "replacements"),
    )

    @field_validator("kinds", "regions", "national_ids", "columns")
    @classmethod
    def _as_a_set(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """The values sorted, each once: their order has no meaning, and must not change the stage's key."""
        return tuple(sorted(set(values)))

    @field_validator("regions")
    @classmethod
    def _known(cls, regions: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [region for region in regions if region not in REGIONS]:
            raise ValueError(
                f"has {', '.join(unknown)}, without a numbering plan in phonenumbers; give codes like US, GB, DE"
            )
        return regions

    @field_validator("regions_by_language")
    @classmethod
    def _all_known(cls, by_language: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        if unknown := sorted(by_language.keys() - set().union(*CODES.values())):
            raise ValueError(
                f"has {', '.join(unknown)}, which the step `language` does not identify; use ISO 639 codes "
                "such as en, de, zh"
            )
        return {language: cls._known(tuple(sorted(set(by_language[language])))) for language in sorted(by_language)}

    @field_validator("national_ids")
    @classmethod
    def _with_a_form(cls, countries: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [country for country in countries if country not in NATIONAL_IDS]:
            raise ValueError(f"has {', '.join(unknown)}; there are {', '.join(NATIONAL_IDS)}")
        return countries

    @property
    def considers(self) -> tuple[str, ...]:
        return ("language",) if self.regions_by_language and "phone" in self.kinds else ()

    @property
    def rewrites(self) -> tuple[str, ...]:
        return self.columns

    def decisions(self) -> list[Bound]:
        return [Bound("spans", "pii_spans", high=self.max_spans), self.not_empty()]


_BEFORE, _AFTER = 80, 48  # bytes of its surroundings by which a candidate is judged


def edit(step: Pii, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """A span for each that is masked, and how many there are of each kind; and the columns that the step rewrites."""
    languages = None
    if all(name in documents.table.column_names for name in step.considers) and step.considers:
        languages = documents["language"].to_pylist()
    rows = len(documents)
    edits = _edits(step, documents["text"], languages)
    counts = {
        f"pii_{name}s": pa.array(np.bincount(edits.document[edits.rule == number], minlength=rows))
        for number, name in enumerate(KINDS)
    }
    rewritten = {name: _mask(step, documents[name], languages) for name in step.rewrites}
    return edits, {"pii_spans": pa.array(np.bincount(edits.document, minlength=rows)), **counts, **rewritten}


def _edits(step: Pii, texts: pa.ChunkedArray, languages: list[str] | None) -> Edits:
    data, offsets = kernels.buffers.utf8(texts)
    if languages:
        of = {language: _regions(step, language) for language in set(languages)}
        regions = [of[language] for language in languages]
    else:
        regions = [_regions(step, None)] * (len(offsets) - 1)
    document, start, stop, kind = _spans(step, data, offsets, regions)
    replacements = pa.array([getattr(step.replacements, name) for name in KINDS])
    return Edits(document, start, stop, kind.astype(np.int32), KINDS, replacements.take(pa.array(kind)))


def _mask(step: Pii, column: pa.ChunkedArray, languages: list[str] | None) -> pa.Array:
    """The values of a column, masked; null where they are."""
    values = pc.fill_null(column, "")
    result = applied(values, _edits(step, values, languages)).cast(column.type)
    return pc.if_else(pc.is_null(column).combine_chunks(), pa.scalar(None, column.type), result)


def _regions(step: Pii, language: str | None) -> "phones.Regions":
    more = step.regions_by_language.get(language, ()) if language else ()
    return phones.Regions(tuple(dict.fromkeys((*more, *step.regions))), language, step.regions_by_language)


def _spans(step: Pii, data: np.ndarray, offsets: np.ndarray, regions: list["phones.Regions"]) -> np.ndarray:
    """Documents, starts and stops in them, numbers of the kinds: int64, shape (4, n), sorted, not overlapping.

    regions: of each document, those whose national phone numbers are found.
    """
    sought = {
        shape: some_judges
        for shape, judges in _judges().items()
        if (some_judges := [(k, j) for k, j in judges if k in step.kinds])
    }
    number_groupings = phones.groupings(
        tuple(sorted({region for own in {some.own for some in regions} for region in own}))
    )
    codes = candidates.CODE in sought and bool(step.national_ids)
    places = candidates.candidates(
        data, offsets, candidates.Sought(BEGINNINGS, identifiers.lengths(), number_groupings, codes)
    )
    order = np.lexsort((places.stop, places.start))
    order = order[np.isin(places.shape[order], list(sought))]
    text = data.data
    marks = b"|".join(re.escape(mark.encode()[:8]) for mark in step.replacements.model_dump().values() if mark)
    # What was left because of what follows it must be left when that is masked, too.
    mark_pattern = re.compile(rb"[\s,.:/+*=^-]{0,4}(?:" + marks + rb")") if marks else None
    adjoining = (
        candidates.MAILBOX,
        candidates.WIDE_MAILBOX,
        candidates.ESCAPED,
        candidates.NUMBER,
        candidates.FOREIGN,
    )
    spans = []
    edge = block = 0
    columns = [column[order] for column in (places.shape, places.document, places.start, places.stop)]
    begins, ends = offsets[columns[1]], offsets[columns[1] + 1]
    for shape, document, start, stop, begin, end in zip(
        *(column.tolist() for column in (*columns, begins, ends)), strict=True
    ):
        if start < block:
            continue
        if shape in adjoining and start < edge < stop:  # it is next to masked text, without a space
            start = edge
        value = bytes(text[start:stop])
        after = bytes(text[stop : min(end, stop + _AFTER)])
        if mark_pattern and mark_pattern.match(after):
            continue
        before = bytes(text[max(begin, start - _BEFORE) : start])
        if start - len(before) < edge <= start:  # masked text says nothing about the text after it
            before = b"|" + bytes(text[edge:start])
        for kind, judge in sought[shape]:
            more = {"phone": (regions[document],), "national_id": (step.national_ids,)}.get(kind, ())
            for first, last in judge(value, before, after, *more):
                spans.append((document, start - begin + first, start - begin + last, KINDS.index(kind)))
                edge = max(edge, start + last)
                if shape == candidates.BLOCK:
                    block = stop
    return np.array(_apart(sorted(spans)), np.int64).reshape(-1, 4).T


@cache
def _judges() -> dict[int, list[tuple[Kind, Callable[..., Iterable[tuple[int, int]]]]]]:
    """The kinds that may be found in a candidate, and the functions that find them, by the candidate's shape."""
    return {
        candidates.MAILBOX: [("email", emails)],
        candidates.SPELLED: [("email", spelled)],
        candidates.WIDE_MAILBOX: [("email", wide_emails)],
        candidates.ESCAPED: [("email", escaped_emails)],
        candidates.QUAD: [("ip", identifiers.ipv4)],
        candidates.HEXTETS: [("ip", identifiers.ipv6)],
        candidates.CARD: [("credit_card", identifiers.cards)],
        candidates.NUMBER: [("phone", phones.phones)],
        candidates.FOREIGN: [("phone", phones.foreign_phones)],
        candidates.ACCOUNT: [("iban", identifiers.ibans)],
        candidates.KEY: [("api_key", keys)],
        candidates.TOKEN: [("api_key", tokens)],
        candidates.SECRET: [("api_key", access_keys)],
        candidates.NAMED: [("api_key", access_keys), ("api_key", named)],
        candidates.HOOK: [("api_key", hooks)],
        candidates.BLOCK: [("api_key", blocks)],
        candidates.LOGIN: [("api_key", passwords)],
        candidates.PASSWORD: [("api_key", named_passwords), ("api_key", named)],
        candidates.CURL: [("api_key", of_curl)],
        candidates.BASIC: [("api_key", basic)],
        candidates.CODE: [("national_id", identifiers.national_ids)],
    }


def _apart(spans: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Sorted spans (document, start, stop, kind); of two that overlap the one of the lower kind, or the first."""
    kept: list[tuple[int, int, int, int]] = []
    for span in spans:
        if kept and kept[-1][0] == span[0] and span[1] < kept[-1][2]:
            if span[3] < kept[-1][3]:
                kept[-1] = span
        else:
            kept.append(span)
    return kept
