"""Personal data and keys in texts, all made up, and what looks like them but is none."""

import re
import string
from random import Random

from tests.planted.text import Block, joined

_LETTERS = {"#": string.digits, "~": string.ascii_lowercase, "^": string.ascii_uppercase, "%": string.hexdigits[:16]}
_LETTERS["*"] = string.ascii_letters + string.digits
# Account numbers by country (ISO 13616 registry); the check digits come first.
_IBAN = {"DE": "#" * 18, "FR": f"{'#' * 20}^##", "GB": f"^^^^{'#' * 14}", "NL": f"^^^^{'#' * 10}", "PL": "#" * 24}
# Forms of the values: # a digit, ~ and ^ a letter, % a hexadecimal digit, * letter or digit, <a-b> a number.
_FORMS = {
    "email": tuple(
        f"~~~{second}@{host}"
        for second in ("~", "~~~~~", ".~~~#", "_~~##", "+~~", "-~##~")
        for host in ("planted-mill.com", "mail.planted-bread.co.uk", "planted-wheel.org", "planted-corn.de")
    ),
    "ipv4": ("<11-99>.<0-255>.<0-255>.<1-250>", "<193-195>.<0-255>.<0-255>.<1-250>"),
    "ipv6": ("2a0#:1%%%:2%%%::3%%%", "2a0#:1%%%:2%%%:0:3%%%:4%%%:5%%%:%"),
    # Numbers kept for fiction: North America 555-01xx, Ofcom's, and Arcep's for films; and of German form.
    "phone": (
        *(form.format(area) for form in ("+1 {}-555-01##", "({}) 555-01##", "{}-555-01##") for area in (212, 415, 604)),
        *("+44 20 7946 0###", "+33 1 99 00 ## ##", "+49 30 23125 ###"),
    ),
    # Of the form of real keys, with FAKE inside.
    "api_key": (
        *("AKIAFAKE^^^^^^^^^^^^", f"ghp_FAKE{'*' * 32}", f"AIzaFAKE{'*' * 31}", f"sk_live_FAKE{'*' * 20}"),
        f"xoxb-{'#' * 12}-{'#' * 12}-FAKE{'*' * 20}",
    ),
    "version": ("<0-30>.<0-99>.<0-99>",),
    "version_four": ("v<1-30>.<0-99>.<0-99>.<0-99>",),
    "private_ipv4": (
        *("10.<0-255>.<0-255>.<1-250>", "192.168.<0-255>.<1-250>", "172.<16-31>.<0-255>.<1-250>"),
        *("127.0.<0-255>.<1-250>", "203.0.113.<1-250>"),
    ),
    "private_ipv6": ("fd00::1%%%:2%%%:3%%%:4%%%", "2001:db8::1%%%:2%%%:3%%%:4%%%"),
    "no_ipv4": ("<256-999>.<0-999>.<0-999>.<0-999>",),
    "number": ("<1-999>,###,###",),
    "years": ("<1800-1950>-<1951-2025>",),
    "date": ("<1900-2025>-<10-12>-<10-28>", "<1900-2025>-0<1-9>-0<1-9>"),
    "isbn": ("978-#-###-#####-#",),
    "uuid": ("%%%%%%%%-%%%%-4%%%-8%%%-%%%%%%%%%%%%",),
    "commit": ("%" * 40,),
    "clock": ("<10-23>:<10-59>:<10-59>", "0#:0#:<10-59>"),
    "handle": ("@~~~~~~~~",),
    "package": ("~~~~~~@<0-30>.<0-99>.0",),
    "copy_target": ("~~~~~@planted-mill.com:/srv/%%%%",),
    "repository": ("git@planted-mill.com:~~~~~~~/mill.git",),
    "documentation_email": ("~~~~~~@example.com", "~~~~~~@example.org"),
    "section": ("<1-9>.<1-9>.<1-9>.<1-9>",),
    "timestamp": ("1############",),
    "localhost": ("~~~~~@localhost",),
}
_LEAD_IN = {"phone": "phone", "email": "mail", "ipv4": "address", "ipv6": "address", "iban": "IBAN"}
_LEAD_IN |= {"credit_card": "card", "version": "version"}


def _form(rng: Random, kind: str) -> str:
    form = re.sub(r"<(\d+)-(\d+)>", lambda m: str(rng.randint(int(m[1]), int(m[2]))), rng.choice(_FORMS[kind]))
    return re.sub(r"[#~^%*]", lambda m: rng.choice(_LETTERS[m[0]]), form)


def _iban(rng: Random, kind: str) -> str:
    """Check digits by ISO 7064 mod 97-10, off by something if they are to be wrong."""
    country = rng.choice(sorted(_IBAN))
    account = re.sub(r"[#^]", lambda m: rng.choice(_LETTERS[m[0]]), _IBAN[country])
    check = 96 - int("".join(str(int(c, 36)) for c in account + country + "00")) % 97
    number = f"{country}{(check + (rng.randint(1, 96) if kind == 'wrong_iban' else 0)) % 97 + 2:02d}{account}"
    return re.sub(r"(.{4})(?=.)", r"\1 ", number) if rng.random() < 0.5 else number


def _card(rng: Random, kind: str) -> str:
    """The last digit makes the number pass (ISO/IEC 7812-1, annex B), or not."""
    start, size = rng.choice((("4", 16), ("51", 16), ("55", 16), ("6011", 16), ("37", 15)))
    number = start + "".join(rng.choices(string.digits, k=size - 1 - len(start)))
    total = sum(sum(divmod(2 * int(d), 10)) if i % 2 == 0 else int(d) for i, d in enumerate(reversed(number)))
    number += str((-total + (rng.randint(1, 9) if kind == "wrong_card" else 0)) % 10)
    groups = (0, 4, 10, 15) if size == 15 else (0, 4, 8, 12, 16)
    return rng.choice(("", " ", "-")).join(number[a:b] for a, b in zip(groups, groups[1:], strict=False))


_MAKE = {"iban": _iban, "wrong_iban": _iban, "credit_card": _card, "wrong_card": _card}
KINDS = ("email", "ipv4", "ipv6", "phone", "iban", "credit_card", "api_key")
LOOKALIKES = tuple(kind for kind in (*_FORMS, *_MAKE) if kind not in KINDS)


def insert(rng: Random, parts: tuple[Block, ...], kind: str) -> tuple[tuple[Block, ...], list[dict]]:
    """The text with one to eight values between words of its paragraphs; and their spans in the joined text.

    Half of the values have a word before them that says what they are, where there is one.
    """
    split = [b.text.split(" ") for b in parts]
    values: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 6, 8))):
        value = _MAKE.get(kind, _form)(rng, kind)
        if any(value in other or other in value for other in values):
            continue
        values.append(value)
        words = split[rng.choice([i for i, b in enumerate(parts) if b.kind == "p"])]
        lead = [_LEAD_IN[kind]] if kind in _LEAD_IN and rng.random() < 0.5 else []
        at = rng.randint(0, len(words))
        words[at:at] = [*lead, value]
    parts = tuple(Block(b.kind, " ".join(words)) for b, words in zip(parts, split, strict=True))
    starts = sorted((joined(parts).index(value), value) for value in values)
    return parts, [{"kind": kind, "start": at, "end": at + len(value), "value": value} for at, value in starts]
