"""The hosts that tables of sites' files name."""

import json

import pytest

from gristmill.storage import parquet
from gristmill.tasks.rights.sites import host_named, host_of_url, write_sites


@pytest.mark.parametrize("host", ["bücher.example", "xn--bcher-kva.example", "BÜCHER.example", "bu\u0308cher.example."])
@pytest.mark.parametrize("rest", ["", ":443", ":80", "/", "/robots.txt", ":443/robots.txt"])
@pytest.mark.parametrize("scheme", ["", "//"])
def test_a_host_is_that_of_its_pages(scheme, host, rest):
    assert host_named(f"{scheme}{host}{rest}") == host_of_url("https://bücher.example/page") == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    "name, page",
    [
        ("a.example:8443", "https://a.example:8443/x"),
        ("a.example:8443/robots.txt", "http://a.example:8443/x"),
        ("http://a.example:443/robots.txt", "http://a.example:443/x"),
        ("https://a.example:443/robots.txt", "https://a.example/x"),
        ("[::1]:80/robots.txt", "http://[::1]/x"),
    ],
)
def test_a_port_is_a_part_of_the_host_unless_it_is_the_usual_one(name, page):
    assert host_named(name) == host_of_url(page) != ""


def test_rows_without_a_host_are_reported(tmp_path, caplog):
    rows = [{"host": host, "text": "User-agent: *\nDisallow: /\n"} for host in ("a.example/robots.txt", "no host", "")]
    path = tmp_path / "robots.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = write_sites(str(tmp_path), 0, [("robots", str(path), "robots.jsonl")])
    assert found == {"hosts": {"robots": 1}, "unread": {"no_host": 2}}
    assert parquet.read_table(str(tmp_path / "part-00000.parquet"))["host"].to_pylist() == ["a.example"]
    assert "robots.jsonl: rows whose `host` is not a host are left out: 2, such as 'no host'" in caplog.text
