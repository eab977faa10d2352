/* test_migrate.c - a file of an older version is brought forward in one transaction or not at all,
** and a file of a newer one is refused as it is.
**
** This program knows one version more than the header: what its step does is set by each test. Files
** of the version before, which is the header's own, are made
** by a step that does nothing, and by taking the number back. */
static char step_a[300], step_b[300]; /* the statements of that step; "" is none */
#define EBI_SCHEMA_TEST_STEP step_a, step_b
#include "test.h"
#include "proc.h"

enum { NEWER = EBI_SCHEMA_LATEST + 1 };

static void step(const char *a, const char *b)
{
    snprintf(step_a, sizeof step_a, "%s", a);
    snprintf(step_b, sizeof step_b, "%s", b);
}

/* A step as it might be: a new table, a new column, what is in it. */
static void good_step(void)
{
    step("CREATE TABLE @extra(n); INSERT INTO @extra SELECT count(*) FROM @event_log",
         "ALTER TABLE @event_log ADD COLUMN note TEXT DEFAULT 'from before'");
}

static eb_options options(const char *path, const char *ns)
{
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    o.ns = ns;
    return o;
}

static eb_result act(eb_delivery *d, void *user)
{
    p_add((int *)user, 1);
    return d->event->type[0] == 'b' ? eb_reject(d, "bad") : EB_OK;
}

static int64_t version_of(const char *path, const char *prefix)
{
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT value FROM \"%smeta\" WHERE key = 'schema_version'", prefix);
    return t_sql_int(path, sql);
}

static void set_version(const char *path, const char *prefix, int version)
{
    char sql[200];
    snprintf(sql, sizeof sql, "UPDATE \"%smeta\" SET value = %d WHERE key = 'schema_version'",
             prefix, version);
    T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
}

/* A file of the version before with one event done, one dead, one pending. */
static void version_before(const char *path, const char *ns)
{
    eb_options o = options(path, ns);
    char prefix[40];
    int calls = 0;
    eb_bus *bus;
    step("", "");
    bus = t_open(&o);
    snprintf(prefix, sizeof prefix, "%s", bus->store.place.prefix);
    t_subscribe(bus, "*", act, &calls);
    T_DO(eb_start(bus));
    T_DO(eb_publish(bus, "ok", "1", NULL));
    T_MUST(eb_publish(bus, "bad", "2", NULL) == EB_DEAD);
    t_post(bus, "ok", "3");
    eb_destroy(bus);
    set_version(path, prefix, EBI_SCHEMA_LATEST - 1);
}

/* The bytes of a file; NULL with length 0 if there is none. */
typedef struct bytes {
    char *data;
    size_t len;
} bytes;

static bytes slurp(const char *path, const char *tail)
{
    char name[440];
    bytes b = {NULL, 0};
    FILE *file;
    long len;
    snprintf(name, sizeof name, "%s%s", path, tail);
    file = fopen(name, "rb");
    if (!file) return b;
    T_MUST(fseek(file, 0, SEEK_END) == 0 && (len = ftell(file)) >= 0);
    b.len = (size_t)len;
    b.data = (char *)malloc(b.len + 1);
    rewind(file);
    T_MUST(b.data && fread(b.data, 1, b.len, file) == b.len);
    fclose(file);
    return b;
}

/* 1 if the file is still the same; frees. */
static int unchanged(const char *path, const char *tail, bytes *was)
{
    bytes is = slurp(path, tail);
    int same = is.len == was->len && (is.len == 0 || memcmp(is.data, was->data, is.len) == 0);
    free(is.data);
    free(was->data);
    was->data = NULL;
    return same;
}

/* ---- forward --------------------------------------------------------------------------------- */

TEST new_file_gets_all_steps_at_once(void)
{
    const char *path = t_path("new");
    eb_options o = options(path, NULL);
    eb_bus *bus;
    good_step();
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, ""));
    T_EQ(0, t_sql_int(path, "SELECT n FROM extra"));
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM event_log WHERE note IS NOT NULL"));
    PASS();
}

