/* test_hostile.c - a file that somebody damaged, or prepared for us: values in rows that cannot be
** ours, triggers, views, and names of ours that are something else.
**
** Nothing in a file may end the process, hang it, or make a call say EB_OK about something that did
** not happen. What is dangerous runs in a child that dies when it takes too long.
**
** Decided here, where the contract is silent:
**   - A value that cannot be ours is EB_ERR_CORRUPT from eb_open, eb_start, or eb_drain and
**     eb_publish: wherever it is loaded first. That call's message or an entry of the log names the
**     table and the row. Events before the row may still be handled, the row itself is not.
**   - 2^62 is no sequence number: an id has no room for it.
**   - An inspector may show a damaged row or be EB_ERR_CORRUPT.
*/
#include "proc.h"

enum { HURT = 4701, PATIENCE_S = 5 };

/* ---- the children ---------------------------------------------------------------------------- */

static t_log said;

/* 1 if text has this number, and not as a part of a longer one. */
static int has_number(const char *text, const char *number)
{
    size_t n = strlen(number);
    const char *at = text;
    while ((at = strstr(at, number)) != NULL) {
        int before = at > text && at[-1] >= '0' && at[-1] <= '9';
        int after = at[n] >= '0' && at[n] <= '9';
        if (!before && !after) return 1;
        at++;
    }
    return 0;
}

/* 1 if text names the table (or one of two: "a|b") and its row: a number, or the key in meta. */
static int names(const char *text, const char *table, const char *row)
{
    char one[40], *other;
    t_copy(one, sizeof one, table);
    other = strchr(one, '|');
    if (other) *other++ = 0;
    if (!strstr(text, one) && !(other && strstr(text, other))) return 0;
    return row[0] >= '0' && row[0] <= '9' ? has_number(text, row) : strstr(text, row) != NULL;
}

/* A result; remembers whether its message names the place. */
static eb_result look(eb_result rc, const char *table, const char *row, int *named)
{
    char msg[600];
    if (rc >= 0) return rc;
    eb_errmsg(msg, sizeof msg);
    if (names(msg, table, row)) *named = 1;
    return rc;
}

static int log_names(const char *table, const char *row)
{
    char text[1500];
    int i, hits = 0;
    sqlite3_mutex_enter(said.mutex);
    for (i = 0; i < said.count && i < 256; i++) {
        snprintf(text, sizeof text, "%s: %s", said.items[i].message, said.items[i].error);
        hits += names(text, table, row);
    }
    sqlite3_mutex_leave(said.mutex);
    return hits > 0;
}

static int hurt_calls;

static eb_result fails(eb_delivery *d, void *user)
{
    (void)user;
    if (strcmp(d->event->type, "hurt") == 0) p_add(&hurt_calls, 1);
    return eb_fail(d, "no");
}

static const int64_t schedule[] = {1, 1, 1};

static eb_options use_options(const char *path, int pump, t_time *t)
{
    eb_options o = t_options(path);
    o.durability = EB_DURABLE_OFF;
    o.workers = pump ? EB_NONE : 1;
    if (pump) o.clock = t_clock(t);
    o.retry.schedule_ms = schedule;
    o.retry.schedule_count = 3;
    o.shutdown_timeout_ms = 2000;
    o.idle_poll_ms = 10;
    o.logger = t_logger(&said);
    return o;
}

/* use path driver table row: everything that loads rows, with one line of what came of it. Twice:
** what ends the process must not do so at every start again. */
static int child_use(char **arg)
{
    int round, pump = strcmp(arg[1], "pump") == 0;
    const char *table = arg[2], *row = arg[3];
    alarm(PATIENCE_S);
    for (round = 0; round < 2; round++) {
        eb_result open, start = EB_ERR_STATE, post, sent, drain = EB_ERR_STATE, publish, stats;
        eb_result log, dlq;
        eb_message m[3];
        t_time t;
        eb_options o = use_options(arg[0], pump, &t);
        eb_event_list list;
        eb_stats figures;
        eb_bus *bus = NULL;
        int named = 0;
        memset(m, 0, sizeof m);
        m[0].type = m[1].type = m[2].type = "y";
        p_set(&hurt_calls, 0);
        open = look(eb_open(&bus, &o), table, row, &named);
        post = sent = publish = stats = log = dlq = EB_ERR_STATE;
        if (open == EB_OK) {
            t_subscribe(bus, "*", fails, NULL);
            start = look(eb_start(bus), table, row, &named);
            drain = look(eb_drain(bus, pump ? 5000 : 200), table, row, &named);
            post = look(eb_post(bus, "x", NULL, NULL), table, row, &named);
            sent = look(eb_send(bus, m, 3, NULL), table, row, &named);
            publish = look(eb_publish(bus, "z", NULL, NULL), table, row, &named);
            stats = look(eb_stats_get(eb_bus_store(bus), &figures), table, row, &named);
            log = look(eb_log_read(eb_bus_store(bus), NULL, &list), table, row, &named);
            eb_event_list_free(&list);
            dlq = look(eb_dlq_list(eb_bus_store(bus), NULL, &list), table, row, &named);
            eb_event_list_free(&list);
            look(eb_dlq_retry_all(eb_bus_store(bus), NULL, NULL), table, row, &named);
            look(eb_dlq_purge(eb_bus_store(bus), 1, NULL), table, row, &named);
            eb_destroy(bus);
        }
        if (log_names(table, row)) named = 1;
        p_report("%d %d %d %d %d %d %d %d %d %d %d", (int)open, (int)start, (int)drain, (int)post,
                 (int)sent, (int)publish, (int)stats, (int)log, (int)dlq, named,
                 p_get(&hurt_calls));
    }
    return 0;
}

/* idle path: a started bus with worker threads for a quarter of a second: how much it did. */
static int child_idle(char **arg)
{
    eb_options o = use_options(arg[0], 0, NULL);
    eb_bus *bus = t_open(&o);
    clock_t begin;
    eb_result rc;
    alarm(PATIENCE_S);
    t_subscribe(bus, "*", fails, NULL);
    rc = eb_start(bus);
    begin = clock();
    p_nap(250);
    p_report("%d %d %d", (int)rc, (int)((clock() - begin) * 1000 / CLOCKS_PER_SEC),
             t_log_count(&said));
    eb_destroy(bus);
    return 0;
}

