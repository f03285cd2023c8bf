"""Which encoding a page is read in, and what text it gives."""

import codecs

import pytest

from gristmill.tasks.reading.charset import Encoding, decode, detect, encoding_of, guess, prescan
from gristmill.tasks.reading.legibility import excerpt, faults

PROSE = {
    "cp1251": "Мельница стоит у реки, и каждое утро сюда привозят зерно в больших мешках из грубого полотна. " * 5,
    "koi8-r": "Мельница стоит у реки, и каждое утро сюда привозят зерно в больших мешках из грубого полотна. " * 5,
    "cp932": "水車小屋は川のほとりにあり、毎朝、大きな布の袋に入った穀物が届きます。粉屋は粉を量り、帳面に書きます。"
    * 5,
    "euc_jp": "水車小屋は川のほとりにあり、毎朝、大きな布の袋に入った穀物が届きます。粉屋は粉を量り、帳面に書きます。"
    * 5,
    "gb18030": "磨坊就在河边，每天早上都有人用大布袋送来粮食。磨坊主称面粉的重量，记在本子上，然后把袋子放在门边。" * 5,
    "big5hkscs": "磨坊就在河邊，每天早上都有人用大布袋送來糧食。磨坊主稱麵粉的重量，記在本子上，然後把袋子放在門邊。"
    * 5,
    "cp949": "방앗간은 강가에 있으며 매일 아침 커다란 자루에 곡식이 들어온다. 방앗간 주인은 밀가루의 무게를 잰다. " * 5,
    "cp1252": "Le moulin tourne au bord de la rivière et le grain arrive à l'aube dans de très grands sacs étoilés. "
    * 5,
    "cp1253": "Ο μύλος βρίσκεται δίπλα στο ποτάμι και κάθε πρωί φέρνουν σιτάρι μέσα σε μεγάλα σακιά από ύφασμα. " * 5,
    "utf-8": "Die Mühle dreht sich, solange das Wasser fließt; 磨坊就在河边. " * 5,
    "utf-16-le": "<p>The mill turns as long as there is water.</p>" * 5,
    "utf-16-be": "<p>The mill turns as long as there is water.</p>" * 5,
    "utf-32-le": "<p>The mill turns as long as there is water.</p>" * 5,
    "iso2022_jp": "水車小屋は川のほとりにあり、毎朝、大きな布の袋に入った穀物が届きます。" * 5,
}


@pytest.mark.parametrize("name", PROSE)
def test_the_bytes_alone_give_the_text(name):
    payload = PROSE[name].encode(name)
    assert decode(payload, guess(payload)) == PROSE[name]


def test_mark_before_header_before_meta_before_bytes():
    page = '<meta charset="koi8-r"><p>Über</p>'
    assert detect(codecs.BOM_UTF8 + page.encode(), "windows-1251", True) == "utf-8"
    assert detect(codecs.BOM_UTF16_LE + page.encode("utf-16-le"), "windows-1251", True) == "utf-16-le"
    assert detect(codecs.BOM_UTF32_BE + page.encode("utf-32-be"), None, True) == "utf-32-be"
    plain = b'<meta charset="koi8-r"><p>Uber</p>'
    assert detect(plain, "windows-1251", True) == "cp1251"
    assert detect(plain, "no-such-thing", True) == "koi8-r"
    assert detect(plain, None, True) == "koi8-r"
    assert detect(plain, None, False) == "utf-8"
    assert detect(PROSE["cp1252"].encode("cp1252"), None, False) == "cp1252"
    assert detect(b"", None, True) == "utf-8"


_LANGUAGES = {
    "windows-1250": "Kniha leží na stole, ale čtenář ještě neví, že příští týden přijde žlutý vůz s dalšími pytli.",
    "iso-8859-2": "Młyn stoi nad rzeką, a każdego ranka przyjeżdżają wozy z ziarnem; książka leży na żółtym stole.",
    "windows-1254": "Değirmen ırmağın kıyısında; her sabah büyük çuvallarla buğday gelir, işçiler öğleye dek çalışır.",
    "windows-1255": "הטחנה עומדת ליד הנהר ובכל בוקר מביאים אליה תבואה בשקים גדולים של בד גס.",
    "windows-1256": "تقع الطاحونة قرب النهر، وفي كل صباح تأتي العربات محملة بأكياس كبيرة من الحبوب.",
    "windows-1257": "Dzirnavas stāv upes krastā, un katru rītu šeit ved graudus lielos auduma maisos, ko sver šķūnī.",
    "windows-874": "โรงสีตั้งอยู่ริมแม่น้ำ และทุกเช้ามีคนนำข้าวมาในกระสอบผ้าใบใหญ่",
    "koi8-u": "Млин стоїть біля річки, і щоранку сюди привозять зерно у великих мішках. Її знають усі в нашому селі.",
    "iso-8859-5": "Мельница стоит у реки, и каждое утро сюда привозят зерно в больших мешках из грубого полотна.",
    "ibm866": "Мельница стоит у реки, и каждое утро сюда привозят зерно в больших мешках из грубого полотна.",
    "macintosh": "Le moulin tourne au bord de la rivière et le blé arrive à l'aube, à côté de la forêt, où il gèle.",
}


