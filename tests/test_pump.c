/* test_pump.c - a bus without threads: eb_pump runs what is due, keeps to its budget, says when to
** come back, leaves everything on disk. On a clock that moves only when told, or by sleeping. */
#include "test.h"
#include "proc.h"

/* Posts payloads "1" to "n". */
static void post(eb_bus *bus, int n)
{
    char payload[20];
    int i;
    for (i = 1; i <= n; i++) {
        snprintf(payload, sizeof payload, "%d", i);
        t_post(bus, "x", payload);
    }
}

/* The bus of every test is called bus. */
#define PUMP(budget, next) T_PUMP(bus, (budget), (next))

/* ---- what it runs, and when ------------------------------------------------------------------ */

TEST runs_what_is_due_and_then_there_is_nothing(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("due"), &t, &s);
    PUMP(EB_NONE, -1);
    PUMP(0, -1);
    T_EQ(0, s.calls);
    post(bus, 3);
    T_EQ(0, s.calls); /* posting runs nothing */
    PUMP(EB_NONE, -1);
    ASSERT_STR_EQ("1 2 3 ", s.payloads);
    PUMP(EB_NONE, -1);
    T_EQ(3, s.calls);
    t_post(bus, "x", "4");
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* who does not want to know need not */
    T_EQ(4, s.calls);
    T_EQ(0, t.slept_ms); /* eb_pump never sleeps */
    eb_destroy(bus);
    PASS();
}

TEST finds_at_once_what_was_published_before_the_start(void)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("before"), &t);
    eb_bus *bus = t_open(&o);
    eb_message m = t_message("x", "9");
    m.delay_ms = 700;
    T_OK(eb_send(bus, &m, 1, NULL));
    post(bus, 3);
    t_subscribe(bus, "*", t_watch, &s);
    T_OK(eb_start(bus));
    T_EQ(0, s.calls);
    PUMP(EB_NONE, 700);
    ASSERT_STR_EQ("1 2 3 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

TEST budget_of_zero_is_one_event(void)
{
    enum { N = EB_READY_MAX + 100 }; /* more than are held in memory */
    static eb_message m[N];
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("zero"), &t, &s);
    int i;
    for (i = 0; i < N; i++) m[i] = t_message("x", "1");
    T_OK(eb_send(bus, m, N, NULL));
    for (i = 1; i <= N; i++) {
        PUMP(0, i < N ? 0 : -1);
        T_EQ(i, s.calls);
    }
    PUMP(0, -1);
    T_EQ(N, s.calls);
    eb_destroy(bus);
    PASS();
}

/* Found on disk, in numbers around those in which they are read. */
TEST next_is_right_at_the_end_of_every_page(int n)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("page"), &t);
    eb_bus *bus = t_open(&o);
    int i;
    post(bus, n);
    t_subscribe(bus, "*", t_watch, &s);
    T_OK(eb_start(bus));
    for (i = 1; i <= n; i++) {
        PUMP(0, i < n ? 0 : -1);
        T_EQ(i, s.calls);
    }
    eb_destroy(bus);
    PASS();
}

TEST budget_is_the_time_after_which_no_new_event_begins(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("budget"), &t, &s);
    s.takes_ms = 10;
    post(bus, 20);
    PUMP(25, 0); /* they begin at 0, 10 and 20 */
    T_EQ(3, s.calls);
    PUMP(10, 0);
    T_EQ(4, s.calls);
    PUMP(1, 0);
    T_EQ(5, s.calls);
    PUMP(11, 0);
    T_EQ(7, s.calls);
    s.takes_ms = 20000;
    PUMP(5, 0); /* one is always allowed */
    T_EQ(8, s.calls);
    s.takes_ms = 0;
    PUMP(5, -1); /* no time passes: all the others */
    T_EQ(20, s.calls);
    post(bus, 5);
    PUMP(INT64_MAX, -1);
    T_EQ(25, s.calls);
    eb_destroy(bus);
    PASS();
}

static int commit_ms; /* what each commit of the bus takes */
static int slow_commit(void *user)
{
    t_advance((t_time *)user, commit_ms);
    return 0;
}

static int64_t budget_ends_ms; /* monotonic */
static int started, started_late;
static eb_result looks_at_the_budget(eb_delivery *d, void *user)
{
    t_time *t = (t_time *)user;
    if (started++ > 0 && t->mono_ms >= budget_ends_ms) started_late++;
    t_advance(t, d->event->seq % 3);
    return EB_OK;
}

