/* peers.c - Is it faster than what one would use instead: beanstalkd, Redis Streams, PostgreSQL?
**
** The same work for each, 200 bytes of JSON: one producer that waits for each acknowledgement;
** eight producers; one producer and one consumer that takes and acknowledges each event, until all
** are done; and 500 events per second, from the call that publishes to the consumer's hands.
** Peers run on loopback, started by peers.sh, which tells the ports in the environment. Ours, a
** peer, ours, the next peer, ...: each figure stands beside the mean of ours before and after, and
** if these two differ by more than 2x the turn is repeated.
**
** Equal durability. FULL (an event is on disk when publish returns): beanstalkd -f0, appendfsync
** always, synchronous_commit on. NORMAL (a power cut loses the last moments): beanstalkd -f50,
** appendfsync everysec, synchronous_commit off.
**
** Goal: ahead of each in publish by 1, publish by 8, publish to done.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"
#include "work.h"
#include "clients.h"

enum { ROUNDS = 5, SPARE = 6, PRODUCERS = 8, PACED = 300, PACE_NS = 2000000, LAST = 999999999 };
enum { BY_1, BY_8, DONE, P50, P99, FIGURES };
static const double SECONDS = 0.3;

typedef struct peer {
    const char *name, *setting, *port; /* port: name of the variable */
    const c_kind *kind;
    int level;
} peer;

static const peer peers[] = {
    {"beanstalkd", "-f0", "PEER_BEAN_FULL", &c_beanstalkd, EB_DURABLE_FULL},
    {"Redis Streams", "appendfsync always", "PEER_REDIS_FULL", &c_redis, EB_DURABLE_FULL},
    {"PostgreSQL", "synchronous_commit on", "PEER_PG", &c_postgresql, EB_DURABLE_FULL},
    {"beanstalkd", "-f50", "PEER_BEAN_NORMAL", &c_beanstalkd, EB_DURABLE_NORMAL},
    {"Redis Streams", "appendfsync everysec", "PEER_REDIS_NORMAL", &c_redis, EB_DURABLE_NORMAL},
    {"PostgreSQL", "synchronous_commit off", "PEER_PG", &c_postgresql, EB_DURABLE_NORMAL},
};
enum { PEERS = sizeof peers / sizeof *peers };

static int64_t sent_ns[PACED], taken_ns[PACED];

static void percentiles(double *figures)
{
    b_samples s = {0};
    int i;
    for (i = 0; i < PACED; i++) b_add(&s, (double)(taken_ns[i] - sent_ns[i]) / 1e3);
    figures[P50] = b_percentile(&s, 50);
    figures[P99] = b_percentile(&s, 99);
    b_free(&s);
}

/* ---- a peer -------------------------------------------------------------------------------- */

typedef struct client {
    const peer *peer;
    c_conn conn;
    int64_t until_ns, events;
    int paced;
} client;

static void open_client(client *c, const peer *p)
{
    memset(c, 0, sizeof *c);
    c->peer = p;
    c_connect(&c->conn, atoi(getenv(p->port)));
    p->kind->open(&c->conn, p->level != EB_DURABLE_FULL);
}

static void *produce(void *arg)
{
    client *c = (client *)arg;
    char payload[B_PAYLOAD_BYTES + 1];
    do {
        b_payload(payload, (unsigned)c->events++);
        c->peer->kind->put(&c->conn, payload, 0);
    } while (b_ns() < c->until_ns);
    return NULL;
}

/* Takes and acknowledges until the last one. */
static void *consume(void *arg)
{
    client *c = (client *)arg;
    char payload[B_PAYLOAD_BYTES + 1];
    unsigned n;
    do {
        c->peer->kind->take(&c->conn, payload);
        n = b_number(payload);
        if (c->paced && n < PACED) taken_ns[n] = b_ns();
        c->peer->kind->ack(&c->conn);
        c->events++;
    } while (n != LAST);
    return NULL;
}

static double producers_rate(client *clients, int count)
{
    pthread_t threads[PRODUCERS];
    int64_t begin = b_ns(), events = 0;
    int i;
    for (i = 0; i < count; i++) {
        clients[i].events = 0;
        clients[i].until_ns = begin + (int64_t)(SECONDS * 1e9);
        if (i > 0 && pthread_create(&threads[i], NULL, produce, &clients[i]) != 0)
            b_die("pthread_create", "failed");
    }
    produce(&clients[0]);
    for (i = 1; i < count; i++) pthread_join(threads[i], NULL);
    for (i = 0; i < count; i++) events += clients[i].events;
    return (double)events * 1e9 / (double)(b_ns() - begin);
}

