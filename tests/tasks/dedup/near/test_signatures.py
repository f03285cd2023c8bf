"""Shingle sets and signatures against plain Python and against datasketch."""

import re
import unicodedata
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from datasketch import MinHash as Datasketch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.dedup.near.settings import MinHash, Shingling, s_curve
from gristmill.tasks.kernels import minhash, shingles
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.characters import CODE_POINTS, INVISIBLE, UNSPACED, among
from gristmill.tasks.kernels.folding import words_only

WRAP = (1 << 64) - 1
# Letters with and without a one-letter lower case, marks, digits of other scripts, separators of 1 to 4
# bytes.
LETTERS = st.sampled_from(
    "aAbBzZ@[`{/09:ÄȺäßẞİıΣσς\u0301\u0903\u20dd٣Ⅷ½日本𝒳𞤀𞤢'-_ \n\t\u00a0\u2028。—$€😀\x00"
    "かが゛ーｱ々〇ก\u0e34\u0e481๒ຂ\u17d2កမ\u1039ᦀꆈ𠀀\U000e0100\ufe00\u3099\u200b\u00ad\u200d\ufeff\u061c한བ་"
)
LONG_WORDS = st.lists(st.text(st.sampled_from("aBzȺ日ไ𝒳𠀀\u00ad"), max_size=40), max_size=12).map(" ".join)
TEXTS = st.one_of(st.text(LETTERS, max_size=200), LONG_WORDS, st.text(max_size=80))

# The beginnings of the names of characters of scripts without spaces. Python has no names of Tangut.
UNSPACED_NAMES = re.compile(
    r"(AHOM|BALINESE|BATAK|BOPOMOFO|BRAHMI|CHAM|CIRCLED IDEOGRAPH|CJK|(COMBINING )?GRANTHA|COMBINING KATAKANA|COUNTING"
    r"|HALFWIDTH KATAKANA|HANGZHOU|HENTAIGANA|HIRAGANA|IDEOGRAPHIC(?! TALLY)|JAVANESE|KATAKANA|KAWI|KHMER|LAO|MAKASAR"
    r"|MASU|MYANMAR|NEW TAI LUE|NUSHU|OLD CHINESE|PARENTHESIZED IDEOGRAPH|TAI LE|TAI THAM|TAI VIET|TANGUT|THAI"
    r"|VERTICAL (KANA|IDEOGRAPHIC)|VIETNAMESE|YI)\b"
)
# Formats that are seen, or of a script of which only scholars write.
SEEN = re.compile(r"ARABIC (?!LETTER MARK)|SYRIAC|KAITHI|INTERLINEAR|EGYPTIAN")

