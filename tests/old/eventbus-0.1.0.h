/* eventbus.h - v0.1.0 - a durable event bus on SQLite in one header - MIT or public domain: see end
**
**   An event that was published is never lost. It is processed, or it lies in the dead-letter
**   queue with everything needed to understand why.
**
** No server, no daemon, no configuration file. Publish, subscribe with patterns, retries with
** backoff, time limits, dead letters that can be listed and retried, recovery after kill -9 and
** power cuts. With worker threads in a service, without any thread in a game loop.

USE IT

    Copy eventbus.h and the SQLite amalgamation (sqlite3.c, sqlite3.h; 3.51.3 or newer, not 3.52.0)
    into your project. In exactly one C or C++ file:

        #define EVENTBUS_IMPLEMENTATION
        #include "eventbus.h"

    before any other include, so that the POSIX names are there under -std=c99 too; everywhere else
    just include it. Compile that file and sqlite3.c, link with -lpthread (and -ldl -lm on older
    systems). C99, C11 or C++17; Linux, macOS, BSD, Windows. One SQLite per process: if your program
    has one already, use that.

QUICK EXAMPLE

    #define EVENTBUS_IMPLEMENTATION
    #include "eventbus.h"
    #include <stdio.h>
    #include <stdlib.h>

    static void check(eb_result result)
    {
        if (result != EB_OK) exit((fprintf(stderr, "%s\n", eb_strerror(result)), 1));
    }

    static eb_result on_order(eb_delivery *delivery, void *user)
    {
        (void)user;
        printf("%s: %s\n", delivery->event->type, delivery->event->payload);
        return EB_OK;
    }

    int main(void)
    {
        eb_options options = {.path = "hello.db"};
        eb_bus *bus;
        check(eb_open(&bus, &options));
        check(eb_subscribe(bus, "order.*", on_order, NULL, NULL, NULL));
        check(eb_start(bus));
        check(eb_publish(bus, "order.placed", "{\"order\": 42}", NULL));
        eb_destroy(bus);
        return 0;
    }

CONTENTS

    Search for the tag with its two arrows. Bottom up: a room uses only rooms before it.

        >>config        What can be set before including, and platform facts
        >>platform      Mutex, condition, thread, clock, process id
        >>text          UTF-8, JSON, times, ids, error lists
        >>glob          The one pattern language
        >>results       Texts, and the calling thread's last error
        >>sql           Every statement, in one list
        >>types         The store and its connection
        >>memory        One allocator
        >>clock         Wall time for rows, monotonic time for waits
        >>log           One structured entry at a time
        >>db            Connections, statements, transactions
        >>schema        Tables, their version, and whose file it is
        >>store         Opening, closing, reading
        >>writer        One connection, many callers, one commit
        >>engine        Ready queue, claims, attempts, outcomes
        >>matching      From a type to its subscriptions
        >>publish       Messages into rows, some of them born claimed
        >>claims        From disk to the workers, and back after a crash
        >>attempts      Running the handlers of one event
        >>workers       Threads that run handlers, and the keeper
        >>pump          The same engine on the caller's thread
        >>waiting       For one event, for all of them
        >>ownership     One dispatcher per file and namespace
        >>options       Checked once, resolved once
        >>subscriptions Who wants what
        >>life          Start, stop, free
        >>inspector     Lists, dead letters, figures
        >>public        The functions that are declared at the top

GUARANTEES

    What survives what, once eb_publish, eb_post or eb_send has returned EB_OK:

        durability           process killed     power cut, kernel panic
        EB_DURABLE_FULL      nothing is lost    nothing is lost             (the default)
        EB_DURABLE_NORMAL    nothing is lost    the newest events may be lost, never one in between
        EB_DURABLE_OFF       nothing is lost    the file may be damaged: for tests and caches

    - At least once. A handler may run again for an event it has seen: when the process died before
      the ack was committed (acks ride on the next commit, at most 1 ms later, and do not wait for
      an fsync of their own), or when an earlier attempt failed half way. Handlers should be
      idempotent; event->id is the same in every attempt.
    - All or none. eb_send stores all its messages in one commit, or none.
    - An attempt is counted before its handler runs, so a handler that kills the process every time
      ends in the dead-letter queue after max_retries + 1 attempts, with the reason, and its
      neighbours lose no attempt by it.
    - A late answer changes nothing. Every claim has a token; whoever was timed out is fenced off.
    - Sequence numbers grow in order of commit and are never reused, not even after a purge.
    - Nothing is silently dropped. A full disk, a locked file, a failed fsync, a damaged file: each
      has its result, see ERRORS. If the fsync of a commit fails, the call says EB_ERR_UNKNOWN, and
      the bus closes the file, opens it again and lets a checkpoint read everything back before it
      promises anything new: the kernel may have dropped the pages and call the next fsync good.
    - A file that is deleted or renamed under the bus takes no more events: EB_ERR_IO, from the next
      commit on with FULL, within idle_poll_ms with NORMAL.
    - One dispatcher. A second bus on the same file and namespace, in this process or another, gets
      EB_ERR_OWNED from eb_start at once; when the first dies, the next start succeeds at once.

    This rests on SQLite's WAL and on a disk that does not lie about fsync. Network file systems do.

LIMITS

    - Order: events start in order of publishing, but with several workers, retries and delays they
      overtake each other. Give them the same ordering_key if they must not.
    - Type and pattern 1 to 255 bytes of UTF-8; payload 1 MiB by default (max_payload_bytes), JSON
      nested at most 128 deep; error text of an attempt 1000 bytes; 1024 workers.
    - One process dispatches; any number may publish, inspect and retry beside it. Their events are
      seen within idle_poll_ms, or at once after eb_wake.
    - A handler that never returns cannot be killed. Its thread is left behind and replaced; after
      the 16th, the subscription of whichever times out next is paused until one comes back.
    - Done events stay in the file: this version has no retention.
    - Throughput ends where the disk's fsync ends; see bench/ for how close this comes.

CONCEPTS

    Event           A type ("order.shipped"), a JSON payload, optional metadata. Kept in a log with
                    a global sequence number, seq.

    Subscription    A pattern and a handler. '*' matches any run of characters, dots included, also
                    an empty one; nothing else is special. "order.*" matches "order.a.b", "*" all.
                    All handlers that match run one after the other, in order of subscribing, and
                    share the event's one life: the first failure ends the attempt, and the next
                    attempt runs all of them again.

    Life            pending -> processing -> done | dlq. Every step is one atomic commit. An event
                    that waits for its next attempt is still processing.

    Attempt         max_retries + 1 in all (default 4). Before attempt N >= 2 the bus waits
                    min(base_delay_ms * multiplier^(N-2), max_delay_ms): 1, 2, 4 s. The policy of
                    the handler that failed decides. jitter spreads the waits; schedule_ms lists
                    them one by one.
                        return EB_OK;                          done
                        return eb_fail(d, "status %d", s);     again, as the policy says
                        return eb_reject(d, "bad address");    dead now, no retry can help
                        return eb_snooze(d, 60000);            again in a minute, attempt not spent
                        return EB_ERR_IO;                      like eb_fail with that code's text

    Time limit      handler_timeout_ms. With threads: at the deadline the attempt has failed, the
                    thread is left behind and another takes its place; whatever the handler returns
                    later is stale. A long handler asks eb_cancelled(), or eb_extend()s its limit.
                    Without threads the limit is noticed when the handler returns.

    Dead letter     The event, every error text of every attempt, when it died. eb_dlq_list shows
                    them, eb_dlq_retry gives one a new life (attempts from zero), eb_dlq_purge
                    deletes old ones, eb_dlq_move gives up on a live one.

    Unmatched       Nobody subscribed to it: on_unmatched says DONE (default), DLQ or KEEP. DONE
                    and DLQ concern only events published while the bus is started and never
                    attempted. What is found on disk, waits for a retry or came back from the dead
                    letters stays pending until somebody matches; that is logged once.

    Keys            ordering_key: events with the same key run strictly in publish order; a later
                    one waits while an earlier one runs, retries or snoozes. idempotency_key: a
                    second publish with the same key stores nothing and returns EB_DUPLICATE and
                    the first event's id. Use one, and EB_ERR_UNKNOWN can simply be tried again.

    Two drivers     workers = N: N threads run handlers, one more keeps the time. workers = EB_NONE:
                    eb_pump(bus, budget_ms, &next_ms) runs what is due on the calling thread, and
                    no thread is ever created. The engine is the same.

    Namespace       options.ns puts a prefix before every table, so that one file holds several
                    buses, or a bus beside the application's own tables.

THREADS

    Every function may be called from any thread, unless its comment says otherwise, and from inside
    a handler, except: eb_wait, eb_drain, eb_pump (EB_ERR_STATE) and eb_destroy (forbidden). Inside
    a handler eb_publish is eb_post, and eb_shutdown begins the shutdown and returns at once.

    Handlers, logger and allocator are called without any lock held: they may call back.

    workers = EB_NONE: eb_pump, eb_publish, eb_wait and eb_drain pump; one thread at a time, a
    second one gets EB_ERR_STATE. eb_post and eb_send are fine from any thread even so.

    fork: a child must not use its parent's bus; every call there is EB_ERR_FORK, closing does
    nothing. Open a bus of your own in the child. A handler may fork: if the child returns from it,
    the call that pumps ends there with EB_ERR_FORK, a worker's thread just ends.

    Signals: no function may be called from a signal handler. A signal that interrupts a system call
    does no harm.

    SQLite built with SQLITE_THREADSAFE=0, or EB_NO_THREADS: workers must be EB_NONE, else
    EB_ERR_THREADS; use the bus from one thread.

ERRORS

    Results >= 0: the call did what it says. < 0: it did not. eb_strerror() has a short text,
    eb_errmsg() the detail of this thread's last failure.

        EB_ERR_ARG         your mistake; the message names the argument. Nothing was changed
        EB_ERR_PAYLOAD     payload or metadata is not JSON as RFC 8259 has it
        EB_ERR_TOO_BIG     over max_payload_bytes
        EB_ERR_SHUTDOWN    after eb_shutdown. From eb_publish with an id: stored, will run next time
        EB_ERR_NOT_FOUND   no such event or subscription, or the text is no id
        EB_ERR_STATE       not now (already started, not dead), or not here (inside a handler)
        EB_ERR_STALE       the time limit has passed; stop working
        EB_ERR_TIMEOUT     the time you gave ran out; the thing itself goes on
        EB_ERR_BUSY        another process held the write lock past busy_timeout_ms; try again
        EB_ERR_OWNED       another bus dispatches this file and namespace
        EB_ERR_FULL        disk full, or max_pending reached; nothing was stored. Try later
        EB_ERR_UNKNOWN     write or fsync of a commit failed: stored or not. Publish again with the
                           same idempotency key
        EB_ERR_IO          the file cannot be read or written; eb_errmsg() has SQLite's words
        EB_ERR_CORRUPT     damaged. See "PRAGMA integrity_check", restore a backup
        EB_ERR_SCHEMA      not our file, a newer version's, or a SQLite that is too old
        EB_ERR_NOMEM       out of memory; nothing was changed
        EB_ERR_FORK        used in a forked child
        EB_ERR_THREADS     workers wanted, but this build has no threads

    While the disk is full or the file is locked the dispatcher keeps the outcomes of handlers in
    memory, logs, and tries again, later and later but at least every 2 s.

    The logger gets one entry per failed attempt (entry->attempt > 0; level ERROR if it was the
    last) and whatever else an operator should know. The default writes JSON lines to stderr:

        {"time":"2026-11-18T05:32:10.123Z","level":"warn","message":"attempt failed",
         "event_id":"...","type":"mail.send","error":"relay down","attempt":1,"max_attempts":4,
         "next_delay_ms":1000}                                      (in one line)

MEMORY

    options.allocator is asked for everything that eventbus.h itself needs; SQLite has its own, see
    sqlite3_config(). Events wait on disk: in memory are at most EB_READY_MAX of them or
    EB_READY_BYTES, whichever is reached first, plus those being handled. Whatever you pass in is
    copied before the call returns; whatever a handler is given is valid until it returns; lists of
    the inspector are yours until eb_event_list_free(), and may outlive the bus.

CONFIGURATION

    Before the include with EVENTBUS_IMPLEMENTATION; none of these changes a public type.

        EB_STATIC            all functions static: the bus belongs to this one file
        EB_API               linkage of the public functions, e.g. __declspec(dllexport)
        EB_SQLITE3_H         where SQLite's header is; default "sqlite3.h"
        EB_NO_THREADS        no threads at all: workers must be EB_NONE
        EB_ASSERT(cond)      default assert(cond); says what the code believes, never checks a user
        EB_READY_MAX         1024: events held in memory ahead of the workers
        EB_READY_BYTES       8 MiB: the same in bytes
        EB_CLAIM_MAX         256: events claimed in one commit while handlers are quick
        EB_ACK_DELAY_MS      1: how long an ack may wait for a commit to ride on
        EB_WAL_PAGES         1000: how often the WAL is copied into the database
        EB_LOST_MAX          16: threads left behind in stuck handlers, then subscriptions pause

    Everything else is in eb_options. All-zero is the default; a number that may mean "none" takes
    EB_NONE (-1); any other negative number is EB_ERR_ARG. SQLite's recommended compile options are
    in sqlite3/VERSION.md.

FILE FORMAT

    An ordinary SQLite database in WAL mode: app.db, app.db-wal and app.db-shm while it is open, and
    app.db.owner (empty; whoever dispatches holds a lock on it). Copy it with SQLite's backup or
    VACUUM INTO, not with cp while it is open. Times are text, 2026-11-18T05:32:10.123Z, except
    columns that end in _ms. With options.ns = "billing" every name begins with billing_.

        event_log      what was said: seq, id, type, payload, metadata, ordering_key,
                       idempotency_key, producer, deliver_at_ms, created_at
        deliveries     what is live: one small row per unfinished event
        finished       how it ended well: seq, attempts, errors if any, finished_at
        dead_letters   how it ended badly, with everything; also when and by whom retried
        subscriptions  who subscribes now, for information; schedules, nodes: for later versions
        meta           schema version, id key, floor of sequence numbers; namespaces: a list
        events         a view: id, type, payload, status, retry_count, last_error, metadata,
                       created_at, updated_at, seq

    From the sqlite3 shell, also while the bus runs:

        select status, count(*) from events group by 1;
        select * from events where status = 'dlq';
        update events set status = 'pending' where seq = 42;      retry a dead, rerun a done event
        update events set status = 'dlq' where seq = 42;          give up on a live one

    Other updates, INSERT and DELETE are refused with the name of the function to use. Look rows up
    by seq: an id is found by the bus without an index (see >>text), but the shell has to scan.

    The file carries its schema version in meta. A newer or foreign file is refused untouched, an
    older one is migrated forward in one transaction.
*/
#if defined(EVENTBUS_IMPLEMENTATION) && !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#ifndef EVENTBUS_H
#define EVENTBUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EB_VERSION_MAJOR 0
#define EB_VERSION_MINOR 1
#define EB_VERSION_PATCH 0
#define EB_VERSION_STRING "0.1.0"

/* Linkage of every public function. EB_STATIC keeps the whole bus inside one translation unit. */
#ifndef EB_API
#if defined(EB_STATIC) && (defined(__GNUC__) || defined(__clang__))
#define EB_API __attribute__((unused)) static
#elif defined(EB_STATIC)
#define EB_API static
#else
#define EB_API extern
#endif
#endif

#if defined(EB_STATIC) && !defined(EVENTBUS_IMPLEMENTATION)
#error "EB_STATIC needs EVENTBUS_IMPLEMENTATION in the same file: static functions are not shared"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define EB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define EB_PRINTF(fmt, args)
#endif

/* ---- results ------------------------------------------------------------------------------- */

/* >= 0: the call did what it says, look closer if you care. < 0: it did not. This one list yields
** the enum, the texts of eb_strerror() and the table that the tests walk through. */
#define EB_RESULT_LIST(X)                                                                          \
    X(EB_OK, 0, "ok")                                                                              \
    X(EB_DUPLICATE, 1, "idempotency key is known; the first event's id is returned")               \
    X(EB_DEAD, 2, "the event is in the dead-letter queue")                                         \
    X(EB_EMPTY, 3, "nothing to do now")                                                            \
    X(EB_FAILED, 4, "the handler failed")                                                          \
    X(EB_ERR_ARG, -1, "an argument is wrong")                                                      \
    X(EB_ERR_PAYLOAD, -2, "payload or metadata is not acceptable JSON")                            \
    X(EB_ERR_TOO_BIG, -3, "over a configured limit")                                               \
    X(EB_ERR_SHUTDOWN, -4, "the bus is shutting down or closed")                                   \
    X(EB_ERR_NOT_FOUND, -5, "no such thing")                                                       \
    X(EB_ERR_STATE, -6, "not possible in this state or place")                                     \
    X(EB_ERR_STALE, -7, "the claim is no longer yours")                                            \
    X(EB_ERR_TIMEOUT, -8, "the time given ran out")                                                \
    X(EB_ERR_BUSY, -9, "the database was locked past the busy timeout; nothing was written")       \
    X(EB_ERR_OWNED, -10, "another bus already dispatches this namespace")                          \
    X(EB_ERR_FULL, -11, "disk or queue is full; nothing was written")                              \
    X(EB_ERR_UNKNOWN, -12, "the commit failed half way (fsync): stored or not stored")             \
    X(EB_ERR_IO, -13, "the file cannot be read or written")                                        \
    X(EB_ERR_CORRUPT, -14, "the file is damaged")                                                  \
    X(EB_ERR_SCHEMA, -15, "the file is not ours or from a newer version; nothing was changed")     \
    X(EB_ERR_NOMEM, -16, "out of memory")                                                          \
    X(EB_ERR_FORK, -17, "used in a forked child; open a bus of your own there")                    \
    X(EB_ERR_THREADS, -18, "threads are not available in this build")

#define EB_RESULT_ENUM(name, value, text) name = value,
typedef enum eb_result { EB_RESULT_LIST(EB_RESULT_ENUM) EB_RESULT_LAST_ = -99 } eb_result;
#undef EB_RESULT_ENUM

/* Constant text of a result. Any thread; never NULL, also for a number that is no result. */
EB_API const char *eb_strerror(eb_result result);

/* Copies the detail of the calling thread's last failed call, on whatever object, into buf (cut to
** cap, always terminated if cap > 0) and returns its whole length; 0 if no call failed yet.
** Any thread. A call that succeeds leaves the text alone: the result is the truth. */
EB_API size_t eb_errmsg(char *buf, size_t cap);

/* The version of the implementation that is linked, e.g. "0.1.0". Any thread. */
EB_API const char *eb_version(void);

/* ---- types and options --------------------------------------------------------------------- */

typedef struct eb_bus eb_bus;
typedef struct eb_store eb_store;
struct sqlite3; /* only delivery->db mentions it; sqlite3.h is not needed to use the bus */

/* "None" or "for ever", wherever a number may mean that. 0 in an option means the default. */
#define EB_NONE (-1)

typedef struct eb_id {
    char str[37]; /* UUID v4 text, lower case, zero-terminated */
} eb_id;

typedef enum eb_status { EB_PENDING, EB_PROCESSING, EB_DONE, EB_DLQ } eb_status;

enum { EB_LOG_ERROR = 1, EB_LOG_WARN = 2, EB_LOG_INFO = 3, EB_LOG_DEBUG = 4 };
enum { EB_DURABLE_FULL = 1, EB_DURABLE_NORMAL = 2, EB_DURABLE_OFF = 3 };
enum { EB_UNMATCHED_DONE = 0, EB_UNMATCHED_DLQ = 1, EB_UNMATCHED_KEEP = 2 };

/* When a failed event is tried again. In options: 0 = the default named here; in a subscription:
** 0 = inherit from options.retry. EB_NONE = none, where the comment says what that means. */
typedef struct eb_retry_policy {
    int max_retries;            /* 3: four attempts in all; EB_NONE = no retry */
    int64_t base_delay_ms;      /* 1000: wait before attempt 2; EB_NONE = no wait */
    int64_t max_delay_ms;       /* 30000: cap of every wait; EB_NONE = no cap */
    double multiplier;          /* 2.0: growth of the wait from attempt to attempt, >= 1 */
    double jitter;              /* 0: exact; 0.2: up to 20 % shorter or longer; 0 to 1 */
    const int64_t *schedule_ms; /* explicit waits, e.g. {5000, 30000, 300000}: replaces base, max */
    int schedule_count;         /* and multiplier; the last one repeats; also sets max_retries,
                                   unless that is given beside it */
} eb_retry_policy;

/* One per failed attempt, and for whatever else an operator should know. Strings are valid during
** the call only, NULL where they do not apply. */
typedef struct eb_log_entry {
    int level; /* EB_LOG_ERROR ... EB_LOG_DEBUG */
    const char *message, *event_id, *type, *subscription, *error;
    int attempt, max_attempts;      /* attempt > 0 only in the one entry per failed attempt */
    int64_t next_delay_ms, time_ms; /* next_delay_ms: -1 = no further attempt */
} eb_log_entry;

typedef struct eb_logger { /* called without locks, from whichever thread has something to say */
    void (*func)(const eb_log_entry *entry, void *user);
    void *user;
} eb_logger;

typedef struct eb_clock { /* all three or none; needs workers = EB_NONE */
    int64_t (*now_ms)(void *user), (*mono_ms)(void *user);
    void (*sleep_ms)(int64_t ms, void *user);
    void *user;
} eb_clock;

typedef struct eb_allocator { /* like realloc; size 0 frees and returns NULL; any thread */
    void *(*resize)(void *ptr, size_t size, void *user);
    void *user;
} eb_allocator;

typedef struct eb_options {
    const char *path;            /* database file, created 0600; ":memory:" for tests */
    const char *ns;              /* namespace: [A-Za-z0-9_-]{0,32}, lower-cased; default none */
    int workers;                 /* threads that run handlers: 0 = 1; EB_NONE = none, eb_pump() */
    int durability;              /* 0 = EB_DURABLE_FULL; see GUARANTEES */
    int shared;                  /* not in this version: must be 0 */
    eb_retry_policy retry;       /* for subscriptions that do not say otherwise */
    int64_t handler_timeout_ms;  /* 30000; EB_NONE = none */
    int64_t shutdown_timeout_ms; /* 30000; EB_NONE = wait for ever */
    int64_t busy_timeout_ms;     /* 5000: wait for another process's lock; EB_NONE = do not wait */
    int64_t lease_ms;            /* for shared and pull: no effect in this version */
    int64_t idle_poll_ms;        /* 1000: a sleeping bus looks for other processes' commits;
                                    EB_NONE = never */
    int64_t retention_ms;        /* no effect in this version: done events are kept for ever */
    int on_unmatched;            /* EB_UNMATCHED_DONE, _DLQ, _KEEP: an event nobody subscribed to */
    size_t max_payload_bytes;    /* 1 MiB */
    int64_t max_pending;         /* cap on live events: EB_ERR_FULL beyond; 0 or EB_NONE = none */
    const char *node_id;         /* recorded as the producer of events; default: generated */
    const char *node_name;       /* a name for people; default: none */
    eb_logger logger;            /* default: one JSON line on stderr from WARN up */
    eb_clock clock;              /* default: the system's */
    eb_allocator allocator;      /* default: malloc */
    const char *vfs;             /* SQLite VFS name; default: SQLite's */
} eb_options;

/* ---- the bus ------------------------------------------------------------------------------- */

/* Opens the database file, creating it and its tables if need be, and checks everything: version,
** schema, WAL, settings. Handlers may be subscribed and events published at once; nothing is
** dispatched before eb_start(). NULL options are not enough: path is required.
** Threads: any. Blocks: up to busy_timeout_ms. Ownership: everything in options is copied; *out is
** NULL on failure, and the logger is told why. Close with eb_destroy(). */
EB_API eb_result eb_open(eb_bus **out, const eb_options *options);

/* Becomes the one dispatcher of this file and namespace (else EB_ERR_OWNED, at once), recovers what
** a crash left behind, and starts the worker threads. EB_ERR_STATE the second time.
** Threads: any. Blocks: for the recovery, up to busy_timeout_ms more. */
EB_API eb_result eb_start(eb_bus *bus);

/* workers = EB_NONE: runs due events on this thread until nothing is due or budget_ms is spent; at
** least one, so that there is always progress; EB_NONE: until nothing is due. *next_ms (may be
** NULL): ms until the next due event, 0 = more now, -1 = none.
** Threads: one at a time, EB_ERR_STATE for a second and inside a handler. Durable: every outcome is
** committed when it returns. */
EB_API eb_result eb_pump(eb_bus *bus, int64_t budget_ms, int64_t *next_ms);

/* Waits until no event is pending or processing, delayed and retrying ones included; those that
** stay because nobody matches them do not count. EB_ERR_TIMEOUT if that takes longer;
** EB_ERR_CORRUPT, EB_ERR_SCHEMA: the file is damaged, and waiting is no help.
** Threads: any, not inside a handler. Blocks: up to timeout_ms (0: just looks). Durable: acks. */
EB_API eb_result eb_drain(eb_bus *bus, int64_t timeout_ms);

/* No new publish or subscribe; running handlers may finish within shutdown_timeout_ms, else
** EB_ERR_TIMEOUT and they are left behind: what they can still touch lives until they return.
** Everything that is not finished is on disk and resumes at the next start. Any number of times.
** Inside a handler: begins the shutdown and returns EB_OK at once. The inspector still works.
** Threads: any. Blocks: up to shutdown_timeout_ms and one commit. Durable: all outcomes. */
EB_API eb_result eb_shutdown(eb_bus *bus);

/* Shuts down if that was not done, closes the file, frees the bus. NULL is fine. Does nothing in a
** forked child. Threads: the last one to use the bus; never inside a handler. Blocks: as shutdown.
*/
EB_API void eb_destroy(eb_bus *bus);

/* Looks for work now: something was committed by another process. Threads: any. Blocks: no. */
EB_API void eb_wake(eb_bus *bus);

/* ---- publish ------------------------------------------------------------------------------- */

typedef struct eb_message {
    const char *type;            /* 1 to 255 bytes of UTF-8, no spaces, control characters or '*' */
    const char *payload;         /* JSON text, stored byte for byte; NULL = null */
    size_t payload_len;          /* 0 = strlen */
    const char *metadata;        /* JSON object of strings, or NULL */
    const char *ordering_key;    /* same key: strictly in publish order, also through retries */
    const char *idempotency_key; /* published once while the event is kept: else EB_DUPLICATE */
    int64_t delay_ms;            /* not before now + delay_ms, */
    int64_t deliver_at_ms;       /* or not before this wall time; one of the two at most */
    int durability;              /* 0 = the bus's; EB_DURABLE_FULL or _NORMAL */
} eb_message;

/* Stores the event and waits until its handlers are done with it, through all retries: EB_OK, or
** EB_DEAD if it went to the dead-letter queue. Inside a handler or before eb_start() it is
** eb_post(). EB_ERR_SHUTDOWN with *id filled: stored, but the bus stopped before the end;
** EB_ERR_CORRUPT, EB_ERR_SCHEMA: stored, but the file was damaged before the end.
** Threads: any (workers = EB_NONE: pumps, one at a time). Blocks: until the event's end. Durable:
** on disk as the bus's durability says. Ownership: arguments are copied; id may be NULL. */
EB_API eb_result eb_publish(eb_bus *bus, const char *type, const char *payload, eb_id *id);

/* Stores the event and returns; handlers run later. Threads: any, also handlers. Blocks: for the
** commit, up to busy_timeout_ms. Durable and Ownership: as eb_publish. */
EB_API eb_result eb_post(eb_bus *bus, const char *type, const char *payload, eb_id *id);

/* The full form of eb_post: count messages in one commit, all or none. ids (may be NULL) receives
** count ids. EB_DUPLICATE: some idempotency keys were known; the others are stored, all ids filled.
** Threads, Blocks, Durable, Ownership: as eb_post. A count of 0 is EB_OK. */
EB_API eb_result eb_send(eb_bus *bus, const eb_message *msgs, size_t count, eb_id *ids);

/* Waits for the end of an event: EB_OK done, EB_DEAD, EB_ERR_TIMEOUT, EB_ERR_NOT_FOUND; as
** eb_publish EB_ERR_SHUTDOWN, EB_ERR_CORRUPT and EB_ERR_SCHEMA.
** Threads: any, not inside a handler (workers = EB_NONE: pumps). Blocks: up to timeout_ms. */
EB_API eb_result eb_wait(eb_bus *bus, const char *id, int64_t timeout_ms);

/* ---- subscribe ----------------------------------------------------------------------------- */

typedef struct eb_event {
    eb_id id;
    int64_t seq; /* position in the log; never reused */
    const char *type, *payload;
    size_t payload_len;
    const char *metadata;
    eb_status status;
    int retry_count;        /* failed attempts so far */
    const char *last_error; /* JSON array, one text per failed attempt, or NULL */
    const char *ordering_key, *idempotency_key, *producer;
    const char *subscription; /* name of the subscription whose life this is; NULL: unnamed */
    int64_t created_at_ms, updated_at_ms, dlq_at_ms;
} eb_event;

typedef struct eb_delivery {
    const eb_event *event; /* valid until the handler returns */
    int attempt, max_attempts;
    int64_t deadline_ms; /* wall time at which the handler is given up; EB_NONE: never */
    eb_bus *bus;
    struct sqlite3 *db; /* NULL in this version */
    void *impl;
} eb_delivery;

/* Returns EB_OK (or EB_DUPLICATE): success. `return eb_fail(...)`, eb_reject or eb_snooze: what
** they say. Any other value: a failed attempt with that code's text. Runs on a worker thread, or
** inside eb_pump(); no lock is held. */
typedef eb_result (*eb_handler)(eb_delivery *delivery, void *user);

/* This attempt failed, retry per policy. Returns EB_FAILED, for the handler to return. The text is
** kept (cut at 1000 bytes). Threads: the handler's own. Blocks: no. */
EB_API eb_result eb_fail(eb_delivery *delivery, const char *fmt, ...) EB_PRINTF(2, 3);

/* No retry can help: dead-letter now. Otherwise as eb_fail. */
EB_API eb_result eb_reject(eb_delivery *delivery, const char *fmt, ...) EB_PRINTF(2, 3);

/* Again in delay_ms, without spending an attempt. Returns EB_FAILED, EB_ERR_ARG if delay_ms < 0. */
EB_API eb_result eb_snooze(eb_delivery *delivery, int64_t delay_ms);

/* Still working: moves the deadline more_ms further (EB_NONE: away). EB_ERR_STALE if too late.
** Threads: the handler's own. Blocks: no. */
EB_API eb_result eb_extend(eb_delivery *delivery, int64_t more_ms);

/* 1 if the handler timed out or the bus shuts down: please return. Threads: the handler's own. */
EB_API int eb_cancelled(const eb_delivery *delivery);

typedef struct eb_subscribe_options {
    const char *name;      /* not in this version, nor anything below that says "later" */
    int64_t timeout_ms;    /* default: options.handler_timeout_ms; EB_NONE = none */
    eb_retry_policy retry; /* merges over options.retry; base_delay_ms overrides its schedule */
    int transactional, from, order; /* later */
    const char *order_path;         /* later */
    int on_dead, instances;         /* later */
    int checkpoint_every;           /* later */
    int64_t checkpoint_ms;          /* later */
    int max_concurrency;            /* later */
    int breaker_failures;           /* later */
    int64_t breaker_ms;             /* later */
} eb_subscribe_options;

/* Calls handler for every event whose type matches pattern (see eb_match). Several that match the
** same event run one after the other, in order of subscribing; the first failure ends the attempt.
** Threads: any, also handlers. Blocks: for a small commit. Ownership: pattern and options are
** copied; user must live until eb_unsubscribe() or eb_shutdown() returned EB_OK. id may be NULL. */
EB_API eb_result eb_subscribe(eb_bus *bus, const char *pattern, eb_handler handler, void *user,
                              const eb_subscribe_options *options, eb_id *id);

/* No new call of the handler begins. Outside a handler it also waits for running calls, at most
** shutdown_timeout_ms, else EB_ERR_TIMEOUT: unsubscribed, but keep `user`. Inside a handler it
** returns at once. Threads: any. Blocks: see above. */
EB_API eb_result eb_unsubscribe(eb_bus *bus, const char *id);

/* ---- store and inspector: need no bus and no dispatcher ------------------------------------ */

typedef struct eb_query {
    const char *id;            /* only this event */
    const char *pattern;       /* only types that match */
    const char *subscription;  /* dead letters of this named subscription only */
    int64_t after_seq;         /* only later than this */
    int64_t from_ms, to_ms;    /* created within, both inclusive; 0 = open */
    int offset, limit;         /* limit 0 = 100 (eb_dlq_retry_all: no limit) */
} eb_query;

typedef struct eb_event_list {
    eb_event *items;
    size_t count;
    int64_t total; /* how many there are without offset and limit */
    void *impl;
} eb_event_list;

typedef struct eb_stats {
    int64_t pending, processing, done, dlq; /* rows in the file; dlq: all dead letters */
    int64_t oldest_pending_ms;              /* age of the oldest pending event, 0 = none */
    int64_t last_seq;                       /* of the newest event ever stored */
    int64_t db_bytes, wal_bytes;
    int64_t lost_workers; /* threads left behind in handlers that timed out, now */
    /* since this bus was opened; 0 in a store without a bus */
    int64_t published, delivered, failed_attempts, died, stale, commits;
} eb_stats;

/* Opens an existing file for looking and dead-letter work, beside a running bus or alone; never
** dispatches, never creates. Uses path, ns, vfs, clock, busy_timeout_ms, logger and allocator.
** Threads: any; calls on one store wait for each other. Close with eb_store_close(). */
EB_API eb_result eb_store_open(eb_store **out, const eb_options *options);

/* Closes a store of eb_store_open(); NULL and the bus's own are left alone. */
EB_API void eb_store_close(eb_store *store);

/* The bus's own store: what it changes wakes the bus at once. Lives until eb_destroy(). */
EB_API eb_store *eb_bus_store(eb_bus *bus);

/* Everything below. Threads: any, also handlers. Blocks: for the database, up to busy_timeout_ms.
** Ownership: lists are the caller's, free them with eb_event_list_free() (fine on a zeroed or
** freed one); on failure the list is empty. Changes are durable (FULL) when the call returns. */
EB_API void eb_event_list_free(eb_event_list *list);

/* One event, whatever its state. EB_ERR_NOT_FOUND: no such event, or no id at all. */
EB_API eb_result eb_get(eb_store *store, const char *id, eb_event_list *out);

/* Events in order of publishing. query NULL: the first 100. */
EB_API eb_result eb_log_read(eb_store *store, const eb_query *query, eb_event_list *out);

/* Dead letters, newest first by created_at. */
EB_API eb_result eb_dlq_list(eb_store *store, const eb_query *query, eb_event_list *out);

/* Gives one dead event a new life: pending, no failed attempts, no errors, due at once.
** subscription NULL: every dead life of it. EB_ERR_STATE: the event is not dead. */
EB_API eb_result eb_dlq_retry(eb_store *store, const char *id, const char *subscription);

/* The same for all that match; *count of them. query NULL: all. */
EB_API eb_result eb_dlq_retry_all(eb_store *store, const eb_query *query, int64_t *count);

/* Deletes dead letters that were created (purge_dead: that died) `days` days ago or earlier. */
EB_API eb_result eb_dlq_purge(eb_store *store, int days, int64_t *count);
EB_API eb_result eb_dlq_purge_dead(eb_store *store, int days, int64_t *count);

/* An operator gives a live event up: it becomes a dead letter with reason (may be NULL) as its last
** error. EB_ERR_STATE: it is done or dead already. */
EB_API eb_result eb_dlq_move(eb_store *store, const char *id, const char *reason);

EB_API eb_result eb_stats_get(eb_store *store, eb_stats *out);

/* ---- small things -------------------------------------------------------------------------- */

/* 1 if type matches pattern: '*' matches any run of characters, dots included, also an empty one;
** nothing else is special. Pure; any thread; linear in practice. NULL matches nothing. */
EB_API int eb_match(const char *pattern, const char *type);

#ifdef __cplusplus
}
#endif
#endif /* EVENTBUS_H */

/* ============================================================================================ */
#if defined(EVENTBUS_IMPLEMENTATION) && !defined(EVENTBUS_IMPLEMENTATION_ONCE)
#define EVENTBUS_IMPLEMENTATION_ONCE

/* ===========================================================================
** >>config   What can be set before including, and platform facts   [private]
** ======================================================================== */

#ifndef EB_SQLITE3_H
#define EB_SQLITE3_H "sqlite3.h"
#endif
#include EB_SQLITE3_H

#if SQLITE_VERSION_NUMBER < 3051003 || SQLITE_VERSION_NUMBER == 3052000
#error "eventbus.h: SQLite before 3.51.3 can corrupt a WAL file, 3.52.0 was withdrawn; use 3.53.4"
#endif

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef EB_ASSERT
#include <assert.h>
#define EB_ASSERT(cond) assert(cond)
#endif

#ifndef EB_READY_MAX
#define EB_READY_MAX 1024 /* events held in memory ahead of the workers; the rest stays on disk */
#endif
#ifndef EB_READY_BYTES
#define EB_READY_BYTES (8 * 1024 * 1024) /* the same in bytes */
#endif
#ifndef EB_CLAIM_MAX
#define EB_CLAIM_MAX 256 /* events claimed in one commit, once handlers have shown to be quick */
#endif
#ifndef EB_ACK_DELAY_MS
#define EB_ACK_DELAY_MS 1 /* how long an ack may wait for a commit to ride on */
#endif
#ifndef EB_WAL_PAGES
#define EB_WAL_PAGES 1000 /* the WAL is copied into the database every so many pages */
#endif
#ifndef EB_LOST_MAX
#define EB_LOST_MAX 16 /* worker threads left behind in stuck handlers, then the latter pause */
#endif

#define EBI_TYPE_MAX 255
#define EBI_KEY_MAX 255
#define EBI_DEPTH_MAX 128
#define EBI_ERROR_MAX 1000
#define EBI_SCHEMA_VERSION 1
#define EBI_FAST_US 1000         /* a handler quicker than this is worth claiming in batches for */
#define EBI_CLAIM_STEP 4096      /* see ebi_claim_mark() */
#define EBI_CROWD 32             /* commits for which a leader expects company after it had some */
#define EBI_BACKOFF_MAX_MS 2000  /* longest pause between two tries to commit an outcome */
#define EBI_DAY_MS INT64_C(86400000)

#if defined(_WIN32)
#define EBI_WIN32 1
#else
#define EBI_WIN32 0
#endif
#if defined(EB_NO_THREADS)
#define EBI_THREADS 0
#else
#define EBI_THREADS 1
#endif

#if defined(__GNUC__) || defined(__clang__)
#define EBI_UNUSED __attribute__((unused))
#else
#define EBI_UNUSED
#endif
#define EBI_FN EBI_UNUSED static

/* Test builds may define this to shake the scheduler at interesting places. */
#ifndef EBI_YIELD
#define EBI_YIELD() ((void)0)
#endif

/* ===========================================================================
** >>platform   Mutex, condition, thread, clock, process id          [private]
** ========================================================================
** The only room with #if on the operating system. Three variants of the same few names: POSIX,
** Win32, and none (EB_NO_THREADS), where locks are nothing and waiting is sleeping.
** Conditions wait on a monotonic clock, so that a changed wall clock shortens no wait. */

