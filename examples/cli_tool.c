/* cli_tool.c - Shows how to publish on one run of a program and process on the next one.
**
** A to-do list in cli_tool.db that survives kill -9. A session, with what it prints:
**
**     $ ./cli_tool add "buy milk"            stored 5f0c...
**     $ ./cli_tool add "bad idea"            stored 9b1e...
**     $ ./cli_tool work --crash              doing "buy milk", attempt 1      (and kills itself)
**     $ ./cli_tool list                      waiting "buy milk"
**                                            waiting "bad idea"
**     $ ./cli_tool work                      doing "buy milk", attempt 2
**                                            doing "bad idea", attempt 1      (which is rejected)
**     $ ./cli_tool list                      dead "bad idea" ["nobody wants that"]
**
** Build: cc -I. -Isqlite3 examples/cli_tool.c sqlite3/sqlite3.c -o cli_tool -lpthread -ldl -lm
** With mingw-w64 for Windows: the same without the libraries.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#endif

static void check(eb_result got)
{
    char detail[200];
    if (got >= 0) return;
    eb_errmsg(detail, sizeof detail);
    fprintf(stderr, "cli_tool: %s (%s)\n", eb_strerror(got), detail);
    exit(1);
}

/* What `kill -9` does, from inside: nothing is cleaned up, nobody is told. */
static void end_without_a_word(void)
{
#ifdef _WIN32
    TerminateProcess(GetCurrentProcess(), 137); /* the status that a shell shows for kill -9 */
#else
    raise(SIGKILL);
#endif
}

static eb_result on_todo(eb_delivery *d, void *user)
{
    printf("doing %s, attempt %d\n", d->event->payload, d->attempt);
    fflush(stdout);
    if (user) end_without_a_word(); /* --crash: the attempt is counted all the same */
    if (strncmp(d->event->payload, "\"bad", 4) == 0) return eb_reject(d, "nobody wants that");
    return EB_OK;
}

static void add(eb_bus *bus, const char *text)
{
    size_t size = eb_json_text(NULL, 0, text, (size_t)-1) + 1; /* a payload is JSON */
    char *payload = (char *)malloc(size);
    eb_id id;
    if (!payload) exit(1);
    eb_json_text(payload, size, text, (size_t)-1);
    check(eb_post(bus, "todo", payload, &id)); /* on disk now; no handler is needed to publish */
    printf("stored %s\n", id.str);
    free(payload);
}

static void work(eb_bus *bus, char *crash)
{
    check(eb_subscribe(bus, "todo", on_todo, crash, NULL, NULL));
    check(eb_start(bus));          /* what an earlier run left behind becomes due again */
    check(eb_drain(bus, EB_NONE)); /* until nothing waits any more */
}

static void list(eb_bus *bus)
{
    eb_store *store = eb_bus_store(bus); /* another process could do this with eb_store_open() */
    eb_query page = {0}; /* 100 at a time, as they were published */
    eb_event_list events;
    size_t count;
    do {
        check(eb_log_read(store, &page, &events));
        count = events.count;
        for (size_t i = 0; i < count; i++) {
            const eb_event *e = &events.items[i];
            if (e->status == EB_DLQ) printf("dead %s %s\n", e->payload, e->last_error);
            else if (e->status != EB_DONE) printf("waiting %s\n", e->payload);
            page.after_seq = e->seq;
        }
        eb_event_list_free(&events);
    } while (count > 0);
}

int main(int argc, char **argv)
{
    eb_options options = {.path = "cli_tool.db"};
    char *rest = argc > 2 ? argv[2] : NULL;
    int adds = argc == 3 && !strcmp(argv[1], "add");
    int lists = argc == 2 && !strcmp(argv[1], "list");
    int works = (argc == 2 || (argc == 3 && !strcmp(rest, "--crash"))) && !strcmp(argv[1], "work");
    eb_bus *bus;

    if (!adds && !works && !lists) {
        fputs("usage: cli_tool add TEXT | work [--crash] | list\n", stderr);
        return 2;
    }
    check(eb_open(&bus, &options));
    if (adds) add(bus, rest);
    if (works) work(bus, rest);
    if (lists) list(bus);
    eb_destroy(bus);
    return 0;
}
