/* test.h - what all tests share: the bus with its implementation, greatest, a scratch folder, a
** clock that only moves when told, a log that remembers, the two drivers; and the words in which a
** test opens a bus, gives it a handler, posts, and says what it expects.
**
** What is written small prepares, and so do T_DO and T_MUST: when it goes wrong, the program stops
** and says where. The other capitals assert: when they go wrong, the test fails. tests/README.md has
** a list of the words and a test that is made of them.
**
** Every tests/test_*.c is one program: it includes this file once and may call ebi_ functions.
*/
#ifndef TEST_H
#define TEST_H
#define EVENTBUS_IMPLEMENTATION
#include "../eventbus.h"
#include "sqlite3.h"
#include "greatest.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef _WIN32
#define alarm(seconds) ((void)(seconds)) /* whoever runs the programs has a time limit too */
#define t_mkdir(path) mkdir(path)
#else
#include <sys/wait.h>
#define t_mkdir(path) mkdir(path, 0700)
#endif

#if defined(__GNUC__)
#define T_UNUSED __attribute__((unused))
#else
#define T_UNUSED
#endif

/* Asserts that a call returns exactly this result; prints both names if not. */
#define T_IS(want, expr)                                                                           \
    do {                                                                                           \
        eb_result t_want = (want), t_got = (expr);                                                 \
        if (t_want != t_got) {                                                                     \
            char t_msg[512];                                                                       \
            eb_errmsg(t_msg, sizeof t_msg);                                                        \
            fprintf(stderr, "\n%s:%d: %s\n  wanted %d (%s)\n  got %d (%s)\n  errmsg: %s\n",        \
                    __FILE__, __LINE__, #expr, (int)t_want, eb_strerror(t_want), (int)t_got,       \
                    eb_strerror(t_got), t_msg);                                                    \
            FAILm(#expr);                                                                          \
        }                                                                                          \
    } while (0)
#define T_OK(expr) T_IS(EB_OK, expr)

/* For helpers outside a TEST: stops the program. */
#define T_MUST(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #cond);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The same for a call that must return EB_OK. */
#define T_DO(expr) t_do((expr), #expr, __FILE__, __LINE__)
T_UNUSED static void t_do(eb_result rc, const char *what, const char *file, int line)
{
    char msg[512];
    if (rc == EB_OK) return;
    eb_errmsg(msg, sizeof msg);
    fprintf(stderr, "\n%s:%d: %s\n  got %d (%s)\n  errmsg: %s\n", file, line, what, (int)rc,
            eb_strerror(rc), msg);
    abort();
}

/* The message of the call that failed last on this thread has this text; "": there is one. */
#define T_SAYS(text)                                                                               \
    do {                                                                                           \
        char t_said[600];                                                                          \
        if (eb_errmsg(t_said, sizeof t_said) == 0 || !strstr(t_said, (text))) {                    \
            fprintf(stderr, "\n%s:%d: errmsg: %s\n", __FILE__, __LINE__, t_said);                  \
            FAILm("the message says " #text);                                                      \
        }                                                                                          \
    } while (0)

/* Integers of any kind, both printed. */
#define T_EQ(want, got) T_EQ_OF((want), (got), #got)
#define T_EQ_OF(want, got, what)                                                                   \
    do {                                                                                           \
        int64_t t_a = (int64_t)(want), t_b = (int64_t)(got);                                       \
        if (t_a != t_b) {                                                                          \
            fprintf(stderr, "\n%s:%d: %s\n  wanted %lld\n  got %lld\n", __FILE__, __LINE__, what,  \
                    (long long)t_a, (long long)t_b);                                               \
            FAILm(what);                                                                           \
        }                                                                                          \
    } while (0)

/* ---- scratch files ------------------------------------------------------------------------- */

/* A fresh database path; whatever lay there before is removed. Valid until the 8th next call. */
T_UNUSED static const char *t_path(const char *name)
{
    static char ring[8][400];
    static int turn;
    static const char *const tail[] = {"", "-wal", "-shm", "-journal", ".owner", ".owner-journal"};
    char *path = ring[turn++ & 7], victim[440];
    const char *dir = getenv("TMPDIR");
    size_t i;
    snprintf(path, sizeof ring[0], "%s/eb-test-%ld-%s.db", dir ? dir : "/tmp", (long)getpid(),
             name);
    for (i = 0; i < sizeof tail / sizeof *tail; i++) {
        snprintf(victim, sizeof victim, "%s%s", path, tail[i]);
        remove(victim);
    }
    return path;
}

/* One value from the file, through a connection of its own: what a sqlite3 shell would see. */
T_UNUSED static int64_t t_sql_int(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int64_t value = -1;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fprintf(stderr, "t_sql_int: %s: %s\n", sql, sqlite3_errmsg(db));
        abort();
    }
    if (sqlite3_step(stmt) == SQLITE_ROW) value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

/* The same as text; the caller's buffer. "" for NULL or no row. */
T_UNUSED static const char *t_sql_text(const char *path, const char *sql, char *buf, size_t cap)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fprintf(stderr, "t_sql_text: %s: %s\n", sql, sqlite3_errmsg(db));
        abort();
    }
    buf[0] = 0;
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_text(stmt, 0))
        snprintf(buf, cap, "%s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return buf;
}

