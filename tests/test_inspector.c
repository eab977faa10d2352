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

static t_time now; /* of every world */
static int calls;  /* of act */

static eb_options world_options(const char *path)
{
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    o.clock = t_clock(&now);
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
        T_MUST(eb_subscribe(bus, patterns[i], act, &calls, NULL, NULL) == EB_OK);
    T_MUST(eb_start(bus) == EB_OK);
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
    T_MUST(eb_store_open(&store, &o) == EB_OK);
    return store;
}

/* Posts one event and runs what is due. */
static eb_id post(eb_bus *bus, const char *type, const char *payload)
{
    eb_id id;
    T_MUST(eb_post(bus, type, payload, &id) == EB_OK);
    T_MUST(eb_pump(bus, EB_NONE, NULL) == EB_OK);
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

/* A query gives exactly these payloads and this total, through each of the stores given. */
#define READS(read, query, want, want_total)                                                       \
    do {                                                                                           \
        eb_event_list r_list;                                                                      \
        T_OK(read(store, query, &r_list));                                                         \
        ASSERT_STR_EQ(want, payloads(&r_list));                                                    \
        P_EQ(want_total, r_list.total);                                                            \
        eb_event_list_free(&r_list);                                                               \
        T_OK(read(eb_bus_store(bus), query, &r_list));                                             \
        ASSERT_STR_EQ(want, payloads(&r_list));                                                    \
        P_EQ(want_total, r_list.total);                                                            \
        eb_event_list_free(&r_list);                                                               \
    } while (0)

/* After a failure: an empty list that may be freed. */
#define READ_FAILS(result, read, query)                                                            \
    do {                                                                                           \
        eb_event_list r_list;                                                                      \
        memset(&r_list, 0x5A, sizeof r_list);                                                      \
        T_IS(result, read(store, query, &r_list));                                                 \
        P_EQ(0, r_list.count);                                                                     \
        P_EQ(0, r_list.total);                                                                     \
        ASSERT(r_list.items == NULL);                                                              \
        eb_event_list_free(&r_list);                                                               \
    } while (0)

static eb_query query(void)
{
    eb_query q;
    memset(&q, 0, sizeof q);
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
    char msg[300];
    ASSERT(eb_store_open(&store, &o) < 0);
    ASSERT(store == NULL);
    ASSERT(eb_errmsg(msg, sizeof msg) > 0);
    ASSERT(fopen(path, "rb") == NULL);
    P_EQ(SQLITE_OK, t_sql(path, "CREATE TABLE mine(x)", NULL, 0)); /* a database, but not ours */
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &o));
    ASSERT(store == NULL);
    P_EQ(1, t_sql_int(path, "SELECT count(*) FROM sqlite_schema"));
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
    bad.clock.sleep_ms = NULL;
    T_IS(EB_ERR_ARG, eb_store_open(&store, &bad));
    bad = o;
    bad.ns = "elsewhere"; /* there is no such namespace in this file */
    T_IS(EB_ERR_SCHEMA, eb_store_open(&store, &bad));
    ASSERT(store == NULL);
    P_EQ(0, t_sql_int(path, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'elsewhere%'"));
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
    P_EQ(EB_DONE, t_status(store, done.str));
    P_EQ(EB_DLQ, t_status(store, dead.str));
    P_EQ(EB_PENDING, t_status(store, kept.str));
    T_OK(eb_stats_get(store, &stats));
    P_EQ(1, stats.pending);
    P_EQ(1, stats.done);
    P_EQ(1, stats.dlq);
    calls = 0;
    T_OK(eb_dlq_retry(store, dead.str, NULL));
    P_EQ(EB_PENDING, t_status(store, dead.str));
    P_EQ(0, calls);
    eb_store_close(store);
    P_EQ(2, p_rows(path, "status = 'pending'"));
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
    eb_message m;
    eb_id id[4];
    char text[100];
    int i;
    memset(&m, 0, sizeof m);
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
        P_EQ(1, list.count);
        P_EQ(1, list.total);
        e = &list.items[0];
        ASSERT_STR_EQ(id[i].str, e->id.str);
        P_EQ(i + 1, e->seq);
        P_EQ(status[i], e->status);
        ASSERT_STR_EQ("{\"a\": [1, 2]}", e->payload);
        P_EQ(13, e->payload_len);
        ASSERT_STR_EQ("{\"k\":\"v\"}", e->metadata);
        ASSERT_STR_EQ(e->type, e->idempotency_key);
        if (i == 0) ASSERT(e->ordering_key == NULL);
        else ASSERT_STR_EQ(e->type, e->ordering_key);
        ASSERT_STR_EQ("node-1", e->producer);
        ASSERT(e->subscription == NULL);
        P_EQ(T_EPOCH, e->created_at_ms);
        P_EQ(i == 0 ? T_EPOCH : T_EPOCH + 1500, e->updated_at_ms);
        P_EQ(i == 3 ? T_EPOCH + 1500 : 0, e->dlq_at_ms);
        P_EQ(i & 1, e->retry_count);
        P_EQ(i & 1, t_errors(e->last_error, 0, text, sizeof text));
        if (i == 1) ASSERT_STR_EQ("wait", text);
        if (i == 3) ASSERT_STR_EQ("bad {\"a\": [1, 2]}", text);
        if (!(i & 1)) ASSERT(e->last_error == NULL);
        eb_event_list_free(&list);
        P_EQ(0, list.count);
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
    char longer[60], msg[200];
    size_t i;
#define GET(store, text, list) eb_get(store, text, list)
    READ_FAILS(EB_ERR_NOT_FOUND, GET, "");
    READ_FAILS(EB_ERR_NOT_FOUND, GET, "x");
    READ_FAILS(EB_ERR_NOT_FOUND, GET, "00000000-0000-4000-8000-000000000000");
    READ_FAILS(EB_ERR_NOT_FOUND, GET, f.str);
    ASSERT(eb_errmsg(msg, sizeof msg) > 0 && strstr(msg, f.str) != NULL);
    snprintf(longer, sizeof longer, "%s ", id.str);
    READ_FAILS(EB_ERR_NOT_FOUND, GET, longer);
    longer[35] = 0;
    READ_FAILS(EB_ERR_NOT_FOUND, GET, longer);
    for (i = 0; i < 36; i++)
        if (upper.str[i] >= 'a' && upper.str[i] <= 'f') upper.str[i] = (char)(upper.str[i] - 32);
    if (strcmp(upper.str, id.str) != 0) READ_FAILS(EB_ERR_NOT_FOUND, GET, upper.str);
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
    q.from_ms = T_EPOCH + 6000; /* both ends belong to it */
    READS(read, &q, dead ? "9,8,7" : "7,8,9", 3);
    q.from_ms = T_EPOCH + 6001;
    READS(read, &q, dead ? "9,8" : "8,9", 2);
    q.to_ms = T_EPOCH + 7000;
    READS(read, &q, "8", 1);
    q.to_ms = T_EPOCH + 6999;
    READS(read, &q, "", 0);
    q = query();
    q.to_ms = T_EPOCH + 2000;
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
    q.from_ms = T_EPOCH + 1000;
    q.to_ms = T_EPOCH + 7000;
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
        if (which == 0) q.offset = -1;
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
    P_EQ(dead ? 9 : 0, p_rows(path, "status = 'dlq'"));
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
    P_EQ(100, list.count);
    P_EQ(N, list.total);
    eb_event_list_free(&list);
    q.limit = 1000;
    T_OK(read(store, &q, &list));
    P_EQ(N, list.count);
    for (i = 0; i < N; i++) P_EQ(dead ? N - i : i + 1, list.items[i].seq); /* born at one time */
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
    P_EQ(EB_PENDING, list.items[0].status);
    P_EQ(EB_PROCESSING, list.items[1].status);
    P_EQ(EB_DONE, list.items[2].status);
    P_EQ(EB_DLQ, list.items[3].status);
    P_EQ(1, list.items[1].retry_count);
    P_EQ(1, list.items[3].retry_count);
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
    eb_message m;
    memset(&m, 0, sizeof m);
    m.type = "bad";
    m.payload = "1";
    m.delay_ms = 5000; /* born first, dies last */
    T_OK(eb_send(bus, &m, 1, NULL));
    t_advance(&now, 1000);
    post(bus, "bad", "2");
    t_advance(&now, 1000);
    post(bus, "bad", "3");
    t_advance(&now, 4000);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    READS(eb_dlq_list, NULL, "3,2,1", 3);
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
    P_EQ(4, t_failures(store, id.str, 0, NULL, 0));
    P_EQ(EB_DLQ, t_status(store, id.str));
    t_advance(&now, 5000);
    T_OK(eb_dlq_retry(store, id.str, NULL));
    T_OK(eb_get(store, id.str, &list));
    P_EQ(EB_PENDING, list.items[0].status);
    P_EQ(0, list.items[0].retry_count);
    ASSERT(list.items[0].last_error == NULL);
    P_EQ(T_EPOCH, list.items[0].created_at_ms);
    P_EQ(1, list.items[0].seq);
    P_EQ(0, list.items[0].dlq_at_ms);
    eb_event_list_free(&list);
    T_OK(eb_dlq_list(store, NULL, &list));
    P_EQ(0, list.total);
    eb_event_list_free(&list);
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, id.str, NULL)); /* not dead any more */
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* due at once, with all its attempts */
    P_EQ(5, calls);
    P_EQ(1, t_failures(store, id.str, 0, NULL, 0));
    P_EQ(EB_PROCESSING, t_status(store, id.str));
    for (i = 0; i < 3; i++) {
        t_advance(&now, 3600000);
        T_OK(eb_pump(bus, EB_NONE, NULL));
    }
    P_EQ(8, calls);
    P_EQ(4, t_failures(store, id.str, 0, NULL, 0));
    P_EQ(1, t_sql_int(path, "SELECT count(*) FROM dead_letters WHERE retried_at IS NOT NULL"
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
    eb_id kept = post(bus, "kept", "1"), waits = post(bus, "wait", "2"), done = post(bus, "ok", "3"),
          dead = post(bus, "bad", "4"), f = forged(&dead);
    char msg[200];
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, kept.str, NULL));
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, waits.str, NULL));
    T_IS(EB_ERR_STATE, eb_dlq_retry(store, done.str, NULL));
    ASSERT(eb_errmsg(msg, sizeof msg) > 0 && strstr(msg, done.str) != NULL);
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, "", NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, "no id", NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, "00000000-0000-4000-8000-000000000000", NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, f.str, NULL));
    T_IS(EB_ERR_NOT_FOUND, eb_dlq_retry(store, dead.str, "billing")); /* no such subscription */
    T_IS(EB_ERR_ARG, eb_dlq_retry(store, NULL, NULL));
    P_EQ(EB_DLQ, t_status(store, dead.str));
    T_OK(eb_dlq_retry(store, dead.str, NULL));
    eb_store_close(store);
    eb_destroy(bus);
    PASS();
}
