"""What a site's robots.txt says of a URL for some agents (RFC 9309), and the line that decides.

Verdicts are protego's. RFC 9309 knows no line ends but CR and LF and ignores lines of other fields, so texts are freed
of both before they are parsed. `Content-Usage` rules (draft-ietf-aipref-attach) follow the same groups and paths: they
are judged as a robots.txt of their own.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import wrapt

from gristmill.tasks.rights.statements import usages

if TYPE_CHECKING:
    import protego
else:
    protego = wrapt.lazy_import("protego")

MAX_BYTES = 500 << 10  # RFC 9309, section 2.5: a crawler must read at least so much
# A URL is compared with each rule that has a wildcard, and each rule is held for each agent of its group.
MAX_WILDCARDS, MAX_PAIRS = 1_000, 200_000
LIBRARIES = ("http-sf", "protego")

_LINE_ENDS = re.compile(r"\r\n|\r|\n")
# Characters at which Python divides lines, and RFC 9309 does not.
_NO_LINE_ENDS = {
    ord(each): "".join(f"%{byte:02X}" for byte in each.encode()) for each in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
}
# Fields by which groups and rules are written, with the misspellings that protego takes for them.
_KINDS = {
    **dict.fromkeys(("user-agent", "useragent", "user agent"), "agent"),
    "allow": "allow",
    **dict.fromkeys(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), "disallow"),
    "content-usage": "usage",
}
_FIELD = re.compile(rf"({'|'.join(map(re.escape, _KINDS))})(?:\s*:|\s+|\Z)\s*(.*)", re.I)
# Characters of paths that are the same in every spelling (RFC 3986, section 2.3).
_PLAIN = re.compile(r"/[A-Za-z0-9_.~/-]*")
_MAX_URLS = 32  # of a host, whose rules are compared with these before they are parsed
_ANY = "*"
_SHOWN = 120  # characters of a line in the ledger
_MAX_CANDIDATES = 500  # rules of a group among which the deciding line is looked for


class Rule(NamedTuple):
    """A line of a robots.txt. `number`: from 1; `kind`: agent, allow, disallow or usage; `text`: without comment."""

    number: int
    kind: str
    value: str
    text: str


class Block(NamedTuple):
    """Why a URL may not be used. `agents`: those asked for that the site names, or `*`; `line`: its number and text,
    "" where it is not known."""

    agents: tuple[str, ...]
    line: str


def text_of(data: bytes) -> str:
    """A robots.txt as text: the first 500 KiB, without a mark of byte order."""
    return data[:MAX_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")


class Robots:
    """A robots.txt. Parses when it is first asked; holds the rules of the text. `urls`: those that it is asked about,
    if they are known: rules that begin otherwise are left out, which takes less than to parse them."""

    def __init__(self, text: str, urls: Sequence[str] = ()) -> None:
        self._text = text
        self._begins = [_begin(url) for url in urls] if 0 < len(urls) <= _MAX_URLS else []
        self._groups: dict[str, list[Rule]] = {}
        self._asked: dict[tuple[str, ...], dict[str, list[str]]] = {}
        self._parsed_usages: dict[str, protego.Protego] = {}

    @cached_property
    def rules(self) -> list[Rule]:
        """The lines of groups and rules, in their order."""
        return list(_rules(self._text))

    @cached_property
    def _parsed(self) -> "protego.Protego":
        lines = [
            rule.text
            if rule.kind == "agent" or self._may_fit(rule.value)
            else "Disallow:"  # which ends names of agents
            for rule in self.rules
            if rule.kind != "usage"
        ]
        return protego.Protego.parse("\n".join(lines))

    def _may_fit(self, pattern: str) -> bool:
        """Whether a pattern may fit one of the URLs, by the characters before any that can be written otherwise."""
        plain = _PLAIN.match(pattern)
        if not self._begins or plain is None:
            return True
        begin = plain[0]
        return any(path.startswith(begin) or (is_cut and begin.startswith(path)) for path, is_cut in self._begins)

    @cached_property
    def _tokens(self) -> frozenset[str]:
        """The agents that the file names, in lower case."""
        return frozenset(rule.value.lower() for rule in self.rules if rule.kind == "agent" and rule.value)

    def token(self, agent: str) -> str:
        """The name in the file by which an agent's group is chosen: the longest that protego takes for the agent's,
        else `*`."""
        lower = agent.lower()
        names = [name for name in self._tokens if name != _ANY and name in lower and _is_named(name, lower)]
        return max(names, key=len, default=_ANY)

    def allows(self, url: str, agent: str) -> bool:
        """Whether the agent may fetch the URL."""
        return self._parsed.can_fetch(url, agent)

    @cached_property
    def excess(self) -> str:
        """Why the file is not evaluated, "" if it is: it has too many rules, and reserves all pages then."""
        wildcards = sum("*" in rule.value for rule in self.rules if rule.kind != "agent")
        if wildcards > MAX_WILDCARDS:
            return f"more than {MAX_WILDCARDS:,} rules with wildcards"
        agents = rules = pairs = 0
        for rule in self.rules:
            if rule.kind != "agent":
                rules += 1
                pairs += agents
            else:
                agents, rules = (1, 0) if rules else (agents + 1, 0)
        return f"more than {MAX_PAIRS:,} pairs of agents and rules" if pairs > MAX_PAIRS else ""

    @cached_property
    def _has_usages(self) -> bool:
        return any(rule.kind == "usage" for rule in self.rules)

    def block(self, url: str, agents: Sequence[str]) -> Block | None:
        """Why one of the agents may not fetch the URL; None if all may. Agents of one group are asked about once."""
        if self.excess:
            return Block((_ANY,), self.excess)
        blocked: dict[str, list[str]] = {}
        for token, named in self._by_token(agents).items():
            if not self.allows(url, named[0]):
                blocked[token] = named if token != _ANY else [_ANY]
        if not blocked:
            return None
        first = min(blocked, key=lambda token: token == _ANY)  # a group of its own says more than the one for all
        return Block(tuple(name for names in blocked.values() for name in names), self._line(url, first))

    def usage(self, url: str, agents: Sequence[str], use: str) -> tuple[str, Block] | None:
        """The preference (`y` or `n`) of `Content-Usage` rules for a use, and where it is stated; None for none.

        If the preferences for several agents differ, it is the one that disallows. A path that may not be fetched has
        none (draft-ietf-aipref-attach-05, section 3.1).
        """
        if self.excess or not self._has_usages:
            return None
        stated: dict[str, Block] = {}
        for token, named in self._by_token(agents).items():
            if (token == _ANY and _ANY not in self._tokens) or not self.allows(url, named[0]):
                continue
            for preference in ("n", "y"):
                if self._usages(use, preference).can_fetch(url, named[0]):
                    names = tuple(named) if token != _ANY else (_ANY,)
                    stated.setdefault(preference, Block(names, self._usage_line(url, token, f"{use}={preference}")))
                    break
        return next(((preference, stated[preference]) for preference in ("n", "y") if preference in stated), None)

    def _by_token(self, agents: Sequence[str]) -> dict[str, list[str]]:
        """The agents by the names in the file that they go by."""
        key = tuple(agents)
        if key not in self._asked:
            groups: dict[str, list[str]] = {}
            for agent in key:
                groups.setdefault(self.token(agent), []).append(agent)
            self._asked = {key: groups}
        return self._asked[key]

    def _usages(self, use: str, preference: str) -> "protego.Protego":
        """A robots.txt by which a URL may be fetched exactly if this preference is stated for it.

        The longest path counts, and of equal ones `Allow`. So this preference becomes `Allow`, the other one
        `Disallow`, and all other paths are disallowed by the shortest pattern that there is.
        """
        key = f"{use}={preference}"
        if key not in self._parsed_usages:
            lines = []
            for rule in self.rules:
                if rule.kind == "agent":
                    lines.append(rule.text)
                    continue
                lines.append("Disallow: /")
                if rule.kind == "usage":
                    path, stated = _preferences(rule.value)
                    own = [each for each in stated if each.startswith(f"{use}=")]
                    lines += [f"{'Allow' if each == key else 'Disallow'}: {path}" for each in own]
            self._parsed_usages[key] = protego.Protego.parse("\n".join([*lines, "Disallow: /"]))
        return self._parsed_usages[key]

    def _line(self, url: str, token: str) -> str:
        """The disallowing line of a group with the longest path that fits, and its number."""
        if token not in self._groups:
            rules = sorted(_of_group(self.rules, token, "disallow"), key=lambda rule: -len(rule.value))
            self._groups[token] = rules[:_MAX_CANDIDATES]
        for rule in self._groups[token]:
            if not _single(rule.value).can_fetch(url, _ANY):
                return f"line {rule.number}: {_printable(rule.text)}"
        return ""

    def _usage_line(self, url: str, token: str, preference: str) -> str:
        longest: tuple[int, Rule] | None = None
        for rule in list(_of_group(self.rules, token, "usage"))[:_MAX_CANDIDATES]:
            path, stated = _preferences(rule.value)
            if preference in stated and matches(url, path) and (longest is None or len(path) > longest[0]):
                longest = len(path), rule
        return "" if longest is None else f"line {longest[1].number}: {_printable(longest[1].text)}"


def _begin(url: str) -> tuple[str, bool]:
    """The path of a URL up to the first character that can be written otherwise, and whether there is one."""
    path = "/" + url.partition("://")[2].partition("/")[2]
    plain = _PLAIN.match(path)
    begin = plain[0] if plain else ""
    return begin, begin != path


def _rules(text: str) -> Iterator[Rule]:
    for number, line in enumerate(_LINE_ENDS.split(text), 1):
        stated = line.partition("#")[0].strip(" \t")
        if not stated.isprintable():
            stated = stated.translate(_NO_LINE_ENDS).strip()
        if match := _FIELD.match(stated):
            yield Rule(number, _KINDS[match[1].lower()], match[2].strip(), stated)


def _of_group(rules: Sequence[Rule], token: str, kind: str) -> Iterator[Rule]:
    """The rules of a kind in the groups that name an agent."""
    agents: set[str] = set()
    has_rules = False
    for rule in rules:
        if rule.kind == "agent":
            agents = set() if has_rules else agents
            has_rules = False
            agents.add(rule.value.lower())
        else:
            has_rules = True
            if rule.kind == kind and rule.value and token in agents:
                yield rule


@lru_cache(1 << 14)
def _is_named(name: str, agent: str) -> bool:
    """Whether protego takes a name in a file for an agent's."""
    return not protego.Protego.parse(f"User-agent: {name}\nDisallow: /").can_fetch("https://example.org/", agent)


@lru_cache(1 << 12)
def _single(path: str) -> "protego.Protego":
    return protego.Protego.parse(f"User-agent: *\nDisallow: {path}")


def matches(url: str, pattern: str) -> bool:
    """Whether a path pattern of robots.txt, with `*` and `$`, fits a URL."""
    return bool(pattern) and not _single(pattern).can_fetch(url, _ANY)


def _preferences(value: str) -> tuple[str, list[str]]:
    """The path of a `Content-Usage` rule, `/` where it has none, and its preferences."""
    if value.startswith("/"):
        path, _, stated = value.replace("\t", " ").partition(" ")
        return path, usages(stated)
    return "/", usages(value)


def _printable(text: str) -> str:
    line = "".join(each if each.isprintable() else " " for each in text)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
