"""The shapes in which pages write code: one line an element, line numbers beside, hard spaces, buttons within."""

import re
from html import escape

from tests.benchmarks.structure.article import Code


def _pre(part: Code) -> str:
    return f"<pre>{escape(chr(10).join(part.lines))}</pre>"


def _fenced(part: Code) -> str:
    text = escape("\n".join(part.lines))
    return f'<div class="highlight"><pre><code class="language-{part.language}">{text}\n</code></pre></div>'


def _span_a_line(part: Code) -> str:
    lines = "\n".join(f'<span class="line">{_tokens(line)}</span>' for line in part.lines)
    return f'<pre class="shiki github-dark" tabindex="0"><code>{lines}</code></pre>'


def _div_a_line(part: Code) -> str:
    lines = "".join(
        f'<div class="cl">{_tokens(line)}</div>' if line else '<div class="cl"><br></div>' for line in part.lines
    )
    return f'<pre class="code-block"><code>{lines}</code></pre>'


def _breaks(part: Code) -> str:
    return f"<pre>{'<br>'.join(escape(line) for line in part.lines)}</pre>"


def _docusaurus(part: Code) -> str:
    lines = "".join(
        f'<span class="token-line" style="color:#393A34">{_tokens(line) if line else ""}<br></span>'
        for line in part.lines
    )
    return (
        '<div class="codeBlockContainer"><div class="codeBlockContent"><pre tabindex="0" class="prism-code">'
        f'<code class="codeBlockLines">{lines}</code></pre></div></div>'
    )


def _hard_spaces(part: Code) -> str:
    if _tabbed(part):
        return _fenced(part)
    lines = "<br />\n".join(_hard(line) for line in part.lines)
    return f"<code>{lines}</code>"


def _hard(line: str) -> str:
    """Spaces as those keep them who write code without `pre`: at the beginning, and all but the last of several."""
    return re.sub(r"^ +| +(?= )", lambda found: "&nbsp;" * len(found[0]), escape(line))


def _blob(part: Code) -> str:
    rows = "".join(
        f'<tr><td id="L{n}" class="blob-num js-line-number" data-line-number="{n}"></td>'
        f'<td id="LC{n}" class="blob-code blob-code-inner js-file-line">{_tokens(line) or chr(10)}</td></tr>\n'
        for n, line in enumerate(part.lines, 1)
    )
    return (
        f'<div class="blob-wrapper data"><table class="highlight tab-size js-file-line-container">{rows}</table></div>'
    )


def _row_a_line(part: Code) -> str:
    rows = "".join(
        f'<tr><td class="hljs-ln-line hljs-ln-numbers" data-line-number="{n}"><div class="hljs-ln-n">{n}</div></td>'
        f'<td class="hljs-ln-line hljs-ln-code" data-line-number="{n}">{_tokens(line) or " "}</td></tr>'
        for n, line in enumerate(part.lines, 1)
    )
    return f'<pre><code class="hljs"><table class="hljs-ln"><tbody>{rows}</tbody></table></code></pre>'


def _gutter(part: Code) -> str:
    numbers = "".join(f'<div class="line number{n} index{n - 1}">{n}</div>' for n in range(1, len(part.lines) + 1))
    if _tabbed(part):
        return _fenced(part)
    lines = "".join(
        f'<div class="line number{n} alt"><code class="plain">{_hard(line) or "&nbsp;"}</code></div>'
        for n, line in enumerate(part.lines, 1)
    )
    return (
        '<div class="syntaxhighlighter"><table border="0" cellpadding="0" cellspacing="0"><tbody><tr>'
        f'<td class="gutter">{numbers}</td><td class="code"><div class="container">{lines}</div></td>'
        "</tr></tbody></table></div>"
    )


def _hexo(part: Code) -> str:
    numbers = "".join(f'<span class="line">{n}</span><br>' for n in range(1, len(part.lines) + 1))
    lines = "".join(f'<span class="line">{_tokens(line)}</span><br>' for line in part.lines)
    return (
        f'<figure class="highlight {part.language}"><table><tr><td class="gutter"><pre>{numbers}</pre></td>'
        f'<td class="code"><pre>{lines}</pre></td></tr></table></figure>'
    )


def _rouge(part: Code) -> str:
    numbers = "".join(f"{n}\n" for n in range(1, len(part.lines) + 1))
    text = "\n".join(_tokens(line) for line in part.lines)
    return (
        '<div class="language-x highlighter-rouge"><div class="highlight"><pre class="highlight"><code>'
        f'<table class="rouge-table"><tbody><tr><td class="rouge-gutter gl"><pre class="lineno">{numbers}</pre></td>'
        f'<td class="rouge-code"><pre>{text}\n</pre></td></tr></tbody></table></code></pre></div></div>'
    )


def _ordered(part: Code) -> str:
    lines = "".join(
        f'<li class="L{n % 10}"><span class="pln">{_tokens(line)}</span></li>' for n, line in enumerate(part.lines)
    )
    return f'<pre class="prettyprint linenums prettyprinted"><ol class="linenums">{lines}</ol></pre>'


