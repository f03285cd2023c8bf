"""Seeded formulas in LaTeX, of three degrees of difficulty."""

import random

_LETTERS = "abcdfghkmnpqrstuvwxyz"
_GREEK = (r"\alpha", r"\beta", r"\gamma", r"\delta", r"\lambda", r"\mu", r"\pi", r"\sigma", r"\omega")


def scripts(draw: random.Random) -> str:
    """Only exponents and indices, which HTML writes with sup and sub."""
    shape = draw.randrange(4)
    one, two, other = draw.sample(_LETTERS, 3)
    number = draw.randint(2, 99)
    if shape == 0:
        return f"{one}^{{{number}}} + {two}^{{{draw.randint(2, 9)}}} = {other}"
    if shape == 1:
        return f"{one}_{{{number}}} = {two} + {other}_{{{draw.randint(1, 9)}}}"
    if shape == 2:
        return f"10^{{{number}}}"
    return f"{number}{one}^{{{draw.randint(2, 9)}}} - {two}_{{{draw.choice('ijk')}}}"


def linear(draw: random.Random) -> str:
    """Fractions, roots, sums, Greek letters: what can be read in one line."""
    one, two, other, last = draw.sample(_LETTERS, 4)
    greek = draw.choice(_GREEK)
    number = draw.randint(2, 99)
    return draw.choice(
        [
            rf"\frac{{{one} + {number}}}{{{two}^{{2}}}} = {other}",
            rf"{one}_{{{number}}} = \sqrt{{{two} + {other}}}",
            rf"\sum_{{i=1}}^{{{number}}} {one}_{{i}} \leq {greek}",
            rf"{greek} = \frac{{{one}}}{{{two}}} + {number}{other}",
            rf"{one} = {two}^{{{other} + {number}}} - {greek}",
            rf"\int_{{0}}^{{{number}}} {one}({last}) \, d{last} = {greek} {two}",
            rf"{one} \times {number} \neq {two} \cdot {greek}_{{{other}}}",
            rf"\left( {one} + \frac{{{number}}}{{{two}}} \right)^{{{draw.randint(2, 9)}}} \geq {other}",
            rf"{one}_{{{other}}}^{{{number}}} \in {greek}",
            rf"\sqrt[3]{{{one} - {number}}} < {two}",
        ]
    )


def any_formula(draw: random.Random) -> str:
    """Also matrices, cases, accents, fonts and words."""
    one, two, other, last = draw.sample(_LETTERS, 4)
    number = draw.randint(2, 99)
    if draw.random() < 0.6:
        return linear(draw)
    return draw.choice(
        [
            rf"\begin{{pmatrix}} {one} & {two} \\ {number} & {other} \end{{pmatrix}}",
            rf"{one} = \begin{{cases}} {number} & {two} > 0 \\ {other} & \text{{otherwise}} \end{{cases}}",
            rf"\hat{{{one}}} = \bar{{{two}}} + \vec{{{other}}}",
            rf"\mathbf{{{one}}} \cdot \mathbb{{R}}^{{{number}}}",
            rf"\lim_{{{one} \to \infty}} \log {one}^{{{number}}} = {two}",
            rf"\operatorname{{rank}}({one}) = {number} \quad \text{{for all }} {two} < {other}",
            rf"\left\| {one} - {two} \right\|_{{2}} \ll {number} {last}",
            rf"\overline{{{one} + {two}}} \Rightarrow {other}_{{\max}}",
        ]
    )
