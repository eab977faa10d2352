/* scenes.h - what both ladders climb over: a small scene for every kind of call, each with the same
** frame around it.
**
**     prepare   a fresh file: none, one with some history, or one that a crash left behind; a bus
**               if the scene wants it open. Nothing fails yet.
**     play      the calls that the scene is about, with the fault armed. Each result must be one
**               that the fault may cause (w.allowed) and nothing else.
**     crash     the files as a kill -9 would leave them at this moment, copied and checked: here
**               what was refused must not come back, and "unknown" is put to the test.
**     finish    the fault is over: the same bus, or one opened anew if it could not be opened, must
**               publish, dispatch and shut down; then the ledger is checked.
**
** Time is the injected clock's; sleeping moves it. A fault that lasts is over after some sleeps (a
** bus that waits for a full disk waits for ever, and is right to), so every scene ends.
*/
#ifndef SCENES_H
#define SCENES_H
static int scene_wal_pages = 1000; /* the scene `checkpoint` has it earlier */
#define EB_WAL_PAGES scene_wal_pages
#include "ledger.h"
#include "vfs.h"

typedef struct world {
    ledger book;
    char path[400];
    t_time time;
    eb_options options;
    eb_bus *bus;
    int started, subscribed, sleeps;
    int armed;                                  /* between play and finish */
    int (*allowed)(const char *call, eb_result rc); /* whether the armed fault may cause this */
    void (*heal)(void);
    uint64_t begin; /* see scene_fingerprint() */
    int judged;
    int wrong;
    char why[1600];
} world;

static world w;
static int scene_thorough; /* see scene_fingerprint() */

enum { SCENE_MAX_ATTEMPTS = 2, SCENE_SLEEPS = 150 };

static void scene_bad(const char *fmt, ...) EB_PRINTF(1, 2);
static void scene_bad(const char *fmt, ...)
{
    static ebi_mutex lock = EBI_MUTEX_INIT;
    size_t k;
    va_list args;
    ebi_mutex_lock(&lock);
    k = strlen(w.why);
    w.wrong++;
    if (k + 300 <= sizeof w.why) {
        if (k) k += (size_t)snprintf(w.why + k, sizeof w.why - k, "; ");
        va_start(args, fmt);
        vsnprintf(w.why + k, 290, fmt, args);
        va_end(args);
    }
    ebi_mutex_unlock(&lock);
}

/* Judges the result of a call: while the fault is armed what it may cause, else success only. */
static eb_result scene_call(const char *call, eb_result rc)
{
    char msg[160];
    if (rc >= 0) return rc;
    if (w.armed && w.allowed(call, rc)) return rc;
    eb_errmsg(msg, sizeof msg);
    scene_bad("%s%s: %s (%s)", call, w.armed ? "" : " after the fault", eb_strerror(rc), msg);
    return rc;
}
#define CALL(expr) scene_call(#expr, (expr))

/* ---- an allocator that counts, and fails when told ------------------------------------------- */

static int64_t scene_blocks;         /* of ours that are not freed */
static int (*scene_no_memory)(void); /* whether this allocation of ours must fail; NULL: none */

T_UNUSED static void *scene_resize(void *ptr, size_t size, void *user)
{
    void *at;
    (void)user;
    if (size == 0) {
        if (ptr) LEDGER_ADD(scene_blocks, -1);
        free(ptr);
        return NULL;
    }
    at = scene_no_memory && scene_no_memory() ? NULL : realloc(ptr, size);
    if (at && !ptr) LEDGER_ADD(scene_blocks, 1);
    return at;
}

/* ---- a clock that heals, a handler that does what the type says ------------------------------ */

static void scene_sleep(int64_t ms, void *user)
{
    (void)user;
    t_advance(&w.time, ms > 0 ? ms : 0);
    if (++w.sleeps == SCENE_SLEEPS && w.armed) w.heal();
    T_MUST(w.sleeps < SCENE_SLEEPS * 200); /* a bus that never gets anywhere */
}