/* Also when it is the commit of a claim that takes the time: what it claimed waits for the next
** call. */
TEST no_event_begins_after_a_commit_that_took_the_budget(int takes_ms)
{
    enum { N = 100 };
    const char *path = t_path("slow-commit");
    t_time t;
    eb_options o = t_timed(path, &t);
    eb_bus *bus = t_run_with(&o, "*", looks_at_the_budget, &t);
    int64_t next = 0;
    int i, calls = 0;
    post(bus, N);
    sqlite3_commit_hook(bus->store.writer.handle, slow_commit, &t);
    commit_ms = takes_ms;
    started_late = 0;
    for (i = 0; next == 0; i++) {
        started = 0;
        budget_ends_ms = t.mono_ms + 7 * (i % 8);
        T_OK(eb_pump(bus, 7 * (i % 8), &next));
        ASSERT(started > 0);
        T_EQ(0, started_late);
        calls += started;
    }
    T_EQ(-1, next);
    T_EQ(N, calls);
    T_ROWS(N, path, "status = 'done' AND retry_count = 0");
    eb_destroy(bus);
    PASS();
}

/* The budget ends a chain of events that each publish the next. */
static eb_result begets(eb_delivery *d, void *user)
{
    t_seen *s = (t_seen *)user;
    s->calls++;
    t_advance(s->clock, 1);
    return eb_publish(d->bus, "x", NULL, NULL); /* inside a handler: a post */
}

TEST events_without_end_do_not_hold_the_caller(void)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("chain"), &t);
    eb_bus *bus = t_run_with(&o, "*", begets, &s);
    s.clock = &t;
    t_post(bus, "x", NULL);
    PUMP(50, 0);
    T_EQ(50, s.calls);
    PUMP(0, 0);
    T_EQ(51, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST delays_run_at_their_millisecond_and_next_says_when(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("delays"), &t, &s);
    eb_message m[4];
    int i;
    for (i = 0; i < 4; i++) m[i] = t_message("x", "1");
    m[0].delay_ms = 500;
    m[1].payload = "2";
    m[1].deliver_at_ms = T_EPOCH + 300;
    m[2].payload = "3";
    m[2].delay_ms = 86400000;
    m[3].payload = "4";
    m[3].deliver_at_ms = T_EPOCH - 5; /* in the past: now */
    T_OK(eb_send(bus, m, 4, NULL));
    PUMP(EB_NONE, 300);
    ASSERT_STR_EQ("4 ", s.payloads);
    t_advance(&t, 299);
    PUMP(EB_NONE, 1);
    T_EQ(1, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, 200);
    ASSERT_STR_EQ("4 2 ", s.payloads);
    t_advance(&t, 250); /* late is fine */
    PUMP(EB_NONE, 86400000 - 550);
    ASSERT_STR_EQ("4 2 1 ", s.payloads);
    t_post(bus, "x", "5");
    PUMP(0, 86400000 - 550);
    t_advance(&t, 86400000);
    PUMP(EB_NONE, -1);
    ASSERT_STR_EQ("4 2 1 5 3 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

/* An earlier time than any that is known comes first, however it came. */
TEST next_is_the_earliest_of_all(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("earliest"), &t, &s);
    eb_message m = t_message("x", "1");
    m.delay_ms = 9000;
    T_OK(eb_send(bus, &m, 1, NULL));
    PUMP(EB_NONE, 9000);
    m.delay_ms = 4000;
    T_OK(eb_send(bus, &m, 1, NULL));
    PUMP(EB_NONE, 4000);
    m.delay_ms = 6000;
    T_OK(eb_send(bus, &m, 1, NULL));
    PUMP(EB_NONE, 4000);
    s.fail_first = 1;
    t_post(bus, "x", "2");
    PUMP(EB_NONE, 1000); /* its retry */
    s.fail_first = 0;
    t_advance(&t, 1000);
    PUMP(EB_NONE, 3000);
    t_advance(&t, 3000);
    PUMP(EB_NONE, 2000);
    t_advance(&t, 2000);
    PUMP(EB_NONE, 3000);
    t_advance(&t, 3000);
    PUMP(EB_NONE, -1);
    T_EQ(5, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST retries_are_due_by_the_clock(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("retries"), &t, &s);
    s.fail_first = 99;
    t_post(bus, "x", "1");
    PUMP(EB_NONE, 1000);
    T_EQ(1, s.calls);
    t_advance(&t, 999);
    PUMP(EB_NONE, 1);
    T_EQ(1, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, 2000);
    T_EQ(2, s.calls);
    t_advance(&t, 2000);
    PUMP(EB_NONE, 4000);
    T_EQ(3, s.calls);
    t_advance(&t, 3999);
    PUMP(EB_NONE, 1);
    T_EQ(3, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, -1); /* dead */
    T_EQ(4, s.calls);
    T_EQ(7000, s.at_ms[3] - T_EPOCH);
    eb_destroy(bus);
    PASS();
}

TEST waits_of_many_events_do_not_disturb_each_other(void)
{
    enum { N = 10 };
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("many-waits"), &t, &s);
    int i;
    s.fail_first = 1;
    s.takes_ms = 7; /* so that each is due at its own time */
    post(bus, N);
    PUMP(EB_NONE, 1000 - 7 * (N - 1));
    T_EQ(N, s.calls);
    s.takes_ms = 0;
    for (i = 0; i < N; i++) {
        t_advance(&t, i == 0 ? 1000 - 7 * (N - 1) : 7);
        PUMP(EB_NONE, i < N - 1 ? 7 : -1);
        T_EQ(N + i + 1, s.calls);
    }
    ASSERT_STR_EQ("1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

static eb_result dozes(eb_delivery *d, void *user)
{
    t_seen *s = (t_seen *)user;
    return s->calls++ < 2 ? eb_snooze(d, 12345) : EB_OK;
}

TEST snoozed_event_is_due_by_the_clock(void)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("snooze"), &t);
    eb_bus *bus = t_run_with(&o, "*", dozes, &s);
    t_post(bus, "x", NULL);
    PUMP(EB_NONE, 12345);
    t_advance(&t, 12344);
    PUMP(EB_NONE, 1);
    T_EQ(1, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, 12345);
    t_advance(&t, 12345);
    PUMP(EB_NONE, -1);
    T_EQ(3, s.calls);
    eb_destroy(bus);
    PASS();
}

/* What nobody matches is no reason to come back. */
TEST kept_events_are_not_due(void)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("kept"), &t);
    eb_bus *bus;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    t_post(bus, "x", "1");
    PUMP(EB_NONE, -1);
    t_subscribe(bus, "y", t_watch, &s);
    PUMP(EB_NONE, -1);
    t_subscribe(bus, "x", t_watch, &s);
    PUMP(EB_NONE, -1);
    T_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

