"""Personal data: what is found and what is left alone, against planted truth and cases by hand."""

import re
from base64 import urlsafe_b64encode
from collections import Counter
from random import Random

import numpy as np
import phonenumbers
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.edits import applied
from gristmill.tasks.documents.measure import Batch, measured
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.pii.identifiers import COUNTRIES
from gristmill.tasks.pii.phones import TRUNK, groupings, is_international, national_groups
from gristmill.tasks.pii.step import BY_LANGUAGE, KINDS, NATIONAL_IDS, REGIONS, Pii
from tests.planted import Plan, texts
from tests.planted.text import joined
from tests.tasks.pii.examples import MIXED, NEGATIVE, POSITIVE
from tests.tasks.pii.truth import cases

STEP = Pii()


def batch(documents: list[str]) -> Batch:
    ids = [f"{i:04}" for i in range(len(documents))]
    return Batch(pa.table({"id": ids, "text": pa.array(documents, pa.large_string())}))


def found(documents: list[str], step: Pii = STEP) -> list[list[tuple[str, str]]]:
    """(kind, text) of what is masked, document by document."""
    edits, _ = work_of(step).edit(step, batch(documents))
    spans = [[] for _ in documents]
    for d, start, stop, rule in zip(edits.document, edits.start, edits.stop, edits.rule, strict=True):
        spans[d].append((edits.rules[rule], documents[d].encode()[start:stop].decode()))
    return spans


def masked(documents: list[str], step: Pii = STEP) -> list[str]:
    given = batch(documents)
    return applied(given["text"], work_of(step).edit(step, given)[0]).to_pylist()


def test_planted_data_is_found_and_what_looks_like_it_is_not():
    plan = Plan.clean(pages=850, seed=11, min_words=60, median_words=80, personal=620, lookalike=230)
    documents, truth = [], Counter()
    for number, _, text in texts(plan):
        documents.append(joined(text.blocks))
        for span in text.planted.get("personal", ()):
            truth[number, span["kind"].replace("ipv4", "ip").replace("ipv6", "ip"), span["value"]] += 1
    claims = Counter((d, kind, value) for d, spans in enumerate(found(documents)) for kind, value in spans)
    right = truth & claims
    for kind in set(KINDS) - {"national_id"}:
        planted, claimed, hits = (sum(n for (_, k, _), n in c.items() if k == kind) for c in (truth, claims, right))
        assert planted >= 200, kind
        assert hits / planted >= 0.98, (kind, sorted(k for k in (truth - claims) if k[1] == kind)[:5])
        assert hits / claimed >= 0.95, (kind, sorted(k for k in (claims - truth) if k[1] == kind)[:5])


def of_truth() -> tuple[pa.Table, list]:
    """The texts written by hand, as documents, and what they are about."""
    truth = cases()
    columns = {"id": [f"{n:04}" for n in range(len(truth))], "language": [case.language for case in truth]}
    return pa.table(columns | {"text": pa.array([case.text for case in truth], pa.large_string())}), truth


def test_the_truth_by_hand():
    """Recall and precision of each kind, and texts of which nothing may be masked; the misses are in the truth."""
    table, truth = of_truth()
    step = Pii(national_ids=NATIONAL_IDS)
    edits, _ = work_of(step).edit(step, Batch(table))
    spans = zip(edits.document, edits.start, edits.stop, edits.rule, strict=True)
    claims = {(int(d), edits.rules[rule], int(start), int(stop)) for d, start, stop, rule in spans}
    right = {(d, case.kind, *span) for d, case in enumerate(truth) for span in case.spans}
    assert sum(bool(case.spans) for case in truth) >= 200 and sum(not case.spans for case in truth) >= 200
    for kind in KINDS:
        wanted, claimed = ({span for span in found if span[1] == kind} for found in (right, claims))
        assert len(wanted & claimed) >= 0.98 * len(wanted), (kind, sorted(wanted - claimed))
        assert len(wanted & claimed) >= 0.98 * len(claimed), (kind, sorted(claimed - wanted))