/* Runs SQL as an operator would; returns the SQLite result, the message in *err if given. */
T_UNUSED static int t_sql(const char *path, const char *sql, char *err, size_t cap)
{
    sqlite3 *db = NULL;
    char *msg = NULL;
    int rc;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    rc = sqlite3_exec(db, sql, NULL, NULL, &msg);
    if (err) snprintf(err, cap, "%s", msg ? msg : "");
    sqlite3_free(msg);
    sqlite3_close(db);
    return rc;
}

/* How many events the log holds, counted by a connection of its own. */
T_UNUSED static int64_t t_stored(const char *path)
{
    return t_sql_int(path, "SELECT count(*) FROM event_log");
}

/* How many rows of the view `events` satisfy an SQL condition. */
T_UNUSED static int64_t t_rows(const char *path, const char *where)
{
    char sql[600];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM events WHERE %s", where);
    return t_sql_int(path, sql);
}
#define T_ROWS(want, path, where) T_EQ_OF((want), t_rows((path), (where)), #where)

/* ---- a clock that moves when told; sleeping moves it too ------------------------------------ */

typedef struct t_time {
    int64_t now_ms, mono_ms;
    int64_t slept_ms; /* sum of all sleeps the bus asked for */
} t_time;

T_UNUSED static int64_t t_now(void *user) { return ((t_time *)user)->now_ms; }
T_UNUSED static int64_t t_mono(void *user) { return ((t_time *)user)->mono_ms; }
T_UNUSED static void t_advance(t_time *t, int64_t ms)
{
    t->now_ms += ms;
    t->mono_ms += ms;
}
T_UNUSED static void t_sleep(int64_t ms, void *user)
{
    ((t_time *)user)->slept_ms += ms;
    t_advance((t_time *)user, ms);
}
/* 2026-11-18T05:32:10.000Z */
#define T_EPOCH INT64_C(1794979930000)
T_UNUSED static eb_clock t_clock(t_time *t)
{
    eb_clock c;
    t->now_ms = T_EPOCH;
    t->mono_ms = 1000000;
    t->slept_ms = 0;
    c.now_ms = t_now;
    c.mono_ms = t_mono;
    c.sleep_ms = t_sleep;
    c.user = t;
    return c;
}

/* ---- a logger that remembers ---------------------------------------------------------------- */

typedef struct t_logged {
    int level, attempt, max_attempts;
    int64_t next_delay_ms, time_ms;
    char message[200], event_id[40], type[260], error[1100];
} t_logged;