static int bad_calls;

static eb_result dies_at_second(eb_delivery *d, void *user)
{
    (void)user;
    p_add(&bad_calls, 1);
    return d->attempt == 1 ? eb_fail(d, "first") : eb_reject(d, "second");
}

/* live path driver: a whole life that touches every table, told step by step. */
static int child_live(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_message m[3];
    eb_stats stats = {0};
    int64_t count = 0;
    eb_id good, bad;
    eb_bus *bus = NULL;
    alarm(PATIENCE_S);
    memset(m, 0, sizeof m);
    m[0].type = m[1].type = m[2].type = "good";
    m[0].ordering_key = m[1].ordering_key = "k";
    m[2].idempotency_key = "i";
    o.durability = EB_DURABLE_OFF;
    o.workers = strcmp(arg[1], "pump") == 0 ? EB_NONE : 2;
    p_report("open %d", (int)eb_open(&bus, &o));
    p_report("subscribe %d", (int)eb_subscribe(bus, "good", t_succeeds, NULL, NULL, &good));
    p_report("subscribe %d", (int)eb_subscribe(bus, "bad", dies_at_second, NULL, NULL, &bad));
    p_report("start %d", (int)eb_start(bus));
    p_report("post %d", (int)eb_post(bus, "good", NULL, NULL));
    p_report("send %d", (int)eb_send(bus, m, 3, NULL));
    p_report("drain %d", (int)eb_drain(bus, 3000));
    p_report("known %d", (int)eb_send(bus, &m[2], 1, NULL));
    p_report("dies %d", (int)eb_publish(bus, "bad", NULL, NULL));
    p_report("retry %d", (int)eb_dlq_retry_all(eb_bus_store(bus), NULL, &count));
    p_report("retried %d", (int)count);
    p_report("drain %d", (int)eb_drain(bus, 3000));
    p_report("unsubscribe %d", (int)eb_unsubscribe(bus, good.str));
    p_report("stats %d", (int)eb_stats_get(eb_bus_store(bus), &stats));
    p_report("%d live, %d done, %d dead, %d calls", (int)(stats.pending + stats.processing),
             (int)stats.done, (int)stats.dlq, p_get(&bad_calls));
    eb_destroy(bus);
    return 0;
}
/* What it says when all is well. */
static const char *const lively[] = {"open 0",    "subscribe 0", "subscribe 0", "start 0",
                                     "post 0",    "send 0",      "drain 0",     "known 1",
                                     "dies 2",    "retry 0",     "retried 1",   "drain 0",
                                     "unsubscribe 0", "stats 0",
                                     "0 live, 4 done, 1 dead, 4 calls"};

/* open path: both ways. */
static int child_open(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    alarm(PATIENCE_S);
    p_report("bus %d", (int)eb_open(&bus, &o));
    eb_destroy(bus);
    p_report("store %d", (int)eb_store_open(&store, &o));
    eb_store_close(store);
    return 0;
}

/* swapped path driver: opens all there is, lets the parent swap a table, and then uses it. */
static int child_swapped(char **arg)
{
    eb_options o = t_options(arg[0]);
    eb_event_list list;
    eb_stats stats;
    eb_store *store = NULL;
    char line[40];
    eb_bus *bus;
    o.durability = EB_DURABLE_OFF;
    o.workers = strcmp(arg[1], "pump") == 0 ? EB_NONE : 1;
    o.busy_timeout_ms = 500;
    o.shutdown_timeout_ms = 500;
    bus = t_open(&o);
    T_DO(eb_store_open(&store, &o));
    t_subscribe(bus, "good", t_succeeds, NULL);
    T_DO(eb_start(bus));
    T_DO(eb_publish(bus, "good", NULL, NULL));
    p_report("ready");
    if (!p_order(line, sizeof line)) return 1;
    alarm(PATIENCE_S);
    p_report("post %d", eb_post(bus, "good", NULL, NULL) < 0);
    eb_drain(bus, 100);
    p_report("log %d", eb_log_read(store, NULL, &list) < 0);
    eb_event_list_free(&list);
    p_report("stats %d", eb_stats_get(store, &stats) < 0);
    eb_store_close(store);
    eb_destroy(bus);
    p_report("end");
    return 0;
}

static int child_main(const char *role, char **arg)
{
    p_child_init();
    if (strcmp(role, "use") == 0) return child_use(arg);
    if (strcmp(role, "idle") == 0) return child_idle(arg);
    if (strcmp(role, "live") == 0) return child_live(arg);
    if (strcmp(role, "open") == 0) return child_open(arg);
    if (strcmp(role, "swapped") == 0) return child_swapped(arg);
    return 8;
}

/* ---- values in rows -------------------------------------------------------------------------- */

/* Which calls have to be EB_ERR_CORRUPT. None: all may work, or say so. SPINS: one of those that
** the test about spinning takes. */
enum { ANY = 0, DISPATCH = 1, POST = 2, SEND = 4, STATS = 8, SPINS = 16, LOG = 32, DEATHS = 64 };

typedef struct damage {
    const char *name, *sql, *table, *row;
    unsigned must;
} damage;

/* Event 4701 as it waits on disk, as it is due, and as a crash leaves it. */
#define WAITS(set) "UPDATE deliveries SET " set " WHERE seq=4701"
#define IS_DUE(set) "UPDATE deliveries SET status='processing',due_ms=1," set " WHERE seq=4701"
#define STUCK(set)                                                                                 \
    "UPDATE meta SET value=9000 WHERE key='claimed_to';"                                           \
    "UPDATE deliveries SET status='processing',token=7,attempts=1,max_attempts=4,due_ms=NULL," set \
    " WHERE seq=4701"
#define SAID(set) "UPDATE event_log SET " set " WHERE seq=4701"
#define META(key, value) "UPDATE meta SET value=" value " WHERE key='" key "'"
#define MOVED_TO(seq)                                                                              \
    "UPDATE event_log SET seq=" seq " WHERE seq=4701;"                                             \
    "UPDATE deliveries SET seq=" seq " WHERE seq=4701"
