"""Articles as the HTML that content management systems and old hands write, in shapes drawn from a seed."""

import random
from collections.abc import Callable
from html import escape

from tests.benchmarks.structure.article import (
    Article,
    Code,
    Definitions,
    Formula,
    Heading,
    Item,
    List,
    Paragraph,
    Part,
    Table,
)
from tests.benchmarks.structure.code_shapes import CODE_SHAPES
from tests.benchmarks.structure.formula_shapes import FORMULA_SHAPES

Draw = random.Random


def write(
    article: Article,
    draw: Draw,
    code: Callable[[Code], str] | None = None,
    formula: Callable[[Formula], str] | None = None,
) -> str:
    """The body of the article. One shape of each kind of part is drawn for the whole page."""
    shape = draw.choice(CODE_SHAPES)
    formula = formula or draw.choice(FORMULA_SHAPES)
    table, items = draw.choice(TABLE_SHAPES), draw.choice(LIST_SHAPES)
    wrap, heading = draw.choice(WRAPPINGS), draw.choice(HEADING_SHAPES)
    definitions = draw.choice(DEFINITION_SHAPES)

    def fragment(part: Part) -> str:
        match part:
            case Heading():
                return heading(part)
            case Paragraph(pieces):
                inner = (_marked(escape(p), draw) if isinstance(p, str) else formula(p) for p in pieces)
                return f"<p>{' '.join(inner)}</p>" + (draw.choice(ASIDES) if draw.random() < 0.15 else "")
            case Formula():
                return formula(part)
            case Code():
                return code(part) if code else shape(part)
            case Table():
                return table(part)
            case List():
                return items(part)
            case Definitions(pairs):
                return definitions([(escape(term), escape(said)) for term, said in pairs])
            case _:
                raise ValueError(f"HTML has no shape for {part}: leave it out of Wants.parts")

    return wrap([fragment(part) for part in article.parts])


def _marked(text: str, draw: Draw) -> str:
    """Some words as links, emphasis or code."""
    words = text.split(" ")
    for i in range(len(words)):
        if draw.random() < 0.04 and len(words[i]) < 30:  # not a sentence without spaces
            words[i] = draw.choice(MARKS).format(words[i])
    return " ".join(words)


MARKS = ('<a href="/x">{}</a>', "<b>{}</b>", "<em>{}</em>", '<span class="hl">{}</span>', "<strong>{}</strong>")
# what stands between paragraphs and shows no text; some are not closed, and end where a browser ends them
ASIDES = (
    '<figure><img src="a.jpg" alt=""></figure>',
    '<div class="ad-slot" id="div-gpt-ad-1"><script>googletag.cmd.push(function() {});</script></div>',
    '<p class="icon"><svg viewBox="0 0 1 1"><path d="M0 0h1"></p>',
    '<svg class="icon" viewBox="0 0 1 1"/>',
    '<div class="media"><video src="a.mp4" controls></div>',
    '<div><canvas width="1" height="1"></div>',
    "<p>&nbsp;</p>",
    "<style>.a > .b { color: red }</style><!-- p -->",
)


# --- around parts


def _flat(parts: list[str]) -> str:
    return "\n".join(parts)


def _sections(parts: list[str]) -> str:
    text = "<section>\n"
    for part in parts:
        text += ("</section>\n<section class='section'>\n" if part.startswith("<h2") else "") + part + "\n"
    return text + "</section>"


def _soup(parts: list[str]) -> str:
    return "\n".join(
        f'<div class="row"><div class="col-md-12 wpb_text_column"><div>{p}</div></div></div>' for p in parts
    )


def _builder(parts: list[str]) -> str:
    return "".join(
        f'<div class="elementor-element elementor-widget" data-id="{i:05x}">'
        f'<div class="elementor-widget-container">{part}</div></div>'
        for i, part in enumerate(parts)
    )


WRAPPINGS = (_flat, _flat, _sections, _soup, _builder)


# --- headings


def _plain_heading(part: Heading) -> str:
    return f"<h{part.level}>{escape(part.text)}</h{part.level}>"


def _anchored(part: Heading) -> str:
    link = (
        '<a class="anchor" aria-hidden="true" href="#s"><svg width="16" height="16"><path d="M4 9h1"></path></svg></a>'
    )
    return f'<h{part.level} id="s">{link}{escape(part.text)}</h{part.level}>'


def _linked(part: Heading) -> str:
    return f'<h{part.level}><a href="#part"><span>{escape(part.text)}</span></a></h{part.level}>'


def _wiki_heading(part: Heading) -> str:
    edit = '<span class="mw-editsection"></span>'
    return f'<h{part.level}><span class="mw-headline" id="x">{escape(part.text)}</span>{edit}</h{part.level}>'


def _in_division(part: Heading) -> str:
    return f'<div class="mw-heading mw-heading{part.level}"><h{part.level}>{escape(part.text)}</h{part.level}></div>'