#if EBI_WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifndef CLOCK_MONOTONIC
#error "eventbus.h: include it first, or define _POSIX_C_SOURCE 200809L before any system header"
#endif
#endif

#if EBI_THREADS && !EBI_WIN32
#include <pthread.h>
#include <sched.h>
typedef pthread_mutex_t ebi_mutex;
typedef pthread_cond_t ebi_cond;
typedef pthread_t ebi_thread;
#define EBI_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#elif EBI_THREADS
typedef SRWLOCK ebi_mutex;
typedef CONDITION_VARIABLE ebi_cond;
typedef HANDLE ebi_thread;
#define EBI_MUTEX_INIT SRWLOCK_INIT
#else
typedef int ebi_mutex;
typedef int ebi_cond;
typedef int ebi_thread;
#define EBI_MUTEX_INIT 0
#endif

/* The message of eb_errmsg() is per thread. A compiler without thread-locals shares one. */
#if !EBI_THREADS
#define EBI_THREAD_LOCAL
#elif defined(__cplusplus)
#define EBI_THREAD_LOCAL thread_local
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && !defined(__STDC_NO_THREADS__)
#define EBI_THREAD_LOCAL _Thread_local
#elif defined(__TINYC__)
#define EBI_THREAD_LOCAL
#elif defined(__GNUC__)
#define EBI_THREAD_LOCAL __thread
#elif defined(_MSC_VER)
#define EBI_THREAD_LOCAL __declspec(thread)
#else
#define EBI_THREAD_LOCAL
#endif

#if EBI_WIN32
EBI_FN int64_t ebi_platform_mono_us(void)
{
    LARGE_INTEGER count, rate;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&rate);
    return (int64_t)((double)count.QuadPart * 1e6 / (double)rate.QuadPart);
}
EBI_FN int64_t ebi_platform_now_ms(void)
{
    FILETIME ft;
    uint64_t ticks; /* of 100 ns since 1601 */
    GetSystemTimeAsFileTime(&ft);
    ticks = ((uint64_t)ft.dwHighDateTime << 32) | ft.dwLowDateTime;
    return (int64_t)(ticks / 10000) - INT64_C(11644473600000);
}
EBI_FN void ebi_platform_sleep_ms(int64_t ms) { Sleep((DWORD)(ms > 0 ? ms : 0)); }
EBI_FN int64_t ebi_platform_pid(void) { return (int64_t)GetCurrentProcessId(); }
EBI_FN int ebi_platform_create_private(const char *path)
{
    (void)path; /* a new file inherits the folder's access list */
    return 0;
}
#else
EBI_FN int64_t ebi_platform_mono_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
EBI_FN int64_t ebi_platform_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
EBI_FN void ebi_platform_sleep_ms(int64_t ms)
{
    struct timespec t;
    if (ms <= 0) return;
    t.tv_sec = (time_t)(ms / 1000);
    t.tv_nsec = (long)(ms % 1000) * 1000000L;
    nanosleep(&t, NULL);
}
EBI_FN int64_t ebi_platform_pid(void) { return (int64_t)getpid(); }

/* Creates path with mode 0600 if nothing is there. Never touches an existing file: closing any
** descriptor of a database that SQLite has open in this process would drop SQLite's locks. */
EBI_FN int ebi_platform_create_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return 0;
    return close(fd);
}
#endif

#if EBI_THREADS && !EBI_WIN32
EBI_FN int ebi_mutex_init(ebi_mutex *m) { return pthread_mutex_init(m, NULL); }
EBI_FN void ebi_mutex_fini(ebi_mutex *m) { pthread_mutex_destroy(m); }
EBI_FN void ebi_mutex_lock(ebi_mutex *m) { pthread_mutex_lock(m); }
EBI_FN void ebi_mutex_unlock(ebi_mutex *m) { pthread_mutex_unlock(m); }
EBI_FN int ebi_cond_init(ebi_cond *c)
{
#if defined(__APPLE__)
    return pthread_cond_init(c, NULL);
#else
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc) return rc;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
#endif
}
EBI_FN void ebi_cond_fini(ebi_cond *c) { pthread_cond_destroy(c); }
EBI_FN void ebi_cond_signal(ebi_cond *c) { pthread_cond_signal(c); }
EBI_FN void ebi_cond_broadcast(ebi_cond *c) { pthread_cond_broadcast(c); }

/* Waits for a signal or for us microseconds; us < 0: without limit. May wake for no reason. */
EBI_FN void ebi_cond_wait(ebi_cond *c, ebi_mutex *m, int64_t us)
{
    struct timespec t;
    if (us < 0) {
        pthread_cond_wait(c, m);
        return;
    }
    if (us > INT64_C(86400000000)) us = INT64_C(86400000000);
#if defined(__APPLE__)
    t.tv_sec = (time_t)(us / 1000000);
    t.tv_nsec = (long)(us % 1000000) * 1000L;
    pthread_cond_timedwait_relative_np(c, m, &t);
#else
    us += ebi_platform_mono_us();
    t.tv_sec = (time_t)(us / 1000000);
    t.tv_nsec = (long)(us % 1000000) * 1000L;
    pthread_cond_timedwait(c, m, &t);
#endif
}
EBI_FN int ebi_thread_start(ebi_thread *t, void *(*func)(void *), void *arg)
{
    return pthread_create(t, NULL, func, arg);
}
EBI_FN void ebi_thread_join(ebi_thread t) { pthread_join(t, NULL); }
EBI_FN void ebi_thread_detach(ebi_thread t) { pthread_detach(t); }
EBI_FN void ebi_thread_yield(void) { sched_yield(); }
typedef pthread_t ebi_thread_id;
EBI_FN ebi_thread_id ebi_thread_self(void) { return pthread_self(); }
EBI_FN int ebi_thread_same(ebi_thread_id a, ebi_thread_id b) { return pthread_equal(a, b) != 0; }
#elif EBI_THREADS
EBI_FN int ebi_mutex_init(ebi_mutex *m) { InitializeSRWLock(m); return 0; }
EBI_FN void ebi_mutex_fini(ebi_mutex *m) { (void)m; }
EBI_FN void ebi_mutex_lock(ebi_mutex *m) { AcquireSRWLockExclusive(m); }
EBI_FN void ebi_mutex_unlock(ebi_mutex *m) { ReleaseSRWLockExclusive(m); }
EBI_FN int ebi_cond_init(ebi_cond *c) { InitializeConditionVariable(c); return 0; }
EBI_FN void ebi_cond_fini(ebi_cond *c) { (void)c; }
EBI_FN void ebi_cond_signal(ebi_cond *c) { WakeConditionVariable(c); }
EBI_FN void ebi_cond_broadcast(ebi_cond *c) { WakeAllConditionVariable(c); }
EBI_FN void ebi_cond_wait(ebi_cond *c, ebi_mutex *m, int64_t us)
{
    if (us > INT64_C(86400000000)) us = INT64_C(86400000000);
    SleepConditionVariableSRW(c, m, us < 0 ? INFINITE : (DWORD)((us + 999) / 1000), 0);
}
typedef struct ebi_thread_box { void *(*func)(void *); void *arg; } ebi_thread_box;
EBI_FN DWORD WINAPI ebi_thread_main(LPVOID arg)
{
    ebi_thread_box box = *(ebi_thread_box *)arg;
    free(arg);
    box.func(box.arg);
    return 0;
}
EBI_FN int ebi_thread_start(ebi_thread *t, void *(*func)(void *), void *arg)
{
    ebi_thread_box *box = (ebi_thread_box *)malloc(sizeof *box);
    if (!box) return 1;
    box->func = func;
    box->arg = arg;
    *t = CreateThread(NULL, 0, ebi_thread_main, box, 0, NULL);
    if (!*t) free(box);
    return *t ? 0 : 1;
}
EBI_FN void ebi_thread_join(ebi_thread t)
{
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
EBI_FN void ebi_thread_detach(ebi_thread t) { CloseHandle(t); }
EBI_FN void ebi_thread_yield(void) { SwitchToThread(); }
typedef DWORD ebi_thread_id;
EBI_FN ebi_thread_id ebi_thread_self(void) { return GetCurrentThreadId(); }
EBI_FN int ebi_thread_same(ebi_thread_id a, ebi_thread_id b) { return a == b; }
#else
EBI_FN int ebi_mutex_init(ebi_mutex *m) { *m = 0; return 0; }
EBI_FN void ebi_mutex_fini(ebi_mutex *m) { (void)m; }
EBI_FN void ebi_mutex_lock(ebi_mutex *m) { (void)m; }
EBI_FN void ebi_mutex_unlock(ebi_mutex *m) { (void)m; }
EBI_FN int ebi_cond_init(ebi_cond *c) { *c = 0; return 0; }
EBI_FN void ebi_cond_fini(ebi_cond *c) { (void)c; }
EBI_FN void ebi_cond_signal(ebi_cond *c) { (void)c; }
EBI_FN void ebi_cond_broadcast(ebi_cond *c) { (void)c; }
EBI_FN void ebi_cond_wait(ebi_cond *c, ebi_mutex *m, int64_t us)
{
    (void)c;
    (void)m;
    ebi_platform_sleep_ms(us < 0 ? 1 : (us + 999) / 1000);
}
EBI_FN int ebi_thread_start(ebi_thread *t, void *(*func)(void *), void *arg)
{
    (void)t;
    (void)func;
    (void)arg;
    return 1;
}
EBI_FN void ebi_thread_join(ebi_thread t) { (void)t; }
EBI_FN void ebi_thread_detach(ebi_thread t) { (void)t; }
EBI_FN void ebi_thread_yield(void) {}
typedef int ebi_thread_id;
EBI_FN ebi_thread_id ebi_thread_self(void) { return 1; }
EBI_FN int ebi_thread_same(ebi_thread_id a, ebi_thread_id b) { return a == b; }
#endif

/* ===========================================================================
** >>text   UTF-8, JSON, times, ids, error lists                     [private]
** ========================================================================
** Pure functions; no allocation, no recursion, no locale. */

/* Length of the UTF-8 character at s (n bytes are there), 0 if it is not well-formed: no overlong
** forms, no surrogates, nothing above U+10FFFF. */
EBI_FN size_t ebi_utf8_len(const unsigned char *s, size_t n)
{
    unsigned char lo = 0x80, hi = 0xBF;
    size_t len, i;
    if (n == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
    len = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (n < len) return 0;
    if (s[0] == 0xE0) lo = 0xA0;
    if (s[0] == 0xED) hi = 0x9F;
    if (s[0] == 0xF0) lo = 0x90;
    if (s[0] == 0xF4) hi = 0x8F;
    if (s[1] < lo || s[1] > hi) return 0;
    for (i = 2; i < len; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return len;
}

/* n, or less if the text would end within a character there. */
EBI_FN size_t ebi_utf8_cut(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = n;
    while (i > 0 && n - i < 3 && (s[i - 1] & 0xC0) == 0x80) i--; /* back to its first byte */
    if (i == 0 || s[i - 1] < 0xC0) return n;
    return ebi_utf8_len(s + i - 1, n - i + 1) ? n : i - 1;
}

/* Length of text if it is 1 to max bytes of UTF-8 without spaces and control characters, else 0. */
EBI_FN size_t ebi_text_name_len(const char *text, size_t max)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0, n = 0, step;
    while (n <= max && s[n]) n++;
    if (n == 0 || n > max) return 0;
    while (i < n) {
        step = ebi_utf8_len(s + i, n - i);
        if (step == 0 || s[i] <= 0x20 || s[i] == 0x7F) return 0;
        if (step == 2 && s[i] == 0xC2 && s[i + 1] <= 0x9F) return 0; /* C1 controls */
        i += step;
    }
    return n;
}

EBI_FN int ebi_is_hex(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
EBI_FN int ebi_is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

/* Skips a JSON string, s[i] being its opening quote. Returns the index after it, 0 if malformed. */
EBI_FN size_t ebi_json_string(const unsigned char *s, size_t n, size_t i)
{
    size_t step, k;
    EB_ASSERT(s[i] == '"');
    for (i++; i < n;) {
        if (s[i] == '"') return i + 1;
        if (s[i] < 0x20) return 0;
        if (s[i] != '\\') {
            step = ebi_utf8_len(s + i, n - i);
            if (step == 0) return 0;
            i += step;
        } else if (i + 1 < n && s[i + 1] == 'u') {
            if (n - i < 6) return 0;
            for (k = 2; k < 6; k++)
                if (!ebi_is_hex(s[i + k])) return 0;
            i += 6;
        } else {
            if (i + 1 >= n || s[i + 1] == 0 || !strchr("\"\\/bfnrt", s[i + 1])) return 0;
            i += 2;
        }
    }
    return 0;
}

/* Skips a JSON number that begins at i. Returns the index after it, 0 if malformed. */
EBI_FN size_t ebi_json_number(const unsigned char *s, size_t n, size_t i)
{
    size_t start;
    if (i < n && s[i] == '-') i++;
    if (i >= n || !ebi_is_digit(s[i])) return 0;
    if (s[i] == '0') i++;
    else
        while (i < n && ebi_is_digit(s[i])) i++;
    if (i < n && s[i] == '.') {
        start = ++i;
        while (i < n && ebi_is_digit(s[i])) i++;
        if (i == start) return 0;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-')) i++;
        start = i;
        while (i < n && ebi_is_digit(s[i])) i++;
        if (i == start) return 0;
    }
    return i;
}

/* Skips one scalar. Returns the index after it, 0 if malformed. */
EBI_FN size_t ebi_json_scalar(const unsigned char *s, size_t n, size_t i)
{
    if (s[i] == '"') return ebi_json_string(s, n, i);
    if (n - i >= 4 && memcmp(s + i, "true", 4) == 0) return i + 4;
    if (n - i >= 4 && memcmp(s + i, "null", 4) == 0) return i + 4;
    if (n - i >= 5 && memcmp(s + i, "false", 5) == 0) return i + 5;
    return ebi_json_number(s, n, i);
}

EBI_FN size_t ebi_json_space(const unsigned char *s, size_t n, size_t i)
{
    while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r')) i++;
    return i;
}

/* In an object: the key and colon at i. Returns the index of the value, 0 if malformed. */
EBI_FN size_t ebi_json_key(const unsigned char *s, size_t n, size_t i)
{
    i = ebi_json_space(s, n, i);
    if (i >= n || s[i] != '"') return 0;
    i = ebi_json_string(s, n, i);
    if (i == 0) return 0;
    i = ebi_json_space(s, n, i);
    if (i >= n || s[i] != ':') return 0;
    return i + 1;
}

/* 1 if the n bytes at text are one RFC 8259 value in UTF-8, nested at most EBI_DEPTH_MAX deep.
** A loop with one bit per open bracket, so no input can exhaust the stack. */
EBI_FN int ebi_json_valid(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char is_object[EBI_DEPTH_MAX];
    size_t i = 0, depth = 0;
    for (;;) { /* a value is expected at i */
        i = ebi_json_space(s, n, i);
        if (i >= n) return 0;
        if (s[i] == '[' || s[i] == '{') {
            if (depth == EBI_DEPTH_MAX) return 0;
            is_object[depth] = s[i] == '{';
            i = ebi_json_space(s, n, i + 1);
            if (i >= n) return 0;
            if (s[i] != (is_object[depth] ? '}' : ']')) {
                if (is_object[depth] && (i = ebi_json_key(s, n, i)) == 0) return 0;
                depth++;
                continue;
            }
            i++;
        } else if ((i = ebi_json_scalar(s, n, i)) == 0) {
            return 0;
        }
        for (;;) { /* a value just ended at i */
            i = ebi_json_space(s, n, i);
            if (depth == 0) return i == n;
            if (i >= n) return 0;
            if (s[i] == (is_object[depth - 1] ? '}' : ']')) {
                depth--;
                i++;
                continue;
            }
            if (s[i] != ',') return 0;
            i++;
            if (is_object[depth - 1] && (i = ebi_json_key(s, n, i)) == 0) return 0;
            break;
        }
    }
}

/* 1 if text is a JSON object whose values are all strings. */
EBI_FN int ebi_json_string_map(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = strlen(text), i = ebi_json_space(s, n, 0);
    if (i >= n || s[i] != '{') return 0;
    i = ebi_json_space(s, n, i + 1);
    if (i < n && s[i] == '}') return ebi_json_space(s, n, i + 1) == n;
    for (;;) {
        i = ebi_json_key(s, n, i);
        if (i == 0) return 0;
        i = ebi_json_space(s, n, i);
        if (i >= n || s[i] != '"') return 0;
        i = ebi_json_string(s, n, i);
        if (i == 0) return 0;
        i = ebi_json_space(s, n, i);
        if (i >= n) return 0;
        if (s[i] == '}') return ebi_json_space(s, n, i + 1) == n;
        if (s[i++] != ',') return 0;
    }
}

/* Writes text into out (cap > 8), always terminated: control characters escaped, broken UTF-8
** replaced by '?', at most max bytes of text and what fits, cut at a character. json: escapes
** quotes and backslashes too. Returns the length written. */
EBI_FN size_t ebi_text_clean(char *out, size_t cap, const char *text, size_t max, int json)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)text;
    size_t n = strlen(text), i = 0, k = 0, step;
    EB_ASSERT(cap > 8);
    while (i < n && k + 7 < cap) {
        step = ebi_utf8_len(s + i, n - i);
        if (i + (step ? step : 1) > max) break;
        if (step == 0) {
            out[k++] = '?';
            i++;
        } else if (json && (s[i] == '"' || s[i] == '\\')) {
            out[k++] = '\\';
            out[k++] = (char)s[i++];
        } else if (s[i] == '\n') {
            out[k++] = '\\';
            out[k++] = 'n';
            i++;
        } else if (s[i] < 0x20 || s[i] == 0x7F) {
            memcpy(out + k, "\\u00", 4);
            out[k + 4] = hex[s[i] >> 4];
            out[k + 5] = hex[s[i] & 15];
            k += 6;
            i++;
        } else {
            memcpy(out + k, s + i, step);
            k += step;
            i += step;
        }
    }
    out[k] = 0;
    return k;
}

/* The same as a JSON string with its quotes. */
EBI_FN size_t ebi_json_quote(char *out, size_t cap, const char *text, size_t max)
{
    size_t k = 1 + ebi_text_clean(out + 1, cap - 2, text, max, 1);
    out[0] = '"';
    out[k++] = '"';
    out[k] = 0;
    return k;
}

#define EBI_TIME_LEN 24 /* 2026-11-18T05:32:10.123Z */

EBI_FN void ebi_time_digits(char *out, int width, int64_t value)
{
    while (width-- > 0) {
        out[width] = (char)('0' + (int)(value % 10));
        value /= 10;
    }
}

/* Milliseconds since 1970 as text, UTC; out has EBI_TIME_LEN + 1 bytes. Years 0 to 9999 sort as
** text as they do as numbers; anything outside is clamped. */
EBI_FN void ebi_time_text(int64_t ms, char *out)
{
    int64_t days, rest, era, doe, yoe, doy, mp, year, month, day;
    if (ms < INT64_C(-62167219200000)) ms = INT64_C(-62167219200000);
    if (ms > INT64_C(253402300799999)) ms = INT64_C(253402300799999);
    days = ms / EBI_DAY_MS;
    rest = ms % EBI_DAY_MS;
    if (rest < 0) {
        rest += EBI_DAY_MS;
        days--;
    }
    days += 719468; /* to 0000-03-01; then eras of 400 years, March first */
    era = (days >= 0 ? days : days - 146096) / 146097;
    doe = days - era * 146097;
    yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    mp = (5 * doy + 2) / 153;
    day = doy - (153 * mp + 2) / 5 + 1;
    month = mp < 10 ? mp + 3 : mp - 9;
    year = yoe + era * 400 + (month <= 2);
    memcpy(out, "0000-00-00T00:00:00.000Z", EBI_TIME_LEN + 1);
    ebi_time_digits(out, 4, year);
    ebi_time_digits(out + 5, 2, month);
    ebi_time_digits(out + 8, 2, day);
    ebi_time_digits(out + 11, 2, rest / 3600000);
    ebi_time_digits(out + 14, 2, rest / 60000 % 60);
    ebi_time_digits(out + 17, 2, rest / 1000 % 60);
    ebi_time_digits(out + 20, 3, rest % 1000);
}

EBI_FN int64_t ebi_time_number(const char *s, int width)
{
    int64_t value = 0;
    while (width-- > 0) value = value * 10 + (*s++ - '0');
    return value;
}

/* The reverse. 0 for text that is not of that form. */
EBI_FN int64_t ebi_time_parse(const char *s)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    int64_t year, month, day, era, yoe, doy, days;
    size_t i;
    if (!s) return 0;
    for (i = 0; i < EBI_TIME_LEN; i++)
        if (shape[i] == 'd' ? !ebi_is_digit((unsigned char)s[i]) : s[i] != shape[i]) return 0;
    year = ebi_time_number(s, 4);
    month = ebi_time_number(s + 5, 2);
    day = ebi_time_number(s + 8, 2);
    if (month <= 2) year--;
    era = (year >= 0 ? year : year - 399) / 400;
    yoe = year - era * 400;
    doy = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    days = era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
    return ((days * 24 + ebi_time_number(s + 11, 2)) * 60 + ebi_time_number(s + 14, 2)) * 60000 +
           ebi_time_number(s + 17, 2) * 1000 + ebi_time_number(s + 20, 3);
}

/* Ids. An event's id is a version 4 UUID whose low 62 bits are its sequence number under a keyed
** permutation, the other 60 free bits random. So an id finds its row by seq, without an index on
** random text (which halves batched throughput), and still says nothing to a stranger. The row's
** stored id is compared, so a forged id finds nothing.
** The permutation is a Feistel network over two halves of 31 bits: any round function gives one. */
#define EBI_HALF UINT64_C(0x7FFFFFFF)

EBI_FN uint64_t ebi_id_round(uint64_t half, uint64_t key)
{
    half = (half + key) * UINT64_C(0x9E3779B97F4A7C15);
    half ^= half >> 29;
    half = half * UINT64_C(0xBF58476D1CE4E5B9);
    return (half >> 32) & EBI_HALF;
}

EBI_FN uint64_t ebi_id_key(const uint64_t key[2], int round)
{
    return key[round & 1] ^ ((uint64_t)(round + 1) * UINT64_C(0xD6E8FEB86659FD93));
}

EBI_FN uint64_t ebi_id_permute(const uint64_t key[2], uint64_t value)
{
    uint64_t left = (value >> 31) & EBI_HALF, right = value & EBI_HALF, next;
    int round;
    for (round = 0; round < 6; round++) {
        next = left ^ ebi_id_round(right, ebi_id_key(key, round));
        left = right;
        right = next;
    }
    return (left << 31) | right;
}

EBI_FN uint64_t ebi_id_unpermute(const uint64_t key[2], uint64_t value)
{
    uint64_t left = (value >> 31) & EBI_HALF, right = value & EBI_HALF, prev;
    int round;
    for (round = 5; round >= 0; round--) {
        prev = right ^ ebi_id_round(left, ebi_id_key(key, round));
        right = left;
        left = prev;
    }
    return (left << 31) | right;
}

/* UUID text from 60 random bits and 62 low bits. */
EBI_FN void ebi_id_format(uint64_t high, uint64_t low, eb_id *id)
{
    static const char hex[] = "0123456789abcdef";
    uint64_t half[2];
    int i, k = 0;
    half[0] = (high & ~UINT64_C(0xF000)) | UINT64_C(0x4000);
    half[1] = (low & UINT64_C(0x3FFFFFFFFFFFFFFF)) | UINT64_C(0x8000000000000000);
    for (i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20) id->str[k++] = '-';
        id->str[k++] = hex[(half[i / 16] >> (60 - 4 * (i % 16))) & 15];
    }
    id->str[k] = 0;
}

EBI_FN void ebi_id_random(eb_id *id)
{
    uint64_t bits[2];
    sqlite3_randomness((int)sizeof bits, bits);
    ebi_id_format(bits[0], bits[1], id);
}

EBI_FN void ebi_id_make(const uint64_t key[2], int64_t seq, eb_id *id)
{
    uint64_t bits;
    sqlite3_randomness((int)sizeof bits, &bits);
    ebi_id_format(bits, ebi_id_permute(key, (uint64_t)seq), id);
}

/* The sequence number inside id, 0 for text that is no id of ours. */
EBI_FN int64_t ebi_id_seq(const uint64_t key[2], const char *id)
{
    uint64_t half[2] = {0, 0};
    int i, k = 0;
    for (i = 0; i < 36; i++) {
        char c = id[i];
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (c != '-') return 0;
            continue;
        }
        if (!ebi_is_hex((unsigned char)c) || (c >= 'A' && c <= 'F')) return 0;
        half[k / 16] = (half[k / 16] << 4) | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        k++;
    }
    if (id[36] != 0 || (half[0] & 0xF000) != 0x4000 || half[1] >> 62 != 2) return 0;
    return (int64_t)ebi_id_unpermute(key, half[1] & UINT64_C(0x3FFFFFFFFFFFFFFF));
}

/* ===========================================================================
** >>glob   The one pattern language                                 [private]
** ======================================================================== */

