/* test_callbacks.c - what the bus calls back (logger, notify, clock), from wherever it does, and
** options at the ends of their range: none of it may hang, spin, or be accepted and ignored.
**
** What hangs in a broken bus runs in a child that dies when it takes too long.
**
** Decided here, where the contract is silent:
**   - Inside the logger it is as inside a handler: eb_publish is eb_post; eb_wait, eb_drain
**     and eb_pump are EB_ERR_STATE; eb_shutdown begins, and returns EB_OK at once; eb_unsubscribe
**     does not wait. Also in the application's own eb_post. In its eb_open, another bus may be waited
**     for, it must only come to an end.
**   - What an entry says does not change while the logger makes calls that fail, and eb_errmsg of
**     the call that logged is about that call.
**   - EB_ERR_ARG for an option names it.
**   - notify may be called once too often for work that is due earlier, never for work that is not.
*/
#include "proc.h"

enum { PATIENCE_S = 5 };

/* ---- a logger that calls the bus ------------------------------------------------------------- */

/* What the logger does, the first time it is called from the place in question. */
static struct {
    eb_bus *bus; /* set once it is open */
    const char *place;
    int calls, made, busy, aliased, slow_ms, shuts, helper;
    eb_result post, publish, wait, drain, pump, stats, subscribe, unsubscribe, shutdown, helped;
    char stuck[37]; /* the subscription whose handler does not return */
} from;

static int is_place(const eb_log_entry *e)
{
    const char *p = from.place;
    if (strcmp(p, "failed") == 0) return e->attempt > 0 && e->next_delay_ms >= 0;
    if (strcmp(p, "timeout") == 0) return e->attempt > 0 && e->next_delay_ms >= 0;
    if (strcmp(p, "recovery") == 0) return e->attempt > 0 && strstr(e->error, "interrupted");
    if (strcmp(p, "dead") == 0) return e->attempt > 0 && e->next_delay_ms < 0;
    if (strcmp(p, "unmatched_dlq") == 0 || strcmp(p, "unmatched_claimed") == 0)
        return e->attempt > 0 && e->type && strcmp(e->type, "nobody") == 0;
    if (strcmp(p, "unmatched_done") == 0 || strcmp(p, "unmatched_waits") == 0)
        return e->level == EB_LOG_WARN && e->type && strcmp(e->type, "nobody") == 0;
    if (strcmp(p, "locked") == 0) return e->error && strstr(e->error, "locked");
    return e->level == EB_LOG_ERROR; /* open */
}

static void *publishes(void *unused)
{
    from.helped = eb_publish(from.bus, "from.helper", NULL, NULL);
    return unused;
}

static void calls_back(const eb_log_entry *e, void *user)
{
    char before[400];
    eb_stats stats;
    eb_id id, sub;
    (void)user;
    if (!is_place(e) || p_add(&from.calls, 1) > 1 || !from.bus) return;
    t_copy(before, sizeof before, e->error);
    from.post = eb_post(from.bus, "from.logger", NULL, &id);
    if (from.helper) {
        p_join(p_go(publishes, NULL));
    } else if (from.shuts) {
        int64_t begin = p_ms();
        from.shutdown = eb_shutdown(from.bus);
        from.slow_ms = (int)(p_ms() - begin);
    } else if (from.stuck[0]) {
        int64_t begin = p_ms();
        from.unsubscribe = eb_unsubscribe(from.bus, from.stuck);
        from.slow_ms = (int)(p_ms() - begin);
    } else {
        from.publish = eb_publish(from.bus, "from.logger", NULL, NULL);
        from.wait = eb_wait(from.bus, id.str, 20000);
        from.drain = eb_drain(from.bus, 20000);
        from.pump = eb_pump(from.bus, 0, NULL);
        from.stats = eb_stats_get(eb_bus_store(from.bus), &stats);
        from.subscribe = eb_subscribe(from.bus, "later", t_succeeds, NULL, NULL, &sub);
        from.unsubscribe = from.subscribe == EB_OK ? eb_unsubscribe(from.bus, sub.str) : EB_OK;
        eb_post(from.bus, "no type", NULL, NULL); /* fails, and has a message of its own */
    }
    from.aliased = strcmp(before, e->error ? e->error : "") != 0;
    p_set(&from.made, 1);
}

static eb_result fails_once(eb_delivery *d, void *user)
{
    (void)user;
    return d->attempt == 1 ? eb_fail(d, "once") : EB_OK;
}

static int let_go;

static eb_result stays(eb_delivery *d, void *user)
{
    (void)user;
    if (d->attempt == 1) p_until(&let_go, 1);
    return EB_OK;
}

/* A row as a process leaves it that died in a handler. */
static void crashed_before(const char *path)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    o.workers = EB_NONE;
    bus = t_open(&o);
    t_post(bus, "crashed", NULL);
    eb_destroy(bus);
    T_MUST(t_sql(path, "UPDATE deliveries SET status='processing',token=7,attempts=1,"
                       "max_attempts=4; UPDATE meta SET value=1 WHERE key='claimed_to'", NULL, 0)
           == SQLITE_OK);
}

