"""A learned filter: a model is trained on a reference, scores all other documents, and documents are kept by score.

Every learned filter has a work module with the same three functions, which get a slice of the settings each:

    train_model(folder, shard, reference, raw, settings, heldout) -> dict   # writes model.bin; `training_settings()`
    score_shard(folder, shard, documents, kept, model, settings) -> dict    # writes id, score; `scoring_settings()`
    bounds(settings, scores) -> list[Bound]                                 # by the scored parts; `decision_settings()`

`reference`, `raw`: (documents, selection) parts of the reference sources and of all others; `scores`: paths of parts.
"""

from pydantic import Field

from tasks.documents.step import CorpusStep, Settings


class LearnedFilter(CorpusStep):
    """A step that keeps documents by the score that a model trained on `reference` gives them."""

    reference: tuple[str, ...] = Field(min_length=1, description="names of the sources the model is trained on")

    @property
    def signal(self) -> str:
        """The name of the column with the scores."""
        return self.signals[0].name

    def training_settings(self) -> Settings:
        """What decides the model, besides the documents."""
        raise NotImplementedError

    def scoring_settings(self) -> Settings:
        """What decides the scores, besides the documents and the model."""
        raise NotImplementedError

    def decision_settings(self) -> Settings:
        """The thresholds, which are the fields named in `decision_fields`."""
        raise NotImplementedError
