"""The same jobs give the same results wherever they run, and a failure is seen where it belongs."""

import json
import logging
import logging.handlers
import os
import platform
import queue
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gristmill.storage import files, layout
from gristmill.storage.remote.retry import RemoteIOConfig
from gristmill.tasks.engine import log_fields, options, shared
from gristmill.tasks.engine.code_version import code_version
from gristmill.tasks.engine.executors import Dask, executor
from gristmill.tasks.engine.jobs import Code, Job, JobResult, Phase, run_job
from gristmill.tasks.engine.log_fields import JobProgress, reported

ROOT = Path(__file__).resolve().parents[3]

# Workers find functions by the name of their module, so these lie in a module of their own.
CREW = """
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
from distributed import get_worker

from gristmill.storage import files
from gristmill.tasks.engine.log_fields import ProgressReport


def square(n):
    return n * n


def process(_):
    time.sleep(0.2)
    return os.getpid()


def faults(_):
    # pages that the system gave while two times 2 MB were taken and freed a hundred times
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytearray(2 << 20)
        pa.repeat(1, 1 << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def write(folder, shard, text="", broken=None):
    logging.getLogger("gristmill.tasks.crew").info("shard %d in work", shard)
    if shard == broken:
        raise ValueError(f"cannot read {text}")
    with open(Path(folder) / "worked", "a") as f:
        f.write(f"{shard}\\n")
    files.write_bytes(f"{folder}/part-{shard}", (text * shard).encode())
    return {"bytes": len(text) * shard}


def die_once(folder, shard):
    with open(Path(folder) / "started", "a") as f:
        f.write(f"{shard}\\n")
    if shard == 3 and not (Path(folder) / "died").exists():
        (Path(folder) / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"shard": shard}


def long_at_the_end(n):
    if n >= 310:
        time.sleep(0.3)
    return n, str(get_worker().get_current_task())


class Lost:
    # kills the worker that sends it
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def lose_once(mark):
    if Path(mark).exists():
        raise ValueError("the second run fails")
    Path(mark).touch()
    return Lost()


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def read(folder, shard):
    report = ProgressReport()
    for documents in range(1, 100_001):
        report.send(documents, 10 * documents)
    return {}


class Counted(str):
    # how often this process has loaded one
    loaded = 0

    def __reduce__(self):
        return counted, (str(self),)


def counted(text):
    Counted.loaded += 1
    return Counted(text)


def common(text, _):
    return os.getpid(), len(text), Counted.loaded


def imported(folder, shard):
    return {"packages": sorted({name.split(".")[0] for name in sys.modules}), "pid": os.getpid()}
"""


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crew")
    (folder / "gristmill_crew.py").write_text(CREW)
    sys.path.insert(0, str(folder))
    try:
        import gristmill_crew

        yield gristmill_crew
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("gristmill_crew", None)


def phase_of(work, folder: str, name: str, **common) -> Callable[[Job], JobResult]:
    """Does jobs of a phase."""
    code = Code((work.__module__,), code_version((work.__module__,)))
    return partial(run_job, Phase(work, code, folder, name, common))


def jobs_of(shards, **arguments) -> list[Job]:
    return [Job(shard, arguments) for shard in shards]


def records(results) -> list[tuple[int, dict, bool]]:
    return sorted((index, result.record, result.found) for index, result in results)


@pytest.fixture(scope="module")
def cluster(crew):
    """The local cluster, once for all tests: it costs seconds."""
    with executor("local", 2) as running:
        yield running


@pytest.fixture(params=["serial", "threads", "local"])
def running(request, crew):
    if request.param == "local":
        yield request.getfixturevalue("cluster")
    else:
        with executor(request.param, 2) as started:
            yield started


def drain(messages: queue.SimpleQueue, wanted: int, seconds: float = 20) -> list[tuple[int, str, dict]]:
    """Messages, waiting until there are `wanted` of them."""
    found = []
    until = time.monotonic() + seconds
    while len(found) < wanted and time.monotonic() < until:
        try:
            found.append(messages.get(timeout=0.1))
        except queue.Empty:
            pass
    return found


