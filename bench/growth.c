/* growth.c - Is a file with millions of events as fast as one with ten thousand?
**
** The big file is filled with finished events by plain SQL, rows as the bus writes them, stop by
** stop. At each stop the jobs of work.h take turns on it and on a file that had ten thousand rows
** at the beginning of the round, with a run of raw SQLite before and after: big / small is the
** figure. The stop at ten thousand compares like with like: it shows how far to trust the others.
** Then, on the big file: what the statements of a claim cost with a backlog of 1 to 100,000, and
** bytes per event. Last, a start with a million pending events, in a process of its own.
**
** $BENCH_ROWS rows at the last stop; default two million, where the b-trees are as deep as they are
** at ten million (that is computed and printed): an append touches the right edge of each tree and
** nothing else, so depth is all that can grow. BENCH_ROWS=10000000 does the whole thing.
**
** Writes build/growth.tsv for the charts. Targets: >= 0.9 of the same at ten thousand rows; claim
** <= 10 us; <= 1.7 x payload on disk; first handler call within 50 ms, RSS below 64 MiB.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"
#include "work.h"

enum { SMALL = 10000, STOPS = 4, ROUNDS = 3, SPARE = 12, PENDING = 1000000 };
static const double SECONDS = 0.12;

static const int last_stop_jobs[] = {0, 3, 7, 9, 10, 13, 15, 16}; /* those with targets */
static const int stop_jobs[] = {0, 7, 13};                        /* for the chart */

static int64_t rows_wanted(void)
{
    const char *asked = getenv("BENCH_ROWS");
    return asked && atoll(asked) > SMALL ? atoll(asked) : 2000000;
}

/* ---- filling ------------------------------------------------------------------------------- */

/* A new file with one finished event, made by the bus itself: the model for the others. */
static void create(const char *path)
{
    w_bus w;
    char payload[B_PAYLOAD_BYTES + 1];
    b_payload(payload, 0);
    w_open(&w, path, EB_DURABLE_NORMAL, W_LIVE);
    B_OK(eb_publish(w.bus, "order.placed", payload, NULL));
    w_close(&w);
}

/* More rows like the last one, up to this many; pending: live rows instead of finished ones. */
static void fill(const char *path, int64_t rows, int pending)
{
    static const char *const log_names[] = {"seq", "id", "payload", NULL};
    static const char *const end_names[] = {"seq", NULL};
    int seq_col = 0, id_col = 0, payload_col = 0, end_seq_col = 0;
    int *log_cols[3], *end_cols[1];
    char payload[B_PAYLOAD_BYTES + 1];
    sqlite3 *db = b_connect(path, EB_DURABLE_NORMAL);
    sqlite3_stmt *last = b_prepare(db, "SELECT max(seq), id FROM event_log"), *log, *end;
    char id[37];
    int64_t seq;
    b_sql(db, "PRAGMA synchronous = OFF");
    if (sqlite3_step(last) != SQLITE_ROW) b_die(path, "no row to copy");
    seq = sqlite3_column_int64(last, 0);
    snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(last, 1));
    sqlite3_finalize(last);
    log_cols[0] = &seq_col, log_cols[1] = &id_col, log_cols[2] = &payload_col;
    end_cols[0] = &end_seq_col;
    log = b_clone_insert(db, "event_log", log_names, log_cols);
    end = b_clone_insert(db, pending ? "deliveries" : "finished", end_names, end_cols);
    b_sql(db, "BEGIN IMMEDIATE");
    while (seq < rows) {
        b_payload(payload, (unsigned)++seq);
        snprintf(id, 9, "%08x", (unsigned)b_random());
        id[8] = '-'; /* ids need only look right: nobody asks for these events by id */
        sqlite3_bind_int64(log, seq_col, seq);
        sqlite3_bind_text(log, id_col, id, 36, SQLITE_STATIC);
        sqlite3_bind_text(log, payload_col, payload, B_PAYLOAD_BYTES, SQLITE_STATIC);
        sqlite3_bind_int64(end, end_seq_col, seq);
        b_step(log);
        b_step(end);
        if (seq % 10000 == 0) {
            b_sql(db, "COMMIT; BEGIN IMMEDIATE");
            b_progress(pending ? "pending rows" : "rows", (int)(seq / 1000), (int)(rows / 1000));
        }
    }
    b_sql(db, "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_finalize(log);
    sqlite3_finalize(end);
    sqlite3_close(db);
}

static int64_t number(const char *path, const char *sql)
{
    sqlite3 *db = b_connect(path, EB_DURABLE_NORMAL);
    sqlite3_stmt *s = b_prepare(db, sql);
    int64_t value;
    if (sqlite3_step(s) != SQLITE_ROW) b_die(sql, sqlite3_errmsg(db));
    value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return value;
}

static void copy(const char *from, const char *to)
{
    static char buffer[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;
    if (!in || !out) b_die(from, "cannot copy");
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0)
        if (fwrite(buffer, 1, n, out) != n) b_die(to, "cannot write");
    fclose(in);
    if (fclose(out) != 0) b_die(to, "cannot write");
}
