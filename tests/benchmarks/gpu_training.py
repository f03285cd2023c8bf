"""What only a GPU shows of training: speed beside nanoGPT, fp8, waits of the host, and Muon beside AdamW.

    python -m tests.benchmarks.gpu_training TEXT [--nanogpt FOLDER] [--sizes 124M 350M 1.3B] [--blocks 3]
        [--muon-steps 1500] [--seconds 600]

TEXT: a file of some 64 MB of plain text. `--nanogpt`: a checkout of github.com/karpathy/nanoGPT; without one there is
no ratio. Every block is a process of its own, in turns, so that no variant has the cooler card. Tables are printed at
the end; with `--seconds` no block begins or goes on after so many. In ten minutes on one card:

    python -m tests.benchmarks.gpu_training TEXT --sizes 124M 1.3B --blocks 1 --muon-steps 0 --seconds 570

`planned GB` is the peak that `gristmill decide plan` gives. fp8 is left out where torchao is not installed. Without a
GPU `--sizes tiny` tries the script. It ends with an error if a block did.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import torch

from gristmill.flows.experiments.planning.memory import Layout, counts, peak
from gristmill.samples.order import Order
from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.batches import batches
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.decoder import flops_per_token
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from gristmill.training.step.monitor import data_sheet_flops
from gristmill.training.step.state import StepPlan, begun_state, figures, train_step
from gristmill.training.world import processes


class Size(NamedTuple):
    """Four micro-batches make a step; `settling` of the `steps` are not timed. `rates`: those that Muon and AdamW are
    compared at."""

    dim: int
    layers: int
    heads: int
    seq_len: int
    micro_batch: int
    vocabulary: int = 32_768
    settling: int = 10
    steps: int = 30
    rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3)


SIZES = {
    "124M": Size(768, 12, 12, 1024, 32),
    "350M": Size(1024, 24, 16, 1024, 16),
    "1.3B": Size(2048, 24, 16, 2048, 8),
    # to try the script on a machine without a GPU
    "tiny": Size(64, 2, 2, 64, 2, vocabulary=512, settling=2, steps=4, rates=(4e-3,)),
}
SYNC = "called a synchronizing CUDA operation"  # the warning of torch.cuda.set_sync_debug_mode
LIMIT = 1800  # seconds of a block


def shape(size: str) -> tuple[ModelConfig, TrainingConfig]:
    its = SIZES[size]
    model = ModelConfig(dim=its.dim, layers=its.layers, heads=its.heads, seq_len=its.seq_len, qk_norm=False)
    training = TrainingConfig(
        steps=its.steps,
        batch=4 * its.micro_batch,
        micro_batch=its.micro_batch,
        warmup_steps=its.settling // 2,
        optimizer="adamw",
        learning_rate=3e-4,
    )
    return model, training


def _fp8_dim(size: str) -> int:
    return 64 if size == "tiny" else 1024


# Settings of training by variant; that of fp8 depends on the size.
VARIANTS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "eager": {"compile": False},
    "selective": {"recompute": "selective"},
    "fp8": {},
}


def ours(size: str, data: Path, variant: str) -> dict[str, Any]:
    model_config, training = shape(size)
    fp8 = {"fp8_min_dim": _fp8_dim(size)} if variant == "fp8" else {}
    training = training.model_copy(update=VARIANTS[variant] | fp8)
    entered = time.perf_counter()
    manifest = load_training_manifest(data)
    order = Order(manifest, seq_len=model_config.seq_len, batch=training.batch, seed=0)
    with processes(600) as world:
        state = begun_state(model_config, training, manifest.vocab_size, manifest.end_of_text, world)
        kept, began = [], 0.0
        with batches(order, training, world, 0) as coming:
            for number, (inputs, targets) in enumerate(coming, 1):
                kept.append(train_step(state, inputs, targets, StepPlan(3e-4), training, world))
                if number == SIZES[size].settling:
                    found = figures(torch.stack(kept))
                    if world.device.type == "cuda":
                        torch.cuda.set_sync_debug_mode("warn")
                    began = time.perf_counter()
            if world.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
            found = figures(torch.stack(kept))
        measured = _measured(time.perf_counter() - began, began - entered, size, found[-1].loss)
        return measured | {"planned": planned(size, training)}


def planned(size: str, training: TrainingConfig) -> float:
    """The peak memory on a GPU that a plan gives, in gigabytes; fp8 is planned as bf16."""
    model, its = shape(size)[0], SIZES[size]
    parameters, compiled = counts(model, its.vocabulary), training.compile is not False
    return peak(model, training, parameters, its.vocabulary, Layout(1), its.micro_batch, 4, 2, compiled).total / 1e9


def nanogpt(size: str, data: Path, folder: Path) -> dict[str, Any]:
    """nanoGPT's own model as its train.py runs it: compiled, autocast, fused AdamW, clipping."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None and spec.loader is not None, "model.py is there"
    peer = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = peer
    spec.loader.exec_module(peer)
    entered = time.perf_counter()
    its, device = SIZES[size], "cuda" if torch.cuda.is_available() else "cpu"
    seq_len = its.seq_len
    tokens = np.memmap(data.parent / "train.bin", "<u2", "r")
    torch.set_float32_matmul_precision("high")
    config = peer.GPTConfig(seq_len, its.vocabulary, its.layers, its.heads, its.dim, 0.0, False)
    model = peer.GPT(config).to(device)
    optimizer = model.configure_optimizers(0.1, 3e-4, (0.9, 0.95), device)
    compiled = torch.compile(model) if device == "cuda" else model
    began, loss = 0.0, torch.zeros(())

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.randint(len(tokens) - seq_len - 1, (its.micro_batch,)).tolist()
        rows = torch.stack([torch.from_numpy(tokens[i : i + seq_len + 1].astype(np.int64)) for i in places])
        if device == "cuda":
            rows = rows.pin_memory().to(device, non_blocking=True)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    x, y = batch()
    for number in range(1, its.steps + 1):
        for _ in range(4):
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                _, loss = compiled(x, y)
            x, y = batch()
            (loss / 4).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number == its.settling:
            loss.item()
            began = time.perf_counter()
    last = loss.item()
    return _measured(time.perf_counter() - began, began - entered, size, last)


