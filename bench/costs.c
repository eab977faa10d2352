/* costs.c - What must stay flat: costs that grow with the file, a bus that stands still.
**
** One section for each row of the list at the end, each on a file of its own that is filled by
** plain SQL with rows as the bus writes them. Three kinds of figures:
**   - rates and times, where the goal is a number; where it is a ratio, raw SQLite takes turns;
**   - "longest wait": a thread that posts one event every half a millisecond meanwhile, and what
**     its slowest eb_post took; beside it the same without the work;
**   - "longest lock": from the end of BEGIN IMMEDIATE to the end of COMMIT on the bus's writer, as
**     SQLite's own trace sees it. Other processes wait that long.
** The slowest of thousands is what a scheduler makes of it: on a busy machine it says nothing.
**
** COSTS=parked,stats runs these only. BENCH_ROWS=100000: a tenth of the rows everywhere, a quick
** look and no measurement. What can be counted instead of timed is in ../tests/test_cost.c.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"
#include <fcntl.h>

static const int64_t HOUR_MS = 3600000;
static const char *self; /* this program, to be run again */

/* So many rows, in proportion to BENCH_ROWS: a million by default. */
static int64_t rows(int64_t usual)
{
    const char *asked = getenv("BENCH_ROWS");
    double part = asked && atoll(asked) > 0 ? (double)atoll(asked) / 1e6 : 1;
    double n = (double)usual * part;
    return n < 1000 ? 1000 : (int64_t)n;
}

/* "100k" */
static const char *short_count(int64_t n)
{
    if (n % 1000000 == 0) return b_text("%lldM", (long long)n / 1000000);
    return n % 1000 == 0 ? b_text("%lldk", (long long)n / 1000) : b_text("%lld", (long long)n);
}
static const char *in_ms(double ms) { return b_text(ms < 10 ? "%.2f ms" : "%.1f ms", ms); }
static double ms_since(int64_t ns) { return (double)(b_ns() - ns) / 1e6; }

static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
static void set(int *flag, int value) { __atomic_store_n(flag, value, __ATOMIC_SEQ_CST); }

/* ---- buses --------------------------------------------------------------------------------- */

static int handled; /* by any handler below */

static eb_result on_event(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
    return EB_OK;
}
static eb_result on_fail(eb_delivery *d, void *user)
{
    (void)user;
    return eb_fail(d, "not yet");
}
static eb_result on_reject(eb_delivery *d, void *user)
{
    (void)user;
    return eb_reject(d, "never");
}

static eb_options basics(const char *path, int workers, int durability)
{
    eb_options o;
    memset(&o, 0, sizeof o);
    o.path = path;
    o.workers = workers;
    o.durability = durability;
    o.logger.func = b_quiet;
    return o;
}

/* Opens; with a pattern also subscribes on_event to it and starts. */
static eb_bus *open_bus(const eb_options *o, const char *pattern)
{
    eb_bus *bus;
    B_OK(eb_open(&bus, o));
    if (!pattern) return bus;
    B_OK(eb_subscribe(bus, pattern, on_event, NULL, NULL, NULL));
    B_OK(eb_start(bus));
    return bus;
}
static eb_bus *open_plain(const char *path, int workers, const char *pattern)
{
    eb_options o = basics(path, workers, EB_DURABLE_NORMAL);
    return open_bus(&o, pattern);
}

static eb_stats stats(eb_bus *bus)
{
    eb_stats s;
    B_OK(eb_stats_get(eb_bus_store(bus), &s));
    return s;
}

/* ---- filling ------------------------------------------------------------------------------- */

enum { LIVE, RETRYING, DEAD, DONE }; /* what becomes of the model */

typedef struct crowd {
    eb_message model;
    int64_t count;
    int state;
    const char *other_type;          /* of every second one */
    int keys;                        /* so many ordering keys in turn, named like the model's */
    int64_t (*due_ms)(int64_t i);    /* NULL: the model's */
} crowd;

/* One event, in the state that is wanted, made by the bus itself. */
static void make_model(const char *path, const crowd *c)
{
    static const eb_handler handlers[] = {NULL, on_fail, on_reject, on_event};
    eb_options o = basics(path, EB_NONE, EB_DURABLE_NORMAL);
    eb_bus *bus;
    o.retry.base_delay_ms = o.retry.max_delay_ms = HOUR_MS;
    B_OK(eb_open(&bus, &o));
    if (handlers[c->state]) {
        B_OK(eb_subscribe(bus, "*", handlers[c->state], NULL, NULL, NULL));
        B_OK(eb_start(bus));
    }
    B_OK(eb_send(bus, &c->model, 1, NULL));
    if (handlers[c->state]) B_OK(eb_pump(bus, EB_NONE, NULL));
    eb_destroy(bus);
}

static void bind_varied(sqlite3_stmt *s, const crowd *c, int64_t i, int type_col, int key_col,
                        int due_col, char key[40])
{
    if (c->other_type && type_col)
        sqlite3_bind_text(s, type_col, i & 1 ? c->other_type : c->model.type, -1, SQLITE_STATIC);
    if (c->keys && key_col) {
        snprintf(key, 40, "%.20s-%d", c->model.ordering_key, (int)(i % c->keys));
        sqlite3_bind_text(s, key_col, key, -1, SQLITE_STATIC);
    }
    if (c->due_ms && due_col) sqlite3_bind_int64(s, due_col, c->due_ms(i));
}

