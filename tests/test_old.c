/* test_old.c - files of version 0.1.0, and its processes beside this version.
**
** old/ has the header of 0.1.0, the files, and old.c, which is linked into this program: a child that
** is asked to be `old` runs that version only, and does what it is told line by line. The parent and
** all other children run the new one. Clocks stand still unless a test moves them; OLD_BEGIN_MS is
** T_EPOCH. What the files hold is listed in old.c, and below in `lives`.
*/
#include "proc.h"
#include "old/old.h"

/* Who takes over starts a second after the old process was killed. */
enum { RESTART_MS = OLD_KILLED_MS + 1000, HOUR_MS = 3600000 };

/* ---- the files ---------------------------------------------------------------------------------- */

typedef struct space { /* a namespace of a file */
    const char *file, *ns, *prefix;
    int batch; /* killed in a batch, not alone */
} space;
static const space plain = {"plain", NULL, "", 0};
static const space shop = {"spaces", "my-shop", "my-shop_", 1};

enum { AT_ONCE = 1 }; /* for due_ms: it does not wait, or until a time that has come */
typedef struct life {
    int n; /* in the payload; also its seq, but for the last ones */
    const char *type;
    eb_status status;
    int failed;
    int64_t due_ms; /* in the time of the file; 0: none */
    const char *key, *idempotency, *errors;
} life;
static const life lives[] = {
    {1, "wait.plain", EB_PENDING, 0, 0, NULL, NULL, NULL},
    {2, "wait.later", EB_PENDING, 0, 3600000, NULL, NULL, NULL},
    {3, "wait.key", EB_PENDING, 0, 0, "w", NULL, NULL},
    {4, "wait.key", EB_PENDING, 0, 1800000, "w", NULL, NULL},
    {5, "wait.key", EB_PENDING, 0, 0, "w", NULL, NULL},
    {6, "wait.moved", EB_DLQ, 1, 0, NULL, "moved-1", "[\"nobody wants it\"]"},
    {7, "ok.first", EB_DONE, 0, 0, "k", "once-1", NULL},
    {9, "fail.done", EB_DONE, 1, 0, NULL, NULL, "[\"attempt 1 failed\"]"},
    {10, "fail.dead", EB_DLQ, 3, 0, "d", "dead-1",
     "[\"attempt 1 failed\",\"attempt 2 failed\",\"attempt 3 failed\"]"},
    {11, "ok.behind", EB_DONE, 0, 0, "d", NULL, NULL},
    {12, "reject.dead", EB_DLQ, 1, 0, NULL, NULL, "[\"no \\\"such\\\" thing, n\xC3\xA9\"]"},
    {13, "fail.twice", EB_PROCESSING, 2, 360000, NULL, NULL,
     "[\"attempt 1 failed\",\"attempt 2 failed\"]"},
    {14, "fail.once", EB_PROCESSING, 1, 300000, NULL, NULL, "[\"attempt 1 failed\"]"},
    {15, "snooze.hour", EB_PENDING, 0, 3840000, NULL, NULL, NULL},
    {16, "fail.key", EB_PROCESSING, 1, 300000, "r", NULL, "[\"attempt 1 failed\"]"},
    {17, "ok.key", EB_PENDING, 0, 0, "r", NULL, NULL},
    {18, "ok.key", EB_PENDING, 0, 0, "r", NULL, NULL},
    {19, "reject.retried", EB_PENDING, 0, AT_ONCE, NULL, NULL, NULL},
    {20, "snooze.key", EB_DLQ, 1, 0, "q", NULL, "[\"given up\"]"},
    {21, "ok.key", EB_PENDING, 0, AT_ONCE, "q", NULL, NULL},
};
static const life alone[] = {{40, "die.now", EB_PROCESSING, 0, 0, NULL, NULL, NULL}};
static const life batch[] = {
    {41, "die.batch", EB_PROCESSING, 0, 0, NULL, NULL, NULL},
    {42, "ok.batch", EB_PROCESSING, 0, 0, NULL, NULL, NULL},
    {43, "ok.batch", EB_PROCESSING, 0, 0, NULL, NULL, NULL},
    {44, "ok.batch", EB_PROCESSING, 0, 0, NULL, NULL, NULL},
};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
enum { WARM = 8, WARM_N = 30, N_MAX = 50 }; /* the quick ones before the batch, all done */

/* What payload n should look like; NULL: there is no such event. */
static const life *life_of(const space *s, int n)
{
    int i;
    for (i = 0; i < COUNT(lives); i++)
        if (lives[i].n == n) return &lives[i];
    for (i = 0; !s->batch && i < COUNT(alone); i++)
        if (alone[i].n == n) return &alone[i];
    for (i = 0; s->batch && i < COUNT(batch); i++)
        if (batch[i].n == n) return &batch[i];
    return NULL;
}

static int count_of(const space *s)
{
    return COUNT(lives) + (s->batch ? COUNT(batch) + WARM : COUNT(alone));
}

/* The folder old/, from where this program lies: some floors above it. */
static char folder[1000];
static void find_folder(const char *program)
{
    char at[900];
    int up;
    snprintf(at, sizeof at, "%s", program);
    for (up = 0; up < 6; up++) {
        char *end = strrchr(at, '/'), *other = strrchr(at, '\\'), name[1040];
        FILE *file;
        if (!end || (other && other > end)) end = other;
        if (end) *end = 0;
        snprintf(folder, sizeof folder, "%s/old", end ? at : ".");
        snprintf(name, sizeof name, "%s/plain-0.1.0.sqlite3", folder);
        if ((file = fopen(name, "rb")) != NULL) {
            fclose(file);
            return;
        }
        if (!end) snprintf(at, sizeof at, "./.");
    }
    fprintf(stderr, "test_old: no folder old/ with the files above %s\n", program);
    abort();
}

typedef struct bytes {
    char *data;
    size_t len;
} bytes;

static bytes slurp(const char *path)
{
    bytes b = {NULL, 0};
    FILE *file = fopen(path, "rb");
    long len;
    T_MUST(file && fseek(file, 0, SEEK_END) == 0 && (len = ftell(file)) >= 0);
    b.len = (size_t)len;
    b.data = (char *)malloc(b.len + 1);
    rewind(file);
    T_MUST(b.data && fread(b.data, 1, b.len, file) == b.len);
    fclose(file);
    return b;
}

/* 1 if the file still has those bytes; frees. */
static int unchanged(const char *path, bytes *was)
{
    bytes is = slurp(path);
    int same = is.len == was->len && memcmp(is.data, was->data, is.len) == 0;
    free(is.data);
    free(was->data);
    was->data = NULL;
    return same;
}

/* A copy of the file, to be ruined. Each has a name of its own: what a failed test leaves open is in
** nobody's way. */
static const char *copy_of(const space *s)
{
    static int copies;
    char name[1040];
    const char *path;
    bytes b;
    FILE *file;
    snprintf(name, sizeof name, "%s-%d", s->file, ++copies);
    path = t_path(name);
    snprintf(name, sizeof name, "%s/%s-0.1.0.sqlite3", folder, s->file);
    b = slurp(name);
    file = fopen(path, "wb");
    T_MUST(file && fwrite(b.data, 1, b.len, file) == b.len);
    T_MUST(fclose(file) == 0);
    free(b.data);
    return path;
}

static int64_t number(const char *path, const space *s, const char *before, const char *after)
{
    char sql[700];
    snprintf(sql, sizeof sql, "SELECT %s \"%s%s", before, s->prefix, after);
    return t_sql_int(path, sql);
}
static int64_t version_of(const char *path, const space *s)
{
    return number(path, s, "value FROM", "meta\" WHERE key = 'schema_version'");
}

/* ---- what version 1 knows of a file, as text ------------------------------------------------------ */

enum { DUMP = 60000 };
static char dump_a[DUMP], dump_b[DUMP];

