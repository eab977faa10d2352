/* test_results.c - every result that this version can give is given, by one small scenario each,
** with its text and a message that helps. A result without a scenario does not compile here. */
#include "sqlite3.h"
static int threadsafe = 1; /* what SQLite says of its build; see provoke_EB_ERR_THREADS */
#define sqlite3_threadsafe() threadsafe
#include "test.h"
#include "proc.h"
#include <limits.h>

/* A word that the message of the last scenario must have, so that it is of use to somebody. */
static char hint[500];

static void expect(const char *word) { snprintf(hint, sizeof hint, "%s", word); }

static eb_options options(const char *name)
{
    eb_options o = t_options(t_path(name));
    o.workers = EB_NONE;
    return o;
}

/* Ends a scenario. */
static eb_result end(eb_bus *bus, eb_result rc)
{
    eb_destroy(bus);
    return rc;
}

/* ---- one scenario for each ------------------------------------------------------------------- */

static eb_result provoke_EB_OK(void)
{
    eb_options o = options("ok");
    eb_bus *bus = t_open(&o);
    return end(bus, eb_post(bus, "x", "1", NULL));
}

static eb_result provoke_EB_DUPLICATE(void)
{
    eb_options o = options("duplicate");
    eb_bus *bus = t_open(&o);
    eb_message m = t_message("x", NULL);
    m.idempotency_key = "k";
    T_DO(eb_send(bus, &m, 1, NULL));
    return end(bus, eb_send(bus, &m, 1, NULL));
}

static eb_result rejects(eb_delivery *d, void *user)
{
    eb_result rc = eb_reject(d, "no");
    if (user) *(eb_result *)user = rc;
    return rc;
}

static eb_result provoke_EB_DEAD(void)
{
    eb_options o = options("dead");
    eb_bus *bus = t_run_with(&o, "*", rejects, NULL);
    return end(bus, eb_publish(bus, "x", NULL, NULL));
}

/* Nothing can give it before there is eb_poll, in a later version: only its text is checked. Let
** this be a real scenario then. */
static eb_result provoke_EB_EMPTY(void) { return EB_EMPTY; }

static eb_result provoke_EB_FAILED(void)
{
    eb_options o = options("failed");
    eb_result rc = EB_OK;
    eb_bus *bus = t_run_with(&o, "*", rejects, &rc);
    T_MUST(eb_publish(bus, "x", NULL, NULL) == EB_DEAD);
    return end(bus, rc);
}

static eb_result provoke_EB_ERR_ARG(void)
{
    eb_options o = options("arg");
    eb_bus *bus = t_open(&o);
    expect("type");
    return end(bus, eb_post(bus, "not a type", NULL, NULL));
}

static eb_result provoke_EB_ERR_PAYLOAD(void)
{
    eb_options o = options("payload");
    eb_bus *bus = t_open(&o);
    expect("payload");
    return end(bus, eb_post(bus, "x", "{", NULL));
}

static eb_result provoke_EB_ERR_TOO_BIG(void)
{
    eb_options o = options("big");
    eb_bus *bus;
    o.max_payload_bytes = 4;
    bus = t_open(&o);
    expect("max_payload_bytes");
    return end(bus, eb_post(bus, "x", "12345", NULL));
}

static eb_result provoke_EB_ERR_SHUTDOWN(void)
{
    eb_options o = options("shutdown");
    eb_bus *bus = t_open(&o);
    T_DO(eb_shutdown(bus));
    expect("shut");
    return end(bus, eb_post(bus, "x", NULL, NULL));
}

static eb_result provoke_EB_ERR_NOT_FOUND(void)
{
    static const char id[] = "12345678-1234-4234-8234-123456789abc";
    eb_options o = options("found");
    eb_bus *bus = t_open(&o);
    expect(id);
    return end(bus, eb_dlq_retry(eb_bus_store(bus), id, NULL));
}

static eb_result provoke_EB_ERR_STATE(void)
{
    eb_options o = options("state");
    eb_bus *bus = t_open(&o);
    T_DO(eb_start(bus));
    expect("started");
    return end(bus, eb_start(bus));
}

static t_time now;

static eb_result is_late(eb_delivery *d, void *user)
{
    t_advance(&now, 60000);
    *(eb_result *)user = eb_extend(d, 1000);
    return EB_OK;
}