/* Events carry their number in their metadata too, unless they are padded: no part of an event
** may go missing when memory runs out. */
static int scene_whole(const eb_event *e)
{
    char want[32];
    snprintf(want, sizeof want, "{\"n\":\"%d\"}", ledger_number(e->payload));
    if (strstr(e->payload, "pad") ? e->metadata != NULL
                                  : !e->metadata || strcmp(e->metadata, want) != 0) return 0;
    return e->producer && t_errors(e->last_error, -1, NULL, 0) == e->retry_count;
}

/* Publishes without waiting, and tells the ledger. */
static int scene_post(const char *type)
{
    char payload[64], metadata[32];
    eb_message m;
    eb_id id;
    int n = ledger_attempt(&w.book, type, SCENE_MAX_ATTEMPTS, 0, payload, sizeof payload);
    snprintf(metadata, sizeof metadata, "{\"n\":\"%d\"}", n);
    memset(&id, 0, sizeof id);
    memset(&m, 0, sizeof m);
    m.type = type;
    m.payload = payload;
    m.metadata = metadata;
    ledger_answer(&w.book, n, CALL(eb_send(w.bus, &m, 1, &id)), &id);
    return n;
}

static eb_result scene_handler(eb_delivery *d, void *user)
{
    const char *type = d->event->type;
    int n = ledger_run(&w.book, d);
    (void)user;
    if (!scene_whole(d->event)) scene_bad("a handler got event %d, but not all of it", n);
    if (strcmp(type, "parent") == 0) {
        scene_post("ok");
        scene_post("ok");
    }
    if (strcmp(type, "dies") == 0)
        return ledger_ran(&w.book, n, eb_fail(d, "attempt %d", d->attempt));
    if (strcmp(type, "second") == 0 && d->event->retry_count == 0)
        return ledger_ran(&w.book, n, eb_fail(d, "not yet"));
    if (strcmp(type, "hopeless") == 0) {
        ledger_note(&w.book, n, LEDGER_REJECTED);
        return ledger_ran(&w.book, n, eb_reject(d, "never"));
    }
    if (strcmp(type, "later") == 0 && d->event->created_at_ms + 50 > w.time.now_ms) {
        ledger_note(&w.book, n, LEDGER_SNOOZED);
        return ledger_ran(&w.book, n, eb_snooze(d, 60));
    }
    return ledger_ran(&w.book, n, EB_OK);
}

/* ---- small calls ----------------------------------------------------------------------------- */

static eb_result scene_open(void)
{
    eb_result rc = CALL(eb_open(&w.bus, &w.options));
    w.started = w.subscribed = 0;
    if ((rc == EB_OK) != (w.bus != NULL)) scene_bad("eb_open: %s, but *out %p", eb_strerror(rc),
                                                    (void *)w.bus);
    return rc;
}
static eb_result scene_subscribe(void)
{
    eb_result rc = CALL(eb_subscribe(w.bus, "*", scene_handler, NULL, NULL, NULL));
    w.subscribed |= rc == EB_OK;
    return rc;
}
static eb_result scene_start(void)
{
    eb_result rc = CALL(eb_start(w.bus));
    w.started |= rc == EB_OK;
    return rc;
}

/* As scene_post(), by eb_post, or by eb_publish, which waits. Returns what that returned. */
static eb_result scene_plain(const char *type, int wait)
{
    char payload[64];
    eb_id id;
    eb_result rc;
    int n = ledger_attempt(&w.book, type, SCENE_MAX_ATTEMPTS, 1, payload, sizeof payload);
    memset(&id, 0, sizeof id);
    if (wait) rc = CALL(eb_publish(w.bus, type, payload, &id));
    else rc = CALL(eb_post(w.bus, type, payload, &id));
    ledger_answer(&w.book, n, rc, &id);
    return rc;
}

/* The id under which event n was acknowledged. */
static const char *scene_id(int n) { return ledger_at(&w.book, n)->id; }

static void scene_close(void)
{
    if (!w.bus) return;
    eb_destroy(w.bus);
    w.bus = NULL;
    w.started = w.subscribed = 0;
}

/* ---- files to begin with --------------------------------------------------------------------- */

