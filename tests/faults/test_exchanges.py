"""Valid files in the places of others, and damaged ones, over all kinds of files of a whole run and its exports. What
reads one refuses it by a sentence whose remedy works, or what follows is the same."""

import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gristmill.flows.curation import Outputs, curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.run.model_training import train
from gristmill.flows.stages.export import export
from gristmill.storage import layout
from gristmill.storage.home import Home, verify
from gristmill.training.hub.model_folder import write_model_folder
from gristmill.training.hub.weights import open_model
from tests import embedders
from tests.corpora import context

# A stage's files that nobody reads, or that say how it was made and not what it is.
UNREAD = re.compile(r"cost\.json|lease/.*|done/.*|training\.log|checkpoints/.*|seconds")
REMEDY = re.compile(r"; remove (?:the stage's folder |the checkpoint )?(\S+) and run")
EXPORT_REMEDY = re.compile(
    r"remove (\S+) and|(\S+?),? (?:which )?contains (?:other files|files that are not .*): .*, or empty it"
)
TRAINED = ("tokens", "tokenizer", "mixture", "model")


def make(home: Path, recipe: dict, model: bool) -> None:
    """The recipe's stages, as a flow makes them, in this process."""
    outputs = Outputs(context(str(home)), load(recipe), train=train)
    outputs.make("corpus" if "mixture" not in recipe else "pretrain" if model else "tokens")


@dataclass(frozen=True)
class Exchange:
    """`file`, within a stage of the recipe, gets the content of `by`. A swap gives it the other's as well."""

    stage: str
    file: str
    by: Path
    swap: bool

    @property
    def kind(self) -> str:
        return f"{self.stage.rpartition('-')[0]}/{re.sub(r'[0-9]+', 'N', self.file)}"


@dataclass(frozen=True)
class Damage:
    """A bit of `file` is flipped, its second half is cut off, or it is deleted."""

    stage: str
    file: str
    how: str

    kind = Exchange.kind

    def put(self, path: Path) -> None:
        data = path.read_bytes()
        at = Random(f"{path.name}{self.how}").randrange(len(data))
        if self.how == "delete":
            path.unlink()
        else:
            path.write_bytes(data[:at] + (bytes([data[at] ^ 1]) + data[at + 1 :] if self.how == "flip" else b""))


HOW = ("flip", "cut", "delete")


def damages(home: Path) -> Iterator[Damage]:
    """Of every file of every stage."""
    for folder in sorted((home / "stages").iterdir()):
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_file() and path.stat().st_size and not UNREAD.fullmatch(name):
                yield from (Damage(folder.name, name, how) for how in HOW)


def exchanges(home: Path, other: Path | None) -> Iterator[Exchange]:
    """Of every file of every stage: with one of the same kind in its stage, with that of another recipe's stage."""
    theirs = {path.name.rpartition("-")[0]: path for path in sorted((other / "stages").iterdir())} if other else {}
    folders = sorted((home / "stages").iterdir())
    for folder in folders:
        kinds = defaultdict(list)
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_file() and not UNREAD.fullmatch(name):
                kinds[re.sub("[0-9]+", "N", name)].append(name)
        beside = theirs.get(folder.name.rpartition("-")[0], folder)
        assert other is None or beside.name != folder.name, "the other recipe shares the stage"
        for names in kinds.values():
            for first, second in zip(names, names[1:], strict=False):
                yield Exchange(folder.name, first, folder / second, swap=True)
            for name in names:
                if other and (beside / name).exists():
                    yield Exchange(folder.name, name, beside / name, swap=False)
        another = folders[folders.index(folder) - 1]
        yield Exchange(folder.name, "manifest.json", another / "manifest.json", swap=False)


def contents(home: Path) -> dict[str, Any]:
    """Digests of all that the stages' jobs have written and recorded, from the files themselves."""
    found = {}
    for stage in Home(str(home)).stages():
        assert not verify(stage.folder).damages
        for part in layout.parts(stage.folder, layout.manifest(stage.folder) or {}):
            if stage.name != "model":
                found |= {f"{stage.label}/{name}": facts["content"] for name, facts in part.files.items()}
            elif "model.safetensors" in part.files:
                found[stage.label] = part.files["model.safetensors"]["content"]
    return found


def whole(folder: Path) -> bool:
    try:
        return not verify(str(folder)).damages
    except layout.ManifestError:
        return False


