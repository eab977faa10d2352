/* test_owner.c - one dispatcher per file and namespace, and what others may do beside it. */
#include "proc.h"

static t_seen seen;

/* ---- the children ---------------------------------------------------------------------------- */

static eb_result tells(eb_delivery *d, void *user)
{
    (void)user;
    p_report("got %s %d", d->event->type, d->event->retry_count);
    return EB_OK;
}

/* Fails whatever it sees, until it was told to behave. */
static int behave;
static eb_result tells_and_fails(eb_delivery *d, void *user)
{
    (void)user;
    p_report("got %s %d", d->event->type, d->event->retry_count);
    return p_get(&behave) ? EB_OK : eb_fail(d, "not yet");
}

/* Does not return before it was told to behave. */
static eb_result hangs(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_until(&behave, 1);
    return EB_OK;
}

/* own path ns idle_poll_ms handler: dispatches, and obeys. */
static int child_own(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_subscribe_options stuck = {0};
    eb_bus *bus;
    char line[100];
    o.ns = arg[1];
    o.idle_poll_ms = atoi(arg[2]);
    o.retry.max_retries = EB_NONE;
    bus = t_open(&o);
    stuck.timeout_ms = 10;
    if (strcmp(arg[3], "hang") == 0)
        T_DO(eb_subscribe(bus, "hang", hangs, NULL, &stuck, NULL));
    t_subscribe(bus, arg[3][0] == 'h' ? "fine" : "*",
                strcmp(arg[3], "fail") ? tells : tells_and_fails, NULL);
    p_report("started %d", (int)eb_start(bus));
    while (p_order(line, sizeof line)) {
        if (strcmp(line, "wake") == 0) eb_wake(bus);
        if (strcmp(line, "behave") == 0) p_set(&behave, 1);
        if (strcmp(line, "shutdown") == 0) p_report("shutdown %d", (int)eb_shutdown(bus));
    }
    eb_destroy(bus);
    return 0;
}

/* race: opens, starts and closes on command, with seven others. */
static int child_race(void)
{
    char line[420];
    eb_bus *bus = NULL;
    while (p_order(line, sizeof line)) {
        if (strncmp(line, "open ", 5) == 0) {
            eb_options o = t_options(line + 5);
            eb_result opened, posted = EB_ERR_STATE;
            o.busy_timeout_ms = P_LONG_MS;
            opened = eb_open(&bus, &o);
            if (opened == EB_OK) posted = eb_post(bus, "first", NULL, NULL);
            p_report("opened %d %d", (int)opened, (int)posted);
        } else if (strcmp(line, "start") == 0) {
            p_report("started %d", (int)eb_start(bus));
        } else if (strcmp(line, "close") == 0) {
            eb_destroy(bus);
            bus = NULL;
            p_report("closed");
        }
    }
    eb_destroy(bus);
    return 0;
}

static int child_main(const char *role, char **arg)
{
    p_child_init();
    if (strcmp(role, "own") == 0) return child_own(arg);
    if (strcmp(role, "race") == 0) return child_race();
    return 8;
}

/* ---- the second one -------------------------------------------------------------------------- */

/* Tries to start and says how long that took. */
static eb_result start_timed(eb_bus *bus, int64_t *took_ms)
{
    int64_t begin = p_ms();
    eb_result rc = eb_start(bus);
    *took_ms = p_ms() - begin;
    return rc;
}

static eb_options second_options(const char *path)
{
    eb_options o = t_options(path);
    o.busy_timeout_ms = 5000; /* EB_ERR_OWNED must not wait for it */
    memset(&seen, 0, sizeof seen);
    return o;
}

TEST second_process_is_refused_at_once_and_may_try_again(void)
{
    const char *path = t_path("second");
    eb_options o = second_options(path);
    int64_t took;
    eb_bus *bus;
    p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started 0");
    bus = t_open(&o);
    t_subscribe(bus, "mine", t_watch, &seen);
    T_IS(EB_ERR_OWNED, start_timed(bus, &took));
    ASSERT(took < 1000);
    T_IS(EB_ERR_OWNED, start_timed(bus, &took));
    ASSERT(took < 1000);
    t_post(bus, "beside", NULL); /* refused is not closed */
    P_HEAR(c, "got beside 0");
    T_EQ(0, p_get(&seen.calls));
    P_ENDS_CLEANLY(c);
    T_OK(eb_start(bus));
    t_post(bus, "mine", NULL);
    T_OK(t_settle(bus));
    T_EQ(1, p_get(&seen.calls));
    eb_destroy(bus);
    T_ROWS(2, path, "status = 'done' AND retry_count = 0");
    PASS();
}