typedef struct t_log {
    t_logged items[256];
    int count; /* may exceed 256: only the first 256 are kept */
    sqlite3_mutex *mutex;
} t_log;

T_UNUSED static void t_copy(char *to, size_t cap, const char *from)
{
    snprintf(to, cap, "%s", from ? from : "");
}

T_UNUSED static void t_log_func(const eb_log_entry *e, void *user)
{
    t_log *log = (t_log *)user;
    sqlite3_mutex_enter(log->mutex);
    if (log->count < 256) {
        t_logged *item = &log->items[log->count];
        item->level = e->level;
        item->attempt = e->attempt;
        item->max_attempts = e->max_attempts;
        item->next_delay_ms = e->next_delay_ms;
        item->time_ms = e->time_ms;
        t_copy(item->message, sizeof item->message, e->message);
        t_copy(item->event_id, sizeof item->event_id, e->event_id);
        t_copy(item->type, sizeof item->type, e->type);
        t_copy(item->error, sizeof item->error, e->error);
    }
    log->count++;
    sqlite3_mutex_leave(log->mutex);
}

/* How many there are, while threads may still speak. */
T_UNUSED static int t_log_count(const t_log *log)
{
    int count;
    sqlite3_mutex_enter(log->mutex);
    count = log->count;
    sqlite3_mutex_leave(log->mutex);
    return count;
}

/* Forgets everything and returns the logger to put into eb_options. */
T_UNUSED static eb_logger t_logger(t_log *log)
{
    eb_logger logger;
    static sqlite3_mutex *mutex;
    if (!mutex) {
        sqlite3_initialize();
        mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_FAST);
    }
    memset(log, 0, sizeof *log);
    log->mutex = mutex;
    logger.func = t_log_func;
    logger.user = log;
    return logger;
}

/* How many entries there are for failed attempts (attempt > 0). */
T_UNUSED static int t_log_attempts(t_log *log)
{
    int i, n = 0;
    sqlite3_mutex_enter(log->mutex);
    for (i = 0; i < log->count && i < 256; i++) n += log->items[i].attempt > 0;
    sqlite3_mutex_leave(log->mutex);
    return n;
}

T_UNUSED static void t_quiet_func(const eb_log_entry *e, void *user)
{
    (void)e;
    (void)user;
}

/* ---- the two drivers ------------------------------------------------------------------------- */

/* 0: worker threads; 1: no threads, eb_pump. Behaviour suites run once with each. */
static int t_pump_mode;

/* Options for a test bus: quiet, fast retries, the driver of the hour. Change what matters. */
T_UNUSED static eb_options t_options(const char *path)
{
    eb_options o;
    memset(&o, 0, sizeof o);
    o.path = path;
    o.workers = t_pump_mode ? EB_NONE : 0;
    o.durability = EB_DURABLE_NORMAL;
    o.retry.base_delay_ms = 1;
    o.retry.max_delay_ms = 4;
    o.logger.func = t_quiet_func;
    return o;
}

/* The same without threads, on a clock of its own that begins at T_EPOCH, with the default waits
** between attempts: 1, 2, 4 s. */
T_UNUSED static eb_options t_timed(const char *path, t_time *t)
{
    eb_options o = t_options(path);
    memset(&o.retry, 0, sizeof o.retry);
    o.workers = EB_NONE;
    o.clock = t_clock(t);
    return o;
}

/* Opens with these options and gives up the program if that fails. */
T_UNUSED static eb_bus *t_open(const eb_options *o)
{
    eb_bus *bus = NULL;
    eb_result rc = eb_open(&bus, o);
    if (rc != EB_OK) {
        char msg[512];
        eb_errmsg(msg, sizeof msg);
        fprintf(stderr, "t_open: %s: %s\n", eb_strerror(rc), msg);
        abort();
    }
    return bus;
}