#define DONE_AS(seq)                                                                               \
    "UPDATE event_log SET seq=" seq " WHERE seq=4701; DELETE FROM deliveries WHERE seq=4701;"      \
    "INSERT INTO finished VALUES(" seq ",1,NULL,'2026-11-18T05:32:10.123Z')"
#define DEAD(set)                                                                                  \
    "INSERT INTO dead_letters(subscription,seq,id,type,payload,created_at,failed,died_at)"         \
    " SELECT '',seq,id,type,payload,created_at,1,created_at FROM event_log WHERE seq=4701;"        \
    "DELETE FROM deliveries WHERE seq=4701; UPDATE dead_letters SET " set
#define KEYED(damage)                                                                              \
    SAID("ordering_key='k'") ";" WAITS("ordering_key='k'") ";" damage
#define LONG_TEXT "substr(hex(zeroblob(200)),1,400)"

#define LEAST "(-9223372036854775807-1)"
#define MOST "9223372036854775807"

static const damage damages[] = {
    /* the figures that the issue was seen with */
    {"failed_far_below_zero", WAITS("failed=-100000"), "deliveries", "4701", DISPATCH | SPINS},
    {"failed_far_below_zero_due", IS_DUE("failed=-100000"), "deliveries", "4701", DISPATCH},
    {"failed_far_below_zero_stuck", STUCK("failed=-100000"), "deliveries", "4701", DISPATCH},
    {"failed_of_32_bits", WAITS("failed=2147483647"), "deliveries", "4701", DISPATCH},
    {"failed_of_32_bits_due", IS_DUE("failed=2147483647"), "deliveries", "4701", DISPATCH},
    {"failed_of_32_bits_stuck", STUCK("failed=2147483647"), "deliveries", "4701", DISPATCH},
    {"failed_of_64_bits", WAITS("failed=" MOST), "deliveries", "4701", DISPATCH},
    {"failed_of_64_bits_due", IS_DUE("failed=" MOST), "deliveries", "4701", DISPATCH | SPINS},
    {"failed_is_minus_one", IS_DUE("failed=-1"), "deliveries", "4701", DISPATCH},
    {"type_of_256_bytes", SAID("type=substr(" LONG_TEXT ",1,256)"), "event_log", "4701", DISPATCH},
    {"type_of_400_bytes", SAID("type=" LONG_TEXT), "event_log", "4701", DISPATCH | SPINS},
    {"type_of_400_bytes_due", SAID("type=" LONG_TEXT) ";" IS_DUE("failed=0"), "event_log", "4701",
     DISPATCH},
    {"type_of_400_bytes_stuck", SAID("type=" LONG_TEXT) ";" STUCK("failed=0"), "event_log", "4701",
     DISPATCH},
    {"seq_floor_is_the_largest", META("seq_floor", MOST), "meta", "seq_floor", POST | SEND},
    {"seq_floor_is_one_less", META("seq_floor", "9223372036854775806"), "meta", "seq_floor",
     POST | SEND},
    {"seq_floor_is_two_less", META("seq_floor", "9223372036854775805"), "meta", "seq_floor", SEND},
    {"seq_floor_of_63_bits", META("seq_floor", "4611686018427387904"), "meta", "seq_floor",
     POST | SEND},
    {"seq_is_the_largest", MOVED_TO(MOST), "event_log|deliveries", MOST, DISPATCH | POST | SEND},
    {"seq_is_one_less", MOVED_TO("9223372036854775806"), "event_log|deliveries",
     "9223372036854775806", DISPATCH | POST | SEND},
    {"seq_of_63_bits", MOVED_TO("4611686018427387904"), "event_log|deliveries",
     "4611686018427387904", DISPATCH | POST | SEND},
    {"seq_is_the_largest_done", DONE_AS(MOST), "event_log", MOST, POST | SEND},
    {"seq_below_zero_due", MOVED_TO("-5") "; UPDATE deliveries SET due_ms=1 WHERE seq=-5",
     "event_log|deliveries", "5", DISPATCH | SPINS},
    {"removed_is_the_least", META("removed", LEAST), "meta", "removed", STATS},
    {"removed_is_the_largest", META("removed", MOST), "meta", "removed", STATS},
    {"removed_is_below_zero", META("removed", "-1"), "meta", "removed", STATS},
    {"due_ms_is_the_least", WAITS("due_ms=" LEAST), "deliveries", "4701", DISPATCH | SPINS},
    {"due_ms_is_below_zero", WAITS("due_ms=-1"), "deliveries", "4701", DISPATCH},
    /* others that must do no harm */
    {"due_ms_is_the_largest", WAITS("due_ms=" MOST), "deliveries", "4701", ANY},
    {"due_ms_is_text", WAITS("due_ms='soon'"), "deliveries", "4701", ANY},
    {"due_ms_is_a_blob", WAITS("due_ms=x'00'"), "deliveries", "4701", ANY},
    {"failed_is_text", IS_DUE("failed='three'"), "deliveries", "4701", ANY},
    {"failed_is_a_fraction", IS_DUE("failed=1e300"), "deliveries", "4701", ANY},
    {"attempts_is_the_least_stuck", STUCK("attempts=" LEAST), "deliveries", "4701", ANY},
    {"attempts_is_the_largest_stuck", STUCK("attempts=" MOST), "deliveries", "4701", ANY},
    {"max_attempts_is_the_least_stuck", STUCK("max_attempts=" LEAST), "deliveries", "4701", ANY},
    {"max_attempts_is_zero_stuck", STUCK("max_attempts=0"), "deliveries", "4701", ANY},
    {"suspect_is_the_largest", IS_DUE("suspect=" MOST), "deliveries", "4701", ANY},
    {"suspect_is_the_largest_stuck", STUCK("attempts=0,suspect=" MOST), "deliveries", "4701", ANY},
    {"suspect_is_the_least", WAITS("suspect=" LEAST), "deliveries", "4701", ANY},
    {"snoozes_is_the_least", WAITS("snoozes=" LEAST), "deliveries", "4701", ANY},
    {"snoozes_is_the_largest", WAITS("snoozes=" MOST), "deliveries", "4701", ANY},
    {"status_is_none", WAITS("status='lost'"), "deliveries", "4701", ANY},
    {"status_is_a_blob", WAITS("status=x'ff00'"), "deliveries", "4701", ANY},
    {"token_is_text", STUCK("token='mine'"), "deliveries", "4701", ANY},
    {"token_is_the_least", STUCK("token=" LEAST), "deliveries", "4701", ANY},
    {"born_is_the_least", WAITS("born=" LEAST), "deliveries", "4701", ANY},
    {"errors_is_empty", IS_DUE("failed=1,errors=''"), "deliveries", "4701", ANY},
    {"errors_is_a_blob", IS_DUE("failed=1,errors=x'ff00ff'"), "deliveries", "4701", ANY},
    {"key_of_a_thousand_bytes", WAITS("ordering_key=hex(zeroblob(500))"), "deliveries", "4701",
     ANY},
    {"key_of_the_event_alone", SAID("ordering_key=hex(zeroblob(500))"), "event_log", "4701", ANY},
    {"type_is_empty", SAID("type=''"), "event_log", "4701", ANY},
    {"type_is_a_blob", SAID("type=x'ff00fe'"), "event_log", "4701", ANY},
    {"type_has_a_zero_inside", SAID("type='a'||char(0)||'b'"), "event_log", "4701", ANY},
    {"id_is_long", SAID("id=hex(zeroblob(500))"), "event_log", "4701", ANY},
    {"id_is_empty", SAID("id=''"), "event_log", "4701", ANY},
    {"payload_is_a_blob", SAID("payload=zeroblob(100000)"), "event_log", "4701", ANY},
    {"metadata_is_a_blob", SAID("metadata=x'ff'"), "event_log", "4701", ANY},
    {"created_at_is_no_time", SAID("created_at='yesterday'"), "event_log", "4701", ANY},
    {"created_at_is_far_away", SAID("created_at='9999-99-99T99:99:99.999Z'"), "event_log", "4701",
     ANY},
    {"seq_below_zero", MOVED_TO("-5"), "deliveries", "5", ANY},
    {"seq_is_the_least", MOVED_TO(LEAST), "deliveries", "9223372036854775808", ANY},
    {"seq_floor_is_the_least", META("seq_floor", LEAST), "meta", "seq_floor", ANY},
    {"seq_floor_is_text", META("seq_floor", "'high'"), "meta", "seq_floor", ANY},
    {"seq_floor_is_a_fraction", META("seq_floor", "1e300"), "meta", "seq_floor", ANY},
    {"seq_floor_is_null", META("seq_floor", "NULL"), "meta", "seq_floor", ANY},
    {"removed_is_text", META("removed", "'some'"), "meta", "removed", ANY},
    {"claimed_to_is_the_largest", META("claimed_to", MOST) ";" STUCK("failed=0") ";"
     META("claimed_to", MOST), "meta", "claimed_to", ANY},
    {"claimed_to_is_the_least", META("claimed_to", LEAST), "meta", "claimed_to", ANY},
    {"claimed_to_is_text", META("claimed_to", "'there'"), "meta", "claimed_to", ANY},
    {"id_key_is_text", META("id_key_1", "'k'"), "meta", "id_key_1", ANY},
    {"id_key_is_the_least", META("id_key_2", LEAST), "meta", "id_key_2", ANY},
    {"dead_failed_is_the_least", DEAD("failed=" LEAST), "dead_letters", "4701", ANY},
    {"dead_failed_is_the_largest", DEAD("failed=" MOST), "dead_letters", "4701", ANY},
    {"dead_type_of_400_bytes", DEAD("type=" LONG_TEXT), "dead_letters", "4701", ANY},
    {"dead_errors_is_a_blob", DEAD("errors=x'ff'"), "dead_letters", "4701", ANY},
    {"dead_id_is_long", DEAD("id=hex(zeroblob(500))"), "dead_letters", "4701", ANY},
    {"dead_seq_is_the_largest", DEAD("seq=" MOST), "dead_letters", MOST, ANY},
    {"finished_attempts_is_the_least", "INSERT INTO finished VALUES(4701," LEAST ",'x','y');"
     "DELETE FROM deliveries WHERE seq=4701", "finished", "4701", ANY},
    {"finished_attempts_is_the_largest", "INSERT INTO finished VALUES(4701," MOST ",'x','y');"
     "DELETE FROM deliveries WHERE seq=4701", "finished", "4701", ANY},
    /* was taken for something else, passed over in silence, or looked at without end */
    {"status_is_bogus", WAITS("status='bogus'"), "deliveries", "4701", DISPATCH | SPINS},
    {"status_is_bogus_keyed", KEYED(WAITS("status='bogus'")), "deliveries", "4701",
     DISPATCH | SPINS},
    {"claimed_and_due", WAITS("status='processing',token=7,due_ms=1"), "deliveries", "4701",
     DISPATCH | SPINS},
    {"claimed_and_due_keyed", KEYED(WAITS("status='processing',token=7,due_ms=1")), "deliveries",
     "4701", DISPATCH | SPINS},
    {"token_is_zero_stuck", STUCK("token=0"), "deliveries", "4701", DISPATCH},
    {"token_is_zero_stuck_keyed", KEYED(STUCK("token=0")), "deliveries", "4701", DISPATCH},
    {"token_is_text_stuck", STUCK("token='mine'"), "deliveries", "4701", DISPATCH},
    {"token_is_below_zero_stuck", STUCK("token=-7"), "deliveries", "4701", DISPATCH},
    {"claimed_to_below_zero_stuck", STUCK("failed=0") ";" META("claimed_to", "-5"), "meta",
     "claimed_to", DISPATCH},
    {"claimed_to_is_null_stuck", STUCK("failed=0") ";" META("claimed_to", "NULL"), "meta",
     "claimed_to", DISPATCH},
    {"claimed_to_is_text_stuck", STUCK("failed=0") ";" META("claimed_to", "'there'"), "meta",
     "claimed_to", DISPATCH},
    {"apart_is_seven", WAITS("apart=7"), "deliveries", "4701", DISPATCH | SPINS},
    {"apart_is_seven_keyed", KEYED(WAITS("apart=7")), "deliveries", "4701", DISPATCH | SPINS},
    {"apart_is_below_zero", WAITS("apart=-1"), "deliveries", "4701", DISPATCH},
    {"apart_is_text", WAITS("apart='far'"), "deliveries", "4701", DISPATCH},
    {"aside_is_the_largest", WAITS("aside=" MOST), "deliveries", "4701", DISPATCH | SPINS},
    {"aside_is_the_largest_keyed", KEYED(WAITS("aside=" MOST)), "deliveries", "4701",
     DISPATCH | SPINS},
    {"keys_differ", SAID("ordering_key='k'"), "deliveries", "4701", DISPATCH | SPINS},
    {"keys_differ_both", SAID("ordering_key='k'") ";" WAITS("ordering_key='l'"), "deliveries",
     "4701", DISPATCH | SPINS},
    {"keys_differ_below", WAITS("ordering_key='l'"), "deliveries", "4701", DISPATCH},
    {"by_hand_at_seq_zero", MOVED_TO("0") "; UPDATE deliveries SET status='processing',apart=2"
     " WHERE seq=0", "deliveries", "0", DISPATCH | SPINS},
    /* what the inspector counts and shows */
    {"failed_far_below_zero_shown", WAITS("failed=-100000"), "failed", "4701", LOG},
    {"dead_failed_beyond_32_bits", DEAD("failed=9999999999"), "failed", "4701", LOG | DEATHS},
    {"seq_floor_is_text_counted", META("seq_floor", "'high'"), "meta", "seq_floor", STATS},
};
enum { DAMAGES = (int)(sizeof damages / sizeof *damages) };