@pytest.mark.parametrize("label", _LANGUAGES)
@pytest.mark.parametrize("wrong", ["utf-8", "iso-8859-1", "windows-1251", "gb2312", "shift_jis", None])
def test_a_label_that_the_bytes_contradict_is_not_believed(label, wrong):
    text = _LANGUAGES[label]
    codec = {"windows-874": "cp874", "ibm866": "cp866", "macintosh": "mac-roman"}.get(label, label)
    page = f"<title>Mill</title><p>{text}</p>".encode(codec)
    encoding = encoding_of(page, wrong, True)
    assert text in decode(page, encoding.name), encoding
    assert encoding_of(page, label, True).name == detect(page, label, True) == encoding_of(page, label, True).declared
    meta = f'<meta charset="{label}">'.encode() + page
    assert text in decode(meta, encoding_of(meta, wrong, True).name)


@pytest.mark.parametrize("label", ["iso-8859-1", "windows-1251", "koi8-r", "gb2312", "shift_jis", "euc-kr", "big5"])
@pytest.mark.parametrize(
    "text", ["Съешь же ещё этих мягких французских булок", "Müßiggang und Übermut", "磨坊就在河边，每天早上", "café"]
)
def test_what_is_utf8_is_utf8_whatever_the_label_says(label, text):
    page = f"<p>{text}</p>".encode()
    assert encoding_of(page, label, True) == Encoding("utf-8", detect(b"x", label, False))
    assert detect(page[:-5], label, True) == "utf-8"  # also where a character is cut


@pytest.mark.parametrize(
    "payload,header,name",
    [
        # labels that the bytes do not contradict
        ("<p>Её</p> Её книга".encode("cp1251"), "windows-1251", "cp1251"),
        ("<p>café, Dvořák</p>".encode("cp1250"), "windows-1250", "cp1250"),
        ("<p>Ångström, señor, déjà vu, Übermut</p>".encode("cp1252"), "iso-8859-1", "cp1252"),
        (b"plain", "shift_jis", "cp932"),
        (b"plain", "utf-16", "utf-8"),
        (b"plain", "iso-2022-kr", "iso2022_kr"),
        # few bytes, which no text has in the label
        (b"<p>caf\xe9</p>", "utf-8", "cp1252"),
        (b"<p>caf\xe9</p>", "windows-1251", "cp1252"),
        (b"<p>It\x92s 5 \xb5g at 20 \xb0C</p>", "utf-8", "cp1252"),
        (b"<p>\xa35, \xa34 and \xa325</p>", "windows-1250", "cp1252"),
        # one bad byte, and a character cut in the middle
        ("<p>Über öde Äcker ging Jörg</p>".encode() + b"\xff", "utf-8", "utf-8"),
        ("<p>Über öde Äcker ging Jörg</p>".encode() + b"\xff", "iso-8859-1", "utf-8"),
        (b"sch\xc3\xb6n, Kouga\xef, Kouga\xef", "utf-8", "utf-8"),
        # UTF-16 without a byte order mark, under any label
        ("<p>磨坊就在河边</p>\n<p>每天</p>".encode("utf-16-be"), "utf-16", "utf-16-be"),
        ("<p>The mill turns as long as there is water.</p>".encode("utf-16-le"), "utf-8", "utf-16-le"),
        ("磨坊就在河边每天早上都有人".encode("utf-16-le"), "utf-16", "utf-16-le"),
        ("磨坊就在河边每天早上都有人".encode("utf-16-be"), "utf-16", "utf-16-be"),
        ("<p>Мельница стоит у реки, и каждое утро</p>".encode("cp1251"), "utf-16", "cp1251"),
        # seven bits
        ("<p>水車小屋</p>".encode("iso2022_jp"), "utf-8", "iso2022_jp"),
        ("<p>磨坊就在河边</p>".encode("hz"), "hz-gb-2312", "hz"),
    ],
)
def test_evidence(payload, header, name):
    assert encoding_of(payload, header, True).name == name


def test_halves_of_a_character_of_utf16_in_utf8():
    payload = b"mill " + "\ud83c\udf5e".encode("utf-8", "surrogatepass")
    assert decode(payload, guess(payload)) == "mill 🍞"
    assert decode(b"\xed\xa0\x80", "utf-8") == "\ufffd\ufffd\ufffd"


