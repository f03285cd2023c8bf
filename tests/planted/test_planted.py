"""The planted web says the truth about itself: by other readers, other decoders, brute force and plain arithmetic."""

import gzip
import http.client
import io
import re
import zlib
from collections import Counter, defaultdict
from dataclasses import replace
from html import escape
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import trafilatura
from fastwarc.stream_io import BrotliReader, ZstdReader
from resiliparse.extract.html2text import extract_plain_text
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from gristmill.tasks.models.language import lid_176
from tests.planted import KINDS, VARIANTS, Plan, Truth, plant, texts
from tests.planted.leaks import ITEMS
from tests.planted.plan import JACCARDS

# All that a planted crawl holds besides ordinary pages: how many variants of each kind.
HELD = {"near": 1, "template": 1, "exact": 1, "recrawl": 3, "charset": 108, "transfer": 15, "other": 18, "hostile": 17}
HELD |= {"broken": 26, "personal": 7, "lookalike": 22, "leak": 2, "poor": 34, "blocked": 6}
_TIMES = {"charset": 1, "broken": 2, "transfer": 2, "other": 3, "poor": 3, "hostile": 1}
PLAN = Plan(
    **{"pages": 1000, "files": 3, "seed": 5, "snapshots": ("2024-10", "2024-11"), "median_words": 250},
    **{"personal": 140, "lookalike": 110, "near": 90, "blocked": 12, "clipped_files": 1},
    **{kind: times * len(VARIANTS[kind]) for kind, times in _TIMES.items()},
)


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Truth:
    return plant(tmp_path_factory.mktemp("planted"), PLAN)


@pytest.fixture(scope="module")
def rows(truth) -> list[dict]:
    return truth.rows()


def block(truth: Truth, row: dict) -> bytes:
    """The record's block, by Python's gzip and the first empty line."""
    return gzip.decompress(truth.stored(row)).partition(b"\r\n\r\n")[2].removesuffix(b"\r\n\r\n")


def body(truth: Truth, row: dict) -> bytes:
    return block(truth, row).partition(b"\r\n\r\n")[2]


def test_same_seed_same_bytes(tmp_path):
    plan = Plan(pages=60, files=3, median_words=100, languages=(("en", 0.8), ("ja", 0.2)), charset=0)
    once, again, other = (
        plant(tmp_path / name, p) for name, p in [("a", plan), ("b", plan), ("c", replace(plan, seed=2))]
    )
    assert once.records == again.records
    contents = [[Path(path).read_bytes() for path in truth.archives] for truth in (once, again, other)]
    assert contents[0] == contents[1] and len(contents[0]) == 3
    assert not {*contents[0]} & {*contents[2]}
    with pytest.raises(FileExistsError):
        plant(tmp_path / "a", plan)


@pytest.mark.extended
def test_all_kinds_and_variants_are_there_and_counts_add_up(rows):
    assert {kind: len(set(VARIANTS.get(kind, "-"))) for kind in KINDS} == {"page": 1, **HELD}
    pages = {row["page"]: row for row in rows if row["page"] is not None}
    assert sorted(pages) == list(range(PLAN.pages))
    [clipped] = [row for row in rows if row["variant"] == "file_end"]
    kind, index = PLAN.slots[clipped["page"]]
    planted = Counter((row["kind"], row["variant"]) for row in pages.values() if row is not clipped)
    planted[kind, PLAN.variant(kind, index)] += 1
    for kind in KINDS:
        of_kind = {variant: n for (k, variant), n in planted.items() if k == kind}
        assert sum(of_kind.values()) == PLAN.counts[kind]
        assert of_kind.keys() == set(VARIANTS.get(kind, ("",))), kind
        assert max(of_kind.values()) - min(of_kind.values()) <= 1, kind
    assert len({row["record_id"] for row in rows}) == len(rows)
    assert {row["variant"] for row in rows if row["kind"] == "companion"} == {"warcinfo", "request", "metadata"}


