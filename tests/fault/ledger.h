/* ledger.h - the conservation check: a record of what was attempted and what was acknowledged, kept
** outside the database, and the question asked after every fault: is all of it still there, once?
**
** Use it like this; it survives kill -9 of a child that was forked after ledger_open(), or, with a
** file name, of any process:
**
**     ledger L;
**     ledger_open(&L, NULL, 1000);                       room for 1000 events
**     n  = ledger_attempt(&L, "order.new", 4, 0, payload, sizeof payload);   before the call
**     rc = eb_post(bus, "order.new", payload, &id);
**     ledger_answer(&L, n, rc, &id);                     after it; never, if the process died
**
**     in every handler:   n = ledger_run(&L, delivery);
**                         return ledger_ran(&L, n, eb_fail(delivery, "no"));   or EB_OK
**
**     ledger_note(&L, n, LEDGER_...)                     before what the rules below cannot know
**     ledger_crashed(&L)                                 after a kill or a power cut
**     if (ledger_check(&L, path, 0)) puts(L.why);        0: nothing is wrong
**
** An event is known by its number n, which is in its payload; so also one whose answer never came
** is recognised. Every event gets a number of its own; the same one may be attempted again only
** with ledger_again() and an idempotency key. Any thread may call all but open, close, look and
** check.
**
** ledger_look(path) reads the file with plain SQLite, as it lies, and leaves the WAL alone:
**   - integrity_check is ok; the file can be read at all (if not, everything in it counts as lost);
**   - what was acknowledged has its row in event_log, with type, payload and id as they were, and
**     is in exactly one of deliveries, finished and dead_letters;
**   - nothing is there that was never attempted, was refused, or is there twice; an "unknown" one
**     (EB_ERR_UNKNOWN, or no answer) is there once or not at all;
**   - done means that a handler run returned EB_OK;
**   - a handler run that returned EB_OK is the last one of that life;
**   - failed attempts are as many as error texts, none of them empty, no more than handler runs,
**     and never more than the policy allows; what used them all up is not alive, and what did not
**     is not dead, unless rejected or given up by hand;
**   - a dead letter has its payload, type, id, metadata, producer, keys, all errors, both times.
** ledger_check(path, flags) looks, then opens a bus on the file, compares eb_stats_get with the
** rows, recovers and drains it with a handler that always succeeds, and looks again: nothing may be
** alive any more. Then the same figures and some events through eb_store.
**
** Settings, zero by default: L.vfs for the check's own connections; L.loss: what a power cut may
** take away (LEDGER_LOSS_...); L.timeouts = 1: handlers may return EB_OK after they were given up;
** L.lost tells how many acknowledged events the last look missed.
*/
#ifndef LEDGER_H
#define LEDGER_H
#include "../test.h"
#ifndef _WIN32
#include <sys/mman.h>
#endif

/* ---- the record ------------------------------------------------------------------------------ */

enum { LEDGER_ATTEMPTED = 1, LEDGER_ACKED, LEDGER_REFUSED, LEDGER_UNKNOWN };

/* What the host does to an event, said before it does it. */
enum {
    LEDGER_REJECTED = 1,  /* its handler calls eb_reject: may die early */
    LEDGER_MOVED = 2,     /* eb_dlq_move, or UPDATE events: may be dead */
    LEDGER_UNMATCHED = 4, /* nobody subscribed to its type: may be done or dead without a run */
    LEDGER_PURGED = 8,    /* eb_dlq_purge: if it was dead, it may be gone */
    LEDGER_RETRIED = 16,  /* eb_dlq_retry: one life more; may be said many times */
    LEDGER_SNOOZED = 32   /* eb_snooze: one run more; may be said many times */
};

enum {
    LEDGER_LOSS_NONE, /* nothing that was acknowledged may be missing */
    LEDGER_LOSS_TAIL, /* NORMAL: only the newest; nothing that came after a lost one may be there */
    LEDGER_LOSS_ANY   /* OFF: look at L.lost */
};