# What a release before words in scripts without spaces were characters signed: of each text the hash of `facts`, for
# words and for characters. Earlier crawls have such signatures.
STORED = {
    "The miller grinds rye, oats and wheat; then he sells the flour to bakers in 12 towns (since 1987).": (
        "e1e09e64937330ec",
        "0d4e939708b50aa0",
    ),
    "THE MILLER'S DAUGHTER Grinds RYE, McAdam & O'Neill: 3.14 USD/kg, ABCDEFGHIJKLMNOPQRSTUVWXYZ": (
        "702e08d70e514edc",
        "4a3c2bfc79dedf04",
    ),
    "Ünté Élève naïve façade — Žluťoučký kůň, Đorđe; e\u0301 a\u0308 o\u0303: ßẞ İı ŐŰ": (
        "69a151cda2c18e98",
        "af6b8e221c19fe71",
    ),
    "Мельник мелет рожь, овёс и пшеницу; потом продаёт муку пекарям в 12 городах. ЁЖИК": (
        "71d323684fe14da0",
        "fbbd52c12efbdfbe",
    ),
    "Ο μυλωνάς αλέθει σίκαλη, βρώμη και σιτάρι. ΣΊΣΥΦΟΣ σς Άνθρωπος": ("87d2a5ba7e99c0b8", "59311cf6a744ba13"),
    "يطحن الطحان الشعير والقمح ثم يبيع الدقيق للخبازين في ١٢ مدينة، كُلَّ يَوْمٍ": ("8153ac52d5919160", "081862d6fc9aa5b6"),
    "הטוחן טוחן שיפון ושיבולת שועל ומוכר את הקמח לאופים; בְּרֵאשִׁית בָּרָא": ("09f22ab50d9ecdbc", "ac5ceaec8b5dcd9f"),
    "चक्कीवाला राई और गेहूँ पीसता है, फिर १२ शहरों में आटा बेचता है।": ("4f5818e3c892bd6c", "30a93213df51863a"),
    "방앗간 주인은 호밀과 귀리를 빻아 12개 도시의 빵집에 판다. \u1112\u1161\u11ab": (
        "854129d60800c54a",
        "25e65666ab06af25",
    ),
    "བོད་ཡིག་གི་ཡི་གེ་བཞི་ཡོད། ༡༢": ("a86819893215b134", "cbeb5f446555c6fc"),
    "1 22 333 ٣٤٥ १२३ Ⅷ ½ ² ① 0x7F 1,000,000 3e8": ("a12ac866e71ff227", "bd3f60a55a6918b1"),
    "Ⱥ ȺȺȺ aȺb Ⱥé ȺȺ" + "Ⱥ" * 40: ("5d12751d4f493c71", "2e60d4d097f536e6"),
    "𝒳 𝒳𝒴 𞤀𞤢 𐐀𐐨 a𝒳b 😀 a😀b ❤\ufe0f c 👩 d": ("ab50510bc7055fec", "8dee5ea0e3021ae3"),
    "ab cd ef gh " * 40 + "Donaudampfschifffahrtsgesellschaftskapitän " * 7: ("11240098c3b07b7b", "6260a43494891158"),
    "... — ! €": ("244f931f0ab208a3", "244f931f0ab208a3"),
}


@cache
def kind(c: str) -> str:
    """`alone`, `word`, `nothing` or `apart`."""
    category = unicodedata.category(c)
    name = unicodedata.name(c, "TANGUT")
    if category == "Cf" and not SEEN.match(name) or 0xE0000 <= ord(c) < 0xE1000 or 0x2060 <= ord(c) < 0x2070:
        return "nothing"
    if c.isspace() or category[0] not in "LMN":
        return "apart"
    return "alone" if UNSPACED_NAMES.match(name) else "word"


def words(text: str, unit: str = "words") -> list[str]:
    lower = ""
    for c in text:
        small = c.lower() if len(c.lower()) == 1 else c
        alone = f" {small} " if unit == "words" else small
        lower += {"alone": alone, "word": small, "nothing": "", "apart": " "}[kind(c)]
    return [w for w in lower.split(" ") if w]


def shingled(text: str, n: int, unit: str = "words") -> set[tuple[str, ...]]:
    w = words(text) if unit == "words" else list(" ".join(words(text, unit)))
    return {tuple(w[i : i + n]) for i in range(max(len(w) - n + 1, 1))} if w else set()


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WRAP
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WRAP
    return x ^ (x >> 31)


def shingle_hash(shingle: tuple[str, ...]) -> int:
    total = 0
    for word in shingle:
        h, utf8_bytes = 0x243F6A8885A308D3, word.encode()
        for i in range(0, len(utf8_bytes), 8):
            h = mix(h ^ int.from_bytes(utf8_bytes[i : i + 8], "little"))
        total = (total * 0xD1342543DE82EF95 + h) & WRAP
    return mix(total)


def kernel_sets(texts: list[str], n: int, unit: str = "words") -> list[np.ndarray]:
    values, ends = shingles.SHINGLES[unit](*utf8(pa.array(texts, pa.large_string())), n)
    return [values[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=5), st.integers(1, 7), st.sampled_from(sorted(shingles.SHINGLES)))
