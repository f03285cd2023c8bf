"""The shapes in which pages write formulas without a renderer of their own."""

import re
from html import escape
from urllib.parse import quote

from tests.benchmarks.structure.article import Formula


def _wikipedia(part: Formula) -> str:
    latex = escape(f"{{\\displaystyle {part.latex}}}")
    kind = "display" if part.display else "inline"
    return (
        f'<span class="mwe-math-element"><span class="mwe-math-mathml-{kind}" style="display: none;">'
        f'<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="{latex}"><semantics><mrow><mi>f</mi></mrow>'
        f'<annotation encoding="application/x-tex">{latex}</annotation></semantics></math></span>'
        f'<img src="https://wikimedia.org/api/rest_v1/media/math/render/svg/0" aria-hidden="true" alt="{latex}" '
        f'class="mwe-math-fallback-image-{kind}"></span>'
    )


def _ar5iv(part: Formula) -> str:
    latex = escape(part.latex)
    return (
        f'<math class="ltx_Math" alttext="{latex}" display="{"block" if part.display else "inline"}"><semantics>'
        "<mrow><mi>f</mi><mo>=</mo><mn>2</mn></mrow>"
        f'<annotation-xml encoding="MathML-Content"><apply><eq/><ci>𝑓</ci><cn>2</cn></apply></annotation-xml>'
        f'<annotation encoding="application/x-tex">{latex}</annotation></semantics></math>'
    )


def _image(part: Formula) -> str:
    said = f'alt="{escape(part.latex)}" title="{escape(part.latex)}" class="latex"'
    image = f'<img src="https://s0.wp.com/latex.php?latex={quote(part.latex)}" {said} />'
    return f'<p style="text-align:center">{image}</p>' if part.display else image


def _delimited(part: Formula) -> str:
    return f"<p>\\[{escape(part.latex)}\\]</p>" if part.display else f"\\({escape(part.latex)}\\)"


def _dollars(part: Formula) -> str:
    return f"<div>$${escape(part.latex)}$$</div>" if part.display else f"${escape(part.latex)}$"


def _script(part: Formula) -> str:
    mode = "; mode=display" if part.display else ""
    return f'<span class="MathJax_Preview"></span><script type="math/tex{mode}">{part.latex}</script>'


def _container(part: Formula) -> str:
    text = f"$${escape(part.latex)}$$" if part.display else f"${escape(part.latex)}$"
    return (
        f'<p><span class="math-container">{text}</span></p>'
        if part.display
        else f'<span class="math-container">{text}</span>'
    )


def _codecogs(part: Formula) -> str:
    image = f'<img src="https://latex.codecogs.com/gif.latex?{quote(part.latex)}" title="{escape(part.latex)}" />'
    return (
        f'<div align="center"><a href="https://www.codecogs.com/eqnedit.php">{image}</a></div>'
        if part.display
        else image
    )


def _equation_table(part: Formula) -> str:
    if not part.display:
        return _ar5iv(part)
    return (
        '<table id="S1.E1" class="ltx_equation ltx_eqn_table"><tbody><tr class="ltx_equation ltx_eqn_row">'
        '<td class="ltx_eqn_cell ltx_eqn_center_padleft"></td>'
        f'<td class="ltx_eqn_cell ltx_align_center">{_ar5iv(part)}</td>'
        '<td class="ltx_eqn_cell ltx_eqn_center_padright"></td></tr></tbody></table>'
    )


def _escaped_script(part: Formula) -> str:
    """As kramdown writes what XML would take for markup."""
    mode = "; mode=display" if part.display else ""
    inner = f"% <![CDATA[\n{part.latex} %]]>" if set("<&") & set(part.latex) else part.latex
    return f'<script type="math/tex{mode}">{inner}</script>'


def _division(part: Formula) -> str:
    """The class alone says that it is a formula."""
    if part.display:
        return f'<div class="math" data-applied="1">\n{escape(part.latex)}\n</div>'
    return f'<span class="math">{escape(part.latex)}</span>'


def _latex2html(part: Formula) -> str:
    image = f'<IMG WIDTH="45" ALIGN="MIDDLE" BORDER="0" SRC="img1.png" ALT="${escape(part.latex)}$">'
    return f'<DIV ALIGN="CENTER">{image}</DIV>' if part.display else image


def _quicklatex(part: Formula) -> str:
    alt = "".join(f"&#{ord(sign)};" for sign in part.latex)
    image = (
        '<img src="https://quicklatex.com/cache3/ab/ql_ab_l3.svg" class="ql-img-inline-formula quicklatex-auto-format" '
        f'alt="{alt}" title="Rendered by QuickLaTeX.com" height="13" width="50" style="vertical-align: -3px;"/>'
    )
    return f'<p class="ql-center-displayed-equation"><span> </span>{image}</p>' if part.display else image


def superscripts(part: Formula) -> str:
    """Letters in italics, exponents and indices raised and lowered: only for formulas.scripts."""
    text = re.sub(r"([a-z])", r"<i>\1</i>", escape(part.latex))
    text = re.sub(r"\^\{(.*?)\}", r"<sup>\1</sup>", text)
    text = re.sub(r"_\{(.*?)\}", r"<sub>\1</sub>", text)
    return f'<p align="center">{text}</p>' if part.display else text


FORMULA_SHAPES = (
    *(_wikipedia, _ar5iv, _image, _delimited, _dollars, _script, _container, _codecogs, _equation_table),
    *(_escaped_script, _division, _latex2html, _quicklatex),
)
