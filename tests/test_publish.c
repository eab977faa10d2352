/* eb_post, eb_publish, eb_send and eb_wait: what is stored, what is refused, what they return. */
#include "test.h"
#include <limits.h>

/* ---- ids and sequence numbers ---------------------------------------------------------------- */

TEST ids_are_unique_version_4_uuids(void)
{
    enum { N = 300 };
    static eb_id ids[N];
    eb_bus *bus = t_bus(t_path("ids"));
    int i, k;
    for (i = 0; i < N; i++) {
        memset(&ids[i], 'x', sizeof ids[i]);
        T_OK(eb_post(bus, "a", "1", &ids[i]));
        ASSERTm(ids[i].str, t_is_v4(ids[i].str));
    }
    for (i = 0; i < N; i++)
        for (k = 0; k < i; k++) ASSERT(strcmp(ids[i].str, ids[k].str) != 0);
    eb_destroy(bus);
    PASS();
}

TEST every_entry_point_fills_the_id_of_the_stored_event(void)
{
    eb_bus *bus = t_bus(t_path("fills"));
    eb_message m[3];
    eb_id a, b, c[3];
    int i;
    m[0] = t_message("s", "1");
    m[1] = t_message("s", "2");
    m[2] = t_message("s", "3");
    T_OK(eb_post(bus, "p", "1", &a));
    T_OK(eb_publish(bus, "q", "1", &b)); /* before eb_start: a post */
    T_OK(eb_send(bus, m, 3, c));
    ASSERT(t_is_v4(a.str) && t_is_v4(b.str));
    T_STATUS(EB_PENDING, bus, a);
    T_STATUS(EB_PENDING, bus, b);
    for (i = 0; i < 3; i++) {
        eb_event_list list;
        ASSERT(t_is_v4(c[i].str));
        T_OK(eb_get(eb_bus_store(bus), c[i].str, &list));
        ASSERT_STR_EQ(m[i].payload, list.items[0].payload); /* the ids are in order */
        eb_event_list_free(&list);
    }
    eb_destroy(bus);
    PASS();
}

TEST out_ids_may_be_null(void)
{
    const char *path = t_path("null-ids");
    eb_bus *bus = t_bus(path);
    eb_message m[2];
    t_seen s = {0};
    m[0] = t_message("a", "1");
    m[1] = t_message("a", "2");
    T_OK(eb_post(bus, "a", "1", NULL));
    T_OK(eb_publish(bus, "a", "1", NULL));
    T_OK(eb_send(bus, m, 2, NULL));
    ASSERT_EQ(4, t_stored(path));
    t_subscribe(bus, "a", t_watch, &s);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "a", "1", NULL));
    T_OK(t_settle(bus));
    ASSERT_EQ(5, s.calls);
    eb_destroy(bus);
    PASS();
}

/* The seq of the newest event in the log. */
static int64_t newest(eb_bus *bus) { return t_stats(bus).last_seq; }

static int64_t seq_of(eb_bus *bus, const char *id)
{
    eb_event_list list;
    int64_t seq;
    T_DO(eb_get(eb_bus_store(bus), id, &list));
    seq = list.items[0].seq;
    eb_event_list_free(&list);
    return seq;
}

TEST sequence_numbers_ascend_in_publish_order(void)
{
    eb_bus *bus = t_bus(t_path("seq"));
    eb_message m[10];
    eb_id ids[10];
    int64_t last = 0;
    int i, round;
    for (i = 0; i < 10; i++) m[i] = t_message("a", "1");
    for (round = 0; round < 5; round++) {
        T_OK(eb_post(bus, "a", "1", &ids[0]));
        ASSERT(seq_of(bus, ids[0].str) > last);
        last = seq_of(bus, ids[0].str);
        T_OK(eb_send(bus, m, 10, ids));
        for (i = 0; i < 10; i++) {
            ASSERT(seq_of(bus, ids[i].str) > last);
            last = seq_of(bus, ids[i].str);
        }
    }
    ASSERT_EQ(last, newest(bus));
    eb_destroy(bus);
    PASS();
}

TEST sequence_numbers_are_not_reused_after_a_purge_of_everything(void)
{
    const char *path = t_path("seq-purge");
    int64_t last = 0, n;
    int round;
    for (round = 0; round < 4; round++) {
        eb_id id;
        t_seen s = {0};
        eb_bus *bus = t_run(path, "*", t_watch, &s);
        s.reject = 1;
        T_IS(EB_DEAD, eb_publish(bus, "a", "1", &id));
        ASSERT(seq_of(bus, id.str) > last);
        last = seq_of(bus, id.str);
        T_OK(eb_dlq_purge(eb_bus_store(bus), 0, &n));
        ASSERT_EQ(1, n);
        ASSERT_EQ(0, t_stored(path));
        ASSERT_EQ(last, newest(bus)); /* "of the newest event ever stored" */
        T_IS(EB_DEAD, eb_publish(bus, "a", "1", &id)); /* in the same process */
        ASSERT(seq_of(bus, id.str) > last);
        last = seq_of(bus, id.str);
        T_OK(eb_dlq_purge(eb_bus_store(bus), 0, NULL));
        ASSERT_EQ(0, t_stored(path));
        eb_destroy(bus); /* and the next round in a fresh bus on the empty file */
    }
    PASS();
}

/* ---- all or none ----------------------------------------------------------------------------- */

TEST one_bad_message_in_a_batch_stores_none(void)
{
    const char *path = t_path("batch-bad");
    eb_options o = t_options(path);
    eb_bus *bus;
    int bad, where;
    o.max_payload_bytes = 100;
    bus = t_open(&o);
    T_OK(eb_post(bus, "before", "1", NULL));
    for (where = 0; where < 3; where++) {
        for (bad = 0; bad < 9; bad++) {
            static char big[200];
            eb_result want = EB_ERR_ARG;
            eb_message m[3];
            int i;
            for (i = 0; i < 3; i++) m[i] = t_message("a", "1");
            switch (bad) {
            case 0: m[where].type = "a b"; break;
            case 1: m[where].type = NULL; break;
            case 2: m[where].payload = "{"; want = EB_ERR_PAYLOAD; break;
            case 3: m[where].metadata = "[]"; want = EB_ERR_PAYLOAD; break;
            case 4:
                memset(big, '1', 101);
                m[where].payload = big;
                want = EB_ERR_TOO_BIG;
                break;
            case 5:
                m[where].delay_ms = 5;
                m[where].deliver_at_ms = T_EPOCH;
                break;
            case 6: m[where].delay_ms = -2; break;
            case 7: m[where].durability = 9; break;
            default: m[where].deliver_at_ms = -2; break;
            }
            T_IS(want, eb_send(bus, m, 3, NULL));
            ASSERT_EQ(1, t_stored(path));
        }
    }
    eb_destroy(bus);
    PASS();
}

