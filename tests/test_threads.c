/* test_threads.c - worker threads: in parallel, left behind and replaced, raced against, asleep. */
#include "proc.h"

static t_seen seen;
static t_log logged;

/* ---- in parallel ----------------------------------------------------------------------------- */

static struct {
    int inside, most, met, calls;
} crowd;

/* Waits until four are here at the same time. */
static eb_result meets(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_add(&crowd.inside, 1);
    p_until(&crowd.inside, 4);
    if (p_get(&crowd.inside) == 4) p_add(&crowd.met, 1);
    return EB_OK;
}

TEST four_workers_run_four_handlers_at_once(void)
{
    const char *path = t_path("four");
    eb_options o = t_options(path);
    eb_bus *bus;
    int i;
    memset(&crowd, 0, sizeof crowd);
    o.workers = 4;
    bus = t_run_with(&o, "*", meets, NULL);
    for (i = 0; i < 4; i++) t_post(bus, "x", NULL);
    T_OK(eb_drain(bus, 2 * P_LONG_MS));
    T_EQ(4, crowd.met);
    eb_destroy(bus);
    T_ROWS(4, path, "status = 'done' AND retry_count = 0");
    PASS();
}

static eb_result counts_itself(eb_delivery *d, void *user)
{
    int here = p_add(&crowd.inside, 1), most;
    (void)d;
    (void)user;
    while (here > (most = p_get(&crowd.most)))
        __atomic_compare_exchange_n(&crowd.most, &most, here, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    p_nap(2);
    p_add(&crowd.inside, -1);
    p_add(&crowd.calls, 1);
    return EB_OK;
}

TEST never_more_handlers_than_workers(int workers)
{
    eb_options o = t_options(t_path("most"));
    eb_bus *bus;
    int i;
    memset(&crowd, 0, sizeof crowd);
    o.workers = workers;
    bus = t_open(&o);
    t_subscribe(bus, "*", counts_itself, NULL);
    for (i = 0; i < 40; i++) t_post(bus, "x", NULL);
    T_OK(eb_start(bus));
    for (i = 0; i < 40; i++) t_post(bus, "x", NULL);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(80, crowd.calls);
    P_WITHIN(1, workers ? workers : 1, crowd.most);
    PASS();
}

/* ---- left behind and replaced ---------------------------------------------------------------- */

static struct {
    int calls, release, returned;       /* of all */
    int cancelled, extend, late, asked; /* of the one that hung in the first attempt */
} hang;

/* The first attempt hangs, until the test lets go; later ones succeed. */
static eb_result hangs_first(eb_delivery *d, void *user)
{
    (void)user;
    if (p_add(&hang.calls, 1) > 1) return EB_OK;
    while (!eb_cancelled(d) && !p_get(&hang.release)) p_nap(1);
    p_set(&hang.cancelled, eb_cancelled(d));
    p_set(&hang.extend, (int)eb_extend(d, 1000));
    p_set(&hang.asked, 1);
    p_until(&hang.release, 1);
    p_set(&hang.late, (int)eb_fail(d, "too late"));
    p_set(&hang.returned, 1);
    return (eb_result)hang.late;
}

static int64_t lost(eb_bus *bus)
{
    eb_stats stats = {0};
    return eb_stats_get(eb_bus_store(bus), &stats) == EB_OK ? stats.lost_workers : -1;
}

static eb_subscribe_options timeout_of(int64_t ms)
{
    eb_subscribe_options s = {0};
    s.timeout_ms = ms;
    return s;
}

TEST timed_out_handler_is_left_behind_and_its_late_answer_is_stale(void)
{
    const char *path = t_path("late");
    eb_options o = t_options(path);
    eb_subscribe_options s = timeout_of(100);
    char errors[1200];
    int threads = p_threads();
    eb_stats stats;
    eb_id id;
    eb_bus *bus;
    memset(&hang, 0, sizeof hang);
    memset(&seen, 0, sizeof seen);
    o.workers = 1;
    bus = t_open(&o);
    T_EQ(0, lost(bus));
    T_OK(eb_subscribe(bus, "hang", hangs_first, NULL, &s, NULL));
    t_subscribe(bus, "next", t_watch, &seen);
    T_OK(eb_start(bus));
    id = t_post(bus, "hang", NULL);
    t_post(bus, "next", NULL);
    P_EVENTUALLY(p_get(&seen.calls) == 1); /* with the only worker lost */
    P_EVENTUALLY(p_get(&hang.asked));
    T_EQ(1, p_get(&hang.cancelled));
    T_EQ(EB_ERR_STALE, p_get(&hang.extend));
    P_EVENTUALLY(t_status(eb_bus_store(bus), id.str) == EB_DONE); /* by the second attempt */
    T_EQ(0, p_get(&hang.returned));
    T_EQ(2, p_get(&hang.calls));
    T_EQ(1, lost(bus));
    T_EQ(1, t_failures(eb_bus_store(bus), id.str, 0, errors, sizeof errors));
    ASSERT(errors[0]);

    p_set(&hang.release, 1);
    P_EVENTUALLY(p_get(&hang.returned));
    P_EVENTUALLY(lost(bus) == 0);
    T_STATUS(EB_DONE, bus, id);
    T_FAILED(1, bus, id, 0, errors);
    stats = t_stats(bus);
    ASSERT(stats.stale >= 1);
    T_EQ(2, stats.done);
    T_EQ(0, stats.dlq);
    T_OK(eb_publish(bus, "next", NULL, NULL));
    T_OK(t_settle(bus));
    T_EQ(2, p_get(&hang.calls));
    eb_destroy(bus);
    P_EVENTUALLY(p_threads() <= threads);
    PASS();
}

static eb_result extends(eb_delivery *d, void *user)
{
    (void)user;
    p_add(&hang.calls, 1);
    p_set(&hang.extend, (int)eb_extend(d, P_LONG_MS));
    p_nap(1500); /* past the first deadline */
    p_set(&hang.cancelled, eb_cancelled(d));
    return EB_OK;
}

TEST extended_handler_is_not_given_up(void)
{
    eb_subscribe_options s = timeout_of(1000);
    eb_id id;
    eb_bus *bus = t_bus(t_path("extend"));
    memset(&hang, 0, sizeof hang);
    T_OK(eb_subscribe(bus, "x", extends, NULL, &s, NULL));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, &id));
    T_EQ(1, hang.calls);
    T_EQ(EB_OK, hang.extend);
    T_EQ(0, hang.cancelled);
    T_EQ(0, t_failures(eb_bus_store(bus), id.str, 0, NULL, 0));
    T_EQ(0, lost(bus));
    eb_destroy(bus);
    PASS();
}

