"""Servers for all tests here, a crawl of many small shards, and what comes out of it undisturbed."""

import random
from collections.abc import Iterator

import pytest

from tests import services as servers
from tests.conftest import Crawl, page, small_recipe, write_warc
from tests.planted.text import pydoc_paragraphs
from tests.service_runs import Home, ended, named
from tests.services import Services

SHARDS = 24


@pytest.fixture(scope="session")
def services(tmp_path_factory) -> Iterator[Services]:
    if lacking := servers.missing():
        pytest.skip(f"this machine lacks {lacking}")
    with servers.serve(tmp_path_factory.mktemp("services")) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            if name.startswith("AWS_"):  # this process looks into their S3
                patch.setenv(name, value)
        yield running


@pytest.fixture(scope="session")
def sharded(tmp_path_factory) -> dict:
    """A recipe whose extraction and deduplication are so many jobs, and whose training takes seconds. It has no trained
    filters, which would only be more of the same: jobs on Dask."""
    folder, draw, prose = tmp_path_factory.mktemp("sharded"), random.Random(13), pydoc_paragraphs()
    for name, shards in (("web", SHARDS - 2), ("reference", 2)):
        for shard in range(shards):
            pages = [
                (f"https://{name}.example/{shard}/{i}", page(draw.sample(prose, 8)), "200 OK", "text/html")
                for i in range(10)
            ]
            write_warc(folder / f"{name}-{shard:05d}.warc.gz", pages)
    recipe = small_recipe(Crawl(folder, {}))
    kept = [step for step in recipe["steps"] if step["step"] in ("extract", "language", "minhash", "pii")]
    training = recipe["training"] | {"steps": 400, "eval_every": 200, "checkpoint_every": 100}
    return recipe | {"steps": kept, "training": training, "mixture": recipe["mixture"] | {"max_epochs": 1000.0}}


@pytest.fixture(scope="session")
def undisturbed(services, sharded) -> dict[str, str]:
    """The contents of all stages of the recipe, made in a home of their own by a run in which nothing dies."""
    home = Home(services, "undisturbed")
    run = home.ask("pipeline", named(sharded, "undisturbed"))
    assert ended(services, run) == "COMPLETED", services.log("worker")[-4000:]
    found = home.contents()
    assert any(name.endswith("model.safetensors") for name in found) and set(home.written().values()) == {1}
    return found