def _styled(part: Heading) -> str:
    inner = f'<strong><font color="#333">{escape(part.text)}</font></strong>'
    return f'<h{part.level} class="wp-block-heading has-text-align-left">{inner}</h{part.level}>'


def _permalink(part: Heading) -> str:
    link = '<a class="headerlink" href="#s" title="Permalink">#</a>'
    return f'<h{part.level} id="s">{escape(part.text)}{link}</h{part.level}>'


def _in_header(part: Heading) -> str:
    return f'<header class="section-header"><h{part.level}>\n  {escape(part.text)}\n</h{part.level}></header>'


def _broken(part: Heading) -> str:
    return f"<h{part.level}>{'<br>'.join(escape(part.text).rsplit(' ', 1))}</h{part.level}>"


def _invisible_link(part: Heading) -> str:
    link = '<a href="#x" class="hash-link" aria-label="Direct link" title="Direct link">\u200b</a>'
    return f'<h{part.level} class="anchor" id="x">{escape(part.text)}{link}</h{part.level}>'


def _wiki_edit(part: Heading) -> str:
    bracket = '<span class="mw-editsection-bracket">{}</span>'
    edit = f'<span class="mw-editsection">{bracket.format("[")}<a href="/e">edit</a>{bracket.format("]")}</span>'
    return f'<h{part.level}><span class="mw-headline">{escape(part.text)}</span>{edit}</h{part.level}>'


HEADING_SHAPES = (
    *(_invisible_link, _wiki_edit),
    *(_plain_heading, _anchored, _linked, _wiki_heading, _in_division, _styled, _permalink, _in_header, _broken),
)


# --- tables


def _cells(part: Table, inner: Callable[[str], str], row_label: bool, closed: bool) -> list[str]:
    rows = []
    for r, row in enumerate(part.rows):
        text = ""
        for c, cell in enumerate(row):
            name = "th" if r < part.headers or (row_label and c == 0) else "td"
            spans = f' rowspan="{cell.rows}"' * (cell.rows > 1) + f' colspan="{cell.columns}"' * (cell.columns > 1)
            text += f"<{name}{spans}>{inner(cell.text)}" + (f"</{name}>" if closed else "") + "\n"
        rows.append(f"<tr>{text}" + ("</tr>" if closed else ""))
    return rows


def _modern(part: Table) -> str:
    rows = _cells(part, escape, False, True)
    head = f"<thead>{''.join(rows[: part.headers])}</thead>" if part.headers else ""
    return f"<table class='table table-striped'>{head}<tbody>{''.join(rows[part.headers :])}</tbody></table>"


def _scrolled(part: Table) -> str:
    return f'<div class="table-responsive"><figure class="wp-block-table">{_modern(part)}</figure></div>'


def _wiki_table(part: Table) -> str:
    rows = "".join(_cells(part, lambda text: f"{escape(text)}\n", True, True))
    return f'<table class="wikitable sortable"><tbody>{rows}</tbody></table>'


def _old(part: Table) -> str:
    def inner(text: str) -> str:
        return f"<font face=Arial size=2>{escape(text) or '&nbsp;'}</font>"

    return "<TABLE BORDER=1 CELLPADDING=3 WIDTH=90%>\n" + "\n".join(_cells(part, inner, False, False)) + "</TABLE>"


def _paragraphs_in_cells(part: Table) -> str:
    rows = "".join(_cells(part, lambda text: f'<p style="margin:0"><span>{escape(text)}</span></p>', False, True))
    return f'<table cellspacing="0" style="border-collapse:collapse"><colgroup><col><col></colgroup>{rows}</table>'


def _two_lines_in_cells(part: Table) -> str:
    rows = _cells(part, lambda text: "<br>".join(escape(text).split(" ", 1)), False, True)
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _headed_rows(part: Table) -> str:
    rows = _cells(part, lambda text: f"<b>{escape(text)}</b>" if text else "", True, True)
    return f'<table class="infobox" role="table">{"".join(rows)}</table>'


def _captioned(part: Table) -> str:
    rows = _cells(part, escape, True, True)
    head, body, foot = rows[: part.headers], rows[part.headers : -1], rows[-1]
    return (
        f"<table><caption>Fig. 1</caption><thead>{''.join(head)}</thead><tbody>{''.join(body)}</tbody>"
        f"<tfoot>{foot}</tfoot></table>"
    )


def _short_rows(part: Table) -> str:
    """Empty cells at the end of a row are left out."""
    rows = [row[: max((c + 1 for c, cell in enumerate(row) if cell.text), default=1)] for row in part.rows]
    body = "".join(_cells(Table((part.rows[0], *rows[1:]), part.headers), escape, False, True))
    return f'<div class="table-wrap"><table class="confluenceTable"><tbody>{body}</tbody></table></div>'


def _linked_cells(part: Table) -> str:
    """Links but for numbers."""

    def inner(text: str) -> str:
        linked = text and not text[0].isdigit()
        return (
            f'<div class="cell">{f"""<a href="/x">{escape(text)}</a><sup></sup>""" if linked else escape(text)}</div>'
        )

    return f'<table id="tablepress-1" class="tablepress">{"".join(_cells(part, inner, False, True))}</table>'


