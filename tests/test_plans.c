/* test_plans.c - how SQLite runs our statements: by key or by the index meant for them. None walks
** through a table that grows for ever, unless it is named below with the reason. */
#include "test.h"
#include "proc.h"

/* ---- every statement, as the bus itself prepares it ------------------------------------------ */

#define NAME(name, text) #name,
static const char *const names[] = {EBI_SQL_LIST(NAME)};
#undef NAME

/* Those that may walk, and through what. An entry that is not needed fails as well. */
static const struct {
    const char *name, *table, *why;
} walkers[] = {
    {"LOG_READ", "event_log", "a page of the log: from after_seq until the page is full"},
    {"LOG_BACK", "event_log", "the same from its end"},
    {"LOG_COUNT_STATUS", "event_log", "its total counts all that match"},
    {"LOST_READ", "dead_letters", "a page of the dead by seq: until the page is full"},
    {"LOST_BACK", "dead_letters", "the same from its end"},
    {"LOST_TOTAL", "dead_letters", "its total counts all that match"},
    {"DLQ_SEQS", "dead_letters", "a snapshot of all that match, once per eb_dlq_retry_all"},
    {"LOG_COUNT", "event_log", "its total counts all that match"},
    {"DLQ_READ", "dead_letters", "newest first, along the index, until the page is full"},
    {"DLQ_COUNT", "dead_letters", "its total counts all that match"},
    {"DLQ_COUNT_ALL", "dead_letters", "the number of dead letters is kept nowhere"},
    {"DLQ_OLD", "dead_letters", "a purge: oldest first, until the chunk is full"},
    {"DLQ_OLD_DEAD", "dead_letters", "a purge by death is rare: no index for it"},
    {"STATS_DEAD", "dead_letters", "the number of dead letters is kept nowhere"},
};
enum { WALKERS = sizeof walkers / sizeof *walkers };

/* Partial indexes are used only if the statement repeats their condition: who needs which. */
static const struct {
    const char *prefix, *how, *index;
} indexed[] = {
    {"DUE", "SEARCH", "deliveries_due"},
    {"NEXT_DUE", "SEARCH", "deliveries_due"},
    {"SUSPECT", "SEARCH", "deliveries_apart"},
    {"BY_HAND", "SEARCH", "deliveries_apart"},
    {"KEY_BY_HAND", "SEARCH", "deliveries_apart"},
    {"KEY_DUE", "SEARCH", "deliveries_later"},
    {"KEY_AGAIN", "SEARCH", "deliveries_line"},
    {"KEY_LINE", "SEARCH", "deliveries_line"},
    {"KEY_WAITS", "SEARCH", "deliveries_line"},
    {"KEY_RING", "SEARCH", "deliveries_line"},
    {"UNFINISHED", "SEARCH", "deliveries_due"},
    {"ANY_APART", "SEARCH", "deliveries_apart"},
    {"KNOWN_KEY", "SEARCH", "event_log_key"},
    {"DLQ_READ", "SCAN", "dead_letters_created"}, /* in its order, until the page is full */
};

/* The plan of statement number i, one line for each step; "" for what has none. */
static const char *plan_of(eb_bus *bus, int i, char *buf, size_t cap)
{
    sqlite3_stmt *s = ebi_db_stmt(&bus->store, &bus->store.writer, i);
    size_t n = 0;
    buf[0] = 0;
    if (!s) {
        fprintf(stderr, "%s: %s\n", names[i], sqlite3_errmsg(bus->store.writer.handle));
        abort();
    }
    T_MUST(sqlite3_stmt_explain(s, 2) == SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW) {
        n += (size_t)snprintf(buf + n, cap - n, "%s\n", (const char *)sqlite3_column_text(s, 3));
        T_MUST(n < cap);
    }
    sqlite3_reset(s);
    T_MUST(sqlite3_stmt_explain(s, 0) == SQLITE_OK);
    return buf;
}

