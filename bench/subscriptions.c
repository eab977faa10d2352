/* subscriptions.c - Do 10,000 subscriptions slow down a publish that matches one of them?
**
** Buses with one subscription, with 10,000 plain types, with 10,000 prefixes ("shop7.*"), and with
** both and a few patterns that must be tried one by one. Each event matches exactly one. The buses
** take turns, with raw SQLite (a) in between; the figure is the rate beside the bus with one
** subscription. On the calling thread (workers = EB_NONE): what is measured is the bus, not how
** soon the system wakes a thread. One by one with eb_publish, and a hundred by eb_send and eb_pump,
** where the commit is shared and matching weighs most. Then what subscribing and unsubscribing
** cost among so many.
**
** Goal: eb_publish >= 0.9 of the same with one subscription, stored, matched, run and done.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

enum { MANY = 10000, TURNS = 7, SPARE = 6, BUSES = 4, SEARCHES = 2000,
       DURABILITY = EB_DURABLE_NORMAL }; /* where the bus's own work shows most */
static const double SECONDS = 0.12;

static const char *const names[BUSES] = {"one subscription", "10,000 types", "10,000 prefixes",
                                         "5,000 types, 5,000 prefixes, 10 globs"};

typedef struct side {
    eb_bus *bus;
    int kind, batch;
    unsigned number;
    int64_t handled, published;
} side;

static eb_result on_event(eb_delivery *delivery, void *user)
{
    (void)delivery;
    ++*(int64_t *)user;
    return EB_OK;
}

/* Subscription i of this bus. */
static void pattern(int kind, int i, char *out, size_t size)
{
    if (kind == 3 && i < 10) snprintf(out, size, "*.never.%d.*", i);
    else if (kind == 1 || (kind == 3 && i % 2)) snprintf(out, size, "shop%d.order", i);
    else snprintf(out, size, "shop%d.*", i);
}

static void open_side(side *s, int kind, int durability, b_samples *subscribe_us)
{
    eb_options options;
    char name[40], text[40];
    int i, count = kind == 0 ? 1 : MANY;
    memset(&options, 0, sizeof options);
    memset(s, 0, sizeof *s);
    snprintf(name, sizeof name, "subscriptions-%d", kind);
    options.path = b_path(name);
    options.durability = durability;
    options.workers = EB_NONE;
    options.logger.func = b_quiet;
    s->kind = kind;
    B_OK(eb_open(&s->bus, &options));
    for (i = 0; i < count; i++) {
        int64_t begin = b_ns();
        pattern(kind, kind == 0 ? 5000 : i, text, sizeof text);
        B_OK(eb_subscribe(s->bus, text, on_event, &s->handled, NULL, NULL));
        if (kind) b_add(subscribe_us, (double)(b_ns() - begin) / 1e3);
        if (kind && (i + 1) % 1000 == 0) b_progress(names[kind], i + 1, count);
    }
    B_OK(eb_start(s->bus));
}

/* Publishes, each to one of the 10,000, one by one or in batches: events/s to done. */
static double work(void *arg)
{
    enum { BATCH = 100 };
    static char payloads[BATCH][B_PAYLOAD_BYTES + 1], types[BATCH][40];
    static eb_message messages[BATCH];
    side *s = (side *)arg;
    int64_t begin = b_ns(), now, n = 0;
    int i, batch = s->batch ? BATCH : 1;
    do {
        for (i = 0; i < batch; i++) {
            unsigned shop = s->kind == 0 ? 5000 : 10 + (s->number++ * 7919u) % (MANY - 10);
            snprintf(types[i], sizeof types[i], "shop%u.order", shop);
            b_payload(payloads[i], s->number);
            messages[i].type = types[i];
            messages[i].payload = payloads[i];
        }
        if (s->batch) {
            B_OK(eb_send(s->bus, messages, BATCH, NULL));
            B_OK(eb_pump(s->bus, EB_NONE, NULL));
        } else {
            B_OK(eb_publish(s->bus, types[0], payloads[0], NULL));
        }
        n += batch;
        now = b_ns();
    } while ((double)(now - begin) < SECONDS * 1e9);
    s->published += n;
    return (double)n * 1e9 / (double)(now - begin);
}

