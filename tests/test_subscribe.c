/* test_subscribe.c - unnamed subscriptions: who is called, in which order, what a failure stops,
** and what becomes of an event that nobody wants. Under worker threads and eb_pump alike. */
#include "test.h"
#include "proc.h"
#include <limits.h>
#include <math.h>

/* ---- handlers that leave a trace ------------------------------------------------------------- */

/* The calls of all handlers in order: "a1 b1 a2 " is name and attempt. */
static struct {
    char text[4000];
    int calls;
} trace;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;

static void trace_clear(void)
{
    pthread_mutex_lock(&trace_lock);
    memset(&trace, 0, sizeof trace);
    pthread_mutex_unlock(&trace_lock);
}

static void trace_add(const char *name, int number)
{
    size_t n;
    pthread_mutex_lock(&trace_lock);
    n = strlen(trace.text);
    snprintf(trace.text + n, sizeof trace.text - n, "%s%d ", name, number);
    trace.calls++;
    pthread_mutex_unlock(&trace_lock);
}

/* One subscription: what its handler is called in the trace and what it does. */
typedef struct part {
    const char *name;
    int fail_first; /* the event's first attempts that fail */
    int reject;
    int max_attempts;    /* seen */
    eb_result result;    /* of what the handler itself called */
    const char *unsub;   /* unsubscribes this id */
    struct part *subs;   /* subscribes this part for "*", once */
    int snooze;          /* snoozes the first time */
    eb_id id;
} part;

static eb_result play(eb_delivery *d, void *user)
{
    part *p = (part *)user;
    trace_add(p->name, d->attempt);
    p->max_attempts = d->max_attempts;
    if (p->unsub) {
        p->result = eb_unsubscribe(d->bus, p->unsub);
        p->unsub = NULL;
    }
    if (p->subs) {
        part *other = p->subs;
        p->subs = NULL;
        p->result = eb_subscribe(d->bus, "*", play, other, NULL, &other->id);
    }
    if (p->snooze) {
        p->snooze = 0;
        return eb_snooze(d, 1);
    }
    if (p->reject) return eb_reject(d, "%s rejects", p->name);
    if (d->attempt <= p->fail_first) return eb_fail(d, "%s %d", p->name, d->attempt);
    return EB_OK;
}

/* Fresh parts for every test. */
static part *parts(int n)
{
    static part pool[16];
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                        "i", "j", "k", "l", "m", "n", "o", "p"};
    int i;
    T_MUST(n <= 16);
    memset(pool, 0, sizeof pool);
    for (i = 0; i < n; i++) {
        pool[i].name = names[i];
        pool[i].result = EB_RESULT_LAST_;
    }
    trace_clear();
    return pool;
}

static eb_result sub(eb_bus *bus, const char *pattern, part *p)
{
    return eb_subscribe(bus, pattern, play, p, NULL, &p->id);
}

/* A started bus where the first n parts want everything, in this order; policy 0 is the default. */
static eb_bus *on_stage(const char *path, int on_unmatched, part *p, int n)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    int i;
    o.on_unmatched = on_unmatched;
    bus = t_open(&o);
    for (i = 0; i < n; i++) T_DO(sub(bus, "*", &p[i]));
    T_DO(eb_start(bus));
    return bus;
}

static int64_t sub_rows(const char *path)
{
    return t_sql_int(path, "SELECT count(*) FROM subscriptions");
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* After a refusal: the message says something, no row, nobody is called. */
#define REFUSED(want, expr)                                                                        \
    do {                                                                                           \
        char r_msg[200];                                                                           \
        T_IS(want, expr);                                                                          \
        ASSERT(eb_errmsg(r_msg, sizeof r_msg) > 0);                                                \
        T_EQ(0, sub_rows(path));                                                                   \
    } while (0)
#define NOBODY_WAS_SUBSCRIBED()                                                                    \
    do {                                                                                           \
        T_OK(eb_start(bus));                                                                       \
        T_OK(eb_publish(bus, "a", NULL, NULL));                                                    \
        T_EQ(0, trace.calls);                                                                      \
        T_EQ(0, sub_rows(path));                                                                   \
    } while (0)

TEST patterns_follow_the_rules_of_types_and_may_have_stars(void)
{
    static const char *const bad[] = {
        "",       " ",         "a b",           " a",           "* ",      "a\tb",
        "a\n",    "\r",        "\x01",          "a\x1F",        "a\x7F",   "\xC2\x85",
        "\xFF",   "a\xC3",     "\xC0\xAF",      "\xE0\x80\xAF", "\x80",    "\xED\xA0\x80",
        "*\xC0*", "\xF0\x9F\x98", "\xF4\x90\x80\x80",
    };
    static const char *const good[] = {"*",  "**", "a",   "a*b", "*.*", "order.*", "\"'--;",
                                       "%s", "?",  "[a]", "\xC3\xA4.*", "\xC2\xA1",
                                       "\xF0\x9F\x98\x80*"};
    const char *path = t_path("patterns");
    eb_bus *bus = t_bus(path);
    part *p = parts(1);
    char text[300];
    size_t i;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) REFUSED(EB_ERR_ARG, sub(bus, bad[i], p));
    REFUSED(EB_ERR_ARG, sub(bus, NULL, p));
    memset(text, '*', sizeof text);
    text[256] = 0;
    REFUSED(EB_ERR_ARG, sub(bus, text, p));
    NOBODY_WAS_SUBSCRIBED();
    for (i = 0; i < sizeof good / sizeof *good; i++) T_OK(sub(bus, good[i], p));
    text[255] = 0;
    T_OK(sub(bus, text, p));
    T_EQ(1 + sizeof good / sizeof *good, sub_rows(path));
    eb_destroy(bus);
    PASS();
}

