"""What a layout cannot do is reported by name with a fix that works, and nothing that it can do."""

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.training.config import TrainingConfig
from gristmill.training.layout.limits import few_micro_batches, lacking, undivided_vocabulary
from gristmill.training.model_config import ModelConfig

SHAPE = {"dim": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "seq_len": 64, "layers": 4}
# settings, the key that is reported, the beginning of the sentence, and what the sentence says to do
REFUSED = [
    ({}, {"parallel": {"tensor": 4}}, "parallel.tensor", "is 4, but model.kv_heads is 2", {"kv_heads": 4}, {}),
    ({}, {"parallel": {"context": 4}}, "parallel.context", "is 4, but model.kv_heads is 2", {"kv_heads": 4}, {}),
    ({"ffn": 97}, {"parallel": {"tensor": 2}}, "parallel.tensor", "is 2, but model.ffn is 97", {"ffn": 96}, {}),
    ({"seq_len": 63}, {"parallel": {"context": 2}}, "parallel.context", "is 2, but model.seq_len", {"seq_len": 64}, {}),
    (
        {"layers": 7},
        {"parallel": {"pipeline": 8}},
        "parallel.pipeline",
        "is 8, which makes 8 stages",
        {"layers": 8},
        {},
    ),
    (
        {},
        {"parallel": {"pipeline": 4, "interleave": 2}},
        "parallel.pipeline",
        "is 4, which makes 8 stages of 4 model.layers; set it to 2",
        {},
        {"parallel": {"pipeline": 2, "interleave": 2}},
    ),
    ({}, {"parallel": {"interleave": 2}}, "parallel.interleave", "is 2, but", {}, {"parallel": {"interleave": 1}}),
    (
        {"layers": 2},
        {"parallel": {"pipeline": 2, "interleave": 2}},
        "parallel.interleave",
        "is 2, which makes 4 stages of 2 model.layers; set it to 1",
        {},
        {"parallel": {"pipeline": 2, "interleave": 1}},
    ),
    (
        {"layers": 3},
        {"parallel": {"interleave": 2}},
        "parallel.interleave",
        "is 2, but training.parallel.pipeline is 1; set interleave to 1",
        {},
        {"parallel": {"interleave": 1}},
    ),
    ({}, {"fp8_min_dim": 32, "parallel": {"tensor": 2}}, "fp8_min_dim", "is 32, but", {}, {"fp8_min_dim": None}),
]


def reported(model: dict, training: dict) -> dict[str, str]:
    given = TrainingConfig(**{"optimizer": "adamw", **training})
    return {".".join(path): sentence for path, sentence in lacking(ModelConfig(**SHAPE | model), given)}


@pytest.mark.parametrize("model, training, key, sentence, better_model, better", REFUSED)
def test_a_setting_that_a_layout_cannot_have_is_named_with_a_fix(model, training, key, sentence, better_model, better):
    [(path, found)] = reported(model, training).items()
    assert path == f"training.{key}" and found.startswith(sentence)
    assert "set " in found or "change one of them" in found
    assert reported(model | better_model, training | better) == {}


@pytest.mark.parametrize(
    "training",
    [
        {"parallel": {"tensor": 2, "pipeline": 2}, "optimizer": "muon"},
        {"parallel": {"context": 2, "pipeline": 4}, "document_mask": True, "loss_chunks": 8},
        {"parallel": {"replicas": 2, "shard": 4, "tensor": 2}, "objective": "masked", "precision": "fp16"},
        {"parallel": {"context": 2}, "fp8_min_dim": 32, "recompute": "selective", "compile": True},
        {"parallel": {"pipeline": 2, "interleave": 2}, "z_loss": 1e-4, "objective": "span_corruption"},
    ],
)
def test_what_a_layout_has_is_not_refused(training):
    assert reported({}, training) == {}


def test_tensor_and_context_divide_the_heads_together():
    both = {"parallel": {"tensor": 2, "context": 2}}
    assert reported({"kv_heads": 4}, both) == {}
    [(name, sentence)] = reported({}, both).items()
    assert name == "training.parallel.tensor"
    assert sentence == "is 2, with context 2, but model.kv_heads is 2, which is not a multiple of 4; change one of them"