typedef struct scene_file { /* a database with its WAL, and the ledger that belongs to it */
    char *db, *wal;
    size_t db_bytes, wal_bytes;
    ledger_book *book;
    size_t book_bytes;
} scene_file;

static scene_file scene_history, scene_crashed;

static char *scene_read(const char *tail, size_t *bytes)
{
    char name[440], *text;
    FILE *f;
    long size;
    snprintf(name, sizeof name, "%s%s", w.path, tail);
    f = fopen(name, "rb");
    *bytes = 0;
    if (!f) return NULL;
    T_MUST(fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0);
    text = (char *)malloc((size_t)size + 1);
    T_MUST(text && fread(text, 1, (size_t)size, f) == (size_t)size);
    fclose(f);
    *bytes = (size_t)size;
    return text;
}
static void scene_write(const char *tail, const char *text, size_t bytes)
{
    char name[420];
    FILE *f;
    snprintf(name, sizeof name, "%s%s", w.path, tail);
    f = fopen(name, "wb");
    T_MUST(f && fwrite(text, 1, bytes, f) == bytes && fclose(f) == 0);
}

/* The file as a kill -9 would leave it now. Not through a descriptor of ours while SQLite has it
** open: closing one would drop SQLite's locks; here nobody else competes for them. */
static void scene_snapshot(scene_file *f)
{
    f->db = scene_read("", &f->db_bytes);
    f->wal = scene_read("-wal", &f->wal_bytes);
    f->book_bytes = sizeof(ledger_book) + (size_t)w.book.book->used * sizeof(ledger_event);
    f->book = (ledger_book *)malloc(f->book_bytes);
    T_MUST(f->book);
    memcpy(f->book, w.book.book, f->book_bytes);
}

static const char *const scene_tails[] = {"",         "-wal",   "-shm",
                                          "-journal", ".owner", ".owner-journal"};
enum { SCENE_TAILS = (int)(sizeof scene_tails / sizeof *scene_tails) };

static void scene_remove(void)
{
    char name[420];
    int i;
    for (i = 0; i < SCENE_TAILS; i++) {
        snprintf(name, sizeof name, "%s%s", w.path, scene_tails[i]);
        remove(name);
    }
}

/* Puts a file into place, NULL: none, with its ledger. */
static void scene_restore(const scene_file *f)
{
    scene_remove();
    ledger_clear(&w.book);
    w.time.now_ms = T_EPOCH + (f ? 3600000 : 0);
    w.time.mono_ms = 1000000;
    if (!f) return;
    scene_write("", f->db, f->db_bytes);
    if (f->wal) scene_write("-wal", f->wal, f->wal_bytes);
    memcpy(w.book.book->events, f->book->events,
           (size_t)(f->book->used + 1) * sizeof(ledger_event));
    w.book.book->used = f->book->used;
    w.book.book->clock = f->book->clock;
    w.book.book->crashes = f->book->crashes;
}

/* In the last event of the crashed file the process "ends" while its handler runs. */
static eb_result scene_crash_handler(eb_delivery *d, void *user)
{
    int n = ledger_run(&w.book, d);
    (void)user;
    if (strcmp(d->event->type, "crash") == 0) {
        ledger_crashed(&w.book);
        scene_snapshot(&scene_crashed);
    }
    return ledger_ran(&w.book, n, EB_OK);
}

/* History: 1 done, 2 done in the second attempt, 3 and 4 dead, 5 waiting. Crashed: besides, one
** whose handler was running, and four that waited. */
static void scene_files(void)
{
    scene_restore(NULL);
    scene_open();
    scene_subscribe();
    scene_start();
    scene_post("ok");
    scene_post("second");
    scene_post("dies");
    scene_post("hopeless");
    CALL(eb_drain(w.bus, 60000));
    scene_close();
    scene_open();
    scene_post("ok");
    scene_close();
    scene_snapshot(&scene_history);
    T_MUST(!w.wrong && w.book.book->used == 5);
    scene_restore(&scene_history);
    scene_open();
    scene_post("crash");
    scene_post("second");
    scene_post("ok");
    scene_post("dies");
    CALL(eb_subscribe(w.bus, "*", scene_crash_handler, NULL, NULL, NULL));
    scene_start();
    CALL(eb_pump(w.bus, EB_NONE, NULL));
    scene_close();
    T_MUST(!w.wrong && scene_crashed.db);
}

