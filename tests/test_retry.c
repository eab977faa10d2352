/* Attempts, waits, errors, timeouts: on an injected clock, without threads, to the millisecond. */
#include "test.h"
#include <limits.h>

#define YEAR_MS INT64_C(31536000000)

/* ---- a bench: one bus, one handler with a script, a clock ------------------------------------ */

enum { FAIL, OK, REJECT, SNOOZE, RETURN };

typedef struct step {
    int act;
    const char *text;  /* FAIL, REJECT */
    int64_t number;    /* SNOOZE: delay; RETURN: the value */
    int64_t takes_ms;  /* the handler runs this long */
} step;

typedef struct call {
    int attempt, max_attempts, retry_count, errors, status;
    int64_t at_ms, deadline_ms, updated_at_ms;
} call;

typedef struct script {
    const step *steps; /* NULL, or what to do call by call; the last one repeats */
    int count, calls;
    t_time *clock;
    call seen[1200];
} script;

typedef struct bench {
    t_time t;
    t_log log;
    script s;
    eb_options o;
    eb_bus *bus;
    eb_id id;
    char path[400];
} bench;

static bench B;

static eb_result play(eb_delivery *d, void *user)
{
    script *s = (script *)user;
    const eb_event *e = d->event;
    step st;
    char text[64];
    memset(&st, 0, sizeof st);
    st.act = FAIL;
    if (s->count) st = s->steps[s->calls < s->count ? s->calls : s->count - 1];
    if (s->calls < 1200) {
        call *c = &s->seen[s->calls];
        c->attempt = d->attempt;
        c->max_attempts = d->max_attempts;
        c->retry_count = e->retry_count;
        c->errors = t_errors(e->last_error, 0, text, sizeof text);
        c->status = (int)e->status;
        c->at_ms = s->clock->now_ms;
        c->deadline_ms = d->deadline_ms;
        c->updated_at_ms = e->updated_at_ms;
    }
    s->calls++;
    t_advance(s->clock, st.takes_ms);
    switch (st.act) {
    case OK: return EB_OK;
    case REJECT: return eb_reject(d, "%s", st.text ? st.text : "rejected");
    case SNOOZE: return eb_snooze(d, st.number);
    case RETURN: return (eb_result)st.number;
    default:
        if (st.text) return eb_fail(d, "%s", st.text);
        return eb_fail(d, "failure %d", s->calls);
    }
}

/* Prepares options with nothing set but path, clock, log and the pump driver. */
static void setup(const char *name)
{
    memset(&B, 0, sizeof B);
    t_copy(B.path, sizeof B.path, t_path(name));
    B.o = t_timed(B.path, &B.t);
    B.o.logger = t_logger(&B.log);
    B.s.clock = &B.t;
}

static void script_is(const step *steps, int count)
{
    B.s.steps = steps;
    B.s.count = count;
}

/* Opens, subscribes the script to everything and starts. */
static void begin(const eb_subscribe_options *so)
{
    B.bus = t_open(&B.o);
    T_DO(eb_subscribe(B.bus, "*", play, &B.s, so, NULL));
    T_DO(eb_start(B.bus));
}

static void end(void)
{
    eb_destroy(B.bus);
    B.bus = NULL;
}

/* The log entry of the k-th failed attempt, from 0; an empty one if there are fewer. */
static const t_logged *logged(int k)
{
    static const t_logged none;
    int i;
    for (i = 0; i < B.log.count && i < 256; i++)
        if (B.log.items[i].attempt > 0 && k-- == 0) return &B.log.items[i];
    return &none;
}

static eb_store *store(void) { return eb_bus_store(B.bus); }

/* Pumps until nothing is left, moving the clock exactly by what the bus asks for; before each wait
** is over it checks that one millisecond less is not enough. Writes the waits; returns their
** number, or -1 if the bus did something else. */
static int run_out(int64_t *waits, int cap)
{
    int n = 0;
    int64_t next = 0;
    for (;;) {
        int calls;
        T_DO(eb_pump(B.bus, EB_NONE, &next));
        if (next < 0) return n;
        if (next == 0 || n == cap) return -1; /* all that is due was run, and it ends some day */
        waits[n++] = next;
        if (next > 1) {
            int64_t rest;
            calls = B.s.calls;
            t_advance(&B.t, next - 1);
            T_DO(eb_pump(B.bus, EB_NONE, &rest));
            if (B.s.calls != calls || rest != 1) return -1;
            next = 1;
        }
        t_advance(&B.t, next);
    }
}

/* Posts one event whose handler always fails and compares the waits, the deaths and the log. */
static int same_waits(const int64_t *want, int count)
{
    int64_t got[64];
    int i, n;
    T_DO(eb_post(B.bus, "order.made", "{\"n\":1}", &B.id));
    n = run_out(got, 64);
    if (n == count && memcmp(got, want, sizeof *got * (size_t)n) == 0) {
        return B.s.calls == count + 1 && t_status(store(), B.id.str) == EB_DLQ;
    }
    fprintf(stderr, "\nwaits:");
    for (i = 0; i < n; i++) fprintf(stderr, " %lld", (long long)got[i]);
    fprintf(stderr, "\nwanted:");
    for (i = 0; i < count; i++) fprintf(stderr, " %lld", (long long)want[i]);
    fprintf(stderr, "\n");
    return 0;
}

#define WAITS(...)                                                                                 \
    do {                                                                                           \
        static const int64_t w[] = {__VA_ARGS__};                                                  \
        ASSERT(same_waits(w, (int)(sizeof w / sizeof *w)));                                        \
    } while (0)

/* ---- the wait -------------------------------------------------------------------------------- */

TEST default_backoff_is_1_2_4_seconds_then_dead(void)
{
    setup("default");
    begin(NULL);
    WAITS(1000, 2000, 4000);
    ASSERT_EQ(4, t_failures(store(), B.id.str, 0, NULL, 0));
    end();
    PASS();
}

TEST wait_is_capped(void)
{
    setup("capped");
    B.o.retry.max_retries = 6;
    B.o.retry.max_delay_ms = 3000;
    begin(NULL);
    WAITS(1000, 2000, 3000, 3000, 3000, 3000);
    end();
    PASS();
}

TEST default_cap_is_30_seconds(void)
{
    setup("cap30");
    B.o.retry.max_retries = 8;
    begin(NULL);
    WAITS(1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000);
    end();
    PASS();
}

TEST base_above_the_cap_is_capped_too(void)
{
    setup("basecap");
    B.o.retry.base_delay_ms = 50000;
    begin(NULL);
    WAITS(30000, 30000, 30000);
    end();
    PASS();
}

TEST multiplier_may_be_a_fraction_or_one(void)
{
    setup("mult");
    B.o.retry.multiplier = 1.5;
    begin(NULL);
    WAITS(1000, 1500, 2250);
    end();
    setup("mult1");
    B.o.retry.multiplier = 1;
    B.o.retry.base_delay_ms = 70;
    begin(NULL);
    WAITS(70, 70, 70);
    end();
    setup("mult10");
    B.o.retry.multiplier = 10;
    B.o.retry.base_delay_ms = 1;
    begin(NULL);
    WAITS(1, 10, 100);
    end();
    PASS();
}

TEST no_retries_means_one_attempt(void)
{
    setup("none");
    B.o.retry.max_retries = EB_NONE;
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(1, B.s.calls);
    T_STATUS(EB_DLQ, B.bus, B.id);
    ASSERT_EQ(1, B.s.seen[0].max_attempts);
    ASSERT_EQ(1, t_log_attempts(&B.log));
    end();
    PASS();
}

