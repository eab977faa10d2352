/* test_regress.c - one small test for each mistake that was found after it was made, by reading or
** by the fault ladders. What the ladders themselves repeat is not repeated here. */
static void yields(void);
#define EBI_YIELD() yields()
#include "proc.h"
#include <math.h>
#include <sched.h>

static int calls, failing;

static eb_result count(eb_delivery *d, void *user)
{
    (void)user;
    calls++;
    return failing > 0 && failing-- > 0 ? eb_fail(d, "not yet") : EB_OK;
}

static eb_message keyed(const char *type, const char *key)
{
    eb_message m = {0};
    m.type = type;
    m.ordering_key = key;
    return m;
}

static eb_bus *pumped(const char *path, t_time *t, int on_unmatched)
{
    eb_options o = t_timed(path, t);
    o.on_unmatched = on_unmatched;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 1000;
    calls = failing = 0;
    return t_open(&o);
}

/* a fails and waits; b and another a wait behind it; the handler of b goes. When a succeeds, b is
** ended by the policy, and the second a must get its turn all the same. */
TEST unmatched_event_passes_its_ordering_key_on(int policy)
{
    t_time t;
    eb_message m[3];
    eb_id sub;
    eb_bus *bus = pumped(t_path("key-unmatched"), &t, policy);
    m[0] = keyed("a", "k");
    m[1] = keyed("b", "k");
    m[2] = keyed("a", "k");
    failing = 1;
    t_subscribe(bus, "a", count, NULL);
    T_OK(eb_subscribe(bus, "b", count, NULL, NULL, &sub));
    T_OK(eb_start(bus));
    T_OK(eb_send(bus, m, 3, NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(1, calls);
    T_OK(eb_unsubscribe(bus, sub.str));
    t_advance(&t, 1000);
    T_PUMP(bus, EB_NONE, -1);
    ASSERT_EQ(3, calls);
    eb_destroy(bus);
    PASS();
}

/* An event lies in memory as ready; an operator moves it to the dead letters; its handler goes. The
** old copy must not end it a second time. */
TEST old_copy_of_a_moved_event_ends_nothing(int policy)
{
    t_time t;
    const char *path = t_path("moved-copy");
    eb_bus *bus = pumped(path, &t, policy);
    eb_id sub, second;
    T_OK(eb_subscribe(bus, "a", count, NULL, NULL, &sub));
    T_OK(eb_start(bus));
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* the file is known to be empty: what comes now is ready */
    t_post(bus, "a", NULL);
    second = t_post(bus, "a", NULL);
    T_OK(eb_dlq_move(eb_bus_store(bus), second.str, "operator"));
    T_OK(eb_unsubscribe(bus, sub.str));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_STATUS(EB_DLQ, bus, second);
    eb_destroy(bus);
    T_ROWS(1, path, "seq = 2");
    ASSERT_EQ(0, t_sql_int(path, "SELECT count(*) FROM finished WHERE seq = 2"));
    PASS();
}

typedef struct meter { /* an allocator that knows how much is out */
    size_t now, most;
} meter;

static void *metered(void *ptr, size_t size, void *user)
{
    meter *m = (meter *)user;
    size_t *block = ptr ? (size_t *)ptr - 2 : NULL;
    if (block) m->now -= block[0];
    if (size == 0) {
        free(block);
        return NULL;
    }
    block = (size_t *)realloc(block, size + 2 * sizeof *block);
    T_MUST(block != NULL);
    block[0] = size;
    m->now += size;
    if (m->now > m->most) m->most = m->now;
    return block + 2;
}

/* 50 MiB of events wait on disk. Memory stays within EB_READY_BYTES and a few events, whatever is
** left of what was read when the next batch wants more than that. */
TEST backlog_of_big_events_stays_within_the_memory_limit(int kib)
{
    const size_t big = (size_t)kib * 1024;
    const int n = 50 * 1024 / kib;
    const char *path = t_path("big");
    eb_options o = t_options(path);
    char *payload = (char *)malloc(big + 1);
    eb_bus *bus;
    meter m;
    int i;
    memset(&m, 0, sizeof m);
    T_MUST(payload != NULL);
    memset(payload, '7', big);
    payload[big] = 0;
    o.workers = EB_NONE;
    o.durability = EB_DURABLE_OFF;
    o.allocator.resize = metered;
    o.allocator.user = &m;
    calls = failing = 0;
    bus = t_open(&o);
    for (i = 0; i < n; i++) t_post(bus, "a", payload);
    t_subscribe(bus, "a", count, NULL);
    T_OK(eb_start(bus));
    m.most = m.now;
    T_OK(eb_drain(bus, EB_NONE));
    ASSERT_EQ(n, calls);
    ASSERT(m.most < EB_READY_BYTES + 4 * big);
    eb_destroy(bus);
    ASSERT_EQ(0, m.now);
    free(payload);
    PASS();
}

/* A bus that has given up its ownership keeps its hands off the claims of the next owner. */
TEST stopped_bus_does_not_revoke_the_claims_of_the_next(void)
{
    const char *path = t_path("two-owners");
    eb_options o = t_options(path);
    eb_bus *one, *two;
    o.workers = EB_NONE;
    one = t_open(&o);
    T_OK(eb_start(one));
    T_OK(eb_shutdown(one));
    two = t_run_with(&o, "a", count, NULL);
    t_post(two, "a", NULL);
    ASSERT_EQ(SQLITE_OK,
              t_sql(path, "UPDATE deliveries SET status='processing',token=77", NULL, 0));
    one->store.trust.must_reopen = 1; /* as after a failed write */
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(eb_bus_store(one), "no id", NULL));
    ASSERT_EQ(77, t_sql_int(path, "SELECT token FROM deliveries"));
    two->store.trust.must_reopen = 1; /* the owner itself takes back what it does not know */
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(eb_bus_store(two), "no id", NULL));
    ASSERT_EQ(0, t_sql_int(path, "SELECT count(token) FROM deliveries"));
    T_OK(eb_drain(two, EB_NONE));
    eb_destroy(one);
    eb_destroy(two);
    PASS();
}

static char order[16];