TEST count_zero_is_ok_and_stores_nothing(void)
{
    const char *path = t_path("batch-0");
    eb_bus *bus = t_bus(path);
    eb_message m = t_message("a", "1");
    T_OK(eb_send(bus, NULL, 0, NULL));
    T_OK(eb_send(bus, &m, 0, NULL));
    ASSERT_EQ(0, t_stored(path));
    T_IS(EB_ERR_ARG, eb_send(bus, NULL, 1, NULL));
    eb_destroy(bus);
    PASS();
}

TEST large_batch_is_stored_whole_and_delivered_once_each(void)
{
    enum { N = 2500 };
    static eb_message m[N];
    static eb_id ids[N];
    const char *path = t_path("batch-large");
    eb_bus *bus = t_bus(path);
    t_seen s = {0};
    int i;
    for (i = 0; i < N; i++) m[i] = t_message("a", "1");
    T_OK(eb_send(bus, m, N, ids));
    ASSERT_EQ(N, t_stored(path));
    t_subscribe(bus, "a", t_watch, &s);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    ASSERT_EQ(N, s.calls);
    T_ROWS(N, path, "status = 'done'");
    T_OK(eb_wait(bus, ids[N - 1].str, 0));
    eb_destroy(bus);
    PASS();
}

/* ---- payload --------------------------------------------------------------------------------- */

TEST payload_null_is_the_value_null(void)
{
    const char *path = t_path("null");
    eb_message m = t_message("a", NULL);
    char text[20];
    t_seen s = {0};
    eb_bus *bus = t_run(path, "a", t_watch, &s);
    T_OK(eb_publish(bus, "a", NULL, NULL));
    ASSERT_STR_EQ("null", s.payload);
    ASSERT_EQ(4, s.payload_len);
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(t_settle(bus));
    ASSERT_EQ(2, s.calls);
    ASSERT_STR_EQ("null", s.payload);
    ASSERT_STR_EQ("null", t_sql_text(path, "SELECT payload FROM event_log", text, sizeof text));
    eb_destroy(bus);
    PASS();
}

TEST payload_is_kept_byte_for_byte(void)
{
    static const char *const texts[] = {
        "{\"b\":1,\"a\":2,\"a\":3}",
        " \t\r\n[ 1.50 , 1e2, -0, 0.10 ] \n",
        "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 \\u00e4 \\/ \\ud83d\"",
        "\"\\u0000\"",
        "12345678901234567890123456789012345678901234567890.10",
        "\"it's 'quoted' %s %d ?1 :a @b $c -- ; DROP\"",
    };
    const char *path = t_path("bytes");
    t_seen s = {0};
    eb_bus *bus = t_run(path, "a", t_watch, &s);
    size_t i;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        eb_event_list list;
        eb_id id;
        char sql[200], shell[600];
        T_OK(eb_publish(bus, "a", texts[i], &id));
        ASSERT_STR_EQ(texts[i], s.payload);
        ASSERT_EQ(strlen(texts[i]), s.payload_len);
        ASSERT(s.terminated);
        T_OK(eb_get(eb_bus_store(bus), id.str, &list));
        ASSERT_STR_EQ(texts[i], list.items[0].payload);
        ASSERT_EQ(strlen(texts[i]), list.items[0].payload_len);
        eb_event_list_free(&list);
        snprintf(sql, sizeof sql, "SELECT payload FROM events WHERE id = '%s'", id.str);
        ASSERT_STR_EQ(texts[i], t_sql_text(path, sql, shell, sizeof shell));
    }
    eb_destroy(bus);
    PASS();
}

TEST payload_len_limits_the_text(void)
{
    eb_message m = t_message("a", "{\"a\":1}garbage");
    t_seen s = {0};
    eb_bus *bus = t_run(t_path("len"), "a", t_watch, &s);
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, NULL)); /* 0 = strlen */
    m.payload_len = 7;
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(t_settle(bus));
    ASSERT_EQ(1, s.calls);
    ASSERT_STR_EQ("{\"a\":1}", s.payload);
    ASSERT_EQ(7, s.payload_len);
    ASSERT(s.terminated);
    m.payload_len = 6;
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, NULL));
    m.payload = "1";
    m.payload_len = 2; /* the zero byte is part of it now */
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, NULL));
    eb_destroy(bus);
    PASS();
}

TEST payload_that_is_not_json_is_refused(void)
{
    const char *path = t_path("not-json");
    eb_bus *bus = t_bus(path);
    eb_id id;
    T_IS(EB_ERR_PAYLOAD, eb_post(bus, "a", "", &id));
    T_IS(EB_ERR_PAYLOAD, eb_post(bus, "a", "hello", &id));
    T_IS(EB_ERR_PAYLOAD, eb_post(bus, "a", "{\"a\":1", &id));
    T_IS(EB_ERR_PAYLOAD, eb_publish(bus, "a", "\"\xFF\"", &id));
    T_SAYS("");
    T_OK(eb_start(bus));
    T_IS(EB_ERR_PAYLOAD, eb_publish(bus, "a", "nope", &id));
    ASSERT_EQ(0, t_stored(path));
    eb_destroy(bus);
    PASS();
}

