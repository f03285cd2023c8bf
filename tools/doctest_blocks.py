"""Fence the examples of docstrings, so that the documentation site shows them as code. mkdocs.yml names this module.

Docstrings have their examples as doctest reads them: lines from `>>>` up to an empty one.
"""

import re

from griffe import Extension, Object

_EXAMPLES = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """The docstring with each block of examples between fences."""
    return _EXAMPLES.sub(lambda block: f"```pycon\n{block[0]}\n```", docstring)


class DoctestBlocks(Extension):
    """Changes the docstrings of all objects that the site shows."""

    def on_object(self, *, obj: Object, **kwargs: object) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