static eb_result write_down(eb_delivery *d, void *user)
{
    size_t n = strlen(order);
    (void)user;
    T_MUST(n + 1 < sizeof order);
    if (failing > 0 && failing-- > 0) return eb_fail(d, "not yet");
    order[n] = d->event->payload[1];
    order[n + 1] = 0;
    return EB_OK;
}

/* A fails and waits, B waits behind it, C has just been published. When A is done it is B's turn,
** whatever the dispatcher looks at first: due events or new ones, which alternate. */
TEST next_of_a_key_is_not_overtaken_by_a_newer_one(int others_before)
{
    static const char *const payload[] = {"\"A\"", "\"B\"", "\"C\""};
    t_time t;
    eb_message m = keyed("a", "k");
    eb_bus *bus = pumped(t_path("overtake"), &t, EB_UNMATCHED_KEEP);
    int i;
    t_subscribe(bus, "a", write_down, NULL);
    T_OK(eb_start(bus));
    for (i = 0; i < others_before; i++) {
        t_post(bus, "a", "\"x\"");
        T_OK(eb_pump(bus, 0, NULL));
    }
    order[0] = 0;
    failing = 1;
    for (i = 0; i < 3; i++) {
        m.payload = payload[i];
        T_OK(eb_send(bus, &m, 1, NULL));
        if (i < 2) T_OK(eb_pump(bus, 0, NULL));
    }
    t_advance(&t, 1000);
    for (i = 0; i < 6; i++) T_OK(eb_pump(bus, 0, NULL));
    ASSERT_STR_EQ("ABC", order);
    eb_destroy(bus);
    PASS();
}

static void *subscribe_b(void *bus)
{
    t_subscribe((eb_bus *)bus, "b", count, NULL);
    return NULL;
}

static void *post_a(void *bus)
{
    t_post((eb_bus *)bus, "a", NULL);
    return NULL;
}

/* A subscription and a publish share a commit. The subscription makes the dispatcher read the file
** from its beginning, for the event that waits for it; the publish, born claimed, must not make it
** believe that it has. */
TEST subscription_gets_what_waited_for_it_beside_a_publish(void)
{
    eb_options o = t_options(t_path("rescan"));
    pthread_t subscriber, poster;
    eb_bus *bus;
    o.workers = 1;
    calls = failing = 0;
    bus = t_open(&o);
    t_subscribe(bus, "a", count, NULL);
    t_post(bus, "b", NULL);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "a", NULL, NULL));
    ebi_writer_enter(&bus->store);
    pthread_create(&subscriber, NULL, subscribe_b, bus);
    while (t_queued(bus) < 1) sched_yield();
    pthread_create(&poster, NULL, post_a, bus);
    while (t_queued(bus) < 2) sched_yield();
    ebi_writer_leave(&bus->store);
    pthread_join(subscriber, NULL);
    pthread_join(poster, NULL);
    T_OK(eb_drain(bus, 20000));
    ASSERT_EQ(3, calls);
    eb_destroy(bus);
    PASS();
}

/* A publish without a copy in memory and, behind it in the same commit, a claim that does not read
** the log. "There is more on disk", which the publish says, must outlive the claim. */
TEST claim_does_not_overlook_what_was_published_meanwhile(void)
{
    eb_options o = t_options(t_path("overlook"));
    pthread_t poster;
    eb_bus *bus;
    o.workers = 1;
    o.idle_poll_ms = EB_NONE;
    calls = failing = 0;
    bus = t_run_with(&o, "a", count, NULL);
    T_OK(eb_publish(bus, "a", NULL, NULL));
    ebi_writer_enter(&bus->store);
    ebi_store_lock(&bus->store);
    bus->lane.win.disk_more = 1; /* no copy is made: events would overtake those on disk */
    ebi_store_unlock(&bus->store);
    pthread_create(&poster, NULL, post_a, bus);
    while (t_queued(bus) < 1) sched_yield();
    ebi_store_lock(&bus->store);
    bus->lane.win.disk_more = 0;
    bus->lane.win.next_due_ms = 0; /* something may be due */
    ebi_cond_signal(&bus->alarms.work);
    ebi_store_unlock(&bus->store);
    while (t_queued(bus) < 2) sched_yield();
    ebi_writer_leave(&bus->store);
    pthread_join(poster, NULL);
    T_OK(eb_drain(bus, 20000));
    ASSERT_EQ(2, calls);
    eb_destroy(bus);
    PASS();
}

static eb_result fail_once(eb_delivery *d, void *user)
{
    (void)user;
    return __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == 0 ? eb_fail(d, "not yet") : EB_OK;
}

static void *publish_a(void *bus)
{
    T_MUST(eb_publish((eb_bus *)bus, "a", NULL, NULL) == EB_ERR_SHUTDOWN);
    return NULL;
}

/* A publish and, behind it in the same commit, a claim that reads the file: it finds the event
** there, and the copy that the publisher made must not be a second one, or it runs at once when the
** first has failed and should wait. */
TEST event_claimed_in_the_commit_that_stores_it_is_there_once(void)
{
    eb_options o = t_options(t_path("once"));
    eb_stats stats;
    pthread_t poster;
    eb_bus *bus;
    o.workers = 1;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600 * 1000;
    calls = failing = 0;
    bus = t_open(&o);
    t_subscribe(bus, "a", fail_once, NULL);
    t_subscribe(bus, "b", t_succeeds, NULL);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "b", NULL, NULL));
    ebi_writer_enter(&bus->store);
    ebi_store_lock(&bus->store);
    bus->crew.idle -= 1000; /* nobody to be born claimed for */
    ebi_store_unlock(&bus->store);
    pthread_create(&poster, NULL, publish_a, bus); /* the outcome is on disk at once */
    while (t_queued(bus) < 1) sched_yield();
    ebi_store_lock(&bus->store);
    bus->lane.win.disk_more = 1;
    ebi_cond_signal(&bus->alarms.work);
    ebi_store_unlock(&bus->store);
    while (t_queued(bus) < 2) sched_yield();
    ebi_writer_leave(&bus->store);
    do {
        stats = t_stats(bus);
    } while (stats.failed_attempts == 0);
    ebi_store_lock(&bus->store);
    bus->crew.idle += 1000;
    ebi_store_unlock(&bus->store);
    T_OK(eb_publish(bus, "b", NULL, NULL));
    ASSERT_EQ(1, __atomic_load_n(&calls, __ATOMIC_SEQ_CST));
    T_OK(eb_shutdown(bus));
    pthread_join(poster, NULL);
    eb_destroy(bus);
    PASS();
}

