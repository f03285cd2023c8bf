"""Sources and home in an S3-compatible store: several processes read and write them, and the bytes are the same."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gristmill.storage import files, parquet
from gristmill.training.checkpoint import keeping


def refusing(method: str, path: str, nth: int) -> int | None:
    """Every twentieth request is refused, up to three in a row for the same object."""
    return 503 if nth < 3 and random.Random(f"{method} {path} {nth}").random() < 0.05 else None


def slow(method: str, path: str, nth: int) -> None:
    time.sleep(0.1)


TROUBLES = {"healthy": lambda method, path, nth: None, "refusing": refusing, "slow": slow}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_corpus_from_and_into_an_object_store_has_the_same_bytes(undisturbed, runs, recipe, s3, crawl, trouble):
    for path in sorted(crawl.folder.glob("*.warc.gz")):
        files.copy(str(path), f"s3://crawl/raw/{path.name}")
    sources = [
        {"name": source["name"], "warc": [f"s3://crawl/raw/{Path(pattern).name}" for pattern in source["warc"]]}
        for source in recipe["sources"]
    ]
    until = [step["step"] for step in recipe["steps"]].index("minhash") + 1
    fewer = recipe | {"sources": sources, "steps": recipe["steps"][:until]}
    home = runs.home(f"store_{trouble}")
    environment = runs.environment(f"store_{trouble}", local=str(home)) | s3.environment
    environment["GRISTMILL_HOME"] = "s3://crawl/home"
    command = [sys.executable, "-c", "import sys, gristmill; gristmill.corpus(sys.argv[1])", str(runs.write(fewer))]
    s3.refuse, began = TROUBLES[trouble], len(s3.requests)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    asked, s3.refuse = s3.requests[began:], TROUBLES["healthy"]
    assert done.returncode == 0, done.stdout + done.stderr
    refused = sum(status == 503 for *_, status in asked)
    print(f"{trouble}: {len(asked):,} requests, {refused:,} refused")
    assert (refused > 0) == (trouble == "refusing")
    expected = [
        (stage, rows(str(folder)))
        for name, folder in undisturbed.stages("undisturbed").items()
        if (stage := name.rpartition("-")[0]) in ("documents", "rules", "near_duplicates")
    ]
    compared = []
    for name in files.names("s3://crawl/home/stages"):
        stage = name.rpartition("-")[0]
        if stage in ("documents", "rules", "near_duplicates"):
            found = rows(f"s3://crawl/home/stages/{name}")
            assert len(found) == 5 * 2 and (stage, found) in expected
            compared.append(stage)
    assert sorted(compared) == ["documents", "near_duplicates", "rules"]


def rows(folder: str) -> dict[str, list[dict]]:
    """By part of a stage its rows: its bytes hold its name, of which the key is a part."""
    return {part: parquet.read_table(files.join(folder, part)).to_pylist() for part in parts(folder)}


def parts(folder: str) -> list[str]:
    ledgers = [f"ledger/{name}" for name in files.names(files.join(folder, "ledger"))]
    return [name for name in [*files.names(folder), *ledgers] if name.endswith(".parquet")]


TRAINS = """
import sys, gristmill
report = gristmill.pipeline(sys.argv[1])
print("MODEL", report.trained.model.folder)
"""


@pytest.mark.slow
def test_a_training_beside_a_home_in_an_object_store_goes_on_on_another_machine(runs, recipe, s3, tmp_path):
    """Its checkpoints and all that it made are there; a machine with nothing local goes on from the middle."""
    fewer = recipe | {"steps": recipe["steps"][:1], "mixture": recipe["mixture"] | {"packing": "best_fit"}}
    path = str(runs.write(fewer))

    def run(local: str, path: str = path) -> tuple[str, str]:
        environment = runs.environment("trained_store", local=str(tmp_path / local), executor="threads")
        environment |= s3.environment | {"GRISTMILL_HOME": "s3://crawl/home"}
        done = subprocess.run([sys.executable, "-c", TRAINS, path], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("MODEL")]
        return folder, done.stdout + done.stderr

    folder, _ = run("one")
    assert folder.startswith("s3://crawl/home/stages/model-")
    assert keeping.stored(f"{folder}/checkpoints") == {6, 12}
    kept = {name: files.checksum(f"{folder}/{name}") for name in ("metrics.jsonl", "model.safetensors", "config.json")}
    assert run("one")[0] == run("two")[0] == folder  # finished: found, and not trained again

    point = f"{folder.rpartition('/')[2]}@step-6"
    branch = fewer | {"name": "branch", "training": recipe["training"] | {"init_from": point}}
    branched, said = run("branch", str(runs.write(branch)))
    assert branched != folder and "branching from step 6 of" in said
    assert files.checksum(f"{branched}/model.safetensors") == kept["model.safetensors"]  # nothing else has changed

    # as after a kill: the job that notes what the files hold is not done either
    for name in ("manifest.json", "done", "model.safetensors", "result.json", "checkpoints/step-00000012/COMMIT"):
        files.remove(f"{folder}/{name}")
    again, said = run("three")
    assert again == folder and "step-00000006 is from s3://crawl/home" in said
    assert {name: files.checksum(f"{folder}/{name}") for name in kept} == kept
