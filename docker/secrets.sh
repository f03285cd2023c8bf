#!/bin/sh
# Make the secrets that are not there yet, in docker/secrets, which only you may enter.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
for name in postgres redis prefect mlflow mlflow-key s3; do
    [ -s "secrets/$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"secrets/$name"
    chmod 644 "secrets/$name" # read in containers by their own users
done
