"""The text of kept blocks beside the sources that they are made of: cells, lines of code, numbers, formulas."""

import gc
import html
import re
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.classifier import best_f1
from gristmill.tasks.extraction.rendering.completed import completed
from gristmill.tasks.extraction.rendering.document import render
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.visibility import hidden_blocks, hidden_elements
from gristmill.tasks.extraction.rendering.whole import shared, units
from tests.tasks.extraction.test_blocks import SOURCES

CODE = "def mill(grain):\n    # a   wide   gap\n\n\n\tif grain < 1 & 2:\n        return 'a  b'\nmill(1)"
LINES = CODE.split("\n")


def rendered(source: str, markdown: bool = False, kept: list[int] | None = None) -> str:
    data = source.encode("utf-8", "replace")
    page = scan(np.frombuffer(data, np.uint8))
    likely = np.ones(len(page.blocks.begin), np.float32)
    if kept is not None:
        likely[:] = 0.05
        likely[kept] = 0.95
    words = np.ones(len(likely), np.float32)
    found = Source(data, page)
    together = units(found)
    chosen = completed(found, together, best_f1(shared(page, likely, words, together.unit), words))
    hidden = hidden_elements(found, together, chosen, words)
    return render(Source(data, page, hidden), together, chosen & ~hidden_blocks(page, hidden), markdown)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<h1>Title</h1><p>One &amp;amp; two.</p><p>Three<br>four.</p>", "Title\n\nOne &amp; two.\n\nThree\nfour."),
        ("<h2>A <a class=headerlink href=#a>¶</a></h2><h3><a class=anchor href=#b>#</a>B</h3>x", "A\n\nB\n\nx"),
        (
            "<h2><span class=mw-headline>A</span><span class='mw-editsection'><span>[</span><a href=/e>edit</a>"
            "<span>]</span></span></h2><p>x",
            "A\n\nx",
        ),
        ("<p>a <img alt='\\begin{displaymath} x^2 \\end{displaymath}' src=i.png> b", "a $$x^2$$ b"),
        ("<p>x</p><pre>if a:\n    b &lt; c\n\n    d</pre><p>y</p>", "x\n\nif a:\n    b < c\n\n    d\n\ny"),
        (
            "<p>x</p><code>if a:<br />\n&nbsp;&nbsp;b &lt;&nbsp; c<br />\n<br />\n&nbsp;d</code><p>y</p>",
            "x\n\nif a:\n  b <  c\n\n d\n\ny",
        ),
        ("<p>&#xD800;&#55296;&bogus; &lt;b&gt;</p>", "\ufffd\ufffd&bogus; <b>"),
        ("<p>a \u2003 b\u00a0 c", "a b c"),
        # exponents, fractions
        ("10<sup>8</sup> m<sup>2</sup> s<sup>-1</sup> x<sup>n+1</sup>", "10^8 m^2 s^-1 x^{n+1}"),
        ("H<sub>2</sub>O Fe<sub>2</sub>(SO<sub>4</sub>)<sub>3</sub> x<sub>i</sub>", "H2O Fe2(SO4)3 x_i"),
        ("the 1<sup>st</sup> and 2<sup>nd</sup>, Mill<sup>TM</sup>", "the 1st and 2nd, MillTM"),
        ("<sup>1</sup>/<sub>2</sub> and 3<sup>1</sup>&frasl;<sub>4</sub>", "1/2 and 3 1⁄4"),
        ("said<sup><a href=#1>[1]</a></sup>", "said[1]"),
        ("<p>so.<sup><a href=#n1>1</a></sup> Then<a href='#n2'><sup>2, 3</sup></a> more.", "so.[1] Then[2, 3] more."),
        ("<p><a href=#x>10<sup>8</sup></a> m<sup>2</sup><a href=#y>!</a>", "10^8 m^2!"),
        # icons that a font draws for their names
        ("<p>a <i class='material-icons md-18'>share</i> b<span class=material-symbols-outlined>close</span>", "a b"),
        # numbers that a page has twice
        ("<ol><li><span>1</span><div>a</div><p>b</p><li><b>2.</b> c<li>3) d</ol>", "1. a\n\n   b\n\n2. c\n3. d"),
        ("<ol><li>1<li>2 copies<li>3.5 g<li>4</ol>", "1. 1\n2. 2 copies\n3. 3.5 g\n4. 4"),
        ("<ul><li><i class=material-icons>done</i><div>a</div><li>b</ul>", "- a\n- b"),
        # ruby
        ("<ruby>漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp></ruby>だ", "漢字(かんじ)だ"),
        ("<ruby>東<rt>とう</rt>京<rt>きょう</rt></ruby>", "東(とう)京(きょう)"),
        # raw text (HTML standard, 13.2.6.4.7 and 15.3.3)
        ("<xmp>if (a<b && c>d) { <i>no tag</i> }</xmp>", "if (a<b && c>d) { <i>no tag</i> }"),
        ("<p>x<xmp>\n  a &lt; b\n</p>\n</xmp><p>&lt;y", "x\n\n  a &lt; b\n</p>\n\n<y"),
        ("<table><tr><th>a<th>b<tr><td><xmp><b>&amp;</xmp><td>&amp;</table>", "| a | b |\n| <b>&amp; | & |"),
        ("<p>x<plaintext>a &lt; <b>b</plaintext>", "x\n\na &lt; <b>b</plaintext>"),
        ("<p>x<noembed>a</noembed><noframes>b</noframes><iframe>c</iframe>y", "xy"),
        # what is struck through stays, and no word is joined to it
        ("<p>It is <del>10</del><ins>12</ins> crowns, not <s>ten</s>.", "It is 10 12 crowns, not ten."),
        ("<p>10<s>11</s>12 (<strike>a</strike>)<strike>b</strike>c<s></s>d", "10 11 12 (a) b cd"),
        ("<p><del>$10</del><ins>$12</ins> <del>9 </del>8<del> 7</del>, <s>e</s>, f", "$10 $12 9 8 7, e, f"),
        (
            "<h2>A<del>B</del></h2><table><tr><th>c<th>d<tr><td><del>1</del>2<td>3</table>",
            "A B\n\n| c | d |\n| 1 2 | 3 |",
        ),
        ("<pre>-<del>a</del>\n+<ins>b</ins></pre>", "-a\n+b"),
        # quotation marks as browsers draw them, in the language of the page
        ("<p>He said <q>the mill is mine</q> and went.", "He said “the mill is mine” and went."),
        ("<p>He <q>said <b><q>it</q> is</b> mine</q>.<q></q>", "He “said ‘it’ is mine”."),
        ("<p>\"<q>a</q>\" <q>'b'</q> <q> c </q>", "\"a\" 'b' “c”"),
        ("<html lang=de-AT><p>Er sagte <q>mein <q>Rad</q></q>.", "Er sagte „mein ‚Rad‘“."),
        ("<html class=a xml:lang='fr'><p><q>a</q>", "«a»"),
        ("<html lang=xx><p lang=de><q>a</q>", "“a”"),
        # emoji that are images
        ("<p>a <img class='emoji' alt='😀' src=e.svg> b <img class=wp-smiley alt=':-)'>", "a 😀 b :-)"),
        ("<p>a<img class=twemoji alt='👩‍🚀'><img class=emoji alt='&#x1f1e9;&#x1f1ea;'>b", "a👩‍🚀🇩🇪b"),
        ("<p>a<img src=/emoji/1.png alt='1️⃣'> <img class=smilies alt=';)'>", "a1️⃣ ;)"),
        ("<p>a<img class=emoji alt=':octocat:'><img class=emoji alt='Emoji'>b", "ab"),
        ("<p>a<img class=emoji alt='😀 😀'><img alt='😀'>b", "ab"),
        # lists
        ("<ol><li>a<li>b<ul><li>c</ul><li>d</ol>", "1. a\n2. b\n   - c\n3. d"),
        ("<ol start=9><li>a<li value=20>b<li>c</ol>", "9. a\n20. b\n21. c"),
        ("<ol reversed><li>a<li>b</ol>", "2. a\n1. b"),
        ("<ol type=a start=26><li>a<li>b</ol><ol type=I start=4><li>c</ol>", "z. a\naa. b\nIV. c"),
        ("<ul><li>a<ul><li>b<ul><li>c</ul></ul><li>d</ul>", "- a\n  - b\n    - c\n- d"),
        ("<ul><li><p>b</p><p>b2</p><ul><li>c</ul></ul><p>end</p>", "- b\n\n  b2\n\n  - c\n\nend"),
        ("<ul><ul><li>a<ul><li>b</ul></ul></ul>", "- a\n  - b"),
        ("<dl><dt>t<dd>one<dd>two<dt>u<dd>three</dl>", "t\n: one\n: two\n\nu\n: three"),
        ("<dl><dd>no term</dl>", "no term"),
        # elements that the standard does not know are inline
        ("<p>a<x-b>c</x-b>d", "acd"),
        (
            "<dl><dt class='sig sig-object py'><span class=sig-name><span class=pre>f</span></span>("
            "<dl><dd><em>a</em>,</dd><dd><em>b=1</em>,</dd></dl>)<a class=headerlink href=#f>¶</a></dt>"
            "<dd><p>Doc.</p></dd></dl>",
            "f( a, b=1, )\n: Doc.",
        ),
    ],
)
def test_text(source, expected):
    assert rendered(source) == expected


