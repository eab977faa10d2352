/* test_platform.c - what the operating system or the application around us refuses: no thread, no
** lock, another process, the wrong SQLite. And what the platform room promises by itself: times, and
** waiting.
**
** The functions in question are replaced by macros before eventbus.h is read, so that the n-th call
** fails. Everything must be as before afterwards, and work when asked again.
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

static int fail_in; /* 1: the next call fails; 0: none */
static int failures;
static int other_pid, other_version;

static int fails(void)
{
    if (__atomic_load_n(&fail_in, __ATOMIC_SEQ_CST) == 0) return 0;
    if (__atomic_sub_fetch(&fail_in, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    __atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);
    return 1;
}
static int version_now(void) { return other_version ? other_version : sqlite3_libversion_number(); }
#define sqlite3_libversion_number() version_now()

#ifdef _WIN32
static DWORD pid_now(void) { return GetCurrentProcessId() + (DWORD)other_pid; }
#define GetCurrentProcessId() pid_now()
#define CreateThread(a, b, c, d, e, f) (fails() ? NULL : CreateThread(a, b, c, d, e, f))
#else
static pid_t pid_now(void) { return getpid() + other_pid; }
#define getpid() pid_now()
#define pthread_create(a, b, c, d) (fails() ? 11 : pthread_create(a, b, c, d))
#define pthread_mutex_init(a, b) (fails() ? 11 : pthread_mutex_init(a, b))
#define pthread_cond_init(a, b) (fails() ? 11 : pthread_cond_init(a, b))
#define pthread_condattr_init(a) (fails() ? 12 : pthread_condattr_init(a))
#endif
#include "proc.h"

enum { WORKERS = 3 };

static void fail_at(int n)
{
    p_set(&failures, 0);
    p_set(&fail_in, n);
}

/* ---- threads and locks ----------------------------------------------------------------------- */

/* The n-th worker or the keeper cannot be made: eb_start says so, takes the others back, and the
** file is free for whoever can; a later eb_start works. */
TEST bus_without_a_thread_does_not_start(void)
{
    t_seen seen = {0};
    eb_options o = t_options(t_path("thread"));
    int n, before;
    eb_bus *bus;
    o.workers = WORKERS;
    bus = t_open(&o);
    t_subscribe(bus, "*", t_watch, &seen);
    t_post(bus, "x", NULL);
    fail_at(WORKERS + 1); /* a sanitizer has a thread of its own once there were others */
    T_IS(EB_ERR_NOMEM, eb_start(bus));
    before = p_threads();
    for (n = 1; n <= WORKERS + 1; n++) {
        fail_at(n);
        T_IS(EB_ERR_NOMEM, eb_start(bus));
        T_EQ(1, p_get(&failures));
        P_EVENTUALLY(p_threads() == before);
        T_EQ(0, p_get(&seen.calls));
    }
    fail_at(0);
    t_post(bus, "y", NULL);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    T_EQ(2, p_get(&seen.calls));
    eb_destroy(bus);
    PASS();
}

static int stuck, release;
static eb_result stuck_handler(eb_delivery *d, void *user)
{
    (void)user;
    if (strcmp(d->event->type, "stuck") != 0) return EB_OK;
    p_set(&stuck, 1);
    p_until(&release, 1);
    return EB_OK;
}

/* The only worker is lost in a handler, and its successor cannot be made: the keeper tries again
** after a while, and the other events are handled. */
TEST successor_of_a_lost_worker_is_made_later(void)
{
    eb_options o = t_options(t_path("hire"));
    eb_bus *bus;
    o.workers = 1;
    o.handler_timeout_ms = 30;
    o.retry.max_retries = EB_NONE;
    p_set(&stuck, 0);
    p_set(&release, 0);
    bus = t_run_with(&o, "*", stuck_handler, NULL);
    t_post(bus, "stuck", NULL);
    P_EVENTUALLY(p_get(&stuck));
    fail_at(1);
    t_post(bus, "x", NULL);
    T_OK(t_settle(bus));
    T_EQ(1, p_get(&failures));
    T_ROWS(1, o.path, "status = 'done' AND type = 'x'");
    T_ROWS(1, o.path, "status = 'dlq' AND type = 'stuck'");
    p_set(&release, 1);
    eb_destroy(bus);
    PASS();
}

#ifndef _WIN32 /* a lock of Windows needs nothing that could be missing */
TEST bus_without_a_lock_does_not_open(void)
{
    eb_options o = t_options(t_path("lock"));
    eb_store *store = NULL;
    eb_bus *bus = NULL;
    eb_result rc;
    int n;
    for (n = 1;; n++) { /* three conditions with their attributes, two mutexes */
        fail_at(n);
        rc = eb_open(&bus, &o);
        if (rc == EB_OK) break;
        T_IS(EB_ERR_NOMEM, rc);
        ASSERT_EQ(NULL, bus);
        T_EQ(1, p_get(&failures));
    }
    P_WITHIN(5, 20, n);
    fail_at(0);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    for (n = 1;; n++) {
        fail_at(n);
        rc = eb_store_open(&store, &o);
        if (rc == EB_OK) break;
        T_IS(EB_ERR_NOMEM, rc);
        ASSERT_EQ(NULL, store);
        T_EQ(1, p_get(&failures));
    }
    P_WITHIN(2, 20, n);
    fail_at(0);
    eb_store_close(store);
    T_EQ(1, t_stored(o.path));
    PASS();
}
#endif

/* ---- another process, another SQLite --------------------------------------------------------- */

/* What a forked child sees, without a fork: the process has another number than the bus. */
TEST other_process_gets_nothing(void)
{
    eb_options o = t_options(t_path("pid"));
    eb_stats stats;
    eb_event_list list;
    eb_store *own = NULL;
    eb_bus *bus = t_open(&o), *other = NULL;
    eb_store *store = eb_bus_store(bus);
    t_subscribe(bus, "*", t_succeeds, NULL);
    T_OK(eb_start(bus));
    T_OK(eb_store_open(&own, &o));
    T_OK(eb_publish(bus, "x", NULL, NULL)); /* its worker has looked at all there is, and sleeps */
    other_pid = 1;
    T_IS(EB_ERR_FORK, eb_post(bus, "x", NULL, NULL));
    T_IS(EB_ERR_FORK, eb_publish(bus, "x", NULL, NULL));
    T_IS(EB_ERR_FORK, eb_subscribe(bus, "*", t_succeeds, NULL, NULL, NULL));
    T_IS(EB_ERR_FORK, eb_drain(bus, 0));
    T_IS(EB_ERR_FORK, eb_shutdown(bus));
    T_IS(EB_ERR_FORK, eb_stats_get(store, &stats));
    T_IS(EB_ERR_FORK, eb_log_read(own, NULL, &list));
    eb_store_close(own);
    eb_destroy(bus);
    T_OK(eb_open(&other, &o)); /* one of its own it may have */
    t_post(other, "y", NULL);
    eb_destroy(other);
    other_pid = 0;
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_OK(t_settle(bus));
    T_OK(eb_stats_get(own, &stats));
    T_EQ(3, stats.done);
    eb_store_close(own);
    eb_destroy(bus);
    PASS();
}

TEST sqlite_that_corrupts_is_refused(void)
{
    static const int bad[] = {3007000, 3040001, 3051002, 3052000}, good[] = {3051003, 3053004};
    eb_options o = t_options(t_path("version"));
    eb_store *store = NULL;
    eb_bus *bus = NULL;
    char msg[300];
    size_t i;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        other_version = bad[i];
        T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
        ASSERT_EQ(NULL, bus);
        eb_errmsg(msg, sizeof msg);
        ASSERT(strstr(msg, "SQLite") != NULL);
        T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
        ASSERT_EQ(NULL, store);
    }
    for (i = 0; i < sizeof good / sizeof *good; i++) {
        other_version = good[i];
        T_OK(eb_open(&bus, &o));
        eb_destroy(bus);
    }
    other_version = 0;
    PASS();
}

