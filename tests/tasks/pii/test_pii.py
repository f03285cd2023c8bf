"""Personal data: what is found and what is left alone, against planted truth, plain Python and cases by hand."""

import re
from collections import Counter

import numpy as np
import phonenumbers
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.documents.batch import Batch
from tasks.documents.decisions import decide
from tasks.documents.edits import applied
from tasks.documents.measure import measured
from tasks.documents.step import work_of
from tasks.kernels.buffers import utf8
from tasks.pii.candidates import ACCOUNT, HEXTETS, KEY, MAILBOX, NUMBER, QUAD, candidates
from tasks.pii.keys import BEGINNINGS
from tasks.pii.step import KINDS, REGIONS, Pii
from tests.planted import Plan, texts
from tests.planted.text import joined

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
    for kind in KINDS:
        planted, claimed, hits = (sum(n for (_, k, _), n in c.items() if k == kind) for c in (truth, claims, right))
        assert planted >= 200, kind
        assert hits / planted >= 0.98, (kind, sorted(k for k in (truth - claims) if k[1] == kind)[:5])
        assert hits / claimed >= 0.95, (kind, sorted(k for k in (claims - truth) if k[1] == kind)[:5])


POSITIVE = [
    ("Write to jane.doe+mill@mail.planted-bread.co.uk.", "email", "jane.doe+mill@mail.planted-bread.co.uk"),
    ("(mailto:a_b@planted.de), or", "email", "a_b@planted.de"),
    ("To: Jane <jane@planted.org>", "email", "jane@planted.org"),
    ("mail me at jane@planted.org.Then", "email", "jane@planted.org"),
    ("12345678@qq.com", "email", "12345678@qq.com"),
    ("Login from 83.12.44.99, port 22", "ip", "83.12.44.99"),
    ("http://83.12.44.99:8080/", "ip", "83.12.44.99"),
    ("the server 8.12.4.9 is down", "ip", "8.12.4.9"),
    ("[2a02:8109:8a80:12::77]:443", "ip", "2a02:8109:8a80:12::77"),
    ("Tel. (212) 555-0123 or", "phone", "(212) 555-0123"),
    ("call 1-800-555-0199.", "phone", "1-800-555-0199"),
    ("212.555.0123 24 hours", "phone", "212.555.0123"),
    ("phone 212 555 0123", "phone", "212 555 0123"),
    ("Fax: 212.555-0123", "phone", "212.555-0123"),
    ("Fax: 2125550123", "phone", "2125550123"),
    ("from +44 (0)20 7946 0123,", "phone", "+44 (0)20 7946 0123"),
    ("(+49) 30 23125 123", "phone", "(+49) 30 23125 123"),
    ("+33\u00a01\u00a099\u00a000\u00a012\u00a034", "phone", "+33\u00a01\u00a099\u00a000\u00a012\u00a034"),
    ("+1 212\u2013555\u20130123", "phone", "+1 212\u2013555\u20130123"),
    ("IBAN DE89 3704 0044 0532 0130 00 BIC", "iban", "DE89 3704 0044 0532 0130 00"),
    ("GB82WEST12345698765432", "iban", "GB82WEST12345698765432"),
    ("card 4539 5787 6362 1486, thank you", "credit_card", "4539 5787 6362 1486"),
    ("card 4539578763621486", "credit_card", "4539578763621486"),
    ("key='AKIAFAKEQWERTYUIOPAS'", "api_key", "AKIAFAKEQWERTYUIOPAS"),
]


@pytest.mark.parametrize(("text", "kind", "value"), POSITIVE, ids=lambda x: x[:24])
def test_cases_to_mask(text, kind, value):
    assert found([text]) == [[(kind, value)]]


