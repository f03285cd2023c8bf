"""Canonical URLs by the standards' own examples, and lists against naive loops."""

import io
import logging
import re
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.storage import files
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import schema
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.url import lists
from gristmill.tasks.url.canonical import TRACKING, Canonical, canonicalizer, registered_domain, with_scheme
from gristmill.tasks.url.lists import ListError, list_files
from gristmill.tasks.url.matching import Words, squeezed, words_of
from gristmill.tasks.url.step import Url, load
from gristmill.tasks.url.step import lists as lists_of
from tests.crawl_server import Fault

canonical = canonicalizer(Canonical())


def measure(step: Url, urls: list[str | None]) -> dict[str, list]:
    columns = work_of(step).measure(
        step, pa.table({"id": list(map(str, range(len(urls)))), "url": pa.array(urls, pa.string())})
    )
    assert {name: column.type for name, column in columns.items()} == {f.name: f.type for f in schema(Url)}
    return {name: column.to_pylist() for name, column in columns.items()}


def write(path, *lines: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "url",
    [
        *("example.com/", "example.com/a/b?c=d#e", "EXAMPLE.com:8080/a", "a-b.example.co.uk/x", "my_host.example.org/"),
        *("münchen.de/Straße", "日本.example/a", "xn--mnchen-3ya.xn--p1ai/a", "www.example.com", "www.example.com?x=1"),
        "example.com/go?to=http://other.example/",
    ],
)
def test_a_url_that_begins_with_a_host_gets_a_scheme(url):
    assert with_scheme(url) == f"http://{url}" == with_scheme(f"  {url}\n") == with_scheme(with_scheme(url))
    assert with_scheme(f"//{url}") == f"http://{url}"
    assert canonical(with_scheme(url)) == canonical(f"http://{url}") != ""


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "README.md", "a/b.html", "docs/example.com/", "/a", "./a.b/", "..a/b/", "a..b/c/"),
        *("v1.2/notes", "10.1000/182", "1.2.3.4/a", "localhost/a", "www.example", "-a.com/", "a-.com/", "a.c/"),
        *("mailto:a@example.com", "mailto:a@example.com/", "dns:example.com", "user:pw@example.com/", "a@example.com/"),
        *("http://example.com", "HTTPS://example.com/a", "ftp://a.example/", "file:///a.b/c", "urn:a.example/b"),
        *("C:\\a.b\\c", "a b.com/c", "example.com:/", "example.com:123456/", "example.com:80", "//a", "///a.example/"),
    ],
)
def test_no_other_text_gets_a_scheme(url):
    assert with_scheme(url) == url


@given(st.text(alphabet="aw.-_/:?#@1é ", max_size=20))
def test_a_scheme_is_given_once_and_to_what_has_a_host(url):
    found = with_scheme(url)
    assert with_scheme(found) == found
    assert found == url or urlsplit(found).hostname


