"""The steps `toxicity` and `adult_content`: a model's probability of one label for documents and for their lines."""

import numpy as np
import pyarrow as pa

from storage import files
from tasks.documents.batch import Batch
from tasks.models import classifier_file, fasttext_files
from tasks.models.classifier_training import line, probabilities
from tasks.models.harm import Harm
from tasks.models.model_files import LABEL, label_of


def measure(step: Harm, documents: Batch) -> dict[str, pa.Array]:
    """The probability of the label for each text, and the share of its characters in lines above `line_score`."""
    model = fasttext_files.load(fasttext_files.recorded(step.model, step.model_checksum))
    label = label_of(model.labels, step.label)
    texts = [text[: step.characters] for text in documents["text"].to_pylist()]
    lines = [[part for part in text.split("\n") if part.strip()] for text in texts]
    distinct = list(dict.fromkeys(part for parts in lines for part in parts))
    asked = [line(text, step.characters, step.lowercase) for text in (*texts, *distinct)]
    scores = probabilities(model, asked, label).astype(np.float32)
    above = {
        part: len(part) for part, score in zip(distinct, scores[len(texts) :], strict=True) if score > step.line_score
    }
    counted = np.array([sum(above.get(part, 0) for part in parts) for parts in lines], np.float64)
    whole = np.array([sum(map(len, parts)) for parts in lines], np.float64)
    shares = np.divide(counted, whole, out=np.zeros(len(texts)), where=whole > 0).astype(np.float32)
    score, share = (signal.name for signal in step.signals)
    return {score: pa.array(scores[: len(texts)]), share: pa.array(shares)}


def pinned(step: Harm) -> Harm:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has not the label."""
    label_of([f"{LABEL}{label}" for label in fasttext_files.labels(step.model)], step.label)
    classifier_file.check(step.model, step)
    return step.model_copy(update={"model_checksum": files.checksum(step.model)})
