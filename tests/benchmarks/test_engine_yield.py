"""What survives the recipe `dclm` of the same raw pages by each engine of extraction, and by the union of several.

GRISTMILL_TEST_DATA names the folder that has `warc/web`. The steps on documents right behind the extraction count:
language, Gopher's rules and those of RefinedWeb's lines, with dclm's thresholds. Words are those between white space.
"""

import os
import time
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.storage import layout, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.step import DocumentStep
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.listing import Shard

ENGINES = ("blocks", "trafilatura", "resiliparse", "justext", "union")


@pytest.fixture(scope="module")
def archive():
    path = Path(os.environ.get("GRISTMILL_TEST_DATA", "")) / "warc" / "web" / "DEMO-00001.warc.gz"
    if not path.is_file():
        pytest.skip("GRISTMILL_TEST_DATA names no folder with warc/web")
    return Shard("archive", str(path), path.name)


def survivors(folder, archive, engine, recipe):
    """The documents that the steps keep of an archive, and the seconds of this process and of its guarded one."""
    steps = tuple(takewhile(lambda step: isinstance(step, DocumentStep), recipe.after))
    began = time.perf_counter()
    choosing = steps if engine == "union" else ()
    given = (Extract(engine=engine), recipe.normalize, steps)
    extract_shard(folder, 0, "web", (archive,), None, (), *given, choosing=choosing)
    seconds = time.perf_counter() - began
    table = parquet.read_table(layout.part(folder, 0))
    lost = decide(table, [(step.step, step.decisions()) for step in steps])
    gone = [identity for _, rows in lost for identity in rows["id"].to_pylist()]
    return table.filter(pc.invert(pc.is_in(table["id"], pa.array(gone, pa.string())))), seconds


@pytest.mark.bench
def test_what_survives_dclm_by_engine(archive, tmp_path):
    recipe = load("dclm")
    survivors(str(tmp_path / "compiled"), archive, "blocks", recipe)
    words, ids = {}, {}
    print(f"\n{'engine':12} {'documents':>9} {'words':>10} {'seconds':>8}")
    for engine in ENGINES:
        kept, seconds = survivors(str(tmp_path / engine), archive, engine, recipe)
        ids[engine] = set(kept["id"].to_pylist())
        words[engine] = sum(map(len, map(str.split, kept["text"].to_pylist())))
        print(f"{engine:12} {len(kept):9,} {words[engine]:10,} {seconds:8.1f}")
        if engine == "union":
            print(
                "by "
                + ", ".join(
                    f"{each['values']} {each['counts']:,}" for each in kept["engine"].value_counts().to_pylist()
                )
            )
    best = max(words[engine] for engine in ENGINES[:-1])
    of_best, of_blocks = words["union"] / best, words["union"] / words["blocks"]
    print(f"union: {of_best:.3f} of the most words of one engine, {of_blocks:.3f} of those of blocks")
    assert ids["union"] == ids["blocks"] | ids["trafilatura"] | ids["resiliparse"]
