/* threads.c - everything at once: publishers, workers, handlers that time out, subscribing and
** unsubscribing, statistics, lists, dead letters, waiting, and shutting down from two threads, with
** random yields compiled into the bus. For the thread sanitizer; the ledger checks that nothing was
** lost on the way, so it means something without one too.
**
**     threads              12 rounds, seed 1
**     threads ROUNDS SEED  another number, another seed; a failure prints "threads 1" and its seed
**
** make -C tests quick T=threads, then tests/build/plain/threads; with the thread sanitizer:
** make -C tests tsan T=threads
*/
static void shake(void);
#define EBI_YIELD() shake()
#define EB_READY_MAX 16 /* so that events are read back from disk all the time */
#include "work.h"
#include "../proc.h"
#include <sched.h>

enum { ROOM = 3000, PUBLISHERS = 3, WORKERS = 3, TIMEOUT_MS = 40 };

static long arg_rounds = 12;
static uint64_t arg_seed = 1;

static ledger book;
static eb_bus *bus;
static int stop;   /* threads: please end */
static int inside; /* handlers that run */
static char why[2000];
static pthread_mutex_t why_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- luck ------------------------------------------------------------------------------------ */

/* At the interesting places of the bus: mostly nothing, sometimes another thread's turn. */
static void shake(void)
{
    static uint64_t turns;
    luck r = luck_seeded(arg_seed, __atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED));
    if (luck_one_in(&r, 4)) sched_yield();
    if (luck_one_in(&r, 32)) p_nap_us(luck_below(&r, 300));
}

static void bad(const char *what, eb_result rc)
{
    char msg[300];
    eb_errmsg(msg, sizeof msg);
    pthread_mutex_lock(&why_lock);
    if (!why[0]) snprintf(why, sizeof why, "%s: %s: %s", what, eb_strerror(rc), msg);
    pthread_mutex_unlock(&why_lock);
}

/* ---- handlers -------------------------------------------------------------------------------- */

/* Besides the types of work.h: stuck (is over its deadline the first time) and self (looks at the
** bus from inside). */
static eb_result handle(eb_delivery *d)
{
    const char *type = d->event->type;
    int n = ledger_run(&book, d);
    eb_stats st;
    if (strcmp(type, "stuck") == 0 && work_runs(&book, n) == 1) {
        int64_t end = p_ms() + 10 * TIMEOUT_MS;
        while (!eb_cancelled(d) && p_ms() < end) p_nap_us(500);
        p_nap(n % 7); /* it still reads the event after it was given up */
        if (ledger_number(d->event->payload) != n) bad("the event changed", EB_ERR_CORRUPT);
    }
    if (strcmp(type, "self") == 0) {
        eb_result rc = eb_stats_get(eb_bus_store(d->bus), &st);
        if (rc != EB_OK && rc != EB_ERR_SHUTDOWN) bad("eb_stats_get in a handler", rc);
        if (eb_drain(d->bus, 0) != EB_ERR_STATE) bad("eb_drain in a handler", EB_OK);
    }
    return work_handle(&book, d, n, 2);
}

static eb_result handler(eb_delivery *d, void *user)
{
    eb_result rc;
    (void)user;
    p_add(&inside, 1);
    rc = handle(d);
    p_add(&inside, -1);
    return rc;
}

/* Of a subscription that comes and goes; `user` is alive as long as eb_unsubscribe says. */
static eb_result visitor(eb_delivery *d, void *user)
{
    int *alive = (int *)user;
    eb_result rc = EB_OK;
    p_add(&inside, 1);
    if (p_get(alive) != 1) bad("a handler ran after eb_unsubscribe", EB_ERR_STATE);
    if (d->event->seq % 16 == 0 && d->attempt == 1) rc = eb_fail(d, "the visitor does not like it");
    p_add(&inside, -1);
    return rc;
}

/* ---- threads --------------------------------------------------------------------------------- */

static const char *any_type(luck *r)
{
    static const char *const types[] = {"ok", "ok", "ok", "late", "bad", "no", "nap", "self"};
    return luck_one_in(r, 60) ? "stuck" : types[luck_below(r, 8)];
}

