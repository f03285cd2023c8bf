"""A home in an object store: nothing but an address changes."""

import subprocess
import sys

import pytest

from gristmill.storage import files

SCRIPT = """
import sys
from gristmill import tokens
from gristmill.storage import files
data = tokens(sys.argv[1]).data
for built in (data.tokenizer, data.tokens, data.mixture):
    for name in files.names(built.folder):
        if "." in name and name != "cost.json":  # what it took
            print("SUM", f"{built.name}-{built.key}/{name}", files.checksum(files.join(built.folder, name)))
"""


@pytest.mark.slow
def test_a_home_in_an_object_store_holds_the_same_bytes(undisturbed, runs, recipe, tmp_path):
    local = str(tmp_path / "local")
    environment = runs.environment("store", local=local, executor="threads") | {
        "GRISTMILL_HOME": "memory://bucket/home"
    }
    command = [sys.executable, "-c", SCRIPT, str(runs.write(recipe))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("SUM "))
    assert len(found) > 10
    home = str(undisturbed.home("undisturbed"))
    assert found == {name: files.checksum(files.join(home, "stages", name)) for name in found}