/* Three events that wait; the one in the middle is number 4701. */
static void make_file(const char *path)
{
    eb_options o = t_options(path);
    eb_bus *bus;
    o.workers = EB_NONE;
    o.durability = EB_DURABLE_OFF;
    bus = t_open(&o);
    t_post(bus, "first", NULL);
    T_MUST(t_sql(path, "UPDATE meta SET value=4700 WHERE key='seq_floor'", NULL, 0) == SQLITE_OK);
    t_post(bus, "hurt", NULL);
    t_post(bus, "last", NULL);
    eb_destroy(bus);
}

/* 1 if a call may have returned this to somebody with such a file. */
static int fair(int rc)
{
    return rc == EB_OK || rc == EB_DEAD || rc == EB_ERR_CORRUPT || rc == EB_ERR_TIMEOUT ||
           rc == EB_ERR_STATE || rc == EB_ERR_SCHEMA;
}

TEST value_that_cannot_be_ours_is_corrupt_and_harms_nobody(const damage *bad, const char *driver)
{
    const char *path = t_path("value");
    char line[300];
    p_child *c;
    int round;
    make_file(path);
    T_MUST(t_sql(path, bad->sql, line, sizeof line) == SQLITE_OK);
    c = p_spawn("use", path, driver, bad->table, bad->row, NULL);
    for (round = 0; round < 2; round++) {
        int open, start, drain, post, sent, publish, stats, log, dlq, named, calls;
        unsigned must = bad->must; /* the retry of the first round mends a dead letter */
        if (round && (must & DEATHS)) must = ANY;
        ASSERT_EQm("the process came through", 1, p_hear(c, line, sizeof line));
        T_EQ(11, sscanf(line, "%d %d %d %d %d %d %d %d %d %d %d", &open, &start, &drain, &post,
                        &sent, &publish, &stats, &log, &dlq, &named, &calls));
        if (!(fair(open) && fair(start) && fair(drain) && fair(post) && fair(sent) &&
              fair(publish) && fair(stats) && fair(log) && fair(dlq)))
            FAILm(line);
        if (must & DISPATCH) {
            if (open == EB_OK && start == EB_OK) {
                T_EQ(EB_ERR_CORRUPT, drain);
                T_EQ(EB_ERR_CORRUPT, publish);
            } else {
                T_EQ(EB_ERR_CORRUPT, open == EB_OK ? start : open);
            }
            T_EQ(0, calls);
        }
        if (open == EB_OK) {
            if (must & POST) T_EQ(EB_ERR_CORRUPT, post);
            if (must & SEND) T_EQ(EB_ERR_CORRUPT, sent);
            if (must & STATS) T_EQ(EB_ERR_CORRUPT, stats);
            if (must & LOG) T_EQ(EB_ERR_CORRUPT, log);
            if (must & DEATHS) T_EQ(EB_ERR_CORRUPT, dlq);
        } else if (must & (POST | SEND | STATS | LOG | DEATHS)) {
            T_EQ(EB_ERR_CORRUPT, open);
        }
        if (must) ASSERTm("a message names the table and the row", named);
    }
    P_ENDS_CLEANLY(c);
    PASS();
}