/* One producer beside one consumer, until the last event is acknowledged. */
static double done_rate(client *producer, client *consumer)
{
    char payload[B_PAYLOAD_BYTES + 1];
    pthread_t thread;
    int64_t begin = b_ns();
    consumer->events = producer->events = 0;
    producer->until_ns = begin + (int64_t)(SECONDS * 1e9);
    if (pthread_create(&thread, NULL, consume, consumer) != 0) b_die("pthread_create", "failed");
    produce(producer);
    b_payload(payload, LAST);
    producer->peer->kind->put(&producer->conn, payload, 0);
    pthread_join(thread, NULL);
    if (consumer->events != producer->events + 1) b_die(producer->peer->name, "events are missing");
    return (double)consumer->events * 1e9 / (double)(b_ns() - begin);
}

static void paced(client *producer, client *consumer, double *figures)
{
    const c_kind *kind = producer->peer->kind;
    char payload[B_PAYLOAD_BYTES + 1];
    pthread_t thread;
    int64_t due;
    int i;
    if (kind->listen) kind->listen(&consumer->conn);
    consumer->paced = 1;
    if (pthread_create(&thread, NULL, consume, consumer) != 0) b_die("pthread_create", "failed");
    b_sleep_ms(20);
    due = b_ns();
    for (i = 0; i < PACED; i++) {
        b_sleep_until(due += PACE_NS);
        b_payload(payload, (unsigned)i);
        sent_ns[i] = b_ns();
        kind->put(&producer->conn, payload, 1);
    }
    b_payload(payload, LAST);
    kind->put(&producer->conn, payload, 1);
    pthread_join(thread, NULL);
    percentiles(figures);
}

static void measure_peer(const peer *p, double *figures)
{
    client clients[PRODUCERS], consumer;
    int i;
    for (i = 0; i < PRODUCERS; i++) open_client(&clients[i], p);
    open_client(&consumer, p);
    p->kind->clear(&clients[0].conn);
    figures[BY_1] = producers_rate(clients, 1);
    p->kind->clear(&clients[0].conn);
    figures[BY_8] = producers_rate(clients, PRODUCERS);
    p->kind->clear(&clients[0].conn);
    figures[DONE] = done_rate(&clients[0], &consumer);
    p->kind->clear(&clients[0].conn);
    paced(&clients[0], &consumer, figures);
    p->kind->clear(&clients[0].conn);
    for (i = 0; i < PRODUCERS; i++) close(clients[i].conn.fd);
    close(consumer.conn.fd);
}

/* ---- ours ---------------------------------------------------------------------------------- */

typedef struct ours {
    w_bus store, live;
    eb_bus *paced;
} ours;

static eb_result on_paced(eb_delivery *delivery, void *user)
{
    int64_t now = b_ns();
    (void)user;
    taken_ns[b_number(delivery->event->payload)] = now;
    return EB_OK;
}

static void open_ours(ours *o, int level)
{
    eb_options options;
    memset(&options, 0, sizeof options);
    w_open(&o->store, b_path(level == EB_DURABLE_FULL ? "store-full" : "store"), level, W_STORE);
    w_open(&o->live, b_path(level == EB_DURABLE_FULL ? "live-full" : "live"), level, W_LIVE);
    options.path = b_path(level == EB_DURABLE_FULL ? "paced-full" : "paced");
    options.durability = level;
    options.logger.func = b_quiet;
    B_OK(eb_open(&o->paced, &options));
    B_OK(eb_subscribe(o->paced, "*", on_paced, NULL, NULL, NULL));
    B_OK(eb_start(o->paced));
}

static void close_ours(ours *o)
{
    w_close(&o->store);
    w_close(&o->live);
    eb_destroy(o->paced);
}

static void measure_ours(ours *o, double *figures)
{
    static const w_job by_1 = {"eb_post", W_STORE, 1, 0, 0, 0};
    static const w_job by_8 = {"eb_post by 8", W_STORE, PRODUCERS, 0, 0, 0};
    static const w_job done = {"eb_post to done", W_LIVE, 1, 0, 0, 0};
    char payload[B_PAYLOAD_BYTES + 1];
    int64_t due;
    int i;
    figures[BY_1] = w_rate(&by_1, &o->store, SECONDS);
    figures[BY_8] = w_rate(&by_8, &o->store, SECONDS);
    figures[DONE] = w_rate(&done, &o->live, SECONDS);
    due = b_ns();
    for (i = 0; i < PACED; i++) {
        b_sleep_until(due += PACE_NS);
        b_payload(payload, (unsigned)i);
        sent_ns[i] = b_ns();
        B_OK(eb_post(o->paced, "order.placed", payload, NULL));
    }
    B_OK(eb_drain(o->paced, 20000));
    percentiles(figures);
}

