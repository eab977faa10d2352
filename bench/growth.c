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
** Writes build/growth.tsv for the charts. Goals: >= 0.9 of the same at ten thousand rows; claim
** <= 10 us; <= 1.7 x payload on disk; first handler call within 50 ms, RSS below 64 MiB.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"
#include "work.h"
#include <fcntl.h>

enum { SMALL = 10000, STOPS = 4, ROUNDS = 5, SPARE = 4, PENDING = 1000000 };
static const double SECONDS = 0.12;

/* At the last stop every job that has a goal; before it four, for the chart. */
static int chosen(const w_job *job, int last)
{
    if (last) return job->full > 0;
    return job->threads == 1 && job->kind != W_PUMP && (job->batch == 0 || job->batch == 100);
}

static int64_t rows_wanted(void)
{
    const char *asked = getenv("BENCH_ROWS");
    return asked && atoll(asked) > SMALL ? atoll(asked) : 2000000;
}

/* ---- filling ------------------------------------------------------------------------------- */

/* A new file with one event, finished or pending, made by the bus itself: the model for others. */
static void create(const char *path, int pending)
{
    w_bus w;
    char payload[B_PAYLOAD_BYTES + 1];
    b_payload(payload, 0);
    w_open(&w, path, EB_DURABLE_NORMAL, pending ? W_STORE : W_LIVE);
    B_OK(eb_publish(w.bus, "order.placed", payload, NULL));
    w_close(&w);
}