TEST second_bus_in_the_same_process_is_refused_at_once(void)
{
    const char *path = t_path("same");
    eb_options o = second_options(path);
    eb_bus *first = t_open(&o), *second = t_open(&o);
    int64_t took;
    T_OK(eb_start(first));
    T_IS(EB_ERR_OWNED, start_timed(second, &took));
    ASSERT(took < 1000);
    eb_destroy(second); /* and that takes nothing from the first */
    second = t_open(&o);
    T_IS(EB_ERR_OWNED, eb_start(second));
    eb_destroy(second);
    eb_destroy(first);
    PASS();
}

TEST bus_without_threads_owns_too(void)
{
    const char *path = t_path("pump");
    eb_options o = second_options(path);
    eb_bus *first, *second;
    p_child *c;
    o.workers = EB_NONE;
    first = t_open(&o);
    second = t_open(&o);
    T_OK(eb_start(first));
    T_IS(EB_ERR_OWNED, eb_start(second));
    c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started -10");
    P_ENDS_CLEANLY(c);
    eb_destroy(first);
    T_OK(eb_start(second));
    eb_destroy(second);
    PASS();
}

TEST another_spelling_of_the_path_is_the_same_file(void)
{
    const char *path = t_path("spelling");
    char dotted[440], linked[440], dir[400];
    eb_options o = second_options(path);
    eb_bus *first = t_open(&o), *second;
    T_OK(eb_start(first));
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = 0;
    snprintf(dotted, sizeof dotted, "%s/.//%s", dir, strrchr(path, '/') + 1);
    o.path = dotted;
    second = t_open(&o);
    T_IS(EB_ERR_OWNED, eb_start(second));
    eb_destroy(second);
    snprintf(linked, sizeof linked, "%s-link", path);
    remove(linked);
#ifdef _WIN32 /* symbolic links are for administrators: a relative path is the other name */
    snprintf(linked, sizeof linked, "%s", strrchr(path, '/') + 1);
    T_MUST(SetCurrentDirectoryA(dir));
#else
    ASSERT_EQ(0, symlink(path, linked));
#endif
    o.path = linked;
    if (eb_open(&second, &o) == EB_OK) { /* a bus may also refuse to follow links */
        T_IS(EB_ERR_OWNED, eb_start(second));
        eb_destroy(second);
    }
#ifndef _WIN32
    remove(linked);
#endif
    eb_destroy(first);
    PASS();
}

/* ---- the next one ---------------------------------------------------------------------------- */

TEST after_kill_of_the_owner_the_next_start_succeeds_at_once(void)
{
    const char *path = t_path("killed");
    eb_options o = second_options(path);
    int64_t took;
    int round;
    for (round = 0; round < 5; round++) {
        eb_bus *bus;
        p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
        P_HEAR(c, "started 0");
        bus = t_open(&o);
        T_IS(EB_ERR_OWNED, eb_start(bus));
        ASSERT(p_is_killed(p_kill(c)));
        T_OK(start_timed(bus, &took));
        ASSERT(took < 1000);
        eb_destroy(bus);
    }
    PASS();
}

TEST stopped_owner_is_still_the_owner(void)
{
    const char *path = t_path("stopped");
    eb_options o = second_options(path);
    int64_t took;
    eb_bus *bus;
    p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started 0");
    bus = t_open(&o);
    p_stop(c, 1);
    T_IS(EB_ERR_OWNED, start_timed(bus, &took));
    ASSERT(took < 1000);
    p_stop(c, 0);
    P_ENDS_CLEANLY(c);
    T_OK(eb_start(bus));
    eb_destroy(bus);
    PASS();
}

