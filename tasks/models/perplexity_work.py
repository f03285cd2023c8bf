"""The step `perplexity`: KenLM models trained by `lmplz`, perplexities of documents, percentiles of these."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import kenlm
import numpy as np
import pyarrow as pa

from storage import files, layout, leftovers, parquet
from storage.recorded_file import RecordedFile
from tasks.documents.sampling import Heldout
from tasks.documents.selection import select
from tasks.documents.step import Bound
from tasks.models.lmplz import tool
from tasks.models.model_files import check_kenlm
from tasks.models.perplexity import LanguageModel, Percentiles, Scoring

_WORDS = re.compile(r"\w+|[^\w\s]")
_DIGITS = re.compile(r"\d")
_MEMORY = "1G"


def sentences(text: str) -> list[str]:
    """The lines of a document as the language model reads them: words separated by one space, no empty lines."""
    folded = _DIGITS.sub("0", text.lower())
    return [" ".join(words) for line in folded.split("\n") if (words := _WORDS.findall(line))]


def train_model(
    folder: str,
    shard: int,
    reference: Sequence[tuple[str, str]],
    raw: Sequence[tuple[str, str]],
    settings: LanguageModel,
    heldout: Heldout,
) -> dict:
    """Train a KenLM model on the reference's (documents, selection) parts; writes `model.bin`, returns size and counts.

    The raw documents are not read.

    The text goes through a temporary file shard by shard; `lmplz` sorts on disk within 1 GB.
    Raises RuntimeError with lmplz's own last words when it fails.
    """
    with tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch:
        text, arpa, model = (str(Path(scratch) / name) for name in ("text", "arpa", "model.bin"))
        documents = words = 0
        with open(text, "w", encoding="utf-8") as f:
            for documents_part, kept in reference:
                for document in heldout.without(select(documents_part, kept, ["text"]))["text"].to_pylist():
                    lines = sentences(document)
                    documents += 1
                    words += sum(line.count(" ") + 1 for line in lines)
                    f.writelines(line + "\n" for line in lines)
        if not words:
            raise ValueError(
                f"the step `perplexity` learns from words, but its `reference` has none ({documents} documents): name "
                "another source in `reference`, or loosen the steps before it"
            )
        # small references lack the counts of counts that Kneser-Ney discounts need
        options = ["-o", str(settings.order), "-S", _MEMORY, "-T", scratch, "--discount_fallback", "--skip_symbols"]
        _run([str(tool("lmplz")), *options, "--text", text, "--arpa", arpa])
        _run([str(tool("build_binary")), "trie", arpa, model])
        with files.create(files.join(folder, "model.bin")) as target, open(model, "rb") as source:
            shutil.copyfileobj(source, target)
        return {
            "files": ["model.bin"],
            "documents": documents,
            "words": words,
            "bytes": Path(model).stat().st_size,
        }


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}: {result.stderr.strip()[-800:]}")


def score_shard(
    folder: str, shard: int, documents: str, kept: str, models: Sequence[RecordedFile], settings: Scoring
) -> dict:
    """Write `id` and `perplexity` of a selection's documents; the model is loaded once per process."""
    [model] = models
    table = select(documents, kept, ["text"])
    values = [perplexity(load(model), text) for text in table["text"].to_pylist()]
    scores = pa.table({"id": table["id"], "perplexity": pa.array(values, pa.float64())})
    parquet.write_table(layout.part(folder, shard), scores)
    return {"rows": len(table)}


@cache
def load(model: RecordedFile) -> kenlm.Model:
    local = model.local()
    check_kenlm(local)
    return kenlm.Model(local)


def perplexity(model: kenlm.Model, text: str) -> float:
    """Perplexity per word of a document. A document without words gets that of an empty sentence."""
    lines = sentences(text) or [""]
    length = sum(len(line.split()) + 1 for line in lines)
    score = sum(model.score(line, bos=True, eos=True) for line in lines)
    return 10 ** (-score / length)


def bounds(settings: Percentiles, scores: Sequence[str]) -> list[Bound]:
    """Between the perplexities at two percentiles of all that were scored (linear interpolation).

    `scores`: the parts with scores. Holds one float64 per document of the corpus. Raises ValueError if there is none.
    """
    parts = [np.empty(0), *(np.asarray(parquet.read_table(s, ["perplexity"])["perplexity"]) for s in scores)]
    values = np.concatenate(parts)
    if not len(values):
        raise ValueError(
            "the step `perplexity` has no document to score: leave a source out of its `reference`, or drop the step"
        )
    low, high = np.percentile(values, [settings.min_percentile, settings.max_percentile]).tolist()
    return [Bound("min_percentile", "perplexity", low=low), Bound("max_percentile", "perplexity", high=high)]