/* ---- time ------------------------------------------------------------------------------------ */

TEST times_are_written_and_read_back(void)
{
    static const struct { int64_t ms; const char *text; } times[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {INT64_C(951782400000), "2000-02-29T00:00:00.000Z"},
        {INT64_C(951868800000), "2000-03-01T00:00:00.000Z"},
        {INT64_C(-2203891200001), "1900-02-28T23:59:59.999Z"},
        {INT64_C(-2203891200000), "1900-03-01T00:00:00.000Z"},
        {INT64_C(1709164800123), "2024-02-29T00:00:00.123Z"},
        {T_EPOCH, "2026-11-18T05:32:10.000Z"},
        {INT64_C(-62167219200000), "0000-01-01T00:00:00.000Z"},
        {INT64_C(253402300799999), "9999-12-31T23:59:59.999Z"},
    };
    static const char *const wrong[] = {"", "1970-01-01", "1970-01-01 00:00:00.000Z",
                                        "1970-01-01T00:00:00.00xZ"};
    char text[EBI_TIME_LEN + 1];
    size_t i;
    for (i = 0; i < sizeof times / sizeof *times; i++) {
        ebi_time_text(times[i].ms, text);
        ASSERT_STR_EQ(times[i].text, text);
        T_EQ(times[i].ms, ebi_time_parse(text));
    }
    ebi_time_text(INT64_MIN, text);
    ASSERT_STR_EQ("0000-01-01T00:00:00.000Z", text);
    ebi_time_text(INT64_MAX, text);
    ASSERT_STR_EQ("9999-12-31T23:59:59.999Z", text);
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) T_EQ(0, ebi_time_parse(wrong[i]));
    T_EQ(0, ebi_time_parse(NULL));
    PASS();
}