TEST handler_is_required(void)
{
    const char *path = t_path("no-handler");
    eb_bus *bus = t_bus(path);
    parts(0);
    REFUSED(EB_ERR_ARG, eb_subscribe(bus, "*", NULL, NULL, NULL, NULL));
    NOBODY_WAS_SUBSCRIBED();
    eb_destroy(bus);
    PASS();
}

/* What is for a later version must not be taken for granted by a program that runs on this one. */
TEST options_of_a_later_version_are_refused(void)
{
    static const char *const names[] = {"billing", ""};
    const char *path = t_path("later");
    eb_bus *bus = t_bus(path);
    part *p = parts(1);
    eb_subscribe_options so;
    int64_t value;
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        memset(&so, 0, sizeof so);
        so.name = names[i];
        REFUSED(EB_ERR_ARG, eb_subscribe(bus, "*", play, p, &so, &p->id));
        memset(&so, 0, sizeof so);
        so.order_path = i ? "" : "$.customer";
        REFUSED(EB_ERR_ARG, eb_subscribe(bus, "*", play, p, &so, &p->id));
    }
    for (value = -1; value <= 2; value++) {
        int number = (int)value, which;
        if (value == 0) continue;
        for (which = 0; which < 10; which++) {
            memset(&so, 0, sizeof so);
            if (which == 0) so.transactional = number;
            if (which == 1) so.from = number;
            if (which == 2) so.order = number;
            if (which == 3) so.on_dead = number;
            if (which == 4) so.instances = number;
            if (which == 5) so.checkpoint_every = number;
            if (which == 6) so.checkpoint_ms = value;
            if (which == 7) so.max_concurrency = number;
            if (which == 8) so.breaker_failures = number;
            if (which == 9) so.breaker_ms = value;
            REFUSED(EB_ERR_ARG, eb_subscribe(bus, "*", play, p, &so, &p->id));
        }
    }
    NOBODY_WAS_SUBSCRIBED();
    memset(&so, 0, sizeof so);
    T_OK(eb_subscribe(bus, "*", play, p, &so, &p->id)); /* the same, all zero */
    T_OK(eb_publish(bus, "a", NULL, NULL));
    T_EQ(1, trace.calls);
    eb_destroy(bus);
    PASS();
}

TEST numbers_that_make_no_sense_are_refused(void)
{
    static const int64_t waits[] = {5, 10}, bad_waits[] = {5, -1};
    const char *path = t_path("numbers");
    eb_bus *bus = t_bus(path);
    part *p = parts(1);
    eb_subscribe_options so;
    int which;
    for (which = 0; which < 19; which++) {
        memset(&so, 0, sizeof so);
        if (which == 0) so.timeout_ms = -2;
        if (which == 1) so.timeout_ms = INT64_MIN;
        if (which == 2) so.retry.max_retries = -2;
        if (which == 3) so.retry.max_retries = INT_MIN;
        if (which == 4) so.retry.base_delay_ms = -2;
        if (which == 5) so.retry.base_delay_ms = INT64_MIN;
        if (which == 6) so.retry.max_delay_ms = -2;
        if (which == 7) so.retry.multiplier = 0.5;
        if (which == 8) so.retry.multiplier = EB_NONE;
        if (which == 9) so.retry.multiplier = (double)NAN;
        if (which == 10) so.retry.jitter = -0.1;
        if (which == 11) so.retry.jitter = 1.1;
        if (which == 12) so.retry.jitter = EB_NONE;
        if (which == 13) so.retry.jitter = (double)NAN;
        if (which == 14) so.retry.schedule_ms = waits; /* without a count */
        if (which == 15) so.retry.schedule_count = 2;  /* without waits */
        if (which == 16) so.retry.schedule_count = -1;
        if (which >= 17) {
            so.retry.schedule_ms = which == 17 ? bad_waits : waits;
            so.retry.schedule_count = which == 17 ? 2 : INT_MIN;
        }
        REFUSED(EB_ERR_ARG, eb_subscribe(bus, "*", play, p, &so, &p->id));
    }
    NOBODY_WAS_SUBSCRIBED();
    memset(&so, 0, sizeof so);
    so.timeout_ms = EB_NONE;
    so.retry.max_retries = EB_NONE;
    so.retry.base_delay_ms = EB_NONE;
    so.retry.max_delay_ms = EB_NONE;
    T_OK(eb_subscribe(bus, "*", play, p, &so, NULL)); /* none is a number; the id may be NULL */
    p->fail_first = 99;
    T_IS(EB_DEAD, eb_publish(bus, "a", NULL, NULL));
    ASSERT_STR_EQ("a1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

TEST everything_is_copied_before_the_call_returns(void)
{
    eb_bus *bus = t_bus(t_path("copied"));
    part *p = parts(1);
    char *pattern = (char *)malloc(20);
    int64_t *waits = (int64_t *)malloc(2 * sizeof *waits);
    eb_subscribe_options *so = (eb_subscribe_options *)calloc(1, sizeof *so);
    T_MUST(pattern && waits && so);
    snprintf(pattern, 20, "order.*");
    waits[0] = waits[1] = 1;
    so->retry.schedule_ms = waits;
    so->retry.schedule_count = 2;
    T_OK(eb_subscribe(bus, pattern, play, p, so, &p->id));
    memset(pattern, 'x', 20);
    memset(waits, 0x7F, 2 * sizeof *waits);
    memset(so, 0x7F, sizeof *so);
    free(pattern);
    free(waits);
    free(so);
    p->fail_first = 2;
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "order.x", NULL, NULL));
    T_OK(eb_publish(bus, "xxxxxx", NULL, NULL));
    ASSERT_STR_EQ("a1 a2 a3 ", trace.text);
    T_EQ(3, p->max_attempts);
    ASSERT(t_is_v4(p->id.str));
    eb_destroy(bus);
    PASS();
}