/* All of the file is on disk: writing it is not left to the measurement. Nobody has it open. */
static void settle(const char *path)
{
    int fd = open(path, O_RDWR);
    if (fd < 0 || fsync(fd) != 0) b_die(path, "cannot sync");
    close(fd);
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
    settle(path);
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

/* ---- the shape of a b-tree, read from the file while nobody has it open -------------------- */

typedef struct shape {
    FILE *file;
    long page_size;
    int depth;              /* levels */
    int64_t leaves, lowest; /* lowest: interior pages right above the leaves */
} shape;

static unsigned big_endian(const unsigned char *p, int n)
{
    unsigned v = 0;
    while (n-- > 0) v = v << 8 | *p++;
    return v;
}

static void read_page(const shape *s, unsigned page, unsigned char *to)
{
    if (fseek(s->file, (long)(page - 1) * s->page_size, SEEK_SET) != 0 ||
        fread(to, 1, (size_t)s->page_size, s->file) != (size_t)s->page_size)
        b_die("read_page", "cannot read");
}

/* Counts below an interior page. All leaves are equally deep, so the first child tells. */
static void walk(shape *s, unsigned page, int level)
{
    enum { INTERIOR = 5 };
    unsigned char *p = (unsigned char *)malloc((size_t)s->page_size), kind[4096];
    unsigned i, cells, child;
    if (!p || s->page_size > 4096) b_die("walk", "page size");
    read_page(s, page, p);
    if (level > s->depth) s->depth = level;
    if (p[0] != INTERIOR) {
        s->leaves++;
        free(p);
        return;
    }
    cells = big_endian(p + 3, 2);
    child = big_endian(p + 8, 4);
    read_page(s, child, kind);
    if (kind[0] != INTERIOR) {
        s->leaves += cells + 1;
        s->lowest++;
        if (level + 1 > s->depth) s->depth = level + 1;
    } else {
        walk(s, child, level + 1);
        for (i = 0; i < cells; i++)
            walk(s, big_endian(p + big_endian(p + 12 + 2 * i, 2), 4), level + 1);
    }
    free(p);
}

/* Prints how deep the table is now, and how deep it will be with ten million rows. */
static void depth(const char *path, const char *table, int64_t rows)
{
    char sql[200];
    double fan, pages;
    int then = 1;
    shape s;
    memset(&s, 0, sizeof s);
    snprintf(sql, sizeof sql, "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", table);
    s.page_size = (long)number(path, "PRAGMA page_size");
    s.file = fopen(path, "rb");
    if (!s.file) b_die(path, "cannot read");
    walk(&s, (unsigned)number(path, sql), 1);
    fclose(s.file);
    fan = s.lowest ? (double)s.leaves / (double)s.lowest : (double)s.page_size / 10;
    for (pages = (double)s.leaves * 1e7 / (double)rows; pages > 1; pages /= fan) then++;
    printf("   %-10s %9.0f rows: %7.0f leaves, %d levels; at 10,000,000 rows: %d levels\n", table,
           (double)rows, (double)s.leaves, s.depth, then);
}

/* ---- fast at any size ---------------------------------------------------------------------- */

typedef struct pair {
    b_samples small, big, ratio;
} pair;

/* What the storing jobs left pending is over, as if it had been handled. */
static void finish_all(const char *path)
{
    sqlite3 *db = b_connect(path, EB_DURABLE_NORMAL);
    b_sql(db, "DELETE FROM deliveries");
    sqlite3_close(db);
}

/* One job on both files, between two runs of the anchor; who goes first changes. */
static void compare(b_anchor *a, const w_job *job, w_bus *small, w_bus *big, int big_first, pair *p)
{
    double before, s, b;
    do {
        before = a->last > 0 ? a->last : b_raw_rate(&a->raw, 0.1);
        b = big_first ? w_rate(job, big, SECONDS) : 0;
        s = w_rate(job, small, SECONDS);
        if (!big_first) b = w_rate(job, big, SECONDS);
        a->last = b_raw_rate(&a->raw, 0.1);
    } while (b_anchor_slow(a, before, a->last));
    b_add(&a->rates, a->last);
    b_add(&p->small, s);
    b_add(&p->big, b);
    b_add(&p->ratio, b / s);
}

static void round_of_kind(b_anchor *a, const char *small_path, const char *big_path, int durability,
                          int kind, int last, int round, pair *pairs)
{
    w_bus small, big;
    int k, any = 0;
    for (k = 0; k < W_JOBS; k++) any |= w_jobs[k].kind == kind && chosen(&w_jobs[k], last);
    if (!any) return;
    w_open(&small, small_path, durability, kind);
    w_open(&big, big_path, durability, kind);
    for (k = 0; k < W_JOBS; k++) /* warm up, so that both WALs have grown */
        if (w_jobs[k].kind == kind && (w_jobs[k].batch == 100 || kind == W_PUMP))
            w_rate(&w_jobs[k], &small, SECONDS / 2), w_rate(&w_jobs[k], &big, SECONDS / 2);
    for (k = 0; k < W_JOBS; k++)
        if (w_jobs[k].kind == kind && chosen(&w_jobs[k], last))
            compare(a, &w_jobs[k], &small, &big, round & 1, &pairs[k]);
    w_close(&small);
    w_close(&big);
    finish_all(small_path);
    finish_all(big_path);
}

/* All rounds at one stop and one durability; the verdicts at the last stop. */
static void stop(FILE *data, const char *model, const char *big_path, int64_t rows, int durability,
                 int last)
{
    static const int kinds[] = {W_STORE, W_LIVE, W_PUMP};
    const char *level = b_durability(durability);
    char small_path[400];
    pair pairs[W_JOBS];
    int round, rounds = b_turns(last ? ROUNDS : ROUNDS / 2), k;
    b_anchor a;
    memset(pairs, 0, sizeof pairs);
    b_anchor_open(&a, b_path("growth-raw"), durability, SPARE);
    for (round = 0; round < rounds; round++) {
        snprintf(small_path, sizeof small_path, "%s", b_path("growth-small"));
        copy(model, small_path);
        for (k = 0; k < 3; k++) {
            round_of_kind(&a, small_path, big_path, durability, kinds[k], last, round, pairs);
            b_progress(level, round * 3 + k + 1, rounds * 3);
        }
    }
    printf("   durability %s, %.0f rows, %d rounds (%d turns repeated); a: %.0f/s [%.0f .. %.0f]\n",
           level, (double)rows, rounds, a.repeated, b_median(&a.rates), b_min(&a.rates),
           b_max(&a.rates));
    for (k = 0; k < W_JOBS; k++) {
        pair *p = &pairs[k];
        if (p->ratio.n == 0) continue;
        fprintf(data, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\n", level, w_jobs[k].name,
                (double)rows, b_median(&p->big), b_median(&p->small), b_median(&p->ratio),
                b_min(&p->ratio), b_max(&p->ratio));
        printf("   %-36s %8.0f/s, at 10,000: %8.0f/s   %s\n", w_jobs[k].name, b_median(&p->big),
               b_median(&p->small), b_spread(&p->ratio));
        if (last)
            b_verdict(level, b_text("%.1fM rows: %s", (double)rows / 1e6, w_jobs[k].name),
                      b_rate(&p->big), b_rate(&a.rates),
                      b_text("%s of 10,000", b_spread(&p->ratio)), ">= 0.9",
                      b_median(&p->ratio) >= 0.9);
        b_free(&p->small), b_free(&p->big), b_free(&p->ratio);
    }
    b_anchor_close(&a);
}

/* ---- claims: the statements the bus really runs, timed from outside ------------------------ */

static struct {
    sqlite3_stmt *open[4]; /* claim statements that have begun and not ended */
    int depth;
    int64_t begin_ns, total_ns, statements;
} claims;

static int is_claim(const char *sql)
{
    if (!sql || !strstr(sql, "deliveries")) return 0;
    if (strncmp(sql, "UPDATE", 6) == 0) return strstr(sql, "status='processing'") != NULL;
    return strncmp(sql, "SELECT", 6) == 0 && strstr(sql, "event_log") && strstr(sql, "LIMIT");
}

static int on_trace(unsigned what, void *user, void *stmt, void *detail)
{
    int i;
    (void)user;
    (void)detail;
    if (!is_claim(sqlite3_sql((sqlite3_stmt *)stmt))) return 0;
    for (i = 0; i < claims.depth && claims.open[i] != (sqlite3_stmt *)stmt; i++) {}
    if (what == SQLITE_TRACE_STMT && i == claims.depth && i < 4) {
        claims.open[claims.depth++] = (sqlite3_stmt *)stmt;
        if (claims.depth == 1) claims.begin_ns = b_ns();
    } else if (what == SQLITE_TRACE_PROFILE && i < claims.depth) {
        claims.statements++;
        claims.open[i] = claims.open[--claims.depth];
        if (claims.depth == 0) claims.total_ns += b_ns() - claims.begin_ns;
    }
    return 0;
}

static int trace_new_connection(sqlite3 *db, char **error, const void *api)
{
    (void)error;
    (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT | SQLITE_TRACE_PROFILE, on_trace, NULL);
}

/* The same by plain SQL, without a commit: the next event, and its row marked. */
static double raw_claim_us(const char *path, int events)
{
    sqlite3 *db = b_connect(path, EB_DURABLE_NORMAL);
    sqlite3_stmt *next = b_prepare(db, "SELECT d.seq, l.id, l.type, l.payload FROM deliveries AS d"
                                       " JOIN event_log AS l ON l.seq = d.seq WHERE d.seq > ?1"
                                       " AND d.status = 'pending' ORDER BY d.seq LIMIT 1");
    sqlite3_stmt *mark = b_prepare(db, "UPDATE deliveries SET status = 'processing', token = 1"
                                       " WHERE seq = ?1");
    int64_t seq = 0, begin, end;
    int i;
    b_sql(db, "BEGIN IMMEDIATE");
    begin = b_ns();
    for (i = 0; i < events; i++) {
        sqlite3_bind_int64(next, 1, seq);
        if (sqlite3_step(next) != SQLITE_ROW) b_die("raw_claim_us", "no event is pending");
        seq = sqlite3_column_int64(next, 0);
        sqlite3_reset(next);
        sqlite3_bind_int64(mark, 1, seq);
        b_step(mark);
    }
    end = b_ns();
    b_sql(db, "ROLLBACK");
    sqlite3_finalize(next);
    sqlite3_finalize(mark);
    sqlite3_close(db);
    return (double)(end - begin) / 1e3 / events;
}

/* Stores so many events. */
static void store_backlog(const char *path, int64_t backlog)
{
    static const w_job send = {"backlog", W_STORE, 1, 100, 0, 0};
    w_caller c = {NULL, NULL, 0, 0, 0};
    w_bus store;
    w_open(&store, path, EB_DURABLE_NORMAL, W_STORE);
    c.job = &send;
    c.bus = store.bus;
    while (c.events < backlog) w_caller_main(&c); /* one call: its time is up at once */
    w_close(&store);
}

/* Microseconds per event that claiming from disk takes among this many pending ones. */
static double claim_us(const char *path, int backlog)
{
    enum { CLAIMS = 2000 };
    w_bus pump;
    eb_message one;
    char payload[B_PAYLOAD_BYTES + 1];
    int64_t until;
    memset(&one, 0, sizeof one);
    b_payload(payload, 0);
    one.type = "order.placed";
    one.payload = payload;
    one.deliver_at_ms = 1; /* long ago: due at once, and read from disk, not kept in memory */
    finish_all(path);
    if (backlog > 1) store_backlog(path, backlog);
    sqlite3_auto_extension((void (*)(void))trace_new_connection);
    w_open(&pump, path, EB_DURABLE_NORMAL, W_PUMP);
    sqlite3_cancel_auto_extension((void (*)(void))trace_new_connection);
    memset(&claims, 0, sizeof claims);
    until = backlog > 1 && backlog < CLAIMS ? backlog : CLAIMS;
    while (pump.handled < until) {
        if (backlog == 1) B_OK(eb_send(pump.bus, &one, 1, NULL));
        B_OK(eb_pump(pump.bus, 0, NULL));
    }
    if (claims.statements == 0) b_die("claim_us", "saw no statement that claims");
    w_close(&pump);
    return (double)claims.total_ns / 1e3 / (double)pump.handled;
}

static void measure_claims(const char *path, int64_t rows)
{
    static const int backlogs[] = {1, 100, 10000, 100000};
    b_samples us = {0};
    double raw;
    int i;
    for (i = 0; i < 4; i++) {
        b_add(&us, claim_us(path, backlogs[i]));
        printf("   claim among %.0f done and %d pending: %.1f us an event\n", (double)rows,
               backlogs[i], us.v[i]);
    }
    raw = raw_claim_us(path, 2000);
    finish_all(path);
    b_verdict("NORMAL", b_text("%.1fM done, 1 to 100,000 pending: claim", (double)rows / 1e6),
              b_text("%.1f us", b_max(&us)), b_text("%.1f us", raw), b_text("%s us", b_spread(&us)),
              "<= 10 us", b_max(&us) <= 10);
    b_free(&us);
}

/* ---- a start with a million pending events, in a process of its own ------------------------ */

static int64_t first_call_ns;

static eb_result note_first(eb_delivery *delivery, void *user)
{
    if (first_call_ns == 0) first_call_ns = b_ns(); /* one worker; read when the bus is gone */
    return w_empty(delivery, user);
}

/* "VmHWM:" and such, in KiB. */
static long status_kib(const char *key)
{
    char line[200];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) kib = atol(line + strlen(key));
    if (f) fclose(f);
    return kib;
}