def coloured(line: str) -> str:
    """A line as highlighters give it: words in spans."""
    pieces = re.split(r"(\w+)", line)
    return "".join(f"<span class=n>{p}</span>" if i % 2 else html.escape(p) for i, p in enumerate(pieces))


SHAPES = {
    "lines": lambda lines: "<pre>\n" + "\n".join(map(html.escape, lines)) + "\n</pre>",
    "carriage returns": lambda lines: "<pre>" + "\r\n".join(map(html.escape, lines)) + "</pre>",
    "spans of words": lambda lines: "<pre><code>" + "\n".join(map(coloured, lines)) + "</code></pre>",
    "a div a line": lambda lines: "<pre>" + "".join(f"<div>{coloured(line)}</div>" for line in lines) + "</pre>",
    "divs with line ends": lambda lines: "<pre>" + "".join(f"<div>{coloured(x)}\n</div>" for x in lines) + "</pre>",
    "divs in a div": lambda lines: (
        "<pre><div class=a>" + "".join(f"<div>{html.escape(x) or '<br>'}</div>" for x in lines) + "</div></pre>"
    ),
    "a span a line": lambda lines: (
        "<pre><code>" + "".join(f"<span class=line>{coloured(line)}</span>" for line in lines) + "</code></pre>"
    ),
    "spans and line ends": lambda lines: (
        "<pre><code>" + "\n".join(f"<span class=line>{coloured(line)}</span>" for line in lines) + "</code></pre>"
    ),
    "spans displayed as blocks": lambda lines: (
        "<pre>" + "".join(f'<span style="display: block">{coloured(line)}</span>' for line in lines) + "</pre>"
    ),
    "an item a line": lambda lines: "<pre><ol>" + "".join(f"<li>{coloured(x)}</li>" for x in lines) + "</ol></pre>",
    "br": lambda lines: "<pre>" + "<br/>".join(map(coloured, lines)) + "</pre>",
    "no-break spaces": lambda lines: (
        "<pre>" + "<br>".join(html.escape(line).replace(" ", "&nbsp;") for line in lines) + "</pre>"
    ),
    "numbers in the line": lambda lines: (
        "<pre>"
        + "\n".join(f"<span class=linenos>{n:2} </span>{coloured(line)}" for n, line in enumerate(lines, 1))
        + "</pre>"
    ),
    "a table row a line": lambda lines: (
        "<pre><table>"
        + "".join(f"<tr><td class=line-number>{n}</td><td>{coloured(x)}</td></tr>" for n, x in enumerate(lines, 1))
        + "</table></pre>"
    ),
    "GitHub": lambda lines: (
        "<table class='highlight tab-size'><tbody>"
        + "".join(
            f"<tr><td id=L{n} class='blob-num js-line-number' data-line-number={n}></td>"
            f"<td id=LC{n} class='blob-code blob-code-inner'>{coloured(line)}\n</td></tr>"
            for n, line in enumerate(lines, 1)
        )
        + "</tbody></table>"
    ),
    "highlightjs-line-numbers": lambda lines: (
        "<table class=hljs-ln>"
        + "".join(
            f"<tr><td class='hljs-ln-line hljs-ln-numbers' data-line-number={n}><div class=hljs-ln-n "
            f"data-line-number={n}></div></td><td class='hljs-ln-line hljs-ln-code'>{coloured(line) or ' '}</td></tr>"
            for n, line in enumerate(lines, 1)
        )
        + "</table>"
    ),
    "Doxygen": lambda lines: (
        '<div class="fragment">'
        + "".join(
            f'<div class="line"><a id="l{n:05}"></a><span class="lineno">{n:5}</span>&#160;{coloured(x)}</div>\n'
            for n, x in enumerate(lines, 1)
        )
        + "</div><!-- fragment -->"
    ),
    "Trac": lambda lines: (
        '<table class="code"><thead><tr><th class="lineno">Line</th><th class="content">&nbsp;</th></tr></thead><tbody>'
        + "".join(
            f'<tr><th id="L{n}"><a href="#L{n}">{n}</a></th><td>{coloured(x)}</td></tr>' for n, x in enumerate(lines, 1)
        )
        + "</tbody></table>"
    ),
    "Redmine": lambda lines: (
        '<table class="filecontent syntaxhl"><tbody>'
        + "".join(
            f'<tr id="L{n}"><th class="line-num"><a href="#L{n}">{n}</a></th>'
            f'<td class="line-code"><pre>{coloured(x)}\n</pre></td></tr>'
            for n, x in enumerate(lines, 1)
        )
        + "</tbody></table>"
    ),
    "GitHub, divisions": lambda lines: (
        '<div class="react-code-file-contents"><div class="react-line-numbers" aria-hidden="true">'
        + "".join(f'<div class="react-line-number react-code-text">{n}</div>' for n in range(1, len(lines) + 1))
        + '</div><div class="react-code-lines">'
        + "".join(
            '<div class="react-code-text react-code-line-contents"><div class="react-file-line">'
            f"{coloured(x) or chr(10)}</div></div>"
            for x in lines
        )
        + "</div></div>"
    ),
    "GitHub, line feeds in empty rows": lambda lines: (
        "<table class='highlight js-file-line-container'>"
        + "".join(
            f"<tr><td class='blob-num js-line-number' data-line-number={n}></td>"
            f"<td class='blob-code blob-code-inner js-file-line'>{coloured(x) or chr(10)}</td></tr>\n"
            for n, x in enumerate(lines, 1)
        )
        + "</table>"
    ),
    "SyntaxHighlighter 1": lambda lines: (
        '<div class="dp-highlighter"><div class="bar"></div><ol start="1" class="dp-c">'
        + "".join(f"<li class=alt><span><span>{coloured(x).replace(' ', '&nbsp;')}</span></span></li>" for x in lines)
        + "</ol></div>"
    ),
    "Javadoc": lambda lines: (
        "<pre>"
        + "\n".join(
            f'<span class="source-line-no">{n:03}</span><span id="line-{n}">{coloured(x)}</span>'
            for n, x in enumerate(lines, 1)
        )
        + "</pre>"
    ),
    "rustdoc": lambda lines: (
        '<pre class="rust"><code>'
        + "\n".join(
            f'<a href="#{n}" id="{n}" data-nosnippet>{n}</a>{coloured(x)}' for n, x in enumerate(lines + [""], 1)
        )
        + "</code></pre>"
    ),
    "ViewVC": lambda lines: (
        "<table>"
        + "".join(
            f'<tr id="l{n}"><td class="vc_header">{n}</td><td><pre style="margin:0">{coloured(x)}</pre></td></tr>'
            for n, x in enumerate(lines + [""], 1)
        )
        + "</table>"
    ),
    "Pygments without classes": lambda lines: (
        '<div class="highlight"><pre style="line-height: 125%;"><span></span>'
        + "".join(
            f'<span style="color: inherit; padding-left: 5px">{n:2}</span>{coloured(x)}\n'
            for n, x in enumerate(lines, 1)
        )
        + "</pre></div>"
    ),
    "spaces behind numbers": lambda lines: (  # JXR
        "<pre>\n"
        + "\n".join(
            f'<a name="L{n}" href="#L{n}">{n}</a>{" " * (4 - len(str(n)))}{coloured(x)}'
            for n, x in enumerate([*lines, ""], 7)
        )
        + "\n</pre>"
    ),
    "anchors before numbers": lambda lines: (  # epydoc
        '<pre class="py-src">\n'
        + "".join(
            f'<a name="L{n}"></a><tt class="py-lineno">{n:3}</tt>  <tt class="py-line">{coloured(x)}</tt>\n'
            for n, x in enumerate([*lines, ""], 8)
        )
        + "</pre>"
    ),
    "Doxygen 1.7": lambda lines: (
        '<pre class="fragment">'
        + "\n".join(f'<a name="l{n:05}"></a>{n:05} {coloured(x)}' for n, x in enumerate(lines, 1))
        + "</pre>"
    ),
    "numbers in a span of each line": lambda lines: (  # Chroma
        "<pre><code>"
        + "".join(
            f'<span style="display:flex;"><span style="user-select:none"><a href="#l{n}">{n}</a></span>'
            f"<span>{coloured(x)}\n</span></span>"
            for n, x in enumerate(lines, 1)
        )
        + "</code></pre>"
    ),
    "Gitea": lambda lines: (
        "<table><tbody>"
        + "".join(
            f'<tr><td id="L{n}" class="lines-num"><span data-line-number="{n}"></span></td>'
            f'<td rel="L{n}" class="lines-code chroma"><code class="code-inner">{coloured(x)}\n</code></td></tr>'
            for n, x in enumerate(lines, 1)
        )
        + "</tbody></table>"
    ),
    "Phabricator": lambda lines: (
        "<table><tbody>"
        + "".join(
            f'<tr><th class="phabricator-source-line"><a data-n="{n}"></a></th>'
            f'<td class="phabricator-source-code">{coloured(x)}\n</td></tr>'
            for n, x in enumerate(lines, 1)
        )
        + "</tbody></table>"
    ),
    "CodeMirror 5": lambda lines: (
        '<div class="CodeMirror-code" role="presentation">'
        + "".join(
            '<div style="position: relative;"><div class="CodeMirror-gutter-wrapper"><div class="CodeMirror-linenumber '
            f'CodeMirror-gutter-elt">{n}</div></div><pre class=" CodeMirror-line "><span role="presentation">'
            f"{coloured(x) or '<span>&#8203;</span>'}</span></pre></div>"
            for n, x in enumerate(lines, 1)
        )
        + "</div>"
    ),
    "LaTeXML": lambda lines: (
        '<div class="ltx_listing ltx_lstlisting ltx_listing"><div class="ltx_listing_data">'
        '<a href="data:text/plain;base64,ZGVm" download="">&#x2B07;</a></div>'
        + "".join(
            f'<div class="ltx_listingline"><span class="ltx_tag ltx_tag_listingline">{n}</span>'
            f"{coloured(x).replace(' ', '&nbsp;').replace('span&nbsp;', 'span ')}</div>"
            for n, x in enumerate(lines, 1)
        )
        + "</div>"
    ),
    "divisions styled as pre": lambda lines: (  # Visual Studio Code
        "<div style=\"font-family: Consolas, 'Courier New', monospace;white-space: pre;\">"
        + "".join(f"<div>{coloured(x)}</div>" if x else "<br>" for x in lines)
        + "</div>"
    ),
    "numbers in a cell": lambda lines: (
        "<table class=highlighttable><tr><td class=linenos><div class=linenodiv><pre>"
        + "\n".join(map(str, range(1, len(lines) + 1)))
        + "</pre></div></td><td class=code><div class=highlight><pre>"
        + "\n".join(map(coloured, lines))
        + "\n</pre></div></td></tr></table>"
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_code_in_all_shapes(shape):
    # what is displayed as blocks has no tab that could be told from a space
    assert rendered("<p>before</p>" + SHAPES[shape](LINES) + "<p>after</p>") == f"before\n\n{CODE}\n\nafter"


CODE_LINE = st.text(st.sampled_from("ab(){}=<>&'\"# 1\t_"), max_size=12).map(str.rstrip)


@settings(max_examples=150, deadline=None)
@given(st.lists(CODE_LINE, min_size=1, max_size=8), st.sampled_from(sorted(SHAPES)))
@example(["1"], "a span a line")
@example(["1<"], "a span a line")
@example(["1"], "spans of words")
def test_any_code_keeps_its_lines(lines, shape):
    while lines and not lines[0]:
        lines = lines[1:]
    while lines and not lines[-1]:
        lines = lines[:-1]
    if lines and lines[0].strip():
        assert rendered(SHAPES[shape](lines)) == "\n".join(lines)


def test_numbers_of_lines_are_not_lines_that_are_numbers():
    lines = ["a", "1", "2", "b"]
    for shape in SHAPES:
        assert rendered("<p>before</p>" + SHAPES[shape](lines)) == "before\n\na\n1\n2\nb"
    assert rendered("<p>Type <code>a<br>b</code> there.") == "Type a\nb there."


def test_a_table_around_code_holds_no_data():
    page = "<table><tr><th>C#</th><th>Copy</th></tr><tr><td colspan=2><pre>{}</pre></td></tr></table>"
    assert rendered(page.format(html.escape(CODE))) == f"C#\n\nCopy\n\n{CODE}"
    assert rendered(page.format("mill")) == "| C# | Copy |\n| mill |  |"


def test_numbers_of_lists_by_their_style():
    for style in (
        "style='list-style-type: lower-roman'",
        "style='list-style: LOWER-ROMAN inside'",
        "class='lowerroman x'",
    ):
        assert rendered(f"<ol {style}><li>a<li>b<ol style='list-style:upper-latin'><li>c</ol></ol>") == (
            "i. a\nii. b\n    A. c"
        )


def test_spans_of_rows_end_with_their_group():
    page = "<table><tbody><tr><th>a<td rowspan=9>b<tbody><tr><th>c<td>d<tr><th rowspan=2>e<td>f<tr><td>g</table>"
    assert rendered(page) == "| a | b |\n| c | d |\n| e | f |\n|  | g |"


@pytest.mark.parametrize(
    "parts",
    [
        "<thead>{head}</thead><tfoot>{foot}</tfoot><tbody>{body}</tbody>",  # HTML 4
        "<thead>{head}<tfoot>{foot}<tbody>{body}",
        "<tfoot>{foot}<thead>{head}<tbody>{body}",
        "<tbody>{body}<tfoot>{foot}<thead>{head}",
        "<thead>{head}</thead><tfoot>{foot}</tfoot>{body}",
        "<thead>{head}<tbody>{body}<tfoot>{foot}",
        "<tfoot></tfoot><thead>{head}<tbody>{body}{foot}",
    ],
)
def test_heads_and_feet_of_tables_are_where_browsers_show_them(parts):
    rows = {
        "head": "<tr><th>Flour<th>Bag<th>Price",
        "body": "<tr><td rowspan=2>Wheat<td>1 kg<td>2<tr><td>5 kg<td>7<tr><td>Rye<td>1 kg<td>3",
        "foot": "<tr><td>Sum<td><td>12",
    }
    page = f"<table><caption>Prices</caption>{parts.format(**rows)}</table>"
    shown = (
        "| Flour | Bag | Price |",
        "| Wheat | 1 kg | 2 |",
        "|  | 5 kg | 7 |",
        "| Rye | 1 kg | 3 |",
        "| Sum |  | 12 |",
    )
    assert rendered(page) == "\n".join(("Prices\n", *shown))
    assert rendered(page, markdown=True).split("\n")[2:5] == [shown[0], "| --- | --- | --- |", shown[1]]


def test_only_one_head_and_one_foot_of_a_table_are_moved():
    page = (
        "<table><tr><td>a<td>1<tfoot><tr><td>b<td>2<tfoot><tr><td>c<td>3<tbody><tr><td>d<td>4"
        "<thead><tr><td>e<td>5<thead><tr><td>f<td>6</table>"
    )
    assert rendered(page).split("\n") == [f"| {name} | {n} |" for name, n in zip("eacdfb", "513462", strict=True)]


def test_what_a_style_hides_is_no_part_of_a_cell():
    page = (
        "<table><tr><th>a<th>b<tr><td><span style='display: none'>001 !</span>c<td><i style='color:red'>d</i></table>"
    )
    assert rendered(page) == "| a | b |\n| c | d |"


def test_buttons_in_headings():
    button = "<button><span>Copy link</span></button>"
    assert rendered(f"<h2><span>Mill</span>{button}</h2><p>x") == "Mill\n\nx"
    assert rendered("<h2><button>Mill</button></h2><p>x") == "Mill\n\nx"


def test_numbers_that_begin_a_line_in_markdown():
    text = rendered("<h2>1. Mill</h2><p>2) grain<br>3.5 sacks<br>- a", markdown=True)
    assert text == "## 1\\. Mill\n\n2\\) grain\n3.5 sacks\n\\- a"
    assert MarkdownIt().render(text) == "<h2>1. Mill</h2>\n<p>2) grain\n3.5 sacks\n- a</p>\n"


def test_markdown():
    source = (
        "<h1>A <b>b</b></h1><h3>c</h3><p># d <b>e</b> <i>f</i> <code>g`h</code><br>- i</p>"
        "<pre><code class='language-python'>a\n\n  b</code></pre><ol><li>j<pre>  k\nl</pre></ol>"
        "<table><tr><th>m<th>n<tr><td>o|p<td></table>"
    )
    assert rendered(source, markdown=True) == (
        "# A **b**\n\n### c\n\n\\# d **e** *f* `` g`h ``\n\\- i\n\n```python\na\n\n  b\n```\n\n1. j\n\n   ```\n     k\n"
        "   l\n   ```\n\n| m | n |\n| --- | --- |\n| o\\|p |  |"
    )


def test_emphasis_that_adds_nothing_in_markdown():
    assert rendered("<h2><b>a</b></h2><h3><b>b</b> c</h3>", markdown=True) == "## a\n\n### **b** c"
    assert rendered("<p><strong>1. <b>a</b> b</strong> <b>c</b> <i>d</i>", markdown=True) == "**1. a b c** *d*"
    assert rendered("<p><b>a</b><br><b>b</b> 2 ** **", markdown=True) == "**a**\n**b** 2 ** **"
    assert rendered("<p><code>f(<em>a <code>b</code></em>)</code> <em>c</em>", markdown=True) == "`f(a b)` *c*"


def test_what_is_set_large_at_length_is_no_heading():
    long = "The stones turn slowly. " * 12
    assert rendered(f"<h3>{long}</h3><h3>Mill</h3>", markdown=True) == f"{long.strip()}\n\n### Mill"


@pytest.mark.parametrize(
    ("image", "is_formula"),
    [
        ("class='latex' src='a.png'", True),
        ("class='mwe-math-fallback-image-inline' src='https://x.example/svg/1'", True),
        ("class='math' src='a.png'", True),
        ("class='ql-img-inline-formula quicklatex-auto-format' src='/cache3/ab/ql_ab_l3.svg'", True),
        ("class='tex' src='a.png'", True),
        ("class='text latexit mathematics' src='a.png'", False),
        ("src='https://wikimedia.example/api/rest_v1/media/math/render/svg/ab12'", True),
        ("src='//upload.example/math/b/8/7/b87a.png'", True),
        ("src='_images/math/d4bd3020c8d7.png'", True),
        ("src='/cgi-bin/mathtex.cgi?x'", True),
        ("src='/cgi-bin/mimetex.cgi?x'", True),
        ("src='//s0.example/latex.php?latex=x'", True),
        ("src='https://latex.example/gif.latex?x'", True),
        ("src='/filter/tex/pix.php/ab.gif'", True),
        ("src='/gin-tonic-foto-mathem-424x424.jpg'", False),
        ("src='/images/larger_text.gif'", False),
        ("src='http://www.cs.utexas.example/users/ball.gif'", False),
        ("src='/math/teacher.jpg'", False),
        ("src='/latex2html_icons/next.gif'", False),
        ("src='/text/smath/01/icon.svg'", False),
        ("src='data:image/svg+xml;base64,/tex/mathtex'", False),
    ],
)
def test_images_of_formulas_by_class_and_address(image, is_formula):
    page = f"<p>so <img {image} alt='x^2'> it is"
    scanned = scan(np.frombuffer(page.encode(), np.uint8)).text.tobytes().decode()
    assert scanned == ("so x^2 it is" if is_formula else "so it is")
    assert rendered(page, markdown=True) == ("so $x^2$ it is" if is_formula else "so it is")


def test_exponents_of_what_is_emphasised_in_markdown():
    source = "<p>One <i>z</i><sup>20</sup> + <i>d</i><sub>5</sub> = 3<i>r</i><sup>2</sup> two.</p>"
    assert rendered(source, markdown=True) == "One *z*^20 + *d*_5 = 3*r*^2 two."


TEX = r"\frac{a}{b} < x_{1}"
ESCAPED = html.escape(TEX)
FORMULAS = {
    "MathJax 2": f'<span class="MathJax_Preview">ab</span><span class="MathJax"><nobr>ab x1</nobr></span>'
    f'<script type="math/tex">{TEX}</script>',
    "MathJax 2, not run": f'<script type="math/tex">{TEX}</script>',
    "MathJax 4": f'<mjx-container class="MathJax" jax="CHTML"><mjx-math data-latex="{ESCAPED}"><mjx-mi>x</mjx-mi>'
    "</mjx-math></mjx-container>",
    "KaTeX": '<span class="katex"><span class="katex-mathml"><math><semantics><mrow><mi>x</mi></mrow>'
    f'<annotation encoding="application/x-tex">{ESCAPED}</annotation></semantics></math></span>'
    '<span class="katex-html" aria-hidden="true"><span class="base">ab&lt;x1</span></span></span>',
    "LaTeXML": f'<math alttext="{ESCAPED}" class="ltx_Math" display="inline"><mi>x</mi></math>',
    "Wikipedia": '<span class="mwe-math-element"><span style="display: none"><math '
    f'alttext="{{\\displaystyle {ESCAPED}}}"><semantics><mi>x</mi><annotation encoding="application/x-tex">'
    f'{{\\displaystyle {ESCAPED}}}</annotation></semantics></math></span><img src="https://x.example/svg/1" '
    f'class="mwe-math-fallback-image-inline" alt="{{\\displaystyle {ESCAPED}}}"></span>',
    "latex2html": f'<IMG WIDTH="45" BORDER="0" SRC="img1.png" ALT="${ESCAPED}$">',
    "an image with a title": f'<img src="https://x.example/gif.latex?{ESCAPED}" title="{ESCAPED}" />',
    "KaTeX, MathML stripped": '<span class="katex"><span class="katex-mathml">\n \n  a\n \n \n  b\n \n\n <\n'
    f' \n  x\n \n 1\n \n  {ESCAPED}\n </span><span class="katex-html"><span class="base">ab&lt;x1</span></span></span>',
    "an image": f'<img src="/latex.php?x" class="latex" alt="{ESCAPED}">',
}


_PIECES = st.lists(
    st.tuples(st.sampled_from(["", "strong", "em", "b", "i"]), st.text("ab .:(", min_size=1, max_size=5)), max_size=6
)


@given(_PIECES)
def test_emphasis_leaves_the_text_as_a_parser_of_markdown_reads_it(pieces):
    source = "".join(f"<{name}>{text}</{name}>" if name else text for name, text in pieces)
    html = MarkdownIt().render(rendered(f"<p>x {source} x</p>", markdown=True))
    read = re.sub(r"</?(?:strong|em|p)>", "", html)
    assert read.split() == "".join(text for _, text in [("", "x "), *pieces, ("", " x")]).split()


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_once(name):
    assert rendered(f"<p>one {FORMULAS[name]} two</p>") == f"one ${TEX}$ two"


def test_displayed_formulas():
    mathjax = (
        '<p>one</p><div class="MathJax_Display"><span class="MathJax">ab</span></div>'
        '<script type="math/tex; mode=display">x^2</script>'
    )
    assert rendered(mathjax) == "one\n\n$$x^2$$"
    katex = '<p>a</p><p><span class="katex-display">' + FORMULAS["KaTeX"].replace(ESCAPED, "x^2") + "</span></p>"
    assert rendered(katex) == "a\n\n$$x^2$$"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<mfrac><mn>1</mn><msup><mi>x</mi><mn>2</mn></msup></mfrac>", r"\frac{1}{x^2}"),
        ("<msubsup><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></msubsup>", r"\sum_{i=1}^n"),
        ("<msqrt><mi>α</mi><mi>x</mi></msqrt><mo>≤</mo><mi>sin</mi><mi>y</mi>", r"\sqrt{\alpha x}\leq\sin y"),
        ("<mover><mi>x</mi><mo>¯</mo></mover>", r"\bar{x}"),
        (
            "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr></mtable>",
            r"\begin{matrix} 1 & 2 \end{matrix}",
        ),
    ],
)
def test_mathml_without_latex(source, expected):
    assert rendered(f"<p>a <math>{source}</math> b") == f"a ${expected}$ b"
    container = f'<mjx-container jax="SVG"><svg><path d=""/></svg><mjx-assistive-mml><math>{source}</math>'
    assert rendered(f"<p>a {container}</mjx-assistive-mml></mjx-container> b") == f"a ${expected}$ b"