/* Two pointers and one point to return to: after a failure only the last star can help, so this is
** O(n * m) at worst and linear in practice, without recursion. */
EBI_FN int ebi_glob(const char *pattern, const char *type)
{
    const char *star = NULL, *resume = NULL;
    while (*type) {
        if (*pattern == '*') {
            star = ++pattern;
            resume = type;
        } else if (*pattern == *type) {
            pattern++;
            type++;
        } else if (star) {
            pattern = star;
            type = ++resume;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

/* ===========================================================================
** >>results   Texts, and the calling thread's last error            [private]
** ======================================================================== */

static EBI_THREAD_LOCAL char ebi_error_text[512];

/* Remembers why a call on this thread fails, and passes the result through:
** `return ebi_error(EB_ERR_ARG, "...")`. */
EBI_FN eb_result ebi_error(eb_result result, const char *fmt, ...) EB_PRINTF(2, 3);
EBI_FN eb_result ebi_error(eb_result result, const char *fmt, ...)
{
    va_list args;
    EB_ASSERT(result < 0);
    va_start(args, fmt);
    vsnprintf(ebi_error_text, sizeof ebi_error_text, fmt, args);
    va_end(args);
    ebi_error_text[ebi_utf8_cut(ebi_error_text, strlen(ebi_error_text))] = 0;
    return result;
}

/* ===========================================================================
** >>sql   Every statement, in one list                              [private]
** ========================================================================
** '@' stands for the namespace prefix. Prepared once per connection, when first used. The hot path
** (the first two groups) uses no view, trigger, JSON or date function, so a small SQLite suffices.
** test_plans.c asks the query planner about each of them: none scans event_log, finished or
** dead_letters, unless its name is in that test's list of the few that must. */

/* Appends the JSON string ?9 to the error list of d. */
#define EBI_SQL_ERRORS                                                                             \
    "CASE WHEN d.errors IS NULL THEN '['||?9||']'"                                                 \
    " ELSE substr(d.errors,1,length(d.errors)-1)||','||?9||']' END"

/* What the engine wants to know of a live event; see ebi_entry_load(). */
#define EBI_SQL_LOAD                                                                               \
    "SELECT d.seq,d.failed,d.suspect,d.born,d.retried_at,d.snoozes,l.created_at,l.id,l.type,"     \
    "l.payload,l.metadata,l.ordering_key,l.idempotency_key,l.producer,d.errors"                    \
    " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq "

/* The first event that waits behind live event seq because of its ordering key. */
#define EBI_SQL_KEY_NEXT_OF(seq)                                                                   \
    "(SELECT min(n.seq) FROM @deliveries AS o JOIN @deliveries AS n"                               \
    " ON n.ordering_key=o.ordering_key WHERE o.seq=" seq " AND n.seq>o.seq"                        \
    " AND n.status='pending' AND n.due_ms IS NULL)"

/* One event for the inspector; see ebi_list_add(). */
#define EBI_SQL_LIST_LOG                                                                           \
    "SELECT l.seq,CASE WHEN d.seq IS NOT NULL THEN d.status WHEN f.seq IS NOT NULL THEN 'done'"    \
    " WHEN x.seq IS NOT NULL THEN 'dlq' ELSE 'done' END,"                                          \
    "coalesce(d.failed,max(f.attempts-1,0),x.failed,0),l.created_at,"                              \
    "coalesce(d.updated_at,f.finished_at,x.died_at,l.created_at),x.died_at,l.id,l.type,l.payload," \
    "l.metadata,l.ordering_key,l.idempotency_key,l.producer,NULL,"                                 \
    "coalesce(d.errors,f.errors,x.errors) FROM @event_log AS l"                                    \
    " LEFT JOIN @deliveries AS d ON d.seq=l.seq LEFT JOIN @finished AS f ON f.seq=l.seq"           \
    " LEFT JOIN @dead_letters AS x ON x.subscription='' AND x.seq=l.seq "
#define EBI_SQL_LIST_DEAD                                                                          \
    "SELECT x.seq,'dlq',x.failed,x.created_at,x.died_at,x.died_at,x.id,x.type,x.payload,"          \
    "x.metadata,x.ordering_key,x.idempotency_key,x.producer,nullif(x.subscription,''),x.errors"    \
    " FROM @dead_letters AS x "

/* The filters of eb_query over alias t: ?1 < seq <= ?2, ?3 pattern, ?4 from, ?5 to, ?9 id. */
#define EBI_SQL_FILTER(t)                                                                          \
    "WHERE " t ".seq>?1 AND " t ".seq<=?2 AND (?9 IS NULL OR " t ".id=?9)"                         \
    " AND (?3 IS NULL OR eb_match(?3," t ".type)) AND (?4 IS NULL OR " t ".created_at>=?4)"        \
    " AND (?5 IS NULL OR " t ".created_at<=?5)"
#define EBI_SQL_FILTER_DEAD EBI_SQL_FILTER("x") " AND (?8 IS NULL OR x.subscription=?8)"

#define EBI_SQL_LIST(X)                                                                            \
    /* transactions */                                                                             \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(DATA_VERSION, "PRAGMA data_version")                                                         \
    /* publish: rowid of the last log row, and appends */                                          \
    X(LAST_SEQ, "SELECT max((SELECT ifnull(max(seq),0) FROM @event_log),"                          \
                "(SELECT value FROM @meta WHERE key='seq_floor'))")                                \
    X(LOG_INSERT, "INSERT INTO @event_log(seq,id,type,payload,metadata,ordering_key,"              \
                  "idempotency_key,producer,deliver_at_ms,created_at)"                             \
                  " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)")                                       \
    X(LIVE_INSERT, "INSERT INTO @deliveries(seq,status,attempts,max_attempts,born,due_ms,owner,"   \
                   "token,ordering_key,updated_at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)")        \
    X(FINISH, "INSERT INTO @finished(seq,attempts,finished_at) VALUES(?1,?2,?3)")                  \
    X(KNOWN_KEY, "SELECT id FROM @event_log WHERE idempotency_key=?1") /* unique partial index */  \
    X(LIVE_COUNT, "SELECT count(*) FROM @deliveries")                                              \
    /* dispatch: by rowid, or by the partial index on due_ms */                                    \
    X(SCAN, EBI_SQL_LOAD "WHERE d.seq>?1 AND d.status='pending' AND d.due_ms IS NULL"              \
                         " ORDER BY d.seq LIMIT ?2")                                               \
    X(DUE, EBI_SQL_LOAD "WHERE d.due_ms<=?1 ORDER BY d.due_ms LIMIT ?2")                           \
    X(NEXT_DUE, "SELECT min(due_ms) FROM @deliveries WHERE due_ms IS NOT NULL")                    \
    X(CLAIM, "UPDATE @deliveries SET status='processing',attempts=failed+?3,token=?2,owner=?4,"    \
             "max_attempts=?5,due_ms=NULL,updated_at=?6 WHERE seq=?1 AND token IS NULL"            \
             " AND failed=?7 AND (status='pending' OR due_ms IS NOT NULL)")                        \
    X(COUNT_ATTEMPT, "UPDATE @deliveries SET attempts=failed+1 WHERE seq=?1")                      \
    X(KEY_ACTIVE, "SELECT 1 FROM @deliveries WHERE ordering_key=?1 AND seq<?2"                     \
                  " AND (token IS NOT NULL OR failed>0 OR suspect>0 OR snoozes>0 OR due_ms<=?3)"   \
                  " LIMIT 1")                                                                      \
    X(KEY_NEXT, "UPDATE @deliveries SET due_ms=?3 WHERE seq=(SELECT min(seq) FROM @deliveries"     \
                " WHERE ordering_key=?1 AND seq>?2 AND status='pending' AND due_ms IS NULL)")      \
    X(KEY_PASS, "UPDATE @deliveries SET due_ms=?2 WHERE seq=" EBI_SQL_KEY_NEXT_OF("?1"))           \
    X(PARK, "UPDATE @deliveries SET status='pending',due_ms=NULL WHERE seq=?1 AND token IS NULL")  \
    X(REVOKE, "UPDATE @deliveries SET token=NULL WHERE seq=?1")                                    \
    X(DELETE_LIVE, "DELETE FROM @deliveries WHERE seq=?1 AND token IS ?2")                         \
    X(FINISH_ERRORS, "INSERT INTO @finished(seq,attempts,errors,finished_at)"                      \
                     " SELECT seq,failed+1,errors,?3 FROM @deliveries WHERE seq=?1 AND token=?2")  \
    X(RETRY, "UPDATE @deliveries AS d SET status=?4,failed=failed+1,attempts=failed+1,"            \
             "errors=" EBI_SQL_ERRORS ",due_ms=?3,token=NULL,owner=NULL,suspect=suspect+?6,"       \
             "updated_at=?5 WHERE seq=?1 AND token IS ?2")                                         \
    X(DIE, "INSERT INTO @dead_letters(subscription,seq,id,type,payload,metadata,ordering_key,"     \
           "idempotency_key,producer,created_at,failed,errors,died_at,retried_at,retried_by)"      \
           " SELECT '',l.seq,l.id,l.type,l.payload,l.metadata,l.ordering_key,l.idempotency_key,"   \
           "l.producer,l.created_at,d.failed+1," EBI_SQL_ERRORS ",?3,d.retried_at,d.retried_by"    \
           " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq"                            \
           " WHERE d.seq=?1 AND d.token IS ?2")                                                    \
    X(SNOOZE, "UPDATE @deliveries SET status=CASE failed WHEN 0 THEN 'pending' ELSE 'processing'"  \
              " END,attempts=failed,snoozes=snoozes+?4,suspect=suspect+?6,due_ms=?3,token=NULL,"   \
              "owner=NULL,updated_at=?5 WHERE seq=?1 AND token IS ?2")                             \
    X(UNFINISHED, "SELECT 1 FROM @deliveries WHERE NOT (status='pending' AND due_ms IS NULL"       \
                  " AND seq<=?1) LIMIT 1")                                                         \
    X(STUCK, "SELECT d.seq,d.attempts,d.failed,d.max_attempts,d.token,l.id,l.type"                 \
             " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq WHERE d.seq>?1"           \
             " AND d.seq<=(SELECT value FROM @meta WHERE key='claimed_to')"                        \
             " AND d.status='processing' AND d.due_ms IS NULL AND d.lease_ms IS NULL"              \
             " ORDER BY d.seq LIMIT 256")                                                          \
    X(CLAIMED_TO, "UPDATE @meta SET value=max(value,?1) WHERE key='claimed_to'")                   \
    X(CLAIMS, "SELECT seq,token FROM @deliveries WHERE token IS NOT NULL ORDER BY seq")            \
    /* subscriptions: informational rows of unnamed ones */                                        \
    X(SUB_INSERT, "INSERT INTO @subscriptions(id,event_type,created_at) VALUES(?1,?2,?3)")         \
    X(SUB_DELETE, "DELETE FROM @subscriptions WHERE id=?1")                                        \
    X(SUB_CLEAR, "DELETE FROM @subscriptions WHERE name IS NULL")                                  \
    /* inspector */                                                                                \
    X(STATE, "SELECT l.id,(SELECT 1 FROM @deliveries WHERE seq=l.seq),"                            \
             "(SELECT 1 FROM @dead_letters WHERE subscription='' AND seq=l.seq)"                   \
             " FROM @event_log AS l WHERE l.seq=?1")                                               \
    X(GET, EBI_SQL_LIST_LOG "WHERE l.seq=?1 AND l.id=?2")                                          \
    X(LOG_READ, EBI_SQL_LIST_LOG EBI_SQL_FILTER("l") " ORDER BY l.seq LIMIT ?6 OFFSET ?7")         \
    X(LOG_COUNT, "SELECT count(*) FROM @event_log AS l " EBI_SQL_FILTER("l"))                      \
    X(DLQ_READ, EBI_SQL_LIST_DEAD EBI_SQL_FILTER_DEAD                                              \
      " ORDER BY x.created_at DESC,x.seq DESC LIMIT ?6 OFFSET ?7")                                 \
    X(DLQ_COUNT, "SELECT count(*) FROM @dead_letters AS x " EBI_SQL_FILTER_DEAD)                   \
    X(DLQ_COUNT_ALL, "SELECT count(*) FROM @dead_letters")                                         \
    X(DLQ_RETRY, "INSERT INTO @deliveries(seq,status,due_ms,ordering_key,retried_at,retried_by,"   \
                 "updated_at) SELECT seq,'pending',?2,ordering_key,?3,?4,?3 FROM @dead_letters"    \
                 " WHERE subscription='' AND seq=?1")                                              \
    X(DLQ_DELETE, "DELETE FROM @dead_letters WHERE subscription='' AND seq=?1")                    \
    X(DLQ_OLD, "SELECT seq FROM @dead_letters WHERE +subscription='' AND created_at<=?1"           \
               " ORDER BY created_at,seq LIMIT ?2")                                                \
    X(DLQ_OLD_DEAD, "SELECT seq FROM @dead_letters WHERE subscription='' AND seq>?3"               \
                    " AND died_at<=?1 ORDER BY seq LIMIT ?2")                                      \
    X(LOG_DELETE, "DELETE FROM @event_log WHERE seq=?1")                                           \
    X(META_GET, "SELECT value FROM @meta WHERE key=?1")                                            \
    X(META_REMOVED, "UPDATE @meta SET value=value+?1 WHERE key='removed'")                         \
    X(META_FLOOR, "UPDATE @meta SET value=max(value,?1) WHERE key='seq_floor'")                    \
    X(STATS_LIVE, "SELECT count(*),count(CASE WHEN status='pending' THEN 1 END)"                   \
                  " FROM @deliveries")                                                             \
    X(STATS_DEAD, "SELECT count(*) FROM @dead_letters WHERE subscription=''")                      \
    X(STATS_OLDEST, "SELECT l.created_at FROM @deliveries AS d JOIN @event_log AS l"               \
                    " ON l.seq=d.seq WHERE d.status='pending' ORDER BY d.seq LIMIT 1")             \
    X(PAGES, "PRAGMA page_count")                                                                  \
    X(PAGE_SIZE, "PRAGMA page_size")

#define EBI_SQL_ENUM(name, text) EBI_SQL_##name,
enum { EBI_SQL_LIST(EBI_SQL_ENUM) EBI_SQL_COUNT };
#undef EBI_SQL_ENUM
#define EBI_SQL_TEXT(name, text) text,
static const char *const ebi_sql_text[] = {EBI_SQL_LIST(EBI_SQL_TEXT) NULL};
#undef EBI_SQL_TEXT

/* ===========================================================================
** >>types   The store and its connection                            [private]
** ======================================================================== */

typedef struct ebi_db {
    sqlite3 *handle;
    sqlite3_stmt *stmts[EBI_SQL_COUNT];
    int level; /* EB_DURABLE_ that PRAGMA synchronous is set to */
    int levels_seen; /* a bit for each that was read back */
} ebi_db;

/* One piece of work for the writer; lives on the stack of the thread that wants it. */
typedef struct ebi_req {
    eb_result (*func)(eb_store *store, void *arg); /* inside the transaction; NULL: exclusive use */
    void (*after)(eb_store *store, void *arg, eb_result rc); /* lock held; NULL: none */
    void *arg;
    int level; /* durability this member needs */
    /* under store->lock */
    struct ebi_req *next;
    int state; /* EBI_REQ_... */
    eb_result rc;
    int waits; /* cond is in use: a lone publisher needs none */
    ebi_cond cond;
    char error[sizeof ebi_error_text]; /* why rc < 0, for the waiting thread's eb_errmsg() */
} ebi_req;
enum { EBI_REQ_QUEUED, EBI_REQ_LEAD, EBI_REQ_DONE };

struct eb_store {
    /* immutable after open */
    eb_bus *bus; /* whose own store this is, or NULL */
    eb_allocator allocator;
    eb_logger logger;
    eb_clock clock; /* now_ms NULL: the system's */
    int64_t pid, busy_timeout_ms;
    int durability, in_memory;
    char *path, *vfs, *node_id;
    char *file; /* path as SQLite made it absolute; NULL: in memory */
    char prefix[36];
    uint64_t id_key[2];
    int locks; /* of lock and read_lock, how many could be made */
    /* under lock */
    ebi_mutex lock;
    ebi_req *queue_head, *queue_tail;
    int leading; /* somebody uses `writer` */
    int crowd;   /* so many commits more are expected to be shared: see ebi_writer_lead() */
    int closed;  /* the bus was destroyed; a handler left behind may still call. Also read_lock */
    int64_t commits;
    /* whoever leads */
    ebi_db writer;
    int must_reopen;       /* a commit's fsync failed: this connection is not to be trusted */
    int must_checkpoint;   /* and until a TRUNCATE checkpoint succeeds, nothing is durable */
    int must_resync;       /* and then memory and file are compared */
    int moved;             /* the file has lost its name, when we last looked */
    int64_t data_version;
    int wal_frames;     /* in the WAL, by the last commit of ours */
    int wal_done;       /* of these, seen by the last checkpoint; also under lock */
    /* under read_lock; a second connection, so that looking never holds up publishing */
    ebi_mutex read_lock;
    ebi_db reader;
};

/* ===========================================================================
** >>memory   One allocator                                          [private]
** ======================================================================== */

EBI_FN void *ebi_default_resize(void *ptr, size_t size, void *user)
{
    (void)user;
    if (size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, size);
}

EBI_FN void *ebi_alloc(const eb_allocator *a, size_t size)
{
    EB_ASSERT(size > 0);
    return a->resize(NULL, size, a->user);
}
EBI_FN void ebi_free(const eb_allocator *a, void *ptr)
{
    if (ptr) a->resize(ptr, 0, a->user);
}

/* A copy of text, NULL for NULL. *ok turns 0 if memory ran out. */
EBI_FN char *ebi_strdup(const eb_allocator *a, const char *text, int *ok)
{
    size_t n;
    char *copy;
    if (!text) return NULL;
    n = strlen(text) + 1;
    copy = (char *)ebi_alloc(a, n);
    if (copy) memcpy(copy, text, n);
    else *ok = 0;
    return copy;
}

/* ===========================================================================
** >>clock   Wall time for rows, monotonic time for waits            [private]
** ======================================================================== */

EBI_FN int64_t ebi_now_ms(const eb_store *store)
{
    return store->clock.now_ms ? store->clock.now_ms(store->clock.user) : ebi_platform_now_ms();
}
EBI_FN int64_t ebi_mono_us(const eb_store *store)
{
    return store->clock.mono_ms ? store->clock.mono_ms(store->clock.user) * 1000
                                : ebi_platform_mono_us();
}
EBI_FN int64_t ebi_mono_ms(const eb_store *store) { return ebi_mono_us(store) / 1000; }
EBI_FN void ebi_sleep_ms(const eb_store *store, int64_t ms)
{
    if (ms <= 0) return;
    if (store->clock.sleep_ms) store->clock.sleep_ms(ms, store->clock.user);
    else ebi_platform_sleep_ms(ms);
}

/* a + b for b >= 0, without overflow. */
EBI_FN int64_t ebi_add(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

/* The wall time in delay_ms from now; the largest number is kept for "never". */
EBI_FN int64_t ebi_due(int64_t now_ms, int64_t delay_ms)
{
    int64_t due = ebi_add(now_ms, delay_ms);
    return due == INT64_MAX ? due - 1 : due;
}

/* ===========================================================================
** >>log   One structured entry at a time                            [private]
** ======================================================================== */

typedef struct ebi_line { /* written with one call, so that lines of two threads do not mix */
    char text[8192];
    size_t len;
} ebi_line;

EBI_FN void ebi_log_field(ebi_line *line, const char *name, const char *value)
{
    char quoted[1400];
    int n;
    if (!value) return;
    ebi_json_quote(quoted, sizeof quoted, value, EBI_ERROR_MAX);
    n = snprintf(line->text + line->len, sizeof line->text - line->len, ",\"%s\":%s", name, quoted);
    EB_ASSERT(n > 0 && line->len + (size_t)n < sizeof line->text);
    line->len += (size_t)n;
}

/* The default logger: one JSON line on stderr, from WARN up. */
EBI_FN void ebi_log_default(const eb_log_entry *e, void *user)
{
    static const char *const names[] = {"", "error", "warn", "info", "debug"};
    char when[EBI_TIME_LEN + 1], tail[120] = "";
    ebi_line line;
    (void)user;
    if (e->level > EB_LOG_WARN) return;
    ebi_time_text(e->time_ms, when);
    line.len = (size_t)snprintf(line.text, sizeof line.text, "{\"time\":\"%s\",\"level\":\"%s\"",
                                when, names[e->level & 3]);
    ebi_log_field(&line, "message", e->message);
    ebi_log_field(&line, "event_id", e->event_id);
    ebi_log_field(&line, "type", e->type);
    ebi_log_field(&line, "subscription", e->subscription);
    ebi_log_field(&line, "error", e->error);
    if (e->attempt > 0)
        snprintf(tail, sizeof tail, ",\"attempt\":%d,\"max_attempts\":%d,\"next_delay_ms\":%lld",
                 e->attempt, e->max_attempts, (long long)e->next_delay_ms);
    fprintf(stderr, "%s%s}\n", line.text, tail);
}

/* Called without any lock held: a logger may call back into the bus. */
EBI_FN void ebi_log(const eb_store *store, eb_log_entry *e)
{
    e->time_ms = ebi_now_ms(store);
    store->logger.func(e, store->logger.user);
}
EBI_FN void ebi_log_note(const eb_store *store, int level, const char *message, const char *error)
{
    eb_log_entry e;
    memset(&e, 0, sizeof e);
    e.level = level;
    e.message = message;
    e.error = error;
    e.next_delay_ms = -1;
    ebi_log(store, &e);
}

/* ===========================================================================
** >>db   Connections, statements, transactions                      [private]
** ========================================================================
** A connection is used by one thread at a time: the writer by whoever leads, the reader under
** read_lock. Statements are reset before a call ends, so that none holds a snapshot. */

/* What a failure's SQLite code means to our callers. */
EBI_FN eb_result ebi_db_result(int rc)
{
    EB_ASSERT(rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE);
    switch (rc & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: return EB_ERR_BUSY;
    case SQLITE_FULL: return EB_ERR_FULL;
    case SQLITE_NOMEM: return EB_ERR_NOMEM;
    case SQLITE_TOOBIG: return EB_ERR_TOO_BIG;
    case SQLITE_NOTADB: return EB_ERR_SCHEMA;
    case SQLITE_CORRUPT:
    case SQLITE_CONSTRAINT:
    case SQLITE_ERROR: return EB_ERR_CORRUPT; /* our SQL is right, so the file is not */
    default: return EB_ERR_IO;
    }
}

/* Result and message of the connection's last failure; rc is what the call returned. */
EBI_FN eb_result ebi_db_error(const ebi_db *db, int rc, const char *what)
{
    eb_result result = ebi_db_result(rc);
    int its = db->handle && ((sqlite3_errcode(db->handle) ^ rc) & 0xFF) == 0;
    return ebi_error(result, "%s: %s (SQLite %d)", what,
                     its ? sqlite3_errmsg(db->handle) : sqlite3_errstr(rc), rc);
}

/* Why a statement could not be prepared; never SQLITE_OK. */
EBI_FN int ebi_db_code(const ebi_db *db)
{
    int rc = db->handle ? sqlite3_extended_errcode(db->handle) : SQLITE_CANTOPEN;
    return rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_NOMEM : rc;
}

/* Copies sql into out, every @name as name, or with a namespace as "prefix_name": a namespace may
** begin with a digit or have a hyphen. cap is large enough for all of ours. */
EBI_FN void ebi_sql_expand(const char *sql, const char *prefix, char *out, size_t cap)
{
    size_t k = 0, n = strlen(prefix);
    while (*sql && k + n + 3 < cap) {
        if (*sql != '@') {
            out[k++] = *sql++;
            continue;
        }
        sql++;
        if (n > 0) out[k++] = '"';
        memcpy(out + k, prefix, n);
        k += n;
        while (((*sql >= 'a' && *sql <= 'z') || *sql == '_') && k + 2 < cap) out[k++] = *sql++;
        if (n > 0) out[k++] = '"';
    }
    EB_ASSERT(*sql == 0);
    out[k] = 0;
}

/* The cached statement, NULL if it cannot be prepared (the connection has the error). */
EBI_FN sqlite3_stmt *ebi_db_stmt(eb_store *store, ebi_db *db, int index)
{
    char sql[2600];
    EB_ASSERT(index >= 0 && index < EBI_SQL_COUNT);
    if (!db->stmts[index] && db->handle) {
        ebi_sql_expand(ebi_sql_text[index], store->prefix, sql, sizeof sql);
        sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &db->stmts[index], NULL);
    }
    return db->stmts[index];
}

/* Why there is no event in a row whose columns `first` to `first` + 2 are never NULL: the file is
** damaged, or there is no memory. */
EBI_FN int ebi_db_no_event(sqlite3_stmt *s, int first)
{
    int i;
    if (sqlite3_errcode(sqlite3_db_handle(s)) == SQLITE_NOMEM) return SQLITE_NOMEM;
    for (i = first; i < first + 3; i++)
        if (sqlite3_column_type(s, i) == SQLITE_NULL) return SQLITE_CORRUPT;
    return SQLITE_NOMEM;
}

/* Arguments are bound by these; NULL text is NULL. Nothing is copied: what is bound must live until
** the statement is run. */
EBI_FN void ebi_bind_text(sqlite3_stmt *s, int i, const char *text)
{
    if (text) sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
    else sqlite3_bind_null(s, i);
}

/* Runs a statement that returns no row. The result is SQLite's. */
EBI_FN int ebi_db_step(sqlite3_stmt *s)
{
    int rc;
    if (!s) return SQLITE_NOMEM;
    rc = sqlite3_step(s);
    sqlite3_reset(s);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}
EBI_FN int ebi_db_run(eb_store *store, ebi_db *db, int index)
{
    sqlite3_stmt *s = ebi_db_stmt(store, db, index);
    if (!s) return ebi_db_code(db);
    return ebi_db_step(s);
}

/* The first column of the first row as a number; *value is 0 if there is no row or it is NULL. */
EBI_FN int ebi_db_number(eb_store *store, ebi_db *db, int index, int64_t *value)
{
    sqlite3_stmt *s = ebi_db_stmt(store, db, index);
    int rc;
    *value = 0;
    if (!s) return ebi_db_code(db);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *value = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

EBI_FN int ebi_db_exec(ebi_db *db, const char *sql)
{
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
}

/* Sets a pragma and reads it back: SQLite ignores what it does not know or cannot do. */
EBI_FN eb_result ebi_db_pragma(ebi_db *db, const char *name, const char *set, const char *want)
{
    char sql[80];
    sqlite3_stmt *s = NULL;
    const char *got;
    int rc;
    snprintf(sql, sizeof sql, "PRAGMA %s=%s", name, set);
    rc = ebi_db_exec(db, sql);
    if (rc != SQLITE_OK) return ebi_db_error(db, rc, sql);
    snprintf(sql, sizeof sql, "PRAGMA %s", name);
    rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    got = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (got && strcmp(got, want) == 0) rc = SQLITE_OK;
    else if (rc == SQLITE_ROW) rc = got ? SQLITE_MISUSE : SQLITE_NOMEM;
    sqlite3_finalize(s);
    if (rc == SQLITE_OK) return EB_OK;
    if (rc == SQLITE_MISUSE) return ebi_error(EB_ERR_IO, "PRAGMA %s did not become %s", name, want);
    return ebi_db_error(db, rc == SQLITE_DONE ? SQLITE_ERROR : rc, sql);
}

/* Sets PRAGMA synchronous to a durability level, if it is not there yet; not in a transaction. */
EBI_FN eb_result ebi_db_level(ebi_db *db, int level)
{
    static const char *const name[] = {"", "FULL", "NORMAL", "OFF"};
    static const char *const number[] = {"", "2", "1", "0"};
    static const char *const set[] = {"", "PRAGMA synchronous=FULL", "PRAGMA synchronous=NORMAL",
                                      "PRAGMA synchronous=OFF"};
    eb_result rc = EB_OK;
    int code;
    EB_ASSERT(level >= EB_DURABLE_FULL && level <= EB_DURABLE_OFF);
    if (db->level == level) return EB_OK;
    if (db->levels_seen & (1 << level)) { /* it works here: every ack and publish may switch */
        code = ebi_db_exec(db, set[level]);
        if (code != SQLITE_OK) rc = ebi_db_error(db, code, set[level]);
    } else {
        rc = ebi_db_pragma(db, "synchronous", name[level], number[level]);
        if (rc == EB_OK) db->levels_seen |= 1 << level;
    }
    db->level = rc == EB_OK ? level : 0;
    return rc;
}

/* Waits for another process's lock with our own clock, at most busy_timeout_ms. */
EBI_FN int ebi_db_busy(void *arg, int count)
{
    const eb_store *store = (const eb_store *)arg;
    int64_t waited = count < 6 ? count : count < 20 ? (count - 6) * 5 + 6 : (count - 20) * 20 + 76;
    if (waited >= store->busy_timeout_ms) return 0;
    ebi_sleep_ms(store, count < 6 ? 1 : count < 20 ? 5 : 20);
    return 1;
}

/* eb_match as an SQL function of our own connections. */
EBI_FN void ebi_db_match(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    const char *pattern = (const char *)sqlite3_value_text(argv[0]);
    const char *type = (const char *)sqlite3_value_text(argv[1]);
    (void)argc;
    sqlite3_result_int(context, pattern && type && ebi_glob(pattern, type));
}

EBI_FN void ebi_db_close(ebi_db *db)
{
    int i;
    for (i = 0; i < EBI_SQL_COUNT; i++) {
        sqlite3_finalize(db->stmts[i]);
        db->stmts[i] = NULL;
    }
    sqlite3_close_v2(db->handle);
    db->handle = NULL;
    db->level = db->levels_seen = 0;
}

/* Opens a connection with the settings that change nothing in the file. */
EBI_FN eb_result ebi_db_open(eb_store *store, ebi_db *db, int flags)
{
    int rc = sqlite3_open_v2(store->path, &db->handle,
                             flags | SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, store->vfs);
    eb_result result = EB_OK;
    EB_ASSERT(db->level == 0);
    if (rc != SQLITE_OK) result = ebi_db_error(db, rc, store->path);
    if (result == EB_OK) {
        sqlite3_extended_result_codes(db->handle, 1);
        sqlite3_busy_handler(db->handle, ebi_db_busy, store);
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        rc = sqlite3_create_function_v2(db->handle, "eb_match", 2,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
                                        NULL, ebi_db_match, NULL, NULL, NULL);
        if (rc != SQLITE_OK) result = ebi_db_error(db, rc, "eb_match");
    }
    if (result == EB_OK) result = ebi_db_pragma(db, "cell_size_check", "1", "1");
    if (result == EB_OK && (!ebi_db_stmt(store, db, EBI_SQL_BEGIN) ||
                            !ebi_db_stmt(store, db, EBI_SQL_COMMIT) ||
                            !ebi_db_stmt(store, db, EBI_SQL_ROLLBACK))) /* must not need memory */
        result = ebi_db_error(db, ebi_db_code(db), store->path);
    if (result != EB_OK) ebi_db_close(db);
    return result;
}

/* SQLite tells the length of the WAL after each commit. This takes the place of its own automatic
** checkpoint, which would make a publisher wait for two fsyncs: see ebi_writer_checkpoint(). */
EBI_FN int ebi_db_wal_hook(void *arg, sqlite3 *handle, const char *name, int frames)
{
    eb_store *store = (eb_store *)arg;
    (void)handle;
    (void)name;
    store->wal_frames = frames;
    return SQLITE_OK;
}

/* The switch to WAL can be refused while another process opens the same new file, whatever the busy
** handler says: try until the busy timeout. A database in memory stays as it is. */
EBI_FN eb_result ebi_db_wal(eb_store *store, ebi_db *db)
{
    int64_t start = ebi_mono_ms(store);
    eb_result rc;
    if (store->in_memory) return EB_OK;
    for (;;) {
        rc = ebi_db_pragma(db, "journal_mode", "WAL", "wal");
        if (rc != EB_ERR_BUSY || ebi_mono_ms(store) - start >= store->busy_timeout_ms) break;
        ebi_sleep_ms(store, 5);
    }
    if (rc == EB_OK) rc = ebi_db_pragma(db, "journal_size_limit", "33554432", "33554432");
    if (rc == EB_OK) sqlite3_wal_hook(db->handle, ebi_db_wal_hook, store);
#if defined(__APPLE__)
    if (rc == EB_OK) rc = ebi_db_pragma(db, "fullfsync", "1", "1");
#endif
    return rc;
}

/* Ends a failed transaction. SQLite may have rolled it back already, and then must not be asked. */
EBI_FN int ebi_db_rollback(eb_store *store, ebi_db *db)
{
    if (!db->handle || sqlite3_get_autocommit(db->handle)) return SQLITE_OK;
    return ebi_db_run(store, db, EBI_SQL_ROLLBACK);
}

/* Whether the file was renamed or deleted under us; 0 if the VFS cannot tell. One system call. */
EBI_FN int ebi_db_moved(const ebi_db *db)
{
    int moved = 0;
    if (sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK)
        return 0;
    return moved;
}

/* Size of the WAL file, through SQLite's own handle; 0 if there is none. */
EBI_FN int64_t ebi_db_wal_bytes(ebi_db *db)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
    if (!file || !file->pMethods || file->pMethods->xFileSize(file, &size) != SQLITE_OK) return 0;
    return size;
}

/* ===========================================================================
** >>schema   Tables, their version, and whose file it is            [private]
** ========================================================================
** Everything is decided before anything is changed: a file with none of our names gets them all in
** one transaction; one whose meta table says it is ours and of a known version is migrated forward
** in one transaction; anything else is refused untouched.
**
** Why three tables for one life: event_log is only appended to, deliveries holds live rows only and
** so stays small and hot, finished is only appended to. One wide table with an index on status
** costs half the throughput and decays as it grows (bench/). */

#define EBI_SQL_NOW "strftime('%Y-%m-%dT%H:%M:%fZ','now')"
#define EBI_SQL_NOW_MS "CAST(round((julianday('now')-2440587.5)*86400000) AS INTEGER)"

static const char *const ebi_schema_v1[] = {
    "CREATE TABLE @meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE @event_log(seq INTEGER PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL,"
    " payload TEXT NOT NULL, metadata TEXT, ordering_key TEXT, idempotency_key TEXT,"
    " producer TEXT, deliver_at_ms INTEGER, created_at TEXT NOT NULL)",
    "CREATE UNIQUE INDEX @event_log_key ON @event_log(idempotency_key)"
    " WHERE idempotency_key IS NOT NULL",
    "CREATE TABLE @deliveries(seq INTEGER PRIMARY KEY, status TEXT NOT NULL,"
    " attempts INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,"
    " max_attempts INTEGER, suspect INTEGER NOT NULL DEFAULT 0,"
    " snoozes INTEGER NOT NULL DEFAULT 0, born INTEGER, due_ms INTEGER, lease_ms INTEGER,"
    " owner TEXT, token INTEGER, errors TEXT, ordering_key TEXT, retried_at TEXT,"
    " retried_by TEXT, updated_at TEXT)",
    "CREATE INDEX @deliveries_due ON @deliveries(due_ms) WHERE due_ms IS NOT NULL",
    "CREATE INDEX @deliveries_key ON @deliveries(ordering_key,seq) WHERE ordering_key IS NOT NULL",
    "CREATE TABLE @finished(seq INTEGER PRIMARY KEY, attempts INTEGER NOT NULL, errors TEXT,"
    " finished_at TEXT NOT NULL)",
    "CREATE TABLE @dead_letters(subscription TEXT NOT NULL, seq INTEGER NOT NULL,"
    " id TEXT NOT NULL, type TEXT NOT NULL, payload TEXT NOT NULL, metadata TEXT,"
    " ordering_key TEXT, idempotency_key TEXT, producer TEXT, created_at TEXT NOT NULL,"
    " failed INTEGER NOT NULL, errors TEXT, died_at TEXT NOT NULL, options TEXT,"
    " retried_at TEXT, retried_by TEXT, PRIMARY KEY(subscription,seq))",
    "CREATE INDEX @dead_letters_created ON @dead_letters(created_at,seq)",
    "CREATE TABLE @subscriptions(id TEXT PRIMARY KEY, event_type TEXT NOT NULL,"
    " created_at TEXT NOT NULL, name TEXT UNIQUE, checkpoint INTEGER, options TEXT)",
    "CREATE TABLE @schedules(name TEXT PRIMARY KEY, cron TEXT NOT NULL, timezone TEXT,"
    " type TEXT NOT NULL, payload TEXT, metadata TEXT, misfire INTEGER NOT NULL DEFAULT 0,"
    " misfire_max INTEGER NOT NULL DEFAULT 0, paused INTEGER NOT NULL DEFAULT 0,"
    " next_ms INTEGER, updated_at TEXT NOT NULL)",
    "CREATE TABLE @nodes(id TEXT PRIMARY KEY, name TEXT, pid INTEGER,"
    " registered_at TEXT NOT NULL, last_heartbeat TEXT NOT NULL)",
    "CREATE VIEW @events AS"
    " SELECT l.id AS id,l.type AS type,l.payload AS payload,d.status AS status,"
    "d.failed AS retry_count,d.errors AS last_error,l.metadata AS metadata,"
    "l.created_at AS created_at,coalesce(d.updated_at,l.created_at) AS updated_at,l.seq AS seq"
    " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq"
    " UNION ALL SELECT l.id,l.type,l.payload,'done',max(f.attempts-1,0),f.errors,l.metadata,"
    "l.created_at,f.finished_at,l.seq FROM @finished AS f JOIN @event_log AS l ON l.seq=f.seq"
    " UNION ALL SELECT id,type,payload,'dlq',failed,errors,metadata,created_at,died_at,seq"
    " FROM @dead_letters WHERE subscription=''",
    /* What an operator may do with UPDATE events SET status = ... */
    "CREATE TRIGGER @events_update INSTEAD OF UPDATE ON @events BEGIN"
    " SELECT CASE WHEN new.id IS NOT old.id OR new.seq IS NOT old.seq OR new.type IS NOT old.type"
    " OR new.payload IS NOT old.payload OR new.metadata IS NOT old.metadata"
    " OR new.retry_count IS NOT old.retry_count OR new.last_error IS NOT old.last_error"
    " OR new.created_at IS NOT old.created_at OR new.updated_at IS NOT old.updated_at"
    " THEN RAISE(ABORT,'only status can be updated; publish with eb_send()')"
    " WHEN old.status||'>'||ifnull(new.status,'') NOT IN ('dlq>pending','done>pending',"
    "'processing>pending','pending>processing','pending>dlq','processing>dlq',"
    "'pending>pending','processing>processing','done>done','dlq>dlq')"
    " THEN RAISE(ABORT,'no such change of status; see eb_dlq_retry() and eb_dlq_move()') END;"
    " INSERT INTO @deliveries(seq,status,due_ms,ordering_key,retried_at,retried_by,updated_at)"
    " SELECT seq,'pending'," EBI_SQL_NOW_MS ",ordering_key," EBI_SQL_NOW ",'operator'," EBI_SQL_NOW
    " FROM @event_log WHERE seq=old.seq AND old.status IN ('dlq','done')"
    " AND new.status='pending';"
    " DELETE FROM @dead_letters WHERE subscription='' AND seq=old.seq AND old.status='dlq'"
    " AND new.status='pending';"
    " DELETE FROM @finished WHERE seq=old.seq AND old.status='done' AND new.status='pending';"
    " UPDATE @deliveries SET status='pending',attempts=failed,token=NULL,owner=NULL,lease_ms=NULL,"
    "due_ms=" EBI_SQL_NOW_MS ",updated_at=" EBI_SQL_NOW
    " WHERE seq=old.seq AND old.status='processing' AND new.status='pending';"
    " UPDATE @deliveries SET status='processing',attempts=failed+1,token=NULL,owner=NULL,"
    "due_ms=NULL,updated_at=" EBI_SQL_NOW
    " WHERE seq=old.seq AND old.status='pending' AND new.status='processing';"
    " UPDATE @meta SET value=max(value,old.seq) WHERE key='claimed_to'"
    " AND old.status='pending' AND new.status='processing';"
    " INSERT INTO @dead_letters(subscription,seq,id,type,payload,metadata,ordering_key,"
    "idempotency_key,producer,created_at,failed,errors,died_at,retried_at,retried_by)"
    " SELECT '',l.seq,l.id,l.type,l.payload,l.metadata,l.ordering_key,l.idempotency_key,"
    "l.producer,l.created_at,d.failed+1,CASE WHEN d.errors IS NULL THEN '[\"moved by operator\"]'"
    " ELSE substr(d.errors,1,length(d.errors)-1)||',\"moved by operator\"]' END," EBI_SQL_NOW
    ",d.retried_at,d.retried_by FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq"
    " WHERE d.seq=old.seq AND old.status IN ('pending','processing') AND new.status='dlq';"
    " UPDATE @deliveries SET due_ms=" EBI_SQL_NOW_MS " WHERE new.status='dlq'"
    " AND seq=" EBI_SQL_KEY_NEXT_OF("old.seq") ";"
    " DELETE FROM @deliveries WHERE seq=old.seq AND old.status IN ('pending','processing')"
    " AND new.status='dlq';"
    " END",
    "CREATE TRIGGER @events_insert INSTEAD OF INSERT ON @events BEGIN"
    " SELECT RAISE(ABORT,'publish events with eb_post() or eb_send()'); END",
    "CREATE TRIGGER @events_delete INSTEAD OF DELETE ON @events BEGIN"
    " SELECT RAISE(ABORT,'remove dead letters with eb_dlq_purge()'); END",
    NULL};

/* A test may add a step, to see a file of version 1 migrated. */
#ifdef EBI_SCHEMA_TEST_STEP
static const char *const ebi_schema_v2[] = {EBI_SCHEMA_TEST_STEP, NULL};
static const char *const *const ebi_schema_steps[] = {ebi_schema_v1, ebi_schema_v2};
#else
static const char *const *const ebi_schema_steps[] = {ebi_schema_v1};
#endif
#define EBI_SCHEMA_LATEST ((int)(sizeof ebi_schema_steps / sizeof *ebi_schema_steps))

/* Names that step 1 creates, to be looked for in sqlite_schema. */
static const char *const ebi_schema_names[] = {
    "meta",           "event_log",        "event_log_key", "deliveries",
    "deliveries_due", "deliveries_key",   "finished",      "dead_letters",
    "subscriptions",  "dead_letters_created", "schedules", "nodes",
    "events",         "events_update",    "events_insert", "events_delete"};
#define EBI_SCHEMA_NAMES ((int)(sizeof ebi_schema_names / sizeof *ebi_schema_names))

/* One row of meta. SQLITE_OK with *value 0 if there is none; an error if that is not our table. */
EBI_FN int ebi_schema_meta(eb_store *store, ebi_db *db, const char *key, int64_t *value)
{
    sqlite3_stmt *s = ebi_db_stmt(store, db, EBI_SQL_META_GET);
    if (!s) return ebi_db_code(db);
    ebi_bind_text(s, 1, key);
    return ebi_db_number(store, db, EBI_SQL_META_GET, value);
}

/* How many of our names are taken in the file: *found; some table of ours under a foreign kind
** makes no difference. */
EBI_FN eb_result ebi_schema_count(eb_store *store, ebi_db *db, int *found)
{
    sqlite3_stmt *s = NULL;
    char name[80];
    static const char sql[] = "SELECT 1 FROM sqlite_schema WHERE name=?1 COLLATE NOCASE";
    int i, rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    *found = 0;
    for (i = 0; i < EBI_SCHEMA_NAMES && rc == SQLITE_OK; i++) {
        snprintf(name, sizeof name, "%s%s", store->prefix, ebi_schema_names[i]);
        ebi_bind_text(s, 1, name);
        rc = sqlite3_step(s);
        *found += rc == SQLITE_ROW;
        sqlite3_reset(s);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(s);
    return rc == SQLITE_OK ? EB_OK : ebi_db_error(db, rc, store->path);
}

/* The version of the file's schema: 0 = none of it is there. EB_ERR_SCHEMA: not ours, or newer. */
EBI_FN eb_result ebi_schema_look(eb_store *store, ebi_db *db, int64_t *version)
{
    int found, rc;
    eb_result result = ebi_schema_count(store, db, &found);
    *version = 0;
    if (result != EB_OK || found == 0) return result;
    rc = ebi_schema_meta(store, db, "schema_version", version);
    if (rc != SQLITE_OK && (rc & 0xFF) != SQLITE_ERROR) return ebi_db_error(db, rc, store->path);
    if (rc != SQLITE_OK || *version < 1)
        return ebi_error(EB_ERR_SCHEMA,
                         "%s: a table, index or view named like ours (%smeta, %sevents, ...) is "
                         "somebody else's", store->path, store->prefix, store->prefix);
    if (*version > EBI_SCHEMA_LATEST)
        return ebi_error(EB_ERR_SCHEMA, "%s: schema version %d, this eventbus.h knows %d",
                         store->path, (int)*version, EBI_SCHEMA_LATEST);
    if (found != EBI_SCHEMA_NAMES)
        return ebi_error(EB_ERR_SCHEMA, "%s: only %d of %d tables, indexes, views and triggers",
                         store->path, found, EBI_SCHEMA_NAMES);
    return EB_OK;
}

EBI_FN int ebi_schema_exec(eb_store *store, ebi_db *db, const char *sql)
{
    char text[6000];
    EB_ASSERT(!sqlite3_get_autocommit(db->handle));
    ebi_sql_expand(sql, store->prefix, text, sizeof text);
    return ebi_db_exec(db, text);
}

/* First contact: the id key, the floor of sequence numbers, the registry of namespaces. */
EBI_FN int ebi_schema_seed(eb_store *store, ebi_db *db)
{
    char sql[400], when[EBI_TIME_LEN + 1];
    uint64_t key[2];
    int rc;
    sqlite3_randomness((int)sizeof key, key);
    ebi_time_text(ebi_now_ms(store), when);
    snprintf(sql, sizeof sql,
             "INSERT INTO @meta VALUES('application','eventbus.h'),('seq_floor',0),('removed',0),"
             "('claimed_to',0),('id_key_1',%lld),('id_key_2',%lld),('created_at','%s')",
             (long long)(key[0] >> 1), (long long)(key[1] >> 1), when);
    rc = ebi_schema_exec(store, db, sql);
    if (rc == SQLITE_OK)
        rc = ebi_db_exec(db, "CREATE TABLE IF NOT EXISTS namespaces(ns TEXT PRIMARY KEY,"
                             " created_at TEXT NOT NULL, metadata TEXT)");
    if (rc != SQLITE_OK) return rc;
    snprintf(sql, sizeof sql, "INSERT OR IGNORE INTO namespaces(ns,created_at) VALUES('%.*s','%s')",
             store->prefix[0] ? (int)strlen(store->prefix) - 1 : 0, store->prefix, when);
    return ebi_db_exec(db, sql);
}

/* Runs the steps after version in the open transaction. */
EBI_FN int ebi_schema_steps_from(eb_store *store, ebi_db *db, int64_t version)
{
    const char *const *sql;
    char text[120];
    int rc = SQLITE_OK, step;
    EB_ASSERT(version >= 0 && version < EBI_SCHEMA_LATEST);
    for (step = (int)version; step < EBI_SCHEMA_LATEST && rc == SQLITE_OK; step++)
        for (sql = ebi_schema_steps[step]; *sql && rc == SQLITE_OK; sql++)
            rc = ebi_schema_exec(store, db, *sql);
    if (rc == SQLITE_OK && version == 0) rc = ebi_schema_seed(store, db);
    snprintf(text, sizeof text, "INSERT OR REPLACE INTO @meta VALUES('schema_version',%d)",
             EBI_SCHEMA_LATEST);
    return rc == SQLITE_OK ? ebi_schema_exec(store, db, text) : rc;
}

/* Creates or migrates, in one transaction that looks again under the write lock: another process
** may have done it meanwhile. */
EBI_FN eb_result ebi_schema_write(eb_store *store, ebi_db *db)
{
    int64_t version;
    int rc = ebi_db_run(store, db, EBI_SQL_BEGIN);
    eb_result result;
    if (rc != SQLITE_OK) return ebi_db_error(db, rc, "creating the tables");
    result = ebi_schema_look(store, db, &version);
    if (result == EB_OK && version < EBI_SCHEMA_LATEST) {
        rc = ebi_schema_steps_from(store, db, version);
        if (rc == SQLITE_OK) rc = ebi_db_run(store, db, EBI_SQL_COMMIT);
        if (rc != SQLITE_OK) result = ebi_db_error(db, rc, "creating the tables");
        if ((rc & 0xFF) == SQLITE_ERROR) result = EB_ERR_SCHEMA; /* e.g. a foreign `namespaces` */
    }
    rc = ebi_db_rollback(store, db);
    if (result == EB_OK && rc != SQLITE_OK) result = ebi_db_error(db, rc, "creating the tables");
    return result;
}

/* SQLite fills the rest of a page that was cut off with zeros and takes a very short file for an
** empty one; we do not, unless there is a WAL to recover the page from. Another process may be
** extending the file: look again before judging. After a first read. */
EBI_FN eb_result ebi_schema_whole(eb_store *store, ebi_db *db)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    int64_t page = 0;
    int rc = ebi_db_number(store, db, EBI_SQL_PAGE_SIZE, &page), tries;
    if (rc == SQLITE_OK)
        rc = sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (rc != SQLITE_OK || page < 512 || !file || !file->pMethods) return EB_OK;
    if (ebi_db_wal_bytes(db) > 0) return EB_OK;
    for (tries = 0; tries < 4; tries++) {
        if (file->pMethods->xFileSize(file, &size) != SQLITE_OK || size % page == 0) return EB_OK;
        ebi_sleep_ms(store, 5);
    }
    return ebi_error(EB_ERR_CORRUPT, "%s: %lld bytes are not whole pages: cut off?", store->path,
                     (long long)size);
}

/* A WAL that somebody left behind may be in the kernel's cache only: its fsync may have failed. It
** is copied into the database and synced before anything is built upon it. Busy: somebody else uses
** the file right now, and then it is theirs, and good. */
EBI_FN eb_result ebi_schema_old_wal(eb_store *store, ebi_db *db)
{
    int rc;
    if (ebi_db_wal_bytes(db) == 0) return EB_OK;
    sqlite3_busy_handler(db->handle, NULL, NULL);
    rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_handler(db->handle, ebi_db_busy, store);
    if (rc == SQLITE_OK || (rc & 0xFF) == SQLITE_BUSY) return EB_OK;
    return ebi_db_error(db, rc, "checkpoint of the WAL found at open");
}

/* Looks, then switches to WAL, then creates or migrates; create = 0: the tables must be there. */
EBI_FN eb_result ebi_schema_open(eb_store *store, ebi_db *db, int create)
{
    int64_t version = 0, key[2] = {0, 0};
    int code;
    eb_result rc;
    code = ebi_db_exec(db, "BEGIN"); /* one snapshot: another process may be creating the tables */
    if (code != SQLITE_OK) return ebi_db_error(db, code, store->path);
    rc = ebi_schema_look(store, db, &version);
    code = ebi_db_rollback(store, db);
    if (rc == EB_OK && code != SQLITE_OK) rc = ebi_db_error(db, code, store->path);
    if (rc == EB_OK && !store->in_memory) rc = ebi_schema_whole(store, db);
    if (rc == EB_OK && version == 0 && !create)
        rc = ebi_error(EB_ERR_SCHEMA, "%s: there is no event bus in this file", store->path);
    if (rc != EB_OK) /* leave a refused file exactly as it was */
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == EB_OK) rc = ebi_db_wal(store, db);
    if (rc == EB_OK) rc = ebi_db_level(db, store->durability);
    if (rc == EB_OK && !store->in_memory) rc = ebi_schema_old_wal(store, db);
    if (rc == EB_OK && version < EBI_SCHEMA_LATEST) rc = ebi_schema_write(store, db);
    if (rc != EB_OK) return rc;
    code = ebi_schema_meta(store, db, "id_key_1", &key[0]);
    if (code == SQLITE_OK) code = ebi_schema_meta(store, db, "id_key_2", &key[1]);
    if (code != SQLITE_OK) return ebi_db_error(db, code, store->path);
    store->id_key[0] = (uint64_t)key[0];
    store->id_key[1] = (uint64_t)key[1];
    return EB_OK;
}

/* ===========================================================================
** >>store   Opening, closing, reading                               [private]
** ======================================================================== */

EBI_FN int ebi_is_memory(const char *path) { return strcmp(path, ":memory:") == 0; }

/* Checks the namespace and makes the prefix of it. */
EBI_FN eb_result ebi_store_prefix(eb_store *store, const char *ns)
{
    size_t i, n = ns ? strlen(ns) : 0;
    if (n > 32) return ebi_error(EB_ERR_ARG, "options.ns is longer than 32");
    for (i = 0; i < n; i++) {
        char c = ns[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
            return ebi_error(EB_ERR_ARG, "options.ns may have A-Z a-z 0-9 _ - only");
        store->prefix[i] = c;
    }
    if (n >= 6 && memcmp(store->prefix, "sqlite", 6) == 0)
        return ebi_error(EB_ERR_ARG, "options.ns must not begin with sqlite");
    if (n > 0) store->prefix[n++] = '_';
    store->prefix[n] = 0;
    return EB_OK;
}

/* Time limits: 0 = the default, EB_NONE = none. Any other negative number is a mistake. */
EBI_FN eb_result ebi_option_ms(const char *name, int64_t value, int64_t standard, int64_t none,
                               int64_t *out)
{
    if (value < EB_NONE)
        return ebi_error(EB_ERR_ARG, "%s: %lld is negative", name, (long long)value);
    *out = value == 0 ? standard : value == EB_NONE ? none : value;
    return EB_OK;
}

/* Everything in options that a store uses. */
EBI_FN eb_result ebi_store_options(eb_store *store, const eb_options *o)
{
    int ok = 1;
    char generated[9];
    uint32_t bits;
    eb_result rc = ebi_store_prefix(store, o->ns);
    if (rc == EB_OK)
        rc = ebi_option_ms("options.busy_timeout_ms", o->busy_timeout_ms, 5000, 0,
                           &store->busy_timeout_ms);
    if (rc != EB_OK) return rc;
    if (o->vfs && !sqlite3_vfs_find(o->vfs))
        return ebi_error(EB_ERR_ARG, "options.vfs: SQLite knows no VFS named %s", o->vfs);
    sqlite3_randomness((int)sizeof bits, &bits);
    snprintf(generated, sizeof generated, "%08lx", (unsigned long)bits);
    store->path = ebi_strdup(&store->allocator, o->path, &ok);
    store->vfs = ebi_strdup(&store->allocator, o->vfs, &ok);
    store->node_id = ebi_strdup(&store->allocator, o->node_id ? o->node_id : generated, &ok);
    return ok ? EB_OK : ebi_error(EB_ERR_NOMEM, "out of memory");
}

/* SQLite initialises itself when first used, but reads its flag without a lock. */
EBI_FN eb_result ebi_store_sqlite(void)
{
    static ebi_mutex lock = EBI_MUTEX_INIT;
    int rc;
    if (sqlite3_libversion_number() < 3051003 || sqlite3_libversion_number() == 3052000)
        return ebi_error(EB_ERR_SCHEMA, "SQLite %s is linked: it can corrupt a WAL database; use "
                         "3.53.4", sqlite3_libversion());
    ebi_mutex_lock(&lock);
    rc = sqlite3_initialize();
    ebi_mutex_unlock(&lock);
    return rc == SQLITE_OK ? EB_OK : ebi_error(EB_ERR_NOMEM, "SQLite cannot initialise");
}

/* An option struct that is fit to be read; fills in allocator and logger. */
EBI_FN eb_result ebi_store_basics(const eb_options *o, eb_allocator *allocator, eb_logger *logger)
{
    static const eb_allocator plain = {ebi_default_resize, NULL};
    static const eb_logger speaking = {ebi_log_default, NULL};
    *allocator = o && o->allocator.resize ? o->allocator : plain;
    *logger = o && o->logger.func ? o->logger : speaking;
    if (!o || !o->path || !o->path[0]) return ebi_error(EB_ERR_ARG, "options.path is missing");
    if (!o->clock.now_ms != !o->clock.mono_ms || !o->clock.now_ms != !o->clock.sleep_ms)
        return ebi_error(EB_ERR_ARG, "options.clock needs all three functions or none");
    return ebi_store_sqlite();
}

/* Opens the file. On failure the store is still to be given to ebi_store_fini(). */
EBI_FN eb_result ebi_store_init(eb_store *store, const eb_options *o, int create)
{
    eb_result rc;
    store->pid = ebi_platform_pid();
    store->clock = o->clock;
    if (!store->durability) store->durability = EB_DURABLE_FULL;
    if (ebi_mutex_init(&store->lock)) return ebi_error(EB_ERR_NOMEM, "cannot make a mutex");
    store->locks = 1;
    if (ebi_mutex_init(&store->read_lock)) return ebi_error(EB_ERR_NOMEM, "cannot make a mutex");
    store->locks = 2;
    rc = ebi_store_options(store, o);
    if (rc != EB_OK) return rc;
    store->in_memory = ebi_is_memory(store->path);
    if (create && !store->vfs && !store->in_memory) ebi_platform_create_private(store->path);
    rc = ebi_db_open(store, &store->writer, create ? SQLITE_OPEN_CREATE : 0);
    if (rc == EB_OK) rc = ebi_schema_open(store, &store->writer, create);
    if (rc == EB_OK && !store->in_memory) {
        int ok = 1;
        store->file = ebi_strdup(&store->allocator,
                                 sqlite3_db_filename(store->writer.handle, "main"), &ok);
        if (!ok) rc = ebi_error(EB_ERR_NOMEM, "out of memory");
    }
    if (rc == EB_OK) {
        int code = ebi_db_number(store, &store->writer, EBI_SQL_DATA_VERSION, &store->data_version);
        if (code != SQLITE_OK) rc = ebi_db_error(&store->writer, code, store->path);
    }
    return rc;
}

EBI_FN void ebi_store_fini(eb_store *store)
{
    ebi_db_close(&store->reader);
    ebi_db_close(&store->writer);
    ebi_free(&store->allocator, store->path);
    ebi_free(&store->allocator, store->vfs);
    ebi_free(&store->allocator, store->node_id);
    ebi_free(&store->allocator, store->file);
    if (store->locks > 0) ebi_mutex_fini(&store->lock);
    if (store->locks > 1) ebi_mutex_fini(&store->read_lock);
}

/* EB_ERR_FORK in a forked child, before any lock is touched: another thread may have held it. */
EBI_FN eb_result ebi_store_check(const eb_store *store)
{
    if (!store) return ebi_error(EB_ERR_ARG, "the handle is NULL");
    if (store->pid != ebi_platform_pid())
        return ebi_error(EB_ERR_FORK, "opened in process %lld", (long long)store->pid);
    return EB_OK;
}

/* ===========================================================================
** >>writer   One connection, many callers, one commit               [private]
** ========================================================================
** All writes of a process go through one connection. Whoever needs a commit joins a queue; the
** first becomes the leader and commits everything that is queued as one transaction: publishes,
** claims and acks alike. The others wait for that commit only. A lone publisher leads itself and
** pays no hand-over; many share one fsync.
**
** A member that fails makes the whole transaction roll back; the leader then gives each member a
** transaction of its own, so that only the guilty one fails. Members are therefore written so that
** they can run twice: memory changes in `after`, which runs once, under the lock, after the commit
** and before the next leader. PRAGMA synchronous is set before BEGIN to what the most demanding
** member asks. The lock is never held while SQLite works. */

EBI_FN void ebi_engine_outcomes_take(eb_store *store);
EBI_FN eb_result ebi_engine_outcomes_apply(eb_store *store);
EBI_FN void ebi_engine_outcomes_end(eb_store *store, eb_result rc);
EBI_FN eb_result ebi_engine_resync(eb_store *store);
EBI_FN int ebi_keeper_checkpoints(eb_store *store);
EBI_FN void ebi_engine_undone(eb_store *store);
EBI_FN ebi_cond *ebi_engine_wake(eb_store *store);

EBI_FN void ebi_req_init(ebi_req *r, eb_result (*func)(eb_store *, void *),
                         void (*after)(eb_store *, void *, eb_result), void *arg, int level)
{
    r->func = func;
    r->after = after;
    r->arg = arg;
    r->level = level;
    r->next = NULL;
    r->state = EBI_REQ_QUEUED;
    r->rc = EB_OK;
    r->waits = 0;
    r->error[0] = 0;
}

/* A failed member of a transaction: remembers the text for the thread that waits. */
EBI_FN void ebi_req_end(ebi_req *r, eb_result rc)
{
    r->rc = rc;
    if (rc < 0) memcpy(r->error, ebi_error_text, sizeof r->error);
}

/* Whether a COMMIT that failed with this code surely left nothing in the file. An I/O error leaves
** that open: the commit record may be there already, and a crash would bring it back. A full disk
** is clear: a record that is not whole has a wrong checksum. But where a sector is not safe from
** its neighbours, SQLite writes more after the record, and the room may have ended there. */
EBI_FN int ebi_writer_not_written(eb_store *store, int code)
{
    sqlite3_file *file = NULL;
    if ((code & 0xFF) == SQLITE_IOERR) return 0;
    if ((code & 0xFF) != SQLITE_FULL) return 1;
    sqlite3_file_control(store->writer.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    return store->in_memory || (file && file->pMethods &&
                                (file->pMethods->xDeviceCharacteristics(file) &
                                 SQLITE_IOCAP_POWERSAFE_OVERWRITE) != 0);
}

/* Result of a statement on the writer. */
EBI_FN eb_result ebi_writer_error(eb_store *store, int rc, const char *what)
{
    eb_result result = ebi_db_error(&store->writer, rc, what);
    if ((rc & 0xFF) == SQLITE_IOERR || (rc & 0xFF) == SQLITE_CORRUPT) store->must_reopen = 1;
    return result;
}

/* Runs a statement on the writer whose one parameter is a number; the result is SQLite's. */
EBI_FN int ebi_step_seq(eb_store *store, int index, int64_t seq)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, index);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    return ebi_db_step(s);
}

/* After a failed fsync the kernel may have dropped the pages and call the next fsync a success. So:
** close, open anew, and let a TRUNCATE checkpoint (which reads the WAL back and syncs the database)
** succeed before anything is called durable again. */
EBI_FN eb_result ebi_writer_renew(eb_store *store)
{
    eb_result rc = EB_OK;
    int code;
    EB_ASSERT(store->leading);
    if (store->in_memory) {
        ebi_db_rollback(store, &store->writer);
        store->must_reopen = 0;
    }
    if (store->must_reopen) {
        store->must_checkpoint = 1;
        ebi_db_close(&store->writer);
        rc = ebi_db_open(store, &store->writer, 0);
        if (rc == EB_OK) rc = ebi_db_wal(store, &store->writer);
        if (rc != EB_OK) {
            ebi_db_close(&store->writer);
            return rc;
        }
        store->must_reopen = 0;
    }
    if (!store->must_checkpoint) return EB_OK;
    rc = ebi_db_level(&store->writer, store->durability);
    if (rc != EB_OK) return rc;
    code = sqlite3_wal_checkpoint_v2(store->writer.handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                     NULL);
    if (code != SQLITE_OK) {
        ebi_db_error(&store->writer, code, "checkpoint after a failed sync");
        return (code & 0xFF) == SQLITE_BUSY ? EB_ERR_BUSY : EB_ERR_IO;
    }
    store->must_checkpoint = 0;
    return EB_OK;
}

/* The same if there is need; then the engine compares its memory with what is in the file. */
EBI_FN eb_result ebi_writer_ready(eb_store *store)
{
    eb_result rc = EB_OK;
    EB_ASSERT(store->leading);
    if (store->closed) return ebi_error(EB_ERR_SHUTDOWN, "the bus is closed");
    if (store->must_reopen || store->must_checkpoint) {
        store->must_resync = 1;
        rc = ebi_writer_renew(store);
    }
    if (rc == EB_OK && store->must_resync) {
        rc = ebi_engine_resync(store);
        if (rc == EB_OK) store->must_resync = 0;
    }
    return rc;
}

/* One transaction for the members of list (linked by next) and, if with_outcomes, what the engine
** has to record. Fills in each member's rc; returns the transaction's own. */
EBI_FN eb_result ebi_writer_transaction(eb_store *store, ebi_req *list, int level, int outcomes)
{
    ebi_req *r;
    int code;
    eb_result rc = EB_OK;
    EB_ASSERT(store->leading);
    EB_ASSERT(level >= EB_DURABLE_FULL && level <= EB_DURABLE_OFF);
    rc = ebi_writer_ready(store);
    if (rc == EB_OK) rc = ebi_db_level(&store->writer, level);
    if (rc != EB_OK) return rc;
    code = ebi_db_run(store, &store->writer, EBI_SQL_BEGIN);
    if (code != SQLITE_OK) return ebi_writer_error(store, code, "BEGIN");
    for (r = list; r && rc == EB_OK; r = r->next) {
        ebi_req_end(r, r->func(store, r->arg));
        /* A refusal before the first write (a full queue, not found) concerns its member only; a
        ** failure of SQLite ended the transaction or leaves half of a member in it. */
        if (r->rc == EB_ERR_BUSY || r->rc == EB_ERR_IO || r->rc == EB_ERR_CORRUPT ||
            r->rc == EB_ERR_NOMEM || r->rc == EB_ERR_TOO_BIG || r->rc == EB_ERR_SCHEMA ||
            (r->rc == EB_ERR_FULL && sqlite3_errcode(store->writer.handle) == SQLITE_FULL) ||
            (r->rc < 0 && sqlite3_get_autocommit(store->writer.handle)))
            rc = r->rc;
    }
    if (rc == EB_OK && outcomes) rc = ebi_engine_outcomes_apply(store);
    if (rc == EB_OK) {
        code = ebi_db_run(store, &store->writer, EBI_SQL_COMMIT);
        if (code != SQLITE_OK) {
            rc = ebi_writer_error(store, code, "COMMIT");
            if (!ebi_writer_not_written(store, code)) rc = EB_ERR_UNKNOWN;
        }
    }
    if (rc != EB_OK) {
        ebi_db_rollback(store, &store->writer);
        ebi_engine_undone(store);
    }
    if (!sqlite3_get_autocommit(store->writer.handle)) store->must_reopen = 1; /* closing does it */
    return rc;
}

/* Gives every member its own transaction: only the guilty fail. */
EBI_FN eb_result ebi_writer_one_by_one(eb_store *store, ebi_req *list, int outcomes)
{
    ebi_req *r, *rest;
    eb_result rc;
    EB_ASSERT(store->leading);
    for (r = list; r; r = rest) {
        rest = r->next;
        r->next = NULL;
        rc = ebi_writer_transaction(store, r, r->level, 0);
        if (rc != EB_OK) ebi_req_end(r, rc);
        r->next = rest;
    }
    return outcomes ? ebi_writer_transaction(store, NULL, EB_DURABLE_NORMAL, 1) : EB_OK;
}

/* Checkpoints. Every EB_WAL_PAGES pages the WAL is copied into the database, by the keeper on a
** connection of its own, so that nobody waits. That alone need not be enough: SQLite begins the WAL
** anew only if a writer finds all of it copied, and under load it never does. So when the WAL is
** four times as long, the leader itself copies the little that is left. Without a keeper it is
** always the leader. After the commit is acknowledged; the lead is kept, the lock is not. */
EBI_FN void ebi_writer_checkpoint(eb_store *store)
{
    sqlite3 *handle = store->writer.handle;
    int rc;
    EB_ASSERT(store->leading);
    rc = sqlite3_wal_checkpoint_v2(handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if ((rc & 0xFF) == SQLITE_IOERR) store->must_reopen = 1; /* what it read may not be on disk */
}

/* Whether that is due, and for whom. Lock held on entry and exit; by the leader. */
EBI_FN void ebi_writer_look_at_wal(eb_store *store)
{
    EB_ASSERT(store->leading);
    if (store->wal_frames < store->wal_done) store->wal_done = 0; /* it began anew */
    if (store->wal_frames - store->wal_done < EB_WAL_PAGES) return;
    if (store->wal_frames < 4 * EB_WAL_PAGES && ebi_keeper_checkpoints(store)) return;
    store->wal_done = store->wal_frames;
    ebi_mutex_unlock(&store->lock);
    ebi_writer_checkpoint(store);
    ebi_mutex_lock(&store->lock);
}

/* Leads: commits own and everything that waits. Lock held on entry and exit, not in between. */
EBI_FN void ebi_writer_lead(eb_store *store, ebi_req *own)
{
    ebi_req *r, *list = own, *last = own, *rest;
    int level = own->level, off = store->durability == EB_DURABLE_OFF;
    eb_result rc, outcome;
    char text[sizeof ebi_error_text]; /* this thread's last error is not what befalls others */
    EB_ASSERT(store->leading && own->state == EBI_REQ_LEAD);
    if (store->crowd > 0) { /* others publish too: let them get ready before the train leaves */
        store->crowd--;
        ebi_mutex_unlock(&store->lock);
        ebi_thread_yield(); /* else whoever has the processor commits alone, again and again */
        ebi_mutex_lock(&store->lock);
    }
    if (store->queue_head) store->crowd = EBI_CROWD;
    while (store->queue_head && store->queue_head->func) {
        r = store->queue_head;
        store->queue_head = r->next;
        if (!r->next) store->queue_tail = NULL;
        r->next = NULL;
        last->next = r;
        last = r;
        if (r->level < level) level = r->level; /* FULL is the smallest number */
    }
    ebi_engine_outcomes_take(store);
    ebi_mutex_unlock(&store->lock);
    memcpy(text, ebi_error_text, sizeof text);
    rc = ebi_writer_transaction(store, list, off ? EB_DURABLE_OFF : level, 1);
    outcome = rc;
    if (rc == EB_ERR_UNKNOWN) {
        for (r = list; r; r = r->next) ebi_req_end(r, rc);
    } else if (rc != EB_OK && rc != EB_ERR_BUSY) {
        outcome = ebi_writer_one_by_one(store, list, 1);
    } else if (rc != EB_OK) {
        for (r = list; r; r = r->next) ebi_req_end(r, rc);
    }
    memcpy(ebi_error_text, text, sizeof text);
    EBI_YIELD();
    ebi_mutex_lock(&store->lock);
    store->commits += rc == EB_OK;
    for (r = list; r; r = rest) { /* a member may be gone once the lock is */
        rest = r->next;
        if (r->after) r->after(store, r->arg, r->rc);
        r->state = EBI_REQ_DONE;
        if (r != own) ebi_cond_signal(&r->cond);
    }
    ebi_engine_outcomes_end(store, outcome); /* last, as in the transaction */
    if (rc == EB_OK) ebi_writer_look_at_wal(store);
}

/* Passes the lead on to the next in the queue, or to nobody. Lock held. */
EBI_FN void ebi_writer_hand_over(eb_store *store)
{
    ebi_req *r = store->queue_head;
    EB_ASSERT(store->leading);
    if (!r) {
        store->leading = 0;
        return;
    }
    store->queue_head = r->next;
    if (!r->next) store->queue_tail = NULL;
    r->next = NULL;
    r->state = EBI_REQ_LEAD;
    ebi_cond_signal(&r->cond);
}

/* Queues r and waits until it leads or is done. Lock held. */
EBI_FN void ebi_writer_join(eb_store *store, ebi_req *r)
{
    if (!store->leading) {
        store->leading = 1;
        r->state = EBI_REQ_LEAD;
        return;
    }
    if (store->queue_tail) store->queue_tail->next = r;
    else store->queue_head = r;
    store->queue_tail = r;
    r->waits = 1;
    ebi_cond_init(&r->cond);
    while (r->state == EBI_REQ_QUEUED) ebi_cond_wait(&r->cond, &store->lock, -1);
}

/* Runs func inside a committed transaction, possibly with others'. Blocks; no lock held. */
EBI_FN eb_result ebi_writer_run(eb_store *store, eb_result (*func)(eb_store *, void *),
                                void (*after)(eb_store *, void *, eb_result), void *arg, int level)
{
    ebi_req r;
    ebi_cond *wake = NULL;
    ebi_req_init(&r, func, after, arg, level);
    ebi_mutex_lock(&store->lock);
    ebi_writer_join(store, &r);
    if (r.state == EBI_REQ_LEAD) {
        ebi_writer_lead(store, &r);
        ebi_writer_hand_over(store);
        wake = ebi_engine_wake(store);
    }
    ebi_mutex_unlock(&store->lock);
    if (wake) ebi_cond_signal(wake); /* only now: a worker that wakes up finds the lock free */
    if (r.waits) ebi_cond_fini(&r.cond);
    if (r.rc < 0) memcpy(ebi_error_text, r.error, sizeof r.error);
    return r.rc;
}

/* Exclusive use of the writer connection without a transaction; no lock held in between. */
EBI_FN void ebi_writer_enter(eb_store *store)
{
    ebi_req r;
    ebi_req_init(&r, NULL, NULL, NULL, EB_DURABLE_NORMAL);
    ebi_mutex_lock(&store->lock);
    ebi_writer_join(store, &r);
    EB_ASSERT(r.state == EBI_REQ_LEAD);
    ebi_mutex_unlock(&store->lock);
    if (r.waits) ebi_cond_fini(&r.cond);
}
EBI_FN void ebi_writer_leave(eb_store *store)
{
    ebi_mutex_lock(&store->lock);
    ebi_writer_hand_over(store);
    ebi_mutex_unlock(&store->lock);
}

/* A connection to read with: the bus's second one, or the only one. *db is NULL if it cannot be
** opened. Always to be followed by ebi_reader_leave(). */
EBI_FN eb_result ebi_reader_enter(eb_store *store, ebi_db **db)
{
    eb_result rc = EB_OK;
    if (!store->bus || store->in_memory) {
        ebi_writer_enter(store);
        *db = &store->writer;
        return ebi_writer_ready(store);
    }
    ebi_mutex_lock(&store->read_lock);
    *db = &store->reader;
    if (store->closed) rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is closed");
    else if (!store->reader.handle) rc = ebi_db_open(store, &store->reader, 0);
    return rc;
}
EBI_FN void ebi_reader_leave(eb_store *store, ebi_db *db)
{
    if (db == &store->writer) ebi_writer_leave(store);
    else ebi_mutex_unlock(&store->read_lock);
}

/* ===========================================================================
** >>engine   Ready queue, claims, attempts, outcomes                [private]
** ========================================================================
** What is on disk is the truth; memory holds a bounded window of it.
**
**   cursor      every pending row without a due time and with seq <= cursor is in `ready`, or was
**               passed over because nobody matches it, or waits behind its ordering key ("parked").
**   due_ms      whatever comes back (a retry, a snooze, a DLQ retry, an operator's UPDATE) comes
**               back through the index on due_ms, never by moving the cursor back. Memory has only
**               the earliest, next_due_ms.
**   claim       status processing and a token. Batches are claimed without counting an attempt; an
**               event that is claimed alone counts it (attempts = failed + 1). Recovery tells the
**               two apart by that: see ebi_recover_row().
**   outcome     what a handler run came to. It waits in memory for a commit to ride on, at most
**               EB_ACK_DELAY_MS, not at all if somebody waits for it.
**
** All under store->lock, except what a comment says belongs to one thread. */

typedef struct ebi_policy { /* a resolved eb_retry_policy */
    int max_retries, schedule_count;
    int64_t base_ms, max_ms;
    double multiplier, jitter;
    int64_t *schedule_ms; /* owned */
} ebi_policy;

enum { EBI_SUB_TYPE, EBI_SUB_PREFIX, EBI_SUB_GLOB }; /* "a.b", "a.*", anything else */

typedef struct ebi_sub {
    /* immutable */
    eb_id id;
    int kind;
    uint32_t hash;
    size_t length; /* of the pattern without its star at the end */
    char *pattern;
    eb_handler handler;
    void *user;
    int64_t order, timeout_ms; /* timeout -1: none */
    ebi_policy policy;
    /* under the lock */
    struct ebi_sub *next, *previous;      /* in order of subscribing */
    struct ebi_sub *next_type, *next_id;  /* in the tables, see >>matching */
    int calls;   /* running now */
    int removed; /* unsubscribed; freed when calls reaches 0 */
    int paused;  /* too many of its handlers never returned */
    int keep;    /* somebody still looks at it: eb_unsubscribe waiting */
} ebi_sub;

enum { EBI_OUT_NONE, EBI_OUT_DONE, EBI_OUT_RETRY, EBI_OUT_DEAD, EBI_OUT_SNOOZE, EBI_OUT_RELEASE };

/* One event in memory: in ready, in claimed, being run, or an outcome. */
typedef struct ebi_entry {
    struct ebi_entry *next;
    int refs; /* 1, or 2 while a handler that timed out still reads it */
    size_t bytes;
    int64_t seq, token, born, created_at_ms;
    int failed, counted; /* counted: the claim spent an attempt (failed + 1) */
    int suspect, retried; /* retried: from the dead-letter queue, or snoozed */
    eb_id id;
    const char *type, *payload, *metadata, *ordering_key, *idempotency_key, *producer, *errors;
    size_t payload_len;
    /* the outcome */
    int outcome, stale; /* stale: the claim was no longer ours, nothing was recorded */
    int64_t due_ms;
    char *error_json; /* owned, NULL: ebi_no_memory_error */
} ebi_entry;

/* One handler call; belongs to the thread that makes it, except the marked ones. */
typedef struct ebi_run {
    eb_delivery pub;
    eb_event event;
    int outcome; /* what eb_fail, eb_reject or eb_snooze asked for */
    int64_t snooze_ms;
    char error[EBI_ERROR_MAX + 4];
    /* under the lock */
    struct ebi_run *next; /* in bus->runs */
    ebi_entry *entry;     /* NULL between events */
    ebi_sub *sub;         /* NULL between handlers */
    ebi_thread_id thread;
    int64_t deadline_us; /* monotonic; -1: none */
    int lost;            /* timed out or abandoned: whatever it does now is stale */
} ebi_run;

typedef struct ebi_worker {
    struct ebi_worker *next;
    eb_bus *bus;
    ebi_thread thread;
    ebi_run run;
    int ended; /* under the lock: the thread is about to return */
} ebi_worker;

typedef struct ebi_waiter { /* on the stack of eb_publish, eb_wait */
    struct ebi_waiter *next;
    int64_t seq;
    int hit;         /* something happened to seq: look */
    eb_result known; /* how it ended; EB_EMPTY: the file has to be asked */
    ebi_cond cond;
} ebi_waiter;

enum { EBI_OPEN, EBI_STARTING, EBI_STARTED, EBI_STOPPING, EBI_STOPPED,
       EBI_FORKED /* seen by a child only that returned from a handler */ };

struct eb_bus {
    eb_store store; /* first: the bus's own store; its lock is the bus's lock */
    /* immutable after open */
    int workers; /* 0: pump */
    int on_unmatched;
    int64_t handler_timeout_ms, shutdown_timeout_ms, idle_poll_ms, max_pending;
    size_t max_payload;
    ebi_policy policy;
    ebi_db owner; /* the side file we hold while started; the thread that starts or stops */
    ebi_db checker; /* for checkpoints; the keeper's */
    int64_t incarnation; /* of this start; set by eb_start */
    /* under the lock */
    int state, refs;             /* refs: the user and every thread left behind */
    ebi_cond work, keeper, news; /* for workers, for the keeper, for everybody who waits */
    int conds;                   /* how many of these could be made */
    ebi_sub *subs, *subs_last, **by_type, **by_id, *globs;
    size_t sub_count, table_mask;
    int prefixes[EBI_TYPE_MAX + 1]; /* how many patterns "prefix*" have this length */
    int64_t sub_order;
    ebi_entry *ready, *ready_last, *claimed, *claimed_last, *outcomes, *outcomes_last;
    int ready_count, claimed_count, reserved; /* reserved: born claimed, commit under way */
    size_t ready_bytes;
    int64_t cursor, next_due_ms, next_token; /* next_due_ms INT64_MAX: none */
    int64_t timed_out;                       /* token that the keeper is about to give up; or 0 */
    int disk_more;      /* there are pending rows above cursor */
    int parked;         /* rows were passed over: a new subscription must look again */
    int rescan;         /* so it asked while a claim was under way */
    int unmatched_said; /* logged once */
    int claiming, running, idle, solo, turn, batch;
    ebi_run *runs;
    ebi_worker *all_workers;
    int lost_workers, keeper_alive, workers_alive, workers_started;
    int pumping, abandon, joining, joined;
    ebi_thread keeper_thread;
    ebi_run *pump_run;
    ebi_thread_id pump_thread;
    ebi_waiter *waiters;
    int wake;                      /* a worker is to be woken when the lock is free */
    int64_t keeper_until_us;       /* when the keeper wakes up by itself; 0: it is awake */
    int drainers, look, checkpoint; /* look: eb_wake; checkpoint: the keeper shall */
    int64_t outcome_since_us, backoff_ms, retry_at_us; /* retry_at_us 0: no failure */
    eb_result outcome_rc, claim_rc; /* why it failed to record outcomes, to claim, the last time */
    int64_t published, delivered, failed_attempts, died, stale;
    int64_t live_upper, live_version; /* max_pending: an upper bound of live rows */
    /* whoever leads the writer */
    int64_t claimed_to; /* as in meta: no row above it was ever claimed; 0: not known */
    ebi_entry *taking, *taking_last;
    ebi_run main_run; /* the pump's */
};

static const char ebi_no_memory_error[] = "\"out of memory while recording this error\"";

EBI_FN eb_bus *ebi_bus_of(eb_store *store) { return store->bus; }

/* ---- entries ---- */

EBI_FN size_t ebi_put(char **at, const char **field, const char *text, size_t len)
{
    if (!text) {
        *field = NULL;
        return 0;
    }
    memcpy(*at, text, len);
    (*at)[len] = 0;
    *field = *at;
    *at += len + 1;
    return len;
}
EBI_FN size_t ebi_len(const char *text) { return text ? strlen(text) : 0; }

/* One allocation for the event and all its text. NULL: out of memory. */
EBI_FN ebi_entry *ebi_entry_new(eb_store *store, const eb_message *m, size_t payload_len,
                                const char *producer, const char *errors)
{
    size_t size = sizeof(ebi_entry) + ebi_len(m->type) + payload_len + ebi_len(m->metadata) +
                  ebi_len(m->ordering_key) + ebi_len(m->idempotency_key) + ebi_len(producer) +
                  ebi_len(errors) + 8;
    ebi_entry *e = (ebi_entry *)ebi_alloc(&store->allocator, size);
    char *at;
    if (!e) return NULL;
    memset(e, 0, sizeof *e);
    e->refs = 1;
    e->bytes = size;
    at = (char *)(e + 1);
    ebi_put(&at, &e->type, m->type, ebi_len(m->type));
    ebi_put(&at, &e->payload, m->payload, payload_len);
    e->payload_len = payload_len;
    ebi_put(&at, &e->metadata, m->metadata, ebi_len(m->metadata));
    ebi_put(&at, &e->ordering_key, m->ordering_key, ebi_len(m->ordering_key));
    ebi_put(&at, &e->idempotency_key, m->idempotency_key, ebi_len(m->idempotency_key));
    ebi_put(&at, &e->producer, producer, ebi_len(producer));
    ebi_put(&at, &e->errors, errors, ebi_len(errors));
    return e;
}

/* Drops one reference. Lock held, or nobody else knows e. */
EBI_FN void ebi_entry_drop(eb_store *store, ebi_entry *e)
{
    EB_ASSERT(e->refs > 0);
    if (--e->refs > 0) return;
    if (e->error_json) ebi_free(&store->allocator, e->error_json);
    ebi_free(&store->allocator, e);
}

EBI_FN void ebi_entries_free(eb_store *store, ebi_entry *e)
{
    ebi_entry *next;
    for (; e; e = next) {
        next = e->next;
        ebi_entry_drop(store, e);
    }
}

EBI_FN void ebi_entry_push(ebi_entry **head, ebi_entry **last, ebi_entry *e)
{
    e->next = NULL;
    if (*last) (*last)->next = e;
    else *head = e;
    *last = e;
}
EBI_FN ebi_entry *ebi_entry_pop(ebi_entry **head, ebi_entry **last)
{
    ebi_entry *e = *head;
    if (!e) return NULL;
    *head = e->next;
    if (!e->next) *last = NULL;
    e->next = NULL;
    return e;
}

EBI_FN const char *ebi_column(sqlite3_stmt *s, int i)
{
    return (const char *)sqlite3_column_text(s, i);
}

/* From a row of EBI_SQL_LOAD. NULL: out of memory. */
EBI_FN ebi_entry *ebi_entry_load(eb_store *store, sqlite3_stmt *s)
{
    eb_message m;
    ebi_entry *e;
    const char *id = ebi_column(s, 7);
    EB_ASSERT(sqlite3_column_count(s) == 15);
    memset(&m, 0, sizeof m);
    m.type = ebi_column(s, 8);
    m.payload = ebi_column(s, 9);
    m.metadata = ebi_column(s, 10);
    m.ordering_key = ebi_column(s, 11);
    m.idempotency_key = ebi_column(s, 12);
    if (!id || !m.type || !m.payload) return NULL;
    e = ebi_entry_new(store, &m, (size_t)sqlite3_column_bytes(s, 9), ebi_column(s, 13),
                      ebi_column(s, 14));
    if (!e) return NULL;
    e->seq = sqlite3_column_int64(s, 0);
    e->failed = sqlite3_column_int(s, 1);
    e->suspect = sqlite3_column_int(s, 2) > 0;
    e->born = sqlite3_column_int64(s, 3);
    e->retried = sqlite3_column_type(s, 4) != SQLITE_NULL || sqlite3_column_int(s, 5) > 0;
    e->created_at_ms = ebi_time_parse(ebi_column(s, 6));
    snprintf(e->id.str, sizeof e->id.str, "%s", id);
    return e;
}

/* ---- waiting ---- */

/* Something happened to seq (0: to anything): whoever waits for it looks again, unless the end is
** known. Lock held. */
EBI_FN void ebi_waiters_hit(eb_bus *bus, int64_t seq, eb_result known)
{
    ebi_waiter *w;
    for (w = bus->waiters; w; w = w->next) {
        if (seq != 0 && w->seq != seq) continue;
        w->hit = 1;
        if (known != EB_EMPTY) w->known = known;
        ebi_cond_signal(&w->cond);
    }
}
EBI_FN int ebi_waiters_any(const eb_bus *bus, int64_t seq)
{
    const ebi_waiter *w;
    for (w = bus->waiters; w; w = w->next)
        if (w->seq == seq) return 1;
    return 0;
}

/* ---- retry ---- */

/* The wait before the attempt after `failed` failures: base * multiplier^(failed-1), capped, in
** steps, so that nothing overflows for any input. */
EBI_FN int64_t ebi_policy_delay(const ebi_policy *p, int failed)
{
    double delay, spread;
    uint32_t bits;
    int i;
    EB_ASSERT(failed >= 1);
    if (p->schedule_count > 0) {
        i = failed > p->schedule_count ? p->schedule_count : failed;
        delay = (double)p->schedule_ms[i - 1];
        if (!(p->jitter > 0)) return p->schedule_ms[i - 1];
    } else {
        int64_t exact = p->base_ms < p->max_ms ? p->base_ms : p->max_ms;
        delay = (double)p->base_ms;
        for (i = 1; i < failed && delay < (double)p->max_ms; i++) {
            if (!(p->multiplier > 1.0) || !(delay > 0)) break;
            delay *= p->multiplier;
        }
        if (i == 1 && !(p->jitter > 0)) return exact;
        if (delay >= (double)p->max_ms) {
            if (!(p->jitter > 0)) return p->max_ms;
            delay = (double)p->max_ms;
        }
    }
    if (p->jitter > 0) {
        sqlite3_randomness((int)sizeof bits, &bits);
        spread = ((double)bits / 4294967295.0 * 2.0 - 1.0) * p->jitter;
        delay += delay * spread;
        if (p->schedule_count == 0 && delay >= (double)p->max_ms) return p->max_ms;
    }
    if (!(delay < 9.2e18)) return INT64_MAX;
    return (int64_t)delay;
}

/* ---- outcomes: recorded by whichever transaction comes next ---- */

/* Lock held; called by the leader before it begins. */
EBI_FN void ebi_engine_outcomes_take(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    if (!bus) return;
    EB_ASSERT(!bus->taking);
    bus->taking = bus->outcomes;
    bus->taking_last = bus->outcomes_last;
    bus->outcomes = bus->outcomes_last = NULL;
}

/* The leader's transaction was rolled back. */
EBI_FN void ebi_engine_undone(eb_store *store)
{
    if (store->bus) store->bus->claimed_to = 0;
}

/* One statement of an outcome; SQLite's result, *changed: rows. */
EBI_FN int ebi_outcome_step(eb_store *store, int index, const ebi_entry *e, int64_t p3,
                            const char *p4, const char *now, int *changed)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, index);
    int rc;
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, e->seq);
    sqlite3_bind_int64(s, 2, e->token);
    if (index == EBI_SQL_FINISH_ERRORS || index == EBI_SQL_DIE) {
        ebi_bind_text(s, 3, now);
    } else if (index == EBI_SQL_RETRY || index == EBI_SQL_SNOOZE) {
        sqlite3_bind_int64(s, 3, p3);
        if (index == EBI_SQL_RETRY) ebi_bind_text(s, 4, p4);
        else sqlite3_bind_int(s, 4, p4 != NULL);
        ebi_bind_text(s, 5, now);
        sqlite3_bind_int(s, 6, 0);
    }
    if (index == EBI_SQL_RETRY || index == EBI_SQL_DIE)
        ebi_bind_text(s, 9, e->error_json ? e->error_json : ebi_no_memory_error);
    rc = ebi_db_step(s);
    *changed = rc == SQLITE_OK ? sqlite3_changes(store->writer.handle) : 0;
    return rc;
}