/* ---- side by side -------------------------------------------------------------------------- */

typedef struct result {
    b_samples ours[FIGURES], theirs[FIGURES], ahead[FIGURES]; /* ahead: > 1 is good for us */
} result;

/* How many times better a is than b: rates by being larger, latencies by being smaller. */
static double ahead(int figure, double a, double b) { return figure < P50 ? a / b : b / a; }

static void round_of(ours *o, int level, result *results, int *repeated)
{
    double before[FIGURES], after[FIGURES], theirs[FIGURES];
    int i, k;
    measure_ours(o, before);
    for (i = 0; i < PEERS; i++) {
        if (peers[i].level != level || !getenv(peers[i].port)) continue;
        for (;;) {
            measure_peer(&peers[i], theirs);
            measure_ours(o, after);
            if (b_steady(before[BY_1], after[BY_1])) break;
            if (*repeated >= SPARE) {
                b_slow_turns++;
                break;
            }
            ++*repeated;
            memcpy(before, after, sizeof before);
        }
        for (k = 0; k < FIGURES; k++) {
            double mean = (before[k] + after[k]) / 2;
            b_add(&results[i].ours[k], mean);
            b_add(&results[i].theirs[k], theirs[k]);
            b_add(&results[i].ahead[k], ahead(k, mean, theirs[k]));
        }
        memcpy(before, after, sizeof before);
        b_progress(b_durability(level), i + 1, PEERS);
    }
}

static void verdict(const peer *p, result *r)
{
    static const char *const what[] = {"publish by 1", "publish by 8", "publish to done"};
    const char *space = strrchr(p->setting, ' '), *setting = space ? space + 1 : p->setting;
    int k;
    for (k = BY_1; k <= DONE; k++)
        b_verdict(b_durability(p->level), b_text("%s %s: %s", p->name, setting, what[k]),
                  b_rate(&r->ours[k]), b_rate(&r->theirs[k]),
                  b_text("ours %s x", b_spread(&r->ahead[k])), "> 1 x",
                  b_median(&r->ahead[k]) > 1);
}

static void table(result *results)
{
    static const char *const heads[FIGURES] = {"publish by 1", "by 8", "to done", "p50", "p99"};
    int i, k;
    printf("\n   events/s and, from publish to the consumer at 500/s, microseconds; in brackets how"
           " many times\n   better ours was in the same turn: above 1 we are ahead\n\n");
    printf("   %-7s %-14s %-23s", "level", "peer", "setting");
    for (k = 0; k < FIGURES; k++) printf("%16s", heads[k]);
    printf("\n");
    for (i = 0; i < PEERS; i++) {
        if (results[i].ahead[0].n == 0) continue;
        printf("   %-7s %-14s %-23s", b_durability(peers[i].level), peers[i].name,
               peers[i].setting);
        for (k = 0; k < FIGURES; k++)
            printf(" %7.0f (%5.2f)", b_median(&results[i].theirs[k]),
                   b_median(&results[i].ahead[k]));
        printf("\n   %-7s %-14s %-23s", "", "eventbus.h", b_durability(peers[i].level));
        for (k = 0; k < FIGURES; k++) printf(" %7.0f        ", b_median(&results[i].ours[k]));
        printf("\n");
    }
    printf("\n");
}

int main(void)
{
    static const int levels[] = {EB_DURABLE_FULL, EB_DURABLE_NORMAL};
    static result results[PEERS];
    int round, rounds = b_turns(ROUNDS), k, repeated = 0;
    ours o[2];
    b_heading("peers: the same work for each, started side by side");
    for (k = 0; k < 2; k++) open_ours(&o[k], levels[k]);
    for (round = 0; round < rounds; round++)
        for (k = 0; k < 2; k++) {
            round_of(&o[k], levels[k], results, &repeated);
            b_progress("rounds", round * 2 + k + 1, rounds * 2);
        }
    for (k = 0; k < 2; k++) close_ours(&o[k]);
    printf("   %d rounds (%d turns repeated: slow disk spell)\n", rounds, repeated);
    for (k = 0; k < PEERS; k++)
        if (results[k].ahead[0].n > 0) verdict(&peers[k], &results[k]);
    table(results);
    return 0;
}