# RFC 3986, sections 6.2.2 and 6.2.3: the forms in each line are equivalent; the last is the canonical one.
EQUIVALENT = [
    ("HTTP://www.EXAMPLE.com/", "http://www.example.com/"),
    ("http://example.com", "http://example.com:/", "http://example.com:80/", "http://example.com/"),
    ("https://example.com:0443", "https://example.com/"),
    ("HTTP://a/./b/../b/%63/%7bfoo%7d", "http://a/b/c/%7Bfoo%7D"),
    ("http://example.com/%7Esmith/", "http://example.com/%7esmith/", "http://example.com/~smith/"),
    # section 5.4, reference resolution: dot segments
    ("http://a/b/c/./../g", "http://a/b/g"),
    ("http://a/b/c/..", "http://a/b/"),
    ("http://a/b/c/.", "http://a/b/c/"),
    ("http://a/../../g", "http://a/g"),
    ("http://a/b/g;x=1/./y", "http://a/b/g;x=1/y"),
    ("http://a/b/g;x=1/../y", "http://a/b/y"),
    ("http://a/b/...g/..g/g..", "http://a/b/...g/..g/g.."),
    ("http://a/b%2f%2E%2e%2fc/%2E%2e/d", "http://a/d"),
    # WHATWG URL: examples of sections 1.1, 3.1, 3.5, 4.4 and 5
    ("https:example.org", "https://///example.org", "https://example.org/"),
    (" \x00http://ex\tam\nple.org/ \x1f", "http://example.org/"),
    ("https:\\\\EXAMPLE.com\\.\\a", "https://example.com/a"),
    ("https://user:p@ss:word@example.org:443/", "https://example.org/"),
    ("http://EX%41MPLE.com./%41", "http://example.com/A"),
    ("http://0x7F.1/", "http://127.1", "http://2130706433", "http://0177.0.0.0x1.", "http://127.0.0.1/"),
    ("http://[1:0::]", "http://[1:0:0:0:0:0:0:0]:80/", "http://[1::]/"),
    ("http://[::FFFF:c000:280]", "http://[::ffff:192.0.2.128]/"),
    ("https://faß.ExAmPlE/", "https://fa%C3%9F.example", "https://xn--fa-hia.example/"),
    ("https://EXAMPLE。com", "https://ｅｘａｍｐｌｅ.com", "https://example.com/"),
    ("http://☃.net/☃?☃", "http://xn--n3h.net/%E2%98%83?%E2%98%83"),
    ("http://example.org/a b\"<>`{}|^[]'%%3g%", "http://example.org/a%20b%22%3C%3E%60%7B%7D%7C%5E%5B%5D'%25%253g%25"),
    ("http://example.org/it's?it's=\"'\"#it's", "http://example.org/it's?it%27s=%22%27%22"),
    # fragments, empty queries, tracking, sessions, order
    ("http://e.org/a#b?c", "http://e.org/a?#", "http://e.org/a?&", "http://e.org/a"),
    ("http://e.org/?b=2&a=1&b=1", "http://e.org/?a=1&b=2&b=1"),
    ("http://e.org/?UTM_Source=x&id=3&%67clid=1&fbclid&mc_eid=1", "http://e.org/?id=3"),
    ("http://e.org/a;jsessionid=0A1.w/b?PHPSESSID=9&sid=" + "0a" * 16, "http://e.org/a/b"),
    ("http://e.org/?ASPSESSIONIDQQ=x&cfid=1&CFTOKEN=2&sid=7", "http://e.org/?sid=7"),
    ("http://e.org/?a=%20+%2B%c3%bc;x/?:@", "http://e.org/?a=%20+%2B%C3%BC;x/?:@"),
    ("ftp://ftp.example.org:21/x", "ftp://ftp.example.org/x"),
    ("http://my_host.example.org:8080", "http://my_host.example.org:8080/"),
]


@pytest.mark.parametrize("forms", EQUIVALENT, ids=lambda forms: forms[-1])
def test_equivalent_urls_have_one_form(forms):
    assert [canonical(form) for form in forms] == [forms[-1]] * len(forms)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            " ",
            "example.org",
            "/a",
            "mailto:a@example.org",
            "dns:example.org",
            "urn:uuid:1",
            "data:,a",
            "http:",
            "http://",
        ),
        *(
            "https://exa mple.org",
            "http://a..b/",
            "http://.a/",
            "http://a:b@",
            "http://a:65536/",
            "http://a:x",
            "http://a:-1",
        ),
        *(
            "http://[::1",
            "http://[::1%25eth0]/",
            "http://[g]/",
            "http://1.2.3.4.5",
            "http://256.256.256.256",
            "http://09.1",
        ),
        *(
            "http://a.0x",
            "http://a<b",
            "http://ex%00ample.org",
            "http://%ff.org",
            "http://\u00ad/",
            "http://a\ufffd.org",
        ),
        *(
            "http://" + "a." * 200 + "org",
            "http://" + "ü" * 100_000,
            "http://a:" + "9" * 10_000,
            "http://%2f/",
            "http://a%3Ab/",
        ),
    ],
)
def test_what_has_no_canonical_form(url):
    assert canonical(url) == ""


