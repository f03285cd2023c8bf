"""What the engines keep of pages of documentation: tables, listings and sections, as an HTML parser finds them.

GRISTMILL_TEST_DOCUMENTATION names a folder with a folder for each package, such as those of Debian make it:

    apt-get download apache2-doc && dpkg -x apache2-doc_*.deb packages/apache2-doc

The truth is lxml's tree of each page (tests/benchmarks/structure/documented.py says what counts), not what the engine
takes for a table. GRISTMILL_TEST_DOCUMENTATION_PAGES is the number of pages of each package, 20 by default: those whose
paths have the lowest hashes of all that have something to measure.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import trafilatura

from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.engines import ENGINES
from gristmill.tasks.reading import charset
from tests.benchmarks.structure.documented import Truth, found, truth

# bytes of a page: trafilatura takes minutes for one of some megabytes
LARGEST = 300_000
# What our engine keeps at least and loses at most, on all packages together: shares of tables and of listings.
WHOLE, LOST = 0.97, 0.005


def default_trafilatura(page):
    return trafilatura.extract(page) or ""


COMPARED = {"blocks": main_text, "trafilatura()": default_trafilatura, "resiliparse": ENGINES["resiliparse"].read}


def pages(package: Path, most: int) -> Iterator[tuple[Path, str, Truth]]:
    paths = [path for path in package.rglob("*.htm*") if path.is_file() and not path.is_symlink()]
    paths.sort(key=lambda path: hashlib.sha256(str(path.relative_to(package)).encode()).digest())
    given = 0
    for path in paths[: 10 * most]:
        if given < most and path.stat().st_size <= LARGEST:
            data = path.read_bytes()
            page = charset.decode(data, charset.detect(data, None, True))
            if any(true := truth(page)):
                given += 1
                yield path, page, true


@pytest.mark.bench
def test_documentation(capsys):
    if "GRISTMILL_TEST_DOCUMENTATION" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DOCUMENTATION names no folder with unpacked packages of documentation")
    folder = Path(os.environ["GRISTMILL_TEST_DOCUMENTATION"])
    most = int(os.environ.get("GRISTMILL_TEST_DOCUMENTATION_PAGES", 20))
    counts: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 7)
    missed, seen = [], 0
    packages = sorted(path for path in folder.iterdir() if path.is_dir())
    for package in packages:
        for path, page, true in pages(package, most):
            seen += 1
            for name, engine in COMPARED.items():
                measured = found(true, engine(page))
                for key in (package.name, "all"):
                    counts[key, name] = [a + b for a, b in zip(counts[key, name], measured.counts, strict=True)]
                if name == "blocks":
                    missed += [f"{path.relative_to(folder)}: {each}" for each in measured.missed]
    assert seen
    with capsys.disabled():
        print(f"\n{seen} pages of {len(packages)} packages: tables whole, listings lost, sections dropped between kept")
        for (package, name), (tables, whole, listings, lost, sections, dropped, _) in counts.items():
            print(
                f"{package:26}{name:15}{whole:5} of {tables:5} {whole / max(1, tables):6.1%}"
                f"{lost:6} of {listings:5} {lost / max(1, listings):6.1%}{dropped:6} of {sections:5}"
            )
        print("\n".join(missed))
    tables, whole, listings, lost, *_ = counts["all", "blocks"]
    _, theirs_whole, _, theirs_lost, *_ = counts["all", "trafilatura()"]
    assert whole >= WHOLE * tables, f"{whole} of {tables} tables are whole"
    assert lost <= LOST * listings, f"{lost} of {listings} listings are lost"
    assert whole >= theirs_whole and lost <= theirs_lost, f"trafilatura: {theirs_whole} tables, {theirs_lost} listings"
