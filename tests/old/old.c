/* old.c - version 0.1.0 as it was released, to be run beside the new one, and files that it made.
**
** In this folder lie
**   eventbus-0.1.0.h       the header of version 0.1.0, unchanged; nothing but old.c includes it
**   old.c old.h            what test_old.c has done by it: publish, inspect, dispatch, make files
**   plain-0.1.0.sqlite3    the default namespace; its process was killed in a handler, whose claim
**                          was counted: one row is `processing`
**   spaces-0.1.0.sqlite3   namespaces my-shop (killed in a handler of a batch: four rows are
**                          `processing`, none of them counted) and second (closed in peace), and
**                          a table of the application
**
** Both were made by this program, with a clock and random numbers of its own, so that the same
** files come out each time; the WAL was brought into the file afterwards (old_seal):
**
**     cc -DOLD_MAIN -Isqlite3 tests/old/old.c sqlite3/sqlite3.c -o old -lpthread -ldl -lm
**     ./old make tests/old
**
** What is in them, beside the `processing` ones (the time in the file goes from 0 to 240 s; the
** number in brackets is n in the payload):
**
**   pending     wait.plain[1] with metadata; wait.key[3], [5] of key w, between them the delayed [4];
**               ok.key[17], [18] of key r behind fail.key; ok.key[21] of key q, released: its head
**               was given up; reject.retried[19], retried from the dead letters
**   delayed     wait.later[2] to 3600 s, wait.key[4] of key w to 1800 s
**   retry       fail.once[14] at 300 s, fail.key[16] of key r at 300 s, fail.twice[13] at 360 s
**   snoozed     snooze.hour[15] to 3840 s
**   dead        fail.dead[10] of key d after three attempts, reject.dead[12], wait.moved[6] and
**               snooze.key[20] of key q by an operator; reject.gone[8] was purged
**   done        ok.first[7] with both keys, fail.done[9] after one failure, ok.behind[11] of key d,
**               in my-shop eight ok.warm[30]
**
** `./old FILE NS` (NS - is none) carries out the lines of its stdin, and prints the answers:
**
**   open FILE NS idle      eb_open; `idle`: no workers and a clock that stands still
**   open FILE NS threads   the same with a worker thread and the system's clock
**   store FILE NS          eb_store_open
**   clock MS               that clock shows OLD_BEGIN_MS + MS
**   start                  subscribes to everything, then eb_start; drain, stop: what they say
**   post TYPE KEY IDEMPOTENCY DELAY_MS     each but the type may be -
**   batch COUNT TYPE       eb_send
**   show TYPE              the first event of that type: "EB_OK STATUS RETRY_COUNT LAST_ERROR"
**   count                  what eb_log_read, eb_dlq_list and eb_stats_get say of all:
**                          "EB_OK ALL pending N processing N done N dlq N, dead N, stats N N N N"
**   retry TYPE, move TYPE  eb_dlq_retry and eb_dlq_move of the first event of that type
**   retry_all, purge       of all dead letters: "EB_OK N"
**   calls                  how many handlers were called: "N"
**   close
*/
#define EVENTBUS_IMPLEMENTATION
#define EB_STATIC /* the new one is linked into the same program */
#include "eventbus-0.1.0.h"
#include "old.h"
#include <signal.h>
#ifndef _WIN32
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