TEST clean_shutdown_gives_the_ownership_up_before_destroy(void)
{
    const char *path = t_path("clean");
    eb_options o = second_options(path);
    eb_bus *bus, *other;
    p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started 0");
    p_tell(c, "shutdown");
    P_HEAR(c, "shutdown 0");
    bus = t_open(&o);
    T_OK(eb_start(bus)); /* the other process is still there */
    T_OK(eb_shutdown(bus));
    other = t_open(&o); /* the same within one process */
    T_OK(eb_start(other));
    eb_destroy(bus);
    bus = t_open(&o);
    T_IS(EB_ERR_OWNED, eb_start(bus)); /* closing the old one took nothing from the new one */
    eb_destroy(other);
    T_OK(eb_start(bus));
    eb_destroy(bus);
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST another_namespace_of_the_file_has_its_own_owner(void)
{
    const char *path = t_path("ns");
    eb_options o = second_options(path);
    eb_bus *billing, *plain, *again;
    p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started 0");
    o.ns = "billing";
    billing = t_run_with(&o, "*", t_watch, &seen);
    o.ns = "Billing"; /* the same one: case is folded */
    again = t_open(&o);
    T_IS(EB_ERR_OWNED, eb_start(again));
    o.ns = NULL;
    plain = t_open(&o);
    T_IS(EB_ERR_OWNED, eb_start(plain));
    T_OK(eb_publish(billing, "invoice", NULL, NULL));
    t_post(plain, "hello", NULL);
    P_HEAR(c, "got hello 0"); /* and nothing of billing came before it */
    T_EQ(1, p_get(&seen.calls));
    ASSERT_STR_EQ("invoice", seen.type);
    eb_destroy(again);
    eb_destroy(plain);
    eb_destroy(billing);
    P_ENDS_CLEANLY(c);
    T_EQ(1, t_stored(path));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM billing_event_log"));
    PASS();
}

/* ---- the row of the owner -------------------------------------------------------------------- */

TEST row_in_nodes_says_who_dispatches(int pump)
{
    const char *path = t_path("node");
    eb_options o = second_options(path);
    char text[100];
    eb_bus *bus, *other;
    o.workers = pump ? EB_NONE : 1;
    o.node_id = "node-7";
    o.node_name = "the one in the hall";
    bus = t_open(&o);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM nodes")); /* an open bus dispatches nothing */
    T_OK(eb_start(bus));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM nodes"));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM nodes WHERE id = 'node-7' AND name = 'the one in"
                            " the hall' AND lost_workers = 0 AND registered_at GLOB '2*T*Z'"));
    T_EQ(getpid(), t_sql_int(path, "SELECT pid FROM nodes"));
    o.node_id = "node-8";
    other = t_open(&o);
    T_IS(EB_ERR_OWNED, eb_start(other)); /* who may not dispatch leaves the row alone */
    T_SAYS("the one in the hall");
    T_SAYS("process");
    ASSERT_STR_EQ("node-7", t_sql_text(path, "SELECT id FROM nodes", text, sizeof text));
    T_OK(eb_shutdown(bus));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM nodes"));
    T_OK(eb_start(other)); /* while the first still is open */
    ASSERT_STR_EQ("node-8", t_sql_text(path, "SELECT id FROM nodes", text, sizeof text));
    eb_destroy(bus);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM nodes"));
    eb_destroy(other);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM nodes"));
    o.node_id = o.node_name = NULL;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM nodes WHERE length(id) > 0"));
    eb_destroy(bus);
    PASS();
}

TEST row_of_an_owner_that_was_killed_goes_with_the_next_start(void)
{
    const char *path = t_path("node-kill");
    eb_options o = second_options(path);
    eb_bus *bus;
    p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started 0");
    T_EQ(c->pid, t_sql_int(path, "SELECT pid FROM nodes"));
    ASSERT(p_is_killed(p_kill(c)));
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM nodes"));
    T_EQ(getpid(), t_sql_int(path, "SELECT pid FROM nodes"));
    eb_destroy(bus);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM nodes"));
    PASS();
}

/* ---- beside the owner ------------------------------------------------------------------------ */

TEST owner_finds_what_another_process_published(void)
{
    const char *path = t_path("publisher");
    eb_options o = second_options(path);
    int64_t best = P_LONG_MS;
    char line[100];
    eb_bus *bus;
    int i;
    p_child *c = p_spawn("own", path, "", "50", "ok", NULL);
    P_HEAR(c, "started 0");
    bus = t_open(&o);
    for (i = 0; i < 10 && best > 500; i++) { /* each arrives, and an undisturbed one in time */
        int64_t begin = p_ms();
        t_post(bus, "remote", NULL);
        T_EQ(1, p_hear(c, line, sizeof line));
        ASSERT_STR_EQ("got remote 0", line);
        if (p_ms() - begin < best) best = p_ms() - begin;
    }
    P_WITHIN(0, 500, best);
    eb_destroy(bus);
    P_ENDS_CLEANLY(c);
    T_ROWS(i, path, "status = 'done' AND retry_count = 0");
    PASS();
}

TEST published_before_start_waits_like_a_post(void)
{
    const char *path = t_path("publish-unstarted");
    eb_options o = second_options(path);
    eb_id id;
    eb_bus *bus = t_open(&o);
    T_OK(eb_publish(bus, "remote", NULL, &id)); /* does not wait: this process never starts */
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'pending'");
    PASS();
}