/* However many lie in front of it. */
TEST one_event_runs_behind_many_that_nobody_wants(void)
{
    enum { N = 2000 };
    static eb_message m[N];
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("behind"), &t);
    eb_bus *bus = t_open(&o);
    int64_t next = -99;
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < N; i++) m[i].type = i < N - 1 ? "unwanted" : "x";
    T_OK(eb_send(bus, m, N, NULL)); /* before the start: they stay */
    t_subscribe(bus, "x", t_watch, &s);
    T_OK(eb_start(bus));
    T_OK(eb_pump(bus, 0, &next));
    T_EQ(1, s.calls);
    T_EQ(-1, next);
    eb_destroy(bus);
    PASS();
}

TEST ordering_keys_are_kept_and_next_is_right(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("keys"), &t, &s);
    eb_message m[3];
    int i;
    for (i = 0; i < 3; i++) {
        m[i] = t_message("x", i == 0 ? "1" : i == 1 ? "2" : "3");
        m[i].ordering_key = "k";
    }
    T_OK(eb_send(bus, m, 1, NULL));
    PUMP(0, -1); /* alone: nothing is left */
    T_OK(eb_send(bus, m, 3, NULL));
    PUMP(EB_NONE, -1);
    ASSERT_STR_EQ("1 1 2 3 ", s.payloads);
    s.fail_first = 1;
    T_OK(eb_send(bus, m, 2, NULL));
    PUMP(EB_NONE, 1000); /* the second waits behind the first */
    T_EQ(5, s.calls);
    t_advance(&t, 1000);
    PUMP(EB_NONE, 1000);
    ASSERT_STR_EQ("1 1 2 3 1 1 2 ", s.payloads);
    t_advance(&t, 1000);
    PUMP(EB_NONE, -1);
    T_EQ(8, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST next_is_known_again_after_a_restart(void)
{
    const char *path = t_path("restart");
    t_time t, t2;
    t_seen s;
    eb_bus *bus = t_run_timed(path, &t, &s);
    eb_message m = t_message("x", "1");
    m.delay_ms = 5000;
    T_OK(eb_send(bus, &m, 1, NULL));
    s.fail_first = 1;
    t_post(bus, "x", "2");
    PUMP(EB_NONE, 1000);
    eb_destroy(bus);
    bus = t_run_timed(path, &t2, &s); /* the same hour again */
    PUMP(EB_NONE, 1000);
    T_EQ(0, s.calls);
    t_advance(&t2, 1000);
    PUMP(EB_NONE, 4000);
    t_advance(&t2, 4000);
    PUMP(EB_NONE, -1);
    ASSERT_STR_EQ("2 1 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

/* A wall clock that was set back or forth moves what is due with it, and strands nothing. */
TEST wall_clock_may_jump(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("jump"), &t, &s);
    eb_message m = t_message("x", "1");
    m.delay_ms = 1000;
    T_OK(eb_send(bus, &m, 1, NULL));
    t.now_ms -= 3600000; /* an hour back */
    PUMP(EB_NONE, 3601000);
    t.now_ms += 7200000;
    PUMP(EB_NONE, -1);
    T_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

/* ---- what else pumps ------------------------------------------------------------------------- */

TEST publish_pumps_until_its_own_event_is_over(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("publish"), &t, &s);
    eb_message m = t_message("x", "3");
    m.delay_ms = 3600000;
    post(bus, 2);
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(eb_publish(bus, "x", "4", NULL)); /* those before it run too */
    ASSERT_STR_EQ("1 2 4 ", s.payloads);
    T_EQ(0, t.slept_ms);
    s.fail_first = 2;
    T_OK(eb_publish(bus, "x", "5", NULL));
    T_EQ(3000, t.slept_ms); /* through its retries, and not a millisecond more */
    s.reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "x", "6", NULL));
    T_EQ(3000, t.slept_ms);
    s.reject = 0;
    s.fail_first = 99;
    T_IS(EB_DEAD, eb_publish(bus, "x", "7", NULL));
    T_EQ(10000, t.slept_ms);
    ASSERT_STR_EQ("1 2 4 5 5 5 6 7 7 7 7 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

TEST wait_pumps_until_the_event_is_over_or_the_time_is(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("wait"), &t, &s);
    eb_message m = t_message("x", "9");
    eb_id id, now;
    m.delay_ms = 10000;
    T_OK(eb_send(bus, &m, 1, &id));
    now = t_post(bus, "x", "1");
    T_OK(eb_wait(bus, now.str, 10)); /* one event takes no time here */
    T_EQ(0, t.slept_ms);
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, id.str, 4000));
    T_EQ(4000, t.slept_ms);
    T_EQ(1, s.calls);
    T_OK(eb_wait(bus, id.str, 6000)); /* due at the very end of the time is in time */
    T_EQ(10000, t.slept_ms);
    ASSERT_STR_EQ("1 9 ", s.payloads);
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(eb_wait(bus, id.str, EB_NONE));
    T_EQ(20000, t.slept_ms);
    eb_destroy(bus);
    PASS();
}