/* All rows of a table of ours, these columns ("seq,id,..."), in order of the first. */
static void dump_table(const char *path, const char *prefix, const char *table, const char *columns,
                       char *buf, size_t cap)
{
    char list[700], sql[1400], *to = list;
    const char *from;
    to += snprintf(list, sizeof list, "quote(");
    for (from = columns; *from; from++)
        if (*from == ',') to += snprintf(to, 20, ")||' '||quote(");
        else *to++ = *from;
    snprintf(to, 2, ")");
    snprintf(sql, sizeof sql,
             "SELECT '%s: '||ifnull(group_concat(%s, char(10)), '')||char(10) FROM"
             " (SELECT * FROM \"%s%s\" ORDER BY %.*s)", table, list, prefix, table,
             (int)strcspn(columns, ","), columns);
    t_sql_text(path, sql, buf, cap);
}

/* Everything that must be the same after a migration. random = 0: without what is by chance. */
static void dump(const char *path, const char *prefix, int random, char *to)
{
    static const char *const table[][3] = {
        {"event_log", "seq,type,payload,metadata,ordering_key,idempotency_key,producer,"
                      "deliver_at_ms,created_at", "seq,id"},
        {"deliveries", "seq,status,attempts,failed,max_attempts,suspect,snoozes,"
                       "due_ms,lease_ms,owner,errors,ordering_key,retried_at,retried_by,"
                       "updated_at", "seq,token,born"},
        {"finished", "seq,attempts,errors,finished_at", NULL},
        {"dead_letters", "seq,subscription,type,payload,metadata,ordering_key,idempotency_key,"
                         "producer,created_at,failed,errors,died_at,options,retried_at,"
                         "retried_by", "seq,id"},
        {"subscriptions", "event_type,created_at,name,checkpoint,options", "id"},
        {"schedules", "name", NULL},
        {"nodes", "id", NULL},
    };
    char sql[200];
    size_t i, at = 0;
    for (i = 0; i < sizeof table / sizeof *table; i++) {
        dump_table(path, prefix, table[i][0], table[i][1], to + at, DUMP - at);
        at += strlen(to + at);
        if (!random || !table[i][2]) continue;
        dump_table(path, prefix, table[i][0], table[i][2], to + at, DUMP - at);
        at += strlen(to + at);
    }
    snprintf(sql, sizeof sql, "SELECT group_concat(key||' '||value, char(10)) FROM \"%smeta\""
             " WHERE key IN ('application', 'seq_floor', 'removed', 'claimed_to', 'created_at'%s)",
             prefix, random ? ", 'id_key_1', 'id_key_2'" : "");
    t_sql_text(path, sql, to + at, DUMP - at);
    T_MUST(strlen(to) > 1000 && strlen(to) < DUMP - 1);
}

/* ---- the new side ------------------------------------------------------------------------------- */

static t_time now;

static void time_is(int64_t ms) /* in the time of the file */
{
    now.now_ms = OLD_BEGIN_MS + ms;
}

/* No workers, and the clock above, a second after the kill. */
static eb_options options(const char *path, const char *ns)
{
    eb_options o = t_options(path);
    o.ns = ns;
    o.workers = EB_NONE;
    o.retry.max_retries = 2;
    o.retry.base_delay_ms = 60000;
    o.retry.max_delay_ms = 600000;
    o.clock = t_clock(&now);
    time_is(RESTART_MS);
    return o;
}

/* One call of the handler. */
typedef struct call {
    int n, attempt, failed, alone; /* alone: no other row of deliveries was claimed */
    int64_t at_ms;                 /* in the time of the file */
    char type[40], key[10], errors[300];
} call;
typedef struct calls {
    call items[120];
    int count;
    int fails; /* how many attempts of an event fail in this process */
    int tries[N_MAX];
    const char *path, *prefix;
} calls;
static calls seen;

static eb_result handle(eb_delivery *d, void *user)
{
    calls *s = (calls *)user;
    call *c = &s->items[s->count++];
    T_MUST(s->count < COUNT(s->items));
    c->n = (int)strtol(strlen(d->event->payload) > 5 ? d->event->payload + 5 : "0", NULL, 10);
    T_MUST(c->n >= 0 && c->n < N_MAX);
    c->attempt = d->attempt;
    c->failed = d->event->retry_count;
    c->at_ms = now.now_ms - OLD_BEGIN_MS;
    t_copy(c->type, sizeof c->type, d->event->type);
    t_copy(c->key, sizeof c->key, d->event->ordering_key);
    t_copy(c->errors, sizeof c->errors, d->event->last_error);
    if (s->path) {
        char sql[200];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM \"%sdeliveries\" WHERE token IS NOT NULL",
                 s->prefix);
        c->alone = t_sql_int(s->path, sql) == 1;
    }
    return ++s->tries[c->n] <= s->fails ? eb_fail(d, "new %d", d->attempt) : EB_OK;
}

/* The only call for payload n, or the k-th; NULL if there is none. */
static const call *call_of(int n, int k)
{
    int i;
    for (i = 0; i < seen.count; i++)
        if (seen.items[i].n == n && k-- == 0) return &seen.items[i];
    return NULL;
}

/* "3 5 4": the payloads of a key, or of a type, in order of the calls; a buffer of its own. */
static const char *order_of(const char *key, const char *type)
{
    static char text[300];
    size_t at = 0;
    int i;
    text[0] = 0;
    for (i = 0; i < seen.count; i++)
        if (key ? !strcmp(seen.items[i].key, key) : !strcmp(seen.items[i].type, type))
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", at ? " " : "",
                                   seen.items[i].n);
    return text;
}

static eb_bus *open_new(const char *path, const char *ns)
{
    eb_options o = options(path, ns);
    memset(&seen, 0, sizeof seen);
    return t_open(&o);
}

/* Subscribes and becomes the dispatcher. */
static eb_result start(eb_bus *bus, const char *pattern)
{
    eb_result rc = eb_subscribe(bus, pattern, handle, &seen, NULL, NULL);
    return rc == EB_OK ? eb_start(bus) : rc;
}

static eb_result pump(eb_bus *bus) { return eb_pump(bus, EB_NONE, NULL); }

/* What the old one answers to `count`, from this version. */
static const char *census(eb_store *store)
{
    static char text[OLD_ANSWER];
    eb_event_list list;
    eb_query query = {0};
    eb_stats s;
    int n[4] = {0, 0, 0, 0}, all, dead;
    size_t i;
    query.limit = 1000;
    T_DO(eb_log_read(store, &query, &list));
    for (i = 0; i < list.count; i++) n[list.items[i].status]++;
    all = (int)list.count;
    eb_event_list_free(&list);
    T_DO(eb_dlq_list(store, NULL, &list));
    dead = (int)list.total;
    eb_event_list_free(&list);
    T_DO(eb_stats_get(store, &s));
    snprintf(text, sizeof text,
             "EB_OK %d pending %d processing %d done %d dlq %d, dead %d, stats %d %d %d %d", all,
             n[EB_PENDING], n[EB_PROCESSING], n[EB_DONE], n[EB_DLQ], dead, (int)s.pending,
             (int)s.processing, (int)s.done, (int)s.dlq);
    return text;
}

/* The first event of a type; free the list. count 0: there is none. */
static eb_event_list first_of(eb_store *store, const char *type)
{
    eb_event_list list;
    eb_query query = {0};
    query.pattern = type;
    query.limit = 1;
    T_DO(eb_log_read(store, &query, &list));
    return list;
}

static int status_of(eb_store *store, const char *type)
{
    eb_event_list list = first_of(store, type);
    int status = list.count ? (int)list.items[0].status : -1;
    eb_event_list_free(&list);
    return status;
}

/* ---- the old side ------------------------------------------------------------------------------- */

/* What the old process answers to one line. */
static const char *ask(p_child *c, const char *fmt, ...) EB_PRINTF(2, 3);
static const char *ask(p_child *c, const char *fmt, ...)
{
    static char line[440];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p_tell(c, line);
    if (p_hear(c, line, sizeof line) != 1) snprintf(line, sizeof line, "(it is gone)");
    return line;
}
#define OLD_SAYS(want, ...) ASSERT_STR_EQ(want, ask(__VA_ARGS__))