/* It tries again later and later: a few times in that time, not thousands of times. */
TEST bus_on_a_damaged_row_does_not_spin(const damage *bad)
{
    const char *path = t_path("spin");
    int rc, cpu_ms, entries;
    char line[300];
    p_child *c;
    make_file(path);
    T_MUST(t_sql(path, bad->sql, line, sizeof line) == SQLITE_OK);
    c = p_spawn("idle", path, NULL);
    ASSERT_EQm("the process came through", 1, p_hear(c, line, sizeof line));
    T_EQ(3, sscanf(line, "%d %d %d", &rc, &cpu_ms, &entries));
    P_WITHIN(0, 80, cpu_ms);
    P_WITHIN(0, 30, entries);
    P_ENDS_CLEANLY(c);
    PASS();
}

/* Being refused costs nothing: with the value put right everything is there, once. */
TEST damaged_row_that_was_mended_is_handled(int workers)
{
    const char *path = t_path("mended");
    eb_options o = t_options(path);
    t_seen seen = {0};
    eb_bus *bus;
    char line[300];
    p_child *c;
    make_file(path);
    T_MUST(t_sql(path, damages[0].sql, NULL, 0) == SQLITE_OK);
    c = p_spawn("use", path, workers ? "threads" : "pump", "deliveries", "4701", NULL);
    ASSERT_EQm("the process came through", 1, p_hear(c, line, sizeof line));
    ASSERT_EQm("the process came through", 1, p_hear(c, line, sizeof line));
    P_ENDS_CLEANLY(c);
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM deliveries WHERE seq=4701 AND failed=-100000"));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM event_log WHERE seq=4701 AND type='hurt'"));
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE deliveries SET failed=0 WHERE seq=4701", NULL, 0));
    o.workers = workers ? workers : EB_NONE;
    bus = t_open(&o);
    t_subscribe(bus, "hurt", t_watch, &seen);
    t_subscribe(bus, "*", t_succeeds, NULL);
    T_OK(eb_start(bus));
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(1, p_get(&seen.calls));
    T_EQ(0, seen.retry_count);
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    PASS();
}