TEST older_file_is_brought_forward_with_all_it_holds(const char *ns)
{
    const char *path = t_path("forward");
    eb_options o = options(path, ns);
    eb_event_list list;
    eb_bus *bus;
    char prefix[40], sql[300];
    int calls = 0;
    version_before(path, ns);
    snprintf(prefix, sizeof prefix, "%s%s", ns ? ns : "", ns ? "_" : "");
    T_EQ(EBI_SCHEMA_LATEST - 1, version_of(path, prefix));
    good_step();
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, prefix));
    snprintf(sql, sizeof sql, "SELECT n FROM \"%sextra\"", prefix);
    T_EQ(3, t_sql_int(path, sql));
    snprintf(sql, sizeof sql, "SELECT count(*) FROM \"%sevent_log\" WHERE note = 'from before'",
             prefix);
    T_EQ(3, t_sql_int(path, sql));
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &list));
    T_EQ(3, list.count);
    T_EQ(EB_DONE, list.items[0].status);
    T_EQ(EB_DLQ, list.items[1].status);
    T_EQ(EB_PENDING, list.items[2].status);
    T_STATUS(EB_DLQ, bus, list.items[1].id); /* ids mean the same rows */
    eb_event_list_free(&list);
    t_subscribe(bus, "*", act, &calls);
    T_OK(eb_start(bus));
    T_OK(eb_drain(bus, 1000));
    T_EQ(1, calls); /* what was pending */
    T_OK(eb_publish(bus, "ok", "4", NULL));
    eb_destroy(bus);
    bus = t_open(&o); /* and not a second time */
    snprintf(sql, sizeof sql, "SELECT count(*) FROM \"%sextra\"", prefix);
    T_EQ(1, t_sql_int(path, sql));
    snprintf(sql, sizeof sql, "SELECT max(seq) FROM \"%sevent_log\"", prefix);
    T_EQ(4, t_sql_int(path, sql));
    eb_destroy(bus);
    PASS();
}

TEST each_namespace_has_its_own_version(void)
{
    const char *path = t_path("namespaces");
    eb_options o = options(path, "one");
    eb_bus *bus;
    version_before(path, "one");
    version_before(path, "two");
    good_step();
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, "one_"));
    T_EQ(EBI_SCHEMA_LATEST - 1, version_of(path, "two_"));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'two_extra'"));
    eb_destroy(bus);
    o.ns = "two";
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, "two_"));
    T_EQ(3, t_sql_int(path, "SELECT n FROM two_extra"));
    eb_destroy(bus);
    PASS();
}

TEST store_can_look_at_an_older_file(void)
{
    const char *path = t_path("store");
    eb_options o = options(path, NULL);
    eb_event_list list;
    eb_store *store = NULL;
    version_before(path, NULL);
    good_step();
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(1, list.count);
    eb_event_list_free(&list);
    eb_store_close(store);
    PASS();
}

#ifndef EB_NO_THREADS
enum { OPENERS = 6 };
static int gate;
static char crowded[440];

static void *opens(void *arg)
{
    eb_options o = options(crowded, NULL);
    eb_bus *bus = NULL;
    o.busy_timeout_ms = P_LONG_MS;
    p_add(&gate, 1);
    while (p_get(&gate) < OPENERS) continue;
    *(eb_result *)arg = eb_open(&bus, &o);
    eb_destroy(bus);
    return NULL;
}

TEST of_many_that_open_at_once_one_does_it(void)
{
    pthread_t thread[OPENERS];
    eb_result rc[OPENERS];
    int i;
    snprintf(crowded, sizeof crowded, "%s", t_path("crowd"));
    version_before(crowded, NULL);
    good_step();
    p_set(&gate, 0);
    for (i = 0; i < OPENERS; i++) thread[i] = p_go(opens, &rc[i]);
    for (i = 0; i < OPENERS; i++) p_join(thread[i]);
    for (i = 0; i < OPENERS; i++) T_EQ(EB_OK, rc[i]);
    T_EQ(EBI_SCHEMA_LATEST, version_of(crowded, ""));
    T_EQ(1, t_sql_int(crowded, "SELECT count(*) FROM extra"));
    PASS();
}
#endif

/* ---- or not at all --------------------------------------------------------------------------- */

/* The first statement works, the second does not: as if neither had been tried. */
TEST step_that_fails_leaves_the_older_file_untouched(const char *bad)
{
    const char *path = t_path("fails");
    eb_options o = options(path, NULL);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    bytes was;
    version_before(path, NULL);
    step("CREATE TABLE @extra(n); DELETE FROM @event_log", bad);
    was = slurp(path, "");
    ASSERT(eb_open(&bus, &o) < 0);
    ASSERT(bus == NULL);
    T_SAYS("");
    ASSERT(eb_store_open(&store, &o) < 0);
    ASSERT(store == NULL);
    ASSERT(unchanged(path, "", &was));
    T_EQ(EBI_SCHEMA_LATEST - 1, version_of(path, ""));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'"));
    T_EQ(3, t_stored(path));
    good_step(); /* the next version of the program does it right */
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, ""));
    T_EQ(3, t_sql_int(path, "SELECT n FROM extra"));
    eb_destroy(bus);
    PASS();
}

TEST step_that_fails_on_a_new_file_leaves_no_tables(void)
{
    const char *path = t_path("new-fails");
    eb_options o = options(path, NULL);
    eb_bus *bus = (eb_bus *)&o;
    step("CREATE TABLE @extra(n)", "no such statement");
    ASSERT(eb_open(&bus, &o) < 0);
    ASSERT(bus == NULL);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema"));
    good_step();
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, ""));
    eb_destroy(bus);
    PASS();
}