/* An old process with the file open. how: idle, threads. */
static p_child *old_open(const char *path, const char *ns, const char *how)
{
    p_child *c = p_spawn("old", NULL);
    T_MUST(strcmp(ask(c, "clock %d", RESTART_MS), "EB_OK") == 0);
    T_MUST(strcmp(ask(c, "open %s %s %s", path, ns ? ns : "-", how), "EB_OK") == 0);
    return c;
}

static int old_main(void)
{
    char line[440], answer[OLD_ANSWER];
    while (p_order(line, sizeof line)) {
        old_command(line, answer, sizeof answer);
        p_report("%s", answer);
    }
    return 0;
}

/* ---- the files are what they are said to be ------------------------------------------------------- */

/* Whoever doubts them makes them again; only ids and tokens depend on the machine. */
TEST files_can_be_made_again(const space *s)
{
    const char *path = t_path("again"), *kept = copy_of(s);
    if (s->batch) P_ENDS_CLEANLY(p_spawn("fill", "second", path, NULL));
    ASSERT(p_is_killed(p_end(p_spawn("fill", s->file, path, NULL))));
    old_seal(path);
    dump(kept, s->prefix, 0, dump_a);
    dump(path, s->prefix, 0, dump_b);
    ASSERT_STR_EQ(dump_a, dump_b);
    T_EQ(1, version_of(path, s));
    T_EQ(s->batch ? 4 : 1, number(path, s, "count(*) FROM", "deliveries\" WHERE token NOTNULL"));
    if (!s->batch) PASS();
    dump(kept, "second_", 0, dump_a);
    dump(path, "second_", 0, dump_b);
    ASSERT_STR_EQ(dump_a, dump_b);
    PASS();
}

/* ---- from version 1 to version 2 ------------------------------------------------------------------ */

TEST everything_is_there_after_the_migration(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus;
    char text[100];
    dump(path, s->prefix, 1, dump_a);
    T_EQ(1, version_of(path, s));
    bus = open_new(path, s->ns);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    dump(path, s->prefix, 1, dump_b);
    ASSERT_STR_EQ(dump_a, dump_b);
    eb_destroy(bus);
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", text, sizeof text));
    bus = open_new(path, s->ns); /* and a second time there is nothing to do */
    dump(path, s->prefix, 1, dump_b);
    ASSERT_STR_EQ(dump_a, dump_b);
    eb_destroy(bus);
    PASS();
}

/* Released steps are literal text: what 0.1.0 made and what this version makes anew are the same in
** the end, to the letter. */
TEST migrated_schema_is_that_of_a_new_file(const space *s)
{
    static const char all[] =
        "SELECT group_concat(type||' '||name||' '||ifnull(sql,''), char(10)) FROM"
        " (SELECT * FROM sqlite_schema WHERE name NOT LIKE 'second%' AND tbl_name NOT LIKE"
        " 'second%' AND tbl_name <> 'orders' AND name NOT LIKE 'sqlite%' ORDER BY type, name)";
    const char *path = copy_of(s), *fresh = t_path("fresh");
    eb_bus *bus = open_new(path, s->ns);
    eb_destroy(bus);
    bus = open_new(fresh, s->ns);
    eb_destroy(bus);
    t_sql_text(path, all, dump_a, DUMP);
    t_sql_text(fresh, all, dump_b, DUMP);
    ASSERT(strstr(dump_b, "CREATE TABLE"));
    ASSERT_STR_EQ(dump_b, dump_a);
    PASS();
}

/* With a namespace `x`, x_name must not be a name of ours that another namespace may have. */
TEST no_new_name_is_a_word_and_an_old_name(void)
{
    const char *was = copy_of(&plain), *is = t_path("names");
    char sql[900], text[400];
    eb_bus *bus = open_new(is, NULL);
    eb_destroy(bus);
    snprintf(sql, sizeof sql,
             "ATTACH '%s' AS was; CREATE TABLE clash AS SELECT n.name AS name FROM"
             " main.sqlite_schema AS n, main.sqlite_schema AS o WHERE n.name NOT LIKE 'sqlite%%'"
             " AND n.name NOT IN (SELECT name FROM was.sqlite_schema) AND length(n.name) >"
             " length(o.name) AND substr(n.name, -length(o.name) - 1) = '_' || o.name", was);
    T_MUST(t_sql(is, sql, text, sizeof text) == SQLITE_OK);
    t_sql_text(is, "SELECT group_concat(name) FROM clash", text, sizeof text);
    ASSERT_STR_EQ("", text);
    PASS();
}

TEST neighbours_in_the_file_stay_as_they_are(void)
{
    static const space second = {"spaces", "second", "second_", 0};
    static const char theirs[] =
        "SELECT (SELECT group_concat(sql) FROM sqlite_schema WHERE tbl_name = 'orders' OR"
        " tbl_name LIKE 'second%') || (SELECT group_concat(id || what) FROM orders)";
    const char *path = copy_of(&shop);
    static char before[9000], after[9000];
    eb_bus *bus;
    dump(path, "second_", 1, dump_a);
    t_sql_text(path, theirs, before, sizeof before);
    bus = open_new(path, "my-shop");
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, &shop));
    T_EQ(1, version_of(path, &second));
    dump(path, "second_", 1, dump_b);
    ASSERT_STR_EQ(dump_a, dump_b);
    ASSERT_STR_EQ(before, t_sql_text(path, theirs, after, sizeof after));
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    eb_destroy(bus);
    bus = open_new(path, "second"); /* its own turn, with the other one in use meanwhile */
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, &second));
    T_OK(start(bus, "*"));
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    T_EQ(2, seen.count);
    T_EQ(1, call_of(1, 0)->attempt);
    T_EQ(3600000, call_of(2, 0)->at_ms);
    T_EQ(2, t_sql_int(path, "SELECT count(*) FROM orders"));
    eb_destroy(bus);
    PASS();
}

TEST inspector_sees_what_was(const space *s)
{
    const char *path = copy_of(s);
    eb_options o = options(path, s->ns);
    eb_store *store = NULL;
    eb_event_list list;
    size_t i;
    int n, warm = 0;
    T_OK(eb_store_open(&store, &o));
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s)); /* it may migrate too */
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(count_of(s), list.count);
    for (i = 0; i < list.count; i++) {
        const eb_event *e = &list.items[i];
        const life *want;
        n = (int)strtol(e->payload + 5, NULL, 10);
        if (n == WARM_N) {
            T_EQ(EB_DONE, e->status);
            warm++;
            continue;
        }
        want = life_of(s, n);
        ASSERTm("no event of the list", want != NULL);
        ASSERT_STR_EQ(want->type, e->type);
        T_EQ(want->status, e->status);
        T_EQ(want->failed, e->retry_count);
        ASSERT_STR_EQ(want->errors ? want->errors : "", e->last_error ? e->last_error : "");
        ASSERT_STR_EQ(want->key ? want->key : "", e->ordering_key ? e->ordering_key : "");
        ASSERT_STR_EQ(want->idempotency ? want->idempotency : "",
                      e->idempotency_key ? e->idempotency_key : "");
        ASSERT_STR_EQ(n % 5 == 1 && n < 40 ? "{\"made\":\"by 0.1.0\"}" : "",
                      e->metadata ? e->metadata : "");
        ASSERT_STR_EQ("old-node", e->producer);
        T_EQ(n < 40 ? n : s->batch ? n - 11 : 22, e->seq);
        if (want->due_ms == AT_ONCE)
            ASSERT(e->due_ms == 0 || e->due_ms == OLD_BEGIN_MS + OLD_KILLED_MS);
        else T_EQ(want->due_ms ? OLD_BEGIN_MS + want->due_ms : 0, e->due_ms);
        T_EQ(n >= 40 ? OLD_BEGIN_MS + OLD_KILLED_MS : 0, e->claimed_ms);
        T_EQ(e->status, t_status(store, e->id.str)); /* ids mean the same events */
    }
    T_EQ(s->batch ? WARM : 0, warm);
    eb_event_list_free(&list);
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(4, list.total);
    T_EQ(4, list.count);
    for (i = 0; i < list.count; i++) {
        n = (int)strtol(list.items[i].payload + 5, NULL, 10);
        T_EQ(life_of(s, n)->failed, list.items[i].retry_count);
        ASSERT_STR_EQ(life_of(s, n)->errors, list.items[i].last_error);
        ASSERT(list.items[i].dlq_at_ms >= list.items[i].created_at_ms);
    }
    eb_event_list_free(&list);
    eb_store_close(store);
    PASS();
}

