"""Personal data: what is found and what is left alone, against planted truth, plain Python and cases by hand."""

import re
from base64 import urlsafe_b64encode
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import phonenumbers
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from stdnum import luhn
from stdnum.iso7064 import mod_97_10

from tasks.documents.batch import Batch
from tasks.documents.decisions import decide
from tasks.documents.edits import applied
from tasks.documents.measure import measured
from tasks.documents.step import work_of
from tasks.kernels.buffers import utf8
from tasks.pii.candidates import (
    ACCOUNT,
    BLOCK,
    CARD,
    CODE,
    FOREIGN,
    HEXTETS,
    HOOK,
    KEY,
    LOGIN,
    MAILBOX,
    NUMBER,
    QUAD,
    SECRET,
    SPELLED,
    TOKEN,
    Sought,
    candidates,
)
from tasks.pii.digits import TRUNK
from tasks.pii.ibans import lengths
from tasks.pii.keys import BEGINNINGS
from tasks.pii.national_ids import COUNTRIES
from tasks.pii.plans import groupings, is_international, national_groups
from tasks.pii.regions import BY_LANGUAGE, REGIONS
from tasks.pii.step import KINDS, NATIONAL_IDS, Pii
from tests.planted import Plan, texts
from tests.planted.text import joined
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
        "(at)",
        " [AT] ",
        "Bearer ",
        "secret_access_key=",
        "hooks",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "://",
        '"',
        "Tel. ",
        "49",
        "00",
        "4539 5787 ",
        "0123456",
        "٠١٢٣",
        "０３",
        "－",
        "电话",
        "例子.公司",
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


SEPARATOR = re.compile(rb"[ \-./()]|\xc2\xa0|\xe2\x80[\x90-\x95]|\xe2\x88\x92|\xef\xbc[\x88\x89\x8d]")
WIDE = re.compile(SEPARATOR.pattern + rb"|\xef\xbc\x8e|\xe3\x80\x80")
GROUPINGS = groupings(("DE", "FR", "US"))
SOUGHT = Sought(BEGINNINGS, lengths(), GROUPINGS, codes=True)


def runs(text: bytes):
    """The groups of digits of each number, as (start, stop)."""
    at = 0
    while word := re.compile(rb"\w+", re.ASCII).search(text, at):
        at = word.end()
        if not word[0].isdigit():
            continue
        groups, i = [word.span()], at
        while True:
            for _ in range(4):
                separator = SEPARATOR.match(text, i)
                i = separator.end() if separator else i
                if not separator or text[i : i + 1].isdigit():
                    break
            group = re.compile(rb"\d+(?!\w)", re.ASCII).match(text, i) if separator else None
            leads = len(groups) == 1 and (text[word.start() - 1 : word.start()] == b"+" or len(word[0]) == 1)
            if not group or (text[i - 2 : i] == b" (" and not leads):
                break
            groups.append(group.span())
            at = i = group.end()
        yield groups


def is_usual(text: bytes, groups: list[tuple[int, int]]) -> bool:
    sizes = [stop - start for start, stop in groups]
    coded = sum(min(n, 15) << 4 * i for i, n in enumerate(sizes[:8]))
    zero = text[groups[0][0] : groups[0][0] + 1] == b"0"
    return sum(sizes) >= 7 and bool({coded, coded | TRUNK if zero else coded} & set(GROUPINGS.tolist()))


def may_be_phone(text: bytes, groups: list[tuple[int, int]]) -> bool:
    """Whether a number is a candidate by the words of `_numbers`."""
    first, stop = groups[0]
    number = text[first:stop]
    before = re.split(rb"[0-9]", text[max(0, first - 8) : first])[-1]
    if re.search(rb"[A-Za-z\x80-\xff]", before) or text[first - 1 : first] == b"+" or re.match(rb"00|011$", number):
        return True
    if re.match(rb"0\d", number) and any(
        sum(b - a for a, b in groups[:n]) >= 9 and is_usual(text, groups[:n]) for n in range(1, len(groups) + 1)
    ):
        return True
    pieces = [[groups[0]]]
    for last, group in pairwise(groups):
        if re.search(rb"[ \xc2]", text[last[1] : group[0]]):
            pieces.append([])
        pieces[-1].append(group)
    for piece in pieces:
        start, stop = piece[0]
        if start and text[start - 1 : start] == b"(":
            return True
        for n in range(2, len(piece) + 1):
            if n == 2 and text[piece[1][0] - 1 : piece[1][0]] == b".":
                continue
            trunk = text[start : start + 1] == b"0" and stop - start > 1 and sum(b - a for a, b in piece[:n]) >= 10
            if trunk or is_usual(text, piece[:n]):
                return True
    return False