/* For what cannot go wrong; a test then sees the end of the process. */
#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            char must_msg[512];                                                                    \
            eb_errmsg(must_msg, sizeof must_msg);                                                  \
            fprintf(stderr, "%s:%d: must hold: %s (%s)\n", __FILE__, __LINE__, #cond, must_msg);   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static eb_bus *bus;
static eb_store *store;
static int64_t now_ms = OLD_BEGIN_MS;
static int filling; /* die.* ends the process only then */
static int calls;   /* __atomic: with worker threads they are counted there */

static int64_t clock_now(void *user)
{
    (void)user;
    return now_ms;
}
static void clock_sleep(int64_t ms, void *user)
{
    (void)user;
    now_ms += ms;
}

static void quiet(const eb_log_entry *entry, void *user)
{
    (void)entry;
    (void)user;
}

static const char *name_of(eb_result rc)
{
#define NAME(name, value, text)                                                                    \
    if (rc == value) return #name;
    EB_RESULT_LIST(NAME)
#undef NAME
    return "?";
}

/* ---- what the handlers do ----------------------------------------------------------------------- */

static void die(void)
{
#ifdef _WIN32
    TerminateProcess(GetCurrentProcess(), 0x5000 + 9); /* how proc.h says it */
#else
    kill(getpid(), SIGKILL);
#endif
}

static int is(const char *type, const char *prefix)
{
    return strncmp(type, prefix, strlen(prefix)) == 0;
}

/* The id of the first event of that type, "" if there is none. */
static eb_id first_of(const char *type)
{
    eb_event_list list;
    eb_query query;
    eb_id id;
    memset(&query, 0, sizeof query);
    memset(&id, 0, sizeof id);
    query.pattern = type;
    query.limit = 1;
    MUST(eb_log_read(store, &query, &list) == EB_OK);
    if (list.count) id = list.items[0].id;
    eb_event_list_free(&list);
    return id;
}

/* What a handler does is in the type of its event. */
static eb_result act(eb_delivery *d, void *user)
{
    const char *type = d->event->type;
    (void)user;
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (is(type, "fail.done") && d->attempt > 1) return EB_OK;
    if (is(type, "fail.")) return eb_fail(d, "attempt %d failed", d->attempt);
    if (is(type, "reject.")) return eb_reject(d, "no \"such\" thing, n\xC3\xA9");
    if (is(type, "snooze.")) return eb_snooze(d, 3600000);
    if (is(type, "die.") && filling) {
        MUST(eb_dlq_retry(store, first_of("reject.retried").str, NULL) == EB_OK);
        MUST(eb_dlq_move(store, first_of("snooze.key").str, "given up") == EB_OK);
        die();
    }
    return EB_OK;
}

/* ---- the files ---------------------------------------------------------------------------------- */

/* Random numbers that are the same each time: ids, tokens, the id key. */
static void seeded(unsigned seed)
{
    MUST(sqlite3_initialize() == SQLITE_OK);
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, (int)seed, (sqlite3 *)NULL);
}

static void fill_open(const char *path, const char *ns)
{
    eb_options o;
    memset(&o, 0, sizeof o);
    o.path = path;
    o.ns = ns;
    o.workers = EB_NONE;
    o.durability = EB_DURABLE_NORMAL;
    o.retry.max_retries = 2;
    o.retry.base_delay_ms = 60000;
    o.retry.max_delay_ms = 600000;
    o.node_id = "old-node";
    o.logger.func = quiet;
    o.clock.now_ms = o.clock.mono_ms = clock_now;
    o.clock.sleep_ms = clock_sleep;
    MUST(eb_open(&bus, &o) == EB_OK);
    store = eb_bus_store(bus);
}

static void fill_start(void)
{
    static const char *const pattern[] = {"ok.*", "fail.*", "reject.*", "snooze.*", "die.*"};
    size_t i;
    for (i = 0; i < sizeof pattern / sizeof *pattern; i++)
        MUST(eb_subscribe(bus, pattern[i], act, NULL, NULL, NULL) == EB_OK);
    MUST(eb_start(bus) == EB_OK);
}

/* One event; n is what its payload says. */
static void put(const char *type, int n, const char *key, const char *idempotency, int64_t delay_ms)
{
    eb_message m;
    char payload[40];
    memset(&m, 0, sizeof m);
    snprintf(payload, sizeof payload, "{\"n\":%d}", n);
    m.type = type;
    m.payload = payload;
    m.metadata = n % 5 == 1 ? "{\"made\":\"by 0.1.0\"}" : NULL;
    m.ordering_key = key;
    m.idempotency_key = idempotency;
    m.delay_ms = delay_ms;
    MUST(eb_send(bus, &m, 1, NULL) == EB_OK);
}

/* The time in the file is now so many seconds; runs what is due. */
static void at(int seconds)
{
    now_ms = OLD_BEGIN_MS + (int64_t)seconds * 1000;
    MUST(eb_pump(bus, EB_NONE, NULL) == EB_OK);
}