def behind(home: Path, stage: str) -> list[Path]:
    """The folders of the stages that were made of one, directly or not."""
    found, keys = [], {stage.rpartition("-")[2]}
    for _ in Home(str(home)).stages():
        for each in Home(str(home)).stages():
            if each.key not in keys and keys & {*each.inputs.values()}:
                keys.add(each.key)
                found.append(Path(each.folder))
    return found


def put(home: Path, done: Exchange) -> Path:
    """Exchange the files. Returns the other one."""
    target = home / "stages" / done.stage / done.file
    given = target.read_bytes()
    by = home / "stages" / done.by.relative_to(done.by.parents[len(done.file.split("/"))]) if done.swap else done.by
    target.write_bytes(by.read_bytes())
    if done.swap:
        by.write_bytes(given)
    return by


def outcome(home: Path, recipe: dict, done: Exchange | Damage, expected: dict[str, Any]) -> str:
    """Exchange or damage, remove what is behind, run the rest, and do what the error says until there is none."""
    later = behind(home, done.stage)
    target = home / "stages" / done.stage / done.file
    given, blamed = target.read_bytes(), {done.stage}
    if isinstance(done, Exchange):
        by = put(home, done)
        blamed.add(by.parent.name if done.swap else done.stage)
    else:
        done.put(target)
    if target.exists() and target.read_bytes() == given:
        return "of the same content"
    for folder in later:
        shutil.rmtree(folder)
    tried = 0
    while True:
        try:
            make(home, recipe, done.stage.startswith(TRAINED))
            break
        except Exception as error:
            remedy = REMEDY.search(str(error))
            if remedy is None or "[Errno" in str(error):
                return f"no remedy: {error!r}"
            named = Path(remedy[1])
            if not any(stage in str(named) for stage in blamed):
                return f"blames {named}: {error}"
            shutil.rmtree(named) if named.is_dir() else named.unlink()
            tried += 1
            if tried == 6:
                return "the fix does not work"
    if tried:
        same = {name: digest for name, digest in contents(home).items() if not name.startswith("model-")}
        return "refused" if same.items() <= expected.items() else "refused, then other bytes"
    if (home / "stages" / done.stage / "manifest.json").exists() and whole(home / "stages" / done.stage):
        return "mended" if contents(home).items() <= expected.items() else "silent: verify takes it"
    shutil.rmtree(home / "stages" / done.stage)
    if not contents(home).items() <= expected.items():
        return "silent: what follows has other bytes"
    return "not read"


GOOD = ("refused", "mended", "not read", "of the same content")


@pytest.fixture(scope="module")
def other(recipe, tmp_path_factory) -> Path:
    """The home of a recipe whose stages have other keys."""
    other = tmp_path_factory.mktemp("other")
    sources = [{**recipe["sources"][0], "warc": [recipe["sources"][0]["warc"][0].replace("web-*", "web-0000[12]*")]}]
    changed = {**recipe, "name": "other", "seed": 5, "sources": [*sources, recipe["sources"][1]]}
    make(other, changed, model=True)
    return other


def try_all(drawn: list[Any], home: Path, recipe: dict, folder: Path) -> list[tuple[Any, str]]:
    expected = contents(home)
    found = []
    for number, each in enumerate(drawn):
        here = folder / f"home-{number}"  # MLflow keeps a database open by its path
        shutil.copytree(home / "stages", here / "stages")
        found.append((each, outcome(here, recipe, each, expected)))
        shutil.rmtree(here)
    return found


def drawn(each: Iterator[Any], most: int) -> list[Any]:
    """One of each kind in turn, until there are so many."""
    kinds = defaultdict(list)
    for one in each:
        kinds[one.kind].append(one)
    rng = Random(3)
    queues = [rng.sample(some, len(some)) for some in kinds.values()]
    rng.shuffle(queues)
    return [some[at] for at in range(max(map(len, queues))) for some in queues if at < len(some)][:most]


@pytest.mark.extended
def test_a_swap(undisturbed, recipe, tmp_path):
    home = undisturbed.home("undisturbed")
    swapped = next(each for each in exchanges(home, None) if each.swap and each.kind == "documents/part-N.parquet")
    [(_, result)] = try_all([swapped], home, recipe, tmp_path)
    assert result == "refused"


@pytest.mark.extended
@pytest.mark.parametrize("how", ["flip", "delete"])
def test_a_damage(undisturbed, recipe, tmp_path, how):
    home = undisturbed.home("undisturbed")
    damage = next(each for each in damages(home) if each.kind == "quality_model/model-N.bin" and each.how == how)
    [(_, result)] = try_all([damage], home, recipe, tmp_path)
    assert result == "refused"


