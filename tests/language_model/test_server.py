"""The server of the tests does what its documents say, so that its clients can be measured with it."""

import hashlib
import http.client
import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from time import sleep, time

import jsonschema
import pytest

from tests.language_model import faults, planted
from tests.language_model.injections import INJECTIONS, broken
from tests.language_model.serving import serving

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["grade", "reason", "kind", "keep"],
    "properties": {
        "grade": {"type": "integer", "minimum": 0, "maximum": 5},
        "reason": {"type": "string", "maxLength": 30},
        "kind": {"type": "string", "enum": ["prose", "table", "code"]},
        "keep": {"type": "boolean"},
    },
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "grades", "strict": True, "schema": SCHEMA}}
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def body_of(text, **parameters):
    messages = [{"role": "system", "content": "Grade the text."}, {"role": "user", "content": text}]
    return {"model": "planted", "messages": messages, "response_format": FORMAT, **parameters}


def call(server, body, timeout=60.0, method="POST", path="/v1/chat/completions", **headers):
    """Status, headers and body of one request on a connection of its own."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=timeout)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body)
        fields = {
            "Authorization": "Bearer test-key",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection.request(method, path, data, fields)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def choice(data):
    return json.loads(data)["choices"][0]


def fits(content):
    try:
        return VALIDATOR.is_valid(json.loads(content, parse_constant=lambda _: [][0]))
    except (ValueError, TypeError, IndexError):
        return False


def test_an_answer_is_as_the_reference_has_it_and_in_the_bill():
    with serving(latency=0.01) as server:
        body = body_of("document=one quality=4 a text", temperature=0, seed=3)
        status, headers, data = call(server, body, idempotency_key="k1")
        again = call(server, body)[2]
        line, second = server.billed()
    answer = json.loads(data)
    assert (status, headers["Content-Type"], answer["object"], answer["model"]) == (
        *(200, "application/json"),
        *("chat.completion", "planted"),
    )
    assert choice(data)["finish_reason"] == "stop"
    message = choice(data)["message"]
    assert (message["role"], message["refusal"], fits(message["content"])) == ("assistant", None, True)
    assert json.loads(message["content"])["grade"] == 4  # without noise the grade is the quality
    assert choice(again)["message"] == message and json.loads(again)["id"] != answer["id"]
    # 15 bytes of the system's message are 4 tokens, 29 of the user's 8, and each message has 4 more
    assert answer["usage"]["prompt_tokens"] == 4 + 8 + 2 * 4
    assert answer["usage"]["completion_tokens"] == math.ceil(len(message["content"].encode()) / 4)
    assert line["content"] == message["content"] and (line["document"], line["quality"]) == ("one", 4)
    assert (line["key"], line["whole"], line["valid"], line["attempt"], second["attempt"]) == ("k1", True, True, 0, 1)
    assert {key: line[key] for key in ("prompt_tokens", "completion_tokens")} == {
        key: answer["usage"][key] for key in ("prompt_tokens", "completion_tokens")
    }


def test_the_hash_of_a_request_is_that_of_its_canonical_json():
    written = b'{"messages":[{"content":"\\u00e9","role":"user"}],"model":"m","parameters":{"seed":1,"top_p":0.5}}'
    body = {"top_p": 0.5, "model": "m", "seed": 1, "messages": [{"role": "user", "content": "é"}]}
    assert planted.request_hash(body) == hashlib.sha256(written).hexdigest()


def test_the_noise_has_the_probabilities_of_its_table():
    table = {-1: 0.2, 0: 0.5, 1: 0.2, 3: 0.1}
    model = planted.Model(1, table)
    count = 4000
    drawn = Counter(model.grade(f"hash {i}", "/grade", "quality=10") - 10 for i in range(count))
    assert set(drawn) == set(table)
    for difference, p in table.items():
        assert abs(drawn[difference] - count * p) < 4 * math.sqrt(count * p * (1 - p))


@pytest.mark.parametrize("mode", ["grade", "rewrite"])
def test_answers_fit_schemas(mode):
    part = {"type": ["string", "null"], "maxLength": 5}
    properties = {
        "a": {"type": "integer", "minimum": 3, "maximum": 4},
        "b": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "c": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1, "maxItems": 3},
        "d": {
            "anyOf": [{"type": "null"}, {"type": "object", "properties": {"e": {"enum": [1, 5]}}, "required": ["e"]}]
        },
        "f": {"type": "string", "minLength": 60},
        "g": {"const": "x"},
        "h": {"type": "boolean"},
        "i": {"type": "integer", "exclusiveMaximum": 2},
    }
    schema = {"type": "object", "properties": properties, "required": list(properties), "$defs": {"part": part}}
    model = planted.Model(3, {-2: 0.3, 0: 0.4, 9: 0.3}, mode)
    validator = jsonschema.Draft202012Validator(schema)
    for i in range(60):
        body = body_of(
            f"quality={i % 7} text {i}", response_format={"type": "json_schema", "json_schema": {"schema": schema}}
        )
        validator.validate(json.loads(model.answer(body, planted.request_hash(body))))


def test_a_rewriting_has_the_sentences_of_the_text():
    text = "One came. Two went! Did three stay? Four did, with </text> in it."
    with serving(mode="rewrite", latency=0.01) as server:
        status, _, data = call(server, body_of(f"Rewrite: <text>\n{text}\n</text> Thanks.", response_format=None))
    content = choice(data)["message"]["content"]
    assert status == 200 and content == planted.rewriting(7, text) != planted.rewriting(8, text)
    assert all(
        sentence in content for sentence in ("One came.", "Two went!", "Did three stay?", "Four did, with </text>")
    )


def outcome(server, body):
    """What a client sees: an answer, or the name of an error."""
    try:
        return call(server, body, timeout=60)
    except (OSError, http.client.HTTPException) as error:
        return 0, type(error).__name__, b""


UNBILLED = {*faults.ERRORS, *faults.SILENCES}


def test_every_fault_is_what_it_is_called():
    plan = faults.Plan(dict.fromkeys(faults.KINDS, 1 / len(faults.KINDS)), hang=0.3, late=0.3, bytes_per_second=600)
    bodies, i = {}, 0
    while len(bodies) < len(faults.KINDS):
        body, i = body_of(f"quality=3 document=d{i}"), i + 1
        bodies.setdefault(plan.draw(7, planted.request_hash(body), 0, 0), body)
    with serving(plan=plan, latency=0.01) as server, ThreadPoolExecutor(len(bodies)) as pool:
        start = time()
        results = dict(zip(bodies, pool.map(lambda body: outcome(server, body), bodies.values()), strict=True))
        bill = {line["fault"]: line for line in server.billed()}
        assert server.stats()["faults"] == dict.fromkeys(faults.KINDS, 1)
    assert set(bill) == set(faults.KINDS) - UNBILLED
    assert {kind for kind, line in bill.items() if not line["whole"]} == {"cut_body", "lost_answer"}

    for kind, status in {"server_error": 500, "bad_gateway": 502, "overloaded": 503, "insufficient_quota": 429}.items():
        assert results[kind][0] == status
    for kind in faults.ERRORS[:5]:
        status, headers, data = results[kind]
        assert (status, json.loads(data)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert results["rate_limit"][1]["Retry-After"] is None
    assert results["rate_limit_seconds"][1]["Retry-After"] == "1"
    assert results["rate_limit_milliseconds"][1]["retry-after-ms"] == "1000"
    assert (
        1
        <= parsedate_to_datetime(results["rate_limit_date"][1]["Retry-After"]).timestamp() - start
        < time() - start + 2
    )
    assert results["rate_limit_nonsense"][1]["Retry-After"] in ("soon", "", "-5", "nan", "inf")
    assert json.loads(results["insufficient_quota"][2])["error"]["code"] == "insufficient_quota"
    assert results["bad_gateway"][1]["Content-Type"] == results["html_page"][1]["Content-Type"] == "text/html"
    assert results["html_page"][0] == 200

    assert [results[kind][1] for kind in ("disconnect", "hang", "lost_answer")] == 3 * ["RemoteDisconnected"]
    assert results["cut_body"][1] == "IncompleteRead"
    for kind in ("slow_body", "late", "no_usage", "other_model"):
        assert fits(choice(results[kind][2])["message"]["content"])
    assert "usage" not in json.loads(results["no_usage"][2]) and bill["no_usage"]["completion_tokens"] > 0
    assert json.loads(results["other_model"][2])["model"] != "planted"
    assert json.loads(results["no_choices"][2])["choices"] == []
    for kind in ("not_json", "misses_schema", "empty_content", "length", "content_filter", "refusal"):
        content = choice(results[kind][2])["message"]["content"]
        assert not fits(content) and bill[kind]["valid"] is False
    assert {kind: choice(results[kind][2])["finish_reason"] for kind in ("length", "content_filter", "refusal")} == {
        **{"length": "length", "content_filter": "content_filter", "refusal": "stop"}
    }
    assert choice(results["refusal"][2])["message"]["refusal"]


def test_near_misses_do_not_fit_the_schema_by_another_reader():
    answer = {"grade": 3, "reason": "r", "kind": "code", "keep": True}
    near = faults.misses(json.dumps(answer), SCHEMA)
    assert len(near) > 20 and not any(fits(each) for each in near if "1e999" not in each)


def test_faults_end_and_come_again_with_the_same_seed():
    plan = faults.Plan({"rate_limit": 0.5, "misses_schema": 0.4}, {"refusal": 0.2}, faulty_attempts=2)
    seen = []
    for seed in (7, 7, 8):
        with serving(plan=plan, latency=0, seed=seed) as server, ThreadPoolExecutor(8) as pool:
            for _ in range(3):
                list(pool.map(lambda i: call(server, body_of(f"quality=1 n={i}")), range(15)))
            seen.append(sorted((line["hash"], line["attempt"], line["fault"]) for line in server.billed()))
            assert server.stats()["statuses"]["200"] == len(seen[-1])
    assert seen[0] == seen[1] != seen[2]
    last = Counter(fault for _, attempt, fault in seen[0] if attempt == 2)
    assert set(last) == {None, "refusal"} and sum(last.values()) == 15
    always = {body_hash for body_hash, _, fault in seen[0] if fault == "refusal"}
    assert Counter(body_hash for body_hash, _, fault in seen[0] if fault == "refusal") == dict.fromkeys(always, 3)


def test_a_fault_can_begin_at_a_request():
    with serving(plan=faults.Plan(from_request={"insufficient_quota": 3}), latency=0) as server:
        assert [call(server, body_of(f"{i}"))[0] for i in range(5)] == [200, 200, 200, 429, 429]
        assert server.bill()["requests"] == 3


def test_an_answer_that_nobody_waits_for_is_billed():
    with serving(plan=faults.Plan({"late": 1.0}, late=0.4), latency=0) as server:
        with pytest.raises(TimeoutError):
            call(server, body_of("quality=1"), timeout=0.1)
        (line,) = server.billed()
        assert (line["fault"], line["whole"]) == ("late", False)
        assert server.bill()["requests"] == 1


def test_a_known_idempotency_key_is_not_billed_again():
    plan = faults.Plan({"lost_answer": 1.0}, faulty_attempts=1)
    with serving(plan=plan, latency=0, idempotent=True) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            call(server, body_of("a quality=2"), idempotency_key="a")
        status, _, data = call(server, body_of("a quality=2"), idempotency_key="a")
        (line,) = server.billed()
        assert (status, json.loads(data)["id"]) == (200, line["id"])
        assert call(server, body_of("a quality=2"), idempotency_key="b")[0] == 200
        assert call(server, body_of("another"), idempotency_key="b")[0] != 200
        assert server.bill()["requests"] == 2 and server.bill()["distinct"] == 1
    plan = faults.Plan({"late": 1.0}, late=0.3, faulty_attempts=1)
    with serving(plan=plan, latency=0, idempotent=True) as server:
        with pytest.raises(TimeoutError):
            call(server, body_of("c"), timeout=0.1, idempotency_key="c")
        assert call(server, body_of("c"), idempotency_key="c")[0] == 200  # waits for the first
        assert server.bill()["requests"] == 1
    with serving(plan=faults.Plan({"lost_answer": 1.0}, faulty_attempts=1), latency=0) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            call(server, body_of("a"), idempotency_key="a")
        assert call(server, body_of("a"), idempotency_key="a")[0] == 200
        assert server.bill() == {**server.bill(), "requests": 2, "distinct": 1}


def test_the_limit_of_requests_in_flight():
    plan = faults.Plan(always={"hang": 1.0}, hang=60)
    with serving(plan=plan, latency=0, max_in_flight=4) as server, ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(call, server, body_of(f"{i}")) for i in range(4)]
        while server.stats()["in_flight"] < 4:
            sleep(0.01)
        assert [call(server, body_of(f"more {i}"))[0] for i in range(3)] == [429] * 3
        counts = server.stats()
        assert (counts["in_flight"], counts["max_in_flight"], counts["faults"]) == (4, 5, {"hang": 4, "busy": 3})
        server.process.terminate()
        assert all(isinstance(wait.exception(), http.client.RemoteDisconnected) for wait in waits)
    # a client that keeps to the limit is never refused: the place is free before its answer is there
    with serving(latency=0.002, max_in_flight=4) as server, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda i: call(server, body_of(f"{i}"))[0], range(200))) == {200}
        assert server.stats()["max_in_flight"] == 4


STRICT = "response_format"
LOOSE = {**FORMAT, "json_schema": {"name": "g", "strict": True, "schema": {**SCHEMA, "additionalProperties": True}}}
SHORT = {**FORMAT, "json_schema": {"name": "g", "strict": True, "schema": {**SCHEMA, "required": ["grade"]}}}
WRONG = {**FORMAT, "json_schema": {"name": "g", "schema": {"type": "object", "properties": {"a": {"type": "int"}}}}}
TREE = {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}
RECURSIVE = {**FORMAT, "json_schema": {"name": "g", "schema": {**TREE, "$defs": {"tree": TREE}}}}


def test_what_the_interface_refuses():
    refused = [
        (body_of("x", stream=True), 400, "unsupported_parameter"),
        (body_of("x", response_format=LOOSE), 400, None),
        (body_of("x", response_format=SHORT), 400, None),
        (body_of("x", response_format={**FORMAT, "json_schema": {"name": "a b", "schema": SCHEMA}}), 400, None),
        (body_of("x", response_format={"type": "json_object"}), 400, None),
        (body_of("x", temperature=3), 400, None),
        (body_of("x", top_k=3), 400, None),
        (body_of("x", model="other"), 404, "model_not_found"),
        (body_of("x" * 70000), 400, "context_length_exceeded"),
        (body_of("x", messages=[]), 400, None),
        (body_of("x", response_format=WRONG), 400, None),
        (body_of("x", response_format=RECURSIVE), 400, None),
        (body_of("x", messages=[{"role": "grader", "content": "x"}]), 400, None),
        (body_of("x", messages=[{"role": "user", "content": "x", "id": 3}]), 400, None),
        (body_of("x", temperature=float("nan")), 400, None),
        (body_of("\ud800"), 400, None),
        (b"{", 400, None),
    ]
    with serving(latency=0) as server:
        for body, expected, code in refused:
            status, _, data = call(server, body)
            assert (status, json.loads(data)["error"]["code"]) == (expected, code), body
        status, _, data = call(server, body_of("x"), Authorization="Bearer other")
        assert (status, json.loads(data)["error"]["code"]) == (401, "invalid_api_key")
        assert [model["id"] for model in json.loads(call(server, b"", method="GET", path="/v1/models")[2])["data"]] == [
            "planted"
        ]
        assert call(server, b"", path="/v1/completions")[0] == 404
        assert server.bill()["requests"] == 0
        assert choice(call(server, body_of("x", max_tokens=2))[2])["finish_reason"] == "length"
    with serving(latency=0, dialect="vllm") as server:
        assert call(server, body_of("x", top_k=3))[0] == 200
        assert json.loads(call(server, body_of("x" * 70000))[2])["error"]["code"] == 400
        assert json.loads(call(server, body_of("x"), Authorization="")[2]) == {"error": "Unauthorized"}


def test_a_server_that_ends_has_whole_lines():
    plan = faults.Plan({"hang": 0.5}, hang=60)
    with serving(plan=plan, latency=0) as server, ThreadPoolExecutor(20) as pool:
        waits = [pool.submit(outcome, server, body_of(f"{i}")) for i in range(20)]
        while len(server.record.read_text().splitlines()) < 20 or server.stats()["in_flight"] > server.stats()[
            "faults"
        ].get("hang", 0):
            sleep(0.01)
        server.process.terminate()
        assert server.process.wait(10) == 0
        answered = [wait.result()[0] for wait in waits].count(200)
        assert len(server.log.read_text().splitlines()) == answered > 0


def test_an_obedient_model_gives_what_no_schema_has():
    with serving(mode="echo-injection", latency=0) as server:
        results = [call(server, body_of(each.text)) for each in INJECTIONS]
        bill, sent = server.billed(), server.requests()
    contents = [choice(data)["message"]["content"] for _, _, data in results]
    assert [line["valid"] for line in bill] == [fits(content) for content in contents]
    assert 3 < sum(line["valid"] for line in bill) < 20
    for injection, request in zip(INJECTIONS, sent, strict=True):
        roles, columns = ["system", "user"], {"grade": 5}
        assert broken(injection, request["body"], roles, columns, {"grade"}) == []
        assert broken(injection, request["body"], ["user"], {**columns, "id": 1}, {"grade"}) != []
        rendered = {"messages": [{"role": "user", "content": f"{injection.text} {' '.join(injection.never)}"}]}
        assert len(broken(injection, rendered, ["user"], columns, {"grade"})) == len(injection.never)
    assert len(INJECTIONS) == 30