TEST drain_pumps_until_nothing_is_left_or_the_time_is_over(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("drain"), &t, &s);
    eb_message m = t_message("x", "9");
    m.delay_ms = 10000;
    T_OK(eb_drain(bus, 0));
    post(bus, 3);
    T_OK(eb_send(bus, &m, 1, NULL));
    T_IS(EB_ERR_TIMEOUT, eb_drain(bus, 2500));
    T_EQ(2500, t.slept_ms);
    ASSERT_STR_EQ("1 2 3 ", s.payloads);
    T_OK(eb_drain(bus, 20000));
    T_EQ(10000, t.slept_ms);
    ASSERT_STR_EQ("1 2 3 9 ", s.payloads);
    s.fail_first = 2;
    t_post(bus, "x", "5");
    T_OK(eb_drain(bus, EB_NONE)); /* retrying ones count */
    T_EQ(13000, t.slept_ms);
    ASSERT_STR_EQ("1 2 3 9 5 5 5 ", s.payloads);
    T_OK(eb_drain(bus, 0));
    T_EQ(13000, t.slept_ms);
    eb_destroy(bus);
    PASS();
}

TEST timeout_of_zero_only_looks(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("looks"), &t, &s);
    eb_id id = t_post(bus, "x", "1");
    T_IS(EB_ERR_TIMEOUT, eb_drain(bus, 0));
    T_EQ(0, s.calls);
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, id.str, 0));
    T_EQ(0, s.calls);
    T_EQ(0, t.slept_ms);
    PUMP(EB_NONE, -1);
    T_OK(eb_wait(bus, id.str, 0));
    T_OK(eb_drain(bus, 0));
    eb_destroy(bus);
    PASS();
}

