/* test_misuse.c - what a host program does wrong: fork, NULL, closing twice or the wrong thing,
** options and keys that are out of range, destroying the bus from inside a handler. */
#include "proc.h"

static t_seen seen;

/* ---- fork ------------------------------------------------------------------------------------ */

#ifndef _WIN32
/* Runs in the forked child: the number of the first call that did something else, 0 if none did. */
static int calls_after_fork(eb_bus *bus, eb_store *store, const char *event, const char *sub)
{
    eb_event_list list;
    eb_message m = t_message("x", NULL);
    eb_stats stats;
    eb_id id;
    int64_t n;
    int at = 0;
#define FORKED(expr)                                                                               \
    do {                                                                                           \
        at++;                                                                                      \
        if ((expr) != EB_ERR_FORK) {                                                               \
            fprintf(stderr, "\nin the child: %s\n", #expr);                                        \
            return at;                                                                             \
        }                                                                                          \
    } while (0)
    FORKED(eb_start(bus));
    FORKED(eb_pump(bus, 0, &n));
    FORKED(eb_drain(bus, 0));
    FORKED(eb_publish(bus, "x", NULL, &id));
    FORKED(eb_post(bus, "x", NULL, &id));
    FORKED(eb_send(bus, &m, 1, &id));
    FORKED(eb_wait(bus, event, 0));
    FORKED(eb_subscribe(bus, "*", t_watch, &seen, NULL, &id));
    FORKED(eb_unsubscribe(bus, sub));
    FORKED(eb_get(store, event, &list));
    FORKED(eb_log_read(store, NULL, &list));
    FORKED(eb_dlq_list(store, NULL, &list));
    FORKED(eb_dlq_retry(store, event, NULL));
    FORKED(eb_dlq_retry_all(store, NULL, &n));
    FORKED(eb_dlq_purge(store, 0, &n));
    FORKED(eb_dlq_purge_dead(store, 0, &n));
    FORKED(eb_dlq_move(store, event, NULL));
    FORKED(eb_stats_get(store, &stats));
    FORKED(eb_shutdown(bus));
#undef FORKED
    eb_wake(bus);
    (void)eb_bus_store(bus);
    return 0;
}

/* try path: whether this process may start. */
static int child_try(char **arg)
{
    eb_bus *bus = t_bus(arg[0]);
    p_report("start %d", (int)eb_start(bus));
    eb_destroy(bus);
    return 0;
}

TEST forked_child_gets_nothing_and_breaks_nothing(void)
{
    const char *path = t_path("fork");
    char other[440], buf[40];
    eb_options o = t_options(path);
    eb_store *store = NULL;
    eb_id event, sub;
    int round, status;
    p_child *c;
    eb_bus *bus;
    memset(&seen, 0, sizeof seen);
    t_copy(other, sizeof other, t_path("fork-own"));
    o.workers = EB_NONE;
    bus = t_open(&o);
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_subscribe(bus, "*", t_watch, &seen, NULL, &sub));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "before", NULL, &event));
    for (round = 0; round < 3; round++) {
        pid_t pid;
        fflush(NULL);
        pid = fork();
        ASSERT(pid >= 0);
        if (pid == 0) {
            int bad = calls_after_fork(bus, store, event.str, sub.str);
            if (!bad && calls_after_fork(bus, eb_bus_store(bus), event.str, sub.str)) bad = 50;
            eb_store_close(store);
            eb_destroy(bus);
            if (!bad && round == 2) { /* a bus of its own is fine, on a file of its own */
                eb_bus *mine = NULL;
                o.path = other;
                if (eb_open(&mine, &o) != EB_OK || eb_start(mine) != EB_OK ||
                    eb_publish(mine, "x", NULL, NULL) != EB_OK)
                    bad = 60;
                eb_destroy(mine);
            }
            _exit(bad);
        }
        ASSERT_EQ(pid, waitpid(pid, &status, 0));
        ASSERT(WIFEXITED(status));
        T_EQ(0, WEXITSTATUS(status));
        T_OK(eb_publish(bus, "after", NULL, NULL)); /* the parent goes on */
        T_EQ(2 + round, p_get(&seen.calls));
    }
    c = p_spawn("try", path, NULL); /* and is still the owner */
    P_HEAR(c, "start -10");
    P_ENDS_CLEANLY(c);
    T_EQ(EB_DONE, t_status(store, event.str));
    eb_store_close(store);
    eb_destroy(bus);
    T_ROWS(4, path, "status = 'done' AND retry_count = 0");
    T_EQ(4, t_stored(path));
    T_ROWS(1, other, "status = 'done'");
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", buf, sizeof buf));
    PASS();
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define T_TSAN 1
#endif
#endif
#ifndef T_TSAN
#define T_TSAN 0
#endif

