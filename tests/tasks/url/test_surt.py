"""SURT keys beside those that the tools of web archives give: the pairs are of the package `surt` 0.3.1, which indexes
are made with, and of the tests of webarchive-commons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.tasks.url.surt import surt_key

PAIRS = {
    "http://archive.org/goo/": "org,archive)/goo",
    "http://archive.org/goo/?": "org,archive)/goo",
    "http://archive.org/goo/?a=2&b&a=1": "org,archive)/goo?a=1&a=2&b",
    "http://archive.org:/": "org,archive)/",
    "https://34.203.211.192/robots.txt": "192,211,203,34)/robots.txt",
    "https://[2600:1f18:200d:fb00:2b74:867c:ab0c:150a]/robots.txt": (
        "2600:1f18:200d:fb00:2b74:867c:ab0c:150a)/robots.txt"
    ),
    "http://1kr.ua/newslist.html?tag=%E4%EE%F8%EA": "ua,1kr)/newslist.html?tag=%e4%ee%f8%ea",
    "http://www.aluroba.com/tags/%C3%CE%CA%C7.htm": "com,aluroba)/tags/%c3%ce%ca%c7.htm",
    "https://www.insbase.ac/modules/xpwiki/?%A4%D5%A4%AF": "ac,insbase)/modules/xpwiki?%a4%d5%a4%af",
    "http://www.Example.com:80/A/b/?b=2&a=1": "com,example)/a/b?a=1&b=2",
    "https://www2.x.org/": "org,x)/",
    "http://www.www.a.com/": "com,a,www)/",
    "http://www.com/": "com)/",
    "http://m.a.com": "com,a,m)/",
    "http://a.com:443/": "com,a:443)/",
    "http://a.com:8080/x/": "com,a:8080)/x",
    "http://user:pw@a.com/x": "com,a)/x",
    "ftp://a.com/x": "com,a)/x",
    "http://a.com/%7Efoo/%C3%A9?q=%2f": "com,a)/~foo/%c3%a9?q=/",
    "http://a.com/é?ü=1": "com,a)/%c3%a9?%c3%bc=1",
    "http://bücher.de/x": "de,xn--bcher-kva)/x",
    "https://.tramino.de": "de,tramino)/",
    "http://a..com./x": "com,a)/x",
    "http://a.com/X%20y z": "com,a)/x%20y%20z",
    "http://a.com/%25%32%35": "com,a)/%25",
    "http://a.com/x//y/../z": "com,a)/x/z",
    "http://a.com/../x": "com,a)/../x",
    "http://a.com/x?a&A=1": "com,a)/x?a&a=1",
    "http://a.com/?a=1&&b": "com,a)/?&a=1&b",
    "http://a.com/x#f": "com,a)/x",
    "http://a.com/index.php?id=5;b=2": "com,a)/index.php?id=5;b=2",
    "http://a.com/x?utm_source=3": "com,a)/x?utm_source=3",
    f"http://a.com/x?sid={'0a' * 16}": "com,a)/x",
    f"http://a.com/x?jsessionid={'AB' * 16}&b=1": "com,a)/x?b=1",
    f"http://a.com/x;jsessionid={'ab' * 16}": f"com,a)/x;jsessionid={'ab' * 16}",
    "http://a.com/x?cfid=1&cftoken=2&z=3": "com,a)/x?z=3",
    "http://a.com/(S(abcdefghijklmnopqrstuvwx))/p.aspx": "com,a)/p.aspx",
}


@pytest.mark.parametrize("url", PAIRS)
def test_keys_are_those_of_web_indexes(url):
    assert surt_key(url) == PAIRS[url]


@pytest.mark.parametrize(
    "url", [None, "", "a.com/x", "dns:a.com", "urn:pageinfo:https://a.com/", "http://", "http:// "]
)
def test_what_is_no_address_of_a_page_has_no_key(url):
    assert surt_key(url) is None


@given(st.text(max_size=60))
def test_no_text_raises(text):
    assert surt_key(text) is None or ")" in surt_key(text)
    for key in (surt_key(f"http://a.com/{text}"), surt_key(f"http://a.com/?{text}")):
        assert key.startswith("com,a)/") and key == key.lower() and key.isascii()
