"""HTML of a page: its main text inside the furniture of its site, which is the same on every page of the site."""

from dataclasses import dataclass
from functools import lru_cache
from html import escape
from random import Random

from tests.planted.text import Block, phrases

_COOKIES = "We use cookies and similar technologies to improve your experience. Read our privacy policy."
_ENGLISH = {
    "nav": ("Home", "News", "About us", "Contact", "Products", "Services", "Blog", "Jobs", "Support", "Shop", "Events"),
    "side": ("Popular posts", "Newsletter", "Follow us", "Categories", "Archive", "Advertisement"),
    "foot": ("Terms of use", "Privacy policy", "Imprint", "Sitemap", "All rights reserved", "Back to top"),
    "share": ("Share", "Tweet", "Print", "E-mail", "Save"),
}


@dataclass(frozen=True)
class Chrome:
    """What surrounds the main text on every page of a site, as HTML; `before` and `after` lie closest to it."""

    layout: str
    head: str
    top: str
    before: str
    after: str
    side: str
    foot: str
    name: str


@dataclass(frozen=True)
class Content:
    """What a page says: `published` is a date as YYYY-MM-DD."""

    title: str
    blocks: tuple[Block, ...]
    language: str
    canonical: str
    published: str


def render(rng: Random, site_key: str, page: Content, meta_charset: str | None) -> tuple[str, str]:
    """(name of the layout, HTML of the page)."""
    boiler = "en" if page.language == "pydoc" else page.language
    chrome = _chrome(site_key, boiler)
    titles, sentences = phrases(boiler)
    meta = f'<meta charset="{meta_charset}">' if meta_charset else ""
    title = escape(page.title)
    head = (
        f'<!DOCTYPE html>\n<html lang="{boiler}">\n<head>{meta}<title>{title}</title>'
        f'<link rel="canonical" href="{escape(page.canonical)}">'
        f'<meta property="article:published_time" content="{page.published}T08:00:00Z">{chrome.head}</head>\n'
    )
    related = _links(rng.sample(titles, rng.randint(3, 7)))
    comments = [_comment(rng, rng.choice(sentences)) for _ in range(rng.choice((0, 0, 0, 1, 2, 5)))]
    main = _LAYOUTS[chrome.layout](chrome, title, page.published, _main(rng, page.blocks), related, "".join(comments))
    return chrome.layout, f"{head}<body>\n{main}\n</body>\n</html>\n"


def _main(rng: Random, parts: tuple[Block, ...]) -> str:
    return "\n".join([_TAGS[block.kind](rng, block.text) for block in parts])


def _paragraph(rng: Random, text: str) -> str:
    """Some with a word in bold, in a link or the like."""
    html = escape(text, quote=False)
    if rng.random() < 0.2 and len(words := html.split(" ", 5)) > 5:
        tag, attributes = rng.choice((("b", ""), ("em", ""), ("a", ' href="/more"'), ("span", ' class="x"')))
        words[3] = f"<{tag}{attributes}>{words[3]}</{tag}>"
        html = " ".join(words)
    return f"<p>{html}</p>"


def _list(rng: Random, text: str) -> str:
    items = "".join(f"<li>{escape(item)}</li>\n" for item in text.split("\n"))
    return f"<ul>\n{items}</ul>"


def _table(rng: Random, text: str) -> str:
    rows = [[f"<td>{escape(cell)}</td>" for cell in row.split("\t")] for row in text.split("\n")]
    return "<table>\n" + "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows) + "</table>"


_TAGS = {
    "p": _paragraph,
    "h2": lambda rng, text: f"<h2>{escape(text)}</h2>",
    "list": _list,
    "table": _table,
    "code": lambda rng, text: f"<pre><code>{escape(text, quote=False)}</code></pre>",
}


def _links(texts: list[str]) -> str:
    return "".join([f'<li><a href="/p/{len(t)}{i}">{t}</a></li>' for i, t in enumerate(texts)])


def _comment(rng: Random, sentence: str) -> str:
    user = rng.getrandbits(14)
    return f'<div class="comment"><b>user{user}</b> <time>{user % 23 + 1} h</time><p>{sentence}</p></div>'