def micro_batches(training: TrainingConfig, processes: int) -> int:
    """Of a step, by hand."""
    rows = -(-training.batch // (processes // training.parallel.model_ranks))
    return -(-rows // training.micro_batch)


@pytest.mark.parametrize("pipeline", [2, 3, 4])
@pytest.mark.parametrize("interleave", [1, 2])
def test_the_micro_batch_that_is_proposed_fills_the_pipeline(pipeline, interleave):
    parallel = {"pipeline": pipeline, "interleave": interleave}
    refused = 0
    for batch in range(1, 20):
        for size in range(1, batch + 1):
            training = TrainingConfig(batch=batch, micro_batch=size, parallel=parallel)
            count = micro_batches(training, pipeline)
            fits = count >= pipeline and (interleave == 1 or count % pipeline == 0)
            found = list(few_micro_batches(training, pipeline))
            assert bool(found) != fits, (batch, size)
            if not found:
                continue
            refused += 1
            [(path, sentence)] = found
            assert path == ("training", "micro_batch") and f"makes {count} micro-batch" in sentence
            remedy = sentence.rpartition("; ")[2]
            if remedy.startswith("set micro_batch to "):
                better = training.model_copy(update={"micro_batch": int(remedy.split()[-1])})
                assert list(few_micro_batches(better, pipeline)) == []
            else:
                assert remedy.startswith(f"set batch to a multiple of {pipeline}, and micro_batch to 1")
                better = training.model_copy(update={"micro_batch": 1, "batch": pipeline})
                assert list(few_micro_batches(better, pipeline)) == []
    assert refused


def test_readers_of_different_sequences_have_their_own_micro_batches():
    training = TrainingConfig(batch=16, micro_batch=4, parallel={"pipeline": 4})
    assert list(few_micro_batches(training, 4)) == []  # four micro-batches
    [(_, sentence)] = few_micro_batches(training, 8)  # two for each of two pipelines
    assert sentence == (
        "is 4, which makes 2 micro-batches of a step's 8 sequences per pipeline, but training.parallel.pipeline 4 "
        "needs at least 4; set micro_batch to 2"
    )


def test_a_vocabulary_that_is_not_divided():
    [(path, sentence)] = undivided_vocabulary(1_001, TrainingConfig(parallel={"tensor": 2}).parallel)
    assert path == ("training", "parallel", "tensor")
    assert sentence.startswith("is 2, which does not divide the vocabulary of 1,001 tokens; use a tokenizer.vocab_size")
    assert list(undivided_vocabulary(1_002, TrainingConfig(parallel={"tensor": 2}).parallel)) == []


def test_the_check_of_a_recipe_names_what_its_processes_cannot_divide(tmp_path):
    """The keys as they are in the file."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("One text.\n")
    recipe = {
        "name": "layouts",
        "sources": [{"name": "web", "text": [str(tmp_path / "texts" / "*.txt")]}],
        "steps": [],
        "mixture": {"weights": {"web": 1}},
        "tokenizer": {"vocab_size": 1001},
        "model": {"layers": 4, "heads": 2, "dim": 64},
        "training": {"batch": 4, "micro_batch": 4, "parallel": {"tensor": 2, "pipeline": 2}},
    }

    def keys(processes: int, recipe: dict) -> set[str]:
        settings = MachineSettings(home=str(tmp_path / "home"), training_processes=processes)
        return {found.key for found in check(recipe, settings).findings}

    assert keys(4, recipe) == {"training.micro_batch", "training.parallel.tensor"}
    assert keys(6, recipe) == {"training.parallel", "training.parallel.tensor"}
    better = recipe | {"tokenizer": {"vocab_size": 1002}, "training": recipe["training"] | {"micro_batch": 2}}
    assert keys(4, better) == set()
    old = recipe | {"training": {"engine": "olmo_core"}}
    [found] = check(old, MachineSettings(home=str(tmp_path / "home"))).findings
    assert found.key == "training.engine" and "remove it: `training.parallel` now divides" in found.message
