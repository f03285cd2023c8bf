"""Two accounts of a group, one home: a whole run by the first and then by the second, as users start them."""

import json
import os
import random
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill.tasks.kernels import compiled
from tests import accounts
from tests.accounts import ONE, OTHER, TEAM
from tests.planted.text import pydoc_paragraphs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not accounts.can_become(), reason="only root can become other accounts, in a mount namespace"),
]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account may enter: those of pytest are closed again by each of its runs."""
    folder = Path(tempfile.mkdtemp(prefix="gristmill-team-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(folder) -> Path:
    """That belongs to a group, as docs/guides/share-a-home.md has it."""
    home = folder / "home"
    home.mkdir()
    os.chown(home, ONE, TEAM)
    home.chmod(0o2770)
    return home


@pytest.fixture
def recipe(folder) -> Path:
    """A small model of two sources, with an index of words and one of phrases."""
    draw, prose = random.Random(1), pydoc_paragraphs()
    sources = []
    for name, count in (("web", 200), ("books", 60)):
        path = folder / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps({"text": "\n".join(draw.sample(prose, 8))}) for _ in range(count)))
        path.chmod(0o644)
        sources.append({"name": name, "jsonl": [str(path)]})
    learned = {"reference": ["books"], "min_score": 0.3, "dimensions": 8, "buckets": 1000}
    given = {
        "name": "team",
        "sources": sources,
        "steps": [
            {"step": "gopher_quality", "min_words": 5, "min_alpha_words": 0.1},
            {"step": "minhash"},
            {"step": "perplexity", "reference": ["books"], "max_percentile": 90, "order": 3},
            {"step": "quality", **learned},
        ],
        "index": True,
        "word_index": True,
        "tokenizer": {"vocab_size": 600, "sample_bytes": 150_000},
        "mixture": {"weights": {"web": 0.7, "books": 0.3}, "heldout_fraction": 0.05},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {
            "steps": 6, "batch": 4, "micro_batch": 2, "warmup_steps": 2, "eval_every": 3, "checkpoint_every": 3,
            "eval_tokens": 2048, "sample_tokens": 8,
        },
    }  # fmt: skip
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(given))
    path.chmod(0o644)
    return path


@pytest.fixture
def command(folder, home) -> Command:
    """Commands of an account, which has compiled its kernels."""
    for account in (ONE, OTHER):
        cache = folder / f"account-{account}" / ".cache" / "gristmill"
        cache.mkdir(parents=True, mode=0o700)
        if compiled.FOLDER.exists():
            shutil.copytree(compiled.FOLDER, cache / compiled.FOLDER.name)
        subprocess.run(["chown", "-R", f"{account}:{TEAM}", str(folder / f"account-{account}")], check=True)

    def run(account: int, *arguments: str, umask: str = "") -> subprocess.CompletedProcess[str]:
        local = folder / f"account-{account}" / "local"
        variables = {"GRISTMILL_HOME": str(home), "GRISTMILL_LOCAL": str(local), "GRISTMILL_WORKERS": "2"}
        variables |= {"GRISTMILL_UMASK": umask} if umask else {}
        return accounts.run(account, folder, sys.executable, "-m", "gristmill", *arguments, **variables)

    return run


def rights(home: Path) -> dict[int, Path]:
    """The rights of what is in a home, each with an example."""
    return {stat.S_IMODE(path.stat().st_mode) & 0o777: path for path in home.rglob("*")}


def test_a_group_shares_a_home(home, recipe, command):
    first = command(ONE, "run", str(recipe), umask="007")
    assert first.returncode == 0, first.stdout
    assert set(rights(home)) == {0o770, 0o660}, rights(home)
    again = command(OTHER, "run", str(recipe), umask="007")
    assert again.returncode == 0 and "\nmade " not in again.stdout, again.stdout
    recipe.write_text(recipe.read_text().replace('"min_words": 5', '"min_words": 6'))
    for account in (OTHER, ONE):
        changed = command(account, "run", str(recipe), umask="007")
        assert changed.returncode == 0, changed.stdout
        assert ("\nmade " in changed.stdout) == (account == OTHER)
    for account in (ONE, OTHER):
        for arguments in (("home", "status"), ("home", "verify", str(recipe)), ("report", str(recipe))):
            read = command(account, *arguments, umask="007")
            assert read.returncode == 0, read.stdout
    assert {path.stat().st_uid for path in home.glob("stages/*")} == {ONE, OTHER}
    assert set(rights(home)) == {0o770, 0o660}, rights(home)


def test_a_home_that_cannot_be_entered_is_one_sentence(home, recipe, command):
    home.chmod(0o700)
    refused = command(OTHER, "home", "status", umask="007")
    assert refused.returncode == 1 and "Traceback" not in refused.stdout, refused.stdout
    assert f"that account runs `chmod g+rwxs {home}`" in refused.stdout.splitlines()[-1]


def test_a_private_home_is_one_sentence_whose_fix_works(home, recipe, command):
    first = command(ONE, "run", str(recipe), "--tokens-only")
    assert first.returncode == 0, first.stdout
    for arguments in (("run", str(recipe), "--tokens-only"), ("home", "status"), ("home", "verify", "team")):
        refused = command(OTHER, *arguments)
        assert refused.returncode == 1 and "Traceback" not in refused.stdout
        last = refused.stdout.splitlines()[-1]
        assert f" is private to another account (uid {ONE}): " in last and last.startswith(f"gristmill: {home}/")
    [fix] = re.findall("that account runs `([^`]+)`", last)
    subprocess.run(shlex.split(fix), check=True, user=ONE, group=TEAM, extra_groups=[TEAM])
    second = command(OTHER, "run", str(recipe), "--tokens-only", umask="007")
    assert second.returncode == 0 and "\nmade " not in second.stdout, second.stdout
