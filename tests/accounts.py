"""Commands of other accounts of the machine, which share a group: for tests that run as root.

An account may not enter each folder on the way to the interpreter, the packages and the checkout, such as root's own.
Its commands run in a mount namespace of their own, in which such a folder has what they need and nothing else.
"""

import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ONE, OTHER, TEAM = 65534, 65533, 65532


def _closed(path: Path) -> Path | None:
    """The outermost folder on the way to a path that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def _mounts(path: Path) -> list[str]:
    """Commands after which everybody reaches interpreter, packages and checkout. `path`: a folder for mounts."""
    needed = {Path(name).resolve() for name in (sys.base_prefix, sys.prefix, os.getcwd())}
    by_folder = defaultdict(list)
    for each in sorted(needed):
        if (folder := _closed(each)) is not None:
            by_folder[folder].append(each)
    commands = []
    for folder, inner in by_folder.items():
        places = [path / f"{len(commands)}-{number}" for number in range(len(inner))]
        for place, each in zip(places, inner, strict=True):
            place.mkdir(exist_ok=True)
            commands.append(shlex.join(["mount", "--bind", str(each), str(place)]))
        commands += [f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}", f"chmod 755 {shlex.quote(str(folder))}"]
        for place, each in zip(places, inner, strict=True):
            commands += [f"mkdir -p {shlex.quote(str(each))}", shlex.join(["mount", "--bind", str(place), str(each)])]
    return commands


def can_become() -> bool:
    """Whether commands of other accounts can be started here."""
    return os.getuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def run(account: int, folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of an account, in a folder, with its output and errors together. The account has a home in the folder
    and nothing of this process's environment but the path."""
    own = folder / f"account-{account}"
    if not own.exists():
        own.mkdir(mode=0o700)
        os.chown(own, account, TEAM)
    environment: Mapping[str, str] = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "HOME": str(own), **variables,
    }  # fmt: skip
    mounts = folder / "mounts"
    mounts.mkdir(exist_ok=True)
    become = ["setpriv", f"--reuid={account}", f"--regid={TEAM}", f"--groups={TEAM}", "--", *command]
    script = " && ".join([*_mounts(mounts), "cd " + shlex.quote(str(own)), "exec " + shlex.join(become)])
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