static eb_result provoke_EB_ERR_STALE(void)
{
    eb_options o = options("stale");
    eb_bus *bus;
    eb_result rc = EB_OK;
    o.clock = t_clock(&now);
    o.handler_timeout_ms = 30000;
    o.retry.max_retries = EB_NONE;
    bus = t_run_with(&o, "*", is_late, &rc);
    T_MUST(eb_publish(bus, "x", NULL, NULL) == EB_DEAD);
    expect("timed out");
    return end(bus, rc);
}

static eb_result provoke_EB_ERR_TIMEOUT(void)
{
    eb_options o = options("timeout");
    eb_bus *bus = t_open(&o);
    eb_id id = t_post(bus, "x", NULL);
    expect(id.str);
    return end(bus, eb_wait(bus, id.str, 0)); /* nobody dispatches */
}

static eb_result provoke_EB_ERR_BUSY(void)
{
    eb_options o = options("busy");
    sqlite3 *db = NULL;
    eb_bus *bus;
    eb_result rc;
    o.busy_timeout_ms = EB_NONE;
    bus = t_open(&o);
    T_MUST(sqlite3_open(o.path, &db) == SQLITE_OK);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    rc = eb_post(bus, "x", NULL, NULL);
    expect("locked");
    sqlite3_close(db);
    return end(bus, rc);
}

static eb_result provoke_EB_ERR_OWNED(void)
{
    eb_options o = options("owned");
    eb_bus *bus = t_open(&o), *other = t_open(&o);
    eb_result rc;
    T_DO(eb_start(bus));
    rc = eb_start(other);
    expect(o.path);
    eb_destroy(other);
    return end(bus, rc);
}

static eb_result provoke_EB_ERR_FULL(void)
{
    eb_options o = options("full");
    eb_bus *bus;
    o.max_pending = 1;
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    expect("max_pending");
    return end(bus, eb_post(bus, "x", NULL, NULL));
}

/* A VFS that is the default one, but for the sync of a WAL file, which fails when told to. */
static int sync_fails;
static sqlite3_vfs bad_vfs;
static sqlite3_io_methods wal_methods;
static const sqlite3_io_methods *wal_original;

static int bad_sync(sqlite3_file *file, int flags)
{
    return sync_fails ? SQLITE_IOERR_FSYNC : wal_original->xSync(file, flags);
}

static int bad_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
                    int *out)
{
    sqlite3_vfs *real = (sqlite3_vfs *)vfs->pAppData;
    int rc = real->xOpen(real, name, file, flags, out);
    if (rc == SQLITE_OK && (flags & SQLITE_OPEN_WAL)) {
        wal_original = file->pMethods;
        wal_methods = *wal_original;
        wal_methods.xSync = bad_sync;
        file->pMethods = &wal_methods;
    }
    return rc;
}

static eb_result provoke_EB_ERR_UNKNOWN(void)
{
    eb_options o = options("unknown");
    eb_bus *bus;
    eb_result rc;
    bad_vfs = *sqlite3_vfs_find(NULL);
    bad_vfs.pAppData = sqlite3_vfs_find(NULL);
    bad_vfs.pNext = NULL;
    bad_vfs.zName = "bad-sync";
    bad_vfs.xOpen = bad_open;
    T_MUST(sqlite3_vfs_register(&bad_vfs, 0) == SQLITE_OK);
    o.vfs = "bad-sync";
    o.durability = EB_DURABLE_FULL;
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    sync_fails = 1;
    rc = eb_post(bus, "x", NULL, NULL);
    sync_fails = 0;
    expect("COMMIT");
    rc = end(bus, rc);
    sqlite3_vfs_unregister(&bad_vfs);
    return rc;
}

static eb_result provoke_EB_ERR_IO(void)
{
    char below[440];
    eb_options o = options("io");
    FILE *file = fopen(o.path, "wb");
    eb_bus *bus = NULL;
    eb_result rc;
    T_MUST(file && fclose(file) == 0);
    snprintf(below, sizeof below, "%s/file.db", o.path); /* a file is no folder */
    o.path = below;
    rc = eb_open(&bus, &o);
    T_MUST(bus == NULL);
    expect(below);
    return rc;
}

