#!/bin/sh
# Databases of Prefect, of MLflow and of MLflow's users; run once, when PostgreSQL's volume is empty.
set -eu
for name in prefect mlflow mlflow_auth; do
    createdb --username "$POSTGRES_USER" "$name"
done