def test_numbers_of_the_documents_language_where_there_is_one():
    text = "Ruf an: 030 23125123, puis 04 67 00 12 34"
    table = pa.table({"id": ["0", "1"], "language": ["de", "fr"], "text": pa.array([text] * 2, pa.large_string())})
    spans = [Pii(), Pii(regions_by_language={}), Pii(regions_by_language={"de": ("FR",)})]
    counts = [measured(table, [step]).table["pii_phones"].to_pylist() for step in spans]
    assert counts == [[1, 1], [0, 0], [1, 0]]
    assert measured(table.drop_columns("language"), [Pii()]).table["pii_phones"].to_pylist() == [0, 0]
    written = {"ru": "Москва, 8 (495) 234-17-65", "ja": "東京 03－3581－4172", "fr": "04−67−00−12−34"}
    table = pa.table(
        {"id": list(written), "language": list(written), "text": pa.array(list(written.values()), pa.large_string())}
    )
    left = ["Москва, |||PHONE_NUMBER|||", "東京 |||PHONE_NUMBER|||", "|||PHONE_NUMBER|||"]
    assert measured(table, [Pii()]).table["text"].to_pylist() == left


def test_titles_and_urls_if_asked():
    columns = {
        "id": ["0", "1"],
        "title": ["Write to jane@planted.org", None],
        "url": ["https://planted.org/?to=jane@planted.org", "https://planted.org/"],
        "text": pa.array(["jane@planted.org", ""], pa.large_string()),
    }
    table = pa.table(columns)
    assert measured(table, [STEP]).table.select(["title", "url"]).equals(table.select(["title", "url"]))
    done = measured(table, [Pii(columns=("title", "url"))]).table
    assert done["title"].to_pylist() == ["Write to |||EMAIL_ADDRESS|||", None]
    assert done["url"].to_pylist() == ["https://planted.org/?to=|||EMAIL_ADDRESS|||", "https://planted.org/"]
    assert done["pii_spans"].to_pylist() == [1, 0] and done.schema.field("title") == table.schema.field("title")


@pytest.mark.parametrize(("text", "kind", "value"), POSITIVE, ids=lambda x: x[:24])
def test_cases_to_mask(text, kind, value):
    assert found([text]) == [[(kind, value)]]


@pytest.mark.parametrize("text", NEGATIVE)
def test_cases_to_leave(text):
    assert found([text, f"See {text} here.", f"({text})", f"a\n{text}\nb"]) == [[], [], [], []]


def test_a_token_whose_header_is_lists_in_lists_is_none():
    header = urlsafe_b64encode(b'{"alg":' + b"[" * 10_000).decode().strip("=")
    assert found([f"{header}.eyJhIjoxfQ.c2lnbmVkLWJ5LW5vYm9keQ"]) == [[]]


def test_what_dolma_and_fineweb_put_in_place_is_found_by_nobody_again():
    text = "email@example.com |||EMAIL_ADDRESS||| 22.214.171.124 |||PHONE_NUMBER||| 2125550123"
    assert found([text]) == [[]]


def test_counts_masks_and_drops_by_the_number_of_spans():
    line = "Mail {}@planted.org or call 212-555-01{:02}.\n"
    documents = ["Nothing.", line.format("a", 1) * 2 + "b@planted.org", line.format("a", 1) * 3]
    result = measured(batch(documents).table, [STEP])
    counts = result.table.select(["pii_spans", "pii_emails", "pii_phones", "pii_ips"]).to_pylist()
    assert [list(row.values()) for row in counts] == [[0, 0, 0, 0], [5, 3, 2, 0], [6, 3, 3, 0]]
    expected = "Mail |||EMAIL_ADDRESS||| or call |||PHONE_NUMBER|||.\n"
    assert result.table["text"].to_pylist() == ["Nothing.", expected * 2 + "|||EMAIL_ADDRESS|||", expected * 3]
    assert result.table["pii_characters"].to_pylist() == [len(text) for text in result.table["text"].to_pylist()]
    ((_, dropped),) = decide(result.table, [("pii", STEP.decisions())])
    assert dropped.select(["id", "rule", "value", "threshold"]).to_pylist() == [
        {"id": "0002", "rule": "spans", "value": 6.0, "threshold": 5.0}
    ]
    ((_, dropped),) = decide(result.table, [("pii", Pii(max_spans=None).decisions())])
    assert len(dropped) == 0


def test_what_is_masked_is_nowhere_in_what_is_kept_of_it():
    secrets = ["jane@planted.org", "212-555-0123", "83.12.44.99"]
    result = measured(batch([f"Write to {secrets[0]}\nor call {secrets[1]} at {secrets[2]}."]).table, [STEP])
    assert result.edits["rule"].to_pylist() == ["email", "phone", "ip"]
    assert result.edits["start"].to_pylist() == [9, 34, 50]
    kept = str(result.edits.to_pylist()) + str(result.table.to_pylist())
    assert not any(secret in kept for secret in secrets)