/* What stays because nobody matches it is not waited for, not even a little. */
TEST drain_does_not_sleep_for_kept_events(void)
{
    t_time t;
    eb_options o = t_timed(t_path("drain-kept"), &t);
    eb_bus *bus;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = t_open(&o);
    t_post(bus, "x", "1"); /* found on disk */
    T_OK(eb_start(bus));
    T_OK(eb_drain(bus, 60000));
    T_EQ(0, t.slept_ms);
    t_post(bus, "x", "2");
    T_OK(eb_drain(bus, EB_NONE));
    T_EQ(0, t.slept_ms);
    eb_destroy(bus);
    PASS();
}

TEST pump_finds_what_others_committed(void)
{
    const char *path = t_path("others");
    t_time t, t2;
    t_seen s;
    eb_bus *bus = t_run_timed(path, &t, &s), *other;
    eb_options o = t_timed(path, &t2);
    eb_store *store = NULL;
    eb_message m = t_message("x", "2");
    eb_id id;
    other = t_open(&o); /* publishes beside the one that dispatches */
    T_OK(eb_store_open(&store, &o));
    PUMP(EB_NONE, -1);
    t_post(other, "x", "1");
    m.delay_ms = 800;
    T_OK(eb_send(other, &m, 1, NULL));
    PUMP(EB_NONE, 800);
    ASSERT_STR_EQ("1 ", s.payloads);
    s.reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "x", "3", &id));
    s.reject = 0;
    T_OK(eb_dlq_retry(store, id.str, NULL));
    PUMP(EB_NONE, 800);
    ASSERT_STR_EQ("1 3 3 ", s.payloads);
    t_advance(&t, 800);
    PUMP(EB_NONE, -1);
    eb_store_close(store);
    eb_destroy(other);
    eb_destroy(bus);
    PASS();
}

/* ---- where it is not allowed ----------------------------------------------------------------- */

TEST arguments_and_states_are_checked(void)
{
    t_time t;
    eb_options o = t_timed(t_path("states"), &t);
    eb_bus *bus = t_open(&o);
    int64_t next = 5;
    T_IS(EB_ERR_STATE, eb_pump(bus, EB_NONE, &next)); /* not started */
    T_EQ(-1, next);
    T_IS(EB_ERR_STATE, eb_drain(bus, 0));
    T_OK(eb_start(bus));
    T_IS(EB_ERR_ARG, eb_pump(bus, -2, &next));
    T_IS(EB_ERR_ARG, eb_pump(bus, INT64_MIN, NULL));
    T_IS(EB_ERR_ARG, eb_pump(NULL, 0, &next));
    T_IS(EB_ERR_ARG, eb_drain(bus, -2));
    T_OK(eb_pump(bus, 0, &next));
    T_OK(eb_shutdown(bus));
    T_IS(EB_ERR_SHUTDOWN, eb_pump(bus, 0, &next));
    T_EQ(-1, next);
    eb_destroy(bus);
    PASS();
}

#ifndef EB_NO_THREADS
TEST bus_with_workers_is_not_pumped(void)
{
    eb_options o = t_options(t_path("workers"));
    eb_bus *bus;
    o.workers = 1;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_IS(EB_ERR_STATE, eb_pump(bus, 0, NULL));
    eb_destroy(bus);
    PASS();
}
#endif

static struct {
    eb_result pump, wait, drain, publish;
    int64_t next;
    int calls;
    eb_id id;
} inside;

static eb_result tries_everything(eb_delivery *d, void *user)
{
    (void)user;
    if (inside.calls++ > 0) return EB_OK;
    inside.next = 7;
    inside.pump = eb_pump(d->bus, 0, &inside.next);
    inside.wait = eb_wait(d->bus, d->event->id.str, 0);
    inside.drain = eb_drain(d->bus, EB_NONE);
    inside.publish = eb_publish(d->bus, "y", NULL, &inside.id);
    return EB_OK;
}