/* Everything but what is `processing` at the end; see the list above. */
static void fill_lives(void)
{
    int64_t count = 0;
    put("wait.plain", 1, NULL, NULL, 0); /* nobody matches them, and eb_start leaves them alone */
    put("wait.later", 2, NULL, NULL, 3600000);
    put("wait.key", 3, "w", NULL, 0);
    put("wait.key", 4, "w", NULL, 1800000);
    put("wait.key", 5, "w", NULL, 0);
    put("wait.moved", 6, NULL, "moved-1", 0);
    fill_start();
    put("ok.first", 7, "k", "once-1", 0);
    put("reject.gone", 8, NULL, NULL, 0);
    at(0);
    MUST(eb_dlq_purge(store, 0, &count) == EB_OK && count == 1);
    put("fail.done", 9, NULL, NULL, 0);
    put("fail.dead", 10, "d", "dead-1", 0);
    put("ok.behind", 11, "d", NULL, 0);
    put("reject.dead", 12, NULL, NULL, 0);
    at(0);
    at(60);
    at(180);
    MUST(eb_dlq_move(store, first_of("wait.moved").str, "nobody wants it") == EB_OK);
    put("fail.twice", 13, NULL, NULL, 0);
    at(180);
    put("fail.once", 14, NULL, NULL, 0);
    put("snooze.hour", 15, NULL, NULL, 0);
    put("fail.key", 16, "r", NULL, 0);
    put("ok.key", 17, "r", NULL, 0);
    put("ok.key", 18, "r", NULL, 0);
    put("reject.retried", 19, NULL, NULL, 0);
    put("snooze.key", 20, "q", NULL, 0);
    put("ok.key", 21, "q", NULL, 0);
    at(OLD_KILLED_MS / 1000);
}

/* Quick handlers one after the other: then claims are made in batches. */
static void fill_batch(void)
{
    static const char *const type[] = {"die.batch", "ok.batch", "ok.batch", "ok.batch"};
    char payload[4][20];
    eb_message m[8];
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < 8; i++) {
        m[i].type = "ok.warm";
        m[i].payload = "{\"n\":30}";
    }
    MUST(eb_send(bus, m, 8, NULL) == EB_OK);
    at(OLD_KILLED_MS / 1000);
    for (i = 0; i < 4; i++) {
        snprintf(payload[i], sizeof payload[i], "{\"n\":%d}", 41 + i);
        m[i].type = type[i];
        m[i].payload = payload[i];
    }
    MUST(eb_send(bus, m, 4, NULL) == EB_OK);
    at(OLD_KILLED_MS / 1000);
}

static void fill_second(const char *path)
{
    static const char application[] = "CREATE TABLE orders(id INTEGER PRIMARY KEY, what TEXT);"
                                      "CREATE INDEX orders_what ON orders(what);"
                                      "INSERT INTO orders VALUES(1, 'milk'), (2, 'bread')";
    sqlite3 *db = NULL;
    MUST(sqlite3_open(path, &db) == SQLITE_OK);
    MUST(sqlite3_exec(db, application, NULL, NULL, NULL) == SQLITE_OK);
    MUST(sqlite3_close(db) == SQLITE_OK);
    fill_open(path, "second");
    put("wait.plain", 1, NULL, NULL, 0);
    put("wait.later", 2, "w", NULL, 3600000);
    fill_start();
    put("ok.first", 7, "k", "once-1", 0);
    put("reject.dead", 12, NULL, NULL, 0);
    at(0);
    eb_destroy(bus);
    bus = NULL;
}

void old_fill(const char *what, const char *path)
{
    int spaces = strcmp(what, "spaces") == 0;
    filling = 1;
    if (strcmp(what, "second") == 0) {
        seeded(3);
        fill_second(path);
        return;
    }
    seeded(spaces ? 2 : 1);
    fill_open(path, spaces ? "my-shop" : NULL);
    fill_lives();
    if (spaces) fill_batch();
    put("die.now", 40, NULL, NULL, 0);
    at(OLD_KILLED_MS / 1000);
    abort(); /* the handler should have ended it */
}

void old_seal(const char *path)
{
    sqlite3 *db = NULL;
    MUST(sqlite3_open(path, &db) == SQLITE_OK);
    MUST(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) == SQLITE_OK);
    MUST(sqlite3_close(db) == SQLITE_OK);
}