TEST no_base_delay_means_no_wait(void)
{
    setup("nowait");
    B.o.retry.base_delay_ms = EB_NONE;
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_PUMP(B.bus, EB_NONE, -1);
    ASSERT_EQ(4, B.s.calls);
    ASSERT_EQ(T_EPOCH, B.t.now_ms);
    T_STATUS(EB_DLQ, B.bus, B.id);
    end();
    PASS();
}

TEST no_max_delay_means_no_cap(void)
{
    setup("nocap");
    B.o.retry.max_delay_ms = EB_NONE;
    B.o.retry.multiplier = 10;
    B.o.retry.max_retries = 8;
    begin(NULL);
    WAITS(1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, INT64_C(10000000000));
    end();
    PASS();
}

/* ---- numbers that overflow a careless formula ------------------------------------------------ */

TEST thousand_retries_with_an_absurd_multiplier_keep_the_cap(void)
{
    static int64_t waits[1100];
    int i, n;
    setup("absurd");
    B.o.retry.max_retries = 1000;
    B.o.retry.multiplier = 1e308;
    B.o.retry.base_delay_ms = 1;
    B.o.retry.max_delay_ms = 5;
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    n = run_out(waits, 1100);
    ASSERT_EQ(1000, n);
    ASSERT_EQ(1001, B.s.calls);
    ASSERT_EQ(1, waits[0]);
    for (i = 1; i < n; i++) ASSERT_EQ(5, waits[i]);
    T_STATUS(EB_DLQ, B.bus, B.id);
    ASSERT_EQ(1001, t_failures(store(), B.id.str, 0, NULL, 0)); /* every text of every attempt */
    end();
    PASS();
}

TEST enormous_waits_do_not_wrap_around(void)
{
    static const struct {
        int64_t base, max;
        double mult;
        int fails; /* failures until the wait is enormous */
    } cases[] = {
        {INT64_MAX, EB_NONE, 0, 1},        {INT64_MAX, INT64_MAX, 1e308, 1},
        {INT64_MAX - 1, EB_NONE, 1.0, 1},  {INT64_MAX / 2, EB_NONE, 1.0, 1},
        {1, EB_NONE, 1e308, 2},            {1, INT64_MAX, 1e18, 2},
        {INT64_MAX - 1000, EB_NONE, 3, 1},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t next = 0;
        int k, calls;
        setup("enormous");
        B.o.retry.max_retries = 1000;
        B.o.retry.base_delay_ms = cases[i].base;
        B.o.retry.max_delay_ms = cases[i].max;
        B.o.retry.multiplier = cases[i].mult;
        begin(NULL);
        B.id = t_post(B.bus, "a", "1");
        for (k = 0; k < cases[i].fails; k++) {
            T_OK(eb_pump(B.bus, EB_NONE, &next));
            ASSERT_EQ(k + 1, B.s.calls);
            ASSERT(next > 0);
            if (k + 1 < cases[i].fails) t_advance(&B.t, next);
        }
        ASSERT(next >= YEAR_MS);
        calls = B.s.calls;
        ASSERT(logged(calls - 1)->next_delay_ms >= YEAR_MS);
        t_advance(&B.t, YEAR_MS - 1);
        T_OK(eb_pump(B.bus, EB_NONE, &next));
        ASSERT_EQ(calls, B.s.calls);
        T_STATUS(EB_PROCESSING, B.bus, B.id);
        end();
    }
    PASS();
}

TEST largest_max_retries_does_not_overflow_the_attempts(void)
{
    setup("intmax");
    B.o.retry.max_retries = INT_MAX;
    B.o.retry.base_delay_ms = 1;
    B.o.retry.max_delay_ms = 1;
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    t_advance(&B.t, 1);
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(2, B.s.calls);
    ASSERT(B.s.seen[0].max_attempts > 1000000);
    ASSERT(logged(0)->max_attempts > 1000000);
    T_STATUS(EB_PROCESSING, B.bus, B.id);
    end();
    PASS();
}

/* ---- jitter ---------------------------------------------------------------------------------- */

static int jittered(double jitter, int64_t max_delay, int scheduled, int64_t lo, int64_t hi)
{
    static const int64_t schedule[] = {100000};
    int64_t waits[64];
    int i, n, different = 0;
    setup("jitter");
    B.o.retry.max_retries = 50;
    B.o.retry.multiplier = 1;
    B.o.retry.base_delay_ms = 100000;
    B.o.retry.max_delay_ms = max_delay;
    B.o.retry.jitter = jitter;
    B.o.retry.schedule_ms = scheduled ? schedule : NULL;
    B.o.retry.schedule_count = scheduled;
    begin(NULL);
    t_post(B.bus, "a", "1");
    /* a wait of 0 runs at once and is not seen by the pump: then there are fewer than 50 */
    n = run_out(waits, 64);
    for (i = 0; i < n; i++) {
        if (waits[i] < lo || waits[i] > hi) {
            fprintf(stderr, "\nwait %d: %lld\n", i, (long long)waits[i]);
            return 0;
        }
        different += waits[i] != waits[0];
    }
    T_MUST(B.s.calls == 51);
    for (i = 0; i < 51; i++) {
        int64_t d = logged(i)->next_delay_ms;
        if (i == 50 ? d != -1 : d < lo || d > hi) return 0;
    }
    end();
    return n >= 40 && different > 0;
}

TEST jitter_stays_within_its_bounds(void)
{
    ASSERT(jittered(0.2, EB_NONE, 0, 80000, 120000));
    ASSERT(jittered(1.0, EB_NONE, 0, 0, 200000));
    ASSERT(jittered(0.001, EB_NONE, 0, 99900, 100100));
    PASS();
}

TEST jitter_does_not_exceed_the_cap(void)
{
    ASSERT(jittered(0.2, 100000, 0, 80000, 100000));
    PASS();
}

TEST jitter_spreads_a_schedule_too(void)
{
    ASSERT(jittered(0.2, 1000, 1, 80000, 120000)); /* max_delay_ms is not the schedule's */
    PASS();
}

TEST jitter_of_an_enormous_wait_does_not_overflow(int scheduled)
{
    static const int64_t schedule[] = {INT64_MAX};
    int64_t next = 0;
    setup("jitterhuge");
    if (scheduled) {
        B.o.retry.schedule_ms = schedule;
        B.o.retry.schedule_count = 1;
    } else {
        B.o.retry.base_delay_ms = INT64_MAX;
        B.o.retry.max_delay_ms = EB_NONE;
    }
    B.o.retry.jitter = 0.5;
    begin(NULL);
    t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, &next));
    ASSERT_EQ(1, B.s.calls);
    ASSERT(next >= YEAR_MS);
    end();
    PASS();
}

/* ---- explicit schedule ----------------------------------------------------------------------- */

TEST schedule_gives_waits_and_their_number(void)
{
    int64_t schedule[3] = {5, 30, 300};
    setup("schedule");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 3;
    begin(NULL);
    schedule[0] = schedule[1] = schedule[2] = 7777; /* it was copied */
    WAITS(5, 30, 300);
    ASSERT_EQ(4, B.s.seen[0].max_attempts);
    end();
    PASS();
}

TEST last_wait_of_a_schedule_repeats(void)
{
    static const int64_t schedule[2] = {5, 30};
    setup("repeats");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 2;
    B.o.retry.max_retries = 5;
    begin(NULL);
    WAITS(5, 30, 30, 30, 30);
    end();
    PASS();
}

