/* test_keys.c - order by key under worker threads: what a claim, the end of a handler, a retry, a
** delay and an operator do to one key at the same time.
**
** The rules: two events of a key never run at once; a later one does not start while an earlier one
** is running, due, waiting for a retry or snoozed. One that is merely delayed and untried, or dead,
** holds up nobody.
*/
static void between(void);
#define EBI_YIELD() between()
#include "fault/luck.h"
#include "proc.h"

/* ---- a claim and the end of a key's head cross ----------------------------------------------- */

static pthread_mutex_t st_lock = PTHREAD_MUTEX_INITIALIZER; /* over what handlers write here */

static struct {
    eb_bus *bus;
    int armed, held, release, go; /* flags: p_get() and p_set() */
    int how;                      /* what the head does the first time */
    int heads;
    char order[40];
} cross;

/* Called where the bus may be interrupted: the commit of a claim is on disk, and memory does not
** know yet. Holds that claim until the test lets go. */
static void between(void)
{
    eb_bus *bus = cross.bus;
    int claims;
    if (!p_get(&cross.armed)) return;
    ebi_store_lock(&bus->store);
    claims = bus->store.queue.leading && ebi_thread_same(bus->store.queue.leader, ebi_thread_self()) &&
             bus->lane.turns.claiming;
    ebi_store_unlock(&bus->store);
    if (!claims) return;
    p_set(&cross.armed, 0);
    p_set(&cross.held, 1);
    p_until(&cross.release, 1);
}

enum { FAILS, SNOOZES };

static eb_result in_order(eb_delivery *d, void *user)
{
    int first = 0;
    (void)user;
    pthread_mutex_lock(&st_lock);
    if (d->event->ordering_key) {
        size_t n = strlen(cross.order);
        T_MUST(n + 1 < sizeof cross.order);
        cross.order[n] = d->event->payload[0];
        cross.order[n + 1] = 0;
        first = d->event->payload[0] == '1' && cross.heads++ == 0;
    }
    pthread_mutex_unlock(&st_lock);
    if (!first) return EB_OK;
    p_until(&cross.go, 1);
    return cross.how == FAILS ? eb_fail(d, "not yet") : eb_snooze(d, 5);
}

/* Events behind the head of their key, and handlers that run. */
static int chained(void)
{
    int n;
    ebi_store_lock(&cross.bus->store);
    n = cross.bus->lane.chained;
    ebi_store_unlock(&cross.bus->store);
    return n;
}
static int running(void)
{
    int n;
    ebi_store_lock(&cross.bus->store);
    n = cross.bus->calls.running;
    ebi_store_unlock(&cross.bus->store);
    return n;
}

/* 1 runs, 2 and 3 are claimed behind it. A claim finds 1 under way and wins 4; before memory knows,
** 1 comes back. It has its place before 4. */
TEST event_claimed_while_the_head_comes_back_waits_for_it(int how)
{
    static const char *const payload[] = {"1", "2", "3", "4"};
    eb_options o = t_options(t_path("cross"));
    eb_message m[4];
    eb_bus *bus;
    int i;
    memset(&cross, 0, sizeof cross);
    memset(m, 0, sizeof m);
    for (i = 0; i < 4; i++) {
        m[i].type = "a";
        m[i].ordering_key = "k";
        m[i].payload = payload[i];
    }
    cross.how = how;
    o.workers = 2;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 5;
    cross.bus = bus = t_run_with(&o, "a", in_order, NULL);
    for (i = 0; i < 300; i++) t_post(bus, "a", NULL); /* handlers are quick: batches */
    T_OK(t_settle(bus));
    T_OK(eb_send(bus, m, 3, NULL));
    P_EVENTUALLY(chained() == 2);
    P_EVENTUALLY(running() == 1);
    p_set(&cross.armed, 1);
    T_OK(eb_send(bus, &m[3], 1, NULL));
    P_EVENTUALLY(p_get(&cross.held));
    p_set(&cross.go, 1);
    P_EVENTUALLY(running() == 0);
    p_set(&cross.release, 1);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    ASSERT_STR_EQ("11234", cross.order);
    PASS();
}

/* ---- many keys, many workers, everything that makes an event come back ----------------------- */

