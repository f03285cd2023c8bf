"""Pages of HTML: snippets that each try out one thing, within an article; templates with boilerplate; odd markup."""

from collections.abc import Iterator

from tests.golden.made.drawn import drawn_pages
from tests.golden.made.words import SENTENCES, paragraph, snippets

NAV = "<nav><ul><li><a href=/>Home</a><li><a href=/a>About us</a><li><a href=/c>Contact</a></ul></nav>"
COOKIES = "<div class='cookie-banner' role=dialog><p>We use cookies. <button>Accept all</button></p></div>"
FOOTER = "<footer><p>© 2024 The Mill. All rights reserved. <a href=/p>Privacy policy</a></p></footer>"


def article(middle: str, seed: int | str = 0, head: str = "") -> str:
    return (
        f"<!doctype html><html><head><title>The mill {seed}</title>{head}</head><body>{NAV}{COOKIES}<main><article>"
        f"<h1>About the mill {seed}</h1><p>{paragraph(f'page {seed}', 4)}</p>\n{middle}\n"
        f"<p>{paragraph(f'page {seed} b', 3)}</p>"
        f"</article><aside><h3>See also</h3><a href=/1>One</a> <a href=/2>Two</a></aside></main>{FOOTER}</body></html>"
    )


_TABLES = snippets("tables")
_LISTS = snippets("lists")
_CODE = snippets("code_blocks")
_FORMULAS = snippets("formulas")
_HIDDEN = snippets("hidden")
_BROKEN = snippets("broken")
_REST = snippets("markup")
HEADS = snippets("heads")


def pages() -> list[str]:
    own = [*_TABLES, *_LISTS, *_CODE, *_FORMULAS, *_HIDDEN, *_BROKEN, *_REST]
    found = [article(middle, f"own {at}") for at, middle in enumerate(own)]
    found += [article("", f"head {at}", head) for at, head in enumerate(HEADS)]
    found += [article(middle, f"snippet {at}") for at, middle in enumerate(snippets("pages"))]
    found += [*own, *_scripts(), *_bare(), *drawn_pages()]
    return found


def few_pages() -> list[str]:
    """Those that engines of others read, too."""
    own = [*_TABLES[:2], *_LISTS[:2], *_CODE[:2], *_FORMULAS[:1], *_HIDDEN[:2], *_BROKEN[:3], *_REST[:6]]
    return [*(article(middle, f"few {at}") for at, middle in enumerate(own)), *[*_scripts()][:8], *_bare()]


def _scripts() -> Iterator[str]:
    for code, line in SENTENCES.items():
        body = "".join(f"<p>{line} {line}</p><h2>{line[:12]}</h2>" for _ in range(3))
        yield f"<html lang={code}><head><title>{line[:20]}</title></head><body>{NAV}<main>{body}</main></body></html>"


def _bare() -> Iterator[str]:
    yield ""
    yield "<html></html>"
    yield "only words, and no markup at all " * 20
    yield "<p>" + paragraph("bare", 6)
    yield "<title>t</title>" + "<p>short</p>" * 3
    yield NAV + COOKIES + FOOTER
    yield "<body>" + "".join(
        f"<div><a href=/{at}>Link {at}</a> {paragraph(f'teaser {at}', 1)}</div>" for at in range(12)
    )
    yield (
        "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><body><p>"
        + paragraph("xhtml", 5)
        + "<br/></p><p/>tail</body></html>"
    )
    yield "\ufeff<p>" + paragraph("bom", 5) + "\x00\x01\x0c</p>"
    yield "<p>" + "line of text<br>" * 40
    yield "<div>" + "<br><br>".join(paragraph(f"brs {at}", 3) for at in range(4)) + "</div>"
    yield "<td>" * 30 + paragraph("cells", 4)
