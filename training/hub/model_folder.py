"""A trained model as one folder that Hugging Face's tools load, with its card: of a run, or trained by another program.

    config.json, generation_config.json, model.safetensors
    tokenizer.json, tokenizer_config.json    see `gristmill.training.hub.tokenizer`
    tokenizer.model                          the SentencePiece model itself, where it is one
    README.md                                the model card
    gristmill.json                           `model`: digests of the weights and the tokenizer that it was made from,
                                             the type of its weights, and which checkpoints they are the mean of;
                                             `files`: the digest of each file

The folder appears whole, under its name by one rename.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from gristmill.samples.shards import Tokens
from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError, opening
from gristmill.storage.tokenizer_files import SentencePieceTokenizer, TextTokenizer, load_tokenizer
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.checkpoint.keeping import committed, fetch_checkpoint, stored
from gristmill.training.config import CHECKPOINTS, RunConfig
from gristmill.training.evaluate.heldout import TOKENS, heldout_loss, heldout_windows, write_document_losses
from gristmill.training.hub.tokenizer import check_same_ids, tokenizer_config, tokenizer_json
from gristmill.training.hub.weight_files import (
    CONFIG,
    TOKENIZERS,
    WEIGHTS,
    check_fits,
    read_config,
    weight_files,
)
from gristmill.training.hub.weights import (
    MANIFEST,
    SavedModel,
    averaged,
    export_model,
    hugging_face_config,
    load_model,
    model_config,
    own_name,
    public_name,
    result,
    save_weights,
    write_json,
)
from gristmill.training.model_config import ModelConfig
from gristmill.training.start import Start
from gristmill.training.world import processes


def model_card(
    name: str,
    run: RunConfig,
    data: TrainingManifest,
    result: dict[str, Any],
    recipe: str,
    releases: Sequence[tuple[str, str]],
    averages: Sequence[str] = (),
) -> str:
    """`recipe`: as YAML, empty where only the folder is known; `releases`: (distribution, release); `averages`: the
    checkpoints of whose weights these are the mean."""
    shape = run.model
    mean = f"The weights are the mean of {', '.join(averages)}; the figures are from the end of training."
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "# license: not filled in. Add the license of the weights here before you publish them",
        "---",
        "",
        f"# {name}",
        "",
        f"A decoder of {result['parameters']:,} parameters, trained by Gristmill on {result['tokens']:,} tokens. It "
        f"continues texts of up to {shape.seq_len:,} tokens. It was not tuned to follow instructions.",
        "",
        "**License: not filled in.** Before you publish this folder, add a license here and as `license` in "
        "the header.",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("PATH OF THIS FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("PATH OF THIS FOLDER")',
        'inputs = tokenizer("The ", return_tensors="pt", return_token_type_ids=False)',
        "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=50)[0], skip_special_tokens=True))",
        "```",
        "",
        "In training each document ended with the end-of-text token, so a document begins after one: the tokenizer "
        "puts it before a text.",
        "",
        "## Figures",
        "",
        *_table(
            ("figure", "value"),
            [
                ("parameters", f"{result['parameters']:,}"),
                ("tokens of the vocabulary", f"{data.vocab_size:,}"),
                ("tokens learned from", f"{result['tokens']:,}"),
                ("steps", f"{result['steps']:,}"),
                ("floating-point operations", f"{result['flops']:.3g}"),
                ("loss on held-out text, nats per token", f"{result['heldout/loss']:.4f}"),
                ("bits per byte of held-out text", f"{result['heldout/bits_per_byte']:.4f}"),
                ("bits per byte of the unigram model", f"{result['unigram/bits_per_byte']:.4f}"),
            ],
        ),
        "",
        *([mean, ""] if averages else []),
        "The held-out documents were not trained on. They were not compared with any benchmark.",
        "",
        "## Data by source",
        "",
        *_table(
            ("source", "share of training", "tokens", "times read", "bits per byte, held out"),
            (
                (
                    source.name,
                    f"{source.share:.1%}",
                    f"{source.tokens:,}",
                    f"{source.epochs:.2f}",
                    _bits(result, source.name),
                )
                for source in data.sources
            ),
        ),
        "",
        "## Training",
        "",
        *([] if run.start is None else [_begun(run.start), ""]),
        *_table(
            ("setting", "value"),
            [
                (f"{kind}.{key}", "" if value is None else str(value))
                for kind, settings in (("model", run.model), ("training", run.training))
                for key, value in settings.model_dump(mode="json").items()
            ],
        ),
        "",
        *(["## Recipe", "", "~~~yaml", *recipe.splitlines(), "~~~", ""] if recipe else []),
        "## Made with",
        "",
        *_table(("distribution", "release"), releases),
        "",
        "`gristmill.json` holds the xxh3-128 of every file.",
        "",
    ]
    return "\n".join(lines)


def _begun(start: Start) -> str:
    """What a run began with, as a sentence of its card."""
    data = "the same data" if start.same_data else "other data"
    return f"Training began with the weights and the optimizer of {start.trunk} after step {start.step:,}, of {data}."


def _bits(result: dict[str, Any], source: str) -> str:
    bits = result.get(f"heldout/{source}/bits_per_byte")
    return "-" if bits is None else f"{bits:.4f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines]


Dtype = Literal["float32", "bfloat16"]
COMPARED = 20_000  # tokens of each held-out source whose text both tokenizers encode


def write_model_folder(
    saved: SavedModel, to: Path, name: str, recipe: str = "", dtype: Dtype = "float32", average: int = 1
) -> bool:
    """Write a finished training run's model; False if it was there already, and whole. `recipe`: as YAML, for the card.
    `average`: the weights are the mean of this many of the newest kept checkpoints; 1: the final weights.

    Raises FileExistsError where the folder holds anything else; ValueError for a model that no class of `transformers`
    computes, for a checkpoint, where fewer checkpoints are kept, and where tokenizer.json would give other ids than
    training had.
    """
    to = Path(to).absolute()
    if saved.run is None or saved.data is None or not (saved.folder / WEIGHTS).exists():
        raise ValueError(
            f"{saved.folder} is not a finished training run: export a recipe, or the folder that its training wrote"
        )
    if saved.run.training.objective == "masked":
        raise ValueError("training.objective is masked, but exported models predict next tokens; train with another")
    if saved.run.model.block == "llama" and saved.run.model.logit_softcap is not None:
        raise ValueError(
            f"model.logit_softcap is {saved.run.model.logit_softcap:g}, which neither LlamaForCausalLM nor "
            "Qwen3ForCausalLM computes: train without it, or with block nanochat, to export the model"
        )
    weights, tokenizer = saved.folder / WEIGHTS, Path(saved.tokenizer.local())
    identity = {"weights": files.checksum(str(weights)), "tokenizer": saved.tokenizer.digest, "dtype": dtype}
    kept = _newest(saved, average) if average > 1 else []
    if kept:
        identity["average"] = ", ".join(path.name for path in kept)
    if _is_there(to, identity):
        return False
    mended = to.exists() and any(to.iterdir())
    temporary = to.with_name(f".{to.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of an export that was killed
    temporary.mkdir(parents=True)
    write_tokenizer(temporary, tokenizer, saved.run.model.seq_len, saved.data)
    _write_weights(temporary, weights, kept, saved, dtype)
    releases = [(one, version(one)) for one in ("gristmill", "sentencepiece", "torch")]
    card = model_card(name, saved.run, saved.data, result(saved), recipe, releases, [path.name for path in kept])
    (temporary / "README.md").write_text(card, encoding="utf-8")
    digests = {path.name: files.checksum(str(path)) for path in sorted(temporary.iterdir())}
    checked_json.write(str(temporary / MANIFEST), {"model": identity, "files": digests})
    for path in temporary.iterdir():
        files.sync(path)
    if mended:  # the manifest last: until then it says which files are damaged
        for name in (*digests, MANIFEST):
            os.replace(temporary / name, to / name)
        files.sync(to)
        temporary.rmdir()
    else:
        os.rename(temporary, to)
    files.sync(to.parent)
    return True


def _is_there(to: Path, identity: dict[str, str]) -> bool:
    """Whether the folder has this very model, whole. Raises FileExistsError for anything else."""
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return False
    there = to / MANIFEST
    if not there.is_file():
        raise FileExistsError(f"{to} contains files that are not an exported model: choose another folder, or empty it")
    try:
        manifest = checked_json.read(str(there))
    except DamagedFileError:
        raise FileExistsError(f"{there} is not what was written: remove {to} and export the model again") from None
    if manifest["model"] != identity:
        raise FileExistsError(
            f"{to} has another model, or this one with a different data type or average of weights: choose "
            "another folder, or empty it"
        )
    return all(
        (to / name).is_file() and files.checksum(str(to / name)) == digest for name, digest in manifest["files"].items()
    )


def _newest(saved: SavedModel, count: int) -> list[Path]:
    """The newest `count` checkpoints of a run, oldest first. Checkpoints that only the home has are fetched."""
    root = saved.out / CHECKPOINTS
    assert saved.run is not None, "of a finished run"
    if store := saved.run.store:
        for step in sorted(stored(store))[-count:]:
            if step not in committed(root):
                fetch_checkpoint(store, step, root)
    kept = list(committed(root).values())
    if len(kept) < count:
        raise ValueError(
            f"{root} keeps {len(kept)} checkpoints, fewer than --average {count}; average fewer, or train with "
            f"keep_checkpoints: {count}"
        )
    return kept[-count:]


def _write_weights(folder: Path, weights: Path, averages: list[Path], saved: SavedModel, dtype: Dtype) -> None:
    assert saved.run is not None and saved.data is not None, "of a finished run"
    end = {"bos_token_id": saved.data.end_of_text, "eos_token_id": saved.data.end_of_text}
    hub_config = hugging_face_config(saved.run.model, saved.data.vocab_size)
    write_json(folder / CONFIG, {**hub_config, **end, "torch_dtype": dtype})
    write_json(folder / "generation_config.json", end)
    if dtype == "float32" and not averages:
        shutil.copyfile(weights, folder / WEIGHTS)
        return
    mean = {public_name(name): tensor for name, tensor in averaged(averages).items()} if averages else {}
    tensors = mean or load_file(weights)
    save_weights({name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()}, folder / WEIGHTS)


def write_tokenizer(folder: Path, tokenizer: Path, seq_len: int, data: TrainingManifest) -> None:
    """Write the tokenizer of a recipe as Hugging Face's tools read it, and as SentencePiece does where it is one."""
    trained, (model, config_name) = load_tokenizer(tokenizer), TOKENIZERS
    if isinstance(trained, SentencePieceTokenizer):
        content = tokenizer_json(trained)
        check_same_ids(trained, content, heldout_texts(data, trained))
        shutil.copyfile(tokenizer, folder / model)
        write_json(folder / config_name, content)
    else:
        shutil.copyfile(tokenizer, folder / config_name)
    write_json(folder / "tokenizer_config.json", tokenizer_config(trained, seq_len))