enum { PUBLISHERS = 2, KEYS = 4, ROOM = 30000, WORKERS = 3, STRESS_MS = 900, BACKLOG = 150 };
enum { MIX_FAIL, MIX_SNOOZE, MIX_DELAY, MIX_MOVE };

/* One event; its number in the line of its key is its payload. */
typedef struct ev {
    eb_id id;
    int64_t retried_ms; /* an operator brought it back from the dead letters: in line since then */
    char delayed, tried, failed, done;
    char away; /* an operator has it: it holds up nobody */
} ev;

static struct {
    eb_bus *bus;
    int mix, stop, two, early, published, handled, moved;
    int inside[KEYS];            /* handlers that run */
    int sent[KEYS], first[KEYS]; /* events that are there, or will be; the first that is not done */
    ev line[KEYS][ROOM];
} st;

/* Whether e holds up a later one that starts at that time. Who is about to start when the call of
** the operator returns may start: 2 ms for that, as the clock has only milliseconds. */
static int holds_up(const ev *e, int64_t start_ms)
{
    if (e->done || e->away) return 0;
    if (e->retried_ms) return start_ms > e->retried_ms + 2;
    return !e->delayed || e->tried;
}

static void begins(int key, int n, int64_t start_ms)
{
    int i;
    pthread_mutex_lock(&st_lock);
    if (st.inside[key]++) st.two++;
    for (i = st.first[key]; i < n; i++) {
        if (!holds_up(&st.line[key][i], start_ms)) continue;
        st.early++;
        break;
    }
    st.line[key][n].tried = 1;
    st.handled++;
    pthread_mutex_unlock(&st_lock);
}

/* Returns 1 if this one comes back, the first time. */
static int ends(int key, int n, int comes_back)
{
    ev *e = &st.line[key][n];
    pthread_mutex_lock(&st_lock);
    st.inside[key]--;
    if (e->failed) comes_back = 0;
    if (comes_back) e->failed = 1;
    else e->done = 1;
    while (st.first[key] < st.sent[key] && st.line[key][st.first[key]].done) st.first[key]++;
    pthread_mutex_unlock(&st_lock);
    return comes_back;
}

static eb_result handle(eb_delivery *d, void *user)
{
    int key = d->event->ordering_key[0] - '0', n = atoi(d->event->payload), back;
    luck r = luck_seeded((uint64_t)d->event->seq, (uint64_t)d->attempt);
    (void)user;
    begins(key, n, d->event->updated_at_ms);
    if (luck_one_in(&r, 50)) p_nap(luck_below(&r, 2));
    else if (luck_one_in(&r, 4)) p_nap_us(luck_below(&r, 60));
    back = luck_one_in(&r, 40) && (st.mix == MIX_FAIL || st.mix == MIX_SNOOZE);
    if (!ends(key, n, back)) return EB_OK;
    return st.mix == MIX_FAIL ? eb_fail(d, "not yet") : eb_snooze(d, 3);
}

static int backlog(void)
{
    return (int)t_stats(st.bus).pending;
}

/* Publishes to its own keys, so that it knows what is before what. */
static void *publish(void *arg)
{
    int mine = *(const int *)arg, i, n, key, at[20], full = 0;
    luck r = luck_seeded(7, (uint64_t)mine);
    char keys[20][2], payload[20][12];
    eb_message m[20];
    eb_id ids[20];
    while (!p_get(&st.stop) && !full) {
        n = 1 + luck_below(&r, 20);
        memset(m, 0, sizeof m);
        pthread_mutex_lock(&st_lock);
        for (i = 0; i < n; i++) {
            key = mine + PUBLISHERS * luck_below(&r, KEYS / PUBLISHERS);
            at[i] = st.sent[key]++;
            full |= st.sent[key] + 20 >= ROOM;
            snprintf(keys[i], sizeof keys[i], "%d", key);
            snprintf(payload[i], sizeof payload[i], "%d", at[i]);
            m[i].type = "a";
            m[i].ordering_key = keys[i];
            m[i].payload = payload[i];
            if (st.mix == MIX_DELAY && luck_one_in(&r, 10)) m[i].delay_ms = 1 + luck_below(&r, 15);
            st.line[key][at[i]].delayed = m[i].delay_ms > 0;
        }
        pthread_mutex_unlock(&st_lock);
        T_MUST(eb_send(st.bus, m, (size_t)n, ids) == EB_OK);
        pthread_mutex_lock(&st_lock);
        for (i = 0; i < n; i++) st.line[keys[i][0] - '0'][at[i]].id = ids[i];
        st.published += n;
        pthread_mutex_unlock(&st_lock);
        while (!p_get(&st.stop) && backlog() > BACKLOG) p_nap(1);
    }
    return NULL;
}

