/* test_shutdown.c - ending a bus: in every order, with handlers that run, hang or call back. */
#include "proc.h"

static t_seen seen;

/* ---- every order and number ------------------------------------------------------------------ */

/* One letter per call: s start, p post, h shutdown. Destroy follows. */
TEST any_sequence_of_calls_ends_well(const char *calls)
{
    const char *path = t_path("order"), *c;
    int started = 0, down = 0, posted = 0;
    eb_bus *bus;
    memset(&seen, 0, sizeof seen);
    bus = t_bus(path);
    t_subscribe(bus, "*", t_watch, &seen);
    for (c = calls; *c; c++) {
        if (*c == 's') {
            T_IS(down ? EB_ERR_SHUTDOWN : started ? EB_ERR_STATE : EB_OK, eb_start(bus));
            started = 1;
        } else if (*c == 'p') {
            T_IS(down ? EB_ERR_SHUTDOWN : EB_OK, eb_post(bus, "x", NULL, NULL));
            posted += !down;
        } else {
            T_OK(eb_shutdown(bus));
            down = 1;
        }
    }
    eb_destroy(bus);
    T_EQ(posted, t_stored(path));

    /* Whatever was posted and not handled is handled by the next one. */
    bus = t_run(path, "*", t_watch, &seen);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(posted, p_get(&seen.calls));
    T_ROWS(posted, path, "status = 'done' AND retry_count = 0");
    PASS();
}

TEST null_is_no_bus(void)
{
    eb_destroy(NULL);
    eb_destroy(NULL);
    T_IS(EB_ERR_ARG, eb_shutdown(NULL));
    PASS();
}

TEST closed_bus_takes_nothing_new(void)
{
    const char *path = t_path("closed");
    eb_message m[2];
    eb_id id, sub, ids[2];
    int64_t begin;
    eb_bus *bus = t_bus(path);
    memset(m, 0, sizeof m);
    memset(&seen, 0, sizeof seen);
    m[0].type = m[1].type = "x";
    T_OK(eb_subscribe(bus, "*", t_watch, &seen, NULL, &sub));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "before", NULL, &id));
    T_OK(eb_shutdown(bus));
    T_IS(EB_ERR_SHUTDOWN, eb_publish(bus, "x", NULL, NULL));
    T_IS(EB_ERR_SHUTDOWN, eb_post(bus, "x", NULL, NULL));
    T_IS(EB_ERR_SHUTDOWN, eb_send(bus, m, 2, ids));
    T_IS(EB_ERR_SHUTDOWN, eb_subscribe(bus, "*", t_watch, &seen, NULL, NULL));
    T_IS(EB_ERR_SHUTDOWN, eb_start(bus));
    begin = p_ms(); /* these have no promised result, but nothing to wait for either */
    eb_wake(bus);
    (void)eb_wait(bus, id.str, EB_NONE);
    (void)eb_drain(bus, EB_NONE);
    (void)eb_pump(bus, EB_NONE, NULL);
    (void)eb_unsubscribe(bus, sub.str);
    ASSERT(p_ms() - begin < P_SLACK_MS);
    T_OK(eb_shutdown(bus));
    eb_destroy(bus);
    T_EQ(1, t_stored(path));
    T_EQ(1, p_get(&seen.calls));
    PASS();
}

TEST inspector_works_after_shutdown(void)
{
    const char *path = t_path("inspect");
    eb_event_list list;
    eb_stats stats;
    eb_store *store;
    eb_id dead, good;
    eb_bus *bus = t_bus(path);
    t_subscribe(bus, "bad", t_rejects, NULL);
    t_subscribe(bus, "good", t_watch, &seen);
    T_OK(eb_start(bus));
    T_IS(EB_DEAD, eb_publish(bus, "bad", "[1]", &dead));
    T_OK(eb_publish(bus, "good", "[2]", &good));
    T_OK(eb_shutdown(bus));
    store = eb_bus_store(bus);
    ASSERT(store != NULL);
    T_OK(eb_stats_get(store, &stats));
    T_EQ(1, stats.done);
    T_EQ(1, stats.dlq);
    T_OK(eb_get(store, good.str, &list));
    T_EQ(EB_DONE, list.items[0].status);
    ASSERT_STR_EQ("[2]", list.items[0].payload);
    eb_event_list_free(&list);
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(2, list.count);
    eb_event_list_free(&list);
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(1, list.count);
    ASSERT_STR_EQ(dead.str, list.items[0].id.str);
    eb_event_list_free(&list);
    T_OK(eb_dlq_retry(store, dead.str, NULL));
    T_EQ(EB_PENDING, t_status(store, dead.str));
    T_OK(eb_dlq_move(store, dead.str, "given up"));
    T_OK(eb_dlq_purge(store, 0, NULL));
    T_OK(eb_stats_get(store, &stats));
    T_EQ(0, stats.dlq);
    eb_destroy(bus);
    PASS();
}