def cells(text: str) -> list[list[str]]:
    return [line[2:-2].split(" | ") for line in text.split("\n")]


WORD = st.text(st.sampled_from("abc123äß漢"), max_size=5)


@st.composite
def tables(draw):
    """(HTML, the cells in place): any spans that do not overlap."""
    height, width = draw(st.integers(2, 5)), draw(st.integers(2, 5))
    grid = [[None] * width for _ in range(height)]
    source = ["<table>"]
    for r in range(height):
        source.append("<tr>")
        for c in range(width):
            if grid[r][c] is not None:
                continue
            wide, high = draw(st.integers(1, 2)), draw(st.integers(1, 2))
            wide = 2 if wide == 2 and c + 1 < width and grid[r][c + 1] is None else 1
            high = high if r + high <= height else 1
            for y in range(high):
                for x in range(wide):
                    grid[r + y][c + x] = ""
            text = draw(WORD)
            grid[r][c] = text
            tag = draw(st.sampled_from(["td", "th"]))
            spans = f" colspan={wide}" * (wide > 1) + f' rowspan="{high}"' * (high > 1)
            source.append(f"<{tag}{spans}>{text}" + draw(st.sampled_from(["", f"</{tag}>", "<br>", "<p> </p>"])))
        source.append(draw(st.sampled_from(["", "</tr>"])))
    return "".join([*source, "</table>"]), grid