TEST locked_file_is_not_brought_forward_yet(void)
{
    const char *path = t_path("locked");
    eb_options o = options(path, NULL);
    eb_bus *bus = (eb_bus *)&o;
    sqlite3 *db = NULL;
    version_before(path, NULL);
    good_step();
    o.busy_timeout_ms = EB_NONE;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    T_IS(EB_ERR_BUSY, eb_open(&bus, &o));
    ASSERT(bus == NULL);
    T_MUST(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    T_EQ(EBI_SCHEMA_LATEST - 1, version_of(path, ""));
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, ""));
    sqlite3_close(db);
    eb_destroy(bus);
    PASS();
}

/* ---- newer ----------------------------------------------------------------------------------- */

TEST newer_file_is_refused_as_it_is(void)
{
    const char *path = t_path("newer");
    eb_options o = options(path, NULL);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    bytes was;
    version_before(path, NULL);
    good_step();
    set_version(path, "", NEWER);
    was = slurp(path, "");
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    ASSERT(bus == NULL);
    T_SAYS("version");
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT(store == NULL);
    ASSERT(unchanged(path, "", &was));
    T_EQ(NEWER, version_of(path, ""));
    set_version(path, "", 2); /* it was this number alone: nothing else is wrong with it */
    step("", "");
    bus = t_open(&o);
    eb_destroy(bus);
    PASS();
}

/* The process that wrote it has died, a part of the file is in the WAL: both stay as they are. */
TEST newer_file_with_a_wal_is_refused_as_it_is(void)
{
    static const char *const tails[] = {"", "-wal"};
    const char *path = t_path("wal"), *copy = t_path("wal-copy");
    eb_options o = options(copy, NULL);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    sqlite3 *db = NULL;
    bytes was[2];
    char sql[200], name[440];
    int i;
    version_before(path, NULL);
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    snprintf(sql, sizeof sql, "UPDATE meta SET value = %d WHERE key = 'schema_version'", NEWER);
    T_MUST(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    for (i = 0; i < 2; i++) { /* what a crash would leave; the original stays open meanwhile */
        FILE *file;
        was[i] = slurp(path, tails[i]);
        ASSERT(was[i].len > 0);
        snprintf(name, sizeof name, "%s%s", copy, tails[i]);
        file = fopen(name, "wb");
        T_MUST(file && fwrite(was[i].data, 1, was[i].len, file) == was[i].len);
        T_MUST(fclose(file) == 0);
    }
    sqlite3_close(db);
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    ASSERT(bus == NULL);
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT(store == NULL);
    ASSERT(unchanged(copy, "", &was[0]));
    ASSERT(unchanged(copy, "-wal", &was[1]));
    T_EQ(NEWER, version_of(copy, ""));
    PASS();
}

/* A file of the newest version is opened without being written to. */
TEST file_of_this_version_is_not_changed_by_opening(void)
{
    const char *path = t_path("same");
    eb_options o = options(path, NULL);
    eb_bus *bus;
    eb_store *store = NULL;
    bytes was;
    good_step();
    bus = t_open(&o);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    was = slurp(path, "");
    bus = t_open(&o);
    eb_destroy(bus);
    T_OK(eb_store_open(&store, &o));
    eb_store_close(store);
    ASSERT(unchanged(path, "", &was));
    PASS();
}

SUITE(migrate)
{
    RUN_TEST(new_file_gets_all_steps_at_once);
    RUN_TESTp(older_file_is_brought_forward_with_all_it_holds, NULL);
    RUN_TESTp(older_file_is_brought_forward_with_all_it_holds, "my-shop");
    RUN_TEST(each_namespace_has_its_own_version);
    RUN_TEST(store_can_look_at_an_older_file);
#ifndef EB_NO_THREADS
    RUN_TEST(of_many_that_open_at_once_one_does_it);
#endif
    RUN_TESTp(step_that_fails_leaves_the_older_file_untouched, "no such statement");
    RUN_TESTp(step_that_fails_leaves_the_older_file_untouched, "CREATE TABLE @meta(x)");
    RUN_TESTp(step_that_fails_leaves_the_older_file_untouched,
              "INSERT INTO @meta VALUES('seq_floor', 0)"); /* a constraint */
    RUN_TEST(step_that_fails_on_a_new_file_leaves_no_tables);
    RUN_TEST(locked_file_is_not_brought_forward_yet);
    RUN_TEST(newer_file_is_refused_as_it_is);
    RUN_TEST(newer_file_with_a_wal_is_refused_as_it_is);
    RUN_TEST(file_of_this_version_is_not_changed_by_opening);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    t_pump_mode = 1;
    RUN_SUITE(migrate);
    GREATEST_MAIN_END();
}