/* ---- one line, one answer ----------------------------------------------------------------------- */

static eb_result do_open(const char *path, const char *ns, const char *how)
{
    eb_options o;
    eb_result rc;
    memset(&o, 0, sizeof o);
    MUST(!bus && !store);
    o.path = path;
    o.ns = strcmp(ns, "-") ? ns : NULL;
    o.durability = EB_DURABLE_NORMAL;
    o.node_id = "old-process";
    o.logger.func = quiet;
    o.idle_poll_ms = 20;
    if (strcmp(how, "threads") != 0) {
        o.workers = EB_NONE;
        o.clock.now_ms = o.clock.mono_ms = clock_now;
        o.clock.sleep_ms = clock_sleep;
    }
    if (strcmp(how, "store") == 0) return eb_store_open(&store, &o);
    rc = eb_open(&bus, &o);
    store = bus ? eb_bus_store(bus) : NULL;
    return rc;
}

static eb_result do_start(void)
{
    eb_result rc = eb_subscribe(bus, "*", act, NULL, NULL, NULL);
    return rc == EB_OK ? eb_start(bus) : rc;
}

/* "-" is none. */
static const char *given(const char *word) { return strcmp(word, "-") ? word : NULL; }

static eb_result do_post(const char *type, const char *key, const char *idem, const char *delay)
{
    eb_message m;
    memset(&m, 0, sizeof m);
    m.type = type;
    m.payload = "{\"n\":0}";
    m.ordering_key = given(key);
    m.idempotency_key = given(idem);
    m.delay_ms = given(delay) ? strtol(delay, NULL, 10) : 0;
    return eb_send(bus, &m, 1, NULL);
}

static eb_result do_batch(int count, const char *type)
{
    eb_message m[64];
    int i;
    MUST(count > 0 && count <= 64);
    memset(m, 0, sizeof m);
    for (i = 0; i < count; i++) m[i].type = type;
    return eb_send(bus, m, (size_t)count, NULL);
}

static const char *const status_name[] = {"pending", "processing", "done", "dlq"};

static eb_result do_show(const char *type, char *answer, size_t cap)
{
    eb_event_list list;
    eb_result rc = eb_get(store, first_of(type).str, &list);
    if (rc == EB_OK)
        snprintf(answer, cap, "EB_OK %s %d %s", status_name[list.items[0].status],
                 list.items[0].retry_count,
                 list.items[0].last_error ? list.items[0].last_error : "-");
    eb_event_list_free(&list);
    return rc;
}

/* Three ways to look at the same. */
static eb_result do_count(char *answer, size_t cap)
{
    eb_event_list list;
    eb_query query;
    eb_stats s;
    int64_t all = 0, dead = -1;
    int n[4] = {0, 0, 0, 0};
    size_t i;
    eb_result rc;
    memset(&query, 0, sizeof query);
    query.limit = 1000;
    rc = eb_log_read(store, &query, &list);
    for (i = 0; rc == EB_OK && i < list.count; i++) n[list.items[i].status]++;
    if (rc == EB_OK) all = (int64_t)list.count;
    eb_event_list_free(&list);
    if (rc == EB_OK) rc = eb_dlq_list(store, NULL, &list);
    if (rc == EB_OK) dead = list.total;
    eb_event_list_free(&list);
    if (rc == EB_OK) rc = eb_stats_get(store, &s);
    if (rc == EB_OK)
        snprintf(answer, cap,
                 "EB_OK %d pending %d processing %d done %d dlq %d, dead %d, stats %d %d %d %d",
                 (int)all, n[EB_PENDING], n[EB_PROCESSING], n[EB_DONE], n[EB_DLQ], (int)dead,
                 (int)s.pending, (int)s.processing, (int)s.done, (int)s.dlq);
    return rc;
}

static void do_close(void)
{
    if (bus) eb_destroy(bus);
    else eb_store_close(store);
    bus = NULL;
    store = NULL;
}

