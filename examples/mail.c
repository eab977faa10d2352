/* mail.c - Shows how a job is retried, also when the process that worked on it was killed.
**
** `./mail new` stores a mail to be sent, then sends what is stored; `./mail` alone does the latter.
** The mail server is made up: it is slow and busy when a program asks it for the first time. So in
**     $ ./mail new &              attempt 1
**     $ kill -9 $!
**     $ ./mail                    attempt 2, which fails; attempt 3 two seconds later, which succeeds
** nothing is lost. The picture in the README is this session, see tests/expect/mail.sh.
**
** Build: cc -I. -Isqlite3 examples/mail.c sqlite3/sqlite3.c -o mail -lpthread -ldl -lm && ./mail new
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static void check(eb_result got)
{
    if (got == EB_OK) return;
    fprintf(stderr, "mail: %s\n", eb_strerror(got));
    exit(1);
}

/* Returns what SMTP servers say: 250 taken, 421 busy, 550 no such address. */
static int smtp_send(const char *server, const char *mail)
{
    static int asked;
    (void)server, (void)mail;
    if (asked++ > 0) return 250;
    sqlite3_sleep(2000); /* time enough for a kill */
    return 421;
}

static eb_result send_mail(eb_delivery *d, void *server)
{
    printf("attempt %d of %d: %s\n", d->attempt, d->max_attempts, d->event->payload);
    int status = smtp_send((const char *)server, d->event->payload);
    if (status == 550) return eb_reject(d, "no such address");      /* dead: no retry can help */
    if (status != 250) return eb_fail(d, "server says %d", status); /* again after 1, 2, 4 s */
    return EB_OK;                                                   /* done */
}

/* By default each failed attempt is one JSON line on stderr. This one is for people. */
static void on_log(const eb_log_entry *e, void *user)
{
    (void)user;
    printf("  %s: %s", e->message, e->error ? e->error : "-");
    if (e->next_delay_ms > 0) printf(", next in %d ms", (int)e->next_delay_ms);
    puts("");
}

int main(int argc, char **argv)
{
    eb_options options = {.path = "mail.db", .logger.func = on_log};
    eb_stats stats;
    eb_bus *bus;

    (void)argv;
    setbuf(stdout, NULL); /* so that a kill swallows no line */
    check(eb_open(&bus, &options));
    check(eb_subscribe(bus, "mail.*", send_mail, "smtp.example.org", NULL, NULL));
    check(eb_start(bus)); /* what a crash interrupted is due again */
    if (argc > 1)
        check(eb_post(bus, "mail.welcome", "{\"to\": \"ada@example.org\"}", NULL)); /* on disk */

    check(eb_drain(bus, EB_NONE)); /* until nothing is left, retries included */
    check(eb_stats_get(eb_bus_store(bus), &stats));
    printf("%d done, %d dead\n", (int)stats.done, (int)stats.dlq);
    eb_destroy(bus);
    return 0;
}