static int let_go;

static eb_result stuck(eb_delivery *d, void *user)
{
    (void)d, (void)user;
    while (!__atomic_load_n(&let_go, __ATOMIC_SEQ_CST)) sched_yield();
    return EB_OK;
}

/* More handlers are stuck than threads may be left behind. The others go on nevertheless. */
TEST stuck_handlers_of_many_subscriptions_stop_no_other(void)
{
    enum { STUCK = EB_LOST_MAX + 3 };
    eb_options o = t_options(t_path("stuck"));
    char type[16];
    eb_bus *bus;
    int i;
    o.workers = 1;
    o.handler_timeout_ms = 20;
    o.retry.max_retries = EB_NONE;
    o.shutdown_timeout_ms = 20000;
    calls = failing = 0;
    bus = t_run_with(&o, "a", count, NULL);
    for (i = 0; i < STUCK; i++) {
        snprintf(type, sizeof type, "stuck.%d", i);
        t_subscribe(bus, type, stuck, NULL);
        T_IS(EB_DEAD, eb_publish(bus, type, NULL, NULL));
    }
    T_OK(eb_publish(bus, "a", NULL, NULL));
    ASSERT_EQ(1, calls);
    __atomic_store_n(&let_go, 1, __ATOMIC_SEQ_CST);
    T_OK(eb_shutdown(bus));
    eb_destroy(bus);
    PASS();
}

/* In a damaged file something may be due that has no event. Looking for it again and again would
** keep eb_pump from ever returning; the others run, and next_ms says when to look again. */
TEST due_row_without_an_event_does_not_make_it_spin(void)
{
    const char *path = t_path("due-nothing");
    t_time t;
    int64_t next;
    eb_bus *bus = pumped(path, &t, EB_UNMATCHED_KEEP);
    t_subscribe(bus, "a", count, NULL);
    T_OK(eb_start(bus));
    ASSERT_EQ(SQLITE_OK, t_sql(path, "INSERT INTO deliveries(seq,status,due_ms)"
                                     " VALUES(1000000,'pending',1)", NULL, 0));
    T_OK(eb_pump(bus, EB_NONE, &next));
    ASSERT(next > 0);
    t_post(bus, "a", NULL);
    t_advance(&t, next);
    T_OK(eb_pump(bus, EB_NONE, &next));
    ASSERT_EQ(1, calls);
    eb_destroy(bus);
    PASS();
}

SUITE(regress)
{
    static const int kib[] = {256, 167, 100, 60}; /* batches double: the others do not divide */
    char suffix[20];
    size_t i;
    greatest_set_test_suffix("done");
    RUN_TEST1(unmatched_event_passes_its_ordering_key_on, EB_UNMATCHED_DONE);
    greatest_set_test_suffix("dlq");
    RUN_TEST1(unmatched_event_passes_its_ordering_key_on, EB_UNMATCHED_DLQ);
    greatest_set_test_suffix("done");
    RUN_TEST1(old_copy_of_a_moved_event_ends_nothing, EB_UNMATCHED_DONE);
    greatest_set_test_suffix("dlq");
    RUN_TEST1(old_copy_of_a_moved_event_ends_nothing, EB_UNMATCHED_DLQ);
    for (i = 0; i < sizeof kib / sizeof *kib; i++) {
        snprintf(suffix, sizeof suffix, "%d_KiB", kib[i]);
        greatest_set_test_suffix(suffix);
        RUN_TEST1(backlog_of_big_events_stays_within_the_memory_limit, kib[i]);
    }
    RUN_TEST(stopped_bus_does_not_revoke_the_claims_of_the_next);
    RUN_TEST(claim_does_not_overlook_what_was_published_meanwhile);
    greatest_set_test_suffix("due_first");
    RUN_TEST1(next_of_a_key_is_not_overtaken_by_a_newer_one, 0);
    greatest_set_test_suffix("new_first");
    RUN_TEST1(next_of_a_key_is_not_overtaken_by_a_newer_one, 1);
    RUN_TEST(subscription_gets_what_waited_for_it_beside_a_publish);
    RUN_TEST(event_claimed_in_the_commit_that_stores_it_is_there_once);
    RUN_TEST(stuck_handlers_of_many_subscriptions_stop_no_other);
    RUN_TEST(due_row_without_an_event_does_not_make_it_spin);
}

/* ---- found by an audit ----------------------------------------------------------------------- */

static void (*at_yield)(void); /* called where the bus may be interrupted */

static void yields(void)
{
    void (*func)(void) = __atomic_load_n(&at_yield, __ATOMIC_SEQ_CST);
    if (func) func();
}

static eb_options driven(const char *path, int pump)
{
    eb_options o = t_options(path);
    o.workers = pump ? EB_NONE : 1;
    o.durability = EB_DURABLE_OFF;
    return o;
}

static void post_some(eb_bus *bus, int n)
{
    while (n-- > 0) t_post(bus, "a", NULL);
}

enum { BACKUP_BEFORE_START, BACKUP_WHILE_STARTED, POSTED_SINCE };