@pytest.mark.parametrize(
    "settings", [{"pages": 20, "near": 30}, {"pages": 20, "files": 1, "recrawl": 10}, {"files": 0, "snapshots": ()}]
)
def test_a_plan_that_cannot_be_is_refused(settings):
    with pytest.raises(ValueError, match="more"):
        Plan(**settings)


def test_warcio_reads_every_whole_record_at_its_offset(truth, rows):
    end = Counter()
    for row in rows:
        assert row["offset"] == end[row["file"]]
        end[row["file"]] += row["length"]
        if row["kind"] == "broken":
            continue
        (record,) = WarcioIterator(io.BytesIO(truth.stored(row)), check_digests="raise")
        names = ("WARC-Record-ID", "WARC-Target-URI", "WARC-Date", "WARC-Type")
        values = [row[column] for column in ("record_id", "url", "date", "record_type")]
        assert [record.rec_headers[name] for name in names] == values
        assert not row["status"] or int(record.http_headers.get_statuscode()) == row["status"]
        record.raw_stream.read()
    assert end == {name: (truth.folder / name).stat().st_size for name in end}


def test_damage_is_what_it_is_called(truth):
    broken = {row["variant"]: row for row in truth.rows(kind="broken")}
    kept = {variant: truth.stored(row) for variant, row in broken.items()}
    for variant in ("clipped", "bit_flip", "wrong_crc", "wrong_size", "zeroed", "file_end"):
        with pytest.raises((OSError, EOFError, zlib.error)):
            gzip.decompress(kept.pop(variant))
    for variant in ("garbage_after", "zeros_after"):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        member.decompress(kept.pop(variant))
        assert member.eof and len(member.unused_data) >= 300
    records = {variant: gzip.decompress(record) for variant, record in kept.items()}
    for variant, record in records.items():
        assert broken[variant]["yields"] != "page" or broken[variant]["text"].split()[0] in record.decode()

    def lengths(variant: str) -> tuple[bytes | None, int]:
        """What the record says of its block, and how long it is."""
        head, _, rest = records[variant].partition(b"\r\n\r\n")
        said = re.search(rb"\r\nContent-Length: (\S+)", head)
        return said and said[1], len(rest.removesuffix(b"\r\n\r\n"))

    assert lengths("no_length")[0] is None and lengths("bad_length")[0] == b"many"
    for variant, change in (("long_length", 1000), ("huge_length", 2**40), ("short_length", -100)):
        said, real = lengths(variant)
        assert int(said) == real + change
    assert b"\r" not in records["lf_only"].partition(b"\n\n")[0]
    assert not records["no_version"].startswith(b"WARC/")
    assert records["other_version"].startswith(b"WARC/7.5\r\n")
    assert re.match(rb"WARC/1.1\r\n[^:\r]+\r\n", records["no_colon"])
    assert re.match(rb"WARC/1.1\r\nX-Long: one\r\n two\r\n", records["folded_header"])
    assert b"WARC-Record-ID" not in records["no_id"]
    assert not records["no_blank_lines"].endswith(b"\r\n\r\n")
    with pytest.raises(Exception, match="digest"):
        next(WarcioIterator(io.BytesIO(kept["wrong_digest"]), check_digests="raise")).content_stream().read()
    assert block(truth, broken["bad_status"]).startswith(b"HTTP/1.1 TWO OK")
    assert not block(truth, broken["no_status_line"]).startswith(b"HTTP")
    with pytest.raises(EOFError):
        gzip.decompress(body(truth, broken["clipped_gzip_body"]))
    with pytest.raises(zlib.error):
        zlib.decompress(body(truth, broken["no_gzip_body"])[2:])
    for variant in ("short_chunks", "bad_chunk_size"):
        with pytest.raises(http.client.IncompleteRead):
            _http(block(truth, broken[variant])).read()