/* A handler forks, and its child comes back from it, as after an exec that failed. */
static struct { int calls, in_child, status; eb_result answer; } forker;

static void leave(void) { _exit(0); }

static eb_result fork_and_return(eb_delivery *d, void *user)
{
    pid_t pid;
    (void)user;
    if (forker.calls++ > 0) return EB_OK;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        atexit(leave); /* a worker's child ends when its thread does */
        forker.in_child = 1;
        forker.answer = eb_reject(d, "exec failed");
        if (eb_snooze(d, 1) != forker.answer || eb_fail(d, "no") != forker.answer) _exit(2);
        return forker.answer;
    }
    if (pid < 0 || waitpid(pid, &forker.status, 0) != pid) forker.status = -1;
    return EB_OK;
}

enum { BY_PUMP, BY_PUBLISH, BY_WAIT, BY_DRAIN, BY_WORKER };

TEST child_that_returns_from_a_handler_touches_nothing(int how)
{
    const char *path = t_path("fork-inside");
    eb_options o = t_options(path);
    eb_result rc = EB_OK;
    eb_id id;
    eb_bus *bus;
    int i;
    memset(&forker, 0, sizeof forker);
    o.workers = how == BY_WORKER ? 1 : EB_NONE;
    bus = t_open(&o);
    t_subscribe(bus, "a", fork_and_return, NULL);
    for (i = 0; i < 5; i++) T_OK(eb_post(bus, "a", NULL, &id));
    T_OK(eb_start(bus));
    if (how == BY_PUMP) rc = eb_pump(bus, EB_NONE, NULL);
    if (how == BY_PUBLISH) rc = eb_publish(bus, "a", NULL, NULL);
    if (how == BY_WAIT) rc = eb_wait(bus, id.str, 20000);
    if (how == BY_DRAIN) rc = eb_drain(bus, 20000);
    if (forker.in_child) {
        i = rc == EB_ERR_FORK && forker.answer == EB_ERR_FORK && forker.calls == 1 &&
            eb_post(bus, "a", NULL, NULL) == EB_ERR_FORK;
        eb_destroy(bus);
        _exit(i ? 0 : 1);
    }
    T_OK(rc);
    T_OK(t_settle(bus));
    ASSERT_EQ(0, forker.status);
    eb_destroy(bus);
    T_EQ(how == BY_PUBLISH ? 6 : 5, forker.calls);
    T_ROWS(forker.calls, path, "status = 'done' AND retry_count = 0");
    T_EQ(forker.calls, t_stored(path));
    PASS();
}
#endif

/* ---- NULL ------------------------------------------------------------------------------------ */