/* Twenty events wait in a backup that has the same id key, and whose last seq is not below what the
** dispatcher has passed: it was made when all of them were there, or another process has published
** since. Who restores it wants them to run, also when nobody asks. */
TEST restored_file_with_a_known_last_seq_is_noticed(int pump, int when, int asked)
{
    char old[440];
    const char *path = t_path("noticed");
    eb_options o = driven(path, pump);
    t_seen seen = {0};
    eb_bus *bus, *other;
    int64_t end;
    t_copy(old, sizeof old, t_path("noticed-old"));
    o.on_unmatched = EB_UNMATCHED_KEEP;
    o.idle_poll_ms = asked ? EB_NONE : 10;
    bus = t_open(&o);
    if (when != BACKUP_BEFORE_START) T_OK(eb_start(bus));
    if (when != POSTED_SINCE) post_some(bus, 20);
    p_restore(path, old);
    t_subscribe(bus, "a", t_watch, &seen);
    if (when == BACKUP_BEFORE_START) T_OK(eb_start(bus));
    if (when == POSTED_SINCE) post_some(bus, 20);
    T_OK(t_settle(bus));
    T_EQ(20, p_get(&seen.calls));

    p_restore(old, path);
    if (when == POSTED_SINCE) {
        other = t_open(&o);
        post_some(other, 20);
        eb_destroy(other);
    }
    if (asked) T_OK(t_settle(bus));
    for (end = p_ms() + P_SLACK_MS; p_get(&seen.calls) < 40 && p_ms() < end && !asked; p_nap(1))
        if (pump) T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(40, p_get(&seen.calls));
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_ROWS(20, path, "status = 'done' AND retry_count = 0");
    T_EQ(20, t_stored(path));
    PASS();
}

/* A table of ours that drops rows in silence: EB_OK about an event that is not there. */
TEST table_with_a_conflict_clause_is_refused(const char *table, const char *columns)
{
    const char *path = t_path("conflict");
    eb_options o = driven(path, 1);
    eb_bus *bus = t_open(&o);
    eb_store *store = NULL;
    char sql[900];
    int64_t before;
    eb_destroy(bus);
    bus = NULL;
    snprintf(sql, sizeof sql, "PRAGMA legacy_alter_table=ON; BEGIN; DROP TABLE %s;"
                              "CREATE TABLE %s(%s); COMMIT", table, table, columns);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    if (strcmp(table, "event_log") == 0)
        T_EQ(SQLITE_OK, t_sql(path, "CREATE UNIQUE INDEX event_log_key ON"
                                    " event_log(idempotency_key) WHERE idempotency_key IS NOT NULL",
                              NULL, 0));
    before = t_sql_int(path, "PRAGMA schema_version");
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    T_SAYS(table);
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    T_EQ(before, t_sql_int(path, "PRAGMA schema_version")); /* untouched */
    PASS();
}

/* ---- time limits ----------------------------------------------------------------------------- */

static struct {
    int held, release, late;
} stall;

/* Holds the thread that says what befell `first`: the keeper. */
static void stalls(const eb_log_entry *e, void *user)
{
    (void)user;
    if (!e->type || strcmp(e->type, "first") != 0 || e->attempt == 0) return;
    p_set(&stall.held, 1);
    p_until(&stall.release, 1);
}

static eb_result overdue(eb_delivery *d, void *user)
{
    (void)user;
    if (strcmp(d->event->type, "first") == 0) p_until(&stall.release, 1);
    else p_nap(60);
    return EB_OK;
}

/* The keeper is busy while a handler returns EB_OK long after its limit: a timeout all the same. */
TEST handler_that_returns_late_unnoticed_has_timed_out(void)
{
    eb_options o = driven(t_path("unnoticed"), 0);
    char text[300];
    eb_id id;
    eb_bus *bus;
    memset(&stall, 0, sizeof stall);
    o.workers = 3;
    o.handler_timeout_ms = 30;
    o.retry.max_retries = EB_NONE;
    o.logger.func = stalls;
    bus = t_run_with(&o, "*", overdue, NULL);
    t_post(bus, "first", NULL);
    P_EVENTUALLY(p_get(&stall.held));
    id = t_post(bus, "second", NULL);
    T_IS(EB_DEAD, eb_wait(bus, id.str, P_LONG_MS));
    T_EQ(1, t_failures(eb_bus_store(bus), id.str, 0, text, sizeof text));
    ASSERT(strstr(text, "time") != NULL);
    p_set(&stall.release, 1);
    eb_destroy(bus);
    PASS();
}

/* ---- an operator beside a long eb_pump ------------------------------------------------------- */

enum { LONG_PUMP = 250, GIVEN_UP = 100, EACH_MS = 20, LOOKS_MS = 50 };

static struct {
    t_time time;
    eb_store *store; /* as in another process */
    eb_id id[LONG_PUMP];
    int started, late;
    int64_t moved_ms;
} ops;

/* In the third one of a long pump, an operator elsewhere gives up what waits at its end. */
static eb_result slow(eb_delivery *d, void *user)
{
    int i, n = atoi(d->event->payload);
    (void)user;
    if (n < 0) return EB_OK;
    ops.started++;
    if (n >= LONG_PUMP - GIVEN_UP) ops.late += ops.time.mono_ms > ops.moved_ms + LOOKS_MS;
    t_advance(&ops.time, EACH_MS);
    if (n != 2) return EB_OK;
    for (i = LONG_PUMP - GIVEN_UP; i < LONG_PUMP; i++)
        T_MUST(eb_dlq_move(ops.store, ops.id[i].str, "given up") == EB_OK);
    ops.moved_ms = ops.time.mono_ms;
    return EB_OK;
}

TEST long_pump_starts_nothing_that_was_given_up_elsewhere(void)
{
    eb_options o = driven(t_path("long-pump"), 1);
    char payload[12];
    eb_bus *bus;
    int i;
    memset(&ops, 0, sizeof ops);
    o.clock = t_clock(&ops.time);
    o.idle_poll_ms = LOOKS_MS;
    bus = t_run_with(&o, "a", slow, NULL);
    T_OK(eb_store_open(&ops.store, &o));
    for (i = 0; i < 600; i++) t_post(bus, "a", "-1"); /* quick ones: batches grow */
    T_OK(eb_drain(bus, EB_NONE));
    for (i = 0; i < LONG_PUMP; i++) {
        snprintf(payload, sizeof payload, "%d", i);
        ops.id[i] = t_post(bus, "a", payload);
    }
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(LONG_PUMP - GIVEN_UP, ops.started);
    T_EQ(0, ops.late);
    eb_store_close(ops.store);
    eb_destroy(bus);
    PASS();
}

/* ---- the end under a foreign lock ------------------------------------------------------------ */

static sqlite3 *lock_file(const char *path)
{
    sqlite3 *db = NULL;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    return db;
}

static eb_result fails_always(eb_delivery *d, void *user)
{
    (void)user;
    p_add(&calls, 1);
    return eb_fail(d, "no");
}

