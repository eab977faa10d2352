/* nothreads/main.c - a whole life over an SQLite built with -DSQLITE_THREADSAFE=0: no worker
** threads, everything else as ever. Prints `ok`. Stands alone: test.h needs SQLite's mutexes.
**
**   cc -std=c99 -I. -Isqlite3 -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION \
**      tests/nothreads/main.c sqlite3/sqlite3.c -lpthread -lm -o nothreads && ./nothreads
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            char text[300];                                                                        \
            eb_errmsg(text, sizeof text);                                                          \
            fprintf(stderr, "%s:%d: must hold: %s (%s)\n", __FILE__, __LINE__, #cond, text);       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int64_t wall = INT64_C(1794979930000), mono = 1000;
static int good_calls, bad_calls, logged;

static int64_t now_ms(void *user)
{
    (void)user;
    return wall;
}
static int64_t mono_ms(void *user)
{
    (void)user;
    return mono;
}
static void sleep_ms(int64_t ms, void *user)
{
    (void)user;
    wall += ms;
    mono += ms;
}

static void logger(const eb_log_entry *entry, void *user)
{
    (void)user;
    logged += entry->attempt > 0;
}

static eb_result good(eb_delivery *d, void *user)
{
    (void)user;
    if (++good_calls == 1) return eb_fail(d, "once");
    return EB_OK;
}

/* Fails three times, then the operator retries it and it succeeds. */
static eb_result bad(eb_delivery *d, void *user)
{
    (void)user;
    if (++bad_calls <= 3) return eb_fail(d, "failure %d", bad_calls);
    return EB_OK;
}

static void whole_life(const char *path)
{
    eb_options o;
    eb_event_list list;
    eb_stats stats;
    eb_id id;
    eb_bus *bus = NULL;
    int64_t next = 99, begin;
    good_calls = bad_calls = logged = 0;
    memset(&o, 0, sizeof o);
    o.path = path;
    o.retry.max_retries = 2;
    o.logger.func = logger;

    MUST(eb_open(&bus, &o) == EB_ERR_THREADS && bus == NULL); /* 0 means one worker */
    o.workers = 4;
    MUST(eb_open(&bus, &o) == EB_ERR_THREADS && bus == NULL);
    o.workers = EB_NONE;
    o.clock.now_ms = now_ms;
    o.clock.mono_ms = mono_ms;
    o.clock.sleep_ms = sleep_ms;
    MUST(eb_open(&bus, &o) == EB_OK);
    MUST(eb_subscribe(bus, "good.*", good, NULL, NULL, NULL) == EB_OK);
    MUST(eb_subscribe(bus, "bad.*", bad, NULL, NULL, NULL) == EB_OK);
    MUST(eb_start(bus) == EB_OK);

    begin = wall; /* one retry, after the default second */
    MUST(eb_publish(bus, "good.one", "{\"n\":1}", &id) == EB_OK);
    MUST(good_calls == 2 && wall - begin == 1000 && logged == 1);

    begin = wall; /* three attempts, one and two seconds apart, and dead */
    MUST(eb_publish(bus, "bad.one", "[2]", &id) == EB_DEAD);
    MUST(bad_calls == 3 && wall - begin == 3000 && logged == 4);
    MUST(eb_dlq_list(eb_bus_store(bus), NULL, &list) == EB_OK && list.count == 1);
    MUST(strcmp(list.items[0].id.str, id.str) == 0 && list.items[0].retry_count == 3);
    MUST(strcmp(list.items[0].last_error, "[\"failure 1\",\"failure 2\",\"failure 3\"]") == 0);
    eb_event_list_free(&list);

    MUST(eb_dlq_retry(eb_bus_store(bus), id.str, NULL) == EB_OK);
    MUST(eb_pump(bus, EB_NONE, &next) == EB_OK && next == -1);
    MUST(bad_calls == 4);
    MUST(eb_stats_get(eb_bus_store(bus), &stats) == EB_OK);
    MUST(stats.done == 2 && stats.dlq == 0 && stats.pending == 0 && stats.processing == 0);
    MUST(eb_shutdown(bus) == EB_OK);
    eb_destroy(bus);
}

int main(void)
{
    static const char *const tail[] = {"", "-wal", "-shm"};
    const char *dir = getenv("TMPDIR");
    char path[400], victim[420];
    size_t i;
    snprintf(path, sizeof path, "%s/eb-nothreads.db", dir ? dir : "/tmp");
    for (i = 0; i < 3; i++) {
        snprintf(victim, sizeof victim, "%s%s", path, tail[i]);
        remove(victim);
    }
    MUST(sqlite3_threadsafe() == 0);
    whole_life(":memory:");
    whole_life(path);
    remove(path);
    puts("ok");
    return 0;
}