TEST null_bus_is_a_wrong_argument(void)
{
    eb_options o = t_options(t_path("null"));
    eb_bus *bus = (eb_bus *)&o;
    eb_message m = t_message("x", NULL);
    int64_t n;
    eb_id id;
    T_IS(EB_ERR_ARG, eb_open(NULL, &o));
    T_IS(EB_ERR_ARG, eb_open(&bus, NULL));
    ASSERT_EQ(NULL, bus);
    bus = (eb_bus *)&o;
    o.path = NULL;
    T_IS(EB_ERR_ARG, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    bus = (eb_bus *)&o;
    o.path = "";
    T_IS(EB_ERR_ARG, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    T_IS(EB_ERR_ARG, eb_start(NULL));
    T_IS(EB_ERR_ARG, eb_pump(NULL, 0, &n));
    T_IS(EB_ERR_ARG, eb_drain(NULL, 0));
    T_IS(EB_ERR_ARG, eb_shutdown(NULL));
    T_IS(EB_ERR_ARG, eb_publish(NULL, "x", NULL, &id));
    T_IS(EB_ERR_ARG, eb_post(NULL, "x", NULL, &id));
    T_IS(EB_ERR_ARG, eb_send(NULL, &m, 1, &id));
    T_IS(EB_ERR_ARG, eb_wait(NULL, "x", 0));
    T_IS(EB_ERR_ARG, eb_subscribe(NULL, "*", t_watch, &seen, NULL, &id));
    T_IS(EB_ERR_ARG, eb_unsubscribe(NULL, "x"));
    ASSERT_EQ(NULL, eb_bus_store(NULL));
    eb_wake(NULL);
    eb_destroy(NULL);
    PASS();
}

TEST null_store_is_a_wrong_argument(void)
{
    eb_options o = t_options(t_path("null-store"));
    eb_store *store = (eb_store *)&o;
    eb_event_list list;
    eb_stats stats;
    int64_t n;
    T_IS(EB_ERR_ARG, eb_store_open(NULL, &o));
    T_IS(EB_ERR_ARG, eb_store_open(&store, NULL));
    ASSERT_EQ(NULL, store);
    memset(&list, 0x55, sizeof list);
    T_IS(EB_ERR_ARG, eb_get(NULL, "x", &list));
    T_EQ(0, list.count); /* on failure the list is empty, so freeing it is fine */
    eb_event_list_free(&list);
    memset(&list, 0x55, sizeof list);
    T_IS(EB_ERR_ARG, eb_log_read(NULL, NULL, &list));
    eb_event_list_free(&list);
    memset(&list, 0x55, sizeof list);
    T_IS(EB_ERR_ARG, eb_dlq_list(NULL, NULL, &list));
    eb_event_list_free(&list);
    T_IS(EB_ERR_ARG, eb_dlq_retry(NULL, "x", NULL));
    T_IS(EB_ERR_ARG, eb_dlq_retry_all(NULL, NULL, &n));
    T_IS(EB_ERR_ARG, eb_dlq_purge(NULL, 1, &n));
    T_IS(EB_ERR_ARG, eb_dlq_purge_dead(NULL, 1, &n));
    T_IS(EB_ERR_ARG, eb_dlq_move(NULL, "x", NULL));
    T_IS(EB_ERR_ARG, eb_stats_get(NULL, &stats));
    eb_store_close(NULL);
    PASS();
}

TEST null_delivery_is_a_wrong_argument(void)
{
    T_IS(EB_ERR_ARG, eb_fail(NULL, "x"));
    T_IS(EB_ERR_ARG, eb_reject(NULL, "x"));
    T_IS(EB_ERR_ARG, eb_snooze(NULL, 1));
    T_IS(EB_ERR_ARG, eb_extend(NULL, 1));
    (void)eb_cancelled(NULL);
    PASS();
}

TEST other_nulls_are_refused_or_mean_nothing(void)
{
    const char *path = t_path("nulls");
    eb_options o = t_options(path);
    eb_message m = {0};
    eb_store *store;
    eb_result rc;
    eb_event_list list;
    eb_bus *bus;
    o.workers = EB_NONE;
    bus = t_open(&o);
    store = eb_bus_store(bus);
    T_IS(EB_ERR_ARG, eb_post(bus, NULL, NULL, NULL));
    T_IS(EB_ERR_ARG, eb_publish(bus, NULL, NULL, NULL));
    T_IS(EB_ERR_ARG, eb_send(bus, NULL, 1, NULL));
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL)); /* its type is NULL */
    T_OK(eb_send(bus, NULL, 0, NULL));
    T_IS(EB_ERR_ARG, eb_subscribe(bus, NULL, t_watch, &seen, NULL, NULL));
    T_IS(EB_ERR_ARG, eb_subscribe(bus, "*", NULL, &seen, NULL, NULL));
    t_subscribe(bus, "*", t_watch, &seen);
    rc = eb_unsubscribe(bus, NULL);
    ASSERT(rc == EB_ERR_ARG || rc == EB_ERR_NOT_FOUND);
    rc = eb_get(store, NULL, &list);
    ASSERT(rc == EB_ERR_ARG || rc == EB_ERR_NOT_FOUND);
    eb_event_list_free(&list);
    T_IS(EB_ERR_NOT_FOUND, eb_get(store, "no id", &list));
    eb_event_list_free(&list);
    T_IS(EB_ERR_NOT_FOUND, eb_get(store, "", &list));
    eb_event_list_free(&list);
    T_IS(EB_ERR_ARG, eb_get(store, "no id", NULL));
    T_IS(EB_ERR_ARG, eb_log_read(store, NULL, NULL));
    T_IS(EB_ERR_ARG, eb_dlq_list(store, NULL, NULL));
    T_IS(EB_ERR_ARG, eb_stats_get(store, NULL));
    T_OK(eb_dlq_retry_all(store, NULL, NULL));
    T_OK(eb_dlq_purge(store, 1, NULL));
    t_post(bus, "x", NULL); /* a NULL payload is the JSON null */
    T_OK(eb_start(bus));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(0, strcmp("null", seen.payload));
    T_IS(EB_ERR_STATE, eb_start(bus));
    eb_destroy(bus);
    T_EQ(1, t_stored(path));
    (void)eb_errmsg(NULL, 0);
    ASSERT_EQ(0, eb_match(NULL, "x"));
    ASSERT_EQ(0, eb_match("*", NULL));
    PASS();
}