static void *publisher(void *arg)
{
    luck *r = (luck *)arg;
    eb_result rc = EB_OK;
    while (!p_get(&stop) && work_room(&book) && rc != EB_ERR_SHUTDOWN) {
        rc = work_publish(&book, bus, r, any_type);
        if (rc < 0 && rc != EB_ERR_SHUTDOWN) bad("publishing", rc);
        if (luck_one_in(r, 16)) p_nap_us(luck_below(r, 900));
    }
    return NULL;
}

/* Subscribes and unsubscribes, now and then twice at once. */
static void *visits(void *arg)
{
    static int alive[2];
    luck *r = (luck *)arg;
    while (!p_get(&stop)) {
        eb_id id[2];
        int i, count = 1 + luck_below(r, 2);
        eb_result rc = EB_OK;
        for (i = 0; i < count && rc == EB_OK; i++) {
            p_set(&alive[i], 1);
            rc = eb_subscribe(bus, luck_below(r, 2) ? "*" : "o*", visitor, &alive[i], NULL, &id[i]);
        }
        if (rc != EB_OK) count = i - 1;
        p_nap_us(luck_below(r, 2000));
        for (i = 0; i < count; i++) {
            eb_result left = eb_unsubscribe(bus, id[i].str);
            if (left == EB_OK) p_set(&alive[i], 0);
            else if (left != EB_ERR_SHUTDOWN && left != EB_ERR_TIMEOUT) bad("eb_unsubscribe", left);
            if (left != EB_OK) return NULL; /* a call may still run: leave `alive` alone */
        }
        if (rc == EB_ERR_SHUTDOWN) break;
        if (rc < 0) bad("eb_subscribe", rc);
    }
    return NULL;
}

/* Whether a call beside the others may end like this. */
static void fine(const char *what, eb_result rc)
{
    if (rc >= 0 || rc == EB_ERR_SHUTDOWN || rc == EB_ERR_TIMEOUT) return;
    if (rc == EB_ERR_STATE || rc == EB_ERR_NOT_FOUND) return; /* it has moved on meanwhile */
    bad(what, rc);
}

/* The id of some acknowledged event; 0: none yet. */
static int some_event(luck *r, eb_id *id)
{
    int n, used = ledger_used(&book), tries;
    for (tries = 0; tries < 20 && used > 0; tries++) {
        n = 1 + luck_below(r, used);
        if (LEDGER_ADD(book.book->events[n].state, 0) != LEDGER_ACKED) continue;
        memcpy(id->str, book.book->events[n].id, sizeof id->str);
        return n;
    }
    return 0;
}

/* Looks at everything and changes what an operator may change. */
static void *observer(void *arg)
{
    luck *r = (luck *)arg;
    eb_store *store = eb_bus_store(bus);
    eb_event_list list;
    eb_query q;
    eb_stats st;
    eb_id id;
    int n;
    memset(&q, 0, sizeof q);
    while (!p_get(&stop)) {
        q.limit = 1 + luck_below(r, 50);
        n = some_event(r, &id);
        switch (luck_below(r, 8)) {
        case 0: fine("eb_stats_get", eb_stats_get(store, &st)); break;
        case 1:
            fine("eb_log_read", eb_log_read(store, &q, &list));
            eb_event_list_free(&list);
            break;
        case 2: eb_wake(bus); break;
        case 3: fine("eb_drain", eb_drain(bus, luck_below(r, 3))); break;
        case 4:
            if (n) fine("eb_wait", eb_wait(bus, id.str, luck_below(r, 5)));
            break;
        case 5:
            if (n) ledger_note(&book, n, LEDGER_MOVED);
            if (n && luck_one_in(r, 4)) fine("eb_dlq_move", eb_dlq_move(store, id.str, "enough"));
            break;
        default:
            fine("eb_dlq_list", eb_dlq_list(store, &q, &list));
            if (list.count > 0) {
                const eb_event *e = &list.items[luck_below(r, (int)list.count)];
                ledger_note(&book, ledger_number(e->payload), LEDGER_RETRIED);
                fine("eb_dlq_retry", eb_dlq_retry(store, e->id.str, NULL));
            }
            eb_event_list_free(&list);
        }
        if (luck_one_in(r, 4)) p_nap_us(luck_below(r, 1500));
    }
    return NULL;
}

static void *stopper(void *arg)
{
    eb_result rc = eb_shutdown(bus);
    (void)arg;
    if (rc != EB_OK && rc != EB_ERR_TIMEOUT) bad("eb_shutdown", rc);
    return NULL;
}

/* ---- a round --------------------------------------------------------------------------------- */

