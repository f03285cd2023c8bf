"""A finished corpus in a browser: what the pages say, that no document is more than text there, who is given them.

The corpus is a real one, of a file with hostile documents, curated without an orchestrator.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unicodedata
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from lxml import html
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.explore.browse import document as static
from gristmill.flows.explore.browse import draws, replay
from gristmill.flows.explore.browse.document import outline_of
from gristmill.flows.explore.browse.draws import search, shard_of
from gristmill.flows.explore.browse.opened import Opened, open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.replay import Replays, SupersededError, replayed, thresholds
from gristmill.flows.explore.browse.server import POLICY, Server
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.whatif import funnel, whatif
from gristmill.storage import parquet
from gristmill.tasks.documents.expressions import ExpressionError
from gristmill.tasks.documents.step import Bound, DocumentStep
from tests.corpora import context
from tests.flows.browse.hostile import HOSTILE, ask, key, page, recorded, rows
from tests.flows.reports.test_near_duplicates import EVIL, Parsed

# --- who is given the pages ---


@pytest.mark.extended
def test_the_address_is_of_the_loopback_and_has_a_token_of_its_own(server, opened):
    assert server.server_address[0] == "127.0.0.1"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", server.address)
    with Server(Pages(opened)) as other:
        assert other.token != server.token


@pytest.mark.parametrize("path", ["/", "/x/", "/documents", "//", "/{}x/", "/{}", "/../{}/", "/%2e/{}/", "", "*"])
def test_without_the_token_nothing_is_given(server, path):
    status, headers, content = ask(server, path.format(server.token))
    assert (status, content) == (403, "")
    assert headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize(
    "line", [b"GET /\xff\xfe/ HTTP/1.1", b"GET", b"\x00\x01", b"GET / x HTTP/9", b"GET /" + b"a" * 70_000]
)
def test_bytes_that_are_no_request_are_given_nothing(server, line):
    with socket.create_connection(server.server_address[:2], timeout=60) as connection:
        connection.sendall(line + b"\r\n\r\n")
        answer = connection.makefile("rb").read()
    assert server.token.encode() not in answer and b"<" not in answer and b"200" not in answer.split(b"\r\n")[0]


def test_a_connection_without_a_request_is_closed(server, monkeypatch):
    monkeypatch.setattr("gristmill.flows.explore.browse.server._SECONDS", 0.1)
    for begun in (b"", b"GET /x HTTP/1.1\r\n"):
        with socket.create_connection(server.server_address[:2], timeout=60) as connection:
            connection.sendall(begun)
            assert connection.recv(100) == b""


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": ""},
        {"Host": "localhost.evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
    ],
)
def test_other_hosts_and_pages_of_elsewhere_are_given_nothing(server, headers):
    given = {name: value.format(port=server.server_address[1]) for name, value in headers.items()}
    assert ask(server, f"/{server.token}/", **given)[::2] == (403, "")


def test_a_link_that_is_followed_from_elsewhere_leads_to_the_page(server):
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(server, f"/{server.token}/documents?seed=3", **followed)[0] == 200
    assert ask(server, "/nothing/", **followed)[0] == 403


def test_two_hosts_are_refused_and_a_name_of_the_loopback_is_not(server):
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET", f"/{server.token}/")
    connection.putheader("Host", "evil.example")
    connection.endheaders()
    assert connection.getresponse().status == 400  # by the library that reads requests
    connection.close()
    assert ask(server, f"/{server.token}/", Host=f"localhost:{port}", Origin=f"http://localhost:{port}")[0] == 200


@pytest.mark.parametrize(
    "name",
    ["../", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "server.py", "base.html", "style.css/../server.py",
     "/etc/passwd", "style.css%00", "recipe.yaml", "%2e%2e/", "__init__.py", "STYLE.CSS"],
)  # fmt: skip
def test_guessed_paths_lead_nowhere(server, name):
    status, _, content = ask(server, f"/{server.token}/{name}")
    assert status == 404 and "Page not found" in content


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_answered_by_a_status_alone(server, method):
    status, headers, content = ask(server, f"/{server.token}/", method)
    assert (status, content) == (501, "") and headers["Content-Security-Policy"] == POLICY
    assert "Access-Control-Allow-Origin" not in headers


def test_every_answer_has_the_policy(server, opened):
    for name in ("", "style.css", "script.js", "nothing", f"step?step={key(opened)}"):
        _, headers, _ = ask(server, f"/{server.token}/{name}")
        assert headers["Content-Security-Policy"] == POLICY and POLICY.startswith("default-src 'none'")
        assert "unsafe" not in POLICY and "http" not in POLICY
        assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store" and headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert ask(server, f"/{server.token}/", "HEAD")[2] == ""


@pytest.mark.parametrize(
    "query",
    ["rule?step=x", "rule", "document?shard=-1&id=x", "document?shard=99999&id=x", "document?shard=0&id=nobody", "find",
     "find?id=zzzz", "documents?seed=x", "documents?seed=1e9", "document?shard=%00&id=%3Cscript%3E", "replay?step=y",
     "documents?where=" + "a" * 5000, "documents?where=characters%3E0&from=x", "documents?" + "a=b&" * 50],
)  # fmt: skip
def test_queries_without_sense_are_an_error_in_one_sentence(server, query):
    status, _, content = ask(server, f"/{server.token}/{query}")
    assert status in (400, 404) or 'class="error"' in content
    assert "Traceback" not in content and "<script>" not in content


# --- what the pages say ---


def written(server: Server, opened: Opened) -> dict[str, str]:
    found = {"funnel": page(server), "step": page(server, "step", step=key(opened))}
    found |= {f"rule {rule}": page(server, "rule", step=key(opened), rule=rule) for rule in recorded(opened)}
    found["replay"] = page(server, "replay", step=key(opened), setting="min_words", value=25)
    for seed in range(4):
        found[f"documents {seed}"] = page(server, "documents", seed=seed)
    for name in HOSTILE:
        [drawn] = search(opened, f"starts_with(url, 'https://') and '{HOSTILE[name][:4]}' in text", 1, 1).documents or [
            None
        ]
        if drawn is not None:
            found[f"document {name}"] = page(server, "document", shard=drawn.shard, id=drawn.id)
    found["evil query"] = page(server, "documents", where=EVIL)
    found["static"] = static.page(opened)
    return found


@pytest.mark.extended
def test_nothing_of_a_document_is_markup(server, opened):
    pages = written(server, opened)
    assert len([name for name in pages if name.startswith("document ")]) >= 4
    for name, content in pages.items():
        parsed = Parsed(re.sub(r"<(input|link|wbr)\b[^>]*>", "", content))
        tags = [tag for tag, _ in parsed.tags]
        assert not set(tags) & {"img", "iframe", "object", "embed", "base", "image", "audio", "video"}, name
        assert tags.count("script") == (0 if name == "static" else 1), name
        for tag, given in Parsed(content).tags if name == "static" else parsed.tags:
            assert not [each for each in given if each.startswith("on") or each in ("style", "srcdoc")], (name, tag)
            assert not re.match(
                r"(?i)\s*(https?:|//|javascript:|data:)", given.get("href") or given.get("src") or ""
            ), name
        assert not [c for c in content if unicodedata.category(c) == "Cc" and c not in "\n\t\r"], name


def test_what_commands_the_direction_of_a_text_is_written_out(opened, server):
    [drawn] = search(opened, "'gnp.exe' in text", 1, 1).documents
    shown = page(server, "document", shard=drawn.shard, id=drawn.id)
    assert "⟨U+202E⟩gnp.exe ⟨U+2066⟩ \u05d0\u05d1 ⟨U+202D⟩" in shown
    pages = [shown, static.page(opened), *(page(server, "documents", seed=seed) for seed in range(3))]
    assert not [content for content in pages if re.search("[\u202a-\u202e\u2066-\u2069]", content)]
    for each in html.fromstring(shown).xpath("//*[contains(text(), 'gnp.exe')]"):
        assert each.tag == "bdi" or each.getparent().tag == "bdi" or each.get("dir") == "auto", each.tag


def test_the_funnel_is_that_of_the_run(server, opened):
    shown = html.fromstring(page(server)).xpath("//table//tbody/tr")
    numbers = [[int(td.text.replace(",", "")) for td in tr.xpath("td[@data-name]")[:3]] for tr in shown]
    assert numbers == [
        [row.documents_in, row.documents_in - row.documents_out, row.documents_out] for row in opened.report.steps
    ]


def test_a_rule_shows_what_it_dropped_with_value_threshold_and_text(server, opened):
    tree = html.fromstring(page(server, "rule", step=key(opened), rule="words", seed=7))
    articles = tree.xpath("//article")
    assert len(articles) == min(10, recorded(opened)["words"])
    facts = {dt.text: dt.getnext().text_content() for dt in articles[0].xpath(".//dt")}
    assert float(facts["value"]) < float(facts["threshold"]) == 12
    texts = {row["text"].split()[0] for row in rows() if row["text"]}
    assert articles[0].xpath(".//div[@class='text']")[0].text_content().split()[0] in texts


@pytest.mark.extended
def test_draws_are_by_the_seed_and_each_document_is_as_probable(opened):
    step = opened.step(key(opened))
    total = recorded(opened)["words"]
    everything = [one.dropped.row["id"] for one in draws.dropped(opened, step, "words", 10_000, 1)]
    ledger = [
        id_
        for shard in range(len(step.stage.part_records))
        for id_, rule in zip(
            *parquet.read_table(step.stage.ledger(shard), ["id", "rule"]).to_pydict().values(), strict=True
        )
        if rule == "words"
    ]
    assert sorted(everything) == sorted(ledger) and len(everything) == total
    assert draws.kept(opened, 5, 3) == draws.kept(opened, 5, 3) != draws.kept(opened, 5, 4)
    kept = [one.id for one in draws.kept(opened, 10_000, 1)]
    assert len(kept) == len(set(kept)) == opened.corpus.rows
    seen = {one.id for seed in range(200) for one in draws.kept(opened, 10, seed)}
    assert len(seen) > 0.99 * opened.corpus.rows


def test_the_link_with_a_seed_gives_the_same_page(server):
    assert page(server, "documents", seed=9) == page(server, "documents", seed=9) != page(server, "documents", seed=10)


@pytest.mark.parametrize(
    ("setting", "value"), [("min_words", 25), ("min_words", 3), ("min_alpha_words", 0.9), ("max_mean_word_length", 30)]
)
def test_a_sliders_counts_are_those_of_whatif(server, opened, setting, value):
    expected = whatif(opened.given, {f"gopher_quality.{setting}": value}, opened.settings)
    found = json.loads(page(server, "replay.json", step=key(opened), setting=setting, value=value))
    assert [row["replayed"] and row["replayed"]["documents_out"] for row in found["rows"]] == [
        row.replayed and row.replayed.documents_out for row in funnel(expected)
    ]
    kept, before = set(), set()
    for shard in expected.passed.arriving.places.shards():
        kept |= set(expected.shard(shard).kept.to_pylist())
        before |= set(parquet.read_table(expected.passed.left.kept.part(shard), ["id"])["id"].to_pylist())
    assert (found["enter"], found["leave"]) == (len(kept - before), len(before - kept))
    assert found["enter"] + found["leave"] > 0
    made = replayed(opened, {f"gopher_quality.{setting}": value}, 1)
    assert {one.id for one in made.enter.examples} <= kept - before
    assert {one.id for one in made.leave.examples} <= before - kept
    section = html.fromstring(page(server, "replay", step=key(opened), setting=setting, value=value)).get_element_by_id(
        "replay"
    )
    assert section.get("data-moved") == f"{found['enter']:,} added, {found['leave']:,} dropped"


def test_a_setting_is_known_by_the_rule_that_it_moves():
    recipe = load("demo")
    found = {one.name: (one.rule, one.signal) for step in recipe.after for one in thresholds(step)}
    assert found["language.min_score"] == ("language_score", "language_score")
    assert found["gopher_quality.max_symbol_ratio"] == ("symbol_ratio", "gopher_quality_symbol_ratio")
    bounds = [(step, rule) for step in recipe.after if isinstance(step, DocumentStep) for rule in step.decisions()]
    for step, rule in bounds:
        if isinstance(rule, Bound) and (rule.low, rule.high) != (None, None) and step.step != "pii":
            assert (rule.rule, rule.signal) in found.values(), (step.step, rule)
    [percentile] = [one for step in recipe.after for one in thresholds(step) if one.setting == "max_percentile"]
    assert percentile.ends == (0, 100) and percentile.signal == ""


@pytest.mark.extended
def test_every_step_and_rule_of_the_funnel_has_its_page_and_every_link_leads_somewhere(server, opened):
    assert {rule for step in opened.steps for rule in step.drops} >= {"empty_text", "words"}
    todo, seen = [""], set()
    while todo:
        name = todo.pop()
        if name not in seen and "seed=3" not in name:
            seen.add(name)
            todo += html.fromstring(ask(server, f"/{server.token}/{name}")[2]).xpath("//a[not(@href='#content')]/@href")
            assert ask(server, f"/{server.token}/{name.removeprefix('./')}")[0] == 200, name
    assert len([name for name in seen if name.startswith("document?")]) > 20


@pytest.mark.parametrize("value", ["many", "[1, 2]", "{", "", "-" * 4001])
def test_a_value_that_is_none_is_an_error_on_the_page(server, opened, value):
    shown = page(server, "replay", step=key(opened), setting="min_words", value=value)
    assert html.fromstring(shown).xpath("//*[@role='alert']")
    assert "has no setting" in page(server, "replay", step=key(opened), setting="words", value="1")


def test_a_newer_replay_ends_the_one_before(opened, monkeypatch):
    replays, begun, asked = Replays(opened), threading.Event(), threading.Event()
    plain = replay.replayed

    def slow(opened, changes, seed, check):
        begun.set()
        assert asked.wait(60)
        return plain(opened, changes, seed, check)

    monkeypatch.setattr(replay, "replayed", slow)
    ended: list[Exception] = []

    def first() -> None:
        try:
            replays.replay({"gopher_quality.min_words": 30}, 1)
        except SupersededError as error:
            ended.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    newer = threading.Thread(target=lambda: found.append(replays.replay({"gopher_quality.min_words": 20}, 1)))
    found: list = []
    newer.start()
    while replays.newest < 2:
        time.sleep(0.01)
    asked.set()
    thread.join(60)
    newer.join(60)
    assert len(ended) == 1 and found[0].changes == {"gopher_quality.min_words": 20}


def test_documents_are_chosen_by_an_expression(opened, server):
    found = search(opened, "gopher_quality_words >= 20 and host == 'h1.example'", 10_000, 5)
    assert found.read == opened.corpus.rows and (found.begin, found.end) == (0, found.shards)
    table = opened.report.documents.to_pandas(["id", "url", "gopher_quality_words"])
    expected = table[(table.gopher_quality_words >= 20) & table.url.str.startswith("https://h1.example/")]
    assert sorted(one.id for one in found.documents) == sorted(expected.id) and found.matching == len(expected) > 3
    shown = page(server, "documents", where="gopher_quality_words >= 20 and host == 'h1.example'")
    assert f"{found.matching:,} of " in shown
    with pytest.raises(ExpressionError, match="did you mean"):
        search(opened, "gopher_quality_wrds > 3", 5, 1)
    assert "did you mean" in page(server, "documents", where="gopher_quality_wrds > 3")
    assert search(opened, "'nowhere in any text' in text", 5, 1).matching == 0


@pytest.mark.parametrize("of", [{}, {"of": "extracted"}])
def test_further_shards_are_read_by_a_link(opened, server, monkeypatch, of):
    monkeypatch.setattr("gristmill.flows.explore.browse.draws._READ", 1)
    asked, ends = {"where": "characters > 0"} | of, []
    for _ in range(3):
        shown = html.fromstring(page(server, "documents", **asked))
        [further] = shown.xpath("//a[text()='read more shards']/@href") or [""]
        ends.append(further.rpartition("from=")[2].partition("&")[0])
        asked |= {"from": ends[-1]}
    assert ends == ["1", "2", ""]


def test_an_expression_chooses_among_all_that_were_extracted(opened, server):
    table = opened.report.scores.to_pandas(["id", "kept", "gopher_quality_words"])
    expected = table[~table.kept & (table.gopher_quality_words >= 8)]
    where = "not kept and gopher_quality_words >= 8 and starts_with(url, 'https')"
    found = search(opened, where, 10_000, 5, everything=True)
    assert sorted(one.id for one in found.documents) == sorted(expected.id) and len(expected) > 3
    assert found.read == len(table)
    shown = page(server, "documents", where=where, of="extracted")
    assert f"{found.matching:,} of {found.read:,} documents" in shown
    with pytest.raises(ExpressionError, match="no column kept"):
        search(opened, "not kept", 5, 1)


def test_a_document_has_its_scores_among_all_and_its_decisions(opened, server):
    gone = draws.dropped(opened, opened.step(key(opened)), "words", 1, 2)[0]
    shown = page(server, "document", shard=gone.shard, id=gone.dropped.row["id"])
    assert "Not kept." in shown and "gopher_quality.words" in shown
    [kept] = draws.kept(opened, 1, 2)
    tree = html.fromstring(page(server, "document", shard=kept.shard, id=kept.id))
    row = tree.xpath("//table[@class='scores']//tr[th='gopher_quality_words']")[0]
    below = float(row.xpath("td")[1].text.rstrip("%"))
    words = opened.report.scores.to_pandas(["gopher_quality_words"]).gopher_quality_words
    mine = int(row.xpath("td")[0].text)
    assert below == pytest.approx(100 * (words < mine).mean(), abs=0.06)
    assert tree.xpath("//div[@class='text']")[0].text_content().split()[0] == kept.text.split()[0]
    assert shard_of(opened, kept.id[:12]) == (kept.shard, kept.id) and shard_of(opened, "nobody") is None
    assert kept.id in page(server, "find", id=kept.id[:12])


def test_the_outline_of_a_page_says_which_headings_the_text_has():
    found = outline_of("<h1>One <b>two</b></h1><p>x<h2>Menu</h2><table><script>h</script>", "One two\nx")
    assert [(one.level, one.text, one.kept) for one in found.headings] == [(1, "One two", True), (2, "Menu", False)]
    assert found.elements == {"p": 1, "table": 1, "script": 1}
    assert outline_of("plain text", "plain text") is None
    assert outline_of("<h1" * 50_000 + "<![CDATA[<!--" + "<h1>" * 50_000, "") is None


def test_the_static_page_is_small_and_the_same_each_time(opened, tmp_path):
    to = tmp_path / "page.html"
    static.write(opened, str(to), 4)
    first = to.read_bytes()
    assert (
        len(first) < static.MOST_BYTES and first == static.page(opened, 4).encode() != static.page(opened, 5).encode()
    )
    policy = Parsed(first.decode()).tags
    [policy] = [given["content"] for tag, given in policy if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    drawn = [one.dropped.row["id"] for one in draws.dropped(opened, opened.step(key(opened)), "words", 5, 4)]
    assert all(id_ in first.decode() for id_ in drawn)


def test_a_page_that_would_be_too_large_shows_less(opened, monkeypatch):
    whole = len(static.page(opened).encode())
    monkeypatch.setattr(static, "MOST_BYTES", whole - 1)
    smaller = static.page(opened)
    assert len(smaller.encode()) < whole
    monkeypatch.setattr(static, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="larger than"):
        static.page(opened)


def test_the_command_writes_the_static_page(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", opened.settings.home)
    to = str(tmp_path / "page.html")
    done = CliRunner().invoke(app, ["browse", opened.given, "--to", to, "--seed", "3"], catch_exceptions=False)
    assert done.stdout.strip() == to and Path(to).read_text().startswith("<!DOCTYPE html>")


def test_pages_have_no_addresses_of_elsewhere(server, opened):
    for content in (page(server), page(server, "step", step=key(opened))):
        for address in re.findall(r'(?:href|src|action)="([^"]*)"', content):
            assert "://" not in address and not address.startswith(("/", ".."))


@pytest.mark.extended
def test_the_command_serves_until_it_is_interrupted(opened):
    program = "import sys; from gristmill.flows.cli import main; main()"
    environment = os.environ | {"GRISTMILL_HOME": opened.settings.home}
    command = [sys.executable, "-c", program, "browse", opened.given]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            address = child.stdout.readline().strip()
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert "188 of 240 documents kept" in answer.read().decode()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(re.sub(r"/[\w-]+/$", "/", address), timeout=60)
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == 0
        finally:
            child.kill()
        assert child.stderr.read() == ""


def test_what_was_taken_down_is_on_no_page(opened, tmp_path):
    gone = [one.id for one in draws.kept(opened, 400, 1)][:2]
    dropped = draws.dropped(opened, opened.step(key(opened)), "words", 1, 1)[0]
    texts = [one.text for one in draws.kept(opened, 400, 1) if one.id in gone] + [dropped.dropped.text]
    marks = [max((word for word in text.split() if word.isascii() and word.isalpha()), key=len)[:6] for text in texts]
    listed = tmp_path / "gone.txt"
    listed.write_text("\n".join([*gone, dropped.dropped.row["id"]]))
    given = json.loads(Path(opened.given).read_text()) | {"takedowns": [str(listed)]}
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(given))
    for _ in curate(context(opened.settings.home), load(str(path))):
        pass
    later = open_recipe(str(path), opened.settings)
    pages = Pages(later)
    written = [pages.documents({"of": "extracted", "where": f"id == '{name}'"}) for name in gone]
    written += [pages.rule({"step": step.key, "rule": rule}) for step in later.steps for rule in step.drops]
    written += [static.page(later), pages.documents({})]
    assert sum(draws.TAKEN in page for page in written) >= 3
    for mark in marks:
        assert len(mark) == 6 and not any(mark in page for page in written)
    for name in (*gone, dropped.dropped.row["id"]):
        with pytest.raises(LookupError, match="Taken down"):
            pages.find({"id": name})