/* As eb_event.updated_at_ms. */
static int64_t wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Gives up some event that is not done, and brings it back. */
static void *operate(void *arg)
{
    eb_store *store = eb_bus_store(st.bus);
    luck r = luck_seeded(8, 1);
    (void)arg;
    while (!p_get(&st.stop)) {
        int key = luck_below(&r, KEYS), n, ok;
        eb_id id;
        ev *e;
        pthread_mutex_lock(&st_lock);
        n = st.first[key] + luck_below(&r, 20);
        e = &st.line[key][n < ROOM ? n : 0];
        ok = n < st.sent[key] && e->id.str[0] && !e->done && !e->away;
        if (ok) e->away = 1;
        id = e->id;
        pthread_mutex_unlock(&st_lock);
        if (!ok) p_nap_us(50);
        if (!ok || eb_dlq_move(store, id.str, "moved") != EB_OK) continue;
        if (luck_one_in(&r, 2)) p_nap_us(luck_below(&r, 1000));
        T_MUST(eb_dlq_retry(store, id.str, NULL) == EB_OK);
        pthread_mutex_lock(&st_lock);
        e->retried_ms = wall_ms();
        e->away = 0;
        st.moved++;
        pthread_mutex_unlock(&st_lock);
    }
    return NULL;
}

TEST keys_stay_in_order_under_workers(int mix)
{
    static int publisher[PUBLISHERS] = {0, 1};
    eb_options o = t_options(t_path("stress"));
    pthread_t publishers[PUBLISHERS], operator_;
    eb_bus *bus;
    int i, k;
    memset(&cross, 0, sizeof cross);
    memset(&st, 0, sizeof st);
    st.mix = mix;
    o.workers = WORKERS;
    o.retry.base_delay_ms = o.retry.max_delay_ms = 3;
    st.bus = bus = t_run_with(&o, "a", handle, NULL);
    for (i = 0; i < PUBLISHERS; i++) publishers[i] = p_go(publish, &publisher[i]);
    if (mix == MIX_MOVE) operator_ = p_go(operate, NULL);
    p_nap(STRESS_MS);
    p_set(&st.stop, 1);
    for (i = 0; i < PUBLISHERS; i++) p_join(publishers[i]);
    if (mix == MIX_MOVE) p_join(operator_);
    T_OK(t_settle(bus));
    eb_destroy(bus);
    T_EQ(0, st.two);
    T_EQ(0, st.early);
    ASSERT(st.handled >= st.published);
    for (k = 0; k < KEYS; k++) T_EQ(st.sent[k], st.first[k]);
    if (mix == MIX_MOVE) ASSERT(st.moved > 0);
    PASS();
}

SUITE(keys)
{
    greatest_set_test_suffix("fails");
    RUN_TEST1(event_claimed_while_the_head_comes_back_waits_for_it, FAILS);
    greatest_set_test_suffix("snoozes");
    RUN_TEST1(event_claimed_while_the_head_comes_back_waits_for_it, SNOOZES);
    greatest_set_test_suffix("failures");
    RUN_TEST1(keys_stay_in_order_under_workers, MIX_FAIL);
    greatest_set_test_suffix("snoozes");
    RUN_TEST1(keys_stay_in_order_under_workers, MIX_SNOOZE);
    greatest_set_test_suffix("delays");
    RUN_TEST1(keys_stay_in_order_under_workers, MIX_DELAY);
    greatest_set_test_suffix("operator");
    RUN_TEST1(keys_stay_in_order_under_workers, MIX_MOVE);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    p_proc_init(argv);
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(keys);
    GREATEST_MAIN_END();
}
