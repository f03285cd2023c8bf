"""National identity numbers, of the countries that the step names.

Masked is a number of its country's form with correct check digits and a possible date, according to `stdnum`. Numbers
of a form that more than about one in a hundred numbers of their length have are only masked after one of the words
here. Numbers of the United States and the National Insurance numbers of the United Kingdom have no check digit at all:
form and word decide. Korean numbers given since October 2020, which have no check digit either, are not masked.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
from stdnum import iban, luhn, numdb

_KNOWN = frozenset(
    b"8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 9.9.9.9 149.112.112.112 208.67.222.222 208.67.220.220 4.2.2.1 4.2.2.2 "
    # datatrove src/datatrove/pipeline/formatters/pii.py
    b"22.214.171.124 126.96.36.199 188.8.131.52 184.108.40.206 220.127.116.11 18.104.22.168".split()
)
_KNOWN_6 = frozenset(
    map(
        ipaddress.IPv6Address,
        ("2001:4860:4860::8888", "2001:4860:4860::8844", "2606:4700:4700::1111", "2606:4700:4700::1001", "2620:fe::fe"),
    )
)
# Numbers of versions, sections and the like are seldom larger.
_SMALL, _VERY_SMALL = 31, 9
_ADDRESS_WORD = re.compile(
    rb"\b(?:ip|ipv4|ip[ -]?address(?:es)?|address|addr|host|hostname|server|gateway|router|dns|nameserver|ping|proxy|"
    rb"peer|client|inet|traceroute)\b[ \t:=\"'`(\[<]{0,4}(?:(?:is|was|of|at|to|from|by)\b[ \t:\"'`]{0,3})?\Z"
    rb"|https?://(?:\S*@)?\Z|@\Z",
    re.IGNORECASE,
)
_VERSION_WORD = re.compile(
    rb"(?:\b|_)(?:v|ver|vers|version|versions|release|releases|rel|build|firmware|fw|update|driver|drivers|revision|rev|"
    rb"sections?|sect?|chapters?|clauses?|paragraphs?|para|appendix|tables?|figures?|fig|rules?|parts?|articles?|"
    rb"items?|steps?|oid|asn|patch|sdk|kernel|bios|spec|schema|assembly)\b\W{0,4}\Z",
    re.IGNORECASE,
)
_QUAD_BEFORE = re.compile(rb"(?:[.,\d][.,]?|[-+\\~^#$&*%]|[^/]/|^/|[<>=~!]=\s?|[<>]\s|\xe2\x80[\x90-\x95])\Z")
_QUAD_AFTER = re.compile(rb"\.?[A-Za-z0-9_]|/\d{1,2}(?!\d)|[-+*~%]|,\d|\xe2\x80[\x90-\x95]")
_HEXTETS_AFTER = re.compile(rb"[A-Za-z0-9_:]|\.\w|/\d")
# The first and the last that IANA has given to a registry, and room for its next blocks.
_UNICAST = ipaddress.IPv6Address("2001:200::"), ipaddress.IPv6Address("2fff:ffff::")


def ipv4(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has an address, given the bytes around it."""
    if _QUAD_AFTER.match(after) or _QUAD_BEFORE.search(before) or value in _KNOWN:
        return []
    try:
        address = ipaddress.IPv4Address(value.decode("ascii"))
    except ValueError:
        return []
    if not address.is_global or address.is_multicast:
        return []
    octets = address.packed
    if octets[3] in (0, 255) or len(set(octets)) == 1:
        return []
    if not _ADDRESS_WORD.search(before):
        first, small = octets[0], sum(octet <= _SMALL for octet in octets[1:])
        if _VERSION_WORD.search(before) or small >= (1 if first <= _VERY_SMALL else 2 if first <= _SMALL else 3):
            return []
    return [(0, len(value))]