/* ---- triggers that are not ours -------------------------------------------------------------- */

#define ENDLESS_VIEW                                                                               \
    "CREATE VIEW endless(n) AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r)"      \
    " SELECT n FROM r;"

/* What each trigger does: an endless query, our statement swallowed, refused, undone. */
static const char *const evils[] = {"SELECT count(*) FROM endless", "SELECT RAISE(IGNORE)",
                                    "SELECT RAISE(ABORT,'no')", "SELECT RAISE(ROLLBACK,'no')"};
static const char *const evil_names[] = {"endless", "ignore", "abort", "rollback"};
static const char *const hot_tables[] = {"event_log", "deliveries",    "finished",
                                         "dead_letters", "subscriptions", "meta"};

/* Before or after each kind of change of this table. */
static void add_triggers(const char *path, const char *table, const char *evil)
{
    static const char *const when[] = {"BEFORE INSERT", "AFTER INSERT",  "BEFORE UPDATE",
                                       "AFTER UPDATE",  "BEFORE DELETE", "AFTER DELETE"};
    char sql[400];
    int i;
    T_MUST(t_sql(path, ENDLESS_VIEW, NULL, 0) == SQLITE_OK);
    for (i = 0; i < 6; i++) {
        snprintf(sql, sizeof sql, "CREATE TRIGGER evil_%d %s ON %s BEGIN %s; END", i, when[i],
                 table, evil);
        T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
    }
}

/* A file with our tables and no events. */
static void make_empty(const char *path)
{
    eb_options o = t_options(path);
    o.workers = EB_NONE;
    eb_destroy(t_open(&o));
}

#define P_LIVES(child)                                                                             \
    do {                                                                                           \
        size_t t_i;                                                                                \
        for (t_i = 0; t_i < sizeof lively / sizeof *lively; t_i++) P_HEAR(child, lively[t_i]);     \
        P_ENDS_CLEANLY(child);                                                                     \
    } while (0)

TEST foreign_triggers_do_not_fire_for_our_writes(const char *table, const char *evil)
{
    static const char *const drivers[] = {"pump", "threads"};
    int i;
    for (i = 0; i < 2; i++) {
        const char *path = t_path("trigger");
        p_child *c;
        make_empty(path);
        add_triggers(path, table, evil);
        c = p_spawn("live", path, drivers[i], NULL);
        P_LIVES(c);
        T_EQ(5, t_stored(path));
        T_EQ(4, t_sql_int(path, "SELECT count(*) FROM finished"));
        T_EQ(1, t_sql_int(path, "SELECT count(*) FROM dead_letters"));
        T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    }
    PASS();
}

/* EB_OK means stored. */
TEST trigger_that_ignores_cannot_swallow_an_event(const char *table)
{
    const char *path = t_path("swallow");
    eb_options o = t_options(path);
    char sql[300];
    eb_message m[3];
    eb_id id;
    eb_bus *bus;
    memset(m, 0, sizeof m);
    m[0].type = m[1].type = m[2].type = "x";
    o.workers = EB_NONE;
    bus = t_open(&o);
    snprintf(sql, sizeof sql, "CREATE TRIGGER evil BEFORE INSERT ON %s BEGIN SELECT RAISE(IGNORE);"
                              " END", table); /* beside the open bus */
    T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
    id = t_post(bus, "x", NULL);
    T_OK(eb_send(bus, m, 3, NULL));
    T_EQ(4, t_stored(path));
    T_EQ(4, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    T_STATUS(EB_PENDING, bus, id);
    eb_destroy(bus);
    PASS();
}

TEST trigger_that_changes_our_rows_changes_nothing(void)
{
    const char *path = t_path("changes");
    p_child *c;
    make_empty(path);
    T_EQ(SQLITE_OK, t_sql(path,
                          "CREATE TRIGGER evil1 AFTER INSERT ON event_log BEGIN"
                          " UPDATE event_log SET type='evil',payload='0'; END;"
                          "CREATE TRIGGER evil2 AFTER INSERT ON deliveries BEGIN"
                          " DELETE FROM deliveries; END;"
                          "CREATE TRIGGER evil3 AFTER INSERT ON finished BEGIN"
                          " DELETE FROM event_log; END;"
                          "CREATE TRIGGER evil4 AFTER DELETE ON deliveries BEGIN"
                          " INSERT INTO deliveries(seq,status) VALUES(old.seq,'pending'); END;"
                          "CREATE TRIGGER evil5 AFTER UPDATE ON meta BEGIN"
                          " UPDATE meta SET value=9223372036854775807; END",
                          NULL, 0));
    c = p_spawn("live", path, "pump", NULL);
    P_LIVES(c);
    T_EQ(5, t_stored(path));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM event_log WHERE type='evil'"));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM deliveries"));
    T_EQ(5, t_sql_int(path, "SELECT max(seq) FROM event_log"));
    PASS();
}