def lines(path: Path) -> list[int]:
    return sorted(int(line) for line in path.read_text().split())


def test_every_kind_gives_the_same_results_with_the_index_of_their_jobs(running, crew):
    jobs = [5, 3, 3, 0, -2, *range(20)]
    assert sorted(running.map(crew.square, jobs)) == [(i, n * n) for i, n in enumerate(jobs)]
    assert list(running.map(crew.square, [])) == []


def test_results_are_let_go_of(crew, cluster):
    for n in (5, 3, 2):
        list(cluster.map(crew.square, range(n)))
    deadline = time.monotonic() + 20
    while len(cluster.client.futures) > 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(cluster.client.futures) == 2


def test_dask_knows_of_as_many_jobs_as_keep_its_workers_busy(crew, cluster, monkeypatch):
    """However many there are: they are made when there is room for them, and each has the index of its own."""
    monkeypatch.setattr("gristmill.tasks.engine.executors._MIN_AHEAD", 6)
    monkeypatch.setattr(shared, "MAX_TOGETHER", 1)
    most = made = taken = 0

    def jobs():
        nonlocal made
        for number in range(100):
            made += 1
            assert made - taken <= 8  # four for each of two threads
            yield number

    found = []
    for result in cluster.map(crew.square, jobs()):
        found.append(result)
        taken += 1
        most = max(most, len(cluster.client.futures))
    assert sorted(found) == [(n, n * n) for n in range(100)]
    assert most <= 2 * 8  # those that are done are let go of with the next ones


@pytest.mark.extended
def test_short_jobs_are_sent_together_until_one_is_long(crew, cluster, monkeypatch):
    """The last ten of 320 jobs take longer than a task may: what was sent with them is sent again."""
    monkeypatch.setattr("gristmill.tasks.engine.executors._MIN_AHEAD", 6)
    found = dict(cluster.map(crew.long_at_the_end, range(320)))
    assert sorted(found) == list(range(320)) and all(number == index for index, (number, _) in found.items())
    tasks: dict[str, list[int]] = {}
    for index, (_, task) in found.items():
        tasks.setdefault(task, []).append(index)
    assert max(map(len, tasks.values())) > 10, "short ones are together"
    for jobs in tasks.values():
        assert sum(index >= 310 for index in jobs) <= 1, "none waits after a long one"


def test_threads_make_jobs_when_there_is_room_for_them():
    made = taken = 0

    def jobs():
        nonlocal made
        for number in range(50):
            made += 1
            assert made - taken <= 8
            yield number

    with executor("threads", 2) as threads:
        for index, value in threads.map(lambda number: -number, jobs()):
            assert value == -index
            taken += 1
    assert taken == 50


def test_what_jobs_share_is_sent_to_a_worker_once(crew, cluster):
    """A megabyte, for 500 jobs of two workers."""
    work = partial(crew.common, crew.Counted("x" * (1 << 20)))
    sizes = [len(shared.dumps(job)) for job in jobs_of(range(3))]
    assert max(sizes) < 200
    found = [result for _, result in cluster.map(work, range(500))]
    assert {size for _, size, _ in found} == {1 << 20}
    asked = {}
    for pid, _, loaded in found:
        asked[pid] = max(asked.get(pid, 0), loaded)
    assert len(asked) == 2 and max(asked.values()) == 1, "each loads it once"
    assert list(Path(cluster.folder).glob(".*.tmp")) == [], "nothing is left of it"


def fail_once(dask_worker, what):
    """Let the next reading of a phase's work on this worker fail, as a connection would."""
    from gristmill.tasks.engine import shared

    whole = shared._read

    def read(work):
        shared._read = whole
        raise OSError(what)

    shared._read = read