/* The model and as many like it as make up the count, in an existing or a new file. */
static void fill(const char *path, const crowd *c)
{
    static const char *const log_names[] = {"seq", "id", "type", "ordering_key", NULL};
    static const char *const end_names[] = {"seq", "type", "ordering_key", "due_ms", NULL};
    static const char *const ends[] = {"deliveries", "deliveries", "dead_letters", "finished"};
    int log_col[4] = {0}, end_col[4] = {0}, i, fd;
    int *log_cols[4], *end_cols[4];
    char id[37] = "00000000-0000-4000-8000-000000000000", key[40];
    sqlite3 *db;
    sqlite3_stmt *last, *log, *end;
    int64_t seq, n;
    make_model(path, c);
    db = b_connect(path, EB_DURABLE_NORMAL);
    b_sql(db, "PRAGMA synchronous = OFF; PRAGMA cache_size = -64000");
    last = b_prepare(db, "SELECT max(seq) FROM event_log");
    if (sqlite3_step(last) != SQLITE_ROW) b_die(path, "no row to copy");
    seq = sqlite3_column_int64(last, 0);
    sqlite3_finalize(last);
    for (i = 0; i < 4; i++) log_cols[i] = &log_col[i], end_cols[i] = &end_col[i];
    log = b_clone_insert(db, "event_log", log_names, log_cols);
    end = b_clone_insert(db, ends[c->state], end_names, end_cols);
    b_sql(db, "BEGIN IMMEDIATE");
    for (n = 1; n < c->count; n++) {
        seq++;
        snprintf(id, 9, "%08x", (unsigned)b_random());
        id[8] = '-'; /* ids need only look right: nobody asks for these events by id */
        sqlite3_bind_int64(log, log_col[0], seq);
        sqlite3_bind_text(log, log_col[1], id, 36, SQLITE_STATIC);
        bind_varied(log, c, n, log_col[2], log_col[3], 0, key);
        b_step(log);
        sqlite3_bind_int64(end, end_col[0], seq);
        bind_varied(end, c, n, end_col[1], end_col[2], end_col[3], key);
        b_step(end);
    }
    b_sql(db, "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_finalize(log);
    sqlite3_finalize(end);
    sqlite3_close(db);
    fd = open(path, O_RDWR); /* writing it out is not left to the measurement */
    if (fd < 0 || fsync(fd) != 0) b_die(path, "cannot sync");
    close(fd);
}

static char payload_text[B_PAYLOAD_BYTES + 1];
static eb_message message(const char *type, const char *key, int64_t delay_ms)
{
    eb_message m;
    memset(&m, 0, sizeof m);
    b_payload(payload_text, 0);
    m.type = type;
    m.payload = payload_text;
    m.ordering_key = key;
    m.delay_ms = delay_ms;
    return m;
}
static crowd crowd_of(const char *type, const char *key, int64_t count, int state)
{
    crowd c;
    memset(&c, 0, sizeof c);
    c.model = message(type, key, 0);
    c.count = count;
    c.state = state;
    return c;
}

/* count events like m, in as few commits as can be. */
static void send_many(eb_bus *bus, eb_message m, int64_t count)
{
    enum { CHUNK = 1000 };
    static eb_message many[CHUNK];
    int i;
    for (i = 0; i < CHUNK; i++) many[i] = m;
    for (; count > 0; count -= CHUNK)
        B_OK(eb_send(bus, many, (size_t)(count < CHUNK ? count : CHUNK), NULL));
}

/* ---- locks: what the writer's transactions take, seen by SQLite's trace -------------------- */

typedef struct locks {
    int64_t asked, began, cpu;       /* of the transaction under way */
    double waited, longest, longest_cpu; /* ms: for BEGIN; in a transaction; its processor time */
    int count;
} locks;

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static double larger(double a, double b) { return a > b ? a : b; }

static int on_trace(unsigned what, void *user, void *stmt, void *text)
{
    locks *l = (locks *)user;
    const char *sql = sqlite3_sql((sqlite3_stmt *)stmt);
    (void)text;
    if (!sql || (sql[0] != 'B' && sql[0] != 'C' && sql[0] != 'R')) return 0;
    if (strcmp(sql, "BEGIN IMMEDIATE") == 0) {
        if (what == SQLITE_TRACE_STMT) {
            l->asked = b_ns();
            return 0;
        }
        l->began = b_ns();
        l->cpu = cpu_ns();
        l->waited = larger(l->waited, (double)(l->began - l->asked) / 1e6);
    } else if (what == SQLITE_TRACE_PROFILE && l->began &&
               (strcmp(sql, "COMMIT") == 0 || strcmp(sql, "ROLLBACK") == 0)) {
        l->longest = larger(l->longest, ms_since(l->began));
        l->longest_cpu = larger(l->longest_cpu, (double)(cpu_ns() - l->cpu) / 1e6);
        l->began = 0;
        l->count++;
    }
    return 0;
}
/* Before eb_start, or while nobody uses the bus. */
static void watch(eb_bus *bus, locks *l)
{
    memset(l, 0, sizeof *l);
    sqlite3_trace_v2(bus->store.writer.handle, SQLITE_TRACE_STMT | SQLITE_TRACE_PROFILE, on_trace,
                     l);
}
static void forget(locks *l)
{
    l->waited = l->longest = l->longest_cpu = 0;
    l->count = 0;
}
static const char *lock_text(const locks *l)
{
    return b_text("%s (%.2f of processor), %d commits", in_ms(l->longest), l->longest_cpu,
                  l->count);
}

/* ---- a publisher beside the work ----------------------------------------------------------- */

typedef struct publisher {
    eb_bus *bus;
    pthread_t thread;
    int stop;
    b_samples waits; /* ms */
} publisher;

static void *publisher_main(void *arg)
{
    publisher *p = (publisher *)arg;
    int64_t begin;
    while (!get(&p->stop)) {
        begin = b_ns();
        B_OK(eb_post(p->bus, "beside", payload_text, NULL));
        b_add(&p->waits, ms_since(begin));
        b_sleep_until(begin + 500000);
    }
    return NULL;
}
static void publisher_begin(publisher *p, eb_bus *bus)
{
    memset(p, 0, sizeof *p);
    b_payload(payload_text, 0);
    p->bus = bus;
    if (pthread_create(&p->thread, NULL, publisher_main, p) != 0) b_die("pthread_create", "failed");
}
/* The longest wait in ms. */
static double publisher_end(publisher *p)
{
    double longest;
    set(&p->stop, 1);
    pthread_join(p->thread, NULL);
    longest = b_max(&p->waits);
    b_free(&p->waits);
    return longest;
}
static double publisher_alone(eb_bus *bus, int64_t for_ms)
{
    publisher p;
    publisher_begin(&p, bus);
    b_sleep_ms(for_ms);
    return publisher_end(&p);
}

/* ---- unmatched events of one key, found on disk -------------------------------------------- */

static void unmatched(void)
{
    int64_t n, small = rows(10000), commits;
    double seconds[2];
    int i;
    for (i = 0; i < 2; i++) {
        const char *path = b_path("costs");
        crowd c = crowd_of("nobody", "customer-7", n = small << i, LIVE);
        eb_bus *bus;
        eb_result rc;
        int64_t begin;
        locks l;
        fill(path, &c);
        bus = open_plain(path, 0, NULL);
        watch(bus, &l);
        B_OK(eb_subscribe(bus, "order.*", on_event, NULL, NULL, NULL));
        begin = b_ns();
        B_OK(eb_start(bus));
        rc = eb_drain(bus, 25000);
        seconds[i] = ms_since(begin) / 1e3;
        commits = stats(bus).commits;
        eb_destroy(bus);
        b_verdict("NORMAL", b_text("unmatched of one key, %s", short_count(n)),
                  b_text("%.2f s", seconds[i]), "-",
                  b_text("%s%lld commits, lock %s", rc == EB_OK ? "" : "not through: ",
                         (long long)commits, in_ms(l.longest)),
                  "< 2 commits / 100", rc == EB_OK && commits * 100 < 2 * n);
    }
    b_verdict("NORMAL", "the same, twice as many", b_text("%.2f s", seconds[1]),
              b_text("%.2f s", seconds[0]), b_text("%.2f x", seconds[1] / seconds[0]), "<= 2.5 x",
              seconds[1] <= 2.5 * seconds[0]);
}

/* ---- subscriptions come and go beside parked events ---------------------------------------- */

typedef struct comer {
    eb_bus *bus;
    pthread_t thread;
    int stop;
} comer;

static void *comer_main(void *arg)
{
    comer *c = (comer *)arg;
    eb_id id;
    while (!get(&c->stop)) {
        B_OK(eb_subscribe(c->bus, "unrelated", on_event, NULL, NULL, &id));
        b_sleep_ms(25);
        B_OK(eb_unsubscribe(c->bus, id.str));
        b_sleep_ms(25);
    }
    return NULL;
}

/* Events handled per second while one thread posts without a pause. */
static double dispatch_rate(eb_bus *bus, int coming, int64_t for_ms)
{
    comer c;
    int64_t begin, end;
    int before;
    double rate;
    memset(&c, 0, sizeof c);
    c.bus = bus;
    if (coming && pthread_create(&c.thread, NULL, comer_main, &c) != 0)
        b_die("pthread_create", "failed");
    before = get(&handled);
    begin = b_ns();
    end = begin + for_ms * 1000000;
    while (b_ns() < end) B_OK(eb_post(bus, "order.placed", payload_text, NULL));
    rate = (get(&handled) - before) * 1e3 / ms_since(begin);
    set(&c.stop, 1);
    if (coming) pthread_join(c.thread, NULL);
    B_OK(eb_drain(bus, 60000));
    return rate;
}

static void subscribe(void)
{
    static const char *const what[] = {"one type", "100 types"};
    int kind, turn, turns = b_turns(4);
    for (kind = 0; kind < 2; kind++) {
        const char *path = b_path("costs");
        crowd c = crowd_of("parked", NULL, kind ? 1 : rows(100000), LIVE);
        b_samples with = {0}, without = {0}, ratio = {0};
        eb_bus *bus;
        int i;
        fill(path, &c);
        for (i = 0; kind && i < 100; i++) { /* more types than the bus remembers */
            crowd d = crowd_of(b_text("parked.%d", i), NULL, rows(100000) / 100, LIVE);
            fill(path, &d);
        }
        bus = open_plain(path, 0, "order.*");
        B_OK(eb_drain(bus, 60000));
        dispatch_rate(bus, 0, 200);
        for (turn = 0; turn < turns; turn++) {
            b_add(&without, dispatch_rate(bus, 0, 400));
            b_add(&with, dispatch_rate(bus, 1, 400));
            b_add(&ratio, with.v[turn] / without.v[turn]);
        }
        b_verdict("NORMAL", b_text("subscribe beside %s parked, %s", short_count(rows(100000)),
                                   what[kind]),
                  b_rate(&with), b_rate(&without), b_text("%s of the rate", b_spread(&ratio)),
                  ">= 0.9", b_median(&ratio) >= 0.9);
        b_free(&with), b_free(&without), b_free(&ratio);
        eb_destroy(bus);
    }
}

/* ---- a million parked events: one file for three rows -------------------------------------- */

static char million_path[400];

static const char *million(void)
{
    crowd c = crowd_of("parked", NULL, rows(1000000), LIVE);
    if (million_path[0]) return million_path;
    snprintf(million_path, sizeof million_path, "%s", b_path("costs-million"));
    fill(million_path, &c);
    return million_path;
}

static int64_t started_ns;
static eb_result on_first(eb_delivery *d, void *user)
{
    (void)d;
    __atomic_store_n((int64_t *)user, b_ns(), __ATOMIC_SEQ_CST);
    return EB_OK;
}

/* From eb_subscribe of pattern to the handler of an event that is posted then; ms. */
static double first_after(eb_bus *bus, const char *pattern)
{
    int64_t begin = b_ns(), end = begin + INT64_C(5000000000), got;
    eb_id id;
    __atomic_store_n(&started_ns, 0, __ATOMIC_SEQ_CST);
    B_OK(eb_subscribe(bus, pattern, on_event, NULL, NULL, &id));
    B_OK(eb_post(bus, "first", payload_text, NULL));
    while ((got = __atomic_load_n(&started_ns, __ATOMIC_SEQ_CST)) == 0 && b_ns() < end)
        b_sleep_until(b_ns() + 20000);
    B_OK(eb_unsubscribe(bus, id.str));
    return got ? (double)(got - begin) / 1e6 : 5000;
}

static void parked(void)
{
    eb_options o = basics(million(), 0, EB_DURABLE_NORMAL);
    eb_bus *bus = open_bus(&o, NULL);
    const char *n = short_count(rows(1000000));
    double first = 0, took, wait;
    publisher p;
    int64_t begin;
    locks l;
    int i;
    watch(bus, &l);
    B_OK(eb_subscribe(bus, "first", on_first, &started_ns, NULL, NULL));
    begin = b_ns();
    B_OK(eb_start(bus));
    took = ms_since(begin);
    b_sleep_ms(1);
    b_verdict("NORMAL", b_text("eb_start at %s parked, longest lock", n), in_ms(l.longest), "-",
              b_text("eb_start %s", in_ms(took)), "<= 5 ms", l.longest <= 5);
    B_OK(eb_drain(bus, 60000));
    b_verdict("NORMAL", "the lap over them, longest lock", in_ms(l.longest), "-",
              b_text("%.2f s, %.2f ms of processor", ms_since(begin) / 1e3, l.longest_cpu),
              "<= 5 ms", l.longest <= 5);
    forget(&l);
    begin = b_ns();
    for (i = 0; i < 20; i++) B_OK(eb_drain(bus, 0));
    took = ms_since(begin) / 20;
    b_verdict("NORMAL", b_text("eb_drain(0) at %s parked", n), in_ms(took), "-", lock_text(&l),
              "<= 5 ms", took <= 5 && l.longest <= 5);
    wait = publisher_alone(bus, 500);
    publisher_begin(&p, bus);
    for (begin = b_ns(); ms_since(begin) < 500;) eb_drain(bus, 0);
    took = publisher_end(&p);
    b_verdict("NORMAL", "the same without a pause, publisher's wait", in_ms(took), in_ms(wait),
              b_text("longest %s", in_ms(took)), "<= 5 ms", took <= 5);
    forget(&l);
    for (i = 0; i < 5; i++) first = larger(first, first_after(bus, "unrelated"));
    b_verdict("NORMAL", "first event after an unrelated subscribe", in_ms(first), "-",
              lock_text(&l), "<= 5 ms", first <= 5 && l.longest <= 5);
    forget(&l);
    first = first_after(bus, "park*");
    b_verdict("NORMAL", "first event after a subscribe for all of them", in_ms(first), "-",
              lock_text(&l), "lock <= 5 ms", l.longest <= 5);
    eb_destroy(bus);
}

static void figures(void)
{
    eb_bus *bus = open_plain(million(), 0, "order.*");
    b_samples took = {0};
    double alone, beside;
    publisher p;
    int64_t begin, one;
    B_OK(eb_drain(bus, 60000));
    stats(bus);
    alone = publisher_alone(bus, 1000);
    publisher_begin(&p, bus);
    for (begin = b_ns(); ms_since(begin) < 1000;) {
        one = b_ns();
        stats(bus);
        b_add(&took, ms_since(one));
    }
    beside = publisher_end(&p);
    b_verdict("NORMAL", b_text("eb_stats_get, %s live, started bus", short_count(rows(1000000))),
              in_ms(b_median(&took)), "-", b_text("longest %s", in_ms(b_max(&took))), "<= 1 ms",
              b_median(&took) <= 1);
    b_verdict("NORMAL", "a publisher beside it, longest wait", in_ms(beside), in_ms(alone),
              b_text("%+.1f ms", beside - alone), "<= 5 ms more", beside <= alone + 5);
    b_free(&took);
    eb_destroy(bus);
}

/* At the cap: some are accepted, the others refused. Then somebody else finishes an event before
** each, so that there is always room. */
static void capped(void)
{
    enum { ROOM = 300, POSTS = 1000 };
    eb_options o = basics(million(), 0, EB_DURABLE_NORMAL);
    eb_bus *bus = open_bus(&o, NULL);
    sqlite3 *db = b_connect(million(), EB_DURABLE_NORMAL);
    sqlite3_stmt *finish = b_prepare(db, "DELETE FROM deliveries WHERE seq ="
                                         " (SELECT min(seq) FROM deliveries)");
    b_samples took = {0}, beside = {0};
    eb_result rc;
    int64_t begin;
    int i, refused = 0;
    double mean;
    o.max_pending = stats(bus).pending + stats(bus).processing + ROOM;
    eb_destroy(bus);
    bus = open_bus(&o, NULL);
    for (i = 0; i < POSTS; i++) {
        begin = b_ns();
        rc = eb_post(bus, "parked", payload_text, NULL);
        b_add(&took, ms_since(begin));
        if (rc != EB_ERR_FULL) B_OK(rc);
        refused += rc == EB_ERR_FULL;
    }
    for (i = 0, mean = 0; i < POSTS; i++) mean += took.v[i] / POSTS;
    b_verdict("NORMAL", b_text("max_pending of %s, publish at the cap",
                               short_count(rows(1000000))),
              in_ms(mean), "-", b_text("longest %s, %d over", in_ms(b_max(&took)),
                                       POSTS - refused - ROOM), "<= 0.1 ms, 1000 over",
              mean <= 0.1 && POSTS - refused <= ROOM + 1000);
    refused = 0;
    for (i = 0; i < 1000; i++) b_step(finish);
    for (i = 0; i < POSTS; i++) {
        b_step(finish);
        begin = b_ns();
        rc = eb_post(bus, "parked", payload_text, NULL);
        b_add(&beside, ms_since(begin));
        refused += rc == EB_ERR_FULL;
    }
    for (i = 0, mean = 0; i < POSTS; i++) mean += beside.v[i] / POSTS;
    b_verdict("NORMAL", "the same while somebody else makes room", in_ms(mean), "-",
              b_text("longest %s, %d refused", in_ms(b_max(&beside)), refused), "<= 0.1 ms",
              mean <= 0.1);
    b_free(&took), b_free(&beside);
    sqlite3_finalize(finish);
    sqlite3_close(db);
    eb_destroy(bus);
}

/* ---- one ordering key, worker threads ------------------------------------------------------ */

/* Posts for so long, drains; events per second. */
static double key_rate(eb_bus *bus, int batch)
{
    eb_message m = message("order.placed", "customer-7", 0);
    int64_t begin = b_ns();
    int before = get(&handled);
    while (ms_since(begin) < 700) {
        if (batch == 1) B_OK(eb_send(bus, &m, 1, NULL));
        else send_many(bus, m, batch);
        if (batch > 1) B_OK(eb_drain(bus, 30000));
    }
    B_OK(eb_drain(bus, 30000));
    return (get(&handled) - before) * 1e3 / ms_since(begin);
}

static void one_key(void)
{
    static const struct { int workers, batch; } kinds[] = {{1, 1}, {4, 1}, {1, 100}, {4, 1000}};
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        eb_bus *bus = open_plain(b_path("costs"), kinds[i].workers, "*");
        b_samples r = {0};
        int turn;
        key_rate(bus, kinds[i].batch);
        for (turn = 0; turn < b_turns(3); turn++) b_add(&r, key_rate(bus, kinds[i].batch));
        b_verdict("NORMAL", b_text("one key, %d per call, %d worker%s", kinds[i].batch,
                                   kinds[i].workers, kinds[i].workers > 1 ? "s" : ""),
                  b_rate(&r), "-", b_spread(&r), ">= 10,000/s", b_median(&r) >= 10000);
        b_free(&r);
        eb_destroy(bus);
    }
}

