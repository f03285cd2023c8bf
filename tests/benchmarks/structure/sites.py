"""Pages around an article: navigation, sidebars, related links and footers of sites that are built differently."""

import random
from html import escape

from tests.benchmarks.structure.words import LANGUAGES, Words


class Site:
    """One site of one script, whose layout and words follow from the seed."""

    def __init__(self, seed: int, script: str):
        self.draw = random.Random(f"site {seed} {script}")
        self.words = Words(script, self.draw)
        self.language = LANGUAGES[script]
        self.direction = "rtl" if script in ("Arabic", "Hebrew") else "ltr"
        self.layout = self.draw.choice(LAYOUTS)

    def page(self, title: str, body: str, head: str = "") -> str:
        title = escape(title)
        inner = self.layout(self, title, body)
        return (
            f'<!DOCTYPE html>\n<html lang="{self.language}" dir="{self.direction}">\n<head><meta charset="utf-8">'
            f"<title>{title} | {escape(self.words.phrase(1, 2))}</title>{head}</head>\n"
            f"<body>\n{inner}\n</body>\n</html>\n"
        )

    def links(self, least: int, most: int, words: int = 2) -> str:
        return "".join(
            f'<li><a href="/{self.draw.randrange(10**6)}">{escape(self.words.phrase(1, words))}</a></li>\n'
            for _ in range(self.draw.randint(least, most))
        )

    def small(self) -> str:
        return f"&copy; {self.draw.randint(2001, 2024)} {escape(self.words.phrase(2, 4))}"


def _semantic(s: Site, title: str, body: str) -> str:
    return f"""<header><a href="/">{s.words.phrase(1, 2)}</a><nav><ul>{s.links(4, 8)}</ul></nav></header>
<main><article><h1>{title}</h1>
{body}
</article></main>
<aside><h2>{s.words.phrase(1, 3)}</h2><ul>{s.links(4, 9, 6)}</ul></aside>
<footer><ul>{s.links(3, 7)}</ul><p>{s.small()}</p></footer>"""


def _bootstrap(s: Site, title: str, body: str) -> str:
    return f"""<div class="navbar navbar-default"><div class="container">
<ul class="nav navbar-nav">{s.links(4, 9)}</ul></div></div>
<div class="container"><div class="row"><div class="col-md-8" id="content"><div class="page-header"><h1>{title}</h1>
</div>
<div class="page-content">{body}</div></div>
<div class="col-md-4 sidebar"><div class="widget"><h3>{s.words.phrase(1, 3)}</h3><ul>{s.links(5, 9, 5)}</ul></div>
<div class="widget"><h3>{s.words.phrase(1, 2)}</h3><ul>{s.links(3, 6)}</ul></div></div></div></div>
<div class="footer"><div class="container"><p class="text-muted">{s.small()}</p></div></div>"""


def _wordpress(s: Site, title: str, body: str) -> str:
    return f"""<div id="page" class="hfeed site"><header id="masthead" class="site-header"><p class="site-title">
<a href="/" rel="home">
{s.words.phrase(1, 3)}</a></p><nav id="site-navigation" class="main-navigation"><ul class="menu">{s.links(4, 8)}</ul>
</nav></header>
<div id="content" class="site-content"><div id="primary" class="content-area"><main id="main" class="site-main">
<article id="post-12" class="post type-post hentry"><header class="entry-header"><h1 class="entry-title">{title}</h1>
<div class="entry-meta"><span class="posted-on"><time datetime="2021-03-04">2021-03-04</time></span></div></header>
<div class="entry-content">{body}</div><footer class="entry-footer"><span class="cat-links">
<a href="/c">{s.words.word()}</a></span>
</footer></article><nav class="navigation post-navigation"><a href="/p">{s.words.phrase(2, 5)}</a>
<a href="/n">{s.words.phrase(2, 5)}</a>
</nav></main></div><div id="secondary" class="widget-area"><aside class="widget widget_recent_entries">
<h2 class="widget-title">
{s.words.phrase(1, 2)}</h2><ul>{s.links(5, 5, 6)}</ul></aside></div></div>
<footer id="colophon" class="site-footer">{s.small()}</footer></div>"""


def _layout_table(s: Site, title: str, body: str) -> str:
    rows = "".join(f"<tr><td>{item}</td></tr>" for item in s.links(6, 12).replace("<li>", "").split("</li>\n") if item)
    return f"""<table width="100%" border="0" cellspacing="0" cellpadding="0"><tr><td colspan="2" bgcolor="#003366">
<img src="logo.gif" alt="">
</td></tr><tr><td width="160" valign="top"><table border="0">{rows}</table></td>
<td valign="top"><h1>{title}</h1>
{body}
</td></tr><tr><td colspan="2" align="center"><font size="1">{s.small()}</font></td></tr></table>"""


def _roles(s: Site, title: str, body: str) -> str:
    return f"""<div role="banner"><div role="navigation"><ul>{s.links(4, 8)}</ul></div></div>
<div role="main"><div class="headline"><h1>{title}</h1></div><div class="text">{body}</div></div>
<div role="complementary"><div class="box"><div class="box-title">{s.words.phrase(1, 3)}</div>
<ul>{s.links(4, 8, 5)}</ul></div></div>
<div role="contentinfo">{s.small()}</div>"""


