/* bench.h - what the benchmarks share: a clock, samples and their percentiles, a payload, the raw
** SQLite writers that stand beside every figure, and the lines that say what was measured where.
**
** A figure is a ratio: ours and raw SQLite take short turns, A B A B, on the same disk in the same
** seconds. Each turn lies between two runs of the same anchor (raw SQLite). If these differ by more
** than 2x, or fall below a third of the best that the anchor did in this run, the disk is in a slow
** spell: the turn is repeated a little later, see b_turn(). When there is no turn left to repeat,
** the figure is marked.
**
** BENCH_DIR=/some/disk  where the databases go; default build/data. BENCH_TURNS=1: a quick look.
**
** Include after eventbus.h: the implementation chooses the POSIX level.
*/
#ifndef BENCH_H
#define BENCH_H
#include "sqlite3.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#if defined(__GNUC__)
#define B_FN static __attribute__((unused))
#else
#define B_FN static
#endif

#define B_PAYLOAD_BYTES 200

/* ---- stopping ------------------------------------------------------------------------------ */

B_FN void b_die(const char *where, const char *what)
{
    fprintf(stderr, "\nbench: %s: %s\n", where, what);
    exit(1);
}

/* Every result of the bus goes through here. */
#define B_OK(expr) b_check(#expr, (expr))
B_FN void b_check(const char *where, eb_result got)
{
    char text[300];
    if (got == EB_OK) return;
    eb_errmsg(text, sizeof text);
    fprintf(stderr, "\nbench: %s: %s (%s)\n", where, eb_strerror(got), text);
    exit(1);
}

/* ---- clock --------------------------------------------------------------------------------- */

B_FN int64_t b_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

B_FN void b_sleep_ms(int64_t ms)
{
    struct timespec t;
    t.tv_sec = (time_t)(ms / 1000);
    t.tv_nsec = (long)(ms % 1000) * 1000000;
    nanosleep(&t, NULL);
}

/* Sleeps until this moment of b_ns(); returns at once if it has passed. */
B_FN void b_sleep_until(int64_t ns)
{
    int64_t left = ns - b_ns();
    struct timespec t;
    if (left <= 0) return;
    t.tv_sec = (time_t)(left / 1000000000);
    t.tv_nsec = (long)(left % 1000000000);
    nanosleep(&t, NULL);
}

/* ---- samples ------------------------------------------------------------------------------- */

typedef struct b_samples {
    double *v;
    size_t n, cap;
    int sorted;
} b_samples;

B_FN void b_add(b_samples *s, double x)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 64;
        s->v = (double *)realloc(s->v, s->cap * sizeof *s->v);
        if (!s->v) b_die("b_add", "out of memory");
    }
    s->v[s->n++] = x;
    s->sorted = 0;
}

B_FN void b_join(b_samples *to, const b_samples *from)
{
    size_t i;
    for (i = 0; i < from->n; i++) b_add(to, from->v[i]);
}

B_FN void b_free(b_samples *s)
{
    free(s->v);
    memset(s, 0, sizeof *s);
}

B_FN int b_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest sample that at least p percent of all do not exceed; 0: the least, 100: the most. */
B_FN double b_percentile(b_samples *s, double p)
{
    size_t k;
    if (s->n == 0) return 0;
    if (!s->sorted) qsort(s->v, s->n, sizeof *s->v, b_compare);
    s->sorted = 1;
    k = (size_t)(p / 100.0 * (double)s->n + 0.999999);
    return s->v[k > 0 ? k - 1 : 0];
}

B_FN double b_median(b_samples *s)
{
    double hi = b_percentile(s, 50);
    return s->n > 0 && s->n % 2 == 0 ? (hi + s->v[s->n / 2]) / 2 : hi;
}
B_FN double b_min(b_samples *s) { return b_percentile(s, 0); }
B_FN double b_max(b_samples *s) { return b_percentile(s, 100); }

/* ---- the work ------------------------------------------------------------------------------ */