enum {
    LEDGER_COPY = 1 /* the file is a throw-away copy: forget the handler runs of this check */
};

typedef struct ledger_event {
    int state, notes, max_attempts, pad;
    int64_t begun, answered; /* positions in the order of all attempts and answers */
    int runs, ok, failed;    /* handler runs begun; that returned EB_OK; that returned another */
    int lives, snoozes;      /* DLQ retries and snoozes announced */
    char id[37], type[43];
} ledger_event;

typedef struct ledger_book { /* shared between processes */
    int64_t capacity, used, clock, crashes;
    ledger_event events[1]; /* capacity + 1 of them; 0: what nobody published */
} ledger_book;

typedef struct ledger {
    ledger_book *book;
    size_t bytes;
    const char *vfs;
    int loss, timeouts;
    int64_t lost;   /* found by the last look */
    int wrong;      /* what the last look or check found wrong, as a count */
    char why[1600]; /* and the first of them in words */
} ledger;

#define LEDGER_ADD(field, by) __atomic_add_fetch(&(field), (by), __ATOMIC_SEQ_CST)
#define LEDGER_SET(field, to) __atomic_store_n(&(field), (to), __ATOMIC_SEQ_CST)

T_UNUSED static void ledger_open(ledger *l, const char *file, int capacity)
{
    memset(l, 0, sizeof *l);
    l->bytes = sizeof(ledger_book) + (size_t)capacity * sizeof(ledger_event);
#ifdef _WIN32
    {
        DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE;
        HANDLE disk = INVALID_HANDLE_VALUE, map;
        if (file) {
            disk = CreateFileA(file, GENERIC_READ | GENERIC_WRITE, share, NULL, OPEN_ALWAYS, 0,
                               NULL);
            T_MUST(disk != INVALID_HANDLE_VALUE);
        }
        map = CreateFileMappingA(disk, NULL, PAGE_READWRITE, 0, (DWORD)l->bytes, NULL);
        T_MUST(map);
        l->book = (ledger_book *)MapViewOfFile(map, FILE_MAP_ALL_ACCESS, 0, 0, l->bytes);
        T_MUST(l->book);
        CloseHandle(map);
        if (file) CloseHandle(disk);
    }
#else
    {
        FILE *nameless = file ? NULL : tmpfile();
        int fd = file ? open(file, O_RDWR | O_CREAT, 0600) : nameless ? fileno(nameless) : -1;
        void *at;
        T_MUST(fd >= 0 && ftruncate(fd, (off_t)l->bytes) == 0);
        at = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        T_MUST(at != MAP_FAILED);
        if (nameless) fclose(nameless);
        else close(fd);
        l->book = (ledger_book *)at;
    }
#endif
    l->book->capacity = capacity;
}

T_UNUSED static void ledger_close(ledger *l)
{
#ifdef _WIN32
    UnmapViewOfFile(l->book);
#else
    munmap(l->book, l->bytes);
#endif
    l->book = NULL;
}

/* Forgets everything, for the next round. */
T_UNUSED static void ledger_clear(ledger *l)
{
    int64_t capacity = l->book->capacity;
    memset(l->book->events, 0, (size_t)(l->book->used + 1) * sizeof(ledger_event));
    l->book->used = l->book->clock = l->book->crashes = 0;
    l->book->capacity = capacity;
}

/* The highest number so far. */
static int ledger_used(const ledger *l)
{
    return (int)__atomic_load_n(&l->book->used, __ATOMIC_SEQ_CST);
}

static ledger_event *ledger_at(ledger *l, int n)
{
    T_MUST(n >= 0 && n <= ledger_used(l) && n <= l->book->capacity);
    return &l->book->events[n];
}