def _drupal(s: Site, title: str, body: str) -> str:
    return f"""<div class="dialog-off-canvas-main-canvas"><div class="layout-container"><header role="banner">
<div class="region region-header">
<ul class="menu menu--main">{s.links(4, 7)}</ul></div></header><div class="region region-breadcrumb">
<nav class="breadcrumb"><ol>
{s.links(2, 3)}</ol></nav></div><main role="main"><div class="layout-content"><div class="region region-content">
<div class="block block-core block-page-title-block"><h1 class="page-title">
<span class="field field--name-title">{title}</span></h1></div>
<article class="node node--type-page"><div class="node__content">
<div class="clearfix text-formatted field field--name-body">
{body}
</div></div></article></div></div></main><footer class="site-footer"><div class="region region-footer">
<ul class="menu">{s.links(3, 6)}</ul>
{s.small()}</div></footer></div></div>"""


def _manual(s: Site, title: str, body: str) -> str:
    return f"""<div class="top"><a href="/">{s.words.phrase(1, 2)}</a><form>
<input type="search" placeholder="{s.words.word()}"></form></div>
<div class="docs-wrapper"><nav class="menu sidebar toc"><ul>{s.links(10, 25, 3)}</ul></nav>
<main class="docMainContainer"><div class="theme-doc-markdown markdown"><header><h1>{title}</h1></header>{body}</div>
<nav class="pagination-nav"><a href="/p">{s.words.phrase(1, 3)}</a><a href="/n">{s.words.phrase(1, 3)}</a></nav>
</main>
<div class="table-of-contents"><ul>{s.links(3, 6, 3)}</ul></div></div><footer>{s.small()}</footer>"""


def _wiki(s: Site, title: str, body: str) -> str:
    return f"""<div id="mw-page-base" class="noprint"></div><div id="content" class="mw-body" role="main">
<h1 id="firstHeading" class="firstHeading">
{title}</h1><div id="bodyContent" class="vector-body">
<div id="mw-content-text" class="mw-body-content mw-content-ltr">
<div class="mw-parser-output">{body}</div></div><div id="catlinks" class="catlinks"><ul>{s.links(2, 5)}</ul></div>
</div></div>
<div id="mw-navigation"><div id="mw-panel"><nav class="vector-menu portal"><ul>{s.links(5, 9)}</ul></nav></div></div>
<footer id="footer" class="mw-footer" role="contentinfo"><ul id="footer-info">{s.links(2, 4)}</ul></footer>"""


def _soup(s: Site, title: str, body: str) -> str:
    related = "".join(
        f'<div class="card"><a href="/r"><img src="r.jpg" alt=""><div class="t">{s.words.phrase(3, 8)}</div></a></div>'
        for _ in range(s.draw.randint(3, 6))
    )
    return f"""<div class="w"><div class="hd"><div class="lg"><a href="/">{s.words.word()}</a></div><div class="mn">
<ul>{s.links(5, 8)}</ul></div></div><div class="bd"><div class="l"><div class="tt"><h1>{title}</h1></div>
<div class="cnt"><div>{body}</div></div>
<div class="rel">{related}</div></div><div class="r"><ul>{s.links(4, 8, 4)}</ul></div></div>
<div class="ft">{s.small()}</div></div>"""


def _plain(s: Site, title: str, body: str) -> str:
    return f"""<p><a href="/">{s.words.word()}</a></p><h1>{title}</h1>
{body}
<hr><address>{s.small()}</address>"""


def _hero(s: Site, title: str, body: str) -> str:
    steps = "".join(f'<li><a href="/{i}">{s.words.word()}</a></li>' for i in range(2))
    crumbs = f'<ol class="breadcrumb">{steps}</ol>'
    return f"""<div class="navbar"><ul>{s.links(4, 8)}</ul></div><section class="hero banner"><div class="container">
<h1 class="hero-title">{title}</h1></div>
</section><div class="container">{crumbs}<div class="share"><a href="/f"><i class="fa"></i></a><a href="/t">
<i class="fa"></i></a></div></div>
<div class="content-wrapper"><div class="content-main"><div class="rich-text">{body}</div></div>
<div class="content-side"><ul>{s.links(3, 8, 4)}</ul>
</div></div><footer class="footer"><div class="footer-cols"><ul>{s.links(4, 8)}</ul><ul>{s.links(4, 8)}</ul>
</div>{s.small()}</footer>"""


def _nested_tables(s: Site, title: str, body: str) -> str:
    return f"""<center><table width="760" border="0"><tr><td><table width="100%"><tr><td>
<a href="/">{s.words.word()}</a></td><td align="right">
<a href="/i">{s.words.word()}</a> | <a href="/j">{s.words.word()}</a> | <a href="/k">{s.words.word()}</a></td></tr>
</table></td></tr>
<tr><td><table width="100%" cellpadding="8"><tr><td width="20%" valign="top"><ul>{s.links(5, 9)}</ul></td>
<td width="80%" valign="top"><h1>{title}</h1>{body}</td></tr></table></td></tr><tr>
<td align="center">{s.small()}</td></tr></table></center>"""


LAYOUTS = (
    _hero,
    _nested_tables,
    _semantic,
    _bootstrap,
    _wordpress,
    _layout_table,
    _roles,
    _drupal,
    _manual,
    _wiki,
    _soup,
    _plain,
)
