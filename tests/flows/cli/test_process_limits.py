"""Limits that a shell has set (ulimit), a home that cannot be written, and errors that nobody expects: one line with a
fix each."""

import errno
import resource
import subprocess
import sys

import pytest

from gristmill.flows.cli import main
from gristmill.flows.machine import failures, limits
from gristmill.tasks.engine.own_code import OwnCodeError


def limited(kind: int, soft: int, command: str) -> subprocess.CompletedProcess:
    """A command in a process with a limit."""
    code = (
        f"import resource, sys; resource.setrlimit({kind}, ({soft}, {soft})); sys.argv[1:] = {command.split()!r}\n"
        "from gristmill.flows.cli import main; main()"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("bytes_", [150_000_000, 300_000_000, 450_000_000])
def test_too_few_addresses_are_one_line_with_the_fix(bytes_):
    done = limited(resource.RLIMIT_AS, bytes_, "check demo")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "GB of address space, but its libraries need 0.5 GB" in line and line.endswith("ulimit -v unlimited")


@pytest.fixture
def limits_of(monkeypatch):
    """Sets the limits that a process finds; returns those that it sets itself."""
    now = {resource.RLIMIT_NOFILE: (4096, 4096), resource.RLIMIT_AS: (resource.RLIM_INFINITY,) * 2}
    monkeypatch.setattr(limits.resource, "getrlimit", now.__getitem__)
    monkeypatch.setattr(limits.resource, "setrlimit", now.__setitem__)
    return now


def test_a_run_opens_as_many_files_as_it_may_allow_itself(limits_of):
    limits_of[resource.RLIMIT_NOFILE] = (64, 100_000)
    limits.check_run()
    assert limits_of[resource.RLIMIT_NOFILE] == (4096, 100_000)


def test_a_run_that_may_not_open_enough_files_is_refused_with_the_fix(limits_of):
    limits_of[resource.RLIMIT_NOFILE] = (64, 64)
    with pytest.raises(RuntimeError, match=r"may open 64 files, but a run needs at least 128: .*, ulimit -n 4096$"):
        limits.check_run()


def test_a_run_with_few_addresses_is_refused_with_the_fix(limits_of):
    limits_of[resource.RLIMIT_AS] = (10**9, 10**9)
    with pytest.raises(RuntimeError, match=r"may use 1.0 GB of address space, .* need 2 GB: .*, ulimit -v unlimited$"):
        limits.check_run()
    # what a library says of it is of no help
    assert "ulimit -v unlimited" in failures.sentence(ImportError("failed to map segment from shared object"))
    assert failures.sentence(FileNotFoundError("no recipe")) == "no recipe"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files; raise the limit of open files in the shell",
        ),
        (
            OSError(errno.EROFS, "x", "/home/a"),
            "Read-only file system: /home/a; make it writable, or set GRISTMILL_HOME",
        ),
        (MemoryError(), "out of memory; close other programs"),
    ],
)
def test_errors_of_the_system_have_a_fix(error, said):
    assert failures.sentence(error).startswith(said)


def test_tracebacks_are_in_a_file_that_the_line_names(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    log = tmp_path / "home" / "errors.log"
    line = failures.sentence(OwnCodeError("step bad (bad.py:3, ValueError): no", "Traceback: here"))
    assert line == f"step bad (bad.py:3, ValueError): no; the traceback is in {log}"
    assert "Traceback: here" in log.read_text()
    line = failures.sentence(TypeError("not so"))
    assert line == f"unexpected TypeError: not so; please report it with the traceback in {log}"
    assert "TypeError: not so" in log.read_text()
    # where the home cannot be written, a file elsewhere has it
    monkeypatch.setenv("GRISTMILL_HOME", "/proc/none")
    name = failures.sentence(TypeError("other")).rpartition(" ")[2]
    with open(name) as file:
        assert "TypeError: other" in file.read()


def test_an_unexpected_error_is_one_line(tmp_path, monkeypatch, capsys):
    def fail() -> None:
        raise TypeError("planted")

    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setattr("gristmill.flows.cli.app", fail)
    with pytest.raises(SystemExit):
        main()
    [line] = capsys.readouterr().err.splitlines()
    assert "gristmill: unexpected TypeError: planted" in line