TEST wake_makes_the_owner_look_at_once(void)
{
    const char *path = t_path("wake");
    eb_options o = second_options(path);
    eb_bus *bus;
    int i;
    p_child *c = p_spawn("own", path, "", "-1", "ok", NULL); /* never looks by itself */
    P_HEAR(c, "started 0");
    bus = t_open(&o);
    for (i = 0; i < 5; i++) {
        t_post(bus, "remote", NULL);
        p_tell(c, "wake");
        P_HEAR(c, "got remote 0");
    }
    eb_destroy(bus);
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST inspector_in_another_process_retries_dead_letters(void)
{
    const char *path = t_path("inspector");
    eb_options o = second_options(path);
    eb_event_list list;
    eb_store *store = NULL;
    eb_stats stats;
    int64_t count = 0;
    char sql[200], id[40];
    eb_bus *bus;
    p_child *c = p_spawn("own", path, "", "50", "fail", NULL);
    P_HEAR(c, "started 0");
    bus = t_open(&o);
    t_post(bus, "bad", NULL);
    P_HEAR(c, "got bad 0");
    eb_destroy(bus);

    T_OK(eb_store_open(&store, &o));
    P_EVENTUALLY(eb_stats_get(store, &stats) == EB_OK && stats.dlq == 1);
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(1, list.count);
    t_copy(id, sizeof id, list.items[0].id.str);
    eb_event_list_free(&list);

    T_OK(eb_dlq_retry(store, id, NULL));
    P_HEAR(c, "got bad 0"); /* retry_count began anew */
    P_EVENTUALLY(eb_stats_get(store, &stats) == EB_OK && stats.dlq == 1);
    T_OK(eb_dlq_retry_all(store, NULL, &count));
    T_EQ(1, count);
    P_HEAR(c, "got bad 0");
    P_EVENTUALLY(eb_stats_get(store, &stats) == EB_OK && stats.dlq == 1);
    p_tell(c, "behave");
    snprintf(sql, sizeof sql, "UPDATE events SET status = 'pending' WHERE id = '%s'", id);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0)); /* an operator in the shell */
    P_HEAR(c, "got bad 0");
    for (;;) { /* "behave" may have come too late for that one */
        P_EVENTUALLY(eb_stats_get(store, &stats) == EB_OK && stats.dlq + stats.done == 1);
        if (stats.done) break;
        T_OK(eb_dlq_retry(store, id, NULL));
        P_HEAR(c, "got bad 0");
    }
    T_EQ(0, stats.dlq);
    eb_store_close(store);
    P_ENDS_CLEANLY(c);
    PASS();
}

static int64_t lost_there(eb_store *store)
{
    eb_stats stats;
    return eb_stats_get(store, &stats) == EB_OK ? stats.lost_workers : -1;
}
static int64_t paused_there(eb_store *store)
{
    eb_stats stats;
    return eb_stats_get(store, &stats) == EB_OK ? stats.paused : -1;
}

TEST stuck_handlers_of_another_process_are_seen(void)
{
    const char *path = t_path("stuck");
    eb_options o = second_options(path);
    eb_store *store = NULL;
    eb_bus *bus;
    int i;
    p_child *c = p_spawn("own", path, "", "10", "hang", NULL);
    P_HEAR(c, "started 0");
    T_OK(eb_store_open(&store, &o));
    T_EQ(0, lost_there(store));
    T_EQ(0, paused_there(store));
    bus = t_open(&o);
    for (i = 0; i < EB_LOST_MAX + 4; i++) t_post(bus, "hang", NULL);
    P_EVENTUALLY(lost_there(store) == EB_LOST_MAX);
    P_EVENTUALLY(paused_there(store) == 1);
    T_EQ(EB_LOST_MAX, t_sql_int(path, "SELECT lost_workers FROM nodes"));
    T_EQ(c->pid, t_sql_int(path, "SELECT pid FROM nodes"));
    T_EQ(1, t_sql_int(path, "SELECT paused FROM subscriptions WHERE event_type = 'hang'"));
    T_EQ(0, t_sql_int(path, "SELECT paused FROM subscriptions WHERE event_type = 'fine'"));
    t_post(bus, "fine", NULL);
    P_HEAR(c, "got fine 0"); /* the others go on */
    p_tell(c, "behave");
    P_EVENTUALLY(lost_there(store) == 0);
    P_EVENTUALLY(paused_there(store) == 0);
    T_EQ(0, t_sql_int(path, "SELECT lost_workers FROM nodes"));
    T_EQ(0, t_sql_int(path, "SELECT sum(paused) FROM subscriptions"));
    P_EVENTUALLY(t_rows(path, "type = 'hang' AND status = 'done'") == 4);
    p_tell(c, "shutdown");
    P_HEAR(c, "shutdown 0");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM nodes"));
    eb_destroy(bus);
    eb_store_close(store);
    P_ENDS_CLEANLY(c);
    PASS();
}