/* ---- order and failure ----------------------------------------------------------------------- */

TEST handlers_run_in_order_of_subscribing(void)
{
    eb_bus *bus = t_bus(t_path("order"));
    part *p = parts(6);
    T_OK(sub(bus, "*", &p[0]));
    T_OK(sub(bus, "x.y", &p[1]));
    T_OK(sub(bus, "other", &p[2]));
    T_OK(eb_start(bus));
    T_OK(sub(bus, "x.*", &p[3])); /* after the start they queue up behind the others */
    T_OK(sub(bus, "*", &p[4]));
    T_OK(eb_publish(bus, "x.y", NULL, NULL));
    ASSERT_STR_EQ("a1 b1 d1 e1 ", trace.text);
    trace_clear();
    T_OK(eb_unsubscribe(bus, p[1].id.str)); /* whoever comes back is the last */
    T_OK(eb_unsubscribe(bus, p[4].id.str));
    T_OK(sub(bus, "x.y", &p[1]));
    T_OK(sub(bus, "x*", &p[5]));
    T_OK(eb_publish(bus, "x.y", NULL, NULL));
    ASSERT_STR_EQ("a1 d1 b1 f1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

TEST first_failure_ends_the_attempt_and_the_next_one_runs_all_again(void)
{
    part *p = parts(3);
    eb_bus *bus = on_stage(t_path("first-failure"), 0, p, 3);
    eb_id id;
    p[1].fail_first = 2;
    T_OK(eb_publish(bus, "x", NULL, &id));
    ASSERT_STR_EQ("a1 b1 a2 b2 a3 b3 c3 ", trace.text);
    T_FAILED(2, bus, id, 1, "b 2");
    T_STATUS(EB_DONE, bus, id);
    eb_destroy(bus);
    PASS();
}

TEST rejecting_handler_ends_it_for_all(void)
{
    part *p = parts(3);
    eb_bus *bus = on_stage(t_path("reject"), 0, p, 3);
    eb_id id;
    p[1].reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "x", NULL, &id));
    ASSERT_STR_EQ("a1 b1 ", trace.text);
    T_FAILED(1, bus, id, 0, "b rejects");
    eb_destroy(bus);
    PASS();
}

/* a may fail five times more, b once; they count the same failures. */
TEST failing_handler_brings_its_own_limit(void)
{
    eb_bus *bus = t_bus(t_path("limit"));
    part *p = parts(3);
    eb_subscribe_options five = {0}, one = {0};
    eb_id id;
    five.retry.max_retries = 5;
    one.retry.max_retries = 1;
    p[0].fail_first = 1;
    p[1].fail_first = 99;
    T_OK(eb_subscribe(bus, "*", play, &p[0], &five, NULL));
    T_OK(eb_subscribe(bus, "*", play, &p[1], &one, NULL));
    t_subscribe(bus, "*", play, &p[2]);
    T_OK(eb_start(bus));
    T_IS(EB_DEAD, eb_publish(bus, "x", NULL, &id));
    ASSERT_STR_EQ("a1 a2 b2 ", trace.text);
    T_EQ(6, p[0].max_attempts);
    T_EQ(2, p[1].max_attempts);
    T_FAILED(2, bus, id, 0, "a 1");
    T_FAILED(2, bus, id, 1, "b 2");
    eb_destroy(bus);
    PASS();
}

TEST overlapping_patterns_call_exactly_those_that_match(void)
{
    static const char *const patterns[] = {"*",       "order.*",     "*.shipped", "order.shipped",
                                           "o*d",     "order",       "order.shipped.*",
                                           "*order*", "**", "Order.*"};
    static const char *const types[] = {"order.shipped", "order",  "order.",   "shipped", "od",
                                        "xorder.shipped", "Order.shipped", "order.shipped.now"};
    enum { N = sizeof patterns / sizeof *patterns };
    eb_options o = t_options(t_path("overlap"));
    eb_bus *bus = t_open(&o);
    part *p = parts(N);
    char want[200];
    size_t i, k, n;
    for (i = 0; i < N; i++) T_OK(sub(bus, patterns[i], &p[i]));
    T_OK(eb_start(bus));
    for (k = 0; k < sizeof types / sizeof *types; k++) {
        trace_clear();
        T_OK(eb_publish(bus, types[k], NULL, NULL));
        for (i = n = 0; i < N; i++)
            if (eb_match(patterns[i], types[k]))
                n += (size_t)snprintf(want + n, sizeof want - n, "%s1 ", p[i].name);
        ASSERT_STR_EQ(want, trace.text);
    }
    eb_destroy(bus);
    PASS();
}

