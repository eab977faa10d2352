/* post.c - How fast is eb_post from one thread, beside raw SQLite with one INSERT per transaction?
**
** Two buses: one that only stores (never started, on_unmatched = EB_UNMATCHED_KEEP), and one that
** is started and hands every event to an empty handler meanwhile. Two raw writers: the same tables
** as ours, and "lean", one table (see bench.h). A turn: lean, a bus, same, the other bus, lean.
**
** Target: eb_post >= 0.8 x raw one-insert transactions into the same tables.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

enum { TURNS = 11, SPARE = 6 };
static const double SECONDS = 0.25; /* of each run in a turn */

static eb_result empty(eb_delivery *delivery, void *user)
{
    (void)delivery;
    ++*(int64_t *)user; /* one worker, read after a drain */
    return EB_OK;
}

static double post_rate(eb_bus *bus, double seconds)
{
    static unsigned number;
    char payload[B_PAYLOAD_BYTES + 1];
    int64_t begin = b_ns(), now, n = 0;
    do {
        b_payload(payload, ++number);
        B_OK(eb_post(bus, "order.placed", payload, NULL));
        n++;
        now = b_ns();
    } while ((double)(now - begin) < seconds * 1e9);
    return (double)n * 1e9 / (double)(now - begin);
}

/* What was put off is done here, not in the next raw run's time. */
static void settle(eb_bus *bus)
{
    B_OK(eb_drain(bus, 20000));
    b_sleep_ms(20);
}

static eb_bus *open_bus(const char *path, int durability, int64_t *handled)
{
    eb_options options;
    eb_bus *bus;
    memset(&options, 0, sizeof options);
    options.path = path;
    options.durability = durability;
    options.on_unmatched = EB_UNMATCHED_KEEP;
    options.logger.func = b_quiet;
    B_OK(eb_open(&bus, &options));
    if (handled) {
        B_OK(eb_subscribe(bus, "*", empty, handled, NULL, NULL));
        B_OK(eb_start(bus));
    }
    return bus;
}

static void row(const char *name, b_samples *rate, b_samples *to_same, b_samples *to_lean)
{
    printf("   %-34s %8.0f/s [%6.0f .. %6.0f]", name, b_median(rate), b_min(rate), b_max(rate));
    if (to_same)
        printf("   %4.2f [%4.2f .. %4.2f] x same", b_median(to_same), b_min(to_same),
               b_max(to_same));
    if (to_lean)
        printf("   %4.2f [%4.2f .. %4.2f] x lean", b_median(to_lean), b_min(to_lean),
               b_max(to_lean));
    printf("\n");
}

static void verdict(const char *level, const char *what, b_samples *ratio)
{
    char name[80], figure[80];
    snprintf(name, sizeof name, "eb_post, %s", what);
    snprintf(figure, sizeof figure, "%.2f [%.2f .. %.2f] x raw, same tables", b_median(ratio),
             b_min(ratio), b_max(ratio));
    b_verdict(level, name, figure, ">= 0.80", b_median(ratio) >= 0.8);
}

static void measure(int durability)
{
    enum { LEAN, SAME, KEEP, LIVE, KINDS };
    b_samples rate[KINDS] = {{0}}, same[KINDS] = {{0}}, lean[KINDS] = {{0}};
    const char *level = b_durability(durability);
    int64_t handled = 0;
    eb_bus *keep = open_bus(b_path("post-keep"), durability, NULL);
    eb_bus *live = open_bus(b_path("post-live"), durability, &handled);
    b_raw raw_lean, raw_same;
    int turn = 0, repeated = 0, k;

    b_raw_open_lean(&raw_lean, b_path("raw-lean"), durability);
    b_raw_open_same(&raw_same, b_path("raw-same"), durability);
    post_rate(keep, SECONDS / 2), post_rate(live, SECONDS / 2); /* warm up: the WAL has its size */
    b_raw_rate(&raw_lean, SECONDS / 2), b_raw_rate(&raw_same, SECONDS / 2);
    settle(live);

    while (turn < TURNS) {
        double r[KINDS] = {0}, before, after;
        before = b_raw_rate(&raw_lean, SECONDS / 2);
        if (turn & 1)
            r[LIVE] = post_rate(live, SECONDS), settle(live);
        else
            r[KEEP] = post_rate(keep, SECONDS), b_sleep_ms(20);
        r[SAME] = b_raw_rate(&raw_same, SECONDS);
        if (turn & 1)
            r[KEEP] = post_rate(keep, SECONDS), b_sleep_ms(20);
        else
            r[LIVE] = post_rate(live, SECONDS), settle(live);
        after = b_raw_rate(&raw_lean, SECONDS / 2);
        if (!b_steady(before, after) && repeated < SPARE) {
            repeated++;
            continue;
        }
        r[LEAN] = (before + after) / 2;
        for (k = 0; k < KINDS; k++) {
            b_add(&rate[k], r[k]);
            b_add(&same[k], r[k] / r[SAME]);
            b_add(&lean[k], r[k] / r[LEAN]);
        }
        b_progress(level, ++turn, TURNS);
    }
    printf("   durability %s, %d turns (%d repeated: slow disk spell), median [min .. max]\n",
           level, TURNS, repeated);
    row("raw SQLite, lean table", &rate[LEAN], NULL, NULL);
    row("raw SQLite, same tables", &rate[SAME], NULL, &lean[SAME]);
    row("eb_post, stored only", &rate[KEEP], &same[KEEP], &lean[KEEP]);
    row("eb_post, handled meanwhile", &rate[LIVE], &same[LIVE], &lean[LIVE]);
    verdict(level, "stored only", &same[KEEP]);
    verdict(level, "handled meanwhile", &same[LIVE]);

    eb_destroy(keep);
    eb_destroy(live);
    b_raw_close(&raw_lean);
    b_raw_close(&raw_same);
    for (k = 0; k < KINDS; k++) b_free(&rate[k]), b_free(&same[k]), b_free(&lean[k]);
}

int main(void)
{
    b_heading("post: eb_post from one thread, each call one durable commit");
    measure(EB_DURABLE_FULL);
    measure(EB_DURABLE_NORMAL);
    return 0;
}