static eb_result hangs(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_add(&hang.calls, 1);
    p_until(&hang.release, 1);
    p_add(&hang.returned, 1);
    return EB_OK;
}

/* Entries at this level that are not about one failed attempt. */
static int log_level(int level)
{
    int i, n = 0;
    sqlite3_mutex_enter(logged.mutex);
    for (i = 0; i < logged.count && i < 256; i++)
        n += logged.items[i].level == level && logged.items[i].attempt == 0;
    sqlite3_mutex_leave(logged.mutex);
    return n;
}

TEST after_sixteen_lost_workers_the_subscription_is_paused_and_the_others_go_on(void)
{
    const char *path = t_path("sixteen");
    eb_options o = t_options(path);
    eb_subscribe_options s = timeout_of(50);
    int threads = p_threads(), i;
    eb_bus *bus;
    memset(&hang, 0, sizeof hang);
    memset(&seen, 0, sizeof seen);
    o.workers = 1;
    o.retry.max_retries = EB_NONE;
    o.logger = t_logger(&logged);
    bus = t_open(&o);
    T_OK(eb_subscribe(bus, "hang", hangs, NULL, &s, NULL));
    t_subscribe(bus, "fine", t_watch, &seen);
    T_OK(eb_start(bus));
    for (i = 0; i < 20; i++) t_post(bus, "hang", NULL);
    P_EVENTUALLY(lost(bus) == 16);
    P_EVENTUALLY(log_level(EB_LOG_ERROR) > 0);
    for (i = 0; i < 5; i++) T_OK(eb_publish(bus, "fine", NULL, NULL));
    T_EQ(5, p_get(&seen.calls));
    T_EQ(16, lost(bus));
    T_EQ(16, p_get(&hang.calls)); /* a seventeenth would have taken the only worker */
    T_ROWS(16, path, "type = 'hang' AND status = 'dlq' AND retry_count = 1");

    p_set(&hang.release, 1);
    P_EVENTUALLY(p_get(&hang.returned) >= 16);
    P_EVENTUALLY(lost(bus) == 0);
    eb_destroy(bus);
    P_EVENTUALLY(p_threads() <= threads);

    /* The four that were never given to it are not lost, nor charged for it. */
    memset(&seen, 0, sizeof seen);
    bus = t_run_with(&o, "*", t_watch, &seen);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_ROWS(4, path, "type = 'hang' AND status = 'done' AND retry_count = 0");
    T_ROWS(16, path, "type = 'hang' AND status = 'dlq'");
    PASS();
}

