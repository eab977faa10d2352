/* quickstart.c - Shows how to publish events, handle them, and deal with those that fail.
**
** Prints a story in five chapters: a handler succeeds; another fails twice and is retried; an event
** whose handler keeps failing ends in the dead-letter queue; the queue is listed with every error;
** the cause is repaired, the dead event retried, and it ends done. Each failed attempt is also
** logged on stderr. Takes about a second, and starts from a fresh quickstart.db each time.
**
** Build: cc -I. -Isqlite3 examples/quickstart.c sqlite3/sqlite3.c -o quickstart -lpthread -ldl -lm && ./quickstart
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include <stdio.h>
#include <stdlib.h>

/* Every result goes through here: anything but the expected one ends the program. */
static void check(eb_result want, eb_result got)
{
    char detail[200];
    if (got == want) return;
    eb_errmsg(detail, sizeof detail);
    fprintf(stderr, "quickstart: %s (%s)\n", eb_strerror(got), detail);
    exit(1);
}

static eb_result on_mail(eb_delivery *d, void *user)
{
    (void)user;
    printf("   mail: sending %s\n", d->event->payload);
    return EB_OK; /* done: never delivered again */
}

static eb_result on_payment(eb_delivery *d, void *user)
{
    (void)user;
    printf("   bank: charging %s, attempt %d of %d\n", d->event->payload, d->attempt,
           d->max_attempts);
    if (d->attempt < 3) return eb_fail(d, "the bank did not answer"); /* again later, by policy */
    return EB_OK;
}

static eb_result on_report(eb_delivery *d, void *user)
{
    const int *paper = (const int *)user;
    printf("   printer: printing %s, attempt %d of %d\n", d->event->payload, d->attempt,
           d->max_attempts);
    return *paper > 0 ? EB_OK : eb_fail(d, "out of paper, tray %d", d->attempt);
}

/* By default each failed attempt is one JSON line on stderr. This one is for people. */
static void on_log(const eb_log_entry *e, void *user)
{
    (void)user;
    if (e->attempt > 0 && e->next_delay_ms >= 0)
        fprintf(stderr, "   log: attempt %d of %d failed: %s; next in %d ms\n", e->attempt,
                e->max_attempts, e->error, (int)e->next_delay_ms);
    else
        fprintf(stderr, "   log: %s: %s\n", e->message, e->error ? e->error : "-");
}

int main(void)
{
    eb_options options = {.path = "quickstart.db"};
    eb_event_list dead = {0};
    eb_stats stats;
    eb_bus *bus;
    eb_id report;
    int paper = 0;

    remove("quickstart.db");
    remove("quickstart.db-wal");
    options.retry.max_retries = 2; /* the default is 3, after 1, 2 and 4 seconds */
    options.retry.base_delay_ms = 50;
    options.logger.func = on_log;
    check(EB_OK, eb_open(&bus, &options));
    check(EB_OK, eb_subscribe(bus, "mail.*", on_mail, NULL, NULL, NULL));
    check(EB_OK, eb_subscribe(bus, "payment.*", on_payment, NULL, NULL, NULL));
    check(EB_OK, eb_subscribe(bus, "report.*", on_report, &paper, NULL, NULL));
    check(EB_OK, eb_start(bus));

    puts("1. An event is published, its handler succeeds.");
    check(EB_OK, eb_publish(bus, "mail.welcome", "{\"to\": \"ada\"}", NULL));
    puts("2. A handler fails twice; the event is retried, after 50 and 100 ms, until it succeeds.");
    check(EB_OK, eb_publish(bus, "payment.due", "{\"order\": 17}", NULL));
    puts("3. A handler that keeps failing: after its last attempt the event is dead, not lost.");
    check(EB_DEAD, eb_publish(bus, "report.daily", "{\"page\": 1}", &report));

    puts("4. The dead-letter queue says what happened.");
    check(EB_OK, eb_dlq_list(eb_bus_store(bus), NULL, &dead));
    for (size_t i = 0; i < dead.count; i++)
        printf("   dead: %s %s %s\n   errors: %s\n", dead.items[i].id.str, dead.items[i].type,
               dead.items[i].payload, dead.items[i].last_error);
    eb_event_list_free(&dead);

    puts("5. Somebody brings paper and retries the dead event.");
    paper = 500;
    check(EB_OK, eb_dlq_retry(eb_bus_store(bus), report.str, NULL));
    check(EB_OK, eb_wait(bus, report.str, 5000));
    check(EB_OK, eb_stats_get(eb_bus_store(bus), &stats));
    printf("The end: %d done, %d dead.\n", (int)stats.done, (int)stats.dlq);
    eb_destroy(bus);
    return 0;
}
