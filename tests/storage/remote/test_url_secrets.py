"""Secrets of addresses stand in the environment, and reach the server that they are for alone."""

import base64
import gzip

import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.storage import fingerprint
from gristmill.storage.files import read_bytes
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.addresses import SecretError, check_no_secrets, with_secrets, without_user
from gristmill.tasks.reading.sources import Archives
from tests.crawl_server import Fault

PASSWORD = "p@ss/w:rd?#%"


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("GRISTMILL_SECRET_USER", "miller")
    monkeypatch.setenv("GRISTMILL_SECRET_PASSWORD", PASSWORD)
    monkeypatch.setenv("GRISTMILL_SECRET_TOKEN", "sig=a%2Fb&se=2030")


@pytest.mark.parametrize(
    "address,opened",
    [
        ("https://{secret:user}:{secret:password}@h/a", "https://miller:p%40ss%2Fw%3Ard%3F%23%25@h/a"),
        ("https://h/a?{secret:token}", "https://h/a?sig=a%2Fb&se=2030"),
        ("https://h/a?t={secret:user}&u={secret:user}", "https://h/a?t=miller&u=miller"),
        ("zip://a::https://{secret:user}@h/a", "zip://a::https://miller@h/a"),
        ("https://h/{secret:user}", "https://h/{secret:user}"),
        ("/a/{secret:user}?", "/a/{secret:user}?"),
    ],
)
def test_names_stand_for_values_as_user_password_and_in_the_query(address, opened):
    check_no_secrets({"sources": [{"warc": [address]}]})
    assert with_secrets(address) == opened
    assert "{" not in redact_url(address) or "/{" in address


@pytest.mark.parametrize(
    "address",
    [
        *("https://miller:pw@h/a", "https://token@h/a", "https://{secret:user}:pw@h/a", "sftp://miller:pw@h/a"),
        *("https://h/a?sig=pw", "HTTPS://h/a?sig={secret:token}&x=pw", "simplecache::https://miller:pw@h/a"),
        "zip://a.warc::https://miller:pw@h/a.zip",
    ],
)
def test_a_recipe_with_a_secret_is_refused_by_a_sentence_without_it(address):
    recipe = load("demo").model_dump() | {"sources": [{"name": "web", "warc": ["a.warc", address]}]}
    with pytest.raises(SecretError, match=r"^sources\[0\].warc\[1\]: .*GRISTMILL_SECRET_NAME") as found:
        load(recipe)
    assert "pw" not in str(found.value) and "token@" not in str(found.value)


def test_a_missing_variable_is_named():
    with pytest.raises(SecretError, match="^https://h/a needs the environment variable GRISTMILL_SECRET_NONE,"):
        with_secrets("https://{secret:none}@h/a")


def test_the_server_gets_the_secret_and_the_key_does_not(crawl_server, monkeypatch, tmp_path):
    crawl_server.authorization = "Basic " + base64.b64encode(f"miller:{PASSWORD}".encode()).decode()
    (crawl_server.folder / "a.warc").write_bytes(b"content")
    address = crawl_server.url.replace("//", "//{secret:user}:{secret:password}@") + "/a.warc"
    assert read_bytes(address) == b"content"
    before = fingerprint.fingerprint(address, str(tmp_path))
    crawl_server.authorization = "Basic " + base64.b64encode(b"miller:new").decode()
    monkeypatch.setenv("GRISTMILL_SECRET_PASSWORD", "new")
    assert fingerprint.fingerprint(address, str(tmp_path)) == before and "miller" not in before


def test_globs_and_lists_behind_a_password_keep_its_name(crawl_server):
    place = crawl_server.url.replace("//", "//{secret:user}:{secret:password}@")
    crawl_server.authorization = "Basic " + base64.b64encode(f"miller:{PASSWORD}".encode()).decode()
    (crawl_server.folder / "crawl").mkdir()
    (crawl_server.folder / "crawl" / "a.warc").write_bytes(b"")
    (crawl_server.folder / "crawl" / "b.paths.gz").write_bytes(gzip.compress(b"a.warc\n"))
    index = b'<a href="a.warc">a</a> <a href="b.paths.gz">b</a>'
    crawl_server.plan = lambda path, start, nth: Fault("status", 200, (), index) if path == "crawl/" else None
    for pattern in ("crawl/*.warc", "crawl/b.paths.gz"):
        (shard,) = Archives(name="web", warc=(f"{place}/{pattern}",)).shards()
        assert (shard.path, shard.name) == (f"{place}/crawl/a.warc", "a.warc")


@pytest.mark.parametrize("line", ["x.warc?{secret:token}", "https://{secret:user}@elsewhere.example/x.warc"])
def test_a_list_cannot_ask_for_secrets(crawl_server, line):
    (crawl_server.folder / "a.paths").write_text(line)
    with pytest.raises(SecretError, match="a.paths has an address"):
        Archives(name="web", warc=(f"{crawl_server.url}/a.paths",)).shards()


def test_user_and_password_come_apart_from_an_address():
    assert without_user("http://m%40:p%2Fw@h:5000/a?b") == ("http://h:5000/a?b", "m@", "p/w")
    assert without_user("http://h:5000/a") == ("http://h:5000/a", "", "")