static void scene_file_free(scene_file *f)
{
    free(f->db);
    free(f->wal);
    free(f->book);
}

/* ---- the scenes ------------------------------------------------------------------------------ */

static void play_open(void) { scene_open(); }

static void play_post(void)
{
    scene_post("ok");
    scene_plain("dies", 0);
}

/* All or none: the ledger hears the same answer for all three. Then the same key once more. */
static void play_send(void)
{
    eb_message m[3];
    eb_id ids[3], again;
    char payload[3][64], metadata[3][32];
    int n[3], i;
    eb_result rc, first;
    memset(m, 0, sizeof m);
    memset(ids, 0, sizeof ids);
    memset(&again, 0, sizeof again);
    for (i = 0; i < 3; i++) {
        n[i] = ledger_attempt(&w.book, "ok", SCENE_MAX_ATTEMPTS, 0, payload[i], sizeof payload[i]);
        m[i].type = "ok";
        m[i].payload = payload[i];
        snprintf(metadata[i], sizeof metadata[i], "{\"n\":\"%d\"}", n[i]);
        m[i].metadata = metadata[i];
    }
    m[0].ordering_key = m[1].ordering_key = "key";
    m[1].idempotency_key = "once";
    m[2].delay_ms = 1000;
    first = CALL(eb_send(w.bus, m, 3, ids));
    for (i = 0; i < 3; i++) ledger_answer(&w.book, n[i], first, &ids[i]);
    rc = CALL(eb_send(w.bus, &m[1], 1, &again));
    if (rc >= 0 || (rc == EB_ERR_UNKNOWN && first != EB_OK)) {
        ledger_again(&w.book, n[1]);
        ledger_answer(&w.book, n[1], rc, &again);
    } /* else refused: it is as the first call left it */
    if (rc >= 0 && first == EB_OK && (rc != EB_DUPLICATE || strcmp(ids[1].str, again.str) != 0))
        scene_bad("the key gives %d %s, the event was %s", (int)rc, again.str, ids[1].str);
}

static void play_publish(void)
{
    eb_result rc = scene_plain("ok", 1);
    if (rc >= 0 && rc != EB_OK) scene_bad("eb_publish of ok: %s", eb_strerror(rc));
    rc = scene_plain("dies", 1);
    if (rc >= 0 && rc != EB_DEAD) scene_bad("eb_publish of dies: %s", eb_strerror(rc));
}

static void before_dispatch(void)
{
    int i;
    for (i = 0; i < 4; i++) scene_post("ok");
}
static void play_dispatch(void)
{
    int64_t next;
    CALL(eb_pump(w.bus, EB_NONE, &next));
    CALL(eb_pump(w.bus, 0, NULL));
}

static void before_retry(void) { scene_post("second"); }
static void before_death(void)
{
    scene_post("dies");
    scene_post("hopeless");
}
static void before_snooze(void) { scene_post("later"); }
static void before_children(void) { scene_post("parent"); }
static void play_drain(void) { CALL(eb_drain(w.bus, 60000)); }

static void play_subscribe(void)
{
    static const int64_t waits[] = {5, 10};
    eb_subscribe_options o;
    eb_id a, b;
    memset(&o, 0, sizeof o);
    o.retry.schedule_ms = waits;
    o.retry.schedule_count = 2;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    CALL(eb_subscribe(w.bus, "other.*", scene_handler, NULL, &o, &a));
    CALL(eb_subscribe(w.bus, "other.one", scene_handler, NULL, NULL, &b));
    if (a.str[0]) CALL(eb_unsubscribe(w.bus, a.str));
    if (b.str[0]) CALL(eb_unsubscribe(w.bus, b.str));
}

static void play_start(void)
{
    if (scene_subscribe() == EB_OK && scene_start() == EB_OK) play_drain();
}

