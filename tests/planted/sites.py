"""Made-up sites and their addresses: hosts, registered domains, canonical and other spellings of a URL."""

from random import Random

from tests.planted.text import word

# ICANN section of the public suffix list.
_SUFFIXES = ("com", "com", "com", "org", "net", "info", "co.uk", "com.au", "co.jp", "de", "fr", "es", "pl", "com.br")
_SUBDOMAINS = ("www.", "www.", "www.", "", "", "blog.", "news.", "en.m.")
_DOMAINS = ("planted-casino.com", "planted-poker.co.uk", "bets.planted-sports.org")
# A blocklist in the UT1 layout, by path.
BLOCKLIST = {
    "gambling/domains": "".join(f"{domain}\n" for domain in _DOMAINS),
    "gambling/urls": "planted-portal.net/slots\n",
    "gambling/expressions": r"(^|[-./])(online-?casino|free-?spins)([-./]|$)" + "\n",
}
# `lookalike_*` must stay.
BLOCKED = ("domain", "subdomain", "path", "expression", "lookalike_domain", "lookalike_path")
RECRAWLS = ("same", "tracking", "changed")


def _columns(host: str, path: str, domain: str) -> dict[str, str]:
    url = f"https://{host}/{path}"
    return {"url": url, "canonical_url": url, "host": host, "domain": domain}


def address(rng: Random, pages: int, title: str, number: int) -> dict[str, str]:
    """Columns of the truth for a page on one of about pages / 40 sites, some much larger than others.

    `url` as it is crawled, `canonical_url` without tracking parameters, port, fragment and capitals in the host,
    `host` in the registered domain `domain`. The page's number makes it unique.
    """
    index = int(max(12, pages // 40) * rng.random() ** 2)
    site = Random(f"site/{index}")
    domain = f"planted-{word(site, 'en')}{index}.{site.choice(_SUFFIXES)}"
    words = [w for w in title.lower().split() if w.isascii() and w.isalpha()]
    section = rng.choice(("news", "blog", "articles", "2024/10", "guide"))
    return _columns(site.choice(_SUBDOMAINS) + domain, f"{section}/{'-'.join([*words[:5], str(number)])}", domain)


def respelt(rng: Random, canonical: dict[str, str]) -> dict[str, str]:
    """The same page under another spelling of its address."""
    url, host, n = canonical["canonical_url"], canonical["host"], rng.randrange(10**9)
    spellings = (
        *(f"{url}?utm_source=feed{n % 100}&utm_medium=rss&utm_campaign=c{n}", f"{url}?fbclid=IwAR{n}"),
        *(f"{url}?gclid={n}&utm_content=x", f"{url}#section-{n % 10}"),
        *(url.replace(host, host.upper()), url.replace(host, f"{host}:443")),
    )
    return canonical | {"url": rng.choice(spellings)}


def blocked(rng: Random, variant: str, number: int) -> dict[str, str]:
    """An address that the planted blocklist names, or (`lookalike_*`) nearly names."""
    host, path = {
        "domain": (rng.choice(_DOMAINS), f"page-{number}"),
        "subdomain": (f"www{number % 7}.{rng.choice(_DOMAINS[:2])}", f"page-{number}"),
        "path": ("planted-portal.net", f"slots/{number}"),
        "expression": ("www.planted-holiday.com", f"{rng.choice(('online-casino', 'free-spins'))}/{number}"),
        "lookalike_domain": (rng.choice((f"not{_DOMAINS[0]}", "planted-sports.org")), f"page-{number}"),
        "lookalike_path": ("planted-portal.net", rng.choice((f"slotsmith/{number}", f"history-of-casinos-{number}"))),
    }[variant]
    return _columns(host, path, ".".join(host.split(".")[-3 if host.endswith(".co.uk") else -2 :]))