/* The table, without its namespace, that a plan calls `name`: itself, or what the statement calls
** so with AS. */
static void table_of(int i, const char *prefix, const char *name, char *table, size_t cap)
{
    const char *sql = ebi_sql_text[i], *at = sql, *from;
    size_t len = strlen(name);
    while ((at = strstr(at, " AS ")) != NULL) {
        const char *alias = at + 4;
        int same = strncmp(alias, name, len) == 0;
        if (same && !((alias[len] >= 'a' && alias[len] <= 'z') || alias[len] == '_')) {
            for (from = at; from > sql && from[-1] != '@' && from[-1] != ' '; from--) continue;
            if (from > sql && from[-1] == '@') {
                snprintf(table, cap, "%.*s", (int)(at - from), from);
                return;
            }
        }
        at = alias;
    }
    len = strlen(prefix);
    snprintf(table, cap, "%s", strncmp(name, prefix, len) == 0 ? name + len : name);
}

static int grows_for_ever(const char *table)
{
    return strcmp(table, "event_log") == 0 || strcmp(table, "finished") == 0 ||
           strcmp(table, "dead_letters") == 0;
}

/* 1 if a line of a plan reads more of the table than the rows of one key. */
static int walks(const char *line)
{
    const char *by = strchr(line, '(');
    if (strncmp(line, "SCAN ", 5) == 0) return 1;
    if (!by) return 0; /* the largest or smallest of an index */
    return !strstr(by, "rowid=?") && !strstr(by, "seq=?") && !strstr(by, "idempotency_key=?");
}

/* The table through which a plan walks, or "". */
static void walked(int i, const char *prefix, char *plan, char *table, size_t cap)
{
    char *line, *rest = plan, name[100];
    table[0] = 0;
    while (*rest && !table[0]) {
        line = rest;
        rest = strchr(line, '\n');
        *rest++ = 0;
        if (sscanf(line, "SCAN %99s", name) != 1 && sscanf(line, "SEARCH %99s", name) != 1)
            continue;
        table_of(i, prefix, name, table, cap);
        if (!grows_for_ever(table) || !walks(line)) table[0] = 0;
    }
}

static eb_bus *fresh(const char *path, const char *ns)
{
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    o.ns = ns;
    return t_open(&o);
}

TEST no_statement_walks_through_what_grows_for_ever(const char *ns)
{
    eb_bus *bus = fresh(t_path("walks"), ns);
    char plan[3000], table[100];
    int i, k, used[WALKERS] = {0}, wrong = 0;
    for (i = 0; i < EBI_SQL_COUNT; i++) {
        plan_of(bus, i, plan, sizeof plan);
        walked(i, bus->store.place.prefix, plan, table, sizeof table);
        if (!table[0]) continue;
        for (k = 0; k < WALKERS; k++)
            if (strcmp(walkers[k].name, names[i]) == 0 && strcmp(walkers[k].table, table) == 0)
                break;
        if (k < WALKERS) {
            used[k] = 1;
        } else {
            fprintf(stderr, "\n%s walks through %s:\n%s\n", names[i], table,
                    plan_of(bus, i, plan, sizeof plan));
            wrong++;
        }
    }
    for (k = 0; k < WALKERS; k++)
        if (!used[k]) {
            fprintf(stderr, "\n%s does not walk through %s (any more): take it off the list\n",
                    walkers[k].name, walkers[k].table);
            wrong++;
        }
    T_EQ(0, wrong);
    eb_destroy(bus);
    PASS();
}

TEST no_statement_sorts(const char *ns)
{
    eb_bus *bus = fresh(t_path("sorts"), ns);
    char plan[3000];
    int i, wrong = 0;
    for (i = 0; i < EBI_SQL_COUNT; i++) {
        plan_of(bus, i, plan, sizeof plan);
        if (!strstr(plan, "TEMP B-TREE") && !strstr(plan, "AUTOMATIC")) continue;
        fprintf(stderr, "\n%s sorts or makes an index of its own:\n%s\n", names[i], plan);
        wrong++;
    }
    T_EQ(0, wrong);
    eb_destroy(bus);
    PASS();
}

/* 1 if a line of the plan begins with one and goes on to the other. */
static int uses(const char *plan, const char *how, const char *index)
{
    const char *line, *end, *hit;
    for (line = plan; *line; line = end + 1) {
        end = strchr(line, '\n');
        hit = strstr(line, index);
        if (strncmp(line, how, strlen(how)) == 0 && hit && hit < end) return 1;
    }
    return 0;
}

