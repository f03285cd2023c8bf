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
# the certificate that Dask's scheduler, workers and clients show each other, and its key
[ -s secrets/dask-key ] && [ -s secrets/dask-cert ] || openssl req -x509 -newkey rsa:2048 -nodes -days 3650 \
    -subj /CN=gristmill-dask -keyout secrets/dask-key -out secrets/dask-cert 2>/dev/null
chmod 644 secrets/dask-key secrets/dask-cert
