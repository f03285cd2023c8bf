"""A small crawl with known truth, for tests that need a whole corpus."""

import gc
import io
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import hypothesis
import pytest
import yaml
from filelock import FileLock
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from gristmill.flows.machine.variables import check_names
from tests import crawl_server as servers
from tests.planted.text import pydoc_paragraphs

if TYPE_CHECKING:
    from tests import redis_server as redis_servers

# Processes of the tests have all cores busy, and threads of matrices would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing that tests import is ever garbage, and looking for it would take a third of the collection's time.
gc.disable()

# A shell's background jobs ignore Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every run searches the same examples, so that one is red for what changed. `make slow` searches others.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("random", derandomize=False, database=None, deadline=None, print_blob=True)
hypothesis.settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse variables that nothing reads: a test that has no data would be skipped."""
    try:
        check_names(os.environ)
    except ValueError as error:
        raise pytest.UsageError(f"{error}; variables of tests are called GRISTMILL_TEST_...") from None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--examples-times", type=int, default=1, metavar="N", help="so many times the examples of properties"
    )
    parser.addoption("--nanogpt", metavar="FOLDER", help="a checkout of github.com/karpathy/nanoGPT, for its own loop")
    parser.addoption("--dclm", metavar="FOLDER", help="a checkout of github.com/mlfoundations/dclm, for its own code")
    parser.addoption("--megatron", metavar="FOLDER", help="a checkout of github.com/NVIDIA/Megatron-LM, for its reader")
    parser.addoption("--decon", metavar="PROGRAM", help="the program of github.com/allenai/decon, to compare")
    parser.addoption("--hostile", metavar="MODULE", help="builders of hostile files: tests/flows/test_hostile_runs.py")
    parser.addoption("--ntrex", metavar="FOLDER", help="NTREX-128 of github.com/MicrosoftTranslator/NTREX")
    parser.addoption("--documentation", metavar="FOLDER", help="unpacked documentation packages of a distribution")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Search properties N times as long, or at random: a decorator fixes settings before a profile is chosen."""
    times = config.getoption("--examples-times")
    profile = config.getoption("--hypothesis-profile", None)
    if times == 1 and profile != "random":
        return
    for item in items:
        test = getattr(item, "obj", None)
        given = getattr(test, "_hypothesis_internal_use_settings", None)
        if given is not None:
            test = getattr(test, "__func__", test)
            test._hypothesis_internal_use_settings = hypothesis.settings(
                given,
                max_examples=times * given.max_examples,
                derandomize=profile != "random",
                print_blob=True,
            )


FRENCH = (
    "Le moulin tourne au bord de la rivière et le grain arrive chaque matin dans de grands sacs de toile.",
    "La meunière pèse la farine, note le poids dans un cahier et range les sacs près de la porte ouverte.",
    "Quand il pleut pendant plusieurs jours, l'eau monte et il faut fermer la vanne avant la tombée de la nuit.",
)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and tests stay to the end: the garbage collector need not look at them again and again."""
    gc.freeze()
    gc.enable()


@dataclass(frozen=True)
class Crawl:
    """Folder of WARC files by source, and how many pages of each kind were planted in the source `web`."""

    folder: Path
    planted: dict[str, int]


def page(texts: list[str]) -> bytes:
    body = "".join(f"<p>{text}</p>\n" for text in texts)
    return f"<html><head><title>t</title></head><body><main>{body}</main></body></html>".encode()


def write_warc(path: Path, pages: list[tuple[str, bytes, str, str]]) -> None:
    """Pages are (url, payload, status line, content type)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as f:
        writer = WARCWriter(f, gzip=True, warc_version="WARC/1.1")
        for i, (url, payload, status, kind) in enumerate(pages):
            headers = StatusAndHeaders(status, [("Content-Type", kind)], protocol="HTTP/1.1")
            given = {"WARC-Date": "2024-01-01T00:00:00Z", "WARC-Record-ID": f"<urn:uuid:{i:032x}>"}
            record = writer.create_warc_record(
                url, "response", io.BytesIO(payload), http_headers=headers, warc_headers_dict=given
            )
            writer.write_record(record)


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that the first process of a test run fills, for all of them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done = folder.with_name(f"{name}.done")
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def crawl(tmp_path_factory) -> Crawl:
    draw = random.Random(7)
    prose = pydoc_paragraphs()
    good = [[p for p in draw.sample(prose, 8)] for _ in range(150)]
    near = [[*texts[:-1], texts[-1] + " This sentence was added later."] for texts in good[:20]]
    planted = {
        "prose": [page(texts) for texts in good],
        "near": [page(texts) for texts in near],
        "french": [page([draw.choice(FRENCH) for _ in range(12)]) for _ in range(6)],
        "short": [page([f"A line of {i} words."]) for i in range(5)],
        "symbols": [page([f"{w} " + "#$%&@!*+=" * 20 for w in texts[0].split()[:20]]) for texts in good[:4]],
        "empty": [page([]) for _ in range(3)],
    }
    pages = [
        (f"https://{kind}.example/{i}", payload, "200 OK", "text/html; charset=utf-8")
        for kind, payloads in planted.items()
        for i, payload in enumerate(payloads)
    ]
    pages += [(f"https://gone.example/{i}", b"gone", "404 Not Found", "text/html") for i in range(4)]
    pages += [(f"https://image.example/{i}", b"\x89PNG", "200 OK", "image/png") for i in range(2)]
    draw.shuffle(pages)
    reference = [page(draw.sample(prose, 6)) for _ in range(40)]
    given = [(f"https://good.example/{i}", p, "200 OK", "text/html; charset=utf-8") for i, p in enumerate(reference)]

    def write(folder: Path) -> None:
        for shard in range(4):
            write_warc(folder / f"web-{shard:05d}.warc.gz", pages[shard::4])
        write_warc(folder / "reference-00000.warc.gz", given)

    folder = made_once(tmp_path_factory, "crawl", write)
    return Crawl(folder, {kind: len(payloads) for kind, payloads in planted.items()} | {"gone": 4, "image": 2})