def _numbered_spans(part: Code) -> str:
    lines = "\n".join(
        f'<span class="lineno" aria-hidden="true">{n:>3} </span>{_tokens(line)}' for n, line in enumerate(part.lines, 1)
    )
    return f'<pre><code class="numbered">{lines}</code></pre>'


def _tokens(line: str) -> str:
    """A highlighter's spans: every second word, and the indentation outside of them."""
    words = line.split(" ")
    return " ".join(
        f'<span class="k{i % 3}">{escape(w)}</span>' if w and i % 2 else escape(w) for i, w in enumerate(words)
    )


def _doxygen(part: Code) -> str:
    lines = "".join(
        f'<div class="line"><a id="l{n:05}"></a><span class="lineno">{n:5}</span>&#160;{_tokens(line)}</div>\n'
        for n, line in enumerate(part.lines, 1)
    )
    return f'<div class="fragment">{lines}</div><!-- fragment -->'


def _chroma_table(part: Code) -> str:
    numbers = "".join(f'<span class="lnt">{n}\n</span>' for n in range(1, len(part.lines) + 1))
    lines = "".join(f'<span class="line"><span class="cl">{_tokens(line)}\n</span></span>' for line in part.lines)
    return (
        '<div class="highlight"><div class="chroma"><table class="lntable"><tr><td class="lntd">'
        f'<pre tabindex="0" class="chroma"><code>{numbers}</code></pre></td><td class="lntd">'
        f'<pre tabindex="0" class="chroma"><code class="language-{part.language}">{lines}</code></pre>'
        "</td></tr></table></div></div>"
    )


def _chroma_inline(part: Code) -> str:
    lines = "".join(
        f'<span class="line"><span class="ln">{n:2}</span><span class="cl">{_tokens(line)}\n</span></span>'
        for n, line in enumerate(part.lines, 1)
    )
    return f'<div class="highlight"><pre tabindex="0" class="chroma"><code>{lines}</code></pre></div>'


def _geshi(part: Code) -> str:
    lines = "".join(
        f'<li style="font-weight: normal;" class="li1"><div class="de1">{_tokens(line) or "&nbsp;"}</div></li>'
        for line in part.lines
    )
    return f'<div class="{part.language} geshi"><pre class="de1"><ol>{lines}</ol></pre></div>'


def _crayon(part: Code) -> str:
    if _tabbed(part):
        return _fenced(part)
    numbers = "".join(f'<div class="crayon-num" data-line="c-{n}">{n}</div>' for n in range(1, len(part.lines) + 1))
    lines = "".join(
        f'<div class="crayon-line" id="c-{n}">{_hard(line) or "&nbsp;"}</div>' for n, line in enumerate(part.lines, 1)
    )
    return (
        '<div class="crayon-syntax"><div class="crayon-main"><table class="crayon-table"><tr class="crayon-row">'
        f'<td class="crayon-nums"><div class="crayon-nums-content">{numbers}</div></td>'
        f'<td class="crayon-code"><div class="crayon-pre">{lines}</div></td></tr></table></div></div>'
    )