TEST fewer_retries_than_the_schedule_has_waits(void)
{
    static const int64_t schedule[3] = {5, 30, 300};
    setup("fewer");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 3;
    B.o.retry.max_retries = 1;
    begin(NULL);
    WAITS(5);
    end();
    PASS();
}

TEST schedule_replaces_base_cap_and_multiplier(void)
{
    static const int64_t schedule[3] = {60000, 10, 90000};
    setup("replaces");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 3;
    B.o.retry.base_delay_ms = 1;
    B.o.retry.max_delay_ms = 2;
    B.o.retry.multiplier = 9;
    begin(NULL);
    WAITS(60000, 10, 90000);
    end();
    PASS();
}

TEST zero_in_a_schedule_is_no_wait(void)
{
    static const int64_t schedule[3] = {0, 40, 0};
    setup("zero");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 3;
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(2, B.s.calls);
    t_advance(&B.t, 40);
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(4, B.s.calls);
    T_STATUS(EB_DLQ, B.bus, B.id);
    end();
    PASS();
}

/* ---- a subscription's policy over the bus's -------------------------------------------------- */

TEST subscription_overrides_only_what_it_names(void)
{
    eb_subscribe_options so;
    memset(&so, 0, sizeof so);
    setup("merge1");
    B.o.retry.max_retries = 2;
    B.o.retry.base_delay_ms = 100;
    B.o.retry.max_delay_ms = 1000;
    B.o.retry.multiplier = 3;
    so.retry.max_retries = 4;
    begin(&so);
    WAITS(100, 300, 900, 1000);
    end();

    setup("merge2");
    B.o.retry.max_retries = 3;
    B.o.retry.base_delay_ms = 100;
    B.o.retry.max_delay_ms = 400;
    B.o.retry.multiplier = 3;
    memset(&so, 0, sizeof so);
    so.retry.base_delay_ms = 50;
    begin(&so);
    WAITS(50, 150, 400);
    end();

    setup("merge3");
    B.o.retry.base_delay_ms = 100;
    memset(&so, 0, sizeof so);
    so.retry.multiplier = 1;
    begin(&so);
    WAITS(100, 100, 100);
    end();

    setup("merge4");
    B.o.retry.base_delay_ms = 100;
    B.o.retry.max_delay_ms = 150;
    memset(&so, 0, sizeof so);
    so.retry.max_delay_ms = EB_NONE;
    begin(&so);
    WAITS(100, 200, 400);
    end();

    setup("merge5");
    B.o.retry.max_retries = 5;
    memset(&so, 0, sizeof so);
    so.retry.max_retries = EB_NONE;
    begin(&so);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    T_STATUS(EB_DLQ, B.bus, B.id);
    end();
    PASS();
}

TEST base_delay_overrides_an_inherited_schedule(void)
{
    static const int64_t schedule[2] = {10, 20};
    eb_subscribe_options so = {0};
    setup("override");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 2;
    B.o.retry.max_retries = 3;
    so.retry.base_delay_ms = 100;
    begin(&so);
    WAITS(100, 200, 400);
    end();
    PASS();
}

TEST subscription_may_change_the_number_of_an_inherited_schedule(void)
{
    static const int64_t schedule[2] = {10, 20};
    eb_subscribe_options so = {0};
    setup("inherit");
    B.o.retry.schedule_ms = schedule;
    B.o.retry.schedule_count = 2;
    so.retry.max_retries = 4;
    begin(&so);
    WAITS(10, 20, 20, 20);
    end();
    PASS();
}

TEST schedule_of_a_subscription_brings_its_own_number(void)
{
    int64_t schedule[2] = {7, 8};
    eb_subscribe_options so = {0};
    setup("ownsched");
    B.o.retry.max_retries = 5; /* not beside it */
    so.retry.schedule_ms = schedule;
    so.retry.schedule_count = 2;
    begin(&so);
    schedule[0] = schedule[1] = 5555;
    WAITS(7, 8);
    end();
    PASS();
}

/* Two handlers with policies of their own: whoever fails decides the wait, and whether it dies. */
typedef struct pair {
    int calls, fail_on; /* bit n: fail in attempt n */
} pair;

static eb_result pair_handler(eb_delivery *d, void *user)
{
    pair *p = (pair *)user;
    p->calls++;
    return (p->fail_on >> d->attempt) & 1 ? eb_fail(d, "attempt %d", d->attempt) : EB_OK;
}

TEST policy_of_the_failing_handler_decides(void)
{
    pair first = {0, 1 << 2}, second = {0, (1 << 1) | (1 << 3)};
    eb_subscribe_options so = {0};
    int64_t next;
    setup("pair");
    B.bus = t_open(&B.o);
    so.retry.base_delay_ms = 10;
    so.retry.max_retries = 9;
    T_OK(eb_subscribe(B.bus, "a", pair_handler, &first, &so, NULL));
    so.retry.base_delay_ms = 500;
    so.retry.max_retries = 1;
    T_OK(eb_subscribe(B.bus, "a", pair_handler, &second, &so, NULL));
    T_OK(eb_start(B.bus));
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, &next)); /* attempt 1: the second fails */
    ASSERT_EQ(1, first.calls);
    ASSERT_EQ(1, second.calls);
    ASSERT_EQ(500, next);
    t_advance(&B.t, 500);
    T_OK(eb_pump(B.bus, EB_NONE, &next)); /* attempt 2: the first fails, the second is not called */
    ASSERT_EQ(2, first.calls);
    ASSERT_EQ(1, second.calls);
    ASSERT_EQ(20, next); /* min(10 * 2^(3-2), 30000) */
    t_advance(&B.t, 20);
    T_OK(eb_pump(B.bus, EB_NONE, &next)); /* attempt 3: the second again, 3 >= max_retries 1 + 1 */
    ASSERT_EQ(3, first.calls);
    ASSERT_EQ(2, second.calls);
    ASSERT_EQ(-1, next);
    T_STATUS(EB_DLQ, B.bus, B.id);
    ASSERT_EQ(3, t_failures(store(), B.id.str, 0, NULL, 0));
    end();
    PASS();
}

/* ---- outcomes -------------------------------------------------------------------------------- */

TEST rejected_event_dies_at_once(void)
{
    static const step steps[] = {{REJECT, "never", 0, 0}};
    setup("reject");
    script_is(steps, 1);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    ASSERT_EQ(1, B.s.calls);
    T_STATUS(EB_DLQ, B.bus, B.id);
    T_FAILED(1, B.bus, B.id, 0, "never");
    ASSERT_EQ(1, t_log_attempts(&B.log));
    ASSERT_EQ(-1, logged(0)->next_delay_ms);
    ASSERT_EQ(1, logged(0)->attempt);
    ASSERT_EQ(T_EPOCH, B.t.now_ms);
    end();
    PASS();
}

TEST rejected_after_failures_keeps_all_errors(void)
{
    static const step steps[] = {{FAIL, "one", 0, 0}, {FAIL, "two", 0, 0}, {REJECT, "three", 0, 0}};
    setup("reject3");
    script_is(steps, 3);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    ASSERT_EQ(3, B.s.calls);
    T_FAILED(3, B.bus, B.id, 0, "one");
    T_FAILED(3, B.bus, B.id, 1, "two");
    T_FAILED(3, B.bus, B.id, 2, "three");
    end();
    PASS();
}