TEST payload_over_the_limit_is_too_big(void)
{
    const char *path = t_path("big");
    eb_options o = t_options(path);
    eb_bus *bus;
    char text[102];
    eb_message m;
    o.max_payload_bytes = 100;
    bus = t_open(&o);
    memset(text, 'x', sizeof text);
    text[0] = text[99] = '"';
    text[100] = 0;
    T_OK(eb_post(bus, "a", text, NULL)); /* exactly 100 bytes */
    text[99] = 'x';
    text[100] = '"';
    text[101] = 0;
    T_IS(EB_ERR_TOO_BIG, eb_post(bus, "a", text, NULL));
    T_IS(EB_ERR_TOO_BIG, eb_publish(bus, "a", text, NULL));
    m = t_message("a", text);
    m.payload_len = 101;
    T_IS(EB_ERR_TOO_BIG, eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(1, t_stored(path));
    eb_destroy(bus);
    PASS();
}

TEST default_limit_is_one_mebibyte(void)
{
    size_t n = 1024 * 1024;
    char *text = (char *)malloc(n + 2);
    eb_bus *bus = t_bus(t_path("mebi"));
    eb_event_list list;
    eb_id id;
    T_MUST(text);
    memset(text, 'x', n + 1);
    text[0] = text[n - 1] = '"';
    text[n] = 0;
    T_OK(eb_post(bus, "a", text, &id));
    T_OK(eb_get(eb_bus_store(bus), id.str, &list));
    ASSERT_EQ(n, list.items[0].payload_len);
    ASSERT_EQ(0, memcmp(text, list.items[0].payload, n));
    eb_event_list_free(&list);
    text[n - 1] = 'x';
    text[n] = '"';
    text[n + 1] = 0;
    T_IS(EB_ERR_TOO_BIG, eb_post(bus, "a", text, &id));
    free(text);
    eb_destroy(bus);
    PASS();
}

TEST arguments_are_copied_before_the_call_returns(void)
{
    eb_bus *bus = t_bus(t_path("copied"));
    char type[8] = "copy.me", payload[] = "\"text\"", metadata[] = "{\"k\":\"v\"}", key[] = "key";
    eb_message m = t_message(type, payload);
    t_seen s = {0};
    m.metadata = metadata;
    m.idempotency_key = key;
    T_OK(eb_send(bus, &m, 1, NULL));
    memset(type, 'z', 7);
    memset(payload, 'z', 6);
    memset(metadata, 'z', 9);
    memset(key, 'z', 3);
    memset(&m, 0, sizeof m);
    t_subscribe(bus, "*", t_watch, &s);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    ASSERT_EQ(1, s.calls);
    ASSERT_STR_EQ("copy.me", s.type);
    ASSERT_STR_EQ("\"text\"", s.payload);
    ASSERT_STR_EQ("{\"k\":\"v\"}", s.metadata);
    eb_destroy(bus);
    PASS();
}

/* ---- metadata, type, producer ---------------------------------------------------------------- */

TEST metadata_is_an_object_of_strings_kept_as_given(void)
{
    const char *path = t_path("meta");
    eb_message m = t_message("a", "1");
    t_seen s = {0};
    eb_bus *bus = t_run(path, "a", t_watch, &s);
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(t_settle(bus));
    ASSERT_EQ(0, s.has_metadata);
    ASSERT_EQ(1, t_sql_int(path, "SELECT metadata IS NULL FROM events"));
    m.metadata = "{ \"trace\":\"\xC3\xA4\", \"n\" : \"1\" }";
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(t_settle(bus));
    ASSERT_STR_EQ(m.metadata, s.metadata);
    m.metadata = "{\"n\":1}";
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, NULL));
    m.metadata = "[\"n\"]";
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, NULL));
    m.metadata = "";
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(2, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST types_follow_the_rules(void)
{
    static const char *const good[] = {
        "a",  ".",   "..",        "order.shipped", "A-Z_0/9:;?[x]{y}!", "\xC3\xA4.\xC3\xB6",
        "\"", "'--", "%s%n%d",    "\xE6\x97\xA5\xE6\x9C\xAC", "\xF0\x9F\x98\x80", "~",
    };
    static const char *const bad[] = {
        "",
        " ",
        "a b",
        " a",
        "a ",
        "a\tb",
        "a\n",
        "\r",
        "\x01",
        "a\x1F",
        "a\x7F",
        "*",
        "a.*",
        "a*b",
        "\xFF",
        "a\xC3",
        "\xC0\xAF",
        "\xE0\x80\xAF",
        "\xED\xA0\x80",
        "\xF4\x90\x80\x80",
        "\xF0\x9F\x98",
        "\x80",
    };
    const char *path = t_path("types");
    eb_bus *bus = t_bus(path);
    size_t i, n = sizeof good / sizeof *good;
    char text[300];
    eb_message m;
    for (i = 0; i < n; i++) {
        eb_event_list list;
        eb_id id;
        T_OK(eb_post(bus, good[i], "1", &id));
        T_OK(eb_get(eb_bus_store(bus), id.str, &list));
        ASSERT_STR_EQ(good[i], list.items[0].type);
        eb_event_list_free(&list);
    }
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        T_IS(EB_ERR_ARG, eb_post(bus, bad[i], "1", NULL));
        T_SAYS("type"); /* which argument */
        T_IS(EB_ERR_ARG, eb_publish(bus, bad[i], "1", NULL));
        m = t_message(bad[i], "1");
        T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    }
    T_IS(EB_ERR_ARG, eb_post(bus, NULL, "1", NULL));
    ASSERT_EQ((int64_t)n, t_stored(path));

    memset(text, 'a', sizeof text);
    text[255] = 0;
    T_OK(eb_post(bus, text, "1", NULL));
    text[255] = 'a';
    text[256] = 0;
    T_IS(EB_ERR_ARG, eb_post(bus, text, "1", NULL));
    for (i = 0; i < 128; i++) memcpy(text + 2 * i, "\xC3\xA4", 2); /* bytes count, not characters */
    text[256] = 0;
    T_IS(EB_ERR_ARG, eb_post(bus, text, "1", NULL));
    text[254] = 'a';
    text[255] = 0;
    T_OK(eb_post(bus, text, "1", NULL));
    eb_destroy(bus);
    PASS();
}

TEST node_id_is_recorded_as_the_producer(void)
{
    eb_options o = t_options(t_path("producer"));
    eb_bus *bus;
    t_seen s = {0};
    o.node_id = "node-7";
    bus = t_run_with(&o, "a", t_watch, &s);
    T_OK(eb_publish(bus, "a", "1", NULL));
    ASSERT_STR_EQ("node-7", s.producer);
    eb_destroy(bus);
    PASS();
}

/* ---- limits on the queue --------------------------------------------------------------------- */

