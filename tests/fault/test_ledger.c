/* test_ledger.c - the conservation check can see: a healthy file passes, and a file that is damaged
** by hand in any one of the ways that the check is for fails, with the right complaint.
*/
#include "ledger.h"

static ledger book;
static char good[400]; /* a file with one event in every state, and nothing wrong */

static eb_result on_event(eb_delivery *d, void *user)
{
    int n = ledger_run(&book, d);
    (void)user;
    if (strcmp(d->event->type, "dies") == 0) return ledger_ran(&book, n, eb_fail(d, "no"));
    if (strcmp(d->event->type, "second") == 0 && d->attempt == 1)
        return ledger_ran(&book, n, eb_fail(d, "not yet"));
    if (strcmp(d->event->type, "refuses") == 0) {
        ledger_note(&book, n, LEDGER_REJECTED);
        return ledger_ran(&book, n, eb_reject(d, "never"));
    }
    return ledger_ran(&book, n, EB_OK);
}

/* Publishes one event; said is what the ledger is told (as the bus said: EB_OK). */
static int post(eb_bus *bus, const char *type, eb_result said)
{
    char payload[80];
    eb_id id;
    int n = ledger_attempt(&book, type, 3, 10, payload, sizeof payload);
    memset(&id, 0, sizeof id);
    if (said == EB_OK || said == EB_ERR_UNKNOWN) T_MUST(eb_post(bus, type, payload, &id) == EB_OK);
    ledger_answer(&book, n, said, &id);
    return n;
}

/* Numbers are also sequence numbers, as far as the events are stored: 1 done, 2 done in the second
** attempt, 3 dead, 4 rejected, 5 unknown and stored, 6 and 7 waiting; not stored: 8 refused, 9
** unknown, 10 never answered. */
static void make_good(void)
{
    t_time time;
    eb_options o;
    eb_bus *bus;
    char payload[80];
    int n;
    snprintf(good, sizeof good, "%s", t_path("good"));
    o = t_options(good);
    o.workers = EB_NONE;
    o.retry.max_retries = 2;
    o.clock = t_clock(&time);
    ledger_open(&book, NULL, 100);
    bus = t_open(&o);
    T_MUST(eb_subscribe(bus, "*", on_event, NULL, NULL, NULL) == EB_OK && eb_start(bus) == EB_OK);
    post(bus, "works", EB_OK);
    post(bus, "second", EB_OK);
    post(bus, "dies", EB_OK);
    post(bus, "refuses", EB_OK);
    post(bus, "works", EB_ERR_UNKNOWN);
    T_MUST(t_settle(bus) == EB_OK);
    eb_destroy(bus);
    bus = t_open(&o);
    post(bus, "waits", EB_OK);
    post(bus, "waits", EB_OK);
    post(bus, "refused", EB_ERR_FULL);
    eb_destroy(bus);
    n = ledger_attempt(&book, "unknown", 3, 0, payload, sizeof payload);
    ledger_answer(&book, n, EB_ERR_UNKNOWN, NULL);
    ledger_attempt(&book, "unanswered", 3, 0, payload, sizeof payload);
}

/* A copy of the good file, under a fresh name. */
static const char *copy_good(void)
{
    const char *path = t_path("copy");
    FILE *from = fopen(good, "rb"), *to = fopen(path, "wb");
    char buf[4096];
    size_t n;
    T_MUST(from && to);
    while ((n = fread(buf, 1, sizeof buf, from)) > 0) T_MUST(fwrite(buf, 1, n, to) == n);
    fclose(from);
    fclose(to);
    return path;
}

#define LOG_COPY(seq, n)                                                                           \
    "INSERT INTO event_log(seq,id,type,payload,created_at) SELECT " #seq ",'x',type,"              \
    "replace(payload,'\"n\":1,','\"n\":" #n ",'),created_at FROM event_log WHERE seq=1;"           \
    "INSERT INTO finished(seq,attempts,finished_at) SELECT " #seq ",1,finished_at FROM finished"   \
    " WHERE seq=1;"
#define DROP(table, seq) "DELETE FROM " table " WHERE seq=" #seq ";"