TEST inside_a_handler_there_is_no_pumping(void)
{
    t_time t;
    eb_options o = t_timed(t_path("inside"), &t);
    eb_bus *bus = t_run_with(&o, "*", tries_everything, NULL);
    int way;
    for (way = 0; way < 3; way++) { /* whoever pumps */
        memset(&inside, 0, sizeof inside);
        if (way < 2) t_post(bus, "x", NULL);
        if (way == 0) PUMP(EB_NONE, -1);
        if (way == 1) T_OK(eb_drain(bus, EB_NONE));
        if (way == 2) T_OK(eb_publish(bus, "x", NULL, NULL));
        T_EQ(EB_ERR_STATE, inside.pump);
        T_EQ(-1, inside.next);
        T_EQ(EB_ERR_STATE, inside.wait);
        T_EQ(EB_ERR_STATE, inside.drain);
        T_EQ(EB_OK, inside.publish); /* that is a post */
        T_OK(eb_wait(bus, inside.id.str, EB_NONE));
        T_EQ(2, inside.calls);
    }
    eb_destroy(bus);
    PASS();
}

/* The same in a logger, also if it is the application's own eb_post that speaks. */
static eb_bus *speaking;
static void logger_tries_everything(const eb_log_entry *e, void *user)
{
    (void)user;
    if (!e->type || strcmp(e->type, "nobody") != 0 || inside.calls++ > 0) return;
    inside.next = 7;
    inside.pump = eb_pump(speaking, EB_NONE, &inside.next);
    inside.wait = eb_wait(speaking, e->event_id, EB_NONE);
    inside.drain = eb_drain(speaking, EB_NONE);
    inside.publish = eb_publish(speaking, "good", "3", &inside.id);
}

TEST inside_the_logger_there_is_no_pumping(int on_unmatched, int how)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("logger"), &t);
    eb_message m = t_message("x", NULL);
    eb_bus *bus;
    o.on_unmatched = on_unmatched;
    o.logger.func = logger_tries_everything;
    bus = speaking = t_open(&o);
    memset(&inside, 0, sizeof inside);
    t_subscribe(bus, "good", t_watch, &s);
    T_OK(eb_start(bus));
    t_post(bus, "good", "1");
    m.type = "nobody";
    m.delay_ms = how == 1 ? 10 : 0;
    if (how == 2) T_IS(on_unmatched == EB_UNMATCHED_DLQ ? EB_DEAD : EB_OK,
                       eb_publish(bus, "nobody", NULL, NULL));
    else ASSERT(eb_send(bus, &m, 1, NULL) >= 0);
    t_advance(&t, 10);
    if (how == 1) PUMP(0, 0);
    if (how == 1) PUMP(EB_NONE, -1); /* a claim speaks */
    T_EQ(1, inside.calls);
    T_EQ(EB_ERR_STATE, inside.pump);
    T_EQ(-1, inside.next);
    T_EQ(EB_ERR_STATE, inside.wait);
    T_EQ(EB_ERR_STATE, inside.drain);
    T_EQ(EB_OK, inside.publish); /* that is a post */
    if (how == 0) T_EQ(0, s.calls); /* nobody has pumped */
    T_OK(eb_drain(bus, EB_NONE));
    T_EQ(2, s.calls);
    T_STATUS(EB_DONE, bus, inside.id);
    eb_destroy(bus);
    PASS();
}

#ifndef EB_NO_THREADS
static p_gate gate;

static void *pumps(void *arg)
{
    T_DO(eb_pump((eb_bus *)arg, EB_NONE, NULL));
    return NULL;
}

TEST second_thread_is_refused_and_may_pump_afterwards(void)
{
    const char *path = t_path("second");
    eb_options o = t_options(path);
    pthread_t thread;
    eb_bus *bus;
    eb_id id;
    int64_t next = 7;
    memset(&gate, 0, sizeof gate);
    o.workers = EB_NONE;
    bus = t_run_with(&o, "*", p_wait_at, &gate);
    id = t_post(bus, "x", NULL);
    thread = p_go(pumps, bus);
    P_EVENTUALLY(p_get(&gate.entered));
    T_IS(EB_ERR_STATE, eb_pump(bus, EB_NONE, &next));
    T_EQ(-1, next);
    T_SAYS("thread");
    T_IS(EB_ERR_STATE, eb_wait(bus, id.str, EB_NONE));
    T_IS(EB_ERR_STATE, eb_drain(bus, EB_NONE));
    T_IS(EB_ERR_STATE, eb_publish(bus, "x", NULL, NULL));
    T_EQ(1, t_stored(path)); /* refused means not stored */
    t_post(bus, "x", NULL); /* needs nobody's turn */
    p_set(&gate.release, 1);
    p_join(thread);
    T_OK(eb_pump(bus, EB_NONE, &next)); /* another thread than before: one at a time */
    T_EQ(-1, next);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(3, p_get(&gate.calls));
    T_ROWS(3, path, "status = 'done'");
    eb_destroy(bus);
    PASS();
}
#endif