def _measured(seconds: float, start: float, size: str, loss: float) -> dict[str, Any]:
    """`start`: seconds until the steps that are timed, compilation among them."""
    model, training = shape(size)
    speed = (training.steps - SIZES[size].settling) * training.batch * model.seq_len / seconds
    peak = data_sheet_flops(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    used = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    mfu = speed * flops_per_token(model, SIZES[size].vocabulary) / peak if peak else 0.0
    return {"tokens_per_second": speed, "mfu": mfu, "gigabytes": used, "loss": loss, "start": start}


def prepared(text: Path, folder: Path, vocabulary: int) -> Path:
    """Tokens of the text as training reads them; the last fiftieth is held out."""
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), vocab_size=vocabulary, model_type="bpe",
        byte_fallback=True, input_sentence_size=200_000, shuffle_input_sentence=True, hard_vocab_limit=False,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    documents = text.read_text(errors="replace").split("\n\n")
    ids = np.concatenate([np.array([*some, pieces.eos_id()], "<u2") for some in pieces.encode(documents)])
    cut = len(ids) * 49 // 50
    entries = {}
    for name, part in (("train.bin", ids[:cut]), ("heldout.bin", ids[cut:])):
        part.tofile(folder / name)
        entries[name] = {"path": name, "tokens": len(part), "digest": files.checksum(str(folder / name))}
    counted = [len(pieces.id_to_piece(i).replace("▁", " ").encode()) for i in range(pieces.vocab_size())]
    source = {"name": "text", "share": 1, "tokens": cut, "epochs": 1000, "shards": [entries["train.bin"]]}
    checked_json.write(
        str(folder / "mixture.json"),
        {
            "vocab_size": vocabulary, "end_of_text": pieces.eos_id(),
            "tokenizer": {"path": "tokenizer.model", "digest": files.checksum(str(folder / "tokenizer.model"))},
            "token_bytes": (counted + [0] * vocabulary)[:vocabulary],
            "sources": [source], "heldout": [{"name": "text", "shards": [entries["heldout.bin"]]}],
        },
    )  # fmt: skip
    return folder / "mixture.json"


