"""The step `rights`: which documents may not be in the corpus by what their pages and sites state about use.

What a page and its HTTP headers state is decided where the step is in the recipe. The files of sites (robots.txt,
tdmrep.json) and lists of hosts change without the pages, so they are applied after all steps, as takedown lists are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field

from gristmill.storage.settings import Address
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Clause, Decision, DocumentStep, Member, Problem, Signal
from gristmill.tasks.rights.sites import list_problem
from gristmill.tasks.rights.statements import (
    ALLOWED,
    ANY_AGENT,
    CONTENT_USAGE,
    DIRECTIVES,
    PAGE,
    RESERVED,
    ROBOTS_TAG,
    TDM,
    Statement,
    read,
)
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.lists import list_problems

# Product tokens of crawlers, from the operators' own documentation. The list is soon out of date, so a recipe can
# name more tokens in addition to a group. These are crawlers whose pages train models, and tokens that only control
# use (`Google-Extended`).
TRAINING = (
    *("AI2Bot", "Amazonbot", "anthropic-ai", "Applebot-Extended", "Bytespider", "CCBot", "ClaudeBot"),
    *("cohere-training-data-crawler", "Diffbot", "FacebookBot", "Google-Extended", "GPTBot", "ICC-Crawler"),
    *("img2dataset", "Meta-ExternalAgent", "omgili", "PanguBot", "Timpibot", "webzio-extended"),
)
# Crawlers of search engines whose answers are written by models.
SEARCH = ("Claude-SearchBot", "DuckAssistBot", "meta-webindexer", "OAI-SearchBot", "PerplexityBot", "YouBot")
# Fetches that a model makes on behalf of a user.
ASSISTANTS = ("ChatGPT-User", "Claude-User", "Meta-ExternalFetcher", "MistralAI-User", "Perplexity-User")

GROUPS: dict[str, tuple[str, ...]] = {"training": TRAINING, "search": SEARCH, "assistants": ASSISTANTS}


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """The product tokens of agents and groups, without repeats, in their order."""
    tokens = [token for name in names for token in GROUPS.get(name, (name,))]
    return tuple(dict.fromkeys(tokens))


Protocol = Literal["robots", "robots_tag", "tdm", "content_usage"]
TRAINING_USE = "train-ai"
_LISTS = ("robots", "tdmrep", "hosts")
_LICENSE = re.compile(r"[A-Za-z0-9.+-]+")

_SIGNALS = (
    Signal(
        f"rights_{ROBOTS_TAG}", "string", "", "X-Robots-Tag and meta robots", "The directive that reserves the page."
    ),
    Signal(f"rights_{TDM}", "string", "", "TDMRep", "The reservation that the page or its HTTP headers state."),
    Signal(
        f"rights_{CONTENT_USAGE}",
        "string",
        "",
        "draft-ietf-aipref-attach",
        "The preference of the HTTP headers against training.",
    ),
    Signal("rights_granted", "string", "", "own", "What the page states in favor of training, such as a license."),
)


class _OfPages:
    """The signals of the step: none where no statement of a page counts, so that then nothing is measured."""

    def __get__(self, step: "Rights | None", kind: type["Rights"]) -> tuple[Signal, ...]:
        return _SIGNALS if step is None or step.reads_pages else ()


class Rights(DocumentStep):
    """Drop documents whose pages or sites reserve the use of their content, or whose license is not wanted.

    Pages are judged by the columns that `extract` records with `rights: true`. Sites are judged by lists of their
    files, after all other steps: then a newer list makes only those token shards again that it hits. The ledger has the
    protocol as the rule, and the agents and the line that decided.
    """

    step: Literal["rights"] = "rights"
    agents: tuple[str, ...] = Field(
        ("training",),
        min_length=1,
        description=f"Product tokens of crawlers whose rules count, and groups of them: {', '.join(GROUPS)}.",
    )
    protocols: tuple[Protocol, ...] = Field(
        ("robots", "robots_tag", "tdm", "content_usage"),
        description="Protocols that count. robots: robots.txt. robots_tag: X-Robots-Tag and meta robots. tdm: TDMRep. "
        "content_usage: AIPREF's Content-Usage. All but robots need `rights: true` in `extract`.",
    )
    directives: tuple[str, ...] = Field(
        ("noai",), description=f"Directives of robots_tag that drop a document: {', '.join(DIRECTIVES)}."
    )
    robots: tuple[Address, ...] = Field(
        (), description="Addresses or globs of WARC files or tables (`host`, `text`) with robots.txt files of sites."
    )
    tdmrep: tuple[Address, ...] = Field(
        (), description="Addresses or globs of WARC files or tables (`host`, `text`) with tdmrep.json files of sites."
    )
    hosts: tuple[Address, ...] = Field(
        (), description="Addresses of lists of hosts, URLs or folders that are reserved, as takedown lists have them."
    )
    keep_licenses: tuple[str, ...] = Field(
        (),
        description="Licenses of pages that are kept; none means all. A name without a version means every version: "
        "CC-BY means CC-BY-4.0, but not CC-BY-NC-4.0.",
    )
    drop_licenses: tuple[str, ...] = Field((), description="Licenses of pages that are dropped.")
    silence: Literal["keep", "drop"] = Field(
        "keep",
        description="What to do with a document about which nothing is stated. drop: keep only documents with a "
        "license of the page, a TDM reservation of 0 or train-ai=y.",
    )

    signals: ClassVar[Any] = _OfPages()
    # the lists are here, since no stored signal shows what another list would do
    signal_fields: ClassVar = ("agents", "protocols", "directives", *_LISTS)

    def measuring(self) -> Self:
        return super().measuring().model_copy(update=dict.fromkeys(_LISTS, ()))

    @property
    def reads(self) -> tuple[str, ...]:
        return PAGE if self.reads_pages else ()

    @property
    def reads_pages(self) -> bool:
        """Whether statements of pages count."""
        licenses = self.keep_licenses or self.drop_licenses or self.silence == "drop"
        return bool(licenses) or any(protocol != "robots" for protocol in self.protocols)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The product tokens of the agents and groups."""
        return expanded(self.agents)

    @property
    def has_lists(self) -> bool:
        """Whether files of sites or lists of hosts are applied."""
        return bool(self.robots or self.tdmrep or self.hosts)

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return ("protego", "http-sf") if self.robots or self.tdmrep else ()

    @property
    def is_silence_decided_late(self) -> bool:
        """Whether files of sites may state a permission, so that nobody knows yet whether nothing is stated."""
        return self.silence == "drop" and bool(self.robots or self.tdmrep)

    def decisions(self) -> Sequence[Decision]:
        if not self.reads_pages:
            return []
        rules: list[Decision] = [Member(name, f"rights_{name}", ("",)) for name in (ROBOTS_TAG, TDM, CONTENT_USAGE)]
        of_page = "rights_license_scope = 'page'"
        if self.drop_licenses:
            rules.append(Clause("license", f"{of_page} and {_matching(self.drop_licenses)}", "true"))
        if self.keep_licenses:
            rules.append(Clause("license_not_kept", f"{of_page} and not {_matching(self.keep_licenses)}", "true"))
        if self.silence == "drop" and not self.is_silence_decided_late:
            rules.append(Member("silence", "rights_granted", None, ("",)))
        return rules

    def problems(self, deep: bool) -> Iterator[Problem]:
        for key in ("robots", "tdmrep"):
            for index, address in enumerate(getattr(self, key)):
                if (deep or "://" not in address) and (problem := list_problem(address)):
                    yield (key, index), problem
        for index, address in enumerate(self.hosts):
            yield from list_problems(address, ("hosts", index), deep, takedowns=Canonical())
        for index, name in enumerate(self.directives):
            if name not in DIRECTIVES:
                yield ("directives", index), f"is {name!r}; give one of {', '.join(DIRECTIVES)}"
        for key in ("keep_licenses", "drop_licenses"):
            for index, name in enumerate(getattr(self, key)):
                if not _LICENSE.fullmatch(name):
                    yield (key, index), f"is {name!r}; give an SPDX identifier such as CC-BY-4.0, or its family: CC-BY"

    def remarks(self) -> Iterator[str]:
        pages = [name for name in self.protocols if name != "robots"]
        if pages:
            yield (
                f"steps.{self.step}: drops pages by {', '.join(pages)} for {len(self.tokens)} agents "
                f"(directives: {', '.join(self.directives) or 'none'}); documents about which nothing is stated are "
                f"{'kept' if self.silence == 'keep' else 'dropped'}"
            )
        if self.has_lists:
            lists = ", ".join(f"{len(getattr(self, key))} of {key}" for key in _LISTS if getattr(self, key))
            yield f"steps.{self.step}: after all other steps, drops documents by lists of sites ({lists})"
        if "robots" in self.protocols and not self.robots:
            yield f"steps.{self.step}: robots.txt has no effect, because the step has no list in `robots`"


