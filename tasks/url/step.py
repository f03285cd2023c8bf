"""The URL step: canonical form, host and registered domain of each document, and the lists and words that it hits."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Self
from urllib.parse import unquote

import pyarrow as pa
from pydantic import Field

from storage import files
from tasks.documents.step import Batch, Bound, DocumentStep, Member, signal
from tasks.url.canonical import Canonical, canonicalizer, host_of, registered_domain
from tasks.url.lists import Entries, ListError, blocked, list_files, read_entries, taken_down
from tasks.url.matching import Lists, Words, squeezed, words_of

_LISTED = "squidGuard's rules for UT1's domains, urls and expressions"
_REFINEDWEB = "RefinedWeb (Penedo et al. 2023), appendix G.1, as coded by DCLM"


class Url(DocumentStep):
    """Drop documents whose URL is on a list or holds certain words; needs the columns `id` and `url` only.

    A list is given by its address. Blocklists are folders in UT1's layout, single categories of it, its archives
    (`adult.tar.gz`), or files named `domains`, `urls`, `expressions`; of a file of another name each line is a host or,
    with a slash, a URL and all below it. Takedown lists have a host, a URL or a folder (`https://example.org/a/*`) a
    line, word lists a word or phrase. Lines that begin with `#` are comments.

    A document without a URL, or with one that has no canonical form, is on no list; its signals are empty, but the
    words are looked for in the URL as it stands.
    """

    step: Literal["url"] = "url"
    canonical: Canonical = Canonical()
    private_suffixes: bool = Field(
        False, description="whether github.io and the like are public suffixes; Common Crawl's index says no"
    )
    blocklists: tuple[str, ...] = Field((), description="addresses of blocklists in UT1's layout")
    categories: tuple[str, ...] = Field(
        (),
        description="of the blocklists' folders and archives; none means all. RefinedWeb takes adult, phishing, "
        "dating, gambling, filehosting, ddos, agressif, chat, mixed_adult, arjel",
    )
    takedowns: tuple[str, ...] = Field((), description="addresses of takedown or robots lists")
    strict_substrings: tuple[str, ...] = Field((), description="addresses of word lists: dropped wherever one stands")
    hard_words: tuple[str, ...] = Field((), description="addresses of word lists: dropped for one of these as a word")
    soft_words: tuple[str, ...] = Field((), description="addresses of word lists: dropped for several different ones")
    max_soft_words: int = Field(1, ge=0, description="so many different soft words may stay; RefinedWeb: 1")
    checksums: tuple[tuple[str, str], ...] = Field(
        (), description="(address, xxh3-128) of each file of the lists, which must then have this content; see `pinned`"
    )

    signal_fields: ClassVar = (
        *("canonical", "private_suffixes", "blocklists", "categories", "takedowns"),
        *("strict_substrings", "hard_words", "soft_words", "checksums"),
    )
    signals: ClassVar = pa.schema(
        [
            signal("url_canonical", pa.string(), "URL, empty if there is none", "RFC 3986, section 6; WHATWG URL"),
            signal(
                "host", pa.string(), "host of url_canonical", "RFC 3986, section 3.2.2; UTS #46 for other alphabets"
            ),
            signal("registered_domain", pa.string(), "domain, empty for an IP address", "public suffix list"),
            signal("url_takedown", pa.string(), "list: entry, empty if none", "takedown lists"),
            signal("url_blocklist", pa.string(), "list: entry, empty if none", _LISTED),
            signal("url_strict_substring", pa.string(), "entry, empty if none", _REFINEDWEB),
            signal("url_hard_word", pa.string(), "entry, empty if none", _REFINEDWEB),
            signal("url_soft_words", pa.int32(), "different words", _REFINEDWEB),
        ]
    )

    def lists(self) -> list[str]:
        """The addresses of all files that the step reads. Raises ListError for a list that is not there."""
        found = [path for address in self.blocklists for path in list_files(address, self.categories)]
        singles = (self.takedowns, self.strict_substrings, self.hard_words, self.soft_words)
        found += [path for addresses in singles for address in addresses for path in list_files(address)]
        return list(dict.fromkeys(found))

    def pinned(self) -> Self:
        """The step with the checksums of all lists, so that its settings, and a key made of them, say their content.

        Reads every file once. A pinned step raises ListError where a list has changed since; one that is not pinned
        keeps its lists as they were when this process first read them.
        """
        return self.model_copy(update={"checksums": tuple((path, files.checksum(path)) for path in self.lists())})

    def measure(self, documents: Batch) -> dict[str, pa.Array]:
        given = [url or "" for url in documents["url"].to_pylist()]
        canonical = list(map(canonicalizer(self.canonical), given))
        hosts = [host_of(url.split("/", 3)[2]) if url else "" for url in canonical]
        loaded = _load(self)
        strict = hard = soft = [[]] * len(given)
        if loaded.strict.entries or loaded.hard.entries or loaded.soft.entries:
            readable = [unquote(c.partition("://")[2] or url) for c, url in zip(canonical, given, strict=True)]
            texts = pa.array(readable, pa.large_string())
            words = words_of(texts)
            strict = loaded.strict.find(squeezed(texts))
            hard, soft = loaded.hard.find(words), loaded.soft.find(words)
        return {
            "url_canonical": pa.array(canonical, pa.string()),
            "host": pa.array(hosts, pa.string()),
            "registered_domain": pa.array([registered_domain(h, self.private_suffixes) for h in hosts], pa.string()),
            "url_takedown": pa.array(loaded.takedowns.find(canonical, hosts), pa.string()),
            "url_blocklist": pa.array(loaded.blocklists.find(canonical, hosts), pa.string()),
            "url_strict_substring": pa.array([found[0] if found else "" for found in strict], pa.string()),
            "url_hard_word": pa.array([found[0].strip() if found else "" for found in hard], pa.string()),
            "url_soft_words": pa.array(list(map(len, soft)), pa.int32()),
        }

    def decisions(self) -> list[Bound | Member]:
        return [
            Member("takedown", "url_takedown", ("",)),
            Member("blocklist", "url_blocklist", ("",)),
            Member("strict_substring", "url_strict_substring", ("",)),
            Member("hard_word", "url_hard_word", ("",)),
            Bound("soft_words", "url_soft_words", high=self.max_soft_words),
        ]


@dataclass(frozen=True)
class _Loaded:
    takedowns: Lists
    blocklists: Lists
    strict: Words
    hard: Words
    soft: Words


@lru_cache(2)
def _load(step: Url) -> _Loaded:
    """The lists of a step, read once per process: 10 bytes for each host or path, about 100 for each word."""
    checksums = dict(step.checksums)

    def read(addresses: tuple[str, ...], categories: tuple[str, ...] = ()) -> Iterator[Entries]:
        for address in addresses:
            for path in list_files(address, categories):
                yield from read_entries(path, categories, checksums.get(path))

    def words(addresses: tuple[str, ...]) -> list[str]:
        return [line.decode("utf-8", "replace") for e in read(addresses) for lines in e.lines for line in lines]

    def prepared(entries: list[str], prepare) -> list[str]:
        return prepare(pa.array(entries, pa.large_string())).to_pylist()

    blocklists = Lists(read(step.blocklists, step.categories), lambda line: blocked(line, step.canonical))
    if missing := set(step.categories) - {label.partition("/")[0] for label in blocklists.labels}:
        raise ListError(f"no blocklist has the categories {', '.join(sorted(missing))}; there are {blocklists.labels}")
    return _Loaded(
        takedowns=Lists(read(step.takedowns), lambda line: taken_down(line, step.canonical)),
        blocklists=blocklists,
        strict=Words(prepared(words(step.strict_substrings), squeezed)),
        hard=Words(prepared(words(step.hard_words), words_of)),
        soft=Words(prepared(words(step.soft_words), words_of)),
    )