/* A list that was given must be whole. */
static void scene_list(const char *call, const eb_event_list *list, int count, int first)
{
    size_t i;
    if (list->count != (size_t)count || list->total != count)
        scene_bad("%s gives %d events, says %d, not %d", call, (int)list->count, (int)list->total,
                  count);
    for (i = 0; i < list->count; i++)
        if (!scene_whole(&list->items[i])) scene_bad("%s: event %d is not whole", call, (int)i);
    if (list->count && ledger_number(list->items[0].payload) != first)
        scene_bad("%s begins with %s", call, list->items[0].payload);
}

/* Looking through a bus's store or one's own; what a list holds is checked when there is one. */
static void scene_inspect(eb_store *store)
{
    eb_event_list list;
    eb_stats stats;
    eb_query all;
    memset(&all, 0, sizeof all);
    all.want_total = 1;
    if (CALL(eb_get(store, scene_id(1), &list)) == EB_OK) scene_list("eb_get", &list, 1, 1);
    eb_event_list_free(&list);
    if (CALL(eb_log_read(store, &all, &list)) == EB_OK) scene_list("eb_log_read", &list, 5, 1);
    eb_event_list_free(&list);
    if (CALL(eb_dlq_list(store, NULL, &list)) == EB_OK) scene_list("eb_dlq_list", &list, 2, 4);
    eb_event_list_free(&list);
    if (CALL(eb_stats_get(store, &stats)) == EB_OK &&
        (stats.done != 2 || stats.dlq != 2 || stats.pending != 1))
        scene_bad("eb_stats_get: %d done, %d dead, %d pending", (int)stats.done, (int)stats.dlq,
                  (int)stats.pending);
}
static void play_inspect(void) { scene_inspect(eb_bus_store(w.bus)); }
static void play_reader(void)
{
    eb_stats stats;
    CALL(eb_stats_get(eb_bus_store(w.bus), &stats));
}
static void play_store(void)
{
    eb_store *store = NULL;
    eb_result rc = CALL(eb_store_open(&store, &w.options));
    if ((rc == EB_OK) != (store != NULL)) scene_bad("eb_store_open: %s", eb_strerror(rc));
    if (rc == EB_OK) scene_inspect(store);
    eb_store_close(store);
}

static void play_dlq_retry(void)
{
    int64_t count;
    ledger_note(&w.book, 3, LEDGER_RETRIED);
    CALL(eb_dlq_retry(eb_bus_store(w.bus), scene_id(3), NULL));
    ledger_note(&w.book, 0, LEDGER_RETRIED);
    CALL(eb_dlq_retry_all(eb_bus_store(w.bus), NULL, &count));
    play_drain();
}
static void play_move(void)
{
    ledger_note(&w.book, 5, LEDGER_MOVED);
    CALL(eb_dlq_move(eb_bus_store(w.bus), scene_id(5), "given up"));
}
static void play_purge(void)
{
    int64_t count;
    ledger_note(&w.book, 0, LEDGER_PURGED);
    if (CALL(eb_dlq_purge(eb_bus_store(w.bus), 0, &count)) == EB_OK && count != 2)
        scene_bad("eb_dlq_purge: %d of 2", (int)count);
    CALL(eb_dlq_purge_dead(eb_bus_store(w.bus), 0, &count));
}

static void play_recovery(void)
{
    if (scene_open() == EB_OK) play_start();
}

static void before_shutdown(void)
{
    before_dispatch();
    CALL(eb_pump(w.bus, 0, NULL)); /* one ran; others may be claimed */
    scene_post("second");
}
static void play_shutdown(void)
{
    CALL(eb_shutdown(w.bus));
    scene_close();
    ledger_crashed(&w.book); /* what could not be recorded may run again */
}

/* The same life with worker threads, two publishers and the system's clock: what fails, and when,
** is up to the scheduler, so the ladder takes long steps here. */
#if EBI_THREADS
static void *scene_publisher(void *arg)
{
    (void)arg;
    scene_post("ok");
    scene_plain("dies", 0);
    scene_post("second");
    return NULL;
}
static void play_threads(void)
{
    ebi_thread threads[2];
    eb_stats stats;
    int i;
    if (scene_open() != EB_OK || scene_subscribe() != EB_OK || scene_start() != EB_OK) return;
    for (i = 0; i < 2; i++) T_MUST(ebi_thread_start(&threads[i], scene_publisher, NULL) == 0);
    CALL(eb_stats_get(eb_bus_store(w.bus), &stats));
    for (i = 0; i < 2; i++) ebi_thread_join(threads[i]);
    CALL(eb_drain(w.bus, 40));
}
#endif