/* Opens with t_options. */
T_UNUSED static eb_bus *t_bus(const char *path)
{
    eb_options o = t_options(path);
    return t_open(&o);
}

/* Subscribes without options, for who does not need the id. */
#define t_subscribe(bus, pattern, handler, user)                                                   \
    T_DO(eb_subscribe((bus), (pattern), (handler), (user), NULL, NULL))

/* A started bus with one handler: with these options, or with t_options. */
T_UNUSED static eb_bus *t_run_with(const eb_options *o, const char *pattern, eb_handler handler,
                                   void *user)
{
    eb_bus *bus = t_open(o);
    t_subscribe(bus, pattern, handler, user);
    T_DO(eb_start(bus));
    return bus;
}
T_UNUSED static eb_bus *t_run(const char *path, const char *pattern, eb_handler handler, void *user)
{
    eb_options o = t_options(path);
    return t_run_with(&o, pattern, handler, user);
}

/* Posts one event and returns its id. */
#define t_post(bus, type, payload) t_post_at((bus), (type), (payload), __FILE__, __LINE__)
T_UNUSED static eb_id t_post_at(eb_bus *bus, const char *type, const char *payload,
                                const char *file, int line)
{
    eb_id id;
    t_do(eb_post(bus, type, payload, &id), "t_post", file, line);
    return id;
}

/* A message with nothing else set. */
T_UNUSED static eb_message t_message(const char *type, const char *payload)
{
    eb_message m = {0};
    m.type = type;
    m.payload = payload;
    return m;
}

/* Waits until nothing is left to do, under either driver; 20 s is for ever. */
T_UNUSED static eb_result t_settle(eb_bus *bus) { return eb_drain(bus, 20000); }

/* How many calls wait for the writer, while a test holds it with ebi_writer_enter(). */
T_UNUSED static int t_queued(eb_bus *bus)
{
    const ebi_req *r;
    int n = 0;
    ebi_store_lock(&bus->store);
    for (r = bus->store.queue.head; r; r = r->next) n++;
    ebi_store_unlock(&bus->store);
    return n;
}

/* ---- handlers -------------------------------------------------------------------------------- */

/* What t_watch saw; begin with {0}. While threads may still call it, p_get(&seen.calls). */
typedef struct t_seen {
    int fail_first, reject; /* to do: this many attempts of an event fail; all are rejected */
    t_time *clock;          /* to do: move this one ... */
    int64_t takes_ms;       /* ... so much in each call */
    int calls;
    int64_t at_ms[64];  /* when each call began, if there is a clock */
    char payloads[400]; /* of all calls, in order: "1 2 " */
    int attempt, max_attempts, retry_count, has_metadata, terminated; /* of the last call */
    size_t payload_len;
    char type[260], payload[600], metadata[200], producer[100], errors[3000];
} t_seen;

/* Remembers the event and succeeds, or does what the t_seen says. */
T_UNUSED static eb_result t_watch(eb_delivery *d, void *user)
{
    t_seen *s = (t_seen *)user;
    const eb_event *e = d->event;
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    size_t n;
    sqlite3_mutex_enter(mutex);
    if (s->clock && s->calls < 64) s->at_ms[s->calls] = s->clock->now_ms;
    n = strlen(s->payloads);
    snprintf(s->payloads + n, sizeof s->payloads - n, "%s ", e->payload);
    s->attempt = d->attempt;
    s->max_attempts = d->max_attempts;
    s->retry_count = e->retry_count;
    s->has_metadata = e->metadata != NULL;
    s->terminated = e->payload[e->payload_len] == 0;
    s->payload_len = e->payload_len;
    t_copy(s->type, sizeof s->type, e->type);
    t_copy(s->payload, sizeof s->payload, e->payload);
    t_copy(s->metadata, sizeof s->metadata, e->metadata);
    t_copy(s->producer, sizeof s->producer, e->producer);
    t_copy(s->errors, sizeof s->errors, e->last_error);
    if (s->clock) t_advance(s->clock, s->takes_ms);
    __atomic_add_fetch(&s->calls, 1, __ATOMIC_SEQ_CST);
    sqlite3_mutex_leave(mutex);
    if (s->reject) return eb_reject(d, "no");
    return d->attempt <= s->fail_first ? eb_fail(d, "not yet") : EB_OK;
}