urls = st.one_of(
    st.text(max_size=60),
    st.text("htps:/?#[]@!$&'()*+,;=%.-_~aZ09 \t\\|<é。ß☃\u200d", max_size=60).map("http://".__add__),
    st.text("htps:/?#&=%.;2eE5fF03aA\\jsessionid", max_size=60).map("https://www.Example.org/".__add__),
    st.text("ab.:0x17f[]@%é", max_size=30).map("http://".__add__),
)


@pytest.mark.parametrize("options", [{}, {"fold_scheme": True, "fold_www": True}, {"tracking": ("a*", "B")}], ids=str)
@settings(max_examples=300, deadline=None)
@given(url=urls)
@example(url="http://e.org/;jsess;jsessionid=1ionid=2")
@example(url="http://www.www.example.org:443/%25%34%31")
@example(url="http://e.org/a/..;jsessionid=1")
def test_a_canonical_url_stays_and_parses(options, url):
    form = canonicalizer(Canonical(**options))
    once = form(url)
    assert form(once) == once
    if once:
        assert once.isascii() and " " not in once and "#" not in once
        parts = urlsplit(once)
        assert parts.hostname and parts.path.startswith("/") and not parts.username
        assert not {".", ".."} & set(parts.path.split("/"))


def test_options_of_the_canonical_form():
    both = canonicalizer(Canonical(fold_scheme=True, fold_www=True))
    assert both("http://www.example.org:80/a") == both("https://example.org/a") == "https://example.org/a"
    assert both("http://www.com/") == "https://www.com/"
    assert both("http://www.co.uk/") == "https://www.co.uk/"
    assert both("http://example.org:8080/") == "https://example.org:8080/"
    own = canonicalizer(Canonical(tracking=("Ref", "x_*")))
    assert own("http://e.org/?ref=1&x_=2&X_a=3&utm_source=4&reff=5") == "http://e.org/?reff=5&utm_source=4"
    assert len(set(TRACKING)) == len(TRACKING)


