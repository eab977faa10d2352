/* test_inspector.c - looking at the file and working on dead letters: through a store alone, beside
** a running bus, inside handlers, and through the view `events` as an operator would. */
#include "test.h"
#include "proc.h"
#include <limits.h>

/* ---- a small world --------------------------------------------------------------------------- */

/* Types say what happens: "ok..." is done, "bad..." is rejected, "wait..." fails and waits an hour
** for its retry, anything else is kept because nobody wants it. */
static eb_result act(eb_delivery *d, void *user)
{
    int *calls = (int *)user;
    if (calls) p_add(calls, 1);
    if (strncmp(d->event->type, "bad", 3) == 0) return eb_reject(d, "bad %s", d->event->payload);
    if (strncmp(d->event->type, "wait", 4) == 0) return eb_fail(d, "wait");
    return EB_OK;
}

/* The clock of every world. It is ahead of the real one, by which SQLite's own functions in the
** triggers of the view go: what an operator makes due now is due. 2076-11-17T23:32:10.000Z */
#define W_EPOCH (T_EPOCH + INT64_C(50) * 31557600000)
static t_time now;
static int calls; /* of act */

static eb_options world_options(const char *path)
{
    eb_options o = t_timed(path, &now);
    now.now_ms = W_EPOCH;
    o.on_unmatched = EB_UNMATCHED_KEEP;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3600000;
    o.node_id = "node-1";
    return o;
}

static eb_bus *world_open(const eb_options *o)
{
    static const char *const patterns[] = {"ok*", "bad*", "wait*"};
    eb_bus *bus = t_open(o);
    size_t i;
    for (i = 0; i < 3; i++)
        t_subscribe(bus, patterns[i], act, &calls);
    T_DO(eb_start(bus));
    calls = 0;
    return bus;
}

static eb_bus *world(const char *path)
{
    eb_options o = world_options(path);
    return world_open(&o);
}

/* A store of its own beside it, on the same clock. */
static eb_store *beside(const char *path)
{
    t_time keep = now;
    eb_options o = world_options(path);
    eb_store *store = NULL;
    now = keep; /* options begin with a fresh clock */
    T_DO(eb_store_open(&store, &o));
    return store;
}

/* Posts one event and runs what is due. */
static eb_id post(eb_bus *bus, const char *type, const char *payload)
{
    eb_id id = t_post(bus, type, payload);
    T_DO(eb_pump(bus, EB_NONE, NULL));
    return id;
}

/* The payloads of a list in order: "3,2,1". */
static const char *payloads(const eb_event_list *list)
{
    static char text[2000];
    size_t i, n = 0;
    text[0] = 0;
    for (i = 0; i < list->count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "," : "",
                              list->items[i].payload);
    return text;
}

typedef eb_result (*reader)(eb_store *, const eb_query *, eb_event_list *);

/* The same query, with a total. */
static eb_query counted(const eb_query *from)
{
    eb_query q = {0};
    if (from) q = *from;
    q.want_total = 1;
    return q;
}

/* A query gives exactly these payloads and this total, through each of the stores given. */
#define READS(read, query, want, want_total)                                                       \
    do {                                                                                           \
        eb_event_list r_list;                                                                      \
        eb_query r_query = counted(query);                                                         \
        T_OK(read(store, &r_query, &r_list));                                                      \
        ASSERT_STR_EQ(want, payloads(&r_list));                                                    \
        T_EQ(want_total, r_list.total);                                                            \
        eb_event_list_free(&r_list);                                                               \
        T_OK(read(eb_bus_store(bus), &r_query, &r_list));                                          \
        ASSERT_STR_EQ(want, payloads(&r_list));                                                    \
        T_EQ(want_total, r_list.total);                                                            \
        eb_event_list_free(&r_list);                                                               \
    } while (0)

/* After a failure: an empty list that may be freed. */
#define READ_FAILS(result, read, query)                                                            \
    do {                                                                                           \
        eb_event_list r_list;                                                                      \
        memset(&r_list, 0x5A, sizeof r_list);                                                      \
        T_IS(result, read(store, query, &r_list));                                                 \
        T_EQ(0, r_list.count);                                                                     \
        T_EQ(0, r_list.total);                                                                     \
        ASSERT(r_list.items == NULL);                                                              \
        eb_event_list_free(&r_list);                                                               \
    } while (0)

static eb_query query(void)
{
    eb_query q = {0};
    return q;
}

/* Another id for the same row: the random bits differ, the sequence number does not. */
static eb_id forged(const eb_id *id)
{
    eb_id f = *id;
    f.str[0] = f.str[0] == '0' ? '1' : '0';
    return f;
}

/* ---- the store ------------------------------------------------------------------------------- */

TEST store_creates_nothing(void)
{
    const char *path = t_path("none");
    eb_options o = world_options(path);
    eb_store *store = (eb_store *)&o;
    FILE *file;
    ASSERT(eb_store_open(&store, &o) < 0);
    ASSERT(store == NULL);
    T_SAYS("");
    ASSERT(fopen(path, "rb") == NULL);
    T_EQ(SQLITE_OK, t_sql(path, "CREATE TABLE mine(x)", NULL, 0)); /* a database, but not ours */
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT(store == NULL);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM sqlite_schema"));
    file = fopen(path, "rb");
    ASSERT(file != NULL);
    fclose(file);
    PASS();
}

TEST store_checks_its_options(void)
{
    const char *path = t_path("options");
    eb_options o = world_options(path), bad;
    eb_bus *bus = world_open(&o);
    eb_store *store = (eb_store *)&o;
    T_IS(EB_ERR_ARG, eb_store_open(NULL, &o));
    T_IS(EB_ERR_ARG, eb_store_open(&store, NULL));
    ASSERT(store == NULL);
    bad = o;
    bad.path = NULL;
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad = o;
    bad.ns = "not ok";
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad = o;
    bad.busy_timeout_ms = -2;
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad = o;
    bad.vfs = "no-such-vfs";
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad = o;
    bad.wal_pages = -2;
    store = (eb_store *)&o;
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    ASSERT(store == NULL);
    bad.wal_pages = INT_MIN;
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad.wal_pages = EB_NONE; /* of no use to it, but right */
    T_OK(eb_store_open(&store, &bad));
    eb_store_close(store);
    bad = o;
    bad.clock.sleep_ms = NULL;
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad = o;
    bad.ns = "elsewhere"; /* there is no such namespace in this file */
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &bad));
    ASSERT(store == NULL);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'elsewhere%'"));
    T_OK(eb_store_open(&store, &o));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST store_works_alone_and_dispatches_nothing(void)
{
    const char *path = t_path("alone");
    eb_bus *bus = world(path);
    eb_id done = post(bus, "ok", "1"), dead = post(bus, "bad", "2"), kept = post(bus, "other", "3");
    eb_store *store;
    eb_stats stats;
    eb_destroy(bus);
    store = beside(path);
    T_EQ(EB_DONE, t_status(store, done.str));
    T_EQ(EB_DLQ, t_status(store, dead.str));
    T_EQ(EB_PENDING, t_status(store, kept.str));
    T_OK(eb_stats_get(store, &stats));
    T_EQ(1, stats.pending);
    T_EQ(1, stats.done);
    T_EQ(1, stats.dlq);
    calls = 0;
    T_OK(eb_dlq_retry(store, dead.str, NULL));
    T_EQ(EB_PENDING, t_status(store, dead.str));
    T_EQ(0, calls);
    eb_store_close(store);
    T_ROWS(2, path, "status = 'pending'");
    PASS();
}

/* ---- one event ------------------------------------------------------------------------------- */

