#!/bin/sh -e
# Builds a wheel of the last commit and moves its tag to this machine's glibc: wheel.sh SOURCES OUT, folders that are made.
# Two runs give the same bytes: the files are those of the commit, all times that of the commit.
sources=$1 out=$2
mkdir -p "$sources" "$out"
git archive HEAD | tar -x -C "$sources"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
python -m build --wheel --outdir "$sources/dist" "$sources"
case $(uname) in
    Linux) auditwheel repair --wheel-dir "$out" "$sources"/dist/*.whl ;; # it reads the programs in the wheel, too
    *) cp "$sources"/dist/*.whl "$out" ;; # nothing but the system's own libraries is linked
esac
twine check --strict "$out"/*.whl
