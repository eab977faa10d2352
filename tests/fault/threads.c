/* threads.c - everything at once: publishers, workers, handlers that time out, subscribing and
** unsubscribing, statistics, lists, dead letters, waiting, and shutting down from two threads, with
** random yields compiled into the bus. For the thread sanitizer; the ledger checks that nothing was
** lost on the way, so it means something without one too.
**
**     threads              12 rounds, seed 1
**     threads ROUNDS SEED  another number, another seed; a failure prints ROUNDS 1 and its seed
**
** cc -std=gnu99 -O1 -g -fsanitize=thread -I.. -I../../sqlite3 threads.c ../../sqlite3/sqlite3.c
**    -lpthread -lm -o threads
*/
static void shake(void);
#define EBI_YIELD() shake()
#include "ledger.h"
#include "../proc.h"
#include <sched.h>

enum { ROOM = 3000, MAX_ATTEMPTS = 3, PUBLISHERS = 3, WORKERS = 3, TIMEOUT_MS = 40 };

static long arg_rounds = 12;
static uint64_t arg_seed = 1;

static ledger book;
static eb_bus *bus;
static int stop;   /* threads: please end */
static int inside; /* handlers that run */
static char why[2000];
static pthread_mutex_t why_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- luck ---------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
static int below(uint64_t *state, int n)
{
    *state = mix(*state);
    return (int)(*state % (uint64_t)n);
}
static void nap_us(int us)
{
    struct timespec ts;
    ts.tv_sec = 0;
    ts.tv_nsec = us * 1000L;
    nanosleep(&ts, NULL);
}

/* At the interesting places of the bus: mostly nothing, sometimes another thread's turn. */
static void shake(void)
{
    static uint64_t turns;
    uint64_t luck = mix(__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED) + arg_seed * 7919);
    if (luck % 4 == 0) sched_yield();
    if (luck % 32 == 1) nap_us((int)(luck % 300));
}

static void bad(const char *what, eb_result rc)
{
    char msg[300];
    eb_errmsg(msg, sizeof msg);
    pthread_mutex_lock(&why_lock);
    if (!why[0]) snprintf(why, sizeof why, "%s: %s: %s", what, eb_strerror(rc), msg);
    pthread_mutex_unlock(&why_lock);
}

/* ---- handlers ------------------------------------------------------------------------------------- */

