/* test_environment.c - what the world around the bus does: full disks, locked files, readers that
** stay, restored and read-only files, odd paths, odd hosts. Every call ends within its own limit,
** leaves nothing behind that harms the next one, and the log says what is the matter.
**
** Decided here, where the contract is silent:
**   - A FIFO or a device in place of the file, or of its side file, is EB_ERR_IO; so is a file that a
**     bus cannot write to. An eb_store reads that one, and leaves nothing beside it that keeps a bus
**     from opening it later.
**   - eb_wait and eb_drain need no lock to say EB_ERR_TIMEOUT; eb_pump waits for a foreign lock at
**     most busy_timeout_ms in all.
**   - A schema version that is no integer is refused.
**   - Entries are known by a word: "locked" or "lock", "WAL", "thread", "full", the file's name.
*/
#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#else
#include <sys/types.h>
#include <unistd.h>
#endif
#include <pthread.h>
#include <stdlib.h>
#include "sqlite3.h"

static int no_threads; /* 1: no thread can be made */
static int threads_refused;
static int refuses(void)
{
    int now = __atomic_load_n(&no_threads, __ATOMIC_SEQ_CST);
    if (now) __atomic_add_fetch(&threads_refused, 1, __ATOMIC_SEQ_CST);
    return now;
}
#ifdef _WIN32
#define CreateThread(a, b, c, d, e, f) (refuses() ? NULL : CreateThread(a, b, c, d, e, f))
#else
#define pthread_create(a, b, c, d) (refuses() ? 11 : pthread_create(a, b, c, d))
#endif

/* 1: this SQLite is as if it had been compiled with SQLITE_DEFAULT_LOCKING_MODE=1. */
static int host_is_exclusive;
static int host_open(const char *path, sqlite3 **db, int flags, const char *vfs)
{
    int rc = sqlite3_open_v2(path, db, flags, vfs);
    if (rc == SQLITE_OK && host_is_exclusive)
        sqlite3_exec(*db, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL);
    return rc;
}
#define sqlite3_open_v2(path, db, flags, vfs) host_open(path, db, flags, vfs)

#include "proc.h"
#include "fault/vfs.h"
#ifndef _WIN32
#include <sys/time.h>
#endif

enum { PATIENCE_S = 6 };

/* ---- helpers --------------------------------------------------------------------------------- */

