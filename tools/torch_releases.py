"""The tests of training with other releases of torch: python -m tools.torch_releases RELEASE ... [-- OPTION ...]

The options are for pytest. Each release is installed with what it asks for into an environment of its own below
`.venv-torch`, from the package index of pip; all else is taken from the environment that runs this. A release that the
index does not have is passed over with a line that says so. Ends with 1 if tests failed, or if no release could be
tested.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def installed(release: str) -> Path | None:
    """The Python of an environment with this release of torch, or None where it cannot be had."""
    folder = ROOT / ".venv-torch" / release
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", f"torch=={release}"]
    if subprocess.run(command, check=False).returncode:
        return None
    found = subprocess.check_output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    # a path in a .pth file comes behind the environment's own packages
    (Path(found.decode().strip()) / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def main(arguments: list[str]) -> int:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    releases, options = arguments[:end], arguments[end + 1 :]
    results = {}
    for release in releases:
        if python := installed(release):
            command = [str(python), "-m", "pytest", "tests/training", *options]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            results[release] = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        else:
            print(f"torch {release}: passed over, since pip could not install it", flush=True)
    for release, code in results.items():
        print(f"torch {release}: {'failed' if code else 'passed'}")
    return int(not results or any(results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