/* A started bus with t_timed, where t_watch handles everything and may move the clock. */
T_UNUSED static eb_bus *t_run_timed(const char *path, t_time *t, t_seen *s)
{
    eb_options o = t_timed(path, t);
    memset(s, 0, sizeof *s);
    s->clock = t;
    return t_run_with(&o, "*", t_watch, s);
}

/* eb_pump runs what is due, for so long, and says this about the next time. */
#define T_PUMP(bus, budget, next)                                                                  \
    do {                                                                                           \
        int64_t t_next = -99;                                                                      \
        T_OK(eb_pump((bus), (budget), &t_next));                                                   \
        T_EQ_OF((next), t_next, "the next time");                                                  \
    } while (0)

T_UNUSED static eb_result t_succeeds(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    return EB_OK;
}

T_UNUSED static eb_result t_rejects(eb_delivery *d, void *user)
{
    (void)user;
    return eb_reject(d, "no use");
}

/* ---- behaviour tests: both drivers, and what the bus says about an event --------------------- */

/* Runs a suite under worker threads, then again with eb_pump. */
#ifdef EB_NO_THREADS
#define T_RUN_BOTH(suite)                                                                          \
    do {                                                                                           \
        t_pump_mode = 1;                                                                           \
        RUN_SUITE(suite);                                                                          \
    } while (0)
#else
#define T_RUN_BOTH(suite)                                                                          \
    do {                                                                                           \
        t_pump_mode = 0;                                                                           \
        RUN_SUITE(suite);                                                                          \
        t_pump_mode = 1;                                                                           \
        RUN_SUITE(suite);                                                                          \
    } while (0)
#endif

/* 1 if text is a version 4 UUID, lower case, 36 characters. */
T_UNUSED static int t_is_v4(const char *text)
{
    size_t i;
    if (strlen(text) != 36) return 0;
    for (i = 0; i < 36; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i] != '-') return 0;
        } else if (!strchr("0123456789abcdef", text[i])) {
            return 0;
        }
    }
    return text[14] == '4' && strchr("89ab", text[19]) != NULL;
}

/* 1 if the bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF. */
T_UNUSED static int t_utf8_ok(const char *text, size_t len)
{
    size_t i = 0, k, more;
    while (i < len) {
        unsigned c = (unsigned char)text[i++], lo = 0x80, hi = 0xBF;
        if (c < 0x80) continue;
        if (c >= 0xC2 && c <= 0xDF) more = 1;
        else if (c >= 0xE0 && c <= 0xEF) more = 2;
        else if (c >= 0xF0 && c <= 0xF4) more = 3;
        else return 0;
        if (c == 0xE0) lo = 0xA0;
        if (c == 0xED) hi = 0x9F;
        if (c == 0xF0) lo = 0x90;
        if (c == 0xF4) hi = 0x8F;
        for (k = 0; k < more; k++, lo = 0x80, hi = 0xBF) {
            if (i >= len) return 0;
            c = (unsigned char)text[i++];
            if (c < lo || c > hi) return 0;
        }
    }
    return 1;
}

