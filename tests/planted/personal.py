"""Personal data and keys in texts, all made up, and what looks like them but is none."""

import ipaddress
import re
import string
from collections.abc import Callable
from random import Random

from tests.planted.text import Block, joined

_LOWER_DIGITS = string.ascii_lowercase + string.digits
_KEY = string.ascii_letters + string.digits
# ISO 13616 registry: letters and digits of the account number, by country (the check digits come first).
_IBAN = {"DE": "n18", "FR": "n20a1n2", "GB": "a4n14", "NL": "a4n10", "ES": "n20", "PL": "n24", "AT": "n16", "CH": "n17"}
# Area codes of cities of North America.
_AREAS = (206, 212, 213, 303, 305, 312, 403, 404, 412, 415, 416, 504, 512, 514, 602, 604, 612, 617, 702, 713, 808, 907)


def _digits(rng: Random, n: int) -> str:
    return "".join(rng.choice(string.digits) for _ in range(n))


def _drawn(rng: Random, letters: str, n: int) -> str:
    return "".join(rng.choice(letters) for _ in range(n))


def _email(rng: Random) -> str:
    name = _drawn(rng, string.ascii_lowercase, rng.randint(3, 8))
    second = rng.choice(("", ".", "_", "+", "-"))
    second += _drawn(rng, _LOWER_DIGITS, rng.randint(2, 8)) if second else ""
    host = rng.choice(("planted-mill.com", "mail.planted-bread.co.uk", "planted-wheel.org", "planted-corn.de"))
    return f"{name}{second}@{host}"


def _ipv4(rng: Random, public: bool = True) -> str:
    while True:
        if public:
            address = ipaddress.IPv4Address(rng.getrandbits(32))
        else:
            network = rng.choice(("10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12", "127.0.0.0/8", "203.0.113.0/24"))
            address = ipaddress.IPv4Network(network)[rng.randrange(1, 250)]
        if address.is_global == public and not address.is_multicast:
            return str(address)


def _ipv6(rng: Random, public: bool = True) -> str:
    prefix = 0x2A0000000000 | rng.getrandbits(40) if public else rng.choice((0xFD0000000000, 0x20010DB80000))
    address = ipaddress.IPv6Address(prefix << 80 | rng.getrandbits(64))
    assert address.is_global == public
    return str(address)


def _phone(rng: Random) -> str:
    """Numbers kept for fiction: North America 555-01xx, Ofcom's, and Arcep's for films; and of German form."""
    area = rng.choice(_AREAS)
    return rng.choice(
        (
            lambda: f"+1 {area}-555-01{_digits(rng, 2)}",
            lambda: f"({area}) 555-01{_digits(rng, 2)}",
            lambda: f"{area}-555-01{_digits(rng, 2)}",
            lambda: f"+44 20 7946 0{_digits(rng, 3)}",
            lambda: f"+33 1 99 00 {_digits(rng, 2)} {_digits(rng, 2)}",
            lambda: f"+49 30 23125 {_digits(rng, 3)}",
        )
    )()


def iban_check(country: str, account: str) -> str:
    """Check digits by ISO 7064 mod 97-10."""
    number = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{98 - int(number) % 97:02d}"


def _iban(rng: Random, right: bool = True) -> str:
    country = rng.choice(sorted(_IBAN))
    account = "".join(
        _drawn(rng, string.digits if kind == "n" else string.ascii_uppercase, int(n))
        for kind, n in re.findall(r"([na])(\d+)", _IBAN[country])
    )
    check = iban_check(country, account)
    if not right:
        check = f"{(int(check) - 2 + rng.randint(1, 96)) % 97 + 2:02d}"
    number = country + check + account
    return " ".join(number[i : i + 4] for i in range(0, len(number), 4)) if rng.random() < 0.5 else number


def luhn_check(number: str) -> str:
    """The digit that makes the number with it pass (ISO/IEC 7812-1, annex B)."""
    total = sum(sum(divmod(2 * int(d), 10)) if i % 2 == 0 else int(d) for i, d in enumerate(reversed(number)))
    return str(-total % 10)


def _card(rng: Random, right: bool = True) -> str:
    start, size = rng.choice((("4", 16), ("51", 16), ("55", 16), ("6011", 16), ("37", 15)))
    number = start + _digits(rng, size - 1 - len(start))
    check = luhn_check(number)
    number += check if right else str((int(check) + rng.randint(1, 9)) % 10)
    groups = (0, 4, 10, 15) if size == 15 else (0, 4, 8, 12, 16)
    separator = rng.choice(("", " ", "-"))
    return separator.join(number[a:b] for a, b in zip(groups, groups[1:], strict=False))


def _api_key(rng: Random) -> str:
    """Of the form of real keys, with FAKE inside."""
    return rng.choice(
        (
            lambda: "AKIA" + "FAKE" + _drawn(rng, string.ascii_uppercase + "234567", 12),
            lambda: "ghp_" + "FAKE" + _drawn(rng, _KEY, 32),
            lambda: "AIza" + "FAKE" + _drawn(rng, _KEY, 31),
            lambda: "sk_live_" + "FAKE" + _drawn(rng, _KEY, 20),
            lambda: f"xoxb-{_digits(rng, 12)}-{_digits(rng, 12)}-FAKE{_drawn(rng, _KEY, 20)}",
        )
    )()