/* 200 bytes of JSON that begin with {"n":<9 digits>, so that b_number() can read n back. Cheap:
** what is measured is the bus, not snprintf(). */
B_FN void b_payload(char out[B_PAYLOAD_BYTES + 1], unsigned n)
{
    static const char model[] =
        "{\"n\":         ,\"user\":\"u-104729\",\"items\":[{\"sku\":\"A-1021\",\"qty\":2},{\"sku\":"
        "\"B-77\",\"qty\":1}],\"total\":129.95,\"currency\":\"EUR\",\"note\":\"leave it with the "
        "neighbours on the left, they know, and ring twice\"}";
    int i = 13;
    memcpy(out, model, B_PAYLOAD_BYTES + 1);
    n %= 1000000000u;
    do out[i--] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
}
B_FN unsigned b_number(const char *payload) { return (unsigned)strtoul(payload + 5, NULL, 10); }

B_FN uint64_t b_random(void)
{
    static uint64_t s = UINT64_C(0x9E3779B97F4A7C15);
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s * UINT64_C(0x2545F4914F6CDD1D);
}

/* ---- where and what ------------------------------------------------------------------------ */

/* A fresh database path in $BENCH_DIR, or in build/data: on the disk to be measured, no tmpfs. */
B_FN const char *b_path(const char *name)
{
    static char ring[8][400];
    static int turn;
    static const char *const tail[] = {"", "-wal", "-shm", "-journal", "-.owner", ".owner"};
    const char *dir = getenv("BENCH_DIR") ? getenv("BENCH_DIR") : "build/data";
    char *path = ring[turn++ & 7], victim[440];
    size_t i;
    mkdir(dir, 0777);
    snprintf(path, sizeof ring[0], "%s/%s.db", dir, name);
    for (i = 0; i < sizeof tail / sizeof *tail; i++) {
        snprintf(victim, sizeof victim, "%s%s", path, tail[i]);
        remove(victim);
    }
    return path;
}

/* "2 x Some CPU, Linux 6.1 x86_64; eventbus 0.1.0, SQLite 3.53.4, payload 200 bytes" */
B_FN const char *b_machine(void)
{
    static char text[600];
    char cpu[200] = "unknown CPU", line[300];
    FILE *f = fopen("/proc/cpuinfo", "r");
    struct utsname os;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            snprintf(cpu, sizeof cpu, "%s", strchr(line, ':') + 2);
            cpu[strcspn(cpu, "\n")] = 0;
            break;
        }
    if (f) fclose(f);
    if (uname(&os) != 0) b_die("uname", "failed");
    snprintf(text, sizeof text, "%ld x %s, %.40s %.40s; eventbus %s, SQLite %s, payload %d bytes",
             sysconf(_SC_NPROCESSORS_ONLN), cpu, os.sysname, os.machine, eb_version(),
             sqlite3_libversion(), B_PAYLOAD_BYTES);
    return text;
}

/* The heading of every program: the question, the machine, the versions. */
B_FN void b_heading(const char *question)
{
    printf("\n== %s\n   %s\n   database in %s\n", question, b_machine(),
           getenv("BENCH_DIR") ? getenv("BENCH_DIR") : "bench/build/data");
    fflush(stdout);
}

/* Opens build/<name>.tsv for the charts: tabs between columns, # before what is no data. */
B_FN FILE *b_data(const char *name, const char *columns)
{
    char path[100];
    FILE *f;
    snprintf(path, sizeof path, "build/%s.tsv", name);
    f = fopen(path, "w");
    if (!f) b_die(path, "cannot write");
    fprintf(f, "# %s\n# %s\n", b_machine(), columns);
    return f;
}

/* How many turns: the program's own number, or $BENCH_TURNS. */
B_FN int b_turns(int usual)
{
    const char *asked = getenv("BENCH_TURNS");
    return asked && atoi(asked) > 0 ? atoi(asked) : usual;
}

/* One line on stderr that is overwritten; a line each if stderr is a file. */
B_FN void b_progress(const char *what, int done, int all)
{
    static time_t last;
    if (isatty(2))
        fprintf(stderr, "\r   %s: %d of %d   ", what, done, all);
    else if (done == all || time(NULL) - last >= 5) {
        fprintf(stderr, "   ... %s: %d of %d\n", what, done, all);
        last = time(NULL);
    }
    if (done == all && isatty(2)) fprintf(stderr, "\r%60s\r", "");
}

/* Text made on the spot; it lives for a few more calls. */
B_FN const char *b_text(const char *format, ...)
{
    static char ring[16][160];
    static int turn;
    char *text = ring[turn++ & 15];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof ring[0], format, args);
    va_end(args);
    return text;
}

