"""Generated pages hold what their articles say, by a parser that is no part of an engine."""

from collections import Counter
from html import unescape

import pytest
from lxml import html

from tests.benchmarks.structure import generated, marked
from tests.benchmarks.structure.article import Code, Definitions, Formula, Heading, List, Paragraph, Table
from tests.benchmarks.structure.words import SCRIPTS


def squeezed(text):
    return "".join(text.split())


def texts(part):
    """The texts of a part of an article, without formulas."""
    match part:
        case Heading():
            return [part.text]
        case Paragraph(pieces):
            return [piece for piece in pieces if isinstance(piece, str)]
        case Code(lines, _):
            return list(lines)
        case Table(rows, _):
            return [cell.text for row in rows for cell in row]
        case List(_, items, _):
            return [text for item in items for text in (item.text, *(texts(item.children) if item.children else ()))]
        case Definitions(pairs):
            return [text for pair in pairs for text in pair]
    return []


@pytest.mark.parametrize("pages", [generated.pages, marked.markdown_it_pages])
def test_a_page_has_all_that_its_article_says(pages):
    kinds = Counter()
    for case in pages(range(2)):
        root = html.document_fromstring(case.html)
        for element in root.xpath("//math | //script | //style"):
            element.drop_tree()
        shown, source = squeezed(root.text_content()), squeezed(unescape(case.html))
        assert squeezed(case.article.title) in shown
        for part in case.article.parts:
            kinds[type(part).__name__] += 1
            for text in texts(part):
                assert squeezed(text) in shown, (case.name, part)
            formulas = [part] if isinstance(part, Formula) else getattr(part, "pieces", ())
            for formula in formulas:
                if isinstance(formula, Formula) and case.latex:
                    assert squeezed(formula.latex) in source, (case.name, formula)
    assert min(kinds.values()) > 5


def test_pages_follow_from_their_seeds():
    once, again, other = ([case.html for case in generated.pages(range(seed, seed + 1))] for seed in (3, 3, 4))
    assert once == again
    assert len(once) == len(SCRIPTS) and not set(once) & set(other)
