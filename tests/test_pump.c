/* test_pump.c - a bus without threads: eb_pump runs what is due, keeps to its budget, says when to
** come back, and leaves everything on disk. On a clock that only moves when told, or by sleeping. */
#include "test.h"
#include "proc.h"

/* ---- a started bus on its own clock ---------------------------------------------------------- */

typedef struct seen {
    t_time *clock;
    int calls, fail_first, reject;
    int64_t takes_ms;   /* each call moves the clock */
    int64_t at_ms[64];  /* when each call began, since T_EPOCH */
    char payloads[400]; /* of all calls, in order */
} seen;

static eb_result work(eb_delivery *d, void *user)
{
    seen *s = (seen *)user;
    size_t n = strlen(s->payloads);
    if (s->calls < 64) s->at_ms[s->calls] = s->clock->now_ms - T_EPOCH;
    s->calls++;
    snprintf(s->payloads + n, sizeof s->payloads - n, "%s ", d->event->payload);
    t_advance(s->clock, s->takes_ms);
    if (s->reject) return eb_reject(d, "no");
    return d->attempt <= s->fail_first ? eb_fail(d, "not yet") : EB_OK;
}

static eb_options pump_options(const char *path, t_time *t)
{
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    o.clock = t_clock(t);
    o.retry.base_delay_ms = 1000;
    o.retry.max_delay_ms = 30000;
    return o;
}

/* Opened, one handler for everything, started. */
static eb_bus *pumped(const char *path, t_time *t, seen *s)
{
    eb_options o = pump_options(path, t);
    eb_bus *bus = t_open(&o);
    memset(s, 0, sizeof *s);
    s->clock = t;
    T_MUST(eb_subscribe(bus, "*", work, s, NULL, NULL) == EB_OK);
    T_MUST(eb_start(bus) == EB_OK);
    return bus;
}

static eb_message message(const char *payload)
{
    eb_message m;
    memset(&m, 0, sizeof m);
    m.type = "x";
    m.payload = payload;
    return m;
}

/* Posts payloads "1" to "n". */
static void post(eb_bus *bus, int n)
{
    char payload[20];
    int i;
    for (i = 1; i <= n; i++) {
        snprintf(payload, sizeof payload, "%d", i);
        T_MUST(eb_post(bus, "x", payload, NULL) == EB_OK);
    }
}

/* eb_pump is EB_OK and says this about the next time. */
#define PUMP(budget, next)                                                                         \
    do {                                                                                           \
        int64_t p_next = -99;                                                                      \
        T_OK(eb_pump(bus, (budget), &p_next));                                                     \
        P_EQ((next), p_next);                                                                      \
    } while (0)

/* ---- what it runs, and when ------------------------------------------------------------------ */

