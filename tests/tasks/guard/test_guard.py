"""Whatever a page does to the process that works on it, it costs that page: real loops, real crashes, real kills."""

import gc
import logging
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.guard import channel, child, parent
from gristmill.tasks.guard.channel import Ring, readable
from gristmill.tasks.guard.parent import Guard, Limits

ROOT = Path(__file__).resolve().parents[3]
MB = 1 << 20
QUICK = Limits(page_seconds=0.2, page_wall_seconds=20, page_memory=64 * MB)
PATIENT = Limits(page_seconds=20, page_memory=64 * MB)
LINUX = sys.platform.startswith("linux")

TIMEOUT = {"rule": "page_timeout", "detail": "over 0.2 s of processor time"}
MEMORY = {"rule": "page_memory", "detail": f"over {64 * MB} bytes"}


def crash(detail):
    return {"rule": "page_crash", "detail": detail}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def results(calls, limits=PATIENT, work="faulty_pages:page"):
    with Guard(work, limits) as guard:
        return list(guard.map(calls))


@pytest.mark.parametrize("fault, value", [("loop", None), ("loop_in_c", None), ("deep", 100_000)])
def test_a_page_that_loops_costs_itself(fault, value):
    start = time.monotonic()
    found = results([("fine", "before"), (fault, value), ("fine", "after")], QUICK)
    assert found == [{"text": "before"}, TIMEOUT, {"text": "after"}]
    assert time.monotonic() - start < 20


def test_a_page_that_sleeps_is_stopped_by_the_clock():
    limits = Limits(page_seconds=10, page_wall_seconds=0.5)
    lost = {"rule": "page_timeout", "detail": "over 0.5 s by the clock"}
    assert results([("fine", 1), ("sleep", None), ("fine", 2)], limits) == [{"text": 1}, lost, {"text": 2}]


@pytest.mark.extended
def test_time_does_not_run_while_a_worker_waits_for_calls_or_readers():
    limits = Limits(page_seconds=10, page_wall_seconds=0.4)

    def slowly():
        for _ in range(2):
            time.sleep(0.6)
            yield "huge", 3 * MB

    with Guard("faulty_pages:page", limits) as guard:
        for result in guard.map(slowly()):
            time.sleep(0.6)
            assert result == {"text": "x" * 3 * MB}


@pytest.mark.skipif(not LINUX, reason="the kernel does not limit the address space")
@pytest.mark.parametrize("fault", ["allocate", "allocate_at_once"])
def test_a_page_that_explodes_costs_itself(fault):
    found = results([("fine", 1), (fault, 32 * MB), (fault, 8 << 30), (fault, 32 * MB), ("fine", 2)])
    assert found[0] == {"text": 1} and found[2] == MEMORY and found[4] == {"text": 2}
    assert found[1] == found[3] and found[1]["size"] in (32, 32 * MB)


@pytest.mark.skipif(not LINUX, reason="the kernel does not limit the address space")
def test_what_a_page_leaves_behind_is_not_the_next_page_s_burden():
    """20 pages of 40 MB that are never freed, with 64 MB for each: no page is lost, and workers are replaced."""
    found = results([("fine", 1), *[("leak", 40 * MB)] * 20, ("leaked", None)])
    assert found[:-1] == [{"text": 1}, *[{"text": "leaked"}] * 20]
    assert found[-1]["bytes"] <= 40 * MB


def test_a_result_over_its_limit_is_dropped_and_one_below_is_not():
    limits = Limits(page_result=MB)
    lost = {"rule": "page_memory", "detail": f"a result over {MB} bytes"}
    found = results([("huge", MB - 100), ("huge", MB), ("fine", 1)], limits)
    assert found == [{"text": "x" * (MB - 100)}, lost, {"text": 1}]


@pytest.mark.parametrize(
    "fault, value, detail",
    [
        ("segfault", None, "killed by SIGSEGV"),
        ("abort", None, "killed by SIGABRT"),
        ("killed", None, "killed by SIGKILL"),
        ("leave", 0, "exited with status 0"),
        ("leave", 3, "exited with status 3"),
    ],
)
def test_a_page_that_ends_its_process_costs_itself(fault, value, detail):
    found = results([("fine", 1), (fault, value), (fault, value), ("fine", 2)])
    assert found == [{"text": 1}, crash(detail), crash(detail), {"text": 2}]


