"""Export a recipe's tokens for other trainers. Separate: it needs numpy where training needs torch."""

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.finished import finished
from gristmill.flows.stages.export import recipe_of_card
from gristmill.flows.stages.model import local_mixture
from gristmill.samples import SampleSource
from gristmill.samples.formats.export import TokenExport
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import NotFinishedError


def token_export(name: str, settings: MachineSettings) -> TokenExport:
    """What there is to export of a recipe. Makes nothing; reads each token shard, and compares it with its digest.

    Raises NotFinishedError where the recipe's tokens are not there, ValueError for a training whose samples are no
    windows or rows of tokens, MissingFileError and DamagedFileError.
    """
    recipe = load(name)
    recipe.training_mixture()
    report = finished(recipe, settings)
    if report.data is None:
        raise NotFinishedError(f"the tokens of {recipe.name} are not finished: `gristmill tokens {name}` first")
    training, seq_len = recipe.training, recipe.model.seq_len
    if training.objective != "causal":
        raise ValueError(
            f"training.objective is {training.objective}, whose samples are made while training reads: no other "
            "trainer's format has them; set `training.objective: causal` to export tokens"
        )
    path = local_mixture(settings, report.data.mixture.folder)
    samples = training.batches(seq_len).first(training.steps)  # with a ramp more than steps * batch
    source = SampleSource(path, seq_len, training.batch, training.data_seed, steps=samples // training.batch)
    card = recipe_of_card(recipe, {"tokenizer", "mixture", "model", "training"})
    return TokenExport(recipe.name, report.data.mixture.key, card, source, load_training_manifest(path))