def small_recipe(crawl: Crawl) -> dict:
    """Every kind of step, and a model that trains in seconds."""
    return {
        "name": "small",
        "seed": 3,
        "sources": [
            {"name": "web", "warc": [f"{crawl.folder}/web-*.warc.gz"]},
            {"name": "reference", "warc": [f"{crawl.folder}/reference-*.warc.gz"]},
        ],
        "steps": [
            {"step": "extract"},
            {"step": "language"},
            {"step": "textbook"},
            {"step": "gopher_repetition"},
            {"step": "gopher_quality", "min_alpha_words": 0.5},
            {"step": "c4", "terminal_punctuation": [], "max_curly_bracket": None, "min_sentences": 1},
            {"step": "minhash"},
            {"step": "pii"},
            {"step": "perplexity", "reference": ["reference"], "max_percentile": 90, "order": 3},
            {
                "step": "quality",
                "reference": ["reference"],
                "min_score": 0.3,
                "dimensions": 8,
                "buckets": 1000,
                "epochs": 5,
            },
        ],
        "tokenizer": {"vocab_size": 600, "sample_bytes": 150_000},
        "mixture": {"weights": {"web": 0.7, "reference": 0.3}, "heldout_fraction": 0.05},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {
            "steps": 12,
            "batch": 4,
            "micro_batch": 2,
            "warmup_steps": 2,
            "eval_every": 6,
            "checkpoint_every": 6,
            "eval_tokens": 2048,
            "sample_tokens": 8,
        },
    }


class Runs:
    """Flows in processes of their own, as a user starts them, each with a home that a test names."""

    def __init__(self, folder: Path):
        self.folder = folder

    def home(self, name: str) -> Path:
        return self.folder / name

    def write(self, recipe: dict) -> Path:
        path = self.folder / f"recipe-{len(list(self.folder.glob('recipe-*')))}.yaml"
        path.write_text(yaml.safe_dump(recipe))
        return path

    def environment(self, home: str, **settings: str) -> dict[str, str]:
        """Nothing of this process's Prefect, MLflow or gristmill; `settings` are those of the machine."""
        theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
        given = {"home": str(self.home(home)), "workers": "2", **settings}
        return ours | {"PYTHONPATH": os.getcwd()} | {f"GRISTMILL_{name.upper()}": v for name, v in given.items()}

    def start(self, home: str, *flows: tuple[str, dict], **settings: str) -> subprocess.Popen:
        """Flows with their recipes, one after the other, as a script without a main guard."""
        script = self.folder / f"script-{len(list(self.folder.glob('script-*')))}.py"
        lines = [f"print('=== {flow}', flush=True)\ngristmill.{flow}({str(self.write(r))!r})" for flow, r in flows]
        script.write_text("\n".join(["import gristmill", *lines, ""]))
        log = open(self.folder / f"{home}.log", "a")
        environment = self.environment(home, **settings)
        return subprocess.Popen([sys.executable, str(script)], env=environment, cwd=self.folder, stdout=log, stderr=log)

    def run(self, home: str, *flows: tuple[str, dict], **settings: str) -> None:
        """Run flows to their end, which must be a good one."""
        assert self.start(home, *flows, **settings).wait() == 0, self.log(home)

    def log(self, home: str) -> str:
        return (self.folder / f"{home}.log").read_text()

    def stages(self, home: str) -> dict[str, Path]:
        """Folders of the finished stages, by name and key."""
        found = self.home(home).glob("stages/*/manifest.json")
        return {path.parent.name: path.parent for path in sorted(found)}


@pytest.fixture
def crawl_server(tmp_path) -> Iterator[servers.CrawlServer]:
    """An HTTP server for a folder of its own."""
    folder = tmp_path / "served"
    folder.mkdir()
    with servers.serve(folder) as server:
        yield server


@pytest.fixture(scope="session")
def object_store() -> Iterator[servers.ObjectStore]:
    with servers.serve_s3() as store:
        yield store


@pytest.fixture
def s3(object_store, monkeypatch) -> Iterator[servers.ObjectStore]:
    """An S3-compatible server, where this process and its children find it, with an empty bucket `crawl`."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem("s3")
    fs.mkdir("crawl")
    yield object_store
    object_store.refuse = lambda method, path, nth: None
    object_store.requests.clear()
    object_store.seen.clear()
    fs.invalidate_cache()
    fs.rm("crawl", recursive=True)
    fs.invalidate_cache()


@pytest.fixture(scope="session")
def redis_server() -> Iterator["redis_servers.Server"]:
    """A real Redis, empty and with a password."""
    # here, since its client is an extra
    pytest.importorskip("redis")
    from tests import redis_server as redis_servers

    if not redis_servers.found():
        pytest.skip("no redis-server on the PATH")
    with redis_servers.serve() as server:
        yield server


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def recipe(crawl) -> dict:
    return small_recipe(crawl)


@pytest.fixture(scope="session")
def undisturbed(runs, recipe, tmp_path_factory) -> Runs:
    """The whole pipeline, run once on two Dask workers into the home `undisturbed`, which all processes of a test run
    read: what writes into a home takes a copy."""
    folder = made_once(
        tmp_path_factory, "undisturbed", lambda folder: Runs(folder).run("undisturbed", ("pipeline", recipe))
    )
    for name in ("undisturbed", "undisturbed.log"):
        (runs.folder / name).symlink_to(folder / name)
    return runs