/* The next of a key may go, now that this one is through. It is due at now_ms, if there is one:
** sqlite3_changes() tells. */
EBI_FN int ebi_key_next(eb_store *store, const char *key, int64_t seq, int64_t now_ms)
{
    sqlite3_stmt *s;
    if (!key) return SQLITE_OK;
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_NEXT);
    if (!s) return ebi_db_code(&store->writer);
    ebi_bind_text(s, 1, key);
    sqlite3_bind_int64(s, 2, seq);
    sqlite3_bind_int64(s, 3, now_ms);
    return ebi_db_step(s);
}

EBI_FN int ebi_finish_insert(eb_store *store, int64_t seq, int attempts, const char *now)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_FINISH);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_int(s, 2, attempts);
    ebi_bind_text(s, 3, now);
    return ebi_db_step(s);
}

/* Records one outcome, fenced by its token: if the claim was revoked, nothing changes. */
EBI_FN int ebi_outcome_apply(eb_store *store, ebi_entry *e, int64_t now_ms, const char *now)
{
    int changed = 1, rc = SQLITE_OK, gone = 0;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    EB_ASSERT(e->outcome != EBI_OUT_NONE);
    switch (e->outcome) {
    case EBI_OUT_DONE:
        if (e->failed > 0) rc = ebi_outcome_step(store, EBI_SQL_FINISH_ERRORS, e, 0, NULL, now,
                                                 &changed);
        if (rc == SQLITE_OK)
            rc = ebi_outcome_step(store, EBI_SQL_DELETE_LIVE, e, 0, NULL, now, &changed);
        gone = changed;
        if (rc == SQLITE_OK && changed && e->failed == 0)
            rc = ebi_finish_insert(store, e->seq, 1, now);
        break;
    case EBI_OUT_DEAD:
        rc = ebi_outcome_step(store, EBI_SQL_DIE, e, 0, NULL, now, &changed);
        gone = changed;
        if (rc == SQLITE_OK && changed)
            rc = ebi_outcome_step(store, EBI_SQL_DELETE_LIVE, e, 0, NULL, now, &changed);
        break;
    case EBI_OUT_RETRY:
        rc = ebi_outcome_step(store, EBI_SQL_RETRY, e, e->due_ms, "processing", now, &changed);
        break;
    default:
        EB_ASSERT(e->outcome == EBI_OUT_SNOOZE || e->outcome == EBI_OUT_RELEASE);
        rc = ebi_outcome_step(store, EBI_SQL_SNOOZE, e, e->due_ms,
                              e->outcome == EBI_OUT_SNOOZE ? "" : NULL, now, &changed);
    }
    if (rc != SQLITE_OK || e->outcome == EBI_OUT_RETRY || e->outcome == EBI_OUT_SNOOZE) return rc;
    e->due_ms = e->outcome == EBI_OUT_RELEASE ? e->due_ms : 0; /* from here on: of the next */
    e->stale = !gone;
    if (gone && e->ordering_key) {
        rc = ebi_key_next(store, e->ordering_key, e->seq, now_ms);
        if (rc == SQLITE_OK && sqlite3_changes(store->writer.handle)) e->due_ms = now_ms;
    }
    return rc;
}

