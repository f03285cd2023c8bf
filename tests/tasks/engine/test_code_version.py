"""The code version of a stage: what changes it, and what does not."""

import itertools
import os
import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gristmill.tasks.engine.code_version import code_version, releases

WORK = '''
"""About this module."""
import logging

from planted{n}.helper import help_with
from planted{n}.settings import LIMIT

log = logging.getLogger(__name__)


def work(x):
    """Work."""
    # a remark
    log.info("working on %s", x)
    return help_with(x) + LIMIT
'''
# a module that is imported when it is first used, and its twin for annotations
LAZY = WORK.replace(
    "from planted{n}.helper import help_with\n",
    "from typing import TYPE_CHECKING\n\nimport wrapt\n\nif TYPE_CHECKING:\n    from planted{n} import helper\nelse:\n"
    '    helper = wrapt.lazy_import("planted{n}.helper")\n\n',
).replace("help_with(x)", "helper.help_with(x)")
HELPER = "def help_with(x):\n    return x\n"
SETTINGS = """from pydantic import Field
from gristmill.tasks.documents.step import Signal

LIMIT = 3
SIZE = Field(1, description='of a page')
SIGNAL = Signal('size', 'int64', 'pages', 'own', description='Size.')
"""
_numbers = itertools.count()


@pytest.fixture
def version(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def of(work: str = WORK, helper: str = HELPER, settings: str = SETTINGS, more: str = "") -> str:
        """The version of a package of its own, without the number that tells it from the others."""
        number = next(_numbers)
        folder = tmp_path / f"planted{number}"
        folder.mkdir()
        for name, source in (("__init__", ""), ("work", work + more), ("helper", helper), ("settings", settings)):
            (folder / f"{name}.py").write_text(source.replace("{n}", str(number)))
        return code_version((f"planted{number}.work",)), folder

    def same(**changes: str) -> bool:
        """Whether a change leaves the version as it is: both are made in one place, one after the other."""
        _, folder = of()
        program = (
            "from gristmill.tasks.engine.code_version import code_version\n"
            f"print(code_version(({folder.name + '.work'!r},)))"
        )
        return _in_a_process(program, tmp_path) == _after(folder, changes, program, tmp_path)

    return same


def _after(folder: Path, changes: dict[str, str], program: str, path: Path) -> str:
    for name, source in changes.items():
        (folder / f"{name}.py").write_text(source.replace("{n}", folder.name.removeprefix("planted")))
    return _in_a_process(program, path)


def _in_a_process(program: str, path: Path) -> str:
    import subprocess

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(path), os.getcwd()]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


@pytest.mark.extended
def test_comments_layout_docstrings_and_messages_do_not_count(version):
    quiet = WORK.replace("# a remark", "# another").replace('"""Work."""', '"""Labour."""').replace("About", "On")
    assert version(work=quiet + "\n\n")
    assert version(work=WORK.replace("working on %s", "at %s now"))
    assert version(settings=SETTINGS.replace("of a page", "of one page").replace("'Size.'", "'How large.'"))


@pytest.mark.parametrize(
    "changes",
    [
        {"work": WORK.replace("+ LIMIT", "- LIMIT")},
        {"helper": HELPER.replace("return x", "return -x")},
        {"settings": SETTINGS.replace("LIMIT = 3", "LIMIT = 4")},
        {"settings": SETTINGS.replace("Field(1", "Field(2")},
        {"settings": SETTINGS.replace("'pages'", "'sheets'")},
        {"work": WORK.replace("from planted{n}.helper", "from .helper"), "helper": "def help_with(x):\n    return 1\n"},
    ],
)
def test_any_other_change_counts_here_and_in_what_is_imported(version, changes):
    assert not version(**changes)


@pytest.mark.extended
def test_a_module_that_is_imported_lazily_counts(tmp_path):
    folder = tmp_path / "planted"
    folder.mkdir()
    sources = {"__init__": "", "work": LAZY, "helper": HELPER, "settings": SETTINGS}
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source.replace("{n}", ""))
    program = (
        "import sys; from gristmill.tasks.engine.code_version import code_version; import planted.work\n"
        "print(code_version(('planted.work',)), 'planted.helper' in sys.modules, planted.work.work(2))"
    )
    version, is_loaded, result = _in_a_process(program, tmp_path).split()
    assert (is_loaded, result) == ("False", "5")
    (folder / "helper.py").write_text("def help_with(x):\n    return -x\n")
    other, _, result = _in_a_process(program, tmp_path).split()
    assert version != other and result == "1"


def test_transport_and_engine_are_in_no_version():
    """A retry constant, an executor: what fetches bytes and runs jobs decides none of what comes out."""
    program = (
        "from pathlib import Path; from gristmill.tasks.engine import code_version as module; "
        "read = []; inner = module._read; "
        "module._read = lambda name, packages: (read.append(name), inner(name, packages))[1]; "
        "module.code_version(('gristmill.flows.stages.documents', 'gristmill.flows.stages.mixture'))\n"
        "print('\\n'.join(read))"
    )
    read = _in_a_process(program, Path.cwd()).split()
    assert "gristmill.tasks.extraction.shard" in read and "gristmill.storage.parquet" in read
    assert not [name for name in read if name.startswith(("gristmill.storage.remote", "gristmill.tasks.engine"))]
    assert {name.rpartition(".")[0] for name in read if name.startswith("gristmill.flows")} <= {
        "gristmill.flows",
        "gristmill.flows.stages",
        "gristmill.flows.stages.evaluation",
    }
    assert "gristmill.flows.stages.corpus" in read and "gristmill.flows.pipeline" not in read


def test_stages_follow_the_modules_behind_them():
    assert code_version(("gristmill.tasks.tokens.encoding",)) != code_version(("gristmill.tasks.documents.decisions",))
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        code_version(("nowhere_at_all",))


def test_releases_are_those_of_the_libraries_that_are_named():
    assert releases(("sentencepiece", "kenlm")).keys() == {"sentencepiece", "kenlm"}
    with pytest.raises(PackageNotFoundError):
        releases(("no-such-library",))


@pytest.mark.extended
def test_a_file_that_is_not_changed_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    (tmp_path / "kept.py").write_text("import json\n\ndef f():\n    return 1\n")
    time.sleep(2.1)  # a file that was written just now is not kept
    program = (
        "import ast; parsed = []; inner = ast.parse; ast.parse = lambda *a: (parsed.append(a), inner(*a))[1]; "
        "from gristmill.tasks.engine.code_version import code_version; print(code_version(('kept',)), len(parsed))"
    )
    first, again = _in_a_process(program, tmp_path).split(), _in_a_process(program, tmp_path).split()
    assert first[0] == again[0] and (first[1], again[1]) == ("1", "0")
    before = os.stat(tmp_path / "kept.py")
    (tmp_path / "kept.py").write_text("import json\n\ndef f():\n    return 2\n")
    os.utime(tmp_path / "kept.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = _in_a_process(program, tmp_path).split()
    assert changed[0] != first[0] and changed[1] == "1"
    for damage in ("{", "[]", "null", '[["3", "x"], {"a": []}]'):
        (tmp_path / "caches/gristmill/sources.json").write_text(damage)
        assert _in_a_process(program, tmp_path).split() == changed