/* Nor do the application's own, for what the bus writes; what others write has them as before. */
TEST trigger_of_the_application_fires_for_others_only(void)
{
    const char *path = t_path("audit");
    eb_options o = t_options(path);
    t_seen seen = {0};
    eb_bus *bus;
    o.workers = EB_NONE;
    o.idle_poll_ms = 10;
    bus = t_open(&o);
    T_EQ(SQLITE_OK, t_sql(path,
                          "CREATE TABLE audit(seq);"
                          "CREATE TRIGGER app_said AFTER INSERT ON event_log BEGIN"
                          " INSERT INTO audit VALUES(new.seq); END;"
                          "CREATE TRIGGER app_again AFTER DELETE ON finished BEGIN"
                          " INSERT INTO audit VALUES(-old.seq); END",
                          NULL, 0));
    t_subscribe(bus, "x", t_watch, &seen);
    T_OK(eb_start(bus));
    T_OK(eb_publish(bus, "x", NULL, NULL));
    T_EQ(0, t_sql_int(path, "SELECT count(*) FROM audit"));
    T_EQ(SQLITE_OK, t_sql(path, "UPDATE events SET status = 'pending'", NULL, 0));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM audit WHERE seq=-1")); /* a shell's UPDATE */
    T_OK(eb_drain(bus, 5000));
    T_EQ(2, p_get(&seen.calls));
    T_EQ(1, t_sql_int(path, "SELECT count(*) FROM audit"));
    eb_destroy(bus);
    PASS();
}

/* ---- names of ours that are something else --------------------------------------------------- */

typedef struct thing {
    char kind[12], name[60];
} thing;

/* What a fresh file has under our names. */
static int our_things(thing *all, int max)
{
    const char *path = t_path("things");
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    int n = 0;
    make_empty(path);
    T_MUST(sqlite3_open(path, &db) == SQLITE_OK);
    T_MUST(sqlite3_prepare_v2(db, "SELECT type,name FROM sqlite_schema WHERE name NOT GLOB"
                                  " 'sqlite_*' AND name <> 'namespaces' ORDER BY rowid", -1, &s,
                              NULL) == SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW && n < max) {
        t_copy(all[n].kind, sizeof all[n].kind, (const char *)sqlite3_column_text(s, 0));
        t_copy(all[n].name, sizeof all[n].name, (const char *)sqlite3_column_text(s, 1));
        n++;
    }
    sqlite3_finalize(s);
    sqlite3_close(db);
    return n;
}

static int is_there(const char *path, const char *name)
{
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM sqlite_schema WHERE name='%s'", name);
    return (int)t_sql_int(path, sql);
}

/* Puts something of this kind under a name that is free; it hangs on the table `dummy`. */
static void put(const char *path, const char *kind, const char *name)
{
    char sql[300];
    if (strcmp(kind, "table") == 0) snprintf(sql, sizeof sql, "CREATE TABLE %s(x)", name);
    else if (strcmp(kind, "index") == 0)
        snprintf(sql, sizeof sql, "CREATE INDEX %s ON dummy(x)", name);
    else if (strcmp(kind, "view") == 0)
        snprintf(sql, sizeof sql, "CREATE VIEW %s AS SELECT 1", name);
    else
        snprintf(sql, sizeof sql, "CREATE TRIGGER %s AFTER INSERT ON dummy BEGIN SELECT 1; END",
                 name);
    T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
}

/* A fresh file in which this one name is of another kind, and what vanished with it is put back. */
static void make_wrong(const char *path, const thing *one, const char *wrong_sql)
{
    static thing all[64];
    int i, n = our_things(all, 64);
    char sql[400];
    make_empty(path);
    T_MUST(t_sql(path, "CREATE TABLE dummy(x)", NULL, 0) == SQLITE_OK);
    if (strcmp(one->kind, "table") == 0) { /* its indexes stay with it */
        snprintf(sql, sizeof sql, "PRAGMA legacy_alter_table=ON; ALTER TABLE %s RENAME TO old_one",
                 one->name);
        T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
    } else {
        snprintf(sql, sizeof sql, "DROP %s %s", one->kind, one->name);
        T_MUST(t_sql(path, sql, NULL, 0) == SQLITE_OK);
    }
    if (is_there(path, one->name) == 0) T_MUST(t_sql(path, wrong_sql, NULL, 0) == SQLITE_OK);
    for (i = 0; i < n; i++)
        if (!is_there(path, all[i].name)) put(path, all[i].kind, all[i].name);
}

TEST name_of_ours_that_is_something_else_is_refused(const thing *one)
{
    const char *path = t_path("kind");
    eb_options o = t_options(path);
    eb_bus *bus = NULL;
    eb_store *store = NULL;
    eb_result rc;
    char sql[300], msg[600];
    int64_t before;
    if (strcmp(one->kind, "table") == 0)
        snprintf(sql, sizeof sql, "CREATE VIEW %s AS SELECT * FROM old_one", one->name);
    else
        snprintf(sql, sizeof sql, "CREATE TABLE %s(x)", one->name);
    make_wrong(path, one, sql);
    T_EQ(1, is_there(path, one->name));
    before = t_sql_int(path, "PRAGMA schema_version");
    rc = eb_open(&bus, &o);
    eb_errmsg(msg, sizeof msg);
    eb_destroy(bus);
    T_EQ(EB_ERR_SCHEMA, rc);
    ASSERTm("the message has the name", strstr(msg, one->name) != NULL);
    rc = eb_store_open(&store, &o);
    eb_store_close(store);
    T_EQ(EB_ERR_SCHEMA, rc);
    T_EQ(before, t_sql_int(path, "PRAGMA schema_version")); /* untouched */
    PASS();
}

/* A table replaced by a view without end: it is never read. */
TEST endless_view_in_place_of_a_table_is_refused(const thing *one)
{
    const char *path = t_path("endless");
    char sql[600], columns[400];
    p_child *c;
    snprintf(sql, sizeof sql, "SELECT group_concat('n AS '||name) FROM pragma_table_info('%s')",
             one->name);
    make_empty(path);
    t_sql_text(path, sql, columns, sizeof columns);
    snprintf(sql, sizeof sql, "CREATE VIEW %s AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT"
                              " n+1 FROM r) SELECT %s FROM r", one->name, columns);
    path = t_path("endless");
    make_wrong(path, one, sql);
    c = p_spawn("open", path, NULL);
    P_HEAR(c, "bus -15");
    P_HEAR(c, "store -15");
    P_ENDS_CLEANLY(c);
    PASS();
}

