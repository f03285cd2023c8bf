#!/bin/sh
# What the public image of PostgreSQL does: make the cluster and its databases once, then serve.
set -eu
data=/var/lib/postgresql/data
if [ ! -s "$data/PG_VERSION" ]; then
    initdb --pgdata "$data" --username gristmill --auth scram-sha-256 --pwfile /run/secrets/postgres --encoding UTF8
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    pg_ctl --pgdata "$data" --options "-c listen_addresses=''" --wait start
    POSTGRES_USER=gristmill PGPASSWORD="$(cat /run/secrets/postgres)" databases.sh
    pg_ctl --pgdata "$data" --wait stop
fi
exec postgres -D "$data" -c listen_addresses='*'
