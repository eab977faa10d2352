/* kill.c - kill -9 at any moment loses nothing: while a process publishes from two threads and
** dispatches with two workers, while it opens the file for the first time, migrates it, recovers
** from the kill before, or shuts down.
**
** A story is one database and ten processes, each killed; the ledger lies in a file that all of them
** map. After every kill the parent looks at the file as it lies; between kills it retries and purges
** dead letters, or takes the schema one version back; at the end it recovers and drains everything,
** and nothing may be missing, double, or stuck. The moments are drawn from the seed, between two
** lines that the child reports; how far the child gets until then is up to the machine.
**
**     kill                     300 kills, seed 1
**     kill KILLS SEED          another number, another seed
**     kill --story SEED STORY  one story again, as often as it takes; every failure prints this line
**
** cc -std=gnu99 -O1 -I.. -I../../sqlite3 kill.c ../../sqlite3/sqlite3.c -lpthread -lm -o kill
*/
#define EBI_SCHEMA_TEST_STEP "CREATE TABLE @extra(seq INTEGER PRIMARY KEY, note TEXT)"
#include "ledger.h"
#include "../proc.h"

enum { ROOM = 20000, MAX_ATTEMPTS = 3, KILLS_PER_STORY = 10, RUN_MAX_US = 20000 };

static ledger book;

/* ---- random numbers ------------------------------------------------------------------------- */

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

/* ---- the child -------------------------------------------------------------------------------- */

static eb_bus *bus;
static int stop;

/* The child must not fail; the parent takes exit status 3 for a failure. */
static void must(const char *what, eb_result rc)
{
    char msg[300];
    if (rc >= 0 || rc == EB_ERR_SHUTDOWN) return;
    eb_errmsg(msg, sizeof msg);
    fprintf(stderr, "\nchild: %s: %s: %s\n", what, eb_strerror(rc), msg);
    _exit(3);
}

/* What a type asks for: ok, slow, late (fails once or twice first), bad (dies), no (rejected). */
static eb_result handler(eb_delivery *d, void *user)
{
    const char *type = d->event->type;
    int n = ledger_run(&book, d);
    (void)user;
    if (strcmp(type, "slow") == 0) p_nap(1 + n % 3);
    if (strcmp(type, "bad") == 0 || (strcmp(type, "late") == 0 && d->attempt <= 1 + n % 2))
        return ledger_ran(&book, n, eb_fail(d, "attempt %d", d->attempt));
    if (strcmp(type, "no") == 0) return ledger_ran(&book, n, eb_reject(d, "never"));
    if (strcmp(type, "nap") == 0 && d->event->seq % 2 && ledger_at(&book, n)->runs < 3) {
        ledger_note(&book, n, LEDGER_SNOOZED);
        return ledger_ran(&book, n, eb_snooze(d, 2));
    }
    return ledger_ran(&book, n, EB_OK);
}

static const char *any_type(uint64_t *r)
{
    static const char *const types[] = {"ok", "ok", "ok", "slow", "late", "bad", "no", "nap"};
    return types[below(r, 8)];
}
static int announce(const char *type, uint64_t *r, char *payload, size_t cap)
{
    int n = ledger_attempt(&book, type, MAX_ATTEMPTS, below(r, 4) ? 0 : 700, payload, cap);
    if (strcmp(type, "no") == 0) ledger_note(&book, n, LEDGER_REJECTED);
    return n;
}

/* Publishes until told to stop: single ones, batches, and now and then one it waits for. */
static void *publisher(void *arg)
{
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
            m[i].type = any_type(&r);
            n[i] = announce(m[i].type, &r, payload[i], sizeof payload[i]);
            m[i].payload = payload[i];
            if (below(&r, 5) == 0) m[i].ordering_key = below(&r, 2) ? "a" : "b";
            if (below(&r, 9) == 0) m[i].delay_ms = 1 + below(&r, 8);
        }
        rc = kind == 0 ? eb_publish(bus, m[0].type, m[0].payload, &ids[0])
                       : eb_send(bus, m, (size_t)count, ids);
        for (i = 0; i < count; i++) ledger_answer(&book, n[i], rc, &ids[i]);
        must("publishing", rc);
        if (below(&r, 8) == 0) p_nap(below(&r, 2));
    }
    return NULL;
}

/* --child run PATH LEDGER SEED DURABILITY */
static int child(char **args)
{
    uint64_t seed[2];
    pthread_t threads[2];
    eb_options o;
    char line[40];
    p_child_init();
    ledger_open(&book, args[1], ROOM);
    seed[0] = mix(strtoull(args[2], NULL, 10));
    seed[1] = mix(seed[0]);
    memset(&o, 0, sizeof o);
    o.path = args[0];
    o.workers = 2;
    o.durability = atoi(args[3]);
    o.retry.max_retries = MAX_ATTEMPTS - 1;
    o.retry.base_delay_ms = 1;
    o.retry.max_delay_ms = 3;
    o.busy_timeout_ms = 20000;
    o.logger.func = t_quiet_func;
    p_report("opening");
    must("eb_open", eb_open(&bus, &o));
    must("eb_subscribe", eb_subscribe(bus, "*", handler, NULL, NULL, NULL));
    must("eb_start", eb_start(bus));
    threads[0] = p_go(publisher, &seed[0]);
    threads[1] = p_go(publisher, &seed[1]);
    p_report("running");
    p_order(line, sizeof line); /* to stop, if it lives so long */
    p_report("stopping");
    if (seed[0] % 2) p_set(&stop, 1); /* or the publishers meet EB_ERR_SHUTDOWN */
    must("eb_shutdown", eb_shutdown(bus));
    p_set(&stop, 1);
    p_join(threads[0]);
    p_join(threads[1]);
    eb_destroy(bus);
    p_report("ended");
    p_order(line, sizeof line);
    return 0;
}