/* Commits after which the WAL is copied into the database, by the leader: there is no keeper. */
static void play_checkpoint(void)
{
    scene_wal_pages = 2;
    scene_post("ok");
    scene_post("second");
    play_drain();
    scene_wal_pages = 1000;
}

typedef struct scene {
    const char *name;
    const scene_file *file;
    int ready; /* 0: no bus yet; 1: open; 2: has been looked at; 3: started; 4: has dispatched */
    void (*before)(void), (*play)(void);
    int threads; /* worker threads and the system's clock */
} scene;

static const scene scenes[] = {
    {"first_open", NULL, 0, NULL, play_open, 0},
    {"open", &scene_history, 0, NULL, play_open, 0},
    {"post", &scene_history, 2, NULL, play_post, 0},
    {"send", &scene_history, 2, NULL, play_send, 0},
    {"publish", &scene_history, 3, NULL, play_publish, 0},
    {"dispatch", &scene_history, 3, before_dispatch, play_dispatch, 0},
    {"retry", &scene_history, 4, before_retry, play_drain, 0},
    {"death", &scene_history, 4, before_death, play_drain, 0},
    {"snooze", &scene_history, 4, before_snooze, play_drain, 0},
    {"children", &scene_history, 4, before_children, play_drain, 0},
    {"checkpoint", &scene_history, 4, NULL, play_checkpoint, 0},
    {"subscribe", &scene_history, 3, NULL, play_subscribe, 0},
    {"start", &scene_history, 2, NULL, play_start, 0},
    {"reader", &scene_history, 1, NULL, play_reader, 0},
    {"inspect", &scene_history, 2, NULL, play_inspect, 0},
    {"store", &scene_history, 0, NULL, play_store, 0},
    {"dlq_retry", &scene_history, 4, NULL, play_dlq_retry, 0},
    {"move", &scene_history, 2, NULL, play_move, 0},
    {"purge", &scene_history, 2, NULL, play_purge, 0},
    {"recovery", &scene_crashed, 0, NULL, play_recovery, 0},
    {"shutdown", &scene_history, 3, before_shutdown, play_shutdown, 0},
#if EBI_THREADS
    {"threads", &scene_history, 0, NULL, play_threads, 1},
#endif
};
enum { SCENES = (int)(sizeof scenes / sizeof *scenes) };

/* ---- how to replay what goes wrong ----------------------------------------------------------- */

static char scene_command[160]; /* the step under way, as a command line */

/* A crash says where it happened, too, and so does a step that does not end. */
static void scene_crash(int sig)
{
    int64_t n = write(2, "\ncrash in: ", 11);
    n += write(2, scene_command, (unsigned)strlen(scene_command));
    n += write(2, "\n", 1);
    signal(sig, SIG_DFL);
    if (n) raise(sig);
}

/* ---- the frame ------------------------------------------------------------------------------- */

static void scene_clock(void)
{
    w.options.clock = t_clock(&w.time);
    w.options.clock.sleep_ms = scene_sleep;
}

/* Once per program: the world, and the two files. */
static void scene_init(const char *name)
{
    vfs_install();
    vfs_no_sync = 1; /* what a sync is worth is the power cut's business */
    memset(&w, 0, sizeof w);
    snprintf(w.path, sizeof w.path, "%s", t_path(name));
    ledger_open(&w.book, NULL, 100);
    w.book.vfs = "fault";
    w.options = t_options(w.path);
    w.options.vfs = "fault";
    w.options.workers = EB_NONE;
    w.options.durability = EB_DURABLE_FULL;
    w.options.retry.max_retries = SCENE_MAX_ATTEMPTS - 1;
    w.options.retry.base_delay_ms = 10;
    w.options.busy_timeout_ms = 40;
    scene_clock();
    w.options.allocator.resize = scene_resize;
    signal(SIGABRT, scene_crash);
    signal(SIGSEGV, scene_crash);
#ifndef _WIN32
    signal(SIGALRM, scene_crash);
#endif
    w.heal = vfs_heal;
    scene_thorough = getenv("FAULT_THOROUGH") != NULL;
    scene_files();
}
static void scene_fini(void)
{
    scene_remove();
    ledger_close(&w.book);
    scene_file_free(&scene_history);
    scene_file_free(&scene_crashed);
}

