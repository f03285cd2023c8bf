"""One static page of a finished corpus, to hand around: funnel, what each rule dropped, what is kept, distributions.

It needs no server and no network, has no script, and is at most 5 MB.

Documents are drawn by a seed, the same ones that the local page draws by it. What was taken down is not on it.
"""

import base64
import hashlib

from gristmill.flows.browse import draws
from gristmill.flows.browse.opened import Opened
from gristmill.flows.browse.summary import summary
from gristmill.flows.diff.columns import QUANTILES
from gristmill.flows.recipe.recipe import dump
from gristmill.flows.reports import templates
from gristmill.flows.reports.excerpts import beginning, excerpt
from gristmill.storage import files

MOST_BYTES = 5_000_000
# Documents of a rule, and characters of each that are shown: what fits first is taken.
_SIZES = ((5, 1500), (5, 600), (3, 300), (1, 300), (0, 0))


def write(opened: Opened, to: str, seed: int = 1) -> str:
    """Write the page, and return its path. The same stages and seed give the same bytes."""
    files.write_bytes(to, page(opened, seed).encode("utf-8", "replace"))
    return to


def page(opened: Opened, seed: int = 1) -> str:
    """The page. Holds what is shown. Raises ValueError where the funnel and the summaries alone are too large."""
    most, _ = _SIZES[0]
    dropped = {
        (step.key, rule): draws.dropped(opened, step, rule, most, seed)
        for step in opened.steps
        for rule in step.drops
        if "takedown" not in rule and "takedown" not in step.row.step
    }
    kept = draws.kept(opened, 2 * most, seed)
    digest = base64.b64encode(hashlib.sha256(templates.style().encode()).digest()).decode()
    found = summary(opened)
    for each, characters in _SIZES:
        shown = {
            key: [(one.dropped, excerpt(one.dropped.text or "", one.dropped.marks, characters)) for one in some[:each]]
            for key, some in dropped.items()
        }
        written = templates.template("static.html", "gristmill.flows.browse").render(
            opened=opened,
            static=True,
            link=None,
            digest=digest,
            seed=seed,
            each=each,
            dropped=shown,
            kept=[(one, beginning(one.text, characters)) for one in kept[: 2 * each]],
            summary=found,
            quantiles=QUANTILES,
            recipe=dump(opened.recipe),
        )
        if len(written.encode("utf-8", "replace")) < MOST_BYTES:
            return written
    raise ValueError(f"the page of {opened.recipe.name} is larger than {MOST_BYTES:,} bytes without any document")