/* ---- handlers that run ----------------------------------------------------------------------- */

/* Runs until it is told to stop, then takes its time; returns what `user` points to. */
static struct {
    int entered, finished, calls, posted;
} slow;

static eb_result until_cancelled(eb_delivery *d, void *user)
{
    int64_t end = p_ms() + P_LONG_MS;
    (void)user;
    p_add(&slow.calls, 1);
    p_set(&slow.entered, 1);
    while (!eb_cancelled(d) && p_ms() < end) p_nap(1);
    p_set(&slow.posted, (int)eb_post(d->bus, "late", NULL, NULL));
    p_nap(50);
    p_set(&slow.finished, 1);
    return EB_OK;
}

static eb_result shutdown_result;
static void *shuts_down(void *bus)
{
    shutdown_result = eb_shutdown((eb_bus *)bus);
    return NULL;
}

static eb_result publish_result;
static eb_id publish_id;
static void *publishes(void *bus)
{
    publish_result = eb_publish((eb_bus *)bus, "slow", NULL, &publish_id);
    return NULL;
}

TEST shutdown_waits_for_the_running_handler(void)
{
    const char *path = t_path("waits");
    eb_bus *bus;
    pthread_t publisher;
    memset(&slow, 0, sizeof slow);
    memset(&publish_id, 0, sizeof publish_id);
    publish_result = EB_RESULT_LAST_;
    bus = t_run(path, "slow", until_cancelled, NULL);
    publisher = p_go(publishes, bus); /* pump driver: the handler runs on this thread */
    P_EVENTUALLY(p_get(&slow.entered));
    T_OK(eb_shutdown(bus));
    T_EQ(1, p_get(&slow.finished));
    T_EQ(EB_ERR_SHUTDOWN, p_get(&slow.posted));
    T_ROWS(1, path, "status = 'done' AND retry_count = 0");
    p_join(publisher);
    ASSERT(publish_result == EB_OK || publish_result == EB_ERR_SHUTDOWN);
    eb_destroy(bus);
    T_EQ(1, slow.calls);
    T_EQ(1, t_stored(path));
    PASS();
}

TEST destroy_alone_waits_for_the_running_handler_too(void)
{
    const char *path = t_path("destroy-waits");
    eb_bus *bus;
    memset(&slow, 0, sizeof slow);
    bus = t_run(path, "slow", until_cancelled, NULL);
    t_post(bus, "slow", NULL);
    P_EVENTUALLY(p_get(&slow.entered));
    eb_destroy(bus);
    T_EQ(1, p_get(&slow.finished));
    T_ROWS(1, path, "status = 'done' AND retry_count = 0");
    PASS();
}

TEST two_threads_may_shut_down_at_once(void)
{
    int round;
    for (round = 0; round < 20; round++) {
        const char *path = t_path("two");
        eb_bus *bus;
        pthread_t other;
        memset(&slow, 0, sizeof slow);
        bus = t_run(path, "slow", until_cancelled, NULL);
        if (round & 1) {
            t_post(bus, "slow", NULL);
            P_EVENTUALLY(p_get(&slow.entered));
        }
        other = p_go(shuts_down, bus);
        T_OK(eb_shutdown(bus));
        T_EQ(round & 1, p_get(&slow.finished)); /* each of the two has waited */
        p_join(other);
        T_EQ(EB_OK, shutdown_result);
        T_OK(eb_shutdown(bus));
        eb_destroy(bus);
    }
    PASS();
}

/* ---- shutdown from inside a handler ---------------------------------------------------------- */

static struct {
    int calls, shutdown, again, posted, subscribed, cancelled, took_ms;
} inside;