def test_shingle_sets_equal_the_plain_ones(texts, n, unit):
    for text, found in zip(texts, kernel_sets(texts, n, unit), strict=True):
        plain = shingled(text, n, unit)
        assert found.tolist() == sorted(shingle_hash(s) for s in plain)
        assert len(found) == len(plain)


@pytest.mark.parametrize("text", STORED)
def test_signatures_of_scripts_with_spaces_are_those_of_earlier_crawls(text):
    found = []
    for unit in ("words", "characters"):
        made = minhash.signed(*utf8(pa.array([text], pa.large_string())), 5, unit, 128, 1)
        facts = [made.size.astype("<i8"), made.content.astype("<u8"), made.holdout.astype("<u8")]
        facts.append(made.signature.astype("<u4"))
        found.append(xxhash.xxh3_64_hexdigest(b"".join(fact.tobytes() for fact in facts)))
    assert tuple(found) == STORED[text]


@pytest.mark.extended
def test_the_characters_without_spaces_and_without_trace_are_those_of_their_names():
    unspaced, invisible = among(UNSPACED), among(INVISIBLE)
    wrong = []
    for c in range(CODE_POINTS):
        character = chr(c)
        expected = kind(character)
        if (
            (expected == "nothing") != invisible[c]
            or expected in ("alone", "word")
            and ((expected == "alone") != unspaced[c])
        ):
            wrong.append(f"{c:X} {unicodedata.name(character, '')}")
    assert not wrong


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我们ABC在2024年", "我 们 abc 在 2024 年"),
        ("「カー」と、ｶﾞ々", "カ ー と ｶ ﾞ 々"),
        ("ไทย๑๒3 ไทย", "ไ ท ย ๑ ๒ 3 ไ ท ย"),
        ("ខ្មែរ ລາວ မြန်", "ខ ្ ម ែ រ ລ າ ວ မ ြ န ်"),
        ("한국어는 띄어", "한국어는 띄어"),
        ("བོད་ཡིག", "བོད ཡིག"),
        ("Donau­dampf می‌خواهم a​b c⁠d﻿ ‎", "donaudampf میخواهم ab cd"),
        ("日​本­語", "日 本 語"),
        ("葛󠄀城 葛︀城 が", "葛 城 葛 ︀ 城 か ゙"),
    ],
)
def test_words_of_scripts_without_spaces_are_their_characters(text, expected):
    assert words(text) == expected.split(" ")
    [found] = kernel_sets([text], 1)
    assert found.tolist() == sorted(shingle_hash((word,)) for word in set(expected.split(" ")))


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_what_is_not_seen_leaves_no_trace(text):
    seen = "".join(c for c in text if kind(c) != "nothing")
    for unit in shingles.SHINGLES:
        with_it, without = kernel_sets([text, seen], 3, unit)
        assert with_it.tolist() == without.tolist()
    data, ends = words_only(*utf8(pa.array([text, seen], pa.large_string())))
    assert data[: ends[1]].tobytes() == data[ends[1] :].tobytes()


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 0), ("... — !", 0), ("one", 1), ("One, two; three. FOUR", 1), ("a b c d e", 1), ("a b c d e f", 2)],
)
def test_short_documents_have_one_shingle_and_wordless_ones_none(text, size):
    assert len(kernel_sets([text], 5)[0]) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 0),
        ("... — !", 0),
        ("one", 1),
        ("a  b, ", 1),
        (" Ünté!", 1),
        ("A, b\tc", 1),
        ("a b cd", 2),
        ("日本語 – 日本語", 3),
    ],
)
def test_character_shingles_are_of_the_words_joined_by_a_space(text, size):
    assert len(kernel_sets([text], 5, "characters")[0]) == size == len(shingled(text, 5, "characters"))


@given(st.lists(st.sampled_from([0, 1, 2, 3, 7, 1 << 62, 1 << 63, WRAP - 1, WRAP]), max_size=64))
def test_repeats_are_dropped_whatever_the_values(values):
    found = np.array(values, np.uint64)
    room = np.empty(128, np.uint64)
    assert found[: shingles._unlike(found, len(values), room)].tolist() == list(dict.fromkeys(values))