/* What the new columns of the view say of rows that are older than they are. */
TEST view_has_its_new_columns_for_old_rows(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus = open_new(path, s->ns);
    char sql[300], text[200];
    eb_destroy(bus);
    T_EQ(count_of(s), number(path, s, "count(*) FROM", "events\""));
    snprintf(sql, sizeof sql, "SELECT attempts||' '||due_at||' '||ifnull(processing_started_at,'-')"
             " FROM \"%sevents\" WHERE type = 'fail.once'", s->prefix);
    ASSERT_STR_EQ("1 2026-11-18T05:37:10.000Z -", t_sql_text(path, sql, text, sizeof text));
    snprintf(sql, sizeof sql, "SELECT due_at||' '||ifnull(processing_started_at,'-')"
             " FROM \"%sevents\" WHERE type = 'wait.later'", s->prefix);
    ASSERT_STR_EQ("2026-11-18T06:32:10.000Z -", t_sql_text(path, sql, text, sizeof text));
    snprintf(sql, sizeof sql, "SELECT min(processing_started_at)||' '||min(owner)"
             " FROM \"%sevents\" WHERE type LIKE 'die.%%'", s->prefix);
    ASSERT_STR_EQ("2026-11-18T05:36:10.000Z old-node", t_sql_text(path, sql, text, sizeof text));
    /* the query for stuck events does not take those for stuck that wait for a retry */
    T_EQ(s->batch ? 4 : 1,
         number(path, s, "count(*) FROM", "events\" WHERE status = 'processing'"
                " AND processing_started_at < '2026-11-18T06:00:00.000Z'"));
    PASS();
}

/* ---- in one transaction or not at all ------------------------------------------------------------- */

static const char *hooked; /* the file; "" for all */
static int commits, hook_refuses, hook_dies;

static int commit_hook(void *db)
{
    const char *name = sqlite3_db_filename((sqlite3 *)db, "main");
    size_t len = name ? strlen(name) : 0, tail = strlen(hooked);
    if (len < tail || strcmp(name + len - tail, hooked) != 0) return 0;
    if (hook_dies) p_die();
    commits++;
    return hook_refuses;
}

static int hook_connection(sqlite3 *db, const char **error, const struct sqlite3_api_routines *api)
{
    (void)error;
    (void)api;
    sqlite3_commit_hook(db, commit_hook, db);
    return SQLITE_OK;
}

/* From now on every commit of a connection to that file is counted, refused, or the end. */
static void hook(const char *path, int refuses, int dies)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    sqlite3_initialize(); /* which the next call needs and does not do */
    sqlite3_cancel_auto_extension((void (*)(void))hook_connection);
    commits = 0;
    hook_refuses = refuses;
    hook_dies = dies;
    hooked = slash ? slash + 1 : path;
    if (path) T_MUST(sqlite3_auto_extension((void (*)(void))hook_connection) == SQLITE_OK);
}

TEST migration_is_one_commit(const space *s)
{
    const char *path = copy_of(s);
    eb_options o = options(path, s->ns);
    eb_bus *bus = NULL;
    hook(path, 0, 0);
    T_OK(eb_open(&bus, &o));
    T_EQ(1, commits);
    eb_destroy(bus);
    T_EQ(1, commits);
    T_OK(eb_open(&bus, &o));
    T_EQ(1, commits);
    eb_destroy(bus);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    PASS();
}

TEST migration_that_cannot_commit_leaves_the_file_as_it_was(const space *s)
{
    const char *path = copy_of(s);
    eb_options o = options(path, s->ns);
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    bytes was = slurp(path);
    hook(path, 1, 0);
    ASSERT(eb_open(&bus, &o) < 0);
    ASSERT(bus == NULL);
    T_SAYS("");
    ASSERT(eb_store_open(&store, &o) < 0);
    ASSERT(store == NULL);
    T_EQ(2, commits); /* each tried once */
    hook(NULL, 0, 0);
    ASSERT(unchanged(path, &was));
    T_EQ(1, version_of(path, s));
    bus = open_new(path, s->ns);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    eb_destroy(bus);
    PASS();
}

static int die_migrating(const char *path, const char *ns)
{
    eb_options o = options(path, *ns == '-' ? NULL : ns);
    eb_bus *bus;
    hook(path, 0, 1);
    bus = t_open(&o);
    p_report("it survived");
    eb_destroy(bus);
    return 0;
}

TEST process_killed_in_the_migration_leaves_version_1(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus;
    char text[100];
    dump(path, s->prefix, 1, dump_a);
    ASSERT(p_is_killed(p_end(p_spawn("die", path, s->ns ? s->ns : "-", NULL))));
    T_EQ(1, version_of(path, s));
    ASSERT_STR_EQ("ok", t_sql_text(path, "PRAGMA integrity_check", text, sizeof text));
    bus = open_new(path, s->ns); /* and nobody holds anything */
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    dump(path, s->prefix, 1, dump_b);
    ASSERT_STR_EQ(dump_a, dump_b);
    T_OK(start(bus, "*"));
    eb_destroy(bus);
    PASS();
}

/* ---- what was begun is brought to its end --------------------------------------------------------- */

/* At its exact time, with all its failures, and in order of its key. */
TEST old_lives_run_to_their_end(const space *s)
{
    static const struct { int n, attempt; int64_t at_ms; } run[] = {
        {1, 1, RESTART_MS}, {3, 1, RESTART_MS}, {5, 1, RESTART_MS}, {19, 1, RESTART_MS},
        {21, 1, RESTART_MS}, {14, 2, 300000}, {16, 2, 300000}, {17, 1, 300000}, {18, 1, 300000},
        {13, 3, 360000}, {4, 1, 1800000}, {2, 1, 3600000}, {15, 1, 3840000}};
    const char *path = copy_of(s);
    eb_bus *bus = open_new(path, s->ns);
    eb_store *store = eb_bus_store(bus);
    eb_event_list list;
    size_t k;
    int i;
    T_OK(start(bus, "*"));
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    for (i = 0; i < COUNT(run); i++) {
        const call *c = call_of(run[i].n, 0);
        ASSERTm("it was called", c != NULL);
        T_EQ(run[i].at_ms, c->at_ms);
        T_EQ(run[i].attempt, c->attempt);
        T_EQ(life_of(s, run[i].n)->failed, c->failed);
        ASSERT_STR_EQ(life_of(s, run[i].n)->errors ? life_of(s, run[i].n)->errors : "", c->errors);
    }
    T_EQ(COUNT(run) + (s->batch ? COUNT(batch) : COUNT(alone)), seen.count);
    ASSERT_STR_EQ("3 5 4", order_of("w", NULL)); /* 4 is delayed and untried: 5 need not wait */
    ASSERT_STR_EQ("16 17 18", order_of("r", NULL));
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(count_of(s), list.count);
    for (k = 0; k < list.count; k++) {
        const eb_event *e = &list.items[k];
        const life *was = life_of(s, (int)strtol(e->payload + 5, NULL, 10));
        if (!was) continue;
        T_EQ(was->status == EB_DLQ ? EB_DLQ : EB_DONE, e->status);
        if (was->n == 40) continue;
        T_EQ(was->failed, e->retry_count);
        ASSERT_STR_EQ(was->errors ? was->errors : "", e->last_error ? e->last_error : "");
        T_EQ(0, e->due_ms);
        T_EQ(0, e->claimed_ms);
    }
    eb_event_list_free(&list);
    T_EQ(0, number(path, s, "count(*) FROM", "deliveries\""));
    eb_destroy(bus);
    PASS();
}

