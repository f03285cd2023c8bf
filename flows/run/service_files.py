"""The files of a service: Prefect deployments, images, Kubernetes, SLURM.

In a checkout they are at the top level; an installation has them beside this module. Imports only the standard library,
because the build of a wheel runs this file.
"""

from pathlib import Path

NAMES = (
    "prefect.yaml",
    "docker/Dockerfile",
    "docker/Dockerfile.services",
    "docker/compose.debian.yaml",
    "docker/compose.yaml",
    "docker/databases.sh",
    "docker/entrypoint.sh",
    "docker/postgres.sh",
    "docker/ready.py",
    "docker/secrets.sh",
    "docker/kubernetes/dask-cluster.yaml",
    "docker/kubernetes/network-policy.yaml",
    "docker/kubernetes/run.yaml",
    "docker/kubernetes/training.yaml",
    "docker/slurm/driver.sbatch",
    "docker/slurm/training.sbatch",
    "docker/slurm/workers.sbatch",
)
_CARRIED = Path(__file__).with_name("files")


def source() -> Path:
    """The folder that holds the files."""
    return _CARRIED if _CARRIED.is_dir() else Path(__file__).resolve().parents[2]


def write(to: Path, under: str = "") -> list[Path]:
    """Write the files and their modes into a folder, and return the paths. `under`: only files whose names begin with
    it. Files with equal contents stay. Raises FileExistsError, and writes nothing, if an existing file differs."""
    names = [name for name in NAMES if name.startswith(under)]
    for name in names:
        there = to / name
        if there.exists() and there.read_bytes() != (source() / name).read_bytes():
            raise FileExistsError(
                f"{there} already exists and differs from the shipped file: move it away, or choose another folder"
            )
    for name in names:
        original, path = source() / name, to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(original.read_bytes())
        path.chmod(original.stat().st_mode & 0o755)
    return [to / name for name in names]
