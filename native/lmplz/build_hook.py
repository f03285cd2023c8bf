"""Hatchling build hook: compiles KenLM's `lmplz` and `build_binary` into `tasks/models/lmplz_bin/`.

KenLM is LGPL; no line of it is in this project. Its source distribution is fetched by pip, which checks it
against the hash below, on the machine that installs. KenLM's own `lmplz` wants Boost: `main.cc` replaces the
part that reads options with Boost, and `shim/` gives the few Boost classes that KenLM's pipeline uses, over
the standard library. So a C++11 compiler is all that is needed: $CXX, or g++.
"""

import hashlib
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = ROOT / "tasks" / "models" / "lmplz_bin"
STAMP = BIN / ".stamp"
SERVICE_FILES = ROOT / "flows" / "run" / "service_files.py"

KENLM = "kenlm==0.3.0"
KENLM_SHA256 = "c4628bb9fb63c8a6f9240035b8b037385cfc404cb72e933cf48878291edac1e8"

# As kenlm's setup.py compiles its Python module: an order above 6 could be trained but not be read by it.
FLAGS = ["-O3", "-DNDEBUG", "-std=c++11", "-DKENLM_MAX_ORDER=6", "-pthread", "-w"]
LIBRARIES = ["-pthread"]
if sys.platform == "linux":
    FLAGS.append("-DHAVE_CLOCKGETTIME")
    LIBRARIES.append("-lrt")

FOLDERS = ("util", "util/double-conversion", "util/stream", "lm")
MODULES = (
    "lm/common/model_buffer.cc",
    "lm/common/print.cc",
    "lm/common/renumber.cc",
    "lm/builder/adjust_counts.cc",
    "lm/builder/corpus_count.cc",
    "lm/builder/initial_probabilities.cc",
    "lm/builder/interpolate.cc",
    "lm/builder/output.cc",
    "lm/builder/pipeline.cc",
)
TOOLS = ("lmplz", "build_binary")
# The LGPL asks that its text and the authors' notice go where the binaries go, so into the wheel.
NOTICES = ("LICENSE", "COPYING.LESSER.3", "COPYING.3")

NO_COMPILER = (
    "no C++ compiler: {!r} was not found. The installation compiles KenLM's lmplz and build_binary. "
    "Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select "
    "--install) or name yours in the environment variable CXX."
)


class BuildError(Exception):
    """The tools cannot be built; the message is for the person who installs."""


class KenlmTools(BuildHookInterface):
    PLUGIN_NAME = "kenlm-tools"

    def initialize(self, version, build_data):
        try:
            built = ensure_tools()
        except BuildError as error:
            self.app.abort(f"gristmill: {error}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version == "editable":  # the package is the checkout's, and has them
            return
        for path in built:
            build_data["force_include"][str(path)] = f"gristmill/{path.relative_to(ROOT).as_posix()}"
        # what `gristmill home service` writes, which a checkout has at its top
        for name in runpy.run_path(str(SERVICE_FILES))["NAMES"]:
            build_data["force_include"][str(ROOT / name)] = f"gristmill/flows/run/files/{name}"


def ensure_tools() -> list[Path]:
    """Build what is not there yet; return the files that belong into the wheel."""
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(compiler[0]) is None:
        raise BuildError(NO_COMPILER.format(compiler[0]))
    files = [BIN / name for name in (*TOOLS, *(f"KENLM-{name}" for name in NOTICES))]
    digest = inputs_digest(compiler)
    if not (up_to_date(digest) and all(path.is_file() for path in files)):
        with tempfile.TemporaryDirectory(prefix="gristmill-kenlm-") as folder:
            built = build(Path(folder), compiler)
            BIN.mkdir(exist_ok=True)
            STAMP.unlink(missing_ok=True)
            for source, target in zip(built, files, strict=True):
                install(source, target)
        STAMP.write_text(digest)
    return files


def inputs_digest(compiler: list[str]) -> str:
    """SHA-256 over all that decides what the executables are; kenlm's own hash stands in this file."""
    digest = hashlib.sha256(repr((compiler, FLAGS, LIBRARIES, sysconfig.get_platform())).encode())
    for path in [HERE / "build_hook.py", HERE / "main.cc", *sorted((HERE / "shim").rglob("*.hpp"))]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(HERE).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def up_to_date(digest: str) -> bool:
    if not STAMP.is_file() or STAMP.read_text() != digest:
        return False
    # A tree that was copied from another system brings executables that may not start on this one.
    try:
        return subprocess.run([BIN / "lmplz", "--help"], capture_output=True).returncode == 0
    except OSError:
        return False


def build(work: Path, compiler: list[str]) -> list[Path]:
    """Compile and link in the folder `work`; return where the executables and KenLM's notices lie in it."""
    source = fetch(work)
    library = [path for folder in FOLDERS for path in sorted((source / folder).glob("*.cc"))]
    library = [path for path in library if not path.name.endswith(("_main.cc", "_test.cc"))]
    library += [source / module for module in MODULES]
    mains = [HERE / "main.cc", source / "lm/build_binary_main.cc"]

    # KenLM's messages name their source files: without the temporary folder, so that builds are identical.
    flags = [*FLAGS, f"-ffile-prefix-map={work}/="]
    includes = [f"-I{HERE / 'shim'}", f"-I{source}"]

    def compiled(numbered: tuple[int, Path]) -> Path:
        number, path = numbered
        target = work / f"{number}-{path.stem}.o"
        call([*compiler, *flags, *includes, "-c", path, "-o", target], f"compile {path}")
        return target

    print(f"gristmill: compiling {' and '.join(TOOLS)} from {KENLM}", file=sys.stderr)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, enumerate([*mains, *library])))
    for name, main in zip(TOOLS, objects, strict=False):
        call([*compiler, "-o", work / name, main, *objects[len(mains) :], *LIBRARIES], f"link {name}")
    return [*(work / name for name in TOOLS), *(source / name for name in NOTICES)]


def fetch(work: Path) -> Path:
    """Download kenlm's source distribution, checked against its hash, and return the unpacked folder."""
    requirement = work / "kenlm.txt"
    requirement.write_text(f"{KENLM} --hash=sha256:{KENLM_SHA256}\n")
    # pip asks even a download for its metadata, which runs kenlm's setup.py: so setuptools is a build
    # requirement of this project, and pip need not bring all of kenlm's (CMake) into another environment.
    options = "--quiet --no-deps --no-binary=:all: --no-build-isolation --require-hashes".split()
    call(
        [sys.executable, "-m", "pip", "download", *options, "--requirement", requirement, "--dest", work],
        f"fetch the source distribution of {KENLM}",
    )
    with tarfile.open(next(work.glob("kenlm-*.tar.gz"))) as archive:
        archive.extractall(work)
    return next(path for path in work.glob("kenlm-*") if path.is_dir())


def call(command: list, purpose: str) -> None:
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    done = subprocess.run(command, **output)
    if done.returncode != 0:
        shown = shlex.join(str(word) for word in command)
        raise BuildError(f"could not {purpose} (exit status {done.returncode}):\n{shown}\n{done.stdout}")


def install(source: Path, target: Path) -> None:
    # By rename: a process that runs the old executable keeps it, and nobody sees half of the new one.
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(source, fresh)
    fresh.replace(target)