static eb_result shuts_down_inside(eb_delivery *d, void *user)
{
    int64_t begin = p_ms();
    (void)user;
    p_set(&inside.shutdown, (int)eb_shutdown(d->bus));
    p_set(&inside.again, (int)eb_shutdown(d->bus));
    p_set(&inside.took_ms, (int)(p_ms() - begin));
    p_set(&inside.posted, (int)eb_post(d->bus, "late", NULL, NULL));
    p_set(&inside.subscribed, (int)eb_subscribe(d->bus, "*", t_watch, &seen, NULL, NULL));
    p_set(&inside.cancelled, eb_cancelled(d));
    p_add(&inside.calls, 1);
    return EB_OK;
}

TEST handler_may_begin_the_shutdown(void)
{
    const char *path = t_path("inside");
    eb_result published;
    eb_bus *bus;
    memset(&inside, 0x55, sizeof inside);
    inside.calls = 0;
    bus = t_run(path, "slow", shuts_down_inside, NULL);
    published = eb_publish(bus, "slow", NULL, NULL);
    ASSERT(published == EB_OK || published == EB_ERR_SHUTDOWN);
    P_EVENTUALLY(p_get(&inside.calls) == 1);
    T_OK(eb_shutdown(bus)); /* completes it */
    T_ROWS(1, path, "status = 'done' AND retry_count = 0");
    T_EQ(EB_OK, p_get(&inside.shutdown));
    T_EQ(EB_OK, p_get(&inside.again));
    ASSERT(p_get(&inside.took_ms) < P_SLACK_MS); /* the default timeout is 30 s */
    T_EQ(EB_ERR_SHUTDOWN, p_get(&inside.posted));
    T_EQ(EB_ERR_SHUTDOWN, p_get(&inside.subscribed));
    T_EQ(1, p_get(&inside.cancelled));
    T_IS(EB_ERR_SHUTDOWN, eb_post(bus, "x", NULL, NULL));
    eb_destroy(bus);
    T_EQ(1, p_get(&inside.calls));
    T_EQ(1, t_stored(path));
    PASS();
}

TEST destroy_completes_a_shutdown_begun_inside(void)
{
    const char *path = t_path("inside-destroy");
    eb_bus *bus;
    inside.calls = 0;
    bus = t_run(path, "slow", shuts_down_inside, NULL);
    (void)eb_publish(bus, "slow", NULL, NULL);
    eb_destroy(bus);
    T_EQ(1, p_get(&inside.calls));
    T_ROWS(1, path, "status = 'done' AND retry_count = 0");
    PASS();
}

/* ---- shutdown from inside the logger, while the bus starts ----------------------------------- */

static struct {
    eb_bus *bus;
    int at, entries, shutdown, again;
} says;

static void shuts_down_at(const eb_log_entry *e, void *user)
{
    (void)user;
    if (e->attempt == 0 || !strstr(e->error, "interrupted") || ++says.entries != says.at) return;
    says.shutdown = (int)eb_shutdown(says.bus);
    says.again = (int)eb_shutdown(says.bus);
}

/* A file as a process leaves it that died in a handler; two more events were set to `processing` by
** hand, one waits. That makes three entries at the next start. */
static void interrupted_before(const char *path)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    int i;
    o.workers = EB_NONE;
    bus = t_open(&o);
    for (i = 0; i < 4; i++) t_post(bus, "x", NULL);
    eb_destroy(bus);
    T_MUST(t_sql(path, "UPDATE deliveries SET status='processing',token=7,attempts=1,"
                       "max_attempts=4 WHERE seq=1; UPDATE meta SET value=1 WHERE key='claimed_to';"
                       "UPDATE events SET status='processing' WHERE seq IN (2,3)", NULL, 0) ==
           SQLITE_OK);
}

