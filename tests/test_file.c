/* test_file.c - the file: how it is made, whose it is, and what a bad, busy or full one does. */
#include "proc.h"

static t_seen seen;

/* ---- helpers --------------------------------------------------------------------------------- */

typedef struct bytes {
    unsigned char *data;
    size_t len;
} bytes;

/* The whole file. Only while nobody in this process has it open: close() would drop its locks. */
static bytes slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    bytes b;
    long len;
    T_MUST(f != NULL && fseek(f, 0, SEEK_END) == 0);
    len = ftell(f);
    T_MUST(len >= 0 && fseek(f, 0, SEEK_SET) == 0);
    b.len = (size_t)len;
    b.data = (unsigned char *)malloc(b.len + 1);
    T_MUST(b.data != NULL && fread(b.data, 1, b.len, f) == b.len);
    fclose(f);
    return b;
}

static void spill(const char *path, const void *data, size_t len)
{
    static const char *const tail[] = {"-wal", "-shm", "-journal"};
    FILE *f = fopen(path, "wb");
    size_t i;
    T_MUST(f != NULL && fwrite(data, 1, len, f) == len);
    T_MUST(fclose(f) == 0);
    for (i = 0; i < 3; i++) {
        char victim[440];
        snprintf(victim, sizeof victim, "%s%s", path, tail[i]);
        remove(victim);
    }
}

/* 1 if the file still has exactly these bytes; frees them. */
static int unchanged(const char *path, bytes *was)
{
    bytes is = slurp(path);
    int same = is.len == was->len && memcmp(is.data, was->data, is.len) == 0;
    free(is.data);
    free(was->data);
    was->data = NULL;
    return same;
}

static int exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static int is_result(eb_result rc)
{
    return strcmp(eb_strerror(rc), eb_strerror((eb_result)-98)) != 0;
}

/* A file with three events: one done, one dead, one pending. No thread, no bus left. */
static void make_three(const char *path)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    o.workers = EB_NONE;
    bus = t_open(&o);
    t_subscribe(bus, "good", t_watch, &seen);
    t_subscribe(bus, "bad", t_rejects, NULL);
    T_DO(eb_start(bus));
    T_DO(eb_publish(bus, "good", "[1]", NULL));
    T_MUST(eb_publish(bus, "bad", "[2]", NULL) == EB_DEAD);
    t_post(bus, "good", "[3]");
    eb_destroy(bus);
}

/* ---- how it is made -------------------------------------------------------------------------- */

#ifndef _WIN32
TEST file_and_all_beside_it_are_private_under_any_umask(void)
{
    const char *path = t_path("mode"), *base = strrchr(path, '/') + 1;
    char dir_name[400], full[700];
    mode_t old = umask(0);
    eb_bus *bus = t_bus(path);
    struct dirent *entry;
    struct stat st;
    int found = 0;
    DIR *dir;
    T_OK(eb_start(bus));
    t_post(bus, "x", NULL);
    umask(old);
    ASSERT_EQ(0, stat(path, &st));
    T_EQ(0600, st.st_mode & 0777);
    snprintf(dir_name, sizeof dir_name, "%.*s", (int)(base - path), path);
    dir = opendir(dir_name);
    ASSERT(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, base, strlen(base)) != 0) continue;
        snprintf(full, sizeof full, "%s%s", dir_name, entry->d_name);
        ASSERT_EQ(0, stat(full, &st));
        if ((st.st_mode & 0077) != 0) fprintf(stderr, "\n%s is open to others\n", full);
        T_EQ(0, st.st_mode & 0077);
        found++;
    }
    closedir(dir);
    ASSERT(found >= 2); /* the database and its -wal at least */
    eb_destroy(bus);
    PASS();
}

TEST mode_of_an_existing_file_is_left_alone(void)
{
    const char *path = t_path("mode-old");
    struct stat st;
    eb_bus *bus;
    spill(path, "", 0);
    ASSERT_EQ(0, chmod(path, 0640));
    bus = t_bus(path);
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    ASSERT_EQ(0, stat(path, &st));
    T_EQ(0640, st.st_mode & 0777);
    PASS();
}
#endif

TEST file_is_in_wal_mode_on_disk(void)
{
    const char *path = t_path("wal");
    char buf[40];
    bytes b;
    make_three(path);
    b = slurp(path);
    ASSERT(b.len >= 100);
    T_EQ(2, b.data[18]);
    T_EQ(2, b.data[19]);
    free(b.data);
    ASSERT_STR_EQ("wal", t_sql_text(path, "PRAGMA journal_mode", buf, sizeof buf));
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", buf, sizeof buf));
    PASS();
}

TEST odd_characters_in_the_path_are_just_a_name(void)
{
#ifdef _WIN32 /* no file name may have a quotation mark or a question mark */
    const char *path = t_path("a b'c%41&mode=memory&x#y");
#else
    const char *path = t_path("a b'c\"%41?mode=memory&x#y");
#endif
    eb_bus *bus = t_bus(path);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    eb_destroy(bus);
    ASSERT(exists(path));
    T_EQ(1, t_stored(path));
    PASS();
}

