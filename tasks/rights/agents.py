"""Product tokens of crawlers, as groups that a recipe names. Separate: the names change more often than the code.

They are from the operators' own documentation. A list of names is out of date as soon as it is written, so a recipe can
name further tokens in addition to a group.
"""

from collections.abc import Iterable

# Crawlers, and tokens that only control use (`Google-Extended`), whose pages train models.
TRAINING = (
    *("AI2Bot", "Amazonbot", "anthropic-ai", "Applebot-Extended", "Bytespider", "CCBot", "ClaudeBot"),
    *("cohere-training-data-crawler", "Diffbot", "FacebookBot", "Google-Extended", "GPTBot", "ICC-Crawler"),
    *("img2dataset", "Meta-ExternalAgent", "omgili", "PanguBot", "Timpibot", "webzio-extended"),
)
# Crawlers of search engines whose answers models write.
SEARCH = ("Claude-SearchBot", "DuckAssistBot", "meta-webindexer", "OAI-SearchBot", "PerplexityBot", "YouBot")
# Fetches that a person asks a model for.
ASSISTANTS = ("ChatGPT-User", "Claude-User", "Meta-ExternalFetcher", "MistralAI-User", "Perplexity-User")

GROUPS: dict[str, tuple[str, ...]] = {"training": TRAINING, "search": SEARCH, "assistants": ASSISTANTS}


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """The product tokens that names of agents and groups stand for, each once, in their order."""
    tokens = [token for name in names for token in GROUPS.get(name, (name,))]
    return tuple(dict.fromkeys(tokens))