NEGATIVE = [
    # addresses of nobody, logins, copies, code, file names
    *("user@example.com", "me@localhost", "a@mill.test", "root@build-7", "git@github.com:a/b.git", "hg@planted.org"),
    *("scp f jane@planted.org:/srv", "ssh://jane@planted.org/x", "https://jane:pw@planted.org/", "@media print"),
    *("@app.route('/')", "icon@2x.zip", "react@16.0.1", "x = a@b.to(device)", "A@B.T", "%s@%s.com", "a..b@planted.org"),
    *("https://medium.com/@jane.doe", "jane@planted", "Message-ID: <abc@planted.org>", "a@b.c@planted.org"),
    *(
        "20150521101614.GA10889@planted.org",
        "52D44CC6.4050707@planted.org",
        "https://lore.kernel.org/r/CAHO5Pa3F2MjfTtf=YJ9@mail.gmail.com",
    ),
    # versions, sections, networks, times
    *("version 83.12.44.99", "Chrome/83.12.44.99", "v83.12.44.99", "4.1.2.3", "36.2.1.3. Scan", "libx-83.12.44.99"),
    *("83.12.44.99.1", "1.3.6.1.4.1.311", "83.12.44.0/24", "83.12.44.0", "10.1.2.3", "192.0.2.7", "255.255.255.0"),
    *("8.8.8.8", "083.012.044.099", "83.12.44.299", "83.12.44.99-1ubuntu", "==83.12.44.99", "83.12.44.99.example.org"),
    *(
        "std::dec::abcd",
        "2001:db8::1",
        "fe80::1",
        "12:34:56",
        "2024::",
        "20:24:11:05:12:33",
        "2a02:8109::/32",
        "2001:4860:4860::8888",
    ),
    # numbers
    *("1867-1952", "2024-01-15 10:30", "20240115103000", "978-0-306-40615-7", "0-306-40615-2", "4006381333931"),
    *("DFARS 252.227-7013", "212-555-0123-4567", "order 2125550123", "212 555 0123 212 555 0188", "1-2-3-4-5-6-7-8"),
    *("x+44207946012", "2125550123.45", "$212-555-0123", "+12345678901", "555-0123", "0x2125550123"),
    *("550e8400-e29b-41d4-a716-446655440000", "3.14159265358979", "1,212,555,0123", "1700000000", "1700000000000"),
    *(
        "4111 1111 1111 1111",
        "4539 5787 6362 1487",
        "4539-5787 63621486",
        "0.4539578763621486",
        "1, 4539578763621486",
        "rng(4539578763621486)",
        "4539578763621486, -53",
    ),
    *("DE88370400440532013000", "DE89 3704 0044 0532 0130 001", "XX89370400440532013000", "ISO 27001 2013 2017 2022"),
    # keys
    *(
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
        "sk_live_",
        "sk-learn-contrib-something-long",
        "AKIA",
        "hf_hub_download",
    ),
    "e83c5163316f89bfbde7d9ab23ca2e25604af290",
]


@pytest.mark.parametrize("text", NEGATIVE)
def test_cases_to_leave(text):
    assert found([text, f"See {text} here.", f"({text})", f"a\n{text}\nb"]) == [[], [], [], []]


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
    text = "a@planted.org, 020 7946 0123 and 020-7946-0123"
    assert found([text], Pii(kinds=("phone",))) == [[]]
    assert found([text], Pii(kinds=("phone",), regions=("GB", "US"))) == [[("phone", "020-7946-0123")]]
    assert masked([text], Pii(replacements={"email": "email@example.com"}))[0].startswith("email@example.com, 020 ")
    for wrong in ({"regions": ("UK",)}, {"kinds": ()}, {"kinds": ("name",)}, {"max_spans": -1}):
        with pytest.raises(ValidationError):
            Pii(**wrong)


def test_what_is_masked_no_longer_speaks_about_its_neighbours():
    text = "AKIAFAKEQWERTYUIOPAS(212) 555-0123, 4539578763621486, 1"
    assert found([text]) == [[("api_key", "AKIAFAKEQWERTYUIOPAS"), ("phone", "(212) 555-0123")]]
    text = "212-555-0123, 4539578763621486 jane@planted.org/83.12.44.99"
    assert len(found(masked([text]))[0]) == 0


