"""One rank of a run that only has a heartbeat, `RUN.json` as for a rank: it stops moving in step 3, as RUN.json says in
`how`, in as many attempts as it says in `times`, and then finishes."""

import os
import signal
import sys
import time
from pathlib import Path

from gristmill.storage import checked_json
from gristmill.training.run import heartbeat

if __name__ == "__main__":
    heartbeat.begin()
    run = checked_json.read(sys.argv[1])
    attempts = Path(run["out"]) / "attempts"
    attempts.mkdir(exist_ok=True)
    number = len(list(attempts.iterdir()))
    (attempts / str(number)).touch()
    for step in (1, 2, 3):
        heartbeat.beat("step", step)
        print(f"step {step}", flush=True)
    if number < run["times"]:
        if run["how"] == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            if run["how"] == "sleeping":
                time.sleep(1)
    heartbeat.beat("end")