TEST memory_has_the_whole_life_and_is_private(void)
{
    eb_event_list list;
    eb_stats stats;
    eb_id good, bad;
    eb_bus *bus = t_bus(":memory:"), *other = t_bus(":memory:");
    memset(&seen, 0, sizeof seen);
    t_subscribe(bus, "good", t_watch, &seen);
    t_subscribe(bus, "bad", t_rejects, NULL);
    T_OK(eb_start(bus));
    T_OK(eb_start(other)); /* another database, another owner */
    T_OK(eb_publish(bus, "good", "{\"a\":1}", &good));
    ASSERT_STR_EQ("{\"a\":1}", seen.payload);
    T_IS(EB_DEAD, eb_publish(bus, "bad", NULL, &bad));
    T_OK(eb_dlq_list(eb_bus_store(bus), NULL, &list));
    T_EQ(1, list.count);
    ASSERT_STR_EQ(bad.str, list.items[0].id.str);
    eb_event_list_free(&list);
    T_OK(eb_dlq_retry(eb_bus_store(bus), bad.str, NULL));
    T_IS(EB_DEAD, eb_wait(bus, bad.str, 20000));
    T_OK(t_settle(bus));
    stats = t_stats(bus);
    T_EQ(1, stats.done);
    T_EQ(1, stats.dlq);
    stats = t_stats(other);
    T_EQ(0, stats.done + stats.dlq + stats.pending + stats.last_seq);
    T_OK(eb_shutdown(bus));
    T_STATUS(EB_DONE, bus, good);
    eb_destroy(bus);
    eb_destroy(other);
    ASSERT(!exists(":memory:"));
    PASS();
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* Sets meta's schema_version by SQL, whatever its columns are called; 0: no such row or refused. */
static int set_version(const char *path, const char *value)
{
    char key_column[64] = "", value_column[64] = "", sql[300];
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    T_MUST(sqlite3_prepare_v2(db, "SELECT * FROM meta", -1, &stmt, NULL) == SQLITE_OK);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        int i, hit = -1;
        for (i = 0; i < sqlite3_column_count(stmt); i++) {
            const char *text = (const char *)sqlite3_column_text(stmt, i);
            if (text && strcmp(text, "schema_version") == 0) hit = i;
        }
        if (hit < 0 || sqlite3_column_count(stmt) < 2) continue;
        t_copy(key_column, sizeof key_column, sqlite3_column_name(stmt, hit));
        t_copy(value_column, sizeof value_column, sqlite3_column_name(stmt, hit ? 0 : 1));
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    if (!key_column[0]) return 0;
    snprintf(sql, sizeof sql, "UPDATE meta SET \"%s\" = %s WHERE \"%s\" = 'schema_version'",
             value_column, value, key_column);
    return t_sql(path, sql, NULL, 0) == SQLITE_OK;
}

TEST newer_version_is_refused_untouched(void)
{
    const char *path = t_path("newer");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    bytes was;
    make_three(path);
    ASSERTm("meta has a row schema_version", set_version(path, "1000000"));
    was = slurp(path);
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT_EQ(NULL, store);
    ASSERT(unchanged(path, &was));
    PASS();
}

TEST version_that_is_none_is_refused(const char *value)
{
    const char *path = t_path("nonsense");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    eb_result rc;
    bytes was;
    make_three(path);
    if (!set_version(path, value)) PASS(); /* a constraint is as good */
    was = slurp(path);
    rc = eb_open(&bus, &o);
    ASSERT(rc == EB_ERR_SCHEMA || rc == EB_ERR_CORRUPT);
    ASSERT_EQ(NULL, bus);
    ASSERT(unchanged(path, &was));
    PASS();
}

TEST application_tables_stay_beside_ours(void)
{
    const char *path = t_path("foreign");
    char buf[100];
    eb_bus *bus;
    T_EQ(SQLITE_OK, t_sql(path,
                          "PRAGMA page_size = 1024;"
                          "CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT UNIQUE);"
                          "CREATE INDEX by_name ON customer(name, id);"
                          "CREATE TABLE my_events(a); CREATE TABLE event(a);"
                          "INSERT INTO customer(name) VALUES ('Ada'), ('Grace')",
                          NULL, 0));
    memset(&seen, 0, sizeof seen);
    bus = t_run(path, "*", t_watch, &seen);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(SQLITE_OK, t_sql(path, "INSERT INTO customer(name) VALUES ('Edsger')", NULL, 0));
    eb_destroy(bus);
    T_EQ(1, p_get(&seen.calls));
    T_EQ(3, t_sql_int(path, "SELECT count(*) FROM customer"));
    T_EQ(2, t_sql_int(path, "SELECT id FROM customer WHERE name = 'Grace'"));
    T_ROWS(1, path, "status = 'done'");
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", buf, sizeof buf));
    PASS();
}

TEST application_table_with_our_name_is_never_touched(const char *kind, const char *name)
{
    const char *path = t_path("collision");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    char sql[300];
    bytes was;
    if (strcmp(kind, "table") == 0)
        snprintf(sql, sizeof sql, "CREATE TABLE %s(mine TEXT); INSERT INTO %s VALUES ('hello')",
                 name, name);
    else
        snprintf(sql, sizeof sql, "CREATE TABLE base(mine TEXT); INSERT INTO base VALUES ('hello');"
                                  "CREATE VIEW %s AS SELECT mine FROM base", name);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    was = slurp(path);
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    ASSERT(unchanged(path, &was)); /* not even the switch to WAL */
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE mine = 'hello'", name);
    T_EQ(1, t_sql_int(path, sql));

    o.ns = "bus"; /* with a namespace there is no collision */
    T_OK(eb_open(&bus, &o));
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    T_EQ(1, t_sql_int(path, sql));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM bus_events"));
    PASS();
}

/* `namespaces` alone has no prefix: somebody else's stands in the way of every namespace. */
TEST foreign_registry_of_namespaces_is_refused_untouched(const char *sql, const char *ns)
{
    const char *path = t_path("registry");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    char text[400];
    int64_t objects;
    bytes was;
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    objects = t_sql_int(path, "SELECT count(*) FROM sqlite_schema");
    o.ns = ns;
    was = slurp(path);
    T_IS(EB_ERR_SCHEMA, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    eb_errmsg(text, sizeof text);
    ASSERTm("the message names the table", strstr(text, "namespaces") != NULL);
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT_EQ(NULL, store);
    ASSERT(unchanged(path, &was));
    ASSERT_STR_EQ("delete", t_sql_text(path, "PRAGMA journal_mode", text, sizeof text));
    T_EQ(objects, t_sql_int(path, "SELECT count(*) FROM sqlite_schema"));
    PASS();
}

/* One of our form may be there before us, with or without somebody in it. */
TEST registry_of_namespaces_of_our_form_is_joined(const char *form, const char *ns)
{
    const char *path = t_path("registry-ours");
    eb_options o = t_options(path);
    eb_bus *bus;
    char sql[300];
    if (*form) {
        snprintf(sql, sizeof sql, "CREATE TABLE namespaces(%s); INSERT INTO namespaces(ns,"
                                  "created_at) VALUES('other','2026-11-18T05:32:10.123Z')", form);
        T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    } else { /* as we make it ourselves */
        o.ns = "other";
        eb_destroy(t_open(&o));
    }
    o.ns = ns;
    bus = t_open(&o);
    memset(&seen, 0, sizeof seen);
    t_subscribe(bus, "*", t_watch, &seen);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    eb_destroy(bus);
    T_EQ(1, p_get(&seen.calls));
    T_EQ(2, t_sql_int(path, "SELECT count(*) FROM namespaces"));
    snprintf(sql, sizeof sql, "SELECT count(*) FROM namespaces WHERE ns IN ('other','%s') AND"
                              " created_at GLOB '20*-*T*Z'", ns ? ns : "");
    T_EQ(2, t_sql_int(path, sql));
    PASS();
}

/* ---- namespaces ------------------------------------------------------------------------------ */

TEST namespace_prefixes_every_table(void)
{
    const char *path = t_path("ns");
    eb_options o = t_options(path);
    eb_bus *bus;
    o.ns = "Billing";
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", "[1]", NULL));
    eb_destroy(bus);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM billing_event_log"));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM billing_events WHERE status = 'done'"));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema WHERE type IN ('table', 'view',"
                            " 'trigger', 'index') AND name NOT GLOB 'billing_*' AND name NOT GLOB"
                            " 'sqlite_*' AND tbl_name <> 'namespaces'"));
    o.ns = "BILLING"; /* the same one */
    bus = t_open(&o);
    t_post(bus, "x", "[2]");
    eb_destroy(bus);
    T_EQ(2, t_sql_int(path, "SELECT count(*) FROM billing_event_log"));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'BILLING*'"
                            " OR name GLOB 'Billing*'"));
    PASS();
}