def test_a_worker_that_cannot_begin_a_job_once_ends_nothing(crew, cluster, monkeypatch):
    cluster.client.run(fail_once, what="Timed out trying to connect to tls://127.0.0.1:1 after 30 s")
    jobs = range(40)
    assert sorted(cluster.map(crew.square, jobs)) == [(n, n * n) for n in jobs]


def test_work_that_no_worker_can_read_is_one_sentence(crew, cluster, monkeypatch):
    monkeypatch.setattr(shared, "ATTEMPTS", 2)
    monkeypatch.setattr(shared, "leave", lambda folder, work: shared.SharedWork(f"{folder}/none", "0"))
    with pytest.raises(OSError, match="workers cannot read the file that .* need, .*/none.*: set GRISTMILL_HOME"):
        list(cluster.map(crew.square, range(4)))


def test_work_that_is_not_what_the_flow_has_written_is_not_run(crew, tmp_path):
    left = shared.leave(str(tmp_path), crew.square)
    Path(left.path).write_bytes(shared.dumps(crew.die))
    answer, _ = shared.call(left, shared.dumps([2]), 0)
    assert isinstance(answer, shared.NotBegun) and "differs from what the run wrote" in answer.reason
    shared.take_back(left)
    assert os.listdir(tmp_path) == []


def test_a_home_in_a_store_has_the_work_while_a_phase_lasts(crew):
    left = shared.leave("memory://home/work", crew.square)
    assert shared.call(left, shared.dumps([3, 4]), 0)[0] == [9, 16]
    shared.take_back(left)
    assert files.names("memory://home/work") == []


def test_a_scheduler_that_does_not_answer_once_is_asked_again(crew, cluster, monkeypatch):
    answers, gather = iter([OSError("Timed out trying to connect after 30 s")]), cluster.client.gather

    def late(futures):
        for error in answers:
            raise error
        return gather(futures)

    monkeypatch.setattr(cluster.client, "gather", late)
    assert sorted(cluster.map(crew.square, range(5))) == [(n, n * n) for n in range(5)]


def refuse(n):
    raise OSError(f"no file {n}")


def test_an_oserror_of_a_job_is_its_own(cluster):
    with pytest.raises(OSError, match="no file 0"):
        list(cluster.map(refuse, range(1)))