TEST partial_indexes_are_used_by_those_that_need_them(const char *ns)
{
    eb_bus *bus = fresh(t_path("indexed"), ns);
    char plan[3000], index[200];
    size_t k;
    int i, wrong = 0;
    for (k = 0; k < sizeof indexed / sizeof *indexed; k++) {
        int found = 0;
        snprintf(index, sizeof index, "INDEX %s%s", bus->store.place.prefix, indexed[k].index);
        for (i = 0; i < EBI_SQL_COUNT; i++) {
            size_t len = strlen(indexed[k].prefix);
            if (strncmp(names[i], indexed[k].prefix, len) != 0) continue;
            if (indexed[k].prefix[len - 1] != '_' && names[i][len]) continue;
            found++;
            if (uses(plan_of(bus, i, plan, sizeof plan), indexed[k].how, index)) continue;
            fprintf(stderr, "\n%s without %s:\n%s\n", names[i], index, plan);
            wrong++;
        }
        if (!found) fprintf(stderr, "\nno statement is called %s...\n", indexed[k].prefix);
        wrong += !found;
    }
    T_EQ(0, wrong);
    eb_destroy(bus);
    PASS();
}

/* ---- what it costs, counted in steps of SQLite's machine ------------------------------------- */

static int64_t steps_of_db(ebi_db *db)
{
    int64_t sum = 0;
    int i;
    for (i = 0; i < EBI_SQL_COUNT; i++)
        if (db->stmts[i]) sum += sqlite3_stmt_status(db->stmts[i], SQLITE_STMTSTATUS_VM_STEP, 1);
    return sum;
}

/* Steps of all statements since the last call. */
static int64_t steps(eb_bus *bus)
{
    return steps_of_db(&bus->store.writer) + steps_of_db(&bus->store.reader);
}

static eb_result does(eb_delivery *d, void *user)
{
    (void)user;
    return d->event->type[0] == 'b' ? eb_reject(d, "bad") : EB_OK;
}

/* Started, with handlers for two types. */
static eb_bus *working(const eb_options *o)
{
    eb_bus *bus = t_open(o);
    t_subscribe(bus, "ok", does, NULL);
    t_subscribe(bus, "bad", does, NULL);
    T_DO(eb_start(bus));
    return bus;
}

/* Stores n events of a type, with a delay if given, and runs what is due. */
static void many(eb_bus *bus, const char *type, int n, int64_t delay_ms)
{
    static eb_message m[2000];
    int i;
    T_MUST(n <= 2000);
    memset(m, 0, sizeof m);
    for (i = 0; i < n; i++) {
        m[i].type = type;
        m[i].delay_ms = delay_ms;
    }
    T_DO(eb_send(bus, m, (size_t)n, NULL));
    T_DO(eb_pump(bus, EB_NONE, NULL));
}

/* Ten events through all of their life, one of them dead, one keyed, one with an idempotency key,
** one that had to wait for its time. Returns what that cost. */
static int64_t ten_events(eb_bus *bus)
{
    static int round;
    eb_message m = {0};
    char key[20];
    int i;
    steps(bus);
    snprintf(key, sizeof key, "key-%d", round++);
    for (i = 0; i < 10; i++) {
        m.type = i == 9 ? "bad" : "ok";
        m.ordering_key = i == 8 ? "k" : NULL;
        m.idempotency_key = i == 7 ? key : NULL;
        m.deliver_at_ms = i == 6 ? 1 : 0; /* long ago */
        T_DO(eb_send(bus, &m, 1, NULL));
        T_DO(eb_pump(bus, 0, NULL));
    }
    return steps(bus);
}

TEST life_of_an_event_costs_the_same_whatever_lies_in_the_file(void)
{
    t_time t;
    eb_options o = t_timed(t_path("cost"), &t);
    eb_bus *bus;
    int64_t small;
    int i;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    bus = working(&o);
    ten_events(bus); /* prepares what is needed */
    small = ten_events(bus);
    ASSERT(small > 100);
    for (i = 0; i < 5; i++) {
        if (i == 0) many(bus, "ok", 2000, 0);        /* finished ones */
        if (i == 1) many(bus, "bad", 2000, 0);       /* dead ones */
        if (i == 2) many(bus, "ok", 2000, 3600000);  /* those that wait for a time */
        if (i == 3) many(bus, "unwanted", 2000, 0);  /* those that wait for a handler */
        if (i == 4) {                                /* all of them, after a restart */
            eb_destroy(bus);
            bus = working(&o);
        }
        ten_events(bus); /* looks at what is new, once */
        P_WITHIN(1, 2 * small, ten_events(bus));
    }
    eb_destroy(bus);
    PASS();
}