enum { NOTHING_LEFT, OUTCOME_LEFT };

/* Never longer than shutdown_timeout_ms + busy_timeout_ms: whatever is left to be written, whoever
** has the file. With the simulated clock, to the millisecond. */
TEST shutdown_under_a_foreign_lock_ends_in_time(int pump, int left)
{
    const char *path = t_path("end");
    eb_options o = driven(path, pump);
    int64_t begin, took, slack = pump ? 0 : 400;
    sqlite3 *lock;
    eb_result rc;
    eb_bus *bus;
    t_time t;
    calls = failing = 0;
    if (pump) o.clock = t_clock(&t);
    o.busy_timeout_ms = 600;
    o.shutdown_timeout_ms = 50;
    o.retry.max_retries = 50;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 20;
    bus = t_open(&o);
    t_subscribe(bus, "a", t_succeeds, NULL);
    t_subscribe(bus, "b", fails_always, NULL);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "a", NULL, NULL));
    if (left == OUTCOME_LEFT) {
        t_post(bus, "b", NULL);
        if (pump) T_OK(eb_pump(bus, EB_NONE, NULL));
        P_EVENTUALLY(p_get(&calls) > 0);
    }
    lock = lock_file(path);
    if (left == OUTCOME_LEFT && pump) t_advance(&t, 20);
    else if (left == OUTCOME_LEFT) p_nap(40); /* it is due, and cannot be claimed */
    begin = pump ? t.mono_ms : p_ms();
    rc = eb_shutdown(bus);
    took = (pump ? t.mono_ms : p_ms()) - begin;
    ASSERT(rc == EB_OK || rc == EB_ERR_TIMEOUT || rc == EB_ERR_BUSY);
    P_WITHIN(0, 650 + slack, took);
    begin = pump ? t.mono_ms : p_ms();
    eb_destroy(bus);
    took = (pump ? t.mono_ms : p_ms()) - begin;
    P_WITHIN(0, 650 + slack, took);
    sqlite3_close(lock);
    PASS();
}

/* ---- crashes --------------------------------------------------------------------------------- */

/* What an operator set to processing is judged like an event of that subscription: `most` attempts,
** whatever the bus has. */
TEST event_set_to_processing_has_the_attempts_of_its_subscription(int on_bus, int on_subscription)
{
    const char *path = t_path("by-hand");
    eb_options o = driven(path, 1);
    eb_subscribe_options s;
    eb_id id;
    eb_bus *bus;
    t_time t;
    memset(&s, 0, sizeof s);
    calls = failing = 0;
    o.clock = t_clock(&t);
    o.retry.max_retries = on_bus;
    s.retry.max_retries = on_subscription;
    bus = t_open(&o);
    id = t_post(bus, "a", NULL);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'processing'", NULL, 0));
    t_subscribe(bus, "other", t_succeeds, NULL);
    T_OK(eb_subscribe(bus, "a", count, NULL, &s, NULL));
    T_OK(eb_start(bus));
    T_OK(eb_drain(bus, EB_NONE));
    T_STATUS(on_subscription == EB_NONE ? EB_DLQ : EB_DONE, bus, id);
    T_EQ(1, t_failures(eb_bus_store(bus), id.str, 0, NULL, 0));
    T_EQ(on_subscription == EB_NONE ? 0 : 1, calls);
    eb_destroy(bus);
    PASS();
}

static const char *starts_path;

static int starts_so_far(void)
{
    FILE *f = fopen(starts_path, "r");
    int n = 0;
    if (!f) return 0;
    while (getc(f) != EOF) n++;
    fclose(f);
    return n;
}

/* Fails in the ordinary way at its first, third, ... start, and ends its process at the others. */
static eb_result moody(eb_delivery *d, void *user)
{
    FILE *f;
    (void)user;
    if (strcmp(d->event->type, "moody") != 0) return EB_OK;
    f = fopen(starts_path, "a");
    T_MUST(f != NULL);
    putc('x', f);
    fclose(f);
    if (starts_so_far() % 2 == 0) p_die();
    return eb_fail(d, "in the ordinary way");
}

/* moody path starts round: runs until nothing is left; the event comes due beside others, which are
** claimed in batches. */
static int child_moody(char **arg)
{
    eb_options o = driven(arg[0], 1);
    eb_bus *bus;
    t_time t;
    int i, k;
    starts_path = arg[1];
    o.clock = t_clock(&t);
    t_advance(&t, 1000000 * atoi(arg[2]));
    o.retry.base_delay_ms = o.retry.max_delay_ms = 1000;
    bus = t_run_with(&o, "*", moody, NULL);
    for (i = 0; i < 4; i++) {
        for (k = 0; k < 300; k++) t_post(bus, "other", NULL);
        T_DO(eb_pump(bus, EB_NONE, NULL));
        for (k = 0; k < 50; k++) t_post(bus, "other", NULL);
        t_advance(&t, 1500);
        T_DO(eb_pump(bus, EB_NONE, NULL));
    }
    eb_destroy(bus);
    return 0;
}

/* An event that may end its process starts at most max_retries + 2 times, also if it fails in the
** ordinary way in between. */
TEST suspect_stays_one_until_it_has_succeeded(void)
{
    char starts[440], round[12];
    const char *path = t_path("moody");
    eb_options o = driven(path, 1);
    eb_bus *bus;
    eb_id id;
    int i, status = -1;
    t_copy(starts, sizeof starts, t_path("moody-starts"));
    starts_path = starts;
    bus = t_open(&o);
    id = t_post(bus, "moody", NULL);
    eb_destroy(bus);
    for (i = 0; i < 12; i++) {
        snprintf(round, sizeof round, "%d", i);
        status = p_end(p_spawn("moody", path, starts, round, NULL));
        if (!p_is_killed(status)) break;
    }
    T_EQ(0, status);
    P_WITHIN(2, 3 + 2, starts_so_far());
    bus = t_open(&o);
    T_STATUS(EB_DLQ, bus, id);
    T_EQ(4, t_failures(eb_bus_store(bus), id.str, 0, NULL, 0));
    eb_destroy(bus);
    PASS();
}

/* ---- what the bus says ----------------------------------------------------------------------- */

