/* kill.c - kill -9 at any moment loses nothing: while a process publishes from two threads and
** dispatches with two workers, while it opens the file for the first time, migrates it, recovers
** from the kill before, or shuts down.
**
** A story is one database and ten processes, each killed; the ledger lies in a file that all of
** them map. After every kill the parent looks at the file as it lies; between kills it retries and
** purges dead letters, or takes the file back to an older version; at the end it recovers and
** drains everything, and nothing may be missing, double, or stuck. The moments are drawn from the
** seed, between two lines that the child reports; how far it gets until then is up to the machine.
** And events that kill their process whenever they run: each has its attempts and is dead then.
**
**     kill                     300 kills, seed 1
**     kill KILLS SEED          another number, another seed
**     kill --story SEED STORY  one story again, perhaps several times; every failure prints this
**
** make -C tests quick T=kill, then tests/build/plain/kill
*/
#include "work.h"
#include "../proc.h"

enum { ROOM = 20000, KILLS_PER_STORY = 10, RUN_MAX_US = 20000 };

static ledger book;

/* ---- the child ------------------------------------------------------------------------------- */

static eb_bus *bus;
static int stop;

/* The child must not fail; the parent takes exit status 3 for a failure. */
static void must(const char *what, eb_result rc)
{
    char msg[300];
    if (rc >= 0 || rc == EB_ERR_SHUTDOWN) return;
    eb_errmsg(msg, sizeof msg);
    fprintf(stderr, "\nchild: %s: %s: %s\n", what, eb_strerror(rc), msg);
    _exit(3);
}

/* Besides the types of work.h: poison, which ends the process. */
static eb_result handler(eb_delivery *d, void *user)
{
    int n = ledger_run(&book, d);
    (void)user;
    if (strcmp(d->event->type, "poison") == 0) p_die();
    return work_handle(&book, d, n, 2);
}

static const char *any_type(luck *r)
{
    static const char *const types[] = {"ok", "ok", "ok", "slow", "late", "bad", "no", "nap"};
    return types[luck_below(r, 8)];
}

/* Publishes until told to stop. */
static void *publisher(void *arg)
{
    luck *r = (luck *)arg;
    eb_result rc = EB_OK;
    while (!p_get(&stop) && work_room(&book) && rc != EB_ERR_SHUTDOWN) {
        rc = work_publish(&book, bus, r, any_type);
        must("publishing", rc);
        if (luck_one_in(r, 8)) p_nap(luck_below(r, 2));
    }
    return NULL;
}

/* Opens the bus and starts it. */
static void child_begin(char **args, int workers, int durability)
{
    eb_options o;
    p_child_init();
    ledger_open(&book, args[1], ROOM);
    memset(&o, 0, sizeof o);
    o.path = args[0];
    o.workers = workers;
    o.durability = durability;
    o.retry.max_retries = WORK_ATTEMPTS - 1;
    o.retry.base_delay_ms = 1;
    o.retry.max_delay_ms = 3;
    o.busy_timeout_ms = 20000;
    o.logger.func = t_quiet_func;
    p_report("opening");
    must("eb_open", eb_open(&bus, &o));
    must("eb_subscribe", eb_subscribe(bus, "*", handler, NULL, NULL, NULL));
    must("eb_start", eb_start(bus));
}

/* --child run PATH LEDGER SEED DURABILITY */
static int child(char **args)
{
    uint64_t seed = strtoull(args[2], NULL, 10);
    luck lucks[2];
    pthread_t threads[2];
    char line[40];
    lucks[0] = luck_seeded(seed, 0);
    lucks[1] = luck_seeded(seed, 1);
    child_begin(args, 2, atoi(args[3]));
    threads[0] = p_go(publisher, &lucks[0]);
    threads[1] = p_go(publisher, &lucks[1]);
    p_report("running");
    p_order(line, sizeof line); /* to stop, if it lives so long */
    p_report("stopping");
    if (seed % 2) p_set(&stop, 1); /* or the publishers meet EB_ERR_SHUTDOWN */
    must("eb_shutdown", eb_shutdown(bus));
    p_set(&stop, 1);
    p_join(threads[0]);
    p_join(threads[1]);
    eb_destroy(bus);
    p_report("ended");
    p_order(line, sizeof line);
    return 0;
}