def test_documents_that_repeat_themselves_are_sorted_as_well():
    texts = ["a b " * 50_000, "x " * 10_000, " ".join(f"w{i % 40}" for i in range(30_000))]
    for text, found in zip(texts, kernel_sets(texts, 5), strict=True):
        assert found.tolist() == sorted(shingle_hash(s) for s in shingled(text, 5))


def test_every_character_parts_or_joins_words_where_eight_bytes_are_read_at_once():
    texts = [f"ab{chr(c)}cd efghijklmn{chr(c)}" for c in [*range(0x500), 0x1E9E, 0x200B, 0x212A, 0x3042, 0x10400]]
    for text, found in zip(texts, kernel_sets(texts, 1), strict=True):
        assert found.tolist() == sorted(shingle_hash(s) for s in shingled(text, 1))


def test_lower_case_that_is_longer_fits():
    texts = ["Ⱥ" * 5000, "Ⱥ " * 5000, "a" + "Ⱥ" * 1001, "日" * 5000, "𠀀" * 5000, "Ⱥ日" * 3000, "é日" * 3000]
    for unit in shingles.SHINGLES:
        for text, found in zip(texts, kernel_sets(texts, 2, unit), strict=True):
            assert found.tolist() == sorted(shingle_hash(s) for s in shingled(text, 2, unit))


def test_a_slice_of_a_column_gives_the_same_sets():
    texts = ["Ein Öl, zwei Öle", "drei", "vier fünf sechs sieben acht neun zehn", ""]
    column = pa.array(["left out, of course", *texts, "and this"], pa.large_string())[1:5]
    values, ends = shingles.word_shingle_sets(*utf8(column), 3)
    plain, plain_ends = shingles.word_shingle_sets(*utf8(pa.array(texts, pa.large_string())), 3)
    assert values.tolist() == plain.tolist() and ends.tolist() == plain_ends.tolist()


def test_shingle_hashes_are_spread_evenly_and_do_not_collide():
    texts = [" ".join(f"w{i}" for i in range(200_000))]
    values = kernel_sets(texts, 5)[0]
    assert len(np.unique(minhash.fold(values))) > 200_000 - 4 - 4 * 200_000**2 / 2**33
    for shift in range(0, 64, 8):
        counts = np.bincount((values >> np.uint64(shift)).astype(np.uint8), minlength=256)
        chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert chi2 < 255 + 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize(("permutations", "seed"), [(128, 1), (37, 1), (256, 12345)])
def test_signatures_of_random_hashes_are_those_of_datasketch(permutations, seed):
    rng = np.random.default_rng(7)
    sizes = [0, 1, 2, 7, 8, 9, 16, 500]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    values = rng.integers(0, 2**64, ends[-1], np.uint64, endpoint=False)
    found = minhash.signatures(values, ends, permutations, seed)
    folded = [[int(v) >> 32 for v in values[a:b]] for a, b in zip(ends[:-1], ends[1:], strict=True)]
    bulk = Datasketch.bulk(folded, num_perm=permutations, seed=seed, hashfunc=int)
    assert found.dtype == bulk[0].hashvalues.dtype
    assert np.array_equal(found, [m.hashvalues for m in bulk])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(TEXTS, max_size=5),
    st.integers(1, 7),
    st.sampled_from(sorted(shingles.SHINGLES)),
    st.sampled_from([1, 37]),
    st.sampled_from([1, 12345]),
)
def test_documents_are_signed_as_datasketch_signs_their_plain_shingles(texts, n, unit, count, seed):
    data, offsets = utf8(pa.array(texts, pa.large_string()))
    found = minhash.signed(data, offsets, n, unit, count, seed)
    permutation = mix((0x9E3779B97F4A7C15 + seed) & WRAP)
    for i, text in enumerate(texts):
        hashes = [shingle_hash(shingle) for shingle in shingled(text, n, unit)]
        assert found.size[i] == len(hashes)
        assert found.content[i] == sum(hashes) & WRAP
        assert found.holdout[i] == min((mix(h ^ permutation) for h in hashes), default=WRAP)
        sketch = Datasketch(num_perm=count, seed=seed, hashfunc=lambda h: h >> 32)
        for h in hashes:
            sketch.update(h)
        assert np.array_equal(found.signature[i], sketch.hashvalues)