/* The machine was off for a while: then everything is due, and keys go in order of publishing. */
TEST keys_keep_their_order_when_all_is_overdue(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus = open_new(path, s->ns);
    time_is(10 * HOUR_MS);
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    T_EQ(13 + (s->batch ? COUNT(batch) : COUNT(alone)), seen.count);
    ASSERT_STR_EQ("3 4 5", order_of("w", NULL));
    ASSERT_STR_EQ("16 17 18", order_of("r", NULL));
    ASSERT_STR_EQ("21", order_of("q", NULL));
    T_EQ(0, number(path, s, "count(*) FROM", "deliveries\""));
    eb_destroy(bus);
    PASS();
}

/* Failures of both versions count as one list, and end where the policy says. */
TEST error_lists_go_on(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus = open_new(path, s->ns);
    eb_store *store = eb_bus_store(bus);
    eb_event_list list;
    char text[100];
    size_t k;
    seen.fails = 100;
    T_OK(start(bus, "*"));
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    T_OK(eb_log_read(store, NULL, &list));
    for (k = 0; k < list.count; k++) {
        const eb_event *e = &list.items[k];
        const life *was = life_of(s, (int)strtol(e->payload + 5, NULL, 10));
        if (!was || was->status == EB_DONE || was->status == EB_DLQ) continue;
        T_EQ(EB_DLQ, e->status);
        T_EQ(3, e->retry_count);
        T_EQ(3, t_errors(e->last_error, 2, text, sizeof text));
        ASSERT_STR_EQ("new 3", text);
        if (was->failed) t_errors(e->last_error, was->failed - 1, text, sizeof text);
        if (was->failed == 2) ASSERT_STR_EQ("attempt 2 failed", text);
        if (was->failed == 1) ASSERT_STR_EQ("attempt 1 failed", text);
    }
    eb_event_list_free(&list);
    T_EQ(360000, call_of(13, 0)->at_ms); /* its last attempt */
    ASSERT(call_of(13, 1) == NULL);
    T_EQ(300000, call_of(14, 0)->at_ms);
    T_EQ(420000, call_of(14, 1)->at_ms); /* two failures: the second wait */
    ASSERT_STR_EQ("16 16 17 17 17 18 18 18", order_of("r", NULL));
    T_EQ(420000, call_of(17, 0)->at_ms); /* its turn comes when the head is dead */
    eb_destroy(bus);
    PASS();
}

/* The handler that the old process was killed in: its claim was counted, nobody else's was under
** way, so it is charged with one failed attempt. */
TEST lone_handler_of_a_dead_process_is_charged(void)
{
    const char *path = copy_of(&plain);
    eb_bus *bus = open_new(path, NULL);
    eb_store *store = eb_bus_store(bus);
    eb_event_list list;
    const call *c;
    T_OK(start(bus, "*"));
    list = first_of(store, "die.now");
    T_EQ(1, list.count);
    T_EQ(1, list.items[0].retry_count);
    T_EQ(1, p_interrupted(list.items[0].last_error));
    eb_event_list_free(&list);
    T_OK(pump(bus));
    c = call_of(40, 0);
    ASSERT(c);
    T_EQ(2, c->attempt);
    T_EQ(RESTART_MS, c->at_ms);
    T_EQ(EB_DONE, status_of(store, "die.now"));
    eb_destroy(bus);
    PASS();
}

/* One of four ended it, and nobody knows which: none is charged, each runs alone. */
TEST batch_of_a_dead_process_is_tried_one_by_one(void)
{
    const char *path = copy_of(&shop);
    eb_bus *bus = open_new(path, "my-shop");
    eb_store *store = eb_bus_store(bus);
    eb_event_list list;
    int n;
    seen.path = path;
    seen.prefix = "my-shop_";
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    for (n = 41; n <= 44; n++) {
        ASSERT(call_of(n, 0) && !call_of(n, 1));
        T_EQ(1, call_of(n, 0)->attempt);
        T_EQ(0, call_of(n, 0)->failed);
        T_EQ(1, call_of(n, 0)->alone);
    }
    ASSERT_STR_EQ("42 43 44", order_of(NULL, "ok.batch"));
    list = first_of(store, "die.batch");
    T_EQ(EB_DONE, list.items[0].status);
    T_EQ(0, list.items[0].retry_count);
    ASSERT(list.items[0].last_error == NULL);
    eb_event_list_free(&list);
    eb_destroy(bus);
    PASS();
}

/* The old version has recovered them, but ran none of them before it was closed. */
TEST suspects_of_an_old_recovery_are_tried_one_by_one(void)
{
    const char *path = copy_of(&shop);
    p_child *old = old_open(path, "my-shop", "idle");
    eb_bus *bus;
    int n;
    OLD_SAYS("EB_OK", old, "start");
    OLD_SAYS("EB_OK", old, "close");
    P_ENDS_CLEANLY(old);
    T_EQ(4, number(path, &shop, "count(*) FROM", "deliveries\" WHERE suspect > 0"));
    bus = open_new(path, "my-shop");
    seen.path = path;
    seen.prefix = "my-shop_";
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    for (n = 41; n <= 44; n++) {
        ASSERT(call_of(n, 0) && !call_of(n, 1));
        T_EQ(1, call_of(n, 0)->attempt);
        T_EQ(0, call_of(n, 0)->failed);
        T_EQ(1, call_of(n, 0)->alone);
    }
    eb_destroy(bus);
    PASS();
}

/* By an operator, through the triggers of version 1: like one that was running alone. */
TEST processing_by_hand_before_the_migration_counts_as_an_attempt(void)
{
    static const char by_hand[] =
        "UPDATE second_events SET status = 'processing' WHERE type = 'wait.plain'";
    const char *path = copy_of(&shop);
    eb_bus *bus;
    T_MUST(t_sql(path, by_hand, NULL, 0) == SQLITE_OK);
    bus = open_new(path, "second");
    T_EQ(EB_PROCESSING, status_of(eb_bus_store(bus), "wait.plain"));
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    T_EQ(1, seen.count);
    T_EQ(2, seen.items[0].attempt);
    T_EQ(1, seen.items[0].failed);
    T_EQ(1, p_interrupted(seen.items[0].errors));
    eb_destroy(bus);
    PASS();
}

/* ---- and everything else works on it as on a new file --------------------------------------------- */

TEST migrated_file_takes_everything(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus = open_new(path, s->ns);
    eb_store *store = eb_bus_store(bus);
    eb_event_list list, again;
    eb_message m = t_message("new.first", NULL);
    eb_id id;
    char sql[300];
    int64_t count = 0;
    T_OK(start(bus, "*"));
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    m.idempotency_key = "once-1"; /* known since 0.1.0 */
    T_IS(EB_DUPLICATE, eb_send(bus, &m, 1, &id));
    list = first_of(store, "ok.first");
    ASSERT_STR_EQ(list.items[0].id.str, id.str);
    eb_event_list_free(&list);
    m.idempotency_key = "dead-1"; /* of a dead one */
    T_IS(EB_DUPLICATE, eb_send(bus, &m, 1, &id));
    m.idempotency_key = "new-1";
    m.ordering_key = "k";
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(eb_get(store, id.str, &list));
    T_EQ(s->batch ? 34 : 23, list.items[0].seq); /* on from where the old one was */
    eb_event_list_free(&list);
    T_OK(eb_drain(bus, HOUR_MS));
    T_EQ(EB_DONE, status_of(store, "new.first"));

    list = first_of(store, "fail.dead");
    T_OK(eb_dlq_retry(store, list.items[0].id.str, NULL));
    T_OK(eb_get(store, list.items[0].id.str, &again));
    T_EQ(EB_PENDING, again.items[0].status);
    T_EQ(0, again.items[0].retry_count);
    eb_event_list_free(&again);
    T_OK(pump(bus));
    T_EQ(EB_DONE, t_status(store, list.items[0].id.str));
    ASSERT_STR_EQ("fail.dead", seen.items[seen.count - 1].type);
    eb_event_list_free(&list);

    snprintf(sql, sizeof sql, "UPDATE \"%sevents\" SET status = 'pending' WHERE type = 'wait.moved'",
             s->prefix);
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0)); /* by hand, through the new triggers */
    T_EQ(0, number(path, s, "ifnull(due_ms, -1) FROM", "deliveries\" WHERE seq = 6"));
    T_OK(pump(bus));
    ASSERT_STR_EQ("wait.moved", seen.items[seen.count - 1].type);

    T_OK(eb_dlq_purge(store, 0, &count));
    T_EQ(2, count); /* reject.dead and snooze.key */
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(0, list.total);
    eb_event_list_free(&list);
    eb_destroy(bus);
    PASS();
}