def cards(text: bytes, groups: list[tuple[int, int]]):
    last = 0
    for start, _ in groups:
        if start < last:
            continue
        for form in (
            rb"\d{13,19}",
            rb"(\d{4})([ -])\d{4}\2\d{4}\2\d{4}",
            rb"(\d{4})([ -])\d{4}\2\d{4}\2\d{4}\2\d{1,3}",
            rb"(\d{4})([ -])\d{4}\2\d{4}\2\d{1,3}",
            rb"(\d{4})([ -])\d{6}\2\d{4,5}",
        ):
            match = re.compile(rb"(?=[2-6])(?:" + form + rb")(?!\d)").match(text, start)
            if match and luhn.is_valid(re.sub(rb"\D", b"", match[0]).decode()):
                if not re.compile(rb"\w", re.ASCII).match(text, match.end()):
                    last = match.end()
                    yield start, last, CARD
                break


def is_host(text: bytes, start: int, stop: int) -> bool:
    parts = text[start:stop].split(b".")
    if any(len(part) > 1 and part[:1] == b"0" for part in parts) or max(map(int, parts)) > 255:
        return False
    first, *others = map(int, parts)
    if first in (0, 10, 127) or first > 223 or others[-1] in (0, 255):
        return False
    opened = re.search(rb"[A-Za-z/@\x80-\xff][\0-\x20:=\"'`(\[<]{0,8}\Z", text[:start])
    return first > 9 or not any(n <= 31 for n in others) or opened is not None


def has_right_digits(text: bytes) -> bool:
    number = text.replace(b" ", b"").decode()
    return mod_97_10.is_valid(number[4:] + number[:4])


def numbers(text: bytes):
    """Candidates that begin with a digit, but for those of other shapes than numbers' and addresses'."""
    for groups in runs(text):
        start, stop = groups[0][0], groups[-1][1]
        if sum(b - a for a, b in groups) >= 7 and stop - start <= 64 and may_be_phone(text, groups):
            yield start, stop, NUMBER
        if stop - start >= 6:
            yield start, stop, CODE
        yield from cards(text, groups)


DIGIT = rb"\xd9[\xa0-\xa9]|\xdb[\xb0-\xb9]|\xe0[\xa5\xa7\xa9\xab\xad\xaf\xb1\xb3\xb5][\xa6-\xaf]"
DIGIT += rb"|\xe0[\xb9\xbb][\x90-\x99]|\xe1\x81[\x80-\x89]|\xef\xbc[\x90-\x99]"


def foreign(text: bytes):
    group, gap = rb"(?:" + DIGIT + rb")+", rb"(?:" + WIDE.pattern + rb"){1,4}?"
    for match in re.finditer(group + rb"(?:" + gap + group + rb")*", text):
        if len(re.findall(DIGIT, match[0])) >= 7 and len(match[0]) <= 192:
            yield *match.span(), FOREIGN


def mailboxes(text: bytes):
    for at in re.finditer(b"@", text):
        end = at.start()
        if text[end - 1 : end] == b'"' and end:
            quoted = re.search(rb'"[^"\n]{0,63}"\Z', text[:end])
            left = end - quoted.start() if quoted else 0
        else:
            local = re.search(rb"[\w.%+\-\x80-\xff]*\Z", text[:end], re.ASCII)[0]
            left = (
                0 if len(local) > 64 and local[-65:].isascii() else len(local[-64:].decode("utf-8", "ignore").encode())
            )
        right = re.match(rb"[A-Za-z0-9.\-\x80-\xff]{0,255}", text[at.end() :])[0].decode("utf-8", "ignore").encode()
        start, stop = end - left, at.end() + len(right)
        beside = text[stop : stop + 1] == b"@" and right.isascii()
        beside |= start > 0 and text[start - 1 : start] == b"@" and text[start:end].isascii()
        if left and b"." in right[1:] and not beside:
            yield start, stop, MAILBOX


def framed(text: bytes):
    """Candidates that a word or a frame around them makes."""
    word = rb"(?<!\w)\w*"
    for match in re.finditer(
        word + rb"(?:bearer|token)(?=[ \t]{1,3}(?P<token>[\w.~+/=-]{20,}))", text, re.ASCII | re.I
    ):
        yield *match.span("token"), TOKEN
    for match in re.finditer(word + rb"(?:access_key|accesskey|s_key)(?!\w)", text, re.ASCII | re.I):
        if len(match[0]) >= 9:
            yield match.end(), min(len(text), match.end() + 60), SECRET
    for match in re.finditer(word + rb"ooks(?!\w)", text, re.ASCII | re.I):
        if len(match[0]) >= 5:
            yield match.start(), min(len(text), match.start() + 200), HOOK
    for match in re.finditer(rb"://([^\0-\x20@\"'/]*)@", text):
        if b":" in match[1]:
            yield *match.span(1), LOGIN