/* The payload of event n: {"n":7} and, if asked for, some bytes of padding. */
static void ledger_payload(int n, int pad, char *out, size_t cap)
{
    int k = snprintf(out, cap, pad ? "{\"n\":%d,\"pad\":\"" : "{\"n\":%d", n);
    T_MUST(k > 0 && (size_t)k + (size_t)pad + 3 < cap);
    memset(out + k, 'x', (size_t)pad);
    snprintf(out + k + pad, cap - (size_t)k - (size_t)pad, pad ? "\"}" : "}");
}

/* The number in a payload; 0: it is none of ours. */
static int ledger_number(const char *payload)
{
    int n = 0;
    return payload && sscanf(payload, "{\"n\":%d", &n) == 1 && n > 0 ? n : 0;
}

/* ---- what the host says ---------------------------------------------------------------------- */

/* An event is about to be published: type, the policy's max_retries + 1, bytes of padding. Fills in
** the payload to publish and returns the event's number. */
T_UNUSED static int ledger_attempt(ledger *l, const char *type, int max_attempts, int pad,
                                   char *payload, size_t cap)
{
    int n = (int)LEDGER_ADD(l->book->used, 1);
    ledger_event *e = ledger_at(l, n);
    snprintf(e->type, sizeof e->type, "%s", type);
    e->max_attempts = max_attempts;
    e->pad = pad;
    e->begun = LEDGER_ADD(l->book->clock, 1);
    LEDGER_SET(e->state, LEDGER_ATTEMPTED);
    ledger_payload(n, pad, payload, cap);
    return n;
}

/* The same event once more, under the same idempotency key. */
T_UNUSED static void ledger_again(ledger *l, int n)
{
    LEDGER_SET(ledger_at(l, n)->state, LEDGER_ATTEMPTED);
}

/* What the call returned. An error means that nothing was stored, but for EB_ERR_UNKNOWN, and for
** eb_publish with *id filled: stored, but its end was not seen. */
T_UNUSED static void ledger_answer(ledger *l, int n, eb_result rc, const eb_id *id)
{
    ledger_event *e = ledger_at(l, n);
    int state = rc >= 0 ? LEDGER_ACKED : rc == EB_ERR_UNKNOWN ? LEDGER_UNKNOWN : LEDGER_REFUSED;
    if (state == LEDGER_REFUSED && id && id->str[0]) state = LEDGER_ACKED;
    if (state == LEDGER_ACKED && id) memcpy(e->id, id->str, sizeof e->id);
    e->answered = LEDGER_ADD(l->book->clock, 1);
    LEDGER_SET(e->state, state);
}

/* A handler begins; returns the event's number, 0 if nobody published it: a ruined file. */
T_UNUSED static int ledger_run(ledger *l, const eb_delivery *d)
{
    int n = ledger_number(d->event->payload);
    if (n > ledger_used(l)) n = 0;
    LEDGER_ADD(ledger_at(l, n)->runs, 1);
    return n;
}

/* A handler is about to return rc, which is returned. */
T_UNUSED static eb_result ledger_ran(ledger *l, int n, eb_result rc)
{
    ledger_event *e = ledger_at(l, n);
    if (rc == EB_OK || rc == EB_DUPLICATE) LEDGER_ADD(e->ok, 1);
    else LEDGER_ADD(e->failed, 1);
    return rc;
}

/* Something out of the ordinary is about to be done to event n; n = 0: to all so far. */
T_UNUSED static void ledger_note(ledger *l, int n, int note)
{
    int i, last = n ? n : ledger_used(l);
    for (i = n ? n : 1; i <= last; i++) {
        ledger_event *e = ledger_at(l, i);
        __atomic_or_fetch(&e->notes, note, __ATOMIC_SEQ_CST);
        if (note & LEDGER_RETRIED) LEDGER_ADD(e->lives, 1);
        if (note & LEDGER_SNOOZED) LEDGER_ADD(e->snoozes, 1);
    }
}

/* What a program has done, for people and for the table of `make release`: so many faults of a
** kind, so many of them failed, and further words. */
static void ledger_total(const char *kind, int64_t count, int64_t failed, const char *fmt, ...)
    EB_PRINTF(4, 5);
