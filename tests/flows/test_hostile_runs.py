"""Hostile files by the commands that meet them: each costs a row of the ledger or one sentence, and no more memory and
time than a limit; nothing of it runs, and nothing is written outside. Texts beside it become documents.

    pytest -m slow tests/flows/test_hostile_runs.py --hostile PACKAGE.MODULE

tries another list of builders as well: a module with `CASES`, each with `name`, `format`, `suffix`, `build(path)` and
`survivors`, and with `canary(path)` and `escapes(path)`, files that must not be there afterwards.
"""

import io
import json
import os
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece
import tokenizers
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tests import embedders

MB = 1 << 20
ADDRESS_SPACE = 16 << 30  # RLIMIT_AS of each process
MEMORY = 1 << 30  # of all processes together, beside what the same commands hold for a good file
PAGE_MEMORY = 512 * MB  # that the recipes here give a page
SECONDS = 60  # of processor time, all processes together
GOOD = (
    "Alder and birch grow beside the mill, and the miller knows each of them by its bark and by its leaves.",
    "The wheel turns slowly in summer, when the water is low and the meadows on both banks are dry.",
)

# The commands of a user as far as they meet a file, without Prefect, which takes most of the time: `recipe init` where
# a file is named, `check`, and the stages of the flow. Errors become sentences as they do for a user.
COMMANDS = """
import contextlib, sys
from functools import partial
from gristmill.flows import cli
from gristmill.flows.cli.in_flow import recipe_to_run
from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.tasks.engine import options
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import find_or_make
from gristmill.tasks.engine.phases import Silent

def flow(name):
    recipe, settings = recipe_to_run("recipe.json", None), MachineSettings()
    options.configure(job_options(settings))
    workers = Threads(1, None)
    build = partial(find_or_make, settings.home, executor=workers, progress=lambda: contextlib.nullcontext(Silent()))
    Outputs(RunContext(settings, build), recipe).make(name)

def run(app, *arguments):
    sys.argv, cli.app = ["gristmill", *arguments], app
    try:
        cli.main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
        if isinstance(code, str):
            print(code)
            code = 1
    print("== ended with", code, flush=True)

app, (name, first, *others) = cli.app, sys.argv[1:]
if first:
    run(app, "recipe", "init", first, "--out", "init.yaml")
if others:
    run(app, *others)
else:
    run(app, "check", "recipe.json")
    run(lambda: flow(name))
"""


@dataclass(frozen=True)
class Hostile:
    """`survivors`: texts beside the hostile part; `said`: in what is printed, or in the ledger."""

    name: str
    format: str
    suffix: str
    build: Callable[[Path], Any]
    survivors: Sequence[str] = ()
    said: str = ""


@dataclass(frozen=True)
class Outcome:
    """`codes`: the exit code of each command; `printed`: all output; `ledger`: rules and details; `texts`: of the
    documents; `memory`: most bytes of all processes at a time; `seconds`: of processor time."""

    codes: list[int]
    printed: str
    ledger: list[str]
    texts: list[str]
    memory: int
    seconds: float


def canary(path: Path) -> Path:
    """A file that code of the hostile file would make."""
    return path.with_name(f"{path.name}.ran")


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = str(canary(path))

    def __reduce__(self) -> tuple:
        return open, (self.path, "w")