/* What a store of its own reads from the file; -1: it cannot. */
static int64_t figure(eb_store *store, int paused)
{
    eb_stats stats;
    if (eb_stats_get(store, &stats) != EB_OK) return -1;
    return paused ? stats.paused : stats.lost_workers;
}

TEST lost_workers_and_paused_subscriptions_stand_in_the_file(void)
{
    const char *path = t_path("stuck-file");
    eb_options o = t_options(path);
    eb_subscribe_options s = timeout_of(10);
    eb_store *store = NULL;
    eb_bus *bus;
    int i;
    memset(&hang, 0, sizeof hang);
    o.workers = 2;
    o.retry.max_retries = EB_NONE;
    bus = t_open(&o);
    T_OK(eb_subscribe(bus, "hang.*", hangs, NULL, &s, NULL));
    t_subscribe(bus, "fine", t_succeeds, NULL);
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_start(bus));
    T_EQ(0, figure(store, 0));
    T_EQ(0, figure(store, 1));
    t_post(bus, "hang.1", NULL); /* the first one is seen already */
    P_EVENTUALLY(figure(store, 0) == 1);
    T_EQ(0, figure(store, 1));
    for (i = 1; i < EB_LOST_MAX + 4; i++) t_post(bus, "hang.2", NULL);
    P_EVENTUALLY(figure(store, 1) == 1);
    P_EVENTUALLY(lost(bus) >= EB_LOST_MAX && lost(bus) == p_get(&hang.calls));
    P_EVENTUALLY(figure(store, 0) == lost(bus));
    T_EQ(lost(bus), t_sql_int(path, "SELECT lost_workers FROM nodes"));
    T_EQ(1, t_sql_int(path, "SELECT paused FROM subscriptions WHERE event_type = 'hang.*'"));
    T_EQ(0, t_sql_int(path, "SELECT paused FROM subscriptions WHERE event_type = 'fine'"));

    p_set(&hang.release, 1);
    P_EVENTUALLY(figure(store, 0) == 0);
    P_EVENTUALLY(figure(store, 1) == 0);
    T_EQ(0, t_sql_int(path, "SELECT lost_workers FROM nodes"));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM subscriptions WHERE paused"));
    T_EQ(0, lost(bus));
    T_OK(t_settle(bus)); /* those that waited have run */
    T_EQ(EB_LOST_MAX + 4, p_get(&hang.calls));

    memset(&hang, 0, sizeof hang); /* and again, until the end */
    t_post(bus, "hang.3", NULL);
    P_EVENTUALLY(figure(store, 0) == 1);
    p_set(&hang.release, 1);
    T_OK(eb_shutdown(bus));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM nodes"));
    T_EQ(0, figure(store, 0));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST shutdown_returns_in_time_beside_a_lost_worker(void)
{
    const char *path = t_path("lost-shutdown");
    eb_options o = t_options(path);
    eb_subscribe_options s = timeout_of(50);
    int threads = p_threads();
    int64_t begin;
    eb_id sub;
    eb_bus *bus;
    memset(&hang, 0, sizeof hang);
    o.retry.max_retries = EB_NONE;
    o.shutdown_timeout_ms = 200;
    bus = t_open(&o);
    T_OK(eb_subscribe(bus, "hang", hangs, NULL, &s, &sub));
    T_OK(eb_start(bus));
    T_IS(EB_DEAD, eb_publish(bus, "hang", NULL, NULL));
    P_EVENTUALLY(lost(bus) == 1);
    begin = p_ms(); /* `user` may be freed after EB_OK, and the lost one may still use it */
    T_IS(EB_ERR_TIMEOUT, eb_unsubscribe(bus, sub.str));
    T_IS(EB_ERR_TIMEOUT, eb_shutdown(bus));
    eb_destroy(bus);
    P_WITHIN(0, 600 + P_SLACK_MS, p_ms() - begin);
    T_EQ(0, p_get(&hang.returned));
    p_set(&hang.release, 1);
    P_EVENTUALLY(p_get(&hang.returned));
    P_EVENTUALLY(p_threads() <= threads);
    T_ROWS(1, path, "status = 'dlq' AND retry_count = 1");
    PASS();
}