/* ---- what is due --------------------------------------------------------------------------- */

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static int64_t overdue(int64_t i) { return wall_ms() - 3600000 + i / 100; }
static int64_t scattered_due(int64_t i)
{
    (void)i;
    return wall_ms() - 3600000 + (int64_t)(b_random() % 3600000);
}

static void due(void)
{
    static const char *const names[] = {"delayed, due", "retries, due", "keys taking turns",
                                        "retries with keys, due"};
    int kind, workers;
    for (kind = 0; kind < 4; kind++) {
        for (workers = EB_NONE; workers <= 1; workers += 2) {
            const char *path = b_path("costs");
            crowd c = crowd_of("order.placed", kind >= 2 ? "customer" : NULL, rows(100000),
                               kind == 1 || kind == 3 ? RETRYING : LIVE);
            eb_bus *bus;
            int64_t begin;
            double rate;
            if (kind == 0) c.model.delay_ms = HOUR_MS;
            if (kind != 2) c.due_ms = overdue;
            if (kind >= 2) c.keys = 500;
            fill(path, &c);
            begin = b_ns();
            bus = open_plain(path, workers, "*");
            if (workers == EB_NONE) B_OK(eb_pump(bus, EB_NONE, NULL));
            else
                while (stats(bus).delivered < c.count - 1 && ms_since(begin) < 20000) b_sleep_ms(1);
            rate = (double)stats(bus).delivered * 1e3 / ms_since(begin);
            b_verdict("NORMAL",
                      b_text("%s, %s", names[kind], workers == EB_NONE ? "pump" : "worker"),
                      b_text("%.0f/s", rate), "-",
                      b_text("%lld commits for %s", (long long)stats(bus).commits,
                             short_count(c.count)), ">= 150,000/s", rate >= 150000);
            eb_destroy(bus);
        }
    }
}