KINDS: dict[str, Callable[[Random], str]] = {
    "email": _email,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "phone": _phone,
    "iban": _iban,
    "credit_card": _card,
    "api_key": _api_key,
}
LOOKALIKES: dict[str, Callable[[Random], str]] = {
    "version": lambda rng: f"{rng.randint(0, 30)}.{rng.randint(0, 99)}.{rng.randint(0, 99)}",
    "version_four": lambda rng: f"v{rng.randint(1, 30)}.{rng.randint(0, 99)}.{rng.randint(0, 99)}.{rng.randint(0, 99)}",
    "private_ipv4": lambda rng: _ipv4(rng, public=False),
    "private_ipv6": lambda rng: _ipv6(rng, public=False),
    "no_ipv4": lambda rng: f"{rng.randint(256, 999)}.{rng.randint(0, 999)}.{rng.randint(0, 999)}.{rng.randint(0, 999)}",
    "wrong_iban": lambda rng: _iban(rng, right=False),
    "wrong_card": lambda rng: _card(rng, right=False),
    "number": lambda rng: f"{rng.randint(1, 999)},{_digits(rng, 3)},{_digits(rng, 3)}",
    "years": lambda rng: f"{rng.randint(1800, 1950)}-{rng.randint(1951, 2025)}",
    "date": lambda rng: f"{rng.randint(1900, 2025)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    "isbn": lambda rng: f"978-{_digits(rng, 1)}-{_digits(rng, 3)}-{_digits(rng, 5)}-{_digits(rng, 1)}",
    "uuid": lambda rng: f"{_hex(rng, 8)}-{_hex(rng, 4)}-4{_hex(rng, 3)}-8{_hex(rng, 3)}-{_hex(rng, 12)}",
    "commit": lambda rng: _hex(rng, 40),
    "clock": lambda rng: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}",
    "handle": lambda rng: "@" + _drawn(rng, string.ascii_lowercase, 8),
    "package": lambda rng: f"{_drawn(rng, string.ascii_lowercase, 6)}@{rng.randint(0, 30)}.{rng.randint(0, 99)}.0",
    "copy_target": lambda rng: f"{_drawn(rng, string.ascii_lowercase, 5)}@planted-mill.com:/srv/{_hex(rng, 4)}",
    "repository": lambda rng: f"git@planted-mill.com:{_drawn(rng, string.ascii_lowercase, 7)}/mill.git",
    "documentation_email": lambda rng: f"{_drawn(rng, string.ascii_lowercase, 6)}@example.{rng.choice(('com', 'org'))}",
    "section": lambda rng: ".".join(str(rng.randint(1, 9)) for _ in range(4)),
    "timestamp": lambda rng: f"1{_digits(rng, 12)}",
    "localhost": lambda rng: f"{_drawn(rng, string.ascii_lowercase, 5)}@localhost",
}
_LEAD_IN = {
    "phone": "phone",
    "email": "mail",
    "ipv4": "address",
    "ipv6": "address",
    "iban": "IBAN",
    "credit_card": "card",
    "version": "version",
}


def _hex(rng: Random, n: int) -> str:
    return _drawn(rng, "0123456789abcdef", n)


def insert(
    rng: Random, parts: tuple[Block, ...], kind: str, make: Callable[[Random], str]
) -> tuple[tuple[Block, ...], list[dict]]:
    """The text with one to eight values between words of its paragraphs; and their spans in the joined text.

    Half of the values have a word before them that says what they are, where there is one.
    """
    values = list(dict.fromkeys(make(rng) for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 6, 8)))))
    split = [b.text.split(" ") for b in parts]
    paragraphs = [i for i, b in enumerate(parts) if b.kind == "p"]
    marks = []
    for n in range(len(values)):
        words = split[rng.choice(paragraphs)]
        lead = [_LEAD_IN[kind]] if kind in _LEAD_IN and rng.random() < 0.5 else []
        at = rng.randint(0, len(words))
        # private-use characters stand for the value until its place is known
        marks.append(chr(0xE000 + n))
        words[at:at] = [*lead, marks[-1]]
    text = joined(tuple(Block(b.kind, " ".join(w)) for b, w in zip(parts, split, strict=True)))
    spans, shift = [], 0
    for place, mark in sorted((text.index(mark), mark) for mark in marks):
        value = values[ord(mark) - 0xE000]
        start = place + shift
        spans.append({"kind": kind, "start": start, "end": start + len(value), "value": value})
        shift += len(value) - 1
    filled = [" ".join(values[ord(w) - 0xE000] if w in marks else w for w in words) for words in split]
    return tuple(Block(b.kind, t) for b, t in zip(parts, filled, strict=True)), spans