FRAGMENTS = st.sampled_from(
    [value for _, _, value in POSITIVE]
    + NEGATIVE
    + [beginning + "x" * 20 for beginning in ("rk-", "glp", "ghq_", "pypi-")]
    + [
        "@",
        ".",
        "-",
        "+",
        "(",
        ")",
        ":",
        "::",
        "/",
        " ",
        "\n",
        "1",
        "212",
        "2001",
        "DE89",
        "AKIA",
        "tel ",
        "version ",
        "é",
    ]
)
MIXED = st.lists(st.one_of(FRAGMENTS, st.text(max_size=4)), max_size=12).map("".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, min_size=1, max_size=3))
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


SEPARATOR = re.compile(rb"[ \-./()]|\xc2\xa0|\xe2\x80[\x90-\x95]")


def numbers(text: bytes):
    """Spans of NUMBER by the words of its definition."""
    at = 0
    while word := re.compile(rb"\w+", re.ASCII).search(text, at):
        at = word.end()
        if not word[0].isdigit():
            continue
        total, groups, i = len(word[0]), 1, at
        while True:
            for _ in range(4):
                separator = SEPARATOR.match(text, i)
                i = separator.end() if separator else i
                if not separator or text[i : i + 1].isdigit():
                    break
            group = re.compile(rb"\d+(?!\w)", re.ASCII).match(text, i) if separator else None
            signed = groups == 1 and text[word.start() - 1 : word.start()] == b"+"
            if not group or (text[i - 2 : i] == b" (" and not signed):
                break
            total, groups, i = total + len(group[0]), groups + 1, group.end()
            at = i
        if total >= 7 and at - word.start() <= 64:
            yield word.start(), at, NUMBER


def reference(text: bytes) -> list[tuple[int, int, int]]:
    spans = list(numbers(text))
    for at in re.finditer(b"@", text):
        left = re.search(rb"[\w.%+-]*$", text[: at.start()], re.ASCII)[0]
        right = re.match(rb"[A-Za-z0-9.-]*", text[at.end() :])[0]
        if 1 <= len(left) <= 64 and len(right) <= 255 and b"." in right[1:]:
            spans.append((at.start() - len(left), at.end() + len(right), MAILBOX))
    first, second = (b"|".join({re.escape(b[at : at + 2]) for b in BEGINNINGS}) for at in (0, 1))
    for shape, form in (
        (QUAD, rb"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)"),
        (HEXTETS, rb"(?<![\w:])(?=[23][0-9A-Fa-f]{3}(?!\w))(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{1,45}"),
        (ACCOUNT, rb"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}"),
        (KEY, rb"(?<![\w.-])(?=(?:" + first + rb"))(?=.(?:" + second + rb"))[\w.-]{20,400}"),
    ):
        spans += [(*match.span(), shape) for match in re.finditer(form, text, re.ASCII)]
    return sorted(spans)


@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, min_size=1, max_size=3))
def test_candidates_are_those_of_plain_python(documents):
    data, offsets = utf8(pa.array(documents, pa.large_string()))
    places = candidates(data, offsets, BEGINNINGS)
    for d, text in enumerate(documents):
        mine = places.document == d
        columns = (places.start[mine] - offsets[d], places.stop[mine] - offsets[d], places.shape[mine])
        assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == reference(text.encode())


def test_more_candidates_than_there_was_room_for():
    text = "a@b.c " * 5000
    data, offsets = utf8(pa.array([text], pa.large_string()))
    places = candidates(data, offsets, BEGINNINGS)
    assert places.start.tolist() == list(range(0, len(text), 6))


def test_the_regions_are_those_with_a_numbering_plan():
    assert set(REGIONS) == phonenumbers.SUPPORTED_REGIONS and list(REGIONS) == sorted(REGIONS)
    with pytest.raises(ValidationError, match="XX, without a numbering plan"):
        Pii(regions=("US", "XX"))