def ipv6(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has an address, given the bytes around it."""
    if before[-1:] in (b".", b"-") or _HEXTETS_AFTER.match(after):
        return []
    end = len(value.rstrip(b":")) if not value.endswith(b"::") else len(value)
    try:
        address = ipaddress.IPv6Address(value[:end].decode("ascii"))
    except ValueError:
        return []
    groups = [group for group in value[:end].split(b":") if group]
    inner = address.sixtofour or address
    if not _UNICAST[0] <= address <= _UNICAST[1] or not inner.is_global or len(groups) < 3 or address in _KNOWN_6:
        return []
    return [(0, end)] if int(address) & (1 << 64) - 1 else []


_BEFORE_IBAN = re.compile(rb"(?:[\w./\\+%@-]|(?<![A-Za-z])=)\Z", re.ASCII)
_AFTER_IBAN = re.compile(rb"[\w/\\=+%@-]| ?\d", re.ASCII)
_GROUPS = re.compile(rb"[A-Z0-9]{4}(?: [A-Z0-9]{4})+(?: [A-Z0-9]{1,3})?|[A-Z0-9]+")


@cache
def _length(country: str) -> int:
    """Characters of a country's numbers, 0 if it has none: the sum of its parts, such as `8!n10!n`, and four."""
    ((_, properties), *_) = numdb.get("iban").info(f"{country}00")
    return 4 + sum(map(int, re.findall(r"(\d+)!", properties["bban"]))) if "bban" in properties else 0


@cache
def lengths() -> np.ndarray:
    """The lengths of the numbers by the two letters of a country, int64, shape (26, 26); 0 where there are none."""
    letters = ascii_uppercase
    return np.array([[_length(a + b) for b in letters] for a in letters], np.int64)


def ibans(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has a number, given the bytes around it."""
    length = _length(value[:2].decode("ascii"))
    characters = [match.end() for match in re.finditer(rb"\S", value)]
    if not length or len(characters) < length:
        return []
    stop = characters[length - 1]
    number = value[:stop]
    if not _GROUPS.fullmatch(number) or _BEFORE_IBAN.search(before) or _AFTER_IBAN.match(value[stop:] + after):
        return []
    # national check digits differ between the banks of a country and between versions of the library
    return [(0, stop)] if iban.is_valid(number.decode("ascii"), check_country=False) else []


# By beginning: Visa, Mastercard, Discover, JCB and UnionPay; American Express; Diners Club.
_ISSUED = re.compile(
    rb"(?:4\d{3}|5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720|6011|64[4-9]\d|65\d{2}|352[89]|35[3-8]\d|62\d{2})"
    rb"\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
)
# Visa; UnionPay; Maestro; Mir; RuPay.
_ISSUED_IF_ANNOUNCED = re.compile(
    rb"4\d{12}(?:\d{6})?|62\d{15,17}|(?:50|5[6-9]|6[37]|60|69)\d{11,17}|220[0-4]\d{12,15}|(?:508|60|65|81|82)\d{13,14}"
)
_CARD_WORD = re.compile(
    r"(?:\b(?:visa|master ?card|maestro|amex|american express|discover|diners(?: club)?|jcb|mir|мир|rupay|unionpay|"
    r"ccn?|credit|debit|kredit)|cards?|karten?|cartes?|tarjetas?|cart[aã]o|carta|kaart|kort|kart[aıy]?|карт[аыу]|カード|"
    r"卡号?|카드)\b[^\d\n]{0,24}\Z",
    re.IGNORECASE,
)
# Of the documentation of Stripe, PayPal, Adyen and Braintree.
_TESTS = frozenset(
    "4111111111111111 4242424242424242 4012888888881881 4000056655665556 4000000000000002 4000000000000077 "
    "4000000000000341 4000000000009995 4000002500003155 4000002760003184 4444333322221111 4917610000000000 "
    "5555555555554444 5105105105105100 5200828282828210 5454545454545454 2223003122003222 2223000048400011 "
    "378282246310005 371449635398431 378734493671000 341111111111111 6011111111111117 6011000990139424 "
    "6011981111111113 30569309025904 38520000023237 36227206271667 3530111333300000 3566002020360505 "
    "6200000000000005 6205500000000000004".split()
)
# More of a word, a path or an expression; a call; a number with a decimal point or comma.
_BEFORE = re.compile(rb"(?:[\w./\\+$#%@&^*~-]|[\w)]\(|\d:|(?<![\w\"'/])>|<)\Z", re.ASCII)
_ASSIGNED = re.compile(rb"=\s?\Z")
_AFTER = re.compile(rb"[\w@%^*=+\\]|[.:/-]\w|\s?[*=^+]\s?\d", re.ASCII)
_NUMBER_BEFORE = re.compile(rb"(\d[\d -]*)[\"']?(?:[,;|\t]\s?|\s)[\"']?\Z")
_NUMBER_AFTER = re.compile(rb"[\"']?(?:[,;|\t]\s?|[ \n])[\"']?(-?\d(?:[\d/.]|[ -](?=\d{4,6}))*)")
# A date until which a card is good, or the digits on its back.
_BESIDE = re.compile(rb"(?:0[1-9]|1[0-2])[/-](?:20)?\d\d|\d{3}")
_MIN_DISTINCT = 4


def _is_card(text: bytes, is_announced: bool) -> bool:
    digits = re.sub(rb"\D", b"", text)
    if not _ISSUED.fullmatch(digits) and not (is_announced and _ISSUED_IF_ANNOUNCED.fullmatch(digits)):
        return False
    number = digits.decode("ascii")
    return number not in _TESTS and len(set(number)) >= _MIN_DISTINCT and luhn.is_valid(number)


def cards(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Whether the candidate is a card's number, given the bytes around it: all of it, or nothing."""
    if _BEFORE.search(before) or _AFTER.match(after) or not _is_card(value, is_announced=True):
        return []
    return [(0, len(value))] if _stands_alone(value, before, after) or _is_announced(before) else []


def _is_announced(before: bytes) -> bool:
    letters = re.search(rb"[^\d\n]*\Z", before)
    return letters is not None and _CARD_WORD.search(letters[0].decode("utf-8", "ignore")) is not None


def _stands_alone(value: bytes, before: bytes, after: bytes) -> bool:
    """Whether the number alone is a card number, and its neighbor in a list is another one, or belongs to it."""
    if not _is_card(value, is_announced=False) or _ASSIGNED.search(before):
        return False
    ahead, next_number = _NUMBER_BEFORE.search(before), _NUMBER_AFTER.match(after)
    if ahead and not _is_card(ahead[1], is_announced=False):
        return False
    return (
        not next_number or _BESIDE.fullmatch(next_number[1]) is not None or _is_card(next_number[1], is_announced=False)
    )


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
_MARGIN = 10  # bytes of a number that may be next to a candidate
_MAX_LENGTH = 40  # a longer candidate is a row of a table


@cache
def _module(name: str) -> Callable[[str], bool]:
    return import_module(f"stdnum.{name}").is_valid


def _valid(module: str, text: str) -> bool:
    # some modules read numbers with separators, some without them
    return _module(module)(text) or _module(module)(re.sub(r"[ .-]", "", text))


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
    """Where numbers of the countries overlap the candidate, given the bytes around it."""
    if len(value) > _MAX_LENGTH:
        return []
    # one character a byte, so that places are bytes
    text = (before[-_MARGIN:] + value + after[:_MARGIN]).decode("latin-1").translate(_SEPARATE)
    shift = min(_MARGIN, len(before))
    spans = []
    for country in countries:
        for pattern, module, word in _compiled(country):
            for match in pattern.finditer(text):
                start, stop = match.start() - shift, match.end() - shift
                if stop <= 0 or start >= len(value) or (module and not _valid(module, match[0])):
                    continue
                text_before = before + value[:start] if start >= 0 else before[:start]
                if word is None or word.search(text_before.decode("utf-8", "ignore")):
                    spans.append((start, stop))
    return sorted(set(spans))


# letters of other scripts are next to numbers without a space
_SEPARATE = {code: "\x00" for code in range(0x80, 0x100)}