static const struct { const char *sql, *complaint; } damage[] = {
    {DROP("event_log", 1) DROP("finished", 1), "event 1 was acknowledged and is lost"},
    {DROP("event_log", 6) DROP("deliveries", 6), "event 6 was acknowledged and is lost"},
    {DROP("event_log", 3) DROP("dead_letters", 3), "event 3 was acknowledged and is lost"},
    {DROP("deliveries", 6), "event 6 is in 0 states"},
    {DROP("finished", 2), "event 2 is in 0 states"},
    {DROP("dead_letters", 3), "event 3 is in 0 states"},
    {"INSERT INTO finished SELECT 6,attempts,errors,finished_at FROM finished WHERE seq=1",
     "event 6 is in 2 states"},
    {"INSERT INTO deliveries(seq,status) VALUES(3,'pending')", "event 3 is in 2 states"},
    {"UPDATE event_log SET payload='{}' WHERE seq=5", "seq 5 was never attempted"},
    {LOG_COPY(9, 77), "seq 9 was never attempted"},
    {LOG_COPY(9, 1), "event 1 is there 2 times"},
    {LOG_COPY(9, 5), "event 5 is there 2 times"},
    {LOG_COPY(9, 8), "event 8 was refused, but it is there"},
    {"UPDATE event_log SET payload=replace(payload,'xx','xy') WHERE seq=6",
     "event 6 has another type or payload"},
    {"UPDATE event_log SET type='other' WHERE seq=6", "event 6 has another type or payload"},
    {"UPDATE event_log SET id='other' WHERE seq=6", "event 6: id other"},
    {"UPDATE event_log SET created_at='' WHERE seq=6", "event 6: no created_at"},
    {DROP("deliveries", 6) "INSERT INTO finished SELECT 6,1,NULL,finished_at FROM finished"
     " WHERE seq=1", "event 6: done, but no handler run returned EB_OK"},
    {"UPDATE finished SET errors=NULL WHERE seq=2", "event 2: 1 failed attempts but errors"},
    {"UPDATE finished SET attempts=4,errors='[\"a\",\"b\",\"c\"]' WHERE seq=2",
     "event 2: done in attempt 4 of 3"},
    {"UPDATE finished SET finished_at='' WHERE seq=1", "event 1: no finished_at"},
    {"UPDATE dead_letters SET payload='null' WHERE seq=3", "event 3: the dead letter is not"},
    {"UPDATE dead_letters SET type='' WHERE seq=3", "event 3: the dead letter is not"},
    {"UPDATE dead_letters SET producer=NULL WHERE seq=3", "event 3: the dead letter is not"},
    {"UPDATE event_log SET metadata='{}' WHERE seq=3", "event 3: the dead letter is not"},
    {"UPDATE event_log SET ordering_key='k' WHERE seq=3", "event 3: the dead letter is not"},
    {"UPDATE event_log SET idempotency_key='k' WHERE seq=3", "event 3: the dead letter is not"},
    {"UPDATE dead_letters SET errors='[\"a\",\"\",\"c\"]' WHERE seq=3",
     "event 3: error 1 is empty"},
    {"UPDATE dead_letters SET failed=0,errors=NULL WHERE seq=3",
     "event 3: dead without a failed attempt"},
    {"UPDATE dead_letters SET errors=NULL WHERE seq=3", "event 3: 3 failed attempts but errors"},
    {"UPDATE dead_letters SET errors='[\"no\"]' WHERE seq=3",
     "event 3: 3 failed attempts but errors"},
    {"UPDATE dead_letters SET died_at='' WHERE seq=3", "event 3: died_at"},
    {"UPDATE dead_letters SET died_at='1999'||substr(died_at,5) WHERE seq=3",
     "event 3: died_at 1999"},
    {"UPDATE dead_letters SET failed=4,errors='[\"\",\"\",\"\",\"\"]' WHERE seq=3",
     "event 3: dead after 4 attempts of 3"},
    {"UPDATE dead_letters SET failed=2,errors='[\"\",\"\"]' WHERE seq=3",
     "event 3: dead after only 2 attempts of 3"},
    {"UPDATE deliveries SET status='done' WHERE seq=6", "event 6: status done"},
    {"UPDATE deliveries SET failed=1 WHERE seq=6", "event 6: 1 failed attempts but errors"},
    {"UPDATE deliveries SET failed=3,errors='[\"\",\"\",\"\"]' WHERE seq=6",
     "event 6: alive after 3 failed attempts of 3"},
    {"UPDATE deliveries SET failed=1,errors='[\"a\"]' WHERE seq=6",
     "event 6: 1 failed attempts, but 0 runs"},
    {"UPDATE deliveries SET attempts=4 WHERE seq=6", "event 6: attempt 4 of 3"},
    {"INSERT INTO finished VALUES(99,1,NULL,'')", "there are rows without an event"},
    {"INSERT INTO deliveries(seq,status) VALUES(99,'pending')", "there are rows without an event"},
    {"UPDATE meta SET value=1 WHERE key='removed'", "eb_stats_get 2+0+2+2, rows 2+0+3+2"},
    {"UPDATE deliveries SET due_ms=9e15 WHERE seq=6", "eb_drain"},
    {"UPDATE meta SET value=99 WHERE key='schema_version'", "eb_open after the fault"},
    {"DROP INDEX deliveries_due", "eb_open after the fault"},
    {"UPDATE meta SET value=value+1 WHERE key='id_key_1'", "eb_get of event"},
};

TEST a_healthy_file_passes(void)
{
    if (ledger_check(&book, copy_good(), LEDGER_COPY)) FAILm(book.why);
    PASS();
}

TEST every_damage_is_seen(void)
{
    size_t i;
    for (i = 0; i < sizeof damage / sizeof *damage; i++) {
        const char *path = copy_good();
        char err[200];
        if (t_sql(path, damage[i].sql, err, sizeof err) != SQLITE_OK) FAILm(err);
        if (!ledger_check(&book, path, LEDGER_COPY) || !strstr(book.why, damage[i].complaint)) {
            fprintf(stderr, "\n%s\n  wanted: %s\n  got: %s\n", damage[i].sql, damage[i].complaint,
                    book.why);
            FAILm("damage was not seen");
        }
    }
    PASS();
}