TEST snooze_spends_no_attempt(void)
{
    static const step steps[] = {{SNOOZE, NULL, 100, 0}, {SNOOZE, NULL, 1, 0},
                                 {SNOOZE, NULL, 100000, 0}, {OK, NULL, 0, 0}};
    int64_t waits[8];
    int i;
    setup("snooze");
    B.o.retry.max_retries = EB_NONE; /* one attempt, and it is never spent */
    script_is(steps, 4);
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    ASSERT_EQ(3, run_out(waits, 8));
    ASSERT_EQ(100, waits[0]);
    ASSERT_EQ(1, waits[1]);
    ASSERT_EQ(100000, waits[2]); /* not capped by max_delay_ms: the handler asked for it */
    ASSERT_EQ(4, B.s.calls);
    for (i = 0; i < 4; i++) {
        ASSERT_EQ(1, B.s.seen[i].attempt);
        ASSERT_EQ(0, B.s.seen[i].retry_count);
    }
    T_STATUS(EB_DONE, B.bus, B.id);
    ASSERT_EQ(0, t_failures(store(), B.id.str, 0, NULL, 0));
    ASSERT_EQ(0, t_log_attempts(&B.log));
    end();
    PASS();
}

TEST snooze_between_failures_keeps_the_count(void)
{
    static const step steps[] = {{FAIL, "a", 0, 0},      {SNOOZE, NULL, 7, 0}, {FAIL, "b", 0, 0},
                                 {SNOOZE, NULL, 9, 0}, {FAIL, "c", 0, 0},    {FAIL, "d", 0, 0}};
    static const int attempts[] = {1, 2, 2, 3, 3, 4};
    static const int64_t want[] = {1000, 7, 2000, 9, 4000};
    int64_t waits[8];
    int i;
    setup("snoozefail");
    script_is(steps, 6);
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    ASSERT_EQ(5, run_out(waits, 8));
    for (i = 0; i < 5; i++) ASSERT_EQ(want[i], waits[i]);
    for (i = 0; i < 6; i++) ASSERT_EQ(attempts[i], B.s.seen[i].attempt);
    T_STATUS(EB_DLQ, B.bus, B.id);
    ASSERT_EQ(4, t_failures(store(), B.id.str, 0, NULL, 0));
    end();
    PASS();
}

TEST snooze_zero_is_at_once(void)
{
    static const step steps[] = {{SNOOZE, NULL, 0, 0}, {SNOOZE, NULL, 0, 0}, {OK, NULL, 0, 0}};
    setup("snooze0");
    script_is(steps, 3);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(3, B.s.calls);
    ASSERT_EQ(T_EPOCH, B.t.now_ms);
    end();
    PASS();
}

static eb_result bad_snooze(eb_delivery *d, void *user)
{
    eb_result *got = (eb_result *)user;
    *got = eb_snooze(d, -1);
    return *got;
}

TEST negative_snooze_is_an_error_and_a_failed_attempt(void)
{
    eb_result got = EB_OK;
    setup("snooze-1");
    B.o.retry.max_retries = EB_NONE;
    B.bus = t_open(&B.o);
    t_subscribe(B.bus, "a", bad_snooze, &got);
    T_OK(eb_start(B.bus));
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    ASSERT_EQ(EB_ERR_ARG, got);
    T_FAILED(1, B.bus, B.id, 0, eb_strerror(EB_ERR_ARG));
    end();
    PASS();
}

TEST enormous_snooze_does_not_wrap_around(void)
{
    static const step steps[] = {{SNOOZE, NULL, INT64_MAX, 0}, {OK, NULL, 0, 0}};
    int64_t next;
    setup("snoozemax");
    script_is(steps, 2);
    begin(NULL);
    t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, &next));
    ASSERT_EQ(1, B.s.calls);
    ASSERT(next >= YEAR_MS);
    t_advance(&B.t, YEAR_MS - 1);
    T_OK(eb_pump(B.bus, EB_NONE, &next));
    ASSERT_EQ(1, B.s.calls);
    end();
    PASS();
}

TEST duplicate_returned_by_a_handler_is_success(void)
{
    static const step steps[] = {{RETURN, NULL, EB_DUPLICATE, 0}};
    setup("dup");
    script_is(steps, 1);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", &B.id));
    T_STATUS(EB_DONE, B.bus, B.id);
    ASSERT_EQ(0, t_log_attempts(&B.log));
    end();
    PASS();
}

TEST any_other_value_is_a_failed_attempt_with_that_codes_text(void)
{
#define AS_ROW(name, value, text) name,
    static const int codes[] = {EB_RESULT_LIST(AS_ROW)};
#undef AS_ROW
    size_t i;
    for (i = 0; i < sizeof codes / sizeof *codes; i++) {
        step one = {0};
        if (codes[i] == EB_OK || codes[i] == EB_DUPLICATE || codes[i] == EB_FAILED) continue;
        one.act = RETURN;
        one.number = codes[i];
        setup("code");
        B.o.retry.max_retries = EB_NONE;
        script_is(&one, 1);
        begin(NULL);
        T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
        T_FAILED(1, B.bus, B.id, 0, eb_strerror((eb_result)codes[i]));
        ASSERT_EQ(1, t_log_attempts(&B.log));
        ASSERT_STR_EQ(eb_strerror((eb_result)codes[i]), logged(0)->error);
        end();
    }
    PASS();
}

TEST values_that_are_no_results_are_failed_attempts_too(void)
{
    static const step steps[] = {{RETURN, NULL, 77, 0}, {RETURN, NULL, -77, 0}};
    char text[300];
    setup("garbage");
    B.o.retry.max_retries = 1;
    script_is(steps, 2);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    ASSERT_EQ(2, B.s.calls);
    ASSERT_EQ(2, t_failures(store(), B.id.str, 0, text, sizeof text));
    ASSERT(text[0] != 0);
    end();
    PASS();
}

TEST failed_without_a_reason_is_a_failed_attempt(void)
{
    static const step steps[] = {{RETURN, NULL, EB_FAILED, 0}, {OK, NULL, 0, 0}};
    char text[300];
    setup("bare");
    script_is(steps, 2);
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(1, t_failures(store(), B.id.str, 0, text, sizeof text));
    ASSERT(text[0] != 0);
    T_STATUS(EB_PROCESSING, B.bus, B.id);
    end();
    PASS();
}

/* What a handler says last before it returns EB_FAILED counts; what it returns counts more. */
static eb_result says_twice(eb_delivery *d, void *user)
{
    switch (*(int *)user) {
    case 0: eb_reject(d, "reject"); return eb_fail(d, "fail");
    case 1: eb_fail(d, "fail"); return eb_reject(d, "reject");
    case 2: eb_fail(d, "fail"); return eb_snooze(d, 5);
    case 3: eb_snooze(d, 5); return eb_fail(d, "fail");
    case 4: eb_reject(d, "reject"); return EB_OK;
    case 5: eb_fail(d, "first"); eb_fail(d, "second"); return EB_FAILED;
    default: eb_reject(d, "reject"); return EB_ERR_IO;
    }
}