/* ---- closing --------------------------------------------------------------------------------- */

TEST closing_the_store_of_a_bus_is_harmless(void)
{
    const char *path = t_path("close");
    eb_stats stats;
    eb_bus *bus = t_bus(path);
    eb_store *store = eb_bus_store(bus);
    ASSERT(store != NULL);
    eb_store_close(store);
    eb_store_close(store);
    ASSERT_EQ(store, eb_bus_store(bus));
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_OK(eb_stats_get(store, &stats));
    T_EQ(1, stats.done);
    eb_store_close(store);
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done'");
    PASS();
}

TEST store_outlives_the_bus_it_was_opened_beside(void)
{
    eb_options o = t_options(t_path("outlives"));
    eb_store *store = NULL, *second = NULL;
    eb_event_list list;
    eb_bus *bus = t_open(&o);
    t_post(bus, "x", NULL);
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_store_open(&second, &o));
    eb_destroy(bus);
    eb_store_close(second);
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(1, list.count);
    eb_store_close(store);
    ASSERT_STR_EQ("x", list.items[0].type); /* a list is the caller's own */
    eb_event_list_free(&list);
    PASS();
}

TEST list_may_be_freed_twice(void)
{
    eb_event_list list;
    eb_bus *bus = t_bus(t_path("list"));
    t_post(bus, "x", NULL);
    memset(&list, 0, sizeof list);
    eb_event_list_free(&list); /* zeroed */
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &list));
    T_EQ(1, list.count);
    eb_event_list_free(&list);
    T_EQ(0, list.count);
    ASSERT_EQ(NULL, list.items);
    eb_event_list_free(&list);
    eb_event_list_free(NULL);
    T_OK(eb_dlq_list(eb_bus_store(bus), NULL, &list)); /* empty */
    T_EQ(0, list.count);
    eb_event_list_free(&list);
    eb_event_list_free(&list);
    eb_destroy(bus);
    PASS();
}

/* ---- options and messages that are out of range ---------------------------------------------- */

static char long_name[300];