TEST get_tells_everything_about_an_event_in_every_state(void)
{
    const char *path = t_path("get");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_event_list list;
    eb_event *e;
    eb_message m = {0};
    eb_id id[4];
    char text[100];
    int i;
    for (i = 0; i < 4; i++) {
        static const char *const type[] = {"kept", "wait", "ok", "bad"};
        m.type = type[i];
        m.payload = "{\"a\": [1, 2]}";
        m.metadata = "{\"k\":\"v\"}";
        m.ordering_key = i == 0 ? NULL : type[i];
        m.idempotency_key = type[i];
        T_OK(eb_send(bus, &m, 1, &id[i]));
    }
    t_advance(&now, 1500);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    t_advance(&now, 1000);
    for (i = 0; i < 4; i++) {
        static const eb_status status[] = {EB_PENDING, EB_PROCESSING, EB_DONE, EB_DLQ};
        T_OK(eb_get(i & 1 ? store : eb_bus_store(bus), id[i].str, &list));
        T_EQ(1, list.count);
        T_EQ(1, list.total);
        e = &list.items[0];
        ASSERT_STR_EQ(id[i].str, e->id.str);
        T_EQ(i + 1, e->seq);
        T_EQ(status[i], e->status);
        ASSERT_STR_EQ("{\"a\": [1, 2]}", e->payload);
        T_EQ(13, e->payload_len);
        ASSERT_STR_EQ("{\"k\":\"v\"}", e->metadata);
        ASSERT_STR_EQ(e->type, e->idempotency_key);
        if (i == 0) ASSERT(e->ordering_key == NULL);
        else ASSERT_STR_EQ(e->type, e->ordering_key);
        ASSERT_STR_EQ("node-1", e->producer);
        ASSERT(e->subscription == NULL);
        T_EQ(W_EPOCH, e->created_at_ms);
        T_EQ(i == 0 ? W_EPOCH : W_EPOCH + 1500, e->updated_at_ms);
        T_EQ(i == 3 ? W_EPOCH + 1500 : 0, e->dlq_at_ms);
        T_EQ(i & 1, e->retry_count);
        T_EQ(i & 1, t_errors(e->last_error, 0, text, sizeof text));
        if (i == 1) ASSERT_STR_EQ("wait", text);
        if (i == 3) ASSERT_STR_EQ("bad {\"a\": [1, 2]}", text);
        if (!(i & 1)) ASSERT(e->last_error == NULL);
        eb_event_list_free(&list);
        T_EQ(0, list.count);
    }
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST get_of_what_is_no_event_is_not_found(void)
{
    const char *path = t_path("get-none");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_id id = post(bus, "ok", "1"), f = forged(&id), upper = id;
    char longer[60];
    size_t i;
#define GET(store, text, list) eb_get(store, text, list)
    READ_FAILS(EB_ERR_NOT_FOUND, GET, "");
    READ_FAILS(EB_ERR_NOT_FOUND, GET, "x");
    READ_FAILS(EB_ERR_NOT_FOUND, GET, "00000000-0000-4000-8000-000000000000");
    READ_FAILS(EB_ERR_NOT_FOUND, GET, f.str);
    T_SAYS(f.str);
    snprintf(longer, sizeof longer, "%.36s ", id.str);
    READ_FAILS(EB_ERR_NOT_FOUND, GET, longer);
    longer[35] = 0;
    READ_FAILS(EB_ERR_NOT_FOUND, GET, longer);
    for (i = 0; i < 36; i++)
        if (upper.str[i] >= 'a' && upper.str[i] <= 'f') upper.str[i] = (char)(upper.str[i] - 32);
    if (strcmp(upper.str, id.str) != 0) READ_FAILS(EB_ERR_NOT_FOUND, GET, upper.str);
    f = id;
    f.str[14] = '1'; /* another version of UUID */
    READ_FAILS(EB_ERR_NOT_FOUND, GET, f.str);
    f = id;
    f.str[19] = 'c'; /* another variant */
    READ_FAILS(EB_ERR_NOT_FOUND, GET, f.str);
    READ_FAILS(EB_ERR_ARG, GET, NULL);
    T_IS(EB_ERR_ARG, eb_get(store, id.str, NULL));
#undef GET
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Nine events, one second apart, all dead if the type begins so: payloads 1 to 9. */
static eb_bus *nine(const char *path, const char *prefix, eb_id *ids)
{
    static const char *const name[] = {".red.1", ".red.2", ".blue.1", ".red.3", ".blue.2",
                                       ".green", ".red.4", ".blue.3", ".red.5"};
    eb_bus *bus = world(path);
    char type[40], payload[10];
    int i;
    for (i = 0; i < 9; i++) {
        snprintf(type, sizeof type, "%s%s", prefix, name[i]);
        snprintf(payload, sizeof payload, "%d", i + 1);
        ids[i] = post(bus, type, payload);
        t_advance(&now, 1000);
    }
    return bus;
}

/* Every filter of eb_query, for the log (ascending) and the dead letters (newest first). */
TEST filters_choose_what_is_listed(int dead)
{
    const char *path = t_path("filters");
    reader read = dead ? eb_dlq_list : eb_log_read;
    eb_id ids[9];
    eb_bus *bus = nine(path, dead ? "bad" : "ok", ids);
    eb_store *store = beside(path);
    eb_query q = query();
    READS(read, NULL, dead ? "9,8,7,6,5,4,3,2,1" : "1,2,3,4,5,6,7,8,9", 9);
    READS(read, &q, dead ? "9,8,7,6,5,4,3,2,1" : "1,2,3,4,5,6,7,8,9", 9);

    q.id = ids[3].str;
    READS(read, &q, "4", 1);
    q = query();
    q.pattern = dead ? "bad.red.*" : "ok.red.*";
    READS(read, &q, dead ? "9,7,4,2,1" : "1,2,4,7,9", 5);
    q.pattern = "*.2";
    READS(read, &q, dead ? "5,2" : "2,5", 2);
    q.pattern = "nothing.*";
    READS(read, &q, "", 0);
    q.pattern = "*";
    READS(read, &q, dead ? "9,8,7,6,5,4,3,2,1" : "1,2,3,4,5,6,7,8,9", 9);

    q = query();
    q.after_seq = 6;
    READS(read, &q, dead ? "9,8,7" : "7,8,9", 3);
    q.after_seq = 9;
    READS(read, &q, "", 0);
    q.after_seq = INT64_MAX;
    READS(read, &q, "", 0);

    q = query();
    q.from_ms = W_EPOCH + 6000; /* both ends belong to it */
    READS(read, &q, dead ? "9,8,7" : "7,8,9", 3);
    q.from_ms = W_EPOCH + 6001;
    READS(read, &q, dead ? "9,8" : "8,9", 2);
    q.to_ms = W_EPOCH + 7000;
    READS(read, &q, "8", 1);
    q.to_ms = W_EPOCH + 6999;
    READS(read, &q, "", 0);
    q = query();
    q.to_ms = W_EPOCH + 2000;
    READS(read, &q, dead ? "3,2,1" : "1,2,3", 3);
    q.to_ms = 1;
    READS(read, &q, "", 0);
    q = query();
    q.from_ms = 1;
    q.to_ms = INT64_MAX;
    READS(read, &q, dead ? "9,8,7,6,5,4,3,2,1" : "1,2,3,4,5,6,7,8,9", 9);

    q = query();
    q.limit = 4;
    READS(read, &q, dead ? "9,8,7,6" : "1,2,3,4", 9); /* the total does not know about pages */
    q.offset = 4;
    READS(read, &q, dead ? "5,4,3,2" : "5,6,7,8", 9);
    q.offset = 8;
    READS(read, &q, dead ? "1" : "9", 9);
    q.offset = 9;
    READS(read, &q, "", 9);
    q.limit = 0;
    q.offset = 7;
    READS(read, &q, dead ? "2,1" : "8,9", 9);
    q.limit = INT_MAX;
    q.offset = INT_MAX;
    READS(read, &q, "", 9);

    q = query(); /* all together */
    q.pattern = "*red*";
    q.after_seq = 1;
    q.from_ms = W_EPOCH + 1000;
    q.to_ms = W_EPOCH + 7000;
    READS(read, &q, dead ? "7,4,2" : "2,4,7", 3);
    q.limit = 1;
    q.offset = 1;
    READS(read, &q, "4", 3);
    q.id = ids[6].str;
    q.offset = 0;
    READS(read, &q, "7", 1);
    q.id = ids[0].str; /* red, but excluded by the others */
    READS(read, &q, "", 0);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST id_that_is_none_lists_nothing(int dead)
{
    const char *path = t_path("no-id");
    reader read = dead ? eb_dlq_list : eb_log_read;
    eb_id ids[9], f;
    eb_bus *bus = nine(path, dead ? "bad" : "ok", ids);
    eb_store *store = beside(path);
    eb_query q = query();
    q.id = "";
    READS(read, &q, "", 0);
    q.id = "x";
    READS(read, &q, "", 0);
    q.id = "00000000-0000-4000-8000-000000000000";
    READS(read, &q, "", 0);
    f = forged(&ids[4]);
    q.id = f.str;
    READS(read, &q, "", 0);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST nonsense_in_a_query_is_refused(int dead)
{
    const char *path = t_path("nonsense");
    reader read = dead ? eb_dlq_list : eb_log_read;
    eb_id ids[9];
    eb_bus *bus = nine(path, dead ? "bad" : "ok", ids);
    eb_store *store = beside(path);
    eb_query q;
    int which;
    for (which = 0; which < 12; which++) {
        char text[300];
        memset(text, 'x', sizeof text);
        text[256] = 0;
        q = query();
        if (which == 0) q.offset = -2;
        if (which == 1) q.offset = INT_MIN;
        if (which == 2) q.limit = -2;
        if (which == 3) q.limit = INT_MIN;
        if (which == 4) q.after_seq = -2;
        if (which == 5) q.after_seq = INT64_MIN;
        if (which == 6) q.pattern = "";
        if (which == 7) q.pattern = "a b";
        if (which == 8) q.pattern = "\xFF";
        if (which == 9) q.pattern = text;
        if (which == 10) q.from_ms = -2;
        if (which == 11) q.to_ms = INT64_MIN;
        READ_FAILS(EB_ERR_ARG, read, &q);
        if (dead) T_IS(EB_ERR_ARG, eb_dlq_retry_all(store, &q, NULL));
    }
    q = query();
    T_IS(EB_ERR_ARG, read(store, &q, NULL));
    T_ROWS(dead ? 9 : 0, path, "status = 'dlq'");
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST list_has_a_hundred_unless_asked(int dead)
{
    enum { N = 130 };
    const char *path = t_path("hundred");
    reader read = dead ? eb_dlq_list : eb_log_read;
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_event_list list;
    eb_query q = query();
    int i;
    for (i = 0; i < N; i++) post(bus, dead ? "bad" : "ok", NULL);
    T_OK(read(store, NULL, &list));
    T_EQ(100, list.count);
    T_EQ(dead ? N : -1, list.total); /* the log's would have to be counted */
    eb_event_list_free(&list);
    q.limit = 1000;
    T_OK(read(store, &q, &list));
    T_EQ(N, list.count);
    for (i = 0; i < N; i++) T_EQ(dead ? N - i : i + 1, list.items[i].seq); /* born at one time */
    eb_event_list_free(&list);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST log_has_every_state_and_the_dead_letters_only_the_dead(void)
{
    const char *path = t_path("states");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_event_list list;
    eb_query q = query();
    post(bus, "kept", "1");
    post(bus, "wait", "2");
    post(bus, "ok", "3");
    post(bus, "bad", "4");
    READS(eb_log_read, NULL, "1,2,3,4", 4);
    T_OK(eb_log_read(store, NULL, &list));
    T_EQ(EB_PENDING, list.items[0].status);
    T_EQ(EB_PROCESSING, list.items[1].status);
    T_EQ(EB_DONE, list.items[2].status);
    T_EQ(EB_DLQ, list.items[3].status);
    T_EQ(1, list.items[1].retry_count);
    T_EQ(1, list.items[3].retry_count);
    ASSERT(list.items[3].last_error != NULL && list.items[2].last_error == NULL);
    eb_event_list_free(&list);
    READS(eb_dlq_list, NULL, "4", 1);
    q.subscription = "billing"; /* named ones are not in this version: nobody's */
    READS(eb_dlq_list, &q, "", 0);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* The dead letters are ordered by birth, whatever the order of their deaths. */
TEST dead_letters_are_listed_newest_first(void)
{
    const char *path = t_path("newest");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_message m = t_message("bad", "1");
    m.delay_ms = 5000; /* born first, dies last */
    T_OK(eb_send(bus, &m, 1, NULL));
    t_advance(&now, 1000);
    post(bus, "bad", "2");
    t_advance(&now, 1000);
    post(bus, "bad", "3");
    t_advance(&now, 4000);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    READS(eb_dlq_list, NULL, "3,2,1", 3);
    now.now_ms = W_EPOCH + 500; /* the clock was set back: created_at is what counts */
    post(bus, "bad", "4");
    READS(eb_dlq_list, NULL, "3,2,4,1", 4);
    READS(eb_log_read, NULL, "1,2,3,4", 4);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* ---- a new life ------------------------------------------------------------------------------ */

TEST retry_gives_a_dead_event_a_new_life(int through_bus)
{
    const char *path = t_path("retry");
    eb_bus *bus = world(path);
    eb_store *own = beside(path), *store = through_bus ? eb_bus_store(bus) : own;
    eb_event_list list;
    eb_id id = post(bus, "wait", "1");
    int i;
    for (i = 0; i < 3; i++) { /* three retries, an hour apart */
        t_advance(&now, 3600000);
        T_OK(eb_pump(bus, EB_NONE, NULL));
    }
    T_EQ(4, t_failures(store, id.str, 0, NULL, 0));
    T_EQ(EB_DLQ, t_status(store, id.str));
    t_advance(&now, 5000);
    T_OK(eb_dlq_retry(store, id.str, NULL));
    T_OK(eb_get(store, id.str, &list));
    T_EQ(EB_PENDING, list.items[0].status);
    T_EQ(0, list.items[0].retry_count);
    ASSERT(list.items[0].last_error == NULL);
    T_EQ(W_EPOCH, list.items[0].created_at_ms);
    T_EQ(1, list.items[0].seq);
    T_EQ(0, list.items[0].dlq_at_ms);
    eb_event_list_free(&list);
    T_OK(eb_dlq_list(store, NULL, &list));
    T_EQ(0, list.total);
    eb_event_list_free(&list);
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, id.str, NULL)); /* not dead any more */
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* due at once, with all its attempts */
    T_EQ(5, calls);
    T_EQ(1, t_failures(store, id.str, 0, NULL, 0));
    T_EQ(EB_PROCESSING, t_status(store, id.str));
    for (i = 0; i < 3; i++) {
        t_advance(&now, 3600000);
        T_OK(eb_pump(bus, EB_NONE, NULL));
    }
    T_EQ(8, calls);
    T_EQ(4, t_failures(store, id.str, 0, NULL, 0));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM dead_letters WHERE retried_at IS NOT NULL"
                            " AND retried_by IS NOT NULL")); /* this one was retried by hand */
    eb_store_close(own);
    eb_destroy(bus);
    PASS();
}

TEST retry_of_what_is_not_dead_says_why(void)
{
    const char *path = t_path("retry-not");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_id kept = post(bus, "kept", "1"), waits = post(bus, "wait", "2"),
          done = post(bus, "ok", "3"), dead = post(bus, "bad", "4"), f = forged(&dead);
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, kept.str, NULL));
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, waits.str, NULL));
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, done.str, NULL));
    T_SAYS(done.str);
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, "", NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, "no id", NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, "00000000-0000-4000-8000-000000000000", NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, f.str, NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, dead.str, "billing")); /* no such subscription */
    T_IS(EB_ERR_ARG, eb_dlq_retry(store, NULL, NULL));
    T_EQ(EB_DLQ, t_status(store, dead.str));
    T_OK(eb_dlq_retry(store, dead.str, NULL));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST retry_all_takes_those_that_match(void)
{
    const char *path = t_path("retry-all");
    eb_id ids[9], f;
    eb_bus *bus = nine(path, "bad", ids);
    eb_store *store = beside(path);
    eb_query q = query();
    int64_t count = -1;
    post(bus, "ok", "10");
    f = forged(&ids[0]);
    q.id = f.str;
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(0, count);
    q = query();
    q.pattern = "ok*"; /* not dead */
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(0, count);
    q.pattern = "*.blue.*";
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(3, count);
    READS(eb_dlq_list, NULL, "9,7,6,4,2,1", 6);
    T_ROWS(3, path, "status = 'pending' AND type LIKE '%blue%' AND retry_count = 0");
    q = query();
    q.id = ids[5].str;
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(1, count);
    READS(eb_dlq_list, NULL, "9,7,4,2,1", 5);
    q = query();
    q.after_seq = 2;
    q.to_ms = W_EPOCH + 6000;
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(2, count);
    READS(eb_dlq_list, NULL, "9,2,1", 3);
    q = query();
    q.offset = 1; /* in the order of the list */
    q.limit = 1;
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(1, count);
    READS(eb_dlq_list, NULL, "9,1", 2);
    q = query();
    q.subscription = "billing";
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(0, count);
    T_OK(eb_dlq_retry_all(store, NULL, NULL));
    READS(eb_dlq_list, NULL, "", 0);
    T_ROWS(9, path, "status = 'pending'");
    calls = 0;
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(9, calls); /* all run, and die again */
    READS(eb_dlq_list, NULL, "9,8,7,6,5,4,3,2,1", 9);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* More than fit into one transaction: none is forgotten, the limit is kept to, the offset too. */
TEST retry_all_has_no_limit_of_its_own(void)
{
    enum { N = 1203 };
    static eb_message m[N];
    const char *path = t_path("retry-many");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_query q = query();
    int64_t count = -1;
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < N; i++) m[i].type = "bad";
    T_OK(eb_send(bus, m, N, NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_ROWS(N, path, "status = 'dlq'");
    q.limit = 600;
    q.offset = 3;
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(600, count);
    T_ROWS(N - 600, path, "status = 'dlq'");
    T_ROWS(3, path, "status = 'dlq' AND seq > 1200"); /* the newest three were skipped */
    q.limit = 0;
    T_OK(eb_dlq_retry_all(store, &q, &count));
    T_EQ(600, count);
    T_ROWS(3, path, "status = 'dlq'");
    T_OK(eb_dlq_retry_all(store, NULL, &count));
    T_EQ(3, count);
    T_ROWS(N, path, "status = 'pending' AND retry_count = 0 AND last_error IS NULL");
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* ---- wakes ----------------------------------------------------------------------------------- */

#ifndef EB_NO_THREADS
static int fixed; /* the handler's trouble is over */

static eb_result recovers(eb_delivery *d, void *user)
{
    (void)user;
    return p_get(&fixed) ? EB_OK : eb_reject(d, "broken");
}

/* Through the bus's own store at once: this bus never looks by itself. Through another one within
** idle_poll_ms. */
TEST retry_wakes_the_bus(int own, int all)
{
    const char *path = t_path("wakes");
    eb_options o = t_options(path);
    eb_store *store = NULL;
    eb_bus *bus;
    eb_id id;
    p_set(&fixed, 0);
    o.workers = 1;
    o.idle_poll_ms = own ? EB_NONE : 20;
    bus = t_open(&o);
    if (!own) T_OK(eb_store_open(&store, &o));
    t_subscribe(bus, "*", recovers, NULL);
    T_OK(eb_start(bus));
    T_IS(EB_DEAD, eb_publish(bus, "x", NULL, &id));
    p_set(&fixed, 1);
    if (all) T_OK(eb_dlq_retry_all(own ? eb_bus_store(bus) : store, NULL, NULL));
    else T_OK(eb_dlq_retry(own ? eb_bus_store(bus) : store, id.str, NULL));
    P_EVENTUALLY(t_rows(path, "status = 'done'") == 1);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}
#endif

/* ---- gone for good --------------------------------------------------------------------------- */

#define DAY INT64_C(86400000)

/* Three dead letters: born on day 0, 1 and 2, the first of them died on day 2. */
static eb_bus *three_dead(const char *path)
{
    eb_bus *bus = world(path);
    eb_message m = t_message("bad", "1");
    m.delay_ms = 2 * DAY;
    T_DO(eb_send(bus, &m, 1, NULL));
    t_advance(&now, DAY);
    post(bus, "bad", "2");
    t_advance(&now, DAY);
    post(bus, "bad", "3"); /* and 1 dies */
    return bus;
}

TEST purge_goes_by_birth_and_includes_the_day(void)
{
    const char *path = t_path("purge");
    eb_bus *bus = three_dead(path);
    eb_store *store = beside(path);
    eb_id kept = post(bus, "kept", "4"), waits = post(bus, "wait", "5"),
          done = post(bus, "ok", "6");
    int64_t count = -1;
    READS(eb_dlq_list, NULL, "3,2,1", 3);
    T_IS(EB_ERR_ARG, eb_dlq_purge(store, -1, &count));
    T_IS(EB_ERR_ARG, eb_dlq_purge(store, INT_MIN, NULL));
    T_OK(eb_dlq_purge(store, 3, &count));
    T_EQ(0, count);
    T_OK(eb_dlq_purge(store, INT_MAX, &count));
    T_EQ(0, count);
    now.now_ms -= 1;
    T_OK(eb_dlq_purge(store, 2, &count));
    T_EQ(0, count); /* a millisecond young */
    now.now_ms += 1;
    T_OK(eb_dlq_purge(store, 2, &count));
    T_EQ(1, count); /* exactly two days old */
    READS(eb_dlq_list, NULL, "3,2", 2);
    READS(eb_log_read, NULL, "2,3,4,5,6", 5); /* gone from the log as well */
    T_OK(eb_dlq_purge(store, 0, NULL));
    READS(eb_dlq_list, NULL, "", 0);
    T_EQ(EB_PENDING, t_status(store, kept.str)); /* only the dead */
    T_EQ(EB_PROCESSING, t_status(store, waits.str));
    T_EQ(EB_DONE, t_status(store, done.str));
    T_EQ(3, t_stored(path));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST purge_dead_goes_by_death(void)
{
    const char *path = t_path("purge-dead");
    eb_bus *bus = three_dead(path);
    eb_store *store = beside(path);
    int64_t count = -1;
    T_IS(EB_ERR_ARG, eb_dlq_purge_dead(store, -1, &count));
    T_OK(eb_dlq_purge_dead(store, 2, &count));
    T_EQ(0, count); /* 1 was born then, but lived */
    now.now_ms -= 1;
    T_OK(eb_dlq_purge_dead(store, 1, &count));
    T_EQ(0, count);
    now.now_ms += 1;
    T_OK(eb_dlq_purge_dead(store, 1, &count));
    T_EQ(1, count);
    READS(eb_dlq_list, NULL, "3,1", 2);
    T_OK(eb_dlq_purge_dead(store, 0, &count));
    T_EQ(2, count);
    T_EQ(0, t_stored(path));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

TEST purge_has_no_limit(int by_death)
{
    enum { N = 1203 };
    static eb_message m[N];
    const char *path = t_path("purge-many");
    eb_bus *bus = world(path);
    int64_t count = -1;
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < N; i++) m[i].type = "bad";
    T_OK(eb_send(bus, m, N, NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    post(bus, "ok", "1");
    if (by_death) T_OK(eb_dlq_purge_dead(eb_bus_store(bus), 0, &count));
    else T_OK(eb_dlq_purge(eb_bus_store(bus), 0, &count));
    T_EQ(N, count);
    T_EQ(1, t_stored(path));
    eb_destroy(bus);
    PASS();
}

/* Nothing in the file remembers them but the floor. */
TEST sequence_numbers_go_on_after_a_purge_of_everything(void)
{
    const char *path = t_path("floor");
    eb_bus *bus = world(path);
    eb_store *store;
    eb_stats stats;
    eb_event_list list;
    eb_id id;
    int round, i;
    for (round = 1; round <= 3; round++) {
        for (i = 0; i < 5; i++) id = post(bus, "bad", NULL);
        eb_destroy(bus);
        store = beside(path); /* by somebody who never published */
        T_OK(eb_dlq_purge(store, 0, NULL));
        T_EQ(0, t_stored(path));
        T_OK(eb_stats_get(store, &stats));
        T_EQ(5 * round, stats.last_seq);
        T_EQ(0, stats.pending + stats.processing + stats.done + stats.dlq);
        T_IS(EB_ERR_NOT_FOUND, eb_get(store, id.str, &list));
        eb_store_close(store);
        bus = world(path);
    }
    id = post(bus, "ok", NULL);
    T_OK(eb_get(eb_bus_store(bus), id.str, &list));
    T_EQ(16, list.items[0].seq);
    eb_event_list_free(&list);
    eb_destroy(bus);
    PASS();
}

/* ---- given up by hand ------------------------------------------------------------------------ */

TEST move_makes_a_dead_letter_of_a_live_event(int through_bus)
{
    const char *path = t_path("move");
    eb_bus *bus = world(path);
    eb_store *own = beside(path), *store = through_bus ? eb_bus_store(bus) : own;
    eb_id kept = post(bus, "kept", "1"), waits = post(bus, "wait", "2"),
          done = post(bus, "ok", "3"), dead = post(bus, "bad", "4"), delayed, f;
    eb_event_list list;
    eb_message m = t_message("ok", NULL);
    char text[1200], longer[3000];
    m.delay_ms = 1000;
    T_OK(eb_send(bus, &m, 1, &delayed));
    t_advance(&now, 500);
    T_OK(eb_dlq_move(store, kept.str, "because \"I\"\nsay so"));
    T_OK(eb_get(store, kept.str, &list));
    T_EQ(EB_DLQ, list.items[0].status);
    T_EQ(W_EPOCH + 500, list.items[0].dlq_at_ms);
    eb_event_list_free(&list);
    T_EQ(1, t_failures(store, kept.str, 0, text, sizeof text));
    ASSERT_STR_EQ("because \"I\"\nsay so", text);
    T_OK(eb_dlq_move(store, waits.str, NULL)); /* its earlier error stays in front */
    T_EQ(2, t_failures(store, waits.str, 0, text, sizeof text));
    ASSERT_STR_EQ("wait", text);
    T_EQ(2, t_failures(store, waits.str, 1, text, sizeof text));
    ASSERT_STR_EQ("moved by operator", text);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    T_OK(eb_dlq_move(store, delayed.str, longer));
    T_EQ(1, t_failures(store, delayed.str, 0, text, sizeof text));
    T_EQ(1000, strlen(text));
    T_IS(EB_ERR_STATE, eb_dlq_move(store, done.str, NULL));
    T_IS(EB_ERR_STATE, eb_dlq_move(store, dead.str, NULL));
    T_IS(EB_ERR_STATE, eb_dlq_move(store, kept.str, NULL));
    f = forged(&done);
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_move(store, f.str, NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_move(store, "", NULL));
    T_IS(EB_ERR_ARG, eb_dlq_move(store, NULL, NULL));
    calls = 0;
    t_advance(&now, 7200000);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(0, calls); /* none of them comes back */
    T_ROWS(4, path, "status = 'dlq'");
    T_IS(EB_DEAD, eb_wait(bus, waits.str, 0));
    T_OK(eb_dlq_retry(store, waits.str, NULL)); /* unless asked to */
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(1, calls);
    eb_store_close(own);
    eb_destroy(bus);
    PASS();
}

/* Whoever waited behind it goes on. */
TEST moved_event_lets_the_next_of_its_key_go(int through)
{
    const char *path = t_path("move-key");
    eb_bus *bus = world(path);
    eb_store *own = beside(path);
    eb_message m[2];
    eb_id ids[2];
    memset(m, 0, sizeof m);
    m[0].type = "wait";
    m[1].type = "ok";
    m[0].ordering_key = m[1].ordering_key = "k";
    T_OK(eb_send(bus, m, 2, ids));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(1, calls);
    T_EQ(EB_PENDING, t_status(own, ids[1].str)); /* behind the one that waits for its retry */
    if (through == 0) T_OK(eb_dlq_move(eb_bus_store(bus), ids[0].str, NULL));
    if (through == 1) T_OK(eb_dlq_move(own, ids[0].str, NULL));
    if (through == 2) T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'dlq' WHERE seq = 1",
                                            NULL, 0));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(EB_DONE, t_status(own, ids[1].str));
    T_EQ(EB_DLQ, t_status(own, ids[0].str));
    eb_store_close(own);
    eb_destroy(bus);
    PASS();
}

/* What a handler returns about an event that an operator took away from it is stale. */
enum { BY_MOVE, BY_STORE, BY_VIEW_DLQ, BY_VIEW_PENDING };
static struct {
    const char *path;
    eb_store *store;
    int how, calls, fail;
    eb_result result;
} revoke_it;

static eb_result is_revoked(eb_delivery *d, void *user)
{
    const char *to = revoke_it.how == BY_VIEW_DLQ ? "UPDATE events SET status = 'dlq'"
                                               : "UPDATE events SET status = 'pending'";
    (void)user;
    if (revoke_it.calls++ > 0) return EB_OK;
    if (revoke_it.how <= BY_STORE)
        revoke_it.result = eb_dlq_move(revoke_it.store, d->event->id.str, "enough");
    else
        revoke_it.result = t_sql(revoke_it.path, to, NULL, 0) == SQLITE_OK ? EB_OK : EB_ERR_IO;
    return revoke_it.fail ? eb_fail(d, "too late") : EB_OK;
}

TEST taken_away_while_its_handler_runs(int how, int fail)
{
    const char *path = t_path("revoke_it");
    eb_options o = world_options(path);
    eb_bus *bus = t_open(&o);
    eb_store *own = beside(path);
    eb_id id;
    char text[100];
    memset(&revoke_it, 0, sizeof revoke_it);
    revoke_it.path = path;
    revoke_it.how = how;
    revoke_it.fail = fail;
    revoke_it.store = how == BY_MOVE ? eb_bus_store(bus) : own;
    revoke_it.result = EB_ERR_STATE;
    t_subscribe(bus, "*", is_revoked, NULL);
    T_OK(eb_start(bus));
    id = post(bus, "x", NULL);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(EB_OK, revoke_it.result);
    if (how == BY_VIEW_PENDING) { /* it ran again, as if never tried */
        T_EQ(2, revoke_it.calls);
        T_EQ(EB_DONE, t_status(own, id.str));
        T_EQ(0, t_failures(own, id.str, 0, text, sizeof text));
    } else {
        T_EQ(1, revoke_it.calls);
        T_EQ(EB_DLQ, t_status(own, id.str));
        T_EQ(1, t_failures(own, id.str, 0, text, sizeof text));
        ASSERT_STR_EQ(how == BY_VIEW_DLQ ? "moved by operator" : "enough", text);
    }
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM events"));
    t_advance(&now, 7200000);
    T_OK(eb_drain(bus, 0));
    eb_store_close(own);
    eb_destroy(bus);
    PASS();
}

/* ---- figures --------------------------------------------------------------------------------- */

/* What eb_stats_get says is what the rows say. */
#define FIGURES_AGREE(store)                                                                       \
    do {                                                                                           \
        eb_stats f_stats;                                                                          \
        T_OK(eb_stats_get(store, &f_stats));                                                       \
        T_EQ(t_rows(path, "status = 'pending'"), f_stats.pending);                                 \
        T_EQ(t_rows(path, "status = 'processing'"), f_stats.processing);                           \
        T_EQ(t_rows(path, "status = 'done'"), f_stats.done);                                       \
        T_EQ(t_rows(path, "status = 'dlq'"), f_stats.dlq);                                         \
    } while (0)

static int agreed, disagreed; /* calls in which the figures were the rows, and not */
static eb_result looks_at_the_figures(eb_delivery *d, void *user)
{
    const char *path = (const char *)user;
    eb_stats s;
    if (eb_stats_get(eb_bus_store(d->bus), &s) == EB_OK && s.processing > 0 &&
        s.processing == t_rows(path, "status = 'processing'") &&
        s.pending == t_rows(path, "status = 'pending'") &&
        s.done == t_rows(path, "status = 'done'") && s.dlq == t_rows(path, "status = 'dlq'"))
        agreed++;
    else disagreed++;
    return EB_OK;
}

TEST figures_are_the_rows_in_every_state(void)
{
    const char *path = t_path("figures");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_stats stats;
    int64_t count;
    eb_id moved;
    char words[400]; /* the path, for the handler */
    snprintf(words, sizeof words, "%s", path);
    FIGURES_AGREE(store);
    T_OK(eb_stats_get(store, &stats));
    T_EQ(0, stats.oldest_pending_ms);
    T_EQ(0, stats.last_seq);
    moved = post(bus, "kept", "1");
    t_advance(&now, 700);
    post(bus, "kept", "2");
    post(bus, "wait", "3");
    post(bus, "ok", "4");
    post(bus, "ok", "5");
    post(bus, "bad", "6");
    t_advance(&now, 300);
    FIGURES_AGREE(store);
    FIGURES_AGREE(eb_bus_store(bus));
    T_OK(eb_stats_get(store, &stats));
    T_EQ(2, stats.pending);
    T_EQ(1, stats.processing);
    T_EQ(2, stats.done);
    T_EQ(1, stats.dlq);
    T_EQ(1000, stats.oldest_pending_ms);
    T_EQ(6, stats.last_seq);
    T_EQ(t_sql_int(path, "PRAGMA page_count") * t_sql_int(path, "PRAGMA page_size"),
         stats.db_bytes);
    ASSERT(stats.wal_bytes > 0);
    T_OK(eb_dlq_move(store, moved.str, NULL));
    FIGURES_AGREE(store);
    T_OK(eb_stats_get(store, &stats));
    T_EQ(300, stats.oldest_pending_ms); /* the older one is dead */
    T_OK(eb_dlq_purge(store, 0, &count));
    T_EQ(2, count);
    FIGURES_AGREE(store);
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'pending' WHERE status = 'done'", NULL,
                          0)); /* an operator wants them again */
    FIGURES_AGREE(store);
    agreed = 0;
    t_subscribe(bus, "ok", looks_at_the_figures, words);
    T_OK(eb_pump(bus, 0, NULL)); /* one of the two */
    T_EQ(1, agreed);
    FIGURES_AGREE(store);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(2, agreed);
    FIGURES_AGREE(store);
    T_OK(eb_stats_get(store, &stats));
    T_EQ(2, stats.done);
    T_EQ(1, stats.pending);
    T_EQ(6, stats.last_seq);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* A bus that another one publishes beside, on the same clock; never started. */
static eb_bus *publisher(const char *path)
{
    t_time keep = now;
    eb_options o = world_options(path);
    eb_bus *bus;
    now = keep;
    o.node_id = "node-2";
    bus = t_open(&o);
    return bus;
}

/* The bus keeps its figures in memory while nobody else writes: whoever does, they are right at
** once, and again after what the bus itself does next. */
TEST figures_of_a_bus_are_right_when_others_write(void)
{
    static const char *const by_hand[] = {
        "UPDATE events SET status = 'pending' WHERE status = 'dlq' AND type = 'bad1'",
        "UPDATE events SET status = 'pending' WHERE status = 'done' AND type = 'ok1'",
        "UPDATE events SET status = 'pending' WHERE status = 'processing' AND type = 'wait1'",
        "UPDATE events SET status = 'processing' WHERE status = 'pending' AND type = 'kept1'",
        "UPDATE events SET status = 'dlq' WHERE status = 'pending' AND type = 'kept2'",
        "UPDATE events SET status = 'dlq' WHERE status = 'processing' AND type = 'wait2'",
        "UPDATE events SET status = status"};
    static const char *const types[] = {"ok1",   "ok2",   "bad1",  "bad2",  "bad3",
                                        "wait1", "wait2", "kept1", "kept2", "kept3"};
    const char *path = t_path("others");
    eb_bus *bus = world(path), *other = publisher(path);
    eb_store *store = beside(path), *own = eb_bus_store(bus);
    eb_stats stats;
    eb_id id[10];
    size_t i;
    for (i = 0; i < 10; i++) id[i] = post(bus, types[i], NULL);
    FIGURES_AGREE(own);
    FIGURES_AGREE(own); /* from memory now */
    T_OK(eb_dlq_retry(store, id[2].str, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    FIGURES_AGREE(own);
    t_post(other, "ok", NULL);
    FIGURES_AGREE(own);
    t_post(other, "kept", NULL);
    t_post(bus, "ok", NULL); /* nobody asks in between */
    T_OK(eb_dlq_retry(own, id[3].str, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_pump(bus, 0, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    FIGURES_AGREE(own);
    for (i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        T_EQ(SQLITE_OK, t_sql(path, by_hand[i], NULL, 0));
        FIGURES_AGREE(own);
        FIGURES_AGREE(own);
    }
    T_OK(eb_pump(bus, EB_NONE, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_dlq_move(store, id[9].str, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_dlq_retry_all(store, NULL, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_dlq_purge(store, 0, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_dlq_purge_dead(own, 0, NULL));
    FIGURES_AGREE(own);
    T_OK(eb_stats_get(own, &stats));
    T_EQ(13, stats.last_seq);
    eb_destroy(other);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* A chain of random steps, by the bus and by others; after about every second one it is asked. */
static uint32_t luck;
static int up_to(int n) /* 0 to n - 1 */
{
    luck = luck * 1664525 + 1013904223;
    return (int)((luck >> 8) % (uint32_t)n);
}

static eb_result naps(eb_delivery *d, void *user)
{
    (void)user;
    return eb_snooze(d, 1000);
}

/* Some event of this state; "" if there is none. */
static const char *some(const char *path, const char *status, char *buf, size_t cap)
{
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT id FROM events WHERE status = '%s' ORDER BY seq * %d %% 97",
             status, 1 + up_to(50));
    return t_sql_text(path, sql, buf, cap);
}

/* One step; store: the bus's own or another one. */
static void figure_step(const char *path, eb_bus *bus, eb_bus *other, eb_store *store)
{
    static const char *const types[] = {"ok", "bad", "wait", "kept", "nap"};
    static const char *const states[] = {"pending", "processing", "done", "dlq"};
    static int64_t count;
    char id[40], sql[200];
    eb_message m[3];
    size_t i;
    switch (up_to(12)) {
    case 0:
    case 1:
        memset(m, 0, sizeof m);
        for (i = 0; i < 3; i++) {
            m[i].type = types[up_to(5)];
            m[i].ordering_key = up_to(3) ? NULL : "k";
            m[i].delay_ms = up_to(4) ? 0 : 1000;
            m[i].idempotency_key = up_to(3) ? NULL : m[i].type;
        }
        T_MUST(eb_send(up_to(3) ? bus : other, m, (size_t)up_to(4), NULL) >= 0);
        break;
    case 2:
    case 3: T_DO(eb_pump(bus, 0, NULL)); break;
    case 4: T_DO(eb_pump(bus, EB_NONE, NULL)); break;
    case 5: t_advance(&now, up_to(2) ? 1000 : 3600000); break;
    case 6: eb_dlq_retry(store, some(path, "dlq", id, sizeof id), NULL); break;
    case 7: if (up_to(3) == 0) T_DO(eb_dlq_retry_all(store, NULL, &count)); break;
    case 8: eb_dlq_move(store, some(path, states[up_to(2)], id, sizeof id), NULL); break;
    case 9: if (up_to(4) == 0) T_DO(eb_dlq_purge(store, 0, &count)); break;
    default: /* an operator; some of it is refused */
        snprintf(sql, sizeof sql, "UPDATE events SET status = '%s' WHERE id = '%s'",
                 states[up_to(4)], some(path, states[up_to(4)], id, sizeof id));
        t_sql(path, sql, NULL, 0);
    }
}

TEST figures_of_a_bus_are_the_rows_whatever_happens(int seed)
{
    const char *path = t_path("figure-steps");
    eb_options o = world_options(path);
    eb_bus *bus, *other;
    eb_store *store;
    char words[400];
    int i;
    snprintf(words, sizeof words, "%s", path);
    luck = (uint32_t)seed * 7919;
    o.on_unmatched = seed % 3;
    bus = world_open(&o);
    other = publisher(path);
    store = beside(path);
    t_subscribe(bus, "nap", naps, NULL);
    t_subscribe(bus, "ok", looks_at_the_figures, words);
    agreed = calls = 0;
    for (i = 0; i < 150; i++) {
        figure_step(path, bus, other, up_to(2) ? store : eb_bus_store(bus));
        if (up_to(2)) FIGURES_AGREE(eb_bus_store(bus));
        if (up_to(8) == 0) FIGURES_AGREE(store);
    }
    T_OK(eb_pump(bus, EB_NONE, NULL));
    FIGURES_AGREE(eb_bus_store(bus));
    ASSERT(agreed > 0);
    T_EQ(0, disagreed);
    eb_destroy(other);
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

#ifndef EB_NO_THREADS
/* Threads that publish, retry and purge while somebody asks. */
enum { BUSY_EVENTS = 1500 };
static struct {
    eb_bus *bus, *other;
    int tried, posted, failed, begun, ended, purged_before, purged_after;
} busy;

static eb_result busy_handler(eb_delivery *d, void *user)
{
    (void)user;
    p_add(&busy.begun, 1);
    if (strcmp(d->event->type, "bad") == 0) return eb_reject(d, "bad");
    return d->event->seq % 5 == 0 && d->attempt == 1 ? eb_fail(d, "once") : EB_OK;
}

static void *busy_posts(void *unused)
{
    int i;
    for (i = 0; i < BUSY_EVENTS; i++) {
        eb_bus *bus = i % 10 == 0 ? busy.other : busy.bus;
        p_add(&busy.tried, 1);
        if (eb_post(bus, i % 7 == 0 ? "bad" : "good", NULL, NULL) == EB_OK) p_add(&busy.posted, 1);
        else p_add(&busy.failed, 1);
    }
    return unused;
}

static void *busy_operates(void *unused)
{
    int64_t count;
    int i;
    for (i = 0; !p_get(&busy.ended); i++) {
        eb_store *store = eb_bus_store(i & 1 ? busy.bus : busy.other);
        if (i % 3 == 0) {
            eb_dlq_retry_all(store, NULL, &count);
        } else {
            p_add(&busy.purged_before, BUSY_EVENTS); /* it may be as many */
            count = 0;
            eb_dlq_purge(store, 0, &count);
            p_add(&busy.purged_after, (int)count);
            p_add(&busy.purged_before, (int)count - BUSY_EVENTS);
        }
        p_nap_us(500);
    }
    return unused;
}

/* Each answer is of one moment: every event is in one state, and in none that it had not reached
** when the call returned, or had left before it began. */
TEST figures_add_up_while_threads_publish(int own)
{
    const char *path = t_path("busy");
    eb_options o = t_options(path);
    pthread_t poster, operates;
    eb_store *store = NULL;
    eb_stats s;
    int64_t last_done = 0, purged;
    int posted, gone, answers = 0;
    memset(&busy, 0, sizeof busy);
    o.workers = 2;
    o.idle_poll_ms = 5;
    o.durability = EB_DURABLE_OFF;
    busy.bus = t_open(&o);
    o.workers = EB_NONE;
    busy.other = t_open(&o);
    t_subscribe(busy.bus, "*", busy_handler, NULL);
    T_OK(eb_start(busy.bus));
    if (!own) T_OK(eb_store_open(&store, &o));
    poster = p_go(busy_posts, NULL);
    operates = p_go(busy_operates, NULL);
    while (p_get(&busy.posted) + p_get(&busy.failed) < BUSY_EVENTS) {
        posted = p_get(&busy.posted);
        gone = p_get(&busy.purged_after);
        T_OK(eb_stats_get(own ? eb_bus_store(busy.bus) : store, &s));
        answers++;
        P_WITHIN(posted, p_get(&busy.tried), s.last_seq);
        purged = s.last_seq - (s.pending + s.processing + s.done + s.dlq);
        P_WITHIN(gone, p_get(&busy.purged_before), purged);
        ASSERT(s.pending >= 0 && s.processing >= 0 && s.done >= 0 && s.dlq >= 0);
        P_WITHIN(last_done, p_get(&busy.begun), s.done); /* nobody runs a done event again */
        P_WITHIN(0, p_get(&busy.begun), s.dlq);
        last_done = s.done;
    }
    p_set(&busy.ended, 1);
    p_join(poster);
    p_join(operates);
    ASSERT(answers > 5);
    T_EQ(0, busy.failed);
    T_OK(eb_drain(busy.bus, P_LONG_MS));
    FIGURES_AGREE(eb_bus_store(busy.bus));
    T_OK(eb_stats_get(eb_bus_store(busy.bus), &s));
    T_EQ(BUSY_EVENTS, s.last_seq);
    T_EQ(0, s.pending + s.processing);
    T_EQ(busy.purged_after, s.last_seq - s.done - s.dlq);
    eb_store_close(store);
    eb_destroy(busy.other);
    eb_destroy(busy.bus);
    PASS();
}
#endif

TEST bus_counts_what_it_did_and_a_store_did_nothing(void)
{
    const char *path = t_path("since");
    eb_bus *bus = world(path);
    eb_store *store = beside(path);
    eb_stats stats;
    eb_id id;
    post(bus, "ok", "1");
    post(bus, "ok", "2");
    post(bus, "kept", "3");
    id = post(bus, "bad", "4");
    post(bus, "wait", "5");
    T_OK(eb_stats_get(eb_bus_store(bus), &stats));
    T_EQ(5, stats.published);
    T_EQ(2, stats.delivered);
    T_EQ(2, stats.failed_attempts);
    T_EQ(1, stats.died);
    T_EQ(0, stats.stale);
    T_EQ(0, stats.lost_workers);
    ASSERT(stats.commits >= 5);
    T_OK(eb_dlq_retry(store, id.str, NULL));
    T_OK(eb_stats_get(store, &stats));
    T_EQ(0, stats.published);
    T_EQ(0, stats.delivered);
    T_EQ(0, stats.failed_attempts);
    T_EQ(0, stats.died);
    T_EQ(0, stats.stale);
    T_EQ(0, stats.lost_workers);
    T_EQ(0, stats.commits); /* "0 in a store without a bus" */
    T_IS(EB_ERR_ARG, eb_stats_get(store, NULL));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

/* ---- lists outlive their store --------------------------------------------------------------- */

static int blocks_alive;

static void *counting_resize(void *ptr, size_t size, void *user)
{
    (void)user;
    if (size == 0) {
        if (ptr) p_add(&blocks_alive, -1);
        free(ptr);
        return NULL;
    }
    if (!ptr) p_add(&blocks_alive, 1);
    return realloc(ptr, size);
}

TEST list_outlives_its_store_and_its_bus(void)
{
    const char *path = t_path("outlives");
    eb_options o = world_options(path);
    eb_store *store = NULL;
    eb_event_list got, log, dead;
    eb_bus *bus;
    eb_id id;
    blocks_alive = 0;
    o.allocator.resize = counting_resize;
    bus = world_open(&o);
    post(bus, "ok", "1");
    id = post(bus, "bad", "2");
    T_OK(eb_store_open(&store, &o));
    T_OK(eb_get(store, id.str, &got));
    T_OK(eb_dlq_list(store, NULL, &dead));
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &log));
    eb_store_close(store);
    eb_destroy(bus);
    remove(path);
    ASSERT_STR_EQ("2", payloads(&got));
    ASSERT_STR_EQ("2", payloads(&dead));
    ASSERT_STR_EQ("1,2", payloads(&log));
    ASSERT_STR_EQ("[\"bad 2\"]", dead.items[0].last_error);
    ASSERT(p_get(&blocks_alive) > 0); /* the lists, and nothing else: */
    eb_event_list_free(&got);
    eb_event_list_free(&dead);
    eb_event_list_free(&log);
    T_EQ(0, p_get(&blocks_alive)); /* freed through the allocator that made them */
    PASS();
}

/* ---- inside a handler ------------------------------------------------------------------------ */

static struct {
    eb_store *other;
    eb_id dead[3];
    int done, wrong;
} inspect;

#define INSIDE(want, expr)                                                                         \
    do {                                                                                           \
        eb_result i_got = (expr);                                                                  \
        if (i_got != (want)) {                                                                     \
            fprintf(stderr, "\n%s: %s\n", #expr, eb_strerror(i_got));                              \
            inspect.wrong++;                                                                       \
        }                                                                                          \
    } while (0)

static void inspect_all(eb_store *store, const char *running, const char *dead)
{
    eb_event_list list;
    eb_stats stats;
    eb_query q = query();
    int64_t count = -1;
    INSIDE(EB_OK, eb_get(store, running, &list));
    inspect.wrong += list.count != 1 || list.items[0].status != EB_PROCESSING;
    eb_event_list_free(&list);
    q.want_total = 1;
    INSIDE(EB_OK, eb_log_read(store, &q, &list));
    q.want_total = 0;
    inspect.wrong += list.total < 4;
    eb_event_list_free(&list);
    INSIDE(EB_OK, eb_dlq_list(store, NULL, &list));
    inspect.wrong += list.total < 1;
    eb_event_list_free(&list);
    INSIDE(EB_OK, eb_stats_get(store, &stats));
    inspect.wrong += stats.processing < 1 || stats.dlq < 1;
    INSIDE(EB_ERR_STATE, eb_dlq_retry(store, running, NULL));
    INSIDE(EB_OK, eb_dlq_retry(store, dead, NULL));
    INSIDE(EB_OK, eb_dlq_move(store, dead, "again"));
    q.id = dead;
    INSIDE(EB_OK, eb_dlq_retry_all(store, &q, &count));
    inspect.wrong += count != 1;
    INSIDE(EB_OK, eb_dlq_move(store, dead, "and again"));
    INSIDE(EB_OK, eb_dlq_purge(store, 10000, &count));
    inspect.wrong += count != 0;
    INSIDE(EB_OK, eb_dlq_purge_dead(store, 10000, &count));
    inspect.wrong += count != 0;
}

static eb_result inspects(eb_delivery *d, void *user)
{
    (void)user;
    if (strcmp(d->event->type, "bad") == 0) return eb_reject(d, "bad");
    inspect_all(eb_bus_store(d->bus), d->event->id.str, inspect.dead[0].str);
    inspect_all(inspect.other, d->event->id.str, inspect.dead[1].str);
    INSIDE(EB_OK, eb_dlq_retry(eb_bus_store(d->bus), inspect.dead[2].str, NULL));
    inspect.done = 1;
    return EB_OK;
}

TEST every_call_is_fine_inside_a_handler(void)
{
    const char *path = t_path("inside");
    eb_options o = t_options(path);
    eb_bus *bus = t_open(&o);
    eb_id sub;
    int i;
    memset(&inspect, 0, sizeof inspect);
    T_OK(eb_store_open(&inspect.other, &o));
    T_OK(eb_subscribe(bus, "bad", inspects, NULL, NULL, &sub));
    T_OK(eb_start(bus));
    for (i = 0; i < 3; i++) T_IS(EB_DEAD, eb_publish(bus, "bad", NULL, &inspect.dead[i]));
    T_OK(eb_unsubscribe(bus, sub.str));
    t_subscribe(bus, "look", inspects, NULL);
    T_OK(eb_publish(bus, "look", NULL, NULL));
    T_EQ(1, inspect.done);
    T_EQ(0, inspect.wrong);
    T_ROWS(2, path, "status = 'dlq' AND retry_count = 1");
    T_ROWS(1, path, "status = 'pending' AND type = 'bad'"); /* nobody wants it any more */
    eb_store_close(inspect.other);
    eb_destroy(bus);
    PASS();
}

/* ---- the view -------------------------------------------------------------------------------- */

/* Everything the view shows, as one text. */
static const char *whole_view(const char *path, char *buf, size_t cap)
{
    return t_sql_text(path,
                      "SELECT group_concat(line, char(10)) FROM (SELECT id||'|'||type||'|'||payload"
                      "||'|'||status||'|'||retry_count||'|'||ifnull(last_error,'-')||'|'||"
                      "ifnull(metadata,'-')||'|'||created_at||'|'||updated_at||'|'||seq AS line"
                      " FROM events ORDER BY seq)",
                      buf, cap);
}

/* One event in each state: seq 1 pending, 2 processing (waits for its retry), 3 done, 4 dead. */
static eb_bus *one_of_each(const char *path)
{
    eb_bus *bus = world(path);
    post(bus, "kept", "1");
    post(bus, "wait", "2");
    post(bus, "ok", "3");
    post(bus, "bad", "4");
    return bus;
}

TEST operator_is_refused_what_has_no_meaning_and_told_what_to_use(void)
{
    static const char *const refused[] = {
        "INSERT INTO events(type, payload) VALUES('x', '1')",
        "INSERT INTO events(id, type, payload, status) VALUES('i', 'x', '1', 'pending')",
        "REPLACE INTO events SELECT * FROM events",
        "DELETE FROM events",
        "DELETE FROM events WHERE status = 'dlq'",
        "UPDATE events SET payload = '9'",
        "UPDATE events SET type = 'y' WHERE seq = 1",
        "UPDATE events SET id = 'y' WHERE seq = 1",
        "UPDATE events SET seq = 99 WHERE seq = 1",
        "UPDATE events SET metadata = '{}' WHERE seq = 1",
        "UPDATE events SET retry_count = 0 WHERE seq = 2",
        "UPDATE events SET last_error = NULL WHERE seq = 2",
        "UPDATE events SET created_at = 'x' WHERE seq = 1",
        "UPDATE events SET updated_at = 'x' WHERE seq = 1",
        "UPDATE events SET status = 'pending', payload = '9' WHERE seq = 4",
        "UPDATE events SET status = 'pending', retry_count = 0 WHERE seq = 4",
        "UPDATE events SET status = 'done' WHERE seq = 1",
        "UPDATE events SET status = 'done' WHERE seq = 2",
        "UPDATE events SET status = 'done' WHERE seq = 4",
        "UPDATE events SET status = 'processing' WHERE seq = 3",
        "UPDATE events SET status = 'processing' WHERE seq = 4",
        "UPDATE events SET status = 'dlq' WHERE seq = 3",
        "UPDATE events SET status = NULL WHERE seq = 4",
        "UPDATE events SET status = '' WHERE seq = 4",
        "UPDATE events SET status = 'PENDING' WHERE seq = 4",
        "UPDATE events SET status = 'pending ' WHERE seq = 4",
        "UPDATE events SET status = 'lost' WHERE seq = 4",
        "UPDATE events SET status = 1 WHERE seq = 4",
        "UPDATE events SET status = 'dlq'", /* right for some, wrong for one: none */
    };
    const char *path = t_path("refused");
    eb_bus *bus = one_of_each(path);
    char was[2000], is[2000], err[300];
    size_t i;
    whole_view(path, was, sizeof was);
    ASSERT(strstr(was, "processing") && strstr(was, "dlq"));
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (t_sql(path, refused[i], err, sizeof err) != SQLITE_CONSTRAINT) FAILm(refused[i]);
        if (!strstr(err, "eb_")) FAILm(refused[i]); /* the function to use */
        ASSERT_STR_EQ(was, whole_view(path, is, sizeof is));
    }
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = status", err, sizeof err));
    ASSERT_STR_EQ(was, whole_view(path, is, sizeof is)); /* no change is no change */
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(3, calls);
    eb_destroy(bus);
    PASS();
}

#define OPERATOR(sql) T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0))

TEST operator_retries_a_dead_letter(void)
{
    const char *path = t_path("dlq-pending");
    eb_bus *bus = one_of_each(path);
    OPERATOR("UPDATE events SET status = 'pending' WHERE status = 'dlq'");
    T_ROWS(1, path, "seq = 4 AND status = 'pending' AND retry_count = 0"
                    " AND last_error IS NULL AND payload = '4'");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM dead_letters"));
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* runs at once, and dies again */
    T_EQ(4, calls);
    T_ROWS(1, path, "seq = 4 AND status = 'dlq' AND retry_count = 1");
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM dead_letters WHERE retried_by = 'operator'"
                            " AND length(retried_at) = 24"));
    T_EQ(4, t_sql_int(path, "SELECT count(*) FROM events"));
    eb_destroy(bus);
    PASS();
}

TEST operator_runs_a_done_event_again(void)
{
    const char *path = t_path("done-pending");
    eb_bus *bus = one_of_each(path);
    OPERATOR("UPDATE events SET status = 'pending' WHERE status = 'done'");
    T_ROWS(1, path, "seq = 3 AND status = 'pending' AND retry_count = 0");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM finished"));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(4, calls);
    T_ROWS(1, path, "seq = 3 AND status = 'done' AND retry_count = 0");
    T_EQ(4, t_sql_int(path, "SELECT count(*) FROM events"));
    eb_destroy(bus);
    PASS();
}

/* It need not wait for its hour; the failed attempt stays counted. */
TEST operator_frees_a_processing_event(void)
{
    const char *path = t_path("processing-pending");
    eb_bus *bus = one_of_each(path);
    char text[100];
    OPERATOR("UPDATE events SET status = 'pending' WHERE status = 'processing'");
    T_ROWS(1, path, "seq = 2 AND status = 'pending' AND retry_count = 1");
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(4, calls);
    T_ROWS(1, path, "seq = 2 AND status = 'processing' AND retry_count = 2");
    t_sql_text(path, "SELECT last_error FROM events WHERE seq = 2", text, sizeof text);
    ASSERT_STR_EQ("[\"wait\",\"wait\"]", text);
    eb_destroy(bus);
    PASS();
}

/* As after a crash: nobody touches it before the next start, which counts an attempt. */
TEST operator_marks_a_pending_event_as_processing(void)
{
    const char *path = t_path("pending-processing");
    eb_options o = world_options(path);
    eb_bus *bus = one_of_each(path);
    char text[200];
    t_post(bus, "ok", "5"); /* in memory already, waiting for its turn */
    OPERATOR("UPDATE events SET status = 'processing' WHERE status = 'pending'");
    T_ROWS(3, path, "status = 'processing'");
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(3, calls);
    T_ROWS(3, path, "status = 'processing'");
    eb_destroy(bus);
    bus = world_open(&o);
    T_ROWS(1, path, "seq = 1 AND status = 'pending' AND retry_count = 1");
    t_sql_text(path, "SELECT last_error FROM events WHERE seq = 1", text, sizeof text);
    ASSERT(strncmp(text, "[\"interrupted", 13) == 0);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_ROWS(1, path, "seq = 5 AND status = 'done' AND retry_count = 1");
    eb_destroy(bus);
    PASS();
}

TEST operator_gives_live_events_up(void)
{
    const char *path = t_path("live-dlq");
    eb_bus *bus = one_of_each(path);
    eb_store *store = beside(path);
    eb_message m = t_message("ok", "5");
    eb_id id;
    char text[200];
    m.metadata = "{\"k\":\"v\"}";
    m.idempotency_key = "once";
    m.ordering_key = "key";
    T_OK(eb_send(bus, &m, 1, &id)); /* in memory already */
    OPERATOR("UPDATE events SET status = 'dlq' WHERE status IN ('pending', 'processing')");
    T_ROWS(4, path, "status = 'dlq'");
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    t_sql_text(path, "SELECT last_error FROM events WHERE seq = 1", text, sizeof text);
    ASSERT_STR_EQ("[\"moved by operator\"]", text);
    T_ROWS(1, path, "seq = 1 AND retry_count = 1");
    t_sql_text(path, "SELECT last_error FROM events WHERE seq = 2", text, sizeof text);
    ASSERT_STR_EQ("[\"wait\",\"moved by operator\"]", text);
    T_ROWS(1, path, "seq = 2 AND retry_count = 2");
    t_advance(&now, 7200000);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(3, calls); /* none of them ran */
    T_IS(EB_DEAD, eb_wait(bus, id.str, 0));
    READS(eb_dlq_list, NULL, "5,4,2,1", 4);
    T_OK(eb_dlq_retry(store, id.str, NULL)); /* with everything it had */
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_EQ(4, calls);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM event_log WHERE seq = 5 AND idempotency_key ="
                            " 'once' AND ordering_key = 'key' AND metadata = '{\"k\":\"v\"}'"));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}

#ifndef EB_NO_THREADS
/* A running bus hears of it within idle_poll_ms, as of a retry. */
TEST operator_wakes_the_bus(void)
{
    const char *path = t_path("operator-wakes");
    eb_options o = t_options(path);
    eb_bus *bus;
    p_set(&fixed, 0);
    o.workers = 1;
    o.idle_poll_ms = 20;
    bus = t_run_with(&o, "*", recovers, NULL);
    T_IS(EB_DEAD, eb_publish(bus, "x", NULL, NULL));
    p_set(&fixed, 1);
    OPERATOR("UPDATE events SET status = 'pending' WHERE status = 'dlq'");
    P_EVENTUALLY(t_rows(path, "status = 'done'") == 1);
    eb_destroy(bus);
    PASS();
}
#endif

/* ---- what a look costs ----------------------------------------------------------------------- */

/* The plan of a query, one line for each step. */
static const char *plan_of(sqlite3 *db, const char *sql, char *buf, size_t cap)
{
    char text[400];
    sqlite3_stmt *s = NULL;
    size_t n = 0;
    snprintf(text, sizeof text, "EXPLAIN QUERY PLAN %s", sql);
    T_MUST(sqlite3_prepare_v2(db, text, -1, &s, NULL) == SQLITE_OK);
    buf[0] = 0;
    while (sqlite3_step(s) == SQLITE_ROW)
        n += (size_t)snprintf(buf + n, cap - n, "%s\n", (const char *)sqlite3_column_text(s, 3));
    sqlite3_finalize(s);
    return buf;
}

/* How many steps SQLite's machine takes to run it. */
static int steps_of(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int rows = 0, steps;
    T_MUST(sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW) rows++;
    steps = sqlite3_stmt_status(s, SQLITE_STMTSTATUS_VM_STEP, 0);
    T_MUST(rows == 1);
    sqlite3_finalize(s);
    return steps;
}

/* Three thousand finished events are not looked at to find one that is not. */
TEST looking_for_the_few_does_not_scan_the_many(void)
{
    enum { N = 3000 };
    static const char *const status[] = {"pending", "processing", "dlq"};
    static eb_message m[N];
    const char *path = t_path("plan");
    eb_bus *bus = one_of_each(path);
    sqlite3 *db = NULL;
    char sql[200], plan[2000];
    int i;
    memset(m, 0, sizeof m);
    for (i = 0; i < N; i++) m[i].type = "ok";
    T_OK(eb_send(bus, m, N, NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    T_ROWS(N + 1, path, "status = 'done'");
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    for (i = 0; i < 3; i++) {
        snprintf(sql, sizeof sql, "SELECT * FROM events WHERE status = '%s'", status[i]);
        plan_of(db, sql, plan, sizeof plan);
        if (strstr(plan, "SCAN l") || strstr(plan, "event_log")) FAILm(plan);
        P_WITHIN(1, 1000, steps_of(db, sql));
    }
    snprintf(sql, sizeof sql, "SELECT * FROM events WHERE seq = 4");
    P_WITHIN(1, 1000, steps_of(db, sql));
    sqlite3_close(db);
    eb_destroy(bus);
    PASS();
}

SUITE(store)
{
    RUN_TEST(store_creates_nothing);
    RUN_TEST(store_checks_its_options);
    RUN_TEST(store_works_alone_and_dispatches_nothing);
    RUN_TEST(list_outlives_its_store_and_its_bus);
}

SUITE(lists)
{
    int dead;
    RUN_TEST(get_tells_everything_about_an_event_in_every_state);
    RUN_TEST(get_of_what_is_no_event_is_not_found);
    for (dead = 0; dead < 2; dead++) {
        RUN_TESTp(filters_choose_what_is_listed, dead);
        RUN_TESTp(id_that_is_none_lists_nothing, dead);
        RUN_TESTp(nonsense_in_a_query_is_refused, dead);
        RUN_TESTp(list_has_a_hundred_unless_asked, dead);
    }
    RUN_TEST(log_has_every_state_and_the_dead_letters_only_the_dead);
    RUN_TEST(dead_letters_are_listed_newest_first);
}

SUITE(dead_letters)
{
    int i, fail;
    for (i = 0; i < 2; i++) {
        RUN_TESTp(retry_gives_a_dead_event_a_new_life, i);
        RUN_TESTp(move_makes_a_dead_letter_of_a_live_event, i);
        RUN_TESTp(purge_has_no_limit, i);
    }
    RUN_TEST(retry_of_what_is_not_dead_says_why);
    RUN_TEST(retry_all_takes_those_that_match);
    RUN_TEST(retry_all_has_no_limit_of_its_own);
    RUN_TEST(purge_goes_by_birth_and_includes_the_day);
    RUN_TEST(purge_dead_goes_by_death);
    RUN_TEST(sequence_numbers_go_on_after_a_purge_of_everything);
    for (i = 0; i < 3; i++) RUN_TESTp(moved_event_lets_the_next_of_its_key_go, i);
    for (i = BY_MOVE; i <= BY_VIEW_PENDING; i++)
        for (fail = 0; fail < 2; fail++) RUN_TESTp(taken_away_while_its_handler_runs, i, fail);
}

SUITE(figures)
{
    char suffix[20];
    int seed;
    RUN_TEST(figures_are_the_rows_in_every_state);
    RUN_TEST(figures_of_a_bus_are_right_when_others_write);
    for (seed = 1; seed <= 6; seed++) {
        snprintf(suffix, sizeof suffix, "seed_%d", seed);
        greatest_set_test_suffix(suffix);
        RUN_TESTp(figures_of_a_bus_are_the_rows_whatever_happens, seed);
    }
    RUN_TEST(bus_counts_what_it_did_and_a_store_did_nothing);
}

SUITE(view)
{
    RUN_TEST(operator_is_refused_what_has_no_meaning_and_told_what_to_use);
    RUN_TEST(operator_retries_a_dead_letter);
    RUN_TEST(operator_runs_a_done_event_again);
    RUN_TEST(operator_frees_a_processing_event);
    RUN_TEST(operator_marks_a_pending_event_as_processing);
    RUN_TEST(operator_gives_live_events_up);
    RUN_TEST(looking_for_the_few_does_not_scan_the_many);
}

SUITE(inside)
{
    RUN_TEST(every_call_is_fine_inside_a_handler);
}

#ifndef EB_NO_THREADS
SUITE(wakes)
{
    int own, all;
    for (own = 0; own < 2; own++)
        for (all = 0; all < 2; all++) RUN_TESTp(retry_wakes_the_bus, own, all);
    RUN_TEST(operator_wakes_the_bus);
    greatest_set_test_suffix("bus");
    RUN_TESTp(figures_add_up_while_threads_publish, 1);
    greatest_set_test_suffix("store");
    RUN_TESTp(figures_add_up_while_threads_publish, 0);
}
#endif

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(store);
    RUN_SUITE(lists);
    RUN_SUITE(dead_letters);
    RUN_SUITE(figures);
    RUN_SUITE(view);
    T_RUN_BOTH(inside);
#ifndef EB_NO_THREADS
    RUN_SUITE(wakes);
#endif
    GREATEST_MAIN_END();
}