TEST namespaces_in_one_file_do_not_see_each_other(void)
{
    static const char *const names[] = {NULL, "a", "a_b", "my-app", "0", "_",
                                        "abcdefghijklmnopqrstuvwxyz012345"};
    enum { N = (int)(sizeof names / sizeof *names) };
    const char *path = t_path("ns-many");
    eb_options o = t_options(path);
    eb_bus *bus[N];
    eb_event_list list;
    eb_id id[N];
    int i;
    memset(&seen, 0, sizeof seen);
    for (i = 0; i < N; i++) {
        o.ns = names[i];
        bus[i] = t_open(&o);
        t_subscribe(bus[i], "*", t_watch, &seen);
        T_OK(eb_start(bus[i]));
        T_OK(eb_publish(bus[i], "x", NULL, &id[i]));
        T_EQ(i + 1, p_get(&seen.calls));
    }
    for (i = 0; i < N; i++) {
        T_OK(eb_log_read(eb_bus_store(bus[i]), NULL, &list));
        T_EQ(1, list.count);
        T_EQ(1, list.items[0].seq);
        eb_event_list_free(&list);
        T_IS(EB_ERR_NOT_FOUND, eb_get(eb_bus_store(bus[i]), id[(i + 1) % N].str, &list));
    }
    for (i = 0; i < N; i++) eb_destroy(bus[i]);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM \"my-app_event_log\""));
    PASS();
}

TEST bad_namespace_is_refused_and_makes_no_file(const char *ns)
{
    const char *path = t_path("ns-bad");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    o.ns = ns;
    T_IS(EB_ERR_ARG, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    ASSERT(!exists(path));
    PASS();
}

/* ---- as the sqlite3 shell sees it ------------------------------------------------------------ */

TEST view_answers_the_operators_questions(void)
{
    const char *path = t_path("view");
    char buf[400];
    make_three(path);
    ASSERT_STR_EQ("dlq=1 done=1 pending=1",
                  t_sql_text(path,
                             "SELECT group_concat(line, ' ') FROM (SELECT status || '=' || count(*)"
                             " AS line FROM events GROUP BY status ORDER BY status)",
                             buf, sizeof buf));
    T_EQ(3, t_sql_int(path, "SELECT count(*) FROM (SELECT id, type, payload, status, retry_count,"
                            " last_error, metadata, created_at, updated_at, seq FROM events)"));
    T_ROWS(3, path,
           "created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:"
           "[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z'");
    T_ROWS(3, path, "length(updated_at) = 24 AND updated_at >= created_at");
    ASSERT_STR_EQ("[2]", t_sql_text(path, "SELECT payload FROM events WHERE status = 'dlq'", buf,
                                    sizeof buf));
    t_sql_text(path, "SELECT last_error FROM events WHERE type = 'bad'", buf, sizeof buf);
    ASSERT_STR_EQ("[\"no use\"]", buf);
    ASSERT_STR_EQ("1,2,3", t_sql_text(path, "SELECT group_concat(seq) FROM (SELECT seq FROM events"
                                            " ORDER BY seq)", buf, sizeof buf));
    PASS();
}

TEST operator_may_only_do_what_has_a_meaning(void)
{
    static const char *const refused[] = {
        "INSERT INTO events(type, payload) VALUES ('x', '1')",
        "DELETE FROM events",
        "UPDATE events SET payload = '1'",
        "UPDATE events SET status = 'lost'",
        "UPDATE events SET status = 'done' WHERE status = 'pending'",
        "UPDATE events SET status = 'done' WHERE status = 'dlq'",
    };
    const char *path = t_path("operator");
    char err[300];
    eb_bus *bus;
    size_t i;
    make_three(path);
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (t_sql(path, refused[i], err, sizeof err) == SQLITE_OK) FAILm(refused[i]);
        ASSERT(err[0]);
    }
    T_ROWS(1, path, "status = 'pending'");
    T_ROWS(1, path, "status = 'dlq'");
    T_ROWS(1, path, "status = 'done'");

    memset(&seen, 0, sizeof seen);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'pending' WHERE status = 'dlq'", err,
                          sizeof err));
    T_ROWS(1, path, "type = 'bad' AND status = 'pending' AND retry_count = 0 AND"
                    " last_error IS NULL");
    bus = t_run(path, "*", t_watch, &seen);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(2, p_get(&seen.calls));
    T_ROWS(3, path, "status = 'done'");
    PASS();
}