T_UNUSED static void ledger_total(const char *kind, int64_t count, int64_t failed, const char *fmt,
                                  ...)
{
    va_list args;
    printf("total | %s | %lld | %lld | ", kind, (long long)count, (long long)failed);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf(" | eventbus.h %s, SQLite %s |\n", eb_version(), sqlite3_libversion());
}

/* The process was killed or the power cut: what was running may run again. */
T_UNUSED static void ledger_crashed(ledger *l) { LEDGER_ADD(l->book->crashes, 1); }

/* ---- looking --------------------------------------------------------------------------------- */

/* Something is wrong: counts it and remembers the first ones in words. */
static void ledger_bad(ledger *l, const char *fmt, ...) EB_PRINTF(2, 3);
static void ledger_bad(ledger *l, const char *fmt, ...)
{
    size_t k = strlen(l->why);
    va_list args;
    l->wrong++;
    if (k + 200 > sizeof l->why) return;
    if (k) k += (size_t)snprintf(l->why + k, sizeof l->why - k, "; ");
    va_start(args, fmt);
    vsnprintf(l->why + k, 190, fmt, args);
    va_end(args);
}

/* One number from the file; -1 and a complaint if that fails. */
static int64_t ledger_int(ledger *l, sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    else ledger_bad(l, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(s);
    return value;
}

static const char *ledger_text(sqlite3_stmt *s, int column)
{
    const char *text = (const char *)sqlite3_column_text(s, column);
    return text ? text : "";
}

/* 1 if the text looks like 2026-11-18T05:32:10.123Z. */
static int ledger_is_time(const char *text)
{
    return strlen(text) == 24 && text[4] == '-' && text[10] == 'T' && text[23] == 'Z';
}

/* One event of the log with what the three tables say about it. The columns: */
enum {
    LC_SEQ, LC_UUID, LC_TYPE, LC_PAYLOAD, LC_CREATED,
    LC_LIVE, LC_STATUS, LC_LIVE_ATTEMPTS, LC_LIVE_FAILED, LC_LIVE_ERRORS,
    LC_DONE, LC_DONE_ATTEMPTS, LC_DONE_ERRORS, LC_DONE_AT,
    LC_DEAD, LC_DEAD_FAILED, LC_DEAD_ERRORS, LC_DEAD_AT, LC_DEAD_COPY
};
static const char ledger_sql[] =
    "SELECT l.seq,l.id,l.type,l.payload,l.created_at,"
    "d.seq IS NOT NULL,d.status,d.attempts,d.failed,d.errors,"
    "f.seq IS NOT NULL,f.attempts,f.errors,f.finished_at,"
    "x.seq IS NOT NULL,x.failed,x.errors,x.died_at,"
    "x.id=l.id AND x.type=l.type AND x.payload=l.payload AND x.created_at=l.created_at AND"
    " x.metadata IS l.metadata AND x.producer IS l.producer AND"
    " x.ordering_key IS l.ordering_key AND x.idempotency_key IS l.idempotency_key"
    " FROM event_log AS l LEFT JOIN deliveries AS d ON d.seq=l.seq"
    " LEFT JOIN finished AS f ON f.seq=l.seq"
    " LEFT JOIN dead_letters AS x ON x.subscription='' AND x.seq=l.seq ORDER BY l.seq";

/* The error texts of event n: as many as failed attempts, none of them empty, and no more than
** handler runs account for. A crash may have hit between the claim and the handler. */
static void ledger_errors(ledger *l, const ledger_event *e, int n, sqlite3_stmt *s, int column,
                          int failed)
{
    const char *errors = sqlite3_column_type(s, column) == SQLITE_NULL ? NULL
                                                                       : ledger_text(s, column);
    int by_hand = (e->notes & LEDGER_MOVED) != 0, unmatched = (e->notes & LEDGER_UNMATCHED) != 0;
    int i, count = t_errors(errors, -1, NULL, 0);
    char text[1200];
    if (count != failed)
        ledger_bad(l, "event %d: %d failed attempts but errors %s", n, failed,
                   errors ? errors : "none");
    for (i = 0; i < count; i++) {
        text[0] = 0;
        t_errors(errors, i, text, sizeof text);
        if (!text[0]) ledger_bad(l, "event %d: error %d is empty", n, i);
    }
    if (failed > e->runs + l->book->crashes + by_hand + unmatched)
        ledger_bad(l, "event %d: %d failed attempts, but %d runs", n, failed, e->runs);
}

static void ledger_row_live(ledger *l, const ledger_event *e, int n, sqlite3_stmt *s)
{
    const char *status = ledger_text(s, LC_STATUS);
    int failed = sqlite3_column_int(s, LC_LIVE_FAILED);
    int attempts = sqlite3_column_int(s, LC_LIVE_ATTEMPTS);
    if (strcmp(status, "pending") != 0 && strcmp(status, "processing") != 0)
        ledger_bad(l, "event %d: status %s", n, status);
    ledger_errors(l, e, n, s, LC_LIVE_ERRORS, failed);
    if (failed >= e->max_attempts)
        ledger_bad(l, "event %d: alive after %d failed attempts of %d", n, failed, e->max_attempts);
    if (attempts > e->max_attempts)
        ledger_bad(l, "event %d: attempt %d of %d", n, attempts, e->max_attempts);
}

static void ledger_row_done(ledger *l, const ledger_event *e, int n, sqlite3_stmt *s)
{
    int attempts = sqlite3_column_int(s, LC_DONE_ATTEMPTS);
    if (e->ok == 0 && !(e->notes & LEDGER_UNMATCHED))
        ledger_bad(l, "event %d: done, but no handler run returned EB_OK", n);
    ledger_errors(l, e, n, s, LC_DONE_ERRORS, attempts > 0 ? attempts - 1 : 0);
    if (attempts > e->max_attempts)
        ledger_bad(l, "event %d: done in attempt %d of %d", n, attempts, e->max_attempts);
    if (!ledger_is_time(ledger_text(s, LC_DONE_AT))) ledger_bad(l, "event %d: no finished_at", n);
}

static void ledger_row_dead(ledger *l, const ledger_event *e, int n, sqlite3_stmt *s)
{
    int failed = sqlite3_column_int(s, LC_DEAD_FAILED);
    int early = e->notes & (LEDGER_REJECTED | LEDGER_MOVED | LEDGER_UNMATCHED);
    if (!sqlite3_column_int(s, LC_DEAD_COPY))
        ledger_bad(l, "event %d: the dead letter is not what was published", n);
    if (failed < 1) ledger_bad(l, "event %d: dead without a failed attempt", n);
    ledger_errors(l, e, n, s, LC_DEAD_ERRORS, failed);
    if (failed > e->max_attempts)
        ledger_bad(l, "event %d: dead after %d attempts of %d", n, failed, e->max_attempts);
    if (failed < e->max_attempts && !early)
        ledger_bad(l, "event %d: dead after only %d attempts of %d", n, failed, e->max_attempts);
    if (!ledger_is_time(ledger_text(s, LC_DEAD_AT)) ||
        strcmp(ledger_text(s, LC_DEAD_AT), ledger_text(s, LC_CREATED)) < 0)
        ledger_bad(l, "event %d: died_at %s", n, ledger_text(s, LC_DEAD_AT));
}

/* One row of event_log; seen counts how often each number was met. */
static void ledger_row(ledger *l, sqlite3_stmt *s, int *seen)
{
    const char *payload = ledger_text(s, LC_PAYLOAD);
    int n = ledger_number(payload), states;
    int64_t seq = sqlite3_column_int64(s, LC_SEQ), runs;
    const ledger_event *e;
    char *want;
    if (n == 0 || n > l->book->used || l->book->events[n].state == 0) {
        ledger_bad(l, "seq %lld was never attempted: %.60s", (long long)seq, payload);
        return;
    }
    e = &l->book->events[n];
    if (++seen[n] > 1) ledger_bad(l, "event %d is there %d times", n, seen[n]);
    if (e->state == LEDGER_REFUSED) ledger_bad(l, "event %d was refused, but it is there", n);
    want = (char *)malloc((size_t)e->pad + 64);
    T_MUST(want);
    ledger_payload(n, e->pad, want, (size_t)e->pad + 64);
    if (strcmp(want, payload) != 0 || strcmp(e->type, ledger_text(s, LC_TYPE)) != 0)
        ledger_bad(l, "event %d has another type or payload: %.60s", n, payload);
    free(want);
    if (e->id[0] && strcmp(e->id, ledger_text(s, LC_UUID)) != 0)
        ledger_bad(l, "event %d: id %s, acknowledged as %s", n, ledger_text(s, LC_UUID), e->id);
    if (!ledger_is_time(ledger_text(s, LC_CREATED))) ledger_bad(l, "event %d: no created_at", n);
    states = sqlite3_column_int(s, LC_LIVE) + sqlite3_column_int(s, LC_DONE) +
             sqlite3_column_int(s, LC_DEAD);
    if (states != 1) ledger_bad(l, "event %d is in %d states", n, states);
    if (sqlite3_column_int(s, LC_LIVE)) ledger_row_live(l, e, n, s);
    if (sqlite3_column_int(s, LC_DONE)) ledger_row_done(l, e, n, s);
    if (sqlite3_column_int(s, LC_DEAD)) ledger_row_dead(l, e, n, s);
    runs = e->max_attempts * (1 + e->lives + l->book->crashes) + e->snoozes;
    if (e->runs > runs) ledger_bad(l, "event %d ran %d times, at most %d attempts each life", n,
                                   e->runs, e->max_attempts);
    if (e->ok > 1 + e->lives + l->book->crashes && !l->timeouts)
        ledger_bad(l, "event %d succeeded %d times in one life", n, e->ok);
}

/* What was acknowledged and not seen. */
static void ledger_missing(ledger *l, const int *seen)
{
    int64_t newest_seen = 0;
    int n, used = (int)l->book->used;
    l->lost = 0;
    for (n = 1; n <= used; n++)
        if (seen[n] && l->book->events[n].begun > newest_seen)
            newest_seen = l->book->events[n].begun;
    for (n = 1; n <= used; n++) {
        const ledger_event *e = &l->book->events[n];
        if (seen[n] || e->state != LEDGER_ACKED) continue;
        if (e->notes & LEDGER_PURGED) { /* only what could have died can have been purged */
            if (e->failed == 0 && !(e->notes & (LEDGER_MOVED | LEDGER_UNMATCHED)))
                ledger_bad(l, "event %d is gone with the dead, but it never failed", n);
            continue;
        }
        l->lost++;
        if (l->loss == LEDGER_LOSS_NONE) ledger_bad(l, "event %d was acknowledged and is lost", n);
        if (l->loss == LEDGER_LOSS_TAIL && newest_seen > e->answered)
            ledger_bad(l, "event %d is lost, but not a later one", n);
    }
}

static void ledger_look_at(ledger *l, sqlite3 *db)
{
    sqlite3_stmt *s = NULL;
    int *seen = (int *)calloc((size_t)l->book->used + 1, sizeof *seen), rc;
    T_MUST(seen);
    rc = sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    if (rc != SQLITE_ROW) ledger_bad(l, "the file cannot be read: %s", sqlite3_errmsg(db));
    else if (strcmp(ledger_text(s, 0), "ok") != 0)
        ledger_bad(l, "integrity_check: %s", ledger_text(s, 0));
    sqlite3_finalize(s);
    s = NULL;
    if (rc == SQLITE_ROW &&
        ledger_int(l, db, "SELECT count(*) FROM sqlite_schema WHERE name='event_log'") == 1) {
        rc = sqlite3_prepare_v2(db, ledger_sql, -1, &s, NULL);
        while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
            ledger_row(l, s, seen);
            rc = SQLITE_OK;
        }
        if (rc != SQLITE_DONE) ledger_bad(l, "reading the log: %s", sqlite3_errmsg(db));
        sqlite3_finalize(s);
        if (ledger_int(l, db, "SELECT (SELECT count(*) FROM deliveries WHERE seq NOT IN (SELECT seq"
                              " FROM event_log))+(SELECT count(*) FROM finished WHERE seq NOT IN"
                              " (SELECT seq FROM event_log))+(SELECT count(*) FROM dead_letters"
                              " WHERE seq NOT IN (SELECT seq FROM event_log))") != 0)
            ledger_bad(l, "there are rows without an event");
    }
    ledger_missing(l, seen);
    free(seen);
}