/* Makes the n-th mistake; 0: there are fewer. */
static int wrong_option(int n, eb_options *o)
{
    switch (n) {
    case 0: o->workers = -2; return 1;
    case 1: o->workers = 1025; return 1;
    case 2: o->durability = -1; return 1;
    case 3: o->durability = EB_DURABLE_OFF + 1; return 1;
    case 4: o->on_unmatched = -1; return 1;
    case 5: o->on_unmatched = EB_UNMATCHED_KEEP + 1; return 1;
    case 6: o->shared = 1; return 1;
    case 7: o->lease_ms = 1; return 1; /* of later versions: all of them are in test_callbacks.c */
    case 8: o->wal_pages = -2; return 1;
    case 9: o->max_pending = -2; return 1;
    case 10: o->node_id = ""; return 1;
    case 11: o->node_id = "two words"; return 1;
    case 12: o->node_name = long_name; return 1;
    case 13: o->handler_timeout_ms = -2; return 1;
    case 14: o->shutdown_timeout_ms = -2; return 1;
    case 15: o->idle_poll_ms = -2; return 1;
    case 16: o->busy_timeout_ms = -2; return 1;
    case 17: o->retry.max_retries = -2; return 1;
    case 18: o->clock.now_ms = t_now; return 1;
    case 19: {
        static t_time time;
        o->clock = t_clock(&time);
        o->workers = 1;
        return 1;
    }
    case 20: o->ns = "no spaces"; return 1;
    case 21: o->vfs = "no such vfs"; return 1;
    default: return 0;
    }
}

TEST options_out_of_range_are_refused(void)
{
    eb_options good = t_options(t_path("options")), o;
    eb_bus *bus = NULL;
    char msg[300];
    int n;
    memset(long_name, 'n', sizeof long_name - 1);
    good.workers = EB_NONE;
    for (n = 0;; n++) {
        o = good;
        if (!wrong_option(n, &o)) break;
        T_IS(EB_ERR_ARG, eb_open(&bus, &o));
        ASSERT_EQ(NULL, bus);
        P_WITHIN(10, sizeof msg - 1, eb_errmsg(msg, sizeof msg));
    }
    T_EQ(22, n);
    o = good; /* the largest and smallest that are none */
    o.workers = EB_NONE;
    o.durability = EB_DURABLE_OFF;
    o.wal_pages = EB_NONE;
    o.max_pending = o.idle_poll_ms = o.busy_timeout_ms = EB_NONE;
    o.max_payload_bytes = SIZE_MAX;
    long_name[255] = 0;
    o.node_id = o.node_name = long_name;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    eb_destroy(bus);
    PASS();
}

TEST message_keys_out_of_range_are_refused(void)
{
    static const char *const wrong[] = {"", "two words", "tab\t", "\x7f", "\xC3", "\xC2\x85"};
    eb_options o = t_options(t_path("keys"));
    eb_bus *bus = t_open(&o);
    eb_message m[2];
    size_t i;
    memset(m, 0, sizeof m);
    m[0].type = m[1].type = "x";
    memset(long_name, 'k', sizeof long_name - 1);
    for (i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        const char *key = i < sizeof wrong / sizeof *wrong ? wrong[i] : long_name;
        m[1].ordering_key = key;
        T_IS(EB_ERR_ARG, eb_send(bus, m, 2, NULL));
        m[1].ordering_key = NULL;
        m[1].idempotency_key = key;
        T_IS(EB_ERR_ARG, eb_send(bus, m, 2, NULL));
        m[1].idempotency_key = NULL;
    }
    T_EQ(0, t_stored(o.path));
    long_name[255] = 0;
    m[1].ordering_key = m[1].idempotency_key = long_name;
    T_OK(eb_send(bus, m, 2, NULL));
    T_EQ(2, t_stored(o.path));
    eb_destroy(bus);
    PASS();
}

/* ---- calls inside a handler that neither test_inspector nor test_pump tries ------------------- */

static struct { eb_result start, wait, open, post, store_open, stats; char path[512]; } within;

static eb_result opens_and_waits(eb_delivery *d, void *user)
{
    eb_options o = t_options(within.path), same = t_options((const char *)user);
    eb_bus *other = NULL;
    eb_store *store = NULL;
    eb_stats stats;
    within.start = eb_start(d->bus);
    within.wait = eb_wait(d->bus, d->event->id.str, 1000);
    within.open = eb_open(&other, &o);
    within.post = eb_post(other, "x", NULL, NULL);
    eb_destroy(other);
    within.store_open = eb_store_open(&store, &same);
    within.stats = eb_stats_get(store, &stats);
    eb_store_close(store);
    return EB_OK;
}