@settings(max_examples=200, deadline=None)
@given(tables())
@example(("<table><tr><th>n<th colspan=2>s<tr><td rowspan=2>a<td>1<td>2<tr><td>3<td></table>", None))
def test_cells_in_place(made):
    source, grid = made
    if grid is None:
        grid = [["n", "s", ""], ["a", "1", "2"], ["", "3", ""]]
    filled = [row for row in grid if any(row)]
    used = [c for c in range(len(grid[0])) if any(row[c] for row in filled)]
    text = rendered(f"{source}<p>end</p>")
    expected = [[row[c] for c in used] for row in filled]
    # a table of one column, of one row without headers, or without two cells side by side is not told from layout
    if len(filled) > 1 and len(used) > 1 and any(sum(map(bool, row)) > 1 for row in filled):
        assert cells(text.removesuffix("\n\nend")) == expected
        assert len({len(row) for row in cells(text.removesuffix("\n\nend"))}) == 1


def test_tables_for_layout_are_not_there():
    assert rendered("<table><tr><td>menu<td><p>one</p><p>two</p></table>") == "menu\n\none\n\ntwo"
    inner = "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
    assert rendered(f"<table><tr><td>x<td>{inner}<tr><td>y<td>z</table>") == "x\n\n| a | b |\n| c | d |\n\ny\n\nz"
    assert rendered("<table><tr><td>a<td><tr><td><td>b<tr><td>c</table>") == "a\n\nb\n\nc"
    assert rendered("<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>") == "a\n\nb\n\nc\n\nd"


