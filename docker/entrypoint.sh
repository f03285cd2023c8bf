#!/bin/sh
# Start one of the services, with its secrets from files; anything else is run as a client of them.
set -eu

secret() { cat "/run/secrets/$1"; }
has() { [ -r "/run/secrets/$1" ]; }

# the address in the network by which another service is reached
address() {
    python3 -c 'import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2]))).getsockname()[0])' "$@"
}

if has s3; then
    AWS_SECRET_ACCESS_KEY=$(secret s3)
    export AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID=gristmill
fi
if has prefect; then
    PREFECT_API_AUTH_STRING="admin:$(secret prefect)"
    export PREFECT_API_AUTH_STRING
fi
if has mlflow; then
    MLFLOW_TRACKING_PASSWORD=$(secret mlflow)
    export MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_USERNAME=admin
fi
if has dask-key; then
    export GRISTMILL_DASK_TLS_CA=/run/secrets/dask-cert GRISTMILL_DASK_TLS_CERT=/run/secrets/dask-cert
    export GRISTMILL_DASK_TLS_KEY=/run/secrets/dask-key
fi
dask_tls="--protocol tls --tls-ca-file /run/secrets/dask-cert --tls-cert /run/secrets/dask-cert --tls-key /run/secrets/dask-key"

case "$1" in
prefect-server)
    export PREFECT_SERVER_DATABASE_CONNECTION_URL="postgresql+asyncpg://gristmill:$(secret postgres)@postgres:5432/prefect"
    export PREFECT_SERVER_API_AUTH_STRING="$PREFECT_API_AUTH_STRING"
    export PREFECT_MESSAGING_BROKER=prefect_redis.messaging PREFECT_MESSAGING_CACHE=prefect_redis.messaging
    export PREFECT_SERVER_EVENTS_CAUSAL_ORDERING=prefect_redis.ordering
    export PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=prefect_redis.lease_storage
    export PREFECT_REDIS_MESSAGING_HOST=redis PREFECT_REDIS_MESSAGING_PORT=6379
    PREFECT_REDIS_MESSAGING_PASSWORD=$(secret redis)
    export PREFECT_REDIS_MESSAGING_PASSWORD
    export PREFECT_UI_STATIC_DIRECTORY=/tmp/prefect-ui # by default among the packages, which this user may not write
    exec prefect server start --host 0.0.0.0 --port 4200
    ;;
mlflow-server)
    at="postgresql+psycopg://gristmill:$(secret postgres)@postgres:5432"
    MLFLOW_AUTH_CONFIG_PATH=/tmp/mlflow-auth.ini
    (umask 077 && printf '[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = %s/mlflow_auth\n' "$at" >"$MLFLOW_AUTH_CONFIG_PATH")
    MLFLOW_AUTH_ADMIN_PASSWORD=$(secret mlflow)
    MLFLOW_FLASK_SERVER_SECRET_KEY=$(secret mlflow-key)
    export MLFLOW_AUTH_CONFIG_PATH MLFLOW_AUTH_ADMIN_USERNAME=admin MLFLOW_AUTH_ADMIN_PASSWORD
    export MLFLOW_FLASK_SERVER_SECRET_KEY MLFLOW_BACKEND_STORE_URI="$at/mlflow"
    exec mlflow server --app-name basic-auth --host 0.0.0.0 --port 5000 --workers 1 \
        --allowed-hosts 'mlflow:5000,localhost:*,127.0.0.1:*' --artifacts-destination s3://mlflow/artifacts
    ;;
setup)
    python3 - <<'PYTHON'
import s3fs

store = s3fs.S3FileSystem()
for bucket in ("gristmill", "mlflow"):
    if not store.exists(bucket):
        store.mkdir(bucket)
PYTHON
    prefect work-pool inspect gristmill >/dev/null 2>&1 || prefect work-pool create gristmill --type process
    prefect work-pool set-concurrency-limit gristmill "${GRISTMILL_RUNS:-1}"
    (cd /opt/gristmill/deployments && prefect --no-prompt deploy --all)
    exec gristmill home automations --webhook "${GRISTMILL_WEBHOOK:-}"
    ;;
prefect-worker)
    exec prefect worker start --pool gristmill --with-healthcheck
    ;;
dask-scheduler)
    # shellcheck disable=SC2086
    exec dask scheduler --host tls://0.0.0.0 --port 8786 --no-dashboard $dask_tls
    ;;
dask-worker)
    own=$(address dask-scheduler 8786) # in the network that no port leaves
    # shellcheck disable=SC2086
    exec dask worker tls://dask-scheduler:8786 $dask_tls --nthreads 1 --nworkers "${GRISTMILL_DASK_WORKERS:-2}" \
        --host "$own" --dashboard-address "$own:0" --no-dashboard --local-directory /tmp --memory-limit 0
    ;;
*)
    exec "$@"
    ;;
esac
