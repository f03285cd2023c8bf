"""Addresses in many spellings, and the lists that some of them are on."""

from pathlib import Path

from tests.golden.made.drawn import drawn_addresses
from tests.golden.made.words import snippets

_PATHS = snippets("address_paths")
_HOSTS = snippets("address_hosts")


def variants() -> list[str | None]:
    found: list[str | None] = [f"http://mill.example{path}" for path in _PATHS]
    found += [f"https://shop.example{path}" for path in _PATHS[::3]]
    found += [host + path for host in _HOSTS for path in ("", "/a", "/b/c?x=1")]
    found += [
        *snippets("addresses"),
        None,
        "",
        " http://mill.example/a ",
        "http://mill.example/\ta",
        "http://" + "a" * 64 + ".example",
    ]
    found += [
        f"http://soft.example/{path}"
        for path in ("free", "free-poker", "free/poker/dating", "FREE_poker", "freepoker", "fr%65e/poker")
    ]
    found += [
        f"https://gone.example/{path}"
        for path in ("dir/", "dir/a", "dir/a/b", "dirs", "dir", "page", "page/", "page?x=1", "page/x")
    ]
    return [*found, *drawn_addresses()]


def write_lists(folder: Path) -> None:
    """Blocklists in UT1's layout, files of hosts, takedown lists and word lists, with comments and odd lines."""
    lists = {
        "black/adult/domains": "bad.example\n# a comment\n\nBAD2.example\nmünchen.example\n127.0.0.1\n",
        "black/adult/urls": "shop.example/a\nhttp://shop.example/adult\nmill.example/casino\n",
        "black/adult/expressions": "(porn|xxx)\n",
        "black/gambling/domains": "co.uk\ngithub.io\nsoft.example\n",
        "hosts.txt": "www.mill.example\n mill.example/index.html \nnot a host\n日本.example\n",
        "takedown.txt": "https://gone.example/dir/*\nhttps://gone.example/page\n# no\na.gone.example\n\nhttp://mill.example/a?b=1\n",
        "strict.txt": "xxx\nsex-toys\npoker\n",
        "hard.txt": "porn\ncasino\nsex toys\n",
        "soft.txt": "free\npoker\ndating\n# free\n",
        "bad_en.txt": "mill\nstone wheel\nriver-bank\n# mill\nGrain\n性\nistanbul\nstraße\nσίσυφος\nİzmir\n",
        "bad_de.txt": "mühle\nkorn der\n",
        "bad_ja.txt": "水車\n性\n川\n",
        "stop_de.txt": "die\nund\nam\nder\n",
    }
    for name, text in lists.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