/* ---- delayed ones of a key, then some that are not ----------------------------------------- */

static void ahead(void)
{
    enum { EVENTS = 2000 };
    static const int64_t counts[] = {1000, 10000, 100000};
    double each[3];
    int k, turn;
    for (k = 0; k < 3; k++) {
        const char *path = b_path("costs");
        crowd c = crowd_of("order.placed", "customer-7", rows(counts[k]), LIVE);
        eb_bus *bus;
        b_samples took = {0};
        c.model.delay_ms = HOUR_MS;
        fill(path, &c);
        bus = open_plain(path, EB_NONE, "*");
        B_OK(eb_pump(bus, EB_NONE, NULL));
        for (turn = 0; turn < b_turns(3); turn++) {
            eb_message m = message("order.placed", "customer-7", 0);
            int64_t begin = b_ns();
            int i;
            for (i = 0; i < EVENTS && ms_since(begin) < 2000; i++) {
                B_OK(eb_send(bus, &m, 1, NULL));
                B_OK(eb_pump(bus, EB_NONE, NULL));
            }
            b_add(&took, ms_since(begin) / i);
        }
        each[k] = b_median(&took);
        b_verdict("NORMAL", b_text("immediate ones behind %s delayed of a key",
                                   short_count(rows(counts[k]))),
                  in_ms(each[k]), "-", b_text("%.3f ms each, %.2f x", each[k], each[k] / each[0]),
                  "< 0.1 ms, flat", each[k] < 0.1 && each[k] < 1.5 * each[0]);
        b_free(&took);
        eb_destroy(bus);
    }
}

