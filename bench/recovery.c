/* recovery.c - How long does eb_start take with 100 stuck events?
**
** Each turn: a start with nothing to recover; then 100 events are stored and set to processing by
** SQL, as a crash leaves them, and a start recovers them. Beside it a raw transaction that updates
** the same 100 rows.
**
** Goal: eb_start with 100 stuck events < 50 ms.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

enum { TURNS = 25, STUCK = 100 };

static eb_result empty(eb_delivery *delivery, void *user)
{
    *(int *)user += delivery->event->retry_count;
    return EB_OK;
}

/* Opens, times eb_start in ms, lets everything finish; returns how many were interrupted before. */
static int start(const eb_options *options, b_samples *ms)
{
    int interrupted = 0;
    int64_t begin;
    eb_bus *bus;
    B_OK(eb_open(&bus, options));
    B_OK(eb_subscribe(bus, "*", empty, &interrupted, NULL, NULL));
    begin = b_ns();
    B_OK(eb_start(bus));
    b_add(ms, (double)(b_ns() - begin) / 1e6);
    B_OK(eb_drain(bus, 20000));
    eb_destroy(bus);
    return interrupted;
}

/* Stores 100 events and leaves them as a crash does; times a raw UPDATE of the live rows. */
static void strand(const eb_options *options, b_samples *raw_ms)
{
    char payload[B_PAYLOAD_BYTES + 1];
    eb_message batch[STUCK];
    int64_t begin;
    sqlite3 *db;
    eb_bus *bus;
    int i;
    memset(batch, 0, sizeof batch);
    b_payload(payload, 0);
    for (i = 0; i < STUCK; i++) batch[i].type = "order.placed", batch[i].payload = payload;
    B_OK(eb_open(&bus, options));
    B_OK(eb_send(bus, batch, STUCK, NULL));
    eb_destroy(bus);
    db = b_connect(options->path, EB_DURABLE_FULL);
    b_sql(db, "UPDATE events SET status = 'processing' WHERE status = 'pending'");
    if (sqlite3_total_changes(db) < STUCK) b_die("strand", "no event became stuck");
    begin = b_ns();
    b_sql(db, "BEGIN IMMEDIATE; UPDATE deliveries SET seq = seq; COMMIT");
    b_add(raw_ms, (double)(b_ns() - begin) / 1e6);
    sqlite3_close(db);
}

static void row(const char *name, b_samples *s)
{
    printf("   %-34s median %7.2f ms   [%.2f .. %.2f]\n", name, b_median(s), b_min(s), b_max(s));
}

int main(void)
{
    b_samples idle = {0}, stuck = {0}, raw = {0};
    eb_options options;
    int turn;

    b_heading("recovery: eb_start with 100 stuck events");
    memset(&options, 0, sizeof options);
    options.path = b_path("recovery");
    options.logger.func = b_quiet;
    for (turn = 0; turn < TURNS; turn++) {
        start(&options, &idle);
        strand(&options, &raw);
        if (start(&options, &stuck) != STUCK) b_die("start", "not all 100 were recovered");
        b_progress("starts", turn + 1, TURNS);
    }
    printf("   durability FULL, %d turns, median [min .. max]\n", TURNS);
    row("raw UPDATE of the 100 rows", &raw);
    row("eb_start, nothing to recover", &idle);
    row("eb_start, 100 stuck", &stuck);
    b_verdict("FULL", "recovery of 100 stuck events", b_text("%.2f ms", b_median(&stuck)),
              b_text("%.2f ms", b_median(&raw)), b_text("%s ms", b_spread(&stuck)), "< 50 ms",
              b_median(&stuck) < 50);
    b_free(&idle), b_free(&stuck), b_free(&raw);
    return 0;
}
