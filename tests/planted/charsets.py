"""Encodings of pages, and what the pages say about them: right, wrong, contradictory or nothing."""

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class Charset:
    """`label` as a page names it, `codec` as Python does; which browsers use for the label (WHATWG Encoding)."""

    label: str
    codec: str
    languages: tuple[str, ...]


@dataclass(frozen=True)
class Declared:
    """What the HTTP header and the meta element say (None: nothing), what comes before the first character."""

    charset: Charset
    header: str | None
    meta: str | None
    mark: bytes = b""

    def encode(self, page: str) -> bytes:
        """Characters that the encoding lacks become character references."""
        return self.mark + page.encode(self.charset.codec, "xmlcharrefreplace")


_CHARSETS = (
    Charset("utf-8", "utf-8", ("ru", "de", "ja", "ar")),
    Charset("windows-1252", "cp1252", ("de", "fr", "es")),
    Charset("iso-8859-1", "cp1252", ("de", "es")),
    Charset("iso-8859-15", "iso8859-15", ("fr",)),
    Charset("windows-1250", "cp1250", ("pl",)),
    Charset("iso-8859-2", "iso8859-2", ("pl",)),
    Charset("windows-1251", "cp1251", ("ru",)),
    Charset("koi8-r", "koi8-r", ("ru",)),
    Charset("iso-8859-5", "iso8859-5", ("ru",)),
    Charset("windows-1256", "cp1256", ("ar",)),
    Charset("windows-874", "cp874", ("th",)),
    Charset("shift_jis", "cp932", ("ja",)),
    Charset("euc-jp", "euc-jp", ("ja",)),
    Charset("iso-2022-jp", "iso2022-jp", ("ja",)),
    Charset("gb18030", "gb18030", ("zh",)),
    Charset("gbk", "gbk", ("zh",)),
    Charset("euc-kr", "cp949", ("ko",)),
)
_UTF_16 = (
    Declared(Charset("utf-16le", "utf-16-le", ("ru", "zh", "en")), None, None, codecs.BOM_UTF16_LE),
    Declared(Charset("utf-16be", "utf-16-be", ("ru", "zh", "en")), None, None, codecs.BOM_UTF16_BE),
)


def _variants() -> dict[str, Declared]:
    found = {}
    for c in _CHARSETS:
        wrong = "windows-1252" if c.codec == "utf-8" else "utf-8"
        found[f"{c.label}/header"] = Declared(c, c.label, None)
        found[f"{c.label}/meta"] = Declared(c, None, c.label)
        found[f"{c.label}/none"] = Declared(c, None, None)
        found[f"{c.label}/header_over_meta"] = Declared(c, c.label, wrong)
        found[f"{c.label}/wrong_header"] = Declared(c, wrong, c.label)
        found[f"{c.label}/wrong_meta"] = Declared(c, None, wrong)
    for u in _UTF_16:
        found[f"{u.charset.label}/bom"] = u
        found[f"{u.charset.label}/bom_over_header"] = Declared(u.charset, "iso-8859-1", None, u.mark)
    utf8 = _CHARSETS[0]
    found["utf-8/bom"] = Declared(utf8, None, None, codecs.BOM_UTF8)
    found["utf-8/bom_over_header"] = Declared(utf8, "iso-8859-1", "windows-1251", codecs.BOM_UTF8)
    return found


# Name: encoding, then how it is declared. In `wrong_*` what counts by the HTML standard is wrong; in
# `*_over_*` what counts is right and what does not is wrong.
VARIANTS = _variants()