# Small jobs of 64 processes, each of which sleeps; a thread kills some of them, and the scheduler stands still for half
# of the time.
CROWD = """
import os, random, signal, sys, threading, time
import psutil
from gristmill.tasks.engine.executors import executor

def nap(n):
    time.sleep(0.2)
    return n

def slow(dask_scheduler):
    from tornado.ioloop import PeriodicCallback
    dask_scheduler.slow = PeriodicCallback(lambda: time.sleep(0.5), 1000)
    dask_scheduler.slow.start()

def kill(pids, stop):
    for pid in pids:
        if stop.wait(1.0):
            return
        os.kill(pid, signal.SIGKILL)

if __name__ == "__main__":
    with executor("local", 64) as running:
        pids = list(running.client.run(os.getpid).values())
        running.client.run_on_scheduler(slow)
        stop = threading.Event()
        killer = threading.Thread(target=kill, args=(pids[:8], stop))
        killer.start()
        found = sorted(running.map(nap, range(3000)))
        stop.set()
        killer.join()
    assert found == [(n, n) for n in range(3000)]
    print("all", len(pids))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_workers_that_die_and_a_slow_scheduler_end_nothing(tmp_path):
    (tmp_path / "crowd.py").write_text(CROWD)
    done = subprocess.run([sys.executable, str(tmp_path / "crowd.py")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "all 64\n", done.stderr[-2000:]


def test_how_many_work(crew, cluster):
    with executor("serial", 5) as serial, executor("threads", 3) as threads, executor("threads") as cores:
        assert (serial.workers, threads.workers, cores.workers) == (1, 3, os.cpu_count())
    pids = {pid for _, pid in cluster.map(crew.process, range(8))}
    assert len(pids) == 2 and os.getpid() not in pids


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of other C libraries nothing is asked")
def test_workers_keep_what_they_free(crew, cluster):
    """A hundred times 2 MB, of Python and of Arrow, would be 102,400 pages of 4 kB."""
    assert max(faults for _, faults in cluster.map(crew.faults, range(4))) < 10_000


def test_serial_is_in_order_and_threads_work_at_the_same_time():
    with executor("serial") as serial:
        assert [index for index, _ in serial.map(str, "abcd")] == [0, 1, 2, 3]
    together = threading.Barrier(2, timeout=20)
    with executor("threads", 2) as threads:
        assert len(list(threads.map(lambda _: together.wait(), range(2)))) == 2


def test_jobs_leave_files_and_records_and_are_not_done_again(running, crew, tmp_path):
    folder = str(tmp_path)
    write = phase_of(crew.write, folder, "write", text="ab")
    assert records(running.map(write, jobs_of(range(4)))) == [(i, {"bytes": 2 * i}, False) for i in range(4)]
    done = layout.done_record(folder, "write", 3)
    assert done["record"] == {"bytes": 6}
    assert done["files"] == {"part-3": {"bytes": 6, "content": files.digest(b"ababab")}}
    assert records(running.map(write, jobs_of(range(6)))) == [(i, {"bytes": 2 * i}, i < 4) for i in range(6)]
    assert lines(tmp_path / "worked") == list(range(6))
    # another phase of the same stage is other work
    assert [result.found for _, result in running.map(phase_of(crew.write, folder, "other"), jobs_of([1]))] == [False]
    assert [(tmp_path / f"part-{i}").read_text() for i in (0, 2, 5)] == ["", "abab", "ab" * 5]


def test_a_failing_job_reaches_the_caller_with_its_place(running, crew, tmp_path):
    write = phase_of(crew.write, str(tmp_path), "write", broken=2)
    with pytest.raises(ValueError, match="cannot read x") as error:
        list(running.map(write, jobs_of(range(4), text="x")))
    assert error.value.__notes__ == [f"job 2 of phase write of {tmp_path}"]
    assert layout.done_record(str(tmp_path), "write", 2) is None
    # the executor works on after it
    assert list(running.map(crew.square, [7])) == [(0, 49)]


def test_what_jobs_log_arrives(running, crew, tmp_path, monkeypatch):
    """Once: the log of this process does not get it otherwise."""
    lines = logging.handlers.QueueHandler(queue.SimpleQueue())
    monkeypatch.setattr(logging.getLogger(), "handlers", [lines])
    while not running.messages.empty():
        running.messages.get()
    list(running.map(phase_of(crew.write, str(tmp_path), "write"), jobs_of(range(3))))
    place = {"stage": tmp_path.name, "phase": "write"}
    found = drain(running.messages, 3)
    assert sorted(found, key=str) == [
        (logging.INFO, f"gristmill.tasks.crew: shard {i} in work", place | {"shard": i}) for i in range(3)
    ]
    assert lines.queue.empty()


def test_what_running_jobs_tell_arrives_and_is_no_line_of_the_log(running, crew, tmp_path, monkeypatch):
    """Each of a job's messages is a second behind the one before: a hundred thousand calls are a few of them."""
    lines = logging.handlers.QueueHandler(queue.SimpleQueue())
    monkeypatch.setattr(logging.getLogger(), "handlers", [lines])
    while not running.messages.empty():
        running.messages.get()
    began = time.monotonic()
    list(running.map(phase_of(crew.read, str(tmp_path), "read"), jobs_of(range(3))))
    passed = time.monotonic() - began
    found = []
    while len({fields["shard"] for fields, _ in found}) < 3:  # a slow job may tell twice before another begins
        found += [(fields, reported(fields)) for _, _, fields in drain(running.messages, 1)]
    assert 3 <= len(found) <= 3 * (passed + 1)
    first = {fields["shard"]: progress for fields, progress in reversed(found)}
    assert first == dict.fromkeys(range(3), JobProgress(1, 10))
    assert all(fields["phase"] == "read" and progress.read == 10 * progress.documents for fields, progress in found)
    assert lines.queue.empty()