/* ---- publishers in other processes --------------------------------------------------------- */

/* The other process: posts without a pause; prints how many, and its longest wait. */
static int child(const char *path, const char *for_ms)
{
    eb_options o = basics(path, 0, EB_DURABLE_FULL);
    eb_bus *bus = open_bus(&o, NULL);
    int64_t begin = b_ns(), one;
    double longest = 0;
    long n = 0;
    b_payload(payload_text, 0);
    while (ms_since(begin) < atof(for_ms)) {
        one = b_ns();
        B_OK(eb_post(bus, "order.placed", payload_text, NULL));
        longest = larger(longest, ms_since(one));
        n++;
    }
    printf("%.1f %.3f\n", (double)n * 1e3 / ms_since(begin), longest);
    eb_destroy(bus);
    return 0;
}

static FILE *child_begin(const char *path, int for_ms)
{
    FILE *f;
    char line[1000];
    snprintf(line, sizeof line, "'%.400s' --child '%.400s' %d", self, path, for_ms);
    f = popen(line, "r");
    if (!f) b_die("popen", "failed");
    return f;
}
static void child_end(FILE *f, double *rate, double *longest)
{
    double r, l;
    if (fscanf(f, "%lf %lf", &r, &l) != 2 || pclose(f) != 0) b_die("child", "failed");
    *rate += r;
    *longest = larger(*longest, l);
}

/* What one publishes without anybody beside it: events per second. */
static double one_alone(const char *path)
{
    double rate = 0, ignored = 0;
    child_end(child_begin(path, 600), &rate, &ignored);
    return rate;
}

static void peers(void)
{
    const char *path = b_path("costs");
    eb_options o = basics(path, 0, EB_DURABLE_FULL);
    int turn = 0, turns = b_turns(3), spare = 2;
    b_samples one = {0}, ratio = {0}, waits = {0}, stands = {0};
    o.idle_poll_ms = 20;
    eb_destroy(open_bus(&o, NULL));
    one_alone(path);
    while (turn < turns) {
        double before = one_alone(path), alone, both = 0, wait = 0;
        FILE *a, *b;
        eb_bus *bus;
        locks l;
        bus = open_bus(&o, NULL);
        watch(bus, &l);
        B_OK(eb_subscribe(bus, "*", on_event, NULL, NULL, NULL));
        B_OK(eb_start(bus));
        a = child_begin(path, 3000);
        b = child_begin(path, 3000);
        child_end(a, &both, &wait);
        child_end(b, &both, &wait);
        B_OK(eb_drain(bus, 60000));
        eb_destroy(bus);
        alone = one_alone(path);
        if (!b_steady(before, alone) && spare-- > 0) continue; /* a slow spell of the disk */
        alone = (before + alone) / 2;
        turn++;
        b_add(&one, alone);
        b_add(&ratio, both / alone);
        b_add(&waits, wait);
        b_add(&stands, l.waited);
    }
    b_verdict("FULL", "two publishers elsewhere, their longest wait", in_ms(b_median(&waits)), "-",
              b_spread(&waits), "<= 250 ms", b_median(&waits) <= 250);
    b_verdict("FULL", "the dispatcher beside them, longest wait", in_ms(b_median(&stands)), "-",
              b_spread(&stands), "<= 250 ms", b_median(&stands) <= 250);
    b_verdict("FULL", "what both publish, beside one alone",
              b_text("%.0f/s", b_median(&ratio) * b_median(&one)), b_rate(&one),
              b_text("%s of one", b_spread(&ratio)), ">= 0.4", b_median(&ratio) >= 0.4);
    b_free(&one), b_free(&ratio), b_free(&waits), b_free(&stands);
}

