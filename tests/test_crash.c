/* test_crash.c - what a process leaves behind when it dies, and what the next start makes of it. */
#include "proc.h"

static t_log logged;
static t_seen seen;
static t_time now;

/* ---- the children ---------------------------------------------------------------------------- */

static int how_to_die; /* 'k', 'e', 'a' */

static eb_result dies(eb_delivery *d, void *user)
{
    (void)user;
    p_report("in %d", d->attempt);
    if (how_to_die == 'e') _exit(7);
    if (how_to_die == 'a') abort();
    p_die();
    return EB_OK;
}

static eb_result fails_first(eb_delivery *d, void *user)
{
    (void)user;
    if (d->attempt == 1) return eb_fail(d, "first failure");
    return dies(d, NULL);
}

static eb_result fails(eb_delivery *d, void *user)
{
    (void)user;
    return eb_fail(d, "first failure");
}

static eb_result snoozes(eb_delivery *d, void *user)
{
    (void)user;
    return eb_snooze(d, 5000);
}

static eb_result hangs(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    p_report("in");
    for (;;) p_nap(1000);
    return EB_OK;
}

static eb_result poisoned(eb_delivery *d, void *user)
{
    (void)user;
    if (strncmp(d->event->type, "poison", 6) == 0) {
        p_report("%s", d->event->type);
        p_die();
    }
    return EB_OK;
}

static eb_options child_options(const char *path, const char *driver)
{
    eb_options o = t_options(path);
    o.workers = strcmp(driver, "pump") == 0 ? EB_NONE : 1;
    return o;
}

/* die path driver how pattern-of-a-handler-before: dies inside its handler. */
static int child_die(char **arg)
{
    eb_options o = child_options(arg[0], arg[1]);
    eb_bus *bus = t_open(&o);
    how_to_die = arg[2][0];
    if (strcmp(arg[3], "second") == 0)
        t_subscribe(bus, "job", t_succeeds, NULL);
    t_subscribe(bus, "job", strcmp(arg[3], "retry") ? dies : fails_first, NULL);
    T_DO(eb_start(bus));
    t_post(bus, "job", "{\"n\":1}");
    T_DO(eb_drain(bus, P_LONG_MS));
    return 9;
}

/* wait path what: leaves an event that waits for a time, at T_EPOCH, and dies between handlers. */
static int child_wait(char **arg)
{
    eb_options o = t_timed(arg[0], &now);
    eb_message m = t_message("job", NULL);
    eb_bus *bus;
    m.delay_ms = strcmp(arg[1], "delay") == 0 ? 5000 : 0;
    o.retry.base_delay_ms = 5000;
    o.retry.max_delay_ms = 60000;
    bus = t_run_with(&o, "job", strcmp(arg[1], "snooze") ? fails : snoozes, NULL);
    T_DO(eb_send(bus, &m, 1, NULL));
    T_DO(eb_pump(bus, EB_NONE, NULL));
    T_MUST(now.slept_ms == 0);
    p_report("waits");
    p_die();
    return 9;
}

/* slow path: the same with a worker thread and the real clock; the retry is an hour away. */
static int child_slow(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus;
    o.retry.base_delay_ms = 3600000;
    o.retry.max_delay_ms = 3600000;
    bus = t_run_with(&o, "job", fails, NULL);
    t_post(bus, "job", NULL);
    while (t_sql_int(arg[0], "SELECT retry_count FROM events") != 1) p_nap(2);
    p_report("waits");
    p_die();
    return 9;
}

/* hang path n: n workers, all of them inside a handler. */
static int child_hang(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus;
    int i;
    o.workers = atoi(arg[1]);
    bus = t_run_with(&o, "job", hangs, NULL);
    for (i = 0; i < o.workers; i++) t_post(bus, "job", NULL);
    for (;;) p_nap(1000);
    return 9;
}