def reference(text: bytes) -> list[tuple[int, int, int]]:
    spans = [*numbers(text), *foreign(text), *mailboxes(text), *framed(text)]
    first, second = (b"|".join({re.escape(b[at : at + 2]) for b in BEGINNINGS}) for at in (0, 1))
    for shape, form in (
        (QUAD, rb"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)"),
        (HEXTETS, rb"(?<![\w:])(?=[23][0-9A-Fa-f]{3}(?!\w))(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{1,45}"),
        (KEY, rb"(?<![\w.-])(?=(?:" + first + rb"))(?=.(?:" + second + rb"))[\w.-]{20,}"),
        (CODE, rb"(?<!\w)(?=\w*\d)(?=\d*[A-Za-z_])\w{6,32}(?!\w)"),
        (SPELLED, rb"[\w.%+-]{1,64} ?(?:\([aA][tT]\)|\[[aA][tT]\]|\{[aA][tT]\}) ?(?=\w)"),
    ):
        for match in re.finditer(form, text, re.ASCII):
            start, stop = match.span()
            if shape == QUAD and not is_host(text, start, stop):
                continue
            spans.append((start, min(stop + 120, len(text)) if shape == SPELLED else stop, shape))
    for match in re.finditer(rb"(?<!\w)[A-Z]{2}\d{2}", text, re.ASCII):
        size = int(lengths()[match[0][0] - 65, match[0][1] - 65])
        number = re.compile(rb"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){%d}" % (size - 4) if size else rb"(?!)").match(
            text, match.start()
        )
        if number and has_right_digits(number[0]):
            spans.append((*number.span(), ACCOUNT))
    for match in re.finditer(rb"-----(?=BEGIN(?!\w))", text, re.ASCII):
        block = re.compile(rb"-----BEGIN(?:(?!-----B).)*?-----END[^\n]{0,60}?-----", re.DOTALL).match(
            text, match.start()
        )
        if block:
            spans.append((*block.span(), BLOCK))
    return sorted(spans)


@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, min_size=1, max_size=3))
@example(["Bearer 20240115103000Bearer 83.12.44.99jane.doe+mill@mail"])
@example(["------BEGIN A-----\n------END A-----", "-----begin A-----\n-----END A-----"])
def test_candidates_are_those_of_plain_python(documents):
    data, offsets = utf8(pa.array(documents, pa.large_string()))
    places = candidates(data, offsets, SOUGHT)
    for d, text in enumerate(documents):
        mine = places.document == d
        columns = (places.start[mine] - offsets[d], places.stop[mine] - offsets[d], places.shape[mine])
        assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == reference(text.encode())


def test_more_candidates_than_there_was_room_for():
    text = "a@b.c " * 5000
    data, offsets = utf8(pa.array([text], pa.large_string()))
    places = candidates(data, offsets, SOUGHT)
    assert places.start.tolist() == list(range(0, len(text), 6))


def test_the_regions_are_those_with_a_numbering_plan():
    assert set(REGIONS) == phonenumbers.SUPPORTED_REGIONS and list(REGIONS) == sorted(REGIONS)
    with pytest.raises(ValidationError, match="XX, without a numbering plan"):
        Pii(regions=("US", "XX"))


def test_languages_and_countries_are_known():
    assert all(set(regions) <= set(REGIONS) for regions in BY_LANGUAGE.values())
    assert NATIONAL_IDS == COUNTRIES


NUMBERS = {
    "integers": lambda n: f"{n * 7919 % 10**8} ",
    "decimals in commas": lambda n: f"{n % 97}.{n * 7919 % 10**6:06},{n * 104729 % 10**4 / 7:.4f}\n",
    "hyphens": lambda n: f"{n * 7919 % 10**4}-{n * 104729 % 10**5}-",
    "hyphens, a line each": lambda n: f"{n * 7919 % 9000 + 1000}-{n * 104729 % 10**5:05}\n",
    "dates": lambda n: f"20{n % 30:02}-{n % 12 + 1:02}-{n % 28 + 1:02} {n % 24:02}:{n % 60:02}\n",
    "one number": lambda n: f"{n * 7919}",
    "versions": lambda n: f"{n % 9}.{n % 7}.{n % 5}.{n % 30}\n",
    "accounts": lambda n: f"DE00{n * 104729:018} ",
    "at signs": lambda n: "a@a.",
    "signs": lambda n: f"+{n % 10} ",
    "beginnings of tokens": lambda n: "eyJ",
    "beginnings of keys": lambda n: "-----BEGIN PRIVATE KEY-----\n",
    "digits beyond ASCII": lambda n: "٠١٢٣ ",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_lists_of_numbers_are_left_before_anything_is_judged(name):
    """What is judged costs time; so the kernel leaves all but one number of a thousand bytes."""
    text = "".join(map(NUMBERS[name], range(10_000)))
    data, offsets = utf8(pa.array([text], pa.large_string()))
    sought = Sought(BEGINNINGS, lengths(), groupings(("US", *BY_LANGUAGE["en"])))
    assert len(candidates(data, offsets, sought).start) <= 1 + len(data) / 1000


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
