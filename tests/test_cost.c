/* test_cost.c - what an event costs, counted and not timed: commits by SQLite's commit hook, fsyncs
** by the shim of fault/vfs.h, allocations by eb_options.allocator. One thread, an injected clock:
** the figures are the same on every machine. A change that makes one larger is a slower bus.
**
** The second half is about what must not grow with what lies in the file: commits, pages, steps of
** SQLite's machine, at n rows and at some times n. What needs a clock is in bench/costs.c.
**
** What the statements read is in test_plans.c; how often a bus without work wakes up is in
** test_threads.c.
*/
#include "fault/vfs.h"
#include "proc.h"

enum { MANY = 100 };

/* ---- counting -------------------------------------------------------------------------------- */

static struct { int commits, allocated, freed; } cost;

static void *on_resize(void *ptr, size_t size, void *user)
{
    (void)user;
    if (size == 0) {
        cost.freed += ptr != NULL;
        free(ptr);
        return NULL;
    }
    cost.allocated++;
    return realloc(ptr, size);
}
static int on_commit(void *user)
{
    (void)user;
    cost.commits++;
    return 0;
}
static int syncs(void) { return (int)vfs_count("sync"); }

static void count_from_here(void)
{
    memset(&cost, 0, sizeof cost);
    vfs_heal();
}

static int runs;
static eb_result on_event(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    runs++;
    return EB_OK;
}

/* ---- a bus that has been used ---------------------------------------------------------------- */

static eb_bus *bus;
static t_time time_now;
static eb_message batch[MANY];

/* One of everything first: statements are prepared, the WAL has its header, all is in the cache.
** The WAL is far from its first checkpoint. */
static void begin(int durability)
{
    eb_options o = t_options(t_path("cost"));
    int i;
    vfs_install();
    o.vfs = "fault";
    o.workers = EB_NONE;
    o.durability = durability;
    o.clock = t_clock(&time_now);
    o.allocator.resize = on_resize;
    bus = t_open(&o);
    T_MUST(eb_subscribe(bus, "*", on_event, NULL, NULL, NULL) == EB_OK && eb_start(bus) == EB_OK);
    sqlite3_commit_hook(bus->store.writer.handle, on_commit, NULL);
    memset(batch, 0, sizeof batch);
    for (i = 0; i < MANY; i++) {
        batch[i].type = "order.placed";
        batch[i].payload = "{\"order\":42,\"to\":\"somebody\"}";
    }
    T_DO(eb_publish(bus, "order.placed", "{}", NULL));
    T_MUST(eb_send(bus, batch, MANY, NULL) == EB_OK && t_settle(bus) == EB_OK);
    count_from_here();
    runs = 0;
}
static void end(void)
{
    eb_destroy(bus);
    t_path("cost");
}

/* ---- publishing ------------------------------------------------------------------------------ */

TEST post_is_one_commit_and_at_full_one_sync(int durability, int want)
{
    int i;
    begin(durability);
    for (i = 1; i <= MANY / 2; i++) {
        T_OK(eb_post(bus, "order.placed", "{}", NULL));
        ASSERT_EQ(i, cost.commits);
        ASSERT_EQ(i * want, syncs());
    }
    end();
    PASS();
}

TEST batch_is_one_commit_and_at_full_one_sync(int durability, int want)
{
    begin(durability);
    T_OK(eb_send(bus, batch, MANY, NULL));
    ASSERT_EQ(1, cost.commits);
    ASSERT_EQ(want, syncs());
    end();
    PASS();
}

/* A message may ask for more or less than its bus; the most careful of a batch decides. */
TEST durability_of_a_message_decides_about_the_sync(int durability)
{
    begin(durability);
    batch[0].durability = EB_DURABLE_NORMAL;
    T_OK(eb_send(bus, batch, 1, NULL));
    ASSERT_EQ(0, syncs());
    batch[0].durability = EB_DURABLE_FULL;
    T_OK(eb_send(bus, batch, 1, NULL));
    ASSERT_EQ(1, syncs());
    batch[1].durability = EB_DURABLE_NORMAL;
    T_OK(eb_send(bus, batch, 2, NULL));
    ASSERT_EQ(2, syncs());
    ASSERT_EQ(3, cost.commits);
    end();
    PASS();
}