TEST queue_at_its_cap_refuses_and_writes_nothing(void)
{
    const char *path = t_path("cap");
    eb_options o = t_options(path);
    eb_message m[3];
    eb_bus *bus;
    t_seen s = {0};
    int i;
    o.max_pending = 3;
    bus = t_open(&o);
    for (i = 0; i < 3; i++) m[i] = t_message("a", "1");
    T_OK(eb_post(bus, "a", "1", NULL));
    T_IS(EB_ERR_FULL, eb_send(bus, m, 3, NULL)); /* only two more fit: none of the three */
    ASSERT_EQ(1, t_stored(path));
    T_OK(eb_send(bus, m, 2, NULL));
    T_IS(EB_ERR_FULL, eb_post(bus, "a", "1", NULL));
    T_IS(EB_ERR_FULL, eb_publish(bus, "a", "1", NULL));
    ASSERT_EQ(3, t_stored(path));
    eb_destroy(bus);

    bus = t_open(&o); /* what lies on disk counts */
    T_IS(EB_ERR_FULL, eb_post(bus, "a", "1", NULL));
    t_subscribe(bus, "*", t_watch, &s);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    ASSERT_EQ(3, s.calls);
    for (i = 0; i < 5; i++) T_OK(eb_publish(bus, "a", "1", NULL)); /* done ones do not count */
    s.reject = 1;
    for (i = 0; i < 5; i++) T_IS(EB_DEAD, eb_publish(bus, "a", "1", NULL)); /* nor dead ones */
    eb_destroy(bus);
    PASS();
}

/* ---- idempotency ----------------------------------------------------------------------------- */