static eb_result provoke_EB_ERR_CORRUPT(void)
{
    eb_options o = options("corrupt");
    eb_bus *bus = t_open(&o);
    eb_result rc;
    FILE *file;
    int i;
    eb_destroy(bus);
    file = fopen(o.path, "r+b");
    T_MUST(file && fseek(file, 100, SEEK_SET) == 0);
    for (i = 0; i < 3000; i++) T_MUST(fputc(0xFF, file) == 0xFF); /* after the file's head */
    T_MUST(fclose(file) == 0);
    rc = eb_open(&bus, &o);
    T_MUST(bus == NULL);
    expect("malformed");
    return rc;
}

static eb_result provoke_EB_ERR_SCHEMA(void)
{
    eb_options o = options("schema");
    eb_bus *bus = t_open(&o);
    eb_result rc;
    eb_destroy(bus);
    T_MUST(t_sql(o.path, "UPDATE meta SET value = 99 WHERE key = 'schema_version'", NULL, 0) ==
           SQLITE_OK);
    rc = eb_open(&bus, &o);
    T_MUST(bus == NULL);
    expect("99");
    return rc;
}

static void *no_memory(void *ptr, size_t size, void *user)
{
    (void)user;
    if (size == 0) free(ptr);
    return NULL;
}

static eb_result provoke_EB_ERR_NOMEM(void)
{
    eb_options o = options("nomem");
    eb_bus *bus = NULL;
    o.allocator.resize = no_memory;
    expect("memory");
    return eb_open(&bus, &o);
}

/* In the child; its message comes back through a pipe. */
static char from_child[600];

#ifdef _WIN32
/* There is no fork: nothing can give it, only its text is checked. */
static eb_result provoke_EB_ERR_FORK(void)
{
    t_copy(from_child, sizeof from_child, "no fork");
    expect("no fork");
    return EB_ERR_FORK;
}
#else
static eb_result provoke_EB_ERR_FORK(void)
{
    eb_options o = options("fork");
    eb_bus *bus = t_open(&o);
    int ends[2], status = 0;
    ssize_t got;
    pid_t pid;
    T_MUST(pipe(ends) == 0);
    pid = fork();
    T_MUST(pid >= 0);
    if (pid == 0) {
        char msg[500];
        eb_result rc = eb_post(bus, "x", NULL, NULL);
        size_t n = eb_errmsg(msg, sizeof msg);
        if (write(ends[1], msg, n) != (ssize_t)n) rc = EB_OK;
        _exit(-(int)rc); /* no result is below -99 */
    }
    close(ends[1]);
    got = read(ends[0], from_child, sizeof from_child - 1);
    T_MUST(got >= 0);
    from_child[got] = 0;
    close(ends[0]);
    T_MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    snprintf(hint, sizeof hint, "%ld", (long)getpid()); /* whose bus it is */
    return end(bus, (eb_result)-WEXITSTATUS(status));
}
#endif