/* ---- many publishers ------------------------------------------------------------------------- */

enum { PUBLISHERS = 8, EACH = 250 };

typedef struct job { /* one thread of a test */
    eb_bus *bus;
    int index;
    int bad;  /* results that should not have been */
    int good; /* events that were accepted */
} job;
static job jobs[PUBLISHERS + 8];
static int handled[PUBLISHERS * EACH];

static eb_result ticks_off(eb_delivery *d, void *user)
{
    int n = atoi(d->event->payload);
    (void)user;
    T_MUST(n >= 0 && n < PUBLISHERS * EACH);
    p_add(&handled[n], 1);
    return EB_OK;
}

static void *posts(void *arg)
{
    job *j = (job *)arg;
    int i;
    for (i = 0; i < EACH; i++) {
        char payload[20];
        snprintf(payload, sizeof payload, "%d", j->index * EACH + i);
        if (eb_post(j->bus, "x", payload, NULL) == EB_OK) j->good++;
        else j->bad++;
    }
    return NULL;
}

/* Starts func in n threads, each with its own job. */
static void start_jobs(pthread_t *thread, int n, void *(*func)(void *), eb_bus *bus)
{
    int i;
    for (i = 0; i < n; i++) {
        memset(&jobs[i], 0, sizeof jobs[i]);
        jobs[i].bus = bus;
        jobs[i].index = i;
        thread[i] = p_go(func, &jobs[i]);
    }
}

static int join_jobs(pthread_t *thread, int n)
{
    int i, bad = 0;
    for (i = 0; i < n; i++) {
        p_join(thread[i]);
        bad += jobs[i].bad;
    }
    return bad;
}

TEST every_event_of_eight_publishers_is_handled_exactly_once(void)
{
    const char *path = t_path("once");
    eb_options o = t_options(path);
    pthread_t thread[PUBLISHERS];
    eb_stats stats;
    eb_bus *bus;
    int i, wrong = 0;
    memset(handled, 0, sizeof handled);
    o.workers = 2;
    bus = t_run_with(&o, "*", ticks_off, NULL);
    start_jobs(thread, PUBLISHERS, posts, bus);
    T_EQ(0, join_jobs(thread, PUBLISHERS));
    T_OK(eb_drain(bus, P_LONG_MS));
    for (i = 0; i < PUBLISHERS * EACH; i++) wrong += p_get(&handled[i]) != 1;
    T_EQ(0, wrong);
    stats = t_stats(bus);
    T_EQ(PUBLISHERS * EACH, stats.done);
    T_EQ(0, stats.pending + stats.processing + stats.dlq);
    T_EQ(PUBLISHERS * EACH, stats.published);
    T_EQ(PUBLISHERS * EACH, stats.delivered);
    eb_destroy(bus);
    T_ROWS(PUBLISHERS * EACH, path, "status = 'done' AND retry_count = 0");
    T_EQ(PUBLISHERS * EACH, t_sql_int(path, "SELECT count(DISTINCT seq) FROM events"));
    PASS();
}

TEST drain_beside_posters_ends_with_nothing_left(void)
{
    const char *path = t_path("drain");
    eb_options o = t_options(path);
    pthread_t thread[4];
    eb_bus *bus;
    int i, sum = 0;
    memset(handled, 0, sizeof handled);
    o.workers = 2;
    bus = t_run_with(&o, "*", ticks_off, NULL);
    start_jobs(thread, 4, posts, bus);
    for (i = 0; i < 20; i++) {
        eb_result rc = eb_drain(bus, i & 1 ? P_LONG_MS : 1);
        ASSERT(rc == EB_OK || (rc == EB_ERR_TIMEOUT && !(i & 1)));
    }
    T_EQ(0, join_jobs(thread, 4));
    T_OK(eb_drain(bus, P_LONG_MS));
    T_OK(eb_drain(bus, 0));
    for (i = 0; i < 4 * EACH; i++) sum += p_get(&handled[i]);
    T_EQ(4 * EACH, sum);
    T_ROWS(4 * EACH, path, "status = 'done'"); /* drained means committed */
    eb_destroy(bus);
    PASS();
}