/* Inside the leader's transaction. */
EBI_FN eb_result ebi_engine_outcomes_apply(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_entry *e;
    int64_t now_ms;
    char now[EBI_TIME_LEN + 1];
    int rc;
    EB_ASSERT(store->leading);
    if (!bus || !bus->taking) return EB_OK;
    now_ms = ebi_now_ms(store);
    ebi_time_text(now_ms, now);
    for (e = bus->taking; e; e = e->next) {
        rc = ebi_outcome_apply(store, e, now_ms, now);
        if (rc != SQLITE_OK) return ebi_writer_error(store, rc, "recording an outcome");
    }
    return EB_OK;
}

/* The condition to signal after the lock is released, NULL: none. Lock held. */
EBI_FN ebi_cond *ebi_engine_wake(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    if (!bus || !bus->wake) return NULL;
    bus->wake = 0;
    return &bus->work;
}

/* The keeper has to look at time_us at the latest. Lock held. */
EBI_FN void ebi_keeper_by(eb_bus *bus, int64_t time_us)
{
    if (time_us >= bus->keeper_until_us) return;
    bus->keeper_until_us = 0;
    ebi_cond_signal(&bus->keeper);
}

EBI_FN void ebi_due_at(eb_bus *bus, int64_t due_ms)
{
    if (due_ms >= bus->next_due_ms) return;
    bus->next_due_ms = due_ms;
    ebi_keeper_by(bus, INT64_MIN);
    ebi_cond_broadcast(&bus->news);
}

/* The engine's transaction failed: it tries again, later and later but at least every 2 s. Lock
** held. */
EBI_FN void ebi_engine_backoff(eb_bus *bus)
{
    bus->backoff_ms = bus->backoff_ms ? bus->backoff_ms * 2 : 10;
    if (bus->backoff_ms > EBI_BACKOFF_MAX_MS) bus->backoff_ms = EBI_BACKOFF_MAX_MS;
    bus->retry_at_us = ebi_mono_us(&bus->store) + bus->backoff_ms * 1000;
    ebi_keeper_by(bus, bus->retry_at_us);
}

/* Whether it failed for a reason that no waiting will heal; EB_OK: it did not. Lock held. */
EBI_FN eb_result ebi_engine_hopeless(const eb_bus *bus)
{
    eb_result rc = bus->outcome_rc != EB_OK ? bus->outcome_rc : bus->claim_rc;
    if (rc != EB_ERR_CORRUPT && rc != EB_ERR_SCHEMA) return EB_OK;
    return ebi_error(rc, "events cannot be dispatched: %s", eb_strerror(rc));
}

/* Lock held; after the leader's transaction. Failed: keeps everything. */
EBI_FN void ebi_engine_outcomes_end(eb_store *store, eb_result rc)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_entry *e, *next;
    EB_ASSERT(store->leading);
    if (!bus || !bus->taking) return;
    bus->outcome_rc = rc;
    if (rc != EB_OK) {
        bus->taking_last->next = bus->outcomes;
        if (!bus->outcomes) bus->outcomes_last = bus->taking_last;
        bus->outcomes = bus->taking;
        ebi_engine_backoff(bus);
    } else {
        bus->backoff_ms = bus->retry_at_us = 0;
        for (e = bus->taking; e; e = next) {
            next = e->next;
            if (e->due_ms) ebi_due_at(bus, e->due_ms); /* its own, or of the next of its key */
            if (e->outcome == EBI_OUT_DONE || e->outcome == EBI_OUT_DEAD)
                ebi_waiters_hit(bus, e->seq, e->stale                      ? EB_EMPTY
                                             : e->outcome == EBI_OUT_DONE ? EB_OK
                                                                          : EB_DEAD);
            ebi_entry_drop(store, e);
        }
        if (bus->drainers) ebi_cond_broadcast(&bus->news);
    }
    bus->taking = bus->taking_last = NULL;
}

EBI_FN eb_result ebi_nothing(eb_store *store, void *arg)
{
    (void)store;
    (void)arg;
    return EB_OK;
}

/* Commits what waits in outcomes; no lock held. */
EBI_FN eb_result ebi_engine_flush(eb_bus *bus)
{
    eb_result rc = ebi_writer_run(&bus->store, ebi_nothing, NULL, NULL, EB_DURABLE_NORMAL);
    ebi_mutex_lock(&bus->store.lock);
    if (rc == EB_OK && bus->outcomes && bus->outcome_rc != EB_OK)
        rc = ebi_error(bus->outcome_rc, "outcomes could not be recorded yet: %s",
                       eb_strerror(bus->outcome_rc));
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

/* Hands an outcome over. Lock held. Returns 1 if it should be committed at once. */
EBI_FN int ebi_outcome_push(eb_bus *bus, ebi_entry *e, int outcome)
{
    int urgent, first = !bus->outcomes;
    EB_ASSERT(outcome != EBI_OUT_NONE && e->token != 0);
    e->outcome = outcome;
    if (first) bus->outcome_since_us = ebi_mono_us(&bus->store);
    urgent = ebi_waiters_any(bus, e->seq) || (bus->drainers && !bus->claimed && !bus->ready);
    ebi_entry_push(&bus->outcomes, &bus->outcomes_last, e);
    if (!urgent && first) ebi_keeper_by(bus, bus->outcome_since_us + EB_ACK_DELAY_MS * 1000);
    return urgent;
}

/* ===========================================================================
** >>matching   From a type to its subscriptions                     [private]
** ========================================================================
** Most patterns are a plain type or end in their only star. Those are found by hash: a type is
** hashed byte by byte, and wherever some pattern "prefix*" has that length, the hash so far is
** looked up; the whole one finds the plain types. The few others are tried one by one. So ten
** thousand subscriptions do not slow down an event that one of them wants. All under the lock. */

#define EBI_HASH_START UINT32_C(2166136261)
#define EBI_HASH_STEP(hash, byte) (((hash) ^ (unsigned char)(byte)) * UINT32_C(16777619))

EBI_FN uint32_t ebi_hash(const char *text, size_t n)
{
    uint32_t hash = EBI_HASH_START;
    while (n-- > 0) hash = EBI_HASH_STEP(hash, *text++);
    return hash;
}

/* Where s hangs: in a bucket of the table, or with those that must be tried. */
EBI_FN ebi_sub **ebi_subs_chain(eb_bus *bus, const ebi_sub *s)
{
    return s->kind == EBI_SUB_GLOB ? &bus->globs : &bus->by_type[s->hash & bus->table_mask];
}
EBI_FN ebi_sub **ebi_subs_chain_id(eb_bus *bus, const char *id)
{
    return &bus->by_id[ebi_hash(id, 36) & bus->table_mask];
}

/* Hangs s into the table. */
EBI_FN void ebi_subs_index(eb_bus *bus, ebi_sub *s)
{
    ebi_sub **at = ebi_subs_chain(bus, s), **id = ebi_subs_chain_id(bus, s->id.str);
    s->next_type = *at;
    *at = s;
    s->next_id = *id;
    *id = s;
}

/* A table fit for count subscriptions; 0: out of memory, and nothing has changed. */
EBI_FN int ebi_subs_reserve(eb_bus *bus, size_t count)
{
    const eb_allocator *a = &bus->store.allocator;
    size_t size = bus->by_type ? bus->table_mask + 1 : 0, wanted = size ? size : 16;
    ebi_sub **table, *s;
    while (wanted < count) wanted *= 2;
    if (wanted == size) return 1;
    table = (ebi_sub **)ebi_alloc(a, 2 * wanted * sizeof *table);
    if (!table) return 0;
    memset(table, 0, 2 * wanted * sizeof *table);
    ebi_free(a, bus->by_type);
    bus->by_type = table;
    bus->by_id = table + wanted;
    bus->table_mask = wanted - 1;
    bus->globs = NULL;
    for (s = bus->subs; s; s = s->next) ebi_subs_index(bus, s);
    return 1;
}

/* Says of a new subscription where it belongs. */
EBI_FN void ebi_subs_classify(ebi_sub *s)
{
    const char *star = strchr(s->pattern, '*');
    size_t n = strlen(s->pattern);
    s->kind = !star ? EBI_SUB_TYPE : star[1] ? EBI_SUB_GLOB : EBI_SUB_PREFIX;
    s->length = s->kind == EBI_SUB_PREFIX ? n - 1 : n;
    s->hash = ebi_hash(s->pattern, s->length) + (s->kind == EBI_SUB_PREFIX);
}

/* Appends to the list and the table, which ebi_subs_reserve() has made. */
EBI_FN void ebi_subs_add(eb_bus *bus, ebi_sub *s)
{
    EB_ASSERT(bus->by_type && !s->removed);
    s->order = ++bus->sub_order;
    s->previous = bus->subs_last;
    if (bus->subs_last) bus->subs_last->next = s;
    else bus->subs = s;
    bus->subs_last = s;
    bus->sub_count++;
    if (s->kind == EBI_SUB_PREFIX) bus->prefixes[s->length]++;
    ebi_subs_index(bus, s);
}

EBI_FN void ebi_subs_remove(eb_bus *bus, ebi_sub *s)
{
    ebi_sub **at = ebi_subs_chain(bus, s), **id = ebi_subs_chain_id(bus, s->id.str);
    EB_ASSERT(!s->removed && bus->sub_count > 0);
    while (*at != s) at = &(*at)->next_type;
    *at = s->next_type;
    while (*id != s) id = &(*id)->next_id;
    *id = s->next_id;
    if (s->previous) s->previous->next = s->next;
    else bus->subs = s->next;
    if (s->next) s->next->previous = s->previous;
    else bus->subs_last = s->previous;
    if (s->kind == EBI_SUB_PREFIX) bus->prefixes[s->length]--;
    bus->sub_count--;
    s->removed = 1;
}

EBI_FN ebi_sub *ebi_subs_find(eb_bus *bus, const char *id)
{
    ebi_sub *s = bus->by_id && strlen(id) == 36 ? *ebi_subs_chain_id(bus, id) : NULL;
    while (s && strcmp(s->id.str, id) != 0) s = s->next_id;
    return s;
}

/* The better of best and what matches in chain: the first one after `order`. */
EBI_FN ebi_sub *ebi_subs_better(ebi_sub *best, ebi_sub *chain, int kind, const char *type,
                                size_t length, int64_t order)
{
    EB_ASSERT(length <= EBI_TYPE_MAX);
    for (; chain; chain = chain->next_type) {
        if (chain->order <= order || (best && chain->order > best->order)) continue;
        if (chain->kind != kind) continue;
        if (kind == EBI_SUB_GLOB ? ebi_glob(chain->pattern, type)
                                 : chain->length == length &&
                                       memcmp(chain->pattern, type, length) == 0)
            best = chain;
    }
    return best;
}

/* The next subscription after `order` that matches type, NULL: none. */
EBI_FN ebi_sub *ebi_subs_next(const eb_bus *bus, const char *type, int64_t order)
{
    uint32_t hash = EBI_HASH_START;
    ebi_sub *best = NULL;
    size_t n;
    if (!bus->by_type) return NULL;
    for (n = 0;; n++) {
        if (n <= EBI_TYPE_MAX && bus->prefixes[n])
            best = ebi_subs_better(best, bus->by_type[(hash + 1) & bus->table_mask],
                                   EBI_SUB_PREFIX, type, n, order);
        if (!type[n]) break;
        hash = EBI_HASH_STEP(hash, type[n]);
    }
    best = ebi_subs_better(best, bus->by_type[hash & bus->table_mask], EBI_SUB_TYPE, type, n,
                           order);
    return ebi_subs_better(best, bus->globs, EBI_SUB_GLOB, type, n, order);
}

/* What an event of this type meets now. *attempts: the largest max_retries + 1 of the handlers, for
** recovery after a crash in one of them. */
enum { EBI_MATCH_NONE, EBI_MATCH_YES, EBI_MATCH_PAUSED };
EBI_FN int ebi_subs_match(const eb_bus *bus, const char *type, int *attempts)
{
    const ebi_sub *s;
    int result = EBI_MATCH_NONE;
    *attempts = 1;
    for (s = ebi_subs_next(bus, type, 0); s; s = ebi_subs_next(bus, type, s->order)) {
        if (s->paused) return EBI_MATCH_PAUSED;
        result = EBI_MATCH_YES;
        if (s->policy.max_retries >= *attempts) *attempts = s->policy.max_retries + 1;
    }
    return result;
}

/* ===========================================================================
** >>publish   Messages into rows, some of them born claimed         [private]
** ======================================================================== */

/* How a new event starts its life; none: its idempotency key was known. */
enum { EBI_BORN_NONE, EBI_BORN_PENDING, EBI_BORN_CLAIMED, EBI_BORN_DONE, EBI_BORN_DEAD };

typedef struct ebi_slot {
    ebi_entry *entry; /* NULL: it will be read from disk if need be */
    int birth;        /* EBI_BORN_... */
} ebi_slot;

typedef struct ebi_publish {
    const eb_message *msgs;
    size_t count;
    eb_id *ids;
    ebi_slot *slots; /* one per message */
    ebi_waiter *waiter;  /* of eb_publish */
    int duplicates;
    /* set inside the transaction, undone if it runs again */
    int reserved;
    int64_t last_seq, first_seq, due_ms;
} ebi_publish;

EBI_FN size_t ebi_payload_len(const eb_message *m)
{
    return !m->payload ? 4 : m->payload_len ? m->payload_len : strlen(m->payload);
}

/* A key of a message: 1 to 255 bytes of UTF-8. */
EBI_FN eb_result ebi_message_key(const char *name, const char *key, size_t index)
{
    if (key && !ebi_text_name_len(key, EBI_KEY_MAX))
        return ebi_error(EB_ERR_ARG, "message %u: %s is not 1 to 255 bytes of UTF-8 without spaces",
                         (unsigned)index, name);
    return EB_OK;
}

/* Everything about one message that can be wrong, before anything is copied. */
EBI_FN eb_result ebi_message_check(const eb_bus *bus, const eb_message *m, size_t index)
{
    unsigned i = (unsigned)index;
    eb_result rc;
    if (!m->type || !ebi_text_name_len(m->type, EBI_TYPE_MAX) || strchr(m->type, '*'))
        return ebi_error(EB_ERR_ARG, "message %u: type must be 1 to 255 bytes of UTF-8 without "
                         "spaces, control characters and '*'", i);
    if (ebi_payload_len(m) > bus->max_payload || ebi_len(m->metadata) > bus->max_payload)
        return ebi_error(EB_ERR_TOO_BIG, "message %u: over max_payload_bytes", i);
    if (m->payload && !ebi_json_valid(m->payload, ebi_payload_len(m)))
        return ebi_error(EB_ERR_PAYLOAD, "message %u: payload is not valid JSON", i);
    if (m->metadata && !ebi_json_string_map(m->metadata))
        return ebi_error(EB_ERR_PAYLOAD, "message %u: metadata is not a JSON object of strings", i);
    rc = ebi_message_key("ordering_key", m->ordering_key, index);
    if (rc == EB_OK) rc = ebi_message_key("idempotency_key", m->idempotency_key, index);
    if (rc != EB_OK) return rc;
    if (m->delay_ms < 0 || m->deliver_at_ms < 0 || (m->delay_ms && m->deliver_at_ms))
        return ebi_error(EB_ERR_ARG, "message %u: one of delay_ms and deliver_at_ms, >= 0", i);
    if (m->durability != 0 && m->durability != EB_DURABLE_FULL &&
        m->durability != EB_DURABLE_NORMAL)
        return ebi_error(EB_ERR_ARG, "message %u: durability is 0, FULL or NORMAL", i);
    if (m->durability != 0 && bus->store.durability == EB_DURABLE_OFF)
        return ebi_error(EB_ERR_ARG, "message %u: this bus is EB_DURABLE_OFF as a whole", i);
    return EB_OK;
}

/* EB_ERR_FULL if count more would exceed max_pending. Counts only when the upper bound kept in
** memory says that it might. */
EBI_FN eb_result ebi_publish_cap(eb_bus *bus, size_t count)
{
    eb_store *store = &bus->store;
    int64_t version = 0;
    int rc;
    if (bus->max_pending <= 0) return EB_OK;
    rc = ebi_db_number(store, &store->writer, EBI_SQL_DATA_VERSION, &version);
    if (rc == SQLITE_OK && (version != bus->live_version ||
                            bus->live_upper + (int64_t)count > bus->max_pending))
        rc = ebi_db_number(store, &store->writer, EBI_SQL_LIVE_COUNT, &bus->live_upper);
    if (rc != SQLITE_OK) return ebi_writer_error(store, rc, "counting live events");
    bus->live_version = version;
    if (bus->live_upper + (int64_t)count > bus->max_pending)
        return ebi_error(EB_ERR_FULL, "%lld live events: the queue is at max_pending",
                         (long long)bus->live_upper);
    bus->live_upper += (int64_t)count;
    return EB_OK;
}

/* 1 if the key is known: *id is then the first event's. -1: SQLite failed. */
EBI_FN int ebi_publish_known(eb_store *store, const char *key, eb_id *id)
{
    sqlite3_stmt *s;
    int rc;
    if (!key) return 0;
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KNOWN_KEY);
    if (!s) return -1;
    ebi_bind_text(s, 1, key);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) snprintf(id->str, sizeof id->str, "%s", ebi_column(s, 0));
    sqlite3_reset(s);
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : -1;
}

/* Decides that: claimed if a worker is idle and would take it next; finished if nobody matches and
** the policy says so. `counted` says whether the claim spends an attempt. Takes the lock. */
EBI_FN int ebi_publish_birth(eb_bus *bus, const eb_message *m, int64_t seq, int64_t due,
                             int *attempts, int *counted, int64_t *born)
{
    int birth = EBI_BORN_PENDING, match;
    ebi_mutex_lock(&bus->store.lock);
    *attempts = 1;
    *counted = bus->batch == 1;
    *born = bus->state == EBI_STARTED ? bus->incarnation : 0;
    if (bus->state == EBI_STARTED && due == 0) {
        match = ebi_subs_match(bus, m->type, attempts);
        if (match == EBI_MATCH_NONE) {
            if (bus->on_unmatched == EB_UNMATCHED_DONE) birth = EBI_BORN_DONE;
            if (bus->on_unmatched == EB_UNMATCHED_DLQ) birth = EBI_BORN_DEAD;
        } else if (match == EBI_MATCH_YES && !m->ordering_key && !bus->solo && !bus->ready &&
                   !bus->claiming && !bus->disk_more && bus->cursor == seq - 1 - bus->reserved &&
                   bus->reserved + bus->claimed_count < bus->batch * bus->idle) {
            birth = EBI_BORN_CLAIMED;
        }
    }
    ebi_mutex_unlock(&bus->store.lock);
    return birth;
}

EBI_FN int ebi_publish_log_row(eb_store *store, const eb_message *m, int64_t seq, const eb_id *id,
                               int64_t due, const char *now)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_LOG_INSERT);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_text(s, 2, id->str, 36, SQLITE_STATIC);
    ebi_bind_text(s, 3, m->type);
    sqlite3_bind_text64(s, 4, m->payload ? m->payload : "null", ebi_payload_len(m), SQLITE_STATIC,
                        SQLITE_UTF8);
    ebi_bind_text(s, 5, m->metadata);
    ebi_bind_text(s, 6, m->ordering_key);
    ebi_bind_text(s, 7, m->idempotency_key);
    ebi_bind_text(s, 8, store->node_id);
    if (due) sqlite3_bind_int64(s, 9, due);
    else sqlite3_bind_null(s, 9);
    sqlite3_bind_text(s, 10, now, EBI_TIME_LEN, SQLITE_STATIC);
    return ebi_db_step(s);
}

/* The live row. token 0: pending. */
EBI_FN int ebi_publish_live_row(eb_bus *bus, const eb_message *m, int64_t seq, int64_t due,
                                int64_t born, int64_t token, int counted, int attempts,
                                const char *now)
{
    eb_store *store = &bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_LIVE_INSERT);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    ebi_bind_text(s, 2, token ? "processing" : "pending");
    sqlite3_bind_int(s, 3, token && counted ? 1 : 0);
    if (token) sqlite3_bind_int(s, 4, attempts);
    else sqlite3_bind_null(s, 4);
    if (born) sqlite3_bind_int64(s, 5, born);
    else sqlite3_bind_null(s, 5);
    if (due) sqlite3_bind_int64(s, 6, due);
    else sqlite3_bind_null(s, 6);
    ebi_bind_text(s, 7, token ? store->node_id : NULL);
    if (token) sqlite3_bind_int64(s, 8, token);
    else sqlite3_bind_null(s, 8);
    ebi_bind_text(s, 9, m->ordering_key);
    ebi_bind_text(s, 10, token ? now : NULL);
    return ebi_db_step(s);
}

/* Takes a live row away that nobody has claimed; sqlite3_changes() tells whether there was one. */
EBI_FN int ebi_delete_unclaimed(eb_store *store, int64_t seq)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DELETE_LIVE);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_null(s, 2);
    return ebi_db_step(s);
}

/* A death that no attempt led to: "no handler", "moved by operator". The row is live and not
** claimed; sqlite3_changes() tells whether it was so. */
EBI_FN int ebi_die_unclaimed(eb_store *store, int64_t seq, const char *error_json, const char *now)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DIE);
    int rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_null(s, 2);
    ebi_bind_text(s, 3, now);
    ebi_bind_text(s, 9, error_json);
    rc = ebi_db_step(s);
    return rc == SQLITE_OK ? ebi_delete_unclaimed(store, seq) : rc;
}

/* "No handler" counts as one failed attempt, and is logged as one. */
static const char ebi_no_handler_json[] = "\"no handler matches this type\"";
EBI_FN void ebi_unmatched_say(const eb_store *store, const char *id, const char *type)
{
    eb_log_entry entry;
    memset(&entry, 0, sizeof entry);
    entry.level = EB_LOG_ERROR;
    entry.message = "event is dead";
    entry.event_id = id;
    entry.type = type;
    entry.error = "no handler matches this type";
    entry.attempt = entry.max_attempts = 1;
    entry.next_delay_ms = -1;
    ebi_log(store, &entry);
}

/* Before a claim of seq: recovery looks for claims only up to a mark in meta, so that a start among
** a million pending events need not read them all. The mark is moved in long steps. */
EBI_FN int ebi_claim_mark(eb_bus *bus, int64_t seq)
{
    int rc;
    EB_ASSERT(seq > 0);
    if (seq <= bus->claimed_to) return SQLITE_OK;
    rc = ebi_step_seq(&bus->store, EBI_SQL_CLAIMED_TO, seq + EBI_CLAIM_STEP);
    if (rc == SQLITE_OK) bus->claimed_to = seq + EBI_CLAIM_STEP;
    return rc;
}

/* Stores message i as event seq. */
EBI_FN int ebi_publish_one(eb_bus *bus, ebi_publish *p, size_t i, int64_t seq, int64_t now_ms)
{
    eb_store *store = &bus->store;
    const eb_message *m = &p->msgs[i];
    ebi_entry *e = p->slots[i].entry;
    int64_t due = m->delay_ms ? m->delay_ms : m->deliver_at_ms, token = 0, born;
    int birth, attempts, counted, rc;
    char now[EBI_TIME_LEN + 1];
    eb_id *id = &p->ids[i];
    EB_ASSERT(seq > 0);
    if (due) due = ebi_due(m->delay_ms ? now_ms : 0, due);
    ebi_time_text(now_ms, now);
    ebi_id_make(store->id_key, seq, id);
    birth = ebi_publish_birth(bus, m, seq, due, &attempts, &counted, &born);
    if (birth == EBI_BORN_CLAIMED && !e) birth = EBI_BORN_PENDING;
    p->slots[i].birth = birth;
    if (birth == EBI_BORN_CLAIMED) {
        token = ++bus->next_token;
        ebi_mutex_lock(&store->lock);
        bus->reserved++;
        ebi_mutex_unlock(&store->lock);
        p->reserved++;
    }
    if (e) {
        e->seq = seq;
        e->id = *id;
        e->token = token;
        e->counted = counted;
        e->born = born;
        e->created_at_ms = now_ms;
        e->due_ms = due;
    }
    if (due && (p->due_ms == 0 || due < p->due_ms)) p->due_ms = due;
    rc = ebi_publish_log_row(store, m, seq, id, due, now);
    if (rc == SQLITE_OK && token) rc = ebi_claim_mark(bus, seq);
    if (rc == SQLITE_OK && birth == EBI_BORN_DONE) return ebi_finish_insert(store, seq, 0, now);
    if (rc == SQLITE_OK)
        rc = ebi_publish_live_row(bus, m, seq, due, born, token, counted, attempts, now);
    if (rc == SQLITE_OK && birth == EBI_BORN_DEAD)
        rc = ebi_die_unclaimed(store, seq, ebi_no_handler_json, now);
    return rc;
}

EBI_FN void ebi_publish_unreserve(eb_bus *bus, ebi_publish *p)
{
    ebi_mutex_lock(&bus->store.lock);
    bus->reserved -= p->reserved;
    ebi_mutex_unlock(&bus->store.lock);
    p->reserved = 0;
}

/* Inside the transaction. Sequence numbers are read here, never remembered: other processes
** publish too. */
EBI_FN eb_result ebi_publish_func(eb_store *store, void *arg)
{
    ebi_publish *p = (ebi_publish *)arg;
    eb_bus *bus = ebi_bus_of(store);
    int64_t seq, now_ms = ebi_now_ms(store);
    size_t i;
    int rc, known;
    eb_result result;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (store->moved || store->writer.level == EB_DURABLE_FULL) {
        store->moved = ebi_db_moved(&store->writer);
        if (store->moved) return ebi_error(EB_ERR_IO, "%s was moved or deleted", store->path);
    }
    result = ebi_publish_cap(bus, p->count);
    if (p->reserved) ebi_publish_unreserve(bus, p); /* a second run */
    p->duplicates = 0;
    p->due_ms = 0;
    if (result != EB_OK) return result;
    rc = ebi_db_number(store, &store->writer, EBI_SQL_LAST_SEQ, &seq);
    if (rc != SQLITE_OK) return ebi_writer_error(store, rc, "reading the last sequence number");
    p->first_seq = seq + 1;
    for (i = 0; i < p->count; i++) {
        known = ebi_publish_known(store, p->msgs[i].idempotency_key, &p->ids[i]);
        if (known > 0) {
            p->duplicates++;
            p->slots[i].birth = EBI_BORN_NONE;
            continue;
        }
        rc = known < 0 ? ebi_db_code(&store->writer)
                       : ebi_publish_one(bus, p, i, ++seq, now_ms);
        if (rc != SQLITE_OK) return ebi_writer_error(store, rc, "storing an event");
    }
    p->last_seq = seq;
    return p->duplicates ? EB_DUPLICATE : EB_OK;
}

/* Puts a stored event where it belongs in memory. Lock held. Returns 1 if it was taken. */
EBI_FN int ebi_publish_place(eb_bus *bus, ebi_entry *e, int birth)
{
    if (bus->state != EBI_STARTED && birth != EBI_BORN_CLAIMED) return 0;
    if (birth == EBI_BORN_CLAIMED) {
        ebi_entry_push(&bus->claimed, &bus->claimed_last, e);
        bus->claimed_count++;
        if (bus->cursor == e->seq - 1) bus->cursor = e->seq; /* else a rescan began meanwhile */
        bus->wake = 1;
        return 1;
    }
    if (birth == EBI_BORN_DONE || birth == EBI_BORN_DEAD || e->due_ms) {
        if (bus->cursor == e->seq - 1) bus->cursor = e->seq;
        return 0;
    }
    e->token = 0;
    if (bus->cursor == e->seq - 1 && bus->ready_count < EB_READY_MAX &&
        bus->ready_bytes + e->bytes <= EB_READY_BYTES) {
        ebi_entry_push(&bus->ready, &bus->ready_last, e);
        bus->ready_count++;
        bus->ready_bytes += e->bytes;
        bus->cursor = e->seq;
        bus->wake = bus->idle > 0;
        return 1;
    }
    return 0;
}

/* Lock held, after the commit. */
EBI_FN void ebi_publish_after(eb_store *store, void *arg, eb_result rc)
{
    ebi_publish *p = (ebi_publish *)arg;
    eb_bus *bus = ebi_bus_of(store);
    size_t i;
    EB_ASSERT(store->leading);
    EB_ASSERT(bus->reserved >= p->reserved);
    bus->reserved -= p->reserved;
    p->reserved = 0;
    if (rc < 0) return;
    bus->published += (int64_t)p->count - p->duplicates;
    if (p->waiter) {
        p->waiter->seq = p->last_seq;
        p->waiter->next = bus->waiters;
        p->waiter->hit = p->slots[0].birth >= EBI_BORN_DONE; /* it is over already */
        if (p->slots[0].birth == EBI_BORN_DONE) p->waiter->known = EB_OK;
        if (p->slots[0].birth == EBI_BORN_DEAD) p->waiter->known = EB_DEAD;
        bus->waiters = p->waiter;
    }
    if (p->due_ms) ebi_due_at(bus, p->due_ms);
    for (i = 0; i < p->count; i++) {
        ebi_slot *slot = &p->slots[i];
        bus->failed_attempts += slot->birth == EBI_BORN_DEAD;
        bus->died += slot->birth == EBI_BORN_DEAD;
        if (slot->entry && slot->birth != EBI_BORN_NONE &&
            ebi_publish_place(bus, slot->entry, slot->birth))
            slot->entry = NULL;
    }
    if (bus->state == EBI_STARTED && bus->cursor < p->last_seq) {
        bus->disk_more = 1;
        bus->wake = bus->idle > 0;
    }
}

/* Copies of the messages for the workers, as far as there is room in memory; the others are read
** from disk later. Running out of memory is no reason not to publish. */
EBI_FN void ebi_publish_copies(eb_bus *bus, ebi_publish *p)
{
    int room;
    size_t i;
    ebi_mutex_lock(&bus->store.lock);
    room = bus->state == EBI_STARTED && !bus->disk_more && bus->subs
               ? EB_READY_MAX - bus->ready_count : 0;
    ebi_mutex_unlock(&bus->store.lock);
    for (i = 0; i < p->count; i++)
        p->slots[i].entry = (int)i < room && i < EB_READY_MAX
                            ? ebi_entry_new(&bus->store, &p->msgs[i], ebi_payload_len(&p->msgs[i]),
                                            bus->store.node_id, NULL)
                            : NULL;
}

/* The body of eb_send, eb_post and eb_publish; w (may be NULL) is registered with the commit. */
EBI_FN eb_result ebi_publish_run(eb_bus *bus, const eb_message *msgs, size_t count, eb_id *ids,
                                 ebi_waiter *w)
{
    eb_store *store = &bus->store;
    ebi_publish p;
    ebi_slot one;
    eb_id one_id;
    eb_result rc = EB_OK;
    int level = EB_DURABLE_OFF, asks;
    size_t i;
    memset(&p, 0, sizeof p);
    if (count > 0 && !msgs) return ebi_error(EB_ERR_ARG, "msgs is NULL");
    if (count > INT32_MAX / sizeof(eb_id)) return ebi_error(EB_ERR_TOO_BIG, "too many messages");
    for (i = 0; i < count; i++) {
        rc = ebi_message_check(bus, &msgs[i], i);
        if (rc != EB_OK) return rc;
        asks = msgs[i].durability ? msgs[i].durability : store->durability;
        if (asks < level) level = asks; /* FULL is the smallest number */
    }
    ebi_mutex_lock(&store->lock);
    if (bus->state >= EBI_STOPPING) rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is shutting down");
    ebi_mutex_unlock(&store->lock);
    if (rc != EB_OK || count == 0) return rc;
    p.msgs = msgs;
    p.count = count;
    p.waiter = w;
    p.ids = ids ? ids : count == 1 ? &one_id
                                   : (eb_id *)ebi_alloc(&store->allocator, count * sizeof(eb_id));
    p.slots = count == 1 ? &one
                         : (ebi_slot *)ebi_alloc(&store->allocator, count * sizeof *p.slots);
    if (!p.ids || !p.slots) {
        rc = ebi_error(EB_ERR_NOMEM, "out of memory");
    } else {
        ebi_publish_copies(bus, &p);
        rc = ebi_writer_run(store, ebi_publish_func, ebi_publish_after, &p, level);
        for (i = 0; i < count; i++) {
            if (p.slots[i].entry) ebi_entry_drop(store, p.slots[i].entry);
            if (rc >= 0 && p.slots[i].birth == EBI_BORN_DEAD)
                ebi_unmatched_say(store, p.ids[i].str, msgs[i].type);
            if (rc < 0 && rc != EB_ERR_UNKNOWN) p.ids[i].str[0] = 0;
        }
    }
    if (p.slots != &one) ebi_free(&store->allocator, p.slots);
    if (!ids && p.ids != &one_id) ebi_free(&store->allocator, p.ids);
    return rc;
}

/* ===========================================================================
** >>claims   From disk to the workers, and back after a crash       [private]
** ======================================================================== */

typedef struct ebi_claim {
    ebi_entry *loaded, *loaded_last; /* read from disk in this transaction */
    ebi_entry *won, *won_last;       /* claimed in it */
    ebi_entry *dead, *dead_last;     /* nobody matches them, and the policy says so */
    ebi_entry *queue;                /* the ready entries, ours while claiming is set */
    int64_t cursor, next_due_ms, now_ms;
    int want, single, room, due_first, alone, more, parked, unmatched, ended, ran, looked;
    eb_result failed; /* EB_OK, or how it failed when it ran */
    char now[EBI_TIME_LEN + 1];
    char unmatched_type[EBI_TYPE_MAX + 1];
} ebi_claim;

/* Whether an earlier event of its key is under way, or has the turn; -1: SQLite failed. */
EBI_FN int ebi_claim_key_active(eb_store *store, const ebi_claim *c, const ebi_entry *e)
{
    sqlite3_stmt *s;
    int rc;
    if (!e->ordering_key) return 0;
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_ACTIVE);
    if (!s) return -1;
    ebi_bind_text(s, 1, e->ordering_key);
    sqlite3_bind_int64(s, 2, e->seq);
    sqlite3_bind_int64(s, 3, c->now_ms);
    rc = sqlite3_step(s);
    sqlite3_reset(s);
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : -1;
}

/* Leaves the event pending, out of the way: nobody matches it, its handler is paused, or an earlier
** one of its key is under way. If it was the next of its key, the one after it gets the turn. */
EBI_FN int ebi_claim_park(eb_store *store, ebi_claim *c, const ebi_entry *e, int pass_key_on)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_PARK);
    int rc;
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, e->seq);
    rc = ebi_db_step(s);
    c->parked = 1;
    if (rc != SQLITE_OK || !pass_key_on) return rc;
    return ebi_key_next(store, e->ordering_key, e->seq, c->now_ms);
}

/* The claim's one UPDATE. *won = 0: somebody else changed the row meanwhile. */
EBI_FN int ebi_claim_row(eb_store *store, ebi_claim *c, ebi_entry *e, int attempts, int *won)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_CLAIM);
    int rc;
    EB_ASSERT(e->token == 0 && attempts >= 1);
    if (!s) return ebi_db_code(&store->writer);
    e->token = ++ebi_bus_of(store)->next_token;
    e->counted = c->single || c->alone;
    sqlite3_bind_int64(s, 1, e->seq);
    sqlite3_bind_int64(s, 2, e->token);
    sqlite3_bind_int(s, 3, e->counted);
    ebi_bind_text(s, 4, store->node_id);
    sqlite3_bind_int(s, 5, attempts);
    ebi_bind_text(s, 6, c->now);
    sqlite3_bind_int(s, 7, e->failed); /* an old copy is none */
    rc = ebi_db_step(s);
    *won = rc == SQLITE_OK && sqlite3_changes(store->writer.handle) == 1;
    return rc == SQLITE_OK ? ebi_claim_mark(ebi_bus_of(store), e->seq) : rc;
}

/* Nobody matches: finished, dead or parked. The policy concerns only what was published in this
** start and never tried. */
EBI_FN int ebi_claim_unmatched(eb_store *store, ebi_claim *c, ebi_entry *e, int *taken)
{
    eb_bus *bus = ebi_bus_of(store);
    int fresh = e->born && e->born == bus->incarnation && !e->failed && !e->suspect && !e->retried;
    int rc, gone;
    EB_ASSERT(!e->token);
    if (!fresh || bus->on_unmatched == EB_UNMATCHED_KEEP) {
        if (!c->unmatched++) snprintf(c->unmatched_type, sizeof c->unmatched_type, "%s", e->type);
        return ebi_claim_park(store, c, e, 1);
    }
    if (bus->on_unmatched == EB_UNMATCHED_DLQ)
        rc = ebi_die_unclaimed(store, e->seq, ebi_no_handler_json, c->now);
    else
        rc = ebi_delete_unclaimed(store, e->seq);
    gone = rc == SQLITE_OK && sqlite3_changes(store->writer.handle) == 1;
    if (!gone) return rc; /* this copy was old: the row has ended or is claimed already */
    c->ended = 1;
    if (bus->on_unmatched == EB_UNMATCHED_DLQ) {
        ebi_entry_push(&c->dead, &c->dead_last, e);
        *taken = 1;
    } else {
        rc = ebi_finish_insert(store, e->seq, 0, c->now);
    }
    return rc == SQLITE_OK ? ebi_key_next(store, e->ordering_key, e->seq, c->now_ms) : rc;
}

/* Decides about one event and claims it. *taken: e now belongs to a list of c. */
EBI_FN int ebi_claim_try(eb_store *store, ebi_claim *c, ebi_entry *e, int *taken)
{
    eb_bus *bus = ebi_bus_of(store);
    int match, attempts, rc, active;
    *taken = 0;
    ebi_mutex_lock(&store->lock);
    match = ebi_subs_match(bus, e->type, &attempts);
    ebi_mutex_unlock(&store->lock);
    if (match == EBI_MATCH_NONE) return ebi_claim_unmatched(store, c, e, taken);
    active = ebi_claim_key_active(store, c, e);
    if (active < 0) return ebi_db_code(&store->writer);
    if (match == EBI_MATCH_PAUSED || active)
        return ebi_claim_park(store, c, e, match == EBI_MATCH_PAUSED && !active);
    if (e->suspect) c->alone = 1;
    rc = ebi_claim_row(store, c, e, attempts, taken);
    if (*taken) {
        ebi_entry_push(&c->won, &c->won_last, e);
        c->want--;
    }
    return rc;
}

/* Whether e has to wait for a claim of its own: it was in a batch that a crash ended. */
EBI_FN int ebi_claim_must_wait(const ebi_claim *c, const ebi_entry *e)
{
    return c->alone || (e->suspect && c->won != NULL);
}

/* Claims rows whose time has come. */
EBI_FN int ebi_claim_due(eb_store *store, ebi_claim *c)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DUE);
    ebi_entry *list = NULL, *last = NULL, *e;
    size_t bytes = 0;
    int rc = SQLITE_OK, taken;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (c->want <= 0 || c->alone || c->next_due_ms > c->now_ms) return SQLITE_OK;
    if (!s) return ebi_db_code(&store->writer);
    c->looked = 1;
    sqlite3_bind_int64(s, 1, c->now_ms);
    sqlite3_bind_int(s, 2, c->want);
    while (bytes < EB_READY_BYTES && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        e = ebi_entry_load(store, s);
        rc = e || list ? SQLITE_OK : ebi_db_no_event(s, 7); /* with what there is memory for */
        if (!e) break;
        bytes += e->bytes;
        ebi_entry_push(&list, &last, e);
    }
    sqlite3_reset(s);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW) rc = SQLITE_OK;
    while ((e = ebi_entry_pop(&list, &last)) != NULL) {
        taken = 0;
        if (rc == SQLITE_OK && !ebi_claim_must_wait(c, e)) rc = ebi_claim_try(store, c, e, &taken);
        if (!taken) ebi_entry_drop(store, e);
    }
    return rc;
}