def _trac(part: Code) -> str:
    rows = "".join(
        f'<tr><th id="L{n}"><a href="#L{n}">{n}</a></th><td>{_tokens(line)}</td></tr>'
        for n, line in enumerate(part.lines, 1)
    )
    return (
        '<table class="code"><thead><tr><th class="lineno">Line</th><th class="content">&nbsp;</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _cgit(part: Code) -> str:
    numbers = "".join(f"<a id='n{n}' href='#n{n}'>{n}</a>\n" for n in range(1, len(part.lines) + 1))
    text = "\n".join(_tokens(line) for line in part.lines)
    return (
        f"<table summary='blob content' class='blob'><tr><td class='linenumbers'><pre>{numbers}</pre></td>"
        f"<td class='lines'><pre><code>{text}\n</code></pre></td></tr></table>"
    )


def _button_within(part: Code) -> str:
    text = escape("\n".join(part.lines))
    return f'<pre class="has-copy"><button class="copy-btn" type="button">Copy</button><code>{text}</code></pre>'


def _titled(part: Code) -> str:
    text = "\n".join(_tokens(line) for line in part.lines)
    return (
        f'<div class="code-wrapper"><div class="code-toolbar"><span class="lang">{part.language}</span>'
        f'<button>Copy</button></div><div class="code-body"><pre><code>{text}\n</code></pre></div></div>'
    )


def _react_lines(part: Code) -> str:
    numbers = "".join(
        f'<div data-line-number="{n}" class="react-line-number react-code-text">{n}</div>'
        for n in range(1, len(part.lines) + 1)
    )
    lines = "".join(
        f'<div class="react-code-text react-code-line-contents"><div id="LC{n}" class="react-file-line html-div">'
        f"{_tokens(line) or chr(10)}</div></div>"
        for n, line in enumerate(part.lines, 1)
    )
    return (
        f'<div class="react-code-file-contents"><div class="react-line-numbers" aria-hidden="true">{numbers}</div>'
        f'<div class="react-code-lines">{lines}</div></div>'
    )


def _spans_and_breaks(part: Code) -> str:
    return f'<pre class="graf--pre"><span>{"<br>".join(_tokens(line) for line in part.lines)}</span></pre>'


def _carriage_returns(part: Code) -> str:
    return f"<pre>\r\n{escape(chr(13).join(chr(10) + line for line in part.lines))[1:]}\r\n</pre>"


def _custom_element(part: Code) -> str:
    text = escape("\n".join(part.lines))
    return (
        '<devsite-code><div class="devsite-code-buttons-container" role="group"></div>'
        f'<pre class="devsite-click-to-copy" translate="no"><code dir="ltr">{text}</code></pre></devsite-code>'
    )


def _two_spaces_behind(part: Code) -> str:
    """As SyntaxHighlighter 1 wrote it: an ordered list, two spaces behind each line."""
    if _tabbed(part):
        return _fenced(part)
    lines = "".join(
        f'<li class="{"alt" if n % 2 else ""}"><span><span>{_hard(line)}&nbsp;&nbsp;</span></span></li>'
        for n, line in enumerate(part.lines)
    )
    return f'<div class="dp-highlighter"><div class="bar"></div><ol class="dp-c" start="1">{lines}</ol></div>'


def _gitlab(part: Code) -> str:
    numbers = "".join(
        f'<a class="file-line-num" id="L{n}" href="#L{n}" data-line-number="{n}">{n}</a>\n'
        for n in range(1, len(part.lines) + 1)
    )
    lines = "\n".join(f'<span id="LC{n}" class="line">{_tokens(line)}</span>' for n, line in enumerate(part.lines, 1))
    return (
        f'<div class="file-content code"><div class="line-numbers">{numbers}</div><div class="blob-content">'
        f'<pre class="code highlight"><code>{lines}</code></pre></div></div>'
    )


def _coderay(part: Code) -> str:
    numbers = "".join(f"{n}\n" for n in range(1, len(part.lines) + 1))
    text = "\n".join(_tokens(line) for line in part.lines)
    return (
        '<div class="listingblock"><div class="content"><pre class="CodeRay highlight nowrap"><code>'
        f'<table class="CodeRay linetable"><tr><td class="linenos"><pre>{numbers}</pre></td>'
        f'<td class="code"><pre>{text}</pre></td></tr></table></code></pre></div></div>'
    )


def _numbers_behind(part: Code) -> str:
    """As VitePress: the numbers follow the code."""
    lines = "\n".join(f'<span class="line">{_tokens(line)}</span>' for line in part.lines)
    numbers = "".join(f'<span class="line-number">{n}</span><br>' for n in range(1, len(part.lines) + 1))
    return (
        '<div class="language-x line-numbers-mode"><button title="Copy Code" class="copy"></button>'
        f'<span class="lang">x</span><pre class="shiki vp-code" tabindex="0"><code>{lines}</code></pre>'
        f'<div class="line-numbers-wrapper" aria-hidden="true">{numbers}</div></div>'
    )


def _rustdoc(part: Code) -> str:
    lines = "\n".join(f'<a href="#{n}" id="{n}">{n}</a>{_tokens(line)}' for n, line in enumerate(part.lines, 1))
    return f'<div class="example-wrap digits-1"><pre class="rust"><code>{lines}</code></pre></div>'


def _javadoc(part: Code) -> str:
    lines = "\n".join(
        f'<span class="source-line-no">{n:03}</span><span id="line-{n}">{_tokens(line)}</span>'
        for n, line in enumerate(part.lines, 1)
    )
    return f'<div class="source-container"><pre>{lines}</pre></div>'


def _viewvc(part: Code) -> str:
    rows = "".join(
        f'<tr class="vc_row_odd" id="l{n}"><td class="vc_header" style="text-align: right;">{n}</td>'
        f'<td><pre style="margin:0">{_tokens(line)}</pre></td></tr>'
        for n, line in enumerate(part.lines, 1)
    )
    return f'<div class="vc_view"><table style="width:100%">{rows}</table></div>'


def _tabbed(part: Code) -> bool:
    """Those who write hard spaces have no tabs."""
    return any("\t" in line for line in part.lines)


CODE_SHAPES = (
    *(_pre, _fenced, _span_a_line, _div_a_line, _breaks, _docusaurus, _hard_spaces, _blob, _row_a_line, _gutter),
    *(_hexo, _rouge, _ordered, _numbered_spans, _doxygen, _chroma_table, _chroma_inline, _geshi, _crayon, _trac),
    *(_cgit, _button_within, _titled, _react_lines, _spans_and_breaks, _carriage_returns, _custom_element),
    *(_two_spaces_behind, _gitlab, _coderay, _numbers_behind, _rustdoc, _javadoc, _viewvc),
)