@lru_cache(maxsize=4096)
def _chrome(site_key: str, language: str) -> Chrome:
    rng = Random(f"chrome/{site_key}/{language}")
    titles, sentences = phrases(language)

    def labels(part: str, low: int, high: int) -> list[str]:
        pool = _ENGLISH[part] if language == "en" else titles
        return rng.sample(pool, min(len(pool), rng.randint(low, high)))

    prefix = rng.choice(("", "site-", "x", "tpl_", "wp-"))
    style = "".join(f".{prefix}c{i}{{margin:{i}px;padding:{i * 2}px}}" for i in range(rng.randint(0, 40)))
    scripts = "".join(f"<script>var v{i}={rng.randrange(10**9)};</script>" for i in range(rng.randint(0, 6)))
    banner = _COOKIES if language == "en" else " ".join(rng.sample(sentences, 2))
    cookies = f'<div class="{prefix}cookie-banner" role="dialog"><p>{banner}</p><button>OK</button></div>'
    widgets = "".join(
        f'<div class="{prefix}widget"><h3>{label}</h3><ul>{_links(rng.sample(titles, rng.randint(3, 8)))}</ul></div>'
        for label in labels("side", 1, 4)
    )
    wraps = rng.randint(0, 3)
    return Chrome(
        layout=rng.choice(tuple(_LAYOUTS)),
        head=f"<style>{style}</style>{scripts}",
        top=f'{cookies if rng.random() < 0.6 else ""}<div class="{prefix}logo">{rng.choice(titles)}</div>'
        f'<ul class="{prefix}menu">{_links(labels("nav", 5, 11))}</ul>',
        before=f'<div class="{prefix}wrap">' * wraps,
        after=f'<div class="{prefix}share">{" | ".join(labels("share", 2, 5))}</div>' + "</div>" * wraps,
        side=widgets,
        foot=f'<ul class="{prefix}links">{_links(labels("foot", 2, 6))}</ul><p>&copy; 2024 {rng.choice(titles)}</p>',
        name=prefix + rng.choice(("content", "entry-content", "article-body", "post-content", "story")),
    )


def _semantic(c: Chrome, title: str, published: str, main: str, related: str, comments: str) -> str:
    return (
        f'<header>{c.top}</header>\n<main>{c.before}<article><h1>{title}</h1><time datetime="{published}">{published}'
        f"</time>\n{main}\n</article>{c.after}</main>\n<aside>{c.side}<h4>Related</h4><ul>{related}</ul></aside>\n"
        f'<section class="comments">{comments}</section>\n<footer>{c.foot}</footer>'
    )


def _divs(c: Chrome, title: str, published: str, main: str, related: str, comments: str) -> str:
    return (
        f'<div id="header">{c.top}</div>\n<div id="page"><div id="main">{c.before}<h1 class="title">{title}</h1>'
        f'<div class="date">{published}</div>\n<div class="{c.name}">\n{main}\n</div>{c.after}'
        f'<div class="related"><ul>{related}</ul></div><div id="comments">{comments}</div></div>\n'
        f'<div id="sidebar">{c.side}</div></div>\n<div id="footer">{c.foot}</div>'
    )


def _sidebar_first(c: Chrome, title: str, published: str, main: str, related: str, comments: str) -> str:
    return (
        f'<nav class="navbar">{c.top}</nav>\n<div class="sidebar">{c.side}<ul>{related}</ul></div>\n'
        f'<div class="{c.name}" role="main">{c.before}<h1>{title}</h1>\n{main}\n<p class="date">{published}</p>'
        f'{c.after}</div>\n<div class="comments">{comments}</div>\n<footer>{c.foot}</footer>'
    )


def _tables(c: Chrome, title: str, published: str, main: str, related: str, comments: str) -> str:
    return (
        f'<table width="100%"><tr><td colspan="2">{c.top}</td></tr>\n<tr><td width="20%">{c.side}</td>'
        f'<td class="{c.name}"><h1>{title}</h1>\n{main}\n<i>{published}</i></td></tr>\n'
        f'<tr><td colspan="2"><ul>{related}</ul>{comments}{c.foot}</td></tr></table>'
    )


def _bare(c: Chrome, title: str, published: str, main: str, related: str, comments: str) -> str:
    return f"<h1>{title}</h1>\n{main}\n<hr>{published}<ul>{related}</ul>\n{comments}\n<small>{c.foot}</small>"


_LAYOUTS = {
    "semantic": _semantic,
    "divs": _divs,
    "sidebar_first": _sidebar_first,
    "tables": _tables,
    "bare": _bare,
}