TEST known_idempotency_key_gives_the_first_id_and_stores_nothing(void)
{
    const char *path = t_path("idem");
    eb_bus *bus = t_bus(path);
    eb_message m = t_message("a", "1"), other = t_message("b", "2");
    eb_id first, again;
    t_seen s = {0};
    m.idempotency_key = other.idempotency_key = "order-1";
    T_OK(eb_send(bus, &m, 1, &first));
    memset(&again, 0, sizeof again);
    T_IS(EB_DUPLICATE, eb_send(bus, &m, 1, &again));
    ASSERT_STR_EQ(first.str, again.str);
    memset(&again, 0, sizeof again);
    T_IS(EB_DUPLICATE, eb_send(bus, &other, 1, &again)); /* the key alone decides */
    ASSERT_STR_EQ(first.str, again.str);
    T_IS(EB_DUPLICATE, eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(1, t_stored(path));
    m.idempotency_key = "Order-1"; /* case counts */
    T_OK(eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(2, t_stored(path));
    t_subscribe(bus, "*", t_watch, &s);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    ASSERT_EQ(2, s.calls);
    memset(&again, 0, sizeof again);
    T_IS(EB_DUPLICATE, eb_send(bus, &other, 1, &again)); /* still known when done */
    ASSERT_STR_EQ(first.str, again.str);
    T_OK(t_settle(bus));
    ASSERT_EQ(2, s.calls);
    eb_destroy(bus);

    bus = t_bus(path);
    memset(&again, 0, sizeof again);
    T_IS(EB_DUPLICATE, eb_send(bus, &other, 1, &again)); /* and after reopening */
    ASSERT_STR_EQ(first.str, again.str);
    ASSERT_EQ(2, t_stored(path));
    eb_destroy(bus);
    PASS();
}

TEST batch_with_known_keys_stores_the_others_and_fills_all_ids(void)
{
    const char *path = t_path("idem-batch");
    eb_bus *bus = t_bus(path);
    eb_message m[5];
    eb_id first, ids[5];
    int i;
    for (i = 0; i < 5; i++) m[i] = t_message("a", "1");
    m[0].idempotency_key = "known";
    T_OK(eb_send(bus, m, 1, &first));
    m[0].idempotency_key = "new"; /* [new, known, new again, none, none] */
    m[1].idempotency_key = "known";
    m[2].idempotency_key = "new";
    memset(ids, 0, sizeof ids);
    T_IS(EB_DUPLICATE, eb_send(bus, m, 5, ids));
    for (i = 0; i < 5; i++) ASSERT(t_is_v4(ids[i].str));
    ASSERT_STR_EQ(first.str, ids[1].str);
    ASSERT_STR_EQ(ids[0].str, ids[2].str);
    ASSERT(strcmp(ids[0].str, ids[1].str) != 0);
    ASSERT(strcmp(ids[3].str, ids[4].str) != 0);
    ASSERT_EQ(4, t_stored(path)); /* the first, "new", and the two without a key */
    eb_destroy(bus);
    PASS();
}

TEST idempotency_key_is_free_again_when_its_event_is_purged(void)
{
    eb_message m = t_message("a", "1");
    eb_id first, second;
    t_seen s = {0};
    eb_bus *bus = t_run(t_path("idem-purge"), "a", t_watch, &s);
    s.reject = 1;
    m.idempotency_key = "k";
    T_OK(eb_send(bus, &m, 1, &first));
    T_IS(EB_DEAD, eb_wait(bus, first.str, 20000));
    T_IS(EB_DUPLICATE, eb_send(bus, &m, 1, &second)); /* dead is kept */
    ASSERT_STR_EQ(first.str, second.str);
    T_OK(eb_dlq_purge(eb_bus_store(bus), 0, NULL));
    T_OK(eb_send(bus, &m, 1, &second));
    ASSERT(strcmp(first.str, second.str) != 0);
    T_IS(EB_DEAD, eb_wait(bus, second.str, 20000));
    eb_destroy(bus);
    PASS();
}

/* ---- durability ------------------------------------------------------------------------------ */

TEST message_durability_is_full_or_normal(void)
{
    static const int levels[] = {EB_DURABLE_FULL, EB_DURABLE_NORMAL};
    size_t i;
    for (i = 0; i < 2; i++) {
        const char *path = t_path("durable");
        eb_options o = t_options(path);
        eb_message m = t_message("a", "1"), both[2];
        eb_bus *bus;
        o.durability = levels[i];
        bus = t_open(&o);
        T_OK(eb_send(bus, &m, 1, NULL));
        m.durability = EB_DURABLE_FULL;
        T_OK(eb_send(bus, &m, 1, NULL));
        m.durability = EB_DURABLE_NORMAL;
        T_OK(eb_send(bus, &m, 1, NULL));
        both[0] = both[1] = m;
        both[1].durability = EB_DURABLE_FULL;
        T_OK(eb_send(bus, both, 2, NULL));
        m.durability = EB_DURABLE_OFF; /* a property of a whole bus */
        T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
        m.durability = 4;
        T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
        m.durability = -1;
        T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
        ASSERT_EQ(5, t_stored(path));
        eb_destroy(bus);
    }
    PASS();
}

TEST message_cannot_ask_for_more_than_an_off_bus_gives(void)
{
    const char *path = t_path("off");
    eb_options o = t_options(path);
    eb_message m = t_message("a", "1");
    eb_bus *bus;
    o.durability = EB_DURABLE_OFF;
    bus = t_open(&o);
    T_OK(eb_send(bus, &m, 1, NULL));
    m.durability = EB_DURABLE_FULL;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    m.durability = EB_DURABLE_NORMAL;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(1, t_stored(path));
    eb_destroy(bus);
    PASS();
}

TEST posted_event_is_on_disk_when_the_call_returns(void)
{
    const char *path = t_path("on-disk");
    eb_bus *bus = t_bus(path);
    int i;
    for (i = 1; i <= 20; i++) {
        T_OK(eb_post(bus, "a", "1", NULL));
        ASSERT_EQ(i, t_stored(path)); /* seen by another connection */
    }
    eb_destroy(bus);
    PASS();
}

/* ---- eb_publish and eb_wait ------------------------------------------------------------------ */

TEST publish_before_start_is_post(void)
{
    eb_bus *bus = t_bus(t_path("before"));
    t_seen s = {0};
    eb_id id;
    t_subscribe(bus, "a", t_watch, &s);
    T_OK(eb_publish(bus, "a", "1", &id));
    ASSERT_EQ(0, s.calls);
    T_STATUS(EB_PENDING, bus, id);
    T_OK(eb_start(bus));
    T_OK(eb_wait(bus, id.str, 20000));
    ASSERT_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST publish_waits_until_done(void)
{
    t_seen s = {0};
    eb_bus *bus = t_run(t_path("waits"), "a", t_watch, &s);
    eb_id id;
    int i;
    for (i = 1; i <= 50; i++) {
        T_OK(eb_publish(bus, "a", "1", &id));
        ASSERT_EQ(i, s.calls);
        T_STATUS(EB_DONE, bus, id);
        T_OK(eb_wait(bus, id.str, 0));
    }
    eb_destroy(bus);
    PASS();
}

TEST publish_waits_through_retries(void)
{
    t_seen s = {0};
    eb_bus *bus = t_run(t_path("through"), "a", t_watch, &s);
    eb_id id;
    s.fail_first = 2;
    T_OK(eb_publish(bus, "a", "1", &id));
    ASSERT_EQ(3, s.calls);
    T_STATUS(EB_DONE, bus, id);
    eb_destroy(bus);
    PASS();
}

TEST publish_of_an_event_that_dies_is_dead(void)
{
    const char *path = t_path("dies");
    t_seen s = {0};
    eb_bus *bus = t_run(path, "a", t_watch, &s);
    eb_id id;
    s.fail_first = 100;
    T_IS(EB_DEAD, eb_publish(bus, "a", "1", &id));
    ASSERT_EQ(4, s.calls); /* max_retries 3 by default */
    T_STATUS(EB_DLQ, bus, id);
    T_IS(EB_DEAD, eb_wait(bus, id.str, 0));
    s.reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "a", "1", NULL));
    ASSERT_EQ(5, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST publish_that_nobody_handles_is_done(void)
{
    eb_bus *bus = t_bus(t_path("nobody"));
    eb_id id;
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "a", "1", &id));
    T_STATUS(EB_DONE, bus, id);
    eb_destroy(bus);
    PASS();
}

TEST publish_and_post_after_shutdown_are_refused(void)
{
    const char *path = t_path("after");
    eb_bus *bus = t_bus(path);
    eb_message m = t_message("a", "1");
    T_OK(eb_start(bus));
    T_OK(eb_shutdown(bus));
    T_IS(EB_ERR_SHUTDOWN, eb_publish(bus, "a", "1", NULL));
    T_IS(EB_ERR_SHUTDOWN, eb_post(bus, "a", "1", NULL));
    T_IS(EB_ERR_SHUTDOWN, eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(0, t_stored(path));
    eb_destroy(bus);
    PASS();
}

TEST waiting_for_what_is_no_event_is_not_found(void)
{
    static const char *const texts[] = {
        "",
        "x",
        "garbage",
        "00000000-0000-4000-8000-000000000000",
        "ffffffff-ffff-4fff-bfff-ffffffffffff",
        "00000000-0000-4000-8000-00000000000",
        "00000000-0000-4000-8000-0000000000000",
        "00000000x0000-4000-8000-000000000000",
        "gggggggg-gggg-4ggg-8ggg-gggggggggggg",
        "' OR 1=1 --",
    };
    eb_bus *bus = t_bus(t_path("unknown"));
    size_t i;
    int started;
    T_OK(eb_post(bus, "a", "1", NULL));
    for (started = 0; started < 2; started++) {
        for (i = 0; i < sizeof texts / sizeof *texts; i++) {
            T_IS(EB_ERR_NOT_FOUND, eb_wait(bus, texts[i], 0));
            T_IS(EB_ERR_NOT_FOUND, eb_wait(bus, texts[i], 20000)); /* at once */
        }
        if (!started) T_OK(eb_start(bus));
    }
    eb_destroy(bus);
    PASS();
}

/* One digit changed: the sequence number inside may still be right, the event is not. */
TEST forged_id_is_not_found(void)
{
    eb_bus *bus = t_bus(t_path("forged"));
    eb_id id, forged;
    int i;
    T_OK(eb_post(bus, "a", "1", &id));
    for (i = 0; i < 36; i++) {
        if (id.str[i] == '-' || i == 14 || i == 19) continue;
        forged = id;
        forged.str[i] = id.str[i] == '0' ? '1' : '0';
        T_IS(EB_ERR_NOT_FOUND, eb_wait(bus, forged.str, 0));
        T_STATUS(-1, bus, forged);
    }
    eb_destroy(bus);
    PASS();
}

TEST wait_with_timeout_zero_only_looks(void)
{
    eb_bus *bus = t_bus(t_path("wait-0"));
    eb_message m = t_message("later", "1");
    eb_id pending, delayed, done;
    m.delay_ms = 3600000;
    T_OK(eb_post(bus, "a", "1", &pending));
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, pending.str, 0)); /* not started: nobody works on it */
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, pending.str, 20));
    T_OK(eb_start(bus));
    T_OK(eb_send(bus, &m, 1, &delayed));
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, delayed.str, 0));
    T_OK(eb_publish(bus, "b", "1", &done));
    T_OK(eb_wait(bus, done.str, 0));
    eb_destroy(bus);
    PASS();
}

