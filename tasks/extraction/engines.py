"""Engines that take a page to its main text: from HTML as a str to a text, which may be empty.

An engine that ships is a function here and a row in `ENGINES`. Its further parameters are options, which are keys of
the step `extract`. Recipes are read with this module, so libraries of engines are imported when they are first used.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import wrapt

from gristmill.tasks.documents.step import function_at
from gristmill.tasks.engine import own_code

if TYPE_CHECKING:
    import justext
    import trafilatura
    from lxml import etree
    from resiliparse.extract import html2text

    from gristmill.tasks.extraction import blocks as page_blocks
    from gristmill.tasks.extraction import classifier
else:
    classifier = wrapt.lazy_import("gristmill.tasks.extraction.classifier")
    etree = wrapt.lazy_import("lxml.etree")
    html2text = wrapt.lazy_import("resiliparse.extract.html2text")
    justext = wrapt.lazy_import("justext")
    page_blocks = wrapt.lazy_import("gristmill.tasks.extraction.blocks")
    trafilatura = wrapt.lazy_import("trafilatura")

# What it cannot take becomes a row of the ledger; a message would repeat it.
logging.getLogger("trafilatura").setLevel(logging.CRITICAL)

# libxml2 stops at 256 open elements and drops what is deeper; 40,000 of them end the process.
MAX_DEPTH = 250


# Given instead of an engine's name where the text is from the data of a page, which no engine reads.
DATA = "data"


class Refused(Exception):
    """The engine's parser must not see this page: nested too deep, it may not come back or ends the process."""


def blocks(page: str) -> str:
    """Our own scan, and a classifier that chooses among the page's blocks."""
    return classifier.main_text(page)


def resiliparse(page: str) -> str:
    return html2text.extract_plain_text(page, main_content=True, alt_texts=False)


def plain(page: str) -> str:
    """All text of the page."""
    return html2text.extract_plain_text(page, main_content=False, alt_texts=False)


def careful(page: str, fast: bool = True, include_comments: bool = False, **options: Any) -> str:
    """trafilatura, on a page that its parser can take: with `fast` without its fallbacks."""
    _refuse_deep(page)
    return trafilatura.extract(page, fast=fast, include_comments=include_comments, **options) or ""


def by_stop_words(page: str, stop_list: str = "English") -> str:
    """jusText with its stop words of a language; it takes pages of other languages for boilerplate."""
    _refuse_deep(page)
    try:
        paragraphs = justext.justext(page.encode("utf-8", "replace"), _stop_words(stop_list), encoding="utf-8")
    except etree.ParserError:  # a page without any element
        return ""
    return "\n".join(paragraph.text for paragraph in paragraphs if not paragraph.is_boilerplate)


@cache
def _stop_words(language: str) -> frozenset[str]:
    return justext.get_stoplist(language)


def _refuse_deep(page: str) -> None:
    depth = page_blocks.scan(np.frombuffer(page.encode("utf-8", "replace"), np.uint8)).depth
    if depth > MAX_DEPTH:
        raise Refused(f"{depth} elements open at once, more than {MAX_DEPTH}")


class Engine(NamedTuple):
    """`read`: from a page to its text. `libraries`: the distributions whose releases decide the text, besides
    resiliparse, which detects types and encodings for all engines. `options`: the keys of `extract` that it takes."""

    read: Callable[..., str]
    libraries: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


ENGINES = {
    "blocks": Engine(blocks),
    "resiliparse": Engine(resiliparse),
    "trafilatura": Engine(
        careful,
        ("lxml", "trafilatura"),
        ("fast", "favor_precision", "favor_recall", "include_comments", "include_tables"),
    ),
    "justext": Engine(by_stop_words, ("justext", "lxml"), ("stop_list",)),
    "plain": Engine(plain),
}


@cache
def engine(name: str) -> Callable[..., str]:
    """The engine of a name, or a user's own at `module:function`, which takes and returns the same and has no options.
    Raises StepError where it cannot be imported, and when it is called OwnCodeError for all that it does wrong."""
    if known_engine := ENGINES.get(name):
        return known_engine.read
    function = function_at(name)
    return lambda page: own_code.call_guarded(f"engine {name}", function, page, accept=_accepted_text)


def _accepted_text(result: Any) -> str:
    if not isinstance(result, str):
        raise own_code.Unacceptable(f"returned {own_code.shown(result)}; return the text of the page, a str")
    return result