/* ---- bad files ------------------------------------------------------------------------------- */

/* Uses a file that opened, whatever is wrong with it, in every way there is. 0: it lied. */
static int use(eb_bus *bus, size_t at_least)
{
    eb_event_list list;
    eb_stats stats;
    eb_result rc;
    int ok;
    rc = eb_log_read(eb_bus_store(bus), NULL, &list);
    ok = is_result(rc) && (rc != EB_OK || list.count >= at_least); /* damaged is not empty */
    eb_event_list_free(&list);
    ok &= is_result(eb_dlq_list(eb_bus_store(bus), NULL, &list));
    eb_event_list_free(&list);
    ok &= is_result(eb_stats_get(eb_bus_store(bus), &stats));
    ok &= is_result(eb_subscribe(bus, "*", t_watch, &seen, NULL, NULL));
    ok &= is_result(eb_start(bus));
    ok &= is_result(eb_pump(bus, 10, NULL));
    ok &= is_result(eb_post(bus, "x", "[4]", NULL));
    ok &= is_result(eb_pump(bus, 10, NULL));
    ok &= is_result(eb_dlq_retry_all(eb_bus_store(bus), NULL, NULL));
    return ok;
}

static eb_options bad_options(const char *path)
{
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    o.durability = EB_DURABLE_OFF;
    o.busy_timeout_ms = EB_NONE;
    o.shutdown_timeout_ms = 100;
    return o;
}

TEST text_file_is_refused_untouched(void)
{
    static const char text[] = "Dear diary,\ntoday I was opened as a database.\n";
    const char *path = t_path("text");
    eb_options o = bad_options(path);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    eb_result rc;
    bytes was;
    spill(path, text, sizeof text - 1);
    was = slurp(path);
    rc = eb_open(&bus, &o);
    ASSERT(rc == EB_ERR_CORRUPT || rc == EB_ERR_SCHEMA);
    ASSERT_EQ(NULL, bus);
    rc = eb_store_open(&store, &o);
    ASSERT(rc == EB_ERR_CORRUPT || rc == EB_ERR_SCHEMA);
    ASSERT_EQ(NULL, store);
    ASSERT(unchanged(path, &was));
    PASS();
}

TEST empty_file_is_a_new_one(void)
{
    const char *path = t_path("empty");
    eb_options o = t_options(path);
    eb_store *store = (eb_store *)&o;
    eb_bus *bus;
    spill(path, "", 0);
    ASSERT(eb_store_open(&store, &o) < 0); /* a store creates nothing */
    ASSERT_EQ(NULL, store);
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    eb_destroy(bus);
    T_EQ(1, t_stored(path));
    PASS();
}

TEST path_that_cannot_be_a_file_is_an_io_error(void)
{
    const char *path = t_path("dir");
    char below[440];
    eb_options o = t_options(path);
    eb_store *store = (eb_store *)&o;
    eb_bus *bus = (eb_bus *)&o;
    eb_result rc;
    ASSERT(eb_store_open(&store, &o) < 0); /* no such file, and none is made */
    ASSERT_EQ(NULL, store);
    ASSERT(!exists(path));
    ASSERT_EQ(0, t_mkdir(path));
    T_IS(EB_ERR_IO, eb_open(&bus, &o));
    ASSERT_EQ(NULL, bus);
    rc = eb_store_open(&store, &o);
    ASSERT(rc < 0 && is_result(rc));
    snprintf(below, sizeof below, "%s/no/such/folder.db", path);
    o.path = below;
    T_IS(EB_ERR_IO, eb_open(&bus, &o));
    ASSERT_EQ(0, rmdir(path)); /* nothing was left in it */
    PASS();
}

TEST truncated_file_is_refused(void)
{
    const char *path = t_path("truncated");
    eb_options o = bad_options(path);
    bytes whole;
    size_t cut, step;
    make_three(path);
    whole = slurp(path);
    ASSERT(whole.len > 4096);
    step = whole.len / 40;
    /* From 2: one byte is what SQLite itself writes into an empty file on some systems. */
    for (cut = 2; cut < whole.len; cut += cut < 200 ? 33 : step) {
        eb_bus *bus = (eb_bus *)&o;
        eb_result rc;
        bytes was;
        spill(path, whole.data, cut);
        was = slurp(path);
        rc = eb_open(&bus, &o);
        if (rc >= 0) fprintf(stderr, "\ncut to %lu of %lu bytes\n", (unsigned long)cut,
                             (unsigned long)whole.len);
        ASSERT(rc < 0 && is_result(rc));
        ASSERT_EQ(NULL, bus);
        ASSERT(unchanged(path, &was));
    }
    free(whole.data);
    PASS();
}