/* ---- delayed by another process ------------------------------------------------------------ */

static void foreign(void)
{
    const char *path = b_path("costs");
    eb_options o = basics(path, 0, EB_DURABLE_NORMAL);
    eb_bus *bus, *other;
    int64_t begin;
    locks l;
    int i;
    o.idle_poll_ms = 20;
    bus = open_bus(&o, NULL);
    watch(bus, &l);
    B_OK(eb_subscribe(bus, "*", on_event, NULL, NULL, NULL));
    B_OK(eb_start(bus));
    other = open_bus(&o, NULL); /* another connection: to the dispatcher it is another process */
    begin = b_ns();
    send_many(other, message("order.placed", NULL, HOUR_MS), rows(500000));
    b_sleep_ms(100);
    b_verdict("NORMAL", b_text("%s delayed come from elsewhere, lock", short_count(rows(500000))),
              in_ms(l.longest), "-", b_text("%s in %.1f s", lock_text(&l), ms_since(begin) / 1e3),
              "<= 1 ms", l.longest <= 1);
    forget(&l);
    for (i = 0; i < 20; i++) {
        send_many(other, message("order.placed", NULL, HOUR_MS), 1);
        b_sleep_ms(25);
    }
    b_verdict("NORMAL", "20 more, one at a time, lock", in_ms(l.longest), "-", lock_text(&l),
              "<= 1 ms", l.longest <= 1);
    eb_destroy(other);
    eb_destroy(bus);
}

/* ---- retrying half of the dead ------------------------------------------------------------- */

static void retry_all(void)
{
    int turn, turns = b_turns(2);
    b_samples took = {0}, waits = {0}, alones = {0};
    for (turn = 0; turn < turns; turn++) {
        const char *path = b_path("costs");
        crowd c = crowd_of("a.dead", NULL, rows(200000), DEAD);
        eb_query q;
        eb_bus *bus;
        publisher p;
        int64_t begin, count;
        c.other_type = "b.dead";
        fill(path, &c);
        bus = open_plain(path, 0, NULL);
        b_add(&alones, publisher_alone(bus, 300));
        publisher_begin(&p, bus);
        memset(&q, 0, sizeof q);
        q.pattern = "a.*";
        begin = b_ns();
        B_OK(eb_dlq_retry_all(eb_bus_store(bus), &q, &count));
        b_add(&took, ms_since(begin) / 1e3);
        b_add(&waits, publisher_end(&p));
        if (count != (c.count + 1) / 2) b_die("eb_dlq_retry_all", "not half of them");
        eb_destroy(bus);
    }
    b_verdict("NORMAL", b_text("eb_dlq_retry_all, half of %s", short_count(rows(200000))),
              b_text("%.2f s", b_median(&took)), "-", b_text("%s s", b_spread(&took)), "<= 1 s",
              b_median(&took) <= 1);
    b_verdict("NORMAL", "a publisher beside it, longest wait", in_ms(b_median(&waits)),
              in_ms(b_median(&alones)), b_text("%s ms", b_spread(&waits)), "<= 10 ms",
              b_median(&waits) <= 10);
    b_free(&took), b_free(&waits), b_free(&alones);
}

/* ---- overdue in scattered order ------------------------------------------------------------ */

static void scattered(void)
{
    const char *path = b_path("costs");
    crowd c = crowd_of("order.placed", NULL, rows(500000), LIVE);
    eb_bus *bus;
    double alone, wait, rate;
    publisher p;
    int64_t begin;
    locks l;
    c.model.delay_ms = HOUR_MS;
    c.due_ms = scattered_due;
    fill(path, &c);
    bus = open_plain(path, 0, NULL);
    alone = publisher_alone(bus, 500);
    watch(bus, &l);
    B_OK(eb_subscribe(bus, "order.*", on_event, NULL, NULL, NULL));
    publisher_begin(&p, bus);
    begin = b_ns();
    B_OK(eb_start(bus));
    while (ms_since(begin) < 3000 && stats(bus).delivered < c.count) b_sleep_ms(250);
    rate = (double)stats(bus).delivered * 1e3 / ms_since(begin);
    wait = publisher_end(&p);
    b_verdict("NORMAL", b_text("%s overdue, scattered: publisher's wait", short_count(c.count)),
              in_ms(wait), in_ms(alone), b_text("lock %s, %.0f/s", in_ms(l.longest), rate),
              "<= 10 ms", wait <= 10);
    eb_destroy(bus);
}

/* ---- reading the log ----------------------------------------------------------------------- */

/* Page by page; seconds. */
static double read_all(eb_store *store, unsigned statuses, int64_t *count)
{
    eb_event_list list;
    eb_query q;
    int64_t begin = b_ns();
    memset(&q, 0, sizeof q);
    q.limit = 100;
    q.statuses = statuses;
    *count = 0;
    for (;;) {
        size_t n;
        B_OK(eb_log_read(store, &q, &list));
        n = list.count;
        *count += (int64_t)n;
        if (n > 0) q.after_seq = list.items[n - 1].seq;
        eb_event_list_free(&list);
        if (n < 100) return ms_since(begin) / 1e3;
    }
}

