"""What requests about documents can cost at most, and cost about where the documents are in the home already."""

from dataclasses import dataclass

from gristmill.flows.machine.runs import RecordedRun, redacted, runs_of
from gristmill.flows.recipe.recipe import Recipe
from gristmill.storage import files, layout
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.language_model.rewrite import RewriteSettings

CHARACTERS_A_TOKEN = 3  # about 4 in English, and 1 to 2 in Chinese and Thai, for which it is 1 here


@dataclass(frozen=True)
class MeasuredDocuments:
    """Documents of a finished run: how many, and their mean length in characters."""

    count: int
    mean: float


def measured_documents(home: str, recipe: Recipe, before: int | None = None) -> MeasuredDocuments | None:
    """The documents that a recipe keeps, or that arrive at its step `before`, by a finished run of the same sources and
    steps; None without one."""
    data = redacted(recipe.model_dump(mode="json"))
    step = None if before is None else recipe.steps[before].step
    for run in runs_of(home, recipe.name):
        if not run.ended or run.recipe is None or run.recipe["sources"] != data["sources"]:
            continue
        if run.recipe["steps"][:before] != data["steps"][:before]:
            continue
        if (labels := _labels(run, before, step)) is not None and (found := _measured(home, labels)) is not None:
            return found
    return None


def _labels(run: RecordedRun, before: int | None, step: str | None) -> list[str] | None:
    """The stages of a run up to a step, without those of recipes that it rewrites; None if the run had other steps
    there."""
    names = [label.rpartition("-")[0] for label in run.stages]
    first = len(names) - 1 - names[::-1].index("documents") if "documents" in names else len(names)
    stops = [at for at, name in enumerate(names) if at > first and name in (f"{step}_sample", step)]
    assert run.recipe is not None, "it was looked at"
    if stops:
        return list(run.stages[first : stops[0]])
    return list(run.stages[first:]) if before is None or len(run.recipe["steps"]) == before else None


def _measured(home: str, labels: list[str]) -> MeasuredDocuments | None:
    found = None
    for label in labels:
        manifest = layout.manifest(files.join(home, "stages", label))
        for count in manifest["counts"]["steps"] if manifest is not None else ():
            if count["characters_out"] is not None and count["rows_out"]:
                found = MeasuredDocuments(count["rows_out"], count["characters_out"] / count["rows_out"])
    return found


def limits(
    server: LanguageModelServer,
    asking: Annotate | RewriteSettings,
    windows: int,
    prompt: int,
    of: int | None,
    measured: MeasuredDocuments | None = None,
) -> str:
    """The end of a sentence. `prompt`: characters of the templates; `of`: documents that are asked about, None for an
    unknown number."""
    characters, tokens_out = windows * (asking.characters + prompt), windows * asking.max_tokens
    repairs = ", without repairs" if isinstance(asking, Annotate) else ""
    line = (
        f"; the limit per document is {characters // CHARACTERS_A_TOKEN:,} prompt tokens in English, {characters:,} in "
        f"Chinese or Thai, and {tokens_out:,} completion tokens{repairs}"
    )
    what = "limit of the price is"
    if measured is not None:
        windows = min(windows, max(1, -(-int(measured.mean) // asking.characters)))
        characters = int(min(measured.mean, windows * asking.characters)) + windows * prompt
        tokens_out, of = windows * asking.max_tokens, min(of or measured.count, measured.count)
        line += (
            f". With {measured.mean:,.0f} characters, the mean of the {measured.count:,} documents in the home, there "
            f"are about {characters // CHARACTERS_A_TOKEN:,} prompt tokens in English, up to {characters:,} in others"
        )
        what = "price with as many completion tokens as allowed is about"
    low, high = (server.price(tokens, tokens_out) for tokens in (characters // CHARACTERS_A_TOKEN, characters))
    if not high:
        return line
    total = "" if of is None else f", and for {of:,} documents {low * of:,.2f}, up to {high * of:,.2f}"
    return (
        f"{line}. The {what} {1000 * low:,.2f} per 1,000 documents in English, up to {1000 * high:,.2f} in "
        f"Chinese or Thai{total}"
    )