TEST same_handler_may_be_subscribed_twice(void)
{
    const char *path = t_path("twice");
    eb_bus *bus = t_bus(path);
    part *p = parts(1);
    eb_id first;
    T_OK(sub(bus, "x", p));
    first = p->id;
    T_OK(sub(bus, "x", p));
    ASSERT(strcmp(first.str, p->id.str) != 0);
    T_EQ(2, sub_rows(path));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    ASSERT_STR_EQ("a1 a1 ", trace.text);
    T_OK(eb_unsubscribe(bus, first.str));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    ASSERT_STR_EQ("a1 a1 a1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

/* ---- the rows -------------------------------------------------------------------------------- */

TEST rows_show_who_is_subscribed(void)
{
    const char *path = t_path("rows");
    eb_bus *bus = t_bus(path);
    part *p = parts(3);
    char sql[300], buf[100];
    T_OK(sub(bus, "order.*", &p[0]));
    T_OK(eb_start(bus)); /* announces it again, as itself */
    T_OK(sub(bus, "x", &p[1]));
    T_OK(sub(bus, "x", &p[2]));
    T_EQ(3, sub_rows(path));
    snprintf(sql, sizeof sql, "SELECT event_type FROM subscriptions WHERE id = '%.36s'",
             p[0].id.str);
    ASSERT_STR_EQ("order.*", t_sql_text(path, sql, buf, sizeof buf));
    T_EQ(3, t_sql_int(path, "SELECT count(*) FROM subscriptions WHERE name IS NULL AND checkpoint"
                            " IS NULL AND options IS NULL AND created_at GLOB"
                            " '20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:*.[0-9][0-9][0-9]Z'"));
    T_OK(eb_unsubscribe(bus, p[1].id.str));
    T_EQ(2, sub_rows(path));
    snprintf(sql, sizeof sql, "SELECT count(*) FROM subscriptions WHERE id = '%.36s'", p[1].id.str);
    T_EQ(0, t_sql_int(path, sql));
    eb_destroy(bus);
    PASS();
}

/* A process that died left its rows behind; a named one's row would be somebody's checkpoint. */
TEST next_owner_removes_the_rows_of_the_dead(void)
{
    const char *path = t_path("dead-rows");
    eb_bus *bus = t_bus(path);
    part *p = parts(1);
    char buf[100];
    eb_destroy(bus);
    T_EQ(SQLITE_OK, t_sql(path, "INSERT INTO subscriptions(id,event_type,created_at,name) VALUES"
                                "('gone','x','2020-01-01T00:00:00.000Z',NULL),"
                                "('kept','x','2020-01-01T00:00:00.000Z','billing')", NULL, 0));
    bus = t_bus(path);
    T_OK(sub(bus, "y", p));
    T_EQ(3, sub_rows(path)); /* only who owns the file may tidy up */
    T_OK(eb_start(bus));
    T_EQ(2, sub_rows(path));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM subscriptions WHERE id = 'kept'"));
    ASSERT_STR_EQ(p->id.str, t_sql_text(path, "SELECT id FROM subscriptions WHERE id <> 'kept'",
                                        buf, sizeof buf));
    eb_destroy(bus);
    PASS();
}

TEST unsubscribing_what_is_no_subscription_is_not_found(void)
{
    const char *path = t_path("not-found");
    eb_options o = t_options(path), other_o = t_options(t_path("not-found-2"));
    eb_bus *bus = t_open(&o), *other = t_open(&other_o);
    part *p = parts(2);
    char longer[80];
    eb_id event;
    T_OK(sub(bus, "*", &p[0]));
    T_OK(sub(other, "*", &p[1]));
    event = t_post(bus, "x", NULL);
    T_IS(EB_ERR_ARG, eb_unsubscribe(bus, NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, ""));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, "x"));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, "00000000-0000-4000-8000-000000000000"));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, event.str));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, p[1].id.str)); /* another bus's */
    snprintf(longer, sizeof longer, "%.36s0", p[0].id.str);
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, longer));
    longer[35] = 0;
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, longer));
    T_SAYS(longer);
    T_EQ(1, sub_rows(path));
    T_OK(eb_unsubscribe(bus, p[0].id.str));
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, p[0].id.str)); /* once is enough */
    eb_destroy(bus);
    eb_destroy(other);
    PASS();
}

/* ---- inside handlers ------------------------------------------------------------------------- */