# from the test data of the public suffix list (publicsuffix.org, test_psl.txt), and hosts that are no domain
@pytest.mark.parametrize(
    ("host", "icann", "private"),
    [
        ("www.example.com", "example.com", "example.com"),
        ("b.c.example.co.uk", "example.co.uk", "example.co.uk"),
        ("co.uk", "", ""),
        ("me.foo.github.io", "github.io", "foo.github.io"),
        ("github.io", "github.io", ""),
        ("www.city.kobe.jp", "city.kobe.jp", "city.kobe.jp"),
        ("a.b.c.kobe.jp", "b.c.kobe.jp", "b.c.kobe.jp"),
        ("www.ck", "www.ck", "www.ck"),
        ("a.b.test.ck", "b.test.ck", "b.test.ck"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("www.xn--85x722f.xn--fiqs8s", "xn--85x722f.xn--fiqs8s", "xn--85x722f.xn--fiqs8s"),
        ("a.b.nosuchtld", "b.nosuchtld", "b.nosuchtld"),
        *((host, "", "") for host in ("localhost", "com", "192.168.0.1", "[::1]", "")),
    ],
)
def test_registered_domain(host, icann, private):
    assert (registered_domain(host, False), registered_domain(host, True)) == (icann, private)


def test_documents_without_a_url_have_empty_signals_and_stay():
    step = Url()
    given_urls = [None, "", "no url", "http://Sub.Example.co.uk:8080", "http://[::1]:8080/a"]
    signals = measure(step, given_urls)
    assert signals["url_canonical"] == ["", "", "", "http://sub.example.co.uk:8080/", "http://[::1]:8080/a"]
    assert signals["host"] == ["", "", "", "sub.example.co.uk", "[::1]"]
    assert signals["registered_domain"] == ["", "", "", "example.co.uk", ""]
    table = pa.table({"id": list("abcde"), **signals})
    ((_, dropped),) = decide(table, [("url", step.decisions())])
    assert len(dropped) == 0
    assert measure(step, [])["host"] == []


@pytest.fixture
def ut1(tmp_path) -> str:
    """A small tree as UT1's: two categories, comments, line ends and junk as lists in the wild have them."""
    folder = tmp_path / "ut1"
    write(
        folder / "adult" / "domains",
        "# comment",
        "bad.example",
        "",
        "WWW.Upper.example\r",
        ".dotted.example",
        "10.0.0.7",
    )
    write(
        folder / "adult" / "urls",
        "site.example/bad/",
        "www.site.example/~worse",
        "site.example/s?q=1",
        "whole.example/",
    )
    write(folder / "adult" / "expressions", r"(^|[-\?+=/_])(bondage|xxx+)([-\?+=/_]|$)", r"\<rude\>", r"(a)\1")
    write(folder / "games" / "domains", "play.example", "sub.bad.example", "münchen.example", "two words")
    write(folder / "games" / "usage", "black")
    return str(folder)


UT1_CASES = {
    "http://bad.example/": "adult/domains: bad.example",
    "https://deep.er.BAD.example:8443/x": "adult/domains: bad.example",
    "http://sub.bad.example/": "games/domains: sub.bad.example",
    "http://notbad.example/": "",
    "http://upper.example/": "",
    "http://a.www.upper.example/": "adult/domains: www.upper.example",
    "http://dotted.example/": "adult/domains: dotted.example",
    "http://10.0.0.7/": "adult/domains: 10.0.0.7",
    "http://1.10.0.0.7/": "",
    "http://110.0.0.7/": "",
    "http://xn--mnchen-3ya.example/": "games/domains: xn--mnchen-3ya.example",
    "http://www.site.example/bad": "adult/urls: site.example/bad",
    "http://site.example/BAD/below?x=1": "adult/urls: site.example/bad",
    "http://site.example/badly": "",
    "http://other.site.example/bad": "",
    "http://www2.site.example/%7Eworse/": "adult/urls: site.example/~worse",
    "http://site.example/s?q=1": "adult/urls: site.example/s?q=1",
    "http://site.example/s?q=1&z=2": "adult/urls: site.example/s?q=1",
    "http://site.example/s?q=12": "",
    "http://whole.example/any": "adult/urls: whole.example",
    "http://fine.example/a_XXXX?y": r"adult/expressions: (^|[-\?+=/_])(bondage|xxx+)([-\?+=/_]|$)",
    "http://fine.example/rude.html": r"adult/expressions: \<rude\>",
    "http://fine.example/crude": "",
}


def test_the_ut1_layout(ut1, caplog):
    with caplog.at_level(logging.WARNING):
        found = measure(Url(blocklists=(ut1,)), [*UT1_CASES, None])["url_blocklist"]
    assert dict(zip(UT1_CASES, found, strict=False)) == UT1_CASES
    assert found[-1] == ""
    assert "two words" in caplog.text and r"(a)\\1" in caplog.text


def test_archives_folders_and_single_files_say_the_same(ut1, tmp_path):
    archive = str(tmp_path / "blacklists.tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(ut1, "blacklists")
        link = tarfile.TarInfo("blacklists/ads/domains")
        link.type, link.linkname = tarfile.SYMTYPE, "../adult/domains"
        tar.addfile(link)
    each = tuple(f"{ut1}/{name}" for name in ("adult/domains", "adult/urls", "adult/expressions", "games/domains"))
    for addresses in [(archive,), each, (f"{ut1}/adult", f"file://{ut1}/games/")]:
        assert measure(Url(blocklists=addresses), list(UT1_CASES))["url_blocklist"] == list(UT1_CASES.values()), (
            addresses
        )
    assert lists_of(Url(blocklists=(ut1,))) == list(each)
    for address in (ut1, archive):
        only = measure(Url(blocklists=(address,), categories=("games",)), list(UT1_CASES))["url_blocklist"]
        assert {hit.partition("/")[0] for hit in only} == {"games", ""}
        with pytest.raises(ListError, match="adlut"):
            measure(Url(blocklists=(address,), categories=("games", "adlut")), [])


@pytest.mark.parametrize("size", [1, 7, 64])
def test_lines_that_are_read_in_pieces(ut1, monkeypatch, size):
    monkeypatch.setattr(lists, "_PIECE", size)
    load.cache_clear()
    assert measure(Url(blocklists=(ut1,)), list(UT1_CASES))["url_blocklist"] == list(UT1_CASES.values())


def test_a_remote_list(ut1):
    files.copy(f"{ut1}/adult/domains", "memory://lists/adult/domains")
    step = Url(blocklists=("memory://lists",))
    assert lists_of(step) == ["memory://lists/adult/domains"]
    assert measure(step, ["http://bad.example/"])["url_blocklist"] == ["adult/domains: bad.example"]


def test_a_list_that_is_none_says_so(tmp_path):
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "cut.tar.gz"
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("adult/domains"))
    broken.write_bytes(data.getvalue()[:30])
    html = write(tmp_path / "domains", "<html><body>404 not found</body></html>")
    for address in (str(tmp_path / "absent"), str(tmp_path / "empty"), str(broken), html):
        with pytest.raises(ListError, match="absent|empty|cut.tar.gz|404"):
            measure(Url(blocklists=(address,)), [])


def test_takedowns(tmp_path):
    listed = write(
        tmp_path / "takedown.txt",
        "# asked for on a day",
        "gone.example",
        "https://root.example",
        "http://page.example/Article?id=7&utm_source=mail",
        "https://folder.example/private/*",
        "every.example/*",
    )
    cases = {
        "http://a.gone.example/x": "gone.example",
        "http://root.example/x": "root.example",
        "https://www.page.example/article?id=7#top": "page.example/article?id=7",
        "http://page.example/Article": "",
        "http://page.example/Article?id=7&x=1": "",
        "http://page.example/Article/?id=7": "",
        "https://folder.example/private/": "folder.example/private",
        "https://folder.example/private/a/b?c": "folder.example/private",
        "https://folder.example/privateer": "",
        "https://every.example/": "every.example",
    }
    step = Url(takedowns=(listed,))
    found = measure(step, list(cases))
    assert found["url_takedown"] == [hit and f"takedown.txt: {hit}" for hit in cases.values()]
    table = pa.table({"id": list(cases), **found})
    ((_, dropped),) = decide(table, [("url", step.decisions())])
    assert {(row["id"], row["rule"], row["detail"]) for row in dropped.to_pylist()} == {
        (url, "takedown", f"takedown.txt: {hit}") for url, hit in cases.items() if hit
    }
    for line in ("not a host", "http://page.example/a*", "host:x/a"):
        with pytest.raises(ListError, match="takedown list"):
            measure(Url(takedowns=(write(tmp_path / f"{len(line)}.txt", "fine.example", line),)), [])


PAGES = {  # spellings of one page, and others
    "https://bücher.example/a": True,
    "http://xn--bcher-kva.example/a/": True,
    "https://XN--BCHER-KVA.example:443/a#part": True,
    "http://B%C3%BCcher.example:80/a": True,
    "https://www.bu\u0308cher.example./A": True,
    "ftp://bücher.example/a": True,
    "https://bücher.example:8443/a": False,
    "https://bücher.example:80/a": False,
    "https://bücher.example/b": False,
    "https://bucher.example/a": False,
}


@pytest.mark.parametrize("scheme", ["", "//", "http://", "https://"])
@pytest.mark.parametrize("host", ["bücher.example", "xn--bcher-kva.example", "BÜCHER.example", "bu\u0308cher.example"])
def test_a_page_is_the_same_in_all_spellings(scheme, host, tmp_path):
    listed = write(tmp_path / "takedown.txt", f"{scheme}{host}/a")
    found = measure(Url(takedowns=(listed,)), list(PAGES))["url_takedown"]
    assert [bool(each) for each in found] == list(PAGES.values())
    if scheme != "//":
        whole = write(tmp_path / "hosts.txt", f"{scheme}{host}")
        for key in ("takedowns", "blocklists"):
            found = measure(Url(**{key: (whole,)}), list(PAGES))[f"url_{key[:-1]}"]
            assert [bool(each) for each in found] == ["bucher.example" not in page for page in PAGES]


def test_a_port_names_other_pages_unless_it_is_the_default(tmp_path):
    listed = write(tmp_path / "takedown.txt", "https://a.example:443/x", "http://b.example:80/x", "c.example:8080/x")
    pages = {
        "https://a.example/x": "a.example/x",
        "http://a.example/x": "a.example/x",
        "https://a.example:8443/x": "",
        "http://b.example/x": "b.example/x",
        "http://c.example:8080/x": "c.example:8080/x",
        "https://c.example:8080/x": "c.example:8080/x",
        "https://c.example/x": "",
    }
    found = measure(Url(takedowns=(listed,)), list(pages))["url_takedown"]
    assert found == [hit and f"takedown.txt: {hit}" for hit in pages.values()]


@pytest.mark.parametrize("line", ["bücher.example:443/a", "//bücher.example:443/a"])
def test_the_port_of_https_needs_its_scheme(line, tmp_path):
    with pytest.raises(ListError, match="with the port of https; write https://bücher.example/a$") as caught:
        measure(Url(takedowns=(write(tmp_path / "wrong.txt", line),)), [])
    right = write(tmp_path / "right.txt", str(caught.value).rpartition("write ")[2])
    assert measure(Url(takedowns=(right,)), ["http://bücher.example/a"])["url_takedown"] != [""]


labels = st.sampled_from(["a", "b", "ab", "www", "com", "x-y"])
hosts = st.lists(labels, min_size=1, max_size=4).map(".".join)
paths = st.lists(st.sampled_from(["a", "b", "ab", "A", ""]), max_size=4).map(lambda parts: "/" + "/".join(parts))
addresses = st.tuples(hosts, paths, st.sampled_from(["", "?a", "?a=1&b=2", "?b=2"])).map("".join)


def bare(address: str) -> str:
    """As squidGuard compares: lower case, no `www.` before a name of two labels or more, no slash at the end."""
    address = address.lower().rstrip("/")
    host = address.split("/")[0]
    return address[4:] if host.startswith("www.") and host.count(".") >= 2 else address


@pytest.mark.extended
@settings(max_examples=300, deadline=None)
@given(
    domains=st.lists(hosts, min_size=1, max_size=5),
    listed=st.lists(st.tuples(hosts, paths.filter(lambda p: p.strip("/"))).map("".join), max_size=5),
    wanted=st.lists(addresses, min_size=1, max_size=8),
    subdomains=st.booleans(),
)
def test_lists_against_naive_loops(tmp_path_factory, domains, listed, wanted, subdomains):
    folder = tmp_path_factory.mktemp("lists")
    write(folder / "c" / "domains", *domains)
    write(folder / "c" / "urls", *listed)
    pages = write(folder / "pages", *listed, *(f"{domain}/x/*" for domain in domains))
    step = Url(blocklists=(str(folder),), takedowns=(pages,), subdomains=subdomains)
    found = measure(step, [f"http://{address}" for address in wanted])
    for address, blocked, taken in zip(wanted, found["url_blocklist"], found["url_takedown"], strict=True):
        host, seen = address.split("/")[0], bare(address)
        by_host = [d for d in domains if d in (host, bare(host)) or (subdomains and host.endswith("." + d))]
        by_path = [bare(x) for x in listed if seen == bare(x) or seen.startswith((bare(x) + "/", bare(x) + "?"))]
        expected = f"c/domains: {max(by_host, key=len)}" if by_host else ""
        if by_path and not by_host:
            expected = f"c/urls: {min(by_path, key=len)}"
        assert blocked == expected
        assert bool(taken) == (seen in map(bare, listed) or any(seen == bare(d) + "/x" for d in domains))


keys = st.tuples(st.sampled_from(["", ".", "www."]), hosts).map("".join)
lists_of_keys = st.lists(st.lists(keys, max_size=4).map(lambda keys: ["none.example", *keys]), min_size=2, max_size=4)


@settings(max_examples=150, deadline=None)
@given(listed=lists_of_keys, wanted=st.lists(addresses, min_size=1, max_size=8))
def test_of_several_lists_the_longest_host_counts_and_the_first_list_that_has_it(tmp_path_factory, listed, wanted):
    folder = tmp_path_factory.mktemp("lists")
    files = tuple(write(folder / f"{n}.txt", *entries) for n, entries in enumerate(listed))
    step = Url(blocklists=files, takedowns=files)
    found = measure(step, [f"http://{address}" for address in wanted])
    for address, blocked, taken in zip(wanted, found["url_blocklist"], found["url_takedown"], strict=True):
        host = address.split("/")[0]
        above = [".".join(host.split(".")[n:]) for n in range(host.count(".") + 1)]
        first = {n: [entry.removeprefix(".") for entry in entries] for n, entries in enumerate(listed)}
        hits = [(name, n) for name in above for n in sorted(first) if name in first[n]]
        expected = f"{hits[0][1]}.txt: {hits[0][0]}" if hits else ""
        assert (blocked, taken) == (expected, expected)


def test_words_as_in_refinedweb(tmp_path):
    strict = write(tmp_path / "strict", "VileStuff", "g-spot")
    hard = write(tmp_path / "hard", "vile", "very bad", "böse")
    soft = write(tmp_path / "soft", "cam", "Chat", "live")
    step = Url(strict_substrings=(strict,), hard_words=(hard,), soft_words=(soft,))
    cases = {
        "http://my-vile-stuff.example/": ("vilestuff", "vile", 0),
        "http://thevilestuffs.example/": ("vilestuff", "", 0),
        "http://example.org/so/VILE_page": ("", "vile", 0),
        "http://example.org/revile/very-bad-day": ("", "very bad", 0),
        "http://example.org/b%C3%B6se?x": ("", "böse", 0),
        "http://cam.example/cam/cam": ("", "", 1),
        "http://cam.example/live_chat?chat": ("", "", 3),
        "http://camera.example/chats": ("", "", 0),
        "http://a.blogspot.example/": ("", "", 0),
        "not a url: vile": ("", "vile", 0),
    }
    found = measure(step, list(cases))
    names = ("url_strict_substring", "url_hard_word", "url_soft_words")
    assert dict(zip(cases, zip(*(found[name] for name in names), strict=True), strict=True)) == cases
    ((_, dropped),) = decide(pa.table({"id": list(cases), **found}), [("url", step.decisions())])
    rules = {row["id"]: (row["rule"], row["detail"], row["value"], row["threshold"]) for row in dropped.to_pylist()}
    assert rules["http://my-vile-stuff.example/"] == ("strict_substring", "vilestuff", None, None)
    assert rules["not a url: vile"] == ("hard_word", "vile", None, None)
    assert rules["http://cam.example/live_chat?chat"] == ("soft_words", None, 3, 1)
    assert len(rules) == 7
    assert Url(max_soft_words=3).measuring() == Url().measuring()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab.é-_#", min_size=1, max_size=3).filter(lambda entry: entry[0] != "#"), max_size=6),
    st.lists(st.text("abA.-_/é%", max_size=10).map("https://A.example/".__add__), min_size=1, max_size=4),
)
def test_words_as_in_datatrove(tmp_path_factory, entries, urls):
    """datatrove's `URLFilter`: its `normalize`, its `url_words`, its sets of words."""
    listed = write(tmp_path_factory.mktemp("words") / "words", *entries)
    step = Url(strict_substrings=(listed,), hard_words=(listed,), soft_words=(listed,), definition="datatrove")
    found = measure(step, urls)
    words = {re.sub("[^a-zA-Z0-9]+", "", entry).lower() for entry in entries} - {""}
    for i, url in enumerate(urls):
        url_words = set(re.split("[^a-zA-Z0-9]+", url))
        joined = re.sub("[^a-zA-Z0-9]+", "", url).lower()
        assert (found["url_strict_substring"][i] != "") == any(word in joined for word in words)
        assert (found["url_hard_word"][i] != "") == bool(words & url_words)
        assert found["url_soft_words"][i] == len(words & url_words)


