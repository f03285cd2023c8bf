"""A console that texts from elsewhere cannot command."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from gristmill.storage.printable import printable


class SafeConsole(Console):
    """rich's console; control characters of what is printed are written out, as `\\x1b`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or (text := printable(segment.text)) == segment.text:
                yield segment
            else:
                yield Segment(text, segment.style)


def console(stderr: bool = False) -> Console:
    """The standard output, or errors: as wide as the terminal, 120 columns where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return SafeConsole(stderr=stderr, emoji=False, width=None if stream.isatty() else 120)