/* poison path driver bus's-max_retries subscription's-max_retries: until the queue is empty. */
static int child_poison(char **arg)
{
    eb_options o = child_options(arg[0], arg[1]);
    eb_subscribe_options s = {0};
    eb_bus *bus;
    o.retry.max_retries = atoi(arg[2]);
    s.retry.max_retries = atoi(arg[3]);
    bus = t_open(&o);
    T_DO(eb_subscribe(bus, "*", poisoned, NULL, &s, NULL));
    T_DO(eb_start(bus));
    T_DO(eb_drain(bus, P_LONG_MS));
    eb_destroy(bus);
    return 0;
}

/* posts path round: posts until it is killed, and reports every id whose call returned. */
static int child_posts(char **arg)
{
    int round = atoi(arg[1]), n, i;
    eb_options o = t_options(arg[0]);
    eb_message m[5];
    eb_id ids[5];
    char number[40];
    eb_bus *bus;
    o.durability = round & 1 ? EB_DURABLE_FULL : EB_DURABLE_NORMAL;
    o.retry.max_retries = 1000000;
    bus = t_open(&o);
    if (round & 2) {
        t_subscribe(bus, "*", t_succeeds, NULL);
        T_DO(eb_start(bus));
    }
    memset(m, 0, sizeof m);
    for (n = 0; n < 1000000; n++) {
        int count = n % 5 == 4 ? 5 : 1;
        snprintf(number, sizeof number, "%d", round * 1000000 + n);
        for (i = 0; i < count; i++) {
            m[i].type = count == 5 ? "batch" : "single";
            m[i].payload = number;
        }
        T_DO(eb_send(bus, m, (size_t)count, ids));
        for (i = 0; i < count; i++) p_report("%s", ids[i].str);
    }
    return 9;
}

static int child_main(const char *role, char **arg)
{
    p_child_init();
    if (strcmp(role, "die") == 0) return child_die(arg);
    if (strcmp(role, "wait") == 0) return child_wait(arg);
    if (strcmp(role, "slow") == 0) return child_slow(arg);
    if (strcmp(role, "hang") == 0) return child_hang(arg);
    if (strcmp(role, "poison") == 0) return child_poison(arg);
    if (strcmp(role, "posts") == 0) return child_posts(arg);
    return 8;
}

/* ---- helpers of the parent ------------------------------------------------------------------- */

/* A bus without threads, whose retries are a minute away, so that "at once" can be told apart. */
static eb_bus *open_next(const char *path)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    memset(&seen, 0, sizeof seen);
    o.workers = EB_NONE;
    o.retry.base_delay_ms = 60000;
    o.retry.max_delay_ms = 60000;
    o.logger = t_logger(&logged);
    bus = t_open(&o);
    t_subscribe(bus, "job", t_watch, &seen);
    return bus;
}

/* n events "job" on disk, never started. */
static void fill(const char *path, int n)
{
    eb_bus *bus = t_bus(path);
    while (n-- > 0) t_post(bus, "job", NULL);
    eb_destroy(bus);
}

/* The one entry about a failed attempt that there is; NULL if there is none or more than one. */
static const t_logged *only_attempt(void)
{
    const t_logged *found = NULL;
    int i;
    if (t_log_attempts(&logged) != 1) return NULL;
    for (i = 0; i < logged.count && i < 256; i++)
        if (logged.items[i].attempt > 0) found = &logged.items[i];
    return found;
}

/* ---- a handler was running ------------------------------------------------------------------- */