/* Publishes and looks whether its own event had been handled when the call returned. */
static void *publishes(void *arg)
{
    job *j = (job *)arg;
    int i;
    for (i = 0; i < 40; i++) {
        int n = j->index * EACH + i;
        char payload[20];
        snprintf(payload, sizeof payload, "%d", n);
        if (i % 10 == 9) {
            j->bad += eb_publish(j->bus, "bad", payload, NULL) != EB_DEAD;
        } else {
            j->bad += eb_publish(j->bus, "x", payload, NULL) != EB_OK;
            j->bad += p_get(&handled[n]) != 1;
        }
    }
    return NULL;
}

static eb_result fails(eb_delivery *d, void *user)
{
    (void)user;
    return eb_fail(d, "always");
}

TEST eight_threads_publish_and_each_waits_for_its_own_event(int workers)
{
    const char *path = t_path("publish");
    eb_options o = t_options(path);
    pthread_t thread[PUBLISHERS];
    eb_bus *bus;
    memset(handled, 0, sizeof handled);
    o.workers = workers;
    o.retry.max_retries = 1;
    bus = t_open(&o);
    t_subscribe(bus, "x", ticks_off, NULL);
    t_subscribe(bus, "bad", fails, NULL);
    T_OK(eb_start(bus));
    start_jobs(thread, PUBLISHERS, publishes, bus);
    T_EQ(0, join_jobs(thread, PUBLISHERS));
    eb_destroy(bus);
    T_ROWS(PUBLISHERS * 36, path, "status = 'done' AND retry_count = 0");
    T_ROWS(PUBLISHERS * 4, path, "status = 'dlq' AND retry_count = 2");
    PASS();
}

/* ---- everything at once ---------------------------------------------------------------------- */

static int mess_done; /* publishers that have finished */

/* Fails one in seven, always. */
static eb_result fails_some(eb_delivery *d, void *user)
{
    (void)user;
    return atoi(d->event->payload) % 7 ? EB_OK : eb_fail(d, "seven");
}

static void *mess_publish(void *arg)
{
    job *j = (job *)arg;
    eb_message m[3];
    char payload[20];
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < 100; i++) {
        eb_result rc;
        snprintf(payload, sizeof payload, "%d", i + j->index);
        if (i % 3 == 0) {
            rc = eb_post(j->bus, "mess.post", payload, NULL);
            j->bad += rc != EB_OK;
            j->good += rc == EB_OK;
        } else if (i % 3 == 1) {
            m[0].type = m[1].type = m[2].type = "mess.send";
            m[0].payload = m[1].payload = m[2].payload = payload;
            m[1].delay_ms = 5;
            rc = eb_send(j->bus, m, 3, NULL);
            j->bad += rc != EB_OK;
            j->good += rc == EB_OK ? 3 : 0;
        } else {
            rc = eb_publish(j->bus, "mess.publish", payload, NULL);
            j->bad += rc != EB_OK && rc != EB_DEAD;
            j->good += rc >= 0;
        }
    }
    p_add(&mess_done, 1);
    return NULL;
}

static void *mess_subscribe(void *arg)
{
    job *j = (job *)arg;
    int i;
    for (i = 0; i < 100; i++) {
        eb_id id;
        const char *pattern = i & 1 ? "*" : "mess.post";
        j->bad += eb_subscribe(j->bus, pattern, t_succeeds, NULL, NULL, &id) != EB_OK;
        j->bad += eb_unsubscribe(j->bus, id.str) != EB_OK;
        j->bad += eb_unsubscribe(j->bus, id.str) != EB_ERR_NOT_FOUND;
    }
    return NULL;
}

static void *mess_look(void *arg)
{
    job *j = (job *)arg;
    eb_store *store = eb_bus_store(j->bus);
    int i;
    for (i = 0; i < 100; i++) {
        eb_event_list list;
        eb_stats stats;
        j->bad += eb_stats_get(store, &stats) != EB_OK;
        j->bad += stats.pending < 0 || stats.processing < 0 || stats.lost_workers != 0;
        j->bad += eb_log_read(store, NULL, &list) != EB_OK;
        eb_event_list_free(&list);
        j->bad += eb_dlq_list(store, NULL, &list) != EB_OK;
        eb_event_list_free(&list);
        eb_wake(j->bus);
    }
    return NULL;
}

static void *mess_retry(void *arg)
{
    job *j = (job *)arg;
    int i;
    for (i = 0; i < 30; i++) {
        j->bad += eb_dlq_retry_all(eb_bus_store(j->bus), NULL, NULL) != EB_OK;
        p_nap(3);
    }
    return NULL;
}

