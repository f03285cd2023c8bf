"""Hatchling build hook: compiles parts of KenLM and fastText into `tasks/models/compiled/`.

- `lmplz` and `build_binary`, KenLM's programs. KenLM's own `lmplz` requires Boost: `lmplz/main.cc` replaces the part
  that reads options with Boost, and `lmplz/shim/` has the few Boost classes that KenLM's pipeline uses, over the
  standard library.
- `kenlm`, KenLM's Python module, which Cython writes, and `fasttext_pybind`, fastText's, with pybind11.

No line of KenLM or fastText is in this project. pip downloads their source distributions on the machine that builds and
checks them against the hashes in `tasks/engine/bundled.py`. The compiler is $CXX, or g++. Two builds of one commit are
the same bytes: no file has the path of a folder, a time, or debug information.
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
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import NamedTuple

import pybind11
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COMPILED = ROOT / "tasks" / "models" / "compiled"
PINS = ROOT / "tasks" / "engine" / "bundled.py"
SERVICE_FILES = ROOT / "flows" / "run" / "service_files.py"

PROGRAMS = ("lmplz", "build_binary")
# The suffix of this Python's extension modules, so that one checkout can hold modules for several Pythons.
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
MODULES = (f"kenlm{SUFFIX}", f"fasttext_pybind{SUFFIX}")
FILES = (*PROGRAMS, *MODULES)
# Cython writes the module's name into the code, and enters the module under it.
KENLM_MODULE = "gristmill.tasks.models.compiled.kenlm"

# The options that setuptools uses for both modules, so that floating-point results equal those of modules built by pip.
FLAGS = ["-O3", "-DNDEBUG", "-fwrapv", "-fPIC", "-fvisibility=hidden", "-pthread", "-w"]
# As in kenlm's setup.py; a model of an order above 6 could be trained but not read.
KENLM_FLAGS = ["-std=c++11", "-DKENLM_MAX_ORDER=6"]
# Another name for fastText's C++ namespace: pybind11 shares its types between all modules of a process, and a user's
# own fastText would register the same ones.
FASTTEXT_FLAGS = ["-std=c++17", "-Dfasttext=gristmill_fasttext"]
LINK = ["-pthread"]
SHARED = ["-shared"]
if sys.platform == "linux":
    KENLM_FLAGS.append("-DHAVE_CLOCKGETTIME")
    LINK += ["-lrt", "-s"]
elif sys.platform == "darwin":
    # Python's symbols are those of the process that imports the module
    SHARED = ["-bundle", "-undefined", "dynamic_lookup"]
    LINK += ["-Wl,-x", *shlex.split(os.environ.get("ARCHFLAGS", ""))]
    FLAGS += shlex.split(os.environ.get("ARCHFLAGS", ""))

KENLM_FOLDERS = ("util", "util/double-conversion", "lm")  # both of the module and of the programs
LMPLZ_SOURCES = (
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
# The texts in `licenses/` go into the wheel; each is that of the release that is compiled.
LICENSES = {
    "kenlm": {
        "kenlm-LICENSE": "LICENSE",
        "kenlm-COPYING": "COPYING",
        "kenlm-COPYING.3": "COPYING.3",
        "kenlm-COPYING.LESSER.3": "COPYING.LESSER.3",
        "double-conversion-LICENSE": "util/double-conversion/LICENSE",
    },
    "fasttext-ng": {"fasttext-LICENSE": "LICENSE"},
}

NO_COMPILER = (
    "no C++ compiler: {!r} was not found. Building from source compiles parts of KenLM and fastText; wheels of "
    "Gristmill have them. Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: "
    "xcode-select --install) or name yours in the environment variable CXX."
)
NO_HEADERS = (
    "no Python.h in {}. Building from source compiles modules for this Python; wheels of Gristmill have them. Install "
    "Python's headers (Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)."
)


class BuildError(Exception):
    """The code cannot be compiled; the message is for the person who installs."""


class Object(NamedTuple):
    """A source file to compile, and its options."""

    source: Path
    flags: list[str]


class CompiledCode(BuildHookInterface):
    PLUGIN_NAME = "compiled-code"

    def initialize(self, version, build_data):
        try:
            files = ensure_compiled()
        except BuildError as error:
            self.app.abort(f"gristmill: {error}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":  # the package is the checkout's, and has them
            return
        for path in files:
            build_data["force_include"][str(path)] = f"gristmill/{path.relative_to(ROOT).as_posix()}"
        # what `gristmill home service` writes, which a checkout has at its top
        for name in runpy.run_path(str(SERVICE_FILES))["NAMES"]:
            build_data["force_include"][str(ROOT / name)] = f"gristmill/flows/run/files/{name}"


def ensure_compiled() -> list[Path]:
    """Compile what is missing or out of date; return the files of this Python."""
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(compiler[0]) is None:
        raise BuildError(NO_COMPILER.format(compiler[0]))
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise BuildError(NO_HEADERS.format(headers))
    targets = [COMPILED / name for name in FILES]
    digest = inputs_digest(compiler)
    # not named as a module: what reads the package, as the docs site does, would take it for one
    stamp = COMPILED / f".stamp{SUFFIX}.txt"
    if not (is_current(stamp, digest) and all(path.is_file() for path in targets)):
        stamp.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="gristmill-compiled-") as folder:
            build(Path(folder).resolve(), compiler)
            for target in targets:
                install(Path(folder) / target.name, target)
        stamp.write_text(digest)
    return targets


def inputs_digest(compiler: list[str]) -> str:
    """SHA-256 over all that decides what the files are."""
    tools = [f"{name} {installed_version(name)}" for name in ("cython", "pybind11")]
    options = [compiler, FLAGS, KENLM_FLAGS, FASTTEXT_FLAGS, LINK, SHARED, tools, sysconfig.get_platform(), SUFFIX]
    digest = hashlib.sha256(repr(options).encode())
    for path in [PINS, HERE / "build_hook.py", HERE / "lmplz" / "main.cc", *sorted(HERE.rglob("*.hpp"))]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def is_current(stamp: Path, digest: str) -> bool:
    if not stamp.is_file() or stamp.read_text() != digest:
        return False
    # A tree that was copied from another system has executables that may not start on this one.
    try:
        return subprocess.run([COMPILED / "lmplz", "--help"], capture_output=True).returncode == 0
    except OSError:
        return False


def build(work: Path, compiler: list[str]) -> None:
    """Compile and link FILES in the folder `work`."""
    kenlm, fasttext = (fetch(name, work) for name in ("kenlm", "fasttext-ng"))
    headers, binding_headers = Path(sysconfig.get_path("include")), Path(pybind11.get_include())
    # Messages name source files; without the names of folders, so that builds are the same bytes.
    folders = {work: "", HERE: "native", headers: "python", binding_headers: "pybind11"}
    flags = [*FLAGS, *(f"-ffile-prefix-map={folder}={name}" for folder, name in folders.items())]

    in_kenlm = [*KENLM_FLAGS, f"-I{kenlm}"]
    in_lmplz = [*KENLM_FLAGS, f"-I{HERE / 'lmplz' / 'shim'}", f"-I{kenlm}"]
    binding = fasttext / "python/fasttext_module/fasttext/pybind/fasttext_pybind.cc"
    groups = {
        "lmplz": [Object(HERE / "lmplz" / "main.cc", in_lmplz)],
        "build_binary": [Object(kenlm / "lm/build_binary_main.cc", in_kenlm)],
        "builder": [
            Object(path, in_lmplz)
            for path in [*library(kenlm, "util/stream"), *(kenlm / name for name in LMPLZ_SOURCES)]
        ],
        "library": [Object(path, in_kenlm) for folder in KENLM_FOLDERS for path in library(kenlm, folder)],
        "kenlm": [
            Object(cythonized(kenlm), [*in_kenlm, f"-I{headers}"]),
            Object(kenlm / "python/score_sentence.cc", in_kenlm),
        ],
        "fasttext": [
            Object(binding, [*FASTTEXT_FLAGS, f"-I{fasttext / 'src'}", f"-I{binding_headers}", f"-I{headers}"]),
            *(Object(path, FASTTEXT_FLAGS) for path in library(fasttext, "src") if path.name != "main.cc"),
        ],
    }
    print(f"gristmill: compiling {', '.join(FILES)}", file=sys.stderr)
    objects = compile_all(groups, [*compiler, *flags], work)
    parts = {
        "lmplz": ([], ("lmplz", "builder", "library")),
        "build_binary": ([], ("build_binary", "library")),
        MODULES[0]: (SHARED, ("kenlm", "library")),
        MODULES[1]: (SHARED, ("fasttext",)),
    }
    for name, (options, group_names) in parts.items():
        linked = [path for group in group_names for path in objects[group]]
        call([*compiler, *options, "-o", work / name, *linked, *LINK], f"link {name}")


def library(source: Path, folder: str) -> list[Path]:
    """The source files of a folder, without programs and tests, in the order of their names."""
    return [path for path in sorted((source / folder).glob("*.cc")) if not path.name.endswith(("_main.cc", "_test.cc"))]


def cythonized(kenlm: Path) -> Path:
    """Write KenLM's Python module in C++. The source distribution has it, too, by a Cython that knows no recent Python,
    and under the name `kenlm`."""
    command = [sys.executable, "-m", "cython", "-3", "--cplus", "-w", kenlm / "python", "-I", kenlm / "python"]
    call([*command, "--module-name", KENLM_MODULE, "kenlm.pyx", "-o", "module.cpp"], "run Cython on kenlm.pyx")
    return kenlm / "python" / "module.cpp"


def compile_all(groups: dict[str, list[Object]], command: list, work: Path) -> dict[str, list[Path]]:
    """Compile all groups at once; return the object files of each in the order of its sources."""

    def compiled(item: tuple[str, int, Object]) -> Path:
        group, number, each = item
        target = work / f"{group}-{number}-{each.source.stem}.o"
        call([*command, *each.flags, "-c", each.source, "-o", target], f"compile {each.source}")
        return target

    items = [(group, number, each) for group, sources in groups.items() for number, each in enumerate(sources)]
    # the largest first: fastText's binding takes as long as twenty of the others
    items.sort(key=lambda item: -item[2].source.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = dict(zip(((group, number) for group, number, _ in items), pool.map(compiled, items), strict=True))
    return {group: [paths[group, number] for number in range(len(sources))] for group, sources in groups.items()}


def fetch(name: str, work: Path) -> Path:
    """Download a source distribution, check its hash and its licenses, and return the unpacked folder."""
    pin = runpy.run_path(str(PINS))["BUNDLED"][name]
    requirement, folder = work / f"{name}.txt", work / name
    requirement.write_text(f"{name}=={pin.release} --hash=sha256:{pin.sha256}\n")
    # pip asks even a download for its metadata, which runs the setup.py: so setuptools is a build requirement of this
    # project, and pip need not install all that the other build requires (CMake) into another environment.
    options = "--quiet --no-deps --no-binary=:all: --no-build-isolation --require-hashes".split()
    call(
        [sys.executable, "-m", "pip", "download", *options, "--requirement", requirement, "--dest", folder],
        f"fetch the source distribution of {name} {pin.release}",
    )
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    source = next(path for path in folder.iterdir() if path.is_dir())
    for text, original in LICENSES[name].items():
        if (HERE / "licenses" / text).read_bytes() != (source / original).read_bytes():
            raise BuildError(f"native/licenses/{text} differs from {original} of {name} {pin.release}: copy it again")
    return source


def call(command: list, purpose: str) -> None:
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    done = subprocess.run(command, **output)
    if done.returncode != 0:
        shown = shlex.join(str(word) for word in command)
        raise BuildError(f"could not {purpose} (exit status {done.returncode}):\n{shown}\n{done.stdout}")


def install(source: Path, target: Path) -> None:
    # By rename: a process that runs the old file keeps it, and nobody sees half of the new one.
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy(source, fresh)
    fresh.replace(target)