void old_command(const char *line, char *answer, size_t cap)
{
    static char word[5][400];
    int64_t count = -1;
    int words, i;
    eb_result rc = EB_OK;
    for (i = 0; i < 5; i++) snprintf(word[i], sizeof word[i], "-");
    words = sscanf(line, "%399s %399s %399s %399s %399s", word[0], word[1], word[2], word[3],
                   word[4]);
    answer[0] = 0;
    MUST(words > 0);
    if (!strcmp(word[0], "open")) rc = do_open(word[1], word[2], word[3]);
    else if (!strcmp(word[0], "store")) rc = do_open(word[1], word[2], "store");
    else if (!strcmp(word[0], "close")) do_close();
    else if (!strcmp(word[0], "clock")) now_ms = OLD_BEGIN_MS + strtol(word[1], NULL, 10);
    else if (!strcmp(word[0], "start")) rc = do_start();
    else if (!strcmp(word[0], "drain")) rc = eb_drain(bus, 20000);
    else if (!strcmp(word[0], "stop")) rc = eb_shutdown(bus);
    else if (!strcmp(word[0], "post")) rc = do_post(word[1], word[2], word[3], word[4]);
    else if (!strcmp(word[0], "batch")) rc = do_batch((int)strtol(word[1], NULL, 10), word[2]);
    else if (!strcmp(word[0], "show")) rc = do_show(word[1], answer, cap);
    else if (!strcmp(word[0], "count")) rc = do_count(answer, cap);
    else if (!strcmp(word[0], "retry")) rc = eb_dlq_retry(store, first_of(word[1]).str, NULL);
    else if (!strcmp(word[0], "move")) rc = eb_dlq_move(store, first_of(word[1]).str, "old hands");
    else if (!strcmp(word[0], "retry_all")) rc = eb_dlq_retry_all(store, NULL, &count);
    else if (!strcmp(word[0], "purge")) rc = eb_dlq_purge(store, 0, &count);
    else if (!strcmp(word[0], "calls"))
        snprintf(answer, cap, "%d", __atomic_load_n(&calls, __ATOMIC_SEQ_CST));
    else snprintf(answer, cap, "no such command: %s", word[0]);
    if (count >= 0 && rc == EB_OK) snprintf(answer, cap, "EB_OK %d", (int)count);
    else if (!answer[0] || rc != EB_OK) snprintf(answer, cap, "%s", name_of(rc));
}

/* ---- a program of its own ----------------------------------------------------------------------- */

#ifdef OLD_MAIN

#ifndef _WIN32
/* In a process of its own, which ends as it should: with kill -9, but for "second". */
static void make_step(const char *what, const char *path)
{
    int status;
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        old_fill(what, path);
        _exit(0);
    }
    MUST(waitpid(pid, &status, 0) == pid);
    MUST(strcmp(what, "second") ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
}

static void make_clean(const char *path, int with_file)
{
    static const char *const tail[] = {"-second.owner",          "-my-shop.owner",  ".owner",
                                       "-my-shop.owner-journal", ".owner-journal",  "-wal",
                                       "-shm",                   ""};
    char victim[600];
    size_t i;
    for (i = 0; i < sizeof tail / sizeof *tail - (with_file ? 0 : 1); i++) {
        snprintf(victim, sizeof victim, "%s%s", path, tail[i]);
        remove(victim);
    }
}

static void make(const char *folder, const char *what)
{
    char path[500];
    snprintf(path, sizeof path, "%s/%s-0.1.0.sqlite3", folder, what);
    make_clean(path, 1);
    if (strcmp(what, "spaces") == 0) make_step("second", path);
    make_step(what, path);
    old_seal(path);
    make_clean(path, 0);
    printf("%s\n", path);
}
#endif

int main(int argc, char **argv)
{
    char line[1000], answer[OLD_ANSWER];
#ifndef _WIN32
    if (argc == 3 && strcmp(argv[1], "make") == 0) {
        make(argv[2], "plain");
        make(argv[2], "spaces");
        return 0;
    }
#endif
    if (argc != 3) {
        fputs("usage: old make FOLDER | old FILE NS <COMMANDS\n", stderr);
        return 2;
    }
    snprintf(line, sizeof line, "open %s %s idle", argv[1], argv[2]);
    do {
        old_command(line, answer, sizeof answer);
        printf("%s\n", answer);
    } while (fgets(line, sizeof line, stdin) && line[0] != '\n');
    if (bus || store) old_command("close", answer, sizeof answer);
    return 0;
}
#endif
