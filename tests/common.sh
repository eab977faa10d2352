# common.sh - what the scripts of this folder share; they read it with `.`, it does nothing by itself.
#
# A part of the suite counts what passed and failed and ends with `tally PART`, which adds a line to
# $OUT/totals; `run --sum` adds those lines up. OUT is the build folder of the suite, e.g. build/plain.

set -u
ulimit -c 0 2>/dev/null # tests crash on purpose: no core files

here=$(cd "$(dirname "$0")" && pwd)
case $here in */tests/compile) tests=${here%/compile} ;; *) tests=$here ;; esac
root=${tests%/tests}
OUT=${OUT:-build/plain}
case $OUT in /*) ;; *) OUT=$tests/$OUT ;; esac
mkdir -p "$OUT"

passed=0
failed=0

# Seconds for one program; sanitizers are slow.
LIMIT=${LIMIT:-${SANITIZER:+300}}
LIMIT=${LIMIT:-120}

# Prints a file, indented, at most its last 200 lines.
show() { tail -n 200 "$1" | awk '{ print "    | " $0 }'; }

# One more check passed or failed, with a name and an optional file that explains.
pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAILED  $1"
    if [ $# -gt 1 ] && [ -s "$2" ]; then show "$2"; fi
}

# Ends a part: one line for people, one for `run --sum`.
tally() {
    echo "        $1: $passed passed, $failed failed"
    echo "$passed $failed $1" >>"$OUT/totals"
}

# limited SECONDS COMMAND...: runs it, killed when it takes longer (status 124). The sanitizers of
# older compilers do not stand address randomisation with many bits, so it is switched off for them
# where that is possible.
limited() {
    limit=$1
    shift
    if command -v timeout >/dev/null 2>&1; then set -- timeout -k 5 "$limit" "$@"; fi
    if [ "${SANITIZER:-}" ] && setarch -R true >/dev/null 2>&1; then set -- setarch -R "$@"; fi
    "$@"
}

# Sanitizer reports go to files, so that a report in a child process is not overlooked: whoever ran a
# program calls reported, which is true, and prints them, if there are any.
reports_to() {
    reports=$1
    [ "${SANITIZER:-}" ] || return 0
    mkdir -p "$reports"
    rm -rf "$reports"/*
    every="halt_on_error=1:log_path=$reports/r"
    export ASAN_OPTIONS="$every:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"
    export UBSAN_OPTIONS="$every:print_stacktrace=1"
    export TSAN_OPTIONS="$every:second_deadlock_stack=1:suppressions=$tests/tsan.supp"
}
reported() {
    [ "${SANITIZER:-}" ] || return 1
    set -- "$reports"/*
    [ -f "$1" ] || return 1
    for found; do show "$found"; done
    rm -f "$reports"/*
}
