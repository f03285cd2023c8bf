"""HTML of a page: its main text inside the furniture of its site, which is the same on every page of the site."""

from functools import lru_cache
from html import escape
from random import Random

from tests.planted.text import Block, phrases

_HEAD = (
    '<!DOCTYPE html>\n<html lang="{language}">\n<head>{meta}<title>{title}</title><link rel="canonical" href="{url}">'
    '<meta property="article:published_time" content="{published}T08:00:00Z">{style}</head>\n<body>\n'
)
_LAYOUTS = {
    "semantic": '<header>{top}</header>\n<main><article><h1>{title}</h1><time datetime="{published}">{published}</time>'
    "\n{main}\n</article>{share}</main>\n<aside>{side}<ul>{related}</ul></aside>\n"
    '<section class="comments">{comments}</section>\n<footer>{foot}</footer>',
    "divs": '<div id="header">{top}</div>\n<div id="page"><div id="main"><h1 class="title">{title}</h1>'
    '<div class="date">{published}</div>\n<div class="entry-content">\n{main}\n</div>{share}<ul>{related}</ul>'
    '<div id="comments">{comments}</div></div>\n<div id="sidebar">{side}</div></div>\n<div id="footer">{foot}</div>',
    "tables": '<table width="100%"><tr><td colspan="2">{top}</td></tr>\n<tr><td width="20%">{side}</td>'
    '<td class="content"><h1>{title}</h1>\n{main}\n<i>{published}</i></td></tr>\n'
    '<tr><td colspan="2"><ul>{related}</ul>{comments}{foot}</td></tr></table>',
    "bare": "<h1>{title}</h1>\n{main}\n<hr>{published}<ul>{related}</ul>\n{comments}\n<small>{foot}</small>",
}


def render(rng: Random, truth: dict, parts: tuple[Block, ...], charset: str | None) -> str:
    """The page of a row of the truth, which gets the name of its `layout`; `charset`: what the meta element names."""
    titles, sentences = phrases(truth["language"])
    truth["layout"], chrome = _chrome(truth["host"], truth["language"])
    users = [(rng.getrandbits(14), rng.choice(sentences)) for _ in range(rng.choice((0, 0, 0, 1, 2, 5)))]
    return f"{_HEAD}{_LAYOUTS[truth['layout']]}\n</body>\n</html>\n".format(
        meta=f'<meta charset="{charset}">' if charset else "",
        language=truth["language"],
        title=escape(truth["title"]),
        url=escape(truth["canonical_url"]),
        published=truth["published"],
        related=_links(rng.sample(titles, rng.randint(3, 7))),
        comments="".join(f'<div class="comment"><b>user{user}</b> <p>{text}</p></div>' for user, text in users),
        main="\n".join(_block(rng, block) for block in parts),
        **chrome,
    )


def _block(rng: Random, block: Block) -> str:
    """HTML of a block; some paragraphs have a word in bold, in a link or the like."""
    html = escape(block.text, quote=False)
    if block.kind == "p" and rng.random() < 0.2 and len(words := html.split(" ", 5)) > 5:
        tag = rng.choice(("b", "em", 'a href="/more"', 'span class="x"'))
        words[3] = f"<{tag}>{words[3]}</{tag.split()[0]}>"
        html = " ".join(words)
    if block.kind == "list":
        return "<ul>\n" + "".join(f"<li>{item}</li>\n" for item in html.split("\n")) + "</ul>"
    return f"<{block.kind}>{html}</{block.kind}>"


def _links(texts: list[str]) -> str:
    return "".join([f'<li><a href="/p/{len(t)}{i}">{t}</a></li>' for i, t in enumerate(texts)])


@lru_cache(maxsize=4096)
def _chrome(host: str, language: str) -> tuple[str, dict[str, str]]:
    """(layout, what surrounds the main text on every page of a site)."""
    rng = Random(f"chrome/{host}/{language}")
    titles, sentences = phrases(language)
    banner = f'<div class="cookie-banner" role="dialog"><p>{" ".join(rng.sample(sentences, 2))}</p></div>'
    widget = '<div class="widget"><h3>{}</h3><ul>{}</ul></div>'
    return rng.choice(tuple(_LAYOUTS)), {
        "style": f"<style>{''.join(f'.c{i}{{margin:{i}px}}' for i in range(rng.randint(0, 40)))}</style>",
        "top": banner * (rng.random() < 0.6)
        + f'<ul class="menu">{_links(rng.sample(titles, rng.randint(5, 11)))}</ul>',
        "share": f'<div class="share">{" | ".join(rng.sample(titles, 3))}</div>',
        "side": "".join(widget.format(t, _links(rng.sample(titles, 5))) for t in rng.sample(titles, rng.randint(1, 4))),
        "foot": f'<ul class="links">{_links(rng.sample(titles, rng.randint(2, 6)))}</ul><p>&copy; {titles[0]}</p>',
    }