/* Reads pending rows above the cursor into c->loaded while there is room. */
EBI_FN int ebi_claim_scan(eb_store *store, ebi_claim *c)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SCAN);
    ebi_entry *e;
    size_t bytes = 0;
    int rc = SQLITE_OK;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (!s) return ebi_db_code(&store->writer);
    ebi_mutex_lock(&store->lock);
    if (c->cursor < ebi_bus_of(store)->cursor) c->cursor = ebi_bus_of(store)->cursor;
    ebi_mutex_unlock(&store->lock);
    sqlite3_bind_int64(s, 1, c->cursor);
    sqlite3_bind_int(s, 2, c->room);
    while (bytes < EB_READY_BYTES && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        e = ebi_entry_load(store, s);
        rc = e || c->loaded ? SQLITE_ROW : ebi_db_no_event(s, 7); /* as far as memory goes */
        if (!e) break;
        bytes += e->bytes;
        ebi_entry_push(&c->loaded, &c->loaded_last, e);
        c->cursor = e->seq;
        c->room--;
    }
    sqlite3_reset(s);
    ebi_mutex_lock(&store->lock); /* a publish of this very commit needs not place its copy */
    if (ebi_bus_of(store)->cursor < c->cursor) ebi_bus_of(store)->cursor = c->cursor;
    ebi_mutex_unlock(&store->lock);
    c->more = rc == SQLITE_ROW || c->room == 0;
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Claims from the ready entries, then from what was just read. */
EBI_FN int ebi_claim_ready(eb_store *store, ebi_claim *c, ebi_entry **list, ebi_entry **last)
{
    ebi_entry *e;
    int rc = SQLITE_OK, taken;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    while (rc == SQLITE_OK && c->want > 0 && *list && !ebi_claim_must_wait(c, *list)) {
        e = ebi_entry_pop(list, last);
        rc = ebi_claim_try(store, c, e, &taken);
        if (!taken) ebi_entry_drop(store, e);
    }
    return rc;
}

/* Inside the transaction. c->queue has been filled with all of bus->ready by the caller. */
EBI_FN eb_result ebi_claim_func(eb_store *store, void *arg)
{
    ebi_claim *c = (ebi_claim *)arg;
    ebi_entry *last = c->queue;
    int rc = SQLITE_OK;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (c->ran++) /* one by one, after a failure: it will be done over from the start */
        return ebi_error(c->failed != EB_OK ? c->failed : EB_ERR_IO, "claiming failed");
    while (last && last->next) last = last->next;
    c->now_ms = ebi_now_ms(store);
    ebi_time_text(c->now_ms, c->now);
    if (c->due_first) rc = ebi_claim_due(store, c);
    if (rc == SQLITE_OK) rc = ebi_claim_ready(store, c, &c->queue, &last);
    if (rc == SQLITE_OK && !c->queue && c->more) {
        rc = ebi_claim_scan(store, c);
        if (rc == SQLITE_OK) rc = ebi_claim_ready(store, c, &c->loaded, &c->loaded_last);
    }
    if (rc == SQLITE_OK && !c->due_first) rc = ebi_claim_due(store, c);
    if (rc == SQLITE_OK && c->won && !c->won->next && !c->won->counted) {
        c->won->counted = 1; /* a batch of one is none: this very event runs next */
        rc = ebi_step_seq(store, EBI_SQL_COUNT_ATTEMPT, c->won->seq);
    }
    if (rc == SQLITE_OK) {
        rc = ebi_db_number(store, &store->writer, EBI_SQL_NEXT_DUE, &c->next_due_ms);
        if (c->next_due_ms == 0) c->next_due_ms = INT64_MAX;
    }
    if (rc != SQLITE_OK) c->failed = ebi_writer_error(store, rc, "claiming events");
    return c->failed;
}

/* Everything in memory that was not claimed is forgotten: the scan will read it again. */
EBI_FN void ebi_ready_forget(eb_bus *bus)
{
    EB_ASSERT(!bus->claiming || bus->store.leading);
    ebi_entries_free(&bus->store, bus->ready);
    bus->ready = bus->ready_last = NULL;
    bus->ready_count = 0;
    bus->ready_bytes = 0;
    bus->cursor = 0;
    bus->disk_more = 1;
    bus->parked = 0;
}

/* What was passed over may have somebody now: look at it again, after the claim under way if there
** is one. Lock held. */
EBI_FN void ebi_claim_rescan(eb_bus *bus)
{
    bus->rescan = bus->claiming;
    if (bus->claiming || !bus->parked) return;
    ebi_ready_forget(bus);
    ebi_cond_signal(&bus->work);
    ebi_cond_broadcast(&bus->news);
}

/* Back into ready, in order; count = 0: they are counted already. */
EBI_FN void ebi_claim_keep(eb_bus *bus, ebi_entry *e, int count)
{
    ebi_entry *next;
    for (; e; e = next) {
        next = e->next;
        ebi_entry_push(&bus->ready, &bus->ready_last, e);
        bus->ready_count += count;
        if (count) bus->ready_bytes += e->bytes;
    }
}

/* Lock held, after the commit. */
EBI_FN void ebi_claim_after(eb_store *store, void *arg, eb_result rc)
{
    ebi_claim *c = (ebi_claim *)arg;
    eb_bus *bus = ebi_bus_of(store);
    ebi_entry *e, *younger;
    EB_ASSERT(store->leading);
    EB_ASSERT(bus->claiming);
    bus->claim_rc = rc;
    if (rc != EB_OK) { /* the rows are as they were, or will be found by ebi_engine_resync() */
        ebi_entries_free(store, c->won);
        ebi_entries_free(store, c->dead);
        c->dead = NULL;
        ebi_entries_free(store, c->loaded);
        ebi_entries_free(store, c->queue);
        ebi_ready_forget(bus);
        ebi_engine_backoff(bus);
        return;
    }
    if (c->looked && c->next_due_ms <= c->now_ms && !c->won && !c->ended && !c->parked)
        ebi_engine_backoff(bus); /* due, but cannot be read: a damaged file. Do not spin. */
    else
        bus->backoff_ms = bus->retry_at_us = 0;
    if (c->cursor > bus->cursor) bus->cursor = c->cursor;
    bus->disk_more |= c->more;
    bus->next_due_ms = c->next_due_ms;
    bus->parked |= c->parked;
    if (c->ended) ebi_waiters_hit(bus, 0, EB_EMPTY);
    for (e = c->dead; e; e = e->next) {
        bus->failed_attempts++;
        bus->died++;
    }
    while ((e = ebi_entry_pop(&c->won, &c->won_last)) != NULL) {
        if (e->suspect) bus->solo = 1;
        ebi_entry_push(&bus->claimed, &bus->claimed_last, e);
        bus->claimed_count++;
    }
    younger = bus->ready; /* published meanwhile */
    bus->ready = bus->ready_last = NULL;
    ebi_claim_keep(bus, c->queue, 1);
    ebi_claim_keep(bus, c->loaded, 1);
    ebi_claim_keep(bus, younger, 0);
    if (bus->next_due_ms != INT64_MAX) ebi_keeper_by(bus, INT64_MIN);
    ebi_cond_broadcast(&bus->news);
}

/* Whether a claim could find something. Lock held. */
EBI_FN int ebi_claim_due_now(eb_bus *bus)
{
    if (bus->state != EBI_STARTED || bus->claiming || bus->solo) return 0;
    if (bus->retry_at_us && ebi_mono_us(&bus->store) < bus->retry_at_us) return 0;
    if (bus->ready && bus->ready->suspect && (bus->running || bus->claimed)) return 0;
    return bus->ready || bus->disk_more || bus->next_due_ms <= ebi_now_ms(&bus->store);
}

/* Claims the next events in one commit, shared with whatever else is queued. Lock held on entry and
** exit, not in between; `claiming` keeps others from doing the same. */
EBI_FN void ebi_claim_some(eb_bus *bus)
{
    eb_store *store = &bus->store;
    ebi_claim c;
    ebi_entry *e;
    eb_log_entry note;
    eb_result rc;
    EB_ASSERT(!bus->claiming);
    memset(&c, 0, sizeof c);
    c.want = bus->running || bus->claimed ? bus->batch - bus->claimed_count : bus->batch;
    if (c.want < 1) c.want = 1;
    c.single = c.want == 1;
    c.room = EB_READY_MAX / 4;
    c.cursor = bus->cursor;
    c.next_due_ms = bus->next_due_ms;
    c.more = bus->disk_more; /* taken, not copied: a publisher may set it again meanwhile */
    bus->disk_more = 0;
    c.due_first = bus->turn ^= 1;
    c.queue = bus->ready;
    bus->ready = bus->ready_last = NULL;
    bus->ready_count = 0;
    bus->ready_bytes = 0;
    bus->claiming = 1;
    ebi_mutex_unlock(&store->lock);
    rc = ebi_writer_run(store, ebi_claim_func, ebi_claim_after, &c, EB_DURABLE_NORMAL);
    if (rc != EB_OK) ebi_log_note(store, EB_LOG_ERROR, "cannot claim events", ebi_error_text);
    for (e = c.dead; e; e = e->next) ebi_unmatched_say(store, e->id.str, e->type);
    ebi_entries_free(store, c.dead);
    if (c.unmatched && !bus->unmatched_said) {
        memset(&note, 0, sizeof note);
        note.level = EB_LOG_WARN;
        note.message = "events wait: no handler matches their type (said once)";
        note.type = c.unmatched_type;
        note.next_delay_ms = -1;
        bus->unmatched_said = 1;
        ebi_log(store, &note);
    }
    ebi_mutex_lock(&store->lock);
    bus->claiming = 0;
    if (bus->rescan) ebi_claim_rescan(bus);
    ebi_cond_broadcast(&bus->news);
}

/* After the connection was opened anew: rows claimed in a commit whose end is unknown have a token
** that nobody in memory holds. They go back as in a batch that was interrupted. By the leader. */
EBI_FN int ebi_token_held(eb_bus *bus, int64_t token)
{
    const ebi_entry *lists[3], *e;
    const ebi_run *r;
    int i;
    lists[0] = bus->claimed;
    lists[1] = bus->outcomes;
    lists[2] = bus->taking;
    for (i = 0; i < 3; i++)
        for (e = lists[i]; e; e = e->next)
            if (e->token == token) return 1;
    for (r = bus->runs; r; r = r->next)
        if (r->entry && !r->lost && r->entry->token == token) return 1;
    return token == bus->timed_out;
}

EBI_FN eb_result ebi_engine_resync(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_entry e;
    int64_t now_ms = ebi_now_ms(store);
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_CLAIMS);
    int rc, held, changed, owner;
    EB_ASSERT(store->leading);
    if (!bus) return EB_OK;
    ebi_mutex_lock(&store->lock);
    owner = bus->state == EBI_STARTED || bus->state == EBI_STOPPING;
    ebi_mutex_unlock(&store->lock);
    if (!owner) return EB_OK; /* then the claims in the file are somebody else's */
    ebi_time_text(now_ms, now);
    memset(&e, 0, sizeof e);
    rc = s ? ebi_db_run(store, &store->writer, EBI_SQL_BEGIN) : ebi_db_code(&store->writer);
    while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        rc = SQLITE_OK;
        e.seq = sqlite3_column_int64(s, 0);
        e.token = sqlite3_column_int64(s, 1);
        ebi_mutex_lock(&store->lock);
        held = ebi_token_held(bus, e.token);
        ebi_mutex_unlock(&store->lock);
        if (!held) rc = ebi_outcome_step(store, EBI_SQL_SNOOZE, &e, now_ms, NULL, now, &changed);
    }
    sqlite3_reset(s);
    if (rc == SQLITE_DONE) rc = ebi_db_run(store, &store->writer, EBI_SQL_COMMIT);
    if (rc != SQLITE_OK) {
        ebi_writer_error(store, rc, "reading the claims back");
        ebi_db_rollback(store, &store->writer);
        return ebi_db_result(rc);
    }
    ebi_mutex_lock(&store->lock);
    bus->next_due_ms = 0;
    if (!bus->claiming) ebi_ready_forget(bus);
    bus->disk_more = 1;
    ebi_cond_broadcast(&bus->work);
    ebi_mutex_unlock(&store->lock);
    return EB_OK;
}

/* ---- crash recovery ---- */

typedef struct ebi_recovered { /* what is to be said in the log once it is committed */
    eb_id id;
    char type[EBI_TYPE_MAX + 1];
    int attempt, max_attempts, dead;
} ebi_recovered;
typedef struct ebi_recovery {
    int64_t after, reached; /* reached: by this run of the function, which may be run again */
    int rows, failures, first;
    ebi_recovered said[256];
} ebi_recovery;
static const char ebi_interrupted[] = "interrupted: the process ended while the handler ran";

/* One stuck row. Claimed alone (attempts > failed), or set to processing by hand: its handler may
** have ended the process, and that is a failed attempt. Claimed in a batch: it may never have run;
** no attempt is spent, but from now on it is claimed alone, so that a poison event convicts only
** itself. */
EBI_FN int ebi_recover_row(eb_store *store, ebi_recovery *r, sqlite3_stmt *row, int64_t now_ms,
                           const char *now)
{
    eb_bus *bus = ebi_bus_of(store);
    int attempts = sqlite3_column_int(row, 1), failed = sqlite3_column_int(row, 2);
    int max = sqlite3_column_int(row, 3), counted = attempts > failed;
    ebi_recovered *say = &r->said[r->failures];
    sqlite3_stmt *s;
    int rc, index;
    EB_ASSERT(r->failures < 256);
    if (sqlite3_column_type(row, 3) == SQLITE_NULL) max = bus->policy.max_retries + 1;
    index = !counted ? EBI_SQL_SNOOZE : failed + 1 >= max ? EBI_SQL_DIE : EBI_SQL_RETRY;
    s = ebi_db_stmt(store, &store->writer, index);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, sqlite3_column_int64(row, 0));
    sqlite3_bind_value(s, 2, sqlite3_column_value(row, 4));
    if (index == EBI_SQL_DIE) ebi_bind_text(s, 3, now);
    else sqlite3_bind_int64(s, 3, now_ms);
    if (index == EBI_SQL_RETRY) ebi_bind_text(s, 4, "pending");
    if (index == EBI_SQL_SNOOZE) sqlite3_bind_int(s, 4, 0);
    if (index != EBI_SQL_DIE) {
        ebi_bind_text(s, 5, now);
        sqlite3_bind_int(s, 6, 1);
    }
    if (index != EBI_SQL_SNOOZE)
        ebi_bind_text(s, 9, "\"interrupted: the process ended while the handler ran\"");
    rc = ebi_db_step(s);
    if (rc == SQLITE_OK && index == EBI_SQL_DIE) {
        s = ebi_db_stmt(store, &store->writer, EBI_SQL_DELETE_LIVE);
        if (!s) return ebi_db_code(&store->writer);
        sqlite3_bind_int64(s, 1, sqlite3_column_int64(row, 0));
        sqlite3_bind_value(s, 2, sqlite3_column_value(row, 4));
        rc = ebi_db_step(s);
    }
    if (counted) {
        r->failures++;
        snprintf(say->id.str, sizeof say->id.str, "%s", ebi_column(row, 5));
        snprintf(say->type, sizeof say->type, "%s", ebi_column(row, 6));
        say->attempt = failed + 1;
        say->max_attempts = max;
        say->dead = index == EBI_SQL_DIE;
    }
    return rc;
}

/* Up to 256 stuck rows in one transaction. */
EBI_FN eb_result ebi_recover_func(eb_store *store, void *arg)
{
    ebi_recovery *r = (ebi_recovery *)arg;
    eb_bus *bus = ebi_bus_of(store);
    int64_t now_ms = ebi_now_ms(store), after = r->after, bits;
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_STUCK);
    int rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (r->first) {
        sqlite3_randomness((int)sizeof bits, &bits);
        bus->incarnation = (bits & INT64_C(0x3FFFFFFFFFFF)) + 1;
        bus->next_token = bus->incarnation << 16;
    }
    if (!s) return ebi_writer_error(store, ebi_db_code(&store->writer), "recovery");
    ebi_time_text(now_ms, now);
    sqlite3_bind_int64(s, 1, after);
    r->rows = r->failures = 0;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        after = sqlite3_column_int64(s, 0);
        r->rows++;
        rc = ebi_recover_row(store, r, s, now_ms, now);
        if (rc != SQLITE_OK) break;
    }
    sqlite3_reset(s);
    if (rc != SQLITE_DONE) return ebi_writer_error(store, rc, "recovery");
    r->reached = after;
    return EB_OK;
}

EBI_FN eb_result ebi_recover(eb_bus *bus)
{
    eb_store *store = &bus->store;
    ebi_recovery *r = (ebi_recovery *)ebi_alloc(&store->allocator, sizeof *r);
    eb_log_entry e;
    eb_result rc;
    int i;
    EB_ASSERT(bus->state == EBI_STARTING);
    if (!r) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memset(r, 0, sizeof *r);
    r->first = 1;
    do {
        rc = ebi_writer_run(store, ebi_recover_func, NULL, r, EB_DURABLE_NORMAL);
        r->after = r->reached;
        r->first = 0;
        for (i = 0; rc == EB_OK && i < r->failures; i++) {
            memset(&e, 0, sizeof e);
            e.level = r->said[i].dead ? EB_LOG_ERROR : EB_LOG_WARN;
            e.message = r->said[i].dead ? "event is dead" : "attempt failed";
            e.event_id = r->said[i].id.str;
            e.type = r->said[i].type;
            e.error = ebi_interrupted;
            e.attempt = r->said[i].attempt;
            e.max_attempts = r->said[i].max_attempts;
            e.next_delay_ms = r->said[i].dead ? -1 : 0;
            ebi_log(store, &e);
        }
    } while (rc == EB_OK && r->rows == 256);
    ebi_free(&store->allocator, r);
    return rc;
}

/* ===========================================================================
** >>attempts   Running the handlers of one event                    [private]
** ======================================================================== */

/* Frees a removed subscription nobody uses any more. Lock held. */
EBI_FN void ebi_sub_release(eb_bus *bus, ebi_sub *s)
{
    EB_ASSERT(s->calls >= 0 && s->keep >= 0);
    if (!s->removed || s->calls > 0 || s->keep) return;
    if (s->policy.schedule_ms) ebi_free(&bus->store.allocator, s->policy.schedule_ms);
    ebi_free(&bus->store.allocator, s->pattern);
    ebi_free(&bus->store.allocator, s);
}

/* The event as the handler sees it. */
EBI_FN void ebi_run_show(eb_bus *bus, ebi_run *run, ebi_entry *e, int64_t now_ms)
{
    eb_event *v = &run->event;
    memset(v, 0, sizeof *v);
    v->id = e->id;
    v->seq = e->seq;
    v->type = e->type;
    v->payload = e->payload ? e->payload : "null";
    v->payload_len = e->payload ? e->payload_len : 4;
    v->metadata = e->metadata;
    v->status = EB_PROCESSING;
    v->retry_count = e->failed;
    v->last_error = e->errors;
    v->ordering_key = e->ordering_key;
    v->idempotency_key = e->idempotency_key;
    v->producer = e->producer;
    v->created_at_ms = e->created_at_ms;
    v->updated_at_ms = now_ms;
    memset(&run->pub, 0, sizeof run->pub);
    run->pub.event = v;
    run->pub.attempt = e->failed + 1;
    run->pub.bus = bus;
    run->pub.impl = run;
}

/* Text of a failed attempt, as JSON, into e; and one log entry. No lock held. */
EBI_FN void ebi_attempt_say(eb_bus *bus, ebi_entry *e, const char *text, int max, int64_t delay)
{
    char quoted[EBI_ERROR_MAX * 6 + 16], clean[EBI_ERROR_MAX + 8];
    size_t n = ebi_json_quote(quoted, sizeof quoted, text, EBI_ERROR_MAX);
    eb_log_entry entry;
    e->error_json = (char *)ebi_alloc(&bus->store.allocator, n + 1);
    if (e->error_json) memcpy(e->error_json, quoted, n + 1);
    memset(&entry, 0, sizeof entry);
    entry.level = delay < 0 ? EB_LOG_ERROR : EB_LOG_WARN;
    entry.message = delay < 0 ? "event is dead" : "attempt failed";
    entry.event_id = e->id.str;
    entry.type = e->type;
    ebi_text_clean(clean, sizeof clean, text, EBI_ERROR_MAX, 0);
    entry.error = clean;
    entry.attempt = e->failed + 1;
    entry.max_attempts = max;
    entry.next_delay_ms = delay;
    ebi_log(&bus->store, &entry);
}

/* Decides retry or death of a failed attempt. No lock held. Returns the outcome. */
EBI_FN int ebi_attempt_failed(eb_bus *bus, ebi_entry *e, const ebi_policy *policy,
                              const char *text, int hopeless)
{
    int max = policy->max_retries + 1; /* see ebi_policy_resolve() */
    int dead = hopeless || e->failed + 1 >= max;
    int64_t delay = dead ? -1 : ebi_policy_delay(policy, e->failed + 1);
    EB_ASSERT(e->failed >= 0 && policy->max_retries >= 0);
    ebi_attempt_say(bus, e, text, max, delay);
    e->due_ms = dead ? 0 : ebi_due(ebi_now_ms(&bus->store), delay);
    return dead ? EBI_OUT_DEAD : EBI_OUT_RETRY;
}

/* Turns what a handler returned into an outcome. No lock held; sub is kept alive by its call. */
EBI_FN int ebi_attempt_outcome(eb_bus *bus, ebi_run *run, ebi_sub *sub, eb_result rc, int late)
{
    ebi_entry *e = run->entry;
    char text[160];
    if (late) {
        snprintf(text, sizeof text, "timed out after %lld ms", (long long)sub->timeout_ms);
        return ebi_attempt_failed(bus, e, &sub->policy, text, 0);
    }
    if (rc == EB_OK || rc == EB_DUPLICATE) return EBI_OUT_NONE;
    if (rc == EB_FAILED && run->outcome == EBI_OUT_SNOOZE) {
        e->due_ms = ebi_due(ebi_now_ms(&bus->store), run->snooze_ms);
        return EBI_OUT_SNOOZE;
    }
    if (rc == EB_FAILED && run->outcome != EBI_OUT_NONE)
        return ebi_attempt_failed(bus, e, &sub->policy, run->error, run->outcome == EBI_OUT_DEAD);
    return ebi_attempt_failed(bus, e, &sub->policy, eb_strerror(rc), 0);
}

/* Whether the handler forked and this is the child. The file is the parent's, and the lock may be
** held by a thread that does not exist here: it gets a new one, to find its way out with. */
EBI_FN int ebi_attempt_forked(eb_bus *bus)
{
    if (bus->store.pid == ebi_platform_pid()) return 0;
    ebi_mutex_init(&bus->store.lock);
    ebi_mutex_lock(&bus->store.lock);
    bus->state = EBI_FORKED;
    return 1;
}

/* Calls one handler. Lock held on entry and exit, not during the call. Returns the outcome;
** EBI_OUT_NONE: it succeeded, or the run was lost meanwhile. */
EBI_FN int ebi_attempt_call(eb_bus *bus, ebi_run *run, ebi_sub *sub)
{
    eb_store *store = &bus->store;
    int64_t now_us = ebi_mono_us(store), limit = sub->timeout_ms;
    eb_result rc;
    int outcome = EBI_OUT_NONE, late;
    EB_ASSERT(run->entry && !run->lost && !run->sub);
    sub->calls++;
    run->sub = sub;
    run->outcome = EBI_OUT_NONE;
    run->error[0] = 0;
    run->deadline_us = -1;
    if (limit >= 0 && limit < INT64_MAX / 2000 - now_us / 1000)
        run->deadline_us = now_us + limit * 1000;
    run->pub.max_attempts = sub->policy.max_retries + 1;
    run->pub.deadline_ms = run->deadline_us < 0 ? EB_NONE : ebi_add(ebi_now_ms(store), limit);
    if (run->deadline_us >= 0) ebi_keeper_by(bus, run->deadline_us);
    ebi_mutex_unlock(&store->lock);
    EBI_YIELD();
    rc = sub->handler(&run->pub, sub->user);
    EBI_YIELD();
    if (ebi_attempt_forked(bus)) return EBI_OUT_NONE;
    ebi_mutex_lock(&store->lock);
    late = !bus->workers && run->deadline_us >= 0 && ebi_mono_us(store) > run->deadline_us;
    if (!run->lost) {
        run->deadline_us = -1;
        ebi_mutex_unlock(&store->lock);
        outcome = ebi_attempt_outcome(bus, run, sub, rc, late);
        ebi_mutex_lock(&store->lock);
    }
    sub->calls--;
    run->sub = NULL;
    ebi_cond_broadcast(&bus->news);
    ebi_sub_release(bus, sub);
    return outcome;
}

/* How many to claim at once: more while handlers are quick and events wait, one when not. */
EBI_FN void ebi_batch_adapt(eb_bus *bus, int64_t took_us)
{
    if (took_us > EBI_FAST_US) bus->batch = 1;
    else if (!bus->claimed && (bus->ready || bus->disk_more) && bus->batch < EB_CLAIM_MAX)
        bus->batch *= 2;
}

/* Runs all handlers of e, in order, until one fails. Lock held on entry and exit. Returns 1 if the
** outcome should be committed at once. If the run is lost on the way, somebody else has taken care
** of the outcome, and this thread only lets go. */
EBI_FN int ebi_attempt(eb_bus *bus, ebi_run *run, ebi_entry *e)
{
    ebi_sub *sub;
    int64_t order = 0, start_us = ebi_mono_us(&bus->store);
    int outcome = EBI_OUT_NONE, called = 0, urgent = 0;
    EB_ASSERT(!run->entry && e->refs == 1 && e->token != 0);
    run->entry = e;
    run->lost = 0;
    run->thread = ebi_thread_self();
    run->next = bus->runs;
    bus->runs = run;
    bus->running++;
    ebi_run_show(bus, run, e, ebi_now_ms(&bus->store));
    while (outcome == EBI_OUT_NONE && !run->lost &&
           (sub = ebi_subs_next(bus, e->type, order)) != NULL) {
        order = sub->order;
        called++;
        outcome = ebi_attempt_call(bus, run, sub);
        if (bus->state == EBI_FORKED) return 0;
    }
    if (run->lost) {
        bus->stale++;
        ebi_entry_drop(&bus->store, e);
    } else {
        ebi_run **at = &bus->runs;
        while (*at != run) at = &(*at)->next;
        *at = run->next;
        bus->running--;
        if (e->suspect) bus->solo = 0;
        if (outcome == EBI_OUT_NONE) outcome = EBI_OUT_DONE;
        if (called == 0) { /* the last one that matched was unsubscribed: back, untried */
            outcome = EBI_OUT_RELEASE;
            e->due_ms = ebi_now_ms(&bus->store);
        }
        bus->delivered += outcome == EBI_OUT_DONE;
        bus->failed_attempts += outcome == EBI_OUT_RETRY || outcome == EBI_OUT_DEAD;
        bus->died += outcome == EBI_OUT_DEAD;
        if (called == 0) ebi_due_at(bus, e->due_ms);
        ebi_batch_adapt(bus, ebi_mono_us(&bus->store) - start_us);
        urgent = ebi_outcome_push(bus, e, outcome);
    }
    run->entry = NULL;
    return urgent;
}

/* eb_fail and eb_reject. */
EBI_FN eb_result ebi_run_answer(eb_delivery *delivery, int outcome, const char *fmt, va_list args)
    EB_PRINTF(3, 0);
EBI_FN eb_result ebi_run_answer(eb_delivery *delivery, int outcome, const char *fmt, va_list args)
{
    ebi_run *run = delivery ? (ebi_run *)delivery->impl : NULL;
    eb_result rc;
    if (!run) return ebi_error(EB_ERR_ARG, "delivery is NULL");
    rc = ebi_store_check(&delivery->bus->store);
    if (rc != EB_OK) return rc;
    run->outcome = outcome;
    run->error[0] = 0;
    if (fmt) vsnprintf(run->error, sizeof run->error, fmt, args);
    return EB_FAILED;
}

/* The run of this thread, if it is inside a handler of this bus. Lock held. */
EBI_FN ebi_run *ebi_run_here(eb_bus *bus)
{
    ebi_run *r;
    ebi_worker *w;
    ebi_thread_id self = ebi_thread_self();
    for (r = bus->runs; r; r = r->next)
        if (r->sub && ebi_thread_same(r->thread, self)) return r;
    for (w = bus->all_workers; w; w = w->next)
        if (w->run.sub && ebi_thread_same(w->run.thread, self)) return &w->run;
    return NULL;
}

/* ===========================================================================
** >>workers   Threads that run handlers, and the keeper             [private]
** ======================================================================== */

EBI_FN void ebi_bus_free(eb_bus *bus);

/* A thread came back: what was paused may be tried again. Lock held. */
EBI_FN void ebi_subs_resume(eb_bus *bus)
{
    ebi_sub *s;
    for (s = bus->subs; s; s = s->next) s->paused = 0;
    ebi_claim_rescan(bus);
}

EBI_FN void *ebi_worker_main(void *arg)
{
    ebi_worker *w = (ebi_worker *)arg, **at;
    eb_bus *bus = w->bus;
    eb_allocator a = bus->store.allocator; /* the bus may be gone before w is */
    ebi_entry *e;
    int last, urgent;
    ebi_mutex_lock(&bus->store.lock);
    while (bus->state == EBI_STARTED) {
        e = ebi_entry_pop(&bus->claimed, &bus->claimed_last);
        if (e) {
            bus->claimed_count--;
            if (bus->idle > 0 && (bus->claimed || ebi_claim_due_now(bus)))
                ebi_cond_signal(&bus->work); /* there is more: one wakes the next */
            urgent = ebi_attempt(bus, &w->run, e);
            if (w->run.lost) break;
            if (urgent) {
                ebi_mutex_unlock(&bus->store.lock);
                ebi_engine_flush(bus);
                ebi_mutex_lock(&bus->store.lock);
            }
        } else if (ebi_claim_due_now(bus)) {
            ebi_claim_some(bus);
        } else {
            bus->idle++;
            ebi_cond_wait(&bus->work, &bus->store.lock, -1);
            bus->idle--;
        }
    }
    if (bus->state == EBI_FORKED) return NULL;
    for (at = &bus->all_workers; *at && *at != w;) at = &(*at)->next;
    if (w->run.lost) { /* its place was taken long ago; this thread is detached */
        bus->lost_workers--;
        if (*at) *at = w->next;
        ebi_subs_resume(bus);
        last = --bus->refs == 0;
        ebi_cond_broadcast(&bus->news);
        ebi_mutex_unlock(&bus->store.lock);
        ebi_free(&a, w);
        if (last) ebi_bus_free(bus);
        return NULL;
    }
    w->ended = 1;
    bus->workers_alive--;
    ebi_cond_broadcast(&bus->news);
    ebi_cond_signal(&bus->keeper);
    ebi_mutex_unlock(&bus->store.lock);
    return NULL;
}

/* Starts one more worker. Lock held. */
EBI_FN int ebi_worker_start(eb_bus *bus)
{
    ebi_worker *w = (ebi_worker *)ebi_alloc(&bus->store.allocator, sizeof *w);
    EB_ASSERT(bus->workers > 0);
    if (!w) return 0;
    memset(w, 0, sizeof *w);
    w->bus = bus;
    if (ebi_thread_start(&w->thread, ebi_worker_main, w) != 0) {
        ebi_free(&bus->store.allocator, w);
        return 0;
    }
    w->next = bus->all_workers;
    bus->all_workers = w;
    bus->workers_alive++;
    return 1;
}

/* Gives up on a run whose handler does not return. Lock held. Its entry keeps a reference: the
** handler may read the event until it returns. */
EBI_FN void ebi_run_lose(eb_bus *bus, ebi_run *run)
{
    ebi_run **at = &bus->runs;
    ebi_worker *w;
    EB_ASSERT(!run->lost && run->entry);
    while (*at != run) at = &(*at)->next;
    *at = run->next;
    bus->running--;
    if (run->entry->suspect) bus->solo = 0;
    run->lost = 1;
    bus->batch = 1;
    for (w = bus->all_workers; w; w = w->next) {
        if (&w->run != run) continue;
        ebi_thread_detach(w->thread);
        bus->workers_alive--;
        bus->lost_workers++;
        bus->refs++;
    }
}

/* A handler is over its deadline: a failed attempt, a lost thread. Lock held on entry and exit. */
EBI_FN void ebi_keeper_timeout(eb_bus *bus, ebi_run *run)
{
    eb_store *store = &bus->store;
    ebi_entry *e = run->entry;
    ebi_sub *sub = run->sub;
    char text[80];
    int outcome, paused = 0, urgent;
    EB_ASSERT(e && sub && sub->calls > 0);
    if (bus->lost_workers >= EB_LOST_MAX - 1 && !sub->paused) sub->paused = paused = 1;
    ebi_run_lose(bus, run);
    e->refs++;
    sub->keep++;
    bus->timed_out = e->token; /* still held, though no longer in `runs` */
    ebi_mutex_unlock(&store->lock);
    snprintf(text, sizeof text, "timed out after %lld ms", (long long)sub->timeout_ms);
    outcome = ebi_attempt_failed(bus, e, &sub->policy, text, 0);
    if (paused)
        ebi_log_note(store, EB_LOG_ERROR, "too many handlers never returned: subscription paused",
                     sub->pattern);
    ebi_mutex_lock(&store->lock);
    sub->keep--;
    ebi_sub_release(bus, sub);
    bus->failed_attempts++;
    bus->died += outcome == EBI_OUT_DEAD;
    urgent = ebi_outcome_push(bus, e, outcome);
    bus->timed_out = 0;
    if (urgent) bus->outcome_since_us = 0; /* the keeper, which is who we are, flushes it now */
}

/* Looks for what other processes did. No lock held. */
EBI_FN void ebi_look_outside(eb_bus *bus)
{
    eb_store *store = &bus->store;
    int64_t version = store->data_version;
    int rc, changed;
    if (store->in_memory) return;
    ebi_writer_enter(store);
    rc = store->writer.handle
             ? ebi_db_number(store, &store->writer, EBI_SQL_DATA_VERSION, &version)
             : SQLITE_CANTOPEN;
    if (rc == SQLITE_OK) store->moved = ebi_db_moved(&store->writer);
    changed = rc == SQLITE_OK && version != store->data_version;
    if (changed) store->data_version = version;
    ebi_writer_leave(store);
    if (!changed) return;
    ebi_mutex_lock(&store->lock);
    bus->disk_more = 1;
    bus->next_due_ms = 0; /* the next claim finds out */
    ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_cond_signal(&bus->work);
    ebi_cond_broadcast(&bus->news);
    ebi_mutex_unlock(&store->lock);
}

/* Leaves a checkpoint to the keeper, if there is one. Lock held. */
EBI_FN int ebi_keeper_checkpoints(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    if (!bus || !bus->keeper_alive) return 0;
    store->wal_done = store->wal_frames;
    bus->checkpoint = 1;
    ebi_cond_signal(&bus->keeper);
    return 1;
}

/* The keeper's checkpoint. No lock held. */
EBI_FN void ebi_keeper_checkpoint(eb_bus *bus)
{
    eb_store *store = &bus->store;
    eb_result rc = EB_OK;
    int code;
    if (!bus->checker.handle) rc = ebi_db_open(store, &bus->checker, 0);
    if (rc == EB_OK) rc = ebi_db_level(&bus->checker, store->durability);
    if (rc != EB_OK) return; /* the leader will do it */
    code = sqlite3_wal_checkpoint_v2(bus->checker.handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL,
                                     NULL);
    if ((code & 0xFF) != SQLITE_IOERR) return;
    ebi_writer_enter(store);
    store->must_reopen = 1; /* what it read may not be on disk */
    ebi_writer_leave(store);
    ebi_db_error(&bus->checker, code, "checkpoint");
    ebi_log_note(store, EB_LOG_ERROR, "checkpoint failed", ebi_error_text);
}

/* The earliest run that is over its deadline, or NULL; *next_us: when to look again. Lock held. */
EBI_FN ebi_run *ebi_keeper_overdue(eb_bus *bus, int64_t now_us, int64_t *next_us)
{
    ebi_run *r;
    EB_ASSERT(bus->workers > 0);
    for (r = bus->runs; r; r = r->next) {
        if (!r->sub || r->deadline_us < 0) continue;
        if (r->deadline_us <= now_us) return r;
        if (r->deadline_us < *next_us) *next_us = r->deadline_us;
    }
    return NULL;
}

/* What is left in memory at the end goes back to disk, untried. Lock held. */
EBI_FN void ebi_release_claims(eb_bus *bus)
{
    ebi_entry *e;
    EB_ASSERT(bus->state != EBI_STARTED && !bus->claiming);
    while ((e = ebi_entry_pop(&bus->claimed, &bus->claimed_last)) != NULL) {
        bus->claimed_count--;
        e->due_ms = ebi_now_ms(&bus->store);
        ebi_outcome_push(bus, e, EBI_OUT_RELEASE);
    }
    ebi_entries_free(&bus->store, bus->ready);
    bus->ready = bus->ready_last = NULL;
    bus->ready_count = 0;
    bus->ready_bytes = 0;
}

/* The end of a bus: outcomes on disk, file no longer owned. No lock held; by the keeper, or by the
** thread that pumps or shuts down. */
EBI_FN void ebi_bus_finish(eb_bus *bus)
{
    eb_store *store = &bus->store;
    EB_ASSERT(bus->state == EBI_STOPPING);
    ebi_mutex_lock(&store->lock);
    while (bus->runs) ebi_run_lose(bus, bus->runs); /* only those that were given up */
    while (bus->claiming) ebi_cond_wait(&bus->news, &store->lock, -1);
    ebi_mutex_unlock(&store->lock);
    ebi_writer_enter(store); /* whatever is being born claimed is in `claimed` after this */
    ebi_writer_leave(store);
    ebi_mutex_lock(&store->lock);
    ebi_release_claims(bus);
    ebi_mutex_unlock(&store->lock);
    if (ebi_engine_flush(bus) != EB_OK)
        ebi_log_note(store, EB_LOG_ERROR, "last outcomes not recorded: they will run again",
                     ebi_error_text);
    ebi_db_close(&bus->owner);
    ebi_mutex_lock(&store->lock);
    bus->state = EBI_STOPPED;
    ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_cond_broadcast(&bus->news);
    ebi_mutex_unlock(&store->lock);
}

/* What the keeper does in a turn. Each: lock held on entry and exit; 1 if it did something, so that
** the time has to be read again; else it says by when it wants to be asked again. */
typedef struct ebi_keeper {
    int64_t now_us, next_us, poll_us, hire_us;
} ebi_keeper;

EBI_FN void ebi_keeper_again(ebi_keeper *k, int64_t at_us)
{
    if (at_us < k->next_us) k->next_us = at_us;
}

/* Handlers over their deadline. */
EBI_FN int ebi_keeper_deadlines(eb_bus *bus, ebi_keeper *k)
{
    ebi_run *run = ebi_keeper_overdue(bus, k->now_us, &k->next_us);
    if (run) ebi_keeper_timeout(bus, run);
    return run != NULL;
}

