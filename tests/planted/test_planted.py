"""The planted web says the truth about itself: by other readers, other decoders, brute force and plain arithmetic."""

import gzip
import http.client
import io
import ipaddress
import re
import subprocess
import sys
import zlib
from collections import Counter, defaultdict
from dataclasses import replace
from html import escape
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import trafilatura
from fastwarc import ArchiveIterator
from fastwarc.stream_io import BrotliReader, ZstdReader
from resiliparse.extract.html2text import extract_plain_text
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from tasks.models.language_work import model
from tests.planted import KINDS, VARIANTS, Plan, Truth, plant, texts
from tests.planted.hostile import VARIANTS as HOSTILE

_CHARSETS, _FAULTS = len(VARIANTS["charset"]), len(VARIANTS["broken"])
PLAN = Plan(
    pages=1000,
    files=3,
    seed=5,
    snapshots=("2024-10", "2024-11"),
    median_words=250,
    charset=_CHARSETS,
    broken=_FAULTS,
    transfer=2 * len(VARIANTS["transfer"]),
    other=3 * len(VARIANTS["other"]),
    poor=3 * len(VARIANTS["poor"]),
    personal=140,
    lookalike=100,
    near=90,
    clipped_files=1,
)


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Truth:
    return plant(tmp_path_factory.mktemp("planted"), PLAN)


@pytest.fixture(scope="module")
def rows(truth) -> list[dict]:
    return truth.rows()


def stored(truth: Truth, row: dict) -> bytes:
    with open(truth.folder / row["file"], "rb") as f:
        f.seek(row["offset"])
        return f.read(row["length"])


def block(truth: Truth, row: dict) -> bytes:
    """The record's block, by Python's gzip and the first empty line."""
    return gzip.decompress(stored(truth, row)).partition(b"\r\n\r\n")[2].removesuffix(b"\r\n\r\n")


def body(truth: Truth, row: dict) -> bytes:
    return block(truth, row).partition(b"\r\n\r\n")[2]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_same_seed_same_bytes_by_any_number_of_processes(tmp_path):
    languages = (("en", 0.8), ("ja", 0.2))
    plan = Plan(pages=60, files=3, median_words=100, languages=languages, charset=0)
    once, again = files(plant(tmp_path / "a", plan).folder), files(plant(tmp_path / "b", plan, processes=2).folder)
    assert len(once) == 9
    assert once == again
    other = files(plant(tmp_path / "c", replace(plan, seed=2)).folder)
    assert once.keys() == other.keys()
    assert not any(once[name] == other[name] for name in once if not name.startswith("blocklist"))


def test_a_folder_takes_one_crawl(truth):
    with pytest.raises(FileExistsError, match="holds a planted crawl"):
        plant(truth.folder, PLAN)


def test_counts_add_up(rows):
    pages = [row for row in rows if row["page"] is not None]
    assert sorted(row["page"] for row in pages) == list(range(PLAN.pages))
    planted = Counter(row["kind"] for row in pages)
    clipped = [row for row in pages if row["variant"] == "file_end"]
    assert len(clipped) == PLAN.clipped_files
    for row in clipped:
        planted["broken"] -= 1
        planted[PLAN.slot(row["page"])[0]] += 1
    assert planted == {kind: count for kind, count in PLAN.counts.items() if count}
    assert sum(PLAN.counts.values()) == PLAN.pages
    for kind in KINDS:
        of_kind = Counter(row["variant"] for row in pages if row["kind"] == kind and row["variant"] != "file_end")
        assert not of_kind or max(of_kind.values()) - min(of_kind.values()) <= 2, kind
        assert kind == "hostile" or of_kind.keys() == set(PLAN.variants_of(kind)) or kind == "broken", kind
    assert len({row["record_id"] for row in rows}) == len(rows)