def test_a_page_does_not_pay_for_the_damage_of_another():
    found = results([("innocent", 1), ("crash_later", None), ("innocent", 2), ("innocent", 3)])
    assert found == [{"text": 1}, {"text": "damaged"}, {"text": 2}, {"text": 3}]


@pytest.mark.parametrize("fault", ["killed_once", "zygote_killed_once"])
def test_a_kill_from_outside_costs_nothing(tmp_path, fault):
    calls = [("fine", 1), (fault, str(tmp_path / "killed")), ("fine", 2)]
    assert results(calls) == [{"text": 1}, {"text": "survived"}, {"text": 2}]
    assert (tmp_path / "killed").exists()


def test_kills_again_and_again_from_another_process_change_no_result():
    n = 30
    with Guard("faulty_pages:page", PATIENT) as guard:
        found, killed = [], 0
        for i, result in enumerate(guard.map(("fine", "x" * 50_000 + str(i)) for i in range(n * 10))):
            found.append(result)
            if i % 25 == 10 and guard._worker:
                with suppress(psutil.NoSuchProcess):  # the one killed before, whose results are still being read
                    psutil.Process(guard._worker.process).kill()
                    killed += 1
    assert killed > 3
    assert found == [{"text": "x" * 50_000 + str(i)} for i in range(n * 10)]


def test_a_worker_and_a_zygote_killed_between_two_maps_are_replaced():
    with Guard("faulty_pages:page", PATIENT) as guard:
        (first,) = guard.map([("process", None)])
        psutil.Process(first["process"]).kill()
        (second,) = guard.map([("process", None)])
        assert second["zygote"] == first["zygote"] and second["process"] != first["process"]
        psutil.Process(first["zygote"]).kill()
        assert wait_until(lambda: gone(first["zygote"]) and gone(second["process"]))
        (third,) = guard.map([("process", None)])
        assert third["zygote"] != first["zygote"]


def test_errors_of_the_function_are_told_in_the_same_words_every_time():
    calls = [(fault, 4) for fault in ("odd", "mute", "stop", "raise_set", "not_plain", "no_dict")]
    found = results(calls)
    assert {result["rule"] for result in found} == {"extractor_error"}
    details = [result["detail"] for result in found]
    assert re.fullmatch(r"ValueError: odd \? <object object at 0x\.\.\.> (long )+lo?n?g?", details[0])
    assert len(details[0]) == child.DETAIL
    assert details[1:3] == ["Mute: (it has no message)", "SystemExit: 4"]
    assert details[3].startswith("KeyError: {'")
    assert details[4:] == [
        "TypeError: can not serialize 'set' object",
        "TypeError: the result is not a dict but a list",
    ]
    parent._zygotes.pop(("faulty_pages:page", ((), ()))).close()
    assert results(calls) == found  # another process, another seed of hashes


def test_what_the_rehearsal_has_loaded_every_worker_has_however_long_it_took():
    """The first call takes longer than any page may; workers are killed in between."""
    with Guard("faulty_pages:page", Limits(page_seconds=0.2), ("slow_start", 0.6)) as guard:
        found = list(guard.map([("started", None), ("abort", None), ("started", None)]))
    assert [found[0], found[2]] == [{"started": 1}] * 2
    assert found[1]["rule"] == "page_crash"


def test_what_a_parser_prints_goes_nowhere(capfd):
    assert results([("noisy", i) for i in range(50)]) == [{"text": i} for i in range(50)]
    assert capfd.readouterr() == ("", "")


def test_a_crash_is_logged_once_with_where_it_was(caplog):
    with caplog.at_level(logging.DEBUG, "gristmill.tasks.guard"):
        results([("segfault", None), ("fine", 1), ("segfault", None), ("loop", None)], QUICK)
    crashed, looped = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "page_crash, killed by SIGSEGV" in crashed and "page_timeout" in looped
    assert "\n" not in crashed + looped
    in_crash, in_loop = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert "in segfault" in in_crash and "in loop" in in_loop


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(plain)
def test_plain_data_arrives_as_it_was(value):
    with Guard("faulty_pages:page", PATIENT) as guard:
        assert list(guard.map([("echo", value), ("echo", "\ud800\udfff a\0b")])) == [
            {"value": value},
            {"value": "\ud800\udfff a\0b"},
        ]


def test_a_page_of_50_mb_goes_through_both_ways():
    page = random.Random(5).randbytes(50_000_000)
    found = results([("fine", 1), ("echo", page), ("length", page), ("fine", 2)], Limits())
    assert found == [{"text": 1}, {"value": page}, {"length": len(page)}, {"text": 2}]


