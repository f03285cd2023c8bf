"""The step `url`: canonical form, host and registered domain of each document, and the lists and words that it hits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, PlainSerializer, SerializationInfo, model_validator

from gristmill.storage import files
from gristmill.storage.settings import Address, from_folder, is_for_key
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, DocumentStep, Member, Problem, Signal
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES, Canonical, canonicalizer, host_of, registered_domain
from gristmill.tasks.url.lists import (
    KINDS,
    Entries,
    ListError,
    blocked,
    entry_of,
    list_files,
    list_problems,
    read_entries,
    taken_down,
)
from gristmill.tasks.url.matching import Lists, Words, alphanumeric, ascii_words_of, squeezed, words_of

_LISTED = "squidGuard's rules for UT1's domains, urls and expressions"
_REFINEDWEB = "RefinedWeb (Penedo et al. 2023), appendix G.1, as coded by DCLM or datatrove (url_filter.py)"


def _with_category(value: Any, info: SerializationInfo) -> Any:
    if not is_for_key(value, info):
        return value
    folder, _, name = value.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{name}" if name in KINDS else name


Listed = Annotated[str, AfterValidator(from_folder), PlainSerializer(_with_category, return_type=str)]


class Url(DocumentStep):
    """Drop documents whose URL is on a list or contains certain words. Only needs the columns `id` and `url`.

    A list is given by its address. Blocklists are folders in UT1's layout, single categories of it, its archives
    (`adult.tar.gz`), or files named `domains`, `urls`, `expressions`; of a file of another name each line is a host or,
    with a slash, a URL and all below it. Takedown lists have a host, a URL or a folder (`https://example.org/a/*`) a
    line, word lists a word or phrase. Lines that begin with `#` are comments.

    A document without a URL, or with one that has no canonical form, is on no list; its signals are empty, but the
    words are searched in the URL as it is.
    """

    package_data: ClassVar = (PUBLIC_SUFFIXES,)
    pins_files: ClassVar = True

    step: Literal["url"] = "url"
    canonical: Canonical = Field(Canonical(), description="How URLs are made comparable.")
    private_suffixes: bool = Field(
        False, description="Treat private suffixes such as github.io as public suffixes. Common Crawl's index does not."
    )
    blocklists: tuple[Listed, ...] = Field((), description="Addresses of blocklists in UT1's layout.")
    categories: tuple[str, ...] = Field(
        (),
        description="Folders and archives of the blocklists to use; none means all. RefinedWeb uses adult, "
        "phishing, dating, gambling, filehosting, ddos, agressif, chat, mixed_adult, arjel.",
    )
    subdomains: bool = Field(
        True,
        description="A blocked host also blocks all hosts below it. false: only the host itself, with and "
        "without `www.`.",
    )
    takedowns: tuple[Listed, ...] = Field((), description="Addresses of takedown or robots lists.")
    strict_substrings: tuple[Address, ...] = Field(
        (), description="Addresses of word lists. A URL that contains an entry anywhere is dropped."
    )
    hard_words: tuple[Address, ...] = Field(
        (), description="Addresses of word lists. A URL with one entry as a whole word is dropped."
    )
    soft_words: tuple[Address, ...] = Field(
        (),
        description="Addresses of word lists. A URL with more than `max_soft_words` different entries as words "
        "is dropped.",
    )
    definition: Literal["dclm", "datatrove"] = Field(
        "dclm",
        description="How words are matched. dclm: in the canonical URL after `://`, decoded and lowercased; for "
        "strict_substrings also without - and ., so an entry with one of these never matches. datatrove, as used for "
        "FineWeb: in the unchanged URL, split at everything but ASCII letters and digits, with entries reduced in the "
        "same way; for strict_substrings also lowercased.",
    )
    max_soft_words: int = Field(
        1, ge=0, description="Maximum number of different soft words in a URL that is kept; RefinedWeb: 1."
    )
    checksums: tuple[tuple[Listed, str], ...] = Field(
        (),
        description="Expected content of each list file, as (address, xxh3-128). A file with other content "
        "is an error; see `pinned`.",
    )

    signal_fields: ClassVar = (
        *("canonical", "private_suffixes", "blocklists", "categories", "subdomains", "takedowns"),
        *("strict_substrings", "hard_words", "soft_words", "definition", "checksums"),
    )
    signals: ClassVar = (
        Signal(
            "url_canonical",
            "string",
            "URL",
            "RFC 3986, section 6; WHATWG URL",
            description="The URL in canonical form, by the setting `canonical`; empty if there is none.",
        ),
        Signal(
            "host",
            "string",
            "host",
            "RFC 3986, section 3.2.2; UTS #46 for other alphabets",
            description="The host of `url_canonical`.",
        ),
        Signal(
            "registered_domain",
            "string",
            "domain",
            "public suffix list",
            description="The domain that was registered, of which the host is a part; empty for an IP address.",
        ),
        Signal(
            "url_takedown",
            "string",
            "list: entry",
            "takedown lists",
            description="The entry of `takedowns` that holds the URL; empty if none does.",
        ),
        Signal(
            "url_blocklist",
            "string",
            "list: entry",
            _LISTED,
            description="The entry of `blocklists`, in their `categories`, that holds the URL; empty if none does.",
        ),
        Signal(
            "url_strict_substring",
            "string",
            "entry",
            _REFINEDWEB,
            description="The entry of `strict_substrings` that stands anywhere in the URL; empty if none does.",
        ),
        Signal(
            "url_hard_word",
            "string",
            "entry",
            _REFINEDWEB,
            description="The entry of `hard_words` that is a word of the URL; empty if none is.",
        ),
        Signal(
            "url_soft_words",
            "int32",
            "different words",
            _REFINEDWEB,
            description="Different entries of `soft_words` that are words of the URL.",
        ),
    )

    @model_validator(mode="after")
    def _categories_of_lists(self) -> Self:
        if self.categories and not self.blocklists:
            raise ValueError(
                f"categories {', '.join(self.categories)} select blocklists, but there are none; add them to blocklists"
            )
        return self

    def problems(self, deep: bool) -> Iterator[Problem]:
        for key in ("takedowns", "strict_substrings", "hard_words", "soft_words"):
            for index, address in enumerate(getattr(self, key)):
                lines = self.canonical if key == "takedowns" else None
                yield from list_problems(address, (key, index), deep, takedowns=lines)
        for index, address in enumerate(self.blocklists):
            yield from list_problems(address, ("blocklists", index), deep, self.categories)

    def decisions(self) -> Sequence[Bound | Member]:
        return [
            Member("takedown", "url_takedown", ("",)),
            Member("blocklist", "url_blocklist", ("",)),
            Member("strict_substring", "url_strict_substring", ("",)),
            Member("hard_word", "url_hard_word", ("",)),
            Bound("soft_words", "url_soft_words", high=self.max_soft_words),
        ]


def lists(step: Url) -> list[str]:
    """The addresses of all files that the step reads, in the order of its settings; an address in two
    settings is there twice. Raises ListError for a missing list."""
    paths = [path for address in step.blocklists for path in list_files(address, step.categories)]
    singles = (step.takedowns, step.strict_substrings, step.hard_words, step.soft_words)
    return paths + [path for addresses in singles for address in addresses for path in list_files(address)]


def pinned(step: Url) -> Url:
    """The step with the checksums of all lists, so that its settings, and a key made of them, depend on their content.

    Reads every file once. A pinned step raises ListError where a list has changed since; one that is not pinned
    keeps its lists as they were when this process first read them.
    """
    paths = lists(step)
    checksum_of = {path: files.checksum(path) for path in dict.fromkeys(paths)}
    # as often as they are named: a key has the names without folders, and only the position tells whose content it is
    return step.model_copy(update={"checksums": tuple((path, checksum_of[path]) for path in paths)})


def measure(step: Url, documents: Batch) -> dict[str, pa.Array]:
    """The URL of each document in canonical form and its parts, and what of the lists it hits. Holds the lists."""
    urls = [url or "" for url in documents["url"].to_pylist()]
    canonical = list(map(canonicalizer(step.canonical), urls))
    hosts = [host_of(url.split("/", 3)[2]) if url else "" for url in canonical]
    url_lists = load(step)
    nothing: list[list[str]] = [[]] * len(urls)
    strict = hard = soft = nothing
    if url_lists.strict.entries or url_lists.hard.entries or url_lists.soft.entries:
        if step.definition == "datatrove":
            texts = pa.array(urls, pa.large_string())
            letters, words = alphanumeric(texts), ascii_words_of(texts)
        else:
            readable = [unquote(c.partition("://")[2] or url) for c, url in zip(canonical, urls, strict=True)]
            texts = pa.array(readable, pa.large_string())
            letters, words = squeezed(texts), words_of(texts)
        strict, hard, soft = url_lists.strict.find(letters), url_lists.hard.find(words), url_lists.soft.find(words)
    return {
        "url_canonical": pa.array(canonical, pa.string()),
        "host": pa.array(hosts, pa.string()),
        "registered_domain": pa.array([registered_domain(h, step.private_suffixes) for h in hosts], pa.string()),
        "url_takedown": pa.array(url_lists.takedowns.find(canonical, hosts), pa.string()),
        "url_blocklist": pa.array(url_lists.blocklists.find(canonical, hosts, step.subdomains), pa.string()),
        "url_strict_substring": pa.array([entries[0] if entries else "" for entries in strict], pa.string()),
        "url_hard_word": pa.array([entries[0].strip() if entries else "" for entries in hard], pa.string()),
        "url_soft_words": pa.array(list(map(len, soft)), pa.int32()),
    }


def takedown_entries(step: Url, urls: Sequence[str | None]) -> list[str]:
    """The signal `url_takedown` of some URLs, without the others. Holds the lists."""
    canonical = list(map(canonicalizer(step.canonical), (url or "" for url in urls)))
    hosts = [host_of(url.split("/", 3)[2]) if url else "" for url in canonical]
    return load(step).takedowns.find(canonical, hosts)


@dataclass(frozen=True)
class _Loaded:
    takedowns: Lists
    blocklists: Lists
    strict: Words
    hard: Words
    soft: Words


@lru_cache(2)
def load(step: Url) -> _Loaded:
    """The lists of a step, read once per process: 10 bytes for each host or path, about 100 for each word."""
    checksums = dict(step.checksums)

    def read(addresses: tuple[str, ...], categories: tuple[str, ...] = ()) -> Iterator[Entries]:
        for address in addresses:
            for path in list_files(address, categories):
                yield from read_entries(path, categories, checksums.get(path))

    def words(addresses: tuple[str, ...]) -> list[str]:
        return [entry_of(line, e.label) for e in read(addresses) for lines in e.lines for line in lines]

    def prepared(addresses: tuple[str, ...], prepare: Callable[[pa.Array], pa.Array]) -> Words:
        return Words(prepare(pa.array(words(addresses), pa.large_string())).to_pylist())

    def one_word(entries: pa.Array) -> pa.Array:
        return ascii_words_of(alphanumeric(entries))

    # substrings are not squeezed by DCLM: of its entry `g-spot` else every page of blogspot.com would be a hit
    substring, word = (alphanumeric, one_word) if step.definition == "datatrove" else (pc.utf8_lower, words_of)

    blocklists = Lists(read(step.blocklists, step.categories), lambda line: blocked(line, step.canonical))
    if missing := set(step.categories) - {label.partition("/")[0] for label in blocklists.labels}:
        raise ListError(f"no blocklist has the categories {', '.join(sorted(missing))}; there are {blocklists.labels}")
    return _Loaded(
        takedowns=Lists(read(step.takedowns), lambda line: taken_down(line, step.canonical)),
        blocklists=blocklists,
        strict=prepared(step.strict_substrings, substring),
        hard=prepared(step.hard_words, word),
        soft=prepared(step.soft_words, word),
    )