static int exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static int exists_with(const char *path, const char *tail)
{
    char name[480];
    snprintf(name, sizeof name, "%s%s", path, tail);
    return exists(name);
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static sqlite3 *lock_file(const char *path)
{
    sqlite3 *db = NULL;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    return db;
}

static void unlock_file(sqlite3 *db)
{
    T_MUST(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

/* How many entries of this level (0: any) have this word; the last one's text in *last. */
static int said_of(t_log *log, int level, const char *word, char *last, size_t cap)
{
    char text[1500];
    int i, n = 0;
    sqlite3_mutex_enter(log->mutex);
    for (i = 0; i < log->count && i < 256; i++) {
        snprintf(text, sizeof text, "%s: %s", log->items[i].message, log->items[i].error);
        if ((level && log->items[i].level != level) || !strstr(text, word)) continue;
        n++;
        if (last) t_copy(last, cap, text);
    }
    sqlite3_mutex_leave(log->mutex);
    return n;
}
static int said(t_log *log, int level, const char *word)
{
    return said_of(log, level, word, NULL, 0);
}

/* The largest number in a text. */
static double number_in(const char *text)
{
    double most = 0, value;
    char *end;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') continue;
        value = strtod(text, &end);
        if (value > most) most = value;
        text = end - 1;
    }
    return most;
}

static p_gate gate;

static eb_options quick_options(const char *path, int pump)
{
    eb_options o = t_options(path);
    o.workers = pump ? EB_NONE : 2;
    o.idle_poll_ms = 10;
    o.shutdown_timeout_ms = 3000;
    return o;
}

/* ---- the children ---------------------------------------------------------------------------- */

/* crash path: three events, one of them dead, and a sudden end: all of it is in the WAL. */
static int child_crash(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus;
    alarm(PATIENCE_S);
    o.workers = EB_NONE;
    bus = t_run_with(&o, "bad", t_rejects, NULL);
    T_MUST(eb_publish(bus, "bad", NULL, NULL) == EB_DEAD);
    t_post(bus, "x", NULL);
    t_post(bus, "x", NULL);
    p_report("dying");
    p_die();
    return 0;
}

/* open path: as a bus, then as a store. */
static int child_open(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    alarm(PATIENCE_S);
    o.busy_timeout_ms = 300;
    p_report("bus %d", (int)eb_open(&bus, &o));
    eb_destroy(bus);
    p_report("store %d", (int)eb_store_open(&store, &o));
    eb_store_close(store);
    return 0;
}

/* start path: the file is good, something else may not be. */
static int child_start(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus;
    alarm(PATIENCE_S);
    o.busy_timeout_ms = 300;
    bus = t_open(&o);
    p_report("start %d", (int)eb_start(bus));
    eb_destroy(bus);
    return 0;
}

#ifndef _WIN32
enum { NOBODY = 65534 };

/* Root may write everything: become somebody else. */
static void become_nobody(void)
{
    if (getuid() != 0) return;
    T_MUST(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static void report_files(const char *path)
{
    p_report("wal %d shm %d owner %d", exists_with(path, "-wal"), exists_with(path, "-shm"),
             exists_with(path, ".owner"));
}

/* readonly path: the file belongs to us, but we may only read it; then we may write. */
static int child_readonly(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_event_list list;
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    eb_result rc;
    alarm(PATIENCE_S);
    become_nobody();
    T_MUST(chmod(arg[0], 0400) == 0);
    if (strcmp(arg[1], "store") != 0) {
        p_report("bus %d", (int)eb_open(&bus, &o));
        report_files(arg[0]);
        eb_destroy(bus);
    } else {
        rc = eb_store_open(&store, &o);
        memset(&list, 0, sizeof list);
        p_report("store %d log %d", (int)rc, rc == EB_OK ? (int)eb_log_read(store, NULL, &list) : 0);
        p_report("events %d", (int)list.count);
        eb_event_list_free(&list);
        eb_store_close(store);
    }
    T_MUST(chmod(arg[0], 0600) == 0);
    bus = NULL;
    p_report("bus %d", (int)eb_open(&bus, &o));
    p_report("post %d", bus ? (int)eb_post(bus, "x", NULL, NULL) : -99);
    eb_destroy(bus);
    return 0;
}

/* device path: as anybody, who may not make files beside it. */
static int child_device(char **arg)
{
    become_nobody();
    return child_open(arg);
}

static void on_alarm(int sig) { (void)sig; }

/* timer path busy_ms: a timer interrupts every system call of this process, each millisecond. */
static int child_timer(char **arg)
{
    eb_options o = t_options(arg[0]);
    struct itimerval every;
    struct sigaction action;
    int64_t begin;
    eb_result rc;
    eb_bus *bus;
    o.workers = EB_NONE;
    o.busy_timeout_ms = atoi(arg[1]);
    bus = t_open(&o);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    T_MUST(sigaction(SIGALRM, &action, NULL) == 0);
    memset(&every, 0, sizeof every);
    every.it_value.tv_usec = every.it_interval.tv_usec = 1000;
    T_MUST(setitimer(ITIMER_REAL, &every, NULL) == 0);
    begin = p_ms();
    rc = eb_post(bus, "x", NULL, NULL);
    begin = p_ms() - begin;
    memset(&every, 0, sizeof every);
    setitimer(ITIMER_REAL, &every, NULL);
    p_report("%d %d", (int)rc, (int)begin);
    eb_destroy(bus);
    return 0;
}

/* Every file of the folder: its name and its mode, if others may touch it. */
static void report_folder(void)
{
    DIR *dir = opendir(".");
    struct dirent *entry;
    struct stat st;
    int open_ones = 0, colons = 0, all = 0;
    T_MUST(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || lstat(entry->d_name, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        all++;
        colons += strchr(entry->d_name, ':') != NULL;
        open_ones += (st.st_mode & 0077) != 0;
    }
    closedir(dir);
    p_report("%d open to others, %d with a colon, any: %d", open_ones, colons, all > 0);
}

/* uri folder path: with URI file names on, in that folder. The bus is used, then seen. */
static int child_uri(char **arg)
{
    eb_options o;
    eb_store *store = NULL;
    eb_bus *bus = NULL;
    alarm(PATIENCE_S);
    T_MUST(sqlite3_config(SQLITE_CONFIG_URI, strcmp(arg[2], "uri") == 0) == SQLITE_OK);
    T_MUST(chdir(arg[0]) == 0);
    umask(0);
    o = t_options(arg[1]);
    p_report("bus %d", (int)eb_open(&bus, &o));
    if (bus) T_MUST(eb_start(bus) == EB_OK && eb_publish(bus, "x", NULL, NULL) == EB_OK);
    report_folder();
    eb_destroy(bus);
    p_report("store %d", (int)eb_store_open(&store, &o));
    eb_store_close(store);
    return 0;
}
#endif

static int child_main(const char *role, char **arg)
{
    p_child_init();
    if (strcmp(role, "crash") == 0) return child_crash(arg);
    if (strcmp(role, "open") == 0) return child_open(arg);
    if (strcmp(role, "start") == 0) return child_start(arg);
#ifndef _WIN32
    if (strcmp(role, "readonly") == 0) return child_readonly(arg);
    if (strcmp(role, "device") == 0) return child_device(arg);
    if (strcmp(role, "timer") == 0) return child_timer(arg);
    if (strcmp(role, "uri") == 0) return child_uri(arg);
#endif
    return 8;
}

/* ---- side files ------------------------------------------------------------------------------ */

/* `app.db` with namespace x, and a database `app.db-x`: two files, two owners. */
TEST namespace_and_a_file_of_that_name_do_not_collide(int pump, int file_first)
{
    char other[440];
    const char *path = t_path("app");
    t_seen seen[2];
    eb_options o = quick_options(path, pump);
    eb_bus *bus[2];
    int i;
    snprintf(other, sizeof other, "%s-x", path);
    memset(seen, 0, sizeof seen);
    for (i = 0; i < 2; i++) {
        int file = i ^ file_first;
        o.path = file ? other : path;
        o.ns = file ? NULL : "x";
        bus[i] = t_open(&o);
        t_subscribe(bus[i], "*", t_watch, &seen[i]);
        T_OK(eb_start(bus[i]));
    }
    for (i = 0; i < 2; i++) T_OK(eb_publish(bus[i], "x", NULL, NULL));
    for (i = 0; i < 2; i++) T_EQ(1, p_get(&seen[i].calls));
    for (i = 0; i < 2; i++) eb_destroy(bus[i]);
    PASS();
}

TEST side_file_is_named_owner_at_namespace(void)
{
    const char *path = t_path("named");
    eb_options o = quick_options(path, 1);
    eb_bus *plain = t_open(&o), *spaced;
    o.ns = "Shop-1";
    spaced = t_open(&o);
    ASSERT(!exists_with(path, ".owner@shop-1"));
    T_OK(eb_start(spaced));
    ASSERT(exists_with(path, ".owner@shop-1"));
    ASSERT(!exists_with(path, "-shop-1.owner")); /* as it was in version 0.1 */
    ASSERT(!exists_with(path, ".owner"));
    T_OK(eb_start(plain));
    ASSERT(exists_with(path, ".owner"));
    eb_destroy(plain);
    eb_destroy(spaced);
    PASS();
}

TEST namespace_is_owned_once_all_the_same(void)
{
    eb_options o = quick_options(t_path("once"), 1);
    eb_bus *first, *second;
    o.ns = "x";
    first = t_open(&o);
    second = t_open(&o);
    T_OK(eb_start(first));
    T_IS(EB_ERR_OWNED, eb_start(second));
    eb_destroy(first);
    T_OK(eb_start(second));
    eb_destroy(second);
    PASS();
}

/* Between eb_open and eb_start a newer program brought the file forward: dispatching it by old rules
** would do harm. Publishing does none. */
TEST start_reads_the_schema_version_again(int pump)
{
    const char *path = t_path("version");
    t_seen seen = {0};
    eb_options o = quick_options(path, pump);
    eb_bus *bus = t_open(&o), *other;
    char version[40], sql[200];
    t_sql_text(path, "SELECT value FROM meta WHERE key='schema_version'", version, sizeof version);
    t_subscribe(bus, "x", t_watch, &seen);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE meta SET value=1000000 WHERE key='schema_version'", NULL,
                          0));
    T_IS(EB_ERR_SCHEMA, eb_start(bus));
    t_post(bus, "x", NULL);
    T_IS(EB_ERR_STATE, eb_drain(bus, 0)); /* it is not started */
    p_nap(30);
    T_EQ(0, p_get(&seen.calls));
    T_ROWS(1, path, "status = 'pending'");
    snprintf(sql, sizeof sql, "UPDATE meta SET value=%s WHERE key='schema_version'", version);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    other = t_open(&o);
    T_OK(eb_start(other)); /* nobody owns it */
    eb_destroy(other);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(1, p_get(&seen.calls));
    PASS();
}

SUITE(side_files)
{
    SET_TEARDOWN(p_reap, NULL);
    greatest_set_test_suffix("pump_namespace_first");
    RUN_TESTp(namespace_and_a_file_of_that_name_do_not_collide, 1, 0);
    greatest_set_test_suffix("pump_file_first");
    RUN_TESTp(namespace_and_a_file_of_that_name_do_not_collide, 1, 1);
    greatest_set_test_suffix("threads_namespace_first");
    RUN_TESTp(namespace_and_a_file_of_that_name_do_not_collide, 0, 0);
    RUN_TEST(side_file_is_named_owner_at_namespace);
    RUN_TEST(namespace_is_owned_once_all_the_same);
    greatest_set_test_suffix("pump");
    RUN_TESTp(start_reads_the_schema_version_again, 1);
    greatest_set_test_suffix("threads");
    RUN_TESTp(start_reads_the_schema_version_again, 0);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

static t_log logged;

static void fill_disk(void) { vfs_arm("write", VFS_FULL, 1, 1); }

/* Reading needs no room, whatever was left in the WAL. */
TEST store_reads_on_a_full_disk(const char *where)
{
    const char *path = t_path("full-read");
    int living = strcmp(where, "living") == 0;
    eb_options o = quick_options(path, 1);
    eb_event_list list;
    eb_store *store = NULL;
    eb_stats stats;
    char id[40];
    eb_bus *bus = NULL;
    p_child *c = p_spawn("crash", path, NULL);
    P_HEAR(c, "dying");
    ASSERT(p_is_killed(p_end(c)));
    ASSERT(exists_with(path, "-wal"));
    vfs_install();
    o.vfs = "fault";
    if (living) {
        bus = t_open(&o);
        t_post(bus, "x", NULL);
    }
    fill_disk();
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(3 + living, list.count);
    t_copy(id, sizeof id, list.items[0].id.str);
    eb_event_list_free(&list);
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(1, list.count);
    eb_event_list_free(&list);
    T_OK(eb_get(store, id, &list));
    eb_event_list_free(&list);
    T_OK(eb_stats_get(store, &stats));
    T_EQ(1, stats.dlq);
    T_IS(EB_ERR_FULL, eb_dlq_retry(store, id, NULL));
    T_OK(eb_stats_get(store, &stats));
    eb_store_close(store);
    vfs_heal();
    eb_destroy(bus);
    bus = t_open(&o); /* and nothing was lost by it */
    eb_destroy(bus);
    T_EQ(3 + living, t_stored(path));
    T_ROWS(1, path, "status = 'dlq'");
    PASS();
}

/* A bus builds on what it finds: it does not open until that is safe, and says why. */
TEST bus_that_cannot_open_on_a_full_disk_says_why(void)
{
    const char *path = t_path("full-open");
    eb_options o = quick_options(path, 1);
    char msg[600];
    eb_bus *bus = NULL;
    p_child *c = p_spawn("crash", path, NULL);
    P_HEAR(c, "dying");
    ASSERT(p_is_killed(p_end(c)));
    vfs_install();
    o.vfs = "fault";
    o.logger = t_logger(&logged);
    fill_disk();
    T_IS(EB_ERR_FULL, eb_open(&bus, &o));
    eb_errmsg(msg, sizeof msg);
    vfs_heal();
    ASSERT(strstr(msg, "full") != NULL);
    ASSERT(said(&logged, EB_LOG_ERROR, "full") == 1);
    PASS();
}

/* Not only "claiming failed": the disk, and which file. */
TEST log_names_the_full_disk_when_claiming_fails(int pump)
{
    const char *path = t_path("full-claim");
    eb_options o = quick_options(path, pump);
    t_seen seen = {0};
    eb_message m = t_message("x", NULL);
    char text[1500] = "";
    int64_t end = p_ms() + 3000;
    eb_bus *bus;
    m.delay_ms = 30;
    vfs_install();
    o.vfs = "fault";
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "x", t_watch, &seen);
    T_OK(eb_send(bus, &m, 1, NULL));
    fill_disk();
    while (said(&logged, EB_LOG_ERROR, "") == 0 && p_ms() < end) {
        p_nap(5);
        if (pump) eb_pump(bus, 0, NULL);
    }
    vfs_heal();
    ASSERT(said(&logged, EB_LOG_ERROR, "") > 0);
    T_EQ(said(&logged, EB_LOG_ERROR, ""), said_of(&logged, 0, "full", text, sizeof text));
    if (!strstr(text, base_of(path))) FAILm("the entry names the file");
    T_OK(t_settle(bus));
    T_EQ(1, p_get(&seen.calls));
    eb_destroy(bus);
    PASS();
}

TEST log_names_the_full_disk_when_an_outcome_cannot_be_recorded(void)
{
    const char *path = t_path("full-ack");
    eb_options o = quick_options(path, 0);
    char text[1500] = "";
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    vfs_install();
    o.vfs = "fault";
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "x", p_wait_at, &gate);
    t_post(bus, "x", NULL);
    P_EVENTUALLY(p_get(&gate.entered));
    fill_disk();
    p_set(&gate.release, 1);
    P_EVENTUALLY(said(&logged, EB_LOG_ERROR, "") > 0);
    vfs_heal();
    T_OK(t_settle(bus));
    T_EQ(said(&logged, EB_LOG_ERROR, ""), said_of(&logged, 0, "full", text, sizeof text));
    ASSERTm("the entry names the file", strstr(text, base_of(path)) != NULL);
    eb_destroy(bus);
    T_EQ(1, p_get(&gate.calls));
    PASS();
}

/* The same when somebody else holds the lock. */
TEST log_names_the_lock_when_claiming_fails(void)
{
    const char *path = t_path("lock-claim");
    eb_options o = quick_options(path, 1);
    char text[1500] = "";
    t_time t;
    eb_message m = t_message("x", NULL);
    sqlite3 *app;
    eb_bus *bus;
    m.delay_ms = 30;
    o.busy_timeout_ms = EB_NONE;
    o.clock = t_clock(&t);
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "x", t_succeeds, NULL);
    T_OK(eb_send(bus, &m, 1, NULL));
    t_advance(&t, 30);
    app = lock_file(path);
    eb_pump(bus, 0, NULL);
    unlock_file(app);
    ASSERT(said_of(&logged, 0, "locked", text, sizeof text) > 0);
    ASSERTm("the entry names the file", strstr(text, base_of(path)) != NULL);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    PASS();
}

SUITE(full_disk)
{
    SET_TEARDOWN(p_reap, NULL);
    greatest_set_test_suffix("after_a_crash");
    RUN_TESTp(store_reads_on_a_full_disk, "crash");
    greatest_set_test_suffix("beside_a_living_bus");
    RUN_TESTp(store_reads_on_a_full_disk, "living");
    RUN_TEST(bus_that_cannot_open_on_a_full_disk_says_why);
    greatest_set_test_suffix("pump");
    RUN_TESTp(log_names_the_full_disk_when_claiming_fails, 1);
    greatest_set_test_suffix("threads");
    RUN_TESTp(log_names_the_full_disk_when_claiming_fails, 0);
    RUN_TEST(log_names_the_full_disk_when_an_outcome_cannot_be_recorded);
    RUN_TEST(log_names_the_lock_when_claiming_fails);
    vfs_heal();
}

/* ---- a file that is restored under a living bus ---------------------------------------------- */

static void publish_times(eb_bus *bus, const char *type, int n)
{
    while (n-- > 0) T_DO(eb_publish(bus, type, NULL, NULL));
}

TEST what_is_posted_after_a_restore_is_dispatched(int pump, int64_t idle_poll_ms)
{
    char old[440];
    const char *path = t_path("restore");
    t_seen before = {0}, after = {0};
    eb_options o = quick_options(path, pump);
    eb_stats stats;
    eb_id id[20];
    eb_bus *bus;
    int i;
    t_copy(old, sizeof old, t_path("restore-old"));
    o.idle_poll_ms = idle_poll_ms;
    bus = t_open(&o);
    t_subscribe(bus, "before", t_watch, &before);
    t_subscribe(bus, "after", t_watch, &after);
    T_OK(eb_start(bus));
    publish_times(bus, "before", 5);
    p_restore(path, old);
    publish_times(bus, "before", 30);
    p_restore(old, path);
    T_EQ(5, t_stored(path));
    for (i = 0; i < 20; i++) T_OK(eb_post(bus, "after", NULL, &id[i]));
    T_OK(eb_drain(bus, 5000));
    T_EQ(20, p_get(&after.calls));
    T_EQ(35, p_get(&before.calls));
    for (i = 0; i < 20; i++) T_OK(eb_wait(bus, id[i].str, 0));
    stats = t_stats(bus);
    T_EQ(25, stats.done);
    T_EQ(0, stats.pending + stats.processing);
    T_OK(eb_publish(bus, "after", NULL, NULL)); /* and so on */
    eb_destroy(bus);
    T_ROWS(26, path, "status = 'done' AND retry_count = 0");
    T_EQ(26, t_sql_int(path, "SELECT max(seq) FROM event_log"));
    PASS();
}

/* What the old file had waiting is found without a post, within idle_poll_ms. */
TEST what_waits_in_the_restored_file_is_dispatched(int pump)
{
    char old[440];
    const char *path = t_path("restore-waits");
    t_seen seen = {0};
    eb_options o = quick_options(path, pump);
    eb_bus *bus;
    int64_t end;
    t_copy(old, sizeof old, t_path("restore-waits-old"));
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    t_post(bus, "x", NULL);
    p_restore(path, old);
    t_subscribe(bus, "x", t_watch, &seen);
    T_OK(eb_start(bus));
    publish_times(bus, "x", 10);
    T_OK(t_settle(bus));
    T_EQ(12, p_get(&seen.calls));
    p_restore(old, path);
    for (end = p_ms() + 4000; p_get(&seen.calls) < 14 && p_ms() < end; p_nap(5))
        if (pump) T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(14, p_get(&seen.calls));
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_ROWS(2, path, "status = 'done'");
    T_EQ(2, t_stored(path));
    PASS();
}

/* A backup of another file altogether: its ids are made with another key. */
TEST restored_file_has_ids_of_its_own(int pump)
{
    char old[440];
    const char *path = t_path("restore-key");
    eb_options o = quick_options(path, pump);
    eb_event_list list;
    eb_id theirs, ours, later;
    eb_bus *bus;
    t_copy(old, sizeof old, t_path("restore-key-old"));
    o.path = old;
    bus = t_open(&o);
    theirs = t_post(bus, "theirs", NULL);
    eb_destroy(bus);
    o.path = path;
    bus = t_run_with(&o, "*", t_succeeds, NULL);
    publish_times(bus, "ours", 3);
    T_OK(eb_publish(bus, "ours", NULL, &ours));
    p_restore(old, path);
    T_OK(eb_publish(bus, "later", NULL, &later)); /* waits for it, and finds it */
    T_OK(eb_wait(bus, later.str, 2000));
    T_OK(eb_get(eb_bus_store(bus), later.str, &list));
    ASSERT_STR_EQ("later", list.items[0].type);
    eb_event_list_free(&list);
    T_OK(eb_wait(bus, theirs.str, 2000));
    T_IS(EB_ERR_NOT_FOUND, eb_wait(bus, ours.str, 100));
    eb_destroy(bus);
    bus = t_open(&o); /* the id is good for the next process as well */
    T_STATUS(EB_DONE, bus, later);
    eb_destroy(bus);
    T_EQ(2, t_stored(path));
    PASS();
}

/* Copies in memory are of the file that was: their numbers belong to others now. */
TEST copies_of_before_the_restore_are_forgotten(void)
{
    char old[440];
    const char *path = t_path("restore-copies");
    t_seen gone = {0}, fresh = {0};
    eb_options o = quick_options(path, 1);
    eb_bus *bus;
    int i;
    t_copy(old, sizeof old, t_path("restore-copies-old"));
    bus = t_open(&o);
    t_subscribe(bus, "gone", t_watch, &gone);
    t_subscribe(bus, "fresh", t_watch, &fresh);
    T_OK(eb_start(bus));
    publish_times(bus, "fresh", 1);
    p_restore(path, old);
    for (i = 0; i < 3; i++) t_post(bus, "gone", NULL); /* not pumped yet */
    p_restore(old, path);
    for (i = 0; i < 3; i++) t_post(bus, "fresh", NULL); /* the same numbers */
    T_OK(eb_drain(bus, 5000));
    T_EQ(0, p_get(&gone.calls));
    T_EQ(4, p_get(&fresh.calls));
    eb_destroy(bus);
    T_ROWS(4, path, "status = 'done' AND type = 'fresh'");
    T_EQ(4, t_stored(path));
    PASS();
}

/* A handler that runs meanwhile belongs to an event that is not there any more. */
TEST outcome_of_before_the_restore_ends_nothing(void)
{
    char old[440];
    const char *path = t_path("restore-late");
    t_seen fresh = {0};
    eb_options o = quick_options(path, 0);
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    t_copy(old, sizeof old, t_path("restore-late-old"));
    bus = t_open(&o);
    t_subscribe(bus, "slow", p_wait_at, &gate);
    t_subscribe(bus, "fresh", t_watch, &fresh);
    T_OK(eb_start(bus));
    publish_times(bus, "fresh", 1);
    p_restore(path, old);
    t_post(bus, "slow", NULL);
    P_EVENTUALLY(p_get(&gate.entered));
    p_restore(old, path);
    T_OK(eb_publish(bus, "fresh", NULL, NULL)); /* has the number of the slow one; its own handler */
    T_EQ(2, p_get(&fresh.calls));
    p_set(&gate.release, 1);
    T_OK(eb_drain(bus, 5000));
    eb_destroy(bus);
    T_EQ(1, p_get(&gate.calls));
    T_ROWS(2, path, "status = 'done' AND type = 'fresh' AND retry_count = 0");
    T_EQ(2, t_stored(path));
    PASS();
}

/* Restored by mistake: refused while it lasts, and with the right file all goes on. */
TEST restored_file_that_is_not_ours_takes_no_events(int pump)
{
    char old[440], other[440];
    const char *path = t_path("restore-wrong");
    t_seen seen = {0};
    eb_options o = quick_options(path, pump);
    int64_t begin;
    eb_result rc;
    eb_bus *bus;
    t_copy(old, sizeof old, t_path("restore-wrong-old"));
    t_copy(other, sizeof other, t_path("restore-wrong-other"));
    T_MUST(t_sql(other, "CREATE TABLE customers(name)", NULL, 0) == SQLITE_OK);
    bus = t_run_with(&o, "*", t_watch, &seen);
    publish_times(bus, "x", 2);
    p_restore(path, old);
    p_restore(other, path);
    rc = eb_post(bus, "x", NULL, NULL);
    ASSERT(rc == EB_ERR_SCHEMA || rc == EB_ERR_CORRUPT);
    begin = p_ms();
    rc = eb_drain(bus, 200);
    ASSERT(rc == EB_ERR_SCHEMA || rc == EB_ERR_CORRUPT || rc == EB_ERR_TIMEOUT);
    P_WITHIN(0, 2000, p_ms() - begin);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM sqlite_schema")); /* nothing was made in it */
    p_restore(old, path);
    P_EVENTUALLY(eb_post(bus, "x", NULL, NULL) == EB_OK);
    T_OK(eb_drain(bus, 5000));
    T_EQ(3, p_get(&seen.calls));
    eb_destroy(bus);
    T_ROWS(3, path, "status = 'done'");
    PASS();
}

SUITE(restored)
{
    SET_TEARDOWN(p_reap, NULL);
    greatest_set_test_suffix("pump");
    RUN_TESTp(what_is_posted_after_a_restore_is_dispatched, 1, 10);
    greatest_set_test_suffix("threads");
    RUN_TESTp(what_is_posted_after_a_restore_is_dispatched, 0, 10);
    greatest_set_test_suffix("threads_that_never_look");
    RUN_TESTp(what_is_posted_after_a_restore_is_dispatched, 0, EB_NONE);
    greatest_set_test_suffix("pump");
    RUN_TESTp(what_waits_in_the_restored_file_is_dispatched, 1);
    greatest_set_test_suffix("threads");
    RUN_TESTp(what_waits_in_the_restored_file_is_dispatched, 0);
    greatest_set_test_suffix("pump");
    RUN_TESTp(restored_file_has_ids_of_its_own, 1);
    greatest_set_test_suffix("threads");
    RUN_TESTp(restored_file_has_ids_of_its_own, 0);
    RUN_TEST(copies_of_before_the_restore_are_forgotten);
    RUN_TEST(outcome_of_before_the_restore_ends_nothing);
    greatest_set_test_suffix("pump");
    RUN_TESTp(restored_file_that_is_not_ours_takes_no_events, 1);
    greatest_set_test_suffix("threads");
    RUN_TESTp(restored_file_that_is_not_ours_takes_no_events, 0);
}

/* ---- a lock that somebody else holds --------------------------------------------------------- */

/* How long a call may be late before it counts; and how often it may try to be in time: on a busy
** machine one call may be late, but a call that waits too long does so each time. */
enum { LATE_MS = 300, TRIES = 3, BUSY_MS = 600 };

enum { CALL_POST, CALL_SEND, CALL_PUBLISH, CALL_SUBSCRIBE, CALL_UNSUBSCRIBE, CALL_RETRY, CALLS };
static const char *const call_names[] = {"post",      "send",        "publish",
                                         "subscribe", "unsubscribe", "dlq_retry"};

typedef struct locked {
    eb_bus *bus;
    eb_id sub, dead;
    eb_result rc;
} locked;

static eb_result call_it(locked *l, int which)
{
    eb_message m[2];
    memset(m, 0, sizeof m);
    m[0].type = m[1].type = "x";
    switch (which) {
    case CALL_POST: return eb_post(l->bus, "x", NULL, NULL);
    case CALL_SEND: return eb_send(l->bus, m, 2, NULL);
    case CALL_PUBLISH: return eb_publish(l->bus, "x", NULL, NULL);
    case CALL_SUBSCRIBE: return eb_subscribe(l->bus, "y", t_succeeds, NULL, NULL, NULL);
    case CALL_UNSUBSCRIBE: return eb_unsubscribe(l->bus, l->sub.str);
    default: return eb_dlq_retry(eb_bus_store(l->bus), l->dead.str, NULL);
    }
}

static void *posts(void *arg)
{
    locked *l = (locked *)arg;
    l->rc = eb_post(l->bus, "x", NULL, NULL);
    return NULL;
}

/* One call waits for the lock; the next one begins a moment later, and has a limit of its own: it
** does not first wait for the other's to run out, and then for its own. */
TEST call_behind_one_that_waits_ends_by_its_own_limit(int which, int started)
{
    eb_options o = t_options(t_path("behind"));
    int64_t took = 0;
    pthread_t thread;
    sqlite3 *app;
    locked l;
    eb_result rc = EB_OK;
    int i;
    memset(&l, 0, sizeof l);
    o.busy_timeout_ms = BUSY_MS;
    o.workers = 1;
    o.shutdown_timeout_ms = 3000;
    l.bus = t_open(&o);
    t_subscribe(l.bus, "bad", t_rejects, NULL);
    T_OK(eb_start(l.bus));
    T_OK(eb_post(l.bus, "bad", NULL, &l.dead));
    T_IS(EB_DEAD, eb_wait(l.bus, l.dead.str, 5000));
    if (!started) {
        eb_destroy(l.bus);
        l.bus = t_open(&o);
    }
    for (i = 0; i < TRIES; i++) {
        T_OK(eb_subscribe(l.bus, "z", t_succeeds, NULL, NULL, &l.sub));
        app = lock_file(o.path);
        thread = p_go(posts, &l);
        p_nap(60);
        took = p_ms();
        rc = call_it(&l, which);
        took = p_ms() - took;
        p_join(thread);
        unlock_file(app);
        if (took <= BUSY_MS + LATE_MS) break;
    }
    T_EQ(EB_ERR_BUSY, l.rc);
    T_EQ(which == CALL_UNSUBSCRIBE ? EB_OK : EB_ERR_BUSY, rc);
    P_WITHIN(which == CALL_UNSUBSCRIBE ? 0 : BUSY_MS - 30, BUSY_MS + LATE_MS, took);
    eb_destroy(l.bus);
    PASS();
}

/* The dispatcher itself waits, with an outcome it cannot record. */
TEST post_beside_a_dispatcher_that_waits_ends_by_its_own_limit(void)
{
    eb_options o = t_options(t_path("beside"));
    int64_t took = 0;
    sqlite3 *app;
    eb_bus *bus;
    int i;
    o.busy_timeout_ms = BUSY_MS;
    o.workers = 2;
    bus = t_run_with(&o, "slow", p_wait_at, &gate);
    for (i = 0; i < TRIES; i++) {
        memset(&gate, 0, sizeof gate);
        t_post(bus, "slow", NULL);
        P_EVENTUALLY(p_get(&gate.entered));
        app = lock_file(o.path);
        p_set(&gate.release, 1);
        p_nap(60);
        took = p_ms();
        T_IS(EB_ERR_BUSY, eb_post(bus, "x", NULL, NULL));
        took = p_ms() - took;
        unlock_file(app);
        T_OK(t_settle(bus));
        if (took <= BUSY_MS + LATE_MS) break;
    }
    P_WITHIN(BUSY_MS - 30, BUSY_MS + LATE_MS, took);
    eb_destroy(bus);
    PASS();
}

/* A bus with work that needs the lock, and a lock. */
static sqlite3 *work_behind_a_lock(eb_bus **out, eb_options *o, int pump, eb_id *id)
{
    sqlite3 *app;
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    o->busy_timeout_ms = 3000;
    o->workers = pump ? EB_NONE : 2;
    o->shutdown_timeout_ms = 10000;
    bus = *out = t_open(o);
    t_subscribe(bus, "slow", p_wait_at, &gate);
    t_subscribe(bus, "x", t_succeeds, NULL);
    T_DO(eb_start(bus));
    if (pump) {
        T_DO(eb_post(bus, "x", NULL, id));
        return lock_file(o->path);
    }
    T_DO(eb_post(bus, "slow", NULL, id));
    p_until(&gate.entered, 1);
    app = lock_file(o->path);
    p_set(&gate.release, 1);
    p_nap(60); /* the outcome is there, and somebody tries to record it */
    return app;
}

/* timeout 0 just looks. */
TEST drain_and_wait_end_in_time_though_the_file_is_locked(int pump, const char *call, int limit_ms)
{
    eb_options o = t_options(t_path("in-time"));
    int64_t took = 0, most = limit_ms + (limit_ms ? LATE_MS : 100);
    eb_result rc = EB_OK;
    sqlite3 *app;
    eb_bus *bus;
    eb_id id;
    int i;
    app = work_behind_a_lock(&bus, &o, pump, &id);
    for (i = 0; i < TRIES; i++) {
        took = p_ms();
        rc = strcmp(call, "drain") == 0 ? eb_drain(bus, limit_ms) : eb_wait(bus, id.str, limit_ms);
        took = p_ms() - took;
        if (rc == EB_ERR_TIMEOUT && took <= most) break;
    }
    unlock_file(app);
    T_EQ(EB_ERR_TIMEOUT, rc);
    P_WITHIN(limit_ms - 1, most, took);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    PASS();
}

/* With nothing to do there is nothing to wait for. */
TEST drain_of_an_idle_bus_needs_no_lock(int pump)
{
    eb_options o = t_options(t_path("idle"));
    int64_t took = 0;
    sqlite3 *app;
    eb_bus *bus;
    int i;
    o.workers = pump ? EB_NONE : 1;
    o.busy_timeout_ms = 2000;
    bus = t_run_with(&o, "x", t_succeeds, NULL);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_OK(t_settle(bus));
    app = lock_file(o.path);
    for (i = 0; i < TRIES; i++) {
        took = p_ms();
        T_OK(eb_drain(bus, 1000));
        took = p_ms() - took;
        if (took <= 100) break;
    }
    P_WITHIN(0, 100, took);
    unlock_file(app);
    eb_destroy(bus);
    PASS();
}

static sqlite3 *locked_inside;
static eb_result locks(eb_delivery *d, void *user)
{
    (void)d;
    if (!locked_inside) locked_inside = lock_file((const char *)user);
    return EB_OK;
}

/* An outcome to record and another event to claim: one wait, not one each. */
TEST pump_waits_for_a_lock_once(void)
{
    char path[440];
    eb_options o;
    int64_t took = 0;
    eb_bus *bus;
    int i;
    t_copy(path, sizeof path, t_path("pump-once"));
    o = t_options(path);
    o.workers = EB_NONE;
    o.busy_timeout_ms = BUSY_MS;
    bus = t_run_with(&o, "locks", locks, path);
    for (i = 0; i < TRIES; i++) {
        t_post(bus, "locks", NULL);
        t_post(bus, "locks", NULL);
        locked_inside = NULL;
        took = p_ms();
        eb_pump(bus, EB_NONE, NULL);
        took = p_ms() - took;
        unlock_file(locked_inside);
        T_OK(t_settle(bus));
        if (took <= BUSY_MS + LATE_MS) break;
    }
    P_WITHIN(0, BUSY_MS + LATE_MS, took);
    eb_destroy(bus);
    PASS();
}

/* A clock whose sleep is not what was asked for: longer, as where the system's timer is coarse, or
** shorter, as when signals arrive. The limit is a time, not a number of sleeps. */
static int64_t slept_longer_by, slept_at_most;
static void odd_sleep(int64_t ms, void *user)
{
    t_time *t = (t_time *)user;
    t->slept_ms++;
    if (ms > slept_at_most) ms = slept_at_most;
    t_advance(t, ms + slept_longer_by);
}

TEST busy_timeout_is_a_time_on_any_clock(int64_t longer, int64_t at_most)
{
    t_time t;
    eb_options o = t_timed(t_path("odd"), &t);
    int64_t begin;
    sqlite3 *app;
    eb_bus *bus;
    slept_longer_by = longer;
    slept_at_most = at_most;
    o.clock.sleep_ms = odd_sleep;
    o.busy_timeout_ms = 5000;
    bus = t_open(&o);
    app = lock_file(o.path);
    begin = t.mono_ms;
    T_IS(EB_ERR_BUSY, eb_post(bus, "x", NULL, NULL));
    P_WITHIN(5000 - at_most, 5000 + longer + 20, t.mono_ms - begin);
    unlock_file(app);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    PASS();
}

#ifndef _WIN32
TEST busy_timeout_is_a_time_though_signals_arrive(void)
{
    const char *path = t_path("signals");
    int rc, took;
    char line[100];
    sqlite3 *app;
    p_child *c;
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    eb_destroy(t_open(&o));
    app = lock_file(path);
    c = p_spawn("timer", path, "400", NULL);
    T_EQ(1, p_hear_within(c, line, sizeof line, 20000));
    T_EQ(2, sscanf(line, "%d %d", &rc, &took));
    unlock_file(app);
    T_EQ(EB_ERR_BUSY, rc);
    P_WITHIN(390, 400 + P_SLACK_MS, took);
    P_ENDS_CLEANLY(c);
    PASS();
}
#endif

SUITE(limits)
{
    static const char *const drivers[] = {"threads", "pump"};
    char suffix[60];
    int i;
    SET_TEARDOWN(p_reap, NULL);
    for (i = 0; i < CALLS; i++) {
        greatest_set_test_suffix(call_names[i]);
        RUN_TESTp(call_behind_one_that_waits_ends_by_its_own_limit, i, i == CALL_PUBLISH);
    }
    RUN_TEST(post_beside_a_dispatcher_that_waits_ends_by_its_own_limit);
    for (i = 0; i < 2; i++) {
        snprintf(suffix, sizeof suffix, "drain_0_%s", drivers[i]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(drain_and_wait_end_in_time_though_the_file_is_locked, i, "drain", 0);
        snprintf(suffix, sizeof suffix, "drain_150_%s", drivers[i]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(drain_and_wait_end_in_time_though_the_file_is_locked, i, "drain", 150);
        snprintf(suffix, sizeof suffix, "wait_0_%s", drivers[i]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(drain_and_wait_end_in_time_though_the_file_is_locked, i, "wait", 0);
        snprintf(suffix, sizeof suffix, "wait_150_%s", drivers[i]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(drain_and_wait_end_in_time_though_the_file_is_locked, i, "wait", 150);
        greatest_set_test_suffix(drivers[i]);
        RUN_TESTp(drain_of_an_idle_bus_needs_no_lock, i);
    }
    RUN_TEST(pump_waits_for_a_lock_once);
    greatest_set_test_suffix("coarse");
    RUN_TESTp(busy_timeout_is_a_time_on_any_clock, 15, 1000);
    greatest_set_test_suffix("interrupted");
    RUN_TESTp(busy_timeout_is_a_time_on_any_clock, 0, 1);
#ifndef _WIN32
    RUN_TEST(busy_timeout_is_a_time_though_signals_arrive);
#endif
}

/* ---- files that are none, or not for us ------------------------------------------------------ */

/* Through a VFS that gives the file for reading only, as the system does without permission. */
TEST file_for_reading_only_is_for_stores_only(void)
{
    const char *path = t_path("ro");
    eb_options o = quick_options(path, 1);
    eb_event_list list;
    eb_store *store = NULL;
    eb_bus *bus = t_open(&o);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    vfs_install();
    o.vfs = "fault";
    vfs_read_only = 1;
    bus = (eb_bus *)&o;
    T_IS(EB_ERR_IO, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    ASSERT(!exists_with(path, "-wal"));
    ASSERT(!exists_with(path, "-shm"));
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(1, list.count);
    T_IS(EB_ERR_IO, eb_dlq_move(store, list.items[0].id.str, NULL));
    eb_event_list_free(&list);
    eb_store_close(store);
    vfs_read_only = 0;
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    T_EQ(2, t_stored(path));
    PASS();
}

#ifndef _WIN32
/* A folder that anybody may use. */
static const char *open_folder(void)
{
    static char dir[100];
    snprintf(dir, sizeof dir, "/tmp/eb-test-%ld-XXXXXX", (long)getpid());
    T_MUST(mkdtemp(dir) != NULL && chmod(dir, 0777) == 0);
    return dir;
}

static void remove_folder(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    char name[480];
    while (d && (entry = readdir(d)) != NULL) {
        snprintf(name, sizeof name, "%s/%.300s", dir, entry->d_name);
        if (entry->d_name[0] != '.') remove(name);
    }
    if (d) closedir(d);
    rmdir(dir);
}

/* Without permission to write. What SQLite makes beside the file has the file's mode: a -shm for
** reading only would be in everybody's way for good. */
TEST file_without_permission_to_write_is_left_alone(const char *as)
{
    char path[200], seen[6][100];
    const char *dir = open_folder();
    int i, status, n = strcmp(as, "store") == 0 ? 4 : 4;
    eb_options o;
    eb_bus *bus;
    p_child *c;
    snprintf(path, sizeof path, "%s/app.db", dir);
    o = quick_options(path, 1);
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    if (getuid() == 0) T_MUST(chown(path, NOBODY, NOBODY) == 0);
    c = p_spawn("readonly", path, as, NULL);
    memset(seen, 0, sizeof seen);
    for (i = 0; i < n; i++) p_hear(c, seen[i], sizeof seen[i]);
    status = p_end(c);
    remove_folder(dir);
    if (strcmp(as, "store") == 0) {
        ASSERT_STR_EQ("store 0 log 0", seen[0]);
        ASSERT_STR_EQ("events 1", seen[1]);
    } else {
        ASSERT_STR_EQ("bus -13", seen[0]);
        ASSERT_STR_EQ("wal 0 shm 0 owner 0", seen[1]);
    }
    ASSERT_STR_EQ("bus 0", seen[2]); /* with permission it is as good as ever */
    ASSERT_STR_EQ("post 0", seen[3]);
    T_EQ(0, status);
    PASS();
}

TEST fifo_in_place_of_the_file_is_an_io_error(void)
{
    const char *path = t_path("fifo");
    struct stat st;
    p_child *c;
    ASSERT_EQ(0, mkfifo(path, 0600));
    c = p_spawn("open", path, NULL);
    P_HEAR(c, "bus -13");
    P_HEAR(c, "store -13");
    P_ENDS_CLEANLY(c);
    ASSERT_EQ(0, stat(path, &st));
    ASSERT(S_ISFIFO(st.st_mode));
    ASSERT(!exists_with(path, "-wal"));
    ASSERT(!exists_with(path, "-journal"));
    PASS();
}

TEST fifo_in_place_of_the_side_file_is_an_io_error(void)
{
    const char *path = t_path("fifo-owner");
    char side[440];
    p_child *c;
    snprintf(side, sizeof side, "%s.owner", path);
    ASSERT_EQ(0, mkfifo(side, 0600));
    c = p_spawn("start", path, NULL);
    P_HEAR(c, "start -13");
    P_ENDS_CLEANLY(c);
    remove(side);
    PASS();
}

TEST device_in_place_of_the_file_is_an_io_error(const char *device)
{
    p_child *c = p_spawn("device", device, NULL);
    P_HEAR(c, "bus -13");
    P_HEAR(c, "store -13");
    P_ENDS_CLEANLY(c);
    PASS();
}
#endif

/* SQLite would convert every text on its way in and out, and not without loss. */
TEST utf16_database_is_refused_untouched(const char *encoding, int how)
{
    const char *path = t_path("utf16");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    char sql[300], msg[600], buf[40];
    int64_t before;
    if (how == 0)
        snprintf(sql, sizeof sql, "PRAGMA encoding='%s'; CREATE TABLE t(a); INSERT INTO t"
                                  " VALUES('hello')", encoding);
    else
        snprintf(sql, sizeof sql, "PRAGMA encoding='%s'; CREATE TABLE t(a); DROP TABLE t",
                 encoding);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    before = t_sql_int(path, "PRAGMA schema_version");
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    eb_errmsg(msg, sizeof msg);
    ASSERTm("the message has the encoding", strstr(msg, "UTF-16") != NULL);
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT_EQ(NULL, store);
    T_EQ(before, t_sql_int(path, "PRAGMA schema_version"));
    ASSERT_STR_EQ("delete", t_sql_text(path, "PRAGMA journal_mode", buf, sizeof buf));
    PASS();
}

/* As version 0.1 could make one: all our tables, in UTF-16. */
TEST utf16_database_with_our_tables_is_refused(void)
{
    char model[440];
    const char *path = t_path("utf16-ours");
    eb_options o;
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    sqlite3 *from = NULL, *to = NULL;
    sqlite3_stmt *s = NULL, *in = NULL;
    t_copy(model, sizeof model, t_path("utf16-model"));
    o = t_options(model);
    o.workers = EB_NONE;
    eb_destroy(t_open(&o));
    T_MUST(sqlite3_open(model, &from) == SQLITE_OK);
    T_MUST(sqlite3_open(path, &to) == SQLITE_OK);
    T_MUST(sqlite3_exec(to, "PRAGMA encoding='UTF-16le'", NULL, NULL, NULL) == SQLITE_OK);
    T_MUST(sqlite3_prepare_v2(from, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY"
                                    " rowid", -1, &s, NULL) == SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW)
        T_MUST(sqlite3_exec(to, (const char *)sqlite3_column_text(s, 0), NULL, NULL, NULL) ==
               SQLITE_OK);
    sqlite3_finalize(s);
    T_MUST(sqlite3_prepare_v2(from, "SELECT key,value FROM meta", -1, &s, NULL) == SQLITE_OK);
    T_MUST(sqlite3_prepare_v2(to, "INSERT INTO meta VALUES(?1,?2)", -1, &in, NULL) == SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW) {
        sqlite3_bind_value(in, 1, sqlite3_column_value(s, 0));
        sqlite3_bind_value(in, 2, sqlite3_column_value(s, 1));
        T_MUST(sqlite3_step(in) == SQLITE_DONE);
        sqlite3_reset(in);
    }
    sqlite3_finalize(s);
    sqlite3_finalize(in);
    sqlite3_close(from);
    sqlite3_close(to);
    o.path = path;
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    PASS();
}

/* The bus has more than one connection to its file, and so has everybody else. */
TEST host_with_exclusive_locking_by_default_is_no_obstacle(int pump)
{
    const char *path = t_path("exclusive");
    t_seen seen = {0};
    eb_options o = quick_options(path, pump);
    eb_event_list list;
    eb_store *store = NULL;
    eb_stats stats;
    eb_result rc[7];
    eb_bus *bus = NULL;
    int i;
    o.busy_timeout_ms = 300;
    host_is_exclusive = 1;
    rc[0] = eb_open(&bus, &o);
    rc[1] = eb_subscribe(bus, "x", t_watch, &seen, NULL, NULL);
    rc[2] = eb_start(bus);
    rc[3] = eb_publish(bus, "x", NULL, NULL);
    rc[4] = eb_stats_get(eb_bus_store(bus), &stats); /* the second connection */
    rc[5] = eb_store_open(&store, &o);
    rc[6] = store ? eb_log_read(store, NULL, &list) : EB_ERR_STATE;
    host_is_exclusive = 0;
    for (i = 0; i < 7; i++) T_OK(rc[i]);
    T_EQ(1, list.count);
    eb_event_list_free(&list);
    T_EQ(1, t_stored(path)); /* a third one, of somebody else */
    T_EQ(SQLITE_OK, t_sql(path, "CREATE TABLE app(a)", NULL, 0));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    eb_store_close(store);
    eb_destroy(bus);
    T_EQ(2, p_get(&seen.calls));
    PASS();
}

/* 32 bits of it are 1. */
TEST schema_version_is_read_as_it_is(const char *value, int number)
{
    const char *path = t_path("schema-version");
    eb_options o = t_options(path);
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    char sql[200], msg[600];
    eb_result rc;
    o.workers = EB_NONE;
    eb_destroy(t_open(&o));
    snprintf(sql, sizeof sql, "UPDATE meta SET value=%s WHERE key='schema_version'", value);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    rc = eb_open(&bus, &o);
    eb_errmsg(msg, sizeof msg);
    eb_destroy(bus);
    T_EQ(EB_ERR_SCHEMA, rc);
    if (number) ASSERTm("the message has all of the number", strstr(msg, value) != NULL);
    rc = eb_store_open(&store, &o);
    eb_store_close(store);
    T_EQ(EB_ERR_SCHEMA, rc);
    PASS();
}

SUITE(files)
{
    static const char *const versions[] = {"4294967297", "4294967298", "9223372036854775807",
                                           "1.5",        "'1abc'",     "x'31'", "NULL"};
    int i;
    SET_TEARDOWN(p_reap, NULL);
    RUN_TEST(file_for_reading_only_is_for_stores_only);
#ifndef _WIN32
    greatest_set_test_suffix("bus");
    RUN_TESTp(file_without_permission_to_write_is_left_alone, "bus");
    greatest_set_test_suffix("store");
    RUN_TESTp(file_without_permission_to_write_is_left_alone, "store");
    RUN_TEST(fifo_in_place_of_the_file_is_an_io_error);
    RUN_TEST(fifo_in_place_of_the_side_file_is_an_io_error);
    greatest_set_test_suffix("null");
    RUN_TESTp(device_in_place_of_the_file_is_an_io_error, "/dev/null");
    greatest_set_test_suffix("zero");
    RUN_TESTp(device_in_place_of_the_file_is_an_io_error, "/dev/zero");
#endif
    greatest_set_test_suffix("le");
    RUN_TESTp(utf16_database_is_refused_untouched, "UTF-16le", 0);
    greatest_set_test_suffix("be");
    RUN_TESTp(utf16_database_is_refused_untouched, "UTF-16be", 0);
    greatest_set_test_suffix("empty");
    RUN_TESTp(utf16_database_is_refused_untouched, "UTF-16le", 1);
    RUN_TEST(utf16_database_with_our_tables_is_refused);
    greatest_set_test_suffix("pump");
    RUN_TESTp(host_with_exclusive_locking_by_default_is_no_obstacle, 1);
    greatest_set_test_suffix("threads");
    RUN_TESTp(host_with_exclusive_locking_by_default_is_no_obstacle, 0);
    for (i = 0; i < (int)(sizeof versions / sizeof *versions); i++) {
        greatest_set_test_suffix(versions[i]);
        RUN_TESTp(schema_version_is_read_as_it_is, versions[i], i < 3);
    }
}

/* ---- private files --------------------------------------------------------------------------- */

#ifndef _WIN32
static int mode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? (int)(st.st_mode & 0777) : -1;
}

TEST file_is_private_with_an_explicit_vfs(void)
{
    const char *path = t_path("vfs");
    char side[440];
    eb_options o = quick_options(path, 1);
    mode_t old = umask(0);
    eb_bus *bus;
    o.vfs = sqlite3_vfs_find(NULL)->zName;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    umask(old);
    T_EQ(0600, mode_of(path));
    snprintf(side, sizeof side, "%s-wal", path);
    T_EQ(0600, mode_of(side));
    snprintf(side, sizeof side, "%s-shm", path);
    T_EQ(0600, mode_of(side));
    snprintf(side, sizeof side, "%s.owner", path);
    T_EQ(0600, mode_of(side));
    eb_destroy(bus);
    PASS();
}

/* A bus may follow the link, or refuse to; what it makes is private. */
TEST file_behind_a_dangling_link_is_private(int links)
{
    const char *path = t_path("target");
    char link_1[440], link_2[440];
    eb_options o;
    mode_t old;
    eb_result rc;
    eb_bus *bus = NULL;
    snprintf(link_1, sizeof link_1, "%s-link1", path);
    snprintf(link_2, sizeof link_2, "%s-link2", path);
    remove(link_1);
    remove(link_2);
    ASSERT_EQ(0, symlink(base_of(path), link_1)); /* relative to the folder of the link */
    ASSERT_EQ(0, symlink(link_1, link_2));
    o = quick_options(links == 1 ? link_1 : link_2, 1);
    old = umask(0);
    rc = eb_open(&bus, &o);
    if (bus && eb_start(bus) == EB_OK) eb_publish(bus, "x", NULL, NULL);
    umask(old);
    if (rc == EB_OK) {
        T_EQ(0600, mode_of(path));
        eb_destroy(bus);
        T_EQ(1, t_stored(path));
    } else {
        T_EQ(EB_ERR_IO, rc);
        ASSERT(!exists(path));
    }
    remove(link_1);
    remove(link_2);
    PASS();
}

/* With URI file names on, the path is what the URI means, and nothing else is made. */
TEST uri_path_makes_private_files_only(const char *uri, const char *mode, const char *made, int rc)
{
    const char *dir = t_path("uri");
    char line[100], want[100], file[440];
    p_child *c;
    remove_folder(dir);
    ASSERT_EQ(0, t_mkdir(dir));
    c = p_spawn("uri", dir, uri, mode, NULL);
    snprintf(want, sizeof want, "bus %d", rc);
    T_EQ(1, p_hear(c, line, sizeof line));
    ASSERT_STR_EQ(want, line);
    T_EQ(1, p_hear(c, line, sizeof line));
    snprintf(want, sizeof want, "0 open to others, %d with a colon, any: %d",
             strchr(made, ':') ? 5 : 0, made[0] != 0);
    ASSERT_STR_EQ(want, line);
    T_EQ(1, p_hear(c, line, sizeof line));
    if (made[0]) ASSERT_STR_EQ("store 0", line);
    P_ENDS_CLEANLY(c);
    if (made[0]) {
        snprintf(file, sizeof file, "%s/%s", dir, made);
        T_EQ(0600, mode_of(file));
    }
    remove_folder(dir);
    PASS();
}

/* An existing file, opened for reading only by its URI: for stores. */
TEST uri_for_reading_only_is_for_stores_only(void)
{
    const char *dir = t_path("uri-ro");
    char path[440], uri[480], line[100];
    eb_options o;
    p_child *c;
    remove_folder(dir);
    ASSERT_EQ(0, t_mkdir(dir));
    snprintf(path, sizeof path, "%s/x.db", dir);
    o = quick_options(path, 1);
    eb_destroy(t_open(&o));
    snprintf(uri, sizeof uri, "file:%s?mode=ro", path);
    c = p_spawn("uri", dir, uri, "uri", NULL);
    P_HEAR(c, "bus -13");
    T_EQ(1, p_hear(c, line, sizeof line));
    ASSERT_STR_EQ("0 open to others, 0 with a colon, any: 1", line);
    P_HEAR(c, "store 0");
    P_ENDS_CLEANLY(c);
    remove_folder(dir);
    PASS();
}

SUITE(private_files)
{
    SET_TEARDOWN(p_reap, NULL);
    RUN_TEST(file_is_private_with_an_explicit_vfs);
    greatest_set_test_suffix("one");
    RUN_TESTp(file_behind_a_dangling_link_is_private, 1);
    greatest_set_test_suffix("two");
    RUN_TESTp(file_behind_a_dangling_link_is_private, 2);
    greatest_set_test_suffix("relative");
    RUN_TESTp(uri_path_makes_private_files_only, "file:x.db", "uri", "x.db", EB_OK);
    greatest_set_test_suffix("with_a_parameter");
    RUN_TESTp(uri_path_makes_private_files_only, "file:x.db?cache=private", "uri", "x.db", EB_OK);
    greatest_set_test_suffix("with_an_escape");
    RUN_TESTp(uri_path_makes_private_files_only, "file:a%20b.db", "uri", "a b.db", EB_OK);
    greatest_set_test_suffix("plain_path");
    RUN_TESTp(uri_path_makes_private_files_only, "y.db", "uri", "y.db", EB_OK);
    greatest_set_test_suffix("nothing_to_read");
    RUN_TESTp(uri_path_makes_private_files_only, "file:x.db?mode=ro", "uri", "", EB_ERR_IO);
    greatest_set_test_suffix("nothing_to_open");
    RUN_TESTp(uri_path_makes_private_files_only, "file:x.db?mode=rw", "uri", "", EB_ERR_IO);
    greatest_set_test_suffix("off"); /* then it is a name like any other */
    RUN_TESTp(uri_path_makes_private_files_only, "file:x.db", "plain", "file:x.db", EB_OK);
    RUN_TEST(uri_for_reading_only_is_for_stores_only);
}
#endif

/* ---- what the log says ----------------------------------------------------------------------- */

/* A clock that lets go of the lock when its time has come. */
typedef struct unlocker {
    t_time t;
    sqlite3 *app;
    int64_t at_ms; /* monotonic; 0: never */
} unlocker;
static int64_t unlocker_now(void *user) { return ((unlocker *)user)->t.now_ms; }
static int64_t unlocker_mono(void *user) { return ((unlocker *)user)->t.mono_ms; }
static void unlocker_sleep(int64_t ms, void *user)
{
    unlocker *u = (unlocker *)user;
    t_sleep(ms, &u->t);
    if (!u->app || u->at_ms == 0 || u->t.mono_ms < u->at_ms) return;
    unlock_file(u->app);
    u->app = NULL;
}

static eb_bus *unlocker_bus(const char *path, unlocker *u)
{
    eb_options o = quick_options(path, 1);
    memset(u, 0, sizeof *u);
    (void)t_clock(&u->t);
    o.clock.now_ms = unlocker_now;
    o.clock.mono_ms = unlocker_mono;
    o.clock.sleep_ms = unlocker_sleep;
    o.clock.user = u;
    o.busy_timeout_ms = 5000;
    o.logger = t_logger(&logged);
    return t_open(&o);
}

/* Somebody forgot a transaction: one warning with the time, one word when it is over. */
TEST foreign_lock_that_lasts_is_said_once(void)
{
    const char *path = t_path("lock-log");
    unlocker u;
    char text[1500] = "";
    int i;
    eb_bus *bus = unlocker_bus(path, &u);
    for (i = 1; i <= 2; i++) { /* the next one is told anew */
        sqlite3 *app = lock_file(path);
        T_IS(EB_ERR_BUSY, eb_post(bus, "x", NULL, NULL)); /* 5 s */
        T_IS(EB_ERR_BUSY, eb_post(bus, "x", NULL, NULL)); /* 10 s of the same lock */
        T_EQ(i, said_of(&logged, EB_LOG_WARN, "locked", text, sizeof text));
        T_EQ(i - 1, said(&logged, EB_LOG_INFO, "lock"));
        ASSERTm("the warning says for how long", number_in(text) >= 1);
        unlock_file(app);
        t_post(bus, "x", NULL);
        t_post(bus, "x", NULL);
        T_EQ(i, said(&logged, EB_LOG_WARN, "locked"));
        T_EQ(i, said(&logged, EB_LOG_INFO, "lock"));
    }
    eb_destroy(bus);
    PASS();
}

/* Nobody was refused, but they waited for 3 s. */
TEST foreign_lock_that_lasts_is_said_though_the_call_succeeds(void)
{
    const char *path = t_path("lock-log-3");
    unlocker u;
    eb_bus *bus = unlocker_bus(path, &u);
    u.at_ms = u.t.mono_ms + 3000;
    u.app = lock_file(path);
    t_post(bus, "x", NULL);
    t_post(bus, "x", NULL);
    T_EQ(1, said(&logged, EB_LOG_WARN, "locked"));
    T_EQ(1, said(&logged, EB_LOG_INFO, "lock"));
    eb_destroy(bus);
    PASS();
}

TEST foreign_lock_that_is_short_is_not_worth_a_word(void)
{
    const char *path = t_path("lock-log-short");
    unlocker u;
    eb_bus *bus = unlocker_bus(path, &u);
    int i;
    for (i = 0; i < 5; i++) { /* 1.5 s, but not in one */
        u.at_ms = u.t.mono_ms + 300;
        u.app = lock_file(path);
        t_post(bus, "x", NULL);
    }
    T_EQ(0, logged.count);
    eb_destroy(bus);
    PASS();
}

/* In real time, and while it lasts: not when the first call gives up. */
TEST foreign_lock_is_said_while_it_lasts(void)
{
    const char *path = t_path("lock-log-now");
    eb_options o = quick_options(path, 0);
    locked l[2];
    pthread_t thread[2];
    sqlite3 *app;
    eb_bus *bus;
    int i;
    memset(l, 0, sizeof l);
    o.busy_timeout_ms = 30000;
    o.logger = t_logger(&logged);
    bus = l[0].bus = l[1].bus = t_open(&o);
    t_subscribe(bus, "x", t_succeeds, NULL);
    T_OK(eb_start(bus));
    app = lock_file(path);
    for (i = 0; i < 2; i++) thread[i] = p_go(posts, &l[i]);
    P_EVENTUALLY(said(&logged, EB_LOG_WARN, "locked") > 0);
    p_nap(100);
    unlock_file(app);
    for (i = 0; i < 2; i++) p_join(thread[i]);
    P_EVENTUALLY(said(&logged, EB_LOG_INFO, "lock") > 0);
    T_OK(t_settle(bus));
    T_EQ(1, said(&logged, EB_LOG_WARN, "locked"));
    T_EQ(1, said(&logged, EB_LOG_INFO, "lock"));
    for (i = 0; i < 2; i++) T_OK(l[i].rc);
    eb_destroy(bus);
    PASS();
}

/* Many short tries are one long wait: here only the dispatcher wants the lock. */
TEST foreign_lock_is_said_when_only_the_dispatcher_waits(void)
{
    const char *path = t_path("lock-log-acks");
    eb_options o = quick_options(path, 0);
    sqlite3 *app;
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    o.busy_timeout_ms = 20;
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "slow", p_wait_at, &gate);
    t_post(bus, "slow", NULL);
    P_EVENTUALLY(p_get(&gate.entered));
    app = lock_file(path);
    p_set(&gate.release, 1);
    P_EVENTUALLY(said(&logged, EB_LOG_WARN, "locked") > 0);
    unlock_file(app);
    P_EVENTUALLY(said(&logged, EB_LOG_INFO, "lock") > 0);
    T_OK(t_settle(bus));
    T_EQ(1, said(&logged, EB_LOG_WARN, "locked"));
    T_EQ(1, said(&logged, EB_LOG_INFO, "lock"));
    eb_destroy(bus);
    PASS();
}

/* A handler does not return, and no thread can be made in the place of its own. */
TEST thread_that_cannot_be_replaced_is_said(void)
{
    t_seen seen = {0};
    eb_options o = quick_options(t_path("thread-log"), 0);
    int64_t end;
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    o.workers = 1;
    o.handler_timeout_ms = 30;
    o.retry.max_retries = EB_NONE;
    o.logger = t_logger(&logged);
    bus = t_open(&o);
    t_subscribe(bus, "slow", p_wait_at, &gate);
    t_subscribe(bus, "x", t_watch, &seen);
    T_OK(eb_start(bus));
    t_post(bus, "slow", NULL);
    P_EVENTUALLY(p_get(&gate.entered));
    p_set(&no_threads, 1);
    P_EVENTUALLY(p_get(&threads_refused) > 0);
    for (end = p_ms() + 1000; !said(&logged, EB_LOG_WARN, "thread") && p_ms() < end;) p_nap(2);
    p_set(&no_threads, 0);
    t_post(bus, "x", NULL);
    P_EVENTUALLY(p_get(&seen.calls) == 1); /* it tries again */
    p_set(&gate.release, 1);
    T_OK(eb_shutdown(bus));
    T_EQ(1, said(&logged, EB_LOG_WARN, "thread"));
    eb_destroy(bus);
    PASS();
}

/* ---- a reader that holds the WAL ---- */

enum { MEGABYTE = 1024 * 1024 };

static sqlite3 *hold_wal(const char *path)
{
    sqlite3 *db = NULL;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    T_MUST(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM event_log", NULL, NULL, NULL) ==
           SQLITE_OK);
    return db;
}

static void post_megabytes(eb_bus *bus, char *payload, int n, int pump)
{
    for (; n > 0; n--) {
        t_post(bus, "big", payload);
        if (pump) T_DO(eb_pump(bus, EB_NONE, NULL));
    }
}

TEST wal_that_a_reader_holds_is_said_with_its_size(int pump, int wal_pages)
{
    const char *path = t_path("wal-log");
    eb_options o = quick_options(path, pump);
    char text[1500] = "", *payload = (char *)malloc(MEGABYTE + 1);
    double size;
    int64_t end;
    sqlite3 *reader;
    eb_bus *bus;
    T_MUST(payload != NULL);
    memset(payload, '7', MEGABYTE);
    payload[MEGABYTE] = 0;
    o.durability = EB_DURABLE_OFF;
    o.wal_pages = wal_pages;
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "*", t_succeeds, NULL);
    post_megabytes(bus, payload, 1, pump);
    reader = hold_wal(path);
    post_megabytes(bus, payload, 30, pump);
    T_OK(t_settle(bus));
    T_EQ(0, said(&logged, 0, "WAL")); /* that much is nothing */
    post_megabytes(bus, payload, 45, pump);
    T_OK(t_settle(bus));
    for (end = p_ms() + 4000; !said(&logged, EB_LOG_WARN, "WAL") && p_ms() < end; p_nap(5))
        post_megabytes(bus, (char *)(size_t)0, 1, pump);
    T_EQ(1, said_of(&logged, EB_LOG_WARN, "WAL", text, sizeof text));
    size = number_in(text); /* in MiB, or in bytes */
    if (!((size >= 64 && size < 200) || (size >= 64.0 * MEGABYTE && size < 200.0 * MEGABYTE)))
        FAILm(text);
    post_megabytes(bus, payload, 5, pump);
    T_OK(t_settle(bus));
    T_EQ(1, said(&logged, EB_LOG_WARN, "WAL")); /* once, not again and again */
    T_EQ(0, said(&logged, EB_LOG_INFO, "WAL"));
    sqlite3_close(reader);
    for (end = p_ms() + 10000; !said(&logged, EB_LOG_INFO, "WAL") && p_ms() < end; p_nap(5))
        post_megabytes(bus, (char *)(size_t)0, 1, pump);
    T_EQ(1, said(&logged, EB_LOG_INFO, "WAL"));
    T_EQ(1, said(&logged, EB_LOG_WARN, "WAL"));
    T_OK(t_settle(bus));
    eb_destroy(bus);
    free(payload);
    PASS();
}

/* Who lets it grow to 64 MiB before it is copied gets no warning for that: nobody holds it. */
TEST wal_that_nobody_holds_is_not_said(int pump, int wal_pages)
{
    const char *path = t_path("wal-free");
    eb_options o = quick_options(path, pump);
    char *payload = (char *)malloc(MEGABYTE + 1);
    int64_t most = 0;
    eb_stats stats;
    eb_bus *bus;
    int i;
    T_MUST(payload != NULL);
    memset(payload, '7', MEGABYTE);
    payload[MEGABYTE] = 0;
    o.durability = EB_DURABLE_OFF;
    o.wal_pages = wal_pages;
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "*", t_succeeds, NULL);
    for (i = 0; i < 140; i++) { /* twice over it */
        post_megabytes(bus, payload, 1, pump);
        stats = t_stats(bus);
        if (stats.wal_bytes > most) most = stats.wal_bytes;
    }
    T_OK(t_settle(bus));
    ASSERT(most > 64 * (int64_t)MEGABYTE); /* else there was nothing to say */
    T_EQ(0, said(&logged, 0, "WAL"));
    eb_destroy(bus);
    T_EQ(0, said(&logged, 0, "WAL"));
    free(payload);
    PASS();
}

/* However fast somebody publishes: the keeper copies beside it, and is waited for. */
TEST wal_stays_short_under_load(int wal_pages, int64_t limit)
{
    const char *path = t_path("wal-load");
    eb_options o = quick_options(path, 0);
    char *payload = (char *)malloc(4001);
    int64_t most = 0;
    eb_message m[100];
    eb_stats stats;
    eb_bus *bus;
    int i;
    T_MUST(payload != NULL);
    memset(payload, '7', 4000);
    payload[4000] = 0;
    memset(m, 0, sizeof m);
    for (i = 0; i < 100; i++) {
        m[i].type = "a";
        m[i].payload = payload;
    }
    o.wal_pages = wal_pages;
    bus = t_run_with(&o, "*", t_succeeds, NULL);
    for (i = 0; i < 3 * limit / (100 * 4000); i++) { /* three times as much as may lie there */
        T_OK(eb_send(bus, m, 100, NULL));
        if (i % 20) continue;
        T_OK(eb_stats_get(eb_bus_store(bus), &stats));
        if (stats.wal_bytes > most) most = stats.wal_bytes;
    }
    P_WITHIN(MEGABYTE, limit, most);
    eb_destroy(bus);
    free(payload);
    PASS();
}

SUITE(log_says)
{
    static const int pages[] = {EB_NONE, 16384};
    char suffix[30];
    size_t i;
    SET_TEARDOWN(p_reap, NULL);
    RUN_TEST(foreign_lock_that_lasts_is_said_once);
    RUN_TEST(foreign_lock_that_lasts_is_said_though_the_call_succeeds);
    RUN_TEST(foreign_lock_that_is_short_is_not_worth_a_word);
    RUN_TEST(foreign_lock_is_said_while_it_lasts);
    RUN_TEST(foreign_lock_is_said_when_only_the_dispatcher_waits);
    RUN_TEST(thread_that_cannot_be_replaced_is_said);
    RUN_TESTp(wal_stays_short_under_load, 0, 40 * 1000000);
    greatest_set_test_suffix("none");
    RUN_TESTp(wal_stays_short_under_load, EB_NONE, 90 * 1000000);
    greatest_set_test_suffix("pump");
    RUN_TESTp(wal_that_a_reader_holds_is_said_with_its_size, 1, 0);
    greatest_set_test_suffix("threads");
    RUN_TESTp(wal_that_a_reader_holds_is_said_with_its_size, 0, 0);
    greatest_set_test_suffix("no_wal_pages");
    RUN_TESTp(wal_that_a_reader_holds_is_said_with_its_size, 1, EB_NONE);
    greatest_set_test_suffix("many_wal_pages");
    RUN_TESTp(wal_that_a_reader_holds_is_said_with_its_size, 0, 30000);
    for (i = 0; i < sizeof pages / sizeof *pages; i++) {
        snprintf(suffix, sizeof suffix, "%d_pump", pages[i]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(wal_that_nobody_holds_is_not_said, 1, pages[i]);
        snprintf(suffix, sizeof suffix, "%d_threads", pages[i]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(wal_that_nobody_holds_is_not_said, 0, pages[i]);
    }
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) return child_main(argv[2], argv + 3);
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(side_files);
    RUN_SUITE(full_disk);
    RUN_SUITE(restored);
    RUN_SUITE(limits);
    RUN_SUITE(files);
#ifndef _WIN32
    RUN_SUITE(private_files);
#endif
    RUN_SUITE(log_says);
    GREATEST_MAIN_END();
}