def test_faults_are_characters_that_no_language_has_there():
    assert faults("Kniha leží na stole", "cp1250") == (0, 2)
    assert faults("ìùøè", "cp1252")[0] >= 1  # no language has both ø and ì
    assert faults("prÃ©fÃ©rÃ©", "cp1252")[0] > faults("préféré", "cp1252")[0] == 0
    assert faults("саfй", "cp1251")[0] == 2  # two scripts in one word
    assert faults("一二三", "gb18030") == (0, 3)
    assert faults("ｱｲｳ", "cp932") == (6, 3)


def test_an_excerpt_has_only_what_is_not_ascii_and_takes_time_linear_in_the_page():
    assert excerpt(b"<p>a</p><p class='\xe9'>b \xe9 c</p><i>d</i>") == b"p class='\xe9'\nb \xe9 c"
    assert len(excerpt(b"\xe9" * 100_000)) == 4096
    assert excerpt(b"x" * 3_000_000 + b" \xe9") == b"\xe9"
    assert len(excerpt((b"x" * 1000 + b"\xe9<") * 10)) < 100
    assert excerpt(b"") == b""


@pytest.mark.parametrize(
    "head,expected",
    [
        (b'<meta charset="windows-1251">', "cp1251"),
        (b"<META\nCHARSET = windows-1251 >", "cp1251"),
        (b"<meta/charset='windows-1251'>", "cp1251"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">', "cp1251"),
        (b"<meta content='text/html;charset=\"windows-1251\"' http-equiv=content-type>", "cp1251"),
        # without its pragma a content attribute means nothing
        (b'<meta name="x" content="text/html; charset=windows-1251">', None),
        (b'<!-- <meta charset="koi8-r"> --><meta charset="windows-1251">', "cp1251"),
        (b'<!--><meta charset="windows-1251">', "cp1251"),
        (b'<p title="<meta charset=koi8-r>"><meta charset="windows-1251">', "cp1251"),
        (b'<!doctype html><?php ?><meta charset="windows-1251">', "cp1251"),
        (b'<metadata charset="windows-1251">', None),
        # the first one that is known counts, and the first attribute of a name
        (b'<meta charset="none"><meta charset="windows-1251"><meta charset="koi8-r">', "cp1251"),
        (b'<meta charset="windows-1251" charset="koi8-r">', "cp1251"),
        # what could be read so far is not UTF-16
        (b'<meta charset="utf-16">', "utf-8"),
        (b'<meta charset="x-user-defined">', "cp1252"),
        (b'<meta charset="iso-8859-1">', "cp1252"),
        (b'<meta charset="gb2312">', "gb18030"),
        (b'<?xml version="1.0" encoding="windows-1251"?><html>', "cp1251"),
        (b'<?xml version="1.0" encoding="koi8-r"?><meta charset="windows-1251">', "cp1251"),
        ("<?xml".encode("utf-16-le"), "utf-16-le"),
        (b" " * 1015 + b'<meta charset="windows-1251">', None),
        (b"<meta charset=", None),
        (b'<meta charset="windows-1251', None),
        (b"<", None),
        (b"", None),
    ],
)
def test_prescan(head, expected):
    assert prescan(head) == expected


@pytest.mark.parametrize(
    "payload,charset,text",
    [
        (b"\x80\x85\x81", "iso-8859-1", "€…\x81"),
        (b"\x80\x85", "ascii", "€…"),
        (b"caf\xc3\xa9 \xff", "utf-8", "café \ufffd"),
        (b"\xef\xbb\xbfx", "utf-8", "x"),
        (b"\xff\xfex\x00", "utf-16-le", "x"),
        (b"\x00\xd8x\x00", "utf-16-le", "\ufffdx"),
        (b"\xa1", "no-such-thing", "\ufffd"),
        (b"abc", "base64", "abc"),
        (b"abc", "idna", "abc"),
        (b"abc", "undefined", "abc"),
        (b"\x80", "gbk", "€"),
        (b"\x87\x40", "shift_jis", "①"),
        (b"", "utf-8", ""),
    ],
)
def test_decode(payload, charset, text):
    assert decode(payload, charset) == text


def test_text_can_always_be_written():
    for name in (
        "utf-8",
        "utf-16-le",
        "utf-32-le",
        "utf-7",
        "unicode_escape",
        "raw_unicode_escape",
        "gb18030",
        "cp1255",
    ):
        for payload in (bytes(range(256)) * 2, b"\xed\xa0\x80", b"\\ud800", b"\x00\xd8", b"+2AA-"):
            decode(payload, name).encode()