static void scene_prepare(const scene *s)
{
    w.wrong = w.sleeps = w.armed = 0;
    w.why[0] = 0;
    w.begin = 0;
    w.judged = 0;
    alarm(60);
    w.options.workers = s->threads ? 2 : EB_NONE;
    memset(&w.options.clock, 0, sizeof w.options.clock);
    if (!s->threads) scene_clock();
    vfs_sleep_max_us = s->threads ? 500 : 0; /* a thread that waits lets the others go on */
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, 1, NULL);
    scene_restore(s->file);
    if (s->ready >= 1) scene_open();
    if (s->ready >= 2) play_reader(); /* it opens a connection: that is the scene "reader" */
    if (s->ready >= 3) {
        scene_subscribe();
        scene_start();
    }
    if (s->ready >= 4) play_drain(); /* it prepares statements: that is the scene "dispatch" */
    if (s->before) s->before();
    w.sleeps = 0;
}

/* Most faults leave the very same bytes behind. Files that were judged once, with the same ledger
** beside them and all connections closed, are not judged again; `what` tells the two judgements
** apart: how a bus opened on them fares (1), the ledger's (2), and that on a copy (3). The random
** numbers of every run are the same (scene_prepare), so this happens often. FAULT_THOROUGH=1 in
** the environment: always judge. */
static uint64_t scene_seen[1 << 16];

static uint64_t scene_hash(uint64_t hash, const void *data, size_t bytes)
{
    const char *at = (const char *)data;
    uint64_t word;
    for (; bytes > 0; at += sizeof word) {
        size_t n = bytes < sizeof word ? bytes : sizeof word;
        word = 0;
        memcpy(&word, at, n);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
        bytes -= n;
    }
    return hash;
}

static uint64_t scene_fingerprint(int what)
{
    uint64_t hash = (uint64_t)what;
    char *text;
    size_t bytes;
    int i, tails = what == 3 ? 2 : SCENE_TAILS;
    for (i = 0; i < tails; i++) {
        text = scene_read(scene_tails[i], &bytes);
        hash = scene_hash(hash, &bytes, sizeof bytes);
        if (text) hash = scene_hash(hash + 1, text, bytes);
        free(text);
    }
    hash = scene_hash(hash, w.book.book,
                      sizeof(ledger_book) + (size_t)w.book.book->used * sizeof(ledger_event));
    return hash ? hash : 1;
}

/* Where this fingerprint is, or would be; NULL: the table is full. */
static uint64_t *scene_slot(uint64_t hash)
{
    size_t i = (size_t)hash & 0xFFFF, tries;
    for (tries = 0; tries < 0x10000; tries++, i = (i + 1) & 0xFFFF)
        if (scene_seen[i] == 0 || scene_seen[i] == hash) return &scene_seen[i];
    return NULL;
}
static int scene_known(uint64_t hash)
{
    return !scene_thorough && scene_slot(hash) && *scene_slot(hash);
}
static void scene_remember(uint64_t hash)
{
    if (hash && scene_slot(hash)) *scene_slot(hash) = hash;
}

/* The process ends here: a copy of the database and its WAL, without the shared memory. */
static void scene_crash_check(void)
{
    uint64_t hash = scene_fingerprint(3);
    scene_file f;
    char path[sizeof w.path];
    memset(&f, 0, sizeof f);
    if (w.wrong || scene_known(hash)) return;
    memcpy(path, w.path, sizeof path);
    scene_snapshot(&f);
    snprintf(w.path + strlen(w.path), 5, "-cut");
    scene_remove();
    if (f.db) scene_write("", f.db, f.db_bytes);
    if (f.wal) scene_write("-wal", f.wal, f.wal_bytes);
    w.book.book->crashes++;
    if (ledger_check(&w.book, w.path, LEDGER_COPY)) scene_bad("after a crash: %s", w.book.why);
    w.book.book->crashes--;
    scene_remove();
    memcpy(w.path, path, sizeof path);
    scene_file_free(&f);
    if (!w.wrong) scene_remember(hash);
}

