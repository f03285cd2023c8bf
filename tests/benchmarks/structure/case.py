"""A page with the article that it shows."""

from dataclasses import dataclass

from tests.benchmarks.structure.article import Article


@dataclass(frozen=True)
class Case:
    """latex: whether the page carries the LaTeX of its formulas. typed: whether HTML says that items have letters or
    Roman numerals; where only a style sheet does, Arabic numbers are right as well."""

    family: str
    name: str
    html: str
    article: Article
    latex: bool = True
    typed: bool = True
