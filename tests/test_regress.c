/* test_regress.c - one small test for each mistake that was found after it was made, by reading or
** by the fault ladders. What the ladders themselves repeat is not repeated here. */
#include "test.h"
#include <pthread.h>
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
    one->store.must_reopen = 1; /* as after a failed write */
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(eb_bus_store(one), "no id", NULL));
    ASSERT_EQ(77, t_sql_int(path, "SELECT token FROM deliveries"));
    two->store.must_reopen = 1; /* the owner itself takes back what it does not know */
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

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(regress);
    GREATEST_MAIN_END();
}