/* Plays with the fault that arm() sets, then checks that the bus works again and closes it. */
static void scene_play(const scene *s, void (*arm)(void))
{
    eb_stats stats;
    w.armed = 1;
    arm();
    s->play();
    w.heal();
    w.armed = w.sleeps = 0;
    scene_crash_check();
    if (!w.bus) {
        w.begin = scene_fingerprint(1);
        w.judged = scene_known(w.begin);
        if (w.judged) return;
        scene_open();
    }
    if (!w.bus) return;
    if (!w.subscribed) scene_subscribe();
    if (!w.started) scene_start();
    if (!w.wrong) {
        scene_post("second");
        if (scene_plain("ok", 1) != EB_OK) scene_bad("eb_publish after the fault is not EB_OK");
        CALL(eb_drain(w.bus, 60000));
        CALL(eb_stats_get(eb_bus_store(w.bus), &stats));
    }
    CALL(eb_shutdown(w.bus));
    scene_close();
}

/* After everything is closed. */
static void scene_check(void)
{
    uint64_t end;
    if (w.wrong || w.judged) return;
    end = scene_fingerprint(2);
    if (!scene_known(end) && ledger_check(&w.book, w.path, 0)) scene_bad("%s", w.book.why);
    if (w.wrong) return;
    scene_remember(w.begin);
    scene_remember(end);
}

/* ---- climbing -------------------------------------------------------------------------------- */

static int64_t scene_every = 1; /* take so many rungs at a time */
static int64_t scene_steps;     /* faults so far */
static int64_t scene_failed;    /* so many of them were not stood */

/* The arguments "every N" of a ladder; 1 if they are that. */
T_UNUSED static int scene_arguments(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[1], "every") != 0) return 0;
    scene_every = atoll(argv[2]);
    T_MUST(scene_every > 0);
    return 1;
}

/* The scene with one fault: nothing may be wrong, nothing may leak. */
T_UNUSED static void scene_fault(const scene *s, void (*arm)(void))
{
    int64_t blocks = scene_blocks;
    sqlite3_int64 used = sqlite3_memory_used();
    scene_prepare(s);
    scene_play(s, arm);
    if (scene_blocks != blocks) scene_bad("%d blocks of ours leak", (int)(scene_blocks - blocks));
    if (sqlite3_memory_used() != used)
        scene_bad("%d bytes of SQLite's leak", (int)(sqlite3_memory_used() - used));
    scene_check();
}

/* Says what a single rung came to; the program's exit status. */
T_UNUSED static int scene_replayed(int noticed)
{
    printf("noticed: %d\n%s\n", noticed, w.wrong ? w.why : "nothing is wrong");
    return w.wrong != 0;
}

/* rung(s, n) for n = 1, 2, 3, ... until it says 0: there is no n-th. Rungs that are left out are
** others in every scene, but a ladder that has any is climbed. Returns how many failed; five are
** enough. */
T_UNUSED static int scene_climb(const scene *s, int (*rung)(const scene *s, int64_t at))
{
    int64_t at = 1 + (scene_every > 1 ? (s - scenes) * 11 % scene_every : 0);
    int failures = 0, noticed, any = 0;
    do {
        noticed = rung(s, at);
        any |= noticed;
        scene_steps += noticed;
        if (w.wrong) {
            failures++;
            scene_failed++;
            fprintf(stderr, "\n%s\n    %s\n", scene_command, w.why);
        }
        if (any) at += scene_every + (s->threads ? at / 8 : 0);
        else at /= 2; /* it is shorter than that */
    } while ((noticed || (!any && at > 0)) && failures < 5);
    return failures;
}

#endif /* SCENES_H */
