/* smoke.h - one event through a bus, in the words that C99 and C++17 have in common. It includes only
** what it needs besides eventbus.h, and prints "ok" or what went wrong.
*/
#include <stdio.h>
#include <string.h>

static void smoke_quiet(const eb_log_entry *entry, void *user)
{
    (void)entry;
    (void)user;
}

static eb_result smoke_count(eb_delivery *delivery, void *user)
{
    if (strcmp(delivery->event->payload, "{\"n\": 1}") != 0) return eb_reject(delivery, "payload");
    ++*(int *)user;
    return EB_OK;
}

/* 0, or the number of the step that failed. */
static int smoke_bus(int workers)
{
    eb_options options;
    eb_bus *bus = NULL;
    eb_stats stats;
    eb_id id;
    int calls = 0, step = 0;
    memset(&options, 0, sizeof options);
    options.path = ":memory:";
    options.logger.func = smoke_quiet;
    options.workers = workers;
    if (eb_open(&bus, &options) != EB_OK)
        step = 1;
    else if (eb_subscribe(bus, "a.*", smoke_count, &calls, NULL, NULL) != EB_OK)
        step = 2;
    else if (eb_start(bus) != EB_OK)
        step = 3;
    else if (eb_publish(bus, "a.b", "{\"n\": 1}", &id) != EB_OK)
        step = 4;
    else if (calls != 1 || strlen(id.str) != 36)
        step = 5;
    else if (eb_stats_get(eb_bus_store(bus), &stats) != EB_OK || stats.done != 1)
        step = 6;
    else if (eb_shutdown(bus) != EB_OK)
        step = 7;
    eb_destroy(bus);
    if (step) fprintf(stderr, "smoke: workers %d: step %d failed\n", workers, step);
    return step;
}

/* Where there are no threads, asking for some must be refused by eb_open or eb_start. */
static int smoke_no_workers(void)
{
    eb_options options;
    eb_bus *bus = NULL;
    eb_result result;
    memset(&options, 0, sizeof options);
    options.path = ":memory:";
    options.logger.func = smoke_quiet;
    options.workers = 2;
    result = eb_open(&bus, &options);
    if (result == EB_OK) result = eb_start(bus);
    eb_destroy(bus);
    if (result != EB_ERR_THREADS) fprintf(stderr, "smoke: 2 workers: %s\n", eb_strerror(result));
    return result != EB_ERR_THREADS;
}

/* The whole of a main: with both drivers, unless the build has no threads. */
static int smoke(void)
{
    int bad = 0;
    (void)smoke_bus; /* one or the other may be unused */
    (void)smoke_no_workers;
#if !defined(SMOKE_UNSAFE_SQLITE) || defined(EB_NO_THREADS)
    bad |= smoke_bus(EB_NONE);
#endif
#if defined(SMOKE_UNSAFE_SQLITE) || defined(EB_NO_THREADS)
    bad |= smoke_no_workers();
#else
    bad |= smoke_bus(0);
#endif
    if (strcmp(eb_version(), EB_VERSION_STRING) != 0) bad = 1;
    if (!bad) puts("ok");
    return bad;
}
