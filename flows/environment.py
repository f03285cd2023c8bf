"""Prefect's settings for the embedded server, set before prefect is imported; what a user has set stays.

The recorder of task runs loses some in bursts, and the server's start times out on a machine that starts it for
the first time, unless these are raised (seen with prefect 3.8 and 3.9).
"""

import os

from flows.settings import MachineSettings

SETTINGS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
if not {"PREFECT_HOME", "PREFECT_PROFILE", "PREFECT_API_URL"} & os.environ.keys():
    os.environ["PREFECT_HOME"] = MachineSettings().prefect_home
    os.makedirs(os.environ["PREFECT_HOME"], exist_ok=True)