@pytest.mark.extended
def test_a_workers_own_output_is_lines_of_json(crew, tmp_path):
    """A worker by address, as it runs on another machine: its output is read there, and the flow has the lines, too;
    not those of another run that shares the worker."""
    from distributed import Client, LocalCluster

    path = os.pathsep.join([str(ROOT), str(Path(crew.__file__).parent)])
    output = tmp_path / "output"
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=logging.CRITICAL) as scheduler,
        Client(scheduler) as client,
        open(output, "w") as written,
    ):
        address = scheduler.scheduler_address
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard", "--no-nanny"]
        worker = subprocess.Popen(
            [*command, "--nthreads", "1", "--local-directory", str(tmp_path)],
            env=os.environ | {"PYTHONPATH": path},
            stderr=written,
        )
        try:
            client.wait_for_workers(1, timeout=120)
            with (
                log_fields.bound(run="ours"),
                executor("dask", address=address, json_lines=True, home=str(tmp_path)) as running,
            ):
                write = phase_of(crew.write, str(tmp_path), "write")
                list(running.map(write, jobs_of([1])))
                with log_fields.bound(run="another"):
                    other = phase_of(crew.write, str(tmp_path), "write")
                list(running.map(other, jobs_of([2])))
                list(running.map(write, jobs_of([3])))
                found = drain(running.messages, 2)
        finally:
            worker.terminate()
            worker.wait()
    place = {"run": "ours", "stage": tmp_path.name, "phase": "write"}
    assert found == [(logging.INFO, f"gristmill.tasks.crew: shard {i} in work", place | {"shard": i}) for i in (1, 3)]
    lines = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    ours = [line for line in lines if line["logger"] == "gristmill.tasks.crew"]
    assert [(line["run"], line["shard"], line["message"]) for line in ours] == [
        ("ours", 1, "shard 1 in work"),
        ("another", 2, "shard 2 in work"),
        ("ours", 3, "shard 3 in work"),
    ]
    assert all(line["stage"] == tmp_path.name and line["level"] == "INFO" for line in ours)


def test_loggers_are_left_as_they_were():
    names = ("gristmill.tasks", "gristmill.storage")

    def now() -> list[tuple]:
        return [(each.level, each.propagate, [*each.handlers]) for each in map(logging.getLogger, names)]

    before = now()
    with executor("threads", 2):
        assert logging.getLogger("gristmill.tasks").isEnabledFor(logging.INFO)
    assert now() == before


def test_a_killed_worker_costs_its_jobs_a_second_run(cluster, crew, tmp_path):
    die = phase_of(crew.die_once, str(tmp_path), "die")
    # what the dead worker had finished is lost to the scheduler, and found done when it is asked for again
    assert [record for _, record, _ in records(cluster.map(die, jobs_of(range(8))))] == [{"shard": i} for i in range(8)]
    assert (tmp_path / "died").exists()
    assert lines(tmp_path / "started") == sorted([3, *range(8)])


@pytest.mark.extended
@pytest.mark.timeout(60)
def test_a_result_that_is_lost_and_fails_when_it_is_made_again_is_an_error(cluster, crew, tmp_path):
    with pytest.raises(ValueError, match="the second run fails"):
        list(cluster.map(crew.lose_once, [str(tmp_path / "ran")]))


@pytest.mark.extended
def test_a_job_that_kills_its_workers_is_named(cluster, crew):
    with pytest.raises(RuntimeError, match="workers died repeatedly, most likely out of memory, at job 7"):
        list(cluster.map(crew.die, ["job 7"]))


