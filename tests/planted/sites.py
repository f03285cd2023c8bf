"""Made-up sites and their addresses: hosts, registered domains, canonical and other spellings of a URL."""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from tests.planted.text import word

# ICANN section of the public suffix list.
_SUFFIXES = ("com", "com", "com", "org", "net", "info", "co.uk", "com.au", "co.jp", "de", "fr", "es", "pl", "com.br")
_SUBDOMAINS = ("www.", "www.", "www.", "", "", "blog.", "news.", "en.m.")

BLOCKED_CATEGORY = "gambling"
BLOCKED_DOMAINS = ("planted-casino.com", "planted-poker.co.uk", "bets.planted-sports.org")
BLOCKED_URLS = ("planted-portal.net/slots",)
BLOCKED_EXPRESSION = r"(^|[-./])(online-?casino|free-?spins)([-./]|$)"
# `lookalike_*` must stay.
BLOCKED = ("domain", "subdomain", "path", "expression", "lookalike_domain", "lookalike_path")
RECRAWLS = ("same", "tracking", "changed")


@dataclass(frozen=True)
class Site:
    """`host` in the registered domain `domain`; `key` decides how its pages look."""

    host: str
    domain: str
    key: str
    ip: str


@dataclass(frozen=True)
class Address:
    """`url` as it was crawled; `canonical` without tracking parameters, port, fragment and capitals in the host."""

    url: str
    canonical: str
    host: str
    domain: str


@lru_cache(maxsize=8192)
def site(seed: int, index: int) -> Site:
    rng = Random(f"{seed}/site/{index}")
    name = "".join(c for c in word(rng, "en").lower() if c.isascii() and c.isalpha())
    domain = f"planted-{name}{index}.{rng.choice(_SUFFIXES)}"
    return Site(rng.choice(_SUBDOMAINS) + domain, domain, f"{seed}/{index}", f"203.0.113.{rng.randrange(256)}")


def choose(rng: Random, seed: int, pages: int) -> Site:
    """One of about pages / 40 sites, some of them much larger than others."""
    return site(seed, int(max(12, pages // 40) * rng.random() ** 2))


def address(rng: Random, at: Site, title: str, number: int) -> Address:
    """The canonical address of a page; its number makes it unique."""
    words = [w for w in title.lower().split() if w.isascii() and w.isalpha()]
    section = rng.choice(("news", "blog", "articles", "2024/10", "guide"))
    url = f"https://{at.host}/{section}/{'-'.join([*words[:5], str(number)])}"
    return Address(url, url, at.host, at.domain)


def respelt(rng: Random, canonical: Address) -> Address:
    """The same page under another spelling of its address."""
    host, path = canonical.url.removeprefix("https://").split("/", 1)
    number = rng.randrange(10**9)
    url = rng.choice(
        (
            f"{canonical.url}?utm_source=feed{number % 100}&utm_medium=rss&utm_campaign=c{number}",
            f"{canonical.url}?fbclid=IwAR{number}",
            f"{canonical.url}?gclid={number}&utm_content=x",
            f"{canonical.url}#section-{number % 10}",
            f"https://{host.upper()}/{path}",
            f"https://{host}:443/{path}",
        )
    )
    return Address(url, canonical.canonical, canonical.host, canonical.domain)


def blocked(rng: Random, variant: str, number: int) -> Address:
    """An address that the planted blocklist names, or (`lookalike_*`) nearly names."""
    listed = rng.choice(BLOCKED_DOMAINS[:2])
    host, path = {
        "domain": (rng.choice(BLOCKED_DOMAINS), f"page-{number}"),
        "subdomain": (f"www{number % 7}.{listed}", f"page-{number}"),
        "path": ("planted-portal.net", f"slots/{number}"),
        "expression": ("www.planted-holiday.com", f"{rng.choice(('online-casino', 'free-spins'))}/{number}"),
        "lookalike_domain": (rng.choice((f"not{listed}", "planted-sports.org")), f"page-{number}"),
        "lookalike_path": ("planted-portal.net", rng.choice((f"slotsmith/{number}", f"history-of-casinos-{number}"))),
    }[variant]
    suffix = 3 if host.endswith(".co.uk") else 2
    url = f"https://{host}/{path}"
    return Address(url, url, host, ".".join(host.split(".")[-suffix:]))


def blocklist() -> dict[str, str]:
    """Files of a blocklist in the UT1 layout (category/domains, urls, expressions), by path."""
    return {
        f"{BLOCKED_CATEGORY}/domains": "".join(f"{d}\n" for d in BLOCKED_DOMAINS),
        f"{BLOCKED_CATEGORY}/urls": "".join(f"{u}\n" for u in BLOCKED_URLS),
        f"{BLOCKED_CATEGORY}/expressions": BLOCKED_EXPRESSION + "\n",
    }