/* tests/nothreads builds SQLite without threads; here it only says so. */
static eb_result provoke_EB_ERR_THREADS(void)
{
    eb_options o = options("threads");
    eb_bus *bus = NULL;
    eb_result rc;
    o.workers = 1;
    threadsafe = 0;
    rc = eb_open(&bus, &o);
    threadsafe = 1;
    T_MUST(bus == NULL);
    expect("EB_NONE");
    return rc;
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct row {
    const char *name;
    int value;
    const char *text;
    eb_result (*provoke)(void);
} row;

#define ROW(name, value, text) {#name, value, text, provoke_##name},
static const row table[] = {EB_RESULT_LIST(ROW)};
#undef ROW
enum { ROWS = sizeof table / sizeof *table };

TEST result_is_given(const row *r)
{
    char msg[600];
    hint[0] = from_child[0] = 0;
    T_IS((eb_result)r->value, r->provoke());
    eb_errmsg(msg, sizeof msg);
    if (from_child[0]) t_copy(msg, sizeof msg, from_child);
    if (r->value >= 0) PASS();
    ASSERTm("each failure has a hint", hint[0] != 0);
    if (!strstr(msg, hint)) {
        fprintf(stderr, "\n%s: no '%s' in '%s'\n", r->name, hint, msg);
        FAILm(r->name);
    }
    PASS();
}

TEST every_result_has_its_own_value_and_text(void)
{
    int i, k;
    for (i = 0; i < ROWS; i++) {
        int failed = strncmp(table[i].name, "EB_ERR_", 7) == 0;
        ASSERT_STR_EQ(table[i].text, eb_strerror((eb_result)table[i].value));
        ASSERT(strlen(table[i].text) > 1);
        T_EQ(failed, table[i].value < 0); /* >= 0: the call did what it says */
        ASSERT(table[i].value > -99);
        for (k = 0; k < i; k++) {
            ASSERT(table[i].value != table[k].value);
            ASSERT(strcmp(table[i].text, table[k].text) != 0);
        }
    }
    T_EQ(0, EB_OK);
    PASS();
}

TEST strerror_is_never_null(void)
{
    const char *none = eb_strerror((eb_result)12345);
    int i, k, known;
    ASSERT(none && none[0]);
    for (i = -300; i <= 300; i++) {
        const char *text = eb_strerror((eb_result)i);
        ASSERT(text != NULL);
        for (k = known = 0; k < ROWS; k++) known |= table[k].value == i;
        T_EQ(known, strcmp(text, none) != 0);
    }
    ASSERT_STR_EQ(none, eb_strerror((eb_result)INT_MIN));
    ASSERT_STR_EQ(none, eb_strerror((eb_result)INT_MAX));
    PASS();
}

/* ---- the message ----------------------------------------------------------------------------- */

#ifndef EB_NO_THREADS
static struct {
    size_t before, after;
    char text[300];
} other_thread;

static void *fails_elsewhere(void *arg)
{
    char buf[300] = "old";
    other_thread.before = eb_errmsg(buf, sizeof buf); /* no call failed on this thread yet */
    if (buf[0]) other_thread.before = 999;
    T_MUST(eb_post((eb_bus *)arg, "x", "{", NULL) == EB_ERR_PAYLOAD);
    other_thread.after = eb_errmsg(other_thread.text, sizeof other_thread.text);
    return NULL;
}

TEST message_is_the_threads_own(void)
{
    eb_options o = options("per-thread");
    eb_bus *bus = t_open(&o);
    char mine[300], again[300];
    T_IS(EB_ERR_ARG, eb_post(bus, "", NULL, NULL));
    eb_errmsg(mine, sizeof mine);
    p_join(p_go(fails_elsewhere, bus));
    T_EQ(0, other_thread.before);
    ASSERT(other_thread.after > 0 && strstr(other_thread.text, "payload"));
    eb_errmsg(again, sizeof again);
    ASSERT_STR_EQ(mine, again);
    eb_destroy(bus);
    PASS();
}

/* One thread commits for others that wait: who of them is refused hears why, and nobody else. */
typedef struct poster {
    eb_bus *bus;
    eb_result rc;
    size_t len;
    char text[300];
} poster;

static void *posts(void *arg)
{
    poster *p = (poster *)arg;
    p->rc = eb_post(p->bus, "x", NULL, NULL);
    p->len = eb_errmsg(p->text, sizeof p->text);
    return NULL;
}

/* How many wait for a commit, and whether somebody is at it. */
static int queued(eb_bus *bus)
{
    const ebi_req *r;
    int n;
    ebi_store_lock(&bus->store);
    n = bus->store.queue.leading;
    for (r = bus->store.queue.head; r; r = r->next) n++;
    ebi_store_unlock(&bus->store);
    return n;
}

TEST message_reaches_the_thread_that_waited(void)
{
    eb_options o = options("for-others");
    poster p[3];
    pthread_t thread[3];
    sqlite3 *db = NULL;
    eb_bus *bus;
    int i;
    memset(p, 0, sizeof p);
    o.max_pending = 2;
    o.busy_timeout_ms = P_LONG_MS;
    bus = t_open(&o);
    T_MUST(sqlite3_open(o.path, &db) == SQLITE_OK);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    for (i = 0; i < 3; i++) { /* the first is held up, the second will commit for the third */
        p[i].bus = bus;
        thread[i] = p_go(posts, &p[i]);
        P_EVENTUALLY(queued(bus) == i + 1);
    }
    sqlite3_close(db);
    for (i = 0; i < 3; i++) p_join(thread[i]);
    T_EQ(EB_OK, p[0].rc);
    T_EQ(EB_OK, p[1].rc);
    T_EQ(EB_ERR_FULL, p[2].rc);
    T_EQ(0, p[0].len); /* no call of theirs failed */
    T_EQ(0, p[1].len);
    ASSERT(strstr(p[2].text, "max_pending"));
    T_EQ(2, t_stored(o.path));
    eb_destroy(bus);
    PASS();
}
#endif

TEST success_leaves_the_message_alone(void)
{
    eb_options o = options("alone");
    eb_bus *bus = t_open(&o);
    char first[300], second[300];
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, "nobody"));
    eb_errmsg(first, sizeof first);
    ASSERT(strstr(first, "nobody"));
    t_post(bus, "x", NULL);
    eb_errmsg(second, sizeof second);
    ASSERT_STR_EQ(first, second);
    T_IS(EB_ERR_PAYLOAD, eb_post(bus, "x", "{", NULL)); /* the next failure replaces it, */
    eb_errmsg(second, sizeof second);
    ASSERT(strcmp(first, second) != 0);
    T_IS(EB_ERR_ARG, eb_start(NULL)); /* on whatever object */
    eb_errmsg(first, sizeof first);
    ASSERT(strcmp(first, second) != 0 && first[0]);
    eb_destroy(bus);
    PASS();
}