/* ---- races ----------------------------------------------------------------------------------- */

enum { RACERS = 8, ROUNDS = 20 };

TEST eight_processes_open_a_new_file_at_once(void)
{
    p_child *c[RACERS];
    char order[440], buf[100];
    int i, round;
    for (i = 0; i < RACERS; i++) c[i] = p_spawn("race", NULL);
    for (round = 0; round < ROUNDS; round++) {
        const char *path = t_path("first-open");
        snprintf(order, sizeof order, "open %s", path);
        for (i = 0; i < RACERS; i++) p_tell(c[i], order);
        for (i = 0; i < RACERS; i++) P_HEAR(c[i], "opened 0 0");
        for (i = 0; i < RACERS; i++) p_tell(c[i], "close");
        for (i = 0; i < RACERS; i++) P_HEAR(c[i], "closed");
        T_ROWS(RACERS, path, "status = 'pending'");
        T_EQ(RACERS, t_sql_int(path, "SELECT count(DISTINCT seq) FROM events"));
        T_EQ(RACERS, t_sql_int(path, "SELECT count(DISTINCT id) FROM events"));
        ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", buf, sizeof buf));
        ASSERT_STR_EQ("wal", t_sql_text(path, "PRAGMA journal_mode", buf, sizeof buf));
    }
    for (i = 0; i < RACERS; i++) P_ENDS_CLEANLY(c[i]);
    PASS();
}

TEST eight_processes_start_at_once_and_one_of_them_owns(void)
{
    const char *path = t_path("first-start");
    p_child *c[RACERS];
    char order[440], line[100];
    int i, round;
    for (i = 0; i < RACERS; i++) c[i] = p_spawn("race", NULL);
    snprintf(order, sizeof order, "open %s", path);
    for (round = 0; round < ROUNDS; round++) {
        int owners = 0, refused = 0;
        for (i = 0; i < RACERS; i++) p_tell(c[i], order);
        for (i = 0; i < RACERS; i++) P_HEAR(c[i], "opened 0 0");
        for (i = 0; i < RACERS; i++) p_tell(c[i], "start");
        for (i = 0; i < RACERS; i++) {
            T_EQ(1, p_hear(c[i], line, sizeof line));
            owners += strcmp(line, "started 0") == 0;
            refused += strcmp(line, "started -10") == 0;
        }
        T_EQ(1, owners);
        T_EQ(RACERS - 1, refused);
        for (i = 0; i < RACERS; i++) p_tell(c[i], "close");
        for (i = 0; i < RACERS; i++) P_HEAR(c[i], "closed");
    }
    for (i = 0; i < RACERS; i++) P_ENDS_CLEANLY(c[i]);
    PASS();
}

SUITE(second)
{
    RUN_TEST(second_process_is_refused_at_once_and_may_try_again);
    RUN_TEST(second_bus_in_the_same_process_is_refused_at_once);
    RUN_TEST(bus_without_threads_owns_too);
    RUN_TEST(another_spelling_of_the_path_is_the_same_file);
}

SUITE(next)
{
    RUN_TEST(after_kill_of_the_owner_the_next_start_succeeds_at_once);
    RUN_TEST(stopped_owner_is_still_the_owner);
    RUN_TEST(clean_shutdown_gives_the_ownership_up_before_destroy);
    RUN_TEST(another_namespace_of_the_file_has_its_own_owner);
}

SUITE(row)
{
    greatest_set_test_suffix("threads");
    RUN_TESTp(row_in_nodes_says_who_dispatches, 0);
    greatest_set_test_suffix("pump");
    RUN_TESTp(row_in_nodes_says_who_dispatches, 1);
    RUN_TEST(row_of_an_owner_that_was_killed_goes_with_the_next_start);
}

SUITE(beside)
{
    RUN_TEST(owner_finds_what_another_process_published);
    RUN_TEST(published_before_start_waits_like_a_post);
    RUN_TEST(wake_makes_the_owner_look_at_once);
    RUN_TEST(inspector_in_another_process_retries_dead_letters);
    RUN_TEST(stuck_handlers_of_another_process_are_seen);
}

SUITE(races)
{
    RUN_TEST(eight_processes_open_a_new_file_at_once);
    RUN_TEST(eight_processes_start_at_once_and_one_of_them_owns);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) return child_main(argv[2], argv + 3);
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    P_RUN(second);
    P_RUN(next);
    P_RUN(row);
    P_RUN(beside);
    P_RUN(races);
    GREATEST_MAIN_END();
}