/* The child: starts, works for a second, prints ms from eb_open, ms from eb_start, peak RSS, and
** events per second. */
static int start_here(const char *path)
{
    eb_options options;
    eb_bus *bus;
    int64_t opening, starting, handled = 0;
    memset(&options, 0, sizeof options);
    options.path = path;
    options.logger.func = b_quiet;
    opening = b_ns();
    B_OK(eb_open(&bus, &options));
    B_OK(eb_subscribe(bus, "*", note_first, &handled, NULL, NULL));
    starting = b_ns();
    B_OK(eb_start(bus));
    b_sleep_ms(1000);
    B_OK(eb_shutdown(bus));
    printf("%.3f %.3f %ld %.0f\n", (double)(first_call_ns - opening) / 1e6,
           (double)(first_call_ns - starting) / 1e6, status_kib("VmHWM:"), (double)handled);
    eb_destroy(bus);
    return 0;
}

/* Plain SQL: from opening the file to the first pending event, in ms. */
static double raw_first_ms(const char *path)
{
    int64_t begin = b_ns();
    if (number(path, "SELECT l.seq FROM deliveries AS d JOIN event_log AS l ON l.seq = d.seq"
                     " WHERE d.status = 'pending' ORDER BY d.seq LIMIT 1") == 0)
        b_die(path, "nothing is pending");
    return (double)(b_ns() - begin) / 1e6;
}