/* What is refused costs nothing on disk. */
TEST refused_message_commits_nothing(void)
{
    begin(EB_DURABLE_FULL);
    batch[MANY - 1].payload = "{";
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, batch, MANY, NULL));
    ASSERT_EQ(0, cost.commits + syncs());
    ASSERT_EQ(cost.allocated, cost.freed);
    end();
    PASS();
}

/* ---- dispatching ----------------------------------------------------------------------------- */

/* Claims and acks of many events share their commits, and none of them is worth an fsync: a lost
** ack is a handler that runs again. */
TEST dispatch_of_many_takes_few_commits_and_no_sync(int durability)
{
    begin(durability);
    T_OK(eb_send(bus, batch, MANY, NULL));
    count_from_here();
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(MANY, runs);
    ASSERT(cost.commits >= 1 && cost.commits <= 3);
    ASSERT_EQ(0, syncs());
    end();
    PASS();
}

/* Publish, claim, ack: each a commit at most, one sync in all. */
TEST publish_takes_three_commits_and_at_full_one_sync(int durability, int want)
{
    int i;
    begin(durability);
    for (i = 0; i < MANY / 4; i++) T_OK(eb_publish(bus, "order.placed", "{}", NULL));
    ASSERT_EQ(MANY / 4, runs);
    ASSERT(cost.commits <= 3 * MANY / 4);
    ASSERT_EQ(want * MANY / 4, syncs());
    end();
    PASS();
}