TEST last_word_before_returning_failed_counts(void)
{
    static const struct {
        int status, failures;
        const char *text;
    } want[] = {
        {EB_PROCESSING, 1, "fail"}, {EB_DLQ, 1, "reject"}, {-1, 0, ""},
        {EB_PROCESSING, 1, "fail"}, {EB_DONE, 0, ""},      {EB_PROCESSING, 1, "second"},
        {EB_PROCESSING, 1, NULL},
    };
    int i;
    for (i = 0; i < (int)(sizeof want / sizeof *want); i++) {
        char text[200];
        setup("twice");
        B.bus = t_open(&B.o);
        t_subscribe(B.bus, "a", says_twice, &i);
        T_OK(eb_start(B.bus));
        B.id = t_post(B.bus, "a", "1");
        T_OK(eb_pump(B.bus, EB_NONE, NULL));
        if (want[i].status >= 0) ASSERT_EQ_FMT(want[i].status, t_status(store(), B.id.str), "%d");
        ASSERT_EQ_FMT(want[i].failures, t_failures(store(), B.id.str, 0, text, sizeof text), "%d");
        ASSERT_STR_EQ(want[i].text ? want[i].text : eb_strerror(EB_ERR_IO), text);
        end();
    }
    PASS();
}

static eb_result bare_failure(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    return EB_FAILED;
}

TEST text_of_a_handler_that_succeeded_is_not_blamed_on_the_next(void)
{
    int word = 4; /* says "reject", returns EB_OK */
    char text[200];
    setup("blame");
    B.bus = t_open(&B.o);
    t_subscribe(B.bus, "a", says_twice, &word);
    t_subscribe(B.bus, "a", bare_failure, NULL);
    T_OK(eb_start(B.bus));
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    T_STATUS(EB_PROCESSING, B.bus, B.id); /* a failure, not the rejection */
    ASSERT_EQ(1, t_failures(store(), B.id.str, 0, text, sizeof text));
    ASSERT(strcmp(text, "reject") != 0);
    end();
    PASS();
}

static eb_result says_results(eb_delivery *d, void *user)
{
    eb_result *got = (eb_result *)user;
    got[0] = eb_snooze(d, 1);
    got[1] = eb_reject(d, "x");
    got[2] = eb_fail(d, "x");
    return EB_OK;
}

TEST fail_reject_and_snooze_return_failed(void)
{
    eb_result got[3] = {EB_OK, EB_OK, EB_OK};
    setup("failed");
    B.bus = t_open(&B.o);
    t_subscribe(B.bus, "a", says_results, got);
    T_OK(eb_start(B.bus));
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(EB_FAILED, got[0]);
    ASSERT_EQ(EB_FAILED, got[1]);
    ASSERT_EQ(EB_FAILED, got[2]);
    end();
    PASS();
}

/* ---- what is remembered ---------------------------------------------------------------------- */

TEST event_stays_processing_between_retries(void)
{
    char status[20], created[40], updated[40];
    setup("between");
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    t_advance(&B.t, 50);
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    T_STATUS(EB_PROCESSING, B.bus, B.id);
    ASSERT_STR_EQ("processing",
                  t_sql_text(B.path, "SELECT status FROM events", status, sizeof status));
    ASSERT_EQ(1, t_sql_int(B.path, "SELECT retry_count FROM events"));
    ASSERT_STR_EQ("2026-11-18T05:32:10.000Z",
                  t_sql_text(B.path, "SELECT created_at FROM events", created, sizeof created));
    /* updated_at of a processing row is the time of its claim */
    t_advance(&B.t, 1000);
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(2, B.s.calls);
    ASSERT_STR_EQ("2026-11-18T05:32:11.050Z",
                  t_sql_text(B.path, "SELECT updated_at FROM events", updated, sizeof updated));
    end();
    PASS();
}

TEST handler_sees_attempts_and_earlier_errors(void)
{
    int64_t waits[8];
    int i;
    setup("sees");
    B.o.handler_timeout_ms = 777;
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    ASSERT_EQ(3, run_out(waits, 8));
    for (i = 0; i < 4; i++) {
        const call *c = &B.s.seen[i];
        ASSERT_EQ(i + 1, c->attempt);
        ASSERT_EQ(4, c->max_attempts);
        ASSERT_EQ(i, c->retry_count);
        ASSERT_EQ(i, c->errors);
        ASSERT_EQ(EB_PROCESSING, c->status);
        ASSERT_EQ(c->at_ms + 777, c->deadline_ms);
    }
    end();
    PASS();
}

TEST last_error_has_one_text_per_failed_attempt(void)
{
    static const step steps[] = {{FAIL, "first", 0, 0}, {FAIL, "", 0, 0}, {FAIL, "third", 0, 0},
                                 {OK, NULL, 0, 0}};
    char text[100], column[300];
    setup("texts");
    script_is(steps, 4);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", &B.id)); /* succeeds in the last attempt, errors are kept */
    T_STATUS(EB_DONE, B.bus, B.id);
    T_FAILED(3, B.bus, B.id, 0, "first");
    T_FAILED(3, B.bus, B.id, 2, "third");
    ASSERT_EQ(3, t_sql_int(B.path, "SELECT retry_count FROM events"));
    t_sql_text(B.path, "SELECT last_error FROM events", column, sizeof column);
    ASSERT_EQ(3, t_errors(column, 0, text, sizeof text));
    ASSERT_STR_EQ("first", text);
    end();
    PASS();
}

TEST last_error_is_null_without_failures(void)
{
    static const step steps[] = {{OK, NULL, 0, 0}};
    eb_event_list list;
    setup("noerr");
    script_is(steps, 1);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", &B.id));
    T_OK(eb_get(store(), B.id.str, &list));
    ASSERT(list.items[0].last_error == NULL);
    ASSERT_EQ(0, list.items[0].retry_count);
    eb_event_list_free(&list);
    ASSERT_EQ(1, t_sql_int(B.path, "SELECT last_error IS NULL AND retry_count = 0 FROM events"));
    end();
    PASS();
}

/* Texts that a careless writer breaks the array with; decoded they are what the handler said. */
TEST last_error_survives_any_text(void)
{
    static const char *const texts[] = {
        "plain",
        "quote \" backslash \\ slash / bracket ] comma , \",\"",
        "line\nfeed\ttab\rreturn\bback\fform",
        "\x01\x02\x1F",
        "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80",
        "\\u0041 \\n",
        "'; DROP TABLE events; --",
        "100% %s %n",
        "\x7F",
    };
    enum { N = sizeof texts / sizeof *texts };
    step steps[N];
    int i;
    memset(steps, 0, sizeof steps);
    for (i = 0; i < N; i++) {
        steps[i].act = FAIL;
        steps[i].text = texts[i];
    }
    setup("escape");
    B.o.retry.max_retries = N - 1;
    script_is(steps, N);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    for (i = 0; i < N; i++) {
        T_FAILED(N, B.bus, B.id, i, texts[i]);
    }
    end();
    PASS();
}

TEST text_that_is_not_utf8_is_made_valid(void)
{
    static const step steps[] = {{FAIL, "bad \xFF\xC3 \xED\xA0\x80 end", 0, 0}};
    eb_event_list list;
    char text[200];
    setup("badutf8");
    B.o.retry.max_retries = EB_NONE;
    script_is(steps, 1);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    T_OK(eb_get(store(), B.id.str, &list));
    ASSERT(t_utf8_ok(list.items[0].last_error, strlen(list.items[0].last_error)));
    ASSERT_EQ(1, t_errors(list.items[0].last_error, 0, text, sizeof text));
    ASSERT(strncmp(text, "bad ", 4) == 0);
    eb_event_list_free(&list);
    ASSERT(t_utf8_ok(logged(0)->error, strlen(logged(0)->error)));
    end();
    PASS();
}

