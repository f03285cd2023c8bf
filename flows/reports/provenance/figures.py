"""The numbers of a run's papers. A number is the result of a query, and is computed nowhere else: the papers print the
query next to it, and `gristmill sql` computes it again."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from gristmill.flows.reports.run import Run, sql

LISTED = 20  # domains that the papers list; top-domains.csv has all
# Steps that remove what other documents have, too.
DEDUPLICATION = (
    *("url_dedup", "content_dedup", "minhash", "semantic_dedup", "diversify"),
    *("line_dedup", "paragraph_dedup", "sentence_dedup", "substring_dedup", "host_lines"),
)
# Steps that remove documents because somebody does not want them in.
_RESERVED = "(step in ('rights', 'site_rights') or starts_with(step, 'rights-')) and not starts_with(rule, 'license')"
# The steps that keep documents of evaluations out of the training data.
EVALUATION = ("decontamination", "heldout", "evaluation_removal")
_TAKEN = f"rule = 'takedown' or step = 'takedowns' or {_RESERVED}"


@dataclass(frozen=True)
class Figure:
    """`unit`: of its number, or by column of its table; `query`: in DuckDB's SQL, on one line, without double quotes;
    `about`: a sentence on what it counts."""

    name: str
    unit: str | Mapping[str, str]
    query: str
    about: str


@dataclass(frozen=True)
class Answer:
    """A figure and the rows that its query gave."""

    figure: Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def is_number(self) -> bool:
        return isinstance(self.figure.unit, str)

    @property
    def value(self) -> Any:
        """The number; of a table a mapping for each row."""
        if self.is_number:
            return self.rows[0][0]
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    @property
    def json(self) -> dict[str, Any]:
        one = self.figure
        return {"name": one.name, "value": self.value, "unit": one.unit, "query": one.query, "about": one.about}


def answers(run: Run) -> dict[str, Answer]:
    """The figures that a run has, by name. Reads the texts of all curated documents twice."""
    found, tables = {}, run.tables  # whose shards are listed once
    for figure in figures(run, tables):
        with readable():
            result = sql.query(tables, figure.query)
            found[figure.name] = Answer(figure, tuple(result.columns), tuple(result.fetchall()))
    return found


@contextmanager
def readable() -> Iterator[None]:
    """Within it, a file that DuckDB cannot read while it computes is an error with the file and what to do. Raises
    RuntimeError."""
    try:
        yield
    except duckdb.Error as error:
        # DuckDB wraps the error of the stream that reads the file, with a traceback on the lines below
        sentence = f"{error}".strip().splitlines()[0].partition(" Detail: Python exception")[0]
        raise RuntimeError(sentence.rpartition(" failed: ")[2].removeprefix("IOError: ")) from error


def figures(run: Run, tables: Collection[str]) -> Iterator[Figure]:
    """The figures of a run with some tables; those of tokens, clusters, training and rights only where it has them."""
    yield from _SOURCES
    yield from _DOCUMENTS
    yield from _STEPS
    if "clusters" in tables:
        yield from _CLUSTERS
    yield from _RIGHTS
    if any(step.base_name == "rights" for step in run.recipe.steps):
        yield _by_agent("tokens" in tables)
    yield from _DOMAINS
    if "tokens" in tables:
        yield from _TOKENS
    if "training" in tables:
        yield from _TRAINING


_SOURCES = (
    Figure("records", "records", "select sum(records)::bigint from sources", "Records that were read of all sources."),
    Figure(
        "sources",
        {"shards": "shards", "records": "records", "documents": "documents"},
        "select source, shards, records, documents from sources order by source",
        "What was read of each source, before any filter: its shards, its records, and the documents with a text.",
    ),
    Figure(
        "files",
        {"files": "files", "hosts": "host names", "documents": "documents"},
        "select source, count(distinct file) as files, count(distinct host(url)) as hosts, count(*) as documents "
        "from extracted group by source order by source",
        "Files and hosts that documents were read from, before any filter.",
    ),
    Figure(
        "periods",
        {"first": "date", "last": "date", "documents": "documents", "undated": "documents"},
        "select source, strftime(min(day), '%Y-%m-%d') as first, strftime(max(day), '%Y-%m-%d') as last, "
        "count(*) as documents, count(*) filter (day is null) as undated from (select source, "
        "try_cast(date as timestamptz) as day from documents) group by source order by source",
        "When the curated documents were collected, by the dates in the sources' records, in UTC.",
    ),
    Figure(
        "latest",
        "date",
        "select strftime(max(try_cast(date as timestamptz)), '%Y-%m-%d') from documents",
        "The last day on which a curated document was collected.",
    ),
)
_DOCUMENTS = (
    Figure("documents", "documents", "select count(*) from documents", "Documents of the curated corpus."),
    Figure(
        "sizes",
        {"documents": "documents", "characters": "code points", "bytes": "bytes of UTF-8"},
        "select coalesce(source, 'all sources') as source, count(*) as documents, sum(length(text))::bigint as "
        "characters, sum(strlen(text))::bigint as bytes from documents group by rollup (source) "
        "order by grouping(source), source",
        "The curated documents of each source, and of all.",
    ),
    Figure(
        "languages",
        {"documents": "documents"},
        "select coalesce(language, 'not measured') as language, count(*) as documents from documents group by all "
        "order by documents desc, language",
        "The curated documents by their most probable language.",
    ),
)
_STEPS = (
    Figure(
        "funnel",
        {
            "documents_in": "documents",
            "documents_out": "documents",
            "characters_in": "code points",
            "characters_out": "code points",
        },
        "select step, documents_in, documents_out, characters_in, characters_out from funnel order by position",
        "What each step let through, in order.",
    ),
    Figure("dropped", "documents", "select count(*) from ledger", "Records and documents that any rule dropped."),
    Figure(
        "drops",
        {"documents": "documents"},
        "select step, rule, count(*) as documents from ledger group by all order by documents desc, step, rule",
        "What each rule dropped.",
    ),
    Figure(
        "cuts",
        {"spans": "spans", "characters": "code points"},
        "select step, rule, count(*) as spans, sum(stop - start)::bigint as characters from edits group by all "
        "order by spans desc, step, rule",
        "What each rule cut out of texts, of documents that a later step dropped, too.",
    ),
    Figure(
        "duplicates",
        "documents",
        f"select count(*) from ledger where step in {DEDUPLICATION} and rule <> 'takedown'",
        "Documents that deduplication dropped.",
    ),
    Figure(
        "personal_data",
        {"spans": "spans", "documents": "documents"},
        "select rule as kind, count(*) as spans, count(distinct id) as documents from edits where step = 'pii' "
        "group by rule order by spans desc, kind",
        "Personal data and secrets that the step `pii` replaced, by kind.",
    ),
    Figure(
        "evaluation",
        {"documents": "documents"},
        f"select step, rule, count(*) as documents from ledger where step in {EVALUATION} group by all "
        "order by step, rule",
        "Documents that were kept out of the training data for evaluations: they hold items of benchmarks, or are "
        "held out, or are near-duplicates of evaluation texts.",
    ),
)
_CLUSTERS = (
    Figure(
        "clusters",
        "clusters",
        "select count(distinct representative) from clusters",
        "Clusters of near-duplicates, of each of which one document stayed.",
    ),
)
_RIGHTS = (
    Figure(
        "opt_outs",
        "documents",
        f"select count(*) from ledger where {_TAKEN}",
        "Documents that takedown lists and the step `rights` removed.",
    ),
    Figure(
        "opt_outs_by_rule",
        {"documents": "documents"},
        f"select step, rule, count(*) as documents from ledger where step = 'url' or {_TAKEN} "
        "group by all order by step, rule",
        "Documents and records that lists of addresses, takedown lists and the step `rights` removed.",
    ),
    Figure(
        "without_url",
        "documents",
        "select count(*) from extracted where coalesce(url, '') = ''",
        "Extracted documents whose address is unknown.",
    ),
    Figure(
        "without_date",
        "documents",
        "select count(*) from extracted where try_cast(date as timestamptz) is null",
        "Extracted documents without a date that can be read.",
    ),
    Figure(
        "without_digest",
        "documents",
        "select count(*) from extracted where digest is null",
        "Extracted documents whose record has no digest of its payload.",
    ),
)


def _by_agent(has_tokens: bool) -> Figure:
    """What the step `rights` removed by protocol and agent. Details in the ledger begin with the agents, such as
    `CCBot, GPTBot: line 2: Disallow: /`. Removed documents have no tokens, so these are estimated from characters."""
    counted = (
        "select protocol, agent, count(*) as documents, sum(characters)::bigint as characters from (select id, rule as "
        "protocol, unnest(string_split(coalesce(split_part(detail, ': ', 1), '*'), ', ')) as agent from ledger where "
        f"{_RESERVED}) join extracted using (id) group by protocol, agent"
    )
    order = "order by documents desc, protocol, agent"
    units = {"documents": "documents", "characters": "code points"}
    about = (
        "What the step `rights` removed, by protocol and agent: a document counts for each agent that its site names; "
        "`*` is all agents."
    )
    if not has_tokens:
        return Figure("opt_outs_by_agent", units, f"{counted} {order}", about)
    return Figure(
        "opt_outs_by_agent",
        units | {"tokens": "estimated tokens"},
        "select protocol, agent, documents, reserved.characters, round(reserved.characters * ratio)::bigint as tokens "
        f"from ({counted}) as reserved cross join (select sum(tokens) / sum(characters) as ratio from tokens join "
        f"extracted using (id)) {order}",
        f"{about} Tokens are estimated by those per extracted character of the documents that training may see.",
    )


_RANKED = (
    "select row_number() over (order by bytes desc, domain) as place, count(*) over () as domains, domain, documents, "
    "bytes from (select domain, count(*) as documents, sum(size)::bigint as bytes from (select domain(url) as domain, "
    "strlen(text) as size from documents) where domain is not null group by domain)"
)
# Template of 24 July 2025, section 2.3: the top 10% of the domain names by the size of their content; small and medium
# enterprises the top 5% or 1,000, whichever is fewer.
TOP_DOMAINS = (
    f"select place, domain, documents, bytes from ({_RANKED}) where place <= ceil(domains * 0.1) order by place"
)
_DOMAINS = (
    Figure(
        "domains",
        "domain names",
        "select count(distinct domain(url)) from documents",
        "Registered domain names of the curated documents' addresses.",
    ),
    Figure(
        "top_domains_share",
        "domain names",
        "select ceil(count(distinct domain(url)) * 0.1)::bigint from documents",
        "A tenth of the domain names, rounded up: the rows of top-domains.csv.",
    ),
    Figure(
        "top_domains_sme",
        "domain names",
        "select least(1000, ceil(count(distinct domain(url)) * 0.05))::bigint from documents",
        "A twentieth of the domain names, at most 1,000: the first rows of top-domains.csv that a small or medium "
        "enterprise lists.",
    ),
    Figure(
        "top_domains",
        {"place": "rank", "documents": "documents", "bytes": "bytes of UTF-8"},
        f"{TOP_DOMAINS} limit {LISTED}",
        f"The first {LISTED} of the domain names in top-domains.csv, by the size of their curated texts.",
    ),
)
_TOKENS = (
    Figure("tokens", "tokens", "select sum(tokens)::bigint from tokens", "Tokens that training may see."),
    Figure("token_documents", "documents", "select count(*) from tokens", "Documents that training may see."),
    Figure(
        "tokens_by_source",
        {"documents": "documents", "tokens": "tokens"},
        "select source, count(*) as documents, sum(tokens)::bigint as tokens from tokens join extracted using (id) "
        "group by source order by source",
        "What training may see of each source.",
    ),
)
_TRAINING = (
    Figure("steps", "steps", "select max(last_step) from training", "Steps after which the training ended."),
    Figure(
        "tokens_read",
        "tokens",
        "select sum(tokens_read)::bigint from training",
        "Tokens that the weights learned from, repeated ones as often as they were read.",
    ),
    Figure(
        "training",
        {
            "tokens": "tokens",
            "share": "fraction",
            "samples": "sequences",
            "tokens_read": "tokens",
            "epochs": "times",
            "first_step": "step",
            "last_step": "step",
        },
        "select source, tokens, share, samples, tokens_read, epochs, first_step, last_step from training "
        "order by source",
        "What the weights learned from: by source, or by group of the mixture, how many tokens there are, which share "
        "of the training was of them, how often they were read, and in which steps. Counted from the training "
        "manifest, the steps that were made, and the batches that the guard left out.",
    ),
)
