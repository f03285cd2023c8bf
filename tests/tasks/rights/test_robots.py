"""Verdicts of robots.txt against protego's, the line that decides, and rules of Content-Usage."""

import random

import pytest
from protego import Protego

from gristmill.tasks.rights.robots import MAX_BYTES, Robots, matches, text_of
from gristmill.tasks.rights.step import GROUPS, expanded

AGENTS = ("GPTBot", "CCBot", "Google-Extended", "ExampleBot")
PATHS = (
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b/c.html",
    "/x*y",
    "/*.php",
    "/*.php$",
    "/a*b",
    "/q?x=1",
    "/%7Ejoe",
    "/~joe",
    "/$",
)
URLS = (
    "/",
    "/a",
    "/a/b/c.html",
    "/a/xb.php",
    "/index.php?x=1",
    "/%7ejoe/",
    "/~joe",
    "/caf\u00e9",
    "/x/y",
    "/robots.txt",
)


def drawn(draw: random.Random) -> str:
    """A robots.txt of some groups, with the freedom that the format has."""
    lines = []
    for _ in range(draw.randint(1, 4)):
        for agent in draw.sample([*AGENTS, "*", "Google", "gptbot", "otherbot"], draw.randint(1, 3)):
            lines.append(f"{draw.choice(['User-agent', 'user-AGENT', 'User agent'])}: {agent}")
        for _ in range(draw.randint(1, 5)):
            lines.append(
                f"{draw.choice(['Disallow', 'Allow', 'disallow'])}:{draw.choice([' ', ''])}{draw.choice(PATHS)}"
            )
        lines += draw.choice([[], [""], ["# a note"], ["Sitemap: https://a.example/map.xml"], ["Disallow:"]])
    return draw.choice(["\n", "\r\n", "\r"]).join(lines)


def compare(files: int, seed: int) -> int:
    draw, compared = random.Random(seed), 0
    for _ in range(files):
        text = drawn(draw)
        urls = [f"https://a.example{path}" for path in draw.sample(URLS, 5)]
        ours, theirs = Robots(text, draw.choice([urls, ()])), Protego.parse(text)
        for agent in AGENTS:
            for url in urls:
                block = ours.block(url, [agent])
                assert (block is None) == theirs.can_fetch(url, agent), (text, agent, url)
                if block is not None:
                    number = int(block.line.removeprefix("line ").partition(":")[0])
                    line = text.splitlines()[number - 1]
                    assert line.lower().startswith("disallow") and line in block.line, (text, agent, url)
                compared += 1
    return compared


def test_verdicts_are_those_of_protego():
    assert compare(files=50, seed=1) == 1000


@pytest.mark.extended
def test_ten_thousand_verdicts_are_those_of_protego():
    assert compare(files=500, seed=2) == 10_000


@pytest.mark.parametrize(
    ("text", "url", "expected"),
    [
        ("User-agent: *\nDisallow: /a\u2028Disallow: /b\n", "/b", None),  # no line end in RFC 9309
        ("\ufeffUser-agent: *\nDisallow: /b\n", "/b", "line 2: Disallow: /b"),
        ("User-agent: GPTBot\nCrawl-delay: 5\nUser-agent: *\nDisallow: /\n", "/b", "line 4: Disallow: /"),
        ("User-agent: *\nDisallow: / # all\n", "/b", "line 2: Disallow: /"),
        ("User-agent: *\nDisallow:\n", "/b", None),
        ("Disallow: /\nUser-agent: other\nDisallow: /\n", "/b", None),
        ("<!DOCTYPE html><html><body>Disallow: /</body></html>", "/b", None),
        ("User-agent: *\nDisallow: /a\nDisallow: /a/b\nAllow: /a/b/c", "/a/b/d", "line 3: Disallow: /a/b"),
        ("", "/b", None),
    ],
)
def test_corner_cases(text, url, expected):
    block = Robots(text_of(text.encode())).block(f"https://a.example{url}", ["GPTBot"])
    assert (None if block is None else block.line) == expected