def test_by_address(crew, tmp_path):
    from distributed import Client, LocalCluster

    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.ERROR,
    ) as foreign:
        address = foreign.scheduler_address
        assert address.startswith("tcp://127.0.0.1:")
        with executor("dask", address=address, home=str(tmp_path / "home")) as running:
            assert isinstance(running, Dask)
            assert sorted(running.map(crew.square, range(5))) == [(i, i * i) for i in range(5)]
            list(running.map(phase_of(crew.write, str(tmp_path), "write"), jobs_of([1])))
            place = {"stage": tmp_path.name, "phase": "write", "shard": 1}
            assert drain(running.messages, 1) == [(logging.INFO, "gristmill.tasks.crew: shard 1 in work", place)]
        assert list((tmp_path / "home").rglob("*.tmp")) == [], "the work of phases that have ended is not left"
        # a cluster that is not ours goes on
        with Client(address) as client:
            assert client.submit(crew.square, 6).result() == 36


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_without_our_code_is_an_error_at_once(tmp_path):
    """Another package of the name stands before ours; the worker's nanny would start it again for ever."""
    (tmp_path / "gristmill").mkdir()
    (tmp_path / "gristmill" / "__init__.py").touch()
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=logging.CRITICAL) as scheduler,
        Client(scheduler) as client,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler.scheduler_address, "--no-dashboard"]
        worker = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(1, timeout=60)
            with pytest.raises(ImportError, match="cannot import what its jobs need .*install the same code there"):
                with executor("dask", address=scheduler.scheduler_address, home=str(tmp_path)):
                    pass
        finally:
            worker.terminate()
            worker.wait()


@pytest.mark.parametrize(
    "kind,message", [("dask", "scheduler's address.*GRISTMILL_DASK_ADDRESS"), ("spark", "no executor 'spark'")]
)
def test_an_executor_that_cannot_be_is_an_error(kind, message):
    with pytest.raises(ValueError, match=message), executor(kind):
        pass


@pytest.mark.extended
def test_workers_import_no_flow_and_do_not_run_the_callers_script_again(crew, tmp_path):
    """A user's script without a main guard, which has the flows imported."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os
            import sys
            import gristmill_crew
            import gristmill.flows.pipeline
            from gristmill.tasks.engine.executors import executor
            from gristmill.tasks.engine.code_version import code_version
            from functools import partial
            from gristmill.tasks.engine.jobs import Code, Job, Phase, run_job
            print("script ran in", os.getpid())
            code = Code(("gristmill_crew",), code_version(("gristmill_crew",)))
            watched = {"prefect", "mlflow", "torch", "gristmill"}
            with executor("local", 2) as running:
                phase = Phase(gristmill_crew.imported, code, sys.argv[1], "look")
                for _, result in running.map(partial(run_job, phase), [Job(i) for i in range(4)]):
                    record = result.record
                    assert record["pid"] != os.getpid()
                    print("worker has", sorted(watched.intersection(record["packages"])))
            assert __name__ == "__main__"
            """
        )
    )
    path = os.pathsep.join([str(ROOT), str(Path(crew.__file__).parent)])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect")},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    ran, *workers = done.stdout.splitlines()
    assert ran.startswith("script ran in")
    assert workers == ["worker has ['gristmill']"] * 4


def test_a_worker_with_other_code_is_refused(crew, tmp_path):
    phase = Phase(crew.write, Code(("gristmill_crew",), "0123456789abcdef"), str(tmp_path), "write")
    with (
        executor("serial") as running,
        pytest.raises(RuntimeError, match="gristmill_crew has version .* 0123456789abcdef"),
    ):
        list(running.map(partial(run_job, phase), jobs_of([1])))
    assert layout.done_record(str(tmp_path), "write", 1) is None


def seen(folder, number):
    return {"per_host": options.current().remote_io.per_host, "memory": options.current().memory}


def test_a_job_has_the_options_of_the_process_that_made_it(tmp_path):
    before = options.current()
    try:
        options.configure(options.JobOptions(RemoteIOConfig(per_host=7), memory=5))
        look = phase_of(seen, str(tmp_path), "look")
        options.configure(before)
        assert look(Job(0)).record == {"per_host": 7, "memory": 5}
    finally:
        options.configure(before)