TEST logger_may_shut_down_while_the_start_tells_of_the_recovery(int at)
{
    const char *path = t_path("starting");
    eb_options o = t_options(path);
    eb_bus *bus, *next;
    eb_stats stats;
    interrupted_before(path);
    memset(&seen, 0, sizeof seen);
    memset(&says, 0, sizeof says);
    o.logger.func = shuts_down_at;
    says.at = at;
    says.shutdown = says.again = -99;
    bus = says.bus = t_open(&o);
    t_subscribe(bus, "*", t_watch, &seen);
    T_IS(EB_ERR_SHUTDOWN, eb_start(bus));
    T_EQ(EB_OK, says.shutdown);
    T_EQ(EB_OK, says.again);
    ASSERT(says.entries >= at);
    T_EQ(0, p_get(&seen.calls));
    T_IS(EB_ERR_SHUTDOWN, eb_start(bus));
    T_IS(EB_ERR_SHUTDOWN, eb_post(bus, "x", NULL, NULL));
    stats = t_stats(bus);
    T_EQ(4, stats.pending + stats.processing);

    o = t_options(path); /* the next one, while the first still is there, and when it is not */
    next = t_open(&o);
    T_OK(eb_start(next));
    if (at & 1) T_OK(eb_shutdown(bus));
    eb_destroy(bus);
    eb_destroy(next);
    next = t_run_with(&o, "*", t_watch, &seen);
    T_OK(t_settle(next));
    eb_destroy(next);
    T_EQ(4, p_get(&seen.calls));
    T_ROWS(3, path, "status = 'done' AND retry_count = 1 AND seq <= 3"); /* charged once */
    T_ROWS(1, path, "status = 'done' AND retry_count = 0 AND seq = 4");
    PASS();
}

/* ---- a handler that does not return ---------------------------------------------------------- */

static struct {
    int entered, release, returned, calls;
    int post, publish, send, subscribe, unsubscribe, wait, drain, stats, extend, fail, cancelled;
    int intact, shutdown;
    eb_id sub;
} stuck;

static eb_result gets_stuck(eb_delivery *d, void *user)
{
    eb_message m = t_message("late", NULL);
    eb_stats stats;
    (void)user;
    p_add(&stuck.calls, 1);
    p_set(&stuck.entered, 1);
    p_until(&stuck.release, 1);
    /* By now the bus is shut down, perhaps destroyed. */
    stuck.cancelled = eb_cancelled(d);
    stuck.intact = strcmp(d->event->type, "slow") == 0 && strcmp(d->event->payload, "[42]") == 0 &&
                   d->event->payload_len == 4 && t_is_v4(d->event->id.str);
    stuck.post = (int)eb_post(d->bus, "late", "1", NULL);
    stuck.publish = (int)eb_publish(d->bus, "late", "1", NULL);
    stuck.send = (int)eb_send(d->bus, &m, 1, NULL);
    stuck.subscribe = (int)eb_subscribe(d->bus, "*", t_watch, &seen, NULL, NULL);
    stuck.unsubscribe = (int)eb_unsubscribe(d->bus, stuck.sub.str);
    stuck.wait = (int)eb_wait(d->bus, d->event->id.str, EB_NONE);
    stuck.drain = (int)eb_drain(d->bus, EB_NONE);
    stuck.stats = (int)eb_stats_get(eb_bus_store(d->bus), &stats);
    stuck.shutdown = (int)eb_shutdown(d->bus);
    stuck.extend = (int)eb_extend(d, 1000);
    eb_wake(d->bus);
    stuck.fail = (int)eb_fail(d, "late %d", 1);
    p_set(&stuck.returned, 1);
    return (eb_result)stuck.fail;
}

/* What the calls of an abandoned handler got. destroyed: eb_destroy() had returned before. */
static enum greatest_test_res check_late_calls(int destroyed)
{
    T_EQ(1, stuck.cancelled);
    T_EQ(1, stuck.intact);
    T_EQ(EB_ERR_SHUTDOWN, stuck.post);
    T_EQ(EB_ERR_SHUTDOWN, stuck.publish);
    T_EQ(EB_ERR_SHUTDOWN, stuck.send);
    T_EQ(EB_ERR_SHUTDOWN, stuck.subscribe);
    ASSERT(stuck.wait == EB_ERR_STATE || stuck.wait == EB_ERR_SHUTDOWN);
    ASSERT(stuck.drain == EB_ERR_STATE || stuck.drain == EB_ERR_SHUTDOWN);
    ASSERT(stuck.extend == EB_ERR_STALE || stuck.extend == EB_ERR_SHUTDOWN);
    ASSERT(stuck.fail == EB_FAILED || stuck.fail == EB_ERR_STALE || stuck.fail == EB_ERR_SHUTDOWN);
    if (destroyed) T_EQ(EB_ERR_SHUTDOWN, stuck.stats);
    PASS();
}

static eb_bus *open_stuck(const char *path)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    memset(&stuck, 0, sizeof stuck);
    memset(&seen, 0, sizeof seen);
    o.shutdown_timeout_ms = 200;
    bus = t_open(&o);
    T_DO(eb_subscribe(bus, "slow", gets_stuck, NULL, NULL, &stuck.sub));
    T_DO(eb_start(bus));
    t_post(bus, "slow", "[42]");
    return bus;
}

