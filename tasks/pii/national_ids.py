"""National identity numbers, of the countries that the step names.

Masked is a number of its country's form with right check digits and a possible date, by `stdnum`. Behind a word only,
as given here, stand those whose form and check digit leave more than about one in a hundred numbers of their length.
Numbers of the United States and the National Insurance numbers of the United Kingdom have no check digit at all: form
and word decide. Korean numbers given since October 2020, which have no check digit either, are not masked.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple


class _Form(NamedTuple):
    """How a number is written, which module of stdnum judges it ("": its form says all), and a word before it."""

    written: str
    module: str = ""
    word: str = ""


_INSURANCE = r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]"
_FORMS: dict[str, Sequence[_Form]] = {
    "AR": [_Form(r"(?:20|23|24|27)-\d{8}-\d", "ar.cuit")],
    "AU": [_Form(r"\d{3} ?\d{3} ?\d{3}", "au.tfn", "tfn|tax file")],
    "BE": [
        _Form(r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}", "be.nn"),
        _Form(r"\d{11}", "be.nn", "rijksregister|registre national|insz|niss"),
    ],
    "BG": [_Form(r"\d{10}", "bg.egn", "ЕГН|egn")],
    "BR": [_Form(r"\d{3}\.\d{3}\.\d{3}-\d{2}", "br.cpf"), _Form(r"\d{9}-?\d{2}", "br.cpf", "cpf")],
    "CA": [_Form(r"\d{3}[ -]?\d{3}[ -]?\d{3}", "ca.sin", "sin|social insurance|nas|assurance sociale")],
    "CH": [_Form(r"756\.\d{4}\.\d{4}\.\d{2}", "ch.ssn")],
    "CL": [_Form(r"\d{1,2}\.\d{3}\.\d{3}-[\dkK]", "cl.rut"), _Form(r"\d{7,8}-[\dkK]", "cl.rut", "rut|run")],
    "CN": [_Form(r"\d{17}[\dXx]", "cn.ric")],
    "CZ": [_Form(r"\d{6}/?\d{4}", "cz.rc", r"rodn[ée]|r\. ?č\.")],
    "DE": [_Form(r"\d{2} ?\d{3} ?\d{3} ?\d{3}", "de.idnr", r"steuer-?id|idnr|identifikationsnummer|steuernummer|tin")],
    "DK": [_Form(r"\d{6}-?\d{4}", "dk.cpr", "cpr|personnummer")],
    "EE": [_Form(r"\d{11}", "ee.ik", "isikukood")],
    "ES": [
        _Form(r"\d{2}\.?\d{3}\.?\d{3}[ -]?[A-Z]", "es.dni", "dni|nif|documento"),
        _Form(r"[XYZ]-?\d{7}-?[A-Z]", "es.nie", "nie|nif|dni|extranjero"),
    ],
    "FI": [_Form(r"\d{6}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]", "fi.hetu")],
    "FR": [
        _Form(
            r"[12] ?\d{2} ?(?:0[1-9]|1[0-2]|[2-9]\d) ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}",
            "fr.nir",
            r"s[ée]curit[ée] sociale|s[ée]cu|nir|insee|n° ?ss",
        )
    ],
    "GB": [
        _Form(_INSURANCE, "", r"national insurance|nino|ni (?:no|number)"),
        _Form(r"\d{3}[ -]?\d{3}[ -]?\d{4}", "gb.nhs", "nhs"),
    ],
    "GR": [_Form(r"\d{11}", "gr.amka", "ΑΜΚΑ|amka")],
    "HR": [_Form(r"\d{11}", "hr.oib", "oib")],
    "IE": [_Form(r"\d{7}[A-W][A-IW]?", "ie.pps", r"ppsn?|pps no")],
    "IL": [_Form(r"\d{9}", "il.idnr", r"ת\.?\"?ז|תעודת זהות|teudat zehut")],
    "IN": [
        _Form(r"\d{4}[ -]?\d{4}[ -]?\d{4}", "in_.aadhaar", "aadhaa?r|आधार|uidai|uid"),
        _Form(r"[A-Z]{5}\d{4}[A-Z]", "in_.pan", "pan|permanent account"),
    ],
    "IT": [_Form(r"[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]", "it.codicefiscale")],
    "JP": [_Form(r"\d{4}[ -]?\d{4}[ -]?\d{4}", "jp.in_", "マイナンバー|個人番号|my number")],
    "KR": [_Form(r"\d{6}-\d{7}", "kr.rrn"), _Form(r"\d{13}", "kr.rrn", "주민(?:등록)?번호")],
    "LT": [_Form(r"\d{11}", "lt.asmens", "asmens kodas")],
    "MX": [_Form(r"[A-Z]{4}\d{6}[HM][A-Z]{5}[A-Z\d]\d", "mx.curp")],
    "NL": [_Form(r"\d{4}[. ]?\d{2}[. ]?\d{3}", "nl.bsn", "bsn|burgerservicenummer|sofi")],
    "NO": [_Form(r"\d{6} ?\d{5}", "no.fodselsnummer", "f[øo]dselsnummer|fnr|personnummer")],
    "PL": [_Form(r"\d{11}", "pl.pesel", "pesel")],
    "PT": [_Form(r"\d{3} ?\d{3} ?\d{3}", "pt.nif", "nif|contribuinte")],
    "RO": [_Form(r"\d{13}", "ro.cnp", "cnp")],
    "SE": [
        _Form(r"(?:\d{2})?\d{6}[-+]\d{4}", "se.personnummer"),
        _Form(r"(?:\d{2})?\d{10}", "se.personnummer", "person(?:nummer|nr)"),
    ],
    "TH": [_Form(r"\d-?\d{4}-?\d{5}-?\d{2}-?\d", "th.pin", "บัตรประชาชน|ประจำตัวประชาชน")],
    "TR": [_Form(r"\d{11}", "tr.tckimlik", r"t\.?c\.?(?: ?kimlik)?(?: no)?|kimlik no")],
    "US": [_Form(r"\d{3}-\d{2}-\d{4}|\d{3} \d{2} \d{4}|\d{9}", "us.ssn", r"ssn|social security|soc\.? sec")],
    "ZA": [_Form(r"\d{6} ?\d{4} ?\d{2} ?\d", "za.idnr", r"id(?:entity)? (?:no|number)|said")],
}
COUNTRIES = tuple(_FORMS)
_MARGIN = 10  # bytes of a number that may stand beside a candidate
_LONGEST = 40  # a longer candidate is a row of a table


@cache
def _module(name: str) -> Callable[[str], bool]:
    return import_module(f"stdnum.{name}").is_valid


def _valid(module: str, written: str) -> bool:
    # some modules read numbers with separators, some without them
    return _module(module)(written) or _module(module)(re.sub(r"[ .-]", "", written))


@cache
def _compiled(country: str) -> list[tuple[re.Pattern[str], str, re.Pattern[str] | None]]:
    return [
        (
            re.compile(rf"(?<![\w.+/=-])(?:{form.written})(?!\w|[.,:/-]\w)", re.ASCII),
            form.module,
            re.compile(rf"(?:{form.word})[^\d\n]{{0,24}}\Z", re.IGNORECASE) if form.word else None,
        )
        for form in _FORMS[country]
    ]


def national_ids(value: bytes, before: bytes, after: bytes, countries: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where numbers of the countries stand that overlap the candidate, given the bytes around it."""
    if len(value) > _LONGEST:
        return []
    # one character a byte, so that places are bytes
    text = (before[-_MARGIN:] + value + after[:_MARGIN]).decode("latin-1").translate(_SEPARATE)
    shift = min(_MARGIN, len(before))
    found = []
    for country in countries:
        for written, module, word in _compiled(country):
            for match in written.finditer(text):
                start, stop = match.start() - shift, match.end() - shift
                if stop <= 0 or start >= len(value) or (module and not _valid(module, match[0])):
                    continue
                said = before + value[:start] if start >= 0 else before[:start]
                if word is None or word.search(said.decode("utf-8", "ignore")):
                    found.append((start, stop))
    return sorted(set(found))


# letters of other scripts stand beside numbers without a space
_SEPARATE = {code: "\x00" for code in range(0x80, 0x100)}
