"""Prefect's settings for the embedded server, set before prefect is imported; what a user has set stays.

The recorder of task runs loses some in bursts unless its batches are larger (seen with prefect 3.8 and 3.9). Flows use
no block types. Two servers that start at once in a new home would both insert them, and one would end by that; without
the memo, a server that a user starts in the home makes them. A client that was let in once waits for a server that is
started again.
"""

import os
import sys
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.machine.settings import MachineSettings

if TYPE_CHECKING:
    from prefect import settings as prefect_settings
else:
    prefect_settings = wrapt.lazy_import("prefect.settings")

SETTINGS = {
    "DO_NOT_TRACK": "1",  # or the import of prefect in a terminal reports its first use to its makers
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    # a line begins with the stage that it is about: the names of Prefect's runs, ahead of it, leave it no room
    "PREFECT_LOGGING_FORMATTERS_STANDARD_FLOW_RUN_FMT": "%(asctime)s %(levelname)-7s %(message)s",
    "PREFECT_LOGGING_FORMATTERS_STANDARD_TASK_RUN_FMT": "%(asctime)s %(levelname)-7s %(message)s",
    # the waits double: with seven a server may be away for four minutes, with the five of Prefect's for one
    "PREFECT_CLIENT_MAX_RETRIES": "7",
}
# Files of the working folder in which Prefect looks for its settings, and how one that names a server is known.
_PROJECT_FILES = {".env": "PREFECT_API_URL", "prefect.toml": "url", "pyproject.toml": "[tool.prefect"}
# What a server answers whose database is away for a while. The embedded one is asked why at once.
_NAMED = {"PREFECT_CLIENT_RETRY_EXTRA_CODES": "500,504"}


def _chose_a_server() -> bool:
    """Whether the user has named a Prefect home, profile or server: in the environment, or in the usual profiles."""
    if {"PREFECT_HOME", "PREFECT_PROFILE", "PREFECT_API_URL"} & os.environ.keys():
        return True
    profiles = Path("~/.prefect/profiles.toml").expanduser()
    if not profiles.is_file():
        return False
    written = tomllib.loads(profiles.read_text(encoding="utf-8"))
    return "PREFECT_API_URL" in written.get("profiles", {}).get(written.get("active", ""), {})


def is_server_named() -> bool:
    """Whether a user may have named a server, also in a file of the working folder that Prefect reads."""
    return not EMBEDDED or any(
        word in path.read_text(encoding="utf-8", errors="replace")
        for name, word in _PROJECT_FILES.items()
        if (path := Path(name)).is_file()
    )


def user_interface() -> tuple[str, str]:
    """Where a person looks at recorded runs: the server's address, empty for the embedded one; and Prefect's home."""
    if "prefect" not in sys.modules and not is_server_named():
        return "", os.environ["PREFECT_HOME"]
    prefect = prefect_settings.get_current_settings()
    return (prefect.ui_url or prefect.api.url if prefect.api.url else ""), str(prefect.home)


def named_server() -> tuple[str, str] | None:
    """Address of the API and the login, as `user:password`, of the server that was named; None for the embedded one."""
    api = prefect_settings.get_current_settings().api
    if EMBEDDED or not api.url:
        return None
    return api.url, api.auth_string.get_secret_value() if api.auth_string else ""


for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)
EMBEDDED = not _chose_a_server()
"""Whether runs are recorded by a server of our own, in the home."""
if not EMBEDDED:
    for name, value in _NAMED.items():
        os.environ.setdefault(name, value)
if EMBEDDED and "prefect" in sys.modules:  # a worker of Prefect's imports it first, and has a server
    warnings.warn(
        "prefect was imported before flows: the embedded server keeps its own settings and home", stacklevel=3
    )
if EMBEDDED:
    os.environ["PREFECT_HOME"] = str(Path(MachineSettings().prefect_home).absolute())
    # Prefect makes the folder when it is imported, if it can; else the server does, so that an import writes nothing
    warnings.filterwarnings("ignore", "Failed to create the Prefect home directory", UserWarning)
