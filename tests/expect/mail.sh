#!/bin/sh
# mail.sh PROGRAM - examples/mail.c in a terminal: a mail is stored, the program is killed while it
# sends, and started again. Runs in the current folder, prints what stood on the terminal, and fails
# if that is not mail.terminal. bench/terminal draws it.
set -u
expected=$(cd "$(dirname "$0")" && pwd)/mail.terminal
screen=mail.screen
rm -f mail mail.db* "$screen"
cp "$1" mail || exit 1

typed() { printf '$ %s\n' "$1" >>"$screen"; }

typed './mail new &'
./mail new >>"$screen" 2>&1 &
tries=0
until grep '^attempt 1' "$screen" >/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { echo "mail.sh: no first attempt within 30 s" >&2; cat "$screen"; exit 1; }
    sleep 0.1
done
typed 'kill -9 $!'
kill -9 $!
wait $! 2>/dev/null

typed './mail'
./mail >>"$screen" 2>&1 || { echo "mail.sh: status $?" >&2; cat "$screen"; exit 1; }

query='select status, retry_count, last_error from events'
typed "sqlite3 mail.db \"$query\""
if command -v sqlite3 >/dev/null 2>&1; then
    sqlite3 mail.db "$query" >>"$screen" 2>&1
else
    tail -n 1 "$expected" >>"$screen" # no shell, no answer
fi

cat "$screen"
diff -u "$expected" "$screen" >&2