def deflated(head: bytes, size: int) -> bytes:
    """A raw deflate stream of `head` and so many more bytes: one piece, many times."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = compressor.compress(head) + compressor.flush(zlib.Z_FULL_FLUSH)
    piece = compressor.compress(b"a" * 64 * MB) + compressor.flush(zlib.Z_FULL_FLUSH)
    return first + piece * (size // (64 * MB)) + b"\x03\0"


def parquet_dictionary(path: Path) -> None:
    """8,000 rows of 1 MB from 3 kB, between two good groups."""
    kind = pa.dictionary(pa.int32(), pa.string())
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 8000, pa.int32()), pa.array(["a" * MB]))
    with pq.ParquetWriter(path, pa.schema({"text": kind}), compression="zstd", store_schema=False) as out:
        for values in (pa.array(GOOD[:1]).dictionary_encode(), texts, pa.array(GOOD[1:]).dictionary_encode()):
            out.write_table(pa.table({"text": values}))


def lines(*hostile: bytes) -> bytes:
    return b"\n".join([json.dumps({"text": GOOD[0]}).encode(), *hostile, json.dumps({"text": GOOD[1]}).encode(), b""])


def nested(depth: int) -> bytes:
    return b'{"text": "x", "y": ' + b"[" * depth + b"]" * depth + b"}"


def outside_names(path: Path) -> None:
    with tarfile.open(path, "w") as out:
        for name in ("good.txt", "../escape.txt", "../../escape.txt", str(path.parent.parent / "escape.txt")):
            member = tarfile.TarInfo(name)
            text = GOOD[0].encode()
            member.size = len(text)
            out.addfile(member, io.BytesIO(text))


def pdf(content: bytes, filter: bytes = b"", kids: bytes = b"[3 0 R]") -> bytes:
    """A document of one page, of which a reader finds the objects without a table of them."""
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>"
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids " + kids + b" /Count 1 >>",
        page,
        b"<< /Length %d %s >>\nstream\n" % (len(content), filter) + content + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 6\n0000000000 65535 f \n" + table + b"trailer\n<< /Size 6 /Root 1 0 R >>\n"
    return out + head + b"startxref\n%d\n%%%%EOF\n" % len(out)


def body_bomb(path: Path) -> None:
    """A page of 2 GB in 2 MB of gzip, between two good ones."""
    page = "<html><body><main><p>{}</p></main></body></html>"
    bomb = b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + deflated(b"<html><body><p>", 2048 * MB) + bytes(8)
    with open(path, "wb") as f:
        writer = WARCWriter(f, gzip=False)
        for number, payload in enumerate([page.format(GOOD[0] * 3).encode(), bomb, page.format(GOOD[1] * 3).encode()]):
            headers = [("Content-Type", "text/html"), *([("Content-Encoding", "gzip")] if payload is bomb else [])]
            record = writer.create_warc_record(
                f"https://mill.example/{number}",
                "response",
                io.BytesIO(payload),
                http_headers=StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1"),
            )
            writer.write_record(record)


def fasttext_model(rows: int, width: int) -> bytes:
    """A classifier of one word, whose matrix has another shape than its head says, or no dimension."""
    head = struct.pack("<ii", 793712314, 12) + struct.pack(
        "<12id", width and 8, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100, 1e-4
    )
    words = b"</s>\0" + struct.pack("<qb", 1, 0) + b"__label__good\0" + struct.pack("<qb", 1, 1)
    numbers = bytes(32) if width else b""
    matrices = b"\0" + struct.pack("<qq", rows, width) + numbers + b"\0" + struct.pack("<qq", 1, width and 8) + numbers
    return head + struct.pack("<iiiqq", 2, 1, 1, 2, -1) + words + matrices


def kenlm_model(counts: list[int], tail: bytes) -> bytes:
    """A head of a binary model, and nothing behind it."""
    begin = b"mmap lm http://kheafield.com/code format version 5\n\0".ljust(56, b"\0")
    sane = begin + struct.pack("<fffIIIQ", 0.0, 1.0, -0.5, 1, 0xFFFFFFFF, 0, 1)
    fixed = struct.pack("<BxxxfiBxxxI", len(counts), 1.5, 0, 1, 0)
    data = sane + fixed + bytes(-(len(sane) + len(fixed)) % 8)
    return data + b"".join(struct.pack("<Q", count) for count in counts) + tail


def tokenizer(path: Path, change: Callable[[dict], Any]) -> None:
    """A byte-level BPE that is changed in its JSON."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(sorted(alphabet))}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<|endoftext|>"])
    config = json.loads(made.to_str())
    change(config)
    path.write_text(json.dumps(config))