TEST runs_what_is_due_and_then_there_is_nothing(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("due"), &t, &s);
    PUMP(EB_NONE, -1);
    PUMP(0, -1);
    P_EQ(0, s.calls);
    post(bus, 3);
    P_EQ(0, s.calls); /* posting runs nothing */
    PUMP(EB_NONE, -1);
    ASSERT_STR_EQ("1 2 3 ", s.payloads);
    PUMP(EB_NONE, -1);
    P_EQ(3, s.calls);
    T_OK(eb_post(bus, "x", "4", NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* who does not want to know need not */
    P_EQ(4, s.calls);
    P_EQ(0, t.slept_ms); /* eb_pump never sleeps */
    eb_destroy(bus);
    PASS();
}

TEST finds_at_once_what_was_published_before_the_start(void)
{
    t_time t;
    seen s;
    eb_options o = pump_options(t_path("before"), &t);
    eb_bus *bus = t_open(&o);
    eb_message m = message("later");
    memset(&s, 0, sizeof s);
    s.clock = &t;
    m.payload = "9";
    m.delay_ms = 700;
    T_OK(eb_send(bus, &m, 1, NULL));
    post(bus, 3);
    T_OK(eb_subscribe(bus, "*", work, &s, NULL, NULL));
    T_OK(eb_start(bus));
    P_EQ(0, s.calls);
    PUMP(EB_NONE, 700);
    ASSERT_STR_EQ("1 2 3 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

TEST budget_of_zero_is_one_event(void)
{
    enum { N = 100 }; /* more than are claimed at once */
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("zero"), &t, &s);
    int i;
    post(bus, N);
    for (i = 1; i <= N; i++) {
        PUMP(0, i < N ? 0 : -1);
        P_EQ(i, s.calls);
    }
    PUMP(0, -1);
    P_EQ(N, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST budget_is_the_time_after_which_no_new_event_begins(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("budget"), &t, &s);
    s.takes_ms = 10;
    post(bus, 20);
    PUMP(25, 0); /* they begin at 0, 10 and 20 */
    P_EQ(3, s.calls);
    PUMP(10, 0);
    P_EQ(4, s.calls);
    PUMP(1, 0);
    P_EQ(5, s.calls);
    PUMP(11, 0);
    P_EQ(7, s.calls);
    s.takes_ms = 1000000;
    PUMP(5, 0); /* one is always allowed */
    P_EQ(8, s.calls);
    s.takes_ms = 0;
    PUMP(5, -1); /* no time passes: all the others */
    P_EQ(20, s.calls);
    post(bus, 5);
    PUMP(INT64_MAX, -1);
    P_EQ(25, s.calls);
    eb_destroy(bus);
    PASS();
}

/* The budget ends a chain of events that each publish the next. */
static eb_result begets(eb_delivery *d, void *user)
{
    seen *s = (seen *)user;
    s->calls++;
    t_advance(s->clock, 1);
    return eb_publish(d->bus, "x", NULL, NULL); /* inside a handler: a post */
}

TEST events_without_end_do_not_hold_the_caller(void)
{
    t_time t;
    seen s;
    eb_options o = pump_options(t_path("chain"), &t);
    eb_bus *bus = t_open(&o);
    memset(&s, 0, sizeof s);
    s.clock = &t;
    T_OK(eb_subscribe(bus, "*", begets, &s, NULL, NULL));
    T_OK(eb_start(bus));
    T_OK(eb_post(bus, "x", NULL, NULL));
    PUMP(50, 0);
    P_EQ(50, s.calls);
    PUMP(0, 0);
    P_EQ(51, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST delays_run_at_their_millisecond_and_next_says_when(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("delays"), &t, &s);
    eb_message m[4];
    int i;
    for (i = 0; i < 4; i++) m[i] = message("1");
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
    P_EQ(1, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, 200);
    ASSERT_STR_EQ("4 2 ", s.payloads);
    t_advance(&t, 250); /* late is fine */
    PUMP(EB_NONE, 86400000 - 550);
    ASSERT_STR_EQ("4 2 1 ", s.payloads);
    T_OK(eb_post(bus, "x", "5", NULL));
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
    seen s;
    eb_bus *bus = pumped(t_path("earliest"), &t, &s);
    eb_message m = message("1");
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
    T_OK(eb_post(bus, "x", "2", NULL));
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
    P_EQ(5, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST retries_are_due_by_the_clock(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("retries"), &t, &s);
    s.fail_first = 99;
    T_OK(eb_post(bus, "x", "1", NULL));
    PUMP(EB_NONE, 1000);
    P_EQ(1, s.calls);
    t_advance(&t, 999);
    PUMP(EB_NONE, 1);
    P_EQ(1, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, 2000);
    P_EQ(2, s.calls);
    t_advance(&t, 2000);
    PUMP(EB_NONE, 4000);
    P_EQ(3, s.calls);
    t_advance(&t, 3999);
    PUMP(EB_NONE, 1);
    P_EQ(3, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, -1); /* dead */
    P_EQ(4, s.calls);
    P_EQ(7000, s.at_ms[3]);
    eb_destroy(bus);
    PASS();
}

TEST waits_of_many_events_do_not_disturb_each_other(void)
{
    enum { N = 10 };
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("many-waits"), &t, &s);
    int i;
    s.fail_first = 1;
    s.takes_ms = 7; /* so that each is due at its own time */
    post(bus, N);
    PUMP(EB_NONE, 1000 - 7 * (N - 1));
    P_EQ(N, s.calls);
    s.takes_ms = 0;
    for (i = 0; i < N; i++) {
        t_advance(&t, i == 0 ? 1000 - 7 * (N - 1) : 7);
        PUMP(EB_NONE, i < N - 1 ? 7 : -1);
        P_EQ(N + i + 1, s.calls);
    }
    ASSERT_STR_EQ("1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

static eb_result dozes(eb_delivery *d, void *user)
{
    seen *s = (seen *)user;
    return s->calls++ < 2 ? eb_snooze(d, 12345) : EB_OK;
}

TEST snoozed_event_is_due_by_the_clock(void)
{
    t_time t;
    seen s;
    eb_options o = pump_options(t_path("snooze"), &t);
    eb_bus *bus = t_open(&o);
    memset(&s, 0, sizeof s);
    T_OK(eb_subscribe(bus, "*", dozes, &s, NULL, NULL));
    T_OK(eb_start(bus));
    T_OK(eb_post(bus, "x", NULL, NULL));
    PUMP(EB_NONE, 12345);
    t_advance(&t, 12344);
    PUMP(EB_NONE, 1);
    P_EQ(1, s.calls);
    t_advance(&t, 1);
    PUMP(EB_NONE, 12345);
    t_advance(&t, 12345);
    PUMP(EB_NONE, -1);
    P_EQ(3, s.calls);
    eb_destroy(bus);
    PASS();
}

/* What nobody matches is no reason to come back. */
TEST kept_events_are_not_due(void)
{
    t_time t;
    seen s;
    eb_options o = pump_options(t_path("kept"), &t);
    eb_bus *bus;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = t_open(&o);
    memset(&s, 0, sizeof s);
    s.clock = &t;
    T_OK(eb_start(bus));
    T_OK(eb_post(bus, "x", "1", NULL));
    PUMP(EB_NONE, -1);
    T_OK(eb_subscribe(bus, "y", work, &s, NULL, NULL));
    PUMP(EB_NONE, -1);
    T_OK(eb_subscribe(bus, "x", work, &s, NULL, NULL));
    PUMP(EB_NONE, -1);
    P_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST ordering_keys_are_kept_and_next_is_right(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("keys"), &t, &s);
    eb_message m[3];
    int i;
    for (i = 0; i < 3; i++) {
        m[i] = message(i == 0 ? "1" : i == 1 ? "2" : "3");
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
    P_EQ(5, s.calls);
    t_advance(&t, 1000);
    PUMP(EB_NONE, 1000);
    ASSERT_STR_EQ("1 1 2 3 1 1 2 ", s.payloads);
    t_advance(&t, 1000);
    PUMP(EB_NONE, -1);
    P_EQ(8, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST next_is_known_again_after_a_restart(void)
{
    const char *path = t_path("restart");
    t_time t, t2;
    seen s;
    eb_bus *bus = pumped(path, &t, &s);
    eb_message m = message("1");
    m.delay_ms = 5000;
    T_OK(eb_send(bus, &m, 1, NULL));
    s.fail_first = 1;
    T_OK(eb_post(bus, "x", "2", NULL));
    PUMP(EB_NONE, 1000);
    eb_destroy(bus);
    bus = pumped(path, &t2, &s); /* the same hour again */
    PUMP(EB_NONE, 1000);
    P_EQ(0, s.calls);
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
    seen s;
    eb_bus *bus = pumped(t_path("jump"), &t, &s);
    eb_message m = message("1");
    m.delay_ms = 1000;
    T_OK(eb_send(bus, &m, 1, NULL));
    t.now_ms -= 3600000; /* an hour back */
    PUMP(EB_NONE, 3601000);
    t.now_ms += 7200000;
    PUMP(EB_NONE, -1);
    P_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

/* ---- what else pumps ------------------------------------------------------------------------- */

TEST publish_pumps_until_its_own_event_is_over(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("publish"), &t, &s);
    eb_message m = message("3");
    m.delay_ms = 3600000;
    post(bus, 2);
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(eb_publish(bus, "x", "4", NULL)); /* those before it run too */
    ASSERT_STR_EQ("1 2 4 ", s.payloads);
    P_EQ(0, t.slept_ms);
    s.fail_first = 2;
    T_OK(eb_publish(bus, "x", "5", NULL));
    P_EQ(3000, t.slept_ms); /* through its retries, and not a millisecond more */
    s.reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "x", "6", NULL));
    P_EQ(3000, t.slept_ms);
    s.reject = 0;
    s.fail_first = 99;
    T_IS(EB_DEAD, eb_publish(bus, "x", "7", NULL));
    P_EQ(10000, t.slept_ms);
    ASSERT_STR_EQ("1 2 4 5 5 5 6 7 7 7 7 ", s.payloads);
    eb_destroy(bus);
    PASS();
}

TEST wait_pumps_until_the_event_is_over_or_the_time_is(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("wait"), &t, &s);
    eb_message m = message("9");
    eb_id id, now;
    m.delay_ms = 10000;
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(eb_post(bus, "x", "1", &now));
    T_OK(eb_wait(bus, now.str, 10)); /* one event takes no time here */
    P_EQ(0, t.slept_ms);
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, id.str, 4000));
    P_EQ(4000, t.slept_ms);
    P_EQ(1, s.calls);
    T_OK(eb_wait(bus, id.str, 6000)); /* due at the very end of the time is in time */
    P_EQ(10000, t.slept_ms);
    ASSERT_STR_EQ("1 9 ", s.payloads);
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(eb_wait(bus, id.str, EB_NONE));
    P_EQ(20000, t.slept_ms);
    eb_destroy(bus);
    PASS();
}

TEST drain_pumps_until_nothing_is_left_or_the_time_is_over(void)
{
    t_time t;
    seen s;
    eb_bus *bus = pumped(t_path("drain"), &t, &s);
    eb_message m = message("9");
    m.delay_ms = 10000;
    T_OK(eb_drain(bus, 0));
    post(bus, 3);
    T_OK(eb_send(bus, &m, 1, NULL));
    T_IS(EB_ERR_TIMEOUT, eb_drain(bus, 2500));
    P_EQ(2500, t.slept_ms);
    ASSERT_STR_EQ("1 2 3 ", s.payloads);
    T_OK(eb_drain(bus, 20000));
    P_EQ(10000, t.slept_ms);
    ASSERT_STR_EQ("1 2 3 9 ", s.payloads);
    s.fail_first = 2;
    T_OK(eb_post(bus, "x", "5", NULL));
    T_OK(eb_drain(bus, EB_NONE)); /* retrying ones count */
    P_EQ(13000, t.slept_ms);
    ASSERT_STR_EQ("1 2 3 9 5 5 5 ", s.payloads);
    T_OK(eb_drain(bus, 0));
    P_EQ(13000, t.slept_ms);
    eb_destroy(bus);
    PASS();
}
