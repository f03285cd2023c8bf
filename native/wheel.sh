#!/bin/sh -e
# Builds a wheel of the last commit with its kernels compiled, and sets its tag to this machine's glibc:
# wheel.sh SOURCES OUT PYTHON. SOURCES and OUT are created; PYTHON is an environment that has all dependencies.
# Two runs give the same bytes: the files are those of the commit, all times that of the commit.
sources=$1 out=$2 python=$(realpath -s "$3")
mkdir -p "$sources" "$out"
git archive HEAD | tar -x -C "$sources"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
(cd "$sources" && "$python" -m tools.pack_kernels tasks/kernels)
python -m build --wheel --outdir "$sources/dist" "$sources"
case $(uname) in
    Linux) auditwheel repair --wheel-dir "$out" "$sources"/dist/*.whl ;; # it reads the programs in the wheel, too
    *) cp "$sources"/dist/*.whl "$out" ;; # nothing but the system's own libraries is linked
esac
twine check --strict "$out"/*.whl