/* A connection that leaves the WAL where it is when it closes. */
static sqlite3 *ledger_connect(ledger *l, const char *path)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, l->vfs) != SQLITE_OK)
        ledger_bad(l, "the file cannot be opened: %s", db ? sqlite3_errmsg(db) : "no memory");
    if (!db) return NULL;
    sqlite3_busy_timeout(db, 5000);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return db;
}

static void ledger_reset(ledger *l)
{
    l->wrong = 0;
    l->why[0] = 0;
}

/* The file as it lies. Returns how much is wrong. */
T_UNUSED static int ledger_look(ledger *l, const char *path)
{
    sqlite3 *db;
    ledger_reset(l);
    if (l->book->events[0].runs) ledger_bad(l, "a handler ran for what nobody published");
    db = ledger_connect(l, path);
    if (db && !l->wrong) ledger_look_at(l, db);
    sqlite3_close(db);
    return l->wrong;
}

/* ---- checking -------------------------------------------------------------------------------- */

static eb_result ledger_handler(eb_delivery *d, void *user)
{
    ledger *l = (ledger *)user;
    int n = ledger_number(d->event->payload);
    if (n == 0 || n > ledger_used(l)) return EB_OK; /* the look complains about it */
    ledger_run(l, d);
    return ledger_ran(l, n, EB_OK);
}