TEST running_event_spends_one_attempt_and_is_due_at_once(const char *driver, const char *how,
                                                         const char *which)
{
    const char *path = t_path("running");
    const t_logged *entry;
    char buf[1200], id[40];
    eb_event_list list;
    eb_bus *bus;
    int status;
    p_child *c = p_spawn("die", path, driver, how, which, NULL);
    P_HEAR(c, "in 1");
    status = p_end(c);
    ASSERT(status != -1);
    if (how[0] == 'e') ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    else ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == (how[0] == 'a' ? SIGABRT : SIGKILL));

    /* The claim was on disk before the handler ran; nothing has failed yet. */
    ASSERT_STR_EQ("processing", t_sql_text(path, "SELECT status FROM events", buf, sizeof buf));
    T_EQ(0, t_sql_int(path, "SELECT retry_count FROM events"));

    bus = open_next(path);
    T_OK(eb_start(bus));
    T_EQ(0, seen.calls);
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &list));
    T_EQ(1, list.count);
    T_EQ(EB_PENDING, list.items[0].status);
    T_EQ(1, list.items[0].retry_count);
    T_EQ(1, t_errors(list.items[0].last_error, 0, buf, sizeof buf));
    ASSERT_STRN_EQ("interrupted", buf, 11);
    t_copy(id, sizeof id, list.items[0].id.str);
    eb_event_list_free(&list);

    entry = only_attempt();
    ASSERTm("recovery logs the failed attempt", entry != NULL);
    T_EQ(1, entry->attempt);
    T_EQ(4, entry->max_attempts);
    T_EQ(0, entry->next_delay_ms);
    ASSERT_STR_EQ(id, entry->event_id);
    ASSERT_STR_EQ("job", entry->type);
    ASSERT_STRN_EQ("interrupted", entry->error, 11);

    T_PUMP(bus, EB_NONE, -1);
    T_EQ(1, seen.calls);
    T_EQ(2, seen.attempt);
    T_EQ(4, seen.max_attempts);
    T_EQ(1, seen.retry_count);
    T_EQ(1, p_interrupted(seen.errors));
    ASSERT_STR_EQ("{\"n\":1}", seen.payload);
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done' AND retry_count = 1");
    PASS();
}

TEST worker_threads_recover_a_running_event_too(void)
{
    const char *path = t_path("running-threads");
    eb_options o;
    eb_bus *bus;
    p_child *c = p_spawn("die", path, "threads", "k", "first", NULL);
    P_HEAR(c, "in 1");
    ASSERT(p_is_killed(p_end(c)));
    memset(&seen, 0, sizeof seen);
    o = t_options(path);
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000;
    bus = t_run_with(&o, "job", t_watch, &seen);
    T_OK(t_settle(bus));
    T_EQ(1, seen.calls);
    T_EQ(2, seen.attempt);
    T_EQ(1, p_interrupted(seen.errors));
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done' AND retry_count = 1");
    PASS();
}

TEST earlier_errors_stay_in_front_of_the_interruption(const char *driver)
{
    const char *path = t_path("order");
    char buf[1200];
    eb_bus *bus;
    p_child *c = p_spawn("die", path, driver, "k", "retry", NULL);
    P_HEAR(c, "in 2");
    ASSERT(p_is_killed(p_end(c)));
    bus = open_next(path);
    T_OK(eb_start(bus));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(1, seen.calls);
    T_EQ(3, seen.attempt);
    T_EQ(2, seen.retry_count);
    T_EQ(2, t_errors(seen.errors, 0, buf, sizeof buf));
    ASSERT_STR_EQ("first failure", buf);
    t_errors(seen.errors, 1, buf, sizeof buf);
    ASSERT_STRN_EQ("interrupted", buf, 11);
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done' AND retry_count = 2");
    PASS();
}

TEST events_that_ran_in_parallel_are_all_innocent(void)
{
    const char *path = t_path("parallel");
    char line[100];
    int i;
    eb_bus *bus;
    p_child *c = p_spawn("hang", path, "16", NULL);
    for (i = 0; i < 16; i++) {
        T_EQ(1, p_hear(c, line, sizeof line));
        ASSERT_STR_EQ("in", line);
    }
    ASSERT(p_is_killed(p_kill(c)));
    T_ROWS(16, path, "status = 'processing' AND retry_count = 0");
    bus = open_next(path);
    T_OK(eb_start(bus));
    T_ROWS(16, path, "status = 'pending' AND retry_count = 0"); /* nobody knows which */
    T_EQ(16, t_sql_int(path, "SELECT count(*) FROM deliveries WHERE apart = 1"));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(16, seen.calls);
    eb_destroy(bus);
    T_ROWS(16, path, "status = 'done' AND retry_count = 0");
    PASS();
}