def test_numbers_and_kinds_are_each_other_s_inverse():
    for pages in (1, 2, 97, 1000):
        plan = Plan(pages=pages, files=1, exact=0, near=0, template=0, recrawl=0)
        places = [plan.slot(number) for number in range(pages)]
        assert len({(kind, index) for kind, _, index in places}) == pages
        assert [plan.number(kind, index) for kind, _, index in places] == list(range(pages))
    plan = Plan(pages=103, files=7)
    assert [n for file in range(7) for n in plan.pages_of(file)] == list(range(103))
    assert all(plan.file(n) == file for file in range(7) for n in plan.pages_of(file))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pages": 20, "near": 30}, "more is planted than"),
        ({"pages": 20, "files": 1, "recrawl": 10}, "bases"),
        ({"files": 0, "snapshots": ()}, "snapshots"),
        ({"container": "wet"}, "texts only"),
        ({"variants": {"broken": ("bit_flop",)}}, "bit_flop"),
        ({"languages": (("xx", 1.0),)}, "no words of"),
        ({"languages": (("zh", 1.0),)}, "spaces between words"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Plan(**settings)


def test_warcio_reads_every_whole_record_at_its_offset(truth, rows):
    whole = [row for row in rows if row["kind"] != "broken"]
    assert len(whole) > PLAN.pages
    for row in whole:
        (record,) = WarcioIterator(io.BytesIO(stored(truth, row)), check_digests="raise")
        assert record.rec_headers["WARC-Record-ID"] == row["record_id"]
        assert record.rec_headers["WARC-Target-URI"] == row["url"]
        assert record.rec_headers["WARC-Date"] == row["date"]
        assert record.rec_type == row["record_type"]
        if row["status"]:
            assert int(record.http_headers.get_statuscode()) == row["status"]
        record.raw_stream.read()


def test_records_lie_one_after_the_other(truth, rows):
    for name, of_file in by(rows, "file").items():
        end = 0
        for row in of_file:
            assert row["offset"] == end
            end += row["length"]
        assert (truth.folder / name).stat().st_size == end


def by(rows: list[dict], column: str) -> dict[str, list[dict]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row[column]].append(row)
    return groups


@pytest.mark.parametrize("container", ["gzip", "plain", "zstd", "lz4", "wet"])
def test_fastwarc_reads_every_container(tmp_path, container):
    amounts = {"companions": 0.3} if container == "wet" else {"companions": 0.3, "other": 36, "transfer": 15}
    truth = plant(tmp_path, Plan.clean(pages=80, files=2, container=container, median_words=100, **amounts))
    for path, rows in zip(truth.archives, by(truth.rows(), "file").values(), strict=True):
        records = [(record.record_id, record.stream_pos, str(record.record_type)) for record in ArchiveIterator(path)]
        assert records == [(row["record_id"], row["offset"], row["record_type"]) for row in rows]


def test_warcio_reads_arc(tmp_path):
    truth = plant(tmp_path, Plan.clean(pages=40, files=1, container="arc", median_words=100, other=11))
    with open(truth.archives[0], "rb") as f:
        found = [(r.rec_headers["uri"], len(r.content_stream().read())) for r in WarcioIterator(f)]
    rows = truth.rows()
    assert [url for url, _ in found][1:] == [row["url"] for row in rows][1:]
    assert all(size for (_, size), row in zip(found, rows, strict=True) if row["yields"] == "page")


# Damage


def test_damage_is_what_it_is_called(truth, rows):
    broken = {row["variant"]: row for row in rows if row["kind"] == "broken"}
    assert broken.keys() - {"file_end"} >= set(VARIANTS["broken"]) - {PLAN.slot(broken["file_end"]["page"])[1]}
    for variant in ("clipped", "bit_flip", "wrong_crc", "wrong_size", "zeroed", "file_end"):
        with pytest.raises((OSError, EOFError, zlib.error)):
            gzip.decompress(stored(truth, broken[variant]))
    for variant in ("garbage_after", "zeros_after"):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        member.decompress(stored(truth, broken[variant]))
        assert member.eof and len(member.unused_data) >= 300
    for variant, row in broken.items():
        if row["yields"] == "page" and not variant.endswith("_after"):
            raw = gzip.decompress(stored(truth, row))
            assert row["text"].split()[0] in raw.decode()
    lengths = {v: _lengths(gzip.decompress(stored(truth, broken[v]))) for v in broken if v.endswith("_length")}
    assert lengths["no_length"][0] is None and lengths["bad_length"][0] == b"many"
    assert int(lengths["long_length"][0]) == lengths["long_length"][1] + 1000
    assert int(lengths["huge_length"][0]) == lengths["huge_length"][1] + 2**40
    assert int(lengths["short_length"][0]) == lengths["short_length"][1] - 100
    assert b"\r" not in gzip.decompress(stored(truth, broken["lf_only"])).partition(b"\n\n")[0]
    assert not gzip.decompress(stored(truth, broken["no_version"])).startswith(b"WARC/")
    assert not gzip.decompress(stored(truth, broken["no_blank_lines"])).endswith(b"\r\n\r\n")
    with pytest.raises(Exception, match="digest"):
        next(
            iter(WarcioIterator(io.BytesIO(stored(truth, broken["wrong_digest"])), check_digests="raise"))
        ).content_stream().read()
    with pytest.raises(EOFError):
        gzip.decompress(body(truth, broken["clipped_gzip_body"]))
    for variant in ("short_chunks", "bad_chunk_size"):
        with pytest.raises(http.client.IncompleteRead):
            _http(block(truth, broken[variant])).read()


def _lengths(record: bytes) -> tuple[bytes | None, int]:
    """What the record says of its block, and how long it is."""
    head, _, rest = record.partition(b"\r\n\r\n")
    said = re.search(rb"\r\nContent-Length: (\S+)", head)
    return said and said[1], len(rest.removesuffix(b"\r\n\r\n"))


def test_hostile_pages_are_small_on_disk_and_large_inside(tmp_path):
    plan = Plan.clean(pages=30, files=1, hostile=len(HOSTILE), variants={"hostile": tuple(HOSTILE)}, large_bytes=10**7)
    truth = plant(tmp_path, plan)
    rows = {row["variant"]: row for row in truth.rows(kind="hostile")}
    assert rows.keys() == HOSTILE.keys()
    assert Path(truth.archives[0]).stat().st_size < 3_000_000
    sizes = {variant: len(body(truth, row)) for variant, row in rows.items()}
    assert sizes["gzip_bomb_twice"] < sizes["gzip_bomb"] < 200_000
    assert abs(sizes["large_page"] - 10**7) < 100_000
    assert min(sizes[v] for v in sizes if "bomb" not in v) > 200_000
    inside = zlib.decompressobj(zlib.MAX_WBITS | 16)
    assert len(inside.decompress(body(truth, rows["gzip_bomb"]))) == 100_000_000


# Bodies


class _Socket(io.BytesIO):
    def makefile(self, mode):
        return self


def _http(message: bytes) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(_Socket(message))
    response.begin()
    return response


def _undo(encoding: str, data: bytes) -> bytes:
    if encoding in ("gzip", "x-gzip"):
        return gzip.decompress(data)
    if encoding == "deflate":
        return zlib.decompress(data) if data[:1] == b"\x78" else zlib.decompress(data, -zlib.MAX_WBITS)
    if encoding in ("br", "zstd"):
        return {"br": BrotliReader, "zstd": ZstdReader}[encoding](io.BytesIO(data)).read()
    assert encoding in ("", "identity")
    return data


def test_transfer_encodings_come_off(truth, rows):
    of_kind = [row for row in rows if row["kind"] == "transfer"]
    assert {row["variant"] for row in of_kind} == set(VARIANTS["transfer"])
    for row in of_kind:
        if row["variant"].startswith("claimed"):
            page = body(truth, row)
        else:
            response = _http(block(truth, row))
            page = response.read()
            for encoding in reversed((response.headers["Content-Encoding"] or "").split(", ")):
                page = _undo(encoding, page)
        assert paragraphs_in(row, page.decode()), row["variant"]


def paragraphs_in(row: dict, html: str) -> bool:
    """Whether the planted blocks stand in the page one after the other, tags aside."""
    inside = re.sub(r"<[^>]*>", "", html)
    return all(
        re.sub(r"\s", "", escape(b, quote=False)) in re.sub(r"\s", "", inside) for b in row["text"].split("\n\n")
    )


def test_encodings_decode_to_the_planted_text(truth, rows):
    of_kind = [row for row in rows if row["kind"] == "charset"]
    assert {row["variant"] for row in of_kind} == set(VARIANTS["charset"])
    for row in of_kind:
        page, (label, how) = body(truth, row), row["variant"].split("/")
        assert paragraphs_in(row, page.decode(row["charset"])), row["variant"]
        header = _http(block(truth, row)).headers.get_content_charset()
        meta = re.search(rb'<meta charset="([^"]*)"', page)
        meta = meta and meta[1].decode()
        said = {"header": (label, None), "meta": (None, label), "none": (None, None), "bom": (None, None)}
        if how in said:
            assert (header, meta) == said[how]
        elif how == "header_over_meta":
            assert header == label != meta
        elif how == "bom_over_header":
            assert header != label
        else:
            assert (header if how == "wrong_header" else meta) not in (label, None)
        assert how[:3] != "bom" or page[:2] in (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb")
    silent = [row for row in of_kind if row["charset"] != "utf-8" and row["variant"].endswith("/none")]
    assert sum(_is_utf8(body(truth, row)) for row in silent) <= 1  # iso-2022-jp is ASCII


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("engine", ["resiliparse", "trafilatura"])
def test_extractors_find_the_main_text_and_leave_most_of_the_rest(truth, rows, engine):
    ordinary = [row for row in rows if row["kind"] == "page" and row["language"] in ("en", "de", "ru")]
    if engine == "trafilatura":
        ordinary = ordinary[:60]
    found, planted, extra = Counter(), Counter(), Counter()
    for row in ordinary:
        page = body(truth, row).decode()
        if engine == "resiliparse":
            text = extract_plain_text(page, main_content=True, alt_texts=False)
        else:
            text = trafilatura.extract(page, include_comments=False) or ""
        main, out = Counter(row["text"].split()), Counter(text.split())
        found[row["layout"]] += (main & out).total()
        planted[row["layout"]] += main.total()
        extra[row["layout"]] += (out - main).total()
    assert len(planted) == 5
    assert found.total() / planted.total() >= 0.95, {name: found[name] / planted[name] for name in planted}
    furniture = sum(len(body(truth, row).decode().split()) for row in ordinary) - planted.total()
    assert extra.total() < 0.6 * furniture


# Texts


def grams(text: str) -> set[str]:
    words = text.split()
    return {"\0".join(words[i : i + 5]) for i in range(len(words) - 4)}


def test_planted_similarities_are_those_of_brute_force(truth, rows):
    sets = {row["page"]: grams(row["text"]) for row in rows if row["text"] and row["page"] is not None}
    pairs = truth.pairs()
    assert len(pairs) > 200
    for a, b, similarity in pairs:
        union = len(sets[a] | sets[b])
        assert similarity == pytest.approx(len(sets[a] & sets[b]) / union if union else 1.0, abs=1e-12)
    near = [row for row in rows if row["kind"] == "near"]
    assert {row["wanted_jaccard"] for row in near} == set(PLAN.jaccards)
    assert max(abs(row["jaccard"] - row["wanted_jaccard"]) for row in near) <= 0.02
    linked = {frozenset(pair[:2]) for pair in pairs}
    whole = [row["page"] for row in rows if row["kind"] == "page" and row["language"] == "en"][:150]
    others = [(a, b) for a, b in combinations(whole, 2) if frozenset((a, b)) not in linked]
    assert max(len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in others if sets[a] and sets[b]) < 0.02


def test_every_similar_pair_is_in_the_truth(truth, rows):
    """None is planted by accident; copies of one template are similar through their base."""
    sets = {row["page"]: grams(row["text"]) for row in rows if row["text"]}
    template = {row["page"] for row in rows if row["kind"] == "template"}
    holders, common = defaultdict(list), Counter()
    for page, own in sets.items():
        for gram in own:
            common.update((other, page) for other in holders[gram])
            holders[gram].append(page)
    known = {frozenset(pair[:2]) for pair in truth.pairs()}
    similar = {frozenset((a, b)) for (a, b), n in common.items() if n >= 0.3 * (len(sets[a]) + len(sets[b]) - n)}
    assert len(similar) > 150
    assert all(pair in known or pair <= template for pair in similar)


def test_copies_lie_in_both_snapshots(rows):
    by_page = {row["page"]: row for row in rows if row["page"] is not None}
    crossing = [row for row in by_page.values() if row["base"] and by_page[row["base"]]["snapshot"] != row["snapshot"]]
    assert len(crossing) > 20
    assert all(row["date"].startswith(row["snapshot"]) for row in rows)
    recrawled = [row for row in rows if row["kind"] == "recrawl"]
    assert all(row["canonical_url"] == by_page[row["base"]]["canonical_url"] for row in recrawled)


def test_template_copies_differ_in_three_words(rows):
    by_page = {row["page"]: row for row in rows if row["page"] is not None}
    copies = [row for row in rows if row["kind"] == "template"]
    for row in copies:
        pairs = zip(row["text"].split(), by_page[row["base"]]["text"].split(), strict=True)
        assert sum(a != b for a, b in pairs) == 3
    assert len({row["text"] for row in copies}) == len(copies)


def test_languages_have_their_shares_and_are_recognised():
    shares = (("en", 0.5), *((code, 0.05) for code in ("de", "fr", "es", "pl", "ru", "ar", "ko", "ja", "zh", "th")))
    plan = Plan.clean(pages=800, files=1, languages=shares, median_words=120)
    made = [text for _, _, text in texts(plan)]
    counted = Counter(text.language for text in made)
    for code, share in shares:
        assert counted[code] == pytest.approx(800 * share, abs=4 * (800 * share * (1 - share)) ** 0.5)
    begins = [" ".join(text.blocks[0].text.split())[:400] for text in made]
    labels, scores = model().predict(begins, k=1)
    right = [label[0] == f"__label__{text.language}" for label, text in zip(labels, made, strict=True)]
    assert np.mean(right) >= 0.98
    assert np.mean([score[0] >= 0.65 for score in scores]) >= 0.95


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _share(things: list[str], test) -> float:
    return sum(map(bool, map(test, things))) / len(things)


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
    real = [w for w in text.split() if any(c.isalnum() for c in w)]
    return sum(map(len, real)) / len(real)


_STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
_GOPHER = {
    "gopher.min_words": lambda t: len(t.split()) < 50,
    "gopher.min_mean_word_length": lambda t: _mean_length(t) < 3,
    "gopher.max_mean_word_length": lambda t: _mean_length(t) > 10,
    "gopher.hash_ratio": lambda t: t.count("#") > 0.1 * len(t.split()),
    "gopher.ellipsis_ratio": lambda t: t.count("...") > 0.1 * len(t.split()),
    "gopher.bullet_lines": lambda t: _share(_lines(t), lambda line: line[0] in "•-") > 0.9,
    "gopher.ellipsis_lines": lambda t: _share(_lines(t), lambda line: line.endswith("...")) > 0.3,
    "gopher.alpha_words": lambda t: _share(t.split(), lambda w: any(map(str.isalpha, w))) < 0.8,
    "gopher.stop_words": lambda t: len(_STOP_WORDS & set(t.split())) < 2,
    "gopher.dup_lines": lambda t: 1 - len(set(_lines(t))) / len(_lines(t)) > 0.3,
    "gopher.top_2gram": lambda t: _top(t, 2) > 0.2,
    "gopher.top_4gram": lambda t: _top(t, 4) > 0.16,
    "gopher.dup_5grams": lambda t: _duplicate(t, 5) > 0.15,
    "gopher.dup_10grams": lambda t: _duplicate(t, 10) > 0.1,
}


def _sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?:\s|$)", text))


def _duplicate_characters(lines: list[str]) -> float:
    return sum(len(line) for i, line in enumerate(lines) if line in lines[:i]) / sum(map(len, lines))


_OTHERS = {
    "textbook.min_characters": lambda t: len(t) < 200,
    "textbook.special_characters": lambda t: sum(not c.isalnum() and not c.isspace() for c in t) > 0.3 * len(t),
    "textbook.symbol_words": lambda t: t.split().count("|") > 0.1 * sum(w != "|" for w in t.split()),
    "textbook.repeated_lines": lambda t: any(_lines(t)[i : i + 4] == [x] * 4 for i, x in enumerate(_lines(t))),
    "c4.min_sentences": lambda t: _sentences(t) < 5,
    "c4.lorem_ipsum": lambda t: "lorem ipsum" in t.lower(),
    "c4.curly_bracket": lambda t: "{" in t,
    "c4.javascript": lambda t: "javascript" in t.lower(),
    "c4.policy": lambda t: "privacy policy" in t.lower(),
    "c4.terminal_punctuation": lambda t: _share(_lines(t), lambda x: x[-1] in '.!?"') == 0,
    "c4.long_word": lambda t: max(map(len, t.split())) > 1000,
    "c4.short_lines": lambda t: _share(_lines(t), lambda x: len(x.split()) < 3) == 1,
    "fineweb.line_punctuation": lambda t: _share(_lines(t), lambda x: x[-1] in ".!?") < 0.12,
    "fineweb.short_lines": lambda t: _share(_lines(t), lambda x: len(x) <= 30) > 0.67,
    "fineweb.duplicate_line_characters": lambda t: _duplicate_characters(_lines(t)) > 0.01,
    "fineweb.newlines": lambda t: t.count("\n") > 0.3 * len(t.split()),
    "refinedweb.uppercase": lambda t: sum(c.isupper() for c in t) > 0.5 * len(t),
    "refinedweb.numeric": lambda t: _share(_lines(t), str.isdecimal) > 0.5,
    "refinedweb.counters": lambda t: _share(_lines(t), re.compile(r"\d+ \w+$").match) > 0.5,
    "ccnet.min_length": lambda t: len(t) < 300,
}


def test_poor_pages_fail_the_rule_they_were_made_for(rows):
    fails = _GOPHER | _OTHERS
    variants = by([row for row in rows if row["kind"] == "poor"], "variant")
    assert variants.keys() == fails.keys() == set(VARIANTS["poor"])
    for variant, of_variant in variants.items():
        assert all(fails[variant](row["text"]) for row in of_variant), variant


def test_ordinary_english_fails_none(rows):
    good = [row["text"] for row in rows if row["kind"] == "page" and row["language"] == "en"]
    failed = Counter(name for name, fails in (_GOPHER | _OTHERS).items() for text in good if fails(text))
    # a list makes short lines, a short page can have four long sentences
    assert failed.total() <= 0.02 * len(good), failed


# Personal data, leaks, addresses


def luhn(number: str) -> bool:
    digits = [int(c) for c in number if c.isdigit()][::-1]
    return (sum(digits[::2]) + sum(d * 2 - 9 * (d > 4) for d in digits[1::2])) % 10 == 0


def iban(number: str) -> bool:
    number = number.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in number[4:] + number[:4])) % 97 == 1