/* --child poison PATH LEDGER: works off what is there, if it can. */
static int poisoned_child(char **args)
{
    char line[40];
    child_begin(args, 1, EB_DURABLE_NORMAL);
    must("eb_drain", eb_drain(bus, P_LONG_MS));
    eb_destroy(bus);
    p_report("ended");
    p_order(line, sizeof line);
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

enum { OPENING, RUNNING, STOPPING, PHASES };
static const char *const phase_names[] = {"opening", "running", "stopping"};

static long arg_kills = 300;
static uint64_t arg_seed = 1;
static char path[400], ledger_file[420];
static int64_t open_us = 3000, stop_us = 3000; /* how long that takes here; measured */
static int killed_in[PHASES], migrations, migrated, first_opens, recoveries, only_created;
static int version; /* of the file's schema, as last seen; 0: no tables */
static char why[2000];

static p_child *start_child(uint64_t seed, int durability)
{
    char text[2][24];
    snprintf(text[0], sizeof text[0], "%llu", (unsigned long long)seed);
    snprintf(text[1], sizeof text[1], "%d", durability);
    return p_spawn("run", path, ledger_file, text[0], text[1], NULL);
}

/* Waits for a line of the child; 0 if it said something else or died. */
static int hear(p_child *c, const char *want)
{
    char line[300] = "";
    if (p_hear(c, line, sizeof line) == 1 && strcmp(line, want) == 0) return 1;
    snprintf(why, sizeof why, "the child said \"%s\" instead of \"%s\"", line, want);
    return 0;
}

static void fresh_files(void)
{
    snprintf(path, sizeof path, "%s", t_path("kill"));
    snprintf(ledger_file, sizeof ledger_file, "%s.ledger", path);
    remove(ledger_file);
    if (book.book) ledger_close(&book);
    ledger_open(&book, ledger_file, ROOM);
}

/* One child that is not killed, to know how long opening and stopping take on this machine. */
static void calibrate(void)
{
    p_child *c;
    int64_t start;
    fresh_files();
    c = start_child(1, EB_DURABLE_NORMAL);
    T_MUST(hear(c, "opening"));
    start = p_us();
    T_MUST(hear(c, "running"));
    open_us = p_us() - start;
    p_nap_us(RUN_MAX_US);
    p_tell(c, "stop");
    T_MUST(hear(c, "stopping"));
    start = p_us();
    T_MUST(hear(c, "ended"));
    stop_us = p_us() - start;
    p_end(c);
}

/* One child and its end. 0: something is wrong, see why. */
static int kill_one(luck *r, int phase)
{
    p_child *c = start_child(luck_next(r), luck_below(r, 3) ? EB_DURABLE_NORMAL : EB_DURABLE_FULL);
    int64_t delay = phase == OPENING ? open_us : phase == RUNNING ? RUN_MAX_US : stop_us;
    int ok = hear(c, "opening"), status;
    delay = luck_below(r, (int)(delay + delay / 3));
    if (ok && phase != OPENING) ok = hear(c, "running");
    if (ok && phase == STOPPING) {
        p_nap_us(luck_below(r, RUN_MAX_US / 2));
        p_tell(c, "stop");
        ok = hear(c, "stopping");
    }
    p_nap_us(delay);
    status = p_kill(c);
    ledger_crashed(&book);
    killed_in[phase]++;
    if (ok && !(status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
        ok = 0;
        snprintf(why, sizeof why, "the child ended by itself, status %d", status);
    }
    return ok;
}

static int64_t count_of(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return value;
}

/* What an operator does between two runs. */
static void operate(luck *r)
{
    eb_options o;
    eb_store *store = NULL;
    eb_event_list list;
    eb_query q;
    eb_result rc;
    size_t i;
    int purge = luck_below(r, 2);
    memset(&o, 0, sizeof o);
    memset(&q, 0, sizeof q);
    o.path = path;
    o.logger.func = t_quiet_func;
    q.limit = ROOM;
    rc = eb_store_open(&store, &o);
    if (rc == EB_OK) rc = eb_dlq_list(store, &q, &list);
    if (rc == EB_OK) {
        for (i = 0; i < list.count; i++) {
            const eb_event *e = &list.items[i];
            int n = ledger_number(e->payload);
            ledger_note(&book, n, purge ? LEDGER_PURGED : LEDGER_RETRIED);
            if (p_interrupted(e->last_error) == e->retry_count)
                ledger_note(&book, n, LEDGER_MOVED); /* dead, and yet no handler ever returned */
        }
        eb_event_list_free(&list);
        rc = purge ? eb_dlq_purge(store, 0, NULL) : eb_dlq_retry_all(store, NULL, NULL);
    }
    eb_store_close(store);
    if (rc != EB_OK) snprintf(why, sizeof why, "between two kills: %s", eb_strerror(rc));
}

/* The file as an older version had it, so that the next child migrates. */
static void to_older_version(luck *r)
{
    sqlite3 *db = ledger_connect(&book, path);
    int now;
    T_MUST(db);
    now = work_version(db);
    version = now > 1 ? 1 + luck_below(r, now - 1) : 1;
    if (work_back(db, version) != SQLITE_OK)
        snprintf(why, sizeof why, "back to version %d: %s", version, sqlite3_errmsg(db));
    sqlite3_close(db);
    migrations++;
}

/* The schema is whole: as it was before, no tables or an older version, or the latest. */
static void check_schema(void)
{
    sqlite3 *db = ledger_connect(&book, path);
    int was = version;
    T_MUST(db);
    version = work_schema(db, why, sizeof why);
    sqlite3_close(db);
    if (!why[0] && version != was && version != EBI_SCHEMA_LATEST)
        snprintf(why, sizeof why, "schema version %d after %d", version, was);
    only_created += version == 0;
}

/* Ten kills on one database. 0: something is wrong, see why. */
static int story(uint64_t seed, uint64_t number, int kills)
{
    luck r = luck_seeded(seed, number);
    static const int phases[10] = {OPENING, OPENING, OPENING, RUNNING, RUNNING,
                                   RUNNING, RUNNING, RUNNING, STOPPING, STOPPING};
    int k, phase, back;
    why[0] = 0;
    version = 0;
    fresh_files();
    for (k = 0; k < kills && !why[0]; k++) {
        phase = k == 0 ? OPENING : phases[luck_below(&r, 10)];
        back = 0;
        first_opens += k == 0;
        if (version > 0) {
            if (luck_one_in(&r, 3)) operate(&r);
            if (!why[0] && luck_one_in(&r, 4)) {
                to_older_version(&r);
                back = 1;
                phase = OPENING;
            }
        }
        recoveries += phase == OPENING && count_of("SELECT count(*) FROM deliveries WHERE "
                                                   "status='processing' AND due_ms IS NULL") > 0;
        if (!why[0]) kill_one(&r, phase);
        if (!why[0] && ledger_look(&book, path))
            snprintf(why, sizeof why, "after kill %d, %s: %s", k + 1, phase_names[phase], book.why);
        if (!why[0]) check_schema();
        migrated += back && version == EBI_SCHEMA_LATEST;
    }
    if (!why[0] && ledger_check(&book, path, 0))
        snprintf(why, sizeof why, "in the end: %s", book.why);
    return !why[0];
}

TEST nothing_is_lost_by_kill_9(void)
{
    long done = 0;
    int64_t acked = 0, events = 0;
    uint64_t number = 0;
    int failures = 0, n;
    calibrate();
    for (; done < arg_kills && failures < 5; number++) {
        int kills = arg_kills - done < KILLS_PER_STORY ? (int)(arg_kills - done) : KILLS_PER_STORY;
        if (!story(arg_seed, number, kills)) {
            failures++;
            fprintf(stderr, "\nkill --story %llu %llu\n    %s\n    files: %s*\n",
                    (unsigned long long)arg_seed, (unsigned long long)number, why, path);
        }
        done += kills;
        events += book.book->used;
        for (n = 1; n <= book.book->used; n++) acked += ledger_at(&book, n)->state == LEDGER_ACKED;
    }
    printf("killed %d times opening (%d the first time, %d before there were tables, %d with "
           "something to recover, %d to migrate, %d of them had), %d running, %d stopping\n",
           killed_in[OPENING], first_opens, only_created, recoveries, migrations, migrated,
           killed_in[RUNNING], killed_in[STOPPING]);
    ledger_total("kill -9", done, failures, "seed %llu; %lld events acknowledged of %lld",
                 (unsigned long long)arg_seed, (long long)acked, (long long)events);
    ASSERT_EQ_FMT(0, failures, "%d");
    if (arg_kills >= 100) { /* every moment was met */
        ASSERT(acked > 0 && recoveries > 0 && migrations > 0 && killed_in[STOPPING] > 0);
    }
    remove(ledger_file);
    t_path("kill");
    PASS();
}

/* So that a failure explains itself. */
static void say_the_dead(void)
{
    char text[2000];
    t_sql_text(path, "SELECT group_concat(seq||' '||type||' '||failed||' '||ifnull(errors,''),'; ')"
                     " FROM dead_letters", text, sizeof text);
    printf("dead: %s\n", text);
}

/* Events that end the process each time somebody tries them: every one has its attempts, and one
** for the time when it was claimed along with others; then it is dead, and those around it done.
** One worker: what runs beside it would lose an attempt too. */
TEST an_event_that_kills_its_process_dies_alone(void)
{
    static const char *const types[] = {"ok", "poison", "ok", "ok", "poison", "ok", "late", "ok"};
    enum { TYPES = (int)(sizeof types / sizeof *types), POISON = 2 };
    const int most = POISON * (WORK_ATTEMPTS + 1);
    char line[100] = "", payload[100];
    eb_options o;
    eb_id id;
    int i, n, deaths = 0;
    fresh_files();
    o = t_options(path);
    bus = t_open(&o);
    for (i = 0; i < TYPES; i++) {
        n = work_announce(&book, types[i], 0, payload, sizeof payload);
        ledger_answer(&book, n, eb_post(bus, types[i], payload, &id), &id);
    }
    eb_destroy(bus);
    while (strcmp(line, "ended") != 0) {
        p_child *c = p_spawn("poison", path, ledger_file, NULL);
        while (p_hear(c, line, sizeof line) == 1 && strcmp(line, "ended") != 0) continue;
        if (strcmp(line, "ended") == 0) {
            p_end(c);
            break;
        }
        p_kill(c);
        ledger_crashed(&book);
        ASSERTm("it is tried for ever", ++deaths <= most);
    }
    ASSERT(deaths >= WORK_ATTEMPTS);
    for (n = 1; n <= TYPES; n++) {
        int poison = strcmp(types[n - 1], "poison") == 0;
        ASSERT(!poison || work_runs(&book, n) <= WORK_ATTEMPTS + 1);
        ASSERT_EQ(poison ? 0 : 1, ledger_at(&book, n)->ok > 0);
    }
    if (count_of("SELECT count(*) FROM dead_letters WHERE type<>'poison'")) say_the_dead();
    ASSERT_EQ_FMT(POISON, (int)count_of("SELECT count(*) FROM dead_letters"), "%d");
    if (ledger_check(&book, path, 0)) FAILm(book.why);
    PASS();
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    p_proc_init(argv);
    if (argc == 7 && strcmp(argv[1], "--child") == 0) return child(argv + 3);
    if (argc == 5 && strcmp(argv[1], "--child") == 0) return poisoned_child(argv + 3);
    if (argc == 4 && strcmp(argv[1], "--story") == 0) {
        int ok;
        calibrate();
        ok = story(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), KILLS_PER_STORY);
        printf("%s%s\n", ok ? "it passes" : "it fails: ", why);
        return !ok;
    }
    if (argc > 1) arg_kills = strtol(argv[1], NULL, 10);
    if (argc > 2) arg_seed = strtoull(argv[2], NULL, 10);
    GREATEST_INIT(); /* the arguments are ours */
    SET_TEARDOWN(p_reap, NULL);
    RUN_TEST(an_event_that_kills_its_process_dies_alone);
    RUN_TEST(nothing_is_lost_by_kill_9);
    GREATEST_MAIN_END();
}