TEST shutdown_gives_a_stuck_handler_up_in_time(void)
{
    const char *path = t_path("stuck");
    int threads = p_threads();
    int64_t begin;
    eb_bus *bus = open_stuck(path);
    P_EVENTUALLY(p_get(&stuck.entered));
    begin = p_ms();
    T_IS(EB_ERR_TIMEOUT, eb_shutdown(bus));
    P_WITHIN(190, 200 + P_SLACK_MS, p_ms() - begin);
    T_IS(EB_ERR_SHUTDOWN, eb_post(bus, "x", NULL, NULL));
    p_set(&stuck.release, 1); /* it returns before destroy */
    P_EVENTUALLY(p_get(&stuck.returned));
    CHECK_CALL(check_late_calls(0));
    begin = p_ms();
    eb_destroy(bus);
    P_WITHIN(0, 200 + P_SLACK_MS, p_ms() - begin);
    P_EVENTUALLY(p_threads() <= threads);
    T_EQ(1, t_stored(path));
    T_ROWS(0, path, "status = 'done'");
    PASS();
}

TEST destroy_is_safe_while_a_handler_still_runs(int shutdown_first)
{
    const char *path = t_path("stuck-destroy");
    int threads = p_threads();
    int64_t begin;
    char buf[1200];
    eb_bus *bus = open_stuck(path);
    P_EVENTUALLY(p_get(&stuck.entered));
    if (shutdown_first) T_IS(EB_ERR_TIMEOUT, eb_shutdown(bus));
    begin = p_ms();
    eb_destroy(bus);
    P_WITHIN(0, 200 + P_SLACK_MS, p_ms() - begin);
    T_EQ(0, p_get(&stuck.returned));

    /* The event resumes at the next start, although the old handler hangs: one attempt more. */
    bus = t_run(path, "*", t_watch, &seen);
    T_OK(t_settle(bus));
    T_EQ(1, p_get(&seen.calls));
    T_EQ(2, seen.attempt);
    T_EQ(1, p_interrupted(seen.errors));
    T_ROWS(1, path, "status = 'done' AND retry_count = 1");

    p_set(&stuck.release, 1);
    P_EVENTUALLY(p_get(&stuck.returned));
    CHECK_CALL(check_late_calls(1));
    eb_destroy(bus);
    P_EVENTUALLY(p_threads() <= threads); /* the process has survived it */
    T_ROWS(1, path, "status = 'done' AND retry_count = 1"); /* the late answer is stale */
    T_EQ(1, t_stored(path));
    T_EQ(1, stuck.calls);
    t_sql_text(path, "SELECT last_error FROM events", buf, sizeof buf);
    ASSERT(strstr(buf, "late") == NULL);
    PASS();
}

static eb_result only_hangs(eb_delivery *d, void *user)
{
    (void)user;
    p_add(&stuck.calls, 1);
    p_until(&stuck.release, 1);
    return eb_fail(d, "late");
}

TEST several_stuck_handlers_cost_one_timeout(void)
{
    const char *path = t_path("stuck-many");
    eb_options o = t_options(path);
    int threads = p_threads(), i;
    int64_t begin;
    eb_bus *bus;
    memset(&stuck, 0, sizeof stuck);
    o.shutdown_timeout_ms = 500;
    o.workers = 4;
    bus = t_run_with(&o, "slow", only_hangs, NULL);
    for (i = 0; i < 4; i++) t_post(bus, "slow", "[42]");
    P_EVENTUALLY(p_get(&stuck.calls) == 4);
    begin = p_ms();
    T_IS(EB_ERR_TIMEOUT, eb_shutdown(bus));
    P_WITHIN(490, 500 + P_SLACK_MS, p_ms() - begin);
    eb_destroy(bus);
    p_set(&stuck.release, 1);
    P_EVENTUALLY(p_threads() <= threads);
    T_EQ(4, t_stored(path));
    PASS();
}

/* ---- what is not finished -------------------------------------------------------------------- */