/* The figures of eb_stats_get against the rows. */
static void ledger_stats(ledger *l, eb_store *store, const char *path)
{
    eb_stats st;
    sqlite3 *db;
    int64_t pending, processing, done, dead, seq;
    eb_result rc = eb_stats_get(store, &st);
    if (rc != EB_OK) ledger_bad(l, "eb_stats_get: %s", eb_strerror(rc));
    db = rc == EB_OK ? ledger_connect(l, path) : NULL;
    if (!db) return;
    pending = ledger_int(l, db, "SELECT count(*) FROM deliveries WHERE status='pending'");
    processing = ledger_int(l, db, "SELECT count(*) FROM deliveries WHERE status='processing'");
    done = ledger_int(l, db, "SELECT count(*) FROM finished");
    dead = ledger_int(l, db, "SELECT count(*) FROM dead_letters");
    seq = ledger_int(l, db, "SELECT ifnull(max(seq),0) FROM event_log");
    sqlite3_close(db);
    if (st.pending != pending || st.processing != processing || st.done != done || st.dlq != dead)
        ledger_bad(l, "eb_stats_get %lld+%lld+%lld+%lld, rows %lld+%lld+%lld+%lld",
                   (long long)st.pending, (long long)st.processing, (long long)st.done,
                   (long long)st.dlq, (long long)pending, (long long)processing, (long long)done,
                   (long long)dead);
    if (st.last_seq < seq) ledger_bad(l, "last_seq %lld after seq %lld", (long long)st.last_seq,
                                      (long long)seq);
}