static void log_read(void)
{
    const char *path = b_path("costs");
    crowd done = crowd_of("order.placed", NULL, rows(300000), DONE);
    crowd live = crowd_of("parked", NULL, 1000, LIVE), dead = crowd_of("dead", NULL, 1000, DEAD);
    unsigned one;
    eb_bus *bus;
    int64_t count;
    double seconds;
    fill(path, &dead); /* at the beginning: the newest page is far from them */
    fill(path, &done);
    fill(path, &live);
    bus = open_plain(path, 0, NULL);
    seconds = read_all(eb_bus_store(bus), 0, &count);
    b_verdict("NORMAL", b_text("eb_log_read, pages of 100 over %s", short_count(done.count)),
              b_text("%.2f s", seconds), "-", b_text("%.0f/s", (double)count / seconds), "<= 1.5 s",
              count == done.count + 2000 && seconds <= 1.5);
    seconds = read_all(eb_bus_store(bus), 1u << EB_DONE, &count);
    b_verdict("NORMAL", "the same, those that are done", b_text("%.2f s", seconds), "-",
              b_text("%.0f/s", (double)count / seconds), "<= 1.5 s",
              count == done.count && seconds <= 1.5);
    for (one = EB_PENDING; one <= EB_DLQ; one += EB_DLQ - EB_PENDING) {
        seconds = read_all(eb_bus_store(bus), 1u << one, &count);
        b_verdict("NORMAL", b_text("the same, 1k %s of these", one == EB_DLQ ? "dead" : "live"),
                  in_ms(seconds * 1e3), "-", b_text("%lld found", (long long)count), "<= 50 ms",
                  count == 1000 && seconds <= 0.05);
    }
    eb_destroy(bus);
}

/* ---- eb_publish beside what it cannot do without ------------------------------------------- */

typedef struct ping {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int turn, stop;
} ping;

