/* eventbus.h - v0.2.0 - a durable event bus on SQLite in one header - MIT or public domain: see end
**
**   An event that was published is never lost: its handlers are called until they succeed, or it
**   lies in the dead-letter queue with the error of every attempt. (One that nobody subscribed to
**   is done at once, with a warning: see "Unmatched" under CONCEPTS.)
**
** Background jobs and events that survive kill -9 and power cuts, inside a C or C++ program: no
** server, no daemon, no configuration file. Retries with backoff, time limits, order by key, dead
** letters. With worker threads in a service, without any thread in a game loop.

USE IT

    Copy eventbus.h and the SQLite amalgamation (sqlite3.c, sqlite3.h; 3.51.3 or newer, not 3.52.0)
    into your project. In exactly one C or C++ file:

        #define EVENTBUS_IMPLEMENTATION
        #include "eventbus.h"

    before any other include, as -std=c99 hides the POSIX names; everywhere else just include it.
    Compile that file and sqlite3.c, link with -lpthread (and -ldl -lm on older systems). If all is
    one file: sqlite3.c first. C99, C11, C++17; Linux and Windows are tested, macOS and BSD not.

    One SQLite per process: if your program has one that is new enough, use that. Older ones can
    corrupt a WAL file and are refused: then put our two files first among the -I, and leave out
    -lsqlite3. Two copies in one process, say in a program and in a plugin that it loads, do not see
    each other's locks: both dispatch one file, and can ruin it. That is not detected. A plugin
    hides its copy with -DSQLITE_API='__attribute__((visibility("hidden")))' and has its own file.

QUICK EXAMPLE

    #define EVENTBUS_IMPLEMENTATION
    #include "eventbus.h"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>

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
        eb_options options;
        eb_bus *bus;
        memset(&options, 0, sizeof options);
        options.path = "hello.db";
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
        >>text          UTF-8, plain text, quoting
        >>json          What is JSON and what is not
        >>times         Milliseconds as text, and back
        >>ids           Ids that know their row
        >>glob          The one pattern language
        >>results       Texts, and the calling thread's last error
        >>sql           Every statement, in one list
        >>types         The store and its connection
        >>locks         Who holds the lock and who leads, asserted
        >>memory        One allocator
        >>clock         Wall time for rows, monotonic time for waits
        >>log           One structured entry at a time
        >>db            One connection and its statements
        >>opening       A connection with our settings, and waiting for others' locks
        >>ownership     One dispatcher per file and namespace
        >>schema        Tables: the text of every version
        >>migration     Whose file it is, and bringing it forward
        >>store         Options, place, opening, closing
        >>commits       One transaction, whoever is in it
        >>wal           The write-ahead log stays short
        >>writer        One connection, many callers, one commit
        >>readers       Looking without being in the way
        >>entries       Events in memory, lists of them, sets of types
        >>policy        Backoff: when a failed attempt is tried again
        >>matching      From a type to its subscriptions
        >>bus           The state of a bus, room by room
        >>state         Its small changes
        >>alarms        Who has to look, and when
        >>depths        How many lives there are, without counting
        >>caps          max_pending, without counting for each publish
        >>windows       A window over the log that moves on
        >>lanes         What a lane is told
        >>passed        Who was left standing in line
        >>outcomes      How a claim ends, on disk
        >>messages      What a message may be
        >>unmatched     Events that nobody wants, told to the log
        >>births        How an event begins
        >>publish       Messages into a commit
        >>keys          Events of one ordering key, one after the other
        >>claims        One event, claimed, parked or ended
        >>lines         The line of a key, walked
        >>scans         Where a claim looks
        >>turns         One claim at a time
        >>starts        From a claim to its handler
        >>fences        What is still ours
        >>recovery      What a process that died had under way
        >>attempts      Running the handlers of one event
        >>workers       Threads that run handlers
        >>stops         The last commit of a bus
        >>clockwork     Deadlines, acks, others' commits: what when
        >>pump          The same engine on the caller's thread
        >>waiting       For one event, for all of them
        >>options       Checked once, resolved once
        >>subscriptions Who wants what
        >>life          Start, stop, free
        >>lists         Reading events
        >>letters       Dead letters: retry, purge, move
        >>figures       Counting, and what is known without
        >>public        The functions that are declared at the top

GUARANTEES

    What survives what, once eb_publish, eb_post or eb_send has returned EB_OK:

        durability           process killed     power cut, kernel panic
        EB_DURABLE_FULL      nothing is lost    nothing is lost             (the default)
        EB_DURABLE_NORMAL    nothing is lost    the newest events may be lost, never one in between
        EB_DURABLE_OFF       nothing is lost    the file may be damaged: for tests and caches

    - At least once. A handler may run again for an event it has seen: an earlier attempt failed
      half way, or the process died before the outcome was on disk. Outcomes ride on the next
      commit, about 1 ms later at most, and wait for no fsync of their own, so a power cut may run
      done events again. Handlers should be idempotent; event->id is the same in every attempt.
    - All or none. eb_send stores all its messages in one commit, or none.
    - A handler that kills the process is found out. If the process dies while exactly one event is
      under way, and that was taken alone, it gets a failed attempt: "interrupted". If several are,
      or one of a batch (quick events are taken in batches), nobody can know which one it was: none
      is charged, and each runs again alone; in between the others run. So an event that kills the
      process each time is dead after at most max_retries + 2 starts; others lose no attempt to it.
    - A late answer changes nothing. Every claim has a token; what a handler says after its time
      limit, or after an operator took the event away, is ignored.
    - Sequence numbers grow in order of commit and are never reused, not even after a purge.
    - Nothing is silently dropped. A full disk, a locked file, a failed fsync, a damaged file: each
      has its result, see ERRORS. If the fsync of a commit fails, the call says EB_ERR_UNKNOWN, and
      the bus closes the file, opens it again and lets a checkpoint read everything back before it
      promises anything new: the kernel may have dropped the pages and call the next fsync good.
    - A file that is deleted or renamed under a started bus takes no more events: EB_ERR_IO, with
      FULL from the next publish on, with NORMAL within idle_poll_ms, until the name is back.
    - One dispatcher. A second bus on the same file and namespace, in this process or another, gets
      EB_ERR_OWNED from eb_start at once; when the first dies, the next start succeeds at once.

    This rests on SQLite's WAL, on file locks that work, and on a disk that does not lie about
    fsync. Network file systems (NFS, SMB) and folders that Docker Desktop shares will not do.

LIMITS

    - Order: events start in order of publishing, but with several workers, retries and delays they
      overtake each other. Give them the same ordering_key if they must not.
    - Type, pattern and keys 1 to 255 bytes of UTF-8; payload and metadata 1 MiB each by default
      (max_payload_bytes), nested at most 128 deep; error text 1000 bytes; 1024 workers.
    - One process dispatches; any number may publish, inspect and retry beside it. Their events are
      seen within idle_poll_ms; at once if eb_wake is called where the dispatcher is.
    - SQLite has one writer. A call waits for somebody else's lock for busy_timeout_ms at most, and
      eb_wait and eb_drain for their own limit. In vain if the lock is your own: BEGIN; INSERT; on
      another connection, then eb_post, stands still and is EB_ERR_BUSY. Commit first, then post.
    - A handler that never returns cannot be killed. Its thread is left behind and replaced. From
      the 16th such thread on, the subscription that loses one is paused until one of them comes
      back: an ERROR in the log, counted in eb_stats.paused; its events wait.
    - Done events stay in the file: this version has no retention.
    - Triggers that others put on our tables do not fire for the bus's writes.

CONCEPTS

    Event           A type ("order.shipped"), a JSON payload, optional metadata. Kept in a log with
                    a global sequence number, seq. eb_json_text() makes JSON of plain text.

    Subscription    A pattern and a handler. '*' matches any run of characters, dots included, also
                    an empty one; nothing else is special. "order.*" matches "order.a.b", "*" all.
                    All handlers that match run one after the other, in order of subscribing, and
                    share the event's one life: the first failure ends the attempt, and the next
                    attempt runs all of them again. It ends with the process: subscribe anew.

    Life            Every arrow is one atomic commit:

         eb_post, eb_publish, eb_send
              v          nobody matches, and on_unmatched is DONE
         +---------+ ------------------------------------------------------------> +------+
         |         |   its turn    +------------+   every handler returned EB_OK   |      |
         | pending | ------------> | processing | -------------------------------> | done |
         |         | <------------ |            | ---+                             |      |
         +---------+   eb_snooze,  +------------+    |  a failed attempt: the      +------+
           |     ^     crash,          |       ^     |  next one after a wait
           |     |     shutdown        |       +-----+
           |     |  eb_dlq_retry       v  the last attempt failed, eb_reject, eb_dlq_move
           |     +---------------- +-------+
           +---------------------> |  dlq  | -----> deleted: eb_dlq_purge, eb_dlq_purge_dead
              eb_dlq_move;         +-------+
              nobody matches, and on_unmatched is DLQ

                    One that failed before stays processing, as a rule, while it waits: due_ms and
                    claimed_ms of eb_event tell. An operator has more arrows, see FILE FORMAT.

    Attempt         max_retries + 1 in all (default 4). Before attempt N >= 2 the bus waits
                    min(base_delay_ms * multiplier^(N-2), max_delay_ms): 1, 2, 4 s. The policy of
                    the handler that failed decides. jitter spreads the waits; schedule_ms lists
                    them one by one.
                        return EB_OK;                          done
                        return eb_fail(d, "status %d", s);     again, as the policy says
                        return eb_reject(d, "bad address");    dead now, no retry can help
                        return eb_snooze(d, 60000);            again in a minute, attempt not spent
                        return EB_ERR_IO;                      like eb_fail with that code's text
                    No longjmp out of a handler. No exception either, unless the implementation is
                    compiled as C++: then it is a failed attempt with what() as its text.

    Time limit      handler_timeout_ms, for each call. With threads: at the deadline the attempt has
                    failed, and another thread takes the place of the stuck one; the next attempt
                    may run while the old one still does. A long handler asks eb_cancelled(), or
                    eb_extend()s its limit. Without threads it is noticed when the handler returns.

    Dead letter     The event, the error of every attempt, when it died. eb_dlq_list shows them,
                    eb_dlq_retry gives one a new life (attempts from zero), eb_dlq_purge deletes old
                    ones, eb_dlq_move gives up on a live event.

    Unmatched       Nobody subscribed to it: on_unmatched says DONE (default), DLQ or KEEP. DONE
                    and DLQ concern only events published through a started bus and never
                    attempted. DONE is not silent, as it may be a mistyped type: a WARN the first
                    time for each of 64 types, one more for all others, and eb_stats.unmatched. What
                    another process published, was there before the start, waits for a retry or came
                    back from the dead letters stays pending until somebody matches; logged once.

    Keys            Events of one ordering_key never run at the same time. Beyond that they start in
                    order of publishing: a later one waits while an earlier one runs, is due, or
                    waits after a failure or a snooze. It does not wait for one that is delayed and
                    was never tried, is dead, is matched by nobody, or whose subscription is paused;
                    when such a one can run, it takes its turn. A handler that was given up at its
                    time limit no longer holds its key.
                    idempotency_key: a second publish with the same key stores nothing and returns
                    EB_DUPLICATE and the first event's id, as long as that is kept. Use one, and
                    EB_ERR_UNKNOWN can simply be tried again.

    Two drivers     workers = N: N threads run handlers, one more keeps the time. workers = EB_NONE:
                    eb_pump(bus, budget_ms, &next_ms) runs what is due on the calling thread, and
                    no thread is ever created. options.notify tells a program that sleeps between
                    two pumps of work that comes earlier, but not of other processes' commits: for
                    these pump every idle_poll_ms. In a game: EB_DURABLE_NORMAL, wal_pages = EB_NONE
                    and eb_checkpoint() on the loading screen.

    The end         eb_drain waits for all that somebody matches, delayed events and retries too.
                    To work until nothing is due: workers = EB_NONE, eb_pump(bus, EB_NONE, &next);
                    next is then -1, or says in how many ms something will be.

    Namespace       options.ns puts a prefix before every table but `namespaces`, so that one file
                    holds several buses, or a bus beside the application's own tables.

THREADS

    Every function may be called from any thread, unless its comment says otherwise, and from inside
    a handler, except: eb_wait, eb_drain, eb_pump (EB_ERR_STATE) and eb_destroy (forbidden). Inside
    a handler eb_publish is eb_post, eb_shutdown begins the shutdown and returns at once, and
    eb_unsubscribe does not wait. The same holds inside the logger.

    Handlers and logger are called without any lock held: they may call back. So is options.notify,
    which may call eb_wake and nothing else. Clock and allocator may be called under a lock: they
    must not call back.

    workers = EB_NONE: eb_pump, eb_publish, eb_wait and eb_drain pump; one thread at a time, a
    second one gets EB_ERR_STATE. eb_post and eb_send are fine from any thread even so.

    fork: a child must not use its parent's bus; every call there is EB_ERR_FORK, closing does
    nothing. Open a bus of your own in the child. A handler may fork: if the child returns from it,
    the call that pumps ends there with EB_ERR_FORK, a worker's thread just ends.

    Signals: call no function from a signal handler. An interrupted system call does no harm.

    SQLite built with SQLITE_THREADSAFE=0, or EB_NO_THREADS: workers must be EB_NONE, else
    EB_ERR_THREADS; use the bus from one thread.

ERRORS

    Results >= 0: the call did what it says. < 0: it did not. eb_strerror() has a short text,
    eb_errmsg() the detail of this thread's last failure.

        EB_ERR_ARG         your mistake; the message names the argument. Nothing was changed
        EB_ERR_PAYLOAD     not JSON as RFC 8259 has it; the message says at which byte, and why
        EB_ERR_TOO_BIG     over max_payload_bytes
        EB_ERR_SHUTDOWN    after eb_shutdown. From eb_publish with an id: stored, will run next time
        EB_ERR_NOT_FOUND   no such event or subscription, or the text is no id
        EB_ERR_STATE       not now (already started, not dead), or not here (inside a handler);
                           eb_drain: what is left waits for a paused subscription
        EB_ERR_STALE       the time limit has passed; stop working
        EB_ERR_TIMEOUT     the time you gave ran out; the thing itself goes on
        EB_ERR_BUSY        somebody held the write lock past busy_timeout_ms: another process, or an
                           open transaction of your own. Nothing was written; try again
        EB_ERR_OWNED       another bus dispatches this file and namespace
        EB_ERR_FULL        disk full, or max_pending reached; nothing was stored. Try later
        EB_ERR_UNKNOWN     write or fsync of a commit failed: stored or not. Publish again with the
                           same idempotency key
        EB_ERR_IO          cannot be read or written; a read-only file is for eb_store_open alone
        EB_ERR_CORRUPT     damaged. See "PRAGMA integrity_check", restore a backup
        EB_ERR_SCHEMA      not our file, a newer version's, in UTF-16, or a SQLite that is too old
        EB_ERR_NOMEM       out of memory, or of threads
        EB_ERR_FORK        used in a forked child
        EB_ERR_THREADS     workers wanted, but this build has no threads

    While the disk is full or the file is locked the dispatcher keeps the outcomes of handlers in
    memory, logs the cause, and tries again, later and later but at least every 2 s.

    The logger gets one entry per failed attempt (entry->attempt > 0; level ERROR if it was the
    last) and what else an operator should know. The default writes JSON to stderr, from WARN up:

        {"time":"2026-11-18T05:32:10.123Z","level":"warn","message":"attempt failed",
         "event_id":"...","type":"mail.send","subscription":"mail.*","error":"relay down",
         "node":"5f0c1d2e","attempt":1,"max_attempts":4,"next_delay_ms":1000}   (in one line)

MEMORY

    options.allocator is asked for everything that eventbus.h itself needs; SQLite has its own, see
    sqlite3_config(). Events wait on disk: in memory are at most EB_READY_MAX of them or
    EB_READY_BYTES, whichever is reached first, and at worst twice that again of what is due and was
    claimed. Where events are few and small, 140 KiB are enough. Whatever you pass in is copied
    before the call returns; whatever a handler is given is valid until it returns; lists of the
    inspector are yours until eb_event_list_free(), and may outlive the bus.

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
        EB_LOST_MAX          16: threads left behind in stuck handlers, then subscriptions pause

    Everything else is in eb_options. All-zero is the default; a number that may mean "none" takes
    EB_NONE (-1), any other negative number is EB_ERR_ARG, and so is an option of a later version
    that is not zero. SQLite's recommended compile options are in sqlite3/VERSION.md.

FILE FORMAT

    An ordinary SQLite database in UTF-8 and WAL mode. While it is open, app.db-shm and app.db-wal
    lie beside it, the WAL with up to 20 MB, 40 under a load without pause (90 with wal_pages =
    EB_NONE; more where one commit is larger than that, or a reader keeps an old state). Whoever
    dispatches holds a lock on app.db.owner, in a namespace "billing" on
    app.db.owner@billing, each with a -journal beside it: leave these alone. All names in that
    namespace begin with billing_, but for `namespaces`. Times are text, 2026-11-18T05:32:10.123Z,
    except columns that end in _ms.

        event_log      what was said: seq, id, type, payload, metadata, ordering_key,
                       idempotency_key, producer, deliver_at_ms, created_at
        deliveries     what is live: one small row per unfinished event
        finished       how it ended well: seq, attempts, errors if any, finished_at
        dead_letters   how it ended badly, with everything; also when and by whom retried
        subscriptions  who subscribes now, for information; paused: stuck, see LIMITS
        nodes          who dispatches: id, name, pid, since when, threads left behind
                       (lost_workers); after a crash until the next start. schedules: later
        meta           schema version, id key, floor of sequence numbers; namespaces: a list
        events         a view: id, type, payload, status, retry_count, last_error, metadata,
                       created_at, updated_at, seq, attempts, due_at (waits until then),
                       processing_started_at (NULL unless somebody works on it), owner (who)

    From the shell, also while the bus runs, with sqlite3 -cmd '.timeout 5000' app.db:

        select status, count(*) from events group by 1;
        update events set status = 'pending' where seq = 42;     retry a dead, rerun a done event; a
                                                                 processing one is due at once
        update events set status = 'dlq' where seq = 42;         give up on a live one
        update events set status = 'processing' where seq = 42;  hold a pending one, and its key

    The next start takes the last for an interrupted attempt. Other updates, INSERT and DELETE are
    refused with the name of the function to use. Deleting rows of the tables is not refused, only
    senseless: the figures no longer fit. Look rows up by seq: the bus finds an id without an index
    (see >>ids), the shell has to scan. Writing needs a shell of 3.51.3 or newer, reading does not.

    Back it up with SQLite's backup or VACUUM INTO, not with cp while it is open. To restore: stop
    the bus, delete app.db-wal and app.db-shm, then copy; a WAL left over would be played into the
    copy and ruin it. (.restore of the shell into the living file is fine: it is read anew.)

    A newer file, or one in which others have our names, is refused, and no table touched. Any other
    SQLite database gets ours. An older version is migrated in one transaction; there is no way
    back. While somebody dispatches it, that waits for busy_timeout_ms and then is EB_ERR_OWNED.
*/
/* A strict dialect (-std=c99) hides the POSIX names; in others this would hide the user's. */
#if defined(EVENTBUS_IMPLEMENTATION) && !defined(_WIN32) && defined(__STRICT_ANSI__) &&            \
    !defined(_POSIX_C_SOURCE)
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
#define EB_VERSION_MINOR 2
#define EB_VERSION_PATCH 0
#define EB_VERSION_STRING "0.2.0"

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
    X(EB_ERR_SCHEMA, -15, "the file is not ours or newer, or SQLite is too old; nothing changed")  \
    X(EB_ERR_NOMEM, -16, "out of memory")                                                          \
    X(EB_ERR_FORK, -17, "used in a forked child; open a bus of your own there")                    \
    X(EB_ERR_THREADS, -18, "threads are not available in this build")

#define EB_RESULT_ENUM(name, value, text) name = value,
typedef enum eb_result { EB_RESULT_LIST(EB_RESULT_ENUM) EB_RESULT_LAST_ = -99 } eb_result;
#undef EB_RESULT_ENUM

/* Constant text of a result. Any thread; never NULL, also for a number that is no result. */
EB_API const char *eb_strerror(eb_result result);

/* Copies the detail of the calling thread's last failed call, on whatever object, into buf (cut to
** cap, always terminated if cap > 0; buf may be NULL) and returns its whole length; 0 if no call
** failed yet. Any thread. A call that succeeds leaves the text alone: the result is the truth. */
EB_API size_t eb_errmsg(char *buf, size_t cap);

/* The version of the implementation that is linked, e.g. "0.2.0". Any thread. */
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

/* "later" beside an option: a later version gives it a meaning, and until then anything but zero
** is EB_ERR_ARG, so that no upgrade changes what a program does. */

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
                                   unless that is given beside it. Copied */
} eb_retry_policy;

/* One per failed attempt, and for whatever else an operator should know. Strings are valid during
** the call only, NULL where they do not apply. subscription: the pattern of the handler that
** failed. */
typedef struct eb_log_entry {
    int level; /* EB_LOG_ERROR ... EB_LOG_DEBUG */
    const char *message, *event_id, *type, *subscription, *error;
    int attempt, max_attempts;      /* attempt > 0 only in the one entry per failed attempt */
    int64_t next_delay_ms, time_ms; /* next_delay_ms: -1 = no further attempt */
    const char *ns, *node;          /* of the bus that speaks; node: node_name, else node_id */
} eb_log_entry;

/* Called without locks, by whichever thread has something to say. It may call the bus as a handler
** may: publishing is fine, what waits is EB_ERR_STATE. */
typedef struct eb_logger {
    void (*func)(const eb_log_entry *entry, void *user);
    void *user;
} eb_logger;

/* For workers = EB_NONE (else EB_ERR_ARG) and a program that sleeps in epoll or an event loop:
** called when a publish, a subscribe, or a retry or move through eb_bus_store makes work due
** earlier than eb_pump last said; at times once too often. By any thread that calls the bus,
** without locks. It may call eb_wake, and nothing else. Commits of other processes, and of stores
** of their own, are seen by the next eb_pump only. */
typedef struct eb_notify {
    void (*func)(void *user);
    void *user;
} eb_notify;

struct eb_delivery;
typedef struct eb_hook { /* not in this version: must be zero */
    void (*before)(const struct eb_delivery *delivery, void *user);
    void (*after)(const struct eb_delivery *delivery, eb_result result, void *user);
    void *user;
} eb_hook;

/* All three or none; a bus with it needs workers = EB_NONE. Called by any thread that calls the
** bus, perhaps under a lock of the bus: it must not call back. */
typedef struct eb_clock {
    int64_t (*now_ms)(void *user), (*mono_ms)(void *user);
    void (*sleep_ms)(int64_t ms, void *user);
    void *user;
} eb_clock;

/* Like realloc; size 0 frees and returns NULL. Called by any thread, also the bus's own, perhaps
** under a lock of the bus: it must not call back. */
typedef struct eb_allocator {
    void *(*resize)(void *ptr, size_t size, void *user);
    void *user;
} eb_allocator;

typedef struct eb_options {
    const char *path;            /* database file, created 0600; ":memory:" for tests */
    const char *ns;              /* namespace: [A-Za-z0-9_-]{0,32}, lower-cased, not sqlite...;
                                    default none */
    int workers;                 /* threads that run handlers: 0 = 1; EB_NONE = none, eb_pump() */
    int durability;              /* 0 = EB_DURABLE_FULL; see GUARANTEES */
    int shared;                  /* later */
    eb_retry_policy retry;       /* for subscriptions that do not say otherwise */
    int64_t handler_timeout_ms;  /* 30000: of each handler call; EB_NONE = none */
    int64_t shutdown_timeout_ms; /* 30000; EB_NONE = wait for ever */
    int64_t busy_timeout_ms;     /* 5000: how long a commit waits for somebody else's lock;
                                    EB_NONE = it does not wait */
    int64_t lease_ms;            /* later */
    int64_t idle_poll_ms;        /* 1000: a sleeping bus looks for other processes' commits;
                                    EB_NONE = only after eb_wake() and in eb_pump() */
    int64_t retention_ms;        /* later: done events are kept for ever */
    int64_t max_bytes;           /* later */
    int on_unmatched;            /* EB_UNMATCHED_DONE, _DLQ, _KEEP: an event nobody subscribed to */
    size_t max_payload_bytes;    /* 1 MiB; metadata too */
    int64_t max_pending;         /* cap on live events: EB_ERR_FULL beyond, at times a moment longer
                                    than need be; 0 or EB_NONE = none */
    int wal_pages;               /* the WAL is copied into the database every so many pages: 1000;
                                    EB_NONE = in eb_checkpoint(), at the end, and beyond 64 MiB */
    const char *node_id;         /* producer and owner of events, in the file; default: generated */
    const char *node_name;       /* a name for people, in the log; default: node_id */
    const char *node_description, *node_metadata; /* later */
    eb_logger logger;            /* default: one JSON line on stderr from WARN up */
    eb_notify notify;            /* default: none; needs workers = EB_NONE */
    eb_hook on_delivery;         /* later */
    eb_clock clock;              /* default: the system's; with another every wait is sleep_ms */
    eb_allocator allocator;      /* default: malloc */
    const char *vfs;             /* SQLite VFS name; default: SQLite's */
} eb_options;

/* ---- the bus ------------------------------------------------------------------------------- */

/* Opens the database file, creating it and its tables if need be, and checks everything: version,
** schema, WAL, settings. A file of an older version is migrated (EB_ERR_OWNED: somebody dispatches
** it and went on for busy_timeout_ms). Handlers may be subscribed and events published at once;
** nothing is dispatched before eb_start(). NULL options are not enough: path is required.
** Threads: any. Blocks: up to busy_timeout_ms for each lock it needs. Ownership: everything in
** options is copied; *out is NULL on failure, and the logger is told why. Close with eb_destroy().
*/
EB_API eb_result eb_open(eb_bus **out, const eb_options *options);

/* Becomes the one dispatcher of this file and namespace (else EB_ERR_OWNED, at once), recovers
** what a crash left behind, and starts the worker threads. EB_ERR_STATE the second time;
** EB_ERR_SCHEMA: a newer eventbus.h has migrated the file since eb_open. After a failure it may be
** tried again.
** Threads: any. Blocks: for the recovery, which grows with the events that were under way, and up
** to busy_timeout_ms for each of its commits. Durable: these wait for no fsync. */
EB_API eb_result eb_start(eb_bus *bus);

/* workers = EB_NONE: runs due events on this thread until nothing is due or budget_ms is spent; at
** least one, so that there is always progress; EB_NONE: until nothing is due. The budget is looked
** at before an event is claimed, not between its handlers. *next_ms (may be NULL): ms until the
** next due event, or until a failed commit is tried again; 0 = more now, -1 = none. Sees what
** other processes have committed. EB_ERR_STATE: not started, or the bus has workers;
** EB_ERR_SHUTDOWN: it is shut down.
** Threads: one at a time, EB_ERR_STATE for a second and inside a handler. Blocks: for the
** handlers, their commits, and up to busy_timeout_ms for a lock. Durable: every outcome is
** committed when it returns EB_OK, without an fsync of its own; else they are kept in memory and
** tried again. If events cannot be claimed (a locked or damaged file), that is logged, not
** returned. */
EB_API eb_result eb_pump(eb_bus *bus, int64_t budget_ms, int64_t *next_ms);

/* Waits until no event is pending or processing, delayed and retrying ones included; those that
** stay because nobody matches them do not count. EB_ERR_TIMEOUT if that takes longer.
** EB_ERR_STATE: nothing else is left, but some wait for a subscription that is paused because its
** handlers never returned (eb_errmsg names it); also before eb_start. EB_ERR_SHUTDOWN: the bus
** stopped first. EB_ERR_CORRUPT, EB_ERR_SCHEMA: the file is damaged, and waiting is no help.
** Threads: any, EB_ERR_STATE inside a handler or logger (workers = EB_NONE: pumps, one at a time).
** Blocks: up to timeout_ms (0: just looks, EB_NONE: for ever), a running handler longer if it
** pumps. Durable: when it returns EB_OK every outcome is committed, without an fsync of its own. */
EB_API eb_result eb_drain(eb_bus *bus, int64_t timeout_ms);

/* No new publish or subscribe; running handlers may finish within shutdown_timeout_ms, else
** EB_ERR_TIMEOUT and they are left behind: what of the bus they can still touch lives until they
** return (keep `user` as well). Everything that is not finished is on disk and resumes at the next
** start. Any number of times. Inside a handler: begins the shutdown and returns EB_OK at once. The
** inspector still works.
** Threads: any. Blocks: up to shutdown_timeout_ms, and up to busy_timeout_ms for a last commit.
** Durable: all outcomes are committed, without an fsync; if that fails the log says so, and those
** events run again. */
EB_API eb_result eb_shutdown(eb_bus *bus);

/* Shuts down if that was not done, closes the file, frees the bus. NULL is fine. Does nothing in a
** forked child. Threads: the last one to use the bus; never inside a handler or logger (there it
** only begins the shutdown, and the bus is leaked). Blocks: as eb_shutdown, and for SQLite's last
** checkpoint of the WAL. Ownership: the bus is gone, with eb_bus_store(); lists live on. */
EB_API void eb_destroy(eb_bus *bus);

/* Looks for work now: another process has committed something. To be called on the bus that
** dispatches; on the one that published it does nothing for the other. Threads: any. Blocks: no. */
EB_API void eb_wake(eb_bus *bus);

/* ---- publish ------------------------------------------------------------------------------- */

typedef struct eb_message {
    const char *type;            /* 1 to 255 bytes of UTF-8, no spaces, control characters or '*' */
    const char *payload;         /* JSON text, stored byte for byte; NULL = null */
    size_t payload_len;          /* 0 = strlen */
    const char *metadata;        /* JSON object of strings, or NULL */
    const char *ordering_key;    /* same key: one at a time, in order; see "Keys" in CONCEPTS */
    const char *idempotency_key; /* published once while the event is kept: else EB_DUPLICATE */
    int64_t delay_ms;            /* not before now + delay_ms, */
    int64_t deliver_at_ms;       /* or not before this wall time; one of the two at most */
    int durability;              /* 0 = the bus's; EB_DURABLE_FULL or _NORMAL if that is not OFF */
} eb_message;

/* Stores the event and waits until it is over, through all retries: EB_OK, it is done, or EB_DEAD,
** it is in the dead-letter queue. Inside a handler or logger, or before eb_start(), it is
** eb_post(). There is no time limit: an event that on_unmatched keeps, or whose subscription is
** paused, is waited for until that changes; eb_send and eb_wait have one. Stored, but not waited
** for to the end: EB_ERR_SHUTDOWN (the bus stopped), EB_ERR_CORRUPT, EB_ERR_SCHEMA, EB_ERR_IO,
** EB_ERR_BUSY (it cannot be read or dispatched); set id->str[0] = 0 before, and it tells these
** from "not stored".
** Threads: any (workers = EB_NONE: pumps; EB_ERR_STATE if another thread does, nothing is stored).
** Blocks: until the event's end. Durable: on disk as the bus's durability says before any handler
** runs. Ownership: arguments are copied; id may be NULL. */
EB_API eb_result eb_publish(eb_bus *bus, const char *type, const char *payload, eb_id *id);

/* Stores the event and returns; handlers run later. payload is JSON text, NULL is null; for plain
** text see eb_json_text(). Threads: any, also inside a handler or logger. Blocks: for the commit,
** and up to busy_timeout_ms for somebody else's lock. Durable: when it returns EB_OK the event is
** on disk as the bus's durability says. Ownership: arguments are copied; id may be NULL. */
EB_API eb_result eb_post(eb_bus *bus, const char *type, const char *payload, eb_id *id);

/* The full form of eb_post: count messages in one commit, all or none. ids (may be NULL) receives
** count ids. EB_DUPLICATE: some idempotency keys were known; the others are stored, all ids
** filled. A count of 0 is EB_OK. Threads, Blocks, Ownership: as eb_post. Durable: as the most
** demanding of the messages says. */
EB_API eb_result eb_send(eb_bus *bus, const eb_message *msgs, size_t count, eb_id *ids);

/* Waits for the end of an event, wherever it is dispatched: EB_OK, it is done, EB_DEAD, it is in
** the dead-letter queue, EB_ERR_TIMEOUT, EB_ERR_NOT_FOUND. EB_ERR_SHUTDOWN: this bus stopped
** first. EB_ERR_CORRUPT, EB_ERR_SCHEMA, EB_ERR_IO, EB_ERR_BUSY: the file cannot be read or
** dispatched.
** Threads: any, EB_ERR_STATE inside a handler or logger (a started bus with workers = EB_NONE:
** pumps, one at a time). Blocks: up to timeout_ms (0: just looks, EB_NONE: for ever), a running
** handler longer if it pumps. The end in another process is seen within idle_poll_ms. */
EB_API eb_result eb_wait(eb_bus *bus, const char *id, int64_t timeout_ms);

/* ---- subscribe ----------------------------------------------------------------------------- */

/* For a handler: valid until it returns. From the inspector: until eb_event_list_free(). */
typedef struct eb_event {
    eb_id id;
    int64_t seq; /* position in the log; never reused */
    const char *type, *payload;
    size_t payload_len;
    const char *metadata;
    eb_status status;       /* done: its handlers succeeded, or nobody matched it */
    int retry_count;        /* failed attempts so far */
    const char *last_error; /* JSON array, one text per failed attempt, or NULL */
    const char *ordering_key, *idempotency_key, *producer; /* producer: node_id of who published */
    const char *subscription; /* name of the subscription whose life this is; NULL: unnamed */
    int64_t created_at_ms, updated_at_ms, dlq_at_ms;
    int64_t due_ms;     /* waits until then (delay, retry, snooze); 0: not for a time */
    int64_t claimed_ms; /* taken for its handlers since then; 0: nobody has it. For lists, not for a
                           handler, where both are 0 */
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
** inside eb_pump() or what else pumps; no lock is held. It must return: no longjmp, and an
** exception only if the implementation is compiled as C++ (a failed attempt with what() as its
** text). With several workers it may run on several threads at once. */
typedef eb_result (*eb_handler)(eb_delivery *delivery, void *user);

/* This attempt failed, retry per policy. Returns EB_FAILED, which the handler has to return. The
** text is copied (cut at 1000 bytes). Threads: the handler's own. Blocks: no. */
EB_API eb_result eb_fail(eb_delivery *delivery, const char *fmt, ...) EB_PRINTF(2, 3);

/* No retry can help: dead-letter now. Returns EB_FAILED, which the handler has to return. The text
** is copied (cut at 1000 bytes). Threads: the handler's own. Blocks: no. */
EB_API eb_result eb_reject(eb_delivery *delivery, const char *fmt, ...) EB_PRINTF(2, 3);

/* Again in delay_ms, without spending an attempt. Returns EB_FAILED, which the handler has to
** return; EB_ERR_ARG if delay_ms < 0. Threads: the handler's own. Blocks: no. */
EB_API eb_result eb_snooze(eb_delivery *delivery, int64_t delay_ms);

/* Still working: moves the deadline more_ms further (EB_NONE: away). EB_ERR_STALE if too late: the
** attempt has failed already, stop working. Threads: the handler's own. Blocks: no. */
EB_API eb_result eb_extend(eb_delivery *delivery, int64_t more_ms);

/* 1 if the handler timed out or the bus shuts down: please return. Threads: the handler's own.
** Blocks: no. */
EB_API int eb_cancelled(const eb_delivery *delivery);

typedef struct eb_subscribe_options {
    const char *name;      /* later */
    int64_t timeout_ms;    /* default: options.handler_timeout_ms; EB_NONE = none */
    eb_retry_policy retry; /* merges over options.retry; base_delay_ms overrides its schedule */
    int breaker_failures;  /* later, like everything below */
    int64_t breaker_ms;
    int from, order;
    const char *order_path;
    int on_dead;
    int checkpoint_every;
    int64_t checkpoint_ms;
    int max_concurrency;
    double max_per_second;
    int instances;
    int transactional;
} eb_subscribe_options;

/* Calls handler for every event whose type matches pattern (see eb_match). Several that match the
** same event run one after the other, in order of subscribing; the first failure ends the attempt.
** Lives as long as the bus: subscribe at each start, before eb_start() so that nothing is
** unmatched.
** Threads: any, also inside a handler. Blocks: for a small commit, and up to busy_timeout_ms for
** somebody else's lock. Durable: no, its row in the file is for information. Ownership: pattern
** and options are copied; user must live until eb_unsubscribe() or eb_shutdown() returned EB_OK
** outside a handler. id may be NULL. */
EB_API eb_result eb_subscribe(eb_bus *bus, const char *pattern, eb_handler handler, void *user,
                              const eb_subscribe_options *options, eb_id *id);

/* No new call of the handler begins. Outside a handler it also waits for running calls, at most
** shutdown_timeout_ms, else EB_ERR_TIMEOUT: unsubscribed, but keep `user`. Inside a handler or
** logger it does not wait: keep `user` there too. EB_ERR_NOT_FOUND: no such subscription.
** Threads: any. Blocks: as said, and for a small commit, up to busy_timeout_ms. */
EB_API eb_result eb_unsubscribe(eb_bus *bus, const char *id);

/* ---- store and inspector: need no bus and no dispatcher ------------------------------------ */

typedef struct eb_query {
    const char *id;           /* only this event */
    const char *pattern;      /* only types that match */
    const char *subscription; /* only of this named subscription: none in this version */
    unsigned statuses;        /* eb_log_read: 0 = all, else a sum of 1u << EB_PENDING, 1u << EB_DLQ,
                                 ...; the first two, or EB_DLQ alone, do not walk through the log */
    int64_t after_seq;        /* only later than this; newest_first: only earlier, if given */
    int64_t from_ms, to_ms;   /* created within, both inclusive; 0 = open */
    int offset, limit;        /* limit 0 = 100 (eb_dlq_retry_all: no limit) */
    int newest_first;         /* eb_log_read: descending by seq */
    int want_total;           /* eb_log_read: fill total, which may have to count everything */
} eb_query;

typedef struct eb_event_list {
    eb_event *items;
    size_t count;
    int64_t total; /* how many there are without offset and limit; -1: not asked for. eb_dlq_list
                      always fills it, eb_log_read if want_total says so */
    void *impl;
} eb_event_list;

typedef struct eb_stats {
    int64_t pending, processing, done, dlq; /* events in the file; done: unmatched ones too */
    int64_t oldest_pending_ms;              /* age of the oldest pending event, 0 = none */
    int64_t last_seq;                       /* of the newest event ever stored */
    int64_t db_bytes, wal_bytes;
    /* now, of this bus; in a store without one: of whoever dispatches, as the file has it */
    int64_t lost_workers; /* threads left behind in handlers that timed out */
    int64_t paused;       /* subscriptions that lost too many threads */
    /* since this bus was opened; 0 in a store without one */
    int64_t unmatched; /* events that were done without a handler; stale: late answers */
    int64_t published, delivered, failed_attempts, died, stale, commits;
} eb_stats;

/* Opens an existing file for looking and dead-letter work, beside a running bus or alone; never
** dispatches, never creates. Uses path, ns, vfs, clock, busy_timeout_ms, logger, allocator,
** node_id, node_name and wal_pages. Looking writes nothing: it works on a full disk too, and in a
** file that is for reading only (which is read as it is now, if nobody has it open). But a file of
** an older version is migrated, as in eb_open; EB_ERR_SCHEMA: there is no bus in it.
** Threads: any; calls on one store wait for each other. Blocks: up to busy_timeout_ms for each
** lock it needs. Ownership: options are copied; *out is NULL on failure. Close with
** eb_store_close(). */
EB_API eb_result eb_store_open(eb_store **out, const eb_options *options);

/* Closes a store of eb_store_open(); NULL and the bus's own are left alone; does nothing in a
** forked child. Threads: the last one to use the store. Blocks: if it is the file's last user, for
** SQLite's checkpoint of the WAL. Ownership: the store is gone; its lists live on. */
EB_API void eb_store_close(eb_store *store);

/* The bus's own store: what it changes wakes the bus at once, from elsewhere the bus sees it
** within idle_poll_ms. NULL for NULL. Threads: any. Blocks: no. Ownership: the bus's, until
** eb_destroy(). */
EB_API eb_store *eb_bus_store(eb_bus *bus);

/* For all functions on a store. Threads: any, also inside a handler or logger.
** Reading. Blocks: while SQLite reads, up to busy_timeout_ms for a lock; no writer waits for it.
** Ownership: lists are the caller's, to be freed with eb_event_list_free(); empty after a failure.
** Changing. Blocks: for a commit, up to busy_timeout_ms for somebody else's lock; for many events
** in several commits of at most 200, so that a failure may come after some (*count says how many).
** Durable: on disk when it returns, FULL on a NORMAL bus too (on an OFF bus as that is). */

/* Frees a list and all it points to; fine on a zeroed or freed one, and after the bus has gone.
** Threads: any, one at a time for each list. Blocks: no. */
EB_API void eb_event_list_free(eb_event_list *list);

/* Reads one event, whatever its state. EB_ERR_NOT_FOUND: no such event, or no id at all. */
EB_API eb_result eb_get(eb_store *store, const char *id, eb_event_list *out);

/* Reads events in order of publishing. query NULL: the first 100. For the next page give the last
** seq as after_seq: an offset walks over all that it skips. */
EB_API eb_result eb_log_read(eb_store *store, const eb_query *query, eb_event_list *out);

/* Reads dead letters, newest first by created_at, and counts all that match. */
EB_API eb_result eb_dlq_list(eb_store *store, const eb_query *query, eb_event_list *out);

/* Changes one dead event: a new life, pending, no failed attempts, no errors, due at once, in its
** old place among those of its ordering key. subscription: NULL in this version, else
** EB_ERR_NOT_FOUND. EB_ERR_STATE: the event is not dead. */
EB_API eb_result eb_dlq_retry(eb_store *store, const char *id, const char *subscription);

/* The same for all that match when it begins, each once, in order of publishing; *count of them.
** query NULL: all. */
EB_API eb_result eb_dlq_retry_all(eb_store *store, const eb_query *query, int64_t *count);

/* Change: delete dead letters that were created (purge_dead: that died) `days` days ago or
** earlier, with their events. *count of them. */
EB_API eb_result eb_dlq_purge(eb_store *store, int days, int64_t *count);
EB_API eb_result eb_dlq_purge_dead(eb_store *store, int days, int64_t *count);

/* Changes one live event, which an operator gives up: it becomes a dead letter with reason (may be
** NULL) as its last error. No handler begins with it any more: through eb_bus_store from now on,
** from elsewhere within idle_poll_ms; one that runs may go on, its answer is ignored.
** EB_ERR_STATE: the event is done or dead already. */
EB_API eb_result eb_dlq_move(eb_store *store, const char *id, const char *reason);

/* Reads the figures, all of one moment; counts the live events and the dead for that. out is
** zeroed on failure. */
EB_API eb_result eb_stats_get(eb_store *store, eb_stats *out);

/* Copies the WAL into the database now, for the loading screen of a program that asked with
** wal_pages = EB_NONE not to be interrupted by that. EB_ERR_BUSY: a reader or another process
** holds part of it, the rest was copied. Threads: any. Blocks: for the copying and two fsyncs, and
** so do publishers meanwhile. */
EB_API eb_result eb_checkpoint(eb_store *store);

/* ---- small things -------------------------------------------------------------------------- */

/* Plain text as a JSON string, quoted, for a payload: writes at most cap bytes with the zero at
** the end and returns the length it has or would have, like snprintf. len (size_t)-1: strlen. What
** is not UTF-8 becomes U+FFFD. Pure; any thread. buf may be NULL if cap is 0; text NULL is "". */
EB_API size_t eb_json_text(char *buf, size_t cap, const char *text, size_t len);

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

/* C's casts are all that both languages have. */
#if defined(__cplusplus) && (defined(__GNUC__) || defined(__clang__))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
#endif

/* ===========================================================================
** >>config   What can be set before including, and platform facts [private]
** ======================================================================== */

#ifndef EB_SQLITE3_H
#define EB_SQLITE3_H "sqlite3.h"
#endif
#include EB_SQLITE3_H

#if SQLITE_VERSION_NUMBER < 3051003 || SQLITE_VERSION_NUMBER == 3052000
#error "eventbus.h: SQLite before 3.51.3 can corrupt a WAL file, 3.52.0 was withdrawn: see the next"
#error "eventbus.h: use its own sqlite3/, first among the -I, and drop -lsqlite3"
#endif

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef EB_ASSERT
#ifdef NDEBUG /* not evaluated, but what it mentions is used */
#define EB_ASSERT(cond) ((void)sizeof((cond) ? 1 : 0))
#else
#include <assert.h>
#define EB_ASSERT(cond) assert(cond)
#endif
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
#ifndef EB_LOST_MAX
#define EB_LOST_MAX 16 /* worker threads left behind in stuck handlers, then the latter pause */
#endif

#define EBI_TYPE_MAX 255
#define EBI_KEY_MAX 255
#define EBI_DEPTH_MAX 128
#define EBI_ERROR_MAX 1000
#define EBI_FAST_US 1000         /* a handler quicker than this is worth claiming in batches for */
#define EBI_CLAIM_STEP 4096      /* see ebi_lane_mark() */
#define EBI_CROWD 32             /* commits for which a leader expects company after it had some */
#define EBI_BACKOFF_MAX_MS 2000  /* longest pause between two tries to commit an outcome */
#define EBI_WAL_FILL 4000        /* pages that the WAL of a started FULL bus gets room for */
#define EBI_WAL_SMALL 100        /* pages in it, after which it is worth that */
#define EBI_WAL_PAGES 1000       /* default of options.wal_pages */
#define EBI_WAL_MOST (64 * 1024 * 1024) /* bytes of WAL, beyond which EB_NONE is overruled */
#define EBI_COPY_WAIT_US 1000000 /* the leader waits no longer for somebody else's checkpoint */
#define EBI_SEQ_MAX (INT64_C(1) << 61) /* no file of ours comes near; an id has room for 62 bits */
#define EBI_LINE_MAX 64          /* events of one key claimed in one commit */
#define EBI_KEY_STEP 256         /* rows of one key brought into line in one commit */
#define EBI_SLICE 1000           /* rows looked at in one commit */
#define EBI_DAY_MS INT64_C(86400000)
#define EBI_CLAIM_US 2000        /* a claim takes no more after this; its outcomes take as long */
#define EBI_STATS_WAIT_US 50000  /* figures wait no longer for the writer */

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

#if defined(__cplusplus) &&                                                                        \
    (defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND))
#define EBI_EXCEPTIONS 1
#include <exception>
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif
#else
#define EBI_EXCEPTIONS 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define EBI_UNUSED __attribute__((unused))
#else
#define EBI_UNUSED
#endif
#ifndef EBI_FN /* tests/compile looks for functions that nobody calls */
#define EBI_FN EBI_UNUSED static
#endif

/* Test builds may define this to shake the scheduler at interesting places. */
#ifndef EBI_YIELD
#define EBI_YIELD() ((void)0)
#endif

/* ===========================================================================
** >>platform   Mutex, condition, thread, clock, process id        [private]
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
EBI_FN void ebi_platform_pause_us(int64_t us) { Sleep((DWORD)(us / 1000)); }
EBI_FN int64_t ebi_platform_pid(void) { return (int64_t)GetCurrentProcessId(); }
EBI_FN int ebi_platform_create_private(const char *path)
{
    (void)path; /* a new file inherits the folder's access list */
    return 0;
}
EBI_FN int ebi_platform_is_file(const char *path)
{
    (void)path; /* nothing that opens like a file hangs */
    return 1;
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
EBI_FN void ebi_platform_pause_us(int64_t us)
{
    struct timespec t;
    EB_ASSERT(us >= 0 && us < 1000000);
    t.tv_sec = 0;
    t.tv_nsec = (long)us * 1000L;
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

/* 0 if something lies there that is no file: opening a FIFO would hang. */
EBI_FN int ebi_platform_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 || S_ISREG(st.st_mode);
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
** >>text   UTF-8, plain text, quoting                             [private]
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

/* Where eb_json_text() writes: counts what does not fit. */
typedef struct ebi_text_out {
    char *buf;
    size_t cap, len;
} ebi_text_out;

/* Appends n bytes, as far as there is room. */
EBI_FN void ebi_text_put(ebi_text_out *out, const char *bytes, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (out->len + i + 1 < out->cap) out->buf[out->len + i] = bytes[i];
    out->len += n;
}

/* The n bytes at text as a JSON string; see eb_json_text(). */
EBI_FN void ebi_text_json(ebi_text_out *out, const char *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)text;
    char escape[7] = "\\u00";
    size_t i, step;
    EB_ASSERT(out->buf || out->cap == 0);
    ebi_text_put(out, "\"", 1);
    for (i = 0; i < n; i += step ? step : 1) {
        step = ebi_utf8_len(s + i, n - i);
        if (step == 0) {
            ebi_text_put(out, "\xEF\xBF\xBD", 3);
        } else if (s[i] == '"' || s[i] == '\\') {
            ebi_text_put(out, "\\", 1);
            ebi_text_put(out, text + i, 1);
        } else if (s[i] < 0x20) {
            escape[4] = hex[s[i] >> 4];
            escape[5] = hex[s[i] & 15];
            ebi_text_put(out, escape, 6);
        } else {
            ebi_text_put(out, text + i, step);
        }
    }
    ebi_text_put(out, "\"", 1);
    if (out->cap > 0) out->buf[out->len < out->cap ? out->len : out->cap - 1] = 0;
}

/* ebi_text_clean() as a JSON string with its quotes: for the log, and for errors. */
EBI_FN size_t ebi_json_quote(char *out, size_t cap, const char *text, size_t max)
{
    size_t k = 1 + ebi_text_clean(out + 1, cap - 2, text, max, 1);
    out[0] = '"';
    out[k++] = '"';
    out[k] = 0;
    return k;
}

/* The path that a URI file name means, as SQLite reads it. 0: it names no file that we might have
** to create (another host, a mode that creates none, a VFS of its own), or one too long for out. */
EBI_FN int ebi_uri_path(const char *uri, char *out, size_t cap)
{
    const char *at = uri + 5;
    size_t k = 0;
    EB_ASSERT(strncmp(uri, "file:", 5) == 0);
    if (strncmp(at, "//", 2) == 0) {
        at += strncmp(at, "//localhost/", 12) == 0 ? 11 : 2;
        if (*at != '/') return 0;
    }
    for (; *at && *at != '?' && *at != '#'; at++) {
        char c = *at;
        if (c == '%' && ebi_is_hex((unsigned char)at[1]) && ebi_is_hex((unsigned char)at[2])) {
            char digits[3];
            memcpy(digits, at + 1, 2);
            digits[2] = 0;
            c = (char)strtoul(digits, NULL, 16);
            at += 2;
        }
        if (c == 0 || k + 1 >= cap) return 0;
        out[k++] = c;
    }
    out[k] = 0;
    for (; *at == '?' || *at == '&'; at += strcspn(at, "&#")) {
        at++;
        if (strncmp(at, "vfs=", 4) == 0) return 0;
        if (strncmp(at, "mode=", 5) == 0 && strncmp(at + 5, "rwc", 3) != 0) return 0;
    }
    return k > 0;
}

/* Copies text to *at, which goes on behind it; *field is the copy, NULL for NULL. Returns its
** length. */
EBI_FN size_t ebi_text_copy(char **at, const char **field, const char *text, size_t len)
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

/* Length of text, 0 for NULL. */
EBI_FN size_t ebi_text_size(const char *text) { return text ? strlen(text) : 0; }

/* ===========================================================================
** >>json   What is JSON and what is not                           [private]
** ========================================================================
** A parser that keeps nothing: RFC 8259, nested at most EBI_DEPTH_MAX deep, without recursion; it
** says at which byte it stopped, and why. */

/* A JSON text being read. Each of the functions below skips one thing at `at` and returns 1, or
** leaves `at` where it is wrong, says why, and returns 0. */
typedef struct ebi_json {
    const unsigned char *s;
    size_t n, at;
    const char *wrong;
} ebi_json;

/* Remembers where and why; always 0. */
EBI_FN int ebi_json_wrong(ebi_json *j, size_t at, const char *why)
{
    EB_ASSERT(at <= j->n);
    j->at = at;
    j->wrong = why;
    return 0;
}

/* Skips white space. */
EBI_FN void ebi_json_space(ebi_json *j)
{
    while (j->at < j->n && (j->s[j->at] == ' ' || j->s[j->at] == '\t' || j->s[j->at] == '\n' ||
                            j->s[j->at] == '\r'))
        j->at++;
}

/* Whether c comes next, behind white space; it is skipped. */
EBI_FN int ebi_json_is(ebi_json *j, char c)
{
    ebi_json_space(j);
    if (j->at >= j->n || j->s[j->at] != (unsigned char)c) return 0;
    j->at++;
    return 1;
}

/* What follows a backslash. */
EBI_FN int ebi_json_escape(ebi_json *j)
{
    size_t k, at = j->at;
    EB_ASSERT(j->s[at] == '\\');
    if (at + 1 >= j->n || j->s[at + 1] == 0 || !strchr("\"\\/bfnrtu", j->s[at + 1]))
        return ebi_json_wrong(j, at, "a backslash begins no escape");
    j->at += 2;
    if (j->s[at + 1] != 'u') return 1;
    for (k = 2; k < 6; k++)
        if (at + k >= j->n || !ebi_is_hex(j->s[at + k]))
            return ebi_json_wrong(j, at, "\\u needs four hexadecimal digits");
    j->at += 4;
    return 1;
}

/* A string with its quotes. */
EBI_FN int ebi_json_string(ebi_json *j)
{
    size_t step;
    if (!ebi_json_is(j, '"')) return ebi_json_wrong(j, j->at, "a string is expected");
    while (j->at < j->n) {
        unsigned char c = j->s[j->at];
        if (c == '"') {
            j->at++;
            return 1;
        }
        if (c < 0x20) return ebi_json_wrong(j, j->at, "a control character in a string");
        if (c == '\\') {
            if (!ebi_json_escape(j)) return 0;
            continue;
        }
        step = ebi_utf8_len(j->s + j->at, j->n - j->at);
        if (step == 0) return ebi_json_wrong(j, j->at, "not UTF-8");
        j->at += step;
    }
    return ebi_json_wrong(j, j->n, "a string does not end");
}

/* At least one digit. */
EBI_FN int ebi_json_digits(ebi_json *j)
{
    size_t start = j->at;
    while (j->at < j->n && ebi_is_digit(j->s[j->at])) j->at++;
    return j->at > start ? 1 : ebi_json_wrong(j, j->at, "a digit is expected");
}

/* A number; a minus or a digit comes next. */
EBI_FN int ebi_json_number(ebi_json *j)
{
    EB_ASSERT(j->at < j->n);
    if (j->s[j->at] == '-') j->at++;
    if (j->at < j->n && j->s[j->at] == '0') j->at++;
    else if (!ebi_json_digits(j)) return 0;
    if (j->at < j->n && j->s[j->at] == '.') {
        j->at++;
        if (!ebi_json_digits(j)) return 0;
    }
    if (j->at < j->n && (j->s[j->at] == 'e' || j->s[j->at] == 'E')) {
        j->at++;
        if (j->at < j->n && (j->s[j->at] == '+' || j->s[j->at] == '-')) j->at++;
        if (!ebi_json_digits(j)) return 0;
    }
    return 1;
}

/* A string, a number, or one of three words; not at the end of the text. */
EBI_FN int ebi_json_scalar(ebi_json *j)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t i, len;
    unsigned char c = j->s[j->at];
    if (c == '"') return ebi_json_string(j);
    if (c == '-' || ebi_is_digit(c)) return ebi_json_number(j);
    for (i = 0; i < 3; i++) {
        len = strlen(words[i]);
        if (j->n - j->at < len || memcmp(j->s + j->at, words[i], len) != 0) continue;
        j->at += len;
        return 1;
    }
    return ebi_json_wrong(j, j->at, "a value is expected (plain text: see eb_json_text)");
}

/* In an object: the key and its colon. */
EBI_FN int ebi_json_key(ebi_json *j)
{
    if (!ebi_json_string(j)) return 0;
    return ebi_json_is(j, ':') ? 1 : ebi_json_wrong(j, j->at, "a colon is expected");
}

/* Nothing may follow. */
EBI_FN int ebi_json_end(ebi_json *j)
{
    ebi_json_space(j);
    return j->at == j->n ? 1 : ebi_json_wrong(j, j->at, "something follows the value");
}

/* One RFC 8259 value in UTF-8, nested at most EBI_DEPTH_MAX deep. A loop with one byte per open
** bracket, so no input can exhaust the stack. */
EBI_FN int ebi_json_value(ebi_json *j)
{
    char close[EBI_DEPTH_MAX];
    size_t depth = 0;
    for (;;) { /* a value is expected */
        ebi_json_space(j);
        if (j->at >= j->n) return ebi_json_wrong(j, j->n, "the text ends too early");
        if (j->s[j->at] == '[' || j->s[j->at] == '{') {
            if (depth == EBI_DEPTH_MAX) return ebi_json_wrong(j, j->at, "nested too deep");
            close[depth] = j->s[j->at++] == '{' ? '}' : ']';
            if (!ebi_json_is(j, close[depth])) {
                if (close[depth++] == '}' && !ebi_json_key(j)) return 0;
                continue;
            }
        } else if (!ebi_json_scalar(j)) {
            return 0;
        }
        while (depth > 0 && ebi_json_is(j, close[depth - 1])) depth--; /* a value just ended */
        if (depth == 0) return ebi_json_end(j);
    EB_ASSERT(depth <= EBI_DEPTH_MAX);
        if (!ebi_json_is(j, ','))
            return ebi_json_wrong(j, j->at,
                                  j->at < j->n ? "a comma or the closing bracket is expected"
                                                         : "the text ends too early");
        if (close[depth - 1] == '}' && !ebi_json_key(j)) return 0;
    }
}

/* An object whose values are all strings. */
EBI_FN int ebi_json_string_map(ebi_json *j)
{
    if (!ebi_json_is(j, '{')) return ebi_json_wrong(j, j->at, "an object is expected");
    if (ebi_json_is(j, '}')) return ebi_json_end(j);
    do {
        if (!ebi_json_key(j) || !ebi_json_string(j)) return 0;
    } while (ebi_json_is(j, ','));
    if (ebi_json_is(j, '}')) return ebi_json_end(j);
    return ebi_json_wrong(j, j->at, "a comma or the closing bracket is expected");
}

/* To read n bytes of text; they must live as long. */
EBI_FN void ebi_json_init(ebi_json *j, const char *text, size_t n)
{
    j->s = (const unsigned char *)text;
    j->n = n;
    j->at = 0;
    j->wrong = NULL;
}

/* ===========================================================================
** >>times   Milliseconds as text, and back                        [private]
** ========================================================================
** Rows have times as 2026-11-18T05:32:10.123Z, always of the same length, so that they compare as
** text. Pure, without the C library's calendar. */

#define EBI_TIME_LEN 24 /* 2026-11-18T05:32:10.123Z */

EBI_FN void ebi_time_digits(char *out, int width, int64_t value)
{
    EB_ASSERT(width > 0 && value >= 0);
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

/* The number that `width` digits are. */
EBI_FN int64_t ebi_time_number(const char *s, int width)
{
    int64_t value = 0;
    while (width-- > 0) value = value * 10 + (*s++ - '0');
    return value;
}

/* The reverse of ebi_time_text(); 0 for text that is not of that form. */
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

/* ===========================================================================
** >>ids   Ids that know their row                                 [private]
** ========================================================================
** Pure but for the random half of an id. */

/* Ids. An event's id is a version 4 UUID whose low 62 bits are its sequence number under a keyed
** permutation, the other 60 free bits random. So an id finds its row by seq, without an index on
** random text (which halves batched throughput), and still says nothing to a stranger. The row's
** stored id is compared, so a forged id finds nothing.
** The permutation is a Feistel network over two halves of 31 bits: any round function gives one. */
#define EBI_HALF UINT64_C(0x7FFFFFFF)

/* One round of the network; any function of these two will do. */
EBI_FN uint64_t ebi_id_round(uint64_t half, uint64_t key)
{
    half = (half + key) * UINT64_C(0x9E3779B97F4A7C15);
    half ^= half >> 29;
    half = half * UINT64_C(0xBF58476D1CE4E5B9);
    return (half >> 32) & EBI_HALF;
}

/* The key of a round. */
EBI_FN uint64_t ebi_id_key(const uint64_t key[2], int round)
{
    return key[round & 1] ^ ((uint64_t)(round + 1) * UINT64_C(0xD6E8FEB86659FD93));
}

/* 62 bits to 62 bits, one to one. */
EBI_FN uint64_t ebi_id_permute(const uint64_t key[2], uint64_t value)
{
    uint64_t left = (value >> 31) & EBI_HALF, right = value & EBI_HALF, next;
    int round;
    EB_ASSERT(value >> 62 == 0);
    for (round = 0; round < 6; round++) {
        next = left ^ ebi_id_round(right, ebi_id_key(key, round));
        left = right;
        right = next;
    }
    return (left << 31) | right;
}

/* The way back. */
EBI_FN uint64_t ebi_id_unpermute(const uint64_t key[2], uint64_t value)
{
    uint64_t left = (value >> 31) & EBI_HALF, right = value & EBI_HALF, prev;
    int round;
    EB_ASSERT(value >> 62 == 0);
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

/* An id that is no event's: of a subscription. */
EBI_FN void ebi_id_random(eb_id *id)
{
    uint64_t bits[2];
    sqlite3_randomness((int)sizeof bits, bits);
    ebi_id_format(bits[0], bits[1], id);
}

/* A new id of event seq. */
EBI_FN void ebi_id_make(const uint64_t key[2], int64_t seq, eb_id *id)
{
    uint64_t bits;
    EB_ASSERT(seq > 0 && seq <= EBI_SEQ_MAX);
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
** >>glob   The one pattern language                               [private]
** ========================================================================
** Pure. */

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
** >>results   Texts, and the calling thread's last error          [private]
** ========================================================================
** The text belongs to the thread: a call that fails writes it, eb_errmsg() reads it. */

/* Never NULL, also for a number that is no result. */
EBI_FN const char *ebi_result_text(eb_result result)
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
** >>sql   Every statement, in one list                            [private]
** ========================================================================
** '@' stands for the namespace prefix. Prepared once per connection, when first used. The hot path
** (all groups up to the recovery) uses no view, trigger, JSON or date function of SQLite.
** test_plans.c asks the query planner about each of them: none scans event_log, finished or
** dead_letters, unless its name is in that test's list of the few that must. */

/* Appends the JSON string ?9 to the error list of d. */
#define EBI_SQL_ERRORS                                                                             \
    "CASE WHEN d.errors IS NULL THEN '['||?9||']'"                                                 \
    " ELSE substr(d.errors,1,length(d.errors)-1)||','||?9||']' END"

/* What the engine wants to know of a live event; see ebi_lane_load(). The columns by name. */
enum {
    EBI_LOAD_SEQ, EBI_LOAD_FAILED, EBI_LOAD_APART, EBI_LOAD_BORN, EBI_LOAD_RETRIED,
    EBI_LOAD_SNOOZES, EBI_LOAD_DUE, EBI_LOAD_CREATED, EBI_LOAD_ID, EBI_LOAD_TYPE, EBI_LOAD_PAYLOAD,
    EBI_LOAD_METADATA, EBI_LOAD_KEY, EBI_LOAD_IDEMPOTENCY, EBI_LOAD_PRODUCER, EBI_LOAD_ERRORS,
    EBI_LOAD_STATUS, EBI_LOAD_ASIDE, EBI_LOAD_TOKEN, EBI_LOAD_SAME_KEY, EBI_LOAD_COLUMNS
};
#define EBI_SQL_LOAD                                                                               \
    "SELECT d.seq,d.failed,d.apart,d.born,d.retried_at,d.snoozes,d.due_ms,l.created_at,l.id,"      \
    "l.type,l.payload,l.metadata,l.ordering_key,l.idempotency_key,l.producer,d.errors,d.status,"   \
    "d.aside,d.token,d.ordering_key IS l.ordering_key"                                             \
    " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq "

/* A row that nobody works on and that waits for nothing but a worker, or its key's turn. */
#define EBI_SQL_PLAIN "d.token IS NULL AND d.due_ms IS NULL AND d.apart IS NULL"
#define EBI_SQL_PLAIN_ROW "token IS NULL AND due_ms IS NULL AND apart IS NULL"

/* A row that others of its key stand behind: not merely delayed and untried. This is the very text
** of the index deliveries_line, else that could not be used. */
#define EBI_SQL_IN_LINE                                                                            \
    "(ifnull(due_ms,0)<=0 OR failed>0 OR snoozes>0 OR retried_at IS NOT NULL)"

/* The others that have a key. The very text of the index deliveries_later. */
#define EBI_SQL_LATER "due_ms>0 AND failed=0 AND snoozes=0 AND retried_at IS NULL"

/* The fence of whatever begins with a copy in memory: the row is still what was read of it. */
#define EBI_SQL_FENCE                                                                              \
    "seq=?1 AND token IS NULL AND failed=?7 AND snoozes=?8 AND status=?6 AND ifnull(apart,0)=?10"  \
    " AND ifnull(due_ms,0)<=?11"

/* The same for one that nobody matches and that the policy may end: never tried in this start. */
#define EBI_SQL_FRESH(d)                                                                           \
    d "token IS NULL AND " d "failed=0 AND " d "snoozes=0 AND " d "apart IS NULL AND " d           \
      "retried_at IS NULL AND " d "born=?2"

/* A death: the row that goes to the dead letters. */
#define EBI_SQL_DEATH                                                                              \
    "INSERT INTO @dead_letters(subscription,seq,id,type,payload,metadata,ordering_key,"            \
    "idempotency_key,producer,created_at,failed,errors,died_at,retried_at,retried_by)"             \
    " SELECT '',l.seq,l.id,l.type,l.payload,l.metadata,l.ordering_key,l.idempotency_key,"          \
    "l.producer,l.created_at,d.failed+1," EBI_SQL_ERRORS ",?5,d.retried_at,d.retried_by"           \
    " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq WHERE d.seq=?1 AND "

/* One event for the inspector; see ebi_rows_add(). The columns by name; TYPE to ERRORS are texts
** that are copied. */
enum {
    EBI_LIST_SEQ, EBI_LIST_STATUS, EBI_LIST_FAILED, EBI_LIST_CREATED, EBI_LIST_UPDATED,
    EBI_LIST_DIED, EBI_LIST_ID, EBI_LIST_TYPE, EBI_LIST_PAYLOAD, EBI_LIST_METADATA, EBI_LIST_KEY,
    EBI_LIST_IDEMPOTENCY, EBI_LIST_PRODUCER, EBI_LIST_SUBSCRIPTION, EBI_LIST_ERRORS, EBI_LIST_DUE,
    EBI_LIST_CLAIMED, EBI_LIST_COLUMNS
};
#define EBI_SQL_LIST_LOG                                                                           \
    "SELECT l.seq,CASE WHEN d.seq IS NOT NULL THEN d.status WHEN f.seq IS NOT NULL THEN 'done'"    \
    " WHEN x.seq IS NOT NULL THEN 'dlq' ELSE 'done' END,"                                          \
    "coalesce(d.failed,max(f.attempts-1,0),x.failed,0),l.created_at,"                              \
    "coalesce(d.updated_at,f.finished_at,x.died_at,l.created_at),x.died_at,l.id,l.type,l.payload," \
    "l.metadata,l.ordering_key,l.idempotency_key,l.producer,NULL,"                                 \
    "coalesce(d.errors,f.errors,x.errors),max(d.due_ms,0),"                                        \
    "CASE WHEN d.token IS NOT NULL OR d.apart=2 THEN d.updated_at END"
#define EBI_SQL_LIST_JOIN                                                                          \
    " LEFT JOIN @deliveries AS d ON d.seq=l.seq LEFT JOIN @finished AS f ON f.seq=l.seq"           \
    " LEFT JOIN @dead_letters AS x ON x.subscription='' AND x.seq=l.seq "
#define EBI_SQL_LIST_DEAD                                                                          \
    "SELECT x.seq,'dlq',x.failed,x.created_at,x.died_at,x.died_at,x.id,x.type,x.payload,"          \
    "x.metadata,x.ordering_key,x.idempotency_key,x.producer,nullif(x.subscription,''),x.errors,"   \
    "0,NULL FROM @dead_letters AS x "

/* The filters of eb_query over alias t: ?1 < seq <= ?2, ?3 pattern, ?4 from, ?5 to, ?9 id. */
#define EBI_SQL_FILTER(t) "WHERE " t ".seq>?1 AND " t ".seq<=?2"
#define EBI_SQL_FILTER_MORE(t)                                                                     \
    " AND (?9 IS NULL OR " t ".id=?9) AND (?3 IS NULL OR eb_match(?3," t ".type))"                 \
    " AND (?4 IS NULL OR " t ".created_at>=?4) AND (?5 IS NULL OR " t ".created_at<=?5)"
#define EBI_SQL_STATUS                                                                             \
    " AND (?10=0 OR ?10&CASE WHEN d.seq IS NULL THEN CASE WHEN x.seq IS NULL THEN 4 ELSE 8 END"    \
    " WHEN d.status='pending' THEN 1 ELSE 2 END)"
#define EBI_SQL_LOG                                                                                \
    " FROM @event_log AS l" EBI_SQL_LIST_JOIN EBI_SQL_FILTER("l") EBI_SQL_FILTER_MORE("l")         \
    EBI_SQL_STATUS
/* What is live, or dead, found in its own small table. */
#define EBI_SQL_LIVE                                                                               \
    " FROM @deliveries AS o CROSS JOIN @event_log AS l ON l.seq=o.seq" EBI_SQL_LIST_JOIN           \
    EBI_SQL_FILTER("o") EBI_SQL_FILTER_MORE("l") EBI_SQL_STATUS
#define EBI_SQL_LOST                                                                               \
    " FROM @dead_letters AS o CROSS JOIN @event_log AS l ON l.seq=o.seq" EBI_SQL_LIST_JOIN         \
    EBI_SQL_FILTER("o") " AND o.subscription=''" EBI_SQL_FILTER_MORE("l") " AND ?10"
#define EBI_SQL_FILTER_DEAD                                                                        \
    EBI_SQL_FILTER("x") EBI_SQL_FILTER_MORE("x") " AND (?8 IS NULL OR x.subscription=?8)"

/* Parameters by name, where a family of statements shares more than three. A statement numbers its
** parameters by these, and leaves out what it does not need. */
enum { /* LOG_INSERT */
    EBI_LOG_SEQ = 1, EBI_LOG_ID, EBI_LOG_TYPE, EBI_LOG_PAYLOAD, EBI_LOG_METADATA, EBI_LOG_KEY,
    EBI_LOG_IDEMPOTENCY, EBI_LOG_PRODUCER, EBI_LOG_DELIVER_AT, EBI_LOG_CREATED
};
enum { /* LIVE_INSERT */
    EBI_LIVE_SEQ = 1, EBI_LIVE_STATUS, EBI_LIVE_ATTEMPTS, EBI_LIVE_MAX_ATTEMPTS, EBI_LIVE_BORN,
    EBI_LIVE_DUE, EBI_LIVE_OWNER, EBI_LIVE_TOKEN, EBI_LIVE_KEY, EBI_LIVE_UPDATED
};
enum { /* CLAIM, CLAIM_PLAIN, PARK: see EBI_SQL_FENCE */
    EBI_FENCE_SEQ = 1, EBI_FENCE_TOKEN, EBI_FENCE_SETS, EBI_FENCE_OWNER, EBI_FENCE_UPDATED,
    EBI_FENCE_STATUS, EBI_FENCE_FAILED, EBI_FENCE_SNOOZES, EBI_FENCE_MAX_ATTEMPTS,
    EBI_FENCE_SUSPECT, EBI_FENCE_DUE_BY
};
enum { /* how a claim ends: ebi_end_run() */
    EBI_END_SEQ = 1, EBI_END_TOKEN, EBI_END_DUE, EBI_END_STATUS, EBI_END_NOW, EBI_END_SUSPECT,
    EBI_END_SNOOZES, EBI_END_ERROR = 9
};
enum { /* EBI_SQL_FILTER and what pages: ebi_filter_bind() */
    EBI_FILTER_AFTER = 1, EBI_FILTER_TO, EBI_FILTER_PATTERN, EBI_FILTER_FROM_TIME,
    EBI_FILTER_TO_TIME, EBI_FILTER_LIMIT, EBI_FILTER_OFFSET, EBI_FILTER_SUBSCRIPTION,
    EBI_FILTER_ID, EBI_FILTER_STATUSES
};

#define EBI_SQL_LIST(X)                                                                            \
    /* transactions */                                                                             \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(READ, "BEGIN")                                                                               \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(DATA_VERSION, "PRAGMA data_version")                                                         \
    X(COOKIE, "PRAGMA schema_version") /* a restored backup brings a new one, as any new table */  \
    /* publish: rowid of the last log row, the id key as it is in the file now, and appends */     \
    X(LAST_SEQ, "SELECT max((SELECT ifnull(max(seq),0) FROM @event_log),"                          \
                "(SELECT value FROM @meta WHERE key='seq_floor')),"                                \
                "(SELECT value FROM @meta WHERE key='id_key_1'),"                                  \
                "(SELECT value FROM @meta WHERE key='id_key_2')")                                  \
    X(LOG_INSERT, "INSERT INTO @event_log(seq,id,type,payload,metadata,ordering_key,"              \
                  "idempotency_key,producer,deliver_at_ms,created_at)"                             \
                  " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)")                                       \
    X(LIVE_INSERT, "INSERT INTO @deliveries(seq,status,attempts,max_attempts,born,due_ms,owner,"   \
                   "token,ordering_key,updated_at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)")        \
    X(FINISH, "INSERT INTO @finished(seq,attempts,finished_at) VALUES(?1,?2,?3)")                  \
    X(KNOWN_KEY, "SELECT id FROM @event_log WHERE idempotency_key=?1") /* unique partial index */  \
    X(LIVE_COUNT, "SELECT count(*) FROM @deliveries")                                              \
    /* dispatch: by rowid, or by a partial index on due_ms or apart */                             \
    X(SCAN, EBI_SQL_LOAD "WHERE d.seq>?1 AND d.seq<=?2 AND " EBI_SQL_PLAIN                         \
                         " ORDER BY d.seq LIMIT ?3")                                               \
    X(SLICE, "SELECT count(*),max(seq) FROM (SELECT seq FROM @deliveries WHERE seq>?1 AND seq<=?2" \
             " ORDER BY seq LIMIT ?3)")                                                            \
    X(DUE, EBI_SQL_LOAD "WHERE d.due_ms<=?1 ORDER BY d.due_ms LIMIT ?2")                           \
    X(NEXT_DUE, "SELECT ifnull(min(due_ms),9223372036854775807) FROM @deliveries"                  \
                " WHERE due_ms IS NOT NULL")                                                       \
    X(SUSPECT, EBI_SQL_LOAD "WHERE d.apart=1 AND d.seq>?1 AND d.aside<?2 AND d.due_ms IS NULL"     \
               " ORDER BY d.seq LIMIT 1")                                                          \
    X(ANY_APART, "SELECT EXISTS(SELECT 1 FROM @deliveries WHERE apart=1)"                          \
                 "+2*EXISTS(SELECT 1 FROM @deliveries WHERE apart=2)")                             \
    X(ODD, "SELECT seq FROM (SELECT seq FROM @deliveries WHERE apart<1 OR apart>2 UNION ALL"       \
           " SELECT seq FROM @deliveries WHERE seq<1) LIMIT 1")                                    \
    X(CLAIM, "UPDATE @deliveries SET status='processing',attempts=failed+?3,token=?2,owner=?4,"    \
             "max_attempts=?9,due_ms=NULL,aside=0,apart=NULL,updated_at=?5 WHERE " EBI_SQL_FENCE)  \
    X(CLAIM_PLAIN, "UPDATE @deliveries SET status='processing',attempts=failed+?3,token=?2,"       \
                   "owner=?4,max_attempts=?9,updated_at=?5 WHERE seq=?1 AND " EBI_SQL_PLAIN_ROW    \
                   " AND failed=?7 AND snoozes=?8 AND status=?6")                                  \
    X(COUNT_ATTEMPT, "UPDATE @deliveries SET attempts=failed+1 WHERE seq=?1")                      \
    X(PARK, "UPDATE @deliveries SET status='pending',due_ms=NULL,aside=?3 WHERE " EBI_SQL_FENCE)   \
    X(CLAIMS, "SELECT seq,token FROM @deliveries WHERE token IS NOT NULL ORDER BY seq")            \
    X(TOKEN, "SELECT 1 FROM @deliveries WHERE seq=?1 AND token=?2")                                \
    /* ordering keys: by deliveries_line, deliveries_later */                                      \
    X(KEY_BY_HAND, "SELECT 1 FROM @deliveries WHERE apart=2 AND ordering_key=?1 LIMIT 1")          \
    X(KEY_DUE, "SELECT seq FROM @deliveries INDEXED BY @deliveries_later WHERE ordering_key=?1"    \
               " AND " EBI_SQL_LATER " AND due_ms<=?2 AND token IS NULL LIMIT ?3")                 \
    X(KEY_AGAIN, "SELECT seq FROM @deliveries INDEXED BY @deliveries_line WHERE ordering_key=?1"   \
                 " AND aside>0 AND aside<?2 AND " EBI_SQL_IN_LINE " LIMIT ?3")                     \
    X(NOT_DUE, "UPDATE @deliveries SET due_ms=NULL WHERE seq=?1 AND due_ms<=?2 AND token IS NULL") \
    X(NOT_ASIDE, "UPDATE @deliveries SET aside=0 WHERE seq=?1")                                    \
    X(KEY_LINE, "SELECT seq,token,due_ms,apart FROM @deliveries INDEXED BY @deliveries_line"       \
                " WHERE ordering_key=?1 AND aside=0 AND " EBI_SQL_IN_LINE                          \
                " AND seq>?2 AND seq<=?3 ORDER BY seq")                                            \
    X(KEY_TYPE, "SELECT type FROM @event_log WHERE seq=?1")                                        \
    X(KEY_ASIDE, "UPDATE @deliveries SET aside=?2 WHERE seq=?1 AND token IS NULL")                 \
    X(KEY_WAITS, "SELECT 1 FROM @deliveries INDEXED BY @deliveries_line WHERE ordering_key=?1"     \
                 " AND aside=0 AND " EBI_SQL_IN_LINE " AND seq<=?2 AND token IS NULL LIMIT 1")     \
    X(KEY_BEFORE, "SELECT 1 FROM (SELECT seq FROM @deliveries INDEXED BY @deliveries_line"         \
                  " WHERE ordering_key=?1 AND aside=0 AND " EBI_SQL_IN_LINE " AND seq<?2"          \
                  " AND token IS NULL UNION ALL SELECT seq FROM @deliveries"                       \
                  " INDEXED BY @deliveries_line WHERE ordering_key=?1 AND aside>0 AND aside<?3"    \
                  " AND " EBI_SQL_IN_LINE " AND seq<?2 UNION ALL SELECT seq FROM @deliveries"      \
                  " INDEXED BY @deliveries_later WHERE ordering_key=?1 AND " EBI_SQL_LATER         \
                  " AND due_ms<=?4 AND seq<?2 AND token IS NULL UNION ALL"                         \
                  " SELECT seq FROM @deliveries WHERE apart=2 AND ordering_key=?1) LIMIT 1")       \
    X(KEY_RING, "UPDATE @deliveries SET due_ms=0 WHERE seq=(SELECT seq FROM @deliveries"           \
                " INDEXED BY @deliveries_line WHERE ordering_key=(SELECT ordering_key"             \
                " FROM @deliveries WHERE seq=?1) AND aside=0 AND " EBI_SQL_IN_LINE                 \
                " AND seq<>?1 AND token IS NULL AND due_ms IS NULL AND apart IS NULL LIMIT 1)")    \
    X(LOAD_ONE, EBI_SQL_LOAD "WHERE d.seq=?1")                                                     \
    /* how a claim ends: ebi_end_run() binds, but for REVOKE */                                    \
    X(REVOKE, "UPDATE @deliveries SET token=NULL WHERE seq=?1")                                    \
    X(DELETE_LIVE, "DELETE FROM @deliveries WHERE seq=?1 AND token IS ?2")                         \
    X(DELETE_FRESH, "DELETE FROM @deliveries WHERE seq=?1 AND " EBI_SQL_FRESH(""))                 \
    X(FINISH_ERRORS, "INSERT INTO @finished(seq,attempts,errors,finished_at)"                      \
                     " SELECT seq,failed+1,errors,?5 FROM @deliveries WHERE seq=?1 AND token=?2")  \
    X(RETRY, "UPDATE @deliveries AS d SET status=?4,failed=failed+1,attempts=failed+1,"            \
             "errors=" EBI_SQL_ERRORS ",due_ms=?3,token=NULL,owner=NULL,apart=?6,"                 \
             "updated_at=?5 WHERE seq=?1 AND token IS ?2")                                         \
    X(SNOOZE, "UPDATE @deliveries SET status=CASE failed WHEN 0 THEN 'pending' ELSE 'processing'"  \
              " END,attempts=failed,snoozes=snoozes+?7,apart=?6,due_ms=?3,token=NULL,"             \
              "owner=NULL,updated_at=?5 WHERE seq=?1 AND token IS ?2")                             \
    X(DIE, EBI_SQL_DEATH "d.token IS ?2")                                                          \
    X(DIE_FRESH, EBI_SQL_DEATH EBI_SQL_FRESH("d."))                                                \
    X(UNFINISHED, "SELECT EXISTS(SELECT 1 FROM @deliveries WHERE seq>?1)"                          \
                  " OR EXISTS(SELECT 1 FROM @deliveries WHERE due_ms IS NOT NULL)"                 \
                  " OR EXISTS(SELECT 1 FROM @deliveries WHERE apart=2)"                            \
                  " OR EXISTS(SELECT 1 FROM @deliveries WHERE apart=1 AND aside<?2)")              \
    X(WAITING, "SELECT d.seq,l.type FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq"     \
               " WHERE d.seq>?1 AND d.token IS NULL AND d.due_ms IS NULL"                          \
               " AND ifnull(d.apart,1)=1 ORDER BY d.seq LIMIT 1000")                               \
    /* recovery: by rowid; ROWS is a slice, so that nobody waits for it */                         \
    X(ROWS, "SELECT seq,token,attempts,failed,ordering_key FROM @deliveries WHERE seq>?1"          \
            " AND seq<=(SELECT value FROM @meta WHERE key='claimed_to') ORDER BY seq LIMIT 4096")  \
    X(BY_HAND, "SELECT seq FROM @deliveries WHERE apart=2 AND seq>?1 ORDER BY seq LIMIT 256")      \
    X(STUCK, "SELECT d.seq,d.token,d.failed,d.max_attempts,l.id,l.type"                            \
             " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq WHERE d.seq=?1")          \
    X(META_SET, "UPDATE @meta SET value=?2 WHERE key=?1")                                          \
    X(CLAIMED_TO, "UPDATE @meta SET value=max(value,?1) WHERE key='claimed_to'")                   \
    X(STARTS, "UPDATE @meta SET value=value+1 WHERE key='starts'")                                 \
    /* subscriptions: informational rows of unnamed ones */                                        \
    X(SUB_INSERT, "INSERT INTO @subscriptions(id,event_type,created_at) VALUES(?1,?2,?3)")         \
    X(SUB_DELETE, "DELETE FROM @subscriptions WHERE id=?1")                                        \
    X(SUB_CLEAR, "DELETE FROM @subscriptions WHERE name IS NULL")                                  \
    X(SUB_PAUSED, "UPDATE @subscriptions SET paused=?2 WHERE id=?1")                               \
    /* who dispatches, for others to see */                                                        \
    X(NODE_CLEAR, "DELETE FROM @nodes")                                                            \
    X(NODE_INSERT, "INSERT INTO @nodes(id,name,pid,registered_at,last_heartbeat)"                  \
                   " VALUES(?1,?2,?3,?4,?4)")                                                      \
    X(NODE_LOST, "UPDATE @nodes SET lost_workers=?1")                                              \
    X(NODE_WHO, "SELECT ifnull(name,id),pid FROM @nodes LIMIT 1")                                  \
    X(STATS_PAUSED, "SELECT count(*) FROM @subscriptions WHERE paused")                            \
    X(STATS_LOST, "SELECT ifnull(sum(lost_workers),0) FROM @nodes")                                \
    /* inspector */                                                                                \
    X(STATE, "SELECT l.id,(SELECT status FROM @deliveries WHERE seq=l.seq),"                       \
             "(SELECT 1 FROM @dead_letters WHERE subscription='' AND seq=l.seq)"                   \
             " FROM @event_log AS l WHERE l.seq=?1")                                               \
    X(GET, EBI_SQL_LIST_LOG " FROM @event_log AS l" EBI_SQL_LIST_JOIN                              \
      "WHERE l.seq=?1 AND l.id=?2")                                                                \
    X(LOG_READ, EBI_SQL_LIST_LOG EBI_SQL_LOG " ORDER BY l.seq LIMIT ?6 OFFSET ?7")                 \
    X(LOG_BACK, EBI_SQL_LIST_LOG EBI_SQL_LOG " ORDER BY l.seq DESC LIMIT ?6 OFFSET ?7")            \
    X(LOG_COUNT, "SELECT count(*) FROM @event_log AS l " EBI_SQL_FILTER("l")                       \
      EBI_SQL_FILTER_MORE("l"))                                                                    \
    X(LOG_COUNT_STATUS, "SELECT count(*)" EBI_SQL_LOG)                                             \
    X(LIVE_READ, EBI_SQL_LIST_LOG EBI_SQL_LIVE " ORDER BY o.seq LIMIT ?6 OFFSET ?7")               \
    X(LIVE_BACK, EBI_SQL_LIST_LOG EBI_SQL_LIVE " ORDER BY o.seq DESC LIMIT ?6 OFFSET ?7")          \
    X(LIVE_TOTAL, "SELECT count(*)" EBI_SQL_LIVE)                                                  \
    X(LOST_READ, EBI_SQL_LIST_LOG EBI_SQL_LOST " ORDER BY o.seq LIMIT ?6 OFFSET ?7")               \
    X(LOST_BACK, EBI_SQL_LIST_LOG EBI_SQL_LOST " ORDER BY o.seq DESC LIMIT ?6 OFFSET ?7")          \
    X(LOST_TOTAL, "SELECT count(*)" EBI_SQL_LOST)                                                  \
    X(DLQ_READ, EBI_SQL_LIST_DEAD EBI_SQL_FILTER_DEAD                                              \
      " ORDER BY x.created_at DESC,x.seq DESC LIMIT ?6 OFFSET ?7")                                 \
    X(DLQ_SEQS, "SELECT x.seq FROM @dead_letters AS x " EBI_SQL_FILTER_DEAD                        \
      " AND x.subscription='' ORDER BY x.seq LIMIT ?6 OFFSET ?7")                                  \
    X(DLQ_COUNT, "SELECT count(*) FROM @dead_letters AS x " EBI_SQL_FILTER_DEAD)                   \
    X(DLQ_COUNT_ALL, "SELECT count(*) FROM @dead_letters")                                         \
    X(DLQ_RETRY, "INSERT INTO @deliveries(seq,status,due_ms,ordering_key,retried_at,retried_by,"   \
                 "updated_at) SELECT seq,'pending',0,ordering_key,?2,?3,?2 FROM @dead_letters"     \
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
** >>types   The store and its connection                          [private]
** ========================================================================
** The store is what a bus and an inspector have in common: a file, its lock, the connection that
** writes and the one that reads. Members stand in groups, by who may touch them. */

typedef struct ebi_db {
    sqlite3 *handle;
    sqlite3_stmt *stmts[EBI_SQL_COUNT];
    int level;       /* EB_DURABLE_ that PRAGMA synchronous is set to */
    int levels_seen; /* a bit for each that was read back */
    /* waiting for another process's lock */
    eb_store *store;
    int64_t busy_until_us; /* monotonic, set by who uses the connection; 0: busy_timeout_ms */
    int64_t busy_since_us;
} ebi_db;

/* One piece of work for the writer; lives on the stack of the thread that wants it. */
typedef struct ebi_req {
    eb_result (*func)(eb_store *store, void *arg); /* inside the transaction; NULL: exclusive use */
    void (*after)(eb_store *store, void *arg, eb_result rc); /* lock held; NULL: none */
    void *arg;
    int level;        /* durability this member needs */
    int64_t until_us; /* EB_ERR_BUSY if it could not begin by then */
    int64_t queue_us; /* leaves the queue unserved at that time; 0: waits for as long as it takes */
    int once;         /* it cannot run twice: another's failure ends it with EB_EMPTY */
    int ran;
    /* under store->lock */
    struct ebi_req *next;
    int state; /* EBI_REQ_... */
    eb_result rc;
    int waits; /* cond is in use: a lone publisher needs none */
    ebi_cond cond;
    char error[sizeof ebi_error_text]; /* why rc < 0, for the waiting thread's eb_errmsg() */
} ebi_req;
enum { EBI_REQ_QUEUED, EBI_REQ_LEAD, EBI_REQ_DONE };

/* What the log is to be told, by whoever next holds no lock and does not lead: a logger may
** publish. */
typedef struct ebi_note {
    int level;
    const char *message;
    char error[160];
} ebi_note;
enum { EBI_NOTES = 8 };
typedef struct ebi_notes { /* under the lock */
    ebi_note at[EBI_NOTES];
    int count;
    char trouble[200]; /* why the last transaction failed */
} ebi_notes;

/* What the rooms of the file ask of those of the engine, which are above them: the bus's, or of a
** store without one ebi_hooks_alone. "Leader" is the thread that commits, see >>writer. */
typedef struct ebi_hooks {
    int (*take)(eb_store *store);         /* lock held, leader: what rides along? 1: something */
    eb_result (*ride)(eb_store *store);   /* leader: that, first of all in the transaction */
    void (*over)(eb_store *store, eb_result rc); /* leader: what was begun is over */
    void (*rode)(eb_store *store, eb_result rc); /* lock held, leader: what became of it */
    eb_result (*renewed)(eb_store *store); /* leader: the file was opened anew; is memory right? */
    int (*started)(eb_store *store);      /* lock held, leader: whether this bus dispatches */
    int (*copies)(eb_store *store);       /* lock held: the WAL is long; 1: somebody will copy it */
    ebi_cond *(*wake)(eb_store *store);   /* lock held: whom to signal when the lock is free */
    void (*noted)(eb_store *store);       /* lock held: there is something for the log */
    void (*gone)(eb_store *store);        /* no lock held: nobody refers to it any more */
} ebi_hooks;

typedef struct ebi_place { /* where the file is; immutable after open */
    char *path, *vfs;
    char *file; /* path as SQLite made it absolute; NULL: in memory */
    char prefix[36];
    char ns[34];
    int in_memory;
    int frozen;    /* the file cannot be written, and nobody had it open: see >>store */
    int wal_pages; /* see eb_options */
    int page_bytes;
} ebi_place;

typedef struct ebi_who { /* immutable after open */
    int64_t pid;
    char *node_id, *node_name;
    const char *node; /* what the log calls us: node_name or node_id */
} ebi_who;

typedef struct ebi_queue { /* for a commit, see >>writer; under the lock */
    ebi_req *head, *tail;
    int leading;          /* somebody uses `writer` */
    ebi_thread_id leader; /* set by whoever gets it */
    int crowd;            /* so many commits more are expected to be shared */
    int64_t commits;
} ebi_queue;

typedef struct ebi_foreign { /* somebody else's lock on the file; under the lock */
    int said;         /* it is told to the log; until we get it */
    int64_t since_us; /* it is there since; 0: it is not */
} ebi_foreign;

typedef struct ebi_trust { /* what of file and connection is in doubt; whoever leads */
    int must_reopen;     /* a commit's fsync failed: this connection is not to be trusted */
    int must_checkpoint; /* and until a TRUNCATE checkpoint succeeds, nothing is durable */
    int must_resync;     /* and then memory and file are compared */
    int old_wal;         /* a store found one that it did not have to look at, until it writes */
    int moved;           /* the file has lost its name, when we last looked */
    int64_t data_version, cookie; /* by both: has somebody else written, was the file replaced? */
} ebi_trust;

typedef struct ebi_wal { /* see >>wal; whoever leads, said and held under the lock */
    int filled;
    int frames; /* in it, by the last commit of ours */
    int done;   /* of these, seen by the last checkpoint */
    int said;   /* one that cannot be copied is told to the log */
    int held;   /* the last checkpoint found somebody who reads an old state of it */
} ebi_wal;

struct eb_store {
    /* immutable after open */
    eb_bus *bus; /* whose own store this is, or NULL */
    const ebi_hooks *hooks;
    eb_allocator allocator;
    eb_logger logger;
    eb_clock clock; /* now_ms NULL: the system's */
    int64_t busy_timeout_ms;
    int durability;
    ebi_place place;
    ebi_who who;
    /* under the lock: the one of a store and of the bus around it */
    ebi_mutex lock;
    int held; /* by holder: see EBI_HELD */
    ebi_thread_id holder;
    int locks;  /* of lock and read_lock, how many could be made */
    int closed; /* the bus was destroyed; a handler left behind may still call. Also read_lock */
    uint64_t id_key[2]; /* written by the leader only, who may read it without */
    ebi_queue queue;
    ebi_notes notes;
    ebi_foreign foreign;
    /* whoever leads */
    ebi_db writer;
    ebi_trust trust;
    ebi_wal wal;
    /* under read_lock; a second connection, so that looking never holds up publishing */
    ebi_mutex read_lock;
    ebi_db reader;
    /* whoever opens and closes: a side file that whoever migrated the file holds until it closes */
    ebi_db old_owner;
};

/* ===========================================================================
** >>locks   Who holds the lock and who leads, asserted            [private]
** ========================================================================
** store->lock is the one lock of a store and of the bus around it: held for moments, never while
** SQLite works, a handler runs or a logger is told something. Who leads may use the connection
** `writer`, and what else is the leader's, without it. A function says which of the two it expects
** by its first lines. */

EBI_FN void ebi_store_lock(eb_store *store)
{
    ebi_mutex_lock(&store->lock);
    EB_ASSERT(!store->held);
    store->held = 1;
    store->holder = ebi_thread_self();
}
EBI_FN void ebi_store_unlock(eb_store *store)
{
    EB_ASSERT(store->held && ebi_thread_same(store->holder, ebi_thread_self()));
    store->held = 0;
    ebi_mutex_unlock(&store->lock);
}

/* In a forked child, where it may be held by a thread that does not exist: a new one, taken. */
EBI_FN void ebi_store_relock(eb_store *store)
{
    ebi_mutex_init(&store->lock);
    store->held = 0;
    ebi_store_lock(store);
}

/* Waits for a signal or for us microseconds, < 0: without limit; may wake early. Lock held on entry
** and exit. */
EBI_FN void ebi_store_wait(eb_store *store, ebi_cond *cond, int64_t us)
{
    EB_ASSERT(store->held && ebi_thread_same(store->holder, ebi_thread_self()));
    store->held = 0;
    ebi_cond_wait(cond, &store->lock, us);
    EB_ASSERT(!store->held);
    store->held = 1;
    store->holder = ebi_thread_self();
}

#define EBI_HELD(store)                                                                            \
    EB_ASSERT((store)->held && ebi_thread_same((store)->holder, ebi_thread_self()))
#define EBI_LEADS(store)                                                                           \
    EB_ASSERT((store)->queue.leading && ebi_thread_same((store)->queue.leader, ebi_thread_self()))

/* ===========================================================================
** >>memory   One allocator                                        [private]
** ========================================================================
** options.allocator or realloc. May be called under the lock. */

EBI_FN void *ebi_default_resize(void *ptr, size_t size, void *user)
{
    (void)user;
    if (size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, size);
}

/* NULL: out of memory. The caller frees it with ebi_free(). */
EBI_FN void *ebi_alloc(const eb_allocator *a, size_t size)
{
    EB_ASSERT(size > 0);
    return a->resize(NULL, size, a->user);
}

/* NULL is fine. */
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
** >>clock   Wall time for rows, monotonic time for waits          [private]
** ========================================================================
** Of the system, or options.clock. Both saturate: no number of the user's overflows. */

EBI_FN int64_t ebi_clock_now_ms(const eb_store *store)
{
    return store->clock.now_ms ? store->clock.now_ms(store->clock.user) : ebi_platform_now_ms();
}

/* Monotonic time: for waits. */
EBI_FN int64_t ebi_clock_mono_us(const eb_store *store)
{
    return store->clock.mono_ms ? store->clock.mono_ms(store->clock.user) * 1000
                                : ebi_platform_mono_us();
}
EBI_FN int64_t ebi_clock_mono_ms(const eb_store *store) { return ebi_clock_mono_us(store) / 1000; }
EBI_FN void ebi_clock_sleep_ms(const eb_store *store, int64_t ms)
{
    if (ms <= 0) return;
    if (store->clock.sleep_ms) store->clock.sleep_ms(ms, store->clock.user);
    else ebi_platform_sleep_ms(ms);
}

/* Milliseconds as microseconds, for any number. */
EBI_FN int64_t ebi_clock_us(int64_t ms)
{
    if (ms > INT64_MAX / 2000) return INT64_MAX / 2;
    return ms < 0 ? 0 : ms * 1000;
}

/* a + b for b >= 0, without overflow. */
EBI_FN int64_t ebi_clock_add(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

/* The wall time in delay_ms from now; the largest number is kept for "never". */
EBI_FN int64_t ebi_clock_due(int64_t now_ms, int64_t delay_ms)
{
    int64_t due = ebi_clock_add(now_ms, delay_ms);
    return due == INT64_MAX ? due - 1 : due;
}

/* Waits for a signal or for us microseconds; may wake early. A clock of the user's has no
** conditions: it is slept on, with the lock free, 10 ms at a time. Lock held on entry and exit. */
EBI_FN void ebi_clock_wait(eb_store *store, ebi_cond *cond, int64_t us)
{
    EBI_HELD(store);
    EB_ASSERT(us >= 0);
    if (!store->clock.sleep_ms) {
        ebi_store_wait(store, cond, us);
        return;
    }
    ebi_store_unlock(store);
    ebi_clock_sleep_ms(store, us < 10000 ? (us + 999) / 1000 : 10);
    ebi_store_lock(store);
}

/* The monotonic millisecond in timeout_ms from now; INT64_MAX for EB_NONE. */
EBI_FN int64_t ebi_clock_deadline(const eb_store *store, int64_t timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : ebi_clock_add(ebi_clock_mono_ms(store), timeout_ms);
}

/* ===========================================================================
** >>log   One structured entry at a time                          [private]
** ========================================================================
** The logger is called without the lock and not by the leader, so that it may publish. Who holds
** the lock or leads leaves a note (ebi_log_later), and whoever is free of both tells it. */

typedef struct ebi_log_line { /* written with one call, so that lines of two threads do not mix */
    char text[8192];
    size_t len;
} ebi_log_line;

/* Appends one field; nothing for NULL. */
EBI_FN void ebi_log_field(ebi_log_line *line, const char *name, const char *value)
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
    ebi_log_line line;
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
    ebi_log_field(&line, "ns", e->ns);
    ebi_log_field(&line, "node", e->node);
    if (e->attempt > 0)
        snprintf(tail, sizeof tail, ",\"attempt\":%d,\"max_attempts\":%d,\"next_delay_ms\":%lld",
                 e->attempt, e->max_attempts, (long long)e->next_delay_ms);
    fprintf(stderr, "%s%s}\n", line.text, tail);
}

/* The store that speaks on this thread right now: its logger may publish, but must not wait. */
static EBI_THREAD_LOCAL const eb_store *ebi_log_speaker;

/* An entry without an event. */
EBI_FN void ebi_log_init(eb_log_entry *e, int level, const char *message, const char *error)
{
    memset(e, 0, sizeof *e);
    e->level = level;
    e->message = message;
    e->error = error;
    e->next_delay_ms = -1;
}

/* Called without any lock held, and not by the leader: a logger may call back into the bus. speaker
** is the store that it is of, NULL: there is none yet. */
EBI_FN void ebi_log_to(const eb_logger *logger, eb_log_entry *e, const eb_store *speaker)
{
    const eb_store *outer = ebi_log_speaker;
    char text[sizeof ebi_error_text]; /* of the call that speaks: a call of the logger's may fail */
    memcpy(text, ebi_error_text, sizeof text);
    if (e->error == ebi_error_text) e->error = text;
    EB_ASSERT(e->message && logger->func);
    ebi_log_speaker = speaker;
    logger->func(e, logger->user);
    ebi_log_speaker = outer;
    memcpy(ebi_error_text, text, sizeof text);
}
EBI_FN void ebi_log(const eb_store *store, eb_log_entry *e)
{
    e->time_ms = ebi_clock_now_ms(store);
    e->ns = store->place.ns[0] ? store->place.ns : NULL;
    e->node = store->who.node;
    ebi_log_to(&store->logger, e, store);
}

/* Says it. No lock held, not by the leader. */
EBI_FN void ebi_log_note(const eb_store *store, int level, const char *message, const char *error)
{
    eb_log_entry e;
    ebi_log_init(&e, level, message, error);
    ebi_log(store, &e);
}

/* Leaves something for the log; what does not fit is dropped. Lock held. */
EBI_FN void ebi_log_later(eb_store *store, int level, const char *message, const char *fmt, ...)
    EB_PRINTF(4, 5);
EBI_FN void ebi_log_later(eb_store *store, int level, const char *message, const char *fmt, ...)
{
    va_list args;
    ebi_note *note = &store->notes.at[store->notes.count];
    EBI_HELD(store);
    if (store->notes.count == EBI_NOTES) return;
    store->notes.count++;
    note->level = level;
    note->message = message;
    va_start(args, fmt);
    vsnprintf(note->error, sizeof note->error, fmt, args);
    va_end(args);
    store->hooks->noted(store);
}

/* Tells the log what was left for it. No lock held, not by the leader. */
EBI_FN void ebi_log_flush(eb_store *store)
{
    ebi_note notes[EBI_NOTES];
    int i, n;
    ebi_store_lock(store);
    n = store->notes.count;
    if (n > 0) memcpy(notes, store->notes.at, sizeof notes);
    store->notes.count = 0;
    ebi_store_unlock(store);
    for (i = 0; i < n; i++) ebi_log_note(store, notes[i].level, notes[i].message, notes[i].error);
}

/* ===========================================================================
** >>db   One connection and its statements                        [private]
** ========================================================================
** A connection is used by one thread at a time: the writer by whoever leads, the reader under
** read_lock. Statements are reset before a call ends, so that none holds a snapshot. */

/* In place of a code of SQLite's: a value in a row is damage, and ebi_error() has said which. */
#define EBI_DAMAGED (SQLITE_CORRUPT | (200 << 8))

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
    int its = rc != EBI_DAMAGED && db->handle && ((sqlite3_errcode(db->handle) ^ rc) & 0xFF) == 0;
    EB_ASSERT(db->store);
    if (rc == EBI_DAMAGED) return result;
    return ebi_error(result, "%s: %s: %s (SQLite %d)", db->store->place.path, what,
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
        ebi_sql_expand(ebi_sql_text[index], store->place.prefix, sql, sizeof sql);
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
        if (sqlite3_column_type(s, i) == SQLITE_NULL) break;
    if (i == first + 3) return SQLITE_NOMEM;
    ebi_error(EB_ERR_CORRUPT, "damaged: an event without id, type or payload (row %lld)",
              (long long)sqlite3_column_int64(s, 0));
    return EBI_DAMAGED;
}

/* Arguments are bound by these; NULL text is NULL. Nothing is copied: what is bound must live until
** the statement is run. */
EBI_FN void ebi_bind_text(sqlite3_stmt *s, int i, const char *text)
{
    if (text) sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
    else sqlite3_bind_null(s, i);
}

/* A number, or NULL for 0: what is not there. */
EBI_FN void ebi_bind_some(sqlite3_stmt *s, int i, int64_t value)
{
    if (value) sqlite3_bind_int64(s, i, value);
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

/* Runs a statement without parameters; SQLite's result. */
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

/* Runs SQL that is not in the list; SQLite's result. */
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
    EB_ASSERT(db->handle && sqlite3_get_autocommit(db->handle));
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
    EB_ASSERT(db->handle);
    if (sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK)
        return 0;
    return moved;
}

/* Size of the WAL file, through SQLite's own handle; 0 if there is none. */
EBI_FN int64_t ebi_db_wal_bytes(ebi_db *db)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    EB_ASSERT(db->handle);
    sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
    if (!file || !file->pMethods || file->pMethods->xFileSize(file, &size) != SQLITE_OK) return 0;
    return size;
}

/* Text of a column, NULL for NULL; valid until the next step or reset. */
EBI_FN const char *ebi_column(sqlite3_stmt *s, int i)
{
    return (const char *)sqlite3_column_text(s, i);
}

/* What a row says is input too: a number outside of [low, high], or something else than a number
** where one has to be, is damage. Says which table and row (its number is column 0); *bad is 1
** then. */
EBI_FN int64_t ebi_column_within(sqlite3_stmt *s, int i, const char *what, int64_t low,
                                 int64_t high, int *bad)
{
    int type = sqlite3_column_type(s, i); /* before it is read as a number */
    int64_t value = sqlite3_column_int64(s, i), row = sqlite3_column_int64(s, 0);
    if ((type == SQLITE_INTEGER || type == SQLITE_NULL) && value >= low && value <= high)
        return value;
    ebi_error(EB_ERR_CORRUPT, "damaged: %s is %.40s (row %lld)", what,
              ebi_column(s, i) ? ebi_column(s, i) : "?", (long long)row);
    *bad = 1;
    return low;
}

/* ===========================================================================
** >>opening   A connection with our settings, and waiting for others' locks [private]
** ========================================================================
** Every connection of ours is opened here: busy handler, no foreign triggers or views, pragmas that
** are read back. */

/* Somebody else has the write lock: after a second that is said, once, however many tries it was.
*/
enum { EBI_LOCK_SAID_US = 1000000 };
EBI_FN void ebi_db_locked(eb_store *store, int64_t now_us)
{
    int64_t waited_us;
    ebi_store_lock(store);
    if (!store->foreign.since_us) store->foreign.since_us = now_us;
    waited_us = now_us - store->foreign.since_us;
    if (!store->foreign.said && waited_us > EBI_LOCK_SAID_US) {
        store->foreign.said = 1;
        ebi_log_later(store, EB_LOG_WARN, "the database is locked by somebody else",
                      "%s: for %lld ms now; another process, or an open transaction of your own",
                      store->place.path, (long long)(waited_us / 1000));
    }
    ebi_store_unlock(store);
}

/* Waits for another process's lock. Time counts, not calls: a signal may end a pause early.
** SQLite's write lock has no queue, so whoever asks most often gets it; with pauses of 1 ms one of
** several busy processes starves for seconds, with short ones in the beginning none waits for long
** (bench/). A clock of the user's is too coarse for that. */
EBI_FN int ebi_db_busy(void *arg, int count)
{
    ebi_db *db = (ebi_db *)arg;
    eb_store *store = db->store;
    int64_t now_us = ebi_clock_mono_us(store), until_us = db->busy_until_us, waited_us;
    if (count == 0) db->busy_since_us = now_us;
    waited_us = now_us - db->busy_since_us;
    if (until_us == 0) until_us = db->busy_since_us + ebi_clock_us(store->busy_timeout_ms);
    if (db == &store->writer) ebi_db_locked(store, now_us);
    if (now_us >= until_us) return 0;
    if (store->clock.sleep_ms) ebi_clock_sleep_ms(store, 1);
    else ebi_platform_pause_us(waited_us < 300000 ? 50 : 1000);
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

/* Also one that was never opened, or half. */
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

/* The connection itself. A frozen file has a name that tells SQLite to make nothing beside it. */
EBI_FN int ebi_db_connect(eb_store *store, ebi_db *db, int flags)
{
    static const char tail[] = "?immutable=1";
    const char *at;
    char *uri, *out;
    int rc;
    EB_ASSERT(!store->place.frozen || (store->place.file && !store->place.in_memory));
    flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    if (!store->place.frozen) /* the place may not be found by a relative path later */
        return sqlite3_open_v2(store->place.file && strncmp(store->place.path, "file:", 5) != 0
                                   ? store->place.file
                                   : store->place.path,
                               &db->handle, flags, store->place.vfs);
    uri = out =
        (char *)ebi_alloc(&store->allocator, 5 + 3 * strlen(store->place.file) + sizeof tail);
    if (!uri) return SQLITE_NOMEM;
    memcpy(out, "file:", 5);
    out += 5;
    for (at = store->place.file; *at; at++) {
        if (strchr("%?#", *at)) out += snprintf(out, 4, "%%%02X", (unsigned)(unsigned char)*at);
        else *out++ = *at;
    }
    memcpy(out, tail, sizeof tail);
    rc = sqlite3_open_v2(uri, &db->handle, flags | SQLITE_OPEN_URI, store->place.vfs);
    ebi_free(&store->allocator, uri);
    return rc;
}

/* Opens a connection with the settings that change nothing in the file. */
EBI_FN eb_result ebi_db_open(eb_store *store, ebi_db *db, int flags)
{
    int rc = ebi_db_connect(store, db, flags);
    eb_result result = EB_OK;
    EB_ASSERT(db->level == 0);
    db->store = store;
    db->busy_until_us = 0;
    if (rc != SQLITE_OK) result = ebi_db_error(db, rc, "opening it");
    if (result == EB_OK) {
        sqlite3_extended_result_codes(db->handle, 1);
        sqlite3_busy_handler(db->handle, ebi_db_busy, db);
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        /* We need neither, and what a file brings along must not run in our transactions. */
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
        /* A plan that depends on what is bound would be made anew at each call. */
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_QPSG, 1, NULL);
        rc = sqlite3_create_function_v2(db->handle, "eb_match", 2,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
                                        NULL, ebi_db_match, NULL, NULL, NULL);
        if (rc != SQLITE_OK) result = ebi_db_error(db, rc, "eb_match");
    }
    if (result == EB_OK) result = ebi_db_pragma(db, "cell_size_check", "1", "1");
    if (result == EB_OK && !store->place.in_memory) /* the host's default may be another */
        result = ebi_db_pragma(db, "locking_mode", "NORMAL", "normal");
    if (result == EB_OK && (!ebi_db_stmt(store, db, EBI_SQL_BEGIN) ||
                            !ebi_db_stmt(store, db, EBI_SQL_COMMIT) ||
                            !ebi_db_stmt(store, db, EBI_SQL_ROLLBACK))) /* must not need memory */
        result = ebi_db_error(db, ebi_db_code(db), "opening it");
    if (result != EB_OK) ebi_db_close(db);
    return result;
}

/* SQLite tells the length of the WAL after each commit. This takes the place of its own automatic
** checkpoint, which would make a publisher wait for two fsyncs: see ebi_wal_checkpoint(). */
EBI_FN int ebi_wal_hook(void *arg, sqlite3 *handle, const char *name, int frames)
{
    eb_store *store = (eb_store *)arg;
    (void)handle;
    (void)name;
    store->wal.frames = frames;
    return SQLITE_OK;
}

/* The switch to WAL can be refused while another process opens the same new file, whatever the busy
** handler says: try until the busy timeout. A database in memory stays as it is. */
EBI_FN eb_result ebi_db_wal(eb_store *store, ebi_db *db)
{
    int64_t start = ebi_clock_mono_ms(store);
    eb_result rc;
    if (store->place.in_memory) return EB_OK;
    EB_ASSERT(sqlite3_get_autocommit(db->handle));
    for (;;) {
        rc = ebi_db_pragma(db, "journal_mode", "WAL", "wal");
        if (rc != EB_ERR_BUSY || ebi_clock_mono_ms(store) - start >= store->busy_timeout_ms) break;
        ebi_clock_sleep_ms(store, 5);
    }
    if (rc == EB_OK) rc = ebi_db_pragma(db, "journal_size_limit", "33554432", "33554432");
    if (rc == EB_OK) sqlite3_wal_hook(db->handle, ebi_wal_hook, store);
#if defined(__APPLE__)
    if (rc == EB_OK) rc = ebi_db_pragma(db, "fullfsync", "1", "1");
#endif
    return rc;
}

/* Whether this VFS opens files of the operating system by their names, so that we may look first.
*/
EBI_FN int ebi_db_native(const eb_store *store)
{
    const sqlite3_vfs *vfs = sqlite3_vfs_find(store->place.vfs);
    const sqlite3_vfs *native = sqlite3_vfs_find(EBI_WIN32 ? "win32" : "unix");
    return vfs && native && vfs->xFullPathname == native->xFullPathname;
}

/* Before SQLite opens path: what is no file is refused, a new file is private. SQLite would give a
** new one the permissions of the umask. */
EBI_FN eb_result ebi_db_prepare(const eb_store *store, const char *path, int create)
{
    if (!ebi_db_native(store)) return EB_OK;
    if (!ebi_platform_is_file(path)) return ebi_error(EB_ERR_IO, "%s is no regular file", path);
    if (create) ebi_platform_create_private(path);
    return EB_OK;
}

/* ===========================================================================
** >>ownership   One dispatcher per file and namespace             [private]
** ========================================================================
** The owner holds the write lock of a side file, an empty database opened through the same VFS. The
** operating system lets go of it when the process dies, so there is nothing to expire or to clean
** up, and it works within one process and after fork too. The file stays. (Not BEGIN EXCLUSIVE: of
** many that begin at the same moment each may be in the way of the others, and none gets it.)
**
** Version 0.1.0 named it <path>-<ns>.owner, which may be the side file of another database. */

/* Takes it for as long as side is open; EB_ERR_OWNED at once if somebody else has it. */
EBI_FN eb_result ebi_owner_lock(eb_store *store, ebi_db *side, int as_in_0_1)
{
    size_t n;
    char *path;
    int rc = SQLITE_OK;
    eb_result result;
    EB_ASSERT(!side->handle);
    if (!store->place.file || !store->place.file[0]) return EB_OK;
    side->store = store;
    n = strlen(store->place.file) + sizeof store->place.ns + 16;
    path = (char *)ebi_alloc(&store->allocator, n);
    if (!path) return ebi_error(EB_ERR_NOMEM, "out of memory");
    if (as_in_0_1 && store->place.ns[0])
        snprintf(path, n, "%s-%s.owner", store->place.file, store->place.ns);
    else
        snprintf(path, n, "%s.owner%s%s", store->place.file, store->place.ns[0] ? "@" : "",
                 store->place.ns);
    result = ebi_db_prepare(store, path, 1);
    if (result == EB_OK)
        rc = sqlite3_open_v2(path, &side->handle,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                             store->place.vfs);
    if (result == EB_OK && rc == SQLITE_OK) rc = ebi_db_exec(side, "BEGIN IMMEDIATE");
    ebi_free(&store->allocator, path);
    if (result == EB_OK && (rc & 0xFF) == SQLITE_BUSY)
        result = ebi_error(EB_ERR_OWNED, "%s: another bus dispatches it", store->place.path);
    else if (result == EB_OK && rc != SQLITE_OK)
        result = ebi_db_error(side, rc, "taking ownership");
    if (result != EB_OK) ebi_db_close(side);
    return result;
}

/* ===========================================================================
** >>schema   Tables: the text of every version                    [private]
** ========================================================================
** Why three tables for one life: event_log is only appended to, deliveries holds live rows only and
** so stays small and hot, finished is only appended to. One wide table with an index on status
** costs half the throughput and decays as it grows (bench/). */

/* Released: this text is what lies in people's files. Never edited; see ebi_schema_v2. */
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
    "CREATE INDEX @deliveries_key ON @deliveries(ordering_key,seq) WHERE ordering_key IS NOT"
    " NULL",
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
    /* What an operator may do with UPDATE events SET status = ... (replaced in version 2) */
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
    " SELECT seq,'pending',CAST(round((julianday('now')-2440587.5)*86400000) AS INTEGER),"
    "ordering_key,strftime('%Y-%m-%dT%H:%M:%fZ','now'),'operator',strftime('%Y-%m-%dT%H:%M:%fZ',"
    "'now') FROM @event_log WHERE seq=old.seq AND old.status IN ('dlq','done')"
    " AND new.status='pending';"
    " DELETE FROM @dead_letters WHERE subscription='' AND seq=old.seq AND old.status='dlq'"
    " AND new.status='pending';"
    " DELETE FROM @finished WHERE seq=old.seq AND old.status='done' AND new.status='pending';"
    " UPDATE @deliveries SET status='pending',attempts=failed,token=NULL,owner=NULL,"
    "lease_ms=NULL,"
    "due_ms=CAST(round((julianday('now')-2440587.5)*86400000) AS INTEGER),"
    "updated_at=strftime('%Y-%m-%dT%H:%M:%fZ','now') WHERE seq=old.seq AND"
    " old.status='processing' AND new.status='pending';"
    " UPDATE @deliveries SET status='processing',attempts=failed+1,token=NULL,owner=NULL,"
    "due_ms=NULL,updated_at=strftime('%Y-%m-%dT%H:%M:%fZ','now') WHERE seq=old.seq AND"
    " old.status='pending' AND new.status='processing';"
    " UPDATE @meta SET value=max(value,old.seq) WHERE key='claimed_to'"
    " AND old.status='pending' AND new.status='processing';"
    " INSERT INTO @dead_letters(subscription,seq,id,type,payload,metadata,ordering_key,"
    "idempotency_key,producer,created_at,failed,errors,died_at,retried_at,retried_by)"
    " SELECT '',l.seq,l.id,l.type,l.payload,l.metadata,l.ordering_key,l.idempotency_key,"
    "l.producer,l.created_at,d.failed+1,CASE WHEN d.errors IS NULL THEN '[\"moved by operator\"]'"
    " ELSE substr(d.errors,1,length(d.errors)-1)||',\"moved by operator\"]' END,"
    "strftime('%Y-%m-%dT%H:%M:%fZ','now'),d.retried_at,d.retried_by FROM @deliveries AS d JOIN"
    " @event_log AS l ON l.seq=d.seq"
    " WHERE d.seq=old.seq AND old.status IN ('pending','processing') AND new.status='dlq';"
    " UPDATE @deliveries SET due_ms=CAST(round((julianday('now')-2440587.5)*86400000) AS"
    " INTEGER) WHERE new.status='dlq'"
    " AND seq=(SELECT min(n.seq) FROM @deliveries AS o JOIN @deliveries AS n ON"
    " n.ordering_key=o.ordering_key WHERE o.seq=old.seq AND n.seq>o.seq AND n.status='pending'"
    " AND n.due_ms IS NULL);"
    " DELETE FROM @deliveries WHERE seq=old.seq AND old.status IN ('pending','processing')"
    " AND new.status='dlq';"
    " END",
    "CREATE TRIGGER @events_insert INSTEAD OF INSERT ON @events BEGIN"
    " SELECT RAISE(ABORT,'publish events with eb_post() or eb_send()'); END",
    "CREATE TRIGGER @events_delete INSTEAD OF DELETE ON @events BEGIN"
    " SELECT RAISE(ABORT,'remove dead letters with eb_dlq_purge()'); END",
    NULL};

/* Version 2: what may run is told by the row, without a clock, and without a walk.
**
**   aside   0: stands in line with the others of its ordering key. Else the epoch of the dispatcher
**           that found nobody for it: until the epoch changes, it holds up nobody.
**   apart   1: was under way when a process died, with others: runs alone. 2: set to processing by
**           hand: holds its key until that is changed. NULL: neither.
**
** due_ms 0 is "at once"; times are for what really waits. deliveries_key is gone: it could not tell
** who stands in line, and a row with a key would pay for three. */
static const char *const ebi_schema_v2[] = {
    "ALTER TABLE @deliveries ADD COLUMN aside INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE @deliveries ADD COLUMN apart INTEGER",
    "UPDATE @deliveries SET apart=2"
    " WHERE status='processing' AND token IS NULL AND due_ms IS NULL",
    "UPDATE @deliveries SET apart=1,due_ms=NULL WHERE suspect>0 AND token IS NULL AND"
    " (status='pending' AND (due_ms IS NULL OR snoozes=0) OR status='processing' AND"
    " due_ms<=(julianday('now')-2440587.5)*86400000)",
    "DROP INDEX @deliveries_key",
    "CREATE INDEX @deliveries_line ON @deliveries(ordering_key,aside)"
    " WHERE ordering_key IS NOT NULL"
    " AND (ifnull(due_ms,0)<=0 OR failed>0 OR snoozes>0 OR retried_at IS NOT NULL)",
    "CREATE INDEX @deliveries_later ON @deliveries(ordering_key,due_ms) WHERE ordering_key IS NOT"
    " NULL AND due_ms>0 AND failed=0 AND snoozes=0 AND retried_at IS NULL",
    "CREATE INDEX @deliveries_apart ON @deliveries(apart) WHERE apart IS NOT NULL",
    "ALTER TABLE @subscriptions ADD COLUMN paused INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE @nodes ADD COLUMN lost_workers INTEGER NOT NULL DEFAULT 0",
    "INSERT OR IGNORE INTO @meta VALUES('starts',0)",
    "INSERT OR IGNORE INTO @meta VALUES('recovering',0)",
    "DROP VIEW @events",
    "CREATE VIEW @events AS"
    " SELECT l.id AS id,l.type AS type,l.payload AS payload,d.status AS status,"
    "d.failed AS retry_count,d.errors AS last_error,l.metadata AS metadata,"
    "l.created_at AS created_at,coalesce(d.updated_at,l.created_at) AS updated_at,l.seq AS seq,"
    "d.attempts AS attempts,CASE WHEN d.due_ms>0 THEN"
    " strftime('%Y-%m-%dT%H:%M:%fZ',d.due_ms/1000.0,'unixepoch') END AS due_at,"
    "CASE WHEN d.token IS NOT NULL OR d.apart=2 THEN d.updated_at END AS processing_started_at,"
    "d.owner AS owner"
    " FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq"
    " UNION ALL SELECT l.id,l.type,l.payload,'done',max(f.attempts-1,0),f.errors,l.metadata,"
    "l.created_at,f.finished_at,l.seq,f.attempts,NULL,NULL,NULL"
    " FROM @finished AS f JOIN @event_log AS l ON l.seq=f.seq"
    " UNION ALL SELECT id,type,payload,'dlq',failed,errors,metadata,created_at,died_at,seq,"
    "failed,NULL,NULL,NULL FROM @dead_letters WHERE subscription=''",
    /* What an operator may do with UPDATE events SET status = ... The same in C: DLQ_RETRY for
    ** dlq>pending; REVOKE, DIE and DELETE_LIVE for >dlq. A change that lets others of its key go on
    ** rings for one of them (as KEY_RING), by due_ms 0; the dispatcher then looks at all of it. */
    "CREATE TRIGGER @events_update INSTEAD OF UPDATE ON @events BEGIN"
    " SELECT CASE WHEN new.id IS NOT old.id OR new.seq IS NOT old.seq OR new.type IS NOT old.type"
    " OR new.payload IS NOT old.payload OR new.metadata IS NOT old.metadata"
    " OR new.retry_count IS NOT old.retry_count OR new.last_error IS NOT old.last_error"
    " OR new.created_at IS NOT old.created_at OR new.updated_at IS NOT old.updated_at"
    " OR new.attempts IS NOT old.attempts OR new.due_at IS NOT old.due_at"
    " OR new.processing_started_at IS NOT old.processing_started_at OR new.owner IS NOT old.owner"
    " THEN RAISE(ABORT,'only status can be updated; publish with eb_send()')"
    " WHEN old.status||'>'||ifnull(new.status,'') NOT IN ('dlq>pending','done>pending',"
    "'processing>pending','pending>processing','pending>dlq','processing>dlq',"
    "'pending>pending','processing>processing','done>done','dlq>dlq')"
    " THEN RAISE(ABORT,'no such change of status; see eb_dlq_retry() and eb_dlq_move()') END;"
    " INSERT INTO @deliveries(seq,status,due_ms,ordering_key,retried_at,retried_by,updated_at)"
    " SELECT seq,'pending',0,ordering_key,strftime('%Y-%m-%dT%H:%M:%fZ','now'),'operator',"
    "strftime('%Y-%m-%dT%H:%M:%fZ','now')"
    " FROM @event_log WHERE seq=old.seq AND old.status IN ('dlq','done')"
    " AND new.status='pending';"
    " DELETE FROM @dead_letters WHERE subscription='' AND seq=old.seq AND old.status='dlq'"
    " AND new.status='pending';"
    " DELETE FROM @finished WHERE seq=old.seq AND old.status='done' AND new.status='pending';"
    " UPDATE @deliveries SET due_ms=0 WHERE seq=(SELECT min(n.seq) FROM @deliveries AS o"
    " JOIN @deliveries AS n ON n.ordering_key=o.ordering_key WHERE o.seq=old.seq"
    " AND n.seq<>old.seq AND n.token IS NULL AND n.due_ms IS NULL AND n.apart IS NULL)"
    " AND new.status<>old.status AND old.status IN ('pending','processing')"
    " AND new.status<>'processing';"
    " UPDATE @deliveries SET status='pending',attempts=failed,token=NULL,owner=NULL,"
    "lease_ms=NULL,born=NULL,"
    "due_ms=0,apart=NULL,updated_at=strftime('%Y-%m-%dT%H:%M:%fZ','now')"
    " WHERE seq=old.seq AND old.status='processing' AND new.status='pending';"
    " UPDATE @deliveries SET status='processing',attempts=failed+1,token=NULL,owner=NULL,"
    "born=NULL,due_ms=NULL,aside=0,apart=2,updated_at=strftime('%Y-%m-%dT%H:%M:%fZ','now')"
    " WHERE seq=old.seq AND old.status='pending' AND new.status='processing';"
    " INSERT INTO @dead_letters(subscription,seq,id,type,payload,metadata,ordering_key,"
    "idempotency_key,producer,created_at,failed,errors,died_at,retried_at,retried_by)"
    " SELECT '',l.seq,l.id,l.type,l.payload,l.metadata,l.ordering_key,l.idempotency_key,"
    "l.producer,l.created_at,d.failed+1,CASE WHEN d.errors IS NULL THEN '[\"moved by operator\"]'"
    " ELSE substr(d.errors,1,length(d.errors)-1)||',\"moved by operator\"]' END,"
    "strftime('%Y-%m-%dT%H:%M:%fZ','now'),"
    "d.retried_at,d.retried_by FROM @deliveries AS d JOIN @event_log AS l ON l.seq=d.seq"
    " WHERE d.seq=old.seq AND old.status IN ('pending','processing') AND new.status='dlq';"
    " DELETE FROM @deliveries WHERE seq=old.seq AND old.status IN ('pending','processing')"
    " AND new.status='dlq';"
    " END",
    "CREATE TRIGGER @events_insert INSTEAD OF INSERT ON @events BEGIN"
    " SELECT RAISE(ABORT,'publish events with eb_post() or eb_send()'); END",
    "CREATE TRIGGER @events_delete INSTEAD OF DELETE ON @events BEGIN"
    " SELECT RAISE(ABORT,'remove dead letters with eb_dlq_purge()'); END",
    NULL};

/* A test may add a step, to see a file of this version migrated. */
#ifdef EBI_SCHEMA_TEST_STEP
static const char *const ebi_schema_v3[] = {EBI_SCHEMA_TEST_STEP, NULL};
static const char *const *const ebi_schema_steps[] = {ebi_schema_v1, ebi_schema_v2, ebi_schema_v3};
#else
static const char *const *const ebi_schema_steps[] = {ebi_schema_v1, ebi_schema_v2};
#endif
#define EBI_SCHEMA_LATEST ((int)(sizeof ebi_schema_steps / sizeof *ebi_schema_steps))

/* Every name of ours in sqlite_schema, what kind of thing it is, and in which versions. */
typedef struct ebi_schema_name {
    const char *name, *kind;
    int since, until; /* until 0: still */
} ebi_schema_name;
static const ebi_schema_name ebi_schema_names[] = {
    {"meta", "table", 1, 0},           {"event_log", "table", 1, 0},
    {"event_log_key", "index", 1, 0},  {"deliveries", "table", 1, 0},
    {"deliveries_due", "index", 1, 0}, {"deliveries_key", "index", 1, 1},
    {"finished", "table", 1, 0},       {"dead_letters", "table", 1, 0},
    {"subscriptions", "table", 1, 0},  {"dead_letters_created", "index", 1, 0},
    {"schedules", "table", 1, 0},      {"nodes", "table", 1, 0},
    {"events", "view", 1, 0},          {"events_update", "trigger", 1, 0},
    {"events_insert", "trigger", 1, 0}, {"events_delete", "trigger", 1, 0},
    {"deliveries_line", "index", 2, 0}, {"deliveries_later", "index", 2, 0},
    {"deliveries_apart", "index", 2, 0}};
#define EBI_SCHEMA_NAMES ((int)(sizeof ebi_schema_names / sizeof *ebi_schema_names))

/* ===========================================================================
** >>migration   Whose file it is, and bringing it forward         [private]
** ========================================================================
** Everything is decided before anything is changed: a file with none of our names gets them all in
** one transaction; one whose meta table says it is ours and of a known version is migrated forward
** in one transaction; anything else is refused untouched. */

/* One number of meta. SQLITE_OK with *value 0 if there is none; an error if that is not our table,
** EBI_DAMAGED if it is no number. */
EBI_FN int ebi_schema_meta(eb_store *store, ebi_db *db, const char *key, int64_t *value)
{
    sqlite3_stmt *s = ebi_db_stmt(store, db, EBI_SQL_META_GET);
    int rc;
    *value = 0;
    if (!s) return ebi_db_code(db);
    ebi_bind_text(s, 1, key);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_INTEGER) {
        ebi_error(EB_ERR_CORRUPT, "damaged: meta.%s is no number", key);
        rc = EBI_DAMAGED;
    } else if (rc == SQLITE_ROW) {
        *value = sqlite3_column_int64(s, 0);
    }
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Which of our names are taken in the file, a bit for each; *wrong: one of them is of another kind
** than ours is (a view that never ends in the place of a table, say), or has a conflict clause, by
** which SQLite would drop a row of ours in silence; or NULL. */
EBI_FN eb_result ebi_schema_find(eb_store *store, ebi_db *db, uint32_t *found, const char **wrong)
{
    sqlite3_stmt *s = NULL;
    char name[80];
    const char *kind;
    static const char sql[] = "SELECT CASE WHEN sql LIKE '%CONFLICT%' OR sql LIKE 'CREATE VIRTUAL%'"
                              " THEN 'no' ELSE type END FROM sqlite_schema"
                              " WHERE name=?1 COLLATE NOCASE";
    int i, rc = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    *found = 0;
    *wrong = NULL;
    for (i = 0; i < EBI_SCHEMA_NAMES && rc == SQLITE_OK; i++) {
        snprintf(name, sizeof name, "%s%s", store->place.prefix, ebi_schema_names[i].name);
        ebi_bind_text(s, 1, name);
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW) {
            *found |= UINT32_C(1) << i;
            kind = (const char *)sqlite3_column_text(s, 0);
            if (kind && strcmp(kind, ebi_schema_names[i].kind) != 0)
                *wrong = ebi_schema_names[i].name;
        }
        sqlite3_reset(s);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(s);
    return rc == SQLITE_OK ? EB_OK : ebi_db_error(db, rc, "reading");
}

/* The names that a file of this version has. */
EBI_FN uint32_t ebi_schema_expected(int64_t version)
{
    uint32_t bits = 0;
    int i;
    for (i = 0; i < EBI_SCHEMA_NAMES; i++)
        if (ebi_schema_names[i].since <= version &&
            (ebi_schema_names[i].until == 0 || version <= ebi_schema_names[i].until))
            bits |= UINT32_C(1) << i;
    return bits;
}

/* In UTF-16 SQLite would convert each text on its way in and out, and not without loss. */
EBI_FN eb_result ebi_schema_encoding(ebi_db *db)
{
    sqlite3_stmt *s = NULL;
    const char *name;
    eb_result result = EB_OK;
    int rc = sqlite3_prepare_v2(db->handle, "PRAGMA encoding", -1, &s, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    name = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (rc == SQLITE_ROW && !name) rc = SQLITE_NOMEM;
    if (rc != SQLITE_ROW)
        result = ebi_db_error(db, rc == SQLITE_DONE ? SQLITE_ERROR : rc, "reading");
    else if (strcmp(name, "UTF-8") != 0)
        result = ebi_error(EB_ERR_SCHEMA, "%s: the database is in %s, an event bus needs UTF-8",
                           db->store->place.path, name);
    sqlite3_finalize(s);
    return result;
}

/* A table `namespaces` that is there already is ours, or the file is somebody else's. */
EBI_FN eb_result ebi_schema_registry(ebi_db *db)
{
    int there = 0;
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->handle, "SELECT count(*) FROM sqlite_schema WHERE name="
                                            "'namespaces' COLLATE NOCASE", -1, &s, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) there = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    if (rc != SQLITE_ROW) return ebi_db_error(db, rc, "reading");
    if (!there) return EB_OK;
    s = NULL;
    rc = sqlite3_prepare_v2(db->handle, "SELECT ns,created_at,metadata FROM namespaces", -1, &s,
                            NULL);
    sqlite3_finalize(s);
    if (rc == SQLITE_OK) return EB_OK;
    if ((rc & 0xFF) != SQLITE_ERROR) return ebi_db_error(db, rc, "reading");
    return ebi_error(EB_ERR_SCHEMA, "%s: the table namespaces is somebody else's",
                     db->store->place.path);
}

/* The version of the file's schema: 0 = none of it is there. EB_ERR_SCHEMA: not ours, or newer. */
EBI_FN eb_result ebi_schema_look(eb_store *store, ebi_db *db, int64_t *version)
{
    uint32_t found;
    const char *wrong;
    int rc;
    eb_result result = ebi_schema_encoding(db);
    *version = 0;
    if (result == EB_OK) result = ebi_schema_find(store, db, &found, &wrong);
    if (result == EB_OK && found == 0) result = ebi_schema_registry(db);
    if (result != EB_OK || found == 0) return result;
    rc = (found & 1) && !(wrong && strcmp(wrong, "meta") == 0)
             ? ebi_schema_meta(store, db, "schema_version", version) : SQLITE_ERROR;
    if (rc == EBI_DAMAGED) rc = SQLITE_ERROR; /* not our meta */
    if (rc != SQLITE_OK && (rc & 0xFF) != SQLITE_ERROR) return ebi_db_error(db, rc, "reading");
    if (rc != SQLITE_OK || *version < 1)
        return ebi_error(EB_ERR_SCHEMA,
                         "%s: a table, index or view named like ours (%smeta, %sevents, ...) is "
                         "somebody else's",
                         store->place.path, store->place.prefix, store->place.prefix);
    if (*version > EBI_SCHEMA_LATEST)
        return ebi_error(EB_ERR_SCHEMA, "%s: schema version %lld, this eventbus.h knows %d",
                         store->place.path, (long long)*version, EBI_SCHEMA_LATEST);
    if (wrong)
        return ebi_error(EB_ERR_SCHEMA, "%s: %s%s is not what it was made as", store->place.path,
                         store->place.prefix, wrong);
    if ((found & ebi_schema_expected(*version)) != ebi_schema_expected(*version))
        return ebi_error(EB_ERR_SCHEMA, "%s: a table, index, view or trigger of ours is missing",
                         store->place.path);
    return EB_OK;
}

/* Runs SQL with @ for the prefix, in the open transaction; SQLite's result. */
EBI_FN int ebi_schema_exec(eb_store *store, ebi_db *db, const char *sql)
{
    char text[8000];
    EB_ASSERT(!sqlite3_get_autocommit(db->handle));
    ebi_sql_expand(sql, store->place.prefix, text, sizeof text);
    return ebi_db_exec(db, text);
}

/* First contact: the id key, the floor of sequence numbers, the registry of namespaces. */
EBI_FN int ebi_schema_seed(eb_store *store, ebi_db *db)
{
    char sql[400], when[EBI_TIME_LEN + 1];
    uint64_t key[2];
    int rc;
    sqlite3_randomness((int)sizeof key, key);
    ebi_time_text(ebi_clock_now_ms(store), when);
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
             store->place.prefix[0] ? (int)strlen(store->place.prefix) - 1 : 0, store->place.prefix,
             when);
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
        ebi_clock_sleep_ms(store, 5);
    }
    return ebi_error(EB_ERR_CORRUPT, "%s: %lld bytes are not whole pages: cut off?",
                     store->place.path, (long long)size);
}

/* A WAL that somebody left behind may be in the kernel's cache only: its fsync may have failed. It
** is copied into the database and synced before anything is built upon it. Busy: somebody else uses
** the file right now, and then it is theirs, and good. */
EBI_FN eb_result ebi_schema_old_wal(ebi_db *db)
{
    int rc;
    EB_ASSERT(sqlite3_get_autocommit(db->handle));
    if (ebi_db_wal_bytes(db) == 0) return EB_OK;
    sqlite3_busy_handler(db->handle, NULL, NULL);
    rc = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_handler(db->handle, ebi_db_busy, db);
    if (rc == SQLITE_OK || (rc & 0xFF) == SQLITE_BUSY) return EB_OK;
    return ebi_db_error(db, rc, "checkpoint of the WAL found at open");
}

/* The version, of one snapshot: another process may be creating the tables. */
EBI_FN eb_result ebi_schema_see(eb_store *store, ebi_db *db, int64_t *version)
{
    int code = ebi_db_exec(db, "BEGIN");
    eb_result rc;
    *version = 0;
    if (code != SQLITE_OK) return ebi_db_error(db, code, "reading");
    rc = ebi_schema_look(store, db, version);
    code = ebi_db_rollback(store, db);
    return rc == EB_OK && code != SQLITE_OK ? ebi_db_error(db, code, "reading") : rc;
}

/* Brings a file of an older version forward, unless somebody dispatches it: waits for them up to
** busy_timeout_ms, or until somebody else has done it. A process that opened the file before, with
** the older header, knows nothing of the new rules. So that it cannot begin to dispatch, its form
** of the side file is held until this store closes, where that is not the new form as well. */
EBI_FN eb_result ebi_schema_migrate(eb_store *store, ebi_db *db, int64_t version)
{
    int64_t until_us =
        ebi_clock_add(ebi_clock_mono_us(store), ebi_clock_us(store->busy_timeout_ms));
    eb_result rc, seen;
    EB_ASSERT(version > 0 && version < EBI_SCHEMA_LATEST);
    while ((rc = ebi_owner_lock(store, &store->old_owner, version == 1)) == EB_ERR_OWNED) {
        if (ebi_clock_mono_us(store) >= until_us)
            return ebi_error(EB_ERR_OWNED, "%s: schema version %lld is to be brought forward, but "
                             "another bus dispatches it", store->place.path, (long long)version);
        ebi_clock_sleep_ms(store, 5);
        seen = ebi_schema_see(store, db, &version);
        if (seen != EB_OK || version == EBI_SCHEMA_LATEST) return seen;
    }
    if (rc == EB_OK) rc = ebi_schema_write(store, db);
    if (rc != EB_OK || version != 1 || !store->place.ns[0]) ebi_db_close(&store->old_owner);
    return rc;
}

/* Looks, then switches to WAL, then creates or migrates; create = 0: the tables must be there, and
** whoever only reads writes nothing, so that it can read on a full disk. */
EBI_FN eb_result ebi_schema_open(eb_store *store, ebi_db *db, int create)
{
    int64_t version = 0, key[2] = {0, 0};
    int code, old = 0;
    eb_result rc = ebi_schema_see(store, db, &version);
    if (rc == EB_OK && !store->place.in_memory) rc = ebi_schema_whole(store, db);
    if (rc == EB_OK && version == 0 && !create)
        rc = ebi_error(EB_ERR_SCHEMA, "%s: there is no event bus in this file", store->place.path);
    if (rc == EB_OK) old = version > 0 && version < EBI_SCHEMA_LATEST;
    if (rc != EB_OK) /* leave a refused file exactly as it was */
        sqlite3_db_config(db->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == EB_OK && !store->place.frozen) rc = ebi_db_wal(store, db);
    if (rc == EB_OK) rc = ebi_db_level(db, store->durability);
    store->trust.old_wal = !store->place.in_memory && !store->place.frozen;
    if (rc == EB_OK && store->trust.old_wal && (create || old)) {
        rc = ebi_schema_old_wal(db);
        store->trust.old_wal = 0;
    }
    if (rc == EB_OK && old) rc = ebi_schema_migrate(store, db, version);
    else if (rc == EB_OK && version == 0) rc = ebi_schema_write(store, db);
    if (rc != EB_OK) return rc;
    code = ebi_schema_meta(store, db, "id_key_1", &key[0]);
    if (code == SQLITE_OK) code = ebi_schema_meta(store, db, "id_key_2", &key[1]);
    if (code != SQLITE_OK) return ebi_db_error(db, code, "reading");
    store->id_key[0] = (uint64_t)key[0];
    store->id_key[1] = (uint64_t)key[1];
    return EB_OK;
}

/* ===========================================================================
** >>store   Options, place, opening, closing                             [private]
** ========================================================================
** What is done once: options, the place of the file, opening and closing. Nobody else knows the
** store yet, or any more. */

EBI_FN int ebi_store_is_memory(const char *path) { return strcmp(path, ":memory:") == 0; }

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
        store->place.prefix[i] = c;
    }
    if (n >= 6 && memcmp(store->place.prefix, "sqlite", 6) == 0)
        return ebi_error(EB_ERR_ARG, "options.ns must not begin with sqlite");
    memcpy(store->place.ns, store->place.prefix, n);
    store->place.ns[n] = 0;
    if (n > 0) store->place.prefix[n++] = '_';
    store->place.prefix[n] = 0;
    return EB_OK;
}

/* Time limits: 0 = the default, EB_NONE = none. Any other negative number is a mistake. */
EBI_FN eb_result ebi_options_ms(const char *name, int64_t value, int64_t standard, int64_t none,
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
        rc = ebi_options_ms("options.busy_timeout_ms", o->busy_timeout_ms, 5000, 0,
                            &store->busy_timeout_ms);
    if (rc != EB_OK) return rc;
    if (o->vfs && !sqlite3_vfs_find(o->vfs))
        return ebi_error(EB_ERR_ARG, "options.vfs: SQLite knows no VFS named %s", o->vfs);
    sqlite3_randomness((int)sizeof bits, &bits);
    snprintf(generated, sizeof generated, "%08lx", (unsigned long)bits);
    store->place.path = ebi_strdup(&store->allocator, o->path, &ok);
    store->place.vfs = ebi_strdup(&store->allocator, o->vfs, &ok);
    store->who.node_id = ebi_strdup(&store->allocator, o->node_id ? o->node_id : generated, &ok);
    store->who.node_name = ebi_strdup(&store->allocator, o->node_name, &ok);
    store->who.node = store->who.node_name ? store->who.node_name : store->who.node_id;
    store->place.wal_pages = o->wal_pages ? o->wal_pages : EBI_WAL_PAGES;
    return ok ? EB_OK : ebi_error(EB_ERR_NOMEM, "out of memory");
}

/* SQLite initialises itself when first used, but reads its flag without a lock. */
EBI_FN eb_result ebi_store_sqlite(void)
{
    static ebi_mutex lock = EBI_MUTEX_INIT;
    int rc;
    if (sqlite3_libversion_number() < 3051003 || sqlite3_libversion_number() == 3052000)
        return ebi_error(EB_ERR_SCHEMA, "SQLite %s is linked: it can corrupt a WAL database; "
                         "compile the sqlite3.c that comes with eventbus.h into the program and "
                         "drop -lsqlite3", sqlite3_libversion());
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
    if (o->shared || o->lease_ms || o->retention_ms || o->max_bytes || o->node_description ||
        o->node_metadata || o->on_delivery.before || o->on_delivery.after || o->on_delivery.user)
        return ebi_error(EB_ERR_ARG, "shared, lease_ms, retention_ms, max_bytes, node_description, "
                         "node_metadata and on_delivery are for later versions: leave them zero");
    if (o->wal_pages < EB_NONE) return ebi_error(EB_ERR_ARG, "options.wal_pages is negative");
    if ((o->node_id && !ebi_text_name_len(o->node_id, EBI_KEY_MAX)) ||
        (o->node_name && strlen(o->node_name) > EBI_KEY_MAX))
        return ebi_error(EB_ERR_ARG, "node_id or node_name is not 1 to 255 bytes of text");
    return ebi_store_sqlite();
}

/* Prepares the place where SQLite will look for the file: URI names are read, and links followed,
** as SQLite does. */
EBI_FN eb_result ebi_store_place(eb_store *store, int create)
{
    char named[1024], full[1024];
    const char *path = store->place.path;
    sqlite3_vfs *vfs = sqlite3_vfs_find(store->place.vfs);
    sqlite3 *probe = NULL;
    int rc;
    if (store->place.in_memory || !ebi_db_native(store) || vfs->mxPathname >= (int)sizeof full)
        return EB_OK;
    if (strncmp(path, "file:", 5) == 0) { /* are URI names on? There is no other way to ask */
        rc = sqlite3_open_v2("file:?mode=memory", &probe, SQLITE_OPEN_READWRITE, NULL);
        sqlite3_close(probe);
        if (rc == SQLITE_OK && !ebi_uri_path(path, named, sizeof named)) return EB_OK;
        if (rc == SQLITE_OK) path = named;
        else if (rc != SQLITE_CANTOPEN) return ebi_error(EB_ERR_NOMEM, "out of memory");
    }
    rc = vfs->xFullPathname(vfs, path, vfs->mxPathname + 1, full);
    if ((rc & 0xFF) != SQLITE_OK) return EB_OK; /* opening it will say why */
    return ebi_db_prepare(store, full, create);
}

/* Remembers what the file is called. */
EBI_FN eb_result ebi_store_name(eb_store *store)
{
    int ok = 1;
    if (store->place.in_memory) return EB_OK;
    store->place.file =
        ebi_strdup(&store->allocator, sqlite3_db_filename(store->writer.handle, "main"), &ok);
    return ok ? EB_OK : ebi_error(EB_ERR_NOMEM, "out of memory");
}

/* For reading a file that cannot be written, SQLite would make files beside it that cannot be
** written either, and keep everybody out for good. If nobody has it open, it is read as it is on
** disk. */
EBI_FN eb_result ebi_store_freeze(eb_store *store)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(store->place.vfs);
    size_t n = strlen(store->place.file) + 5;
    char *wal = (char *)ebi_alloc(&store->allocator, n);
    int used = 1;
    EB_ASSERT(!store->place.in_memory && !store->place.frozen);
    if (!wal) return ebi_error(EB_ERR_NOMEM, "out of memory");
    snprintf(wal, n, "%s-wal", store->place.file);
    vfs->xAccess(vfs, wal, SQLITE_ACCESS_EXISTS, &used);
    ebi_free(&store->allocator, wal);
    if (used) return EB_OK;
    ebi_db_close(&store->writer);
    store->place.frozen = 1;
    return ebi_db_open(store, &store->writer, 0);
}

/* What the file is like now. */
EBI_FN eb_result ebi_store_known(eb_store *store)
{
    ebi_db *db = &store->writer;
    int64_t page = 0;
    int code = ebi_db_number(store, db, EBI_SQL_DATA_VERSION, &store->trust.data_version);
    if (code == SQLITE_OK) code = ebi_db_number(store, db, EBI_SQL_COOKIE, &store->trust.cookie);
    if (code == SQLITE_OK) code = ebi_db_number(store, db, EBI_SQL_PAGE_SIZE, &page);
    store->place.page_bytes = page >= 512 && page <= 65536 ? (int)page : 4096;
    return code == SQLITE_OK ? EB_OK : ebi_db_error(db, code, "reading");
}

/* Opens the file. On failure the store is still to be given to ebi_store_fini(). */
EBI_FN eb_result ebi_store_init(eb_store *store, const eb_options *o, int create)
{
    eb_result rc;
    EB_ASSERT(store->hooks && store->logger.func && !store->writer.handle);
    store->who.pid = ebi_platform_pid();
    store->clock = o->clock;
    if (!store->durability) store->durability = EB_DURABLE_FULL;
    if (ebi_mutex_init(&store->lock)) return ebi_error(EB_ERR_NOMEM, "cannot make a mutex");
    store->locks = 1;
    if (ebi_mutex_init(&store->read_lock)) return ebi_error(EB_ERR_NOMEM, "cannot make a mutex");
    store->locks = 2;
    rc = ebi_store_options(store, o);
    if (rc != EB_OK) return rc;
    store->place.in_memory = ebi_store_is_memory(store->place.path);
    rc = ebi_store_place(store, create);
    if (rc == EB_OK) rc = ebi_db_open(store, &store->writer, create ? SQLITE_OPEN_CREATE : 0);
    if (rc == EB_OK) rc = ebi_store_name(store);
    if (rc == EB_OK && sqlite3_db_readonly(store->writer.handle, "main") == 1)
        rc = create ? ebi_error(EB_ERR_IO, "%s cannot be written", store->place.path)
                    : ebi_store_freeze(store);
    if (rc == EB_OK) rc = ebi_schema_open(store, &store->writer, create);
    return rc == EB_OK ? ebi_store_known(store) : rc;
}

/* Closes everything, also after ebi_store_init() has failed half way. Nobody else knows it. */
EBI_FN void ebi_store_fini(eb_store *store)
{
    EB_ASSERT(!store->queue.leading && !store->queue.head && !store->held);
    ebi_db_close(&store->reader);
    ebi_db_close(&store->writer);
    ebi_db_close(&store->old_owner);
    ebi_free(&store->allocator, store->place.path);
    ebi_free(&store->allocator, store->place.vfs);
    ebi_free(&store->allocator, store->who.node_id);
    ebi_free(&store->allocator, store->who.node_name);
    ebi_free(&store->allocator, store->place.file);
    if (store->locks > 0) ebi_mutex_fini(&store->lock);
    if (store->locks > 1) ebi_mutex_fini(&store->read_lock);
}

/* The sequence number inside an id of this file; see ebi_id_seq(). No lock held. */
EBI_FN int64_t ebi_store_id_seq(eb_store *store, const char *id)
{
    uint64_t key[2];
    ebi_store_lock(store);
    memcpy(key, store->id_key, sizeof key);
    ebi_store_unlock(store);
    return ebi_id_seq(key, id);
}

/* EB_ERR_FORK in a forked child, before any lock is touched: another thread may have held it. */
EBI_FN eb_result ebi_store_check(const eb_store *store)
{
    if (!store) return ebi_error(EB_ERR_ARG, "the handle is NULL");
    if (store->who.pid != ebi_platform_pid())
        return ebi_error(EB_ERR_FORK, "opened in process %lld", (long long)store->who.pid);
    return EB_OK;
}

/* The level at which an operator's change is committed. */
EBI_FN int ebi_store_level(const eb_store *store)
{
    return store->durability == EB_DURABLE_OFF ? EB_DURABLE_OFF : EB_DURABLE_FULL;
}

/* ===========================================================================
** >>commits   One transaction, whoever is in it                   [private]
** ========================================================================
** What the leader does with the connection `writer`: begin, run the members, commit or roll back,
** and after a failed sync close and open it. The lead is held, the lock is not. */

EBI_FN void ebi_req_init(ebi_req *r, eb_result (*func)(eb_store *, void *),
                         void (*after)(eb_store *, void *, eb_result), void *arg, int level,
                         int64_t until_us)
{
    r->func = func;
    r->after = after;
    r->arg = arg;
    r->level = level;
    r->until_us = until_us;
    r->queue_us = 0;
    r->once = r->ran = 0;
    r->next = NULL;
    r->state = EBI_REQ_QUEUED;
    r->rc = EB_OK;
    r->waits = 0;
    r->error[0] = 0;
}

/* How a member of a transaction ended; if it failed, with the text for the thread that waits. */
EBI_FN void ebi_req_end(ebi_req *r, eb_result rc)
{
    EB_ASSERT(r->state != EBI_REQ_DONE || rc < 0);
    r->rc = rc;
    if (rc < 0) memcpy(r->error, ebi_error_text, sizeof r->error);
}

/* Whether a COMMIT that failed with this code surely left nothing in the file. An I/O error leaves
** that open: the commit record may be there already, and a crash would bring it back. A full disk
** is clear: a record that is not whole has a wrong checksum. But where a sector is not safe from
** its neighbours, SQLite writes more after the record, and the room may have ended there. */
EBI_FN int ebi_commit_not_written(eb_store *store, int code)
{
    sqlite3_file *file = NULL;
    EBI_LEADS(store);
    EB_ASSERT(code != SQLITE_OK);
    if ((code & 0xFF) == SQLITE_IOERR) return 0;
    if ((code & 0xFF) != SQLITE_FULL) return 1;
    sqlite3_file_control(store->writer.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    return store->place.in_memory || (file && file->pMethods &&
                                (file->pMethods->xDeviceCharacteristics(file) &
                                 SQLITE_IOCAP_POWERSAFE_OVERWRITE) != 0);
}

/* This connection is not to be trusted any more: it is closed and opened before the next commit. By
** the leader. */
EBI_FN void ebi_commit_distrust(eb_store *store)
{
    EBI_LEADS(store);
    store->trust.must_reopen = 1;
}

/* Whether the file has lost its name; one system call. By the leader. */
EBI_FN int ebi_commit_moved(eb_store *store)
{
    EBI_LEADS(store);
    store->trust.moved = ebi_db_moved(&store->writer);
    return store->trust.moved;
}

/* Result of a statement on the writer. */
EBI_FN eb_result ebi_commit_error(eb_store *store, int rc, const char *what)
{
    eb_result result = ebi_db_error(&store->writer, rc, what);
    EBI_LEADS(store);
    if ((rc & 0xFF) == SQLITE_IOERR || ((rc & 0xFF) == SQLITE_CORRUPT && rc != EBI_DAMAGED))
        store->trust.must_reopen = 1;
    return result;
}

/* Runs a statement on the writer whose one parameter is a number; the result is SQLite's. */
EBI_FN int ebi_commit_step(eb_store *store, int index, int64_t seq)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, index);
    EBI_LEADS(store);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    return ebi_db_step(s);
}

/* After a failed fsync the kernel may have dropped the pages and call the next fsync a success. So:
** close, open anew, and let a TRUNCATE checkpoint (which reads the WAL back and syncs the database)
** succeed before anything is called durable again. */
EBI_FN eb_result ebi_commit_renew(eb_store *store)
{
    eb_result rc = EB_OK;
    int code;
    EBI_LEADS(store);
    EB_ASSERT(store->trust.must_reopen || store->trust.must_checkpoint);
    if (store->place.in_memory) {
        ebi_db_rollback(store, &store->writer);
        store->trust.must_reopen = 0;
    }
    if (store->trust.must_reopen) {
        store->trust.must_checkpoint = 1;
        ebi_db_close(&store->writer);
        rc = ebi_db_open(store, &store->writer, 0);
        if (rc == EB_OK) rc = ebi_db_wal(store, &store->writer);
        if (rc != EB_OK) {
            ebi_db_close(&store->writer);
            return rc;
        }
        store->trust.must_reopen = 0;
    }
    if (!store->trust.must_checkpoint) return EB_OK;
    rc = ebi_db_level(&store->writer, store->durability);
    if (rc != EB_OK) return rc;
    code = sqlite3_wal_checkpoint_v2(store->writer.handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                     NULL);
    if (code != SQLITE_OK) {
        ebi_db_error(&store->writer, code, "checkpoint after a failed sync");
        return (code & 0xFF) == SQLITE_BUSY ? EB_ERR_BUSY : EB_ERR_IO;
    }
    store->trust.must_checkpoint = 0;
    return EB_OK;
}

/* The same if there is need; then the engine compares its memory with what is in the file
** (hooks->renewed: ebi_fence_resync). */
EBI_FN eb_result ebi_commit_ready(eb_store *store)
{
    eb_result rc = EB_OK;
    EBI_LEADS(store);
    if (store->closed) return ebi_error(EB_ERR_SHUTDOWN, "the bus is closed");
    if (store->trust.must_reopen || store->trust.must_checkpoint) {
        store->trust.must_resync = 1;
        rc = ebi_commit_renew(store);
    }
    if (rc == EB_OK && store->trust.must_resync) {
        rc = store->hooks->renewed(store);
        if (rc == EB_OK) store->trust.must_resync = 0;
    }
    return rc;
}

/* Why no transaction could begin: the wording has to help who looks for the culprit. */
EBI_FN eb_result ebi_commit_begin_failed(eb_store *store, int code)
{
    EBI_LEADS(store);
    EB_ASSERT(code != SQLITE_OK);
    if ((code & 0xFF) != SQLITE_BUSY) return ebi_commit_error(store, code, "BEGIN");
    return ebi_error(EB_ERR_BUSY, "%s is locked: by another process, or by an open transaction of "
                     "your own on another connection", store->place.path);
}

/* One transaction for the members of list (linked by next) and, if `outcomes`, what the engine has
** to record. Fills in each member's rc; returns the transaction's own. */
EBI_FN eb_result ebi_commit_transaction(eb_store *store, ebi_req *list, int level, int outcomes)
{
    ebi_req *r;
    int code;
    eb_result rc = EB_OK;
    EBI_LEADS(store);
    EB_ASSERT(level >= EB_DURABLE_FULL && level <= EB_DURABLE_OFF);
    rc = ebi_commit_ready(store);
    if (rc == EB_OK && store->trust.old_wal) rc = ebi_schema_old_wal(&store->writer);
    if (rc == EB_OK) store->trust.old_wal = 0;
    if (rc == EB_OK) rc = ebi_db_level(&store->writer, level);
    if (rc != EB_OK) return rc;
    code = ebi_db_run(store, &store->writer, EBI_SQL_BEGIN);
    if (code != SQLITE_OK) return ebi_commit_begin_failed(store, code);
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle) && !store->trust.must_resync);
    if (outcomes) rc = store->hooks->ride(store); /* first: who ended holds nobody up */
    for (r = list; r && rc == EB_OK; r = r->next) {
        EB_ASSERT(!r->once || !r->ran);
        EB_ASSERT(r->func && r->state != EBI_REQ_DONE);
        r->ran = 1;
        ebi_req_end(r, r->func(store, r->arg));
        /* A refusal before the first write (a full queue, not found) concerns its member only; a
        ** failure of SQLite ended the transaction or leaves half of a member in it. */
        if (r->rc == EB_ERR_BUSY || r->rc == EB_ERR_IO || r->rc == EB_ERR_CORRUPT ||
            r->rc == EB_ERR_NOMEM || r->rc == EB_ERR_TOO_BIG || r->rc == EB_ERR_SCHEMA ||
            (r->rc == EB_ERR_FULL && sqlite3_errcode(store->writer.handle) == SQLITE_FULL) ||
            (r->rc < 0 && sqlite3_get_autocommit(store->writer.handle)))
            rc = r->rc;
    }
    if (rc == EB_OK) {
        code = ebi_db_run(store, &store->writer, EBI_SQL_COMMIT);
        if (code != SQLITE_OK) {
            rc = ebi_commit_error(store, code, "COMMIT");
            if (!ebi_commit_not_written(store, code)) rc = EB_ERR_UNKNOWN;
        }
    }
    if (rc != EB_OK) ebi_db_rollback(store, &store->writer);
    store->hooks->over(store, rc);
    if (!sqlite3_get_autocommit(store->writer.handle))
        store->trust.must_reopen = 1; /* closing does it */
    return rc;
}

/* Gives every member its own transaction, and what rides along: only the guilty fail. *commits: so
** many went through. Returns what became of that which rides along. */
EBI_FN eb_result ebi_commit_one_by_one(eb_store *store, ebi_req *list, int *commits)
{
    ebi_req *r, *rest;
    eb_result rc;
    EBI_LEADS(store);
    EB_ASSERT(list);
    for (r = list; r; r = rest) {
        rest = r->next;
        if (r->once && r->ran) {
            if (r->rc >= 0) r->rc = EB_EMPTY;
            continue;
        }
        r->next = NULL;
        rc = ebi_commit_transaction(store, r, r->level, 0);
        if (rc != EB_OK) ebi_req_end(r, rc);
        *commits += rc == EB_OK;
        r->next = rest;
    }
    rc = ebi_commit_transaction(store, NULL, EB_DURABLE_NORMAL, 1);
    *commits += rc == EB_OK;
    return rc;
}

/* ===========================================================================
** >>wal   The write-ahead log stays short                         [private]
** ========================================================================
** After each commit the leader looks how long the WAL has become. */

/* A checkpoint has come so far that the next is due so many pages behind. By the leader. */
EBI_FN void ebi_wal_copied_to(eb_store *store, int frames)
{
    EBI_LEADS(store);
    if (frames > 0) store->wal.done = frames;
}

/* What a checkpoint came to: a WAL of which less than half could be copied is held by a reader, and
** not only by what was written meanwhile. No lock held. */
EBI_FN void ebi_wal_copied(eb_store *store, int rc, int frames, int copied)
{
    ebi_store_lock(store);
    if (rc == SQLITE_OK && frames >= 0) store->wal.held = copied < frames / 2;
    ebi_store_unlock(store);
}

/* Checkpoints. Every wal_pages pages the WAL is copied into the database, by the keeper on a
** connection of its own, so that nobody waits. That alone need not be enough: SQLite begins the WAL
** anew only if a writer finds all of it copied, and under load it never does. So when the WAL is
** four times as long, the leader itself copies the little that is left. Without a keeper it is
** always the leader. If the keeper is at it, that fails; `wait`: it is waited for. Whoever appends
** faster than the keeper copies would else find it busy each time, and the WAL would have no end.
** After the commit is acknowledged; the lead is kept, the lock is not. */
EBI_FN void ebi_wal_checkpoint(eb_store *store, int wait)
{
    sqlite3 *handle = store->writer.handle;
    int64_t until_us = ebi_clock_mono_us(store) + (wait ? EBI_COPY_WAIT_US : 0);
    int rc, frames = 0, copied = 0;
    EBI_LEADS(store);
    for (;;) {
        rc = sqlite3_wal_checkpoint_v2(handle, NULL, SQLITE_CHECKPOINT_PASSIVE, &frames, &copied);
        if ((rc & 0xFF) != SQLITE_BUSY || store->clock.sleep_ms) break;
        if (ebi_clock_mono_us(store) >= until_us) break;
        ebi_platform_pause_us(200);
    }
    if ((rc & 0xFF) == SQLITE_IOERR)
        store->trust.must_reopen = 1; /* what it read may not be on disk */
    ebi_wal_copied(store, rc, frames, copied);
}

/* Says once that the WAL grows because somebody reads an old state of it, and when that is over.
** Lock held. */
EBI_FN void ebi_wal_say(eb_store *store, int64_t bytes)
{
    EBI_HELD(store);
    if (!store->wal.said && store->wal.held && bytes > EBI_WAL_MOST) {
        store->wal.said = 1;
        ebi_log_later(store, EB_LOG_WARN, "the WAL grows: a reader holds an old state of the file",
                      "%s-wal: %lld bytes; a transaction that was begun and not ended?",
                      store->place.path, (long long)bytes);
    } else if (store->wal.said && bytes < EBI_WAL_MOST / 2) {
        store->wal.said = 0;
        ebi_log_later(store, EB_LOG_INFO, "the WAL is short again", "%s-wal: %lld bytes used",
                      store->place.path, (long long)bytes);
    }
}

/* A WAL that grows makes each sync write the file's length too, which costs 40 % of the commits. So
** the leader of a started FULL bus makes it long in one go: zeros behind its last frame, under the
** write lock, so that nobody appends meanwhile; a frame of zeros has no valid salt and ends every
** recovery. A failure is no matter. By the leader, no lock held. */
EBI_FN void ebi_wal_fill(eb_store *store)
{
    enum { CHUNK = 1 << 16 };
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0, end = (sqlite3_int64)EBI_WAL_FILL * (store->place.page_bytes + 24);
    char *zeros;
    EBI_LEADS(store);
    EB_ASSERT(!store->wal.filled && !store->place.in_memory);
    store->wal.filled = 1;
    EB_ASSERT(sqlite3_get_autocommit(store->writer.handle));
    if (ebi_db_run(store, &store->writer, EBI_SQL_BEGIN) != SQLITE_OK) return;
    zeros = (char *)ebi_alloc(&store->allocator, CHUNK);
    sqlite3_file_control(store->writer.handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file);
    if (zeros && file && file->pMethods && file->pMethods->xFileSize(file, &size) == SQLITE_OK) {
        memset(zeros, 0, CHUNK);
        for (; size < end; size += CHUNK)
            if (file->pMethods->xWrite(file, zeros, CHUNK, size) != SQLITE_OK) break;
    }
    ebi_free(&store->allocator, zeros);
    ebi_db_rollback(store, &store->writer);
}

/* If that is due, has the keeper do it, every so many pages, or does it: if the WAL is four times
** as long, and at eight times by all means; with EB_NONE a quarter longer than it may be. Lock held
** on entry and exit; by the leader. */
EBI_FN void ebi_wal_look(eb_store *store)
{
    int most = EBI_WAL_MOST / store->place.page_bytes, pages = store->place.wal_pages;
    int again, force, wait;
    EBI_HELD(store);
    EBI_LEADS(store);
    if (store->wal.frames < store->wal.done) store->wal.done = 0; /* it began anew */
    ebi_wal_say(store, (int64_t)store->wal.frames * store->place.page_bytes);
    if (!store->wal.filled && store->wal.frames >= EBI_WAL_SMALL &&
        store->writer.level == EB_DURABLE_FULL && store->hooks->started(store)) {
        ebi_store_unlock(store);
        ebi_wal_fill(store);
        ebi_store_lock(store);
    }
    if (pages == EB_NONE || pages > most) pages = most;
    if (store->wal.said && pages > EBI_WAL_PAGES) pages = EBI_WAL_PAGES; /* is the reader gone? */
    force = pages < most / 4 ? 4 * pages : most + most / 4;
    again = force == 4 * pages || store->wal.frames < most ? pages : most / 4;
    if (store->wal.frames - store->wal.done < again) return;
    store->wal.done = store->wal.frames;
    if (store->wal.frames < force && store->hooks->copies(store)) return; /* the keeper does it */
    wait = store->wal.frames >= (force == 4 * pages ? 2 * force : force);
    ebi_store_unlock(store);
    ebi_wal_checkpoint(store, wait);
    ebi_store_lock(store);
}

/* ===========================================================================
** >>writer   One connection, many callers, one commit             [private]
** ========================================================================
** All writes of a process go through one connection. Whoever needs a commit joins a queue; the
** first becomes the leader and commits everything that is queued as one transaction: publishes,
** claims and acks alike. The others wait for that commit only. A lone publisher leads itself and
** pays no hand-over; many share one fsync.
**
** A member that fails makes the whole transaction roll back; the leader then gives each member a
** transaction of its own, so that only the guilty one fails. Members are therefore written so that
** they can run twice: memory changes in `after`, which runs once, under the lock, after the commit
** and before the next leader. (What little of it changes before errs on the safe side: claims that
** are reserved, types that were passed over, a file that is to be read anew.) PRAGMA synchronous is
** set before BEGIN to what the most demanding member asks. The lock is never held while SQLite
** works. A member that cannot run twice (a claim, which takes what memory holds) says so, and
** begins anew if it was another's failure. */

/* A store without a bus: nothing rides along, nobody is told. */
EBI_FN int ebi_hooks_no(eb_store *store)
{
    (void)store;
    return 0;
}
EBI_FN eb_result ebi_hooks_ok(eb_store *store)
{
    (void)store;
    return EB_OK;
}
EBI_FN void ebi_hooks_none(eb_store *store) { (void)store; }
EBI_FN void ebi_hooks_end(eb_store *store, eb_result rc)
{
    (void)store;
    (void)rc;
}
EBI_FN ebi_cond *ebi_hooks_nobody(eb_store *store)
{
    (void)store;
    return NULL;
}
static const ebi_hooks ebi_hooks_alone = {
    ebi_hooks_no, ebi_hooks_ok, ebi_hooks_end, ebi_hooks_end,
    ebi_hooks_ok, ebi_hooks_no, ebi_hooks_no, ebi_hooks_nobody, ebi_hooks_none,
    ebi_hooks_none};

/* Takes what is queued into list, behind own. Lock held. */
EBI_FN void ebi_writer_gather(eb_store *store, ebi_req *own, int *level, int64_t *until_us)
{
    ebi_req *r, *last = own;
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(own->func && !own->next && own->state == EBI_REQ_LEAD);
    *level = own->level;
    *until_us = own->until_us;
    while ((r = store->queue.head) != NULL && r->func && !r->queue_us) {
        store->queue.head = r->next;
        if (!r->next) store->queue.tail = NULL;
        r->next = NULL;
        last->next = r;
        last = r;
        if (r->level < *level) *level = r->level; /* FULL is the smallest number */
        if (r->until_us < *until_us) *until_us = r->until_us;
    }
}

/* The lock was somebody else's until the first of list had waited long enough. Those that may wait
** longer go back to the head of the queue, own goes on leading; returns the others. Lock held. */
EBI_FN ebi_req *ebi_writer_requeue(eb_store *store, ebi_req *own)
{
    ebi_req *r, *rest, *back = NULL, **back_at = &back, *ended = NULL, **ended_at = &ended;
    int64_t now_us = ebi_clock_mono_us(store);
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT((store->queue.head == NULL) == (store->queue.tail == NULL));
    for (r = own; r; r = rest) {
        rest = r->next;
        r->next = NULL;
        if (r->until_us <= now_us) {
            *ended_at = r;
            ended_at = &r->next;
        } else if (r->once && r->ran) {
            *ended_at = r;
            ended_at = &r->next;
        } else if (r != own) {
            *back_at = r;
            back_at = &r->next;
        }
    }
    if (back && !store->queue.head) /* nobody came meanwhile: the last of back is the tail */
        for (r = back; r; r = r->next) store->queue.tail = r;
    *back_at = store->queue.head;
    store->queue.head = back ? back : store->queue.head;
    return ended;
}

/* Leads: commits own and everything that waits. Lock held on entry and exit, not in between. */
EBI_FN void ebi_writer_lead(eb_store *store, ebi_req *own)
{
    ebi_req *r, *list = own, *rest;
    int level, off = store->durability == EB_DURABLE_OFF, shared, commits;
    eb_result rc, outcome;
    char text[sizeof ebi_error_text]; /* this thread's last error is not what befalls others */
    char trouble[sizeof store->notes.trouble];
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(own->state == EBI_REQ_LEAD);
    if (store->queue.crowd > 0) { /* others publish too: let them get ready */
        store->queue.crowd--;
        ebi_store_unlock(store);
        ebi_thread_yield(); /* else whoever has the processor commits alone, again and again */
        ebi_store_lock(store);
    }
    if (store->queue.head) store->queue.crowd = EBI_CROWD;
    ebi_writer_gather(store, own, &level, &store->writer.busy_until_us);
    shared = store->hooks->take(store) || own->next;
    ebi_store_unlock(store);
    memcpy(text, ebi_error_text, sizeof text);
    rc = ebi_commit_transaction(store, list, off ? EB_DURABLE_OFF : level, 1);
    outcome = rc;
    commits = rc == EB_OK;
    if (rc == EB_ERR_BUSY || rc == EB_ERR_UNKNOWN || (rc != EB_OK && !shared)) {
        for (r = list; r; r = r->next) ebi_req_end(r, rc);
    } else if (rc != EB_OK) {
        outcome = ebi_commit_one_by_one(store, list, &commits);
    }
    snprintf(trouble, sizeof trouble, "%.190s", ebi_error_text);
    memcpy(ebi_error_text, text, sizeof text);
    EBI_YIELD();
    ebi_store_lock(store);
    store->queue.commits += commits;
    if (outcome != EB_OK) memcpy(store->notes.trouble, trouble, sizeof trouble);
    if (rc == EB_ERR_BUSY) list = ebi_writer_requeue(store, own);
    else store->foreign.since_us = 0;
    if (rc == EB_ERR_BUSY && own->state == EBI_REQ_LEAD && list != own) {
        ebi_store_unlock(store); /* SQLite may refuse without having waited */
        ebi_clock_sleep_ms(store, 1);
        ebi_store_lock(store);
    }
    if (store->foreign.said && !store->foreign.since_us) {
        store->foreign.said = 0;
        ebi_log_later(store, EB_LOG_INFO, "the database is no longer locked", "%s",
                      store->place.path);
    }
    for (r = list; r; r = rest) { /* a member may be gone once the lock is */
        rest = r->next;
        EB_ASSERT(r->state != EBI_REQ_DONE);
        if (r->after) r->after(store, r->arg, r->rc);
        r->state = EBI_REQ_DONE;
        if (r != own) ebi_cond_signal(&r->cond);
    }
    store->hooks->rode(store, outcome);
    if (commits) ebi_wal_look(store);
}

/* Passes the lead on to the next in the queue, or to nobody. Lock held. */
EBI_FN void ebi_writer_hand_over(eb_store *store)
{
    ebi_req *r = store->queue.head;
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT((store->queue.head == NULL) == (store->queue.tail == NULL));
    if (!r) {
        store->queue.leading = 0;
        return;
    }
    store->queue.head = r->next;
    EB_ASSERT(r->state == EBI_REQ_QUEUED && r->waits);
    if (!r->next) store->queue.tail = NULL;
    r->next = NULL;
    r->state = EBI_REQ_LEAD;
    ebi_cond_signal(&r->cond);
}

/* Takes r, which is in the queue, out of it. Lock held. */
EBI_FN void ebi_writer_unqueue(eb_store *store, ebi_req *r)
{
    ebi_req **at = &store->queue.head, *previous = NULL;
    EBI_HELD(store);
    EB_ASSERT(r->state == EBI_REQ_QUEUED && store->queue.head);
    while (*at != r) {
        previous = *at;
        at = &previous->next;
    }
    *at = r->next;
    if (store->queue.tail == r) store->queue.tail = previous;
    r->next = NULL;
}

/* Queues r and waits until it leads or is done. Lock held. */
EBI_FN void ebi_writer_join(eb_store *store, ebi_req *r)
{
    int64_t left_us = -1;
    EBI_HELD(store);
    EB_ASSERT(r->state == EBI_REQ_QUEUED && !r->next);
    if (!store->queue.leading) {
        store->queue.leading = 1;
        store->queue.leader = ebi_thread_self();
        r->state = EBI_REQ_LEAD;
        return;
    }
    if (store->queue.tail) store->queue.tail->next = r;
    else store->queue.head = r;
    store->queue.tail = r;
    r->waits = 1;
    ebi_cond_init(&r->cond);
    while (r->state == EBI_REQ_QUEUED) {
        if (r->queue_us) left_us = r->queue_us - ebi_clock_mono_us(store);
        if (r->queue_us && left_us <= 0) {
            ebi_writer_unqueue(store, r);
            r->state = EBI_REQ_DONE;
            ebi_req_end(r,
                        ebi_error(EB_ERR_BUSY, "%s is locked by somebody else", store->place.path));
            return;
        }
        ebi_store_wait(store, &r->cond, left_us);
    }
    if (r->state == EBI_REQ_LEAD) store->queue.leader = ebi_thread_self();
}

/* Runs r->func inside a committed transaction, possibly with others'. EB_ERR_BUSY if somebody else
** has the lock until r->until_us. Blocks; no lock held. */
EBI_FN eb_result ebi_writer_commit(eb_store *store, ebi_req *r)
{
    ebi_cond *wake = NULL;
    int notes;
    EB_ASSERT(r->func && r->state == EBI_REQ_QUEUED);
    ebi_store_lock(store);
    ebi_writer_join(store, r);
    if (r->state == EBI_REQ_LEAD) {
        while (r->state == EBI_REQ_LEAD) ebi_writer_lead(store, r);
        ebi_writer_hand_over(store);
        wake = store->hooks->wake(store);
    }
    notes = store->notes.count;
    EB_ASSERT(r->state == EBI_REQ_DONE);
    ebi_store_unlock(store);
    if (wake) ebi_cond_signal(wake); /* only now: a worker that wakes up finds the lock free */
    if (r->waits) ebi_cond_fini(&r->cond);
    if (notes) ebi_log_flush(store);
    if (r->rc < 0) memcpy(ebi_error_text, r->error, sizeof r->error);
    return r->rc;
}

/* The monotonic time at which busy_timeout_ms from now are over. */
EBI_FN int64_t ebi_writer_until(const eb_store *store)
{
    return ebi_clock_add(ebi_clock_mono_us(store), ebi_clock_us(store->busy_timeout_ms));
}

/* Runs func in a commit of its own or of many, and waits for it; no lock held. */
EBI_FN eb_result ebi_writer_run(eb_store *store, eb_result (*func)(eb_store *, void *),
                                void (*after)(eb_store *, void *, eb_result), void *arg, int level)
{
    ebi_req r;
    ebi_req_init(&r, func, after, arg, level, ebi_writer_until(store));
    return ebi_writer_commit(store, &r);
}

/* Exclusive use of the writer connection without a transaction; no lock held in between. 0: it was
** not to be had until queue_us (0: no limit). */
EBI_FN int ebi_writer_enter_until(eb_store *store, int64_t queue_us)
{
    ebi_req r;
    int entered;
    ebi_req_init(&r, NULL, NULL, NULL, EB_DURABLE_NORMAL, 0);
    r.queue_us = queue_us;
    ebi_store_lock(store);
    ebi_writer_join(store, &r);
    entered = r.state == EBI_REQ_LEAD;
    EB_ASSERT(entered || queue_us);
    if (entered) store->writer.busy_until_us = 0;
    ebi_store_unlock(store);
    if (r.waits) ebi_cond_fini(&r.cond);
    return entered;
}

/* The same without a limit; always to be followed by ebi_writer_leave(). */
EBI_FN void ebi_writer_enter(eb_store *store) { ebi_writer_enter_until(store, 0); }
EBI_FN void ebi_writer_leave(eb_store *store)
{
    ebi_store_lock(store);
    ebi_writer_hand_over(store);
    ebi_store_unlock(store);
}

/* Closes both connections for good, though a handler that was left behind may still call: it gets
** EB_ERR_SHUTDOWN. read_lock comes before the lead, as in ebi_depths_begin(). No lock held. */
EBI_FN void ebi_store_shut(eb_store *store)
{
    ebi_mutex_lock(&store->read_lock);
    ebi_writer_enter(store);
    store->closed = 1;
    ebi_db_close(&store->reader);
    ebi_db_close(&store->writer);
    ebi_writer_leave(store);
    ebi_mutex_unlock(&store->read_lock);
}

/* eb_checkpoint: as much as can be copied now. No lock held. */
EBI_FN eb_result ebi_store_checkpoint(eb_store *store)
{
    eb_result rc;
    int code, left = 0, copied = 0;
    if (store->place.in_memory) return EB_OK;
    ebi_writer_enter(store);
    rc = ebi_commit_ready(store);
    if (rc == EB_OK) rc = ebi_db_level(&store->writer, store->durability);
    if (rc == EB_OK) {
        code = sqlite3_wal_checkpoint_v2(store->writer.handle, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                         &left, &copied);
        if (code != SQLITE_OK) rc = ebi_commit_error(store, code, "checkpoint");
        else if (copied < left) rc = ebi_error(EB_ERR_BUSY, "a reader holds part of the WAL");
        ebi_wal_copied_to(store, copied);
    }
    ebi_writer_leave(store);
    return rc;
}

/* ===========================================================================
** >>readers   Looking without being in the way                    [private]
** ========================================================================
** A bus has a second connection to read with, under read_lock; an inspector has only one. */

/* A connection to read with: the bus's second one, or the only one. *db is NULL if it cannot be
** opened. Always to be followed by ebi_reader_leave(). */
EBI_FN eb_result ebi_reader_enter(eb_store *store, ebi_db **db)
{
    eb_result rc = EB_OK;
    if (!store->bus || store->place.in_memory) {
        ebi_writer_enter(store);
        *db = &store->writer;
        EBI_LEADS(store);
        if (store->closed) return ebi_error(EB_ERR_SHUTDOWN, "the bus is closed");
        return store->trust.must_reopen ? ebi_commit_ready(store) : EB_OK;
    }
    ebi_mutex_lock(&store->read_lock);
    *db = &store->reader;
    if (store->closed) rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is closed");
    else if (!store->reader.handle) rc = ebi_db_open(store, &store->reader, 0);
    return rc;
}

/* After ebi_reader_enter(), whatever that returned. */
EBI_FN void ebi_reader_leave(eb_store *store, ebi_db *db)
{
    EB_ASSERT(db == &store->writer || db == &store->reader);
    if (db == &store->writer) ebi_writer_leave(store);
    else ebi_mutex_unlock(&store->read_lock);
}

/* ebi_reader_enter() with a read transaction, so that everything read is of one moment. */
EBI_FN eb_result ebi_snapshot_enter(eb_store *store, ebi_db **db)
{
    eb_result rc = ebi_reader_enter(store, db);
    int code = rc == EB_OK ? ebi_db_run(store, *db, EBI_SQL_READ) : SQLITE_OK;
    return code == SQLITE_OK ? rc : ebi_db_error(*db, code, "reading");
}

/* After ebi_snapshot_enter(), whatever that returned. */
EBI_FN void ebi_snapshot_leave(eb_store *store, ebi_db *db)
{
    ebi_db_rollback(store, db);
    if (db->handle && !sqlite3_get_autocommit(db->handle)) { /* no memory for it: closing ends it */
        if (db == &store->writer) ebi_commit_distrust(store);
        else ebi_db_close(db);
    }
    ebi_reader_leave(store, db);
}

/* A status as the tables and the view have it. */
EBI_FN eb_status ebi_status_of(const char *text)
{
    if (!text || text[0] == 'p') return text && text[1] == 'r' ? EB_PROCESSING : EB_PENDING;
    return text[1] == 'l' ? EB_DLQ : EB_DONE;
}

/* How an event stands: everybody who asks the file asks this. */
enum { EBI_STAND_UNKNOWN, EBI_STAND_LIVE, EBI_STAND_DEAD, EBI_STAND_DONE };
typedef struct ebi_stand {
    int state, pending; /* pending: its status, if it is live */
} ebi_stand;

/* SQLite's result; an id that is another event's is unknown. */
EBI_FN int ebi_stand_look(eb_store *store, ebi_db *db, int64_t seq, const char *id, ebi_stand *out)
{
    sqlite3_stmt *s = ebi_db_stmt(store, db, EBI_SQL_STATE);
    const char *stored;
    int rc;
    EB_ASSERT(seq > 0 && id);
    memset(out, 0, sizeof *out);
    if (!s) return ebi_db_code(db);
    sqlite3_bind_int64(s, 1, seq);
    rc = sqlite3_step(s);
    stored = rc == SQLITE_ROW ? ebi_column(s, 0) : NULL;
    if (stored && strcmp(stored, id) == 0) {
        out->pending = ebi_status_of(ebi_column(s, 1)) == EB_PENDING;
        out->state = sqlite3_column_type(s, 1) != SQLITE_NULL ? EBI_STAND_LIVE
                     : sqlite3_column_int(s, 2)               ? EBI_STAND_DEAD
                                                              : EBI_STAND_DONE;
    }
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ===========================================================================
** >>entries   Events in memory, lists of them, sets of types      [private]
** ========================================================================
** An event in memory is a copy of what was read, in one allocation, and stands in at most one list.
** Lists belong to whoever has them; no lock of their own. */

enum { EBI_OUT_NONE, EBI_OUT_DONE, EBI_OUT_RETRY, EBI_OUT_DEAD, EBI_OUT_SNOOZE, EBI_OUT_RELEASE };
#define EBI_NOT_DUE INT64_C(-1) /* due_ms of a row that waits for no time */

/* One event in memory: in ready, in claimed, behind another of its key, being run, an outcome. */
typedef struct ebi_entry {
    struct ebi_entry *next;
    struct ebi_lane *lane;
    int refs; /* 1, or 2 while a handler that timed out still reads it */
    size_t bytes;
    int64_t seq, token, born, created_at_ms;
    int failed, snoozes, suspect; /* as read from the row: see EBI_SQL_FENCE */
    int waits;                    /* status processing though nobody works on it */
    int retried;                  /* from the dead-letter queue, or snoozed */
    int counted;                  /* the claim spent an attempt (failed + 1) */
    int64_t epoch;                /* of its claim */
    int revoked;                  /* given up by an operator: no further handler begins with it */
    eb_id id;
    const char *type, *payload, *metadata, *ordering_key, *idempotency_key, *producer, *errors;
    size_t payload_len;
    struct ebi_entry *key_next, *behind; /* of the head of a key: see >>keys */
    /* the outcome */
    int outcome, stale; /* stale: the claim was no longer ours, nothing was recorded */
    int look;           /* the others of its key are to be looked at */
    int alone;          /* it comes back, but others of its key need not wait for it */
    int64_t due_ms;     /* when it comes back */
    char *error_json;   /* owned, NULL: ebi_no_memory_error */
} ebi_entry;

typedef struct ebi_list {
    ebi_entry *head, *last;
    int count;
    size_t bytes;
} ebi_list;

/* Types that something is to be known of, a bounded number. */
enum { EBI_TYPES = 64 };
typedef struct ebi_types {
    char *at[EBI_TYPES];
    int count, overflow; /* overflow: and others */
} ebi_types;

/* What a copy of this message takes in memory. */
EBI_FN size_t ebi_entry_size(const eb_message *m, size_t payload_len, const char *producer,
                             const char *errors)
{
    return sizeof(ebi_entry) + ebi_text_size(m->type) + payload_len + ebi_text_size(m->metadata) +
           ebi_text_size(m->ordering_key) + ebi_text_size(m->idempotency_key) +
           ebi_text_size(producer) + ebi_text_size(errors) + 8;
}

/* One allocation for the event and all its text. NULL: out of memory. */
EBI_FN ebi_entry *ebi_entry_new(eb_store *store, const eb_message *m, size_t payload_len,
                                const char *producer, const char *errors)
{
    size_t size = ebi_entry_size(m, payload_len, producer, errors);
    ebi_entry *e = (ebi_entry *)ebi_alloc(&store->allocator, size);
    char *at;
    if (!e) return NULL;
    EB_ASSERT(m->type && payload_len <= size);
    memset(e, 0, sizeof *e);
    e->refs = 1;
    e->bytes = size;
    at = (char *)(e + 1);
    ebi_text_copy(&at, &e->type, m->type, ebi_text_size(m->type));
    ebi_text_copy(&at, &e->payload, m->payload, payload_len);
    e->payload_len = payload_len;
    ebi_text_copy(&at, &e->metadata, m->metadata, ebi_text_size(m->metadata));
    ebi_text_copy(&at, &e->ordering_key, m->ordering_key, ebi_text_size(m->ordering_key));
    ebi_text_copy(&at, &e->idempotency_key, m->idempotency_key, ebi_text_size(m->idempotency_key));
    ebi_text_copy(&at, &e->producer, producer, ebi_text_size(producer));
    ebi_text_copy(&at, &e->errors, errors, ebi_text_size(errors));
    EB_ASSERT((size_t)(at - (char *)e) <= size);
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

/* Appends e, which is in no list; the list has it from now on. */
EBI_FN void ebi_list_push(ebi_list *list, ebi_entry *e)
{
    EB_ASSERT((list->head == NULL) == (list->last == NULL));
    e->next = NULL;
    if (list->last) list->last->next = e;
    else list->head = e;
    list->last = e;
    list->count++;
    list->bytes += e->bytes;
}

/* The same before all others. */
EBI_FN void ebi_list_push_front(ebi_list *list, ebi_entry *e)
{
    EB_ASSERT((list->head == NULL) == (list->last == NULL));
    e->next = list->head;
    list->head = e;
    if (!list->last) list->last = e;
    list->count++;
    list->bytes += e->bytes;
}

/* Takes the first one out; NULL: there is none. */
EBI_FN ebi_entry *ebi_list_pop(ebi_list *list)
{
    ebi_entry *e = list->head;
    EB_ASSERT(e || (list->count == 0 && list->bytes == 0 && !list->last));
    if (!e) return NULL;
    list->head = e->next;
    if (!e->next) list->last = NULL;
    e->next = NULL;
    list->count--;
    EB_ASSERT(list->bytes >= e->bytes && list->count >= 0);
    list->bytes -= e->bytes;
    return e;
}

/* Takes the one after previous (NULL: the first) out of the middle. */
EBI_FN ebi_entry *ebi_list_take(ebi_list *list, ebi_entry *previous)
{
    ebi_entry *e;
    if (!previous) return ebi_list_pop(list);
    e = previous->next;
    EB_ASSERT(e && list->count > 1 && list->bytes >= e->bytes);
    previous->next = e->next;
    if (list->last == e) list->last = previous;
    e->next = NULL;
    list->count--;
    list->bytes -= e->bytes;
    return e;
}

/* Moves all of `from` to the end of `to`. */
EBI_FN void ebi_list_append(ebi_list *to, ebi_list *from)
{
    EB_ASSERT((from->head == NULL) == (from->count == 0));
    if (from->head) {
        if (to->last) to->last->next = from->head;
        else to->head = from->head;
        to->last = from->last;
        to->count += from->count;
        to->bytes += from->bytes;
    }
    memset(from, 0, sizeof *from);
}

/* Lets go of all; lock held, or nobody else knows them. */
EBI_FN void ebi_list_free(eb_store *store, ebi_list *list)
{
    ebi_entry *e;
    while ((e = ebi_list_pop(list)) != NULL) ebi_entry_drop(store, e);
}

/* Whether type is in the set. */
EBI_FN int ebi_types_has(const ebi_types *set, const char *type)
{
    int i;
    for (i = 0; i < set->count; i++)
        if (strcmp(set->at[i], type) == 0) return 1;
    return 0;
}

/* 1 if type is new to the set, -1 if it is the first that there is no room for. Lock held. */
EBI_FN int ebi_types_add(eb_store *store, ebi_types *set, const char *type)
{
    int ok = 1;
    EBI_HELD(store);
    if (ebi_types_has(set, type)) return 0;
    if (set->count < EBI_TYPES)
        set->at[set->count] = ebi_strdup(&store->allocator, type, &ok);
    if (set->count == EBI_TYPES || !ok) {
        ok = set->overflow;
        set->overflow = 1;
        return ok ? 0 : -1;
    }
    set->count++;
    return 1;
}

/* Forgets all. Lock held, or nobody else knows it. */
EBI_FN void ebi_types_clear(eb_store *store, ebi_types *set)
{
    while (set->count > 0) ebi_free(&store->allocator, set->at[--set->count]);
    set->overflow = 0;
}

/* ===========================================================================
** >>policy   Backoff: when a failed attempt is tried again        [private]
** ========================================================================
** Pure, but for jitter. */

typedef struct ebi_policy { /* a resolved eb_retry_policy */
    int max_retries, schedule_count;
    int64_t base_ms, max_ms;
    double multiplier, jitter;
    int64_t *schedule_ms; /* owned */
} ebi_policy;

/* The wait before the attempt after `failed` failures: base * multiplier^(failed-1), capped, in
** steps, so that nothing overflows for any input. */
EBI_FN int64_t ebi_policy_delay(const ebi_policy *p, int failed)
{
    double delay, spread;
    uint32_t bits;
    int i;
    EB_ASSERT(failed >= 1);
    EB_ASSERT(p->schedule_count == 0 || p->schedule_ms);
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
    EB_ASSERT(delay >= 0);
    return (int64_t)delay;
}

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
    rc = ebi_options_ms("retry.base_delay_ms", p->base_delay_ms, out->base_ms, 0, &out->base_ms);
    if (rc == EB_OK)
        rc = ebi_options_ms("retry.max_delay_ms", p->max_delay_ms, out->max_ms, INT64_MAX,
                            &out->max_ms);
    if (rc != EB_OK) return rc;
    if (p->multiplier != 0.0 && !(p->multiplier >= 1.0 && p->multiplier <= DBL_MAX))
        return ebi_error(EB_ERR_ARG, "retry.multiplier must be at least 1, and finite");
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
    EB_ASSERT(out->max_retries >= 0 && out->max_retries < INT32_MAX);
    if (out->schedule_count == 0) return EB_OK;
    out->schedule_ms = (int64_t *)ebi_alloc(a, (size_t)out->schedule_count * sizeof(int64_t));
    if (!out->schedule_ms) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memcpy(out->schedule_ms, schedule, (size_t)out->schedule_count * sizeof(int64_t));
    return EB_OK;
}

/* ===========================================================================
** >>matching   From a type to its subscriptions                   [private]
** ========================================================================
** Most patterns are a plain type or end in their only star. Those are found by hash: a type is
** hashed byte by byte, and wherever some pattern "prefix*" has that length, the hash so far is
** looked up; the whole one finds the plain types. The few others are tried one by one. So ten
** thousand subscriptions do not slow down an event that one of them wants. All under the lock. */

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
    int shown;   /* what its row says of that */
    int keep;    /* somebody still looks at it: eb_unsubscribe waiting */
} ebi_sub;

/* Who wants what. Written by >>matching; under the lock. */
typedef struct ebi_subs {
    ebi_sub *first, *last, **by_type, **by_id, *globs;
    size_t count, mask;
    int prefixes[EBI_TYPE_MAX + 1]; /* how many patterns "prefix*" have this length */
    int64_t order;
} ebi_subs;

#define EBI_HASH_START UINT32_C(2166136261)
#define EBI_HASH_STEP(hash, byte) (((hash) ^ (unsigned char)(byte)) * UINT32_C(16777619))

/* FNV-1a. */
EBI_FN uint32_t ebi_hash(const char *text, size_t n)
{
    uint32_t hash = EBI_HASH_START;
    while (n-- > 0) hash = EBI_HASH_STEP(hash, *text++);
    return hash;
}

/* Where s hangs: in a bucket of the table, or with those that must be tried. */
EBI_FN ebi_sub **ebi_subs_chain(ebi_subs *subs, const ebi_sub *s)
{
    return s->kind == EBI_SUB_GLOB ? &subs->globs : &subs->by_type[s->hash & subs->mask];
}

/* The bucket of an id. */
EBI_FN ebi_sub **ebi_subs_chain_id(ebi_subs *subs, const char *id)
{
    return &subs->by_id[ebi_hash(id, 36) & subs->mask];
}

/* Hangs s into the table. */
EBI_FN void ebi_subs_index(ebi_subs *subs, ebi_sub *s)
{
    ebi_sub **at = ebi_subs_chain(subs, s), **id = ebi_subs_chain_id(subs, s->id.str);
    EB_ASSERT(subs->by_type && (subs->mask & (subs->mask + 1)) == 0);
    s->next_type = *at;
    *at = s;
    s->next_id = *id;
    *id = s;
}

/* A table fit for count subscriptions; 0: out of memory, and nothing has changed. */
EBI_FN int ebi_subs_reserve(ebi_subs *subs, const eb_allocator *a, size_t count)
{
    size_t size = subs->by_type ? subs->mask + 1 : 0, wanted = size ? size : 16;
    ebi_sub **table, *s;
    while (wanted < count) wanted *= 2;
    EB_ASSERT((wanted & (wanted - 1)) == 0 && wanted >= size);
    if (wanted == size) return 1;
    table = (ebi_sub **)ebi_alloc(a, 2 * wanted * sizeof *table);
    if (!table) return 0;
    memset(table, 0, 2 * wanted * sizeof *table);
    ebi_free(a, subs->by_type);
    subs->by_type = table;
    subs->by_id = table + wanted;
    subs->mask = wanted - 1;
    subs->globs = NULL;
    for (s = subs->first; s; s = s->next) ebi_subs_index(subs, s);
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
    EB_ASSERT(s->length <= EBI_TYPE_MAX);
}

/* Appends to the list and the table, which ebi_subs_reserve() has made. */
EBI_FN void ebi_subs_add(ebi_subs *subs, ebi_sub *s)
{
    EB_ASSERT(subs->by_type && !s->removed);
    s->order = ++subs->order;
    s->previous = subs->last;
    if (subs->last) subs->last->next = s;
    else subs->first = s;
    subs->last = s;
    subs->count++;
    if (s->kind == EBI_SUB_PREFIX) subs->prefixes[s->length]++;
    ebi_subs_index(subs, s);
}

/* Out of list and table; who has it still keeps it, see ebi_sub_release(). */
EBI_FN void ebi_subs_remove(ebi_subs *subs, ebi_sub *s)
{
    ebi_sub **at = ebi_subs_chain(subs, s), **id = ebi_subs_chain_id(subs, s->id.str);
    EB_ASSERT(!s->removed && subs->count > 0);
    while (*at != s) at = &(*at)->next_type;
    *at = s->next_type;
    while (*id != s) id = &(*id)->next_id;
    EB_ASSERT(s->kind != EBI_SUB_PREFIX || subs->prefixes[s->length] > 0);
    *id = s->next_id;
    if (s->previous) s->previous->next = s->next;
    else subs->first = s->next;
    if (s->next) s->next->previous = s->previous;
    else subs->last = s->previous;
    if (s->kind == EBI_SUB_PREFIX) subs->prefixes[s->length]--;
    subs->count--;
    s->removed = 1;
}

/* By id, any text; NULL: none. */
EBI_FN ebi_sub *ebi_subs_find(ebi_subs *subs, const char *id)
{
    ebi_sub *s = subs->by_id && strlen(id) == 36 ? *ebi_subs_chain_id(subs, id) : NULL;
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
EBI_FN ebi_sub *ebi_subs_next(const ebi_subs *subs, const char *type, int64_t order)
{
    uint32_t hash = EBI_HASH_START;
    ebi_sub *best = NULL;
    size_t n;
    if (!subs->by_type) return NULL;
    for (n = 0;; n++) {
        if (n <= EBI_TYPE_MAX && subs->prefixes[n])
            best = ebi_subs_better(best, subs->by_type[(hash + 1) & subs->mask],
                                   EBI_SUB_PREFIX, type, n, order);
        if (!type[n]) break;
        hash = EBI_HASH_STEP(hash, type[n]);
    }
    best = ebi_subs_better(best, subs->by_type[hash & subs->mask], EBI_SUB_TYPE, type, n,
                           order);
    return ebi_subs_better(best, subs->globs, EBI_SUB_GLOB, type, n, order);
}

/* What an event of this type meets now. *attempts: the largest max_retries + 1 of the handlers, for
** recovery after a crash in one of them. */
enum { EBI_MATCH_NONE, EBI_MATCH_YES, EBI_MATCH_PAUSED };
EBI_FN int ebi_subs_match(const ebi_subs *subs, const char *type, int *attempts)
{
    const ebi_sub *s;
    int result = EBI_MATCH_NONE;
    *attempts = 1;
    for (s = ebi_subs_next(subs, type, 0); s; s = ebi_subs_next(subs, type, s->order)) {
        if (s->paused) return EBI_MATCH_PAUSED;
        result = EBI_MATCH_YES;
        if (s->policy.max_retries >= *attempts) *attempts = s->policy.max_retries + 1;
    }
    return result;
}

/* Its memory; nobody refers to it. */
EBI_FN void ebi_sub_free(eb_store *store, ebi_sub *s)
{
    EB_ASSERT(s->calls == 0);
    if (s->policy.schedule_ms) ebi_free(&store->allocator, s->policy.schedule_ms);
    ebi_free(&store->allocator, s->pattern);
    ebi_free(&store->allocator, s);
}

/* Frees a removed subscription nobody uses any more. Lock held. */
EBI_FN void ebi_sub_release(eb_store *store, ebi_sub *s)
{
    EBI_HELD(store);
    EB_ASSERT(s->calls >= 0 && s->keep >= 0);
    if (s->removed && s->calls == 0 && !s->keep) ebi_sub_free(store, s);
}

/* Somebody looks at it without the lock: it stays until ebi_sub_let_go(). Lock held. */
EBI_FN void ebi_sub_keep(eb_store *store, ebi_sub *s)
{
    EBI_HELD(store);
    s->keep++;
}
EBI_FN void ebi_sub_let_go(eb_store *store, ebi_sub *s)
{
    EBI_HELD(store);
    s->keep--;
    ebi_sub_release(store, s);
}

/* A call of its handler begins, or has ended: then it may be gone. Lock held. */
EBI_FN void ebi_sub_called(eb_store *store, ebi_sub *s, int more)
{
    EBI_HELD(store);
    s->calls += more;
    if (more < 0) ebi_sub_release(store, s);
}

/* Too many of its handlers never returned: 1 if it was not paused before. Lock held. */
EBI_FN int ebi_sub_pause(eb_store *store, ebi_sub *s)
{
    int paused = s->paused;
    EBI_HELD(store);
    s->paused = 1;
    return !paused;
}
EBI_FN void ebi_subs_resume(eb_store *store, ebi_subs *subs)
{
    ebi_sub *s;
    EBI_HELD(store);
    for (s = subs->first; s; s = s->next) s->paused = 0;
}

/* The next one whose row does not say yet whether it is paused, NULL: none; it is taken to say so
** from now on. Lock held. */
EBI_FN ebi_sub *ebi_subs_unshown(eb_store *store, ebi_subs *subs)
{
    ebi_sub *s;
    EBI_HELD(store);
    for (s = subs->first; s && s->shown == s->paused;) s = s->next;
    if (s) s->shown = s->paused;
    return s;
}

/* ===========================================================================
** >>bus   The state of a bus, room by room                        [private]
** ========================================================================
** Each struct is written by the rooms that it names, and only there; the others ask, for small
** things through >>state. All of it is under the lock, but for what a comment says belongs to the
** leader or to one thread. What is on disk is the truth; memory holds a bounded window of it. */

/* One attempt and the call under way in it; of the thread that makes it, but for what is marked. */
typedef struct ebi_run {
    eb_delivery pub;
    eb_event event;
    int outcome; /* what eb_fail, eb_reject or eb_snooze asked for */
    int64_t snooze_ms;
    int called;     /* so many handlers */
    int64_t now_us; /* monotonic: when the last one returned, or the first was about to begin */
    char error[EBI_ERROR_MAX + 4];
    /* under the lock */
    struct ebi_run *next; /* in bus->calls.first */
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

/* A lap over what was parked: (at, end], then (0, again]. */
typedef struct ebi_lap {
    int64_t at, end, again; /* end 0: there is none */
    int64_t rest_us; /* with other work it takes a twentieth of the time: not before this */
    int busy;        /* there was other work since its last slice */
} ebi_lap;

/* What was passed over, by type: looked at again when somebody comes, or goes. */
typedef struct ebi_parking {
    ebi_types parked; /* types that nobody matched */
    ebi_types held;   /* types of events that wait, with others of their key behind them */
    int paused;       /* some were parked because their subscription is paused */
} ebi_parking;

/* The window over the log, under the lock. */
typedef struct ebi_window {
    ebi_list ready;
    int64_t cursor, next_due_ms; /* next_due_ms INT64_MAX: none */
    int disk_more;               /* there are rows above cursor */
    int64_t epoch;               /* of `aside`: grows with every lap, and with every start */
    ebi_lap lap;
    ebi_parking parking;
    int suspects; /* there may be some above suspect_at */
    int64_t suspect_at, rest_us; /* until rest_us the others run */
} ebi_window;

/* How many lives there are, kept beside the rows: counting a million takes 40 ms. What a
** transaction changes is collected in bus->lead.delta and added when it is committed, so the sum is
** right for as long as nobody else writes; `version` says who wrote last (PRAGMA data_version of
** the writer). */
typedef struct ebi_depths {
    int64_t pending, processing, dead; /* dead: unnamed lives */
    int64_t others;                    /* dead letters of others */
    int known;
    int64_t version, counts; /* counts: how often one was begun */
} ebi_depths;

enum { EBI_KEY_BUCKETS = 256, EBI_PASSED = 1024 };
#define EBI_PASSED_MANY UINT64_MAX

/* Which keys were passed over; see >>passed. */
typedef struct ebi_passed {
    uint64_t at[EBI_PASSED];
    int64_t to;
} ebi_passed;

/* One claim after the other. */
typedef struct ebi_turns {
    int claiming; /* one is under way */
    int64_t begun; /* so many, this start */
    int rescan;   /* a lap was asked for meanwhile; 2: to forget everything */
    int batch;    /* so many are claimed at once */
    int first;    /* what is looked at first changes each time */
    int said;     /* that events wait for nobody: logged once */
    eb_result rc; /* why the last one failed */
} ebi_turns;

/* A lane: one subscription's way through the log. There is one, that of the unnamed handlers
** together. Written by >>windows, >>lanes, >>passed, >>keys, the rooms of a claim, and at the end
** by >>stops; under the lock. */
typedef struct ebi_lane {
    eb_bus *bus; /* immutable */
    ebi_window win;
    ebi_turns turns;
    ebi_passed passed;
    ebi_list claimed, starting;       /* starting: see ebi_start_next() */
    ebi_list looks;                   /* events whose key is to be walked */
    ebi_entry *keys[EBI_KEY_BUCKETS]; /* the head of each key that is under way */
    char back[EBI_KEY_BUCKETS];       /* a head came back since the claim under way began */
    int chained;                      /* claimed events behind the heads */
    int reserved;                     /* born claimed, commit under way */
    size_t copies;                    /* bytes of what is being published */
} ebi_lane;

/* From options; immutable after open. */
typedef struct ebi_settings {
    int workers; /* 0: pump */
    int on_unmatched;
    int64_t handler_timeout_ms, shutdown_timeout_ms, idle_poll_ms, max_pending;
    size_t max_payload;
    ebi_policy policy;
    eb_notify notify;
} ebi_settings;

/* Written by >>state and >>life; under the lock, but for owner. */
typedef struct ebi_life {
    int state, refs;     /* refs: the user and every thread left behind */
    int abandon;         /* what still runs is given up */
    int64_t until_us;    /* monotonic: the end waits no longer for anybody's lock; 0: no end yet */
    int64_t incarnation; /* of this start; set by eb_start */
    ebi_db owner;        /* the side file, while started; of the thread that starts or stops */
} ebi_life;

/* Handlers that run. Written by >>state; under the lock. */
typedef struct ebi_calls {
    ebi_run *first;
    int running, solo; /* solo: a suspect runs, and nothing beside it */
    int64_t timed_out; /* token that the keeper is about to give up; or 0 */
} ebi_calls;

/* What handlers came to, until it is on disk. Written by >>outcomes, rc also by >>alarms;
** under the lock. */
typedef struct ebi_outcomes {
    ebi_list waiting, taking; /* taking: whoever leads has them in a transaction */
    int64_t since_us; /* the first of them waits since */
    eb_result rc;     /* why it failed the last time */
} ebi_outcomes;

/* Who is to look, and what for. Written by >>alarms; under the lock. */
enum {
    EBI_ASK_LOOK = 1,       /* eb_wake: for other processes' commits */
    EBI_ASK_CHECKPOINT = 2, /* the WAL is long */
    EBI_ASK_SHOW = 4        /* what is stuck is to be seen on disk */
};
typedef struct ebi_alarms {
    ebi_cond work, keeper, news; /* of workers, the keeper, everybody who waits */
    int conds;                   /* how many of these could be made */
    int wake;                    /* a worker is to be woken when the lock is free */
    int asked;                   /* of the keeper, or of who pumps: bits of EBI_ASK_... */
    int64_t until_us;            /* when the keeper wakes up by itself; 0: it is awake */
    int64_t told_ms; /* wall time at which eb_pump said that there is work; INT64_MAX: none */
    int notice;      /* there is some earlier */
    int64_t backoff_ms, retry_at_us; /* after a failed commit; retry_at_us 0: there was none */
    ebi_waiter *waiters;             /* for the end of one event */
    int drainers, saying;            /* for the end of all; something is being told to the log */
} ebi_alarms;

/* Threads. Written by >>workers, >>clockwork, >>life, idle by >>alarms; under the lock, but for
** checker. */
typedef struct ebi_crew {
    ebi_worker *workers;
    int idle, alive, lost, started, keeper_alive, joining, joined;
    ebi_thread keeper_thread;
    ebi_db checker; /* for checkpoints; the keeper's */
} ebi_crew;

/* What has to be done at what time. Written by >>clockwork, under the lock. */
typedef struct ebi_clockwork {
    int64_t now_us, next_us; /* of the turn under way; when there is something again */
    int64_t looked_us;       /* when it has looked outside */
    int64_t hire_us;         /* when a thread may be tried again */
    int hire_failed;
} ebi_clockwork;

/* The driver without threads. Written by >>pump; under the lock. */
typedef struct ebi_pump {
    int active;
    ebi_thread_id thread;
    ebi_run run;
    int64_t until_us; /* monotonic: the caller of eb_wait or eb_drain waits no longer */
} ebi_pump;

/* Since the bus was opened. Written by >>state; under the lock. */
typedef struct ebi_figures {
    int64_t published, delivered, failed_attempts, died, stale, unmatched;
    ebi_types unmatched_types; /* of which it was said that nobody wants them */
} ebi_figures;

/* max_pending: an upper bound of live rows, see ebi_cap_check(). Whoever leads. */
typedef struct ebi_cap {
    int64_t live, seq, us;
} ebi_cap;

/* Whoever leads the writer. */
typedef struct ebi_lead {
    int64_t next_token;
    int64_t claimed_to; /* as in meta: no row above it was ever claimed; 0: not known */
    ebi_depths delta;   /* what this transaction changes */
} ebi_lead;

struct eb_bus {
    eb_store store; /* first: the bus's own store; its lock is the bus's lock */
    ebi_settings set;
    ebi_life life;
    ebi_subs subs;
    ebi_lane lane;
    ebi_calls calls;
    ebi_outcomes out;
    ebi_alarms alarms;
    ebi_crew crew;
    ebi_clockwork clockwork;
    ebi_pump pump;
    ebi_figures figures;
    ebi_depths depths;
    ebi_cap cap;
    ebi_lead lead;
};

/* ===========================================================================
** >>state   Its small changes                                     [private]
** ========================================================================
** What the rooms below need of structs whose own room comes later: they are changed here, one
** function for each thing that can happen. */

/* The bus around a store, NULL: it has none. */
EBI_FN eb_bus *ebi_bus_of(eb_store *store) { return store->bus; }

/* The bus is in this state now. Lock held. */
EBI_FN void ebi_life_be(eb_bus *bus, int state)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(state >= EBI_OPEN && state <= EBI_FORKED);
    EB_ASSERT(bus->life.state < EBI_STOPPING || state >= EBI_STOPPED);
    bus->life.state = state;
}

/* A new start, called by a number that no other has. No lock is needed: nobody runs yet. */
EBI_FN void ebi_life_begin(eb_bus *bus, int64_t incarnation)
{
    EB_ASSERT(bus->life.state == EBI_STARTING && incarnation > 0);
    bus->life.incarnation = incarnation;
}

/* Whether this bus dispatches; a hook. */
EBI_FN int ebi_life_started(eb_store *store)
{
    EBI_HELD(store);
    EBI_LEADS(store);
    return store->bus && store->bus->life.state == EBI_STARTED;
}

/* One more, or one less, refers to it; 1: that was the last. Lock held. */
EBI_FN int ebi_life_refer(eb_bus *bus, int more)
{
    EBI_HELD(&bus->store);
    bus->life.refs += more;
    EB_ASSERT(bus->life.refs >= 0);
    return bus->life.refs == 0;
}

/* ---- calls ---- */

/* A suspect begins to run alone, or has ended. Lock held. */
EBI_FN void ebi_calls_solo(eb_bus *bus, int on)
{
    EBI_HELD(&bus->store);
    bus->calls.solo = on;
}

/* The handlers of e are called from now on, by this thread. Lock held. */
EBI_FN void ebi_calls_enter(eb_bus *bus, ebi_run *run, ebi_entry *e)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(!run->entry && !run->sub);
    run->entry = e;
    run->lost = run->called = 0;
    run->thread = ebi_thread_self();
    run->next = bus->calls.first;
    bus->calls.first = run;
    bus->calls.running++;
}

/* They are no longer, or are given up. Lock held. */
EBI_FN void ebi_calls_leave(eb_bus *bus, ebi_run *run)
{
    ebi_run **at = &bus->calls.first;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->calls.running > 0);
    while (*at != run) at = &(*at)->next;
    *at = run->next;
    bus->calls.running--;
    if (run->entry->suspect) ebi_calls_solo(bus, 0);
}

/* The claim with this token is between a call that was given up and its outcome; 0: none is. Lock
** held. */
EBI_FN void ebi_calls_timed_out(eb_bus *bus, int64_t token)
{
    EBI_HELD(&bus->store);
    bus->calls.timed_out = token;
}

/* ---- figures ---- */

/* So many failed attempts were committed, and so many deaths. Lock held. */
EBI_FN void ebi_figures_failed(eb_bus *bus, int64_t attempts, int64_t deaths)
{
    EBI_HELD(&bus->store);
    EBI_LEADS(&bus->store);
    EB_ASSERT(deaths <= attempts);
    bus->figures.failed_attempts += attempts;
    bus->figures.died += deaths;
}

/* Stored, handled, answered too late. Lock held. */
EBI_FN void ebi_figures_published(eb_bus *bus, int64_t more)
{
    EBI_HELD(&bus->store);
    bus->figures.published += more;
}
EBI_FN void ebi_figures_delivered(eb_bus *bus, int64_t more)
{
    EBI_HELD(&bus->store);
    bus->figures.delivered += more;
}
EBI_FN void ebi_figures_stale(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->figures.stale++;
}

/* Done without a handler; returns what ebi_types_add() says of the type. Lock held. */
EBI_FN int ebi_figures_unmatched(eb_bus *bus, const char *type)
{
    EBI_HELD(&bus->store);
    bus->figures.unmatched++;
    return ebi_types_add(&bus->store, &bus->figures.unmatched_types, type);
}

/* ---- what is the leader's ---- */

/* The next token: no two claims have the same. By the leader. */
EBI_FN int64_t ebi_lead_token(eb_bus *bus)
{
    EBI_LEADS(&bus->store);
    EB_ASSERT(bus->lead.next_token > 0);
    return ++bus->lead.next_token;
}

/* A new start: no token of it was ever given out, nothing is known of claims. */
EBI_FN void ebi_lead_begin(eb_bus *bus, int64_t token)
{
    EBI_LEADS(&bus->store);
    EB_ASSERT(token > 0);
    bus->lead.next_token = token;
    bus->lead.claimed_to = 0;
}

/* No row above seq was ever claimed, says meta; 0: that is to be asked. */
EBI_FN void ebi_lead_claimed_to(eb_bus *bus, int64_t seq)
{
    EBI_LEADS(&bus->store);
    bus->lead.claimed_to = seq;
}

/* ===========================================================================
** >>alarms   Who has to look, and when                            [private]
** ========================================================================
** Something has happened, or will at a certain time: whoever waits for it is told here. Workers and
** the keeper by their conditions, eb_wait by its waiter, who pumps elsewhere by options.notify. All
** under the lock, but for the user's callback. */

/* Something happened to seq (0: to anything): whoever waits for it looks again, unless the end is
** known. Lock held. */
EBI_FN void ebi_waiters_hit(eb_bus *bus, int64_t seq, eb_result known)
{
    ebi_waiter *w;
    EBI_HELD(&bus->store);
    for (w = bus->alarms.waiters; w; w = w->next) {
        if (seq != 0 && w->seq != seq) continue;
        w->hit = 1;
        if (known != EB_EMPTY) w->known = known;
        ebi_cond_signal(&w->cond);
    }
}

/* Somebody waits for the end of w->seq, until ebi_waiters_remove(). Lock held. */
EBI_FN void ebi_waiters_add(eb_bus *bus, ebi_waiter *w)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(w->seq > 0);
    w->next = bus->alarms.waiters;
    bus->alarms.waiters = w;
}
EBI_FN void ebi_waiters_remove(eb_bus *bus, ebi_waiter *w)
{
    ebi_waiter **at = &bus->alarms.waiters;
    EBI_HELD(&bus->store);
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
}

/* Whether anybody waits for seq; 0: for any. */
EBI_FN int ebi_waiters_any(const eb_bus *bus, int64_t seq)
{
    const ebi_waiter *w;
    EBI_HELD(&bus->store);
    for (w = bus->alarms.waiters; w; w = w->next)
        if (seq == 0 || w->seq == seq) return 1;
    return 0;
}

/* The condition to signal after the lock is released, NULL: none. Lock held. */
EBI_FN ebi_cond *ebi_alarms_cond(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    EBI_HELD(store);
    EB_ASSERT(bus);
    if (!bus->alarms.wake) return NULL;
    bus->alarms.wake = 0;
    return &bus->alarms.work;
}

/* The keeper has to look at time_us at the latest. Lock held. */
EBI_FN void ebi_keeper_by(eb_bus *bus, int64_t time_us)
{
    EBI_HELD(&bus->store);
    if (time_us >= bus->alarms.until_us) return;
    bus->alarms.until_us = 0;
    ebi_cond_signal(&bus->alarms.keeper);
}
EBI_FN void ebi_keeper_wake(eb_bus *bus) { ebi_keeper_by(bus, INT64_MIN); }

/* The keeper sleeps for us, or until it is woken. Lock held on entry and exit. */
EBI_FN void ebi_keeper_sleep(eb_bus *bus, int64_t until_us, int64_t us)
{
    EBI_HELD(&bus->store);
    bus->alarms.until_us = until_us;
    ebi_store_wait(&bus->store, &bus->alarms.keeper, us);
    bus->alarms.until_us = 0;
}

/* Something is asked of the keeper, or of who pumps, at once: a bit of EBI_ASK_... Lock held. */
EBI_FN void ebi_alarms_ask(eb_bus *bus, int what)
{
    EBI_HELD(&bus->store);
    bus->alarms.asked |= what;
    ebi_keeper_wake(bus);
}

/* Whether that was asked; it no longer is. Lock held. */
EBI_FN int ebi_alarms_asked(eb_bus *bus, int what)
{
    int asked = bus->alarms.asked & what;
    EBI_HELD(&bus->store);
    bus->alarms.asked &= ~what;
    return asked != 0;
}

/* There is something for the log, and perhaps nobody else who could tell it now. Lock held. */
EBI_FN void ebi_keeper_noted(eb_store *store)
{
    EBI_HELD(store);
    if (ebi_bus_of(store)) ebi_keeper_wake(ebi_bus_of(store));
}

/* There is work at due_ms: whoever pumps elsewhere is told, if that is earlier than eb_pump said
** last. Lock held. */
EBI_FN void ebi_notice(eb_bus *bus, int64_t due_ms)
{
    EBI_HELD(&bus->store);
    if (!bus->set.notify.func || bus->pump.active || due_ms >= bus->alarms.told_ms) return;
    bus->alarms.told_ms = due_ms;
    bus->alarms.notice = 1;
}

/* Calls the user's notify if there is reason to. No lock held. */
EBI_FN void ebi_notice_tell(eb_bus *bus)
{
    int tell;
    if (!bus->set.notify.func) return;
    ebi_store_lock(&bus->store);
    tell = bus->alarms.notice;
    bus->alarms.notice = 0;
    ebi_store_unlock(&bus->store);
    if (tell) bus->set.notify.func(bus->set.notify.user);
}

/* There is something for a worker, if one sleeps: it is woken when whoever commits lets go of the
** lock. Lock held. */
EBI_FN void ebi_alarms_work(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    if (bus->crew.idle > 0) bus->alarms.wake = 1;
}

/* The same where nobody commits: now. Lock held. */
EBI_FN void ebi_alarms_work_now(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    ebi_cond_signal(&bus->alarms.work);
}

/* All workers look. Lock held. */
EBI_FN void ebi_alarms_work_all(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    ebi_cond_broadcast(&bus->alarms.work);
}

/* A worker has nothing to do. Lock held on entry and exit. */
EBI_FN void ebi_alarms_idle(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->crew.idle++;
    ebi_store_wait(&bus->store, &bus->alarms.work, -1);
    bus->crew.idle--;
}

/* Everybody who waits for anything looks again. Lock held. */
EBI_FN void ebi_alarms_news(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    ebi_cond_broadcast(&bus->alarms.news);
}

/* Waits for news, us < 0: without limit; may wake early. Lock held on entry and exit. */
EBI_FN void ebi_alarms_wait(eb_bus *bus, int64_t us)
{
    EBI_HELD(&bus->store);
    ebi_store_wait(&bus->store, &bus->alarms.news, us);
}

/* Somebody waits for the end of all, or does no longer. Lock held. */
EBI_FN void ebi_alarms_drain(eb_bus *bus, int more)
{
    EBI_HELD(&bus->store);
    bus->alarms.drainers += more;
    EB_ASSERT(bus->alarms.drainers >= 0);
}

/* eb_pump has said that there is work at told_ms. Lock held. */
EBI_FN void ebi_alarms_told(eb_bus *bus, int64_t told_ms)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(!bus->set.workers);
    bus->alarms.told_ms = told_ms;
    bus->alarms.notice = 0;
}

/* The conditions; 0: they cannot be made. Before anybody else knows the bus. */
EBI_FN int ebi_alarms_init(eb_bus *bus)
{
    ebi_alarms *a = &bus->alarms;
    a->told_ms = INT64_MAX;
    if (ebi_cond_init(&a->work) == 0) a->conds = 1;
    if (a->conds == 1 && ebi_cond_init(&a->keeper) == 0) a->conds = 2;
    if (a->conds == 2 && ebi_cond_init(&a->news) == 0) a->conds = 3;
    return a->conds == 3;
}
EBI_FN void ebi_alarms_fini(eb_bus *bus)
{
    ebi_alarms *a = &bus->alarms;
    if (a->conds > 0) ebi_cond_fini(&a->work);
    if (a->conds > 1) ebi_cond_fini(&a->keeper);
    if (a->conds > 2) ebi_cond_fini(&a->news);
}

/* Somebody tells the log what was committed: eb_drain comes after that. Lock held. */
EBI_FN void ebi_alarms_saying(eb_bus *bus, int more)
{
    EBI_HELD(&bus->store);
    bus->alarms.saying += more;
    EB_ASSERT(bus->alarms.saying >= 0);
    if (bus->alarms.saying == 0 && bus->alarms.drainers) ebi_alarms_news(bus);
}

/* A commit of the engine's went through. Lock held. */
EBI_FN void ebi_alarms_healed(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->alarms.backoff_ms = bus->alarms.retry_at_us = 0;
}

/* It failed: it is tried again, later and later but at least every 2 s. Lock held. */
EBI_FN void ebi_alarms_backoff(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->alarms.backoff_ms = bus->alarms.backoff_ms ? bus->alarms.backoff_ms * 2 : 10;
    if (bus->alarms.backoff_ms > EBI_BACKOFF_MAX_MS) bus->alarms.backoff_ms = EBI_BACKOFF_MAX_MS;
    bus->alarms.retry_at_us = ebi_clock_mono_us(&bus->store) + bus->alarms.backoff_ms * 1000;
    ebi_keeper_by(bus, bus->alarms.retry_at_us);
}

/* The file is another one: what failed in the old one is tried again at once. Lock held. */
EBI_FN void ebi_alarms_hope(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->out.rc = bus->lane.turns.rc = EB_OK;
    ebi_alarms_healed(bus);
}

/* Whether it failed for a reason that no waiting will heal; EB_OK: it did not. Lock held. */
EBI_FN eb_result ebi_alarms_hopeless(const eb_bus *bus)
{
    eb_result rc = bus->out.rc != EB_OK ? bus->out.rc : bus->lane.turns.rc;
    EBI_HELD(&bus->store);
    if (rc != EB_ERR_CORRUPT && rc != EB_ERR_SCHEMA) return EB_OK;
    return ebi_error(rc, "events cannot be dispatched: %s", bus->store.notes.trouble);
}

/* Until when a call of the engine may wait for somebody else's lock. Lock held. */
EBI_FN int64_t ebi_alarms_until(const eb_bus *bus)
{
    int64_t until_us = ebi_writer_until(&bus->store), end_us = bus->life.until_us;
    EBI_HELD(&bus->store);
    if (bus->pump.until_us && bus->pump.until_us < until_us) until_us = bus->pump.until_us;
    return end_us && end_us < until_us ? end_us : until_us;
}

/* Leaves a checkpoint to the keeper, if there is one. Lock held. */
EBI_FN int ebi_keeper_copies(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(bus);
    if (!bus->crew.keeper_alive) return 0;
    ebi_alarms_ask(bus, EBI_ASK_CHECKPOINT);
    return 1;
}

/* ===========================================================================
** >>depths   How many lives there are, without counting           [private]
** ========================================================================
** See ebi_depths. Whoever changes the status of a row says so in the same transaction; what cannot
** be told that way (another process, a commit of unknown end) makes them unknown until they are
** counted, see >>figures. */

/* Inside a transaction: so many more, or less, of each. By the leader. */
EBI_FN void ebi_depths_add(eb_store *store, int64_t pending, int64_t processing, int64_t dead)
{
    eb_bus *bus = ebi_bus_of(store);
    EBI_LEADS(store);
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (!bus) return;
    bus->lead.delta.pending += pending;
    bus->lead.delta.processing += processing;
    bus->lead.delta.dead += dead;
}

/* The transaction is over; rc: EB_OK if it was committed. By the leader, no lock held. */
EBI_FN void ebi_depths_over(eb_store *store, eb_result rc)
{
    eb_bus *bus = ebi_bus_of(store);
    EBI_LEADS(store);
    EB_ASSERT(bus);
    ebi_store_lock(store);
    if (rc == EB_OK) {
        bus->depths.pending += bus->lead.delta.pending;
        bus->depths.processing += bus->lead.delta.processing;
        bus->depths.dead += bus->lead.delta.dead;
    }
    if (rc == EB_ERR_UNKNOWN) bus->depths.known = 0, bus->depths.counts++;
    ebi_store_unlock(store);
    if (rc != EB_OK) bus->lead.claimed_to = 0; /* what was written of it is undone */
    memset(&bus->lead.delta, 0, sizeof bus->lead.delta);
}

/* Memory and rows may differ: they have to be counted. Lock held. */
EBI_FN void ebi_depths_forget(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->depths.known = 0;
    bus->depths.counts++;
}

/* Whether they are right at this moment, in the transaction that is open on the writer. By the
** leader, no lock held. */
EBI_FN int ebi_depths_exact(eb_bus *bus, ebi_depths *out)
{
    eb_store *store = &bus->store;
    int64_t version = 0;
    int rc = ebi_db_number(store, &store->writer, EBI_SQL_DATA_VERSION, &version);
    EBI_LEADS(store);
    ebi_store_lock(store);
    *out = bus->depths;
    ebi_store_unlock(store);
    return rc == SQLITE_OK && out->known && out->version == version;
}

/* The lives, counted; SQLite's result. */
EBI_FN int ebi_depths_count(eb_store *store, ebi_db *db, ebi_depths *out)
{
    int64_t all = 0;
    sqlite3_stmt *s = ebi_db_stmt(store, db, EBI_SQL_STATS_LIVE);
    int rc = s ? sqlite3_step(s) : ebi_db_code(db);
    memset(out, 0, sizeof *out);
    EB_ASSERT(rc != SQLITE_ROW || !sqlite3_get_autocommit(db->handle));
    if (rc == SQLITE_ROW) {
        out->pending = sqlite3_column_int64(s, 1);
        out->processing = sqlite3_column_int64(s, 0) - out->pending;
        rc = SQLITE_OK;
    }
    sqlite3_reset(s);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_STATS_DEAD, &out->dead);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_DLQ_COUNT_ALL, &all);
    out->others = all - out->dead;
    return rc;
}

/* A count is about to begin in the snapshot that is open on db: what we commit from here on is
** added to it. *mine: which count it is, 0: it will serve this call only, as the writer is not to
** be had. With read_lock held, which comes before the lead. */
EBI_FN int ebi_depths_begin(eb_bus *bus, ebi_db *db, int64_t *mine)
{
    eb_store *store = &bus->store;
    int64_t version = 0, seq;
    int rc, known;
    *mine = 0;
    EB_ASSERT(db == &store->reader);
    if (!ebi_writer_enter_until(store, ebi_clock_mono_us(store) + EBI_STATS_WAIT_US))
        return ebi_db_number(store, db, EBI_SQL_LAST_SEQ, &seq);
    known = store->writer.handle && !store->trust.must_reopen && /* before: if somebody commits */
            ebi_db_number(store, &store->writer, EBI_SQL_DATA_VERSION, &version) == SQLITE_OK;
    rc = ebi_db_number(store, db, EBI_SQL_LAST_SEQ, &seq); /* in between, it is no match */
    known = known && rc == SQLITE_OK;
    ebi_store_lock(store);
    if (known) {
        *mine = ++bus->depths.counts;
        bus->depths.pending = bus->depths.processing = bus->depths.dead = 0;
        bus->depths.known = 0;
        bus->depths.version = version;
    }
    ebi_store_unlock(store);
    ebi_writer_leave(store);
    return rc;
}

/* The count is through: it serves later calls too, unless something came between. */
EBI_FN void ebi_depths_keep(eb_bus *bus, const ebi_depths *counted, int64_t mine)
{
    ebi_depths *d = &bus->depths;
    ebi_store_lock(&bus->store);
    if (mine && d->counts == mine) {
        d->pending += counted->pending;
        d->processing += counted->processing;
        d->dead += counted->dead;
        d->others = counted->others;
        d->known = 1;
    }
    ebi_store_unlock(&bus->store);
}

/* ===========================================================================
** >>caps   max_pending, without counting for each publish         [private]
** ========================================================================
** In the publisher's transaction, before its first write. */

/* So many live rows more, or less. Lock held. */
EBI_FN void ebi_cap_add(eb_bus *bus, int64_t more)
{
    EBI_HELD(&bus->store);
    bus->cap.live += more;
}

/* The same of rows up to seq, unless a later one of this commit has counted them already. */
EBI_FN void ebi_cap_published(eb_bus *bus, int64_t more, int64_t seq)
{
    if (bus->cap.seq >= seq) return;
    ebi_cap_add(bus, more);
    bus->cap.seq = seq;
}

/* The bound is worth nothing: the next publish counts. By the leader. */
EBI_FN void ebi_cap_forget(eb_bus *bus)
{
    EBI_LEADS(&bus->store);
    bus->cap.us = 0;
}

/* max_pending. Counting a million rows takes milliseconds, so there is an upper bound: what was
** counted, plus what was published since (the sequence numbers tell, whoever did it), less what
** ended here. Only when that comes to the cap are the rows counted again, and then for at most a
** hundredth of the time. */
EBI_FN int ebi_cap_count(eb_bus *bus, int64_t last_seq)
{
    eb_store *store = &bus->store;
    int64_t start_us = ebi_clock_mono_us(store), live;
    int rc;
    EBI_LEADS(store);
    EB_ASSERT(bus->set.max_pending > 0);
    if (bus->cap.us != 0 && start_us < bus->cap.us) return SQLITE_OK;
    rc = ebi_db_number(store, &store->writer, EBI_SQL_LIVE_COUNT, &live);
    if (rc != SQLITE_OK) return rc;
    ebi_store_lock(store);
    bus->cap.live = live;
    ebi_store_unlock(store);
    bus->cap.seq = last_seq;
    bus->cap.us = ebi_clock_mono_us(store) + (ebi_clock_mono_us(store) - start_us) * 100;
    return SQLITE_OK;
}

/* EB_ERR_FULL if count more would exceed it. */
EBI_FN eb_result ebi_cap_check(eb_bus *bus, int64_t count, int64_t last_seq)
{
    eb_store *store = &bus->store;
    ebi_depths d;
    int64_t live;
    int rc = SQLITE_OK, tries, exact = ebi_depths_exact(bus, &d);
    EBI_LEADS(store);
    EB_ASSERT(count > 0);
    live = d.pending + d.processing + bus->lead.delta.pending + bus->lead.delta.processing;
    if (exact && live + count <= bus->set.max_pending) return EB_OK;
    for (tries = 0; tries < 2 && !exact; tries++) {
        ebi_store_lock(store);
        if (bus->cap.us != 0) bus->cap.live += last_seq - bus->cap.seq; /* by others */
        live = bus->cap.live;
        ebi_store_unlock(store);
        bus->cap.seq = last_seq;
        if (bus->cap.us != 0 && live + count <= bus->set.max_pending) return EB_OK;
        if (tries == 0) rc = ebi_cap_count(bus, last_seq);
        if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "counting live events");
    }
    return ebi_error(EB_ERR_FULL, "%lld live events: the queue is at max_pending",
                     (long long)live);
}

/* ===========================================================================
** >>windows   A window over the log that moves on                 [private]
** ========================================================================
** What is on disk is the truth; memory holds a bounded window of it.
**
**   cursor      every row that waits for nothing and has seq <= cursor is in `ready`, or was passed
**               over: it stands in line behind its ordering key (see >>keys), or nobody matches it
**               ("parked"). What is parked is looked at again in a lap, see ebi_window_lap().
**   due_ms      whatever comes back (a retry, a snooze, a DLQ retry, an operator's UPDATE) comes
**               back through the index on due_ms, never by moving the cursor back. 0 is "at once".
**               Memory has only the earliest, next_due_ms.
**   copy        an event in `ready` is a copy of what was read. Whoever changes its row says in the
**               statement what that was (EBI_SQL_FENCE): an old copy changes nothing.
**   claim       status processing and a token. Batches are claimed without counting an attempt; an
**               event that is claimed alone counts it (attempts = failed + 1). Recovery tells the
**               two apart by that: see >>recovery.
**   suspect     was under way when the process died, with others: runs alone, see ebi_turn_what().
**
** Under the lock, but for what reads the file. */

EBI_FN int ebi_window_lapping(const ebi_window *w) { return w->lap.end > 0; }

/* Whether the lap goes on now. Who pumps wants everything looked at. */
EBI_FN int ebi_window_lap_now(const ebi_lane *lane)
{
    eb_bus *bus = lane->bus;
    const ebi_window *w = &lane->win;
    EBI_HELD(&bus->store);
    return ebi_window_lapping(w) &&
           (!bus->set.workers || !w->lap.busy || ebi_clock_mono_us(&bus->store) >= w->lap.rest_us);
}

/* What a claim borrows of its lane: a copy of where the window is, and what is ready in it. What is
** published meanwhile comes behind that. */
typedef struct ebi_view {
    int64_t cursor, next_due_ms, epoch, suspect_at;
    int64_t lap_at, lap_end; /* lap_end 0: no lap now */
    int more;                /* there are rows above cursor */
    ebi_list queue, looks;   /* ready before; keys to be walked */
} ebi_view;

/* Lends it; alone: for a suspect, which leaves the rest where it is. Lock held. */
EBI_FN void ebi_window_lend(ebi_lane *lane, int alone, ebi_view *v)
{
    ebi_window *w = &lane->win;
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(!lane->turns.claiming);
    v->cursor = w->cursor;
    v->next_due_ms = w->next_due_ms;
    v->epoch = w->epoch;
    v->suspect_at = w->suspect_at;
    v->lap_at = w->lap.at;
    v->lap_end = ebi_window_lap_now(lane) ? w->lap.end : 0;
    memset(lane->back, 0, sizeof lane->back);
    if (alone) return;
    v->more = w->disk_more; /* taken, not copied: a publisher may set it again meanwhile */
    w->disk_more = 0;
    ebi_list_append(&v->queue, &w->ready);
    ebi_list_append(&v->looks, &lane->looks);
}

/* What the scan has read lies behind the cursor now: a publish of this very commit need not place
** its copy. Lock held. */
EBI_FN void ebi_window_read_to(ebi_window *w, int64_t seq)
{
    if (seq > w->cursor) w->cursor = seq;
}

/* Takes back what was lent, as far as the claim has come with it; loaded: read from disk besides.
** Lock held. */
EBI_FN void ebi_window_return(ebi_lane *lane, ebi_view *v, ebi_list *loaded)
{
    ebi_window *w = &lane->win;
    ebi_list younger = w->ready; /* published meanwhile */
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(lane->turns.claiming);
    ebi_window_read_to(w, v->cursor);
    w->disk_more |= v->more;
    w->next_due_ms = v->next_due_ms;
    w->suspect_at = v->suspect_at;
    memset(&w->ready, 0, sizeof w->ready);
    ebi_list_append(&w->ready, &v->queue);
    ebi_list_append(&w->ready, loaded);
    ebi_list_append(&w->ready, &younger);
    ebi_list_append(&lane->looks, &v->looks);
}

/* Everything in memory that was not claimed is forgotten: the scan will read it again. Lock held.
*/
EBI_FN void ebi_window_forget(ebi_lane *lane)
{
    eb_bus *bus = lane->bus;
    ebi_window *w = &lane->win;
    EBI_HELD(&bus->store);
    EB_ASSERT(!lane->turns.claiming || bus->store.queue.leading);
    ebi_list_free(&bus->store, &w->ready);
    w->cursor = w->suspect_at = w->lap.at = w->lap.end = w->lap.again = 0;
    w->disk_more = w->suspects = 1;
    w->next_due_ms = 0;
    w->parking.paused = 0;
    w->epoch++;
    ebi_types_clear(&bus->store, &w->parking.parked);
    ebi_types_clear(&bus->store, &w->parking.held);
    memset(lane->passed.at, 0, sizeof lane->passed.at);
    lane->passed.to = 0;
}

/* What was parked may have somebody now: it is looked at again, from here to the end and then from
** the beginning to here, so that a lap that is under way is never begun anew. The new epoch puts
** what stands aside back into line; who still has nobody steps aside once more. Lock held. */
EBI_FN void ebi_window_lap(ebi_lane *lane)
{
    eb_bus *bus = lane->bus;
    ebi_window *w = &lane->win;
    EBI_HELD(&bus->store);
    EB_ASSERT(!lane->turns.claiming);
    w->epoch++;
    w->suspects = 1;
    w->suspect_at = 0;
    if (ebi_window_lapping(w)) {
        w->lap.again = w->lap.at > w->lap.again ? w->lap.at : w->lap.again;
        w->lap.end = w->cursor;
    } else {
        w->lap.at = w->lap.again = 0;
        w->lap.end = w->cursor;
        ebi_types_clear(&bus->store, &w->parking.parked);
        ebi_types_clear(&bus->store, &w->parking.held);
        w->parking.paused = 0;
    }
    ebi_alarms_work_now(bus);
    ebi_alarms_news(bus);
    ebi_notice(bus, 0);
}

/* A slice of the lap took so long: beside other work it gets a twentieth of the time. Lock held. */
EBI_FN void ebi_window_lap_rests(ebi_lane *lane, int64_t took_us)
{
    ebi_window *w = &lane->win;
    EBI_HELD(&lane->bus->store);
    w->lap.rest_us = ebi_clock_mono_us(&lane->bus->store) + 19 * took_us;
    w->lap.busy = 0;
}

/* The lap has come to `at`; done: to the end of its part. Lock held. */
EBI_FN void ebi_window_lapped(ebi_window *w, int64_t at, int done)
{
    EB_ASSERT(w->lap.end > 0 && at >= w->lap.at && at <= w->lap.end);
    w->lap.at = at;
    if (!done && at < w->lap.end) return;
    w->lap.at = 0;
    w->lap.end = w->lap.again;
    w->lap.again = 0;
}

/* Whether there may be suspects is known now: left 0: there are none that could run. Lock held. */
EBI_FN void ebi_window_suspects(ebi_window *w, int left) { w->suspects = left; }

/* ===========================================================================
** >>lanes   What a lane is told                                   [private]
** ========================================================================
** One subscription's way through the log: rows become events in memory, and the other rooms tell it
** what they have stored, found or ended. Each of these functions takes the lane it concerns.
** Under the lock, but for what reads the file. */

/* Whether the row of EBI_SQL_LOAD is one that this header could have written; SQLite's result. Who
** asks has the epoch: nothing steps aside for a later one. */
EBI_FN int ebi_lane_sound(sqlite3_stmt *s, int64_t epoch)
{
    const char *status = ebi_column(s, EBI_LOAD_STATUS), *type = ebi_column(s, EBI_LOAD_TYPE);
    const char *key = ebi_column(s, EBI_LOAD_KEY), *wrong = NULL;
    int bad = 0;
    if (sqlite3_column_type(s, EBI_LOAD_APART) != SQLITE_NULL)
        ebi_column_within(s, EBI_LOAD_APART, "deliveries.apart", 0, 2, &bad);
    if (sqlite3_column_type(s, EBI_LOAD_DUE) != SQLITE_NULL)
        ebi_column_within(s, EBI_LOAD_DUE, "deliveries.due_ms", 0, INT64_MAX, &bad);
    if (sqlite3_column_type(s, EBI_LOAD_TOKEN) != SQLITE_NULL)
        ebi_column_within(s, EBI_LOAD_TOKEN, "deliveries.token of one that waits", 0, 0, &bad);
    ebi_column_within(s, EBI_LOAD_ASIDE, "deliveries.aside", 0, epoch, &bad);
    if (bad) return EBI_DAMAGED;
    if (!ebi_column(s, EBI_LOAD_ID) || !type || !ebi_column(s, EBI_LOAD_PAYLOAD))
        return ebi_db_no_event(s, EBI_LOAD_ID);
    if (!status || (strcmp(status, "pending") != 0 && strcmp(status, "processing") != 0))
        wrong = "deliveries.status";
    else if (sqlite3_column_int(s, EBI_LOAD_SAME_KEY) != 1) wrong = "deliveries.ordering_key";
    else if (!ebi_text_name_len(type, EBI_TYPE_MAX)) wrong = "event_log.type";
    else if (key && !ebi_text_name_len(key, EBI_KEY_MAX)) wrong = "event_log.ordering_key";
    if (!wrong) return SQLITE_OK;
    ebi_error(EB_ERR_CORRUPT, "damaged: %s (row %lld)", wrong,
              (long long)sqlite3_column_int64(s, EBI_LOAD_SEQ));
    return EBI_DAMAGED;
}

/* From a row of EBI_SQL_LOAD. NULL: *rc says why, EBI_DAMAGED or another code of SQLite's. */
EBI_FN ebi_entry *ebi_lane_load(ebi_lane *lane, sqlite3_stmt *s, int *rc)
{
    eb_message m;
    ebi_entry *e;
    int bad = 0;
    const int most = INT32_MAX - 1;
    int64_t seq = ebi_column_within(s, EBI_LOAD_SEQ, "deliveries.seq", 1, EBI_SEQ_MAX, &bad);
    int64_t failed = ebi_column_within(s, EBI_LOAD_FAILED, "deliveries.failed", 0, most, &bad);
    int64_t snoozes = ebi_column_within(s, EBI_LOAD_SNOOZES, "deliveries.snoozes", 0, most, &bad);
    EB_ASSERT(sqlite3_column_count(s) == EBI_LOAD_COLUMNS);
    EBI_LEADS(&lane->bus->store);
    *rc = bad ? EBI_DAMAGED : ebi_lane_sound(s, lane->win.epoch);
    if (*rc != SQLITE_OK) return NULL;
    memset(&m, 0, sizeof m);
    m.type = ebi_column(s, EBI_LOAD_TYPE);
    m.payload = ebi_column(s, EBI_LOAD_PAYLOAD);
    m.metadata = ebi_column(s, EBI_LOAD_METADATA);
    m.ordering_key = ebi_column(s, EBI_LOAD_KEY);
    m.idempotency_key = ebi_column(s, EBI_LOAD_IDEMPOTENCY);
    e = ebi_entry_new(&lane->bus->store, &m, (size_t)sqlite3_column_bytes(s, EBI_LOAD_PAYLOAD),
                      ebi_column(s, EBI_LOAD_PRODUCER), ebi_column(s, EBI_LOAD_ERRORS));
    *rc = e ? SQLITE_OK : SQLITE_NOMEM;
    if (!e) return NULL;
    e->lane = lane;
    e->seq = seq;
    e->failed = (int)failed;
    e->snoozes = (int)snoozes;
    e->suspect = sqlite3_column_int(s, EBI_LOAD_APART) == 1;
    e->waits = ebi_status_of(ebi_column(s, EBI_LOAD_STATUS)) == EB_PROCESSING;
    e->born = sqlite3_column_int64(s, EBI_LOAD_BORN);
    e->retried = sqlite3_column_type(s, EBI_LOAD_RETRIED) != SQLITE_NULL || snoozes > 0;
    e->created_at_ms = ebi_time_parse(ebi_column(s, EBI_LOAD_CREATED));
    snprintf(e->id.str, sizeof e->id.str, "%s", ebi_column(s, EBI_LOAD_ID));
    return e;
}

EBI_FN void ebi_lane_init(ebi_lane *lane, eb_bus *bus)
{
    lane->bus = bus;
    lane->turns.batch = 1;
    lane->win.next_due_ms = INT64_MAX;
}

/* Nobody else knows it any more. */
EBI_FN void ebi_lane_fini(ebi_lane *lane)
{
    eb_store *store = &lane->bus->store;
    EB_ASSERT(!lane->turns.claiming);
    ebi_list_free(store, &lane->claimed);
    ebi_list_free(store, &lane->looks);
    ebi_list_free(store, &lane->win.ready);
    ebi_types_clear(store, &lane->win.parking.parked);
    ebi_types_clear(store, &lane->win.parking.held);
}

/* A new start: the epoch is one that no row has seen yet. */
EBI_FN void ebi_lane_begin(ebi_lane *lane, int64_t epoch)
{
    EBI_LEADS(&lane->bus->store);
    EB_ASSERT(epoch > 0 && !lane->turns.claiming);
    lane->win.epoch = epoch;
}

/* Rows have changed, who knows which: the next claims find out. Lock held. */
EBI_FN void ebi_lane_stir(ebi_lane *lane)
{
    EBI_HELD(&lane->bus->store);
    lane->win.disk_more = lane->win.suspects = 1;
    lane->win.suspect_at = lane->win.next_due_ms = 0;
}

/* A suspect may have come to the head of its key. Lock held. */
EBI_FN void ebi_lane_suspects(ebi_lane *lane)
{
    EBI_HELD(&lane->bus->store);
    lane->win.suspects = 1;
    lane->win.suspect_at = 0;
}

/* Something is due at due_ms. Lock held. */
EBI_FN void ebi_lane_due(ebi_lane *lane, int64_t due_ms)
{
    eb_bus *bus = lane->bus;
    EBI_HELD(&bus->store);
    if (due_ms >= lane->win.next_due_ms) return;
    lane->win.next_due_ms = due_ms;
    ebi_keeper_wake(bus);
    ebi_alarms_news(bus);
    ebi_notice(bus, due_ms);
}

/* Claims of workers that what is being published will be born with: taken, or given back. Lock
** held. */
EBI_FN void ebi_lane_reserve(ebi_lane *lane, int claims)
{
    EBI_HELD(&lane->bus->store);
    lane->reserved += claims;
    EB_ASSERT(lane->reserved >= 0);
}

/* The same of room in memory for copies of it, in bytes. */
EBI_FN void ebi_lane_copies(ebi_lane *lane, size_t more, size_t less)
{
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(lane->copies + more >= less);
    lane->copies += more;
    lane->copies -= less;
}

/* There is other work than the lap. Lock held. */
EBI_FN void ebi_lane_busy(ebi_lane *lane)
{
    EBI_HELD(&lane->bus->store);
    lane->win.lap.busy = 1;
}

/* Rows lie above the cursor, for the scan. Lock held. */
EBI_FN void ebi_lane_more(ebi_lane *lane)
{
    EBI_HELD(&lane->bus->store);
    lane->win.disk_more = 1;
    ebi_alarms_work(lane->bus);
}

/* seq is stored and is nothing for the scan: if it comes next, the cursor goes on behind it. Lock
** held. */
EBI_FN int ebi_lane_follow(ebi_lane *lane, int64_t seq)
{
    EBI_HELD(&lane->bus->store);
    if (lane->win.cursor != seq - 1) return 0;
    lane->win.cursor = seq;
    return 1;
}

/* A copy of an event that was born pending: kept if it comes next and there is room, 0: it is not,
** and will be read from disk. Lock held. */
EBI_FN int ebi_lane_keep(ebi_lane *lane, ebi_entry *e)
{
    ebi_window *w = &lane->win;
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(!e->token && !e->due_ms);
    if (w->ready.count >= EB_READY_MAX || w->ready.bytes + e->bytes > EB_READY_BYTES ||
        !ebi_lane_follow(lane, e->seq))
        return 0;
    ebi_list_push(&w->ready, e);
    ebi_alarms_work(lane->bus);
    return 1;
}

/* An event that was born claimed. Lock held. */
EBI_FN void ebi_lane_born(ebi_lane *lane, ebi_entry *e)
{
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(e->token && !e->ordering_key);
    e->due_ms = EBI_NOT_DUE;
    ebi_list_push(&lane->claimed, e);
    ebi_lane_follow(lane, e->seq); /* else it is read anew, and found claimed */
    ebi_alarms_work(lane->bus);
}

/* An event of this type was passed over: nobody matches it, or it waits and holds up others, or its
** subscription is paused. Lock held. */
EBI_FN void ebi_lane_pass_by(ebi_lane *lane, const char *type, int match)
{
    ebi_window *w = &lane->win;
    EBI_HELD(&lane->bus->store);
    ebi_types_add(&lane->bus->store, match == EBI_MATCH_YES ? &w->parking.held : &w->parking.parked,
                  type);
    if (match == EBI_MATCH_PAUSED) w->parking.paused = 1;
}

/* The line of e's key is to be walked by the next claim. Lock held. */
EBI_FN void ebi_lane_look(ebi_lane *lane, ebi_entry *e)
{
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(e->ordering_key);
    ebi_list_push(&lane->looks, e);
}

/* Handlers took so long: more are claimed at once while they are quick and events wait, one when
** not. Lock held. */
EBI_FN void ebi_lane_adapt(ebi_lane *lane, int64_t took_us)
{
    const ebi_window *w = &lane->win;
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(lane->turns.batch >= 1 &&
              (lane->turns.batch == 1 || lane->turns.batch < 2 * EB_CLAIM_MAX));
    if (took_us > EBI_FAST_US) lane->turns.batch = 1;
    else if (!lane->claimed.head && lane->turns.batch < EB_CLAIM_MAX &&
             (w->ready.head || w->disk_more || lane->looks.head ||
              w->next_due_ms <= ebi_clock_now_ms(&lane->bus->store)))
        lane->turns.batch *= 2;
}

/* A suspect ran for so long: the others have as long now. Lock held. */
EBI_FN void ebi_lane_rest(ebi_lane *lane, int64_t took_us)
{
    EBI_HELD(&lane->bus->store);
    lane->win.rest_us =
        ebi_clock_add(ebi_clock_mono_us(&lane->bus->store), took_us > 0 ? took_us : 0);
}

/* Before a claim of seq: recovery looks for claims only up to a mark in meta, so that a start among
** a million pending events need not read them all. The mark is moved in long steps. */
EBI_FN int ebi_lane_mark(ebi_lane *lane, int64_t seq)
{
    eb_bus *bus = lane->bus;
    int rc;
    EB_ASSERT(seq > 0);
    EBI_LEADS(&bus->store);
    if (seq <= bus->lead.claimed_to) return SQLITE_OK;
    rc = ebi_commit_step(&bus->store, EBI_SQL_CLAIMED_TO, seq + EBI_CLAIM_STEP);
    if (rc == SQLITE_OK) ebi_lead_claimed_to(bus, seq + EBI_CLAIM_STEP);
    return rc;
}

/* The same as soon as no claim is under way, which has part of it in its hands. Lock held. */
EBI_FN void ebi_lane_forget(ebi_lane *lane)
{
    EBI_HELD(&lane->bus->store);
    if (lane->turns.claiming) lane->turns.rescan = 2;
    else ebi_window_forget(lane);
}

/* The same as soon as no claim is under way. Lock held. */
EBI_FN void ebi_lane_lap(ebi_lane *lane)
{
    EBI_HELD(&lane->bus->store);
    if (lane->turns.claiming) lane->turns.rescan |= 1;
    else ebi_window_lap(lane);
}

/* A claim begins, or is over: what was asked for meanwhile is done now. Lock held. */
EBI_FN void ebi_lane_claiming(ebi_lane *lane, int on)
{
    int rescan = lane->turns.rescan;
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(lane->turns.claiming != on);
    lane->turns.claiming = on;
    lane->turns.begun += on;
    if (on || !rescan) return;
    lane->turns.rescan = 0;
    if (rescan == 2) ebi_window_forget(lane);
    else ebi_window_lap(lane);
}

/* Whether a subscription that came, or went, changes what was decided about the types in set: then
** what was passed over is looked at again. Lock held. */
EBI_FN void ebi_lane_reconsider(ebi_lane *lane, const char *pattern, const ebi_types *set)
{
    int i, wanted = set->overflow;
    EBI_HELD(&lane->bus->store);
    for (i = 0; i < set->count && !wanted; i++) wanted = ebi_glob(pattern, set->at[i]);
    if (wanted) ebi_lane_lap(lane);
}

/* It came, or came back: is it for something that was parked? */
EBI_FN void ebi_lane_welcome(ebi_lane *lane, const char *pattern)
{
    EBI_HELD(&lane->bus->store);
    ebi_lane_reconsider(lane, pattern, &lane->win.parking.parked);
}

/* It went, or was paused: did something wait for it, and others behind that? */
EBI_FN void ebi_lane_farewell(ebi_lane *lane, const char *pattern)
{
    EBI_HELD(&lane->bus->store);
    if (lane->bus->life.state == EBI_STARTED)
        ebi_lane_reconsider(lane, pattern, &lane->win.parking.held);
}

/* ===========================================================================
** >>passed   Who was left standing in line                        [private]
** ========================================================================
** Which keys have events that were passed over, so that the end of one asks the file only then.
** By the leader, in its transaction; the table itself under the lock. */

/* Which keys have events that were passed over: only for these somebody may wait on disk whom
** nothing but the end of another brings back. By hash of the key; a slot that two keys share says
** so. */
EBI_FN uint64_t *ebi_passed_slot(ebi_lane *lane, const char *key, uint64_t *hash)
{
    EBI_HELD(&lane->bus->store);
    *hash = UINT64_C(14695981039346656037);
    for (; *key; key++) *hash = (*hash ^ (unsigned char)*key) * UINT64_C(1099511628211);
    if (*hash == 0 || *hash == EBI_PASSED_MANY) *hash = 1;
    return &lane->passed.at[*hash % EBI_PASSED];
}

/* The event seq of this key is left on disk, in line, and no copy of it is kept. Takes the lock. */
EBI_FN void ebi_passed_add(ebi_lane *lane, const char *key, int64_t seq)
{
    eb_bus *bus = lane->bus;
    uint64_t hash, *slot;
    ebi_store_lock(&bus->store);
    slot = ebi_passed_slot(lane, key, &hash);
    *slot = *slot == 0 || *slot == hash ? hash : EBI_PASSED_MANY;
    if (seq > lane->passed.to) lane->passed.to = seq;
    ebi_store_unlock(&bus->store);
}

/* Up to which seq events of this key may have been passed over; 0: none was. Takes the lock. */
EBI_FN int64_t ebi_passed_to(ebi_lane *lane, const char *key)
{
    eb_bus *bus = lane->bus;
    uint64_t hash, *slot;
    int64_t to;
    ebi_store_lock(&bus->store);
    slot = ebi_passed_slot(lane, key, &hash);
    to = *slot == hash || *slot == EBI_PASSED_MANY ? lane->passed.to : 0;
    ebi_store_unlock(&bus->store);
    return to;
}

/* Nobody of this key waits up to `to` any more. Takes the lock. */
EBI_FN void ebi_passed_none(ebi_lane *lane, const char *key, int64_t to)
{
    eb_bus *bus = lane->bus;
    uint64_t hash, *slot;
    ebi_store_lock(&bus->store);
    slot = ebi_passed_slot(lane, key, &hash);
    if (*slot == hash && lane->passed.to == to) *slot = 0;
    ebi_store_unlock(&bus->store);
}

/* Whether an event of this key that was passed over, with a seq up to `to`, stands in line.
** SQLite's result. */
EBI_FN int ebi_passed_waits(ebi_lane *lane, const char *key, int64_t to, int *waits)
{
    eb_store *store = &lane->bus->store;
    int64_t passed_to = ebi_passed_to(lane, key);
    int rc, all = to >= passed_to;
    sqlite3_stmt *s;
    EBI_LEADS(store);
    *waits = 0;
    if (passed_to == 0) return SQLITE_OK;
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_WAITS);
    if (!s) return ebi_db_code(&store->writer);
    ebi_bind_text(s, 1, key);
    sqlite3_bind_int64(s, 2, all ? passed_to : to);
    rc = sqlite3_step(s);
    *waits = rc == SQLITE_ROW;
    sqlite3_reset(s);
    if (rc == SQLITE_DONE && all) ebi_passed_none(lane, key, passed_to);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ===========================================================================
** >>outcomes   How a claim ends, on disk                          [private]
** ========================================================================
** What a handler came to waits in memory for a commit to ride on, at most EB_ACK_DELAY_MS, not at
** all if somebody waits for it. Every statement is fenced by the token of the claim: if that was
** revoked, nothing changes. A failed commit keeps them all; they are tried again, later and later.
** */

static const char ebi_no_memory_error[] = "\"out of memory while recording this error\"";

/* Everything that the statements of that family bind: ?1 to ?6, ?7 and ?9. */
typedef struct ebi_end {
    int64_t seq, token; /* token 0: NULL, nobody's */
    int64_t due_ms;     /* EBI_NOT_DUE: NULL */
    const char *status, *now;
    int suspect, snoozes;
    const char *error_json;
} ebi_end;

/* Runs one of them; SQLite's result, *changed: rows. */
EBI_FN int ebi_end_run(eb_store *store, int index, const ebi_end *end, int *changed)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, index);
    int rc, n;
    EB_ASSERT(end->seq != 0);
    EBI_LEADS(store);
    EB_ASSERT(end->now && (index != EBI_SQL_RETRY || (end->status && end->error_json)));
    *changed = 0;
    if (!s) return ebi_db_code(&store->writer);
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    n = sqlite3_bind_parameter_count(s);
    sqlite3_bind_int64(s, EBI_END_SEQ, end->seq);
    if (n >= EBI_END_TOKEN) ebi_bind_some(s, EBI_END_TOKEN, end->token);
    if (n >= EBI_END_DUE && end->due_ms == EBI_NOT_DUE) sqlite3_bind_null(s, EBI_END_DUE);
    else if (n >= EBI_END_DUE) sqlite3_bind_int64(s, EBI_END_DUE, end->due_ms);
    if (n >= EBI_END_STATUS) ebi_bind_text(s, EBI_END_STATUS, end->status);
    if (n >= EBI_END_NOW) ebi_bind_text(s, EBI_END_NOW, end->now);
    if (n >= EBI_END_SUSPECT) ebi_bind_some(s, EBI_END_SUSPECT, end->suspect != 0);
    if (n >= EBI_END_SNOOZES) sqlite3_bind_int(s, EBI_END_SNOOZES, end->snoozes);
    if (n >= EBI_END_ERROR) ebi_bind_text(s, EBI_END_ERROR, end->error_json);
    rc = ebi_db_step(s);
    if (rc == SQLITE_OK) *changed = sqlite3_changes(store->writer.handle);
    return rc;
}

/* The row to the dead letters, then gone. die and gone are DIE and DELETE_LIVE, or the two of
** EBI_SQL_FRESH. */
EBI_FN int ebi_end_dead(eb_store *store, const ebi_end *end, int die, int gone, int *changed)
{
    int rc = ebi_end_run(store, die, end, changed);
    EB_ASSERT(end->error_json && (die == EBI_SQL_DIE) == (gone == EBI_SQL_DELETE_LIVE));
    return rc == SQLITE_OK && *changed ? ebi_end_run(store, gone, end, changed) : rc;
}

/* An event that ended well, without a failed attempt. */
EBI_FN int ebi_end_done(eb_store *store, int64_t seq, int attempts, const char *now)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_FINISH);
    EB_ASSERT(seq > 0 && attempts >= 0);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_int(s, 2, attempts);
    ebi_bind_text(s, 3, now);
    return ebi_db_step(s);
}

/* Lock held; called by the leader before it begins. 1 if there are any. */
EBI_FN int ebi_outcomes_take(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(bus && !bus->out.taking.head);
    ebi_list_append(&bus->out.taking, &bus->out.waiting);
    return bus->out.taking.head != NULL;
}

/* Records one outcome, fenced by its token: if the claim was revoked, nothing changes. */
EBI_FN int ebi_outcome_apply(eb_store *store, ebi_entry *e, const char *now)
{
    int changed = 1, rc = SQLITE_OK, over = 0;
    ebi_end end;
    memset(&end, 0, sizeof end);
    end.seq = e->seq;
    end.token = e->token;
    end.due_ms = e->due_ms;
    end.now = now;
    end.status = "processing";
    end.snoozes = e->outcome == EBI_OUT_SNOOZE;
    end.suspect = e->suspect; /* until it has succeeded */
    end.error_json = e->error_json ? e->error_json : ebi_no_memory_error;
    EB_ASSERT(e->outcome != EBI_OUT_NONE && e->token != 0);
    EB_ASSERT(e->lane);
    switch (e->outcome) {
    case EBI_OUT_DONE:
        over = 1;
        if (e->failed > 0) rc = ebi_end_run(store, EBI_SQL_FINISH_ERRORS, &end, &changed);
        if (rc == SQLITE_OK && changed)
            rc = ebi_end_run(store, EBI_SQL_DELETE_LIVE, &end, &changed);
        if (rc == SQLITE_OK && changed && e->failed == 0)
            rc = ebi_end_done(store, e->seq, 1, now);
        break;
    case EBI_OUT_DEAD:
        over = 1;
        rc = ebi_end_dead(store, &end, EBI_SQL_DIE, EBI_SQL_DELETE_LIVE, &changed);
        break;
    case EBI_OUT_RETRY: rc = ebi_end_run(store, EBI_SQL_RETRY, &end, &changed); break;
    default:
        EB_ASSERT(e->outcome == EBI_OUT_SNOOZE || e->outcome == EBI_OUT_RELEASE);
        rc = ebi_end_run(store, EBI_SQL_SNOOZE, &end, &changed);
    }
    e->stale = !changed;
    if (rc == SQLITE_OK && changed) {
        int back = !over && e->outcome != EBI_OUT_RETRY && e->failed == 0;
        ebi_depths_add(store, back, -(over || back), e->outcome == EBI_OUT_DEAD);
    }
    if (rc != SQLITE_OK || !e->ordering_key) return rc;
    if (!over && !e->stale && e->due_ms == EBI_NOT_DUE)
        ebi_passed_add(e->lane, e->ordering_key, e->seq); /* it is in line again */
    if (e->stale || e->alone) over = 1; /* it is no longer before the others */
    return ebi_passed_waits(e->lane, e->ordering_key, over ? INT64_MAX : e->seq - 1, &e->look);
}

/* Inside the leader's transaction. */
EBI_FN eb_result ebi_outcomes_ride(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_entry *e;
    char now[EBI_TIME_LEN + 1];
    int rc;
    EBI_LEADS(store);
    EB_ASSERT(bus);
    if (!bus->out.taking.head) return EB_OK;
    ebi_time_text(ebi_clock_now_ms(store), now);
    for (e = bus->out.taking.head; e; e = e->next) {
        rc = ebi_outcome_apply(store, e, now);
        if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "recording an outcome");
    }
    return EB_OK;
}

/* One outcome is on disk: counted, told, let go. Lock held. */
EBI_FN void ebi_outcome_done(eb_bus *bus, ebi_entry *e)
{
    int over = e->outcome == EBI_OUT_DONE || e->outcome == EBI_OUT_DEAD;
    int comes_back = !over && e->due_ms != EBI_NOT_DUE;
    EBI_HELD(&bus->store);
    EBI_LEADS(&bus->store);
    EB_ASSERT(e->token != 0 && (!e->look || e->ordering_key));
    if (!e->stale) {
        ebi_figures_delivered(bus, e->outcome == EBI_OUT_DONE);
        ebi_figures_failed(bus, e->outcome == EBI_OUT_RETRY || e->outcome == EBI_OUT_DEAD,
                           e->outcome == EBI_OUT_DEAD);
        ebi_cap_add(bus, -over);
        if (comes_back) ebi_lane_due(e->lane, e->due_ms);
        if (e->outcome == EBI_OUT_RELEASE && e->suspect) ebi_lane_suspects(e->lane);
    } else if (e->outcome != EBI_OUT_RELEASE) {
        ebi_figures_stale(bus);
    }
    if (over)
        ebi_waiters_hit(bus, e->seq, e->stale                      ? EB_EMPTY
                                     : e->outcome == EBI_OUT_DONE ? EB_OK
                                                                  : EB_DEAD);
    e->token = 0;
    if (e->look) ebi_lane_look(e->lane, e);
    else ebi_entry_drop(&bus->store, e);
}

/* Lock held; after the leader's transaction. Failed: keeps everything. */
EBI_FN void ebi_outcomes_rode(eb_store *store, eb_result rc)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_entry *e;
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(bus);
    if (!bus->out.taking.head) return;
    bus->out.rc = rc;
    if (rc != EB_OK) {
        ebi_list_append(&bus->out.taking, &bus->out.waiting);
        ebi_list_append(&bus->out.waiting, &bus->out.taking);
        ebi_alarms_backoff(bus);
        return;
    }
    ebi_alarms_healed(bus);
    while ((e = ebi_list_pop(&bus->out.taking)) != NULL) ebi_outcome_done(bus, e);
    if (bus->lane.looks.head) ebi_alarms_work(bus);
    if (bus->alarms.drainers) ebi_alarms_news(bus);
}

/* A member that writes nothing: the outcomes ride along with it. */
EBI_FN eb_result ebi_outcomes_nothing(eb_store *store, void *arg)
{
    (void)store;
    (void)arg;
    return EB_OK;
}

/* Commits what waits in outcomes together with what func writes, if the lock can be had until
** until_us, and the lead until queue_us (0: no limit); no lock held. */
EBI_FN eb_result ebi_outcomes_flush_with(eb_bus *bus, eb_result (*func)(eb_store *, void *),
                                         int64_t until_us, int64_t queue_us)
{
    ebi_req r;
    eb_result rc;
    ebi_req_init(&r, func, NULL, NULL, EB_DURABLE_NORMAL, until_us);
    r.queue_us = queue_us;
    rc = ebi_writer_commit(&bus->store, &r);
    ebi_store_lock(&bus->store);
    if (rc == EB_OK && bus->out.waiting.head && bus->out.rc != EB_OK)
        rc = ebi_error(bus->out.rc, "outcomes could not be recorded yet: %s",
                       bus->store.notes.trouble);
    ebi_store_unlock(&bus->store);
    return rc;
}

/* The same without anything else. */
EBI_FN eb_result ebi_outcomes_flush(eb_bus *bus, int64_t until_us, int64_t queue_us)
{
    return ebi_outcomes_flush_with(bus, ebi_outcomes_nothing, until_us, queue_us);
}

/* The keeper commits what waits at once. Lock held. */
EBI_FN void ebi_outcomes_hurry(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    bus->out.since_us = 0;
    ebi_keeper_wake(bus);
}

/* Hands an outcome over. Lock held. Returns 1 if it should be committed at once. */
EBI_FN int ebi_outcome_push(eb_bus *bus, ebi_entry *e, int outcome)
{
    int urgent, first = !bus->out.waiting.head;
    EBI_HELD(&bus->store);
    EB_ASSERT(outcome != EBI_OUT_NONE && e->token != 0);
    EB_ASSERT(e->outcome == EBI_OUT_NONE && e->lane);
    e->outcome = outcome;
    if (first) bus->out.since_us = ebi_clock_mono_us(&bus->store);
    urgent = ebi_waiters_any(bus, e->seq) ||
             (bus->alarms.drainers && !bus->lane.claimed.head && !bus->lane.win.ready.head);
    ebi_list_push(&bus->out.waiting, e);
    if (!urgent && first) ebi_keeper_by(bus, bus->out.since_us + EB_ACK_DELAY_MS * 1000);
    return urgent;
}

/* ===========================================================================
** >>messages   What a message may be                              [private]
** ========================================================================
** Checked before anything is copied or written. Pure, but for the limits of the bus. */

/* Bytes of the payload: NULL is null. */
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
    ebi_json json;
    eb_result rc;
    if (!m->type || !ebi_text_name_len(m->type, EBI_TYPE_MAX) || strchr(m->type, '*'))
        return ebi_error(EB_ERR_ARG, "message %u: type must be 1 to 255 bytes of UTF-8 without "
                         "spaces, control characters and '*'", i);
    if (ebi_payload_len(m) > bus->set.max_payload ||
        ebi_text_size(m->metadata) > bus->set.max_payload)
        return ebi_error(EB_ERR_TOO_BIG, "message %u: over max_payload_bytes", i);
    ebi_json_init(&json, m->payload, ebi_payload_len(m));
    if (m->payload && !ebi_json_value(&json))
        return ebi_error(EB_ERR_PAYLOAD, "message %u: payload is not valid JSON: byte %llu: %s", i,
                         (unsigned long long)json.at, json.wrong);
    ebi_json_init(&json, m->metadata, ebi_text_size(m->metadata));
    if (m->metadata && !ebi_json_string_map(&json))
        return ebi_error(EB_ERR_PAYLOAD, "message %u: metadata is not a JSON object of strings: "
                         "byte %llu: %s", i, (unsigned long long)json.at, json.wrong);
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

/* ===========================================================================
** >>unmatched   Events that nobody wants, told to the log         [private]
** ========================================================================
** No lock is held: a logger may publish. */

/* "No handler" counts as one failed attempt, and is logged as one. */
static const char ebi_no_handler[] = "no handler matches this type";
static const char ebi_no_handler_json[] = "\"no handler matches this type\"";
EBI_FN void ebi_unmatched_died(const eb_store *store, const char *id, const char *type)
{
    eb_log_entry entry;
    ebi_log_init(&entry, EB_LOG_ERROR, "event is dead", ebi_no_handler);
    entry.event_id = id;
    entry.type = type;
    entry.attempt = entry.max_attempts = 1;
    ebi_log(store, &entry);
}

/* A warning about a type that nobody matches. No lock held. */
EBI_FN void ebi_unmatched_warn(const eb_store *store, const char *message, const char *id,
                               const char *type)
{
    eb_log_entry entry;
    ebi_log_init(&entry, EB_LOG_WARN, message, NULL);
    entry.event_id = id;
    entry.type = type;
    ebi_log(store, &entry);
}

/* Done without a handler: never in silence, a mistyped type looks like this. No lock held. */
EBI_FN void ebi_unmatched_done(eb_bus *bus, const char *id, const char *type)
{
    int first;
    ebi_store_lock(&bus->store);
    first = ebi_figures_unmatched(bus, type);
    ebi_store_unlock(&bus->store);
    if (first)
        ebi_unmatched_warn(&bus->store, first > 0
                           ? "event is done, but no handler matches its type (said once; see "
                             "on_unmatched)"
                           : "events are done of so many types that no handler matches that "
                             "further ones are not said; see eb_stats.unmatched", id, type);
}

/* ===========================================================================
** >>births   How an event begins                                  [private]
** ========================================================================
** Its rows, written by the leader in the publisher's transaction. If a worker is idle and would
** take the event next, its row is written claimed: no second commit is needed before its handler
** starts. */

/* How a new event starts its life; NONE: its idempotency key was known. */
enum { EBI_BORN_NONE, EBI_BORN_PENDING, EBI_BORN_CLAIMED, EBI_BORN_DONE, EBI_BORN_DEAD };

typedef struct ebi_birth {
    int kind;              /* EBI_BORN_... */
    int counted, attempts; /* of its claim: it spends an attempt; of so many */
    int64_t seq, due_ms;   /* due_ms 0: at once */
    int64_t born, token;   /* the start that it was published in, 0: none; 0: not claimed */
    char now[EBI_TIME_LEN + 1];
} ebi_birth;

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
    size_t copied; /* bytes of the copies in slots */
    int duplicates;
    /* set inside the transaction, undone if it runs again */
    int reserved, born_live;
    int64_t last_seq, due_ms;
} ebi_publish;

/* Whether a worker would take event seq next, so that it may be born claimed: one is idle, and
** there is room in its batch beside what others in this commit were born with (reserved); nothing
** is ready before it, no claim is under way that may take something before it, nothing on disk is
** unread or a suspect, none of these runs alone; and it comes right behind the cursor. Lock held.
*/
EBI_FN int ebi_birth_would_take(const ebi_lane *lane, int64_t seq)
{
    const eb_bus *bus = lane->bus;
    const ebi_window *w = &lane->win;
    EBI_HELD(&bus->store);
    EBI_LEADS(&bus->store);
    EB_ASSERT(lane->reserved >= 0 && seq > 0);
    return lane->reserved + lane->claimed.count < lane->turns.batch * bus->crew.idle &&
           !w->ready.head && !lane->turns.claiming && !w->disk_more && !w->suspects &&
           !bus->calls.solo && w->cursor == seq - 1 - lane->reserved;
}

/* How it begins: finished if nobody matches and the policy says so, claimed if a worker would take
** it, else pending. b->seq and due_ms are given. Takes the lock. */
EBI_FN void ebi_birth_decide(eb_bus *bus, const eb_message *m, int copied, ebi_birth *b)
{
    int match;
    EBI_LEADS(&bus->store);
    EB_ASSERT(b->seq > 0 && b->kind == EBI_BORN_NONE);
    ebi_store_lock(&bus->store);
    b->kind = EBI_BORN_PENDING;
    b->counted = bus->lane.turns.batch == 1;
    b->born = bus->life.state == EBI_STARTED ? bus->life.incarnation : 0;
    match = ebi_subs_match(&bus->subs, m->type, &b->attempts);
    if (b->born && b->due_ms == 0 && match == EBI_MATCH_NONE) {
        if (bus->set.on_unmatched == EB_UNMATCHED_DONE) b->kind = EBI_BORN_DONE;
        if (bus->set.on_unmatched == EB_UNMATCHED_DLQ) b->kind = EBI_BORN_DEAD;
    } else if (b->born && b->due_ms == 0 && match == EBI_MATCH_YES && !m->ordering_key && copied &&
               ebi_birth_would_take(&bus->lane, b->seq)) {
        b->kind = EBI_BORN_CLAIMED;
        ebi_lane_reserve(&bus->lane, 1);
    }
    ebi_store_unlock(&bus->store);
    b->token = b->kind == EBI_BORN_CLAIMED ? ebi_lead_token(bus) : 0;
}

/* The row in event_log; SQLite's result. */
EBI_FN int ebi_birth_log_row(eb_store *store, const eb_message *m, const eb_id *id,
                             const ebi_birth *b)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_LOG_INSERT);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, EBI_LOG_SEQ, b->seq);
    sqlite3_bind_text(s, EBI_LOG_ID, id->str, 36, SQLITE_STATIC);
    ebi_bind_text(s, EBI_LOG_TYPE, m->type);
    sqlite3_bind_text64(s, EBI_LOG_PAYLOAD, m->payload ? m->payload : "null", ebi_payload_len(m),
                        SQLITE_STATIC, SQLITE_UTF8);
    ebi_bind_text(s, EBI_LOG_METADATA, m->metadata);
    ebi_bind_text(s, EBI_LOG_KEY, m->ordering_key);
    ebi_bind_text(s, EBI_LOG_IDEMPOTENCY, m->idempotency_key);
    ebi_bind_text(s, EBI_LOG_PRODUCER, store->who.node_id);
    ebi_bind_some(s, EBI_LOG_DELIVER_AT, b->due_ms);
    sqlite3_bind_text(s, EBI_LOG_CREATED, b->now, EBI_TIME_LEN, SQLITE_STATIC);
    return ebi_db_step(s);
}

/* The row in deliveries; SQLite's result. */
EBI_FN int ebi_birth_live_row(eb_store *store, const eb_message *m, const ebi_birth *b)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_LIVE_INSERT);
    EB_ASSERT(!b->token || (b->born && b->attempts >= 1 && !b->due_ms));
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, EBI_LIVE_SEQ, b->seq);
    ebi_bind_text(s, EBI_LIVE_STATUS, b->token ? "processing" : "pending");
    sqlite3_bind_int(s, EBI_LIVE_ATTEMPTS, b->token && b->counted ? 1 : 0);
    ebi_bind_some(s, EBI_LIVE_MAX_ATTEMPTS, b->token ? b->attempts : 0);
    ebi_bind_some(s, EBI_LIVE_BORN, b->born);
    ebi_bind_some(s, EBI_LIVE_DUE, b->due_ms);
    ebi_bind_text(s, EBI_LIVE_OWNER, b->token ? store->who.node_id : NULL);
    ebi_bind_some(s, EBI_LIVE_TOKEN, b->token);
    ebi_bind_text(s, EBI_LIVE_KEY, m->ordering_key);
    ebi_bind_text(s, EBI_LIVE_UPDATED, b->token ? b->now : NULL);
    return ebi_db_step(s);
}

/* Nobody matches and on_unmatched is EB_UNMATCHED_DLQ: dead from the beginning. */
EBI_FN int ebi_birth_dead(eb_store *store, int64_t seq, const char *now)
{
    ebi_end end;
    int changed;
    memset(&end, 0, sizeof end);
    end.seq = seq;
    end.now = now;
    end.error_json = ebi_no_handler_json;
    return ebi_end_dead(store, &end, EBI_SQL_DIE, EBI_SQL_DELETE_LIVE, &changed);
}

/* The copy, if there is one, knows how its event began. */
EBI_FN void ebi_birth_copy(eb_bus *bus, ebi_entry *e, const eb_id *id, const ebi_birth *b,
                           int64_t now_ms)
{
    EB_ASSERT(!e->next && (b->kind == EBI_BORN_CLAIMED) == (b->token != 0));
    e->lane = &bus->lane;
    e->seq = b->seq;
    e->id = *id;
    e->token = b->token;
    e->counted = b->counted;
    e->born = b->born;
    e->created_at_ms = now_ms;
    e->due_ms = b->due_ms;
}

/* Stores message i as event seq. */
EBI_FN int ebi_birth_store(eb_bus *bus, ebi_publish *p, size_t i, int64_t seq, int64_t now_ms)
{
    eb_store *store = &bus->store;
    const eb_message *m = &p->msgs[i];
    ebi_slot *slot = &p->slots[i];
    ebi_birth b;
    int rc;
    EBI_LEADS(store);
    EB_ASSERT(seq > 0);
    memset(&b, 0, sizeof b);
    b.seq = seq;
    if (m->delay_ms) b.due_ms = ebi_clock_due(now_ms, m->delay_ms);
    else if (m->deliver_at_ms) b.due_ms = ebi_clock_due(0, m->deliver_at_ms);
    ebi_time_text(now_ms, b.now);
    ebi_id_make(store->id_key, seq, &p->ids[i]);
    ebi_birth_decide(bus, m, slot->entry != NULL, &b);
    slot->birth = b.kind;
    p->reserved += b.token != 0;
    if (slot->entry) ebi_birth_copy(bus, slot->entry, &p->ids[i], &b, now_ms);
    if (b.due_ms && (p->due_ms == 0 || b.due_ms < p->due_ms)) p->due_ms = b.due_ms;
    if (b.kind == EBI_BORN_DEAD) ebi_depths_add(store, 0, 0, 1);
    else if (b.kind != EBI_BORN_DONE) ebi_depths_add(store, !b.token, b.token != 0, 0);
    rc = ebi_birth_log_row(store, m, &p->ids[i], &b);
    if (rc == SQLITE_OK && b.token) rc = ebi_lane_mark(&bus->lane, seq);
    if (rc == SQLITE_OK && b.kind == EBI_BORN_DONE)
        return ebi_end_done(store, seq, 0, b.now);
    if (rc == SQLITE_OK) rc = ebi_birth_live_row(store, m, &b);
    if (rc == SQLITE_OK && b.kind == EBI_BORN_DEAD) return ebi_birth_dead(store, seq, b.now);
    p->born_live++;
    return rc;
}

/* ===========================================================================
** >>publish   Messages into a commit                              [private]
** ========================================================================
** A publish is one member of a commit: it appends to the log, and to deliveries what is not over at
** once. Copies for the workers are made before the commit and placed after it (ebi_publish_after),
** unless memory is full: then the scan reads them. event_log is only appended to, in order of seq:
** SQLite has one writer, so a lower seq never commits after a higher one. */

/* 1 if the key is known: *id is then the first event's. -1: SQLite failed. Inside the transaction:
** it sees what earlier messages of the same batch, and other members, have stored. */
EBI_FN int ebi_publish_known(eb_store *store, const char *key, eb_id *id)
{
    sqlite3_stmt *s;
    int rc;
    if (!key) return 0;
    EBI_LEADS(store);
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KNOWN_KEY);
    if (!s) return -1;
    ebi_bind_text(s, 1, key);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) snprintf(id->str, sizeof id->str, "%s", ebi_column(s, 0));
    sqlite3_reset(s);
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : -1;
}

/* For qsort(): two pointers to text. */
EBI_FN int ebi_publish_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* How many of the messages are new; SQLite's result. */
EBI_FN int ebi_publish_new(eb_store *store, const ebi_publish *p, int64_t *count)
{
    const char **keys = (const char **)ebi_alloc(&store->allocator, p->count * sizeof *keys);
    eb_id id;
    size_t i, n = 0;
    int known = 0;
    *count = 0;
    if (!keys) return SQLITE_NOMEM;
    for (i = 0; i < p->count && known >= 0; i++) {
        known = ebi_publish_known(store, p->msgs[i].idempotency_key, &id);
        if (known == 0 && p->msgs[i].idempotency_key) keys[n++] = p->msgs[i].idempotency_key;
        else *count += known == 0;
    }
    qsort(keys, n, sizeof *keys, ebi_publish_compare); /* the same one twice is one event */
    for (i = 0; i < n; i++) *count += i == 0 || strcmp(keys[i], keys[i - 1]) != 0;
    ebi_free(&store->allocator, keys);
    return known < 0 ? ebi_db_code(&store->writer) : SQLITE_OK;
}

/* What refuses a publish before its first write. */
EBI_FN eb_result ebi_publish_refused(eb_bus *bus, const ebi_publish *p, int64_t last_seq)
{
    eb_store *store = &bus->store;
    int64_t count;
    int rc;
    EBI_LEADS(store);
    EB_ASSERT(last_seq >= 0 && p->count > 0);
    if (last_seq > EBI_SEQ_MAX - (int64_t)p->count)
        return ebi_error(EB_ERR_CORRUPT, "damaged: meta.seq_floor is %lld", (long long)last_seq);
    if (bus->set.max_pending <= 0) return EB_OK;
    rc = ebi_publish_new(store, p, &count);
    if (rc == SQLITE_NOMEM) return ebi_error(EB_ERR_NOMEM, "out of memory");
    if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "looking for a key");
    return count > 0 ? ebi_cap_check(bus, count, last_seq) : EB_OK;
}

/* Gives back what births of a first run have reserved. Takes the lock. */
EBI_FN void ebi_publish_unreserve(eb_bus *bus, ebi_publish *p)
{
    EBI_LEADS(&bus->store);
    EB_ASSERT(p->reserved > 0);
    ebi_store_lock(&bus->store);
    ebi_lane_reserve(&bus->lane, -p->reserved);
    ebi_store_unlock(&bus->store);
    p->reserved = 0;
}

/* This is another file than we knew: what memory has of it is forgotten, and before the next commit
** its claims are compared with ours. Lock held; by the leader. */
EBI_FN void ebi_publish_anew(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    EBI_LEADS(&bus->store);
    ebi_lane_forget(&bus->lane);
    ebi_depths_forget(bus);
    ebi_alarms_hope(bus);
    ebi_lead_claimed_to(bus, 0);
    ebi_cap_forget(bus);
    bus->store.trust.must_resync = 1;
}

/* The last sequence number, and whether this is still the file that we know: after a backup was
** restored into it, numbers come again that the dispatcher has passed, or the id key is another.
** (Or neither: see ebi_clockwork_replaced().) Others publish too: nothing of this is kept. */
EBI_FN eb_result ebi_publish_last(eb_bus *bus, int64_t *seq)
{
    eb_store *store = &bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_LAST_SEQ);
    uint64_t key[2] = {0, 0};
    int rc = s ? sqlite3_step(s) : ebi_db_code(&store->writer), bad = 0, other;
    EBI_LEADS(store);
    if (rc == SQLITE_ROW) {
        *seq = ebi_column_within(s, 0, "meta.seq_floor or event_log.seq", 0, EBI_SEQ_MAX, &bad);
        key[0] = (uint64_t)sqlite3_column_int64(s, 1);
        key[1] = (uint64_t)sqlite3_column_int64(s, 2);
    }
    sqlite3_reset(s);
    if (rc != SQLITE_ROW)
        return ebi_commit_error(store, rc == SQLITE_DONE ? SQLITE_CORRUPT : rc,
                                "reading the last sequence number");
    if (bad) return EB_ERR_CORRUPT;
    other = key[0] != store->id_key[0] || key[1] != store->id_key[1];
    ebi_store_lock(store);
    store->id_key[0] = key[0];
    store->id_key[1] = key[1];
    if (other || *seq < bus->lane.win.cursor) ebi_publish_anew(bus);
    ebi_store_unlock(store);
    return EB_OK;
}

/* Inside the transaction. */
EBI_FN eb_result ebi_publish_func(eb_store *store, void *arg)
{
    ebi_publish *p = (ebi_publish *)arg;
    eb_bus *bus = ebi_bus_of(store);
    int64_t seq = 0, now_ms = ebi_clock_now_ms(store);
    size_t i;
    int rc, known;
    eb_result result;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    EBI_LEADS(store);
    EB_ASSERT(bus && p->count > 0);
    if ((store->trust.moved || store->writer.level == EB_DURABLE_FULL) && ebi_commit_moved(store))
        return ebi_error(EB_ERR_IO, "%s was moved or deleted", store->place.path);
    if (p->reserved) ebi_publish_unreserve(bus, p); /* a second run */
    p->duplicates = p->born_live = 0;
    p->due_ms = 0;
    result = ebi_publish_last(bus, &seq);
    if (result == EB_OK) result = ebi_publish_refused(bus, p, seq);
    if (result != EB_OK) return result;
    for (i = 0; i < p->count; i++) {
        known = ebi_publish_known(store, p->msgs[i].idempotency_key, &p->ids[i]);
        if (known > 0) {
            p->duplicates++;
            p->slots[i].birth = EBI_BORN_NONE;
            continue;
        }
        rc = known < 0 ? ebi_db_code(&store->writer)
                       : ebi_birth_store(bus, p, i, ++seq, now_ms);
        if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "storing an event");
    }
    p->last_seq = seq;
    return p->duplicates ? EB_DUPLICATE : EB_OK;
}

/* Puts a stored event where it belongs in memory. Lock held. Returns 1 if it was taken. */
EBI_FN int ebi_publish_place(eb_bus *bus, ebi_entry *e, int birth)
{
    ebi_lane *lane = &bus->lane;
    EBI_HELD(&bus->store);
    EB_ASSERT(e->lane && e->seq > 0 && (birth == EBI_BORN_CLAIMED) == (e->token != 0));
    if (birth == EBI_BORN_CLAIMED) {
        ebi_lane_born(lane, e);
        return 1;
    }
    if (bus->life.state != EBI_STARTED) return 0;
    if (birth == EBI_BORN_PENDING && !e->due_ms) return ebi_lane_keep(lane, e);
    ebi_lane_follow(lane, e->seq);
    return 0;
}

/* Lock held, after the commit. */
EBI_FN void ebi_publish_after(eb_store *store, void *arg, eb_result rc)
{
    ebi_publish *p = (ebi_publish *)arg;
    eb_bus *bus = ebi_bus_of(store);
    size_t i;
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(!p->waiter || p->count == 1);
    ebi_lane_reserve(&bus->lane, -p->reserved);
    p->reserved = 0;
    if (rc < 0) return;
    ebi_figures_published(bus, (int64_t)p->count - p->duplicates);
    ebi_cap_published(bus, p->born_live, p->last_seq);
    if (p->waiter) {
        p->waiter->seq = p->last_seq;
        p->waiter->hit = p->slots[0].birth >= EBI_BORN_DONE; /* it is over already */
        if (p->slots[0].birth == EBI_BORN_DONE) p->waiter->known = EB_OK;
        if (p->slots[0].birth == EBI_BORN_DEAD) p->waiter->known = EB_DEAD;
        ebi_waiters_add(bus, p->waiter);
    }
    if (p->due_ms) ebi_lane_due(&bus->lane, p->due_ms);
    for (i = 0; i < p->count; i++) {
        ebi_slot *slot = &p->slots[i];
        if (slot->birth == EBI_BORN_DEAD) ebi_figures_failed(bus, 1, 1);
        if (slot->entry && slot->birth != EBI_BORN_NONE &&
            ebi_publish_place(bus, slot->entry, slot->birth))
            slot->entry = NULL;
    }
    if (bus->life.state != EBI_STARTED) return;
    if (bus->lane.win.cursor < p->last_seq) ebi_lane_more(&bus->lane);
    if (bus->lane.win.disk_more || bus->lane.win.ready.head) ebi_notice(bus, 0);
}

/* Copies of the messages for the workers, as far as there is room in memory; the others are read
** from disk later. Running out of memory is no reason not to publish. */
EBI_FN void ebi_publish_copies(eb_bus *bus, ebi_publish *p)
{
    eb_store *store = &bus->store;
    size_t i, size, room;
    int count;
    ebi_store_lock(store);
    EB_ASSERT(p->count > 0 && p->copied == 0);
    count = bus->life.state == EBI_STARTED && !bus->lane.win.disk_more && bus->subs.first
                ? EB_READY_MAX - bus->lane.win.ready.count : 0;
    room = bus->lane.win.ready.bytes + bus->lane.claimed.bytes + bus->lane.copies;
    room = room < EB_READY_BYTES ? EB_READY_BYTES - room : 0;
    for (i = 0; i < p->count && (int)i < count; i++) {
        size = ebi_entry_size(&p->msgs[i], ebi_payload_len(&p->msgs[i]), store->who.node_id, NULL);
        if (size > room - p->copied) break;
        p->copied += size;
    }
    count = (int)i;
    ebi_lane_copies(&bus->lane, p->copied, 0);
    ebi_store_unlock(store);
    for (i = 0; i < p->count; i++)
        p->slots[i].entry = (int)i < count
                                ? ebi_entry_new(store, &p->msgs[i], ebi_payload_len(&p->msgs[i]),
                                                store->who.node_id, NULL)
                                : NULL;
}

/* What was not taken is let go. */
EBI_FN void ebi_publish_let_go(eb_bus *bus, ebi_publish *p)
{
    size_t i;
    ebi_store_lock(&bus->store);
    ebi_lane_copies(&bus->lane, 0, p->copied);
    ebi_store_unlock(&bus->store);
    for (i = 0; i < p->count; i++)
        if (p->slots[i].entry) ebi_entry_drop(&bus->store, p->slots[i].entry);
}

/* Tells the log of events that nobody matched. */
EBI_FN void ebi_publish_say(eb_bus *bus, const ebi_publish *p)
{
    size_t i;
    for (i = 0; i < p->count; i++) {
        if (p->slots[i].birth == EBI_BORN_DEAD)
            ebi_unmatched_died(&bus->store, p->ids[i].str, p->msgs[i].type);
        if (p->slots[i].birth == EBI_BORN_DONE)
            ebi_unmatched_done(bus, p->ids[i].str, p->msgs[i].type);
    }
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
    EB_ASSERT(!w || count == 1);
    if (count > 0 && !msgs) return ebi_error(EB_ERR_ARG, "msgs is NULL");
    if (count > INT32_MAX / sizeof(eb_id)) return ebi_error(EB_ERR_TOO_BIG, "too many messages");
    for (i = 0; i < count; i++) {
        rc = ebi_message_check(bus, &msgs[i], i);
        if (rc != EB_OK) return rc;
        asks = msgs[i].durability ? msgs[i].durability : store->durability;
        if (asks < level) level = asks; /* FULL is the smallest number */
    }
    ebi_store_lock(store);
    if (bus->life.state >= EBI_STOPPING)
        rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is shutting down");
    ebi_store_unlock(store);
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
        ebi_publish_let_go(bus, &p);
        if (rc >= 0) ebi_publish_say(bus, &p);
        for (i = 0; i < count && rc < 0 && rc != EB_ERR_UNKNOWN; i++) p.ids[i].str[0] = 0;
    }
    if (p.slots != &one) ebi_free(&store->allocator, p.slots);
    if (!ids && p.ids != &one_id) ebi_free(&store->allocator, p.ids);
    if (rc >= 0) ebi_notice_tell(bus);
    return rc;
}

/* ===========================================================================
** >>keys   Events of one ordering key, one after the other        [private]
** ========================================================================
** Two events of one key never run at the same time, and those that can run do so in order of
** publishing. One structure on disk says who stands before whom:
**
**   The line of a key are its rows in deliveries that are not merely delayed and untried
**   (EBI_SQL_IN_LINE) and have not stepped aside (`aside`), by seq. Whoever is to be claimed is
**   claimed along the line, from its head (ebi_line_walk). The walk stops at the first row that
**   must be waited for:
**     - a row that waits for a retry or a snooze: later ones may not overtake it;
**     - a row that somebody else claimed, or whose outcome is not on disk yet: it may come back;
**     - a suspect: it runs alone, and only then those behind it;
**   and does not begin at all while a row of the key, wherever it stands, is `processing` by hand.
**   It goes on behind rows that nobody matches, waiting or not: these step aside and hold up
**   nobody, until the epoch changes. Before it walks, rows whose time has come and rows that
**   stepped aside in an older epoch are put into line, else a later event could overtake them.
**
** In memory, bus->lane.keys has the head of each key that is under way: claimed, or being run. What
** else was claimed of the key hangs behind it, by seq, and is started when the head has ended well.
** When the head comes back instead (a retry, a snooze), all of it goes back to its place in line,
** untried. So does what a claim wins meanwhile, which has found the head under way and walked past
** it (lane->back), and what was claimed and finds, when it is to start, that another one has got a
** place before it: see ebi_start_yields().
**
** A claim walks the line up to the event it has in hand. Who cannot be claimed is passed over: it
** stays in line, no copy of it is kept, and nothing but the end of another of its key brings it
** back. So the commit that records an end asks, if somebody of that key was passed over at all
** (ebi_passed_add), whether somebody waits (ebi_passed_waits). If so, the event that ended goes to
** bus->lane.looks, and the next claim walks that line again. Whoever changes a line from outside
** rings for any one of its rows by due_ms 0 (EBI_SQL_KEY_RING, the trigger events_update): what is
** due is walked too. */

EBI_FN uint32_t ebi_key_bucket(const char *key)
{
    return ebi_hash(key, strlen(key)) % EBI_KEY_BUCKETS;
}

/* Where the head of a key hangs, or would. */
EBI_FN ebi_entry **ebi_key_slot(ebi_lane *lane, const char *key)
{
    ebi_entry **at = &lane->keys[ebi_key_bucket(key)];
    EBI_HELD(&lane->bus->store);
    while (*at && strcmp((*at)->ordering_key, key) != 0) at = &(*at)->key_next;
    return at;
}

/* The event that is under way, or behind it, with this seq; NULL: none. Lock held. */
EBI_FN const ebi_entry *ebi_key_has(ebi_lane *lane, const char *key, int64_t seq)
{
    const ebi_entry *e = *ebi_key_slot(lane, key);
    EBI_HELD(&lane->bus->store);
    if (!e || e->seq == seq) return e;
    for (e = e->behind; e && e->seq != seq;) e = e->next;
    return e;
}

/* A claimed event of a key: it heads it, stands behind the head, or goes back. Lock held. */
EBI_FN void ebi_key_enter(ebi_lane *lane, ebi_entry *e)
{
    ebi_entry **at = ebi_key_slot(lane, e->ordering_key);
    EBI_HELD(&lane->bus->store);
    EB_ASSERT(e->token != 0 && e->outcome == EBI_OUT_NONE);
    EB_ASSERT(lane->turns.claiming);
    e->key_next = e->behind = NULL;
    if (lane->back[ebi_key_bucket(e->ordering_key)]) {
        e->due_ms = EBI_NOT_DUE;
        e->alone = 1; /* the head's place is before it, so the line is to be looked at again */
        if (e->suspect) ebi_calls_solo(lane->bus, 0);
        ebi_outcome_push(lane->bus, e, EBI_OUT_RELEASE);
        return;
    }
    if (!*at) {
        *at = e;
        ebi_list_push(&lane->claimed, e);
        return;
    }
    for (at = &(*at)->behind; *at && (*at)->seq < e->seq;) at = &(*at)->next;
    e->next = *at;
    *at = e;
    lane->chained++;
}

/* The head is no longer under way. goes_on: the next behind it is started, else all go back to
** disk. Lock held. */
EBI_FN void ebi_key_leave(ebi_lane *lane, ebi_entry *head, int goes_on)
{
    eb_bus *bus = lane->bus;
    ebi_entry **at, *next, *e = head->behind;
    EBI_HELD(&bus->store);
    EB_ASSERT(head->token != 0 && (!e || (head->ordering_key && lane->chained > 0)));
    if (!head->ordering_key) return;
    at = ebi_key_slot(lane, head->ordering_key);
    if (*at != head) return; /* its claim was given up before */
    if (!goes_on) lane->back[ebi_key_bucket(head->ordering_key)] = 1;
    *at = head->key_next;
    head->behind = head->key_next = NULL;
    if (e && goes_on) {
        lane->chained--;
        e->behind = e->next;
        e->key_next = *at;
        *at = e;
        ebi_list_push_front(&lane->claimed, e);
        return;
    }
    for (; e; e = next) {
        next = e->next;
        lane->chained--;
        e->due_ms = EBI_NOT_DUE; /* in line, not at once: behind the one that comes back */
        ebi_outcome_push(bus, e, EBI_OUT_RELEASE);
    }
}

/* An event of a key will wait, and others behind it, for as long as somebody matches it. 1: nobody
** does already. Lock held. */
EBI_FN int ebi_key_comes_back(ebi_lane *lane, const char *type)
{
    eb_bus *bus = lane->bus;
    int attempts;
    EBI_HELD(&bus->store);
    if (ebi_subs_match(&bus->subs, type, &attempts) != EBI_MATCH_YES) return 1;
    ebi_lane_pass_by(lane, type, EBI_MATCH_YES);
    return 0;
}

/* The row of seq is somebody else's now: its claim is forgotten; if a handler has begun with it, no
** further one does. Lock held. */
EBI_FN void ebi_key_revoke(ebi_lane *lane, int64_t seq)
{
    eb_bus *bus = lane->bus;
    ebi_entry *e, *previous = NULL, **at;
    ebi_run *run;
    int i;
    EBI_HELD(&bus->store);
    EB_ASSERT(seq > 0);
    for (run = bus->calls.first; run; run = run->next)
        if (run->entry->seq == seq) run->entry->revoked = 1;
    for (e = lane->starting.head; e; e = e->next)
        if (e->seq == seq) e->revoked = 1;
    for (e = lane->win.ready.head; e && e->seq != seq; e = e->next) previous = e;
    if (e) ebi_entry_drop(&bus->store, ebi_list_take(&lane->win.ready, previous));
    previous = NULL;
    for (e = lane->claimed.head; e && e->seq != seq; e = e->next) previous = e;
    if (e) {
        ebi_list_take(&lane->claimed, previous);
        ebi_key_leave(lane, e, 1);
        if (e->suspect) ebi_calls_solo(bus, 0);
        ebi_entry_drop(&bus->store, e);
        return;
    }
    for (i = 0; i < EBI_KEY_BUCKETS && lane->chained; i++) {
        for (e = lane->keys[i]; e; e = e->key_next) {
            for (at = &e->behind; *at && (*at)->seq != seq;) at = &(*at)->next;
            if (!*at) continue;
            e = *at;
            *at = e->next;
            lane->chained--;
            ebi_entry_drop(&bus->store, e);
            return;
        }
    }
}

/* Calls func with every claimed event that no handler has begun with, until it returns 1. Lock
** held. */
EBI_FN int ebi_key_each(ebi_lane *lane, int (*func)(const ebi_entry *e, void *arg), void *arg)
{
    const ebi_entry *e, *head;
    int i;
    EBI_HELD(&lane->bus->store);
    for (e = lane->claimed.head; e; e = e->next)
        if (func(e, arg)) return 1;
    for (e = lane->starting.head; e; e = e->next)
        if (func(e, arg)) return 1;
    for (i = 0; i < EBI_KEY_BUCKETS && lane->chained; i++)
        for (head = lane->keys[i]; head; head = head->key_next)
            for (e = head->behind; e; e = e->next)
                if (func(e, arg)) return 1;
    return 0;
}

/* ===========================================================================
** >>claims   One event, claimed, parked or ended                  [private]
** ========================================================================
** One claim at a time (`claiming`), in a transaction that others' publishes share, so it does a
** bounded slice of everything: EBI_SLICE rows looked at, EBI_CLAIM_MAX events or EB_READY_BYTES
** claimed. Memory changes after the commit, in ebi_turn_after(). */

/* A line, as far as a claim has gone along it. */
enum { EBI_LINES = 32 };
enum { EBI_LINE_NEW, EBI_LINE_GO, EBI_LINE_STOP };
typedef struct ebi_line {
    int state, mine; /* mine: so many of it are claimed by this bus, at most EBI_LINE_MAX */
    int plain;       /* who stopped it is no suspect */
    int64_t to;      /* everything up to here is claimed, has ended or steps aside */
    char key[EBI_KEY_MAX + 1];
} ebi_line;

typedef struct ebi_claim {
    ebi_lane *lane;
    /* what is asked for */
    int want;      /* so many events */
    int alone;     /* a suspect, and nothing else */
    int single;    /* a claim of one event counts an attempt */
    int due_first; /* this time; the next time what is ready */
    ebi_view view; /* of the window; as far as it has come with it */
    /* what it found */
    ebi_list loaded;     /* read from disk in this transaction */
    ebi_list again;      /* keys to be walked once more */
    ebi_list won;        /* claimed in it */
    ebi_list dead, done; /* nobody matches them, and the policy says so */
    int64_t now_ms;
    int apart;    /* bits of EBI_SQL_ANY_APART */
    int suspects; /* a walk met one */
    int lap_slice, lapped; /* it took a slice of the lap, which came to its end */
    int64_t began_us; /* its work in the transaction */
    int due_now;      /* there are rows that are due */
    int asked, late;  /* it has taken long enough */
    int attempts;     /* of the handlers that match the event in hand */
    int waits;    /* what is due waits for its key's turn or for nobody */
    int ended;    /* how many live rows are gone */
    int walked;   /* rows of keys looked at or moved: EBI_SLICE is enough for one commit */
    int64_t token; /* tokens above are of this claim */
    ebi_line lines[EBI_LINES]; /* by hash of the key */
    int looked;   /* it read what is due */
    int warn;     /* unmatched_type is to be told */
    char now[EBI_TIME_LEN + 1];
    char unmatched_type[EBI_TYPE_MAX + 1];
} ebi_claim;

/* Nobody has memory for more than this, or patience: others wait for the lock. */
EBI_FN int ebi_claim_full(const ebi_claim *c)
{
    return c->want <= 0 || c->walked >= EBI_SLICE || c->won.bytes >= EB_READY_BYTES || c->late;
}

/* Looks at the time now and then. */
EBI_FN void ebi_claim_time(ebi_claim *c)
{
    eb_store *store = &c->lane->bus->store;
    EBI_LEADS(store);
    if (++c->asked % 16 == 0 && ebi_clock_mono_us(store) - c->began_us > EBI_CLAIM_US) c->late = 1;
}

/* As ebi_subs_match(). Takes the lock. */
EBI_FN int ebi_claim_match(ebi_lane *lane, const char *type, int *attempts)
{
    eb_bus *bus = lane->bus;
    int match;
    EBI_LEADS(&bus->store);
    ebi_store_lock(&bus->store);
    match = ebi_subs_match(&bus->subs, type, attempts);
    ebi_store_unlock(&bus->store);
    return match;
}

/* CLAIM, CLAIM_PLAIN or PARK, fenced by what was read of the row. *won = 0: the copy is old. */
EBI_FN int ebi_claim_fenced(const ebi_claim *c, int index, const ebi_entry *e, int64_t p3, int *won)
{
    eb_store *store = &c->lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, index);
    int rc;
    EBI_LEADS(store);
    EB_ASSERT((index == EBI_SQL_PARK) == (e->token == 0));
    *won = 0;
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, EBI_FENCE_SEQ, e->seq);
    sqlite3_bind_int64(s, EBI_FENCE_SETS, p3); /* counted, or aside */
    if (index != EBI_SQL_PARK) {
        sqlite3_bind_int64(s, EBI_FENCE_TOKEN, e->token);
        ebi_bind_text(s, EBI_FENCE_OWNER, store->who.node_id);
        ebi_bind_text(s, EBI_FENCE_UPDATED, c->now);
        sqlite3_bind_int(s, EBI_FENCE_MAX_ATTEMPTS, c->attempts);
    }
    ebi_bind_text(s, EBI_FENCE_STATUS, e->waits ? "processing" : "pending");
    sqlite3_bind_int(s, EBI_FENCE_FAILED, e->failed);
    sqlite3_bind_int(s, EBI_FENCE_SNOOZES, e->snoozes);
    if (index != EBI_SQL_CLAIM_PLAIN) {
        sqlite3_bind_int(s, EBI_FENCE_SUSPECT, e->suspect);
        sqlite3_bind_int64(s, EBI_FENCE_DUE_BY, c->now_ms);
    }
    rc = ebi_db_step(s);
    *won = rc == SQLITE_OK && sqlite3_changes(store->writer.handle) == 1;
    if (*won && index == EBI_SQL_PARK) ebi_depths_add(store, e->waits, -e->waits, 0);
    else if (*won) ebi_depths_add(store, -!e->waits, !e->waits, 0);
    return rc;
}

/* What became of an event that a claim looked at. */
enum {
    EBI_CLAIM_LEFT,  /* nobody matches it, or its handler is paused: it stays where it is */
    EBI_CLAIM_TAKEN, /* it belongs to a list of the claim now */
    EBI_CLAIM_OLD    /* the row has changed since this copy was read: nothing was done */
};

/* The claim itself. A plain row changes in no column that an index has. */
EBI_FN int ebi_claim_row(ebi_claim *c, ebi_entry *e, int plain, int *fate)
{
    ebi_lane *lane = c->lane;
    int rc, won;
    EB_ASSERT(c->attempts >= 1 && !ebi_claim_full(c));
    EB_ASSERT(!e->token && e->outcome == EBI_OUT_NONE && e->lane == lane);
    e->token = ebi_lead_token(lane->bus);
    e->counted = c->single || c->alone;
    rc = ebi_claim_fenced(c, plain ? EBI_SQL_CLAIM_PLAIN : EBI_SQL_CLAIM, e, e->counted, &won);
    *fate = won ? EBI_CLAIM_TAKEN : EBI_CLAIM_OLD;
    e->epoch = c->view.epoch;
    if (!won) e->token = 0;
    if (!won) return rc;
    ebi_list_push(&c->won, e);
    c->want--;
    ebi_claim_time(c);
    return ebi_lane_mark(lane, e->seq);
}

/* Leaves the event where it is, out of the way: nobody matches it, or its handler is paused. One
** with a key, or a suspect, steps aside in its row. A plain row without a key needs no write. */
EBI_FN int ebi_claim_park(ebi_claim *c, const ebi_entry *e, int match, int plain, int *fate)
{
    ebi_lane *lane = c->lane;
    eb_store *store = &c->lane->bus->store;
    eb_bus *bus = lane->bus;
    int64_t aside;
    int won, rc;
    *fate = EBI_CLAIM_LEFT;
    EBI_LEADS(store);
    EB_ASSERT(match != EBI_MATCH_YES && !e->token);
    ebi_store_lock(store);
    ebi_lane_pass_by(lane, e->type, match);
    if (ebi_subs_match(&bus->subs, e->type, &won) != match) ebi_lane_lap(lane); /* somebody came */
    if (match == EBI_MATCH_NONE && !lane->turns.said) {
        lane->turns.said = c->warn = 1;
        snprintf(c->unmatched_type, sizeof c->unmatched_type, "%s", e->type);
    }
    ebi_store_unlock(store);
    c->waits = 1;
    if (plain && !e->ordering_key) return SQLITE_OK;
    if (e->seq > c->view.cursor) c->view.more = 1; /* it is plain from now on: a lap must come by */
    aside = e->ordering_key || e->suspect ? c->view.epoch : 0;
    rc = ebi_claim_fenced(c, EBI_SQL_PARK, e, aside, &won);
    if (!won) *fate = EBI_CLAIM_OLD;
    return rc;
}

/* Nobody matches. The policy concerns only what was published in this start and never tried; it is
** fenced by that. */
EBI_FN int ebi_claim_unmatched(ebi_claim *c, ebi_entry *e, int plain, int *fate)
{
    ebi_lane *lane = c->lane;
    eb_store *store = &c->lane->bus->store;
    eb_bus *bus = lane->bus;
    int fresh = e->born && e->born == bus->life.incarnation && !e->failed && !e->suspect &&
                !e->retried;
    int rc, gone;
    ebi_end end;
    EB_ASSERT(!e->token);
    EBI_LEADS(store);
    EB_ASSERT(bus->life.incarnation > 0);
    if (!fresh || bus->set.on_unmatched == EB_UNMATCHED_KEEP)
        return ebi_claim_park(c, e, EBI_MATCH_NONE, plain, fate);
    *fate = EBI_CLAIM_OLD;
    memset(&end, 0, sizeof end);
    end.seq = e->seq;
    end.token = bus->life.incarnation;
    end.now = c->now;
    end.error_json = ebi_no_handler_json;
    if (bus->set.on_unmatched == EB_UNMATCHED_DLQ)
        rc = ebi_end_dead(store, &end, EBI_SQL_DIE_FRESH, EBI_SQL_DELETE_FRESH, &gone);
    else
        rc = ebi_end_run(store, EBI_SQL_DELETE_FRESH, &end, &gone);
    if (rc != SQLITE_OK || !gone) return rc;
    *fate = EBI_CLAIM_TAKEN;
    ebi_depths_add(store, -1, 0, bus->set.on_unmatched == EB_UNMATCHED_DLQ);
    c->ended++;
    ebi_list_push(bus->set.on_unmatched == EB_UNMATCHED_DLQ ? &c->dead : &c->done, e);
    return bus->set.on_unmatched == EB_UNMATCHED_DLQ ? SQLITE_OK
                                                     : ebi_end_done(store, e->seq, 0, c->now);
}

/* An event that nobody stands before. plain: its row waits for nothing. */
EBI_FN int ebi_claim_judge(ebi_claim *c, ebi_entry *e, int plain, int *fate)
{
    int match = ebi_claim_match(c->lane, e->type, &c->attempts);
    EB_ASSERT(!e->token);
    if (match == EBI_MATCH_NONE) return ebi_claim_unmatched(c, e, plain, fate);
    if (match == EBI_MATCH_PAUSED) return ebi_claim_park(c, e, match, plain, fate);
    return ebi_claim_row(c, e, plain, fate);
}

/* ===========================================================================
** >>lines   The line of a key, walked                             [private]
** ========================================================================
** See >>keys. In the transaction of a claim; by the leader. */

EBI_FN int ebi_line_not_due(eb_store *store, int64_t seq, int64_t now_ms)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_NOT_DUE);
    EBI_LEADS(store);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_int64(s, 2, now_ms);
    return ebi_db_step(s);
}

/* Brings into line what find finds of a key below a number (a time, or an epoch); *changed: rows.
** An UPDATE with a subquery would build two temporary trees each time, for nothing in most cases.
*/
EBI_FN int ebi_line_move(ebi_lane *lane, int find, const char *key, int64_t number, int *changed)
{
    eb_store *store = &lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, find);
    int64_t seqs[EBI_KEY_STEP];
    int rc, n = 0, i;
    *changed = 0;
    EBI_LEADS(store);
    EB_ASSERT(find == EBI_SQL_KEY_DUE || find == EBI_SQL_KEY_AGAIN);
    if (!s) return ebi_db_code(&store->writer);
    ebi_bind_text(s, 1, key);
    sqlite3_bind_int64(s, 2, number);
    sqlite3_bind_int(s, 3, EBI_KEY_STEP);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && n < EBI_KEY_STEP)
        seqs[n++] = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    for (i = 0; i < n && rc == SQLITE_OK; i++) {
        ebi_passed_add(lane, key, seqs[i]);
        rc = find == EBI_SQL_KEY_DUE ? ebi_line_not_due(store, seqs[i], number)
                                     : ebi_commit_step(store, EBI_SQL_NOT_ASIDE, seqs[i]);
    }
    *changed = n;
    return rc;
}

/* Whether a row of this key is in somebody's hands. */
EBI_FN int ebi_line_by_hand(ebi_lane *lane, const char *key, int *by_hand)
{
    eb_store *store = &lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_BY_HAND);
    int rc;
    EBI_LEADS(store);
    if (!s) return ebi_db_code(&store->writer);
    ebi_bind_text(s, 1, key);
    rc = sqlite3_step(s);
    *by_hand = rc == SQLITE_ROW;
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Puts into line what belongs there. line->state stays NEW if there is more than one commit should
** do, and becomes STOP if a row of this key is in somebody's hands, which rings when that is over.
*/
EBI_FN int ebi_line_prepare(ebi_claim *c, ebi_line *line)
{
    eb_store *store = &c->lane->bus->store;
    int rc = SQLITE_OK, due = 0, back = 0, by_hand = 0;
    int64_t bits;
    EBI_LEADS(store);
    EB_ASSERT(line->state == EBI_LINE_NEW && c->apart >= -1 && c->apart <= 3);
    if (c->due_now) rc = ebi_line_move(c->lane, EBI_SQL_KEY_DUE, line->key, c->now_ms, &due);
    if (rc == SQLITE_OK)
        rc = ebi_line_move(c->lane, EBI_SQL_KEY_AGAIN, line->key, c->view.epoch, &back);
    c->walked += due + back;
    if (rc == SQLITE_OK && c->apart < 0) {
        rc = ebi_db_number(store, &store->writer, EBI_SQL_ANY_APART, &bits);
        c->apart = (int)bits;
    }
    if (rc == SQLITE_OK && (c->apart & 2)) rc = ebi_line_by_hand(c->lane, line->key, &by_hand);
    line->to = line->mine = line->plain = 0;
    if (due == EBI_KEY_STEP || back == EBI_KEY_STEP) return rc;
    line->state = by_hand ? EBI_LINE_STOP : EBI_LINE_GO;
    return rc;
}

/* What this claim knows of the line of a key: within a transaction nobody else changes it. */
EBI_FN int ebi_line_find(ebi_claim *c, const char *key, ebi_line **line)
{
    EB_ASSERT(strlen(key) <= EBI_KEY_MAX);
    *line = &c->lines[ebi_hash(key, strlen(key)) % EBI_LINES];
    if ((*line)->state != EBI_LINE_NEW && strcmp((*line)->key, key) == 0) return SQLITE_OK;
    (*line)->state = EBI_LINE_NEW;
    snprintf((*line)->key, sizeof(*line)->key, "%s", key);
    return ebi_line_prepare(c, *line);
}

/* The event of row seq, from disk. */
EBI_FN ebi_entry *ebi_line_load(ebi_lane *lane, int64_t seq, int *rc)
{
    eb_store *store = &lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_LOAD_ONE);
    ebi_entry *e = NULL;
    EBI_LEADS(store);
    if (!s) {
        *rc = ebi_db_code(&store->writer);
        return NULL;
    }
    sqlite3_bind_int64(s, 1, seq);
    *rc = sqlite3_step(s);
    if (*rc == SQLITE_ROW) e = ebi_lane_load(lane, s, rc);
    else if (*rc == SQLITE_DONE) {
        ebi_error(EB_ERR_CORRUPT, "damaged: deliveries row %lld has no event", (long long)seq);
        *rc = EBI_DAMAGED;
    }
    sqlite3_reset(s);
    return e;
}

/* What ebi_line_stands() says of a row. */
enum { EBI_KEY_GO, EBI_KEY_MINE, EBI_KEY_STOP, EBI_KEY_PASS };

/* A row that waits for its time is waited for, unless nobody matches it: then it steps aside. */
EBI_FN int ebi_line_waiting(ebi_claim *c, int64_t seq, int *stands)
{
    ebi_lane *lane = c->lane;
    eb_store *store = &c->lane->bus->store;
    eb_bus *bus = lane->bus;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_TYPE);
    const char *type = NULL;
    int rc, attempts, match = EBI_MATCH_YES;
    *stands = EBI_KEY_STOP;
    EBI_LEADS(store);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, seq);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) type = ebi_column(s, 0);
    if (type) {
        ebi_store_lock(store);
        match = ebi_subs_match(&bus->subs, type, &attempts);
        ebi_lane_pass_by(lane, type, match);
        ebi_store_unlock(store);
    }
    sqlite3_reset(s);
    if (match == EBI_MATCH_YES) return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
    s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_ASIDE);
    if (!s) return ebi_db_code(&store->writer);
    *stands = EBI_KEY_PASS;
    sqlite3_bind_int64(s, 1, seq);
    sqlite3_bind_int64(s, 2, c->view.epoch);
    return ebi_db_step(s);
}

/* What a row of a line means for those behind it, the rule itself: see >>keys. row: of KEY_LINE;
** *stands: EBI_KEY_... SQLite's result. By the leader. */
EBI_FN int ebi_line_stands(ebi_claim *c, const char *key, sqlite3_stmt *row,
                          int *stands)
{
    ebi_lane *lane = c->lane;
    eb_store *store = &c->lane->bus->store;
    eb_bus *bus = lane->bus;
    int64_t seq = sqlite3_column_int64(row, 0), token = sqlite3_column_int64(row, 1);
    const ebi_entry *mine;
    *stands = EBI_KEY_STOP;
    EBI_LEADS(store);
    EB_ASSERT(sqlite3_column_count(row) == 4);
    if (sqlite3_column_type(row, 1) != SQLITE_NULL) {
        ebi_store_lock(store);
        mine = ebi_key_has(lane, key, seq);
        if ((mine && mine->token == token) || (token > c->token && token <= bus->lead.next_token))
            *stands = EBI_KEY_MINE; /* under way, or won in this very transaction */
        ebi_store_unlock(store);
        return SQLITE_OK;
    }
    if (sqlite3_column_int64(row, 2) > c->now_ms) return ebi_line_waiting(c, seq, stands);
    if (sqlite3_column_type(row, 3) == SQLITE_NULL) {
        *stands = EBI_KEY_GO;
    } else if (sqlite3_column_int(row, 3) == 1) {
        c->suspects = 1;
        if (c->alone) *stands = EBI_KEY_GO; /* its turn has come */
    }
    return SQLITE_OK;
}

/* Judges row seq of the line of e's key: by the copy e, if it is of that row and new, else from
** disk. *own: e, or the one that was loaded and taken; NULL: neither is to be kept. */
EBI_FN int ebi_line_judge(ebi_claim *c, ebi_entry *e, int64_t seq, int plain,
                         ebi_entry **own)
{
    eb_store *store = &c->lane->bus->store;
    int rc, fate = EBI_CLAIM_OLD;
    *own = NULL;
    EB_ASSERT(!ebi_claim_full(c));
    if (e && e->seq == seq) {
        rc = ebi_claim_judge(c, e, plain, &fate);
        if (fate == EBI_CLAIM_TAKEN) *own = e;
        if (rc != SQLITE_OK || fate != EBI_CLAIM_OLD) return rc;
    }
    e = ebi_line_load(c->lane, seq, &rc);
    if (!e) return rc;
    rc = ebi_claim_judge(c, e, plain, &fate);
    EB_ASSERT(rc != SQLITE_OK || fate != EBI_CLAIM_OLD); /* read in this very transaction */
    if (fate == EBI_CLAIM_TAKEN) *own = e;
    else ebi_entry_drop(store, e);
    return rc;
}

/* Goes along the line from where this claim has come, up to row `to`, and claims. copy (may be
** NULL) is of one of its rows; *taken: it belongs to the claim now. Returns SQLite's result;
** line->state is STOP if nobody behind can be claimed now. */
EBI_FN int ebi_line_walk(ebi_claim *c, ebi_line *line, ebi_entry *copy,
                         int64_t to, int *taken)
{
    eb_store *store = &c->lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_KEY_LINE);
    ebi_entry *own;
    int64_t seq;
    int rc = SQLITE_OK, stands, plain;
    EB_ASSERT(line->state == EBI_LINE_GO && (!copy || (copy->ordering_key && !copy->token)));
    if (!s) return ebi_db_code(&store->writer);
    ebi_bind_text(s, 1, line->key);
    sqlite3_bind_int64(s, 2, line->to);
    sqlite3_bind_int64(s, 3, to);
    while (!ebi_claim_full(c) && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        seq = sqlite3_column_int64(s, 0);
        rc = ebi_line_stands(c, line->key, s, &stands);
        if (rc != SQLITE_OK) break;
        if (stands == EBI_KEY_GO && (line->mine >= EBI_LINE_MAX || (c->alone && seq != to)))
            stands = EBI_KEY_STOP;
        if (stands == EBI_KEY_STOP) {
            line->state = EBI_LINE_STOP;
            line->plain = c->alone && sqlite3_column_type(s, 3) == SQLITE_NULL;
            break;
        }
        line->to = seq;
        line->mine += stands == EBI_KEY_MINE;
        if (stands != EBI_KEY_GO) continue;
        plain = sqlite3_column_type(s, 2) == SQLITE_NULL &&
                sqlite3_column_type(s, 3) == SQLITE_NULL;
        rc = ebi_line_judge(c, copy, seq, plain, &own);
        c->walked++;
        line->mine += own && own->token;
        if (own && own == copy) {
            *taken = 1;
            copy = NULL;
        }
        if (rc != SQLITE_OK) break;
    }
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* e is a copy of a row that has a key, or an event of that key that ended. Claims from the head of
** the line on: up to e, or as many as there is room for. See the introduction of >>keys. e is left
** to the caller unless *taken; *again: to be tried once more. */
EBI_FN int ebi_line_follow(ebi_claim *c, ebi_entry *e, int *taken, int *again)
{
    eb_store *store = &c->lane->bus->store;
    ebi_line *line;
    ebi_entry *copy = e->outcome == EBI_OUT_NONE ? e : NULL;
    int rc = ebi_line_find(c, e->ordering_key, &line);
    EB_ASSERT(e->ordering_key);
    *taken = 0;
    *again = line->state == EBI_LINE_NEW;
    if (rc != SQLITE_OK || *again) return rc;
    if (line->state == EBI_LINE_GO && copy)
        rc = ebi_line_walk(c, line, copy, e->seq, taken);
    /* Whoever was passed over is brought back by the end of another of its key: if none is under
    ** way, now. */
    if (rc == SQLITE_OK && line->state == EBI_LINE_GO && line->mine == 0 && !c->alone)
        rc = ebi_line_walk(c, line, NULL, ebi_passed_to(c->lane, line->key),
                           taken);
    if (rc != SQLITE_OK || *taken) return rc;
    if (c->alone) /* a head that is no suspect, or who stood behind one that is gone: others do */
        *again = line->state == EBI_LINE_GO || line->plain;
    else if (line->state == EBI_LINE_GO && ebi_claim_full(c))
        *again = line->mine == 0 || (copy && line->to < e->seq);
    if (*again || !copy) return rc;
    ebi_passed_add(c->lane, e->ordering_key, e->seq);
    return ebi_line_not_due(store, e->seq, c->now_ms); /* in line is enough: it is brought back */
}

/* Judges or walks e, which then is taken, kept for another walk, or dropped. */
EBI_FN int ebi_line_try(ebi_claim *c, ebi_entry *e, int plain)
{
    eb_store *store = &c->lane->bus->store;
    int taken = 0, again = 0, fate = EBI_CLAIM_LEFT, rc;
    EBI_LEADS(store);
    EB_ASSERT(!e->token && (e->ordering_key || e->outcome == EBI_OUT_NONE));
    if (e->ordering_key) {
        rc = ebi_line_follow(c, e, &taken, &again);
    } else {
        rc = ebi_claim_judge(c, e, plain, &fate);
        taken = fate == EBI_CLAIM_TAKEN;
    }
    if (taken) return rc;
    if (again) ebi_list_push(&c->again, e);
    else ebi_entry_drop(store, e);
    return rc;
}

/* ===========================================================================
** >>scans   Where a claim looks                                   [private]
** ========================================================================
** In this order: keys whose event has ended, what is due, what is ready in memory, what lies above
** the cursor, else a slice of the lap. What comes first of due and ready changes each time. */

/* Reads rows of a bound statement into list, while there is memory; SQLite's result: SQLITE_ROW if
** there may be more. */
EBI_FN int ebi_scan_read(ebi_claim *c, sqlite3_stmt *s, ebi_list *list)
{
    ebi_entry *e;
    int rc = SQLITE_DONE;
    EB_ASSERT(!list->head && !c->late);
    while (list->bytes + c->won.bytes < EB_READY_BYTES && !c->late &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        e = ebi_lane_load(c->lane, s, &rc);
        if (!e && list->head) rc = SQLITE_ROW; /* what can be read still runs */
        if (!e) break;
        ebi_list_push(list, e);
        ebi_claim_time(c);
    }
    c->late = 0; /* what was read is worth claiming */
    sqlite3_reset(s);
    return rc;
}

/* Rows whose time has come. */
EBI_FN int ebi_scan_due(ebi_claim *c)
{
    eb_store *store = &c->lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DUE);
    ebi_list list;
    ebi_entry *e;
    int rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (ebi_claim_full(c) || c->view.next_due_ms > c->now_ms) return SQLITE_OK;
    if (!s) return ebi_db_code(&store->writer);
    memset(&list, 0, sizeof list);
    c->looked = 1;
    sqlite3_bind_int64(s, 1, c->now_ms);
    sqlite3_bind_int(s, 2, c->want);
    rc = ebi_scan_read(c, s, &list);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW) rc = SQLITE_OK;
    while (rc == SQLITE_OK && !ebi_claim_full(c) && (e = ebi_list_pop(&list)) != NULL) {
        if (e->ordering_key || e->suspect) c->waits = 1; /* at least it stands in line now */
        if (e->suspect) { /* it has its turn alone */
            c->suspects = 1;
            rc = ebi_line_not_due(store, e->seq, c->now_ms);
            ebi_entry_drop(store, e);
        } else {
            rc = ebi_line_try(c, e, 0);
        }
    }
    ebi_list_free(store, &list);
    return rc;
}

/* The next suspect, alone. */
EBI_FN int ebi_scan_suspect(ebi_claim *c)
{
    eb_store *store = &c->lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SUSPECT);
    ebi_entry *e = NULL;
    int rc;
    EBI_LEADS(store);
    EB_ASSERT(c->alone && c->want == 1 && !c->view.queue.head && !c->view.looks.head);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, c->view.suspect_at);
    sqlite3_bind_int64(s, 2, c->view.epoch);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) e = ebi_lane_load(c->lane, s, &rc);
    sqlite3_reset(s);
    if (rc == SQLITE_DONE) return SQLITE_OK; /* suspects stays 0: that was all */
    if (!e) return rc;
    c->suspects = 1;
    c->view.suspect_at = e->seq;
    return ebi_line_try(c, e, 0);
}

/* How far one commit may look: *to comes down to where EBI_SLICE rows lie above from, whatever they
** wait for; *more: others lie behind it. Rows that wait for a time can be many, and SCAN would walk
** through all of them. */
EBI_FN int ebi_scan_slice(eb_store *store, int64_t from, int64_t *to, int *more)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SLICE);
    int rc, n = 0;
    *more = 0;
    EB_ASSERT(from >= 0 && from <= *to);
    if (!s) return ebi_db_code(&store->writer);
    sqlite3_bind_int64(s, 1, from);
    sqlite3_bind_int64(s, 2, *to);
    sqlite3_bind_int(s, 3, EBI_SLICE + 1);
    rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) n = sqlite3_column_int(s, 0);
    *more = n > EBI_SLICE;
    *to = n > 0 ? sqlite3_column_int64(s, 1) - *more : from;
    sqlite3_reset(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Plain rows in (from, to]: those that somebody matches, or that the policy may end, go to
** c->loaded. *at: how far it came; *more: not to the end. */
EBI_FN int ebi_scan_rows(ebi_claim *c, int64_t from, int64_t to, int64_t *at,
                          int *more)
{
    ebi_lane *lane = c->lane;
    eb_store *store = &c->lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SCAN);
    ebi_entry *e;
    const char *type;
    int rc = SQLITE_DONE, n = 0, attempts, fate, room = EB_READY_MAX / 4 > 0 ? EB_READY_MAX / 4 : 1;
    *at = from;
    EBI_LEADS(store);
    EB_ASSERT(from <= to);
    if (!s) return ebi_db_code(&store->writer);
    rc = ebi_scan_slice(store, from, &to, more);
    if (rc != SQLITE_OK || to == from) return rc;
    sqlite3_bind_int64(s, 1, from);
    sqlite3_bind_int64(s, 2, to);
    sqlite3_bind_int(s, 3, EBI_SLICE + 1);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && n < EBI_SLICE && c->loaded.count < room &&
           c->loaded.bytes + c->won.bytes < EB_READY_BYTES) {
        n++;
        type = ebi_column(s, EBI_LOAD_TYPE);
        if (type && sqlite3_column_int64(s, EBI_LOAD_BORN) != lane->bus->life.incarnation &&
            sqlite3_column_type(s, EBI_LOAD_KEY) == SQLITE_NULL && strlen(type) <= EBI_TYPE_MAX &&
            ebi_claim_match(lane, type, &attempts) == EBI_MATCH_NONE) {
            ebi_entry parked; /* found on disk, nobody matches, no key: no copy is needed */
            memset(&parked, 0, sizeof parked);
            parked.type = type;
            ebi_claim_park(c, &parked, EBI_MATCH_NONE, 1, &fate);
            *at = sqlite3_column_int64(s, EBI_LOAD_SEQ);
            continue;
        }
        e = ebi_lane_load(c->lane, s, &rc);
        if (!e && n > 1) rc = SQLITE_ROW; /* what can be read still runs */
        if (!e) break;
        *at = e->seq;
        ebi_list_push(&c->loaded, e);
    }
    sqlite3_reset(s);
    if (rc != SQLITE_DONE) *more = 1;
    else *at = to; /* what was not read waits for a time, or is claimed: it comes back by that */
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Reads what is above the cursor, else goes on with the lap. */
EBI_FN int ebi_scan_log(ebi_claim *c)
{
    eb_store *store = &c->lane->bus->store;
    ebi_window *w = &c->lane->win;
    int rc, more;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    EB_ASSERT((c->view.more || c->view.lap_end > 0) && !c->view.queue.head && !c->loaded.head);
    if (!c->view.more && c->view.lap_end > 0) {
        rc = ebi_scan_rows(c, c->view.lap_at, c->view.lap_end, &c->view.lap_at, &more);
        c->lapped = !more;
        c->lap_slice = 1;
        return rc;
    }
    if (!c->view.more) return SQLITE_OK;
    ebi_store_lock(store);
    if (c->view.cursor < w->cursor) c->view.cursor = w->cursor;
    ebi_store_unlock(store);
    rc = ebi_scan_rows(c, c->view.cursor, INT64_MAX, &c->view.cursor, &c->view.more);
    ebi_store_lock(store);
    if (rc == SQLITE_OK) ebi_window_read_to(w, c->view.cursor);
    ebi_store_unlock(store);
    return rc;
}

/* Claims from list in order, while there is room. */
EBI_FN int ebi_scan_list(ebi_claim *c, ebi_list *list)
{
    eb_store *store = &c->lane->bus->store;
    ebi_entry *e;
    int rc = SQLITE_OK;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    while (rc == SQLITE_OK && !ebi_claim_full(c) && (e = ebi_list_pop(list)) != NULL)
        rc = ebi_line_try(c, e, 1);
    return rc;
}

/* Everything but suspects. */
EBI_FN int ebi_scan_others(ebi_claim *c)
{
    int rc = ebi_scan_list(c, &c->view.looks);
    EB_ASSERT(!c->alone);
    if (rc == SQLITE_OK && c->due_first) rc = ebi_scan_due(c);
    if (rc == SQLITE_OK) rc = ebi_scan_list(c, &c->view.queue);
    if (rc == SQLITE_OK && !c->view.queue.head && (c->view.more || c->view.lap_end > 0)) {
        rc = ebi_scan_log(c);
        if (rc == SQLITE_OK) rc = ebi_scan_list(c, &c->loaded);
    }
    if (rc == SQLITE_OK && !c->due_first) rc = ebi_scan_due(c);
    return rc;
}

/* ===========================================================================
** >>turns   One claim at a time                                   [private]
** ========================================================================
** What the next claim is of, its one commit, and what it means for memory. A claim is a member of
** the writer's transaction: all looks are inside it, memory changes after it. */

/* Inside the transaction. */
EBI_FN eb_result ebi_turn_func(eb_store *store, void *arg)
{
    ebi_claim *c = (ebi_claim *)arg;
    ebi_entry *e;
    int rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    EBI_LEADS(store);
    EB_ASSERT(c->lane->turns.claiming && c->want >= 1 && !c->won.head && c->token == 0);
    c->now_ms = ebi_clock_now_ms(store);
    c->token = ebi_bus_of(store)->lead.next_token;
    c->began_us = ebi_clock_mono_us(store);
    c->due_now = c->view.next_due_ms <= c->now_ms;
    ebi_time_text(c->now_ms, c->now);
    rc = c->alone ? ebi_scan_suspect(c) : ebi_scan_others(c);
    e = c->won.head;
    if (rc == SQLITE_OK && e && !e->next && !e->counted) {
        e->counted = 1; /* a batch of one is none: this very event runs next */
        rc = ebi_commit_step(store, EBI_SQL_COUNT_ATTEMPT, e->seq);
    }
    if (rc == SQLITE_OK)
        rc = ebi_db_number(store, &store->writer, EBI_SQL_NEXT_DUE, &c->view.next_due_ms);
    if (c->view.next_due_ms < 0) c->view.next_due_ms = 0;
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "claiming events");
}

/* Lock held, after a commit that failed, its own fault or not: the rows are as they were, or
** ebi_fence_resync() will find them. */
EBI_FN void ebi_turn_lost(ebi_lane *lane, ebi_claim *c)
{
    eb_bus *bus = lane->bus;
    eb_store *store = &bus->store;
    EBI_HELD(&bus->store);
    EBI_LEADS(store);
    EB_ASSERT(lane->turns.claiming);
    ebi_list_free(store, &c->won);
    ebi_list_free(store, &c->dead);
    ebi_list_free(store, &c->done);
    ebi_list_free(store, &c->loaded);
    ebi_list_free(store, &c->view.queue);
    ebi_list_append(&c->view.looks, &c->again);
    ebi_list_append(&lane->looks, &c->view.looks);
    ebi_window_forget(lane);
}

/* Lock held, after the commit. */
EBI_FN void ebi_turn_after(eb_store *store, void *arg, eb_result rc)
{
    ebi_claim *c = (ebi_claim *)arg;
    ebi_lane *lane = c->lane;
    eb_bus *bus = lane->bus;
    ebi_window *w = &lane->win;
    ebi_entry *e;
    int64_t took_us;
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(lane->turns.claiming);
    EB_ASSERT(lane->bus == ebi_bus_of(store) && (!c->alone || c->won.count <= 1));
    lane->turns.rc = rc < 0 ? rc : EB_OK;
    if (rc != EB_OK) {
        ebi_turn_lost(lane, c);
        if (rc < 0) ebi_alarms_backoff(bus);
        return;
    }
    if (c->looked && c->view.next_due_ms <= c->now_ms && !c->won.head && !c->ended && !c->waits)
        ebi_alarms_backoff(bus); /* due, but cannot be read: a damaged file. Do not spin. */
    else
        ebi_alarms_healed(bus);
    took_us = ebi_clock_mono_us(store) - c->began_us;
    ebi_list_append(&c->view.looks, &c->again);
    ebi_window_return(lane, &c->view, &c->loaded);
    if (c->lap_slice) ebi_window_lap_rests(lane, took_us);
    if (c->lap_slice && c->view.epoch == w->epoch) ebi_window_lapped(w, c->view.lap_at, c->lapped);
    if (ebi_window_lapping(w)) ebi_keeper_by(bus, w->lap.rest_us);
    if (c->alone) ebi_window_suspects(w, c->suspects);
    else if (c->suspects) ebi_lane_suspects(lane);
    if (c->ended) ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_figures_failed(bus, c->dead.count, c->dead.count);
    ebi_cap_add(bus, -c->ended);
    while ((e = ebi_list_pop(&c->won)) != NULL) {
        if (e->suspect) ebi_calls_solo(bus, 1);
        if (e->ordering_key) ebi_key_enter(lane, e);
        else ebi_list_push(&lane->claimed, e);
    }
    if (w->next_due_ms != INT64_MAX) ebi_keeper_wake(bus);
    ebi_alarms_news(bus);
}

/* What the next claim should be of. A suspect runs alone: nothing else of this process runs with
** it, and nothing is claimed before it is through. Then the others have as long as it took; so
** suspects neither wait for ever nor stop the rest. Lock held. */
enum { EBI_CLAIM_NOTHING, EBI_CLAIM_SUSPECT, EBI_CLAIM_OTHERS };
EBI_FN int ebi_turn_what(ebi_lane *lane)
{
    eb_bus *bus = lane->bus;
    const ebi_window *w = &lane->win;
    int others, busy;
    EBI_HELD(&bus->store);
    if (bus->life.state != EBI_STARTED || lane->turns.claiming || bus->calls.solo)
        return EBI_CLAIM_NOTHING;
    if (bus->alarms.retry_at_us && ebi_clock_mono_us(&bus->store) < bus->alarms.retry_at_us)
        return EBI_CLAIM_NOTHING;
    others = w->ready.head || w->disk_more || lane->looks.head || ebi_window_lap_now(lane) ||
             w->next_due_ms <= ebi_clock_now_ms(&bus->store);
    if (!w->suspects) return others ? EBI_CLAIM_OTHERS : EBI_CLAIM_NOTHING;
    busy = bus->calls.running || lane->claimed.head || lane->chained;
    if (others && ebi_clock_mono_us(&bus->store) < w->rest_us) return EBI_CLAIM_OTHERS;
    return busy ? EBI_CLAIM_NOTHING : EBI_CLAIM_SUSPECT;
}

/* Whether there is anything to claim now. Lock held. */
EBI_FN int ebi_turn_due(ebi_lane *lane) { return ebi_turn_what(lane) != EBI_CLAIM_NOTHING; }

/* What a claim begins with. Lock held. */
EBI_FN void ebi_turn_init(ebi_lane *lane, int what, ebi_claim *c)
{
    eb_bus *bus = lane->bus;
    int under_way = lane->claimed.count + lane->chained;
    EBI_HELD(&bus->store);
    EB_ASSERT(!lane->turns.claiming && lane->turns.batch >= 1 && lane->chained >= 0);
    memset(c, 0, sizeof *c);
    c->lane = lane;
    c->alone = what == EBI_CLAIM_SUSPECT;
    c->want = bus->calls.running || under_way ? lane->turns.batch - under_way : lane->turns.batch;
    if (c->want < 1 || c->alone) c->want = 1;
    c->single = c->want == 1;
    c->apart = -1;
    ebi_window_lend(lane, c->alone, &c->view);
    if (!c->alone) c->due_first = lane->turns.first ^= 1;
}

/* Tells the log what a claim came upon. No lock held. */
EBI_FN void ebi_turn_say(ebi_lane *lane, ebi_claim *c)
{
    eb_bus *bus = lane->bus;
    ebi_entry *e;
    EB_ASSERT(!c->won.head && !c->view.queue.head && !c->loaded.head && !c->view.looks.head);
    for (e = c->dead.head; e; e = e->next) ebi_unmatched_died(&bus->store, e->id.str, e->type);
    for (e = c->done.head; e; e = e->next) ebi_unmatched_done(bus, e->id.str, e->type);
    ebi_list_free(&bus->store, &c->dead);
    ebi_list_free(&bus->store, &c->done);
    if (c->warn)
        ebi_unmatched_warn(&bus->store, "events wait: no handler matches their type (said once)",
                           NULL, c->unmatched_type);
}

/* Claims the next events in one commit, shared with whatever else is queued; what: as
** ebi_turn_what() has just said. Lock held on entry and exit, not in between; `claiming` keeps
** others from doing the same. */
EBI_FN void ebi_turn_take(ebi_lane *lane, int what)
{
    eb_bus *bus = lane->bus;
    eb_store *store = &bus->store;
    ebi_claim c;
    ebi_req r;
    eb_result rc;
    EBI_HELD(&bus->store);
    EB_ASSERT(!lane->turns.claiming && what != EBI_CLAIM_NOTHING);
    ebi_turn_init(lane, what, &c);
    ebi_lane_claiming(lane, 1);
    ebi_req_init(&r, ebi_turn_func, ebi_turn_after, &c, EB_DURABLE_NORMAL, ebi_alarms_until(bus));
    ebi_store_unlock(store);
    r.once = 1;
    rc = ebi_writer_commit(store, &r);
    ebi_store_lock(store);
    ebi_lane_claiming(lane, 0);
    ebi_alarms_saying(bus, 1);
    ebi_alarms_news(bus);
    ebi_store_unlock(store);
    if (rc < 0) ebi_log_note(store, EB_LOG_ERROR, "cannot claim events", ebi_error_text);
    ebi_turn_say(lane, &c); /* only now: a logger may publish */
    ebi_store_lock(store);
    ebi_alarms_saying(bus, -1);
}

/* ===========================================================================
** >>starts   From a claim to its handler                          [private]
** ========================================================================
** The last look before a handler is called. Lock held, but while the file is asked. */

/* Whether e, claimed but not started, has to wait after all: something has come due since, or is
** wanted by somebody since, and stands before it in the line of its key. Asked only when that may
** be; if the file cannot be asked, it waits. Lock held on entry and exit, not in between. */
EBI_FN int ebi_start_yields(ebi_lane *lane, const ebi_entry *e)
{
    eb_bus *bus = lane->bus;
    eb_store *store = &bus->store;
    int64_t now_ms = ebi_clock_now_ms(store), epoch = lane->win.epoch + (lane->turns.rescan != 0);
    ebi_db *db;
    sqlite3_stmt *s;
    int rc = SQLITE_ERROR;
    EBI_HELD(&bus->store);
    EB_ASSERT(e->token != 0 && e->outcome == EBI_OUT_NONE);
    if (!e->ordering_key || (e->epoch == epoch && lane->win.next_due_ms > now_ms)) return 0;
    ebi_store_unlock(store);
    s = ebi_reader_enter(store, &db) == EB_OK ? ebi_db_stmt(store, db, EBI_SQL_KEY_BEFORE) : NULL;
    if (s) {
        ebi_bind_text(s, 1, e->ordering_key);
        sqlite3_bind_int64(s, 2, e->seq);
        sqlite3_bind_int64(s, 3, epoch);
        sqlite3_bind_int64(s, 4, now_ms);
        rc = sqlite3_step(s);
        sqlite3_reset(s);
    }
    ebi_reader_leave(store, db);
    ebi_store_lock(store);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) ebi_alarms_backoff(bus);
    return rc != SQLITE_DONE;
}

/* e was claimed, but does not start: it goes back to its place, or is somebody else's already. Lock
** held. */
EBI_FN void ebi_start_undo(ebi_lane *lane, ebi_entry *e)
{
    eb_bus *bus = lane->bus;
    EBI_HELD(&bus->store);
    EB_ASSERT(e->token != 0 && e->refs == 1);
    ebi_key_leave(lane, e, e->revoked);
    if (e->suspect) ebi_calls_solo(bus, 0);
    e->due_ms = EBI_NOT_DUE;
    if (e->revoked) ebi_entry_drop(&bus->store, e);
    else ebi_outcome_push(bus, e, EBI_OUT_RELEASE);
}

/* The next event whose handlers are to be called, NULL: none is claimed. Lock held on entry and
** exit, perhaps not in between: until it is decided, the event is in bus->lane.starting. */
EBI_FN ebi_entry *ebi_start_next(ebi_lane *lane)
{
    eb_bus *bus = lane->bus;
    ebi_entry *e, *at, *previous;
    EBI_HELD(&bus->store);
    while ((e = ebi_list_pop(&lane->claimed)) != NULL) {
        ebi_list_push(&lane->starting, e);
        e->alone = ebi_start_yields(lane, e);
        for (previous = NULL, at = lane->starting.head; at != e; at = at->next) previous = at;
        ebi_list_take(&lane->starting, previous);
        if (!e->alone && !e->revoked && bus->life.state == EBI_STARTED) return e;
        ebi_start_undo(lane, e);
    }
    return NULL;
}

/* ===========================================================================
** >>fences   What is still ours                                   [private]
** ========================================================================
** After a failed commit, or another process's: claims in memory and in the file are compared, by
** token. By the leader. */

EBI_FN int ebi_fence_is(const ebi_entry *e, void *arg)
{
    return e->token == *(const int64_t *)arg;
}

/* Whether memory holds the claim with this token. Lock held. */
EBI_FN int ebi_fence_held(eb_bus *bus, int64_t token)
{
    const ebi_entry *e;
    const ebi_run *r;
    EBI_HELD(&bus->store);
    for (e = bus->out.waiting.head; e; e = e->next)
        if (e->token == token) return 1;
    for (e = bus->out.taking.head; e; e = e->next)
        if (e->token == token) return 1;
    for (r = bus->calls.first; r; r = r->next)
        if (r->entry && !r->lost && r->entry->token == token) return 1;
    return token == bus->calls.timed_out || ebi_key_each(&bus->lane, ebi_fence_is, &token);
}

/* After the connection was opened anew: rows claimed in a commit whose end is unknown have a token
** that nobody in memory holds. They go back as in a batch that was interrupted. By the leader. */
EBI_FN eb_result ebi_fence_resync(eb_store *store)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_end end;
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_CLAIMS);
    int rc, held, changed, owner;
    EBI_LEADS(store);
    EB_ASSERT(bus);
    ebi_store_lock(store);
    owner = bus->life.state == EBI_STARTED || bus->life.state == EBI_STOPPING;
    ebi_store_unlock(store);
    if (!owner) return EB_OK; /* then the claims in the file are somebody else's */
    ebi_time_text(ebi_clock_now_ms(store), now);
    memset(&end, 0, sizeof end);
    end.due_ms = EBI_NOT_DUE;
    end.suspect = 1;
    end.now = now;
    rc = s ? ebi_db_run(store, &store->writer, EBI_SQL_BEGIN) : ebi_db_code(&store->writer);
    while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        rc = SQLITE_OK;
        end.seq = sqlite3_column_int64(s, 0);
        end.token = sqlite3_column_int64(s, 1);
        ebi_store_lock(store);
        held = ebi_fence_held(bus, end.token);
        ebi_store_unlock(store);
        if (!held) rc = ebi_end_run(store, EBI_SQL_SNOOZE, &end, &changed);
    }
    sqlite3_reset(s);
    if (rc == SQLITE_DONE) rc = ebi_db_run(store, &store->writer, EBI_SQL_COMMIT);
    if (rc != SQLITE_OK) {
        ebi_commit_error(store, rc, "reading the claims back");
        ebi_db_rollback(store, &store->writer);
        return ebi_db_result(rc);
    }
    ebi_store_lock(store);
    ebi_lane_forget(&bus->lane);
    ebi_lane_stir(&bus->lane);
    ebi_depths_forget(bus);
    ebi_alarms_work_all(bus);
    ebi_store_unlock(store);
    return EB_OK;
}

/* Claims to be compared with their rows. */
typedef struct ebi_fenced {
    int64_t seq, token;
} ebi_fenced;
typedef struct ebi_fences {
    int count, room;
    ebi_fenced *at;
} ebi_fences;

/* For ebi_key_each(): one more, as long as there is room. */
EBI_FN int ebi_fence_add(const ebi_entry *e, void *arg)
{
    ebi_fences *claims = (ebi_fences *)arg;
    EB_ASSERT(claims->count <= claims->room);
    if (claims->count == claims->room) return 1;
    claims->at[claims->count].seq = e->seq;
    claims->at[claims->count++].token = e->token;
    return 0;
}

/* All of this lane, in memory to be freed; none if there is no memory for it: they are fenced all
** the same. No lock held. */
EBI_FN void ebi_fence_list(ebi_lane *lane, ebi_fences *claims)
{
    eb_bus *bus = lane->bus;
    const ebi_run *run;
    memset(claims, 0, sizeof *claims);
    ebi_store_lock(&bus->store);
    claims->room = lane->claimed.count + lane->starting.count + lane->chained + bus->calls.running;
    if (claims->room > 0)
        claims->at = (ebi_fenced *)ebi_alloc(&bus->store.allocator,
                                             (size_t)claims->room * sizeof *claims->at);
    if (!claims->at) claims->room = 0;
    ebi_key_each(lane, ebi_fence_add, claims);
    for (run = bus->calls.first; run; run = run->next) ebi_fence_add(run->entry, claims);
    ebi_store_unlock(&bus->store);
}

/* Another process changed something: of a claimed event that an operator gave up no handler starts.
** By the leader, no lock held. */
EBI_FN void ebi_fence_check(ebi_lane *lane)
{
    eb_store *store = &lane->bus->store;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_TOKEN);
    ebi_fences claims;
    int i, rc;
    EBI_LEADS(store);
    EBI_LEADS(store);
    ebi_fence_list(lane, &claims);
    for (i = 0; i < claims.count && s; i++) {
        sqlite3_bind_int64(s, 1, claims.at[i].seq);
        sqlite3_bind_int64(s, 2, claims.at[i].token);
        rc = sqlite3_step(s);
        sqlite3_reset(s);
        if (rc != SQLITE_DONE) continue;
        ebi_store_lock(store);
        ebi_key_revoke(lane, claims.at[i].seq);
        ebi_store_unlock(store);
    }
    ebi_free(&store->allocator, claims.at);
}

/* ===========================================================================
** >>recovery   What a process that died had under way             [private]
** ========================================================================
** A claim that is on disk when a bus starts belonged to a process that is no more. Which of its
** events ended it? Only if exactly one handler was running, and its claim was counted (claimed
** alone: attempts > failed), is that known: this event gets a failed attempt, "interrupted". If
** several were under way, or a batch, nobody can know: none loses an attempt, but each becomes a
** suspect and runs alone, counted. So a poison event convicts only itself, at the next crash.
**
** The one that is known runs alone from then on too, and whoever runs alone does so until it has
** succeeded: in a batch its next crash would not be counted. So an event that may end the process
** starts at most max_retries + 2 times, whatever else it does: once uncounted.
**
** What was set to processing by hand counts as having run alone.
**
** The rows are read in slices before anything is written, so that a start among a million events
** holds no lock for long. Which rule applies is written down (meta.recovering) with the first
** change: if this process dies in between, the one row that is left is not taken for the only one.
*/

typedef struct ebi_recovered { /* what is to be said in the log once it is committed */
    eb_id id;
    char type[EBI_TYPE_MAX + 1];
    int attempt, max_attempts, dead;
} ebi_recovered;

enum { EBI_RECOVER_ROWS = 256 };
typedef struct ebi_recovery {
    int64_t after;                  /* where the next slice begins */
    int64_t seqs[EBI_RECOVER_ROWS]; /* found in this slice */
    int count, more;
    int64_t counted, uncounted; /* claims of the process that died */
    int charged;                /* there was exactly one, and it was counted */
    int by_hand;                /* these are rows set by hand */
    int said_count;
    ebi_recovered said[EBI_RECOVER_ROWS];
} ebi_recovery;
static const char ebi_interrupted[] = "interrupted: the process ended while the handler ran";
static const char ebi_interrupted_json[] =
    "\"interrupted: the process ended while the handler ran\"";

/* The next slice: claims are counted and, with collect, remembered, as many as fit. Blocks nobody.
*/
EBI_FN eb_result ebi_recover_read(eb_store *store, ebi_recovery *r, int collect)
{
    ebi_db *db;
    sqlite3_stmt *s;
    int rc = SQLITE_DONE, n = 0, bad = 0;
    int64_t attempts, failed;
    eb_result result = ebi_reader_enter(store, &db);
    s = result != EB_OK ? NULL
                        : ebi_db_stmt(store, db, r->by_hand ? EBI_SQL_BY_HAND : EBI_SQL_ROWS);
    r->count = r->more = 0;
    EB_ASSERT(r->after >= 0);
    if (s) sqlite3_bind_int64(s, 1, r->after);
    while (s && (!collect || r->count < EBI_RECOVER_ROWS) && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        n++;
        r->after = ebi_column_within(s, 0, "deliveries.seq", INT64_MIN, EBI_SEQ_MAX, &bad);
        if (bad) break;
        if (!r->by_hand && sqlite3_column_type(s, 1) == SQLITE_NULL) continue;
        if (collect) r->seqs[r->count++] = r->after;
        if (collect) continue;
        attempts = ebi_column_within(s, 2, "deliveries.attempts", 0, INT32_MAX, &bad);
        failed = ebi_column_within(s, 3, "deliveries.failed", 0, INT32_MAX - 1, &bad);
        if (bad) break;
        if (attempts > failed) r->counted++;
        else r->uncounted++;
    }
    r->more = rc == SQLITE_ROW || n >= (r->by_hand ? 256 : 4096);
    if (result == EB_OK && bad) result = EB_ERR_CORRUPT;
    else if (result == EB_OK && rc != SQLITE_ROW && rc != SQLITE_DONE)
        result = ebi_db_error(db, rc, "recovery");
    else if (result == EB_OK && !s)
        result = ebi_db_error(db, ebi_db_code(db), "recovery");
    if (s) sqlite3_reset(s);
    ebi_reader_leave(store, db);
    return result;
}

/* How many attempts an event of this type has: what was set by hand was never claimed. */
EBI_FN int64_t ebi_recover_most(eb_bus *bus, const char *type)
{
    int most = 0, match = EBI_MATCH_NONE;
    ebi_store_lock(&bus->store);
    if (type) match = ebi_subs_match(&bus->subs, type, &most);
    ebi_store_unlock(&bus->store);
    return match == EBI_MATCH_YES ? most : (int64_t)bus->set.policy.max_retries + 1;
}

/* One stuck row, bound to the statement STUCK. */
EBI_FN int ebi_recover_row(eb_store *store, ebi_recovery *r, int64_t seq, sqlite3_stmt *row,
                           const char *now)
{
    eb_bus *bus = ebi_bus_of(store);
    int bad = 0, changed, charge = r->charged || r->by_hand, rc;
    int64_t failed = ebi_column_within(row, 2, "deliveries.failed", 0, INT32_MAX - 2, &bad);
    int64_t max = ebi_column_within(row, 3, "deliveries.max_attempts", 0, INT32_MAX, &bad);
    int64_t token = ebi_column_within(row, 1, "deliveries.token", !r->by_hand,
                                      INT64_MAX, &bad);
    ebi_recovered *say = &r->said[r->said_count];
    const char *id = ebi_column(row, 4), *type = ebi_column(row, 5);
    ebi_end end;
    if (!r->by_hand && sqlite3_column_type(row, 1) == SQLITE_NULL) return SQLITE_OK; /* let go */
    if (bad) return EBI_DAMAGED;
    if (max == 0) max = ebi_recover_most(bus, type);
    memset(&end, 0, sizeof end);
    end.seq = seq;
    end.token = token;
    end.due_ms = EBI_NOT_DUE; /* at once, but alone: convicted or not, see ebi_turn_what() */
    end.suspect = 1;
    end.status = "pending";
    end.now = now;
    end.error_json = ebi_interrupted_json;
    if (!charge) return ebi_end_run(store, EBI_SQL_SNOOZE, &end, &changed);
    if (failed + 1 >= max)
        rc = ebi_end_dead(store, &end, EBI_SQL_DIE, EBI_SQL_DELETE_LIVE, &changed);
    else
        rc = ebi_end_run(store, EBI_SQL_RETRY, &end, &changed);
    if (rc != SQLITE_OK || !changed) return rc;
    r->said_count++;
    snprintf(say->id.str, sizeof say->id.str, "%s", id ? id : "");
    snprintf(say->type, sizeof say->type, "%s", type ? type : "");
    say->attempt = (int)failed + 1;
    say->max_attempts = (int)max;
    say->dead = failed + 1 >= max;
    return SQLITE_OK;
}

/* Sets a number of meta; SQLite's result. */
EBI_FN int ebi_recover_mark(eb_store *store, const char *key, int64_t value)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_META_SET);
    EBI_LEADS(store);
    if (!s) return ebi_db_code(&store->writer);
    ebi_bind_text(s, 1, key);
    sqlite3_bind_int64(s, 2, value);
    return ebi_db_step(s);
}

/* The rows of one slice, in one transaction. */
EBI_FN eb_result ebi_recover_func(eb_store *store, void *arg)
{
    ebi_recovery *r = (ebi_recovery *)arg;
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *s;
    int rc, i;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    EB_ASSERT(r->count > 0 && r->count <= EBI_RECOVER_ROWS && !(r->charged && r->counted != 1));
    ebi_time_text(ebi_clock_now_ms(store), now);
    r->said_count = 0;
    rc = ebi_recover_mark(store, "recovering", r->more && !r->charged && !r->by_hand);
    for (i = 0; i < r->count && rc == SQLITE_OK; i++) {
        s = ebi_db_stmt(store, &store->writer, EBI_SQL_STUCK);
        if (!s) return ebi_commit_error(store, ebi_db_code(&store->writer), "recovery");
        sqlite3_bind_int64(s, 1, r->seqs[i]);
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW) rc = ebi_recover_row(store, r, r->seqs[i], s, now);
        else if (rc == SQLITE_DONE) rc = SQLITE_OK; /* gone meanwhile */
        sqlite3_reset(s);
    }
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "recovery");
}

/* One entry for each charged event. No lock held. */
EBI_FN void ebi_recover_say(const eb_store *store, const ebi_recovery *r)
{
    eb_log_entry e;
    int i;
    for (i = 0; i < r->said_count; i++) {
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
}

/* Handles all rows of a kind, slice by slice. */
EBI_FN eb_result ebi_recover_all(eb_store *store, ebi_recovery *r)
{
    eb_result rc;
    r->after = 0;
    do {
        rc = ebi_recover_read(store, r, 1);
        if (rc == EB_OK && r->count > 0)
            rc = ebi_writer_run(store, ebi_recover_func, NULL, r, EB_DURABLE_NORMAL);
        if (rc == EB_OK && r->count > 0) ebi_recover_say(store, r);
    } while (rc == EB_OK && r->more);
    return rc;
}

/* Rows that no claim and no recovery would ever come upon; SQLite's result. */
EBI_FN int ebi_recover_odd(eb_store *store)
{
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_ODD);
    int rc = s ? sqlite3_step(s) : ebi_db_code(&store->writer);
    if (rc == SQLITE_ROW) {
        ebi_error(EB_ERR_CORRUPT, "damaged: deliveries.seq or deliveries.apart (row %lld)",
                  (long long)sqlite3_column_int64(s, 0));
        rc = EBI_DAMAGED;
    }
    sqlite3_reset(s);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* A new start: who we are, and an epoch that no row has seen yet. In its own small transaction. */
EBI_FN eb_result ebi_recover_begin(eb_store *store, void *arg)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_recovery *r = (ebi_recovery *)arg;
    int64_t bits, starts = 0, version = 0, recovering = 0, claimed_to = 0;
    int rc = ebi_schema_meta(store, &store->writer, "schema_version", &version);
    EBI_LEADS(store);
    EB_ASSERT(rc != SQLITE_OK || !sqlite3_get_autocommit(store->writer.handle));
    if (rc == SQLITE_OK && version != EBI_SCHEMA_LATEST)
        return ebi_error(EB_ERR_SCHEMA, "%s: schema version %lld, this eventbus.h knows %d",
                         store->place.path, (long long)version, EBI_SCHEMA_LATEST);
    if (rc == SQLITE_OK) rc = ebi_db_run(store, &store->writer, EBI_SQL_STARTS);
    if (rc == SQLITE_OK) rc = ebi_schema_meta(store, &store->writer, "starts", &starts);
    if (rc == SQLITE_OK) rc = ebi_schema_meta(store, &store->writer, "recovering", &recovering);
    if (rc == SQLITE_OK) rc = ebi_schema_meta(store, &store->writer, "claimed_to", &claimed_to);
    if (rc == SQLITE_OK) rc = ebi_recover_odd(store);
    if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "starting");
    if (claimed_to < 0) return ebi_error(EB_ERR_CORRUPT, "damaged: meta.claimed_to is negative");
    sqlite3_randomness((int)sizeof bits, &bits);
    ebi_life_begin(bus, (bits & INT64_C(0x3FFFFFFFFFFF)) + 1);
    ebi_lead_begin(bus, bus->life.incarnation << 16);
    ebi_lane_begin(&bus->lane, ((starts & INT64_C(0x3FFFFFFFFF)) << 24) + 1);
    r->uncounted = recovering != 0;
    return EB_OK;
}

/* By eb_start, which owns the file. */
EBI_FN eb_result ebi_recover(eb_bus *bus)
{
    eb_store *store = &bus->store;
    ebi_recovery *r = (ebi_recovery *)ebi_alloc(&store->allocator, sizeof *r);
    eb_result rc;
    if (!r) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memset(r, 0, sizeof *r);
    rc = ebi_writer_run(store, ebi_recover_begin, NULL, r, EB_DURABLE_NORMAL);
    while (rc == EB_OK) {
        rc = ebi_recover_read(store, r, 0);
        if (!r->more) break;
    }
    r->charged = r->counted == 1 && r->uncounted == 0;
    if (rc == EB_OK && r->counted + r->uncounted > 0) rc = ebi_recover_all(store, r);
    r->by_hand = 1;
    if (rc == EB_OK) rc = ebi_recover_all(store, r);
    ebi_free(&store->allocator, r);
    return rc;
}

/* ===========================================================================
** >>attempts   Running the handlers of one event                  [private]
** ========================================================================
** One attempt: the handlers that match, one after the other, until one fails. The lock is free
** while a handler runs. Meanwhile its claim may end in three ways, and what it says then is stale:
**
**   lost      the run: its time was over (ebi_worker_timeout) or the bus stopped without it. The
**             outcome was somebody else's to record; this thread only lets go.
**   revoked   the entry: this process heard that an operator gave the event up (ebi_key_revoke).
**             No further handler of the attempt begins.
**   fenced    the row: its token is another or gone ("token IS ?2", bound by ebi_end_run). The
**             statement that records the outcome changes nothing. This alone would be enough; the
**             other two save work. */

/* The event as the handler sees it. */
EBI_FN void ebi_run_show(eb_bus *bus, ebi_run *run, ebi_entry *e, int64_t now_ms)
{
    eb_event *v = &run->event;
    EBI_HELD(&bus->store);
    EB_ASSERT(run->entry == e && !run->sub);
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
EBI_FN void ebi_attempt_say(eb_bus *bus, ebi_entry *e, const ebi_sub *sub, const char *text,
                            int64_t delay)
{
    char quoted[EBI_ERROR_MAX * 6 + 16], clean[EBI_ERROR_MAX + 8];
    size_t n = ebi_json_quote(quoted, sizeof quoted, text, EBI_ERROR_MAX);
    eb_log_entry entry;
    EB_ASSERT(!e->error_json && e->token != 0);
    e->error_json = (char *)ebi_alloc(&bus->store.allocator, n + 1);
    if (e->error_json) memcpy(e->error_json, quoted, n + 1);
    memset(&entry, 0, sizeof entry);
    entry.level = delay < 0 ? EB_LOG_ERROR : EB_LOG_WARN;
    entry.message = delay < 0 ? "event is dead" : "attempt failed";
    entry.event_id = e->id.str;
    entry.type = e->type;
    ebi_text_clean(clean, sizeof clean, text, EBI_ERROR_MAX, 0);
    entry.error = clean;
    entry.subscription = sub->pattern;
    entry.attempt = e->failed + 1;
    entry.max_attempts = sub->policy.max_retries + 1;
    entry.next_delay_ms = delay;
    ebi_log(&bus->store, &entry);
}

/* Decides retry or death of a failed attempt. No lock held, sub is kept alive by its call. Returns
** the outcome. */
EBI_FN int ebi_attempt_failed(eb_bus *bus, ebi_entry *e, const ebi_sub *sub, const char *text,
                              int hopeless)
{
    const ebi_policy *policy = &sub->policy;
    int max = policy->max_retries + 1; /* see ebi_policy_resolve() */
    int dead = hopeless || e->failed + 1 >= max;
    int64_t delay = dead ? -1 : ebi_policy_delay(policy, e->failed + 1);
    EB_ASSERT(e->failed >= 0 && policy->max_retries >= 0);
    ebi_attempt_say(bus, e, sub, text, delay);
    e->due_ms = dead         ? EBI_NOT_DUE
                : delay == 0 ? 0
                             : ebi_clock_due(ebi_clock_now_ms(&bus->store), delay);
    return dead ? EBI_OUT_DEAD : EBI_OUT_RETRY;
}

/* Turns what a handler returned into an outcome. No lock held; sub is kept alive by its call. */
EBI_FN int ebi_attempt_outcome(eb_bus *bus, ebi_run *run, ebi_sub *sub, eb_result rc, int late)
{
    ebi_entry *e = run->entry;
    char text[160];
    EB_ASSERT(e && run->sub == sub);
    if (late) {
        snprintf(text, sizeof text, "timed out after %lld ms", (long long)sub->timeout_ms);
        return ebi_attempt_failed(bus, e, sub, text, 0);
    }
    if (rc == EB_OK || rc == EB_DUPLICATE) return EBI_OUT_NONE;
    if (rc == EB_FAILED && run->outcome == EBI_OUT_SNOOZE) {
        e->due_ms =
            run->snooze_ms ? ebi_clock_due(ebi_clock_now_ms(&bus->store), run->snooze_ms) : 0;
        return EBI_OUT_SNOOZE;
    }
    if (rc == EB_FAILED && run->outcome != EBI_OUT_NONE)
        return ebi_attempt_failed(bus, e, sub, run->error, run->outcome == EBI_OUT_DEAD);
    return ebi_attempt_failed(bus, e, sub, ebi_result_text(rc), 0);
}

/* Whether the handler forked and this is the child. The file is the parent's, and the lock may be
** held by a thread that does not exist here: it gets a new one, to find its way out with. */
EBI_FN int ebi_attempt_forked(eb_bus *bus)
{
    if (bus->store.who.pid == ebi_platform_pid()) return 0;
    ebi_store_relock(&bus->store);
    ebi_life_be(bus, EBI_FORKED);
    return 1;
}

#if EBI_EXCEPTIONS
/* A failed attempt with this text. */
EBI_FN eb_result ebi_attempt_thrown(ebi_run *run, const char *what)
{
    run->outcome = EBI_OUT_RETRY;
    snprintf(run->error, sizeof run->error, "%s", what);
    return EB_FAILED;
}
#endif

/* The handler itself. Where this file is compiled as C++, an exception that it lets out is a failed
** attempt with its text; where it is C, nothing may leave a handler but a return. */
EBI_FN eb_result ebi_attempt_handler(ebi_run *run, const ebi_sub *sub)
{
#if EBI_EXCEPTIONS
    try {
        return sub->handler(&run->pub, sub->user);
    }
#if defined(__GLIBCXX__)
    catch (abi::__forced_unwind &) { /* the thread is being cancelled: that must go on */
        throw;
    }
#endif
    catch (const std::exception &e) {
        return ebi_attempt_thrown(run, e.what());
    }
    catch (...) {
        return ebi_attempt_thrown(run, "an exception of unknown type");
    }
#else
    return sub->handler(&run->pub, sub->user);
#endif
}

/* Whether the handler of this run has had its time: the one rule for the keeper, for who pumps, for
** eb_extend and eb_cancelled. Lock held. */
EBI_FN int ebi_run_overdue(const ebi_run *run, int64_t now_us)
{
    return run->deadline_us >= 0 && now_us > run->deadline_us;
}

/* Calls one handler. Lock held on entry and exit, not during the call. Returns the outcome;
** EBI_OUT_NONE: it succeeded, or the run was lost meanwhile. */
EBI_FN int ebi_attempt_call(eb_bus *bus, ebi_run *run, ebi_sub *sub)
{
    eb_store *store = &bus->store;
    int64_t now_us = run->now_us, limit = sub->timeout_ms;
    eb_result rc;
    int outcome = EBI_OUT_NONE, late;
    EBI_HELD(&bus->store);
    EB_ASSERT(run->entry && !run->lost && !run->sub);
    EB_ASSERT(!sub->removed && sub->calls >= 0);
    ebi_sub_called(store, sub, 1);
    run->sub = sub;
    run->outcome = EBI_OUT_NONE;
    run->error[0] = 0;
    run->deadline_us = -1;
    if (limit >= 0 && limit < INT64_MAX / 4000)
        run->deadline_us = ebi_clock_add(now_us, ebi_clock_us(limit));
    run->pub.max_attempts = sub->policy.max_retries + 1;
    run->pub.deadline_ms =
        run->deadline_us < 0 ? EB_NONE : ebi_clock_add(ebi_clock_now_ms(store), limit);
    if (run->deadline_us >= 0) ebi_keeper_by(bus, run->deadline_us);
    ebi_store_unlock(store);
    EBI_YIELD();
    rc = ebi_attempt_handler(run, sub);
    EBI_YIELD();
    if (ebi_attempt_forked(bus)) return EBI_OUT_NONE;
    ebi_store_lock(store);
    run->now_us = ebi_clock_mono_us(store);
    late = ebi_run_overdue(run, run->now_us); /* perhaps nobody has noticed yet */
    if (!run->lost) {
        run->deadline_us = -1;
        ebi_store_unlock(store);
        outcome = ebi_attempt_outcome(bus, run, sub, rc, late);
        ebi_store_lock(store);
    }
    run->sub = NULL;
    ebi_sub_called(store, sub, -1);
    ebi_alarms_news(bus);
    return outcome;
}

/* Runs all handlers of e, in order, until one fails. Lock held on entry and exit. Returns 1 if the
** outcome should be committed at once. If the run is lost on the way, somebody else has taken care
** of the outcome, and this thread only lets go. */
EBI_FN int ebi_attempt(eb_bus *bus, ebi_run *run, ebi_entry *e)
{
    ebi_sub *sub;
    int64_t order = 0, start_us = ebi_clock_mono_us(&bus->store);
    int outcome = EBI_OUT_NONE, urgent = 0;
    EBI_HELD(&bus->store);
    EB_ASSERT(!run->entry && e->refs == 1 && e->token != 0);
    EB_ASSERT(bus->life.state == EBI_STARTED && e->outcome == EBI_OUT_NONE && !e->revoked);
    ebi_calls_enter(bus, run, e);
    run->now_us = start_us;
    ebi_lane_busy(e->lane);
    ebi_run_show(bus, run, e, ebi_clock_now_ms(&bus->store));
    while (outcome == EBI_OUT_NONE && !run->lost && !e->revoked &&
           (sub = ebi_subs_next(&bus->subs, e->type, order)) != NULL) {
        order = sub->order;
        run->called++;
        outcome = ebi_attempt_call(bus, run, sub);
        if (bus->life.state == EBI_FORKED) return 0;
    }
    if (run->lost) {
        ebi_figures_stale(bus);
        ebi_entry_drop(&bus->store, e);
    } else {
        ebi_calls_leave(bus, run);
        if (e->suspect) ebi_lane_rest(e->lane, run->now_us - start_us);
        if (outcome == EBI_OUT_NONE) outcome = EBI_OUT_DONE;
        if (outcome == EBI_OUT_DONE) e->due_ms = EBI_NOT_DUE;
        if (run->called == 0) { /* the last one that matched was unsubscribed: back, untried */
            outcome = EBI_OUT_RELEASE;
            e->due_ms = e->suspect ? EBI_NOT_DUE : 0;
        }
        if (e->ordering_key && outcome != EBI_OUT_DONE && outcome != EBI_OUT_DEAD)
            e->alone = ebi_key_comes_back(&bus->lane, e->type);
        ebi_key_leave(&bus->lane, e, outcome == EBI_OUT_DONE || outcome == EBI_OUT_DEAD);
        ebi_lane_adapt(e->lane, run->now_us - start_us);
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
    EBI_HELD(&bus->store);
    for (r = bus->calls.first; r; r = r->next)
        if (r->sub && ebi_thread_same(r->thread, self)) return r;
    for (w = bus->crew.workers; w; w = w->next)
        if (w->run.sub && ebi_thread_same(w->run.thread, self)) return &w->run;
    return NULL;
}

/* Whether this thread must not wait for the bus: it is in one of its handlers, or in its logger.
** Lock held. */
EBI_FN int ebi_run_inside(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    return ebi_log_speaker == &bus->store || ebi_run_here(bus) != NULL;
}

/* ===========================================================================
** >>workers   Threads that run handlers                           [private]
** ========================================================================
** A worker takes what is claimed, claims when nothing is, and sleeps when nothing is due. One that
** is stuck in a handler is left behind (lost), detached, and frees the bus if it is the last to let
** go. */

/* A thread came back: what was paused may be tried again. Lock held. */
EBI_FN void ebi_worker_returned(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    ebi_subs_resume(&bus->store, &bus->subs);
    ebi_alarms_ask(bus, EBI_ASK_SHOW);
    if (bus->lane.turns.claiming || bus->lane.win.parking.paused) ebi_lane_lap(&bus->lane);
}

/* A worker thread, until the bus stops or the thread is left behind. */
EBI_FN void *ebi_worker_main(void *arg)
{
    ebi_worker *w = (ebi_worker *)arg, **at;
    eb_bus *bus = w->bus;
    eb_allocator a = bus->store.allocator; /* the bus may be gone before w is */
    ebi_entry *e;
    int last, urgent, what;
    int64_t until_us;
    ebi_store_lock(&bus->store);
    while (bus->life.state == EBI_STARTED) {
        e = ebi_start_next(&bus->lane);
        if (e) {
            if (bus->crew.idle > 0 && (bus->lane.claimed.head || ebi_turn_due(&bus->lane)))
                ebi_alarms_work_now(bus); /* there is more: one wakes the next */
            urgent = ebi_attempt(bus, &w->run, e);
            if (w->run.lost) break;
            if (urgent) {
                until_us = ebi_alarms_until(bus);
                ebi_store_unlock(&bus->store);
                ebi_outcomes_flush(bus, until_us, 0);
                ebi_store_lock(&bus->store);
            }
        } else if ((what = ebi_turn_what(&bus->lane)) != EBI_CLAIM_NOTHING) {
            ebi_turn_take(&bus->lane, what);
        } else {
            ebi_alarms_idle(bus);
        }
    }
    if (bus->life.state == EBI_FORKED) return NULL;
    EB_ASSERT(bus->crew.idle >= 0 && (w->run.lost ? bus->crew.lost > 0 : bus->crew.alive > 0));
    for (at = &bus->crew.workers; *at && *at != w;) at = &(*at)->next;
    if (w->run.lost) { /* its place was taken long ago; this thread is detached */
        bus->crew.lost--;
        if (*at) *at = w->next;
        ebi_worker_returned(bus);
        last = ebi_life_refer(bus, -1);
        ebi_alarms_news(bus);
        ebi_store_unlock(&bus->store);
        ebi_free(&a, w);
        if (last) bus->store.hooks->gone(&bus->store);
        return NULL;
    }
    bus->crew.alive--;
    ebi_alarms_news(bus);
    ebi_keeper_wake(bus);
    ebi_store_unlock(&bus->store);
    return NULL;
}

/* Starts one more worker. Lock held. */
EBI_FN int ebi_worker_start(eb_bus *bus)
{
    ebi_worker *w = (ebi_worker *)ebi_alloc(&bus->store.allocator, sizeof *w);
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->set.workers > 0);
    EB_ASSERT(bus->life.state == EBI_STARTED && bus->crew.alive < bus->set.workers);
    if (!w) return 0;
    memset(w, 0, sizeof *w);
    w->bus = bus;
    if (ebi_thread_start(&w->thread, ebi_worker_main, w) != 0) {
        ebi_free(&bus->store.allocator, w);
        return 0;
    }
    w->next = bus->crew.workers;
    bus->crew.workers = w;
    bus->crew.alive++;
    return 1;
}

/* Gives up on a run whose handler does not return. Lock held. Its entry keeps a reference: the
** handler may read the event until it returns. */
EBI_FN void ebi_run_lose(eb_bus *bus, ebi_run *run)
{
    ebi_worker *w;
    EBI_HELD(&bus->store);
    EB_ASSERT(!run->lost && run->entry);
    ebi_calls_leave(bus, run);
    if (run->entry->suspect) ebi_lane_rest(run->entry->lane, 0);
    ebi_key_leave(&bus->lane, run->entry, 0); /* who was given up no longer holds its key */
    run->lost = 1;
    ebi_lane_adapt(run->entry->lane, INT64_MAX);
    for (w = bus->crew.workers; w; w = w->next) {
        if (&w->run != run) continue;
        ebi_thread_detach(w->thread);
        bus->crew.alive--;
        bus->crew.lost++;
        ebi_alarms_ask(bus, EBI_ASK_SHOW);
        ebi_life_refer(bus, 1);
    }
}

/* No lock held; sub is kept. */
EBI_FN void ebi_worker_say_paused(const eb_store *store, const ebi_sub *sub)
{
    eb_log_entry entry;
    ebi_log_init(&entry, EB_LOG_ERROR, "too many handlers never returned: subscription paused",
                 NULL);
    entry.subscription = sub->pattern;
    ebi_log(store, &entry);
}

/* A handler is over its deadline: a failed attempt, a lost thread. Lock held on entry and exit. */
EBI_FN void ebi_worker_timeout(eb_bus *bus, ebi_run *run)
{
    eb_store *store = &bus->store;
    ebi_entry *e = run->entry;
    ebi_sub *sub = run->sub;
    char text[80];
    int outcome, paused = 0, urgent;
    EBI_HELD(&bus->store);
    EB_ASSERT(e && sub && sub->calls > 0);
    EB_ASSERT(bus->set.workers > 0 && bus->calls.timed_out == 0);
    if (bus->crew.lost >= EB_LOST_MAX - 1) paused = ebi_sub_pause(store, sub);
    if (paused) ebi_lane_farewell(&bus->lane, sub->pattern);
    ebi_run_lose(bus, run);
    e->refs++;
    ebi_sub_keep(store, sub);
    ebi_calls_timed_out(bus, e->token); /* still held, though no longer called */
    ebi_store_unlock(store);
    snprintf(text, sizeof text, "timed out after %lld ms", (long long)sub->timeout_ms);
    outcome = ebi_attempt_failed(bus, e, sub, text, 0);
    if (paused) ebi_worker_say_paused(store, sub);
    ebi_store_lock(store);
    ebi_sub_let_go(store, sub);
    urgent = ebi_outcome_push(bus, e, outcome);
    ebi_calls_timed_out(bus, 0);
    if (urgent) ebi_outcomes_hurry(bus);
}

/* Waits for threads that are about to return and frees what is left of them. Lock held on entry and
** exit, not in between; by one thread. */
EBI_FN void ebi_workers_join(eb_bus *bus, int keeper)
{
    ebi_worker **at = &bus->crew.workers, *ended = NULL, *w;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->life.state != EBI_STARTED);
    while ((w = *at) != NULL) {
        if (w->run.lost) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->next = ended;
        ended = w;
    }
    ebi_store_unlock(&bus->store);
    while ((w = ended) != NULL) {
        ended = w->next;
        ebi_thread_join(w->thread);
        ebi_free(&bus->store.allocator, w);
    }
    if (keeper) ebi_thread_join(bus->crew.keeper_thread);
    ebi_store_lock(&bus->store);
}

/* ===========================================================================
** >>stops   The last commit of a bus                              [private]
** ========================================================================
** By the keeper, or by the thread that pumps or shuts down: outcomes go to disk, what was claimed
** goes back untried, the file is let go. */

/* What is left in memory at the end goes back to disk, untried. Lock held. */
EBI_FN void ebi_stop_release(eb_bus *bus)
{
    ebi_entry *e;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->life.state != EBI_STARTED && !bus->lane.turns.claiming);
    while ((e = ebi_list_pop(&bus->lane.claimed)) != NULL) {
        ebi_key_leave(&bus->lane, e, 0);
        e->due_ms = EBI_NOT_DUE; /* the next start reads everything */
        ebi_outcome_push(bus, e, EBI_OUT_RELEASE);
    }
    ebi_list_free(&bus->store, &bus->lane.win.ready);
    EB_ASSERT(!bus->lane.chained || bus->lane.starting.head);
}

/* Nobody dispatches any more; in the last commit. */
EBI_FN eb_result ebi_stop_node(eb_store *store, void *arg)
{
    int rc = ebi_db_run(store, &store->writer, EBI_SQL_NODE_CLEAR);
    (void)arg;
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "stopping");
}

/* The end of a bus: outcomes on disk, file no longer owned. No lock held; by the keeper, or by the
** thread that pumps or shuts down. */
EBI_FN void ebi_stop_finish(eb_bus *bus)
{
    eb_store *store = &bus->store;
    int64_t until_us;
    EB_ASSERT(bus->life.state == EBI_STOPPING);
    ebi_store_lock(store);
    while (bus->calls.first) ebi_run_lose(bus, bus->calls.first); /* those that were given up */
    while (bus->lane.turns.claiming) ebi_alarms_wait(bus, -1);
    ebi_store_unlock(store);
    ebi_writer_enter(store); /* whatever is being born claimed is in `claimed` after this */
    ebi_writer_leave(store);
    ebi_store_lock(store);
    ebi_stop_release(bus);
    until_us = ebi_alarms_until(bus);
    ebi_store_unlock(store);
    if (ebi_outcomes_flush_with(bus, ebi_stop_node, until_us, 0) != EB_OK)
        ebi_log_note(store, EB_LOG_ERROR, "last outcomes not recorded: they will run again",
                     ebi_error_text);
    ebi_db_close(&bus->life.owner);
    ebi_store_lock(store);
    ebi_life_be(bus, EBI_STOPPED);
    ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_alarms_news(bus);
    ebi_store_unlock(store);
}

/* ===========================================================================
** >>clockwork   Deadlines, acks, others' commits: what when                  [private]
** ========================================================================
** A list of jobs, each a small function that is asked in turn: it does what is to be done now, or
** says when it wants to be asked again. The keeper goes through the list and sleeps until then; who
** pumps goes through those that are his. Each: lock held on entry and exit, perhaps not in between;
** 1 if it did something, so that the time has to be read again. */

enum { EBI_CLOCKWORK_WAIT_US = 200000 }; /* the keeper waits no longer for anybody's lock */

/* Whether the file is another one than we knew: by its last sequence number and id key, and by the
** schema's cookie, which SQLite changes when it restores a backup. By the leader. */
EBI_FN void ebi_clockwork_replaced(eb_bus *bus)
{
    eb_store *store = &bus->store;
    int64_t seq, cookie = store->trust.cookie;
    EBI_LEADS(store);
    if (ebi_db_run(store, &store->writer, EBI_SQL_READ) != SQLITE_OK) return;
    ebi_publish_last(bus, &seq);
    ebi_db_number(store, &store->writer, EBI_SQL_COOKIE, &cookie);
    ebi_db_rollback(store, &store->writer);
    if (cookie == store->trust.cookie) return;
    store->trust.cookie = cookie;
    ebi_store_lock(store);
    ebi_publish_anew(bus);
    ebi_store_unlock(store);
}

/* Looks for what other processes did. No lock held. 0: the writer could not be had until then. */
EBI_FN int ebi_clockwork_outside(eb_bus *bus, int64_t until_us)
{
    eb_store *store = &bus->store;
    int64_t version = store->trust.data_version;
    int rc, changed;
    if (store->place.in_memory) return 1;
    if (!ebi_writer_enter_until(store, until_us)) return 0;
    rc = store->writer.handle
             ? ebi_db_number(store, &store->writer, EBI_SQL_DATA_VERSION, &version)
             : SQLITE_CANTOPEN;
    if (rc == SQLITE_OK) ebi_commit_moved(store);
    changed = rc == SQLITE_OK && version != store->trust.data_version;
    if (changed) {
        store->trust.data_version = version;
        ebi_fence_check(&bus->lane);
        ebi_clockwork_replaced(bus);
    }
    ebi_writer_leave(store);
    if (!changed) return 1;
    ebi_store_lock(store);
    ebi_lane_stir(&bus->lane);
    ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_alarms_work_now(bus);
    ebi_alarms_news(bus);
    ebi_store_unlock(store);
    return 1;
}

/* This turn is asked again at at_us at the latest. Lock held. */
EBI_FN void ebi_clockwork_again(eb_bus *bus, int64_t at_us)
{
    EBI_HELD(&bus->store);
    if (at_us < bus->clockwork.next_us) bus->clockwork.next_us = at_us;
}

/* Microseconds until there is an event to run or a row to look at: 0 now, INT64_MAX nothing known.
** Lock held. */
EBI_FN int64_t ebi_clockwork_in(eb_bus *bus)
{
    const ebi_window *w = &bus->lane.win;
    int64_t now_us = ebi_clock_mono_us(&bus->store), in_us = INT64_MAX, wait_ms;
    EBI_HELD(&bus->store);
    if (bus->alarms.retry_at_us > now_us) return bus->alarms.retry_at_us - now_us;
    if (bus->lane.claimed.head || bus->lane.chained || ebi_turn_due(&bus->lane)) return 0;
    if (ebi_window_lapping(w) && w->lap.rest_us > now_us) in_us = w->lap.rest_us - now_us;
    if (w->next_due_ms == INT64_MAX) return in_us;
    wait_ms = w->next_due_ms - ebi_clock_now_ms(&bus->store);
    if (wait_ms <= 0) return 0;
    return ebi_clock_us(wait_ms) < in_us ? ebi_clock_us(wait_ms) : in_us;
}

/* Handlers over their deadline. */
EBI_FN int ebi_job_deadlines(eb_bus *bus)
{
    ebi_run *r;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->set.workers > 0);
    for (r = bus->calls.first; r; r = r->next) {
        if (!r->sub || r->deadline_us < 0) continue;
        if (ebi_run_overdue(r, bus->clockwork.now_us)) {
            ebi_worker_timeout(bus, r);
            return 1;
        }
        ebi_clockwork_again(bus, r->deadline_us + 1);
    }
    return 0;
}

/* A new thread in the place of a lost one; without memory or threads for it, again in a second. */
EBI_FN int ebi_job_hire(eb_bus *bus)
{
    ebi_clockwork *k = &bus->clockwork;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->crew.alive >= 0 && bus->crew.alive <= bus->set.workers);
    if (bus->life.state != EBI_STARTED || bus->crew.alive >= bus->set.workers) return 0;
    if (k->hire_us <= k->now_us && ebi_worker_start(bus)) {
        k->hire_failed = 0;
        return 1;
    }
    if (k->hire_us <= k->now_us) {
        k->hire_us = k->now_us + 1000000;
        if (!k->hire_failed)
            ebi_log_later(&bus->store, EB_LOG_WARN,
                          "cannot start a thread in the place of a lost one",
                          "%d of %d workers are left; tried again every second",
                          bus->crew.alive, bus->set.workers);
        k->hire_failed = 1;
    }
    ebi_clockwork_again(bus, k->hire_us);
    return 0;
}

/* Acks that found no commit to ride on. */
EBI_FN int ebi_job_acks(eb_bus *bus)
{
    int64_t due_us = bus->alarms.retry_at_us;
    int64_t until_us = bus->clockwork.now_us + EBI_CLOCKWORK_WAIT_US;
    eb_result rc;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->crew.keeper_alive);
    if (!bus->out.waiting.head) return 0;
    if (due_us == 0) due_us = bus->out.since_us + EB_ACK_DELAY_MS * 1000;
    ebi_clockwork_again(bus, due_us);
    if (due_us > bus->clockwork.now_us) return 0;
    ebi_store_unlock(&bus->store);
    rc = ebi_outcomes_flush(bus, until_us, until_us);
    if (rc < 0 && rc != EB_ERR_BUSY) /* a lock is said by whoever waits for it: ebi_db_locked() */
        ebi_log_note(&bus->store, EB_LOG_ERROR, "cannot record outcomes yet", ebi_error_text);
    ebi_store_lock(&bus->store);
    if (rc == EB_ERR_BUSY && !bus->alarms.retry_at_us) ebi_alarms_backoff(bus);
    return 1;
}

/* Stuck handlers are written down, for other processes to see. */
EBI_FN eb_result ebi_job_show_func(eb_store *store, void *arg)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_sub *sub;
    eb_id id;
    int paused = 0;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SUB_PAUSED);
    int rc = s ? ebi_commit_step(store, EBI_SQL_NODE_LOST, *(const int *)arg)
               : ebi_db_code(&store->writer);
    EBI_LEADS(store);
    while (rc == SQLITE_OK) {
        ebi_store_lock(store);
        sub = ebi_subs_unshown(store, &bus->subs);
        if (sub) {
            id = sub->id;
            paused = sub->paused;
        }
        ebi_store_unlock(store);
        if (!sub) break;
        ebi_bind_text(s, 1, id.str);
        sqlite3_bind_int(s, 2, paused);
        rc = ebi_db_step(s);
    }
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "showing what is stuck");
}
EBI_FN int ebi_job_show(eb_bus *bus)
{
    ebi_req r;
    int lost = bus->crew.lost;
    int64_t until_us = bus->clockwork.now_us + EBI_CLOCKWORK_WAIT_US;
    EBI_HELD(&bus->store);
    if (bus->life.state != EBI_STARTED || !ebi_alarms_asked(bus, EBI_ASK_SHOW)) return 0;
    ebi_store_unlock(&bus->store);
    ebi_req_init(&r, ebi_job_show_func, NULL, &lost, EB_DURABLE_NORMAL, until_us);
    r.queue_us = until_us;
    ebi_writer_commit(&bus->store, &r); /* if it fails: for information only */
    ebi_store_lock(&bus->store);
    return 1;
}

/* What others left for the log. */
EBI_FN int ebi_job_notes(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    if (bus->store.notes.count == 0) return 0;
    ebi_store_unlock(&bus->store);
    ebi_log_flush(&bus->store);
    ebi_store_lock(&bus->store);
    return 1;
}

/* A checkpoint on a connection of its own, so that nobody waits. No lock held. */
EBI_FN void ebi_clockwork_checkpoint(eb_bus *bus)
{
    eb_store *store = &bus->store;
    eb_result rc = EB_OK;
    int code, frames = 0, copied = 0;
    if (!bus->crew.checker.handle) rc = ebi_db_open(store, &bus->crew.checker, 0);
    if (rc == EB_OK) rc = ebi_db_level(&bus->crew.checker, store->durability);
    if (rc != EB_OK) return; /* the leader will do it */
    code = sqlite3_wal_checkpoint_v2(bus->crew.checker.handle, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                     &frames, &copied);
    ebi_wal_copied(store, code, frames, copied);
    if ((code & 0xFF) != SQLITE_IOERR) return;
    ebi_writer_enter(store);
    ebi_commit_distrust(store); /* what it read may not be on disk */
    ebi_writer_leave(store);
    ebi_db_error(&bus->crew.checker, code, "checkpoint");
    ebi_log_note(store, EB_LOG_ERROR, "checkpoint failed", ebi_error_text);
}

/* The WAL is long, see ebi_keeper_copies(). */
EBI_FN int ebi_job_checkpoint(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->crew.keeper_alive);
    if (!ebi_alarms_asked(bus, EBI_ASK_CHECKPOINT)) return 0;
    ebi_store_unlock(&bus->store);
    ebi_clockwork_checkpoint(bus);
    ebi_store_lock(&bus->store);
    return 1;
}

/* A look for other processes' commits: when idle_poll_ms have passed, or somebody asks for it. The
** keeper does not wait for a lock; who pumps has time. */
EBI_FN int ebi_job_outside(eb_bus *bus)
{
    ebi_clockwork *k = &bus->clockwork;
    int64_t poll_us = ebi_clock_us(bus->set.idle_poll_ms),
            at_us = ebi_clock_add(k->looked_us, poll_us);
    int looked, polls = bus->set.idle_poll_ms >= 0;
    EBI_HELD(&bus->store);
    if (k->looked_us == 0 && bus->set.workers)
        at_us = ebi_clock_add(k->now_us, poll_us); /* the first */
    if (k->looked_us == 0) k->looked_us = bus->set.workers ? k->now_us : 0;
    if (polls) ebi_clockwork_again(bus, at_us);
    if (!ebi_alarms_asked(bus, EBI_ASK_LOOK) && !(polls && at_us <= k->now_us)) return 0;
    k->looked_us = k->now_us;
    ebi_store_unlock(&bus->store);
    looked = ebi_clockwork_outside(bus, bus->set.workers ? k->now_us + EBI_CLOCKWORK_WAIT_US : 0);
    ebi_store_lock(&bus->store);
    if (!looked) ebi_alarms_ask(bus, EBI_ASK_LOOK); /* again */
    return 1;
}

/* Events that are due: somebody idle is woken for them, or the keeper wakes up when they are. */
EBI_FN int ebi_job_due(eb_bus *bus)
{
    int64_t in_us = ebi_clockwork_in(bus);
    EBI_HELD(&bus->store);
    if (in_us > 0) ebi_clockwork_again(bus, ebi_clock_add(bus->clockwork.now_us, in_us));
    else if (bus->life.state == EBI_STARTED && bus->crew.idle > 0)
        ebi_alarms_work_now(bus);
    return 0;
}

/* In order of urgency; pump: who pumps does it too, in his way he does the others. */
static const struct ebi_job {
    int (*run)(eb_bus *bus);
    int pump;
} ebi_jobs[] = {{ebi_job_deadlines, 0}, {ebi_job_hire, 0},  {ebi_job_acks, 0},
                {ebi_job_show, 0},      {ebi_job_notes, 1}, {ebi_job_checkpoint, 0},
                {ebi_job_outside, 1},   {ebi_job_due, 0}};

/* Does the first job that has something to do, and returns 1; else bus->clockwork.next_us says when
** to ask again. Lock held on entry and exit. */
EBI_FN int ebi_clockwork_turn(eb_bus *bus)
{
    size_t i;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->set.workers ? bus->crew.keeper_alive : bus->pump.active);
    bus->clockwork.now_us = ebi_clock_mono_us(&bus->store);
    bus->clockwork.next_us = bus->clockwork.now_us + INT64_C(3600000000);
    for (i = 0; i < sizeof ebi_jobs / sizeof *ebi_jobs; i++)
        if ((bus->set.workers || ebi_jobs[i].pump) && ebi_jobs[i].run(bus)) return 1;
    return 0;
}

/* The thread that keeps the time: does what is to be done and sleeps until there is more. */
EBI_FN void *ebi_clockwork_keeper(void *arg)
{
    eb_bus *bus = (eb_bus *)arg;
    eb_store *store = &bus->store;
    ebi_store_lock(store);
    while (bus->life.state == EBI_STARTED || (bus->crew.alive > 0 && !bus->life.abandon)) {
        if (ebi_clockwork_turn(bus)) continue;
        ebi_keeper_sleep(bus, bus->clockwork.next_us,
                         bus->clockwork.next_us - bus->clockwork.now_us);
    }
    ebi_store_unlock(store);
    ebi_db_close(&bus->crew.checker);
    ebi_stop_finish(bus);
    ebi_store_lock(store);
    bus->crew.keeper_alive = 0;
    ebi_alarms_news(bus);
    ebi_store_unlock(store);
    return NULL;
}

/* ===========================================================================
** >>pump   The same engine on the caller's thread                 [private]
** ========================================================================
** When there is work again says ebi_clockwork_in(), to the keeper too.
** The same claims, attempts and outcomes, driven by whoever calls eb_pump, eb_wait, eb_drain or
** eb_publish; one thread at a time. */

/* This thread pumps from now on. Lock held. */
EBI_FN void ebi_pump_take(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(!bus->pump.active);
    bus->pump.active = 1;
    bus->pump.thread = ebi_thread_self();
}

/* The caller of eb_wait or eb_drain waits no longer, nor for anybody's lock. Lock held. */
EBI_FN void ebi_pump_until(eb_bus *bus, int64_t until_us)
{
    EBI_HELD(&bus->store);
    bus->pump.until_us = until_us;
}

/* Takes the right to pump. Lock held. */
EBI_FN eb_result ebi_pump_enter(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(!bus->set.workers);
    if (bus->life.state < EBI_STARTED) return ebi_error(EB_ERR_STATE, "the bus is not started");
    if (bus->life.state != EBI_STARTED) return ebi_error(EB_ERR_SHUTDOWN, "the bus is shut down");
    if (ebi_run_inside(bus) ||
        (bus->pump.active && ebi_thread_same(bus->pump.thread, ebi_thread_self())))
        return ebi_error(EB_ERR_STATE, "not inside a handler or logger");
    if (bus->pump.active) return ebi_error(EB_ERR_STATE, "another thread is pumping");
    ebi_pump_take(bus);
    return EB_OK;
}

/* Milliseconds until something is due: 0 now, -1 nothing known. Lock held. */
EBI_FN int64_t ebi_pump_next(eb_bus *bus)
{
    int64_t in_us = ebi_clockwork_in(bus);
    EBI_HELD(&bus->store);
    return in_us == INT64_MAX ? -1 : in_us / 1000 + (in_us % 1000 != 0);
}

/* Gives the right to pump back; finishes a shutdown that began meanwhile. Lock held on entry and
** exit. */
EBI_FN void ebi_pump_leave(eb_bus *bus)
{
    int64_t next;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->pump.active);
    EB_ASSERT(ebi_thread_same(bus->pump.thread, ebi_thread_self()));
    if (bus->life.state == EBI_FORKED) return;
    if (bus->life.state == EBI_STOPPING) {
        ebi_store_unlock(&bus->store);
        ebi_stop_finish(bus);
        ebi_store_lock(&bus->store);
    }
    bus->pump.active = 0;
    next = bus->life.state == EBI_STARTED ? ebi_pump_next(bus) : -1;
    if (next >= 0) /* unless it was said */
        ebi_notice(bus, ebi_clock_add(ebi_clock_now_ms(&bus->store), next));
    ebi_alarms_news(bus);
}

/* Runs one event if one is due and the deadline (monotonic ms) is not over, or looks for some. Lock
** held on entry and exit. Returns 0 if there was nothing to do, 1 if it only looked, 2 if it ran
** one. */
EBI_FN int ebi_pump_one(eb_bus *bus, int64_t deadline_ms)
{
    ebi_entry *e = ebi_start_next(&bus->lane);
    int what = e ? EBI_CLAIM_NOTHING : ebi_turn_what(&bus->lane);
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->pump.active && !bus->set.workers);
    if (!e && what == EBI_CLAIM_NOTHING) return 0;
    if (!e) {
        ebi_turn_take(&bus->lane, what);
        if (ebi_clock_mono_ms(&bus->store) >= deadline_ms) return 1; /* the commit took long */
        e = ebi_start_next(&bus->lane);
    }
    if (!e) return 1;
    ebi_attempt(bus, &bus->pump.run, e);
    return bus->pump.run.called ? 2 : 1;
}

/* EB_ERR_FORK in a child that came back from a handler; see ebi_attempt_forked(). Lock held. */
EBI_FN eb_result ebi_pump_forked(const eb_bus *bus)
{
    EBI_HELD(&bus->store);
    return bus->life.state == EBI_FORKED ? ebi_store_check(&bus->store) : EB_OK;
}

/* Commits what there is to commit. Lock held on entry and exit. */
EBI_FN eb_result ebi_pump_flush(eb_bus *bus)
{
    eb_result rc = ebi_pump_forked(bus);
    int64_t until_us;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->pump.active);
    if (rc != EB_OK || !bus->out.waiting.head) return rc;
    until_us = ebi_alarms_until(bus);
    ebi_store_unlock(&bus->store);
    rc = ebi_outcomes_flush(bus, until_us, 0);
    ebi_store_lock(&bus->store);
    return rc;
}

/* Does what is to be done beside events; now: looks outside whether it is time to or not. Lock held
** on entry and exit. */
EBI_FN void ebi_pump_look(eb_bus *bus, int now)
{
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->pump.active && !bus->set.workers);
    if (now) ebi_alarms_ask(bus, EBI_ASK_LOOK);
    while (bus->life.state == EBI_STARTED && ebi_clockwork_turn(bus)) continue;
}

/* The body of eb_pump: at least one event, then more until the deadline; then everything on disk.
** Lock held on entry and exit. */
EBI_FN eb_result ebi_pump_some(eb_bus *bus, int64_t deadline_ms)
{
    eb_result rc;
    int did, ran = 0;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->pump.active);
    ebi_pump_look(bus, 1);
    for (;;) {
        while (ebi_pump_look(bus, 0), bus->life.state == EBI_STARTED &&
               (did = ebi_pump_one(bus, ran ? deadline_ms : INT64_MAX)) != 0) {
            ran |= did == 2;
            if (ran && ebi_clock_mono_ms(&bus->store) >= deadline_ms) return ebi_pump_flush(bus);
        }
        rc = ebi_pump_flush(bus); /* a retry without a wait is due once it is on disk */
        if (rc != EB_OK || bus->life.state != EBI_STARTED || ebi_pump_next(bus) != 0) return rc;
        if (ran && ebi_clock_mono_ms(&bus->store) >= deadline_ms) return rc;
    }
}

/* Flushes and leaves, at the end of a call that waited: what ran meanwhile is on disk when it
** returns. Lock held on entry and exit. */
EBI_FN void ebi_pump_done(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    ebi_pump_flush(bus);
    bus->pump.until_us = 0;
    ebi_pump_leave(bus);
}

/* One turn of waiting without threads: runs what is due, or sleeps until something is, but at most
** until the deadline (monotonic ms, INT64_MAX: none) and at most one idle poll. Lock held. */
EBI_FN void ebi_pump_turn(eb_bus *bus, int64_t deadline_ms)
{
    int64_t next, left;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->pump.active && !bus->set.workers);
    ebi_pump_look(bus, 0);
    if (ebi_pump_one(bus, INT64_MAX)) {
        if (ebi_waiters_any(bus, 0) || !bus->lane.claimed.head) ebi_pump_flush(bus);
        return;
    }
    ebi_pump_flush(bus);
    next = ebi_pump_next(bus);
    if (next == 0) return;
    left = deadline_ms == INT64_MAX ? INT64_MAX : deadline_ms - ebi_clock_mono_ms(&bus->store);
    if (next <= 0 || next > left) next = left;
    if (bus->set.idle_poll_ms >= 0 && next > bus->set.idle_poll_ms) next = bus->set.idle_poll_ms;
    if (next == INT64_MAX) next = 1000;
    ebi_store_unlock(&bus->store);
    ebi_clock_sleep_ms(&bus->store, next > 0 ? next : 0);
    ebi_store_lock(&bus->store);
    ebi_pump_look(bus, 1);
}

/* ===========================================================================
** >>waiting   For one event, for all of them                      [private]
** ========================================================================
** eb_wait and eb_publish wait for one event, eb_drain for all. They look at the file when something
** has happened, and once per idle poll: an event may end in another process. */

/* How event seq with this id stands: EB_OK done, EB_DEAD, EB_EMPTY still alive, or an error. No
** lock held. */
EBI_FN eb_result ebi_wait_look(eb_bus *bus, int64_t seq, const char *id)
{
    static const eb_result means[] = {EB_ERR_NOT_FOUND, EB_EMPTY, EB_DEAD, EB_OK};
    eb_store *store = &bus->store;
    ebi_stand stand;
    ebi_db *db;
    eb_result rc = ebi_reader_enter(store, &db);
    int code = rc == EB_OK ? ebi_stand_look(store, db, seq, id, &stand) : SQLITE_OK;
    EB_ASSERT(seq > 0 && id);
    if (code != SQLITE_OK) rc = ebi_db_error(db, code, "looking for an event");
    else if (rc == EB_OK) rc = means[stand.state];
    if (rc == EB_ERR_NOT_FOUND) ebi_error(rc, "no event %s", id);
    ebi_reader_leave(store, db);
    return rc;
}

/* For the end of seq; not registered yet. */
EBI_FN void ebi_waiter_init(ebi_waiter *w, int64_t seq)
{
    memset(w, 0, sizeof *w);
    w->seq = seq;
    w->known = EB_EMPTY;
    ebi_cond_init(&w->cond);
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
    int64_t left, poll = bus->set.idle_poll_ms >= 0 ? bus->set.idle_poll_ms : 1000;
    int late = deadline_ms <= ebi_clock_mono_ms(store); /* 0: only looks */
    EBI_HELD(&bus->store);
    EB_ASSERT(w->seq > 0 && (!pump || bus->pump.active));
    for (;;) {
        if ((rc = ebi_pump_forked(bus)) != EB_OK) break;
        if (own && w->known != EB_EMPTY) return w->known;
        if (pump || w->hit) {
            w->hit = 0;
            ebi_store_unlock(store);
            rc = ebi_wait_look(bus, w->seq, id);
            ebi_store_lock(store);
            if (rc != EB_EMPTY) break;
        }
        left = deadline_ms == INT64_MAX ? poll : deadline_ms - ebi_clock_mono_ms(store);
        if (left <= 0 && (late || !pump)) {
            rc = ebi_error(EB_ERR_TIMEOUT, "event %s is not finished", id);
            break;
        }
        late = left <= 0; /* one more turn: what is due right now is still in time */
        if (bus->life.state == EBI_STOPPED || (pump && bus->life.state != EBI_STARTED)) {
            rc = ebi_error(EB_ERR_SHUTDOWN, "the bus stopped; event %s is on disk", id);
            break;
        }
        rc = ebi_alarms_hopeless(bus);
        if (rc != EB_OK) break;
        if (pump) {
            ebi_pump_turn(bus, deadline_ms);
        } else {
            ebi_clock_wait(store, &w->cond, ebi_clock_us(left < poll ? left : poll));
            w->hit = 1;
        }
    }
    return rc;
}

/* Whether memory has something to do. Lock held. */
EBI_FN int ebi_drain_busy(const eb_bus *bus)
{
    const ebi_window *w = &bus->lane.win;
    EBI_HELD(&bus->store);
    return w->ready.head || bus->lane.claimed.head || bus->lane.chained ||
           bus->lane.turns.claiming || bus->lane.starting.head || bus->lane.looks.head ||
           bus->calls.running || bus->calls.timed_out || bus->out.waiting.head ||
           bus->out.taking.head || bus->alarms.saying;
}

/* Whether an event waits for a subscription that is paused: EB_ERR_STATE and its name. Looks at
** what was passed over, in slices, only if something was for that reason. No lock held. */
EBI_FN eb_result ebi_drain_paused(eb_bus *bus)
{
    eb_store *store = &bus->store;
    ebi_db *db;
    sqlite3_stmt *s;
    const ebi_sub *sub;
    int64_t seq = 0, before = -1;
    eb_result rc = EB_OK;
    while (rc == EB_OK && seq != before) {
        before = seq;
        rc = ebi_reader_enter(store, &db);
        s = rc == EB_OK ? ebi_db_stmt(store, db, EBI_SQL_WAITING) : NULL;
        if (s) sqlite3_bind_int64(s, 1, seq);
        while (s && rc == EB_OK && sqlite3_step(s) == SQLITE_ROW) {
            const char *type = ebi_column(s, 1);
            seq = sqlite3_column_int64(s, 0);
            ebi_store_lock(store);
            for (sub = bus->subs.first; sub && type; sub = sub->next)
                if (sub->paused && ebi_glob(sub->pattern, type)) break;
            if (sub && type)
                rc = ebi_error(EB_ERR_STATE, "events wait for the subscription %s, which is "
                               "paused: too many of its handlers never returned", sub->pattern);
            ebi_store_unlock(store);
        }
        if (s) sqlite3_reset(s);
        ebi_reader_leave(store, db);
    }
    return rc;
}

/* What of the lane an answer about the file rests on: if that has changed meanwhile, it is worth
** nothing. */
typedef struct ebi_drain {
    int64_t cursor, epoch, begun;
    int paused;
} ebi_drain;

/* Takes it; 1: memory has something to do. No lock held. */
EBI_FN int ebi_drain_note(eb_bus *bus, ebi_drain *d)
{
    const ebi_lane *lane = &bus->lane;
    int busy;
    ebi_store_lock(&bus->store);
    busy = ebi_drain_busy(bus);
    d->cursor = ebi_window_lapping(&lane->win) ? 0 : lane->win.cursor;
    d->epoch = lane->win.epoch;
    d->begun = lane->turns.begun;
    d->paused = lane->win.parking.paused;
    ebi_store_unlock(&bus->store);
    return busy;
}

/* Whether rows are left that memory has to come back to: *left. What it has passed over is not
** looked at again; the rest is looks at an index, through the reader, so that neither a publisher
** nor a foreign lock is in the way. */
EBI_FN eb_result ebi_drain_rows(eb_bus *bus, const ebi_drain *d, int *left)
{
    eb_store *store = &bus->store;
    ebi_db *db;
    int code = SQLITE_ERROR;
    eb_result rc = ebi_reader_enter(store, &db);
    sqlite3_stmt *s = rc == EB_OK ? ebi_db_stmt(store, db, EBI_SQL_UNFINISHED) : NULL;
    if (s) {
        sqlite3_bind_int64(s, 1, d->cursor);
        sqlite3_bind_int64(s, 2, d->epoch);
        code = sqlite3_step(s);
        if (code == SQLITE_ROW) *left = sqlite3_column_int(s, 0);
        sqlite3_reset(s);
    }
    if (rc == EB_OK && code != SQLITE_ROW)
        rc = ebi_db_error(db, s ? code : ebi_db_code(db), "looking for unfinished events");
    ebi_reader_leave(store, db);
    return rc;
}

/* Whether anything is left to do: EB_OK no, EB_EMPTY yes, else an error. Memory is asked, then the
** file, then memory again: an event that was due in between may have run, and others of its key,
** which nothing in the file brings back, are next. No lock held. */
EBI_FN eb_result ebi_drain_state(eb_bus *bus)
{
    ebi_drain before, after;
    int left = 0;
    eb_result rc;
    if (ebi_drain_note(bus, &before)) return EB_EMPTY;
    rc = ebi_drain_rows(bus, &before, &left);
    if (rc == EB_OK && !left && before.paused) rc = ebi_drain_paused(bus);
    if (rc != EB_OK) return rc;
    if (left || ebi_drain_note(bus, &after)) return EB_EMPTY;
    return after.begun == before.begun && after.epoch == before.epoch &&
                   after.paused == before.paused ? EB_OK : EB_EMPTY;
}

/* What others have committed counts too: looks for it, unless the writer is not to be had in time.
** Lock held on entry and exit, not in between. */
EBI_FN void ebi_drain_look(eb_bus *bus, int64_t deadline_ms)
{
    eb_store *store = &bus->store;
    int64_t until_us = ebi_clock_mono_us(store) + EBI_CLOCKWORK_WAIT_US;
    EBI_HELD(store);
    if (bus->life.state != EBI_STARTED) return;
    if (deadline_ms < until_us / 1000) until_us = deadline_ms * 1000;
    ebi_store_unlock(store);
    ebi_clockwork_outside(bus, until_us > 0 ? until_us : 1);
    ebi_store_lock(store);
}

/* The body of eb_drain. Lock held on entry and exit. */
EBI_FN eb_result ebi_drain_for(eb_bus *bus, int64_t deadline_ms)
{
    eb_store *store = &bus->store;
    eb_result rc = EB_OK, state;
    int pump = !bus->set.workers, late = deadline_ms <= ebi_clock_mono_ms(store);
    int64_t left;
    EBI_HELD(&bus->store);
    if (pump && (rc = ebi_pump_enter(bus)) != EB_OK) return rc;
    if (pump) ebi_pump_until(bus, ebi_clock_us(deadline_ms));
    if (pump) ebi_pump_look(bus, 1);
    else ebi_drain_look(bus, deadline_ms);
    ebi_alarms_drain(bus, 1);
    EB_ASSERT(!pump || bus->pump.active);
    for (;;) {
        if ((rc = ebi_pump_forked(bus)) != EB_OK) break;
        if (bus->out.waiting.head && pump) ebi_pump_flush(bus);
        if (bus->out.waiting.head && !bus->alarms.retry_at_us) { /* the keeper commits them now */
            ebi_outcomes_hurry(bus);
        }
        ebi_store_unlock(store);
        state = ebi_drain_state(bus);
        ebi_store_lock(store);
        rc = state;
        if (rc == EB_OK || rc == EB_ERR_STATE) break;
        if (bus->life.state != EBI_STARTED) {
            rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is shutting down");
            break;
        }
        if (rc == EB_ERR_CORRUPT || rc == EB_ERR_SCHEMA) break;
        rc = ebi_alarms_hopeless(bus);
        if (rc != EB_OK) break;
        left = deadline_ms == INT64_MAX ? 1000 : deadline_ms - ebi_clock_mono_ms(store);
        if (left <= 0 &&
            (late || !pump || !(bus->lane.claimed.head || ebi_turn_due(&bus->lane)))) {
            rc = state; /* if the file could not be read, that is why */
            if (rc == EB_EMPTY) rc = ebi_error(EB_ERR_TIMEOUT, "there are unfinished events");
            break;
        }
        bus->pump.run.called = 0;
        if (pump) ebi_pump_turn(bus, deadline_ms);
        else ebi_alarms_wait(bus, (left < 1000 ? left : 1000) * 1000);
        if (left <= 0) late = bus->pump.run.called; /* what is due right now was still in time */
    }
    ebi_alarms_drain(bus, -1);
    if (pump) ebi_pump_done(bus);
    return rc;
}

/* ===========================================================================
** >>options   Checked once, resolved once                         [private]
** ========================================================================
** Before anything is opened. */

/* Everything in options that a bus adds to what a store uses. */
EBI_FN eb_result ebi_options_bus(eb_bus *bus, const eb_options *o)
{
    eb_result rc;
    EB_ASSERT(bus->life.state == EBI_OPEN && !bus->store.writer.handle);
    if (o->workers < EB_NONE || o->workers > 1024)
        return ebi_error(EB_ERR_ARG, "options.workers is 0 to 1024 or EB_NONE");
    if (o->durability < 0 || o->durability > EB_DURABLE_OFF)
        return ebi_error(EB_ERR_ARG, "options.durability is none of EB_DURABLE_...");
    if (o->on_unmatched < 0 || o->on_unmatched > EB_UNMATCHED_KEEP)
        return ebi_error(EB_ERR_ARG, "options.on_unmatched is none of EB_UNMATCHED_...");
    if (o->max_pending < EB_NONE) return ebi_error(EB_ERR_ARG, "options.max_pending is negative");
    if (o->notify.func && o->workers != EB_NONE)
        return ebi_error(EB_ERR_ARG, "options.notify needs workers = EB_NONE");
    if (o->clock.now_ms && o->workers != EB_NONE)
        return ebi_error(EB_ERR_ARG, "options.clock needs workers = EB_NONE");
    rc = ebi_options_ms("options.handler_timeout_ms", o->handler_timeout_ms, 30000, -1,
                        &bus->set.handler_timeout_ms);
    if (rc == EB_OK)
        rc = ebi_options_ms("options.shutdown_timeout_ms", o->shutdown_timeout_ms, 30000, -1,
                            &bus->set.shutdown_timeout_ms);
    if (rc == EB_OK)
        rc = ebi_options_ms("options.idle_poll_ms", o->idle_poll_ms, 1000, -1,
                            &bus->set.idle_poll_ms);
    if (rc == EB_OK)
        rc = ebi_policy_resolve(&bus->store.allocator, &o->retry, NULL, &bus->set.policy);
    if (rc != EB_OK) return rc;
    if (o->workers != EB_NONE && (!EBI_THREADS || !sqlite3_threadsafe()))
        return ebi_error(EB_ERR_THREADS, "no threads in this build: workers = EB_NONE and eb_pump");
    bus->set.workers = o->workers == EB_NONE ? 0 : o->workers == 0 ? 1 : o->workers;
    bus->store.durability = o->durability;
    bus->set.on_unmatched = o->on_unmatched;
    bus->set.notify = o->notify;
    bus->set.max_pending = o->max_pending;
    bus->set.max_payload = o->max_payload_bytes ? o->max_payload_bytes : 1024 * 1024;
    return EB_OK;
}

/* No text may be longer than this SQLite stores: binding it would fail, and leave a NULL. */
EBI_FN void ebi_options_limit(eb_bus *bus)
{
    size_t most = (size_t)sqlite3_limit(bus->store.writer.handle, SQLITE_LIMIT_LENGTH, -1);
    if (bus->set.max_payload > most - most / 10) bus->set.max_payload = most - most / 10;
}

/* What this version does not know must be zero, so that later versions can give it a meaning. */
EBI_FN eb_result ebi_options_sub(const eb_subscribe_options *o)
{
    int rate = o->max_per_second < 0.0 || o->max_per_second > 0.0 ||
               o->max_per_second != o->max_per_second;
    if (o->name || rate || o->transactional || o->from || o->order || o->order_path || o->on_dead ||
        o->instances || o->checkpoint_every || o->checkpoint_ms || o->max_concurrency ||
        o->breaker_failures || o->breaker_ms)
        return ebi_error(EB_ERR_ARG, "subscribe: name, breaker_failures, breaker_ms, from, order, "
                         "order_path, on_dead, checkpoint_every, checkpoint_ms, max_concurrency, "
                         "max_per_second, instances and transactional are for later versions: "
                         "leave them zero");
    return EB_OK;
}

/* ===========================================================================
** >>subscriptions   Who wants what                                [private]
** ========================================================================
** A list in order of subscribing, under the lock. A subscription that is removed leaves the list at
** once and is freed when its last running call has returned. */

/* A subscription that is in no list yet; to be given to ebi_sub_release() if it never will be. */
EBI_FN eb_result ebi_sub_new(eb_bus *bus, const char *pattern, const eb_subscribe_options *o,
                             ebi_sub **out)
{
    const eb_allocator *a = &bus->store.allocator;
    ebi_sub *s = (ebi_sub *)ebi_alloc(a, sizeof *s);
    eb_result rc;
    int ok = 1;
    EB_ASSERT(pattern && bus->set.policy.max_retries >= 0);
    if (!s) return ebi_error(EB_ERR_NOMEM, "out of memory");
    memset(s, 0, sizeof *s);
    rc = ebi_options_ms("timeout_ms", o->timeout_ms, bus->set.handler_timeout_ms, -1,
                        &s->timeout_ms);
    if (rc == EB_OK) rc = ebi_policy_resolve(a, &o->retry, &bus->set.policy, &s->policy);
    if (rc == EB_OK) s->pattern = ebi_strdup(a, pattern, &ok);
    if (!ok) rc = ebi_error(EB_ERR_NOMEM, "out of memory");
    if (rc == EB_OK) ebi_subs_classify(s);
    ebi_id_random(&s->id);
    if (rc == EB_OK) {
        *out = s;
        return EB_OK;
    }
    ebi_sub_free(&bus->store, s);
    return rc;
}

/* Its row, for information; SQLite's result. */
EBI_FN int ebi_sub_row(eb_store *store, const ebi_sub *s)
{
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *stmt = ebi_db_stmt(store, &store->writer, EBI_SQL_SUB_INSERT);
    EBI_LEADS(store);
    if (!stmt) return ebi_db_code(&store->writer);
    ebi_time_text(ebi_clock_now_ms(store), now);
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
    EBI_LEADS(store);
    ebi_store_lock(store);
    stopping = bus->life.state >= EBI_STOPPING;
    room = ebi_subs_reserve(&bus->subs, &store->allocator, bus->subs.count + 1);
    ebi_store_unlock(store);
    if (stopping) return ebi_error(EB_ERR_SHUTDOWN, "the bus is shutting down");
    if (!room) return ebi_error(EB_ERR_NOMEM, "out of memory");
    rc = ebi_sub_row(store, (const ebi_sub *)arg);
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "subscribing");
}

/* Lock held, after the commit: from here on it is called. */
EBI_FN void ebi_sub_after(eb_store *store, void *arg, eb_result rc)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_sub *s = (ebi_sub *)arg;
    EBI_HELD(store);
    EBI_LEADS(store);
    EB_ASSERT(!s->removed && s->calls == 0);
    if (rc != EB_OK) return;
    ebi_subs_add(&bus->subs, s);
    if (bus->life.state == EBI_STARTED) ebi_lane_welcome(&bus->lane, s->pattern);
}

/* Inside the transaction: its row goes; arg is its id. */
EBI_FN eb_result ebi_sub_delete(eb_store *store, void *arg)
{
    const eb_id *id = (const eb_id *)arg;
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_SUB_DELETE);
    int rc;
    EBI_LEADS(store);
    if (s) ebi_bind_text(s, 1, id->str);
    rc = s ? ebi_db_step(s) : ebi_db_code(&store->writer);
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "unsubscribing");
}

/* Waits until no call of a removed subscription runs; inside a handler not at all: two handlers may
** be unsubscribing each other. Lock held on entry and exit. */
EBI_FN eb_result ebi_sub_wait(eb_bus *bus, const ebi_sub *s)
{
    int64_t deadline = ebi_clock_deadline(&bus->store, bus->set.shutdown_timeout_ms), left;
    EBI_HELD(&bus->store);
    EB_ASSERT(s->removed && s->keep > 0);
    if (ebi_run_inside(bus)) return EB_OK;
    while (s->calls > 0) {
        left = deadline == INT64_MAX ? 1000 : deadline - ebi_clock_mono_ms(&bus->store);
        if (left <= 0) return ebi_error(EB_ERR_TIMEOUT, "a call of the handler is still running");
        ebi_clock_wait(&bus->store, &bus->alarms.news, ebi_clock_us(left));
    }
    return EB_OK;
}

/* The row that says who dispatches; those of who did before are gone. */
EBI_FN int ebi_life_node(eb_store *store)
{
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_NODE_INSERT);
    int rc = s ? ebi_db_run(store, &store->writer, EBI_SQL_NODE_CLEAR)
               : ebi_db_code(&store->writer);
    EBI_LEADS(store);
    if (rc != SQLITE_OK) return rc;
    ebi_time_text(ebi_clock_now_ms(store), now);
    ebi_bind_text(s, 1, store->who.node_id);
    ebi_bind_text(s, 2, store->who.node_name);
    sqlite3_bind_int64(s, 3, store->who.pid);
    ebi_bind_text(s, 4, now);
    return ebi_db_step(s);
}

/* Inside eb_start's transaction: who dispatches, and the rows of those subscribed before. */
EBI_FN eb_result ebi_subs_announce(eb_store *store, void *arg)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_sub *s, *next;
    int rc;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    (void)arg;
    rc = ebi_life_node(store);
    if (rc == SQLITE_OK) rc = ebi_db_run(store, &store->writer, EBI_SQL_SUB_CLEAR);
    ebi_store_lock(store);
    EB_ASSERT(bus->life.incarnation > 0);
    for (s = bus->subs.first; s && rc == SQLITE_OK; s = next) {
        ebi_sub_keep(store, s);
        ebi_store_unlock(store);
        rc = ebi_sub_row(store, s);
        ebi_store_lock(store);
        next = s->next; /* it is there still: unsubscribing needs our lead */
        ebi_sub_let_go(store, s);
    }
    ebi_store_unlock(store);
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "announcing subscriptions");
}

/* ===========================================================================
** >>life   Start, stop, free                                      [private]
** ========================================================================
** open -> starting -> started -> stopping -> stopped. Whoever stops last frees: the user, or a
** thread that was left behind in a handler. */

/* Becomes the owner; EB_ERR_OWNED names the one who is. */
EBI_FN eb_result ebi_life_own(eb_bus *bus)
{
    eb_store *store = &bus->store;
    ebi_db *db;
    sqlite3_stmt *s;
    eb_result rc = ebi_owner_lock(store, &bus->life.owner, 0);
    if (rc != EB_ERR_OWNED) return rc;
    s = ebi_reader_enter(store, &db) == EB_OK ? ebi_db_stmt(store, db, EBI_SQL_NODE_WHO) : NULL;
    rc = ebi_error(EB_ERR_OWNED, "%s: another bus dispatches it", store->place.path);
    if (s && sqlite3_step(s) == SQLITE_ROW && ebi_column(s, 0))
        rc = ebi_error(EB_ERR_OWNED, "%s: another bus dispatches it: node %s, process %lld",
                       store->place.path, ebi_column(s, 0), (long long)sqlite3_column_int64(s, 1));
    sqlite3_reset(s);
    ebi_reader_leave(store, db);
    return rc;
}

/* The last step of eb_start: from here on events are dispatched. */
EBI_FN eb_result ebi_life_run(eb_bus *bus)
{
    eb_result rc = EB_OK;
    int i, ok = 1;
    ebi_store_lock(&bus->store);
    if (bus->life.state != EBI_STARTING) { /* the logger has ended it, when told of the recovery */
        ebi_store_unlock(&bus->store);
        return ebi_error(EB_ERR_SHUTDOWN, "the bus is shut down");
    }
    ebi_window_forget(&bus->lane); /* the first claims find out */
    EB_ASSERT(!bus->crew.workers && !bus->crew.keeper_alive);
    ebi_depths_forget(bus);
    ebi_life_be(bus, EBI_STARTED);
    for (i = 0; i < bus->set.workers && ok; i++) ok = ebi_worker_start(bus);
    if (ok && bus->set.workers)
        ok = ebi_thread_start(&bus->crew.keeper_thread, ebi_clockwork_keeper, bus) == 0;
    if (ok) {
        bus->crew.keeper_alive = bus->crew.started = bus->set.workers > 0;
    } else { /* the workers cannot have done anything: they have not had the lock */
        ebi_life_be(bus, EBI_STARTING);
        ebi_alarms_work_all(bus);
        ebi_workers_join(bus, 0);
        rc = ebi_error(EB_ERR_NOMEM, "cannot start a thread");
    }
    ebi_alarms_news(bus);
    ebi_store_unlock(&bus->store);
    return rc;
}

/* No more new work. Lock held. */
EBI_FN void ebi_life_stop(eb_bus *bus)
{
    EBI_HELD(&bus->store);
    if (bus->life.state >= EBI_STOPPING) return;
    ebi_life_be(bus, bus->life.state == EBI_OPEN ? EBI_STOPPED : EBI_STOPPING);
    bus->life.until_us = ebi_clock_add(ebi_writer_until(&bus->store),
                                 bus->set.shutdown_timeout_ms < 0
                                     ? INT64_MAX / 2 : ebi_clock_us(bus->set.shutdown_timeout_ms));
    ebi_alarms_work_all(bus);
    ebi_keeper_wake(bus);
    ebi_alarms_news(bus);
    ebi_waiters_hit(bus, 0, EB_EMPTY);
}

/* Waits for the end of a bus with workers. Lock held on entry and exit. */
EBI_FN eb_result ebi_life_stop_threads(eb_bus *bus)
{
    int64_t deadline = ebi_clock_deadline(&bus->store, bus->set.shutdown_timeout_ms), left;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->set.workers > 0 && bus->life.state >= EBI_STOPPING);
    while (bus->life.state != EBI_STOPPED || bus->crew.keeper_alive) {
        left = deadline == INT64_MAX ? -1 : deadline - ebi_clock_mono_ms(&bus->store);
        if (left <= 0 && deadline != INT64_MAX && !bus->life.abandon) {
            bus->life.abandon = 1; /* the keeper gives up on what still runs, and finishes */
            ebi_keeper_wake(bus);
        }
        ebi_alarms_wait(bus, left <= 0 ? -1 : ebi_clock_us(left));
    }
    if (bus->crew.started && !bus->crew.joining) {
        bus->crew.joining = 1;
        ebi_workers_join(bus, 1);
        bus->crew.joined = 1;
        ebi_alarms_news(bus);
    }
    while (bus->crew.joining && !bus->crew.joined)
        ebi_alarms_wait(bus, -1);
    while (bus->crew.lost > 0 && !bus->life.abandon) { /* those that timed out before */
        left = deadline == INT64_MAX ? 1000 : deadline - ebi_clock_mono_ms(&bus->store);
        if (left <= 0) bus->life.abandon = 1;
        else ebi_alarms_wait(bus, ebi_clock_us(left));
    }
    if (bus->crew.lost > 0)
        return ebi_error(EB_ERR_TIMEOUT, "%d handlers are still running", bus->crew.lost);
    return EB_OK;
}

/* The same without threads: this thread does it, or waits for the one that pumps. */
EBI_FN eb_result ebi_life_stop_pump(eb_bus *bus)
{
    int64_t deadline = ebi_clock_deadline(&bus->store, bus->set.shutdown_timeout_ms), left;
    EBI_HELD(&bus->store);
    EB_ASSERT(bus->set.workers == 0 && bus->life.state >= EBI_STOPPING);
    while (bus->life.state != EBI_STOPPED && bus->pump.active) {
        left = deadline == INT64_MAX ? 1000 : deadline - ebi_clock_mono_ms(&bus->store);
        if (left <= 0) return ebi_error(EB_ERR_TIMEOUT, "a thread is still pumping");
        ebi_clock_wait(&bus->store, &bus->alarms.news, ebi_clock_us(left));
    }
    if (bus->life.state == EBI_STOPPED) return EB_OK;
    ebi_pump_take(bus);
    ebi_pump_leave(bus); /* finishes what is stopping */
    return EB_OK;
}

/* Frees everything; the last one to hold a reference. */
EBI_FN void ebi_life_free(eb_bus *bus)
{
    eb_allocator a = bus->store.allocator;
    ebi_sub *s, *next;
    EB_ASSERT(bus->life.refs <= 1 && bus->calls.running == 0);
    for (s = bus->subs.first; s; s = next) {
        next = s->next;
        ebi_sub_free(&bus->store, s);
    }
    ebi_list_free(&bus->store, &bus->out.waiting);
    ebi_lane_fini(&bus->lane);
    ebi_types_clear(&bus->store, &bus->figures.unmatched_types);
    if (bus->set.policy.schedule_ms) ebi_free(&a, bus->set.policy.schedule_ms);
    ebi_free(&a, bus->subs.by_type);
    ebi_alarms_fini(bus);
    ebi_store_fini(&bus->store);
    ebi_free(&a, bus);
}

/* The last thread that was left behind has let go; a hook. */
EBI_FN void ebi_life_gone(eb_store *store) { ebi_life_free(ebi_bus_of(store)); }

static const ebi_hooks ebi_bus_hooks = {
    ebi_outcomes_take, ebi_outcomes_ride, ebi_depths_over, ebi_outcomes_rode,
    ebi_fence_resync, ebi_life_started, ebi_keeper_copies, ebi_alarms_cond, ebi_keeper_noted,
    ebi_life_gone};

/* The check at the door of every bus call: handle, process. */
EBI_FN eb_result ebi_bus_check(eb_bus *bus)
{
    if (!bus) return ebi_error(EB_ERR_ARG, "the bus is NULL");
    return ebi_store_check(&bus->store);
}

/* ===========================================================================
** >>lists   Reading events                                        [private]
** ========================================================================
** One snapshot per list, through the reader: nobody who publishes waits. */

typedef struct ebi_rows { /* grows while rows are read; each item has one block for its texts */
    eb_event_list *out;
    size_t cap;
} ebi_rows;

/* The list carries a copy of the allocator that frees it: it may outlive the store. */
EBI_FN eb_result ebi_rows_init(eb_store *store, eb_event_list *out)
{
    eb_allocator *a = (eb_allocator *)ebi_alloc(&store->allocator, sizeof *a);
    memset(out, 0, sizeof *out);
    if (!a) return ebi_error(EB_ERR_NOMEM, "out of memory");
    *a = store->allocator;
    out->impl = a;
    return EB_OK;
}

/* Everything in list, with the allocator that it carries. */
EBI_FN void ebi_rows_free(eb_event_list *list)
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

/* Room for one more. */
EBI_FN int ebi_rows_grow(eb_store *store, ebi_rows *list)
{
    size_t cap = list->cap ? list->cap * 2 : 16;
    const eb_allocator *a = &store->allocator;
    void *items;
    EB_ASSERT(list->out->count <= list->cap);
    if (list->out->count < list->cap) return 1;
    items = a->resize(list->out->items, cap * sizeof(eb_event), a->user);
    if (!items) return 0;
    list->out->items = (eb_event *)items;
    list->cap = cap;
    return 1;
}

/* One text of a row, into the block of its item; returns its length. */
EBI_FN size_t ebi_rows_put(char **block, const char **field, sqlite3_stmt *s, int column)
{
    EB_ASSERT(column >= EBI_LIST_TYPE && column < EBI_LIST_DUE);
    return ebi_text_copy(block, field, ebi_column(s, column),
                         (size_t)sqlite3_column_bytes(s, column));
}

/* Appends the row of s (EBI_SQL_LIST_...); SQLite's result. */
EBI_FN int ebi_rows_add(eb_store *store, ebi_rows *list, sqlite3_stmt *s)
{
    const char *id = ebi_column(s, EBI_LIST_ID);
    int64_t failed, due_ms;
    size_t size = 1;
    eb_event *e;
    char *block;
    int i, bad = 0;
    EB_ASSERT(sqlite3_column_count(s) == EBI_LIST_COLUMNS);
    if (!id || !ebi_column(s, EBI_LIST_TYPE) || !ebi_column(s, EBI_LIST_PAYLOAD))
        return ebi_db_no_event(s, EBI_LIST_ID);
    failed = ebi_column_within(s, EBI_LIST_FAILED, "failed or attempts of an event", 0, INT32_MAX,
                               &bad);
    due_ms = ebi_column_within(s, EBI_LIST_DUE, "deliveries.due_ms", 0, INT64_MAX, &bad);
    if (bad) return EBI_DAMAGED;
    if (!ebi_rows_grow(store, list)) return SQLITE_NOMEM;
    for (i = EBI_LIST_TYPE; i < EBI_LIST_DUE; i++)
        if (ebi_column(s, i)) size += (size_t)sqlite3_column_bytes(s, i) + 1;
    block = (char *)ebi_alloc(&store->allocator, size);
    if (!block) return SQLITE_NOMEM;
    e = &list->out->items[list->out->count];
    memset(e, 0, sizeof *e);
    ebi_rows_put(&block, &e->type, s, EBI_LIST_TYPE); /* first: the block is freed through it */
    e->payload_len = ebi_rows_put(&block, &e->payload, s, EBI_LIST_PAYLOAD);
    ebi_rows_put(&block, &e->metadata, s, EBI_LIST_METADATA);
    ebi_rows_put(&block, &e->ordering_key, s, EBI_LIST_KEY);
    ebi_rows_put(&block, &e->idempotency_key, s, EBI_LIST_IDEMPOTENCY);
    ebi_rows_put(&block, &e->producer, s, EBI_LIST_PRODUCER);
    ebi_rows_put(&block, &e->subscription, s, EBI_LIST_SUBSCRIPTION);
    ebi_rows_put(&block, &e->last_error, s, EBI_LIST_ERRORS);
    snprintf(e->id.str, sizeof e->id.str, "%s", id);
    e->seq = sqlite3_column_int64(s, EBI_LIST_SEQ);
    e->status = ebi_status_of(ebi_column(s, EBI_LIST_STATUS));
    e->retry_count = (int)failed;
    e->created_at_ms = ebi_time_parse(ebi_column(s, EBI_LIST_CREATED));
    e->updated_at_ms = ebi_time_parse(ebi_column(s, EBI_LIST_UPDATED));
    e->dlq_at_ms = ebi_time_parse(ebi_column(s, EBI_LIST_DIED));
    e->due_ms = due_ms;
    e->claimed_ms = ebi_time_parse(ebi_column(s, EBI_LIST_CLAIMED));
    list->out->count++;
    return SQLITE_OK;
}

/* Reads all rows of a bound statement into out. */
EBI_FN eb_result ebi_rows_read(eb_store *store, ebi_db *db, sqlite3_stmt *s, eb_event_list *out)
{
    ebi_rows list;
    int rc;
    EB_ASSERT(out->impl && s);
    memset(&list, 0, sizeof list);
    list.out = out;
    do {
        rc = sqlite3_step(s);
    } while (rc == SQLITE_ROW && (rc = ebi_rows_add(store, &list, s)) == SQLITE_OK);
    if (rc != SQLITE_DONE) ebi_db_error(db, rc, "reading events");
    sqlite3_reset(s);
    return rc == SQLITE_DONE ? EB_OK : ebi_db_result(rc);
}

/* The numbers of a query, checked. */
typedef struct ebi_filter {
    eb_query q;
    int64_t seq; /* of q.id, 0: no such id */
    unsigned statuses; /* 0: all */
    char from[EBI_TIME_LEN + 1], to[EBI_TIME_LEN + 1];
    int any; /* some filter is set */
} ebi_filter;

/* Checks a query (NULL: no filter) and fills in f, whose texts are the caller's. */
EBI_FN eb_result ebi_filter_init(eb_store *store, const eb_query *q, ebi_filter *f)
{
    memset(f, 0, sizeof *f);
    if (q) f->q = *q;
    if (f->q.offset < 0 || f->q.limit < 0 || f->q.after_seq < 0 || f->q.from_ms < 0 ||
        f->q.to_ms < 0)
        return ebi_error(EB_ERR_ARG, "query: a negative number");
    if (f->q.pattern && !ebi_text_name_len(f->q.pattern, EBI_TYPE_MAX))
        return ebi_error(EB_ERR_ARG, "query: the pattern is not 1 to 255 bytes of UTF-8");
    if (f->q.statuses > 15) return ebi_error(EB_ERR_ARG, "query: statuses has unknown bits");
    f->statuses = f->q.statuses == 15 ? 0 : f->q.statuses;
    if (f->q.id) f->seq = ebi_store_id_seq(store, f->q.id);
    if (f->q.from_ms) ebi_time_text(f->q.from_ms, f->from);
    if (f->q.to_ms) ebi_time_text(f->q.to_ms, f->to);
    f->any = f->q.id || f->q.pattern || f->q.subscription || f->q.after_seq || f->q.from_ms ||
             f->q.to_ms;
    return EB_OK;
}

/* Binds it to a statement over the log or, dead, over the dead letters. */
EBI_FN void ebi_filter_bind(const ebi_filter *f, sqlite3_stmt *s, int dead)
{
    int64_t after = f->q.after_seq, to = INT64_MAX;
    if (f->q.newest_first && !dead) {
        to = after > 0 ? after - 1 : INT64_MAX;
        after = 0;
    }
    if (f->q.id && f->seq - 1 > after) after = f->seq - 1; /* an id is one row: see ebi_id_seq() */
    if (f->q.id && f->seq < to) to = f->seq;
    if (f->q.subscription && !dead) to = 0; /* the lives in the log are those of the unnamed */
    sqlite3_bind_int64(s, EBI_FILTER_AFTER, after);
    sqlite3_bind_int64(s, EBI_FILTER_TO, to);
    ebi_bind_text(s, EBI_FILTER_ID, f->q.id);
    ebi_bind_text(s, EBI_FILTER_PATTERN, f->q.pattern);
    ebi_bind_text(s, EBI_FILTER_FROM_TIME, f->q.from_ms ? f->from : NULL);
    ebi_bind_text(s, EBI_FILTER_TO_TIME, f->q.to_ms ? f->to : NULL);
    if (dead) ebi_bind_text(s, EBI_FILTER_SUBSCRIPTION, f->q.subscription);
    else if (sqlite3_bind_parameter_count(s) >= EBI_FILTER_STATUSES)
        sqlite3_bind_int(s, EBI_FILTER_STATUSES, (int)f->statuses);
}

/* Which statement reads the page, and which counts; -1: no count is wanted. What is live or dead is
** found in its own small table: the log has everything that was ever done. */
EBI_FN void ebi_query_choose(const ebi_filter *f, int dead, int *read, int *count)
{
    static const int pages[3][2] = {{EBI_SQL_LOG_READ, EBI_SQL_LOG_BACK},
                                    {EBI_SQL_LIVE_READ, EBI_SQL_LIVE_BACK},
                                    {EBI_SQL_LOST_READ, EBI_SQL_LOST_BACK}};
    static const int totals[3] = {EBI_SQL_LOG_COUNT_STATUS, EBI_SQL_LIVE_TOTAL, EBI_SQL_LOST_TOTAL};
    const unsigned live = 1u << EB_PENDING | 1u << EB_PROCESSING, lost = 1u << EB_DLQ;
    int from = !f->statuses ? 0 : !(f->statuses & ~live) ? 1 : f->statuses == lost ? 2 : 0;
    *read = dead ? EBI_SQL_DLQ_READ : pages[from][f->q.newest_first != 0];
    *count = dead ? (f->any ? EBI_SQL_DLQ_COUNT : EBI_SQL_DLQ_COUNT_ALL)
             : !f->q.want_total ? -1
             : f->statuses ? totals[from] : EBI_SQL_LOG_COUNT;
}

/* The page and the total of one snapshot. */
EBI_FN eb_result ebi_query_page(eb_store *store, ebi_db *db, const ebi_filter *f, int dead,
                                eb_event_list *out)
{
    int read, count, code;
    sqlite3_stmt *s, *c;
    eb_result rc;
    EB_ASSERT(!sqlite3_get_autocommit(db->handle));
    ebi_query_choose(f, dead, &read, &count);
    s = ebi_db_stmt(store, db, read);
    c = s && count >= 0 ? ebi_db_stmt(store, db, count) : NULL;
    if (!s || (count >= 0 && !c)) return ebi_db_error(db, ebi_db_code(db), "reading events");
    ebi_filter_bind(f, s, dead);
    sqlite3_bind_int(s, EBI_FILTER_LIMIT, f->q.limit ? f->q.limit : 100);
    sqlite3_bind_int(s, EBI_FILTER_OFFSET, f->q.offset);
    rc = ebi_rows_read(store, db, s, out);
    out->total = -1;
    if (rc != EB_OK || !c) return rc;
    if (count != EBI_SQL_DLQ_COUNT_ALL) ebi_filter_bind(f, c, dead);
    if (sqlite3_step(c) == SQLITE_ROW) out->total = sqlite3_column_int64(c, 0);
    code = sqlite3_reset(c);
    return code == SQLITE_OK ? EB_OK : ebi_db_error(db, code, "counting events");
}

/* eb_log_read and eb_dlq_list. */
EBI_FN eb_result ebi_query_run(eb_store *store, const eb_query *query, eb_event_list *out, int dead)
{
    ebi_filter f;
    ebi_db *db;
    eb_result rc = ebi_store_check(store);
    if (!out) return rc == EB_OK ? ebi_error(EB_ERR_ARG, "out is NULL") : rc;
    memset(out, 0, sizeof *out);
    if (rc == EB_OK) rc = ebi_filter_init(store, query, &f);
    if (rc == EB_OK) rc = ebi_rows_init(store, out);
    if (rc != EB_OK) return rc;
    rc = ebi_snapshot_enter(store, &db);
    if (rc == EB_OK) rc = ebi_query_page(store, db, &f, dead, out);
    ebi_snapshot_leave(store, db);
    if (rc != EB_OK) ebi_rows_free(out);
    return rc;
}

/* eb_get: the unnamed life of one event. */
EBI_FN eb_result ebi_rows_get(eb_store *store, const char *id, eb_event_list *out)
{
    ebi_db *db;
    sqlite3_stmt *s;
    eb_result rc = ebi_rows_init(store, out);
    if (rc != EB_OK) return rc;
    rc = ebi_reader_enter(store, &db);
    s = rc == EB_OK ? ebi_db_stmt(store, db, EBI_SQL_GET) : NULL;
    if (rc == EB_OK && !s)
        rc = ebi_db_error(db, ebi_db_code(db), "reading an event");
    if (rc == EB_OK) {
        sqlite3_bind_int64(s, 1, ebi_store_id_seq(store, id));
        ebi_bind_text(s, 2, id);
        rc = ebi_rows_read(store, db, s, out);
    }
    ebi_reader_leave(store, db);
    if (rc == EB_OK && out->count == 0) rc = ebi_error(EB_ERR_NOT_FOUND, "no event %.40s", id);
    out->total = (int64_t)out->count;
    if (rc != EB_OK) ebi_rows_free(out);
    return rc;
}

/* ===========================================================================
** >>letters   Dead letters: retry, purge, move                    [private]
** ========================================================================
** Each is a member of a commit, at most EBI_DLQ_CHUNK rows at a time. The bus hears of it after the
** commit (ebi_dlq_after). */

/* A change to one or many dead letters, inside one transaction. */
typedef struct ebi_dlq {
    ebi_filter filter;
    const char *id, *subscription;
    int64_t seq, last, count, limit;
    char cutoff[EBI_TIME_LEN + 1];
    char reason[EBI_ERROR_MAX * 6 + 16];
    int by_death, more;
    int64_t *seqs; /* what eb_dlq_retry_all found */
    int64_t found, done;
    int64_t revived; /* live rows that this commit added or took */
    int64_t moved;   /* seq that it took */
    int pending;     /* which was pending */
} ebi_dlq;

#define EBI_DLQ_CHUNK 200 /* rows per transaction, so that nobody waits long behind a big one */

/* The bus hears of what its own store did: it looks at what is due, and a claimed event that was
** given up does not start. */
EBI_FN void ebi_dlq_after(eb_store *store, void *arg, eb_result rc)
{
    const ebi_dlq *d = (const ebi_dlq *)arg;
    eb_bus *bus = ebi_bus_of(store);
    EBI_HELD(store);
    EBI_LEADS(store);
    if (rc != EB_OK || !bus) return;
    ebi_cap_add(bus, d->revived);
    if (d->moved) ebi_key_revoke(&bus->lane, d->moved);
    ebi_lane_suspects(&bus->lane);
    ebi_waiters_hit(bus, 0, EB_EMPTY);
    ebi_lane_due(&bus->lane, 0);
    ebi_alarms_work_now(bus);
    ebi_alarms_news(bus);
}

/* A new life for one dead event, if it is dead still. */
EBI_FN int ebi_dlq_retry_row(eb_store *store, int64_t seq, int64_t *revived)
{
    char now[EBI_TIME_LEN + 1];
    sqlite3_stmt *s = ebi_db_stmt(store, &store->writer, EBI_SQL_DLQ_RETRY);
    int rc;
    EBI_LEADS(store);
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    if (!s) return ebi_db_code(&store->writer);
    ebi_time_text(ebi_clock_now_ms(store), now);
    sqlite3_bind_int64(s, 1, seq);
    ebi_bind_text(s, 2, now);
    ebi_bind_text(s, 3, store->who.node_id);
    rc = ebi_db_step(s);
    if (rc == SQLITE_OK && sqlite3_changes(store->writer.handle) == 1) {
        ++*revived;
        ebi_depths_add(store, 1, 0, -1);
    }
    return rc == SQLITE_OK ? ebi_commit_step(store, EBI_SQL_DLQ_DELETE, seq) : rc;
}

/* Finds the event of d->id as it is wanted, or says why not. Inside the transaction. */
EBI_FN eb_result ebi_dlq_find(eb_store *store, ebi_dlq *d, int wanted)
{
    static const char *const words[] = {"unknown", "still live", "dead already", "done"};
    ebi_stand stand;
    int rc = SQLITE_OK;
    EB_ASSERT(wanted == EBI_STAND_LIVE || wanted == EBI_STAND_DEAD);
    EBI_LEADS(store);
    memset(&stand, 0, sizeof stand);
    if (d->seq > 0) rc = ebi_stand_look(store, &store->writer, d->seq, d->id, &stand);
    if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "looking for an event");
    if (stand.state == EBI_STAND_UNKNOWN || d->subscription)
        return ebi_error(EB_ERR_NOT_FOUND, "no event %s", d->id);
    d->pending = stand.pending;
    if (stand.state == wanted) return EB_OK;
    return ebi_error(EB_ERR_STATE, "event %s is %s", d->id, words[stand.state]);
}

/* One dead event to pending; in a transaction. */
EBI_FN eb_result ebi_dlq_retry_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    eb_result result = ebi_dlq_find(store, d, EBI_STAND_DEAD);
    int rc;
    if (result != EB_OK) return result;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    d->revived = 0;
    rc = ebi_dlq_retry_row(store, d->seq, &d->revived);
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "retrying a dead letter");
}

/* One live event to the dead letters; in a transaction. Whoever has claimed it loses it. */
EBI_FN eb_result ebi_dlq_move_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    char now[EBI_TIME_LEN + 1];
    eb_result result = ebi_dlq_find(store, d, EBI_STAND_LIVE);
    ebi_end end;
    int rc, changed;
    d->revived = d->moved = 0;
    if (result != EB_OK) return result;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    ebi_time_text(ebi_clock_now_ms(store), now);
    memset(&end, 0, sizeof end);
    end.seq = d->seq;
    end.now = now;
    end.error_json = d->reason;
    rc = ebi_commit_step(store, EBI_SQL_KEY_RING, d->seq);
    if (rc == SQLITE_OK) rc = ebi_commit_step(store, EBI_SQL_REVOKE, d->seq);
    if (rc == SQLITE_OK)
        rc = ebi_end_dead(store, &end, EBI_SQL_DIE, EBI_SQL_DELETE_LIVE, &changed);
    if (rc != SQLITE_OK) return ebi_commit_error(store, rc, "moving to the dead letters");
    ebi_depths_add(store, -d->pending, d->pending - 1, 1);
    d->revived = -1;
    d->moved = d->seq;
    return EB_OK;
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

/* eb_dlq_retry_all begins with one snapshot of what matches: an event that dies again meanwhile is
** not retried again, and a publisher waits for one chunk at most. 8 bytes for each. */
EBI_FN eb_result ebi_dlq_snapshot(eb_store *store, ebi_dlq *d)
{
    const eb_allocator *a = &store->allocator;
    ebi_db *db;
    sqlite3_stmt *s = NULL;
    int64_t cap = 0;
    void *more;
    int rc = SQLITE_DONE;
    eb_result result = ebi_snapshot_enter(store, &db);
    if (result == EB_OK) {
        s = ebi_db_stmt(store, db, EBI_SQL_DLQ_SEQS);
        if (!s) result = ebi_db_error(db, ebi_db_code(db), "retrying dead letters");
    }
    if (s) {
        ebi_filter_bind(&d->filter, s, 1);
        sqlite3_bind_int64(s, EBI_FILTER_LIMIT, d->filter.q.limit ? d->filter.q.limit : -1);
        sqlite3_bind_int(s, EBI_FILTER_OFFSET, d->filter.q.offset);
    }
    while (s && result == EB_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        if (d->found == cap) {
            cap = cap ? cap * 2 : 64;
            more = a->resize(d->seqs, (size_t)cap * sizeof *d->seqs, a->user);
            if (!more) result = ebi_error(EB_ERR_NOMEM, "out of memory");
            else d->seqs = (int64_t *)more;
        }
        if (result == EB_OK) d->seqs[d->found++] = sqlite3_column_int64(s, 0);
    }
    if (s) sqlite3_reset(s);
    if (result == EB_OK && rc != SQLITE_DONE)
        result = ebi_db_error(db, rc, "retrying dead letters");
    ebi_snapshot_leave(store, db);
    return result;
}

/* The next chunk of the snapshot, by seq: those that are dead still. */
EBI_FN eb_result ebi_dlq_retry_all_func(eb_store *store, void *arg)
{
    ebi_dlq *d = (ebi_dlq *)arg;
    int64_t i;
    int rc = SQLITE_OK;
    EB_ASSERT(!sqlite3_get_autocommit(store->writer.handle));
    EB_ASSERT(d->done < d->found);
    d->revived = 0;
    for (i = d->done; i < d->found && i < d->done + EBI_DLQ_CHUNK && rc == SQLITE_OK; i++)
        rc = ebi_dlq_retry_row(store, d->seqs[i], &d->revived);
    d->count = i;
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "retrying dead letters");
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
    if (rc == SQLITE_OK && n > 0) rc = ebi_commit_step(store, EBI_SQL_META_FLOOR, last);
    if (rc == SQLITE_OK && n > 0) rc = ebi_commit_step(store, EBI_SQL_META_REMOVED, n);
    for (i = 0; i < n && rc == SQLITE_OK; i++) {
        rc = ebi_commit_step(store, EBI_SQL_DLQ_DELETE, seqs[i]);
        if (rc == SQLITE_OK) ebi_depths_add(store, 0, 0, -sqlite3_changes(store->writer.handle));
        if (rc == SQLITE_OK) rc = ebi_commit_step(store, EBI_SQL_LOG_DELETE, seqs[i]);
    }
    d->count = n;
    d->more = n == EBI_DLQ_CHUNK;
    d->last = n > 0 ? seqs[n - 1] : 0;
    return rc == SQLITE_OK ? EB_OK : ebi_commit_error(store, rc, "purging dead letters");
}

/* eb_dlq_purge, or eb_dlq_purge_dead; no lock held. */
EBI_FN eb_result ebi_dlq_purge(eb_store *store, int days, int64_t *count, int by_death)
{
    ebi_dlq d;
    int64_t total = 0;
    eb_result rc = ebi_store_check(store);
    if (count) *count = 0;
    if (rc == EB_OK && days < 0) rc = ebi_error(EB_ERR_ARG, "days is negative");
    if (rc != EB_OK) return rc;
    memset(&d, 0, sizeof d);
    d.by_death = by_death;
    ebi_time_text(ebi_clock_now_ms(store) - (int64_t)days * EBI_DAY_MS, d.cutoff);
    do {
        rc = ebi_writer_run(store, ebi_dlq_purge_func, ebi_dlq_after, &d, ebi_store_level(store));
        if (rc == EB_OK) total += d.count;
        d.seq = d.last;
    } while (rc == EB_OK && d.more);
    if (count) *count = total;
    return rc;
}

/* Whoever pumps elsewhere hears of it. No lock held. */
EBI_FN void ebi_dlq_notice(eb_store *store)
{
    if (store->bus) ebi_notice_tell(store->bus);
}

/* Checks store and id; d->seq is 0 if that is no id of this file. */
EBI_FN eb_result ebi_dlq_init(eb_store *store, const char *id, ebi_dlq *d)
{
    eb_result rc = ebi_store_check(store);
    memset(d, 0, sizeof *d);
    if (rc == EB_OK && !id) rc = ebi_error(EB_ERR_ARG, "id is NULL");
    if (rc != EB_OK) return rc;
    d->id = id;
    d->seq = ebi_store_id_seq(store, id);
    return EB_OK;
}

/* ===========================================================================
** >>figures   Counting, and what is known without                 [private]
** ========================================================================
** done is what was ever stored, less what was removed, lives or is dead: no table has to be counted
** that grows for ever. */

/* Figures of the moment that is open on db. done is what was ever stored, less what was removed,
** lives or is dead: no table has to be counted that grows for ever. */
EBI_FN int ebi_figures_rows(eb_store *store, ebi_db *db, const ebi_depths *d, eb_stats *out)
{
    int64_t removed = 0, pages = 0, size = 0;
    sqlite3_stmt *oldest;
    int rc = ebi_schema_meta(store, db, "seq_floor", &out->last_seq);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_LAST_SEQ, &out->last_seq);
    if (rc == SQLITE_OK) rc = ebi_schema_meta(store, db, "removed", &removed);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_PAGES, &pages);
    if (rc == SQLITE_OK) rc = ebi_db_number(store, db, EBI_SQL_PAGE_SIZE, &size);
    if (rc == SQLITE_OK && (removed < 0 || removed > EBI_SEQ_MAX || out->last_seq < 0 ||
                            out->last_seq > EBI_SEQ_MAX)) {
        ebi_error(EB_ERR_CORRUPT, "damaged: meta.removed is %lld, the last seq %lld",
                  (long long)removed, (long long)out->last_seq);
        return EBI_DAMAGED;
    }
    out->pending = d->pending;
    out->processing = d->processing;
    out->dlq = d->dead + d->others;
    out->done = out->last_seq - removed - d->pending - d->processing - d->dead;
    if (out->done < 0) out->done = 0; /* rows were deleted by hand */
    out->db_bytes = pages * size;
    oldest = ebi_db_stmt(store, db, EBI_SQL_STATS_OLDEST);
    if (rc == SQLITE_OK && oldest && sqlite3_step(oldest) == SQLITE_ROW) {
        out->oldest_pending_ms = ebi_clock_now_ms(store) - ebi_time_parse(ebi_column(oldest, 0));
        if (out->oldest_pending_ms < 0) out->oldest_pending_ms = 0;
    }
    sqlite3_reset(oldest);
    out->wal_bytes = ebi_db_wal_bytes(db);
    return rc;
}

/* From what is known, in a moment of the writer; 0: it is not, or the writer is not to be had. */
EBI_FN int ebi_figures_known(eb_bus *bus, eb_stats *out)
{
    eb_store *store = &bus->store;
    ebi_depths d;
    int done = 0, known;
    ebi_store_lock(store);
    known = bus->depths.known;
    ebi_store_unlock(store);
    if (!known || !ebi_writer_enter_until(store, ebi_clock_mono_us(store) + EBI_STATS_WAIT_US))
        return 0;
    if (!store->trust.must_reopen && store->writer.handle &&
        ebi_db_run(store, &store->writer, EBI_SQL_READ) == SQLITE_OK) {
        int64_t seq;
        done = ebi_db_number(store, &store->writer, EBI_SQL_LAST_SEQ, &seq) == SQLITE_OK &&
               ebi_depths_exact(bus, &d) &&
               ebi_figures_rows(store, &store->writer, &d, out) == SQLITE_OK;
        ebi_db_rollback(store, &store->writer);
        if (!sqlite3_get_autocommit(store->writer.handle)) ebi_commit_distrust(store);
    }
    ebi_writer_leave(store);
    return done;
}

/* From a count of the rows, in one snapshot. */
EBI_FN eb_result ebi_figures_counted(eb_store *store, eb_stats *out)
{
    eb_bus *bus = ebi_bus_of(store);
    ebi_depths d;
    ebi_db *db;
    int64_t mine = 0;
    eb_result rc = ebi_snapshot_enter(store, &db);
    int code = SQLITE_OK;
    if (rc == EB_OK && bus && db != &store->writer) code = ebi_depths_begin(bus, db, &mine);
    if (rc == EB_OK && code == SQLITE_OK) code = ebi_depths_count(store, db, &d);
    if (rc == EB_OK && code == SQLITE_OK) {
        if (bus) ebi_depths_keep(bus, &d, mine);
        code = ebi_figures_rows(store, db, &d, out);
    }
    if (rc == EB_OK && code == SQLITE_OK && !bus)
        code = ebi_db_number(store, db, EBI_SQL_STATS_PAUSED, &out->paused);
    if (rc == EB_OK && code == SQLITE_OK && !bus)
        code = ebi_db_number(store, db, EBI_SQL_STATS_LOST, &out->lost_workers);
    if (code != SQLITE_OK) rc = ebi_db_error(db, code, "reading statistics");
    ebi_snapshot_leave(store, db);
    return rc;
}

/* A bus with a cap counts before it is needed: in a snapshot of the reader, where nobody waits. */
EBI_FN void ebi_figures_first(eb_bus *bus)
{
    eb_stats unused;
    if (bus->set.max_pending > 0) ebi_figures_counted(&bus->store, &unused);
}

/* eb_stats_get; no lock held. */
EBI_FN eb_result ebi_figures_get(eb_store *store, eb_stats *out)
{
    eb_bus *bus = ebi_bus_of(store);
    const ebi_sub *sub;
    eb_result rc = EB_OK;
    if (!bus || !ebi_figures_known(bus, out)) {
        memset(out, 0, sizeof *out);
        rc = ebi_figures_counted(store, out);
    }
    if (rc != EB_OK) memset(out, 0, sizeof *out);
    if (rc != EB_OK || !bus) return rc;
    ebi_store_lock(store);
    for (sub = bus->subs.first; sub; sub = sub->next) out->paused += sub->paused != 0;
    out->unmatched = bus->figures.unmatched;
    out->commits = store->queue.commits;
    out->lost_workers = bus->crew.lost;
    out->published = bus->figures.published;
    out->delivered = bus->figures.delivered;
    out->failed_attempts = bus->figures.failed_attempts;
    out->died = bus->figures.died;
    out->stale = bus->figures.stale;
    ebi_store_unlock(store);
    return EB_OK;
}

/* ===========================================================================
** >>public   The functions that are declared at the top           [public]
** ========================================================================
** Thin: check the arguments, take the lock, ask a room. Their contracts are at the declarations. */

EB_API const char *eb_strerror(eb_result result) { return ebi_result_text(result); }

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

EB_API size_t eb_json_text(char *buf, size_t cap, const char *text, size_t len)
{
    ebi_text_out out;
    out.buf = buf;
    out.cap = buf ? cap : 0;
    out.len = 0;
    if (!text) len = 0;
    else if (len == (size_t)-1) len = strlen(text);
    ebi_text_json(&out, text ? text : "", len);
    return out.len;
}

/* ---- open and close ---- */

EB_API eb_result eb_open(eb_bus **out, const eb_options *options)
{
    eb_allocator allocator;
    eb_logger logger;
    eb_log_entry entry; /* why it failed: there is no bus to say it */
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
        bus->store.hooks = &ebi_bus_hooks;
        ebi_lane_init(&bus->lane, bus);
        bus->store.allocator = allocator;
        bus->store.logger = logger;
        bus->life.refs = 1;
        if (!ebi_alarms_init(bus)) rc = ebi_error(EB_ERR_NOMEM, "cannot make a condition");
        if (rc == EB_OK) rc = ebi_options_bus(bus, options);
        if (rc == EB_OK) rc = ebi_store_init(&bus->store, options, 1);
        if (rc == EB_OK) ebi_options_limit(bus);
        else ebi_life_free(bus);
    }
    if (rc == EB_OK) {
        ebi_figures_first(bus);
        *out = bus;
        return EB_OK;
    }
    ebi_log_init(&entry, EB_LOG_ERROR, "eb_open failed", ebi_error_text);
    entry.time_ms = ebi_platform_now_ms();
    if (options && options->ns && options->ns[0]) entry.ns = options->ns;
    if (options) entry.node = options->node_name ? options->node_name : options->node_id;
    ebi_log_to(&logger, &entry, NULL);
    return rc;
}

EB_API eb_result eb_start(eb_bus *bus)
{
    eb_result rc = ebi_bus_check(bus);
    if (rc != EB_OK) return rc;
    ebi_store_lock(&bus->store);
    if (bus->life.state >= EBI_STOPPING) rc = ebi_error(EB_ERR_SHUTDOWN, "the bus is shut down");
    else if (bus->life.state != EBI_OPEN)
        rc = ebi_error(EB_ERR_STATE, "the bus is started already");
    else ebi_life_be(bus, EBI_STARTING);
    ebi_store_unlock(&bus->store);
    if (rc != EB_OK) return rc;
    rc = ebi_life_own(bus);
    if (rc == EB_OK) rc = ebi_recover(bus);
    if (rc == EB_OK) rc = ebi_writer_run(&bus->store, ebi_subs_announce, NULL, NULL,
                                         EB_DURABLE_NORMAL);
    if (rc == EB_OK) rc = ebi_life_run(bus);
    if (rc == EB_OK) {
        ebi_figures_first(bus);
        return EB_OK;
    }
    ebi_db_close(&bus->life.owner);
    ebi_store_lock(&bus->store);
    ebi_life_be(bus, bus->life.state == EBI_STARTING ? EBI_OPEN : EBI_STOPPED);
    ebi_alarms_news(bus);
    ebi_store_unlock(&bus->store);
    return rc;
}

EB_API eb_result eb_shutdown(eb_bus *bus)
{
    eb_result rc = ebi_bus_check(bus);
    if (rc != EB_OK) return rc;
    ebi_store_lock(&bus->store);
    if (ebi_run_inside(bus)) {
        ebi_life_stop(bus);
    } else {
        while (bus->life.state == EBI_STARTING) ebi_alarms_wait(bus, -1);
        ebi_life_stop(bus);
        rc = bus->set.workers ? ebi_life_stop_threads(bus) : ebi_life_stop_pump(bus);
    }
    ebi_store_unlock(&bus->store);
    return rc;
}

EB_API void eb_destroy(eb_bus *bus)
{
    eb_store *store;
    int inside, last;
    if (ebi_bus_check(bus) != EB_OK) return;
    store = &bus->store;
    ebi_store_lock(store);
    inside = ebi_run_inside(bus);
    ebi_store_unlock(store);
    eb_shutdown(bus);
    if (inside) { /* forbidden; a leak is better than freeing what this very handler stands on */
        ebi_log_note(store, EB_LOG_ERROR, "eb_destroy inside a handler: only shut down", NULL);
        return;
    }
    ebi_store_shut(store);
    ebi_store_lock(store);
    last = ebi_life_refer(bus, -1);
    ebi_store_unlock(store);
    if (last) ebi_life_free(bus);
}

EB_API void eb_wake(eb_bus *bus)
{
    if (ebi_bus_check(bus) != EB_OK) return;
    ebi_store_lock(&bus->store);
    ebi_alarms_ask(bus, EBI_ASK_LOOK);
    ebi_store_unlock(&bus->store);
}

/* ---- dispatch ---- */

EB_API eb_result eb_pump(eb_bus *bus, int64_t budget_ms, int64_t *next_ms)
{
    eb_result rc = ebi_bus_check(bus);
    int64_t next;
    if (next_ms) *next_ms = -1;
    if (rc != EB_OK) return rc;
    if (budget_ms < EB_NONE) return ebi_error(EB_ERR_ARG, "budget_ms is negative");
    if (bus->set.workers) return ebi_error(EB_ERR_STATE, "this bus has worker threads");
    ebi_store_lock(&bus->store);
    rc = ebi_pump_enter(bus);
    if (rc == EB_OK) {
        rc = ebi_pump_some(bus, ebi_clock_deadline(&bus->store, budget_ms));
        next = ebi_pump_next(bus);
        ebi_alarms_told(bus,
                        next < 0 ? INT64_MAX : ebi_clock_add(ebi_clock_now_ms(&bus->store), next));
        if (next_ms) *next_ms = next;
        ebi_pump_leave(bus);
    }
    ebi_store_unlock(&bus->store);
    ebi_notice_tell(bus);
    return rc;
}

EB_API eb_result eb_drain(eb_bus *bus, int64_t timeout_ms)
{
    eb_result rc = ebi_bus_check(bus);
    if (rc != EB_OK) return rc;
    if (timeout_ms < EB_NONE) return ebi_error(EB_ERR_ARG, "timeout_ms is negative");
    ebi_store_lock(&bus->store);
    if (ebi_run_inside(bus)) rc = ebi_error(EB_ERR_STATE, "not inside a handler or logger");
    else if (bus->life.state < EBI_STARTED) rc = ebi_error(EB_ERR_STATE, "the bus is not started");
    else rc = ebi_drain_for(bus, ebi_clock_deadline(&bus->store, timeout_ms));
    ebi_store_unlock(&bus->store);
    ebi_notice_tell(bus);
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
    ebi_store_lock(&bus->store);
    wait = bus->life.state == EBI_STARTED && !ebi_run_inside(bus); /* else it is eb_post */
    pump = wait && !bus->set.workers;
    if (pump) rc = ebi_pump_enter(bus); /* before anything is stored: a failure must mean "not" */
    ebi_store_unlock(&bus->store);
    if (rc != EB_OK) return rc;
    if (!id) id = &own;
    ebi_waiter_init(&w, 0);
    rc = ebi_publish_run(bus, &m, 1, id, wait ? &w : NULL);
    if (wait) {
        ebi_store_lock(&bus->store);
        if (rc == EB_OK) {
            rc = ebi_wait_for(bus, &w, id->str, INT64_MAX, pump, 1);
            ebi_waiters_remove(bus, &w);
        }
        if (pump) ebi_pump_done(bus);
        ebi_store_unlock(&bus->store);
        ebi_notice_tell(bus);
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
    ebi_waiter_init(&w, ebi_store_id_seq(&bus->store, id));
    if (w.seq <= 0) {
        ebi_cond_fini(&w.cond);
        return ebi_error(EB_ERR_NOT_FOUND, "no event %.40s", id);
    }
    ebi_store_lock(&bus->store);
    pump = !bus->set.workers && bus->life.state == EBI_STARTED;
    if (ebi_run_inside(bus)) rc = ebi_error(EB_ERR_STATE, "not inside a handler or logger");
    else if (pump) rc = ebi_pump_enter(bus);
    if (rc == EB_OK) {
        ebi_waiters_add(bus, &w);
        if (bus->out.waiting.head && pump) ebi_pump_flush(bus);
        w.hit = 1; /* it may be over */
        if (pump) ebi_pump_until(bus, ebi_clock_us(ebi_clock_deadline(&bus->store, timeout_ms)));
        if (pump) ebi_pump_look(bus, 1);
        rc = ebi_wait_for(bus, &w, id, ebi_clock_deadline(&bus->store, timeout_ms), pump, 0);
        ebi_waiters_remove(bus, &w);
        if (pump) ebi_pump_done(bus);
    }
    ebi_store_unlock(&bus->store);
    ebi_cond_fini(&w.cond);
    ebi_notice_tell(bus);
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
    if (rc == EB_OK) rc = ebi_options_sub(options);
    if (rc == EB_OK) rc = ebi_sub_new(bus, pattern, options, &s);
    if (rc != EB_OK) return rc;
    s->handler = handler;
    s->user = user;
    if (id) *id = s->id;
    rc = ebi_writer_run(&bus->store, ebi_sub_insert, ebi_sub_after, s, EB_DURABLE_NORMAL);
    if (rc != EB_OK) {
        ebi_sub_free(&bus->store, s);
        if (id) id->str[0] = 0;
    }
    ebi_notice_tell(bus);
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
    ebi_store_lock(&bus->store);
    s = ebi_subs_find(&bus->subs, id);
    if (s) {
        ebi_subs_remove(&bus->subs, s);
        ebi_lane_farewell(&bus->lane, s->pattern);
        ebi_sub_keep(&bus->store, s);
    }
    ebi_store_unlock(&bus->store);
    if (!s) return ebi_error(EB_ERR_NOT_FOUND, "no subscription %.40s", id);
    /* The row is informational: if it cannot be deleted now, the next owner does. */
    ebi_writer_run(&bus->store, ebi_sub_delete, NULL, &copy, EB_DURABLE_NORMAL);
    ebi_store_lock(&bus->store);
    rc = ebi_sub_wait(bus, s);
    ebi_sub_let_go(&bus->store, s);
    ebi_store_unlock(&bus->store);
    ebi_notice_tell(bus);
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
    ebi_store_lock(store);
    if (run->lost || ebi_run_overdue(run, ebi_clock_mono_us(store))) {
        rc = ebi_error(EB_ERR_STALE, "the handler has timed out already");
    } else if (more_ms == EB_NONE || more_ms > INT64_MAX / 1000 - run->deadline_us) {
        run->deadline_us = -1;
        delivery->deadline_ms = EB_NONE;
    } else if (run->deadline_us >= 0) {
        run->deadline_us += more_ms * 1000;
        delivery->deadline_ms = ebi_clock_add(delivery->deadline_ms, more_ms);
    }
    ebi_store_unlock(store);
    return rc;
}

EB_API int eb_cancelled(const eb_delivery *delivery)
{
    const ebi_run *run = delivery ? (const ebi_run *)delivery->impl : NULL;
    eb_bus *bus;
    int yes;
    if (!run || ebi_bus_check(delivery->bus) != EB_OK) return 1;
    bus = delivery->bus;
    ebi_store_lock(&bus->store);
    yes = run->lost || bus->life.state >= EBI_STOPPING ||
          ebi_run_overdue(run, ebi_clock_mono_us(&bus->store));
    ebi_store_unlock(&bus->store);
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
    store->hooks = &ebi_hooks_alone;
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

EB_API void eb_event_list_free(eb_event_list *list) { ebi_rows_free(list); }

EB_API eb_result eb_get(eb_store *store, const char *id, eb_event_list *out)
{
    eb_result rc = ebi_store_check(store);
    if (out) memset(out, 0, sizeof *out);
    if (rc != EB_OK) return rc;
    if (!id || !out) return ebi_error(EB_ERR_ARG, "id or out is NULL");
    return ebi_rows_get(store, id, out);
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
    rc = ebi_writer_run(store, ebi_dlq_retry_func, ebi_dlq_after, &d, ebi_store_level(store));
    ebi_dlq_notice(store);
    return rc;
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
    rc = ebi_dlq_snapshot(store, &d);
    while (rc == EB_OK && d.done < d.found) {
        rc = ebi_writer_run(store, ebi_dlq_retry_all_func, ebi_dlq_after, &d,
                            ebi_store_level(store));
        if (rc != EB_OK) break;
        d.done = d.count;
        total += d.revived;
    }
    ebi_free(&store->allocator, d.seqs);
    ebi_dlq_notice(store);
    if (count) *count = total;
    return rc;
}

EB_API eb_result eb_dlq_purge(eb_store *store, int days, int64_t *count)
{
    return ebi_dlq_purge(store, days, count, 0);
}

EB_API eb_result eb_dlq_purge_dead(eb_store *store, int days, int64_t *count)
{
    return ebi_dlq_purge(store, days, count, 1);
}

EB_API eb_result eb_dlq_move(eb_store *store, const char *id, const char *reason)
{
    ebi_dlq d;
    eb_result rc = ebi_dlq_init(store, id, &d);
    if (rc != EB_OK) return rc;
    ebi_json_quote(d.reason, sizeof d.reason, reason ? reason : "moved by operator", EBI_ERROR_MAX);
    rc = ebi_writer_run(store, ebi_dlq_move_func, ebi_dlq_after, &d, ebi_store_level(store));
    ebi_dlq_notice(store);
    return rc;
}

EB_API eb_result eb_stats_get(eb_store *store, eb_stats *out)
{
    eb_result rc = ebi_store_check(store);
    if (out) memset(out, 0, sizeof *out);
    if (rc != EB_OK) return rc;
    if (!out) return ebi_error(EB_ERR_ARG, "out is NULL");
    return ebi_figures_get(store, out);
}

EB_API eb_result eb_checkpoint(eb_store *store)
{
    eb_result rc = ebi_store_check(store);
    return rc == EB_OK ? ebi_store_checkpoint(store) : rc;
}

#if defined(__cplusplus) && (defined(__GNUC__) || defined(__clang__))
#pragma GCC diagnostic pop
#endif
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

    0.2.0   2026-11-19   Order by key holds beside delays, retries, operators, clock steps, crashes.
                         A crash charges an event only if it alone was under way; of several each
                         runs again alone. Unmatched events are logged and counted. Waits end at
                         their own limit; eb_drain names a paused subscription. New: wal_pages
                         (EB_WAL_PAGES is gone), notify, eb_checkpoint, eb_json_text; statuses and
                         want_total in eb_query, due_ms and claimed_ms in eb_event, four columns in
                         the view events. Refused: options of later versions, UTF-16, damaged rows.
                         Triggers of others do not fire. Side files: <path>.owner@<ns>. Schema
                         version 2: older files are migrated when opened, there is no way back.
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