/* Some of the acknowledged events, each found by its id. */
static void ledger_find(ledger *l, eb_store *store)
{
    int n, used = (int)l->book->used, step = used / 16 + 1;
    for (n = 1; n <= used; n += step) {
        const ledger_event *e = &l->book->events[n];
        eb_event_list list;
        eb_result rc;
        if (e->state != LEDGER_ACKED || !e->id[0]) continue;
        rc = eb_get(store, e->id, &list);
        if (rc == EB_ERR_NOT_FOUND && (e->notes & LEDGER_PURGED || l->loss)) continue;
        if (rc != EB_OK) ledger_bad(l, "eb_get of event %d: %s", n, eb_strerror(rc));
        else if (ledger_number(list.items[0].payload) != n)
            ledger_bad(l, "eb_get of event %d finds %.40s", n, list.items[0].payload);
        eb_event_list_free(&list);
    }
}

static void ledger_options(const ledger *l, const char *path, t_time *time, eb_options *o)
{
    memset(o, 0, sizeof *o);
    o->path = path;
    o->vfs = l->vfs;
    o->workers = EB_NONE;
    o->durability = EB_DURABLE_OFF;
    o->logger.func = t_quiet_func;
    o->idle_poll_ms = EBI_DAY_MS; /* a drain that cannot end gives up after few turns */
    o->clock = t_clock(time);
    if (time->now_ms < ebi_platform_now_ms()) time->now_ms = ebi_platform_now_ms();
    time->now_ms += EBI_DAY_MS; /* later than whatever the test's own clock said */
}

