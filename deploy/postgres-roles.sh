#!/bin/sh
# Give the database role of each part its password: SW_API_PASSWORD for sw_api, and so on. PostgreSQL's image runs this on an empty
# volume; run it again after a password has changed. What the roles may do is set by `slackwater migrate --roles`.
set -eu
for role in sw_api sw_console sw_steward sw_notifier sw_worker; do
    password=$(printenv "$(echo "${role}_PASSWORD" | tr '[:lower:]' '[:upper:]')") || {
        echo "postgres-roles: the password of $role is missing" >&2
        exit 1
    }
    export PASSWORD="$password"
    psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --set=role="$role" --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
\getenv password PASSWORD
select format('create role %I login', :'role') where not exists (select from pg_roles where rolname = :'role') \gexec
alter role :"role" password :'password';
SQL
done