/* Reads last_error: returns how many texts the JSON array holds, -1 if it is not exactly one array
** of strings, 0 for NULL; text number `index` (from 0) is decoded into buf ("" if not there). */
T_UNUSED static int t_errors(const char *json, int index, char *buf, size_t cap)
{
    const char *p = json;
    int n = 0;
    size_t at = 0;
    if (cap) buf[0] = 0;
    if (!json) return 0;
    while (*p == ' ' || *p == '\n') p++;
    if (*p++ != '[') return -1;
    while (*p == ' ' || *p == '\n') p++;
    if (*p == ']') return p[1] ? -1 : 0;
    for (;;) {
        while (*p == ' ' || *p == '\n') p++;
        if (*p++ != '"') return -1;
        while (*p != '"') {
            unsigned long c = (unsigned char)*p++;
            char out[4];
            size_t len = 1, i;
            if (c < 0x20) return -1; /* also the end of the text */
            out[0] = (char)c;
            if (c == '\\') {
                c = (unsigned char)*p++;
                if (c == 'u') {
                    char hex[5] = {0}, *end;
                    for (i = 0; i < 4; i++)
                        if (!p[i]) return -1;
                    memcpy(hex, p, 4);
                    c = strtoul(hex, &end, 16);
                    if (*end) return -1;
                    p += 4;
                    if (c < 0x80) {
                        out[0] = (char)c;
                    } else if (c < 0x800) {
                        out[0] = (char)(0xC0 | (c >> 6));
                        out[1] = (char)(0x80 | (c & 63));
                        len = 2;
                    } else {
                        out[0] = (char)(0xE0 | (c >> 12));
                        out[1] = (char)(0x80 | ((c >> 6) & 63));
                        out[2] = (char)(0x80 | (c & 63));
                        len = 3;
                    }
                } else {
                    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
                    const char *hit = c ? strchr(from, (int)c) : NULL;
                    if (!hit) return -1;
                    out[0] = to[hit - from];
                }
            }
            if (n == index)
                for (i = 0; i < len && at + 1 < cap; i++) {
                    buf[at++] = out[i];
                    buf[at] = 0;
                }
        }
        p++;
        n++;
        while (*p == ' ' || *p == '\n') p++;
        if (*p == ']') return p[1] ? -1 : n;
        if (*p++ != ',') return -1;
    }
}

/* The event's status as the inspector sees it; -1 if there is no such event. */
T_UNUSED static int t_status(eb_store *store, const char *id)
{
    eb_event_list list;
    int status = -1;
    memset(&list, 0, sizeof list);
    if (eb_get(store, id, &list) == EB_OK && list.count == 1) status = (int)list.items[0].status;
    eb_event_list_free(&list);
    return status;
}
#define T_STATUS(want, bus, id)                                                                    \
    T_EQ_OF((want), t_status(eb_bus_store(bus), (id).str), "status of " #id)

/* Its retry_count; checks on the way that this is the length of last_error. -1: no such event, -2:
** the two disagree. The text number `index` goes to buf (may be NULL with cap 0). */
T_UNUSED static int t_failures(eb_store *store, const char *id, int index, char *buf, size_t cap)
{
    eb_event_list list;
    int count = -1;
    memset(&list, 0, sizeof list);
    if (eb_get(store, id, &list) == EB_OK && list.count == 1) {
        count = list.items[0].retry_count;
        if (t_errors(list.items[0].last_error, index, buf, cap) != count) count = -2;
    }
    eb_event_list_free(&list);
    return count;
}

/* The event has failed so often; the failure with this number, from 0, left this text. */
#define T_FAILED(times, bus, id, which, text)                                                      \
    do {                                                                                           \
        char t_failure[1200];                                                                      \
        T_EQ_OF((times), t_failures(eb_bus_store(bus), (id).str, (which), t_failure,               \
                                    sizeof t_failure), "failures of " #id);                        \
        ASSERT_STR_EQ((text), t_failure);                                                          \
    } while (0)

/* The figures of the bus. */
T_UNUSED static eb_stats t_stats(eb_bus *bus)
{
    eb_stats stats = {0};
    T_DO(eb_stats_get(eb_bus_store(bus), &stats));
    return stats;
}

#endif /* TEST_H */