/* Somebody has migrated it further while this bus was open: it must not dispatch what it does not
** know. (0.1.0 did.) */
TEST start_reads_the_version_again(const space *s)
{
    const char *path = copy_of(s);
    eb_bus *bus = open_new(path, s->ns);
    char sql[200];
    t_subscribe(bus, "*", handle, &seen);
    snprintf(sql, sizeof sql, "UPDATE \"%smeta\" SET value = %d WHERE key = 'schema_version'",
             s->prefix, EBI_SCHEMA_LATEST + 1);
    T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
    T_IS(EB_ERR_SCHEMA, eb_start(bus));
    t_post(bus, "new.x", NULL); /* as an old process may */
    snprintf(sql, sizeof sql, "UPDATE \"%smeta\" SET value = %d WHERE key = 'schema_version'",
             s->prefix, EBI_SCHEMA_LATEST);
    T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
    T_OK(eb_start(bus)); /* and it holds nothing that it could not let go */
    T_OK(pump(bus));
    ASSERT_STR_EQ("0", order_of(NULL, "new.x"));
    eb_destroy(bus);
    PASS();
}

/* ---- an old publisher, an old inspector ----------------------------------------------------------- */

TEST old_process_goes_on_publishing(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = old_open(path, s->ns, "idle");
    eb_bus *bus = open_new(path, s->ns); /* migrates under it */
    eb_store *store = eb_bus_store(bus);
    eb_message m = t_message("new.once", NULL);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    memset(&seen, 0, sizeof seen);
    OLD_SAYS("EB_OK", old, "post old.plain");
    OLD_SAYS("EB_OK", old, "batch 20 old.batch");
    OLD_SAYS("EB_OK", old, "post old.keyed x");
    OLD_SAYS("EB_OK", old, "post old.keyed x");
    OLD_SAYS("EB_OK", old, "post old.later - - 5000");
    OLD_SAYS("EB_OK", old, "post old.once - twice-1");
    OLD_SAYS("EB_DUPLICATE", old, "post old.once - twice-1");
    OLD_SAYS("EB_DUPLICATE", old, "post old.once - once-1"); /* from before both */
    T_OK(pump(bus));
    T_EQ(24, seen.count);
    T_EQ(EB_DONE, status_of(store, "old.keyed"));
    T_EQ(EB_PENDING, status_of(store, "old.later"));
    t_advance(&now, 4999);
    T_OK(pump(bus));
    T_EQ(24, seen.count);
    t_advance(&now, 1);
    T_OK(pump(bus));
    T_EQ(25, seen.count);
    ASSERT_STR_EQ("old.later", seen.items[24].type);

    /* one set of idempotency keys for both */
    m.idempotency_key = "twice-1";
    T_IS(EB_DUPLICATE, eb_send(bus, &m, 1, NULL));
    m.idempotency_key = "twice-2";
    T_OK(eb_send(bus, &m, 1, NULL));
    OLD_SAYS("EB_DUPLICATE", old, "post old.once - twice-2");
    T_OK(pump(bus));
    OLD_SAYS("EB_OK", old, "close");
    P_ENDS_CLEANLY(old);
    eb_destroy(bus);
    PASS();
}

/* Whoever published them: what waits behind a failed event of its key goes on waiting. */
TEST keys_keep_their_order_across_both_versions(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = old_open(path, s->ns, "idle");
    eb_bus *bus = open_new(path, s->ns);
    eb_message m = {0};
    int i;
    m.ordering_key = "x";
    T_OK(start(bus, "x.*"));
    seen.fails = 1; /* only the first: it is one counter for all payloads without n */
    OLD_SAYS("EB_OK", old, "post x.1 x");
    T_OK(pump(bus));
    T_EQ(1, seen.count);
    m.type = "x.2";
    T_OK(eb_send(bus, &m, 1, NULL));
    OLD_SAYS("EB_OK", old, "post x.3 x");
    m.type = "x.4";
    T_OK(eb_send(bus, &m, 1, NULL));
    OLD_SAYS("EB_OK", old, "post x.5 x");
    T_OK(pump(bus));
    T_EQ(1, seen.count);
    t_advance(&now, 60000);
    T_OK(pump(bus));
    T_EQ(6, seen.count);
    T_EQ(2, seen.items[1].attempt);
    for (i = 1; i < 6; i++) {
        char want[10];
        snprintf(want, sizeof want, "x.%d", i);
        ASSERT_STR_EQ(want, seen.items[i].type);
    }
    eb_destroy(bus);
    PASS();
}

TEST old_inspector_sees_and_does_the_same(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = p_spawn("old", NULL);
    eb_bus *bus;
    eb_store *store;
    OLD_SAYS("EB_OK", old, "clock %d", RESTART_MS);
    OLD_SAYS("EB_OK", old, "store %s %s", path, s->ns ? s->ns : "-");
    bus = open_new(path, s->ns);
    store = eb_bus_store(bus);
    OLD_SAYS(census(store), old, "count"); /* before anything has happened */
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    OLD_SAYS(census(store), old, "count");
    OLD_SAYS("EB_OK processing 2 [\"attempt 1 failed\",\"attempt 2 failed\"]", old,
             "show fail.twice");
    OLD_SAYS("EB_OK done 0 -", old, "show wait.plain");

    OLD_SAYS("EB_OK", old, "retry reject.dead");
    T_EQ(EB_PENDING, status_of(store, "reject.dead"));
    T_OK(pump(bus));
    T_EQ(EB_DONE, status_of(store, "reject.dead"));
    T_EQ(1, call_of(12, 0)->attempt);
    OLD_SAYS("EB_ERR_STATE", old, "retry reject.dead");

    OLD_SAYS("EB_OK", old, "move wait.later");
    OLD_SAYS("EB_OK dlq 1 [\"old hands\"]", old, "show wait.later");
    T_EQ(EB_DLQ, status_of(store, "wait.later"));
    OLD_SAYS("EB_OK", old, "move fail.key"); /* the head of a key: the next has the turn */
    T_OK(pump(bus));
    ASSERT_STR_EQ("17 18", order_of("r", NULL));

    OLD_SAYS("EB_OK 5", old, "retry_all"); /* moved, dead, key; later and key from just now */
    T_OK(pump(bus));
    OLD_SAYS(census(store), old, "count");
    T_EQ(EB_DONE, status_of(store, "fail.dead"));
    T_EQ(EB_DONE, status_of(store, "wait.later"));
    OLD_SAYS("EB_OK", old, "move fail.twice");
    OLD_SAYS("EB_OK 1", old, "purge");
    T_EQ(-1, status_of(store, "fail.twice"));
    OLD_SAYS(census(store), old, "count");
    T_OK(eb_drain(bus, 10 * HOUR_MS)); /* nothing that it has touched is in the way */
    T_EQ(0, number(path, s, "count(*) FROM", "deliveries\""));
    ASSERT(call_of(13, 0) == NULL);
    OLD_SAYS(census(store), old, "count");
    eb_destroy(bus);
    PASS();
}

