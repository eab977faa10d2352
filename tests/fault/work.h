/* work.h - the work that goes on while things go wrong: what a type asks of its handler, and a
** round of publishing, both told to the ledger; and files of older versions of the schema, to see
** them migrated. For kill.c, threads.c and power.c.
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

/* ---- files of older versions ----------------------------------------------------------------- */

/* How a version is undone: SQL, then those texts of an older step that the version had replaced. */
typedef struct work_undo {
    const char *sql;
    const char *const *step;
    const char *again[6]; /* how the texts begin */
} work_undo;

/* Versions 2, 3 and so on: the next one goes at the end.
**
** What 2 says with due_ms 0 or NULL and apart 1, version 0.1.0 said with a time that has come, and
** suspect; processing without either was a row set by hand. */
static const work_undo work_undos[] = {
    {"DROP VIEW events;" /* and its triggers */
     "DROP INDEX deliveries_line; DROP INDEX deliveries_later; DROP INDEX deliveries_apart;"
     "UPDATE deliveries SET suspect=ifnull(apart,0)=1,due_ms=CASE WHEN due_ms=0 OR apart=1"
     " OR (status='processing' AND token IS NULL AND due_ms IS NULL AND apart IS NULL)"
     " THEN 1 ELSE due_ms END;"
     "ALTER TABLE deliveries DROP COLUMN aside; ALTER TABLE deliveries DROP COLUMN apart;"
     "ALTER TABLE subscriptions DROP COLUMN paused; ALTER TABLE nodes DROP COLUMN lost_workers;"
     "DELETE FROM meta WHERE key IN ('starts','recovering')",
     ebi_schema_v1,
     {"CREATE INDEX @deliveries_key ", "CREATE VIEW @events ", "CREATE TRIGGER @events_update ",
      "CREATE TRIGGER @events_insert ", "CREATE TRIGGER @events_delete ", NULL}},
};

/* The statement with @ expanded to nothing. */
static int work_exec(sqlite3 *db, const char *sql)
{
    char text[8000];
    ebi_sql_expand(sql, "", text, sizeof text);
    return sqlite3_exec(db, text, NULL, NULL, NULL);
}

static int work_undo_one(sqlite3 *db, const work_undo *undo)
{
    const char *const *sql, *const *start;
    int rc = work_exec(db, undo->sql);
    for (start = undo->again; *start && rc == SQLITE_OK; start++) {
        for (sql = undo->step; *sql && strncmp(*sql, *start, strlen(*start)) != 0;) sql++;
        rc = *sql ? work_exec(db, *sql) : SQLITE_NOTFOUND;
    }
    return rc;
}

/* One number; -1 if it cannot be had. */
static int64_t work_number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return value;
}

/* The schema version as the file says it: 0 without tables, -1 without an answer. */
static int work_version(sqlite3 *db)
{
    if (work_number(db, "SELECT count(*) FROM sqlite_schema") == 0) return 0;
    return (int)work_number(db, "SELECT value FROM meta WHERE key='schema_version'");
}

/* Takes a file really back to version `to`, in one transaction: the next open migrates it. Returns
** what SQLite said. */
T_UNUSED static int work_back(sqlite3 *db, int to)
{
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), version = work_version(db);
    char sql[80];
    T_MUST(EBI_SCHEMA_LATEST - 2 < (int)(sizeof work_undos / sizeof *work_undos));
    if (rc == SQLITE_OK && (to < 1 || version < to)) rc = SQLITE_MISUSE;
    for (; version > to && rc == SQLITE_OK; version--)
        rc = work_undo_one(db, &work_undos[version - 2]);
    snprintf(sql, sizeof sql, "UPDATE meta SET value=%d WHERE key='schema_version'; COMMIT", to);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (!sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* All that the steps make: texts, and keys of meta that are not of the first contact. sqlite3_free
** it; NULL: it cannot be read. */
static char *work_schema_text(sqlite3 *db)
{
    sqlite3_stmt *s = NULL;
    char *text = NULL;
    if (sqlite3_prepare_v2(
            db, "SELECT group_concat(line||char(10),'') FROM (SELECT sql AS line FROM sqlite_schema"
                " WHERE sql IS NOT NULL AND name<>'namespaces' UNION ALL SELECT 'meta '||key"
                " FROM meta WHERE key NOT IN ('application','seq_floor','removed','claimed_to',"
                "'id_key_1','id_key_2','created_at','schema_version') ORDER BY 1)",
            -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        text = sqlite3_mprintf("%s", ledger_text(s, 0));
    sqlite3_finalize(s);
    return text;
}

/* The version of the file's schema, of which everything is there and nothing else: 0 without
** tables. Else -1, and `why`. */
T_UNUSED static int work_schema(sqlite3 *db, char *why, size_t cap)
{
    const char *const *sql;
    sqlite3 *model = NULL; /* an empty file of that version */
    int version = work_version(db), step, i = 0, line = 0, same;
    char *is, *should;
    if (version == 0) return 0;
    if (version < 1 || version > EBI_SCHEMA_LATEST) {
        snprintf(why, cap, "schema version %d: %s", version, sqlite3_errmsg(db));
        return -1;
    }
    T_MUST(sqlite3_open(":memory:", &model) == SQLITE_OK);
    for (step = 0; step < version; step++)
        for (sql = ebi_schema_steps[step]; *sql; sql++)
            T_MUST(work_exec(model, *sql) == SQLITE_OK);
    is = work_schema_text(db);
    should = work_schema_text(model);
    T_MUST(should);
    same = is && strcmp(is, should) == 0;
    for (; is && is[i] && is[i] == should[i]; i++)
        if (is[i] == '\n') line = i + 1;
    if (!same) snprintf(why, cap, "schema version %d has \"%.*s\" for \"%.*s\"", version,
                        is ? (int)strcspn(is + line, "\n") : 0, is ? is + line : "",
                        (int)strcspn(should + line, "\n"), should + line);
    sqlite3_free(is);
    sqlite3_free(should);
    sqlite3_close(model);
    return same ? version : -1;
}
#endif /* WORK_H */
