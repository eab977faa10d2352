/* hello.c - Shows how to open a bus, subscribe, publish an event and close.
**
** Prints one line, from the handler. The event is kept in hello.db: look at it with
**     sqlite3 hello.db "select * from events"
** An option that is zero has its default; a payload is JSON. The code below is the QUICK EXAMPLE of
** the manual, word for word, and C++ as well.
**
** Build: cc -I. -Isqlite3 examples/hello.c sqlite3/sqlite3.c -o hello -lpthread -ldl -lm && ./hello
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(eb_result result)
{
    if (result != EB_OK) exit((fprintf(stderr, "%s\n", eb_strerror(result)), 1));
}

static eb_result on_order(eb_delivery *delivery, void *user)
{
    (void)user;
    printf("%s: %s\n", delivery->event->type, delivery->event->payload);
    return EB_OK;
}

int main(void)
{
    eb_options options;
    eb_bus *bus;
    memset(&options, 0, sizeof options);
    options.path = "hello.db";
    check(eb_open(&bus, &options));
    check(eb_subscribe(bus, "order.*", on_order, NULL, NULL, NULL));
    check(eb_start(bus));
    check(eb_publish(bus, "order.placed", "{\"order\": 42}", NULL));
    eb_destroy(bus);
    return 0;
}
