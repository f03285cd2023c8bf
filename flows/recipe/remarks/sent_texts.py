"""Remarks on texts that are sent to a language model: by which step or source, to which server, at what cost."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.remarks.request_limits import MeasuredDocuments, limits, measured_documents
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.language_model.rewrite import RewriteSettings
from gristmill.tasks.pii.step import Pii
from gristmill.tasks.reading.sources import Rewrites


@dataclass(frozen=True)
class _Asking:
    """A step or a source that asks a model. `documents`: which, in words; `of`: how many, None for all; `unmasked`:
    where a step `pii` is missing, "" with one; `before`: all that decides which texts are sent, besides files;
    `measured`: these documents by a finished run."""

    where: str
    documents: str
    of: int | None
    settings: Annotate | RewriteSettings
    windows: int
    unmasked: str
    before: tuple[str, ...]
    measured: MeasuredDocuments | None


def sent_texts(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Which texts are sent to which server, what that costs at most, and whether they are masked before."""
    server = settings.lm
    for each in _asking(recipe, settings):
        if not _has_prompt(each):
            continue
        yield _sentence(each, server)
        if each.unmasked and server.base_url and not server.is_loopback:
            yield (
                f"{each.where}: personal data is sent to {server.host}; put the step `pii` {each.unmasked} to mask "
                "texts"
            )


def plan_lines(recipes: Mapping[str, Recipe], settings: MachineSettings) -> Iterator[str]:
    """What recipes that are compared send and cost, before they run: of recipes that send the same texts, once."""
    sent = set()
    for name, recipe in recipes.items():
        for each in _asking(recipe, settings):
            if each.before not in sent and _has_prompt(each):
                sent.add(each.before)
                yield f"{name}: {_sentence(each, settings.lm)}"
    if sent:
        yield "answers of the language model that are already in the home are reused"


def _asking(recipe: Recipe, settings: MachineSettings, path: tuple[str, ...] = ()) -> Iterator[_Asking]:
    """Of a recipe and of those that it rewrites. `path`: their files, up to this one."""
    sources = tuple(source.model_dump_json() for source in recipe.sources)
    for index, step in enumerate(map(settings.placed, recipe.steps)):
        if isinstance(step, Annotate):
            masked = any(isinstance(earlier, Pii) for earlier in recipe.steps[:index])
            documents = "all documents" if step.of is None else f"{step.of:,} documents"
            before = (*sources, *(each.model_dump_json() for each in recipe.steps[: index + 1]))
            unmasked = "" if masked else "before it"
            measured = measured_documents(settings.home, recipe, index)
            yield _Asking(f"steps.{step.step}", documents, step.of, step, step.windows, unmasked, before, measured)
    for source in map(settings.placed, recipe.sources):
        if isinstance(source, Rewrites):
            rewrite = source.rewrite
            if rewrite.recipe in path:
                continue  # recipes that rewrite each other are a finding
            try:
                other = load(rewrite.recipe)
            except (OSError, ValueError):
                continue  # a finding, too
            for each in _asking(other, settings, (*path, rewrite.recipe)):
                yield replace(each, where=f"{other.name}: {each.where}")
            documents = f"{'all' if rewrite.of is None else f'{rewrite.of:,}'} documents of {other.name}"
            unmasked = "" if any(isinstance(step, Pii) for step in other.steps) else f"in {other.name}"
            before = (rewrite.model_dump_json(),)
            measured = measured_documents(settings.home, other)
            yield _Asking(f"sources.{source.name}", documents, rewrite.of, rewrite, 1, unmasked, before, measured)


def _has_prompt(asking: _Asking) -> bool:
    """Whether the prompt can be read; what is wrong with its file is a finding."""
    try:
        return bool(asking.settings.full_prompt.user)
    except (OSError, ValueError):
        return False


def _sentence(asking: _Asking, server: LanguageModelServer) -> str:
    if not server.base_url:
        return f"{asking.where}: no language model server is configured; set GRISTMILL_LM__BASE_URL before the run"
    templates = asking.settings.full_prompt
    try:
        prompt = sum(len(message["content"]) for message in templates.messages("", defaultdict(str)))
    except ValueError:  # a template may need values
        prompt = len(templates.system + templates.user)
    line = limits(server, asking.settings, asking.windows, prompt, asking.of, asking.measured)
    batches = f" in batches of {server.batch:,} requests" if server.batch else ""
    return f"{asking.where}: sends {asking.documents} to {server.host}{batches}{line}"
