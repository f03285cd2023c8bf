"""The step `topic`: the model asked for the most probable label of each document."""

import numpy as np
import pyarrow as pa

from gristmill.storage import files
from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.models.classifier import classifier_file
from gristmill.tasks.models.classifier.training import line
from gristmill.tasks.models.model_files import LABEL, ModelFileError
from gristmill.tasks.models.topic.topic import OTHER, Topic


def measure(step: Topic, documents: Batch) -> dict[str, pa.Array]:
    """The most probable topic of each text, and its probability. A text without a word that the model knows has the
    topic `other`."""
    model = classifier_file.load(classifier_file.recorded(step.model, step.model_checksum))
    lines = [line(text, step.characters, step.lowercase) for text in documents["text"].to_pylist()]
    labels, scores = model.predict(lines, k=1) if lines else ([], [])
    probable = np.array([min(1.0, float(row[0])) if len(row) else 0.0 for row in scores], np.float32)
    topics = [
        row[0].removeprefix(LABEL) if len(row) and score >= step.least_probability else OTHER
        for row, score in zip(labels, probable.tolist(), strict=True)
    ]
    return {"topic": pa.array(topics, pa.string()), "topic_score": pa.array(probable)}


def pinned(step: Topic) -> Topic:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has no label that `keep` names."""
    topics = [*classifier_file.labels(step.model), OTHER]
    for key in ("keep", "drop"):
        if unknown := [topic for topic in getattr(step, key) or () if topic not in topics]:
            there = ", ".join(topics[:12])
            raise ModelFileError(f"{step.model} has no topic {unknown[0]}; name some of {there} in `{key}`")
    classifier_file.check(step.model, step)
    return step.model_copy(update={"model_checksum": files.checksum(step.model)})
