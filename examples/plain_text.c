/* plain_text.c - Shows how to publish text that is not JSON, and what happens if one forgets.
**
** A payload is JSON: an object, a number, a string in quotes. Plain text is refused, and nothing is
** stored; eb_json_text() makes a JSON string of it, whatever is in it. Prints both, and what the
** handler sees.
**
** Build: cc -I. -Isqlite3 examples/plain_text.c sqlite3/sqlite3.c -o plain_text -lpthread -ldl -lm && ./plain_text
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include <stdio.h>
#include <stdlib.h>

static void check(eb_result want, eb_result got)
{
    if (got == want) return;
    fprintf(stderr, "plain_text: %s\n", eb_strerror(got));
    exit(1);
}

static eb_result on_todo(eb_delivery *d, void *user)
{
    (void)user;
    printf("todo: %s\n", d->event->payload);
    return EB_OK;
}

/* Publishes text as a JSON string. Like snprintf, eb_json_text() says how long the result is: the
** first call measures, the second writes. Where texts are short, one call and a buffer will do. */
static void publish_text(eb_bus *bus, const char *type, const char *text)
{
    size_t size = eb_json_text(NULL, 0, text, (size_t)-1) + 1;
    char *payload = (char *)malloc(size);
    if (!payload) exit(1);
    eb_json_text(payload, size, text, (size_t)-1);
    check(EB_OK, eb_publish(bus, type, payload, NULL));
    free(payload);
}

int main(void)
{
    eb_options options = {.path = ":memory:"};
    char detail[200];
    eb_bus *bus;

    check(EB_OK, eb_open(&bus, &options));
    check(EB_OK, eb_subscribe(bus, "todo", on_todo, NULL, NULL, NULL));
    check(EB_OK, eb_start(bus));

    check(EB_ERR_PAYLOAD, eb_post(bus, "todo", "buy milk", NULL));
    printf("not stored: %s\n", eb_strerror(EB_ERR_PAYLOAD));
    eb_errmsg(detail, sizeof detail); /* where in the text, and why */
    fprintf(stderr, "plain_text: %s\n", detail);

    publish_text(bus, "todo", "buy milk");
    publish_text(bus, "todo", "say \"hi\", then press C:\\>\tand a line\nmore");
    publish_text(bus, "todo", "na\xC3\xAFve");          /* UTF-8 stays as it is */
    publish_text(bus, "todo", "latin-1: na\xEFve");     /* what is not UTF-8 becomes U+FFFD */
    check(EB_OK, eb_publish(bus, "todo", "[1, 2.5, null]", NULL)); /* any JSON will do */
    eb_destroy(bus);
    return 0;
}
