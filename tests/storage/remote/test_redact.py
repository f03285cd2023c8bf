"""What lets a reader in is neither logged nor kept."""

import pytest

from gristmill.storage.printable import redact_url, redact_urls


@pytest.mark.parametrize(
    "address,said",
    [
        ("http://user:pa55word@host:80/a.gz?sig=s3cret#x", "http://host:80/a.gz"),
        ("HTTPS://us@er:p@host/a@b", "HTTPS://host/a@b"),
        ("https://host?sig=a@b", "https://host"),
        ("https://host/users/@me/a", "https://host/users/@me/a"),
        ("simplecache::https://u:p@host/a?b::c", "simplecache::https://host/a"),
        ("s3://bucket/what?/@a", "s3://bucket/what?/@a"),
        ("/crawl/a?.warc", "/crawl/a?.warc"),
    ],
)
def test_an_address_as_it_may_be_read(address, said):
    assert redact_url(address) == redact_url(said) == said


def test_a_text_with_addresses():
    text = "cannot read 'http://u:p@a/x?y=z' after https://b/c?d"
    assert redact_urls(text) == "cannot read 'http://a/x after https://b/c"