def test_hostile_pages_are_small_on_disk_and_large_inside(truth):
    of_kind = {row["variant"]: row for row in truth.rows(kind="hostile")}
    assert sum(len(truth.stored(row)) for row in of_kind.values()) < 3_000_000
    sizes = {variant: len(body(truth, row)) for variant, row in of_kind.items()}
    assert sizes["gzip_bomb_twice"] < sizes["gzip_bomb"] < 200_000
    assert abs(sizes["large_page"] - 10**7) < 100_000
    assert min(sizes[v] for v in sizes if "bomb" not in v) > 200_000
    assert len(gzip.decompress(body(truth, of_kind["gzip_bomb"]))) == 100_000_000
    assert gzip.decompress(body(truth, of_kind["gzip_bomb_twice"])) == body(truth, of_kind["gzip_bomb"])


def _http(message: bytes) -> http.client.HTTPResponse:
    socket = io.BytesIO(message)
    socket.makefile = lambda mode: socket
    response = http.client.HTTPResponse(socket)
    response.begin()
    return response


_UNDO = {
    "gzip": gzip.decompress,
    "x-gzip": gzip.decompress,
    "deflate": lambda data: zlib.decompress(data, zlib.MAX_WBITS if data[:1] == b"\x78" else -zlib.MAX_WBITS),
    "br": lambda data: BrotliReader(io.BytesIO(data)).read(),
    "zstd": lambda data: ZstdReader(io.BytesIO(data)).read(),
    "identity": lambda data: data,
}


def in_page(row: dict, html: str) -> bool:
    """Whether the planted blocks stand in the page, tags aside."""
    inside = re.sub(r"<[^>]*>|\s", "", html)
    return all(re.sub(r"\s", "", escape(text, quote=False)) in inside for text in row["text"].split("\n\n"))


def test_transfer_encodings_come_off(truth):
    for row in truth.rows(kind="transfer"):
        page = body(truth, row)
        if not row["variant"].startswith("claimed"):
            response = _http(block(truth, row))
            page = response.read()
            for encoding in reversed((response.headers["Content-Encoding"] or "identity").split(", ")):
                page = _UNDO[encoding](page)
        assert in_page(row, page.decode()), row["variant"]


