"""A learned filter: models score documents, and documents are kept by score.

The models are trained on the sources in `reference`, whose documents are kept unscored, or are files that the step
names. Every learned filter has a work module with the same three functions, which get a slice of the settings each:

    train_model(folder, shard, reference, raw, settings, heldout) -> dict   # writes `files`; `training_settings()`
    score_shard(folder, shard, documents, kept, models, settings) -> dict   # writes id, score; `scoring_settings()`
    bounds(settings, scores) -> list[Bound]                                 # by the scored parts; `decision_settings()`

`reference`, `raw`: (documents, selection) parts of the reference sources and of others; `files`: names of the models in
the record of the training; `models`: these, or the named ones, as recorded files; a step that `reads` signals is also
given `signals`, the parts that have them; `scores`: paths of parts. Models are loaded once a
process. A score is a function of a document's id, its text and the models alone, and a model of the documents that it
is trained on, in whatever order and shards they come.
"""

from collections.abc import Sequence

from pydantic import Field

from gristmill.tasks.documents.step import CorpusStep, Settings


class LearnedFilter(CorpusStep):
    """A step that keeps documents by the scores that models give them."""

    reference: tuple[str, ...] = Field(min_length=1, description="names of the sources the model is trained on")

    @property
    def question(self) -> str:
        return "Should a model be trained on it?"

    @property
    def named_models(self) -> tuple[str, ...]:
        """Paths or addresses of the models that it names, instead of training some."""
        return ()

    def raw(self, sources: Sequence[str]) -> tuple[str, ...]:
        """The sources that the reference is set against in training, of those of the recipe: all others."""
        return tuple(sorted(set(sources) - set(self.reference)))

    @property
    def signal(self) -> str:
        """The name of the column with the scores."""
        return self.signals[0].name

    @property
    def scores(self) -> tuple[str, ...]:
        """The columns that its work module writes."""
        return (self.signal,)

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns of strings that its work module writes beside them: by which the scores are cut apart."""
        return ()

    def training_settings(self) -> Settings:
        """What decides the models, besides the documents."""
        raise NotImplementedError

    def scoring_settings(self) -> Settings:
        """What decides the scores, besides the documents and the models."""
        raise NotImplementedError

    def decision_settings(self) -> Settings:
        """The thresholds, which are the fields named in `decision_fields`."""
        raise NotImplementedError