TEST endless_view_that_replaces_a_table_in_use_hangs_nobody(const char *table)
{
    static const char *const drivers[] = {"pump", "threads"};
    int i;
    for (i = 0; i < 2; i++) {
        const char *path = t_path("swapped");
        char sql[800], columns[400], line[100];
        p_child *c;
        make_empty(path);
        snprintf(sql, sizeof sql, "SELECT group_concat('n AS '||name) FROM"
                                  " pragma_table_info('%s')", table);
        t_sql_text(path, sql, columns, sizeof columns);
        c = p_spawn("swapped", path, drivers[i], NULL);
        P_HEAR(c, "ready");
        snprintf(sql, sizeof sql, "PRAGMA legacy_alter_table=ON; BEGIN IMMEDIATE;"
                                  "ALTER TABLE %s RENAME TO old_one;"
                                  "CREATE VIEW %s AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL"
                                  " SELECT n+1 FROM r) SELECT %s FROM r; COMMIT",
                 table, table, columns);
        T_EQ(SQLITE_OK, t_sql(path, sql, NULL, 0));
        p_tell(c, "go");
        P_HEAR(c, "post 1"); /* refused: there is nowhere to store it */
        T_EQ(1, p_hear(c, line, sizeof line));
        if (strcmp(table, "meta") != 0) ASSERT_STR_EQ("log 1", line); /* which does not read meta */
        P_HEAR(c, "stats 1");
        P_HEAR(c, "end");
        P_ENDS_CLEANLY(c);
    }
    PASS();
}

/* The list of namespaces has no prefix, so it may be anybody's. */
TEST endless_view_named_namespaces_hangs_nobody(int before)
{
    const char *path = t_path("namespaces");
    char line[100];
    p_child *c;
    int rc;
    if (!before) make_empty(path);
    T_EQ(SQLITE_OK, t_sql(path, "DROP TABLE IF EXISTS namespaces; CREATE VIEW namespaces AS WITH"
                                " RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT"
                                " n AS ns,n AS created_at,n AS metadata FROM r", NULL, 0));
    c = p_spawn("open", path, NULL);
    T_EQ(1, p_hear(c, line, sizeof line));
    T_EQ(1, sscanf(line, "bus %d", &rc));
    ASSERT(rc == EB_ERR_SCHEMA || (rc == EB_OK && !before));
    T_EQ(1, p_hear(c, line, sizeof line));
    P_ENDS_CLEANLY(c);
    PASS();
}

/* ---- all of them ----------------------------------------------------------------------------- */

SUITE(values)
{
    static const char *const drivers[] = {"pump", "threads"};
    char suffix[80];
    int i, k;
    SET_TEARDOWN(p_reap, NULL);
    for (i = 0; i < DAMAGES; i++) {
        for (k = 0; k < 2; k++) {
            snprintf(suffix, sizeof suffix, "%s_%s", damages[i].name, drivers[k]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(value_that_cannot_be_ours_is_corrupt_and_harms_nobody, &damages[i],
                      drivers[k]);
        }
    }
    for (i = 0; i < DAMAGES; i++) {
        if (!(damages[i].must & SPINS)) continue;
        greatest_set_test_suffix(damages[i].name);
        RUN_TESTp(bus_on_a_damaged_row_does_not_spin, &damages[i]);
    }
    greatest_set_test_suffix("pump");
    RUN_TESTp(damaged_row_that_was_mended_is_handled, 0);
    greatest_set_test_suffix("threads");
    RUN_TESTp(damaged_row_that_was_mended_is_handled, 2);
}

SUITE(triggers)
{
    char suffix[80];
    size_t i, k;
    SET_TEARDOWN(p_reap, NULL);
    for (i = 0; i < sizeof evils / sizeof *evils; i++) {
        for (k = 0; k < sizeof hot_tables / sizeof *hot_tables; k++) {
            snprintf(suffix, sizeof suffix, "%s_%s", evil_names[i], hot_tables[k]);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(foreign_triggers_do_not_fire_for_our_writes, hot_tables[k], evils[i]);
        }
    }
    greatest_set_test_suffix("event_log");
    RUN_TESTp(trigger_that_ignores_cannot_swallow_an_event, "event_log");
    greatest_set_test_suffix("deliveries");
    RUN_TESTp(trigger_that_ignores_cannot_swallow_an_event, "deliveries");
    RUN_TEST(trigger_that_changes_our_rows_changes_nothing);
    RUN_TEST(trigger_of_the_application_fires_for_others_only);
}

SUITE(kinds)
{
    static thing all[64];
    int i, n = our_things(all, 64);
    SET_TEARDOWN(p_reap, NULL);
    T_MUST(n >= 16 && n < 64);
    for (i = 0; i < n; i++) {
        greatest_set_test_suffix(all[i].name);
        RUN_TESTp(name_of_ours_that_is_something_else_is_refused, &all[i]);
    }
    for (i = 0; i < n; i++) {
        if (strcmp(all[i].kind, "table") != 0) continue;
        greatest_set_test_suffix(all[i].name);
        RUN_TESTp(endless_view_in_place_of_a_table_is_refused, &all[i]);
    }
    greatest_set_test_suffix("event_log");
    RUN_TESTp(endless_view_that_replaces_a_table_in_use_hangs_nobody, "event_log");
    greatest_set_test_suffix("deliveries");
    RUN_TESTp(endless_view_that_replaces_a_table_in_use_hangs_nobody, "deliveries");
    greatest_set_test_suffix("meta");
    RUN_TESTp(endless_view_that_replaces_a_table_in_use_hangs_nobody, "meta");
    greatest_set_test_suffix("before_us");
    RUN_TESTp(endless_view_named_namespaces_hangs_nobody, 1);
    greatest_set_test_suffix("after_us");
    RUN_TESTp(endless_view_named_namespaces_hangs_nobody, 0);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--child") == 0) return child_main(argv[2], argv + 3);
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(values);
    RUN_SUITE(triggers);
    RUN_SUITE(kinds);
    GREATEST_MAIN_END();
}