TEST flipped_byte_in_the_first_page_never_crashes_nor_empties_the_queue(void)
{
    const char *path = t_path("flipped");
    eb_options o = bad_options(path);
    size_t i, page, refused = 0;
    bytes whole;
    make_three(path);
    whole = slurp(path);
    page = (size_t)whole.data[16] * 256 + whole.data[17];
    if (page == 1) page = 65536;
    ASSERT(page >= 512 && whole.len >= page);
    for (i = 0; i < page; i += i < 120 ? 1 : 13) {
        eb_bus *bus = NULL;
        eb_result rc;
        int honest = 1;
        whole.data[i] ^= 0xFF;
        spill(path, whole.data, whole.len);
        whole.data[i] ^= 0xFF;
        rc = eb_open(&bus, &o);
        if (rc == EB_OK) honest = use(bus, 3);
        else refused++;
        if (!honest || !is_result(rc)) fprintf(stderr, "\nbyte %lu\n", (unsigned long)i);
        ASSERT(is_result(rc));
        ASSERT(honest);
        ASSERT((rc == EB_OK) == (bus != NULL));
        eb_destroy(bus);
    }
    ASSERT(refused >= 16); /* the magic text at least */
    free(whole.data);
    PASS();
}

TEST garbage_wal_does_not_hide_what_the_file_has(void)
{
    const char *path = t_path("garbage-wal");
    char wal[440], garbage[8192];
    unsigned seed = 7;
    eb_bus *bus;
    FILE *f;
    size_t i;
    make_three(path);
    for (i = 0; i < sizeof garbage; i++) {
        seed = seed * 1664525u + 1013904223u;
        garbage[i] = (char)(seed >> 24);
    }
    snprintf(wal, sizeof wal, "%s-wal", path);
    f = fopen(wal, "wb");
    ASSERT(f != NULL);
    ASSERT_EQ(sizeof garbage, fwrite(garbage, 1, sizeof garbage, f));
    fclose(f);
    memset(&seen, 0, sizeof seen);
    bus = t_run(path, "*", t_watch, &seen);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(3, t_stored(path));
    T_EQ(1, p_get(&seen.calls));
    PASS();
}

TEST file_that_vanishes_while_open_does_no_harm(void)
{
    static const char *const tail[] = {"", "-wal", "-shm"};
    const char *path = t_path("unlinked");
    eb_options o = t_options(path);
    eb_event_list list;
    eb_stats stats;
    eb_bus *bus;
    int i;
    o.busy_timeout_ms = 100;
    o.shutdown_timeout_ms = 2000;
    bus = t_run_with(&o, "*", t_watch, &seen);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    for (i = 0; i < 3; i++) {
        char victim[440];
        snprintf(victim, sizeof victim, "%s%s", path, tail[i]);
        remove(victim);
    }
    for (i = 0; i < 10; i++) ASSERT(is_result(eb_post(bus, "x", NULL, NULL)));
    ASSERT(is_result(eb_drain(bus, 1000)));
    ASSERT(is_result(eb_stats_get(eb_bus_store(bus), &stats)));
    ASSERT(is_result(eb_log_read(eb_bus_store(bus), NULL, &list)));
    eb_event_list_free(&list);
    ASSERT(is_result(eb_shutdown(bus)));
    eb_destroy(bus);
    PASS();
}

#ifndef _WIN32 /* where an open file cannot be renamed */
/* What would be stored now could not be found again under the name. With its name back it goes on.
** FULL looks at every commit, NORMAL once per idle poll; without threads a pump is that poll. */
TEST renamed_file_takes_no_more_events(int durability)
{
    char other[440];
    const char *path = t_path("renamed");
    eb_options o = t_options(path);
    eb_bus *bus;
    snprintf(other, sizeof other, "%s.other", path);
    o.workers = EB_NONE;
    o.durability = durability;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    t_post(bus, "x", NULL);
    ASSERT_EQ(0, rename(path, other));
    if (durability != EB_DURABLE_FULL) T_OK(eb_pump(bus, 0, NULL));
    T_IS(EB_ERR_IO, eb_post(bus, "x", NULL, NULL));
    ASSERT_EQ(0, rename(other, path));
    t_post(bus, "x", NULL);
    eb_destroy(bus);
    T_EQ(2, t_stored(path));
    PASS();
}
#endif

/* ---- somebody else writes -------------------------------------------------------------------- */

static sqlite3 *lock_file(const char *path)
{
    sqlite3 *db = NULL;
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    T_MUST(sqlite3_exec(db, "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS app(a);"
                            "INSERT INTO app VALUES (1)", NULL, NULL, NULL) == SQLITE_OK);
    return db;
}