def test_encodings_decode_to_the_planted_text(truth):
    silent = []
    for row in truth.rows(kind="charset"):
        page, (label, how) = body(truth, row), row["variant"].split("/")
        assert in_page(row, page.decode(row["charset"])), row["variant"]
        header = _http(block(truth, row)).headers.get_content_charset()
        meta = re.search(rb'<meta charset="([^"]*)"', page)
        meta = meta and meta[1].decode()
        said = {"header": (label, None), "meta": (None, label), "none": (None, None), "bom": (None, None)}
        assert (header, meta) == said.get(how, (header, meta))
        assert how != "header_over_meta" or header == label != meta
        assert how != "bom_over_header" or header != label
        assert how != "wrong_header" or header not in (label, None)
        assert how != "wrong_meta" or (header is None and meta not in (label, None))
        assert how[:3] != "bom" or page[:2] in (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb")
        if row["charset"] != "utf-8" and how == "none":
            silent.append(page.decode(errors="replace"))
    assert sum("\ufffd" not in page for page in silent) <= 1 < len(silent)  # iso-2022-jp is ASCII


@pytest.mark.parametrize(
    ("extract", "pages"),
    [
        (lambda page: extract_plain_text(page, main_content=True, alt_texts=False), None),
        (lambda page: trafilatura.extract(page, include_comments=False) or "", 60),
    ],
    ids=["resiliparse", "trafilatura"],
)
def test_extractors_find_the_main_text_and_leave_most_of_the_rest(truth, extract, pages):
    found, planted, extra, furniture = Counter(), Counter(), Counter(), 0
    for row in truth.rows(kind="page", language=("en", "de", "ru"))[:pages]:
        page = body(truth, row).decode()
        main, out = Counter(row["text"].split()), Counter(extract(page).split())
        found[row["layout"]] += (main & out).total()
        planted[row["layout"]] += main.total()
        extra[row["layout"]] += (out - main).total()
        furniture += len(page.split()) - main.total()
    assert len(planted) == 4
    assert found.total() / planted.total() >= 0.95, {name: found[name] / planted[name] for name in planted}
    assert extra.total() < 0.6 * furniture


# Texts


@pytest.fixture(scope="module")
def sets(rows) -> dict[int, set[str]]:
    """Word 5-grams by page."""
    words = {row["page"]: row["text"].split() for row in rows if row["text"]}
    return {page: {"\0".join(w[i : i + 5]) for i in range(len(w) - 4)} for page, w in words.items()}


def test_planted_similarities_are_those_of_brute_force(truth, sets):
    pairs = truth.pairs()
    assert len(pairs) > 200
    for a, b, similarity in pairs:
        union = len(sets[a] | sets[b])
        assert similarity == pytest.approx(len(sets[a] & sets[b]) / union if union else 1.0, abs=1e-12)
    near = truth.rows(kind="near")
    assert {row["wanted_jaccard"] for row in near} == set(JACCARDS)
    assert max(abs(row["jaccard"] - row["wanted_jaccard"]) for row in near) <= 0.02
    linked = {frozenset(pair[:2]) for pair in pairs}
    whole = [row["page"] for row in truth.rows(kind="page", language="en")][:150]
    others = [(a, b) for a, b in combinations(whole, 2) if frozenset((a, b)) not in linked]
    assert max(len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in others if sets[a] and sets[b]) < 0.02


@pytest.mark.extended
def test_every_similar_pair_is_in_the_truth(truth, sets):
    """None is planted by accident; copies of one template are similar through their base."""
    template = {row["page"] for row in truth.rows(kind="template")}
    holders, common = defaultdict(list), Counter()
    for page, own in sets.items():
        for gram in own:
            common.update((other, page) for other in holders[gram])
            holders[gram].append(page)
    known = {frozenset(pair[:2]) for pair in truth.pairs()}
    similar = {frozenset((a, b)) for (a, b), n in common.items() if n >= 0.3 * (len(sets[a]) + len(sets[b]) - n)}
    assert len(similar) > 150
    assert all(pair in known or pair <= template for pair in similar)


def test_copies_lie_in_both_snapshots_and_those_of_a_template_differ_in_three_words(truth, rows):
    by_page = {row["page"]: row for row in rows if row["page"] is not None}
    assert sum(by_page[r["base"]]["snapshot"] != r["snapshot"] for r in by_page.values() if r["base"] is not None) > 20
    assert all(row["date"].startswith(row["snapshot"]) for row in rows)
    for row in truth.rows(kind="recrawl"):
        assert row["canonical_url"] == by_page[row["base"]]["canonical_url"]
        assert (row["url"] != row["canonical_url"]) >= (row["variant"] == "tracking")
        assert (row["text"] != by_page[row["base"]]["text"]) == (row["variant"] == "changed")
    copies = truth.rows(kind="template")
    for row in copies:
        pairs = zip(row["text"].split(), by_page[row["base"]]["text"].split(), strict=True)
        assert sum(a != b for a, b in pairs) == 3
    assert len({row["text"] for row in copies}) == len(copies)


def test_languages_have_their_shares_and_are_recognised():
    shares = {"en": 0.5, **dict.fromkeys("de fr es pl ru ar ko ja zh th".split(), 0.05)}
    made = [t for *_, t in texts(Plan.clean(pages=800, files=1, languages=tuple(shares.items()), median_words=120))]
    counted = Counter(text.language for text in made)
    for code, share in shares.items():
        assert counted[code] == pytest.approx(800 * share, abs=4 * (800 * share * (1 - share)) ** 0.5)
    labels, scores = lid_176().predict([" ".join(text.blocks[0].text.split())[:400] for text in made], k=1)
    assert np.mean([label[0] == f"__label__{text.language}" for label, text in zip(labels, made, strict=True)]) >= 0.98
    assert np.mean([score[0] >= 0.65 for score in scores]) >= 0.95


def _share(text: str, test) -> float:
    """Of the lines."""
    lines = [line for line in text.split("\n") if line.strip()]
    return sum(bool(test(line)) for line in lines) / len(lines)


def _repeated(text: str) -> list[str]:
    lines = text.split("\n\n")
    return [line for i, line in enumerate(lines) if line in lines[:i]]


def _top(text: str, n: int) -> float:
    """Share of the characters that are in the most frequent word n-gram."""
    words = text.split()
    found = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    gram, count = found.most_common(1)[0] if found else ("", 0)
    return len(gram) * count / len(text) if count > 1 else 0


def _duplicate(text: str, n: int) -> float:
    """Share of the characters that are in word n-grams seen before, each character once."""
    words, seen, inside = text.split(), set(), set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        inside.update(range(i, i + n) if gram in seen else ())
        seen.add(gram)
    return sum(len(words[i]) for i in inside) / len(text)


def _mean_length(text: str) -> float:
    return float(np.mean([len(w) for w in text.split() if any(c.isalnum() for c in w)]))


_FAILS = {
    "gopher.min_words": lambda t: len(t.split()) < 50,
    "gopher.min_mean_word_length": lambda t: _mean_length(t) < 3,
    "gopher.max_mean_word_length": lambda t: _mean_length(t) > 10,
    "gopher.hash_ratio": lambda t: t.count("#") > 0.1 * len(t.split()),
    "gopher.ellipsis_ratio": lambda t: t.count("...") > 0.1 * len(t.split()),
    "gopher.bullet_lines": lambda t: _share(t, lambda line: line[0] in "•-") > 0.9,
    "gopher.ellipsis_lines": lambda t: _share(t, lambda line: line.endswith("...")) > 0.3,
    "gopher.alpha_words": lambda t: np.mean([any(map(str.isalpha, w)) for w in t.split()]) < 0.8,
    "gopher.stop_words": lambda t: len({"the", "be", "to", "of", "and", "that", "have", "with"} & {*t.split()}) < 2,
    "gopher.dup_lines": lambda t: len(_repeated(t)) > 0.3 * len(t.split("\n\n")),
    "gopher.top_2gram": lambda t: _top(t, 2) > 0.2,
    "gopher.top_4gram": lambda t: _top(t, 4) > 0.16,
    "gopher.dup_5grams": lambda t: _duplicate(t, 5) > 0.15,
    "gopher.dup_10grams": lambda t: _duplicate(t, 10) > 0.1,
    "textbook.min_characters": lambda t: len(t) < 200,
    "textbook.special_characters": lambda t: sum(not c.isalnum() and not c.isspace() for c in t) > 0.3 * len(t),
    "textbook.symbol_words": lambda t: t.split().count("|") > 0.1 * sum(w != "|" for w in t.split()),
    "textbook.repeated_lines": lambda t: re.search(r"(?:^|\n)(.+)(?:\n\n\1){3}(?:\n|$)", t),
    "c4.min_sentences": lambda t: len(re.findall(r"[.!?](?:\s|$)", t)) < 5,
    "c4.lorem_ipsum": lambda t: "lorem ipsum" in t.lower(),
    "c4.curly_bracket": lambda t: "{" in t,
    "c4.javascript": lambda t: "javascript" in t.lower(),
    "c4.policy": lambda t: "privacy policy" in t.lower(),
    "c4.terminal_punctuation": lambda t: _share(t, lambda x: x[-1] in '.!?"') == 0,
    "c4.long_word": lambda t: max(map(len, t.split())) > 1000,
    "c4.short_lines": lambda t: _share(t, lambda x: len(x.split()) < 3) == 1,
    "fineweb.line_punctuation": lambda t: _share(t, lambda x: x[-1] in ".!?") < 0.12,
    "fineweb.short_lines": lambda t: _share(t, lambda x: len(x) <= 30) > 0.67,
    "fineweb.duplicate_line_characters": lambda t: len("".join(_repeated(t))) > 0.01 * len(t),
    "fineweb.newlines": lambda t: t.count("\n") > 0.3 * len(t.split()),
    "refinedweb.uppercase": lambda t: sum(c.isupper() for c in t) > 0.5 * len(t),
    "refinedweb.numeric": lambda t: _share(t, str.isdecimal) > 0.5,
    "refinedweb.counters": lambda t: _share(t, re.compile(r"\d+ \w+$").match) > 0.5,
    "ccnet.min_length": lambda t: len(t) < 300,
}


def test_poor_pages_fail_the_rule_they_were_made_for_and_ordinary_english_none(truth):
    for row in truth.rows(kind="poor"):
        assert _FAILS[row["variant"]](row["text"]), row["variant"]
    good = [row["text"] for row in truth.rows(kind="page", language="en")]
    failed = Counter(name for name, fails in _FAILS.items() for text in good if fails(text))
    # a list makes short lines, a short page can have four long sentences
    assert failed.total() <= 0.02 * len(good), failed


# Personal data, leaks, addresses


def luhn(number: str) -> bool:
    digits = [int(c) for c in number if c.isdigit()][::-1]
    return (sum(digits[::2]) + sum(d * 2 - 9 * (d > 4) for d in digits[1::2])) % 10 == 0


def iban(number: str) -> bool:
    number = number.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in number[4:] + number[:4])) % 97 == 1