TEST long_text_is_cut_at_a_character(void)
{
    static char text[6001], got[6001];
    int shift;
    for (shift = 0; shift < 4; shift++) {
        step one;
        size_t n = 0;
        while (n < (size_t)shift) text[n++] = 'x';
        while (n + 4 < 6000) {
            memcpy(text + n, "\xF0\x9F\x98\x80", 4);
            n += 4;
        }
        text[n] = 0;
        memset(&one, 0, sizeof one);
        one.act = FAIL;
        one.text = text;
        setup("long");
        B.o.retry.max_retries = EB_NONE;
        script_is(&one, 1);
        begin(NULL);
        T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
        ASSERT_EQ(1, t_failures(store(), B.id.str, 0, got, sizeof got));
        ASSERT(strlen(got) <= 1000 && strlen(got) > 990);
        ASSERT(t_utf8_ok(got, strlen(got)));
        ASSERT_EQ(0, strncmp(text, got, strlen(got)));
        ASSERT(strlen(logged(0)->error) <= 1000 && strlen(logged(0)->error) > 100);
        ASSERT(t_utf8_ok(logged(0)->error, strlen(logged(0)->error)));
        end();
    }
    PASS();
}

TEST text_of_exactly_the_limit_is_kept_whole(void)
{
    static char text[1001];
    step one;
    memset(text, 'y', 1000);
    text[1000] = 0;
    memset(&one, 0, sizeof one);
    one.act = FAIL;
    one.text = text;
    setup("limit");
    B.o.retry.max_retries = EB_NONE;
    script_is(&one, 1);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    T_FAILED(1, B.bus, B.id, 0, text);
    end();
    PASS();
}

/* ---- the log --------------------------------------------------------------------------------- */

TEST every_failed_attempt_is_logged_the_last_one_too(void)
{
    static const int64_t delay[] = {1000, 2000, 4000, -1};
    static const int64_t at[] = {0, 1000, 3000, 7000};
    int64_t waits[8];
    int i, k = 0;
    setup("log");
    begin(NULL);
    T_OK(eb_post(B.bus, "order.made", "1", &B.id));
    ASSERT_EQ(3, run_out(waits, 8));
    ASSERT_EQ(4, t_log_attempts(&B.log));
    for (i = 0; i < B.log.count; i++) {
        const t_logged *e = &B.log.items[i];
        char text[40];
        if (e->attempt <= 0) continue;
        snprintf(text, sizeof text, "failure %d", k + 1);
        ASSERT(e->level == EB_LOG_WARN || e->level == EB_LOG_ERROR); /* the default prints both */
        ASSERT(e->message[0] != 0);
        ASSERT_STR_EQ(B.id.str, e->event_id);
        ASSERT_STR_EQ("order.made", e->type);
        ASSERT_EQ(k + 1, e->attempt);
        ASSERT_EQ(4, e->max_attempts);
        ASSERT_STR_EQ(text, e->error);
        ASSERT_EQ(delay[k], e->next_delay_ms);
        ASSERT_EQ(T_EPOCH + at[k], e->time_ms);
        k++;
    }
    ASSERT_EQ(4, k);
    end();
    PASS();
}

TEST success_logs_no_attempt(void)
{
    static const step steps[] = {{OK, NULL, 0, 0}};
    setup("logok");
    script_is(steps, 1);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(0, t_log_attempts(&B.log));
    end();
    PASS();
}

TEST control_characters_are_escaped_in_the_log(void)
{
    static const step steps[] = {{FAIL, "a\nb\tc\x01" "d\x1B[31m\x7F", 0, 0}};
    const char *p;
    setup("logctl");
    B.o.retry.max_retries = EB_NONE;
    script_is(steps, 1);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(1, t_log_attempts(&B.log));
    for (p = logged(0)->error; *p; p++) ASSERT((unsigned char)*p >= 0x20 && *p != 0x7F);
    ASSERT(logged(0)->error[0] == 'a');
    ASSERT(strstr(logged(0)->error, "[31m") != NULL);
    end();
    PASS();
}

static eb_result says_no(eb_delivery *d, void *user)
{
    (void)user;
    return eb_fail(d, "a \"quoted\" reason");
}

/* Without a logger of one's own: stderr, one JSON object per line, one line per failed attempt. */
TEST default_logger_writes_json_lines(void)
{
    ebi_json json;
    char text[4000] = "", path[440], *line, *end;
    eb_options o = t_options(t_path("stderr"));
    int saved, file, attempts = 0;
    int64_t got;
    eb_bus *bus;
    memset(&o.logger, 0, sizeof o.logger);
    o.retry.max_retries = 1;
    snprintf(path, sizeof path, "%s.log", o.path);
    bus = t_run_with(&o, "*", says_no, NULL);
    fflush(stderr);
    saved = dup(2);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT(saved >= 0 && file >= 0 && dup2(file, 2) >= 0);
    (void)eb_publish(bus, "mail", NULL, NULL);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    lseek(file, 0, SEEK_SET);
    got = read(file, text, sizeof text - 1);
    close(file);
    remove(path);
    ASSERT(got > 0);
    text[got] = 0;
    for (line = text; *line; line = end + 1) {
        end = strchr(line, '\n');
        ASSERT(end != NULL);
        *end = 0;
        ebi_json_init(&json, line, strlen(line));
        ASSERTm(line, ebi_json_value(&json));
        ASSERT(strstr(line, "\"type\":\"mail\"") && strstr(line, "\"event_id\":\""));
        ASSERT(strstr(line, "\"error\":\"a \\\"quoted\\\" reason\""));
        attempts++;
        ASSERTm(line, strstr(line, attempts == 1 ? "\"attempt\":1,\"max_attempts\":2,"
                                                 : "\"attempt\":2,\"max_attempts\":2,"
                                                   "\"next_delay_ms\":-1") != NULL);
    }
    ASSERT_EQ(2, attempts);
    eb_destroy(bus);
    PASS();
}

/* ---- time limits ----------------------------------------------------------------------------- */

TEST handler_that_took_too_long_failed_whatever_it_returned(void)
{
    static const step steps[] = {{OK, NULL, 0, 30001}, {REJECT, "late", 0, 40000},
                                 {OK, NULL, 0, 29999}};
    char text[300];
    setup("timeout");
    script_is(steps, 3);
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_EQ(1, B.s.calls);
    T_STATUS(EB_PROCESSING, B.bus, B.id);
    ASSERT_EQ(1, t_failures(store(), B.id.str, 0, text, sizeof text));
    ASSERT(strstr(text, "time") != NULL);
    ASSERT_EQ(1, t_log_attempts(&B.log));
    ASSERT_EQ(1000, logged(0)->next_delay_ms);
    t_advance(&B.t, 1000);
    T_OK(eb_pump(B.bus, EB_NONE, NULL)); /* a late rejection is stale: only a timeout */
    ASSERT_EQ(2, B.s.calls);
    T_STATUS(EB_PROCESSING, B.bus, B.id);
    ASSERT_EQ(2, t_failures(store(), B.id.str, 1, text, sizeof text));
    ASSERT(strstr(text, "time") != NULL);
    t_advance(&B.t, 2000);
    T_OK(eb_pump(B.bus, EB_NONE, NULL)); /* a millisecond less than the limit is fine */
    ASSERT_EQ(3, B.s.calls);
    T_STATUS(EB_DONE, B.bus, B.id);
    end();
    PASS();
}