TEST message_is_cut_to_the_buffer(void)
{
    eb_options o = options("cut");
    eb_bus *bus = t_open(&o);
    char whole[600], part[600];
    size_t len, cap;
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, "nobody"));
    len = eb_errmsg(whole, sizeof whole);
    T_EQ(strlen(whole), len);
    T_EQ(len, eb_errmsg(NULL, 0));
    T_EQ(len, eb_errmsg(NULL, 100));
    for (cap = 0; cap <= len + 2; cap++) {
        memset(part, '#', sizeof part);
        T_EQ(len, eb_errmsg(part, cap)); /* what it would have been */
        if (cap > 0) {
            size_t n = cap - 1 < len ? cap - 1 : len;
            T_EQ(n, strlen(part));
            ASSERT(memcmp(part, whole, n) == 0);
        }
        ASSERT(part[cap] == '#');
    }
    eb_destroy(bus);
    PASS();
}

/* Text is UTF-8, here as everywhere, wherever it has to be cut. */
TEST message_stays_utf8(void)
{
    eb_options o = options("utf8");
    eb_bus *bus = t_open(&o);
    char id[1200], whole[600], part[600];
    size_t i, len, shift, cap;
    for (shift = 0; shift < 3; shift++) {
        memset(id, 'a', sizeof id);
        for (i = shift; i + 3 < sizeof id; i += 3) memcpy(id + i, "\xE6\x97\xA5", 3);
        id[shift + 900] = 0;
        T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, id));
        len = eb_errmsg(whole, sizeof whole);
        ASSERT(len > 0 && t_utf8_ok(whole, strlen(whole)));
        T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(eb_bus_store(bus), id, NULL));
        len = eb_errmsg(whole, sizeof whole);
        ASSERT(len > 0 && t_utf8_ok(whole, strlen(whole)));
        for (cap = 1; cap < 60; cap++) {
            eb_errmsg(part, cap);
            ASSERT(t_utf8_ok(part, strlen(part)));
            ASSERT(strncmp(part, whole, strlen(part)) == 0);
        }
    }
    eb_destroy(bus);
    PASS();
}

SUITE(results)
{
    int i;
    for (i = 0; i < ROWS; i++) {
        greatest_set_test_suffix(table[i].name);
        RUN_TESTp(result_is_given, &table[i]);
    }
    RUN_TEST(every_result_has_its_own_value_and_text);
    RUN_TEST(strerror_is_never_null);
}

SUITE(messages)
{
#ifndef EB_NO_THREADS
    RUN_TEST(message_is_the_threads_own);
    RUN_TEST(message_reaches_the_thread_that_waited);
#endif
    RUN_TEST(success_leaves_the_message_alone);
    RUN_TEST(message_is_cut_to_the_buffer);
    RUN_TEST(message_stays_utf8);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    t_pump_mode = 1;
    RUN_SUITE(results);
    RUN_SUITE(messages);
    GREATEST_MAIN_END();
}