def _apart(log: Path, limit: float, work: Callable[..., Any], *given: Any) -> Any:
    """What the work returns in a process of its own, which writes its warnings into `log`. All are forked from one that
    has imported this and not touched the GPU."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.benchmarks.gpu_training"])
    answer, its_end = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(str(log), its_end, work, given))
    process.start()
    its_end.close()
    try:
        if not answer.poll(limit):
            raise TimeoutError(f"no answer after {limit:.0f} seconds")
        return answer.recv()
    except EOFError:
        last = "".join(log.read_text().splitlines()[-1:]) if log.exists() else ""
        raise RuntimeError(last or "killed") from None
    finally:
        process.kill()
        process.join()


def _work(log: str, answer: Connection, work: Callable[..., Any], given: Sequence[Any]) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    answer.send(work(*given))


def speed(sizes: Sequence[str], blocks: int, peer: Path | None, data: Path, end: float) -> int:
    """Print the table; how many blocks ended with an error. `end`: the time of the clock when the last one ends."""
    works: dict[str, tuple[Callable[..., dict], Any]] = {name: (ours, name) for name in VARIANTS}
    if not importlib.util.find_spec("torchao"):
        del works["fp8"]
    if peer:
        works["nanoGPT"] = (nanogpt, peer)
    rows, failed, log = [], 0, data.parent / "warnings.txt"
    for size in sizes:
        found: dict[str, list[dict]] = {name: [] for name in works}
        for block in range(blocks):
            for name in works if block % 2 else reversed(works):
                work, variant = works[name]
                if name == "fp8" and SIZES[size].dim < _fp8_dim(size):
                    continue  # no matrix gains by it
                if (left := end - time.monotonic()) <= 0:
                    print(f"{size} {name} block {block}: left out, the time is over", flush=True)
                    continue
                log.unlink(missing_ok=True)
                try:
                    one = _apart(log, min(left, LIMIT), work, size, data, variant)
                except Exception as error:
                    print(f"{size} {name}: {type(error).__name__}: {error}", flush=True)
                    failed += 1
                    continue
                found[name].append(one | {"waits": log.read_text().count(SYNC)})
                print(f"{size} {name} block {block}: {found[name][-1]}", flush=True)
        middle = {
            name: {key: statistics.median(block[key] for block in blocks) for key in blocks[0]}
            for name, blocks in found.items()
            if blocks
        }
        theirs = middle.get("nanoGPT", {}).get("tokens_per_second")
        for name, one in middle.items():
            ratio = f"{one['tokens_per_second'] / theirs:.3f}" if theirs else "-"
            rows.append(
                f"| {size} | {name} | {one['tokens_per_second']:,.0f} | {one['mfu']:.3f} | {one['gigabytes']:.1f} | "
                f"{ratio} | {one['waits']:.0f} | {one.get('planned', 0):.1f} | {one['loss']:.3f} | {one['start']:.1f} |"
            )
    print(
        "\n| size | variant | tokens/s | MFU | GB | over nanoGPT | waits of the host | planned GB | loss | s to start |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", *rows, sep="\n")
    return failed


def time_to_loss(data: Path, folder: Path, tiny: bool, steps: int) -> None:
    """Six runs of one small model: when each optimizer reaches the better of AdamW's last losses. A step is 65,536
    tokens, 256 if `tiny`."""
    model = (
        ModelConfig(dim=64, layers=2, heads=2, seq_len=64)
        if tiny
        else ModelConfig(dim=512, layers=8, heads=8, seq_len=512)
    )
    batch, micro = (4, 4) if tiny else (128, 64)
    curves: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for optimizer in ("adamw", "muon"):
        for rate in SIZES["tiny" if tiny else "124M"].rates:
            out = folder / f"{optimizer}-{rate}"
            training = TrainingConfig(
                steps=steps, batch=batch, micro_batch=micro, warmup_steps=steps // 10, learning_rate=rate,
                schedule="wsd", optimizer=optimizer, eval_every=max(1, steps // 40),
                eval_tokens=1000 if tiny else 2_000_000, checkpoint_every=steps, sample_tokens=0,
            )  # fmt: skip
            run = RunConfig(model=model, training=training, data=data, out=out)
            out.mkdir()
            began = time.perf_counter()
            _apart(out / "warnings.txt", LIMIT, train, run)
            seconds = (time.perf_counter() - began) / steps
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            curves[optimizer, rate] = [
                (line["step"] * seconds, line["heldout/loss"]) for line in lines if "heldout/loss" in line
            ]
    goal = min(curve[-1][1] for (name, _), curve in curves.items() if name == "adamw")
    first = {
        name: min(
            (s for (n, _), c in curves.items() if n == name for s, loss in c if loss <= goal), default=float("nan")
        )
        for name in ("adamw", "muon")
    }
    print("\n| optimizer | learning rate | last held-out loss |\n|---|---|---|")
    for (name, rate), curve in curves.items():
        print(f"| {name} | {rate:g} | {curve[-1][1]:.4f} |")
    print(f"held-out loss {goal:.4f}: {first} seconds; adamw over muon {first['adamw'] / first['muon']:.2f}")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a file of plain text")
    parser.add_argument("--nanogpt", type=Path, metavar="FOLDER", help="a checkout of nanoGPT")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["124M", "350M", "1.3B"])
    parser.add_argument("--blocks", type=int, default=3, help="turns of each variant")
    parser.add_argument("--muon-steps", type=int, default=1500, help="of the six runs to the same loss; 0: none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no block goes on")
    arguments = parser.parse_args(given)
    end = time.monotonic() + arguments.seconds
    vocabularies = {SIZES[size].vocabulary for size in arguments.sizes}
    if len(vocabularies) > 1:
        parser.error("tiny has a vocabulary of its own: give it alone")
    if torch.cuda.is_available():
        print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    else:
        print("no GPU: this only tries the script", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(arguments.text, Path(folder), vocabularies.pop())
        failed = speed(arguments.sizes, arguments.blocks, arguments.nanogpt, data, end) if arguments.blocks else 0
        if arguments.muon_steps:
            time_to_loss(data, Path(folder), "tiny" in arguments.sizes, arguments.muon_steps)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
