#!/bin/sh
# examples_cli.sh PROGRAM - runs the session of examples/cli_tool.c in the current folder, with the
# crash in its middle, and checks what it prints. Ends with "ok", or says what was wrong.
set -u
tool=$1
case $tool in /*) ;; *) tool=$PWD/$tool ;; esac
rm -f cli_tool.db cli_tool.db-wal cli_tool.db-shm cli_tool.out

fail() { echo "examples_cli: $1" >&2; [ -s cli_tool.out ] && sed 's/^/  | /' cli_tool.out >&2; exit 1; }
run() { "$tool" "$@" >cli_tool.out 2>cli_tool.err; }
lines() { [ "$(wc -l <cli_tool.out)" -eq "$1" ] || fail "$2: wanted $1 lines"; }
has() { grep -qxF "$1" cli_tool.out || fail "missing line: $1"; }

run; [ $? -eq 2 ] || fail "no argument: wanted usage and status 2"
grep -q '^usage: ' cli_tool.err || fail "no usage"
run work --bogus; [ $? -eq 2 ] || fail "work --bogus: wanted status 2"

run add "buy milk" || fail "add"
grep -qE '^stored [0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' cli_tool.out ||
    fail "add: no id"
run add 'say "hi"' || fail "add with quotes"
run add "bad idea" || fail "add bad"

run list || fail "list"
lines 3 "list before work"
has 'waiting "buy milk"'; has 'waiting "say \"hi\""'; has 'waiting "bad idea"'

# The shell may report the kill on stderr: that is fine. 137 = 128 + SIGKILL.
( run work --crash ) 2>/dev/null
status=$?
[ "$status" -eq 137 ] || fail "work --crash: status $status instead of 137"
lines 1 "work --crash"
has 'doing "buy milk", attempt 1'

run list || fail "list after the crash"
lines 3 "list after the crash"
has 'waiting "buy milk"'; has 'waiting "say \"hi\""'; has 'waiting "bad idea"'

run work || fail "work after the crash"
lines 3 "work after the crash"
has 'doing "buy milk", attempt 2'; has 'doing "say \"hi\"", attempt 1'; has 'doing "bad idea", attempt 1'

run list || fail "list at the end"
lines 1 "list at the end"
has 'dead "bad idea" ["nobody wants that"]'

run work || fail "work with nothing to do"
lines 0 "work with nothing to do"
rm -f cli_tool.db cli_tool.db-wal cli_tool.db-shm cli_tool.out cli_tool.err
echo ok
