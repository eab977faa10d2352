/* retry_and_dlq.c - Shows how to set when a failed event is tried again, and handle the dead.
**
** Prints the attempts of four events, each with another way to fail: a policy of its own, an
** explicit schedule, a rejection that no retry can help, a snooze that costs no attempt. Then lists
** the dead-letter queue with all errors, retries a part of it, and purges the rest.
**
** Build: cc -I. -Isqlite3 examples/retry_and_dlq.c sqlite3/sqlite3.c -o retry_and_dlq -lpthread -ldl -lm && ./retry_and_dlq
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include <stdio.h>
#include <stdlib.h>

static void check(eb_result want, eb_result got)
{
    if (got == want) return;
    fprintf(stderr, "retry_and_dlq: %s\n", eb_strerror(got));
    exit(1);
}

static eb_result always_fails(eb_delivery *d, void *user)
{
    printf("  %s, attempt %d of %d\n", d->event->type, d->attempt, d->max_attempts);
    return eb_fail(d, "%s %d", (const char *)user, d->attempt);
}

static eb_result rejects(eb_delivery *d, void *user)
{
    (void)user;
    printf("  %s, attempt %d of %d\n", d->event->type, d->attempt, d->max_attempts);
    return eb_reject(d, "no such account"); /* dead at once: trying again cannot help */
}

static eb_result snoozes_twice(eb_delivery *d, void *user)
{
    int *calls = (int *)user;
    printf("  %s, call %d, attempt %d\n", d->event->type, ++*calls, d->attempt);
    return *calls < 3 ? eb_snooze(d, 20) : EB_OK; /* not yet: again in 20 ms, attempt not spent */
}

static void print_dead(eb_store *store, const char *title)
{
    eb_event_list dead;
    check(EB_OK, eb_dlq_list(store, NULL, &dead)); /* newest first; a query narrows it */
    printf("%s: %d dead\n", title, (int)dead.total);
    for (size_t i = 0; i < dead.count; i++)
        printf("  %s, %d failed: %s\n", dead.items[i].type, dead.items[i].retry_count,
               dead.items[i].last_error);
    eb_event_list_free(&dead);
}

static void quiet(const eb_log_entry *e, void *user) { (void)e, (void)user; }

int main(void)
{
    static const int64_t waits_ms[] = {10, 30}; /* real life: 5 s, 30 s, 5 min, 1 h */
    eb_options options = {.path = ":memory:", .retry = {.max_retries = 2, .base_delay_ms = 10}};
    eb_subscribe_options policy = {.retry = {.max_retries = 3, .multiplier = 1.5, .jitter = 0.2}};
    eb_subscribe_options schedule = {.retry = {.schedule_ms = waits_ms, .schedule_count = 2}};
    eb_query billing = {.pattern = "billing.*"};
    int64_t count;
    int calls = 0;
    eb_bus *bus;

    options.logger.func = quiet;
    check(EB_OK, eb_open(&bus, &options));
    check(EB_OK, eb_subscribe(bus, "mail.*", always_fails, "relay down", &policy, NULL));
    check(EB_OK, eb_subscribe(bus, "hook.*", always_fails, "status 503,", &schedule, NULL));
    check(EB_OK, eb_subscribe(bus, "billing.*", rejects, NULL, NULL, NULL));
    check(EB_OK, eb_subscribe(bus, "sync.*", snoozes_twice, &calls, NULL, NULL));
    check(EB_OK, eb_start(bus));

    puts("A policy of its own: 3 retries, merged over the bus's 10 ms");
    check(EB_DEAD, eb_publish(bus, "mail.send", NULL, NULL));
    puts("An explicit schedule: waits of 10 and 30 ms, so 3 attempts");
    check(EB_DEAD, eb_publish(bus, "hook.call", NULL, NULL));
    puts("A rejection: no further attempt");
    check(EB_DEAD, eb_publish(bus, "billing.charge", NULL, NULL));
    puts("A snooze: later, without spending an attempt");
    check(EB_OK, eb_publish(bus, "sync.pull", NULL, NULL));

    print_dead(eb_bus_store(bus), "The dead-letter queue");
    puts("Retry all of billing.*: it is rejected again");
    check(EB_OK, eb_dlq_retry_all(eb_bus_store(bus), &billing, &count));
    check(EB_OK, eb_drain(bus, 5000));
    printf("Retried %d\n", (int)count);
    print_dead(eb_bus_store(bus), "Again");
    check(EB_OK, eb_dlq_purge(eb_bus_store(bus), 0, &count)); /* 0 days old or older: all */
    printf("Purged %d\n", (int)count);
    print_dead(eb_bus_store(bus), "At last");
    eb_destroy(bus);
    return 0;
}
