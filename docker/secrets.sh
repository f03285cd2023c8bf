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
if ! { [ -f secrets/dask-key ] && [ -s secrets/dask-key ] && [ -f secrets/dask-cert ] && [ -s secrets/dask-cert ]; }; then
    said=$(openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=gristmill-dask -keyout secrets/dask-key \
        -out secrets/dask-cert 2>&1) || {
        echo "secrets/dask-key and secrets/dask-cert could not be made: $(echo "$said" | tail -n 1)" >&2
        echo "install openssl; where these are folders, remove them: Docker makes such for a file that is not there" >&2
        exit 1
    }
fi
chmod 644 secrets/dask-key secrets/dask-cert