static void *ping_main(void *arg)
{
    ping *p = (ping *)arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (p->turn) {
            p->turn = 0;
            pthread_cond_signal(&p->cond);
        } else
            pthread_cond_wait(&p->cond, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Microseconds for one thread to wake another, there and back halved. */
static double handover_us(int64_t for_ms)
{
    ping p;
    pthread_t thread;
    int64_t begin, n = 0;
    double us;
    memset(&p, 0, sizeof p);
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.cond, NULL);
    if (pthread_create(&thread, NULL, ping_main, &p) != 0) b_die("pthread_create", "failed");
    pthread_mutex_lock(&p.lock);
    for (begin = b_ns(); ms_since(begin) < (double)for_ms; n++) {
        p.turn = 1;
        pthread_cond_signal(&p.cond);
        while (p.turn) pthread_cond_wait(&p.cond, &p.lock);
    }
    us = ms_since(begin) * 1e3 / (double)(2 * n);
    p.stop = 1;
    pthread_cond_signal(&p.cond);
    pthread_mutex_unlock(&p.lock);
    pthread_join(thread, NULL);
    pthread_mutex_destroy(&p.lock);
    pthread_cond_destroy(&p.cond);
    return us;
}

static void publish(void)
{
    eb_bus *bus = open_plain(b_path("costs"), 0, "*");
    b_samples ours = {0}, limit = {0}, ratio = {0}, hand = {0};
    int turn, turns = b_turns(10);
    b_raw raw;
    b_raw_open_lean(&raw, b_path("costs-raw"), EB_DURABLE_NORMAL);
    b_raw_rate(&raw, 0.2);
    for (turn = -1; turn < turns; turn++) {
        double commit = 1e6 / b_raw_rate(&raw, 0.15), us = handover_us(150), each;
        int64_t begin = b_ns(), n;
        for (n = 0; ms_since(begin) < 300; n++)
            B_OK(eb_publish(bus, "order.placed", payload_text, NULL));
        each = ms_since(begin) * 1e3 / (double)n;
        commit = (commit + 1e6 / b_raw_rate(&raw, 0.15)) / 2;
        us = (us + handover_us(150)) / 2;
        if (turn < 0) continue; /* warm up */
        b_add(&ours, each);
        b_add(&hand, us);
        b_add(&limit, 2 * commit + 2 * us);
        b_add(&ratio, (2 * commit + 2 * us) / each);
    }
    printf("   eb_publish %.1f us, two commits and two hand-overs %.1f us (a hand-over %.1f us)\n",
           b_median(&ours), b_median(&limit), b_median(&hand));
    b_verdict("NORMAL", "eb_publish beside 2 commits + 2 hand-overs",
              b_text("%.1f us", b_median(&ours)), b_text("%.1f us", b_median(&limit)),
              b_spread(&ratio), ">= 0.9", b_median(&ratio) >= 0.9);
    b_free(&ours), b_free(&limit), b_free(&ratio), b_free(&hand);
    b_raw_close(&raw);
    eb_destroy(bus);
}

/* ---- the first commits of a file ----------------------------------------------------------- */

enum { FIRST = 1000, WARM = 4000 };

static double post_rate(eb_bus *bus, int n)
{
    int64_t begin = b_ns();
    int i;
    for (i = 0; i < n; i++) B_OK(eb_post(bus, "order.placed", payload_text, NULL));
    return n * 1e3 / ms_since(begin);
}
static double raw_post_rate(b_raw *raw, int n)
{
    int64_t begin = b_ns();
    int i;
    for (i = 0; i < n; i++) b_raw_insert(raw);
    return n * 1e3 / ms_since(begin);
}

static void fresh(void)
{
    b_samples first = {0}, again = {0}, steadies = {0}, raw_first = {0};
    int turn, turns = b_turns(5);
    for (turn = 0; turn < turns; turn++) {
        const char *path = b_path("costs");
        eb_options o = basics(path, 0, EB_DURABLE_FULL);
        double rate, steady;
        eb_bus *bus;
        b_raw raw;
        bus = open_bus(&o, "nobody");
        rate = post_rate(bus, FIRST);
        post_rate(bus, WARM);
        steady = post_rate(bus, FIRST);
        b_add(&first, rate / steady);
        b_add(&steadies, steady);
        eb_destroy(bus);
        bus = open_bus(&o, "nobody");
        rate = post_rate(bus, FIRST);
        post_rate(bus, WARM);
        b_add(&again, rate / post_rate(bus, FIRST));
        eb_destroy(bus);
        b_raw_open_lean(&raw, b_path("costs-raw"), EB_DURABLE_FULL);
        rate = raw_post_rate(&raw, FIRST);
        raw_post_rate(&raw, WARM);
        b_add(&raw_first, rate / raw_post_rate(&raw, FIRST));
        b_raw_close(&raw);
    }
    b_verdict("FULL", b_text("first %d commits of a fresh file", FIRST),
              b_text("%.2f", b_median(&first)), b_text("%.2f", b_median(&raw_first)),
              b_text("%s of steady", b_spread(&first)), ">= 0.85", b_median(&first) >= 0.85);
    b_verdict("FULL", "the same after a restart", b_text("%.2f", b_median(&again)), "-",
              b_text("%s of steady %s", b_spread(&again), b_rate(&steadies)), ">= 0.85",
              b_median(&again) >= 0.85);
    b_free(&first), b_free(&again), b_free(&steadies), b_free(&raw_first);
}

/* ---- a game ---------------------------------------------------------------------------------- */

enum { BUDGET_MS = 2, FRAME_EVENTS = 8 }; /* 500 events/s at 60 frames/s */

/* So many frames: one eb_send, unless there is a backlog, one eb_pump; then one raw commit. A frame
** every 4 ms, not every 17: it is the frame that is measured, not the pause. */
static void frames(eb_bus *bus, b_raw *raw, int count, int backlog, b_samples *frame,
                   b_samples *pump, b_samples *commit)
{
    eb_message m[FRAME_EVENTS];
    int64_t due = b_ns(), begin, middle, next = 0;
    int i, n;
    for (i = 0; i < FRAME_EVENTS; i++) m[i] = message("enemy.moved", NULL, 0);
    for (n = 0; n < count && next >= (backlog ? 0 : -1); n++) {
        begin = b_ns();
        if (!backlog) B_OK(eb_send(bus, m, FRAME_EVENTS, NULL));
        middle = b_ns();
        B_OK(eb_pump(bus, BUDGET_MS, &next));
        b_add(pump, ms_since(middle));
        b_add(frame, ms_since(begin));
        begin = b_ns();
        b_raw_insert(raw);
        b_add(commit, ms_since(begin));
        b_sleep_until(due += 4000000);
    }
}

static void game(void)
{
    eb_options o = basics(b_path("costs"), EB_NONE, EB_DURABLE_NORMAL);
    b_samples frame = {0}, pump = {0}, commit = {0}, slow_frame = {0}, slow_pump = {0};
    double limit, sum = 0;
    size_t i;
    eb_bus *bus;
    b_raw raw;
    int turn;
    o.wal_pages = EB_NONE;
    bus = open_bus(&o, "*");
    b_raw_open_lean(&raw, b_path("costs-raw"), EB_DURABLE_NORMAL);
    b_sql(raw.db, "PRAGMA wal_autocheckpoint = 0");
    frames(bus, &raw, 100, 0, &frame, &pump, &commit);
    b_free(&frame), b_free(&pump), b_free(&commit);
    frames(bus, &raw, (int)rows(2000), 0, &frame, &pump, &commit);
    limit = BUDGET_MS + 2 * b_percentile(&commit, 99.9);
    b_verdict("NORMAL", "a frame: eb_send of 8, eb_pump 2 ms, p99.9",
              in_ms(b_percentile(&frame, 99.9)), in_ms(b_percentile(&commit, 99.9)),
              b_text("p50 %s, max %s", in_ms(b_percentile(&frame, 50)), in_ms(b_max(&frame))),
              b_text("<= %.2f ms", limit), b_percentile(&frame, 99.9) <= limit);
    for (turn = 0; turn < b_turns(3); turn++) {
        send_many(bus, message("enemy.moved", NULL, 0), rows(20000));
        frames(bus, &raw, 5000, 1, &slow_frame, &slow_pump, &commit);
    }
    for (i = 0; i < slow_pump.n; i++) sum += slow_pump.v[i];
    limit = BUDGET_MS + 2 * b_percentile(&commit, 99.9);
    b_verdict("NORMAL", b_text("the same with a backlog of %s, p99.9", short_count(rows(20000))),
              in_ms(b_percentile(&slow_pump, 99.9)), in_ms(b_percentile(&commit, 99.9)),
              b_text("mean %.2f, max %s, %d frames", sum / (double)slow_pump.n,
                     in_ms(b_max(&slow_pump)), (int)slow_pump.n),
              b_text("<= %.2f ms", limit), b_percentile(&slow_pump, 99.9) <= limit);
    b_free(&frame), b_free(&pump), b_free(&commit), b_free(&slow_frame), b_free(&slow_pump);
    b_raw_close(&raw);
    eb_destroy(bus);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct {
    const char *name, *what;
    void (*run)(void);
} list[] = {
    {"unmatched", "events of one key that nobody wants, found on disk", unmatched},
    {"subscribe", "subscriptions that come and go beside parked events", subscribe},
    {"parked", "a million events that nobody wants yet", parked},
    {"stats", "eb_stats_get at a million live events", figures},
    {"capped", "max_pending of a million, at its cap", capped},
    {"onekey", "one ordering key, worker threads", one_key},
    {"due", "delayed, retries, turns of a key", due},
    {"ahead", "delayed events of a key, then some that are not", ahead},
    {"peers", "two publishers in other processes without a pause", peers},
    {"foreign", "half a million delayed by another process", foreign},
    {"retryall", "eb_dlq_retry_all with a pattern", retry_all},
    {"scattered", "half a million overdue in scattered order", scattered},
    {"logread", "the whole log, page by page", log_read},
    {"publish", "eb_publish to done", publish},
    {"fresh", "the first commits of a file", fresh},
    {"game", "frames of a game", game},
};
enum { LIST = sizeof list / sizeof *list };

/* Whether $COSTS, names with commas or spaces between them, has this one; without it: all. */
static int wanted(const char *name)
{
    const char *asked = getenv("COSTS"), *at = asked;
    size_t n = strlen(name);
    while (at && (at = strstr(at, name)) != NULL) {
        if ((at == asked || at[-1] == ',' || at[-1] == ' ') &&
            (!at[n] || at[n] == ',' || at[n] == ' '))
            return 1;
        at += n;
    }
    return !asked || !*asked;
}

int main(int argc, char **argv)
{
    int64_t begin;
    int i;
    self = argv[0];
    if (argc == 4 && strcmp(argv[1], "--child") == 0) return child(argv[2], argv[3]);
    b_heading("costs: what must stay flat");
    b_payload(payload_text, 0);
    for (i = 0; i < LIST; i++) {
        if (!wanted(list[i].name)) continue;
        printf("   %s: %s\n", list[i].name, list[i].what);
        fflush(stdout);
        begin = b_ns();
        list[i].run();
        printf("   (%.1f s)\n", ms_since(begin) / 1e3);
    }
    return 0;
}