/* One recovery and one drain; every call must succeed. */
static void ledger_settle(ledger *l, const char *path)
{
    t_time time;
    eb_options o;
    eb_bus *bus = NULL;
    const char *what = "eb_open";
    char msg[120];
    eb_result rc;
    ledger_options(l, path, &time, &o);
    rc = eb_open(&bus, &o);
    if (rc == EB_OK) ledger_stats(l, eb_bus_store(bus), path);
    if (rc == EB_OK && (what = "eb_subscribe", 1))
        rc = eb_subscribe(bus, "*", ledger_handler, l, NULL, NULL);
    if (rc == EB_OK && (what = "eb_start", 1)) rc = eb_start(bus);
    if (rc == EB_OK && (what = "eb_drain", 1)) rc = eb_drain(bus, 400 * EBI_DAY_MS);
    if (rc == EB_OK && (what = "eb_shutdown", 1)) rc = eb_shutdown(bus);
    eb_errmsg(msg, sizeof msg);
    if (rc != EB_OK) ledger_bad(l, "%s after the fault: %s: %s", what, eb_strerror(rc), msg);
    eb_destroy(bus);
}

static void ledger_check_store(ledger *l, const char *path)
{
    t_time time;
    eb_options o;
    eb_store *store = NULL;
    eb_result rc;
    ledger_options(l, path, &time, &o);
    rc = eb_store_open(&store, &o);
    if (rc != EB_OK) {
        ledger_bad(l, "eb_store_open: %s", eb_strerror(rc));
        return;
    }
    ledger_stats(l, store, path);
    ledger_find(l, store);
    eb_store_close(store);
}

/* Everything that the top of this file says. Returns how much is wrong; L.why says what. */
T_UNUSED static int ledger_check(ledger *l, const char *path, int flags)
{
    ledger copy = *l, *use = l;
    sqlite3 *db;
    size_t size = sizeof(ledger_book) + (size_t)l->book->used * sizeof(ledger_event);
    if (flags & LEDGER_COPY) {
        copy.book = (ledger_book *)malloc(size);
        T_MUST(copy.book);
        memcpy(copy.book, l->book, size);
        use = &copy;
    }
    if (ledger_look(use, path) == 0) {
        ledger_settle(use, path);
        db = use->wrong ? NULL : ledger_connect(use, path);
        if (db) {
            ledger_look_at(use, db);
            if (ledger_int(use, db, "SELECT count(*) FROM deliveries") != 0)
                ledger_bad(use, "something is still alive after recovery and drain");
            sqlite3_close(db);
        }
        if (!use->wrong) ledger_check_store(use, path);
    }
    if (use == &copy) {
        free(copy.book);
        copy.book = l->book;
        *l = copy;
    }
    return l->wrong;
}

#endif /* LEDGER_H */
