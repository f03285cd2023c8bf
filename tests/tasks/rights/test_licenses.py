"""Licenses of pages: what is the page's own, what is of a part of it, and what is none."""

import pytest

from gristmill.tasks.rights.licenses import of_address, of_words
from gristmill.tasks.rights.page import page_rights
from gristmill.tasks.source_code.licenses import expression

BY = "https://creativecommons.org/licenses/by/4.0/"
SA = "https://creativecommons.org/licenses/by-sa/3.0/"


def license_of(body: str = "", head: str = "", *headers: tuple[str, str]) -> tuple[str | None, str | None]:
    page = f"<html><head>{head}</head><body><main><p>A text about the mill.</p></main>{body}</body></html>"
    rights = page_rights(page, headers)
    return rights["rights_license"], rights["rights_license_scope"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (BY, "CC-BY-4.0"),
        ("//creativecommons.org/licenses/by-nc-sa/4.0/deed.de", "CC-BY-NC-SA-4.0"),
        ("http://creativecommons.org/licenses/by/3.0/us/", "CC-BY-3.0-US"),
        ("http://creativecommons.org/licenses/by-nc-nd/2.5/ca/", "CC-BY-NC-ND-2.5"),
        ("http://creativecommons.org/licenses/nd-nc/1.0", None),  # without `by`: SPDX has no such license
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("https://creativecommons.org/licenses/by-sa", "CC-BY-SA"),
        ("https://www.gnu.org/licenses/fdl-1.3.html", "GFDL-1.3-only"),
        ("https://www.gnu.org/copyleft/fdl.html", "GFDL"),
        ("https://www.gnu.org/licenses/gpl-faq.html", None),
        ("https://creativecommons.org/licenses/", None),
        ("https://opensource.org/licenses/MIT", "MIT"),
        ("https://opensource.org/licenses/none-such", None),
        ("https://example.org/licenses/by/4.0/", None),
    ],
)
def test_addresses(address, expected):
    assert of_address(address) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Creative Commons Attribution-ShareAlike License", "CC-BY-SA"),
        ("Creative Commons Attribution 4.0 International (CC BY 4.0)", "CC-BY-4.0"),
        ("Creative Commons Attribution-NonCommercial-NoDerivatives 4.0", "CC-BY-NC-ND-4.0"),
        ("Creative Commons Attribution-Noncommercial-Share Alike 3.0 United States License", "CC-BY-NC-SA-3.0"),
        ("GNU Free Documentation License, Version 1.2 or any later version", "GFDL-1.2-or-later"),
        ("CC-BY-4.0", "CC-BY-4.0"),
        ("CC BY 4.0 or CC BY-SA 4.0", None),  # which of them?
        ("All rights reserved", None),
        ("https://example.org/imprint", None),
    ],
)
def test_words(words, expected):
    assert of_words(words) == expected


def test_identifiers_are_those_of_spdx():
    kinds = ("by", "by-sa", "by-nc", "by-nd", "by-nc-sa", "by-nc-nd")
    for kind in kinds:
        for version in ("1.0", "2.0", "2.5", "3.0", "4.0"):
            name = of_address(f"https://creativecommons.org/licenses/{kind}/{version}/")
            assert name == expression(name or "")


@pytest.mark.parametrize(
    ("body", "head"),
    [
        ("", f'<link rel="license" href="{BY}">'),
        ("", f'<meta name="dcterms.rights" content="{BY}">'),
        ("", f'<script type="application/ld+json">{{"@type":"Article","license":"{BY}"}}</script>'),
        ("", f'<script type="application/ld+json">{{"@graph":[{{"@type":["WebPage"],"license":"{BY}"}}]}}</script>'),
        (f'<p>This work is licensed under a <a rel="license" href="{BY}">license</a>.</p>', ""),
        (f'<p>Except where otherwise noted, content is under <a href="{BY}">CC BY</a>.</p>', ""),
        (f'<footer><p>Site by Ann. <a href="{BY}">Some rights reserved</a></p></footer>', ""),
        ("<footer><p>The text is licensed under Creative Commons Attribution 4.0.</p></footer>", ""),
        (
            f'<p>The content of this page is licensed under <a href="{BY}">CC BY</a>, and code samples are licensed '
            'under the <a href="https://www.apache.org/licenses/LICENSE-2.0">Apache license</a>.</p>',
            "",
        ),
    ],
)
def test_a_license_of_the_page(body, head):
    assert license_of(body, head) == ("CC-BY-4.0", "page")


def test_a_license_in_a_header_field():
    assert license_of("", "", ("link", f'<{BY}>; rel="license"')) == ("CC-BY-4.0", "page")
    assert license_of("", "", ("link", f'<{BY}>; rel="next"')) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        f'<figure><img src="a.jpg"><figcaption>Ann, <a href="{BY}">CC BY 4.0</a></figcaption></figure>',
        f'<div class="wp-caption"><p>Photo: Ann <a rel="license" href="{BY}">CC BY</a></p></div>',
        f'<p>The photos of this article are available under <a href="{BY}">CC BY 4.0</a>.</p>',
        f'<footer><p>Icons by Ann, licensed under <a href="{BY}">CC BY 4.0</a></p></footer>',
        f'<p>The software is released under <a href="{BY}">this license</a>.</p>',
        f'<script type="application/ld+json">{{"@type":"ImageObject","license":"{BY}"}}</script>',
        f'<script type="application/ld+json">{{"@type":"Article","image":{{"license":"{BY}"}}}}</script>',
        f'<p>Read what <a href="{BY}">this license</a> means for authors and for everybody else.</p>',
        f'<!-- <p>This work is licensed under <a rel="license" href="{BY}">CC BY</a></p> -->',
        "<footer>All rights reserved. (c) 2020 Ann</footer>",
        "<p>The photos are licensed under Creative Commons Attribution 4.0.</p>",
    ],
)
def test_no_license_of_the_page(body):
    assert license_of(body)[1] != "page"


def test_licenses_that_disagree_are_none():
    head = f'<link rel="license" href="{BY}"><link rel="license" href="{SA}">'
    assert license_of("", head) == (None, None)
    family = '<link rel="license" href="https://creativecommons.org/licenses/by/">'
    assert license_of("", f'{family}<link rel="license" href="{BY}">') == ("CC-BY-4.0", "page")


def test_a_page_about_licenses_has_none_of_them():
    names = ("by", "by-sa", "by-nc", "by-nd", "by-nc-sa")
    links = "".join(
        f'<p>A text is licensed under <a href="https://creativecommons.org/licenses/{name}/4.0/">{name}</a></p>'
        for name in names
    )
    assert license_of(links)[1] != "page"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<p>Copyright &copy; 2001-2020 Ann Miller</p>", "Copyright © 2001-2020 Ann Miller"),
        ("<footer>© <b>1999</b> The mill. All rights reserved.</footer>", "© 1999 The mill. All rights reserved."),
        ('<a href="/copyright.html">Copyright</a> 2001 Ann', "Copyright 2001 Ann"),
        ("<p>© 2001 Ann</p><p>The copyright of others is not ours.</p>", "© 2001 Ann"),
        ('<script>var a = {"copyrightYear":2024}</script>', None),
        ("<p>In the year 2020 nobody asked.</p>", None),
    ],
)
def test_copyright_lines(body, expected):
    assert page_rights(f"<html><body>{body}</body></html>", ())["rights_copyright"] == expected