def test_the_text_before_a_table_is_not_its_caption():
    table = "<table><caption>c</caption><tr><th>a<th>b<tr><td>1<td>2</table>"
    page = f"<table><tr><td>menu<td><p>{'long ' * 1000}</p>{table}<p>end</p></table>"
    assert rendered(page).endswith("long\n\nc\n\n| a | b |\n| 1 | 2 |\n\nend")


def _calls(source: str, markdown: bool) -> int:
    """Calls of functions, ours and the library's, that the rendering of a page takes."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    data = source.encode()
    found = Source(data, scan(np.frombuffer(data, np.uint8)))
    gc.disable()  # or what other tests have left is finalised meanwhile, and counts
    sys.setprofile(note)
    try:
        together = units(found)
        kept = np.arange(len(found.page.blocks.begin)) % 3 != 1
        render(found, together, completed(found, together, kept), markdown)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


GROWING = {
    "divisions": lambda n: "<div>a" * n,
    "spans": lambda n: "<p>" + "<span>a" * n + "</span>" * n,
    "exponents": lambda n: "<p>" + "a<sup>b" * n + "</sup>" * n,
    "formulas": lambda n: "<p><math>a</math>" + "<span class=katex>a" * n + "</span>" * n,
    "lists": lambda n: "<ol><li>a" * n,
    "definitions": lambda n: "<dl>" + "<dt>a<dd>b" * n,
    "headings": lambda n: "<p>a</p>" + "<h2>b</h2>" * n + "<p>c</p>",
    "falling headings": lambda n: "".join(f"<h{6 - i % 6}>a</h{6 - i % 6}>b" for i in range(n)),
    "rows": lambda n: "<table>" + "<tr><th>1<td rowspan=3>a<td colspan=2>b" * n,
    "tables": lambda n: "<table><tr><td>a<td>b" * n,
    "tables of code": lambda n: "<table class=code>" + "<tr><th class=lineno><a>1</a><td>b" * n,
    "lines of code": lambda n: "<pre>" + "<div><span class=line><span>1</span>a\n" * n,
    "numbered lines": lambda n: "<pre>" + "".join(f"<span>{i}</span>a\n" for i in range(n)),
    "containers": lambda n: '<div class="fragment"><div class="line">a' * n,
    "code": lambda n: "<p>x<code>a<br>b</code>" * n,
    "open code": lambda n: "<code>a<br>" * n + "</code>" * n,
}


@pytest.mark.parametrize("shape", GROWING)
def test_the_work_grows_as_the_page_does(shape):
    for markdown in (False, True):
        _calls(GROWING[shape](60), markdown)  # loads the kernels
        one, two, four = (_calls(GROWING[shape](n), markdown) for n in (60, 120, 240))
        assert four - two <= 2.2 * (two - one) + 50


def test_tables_and_code_are_kept_or_dropped_whole():
    table = "<p>x</p><table><tr><td>aaaa<td>bbbb<tr><td>cccc<td>dddd</table>"
    assert rendered(table, kept=[0, 1, 2]) == "x\n\n| aaaa | bbbb |\n| cccc | dddd |"
    assert rendered(table, kept=[0, 4]) == "x"
    code = "<p>x</p><pre><div>aaaa</div><div>bbbb</div><div>cccc</div><div>dddd</div></pre>"
    assert rendered(code, kept=[0, 1, 3, 4]) == "x\n\naaaa\nbbbb\ncccc\ndddd"
    assert rendered(code, kept=[0, 2]) == "x"


def test_what_belongs_to_kept_blocks_is_kept():
    page = "<p>one</p>{}<p>two</p>"
    assert rendered(page.format("<pre>1 2</pre>"), kept=[0, 2]) == "one\n\n1 2\n\ntwo"
    assert rendered(page.format("<h2>h</h2><div>$$x$$</div>"), kept=[0, 3]) == "one\n\nh\n\n$$x$$\n\ntwo"
    formula = "<p><script type='math/tex; mode=display'>x</script></p>"
    assert rendered(page.format(formula), kept=[0, 2]) == "one\n\n$$x$$\n\ntwo"
    formula = "<p><span class='math display'>x</span></p>"
    assert rendered(page.format(formula), kept=[0, 2]) == "one\n\nx\n\ntwo"
    assert rendered(page.format("<p>$5</p>"), kept=[0, 2]) == "one\n\ntwo"
    assert rendered(page.format("<div>menu</div><pre>1 2</pre>"), kept=[0, 3]) == "one\n\ntwo"
    terms = "<dl><dt>t</dt><dd>ten words long</dd><dt>u</dt><dd>ten words too</dd></dl>"
    assert rendered(terms, kept=[1, 2, 3]) == "t\n: ten words long\n\nu\n: ten words too"
    items = "<ul><li>aaaa<li>bbbb<ul><li>cccc</ul><li>dddd<li>eeee</ul><p>end"
    assert rendered(items, kept=[0, 1, 3, 4, 5]) == "- aaaa\n- bbbb\n  - cccc\n- dddd\n- eeee\n\nend"
    assert rendered(items, kept=[0, 5]) == "- aaaa\n\nend"


def test_headings_come_with_what_is_kept():
    page = "<h1>one</h1><h2>two</h2><p>three</p><h2>four</h2><p>five</p><h2>six</h2><h3>seven</h3><p>eight</p>"
    assert rendered(page, kept=[2]) == "one\n\ntwo\n\nthree"
    assert rendered(page, kept=[7]) == "one\n\nsix\n\nseven\n\neight"
    row = "<h1>one</h1><p>two</p><h3>three</h3><h2>four</h2>{}<p>five</p>"
    assert rendered(row.format(""), kept=[1, 4]) == "one\n\ntwo\n\nthree\n\nfour\n\nfive"
    assert rendered(row.format(""), kept=[1]) == "one\n\ntwo"
    teasers = "<h3>a</h3><h3>b</h3><h3>c</h3><h3>d</h3>"
    assert rendered(row.format(teasers), kept=[1, 8]) == "one\n\ntwo\n\nfour\n\nb\n\nc\n\nd\n\nfive"
    link = row.replace("<h3>three</h3>", "<h3><a href=x>three</a></h3>").format("")
    assert rendered(link, kept=[1, 4]) == "one\n\ntwo\n\nfour\n\nfive"


def test_small_tables_and_listings_follow_their_section():
    text = "<h2>head</h2><p>one two</p>" + "<p>three four</p>" * 8
    table = "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
    whole = rendered(text + table, kept=list(range(10)))
    assert whole.endswith("\n\n| a | b |\n| c | d |")
    assert rendered(text + "<pre>x y</pre>", kept=list(range(10))).endswith("\n\nx y")
    part = rendered(text + "<h3>part</h3>" + table, kept=list(range(10)))
    assert part.endswith("\n\npart\n\n| a | b |\n| c | d |")
    index = table.replace("a<", "<a href=x>aaaaaa</a><")
    assert "aaaaaa" not in rendered(text + index, kept=list(range(10)))
    assert rendered("<p>other</p>" + text + table, kept=[0]) == "other"
    # the list of contents between a heading and its table does not keep it from following
    headed = "<h1>head</h1><div>menu</div>" + table + "<h2>two</h2><p>text</p>"
    assert rendered(headed, kept=[7]) == "head\n\n| a | b |\n| c | d |\n\ntwo\n\ntext"


def test_no_section_is_dropped_between_kept_ones():
    section = "<h2>{0}</h2><p>words of {0}</p>"
    page = "".join(map(section.format, "abcdef"))
    assert rendered(page, kept=[0, 1, 2, 3, 6, 7, 8, 9]) == rendered("".join(map(section.format, "abcde")))
    assert "words of b" not in rendered(page, kept=[0, 1, 10, 11])  # most of them are dropped
    linked = page.replace("words of c", "<a href=x>words of c</a>").replace(">c<", "><a href=x>c</a><")
    assert "of c" not in rendered(linked, kept=[0, 1, 2, 3, 6, 7, 8, 9])
    other = page.replace("<h2>c</h2><p>words of c</p>", "<div class=x><h2>c</h2><p>words of c</p></div>")
    assert "of c" not in rendered(other, kept=[0, 1, 2, 3, 6, 7, 8, 9])


def test_entries_of_a_reference_are_kept_with_another():
    entry = "<h3>{0}</h3><pre>void {0}();</pre><p>words of {0}</p><h4>returns</h4><p>less of {0}</p>"
    page = "<h1>a reference</h1>" + "".join(f"<div class=entry>{entry.format(name)}</div>" for name in "abcd")
    assert rendered(page, kept=[1, 2, 3, 4, 5]) == rendered(page)
    # half of one is kept, which is no more than a part of any page
    assert "words of d" not in rendered(page, kept=[1, 2, 3])
    apart = page.replace("<div class=entry><h3>d", "<div class=x><h3>d")
    assert "words of c" in rendered(apart, kept=[1, 2, 3, 4, 5])
    assert "of d" not in rendered(apart, kept=[1, 2, 3, 4, 5])
    prose = page.replace("<pre>void d();</pre>", "<p>of a story</p>")
    assert "of d" not in rendered(prose, kept=[1, 2, 3, 4, 5])
    linked = page.replace("d</h3><pre>void d();", "<a href=x>d</a></h3><pre><a href=x>void d();</a>")
    linked = linked.replace("words of d", "<a href=x>words of d</a>").replace("less of d", "<a href=x>less of d</a>")
    assert "of d" not in rendered(linked, kept=[1, 2, 3, 4, 5])
    table = "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
    assert rendered(page.replace("<pre>void d();</pre>", table), kept=[1, 2, 3, 4, 5]).endswith("less of d")


@pytest.mark.extended
@settings(max_examples=300, deadline=None)
@given(SOURCES, st.booleans())
@example("<pre>a<div>b", True)
@example("<table><tr><th>a<td>b<tr><td>c<td><sup>d", False)
@example("<p>a<math><mfrac><svg>b<ruby><rt>", False)
def test_any_page_is_rendered(source, markdown):
    text = rendered(source, markdown)
    text.encode()
    if not markdown:
        words = re.findall(r"Worte|слово", source)
        assert len(re.findall(r"Worte|слово", text)) <= len(words)
