"""What the runs of a proxy read: token shards of recipes, and evaluation documents, as its settings ask for them."""

from collections.abc import Mapping
from typing import Any

from flows.context import RunContext
from flows.proxy_config import ProxyConfig
from flows.recipe import Recipe
from flows.stages.arm_data import ComparisonData, arm_data


def proxy_data(
    context: RunContext, proxy: ProxyConfig, base: Recipe, recipes: Mapping[str, Recipe], tokens: int, **given: Any
) -> ComparisonData:
    """The data of runs of so many tokens on these recipes, by name. `given`: further arguments of `arm_data`, whose
    errors it raises; a run is of whole steps of the proxy, if `step_tokens` is not among them."""
    return arm_data(
        context,
        base,
        recipes,
        tokens=tokens,
        vocab_size=proxy.vocab_size,
        sample_bytes=proxy.sample_bytes,
        per_source=proxy.evaluation_documents,
        **{"step_tokens": proxy.step_tokens} | given,
    )
