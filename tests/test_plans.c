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
    const char *prefix, *index;
} indexed[] = {
    {"DUE", "deliveries_due"},
    {"NEXT_DUE", "deliveries_due"},
    {"KEY_", "deliveries_key"},
    {"KNOWN_KEY", "event_log_key"},
    {"DLQ_READ", "dead_letters_created"},
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

/* The table, without its namespace, that a plan calls `name`: itself, or what the statement calls so
** with AS. */
static void table_of(int i, const char *prefix, const char *name, char *table, size_t cap)
{
    const char *sql = ebi_sql_text[i], *at = sql, *from;
    size_t len = strlen(name);
    while ((at = strstr(at, " AS ")) != NULL) {
        const char *alias = at + 4, *end = alias + len;
        int letter = (*end >= 'a' && *end <= 'z') || *end == '_';
        if (strncmp(alias, name, len) == 0 && !letter) {
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
        walked(i, bus->store.prefix, plan, table, sizeof table);
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
    P_EQ(0, wrong);
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
    P_EQ(0, wrong);
    eb_destroy(bus);
    PASS();
}

TEST partial_indexes_are_used_by_those_that_need_them(const char *ns)
{
    eb_bus *bus = fresh(t_path("indexed"), ns);
    char plan[3000], index[200];
    size_t k;
    int i, wrong = 0;
    for (k = 0; k < sizeof indexed / sizeof *indexed; k++) {
        int found = 0;
        snprintf(index, sizeof index, "INDEX %s%s", bus->store.prefix, indexed[k].index);
        for (i = 0; i < EBI_SQL_COUNT; i++) {
            size_t len = strlen(indexed[k].prefix);
            if (strncmp(names[i], indexed[k].prefix, len) != 0) continue;
            if (indexed[k].prefix[len - 1] != '_' && names[i][len]) continue;
            found++;
            if (strstr(plan_of(bus, i, plan, sizeof plan), index)) continue;
            fprintf(stderr, "\n%s without %s:\n%s\n", names[i], index, plan);
            wrong++;
        }
        if (!found) fprintf(stderr, "\nno statement is called %s...\n", indexed[k].prefix);
        wrong += !found;
    }
    P_EQ(0, wrong);
    eb_destroy(bus);
    PASS();
}