TEST clocks_of_the_system_go_forward(void)
{
    int64_t begin = ebi_platform_mono_us(), wall = ebi_platform_now_ms(), took;
    ebi_platform_sleep_ms(0);
    ebi_platform_sleep_ms(-5);
    ebi_platform_sleep_ms(20);
    took = ebi_platform_mono_us() - begin;
    P_WITHIN(19000, P_LONG_MS * INT64_C(1000), took);
    P_WITHIN((int64_t)time(NULL) * 1000 - 3600000, (int64_t)time(NULL) * 1000 + 3600000, wall);
    PASS();
}

static ebi_mutex lock;
static ebi_cond cond;
static int told, ready;
static void *waiter(void *arg)
{
    int64_t us = *(int64_t *)arg;
    ebi_mutex_lock(&lock);
    ready++;
    while (!told) ebi_cond_wait(&cond, &lock, us);
    ebi_mutex_unlock(&lock);
    return NULL;
}

/* However long it may wait, a signal ends it, and a time that is over too. */
TEST waiting_ends_by_signal_or_by_time(void)
{
    int64_t limits[] = {-1, INT64_C(1000000), INT64_MAX, 1, 0}, begin;
    pthread_t threads[5];
    int i, there;
    T_EQ(0, ebi_mutex_init(&lock));
    T_EQ(0, ebi_cond_init(&cond));
    for (i = 0; i < 5; i++) threads[i] = p_go(waiter, &limits[i]);
    do {
        ebi_mutex_lock(&lock);
        there = ready;
        if (there == 5) told = 1;
        ebi_mutex_unlock(&lock);
    } while (there < 5);
    ebi_cond_broadcast(&cond);
    for (i = 0; i < 5; i++) p_join(threads[i]);
    ebi_mutex_lock(&lock);
    begin = ebi_platform_mono_us();
    while (ebi_platform_mono_us() - begin < 20000) ebi_cond_wait(&cond, &lock, 5000);
    ebi_mutex_unlock(&lock);
    ebi_cond_fini(&cond);
    ebi_mutex_fini(&lock);
    PASS();
}

SUITE(platform)
{
    RUN_TEST(bus_without_a_thread_does_not_start);
    RUN_TEST(successor_of_a_lost_worker_is_made_later);
#ifndef _WIN32
    RUN_TEST(bus_without_a_lock_does_not_open);
#endif
    RUN_TEST(other_process_gets_nothing);
    RUN_TEST(sqlite_that_corrupts_is_refused);
    RUN_TEST(times_are_written_and_read_back);
    RUN_TEST(clocks_of_the_system_go_forward);
    RUN_TEST(waiting_ends_by_signal_or_by_time);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    P_RUN(platform);
    GREATEST_MAIN_END();
}