TEST handler_may_subscribe_another(void)
{
    const char *path = t_path("inside");
    part *p = parts(2);
    eb_bus *bus = on_stage(path, 0, p, 1);
    p[0].subs = &p[1];
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(EB_OK, p[0].result);
    T_EQ(2, sub_rows(path));
    trace_clear();
    T_OK(eb_publish(bus, "x", NULL, NULL)); /* from now on at the latest */
    ASSERT_STR_EQ("a1 b1 ", trace.text);
    T_OK(eb_unsubscribe(bus, p[1].id.str));
    trace_clear();
    T_OK(eb_publish(bus, "x", NULL, NULL));
    ASSERT_STR_EQ("a1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

TEST handler_may_unsubscribe_itself_and_its_success_counts(void)
{
    const char *path = t_path("itself");
    part *p = parts(2);
    eb_bus *bus = on_stage(path, 0, p, 2);
    eb_id id;
    p[0].unsub = p[0].id.str;
    T_OK(eb_publish(bus, "x", NULL, &id));
    T_EQ(EB_OK, p[0].result);
    T_STATUS(EB_DONE, bus, id);
    T_EQ(1, sub_rows(path));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    ASSERT_STR_EQ("a1 b1 b1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

/* Its failure is a failed attempt all the same; the event then waits for somebody who matches. */
TEST handler_that_leaves_and_fails_does_not_lose_the_event(int on_unmatched)
{
    part *p = parts(2);
    eb_bus *bus = on_stage(t_path("leaves-failing"), on_unmatched, p, 1);
    eb_id id;
    p[0].unsub = p[0].id.str;
    p[0].fail_first = 99;
    id = t_post(bus, "x", NULL);
    T_OK(t_settle(bus)); /* what stays because nobody matches it does not count */
    ASSERT_STR_EQ("a1 ", trace.text);
    T_STATUS(EB_PENDING, bus, id);
    T_FAILED(1, bus, id, 0, "a 1");
    T_OK(sub(bus, "x", &p[1]));
    T_OK(eb_wait(bus, id.str, 20000));
    ASSERT_STR_EQ("a1 b2 ", trace.text);
    eb_destroy(bus);
    PASS();
}

/* Snoozing asks for the event again: it is no event that nobody ever wanted. */
TEST handler_that_leaves_and_snoozes_does_not_lose_the_event(int on_unmatched)
{
    part *p = parts(2);
    eb_bus *bus = on_stage(t_path("leaves-snoozing"), on_unmatched, p, 1);
    eb_id id;
    p[0].unsub = p[0].id.str;
    p[0].snooze = 1;
    id = t_post(bus, "x", NULL);
    T_OK(t_settle(bus));
    ASSERT_STR_EQ("a1 ", trace.text);
    T_STATUS(EB_PENDING, bus, id);
    T_OK(sub(bus, "x", &p[1]));
    T_OK(eb_wait(bus, id.str, 20000));
    ASSERT_STR_EQ("a1 b1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

/* No new call begins, not even in the attempt that is under way. */
TEST handler_may_unsubscribe_one_whose_turn_would_come(void)
{
    part *p = parts(3);
    eb_bus *bus = on_stage(t_path("later-one"), 0, p, 3);
    eb_id id;
    p[0].unsub = p[1].id.str;
    T_OK(eb_publish(bus, "x", NULL, &id));
    T_EQ(EB_OK, p[0].result);
    ASSERT_STR_EQ("a1 c1 ", trace.text);
    T_STATUS(EB_DONE, bus, id);
    eb_destroy(bus);
    PASS();
}

TEST handler_may_unsubscribe_one_that_has_had_its_turn(void)
{
    part *p = parts(2);
    eb_bus *bus = on_stage(t_path("earlier-one"), 0, p, 2);
    p[1].unsub = p[0].id.str;
    p[1].fail_first = 1;
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(EB_OK, p[1].result);
    ASSERT_STR_EQ("a1 b1 b2 ", trace.text);
    eb_destroy(bus);
    PASS();
}

/* Each would end the other: whoever runs first does, and the other is never called. */
TEST of_two_that_unsubscribe_each_other_the_first_stays(void)
{
    const char *path = t_path("each-other");
    part *p = parts(2);
    eb_bus *bus = on_stage(path, 0, p, 2);
    p[0].unsub = p[1].id.str;
    p[1].unsub = p[0].id.str;
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    ASSERT_STR_EQ("a1 a1 ", trace.text);
    T_EQ(1, sub_rows(path));
    eb_destroy(bus);
    PASS();
}

/* Unsubscribing twice inside one handler: the second time there is nothing left. */
static eb_result leaves_twice(eb_delivery *d, void *user)
{
    part *p = (part *)user;
    char own[37]; /* the id may lie in memory that the subscription's end gives back */
    t_copy(own, sizeof own, p->id.str);
    p->result = eb_unsubscribe(d->bus, own);
    if (p->result == EB_OK && eb_unsubscribe(d->bus, own) != EB_ERR_NOT_FOUND)
        p->result = EB_ERR_STATE;
    trace_add(p->name, d->attempt);
    return EB_OK;
}

TEST unsubscribing_inside_takes_effect_at_once(void)
{
    eb_bus *bus = t_bus(t_path("at-once"));
    part *p = parts(1);
    T_OK(eb_subscribe(bus, "*", leaves_twice, p, NULL, &p->id));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(EB_OK, p->result);
    T_IS(EB_ERR_NOT_FOUND, eb_unsubscribe(bus, p->id.str));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(1, trace.calls);
    eb_destroy(bus);
    PASS();
}

/* ---- nobody wants it ------------------------------------------------------------------------- */

/* Entries of the log that are no failed attempt, from WARN up. */
static int said(t_log *log)
{
    int i, n = 0;
    sqlite3_mutex_enter(log->mutex);
    for (i = 0; i < log->count && i < 256; i++)
        n += log->items[i].attempt == 0 && log->items[i].level <= EB_LOG_WARN;
    sqlite3_mutex_leave(log->mutex);
    return n;
}

static t_log heard;

TEST unmatched_event_is_done_and_stays_so(void)
{
    eb_options o = t_options(t_path("done"));
    eb_bus *bus;
    part *p = parts(2);
    eb_event_list list;
    eb_id id, posted;
    int64_t begin;
    o.on_unmatched = EB_UNMATCHED_DONE;
    o.idle_poll_ms = 2 * P_SLACK_MS; /* nothing here may have to wait for that */
    o.logger = t_logger(&heard);
    bus = t_open(&o);
    T_OK(sub(bus, "other", &p[0]));
    T_OK(eb_start(bus));
    begin = p_ms();
    T_OK(eb_publish(bus, "x", "7", &id));
    P_WITHIN(0, P_SLACK_MS, p_ms() - begin);
    posted = t_post(bus, "x", NULL);
    T_OK(t_settle(bus));
    T_OK(eb_get(eb_bus_store(bus), id.str, &list));
    T_EQ(EB_DONE, list.items[0].status);
    T_EQ(0, list.items[0].retry_count);
    ASSERT(list.items[0].last_error == NULL);
    ASSERT_STR_EQ("7", list.items[0].payload); /* it is in the log */
    eb_event_list_free(&list);
    T_STATUS(EB_DONE, bus, posted);
    T_OK(sub(bus, "*", &p[1]));
    T_OK(t_settle(bus));
    T_EQ(0, trace.calls);
    T_EQ(1, heard.count); /* not in silence: once for the type */
    T_EQ(EB_LOG_WARN, heard.items[0].level);
    ASSERT_STR_EQ("x", heard.items[0].type);
    T_EQ(2, t_stats(bus).unmatched);
    eb_destroy(bus);
    PASS();
}

/* "No handler" is one failed attempt, and logged like every other. */
TEST unmatched_event_is_dead_with_a_reason(void)
{
    eb_options o = t_options(t_path("dlq"));
    eb_bus *bus;
    eb_id id, posted;
    int64_t begin;
    char text[200];
    parts(0);
    o.on_unmatched = EB_UNMATCHED_DLQ;
    o.idle_poll_ms = 2 * P_SLACK_MS;
    o.logger = t_logger(&heard);
    bus = t_open(&o);
    T_OK(eb_start(bus));
    begin = p_ms();
    T_IS(EB_DEAD, eb_publish(bus, "x", NULL, &id));
    P_WITHIN(0, P_SLACK_MS, p_ms() - begin);
    T_STATUS(EB_DLQ, bus, id);
    T_EQ(1, t_failures(eb_bus_store(bus), id.str, 0, text, sizeof text));
    ASSERT(strstr(text, "handler") != NULL);
    posted = t_post(bus, "x", NULL);
    T_OK(t_settle(bus));
    T_IS(EB_DEAD, eb_wait(bus, posted.str, 0));
    T_EQ(2, t_stats(bus).dlq);
    T_EQ(2, t_log_attempts(&heard));
    T_EQ(1, heard.items[0].attempt);
    T_EQ(-1, heard.items[0].next_delay_ms);
    ASSERT_STR_EQ(id.str, heard.items[0].event_id);
    ASSERT_STR_EQ("x", heard.items[0].type);
    ASSERT(strstr(heard.items[0].error, "handler") != NULL);
    eb_destroy(bus);
    PASS();
}

TEST kept_events_wait_for_somebody_who_matches(void)
{
    eb_options o = t_options(t_path("keep"));
    eb_bus *bus;
    part *p = parts(3);
    eb_id first, second, other;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    o.logger = t_logger(&heard);
    bus = t_open(&o);
    T_OK(sub(bus, "z", &p[0]));
    T_OK(eb_start(bus));
    first = t_post(bus, "x.1", NULL);
    other = t_post(bus, "y", NULL);
    second = t_post(bus, "x.2", NULL);
    T_OK(t_settle(bus)); /* they do not count */
    T_STATUS(EB_PENDING, bus, first);
    T_STATUS(EB_PENDING, bus, second);
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, first.str, 0));
    T_EQ(1, said(&heard));
    T_OK(eb_publish(bus, "z", NULL, NULL)); /* and are in nobody's way */
    T_OK(sub(bus, "x.*", &p[1]));
    T_OK(eb_wait(bus, second.str, 20000));
    T_OK(eb_wait(bus, first.str, 20000));
    ASSERT_STR_EQ("a1 b1 b1 ", trace.text);
    T_EQ(0, t_failures(eb_bus_store(bus), first.str, -1, NULL, 0));
    T_OK(t_settle(bus));
    T_STATUS(EB_PENDING, bus, other);
    T_OK(sub(bus, "*", &p[2]));
    T_OK(eb_wait(bus, other.str, 20000));
    ASSERT_STR_EQ("a1 b1 b1 c1 ", trace.text);
    T_EQ(1, said(&heard));
    T_EQ(0, t_log_attempts(&heard));
    eb_destroy(bus);
    PASS();
}

/* Handlers may be late at a start: what lies on disk is never done away with for want of one. */
TEST what_is_found_on_disk_stays_pending_and_is_logged_once(int on_unmatched)
{
    enum { N = 40 };
    const char *path = t_path("found");
    eb_options o = t_options(path);
    eb_bus *bus;
    eb_stats stats;
    part *p = parts(2);
    char type[20];
    int i, round;
    o.on_unmatched = on_unmatched;
    o.logger = t_logger(&heard);
    bus = t_open(&o);
    for (i = 0; i < N; i++) {
        snprintf(type, sizeof type, "type.%d", i);
        t_post(bus, type, NULL); /* before eb_start */
    }
    for (round = 0; round < 2; round++) {
        if (round > 0) { /* and the same at the next start */
            eb_destroy(bus);
            o.logger = t_logger(&heard);
            bus = t_open(&o);
        }
        T_OK(eb_start(bus));
        T_OK(t_settle(bus));
        stats = t_stats(bus);
        T_EQ(N, stats.pending);
        T_EQ(0, stats.done + stats.dlq + stats.processing);
        T_EQ(1, said(&heard)); /* not once for each event */
    }
    T_EQ(0, t_log_attempts(&heard));
    T_OK(sub(bus, "type.7", &p[0]));
    T_OK(t_settle(bus));
    ASSERT_STR_EQ("a1 ", trace.text);
    T_OK(sub(bus, "*", &p[1]));
    T_OK(t_settle(bus));
    T_EQ(N, trace.calls);
    T_ROWS(N, path, "status = 'done' AND retry_count = 0");
    T_EQ(1, said(&heard));
    eb_destroy(bus);
    PASS();
}

/* An operator's wish is not done away with either. */
TEST retried_dead_letter_that_nobody_matches_stays_pending(int on_unmatched)
{
    part *p = parts(2);
    eb_bus *bus = on_stage(t_path("retried"), on_unmatched, p, 1);
    eb_id id;
    p[0].reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "x", NULL, &id));
    T_OK(eb_unsubscribe(bus, p[0].id.str));
    T_OK(eb_dlq_retry(eb_bus_store(bus), id.str, NULL));
    T_OK(t_settle(bus));
    T_STATUS(EB_PENDING, bus, id);
    T_EQ(0, t_failures(eb_bus_store(bus), id.str, -1, NULL, 0));
    T_OK(sub(bus, "x", &p[1]));
    T_OK(eb_wait(bus, id.str, 20000));
    ASSERT_STR_EQ("a1 b1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

/* Somebody matched when it was published, nobody when its turn came, nobody ever tried it. */
TEST handler_that_leaves_before_the_next_event_leaves_it_to_the_policy(int on_unmatched)
{
    static const int end[] = {EB_DONE, EB_DLQ, EB_PENDING};
    const char *path = t_path("left");
    eb_options o = t_options(path);
    eb_bus *bus;
    part *p = parts(1);
    eb_message m[20];
    eb_id ids[20];
    int i;
    o.on_unmatched = on_unmatched;
    bus = t_open(&o);
    memset(m, 0, sizeof m);
    for (i = 0; i < 20; i++) m[i].type = "x";
    p->unsub = p->id.str;
    T_OK(sub(bus, "*", p));
    T_OK(eb_start(bus));
    T_OK(eb_send(bus, m, 20, ids));
    T_OK(t_settle(bus));
    ASSERT_STR_EQ("a1 ", trace.text);
    T_STATUS(EB_DONE, bus, ids[0]);
    for (i = 1; i < 20; i++) T_STATUS(end[on_unmatched], bus, ids[i]);
    eb_destroy(bus);
    PASS();
}

/* A delayed event meets the handlers of its hour, not those of its birth. */
TEST delayed_event_meets_the_handlers_of_its_hour(void)
{
    eb_bus *bus = t_bus(t_path("delayed"));
    part *p = parts(1);
    eb_message m = t_message("x", NULL);
    eb_id id;
    m.delay_ms = 150;
    T_OK(eb_start(bus));
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(sub(bus, "x", p));
    T_OK(eb_wait(bus, id.str, 20000));
    ASSERT_STR_EQ("a1 ", trace.text);
    eb_destroy(bus);
    PASS();
}

SUITE(subscribe)
{
    int policy;
    RUN_TEST(patterns_follow_the_rules_of_types_and_may_have_stars);
    RUN_TEST(handler_is_required);
    RUN_TEST(options_of_a_later_version_are_refused);
    RUN_TEST(numbers_that_make_no_sense_are_refused);
    RUN_TEST(everything_is_copied_before_the_call_returns);
    RUN_TEST(handlers_run_in_order_of_subscribing);
    RUN_TEST(first_failure_ends_the_attempt_and_the_next_one_runs_all_again);
    RUN_TEST(rejecting_handler_ends_it_for_all);
    RUN_TEST(failing_handler_brings_its_own_limit);
    RUN_TEST(overlapping_patterns_call_exactly_those_that_match);
    RUN_TEST(same_handler_may_be_subscribed_twice);
    RUN_TEST(rows_show_who_is_subscribed);
    RUN_TEST(next_owner_removes_the_rows_of_the_dead);
    RUN_TEST(unsubscribing_what_is_no_subscription_is_not_found);
    RUN_TEST(handler_may_subscribe_another);
    RUN_TEST(handler_may_unsubscribe_itself_and_its_success_counts);
    RUN_TEST(handler_may_unsubscribe_one_whose_turn_would_come);
    RUN_TEST(handler_may_unsubscribe_one_that_has_had_its_turn);
    RUN_TEST(of_two_that_unsubscribe_each_other_the_first_stays);
    RUN_TEST(unsubscribing_inside_takes_effect_at_once);
    RUN_TEST(unmatched_event_is_done_and_stays_so);
    RUN_TEST(unmatched_event_is_dead_with_a_reason);
    RUN_TEST(kept_events_wait_for_somebody_who_matches);
    RUN_TEST(delayed_event_meets_the_handlers_of_its_hour);
    for (policy = EB_UNMATCHED_DONE; policy <= EB_UNMATCHED_KEEP; policy++) {
        RUN_TESTp(handler_that_leaves_and_fails_does_not_lose_the_event, policy);
        RUN_TESTp(handler_that_leaves_and_snoozes_does_not_lose_the_event, policy);
        RUN_TESTp(what_is_found_on_disk_stays_pending_and_is_logged_once, policy);
        RUN_TESTp(retried_dead_letter_that_nobody_matches_stays_pending, policy);
        RUN_TESTp(handler_that_leaves_before_the_next_event_leaves_it_to_the_policy, policy);
    }
}

#ifndef EB_NO_THREADS
/* ---- calls that run meanwhile ---------------------------------------------------------------- */

static struct {
    eb_id id[2];
    int inside, release, returned, ended, saw, result[2];
} race;

static eb_result blocks(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_add(&race.inside, 1);
    p_until(&race.release, 1);
    p_set(&race.returned, 1);
    return EB_OK;
}

static void *pumps(void *arg)
{
    T_DO(eb_pump((eb_bus *)arg, EB_NONE, NULL));
    return NULL;
}

static void *unsubscribes(void *arg)
{
    race.result[0] = (int)eb_unsubscribe((eb_bus *)arg, race.id[0].str);
    p_set(&race.saw, p_get(&race.returned));
    p_set(&race.ended, 1);
    return NULL;
}

/* test_threads.c says the same of worker threads. */
TEST unsubscribe_waits_for_a_call_that_another_thread_pumps(void)
{
    const char *path = t_path("waits");
    eb_options o = t_options(path);
    pthread_t pumper, leaver;
    eb_bus *bus;
    memset(&race, 0, sizeof race);
    o.workers = EB_NONE;
    bus = t_open(&o);
    T_OK(eb_subscribe(bus, "x", blocks, NULL, NULL, &race.id[0]));
    T_OK(eb_start(bus));
    t_post(bus, "x", NULL);
    pumper = p_go(pumps, bus);
    P_EVENTUALLY(p_get(&race.inside));
    leaver = p_go(unsubscribes, bus);
    P_EVENTUALLY(sub_rows(path) == 0); /* now it only waits for the call */
    p_nap(50);                         /* time for a wrong one to return */
    T_EQ(0, p_get(&race.ended));
    p_set(&race.release, 1);
    p_join(leaver);
    p_join(pumper);
    T_EQ(EB_OK, race.result[0]);
    T_EQ(1, p_get(&race.saw)); /* the handler had returned before eb_unsubscribe did */
    t_post(bus, "x", NULL);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(1, p_get(&race.inside));
    T_ROWS(2, path, "status = 'done'");
    eb_destroy(bus);
    PASS();
}

/* Handler 0 runs with event 1, handler 1 with event 2, both at once: then each ends the other. */
static eb_result ends_the_other(eb_delivery *d, void *user)
{
    int me = *(const int *)user, event = atoi(d->event->payload);
    trace_add(me ? "b" : "a", event);
    if (me == 0 && event == 2) return EB_OK; /* on to handler 1 */
    p_add(&race.inside, 1);
    p_until(&race.inside, 2);
    race.result[me] = (int)eb_unsubscribe(d->bus, race.id[!me].str);
    return EB_OK;
}

TEST two_running_handlers_may_unsubscribe_each_other(void)
{
    static int me[2] = {0, 1};
    int round;
    for (round = 0; round < 20; round++) {
        const char *path = t_path("both");
        eb_options o = t_options(path);
        eb_bus *bus;
        memset(&race, 0, sizeof race);
        race.result[0] = race.result[1] = 99;
        parts(0);
        o.workers = 2;
        bus = t_open(&o);
        T_OK(eb_subscribe(bus, "*", ends_the_other, &me[0], NULL, &race.id[0]));
        T_OK(eb_subscribe(bus, "*", ends_the_other, &me[1], NULL, &race.id[1]));
        T_OK(eb_start(bus));
        t_post(bus, "x", "1");
        t_post(bus, "x", "2");
        T_OK(t_settle(bus));
        T_EQ(EB_OK, race.result[0]);
        T_EQ(EB_OK, race.result[1]);
        T_EQ(3, trace.calls);
        ASSERT(strstr(trace.text, "a1 ") && strstr(trace.text, "a2 ") && strstr(trace.text, "b2 "));
        T_OK(eb_publish(bus, "x", "3", NULL)); /* nobody's any more */
        T_EQ(3, trace.calls);
        T_EQ(0, sub_rows(path));
        T_ROWS(3, path, "status = 'done' AND retry_count = 0");
        eb_destroy(bus);
    }
    PASS();
}

SUITE(meanwhile)
{
    RUN_TEST(unsubscribe_waits_for_a_call_that_another_thread_pumps);
    RUN_TEST(two_running_handlers_may_unsubscribe_each_other);
}
#endif

/* ---- leaving in the middle of a batch -------------------------------------------------------- */

enum { BATCH_EVENTS = 60, BATCH_LEAVES_AT = 40 };
static struct { eb_id id; int calls, left; } batch;

static eb_result leaves_in_the_middle(eb_delivery *d, void *user)
{
    (void)user;
    if (++batch.calls == BATCH_LEAVES_AT) batch.left = eb_unsubscribe(d->bus, batch.id.str) == EB_OK;
    return EB_OK;
}

/* Quick handlers are claimed for in batches. What was claimed for the one that left goes back as if
** it had never been claimed: no attempt is spent, and the next handler gets it. */
TEST rest_of_a_batch_goes_back_untried(void)
{
    t_time time;
    eb_message m[BATCH_EVENTS];
    t_seen seen = {0};
    const char *path = t_path("batch");
    eb_options o = t_options(path);
    eb_bus *bus;
    int i;
    memset(&batch, 0, sizeof batch);
    memset(m, 0, sizeof m);
    for (i = 0; i < BATCH_EVENTS; i++) m[i].type = "x";
    o.workers = EB_NONE;
    o.clock = t_clock(&time); /* it stands still: every handler is quick */
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = t_open(&o);
    T_OK(eb_subscribe(bus, "*", leaves_in_the_middle, NULL, NULL, &batch.id));
    T_OK(eb_send(bus, m, BATCH_EVENTS, NULL));
    T_OK(eb_start(bus));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(BATCH_LEAVES_AT, batch.calls);
    T_EQ(1, batch.left);
    T_ROWS(BATCH_LEAVES_AT, path, "status = 'done'");
    T_ROWS(BATCH_EVENTS - BATCH_LEAVES_AT, path, "status = 'pending' AND retry_count = 0");
    t_subscribe(bus, "*", t_watch, &seen);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(BATCH_EVENTS - BATCH_LEAVES_AT, seen.calls);
    T_EQ(1, seen.attempt);
    T_ROWS(BATCH_EVENTS, path, "status = 'done' AND retry_count = 0");
    eb_destroy(bus);
    PASS();
}

SUITE(batches) { RUN_TEST(rest_of_a_batch_goes_back_untried); }

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    T_RUN_BOTH(subscribe);
    RUN_SUITE(batches);
#ifndef EB_NO_THREADS
    t_pump_mode = 0;
    RUN_SUITE(meanwhile);
#endif
    GREATEST_MAIN_END();
}