def heldout_texts(data: TrainingManifest, tokenizer: TextTokenizer) -> Iterator[str]:
    """The first held-out documents of each source, COMPARED tokens of it; the last one may be cut."""
    for heldout in data.heldout:
        tokens = Tokens(heldout.shards, data.vocab_size, data.dtype)
        document: list[int] = []
        for token in [*tokens.read(0, min(COMPARED, len(tokens))).tolist(), data.end_of_text]:
            if token == data.end_of_text:
                yield tokenizer.decode(document)
                document = []
            else:
                document.append(token)


# A model that another program trained on the token shards of a recipe, as a folder like those that are exported here.
#
# The folder is as Hugging Face lays it out, of Llama or Qwen3. Trainers with a format of their own have a converter to
# it: docs/guides/other-trainers.md names them.


KEY = "--model"  # what names the folder, in errors
MICRO_BATCH = 4  # windows in one forward pass of the evaluation


def shape_of(source: Path, data: TrainingManifest) -> ModelConfig:
    """The shape of the model in a folder, whose weights and tokenizer are checked against the recipe's data.

    The vocabulary of the weights may be larger than the tokenizer's: trainers pad it.

    Raises FileNotFoundError for a folder without config or weights; ValueError for a model of another kind, for weights
    of other shapes than its config's, and for another tokenizer.
    """
    weight_files(source, KEY)
    hub_config = read_config(source)
    with opening(f"{source / CONFIG}", "config.json of a model that the decoder here computes", "name another model"):
        config = model_config(hub_config)
    check_fits(source, config, key=KEY)
    if hub_config["vocab_size"] < data.vocab_size:
        raise ValueError(
            f"{source / CONFIG} has a vocab_size of {hub_config['vocab_size']:,}, but the recipe's tokenizer "
            f"has {data.vocab_size:,}: the model was not trained on this recipe's tokens; use another folder"
        )
    _check_tokenizer(source, data)
    return config


