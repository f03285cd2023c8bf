"""The step `language`: the most probable language of each document's beginning."""

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.models.language.identification import identified, pinned_model
from gristmill.tasks.models.language.language import Language


def measure(step: Language, documents: Batch) -> dict[str, pa.Array]:
    """The most probable language of each text, and its probability."""
    labels, scores = identified(step, pc.utf8_slice_codeunits(documents["text"], 0, step.characters))
    return {"language": pa.array(labels, pa.string()), "language_score": pa.array(scores, pa.float32())}


def pinned(step: Language) -> Language:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has no label that `keep` names."""
    return pinned_model(step, step.keep)