static void unlock_file(sqlite3 *db, const char *how)
{
    T_MUST(sqlite3_exec(db, how, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

TEST long_write_transaction_of_the_application_is_busy(int64_t busy_ms)
{
    const char *path = t_path("busy");
    eb_options o = t_options(path);
    int64_t begin, least = busy_ms == EB_NONE ? 0 : busy_ms - 20;
    int64_t most = (busy_ms == EB_NONE ? 0 : busy_ms) + 3000;
    eb_message m[2];
    eb_store *store = NULL;
    eb_event_list list;
    char id[40];
    sqlite3 *app;
    eb_bus *bus;
    memset(m, 0, sizeof m);
    m[0].type = m[1].type = "x";
    make_three(path);
    o.busy_timeout_ms = busy_ms;
    bus = t_open(&o);
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(1, list.count);
    t_copy(id, sizeof id, list.items[0].id.str);
    eb_event_list_free(&list);

    app = lock_file(path);
    begin = p_ms();
    T_IS(EB_ERR_BUSY, eb_post(bus, "x", NULL, NULL));
    P_WITHIN(least, most, p_ms() - begin);
    begin = p_ms();
    T_IS(EB_ERR_BUSY, eb_send(bus, m, 2, NULL));
    P_WITHIN(least, most, p_ms() - begin);
    begin = p_ms();
    T_IS(EB_ERR_BUSY, eb_dlq_retry(store, id, NULL));
    P_WITHIN(least, most, p_ms() - begin);
    T_OK(eb_log_read(store, NULL, &list)); /* reading never waits for a writer */
    T_EQ(3, list.count);
    eb_event_list_free(&list);
    unlock_file(app, "ROLLBACK");

    T_EQ(3, t_stored(path)); /* nothing was written */
    T_ROWS(1, path, "status = 'dlq'");
    t_post(bus, "x", NULL);
    T_OK(eb_dlq_retry(store, id, NULL));
    T_EQ(4, t_stored(path));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

static p_gate gate;

TEST outcome_waits_in_memory_while_the_file_is_locked(void)
{
    const char *path = t_path("busy-ack");
    eb_options o = t_options(path);
    sqlite3 *app;
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    memset(&seen, 0, sizeof seen);
    o.busy_timeout_ms = 20;
    bus = t_open(&o);
    t_subscribe(bus, "x", p_wait_at, &gate);
    t_subscribe(bus, "y", t_watch, &seen);
    T_OK(eb_start(bus));
    t_post(bus, "x", NULL);
    t_post(bus, "y", NULL); /* has to be claimed, or waits in a batch */
    P_EVENTUALLY(p_get(&gate.entered));
    app = lock_file(path);
    p_set(&gate.release, 1);
    p_nap(300); /* many busy timeouts; however long, the outcome must be the same */
    T_IS(EB_ERR_BUSY, eb_post(bus, "z", NULL, NULL));
    T_ROWS(0, path, "status = 'done'");
    unlock_file(app, "COMMIT");
    T_OK(t_settle(bus));
    T_EQ(1, p_get(&gate.calls));
    T_EQ(1, p_get(&seen.calls));
    eb_destroy(bus);
    T_ROWS(2, path, "status = 'done' AND retry_count = 0");
    T_EQ(2, t_stored(path));
    PASS();
}

/* ---- a full disk: a VFS that refuses to write ------------------------------------------------ */

typedef struct full_file {
    sqlite3_file base;
    sqlite3_file *real;
} full_file;

static int disk_full;
static sqlite3_vfs full_vfs, *real_vfs;
static sqlite3_io_methods full_methods;

#define REAL(file) (((full_file *)(void *)(file))->real)

static int full_close(sqlite3_file *f) { return REAL(f)->pMethods->xClose(REAL(f)); }
static int full_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    return REAL(f)->pMethods->xRead(REAL(f), to, n, at);
}
static int full_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (p_get(&disk_full)) return SQLITE_FULL;
    return REAL(f)->pMethods->xWrite(REAL(f), from, n, at);
}
static int full_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    return REAL(f)->pMethods->xTruncate(REAL(f), n);
}
static int full_sync(sqlite3_file *f, int flags)
{
    return REAL(f)->pMethods->xSync(REAL(f), flags);
}
static int full_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return REAL(f)->pMethods->xFileSize(REAL(f), n);
}
static int full_lock(sqlite3_file *f, int lock) { return REAL(f)->pMethods->xLock(REAL(f), lock); }
static int full_unlock(sqlite3_file *f, int lock)
{
    return REAL(f)->pMethods->xUnlock(REAL(f), lock);
}
static int full_reserved(sqlite3_file *f, int *out)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), out);
}
static int full_control(sqlite3_file *f, int op, void *arg)
{
    return REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}
static int full_sector(sqlite3_file *f) { return REAL(f)->pMethods->xSectorSize(REAL(f)); }
static int full_device(sqlite3_file *f)
{
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}
static int full_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return REAL(f)->pMethods->xShmMap(REAL(f), page, size, extend, out);
}
static int full_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return REAL(f)->pMethods->xShmLock(REAL(f), offset, n, flags);
}
static void full_shm_barrier(sqlite3_file *f) { REAL(f)->pMethods->xShmBarrier(REAL(f)); }
static int full_shm_unmap(sqlite3_file *f, int drop)
{
    return REAL(f)->pMethods->xShmUnmap(REAL(f), drop);
}

static int full_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    full_file *f = (full_file *)(void *)file;
    int rc;
    (void)vfs;
    f->real = (sqlite3_file *)(void *)(f + 1);
    rc = real_vfs->xOpen(real_vfs, name, f->real, flags, out);
    f->base.pMethods = f->real->pMethods ? &full_methods : NULL;
    return rc;
}

/* The name to put into eb_options.vfs. */
static const char *full_name(void)
{
    p_set(&disk_full, 0);
    if (real_vfs) return full_vfs.zName;
    real_vfs = sqlite3_vfs_find(NULL);
    T_MUST(real_vfs != NULL);
    full_vfs = *real_vfs; /* everything but xOpen is the real one's */
    full_vfs.zName = "full";
    full_vfs.pNext = NULL;
    full_vfs.szOsFile = (int)sizeof(full_file) + real_vfs->szOsFile;
    full_vfs.xOpen = full_open;
    full_methods.iVersion = 2; /* no mmap: everything goes through xWrite */
    full_methods.xClose = full_close;
    full_methods.xRead = full_read;
    full_methods.xWrite = full_write;
    full_methods.xTruncate = full_truncate;
    full_methods.xSync = full_sync;
    full_methods.xFileSize = full_size;
    full_methods.xLock = full_lock;
    full_methods.xUnlock = full_unlock;
    full_methods.xCheckReservedLock = full_reserved;
    full_methods.xFileControl = full_control;
    full_methods.xSectorSize = full_sector;
    full_methods.xDeviceCharacteristics = full_device;
    full_methods.xShmMap = full_shm_map;
    full_methods.xShmLock = full_shm_lock;
    full_methods.xShmBarrier = full_shm_barrier;
    full_methods.xShmUnmap = full_shm_unmap;
    T_MUST(sqlite3_vfs_register(&full_vfs, 0) == SQLITE_OK);
    return full_vfs.zName;
}