def write_imported_folder(source: Path, config: ModelConfig, data: TrainingManifest, to: Path) -> None:
    """Write the model of `shape_of` as float32, with the recipe's tokenizer, and `gristmill.json`. It appears whole,
    under its name by one rename; one that is there is left. Held: the weights, once.
    """
    if (to / MANIFEST).is_file():
        return
    temporary = to.with_name(f".{to.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of an import that was killed
    temporary.mkdir(parents=True)
    hub_config = read_config(source)
    sources = weight_files(source)
    export_model(_weights(sources, config), config, hub_config["vocab_size"], temporary)
    write_tokenizer(temporary, Path(data.tokenizer.path), config.seq_len, data)
    digests = {path.name: files.checksum(str(path)) for path in sorted(temporary.iterdir())}
    identity = {path.name: files.checksum(str(path)) for path in sources}
    checked_json.write(str(temporary / MANIFEST), {"model": identity, "files": digests})
    for path in temporary.iterdir():
        files.sync(path)
    os.rename(temporary, to)
    files.sync(to.parent)


def evaluated(folder: Path, data: TrainingManifest, eval_tokens: int, losses: Path) -> dict[str, float]:
    """The metrics of an imported model on the recipe's held-out text, named as training names them; the loss of each
    held-out document is written to `losses`, as Parquet."""
    with processes(timeout_seconds=600) as world:
        model = load_model(folder).to(world.device)
        windows = heldout_windows(data, model.config.seq_len, eval_tokens)
        metrics = heldout_loss(model, windows, MICRO_BATCH, world)
        write_document_losses(losses, model, data, world, min(TOKENS, MICRO_BATCH * model.config.seq_len))
    return metrics


def _weights(sources: list[Path], config: ModelConfig) -> dict[str, torch.Tensor]:
    """The weights by the Decoder's names, float32. Of tied matrices there is one; positions follow from the config."""
    weights: dict[str, torch.Tensor] = {}
    for path in sources:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():
                if not name.endswith("rotary_emb.inv_freq") and not (config.tie_embeddings and "lm_head" in name):
                    weights[own_name(name)] = tensors.get_tensor(name).float()
    return weights


def _check_tokenizer(source: Path, data: TrainingManifest) -> None:
    """Raise ValueError where the folder has a tokenizer with other ids than the recipe's. One without any was trained
    on the recipe's token shards, by whoever names it so."""
    ours = Path(data.tokenizer.path)
    there = [source / name for name in TOKENIZERS if (source / name).is_file()]
    if not there or any(files.checksum(str(path)) == data.tokenizer.digest for path in there):
        return
    trained = load_tokenizer(ours)
    [path, *_] = sorted(there, key=lambda one: one.suffix != ".json")
    if path.suffix == ".json" and isinstance(trained, SentencePieceTokenizer):
        with opening(f"{path}", "tokenizer of the recipe's", "put the recipe's tokenizer there, or remove it"):
            check_same_ids(trained, json.loads(path.read_bytes()), heldout_texts(data, trained))
        return
    raise ValueError(
        f"{path} differs from the recipe's tokenizer, {ours.name}: bits of its tokens cannot be compared by "
        "document; put the recipe's tokenizer there, or import only the losses, without --model"
    )
