"""The code version of a stage: what changes it, and what does not."""

import importlib
import sys
from importlib.metadata import packages_distributions

import pytest

from tasks.engine import code_version

MODULE = '''
"""About this module."""
from planted_library import helper

LIMIT = 3

def work(x):
    """Work."""
    # a remark
    return helper(x) + LIMIT
'''


@pytest.fixture
def version(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(code_version, "OURS", ("planted_work", "planted_library"))

    def of(work: str = MODULE, library: str = "def helper(x):\n    return x\n") -> str:
        (tmp_path / "planted_work.py").write_text(work)
        (tmp_path / "planted_library.py").write_text(library)
        importlib.invalidate_caches()
        for name in ("planted_work", "planted_library"):
            sys.modules.pop(name, None)
        code_version._read.cache_clear()
        return code_version.code_version("planted_work")

    return of


def test_comments_layout_and_docstrings_do_not_count(version):
    quiet = (
        MODULE.replace("# a remark", "# another")
        .replace('"""Work."""', '"""Labour."""')
        .replace("About this", "Of this")
    )
    assert version(quiet + "\n\n") == version()


def test_any_other_change_counts_here_and_in_what_is_imported(version):
    original = version()
    assert version(MODULE.replace("LIMIT = 3", "LIMIT = 4")) != original
    assert version(library="def helper(x):\n    return -x\n") != original


def test_the_release_of_a_library_counts(version, monkeypatch):
    work = MODULE + "\nimport numpy\n"
    before = version(work)
    monkeypatch.setattr(code_version, "_version", lambda name: "0.0.1")
    code_version._releases.cache_clear()
    assert version(work) != before
    code_version._releases.cache_clear()


def test_stages_follow_the_modules_behind_them():
    assert code_version.code_version("tasks.tokens") != code_version.code_version("tasks.documents.filter_shards")


def test_libraries_are_found_in_the_distributions_that_bring_them():
    told = packages_distributions()
    for library in ("numpy", "pyarrow", "yaml", "fasttext", "msgpack", "typing_extensions", "google"):
        assert {found.name for found in code_version._distributions().get(library, [])} == set(told.get(library, []))