/* A new thread in the place of a lost one; without memory or threads for it, again in a second. */
EBI_FN int ebi_keeper_hire(eb_bus *bus, ebi_keeper *k)
{
    if (bus->state != EBI_STARTED || bus->workers_alive >= bus->workers) return 0;
    if (k->hire_us <= k->now_us && ebi_worker_start(bus)) return 1;
    if (k->hire_us <= k->now_us) k->hire_us = k->now_us + 1000000;
    ebi_keeper_again(k, k->hire_us);
    return 0;
}

/* Acks that found no commit to ride on. */
EBI_FN int ebi_keeper_acks(eb_bus *bus, ebi_keeper *k)
{
    int64_t due_us = bus->retry_at_us;
    if (!bus->outcomes) return 0;
    if (due_us == 0) due_us = bus->outcome_since_us + EB_ACK_DELAY_MS * 1000;
    ebi_keeper_again(k, due_us);
    if (due_us > k->now_us) return 0;
    ebi_mutex_unlock(&bus->store.lock);
    if (ebi_engine_flush(bus) != EB_OK)
        ebi_log_note(&bus->store, EB_LOG_ERROR, "cannot record outcomes yet", ebi_error_text);
    ebi_mutex_lock(&bus->store.lock);
    return 1;
}

/* A checkpoint that somebody left to us; a look for other processes' commits. */
EBI_FN int ebi_keeper_files(eb_bus *bus, ebi_keeper *k)
{
    int checkpoint = bus->checkpoint;
    if (k->poll_us == 0) k->poll_us = k->now_us + bus->idle_poll_ms * 1000;
    if (bus->idle_poll_ms >= 0) ebi_keeper_again(k, k->poll_us);
    if (!checkpoint && !bus->look && (bus->idle_poll_ms < 0 || k->poll_us > k->now_us)) return 0;
    if (checkpoint) bus->checkpoint = 0;
    else bus->look = 0, k->poll_us = 0;
    ebi_mutex_unlock(&bus->store.lock);
    if (checkpoint) ebi_keeper_checkpoint(bus);
    else ebi_look_outside(bus);
    ebi_mutex_lock(&bus->store.lock);
    return 1;
}

/* Events that are due: somebody idle is woken for them, or the keeper wakes up when they are. */
EBI_FN int ebi_keeper_due(eb_bus *bus, ebi_keeper *k)
{
    int64_t wait_ms;
    if (bus->retry_at_us > k->now_us) ebi_keeper_again(k, bus->retry_at_us);
    if (bus->state == EBI_STARTED && bus->idle > 0 && ebi_claim_due_now(bus)) {
        ebi_cond_signal(&bus->work);
    } else if (bus->next_due_ms != INT64_MAX) {
        wait_ms = bus->next_due_ms - ebi_now_ms(&bus->store);
        if (wait_ms > 0 && wait_ms < 3600000) ebi_keeper_again(k, k->now_us + wait_ms * 1000);
    }
    return 0;
}

/* The thread that keeps the time: does what is to be done and sleeps until there is more. */
EBI_FN void *ebi_keeper_main(void *arg)
{
    eb_bus *bus = (eb_bus *)arg;
    eb_store *store = &bus->store;
    ebi_keeper k;
    memset(&k, 0, sizeof k);
    ebi_mutex_lock(&store->lock);
    while (bus->state == EBI_STARTED || (bus->workers_alive > 0 && !bus->abandon)) {
        k.now_us = ebi_mono_us(store);
        k.next_us = k.now_us + INT64_C(3600000000);
        if (ebi_keeper_deadlines(bus, &k) || ebi_keeper_hire(bus, &k) ||
            ebi_keeper_acks(bus, &k) || ebi_keeper_files(bus, &k) || ebi_keeper_due(bus, &k))
            continue;
        bus->keeper_until_us = k.next_us;
        ebi_cond_wait(&bus->keeper, &store->lock, k.next_us - k.now_us);
        bus->keeper_until_us = 0;
    }
    ebi_mutex_unlock(&store->lock);
    ebi_db_close(&bus->checker);
    ebi_bus_finish(bus);
    ebi_mutex_lock(&store->lock);
    bus->keeper_alive = 0;
    ebi_cond_broadcast(&bus->news);
    ebi_mutex_unlock(&store->lock);
    return NULL;
}

/* ===========================================================================
** >>pump   The same engine on the caller's thread                   [private]
** ======================================================================== */

/* Takes the right to pump. Lock held. */
EBI_FN eb_result ebi_pump_enter(eb_bus *bus)
{
    if (bus->state < EBI_STARTED) return ebi_error(EB_ERR_STATE, "the bus is not started");
    if (bus->state != EBI_STARTED) return ebi_error(EB_ERR_SHUTDOWN, "the bus is shut down");
    if (bus->pumping && ebi_thread_same(bus->pump_thread, ebi_thread_self()))
        return ebi_error(EB_ERR_STATE, "not inside a handler");
    if (bus->pumping) return ebi_error(EB_ERR_STATE, "another thread is pumping");
    bus->pumping = 1;
    bus->pump_thread = ebi_thread_self();
    return EB_OK;
}

/* Gives it back; finishes a shutdown that began meanwhile. Lock held on entry and exit. */
EBI_FN void ebi_pump_leave(eb_bus *bus)
{
    EB_ASSERT(bus->pumping);
    if (bus->state == EBI_FORKED) return;
    if (bus->state == EBI_STOPPING) {
        ebi_mutex_unlock(&bus->store.lock);
        ebi_bus_finish(bus);
        ebi_mutex_lock(&bus->store.lock);
    }
    bus->pumping = 0;
    ebi_cond_broadcast(&bus->news);
}

/* Runs one event if one is due, or looks for some. Lock held on entry and exit. Returns 0 if there
** was nothing to do, 1 if it only looked, 2 if it ran one. */
EBI_FN int ebi_pump_one(eb_bus *bus)
{
    ebi_entry *e = ebi_entry_pop(&bus->claimed, &bus->claimed_last);
    EB_ASSERT(bus->pumping && !bus->workers);
    if (!e && !ebi_claim_due_now(bus)) return 0;
    if (!e) {
        ebi_claim_some(bus);
        e = ebi_entry_pop(&bus->claimed, &bus->claimed_last);
    }
    if (!e) return 1;
    bus->claimed_count--;
    ebi_attempt(bus, &bus->main_run, e);
    return 2;
}

/* EB_ERR_FORK in a child that came back from a handler; see ebi_attempt_forked(). Lock held. */
EBI_FN eb_result ebi_pump_forked(const eb_bus *bus)
{
    return bus->state == EBI_FORKED ? ebi_store_check(&bus->store) : EB_OK;
}

/* Commits what there is to commit. Lock held on entry and exit. */
EBI_FN eb_result ebi_pump_flush(eb_bus *bus)
{
    eb_result rc = ebi_pump_forked(bus);
    if (rc != EB_OK || !bus->outcomes) return rc;
    ebi_mutex_unlock(&bus->store.lock);
    rc = ebi_engine_flush(bus);
    ebi_mutex_lock(&bus->store.lock);
    return rc;
}

/* Milliseconds until something is due: 0 now, -1 nothing known. Lock held. */
EBI_FN int64_t ebi_pump_next(eb_bus *bus)
{
    int64_t now = ebi_now_ms(&bus->store);
    if (bus->retry_at_us && ebi_mono_us(&bus->store) < bus->retry_at_us)
        return (bus->retry_at_us - ebi_mono_us(&bus->store)) / 1000 + 1;
    if (bus->claimed || bus->ready || bus->disk_more) return 0;
    if (bus->next_due_ms == INT64_MAX) return -1;
    return bus->next_due_ms > now ? bus->next_due_ms - now : 0;
}

/* The body of eb_pump: at least one event, then more until the deadline; then everything on disk.
** Lock held on entry and exit. */
EBI_FN eb_result ebi_pump_some(eb_bus *bus, int64_t deadline_ms)
{
    eb_result rc;
    int did, ran = 0;
    EB_ASSERT(bus->pumping);
    bus->look = 0;
    ebi_mutex_unlock(&bus->store.lock);
    ebi_look_outside(bus);
    ebi_mutex_lock(&bus->store.lock);
    for (;;) {
        while (bus->state == EBI_STARTED && (did = ebi_pump_one(bus)) != 0) {
            ran |= did == 2;
            if (ran && ebi_mono_ms(&bus->store) >= deadline_ms) return ebi_pump_flush(bus);
        }
        rc = ebi_pump_flush(bus); /* a retry without a wait is due once it is on disk */
        if (rc != EB_OK || bus->state != EBI_STARTED || ebi_pump_next(bus) != 0) return rc;
        if (ran && ebi_mono_ms(&bus->store) >= deadline_ms) return rc;
    }
}

/* One turn of waiting without threads: runs what is due, or sleeps until something is, but at most
** until the deadline (monotonic ms, INT64_MAX: none) and at most one idle poll. Lock held. */
EBI_FN void ebi_pump_turn(eb_bus *bus, int64_t deadline_ms)
{
    int64_t next, left;
    if (ebi_pump_one(bus)) {
        if (bus->waiters || !bus->claimed) ebi_pump_flush(bus);
        return;
    }
    ebi_pump_flush(bus);
    next = ebi_pump_next(bus);
    if (next == 0) return;
    left = deadline_ms == INT64_MAX ? INT64_MAX : deadline_ms - ebi_mono_ms(&bus->store);
    if (next <= 0 || next > left) next = left;
    if (bus->idle_poll_ms >= 0 && next > bus->idle_poll_ms) next = bus->idle_poll_ms;
    if (next == INT64_MAX) next = 1000;
    ebi_mutex_unlock(&bus->store.lock);
    ebi_sleep_ms(&bus->store, next > 0 ? next : 0);
    ebi_look_outside(bus);
    ebi_mutex_lock(&bus->store.lock);
}

/* ===========================================================================
** >>waiting   For one event, for all of them                        [private]
** ======================================================================== */

/* The state of event seq with this id: EB_OK done, EB_DEAD, EB_EMPTY still alive, or an error. */
EBI_FN eb_result ebi_wait_look(eb_bus *bus, int64_t seq, const char *id)
{
    eb_store *store = &bus->store;
    ebi_db *db;
    sqlite3_stmt *s;
    const char *stored;
    eb_result rc = ebi_reader_enter(store, &db);
    int code;
    if (rc == EB_OK) {
        s = ebi_db_stmt(store, db, EBI_SQL_STATE);
        if (s) sqlite3_bind_int64(s, 1, seq);
        code = s ? sqlite3_step(s) : ebi_db_code(db);
        if (code == SQLITE_ROW) {
            stored = ebi_column(s, 0);
            if (!stored || strcmp(stored, id) != 0) rc = EB_ERR_NOT_FOUND;
            else if (sqlite3_column_int(s, 1)) rc = EB_EMPTY;
            else if (sqlite3_column_int(s, 2)) rc = EB_DEAD;
        } else if (code == SQLITE_DONE) {
            rc = EB_ERR_NOT_FOUND;
        } else {
            rc = ebi_db_error(db, code, "looking for an event");
        }
        sqlite3_reset(s);
        if (rc == EB_ERR_NOT_FOUND) ebi_error(rc, "no event %s", id);
    }
    ebi_reader_leave(store, db);
    return rc;
}

EBI_FN void ebi_waiter_init(ebi_waiter *w, int64_t seq)
{
    memset(w, 0, sizeof *w);
    w->seq = seq;
    w->known = EB_EMPTY;
    ebi_cond_init(&w->cond);
}
EBI_FN void ebi_waiter_remove(eb_bus *bus, ebi_waiter *w)
{
    ebi_waiter **at = &bus->waiters;
    EB_ASSERT(w->seq > 0);
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
}

EBI_FN int64_t ebi_deadline(const eb_store *store, int64_t timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : ebi_add(ebi_mono_ms(store), timeout_ms);
}

/* Waits for w, which is registered and holds a seq. Lock held on entry and exit. Looks at the file
** when something happened to the event, and once per idle poll: it may end in another process.
** pump: the caller has the right to pump, and that is what waiting means. own: the id is one that
** we made, so that nothing has to be compared if the end is known. */
EBI_FN eb_result ebi_wait_for(eb_bus *bus, ebi_waiter *w, const char *id, int64_t deadline_ms,
                              int pump, int own)
{
    eb_store *store = &bus->store;
    eb_result rc;
    int64_t left, poll = bus->idle_poll_ms >= 0 ? bus->idle_poll_ms : 1000;
    int late = deadline_ms <= ebi_mono_ms(store); /* 0: only looks */
    EB_ASSERT(w->seq > 0 && (!pump || bus->pumping));
    for (;;) {
        if ((rc = ebi_pump_forked(bus)) != EB_OK) break;
        if (own && w->known != EB_EMPTY) return w->known;
        if (pump || w->hit) {
            w->hit = 0;
            ebi_mutex_unlock(&store->lock);
            rc = ebi_wait_look(bus, w->seq, id);
            ebi_mutex_lock(&store->lock);
            if (rc != EB_EMPTY) break;
        }
        left = deadline_ms == INT64_MAX ? poll : deadline_ms - ebi_mono_ms(store);
        if (left <= 0 && (late || !pump)) {
            rc = ebi_error(EB_ERR_TIMEOUT, "event %s is not finished", id);
            break;
        }
        late = left <= 0; /* one more turn: what is due right now is still in time */
        if (bus->state == EBI_STOPPED || (pump && bus->state != EBI_STARTED)) {
            rc = ebi_error(EB_ERR_SHUTDOWN, "the bus stopped; event %s is on disk", id);
            break;
        }
        rc = ebi_engine_hopeless(bus);
        if (rc != EB_OK) break;
        if (pump) {
            ebi_pump_turn(bus, deadline_ms);
        } else {
            ebi_cond_wait(&w->cond, &store->lock, (left < poll ? left : poll) * 1000);
            w->hit = 1;
        }
    }
    return rc;
}

/* 1 if nothing is left to do, 0 if something is, negative: an error. No lock held. */
EBI_FN int ebi_drained(eb_bus *bus)
{
    eb_store *store = &bus->store;
    sqlite3_stmt *s;
    int64_t cursor;
    int code = SQLITE_ERROR, busy;
    ebi_writer_enter(store);
    ebi_mutex_lock(&store->lock);
    busy = bus->ready || bus->claimed || bus->running || bus->outcomes || bus->claiming;
    cursor = bus->cursor;
    ebi_mutex_unlock(&store->lock);
    if (!busy) {
        s = store->writer.handle ? ebi_db_stmt(store, &store->writer, EBI_SQL_UNFINISHED) : NULL;
        if (s) {
            sqlite3_bind_int64(s, 1, cursor);
            code = sqlite3_step(s);
            sqlite3_reset(s);
        }
    }
    ebi_writer_leave(store);
    if (busy || code == SQLITE_ROW) return 0;
    return code == SQLITE_DONE ? 1 : -1;
}

/* Lock held on entry and exit. */
EBI_FN eb_result ebi_drain_for(eb_bus *bus, int64_t deadline_ms)
{
    eb_store *store = &bus->store;
    eb_result rc = EB_OK;
    int pump = !bus->workers, late = deadline_ms <= ebi_mono_ms(store), drained;
    int64_t left;
    if (pump && (rc = ebi_pump_enter(bus)) != EB_OK) return rc;
    bus->drainers++;
    for (;;) {
        if ((rc = ebi_pump_forked(bus)) != EB_OK) break;
        if (!bus->ready && !bus->claimed && !bus->running && !bus->claiming) {
            if (bus->outcomes) ebi_pump_flush(bus);
            ebi_mutex_unlock(&store->lock);
            drained = ebi_drained(bus);
            ebi_mutex_lock(&store->lock);
            if (drained > 0) break;
        }
        if (bus->state != EBI_STARTED) {
            rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is shutting down");
            break;
        }
        rc = ebi_engine_hopeless(bus);
        if (rc != EB_OK) break;
        left = deadline_ms == INT64_MAX ? 1000 : deadline_ms - ebi_mono_ms(store);
        if (left <= 0 && (late || !pump)) {
            rc = ebi_error(EB_ERR_TIMEOUT, "there are unfinished events");
            break;
        }
        late = left <= 0;
        if (pump) ebi_pump_turn(bus, deadline_ms);
        else ebi_cond_wait(&bus->news, &store->lock, (left < 1000 ? left : 1000) * 1000);
    }
    bus->drainers--;
    if (pump) ebi_pump_leave(bus);
    return rc;
}

/* ===========================================================================
** >>ownership   One dispatcher per file and namespace               [private]
** ========================================================================
** The owner holds the write lock of a side file, an empty database opened through the same VFS. The
** operating system lets go of it when the process dies, so there is nothing to expire or to clean
** up, and it works within one process and after fork too. The file stays. (Not BEGIN EXCLUSIVE: of
** many that begin at the same moment each may be in the way of the others, and none gets it.) */
EBI_FN eb_result ebi_owner_take(eb_bus *bus)
{
    eb_store *store = &bus->store;
    size_t n;
    char *path;
    int rc;
    EB_ASSERT(!bus->owner.handle);
    if (!store->file || !store->file[0]) return EB_OK;
    n = strlen(store->file) + sizeof store->prefix + 16;
    path = (char *)ebi_alloc(&store->allocator, n);
    if (!path) return ebi_error(EB_ERR_NOMEM, "out of memory");
    snprintf(path, n, "%s%s%.*s.owner", store->file, store->prefix[0] ? "-" : "",
             store->prefix[0] ? (int)strlen(store->prefix) - 1 : 0, store->prefix);
    if (!store->vfs) ebi_platform_create_private(path);
    rc = sqlite3_open_v2(path, &bus->owner.handle,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                         store->vfs);
    if (rc == SQLITE_OK) rc = ebi_db_exec(&bus->owner, "BEGIN IMMEDIATE");
    ebi_free(&store->allocator, path);
    if (rc == SQLITE_OK) return EB_OK;
    if ((rc & 0xFF) == SQLITE_BUSY)
        ebi_error(EB_ERR_OWNED, "%s: another bus dispatches it", store->path);
    else
        ebi_db_error(&bus->owner, rc, "taking ownership");
    ebi_db_close(&bus->owner);
    return (rc & 0xFF) == SQLITE_BUSY ? EB_ERR_OWNED : ebi_db_result(rc);
}

/* ===========================================================================
** >>options   Checked once, resolved once                           [private]
** ======================================================================== */

/* Merges p over base (NULL: the built-in defaults) into out; out->schedule_ms is a new copy. */
EBI_FN eb_result ebi_policy_resolve(const eb_allocator *a, const eb_retry_policy *p,
                                    const ebi_policy *base, ebi_policy *out)
{
    static const ebi_policy standard = {3, 0, 1000, 30000, 2.0, 0.0, NULL};
    const int64_t *schedule;
    eb_result rc;
    int i;
    EB_ASSERT(a && p && out);
    *out = base ? *base : standard;
    schedule = out->schedule_ms;
    out->schedule_ms = NULL;
    if (p->max_retries < EB_NONE) return ebi_error(EB_ERR_ARG, "retry.max_retries is negative");
    rc = ebi_option_ms("retry.base_delay_ms", p->base_delay_ms, out->base_ms, 0, &out->base_ms);
    if (rc == EB_OK)
        rc = ebi_option_ms("retry.max_delay_ms", p->max_delay_ms, out->max_ms, INT64_MAX,
                           &out->max_ms);
    if (rc != EB_OK) return rc;
    if (p->multiplier != 0.0 && !(p->multiplier >= 1.0))
        return ebi_error(EB_ERR_ARG, "retry.multiplier must be at least 1");
    if (!(p->jitter >= 0.0 && p->jitter <= 1.0))
        return ebi_error(EB_ERR_ARG, "retry.jitter must be 0 to 1");
    if (p->multiplier >= 1.0) out->multiplier = p->multiplier;
    if (p->jitter > 0.0) out->jitter = p->jitter;
    if (p->schedule_count < 0 || (p->schedule_count > 0) != (p->schedule_ms != NULL))
        return ebi_error(EB_ERR_ARG, "retry.schedule_ms and schedule_count do not fit");
    for (i = 0; i < p->schedule_count; i++)
        if (p->schedule_ms[i] < 0) return ebi_error(EB_ERR_ARG, "retry.schedule_ms is negative");
    if (p->schedule_count > 0) {
        schedule = p->schedule_ms;
        out->schedule_count = out->max_retries = p->schedule_count;
    } else if (p->base_delay_ms != 0) {
        out->schedule_count = 0;
    }
    if (p->max_retries) out->max_retries = p->max_retries == EB_NONE ? 0 : p->max_retries;
    if (out->max_retries == INT32_MAX) out->max_retries--;
    if (out->schedule_count == 0) return EB_OK;
    out->schedule_ms = (int64_t *)ebi_alloc(a, (size_t)out->schedule_count * sizeof(int64_t));
    if (!out->schedule_ms) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memcpy(out->schedule_ms, schedule, (size_t)out->schedule_count * sizeof(int64_t));
    return EB_OK;
}

/* Everything in options that a bus adds to what a store uses. */
EBI_FN eb_result ebi_bus_options(eb_bus *bus, const eb_options *o)
{
    eb_result rc;
    if (o->workers < EB_NONE || o->workers > 1024)
        return ebi_error(EB_ERR_ARG, "options.workers is 0 to 1024 or EB_NONE");
    if (o->durability < 0 || o->durability > EB_DURABLE_OFF)
        return ebi_error(EB_ERR_ARG, "options.durability is none of EB_DURABLE_...");
    if (o->on_unmatched < 0 || o->on_unmatched > EB_UNMATCHED_KEEP)
        return ebi_error(EB_ERR_ARG, "options.on_unmatched is none of EB_UNMATCHED_...");
    if (o->shared) return ebi_error(EB_ERR_ARG, "options.shared is not in this version");
    if (o->lease_ms < EB_NONE || o->retention_ms < EB_NONE || o->max_pending < EB_NONE)
        return ebi_error(EB_ERR_ARG, "lease_ms, retention_ms or max_pending is negative");
    if (o->clock.now_ms && o->workers != EB_NONE)
        return ebi_error(EB_ERR_ARG, "options.clock needs workers = EB_NONE");
    if ((o->node_id && !ebi_text_name_len(o->node_id, EBI_KEY_MAX)) ||
        (o->node_name && strlen(o->node_name) > EBI_KEY_MAX))
        return ebi_error(EB_ERR_ARG, "node_id or node_name is not 1 to 255 bytes of text");
    rc = ebi_option_ms("options.handler_timeout_ms", o->handler_timeout_ms, 30000, -1,
                       &bus->handler_timeout_ms);
    if (rc == EB_OK)
        rc = ebi_option_ms("options.shutdown_timeout_ms", o->shutdown_timeout_ms, 30000, -1,
                           &bus->shutdown_timeout_ms);
    if (rc == EB_OK)
        rc = ebi_option_ms("options.idle_poll_ms", o->idle_poll_ms, 1000, -1, &bus->idle_poll_ms);
    if (rc == EB_OK)
        rc = ebi_policy_resolve(&bus->store.allocator, &o->retry, NULL, &bus->policy);
    if (rc != EB_OK) return rc;
    if (o->workers != EB_NONE && (!EBI_THREADS || !sqlite3_threadsafe()))
        return ebi_error(EB_ERR_THREADS, "no threads in this build: workers = EB_NONE and eb_pump");
    bus->workers = o->workers == EB_NONE ? 0 : o->workers == 0 ? 1 : o->workers;
    bus->store.durability = o->durability;
    bus->on_unmatched = o->on_unmatched;
    bus->max_pending = o->max_pending;
    bus->max_payload = o->max_payload_bytes ? o->max_payload_bytes : 1024 * 1024;
    return EB_OK;
}

/* No text may be longer than this SQLite stores: binding it would fail, and leave a NULL. */
EBI_FN void ebi_bus_limit_payload(eb_bus *bus)
{
    size_t most = (size_t)sqlite3_limit(bus->store.writer.handle, SQLITE_LIMIT_LENGTH, -1);
    if (bus->max_payload > most - most / 10) bus->max_payload = most - most / 10;
}

/* ===========================================================================
** >>subscriptions   Who wants what                                  [private]
** ========================================================================
** A list in order of subscribing, under the lock. A subscription that is removed leaves the list at
** once and is freed when its last running call has returned. */

/* What this version does not know must be zero, so that later versions can give it a meaning. */
EBI_FN eb_result ebi_sub_options_check(const eb_subscribe_options *o)
{
    if (o->name) return ebi_error(EB_ERR_ARG, "named subscriptions are not in this version");
    if (o->transactional || o->from || o->order || o->order_path || o->on_dead || o->instances ||
        o->checkpoint_every || o->checkpoint_ms || o->max_concurrency || o->breaker_failures ||
        o->breaker_ms)
        return ebi_error(EB_ERR_ARG, "subscribe: an option that is not in this version is set");
    return EB_OK;
}

/* A subscription that is in no list yet; to be given to ebi_sub_release() if it never will be. */
EBI_FN eb_result ebi_sub_new(eb_bus *bus, const char *pattern, const eb_subscribe_options *o,
                             ebi_sub **out)
{
    const eb_allocator *a = &bus->store.allocator;
    ebi_sub *s = (ebi_sub *)ebi_alloc(a, sizeof *s);
    eb_result rc;
    int ok = 1;
    if (!s) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memset(s, 0, sizeof *s);
    rc = ebi_option_ms("timeout_ms", o->timeout_ms, bus->handler_timeout_ms, -1, &s->timeout_ms);
    if (rc == EB_OK) rc = ebi_policy_resolve(a, &o->retry, &bus->policy, &s->policy);
    if (rc == EB_OK) s->pattern = ebi_strdup(a, pattern, &ok);
    if (!ok) rc = ebi_error(EB_ERR_NOMEM, "out of memory");
    if (rc == EB_OK) ebi_subs_classify(s);
    ebi_id_random(&s->id);
    if (rc == EB_OK) {
        *out = s;
        return EB_OK;
    }
    s->removed = 1;
    ebi_sub_release(bus, s);
    return rc;
}

EBI_FN int ebi_sub_row(eb_store *store, const ebi_sub *s)
{
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *stmt = ebi_db_stmt(store, &store->writer, EBI_SQL_SUB_INSERT);
    if (!stmt) return ebi_db_code(&store->writer);
    ebi_time_text(ebi_now_ms(store), now);
    ebi_bind_text(stmt, 1, s->id.str);
    ebi_bind_text(stmt, 2, s->pattern);
    ebi_bind_text(stmt, 3, now);
    return ebi_db_step(stmt);
}

/* Inside the transaction: refused once the bus stops. */
EBI_FN eb_result ebi_sub_insert(eb_store *store, void *arg)
{
    eb_bus *bus = ebi_bus_of(store);
    int rc, stopping, room;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    ebi_mutex_lock(&store->lock);
    stopping = bus->state >= EBI_STOPPING;
    room = ebi_subs_reserve(bus, bus->sub_count + 1);
    ebi_mutex_unlock(&store->lock);
    if (stopping) return ebi_error(EB_ERR_SHUTDOWN, "the bus is shutting down");
    if (!room) return ebi_error(EB_ERR_NOMEM, "out of memory");
    rc = ebi_sub_row(store, (const ebi_sub *)arg);
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "subscribing");
}

/* Lock held, after the commit: from here on it is called. */
EBI_FN void ebi_sub_after(eb_store *store, void *arg, eb_result rc)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_sub *s = (ebi_sub *)arg;
    EB_ASSERT(store->leading);
    EB_ASSERT(!s->removed && s->calls == 0);
    if (rc != EB_OK) return;
    ebi_subs_add(bus, s);
    ebi_claim_rescan(bus);
}

EBI_FN eb_result ebi_sub_delete(eb_store *store, void *arg)
{
    const eb_id *id = (const eb_id *)arg;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SUB_DELETE);
    int rc;
    if (s) ebi_bind_text(s, 1, id->str);
    rc = s ? ebi_db_step(s) : ebi_db_code(&store->writer);
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "unsubscribing");
}

/* Waits until no call of a removed subscription runs; inside a handler not at all: two handlers may
** be unsubscribing each other. Lock held on entry and exit. */
EBI_FN eb_result ebi_sub_wait(eb_bus *bus, const ebi_sub *s)
{
    int64_t deadline = ebi_deadline(&bus->store, bus->shutdown_timeout_ms), left;
    if (ebi_run_here(bus)) return EB_OK;
    while (s->calls > 0) {
        left = deadline == INT64_MAX ? 1000 : deadline - ebi_mono_ms(&bus->store);
        if (left <= 0) return ebi_error(EB_ERR_TIMEOUT, "a call of the handler is still running");
        ebi_cond_wait(&bus->news, &bus->store.lock, left * 1000);
    }
    return EB_OK;
}

/* Inside eb_start's transaction: the rows of those subscribed before. */
EBI_FN eb_result ebi_subs_announce(eb_store *store, void *arg)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_sub *s, *next;
    int rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    (void)arg;
    rc = ebi_db_run(store, &store->writer, EBI_SQL_SUB_CLEAR);
    ebi_mutex_lock(&store->lock);
    for (s = bus->subs; s && rc == SQLITE_OK; s = next) {
        s->keep++;
        ebi_mutex_unlock(&store->lock);
        rc = ebi_sub_row(store, s);
        ebi_mutex_lock(&store->lock);
        s->keep--;
        next = s->next;
        ebi_sub_release(bus, s);
    }
    ebi_mutex_unlock(&store->lock);
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "announcing subscriptions");
}

/* ===========================================================================
** >>life   Start, stop, free                                        [private]
** ======================================================================== */

/* Waits for threads that are about to return and frees what is left of them. Lock held on entry and
** exit, not in between; by one thread. */
EBI_FN void ebi_workers_join(eb_bus *bus, int keeper)
{
    ebi_worker **at = &bus->all_workers, *ended = NULL, *w;
    EB_ASSERT(bus->state != EBI_STARTED);
    while ((w = *at) != NULL) {
        if (w->run.lost) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->next = ended;
        ended = w;
    }
    ebi_mutex_unlock(&bus->store.lock);
    while ((w = ended) != NULL) {
        ended = w->next;
        ebi_thread_join(w->thread);
        ebi_free(&bus->store.allocator, w);
    }
    if (keeper) ebi_thread_join(bus->keeper_thread);
    ebi_mutex_lock(&bus->store.lock);
}

/* The last step of eb_start: from here on events are dispatched. */
EBI_FN eb_result ebi_bus_begin(eb_bus *bus)
{
    eb_result rc = EB_OK;
    int i, ok = 1;
    EB_ASSERT(bus->state == EBI_STARTING);
    ebi_mutex_lock(&bus->store.lock);
    bus->cursor = 0;
    bus->disk_more = 1;
    bus->next_due_ms = 0; /* the first claim finds out */
    bus->state = EBI_STARTED;
    for (i = 0; i < bus->workers && ok; i++) ok = ebi_worker_start(bus);
    if (ok && bus->workers) ok = ebi_thread_start(&bus->keeper_thread, ebi_keeper_main, bus) == 0;
    if (ok) {
        bus->keeper_alive = bus->workers_started = bus->workers > 0;
    } else { /* the workers cannot have done anything: they have not had the lock */
        bus->state = EBI_STARTING;
        ebi_cond_broadcast(&bus->work);
        ebi_workers_join(bus, 0);
        rc = ebi_error(EB_ERR_NOMEM, "cannot start a thread");
    }
    ebi_cond_broadcast(&bus->news);
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

/* No more new work. Lock held. */
EBI_FN void ebi_stop_begin(eb_bus *bus)
{
    if (bus->state >= EBI_STOPPING) return;
    bus->state = bus->state == EBI_OPEN ? EBI_STOPPED : EBI_STOPPING;
    ebi_cond_broadcast(&bus->work);
    ebi_cond_signal(&bus->keeper);
    ebi_cond_broadcast(&bus->news);
    ebi_waiters_hit(bus, 0, EB_EMPTY);
}

/* Waits for the end of a bus with workers. Lock held on entry and exit. */
EBI_FN eb_result ebi_stop_threads(eb_bus *bus)
{
    int64_t deadline = ebi_deadline(&bus->store, bus->shutdown_timeout_ms), left;
    EB_ASSERT(bus->workers > 0 && bus->state >= EBI_STOPPING);
    while (bus->state != EBI_STOPPED || bus->keeper_alive) {
        left = deadline == INT64_MAX ? -1 : deadline - ebi_mono_ms(&bus->store);
        if (left <= 0 && deadline != INT64_MAX && !bus->abandon) {
            bus->abandon = 1; /* the keeper gives up on what still runs, and finishes */
            ebi_cond_signal(&bus->keeper);
        }
        ebi_cond_wait(&bus->news, &bus->store.lock, left <= 0 ? -1 : left * 1000);
    }
    if (bus->workers_started && !bus->joining) {
        bus->joining = 1;
        ebi_workers_join(bus, 1);
        bus->joined = 1;
        ebi_cond_broadcast(&bus->news);
    }
    while (bus->joining && !bus->joined) ebi_cond_wait(&bus->news, &bus->store.lock, -1);
    while (bus->lost_workers > 0 && !bus->abandon) { /* those that timed out before */
        left = deadline == INT64_MAX ? 1000 : deadline - ebi_mono_ms(&bus->store);
        if (left <= 0) bus->abandon = 1;
        else ebi_cond_wait(&bus->news, &bus->store.lock, left * 1000);
    }
    if (bus->lost_workers > 0)
        return ebi_error(EB_ERR_TIMEOUT, "%d handlers are still running", bus->lost_workers);
    return EB_OK;
}

/* The same without threads: this thread does it, or waits for the one that pumps. */
EBI_FN eb_result ebi_stop_pump(eb_bus *bus)
{
    int64_t deadline = ebi_deadline(&bus->store, bus->shutdown_timeout_ms), left;
    EB_ASSERT(bus->workers == 0 && bus->state >= EBI_STOPPING);
    while (bus->state != EBI_STOPPED && bus->pumping) {
        left = deadline == INT64_MAX ? 1000 : deadline - ebi_mono_ms(&bus->store);
        if (left <= 0) return ebi_error(EB_ERR_TIMEOUT, "a thread is still pumping");
        ebi_cond_wait(&bus->news, &bus->store.lock, left * 1000);
    }
    if (bus->state == EBI_STOPPED) return EB_OK;
    bus->pumping = 1;
    bus->pump_thread = ebi_thread_self();
    ebi_pump_leave(bus); /* finishes what is stopping */
    return EB_OK;
}

/* Frees everything; the last one to hold a reference. */
EBI_FN void ebi_bus_free(eb_bus *bus)
{
    eb_allocator a = bus->store.allocator;
    ebi_sub *s, *next;
    EB_ASSERT(bus->refs <= 1 && bus->running == 0);
    for (s = bus->subs; s; s = next) {
        next = s->next;
        s->removed = 1;
        s->calls = s->keep = 0;
        ebi_sub_release(bus, s);
    }
    ebi_entries_free(&bus->store, bus->outcomes);
    ebi_entries_free(&bus->store, bus->claimed);
    ebi_entries_free(&bus->store, bus->ready);
    if (bus->policy.schedule_ms) ebi_free(&a, bus->policy.schedule_ms);
    ebi_free(&a, bus->by_type);
    if (bus->conds > 0) ebi_cond_fini(&bus->work);
    if (bus->conds > 1) ebi_cond_fini(&bus->keeper);
    if (bus->conds > 2) ebi_cond_fini(&bus->news);
    ebi_store_fini(&bus->store);
    ebi_free(&a, bus);
}

/* The check at the door of every bus call: handle, process. */
EBI_FN eb_result ebi_bus_check(eb_bus *bus)
{
    if (!bus) return ebi_error(EB_ERR_ARG, "the bus is NULL");
    return ebi_store_check(&bus->store);
}

/* ===========================================================================
** >>inspector   Lists, dead letters, figures                        [private]
** ======================================================================== */

typedef struct ebi_list { /* grows while rows are read; each item has one block for its texts */
    eb_event_list *out;
    size_t cap;
} ebi_list;

EBI_FN eb_status ebi_status_of(const char *text)
{
    if (!text || text[0] == 'p') return text && text[1] == 'r' ? EB_PROCESSING : EB_PENDING;
    return text[1] == 'l' ? EB_DLQ : EB_DONE;
}

/* The list carries a copy of the allocator that frees it: it may outlive the store. */
EBI_FN eb_result ebi_list_init(eb_store *store, eb_event_list *out)
{
    eb_allocator *a = (eb_allocator *)ebi_alloc(&store->allocator, sizeof *a);
    memset(out, 0, sizeof *out);
    if (!a) return ebi_error(EB_ERR_NOMEM, "out of memory");
    *a = store->allocator;
    out->impl = a;
    return EB_OK;
}

/* Room for one more. */
EBI_FN int ebi_list_grow(eb_store *store, ebi_list *list)
{
    size_t cap = list->cap ? list->cap * 2 : 16;
    const eb_allocator *a = &store->allocator;
    void *items;
    if (list->out->count < list->cap) return 1;
    items = a->resize(list->out->items, cap * sizeof(eb_event), a->user);
    if (!items) return 0;
    list->out->items = (eb_event *)items;
    list->cap = cap;
    return 1;
}

/* Appends the row of s (EBI_SQL_LIST_...). 0: out of memory. */
EBI_FN int ebi_list_add(eb_store *store, ebi_list *list, sqlite3_stmt *s)
{
    const char *field[9], *id;
    size_t len[9], size = 1;
    eb_event *e;
    char *block;
    int i;
    EB_ASSERT(sqlite3_column_count(s) == 15);
    if (!ebi_list_grow(store, list)) return 0;
    for (i = 0; i < 8; i++) { /* type payload metadata ordering idempotency producer sub errors */
        field[i] = ebi_column(s, 7 + i);
        len[i] = (size_t)sqlite3_column_bytes(s, 7 + i);
        size += len[i] + 1;
    }
    id = ebi_column(s, 6);
    if (!id || !field[0] || !field[1]) return 0;
    block = (char *)ebi_alloc(&store->allocator, size);
    if (!block) return 0;
    e = &list->out->items[list->out->count];
    memset(e, 0, sizeof *e);
    ebi_put(&block, &e->type, field[0], len[0]); /* first: the block is freed through it */
    e->payload_len = ebi_put(&block, &e->payload, field[1], len[1]);
    ebi_put(&block, &e->metadata, field[2], len[2]);
    ebi_put(&block, &e->ordering_key, field[3], len[3]);
    ebi_put(&block, &e->idempotency_key, field[4], len[4]);
    ebi_put(&block, &e->producer, field[5], len[5]);
    ebi_put(&block, &e->subscription, field[6], len[6]);
    ebi_put(&block, &e->last_error, field[7], len[7]);
    snprintf(e->id.str, sizeof e->id.str, "%s", id);
    e->seq = sqlite3_column_int64(s, 0);
    e->status = ebi_status_of(ebi_column(s, 1));
    e->retry_count = sqlite3_column_int(s, 2);
    e->created_at_ms = ebi_time_parse(ebi_column(s, 3));
    e->updated_at_ms = ebi_time_parse(ebi_column(s, 4));
    e->dlq_at_ms = ebi_time_parse(ebi_column(s, 5));
    list->out->count++;
    return 1;
}

/* Reads all rows of a bound statement into out. */
EBI_FN eb_result ebi_list_read(eb_store *store, ebi_db *db, sqlite3_stmt *s, eb_event_list *out)
{
    ebi_list list;
    int rc;
    memset(&list, 0, sizeof list);
    list.out = out;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        if (ebi_list_add(store, &list, s)) continue;
        rc = ebi_db_no_event(s, 6);
        break;
    }
    if (rc != SQLITE_DONE) ebi_db_error(db, rc, "reading events");
    sqlite3_reset(s);
    return rc == SQLITE_DONE ? EB_OK : ebi_db_result(rc);
}