/* "1.02 [0.94 .. 1.10]": median and extremes. */
B_FN const char *b_spread(b_samples *s)
{
    int digits = b_median(s) >= 10 ? 1 : 2;
    return b_text("%.*f [%.*f .. %.*f]", digits, b_median(s), digits, b_min(s), digits, b_max(s));
}

B_FN const char *b_rate(b_samples *s) { return b_text("%.0f/s", b_median(s)); }

/* Turns beside the open anchor that were kept though the disk was slow. */
static int b_slow_turns;

/* The last word on one figure: ours, raw SQLite in the same turns, the figure that has a goal. Also
** appended to build/summary.txt for the table at the end. */
B_FN void b_verdict(const char *level, const char *what, const char *ours, const char *raw,
                    const char *figure, const char *goal, int pass)
{
    FILE *f = fopen("build/summary.txt", "a");
    const char *word = pass ? "PASS" : "MISS";
    printf("   -> %s, %s: %s, goal %s: %s\n", what, level, figure, goal, word);
    fflush(stdout);
    if (!f) b_die("build/summary.txt", "cannot write");
    fprintf(f, "%s%c %-6s  %-46s %10s %10s   %-33s %s\n", word, b_slow_turns ? '*' : ' ', level,
            what, ours, raw, figure, goal);
    fclose(f);
}

B_FN void b_quiet(const eb_log_entry *e, void *user)
{
    (void)e;
    (void)user;
}

B_FN const char *b_durability(int durability)
{
    return durability == EB_DURABLE_FULL ? "FULL" : "NORMAL";
}

/* ---- raw SQLite: the limit ----------------------------------------------------------------- */

B_FN void b_sql(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) b_die(sql, sqlite3_errmsg(db));
}

B_FN sqlite3_stmt *b_prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) != SQLITE_OK)
        b_die(sql, sqlite3_errmsg(db));
    return stmt;
}

B_FN void b_step(sqlite3_stmt *stmt)
{
    if (sqlite3_step(stmt) != SQLITE_DONE)
        b_die(sqlite3_sql(stmt), sqlite3_errmsg(sqlite3_db_handle(stmt)));
    sqlite3_reset(stmt);
}

B_FN sqlite3 *b_connect(const char *path, int durability)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        b_die(path, "cannot open");
    sqlite3_busy_timeout(db, 5000);
    b_sql(db, "PRAGMA journal_mode = WAL");
    b_sql(db, durability == EB_DURABLE_FULL ? "PRAGMA synchronous = FULL"
                                            : "PRAGMA synchronous = NORMAL");
    return db;
}

/* A writer that stores one event per transaction: BEGIN IMMEDIATE, one or two INSERTs, COMMIT. */
typedef struct b_raw {
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *log, *live;
    int lean, seq_col, id_col, payload_col, live_seq_col;
    int64_t seq;
} b_raw;

/* "Lean": the least that a queue in one table can do. */
B_FN void b_raw_open_lean(b_raw *r, const char *path, int durability)
{
    memset(r, 0, sizeof *r);
    r->lean = 1;
    r->db = b_connect(path, durability);
    b_sql(r->db, "CREATE TABLE events(seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE,"
                 " type TEXT NOT NULL, payload TEXT NOT NULL, status INTEGER NOT NULL,"
                 " retry_count INTEGER NOT NULL DEFAULT 0, last_error TEXT, metadata TEXT,"
                 " created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);"
                 "CREATE INDEX live ON events(status, seq) WHERE status < 2");
    r->begin = b_prepare(r->db, "BEGIN IMMEDIATE");
    r->commit = b_prepare(r->db, "COMMIT");
    r->log = b_prepare(r->db, "INSERT INTO events(id, type, payload, status, created_at,"
                              " updated_at) VALUES(?1, ?2, ?3, 0, ?4, ?4)");
}

