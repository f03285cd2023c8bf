"""Compile all kernels for this Python into one archive for a wheel: python -m tools.pack_kernels FOLDER

Takes a minute of CPU time. The parts are compiled one after the other in an empty cache, so the same sources give the
same bytes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACK = """
import sys
from pathlib import Path
from gristmill.tasks.kernels import compiled, packed
print(packed.pack(compiled.NAME, compiled.FOLDER, Path(sys.argv[1])))
"""


def main(arguments: list[str]) -> None:
    """Write the archive into the folder, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("folder", type=Path, help="where to write the archive")
    folder = parser.parse_args(arguments).folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("kernels-*.tar.xz"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="gristmill-kernels-") as caches:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        # kernel names contain hashes of types
        environment = os.environ | {"XDG_CACHE_HOME": caches, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}

        def run(*command: str) -> None:
            subprocess.run([sys.executable, "-P", *command], env=environment, check=True)

        parts = "from gristmill.flows.run.kernel_compilation import PARTS; print(*PARTS)"
        named = subprocess.run([sys.executable, "-P", "-c", parts], env=environment, check=True, capture_output=True)
        for part in named.stdout.decode().split():
            run("-m", "gristmill.flows.run.kernel_calls", part)
        run("-c", PACK, str(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