TEST everything_at_once_loses_nothing(void)
{
    static void *(*const part[])(void *) = {mess_publish, mess_publish,   mess_publish,
                                            mess_publish, mess_subscribe, mess_subscribe,
                                            mess_look,    mess_retry};
    enum { PARTS = 8 };
    const char *path = t_path("mess");
    eb_options o = t_options(path);
    pthread_t thread[PARTS];
    eb_stats stats;
    char buf[100];
    eb_bus *bus;
    int i, posted = 0;
    p_set(&mess_done, 0);
    o.workers = 3;
    o.retry.max_retries = 1;
    bus = t_run_with(&o, "mess.*", fails_some, NULL);
    for (i = 0; i < PARTS; i++) {
        memset(&jobs[i], 0, sizeof jobs[i]);
        jobs[i].bus = bus;
        jobs[i].index = i;
        thread[i] = p_go(part[i], &jobs[i]);
    }
    T_EQ(0, join_jobs(thread, PARTS));
    T_EQ(4, p_get(&mess_done));
    for (i = 0; i < PARTS; i++) posted += jobs[i].good;
    T_OK(eb_drain(bus, P_LONG_MS));
    stats = t_stats(bus);
    T_EQ(0, stats.pending);
    T_EQ(0, stats.processing);
    T_EQ(posted, stats.done + stats.dlq);
    ASSERT(stats.dlq > 0 && stats.done > 0);
    eb_destroy(bus);
    T_EQ(posted, t_stored(path));
    T_ROWS(posted, path, "status = 'done' OR (status = 'dlq' AND retry_count = 2)");
    T_ROWS(0, path, "(CAST(payload AS INTEGER) % 7 = 0) <> (status = 'dlq')");
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", buf, sizeof buf));
    PASS();
}

/* ---- unsubscribe ----------------------------------------------------------------------------- */

static eb_result takes_a_while(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_add(&hang.calls, 1);
    p_nap(150);
    p_set(&hang.returned, 1);
    return EB_OK;
}

TEST unsubscribe_waits_for_the_running_call(void)
{
    eb_id sub;
    eb_bus *bus = t_bus(t_path("unsubscribe"));
    memset(&hang, 0, sizeof hang);
    T_OK(eb_subscribe(bus, "x", takes_a_while, NULL, NULL, &sub));
    T_OK(eb_start(bus));
    t_post(bus, "x", NULL);
    P_EVENTUALLY(p_get(&hang.calls));
    T_OK(eb_unsubscribe(bus, sub.str));
    T_EQ(1, p_get(&hang.returned));
    T_OK(eb_publish(bus, "x", NULL, NULL)); /* nobody's any more */
    T_EQ(1, p_get(&hang.calls));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, sub.str));
    eb_destroy(bus);
    PASS();
}

TEST unsubscribe_gives_up_waiting_but_no_new_call_begins(void)
{
    const char *path = t_path("unsubscribe-hang");
    eb_options o = t_options(path);
    int64_t begin;
    eb_id sub;
    eb_bus *bus;
    memset(&hang, 0, sizeof hang);
    o.workers = 2;
    o.shutdown_timeout_ms = 200;
    bus = t_open(&o);
    T_OK(eb_subscribe(bus, "x", hangs, NULL, NULL, &sub));
    T_OK(eb_start(bus));
    t_post(bus, "x", NULL);
    P_EVENTUALLY(p_get(&hang.calls));
    begin = p_ms();
    T_IS(EB_ERR_TIMEOUT, eb_unsubscribe(bus, sub.str));
    P_WITHIN(190, 200 + P_SLACK_MS, p_ms() - begin);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(1, p_get(&hang.calls));
    p_set(&hang.release, 1);
    T_OK(t_settle(bus)); /* the call that ran all the time counts */
    eb_destroy(bus);
    T_EQ(1, p_get(&hang.calls));
    T_ROWS(2, path, "status = 'done' AND retry_count = 0");
    PASS();
}

static struct {
    eb_id sub[2];
    int here, result[2], calls[2];
} duel;

static eb_result duels(eb_delivery *d, void *user)
{
    int me = *(const int *)user;
    p_add(&duel.calls[me], 1);
    p_add(&duel.here, 1);
    p_until(&duel.here, 2);
    p_set(&duel.result[me], (int)eb_unsubscribe(d->bus, duel.sub[!me].str));
    return EB_OK;
}