TEST turn_without_work_writes_nothing(void)
{
    int i;
    begin(EB_DURABLE_FULL);
    for (i = 0; i < 20; i++) {
        T_OK(eb_pump(bus, EB_NONE, NULL));
        t_advance(&time_now, 7);
    }
    ASSERT_EQ(0, cost.commits + syncs() + (int)vfs_count("write"));
    ASSERT_EQ(0, cost.allocated);
    end();
    PASS();
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST event_is_one_allocation_and_its_dispatch_none(void)
{
    int i;
    begin(EB_DURABLE_NORMAL);
    for (i = 1; i <= MANY / 2; i++) {
        T_OK(eb_post(bus, "order.placed", "{\"order\":42}", NULL));
        ASSERT(cost.allocated <= i);
    }
    count_from_here();
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(MANY / 2, runs);
    ASSERT_EQ(0, cost.allocated);
    ASSERT(cost.freed <= MANY / 2);
    end();
    PASS();
}

/* All members of a message lie in that one block. */
TEST full_message_is_one_allocation(void)
{
    begin(EB_DURABLE_NORMAL);
    batch[0].metadata = "{\"trace\":\"1\"}";
    batch[0].ordering_key = "customer-7";
    batch[0].idempotency_key = "order-42";
    T_OK(eb_send(bus, batch, 1, NULL));
    ASSERT(cost.allocated <= 1);
    count_from_here();
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(1, runs);
    ASSERT_EQ(0, cost.allocated);
    end();
    PASS();
}

/* A batch needs two lists of its own. */
TEST batch_is_an_allocation_per_event_and_two(void)
{
    begin(EB_DURABLE_NORMAL);
    T_OK(eb_send(bus, batch, MANY, NULL));
    ASSERT(cost.allocated <= MANY + 2);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(MANY, runs);
    ASSERT(cost.allocated <= MANY + 2);
    ASSERT_EQ(cost.allocated, cost.freed);
    end();
    PASS();
}

/* ---- what must stay flat: counting ----------------------------------------------------------- */

/* Steps of SQLite's machine in all statements of the bus since the last call, and the most of them
** in one transaction. */
static int64_t steps_since, most_steps;
static int commit_ms; /* what a commit takes by the injected clock */

static int64_t steps_of(ebi_db *db)
{
    int64_t sum = 0;
    int i;
    for (i = 0; i < EBI_SQL_COUNT; i++)
        if (db->stmts[i]) sum += sqlite3_stmt_status(db->stmts[i], SQLITE_STMTSTATUS_VM_STEP, 1);
    return sum;
}
static int on_weighed_commit(void *user)
{
    int64_t n = steps_of(&((eb_bus *)user)->store.writer);
    steps_since += n;
    if (n > most_steps) most_steps = n;
    cost.commits++;
    t_advance(&time_now, commit_ms);
    return 0;
}
static int64_t steps(void)
{
    int64_t n = steps_since + steps_of(&bus->store.writer) + steps_of(&bus->store.reader);
    steps_since = most_steps = 0;
    return n;
}
static void weigh_from_here(void)
{
    steps();
    count_from_here();
    runs = 0;
}

/* ---- what must stay flat: buses and rows ----------------------------------------------------- */

static eb_options flat_options(const char *path)
{
    eb_options o = t_options(path);
    vfs_install();
    o.vfs = "fault";
    o.workers = EB_NONE;
    o.clock = t_clock(&time_now);
    o.on_unmatched = EB_UNMATCHED_KEEP;
    commit_ms = 0;
    return o;
}

/* Opens and, with a pattern, starts with a handler for it: the first pump is still to come. */
static void flat_open(const eb_options *o, const char *pattern)
{
    bus = t_open(o);
    sqlite3_commit_hook(bus->store.writer.handle, on_weighed_commit, bus);
    if (pattern) {
        t_subscribe(bus, pattern, on_event, NULL);
        T_DO(eb_start(bus));
    }
    weigh_from_here();
}

static eb_message event_of(const char *type, const char *key, int64_t delay_ms)
{
    eb_message m = {0};
    m.type = type;
    m.payload = "{}";
    m.ordering_key = key;
    m.delay_ms = delay_ms;
    return m;
}
static void send_many(eb_bus *to, eb_message m, int n)
{
    static eb_message many[500];
    int i, now;
    for (i = 0; i < 500; i++) many[i] = m;
    for (; n > 0; n -= now) {
        now = n < 500 ? n : 500;
        T_DO(eb_send(to, many, (size_t)now, NULL));
    }
}

/* n events in a file that nobody dispatched yet. */
static void found_on_disk(const eb_options *o, eb_message m, int n)
{
    bus = t_open(o);
    send_many(bus, m, n);
    eb_destroy(bus);
}
static void pump(void) { T_MUST(eb_pump(bus, EB_NONE, NULL) == EB_OK); }

/* ---- what must stay flat: what nobody wants -------------------------------------------------- */

TEST unmatched_events_take_few_commits_and_steps_to_pass_over(const char *key)
{
    int64_t few = 0, n;
    int i;
    for (i = 0; i < 2; i++) {
        eb_options o = flat_options(t_path("cost"));
        found_on_disk(&o, event_of("nobody", key, 0), (int)(n = 2000 << i));
        flat_open(&o, "wanted");
        pump();
        T_OK(eb_drain(bus, 0));
        P_WITHIN(0, n * 2 / 100, cost.commits);
        if (i == 0) few = steps();
        else P_WITHIN(1, few * 5 / 2, steps());
        end();
    }
    PASS();
}

TEST looking_again_at_what_nobody_wants_is_free(const char *key)
{
    eb_options o = flat_options(t_path("cost"));
    eb_id id;
    int i;
    found_on_disk(&o, event_of("nobody", key, 0), 2000);
    flat_open(&o, "wanted");
    pump();
    T_OK(eb_drain(bus, 0)); /* prepares what it needs */
    weigh_from_here();
    T_OK(eb_drain(bus, 0));
    P_WITHIN(0, 100, steps());
    T_OK(eb_subscribe(bus, "unrelated", on_event, NULL, NULL, &id));
    T_OK(eb_unsubscribe(bus, id.str));
    steps();
    for (i = 0; i < 10; i++) { /* each: one more subscription, and one event */
        T_OK(eb_subscribe(bus, "unrelated", on_event, NULL, NULL, &id));
        t_post(bus, "wanted", "{}");
        pump();
        T_OK(eb_unsubscribe(bus, id.str));
        ASSERT_EQ(i + 1, runs);
    }
    P_WITHIN(1, 10 * 1000, steps());
    end();
    PASS();
}

static int late_runs;
static eb_result on_late(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    late_runs++;
    return EB_OK;
}

/* More types than the bus remembers: each new subscription may be for one of them. */
TEST unrelated_subscriptions_neither_begin_a_lap_anew_nor_hold_up_others(void)
{
    eb_options o = flat_options(t_path("cost"));
    char type[20];
    int i, rounds;
    bus = t_open(&o);
    for (i = 0; i < 100; i++) {
        snprintf(type, sizeof type, "nobody.%d", i);
        send_many(bus, event_of(type, NULL, 0), 50);
    }
    send_many(bus, event_of("late", NULL, 0), 1);
    eb_destroy(bus);
    flat_open(&o, "wanted");
    pump();
    late_runs = 0;
    t_subscribe(bus, "late", on_late, NULL);
    for (rounds = 1; rounds <= 20 && late_runs == 0; rounds++) {
        snprintf(type, sizeof type, "unrelated.%d", rounds);
        t_subscribe(bus, type, on_event, NULL);
        t_post(bus, "wanted", "{}");
        T_OK(eb_pump(bus, 0, NULL));
    }
    ASSERT_EQ(1, late_runs);
    ASSERT(runs >= rounds - 2);
    end();
    PASS();
}

/* ---- what must stay flat: one transaction ---------------------------------------------------- */

enum { PARKED, PARKED_KEY, WANTED, WANTED_KEY, DELAYED, DELAYED_KEY, OVERDUE, OVERDUE_KEY, FOREIGN,
       FOREIGN_KEY, KINDS };
static const char *const kind_names[] = {
    "parked",  "parked_of_a_key",  "wanted",  "wanted_of_a_key",    "delayed", "delayed_of_a_key",
    "overdue", "overdue_of_a_key", "delayed_elsewhere", "delayed_elsewhere_of_a_key"};

/* The most steps in one transaction, from the start until all is done that can be. */
static int64_t longest_transaction(int kind, int n)
{
    eb_options o = flat_options(t_path("cost"));
    int late = kind >= DELAYED, elsewhere = kind == FOREIGN || kind == FOREIGN_KEY;
    eb_message m = event_of(kind <= PARKED_KEY ? "nobody" : "wanted", kind & 1 ? "k" : NULL,
                            late ? 3600000 : 0);
    eb_bus *other = NULL;
    int64_t most;
    int i;
    if (!elsewhere) found_on_disk(&o, m, n);
    if (kind == OVERDUE || kind == OVERDUE_KEY) t_advance(&time_now, 3600001);
    flat_open(&o, "wanted");
    if (elsewhere) {
        pump();
        other = t_open(&o);
        send_many(other, m, n);
        weigh_from_here();
        for (i = 0; i < 3; i++) { /* and once more for each commit of theirs */
            pump();
            send_many(other, m, 1);
        }
        eb_destroy(other);
    }
    pump();
    most = most_steps;
    T_MUST(runs == (kind == WANTED || kind == WANTED_KEY || kind == OVERDUE || kind == OVERDUE_KEY
                        ? n : 0));
    end();
    return most;
}

/* A publisher waits for it, and other processes do. */
TEST transaction_of_a_claim_is_bounded(int kind)
{
    int64_t few = longest_transaction(kind, 3000);
    P_WITHIN(1, few * 3 / 2, longest_transaction(kind, 9000));
    PASS();
}

TEST transaction_of_a_retry_of_many_is_bounded(void)
{
    int64_t few = 0, count;
    int i;
    for (i = 0; i < 2; i++) {
        eb_options o = flat_options(t_path("cost"));
        eb_query q = {0};
        o.on_unmatched = EB_UNMATCHED_DLQ;
        flat_open(&o, "wanted");
        send_many(bus, event_of("a.dead", NULL, 0), i ? 6000 : 2000);
        send_many(bus, event_of("b.dead", NULL, 0), i ? 6000 : 2000);
        q.pattern = "a.*";
        weigh_from_here();
        T_OK(eb_dlq_retry_all(eb_bus_store(bus), &q, &count));
        T_EQ(i ? 6000 : 2000, count);
        ASSERT(cost.commits <= (i ? 6000 : 2000) / 100);
        if (i == 0) few = most_steps;
        else P_WITHIN(1, few * 5 / 4, most_steps);
        end();
    }
    PASS();
}

/* ---- what must stay flat: events ------------------------------------------------------------- */

TEST events_of_one_key_share_commits(void)
{
    eb_options o = flat_options(t_path("cost"));
    flat_open(&o, "wanted");
    send_many(bus, event_of("wanted", "k", 0), 1000);
    weigh_from_here();
    pump();
    ASSERT_EQ(1000, runs);
    P_WITHIN(1, 50, cost.commits);
    end();
    PASS();
}

/* Delayed ones, or those that take turns with others of their key. */
TEST due_events_share_commits_and_cost_the_same_each(const char *key)
{
    int64_t few = 0;
    int i, n;
    for (i = 0; i < 2; i++) {
        eb_options o = flat_options(t_path("cost"));
        flat_open(&o, "wanted");
        send_many(bus, event_of("wanted", key, 1000), n = i ? 6000 : 2000);
        pump();
        t_advance(&time_now, 1001);
        weigh_from_here();
        pump();
        ASSERT_EQ(n, runs);
        P_WITHIN(1, n / 20, cost.commits);
        if (i == 0) few = steps();
        else P_WITHIN(1, few * 3 * 5 / 4, steps());
        end();
    }
    PASS();
}

TEST event_behind_delayed_ones_of_its_key_costs_the_same_whatever_their_number(void)
{
    int64_t few = 0;
    int i, k;
    for (i = 0; i < 2; i++) {
        eb_options o = flat_options(t_path("cost"));
        flat_open(&o, "wanted");
        send_many(bus, event_of("wanted", "k", 3600000), i ? 5000 : 50);
        pump();
        send_many(bus, event_of("wanted", "k", 0), 1);
        pump();
        weigh_from_here();
        for (k = 0; k < 20; k++) {
            send_many(bus, event_of("wanted", "k", 0), 1);
            pump();
        }
        ASSERT_EQ(20, runs);
        if (i == 0) few = steps();
        else P_WITHIN(1, few * 5 / 4, steps());
        end();
    }
    PASS();
}

/* Pages of the file that the writer looked at: a count of rows is one step of the machine. */
static int pages(void)
{
    static const int kinds[] = {SQLITE_DBSTATUS_CACHE_HIT, SQLITE_DBSTATUS_CACHE_MISS};
    int i, now, high, sum = 0;
    for (i = 0; i < 2; i++) {
        T_MUST(sqlite3_db_status(bus->store.writer.handle, kinds[i], &now, &high, 1) == SQLITE_OK);
        sum += now;
    }
    return sum;
}

/* At the cap (room for 50), and far from it: 20,000 rows are some 300 pages. The clock stands
** still. The cap may be exceeded by 1,000. */
TEST max_pending_is_not_counted_for_each_publish(int room)
{
    int i, k, n, few = 0, stored;
    for (i = 0; i < 2; i++) {
        eb_options o = flat_options(t_path("cost"));
        o.max_pending = (n = i ? 20000 : 100) + room;
        found_on_disk(&o, event_of("nobody", NULL, 0), n);
        flat_open(&o, NULL);
        pages();
        for (k = stored = 0; k < 200; k++) stored += eb_post(bus, "nobody", "{}", NULL) == EB_OK;
        P_WITHIN(room < 200 ? room : 200, 200, stored);
        if (i == 0) few = pages();
        else P_WITHIN(1, few + 200 * 25, pages());
        end();
    }
    PASS();
}

/* What others finished makes room. */
TEST max_pending_sees_the_room_that_others_make(void)
{
    eb_options o = flat_options(t_path("cost"));
    const char *path = o.path;
    int k, stored = 0;
    o.max_pending = 2000;
    found_on_disk(&o, event_of("nobody", NULL, 0), 2000);
    flat_open(&o, NULL);
    while (stored++ < 1000 && eb_post(bus, "nobody", "{}", NULL) == EB_OK) continue;
    T_IS(EB_ERR_FULL, eb_post(bus, "nobody", "{}", NULL));
    T_MUST(t_sql(path, "DELETE FROM deliveries", NULL, 0) == SQLITE_OK);
    for (k = 0; k < 100 && eb_post(bus, "nobody", "{}", NULL) != EB_OK; k++) continue;
    P_WITHIN(0, 20, k);
    end();
    PASS();
}

/* ---- what must stay flat: looking ------------------------------------------------------------ */

/* A started bus knows how many there are; it counts when somebody else has written. */
TEST stats_of_a_started_bus_cost_the_same_whatever_lies_in_the_file(void)
{
    int64_t few = 0;
    int i;
    for (i = 0; i < 2; i++) {
        eb_options o = flat_options(t_path("cost"));
        eb_stats s;
        found_on_disk(&o, event_of("nobody", NULL, 0), i ? 5000 : 50);
        flat_open(&o, "wanted");
        pump();
        send_many(bus, event_of("wanted", NULL, 3600000), 10);
        T_OK(eb_stats_get(eb_bus_store(bus), &s));
        weigh_from_here();
        T_OK(eb_stats_get(eb_bus_store(bus), &s));
        T_EQ(i ? 5010 : 60, s.pending);
        if (i == 0) few = steps();
        else P_WITHIN(1, few * 3 / 2, steps());
        ASSERT_EQ(0, cost.commits);
        end();
    }
    PASS();
}

/* Page by page through all of it; steps in the first and in the last one are the same. */
TEST page_of_the_log_costs_what_it_shows(unsigned statuses)
{
    eb_options o = flat_options(t_path("cost"));
    int64_t first = 0, last = 0;
    eb_event_list list;
    eb_query q = {0};
    int pages = 0;
    size_t n;
    flat_open(&o, "wanted");
    send_many(bus, event_of("nobody", NULL, 0), 1000);
    send_many(bus, event_of("wanted", NULL, 0), 4000);
    pump();
    send_many(bus, event_of("nobody", NULL, 0), 1000);
    q.statuses = statuses;
    do {
        steps();
        T_OK(eb_log_read(eb_bus_store(bus), &q, &list));
        n = list.count;
        if (n == 100) {
            q.after_seq = list.items[n - 1].seq;
            last = steps();
            if (pages++ == 0) first = last;
        }
        eb_event_list_free(&list);
    } while (n == 100);
    ASSERT_EQ(statuses ? 20 : 60, pages);
    P_WITHIN(1, 100 * 120, first);
    P_WITHIN(1, first * 3 / 2, last);
    end();
    PASS();
}

/* A bound value that could make a partial index fit has SQLite plan the statement anew, at each
** run. (Pragmas it always does.) */
static int prepared_again(ebi_db *db, int reset)
{
    int i, n, sum = 0;
    for (i = 0; i < EBI_SQL_COUNT; i++) {
        if (!db->stmts[i] || strncmp(ebi_sql_text[i], "PRAGMA", 6) == 0) continue;
        n = sqlite3_stmt_status(db->stmts[i], SQLITE_STMTSTATUS_REPREPARE, reset);
        if (n > 1 && !reset) fprintf(stderr, "\n%d times: %s\n", n, ebi_sql_text[i]);
        sum += n > 1; /* once: the tables were made after it was prepared */
    }
    return sum;
}
static eb_result on_outcome(eb_delivery *d, void *user)
{
    static int turn;
    (void)user;
    if (strcmp(d->event->type, "late") == 0 && (++turn & 1)) return eb_snooze(d, 5);
    if (strcmp(d->event->type, "bad") == 0)
        return d->attempt == 1 ? eb_fail(d, "once") : eb_reject(d, "twice");
    return EB_OK;
}

TEST no_statement_is_prepared_again(const char *key)
{
    static const char *const types[] = {"wanted", "late", "bad", "nobody"};
    eb_options o = flat_options(t_path("cost"));
    eb_event_list list;
    eb_stats s;
    int64_t count;
    int i, k;
    flat_open(&o, NULL);
    t_subscribe(bus, "wanted", on_event, NULL);
    t_subscribe(bus, "late", on_outcome, NULL);
    t_subscribe(bus, "bad", on_outcome, NULL);
    T_OK(eb_start(bus));
    for (i = 0; i < 6; i++) {
        if (i == 1) prepared_again(&bus->store.writer, 1), prepared_again(&bus->store.reader, 1);
        for (k = 0; k < 4; k++) {
            send_many(bus, event_of(types[k], key, 0), 5);
            send_many(bus, event_of(types[k], key, 10), 5);
        }
        pump();
        t_advance(&time_now, 20);
        pump();
        t_advance(&time_now, 20);
        pump();
        T_OK(eb_dlq_list(eb_bus_store(bus), NULL, &list));
        eb_event_list_free(&list);
        T_OK(eb_log_read(eb_bus_store(bus), NULL, &list));
        eb_event_list_free(&list);
        T_OK(eb_dlq_retry_all(eb_bus_store(bus), NULL, &count));
        T_OK(eb_stats_get(eb_bus_store(bus), &s));
        T_OK(eb_drain(bus, 1000));
    }
    T_EQ(0, prepared_again(&bus->store.writer, 0) + prepared_again(&bus->store.reader, 0));
    end();
    PASS();
}

/* ---- what must stay flat: the WAL, and a frame ----------------------------------------------- */

/* A WAL that grows has its length synced with each commit: at FULL it is made long in one go. */
TEST wal_of_a_started_bus_does_not_grow_by_the_commit_at_full(void)
{
    eb_options o = flat_options(t_path("cost"));
    eb_stats early, late;
    int i;
    o.durability = EB_DURABLE_FULL;
    flat_open(&o, "wanted");
    for (i = 0; i < 120; i++) t_post(bus, "wanted", "{}");
    T_OK(eb_stats_get(eb_bus_store(bus), &early));
    for (i = 0; i < 200; i++) t_post(bus, "wanted", "{}");
    T_OK(eb_stats_get(eb_bus_store(bus), &late));
    T_EQ(late.wal_bytes, early.wal_bytes);
    end();
    PASS();
}

/* Each commit takes a millisecond of the injected clock, handlers take none. */
TEST budget_of_a_pump_counts_its_commits(void)
{
    eb_options o = flat_options(t_path("cost"));
    int64_t next;
    int i;
    o.wal_pages = EB_NONE;
    flat_open(&o, "wanted");
    send_many(bus, event_of("wanted", NULL, 0), 4000);
    pump();
    send_many(bus, event_of("wanted", NULL, 0), 4000);
    commit_ms = 1;
    for (i = 0; i < 4; i++) {
        weigh_from_here();
        T_OK(eb_pump(bus, 2, &next));
        T_EQ(0, next);
        ASSERT(runs >= 1);
        P_WITHIN(1, 3, cost.commits); /* the last one is that of the acks */
    }
    end();
    PASS();
}

/* With wal_pages = EB_NONE nothing is synced in a frame, however many there are. */
TEST frames_without_checkpoints_sync_nothing(void)
{
    eb_options o = flat_options(t_path("cost"));
    int i;
    o.wal_pages = EB_NONE;
    flat_open(&o, "wanted");
    send_many(bus, event_of("wanted", NULL, 0), 8);
    pump();
    weigh_from_here();
    for (i = 0; i < 1500; i++) {
        send_many(bus, event_of("wanted", NULL, 0), 8);
        T_OK(eb_pump(bus, 2, NULL));
    }
    ASSERT_EQ(1500 * 8, runs);
    ASSERT_EQ(0, syncs());
    P_WITHIN(1500, 3 * 1500, cost.commits);
    T_OK(eb_checkpoint(eb_bus_store(bus)));
    ASSERT(syncs() > 0);
    end();
    PASS();
}

static void stays_flat(void)
{
    static const char *const keys[] = {NULL, "k"};
    int i;
    for (i = 0; i < 2; i++) {
        greatest_set_test_suffix(i ? "of_a_key" : "without_a_key");
        RUN_TESTp(no_statement_is_prepared_again, keys[i]);
        greatest_set_test_suffix(i ? "of_a_key" : "without_a_key");
        RUN_TESTp(unmatched_events_take_few_commits_and_steps_to_pass_over, keys[i]);
        greatest_set_test_suffix(i ? "of_a_key" : "without_a_key");
        RUN_TESTp(looking_again_at_what_nobody_wants_is_free, keys[i]);
        greatest_set_test_suffix(i ? "of_a_key" : "without_a_key");
        RUN_TESTp(due_events_share_commits_and_cost_the_same_each, keys[i]);
    }
    RUN_TEST(unrelated_subscriptions_neither_begin_a_lap_anew_nor_hold_up_others);
    for (i = 0; i < KINDS; i++) {
        greatest_set_test_suffix(kind_names[i]);
        RUN_TESTp(transaction_of_a_claim_is_bounded, i);
    }
    RUN_TEST(transaction_of_a_retry_of_many_is_bounded);
    RUN_TEST(events_of_one_key_share_commits);
    RUN_TEST(event_behind_delayed_ones_of_its_key_costs_the_same_whatever_their_number);
    RUN_TESTp(max_pending_is_not_counted_for_each_publish, 1000);
    RUN_TESTp(max_pending_is_not_counted_for_each_publish, 50);
    RUN_TEST(max_pending_sees_the_room_that_others_make);
    RUN_TEST(stats_of_a_started_bus_cost_the_same_whatever_lies_in_the_file);
    RUN_TESTp(page_of_the_log_costs_what_it_shows, 0);
    RUN_TESTp(page_of_the_log_costs_what_it_shows, 1u << EB_PENDING);
    RUN_TEST(wal_of_a_started_bus_does_not_grow_by_the_commit_at_full);
    RUN_TEST(budget_of_a_pump_counts_its_commits);
    RUN_TEST(frames_without_checkpoints_sync_nothing);
}

GREATEST_MAIN_DEFS();
int main(int argc, char **argv)
{
    static const struct { int level, syncs; const char *name; } levels[] = {
        {EB_DURABLE_FULL, 1, "full"}, {EB_DURABLE_NORMAL, 0, "normal"}, {EB_DURABLE_OFF, 0, "off"}};
    size_t i;
    GREATEST_MAIN_BEGIN();
    vfs_no_sync = 1; /* they are counted all the same */
    for (i = 0; i < sizeof levels / sizeof *levels; i++) {
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(post_is_one_commit_and_at_full_one_sync, levels[i].level, levels[i].syncs);
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(batch_is_one_commit_and_at_full_one_sync, levels[i].level, levels[i].syncs);
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(dispatch_of_many_takes_few_commits_and_no_sync, levels[i].level);
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(publish_takes_three_commits_and_at_full_one_sync, levels[i].level,
                  levels[i].syncs);
    }
    RUN_TESTp(durability_of_a_message_decides_about_the_sync, EB_DURABLE_FULL);
    RUN_TESTp(durability_of_a_message_decides_about_the_sync, EB_DURABLE_NORMAL);
    RUN_TEST(refused_message_commits_nothing);
    RUN_TEST(turn_without_work_writes_nothing);
    RUN_TEST(event_is_one_allocation_and_its_dispatch_none);
    RUN_TEST(full_message_is_one_allocation);
    RUN_TEST(batch_is_an_allocation_per_event_and_two);
    stays_flat();
    GREATEST_MAIN_END();
}