def address(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(value)


_IS = {
    "email": re.compile(r"[a-z][\w.+-]*@[a-z.-]+\.(?:com|uk|org|de)").fullmatch,
    "ipv4": lambda v: address(v).version == 4 and address(v).is_global,
    "ipv6": lambda v: address(v).version == 6 and address(v).is_global,
    "phone": lambda v: 9 <= sum(c.isdigit() for c in v) <= 13,
    "iban": iban,
    "credit_card": luhn,
    "api_key": lambda v: "FAKE" in v and " " not in v,
}
_IS_NOT = {
    "private_ipv4": lambda v: address(v).is_global,
    "private_ipv6": lambda v: address(v).is_global,
    "no_ipv4": lambda v: all(int(part) < 256 for part in v.split(".")),
    "wrong_iban": iban,
    "wrong_card": luhn,
}


def test_personal_data_is_where_the_truth_says(rows):
    found = Counter()
    for row in rows:
        for column in ("personal", "lookalikes"):
            for span in row[column] or ():
                assert row["text"][span["start"] : span["end"]] == span["value"]
                assert row["text"].count(span["value"]) == 1
                assert span["kind"] == row["variant"]
                if column == "personal":
                    assert _IS[span["kind"]](span["value"]), span
                elif span["kind"] in _IS_NOT:
                    assert not _IS_NOT[span["kind"]](span["value"]), span
                found[span["kind"]] += 1
    assert found.keys() == _IS.keys() | set(VARIANTS["lookalike"])
    assert min(found[kind] for kind in _IS) >= 20


def test_leaks_are_the_items_or_nearly(tmp_path):
    items = ("Which of these wheels turns the stone of the old mill by the river, and why does it?", "Two words.")
    truth = plant(tmp_path, Plan.clean(pages=40, files=1, median_words=100, leak=12, benchmark=items))
    rows = truth.rows(kind="leak")
    assert Counter((row["variant"], row["leaks"][0]["item"]) for row in rows) == dict.fromkeys(
        [(variant, item) for variant in ("verbatim", "edited") for item in (0, 1)], 3
    )
    for row in rows:
        (leak,) = row["leaks"]
        planted, item = row["text"][leak["start"] : leak["end"]].split(), items[leak["item"]].split()
        changed = sum(a != b for a, b in zip(planted, item, strict=True))
        assert changed == leak["edits"] if row["variant"] == "edited" else changed == leak["edits"] == 0


def test_addresses_are_of_their_domains_and_listed_where_they_should_be(truth, rows):
    folder = truth.blocklist / "gambling"
    domains = (folder / "domains").read_text().split()
    urls = (folder / "urls").read_text().split()
    expression = re.compile((folder / "expressions").read_text().strip())
    seen = set()
    for row in rows:
        if not row["url"]:
            continue
        rest = row["canonical_url"].removeprefix("https://")
        assert f".{row['host']}".endswith(f".{row['domain']}")
        assert rest.startswith(f"{row['host']}/")
        listed = any(f".{row['host']}".endswith(f".{d}") for d in domains)
        listed |= any(f"{rest}/".startswith(f"{u}/") for u in urls) or bool(expression.search(rest))
        assert listed == (row["kind"] == "blocked" and not row["variant"].startswith("lookalike")), row["url"]
        seen.add((row["url"] != row["canonical_url"], listed))
    assert seen == {(True, False), (False, True), (False, False)}


def test_command_line(tmp_path):
    command = [sys.executable, "-m", "tests.planted", str(tmp_path / "crawl"), "--clean", "--pages", "30"]
    options = ["--files", "1", "--broken", "4", "--only", "broken=bit_flip,clipped", "--languages", "en=1"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    counts = Truth(tmp_path / "crawl").counts()
    assert counts["broken", "bit_flip"] == counts["broken", "clipped"] == 2
    again = subprocess.run([*command, *options], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert again.returncode == 2
    assert "name another folder" in again.stderr
