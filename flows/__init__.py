"""What runs, in which order, with what settings.

from flows import pipeline
pipeline("demo.yaml")
"""

import flows.environment  # noqa: F401  (before anything imports prefect)
from flows.pipeline import corpus, pipeline, pretrain, tokens

__all__ = ["corpus", "pipeline", "pretrain", "tokens"]
