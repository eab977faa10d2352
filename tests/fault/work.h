/* work.h - the work that goes on while things go wrong: what a type asks of its handler, and a
** round of publishing, both told to the ledger. For kill.c, threads.c and power.c.
**
** The types: ok; late, which fails once or twice before it succeeds; bad, which dies; no, which is
** rejected; nap, which snoozes the first time; slow, which takes some milliseconds. Every event may
** be tried WORK_ATTEMPTS times.
*/
#ifndef WORK_H
#define WORK_H
#include "ledger.h"
#include "luck.h"

enum { WORK_ATTEMPTS = 3, WORK_PAYLOAD = 900 };

/* How many times the handler of event n has begun. */
T_UNUSED static int work_runs(ledger *book, int n)
{
    return __atomic_load_n(&ledger_at(book, n)->runs, __ATOMIC_SEQ_CST);
}

/* The handler of event n, whose run the ledger knows; the caller's own types are ok. */
T_UNUSED static eb_result work_handle(ledger *book, eb_delivery *d, int n, int nap_ms)
{
    const char *type = d->event->type;
    if (strcmp(type, "slow") == 0) ebi_platform_sleep_ms(1 + n % 3);
    if (strcmp(type, "bad") == 0 || (strcmp(type, "late") == 0 && d->attempt <= 1 + n % 2))
        return ledger_ran(book, n, eb_fail(d, "attempt %d", d->attempt));
    if (strcmp(type, "no") == 0) return ledger_ran(book, n, eb_reject(d, "never"));
    if (strcmp(type, "nap") == 0 && work_runs(book, n) == 1) {
        ledger_note(book, n, LEDGER_SNOOZED);
        return ledger_ran(book, n, eb_snooze(d, nap_ms));
    }
    return ledger_ran(book, n, EB_OK);
}

/* An event is about to be published; its payload, its number. */
T_UNUSED static int work_announce(ledger *book, const char *type, int pad, char *payload,
                                  size_t cap)
{
    int n = ledger_attempt(book, type, WORK_ATTEMPTS, pad, payload, cap);
    if (strcmp(type, "no") == 0) ledger_note(book, n, LEDGER_REJECTED);
    return n;
}

/* One round: an event, a batch of three, or now and then one that is waited for; with keys, delays
** and padding. Returns what the bus said. */
T_UNUSED static eb_result work_publish(ledger *book, eb_bus *bus, luck *r,
                                       const char *(*any_type)(luck *r))
{
    char payload[3][WORK_PAYLOAD];
    int kind = luck_below(r, 12), count = kind < 9 ? 1 : 3, i, n[3];
    eb_message m[3];
    eb_id ids[3];
    eb_result rc;
    memset(m, 0, sizeof m);
    memset(ids, 0, sizeof ids);
    for (i = 0; i < count; i++) {
        m[i].type = any_type(r);
        n[i] = work_announce(book, m[i].type, luck_one_in(r, 4) ? 700 : 0, payload[i],
                             WORK_PAYLOAD);
        m[i].payload = payload[i];
        if (luck_one_in(r, 5)) m[i].ordering_key = luck_below(r, 2) ? "a" : "b";
        if (luck_one_in(r, 9)) m[i].delay_ms = 1 + luck_below(r, 8);
    }
    rc = kind == 0 ? eb_publish(bus, m[0].type, m[0].payload, &ids[0])
                   : eb_send(bus, m, (size_t)count, ids);
    for (i = 0; i < count; i++) ledger_answer(book, n[i], rc, &ids[i]);
    return rc;
}

/* 1 while there is room in the ledger for some more rounds of all threads. */
T_UNUSED static int work_room(ledger *book)
{
    return ledger_used(book) < book->book->capacity - 50;
}
#endif /* WORK_H */