/* ---- on disk, on one thread ------------------------------------------------------------------ */

static struct {
    const char *path;
    int64_t processing, claimed_attempts;
} spied;

static eb_result spies(eb_delivery *d, void *user)
{
    (void)user;
    spied.processing = t_rows(spied.path, "status = 'processing'");
    spied.claimed_attempts = t_sql_int(spied.path, "SELECT attempts FROM deliveries");
    return strcmp(d->event->payload, "\"bad\"") == 0 ? eb_reject(d, "bad")
           : strcmp(d->event->payload, "\"later\"") == 0 ? eb_fail(d, "later")
                                                          : EB_OK;
}

/* Seen through a connection of another process's kind: what eb_pump did is in the file. */
TEST every_outcome_is_committed_when_the_call_returns(void)
{
    const char *path = t_path("committed");
    t_time t;
    eb_options o = t_timed(path, &t);
    eb_bus *bus;
    eb_id id;
    spied.path = path;
    bus = t_run_with(&o, "*", spies, NULL);
    t_post(bus, "x", "\"good\"");
    T_ROWS(1, path, "status = 'pending'");
    PUMP(0, -1);
    T_EQ(1, spied.processing);       /* while its handler ran */
    T_EQ(1, spied.claimed_attempts); /* counted before, in case the handler ends the process */
    T_ROWS(1, path, "status = 'done'");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    t_post(bus, "x", "\"bad\"");
    PUMP(0, -1);
    T_ROWS(1, path, "status = 'dlq' AND retry_count = 1");
    id = t_post(bus, "x", "\"later\"");
    PUMP(0, 1000);
    T_ROWS(1, path, "status = 'processing' AND retry_count = 1 AND last_error IS NOT NULL");
    T_EQ(T_EPOCH + 1000, t_sql_int(path, "SELECT due_ms FROM deliveries"));
    T_IS(EB_DEAD, eb_wait(bus, id.str, EB_NONE));
    T_ROWS(1, path, "status = 'dlq' AND retry_count = 4");
    T_OK(eb_publish(bus, "x", "\"good\"", NULL));
    T_ROWS(2, path, "status = 'done'");
    t_post(bus, "x", "\"good\"");
    T_OK(eb_drain(bus, EB_NONE));
    T_ROWS(3, path, "status = 'done'");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    eb_destroy(bus);
    PASS();
}

/* The budget ends in the middle of a batch: what ran is on disk, what did not is not lost. */
TEST budget_that_ends_within_a_batch_leaves_a_true_file(void)
{
    enum { N = 200 };
    const char *path = t_path("batch");
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(path, &t, &s);
    int64_t next = 0;
    int ran = 0;
    post(bus, N);
    s.takes_ms = 1;
    while (ran < N) {
        T_OK(eb_pump(bus, 7, &next));
        ran += N - ran < 7 ? N - ran : 7;
        T_EQ(ran, s.calls);
        T_ROWS(ran, path, "status = 'done'");
        T_ROWS(N - ran, path, "status IN ('pending', 'processing')");
        T_EQ(ran < N ? 0 : -1, next);
    }
    eb_destroy(bus);
    PASS();
}

static int threads_inside;

static eb_result counts_threads(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    threads_inside = p_threads();
    return EB_OK;
}

