"""Whether anything is left of a corpus: an end with one sentence, ahead of the stages that would work on nothing."""

from flows.stages.corpus import Corpus
from tasks.documents.step import Step

_SHOWN = 3


class NothingLeftError(ValueError):
    """A source, or the whole corpus, has no document left."""


def check_sources(corpus: Corpus) -> None:
    """Raise NothingLeftError for a source of whose files no document could be made."""
    for source, counts in corpus.documents.result["sources"].items():
        if not counts["documents"]:
            raise NothingLeftError(
                f"the source {source} gives no document: of its {counts['records']:,} records "
                f"{_dropped(counts['drops'])}; see `gristmill show dropped`, then name other files, loosen these steps "
                f"or take {source} out of the recipe"
            )


def check_left(corpus: Corpus, steps: tuple[Step, ...]) -> None:
    """Raise NothingLeftError if the last of the steps that were made left no document."""
    counts = corpus.kept.step_counts
    if not counts or counts[-1]["rows_out"]:
        return
    emptied = next(count for count in counts if not count["rows_out"])
    named = " and ".join(f"`{step.step}`" for step in steps if step.step == emptied["step"]) or emptied["step"]
    raise NothingLeftError(
        f"nothing is left of the corpus behind the step {named}: of {emptied['rows_in']:,} documents "
        f"{_dropped(emptied['drops'])}; loosen {named} in the recipe, whose thresholds `gristmill whatif` tries out"
    )


def _dropped(drops: dict[str, int]) -> str:
    """The rules that dropped most."""
    most = sorted(drops.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
    return ", ".join(f"the rule {rule} dropped {n:,}" for rule, n in most) or "none is left"