/* The numbers of a query, checked. */
typedef struct ebi_filter {
    eb_query q;
    int64_t seq; /* of q.id, 0: no such id */
    char from[EBI_TIME_LEN + 1], to[EBI_TIME_LEN + 1];
    int any; /* some filter is set */
} ebi_filter;

EBI_FN eb_result ebi_filter_init(const eb_store *store, const eb_query *q, ebi_filter *f)
{
    memset(f, 0, sizeof *f);
    if (q) f->q = *q;
    if (f->q.offset < 0 || f->q.limit < 0 || f->q.after_seq < 0 || f->q.from_ms < 0 ||
        f->q.to_ms < 0)
        return ebi_error(EB_ERR_ARG, "query: a negative number");
    if (f->q.pattern && !ebi_text_name_len(f->q.pattern, EBI_TYPE_MAX))
        return ebi_error(EB_ERR_ARG, "query: the pattern is not 1 to 255 bytes of UTF-8");
    if (f->q.id) f->seq = ebi_id_seq(store->id_key, f->q.id);
    if (f->q.from_ms) ebi_time_text(f->q.from_ms, f->from);
    if (f->q.to_ms) ebi_time_text(f->q.to_ms, f->to);
    f->any = f->q.id || f->q.pattern || f->q.subscription || f->q.after_seq || f->q.from_ms ||
             f->q.to_ms;
    return EB_OK;
}

EBI_FN void ebi_filter_bind(const ebi_filter *f, sqlite3_stmt *s, int dead)
{
    int64_t after = f->q.after_seq;
    if (f->q.id && f->seq - 1 > after) after = f->seq - 1; /* an id is one row: see ebi_id_seq() */
    sqlite3_bind_int64(s, 1, after);
    sqlite3_bind_int64(s, 2, f->q.id ? f->seq : INT64_MAX);
    ebi_bind_text(s, 9, f->q.id);
    ebi_bind_text(s, 3, f->q.pattern);
    ebi_bind_text(s, 4, f->q.from_ms ? f->from : NULL);
    ebi_bind_text(s, 5, f->q.to_ms ? f->to : NULL);
    if (dead) ebi_bind_text(s, 8, f->q.subscription);
}

/* eb_log_read and eb_dlq_list: the page and the total. */
EBI_FN eb_result ebi_query_run(eb_store *store, const eb_query *query, eb_event_list *out, int dead)
{
    ebi_filter f;
    ebi_db *db;
    sqlite3_stmt *s, *c;
    int code = SQLITE_OK;
    eb_result rc = ebi_store_check(store);
    if (!out) return rc == EB_OK ? ebi_error(EB_ERR_ARG, "out is NULL") : rc;
    memset(out, 0, sizeof *out);
    if (rc == EB_OK) rc = ebi_filter_init(store, query, &f);
    if (rc == EB_OK) rc = ebi_list_init(store, out);
    if (rc != EB_OK) return rc;
    rc = ebi_reader_enter(store, &db);
    if (rc == EB_OK) {
        s = ebi_db_stmt(store, db, dead ? EBI_SQL_DLQ_READ : EBI_SQL_LOG_READ);
        c = !s ? NULL /* the error is the last statement's */
               : ebi_db_stmt(store, db, !dead   ? EBI_SQL_LOG_COUNT
                                        : f.any ? EBI_SQL_DLQ_COUNT
                                                : EBI_SQL_DLQ_COUNT_ALL);
        if (!c) {
            rc = ebi_db_error(db, ebi_db_code(db), "reading events");
        } else {
            ebi_filter_bind(&f, s, dead);
            if (!dead || f.any) ebi_filter_bind(&f, c, dead);
            sqlite3_bind_int(s, 6, f.q.limit ? f.q.limit : 100);
            sqlite3_bind_int(s, 7, f.q.offset);
            rc = ebi_list_read(store, db, s, out);
            if (sqlite3_step(c) == SQLITE_ROW) out->total = sqlite3_column_int64(c, 0);
            code = sqlite3_reset(c);
            if (rc == EB_OK && code != SQLITE_OK) rc = ebi_db_error(db, code, "counting events");
        }
    }
    ebi_reader_leave(store, db);
    if (rc != EB_OK) eb_event_list_free(out);
    return rc;
}

/* A change to one or many dead letters, inside one transaction. */
typedef struct ebi_dlq {
    ebi_filter filter;
    const char *id, *subscription;
    int64_t seq, last, count, limit;
    char cutoff[EBI_TIME_LEN + 1];
    char reason[EBI_ERROR_MAX * 6 + 16];
    int by_death, more;
} ebi_dlq;

#define EBI_DLQ_CHUNK 500 /* rows per transaction, so that nobody waits long behind a big one */

/* The bus hears of what its own store did. */
EBI_FN void ebi_dlq_woke(eb_store *store, void *arg, eb_result rc)
{
    eb_bus *bus = ebi_bus_of(store);
    (void)arg;
    if (rc != EB_OK || !bus) return;
    bus->live_version = -1; /* there may be more live rows than max_pending's bound knows */
    ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_due_at(bus, 0);
    ebi_cond_signal(&bus->work);
    ebi_cond_broadcast(&bus->news);
}

EBI_FN int ebi_dlq_retry_row(eb_store *store, int64_t seq)
{
    char now[EBI_TIME_LEN + 1];
    int64_t now_ms = ebi_now_ms(store);
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DLQ_RETRY);
    int rc;
    if (!s) return ebi_db_code(&store->writer);
    ebi_time_text(now_ms, now);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_int64(s, 2, now_ms);
    ebi_bind_text(s, 3, now);
    ebi_bind_text(s, 4, store->node_id);
    rc = ebi_db_step(s);
    return rc == SQLITE_OK ? ebi_step_seq(store, EBI_SQL_DLQ_DELETE, seq) : rc;
}

/* 0 unknown, 1 live, 2 dead, 3 done; -1: SQLite failed. */
EBI_FN int ebi_state_of(eb_store *store, int64_t seq, const char *id)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_STATE);
    const char *stored;
    int rc, state = 0;
    if (!s) return -1;
    sqlite3_bind_int64(s, 1, seq);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) {
        stored = ebi_column(s, 0);
        if (stored && strcmp(stored, id) == 0)
            state = sqlite3_column_int(s, 1) ? 1 : sqlite3_column_int(s, 2) ? 2 : 3;
    }
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? state : -1;
}

/* Finds the event of d->id in the state that is wanted, or says why not. */
EBI_FN eb_result ebi_dlq_find(eb_store *store, const ebi_dlq *d, int wanted)
{
    int state = d->seq > 0 ? ebi_state_of(store, d->seq, d->id) : 0;
    EB_ASSERT(wanted == 1 || wanted == 2);
    if (state < 0)
        return ebi_writer_error(store, ebi_db_code(&store->writer),
                                "looking for an event");
    if (state == 0 || d->subscription) return ebi_error(EB_ERR_NOT_FOUND, "no event %s", d->id);
    if (state != wanted)
        return ebi_error(EB_ERR_STATE, "event %s is %s", d->id,
                         state == 1 ? "still live" : state == 2 ? "dead already" : "done");
    return EB_OK;
}

EBI_FN eb_result ebi_dlq_retry_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    eb_result result = ebi_dlq_find(store, d, 2);
    int rc;
    if (result != EB_OK) return result;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    rc = ebi_dlq_retry_row(store, d->seq);
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "retrying a dead letter");
}

EBI_FN eb_result ebi_dlq_move_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    char now[EBI_TIME_LEN + 1];
    eb_result result = ebi_dlq_find(store, d, 1);
    int64_t now_ms = ebi_now_ms(store);
    sqlite3_stmt *s;
    int rc;
    if (result != EB_OK) return result;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    ebi_time_text(now_ms, now);
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_PASS);
    if (!s) return ebi_writer_error(store, ebi_db_code(&store->writer), "moving an event");
    sqlite3_bind_int64(s, 1, d->seq);
    sqlite3_bind_int64(s, 2, now_ms);
    rc = ebi_db_step(s);
    if (rc == SQLITE_OK) rc = ebi_step_seq(store, EBI_SQL_REVOKE, d->seq);
    if (rc == SQLITE_OK) rc = ebi_die_unclaimed(store, d->seq, d->reason, now);
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "moving to the dead letters");
}

/* Collects up to EBI_DLQ_CHUNK sequence numbers from a bound statement. */
EBI_FN int ebi_dlq_collect(sqlite3_stmt *s, int64_t *seqs, int *count)
{
    int rc = SQLITE_DONE;
    *count = 0;
    while (*count < EBI_DLQ_CHUNK && (rc = sqlite3_step(s)) == SQLITE_ROW)
        seqs[(*count)++] = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

EBI_FN eb_result ebi_dlq_retry_all_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    int64_t seqs[EBI_DLQ_CHUNK];
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DLQ_READ);
    int i, n, rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    d->count = 0;
    if (!s)
        return ebi_writer_error(store, ebi_db_code(&store->writer), "retrying");
    ebi_filter_bind(&d->filter, s, 1);
    sqlite3_bind_int64(s, 6, d->limit < EBI_DLQ_CHUNK ? d->limit : EBI_DLQ_CHUNK);
    sqlite3_bind_int(s, 7, d->filter.q.offset);
    rc = ebi_dlq_collect(s, seqs, &n);
    for (i = 0; i < n && rc == SQLITE_OK; i++) rc = ebi_dlq_retry_row(store, seqs[i]);
    d->count = n;
    d->more = n == EBI_DLQ_CHUNK;
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "retrying dead letters");
}

/* Deletes dead letters with their log rows. The floor keeps sequence numbers from being reused. */
EBI_FN eb_result ebi_dlq_purge_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    int64_t seqs[EBI_DLQ_CHUNK], last;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer,
                                  d->by_death ? EBI_SQL_DLQ_OLD_DEAD : EBI_SQL_DLQ_OLD);
    int i, n = 0, rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    d->count = 0;
    rc = s ? SQLITE_OK : ebi_db_code(&store->writer);
    if (s) {
        ebi_bind_text(s, 1, d->cutoff);
        sqlite3_bind_int(s, 2, EBI_DLQ_CHUNK);
        if (d->by_death) sqlite3_bind_int64(s, 3, d->seq); /* where the last chunk ended */
        rc = ebi_dlq_collect(s, seqs, &n);
    }
    if (rc == SQLITE_OK) rc = ebi_db_number(store, &store->writer, EBI_SQL_LAST_SEQ, &last);
    if (rc == SQLITE_OK && n > 0) rc = ebi_step_seq(store, EBI_SQL_META_FLOOR, last);
    if (rc == SQLITE_OK && n > 0) rc = ebi_step_seq(store, EBI_SQL_META_REMOVED, n);
    for (i = 0; i < n && rc == SQLITE_OK; i++) {
        rc = ebi_step_seq(store, EBI_SQL_DLQ_DELETE, seqs[i]);
        if (rc == SQLITE_OK) rc = ebi_step_seq(store, EBI_SQL_LOG_DELETE, seqs[i]);
    }
    d->count = n;
    d->more = n == EBI_DLQ_CHUNK;
    d->last = n > 0 ? seqs[n - 1] : 0;
    return rc == SQLITE_OK ? EB_OK : ebi_writer_error(store, rc, "purging dead letters");
}

/* The level at which an operator's change is committed. */
EBI_FN int ebi_store_level(const eb_store *store)
{
    return store->durability == EB_DURABLE_OFF ? EB_DURABLE_OFF : EB_DURABLE_FULL;
}

EBI_FN eb_result ebi_purge(eb_store *store, int days, int64_t *count, int by_death)
{
    ebi_dlq d;
    int64_t total = 0;
    eb_result rc = ebi_store_check(store);
    if (count) *count = 0;
    if (rc == EB_OK && days < 0) rc = ebi_error(EB_ERR_ARG, "days is negative");
    if (rc != EB_OK) return rc;
    memset(&d, 0, sizeof d);
    d.by_death = by_death;
    ebi_time_text(ebi_now_ms(store) - (int64_t)days * EBI_DAY_MS, d.cutoff);
    do {
        rc = ebi_writer_run(store, ebi_dlq_purge_func, ebi_dlq_woke, &d, ebi_store_level(store));
        if (rc == EB_OK) total += d.count;
        d.seq = d.last;
    } while (rc == EB_OK && d.more);
    if (count) *count = total;
    return rc;
}

/* Figures from the rows. done is what was ever stored, less what was removed, lives or is dead: no
** table has to be counted that grows for ever. */
EBI_FN int ebi_stats_rows(eb_store *store, ebi_db *db, eb_stats *out)
{
    int64_t live = 0, dead = 0, removed = 0, pages = 0, size = 0;
    sqlite3_stmt *s = ebi_db_stmt(store, db, EBI_SQL_STATS_LIVE), *oldest;
    int rc = s ? sqlite3_step(s) : ebi_db_code(db);
    if (rc == SQLITE_ROW) {
        live = sqlite3_column_int64(s, 0);
        out->pending = sqlite3_column_int64(s, 1);
        out->processing = live - out->pending;
        rc = SQLITE_OK;
    }
    sqlite3_reset(s);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_STATS_DEAD, &dead);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_DLQ_COUNT_ALL, &out->dlq);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_LAST_SEQ, &out->last_seq);
    if (rc == SQLITE_OK) rc = ebi_schema_meta(store, db, "removed", &removed);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_PAGES, &pages);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_PAGE_SIZE, &size);
    out->done = out->last_seq - removed - live - dead;
    out->db_bytes = pages * size;
    oldest = ebi_db_stmt(store, db, EBI_SQL_STATS_OLDEST);
    if (rc == SQLITE_OK && oldest && sqlite3_step(oldest) == SQLITE_ROW) {
        out->oldest_pending_ms = ebi_now_ms(store) - ebi_time_parse(ebi_column(oldest, 0));
        if (out->oldest_pending_ms < 0) out->oldest_pending_ms = 0;
    }
    sqlite3_reset(oldest);
    out->wal_bytes = ebi_db_wal_bytes(db);
    return rc;
}

EBI_FN eb_result ebi_stats(eb_store *store, eb_stats *out)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_db *db;
    eb_result rc = ebi_reader_enter(store, &db);
    int code = rc == EB_OK ? ebi_stats_rows(store, db, out) : SQLITE_OK;
    if (code != SQLITE_OK) rc = ebi_db_error(db, code, "reading statistics");
    ebi_reader_leave(store, db);
    ebi_mutex_lock(&store->lock);
    if (bus) {
        out->commits = store->commits;
        out->lost_workers = bus->lost_workers;
        out->published = bus->published;
        out->delivered = bus->delivered;
        out->failed_attempts = bus->failed_attempts;
        out->died = bus->died;
        out->stale = bus->stale;
    }
    ebi_mutex_unlock(&store->lock);
    if (rc != EB_OK) memset(out, 0, sizeof *out);
    return rc;
}

EBI_FN eb_result ebi_get(eb_store *store, const char *id, eb_event_list *out)
{
    ebi_db *db;
    sqlite3_stmt *s;
    eb_result rc = ebi_list_init(store, out);
    if (rc != EB_OK) return rc;
    rc = ebi_reader_enter(store, &db);
    s = rc == EB_OK ? ebi_db_stmt(store, db, EBI_SQL_GET) : NULL;
    if (rc == EB_OK && !s)
        rc = ebi_db_error(db, ebi_db_code(db), "reading an event");
    if (rc == EB_OK) {
        sqlite3_bind_int64(s, 1, ebi_id_seq(store->id_key, id));
        ebi_bind_text(s, 2, id);
        rc = ebi_list_read(store, db, s, out);
    }
    ebi_reader_leave(store, db);
    if (rc == EB_OK && out->count == 0) rc = ebi_error(EB_ERR_NOT_FOUND, "no event %.40s", id);
    out->total = (int64_t)out->count;
    if (rc != EB_OK) eb_event_list_free(out);
    return rc;
}

EBI_FN eb_result ebi_dlq_init(eb_store *store, const char *id, ebi_dlq *d)
{
    eb_result rc = ebi_store_check(store);
    memset(d, 0, sizeof *d);
    if (rc == EB_OK && !id) rc = ebi_error(EB_ERR_ARG, "id is NULL");
    if (rc != EB_OK) return rc;
    d->id = id;
    d->seq = ebi_id_seq(store->id_key, id);
    return EB_OK;
}

/* ===========================================================================
** >>public   The functions that are declared at the top             [public]
** ========================================================================
** Thin: check the arguments, take the lock, ask a room. Their contracts are at the declarations. */

EB_API const char *eb_strerror(eb_result result)
{
#define EBI_RESULT_CASE(name, value, text)                                                         \
    case name: return text;
    switch (result) {
        EB_RESULT_LIST(EBI_RESULT_CASE)
    case EB_RESULT_LAST_: break;
    }
#undef EBI_RESULT_CASE
    return "not a result of eventbus.h";
}

EB_API size_t eb_errmsg(char *buf, size_t cap)
{
    size_t n = strlen(ebi_error_text), k;
    if (!buf || cap == 0) return n;
    k = n < cap ? n : ebi_utf8_cut(ebi_error_text, cap - 1);
    memcpy(buf, ebi_error_text, k);
    buf[k] = 0;
    return n;
}

EB_API const char *eb_version(void) { return EB_VERSION_STRING; }

EB_API int eb_match(const char *pattern, const char *type)
{
    return pattern && type && ebi_glob(pattern, type);
}

/* ---- open and close ---- */

EB_API eb_result eb_open(eb_bus **out, const eb_options *options)
{
    eb_allocator allocator;
    eb_logger logger;
    eb_store voice; /* to say why it failed, when there is no bus */
    eb_bus *bus = NULL;
    eb_result rc;
    if (!out) return ebi_error(EB_ERR_ARG, "out is NULL");
    *out = NULL;
    rc = ebi_store_basics(options, &allocator, &logger);
    if (rc == EB_OK) {
        bus = (eb_bus *)ebi_alloc(&allocator, sizeof *bus);
        if (!bus) rc = ebi_error(EB_ERR_NOMEM, "out of memory");
    }
    if (rc == EB_OK) {
        memset(bus, 0, sizeof *bus);
        bus->store.bus = bus;
        bus->store.allocator = allocator;
        bus->store.logger = logger;
        bus->refs = bus->batch = 1;
        bus->next_due_ms = INT64_MAX;
        bus->conds += ebi_cond_init(&bus->work) == 0;
        if (bus->conds == 1) bus->conds += ebi_cond_init(&bus->keeper) == 0;
        if (bus->conds == 2) bus->conds += ebi_cond_init(&bus->news) == 0;
        if (bus->conds < 3) rc = ebi_error(EB_ERR_NOMEM, "cannot make a condition");
        if (rc == EB_OK) rc = ebi_bus_options(bus, options);
        if (rc == EB_OK) rc = ebi_store_init(&bus->store, options, 1);
        if (rc == EB_OK) ebi_bus_limit_payload(bus);
        else ebi_bus_free(bus);
    }
    if (rc == EB_OK) {
        *out = bus;
        return EB_OK;
    }
    memset(&voice, 0, sizeof voice);
    voice.logger = logger;
    ebi_log_note(&voice, EB_LOG_ERROR, "eb_open failed", ebi_error_text);
    return rc;
}

EB_API eb_result eb_start(eb_bus *bus)
{
    eb_result rc = ebi_bus_check(bus);
    if (rc != EB_OK) return rc;
    ebi_mutex_lock(&bus->store.lock);
    if (bus->state >= EBI_STOPPING) rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is shut down");
    else if (bus->state != EBI_OPEN) rc = ebi_error(EB_ERR_STATE, "the bus is started already");
    else bus->state = EBI_STARTING;
    ebi_mutex_unlock(&bus->store.lock);
    if (rc != EB_OK) return rc;
    rc = ebi_owner_take(bus);
    if (rc == EB_OK) rc = ebi_recover(bus);
    if (rc == EB_OK) rc = ebi_writer_run(&bus->store, ebi_subs_announce, NULL, NULL,
                                         EB_DURABLE_NORMAL);
    if (rc == EB_OK) rc = ebi_bus_begin(bus);
    if (rc == EB_OK) return EB_OK;
    ebi_db_close(&bus->owner);
    ebi_mutex_lock(&bus->store.lock);
    bus->state = EBI_OPEN;
    ebi_cond_broadcast(&bus->news);
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

EB_API eb_result eb_shutdown(eb_bus *bus)
{
    eb_result rc = ebi_bus_check(bus);
    if (rc != EB_OK) return rc;
    ebi_mutex_lock(&bus->store.lock);
    if (ebi_run_here(bus)) {
        ebi_stop_begin(bus);
    } else {
        while (bus->state == EBI_STARTING) ebi_cond_wait(&bus->news, &bus->store.lock, -1);
        ebi_stop_begin(bus);
        rc = bus->workers ? ebi_stop_threads(bus) : ebi_stop_pump(bus);
    }
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

EB_API void eb_destroy(eb_bus *bus)
{
    eb_store *store;
    int inside, last;
    if (ebi_bus_check(bus) != EB_OK) return;
    store = &bus->store;
    ebi_mutex_lock(&store->lock);
    inside = ebi_run_here(bus) != NULL;
    ebi_mutex_unlock(&store->lock);
    eb_shutdown(bus);
    if (inside) { /* forbidden; a leak is better than freeing what this very handler stands on */
        ebi_log_note(store, EB_LOG_ERROR, "eb_destroy inside a handler: only shut down", NULL);
        return;
    }
    ebi_writer_enter(store);
    ebi_mutex_lock(&store->read_lock);
    store->closed = 1;
    ebi_db_close(&store->reader);
    ebi_mutex_unlock(&store->read_lock);
    ebi_db_close(&store->writer);
    ebi_writer_leave(store);
    ebi_mutex_lock(&store->lock);
    last = --bus->refs == 0;
    ebi_mutex_unlock(&store->lock);
    if (last) ebi_bus_free(bus);
}

EB_API void eb_wake(eb_bus *bus)
{
    if (ebi_bus_check(bus) != EB_OK) return;
    ebi_mutex_lock(&bus->store.lock);
    bus->look = 1;
    ebi_cond_signal(&bus->keeper);
    ebi_mutex_unlock(&bus->store.lock);
}

/* ---- dispatch ---- */

EB_API eb_result eb_pump(eb_bus *bus, int64_t budget_ms, int64_t *next_ms)
{
    eb_result rc = ebi_bus_check(bus);
    if (next_ms) *next_ms = -1;
    if (rc != EB_OK) return rc;
    if (budget_ms < EB_NONE) return ebi_error(EB_ERR_ARG, "budget_ms is negative");
    if (bus->workers) return ebi_error(EB_ERR_STATE, "this bus has worker threads");
    ebi_mutex_lock(&bus->store.lock);
    rc = ebi_pump_enter(bus);
    if (rc == EB_OK) {
        rc = ebi_pump_some(bus, ebi_deadline(&bus->store, budget_ms));
        if (next_ms) *next_ms = ebi_pump_next(bus);
        ebi_pump_leave(bus);
    }
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

EB_API eb_result eb_drain(eb_bus *bus, int64_t timeout_ms)
{
    eb_result rc = ebi_bus_check(bus);
    if (rc != EB_OK) return rc;
    if (timeout_ms < EB_NONE) return ebi_error(EB_ERR_ARG, "timeout_ms is negative");
    ebi_mutex_lock(&bus->store.lock);
    if (ebi_run_here(bus)) rc = ebi_error(EB_ERR_STATE, "not inside a handler");
    else if (bus->state < EBI_STARTED) rc = ebi_error(EB_ERR_STATE, "the bus is not started");
    else rc = ebi_drain_for(bus, ebi_deadline(&bus->store, timeout_ms));
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

/* ---- publish ---- */

EB_API eb_result eb_send(eb_bus *bus, const eb_message *msgs, size_t count, eb_id *ids)
{
    eb_result rc = ebi_bus_check(bus);
    return rc == EB_OK ? ebi_publish_run(bus, msgs, count, ids, NULL) : rc;
}

EB_API eb_result eb_post(eb_bus *bus, const char *type, const char *payload, eb_id *id)
{
    eb_message m;
    memset(&m, 0, sizeof m);
    m.type = type;
    m.payload = payload;
    return eb_send(bus, &m, 1, id);
}

EB_API eb_result eb_publish(eb_bus *bus, const char *type, const char *payload, eb_id *id)
{
    eb_result rc = ebi_bus_check(bus);
    eb_message m;
    eb_id own;
    ebi_waiter w;
    int wait, pump;
    if (rc != EB_OK) return rc;
    memset(&m, 0, sizeof m);
    m.type = type;
    m.payload = payload;
    ebi_mutex_lock(&bus->store.lock);
    wait = bus->state == EBI_STARTED && !ebi_run_here(bus);
    pump = wait && !bus->workers;
    if (pump) rc = ebi_pump_enter(bus); /* before anything is stored: a failure must mean "not" */
    ebi_mutex_unlock(&bus->store.lock);
    if (rc != EB_OK) return rc;
    if (!id) id = &own;
    ebi_waiter_init(&w, 0);
    rc = ebi_publish_run(bus, &m, 1, id, wait ? &w : NULL);
    if (wait) {
        ebi_mutex_lock(&bus->store.lock);
        if (rc == EB_OK) {
            rc = ebi_wait_for(bus, &w, id->str, INT64_MAX, pump, 1);
            ebi_waiter_remove(bus, &w);
        }
        if (pump) ebi_pump_leave(bus);
        ebi_mutex_unlock(&bus->store.lock);
    }
    ebi_cond_fini(&w.cond);
    return rc;
}

EB_API eb_result eb_wait(eb_bus *bus, const char *id, int64_t timeout_ms)
{
    eb_result rc = ebi_bus_check(bus);
    ebi_waiter w;
    int pump;
    if (rc != EB_OK) return rc;
    if (!id || timeout_ms < EB_NONE) return ebi_error(EB_ERR_ARG, "id is NULL or timeout negative");
    ebi_waiter_init(&w, ebi_id_seq(bus->store.id_key, id));
    if (w.seq <= 0) {
        ebi_cond_fini(&w.cond);
        return ebi_error(EB_ERR_NOT_FOUND, "no event %.40s", id);
    }
    ebi_mutex_lock(&bus->store.lock);
    pump = !bus->workers && bus->state == EBI_STARTED;
    if (ebi_run_here(bus)) rc = ebi_error(EB_ERR_STATE, "not inside a handler");
    else if (pump) rc = ebi_pump_enter(bus);
    if (rc == EB_OK) {
        w.next = bus->waiters;
        bus->waiters = &w;
        if (bus->outcomes) ebi_pump_flush(bus);
        w.hit = 1; /* it may be over */
        rc = ebi_wait_for(bus, &w, id, ebi_deadline(&bus->store, timeout_ms), pump, 0);
        ebi_waiter_remove(bus, &w);
        if (pump) ebi_pump_leave(bus);
    }
    ebi_mutex_unlock(&bus->store.lock);
    ebi_cond_fini(&w.cond);
    return rc;
}

/* ---- subscribe ---- */

EB_API eb_result eb_subscribe(eb_bus *bus, const char *pattern, eb_handler handler, void *user,
                              const eb_subscribe_options *options, eb_id *id)
{
    eb_subscribe_options defaults;
    eb_result rc = ebi_bus_check(bus);
    ebi_sub *s = NULL;
    memset(&defaults, 0, sizeof defaults);
    if (!options) options = &defaults;
    if (rc == EB_OK && (!pattern || !ebi_text_name_len(pattern, EBI_TYPE_MAX)))
        rc = ebi_error(EB_ERR_ARG, "the pattern must be 1 to 255 bytes of UTF-8 without spaces");
    if (rc == EB_OK && !handler) rc = ebi_error(EB_ERR_ARG, "handler is NULL");
    if (rc == EB_OK) rc = ebi_sub_options_check(options);
    if (rc == EB_OK) rc = ebi_sub_new(bus, pattern, options, &s);
    if (rc != EB_OK) return rc;
    s->handler = handler;
    s->user = user;
    if (id) *id = s->id;
    rc = ebi_writer_run(&bus->store, ebi_sub_insert, ebi_sub_after, s, EB_DURABLE_NORMAL);
    if (rc != EB_OK) {
        s->removed = 1;
        ebi_sub_release(bus, s);
        if (id) id->str[0] = 0;
    }
    return rc;
}

EB_API eb_result eb_unsubscribe(eb_bus *bus, const char *id)
{
    eb_result rc = ebi_bus_check(bus);
    eb_id copy; /* id may be a string of the subscription's owner, freed by its last call */
    ebi_sub *s;
    if (rc != EB_OK) return rc;
    if (!id) return ebi_error(EB_ERR_ARG, "id is NULL");
    snprintf(copy.str, sizeof copy.str, "%s", id);
    ebi_mutex_lock(&bus->store.lock);
    s = ebi_subs_find(bus, id);
    if (s) {
        ebi_subs_remove(bus, s);
        s->keep++;
    }
    ebi_mutex_unlock(&bus->store.lock);
    if (!s) return ebi_error(EB_ERR_NOT_FOUND, "no subscription %.40s", id);
    /* The row is informational: if it cannot be deleted now, the next owner does. */
    ebi_writer_run(&bus->store, ebi_sub_delete, NULL, &copy, EB_DURABLE_NORMAL);
    ebi_mutex_lock(&bus->store.lock);
    rc = ebi_sub_wait(bus, s);
    s->keep--;
    ebi_sub_release(bus, s);
    ebi_mutex_unlock(&bus->store.lock);
    return rc;
}

/* ---- inside a handler ---- */

EB_API eb_result eb_fail(eb_delivery *delivery, const char *fmt, ...)
{
    va_list args;
    eb_result rc;
    va_start(args, fmt);
    rc = ebi_run_answer(delivery, EBI_OUT_RETRY, fmt, args);
    va_end(args);
    return rc;
}

EB_API eb_result eb_reject(eb_delivery *delivery, const char *fmt, ...)
{
    va_list args;
    eb_result rc;
    va_start(args, fmt);
    rc = ebi_run_answer(delivery, EBI_OUT_DEAD, fmt, args);
    va_end(args);
    return rc;
}

EB_API eb_result eb_snooze(eb_delivery *delivery, int64_t delay_ms)
{
    ebi_run *run = delivery ? (ebi_run *)delivery->impl : NULL;
    eb_result rc;
    if (!run || delay_ms < 0) return ebi_error(EB_ERR_ARG, "no delivery, or a negative delay_ms");
    rc = ebi_bus_check(delivery->bus);
    if (rc != EB_OK) return rc;
    run->outcome = EBI_OUT_SNOOZE;
    run->snooze_ms = delay_ms;
    return EB_FAILED;
}

EB_API eb_result eb_extend(eb_delivery *delivery, int64_t more_ms)
{
    ebi_run *run = delivery ? (ebi_run *)delivery->impl : NULL;
    eb_store *store;
    eb_result rc = EB_OK;
    if (!run || more_ms < EB_NONE) return ebi_error(EB_ERR_ARG, "no delivery, or negative more_ms");
    rc = ebi_bus_check(delivery->bus);
    if (rc != EB_OK) return rc;
    store = &delivery->bus->store;
    ebi_mutex_lock(&store->lock);
    if (run->lost || (run->deadline_us >= 0 && ebi_mono_us(store) >= run->deadline_us)) {
        rc = ebi_error(EB_ERR_STALE, "the handler has timed out already");
    } else if (more_ms == EB_NONE || more_ms > INT64_MAX / 1000 - run->deadline_us) {
        run->deadline_us = -1;
        delivery->deadline_ms = EB_NONE;
    } else if (run->deadline_us >= 0) {
        run->deadline_us += more_ms * 1000;
        delivery->deadline_ms = ebi_add(delivery->deadline_ms, more_ms);
    }
    ebi_mutex_unlock(&store->lock);
    return rc;
}

EB_API int eb_cancelled(const eb_delivery *delivery)
{
    const ebi_run *run = delivery ? (const ebi_run *)delivery->impl : NULL;
    eb_bus *bus;
    int yes;
    if (!run || ebi_bus_check(delivery->bus) != EB_OK) return 1;
    bus = delivery->bus;
    ebi_mutex_lock(&bus->store.lock);
    yes = run->lost || bus->state >= EBI_STOPPING ||
          (run->deadline_us >= 0 && ebi_mono_us(&bus->store) >= run->deadline_us);
    ebi_mutex_unlock(&bus->store.lock);
    return yes;
}

/* ---- store and inspector ---- */

EB_API eb_result eb_store_open(eb_store **out, const eb_options *options)
{
    eb_allocator allocator;
    eb_logger logger;
    eb_store *store;
    eb_result rc;
    if (!out) return ebi_error(EB_ERR_ARG, "out is NULL");
    *out = NULL;
    rc = ebi_store_basics(options, &allocator, &logger);
    if (rc != EB_OK) return rc;
    store = (eb_store *)ebi_alloc(&allocator, sizeof *store);
    if (!store) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memset(store, 0, sizeof *store);
    store->allocator = allocator;
    store->logger = logger;
    rc = ebi_store_init(store, options, 0);
    if (rc == EB_OK) {
        *out = store;
        return EB_OK;
    }
    ebi_store_fini(store);
    ebi_free(&allocator, store);
    return rc;
}

EB_API void eb_store_close(eb_store *store)
{
    eb_allocator allocator;
    if (!store || store->bus || ebi_store_check(store) != EB_OK) return;
    allocator = store->allocator;
    ebi_store_fini(store);
    ebi_free(&allocator, store);
}

EB_API eb_store *eb_bus_store(eb_bus *bus) { return bus ? &bus->store : NULL; }

EB_API void eb_event_list_free(eb_event_list *list)
{
    eb_allocator a, *stored;
    size_t i;
    char *block;
    if (!list || !list->impl) return;
    stored = (eb_allocator *)list->impl;
    a = *stored;
    for (i = 0; i < list->count; i++) {
        memcpy(&block, &list->items[i].type, sizeof block); /* the block begins with the type */
        ebi_free(&a, block);
    }
    ebi_free(&a, list->items);
    ebi_free(&a, stored);
    memset(list, 0, sizeof *list);
}

EB_API eb_result eb_get(eb_store *store, const char *id, eb_event_list *out)
{
    eb_result rc = ebi_store_check(store);
    if (out) memset(out, 0, sizeof *out);
    if (rc != EB_OK) return rc;
    if (!id || !out) return ebi_error(EB_ERR_ARG, "id or out is NULL");
    return ebi_get(store, id, out);
}

EB_API eb_result eb_log_read(eb_store *store, const eb_query *query, eb_event_list *out)
{
    return ebi_query_run(store, query, out, 0);
}

EB_API eb_result eb_dlq_list(eb_store *store, const eb_query *query, eb_event_list *out)
{
    return ebi_query_run(store, query, out, 1);
}

EB_API eb_result eb_dlq_retry(eb_store *store, const char *id, const char *subscription)
{
    ebi_dlq d;
    eb_result rc = ebi_dlq_init(store, id, &d);
    d.subscription = subscription;
    if (rc != EB_OK) return rc;
    return ebi_writer_run(store, ebi_dlq_retry_func, ebi_dlq_woke, &d, ebi_store_level(store));
}

EB_API eb_result eb_dlq_retry_all(eb_store *store, const eb_query *query, int64_t *count)
{
    ebi_dlq d;
    int64_t total = 0;
    eb_result rc = ebi_store_check(store);
    if (count) *count = 0;
    memset(&d, 0, sizeof d);
    if (rc == EB_OK) rc = ebi_filter_init(store, query, &d.filter);
    if (rc != EB_OK) return rc;
    do {
        d.limit = d.filter.q.limit ? d.filter.q.limit - total : INT64_MAX;
        rc = ebi_writer_run(store, ebi_dlq_retry_all_func, ebi_dlq_woke, &d,
                            ebi_store_level(store));
        if (rc == EB_OK) total += d.count;
    } while (rc == EB_OK && d.more && d.limit > d.count);
    if (count) *count = total;
    return rc;
}

EB_API eb_result eb_dlq_purge(eb_store *store, int days, int64_t *count)
{
    return ebi_purge(store, days, count, 0);
}

EB_API eb_result eb_dlq_purge_dead(eb_store *store, int days, int64_t *count)
{
    return ebi_purge(store, days, count, 1);
}

EB_API eb_result eb_dlq_move(eb_store *store, const char *id, const char *reason)
{
    ebi_dlq d;
    eb_result rc = ebi_dlq_init(store, id, &d);
    if (rc != EB_OK) return rc;
    ebi_json_quote(d.reason, sizeof d.reason, reason ? reason : "moved by operator", EBI_ERROR_MAX);
    return ebi_writer_run(store, ebi_dlq_move_func, ebi_dlq_woke, &d, ebi_store_level(store));
}

EB_API eb_result eb_stats_get(eb_store *store, eb_stats *out)
{
    eb_result rc = ebi_store_check(store);
    if (out) memset(out, 0, sizeof *out);
    if (rc != EB_OK) return rc;
    if (!out) return ebi_error(EB_ERR_ARG, "out is NULL");
    return ebi_stats(store, out);
}

#endif /* EVENTBUS_IMPLEMENTATION */

/*
MAINTAINER'S CONTRACT

    - Version numbers: the patch changes for repairs, the minor for additions, the major for
      anything that breaks a program or a file. Until 1.0.0 the minor may break a program, but
      never a file.
    - A file of an older version is migrated forward, in one transaction; a schema step, once
      released, is never edited: add the next one to ebi_schema_steps.
    - Public names are eb_noun_verb, EB_UPPER; private ones ebi_room_verb, EBI_UPPER. No macro of
      the user changes a public type. Options structs only grow at the end, and zero means as
      before.
    - A new room gets a banner with its >> tag, a line in CONTENTS, and says what it owns, which
      lock and transaction it expects. SQL goes into EBI_SQL_LIST; tests/test_plans.c looks at it.
    - A new public function gets a comment at its declaration (threads, blocks, durable,
      ownership), tests under both drivers, a line in the README's table, an example if it is a new
      idea.
    - Every result code is provoked by a test; every claim in this file has a test or a benchmark.
    - SQLite: one writer connection, BEGIN IMMEDIATE, no statement left open across calls, every
      pragma read back. The lock is never held while SQLite works or a handler, logger runs.

CHANGES

    0.1.0   2026-11-18   First version: publish, subscribe, retry, dead letters, inspector, two
                         drivers, crash recovery.

LICENSE

eventbus.h is available under two licenses: choose whichever you prefer.

------------------------------------------------------------------------------
ALTERNATIVE A - MIT License

Copyright (c) 2026 the eventbus.h authors

Permission is hereby granted, free of charge, to any person obtaining a copy of
this software and associated documentation files (the "Software"), to deal in
the Software without restriction, including without limitation the rights to
use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies
of the Software, and to permit persons to whom the Software is furnished to do
so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.

------------------------------------------------------------------------------
ALTERNATIVE B - Public Domain (www.unlicense.org)

This is free and unencumbered software released into the public domain.

Anyone is free to copy, modify, publish, use, compile, sell, or distribute this
software, either in source code form or as a compiled binary, for any purpose,
commercial or non-commercial, and by any means.

In jurisdictions that recognize copyright laws, the author or authors of this
software dedicate any and all copyright interest in the software to the public
domain. We make this dedication for the benefit of the public at large and to
the detriment of our heirs and successors. We intend this dedication to be an
overt act of relinquishment in perpetuity of all present and future rights to
this software under copyright law.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
