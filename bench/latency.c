/* latency.c - How long from eb_post to the start of the handler, beside the raw commit alone?
**
** Paced: one event every 2 ms. Turns: raw, bus, raw, bus, ... Raw: one event into the same tables
** as ours, BEGIN IMMEDIATE to COMMIT. Bus: the call of eb_post to the first line of the handler,
** which runs on a worker thread. Percentiles are over all samples of the run.
** Steady: one thread posts as fast as it can, handlers run meanwhile, beside the raw writer in
** turns. What checkpoints and other housekeeping cost a publisher shows at p99.9.
**
** Writes build/latency.tsv for the charts. Goals: paced p99 < 2 x the raw commit's p99 and
** < 10 ms; FULL: <= raw commit p99 + 0.5 ms; NORMAL: <= 0.3 ms, and p99.9 of eb_post <= 20 x p50,
** paced and steady.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

enum { TURNS = 6, SPARE = 4, EVENTS = 400, PACE_NS = 2000000, STEADY_TURNS = 6 };
static const double STEADY_SECONDS = 0.5;

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

static void steady_raw(b_raw *raw, b_samples *commit)
{
    int64_t begin, now = b_ns(), until = now + (int64_t)(STEADY_SECONDS * 1e9);
    while (now < until) {
        begin = now;
        b_raw_insert(raw);
        now = b_ns();
        b_add(commit, (double)(now - begin) / 1e3);
    }
}

static void steady_bus(eb_bus *bus, b_samples *post)
{
    int64_t begin, now = b_ns(), until = now + (int64_t)(STEADY_SECONDS * 1e9);
    char payload[B_PAYLOAD_BYTES + 1];
    b_payload(payload, 0);
    while (now < until) {
        begin = now;
        B_OK(eb_post(bus, "order.placed", payload, NULL));
        now = b_ns();
        b_add(post, (double)(now - begin) / 1e3);
    }
    B_OK(eb_drain(bus, 20000));
    b_sleep_ms(20);
}

static void row(FILE *data, const char *level, const char *name, b_samples *s)
{
    static const double marks[] = {0,  10, 20, 30,   40,   50,   60,   70,    75,    80,   85,
                                   90, 92.5, 95, 96, 97, 98, 99, 99.25, 99.5, 99.7, 99.9};
    size_t i;
    printf("   %-34s p50 %7.0f us   p99 %7.0f us   p99.9 %7.0f us   max %7.0f us\n", name,
           b_percentile(s, 50), b_percentile(s, 99), b_percentile(s, 99.9), b_max(s));
    fprintf(data, "\n\n# %s, %s\n", level, name); /* one block per line of the chart */
    for (i = 0; i < sizeof marks / sizeof *marks; i++)
        fprintf(data, "%g\t%.1f\n", marks[i], b_percentile(s, marks[i]));
}

static eb_bus *open_bus(int durability)
{
    eb_options options;
    eb_bus *bus;
    memset(&options, 0, sizeof options);
    options.path = b_path("latency");
    options.durability = durability;
    options.logger.func = b_quiet;
    B_OK(eb_open(&bus, &options));
    B_OK(eb_subscribe(bus, "order.*", on_event, NULL, NULL, NULL));
    B_OK(eb_start(bus));
    return bus;
}

static void paced_verdicts(const char *level, int durability, b_samples *start, b_samples *post,
                           b_samples *raw, b_samples *ratio)
{
    double p99 = b_percentile(start, 99), limit = b_percentile(raw, 99);
    double jitter = b_percentile(post, 99.9) / b_percentile(post, 50);
    const char *ours = b_text("%.3f ms", p99 / 1e3), *beside = b_text("%.3f ms", limit / 1e3);
    b_verdict(level, "eb_post to handler start, 500/s, p99", ours, beside,
              b_text("%.2f, turns %s", p99 / limit, b_spread(ratio)), "< 2 x raw p99, < 10 ms",
              p99 < 2 * limit && p99 < 10000);
    if (durability == EB_DURABLE_FULL) {
        b_verdict(level, "the same", ours, beside, b_text("%+.3f ms", (p99 - limit) / 1e3),
                  "<= raw p99 + 0.5 ms", p99 <= limit + 500);
        return;
    }
    b_verdict(level, "the same", ours, beside, ours, "<= 0.3 ms", p99 <= 300);
    b_verdict(level, "eb_post, 500/s, p99.9", b_text("%.3f ms", b_percentile(post, 99.9) / 1e3),
              b_text("%.3f ms", b_percentile(raw, 99.9) / 1e3), b_text("%.1f x p50", jitter),
              "<= 20 x p50", jitter <= 20);
}