TEST opening_anew_with_the_old_header_is_refused(const space *s)
{
    const char *path = copy_of(s), *fresh = t_path("fresh");
    p_child *old = p_spawn("old", NULL);
    const char *ns = s->ns ? s->ns : "-";
    eb_bus *bus;
    bytes was;
    OLD_SAYS("EB_OK", old, "open %s %s idle", path, ns);
    bus = open_new(path, s->ns);
    OLD_SAYS("EB_OK", old, "post old.x");
    OLD_SAYS("EB_OK", old, "close"); /* the same process that could, a moment ago */
    OLD_SAYS("EB_ERR_SCHEMA", old, "open %s %s idle", path, ns);
    OLD_SAYS("EB_ERR_SCHEMA", old, "store %s %s", path, ns);
    eb_destroy(bus);
    was = slurp(path);
    OLD_SAYS("EB_ERR_SCHEMA", old, "open %s %s idle", path, ns);
    OLD_SAYS("EB_ERR_SCHEMA", old, "store %s %s", path, ns);
    ASSERT(unchanged(path, &was));
    if (s->ns) { /* each namespace has its own version */
        OLD_SAYS("EB_OK", old, "open %s second idle", path);
        OLD_SAYS("EB_OK", old, "close");
    }
    bus = open_new(fresh, s->ns); /* nor what was never old */
    eb_destroy(bus);
    OLD_SAYS("EB_ERR_SCHEMA", old, "open %s %s idle", fresh, ns);
    PASS();
}

#ifndef EB_NO_THREADS
enum { FLOOD = 200, FLOOD_KEYS = 4 };
static int flooded, out_of_order;
static int64_t flood_last[FLOOD_KEYS];
static pthread_mutex_t drink_lock = PTHREAD_MUTEX_INITIALIZER;

static eb_result drink(eb_delivery *d, void *user)
{
    int key = d->event->type[6] - '0';
    (void)user;
    T_MUST(key >= 0 && key < FLOOD_KEYS);
    pthread_mutex_lock(&drink_lock);
    if (key && d->event->seq < flood_last[key]) out_of_order++; /* key 0 is none */
    flood_last[key] = d->event->seq;
    pthread_mutex_unlock(&drink_lock);
    p_add(&flooded, 1);
    return EB_OK;
}

/* The real thing: an old process publishes without a pause, meanwhile the file is migrated, opened
** and dispatched by two threads. */
TEST nothing_is_lost_while_an_old_process_publishes(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = old_open(path, s->ns, "threads");
    eb_options o = t_options(path);
    eb_bus *bus;
    char line[60];
    int i;
    p_set(&flooded, 0);
    out_of_order = 0;
    memset(flood_last, 0, sizeof flood_last);
    for (i = 0; i < FLOOD; i++) { /* all said before the first is answered */
        int key = i % FLOOD_KEYS;
        if (key) snprintf(line, sizeof line, "post flood.%d key-%d", key, key);
        else snprintf(line, sizeof line, "post flood.0");
        p_tell(old, line);
    }
    o.ns = s->ns;
    o.workers = 2;
    o.idle_poll_ms = 5;
    bus = t_open(&o);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    t_subscribe(bus, "flood.*", drink, NULL);
    T_OK(eb_start(bus));
    for (i = 0; i < FLOOD; i++) P_HEAR(old, "EB_OK");
    P_EVENTUALLY(p_get(&flooded) >= FLOOD);
    OLD_SAYS("EB_OK", old, "close");
    T_OK(eb_shutdown(bus));
    T_EQ(FLOOD, p_get(&flooded));
    T_EQ(0, out_of_order);
    eb_destroy(bus);
    PASS();
}
#endif

/* ---- an old dispatcher ---------------------------------------------------------------------------- */

enum { PATIENCE_MS = 100 };

TEST dispatched_file_is_not_migrated(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = old_open(path, s->ns, "threads");
    eb_options o = t_options(path); /* the system's clock */
    eb_bus *bus = (eb_bus *)&o;
    eb_store *store = (eb_store *)&o;
    int64_t begin;
    int handled;
    o.ns = s->ns;
    o.busy_timeout_ms = PATIENCE_MS;
    OLD_SAYS("EB_OK", old, "start");
    begin = p_ms();
    T_IS(EB_ERR_OWNED, eb_open(&bus, &o));
    P_WITHIN(PATIENCE_MS, PATIENCE_MS + P_SLACK_MS, p_ms() - begin);
    ASSERT(bus == NULL);
    T_SAYS(path);
    begin = p_ms();
    T_IS(EB_ERR_OWNED, eb_store_open(&store, &o));
    P_WITHIN(PATIENCE_MS, PATIENCE_MS + P_SLACK_MS, p_ms() - begin);
    ASSERT(store == NULL);
    o.busy_timeout_ms = EB_NONE; /* who does not wait is told at once */
    T_IS(EB_ERR_OWNED, eb_open(&bus, &o));
    T_EQ(1, version_of(path, s));

    /* the old one has not noticed; it still is who it was, for publishers of its own version too */
    handled = (int)strtol(ask(old, "calls"), NULL, 10);
    OLD_SAYS("EB_OK", old, "batch 5 ok.batch");
    P_EVENTUALLY(strtol(ask(old, "calls"), NULL, 10) >= handled + 5);
    OLD_SAYS("EB_OK", old, "stop");
    bus = open_new(path, s->ns); /* stopped: an inspector and publisher like any other */
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    OLD_SAYS("EB_ERR_SHUTDOWN", old, "post old.x");
    OLD_SAYS(census(eb_bus_store(bus)), old, "count");
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    eb_destroy(bus);
    PASS();
}

/* The one that waits is let in as soon as the old one has ended: seen without waiting for anything,
** because the first sleep of the one that waits ends it. */
static p_child *to_be_ended;
static int naps;
static void sleep_ends_the_old_one(int64_t ms, void *user)
{
    t_sleep(ms, user);
    if (naps++ == 0) T_MUST(strcmp(ask(to_be_ended, "close"), "EB_OK") == 0);
}

TEST migration_waits_for_the_old_dispatcher_to_end(const space *s, int as_store)
{
    const char *path = copy_of(s);
    eb_options o = options(path, s->ns);
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    to_be_ended = old_open(path, s->ns, "idle");
    naps = 0;
    o.clock.sleep_ms = sleep_ends_the_old_one;
    OLD_SAYS("EB_OK", to_be_ended, "start");
    if (as_store) T_OK(eb_store_open(&store, &o));
    else T_OK(eb_open(&bus, &o));
    ASSERT(naps > 0);
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    eb_store_close(store);
    eb_destroy(bus);
    bus = open_new(path, s->ns);
    T_OK(start(bus, "*"));
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    T_EQ(0, number(path, s, "count(*) FROM", "deliveries\""));
    eb_destroy(bus);
    PASS();
}

/* kill -9: nothing of it is left but its WAL, and that is recovered on the way. */
TEST killed_old_dispatcher_is_no_obstacle(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = old_open(path, s->ns, "threads");
    eb_options o = options(path, s->ns);
    eb_bus *bus = NULL;
    o.busy_timeout_ms = EB_NONE;
    OLD_SAYS("EB_OK", old, "start");
    OLD_SAYS("EB_OK", old, "post ok.wal - wal-1");
    ASSERT(p_is_killed(p_kill(old)));
    memset(&seen, 0, sizeof seen);
    T_OK(eb_open(&bus, &o));
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, s));
    T_EQ(1, number(path, s, "count(*) FROM", "event_log\" WHERE idempotency_key = 'wal-1'"));
    T_OK(start(bus, "*"));
    time_is(INT64_C(100) * 365 * 24 * HOUR_MS); /* the old one had the system's clock */
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    T_EQ(EB_DONE, status_of(eb_bus_store(bus), "ok.wal"));
    T_EQ(0, number(path, s, "count(*) FROM", "deliveries\""));
    eb_destroy(bus);
    PASS();
}

TEST old_dispatcher_of_another_namespace_is_no_obstacle(void)
{
    const char *path = copy_of(&shop);
    p_child *old = old_open(path, "second", "idle");
    eb_bus *bus;
    OLD_SAYS("EB_OK", old, "start");
    bus = open_new(path, "my-shop");
    T_EQ(EBI_SCHEMA_LATEST, version_of(path, &shop));
    T_OK(start(bus, "*"));
    OLD_SAYS("EB_OK", old, "post ok.there");
    OLD_SAYS("EB_ERR_TIMEOUT", old, "drain"); /* what is delayed by an hour waits */
    OLD_SAYS("EB_OK done 0 -", old, "show ok.there");
    T_OK(eb_publish(bus, "ok.here", NULL, NULL));
    eb_destroy(bus);
    PASS();
}

