"""The model card of an exported model: a README.md as the Hugging Face Hub reads it.

Layout of the header: https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gristmill.storage.tokens.training_manifest import TrainingManifest
from gristmill.training.config import RunConfig


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
    mean = f"The weights are the mean of {', '.join(averages)}; the figures are those of the end of training."
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "# license: not filled in. Name the licence of the weights here before you publish them",
        "---",
        "",
        f"# {name}",
        "",
        f"A decoder of {result['parameters']:,} parameters, trained by Gristmill on {result['tokens']:,} tokens. It "
        f"continues texts of up to {shape.seq_len:,} tokens. It was not tuned to follow instructions.",
        "",
        "**Licence: not filled in.** Whoever publishes this folder names one here and as `license` in the header.",
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
        "In training each document ended with the end-of-text token, so a document begins behind one: the tokenizer "
        "puts it ahead of a text.",
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
                ("loss on held-out text, nats a token", f"{result['heldout/loss']:.4f}"),
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


def _bits(result: dict[str, Any], source: str) -> str:
    found = result.get(f"heldout/{source}/bits_per_byte")
    return "-" if found is None else f"{found:.4f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines]