static void paced(FILE *data, eb_bus *bus, b_raw *writer, int durability)
{
    b_samples raw = {0}, post = {0}, start = {0}, ratio = {0};
    b_samples before = {0}, after = {0}, turn_post = {0}, turn_start = {0};
    const char *level = b_durability(durability);
    int turn = 0, turns = b_turns(TURNS), repeated = 0;

    raw_turn(writer, &before); /* warm up */
    b_free(&before);
    raw_turn(writer, &before);
    while (turn < turns) {
        bus_turn(bus, &turn_post, &turn_start);
        raw_turn(writer, &after);
        if (b_steady(b_median(&before), b_median(&after)) || repeated == SPARE) {
            b_join(&raw, &after);
            b_join(&post, &turn_post);
            b_join(&start, &turn_start);
            b_add(&ratio, b_percentile(&turn_start, 99) / b_percentile(&after, 99));
            b_progress(level, ++turn, turns);
        } else
            repeated++;
        b_free(&before);
        before = after;
        memset(&after, 0, sizeof after);
        b_free(&turn_post);
        b_free(&turn_start);
    }
    printf("   durability %s, %d turns of %d events at 500/s (%d repeated: slow disk spell)\n",
           level, turns, EVENTS, repeated);
    row(data, level, "raw commit, same tables", &raw);
    row(data, level, "eb_post", &post);
    row(data, level, "eb_post to handler start", &start);
    printf("   p99 to handler start / p99 raw commit, turn by turn: %s\n", b_spread(&ratio));
    paced_verdicts(level, durability, &start, &post, &raw, &ratio);
    b_free(&raw), b_free(&post), b_free(&start), b_free(&ratio), b_free(&before);
}

/* p99.9 over p50, turn by turn: a spell of the disk or of the machine spoils its own turn only. */
static void steady(FILE *data, eb_bus *bus, b_raw *writer, int durability)
{
    b_samples raw = {0}, post = {0}, jitter = {0}, raw_jitter = {0}, turn_samples = {0};
    const char *level = b_durability(durability);
    int turn, turns = b_turns(STEADY_TURNS);
    for (turn = 0; turn < turns; turn++) {
        steady_raw(writer, &turn_samples);
        b_add(&raw_jitter, b_percentile(&turn_samples, 99.9) / b_percentile(&turn_samples, 50));
        b_join(&raw, &turn_samples);
        b_free(&turn_samples);
        steady_bus(bus, &turn_samples);
        b_add(&jitter, b_percentile(&turn_samples, 99.9) / b_percentile(&turn_samples, 50));
        b_join(&post, &turn_samples);
        b_free(&turn_samples);
        b_progress("steady", turn + 1, turns);
    }
    printf("   durability %s, %d turns of %.1f s without a pause\n", level, turns, STEADY_SECONDS);
    row(data, level, "raw commit, without a pause", &raw);
    row(data, level, "eb_post, without a pause", &post);
    printf("   p99.9 / p50, turn by turn: eb_post %s, raw %s\n", b_spread(&jitter),
           b_spread(&raw_jitter));
    if (durability == EB_DURABLE_NORMAL)
        b_verdict(level, "eb_post without a pause, p99.9",
                  b_text("%.3f ms", b_percentile(&post, 99.9) / 1e3),
                  b_text("%.3f ms", b_percentile(&raw, 99.9) / 1e3),
                  b_text("%s x p50", b_spread(&jitter)), "<= 20 x p50", b_median(&jitter) <= 20);
    b_free(&raw), b_free(&post), b_free(&jitter), b_free(&raw_jitter);
}

static void measure(FILE *data, int durability)
{
    eb_bus *bus = open_bus(durability);
    b_raw writer;
    b_raw_open_same(&writer, b_path("latency-raw"), durability);
    paced(data, bus, &writer, durability);
    steady(data, bus, &writer, durability);
    eb_destroy(bus);
    b_raw_close(&writer);
}

int main(void)
{
    FILE *data;
    b_heading("latency: from eb_post to the first line of the handler");
    data = b_data("latency", "blocks with a name each: percentile\tmicroseconds");
    measure(data, EB_DURABLE_FULL);
    measure(data, EB_DURABLE_NORMAL);
    fclose(data);
    return 0;
}