TEST mistyped_types_are_said_64_times_and_once_more(void)
{
    t_time t;
    t_log log;
    eb_options o = driven(t_path("mistyped"), 1);
    char type[12];
    eb_bus *bus;
    int i, k, warnings = 0;
    o.clock = t_clock(&t);
    o.logger = t_logger(&log);
    bus = t_open(&o);
    T_OK(eb_start(bus));
    for (k = 0; k < 2; k++) {
        for (i = 0; i < 70; i++) {
            snprintf(type, sizeof type, "t%d", i);
            t_post(bus, type, NULL);
            T_OK(eb_pump(bus, EB_NONE, NULL));
        }
    }
    T_EQ(65, log.count);
    for (i = 0; i < 65; i++) warnings += log.items[i].level == EB_LOG_WARN;
    T_EQ(65, warnings);
    ASSERT_STR_EQ("t63", log.items[63].type);
    ASSERT_STR_EQ("t64", log.items[64].type);
    ASSERT(strcmp(log.items[63].message, log.items[64].message) != 0);
    ASSERT(strstr(log.items[64].message, "further") != NULL);
    T_EQ(140, t_stats(bus).unmatched);
    eb_destroy(bus);
    PASS();
}

/* There are no named subscriptions yet: asking for one's events finds none, and not all. */
TEST log_of_a_named_subscription_is_empty(void)
{
    eb_options o = driven(t_path("named"), 1);
    eb_event_list list;
    eb_query q;
    eb_id id;
    eb_bus *bus = t_open(&o);
    memset(&q, 0, sizeof q);
    t_subscribe(bus, "a", t_succeeds, NULL);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "a", NULL, NULL));
    id = t_post(bus, "a", NULL);
    t_post(bus, "a", NULL);
    T_OK(eb_dlq_move(eb_bus_store(bus), id.str, NULL));
    q.subscription = "billing";
    q.want_total = 1;
    for (q.newest_first = 0; q.newest_first < 2; q.newest_first++) {
        for (q.statuses = 0; q.statuses < 1u << (EB_DLQ + 1); q.statuses++) {
            T_OK(eb_log_read(eb_bus_store(bus), &q, &list));
            T_EQ(0, list.count);
            T_EQ(0, list.total);
            eb_event_list_free(&list);
        }
    }
    eb_destroy(bus);
    PASS();
}

TEST multiplier_without_end_is_an_argument_error(void)
{
    eb_options o = driven(t_path("multiplier"), 1);
    eb_subscribe_options s;
    eb_bus *bus = NULL;
    memset(&s, 0, sizeof s);
    o.retry.multiplier = HUGE_VAL;
    T_IS(EB_ERR_ARG, eb_open(&bus, &o));
    o.retry.multiplier = 0;
    bus = t_open(&o);
    s.retry.multiplier = HUGE_VAL;
    T_IS(EB_ERR_ARG, eb_subscribe(bus, "a", t_succeeds, NULL, &s, NULL));
    s.retry.multiplier = 1e300;
    T_OK(eb_subscribe(bus, "a", t_succeeds, NULL, &s, NULL));
    eb_destroy(bus);
    PASS();
}

#ifndef _WIN32
/* A relative path means what it meant when the file was opened, also for what is opened later. */
TEST relative_path_outlives_a_change_of_directory(int pump)
{
    char *slash, folder[440], here[1000];
    const char *path = t_path("relative");
    eb_event_list list;
    eb_options o;
    eb_id id;
    eb_bus *bus;
    T_MUST(getcwd(here, sizeof here) != NULL);
    t_copy(folder, sizeof folder, path);
    slash = strrchr(folder, '/');
    T_MUST(slash != NULL);
    *slash = 0;
    T_MUST(chdir(folder) == 0);
    o = driven(slash + 1, pump);
    bus = t_open(&o);
    id = t_post(bus, "a", NULL);
    T_MUST(chdir("/") == 0);
    T_OK(eb_get(eb_bus_store(bus), id.str, &list));
    T_EQ(1, list.count);
    eb_event_list_free(&list);
    t_subscribe(bus, "a", t_succeeds, NULL);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    T_OK(eb_publish(bus, "a", NULL, NULL));
    T_ROWS(2, path, "status = 'done'");
    eb_destroy(bus);
    T_MUST(chdir(here) == 0);
    PASS();
}
#endif

/* ---- what was right, and had no test --------------------------------------------------------- */

/* Nothing is left but what waits for a paused subscription: no use in waiting for that. */
TEST drain_names_the_paused_subscription_that_the_rest_waits_for(int keys)
{
    eb_options o = driven(t_path("paused"), 0);
    eb_message m[EB_LOST_MAX + 4];
    char name[EB_LOST_MAX + 4][12];
    p_gate gate = {0, 0, 0};
    eb_stats stats;
    eb_bus *bus;
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < EB_LOST_MAX + 4; i++) {
        snprintf(name[i], sizeof name[i], "k%d", i);
        m[i].type = "hang.x";
        if (keys) m[i].ordering_key = name[i];
    }
    o.handler_timeout_ms = 10;
    o.retry.max_retries = EB_NONE;
    bus = t_open(&o);
    t_subscribe(bus, "hang.*", p_wait_at, &gate);
    t_subscribe(bus, "fine", t_succeeds, NULL);
    T_OK(eb_start(bus));
    T_OK(eb_send(bus, m, EB_LOST_MAX + 4, NULL));
    t_post(bus, "fine", NULL);
    T_IS(EB_ERR_STATE, eb_drain(bus, P_LONG_MS));
    T_SAYS("hang.*");
    stats = t_stats(bus);
    T_EQ(1, stats.paused);
    T_EQ(1, stats.done);
    T_EQ(EB_LOST_MAX + 4, stats.dlq + stats.pending + stats.processing);
    ASSERT(stats.dlq >= EB_LOST_MAX);
    p_set(&gate.release, 1);
    P_EVENTUALLY(p_get(&gate.calls) == EB_LOST_MAX + 4); /* its threads come back: the rest runs */
    P_EVENTUALLY(t_stats(bus).lost_workers == 0);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    PASS();
}

static eb_result drained;