@pytest.mark.extended
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab.$\\é ", min_size=1, max_size=3), max_size=6),
    st.lists(st.text("ab.$-/\\É ", max_size=8), max_size=4),
)
def test_words_against_naive_loops(entries, found_texts):
    texts = pa.array(found_texts, pa.large_string())

    def split(text: str) -> list[str]:
        return "".join(c if c.isalnum() else " " for c in text.lower()).split()

    phrases = {tuple(split(e)) for e in entries} - {()}
    expected = [
        sorted({p for p in phrases if any(tuple(w[i : i + len(p)]) == p for i in range(len(w)))})
        for w in map(split, found_texts)
    ]
    prepared = words_of(pa.array(entries, pa.large_string())).to_pylist()
    found = Words(prepared).find(words_of(texts))
    assert [sorted(tuple(entry.split()) for entry in row) for row in found] == expected

    def squeeze(text: str) -> str:
        return "".join(text.lower().replace("-", "").replace(".", "").split())

    parts = {e.lower() for e in entries if e.strip()}
    assert Words(parts).find(squeezed(texts)) == [sorted(p for p in parts if p in squeeze(t)) for t in found_texts]


def test_a_pinned_step_knows_the_content_of_its_lists(ut1):
    step = Url(blocklists=(ut1,), soft_words=(f"{ut1}/games/usage",))
    pinned = step.pinned()
    assert [path for path, _ in pinned.checksums] == lists_of(step)
    assert Url.model_validate_json(pinned.model_dump_json()) == pinned
    assert measure(pinned, list(UT1_CASES)) == measure(step, list(UT1_CASES))
    again = Url(blocklists=(ut1,), soft_words=(f"{ut1}/games/usage",), max_soft_words=9).pinned()
    assert again.measuring() == pinned.measuring()
    write(Path(ut1) / "games" / "domains", "other.example")
    changed = step.pinned()
    assert changed.measuring() != pinned.measuring()
    assert measure(changed, ["http://other.example/"])["url_blocklist"] == ["games/domains: other.example"]
    stale = pinned.model_copy(update={"max_soft_words": 5})
    with pytest.raises(ListError, match="games/domains .*changed"):
        measure(stale, [])