/* One bus from open to destroy, then the check. Every other round the publishers end first, and the
** bus must get through its work without being told again. 0: something is wrong, see why. */
static int one_round(uint64_t seed)
{
    const char *path = t_path("threads");
    luck r = luck_seeded(seed, 0), lucks[PUBLISHERS + 3];
    pthread_t threads[PUBLISHERS + 3], stoppers[2];
    eb_options o;
    eb_result rc;
    int i, drains = seed % 2 == 0;
    why[0] = 0;
    p_set(&stop, 0);
    ledger_clear(&book);
    memset(&o, 0, sizeof o);
    o.path = path;
    o.workers = WORKERS;
    o.durability = EB_DURABLE_NORMAL;
    o.handler_timeout_ms = TIMEOUT_MS;
    o.shutdown_timeout_ms = luck_below(&r, 2) ? 20 : 30000;
    o.retry.max_retries = WORK_ATTEMPTS - 1;
    o.retry.base_delay_ms = 1;
    o.retry.max_delay_ms = 3;
    o.logger.func = t_quiet_func;
    o.idle_poll_ms = drains ? 0 : 5;
    rc = eb_open(&bus, &o);
    if (rc == EB_OK) rc = eb_subscribe(bus, "*", handler, NULL, NULL, NULL);
    if (rc == EB_OK) rc = eb_start(bus);
    if (rc != EB_OK) bad("beginning", rc);
    for (i = 0; i < PUBLISHERS + 3 && rc == EB_OK; i++) {
        lucks[i] = luck_seeded(seed, (uint64_t)i + 1);
        threads[i] = p_go(i < PUBLISHERS ? publisher : i == PUBLISHERS ? visits : observer,
                          &lucks[i]);
    }
    p_nap(150 + luck_below(&r, 250));
    if (drains) p_set(&stop, 1);
    for (i = 0; i < PUBLISHERS + 3 && rc == EB_OK && drains; i++) p_join(threads[i]);
    if (rc == EB_OK && drains) {
        eb_result drained = eb_drain(bus, 20000);
        if (drained != EB_OK) bad("eb_drain of a bus that nobody else uses", drained);
    }
    for (i = 0; i < 2 && rc == EB_OK; i++) stoppers[i] = p_go(stopper, NULL);
    for (i = 0; i < 2 && rc == EB_OK; i++) p_join(stoppers[i]);
    p_set(&stop, 1);
    for (i = 0; i < PUBLISHERS + 3 && rc == EB_OK && !drains; i++) p_join(threads[i]);
    eb_destroy(bus);
    while (p_get(&inside) > 0) p_nap(1); /* handlers that were left behind still use the ledger */
    ledger_crashed(&book); /* what was left behind may run once more */
    if (!why[0] && ledger_check(&book, path, 0)) snprintf(why, sizeof why, "%s", book.why);
    return !why[0];
}

TEST everything_at_once(void)
{
    const unsigned long long first = arg_seed;
    long i, failures = 0;
    int64_t events = 0, stuck = 0;
    int n;
    ledger_open(&book, NULL, ROOM);
    book.timeouts = 1;
    for (i = 0; i < arg_rounds && failures < 3; i++) {
        if (!one_round(arg_seed + (uint64_t)i)) {
            failures++;
            fprintf(stderr, "\nthreads 1 %llu\n    %s\n", first + (unsigned long long)i, why);
        }
        events += book.book->used;
        for (n = 1; n <= book.book->used; n++)
            stuck += strcmp(ledger_at(&book, n)->type, "stuck") == 0 && work_runs(&book, n) > 1;
    }
    ledger_total("rounds with 9 threads", i, failures,
                 "seeds %llu to %llu; %lld events, %lld handlers given up", first,
                 first + (unsigned long long)i - 1, (long long)events, (long long)stuck);
    ASSERT_EQ_FMT(0L, failures, "%ld");
    ASSERTm("some handler timed out", stuck > 0 || arg_rounds < 5);
    ledger_close(&book);
    t_path("threads");
    PASS();
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    if (argc > 1) arg_rounds = strtol(argv[1], NULL, 10);
    if (argc > 2) arg_seed = strtoull(argv[2], NULL, 10);
    GREATEST_INIT(); /* the arguments are ours */
    RUN_TEST(everything_at_once);
    GREATEST_MAIN_END();
}