/* What a type asks for: ok, late (fails first), bad (dies), no (rejected), nap (snoozes), stuck (is
** over its deadline the first time), self (looks at the bus from inside). */
static eb_result handle(eb_delivery *d)
{
    const char *type = d->event->type;
    int n = ledger_run(&book, d);
    eb_stats st;
    if (strcmp(type, "bad") == 0 || (strcmp(type, "late") == 0 && d->attempt <= 1 + n % 2))
        return ledger_ran(&book, n, eb_fail(d, "attempt %d", d->attempt));
    if (strcmp(type, "no") == 0) return ledger_ran(&book, n, eb_reject(d, "never"));
    if (strcmp(type, "nap") == 0 && LEDGER_ADD(ledger_at(&book, n)->runs, 0) == 1) {
        ledger_note(&book, n, LEDGER_SNOOZED);
        return ledger_ran(&book, n, eb_snooze(d, 2));
    }
    if (strcmp(type, "stuck") == 0 && LEDGER_ADD(ledger_at(&book, n)->runs, 0) == 1) {
        int64_t end = p_ms() + 10 * TIMEOUT_MS;
        while (!eb_cancelled(d) && p_ms() < end) nap_us(500);
        p_nap(n % 7); /* it still reads the event after it was given up */
        if (ledger_number(d->event->payload) != n) bad("the event changed", EB_ERR_CORRUPT);
    }
    if (strcmp(type, "self") == 0) {
        eb_result rc = eb_stats_get(eb_bus_store(d->bus), &st);
        if (rc != EB_OK && rc != EB_ERR_SHUTDOWN) bad("eb_stats_get in a handler", rc);
        if (eb_drain(d->bus, 0) != EB_ERR_STATE) bad("eb_drain in a handler", EB_OK);
    }
    return ledger_ran(&book, n, EB_OK);
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

/* ---- threads -------------------------------------------------------------------------------------- */

static void *publisher(void *arg)
{
    static const char *const types[] = {"ok", "ok", "ok", "late", "bad", "no", "nap", "self"};
    uint64_t r = *(uint64_t *)arg;
    char payload[3][900];
    while (!p_get(&stop) && LEDGER_ADD(book.book->used, 0) < ROOM - 50) {
        int kind = below(&r, 12), count = kind < 9 ? 1 : 3, i, n[3];
        eb_message m[3];
        eb_id ids[3];
        eb_result rc;
        memset(m, 0, sizeof m);
        memset(ids, 0, sizeof ids);
        for (i = 0; i < count; i++) {
            m[i].type = below(&r, 60) ? types[below(&r, 8)] : "stuck";
            n[i] = ledger_attempt(&book, m[i].type, MAX_ATTEMPTS, 0, payload[i], sizeof payload[i]);
            if (strcmp(m[i].type, "no") == 0) ledger_note(&book, n[i], LEDGER_REJECTED);
            m[i].payload = payload[i];
            if (below(&r, 5) == 0) m[i].ordering_key = below(&r, 2) ? "a" : "b";
            if (below(&r, 9) == 0) m[i].delay_ms = 1 + below(&r, 8);
        }
        rc = kind == 0 ? eb_publish(bus, m[0].type, m[0].payload, &ids[0])
                       : eb_send(bus, m, (size_t)count, ids);
        for (i = 0; i < count; i++) ledger_answer(&book, n[i], rc, &ids[i]);
        if (rc == EB_ERR_SHUTDOWN) break;
        if (rc < 0) bad("publishing", rc);
        if (below(&r, 16) == 0) nap_us(below(&r, 900));
    }
    return NULL;
}

/* Subscribes and unsubscribes, now and then twice at once. */
static void *visits(void *arg)
{
    static int alive[2];
    uint64_t r = *(uint64_t *)arg;
    while (!p_get(&stop)) {
        eb_id id[2];
        int i, count = 1 + below(&r, 2);
        eb_result rc = EB_OK;
        for (i = 0; i < count && rc == EB_OK; i++) {
            p_set(&alive[i], 1);
            rc = eb_subscribe(bus, below(&r, 2) ? "*" : "o*", visitor, &alive[i], NULL, &id[i]);
        }
        if (rc != EB_OK) count = i - 1;
        nap_us(below(&r, 2000));
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
static int some_event(uint64_t *r, eb_id *id)
{
    int n, used = (int)LEDGER_ADD(book.book->used, 0), tries;
    for (tries = 0; tries < 20 && used > 0; tries++) {
        n = 1 + below(r, used);
        if (LEDGER_ADD(book.book->events[n].state, 0) != LEDGER_ACKED) continue;
        memcpy(id->str, book.book->events[n].id, sizeof id->str);
        return n;
    }
    return 0;
}

/* Looks at everything and changes what an operator may change. */
static void *observer(void *arg)
{
    uint64_t r = *(uint64_t *)arg;
    eb_store *store = eb_bus_store(bus);
    eb_event_list list;
    eb_query q;
    eb_stats st;
    eb_id id;
    int n;
    memset(&q, 0, sizeof q);
    while (!p_get(&stop)) {
        q.limit = 1 + below(&r, 50);
        n = some_event(&r, &id);
        switch (below(&r, 8)) {
        case 0: fine("eb_stats_get", eb_stats_get(store, &st)); break;
        case 1:
            fine("eb_log_read", eb_log_read(store, &q, &list));
            eb_event_list_free(&list);
            break;
        case 2: eb_wake(bus); break;
        case 3: fine("eb_drain", eb_drain(bus, below(&r, 3))); break;
        case 4:
            if (n) fine("eb_wait", eb_wait(bus, id.str, below(&r, 5)));
            break;
        case 5:
            if (n) ledger_note(&book, n, LEDGER_MOVED);
            if (n && below(&r, 4) == 0) fine("eb_dlq_move", eb_dlq_move(store, id.str, "enough"));
            break;
        default:
            fine("eb_dlq_list", eb_dlq_list(store, &q, &list));
            if (list.count > 0) {
                const eb_event *e = &list.items[below(&r, (int)list.count)];
                ledger_note(&book, ledger_number(e->payload), LEDGER_RETRIED);
                fine("eb_dlq_retry", eb_dlq_retry(store, e->id.str, NULL));
            }
            eb_event_list_free(&list);
        }
        if (below(&r, 4) == 0) nap_us(below(&r, 1500));
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

/* ---- a round --------------------------------------------------------------------------------------- */

/* One bus from open to destroy, then the check. 0: something is wrong, see why. */
static int one_round(uint64_t seed)
{
    const char *path = t_path("threads");
    uint64_t r = mix(seed), seeds[8];
    pthread_t threads[PUBLISHERS + 3], stoppers[2];
    eb_options o;
    eb_result rc;
    int i;
    why[0] = 0;
    p_set(&stop, 0);
    ledger_clear(&book);
    memset(&o, 0, sizeof o);
    o.path = path;
    o.workers = WORKERS;
    o.durability = EB_DURABLE_NORMAL;
    o.handler_timeout_ms = TIMEOUT_MS;
    o.shutdown_timeout_ms = below(&r, 2) ? 20 : 30000;
    o.retry.max_retries = MAX_ATTEMPTS - 1;
    o.retry.base_delay_ms = 1;
    o.retry.max_delay_ms = 3;
    o.logger.func = t_quiet_func;
    o.idle_poll_ms = 5;
    rc = eb_open(&bus, &o);
    if (rc == EB_OK) rc = eb_subscribe(bus, "*", handler, NULL, NULL, NULL);
    if (rc == EB_OK) rc = eb_start(bus);
    if (rc != EB_OK) bad("beginning", rc);
    for (i = 0; i < PUBLISHERS + 3 && rc == EB_OK; i++) {
        seeds[i] = mix(seed * 31 + (uint64_t)i);
        threads[i] = p_go(i < PUBLISHERS ? publisher : i == PUBLISHERS ? visits : observer, &seeds[i]);
    }
    p_nap(150 + below(&r, 250));
    for (i = 0; i < 2 && rc == EB_OK; i++) stoppers[i] = p_go(stopper, NULL);
    for (i = 0; i < 2 && rc == EB_OK; i++) p_join(stoppers[i]);
    p_set(&stop, 1);
    for (i = 0; i < PUBLISHERS + 3 && rc == EB_OK; i++) p_join(threads[i]);
    eb_destroy(bus);
    while (p_get(&inside) > 0) p_nap(1); /* handlers that were left behind still use the ledger */
    ledger_crashed(&book); /* what was left behind may run once more */
    if (!why[0] && ledger_check(&book, path, 0)) snprintf(why, sizeof why, "%s", book.why);
    return !why[0];
}

TEST everything_at_once(void)
{
    long i, failures = 0;
    int64_t events = 0, stuck = 0;
    int n;
    ledger_open(&book, NULL, ROOM);
    for (i = 0; i < arg_rounds && failures < 3; i++) {
        if (!one_round(arg_seed + (uint64_t)i)) {
            failures++;
            fprintf(stderr, "\nthreads 1 %llu\n    %s\n", (unsigned long long)arg_seed +
                    (uint64_t)i, why);
        }
        events += book.book->used;
        for (n = 1; n <= book.book->used; n++)
            stuck += strcmp(ledger_at(&book, n)->type, "stuck") == 0 && ledger_at(&book, n)->runs > 1;
    }
    fprintf(stderr, "%ld rounds, %lld events, %lld of them over their deadline; seeds %llu to %llu\n",
            i, (long long)events, (long long)stuck, (unsigned long long)arg_seed,
            (unsigned long long)arg_seed + (uint64_t)i - 1);
    ASSERT_EQ_FMT(0L, failures, "%ld");
    ASSERTm("some handler timed out", stuck > 0 || arg_rounds < 5);
    ledger_close(&book);
    t_path("threads");
    PASS();
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    char *no_args[2];
    if (argc > 1) arg_rounds = strtol(argv[1], NULL, 10);
    if (argc > 2) arg_seed = strtoull(argv[2], NULL, 10);
    no_args[0] = argv[0];
    no_args[1] = NULL;
    argc = 1;
    argv = no_args;
    GREATEST_MAIN_BEGIN();
    RUN_TEST(everything_at_once);
    GREATEST_MAIN_END();
}