def test_settings():
    assert Pii(kinds=("phone", "email", "email")).measuring() == Pii(kinds=("email", "phone")).measuring()
    assert Pii(max_spans=None).measuring() == STEP.measuring()
    text = "a@planted.org, 020 7946 0123 and 020-7946-0123, or 0117 4960 123"
    assert found([text], Pii(kinds=("phone",))) == [[]]
    assert found([text], Pii(kinds=("phone",), regions=("GB", "US"))) == [
        [("phone", "020 7946 0123"), ("phone", "020-7946-0123")]
    ]
    assert masked([text], Pii(replacements={"email": "email@example.com"}))[0].startswith("email@example.com, 020 ")
    for wrong in (
        *({"regions": ("UK",)}, {"kinds": ()}, {"kinds": ("name",)}, {"max_spans": -1}),
        *(
            {"regions_by_language": {"en": ("UK",)}},
            {"regions_by_language": {"german": ("DE",)}},
            {"national_ids": ("XX",)},
            {"columns": ("text",)},
        ),
    ):
        with pytest.raises(ValidationError):
            Pii(**wrong)


def test_what_is_masked_no_longer_speaks_about_its_neighbours():
    text = "AKIAFAKEQWERTYUIOPAS(212) 555-0123, 4539578763621486, 1"
    assert found([text]) == [[("api_key", "AKIAFAKEQWERTYUIOPAS"), ("phone", "(212) 555-0123")]]
    text = "212-555-0123, 4539578763621486 jane@planted.org/83.12.44.99"
    assert len(found(masked([text]))[0]) == 0


@pytest.mark.extended
@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, min_size=1, max_size=3))
@example(["Bearer hooks083.012.044.099(212) 555-0123"])
def test_edits_are_in_order_and_masking_again_finds_nothing_more(documents):
    edits, columns = work_of(STEP).edit(STEP, batch(documents))
    assert all(edits.start < edits.stop)
    same = edits.document[1:] == edits.document[:-1]
    assert all(np.diff(edits.document) >= 0) and all(edits.stop[:-1][same] <= edits.start[1:][same])
    for d, start, stop in zip(edits.document, edits.start, edits.stop, strict=True):
        text = documents[d].encode()
        assert stop <= len(text)
        text[:start].decode(), text[start:stop].decode()
    assert sum(columns["pii_spans"].to_pylist()) == len(edits)
    assert not len(work_of(STEP).edit(STEP, batch(masked(documents)))[0])


def test_the_regions_are_those_with_a_numbering_plan():
    assert set(REGIONS) == phonenumbers.SUPPORTED_REGIONS and list(REGIONS) == sorted(REGIONS)
    with pytest.raises(ValidationError, match="XX, without a numbering plan"):
        Pii(regions=("US", "XX"))


def test_languages_and_countries_are_known():
    assert all(set(regions) <= set(REGIONS) for regions in BY_LANGUAGE.values())
    assert NATIONAL_IDS == COUNTRIES


def test_validity_and_groups_are_libphonenumbers():
    def groups_of(digits: str, region: str | None) -> tuple[str, ...]:
        try:
            number = phonenumbers.parse(digits, region)
        except phonenumbers.NumberParseException:
            return ()
        written = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
        return tuple(re.findall(r"\d+", written)) if phonenumbers.is_valid_number(number) else ()

    random = Random(5)
    for region in ("US", "GB", "DE", "FR", "IT", "JP", "CN", "RU", "BR", "AR", "MX", "IN", "AU", "HU"):
        example = phonenumbers.example_number_for_type(region, random.randrange(2))
        whole = str(example.national_number)
        usual = set(groupings((region,)).tolist())
        for _ in range(60):
            kept = random.randrange(len(whole))
            national = whole[:kept] + "".join(random.choice("0123456789") for _ in whole[kept:])
            international = f"{example.country_code}{national}"
            assert is_international(international) == bool(groups_of(f"+{international}", None)), international
            dialled = random.choice(("", "", "0", "1", "8", "06")) + national
            if dialled.startswith("00") or len(dialled) < 7:
                continue  # a number of another country, for `parse`
            groups = groups_of(dialled, region)
            assert national_groups(dialled, region) == groups, (region, dialled)
            coded = sum(len(group) << 4 * n for n, group in enumerate(groups))
            assert len(groups) < 2 or {coded, coded | TRUNK} & usual, groups