/* ---- an old process that wants to dispatch what has been migrated --------------------------------- */

/* Version 0.1.0 does not look at the version again; what keeps it out is the lock that it takes:
** the old form of the side file is held by the run that migrated. */
TEST old_process_does_not_dispatch_beside_the_run_that_migrated(const space *s)
{
    const char *path = copy_of(s);
    p_child *old = old_open(path, s->ns, "idle");
    eb_bus *bus = open_new(path, s->ns);
    /* With a namespace the two forms differ, and the old one is held from the migration on. Without
    ** one they are the same file, and what holds it is the start. */
    if (s->ns) OLD_SAYS("EB_ERR_OWNED", old, "start");
    T_OK(start(bus, "*"));
    OLD_SAYS("EB_ERR_OWNED", old, "start");
    OLD_SAYS("EB_OK", old, "post old.x");
    T_OK(pump(bus));
    ASSERT_STR_EQ("0", order_of(NULL, "old.x"));
    OLD_SAYS("0", old, "calls");
    T_OK(eb_shutdown(bus)); /* not yet closed */
    if (s->ns) OLD_SAYS("EB_ERR_OWNED", old, "start");
    eb_destroy(bus);
    PASS();
}

/* Without a namespace it is the same lock in both versions: whoever has it keeps the other out,
** whichever of them came first. */
TEST one_lock_for_both_versions_without_a_namespace(void)
{
    const char *path = copy_of(&plain);
    p_child *old = old_open(path, NULL, "idle");
    eb_bus *bus = open_new(path, NULL);
    eb_destroy(bus);
    OLD_SAYS("EB_OK", old, "start"); /* nobody dispatches: 0.1.0 cannot know better */
    bus = open_new(path, NULL);      /* nothing to migrate: no reason to wait */
    t_subscribe(bus, "*", handle, &seen);
    T_IS(EB_ERR_OWNED, eb_start(bus));
    t_post(bus, "new.x", NULL);
    OLD_SAYS(census(eb_bus_store(bus)), old, "count");
    ASSERT(p_is_killed(p_kill(old)));
    T_OK(eb_start(bus));
    T_OK(eb_drain(bus, 10 * HOUR_MS));
    T_EQ(EB_DONE, status_of(eb_bus_store(bus), "new.x"));
    T_EQ(0, number(path, &plain, "count(*) FROM", "deliveries\""));
    eb_destroy(bus);
    PASS();
}

/* The side files of the default namespace and of another one are two: nobody is in the way of a
** dispatcher because of a migration elsewhere in the file. */
TEST migration_keeps_no_other_namespace_from_dispatching(void)
{
    const char *path = copy_of(&shop);
    p_child *old = old_open(path, "second", "idle");
    eb_bus *bus = open_new(path, "my-shop"), *third = NULL;
    eb_options o = options(path, "third");
    OLD_SAYS("EB_OK", old, "start");
    T_OK(eb_open(&third, &o));
    T_OK(eb_start(third));
    T_OK(start(bus, "*"));
    OLD_SAYS("EB_OK", old, "close");
    eb_destroy(third);
    eb_destroy(bus);
    PASS();
}

/* A second new process opens and dispatches although the one that migrated is still there. */
TEST run_that_migrated_keeps_no_new_process_from_dispatching(const space *s)
{
    const char *path = copy_of(s);
    eb_options o = options(path, s->ns);
    eb_store *looks = NULL;
    eb_bus *bus;
    T_OK(eb_store_open(&looks, &o)); /* migrates, and stays */
    bus = open_new(path, s->ns);
    T_OK(start(bus, "*"));
    T_OK(pump(bus));
    ASSERT(seen.count > 0);
    eb_destroy(bus);
    eb_store_close(looks);
    PASS();
}

/* ---- all of it ------------------------------------------------------------------------------------ */

/* Whatever a test left behind. Set in each suite: greatest forgets it when one begins. */
static void clean_up(void *unused)
{
    hook(NULL, 0, 0);
    p_reap(unused);
}

#define BOTH(test)                                                                                 \
    do {                                                                                           \
        greatest_set_test_suffix("plain");                                                         \
        RUN_TESTp(test, &plain);                                                                   \
        greatest_set_test_suffix("shop");                                                          \
        RUN_TESTp(test, &shop);                                                                    \
    } while (0)

SUITE(files)
{
    SET_TEARDOWN(clean_up, NULL);
    BOTH(files_can_be_made_again);
}

SUITE(migration)
{
    SET_TEARDOWN(clean_up, NULL);
    BOTH(everything_is_there_after_the_migration);
    BOTH(migrated_schema_is_that_of_a_new_file);
    RUN_TEST(no_new_name_is_a_word_and_an_old_name);
    RUN_TEST(neighbours_in_the_file_stay_as_they_are);
    BOTH(inspector_sees_what_was);
    BOTH(view_has_its_new_columns_for_old_rows);
}

SUITE(one_transaction)
{
    SET_TEARDOWN(clean_up, NULL);
    BOTH(migration_is_one_commit);
    BOTH(migration_that_cannot_commit_leaves_the_file_as_it_was);
    BOTH(process_killed_in_the_migration_leaves_version_1);
}

SUITE(to_the_end)
{
    SET_TEARDOWN(clean_up, NULL);
    BOTH(old_lives_run_to_their_end);
    BOTH(keys_keep_their_order_when_all_is_overdue);
    BOTH(error_lists_go_on);
    RUN_TEST(lone_handler_of_a_dead_process_is_charged);
    RUN_TEST(batch_of_a_dead_process_is_tried_one_by_one);
    RUN_TEST(suspects_of_an_old_recovery_are_tried_one_by_one);
    RUN_TEST(processing_by_hand_before_the_migration_counts_as_an_attempt);
    BOTH(migrated_file_takes_everything);
    BOTH(start_reads_the_version_again);
}

SUITE(side_by_side)
{
    SET_TEARDOWN(clean_up, NULL);
    BOTH(old_process_goes_on_publishing);
    BOTH(keys_keep_their_order_across_both_versions);
    BOTH(old_inspector_sees_and_does_the_same);
    BOTH(opening_anew_with_the_old_header_is_refused);
#ifndef EB_NO_THREADS
    BOTH(nothing_is_lost_while_an_old_process_publishes);
#endif
}

SUITE(dispatchers)
{
    int as_store;
    SET_TEARDOWN(clean_up, NULL);
    BOTH(dispatched_file_is_not_migrated);
    for (as_store = 0; as_store < 2; as_store++) {
        greatest_set_test_suffix(as_store ? "store_plain" : "bus_plain");
        RUN_TESTp(migration_waits_for_the_old_dispatcher_to_end, &plain, as_store);
        greatest_set_test_suffix(as_store ? "store_shop" : "bus_shop");
        RUN_TESTp(migration_waits_for_the_old_dispatcher_to_end, &shop, as_store);
    }
    BOTH(killed_old_dispatcher_is_no_obstacle);
    RUN_TEST(old_dispatcher_of_another_namespace_is_no_obstacle);
    BOTH(old_process_does_not_dispatch_beside_the_run_that_migrated);
    RUN_TEST(one_lock_for_both_versions_without_a_namespace);
    RUN_TEST(migration_keeps_no_other_namespace_from_dispatching);
    BOTH(run_that_migrated_keeps_no_new_process_from_dispatching);
}

static int child_main(char **argv)
{
    p_child_init();
    if (strcmp(argv[0], "old") == 0) return old_main();
    if (strcmp(argv[0], "fill") == 0) return old_fill(argv[1], argv[2]), 0;
    if (strcmp(argv[0], "die") == 0) return die_migrating(argv[1], argv[2]);
    return 99;
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) return child_main(argv + 2);
    p_proc_init(argv);
    find_folder(getenv("T_SELF") ? getenv("T_SELF") : argv[0]);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(files);
    RUN_SUITE(migration);
    RUN_SUITE(one_transaction);
    RUN_SUITE(to_the_end);
    RUN_SUITE(side_by_side);
    RUN_SUITE(dispatchers);
    GREATEST_MAIN_END();
}