@pytest.mark.extended
@pytest.mark.timeout(60)
def test_hostile_urls_take_linear_time(tmp_path):
    write(tmp_path / "c" / "expressions", "(a+)+$x", "(/|//)*end", "^(.*)*z$")
    write(tmp_path / "c" / "urls", "a.example/b")
    n = 200_000
    step = Url(blocklists=(str(tmp_path),), hard_words=(write(tmp_path / "w", "b"),))
    hostile = [
        *(
            "http://a.example/" + piece * n
            for piece in ("a", "/", "%", "../", ";jsessionid=", "%2e%2e/", "?", "&a", "é")
        ),
        *("http://" + piece * n for piece in ("a.", "@", ":", "[", "é.", "%41", "\\")),
    ]
    found = measure(step, hostile)
    assert all(len(column) == len(hostile) for column in found.values())


def test_a_list_at_a_server_is_asked_for_as_a_file(crawl_server, tmp_path):
    (crawl_server.folder / "domains").write_text("bad.example\n" * 50_000 + '<a href="x/urls">\n')
    (crawl_server.folder / "adult.txt").write_text("bad.example\n")
    address = f"{crawl_server.url}/domains"
    crawl_server.plan = lambda path, start, nth: Fault("status", 503, (("Retry-After", "0"),)) if nth < 1 else None
    assert list_files(address) == [address]
    assert {(r.start, r.end) for r in crawl_server.requests} == {(0, 1)}
    with pytest.raises(ListError, match="nowhere does not exist"):
        list_files(f"{crawl_server.url}/nowhere")
    signed = f"{crawl_server.url}/adult.txt?sig=s3cret"
    Path(crawl_server.folder, "adult.txt?sig=s3cret").write_text("bad.example\n")
    assert measure(Url(blocklists=(signed,)), ["http://bad.example/"])["url_blocklist"] == ["adult.txt: bad.example"]


def test_a_list_of_one_endless_line_is_refused(tmp_path):
    (tmp_path / "domains").write_bytes(b"a" * (3 * lists.MAX_LINE_BYTES // 2))
    with pytest.raises(ListError, match="domains cannot be read: one of its lines has more than"):
        [len(lines) for entries in lists.read_entries(str(tmp_path / "domains")) for lines in entries.lines]
