"""The scan's columns against the plain-Python reference, Python's own string methods, and ICU."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.kernels import characters, scan, segmentation
from gristmill.tasks.kernels.buffers import utf8
from tests.tasks.rules import segmentation as reference

SPACES = [
    " ",
    "  ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\v",
    "\x1c",
    "\x1f",
    "\x85",
    "\u2028",
    "\u2029",
    "\u3000",
    "\u202f",
]
INVISIBLE = ["\u200b", "\u200c", "\u200d", "\u00ad", "\ufeff", "\x00", "\u0301", "\u0308\u0308", "\ufe0f", "\ue000"]
LETTERS = ["a", "The", "Ǆ", "ǅ", "é", "ß", "ש", "ק", "ا", "к", "अ", "한", "Ⅷ", "ª", "ʰ", "𝒜", "b" * 20, "\u02c2", "Ⓐ"]
UNSPACED = [
    "漢",
    "字々",
    "〇",
    "𠀀",
    "か",
    "な",
    "は",
    "ゝ",
    "カ",
    "ー",
    "ﾊﾟ",
    "ไ",
    "ท",
    "า",
    "ก็",
    "์",
    "ຂ",
    "ຳ",
    "ខ",
    "្",
    "ា",
    "မ",
    "်",
    "ာ",
]
NUMBERS = ["1", "23", "٣", "１", "½", "²", "\u066b", "๓"]
MARKS = [
    ".",
    "..",
    ",",
    ":",
    ";",
    "'",
    '"',
    "’",
    "“",
    "”",
    "»",
    "(",
    ")",
    "]",
    "!",
    "?",
    "…",
    "。",
    "！",
    "।",
    "·",
    "׳",
    "״",
]
SYMBOLS = [
    "_",
    "‿",
    "-",
    "--",
    "—",
    "#",
    "•",
    "$",
    "+",
    "=",
    "😀",
    "👍🏽",
    "❤",
    "♀",
    "🇩",
    "🇪",
    "\ufffd",
    "\U0010ffff",
    "\uffff",
]
TEXTS = st.one_of(
    *(
        st.lists(st.sampled_from(pieces), max_size=16).map("".join)
        for pieces in (
            SPACES + INVISIBLE + LETTERS + UNSPACED + NUMBERS + MARKS + SYMBOLS,
            [*LETTERS[:8], *NUMBERS[:3], *MARKS, "_", " ", "\u0301", "\u200d"],
            [*UNSPACED, *UNSPACED, "\u0301", " ", "a"],
        )
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=24),
)

# In scripts that set spaces between words.
SENTENCES = """
The mill's wheel (built 1,250 years ago) turns at 3.5 rpm; well-known, isn't it? See example.org/a_b?c=d.
„Das Müller-Handwerk“, sagte er, »kostet 1.250,75 €!« – Straße 12a, z.B. am 3.10.
L’eau d’aujourd'hui coûte 12,50 € (T.T.C.), n’est-ce pas ?
Él preguntó: ¿cuánto grano? ¡Nada, nada!
Мельница стоит у реки; зерно — 40 мешков, т.е. 2,5 т.
Ο μύλος γυρίζει κάθε πρωί· «το αλάτι» δεν φτάνει.
Kahire'den İstanbul'a 3'üncü gün vardık.
Nước chảy qua cối xay, bánh xe quay suốt ngày.
صاحب المطحنة يزن القمح كلَّ صباح، ويكتب الوزن ٣٫٥ كغ في دفتره؟
آسیاب‌بان گندم‌ها را می‌آورد و نمی‌خوابد.
בעל הטחנה אמר: "צה״ל" ו'חמ"ל' וגם ג'ירפה.
चक्की का पहिया सुबह से शाम तक घूमता है। दाम १२ रुपये हैं।
কলের চাকা সারাদিন ঘোরে, আর ধান আসে।
ஆலையின் சக்கரம் நாள் முழுவதும் சுழல்கிறது.
మిల్లు చక్రం రోజంతా తిరుగుతుంది.
വെള്ളം കുറയുമ്പോൾ ചക്രം നിൽക്കുന്നു.
წისქვილის ბორბალი მთელი დღე ტრიალებს.
Ջրաղացի անիվը պտտվում է ամբողջ օրը։
የወፍጮው መንኮራኩር ቀኑን ሙሉ ይሽከረከራል።
방앗간의 물레방아는 하루 종일 돌아갑니다.
སྐད་ཡིག་འདི་བོད་ཡིག་ཡིན།
🇩🇪🇫🇷 and 👩‍👩‍👧 or 👍🏽: e\u0301 = \u00e9, x\u00b2 + y_1 = 10%, $5, #tag, @name, a&b, C#, 24/7, 10:30.
"""


def scanned(*texts: str) -> scan.Scan:
    return scan.scan(pa.array(texts, pa.large_string()))


def strings(text: scan.Scan, unit: str, document: int = 0) -> list[str]:
    start, stop = text.spans(unit)
    first = getattr(text, unit)
    return [bytes(text.data[start[i] : stop[i]]).decode() for i in range(first[document], first[document + 1])]


def count(category: str, line: str) -> int:
    return sum(
        unicodedata.category(c) in category.split() or unicodedata.category(c)[0] in category.split() for c in line
    )


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_units_are_those_of_the_reference(text):
    """The text stands between others, which it must not touch."""
    found = scanned("x\n .", text, "", "'\n y")
    for unit in ("words", "lines", "paragraphs", "sentences"):
        assert strings(found, unit, 1) == getattr(reference, unit)(text)
        assert strings(found, unit, 2) == []
        assert strings(found, unit, 3) == (
            ["'\n y"] if unit == "paragraphs" else ["'", " y"] if unit == "lines" else ["'", "y"]
        )


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_columns_are_what_python_says_of_the_units(text):
    found = scanned(text)
    words, lines = reference.words(text), text.splitlines()
    most_words, most_lines = scan._most(found.data, 0, len(found.data))
    assert len(words) <= most_words + 1 and len(lines) <= most_lines + 1  # else the scan would write beside its columns
    assert found.chars.tolist() == [len(text)]
    assert found.word_chars.tolist() == [len(word) for word in words]
    bits = {
        scan.LETTER: lambda word: any(map(str.isalpha, word)),
        scan.REAL: reference.real,
        scan.TERMINAL: lambda word: all(c in reference.TERMINAL for c in word),
        scan.CLOSING: reference.closing,
        scan.CAPITAL: lambda word: unicodedata.category(word[0]) in ("Lu", "Lt"),
        scan.LOWER: lambda word: unicodedata.category(word[0]) == "Ll",
    }
    for bit, says in bits.items():
        assert (found.word_bits & bit > 0).tolist() == [says(word) for word in words]
    fields = reference.fields(text)
    starts = np.flatnonzero(found.word_bits & scan.FIELD)
    assert [words[i] for i in starts] == [reference.words(field)[0] for field in fields]

    assert found.line_chars.tolist() == [len(line) for line in lines]
    assert np.diff(found.line_words).tolist() == [len(reference.words(line)) for line in lines]
    assert found.line_letters.tolist() == [count("L", line) for line in lines]
    assert found.line_upper.tolist() == [count("Lu Lt", line) for line in lines]
    assert found.line_numbers.tolist() == [count("N", line) for line in lines]
    plain = [count("L M N", line) + sum(map(str.isspace, line)) for line in lines]
    assert found.line_special.tolist() == [len(line) - n for line, n in zip(lines, plain, strict=True)]
    assert found.paragraph_chars.tolist() == [len(paragraph) for paragraph in reference.paragraphs(text)]


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=4))
def test_hashes_are_equal_exactly_where_spans_are(texts):
    found = scanned(*texts, *texts)
    for unit, hashes in (("words", found.word_hash), ("lines", found.line_hash)):
        start, stop = found.spans(unit)
        spans = [bytes(found.data[a:b]) for a, b in zip(start, stop, strict=True)]
        assert len(set(zip(spans, hashes.tolist(), strict=True))) == len(set(spans)) == len(set(hashes.tolist()))
    paragraphs = [tuple(p.splitlines()) for text in texts + texts for p in reference.paragraphs(text)]
    pairs = set(zip(paragraphs, found.paragraph_hash.tolist(), strict=True))
    assert len(pairs) == len(set(paragraphs)) == len({h for _, h in pairs})


@pytest.mark.parametrize("length", range(1, 26))
def test_a_word_has_one_hash_wherever_it_stands(length):
    """Also at the very end of the buffer, behind which nothing may be read."""
    word = "abcdefghijklmnopqrstuvwxy"[:length]
    hashes = {int(scanned(f"{word} and more of it").word_hash[0]), int(scanned("", word).word_hash[0])}
    for before in ("x ", "é ", "\n", "x" * 7 + " "):
        text = np.frombuffer((before + word).encode(), np.uint8)
        ends = np.array([0, len(text)], np.int64)
        array = pa.LargeStringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(text))
        hashes.add(int(scan.scan(array).word_hash[-1]))
    assert len(hashes) == 1


def test_a_batch_may_be_any_part_of_a_column():
    texts = ["no part of it", "One line.\nAnother.", "", "東京へ行く", "no part, either"]
    part = scan.scan(pa.array(texts, pa.large_string())[1:4])
    whole = scanned(*texts[1:4])
    for unit in ("words", "lines", "paragraphs", "sentences"):
        assert [strings(part, unit, d) for d in range(3)] == [strings(whole, unit, d) for d in range(3)]
    assert part.word_hash.tolist() == whole.word_hash.tolist()
    assert part.chars.tolist() == [len(text) for text in texts[1:4]]
    empty = scanned()
    assert empty.words.tolist() == empty.lines.tolist() == empty.paragraphs.tolist() == empty.sentences.tolist() == [0]
    with pytest.raises(ValueError, match="has 1 nulls"):
        scan.scan(pa.array(["a", None]))


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4), max_size=6), st.sampled_from(["i4", "i8", "?"]))
@settings(max_examples=50, deadline=None)
def test_sums_are_those_of_the_parts(parts, kind):
    values = np.array([v for part in parts for v in part]).astype(kind)
    bounds = np.cumsum([0, *map(len, parts)])
    sums = scanned("").sum(bounds, values)
    assert sums.dtype == np.int64
    assert sums.tolist() == [int(values[a:b].sum(dtype=np.int64)) for a, b in zip(bounds, bounds[1:], strict=False)]


MILLION = 1_000_000


@pytest.mark.parametrize(
    "text, words",
    [
        ("a" * MILLION, 1),
        ("A1" * MILLION, 1),
        ("." * MILLION, 1),
        ("a." * MILLION, 2),
        ("\n" * MILLION, 0),
        (" " * MILLION, 0),
        ("a\n" * MILLION, MILLION),
        ("漢" * MILLION, MILLION),
        ("かな" * MILLION, 1),
        ("のは" * MILLION, 2 * MILLION),
        ("ก" * MILLION, 1),
        ("\u0301" * MILLION, 1),
        ("a" + "·\u0301" * MILLION, MILLION + 1),
        ("a·" + "\u0301" * MILLION + "b", 1),
        ("a" + "\u200d❤" * MILLION, 1),
        ("🇩" * MILLION, MILLION // 2),
        ("\u200b" * MILLION, 0),
    ],
    ids=lambda value: ascii(value[:4]) if isinstance(value, str) else "",
)
def test_any_long_text_is_linear(text, words):
    """What is quadratic would not end here."""
    found = scanned(text)
    assert len(found.word_start) == words
    assert found.word_chars.sum() == sum(not (c.isspace() or c == "\u200b") for c in text)
    assert len(found.line_start) == len(text.splitlines())
    assert len(found.sentence_words) - 1 == (words if "\n" in text else min(words, 1))


def test_where_words_are_not_those_of_icu():
    """A run of one mark or symbol is one word, U+200B only parts words, the others follow from their script alone."""
    cases = {
        'Wait... "??" --- ?! 😀😀😀 C++ //': 'Wait ... " ?? " --- ? ! 😀😀😀 C ++ //',
        "東京タワーを見に行きました。": "東 京 タワー を 見 に 行 きました 。",
        "ภาษาไทยเป็นภาษาราชการ": "ภา ษา ไทย เป็น ภา ษา ราช การ",
        "ພາສາລາວ": "ພາ ສາ ລາວ",
        "ភាសា\u200bខ្មែរ": "ភា សា ខ្មែរ",
        "မြန်မာစာ": "မြန် မာ စာ",
    }
    for text, words in cases.items():
        assert strings(scanned(text), "words") == words.split()


@pytest.mark.parametrize("sentence", [line for line in SENTENCES.splitlines() if line])
def test_words_of_spaced_scripts_are_those_of_icu(sentence):
    breakers = pytest.importorskip("icu4py.breakers", reason="icu4py is not installed")
    expected = [segment for segment in breakers.WordBreaker(sentence, "en") if not segment.isspace()]
    assert strings(scanned(sentence), "words") == expected


@pytest.mark.extended
def test_tables_hold_what_python_says_of_every_code_point():
    every = list(map(chr, range(0x110000)))
    category = np.array(list(map(unicodedata.category, every)))
    general, space = category.astype("U1"), np.array(list(map(str.isspace, every)))
    table = segmentation.characters()
    assert np.array_equal(table & segmentation.IS_LETTER > 0, list(map(str.isalpha, every)))
    assert np.array_equal(table & segmentation.IS_MARK > 0, general == "M")
    assert np.array_equal(table & segmentation.IS_NUMBER > 0, general == "N")
    assert np.array_equal(table & segmentation.IS_CAPITAL > 0, (category == "Lu") | (category == "Lt"))
    assert np.array_equal(table & segmentation.IS_LOWER > 0, category == "Ll")
    assert np.array_equal(table % segmentation.CLASSES == segmentation.SPACE, space)
    breaks = [len(f"a{c}b".splitlines()) == 2 for c in every]
    assert np.array_equal(table & segmentation.IS_BREAK > 0, breaks)
    classes = characters.classes()
    for name, number in (("L", characters.LETTER), ("M", characters.MARK), ("N", characters.DIGIT)):
        assert np.array_equal(classes == number, general == name)
    assert np.array_equal(classes == characters.SPACE, space | (general == "Z"))
    assert np.array_equal(classes == characters.OTHER, (general == "C") & ~space)


def test_lower_case_is_that_of_python():
    table = characters.lowercase()
    lower = map(str.lower, map(chr, range(characters.CODE_POINTS)))
    assert table.tolist() == [ord(one) if len(one) == 1 else c for c, one in enumerate(lower)]


def test_every_layout_of_a_string_column_has_the_same_documents():
    texts = ["", "one", "zwei drei", "四", "", "fünf"]
    large, small = pa.array(texts, pa.large_string()), pa.array(texts)
    layouts = [large, small, pa.chunked_array([large]), pa.chunked_array([small[:2], small[2:5], small[5:]])]
    layouts += [pa.chunked_array([large[1:4], large[4:]]), small[1:], large[2:5], large[6:]]
    layouts += [
        pa.chunked_array([], pa.large_string()),
        pa.array([], pa.string()),
        pa.array(texts, pa.string_view()),
    ]
    for column in layouts:
        data, offsets = utf8(column)
        got = [bytes(data[a:b]).decode() for a, b in zip(offsets, offsets[1:], strict=False)]
        assert got == column.to_pylist()
    with pytest.raises(ValueError, match="has 1 nulls"):
        utf8(pa.array(["a", None]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("wrong", [b"\xf0\x9f", b"ab\xc3", b"\x80", b"\xed\xa0\x80", b"\xff" * 9, b"\xc0\x80"])
def test_what_is_no_utf8_is_refused(wrong, kind):
    """A lead byte at the end of the column would be followed beyond it."""
    data = "words é".encode() + wrong
    offsets = np.array([0, 8, len(data)], np.int64 if kind == pa.large_string() else np.int32)
    texts = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)])
    for column in (texts, pa.chunked_array([texts])):
        with pytest.raises(ValueError, match="not text: .*[Ii]nvalid UTF8"):
            utf8(column)
    assert len(utf8(texts[:1])[0]) and utf8(texts[:1])[1].tolist() == [0, 8]
