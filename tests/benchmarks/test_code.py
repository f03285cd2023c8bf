"""Languages and licences of the packages that this Python has, beside pygments, identify and the packages' metadata."""

import sysconfig
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from identify.identify import tags_from_filename
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from gristmill.tasks.source_code import licenses
from gristmill.tasks.source_code.recognition import by_name

pytestmark = pytest.mark.bench
# pygments' names of what Linguist calls otherwise
_PEERS = {
    "common lisp": "common-lisp",
    "gettext catalog": "po",
    "go checksums": "go-sum",
    "go module": "go-mod",
    "graphviz (dot)": "dot",
    "java properties": "properties",
    "assembly": "asm",
    "batchfile": "batch",
    "fortran": "fortranfixed",
    "emacs lisp": "elisp",
    "jupyter notebook": "json",
    "protocol buffer": "protobuf",
    "public key": "pem",
    "restructuredtext": "rst",
    "roff": "groff",
    "shell": "bash",
    "vim script": "vim",
}


def _files() -> Iterator[Path]:
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")}:
        yield from (path for path in sorted(Path(folder).rglob("*")) if path.is_file() and not path.is_symlink())


def test_languages_are_those_of_pygments_and_identify():
    counts, others = Counter(), Counter()
    for path in _files():
        named = by_name(path.name)
        if named is None or not named[1]:
            continue
        peers = set(tags_from_filename(path.name)) - {"text", "binary"}
        try:
            lexer = get_lexer_for_filename(path.name)
            peers |= {lexer.name.lower(), *lexer.aliases}
        except ClassNotFound:
            pass
        if not peers:
            continue
        ours = named[0].lower()
        same = ours in peers or _PEERS.get(ours, ours) in peers
        counts[same] += 1
        if not same:
            others[(named[0], *sorted(peers)[:2])] += 1
    print(f"\n{counts.total():,} files, {counts[True] / counts.total():.4f} as the peers; else {others.most_common(5)}")
    assert counts[True] >= 0.99 * counts.total()


def _names(expression: str) -> set[str]:
    return set(expression.replace("(", " ").replace(")", " ").split()) - {"AND", "OR"}


def test_licences_by_their_texts_are_those_that_metadata_state():
    counts, others = Counter(), []
    for package in distributions():
        metadata = package.read_text("METADATA") or ""
        stated = licenses.of_metadata("METADATA", metadata)
        texts = [Path(package.locate_file(file)) for file in package.files or () if licenses.is_license_file(str(file))]
        found = [licenses.of_text(path.read_text("utf-8", "replace")) for path in texts if path.is_file()]
        if not stated or not found:
            continue
        family = any(map(licenses.is_family, licenses.stated_in("METADATA", metadata)))
        same = any(
            one
            and (
                _names(one) >= _names(stated)
                or _names(one) <= _names(stated)
                or (family and one.startswith(stated.split("-")[0]))
            )
            for one in found
        )
        counts[same] += 1
        if not same:
            others.append((package.name, stated, found[:2]))
    print(f"\n{counts.total()} packages, {counts[True] / counts.total():.3f} as stated; else {others}")
    assert counts[True] >= 0.97 * counts.total()