def safetensors(path: Path) -> None:
    """A tensor of 2^62 numbers in 4 bytes."""
    head = json.dumps({"embeddings": {"dtype": "F32", "shape": [1 << 31, 1 << 31], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))


def torch_file(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/data.pkl", pickle.dumps({"weight": Payload(path)}, protocol=2))
        out.writestr("archive/version", "3\n")


def laughs() -> str:
    levels = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
    return f"a0: &a0 ha\n{levels}sources: *a9\n"


TEXT = b"BT /F 12 Tf 72 720 Td (" + GOOD[0].encode() + b") Tj ET"
UNKNOWN = {"merges": ["x y"]}
CASES = (
    Hostile("good", "jsonl", ".jsonl", lambda path: path.write_bytes(lines()), GOOD),
    Hostile("parquet-dictionary", "parquet", ".parquet", parquet_dictionary, GOOD, "damaged_record"),
    Hostile("jsonl-nested", "jsonl", ".jsonl", lambda path: path.write_bytes(lines(nested(900))), GOOD),
    Hostile(
        "gzip-bomb", "jsonl", ".jsonl.gz",
        lambda path: path.write_bytes(
            b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + deflated(lines() + b'{"text": "', 4096 * MB) + bytes(8)
        ), GOOD, "damaged_record",
    ),
    Hostile("tar-names", "code", ".tar", outside_names, GOOD[:1], "unsafe_path"),
    Hostile(
        "pdf-bomb", "pages", ".pdf",
        lambda path: path.write_bytes(
            pdf(b"\x78\xda" + deflated(TEXT + b" % ", 3072 * MB) + bytes(4), b"/Filter /FlateDecode")
        ), said="page_",
    ),
    Hostile(
        "pdf-cycle", "pages", ".pdf", lambda path: path.write_bytes(pdf(TEXT, kids=b"[2 0 R]")), said="damaged_pdf"
    ),
    Hostile("warc-body-bomb", "warc", ".warc", body_bomb, GOOD, "too_large"),
    Hostile(
        "tokenizer-merge", "tokenizer", ".json",
        lambda path: tokenizer(path, lambda config: config["model"].update(UNKNOWN)), said="is not a tokenizer.json",
    ),
    Hostile(
        "tokenizer-doubling", "tokenizer", ".json",
        lambda path: tokenizer(
            path,
            lambda config: config.update(
                normalizer={
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40,
                }
            ),
        ), said="tokenizer",
    ),
    Hostile(
        "tokenizer-deep", "tokenizer", ".json",
        lambda path: path.write_text('{"normalizer": ' * 5000 + "1" + "}" * 5000), said="is not a tokenizer.json",
    ),
    Hostile(
        "fasttext-shape", "fasttext", ".bin", lambda path: path.write_bytes(fasttext_model(1 << 60, 8)),
        said="is not a valid fastText model",
    ),
    Hostile(
        "fasttext-width", "fasttext", ".bin", lambda path: path.write_bytes(fasttext_model(1, 0)),
        said="is not a valid fastText model",
    ),
    Hostile(
        "kenlm-body", "kenlm", ".arpa.bin", lambda path: path.write_bytes(kenlm_model([1000] * 3, bytes(100))),
        said="is not a valid KenLM model",
    ),
    Hostile("onnx", "onnx", ".onnx", lambda path: path.write_bytes(os.urandom(1000)), said="is not a valid ONNX model"),
    Hostile(
        "onnx-outside", "onnx", ".onnx",
        lambda path: path.write_bytes(embedders.model(beside="../../../../../etc/passwd")),
        said="is not a valid ONNX model",
    ),
    Hostile("safetensors-shape", "safetensors", ".safetensors", safetensors, said="is not a safetensors file"),
    Hostile("pickle", "fasttext", ".bin", lambda path: path.write_bytes(pickle.dumps(Payload(path))), said="no whole"),
    Hostile("torch-pickle", "safetensors", ".safetensors", torch_file, said="is not a safetensors file"),
    Hostile(
        "yaml-code", "recipe", ".yaml",
        lambda path: path.write_text(f"sources: !!python/object/apply:builtins.open ['{canary(path)}', 'w']\n"),
        said="python/object",
    ),
    Hostile("yaml-aliases", "recipe", ".yaml", lambda path: path.write_text(laughs())),
    Hostile("yaml-deep", "recipe", ".yaml", lambda path: path.write_text("sources: " + "[" * 100_000), said=""),
)  # fmt: skip

# By the formats of other lists of builders.
FORMATS = {"csv": "text", "zip": "code", "tar": "code", "pdf": "pages", "tokenizer.json": "tokenizer"}
FORMATS |= {"pickle": "fasttext", "numpy": "text", "torch": "safetensors"}
NAMES = {"kenlm": "en.arpa.bin", "onnx": "model.onnx", "safetensors": "model.safetensors"}


def pieces(path: Path) -> None:
    """A model of SentencePiece, as KenLM's models of a language have beside them."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.lower() for text in GOOD] * 20), model_writer=made,
        vocab_size=300, hard_vocab_limit=False, byte_fallback=True, minloglevel=2,
    )  # fmt: skip
    path.write_bytes(made.getvalue())


def arguments(format: str, path: Path, folder: Path) -> tuple[str, list[str]]:
    """The flow and, where there is no recipe, a command that reads a file; writes the recipe."""
    source: dict[str, Any] = {"name": "web", "jsonl": [str(folder / "plain.jsonl")]}
    steps: list[dict[str, Any]] = [{"step": "where", "keep": "characters >= 0"}]
    flow, more = "corpus", dict[str, Any]()
    limits = {"limits": {"page_memory": PAGE_MEMORY}}
    match format:
        case "parquet" | "jsonl" | "text" | "code":
            source = {"name": "web", format: [str(path)]} | ({"columns": "*"} if "nested" in path.name else {})
        case "pages":
            source, steps = (
                {"name": "web", "pages": [str(path)]},
                [{"step": "extract", "types": ["html", "pdf"], **limits}],
            )
        case "warc":
            source, steps = {"name": "web", "warc": [str(path)]}, [{"step": "extract", **limits}]
        case "tokenizer":
            flow = "tokens"
            more = {"tokenizer": {"path": str(path)}, "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.5}}
        case "fasttext":
            steps = [{"step": "quality", "model": str(path), "label": "good", "keep_top": 50}]
        case "kenlm":
            pieces(path.with_name("en.sp.model"))
            steps = [{"step": "language", "keep": ["en"]}, {"step": "perplexity", "models": {"en": str(path)}}]
        case "onnx" | "safetensors":
            data = path.read_bytes()
            embedders.write(path.parent, data, path.name)
            kind = "onnx" if format == "onnx" else "static"
            steps = [{"step": "embedding", "kind": kind, "model": str(path.parent)}]
        case "checkpoint":
            return flow, ["train", "evaluate", str(path.parent)]
        case "recipe":
            return flow, ["check", str(path)]
        case _:
            raise ValueError(format)
    recipe = {"name": "hostile", "sources": [source], "steps": steps, **more}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return flow, []


def tree_memory(root: psutil.Process) -> tuple[int, float]:
    """Bytes of a process and all that it has started, what they share counted once; and their processor time."""
    size, seconds = 0, 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            size += process.memory_full_info().pss
            seconds += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return size, seconds


def try_file(case: Any, folder: Path) -> Outcome:
    """Build a file in a folder, and let the commands meet it."""
    inner = folder / "in" / "files"
    inner.mkdir(parents=True)
    format = FORMATS.get(case.format, case.format)
    path = inner / NAMES.get(format, f"{case.name}{case.suffix}")
    if format == "checkpoint":
        path = inner / "checkpoints" / "step-1" / ".metadata"
        path.parent.mkdir(parents=True)
    (folder / "plain.jsonl").write_bytes(lines())
    case.build(path)
    flow, command = arguments(format, path, folder)
    first = str(path) if format in ("parquet", "jsonl", "text", "code", "pages", "warc") else ""
    home = folder / "home"
    environment = os.environ | {"GRISTMILL_HOME": str(home), "GRISTMILL_LOCAL": str(folder / "local")}
    printed, memory, seconds = folder / "printed", 0, 0.0
    with (
        open(printed, "wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", COMMANDS, flow, first, *command],
            cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": os.getcwd()},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
        ) as process,
    ):  # fmt: skip
        root = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                now = tree_memory(root)
            except psutil.Error:
                break
            memory, seconds = max(memory, now[0]), max(seconds, now[1])
            time.sleep(0.1)
    text = printed.read_bytes().decode(errors="replace")
    codes = [int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("== ended with")]
    assert process.returncode == 0, text
    ledger, texts = [], []
    for part in home.glob("stages/documents-*/ledger/*.parquet"):
        ledger += [f"{row['rule']}: {row['detail']}" for row in pq.read_table(part).to_pylist()[:1000]]
    for part in home.glob("stages/documents-*/part-*.parquet"):
        for batch in pq.ParquetFile(part).iter_batches(64, columns=["text"]):
            texts += [text for text in batch["text"].to_pylist() if len(texts) < 100 or len(text) < 10_000]
    written = {each.name for each in folder.iterdir()}
    assert written <= {"in", "home", "local", "plain.jsonl", "recipe.json", "init.yaml", "printed"}, written
    assert {each.name for each in (folder / "in").iterdir()} == {"files"}
    return Outcome(codes, text, ledger, texts, memory, seconds)


def folded(text: str) -> str:
    return " ".join(text.split())


def check(case: Any, outcome: Outcome, baseline: int) -> None:
    """One reason, no trace of a library, what was beside it, and the limits."""
    assert "Traceback" not in outcome.printed and "Fatal Python error" not in outcome.printed, outcome.printed
    assert set(outcome.codes) <= {0, 1}, outcome.printed
    lost = [text for text in case.survivors if not any(folded(text) in folded(each) for each in outcome.texts)]
    assert not lost, outcome.printed
    assert outcome.memory < baseline + MEMORY, f"{outcome.memory / MB:.0f} MB, {baseline / MB:.0f} of a good file"
    assert outcome.seconds < SECONDS


@pytest.fixture(scope="module")
def baseline(tmp_path_factory) -> int:
    """Bytes that the same commands hold for good pages, with a guarded process."""
    page = Hostile("good", "pages", ".html", lambda path: path.write_text(f"<main><p>{' '.join(GOOD * 3)}</p></main>"))
    return try_file(page, tmp_path_factory.mktemp("good")).memory


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_hostile_file_costs_a_reason(tmp_path, baseline, name):
    [case] = (case for case in CASES if case.name == name)
    outcome = try_file(case, tmp_path)
    check(case, outcome, baseline)
    assert case.said in outcome.printed + " ".join(outcome.ledger), outcome.printed
    assert not list(tmp_path.rglob("*.ran")) and not list(tmp_path.rglob("escape.txt"))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_other_builders(tmp_path, baseline, pytestconfig, capsys):
    """All of a list that is named, with a table."""
    if not (module := pytestconfig.getoption("--hostile")):
        pytest.skip("no list of builders is named by --hostile")
    builders, wrong = import_module(module), []
    for number, case in enumerate(builders.CASES):
        folder = tmp_path / str(number)
        try:
            outcome = try_file(case, folder)
            check(case, outcome, baseline)
            paths = [path for path in (folder / "in").rglob("*") if path.is_file()]
            unwanted = [each for path in paths for each in (builders.canary(path), *builders.escapes(path))]
            assert not [each for each in unwanted if each.exists()]
            ends = f"{outcome.memory / MB:6.0f} MB {outcome.seconds:6.1f} s  {[*dict.fromkeys(outcome.ledger)][:1]}"
        except AssertionError as error:
            wrong.append(case.name)
            ends = f"WRONG {error}"
        with capsys.disabled():
            print(f"\n{case.name:32} {ends[:300]}", end="", flush=True)
        shutil.rmtree(folder)
    assert not wrong