_HOLDS = {
    "email": re.compile(r"[a-z][\w.+-]*@[a-z.-]+\.(?:com|uk|org|de)").fullmatch,
    "ipv4": lambda v: ip_address(v).version == 4 and ip_address(v).is_global,
    "ipv6": lambda v: ip_address(v).version == 6 and ip_address(v).is_global,
    "phone": lambda v: 9 <= sum(c.isdigit() for c in v) <= 13,
    "iban": iban,
    "credit_card": luhn,
    "api_key": lambda v: "FAKE" in v and " " not in v,
    "private_ipv4": lambda v: not ip_address(v).is_global,
    "private_ipv6": lambda v: not ip_address(v).is_global,
    "no_ipv4": lambda v: any(int(part) > 255 for part in v.split(".")),
    "wrong_iban": lambda v: not iban(v),
    "wrong_card": lambda v: not luhn(v),
}


def test_personal_data_is_where_the_truth_says(rows):
    found = Counter()
    for row in rows:
        for span in [*(row["personal"] or ()), *(row["lookalike"] or ())]:
            assert row["text"][span["start"] : span["end"]] == span["value"]
            assert row["text"].count(span["value"]) == 1
            assert row["variant"] in (span["kind"], "file_end")
            assert span["kind"] not in _HOLDS or _HOLDS[span["kind"]](span["value"]), span
            found[span["kind"]] += 1
    assert found.keys() == {*VARIANTS["personal"], *VARIANTS["lookalike"]}
    assert min(found[kind] for kind in VARIANTS["personal"]) >= 20


