"""Which entry of which list a URL hits: hosts and paths by their hashes, expressions and words by RE2.

RE2 takes time linear in the URL for every expression, so no URL can make it hang.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from gristmill.tasks.url.canonical import host_of, without_www
from gristmill.tasks.url.lists import Entries, ListError, hosts_are_canonical, key

log = logging.getLogger(__name__)

# How many folders of one URL are looked up: bounds the work on a URL of slashes only.
_MAX_FOLDERS = 64
_BOUNDARY = re.compile(rb"[/?&;]")
# Characters of one alternation: RE2 refuses programs over 8 MB, and scans slowly once its automaton is over 8 MB.
_ALTERNATION = 20_000
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_NOT_ALPHANUMERIC = "[^A-Za-z0-9]+"
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


class Hashes:
    """A set of strings, each with the number of the list that had it first: 10 bytes an entry.

    Strings with the same 64-bit xxh3 are taken for the same: among 4.6 million entries a lookup hits a wrong one with
    a probability of 2.5e-13.
    """

    def __init__(self, parts: list[tuple[int, np.ndarray]]) -> None:
        """`parts`: (number of the list, its hashes as uint64), in order. Holds about 60 bytes an entry while it
        sorts."""
        hashes = np.concatenate([np.empty(0, np.uint64), *(part for _, part in parts)])
        numbers = np.repeat(np.array([n for n, _ in parts], np.uint16), [len(part) for _, part in parts])
        self.hashes, first = np.unique(hashes, return_index=True)
        self.numbers = numbers[first]

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, strings: Sequence[bytes]) -> np.ndarray:
        """The number of the list of each string, int64; -1 for one that is not in the set."""
        if not len(self):
            return np.full(len(strings), -1)
        hashes = _hashed(strings)
        indices = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        return np.where(self.hashes[indices] == hashes, self.numbers[indices].astype(np.int64), -1)


class Lists:
    """The hosts, paths and regular expressions of some lists."""

    def __init__(self, lists: Iterable[Entries], parse: Callable[[str], str]) -> None:
        """`parse` returns the key of a line that is not an expression, or "" for an invalid line, which is logged and
        skipped."""
        self.labels: list[str] = []
        self.expressions: list[tuple[str, str]] = []
        keys: list[tuple[int, np.ndarray]] = []
        sites: list[tuple[int, np.ndarray]] = []
        for number, entries in enumerate(lists):
            self.labels.append(entries.label)
            if entries.kind == "expressions":
                self.expressions += [(entries.label, expression) for expression in _expressions(entries)]
                continue
            for address_keys, their_sites in _keys(entries, parse):
                keys.append((number, _hashed(address_keys)))
                sites.append((number, _hashed(their_sites)))
        self.keys = Hashes(keys)
        self.sites = Hashes(sites)  # those that an entry with a path is on
        self.alternations = alternations([expression for _, expression in self.expressions])

    def find(self, canonical: list[str], hosts: list[str], subdomains: bool = True) -> list[str]:
        """`<list>: <entry>` for each URL, "" where none hits or the URL is "".

        A host of a list hits itself and all hosts below it; the longest that hits counts. Without `subdomains` it hits
        itself, with and without `www.`. After the hosts come the paths, each of which hits itself and all below it; the
        shortest counts. Then come the regular expressions, on `host/path?query`; the first counts.
        """
        if not self.labels:
            return [""] * len(canonical)
        unique = list(dict.fromkeys(hosts))
        candidates = _suffixes if subdomains else _itself
        by_host = dict(zip(unique, self._first(list(map(candidates, unique))), strict=True))
        entries = [by_host[host] for host in hosts]
        if len(self.sites):
            hit = self.sites.find([without_www(host).encode() for host in unique]) >= 0
            listed_hosts = {host for host, is_listed in zip(unique, hit, strict=True) if is_listed}
            rows = [i for i, host in enumerate(hosts) if host in listed_hosts and not entries[i]]
            for i, entry in zip(rows, self._first([_folders(key(canonical[i])) for i in rows]), strict=True):
                entries[i] = entry
        if self.alternations:
            addresses = pa.array([url.partition("://")[2] for url in canonical], pa.large_string())
            for i in np.flatnonzero(matches(addresses, self.alternations)).tolist():
                entries[i] = entries[i] or self._expression(addresses[i])
        return entries

    def _first(self, candidates: list[list[bytes]]) -> list[str]:
        """`<list>: <entry>` for the first of each row's candidates that is an entry, "" if none is."""
        flat = [candidate for row in candidates for candidate in row]
        numbers = self.keys.find(flat)
        rows = np.repeat(np.arange(len(candidates)), [len(row) for row in candidates])
        entries = [""] * len(candidates)
        for i in np.flatnonzero(numbers >= 0)[::-1]:
            entries[rows[i]] = f"{self.labels[numbers[i]]}: {flat[i].decode().removeprefix('=')}"
        return entries

    def _expression(self, address: pa.Scalar) -> str:
        one = pa.array([address.as_py()], pa.large_string())
        return next(f"{label}: {e}" for label, e in self.expressions if matches(one, [_posix(e)])[0])


