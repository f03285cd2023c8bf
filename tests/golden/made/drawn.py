"""Documents drawn at random, always the same ones: markup that no one writes, personal data in any surroundings, odd
addresses, copies of copies. They meet by chance what nobody thought of."""

import random

from tests.golden.made.words import NOUNS, SENTENCES, paragraph, sentence
from tests.tasks.pii.examples import NEGATIVE, POSITIVE

_BLOCKS = (
    "table tr td th tbody thead tfoot caption p li ul ol dl dt dd div section article h1 h2 h3 blockquote pre form "
    "select option button menu dir details summary figure figcaption nav footer aside main hr center address fieldset"
).split()
_INLINE = (
    "a b i em strong code span sup sub q cite br img kbd var small u s del ins mark time abbr font nobr wbr input math "
    "mi mn mo mfrac msup svg ruby rt rp label textarea x-own"
).split()
_ATTRIBUTES = (
    "",
    "",
    "",
    "",
    "",
    " class=a",
    " hidden",
    " style='display:none'",
    " class='menu nav'",
    " id=comments",
    " role=presentation",
    " href=/x",
    " alt='an image'",
    " colspan=2",
    " rowspan=3",
    " start=4",
    " value=7",
    " lang=de",
    " dir=rtl",
    " class=highlight",
    " aria-hidden=true",
    " title='>'",
)
_TEXTS = (
    " ",
    "\n",
    "\n\n",
    "&nbsp;",
    "&amp;",
    "&lt;b&gt;",
    "x",
    "1",
    "2.",
    "•",
    "<!-- c -->",
    "\\(x^2\\)",
    "$$y$$",
    "  wide  gap ",
    "¶",
    "[1]",
    "…",
)


def drawn_pages() -> list[str]:
    draw = random.Random("pages")
    found = []
    for at in range(120):
        pieces = [f"<title>Drawn {at}</title><body><h1>Drawn</h1><p>{paragraph(f'drawn {at}', 3)}</p>"]
        opened: list[str] = []
        for _ in range(draw.choice((15, 40, 90))):
            turn = draw.random()
            if turn < 0.35:
                tag = draw.choice(_BLOCKS if draw.random() < 0.7 else _INLINE)
                opened.append(tag)
                pieces.append(f"<{tag}{draw.choice(_ATTRIBUTES)}>")
            elif turn < 0.6 and opened:
                tag = opened.pop(draw.randrange(len(opened))) if draw.random() < 0.3 else opened.pop()
                pieces.append(f"</{tag}>")
            elif turn < 0.75:
                pieces.append(draw.choice(_TEXTS))
            elif turn < 0.9:
                pieces.append(sentence(draw))
            else:
                pieces.append(draw.choice(NOUNS))
        found.append("".join(pieces) + f"<p>{paragraph(f'drawn {at} b', 2)}")
    return found


_FRAGMENTS = (
    *(value for _, _, value in POSITIVE),
    *NEGATIVE,
    "@",
    ".",
    "-",
    "+",
    "(",
    ")",
    ":",
    "::",
    "/",
    "(at)",
    " [AT] ",
    "Bearer ",
    "secret_access_key=",
    "password: ",
    "DB_PWD=",
    "curl -u a:",
    "Basic ",
    "kqtz83!mWx4r",
    "%40",
    "＠",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "://",
    '"',
    "Tel. ",
    "49",
    "00",
    "4539 5787 ",
    "0123456",
    "٠١٢٣",
    "０３",
    "－",
    "电话",
    "例子.公司",
    " ",
    " ",
    "\n",
    "1",
    "212",
    "2001",
    "DE89",
    "AKIA",
    "tel ",
    "version ",
    "é",
    "水",
    "почта",
    "jane",
    "@planted.org",
    "my phone is ",
    "IBAN ",
    "ip ",
    "card ",
    ", ",
    "; ",
    "=",
    "'",
    "<",
    ">",
    "_",
    "x",
)