TEST negative_timeouts_are_refused(void)
{
    eb_bus *bus = t_bus(t_path("wait-neg"));
    eb_id id;
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "a", "1", &id));
    T_IS(EB_ERR_ARG, eb_wait(bus, id.str, -2));
    T_IS(EB_ERR_ARG, eb_wait(bus, id.str, INT64_MIN));
    T_OK(eb_wait(bus, id.str, EB_NONE));
    T_OK(eb_wait(bus, id.str, INT64_MAX));
    eb_destroy(bus);
    PASS();
}

TEST wait_sees_the_end_of_an_event_of_an_earlier_life(void)
{
    eb_options o = t_options(t_path("earlier"));
    eb_id done, dead, pending;
    t_seen s = {0};
    eb_bus *bus = t_run_with(&o, "*", t_watch, &s);
    T_OK(eb_publish(bus, "a", "1", &done));
    s.reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "a", "1", &dead));
    eb_destroy(bus);
    bus = t_open(&o);
    T_OK(eb_post(bus, "a", "1", &pending));
    T_OK(eb_wait(bus, done.str, 0));
    T_IS(EB_DEAD, eb_wait(bus, dead.str, 0));
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, pending.str, 0));
    eb_destroy(bus);
    PASS();
}

TEST memory_database_works(void)
{
    t_seen s = {0};
    eb_bus *bus = t_run(":memory:", "a", t_watch, &s);
    eb_id id;
    T_OK(eb_publish(bus, "a", "{\"n\":1}", &id));
    ASSERT_EQ(1, s.calls);
    ASSERT_STR_EQ("{\"n\":1}", s.payload);
    T_STATUS(EB_DONE, bus, id);
    s.reject = 1;
    T_IS(EB_DEAD, eb_publish(bus, "a", "2", &id));
    T_STATUS(EB_DLQ, bus, id);
    eb_destroy(bus);
    PASS();
}

static int limit_it(sqlite3 *db, const char **error, const void *api)
{
    (void)error, (void)api;
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 10000);
    return SQLITE_OK;
}

/* A SQLite that stores less than max_payload_bytes: what is too long for it, in one part or in all
** of an event, gets the documented result; nothing of it is stored, and the bus goes on. */
TEST what_is_too_big_for_sqlite_is_too_big(void)
{
    static char text[12000], metadata[12020];
    eb_options o = t_options(t_path("limit"));
    eb_message m = t_message("a", text);
    eb_bus *bus;
    memset(text, '1', sizeof text - 1);
    snprintf(metadata, sizeof metadata, "{\"k\":\"%s\"}", text);
    sqlite3_auto_extension((void (*)(void))limit_it);
    bus = t_open(&o);
    sqlite3_reset_auto_extension();
    T_IS(EB_ERR_TOO_BIG, eb_send(bus, &m, 1, NULL));
    m.payload = NULL;
    m.metadata = metadata;
    T_IS(EB_ERR_TOO_BIG, eb_send(bus, &m, 1, NULL));
    text[6000] = 0;
    snprintf(metadata, sizeof metadata, "{\"k\":\"%s\"}", text);
    T_OK(eb_send(bus, &m, 1, NULL));
    m.payload = text; /* each by itself is fine, both are not */
    T_IS(EB_ERR_TOO_BIG, eb_send(bus, &m, 1, NULL));
    m.metadata = NULL;
    T_OK(eb_send(bus, &m, 1, NULL));
    eb_destroy(bus);
    ASSERT_EQ(2, t_stored(o.path));
    ASSERT_EQ(1, t_sql_int(o.path, "SELECT count(metadata) FROM event_log"));
    PASS();
}

/* What may have failed in a file is looked at by opening it anew; a bus in memory would be empty
** then. It stays, and so does everything in it. */
TEST bus_in_memory_is_never_opened_anew(void)
{
    eb_bus *bus = t_bus(":memory:");
    eb_event_list list;
    T_OK(eb_post(bus, "a", "1", NULL));
    ebi_writer_enter(&bus->store);
    bus->store.trust.must_reopen = 1;
    ebi_writer_leave(&bus->store);
    T_OK(eb_post(bus, "a", "2", NULL));
    T_OK(eb_log_read(eb_bus_store(bus), NULL, &list));
    ASSERT_EQ(2, list.count);
    eb_event_list_free(&list);
    eb_destroy(bus);
    PASS();
}

/* ---- a file that is ruined while somebody waits ---------------------------------------------- */

static eb_result ruin(eb_delivery *d, void *user)
{
    (void)d;
    T_MUST(t_sql((const char *)user, "DROP TABLE finished", NULL, 0) == SQLITE_OK);
    return EB_OK; /* which cannot be written down any more */
}

/* A flipped byte can make a NULL of a text that never is one: the file is damaged, and that is what
** everybody is told, not that memory ran out. What can be read still runs. */
TEST event_without_a_type_is_a_damaged_file(void)
{
    const char *path = t_path("no-type");
    eb_bus *bus = t_bus(path);
    eb_event_list list;
    t_seen s = {0};
    int i;
    for (i = 0; i < 3; i++) T_OK(eb_post(bus, "a", NULL, NULL));
    ASSERT_EQ(SQLITE_OK, t_sql(path, "PRAGMA writable_schema=1;UPDATE sqlite_schema SET sql="
                                     "replace(sql,'type TEXT NOT NULL','type TEXT')"
                                     " WHERE name='event_log'", NULL, 0));
    ASSERT_EQ(SQLITE_OK, t_sql(path, "UPDATE event_log SET type=NULL WHERE seq=2", NULL, 0));
    T_IS(EB_ERR_CORRUPT, eb_log_read(eb_bus_store(bus), NULL, &list));
    eb_event_list_free(&list);
    t_subscribe(bus, "a", t_watch, &s);
    T_OK(eb_start(bus));
    T_IS(EB_ERR_CORRUPT, eb_drain(bus, 20000));
    eb_destroy(bus);
    ASSERT_EQ(1, s.calls);
    PASS();
}

/* The same for one in the schema: a statement that cannot be prepared. */
TEST log_without_a_column_is_a_damaged_file(void)
{
    const char *path = t_path("no-column");
    eb_bus *bus = t_bus(path);
    eb_event_list list;
    ASSERT_EQ(SQLITE_OK, t_sql(path, "PRAGMA writable_schema=1;UPDATE sqlite_schema SET sql="
                                     "replace(sql,'metadata','metadatb') WHERE name='event_log'",
                               NULL, 0));
    T_IS(EB_ERR_CORRUPT, eb_log_read(eb_bus_store(bus), NULL, &list));
    eb_event_list_free(&list);
    eb_destroy(bus);
    PASS();
}