TEST two_handlers_that_unsubscribe_each_other_do_not_deadlock(void)
{
    static int me[2] = {0, 1};
    int round;
    for (round = 0; round < 20; round++) {
        eb_options o = t_options(t_path("duel"));
        eb_bus *bus;
        memset(&duel, 0, sizeof duel);
        duel.result[0] = duel.result[1] = 99;
        o.workers = 2;
        bus = t_open(&o);
        T_OK(eb_subscribe(bus, "a", duels, &me[0], NULL, &duel.sub[0]));
        T_OK(eb_subscribe(bus, "b", duels, &me[1], NULL, &duel.sub[1]));
        T_OK(eb_start(bus));
        t_post(bus, "a", NULL);
        t_post(bus, "b", NULL);
        T_OK(t_settle(bus));
        T_EQ(EB_OK, p_get(&duel.result[0]));
        T_EQ(EB_OK, p_get(&duel.result[1]));
        T_OK(eb_publish(bus, "a", NULL, NULL));
        T_OK(eb_publish(bus, "b", NULL, NULL));
        T_EQ(1, p_get(&duel.calls[0]));
        T_EQ(1, p_get(&duel.calls[1]));
        eb_destroy(bus);
    }
    PASS();
}

static eb_result leaves(eb_delivery *d, void *user)
{
    p_add(&hang.calls, 1);
    p_set(&hang.late, (int)eb_unsubscribe(d->bus, ((eb_id *)user)->str));
    return EB_OK;
}

TEST handler_may_unsubscribe_itself(void)
{
    static eb_id sub;
    eb_bus *bus = t_bus(t_path("leaves"));
    memset(&hang, 0, sizeof hang);
    hang.late = 99;
    T_OK(eb_subscribe(bus, "x", leaves, &sub, NULL, &sub));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(EB_OK, hang.late);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(1, hang.calls);
    eb_destroy(bus);
    PASS();
}

/* ---- many buses ------------------------------------------------------------------------------ */

static char shared_path[440];
static int gate;

static void *opens(void *arg)
{
    job *j = (job *)arg;
    eb_options o = t_options(shared_path);
    eb_bus *bus = NULL;
    o.busy_timeout_ms = P_LONG_MS;
    p_add(&gate, 1);
    while (p_get(&gate) < PUBLISHERS) continue;
    j->bad += eb_open(&bus, &o) != EB_OK;
    j->bad += eb_post(bus, "x", NULL, NULL) != EB_OK;
    eb_destroy(bus);
    return NULL;
}

TEST eight_threads_open_a_new_file_at_once(void)
{
    pthread_t thread[PUBLISHERS];
    char buf[100];
    int round;
    for (round = 0; round < 20; round++) {
        t_copy(shared_path, sizeof shared_path, t_path("open"));
        p_set(&gate, 0);
        start_jobs(thread, PUBLISHERS, opens, NULL);
        T_EQ(0, join_jobs(thread, PUBLISHERS));
        T_EQ(PUBLISHERS, t_sql_int(shared_path, "SELECT count(DISTINCT seq) FROM events"));
        T_ROWS(PUBLISHERS, shared_path, "status = 'pending'");
        ASSERT_STR_EQ("ok", t_sql_text(shared_path, "PRAGMA integrity_check", buf, sizeof buf));
    }
    PASS();
}

/* ---- asleep ---------------------------------------------------------------------------------- */

#ifndef _WIN32 /* it does not count its context switches */

/* Voluntary context switches of the process while this thread sleeps once for three seconds. */
static long switches(void)
{
    struct rusage before, after;
    struct timespec ts;
    ts.tv_sec = 3;
    ts.tv_nsec = 0;
    getrusage(RUSAGE_SELF, &before);
    nanosleep(&ts, NULL);
    getrusage(RUSAGE_SELF, &after);
    return after.ru_nvcsw - before.ru_nvcsw;
}

/* The fewest of three windows, but stops at the first that is within the limit: the machine, or
** what a bus still has to do after its start, may disturb one of them. */
static long quietest(long limit)
{
    long best = switches();
    int i;
    for (i = 0; i < 2 && best > limit; i++) {
        long now = switches();
        if (now < best) best = now;
    }
    return best;
}

static long still; /* of a process without a bus; a sanitizer may have a thread of its own */

