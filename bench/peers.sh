#!/bin/sh
# peers.sh - starts beanstalkd, Redis and PostgreSQL on loopback, each as durable as it can be and
# as fast as it can be, lets build/peers compare them with ours, and stops them again.
#
# What is not installed is left out. On Debian and Ubuntu:
#     apt-get update && apt-get install beanstalkd redis-server postgresql
# PEERS_INSTALL=1   does that first (as root).
# PEERS_PORT=21300  the first of five ports.
# BENCH_DIR         where all of them keep their files, ours too; default build.
#
# PostgreSQL does not run as root: as root its server runs as user postgres.
set -u
cd "$(dirname "$0")" || exit 1
export LC_ALL=C
port="${PEERS_PORT:-21300}"
dir="${BENCH_DIR:-$PWD/build}/peers.data"
export BENCH_DIR="$dir/ours"
pids=""
pg=""

as_postgres() {
    if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

stop_all() {
    trap - EXIT INT TERM
    for pid in $pids; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
    [ -n "$pg" ] && as_postgres "$pg/pg_ctl" -D "$dir/pg" -m immediate -w stop >/dev/null 2>&1
    rm -rf "$dir"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

say() { echo "   $*" >&2; }

if [ "${PEERS_INSTALL:-0}" = 1 ]; then
    apt-get update || exit 1
    apt-get install -y --no-install-recommends beanstalkd redis-server postgresql || exit 1
fi
if [ -e "$dir" ]; then
    echo "peers.sh: $dir exists; is another run under way?" >&2
    trap - EXIT
    exit 1
fi
mkdir -p "$dir" || exit 1

# ---- beanstalkd: -b keeps a binlog, -f the milliseconds between two syncs, 0 = each write

if command -v beanstalkd >/dev/null; then
    mkdir "$dir/bean0" "$dir/bean50"
    beanstalkd -l 127.0.0.1 -p "$port" -b "$dir/bean0" -f 0 >/dev/null 2>&1 &
    pids="$pids $!"
    beanstalkd -l 127.0.0.1 -p $((port + 1)) -b "$dir/bean50" -f 50 >/dev/null 2>&1 &
    pids="$pids $!"
    export PEER_BEAN_FULL="$port" PEER_BEAN_NORMAL=$((port + 1))
    say "$(beanstalkd -v)"
else
    say "no beanstalkd: left out"
fi

# ---- Redis: append-only file; no snapshots, so that nothing runs beside

if command -v redis-server >/dev/null; then
    mkdir "$dir/redis0" "$dir/redis1"
    redis-server --bind 127.0.0.1 --port $((port + 2)) --dir "$dir/redis0" --save "" \
        --appendonly yes --appendfsync always >/dev/null 2>&1 &
    pids="$pids $!"
    redis-server --bind 127.0.0.1 --port $((port + 3)) --dir "$dir/redis1" --save "" \
        --appendonly yes --appendfsync everysec >/dev/null 2>&1 &
    pids="$pids $!"
    export PEER_REDIS_FULL=$((port + 2)) PEER_REDIS_NORMAL=$((port + 3))
    say "$(redis-server --version | cut -d' ' -f1-3)"
else
    say "no redis-server: left out"
fi

# ---- PostgreSQL: defaults; synchronous_commit is set by each session

for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/bin /usr/bin; do
    [ -x "$bin/initdb" ] && [ -x "$bin/pg_ctl" ] && pg="$bin"
done
if [ -n "$pg" ]; then
    mkdir "$dir/pg"
    [ "$(id -u)" = 0 ] && chown postgres "$dir/pg"
    if as_postgres "$pg/initdb" -D "$dir/pg" -U bench -A trust >"$dir/pg.log" 2>&1 &&
        as_postgres "$pg/pg_ctl" -D "$dir/pg" -w -l "$dir/pg/log" -o "-p $((port + 4)) \
            -c listen_addresses=127.0.0.1 -c unix_socket_directories=" start >>"$dir/pg.log" 2>&1
    then
        export PEER_PG=$((port + 4))
        say "$("$pg/postgres" --version)"
    else
        say "PostgreSQL does not start, left out:"
        tail -3 "$dir/pg.log" >&2
        pg=""
    fi
else
    say "no PostgreSQL: left out"
fi

if [ -z "$pids$pg" ]; then
    echo "peers.sh: no peer is installed; see the top of this file" >&2
    exit 1
fi
sleep 1 # until they listen
build/peers && build/table