TEST no_thread_is_ever_created(void)
{
    t_time t;
    eb_options o = t_timed(t_path("threads"), &t);
    int before = p_threads();
    eb_bus *bus = t_open(&o);
    T_EQ(before, p_threads());
    t_subscribe(bus, "*", counts_threads, NULL);
    T_OK(eb_start(bus));
    T_EQ(before, p_threads());
    threads_inside = -1;
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(before, threads_inside);
    t_post(bus, "x", NULL);
    PUMP(EB_NONE, -1);
    T_OK(eb_drain(bus, 1000));
    T_EQ(before, p_threads());
    T_OK(eb_shutdown(bus));
    T_EQ(before, p_threads());
    eb_destroy(bus);
#ifndef EB_NO_THREADS
    o = t_options(t_path("threads"));
    o.workers = 1;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    ASSERT(before == 0 || p_threads() > before); /* else the count means nothing */
    eb_destroy(bus);
#endif
    PASS();
}

/* Somebody holds the file: no harm, a time to come back, and nothing lost. */
TEST locked_file_puts_the_work_off(void)
{
    const char *path = t_path("locked");
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(path, &t);
    eb_bus *bus;
    sqlite3 *db = NULL;
    int64_t next = -99;
    o.busy_timeout_ms = EB_NONE;
    bus = t_run_with(&o, "*", t_watch, &s);
    PUMP(EB_NONE, -1);
    t_post(bus, "x", "1");
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    eb_pump(bus, EB_NONE, &next);
    T_EQ(0, s.calls);
    P_WITHIN(1, 2000, next); /* tried again after 2 s at the latest */
    T_MUST(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    t_advance(&t, next);
    PUMP(EB_NONE, -1);
    T_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

SUITE(pump)
{
    static const int slow[] = {1, 10, 30};
    static const char *const speaks[] = {"post", "claim", "publish"};
    char suffix[20];
    int n;
    RUN_TEST(runs_what_is_due_and_then_there_is_nothing);
    RUN_TEST(finds_at_once_what_was_published_before_the_start);
    RUN_TEST(budget_of_zero_is_one_event);
    for (n = -1; n <= 1; n++)
        RUN_TESTp(next_is_right_at_the_end_of_every_page, EB_READY_MAX / 4 + n);
    RUN_TEST(budget_is_the_time_after_which_no_new_event_begins);
    for (n = 0; n < 3; n++) {
        snprintf(suffix, sizeof suffix, "%d_ms", slow[n]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(no_event_begins_after_a_commit_that_took_the_budget, slow[n]);
    }
    RUN_TEST(events_without_end_do_not_hold_the_caller);
    RUN_TEST(delays_run_at_their_millisecond_and_next_says_when);
    RUN_TEST(next_is_the_earliest_of_all);
    RUN_TEST(retries_are_due_by_the_clock);
    RUN_TEST(waits_of_many_events_do_not_disturb_each_other);
    RUN_TEST(snoozed_event_is_due_by_the_clock);
    RUN_TEST(kept_events_are_not_due);
    RUN_TEST(one_event_runs_behind_many_that_nobody_wants);
    RUN_TEST(ordering_keys_are_kept_and_next_is_right);
    RUN_TEST(next_is_known_again_after_a_restart);
    RUN_TEST(wall_clock_may_jump);
    RUN_TEST(publish_pumps_until_its_own_event_is_over);
    RUN_TEST(wait_pumps_until_the_event_is_over_or_the_time_is);
    RUN_TEST(drain_pumps_until_nothing_is_left_or_the_time_is_over);
    RUN_TEST(timeout_of_zero_only_looks);
    RUN_TEST(drain_does_not_sleep_for_kept_events);
    RUN_TEST(pump_finds_what_others_committed);
    RUN_TEST(arguments_and_states_are_checked);
    RUN_TEST(inside_a_handler_there_is_no_pumping);
    for (n = 0; n < 3; n++) {
        snprintf(suffix, sizeof suffix, "%s_done", speaks[n]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(inside_the_logger_there_is_no_pumping, EB_UNMATCHED_DONE, n);
        snprintf(suffix, sizeof suffix, "%s_dlq", speaks[n]);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(inside_the_logger_there_is_no_pumping, EB_UNMATCHED_DLQ, n);
    }
#ifndef EB_NO_THREADS
    RUN_TEST(bus_with_workers_is_not_pumped);
    RUN_TEST(second_thread_is_refused_and_may_pump_afterwards);
#endif
    RUN_TEST(every_outcome_is_committed_when_the_call_returns);
    RUN_TEST(budget_that_ends_within_a_batch_leaves_a_true_file);
    RUN_TEST(no_thread_is_ever_created);
    RUN_TEST(locked_file_puts_the_work_off);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    t_pump_mode = 1;
    RUN_SUITE(pump);
    GREATEST_MAIN_END();
}