TEST claimed_events_that_did_not_run_lose_no_attempt(void)
{
    const char *path = t_path("resume");
    eb_bus *bus = t_bus(path);
    int i;
    memset(&slow, 0, sizeof slow);
    memset(&seen, 0, sizeof seen);
    t_subscribe(bus, "*", until_cancelled, NULL);
    for (i = 0; i < 20; i++) t_post(bus, "slow", NULL);
    T_OK(eb_start(bus));
    P_EVENTUALLY(p_get(&slow.entered));
    T_OK(eb_shutdown(bus));
    T_EQ(1, p_get(&slow.calls)); /* no new handler begins once the shutdown has */
    T_ROWS(1, path, "status = 'done'");
    eb_destroy(bus);

    bus = t_run(path, "*", t_watch, &seen);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(19, p_get(&seen.calls));
    T_ROWS(20, path, "status = 'done' AND retry_count = 0");
    PASS();
}

static eb_result fails(eb_delivery *d, void *user)
{
    (void)user;
    p_add(&slow.calls, 1);
    return eb_fail(d, "not today");
}

TEST retry_that_waits_survives_the_shutdown(void)
{
    const char *path = t_path("retry");
    eb_options o = t_options(path);
    int64_t begin, next = 99;
    eb_bus *bus;
    memset(&slow, 0, sizeof slow);
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000;
    bus = t_run_with(&o, "slow", fails, NULL);
    t_post(bus, "slow", NULL);
    if (t_pump_mode) T_OK(eb_pump(bus, EB_NONE, NULL));
    P_EVENTUALLY(p_get(&slow.calls) == 1);
    begin = p_ms();
    T_OK(eb_shutdown(bus)); /* waits for handlers, not for retries; their outcome is on disk */
    ASSERT(p_ms() - begin < P_SLACK_MS);
    T_ROWS(1, path, "retry_count = 1 AND last_error = '[\"not today\"]'");
    eb_destroy(bus);

    o.workers = EB_NONE;
    bus = t_run_with(&o, "slow", fails, NULL);
    T_OK(eb_pump(bus, EB_NONE, &next));
    P_WITHIN(3600000 - P_LONG_MS, 3600000, next);
    T_EQ(1, p_get(&slow.calls));
    T_ROWS(1, path, "retry_count = 1");
    eb_destroy(bus);
    PASS();
}

/* ---- who waits while another shuts down ------------------------------------------------------ */

static eb_result wait_result, drain_result;
static void *waits(void *bus)
{
    wait_result = eb_wait((eb_bus *)bus, publish_id.str, EB_NONE);
    return NULL;
}
static void *drains(void *bus)
{
    drain_result = eb_drain((eb_bus *)bus, EB_NONE);
    return NULL;
}

TEST publish_wait_and_drain_return_when_another_thread_shuts_down(void)
{
    const char *path = t_path("waiters");
    eb_options o = t_options(path);
    pthread_t waiter, drainer;
    eb_id id;
    eb_bus *bus;
    memset(&slow, 0, sizeof slow);
    publish_result = wait_result = drain_result = EB_RESULT_LAST_;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000;
    bus = t_run_with(&o, "slow", fails, NULL);
    T_OK(eb_post(bus, "slow", NULL, &id)); /* both of them wait for a retry in an hour */
    publish_id = id;
    waiter = p_go(waits, bus);
    drainer = p_go(drains, bus);
    P_EVENTUALLY(t_rows(path, "retry_count = 1") == 1);
    p_nap(50); /* so that they probably wait already; both ways must end the same */
    T_OK(eb_shutdown(bus));
    p_join(waiter);
    p_join(drainer);
    T_EQ(EB_ERR_SHUTDOWN, wait_result);
    T_EQ(EB_ERR_SHUTDOWN, drain_result);
    eb_destroy(bus);
    T_EQ(1, t_stored(path));
    PASS();
}

TEST publish_returns_when_another_thread_shuts_down(void)
{
    const char *path = t_path("publisher");
    eb_options o = t_options(path);
    char sql[200];
    pthread_t publisher;
    eb_bus *bus;
    memset(&slow, 0, sizeof slow);
    memset(&publish_id, 0, sizeof publish_id);
    publish_result = EB_RESULT_LAST_;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000;
    bus = t_run_with(&o, "slow", fails, NULL);
    publisher = p_go(publishes, bus);
    P_EVENTUALLY(t_rows(path, "retry_count = 1") == 1);
    T_OK(eb_shutdown(bus));
    p_join(publisher);
    T_EQ(EB_ERR_SHUTDOWN, publish_result);
    ASSERTm("the id is filled: it is stored", t_is_v4(publish_id.str));
    eb_destroy(bus);
    snprintf(sql, sizeof sql, "id = '%s' AND retry_count = 1", publish_id.str);
    T_ROWS(1, path, sql);
    PASS();
}