TEST full_disk_refuses_and_works_again_later(int durability)
{
    const char *path = t_path("full");
    eb_options o = t_options(path);
    eb_message m[3];
    eb_event_list list;
    eb_bus *bus;
    int i;
    memset(m, 0, sizeof m);
    memset(&seen, 0, sizeof seen);
    m[0].type = m[1].type = m[2].type = "x";
    o.durability = durability;
    o.vfs = full_name();
    bus = t_run_with(&o, "*", t_watch, &seen);
    for (i = 0; i < 10; i++) T_OK(eb_publish(bus, "x", NULL, NULL));
    p_set(&disk_full, 1);
    T_IS(EB_ERR_FULL, eb_post(bus, "x", NULL, NULL));
    T_IS(EB_ERR_FULL, eb_send(bus, m, 3, NULL));
    T_IS(EB_ERR_FULL, eb_publish(bus, "x", NULL, NULL));
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &list)); /* reading needs no room */
    T_EQ(10, list.count);
    eb_event_list_free(&list);
    p_set(&disk_full, 0);
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_OK(eb_send(bus, m, 3, NULL));
    T_OK(t_settle(bus));
    T_EQ(14, p_get(&seen.calls));
    eb_destroy(bus);
    T_ROWS(14, path, "status = 'done' AND retry_count = 0");
    T_EQ(14, t_stored(path));
    PASS();
}

TEST outcome_waits_in_memory_while_the_disk_is_full(void)
{
    const char *path = t_path("full-ack");
    eb_options o = t_options(path);
    eb_bus *bus;
    memset(&gate, 0, sizeof gate);
    o.vfs = full_name();
    bus = t_run_with(&o, "x", p_wait_at, &gate);
    t_post(bus, "x", NULL);
    P_EVENTUALLY(p_get(&gate.entered));
    p_set(&disk_full, 1);
    p_set(&gate.release, 1);
    T_IS(EB_ERR_FULL, eb_post(bus, "x", NULL, NULL));
    p_nap(100);
    T_ROWS(0, path, "status = 'done'");
    p_set(&disk_full, 0);
    T_OK(t_settle(bus));
    T_EQ(1, p_get(&gate.calls));
    eb_destroy(bus);
    T_ROWS(1, path, "status = 'done' AND retry_count = 0");
    T_EQ(1, t_stored(path));
    PASS();
}

TEST full_disk_at_creation_leaves_nothing_half_made(void)
{
    const char *path = t_path("full-new");
    eb_options o = t_options(path);
    eb_bus *bus = (eb_bus *)&o;
    eb_result rc;
    o.vfs = full_name();
    p_set(&disk_full, 1);
    rc = eb_open(&bus, &o);
    ASSERT(rc == EB_ERR_FULL || rc == EB_ERR_IO);
    ASSERT_EQ(NULL, bus);
    p_set(&disk_full, 0);
    bus = t_open(&o);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    eb_destroy(bus);
    T_EQ(1, t_stored(path));
    PASS();
}

#ifndef _WIN32
/* limit path: posts until the operating system refuses to let any file grow. */
static int child_limit(char **arg)
{
    eb_options o = t_options(arg[0]);
    struct rlimit size, none;
    char *payload = (char *)malloc(8200);
    int64_t end;
    eb_result rc = EB_OK;
    eb_bus *bus;
    int n = 0;
    T_MUST(payload != NULL);
    memset(payload, '7', 8192);
    payload[8192] = 0;
    signal(SIGXFSZ, SIG_IGN);
    T_MUST(getrlimit(RLIMIT_FSIZE, &none) == 0);
    size = none;
    size.rlim_cur = 1024 * 1024;
    o.workers = EB_NONE;
    bus = t_open(&o);
    T_MUST(setrlimit(RLIMIT_FSIZE, &size) == 0);
    while (n < 1000 && (rc = eb_post(bus, "x", payload, NULL)) == EB_OK) n++;
    p_report("posted %d", n);
    p_report("refused %d", (int)rc);
    T_MUST(setrlimit(RLIMIT_FSIZE, &none) == 0);
    end = p_ms() + P_LONG_MS;
    while ((rc = eb_post(bus, "y", NULL, NULL)) != EB_OK && p_ms() < end) p_nap(20);
    p_report("again %d", (int)rc);
    eb_destroy(bus);
    free(payload);
    return 0;
}

TEST file_size_limit_is_a_full_disk(void)
{
    const char *path = t_path("limit");
    char line[100];
    int posted, refused;
    p_child *c = p_spawn("limit", path, NULL);
    T_EQ(1, p_hear(c, line, sizeof line));
    T_EQ(1, sscanf(line, "posted %d", &posted));
    T_EQ(1, p_hear(c, line, sizeof line));
    T_EQ(1, sscanf(line, "refused %d", &refused));
    P_HEAR(c, "again 0");
    P_ENDS_CLEANLY(c);
    P_WITHIN(1, 999, posted);
    /* EFBIG is an I/O error to SQLite: the bus cannot know. It was not stored, the rows say. */
    ASSERT(refused == EB_ERR_FULL || refused == EB_ERR_UNKNOWN);
    T_ROWS(posted, path, "type = 'x' AND status = 'pending' AND length(payload) = 8192");
    T_ROWS(1, path, "type = 'y'");
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", line, sizeof line));
    PASS();
}
#endif

/* ---- all of them ----------------------------------------------------------------------------- */

SUITE(made)
{
#ifndef _WIN32
    RUN_TEST(file_and_all_beside_it_are_private_under_any_umask);
    RUN_TEST(mode_of_an_existing_file_is_left_alone);
#endif
    RUN_TEST(file_is_in_wal_mode_on_disk);
    RUN_TEST(odd_characters_in_the_path_are_just_a_name);
    greatest_set_test_suffix("threads");
    RUN_TEST(memory_has_the_whole_life_and_is_private);
    t_pump_mode = 1;
    greatest_set_test_suffix("pump");
    RUN_TEST(memory_has_the_whole_life_and_is_private);
    t_pump_mode = 0;
}