static void *drain_it(void *bus)
{
    __atomic_store_n(&drained, eb_drain((eb_bus *)bus, P_LONG_MS), __ATOMIC_SEQ_CST);
    return NULL;
}

/* The subscription goes on while eb_drain looks: then the rest is to be waited for. eb_drain stands
** between its two looks, and nobody can claim yet. */
TEST drain_beside_a_paused_subscription_that_goes_on_waits(void)
{
    eb_options o = driven(t_path("unpaused"), 0);
    p_gate gate = {0, 0, 0};
    pthread_t thread;
    eb_bus *bus;
    int i;
    o.handler_timeout_ms = 10;
    o.retry.max_retries = EB_NONE;
    bus = t_run_with(&o, "hang", p_wait_at, &gate);
    for (i = 0; i < EB_LOST_MAX + 4; i++) t_post(bus, "hang", NULL);
    T_IS(EB_ERR_STATE, eb_drain(bus, P_LONG_MS));
    ebi_mutex_lock(&bus->store.read_lock);
    thread = p_go(drain_it, bus);
    p_nap(50); /* it waits for that */
    ebi_writer_enter(&bus->store);
    p_set(&gate.release, 1);
    for (i = 1; i;) {
        ebi_store_lock(&bus->store);
        i = bus->subs.first->paused || bus->lane.win.parking.paused;
        ebi_store_unlock(&bus->store);
        p_nap(1);
    }
    ebi_mutex_unlock(&bus->store.read_lock);
    p_nap(50); /* it has looked */
    ebi_writer_leave(&bus->store);
    p_join(thread);
    T_EQ(EB_OK, drained);
    T_EQ(EB_LOST_MAX + 4, p_get(&gate.calls));
    eb_destroy(bus);
    PASS();
}

/* The head of a key is snoozed when eb_drain looks at memory, and done when it looks at the file: the
** next of the key runs, though no row says that anything is left. */
static struct {
    int heads;
    p_gate next;
} in_line;

static eb_result sleeps_once(eb_delivery *d, void *user)
{
    (void)user;
    if (strcmp(d->event->payload, "2") == 0) return p_wait_at(d, &in_line.next);
    return p_add(&in_line.heads, 1) == 1 ? eb_snooze(d, 300) : EB_OK;
}

TEST drain_beside_a_head_that_comes_back_waits(void)
{
    eb_options o = driven(t_path("head-back"), 0);
    eb_message m[2];
    pthread_t thread;
    eb_bus *bus;
    int drains = 0;
    memset(&in_line, 0, sizeof in_line);
    drained = EB_EMPTY;
    bus = t_run_with(&o, "a", sleeps_once, NULL);
    m[0] = t_message("a", "1");
    m[1] = t_message("a", "2");
    m[0].ordering_key = m[1].ordering_key = "K";
    T_OK(eb_send(bus, m, 2, NULL));
    P_EVENTUALLY(p_get(&in_line.heads) == 1);
    ebi_mutex_lock(&bus->store.read_lock);
    thread = p_go(drain_it, bus);
    while (!drains) {
        ebi_store_lock(&bus->store);
        drains = bus->alarms.drainers;
        ebi_store_unlock(&bus->store);
        p_nap(1);
    }
    P_EVENTUALLY(p_get(&in_line.next.entered)); /* 300 ms later: it waits to look at the file */
    ebi_mutex_unlock(&bus->store.read_lock);
    p_nap(50);
    T_EQ(EB_EMPTY, __atomic_load_n(&drained, __ATOMIC_SEQ_CST)); /* it still waits */
    p_set(&in_line.next.release, 1);
    p_join(thread);
    T_EQ(EB_OK, drained);
    eb_destroy(bus);
    PASS();
}

enum { DEAD_ONES = 700 }; /* eb_dlq_retry_all goes on in steps of 200 */

static struct {
    eb_bus *bus;
    int calls, steps, armed;
    int64_t last, down;
    char seen[DEAD_ONES + 1];
} again;

static eb_result rejects(eb_delivery *d, void *user)
{
    (void)user;
    T_MUST(d->event->seq >= 1 && d->event->seq <= DEAD_ONES);
    again.calls++;
    again.down += d->event->seq < again.last;
    again.last = d->event->seq;
    again.seen[d->event->seq]++;
    return eb_reject(d, "again");
}

/* Between two steps: everything that came back dies again. */
static void pump_between(void)
{
    if (!again.armed) return;
    again.armed = 0;
    again.steps++;
    T_DO(eb_pump(again.bus, EB_NONE, NULL));
    again.armed = 1;
}

TEST retry_all_takes_each_dead_letter_once_though_it_dies_again(void)
{
    eb_options o = driven(t_path("again"), 1);
    eb_store *store = NULL;
    int64_t n = 0;
    t_time t;
    int i, others = 0;
    memset(&again, 0, sizeof again);
    o.clock = t_clock(&t);
    again.bus = t_run_with(&o, "a", rejects, NULL);
    T_OK(eb_store_open(&store, &o));
    post_some(again.bus, DEAD_ONES);
    T_OK(eb_drain(again.bus, EB_NONE));
    T_EQ(DEAD_ONES, again.calls);
    memset(again.seen, 0, sizeof again.seen);
    again.last = again.down = again.calls = 0;
    again.armed = 1;
    __atomic_store_n(&at_yield, pump_between, __ATOMIC_SEQ_CST);
    T_OK(eb_dlq_retry_all(store, NULL, &n));
    __atomic_store_n(&at_yield, (void (*)(void))NULL, __ATOMIC_SEQ_CST);
    T_EQ(DEAD_ONES, n);
    P_WITHIN(4, 20, again.steps); /* the steps were pumped between */
    T_OK(eb_drain(again.bus, EB_NONE));
    T_EQ(DEAD_ONES, again.calls);
    for (i = 1; i <= DEAD_ONES; i++) others += again.seen[i] != 1;
    T_EQ(0, others);
    T_EQ(0, again.down);
    eb_store_close(store);
    eb_destroy(again.bus);
    PASS();
}

typedef struct count_of { /* as `meter`, for threads */
    int64_t now, most;
} count_of;

