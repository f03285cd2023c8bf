"""The step `url`: lists read, URLs looked up in them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files
from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.url.canonical_work import canonicalizer, host_of, registered_domain
from gristmill.tasks.url.list_files import ListError, list_files
from gristmill.tasks.url.lists import Entries, blocked, read_entries, taken_down
from gristmill.tasks.url.matching import Lists, Words, alphanumeric, ascii_words_of, squeezed, words_of
from gristmill.tasks.url.step import Url


def lists(step: Url) -> list[str]:
    """The addresses of all files that the step reads, in the order of its settings; one that two settings name stands
    there twice. Raises ListError for a list that is not there."""
    found = [path for address in step.blocklists for path in list_files(address, step.categories)]
    singles = (step.takedowns, step.strict_substrings, step.hard_words, step.soft_words)
    return found + [path for addresses in singles for address in addresses for path in list_files(address)]


def pinned(step: Url) -> Url:
    """The step with the checksums of all lists, so that its settings, and a key made of them, depend on their content.

    Reads every file once. A pinned step raises ListError where a list has changed since; one that is not pinned
    keeps its lists as they were when this process first read them.
    """
    named = lists(step)
    known = {path: files.checksum(path) for path in dict.fromkeys(named)}
    # as often as they are named: a key has the names without folders, and the place alone says whose content it is
    return step.model_copy(update={"checksums": tuple((path, known[path]) for path in named)})


def measure(step: Url, documents: Batch) -> dict[str, pa.Array]:
    """The URL of each document in canonical form and its parts, and what of the lists it hits. Holds the lists."""
    given = [url or "" for url in documents["url"].to_pylist()]
    canonical = list(map(canonicalizer(step.canonical), given))
    hosts = [host_of(url.split("/", 3)[2]) if url else "" for url in canonical]
    loaded = load(step)
    nothing: list[list[str]] = [[]] * len(given)
    strict = hard = soft = nothing
    if loaded.strict.entries or loaded.hard.entries or loaded.soft.entries:
        if step.definition == "datatrove":
            texts = pa.array(given, pa.large_string())
            joined, words = alphanumeric(texts), ascii_words_of(texts)
        else:
            readable = [unquote(c.partition("://")[2] or url) for c, url in zip(canonical, given, strict=True)]
            texts = pa.array(readable, pa.large_string())
            joined, words = squeezed(texts), words_of(texts)
        strict, hard, soft = loaded.strict.find(joined), loaded.hard.find(words), loaded.soft.find(words)
    return {
        "url_canonical": pa.array(canonical, pa.string()),
        "host": pa.array(hosts, pa.string()),
        "registered_domain": pa.array([registered_domain(h, step.private_suffixes) for h in hosts], pa.string()),
        "url_takedown": pa.array(loaded.takedowns.find(canonical, hosts), pa.string()),
        "url_blocklist": pa.array(loaded.blocklists.find(canonical, hosts, step.subdomains), pa.string()),
        "url_strict_substring": pa.array([found[0] if found else "" for found in strict], pa.string()),
        "url_hard_word": pa.array([found[0].strip() if found else "" for found in hard], pa.string()),
        "url_soft_words": pa.array(list(map(len, soft)), pa.int32()),
    }


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
        return [line.decode("utf-8", "replace") for e in read(addresses) for lines in e.lines for line in lines]

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