enum { BY_PUBLISH, BY_WAIT, BY_DRAIN };

TEST waiting_ends_when_the_file_is_ruined(int how)
{
    char path[512];
    eb_options o;
    eb_result rc;
    eb_bus *bus;
    eb_id id;
    t_copy(path, sizeof path, t_path("ruined"));
    o = t_options(path);
    o.shutdown_timeout_ms = 100;
    bus = t_run_with(&o, "a", ruin, path);
    if (how == BY_PUBLISH) {
        rc = eb_publish(bus, "a", NULL, &id);
        ASSERT(t_is_v4(id.str)); /* it was stored */
    } else {
        T_OK(eb_post(bus, "a", NULL, &id));
        rc = how == BY_WAIT ? eb_wait(bus, id.str, 20000) : eb_drain(bus, 20000);
    }
    ASSERT(rc == EB_ERR_CORRUPT || rc == EB_ERR_SCHEMA);
    eb_destroy(bus);
    ASSERT_EQ(1, t_stored(path));
    PASS();
}

SUITE(publish)
{
    RUN_TEST(ids_are_unique_version_4_uuids);
    RUN_TEST(every_entry_point_fills_the_id_of_the_stored_event);
    RUN_TEST(out_ids_may_be_null);
    RUN_TEST(sequence_numbers_ascend_in_publish_order);
    RUN_TEST(sequence_numbers_are_not_reused_after_a_purge_of_everything);
    RUN_TEST(one_bad_message_in_a_batch_stores_none);
    RUN_TEST(count_zero_is_ok_and_stores_nothing);
    RUN_TEST(large_batch_is_stored_whole_and_delivered_once_each);
    RUN_TEST(payload_null_is_the_value_null);
    RUN_TEST(payload_is_kept_byte_for_byte);
    RUN_TEST(payload_len_limits_the_text);
    RUN_TEST(payload_that_is_not_json_is_refused);
    RUN_TEST(payload_over_the_limit_is_too_big);
    RUN_TEST(default_limit_is_one_mebibyte);
    RUN_TEST(arguments_are_copied_before_the_call_returns);
    RUN_TEST(metadata_is_an_object_of_strings_kept_as_given);
    RUN_TEST(types_follow_the_rules);
    RUN_TEST(node_id_is_recorded_as_the_producer);
    RUN_TEST(queue_at_its_cap_refuses_and_writes_nothing);
    RUN_TEST(known_idempotency_key_gives_the_first_id_and_stores_nothing);
    RUN_TEST(batch_with_known_keys_stores_the_others_and_fills_all_ids);
    RUN_TEST(idempotency_key_is_free_again_when_its_event_is_purged);
    RUN_TEST(message_durability_is_full_or_normal);
    RUN_TEST(message_cannot_ask_for_more_than_an_off_bus_gives);
    RUN_TEST(posted_event_is_on_disk_when_the_call_returns);
    RUN_TEST(publish_before_start_is_post);
    RUN_TEST(publish_waits_until_done);
    RUN_TEST(publish_waits_through_retries);
    RUN_TEST(publish_of_an_event_that_dies_is_dead);
    RUN_TEST(publish_that_nobody_handles_is_done);
    RUN_TEST(publish_and_post_after_shutdown_are_refused);
    RUN_TEST(waiting_for_what_is_no_event_is_not_found);
    RUN_TEST(forged_id_is_not_found);
    RUN_TEST(wait_with_timeout_zero_only_looks);
    RUN_TEST(negative_timeouts_are_refused);
    RUN_TEST(wait_sees_the_end_of_an_event_of_an_earlier_life);
    RUN_TEST(memory_database_works);
    RUN_TEST(what_is_too_big_for_sqlite_is_too_big);
    RUN_TEST(bus_in_memory_is_never_opened_anew);
    RUN_TEST(event_without_a_type_is_a_damaged_file);
    RUN_TEST(log_without_a_column_is_a_damaged_file);
    greatest_set_test_suffix("publish");
    RUN_TEST1(waiting_ends_when_the_file_is_ruined, BY_PUBLISH);
    greatest_set_test_suffix("wait");
    RUN_TEST1(waiting_ends_when_the_file_is_ruined, BY_WAIT);
    greatest_set_test_suffix("drain");
    RUN_TEST1(waiting_ends_when_the_file_is_ruined, BY_DRAIN);
}

/* ---- on the injected clock ------------------------------------------------------------------- */

TEST delayed_event_runs_at_its_millisecond(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("delay"), &t, &s);
    eb_message m = t_message("a", "1");
    eb_id id;
    m.delay_ms = 500;
    T_OK(eb_send(bus, &m, 1, &id));
    T_PUMP(bus, EB_NONE, 500);
    ASSERT_EQ(0, s.calls);
    T_STATUS(EB_PENDING, bus, id);
    t_advance(&t, 499);
    T_PUMP(bus, EB_NONE, 1);
    ASSERT_EQ(0, s.calls);
    t_advance(&t, 1);
    T_PUMP(bus, EB_NONE, -1);
    ASSERT_EQ(1, s.calls);
    T_STATUS(EB_DONE, bus, id);
    eb_destroy(bus);
    PASS();
}