/* An INSERT into table with every column bound to what its one row holds now; cols: the position
** of each named column, from 1. */
B_FN sqlite3_stmt *b_clone_insert(sqlite3 *db, const char *table, const char *const *names,
                                  int **cols)
{
    char sql[1000], values[300] = "";
    sqlite3_stmt *row, *insert;
    int i, n, k;
    snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY seq DESC LIMIT 1", table);
    row = b_prepare(db, sql);
    if (sqlite3_step(row) != SQLITE_ROW) b_die(table, "no row to copy");
    n = sqlite3_column_count(row);
    snprintf(sql, sizeof sql, "INSERT INTO %s(", table);
    for (i = 0; i < n; i++) {
        const char *name = sqlite3_column_name(row, i);
        snprintf(sql + strlen(sql), sizeof sql - strlen(sql), "%s%s", i ? "," : "", name);
        snprintf(values + strlen(values), sizeof values - strlen(values), "%s?%d", i ? "," : "",
                 i + 1);
        for (k = 0; names[k]; k++)
            if (strcmp(name, names[k]) == 0) *cols[k] = i + 1;
    }
    snprintf(sql + strlen(sql), sizeof sql - strlen(sql), ") VALUES(%s)", values);
    insert = b_prepare(db, sql);
    for (i = 0; i < n; i++) sqlite3_bind_value(insert, i + 1, sqlite3_column_value(row, i));
    sqlite3_finalize(row);
    return insert;
}

/* "Same": our own tables and indexes, as eb_open() made them, filled by plain SQL with rows of the
** same columns and sizes as eb_post() writes: the log row and the live row. */
B_FN void b_raw_open_same(b_raw *r, const char *path, int durability)
{
    static const char *const log_names[] = {"seq", "id", "payload", NULL}, *const live_names[] = {
        "seq", NULL};
    int *log_cols[3], *live_cols[1];
    char payload[B_PAYLOAD_BYTES + 1];
    eb_options options;
    eb_bus *bus;
    memset(r, 0, sizeof *r);
    memset(&options, 0, sizeof options);
    options.path = path;
    options.on_unmatched = EB_UNMATCHED_KEEP;
    options.logger.func = b_quiet;
    b_payload(payload, 0);
    B_OK(eb_open(&bus, &options));
    B_OK(eb_post(bus, "order.placed", payload, NULL));
    eb_destroy(bus);
    r->db = b_connect(path, durability);
    r->begin = b_prepare(r->db, "BEGIN IMMEDIATE");
    r->commit = b_prepare(r->db, "COMMIT");
    log_cols[0] = &r->seq_col, log_cols[1] = &r->id_col, log_cols[2] = &r->payload_col;
    live_cols[0] = &r->live_seq_col;
    r->log = b_clone_insert(r->db, "event_log", log_names, log_cols);
    r->live = b_clone_insert(r->db, "deliveries", live_names, live_cols);
    r->seq = 1000;
    if (!r->seq_col || !r->id_col || !r->payload_col || !r->live_seq_col)
        b_die(path, "the tables are not as expected");
}

B_FN void b_raw_bind_lean(b_raw *r, const char *payload, unsigned char id[16])
{
    struct timespec t;
    uint64_t a, b = b_random();
    int64_t ms;
    int i;
    clock_gettime(CLOCK_REALTIME, &t);
    ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    a = (uint64_t)ms << 16 | 0x7000u | ((uint64_t)r->seq & 0xfffu); /* uuid v7: grows with time */
    b = (b >> 2) | UINT64_C(0x8000000000000000);
    for (i = 0; i < 8; i++) {
        id[i] = (unsigned char)(a >> (56 - 8 * i));
        id[8 + i] = (unsigned char)(b >> (56 - 8 * i));
    }
    sqlite3_bind_blob(r->log, 1, id, 16, SQLITE_STATIC);
    sqlite3_bind_text(r->log, 2, "order.placed", -1, SQLITE_STATIC);
    sqlite3_bind_text(r->log, 3, payload, B_PAYLOAD_BYTES, SQLITE_STATIC);
    sqlite3_bind_int64(r->log, 4, ms);
}