TEST timeouts_alone_lead_to_the_dead_letters(void)
{
    static const step steps[] = {{OK, NULL, 0, 101}};
    char text[300];
    int i;
    setup("timeouts");
    B.o.handler_timeout_ms = 100;
    B.o.retry.max_retries = 2;
    script_is(steps, 1);
    begin(NULL);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", &B.id));
    ASSERT_EQ(3, B.s.calls);
    for (i = 0; i < 3; i++) {
        ASSERT_EQ(3, t_failures(store(), B.id.str, i, text, sizeof text));
        ASSERT(strstr(text, "time") != NULL);
    }
    end();
    PASS();
}

TEST subscription_has_its_own_time_limit(void)
{
    static const step steps[] = {{OK, NULL, 0, 150}};
    eb_subscribe_options so = {0};
    setup("subtime");
    B.o.handler_timeout_ms = 100;
    B.o.retry.max_retries = EB_NONE;
    script_is(steps, 1);
    so.timeout_ms = 200;
    begin(&so);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(B.s.seen[0].at_ms + 200, B.s.seen[0].deadline_ms);
    end();

    setup("subtime2");
    B.o.handler_timeout_ms = 200;
    B.o.retry.max_retries = EB_NONE;
    script_is(steps, 1);
    so.timeout_ms = 100;
    begin(&so);
    T_IS(EB_DEAD, eb_publish(B.bus, "a", "1", NULL));
    end();
    PASS();
}

TEST no_time_limit_means_never(void)
{
    static const step steps[] = {{OK, NULL, 0, 864000000}};
    eb_subscribe_options so = {0};
    setup("notime");
    B.o.handler_timeout_ms = EB_NONE;
    script_is(steps, 1);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(EB_NONE, B.s.seen[0].deadline_ms);
    end();

    so.timeout_ms = EB_NONE;
    setup("notime2");
    script_is(steps, 1);
    begin(&so);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(EB_NONE, B.s.seen[0].deadline_ms);
    end();
    PASS();
}

TEST enormous_time_limit_does_not_wrap_around(void)
{
    static const step steps[] = {{OK, NULL, 0, 1000}};
    setup("maxtime");
    B.o.handler_timeout_ms = INT64_MAX;
    script_is(steps, 1);
    begin(NULL);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT(B.s.seen[0].deadline_ms == EB_NONE || B.s.seen[0].deadline_ms > T_EPOCH + YEAR_MS);
    end();
    PASS();
}

TEST each_handler_has_the_whole_time_limit(void)
{
    static const step steps[] = {{OK, NULL, 0, 80}};
    setup("eachtime");
    B.o.handler_timeout_ms = 100;
    script_is(steps, 1);
    begin(NULL);
    t_subscribe(B.bus, "a", play, &B.s);
    T_OK(eb_publish(B.bus, "a", "1", NULL));
    ASSERT_EQ(2, B.s.calls);
    ASSERT_EQ(T_EPOCH + 100, B.s.seen[0].deadline_ms);
    ASSERT_EQ(T_EPOCH + 80 + 100, B.s.seen[1].deadline_ms);
    end();
    PASS();
}

/* ---- eb_extend and eb_cancelled -------------------------------------------------------------- */

typedef struct extender {
    int64_t before_ms, more_ms, after_ms; /* run, extend, run on */
    eb_result got;
    int64_t deadline[2];
    int cancelled[2];
} extender;

static eb_result extending(eb_delivery *d, void *user)
{
    extender *x = (extender *)user;
    x->deadline[0] = d->deadline_ms;
    t_advance(&B.t, x->before_ms);
    x->cancelled[0] = eb_cancelled(d);
    x->got = eb_extend(d, x->more_ms);
    x->deadline[1] = d->deadline_ms;
    t_advance(&B.t, x->after_ms);
    x->cancelled[1] = eb_cancelled(d);
    return EB_OK;
}

static eb_result run_extender(extender *x, int64_t timeout_ms)
{
    eb_result rc;
    setup("extend");
    B.o.handler_timeout_ms = timeout_ms;
    B.o.retry.max_retries = EB_NONE;
    B.bus = t_open(&B.o);
    t_subscribe(B.bus, "a", extending, x);
    T_DO(eb_start(B.bus));
    rc = eb_publish(B.bus, "a", "1", NULL);
    end();
    return rc;
}

TEST extend_moves_the_deadline_further(void)
{
    extender x;
    memset(&x, 0, sizeof x);
    x.before_ms = 80;
    x.more_ms = 100;
    x.after_ms = 119; /* 199 of 100 + 100 */
    T_OK(run_extender(&x, 100));
    ASSERT_EQ(EB_OK, x.got);
    ASSERT_EQ(T_EPOCH + 100, x.deadline[0]);
    ASSERT_EQ(T_EPOCH + 200, x.deadline[1]);
    ASSERT_EQ(0, x.cancelled[0]);
    ASSERT_EQ(0, x.cancelled[1]);
    x.after_ms = 121; /* 201 */
    T_IS(EB_DEAD, run_extender(&x, 100));
    ASSERT_EQ(EB_OK, x.got);
    ASSERT_EQ(1, x.cancelled[1]);
    PASS();
}

TEST extend_too_late_is_stale(void)
{
    extender x;
    memset(&x, 0, sizeof x);
    x.before_ms = 101;
    x.more_ms = 1000;
    T_IS(EB_DEAD, run_extender(&x, 100));
    ASSERT_EQ(EB_ERR_STALE, x.got);
    ASSERT_EQ(1, x.cancelled[0]);
    PASS();
}

TEST extend_for_ever_takes_the_deadline_away(void)
{
    extender x;
    memset(&x, 0, sizeof x);
    x.before_ms = 99;
    x.more_ms = EB_NONE;
    x.after_ms = 864000000;
    T_OK(run_extender(&x, 100));
    ASSERT_EQ(EB_OK, x.got);
    ASSERT_EQ(EB_NONE, x.deadline[1]);
    ASSERT_EQ(0, x.cancelled[1]);
    PASS();
}

TEST extend_takes_extreme_numbers(void)
{
    extender x;
    memset(&x, 0, sizeof x);
    x.more_ms = INT64_MAX; /* no overflow into the past */
    x.after_ms = 1000;
    T_OK(run_extender(&x, 100));
    ASSERT_EQ(EB_OK, x.got);
    x.more_ms = -2;
    x.after_ms = 0;
    T_OK(run_extender(&x, 100));
    ASSERT_EQ(EB_ERR_ARG, x.got);
    ASSERT_EQ(T_EPOCH + 100, x.deadline[1]);
    x.more_ms = 0;
    T_OK(run_extender(&x, 100));
    ASSERT_EQ(EB_OK, x.got);
    x.more_ms = 10; /* there is no deadline to move */
    x.after_ms = 864000000;
    T_OK(run_extender(&x, EB_NONE));
    ASSERT_EQ(EB_OK, x.got);
    PASS();
}

/* ---- restarts and order ---------------------------------------------------------------------- */

TEST waiting_for_a_retry_survives_a_restart(void)
{
    int64_t next;
    setup("restart");
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    t_advance(&B.t, 1000);
    T_OK(eb_pump(B.bus, EB_NONE, NULL)); /* attempt 2; 2000 to wait */
    ASSERT_EQ(2, B.s.calls);
    t_advance(&B.t, 500);
    end();
    B.t.mono_ms = 1; /* monotonic time begins anew */
    begin(NULL);
    T_OK(eb_pump(B.bus, EB_NONE, &next));
    ASSERT_EQ(2, B.s.calls); /* keeps count and due time */
    ASSERT_EQ(1500, next);
    ASSERT_EQ(2, t_failures(store(), B.id.str, 0, NULL, 0));
    t_advance(&B.t, 1500);
    T_OK(eb_pump(B.bus, EB_NONE, &next));
    ASSERT_EQ(3, B.s.calls);
    ASSERT_EQ(3, B.s.seen[2].attempt);
    ASSERT_EQ(4000, next);
    end();
    PASS();
}