/* The sequence number is in the id. */
TEST one_event_is_found_by_its_id_alone(void)
{
    t_time t;
    eb_options o = t_timed(t_path("by-id"), &t);
    eb_bus *bus = working(&o);
    eb_event_list list;
    eb_id ok, bad;
    many(bus, "ok", 1000, 0);
    many(bus, "bad", 1000, 0);
    T_OK(eb_publish(bus, "ok", NULL, &ok));
    T_IS(EB_DEAD, eb_publish(bus, "bad", NULL, &bad));
    many(bus, "ok", 1000, 0);
    many(bus, "bad", 1000, 0);
    steps(bus);
    T_OK(eb_get(eb_bus_store(bus), ok.str, &list));
    eb_event_list_free(&list);
    P_WITHIN(1, 300, steps(bus));
    T_IS(EB_DEAD, eb_wait(bus, bad.str, 0));
    P_WITHIN(1, 300, steps(bus));
    T_OK(eb_dlq_retry(eb_bus_store(bus), bad.str, NULL));
    P_WITHIN(1, 600, steps(bus));
    T_OK(eb_dlq_move(eb_bus_store(bus), bad.str, NULL));
    P_WITHIN(1, 600, steps(bus));
    eb_destroy(bus);
    PASS();
}

TEST query_by_id_reads_one_row(void)
{
    t_time t;
    eb_options o = t_timed(t_path("query-id"), &t);
    eb_bus *bus = working(&o);
    eb_event_list list;
    eb_query q = {0};
    eb_id id;
    many(bus, "bad", 1000, 0);
    T_IS(EB_DEAD, eb_publish(bus, "bad", NULL, &id));
    many(bus, "bad", 1000, 0);
    q.id = id.str;
    q.want_total = 1;
    steps(bus);
    T_OK(eb_log_read(eb_bus_store(bus), &q, &list));
    T_EQ(1, list.total);
    eb_event_list_free(&list);
    P_WITHIN(1, 600, steps(bus));
    eb_destroy(bus);
    PASS();
}

/* A purge in many transactions does not begin anew in each. */
TEST purge_costs_what_it_removes(int by_death)
{
    t_time t;
    eb_options o = t_timed(t_path("purge"), &t);
    eb_bus *bus = working(&o);
    int64_t few, all, count;
    many(bus, "bad", 500, 0);
    steps(bus);
    T_OK((by_death ? eb_dlq_purge_dead : eb_dlq_purge)(eb_bus_store(bus), 0, &count));
    T_EQ(500, count);
    few = steps(bus);
    many(bus, "bad", 2000, 0);
    many(bus, "bad", 2000, 0);
    steps(bus);
    T_OK((by_death ? eb_dlq_purge_dead : eb_dlq_purge)(eb_bus_store(bus), 0, &count));
    T_EQ(4000, count);
    all = steps(bus);
    P_WITHIN(1, few * 10, all); /* eight times as many */
    eb_destroy(bus);
    PASS();
}

SUITE(plans)
{
    static const char *const ns[] = {NULL, "shop", "My-Shop"};
    int i;
    for (i = 0; i < 3; i++) {
        RUN_TESTp(no_statement_walks_through_what_grows_for_ever, ns[i]);
        RUN_TESTp(no_statement_sorts, ns[i]);
        RUN_TESTp(partial_indexes_are_used_by_those_that_need_them, ns[i]);
    }
}

SUITE(costs)
{
    RUN_TEST(life_of_an_event_costs_the_same_whatever_lies_in_the_file);
    RUN_TEST(one_event_is_found_by_its_id_alone);
    RUN_TEST(query_by_id_reads_one_row);
    RUN_TESTp(purge_costs_what_it_removes, 0);
    RUN_TESTp(purge_costs_what_it_removes, 1);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    t_pump_mode = 1;
    RUN_SUITE(plans);
    RUN_SUITE(costs);
    GREATEST_MAIN_END();
}