def drawn_personal() -> list[str]:
    draw = random.Random("personal")
    found = ["".join(draw.choices(_FRAGMENTS, k=draw.choice((2, 3, 4, 6, 10)))) for _ in range(700)]
    for count in (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20):
        for gap in ("", " ", "-", ".", "/", "\u00a0"):
            digits = "".join(draw.choices("0123456789", k=count))
            if gap == "\u00a0" and count > 16:
                continue  # the step `pii` cuts a no-break space in two between two such numbers
            found.append(f"call {gap.join(digits[at : at + 3] for at in range(0, count, 3))} now")
            found.append(f"Tel: +{gap.join((digits[:2], digits[2:5], digits[5:]))}, or")
    return found


def drawn_addresses() -> list[str]:
    draw = random.Random("addresses")
    schemes = ("http://", "https://", "HTTP://", "//", "ftp://", "")
    hosts = (
        "a.example",
        "www.a.example",
        "WWW.a.Example",
        "a.example.",
        "a.example:80",
        "a.example:8080",
        "a.co.uk",
        "x.github.io",
        "bad.example",
        "sub.bad.example",
        "gone.example",
        "1.2.3.4",
        "[::1]",
        "ü.example",
        "u:p@a.example",
        "a..example",
        "free-casino.example",
        "sexy.example",
    )
    parts = (
        "/",
        "a",
        "..",
        ".",
        "%41",
        "%7e",
        "%2F",
        "%zz",
        "index.html",
        "dir",
        "page",
        "porn",
        "free",
        "poker",
        "x-x-x",
        "é",
        "%C3%A9",
        ";s=1",
        "//",
    )
    queries = (
        "",
        "?",
        "?a=1",
        "?b=2&a=1",
        "?utm_source=x",
        "?a=1&utm_campaign=y&b",
        "?sid=1",
        "?q=free+poker",
        "?a=%20",
        "?&&",
        "?fbclid=1&a",
    )
    ends = ("", "", "", "#x", "#", "#!x")
    return [
        draw.choice(schemes)
        + draw.choice(hosts)
        + "/".join(["", *draw.choices(parts, k=draw.randint(0, 4))])
        + draw.choice(queries)
        + draw.choice(ends)
        for _ in range(300)
    ]


def drawn_copies() -> list[dict]:
    """Families of texts: each a copy of one before it, with words changed, left out, added, or in another order."""
    draw, found = random.Random("copies"), []
    for family in range(60):
        texts = [paragraph(f"family {family}", draw.choice((1, 2, 4))).split()]
        for _ in range(draw.randint(1, 6)):
            words = [*draw.choice(texts)]
            for _ in range(draw.choice((0, 1, 1, 2, 4))):
                at = draw.randrange(len(words))
                turn = draw.random()
                if turn < 0.4:
                    words[at] = draw.choice(NOUNS)
                elif turn < 0.6:
                    del words[at : at + draw.randint(1, 5)]
                elif turn < 0.8:
                    words[at:at] = draw.choices(NOUNS, k=draw.randint(1, 4))
                else:
                    words = [*words[at:], *words[:at]]
                words = words or ["the"]
            texts.append(words)
        for words in texts:
            ends = draw.choice((" ", " ", "\n"))
            found.append(
                {
                    "text": ends.join(words),
                    "date": draw.choice(("2024-01-01", "2024-01-02", None)),
                    "score": draw.choice((0.5, 1.0, None)),
                }
            )
    return found


def odd_words() -> list[str]:
    """Letters whose lower case is two, marks within words, and the like, beside words of lists."""
    words = (
        "İstanbul",
        "istanbul",
        "ISTANBUL",
        "i̇stanbul",
        "Straße",
        "STRASSE",
        "ﬂour",
        "Σίσυφος",
        "ΣΊΣΥΦΟΣ",
        "mi\u0301ll",
        "mill\u0301",
        "mill_",
        "mill's",
        "x-mill",
    )
    found = [f"so {word} is a word of it" for word in words]
    return [*found, *words, *(f"{line} mill {line}" for line in SENTENCES.values())]


def wordless() -> list[str]:
    """Texts without a word, some of them equal."""
    return [
        "...",
        "...",
        "— —",
        "— —",
        "!",
        "?!",
        "***",
        "***",
        "***",
        "()",
        "()",
        "{}",
        "#",
        "#",
        "=>",
        "=>",
        "|",
        "…",
        "…",
        "§",
    ]
