"""Which documents are of one site."""

import pyarrow as pa
import pytest

from gristmill.storage import parquet
from gristmill.tasks.url.canonical import host_columns, hosts

URLS = {
    "https://www.Example.org:8080/a?b": "example.org",
    "http://example.org./": "example.org",
    "https://user@docs.example.org/": "docs.example.org",
    "https://bücher.example/": "xn--bcher-kva.example",
    "http://[2001:DB8::1]/x": "file",
    "http://[not-an-address/": "file",
    "urn:isbn:123": "file",
    "": "file",
}


@pytest.mark.parametrize("url", URLS)
def test_the_host_of_a_url_or_else_the_file(url):
    table = pa.table({"url": [url, None], "file": ["file", None]}, pa.schema({"url": pa.string(), "file": pa.string()}))
    assert hosts(table).to_pylist() == [URLS[url], "-"]


def test_a_column_of_the_sources_own_counts_in_its_place(tmp_path):
    given = {"url": ["https://a.example/"] * 3, "file": ["f"] * 3, "host": [7, None, 8], "text": [""] * 3}
    path = str(tmp_path / "part.parquet")
    parquet.write_table(path, pa.table(given))
    found = parquet.read_table(path, host_columns(path))
    assert hosts(found).to_pylist() == ["7", "a.example", "8"]
    nested = pa.table({"url": ["https://a.example/"], "file": ["f"], "host": [["b"]]})
    assert hosts(nested).to_pylist() == ["a.example"]