TEST sleeping_bus_only_looks_for_other_processes(int64_t idle_poll_ms, int workers)
{
    eb_options o = t_options(t_path("sleep"));
    long limit = still + (idle_poll_ms > 0 ? (long)(3000 / idle_poll_ms) : 0) + 10;
    eb_bus *bus;
    o.idle_poll_ms = idle_poll_ms;
    o.workers = workers;
    bus = t_run_with(&o, "*", t_watch, &seen);
    T_OK(eb_publish(bus, "x", NULL, NULL)); /* everything has been used once */
    P_WITHIN(0, limit, quietest(limit));
    eb_destroy(bus);
    PASS();
}

TEST bus_that_waits_for_a_retry_sleeps_as_well(void)
{
    const char *path = t_path("sleep-retry");
    eb_options o = t_options(path);
    long limit = still + 3 + 10;
    eb_bus *bus;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000;
    bus = t_run_with(&o, "*", fails, NULL);
    t_post(bus, "x", NULL);
    P_EVENTUALLY(t_rows(path, "retry_count = 1") == 1);
    P_WITHIN(0, limit, quietest(limit));
    eb_destroy(bus);
    PASS();
}

TEST bus_without_workers_does_nothing_by_itself(void)
{
    eb_options o = t_options(t_path("sleep-pump"));
    int threads = p_threads();
    long limit = still + (still > 1 ? 5 : 1); /* 1: the sleep itself, and nothing else */
    eb_bus *bus;
    o.workers = EB_NONE;
    o.idle_poll_ms = 10;
    bus = t_run_with(&o, "*", t_watch, &seen);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    ASSERT(p_threads() <= threads);
    P_WITHIN(0, limit, quietest(limit));
    eb_destroy(bus);
    PASS();
}

#endif /* not _WIN32 */

SUITE(workers)
{
    RUN_TEST(four_workers_run_four_handlers_at_once);
    greatest_set_test_suffix("default");
    RUN_TESTp(never_more_handlers_than_workers, 0);
    greatest_set_test_suffix("three");
    RUN_TESTp(never_more_handlers_than_workers, 3);
    RUN_TEST(timed_out_handler_is_left_behind_and_its_late_answer_is_stale);
    RUN_TEST(extended_handler_is_not_given_up);
    RUN_TEST(after_sixteen_lost_workers_the_subscription_is_paused_and_the_others_go_on);
    RUN_TEST(lost_workers_and_paused_subscriptions_stand_in_the_file);
    RUN_TEST(shutdown_returns_in_time_beside_a_lost_worker);
}

SUITE(publishers)
{
    RUN_TEST(every_event_of_eight_publishers_is_handled_exactly_once);
    RUN_TEST(drain_beside_posters_ends_with_nothing_left);
    greatest_set_test_suffix("one_worker");
    RUN_TESTp(eight_threads_publish_and_each_waits_for_its_own_event, 1);
    greatest_set_test_suffix("four_workers");
    RUN_TESTp(eight_threads_publish_and_each_waits_for_its_own_event, 4);
    RUN_TEST(everything_at_once_loses_nothing);
    RUN_TEST(eight_threads_open_a_new_file_at_once);
}

SUITE(unsubscribe)
{
    RUN_TEST(unsubscribe_waits_for_the_running_call);
    RUN_TEST(unsubscribe_gives_up_waiting_but_no_new_call_begins);
    RUN_TEST(two_handlers_that_unsubscribe_each_other_do_not_deadlock);
    RUN_TEST(handler_may_unsubscribe_itself);
}

#ifndef _WIN32
SUITE(asleep)
{
    still = switches();
    greatest_set_test_suffix("every_100_ms");
    RUN_TESTp(sleeping_bus_only_looks_for_other_processes, 100, 1);
    greatest_set_test_suffix("every_second_with_four_workers");
    RUN_TESTp(sleeping_bus_only_looks_for_other_processes, 1000, 4);
    greatest_set_test_suffix("never");
    RUN_TESTp(sleeping_bus_only_looks_for_other_processes, EB_NONE, 1);
    RUN_TEST(bus_that_waits_for_a_retry_sleeps_as_well);
    RUN_TEST(bus_without_workers_does_nothing_by_itself);
}
#endif

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(workers);
    RUN_SUITE(publishers);
    RUN_SUITE(unsubscribe);
#ifndef _WIN32
    RUN_SUITE(asleep);
#endif
    GREATEST_MAIN_END();
}