static void measure_start(const char *program)
{
    b_samples first = {0}, raw = {0}, peak = {0};
    double from_open, from_start, handled;
    char command[1000], path[400];
    int turn, turns = b_turns(3);
    long kib;
    snprintf(path, sizeof path, "%s", b_path("growth-pending"));
    create(path, 1);
    fill(path, PENDING, 1);
    for (turn = 0; turn < turns; turn++) {
        FILE *child;
        b_add(&raw, raw_first_ms(path));
        snprintf(command, sizeof command, "'%s' --start '%s'", program, path);
        fflush(stdout);
        child = popen(command, "r");
        if (!child || fscanf(child, "%lf %lf %ld %lf", &from_open, &from_start, &kib,
                             &handled) != 4 || pclose(child) != 0)
            b_die(command, "failed");
        b_add(&first, from_start);
        b_add(&peak, (double)kib / 1024);
        printf("   start, 1,000,000 pending: first handler call after %.1f ms (%.1f ms from "
               "eb_open), then %.0f events in 1 s, peak RSS %.1f MiB\n", from_start, from_open,
               handled, (double)kib / 1024);
    }
    b_verdict("FULL", "1M pending: start to first handler call", 
              b_text("%.1f ms", b_median(&first)), b_text("%.1f ms", b_median(&raw)),
              b_text("%s ms", b_spread(&first)), "<= 50 ms", b_median(&first) <= 50);
    b_verdict("FULL", "1M pending: peak RSS", b_text("%.1f MiB", b_max(&peak)), "-",
              b_text("%s MiB", b_spread(&peak)), "< 64 MiB",
              b_max(&peak) > 0 && b_max(&peak) < 64);
    b_free(&first), b_free(&raw), b_free(&peak);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static double file_bytes(const char *path)
{
    return (double)(number(path, "PRAGMA page_count") * number(path, "PRAGMA page_size"));
}

/* Of a finished event; beside it a row of the lean table. */
static void measure_bytes(void)
{
    enum { EVENTS = 20000 };
    const w_job *pump = &w_jobs[W_JOBS - 1];
    const char *path = b_path("growth-bytes"), *lean_path = b_path("growth-bytes-raw");
    double ours, lean, empty;
    b_raw raw;
    w_bus w;
    int i;
    w_open(&w, path, EB_DURABLE_NORMAL, W_PUMP);
    w_close(&w);
    empty = file_bytes(path);
    w_open(&w, path, EB_DURABLE_NORMAL, W_PUMP);
    while (w.handled < EVENTS) w_rate(pump, &w, 0.01);
    w_close(&w);
    ours = (file_bytes(path) - empty) / (double)w.handled;
    b_raw_open_lean(&raw, lean_path, EB_DURABLE_NORMAL);
    for (i = 0; i < EVENTS; i++) b_raw_insert(&raw);
    b_raw_close(&raw);
    lean = file_bytes(lean_path) / EVENTS;
    b_verdict("any", "bytes on disk per finished event", b_text("%.0f", ours), b_text("%.0f", lean),
              b_text("%.2f x payload", ours / B_PAYLOAD_BYTES), "<= 1.7 x payload",
              ours <= 1.7 * B_PAYLOAD_BYTES);
}

int main(int argc, char **argv)
{
    char model[400], big[400];
    int64_t stops[STOPS] = {SMALL, 100000, 1000000, 0};
    FILE *data;
    int i;
    if (argc == 3 && strcmp(argv[1], "--start") == 0) return start_here(argv[2]);
    stops[STOPS - 1] = rows_wanted();
    b_heading("growth: a file with millions of events beside one with ten thousand");
    data = b_data("growth", "level\tjob\trows\trate\trate at 10000\tratio\tmin\tmax");
    snprintf(model, sizeof model, "%s", b_path("growth-model"));
    create(model, 0);
    fill(model, SMALL, 0);
    snprintf(big, sizeof big, "%s", b_path("growth-big"));
    create(big, 0);
    for (i = 0; i < STOPS; i++) {
        fill(big, stops[i], 0);
        stop(data, model, big, stops[i], EB_DURABLE_FULL, i == STOPS - 1);
        stop(data, model, big, stops[i], EB_DURABLE_NORMAL, i == STOPS - 1);
    }
    fclose(data);
    measure_claims(big, stops[STOPS - 1]);
    depth(model, "event_log", SMALL);
    depth(big, "event_log", number(big, "SELECT count(*) FROM event_log"));
    depth(big, "finished", number(big, "SELECT count(*) FROM finished"));
    measure_bytes();
    measure_start(argv[0]);
    return 0;
}