def test_leaks_are_the_items_or_nearly(truth):
    leaks, edits = truth.rows(kind="leak"), {}
    for row in leaks:
        (leak,) = row["leak"]
        planted, item = row["text"][leak["start"] : leak["end"]].split(), ITEMS[leak["item"]].split()
        assert sum(a != b for a, b in zip(planted, item, strict=True)) == leak["edits"]
        edits.setdefault(row["variant"], set()).add(leak["edits"] > 0)
    assert edits == {"verbatim": {False}, "edited": {True}}
    assert len({row["leak"][0]["item"] for row in leaks}) == len(leaks) / 2


def test_addresses_are_of_their_domains_and_listed_where_they_should_be(truth, rows):
    domains, urls, [expression] = (
        (truth.blocklist / "gambling" / name).read_text().split() for name in ("domains", "urls", "expressions")
    )
    seen = set()
    for row in [row for row in rows if row["url"]]:
        rest = row["canonical_url"].removeprefix("https://")
        assert f".{row['host']}".endswith(f".{row['domain']}")
        assert rest.startswith(f"{row['host']}/")
        listed = any(f".{row['host']}".endswith(f".{d}") for d in domains)
        listed |= any(f"{rest}/".startswith(f"{u}/") for u in urls) or bool(re.search(expression, rest))
        assert listed == (row["kind"] == "blocked" and not row["variant"].startswith("lookalike")), row["url"]
        seen.add((row["url"] != row["canonical_url"], listed))
    assert seen == {(True, False), (False, True), (False, False)}