/* ---- poison ---------------------------------------------------------------------------------- */

/* Runs children until one of them gets through; -1: none of `most` does. *calls: of the poison. */
static int run_until_clean(const char *path, const char *driver, const char *bus_max,
                           const char *sub_max, int most, int *calls)
{
    int runs;
    *calls = 0;
    for (runs = 1; runs <= most; runs++) {
        char line[100];
        int status, heard;
        p_child *c = p_spawn("poison", path, driver, bus_max, sub_max, NULL);
        while ((heard = p_hear(c, line, sizeof line)) == 1) ++*calls;
        if (heard < 0) return -1;
        status = p_end(c);
        if (status != -1 && WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? runs : -1;
        if (!p_is_killed(status)) return -1;
    }
    return -1;
}

/* Five good neighbours before, after and, if there are two, between the poison; one commit. */
static void fill_around(const char *path, int poisons)
{
    eb_bus *bus = t_bus(path);
    eb_message m[20];
    size_t n = 0;
    int i, p;
    memset(m, 0, sizeof m);
    for (p = 0; p <= poisons; p++) {
        for (i = 0; i < 5; i++) m[n++].type = "good";
        if (p < poisons) m[n++].type = p ? "poison.b" : "poison.a";
    }
    T_DO(eb_send(bus, m, n, NULL));
    eb_destroy(bus);
}

TEST poison_ends_in_the_dlq_and_its_neighbours_lose_nothing(const char *driver,
                                                            const char *bus_max,
                                                            const char *sub_max)
{
    const char *path = t_path("poison");
    int max = atoi(sub_max) ? atoi(sub_max) : atoi(bus_max), attempts, calls;
    char buf[4000];
    eb_options o;
    eb_store *store;
    eb_event_list list;
    if (max < 0) max = 0; /* EB_NONE */
    attempts = max + 1;
    fill_around(path, 1);
    ASSERTm("a child gets through in time",
            run_until_clean(path, driver, bus_max, sub_max, max + 4, &calls) > 0);
    ASSERT(calls >= attempts);

    T_ROWS(1, path, "type = 'poison.a' AND status = 'dlq'");
    T_EQ(attempts, t_sql_int(path, "SELECT retry_count FROM events WHERE type = 'poison.a'"));
    t_sql_text(path, "SELECT last_error FROM events WHERE type = 'poison.a'", buf, sizeof buf);
    T_EQ(attempts, t_errors(buf, -1, NULL, 0));
    T_EQ(attempts, p_interrupted(buf));
    T_ROWS(10, path, "type = 'good' AND status = 'done' AND retry_count = 0");

    o = t_options(path);
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(1, list.count);
    T_EQ(attempts, list.items[0].retry_count);
    ASSERT(list.items[0].dlq_at_ms > 0);
    eb_event_list_free(&list);
    eb_store_close(store);
    PASS();
}

TEST two_poison_events_convict_only_themselves(const char *driver)
{
    const char *path = t_path("poison2");
    int calls;
    fill_around(path, 2);
    ASSERT(run_until_clean(path, driver, "1", "0", 2 * (1 + 3) + 1, &calls) > 0);
    T_ROWS(2, path, "type GLOB 'poison.*' AND status = 'dlq' AND retry_count = 2");
    T_ROWS(15, path, "type = 'good' AND status = 'done' AND retry_count = 0");
    PASS();
}

/* ---- events that wait for a time ------------------------------------------------------------- */

TEST waiting_event_keeps_count_and_due_time(const char *what, int failed)
{
    const char *path = t_path("waiting");
    eb_options o = t_options(path);
    int64_t next = 99;
    eb_bus *bus;
    p_child *c = p_spawn("wait", path, what, NULL);
    P_HEAR(c, "waits");
    ASSERT(p_is_killed(p_end(c)));
    T_EQ(failed, t_sql_int(path, "SELECT retry_count FROM events"));

    memset(&seen, 0, sizeof seen);
    o.workers = EB_NONE;
    o.clock = t_clock(&now);
    o.logger = t_logger(&logged);
    now.now_ms += 1000; /* the restart took a second, and the monotonic clock began anew */
    now.mono_ms = 77;
    bus = t_run_with(&o, "job", t_watch, &seen);
    T_EQ(0, t_log_attempts(&logged));
    T_PUMP(bus, EB_NONE, 4000);
    T_EQ(0, seen.calls);
    T_EQ(failed, t_sql_int(path, "SELECT retry_count FROM events"));
    if (failed) T_ROWS(1, path, "status = 'processing'"); /* a retry stays processing */
    t_advance(&now, 3999);
    T_PUMP(bus, EB_NONE, 1);
    T_EQ(0, seen.calls);
    t_advance(&now, 1);
    T_OK(eb_pump(bus, EB_NONE, &next));
    T_EQ(1, seen.calls);
    T_EQ(failed + 1, seen.attempt);
    T_EQ(failed, seen.retry_count);
    if (failed) ASSERT_STR_EQ("[\"first failure\"]", seen.errors);
    T_EQ(-1, next);
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done'");
    T_EQ(failed, t_sql_int(path, "SELECT retry_count FROM events"));
    PASS();
}

TEST retry_of_a_worker_thread_keeps_its_due_time(void)
{
    const char *path = t_path("slow");
    int64_t next = 99;
    eb_bus *bus;
    p_child *c = p_spawn("slow", path, NULL);
    P_HEAR(c, "waits");
    ASSERT(p_is_killed(p_end(c)));
    bus = open_next(path);
    T_OK(eb_start(bus));
    T_OK(eb_pump(bus, EB_NONE, &next));
    T_EQ(0, seen.calls);
    P_WITHIN(3600000 - 2 * P_LONG_MS, 3600000, next);
    T_ROWS(1, path, "retry_count = 1 AND last_error = '[\"first failure\"]'");
    eb_destroy(bus);
    PASS();
}

/* ---- acknowledged is stored ------------------------------------------------------------------ */

typedef struct row {
    char id[37];
    int64_t seq;
} row;

static row *acked, *stored;
static size_t acked_count, acked_cap;

static int by_id(const void *a, const void *b)
{
    return strcmp(((const row *)a)->id, ((const row *)b)->id);
}

static void remember(const char *id)
{
    if (acked_count == acked_cap) {
        acked_cap = acked_cap ? acked_cap * 2 : 4096;
        acked = (row *)realloc(acked, acked_cap * sizeof *acked);
        T_MUST(acked != NULL);
    }
    snprintf(acked[acked_count++].id, sizeof acked->id, "%.36s", id);
}

/* All rows of the view, sorted by id; their number. */
static size_t load(const char *path)
{
    int64_t total = t_sql_int(path, "SELECT count(*) FROM events");
    size_t n = 0;
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    stored = (row *)calloc((size_t)total + 1, sizeof *stored);
    T_MUST(stored != NULL && sqlite3_open(path, &db) == SQLITE_OK);
    T_MUST(sqlite3_prepare_v2(db, "SELECT id, seq FROM events", -1, &stmt, NULL) == SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        T_MUST(n < (size_t)total);
        snprintf(stored[n].id, sizeof stored->id, "%s", (const char *)sqlite3_column_text(stmt, 0));
        stored[n++].seq = sqlite3_column_int64(stmt, 1);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    qsort(stored, n, sizeof *stored, by_id);
    return n;
}

TEST acknowledged_posts_survive_kill_at_any_moment(void)
{
    const char *path = t_path("posts"), *env = getenv("EB_SEED");
    unsigned seed = env ? (unsigned)strtoul(env, NULL, 10) : 20261118u;
    char line[100], buf[100];
    size_t i, n, lost = 0, back = 0;
    int64_t last = 0;
    eb_options o = t_options(path);
    eb_bus *bus;
    int round;
    acked_count = 0;
    fprintf(stderr, "EB_SEED=%u\n", seed);
    for (round = 0; round < 50; round++) {
        char number[20];
        int64_t until;
        int heard;
        p_child *c;
        snprintf(number, sizeof number, "%d", round);
        c = p_spawn("posts", path, number, NULL);
        T_EQ(1, p_hear(c, line, sizeof line));
        remember(line);
        seed = seed * 1664525u + 1013904223u;
        until = p_ms() + (int64_t)((seed >> 16) % 25);
        while (p_ms() < until) {
            T_EQ(1, p_hear(c, line, sizeof line));
            remember(line);
        }
        p_shoot(c);
        while ((heard = p_hear(c, line, sizeof line)) == 1) remember(line);
        T_EQ(0, heard);
        ASSERT(p_is_killed(p_end(c)));
    }

    o.retry.max_retries = 1000000;
    bus = t_run_with(&o, "*", t_succeeds, NULL);
    T_OK(eb_drain(bus, P_LONG_MS));
    eb_destroy(bus);

    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", buf, sizeof buf));
    n = load(path);
    for (i = 0; i < acked_count; i++) {
        const row *found = (const row *)bsearch(&acked[i], stored, n, sizeof *stored, by_id);
        if (!found) {
            lost++;
            continue;
        }
        back += found->seq <= last; /* one process after the other: numbers only rise */
        last = found->seq;
    }
    T_EQ(0, lost);
    T_EQ(0, back);
    T_EQ(n, t_sql_int(path, "SELECT count(DISTINCT seq) FROM events"));
    T_EQ(n, t_sql_int(path, "SELECT count(DISTINCT id) FROM events"));
    T_EQ(n, t_stored(path));
    T_ROWS(n, path, "status = 'done'");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM (SELECT payload FROM events WHERE type = 'batch'"
                            " GROUP BY payload HAVING count(*) <> 5)")); /* all or none */
    free(acked);
    free(stored);
    acked = stored = NULL;
    acked_count = acked_cap = 0;
    PASS();
}

/* ---- set to processing by hand --------------------------------------------------------------- */

TEST processing_by_hand_counts_as_one_failed_attempt(void)
{
    const char *path = t_path("hand");
    eb_bus *bus;
    fill(path, 1);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'processing'", NULL, 0));
    T_ROWS(1, path, "status = 'processing' AND retry_count = 0");
    bus = open_next(path);
    T_OK(eb_start(bus));
    T_ROWS(1, path, "status = 'pending' AND retry_count = 1");
    T_EQ(1, t_log_attempts(&logged));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(1, seen.calls);
    T_EQ(2, seen.attempt);
    T_EQ(1, p_interrupted(seen.errors));
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done' AND retry_count = 1");
    PASS();
}

TEST interrupted_last_attempt_is_dead_at_start_and_logged_as_the_last(void)
{
    const char *path = t_path("hand-last");
    const t_logged *entry;
    eb_options o = t_options(path);
    char buf[1200];
    eb_bus *bus;
    fill(path, 1);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'processing'", NULL, 0));
    memset(&seen, 0, sizeof seen);
    o.workers = EB_NONE;
    o.retry.max_retries = EB_NONE;
    o.logger = t_logger(&logged);
    bus = t_run_with(&o, "job", t_watch, &seen);
    T_ROWS(1, path, "status = 'dlq' AND retry_count = 1");
    t_sql_text(path, "SELECT last_error FROM events", buf, sizeof buf);
    T_EQ(1, p_interrupted(buf));
    entry = only_attempt();
    ASSERT(entry != NULL);
    T_EQ(1, entry->attempt);
    T_EQ(1, entry->max_attempts);
    T_EQ(-1, entry->next_delay_ms);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(0, seen.calls);
    eb_destroy(bus);
    PASS();
}

TEST a_hundred_stuck_events_recover_in_one_start(void)
{
    const char *path = t_path("hundred");
    eb_options o = t_options(path);
    int64_t begin;
    eb_bus *bus;
    fill(path, 100);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'processing'", NULL, 0));
    T_ROWS(100, path, "status = 'processing'");
    memset(&seen, 0, sizeof seen);
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000; /* due at once: not this */
    o.logger = t_logger(&logged);
    bus = t_open(&o);
    t_subscribe(bus, "job", t_watch, &seen);
    begin = p_ms();
    T_OK(eb_start(bus));
    ASSERT(p_ms() - begin < P_SLACK_MS);
    T_OK(t_settle(bus));
    T_EQ(100, seen.calls);
    T_EQ(100, t_log_attempts(&logged));
    eb_destroy(bus);
    T_ROWS(100, path, "status = 'done' AND retry_count = 1");
    PASS();
}

TEST clean_restart_spends_no_attempt(void)
{
    const char *path = t_path("clean");
    eb_bus *bus;
    fill(path, 20);
    bus = open_next(path);
    T_OK(eb_start(bus));
    T_ROWS(20, path, "status = 'pending' AND retry_count = 0");
    eb_destroy(bus);
    bus = open_next(path);
    T_OK(eb_start(bus));
    T_EQ(0, t_log_attempts(&logged));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(20, seen.calls);
    eb_destroy(bus);
    T_ROWS(20, path, "status = 'done' AND retry_count = 0");
    PASS();
}

SUITE(running)
{
    static const char *const drivers[] = {"pump", "threads"}, *const hows[] = {"k", "e", "a"};
    int d, h;
    for (d = 0; d < 2; d++) {
        for (h = 0; h < 3; h++) {
            char suffix[40];
            snprintf(suffix, sizeof suffix, "%s_%s", drivers[d], hows[h]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(running_event_spends_one_attempt_and_is_due_at_once, drivers[d], hows[h],
                      "first");
        }
        greatest_set_test_suffix(drivers[d]);
        RUN_TESTp(running_event_spends_one_attempt_and_is_due_at_once, drivers[d], "k", "second");
        greatest_set_test_suffix(drivers[d]);
        RUN_TESTp(earlier_errors_stay_in_front_of_the_interruption, drivers[d]);
    }
    RUN_TEST(worker_threads_recover_a_running_event_too);
    RUN_TEST(events_that_ran_in_parallel_are_all_innocent);
}

SUITE(poison)
{
    static const char *const drivers[] = {"pump", "threads"};
    static const char *const max[][2] = {
        {"2", "0"}, {"-1", "0"}, {"5", "1"}, {"1", "3"}, {"4", "-1"}};
    size_t d, i;
    for (d = 0; d < 2; d++) {
        for (i = 0; i < sizeof max / sizeof *max; i++) {
            char suffix[60];
            snprintf(suffix, sizeof suffix, "%s_bus%s_sub%s", drivers[d], max[i][0], max[i][1]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(poison_ends_in_the_dlq_and_its_neighbours_lose_nothing, drivers[d], max[i][0],
                      max[i][1]);
        }
        greatest_set_test_suffix(drivers[d]);
        RUN_TESTp(two_poison_events_convict_only_themselves, drivers[d]);
    }
}

SUITE(waiting)
{
    greatest_set_test_suffix("retry");
    RUN_TESTp(waiting_event_keeps_count_and_due_time, "retry", 1);
    greatest_set_test_suffix("snooze");
    RUN_TESTp(waiting_event_keeps_count_and_due_time, "snooze", 0);
    greatest_set_test_suffix("delay");
    RUN_TESTp(waiting_event_keeps_count_and_due_time, "delay", 0);
    RUN_TEST(retry_of_a_worker_thread_keeps_its_due_time);
}

SUITE(by_hand)
{
    RUN_TEST(processing_by_hand_counts_as_one_failed_attempt);
    RUN_TEST(interrupted_last_attempt_is_dead_at_start_and_logged_as_the_last);
    RUN_TEST(a_hundred_stuck_events_recover_in_one_start);
    RUN_TEST(clean_restart_spends_no_attempt);
}

SUITE(kills)
{
    RUN_TEST(acknowledged_posts_survive_kill_at_any_moment);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) return child_main(argv[2], argv + 3);
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    P_RUN(running);
    P_RUN(poison);
    P_RUN(waiting);
    P_RUN(by_hand);
    P_RUN(kills);
    GREATEST_MAIN_END();
}