/* One more subscription among all the others, and away with it. */
static void come_and_go(side *s, b_samples *both_us)
{
    eb_id id;
    int i;
    for (i = 0; i < SEARCHES; i++) {
        int64_t begin = b_ns();
        B_OK(eb_subscribe(s->bus, "guest.*", on_event, &s->handled, NULL, &id));
        B_OK(eb_unsubscribe(s->bus, id.str));
        b_add(both_us, (double)(b_ns() - begin) / 1e3);
    }
}

/* All buses in turns, one way to publish. */
static void measure(side *sides, b_anchor *a, int batch)
{
    const char *level = b_durability(DURABILITY);
    b_samples rate[BUSES], ratio[BUSES], to_one[BUSES], one;
    int turn, turns = b_turns(TURNS), k;
    memset(rate, 0, sizeof rate);
    memset(ratio, 0, sizeof ratio);
    memset(to_one, 0, sizeof to_one);
    memset(&one, 0, sizeof one);
    for (k = 0; k < BUSES; k++) sides[k].batch = batch, work(&sides[k]); /* warm up */
    for (turn = 0; turn < turns; turn++) {
        for (k = 0; k < BUSES; k++) {
            b_free(&one);
            b_turn(a, work, &sides[k], &rate[k], &one);
            b_add(&ratio[k], one.v[0]);
            b_add(&to_one[k], ratio[k].v[turn] / ratio[0].v[turn]);
        }
        b_progress("turns", turn + 1, turns);
    }
    printf("   %s; durability %s, %d turns (%d repeated); a: %.0f/s\n",
           batch ? "eb_send 100, then eb_pump" : "eb_publish", level, turns, a->repeated,
           b_median(&a->rates));
    for (k = 0; k < BUSES; k++) {
        printf("   %-40s %7.0f/s   %s of one   %.2f a\n", names[k], b_median(&rate[k]),
               b_spread(&to_one[k]), b_median(&ratio[k]));
        if (k > 0 && !batch) {
            b_verdict(level, b_text("eb_publish, %s", k == 3 ? "10,000 mixed" : names[k]),
                      b_rate(&rate[k]), b_rate(&a->rates),
                      b_text("%s of one", b_spread(&to_one[k])), ">= 0.9",
                      b_median(&to_one[k]) >= 0.9);
        }
        b_free(&rate[k]), b_free(&ratio[k]), b_free(&to_one[k]);
    }
    b_free(&one);
}

int main(void)
{
    b_samples subscribe_us = {0}, both_us = {0};
    side sides[BUSES];
    b_anchor a;
    int k;
    b_heading("subscriptions: a publish that matches one of 10,000");
    for (k = 0; k < BUSES; k++) open_side(&sides[k], k, DURABILITY, &subscribe_us);
    b_anchor_open(&a, b_path("subscriptions-raw"), DURABILITY, SPARE);
    measure(sides, &a, 0);
    measure(sides, &a, 1);
    come_and_go(&sides[3], &both_us);
    printf("   eb_subscribe, one of 10,000: p50 %.0f us, p99 %.0f us (a small commit each)\n",
           b_percentile(&subscribe_us, 50), b_percentile(&subscribe_us, 99));
    printf("   eb_subscribe + eb_unsubscribe beside 10,000: p50 %.0f us, p99 %.0f us\n",
           b_percentile(&both_us, 50), b_percentile(&both_us, 99));
    for (k = 0; k < BUSES; k++) {
        if (sides[k].handled != sides[k].published) b_die(names[k], "not handled exactly once");
        eb_destroy(sides[k].bus);
    }
    b_free(&subscribe_us), b_free(&both_us);
    b_anchor_close(&a);
    return 0;
}