/* One event in one transaction. */
B_FN void b_raw_insert(b_raw *r)
{
    char payload[B_PAYLOAD_BYTES + 1], text[40];
    unsigned char id[16];
    b_payload(payload, (unsigned)++r->seq);
    b_step(r->begin);
    if (r->lean)
        b_raw_bind_lean(r, payload, id);
    else {
        uint64_t a = b_random(), b = b_random();
        snprintf(text, sizeof text, "%08x-%04x-4%03x-a%03x-%012llx", (unsigned)(a >> 32),
                 (unsigned)(a >> 16) & 0xffffu, (unsigned)a & 0xfffu, (unsigned)(b >> 52),
                 (unsigned long long)(b & UINT64_C(0xffffffffffff)));
        sqlite3_bind_int64(r->log, r->seq_col, r->seq);
        sqlite3_bind_text(r->log, r->id_col, text, 36, SQLITE_STATIC);
        sqlite3_bind_text(r->log, r->payload_col, payload, B_PAYLOAD_BYTES, SQLITE_STATIC);
        sqlite3_bind_int64(r->live, r->live_seq_col, r->seq);
    }
    b_step(r->log);
    if (r->live) b_step(r->live);
    b_step(r->commit);
}

/* One-insert transactions for this long: events per second. */
B_FN double b_raw_rate(b_raw *r, double seconds)
{
    int64_t begin = b_ns(), now, n = 0;
    do {
        b_raw_insert(r);
        n++;
        now = b_ns();
    } while ((double)(now - begin) < seconds * 1e9);
    return (double)n * 1e9 / (double)(now - begin);
}

B_FN void b_raw_close(b_raw *r)
{
    sqlite3_stmt *stmt;
    while ((stmt = sqlite3_next_stmt(r->db, NULL)) != NULL) sqlite3_finalize(stmt);
    sqlite3_close(r->db);
}

/* ---- the anchor: a = raw SQLite, lean table, one INSERT per transaction -------------------- */

/* Two runs of one anchor: 1 if the disk was the same before and after. */
B_FN int b_steady(double before, double after)
{
    return before < 2 * after && after < 2 * before;
}

typedef struct b_anchor {
    b_raw raw;
    double last, best;   /* events per second: of the run just before now, 0: none; of all runs */
    char best_path[40];  /* where the best of all programs of this run is kept */
    b_samples rates;
    int repeated, spare; /* spare: turns that may still be repeated */
} b_anchor;

B_FN void b_anchor_open(b_anchor *a, const char *path, int durability, int spare)
{
    FILE *f;
    memset(a, 0, sizeof *a);
    a->spare = spare;
    b_slow_turns = 0;
    snprintf(a->best_path, sizeof a->best_path, "build/best-%s", b_durability(durability));
    f = fopen(a->best_path, "r");
    if (f && fscanf(f, "%lf", &a->best) != 1) a->best = 0;
    if (f) fclose(f);
    b_raw_open_lean(&a->raw, path, durability);
    b_raw_rate(&a->raw, 0.15); /* warm up: the WAL has its size */
}

B_FN void b_anchor_close(b_anchor *a)
{
    FILE *f = fopen(a->best_path, "w");
    if (f) {
        fprintf(f, "%.0f\n", a->best);
        fclose(f);
    }
    b_raw_close(&a->raw);
    b_free(&a->rates);
    b_slow_turns = 0; /* what comes next does not depend on it */
}

/* 1 if this pair of runs is of a slow spell, and there is a turn to spare for it. */
B_FN int b_anchor_slow(b_anchor *a, double before, double after)
{
    if (after > a->best) a->best = after;
    if (b_steady(before, after) && before + after > 2 * a->best / 3) return 0;
    if (a->spare == 0) {
        b_slow_turns++;
        return 0;
    }
    a->spare--;
    a->repeated++;
    b_sleep_ms(500);
    a->last = 0;
    return 1;
}

/* One turn of work(arg), which returns a rate, between two runs of the anchor: adds the rate, and
** its ratio to their mean. The anchor after one turn is the anchor before the next. */
B_FN void b_turn(b_anchor *a, double (*work)(void *arg), void *arg, b_samples *rate,
                 b_samples *ratio)
{
    enum { PART = 8 }; /* the anchor runs for 1/8 s */
    double before, r;
    do {
        before = a->last > 0 ? a->last : b_raw_rate(&a->raw, 1.0 / PART);
        r = work(arg);
        a->last = b_raw_rate(&a->raw, 1.0 / PART);
    } while (b_anchor_slow(a, before, a->last));
    b_add(&a->rates, a->last);
    b_add(rate, r);
    b_add(ratio, r / ((before + a->last) / 2));
}

#endif /* BENCH_H */