TEST opening_is_fine_inside_a_handler_and_waiting_is_not(int workers)
{
    char path[512];
    eb_options o;
    eb_bus *bus;
    t_copy(path, sizeof path, t_path("within"));
    t_copy(within.path, sizeof within.path, t_path("within-other"));
    o = t_options(path);
    o.workers = workers;
    bus = t_run_with(&o, "a", opens_and_waits, path);
    T_OK(eb_publish(bus, "a", NULL, NULL));
    T_IS(EB_ERR_STATE, within.start);
    T_IS(EB_ERR_STATE, within.wait);
    T_OK(within.open);
    T_OK(within.post);
    T_OK(within.store_open);
    T_OK(within.stats);
    eb_destroy(bus);
    T_EQ(1, t_stored(within.path));
    PASS();
}

/* Forbidden, but nothing is freed under the handler's feet: it is a shutdown that says so. */
/* ---- destroying from inside ------------------------------------------------------------------ */

static eb_result destroys(eb_delivery *d, void *user)
{
    (void)user;
    eb_destroy(d->bus);
    return d->event ? EB_OK : EB_FAILED;
}

TEST destroy_inside_a_handler_only_shuts_down(int workers)
{
    static t_log log;
    eb_options o = t_options(t_path("inside"));
    int i, said = 0;
    eb_bus *bus;
    o.workers = workers;
    o.logger = t_logger(&log);
    bus = t_run_with(&o, "*", destroys, NULL);
    t_post(bus, "x", NULL);
    if (workers == EB_NONE) T_OK(eb_pump(bus, EB_NONE, NULL));
    P_EVENTUALLY(eb_post(bus, "y", NULL, NULL) == EB_ERR_SHUTDOWN);
    T_OK(eb_shutdown(bus));
    for (i = 0; i < log.count && i < 256; i++)
        said += strstr(log.items[i].message, "eb_destroy") != NULL;
    T_EQ(1, said);
    eb_destroy(bus);
    T_ROWS(1, o.path, "status = 'done' AND type = 'x'");
    PASS();
}

SUITE(misuse)
{
#ifndef _WIN32
    static const char *const how[] = {"pump", "publish", "wait", "drain", "worker"};
    int i;
    RUN_TEST(forked_child_gets_nothing_and_breaks_nothing); /* first: no thread was made yet */
    for (i = 0; i < 5 - T_TSAN; i++) { /* TSan itself does not survive the end of that thread */
        greatest_set_test_suffix(how[i]);
        RUN_TEST1(child_that_returns_from_a_handler_touches_nothing, i);
    }
#endif
    RUN_TEST(null_bus_is_a_wrong_argument);
    RUN_TEST(null_store_is_a_wrong_argument);
    RUN_TEST(null_delivery_is_a_wrong_argument);
    RUN_TEST(other_nulls_are_refused_or_mean_nothing);
    RUN_TEST(closing_the_store_of_a_bus_is_harmless);
    RUN_TEST(store_outlives_the_bus_it_was_opened_beside);
    RUN_TEST(list_may_be_freed_twice);
    RUN_TEST(options_out_of_range_are_refused);
    RUN_TEST(message_keys_out_of_range_are_refused);
    RUN_TESTp(opening_is_fine_inside_a_handler_and_waiting_is_not, EB_NONE);
    RUN_TESTp(opening_is_fine_inside_a_handler_and_waiting_is_not, 1);
    RUN_TESTp(destroy_inside_a_handler_only_shuts_down, EB_NONE);
    RUN_TESTp(destroy_inside_a_handler_only_shuts_down, 2);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
#ifndef _WIN32
    if (argc > 3 && strcmp(argv[1], "--child") == 0) {
        p_child_init();
        return strcmp(argv[2], "try") == 0 ? child_try(argv + 3) : 8;
    }
#endif
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    P_RUN(misuse);
    GREATEST_MAIN_END();
}
