"""Three runs at once on one home in S3, from two host names: what they share is made once, and all of it is right."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from tests.service_runs import Home

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]
COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv[0] = 'gristmill'; main()"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a process another host name")
def test_what_is_shared_is_made_once(services, sharded, undisturbed, tmp_path):
    """The second recipe trains for fewer steps: its mixture and its model are its own."""
    other = sharded | {"name": "other", "training": sharded["training"] | {"steps": 6}}
    home = Home(services, "shared")
    started = []
    for number, (host, recipe) in enumerate(
        [("one", sharded | {"name": "same"}), ("two", sharded | {"name": "same"}), ("two", other)]
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(recipe))
        command = [sys.executable, "-c", COMMAND, "run", str(path)]
        local = str(services.folder / f"local-shared-{host}")
        log = open(tmp_path / f"{number}.log", "w")
        started.append(
            subprocess.Popen(
                ["unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh", *command],
                env=services.environment | home.environment | {"GRISTMILL_LOCAL": local},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        )
    codes = [process.wait() for process in started]
    logs = [(tmp_path / f"{number}.log").read_text() for number in range(len(started))]
    assert codes == [0, 0, 0], "\n".join(log[-2000:] for log in logs)
    made = Counter(folder for log in logs for folder in re.findall(r": made in .*?(s3://[^\s,]+)", log))
    assert set(made.values()) == {1}, made
    assert set(home.written().values()) == {1}
    stages = home.stages()
    assert len(made) == len(stages)
    found = home.contents()
    assert undisturbed.items() <= found.items()
    own = {name.partition("/")[0].rpartition("-")[0] for name in found.keys() - undisturbed.keys()}
    assert own == {"mixture", "model"}
    assert any("waiting for the run that makes" in log for log in logs)
    assert not home.leases()
