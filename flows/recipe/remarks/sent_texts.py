"""Remarks on texts that are sent to a language model: by which step or source, to which server, at what cost."""

from collections import defaultdict
from collections.abc import Iterator

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.remarks.request_limits import MeasuredDocuments, limits, measured_documents
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.language_model.rewriting import RewriteSettings
from gristmill.tasks.pii.step import Pii
from gristmill.tasks.reading.sources import Rewrites


def sent_texts(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Which texts are sent to which server, what that costs at most, and whether they are masked before."""
    for index, step in enumerate(recipe.steps):
        if isinstance(step, Annotate):
            masked = any(isinstance(earlier, Pii) for earlier in recipe.steps[:index])
            documents = "all documents" if step.of is None else f"{step.of:,} documents"
            measured = measured_documents(settings.home, recipe, index)
            yield from _sentences(f"steps.{step.step}", documents, step.of, step, step.windows, measured, settings.lm)
            yield from _of_masks(f"steps.{step.step}", masked, "before it", settings.lm)
    for source in map(settings.placed, recipe.sources):
        if isinstance(source, Rewrites):
            yield from _of_source(source, settings)


def _of_source(source: Rewrites, settings: MachineSettings) -> Iterator[str]:
    rewrite, where = source.rewrite, f"sources.{source.name}"
    try:
        other = load(rewrite.recipe)
    except (OSError, ValueError):
        return  # a finding
    count = "all" if rewrite.of is None else f"{rewrite.of:,}"
    measured = measured_documents(settings.home, other)
    yield from _sentences(where, f"{count} documents of {other.name}", rewrite.of, rewrite, 1, measured, settings.lm)
    yield from _of_masks(where, any(isinstance(step, Pii) for step in other.steps), f"in {other.name}", settings.lm)


def _sentences(
    where: str,
    documents: str,
    of: int | None,
    asking: Annotate | RewriteSettings,
    windows: int,
    measured: MeasuredDocuments | None,
    server: LanguageModelServer,
) -> Iterator[str]:
    if not server.base_url:
        yield f"{where}: no language model server is configured; set GRISTMILL_LM__BASE_URL before the run"
        return
    templates = asking.full_prompt
    try:
        prompt = sum(len(message["content"]) for message in templates.messages("", defaultdict(str)))
    except ValueError:  # a template may need values
        prompt = len(templates.system + templates.user)
    yield f"{where}: sends {documents} to {server.host}{limits(server, asking, windows, prompt, of, measured)}"


def _of_masks(where: str, masked: bool, place: str, server: LanguageModelServer) -> Iterator[str]:
    if server.base_url and not server.is_loopback and not masked:
        yield f"{where}: personal data is sent to {server.host}; put the step `pii` {place} to mask texts"
