/* latency.c - How long from eb_post to the start of the handler, beside the raw commit alone?
**
** One event every 2 ms. Turns: raw, bus, raw, bus, ... Raw: one event into the same tables as ours,
** BEGIN IMMEDIATE to COMMIT. Bus: the call of eb_post to the first line of the handler, which runs
** on a worker thread. Percentiles are over all samples of the run.
**
** Target: p99 < 2 x the raw commit's p99, and < 10 ms.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

enum { TURNS = 8, SPARE = 4, EVENTS = 400, PACE_NS = 2000000 };

static int64_t posted_ns[EVENTS], started_ns[EVENTS];

static eb_result on_event(eb_delivery *delivery, void *user)
{
    int64_t now = b_ns();
    (void)user;
    started_ns[b_number(delivery->event->payload)] = now;
    return EB_OK;
}

static void raw_turn(b_raw *raw, b_samples *commit)
{
    int64_t due = b_ns(), begin;
    int i;
    for (i = 0; i < EVENTS; i++) {
        b_sleep_until(due += PACE_NS);
        begin = b_ns();
        b_raw_insert(raw);
        b_add(commit, (double)(b_ns() - begin) / 1e3);
    }
}

static void bus_turn(eb_bus *bus, b_samples *post, b_samples *start)
{
    int64_t due = b_ns();
    char payload[B_PAYLOAD_BYTES + 1];
    int i;
    for (i = 0; i < EVENTS; i++) {
        b_sleep_until(due += PACE_NS);
        b_payload(payload, (unsigned)i);
        posted_ns[i] = b_ns();
        B_OK(eb_post(bus, "order.placed", payload, NULL));
        b_add(post, (double)(b_ns() - posted_ns[i]) / 1e3);
    }
    B_OK(eb_drain(bus, 20000));
    for (i = 0; i < EVENTS; i++) b_add(start, (double)(started_ns[i] - posted_ns[i]) / 1e3);
    b_sleep_ms(20);
}

static void row(const char *name, b_samples *s)
{
    printf("   %-34s p50 %7.0f us   p99 %7.0f us   p99.9 %7.0f us   max %7.0f us\n", name,
           b_percentile(s, 50), b_percentile(s, 99), b_percentile(s, 99.9), b_max(s));
}

static void measure(int durability)
{
    b_samples raw = {0}, post = {0}, start = {0}, ratio = {0};
    b_samples before = {0}, after = {0}, turn_post = {0}, turn_start = {0};
    const char *level = b_durability(durability);
    char name[80], figure[120];
    int turn = 0, repeated = 0;
    double p99, limit;
    eb_options options;
    eb_bus *bus;
    b_raw writer;

    memset(&options, 0, sizeof options);
    options.path = b_path("latency");
    options.durability = durability;
    options.logger.func = b_quiet;
    B_OK(eb_open(&bus, &options));
    B_OK(eb_subscribe(bus, "order.*", on_event, NULL, NULL, NULL));
    B_OK(eb_start(bus));
    b_raw_open_same(&writer, b_path("latency-raw"), durability);

    raw_turn(&writer, &before); /* warm up */
    b_free(&before);
    raw_turn(&writer, &before);
    while (turn < TURNS) {
        bus_turn(bus, &turn_post, &turn_start);
        raw_turn(&writer, &after);
        if (b_steady(b_median(&before), b_median(&after)) || repeated == SPARE) {
            b_join(&raw, &after);
            b_join(&post, &turn_post);
            b_join(&start, &turn_start);
            b_add(&ratio, b_percentile(&turn_start, 99) / b_percentile(&after, 99));
            b_progress(level, ++turn, TURNS);
        } else
            repeated++;
        b_free(&before);
        before = after;
        memset(&after, 0, sizeof after);
        b_free(&turn_post);
        b_free(&turn_start);
    }
    eb_destroy(bus);
    b_raw_close(&writer);

    p99 = b_percentile(&start, 99);
    limit = b_percentile(&raw, 99);
    printf("   durability %s, %d turns of %d events at 500/s (%d repeated: slow disk spell)\n",
           level, TURNS, EVENTS, repeated);
    row("raw commit, same tables", &raw);
    row("eb_post", &post);
    row("eb_post to handler start", &start);
    printf("   p99 to handler start / p99 raw commit, turn by turn: %.2f [%.2f .. %.2f]\n",
           b_median(&ratio), b_min(&ratio), b_max(&ratio));
    snprintf(name, sizeof name, "post to handler start %s, p99", level);
    snprintf(figure, sizeof figure, "%.2f ms, %.2f x raw commit p99", p99 / 1e3, p99 / limit);
    b_verdict(name, figure, "< 2 x and < 10 ms", p99 < 2 * limit && p99 < 10000);
    b_free(&raw), b_free(&post), b_free(&start), b_free(&ratio), b_free(&before);
}

int main(void)
{
    b_heading("latency: from eb_post to the first line of the handler, 500 events/s");
    measure(EB_DURABLE_FULL);
    measure(EB_DURABLE_NORMAL);
    return 0;
}