/* The bytes themselves: a page overwritten, the file cut, a foreign file, no file. */
TEST damaged_bytes_are_seen(void)
{
    static const struct { long at, cut; const char *complaint; } how[] = {
        {4096 * 2 + 3, 0, "integrity_check"}, {0, 0, "cannot be read"},
        {0, 4096 * 3, "cannot be read"}, {0, 1, "acknowledged and is lost"}};
    size_t i;
    for (i = 0; i < sizeof how / sizeof *how; i++) {
        const char *path = copy_good();
        FILE *f;
        if (how[i].cut) {
            ASSERT_EQ(0, truncate(path, how[i].cut > 1 ? how[i].cut : 0));
        } else {
            f = fopen(path, "r+b");
            ASSERT(f && fseek(f, how[i].at, SEEK_SET) == 0 && fwrite("\xff\xff\xff\xff", 4, 1, f));
            fclose(f);
        }
        if (!ledger_check(&book, path, LEDGER_COPY)) FAILm("damage was not seen");
        if (!strstr(book.why, how[i].complaint)) FAILm(book.why);
    }
    ASSERT(ledger_check(&book, t_path("nothing"), LEDGER_COPY) >= 6);
    PASS();
}

TEST too_many_runs_are_seen(void)
{
    ledger_event before = book.book->events[3];
    book.book->events[3].runs = 4;
    ASSERT(ledger_look(&book, good));
    ASSERT(strstr(book.why, "event 3 ran 4 times"));
    book.book->events[3].lives = 1; /* a DLQ retry allows three more */
    ASSERT_EQ(0, ledger_look(&book, good));
    book.book->events[3] = before;
    before = book.book->events[1];
    book.book->events[1].ok = 2;
    ASSERT(ledger_look(&book, good));
    ASSERT(strstr(book.why, "event 1 succeeded 2 times in one life"));
    book.book->events[1] = before;
    PASS();
}

/* A power cut under NORMAL may take the newest events away, never one in the middle. */
TEST only_a_tail_may_be_lost(void)
{
    const char *path = copy_good();
    book.loss = LEDGER_LOSS_TAIL;
    t_sql(path, DROP("event_log", 7) DROP("deliveries", 7), NULL, 0);
    if (ledger_look(&book, path)) FAILm(book.why);
    ASSERT_EQ(1, book.lost);
    t_sql(path, DROP("event_log", 6) DROP("deliveries", 6), NULL, 0);
    if (ledger_check(&book, path, LEDGER_COPY)) FAILm(book.why);
    ASSERT_EQ(2, book.lost);
    path = copy_good();
    t_sql(path, DROP("event_log", 6) DROP("deliveries", 6), NULL, 0);
    ASSERT(ledger_look(&book, path));
    ASSERT(strstr(book.why, "event 6 is lost, but not a later one"));
    book.loss = LEDGER_LOSS_ANY;
    ASSERT_EQ(0, ledger_look(&book, path));
    ASSERT_EQ(1, book.lost);
    book.loss = LEDGER_LOSS_NONE;
    PASS();
}

TEST only_the_dead_may_be_purged(void)
{
    const char *path = copy_good();
    int before3 = book.book->events[3].notes, before6 = book.book->events[6].notes;
    t_sql(path, DROP("event_log", 3) DROP("dead_letters", 3)
          "UPDATE meta SET value=1 WHERE key='removed'", NULL, 0);
    ledger_note(&book, 3, LEDGER_PURGED);
    if (ledger_check(&book, path, LEDGER_COPY)) FAILm(book.why);
    t_sql(path, DROP("event_log", 6) DROP("deliveries", 6), NULL, 0);
    ledger_note(&book, 6, LEDGER_PURGED);
    ASSERT(ledger_look(&book, path));
    ASSERT(strstr(book.why, "event 6 is gone with the dead, but it never failed"));
    book.book->events[3].notes = before3;
    book.book->events[6].notes = before6;
    PASS();
}

/* Without LEDGER_COPY the runs of the check count: a file can be checked again and again. */
TEST checking_again_passes(void)
{
    int i;
    for (i = 0; i < 3; i++)
        if (ledger_check(&book, good, 0)) FAILm(book.why);
    ASSERT_EQ(1, book.book->events[6].ok);
    PASS();
}

GREATEST_MAIN_DEFS();
int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    make_good();
    RUN_TEST(a_healthy_file_passes);
    RUN_TEST(every_damage_is_seen);
    RUN_TEST(damaged_bytes_are_seen);
    RUN_TEST(too_many_runs_are_seen);
    RUN_TEST(only_a_tail_may_be_lost);
    RUN_TEST(only_the_dead_may_be_purged);
    RUN_TEST(checking_again_passes);
    ledger_close(&book);
    GREATEST_MAIN_END();
}
