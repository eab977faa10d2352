/* dlq.c - How long does eb_dlq_list of 100 take among 10,000 dead letters?
**
** The dead are made through the API: batches of eb_send, a handler that rejects. Then the newest
** 100 are listed many times, with and without a filter and from deep inside; beside each the raw
** SELECT of the newest 100 rows, in turns.
**
** Goal: eb_dlq_list of 100 among 10,000 < 5 ms.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

enum { DEAD = 10000, BATCH = 500, LISTS = 200 };

static eb_result rejects(eb_delivery *delivery, void *user)
{
    (void)user;
    return eb_reject(delivery, "no such account");
}

static void fill(eb_bus *bus)
{
    static char payloads[BATCH][B_PAYLOAD_BYTES + 1];
    static eb_message batch[BATCH];
    int done, i;
    for (done = 0; done < DEAD; done += BATCH) {
        for (i = 0; i < BATCH; i++) {
            b_payload(payloads[i], (unsigned)(done + i));
            batch[i].type = i % 10 ? "job.bad" : "mail.bad";
            batch[i].payload = payloads[i];
        }
        B_OK(eb_send(bus, batch, BATCH, NULL));
        B_OK(eb_drain(bus, 60000));
        b_progress("filling", done + BATCH, DEAD);
    }
}

/* Touches every column of every row, as a list has to. */
static void raw_list(sqlite3_stmt *select)
{
    int i, rows = 0;
    size_t bytes = 0;
    while (sqlite3_step(select) == SQLITE_ROW) {
        for (i = 0; i < sqlite3_column_count(select); i++)
            if (sqlite3_column_text(select, i))
                bytes += strlen((const char *)sqlite3_column_text(select, i));
        rows++;
    }
    sqlite3_reset(select);
    if (rows != 100 || bytes == 0) b_die("raw list", "not 100 rows");
}

static void measure(eb_store *store, sqlite3_stmt *select, const char *what, const eb_query *query,
                    int goal)
{
    b_samples ours = {0}, raw = {0};
    eb_event_list list;
    int i;
    for (i = 0; i < LISTS; i++) {
        int64_t begin = b_ns();
        raw_list(select);
        b_add(&raw, (double)(b_ns() - begin) / 1e6);
        begin = b_ns();
        B_OK(eb_dlq_list(store, query, &list));
        b_add(&ours, (double)(b_ns() - begin) / 1e6);
        if (list.count != 100) b_die(what, "not 100 in the list");
        eb_event_list_free(&list);
        b_progress(what, i + 1, LISTS);
    }
    printf("   %-34s median %6.3f ms   p99 %6.3f ms   max %6.3f ms   (raw: %.3f / %.3f / %.3f)\n",
           what, b_median(&ours), b_percentile(&ours, 99), b_max(&ours), b_median(&raw),
           b_percentile(&raw, 99), b_max(&raw));
    if (goal)
        b_verdict("NORMAL", b_text("eb_dlq_list, 100 of %d", DEAD),
                  b_text("%.3f ms", b_median(&ours)), b_text("%.3f ms", b_median(&raw)),
                  b_text("p99 %.2f ms", b_percentile(&ours, 99)), "< 5 ms",
                  b_percentile(&ours, 99) < 5);
    b_free(&ours), b_free(&raw);
}

int main(void)
{
    const char *path;
    eb_query deep, mail;
    eb_options options;
    eb_stats stats;
    eb_bus *bus;
    sqlite3 *db;
    sqlite3_stmt *select;

    b_heading("dlq: eb_dlq_list of 100 among 10,000 dead letters");
    path = b_path("dlq");
    memset(&options, 0, sizeof options);
    options.path = path;
    options.durability = EB_DURABLE_NORMAL;
    options.logger.func = b_quiet;
    B_OK(eb_open(&bus, &options));
    B_OK(eb_subscribe(bus, "*", rejects, NULL, NULL, NULL));
    B_OK(eb_start(bus));
    fill(bus);
    B_OK(eb_stats_get(eb_bus_store(bus), &stats));
    if (stats.dlq != DEAD) b_die("fill", "not all are dead");

    db = b_connect(path, EB_DURABLE_NORMAL);
    select = b_prepare(db, "SELECT * FROM dead_letters ORDER BY created_at DESC, seq DESC"
                           " LIMIT 100");
    memset(&deep, 0, sizeof deep);
    memset(&mail, 0, sizeof mail);
    deep.offset = DEAD - 100;
    mail.pattern = "mail.*";
    printf("   durability NORMAL (reads only), %d lists each\n", LISTS);
    measure(eb_bus_store(bus), select, "the newest 100", NULL, 1);
    measure(eb_bus_store(bus), select, "the oldest 100 (offset 9900)", &deep, 0);
    measure(eb_bus_store(bus), select, "the newest 100 of mail.*", &mail, 0);
    sqlite3_finalize(select);
    sqlite3_close(db);
    eb_destroy(bus);
    return 0;
}