TEST deliver_at_is_a_wall_time(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("deliver-at"), &t, &s);
    eb_message m = t_message("a", "1");
    m.deliver_at_ms = T_EPOCH + 60000;
    T_OK(eb_send(bus, &m, 1, NULL));
    t_advance(&t, 59999);
    T_PUMP(bus, EB_NONE, 1);
    ASSERT_EQ(0, s.calls);
    t_advance(&t, 1);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(1, s.calls);
    m.deliver_at_ms = 1; /* long ago: now */
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(2, s.calls);
    m.deliver_at_ms = t.now_ms;
    T_OK(eb_send(bus, &m, 1, NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(3, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST delay_and_deliver_at_together_are_refused(void)
{
    t_time t;
    t_seen s;
    const char *path = t_path("delay-both");
    eb_bus *bus = t_run_timed(path, &t, &s);
    eb_message m = t_message("a", "1");
    m.delay_ms = 10;
    m.deliver_at_ms = T_EPOCH + 10;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    m.delay_ms = -2;
    m.deliver_at_ms = 0;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    m.delay_ms = INT64_MIN;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    m.delay_ms = 0;
    m.deliver_at_ms = -2;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    m.deliver_at_ms = INT64_MIN;
    T_IS(EB_ERR_ARG, eb_send(bus, &m, 1, NULL));
    ASSERT_EQ(0, t_stored(path));
    eb_destroy(bus);
    PASS();
}

/* Refused or never: but not at once through an overflow. */
TEST enormous_delay_does_not_wrap_around(void)
{
    static const int64_t delays[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX - T_EPOCH,
                                     INT64_MAX - T_EPOCH + 1, INT64_MAX / 2};
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("delay-huge"), &t, &s);
    size_t i;
    for (i = 0; i < sizeof delays / sizeof *delays; i++) {
        eb_message m = t_message("a", "1");
        eb_result rc;
        int64_t next;
        m.delay_ms = delays[i];
        rc = eb_send(bus, &m, 1, NULL);
        ASSERT(rc == EB_OK || rc == EB_ERR_ARG);
        m.delay_ms = 0;
        m.deliver_at_ms = delays[i];
        rc = eb_send(bus, &m, 1, NULL);
        ASSERT(rc == EB_OK || rc == EB_ERR_ARG);
        T_OK(eb_pump(bus, EB_NONE, &next));
        ASSERT_EQ(0, s.calls);
        ASSERT(next == -1 || next > 1000000);
    }
    eb_destroy(bus);
    PASS();
}

TEST delayed_event_overtaken_by_later_ones_runs_in_due_order(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("delay-order"), &t, &s);
    eb_message m[4];
    static const int64_t delay[4] = {300, 100, 0, 200};
    static const char *const order[4] = {"2", "1", "3", "0"};
    int i;
    static const char *const text[4] = {"0", "1", "2", "3"};
    for (i = 0; i < 4; i++) {
        m[i] = t_message("a", text[i]);
        m[i].delay_ms = delay[i];
    }
    T_OK(eb_send(bus, m, 4, NULL));
    for (i = 0; i < 4; i++) {
        T_PUMP(bus, EB_NONE, i < 3 ? 100 : -1);
        ASSERT_EQ(i + 1, s.calls);
        ASSERT_STR_EQ(order[i], s.payload);
        t_advance(&t, 100);
    }
    eb_destroy(bus);
    PASS();
}

TEST delay_survives_a_restart(void)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("delay-restart"), &t);
    eb_bus *bus = t_run_with(&o, "*", t_watch, &s);
    eb_message m = t_message("a", "1");
    m.delay_ms = 500;
    T_OK(eb_send(bus, &m, 1, NULL));
    t_advance(&t, 200);
    eb_destroy(bus);
    t.mono_ms = 5; /* monotonic time begins anew */
    bus = t_run_with(&o, "*", t_watch, &s);
    T_PUMP(bus, EB_NONE, 300);
    ASSERT_EQ(0, s.calls);
    t_advance(&t, 300);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(1, s.calls);
    eb_destroy(bus);
    PASS();
}

TEST publish_sleeps_through_retries_on_the_injected_clock(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("sleeps"), &t, &s);
    s.fail_first = 2;
    T_OK(eb_publish(bus, "a", "1", NULL));
    ASSERT_EQ(3, s.calls);
    ASSERT_EQ(T_EPOCH, s.at_ms[0]);
    ASSERT_EQ(T_EPOCH + 1000, s.at_ms[1]);
    ASSERT_EQ(T_EPOCH + 3000, s.at_ms[2]);
    ASSERT_EQ(3000, t.slept_ms);
    eb_destroy(bus);
    PASS();
}

TEST wait_runs_other_due_events_too_and_stops_in_time(void)
{
    t_time t;
    t_seen s;
    eb_bus *bus = t_run_timed(t_path("wait-clock"), &t, &s);
    eb_message m = t_message("a", "1");
    eb_id id;
    m.delay_ms = 1000;
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(eb_post(bus, "b", "1", NULL));
    T_IS(EB_ERR_TIMEOUT, eb_wait(bus, id.str, 400));
    ASSERT_EQ(1, s.calls); /* b */
    ASSERT_EQ(T_EPOCH + 400, t.now_ms);
    T_OK(eb_wait(bus, id.str, 600));
    ASSERT_EQ(2, s.calls);
    ASSERT_EQ(T_EPOCH + 1000, s.at_ms[1]);
    m.delay_ms = 1000;
    T_OK(eb_send(bus, &m, 1, &id));
    T_OK(eb_wait(bus, id.str, EB_NONE));
    ASSERT_EQ(T_EPOCH + 2000, t.now_ms);
    eb_destroy(bus);
    PASS();
}

TEST retrying_events_count_against_the_cap(void)
{
    t_time t;
    t_seen s = {0};
    eb_options o = t_timed(t_path("cap-retry"), &t);
    eb_bus *bus;
    eb_message m = t_message("later", "1");
    s.fail_first = 1;
    o.max_pending = 2;
    bus = t_run_with(&o, "*", t_watch, &s);
    T_OK(eb_post(bus, "a", "1", NULL));
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* failed, waits for its retry */
    m.delay_ms = 5000;
    T_OK(eb_send(bus, &m, 1, NULL));
    T_IS(EB_ERR_FULL, eb_post(bus, "a", "1", NULL));
    t_advance(&t, 1000);
    T_OK(eb_pump(bus, EB_NONE, NULL)); /* the first is done */
    ASSERT_EQ(2, s.calls);
    T_OK(eb_post(bus, "a", "1", NULL));
    T_IS(EB_ERR_FULL, eb_post(bus, "a", "1", NULL));
    eb_destroy(bus);
    PASS();
}

SUITE(publish_clock)
{
    RUN_TEST(delayed_event_runs_at_its_millisecond);
    RUN_TEST(deliver_at_is_a_wall_time);
    RUN_TEST(delay_and_deliver_at_together_are_refused);
    RUN_TEST(enormous_delay_does_not_wrap_around);
    RUN_TEST(delayed_event_overtaken_by_later_ones_runs_in_due_order);
    RUN_TEST(delay_survives_a_restart);
    RUN_TEST(publish_sleeps_through_retries_on_the_injected_clock);
    RUN_TEST(wait_runs_other_due_events_too_and_stops_in_time);
    RUN_TEST(retrying_events_count_against_the_cap);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    T_RUN_BOTH(publish);
    t_pump_mode = 1;
    RUN_SUITE(publish_clock);
    GREATEST_MAIN_END();
}