class Words:
    """Words or phrases of some lists, looked for in texts that one of the functions below made."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = sorted({entry for entry in entries if entry.strip()})
        self.alternations = alternations([_PUNCTUATION.sub(r"\\\1", entry) for entry in self.entries])

    def find(self, texts: pa.Array) -> list[list[str]]:
        """For each text the different entries in it, sorted."""
        entries_of: list[list[str]] = [[] for _ in range(len(texts))]
        for i in np.flatnonzero(matches(texts, self.alternations)):
            text = texts[int(i)].as_py()
            entries_of[i] = [entry for entry in self.entries if entry in text]
        return entries_of


def words_of(texts: pa.Array) -> pa.Array:
    """Each text as its words in lower case with one space before, between and after them."""
    return _spaced(pc.replace_substring_regex(pc.utf8_lower(texts), _NO_WORD, " "))


def squeezed(texts: pa.Array) -> pa.Array:
    """Each text in lower case without `-` and `.`, with which words are hidden (as DCLM does for RefinedWeb)."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"[-.\s]+", "")


def ascii_words_of(texts: pa.Array) -> pa.Array:
    """Each text cut at all but letters and digits of ASCII, with one space before, between and after what is left.

    Capitals stay, as in datatrove's `url_words`: a word of a list does not hit one in capitals.
    """
    return _spaced(pc.replace_substring_regex(texts, _NOT_ALPHANUMERIC, " "))


def alphanumeric(texts: pa.Array) -> pa.Array:
    """The letters and digits of ASCII of each text, in lower case (datatrove's `normalize`)."""
    return pc.utf8_lower(pc.replace_substring_regex(texts, _NOT_ALPHANUMERIC, ""))


def _spaced(words: pa.Array) -> pa.Array:
    nothing, space = pa.scalar("", pa.large_string()), pa.scalar(" ", pa.large_string())
    return pc.binary_join_element_wise(nothing, pc.utf8_trim_whitespace(words), nothing, space)


def alternations(expressions: list[str]) -> list[str]:
    """Few expressions that match where one of many does."""
    if not expressions:
        return []
    expression_of_all = "|".join(f"(?:{_posix(expression)})" for expression in expressions)
    if len(expressions) > 1 and (len(expression_of_all) > _ALTERNATION or not _compiles(expression_of_all)):
        middle = len(expressions) // 2
        return alternations(expressions[:middle]) + alternations(expressions[middle:])
    return [expression_of_all]


def matches(texts: pa.Array, expressions: list[str]) -> np.ndarray:
    """Whether one of the expressions matches somewhere in a text, without regard to case."""
    is_match = np.zeros(len(texts), bool)
    for expression in expressions:
        is_match |= pc.match_substring_regex(texts, expression, ignore_case=True).to_numpy(zero_copy_only=False)
    return is_match


def _hashed(strings: Iterable[bytes]) -> np.ndarray:
    return np.fromiter(map(xxh3_64_intdigest, strings), np.uint64)


def _keys(entries: Entries, parse: Callable[[str], str]) -> Iterator[tuple[list[bytes], set[bytes]]]:
    """The keys of a list and the hosts of those with a path, piece by piece.

    Raises ListError if the list has lines and none makes sense.
    """
    good = bad = 0
    example = ""
    for lines in entries.lines:
        if hosts_are_canonical(lines):
            good += len(lines)
            yield lines, set()
            continue
        keys, sites = [], set()
        for line in lines:
            text = line.decode("utf-8", "replace")
            if parsed := parse(text):
                keys.append(parsed.encode())
                host, slash, _ = parsed.removeprefix("=").partition("/")
                if slash or parsed.startswith("="):
                    sites.add(host_of(host).encode())
            else:
                bad, example = bad + 1, example or text
        good += len(keys)
        yield keys, sites
    if bad and not good:
        raise ListError(f"no line of the list {entries.label} is a host or a URL; one is {example[:200]!r}")
    if bad:
        log.warning(
            "%s: %d of %d lines are not hosts or URLs, such as %r", entries.label, bad, good + bad, example[:200]
        )


def _expressions(entries: Entries) -> Iterator[str]:
    for lines in entries.lines:
        for line in lines:
            expression = line.decode("utf-8", "replace")
            if _compiles(_posix(expression)):
                yield expression
            else:  # squidGuard logs and goes on, too; the lists are made by others
                log.warning("%s: RE2 knows no such regular expression: %r", entries.label, expression[:200])


def _posix(expression: str) -> str:
    r"""A POSIX expression for RE2, which knows all but back-references and the word boundaries `\<` and `\>`."""
    return expression.replace(r"\<", r"\b").replace(r"\>", r"\b")


def _compiles(expression: str) -> bool:
    try:
        pc.match_substring_regex(pa.array([""]), expression)
    except pa.ArrowInvalid:
        return False
    return True


def _suffixes(host: str) -> list[bytes]:
    """The host and those above it, the longest first; nothing is above an IP address."""
    name = host.encode()
    if not host or host[0] == "[" or (host[-1].isdigit() and host.rpartition(".")[2].isdigit()):
        return [name] if host else []
    suffixes = [name]
    dot = name.find(b".")
    while dot >= 0:
        suffixes.append(name[dot + 1 :])
        dot = name.find(b".", dot + 1)
    return suffixes


def _itself(host: str) -> list[bytes]:
    return [name.encode() for name in dict.fromkeys((host, without_www(host))) if name]


def _folders(url_key: str) -> list[bytes]:
    """The keys of entries with a path that hit a URL with this key, the shortest first."""
    key = url_key.encode()
    ends = [match.start() for match in _BOUNDARY.finditer(key, key.find(b"/") + 1)]
    return [*(key[:end] for end in ends[:_MAX_FOLDERS]), key, b"=" + key]
