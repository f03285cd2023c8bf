"""The shares of the sources, within their caps, and the file that training reads."""

import orjson

from storage import checked_json, files
from storage.recorded_file import RecordedFile
from storage.training_manifest import token_dtype
from tasks.tokens.mixture import Mixture


def shares(weights: dict[str, float], tokens: dict[str, int], budget: int, max_epochs: float) -> dict[str, float]:
    """Fraction of `budget` tokens that each source gives; sums to one.

    Raises ValueError when all sources, repeated `max_epochs` times, do not fill the budget.
    """
    available = {name: tokens[name] * max_epochs for name in weights}
    if sum(available.values()) < budget:
        given_by = ", ".join(f"{name} {tokens[name]:,}" for name in sorted(weights))
        raise ValueError(
            f"training takes {budget:,} tokens (training.steps * training.batch * model.seq_len), but the sources have "
            f"{given_by}, which mixture.max_epochs {max_epochs:g} makes {sum(available.values()):,.0f}: lower "
            "training.steps or model.seq_len, raise mixture.max_epochs or give more data"
        )
    given: dict[str, float] = {}
    open_names = sorted(weights)
    while open_names:
        rest = budget - sum(given.values())
        weight = sum(weights[name] for name in open_names)
        capped = [name for name in open_names if available[name] < rest * weights[name] / weight]
        for name in capped or open_names:
            given[name] = available[name] if capped else rest * weights[name] / weight
        open_names = [name for name in open_names if name not in given]
    return {name: given[name] / budget for name in sorted(given)}


def write_mixture(
    folder: str, shard: int, tokens: dict[str, list[dict]], heldout: dict[str, list[dict]], tokenizer: RecordedFile,
    token_bytes: RecordedFile, end_of_text: int, budget: int, settings: Mixture,
) -> dict:  # fmt: skip
    """Write `mixture.json`: what training reads, all paths relative to its folder.

    `tokens` and `heldout` give the shards (`path`, `tokens`, `digest`) by source, `budget` the tokens of the whole run.
    """
    if empty := sorted(name for name, parts in tokens.items() if not parts):
        raise ValueError(f"the mixture names {', '.join(empty)}, but no document of these is left to train on")
    totals = {name: sum(s["tokens"] for s in parts) for name, parts in tokens.items()}
    given = shares(settings.weights, totals, budget, settings.max_epochs)
    counts = orjson.loads(token_bytes.read())
    mixture = {
        "vocab_size": len(counts),
        "dtype": token_dtype(len(counts)),
        "tokenizer": {"path": tokenizer.path, "digest": tokenizer.digest},
        "end_of_text": end_of_text,
        "token_bytes": counts,
        "sources": [
            {
                "name": name,
                "share": share,
                "tokens": totals[name],
                "epochs": share * budget / totals[name],
                "shards": tokens[name],
            }
            for name, share in given.items()
        ],
        "heldout": [{"name": name, "shards": parts} for name, parts in sorted(heldout.items()) if parts],
    }
    if not mixture["heldout"]:
        raise ValueError(f"no document was held out: raise mixture.heldout_fraction ({settings.heldout_fraction})")
    checked_json.write(files.join(folder, "mixture.json"), mixture)
    return {"sources": {s["name"]: {k: s[k] for k in ("share", "tokens", "epochs")} for s in mixture["sources"]}}