KINDS = {
    "loop": TIMEOUT,
    "allocate_at_once": MEMORY,
    "segfault": crash("killed by SIGSEGV"),
    "leave": crash("exited with status 7"),
    "stop": {"rule": "extractor_error", "detail": "SystemExit: 7"},
}


def mixed(draw, n, bad):
    """Calls, and what must come of them."""
    calls, expected = [], []
    for i in range(n):
        if draw.random() < bad:
            fault = draw.choice([*KINDS] if LINUX else ["loop", "segfault", "leave", "stop"])
            calls.append((fault, 8 << 30 if fault == "allocate_at_once" else 7))
            expected.append(KINDS[fault])
        else:
            text = f"{i} " + "text " * int(draw.paretovariate(0.7) * 20) * draw.choice([0, 1, 20])
            calls.append(("fine", text[:300_000]))
            expected.append({"text": text[:300_000]})
    return calls, expected


@pytest.mark.parametrize("seed, window", [(1, 2), (1, 5_000), (1, 2 * MB), (2, 100_000)])
def test_any_mix_gives_each_page_its_own_result_whatever_goes_together(monkeypatch, seed, window):
    monkeypatch.setattr(parent, "WINDOW", window)
    calls, expected = mixed(random.Random(seed), 40, 0.2)
    assert results(calls, QUICK) == expected


def test_thousands_of_pages_keep_their_order_and_few_are_held():
    calls, expected = mixed(random.Random(4), 3000, 0.003)
    taken = given = 0

    def source():
        nonlocal taken
        for call in calls:
            taken += len(call[1]) if isinstance(call[1], str) else 0
            yield call

    with Guard("faulty_pages:page", QUICK) as guard:
        for result, wanted in zip(guard.map(source()), expected, strict=True):
            assert result == wanted
            given += len(result.get("text", ""))
            assert taken - given < parent.WINDOW + 600_000


def test_a_source_that_fails_and_a_reader_that_stops_leave_a_guard_that_works():
    def broken():
        yield "fine", 1
        raise OSError("the file ends")

    with Guard("faulty_pages:page", QUICK) as guard:
        with pytest.raises(OSError, match="the file ends"):
            list(guard.map(broken()))
        some = guard.map([("fine", 1), ("loop", None), ("fine", 2)] * 2)
        assert next(some) == {"text": 1}
        with pytest.raises(RuntimeError, match="one guard per thread"):
            next(guard.map([("fine", 1)]))
        some.close()
        assert list(guard.map([("fine", 3)])) == [{"text": 3}]
        assert list(guard.map([])) == []


def test_threads_have_a_worker_each_and_share_what_was_imported():
    together = threading.Barrier(4)

    def work(i):
        with Guard("faulty_pages:page", QUICK) as guard:
            together.wait(30)
            (processes,) = guard.map([("process", None)])
            calls = [("fine", f"{i} {n}" * 100) for n in range(100)]
            calls[40 + i] = ("segfault", None)
            found = list(guard.map(calls))
        assert found.pop(40 + i) == crash("killed by SIGSEGV")
        assert found == [{"text": f"{i} {n}" * 100} for n in range(100) if n != 40 + i]
        return processes

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert len({p["process"] for p in found}) == 4 and len({p["zygote"] for p in found}) == 1
    assert {p["zygote_threads"] for p in found} == {1}
    assert [p["threads"] for p in found] == [["1", "1"]] * 4


def test_no_process_and_no_pipe_is_left_behind():
    results([("fine", 1)])
    zygote = parent._zygotes["faulty_pages:page", ((), ())].process.pid
    before = psutil.Process().num_fds()
    for _ in range(3):
        results([("fine", 1), ("segfault", None), ("fine", 2)])
        with Guard("faulty_pages:page", PATIENT) as guard:
            next(guard.map([("fine", 1)]))
    assert psutil.Process().num_fds() == before
    assert psutil.Process(zygote).children() == []


@pytest.mark.parametrize("work", ["faulty_pages:nothing", "no_such_module:page", "faulty_pages"])
def test_a_function_that_is_not_there_is_named(work):
    with pytest.raises(RuntimeError, match=f"cannot import {work}: \\w+Error"):
        results([("fine", 1)], work=work)