SUITE(owned)
{
    static const char *const ours[] = {"events",       "event_log",     "deliveries",
                                       "finished",     "dead_letters",  "subscriptions",
                                       "meta",         "nodes",         "schedules"};
    static const char *const versions[] = {"'abc'", "''", "0", "-1"};
    static const char *const foreign[] = {
        "CREATE TABLE namespaces(mine TEXT); INSERT INTO namespaces VALUES ('hello')",
        "CREATE TABLE namespaces(mine TEXT); INSERT INTO namespaces VALUES ('hello')",
        "CREATE TABLE NameSpaces(ns TEXT PRIMARY KEY, created_at TEXT)",
        "CREATE TABLE namespaces(id INTEGER PRIMARY KEY, ns TEXT, metadata TEXT)",
        "CREATE TABLE base(mine TEXT); CREATE VIEW namespaces AS SELECT mine FROM base",
        "CREATE TABLE base(mine TEXT); CREATE INDEX namespaces ON base(mine)"};
    static const char *const forms[] = {
        "", "", "ns TEXT PRIMARY KEY, created_at TEXT NOT NULL, metadata TEXT",
        "ns TEXT PRIMARY KEY, created_at TEXT NOT NULL, metadata TEXT"};
    char suffix[20];
    size_t i;
    RUN_TEST(newer_version_is_refused_untouched);
    for (i = 0; i < sizeof versions / sizeof *versions; i++) {
        greatest_set_test_suffix(versions[i]);
        RUN_TESTp(version_that_is_none_is_refused, versions[i]);
    }
    RUN_TEST(application_tables_stay_beside_ours);
    for (i = 0; i < sizeof ours / sizeof *ours; i++) {
        greatest_set_test_suffix(ours[i]);
        RUN_TESTp(application_table_with_our_name_is_never_touched, "table", ours[i]);
    }
    greatest_set_test_suffix("view");
    RUN_TESTp(application_table_with_our_name_is_never_touched, "view", "events");
    greatest_set_test_suffix("upper_case");
    RUN_TESTp(application_table_with_our_name_is_never_touched, "table", "Meta");
    for (i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(suffix, sizeof suffix, "%d", (int)i);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(foreign_registry_of_namespaces_is_refused_untouched, foreign[i],
                  i & 1 ? "bus" : NULL);
    }
    for (i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(suffix, sizeof suffix, "%d", (int)i);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(registry_of_namespaces_of_our_form_is_joined, forms[i], i & 1 ? NULL : "bus");
    }
}

SUITE(namespaces)
{
    static const char *const bad[] = {"a b",    "a.b",      "a'b",     "a\"b",
                                      "a/b",    "a;b",      "a*",      "\xC3\xA4",
                                      "sqlite", "sqlite_x", "SQLite1", "a\n",
                                      "abcdefghijklmnopqrstuvwxyz0123456"};
    size_t i;
    RUN_TEST(namespace_prefixes_every_table);
    RUN_TEST(namespaces_in_one_file_do_not_see_each_other);
    for (i = 0; i < sizeof bad / sizeof *bad; i++)
        RUN_TESTp(bad_namespace_is_refused_and_makes_no_file, bad[i]);
}

SUITE(shell)
{
    RUN_TEST(view_answers_the_operators_questions);
    RUN_TEST(operator_may_only_do_what_has_a_meaning);
}

SUITE(bad)
{
    RUN_TEST(text_file_is_refused_untouched);
    RUN_TEST(empty_file_is_a_new_one);
    RUN_TEST(path_that_cannot_be_a_file_is_an_io_error);
    RUN_TEST(truncated_file_is_refused);
    RUN_TEST(flipped_byte_in_the_first_page_never_crashes_nor_empties_the_queue);
    RUN_TEST(garbage_wal_does_not_hide_what_the_file_has);
    RUN_TEST(file_that_vanishes_while_open_does_no_harm);
#ifndef _WIN32
    greatest_set_test_suffix("full");
    RUN_TEST1(renamed_file_takes_no_more_events, EB_DURABLE_FULL);
    greatest_set_test_suffix("normal");
    RUN_TEST1(renamed_file_takes_no_more_events, EB_DURABLE_NORMAL);
#endif
}

SUITE(busy_or_full)
{
    greatest_set_test_suffix("300_ms");
    RUN_TESTp(long_write_transaction_of_the_application_is_busy, 300);
    greatest_set_test_suffix("no_wait");
    RUN_TESTp(long_write_transaction_of_the_application_is_busy, EB_NONE);
    RUN_TEST(outcome_waits_in_memory_while_the_file_is_locked);
    greatest_set_test_suffix("full");
    RUN_TESTp(full_disk_refuses_and_works_again_later, EB_DURABLE_FULL);
    greatest_set_test_suffix("normal");
    RUN_TESTp(full_disk_refuses_and_works_again_later, EB_DURABLE_NORMAL);
    RUN_TEST(outcome_waits_in_memory_while_the_disk_is_full);
    RUN_TEST(full_disk_at_creation_leaves_nothing_half_made);
#ifndef _WIN32
    RUN_TEST(file_size_limit_is_a_full_disk);
#endif
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
#ifndef _WIN32
    if (argc > 3 && strcmp(argv[1], "--child") == 0) {
        p_child_init();
        return strcmp(argv[2], "limit") == 0 ? child_limit(argv + 3) : 8;
    }
#endif
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    P_RUN(made);
    P_RUN(owned);
    P_RUN(namespaces);
    P_RUN(shell);
    P_RUN(bad);
    P_RUN(busy_or_full);
    GREATEST_MAIN_END();
}
