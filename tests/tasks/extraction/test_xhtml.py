"""XHTML is read by the rules of XML; what is not well-formed as HTML."""

import pytest
from lxml import etree, html

from gristmill.tasks.extraction.page import extract_page, to_html

DOCTYPE = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">'
)
STORY = "The mill turns as long as there is water, and the miller writes its level into a book every morning."


def xhtml(body: str, head: str = "<title>Mill</title>", doctype: str = DOCTYPE) -> str:
    return (
        f'<?xml version="1.0" encoding="utf-8"?>{doctype}<html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head>{head}</head><body>{body}</body></html>"
    )


def text(page: str, kind: str = "application/xhtml+xml") -> str:
    return extract_page(page.encode(), kind, "utf-8", "https://mill.example/", "plain", "plain").get("text", "")


@pytest.mark.parametrize(
    "tag", ["script", "style", "title", "textarea", "iframe", "svg", "div", "p", "a", "td", "noscript", "select"]
)
def test_every_self_closed_element_ends_where_it_stands(tag):
    place = "" if tag == "title" else f"<{tag}/>"
    page = xhtml(
        f"{place}<p>{STORY}</p>", head=f"<{tag}/>" if tag in ("script", "style", "title") else "<title>t</title>"
    )
    assert text(page) == STORY


def test_self_closed_scripts_end_the_text_of_html():
    page = xhtml(f"<script src='a.js'/><p>{STORY}</p>")
    assert (text(page), text(page, "text/html")) == (STORY, "")


def test_cdata_is_text_and_is_escaped():
    assert text(xhtml(f"<p><![CDATA[a < b && <b>c</b>]]> {STORY}</p>")) == f"a < b && <b>c</b> {STORY}"


def test_scripts_in_cdata_stay_scripts():
    script = "<script><![CDATA[ if (a < b) document.write('</script><p>not this</p>'); ]]></script>"
    assert text(xhtml(f"{script}<p>{STORY}</p>")) == STORY


def test_entities_are_those_of_the_document_type_of_the_page_and_of_xml():
    own = '<!DOCTYPE html [<!ENTITY mill "M&#252;hle">]>'
    assert text(xhtml(f"<p>caf&eacute;&nbsp;&amp; &#233; &lt;i&gt; {STORY}</p>")) == f"café\xa0& é <i> {STORY}"
    assert text(xhtml(f"<p>&mill; {STORY}</p>", doctype=own)) == f"Mühle {STORY}"


def test_prefixes_are_namespaces():
    page = (
        '<h:html xmlns:h="http://www.w3.org/1999/xhtml" xmlns:o="urn:other"><h:head><h:script/></h:head>'
        f'<h:body><o:title/><h:p o:x="1">{STORY}</h:p><h:br></h:br></h:body></h:html>'
    )
    assert text(page) == STORY
    assert "<x-title></x-title><p>" in to_html(page) and to_html(page).count("br") == 1


@pytest.mark.parametrize("wrong", ["<p>unclosed", "<p>a & b</p>", "<b><i>x</b></i>", "<p a=b>x</p>", "\x0c", "<o:p/>"])
def test_what_is_not_well_formed_is_html(wrong):
    page = xhtml(f"<p>{STORY}</p>{wrong}")
    assert to_html(page) is None
    assert text(page) == text(page, "text/html") and STORY in text(page)


def test_the_tree_is_that_of_an_xml_parser():
    page = xhtml(
        f'<div class="a &amp; &quot;b&quot;"/><ul><li/><li>one<br/>two</li></ul><p>{STORY}</p><!-- no --><?php no ?>'
        "<table><tbody><tr><td/><td>x</td></tr></tbody></table><script>var a = 1;</script><hr/>"
    )

    def shape(element):
        inside = [shape(child) for child in element if isinstance(child.tag, str)]
        return etree.QName(element).localname, dict(element.attrib), (element.text or "").strip(), inside

    as_xml = shape(etree.fromstring(page.encode()))
    assert shape(html.document_fromstring(to_html(page))) == as_xml


def test_an_entity_that_grows_without_end_is_not_well_formed():
    lots = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    page = xhtml("<p>&e11;</p>", doctype=f'<!DOCTYPE html [<!ENTITY e0 "lol">{lots}]>')
    assert to_html(page) is None
