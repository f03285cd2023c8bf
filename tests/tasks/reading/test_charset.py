"""Which encoding a page is read in, and what text it gives."""

import codecs

import pytest

from gristmill.tasks.reading.charset import decode, detect, guess, prescan

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
    assert detect(page.encode(), "windows-1251", True) == "cp1251"
    assert detect(page.encode(), "no-such-thing", True) == "koi8-r"
    assert detect(page.encode(), None, True) == "koi8-r"
    assert detect(page.encode(), None, False) == "utf-8"
    assert detect(PROSE["cp1252"].encode("cp1252"), None, False) == "cp1252"
    assert detect(b"", None, True) == "utf-8"


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
