"""Which Python a training engine runs in, against planted ones that answer otherwise."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gristmill.flows.machine.engine_python import engine_python, needed
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.model import model_spec
from tests.flows.broken_recipes import BASE

WHOLE = dict.fromkeys(needed(), "1.0") | {"ai2-olmo-core": "3.0.0"}


def planted(folder: Path, releases: dict | None) -> MachineSettings:
    """A machine whose other Python has these releases, or says nothing that is known."""
    python = folder / "python"
    said = "no JSON" if releases is None else json.dumps(releases)
    python.write_text(f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{said}\nEND\n")
    python.chmod(0o755)
    return MachineSettings(home=str(folder / "home"), olmo_core_python=str(python))


def test_our_own_engine_has_our_own_python(tmp_path):
    assert engine_python(planted(tmp_path, None), "gristmill") == ""


def test_an_environment_that_has_all_is_taken(tmp_path):
    settings = planted(tmp_path, WHOLE)
    assert engine_python(settings, "olmo_core") == settings.olmo_core_python


@pytest.mark.parametrize(
    ("releases", "said"),
    [
        (WHOLE | {"pyarrow": None, "xxhash": None}, "which lacks pyarrow, xxhash; install it there: "),
        (WHOLE | {"ai2-olmo-core": "2.4.0"}, "which has ai2-olmo-core 2.4.0"),
        (None, "which does not run as a Python"),
    ],
)
def test_another_environment_is_refused_with_what_it_lacks(releases, said, tmp_path):
    settings = planted(tmp_path, releases)
    with pytest.raises(ValueError, match=said) as raised:
        engine_python(settings, "olmo_core")
    assert f"GRISTMILL_OLMO_CORE_PYTHON is {settings.olmo_core_python}" in str(raised.value)
    assert "requirements.txt" in str(raised.value)


def test_a_real_python_is_asked_what_it_has(tmp_path):
    """This one has no OLMo-core, as its pins exclude ours."""
    with pytest.raises(ValueError, match="which lacks ai2-olmo-core") as raised:
        engine_python(MachineSettings(home=str(tmp_path), olmo_core_python=sys.executable), "olmo_core")
    assert "pydantic" not in str(raised.value).partition(";")[0]


@pytest.mark.parametrize("python", ["", "/nowhere/python"])
def test_the_check_of_a_recipe_names_the_engine_and_makes_the_environment(python, tmp_path):
    for name in ("web", "books"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "A text."}\n')
    path = tmp_path / "recipe.yaml"
    path.write_text(BASE.replace("{files}", str(tmp_path)) + "  engine: olmo_core\n")
    [found] = check(str(path), MachineSettings(home=str(tmp_path / "home"), olmo_core_python=python)).findings
    assert found.key == "training.engine"
    assert "GRISTMILL_OLMO_CORE_PYTHON" in found.message
    assert "python -m venv OLMO && OLMO/bin/pip install -r " in found.message


def test_the_check_of_a_recipe_names_a_setting_that_the_engine_lacks(tmp_path):
    for name in ("web", "books"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "A text."}\n')
    path = tmp_path / "recipe.yaml"
    more = "  engine: olmo_core\n  loss_chunks: 4\n  parallel: {tensor: 2}\n"
    path.write_text(BASE.replace("{files}", str(tmp_path)) + more)
    found = {each.key: str(each) for each in check(str(path), planted(tmp_path, WHOLE)).findings}
    assert found.keys() == {"training.loss_chunks", "training.optimizer"}
    last = len(BASE.splitlines())
    assert found["training.loss_chunks"].startswith(f"{path}:{last + 2}: training.loss_chunks: is 4, which the loss of")


def test_a_model_is_the_same_one_whatever_engine_and_layout_train_it(tmp_path):
    """So a training that one engine has begun is found, and goes on, with the other."""
    stage = SimpleNamespace(label="any-" + "0" * 16, contents="0" * 32)
    data = SimpleNamespace(mixture=stage, tokens=stage, tokenizer=stage)
    keys = {}
    for name, more in {
        "plain": {},
        "other engine": {"engine": "olmo_core", "parallel": {"context": 2, "replicas": 2}},
        "other optimizer": {"optimizer": "adamw"},
    }.items():
        recipe = load({"name": "one", **yaml.safe_load(BASE), "training": {"steps": 240, **more}})
        keys[name] = model_spec(MachineSettings(home=str(tmp_path)), recipe, data).key
    assert keys["plain"] == keys["other engine"] != keys["other optimizer"]