def show(found: list[tuple[Any, str]], capsys) -> None:
    with capsys.disabled():
        print()
        for each, result in found:
            how = each.how if isinstance(each, Damage) else "swap" if each.swap else "another recipe or format"
            print(f"{each.kind:50} {how:18} {result}")
        print(Counter(result for _, result in found))


@pytest.mark.slow
def test_exchanges_of_all_kinds(undisturbed, recipe, other, tmp_path, capsys):
    home = undisturbed.home("undisturbed")
    found = try_all(drawn(exchanges(home, other), 100), home, recipe, tmp_path)
    show(found, capsys)
    results = Counter(result for _, result in found)
    assert len(found) >= 60 and set(results) <= {*GOOD}
    # so that they were made, and met a reader
    assert results["of the same content"] <= 10 and results["refused"] + results["mended"] >= len(found) // 2


def with_vectors(folder: Path, name: str, seed: int) -> dict:
    """A recipe whose documents are embedded, and clustered by their vectors."""
    draw, words = Random(seed), embedders.WORDS
    texts = [" ".join(draw.choices(words, k=30)) for _ in range(60)]
    folder.mkdir()
    for number in range(3):
        lines = (json.dumps({"text": text}) for text in texts[number::3])
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    source = {"name": "web", "jsonl": [str(folder / "*.jsonl")], "shard_bytes": 1}
    model = embedders.write(folder / "embedder")
    steps = [{"step": "embedding", "model": model}, {"step": "semantic_dedup", "similarity": 0.9, "clusters": 4}]
    return {"name": name, "sources": [source], "steps": steps}


@pytest.mark.slow
def test_exchanges_of_vectors(tmp_path, capsys):
    """With those of the same stage, and with those of a home that has embedded other documents."""
    recipes = [with_vectors(tmp_path / f"from-{seed}", "vectors", seed) for seed in (1, 2)]
    homes = [tmp_path / f"home-of-{seed}" for seed in (1, 2)]
    for home, one in zip(homes, recipes, strict=True):
        make(home, one, model=False)
    kinds = [each for each in exchanges(*homes) if each.stage.startswith(("embedding", "semantic"))]
    found = try_all(drawn(iter(kinds), 60), homes[0], recipes[0], tmp_path)
    show(found, capsys)
    results = Counter(result for _, result in found)
    assert len(found) >= 10 and set(results) <= {*GOOD} and results["refused"] + results["mended"] >= 5


@pytest.mark.slow
def test_damages_of_all_kinds(undisturbed, recipe, tmp_path, capsys):
    home = undisturbed.home("undisturbed")
    found = try_all(drawn(damages(home), 100), home, recipe, tmp_path)
    show(found, capsys)
    results = Counter(result for _, result in found)
    assert len(found) == 100 and set(results) <= {*GOOD} - {"of the same content"}
    assert results["refused"] + results["mended"] >= len(found) // 2


def exported(recipe: dict, home: Path, to: Path) -> None:
    """The documents and the model, as the commands write them."""
    at = context(str(home))
    given = load(recipe | {"export": {"to": str(to / "documents")}})
    *_, last = curate(at, given)
    export(at, given, last.left)
    [model] = (home / "stages").glob("model-*")
    write_model_folder(open_model(model), to / "model", "small")


@pytest.mark.slow
def test_damages_of_exports(undisturbed, recipe, tmp_path, capsys):
    home, to = undisturbed.home("undisturbed"), tmp_path / "to"
    exported(recipe, home, to)
    sound = {path.relative_to(to): path.read_bytes() for path in sorted(to.rglob("*")) if path.is_file()}
    found = []
    for name in sound:
        for how in HOW:
            each = Damage(f"{name.parts[0]}-export", "/".join(name.parts[1:]), how)
            each.put(to / name)
            result = "mended"
            for _ in range(4):
                try:
                    exported(recipe, home, to)
                    break
                except Exception as error:
                    result = "refused"
                    remedy = EXPORT_REMEDY.search(str(error))
                    if remedy is None:
                        result = f"no remedy: {error!r}"
                        break
                    shutil.rmtree(remedy[1] or remedy[2])
            now = {path.relative_to(to): path.read_bytes() for path in sorted(to.rglob("*")) if path.is_file()}
            found.append((each, result if now == sound else f"{result}, other bytes"))
    show(found, capsys)
    assert {result for _, result in found} <= {"mended", "refused"}