def test_a_zygote_without_work_leaves_and_the_next_guard_starts_another(monkeypatch, tmp_path):
    idle = tmp_path / "idle_pages.py"
    idle.write_text(
        "from gristmill.tasks.guard import child\nimport sys\nsys.modules['__main__'].IDLE_SECONDS = 0.2\n"
        "from faulty_pages import page\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert results([("fine", 1)], work="idle_pages:page") == [{"text": 1}]
    parent._zygotes["idle_pages:page", ((), ())].process.wait(20)
    assert results([("fine", 2)], work="idle_pages:page") == [{"text": 2}]


def gone(process):
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def looping(tmp_path):
    """`looping(group)` starts a parent whose page loops; gives the parent, and the numbers of worker and zygote."""
    started = []

    def start(group):
        begun = tmp_path / "begun"
        script = textwrap.dedent(f"""
            import signal
            from gristmill.tasks.guard.parent import Limits
            from gristmill.tasks.guard.parent import Guard
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
            with Guard("faulty_pages:page", Limits()) as guard:
                print(list(guard.map([("begun_loop", {str(begun)!r})])))
        """)
        path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
        main = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=group,
        )
        started.append(main)
        wait_until(lambda: begun.exists() or main.poll() is not None, 30)
        return main, *map(int, begun.read_text().split())

    yield start
    for main in started:
        main.kill()
        main.wait()
        main.stderr.close()


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_nothing_outlives_a_parent_that_is_killed(looping):
    main, worker, zygote = looping(group=False)
    assert not gone(worker) and not gone(zygote)
    main.kill()
    main.wait()
    assert wait_until(lambda: gone(worker) and gone(zygote))


@pytest.mark.skipif(not LINUX, reason="only Linux kills a child with its parent")
def test_a_worker_does_not_outlive_its_zygote(looping):
    _, worker, zygote = looping(group=False)
    os.kill(zygote, signal.SIGKILL)
    assert wait_until(lambda: gone(worker))


def test_an_interrupt_is_the_parent_s_alone(looping):
    """As Ctrl-C does it, to the whole group of the terminal: one traceback, nothing left."""
    main, worker, zygote = looping(group=True)
    os.killpg(main.pid, signal.SIGINT)
    _, told = main.communicate(timeout=20)
    assert told.count("Traceback") == 1 and told.count("KeyboardInterrupt") == 1
    assert wait_until(lambda: gone(worker) and gone(zygote))


def test_a_process_above_its_resident_memory_is_stopped():
    """What the zygote does where the kernel does not limit the address space."""
    code = "kept = b'x' * 100_000_000; print('allocated', flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert not child.stop_above(process.pid, 1 << 32)
        assert child.stop_above(process.pid, 50_000_000)
        assert process.wait(10) == -signal.SIGKILL
    assert not child.stop_above(process.pid, 0)


def test_what_lies_in_the_ring_stays_until_it_is_let_go_and_then_makes_room():
    draw = random.Random(6)
    channel = Ring(10_000)
    reader = readable(channel.fd)
    lying = deque()
    refused = total = 0
    for _ in range(5_000):
        data = draw.randbytes(draw.choice([0, 1, 100, 3_000, 5_000]))
        if lies := channel.put(data):
            lying.append((data, *lies))
            total += len(data)
        else:
            assert lying  # an empty ring takes anything that is not larger than half of it
            refused += 1
        assert all(reader[place : place + len(data)] == data for data, place, _ in lying)
        while lying and draw.random() < 0.55:
            channel.let_go(lying.popleft()[2])
    assert refused and total > 100 * channel.size
    channel.clear()
    assert channel.put(bytes(10_000)) and not channel.put(b"1")
    channel.close()


def test_limits_are_sent_by_their_names():
    assert child.Allowance._fields == tuple(Limits.model_fields)
    assert channel.unpack(channel.pack(child.Allowance(**Limits().model_dump()))) == [*Limits().model_dump().values()]


@pytest.mark.skipif(not LINUX, reason="the kernel does not limit the address space")
def test_a_result_that_was_given_out_is_not_held():
    """Also where workers were replaced: a result may have many megabytes, and calls are taken ahead."""
    with Guard("faulty_pages:page", PATIENT) as guard:
        for result in guard.map([("leak", 40 * MB), *[("huge", 3 * MB)] * 3] * 3):
            held = [each for each in gc.get_objects() if isinstance(each, parent._Call) and each.result is result]
            assert not held