TEST others_go_on_while_one_waits_for_its_retry(void)
{
    static const step steps[] = {{FAIL, NULL, 0, 0}, {OK, NULL, 0, 0}};
    eb_id other;
    setup("others");
    script_is(steps, 2);
    begin(NULL);
    B.id = t_post(B.bus, "a", "1");
    other = t_post(B.bus, "a", "2");
    T_PUMP(B.bus, EB_NONE, 1000);
    ASSERT_EQ(2, B.s.calls);
    T_STATUS(EB_DONE, B.bus, other);
    T_STATUS(EB_PROCESSING, B.bus, B.id);
    end();
    PASS();
}

typedef struct ordered {
    char order[64];
    int fail_first, snooze_first;
} ordered;

static eb_result in_order(eb_delivery *d, void *user)
{
    ordered *o = (ordered *)user;
    size_t n = strlen(o->order);
    if (n + 1 < sizeof o->order) o->order[n] = d->event->payload[0];
    if (d->event->payload[0] == '1' && o->fail_first-- > 0) return eb_fail(d, "no");
    if (d->event->payload[0] == '1' && o->snooze_first-- > 0) return eb_snooze(d, 10);
    return EB_OK;
}

TEST same_ordering_key_waits_for_the_earlier_event_through_its_retries(void)
{
    ordered x;
    eb_message m[4];
    static const char *const text[] = {"1", "2", "3", "4"};
    int i;
    memset(&x, 0, sizeof x);
    x.fail_first = 2;
    x.snooze_first = 1;
    setup("key");
    B.bus = t_open(&B.o);
    t_subscribe(B.bus, "a", in_order, &x);
    T_OK(eb_start(B.bus));
    memset(m, 0, sizeof m);
    for (i = 0; i < 4; i++) {
        m[i].type = "a";
        m[i].payload = text[i];
        m[i].ordering_key = i == 2 ? "other" : "key";
    }
    T_OK(eb_send(B.bus, m, 4, NULL));
    T_OK(eb_pump(B.bus, EB_NONE, NULL));
    ASSERT_STR_EQ("13", x.order); /* 3 has another key; 2 and 4 wait */
    T_OK(eb_drain(B.bus, EB_NONE));
    ASSERT_STR_EQ("1311124", x.order);
    end();
    PASS();
}

SUITE(retry)
{
    RUN_TEST(default_backoff_is_1_2_4_seconds_then_dead);
    RUN_TEST(wait_is_capped);
    RUN_TEST(default_cap_is_30_seconds);
    RUN_TEST(base_above_the_cap_is_capped_too);
    RUN_TEST(multiplier_may_be_a_fraction_or_one);
    RUN_TEST(no_retries_means_one_attempt);
    RUN_TEST(no_base_delay_means_no_wait);
    RUN_TEST(no_max_delay_means_no_cap);
    RUN_TEST(thousand_retries_with_an_absurd_multiplier_keep_the_cap);
    RUN_TEST(enormous_waits_do_not_wrap_around);
    RUN_TEST(largest_max_retries_does_not_overflow_the_attempts);
    RUN_TEST(jitter_stays_within_its_bounds);
    RUN_TEST(jitter_does_not_exceed_the_cap);
    RUN_TEST(jitter_spreads_a_schedule_too);
    greatest_set_test_suffix("computed");
    RUN_TEST1(jitter_of_an_enormous_wait_does_not_overflow, 0);
    greatest_set_test_suffix("scheduled");
    RUN_TEST1(jitter_of_an_enormous_wait_does_not_overflow, 1);
    RUN_TEST(schedule_gives_waits_and_their_number);
    RUN_TEST(last_wait_of_a_schedule_repeats);
    RUN_TEST(fewer_retries_than_the_schedule_has_waits);
    RUN_TEST(schedule_replaces_base_cap_and_multiplier);
    RUN_TEST(zero_in_a_schedule_is_no_wait);
    RUN_TEST(subscription_overrides_only_what_it_names);
    RUN_TEST(base_delay_overrides_an_inherited_schedule);
    RUN_TEST(subscription_may_change_the_number_of_an_inherited_schedule);
    RUN_TEST(schedule_of_a_subscription_brings_its_own_number);
    RUN_TEST(policy_of_the_failing_handler_decides);
}

SUITE(outcomes)
{
    RUN_TEST(rejected_event_dies_at_once);
    RUN_TEST(rejected_after_failures_keeps_all_errors);
    RUN_TEST(snooze_spends_no_attempt);
    RUN_TEST(snooze_between_failures_keeps_the_count);
    RUN_TEST(snooze_zero_is_at_once);
    RUN_TEST(negative_snooze_is_an_error_and_a_failed_attempt);
    RUN_TEST(enormous_snooze_does_not_wrap_around);
    RUN_TEST(duplicate_returned_by_a_handler_is_success);
    RUN_TEST(any_other_value_is_a_failed_attempt_with_that_codes_text);
    RUN_TEST(values_that_are_no_results_are_failed_attempts_too);
    RUN_TEST(failed_without_a_reason_is_a_failed_attempt);
    RUN_TEST(last_word_before_returning_failed_counts);
    RUN_TEST(text_of_a_handler_that_succeeded_is_not_blamed_on_the_next);
    RUN_TEST(fail_reject_and_snooze_return_failed);
}

SUITE(errors_and_log)
{
    RUN_TEST(event_stays_processing_between_retries);
    RUN_TEST(handler_sees_attempts_and_earlier_errors);
    RUN_TEST(last_error_has_one_text_per_failed_attempt);
    RUN_TEST(last_error_is_null_without_failures);
    RUN_TEST(last_error_survives_any_text);
    RUN_TEST(text_that_is_not_utf8_is_made_valid);
    RUN_TEST(long_text_is_cut_at_a_character);
    RUN_TEST(text_of_exactly_the_limit_is_kept_whole);
    RUN_TEST(every_failed_attempt_is_logged_the_last_one_too);
    RUN_TEST(success_logs_no_attempt);
    RUN_TEST(control_characters_are_escaped_in_the_log);
    RUN_TEST(default_logger_writes_json_lines);
}

SUITE(time_limits)
{
    RUN_TEST(handler_that_took_too_long_failed_whatever_it_returned);
    RUN_TEST(timeouts_alone_lead_to_the_dead_letters);
    RUN_TEST(subscription_has_its_own_time_limit);
    RUN_TEST(no_time_limit_means_never);
    RUN_TEST(enormous_time_limit_does_not_wrap_around);
    RUN_TEST(each_handler_has_the_whole_time_limit);
    RUN_TEST(extend_moves_the_deadline_further);
    RUN_TEST(extend_too_late_is_stale);
    RUN_TEST(extend_for_ever_takes_the_deadline_away);
    RUN_TEST(extend_takes_extreme_numbers);
    RUN_TEST(waiting_for_a_retry_survives_a_restart);
    RUN_TEST(others_go_on_while_one_waits_for_its_retry);
    RUN_TEST(same_ordering_key_waits_for_the_earlier_event_through_its_retries);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    t_pump_mode = 1;
    RUN_SUITE(retry);
    RUN_SUITE(outcomes);
    RUN_SUITE(errors_and_log);
    RUN_SUITE(time_limits);
    GREATEST_MAIN_END();
}
