"""Remarks on texts that are sent to a language model: by which step or source, to which server, at what cost."""

from collections import defaultdict
from collections.abc import Iterator

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.annotate import Annotate
from gristmill.tasks.language_model.rewriting import RewriteSettings
from gristmill.tasks.pii.step import Pii
from gristmill.tasks.reading.sources import Rewrites

_CHARACTERS_A_TOKEN = 3  # about 4 in English, and 1 to 2 in Chinese


def sent_texts(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Which texts are sent to which server, what that costs at most, and whether they are masked before."""
    for index, step in enumerate(recipe.steps):
        if isinstance(step, Annotate):
            masked = any(isinstance(earlier, Pii) for earlier in recipe.steps[:index])
            documents = "all documents" if step.of is None else f"{step.of:,} documents"
            yield from _sentences(f"steps.{step.step}", documents, step.of, step, step.windows, settings.lm)
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
    yield from _sentences(where, f"{count} documents of {other.name}", rewrite.of, rewrite, 1, settings.lm)
    yield from _of_masks(where, any(isinstance(step, Pii) for step in other.steps), f"in {other.name}", settings.lm)


def _sentences(
    where: str,
    documents: str,
    of: int | None,
    asking: Annotate | RewriteSettings,
    windows: int,
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
    tokens_in = windows * (asking.characters + prompt) // _CHARACTERS_A_TOKEN
    tokens_out = windows * asking.max_tokens
    price = server.price(1000 * tokens_in, 1000 * tokens_out)
    cost = f", at most {price:.2f} per 1,000 documents" if price else ""
    if price and of is not None:
        cost += f" and {price * of / 1000:.2f} in all"
    repairs = ", without repairs" if isinstance(asking, Annotate) else ""
    yield (
        f"{where}: sends {documents} to {server.host}; if a token has {_CHARACTERS_A_TOKEN} characters, as in English, "
        f"each is at most {tokens_in:,} prompt and {tokens_out:,} completion tokens{cost}{repairs}; Chinese or Thai "
        f"has up to {_CHARACTERS_A_TOKEN} times as many prompt tokens"
    )


def _of_masks(where: str, masked: bool, place: str, server: LanguageModelServer) -> Iterator[str]:
    if server.base_url and not server.is_loopback and not masked:
        yield f"{where}: personal data is sent to {server.host}; put the step `pii` {place} to mask texts"