def measure(step: Rights, documents: Batch) -> Mapping[str, pa.Array]:
    """What each page states against use, by protocol, and in favor of it; "" for nothing."""
    licenses = of_page(documents["rights_license"].to_pylist(), documents["rights_license_scope"].to_pylist())
    rows = [
        judged(step.tokens, step.protocols, step.directives, read(signals), license)
        for signals, license in zip(documents["rights_signals"].to_pylist(), licenses, strict=True)
    ]
    return {signal.name: pa.array([row[signal.name] for row in rows], pa.string()) for signal in _SIGNALS}


def of_page(licenses: Sequence[str | None], scopes: Sequence[str | None]) -> list[str]:
    """The licenses that are the pages' own, "" for others."""
    return [name if name and scope == "page" else "" for name, scope in zip(licenses, scopes, strict=True)]


def judged(
    tokens: Sequence[str],
    protocols: Sequence[str],
    directives: Sequence[str],
    statements: Sequence[Statement],
    license: str,
) -> dict[str, str]:
    """The values of the step's signals for a page's statements."""
    agents = {ANY_AGENT, *(token.lower() for token in tokens)}
    row = dict.fromkeys((signal.name for signal in _SIGNALS), "")
    for each in statements if ROBOTS_TAG in protocols else ():
        if each.protocol == ROBOTS_TAG and each.agent in agents and each.value in directives:
            row[f"rights_{ROBOTS_TAG}"] = f"{each.agent}: {each.value} in {each.source}"
            break
    granted = f"license {license}" if license else ""
    if TDM in protocols and (stated := reservation(statements)):
        value, source = stated
        if value == RESERVED:
            row[f"rights_{TDM}"] = f"*: tdm-reservation: 1 in {source}"
        else:
            granted = granted or f"tdm-reservation: {ALLOWED} in {source}"
    for each in statements if CONTENT_USAGE in protocols else ():
        if each.protocol == CONTENT_USAGE and each.value == f"{TRAINING_USE}=n":
            row[f"rights_{CONTENT_USAGE}"] = f"*: {each.value} in {each.source}"
        elif each.protocol == CONTENT_USAGE and each.value == f"{TRAINING_USE}=y":
            granted = granted or f"{each.value} in {each.source}"
    row["rights_granted"] = granted
    return row


def reservation(statements: Sequence[Statement]) -> tuple[str, str] | None:
    """`1` or `0`, and where it is stated; None for none. A tag supersedes a header field (TDMRep, section 6.6)."""
    for source in ("meta", "header"):
        values = [
            each.value.removeprefix("reservation=")
            for each in statements
            if each.protocol == TDM and each.source == source and each.value.startswith("reservation=")
        ]
        if values:
            return (RESERVED if RESERVED in values else ALLOWED), source
    return None


def _matching(names: Sequence[str]) -> str:
    """The expression that is true for licenses of these names, or of any version of them."""
    choices = "|".join(f"{re.escape(name).replace(chr(92) + '-', '-')}(-[0-9].*)?" for name in names)
    return f"regexp_full_match(rights_license, '{choices}')"