/* Makes the bus say what the place is about, and everything be handled. */
static void provoke(eb_bus *bus, const char *path, const char *place)
{
    sqlite3 *app = NULL;
    eb_message m = {0};
    eb_id sub;
    int64_t end = p_ms() + 4000;
    if (strcmp(place, "failed") == 0) t_post(bus, "fails", NULL);
    if (strcmp(place, "dead") == 0) t_post(bus, "dies", NULL);
    if (strcmp(place, "timeout") == 0) t_post(bus, "stays", NULL);
    if (strncmp(place, "unmatched_d", 11) == 0) T_MUST(eb_post(bus, "nobody", NULL, NULL) >= 0);
    if (strcmp(place, "unmatched_claimed") == 0) {
        /* its subscription goes away between publishing and claiming */
        T_DO(eb_subscribe(bus, "nobody", t_succeeds, NULL, NULL, &sub));
        t_post(bus, "nobody", NULL);
        T_DO(eb_unsubscribe(bus, sub.str));
    }
    if (strcmp(place, "locked") == 0) {
        m.type = "from.delay";
        m.delay_ms = 20;
        T_DO(eb_send(bus, &m, 1, NULL));
        T_MUST(sqlite3_open(path, &app) == SQLITE_OK);
        sqlite3_busy_timeout(app, P_LONG_MS); /* the bus may be committing just now */
        T_MUST(sqlite3_exec(app, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
        while (!p_get(&from.made) && p_ms() < end) {
            p_nap(5);
            eb_pump(bus, 0, NULL); /* EB_ERR_STATE where there are threads */
        }
        sqlite3_exec(app, "ROLLBACK", NULL, NULL, NULL);
        sqlite3_close(app);
    }
}

/* logger path place driver how: how is "calls", "helper", "shutdown" or "unsubscribe". */
static int child_logger(char **arg)
{
    const char *path = arg[0], *place = arg[1];
    eb_options o = t_options(path);
    t_seen seen = {0};
    eb_id stuck;
    eb_bus *bus;
    eb_result drained;
    int64_t end;
    alarm(PATIENCE_S);
    if (strcmp(place, "recovery") == 0) crashed_before(path);
    from.place = place;
    o.workers = strcmp(arg[2], "pump") == 0 ? EB_NONE : atoi(arg[2]);
    o.logger.func = calls_back;
    o.idle_poll_ms = 10;
    if (strcmp(place, "timeout") == 0) o.handler_timeout_ms = 30;
    if (strncmp(place, "unmatched_dlq", 13) == 0 || strcmp(place, "unmatched_claimed") == 0)
        o.on_unmatched = EB_UNMATCHED_DLQ;
    if (strcmp(place, "locked") == 0) o.busy_timeout_ms = EB_NONE;
    from.helper = strcmp(arg[3], "helper") == 0;
    from.shuts = strcmp(arg[3], "shutdown") == 0;
    bus = t_open(&o);
    from.bus = bus;
    t_subscribe(bus, "from.*", t_watch, &seen);
    t_subscribe(bus, "fails", fails_once, NULL);
    t_subscribe(bus, "dies", t_rejects, NULL);
    T_DO(eb_subscribe(bus, "stays", stays, NULL, NULL, &stuck));
    if (strcmp(arg[3], "unsubscribe") == 0) t_copy(from.stuck, sizeof from.stuck, stuck.str);
    if (strcmp(place, "unmatched_waits") == 0)
        t_post(bus, "nobody", NULL);
    p_report("start %d", (int)eb_start(bus));
    provoke(bus, path, place);
    for (end = p_ms() + 4000; !p_get(&from.made) && p_ms() < end; p_nap(2))
        eb_pump(bus, 0, NULL); /* EB_ERR_STATE where there are threads */
    drained = from.shuts ? EB_OK : eb_drain(bus, 4000);
    p_report("drain %d", (int)drained);
    p_report("%d %d %d %d %d %d %d %d %d %d %d %d %d", p_get(&from.made), (int)from.post,
             (int)from.publish, (int)from.wait, (int)from.drain, (int)from.pump, (int)from.stats,
             (int)from.subscribe, (int)from.unsubscribe, (int)from.shutdown, (int)from.helped,
             from.aliased, from.slow_ms);
    p_report("handled %d", p_get(&seen.calls));
    p_set(&let_go, 1);
    p_report("shutdown %d", (int)eb_shutdown(bus));
    eb_destroy(bus);
    p_report("end");
    return 0;
}

/* open path: eb_open fails, and its logger calls another bus. */
static int child_open(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus = NULL;
    eb_result rc;
    char msg[600];
    alarm(PATIENCE_S);
    from.place = "open";
    o.workers = 1;
    from.bus = t_open(&o);
    t_subscribe(from.bus, "from.*", t_succeeds, NULL);
    T_DO(eb_start(from.bus));
    o.path = arg[1];
    o.logger.func = calls_back;
    rc = eb_open(&bus, &o);
    eb_errmsg(msg, sizeof msg);
    p_report("open %d %d", (int)rc, bus == NULL);
    p_report("%d %d %d %d %d %d", p_get(&from.made), (int)from.post, (int)from.publish,
             (int)from.wait, (int)from.drain, from.aliased);
    p_report("errmsg %s", strstr(msg, "no-such-folder") ? "of eb_open" : msg);
    eb_destroy(from.bus);
    p_report("end");
    return 0;
}

/* ---- numbers that are too large -------------------------------------------------------------- */

/* A child says which step went wrong, or "ok". */
#define STEP(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            p_report("line %d: %s", __LINE__, #cond);                                              \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Processor time that this process used while nothing should have happened. */
static int idle_cpu_ms(int during_ms)
{
    clock_t begin = clock();
    p_nap(during_ms);
    return (int)((clock() - begin) * 1000 / CLOCKS_PER_SEC);
}

static int64_t number(const char *text)
{
    char *end;
    return strtoll(text, &end, 10);
}

static void *lets_go(void *unused)
{
    p_nap(100);
    p_set(&let_go, 1);
    return unused;
}

static int huge_idle_poll(const char *path, int64_t huge)
{
    eb_options o = t_options(path);
    eb_message m = t_message("x", NULL);
    eb_bus *bus;
    m.delay_ms = 20;
    o.idle_poll_ms = huge;
    for (t_pump_mode = 0; t_pump_mode < 2; t_pump_mode++) {
        o.workers = t_pump_mode ? EB_NONE : 2;
        bus = t_open(&o);
        STEP(eb_subscribe(bus, "*", t_succeeds, NULL, NULL, NULL) == EB_OK);
        STEP(eb_start(bus) == EB_OK);
        STEP(eb_publish(bus, "x", NULL, NULL) == EB_OK);
        if (!t_pump_mode) STEP(idle_cpu_ms(250) < 80);
        STEP(eb_send(bus, &m, 1, NULL) == EB_OK);
        STEP(eb_drain(bus, 4000) == EB_OK);
        eb_destroy(bus);
    }
    return 0;
}

static eb_bus *pumped_elsewhere;
static void *pumps(void *unused)
{
    eb_pump(pumped_elsewhere, EB_NONE, NULL);
    return unused;
}

static int huge_shutdown(const char *path, int64_t huge)
{
    eb_options o = t_options(path);
    pthread_t thread, other;
    eb_bus *bus;
    eb_id sub;
    clock_t begin;
    o.shutdown_timeout_ms = huge;
    o.workers = 2;
    bus = t_open(&o);
    STEP(eb_subscribe(bus, "stays", stays, NULL, NULL, &sub) == EB_OK);
    STEP(eb_start(bus) == EB_OK);
    STEP(eb_post(bus, "stays", NULL, NULL) == EB_OK);
    p_nap(30);
    thread = p_go(lets_go, NULL);
    begin = clock();
    STEP(eb_unsubscribe(bus, sub.str) == EB_OK); /* waits for the call, and sleeps meanwhile */
    STEP(p_get(&let_go) == 1);
    p_join(thread);
    p_set(&let_go, 0);
    STEP(eb_subscribe(bus, "stays", stays, NULL, NULL, NULL) == EB_OK);
    STEP(eb_post(bus, "stays", NULL, NULL) == EB_OK);
    p_nap(30);
    thread = p_go(lets_go, NULL);
    STEP(eb_shutdown(bus) == EB_OK);
    STEP(p_get(&let_go) == 1);
    STEP((clock() - begin) * 1000 / CLOCKS_PER_SEC < 80);
    p_join(thread);
    eb_destroy(bus);
    p_set(&let_go, 0); /* and while another thread pumps */
    o.workers = EB_NONE;
    bus = pumped_elsewhere = t_open(&o);
    STEP(eb_subscribe(bus, "stays", stays, NULL, NULL, NULL) == EB_OK);
    STEP(eb_start(bus) == EB_OK);
    STEP(eb_post(bus, "stays", NULL, NULL) == EB_OK);
    other = p_go(pumps, NULL);
    p_nap(30);
    thread = p_go(lets_go, NULL);
    begin = clock();
    STEP(eb_shutdown(bus) == EB_OK);
    STEP(p_get(&let_go) == 1);
    STEP((clock() - begin) * 1000 / CLOCKS_PER_SEC < 80);
    p_join(thread);
    p_join(other);
    eb_destroy(bus);
    return 0;
}

static int64_t seen_deadline;
static eb_result extends(eb_delivery *d, void *user)
{
    seen_deadline = d->deadline_ms;
    return eb_extend(d, *(const int64_t *)user);
}

static int huge_handler_timeout(const char *path, int64_t huge)
{
    eb_options o = t_options(path);
    eb_subscribe_options so = {0};
    eb_bus *bus;
    so.timeout_ms = 60000;
    o.handler_timeout_ms = huge;
    for (t_pump_mode = 0; t_pump_mode < 2; t_pump_mode++) {
        o.workers = t_pump_mode ? EB_NONE : 1;
        bus = t_open(&o);
        STEP(eb_subscribe(bus, "a", extends, &huge, NULL, NULL) == EB_OK);
        STEP(eb_subscribe(bus, "b", extends, &huge, &so, NULL) == EB_OK);
        STEP(eb_start(bus) == EB_OK);
        STEP(eb_publish(bus, "a", NULL, NULL) == EB_OK);
        STEP(seen_deadline == EB_NONE || seen_deadline > T_EPOCH);
        STEP(eb_publish(bus, "b", NULL, NULL) == EB_OK);
        if (!t_pump_mode) STEP(idle_cpu_ms(100) < 40);
        eb_destroy(bus);
    }
    return 0;
}

static sqlite3 *held;
static void *unlocks(void *unused)
{
    p_nap(60);
    sqlite3_exec(held, "ROLLBACK", NULL, NULL, NULL);
    return unused;
}

static int huge_busy_timeout(const char *path, int64_t huge)
{
    eb_options o = t_options(path);
    pthread_t thread;
    eb_bus *bus;
    o.workers = EB_NONE;
    o.busy_timeout_ms = huge;
    bus = t_open(&o);
    STEP(sqlite3_open(path, &held) == SQLITE_OK);
    STEP(sqlite3_exec(held, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    thread = p_go(unlocks, NULL);
    STEP(eb_post(bus, "x", NULL, NULL) == EB_OK); /* waits as long as it takes */
    p_join(thread);
    sqlite3_close(held);
    eb_destroy(bus);
    return 0;
}

static eb_result fails(eb_delivery *d, void *user)
{
    (void)user;
    return eb_fail(d, "no");
}
static eb_result snoozes(eb_delivery *d, void *user) { return eb_snooze(d, *(int64_t *)user); }

/* What waits for ever does so quietly; and the next_ms of a pump is no nonsense. */
static int huge_delays(const char *path, int64_t huge)
{
    static const char *const types[] = {"base", "schedule", "snooze"};
    eb_subscribe_options base = {0}, schedule = {0};
    eb_message m[2];
    int64_t next;
    t_time t;
    eb_options o = t_timed(path, &t);
    size_t i;
    eb_bus *bus;
    memset(m, 0, sizeof m);
    base.retry.base_delay_ms = base.retry.max_delay_ms = huge;
    base.retry.multiplier = 1e300;
    schedule.retry.schedule_ms = &huge;
    schedule.retry.schedule_count = 1;
    m[0].type = m[1].type = "later";
    m[0].delay_ms = huge;
    m[1].deliver_at_ms = huge;
    bus = t_open(&o);
    STEP(eb_subscribe(bus, "base", fails, NULL, &base, NULL) == EB_OK);
    STEP(eb_subscribe(bus, "schedule", fails, NULL, &schedule, NULL) == EB_OK);
    STEP(eb_subscribe(bus, "snooze", snoozes, &huge, NULL, NULL) == EB_OK);
    STEP(eb_start(bus) == EB_OK);
    STEP(eb_send(bus, m, 2, NULL) == EB_OK);
    STEP(eb_pump(bus, EB_NONE, &next) == EB_OK);
    STEP(next > 0 || next == -1);
    for (i = 0; i < 3; i++) {
        STEP(eb_post(bus, types[i], NULL, NULL) == EB_OK);
        STEP(eb_pump(bus, EB_NONE, &next) == EB_OK);
        STEP(next > INT64_C(100000000000) || next == -1);
    }
    STEP(eb_drain(bus, 5000) == EB_ERR_TIMEOUT);
    eb_destroy(bus);
    STEP(t_rows(path, "status IN ('pending','processing')") == 5);
    return 0;
}

static int huge_waits(const char *path, int64_t huge)
{
    eb_options o = t_options(path);
    eb_event_list list;
    eb_query q = {0};
    int64_t next;
    eb_bus *bus;
    eb_id id;
    q.from_ms = 1;
    q.to_ms = huge;
    for (t_pump_mode = 0; t_pump_mode < 2; t_pump_mode++) {
        o.workers = t_pump_mode ? EB_NONE : 1;
        bus = t_open(&o);
        STEP(eb_subscribe(bus, "*", fails_once, NULL, NULL, NULL) == EB_OK);
        STEP(eb_start(bus) == EB_OK);
        STEP(eb_post(bus, "x", NULL, &id) == EB_OK);
        STEP(eb_wait(bus, id.str, huge) == EB_OK);
        STEP(eb_post(bus, "x", NULL, &id) == EB_OK);
        STEP(eb_drain(bus, huge) == EB_OK);
        if (t_pump_mode) STEP(eb_pump(bus, huge, &next) == EB_OK && next == -1);
        q.after_seq = t_pump_mode ? huge : 0;
        STEP(eb_log_read(eb_bus_store(bus), &q, &list) == EB_OK);
        STEP(list.count == (t_pump_mode ? 0 : 2));
        eb_event_list_free(&list);
        STEP(eb_dlq_purge(eb_bus_store(bus), INT32_MAX, NULL) == EB_OK);
        STEP(eb_dlq_purge_dead(eb_bus_store(bus), INT32_MAX, NULL) == EB_OK);
        eb_destroy(bus);
    }
    return 0;
}

/* huge path what number */
static int child_huge(char **arg)
{
    int64_t huge = number(arg[2]);
    int bad = 0;
    alarm(PATIENCE_S);
    if (strcmp(arg[1], "idle_poll") == 0) bad = huge_idle_poll(arg[0], huge);
    if (strcmp(arg[1], "shutdown") == 0) bad = huge_shutdown(arg[0], huge);
    if (strcmp(arg[1], "handler_timeout") == 0) bad = huge_handler_timeout(arg[0], huge);
    if (strcmp(arg[1], "busy_timeout") == 0) bad = huge_busy_timeout(arg[0], huge);
    if (strcmp(arg[1], "delays") == 0) bad = huge_delays(arg[0], huge);
    if (strcmp(arg[1], "waits") == 0) bad = huge_waits(arg[0], huge);
    if (!bad) p_report("ok");
    return bad;
}

/* ---- waiting before the start ---------------------------------------------------------------- */

typedef struct helpful {
    t_time t;
    const char *path;
    int64_t at_ms; /* when the other process ends the event; 0: never */
} helpful;

static int64_t helpful_now(void *user) { return ((helpful *)user)->t.now_ms; }
static int64_t helpful_mono(void *user) { return ((helpful *)user)->t.mono_ms; }
static void helpful_sleep(int64_t ms, void *user)
{
    helpful *h = (helpful *)user;
    t_sleep(ms, &h->t);
    if (h->at_ms == 0 || h->t.mono_ms < h->at_ms) return;
    h->at_ms = 0;
    T_MUST(t_sql(h->path, "BEGIN; DELETE FROM deliveries; INSERT INTO finished(seq,attempts,"
                          "finished_at) VALUES(1,1,'2026-11-18T05:32:10.123Z'); COMMIT", NULL, 0)
           == SQLITE_OK);
}

/* unstarted path timeout_ms others_ms: eb_wait in a process that never starts, on a clock that only
** its own sleeps move. */
static int child_unstarted(char **arg)
{
    static helpful h;
    eb_options o = t_options(arg[0]);
    int64_t timeout = number(arg[1]), others = number(arg[2]), begin;
    eb_result rc;
    eb_bus *bus;
    eb_id id;
    alarm(PATIENCE_S);
    (void)t_clock(&h.t);
    h.path = arg[0];
    o.workers = EB_NONE;
    o.clock.now_ms = helpful_now;
    o.clock.mono_ms = helpful_mono;
    o.clock.sleep_ms = helpful_sleep;
    o.clock.user = &h;
    bus = t_open(&o);
    T_DO(eb_publish(bus, "x", NULL, &id));
    begin = h.t.mono_ms;
    if (others) h.at_ms = begin + others;
    rc = eb_wait(bus, id.str, timeout);
    p_report("%d %lld %lld", (int)rc, (long long)(h.t.mono_ms - begin), (long long)h.t.slept_ms);
    eb_destroy(bus);
    return 0;
}

/* The same on the system's clock. */
static int child_unstarted_system(char **arg)
{
    eb_options o = t_options(arg[0]);
    int64_t begin = p_ms();
    eb_bus *bus;
    eb_id id;
    alarm(PATIENCE_S);
    o.workers = strcmp(arg[1], "pump") == 0 ? EB_NONE : 1;
    bus = t_open(&o);
    T_DO(eb_publish(bus, "x", NULL, &id));
    begin = p_ms();
    p_report("%d", (int)eb_wait(bus, id.str, 60));
    p_report("%d", p_ms() - begin >= 59);
    eb_destroy(bus);
    return 0;
}

static int child_main(const char *role, char **arg)
{
    p_child_init();
    if (strcmp(role, "logger") == 0) return child_logger(arg);
    if (strcmp(role, "open") == 0) return child_open(arg);
    if (strcmp(role, "huge") == 0) return child_huge(arg);
    if (strcmp(role, "unstarted") == 0) return child_unstarted(arg);
    if (strcmp(role, "unstarted_system") == 0) return child_unstarted_system(arg);
    return 8;
}

/* ---- the logger ------------------------------------------------------------------------------ */

/* What the child's logger got; see child_logger(). */
typedef struct answers {
    int made, post, publish, wait, drain, pump, stats, subscribe, unsubscribe, shutdown, helped;
    int aliased, slow_ms;
} answers;

static int read_answers(const char *line, answers *g)
{
    memset(g, 0, sizeof *g);
    return sscanf(line, "%d %d %d %d %d %d %d %d %d %d %d %d %d", &g->made, &g->post, &g->publish,
                  &g->wait, &g->drain, &g->pump, &g->stats, &g->subscribe, &g->unsubscribe,
                  &g->shutdown, &g->helped, &g->aliased, &g->slow_ms) == 13;
}

/* Hears the next line, however it reads. */
#define HEARS(c)                                                                                   \
    do {                                                                                           \
        line[0] = 0;                                                                               \
        if (p_hear(c, line, sizeof line) != 1) FAILm("the child hung or died");                    \
    } while (0)

TEST logger_may_call_the_bus(const char *place, const char *driver)
{
    const char *path = t_path("logger");
    p_child *c = p_spawn("logger", path, place, driver, "calls", NULL);
    char line[300];
    answers g;
    P_HEAR(c, "start 0");
    HEARS(c);
    ASSERT_STR_EQ("drain 0", line);
    HEARS(c);
    ASSERT(read_answers(line, &g));
    ASSERTm("the logger was called", g.made);
    T_EQ(EB_OK, g.post);
    T_EQ(EB_OK, g.publish);
    T_EQ(EB_ERR_STATE, g.wait);
    T_EQ(EB_ERR_STATE, g.drain);
    T_EQ(EB_ERR_STATE, g.pump);
    T_EQ(EB_OK, g.stats);
    T_EQ(EB_OK, g.subscribe);
    T_EQ(EB_OK, g.unsubscribe);
    T_EQ(0, g.aliased);
    P_HEAR(c, "handled 2");
    P_HEAR(c, "shutdown 0");
    P_HEAR(c, "end");
    P_ENDS_CLEANLY(c);
    PASS();
}

/* Nothing can be stored then, but it comes back at once and says so. */
TEST logger_may_call_a_bus_whose_file_is_locked(const char *driver)
{
    const char *path = t_path("locked");
    p_child *c = p_spawn("logger", path, "locked", driver, "calls", NULL);
    char line[300];
    answers g;
    P_HEAR(c, "start 0");
    HEARS(c);
    ASSERT_STR_EQ("drain 0", line);
    HEARS(c);
    ASSERT(read_answers(line, &g));
    ASSERTm("the logger was called", g.made);
    T_EQ(EB_ERR_BUSY, g.post);
    T_EQ(EB_ERR_BUSY, g.publish);
    ASSERT(g.wait == EB_ERR_STATE || g.wait == EB_ERR_NOT_FOUND);
    T_EQ(EB_ERR_STATE, g.drain);
    T_EQ(EB_OK, g.stats);
    T_EQ(0, g.aliased);
    P_HEAR(c, "handled 1");
    P_HEAR(c, "shutdown 0");
    P_HEAR(c, "end");
    P_ENDS_CLEANLY(c);
    PASS();
}

/* No lock and no role is held: while one thread is in the logger, another thread's events are
** published, claimed and handled by the other worker. */
TEST bus_goes_on_while_a_thread_is_in_the_logger(const char *place)
{
    const char *path = t_path("helper");
    p_child *c = p_spawn("logger", path, place, "2", "helper", NULL);
    char line[300];
    answers g;
    P_HEAR(c, "start 0");
    HEARS(c);
    ASSERT_STR_EQ("drain 0", line);
    HEARS(c);
    ASSERT(read_answers(line, &g));
    ASSERTm("the logger was called", g.made);
    T_EQ(EB_OK, g.post);
    T_EQ(EB_OK, g.helped);
    P_HEAR(c, "handled 2");
    P_HEAR(c, "shutdown 0");
    P_HEAR(c, "end");
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST shutdown_inside_the_logger_begins_it(const char *place, const char *driver)
{
    const char *path = t_path("shuts");
    p_child *c = p_spawn("logger", path, place, driver, "shutdown", NULL);
    char line[300];
    answers g;
    P_HEAR(c, "start 0");
    P_HEAR(c, "drain 0");
    HEARS(c);
    ASSERT(read_answers(line, &g));
    ASSERTm("the logger was called", g.made);
    T_EQ(EB_OK, g.shutdown);
    P_WITHIN(0, 2000, g.slow_ms);
    HEARS(c); /* handled: as many as were in time */
    P_HEAR(c, "shutdown 0");
    P_HEAR(c, "end");
    P_ENDS_CLEANLY(c);
    T_EQ(2, t_stored(path)); /* and nothing of it is lost */
    PASS();
}

/* The keeper says that a handler does not return: waiting for it there would take the keeper away.
*/
TEST unsubscribe_inside_the_logger_does_not_wait(void)
{
    const char *path = t_path("unsubscribes");
    p_child *c = p_spawn("logger", path, "timeout", "1", "unsubscribe", NULL);
    char line[300];
    answers g;
    P_HEAR(c, "start 0");
    HEARS(c);
    ASSERT_STR_EQ("drain 0", line);
    HEARS(c);
    ASSERT(read_answers(line, &g));
    ASSERTm("the logger was called", g.made);
    T_EQ(EB_OK, g.unsubscribe);
    P_WITHIN(0, 2000, g.slow_ms);
    P_HEAR(c, "handled 1");
    P_HEAR(c, "shutdown 0");
    P_HEAR(c, "end");
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST logger_of_a_failed_open_may_call_another_bus(void)
{
    const char *path = t_path("open");
    char wrong[440], line[300];
    p_child *c;
    int made, post, publish, wait, drain, aliased;
    snprintf(wrong, sizeof wrong, "%s-no-such-folder/x.db", path);
    c = p_spawn("open", path, wrong, NULL);
    HEARS(c);
    ASSERT_STR_EQ("open -13 1", line);
    HEARS(c);
    T_EQ(6, sscanf(line, "%d %d %d %d %d %d", &made, &post, &publish, &wait, &drain, &aliased));
    T_EQ(1, made);
    T_EQ(EB_OK, post);
    T_EQ(EB_OK, publish);
    ASSERT(wait == EB_OK || wait == EB_ERR_STATE);
    ASSERT(drain == EB_OK || drain == EB_ERR_STATE);
    T_EQ(0, aliased);
    P_HEAR(c, "errmsg of eb_open");
    P_HEAR(c, "end");
    P_ENDS_CLEANLY(c);
    PASS();
}

SUITE(logger)
{
    static const char *const drivers[] = {"pump", "1", "2"};
    static const char *const places[] = {"failed",        "dead",          "unmatched_waits",
                                         "unmatched_done", "unmatched_dlq", "recovery"};
    char suffix[60];
    size_t i, k;
    SET_TEARDOWN(p_reap, NULL);
    for (i = 0; i < sizeof places / sizeof *places; i++) {
        for (k = 0; k < sizeof drivers / sizeof *drivers; k++) {
            snprintf(suffix, sizeof suffix, "%s_%s", places[i], drivers[k]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(logger_may_call_the_bus, places[i], drivers[k]);
        }
    }
    greatest_set_test_suffix("unmatched_claimed_pump"); /* with threads it would be luck */
    RUN_TESTp(logger_may_call_the_bus, "unmatched_claimed", "pump");
    greatest_set_test_suffix("timeout_1"); /* the keeper's thread */
    RUN_TESTp(logger_may_call_the_bus, "timeout", "1");
    for (k = 0; k < 2; k++) {
        greatest_set_test_suffix(drivers[k]);
        RUN_TESTp(logger_may_call_a_bus_whose_file_is_locked, drivers[k]);
    }
    for (i = 0; i < 3; i++) {
        greatest_set_test_suffix(places[i]);
        RUN_TESTp(bus_goes_on_while_a_thread_is_in_the_logger, places[i]);
    }
    greatest_set_test_suffix("timeout");
    RUN_TESTp(bus_goes_on_while_a_thread_is_in_the_logger, "timeout");
    for (i = 0; i < 3; i++) {
        for (k = 0; k < 2; k++) {
            snprintf(suffix, sizeof suffix, "%s_%s", places[i], drivers[k]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(shutdown_inside_the_logger_begins_it, places[i], drivers[k]);
        }
    }
    greatest_set_test_suffix("timeout_1");
    RUN_TESTp(shutdown_inside_the_logger_begins_it, "timeout", "1");
    RUN_TEST(unsubscribe_inside_the_logger_does_not_wait);
    RUN_TEST(logger_of_a_failed_open_may_call_another_bus);
}

/* ---- waiting, numbers, what is left behind --------------------------------------------------- */

TEST wait_before_the_start_ends_on_a_clock_of_its_own(const char *timeout, const char *others,
                                                      eb_result want, int64_t least, int64_t most)
{
    const char *path = t_path("unstarted");
    p_child *c = p_spawn("unstarted", path, timeout, others, NULL);
    long long passed, slept;
    char line[300];
    int rc;
    HEARS(c);
    T_EQ(3, sscanf(line, "%d %lld %lld", &rc, &passed, &slept));
    T_EQ(want, rc);
    P_WITHIN(least, most, passed);
    T_EQ(passed, slept); /* every wait went through sleep_ms */
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST wait_before_the_start_ends_on_the_systems_clock(const char *driver)
{
    const char *path = t_path("unstarted-system");
    p_child *c = p_spawn("unstarted_system", path, driver, NULL);
    char line[300];
    HEARS(c);
    ASSERT_STR_EQ("-8", line);
    P_HEAR(c, "1");
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST huge_number_neither_overflows_nor_spins(const char *what, const char *value)
{
    const char *path = t_path("huge");
    p_child *c = p_spawn("huge", path, what, value, NULL);
    char line[300];
    HEARS(c);
    ASSERT_STR_EQ("ok", line);
    P_ENDS_CLEANLY(c);
    PASS();
}

static eb_message with_key(const char *key)
{
    eb_message m = t_message("x", NULL);
    m.idempotency_key = key;
    return m;
}

/* EB_ERR_UNKNOWN is resolved by publishing again with the same key: also when the queue is full. */
TEST known_key_in_a_full_queue_is_a_duplicate(void)
{
    const char *path = t_path("cap");
    eb_options o = t_options(path);
    eb_message m[3];
    eb_id first, second, ids[3];
    eb_bus *bus;
    o.workers = EB_NONE;
    o.max_pending = 2;
    bus = t_open(&o);
    m[0] = with_key("one");
    T_OK(eb_send(bus, m, 1, &first));
    m[0] = with_key("two");
    T_OK(eb_send(bus, m, 1, &second));
    m[0] = with_key("three");
    T_IS(EB_ERR_FULL, eb_send(bus, m, 1, ids));
    m[0] = with_key("one");
    T_IS(EB_DUPLICATE, eb_send(bus, m, 1, ids));
    ASSERT_STR_EQ(first.str, ids[0].str);
    m[1] = with_key("two");
    T_IS(EB_DUPLICATE, eb_send(bus, m, 2, ids));
    ASSERT_STR_EQ(first.str, ids[0].str);
    ASSERT_STR_EQ(second.str, ids[1].str);
    T_EQ(2, t_stored(path));
    eb_destroy(bus);
    PASS();
}

/* Only what would be new has to fit. */
TEST batch_with_known_keys_needs_room_for_the_others_only(void)
{
    const char *path = t_path("cap-batch");
    eb_options o = t_options(path);
    eb_message m[3];
    eb_id first, ids[3];
    eb_bus *bus;
    o.workers = EB_NONE;
    o.max_pending = 2;
    bus = t_open(&o);
    m[0] = with_key("one");
    T_OK(eb_send(bus, m, 1, &first));
    m[1] = with_key("two");
    m[2] = with_key("three");
    T_IS(EB_ERR_FULL, eb_send(bus, m, 3, ids)); /* two new ones, room for one: none is stored */
    T_EQ(1, t_stored(path));
    T_IS(EB_DUPLICATE, eb_send(bus, m, 2, ids));
    ASSERT_STR_EQ(first.str, ids[0].str);
    ASSERT(t_is_v4(ids[1].str));
    T_EQ(2, t_stored(path));
    eb_destroy(bus);
    o.path = path = t_path("cap-twice"); /* the same new key twice in one batch is one event */
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    m[0] = m[1] = with_key("new");
    T_IS(EB_DUPLICATE, eb_send(bus, m, 2, ids));
    ASSERT_STR_EQ(ids[0].str, ids[1].str);
    T_EQ(2, t_stored(path));
    eb_destroy(bus);
    PASS();
}

/* While the handler runs, an operator gives the event up. */
static eb_result moved_meanwhile(eb_delivery *d, void *user)
{
    const char *how = (const char *)user;
    if (eb_dlq_move(eb_bus_store(d->bus), d->event->id.str, "given up") != EB_OK) return EB_ERR_IO;
    return strcmp(how, "snooze") == 0 ? eb_snooze(d, 3000) : eb_fail(d, "too late");
}

TEST stale_outcome_leaves_nothing_that_is_due(const char *how)
{
    char word[20];
    t_time t;
    eb_options o = t_timed(t_path("stale"), &t);
    eb_bus *bus;
    t_copy(word, sizeof word, how);
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3000;
    bus = t_run_with(&o, "x", moved_meanwhile, word);
    t_post(bus, "x", NULL);
    T_PUMP(bus, EB_NONE, -1);
    T_PUMP(bus, EB_NONE, -1);
    T_OK(eb_drain(bus, 0));
    eb_destroy(bus);
    PASS();
}

SUITE(limits)
{
    static const char *const what[] = {"idle_poll",    "shutdown", "handler_timeout",
                                       "busy_timeout", "delays",   "waits"};
    /* INT64_MAX, one less, what overflows as microseconds, and what only just does not */
    static const char *const values[] = {"9223372036854775807", "9223372036854775806",
                                         "4611686018427387904", "9223372036854776",
                                         "9223372036854775"};
    char suffix[60];
    size_t i, k;
    SET_TEARDOWN(p_reap, NULL);
    greatest_set_test_suffix("time_out");
    RUN_TESTp(wait_before_the_start_ends_on_a_clock_of_its_own, "500", "0", EB_ERR_TIMEOUT, 500,
              510);
    greatest_set_test_suffix("just_look");
    RUN_TESTp(wait_before_the_start_ends_on_a_clock_of_its_own, "0", "0", EB_ERR_TIMEOUT, 0, 0);
    greatest_set_test_suffix("ended_elsewhere");
    RUN_TESTp(wait_before_the_start_ends_on_a_clock_of_its_own, "60000", "300", EB_OK, 300, 1300);
    greatest_set_test_suffix("ended_elsewhere_no_limit");
    RUN_TESTp(wait_before_the_start_ends_on_a_clock_of_its_own, "-1", "300", EB_OK, 300, 1300);
    greatest_set_test_suffix("pump");
    RUN_TESTp(wait_before_the_start_ends_on_the_systems_clock, "pump");
    greatest_set_test_suffix("threads");
    RUN_TESTp(wait_before_the_start_ends_on_the_systems_clock, "threads");
    for (i = 0; i < sizeof what / sizeof *what; i++) {
        for (k = 0; k < sizeof values / sizeof *values; k++) {
            snprintf(suffix, sizeof suffix, "%s_%s", what[i], values[k]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(huge_number_neither_overflows_nor_spins, what[i], values[k]);
        }
    }
    RUN_TEST(known_key_in_a_full_queue_is_a_duplicate);
    RUN_TEST(batch_with_known_keys_needs_room_for_the_others_only);
    greatest_set_test_suffix("retry");
    RUN_TESTp(stale_outcome_leaves_nothing_that_is_due, "retry");
    greatest_set_test_suffix("snooze");
    RUN_TESTp(stale_outcome_leaves_nothing_that_is_due, "snooze");
}

/* ---- options of later versions --------------------------------------------------------------- */

static void hook_before(const eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
}
static void hook_after(const eb_delivery *d, eb_result rc, void *user)
{
    (void)d;
    (void)rc;
    (void)user;
}

/* Sets the n-th option that this version does not have, as it would be set; its name, NULL: there
** are fewer. */
static const char *later_option(int n, eb_options *o)
{
    switch (n) {
    case 0: o->shared = 1; return "shared";
    case 1: o->shared = EB_NONE; return "shared";
    case 2: o->lease_ms = 30000; return "lease_ms";
    case 3: o->lease_ms = 1; return "lease_ms";
    case 4: o->lease_ms = EB_NONE; return "lease_ms";
    case 5: o->retention_ms = 1; return "retention_ms";
    case 6: o->retention_ms = INT64_C(15552000000); return "retention_ms";
    case 7: o->retention_ms = EB_NONE; return "retention_ms";
    case 8: o->max_bytes = 1; return "max_bytes";
    case 9: o->max_bytes = EB_NONE; return "max_bytes";
    case 10: o->node_description = "the one in the hall"; return "node_description";
    case 11: o->node_description = ""; return "node_description";
    case 12: o->node_metadata = "{}"; return "node_metadata";
    case 13: o->on_delivery.before = hook_before; return "on_delivery";
    case 14: o->on_delivery.after = hook_after; return "on_delivery";
    case 15: o->on_delivery.user = o; return "on_delivery";
    default: return NULL;
    }
}

TEST option_of_a_later_version_is_refused(int n, int workers)
{
    const char *path = t_path("later"), *name;
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    struct stat st;
    char msg[600];
    o.workers = workers;
    name = later_option(n, &o);
    T_IS(EB_ERR_ARG, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    eb_errmsg(msg, sizeof msg);
    ASSERTm("the message names the option", strstr(msg, name) != NULL);
    ASSERTm("nothing was made", stat(path, &st) != 0);
    PASS();
}

/* A store has no use for them, but whoever sets one believes something of this version that is not
** so. */
TEST store_refuses_options_of_later_versions(int n)
{
    const char *path = t_path("later-store"), *name;
    eb_options o = t_options(path);
    eb_store *store = (eb_store *)&o;
    char msg[600];
    o.workers = EB_NONE;
    eb_destroy(t_open(&o));
    name = later_option(n, &o);
    T_IS(EB_ERR_ARG, eb_store_open(&store, &o));
    ASSERT_EQ(NULL, store);
    eb_errmsg(msg, sizeof msg);
    ASSERTm("the message names the option", strstr(msg, name) != NULL);
    o = t_options(path); /* and without it there is nothing wrong */
    T_OK(eb_store_open(&store, &o));
    eb_store_close(store);
    PASS();
}

static const char *later_subscribe_option(int n, eb_subscribe_options *o)
{
    static const double not_a_number[] = {0.0, 0.0};
    switch (n) {
    case 0: o->name = "billing"; return "name";
    case 1: o->name = ""; return "name";
    case 2: o->breaker_failures = 1; return "breaker_failures";
    case 3: o->breaker_ms = 1000; return "breaker_ms";
    case 4: o->from = 1; return "from";
    case 5: o->order = 1; return "order";
    case 6: o->order = 2; return "order";
    case 7: o->order_path = "$.customer"; return "order_path";
    case 8: o->on_dead = 1; return "on_dead";
    case 9: o->checkpoint_every = 100; return "checkpoint_every";
    case 10: o->checkpoint_ms = 100; return "checkpoint_ms";
    case 11: o->max_concurrency = 4; return "max_concurrency";
    case 12: o->max_per_second = 10.0; return "max_per_second";
    case 13: o->max_per_second = -1.0; return "max_per_second";
    case 14: o->max_per_second = not_a_number[0] / not_a_number[1]; return "max_per_second";
    case 15: o->max_per_second = 1e-300; return "max_per_second";
    case 16: o->instances = 1; return "instances";
    case 17: o->transactional = 1; return "transactional";
    case 18: o->transactional = EB_NONE; return "transactional";
    case 19: o->breaker_ms = EB_NONE; return "breaker_ms";
    case 20: o->max_concurrency = EB_NONE; return "max_concurrency";
    case 21: o->checkpoint_ms = EB_NONE; return "checkpoint_ms";
    default: return NULL;
    }
}

TEST subscribe_option_of_a_later_version_is_refused(int n)
{
    const char *path = t_path("later-sub"), *name;
    eb_options o = t_options(path);
    eb_subscribe_options so = {0};
    char msg[600];
    eb_id id;
    eb_bus *bus;
    name = later_subscribe_option(n, &so);
    o.workers = EB_NONE;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_IS(EB_ERR_ARG, eb_subscribe(bus, "x", t_rejects, NULL, &so, &id));
    eb_errmsg(msg, sizeof msg);
    ASSERTm("the message names the option", strstr(msg, name) != NULL);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM subscriptions"));
    t_post(bus, "x", NULL);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(1, t_stats(bus).pending); /* nobody subscribed */
    eb_destroy(bus);
    PASS();
}

SUITE(later_versions)
{
    eb_options o;
    eb_subscribe_options so;
    const char *name;
    char suffix[60];
    int n;
    for (n = 0; (name = later_option(n, &o)) != NULL; n++) {
        snprintf(suffix, sizeof suffix, "%s_%d", name, n);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(option_of_a_later_version_is_refused, n, n & 1 ? EB_NONE : 0);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(store_refuses_options_of_later_versions, n);
    }
    for (n = 0; (name = later_subscribe_option(n, &so)) != NULL; n++) {
        snprintf(suffix, sizeof suffix, "%s_%d", name, n);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(subscribe_option_of_a_later_version_is_refused, n);
    }
}

/* ---- notify ---------------------------------------------------------------------------------- */

static int notified;
static eb_bus *notifying;

static void notice(void *user)
{
    p_add((int *)user, 1);
    eb_wake(notifying); /* which is all it may do */
}

/* A started bus without threads, on a clock that stands still, that was pumped until nothing is
** due. */
static eb_bus *quiet_bus(const char *path, t_time *t)
{
    eb_options o = t_timed(path, t);
    int64_t next;
    eb_bus *bus;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 500;
    o.notify.func = notice;
    o.notify.user = &notified;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = notifying = t_open(&o);
    t_subscribe(bus, "good", t_succeeds, NULL);
    t_subscribe(bus, "bad", t_rejects, NULL);
    t_subscribe(bus, "again", fails, NULL);
    T_DO(eb_start(bus));
    T_MUST(eb_pump(bus, EB_NONE, &next) == EB_OK && next == -1);
    p_set(&notified, 0);
    return bus;
}

static eb_message post_type, *posted;
static void *posts(void *bus)
{
    T_MUST(eb_send((eb_bus *)bus, posted, 1, NULL) >= 0);
    return bus;
}

TEST post_of_another_thread_notifies(void)
{
    t_time t;
    eb_bus *bus = quiet_bus(t_path("notify"), &t);
    int i;
    for (i = 0; i < 3; i++) { /* again after each pump */
        memset(&post_type, 0, sizeof post_type);
        posted = &post_type;
        posted->type = "good";
        p_join(p_go(posts, bus));
        ASSERTm("notified when eb_post has returned", p_get(&notified) >= 1);
        T_PUMP(bus, EB_NONE, -1);
        p_set(&notified, 0);
    }
    eb_destroy(bus);
    PASS();
}

TEST post_of_the_same_thread_notifies(void)
{
    t_time t;
    eb_bus *bus = quiet_bus(t_path("notify-same"), &t);
    t_post(bus, "good", NULL);
    ASSERT(p_get(&notified) >= 1);
    eb_destroy(bus);
    PASS();
}

TEST earlier_delay_notifies_and_a_later_one_does_not(void)
{
    t_time t;
    eb_bus *bus = quiet_bus(t_path("notify-delay"), &t);
    eb_message m = {0};
    posted = &m;
    m.type = "good";
    m.delay_ms = 1000;
    p_join(p_go(posts, bus));
    ASSERT(p_get(&notified) >= 1); /* -1 was for ever */
    T_PUMP(bus, EB_NONE, 1000);
    p_set(&notified, 0);
    m.delay_ms = 2000;
    p_join(p_go(posts, bus));
    T_EQ(0, p_get(&notified)); /* whoever sleeps for 1000 is in time */
    m.delay_ms = 300;
    p_join(p_go(posts, bus));
    ASSERT(p_get(&notified) >= 1);
    T_PUMP(bus, EB_NONE, 300);
    eb_destroy(bus);
    PASS();
}

TEST dead_letter_retry_notifies(int all)
{
    t_time t;
    eb_bus *bus = quiet_bus(t_path("notify-dlq"), &t);
    eb_id id = t_post(bus, "bad", NULL);
    T_PUMP(bus, EB_NONE, -1);
    T_STATUS(EB_DLQ, bus, id);
    p_set(&notified, 0);
    if (all) T_OK(eb_dlq_retry_all(eb_bus_store(bus), NULL, NULL));
    else T_OK(eb_dlq_retry(eb_bus_store(bus), id.str, NULL));
    ASSERT(p_get(&notified) >= 1);
    eb_destroy(bus);
    PASS();
}

/* The head of a key waits for a retry; given up, it lets the next one go. */
TEST move_of_the_head_of_a_key_notifies(void)
{
    t_time t;
    const char *path = t_path("notify-key");
    eb_bus *bus = quiet_bus(path, &t);
    eb_message m = t_message("again", NULL);
    eb_id head;
    m.ordering_key = "k";
    T_OK(eb_send(bus, &m, 1, &head));
    m.type = "good";
    T_OK(eb_send(bus, &m, 1, NULL));
    T_PUMP(bus, EB_NONE, 500);
    p_set(&notified, 0);
    T_OK(eb_dlq_move(eb_bus_store(bus), head.str, NULL));
    ASSERT(p_get(&notified) >= 1);
    T_PUMP(bus, EB_NONE, -1);
    T_ROWS(1, path, "status = 'done'");
    eb_destroy(bus);
    PASS();
}

static char leaving[37];
static void *unsubscribes(void *bus)
{
    T_DO(eb_unsubscribe((eb_bus *)bus, leaving));
    return bus;
}

/* The head of a key waits for a retry; nobody is left who wants it, so the next one goes. */
TEST leaving_of_the_only_handler_of_a_head_notifies(int same_thread)
{
    t_time t;
    const char *path = t_path("notify-leave");
    eb_bus *bus = quiet_bus(path, &t);
    eb_message m = t_message("leaves", NULL);
    eb_id sub;
    T_OK(eb_subscribe(bus, "leaves", fails, NULL, NULL, &sub));
    t_copy(leaving, sizeof leaving, sub.str);
    m.ordering_key = "k";
    T_OK(eb_send(bus, &m, 1, NULL));
    m.type = "good";
    T_OK(eb_send(bus, &m, 1, NULL));
    T_PUMP(bus, EB_NONE, 500);
    T_ROWS(0, path, "status = 'done'");
    p_set(&notified, 0);
    if (same_thread) unsubscribes(bus);
    else p_join(p_go(unsubscribes, bus));
    ASSERTm("notified when eb_unsubscribe has returned", p_get(&notified) >= 1);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_ROWS(1, path, "type = 'good' AND status = 'done'");
    T_ROWS(1, path, "type = 'leaves' AND status IN ('pending','processing')");
    eb_destroy(bus);
    PASS();
}

/* Nobody waits for it: there is nothing to run because of it. */
TEST leaving_that_frees_nothing_does_not_notify(void)
{
    t_time t;
    eb_bus *bus = quiet_bus(t_path("notify-left"), &t);
    eb_message m = t_message("again", NULL);
    eb_id sub;
    T_OK(eb_subscribe(bus, "leaves", fails, NULL, NULL, &sub));
    m.ordering_key = "k";
    T_OK(eb_send(bus, &m, 1, NULL)); /* another one waits, and stays */
    T_PUMP(bus, EB_NONE, 500);
    p_set(&notified, 0);
    T_OK(eb_unsubscribe(bus, sub.str));
    T_EQ(0, p_get(&notified));
    T_PUMP(bus, EB_NONE, 500);
    eb_destroy(bus);
    PASS();
}

static void *subscribes(void *bus)
{
    t_subscribe((eb_bus *)bus, "parked", t_succeeds, NULL);
    return bus;
}

TEST subscription_for_what_waits_notifies(void)
{
    t_time t;
    const char *path = t_path("notify-sub");
    eb_bus *bus = quiet_bus(path, &t);
    t_post(bus, "parked", NULL);
    T_PUMP(bus, EB_NONE, -1); /* nobody matches it, and it is kept */
    p_set(&notified, 0);
    p_join(p_go(subscribes, bus));
    ASSERT(p_get(&notified) >= 1);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_ROWS(1, path, "status = 'done'");
    eb_destroy(bus);
    PASS();
}

/* What changes nothing that is due: looking, dead letters that go, a shutdown. */
TEST nothing_earlier_does_not_notify(void)
{
    t_time t;
    const char *path = t_path("notify-not");
    eb_bus *bus = quiet_bus(path, &t);
    eb_event_list list;
    eb_stats stats;
    t_post(bus, "bad", NULL);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    p_set(&notified, 0);
    T_OK(eb_stats_get(eb_bus_store(bus), &stats));
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &list));
    eb_event_list_free(&list);
    t_advance(&t, 86400000);
    T_OK(eb_dlq_purge(eb_bus_store(bus), 1, NULL));
    T_EQ(0, t_stored(path));
    T_IS(EB_ERR_PAYLOAD, eb_post(bus, "good", "no json", NULL));
    T_EQ(0, p_get(&notified));
    T_PUMP(bus, EB_NONE, -1);
    T_EQ(0, p_get(&notified));
    eb_destroy(bus);
    PASS();
}

/* A loop as a program with epoll has it: sleeps as long as eb_pump said, or until it is notified.
** If a call were missing once, it would sleep for ever. */
enum { LOOP_EVENTS = 200 };
static void *posts_many(void *bus)
{
    int i;
    for (i = 0; i < LOOP_EVENTS; i++) {
        t_post((eb_bus *)bus, "good", NULL);
        if (i % 8 == 0) p_nap_us(200);
    }
    return bus;
}

TEST loop_that_sleeps_until_it_is_notified_misses_nothing(void)
{
    t_seen seen = {0};
    eb_options o = t_options(t_path("notify-loop"));
    int64_t next, end = p_ms() + 4000;
    pthread_t thread;
    eb_bus *bus;
    o.workers = EB_NONE;
    o.durability = EB_DURABLE_OFF;
    o.notify.func = notice;
    o.notify.user = &notified;
    bus = notifying = t_open(&o);
    t_subscribe(bus, "good", t_watch, &seen);
    T_OK(eb_start(bus));
    thread = p_go(posts_many, bus);
    while (p_get(&seen.calls) < LOOP_EVENTS && p_ms() < end) {
        p_set(&notified, 0);
        T_OK(eb_pump(bus, EB_NONE, &next));
        if (next != -1) continue;
        while (p_get(&seen.calls) < LOOP_EVENTS && !p_get(&notified) && p_ms() < end)
            p_nap_us(50);
    }
    p_join(thread);
    T_EQ(LOOP_EVENTS, p_get(&seen.calls));
    eb_destroy(bus);
    PASS();
}

SUITE(notify)
{
    RUN_TEST(post_of_another_thread_notifies);
    RUN_TEST(post_of_the_same_thread_notifies);
    RUN_TEST(earlier_delay_notifies_and_a_later_one_does_not);
    greatest_set_test_suffix("one");
    RUN_TESTp(dead_letter_retry_notifies, 0);
    greatest_set_test_suffix("all");
    RUN_TESTp(dead_letter_retry_notifies, 1);
    RUN_TEST(move_of_the_head_of_a_key_notifies);
    greatest_set_test_suffix("same_thread");
    RUN_TESTp(leaving_of_the_only_handler_of_a_head_notifies, 1);
    greatest_set_test_suffix("another_thread");
    RUN_TESTp(leaving_of_the_only_handler_of_a_head_notifies, 0);
    RUN_TEST(leaving_that_frees_nothing_does_not_notify);
    RUN_TEST(subscription_for_what_waits_notifies);
    RUN_TEST(nothing_earlier_does_not_notify);
    RUN_TEST(loop_that_sleeps_until_it_is_notified_misses_nothing);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) return child_main(argv[2], argv + 3);
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(logger);
    RUN_SUITE(limits);
    RUN_SUITE(later_versions);
    RUN_SUITE(notify);
    GREATEST_MAIN_END();
}