def _asciidoc_table(part: Table) -> str:
    def inner(text: str) -> str:
        return f'<p class="tableblock">{escape(text)}</p>' if text else ""

    rows = _cells(part, inner, False, True)
    return (
        '<table class="tableblock frame-all grid-all stretch"><colgroup><col style="width: 50%;"></colgroup>'
        f"<thead>{''.join(rows[: part.headers])}</thead><tbody>{''.join(rows[part.headers :])}</tbody></table>"
    )


def _without_headers(part: Table) -> str:
    """Nothing but bold type says what heads."""
    rows = _cells(Table(part.rows, 0), lambda text: f"<b>{escape(text)}</b>", False, True)
    rows[part.headers :] = _cells(Table(part.rows, 0), lambda text: escape(text) or "&nbsp;", False, True)[
        part.headers :
    ]
    return f'<table border="1" bordercolor="#cccccc" width="100%">{"".join(rows)}</table>'


def _word_table(part: Table) -> str:
    def inner(text: str) -> str:
        return f'<p class="MsoNormal" align="center"><span lang="EN-US">{escape(text)}<o:p></o:p></span></p>'

    rows = "".join(_cells(Table(part.rows, 0), inner, False, True))
    return f'<div align="center"><table class="MsoNormalTable" border="0" cellspacing="0">{rows}</table></div>'


def _in_details(part: Table) -> str:
    rows = "".join(_cells(part, lambda text: f"<span>{escape(text)}</span>", False, True))
    table = f'<table class="min-w-full divide-y"><tbody>{rows}</tbody></table>'
    return f'<details open><summary>Fig. 1</summary><div class="overflow-x-auto">{table}</div></details>'


TABLE_SHAPES = (
    *(_captioned, _short_rows, _linked_cells, _asciidoc_table, _without_headers, _word_table, _in_details),
    *(_modern, _scrolled, _wiki_table, _old, _paragraphs_in_cells, _two_lines_in_cells, _headed_rows),
)


# --- lists


def _list(part: List, inner: Callable[[str], str], closed: bool) -> str:
    def item(one: Item) -> str:
        value = f' value="{one.value}"' if one.value is not None else ""
        under = "\n" + _list(one.children, inner, closed) if one.children else ""
        return f"<li{value}>{inner(escape(one.text))}{under}" + ("</li>\n" if closed else "\n")

    written = "".join(item(one) for one in part.items)
    if part.kind == "ul":
        return f"<ul>{written}</ul>"
    kind = f' type="{part.kind}"' if part.kind != "1" else ""
    return f"<ol{kind}" + (f' start="{part.start}"' if part.start != 1 else "") + f">{written}</ol>"


def _plain_list(part: List) -> str:
    return _list(part, str, True)


def _loose(part: List) -> str:
    return _list(part, lambda text: f"<p>{text}</p>", True)


def _linked_items(part: List) -> str:
    return _list(part, lambda text: f'<span class="item-text"><a href="/x">{text[:5]}</a>{text[5:]}</span>', True)


def _unclosed(part: List) -> str:
    return _list(part, str, False)


def _asciidoc_list(part: List) -> str:
    return (
        f'<div class="{"ulist" if part.kind == "ul" else "olist"}">{_list(part, lambda t: f"<p>{t}</p>", True)}</div>'
    )


def _beside_items(part: List) -> str:
    """Inner lists beside the items that they belong to, as many editors write them."""
    written = ""
    for item in part.items:
        value = f' value="{item.value}"' if item.value is not None else ""
        written += f"<li{value}>{escape(item.text)}</li>\n" + (_beside_items(item.children) if item.children else "")
    return f"<ul>{written}</ul>" if part.kind == "ul" else f'<ol type="{part.kind}" start="{part.start}">{written}</ol>'


LIST_SHAPES = (*(_asciidoc_list, _beside_items), _plain_list, _plain_list, _loose, _linked_items, _unclosed)


# --- definitions

Pairs = list[tuple[str, str]]


def _terms(pairs: Pairs) -> str:
    return "<dl>" + "".join(f"<dt>{term}</dt>\n<dd>{said}</dd>\n" for term, said in pairs) + "</dl>"


def _unclosed_terms(pairs: Pairs) -> str:
    return "<DL>" + "".join(f"<DT><B>{term}</B>\n<DD>{said}\n" for term, said in pairs) + "</DL>"


def _grouped_terms(pairs: Pairs) -> str:
    rows = (
        f'<div class="row"><dt class="col-sm-3">{t}</dt><dd class="col-sm-9"><p>{d}</p></dd></div>' for t, d in pairs
    )
    return f'<dl class="row">{"".join(rows)}</dl>'


DEFINITION_SHAPES = (_terms, _terms, _unclosed_terms, _grouped_terms)