def test_what_follows_500_kib_is_not_read():
    filler = "User-agent: *\n" + "# a note\n" * (MAX_BYTES // 9)
    assert Robots(text_of(f"{filler}Disallow: /\n".encode())).block("https://a.example/", ["GPTBot"]) is None
    assert Robots(text_of(f"{filler[9000:]}User-agent: *\nDisallow: /\n".encode())).block(
        "https://a.example/", ["GPTBot"]
    )


def test_agents_of_one_group_are_named_together():
    robots = Robots("User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /a\nUser-agent: *\nDisallow: /b\n")
    block = robots.block("https://a.example/a", ["CCBot", "GPTBot", "ClaudeBot"])
    assert block is not None and block.agents == ("CCBot", "GPTBot")
    block = robots.block("https://a.example/b", ["CCBot", "GPTBot", "ClaudeBot"])
    assert block is not None and block.agents == ("*",)


def test_groups_of_agents():
    assert expanded(["MyBot", "training", "GPTBot"]) == ("MyBot", *GROUPS["training"])
    assert len({each for group in GROUPS.values() for each in group}) == sum(map(len, GROUPS.values()))


USAGE = """User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: train-ai=y
"""


@pytest.mark.parametrize(
    ("text", "agent", "path", "expected"),
    [
        (USAGE, "GPTBot", "/test", "n"),
        (USAGE, "GPTBot", "/never/test", None),
        (USAGE, "GPTBot", "/ai-ok/test", "y"),
        (USAGE, "ExampleBot", "/test", "y"),
        # preferences for one path that disagree: the one that disallows
        ("User-agent: *\nContent-Usage: /a train-ai=y\nContent-Usage: /a train-ai=n\n", "GPTBot", "/a", "n"),
        ("User-agent: *\nContent-Usage: /a train-ai=n\n", "GPTBot", "/b", None),
        ("User-agent: *\nContent-Usage: search=n\n", "GPTBot", "/b", None),
        ("User-agent: *\nContent-Usage: train-ai=N\n", "GPTBot", "/b", None),
        ("User-agent: other\nContent-Usage: train-ai=n\n", "GPTBot", "/b", None),
        ("Content-Usage: train-ai=n\n", "GPTBot", "/b", None),
        ("User-agent: *\nDisallow: /x\nUser-agent: GPTBot\n", "GPTBot", "/b", None),
    ],
)
def test_usage_rules(text, agent, path, expected):
    usage = Robots(text).usage(f"https://a.example{path}", [agent], "train-ai")
    assert (None if usage is None else usage[0]) == expected


def test_patterns_of_paths():
    assert matches("https://a.example/a/x/b.jpg", "/a/*.jpg")
    assert not matches("https://a.example/a/x/b.jpg?x", "/a/*.jpg$")
    assert not matches("https://a.example/a", "")


HOSTILE = {
    "wildcards": ("User-agent: *\n" + "".join(f"Disallow: /*a*b*c{i}*d$\n" for i in range(20_000)), "rules with wild"),
    "agents": ("".join(f"User-agent: bot{i}\n" for i in range(20_000)) + "Disallow: /\n", ""),
    "pairs": ("User-agent: a\n" * 15_000 + "Disallow: /b\n" * 20_000, "pairs of agents"),
    "stars": ("User-agent: *\nDisallow: /" + "*b" * 200_000, ""),
    "controls": ("\x00\x01\x02" * 100_000, ""),
    "agent": ("User-agent: " + "x" * 400_000, ""),
    "usage": ("User-agent: *\nContent-Usage: " + "(" * 100_000, ""),
    "colons": (":" * 500_000, ""),
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_have_a_verdict(text, reason):
    robots = Robots(text_of(text.encode()))
    url = "https://a.example/" + "a" * 2000
    block = robots.block(url, ["GPTBot", "CCBot"])
    assert reason in block.line if block else not reason
    assert robots.usage(url, ["GPTBot"], "train-ai") is None