@pytest.mark.parametrize("unit", shingles.SHINGLES)
def test_documents_are_signed_as_their_sets_are(unit):
    texts = [np.ndarray.__doc__, "", "kurz", pa.Table.__doc__, "été Été ÉTÉ 日本 " * 900, "... — !", "Ⱥ" * 3000]
    data, offsets = utf8(pa.array(texts, pa.large_string()))
    values, ends = shingles.SHINGLES[unit](data, offsets, 4)
    found = minhash.signed(data, offsets, 4, unit, 128, 1)
    assert np.array_equal(found.size, np.diff(ends))
    assert np.array_equal(found.content, shingles.set_hashes(values, ends))
    assert np.array_equal(found.holdout, minhash.holdout(values, ends, 1))
    assert np.array_equal(found.signature, minhash.signatures(values, ends, 128, 1))
    assert found.size.dtype == np.int64 and found.content.dtype == found.holdout.dtype == np.uint64


def test_sets_share_a_hold_out_as_often_as_they_are_similar():
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**64, (20_000, 30), np.uint64, endpoint=False)
    first, second = values[:, :25].ravel(), values[:, 5:].ravel()  # J = 20 / 30
    ends = np.arange(20_001) * 25
    same = minhash.holdout(first, ends, 1) == minhash.holdout(second, ends, 1)
    assert same.mean() == pytest.approx(2 / 3, abs=4 * np.sqrt(2 / 9 / 20_000))
    banded = minhash.signatures(first, ends, 1, 1) == minhash.signatures(second, ends, 1, 1)
    assert np.corrcoef(same, banded.ravel())[0, 1] == pytest.approx(0, abs=4 / np.sqrt(20_000))


def test_band_hashes_are_equal_where_and_only_where_all_rows_of_the_band_are():
    rng = np.random.default_rng(3)
    signed = rng.integers(0, 3, (400, 12), np.uint32)
    hashes = minhash.band_hashes(signed, 4, 3)
    for band in range(4):
        rows = signed[:, 3 * band : 3 * band + 3]
        assert np.array_equal(hashes[:, None, band] == hashes[None, :, band], (rows[:, None] == rows[None]).all(axis=2))
    assert len(np.intersect1d(hashes[:, 0], hashes[:, 1])) == 0


def test_settings_name_the_permutations_that_bands_need():
    with pytest.raises(ValidationError, match="raise permutations"):
        MinHash(bands=20, rows=8)
    with pytest.raises(ValidationError, match="the key `survivor` is no longer used; use instead: `keep`"):
        MinHash(survivor=["longest"])
    with pytest.raises(ValidationError, match="use instead: the machine setting GRISTMILL_MEMORY"):
        MinHash(memory=1 << 30)
    assert MinHash(bands=14, rows=8).part(Shingling) == MinHash(partitions=3).part(Shingling) == Shingling()


# The first four: FineWeb on its own 14 x 8, arXiv:2406.17557; the last: 1 - (1 - 0.8^13)^9 by hand.
@pytest.mark.parametrize(
    ("bands", "rows", "jaccard", "expected"),
    [(14, 8, 0.7, 0.56), (14, 8, 0.75, 0.77), (14, 8, 0.8, 0.92), (14, 8, 0.85, 0.988), (9, 13, 0.8, 0.399)],
)
def test_s_curve(bands, rows, jaccard, expected):
    assert s_curve(bands, rows, jaccard) == pytest.approx(expected, abs=6e-3)
    assert s_curve(bands, rows, 0.0) == 0 and s_curve(bands, rows, 1.0) == 1