/* ---- posters and a shutdown in the middle ---------------------------------------------------- */

enum { POSTERS = 4 };
static int accepted[POSTERS], refused[POSTERS];
static struct {
    eb_bus *bus;
    int index;
} poster[POSTERS];

static void *posts_until_refused(void *arg)
{
    int i = *(int *)arg;
    eb_result rc;
    while ((rc = eb_post(poster[i].bus, "x", NULL, NULL)) == EB_OK) p_add(&accepted[i], 1);
    p_set(&refused[i], (int)rc);
    return NULL;
}

TEST posts_during_a_shutdown_are_stored_or_refused(void)
{
    const char *path = t_path("posters");
    pthread_t thread[POSTERS];
    int i, sum = 0;
    eb_bus *bus;
    memset(&seen, 0, sizeof seen);
    bus = t_run(path, "*", t_watch, &seen);
    for (i = 0; i < POSTERS; i++) {
        poster[i].bus = bus;
        poster[i].index = i;
        accepted[i] = refused[i] = 0;
        thread[i] = p_go(posts_until_refused, &poster[i].index);
    }
    for (i = 0; i < POSTERS; i++) P_EVENTUALLY(p_get(&accepted[i]) > 20);
    T_OK(eb_shutdown(bus));
    for (i = 0; i < POSTERS; i++) {
        p_join(thread[i]);
        T_EQ(EB_ERR_SHUTDOWN, refused[i]);
        sum += accepted[i];
    }
    eb_destroy(bus);
    T_EQ(sum, t_stored(path));
    bus = t_run(path, "*", t_watch, &seen);
    T_OK(eb_drain(bus, P_LONG_MS));
    eb_destroy(bus);
    T_EQ(sum, p_get(&seen.calls));
    T_ROWS(sum, path, "status = 'done' AND retry_count = 0");
    PASS();
}

SUITE(both_drivers)
{
    static const char *const orders[] = {
        "",   "h",   "hh",   "s",     "sh", "shh",  "hs",  "p",  "ph",   "php",  "sp",
        "sph", "spph", "pshph", "ss", "sshs", "psp", "hp", "hsph", "phsh", "spppppppppph"};
    char suffix[20];
    size_t i;
    int at;
    for (i = 0; i < sizeof orders / sizeof *orders; i++) {
        greatest_set_test_suffix(orders[i][0] ? orders[i] : "nothing");
        RUN_TESTp(any_sequence_of_calls_ends_well, orders[i]);
    }
    RUN_TEST(null_is_no_bus);
    RUN_TEST(closed_bus_takes_nothing_new);
    RUN_TEST(inspector_works_after_shutdown);
    RUN_TEST(shutdown_waits_for_the_running_handler);
    RUN_TEST(handler_may_begin_the_shutdown);
    RUN_TEST(destroy_completes_a_shutdown_begun_inside);
    for (at = 1; at <= 3; at++) {
        snprintf(suffix, sizeof suffix, "entry_%d", at);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(logger_may_shut_down_while_the_start_tells_of_the_recovery, at);
    }
    RUN_TEST(retry_that_waits_survives_the_shutdown);
    RUN_TEST(publish_returns_when_another_thread_shuts_down);
}

SUITE(threads)
{
    RUN_TEST(destroy_alone_waits_for_the_running_handler_too);
    RUN_TEST(two_threads_may_shut_down_at_once);
    RUN_TEST(shutdown_gives_a_stuck_handler_up_in_time);
    greatest_set_test_suffix("after_shutdown");
    RUN_TESTp(destroy_is_safe_while_a_handler_still_runs, 1);
    greatest_set_test_suffix("alone");
    RUN_TESTp(destroy_is_safe_while_a_handler_still_runs, 0);
    RUN_TEST(several_stuck_handlers_cost_one_timeout);
    RUN_TEST(claimed_events_that_did_not_run_lose_no_attempt);
    RUN_TEST(publish_wait_and_drain_return_when_another_thread_shuts_down);
    RUN_TEST(posts_during_a_shutdown_are_stored_or_refused);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    T_RUN_BOTH(both_drivers);
    t_pump_mode = 0;
    RUN_SUITE(threads);
    GREATEST_MAIN_END();
}