static void *counted(void *ptr, size_t size, void *user)
{
    count_of *c = (count_of *)user;
    int64_t *block = ptr ? (int64_t *)ptr - 2 : NULL, now, most;
    if (block) __atomic_sub_fetch(&c->now, block[0], __ATOMIC_SEQ_CST);
    if (size == 0) {
        free(block);
        return NULL;
    }
    block = (int64_t *)realloc(block, size + 2 * sizeof *block);
    T_MUST(block != NULL);
    block[0] = (int64_t)size;
    now = __atomic_add_fetch(&c->now, block[0], __ATOMIC_SEQ_CST);
    most = __atomic_load_n(&c->most, __ATOMIC_SEQ_CST);
    while (now > most && !__atomic_compare_exchange_n(&c->most, &most, now, 0, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST)) continue;
    return block + 2;
}

static eb_result naps(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_nap(p_add(&calls, 1) < 50 ? 2 : 0);
    return EB_OK;
}

/* One batch far larger than what may be in memory, on a bus that dispatches. */
TEST big_batch_on_a_started_bus_stays_within_the_memory_limit(int pump, int n)
{
    enum { MOST = 300, MIB = 1 << 20 };
    eb_options o = driven(t_path("batch"), pump);
    static eb_message m[MOST];
    char *payload = (char *)malloc(MIB + 1);
    count_of c;
    eb_bus *bus;
    int i;
    memset(&c, 0, sizeof c);
    memset(m, 0, sizeof m);
    T_MUST(payload != NULL && n <= MOST);
    memset(payload, '7', MIB);
    payload[MIB] = 0;
    for (i = 0; i < n; i++) {
        m[i].type = "a";
        m[i].payload = payload;
        m[i].ordering_key = i % 2 ? "k" : NULL;
    }
    calls = 0;
    o.allocator.resize = counted;
    o.allocator.user = &c;
    bus = t_run_with(&o, "a", naps, NULL);
    T_OK(eb_send(bus, m, (size_t)n, NULL));
    T_OK(t_settle(bus));
    T_EQ(n, p_get(&calls));
    eb_destroy(bus);
    P_WITHIN(1, 3 * EB_READY_BYTES, c.most);
    T_EQ(0, c.now);
    free(payload);
    PASS();
}

static const char log_columns[] =
    "seq INTEGER PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL, payload TEXT NOT NULL,"
    " metadata TEXT, ordering_key TEXT, idempotency_key TEXT, producer TEXT, deliver_at_ms INTEGER,"
    " created_at TEXT NOT NULL, UNIQUE(type) ON CONFLICT ";

SUITE(audit)
{
    static const char *const when_names[] = {"before_start", "while_started", "posted_since"};
    static const char *const clauses[] = {"IGNORE", "REPLACE"};
    char suffix[80], columns[500];
    int i, k, pump;
    SET_TEARDOWN(p_reap, NULL);
    for (i = BACKUP_BEFORE_START; i <= POSTED_SINCE; i++) {
        for (k = 0; k < 4; k++) {
            snprintf(suffix, sizeof suffix, "%s_%s_%s", when_names[i], k & 1 ? "pump" : "threads",
                     k & 2 ? "asked" : "by_itself");
            greatest_set_test_suffix(suffix);
            RUN_TESTp(restored_file_with_a_known_last_seq_is_noticed, k & 1, i, k & 2);
        }
    }
    for (i = 0; i < 2; i++) {
        snprintf(columns, sizeof columns, "%s%s", log_columns, clauses[i]);
        greatest_set_test_suffix(clauses[i]);
        RUN_TESTp(table_with_a_conflict_clause_is_refused, "event_log", columns);
    }
    RUN_TEST(handler_that_returns_late_unnoticed_has_timed_out);
    RUN_TEST(long_pump_starts_nothing_that_was_given_up_elsewhere);
    for (pump = 0; pump < 2; pump++) {
        for (i = NOTHING_LEFT; i <= OUTCOME_LEFT; i++) {
            snprintf(suffix, sizeof suffix, "%s_%s", pump ? "pump" : "threads",
                     i == NOTHING_LEFT ? "nothing_left" : "outcome_left");
            greatest_set_test_suffix(suffix);
            RUN_TESTp(shutdown_under_a_foreign_lock_ends_in_time, pump, i);
        }
    }
    greatest_set_test_suffix("fewer");
    RUN_TESTp(event_set_to_processing_has_the_attempts_of_its_subscription, 3, EB_NONE);
    greatest_set_test_suffix("more");
    RUN_TESTp(event_set_to_processing_has_the_attempts_of_its_subscription, EB_NONE, 5);
    RUN_TEST(suspect_stays_one_until_it_has_succeeded);
    RUN_TEST(mistyped_types_are_said_64_times_and_once_more);
    RUN_TEST(log_of_a_named_subscription_is_empty);
    RUN_TEST(multiplier_without_end_is_an_argument_error);
#ifndef _WIN32
    greatest_set_test_suffix("threads");
    RUN_TESTp(relative_path_outlives_a_change_of_directory, 0);
    greatest_set_test_suffix("pump");
    RUN_TESTp(relative_path_outlives_a_change_of_directory, 1);
#endif
    greatest_set_test_suffix("plain");
    RUN_TESTp(drain_names_the_paused_subscription_that_the_rest_waits_for, 0);
    greatest_set_test_suffix("keys");
    RUN_TESTp(drain_names_the_paused_subscription_that_the_rest_waits_for, 1);
    RUN_TEST(drain_beside_a_paused_subscription_that_goes_on_waits);
    RUN_TEST(drain_beside_a_head_that_comes_back_waits);
    RUN_TEST(retry_all_takes_each_dead_letter_once_though_it_dies_again);
    greatest_set_test_suffix("threads");
    RUN_TESTp(big_batch_on_a_started_bus_stays_within_the_memory_limit, 0, 300);
    greatest_set_test_suffix("pump");
    RUN_TESTp(big_batch_on_a_started_bus_stays_within_the_memory_limit, 1, 100);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) {
        p_child_init();
        return strcmp(argv[2], "moody") == 0 ? child_moody(argv + 3) : 8;
    }
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(regress);
    RUN_SUITE(audit);
    GREATEST_MAIN_END();
}
