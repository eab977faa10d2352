/* test_faults.c - a disk that is full and later has room again, a sync that fails, a file that
** somebody else keeps locked, files that are damaged, foreign or taken away: each has its result,
** none loses an event, none crashes, and where the trouble passes the same bus goes on by itself.
**
** The trouble is made systematically: the disk is full after every possible number of bytes, every
** page boundary is a truncation, hundreds of bytes are flipped one at a time. A failure prints
** which; the random ones come from a fixed seed.
**
**     test_faults              everything
**     test_faults few          a tenth of the flipped bytes and of the sizes of a full disk
**     test_faults -t flipped   the tests with this in their name
**
** make -C tests quick T=test_faults, then tests/build/plain/test_faults
*/
#include "scenes.h"

static size_t flips = 600; /* FAULT_THOROUGH=1 in the environment: fifty times as many */
static int sizes = 1;      /* of a full disk: every so many */

static int allowed_full(const char *call, eb_result rc)
{
    (void)call;
    return rc == EB_ERR_FULL || rc == EB_ERR_TIMEOUT;
}
static int allowed_busy(const char *call, eb_result rc)
{
    (void)call;
    return rc == EB_ERR_BUSY || rc == EB_ERR_TIMEOUT;
}
static int allowed_none(const char *call, eb_result rc)
{
    (void)call;
    (void)rc;
    return 0;
}

static void room_again(void) { vfs_room = -1; }

/* A scene of scenes.h by name. */
static const scene *scene_named(const char *name)
{
    int i;
    for (i = 0; i < SCENES; i++)
        if (strcmp(scenes[i].name, name) == 0) return &scenes[i];
    abort();
}

/* The end of all tests with a bus: whatever was wrong fails. */
#define NOTHING_WRONG()                                                                            \
    do {                                                                                           \
        if (w.wrong) {                                                                             \
            fprintf(stderr, "\n%s\n    %s\n", scene_command, w.why);                               \
            FAILm("see above");                                                                    \
        }                                                                                          \
    } while (0)

/* ---- a full disk ----------------------------------------------------------------------------- */

static int64_t room;
static void arm_room(void) { vfs_room = room; }
static void arm_nothing(void) {}

/* The whole life of some events while the disk fills up after every possible number of 512 bytes;
** SQLite writes nothing smaller but the WAL's headers. Then there is room: the same bus goes on. */
TEST disk_full_at_every_size_is_said_and_passes(const char *name)
{
    const scene *s = scene_named(name);
    int64_t needed;
    w.allowed = allowed_full;
    w.heal = room_again;
    room = INT64_C(1) << 40;
    scene_prepare(s); /* how much it takes */
    scene_play(s, arm_room);
    NOTHING_WRONG();
    scene_prepare(s);
    w.armed = 1;
    vfs_room = room;
    s->play();
    needed = room - vfs_room;
    vfs_room = -1;
    w.armed = 0;
    scene_close();
    for (room = 0; room <= needed + 512; room += sizes * (needed < 100000 ? 512 : 4096)) {
        snprintf(scene_command, sizeof scene_command, "%s with %d bytes of room", name, (int)room);
        scene_prepare(s);
        scene_play(s, arm_room);
        scene_check();
        NOTHING_WRONG();
    }
    PASS();
}

/* A bus that runs into a full disk says so for as long as it lasts, refuses what is published,
** keeps what its handlers came to, and records it when there is room, without a restart. */
TEST full_disk_stops_nothing_for_good(void)
{
    eb_stats stats;
    int i, ok;
    w.allowed = allowed_full;
    w.heal = room_again;
    scene_prepare(scene_named("dispatch"));
    vfs_room = 0;
    w.armed = 1;
    for (i = 0; i < 20; i++) {
        scene_post("ok"); /* the WAL may have some room of its own, then none */
        CALL(eb_pump(w.bus, EB_NONE, NULL));
        t_advance(&w.time, 3000);
    }
    ASSERT_EQ(EB_ERR_FULL, eb_post(w.bus, "ok", "{}", NULL));
    T_OK(eb_stats_get(eb_bus_store(w.bus), &stats)); /* looking needs no room */
    vfs_room = -1;
    w.armed = w.sleeps = 0;
    t_advance(&w.time, 3000); /* the longest pause between two tries is 2 s */
    T_OK(eb_pump(w.bus, EB_NONE, NULL));
    T_OK(eb_stats_get(eb_bus_store(w.bus), &stats));
    ASSERT_EQ(0, stats.pending + stats.processing);
    for (i = 1, ok = 0; i <= w.book.book->used; i++) ok = ok + (ledger_at(&w.book, i)->ok > 1);
    ASSERT_EQ(0, ok); /* no handler ran again because its outcome had to wait */
    T_OK(eb_shutdown(w.bus));
    scene_close();
    scene_check();
    NOTHING_WRONG();
    PASS();
}

/* ---- a sync that fails ----------------------------------------------------------------------- */

/* One message under the key "once", told to the ledger. */
static eb_result send_once(int n, const char *payload, eb_id *id)
{
    char metadata[32];
    eb_message m;
    eb_result rc;
    memset(&m, 0, sizeof m);
    memset(id, 0, sizeof *id);
    snprintf(metadata, sizeof metadata, "{\"n\":\"%d\"}", n);
    m.type = "ok";
    m.payload = payload;
    m.metadata = metadata;
    m.idempotency_key = "once";
    rc = eb_send(w.bus, &m, 1, id);
    ledger_again(&w.book, n);
    ledger_answer(&w.book, n, rc, id);
    return rc;
}

/* The commit's fsync fails: EB_ERR_UNKNOWN, and it is: a crash now may bring the event back.
** While syncs go on failing nothing is acknowledged. When they work again the bus has opened the
** file anew, has checkpointed, and goes on; the same key stores the event once. */
TEST failed_sync_is_unknown_and_the_bus_goes_on(int lasting)
{
    char payload[64];
    eb_id id;
    int n, i;
    w.allowed = allowed_none;
    w.heal = vfs_heal;
    snprintf(scene_command, sizeof scene_command, "a sync fails %s", lasting ? "for long" : "once");
    scene_prepare(scene_named("dispatch"));
    n = ledger_attempt(&w.book, "ok", SCENE_MAX_ATTEMPTS, 0, payload, sizeof payload);
    vfs_arm("sync", VFS_IOERR, 1, lasting);
    T_IS(EB_ERR_UNKNOWN, send_once(n, payload, &id));
    ASSERT_EQ(1, vfs_fired());
    scene_crash_check();
    for (i = 0; lasting && i < 5; i++) {
        eb_result rc = send_once(n, payload, &id);
        if (rc != EB_ERR_IO && rc != EB_ERR_UNKNOWN) FAILm(eb_strerror(rc));
        ledger_answer(&w.book, n, EB_ERR_UNKNOWN, &id); /* the first answer still counts */
        scene_crash_check();
    }
    vfs_heal();
    i = (int)send_once(n, payload, &id);
    ASSERT(i == EB_OK || i == EB_DUPLICATE);
    ASSERT(lasting || vfs_count("open") > 0); /* anew */
    ASSERT(vfs_count("sync") >= 2);           /* the checkpoint's and the commit's */
    T_IS(EB_DUPLICATE, send_once(n, payload, &id));
    scene_play(scene_named("dispatch"), arm_nothing);
    scene_check();
    NOTHING_WRONG();
    PASS();
}

#if EBI_THREADS
static int64_t syncs; /* when the post returned */

static void *post_one(void *bus)
{
    T_MUST(eb_post((eb_bus *)bus, "a", "1", NULL) == EB_OK);
    syncs = vfs_count("sync");
    return NULL;
}

/* A post of a FULL bus shares a commit with a claim, which by itself needs no sync. The commit has
** the level of the most careful of its members, whoever leads it. */
TEST shared_commit_is_synced_if_one_of_it_must_be(int claim_first)
{
    eb_options o = w.options;
    ebi_thread poster;
    eb_bus *bus;
    int i;
    scene_remove();
    memset(&o.clock, 0, sizeof o.clock);
    o.workers = 1;
    o.durability = EB_DURABLE_FULL;
    o.idle_poll_ms = EB_NONE;
    bus = t_open(&o);
    T_OK(eb_start(bus));
    ebi_writer_enter(&bus->store);
    for (i = 0; i < 2; i++) {
        if ((i == 0) == claim_first) {
            ebi_store_lock(&bus->store);
            bus->lane.win.next_due_ms = 0; /* something may be due: the worker claims */
            ebi_cond_signal(&bus->alarms.work);
            ebi_store_unlock(&bus->store);
        } else {
            T_MUST(ebi_thread_start(&poster, post_one, bus) == 0);
        }
        while (t_queued(bus) < i + 1) ebi_thread_yield();
    }
    vfs_heal(); /* counts from here */
    ebi_writer_leave(&bus->store);
    ebi_thread_join(poster);
    ASSERT(syncs > 0);
    eb_destroy(bus);
    PASS();
}

static int said(t_log *log, const char *message)
{
    int i, n = 0;
    sqlite3_mutex_enter(log->mutex);
    for (i = 0; i < log->count && i < 256; i++) n += strcmp(log->items[i].message, message) == 0;
    sqlite3_mutex_leave(log->mutex);
    return n;
}

/* The keeper copies a long WAL into the database, and the sync before that fails: then what was
** committed may not be on disk although the next sync succeeds. It says so, and the next commit
** opens the file anew. */
TEST failed_checkpoint_of_the_keeper_is_not_forgotten(void)
{
    enum { BYTES = 500000, COUNT = 1000 * 4096 / BYTES + 1 };
    static t_log log;
    eb_options o = w.options;
    eb_message *m = (eb_message *)calloc(COUNT, sizeof *m);
    char *payload = (char *)malloc(BYTES + 1);
    eb_stats stats;
    eb_bus *bus;
    int i;
    T_MUST(m && payload);
    memset(payload, '1', BYTES);
    payload[BYTES] = 0;
    for (i = 0; i < COUNT; i++) {
        m[i].type = "a";
        m[i].payload = payload;
    }
    scene_remove();
    memset(&o.clock, 0, sizeof o.clock);
    o.workers = 1;
    o.durability = EB_DURABLE_NORMAL; /* the first sync is the checkpoint's */
    o.logger = t_logger(&log);
    bus = t_open(&o);
    T_OK(eb_start(bus));
    vfs_arm("sync", VFS_IOERR, 1, 0);
    T_OK(eb_send(bus, m, COUNT, NULL));
    while (!said(&log, "checkpoint failed")) ebi_thread_yield();
    ASSERT_EQ(1, vfs_fired());
    T_OK(eb_post(bus, "a", "1", NULL));
    ASSERT(vfs_count("truncate") >= 1); /* by the checkpoint that comes with opening it anew */
    T_OK(eb_stats_get(eb_bus_store(bus), &stats));
    ASSERT(stats.last_seq > COUNT);
    eb_destroy(bus);
    free(payload);
    free(m);
    PASS();
}
#endif

/* ---- a locked file --------------------------------------------------------------------------- */

static sqlite3 *locker;
static void unlock(void)
{
    if (locker) sqlite3_exec(locker, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(locker);
    locker = NULL;
}
static void lock(const char *how)
{
    T_MUST(sqlite3_open(w.path, &locker) == SQLITE_OK);
    T_MUST(sqlite3_exec(locker, how, NULL, NULL, NULL) == SQLITE_OK);
}
static void arm_lock(void) { lock("BEGIN IMMEDIATE"); }

/* Every scene that writes while another connection holds the write lock for longer than the busy
** timeout: EB_ERR_BUSY and nothing written, or the outcome waits; then the lock is gone. */
TEST locked_for_long_is_said_and_passes(const char *name)
{
    const scene *s = scene_named(name);
    int64_t start;
    w.allowed = allowed_busy;
    w.heal = unlock;
    snprintf(scene_command, sizeof scene_command, "%s while the file is locked", name);
    scene_prepare(s);
    start = w.time.mono_ms;
    scene_play(s, arm_lock);
    if (w.time.mono_ms - start < w.options.busy_timeout_ms) scene_bad("it did not wait");
    scene_check();
    NOTHING_WRONG();
    PASS();
}

/* A post waits for the busy timeout, not much longer, and not at all if told so. */
TEST busy_timeout_is_kept(int64_t ms)
{
    int64_t start, waited;
    eb_result rc;
    w.allowed = allowed_none;
    w.heal = unlock;
    w.options.busy_timeout_ms = ms;
    scene_prepare(scene_named("post"));
    w.options.busy_timeout_ms = 40;
    lock("BEGIN IMMEDIATE");
    w.sleeps = -100000;
    start = w.time.mono_ms;
    rc = eb_post(w.bus, "ok", "{}", NULL);
    waited = w.time.mono_ms - start;
    w.sleeps = 0;
    unlock();
    ASSERT_EQ(EB_ERR_BUSY, rc);
    if (ms == EB_NONE) ASSERT_EQ(0, waited);
    else ASSERT(waited >= ms && waited <= ms + 100);
    scene_play(scene_named("post"), arm_nothing);
    scene_check();
    NOTHING_WRONG();
    PASS();
}

/* ---- files that are not what they should be -------------------------------------------------- */

static uint32_t dice_state = 12345;
static uint32_t dice(uint32_t sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

/* Opens what lies at w.path and does everything with it. The only claims: no crash, results that
** the contract has for a damaged file, and never an empty queue where events were. */
static void use_damaged(void)
{
    static const eb_result fine[] = {EB_ERR_CORRUPT, EB_ERR_SCHEMA, EB_ERR_IO, EB_ERR_TIMEOUT,
                                     EB_ERR_NOT_FOUND, EB_ERR_STATE};
    eb_event_list list;
    eb_stats stats;
    eb_result rc[10];
    size_t i, k, n = 0;
    int opened;
    rc[n++] = eb_open(&w.bus, &w.options);
    opened = rc[0] == EB_OK;
    if (opened) {
        rc[n++] = eb_stats_get(eb_bus_store(w.bus), &stats);
        if (rc[1] == EB_OK && stats.last_seq == 0) scene_bad("the queue looks empty");
        rc[n++] = eb_log_read(eb_bus_store(w.bus), NULL, &list);
        if (rc[2] == EB_OK && list.count == 0) scene_bad("the log looks empty");
        eb_event_list_free(&list);
        rc[n++] = eb_subscribe(w.bus, "*", ledger_handler, &w.book, NULL, NULL);
        rc[n++] = eb_start(w.bus);
        if (rc[n - 1] == EB_OK) rc[n++] = eb_drain(w.bus, 5000);
        rc[n++] = eb_dlq_retry_all(eb_bus_store(w.bus), NULL, NULL);
        rc[n++] = eb_post(w.bus, "ok", "{}", NULL);
        rc[n++] = eb_dlq_purge(eb_bus_store(w.bus), 0, NULL);
        eb_destroy(w.bus);
        w.bus = NULL;
    } else if (w.bus) {
        scene_bad("*out is not NULL");
    }
    for (i = 0; i < n; i++) {
        if (rc[i] >= 0) continue;
        for (k = 0; k < sizeof fine / sizeof *fine && fine[k] != rc[i]; k++) {}
        if (k == sizeof fine / sizeof *fine) scene_bad("call %d: %s", (int)i, eb_strerror(rc[i]));
    }
}

/* One byte of the database after another: SQLite has no checksums, so what is damaged may go
** unseen; a crash, a hang or an empty queue may not happen. The first page and then random
** places. */
TEST flipped_byte_in_the_database_is_survived(void)
{
    size_t i, at;
    w.allowed = allowed_none;
    for (i = 0; i < flips; i++) {
        char old;
        at = i < 100 ? i : dice((uint32_t)scene_history.db_bytes);
        old = scene_history.db[at];
        scene_history.db[at] = (char)(old ^ (1 << dice(8)));
        snprintf(scene_command, sizeof scene_command, "byte %d of the database", (int)at);
        scene_prepare(scene_named("open"));
        scene_history.db[at] = old;
        use_damaged();
        NOTHING_WRONG();
    }
    PASS();
}

/* One byte of the WAL after a crash: its checksums end the log there. What is left is a beginning
** of what was, whole and in order, and the bus works on it. */
TEST flipped_byte_in_the_wal_costs_only_a_tail(void)
{
    size_t i, at;
    int shorter = 0;
    ASSERT(scene_crashed.wal_bytes > 5000);
    w.book.loss = LEDGER_LOSS_TAIL;
    for (i = 0; i < flips; i++) {
        char old;
        at = i < 100 ? i : dice((uint32_t)scene_crashed.wal_bytes);
        old = scene_crashed.wal[at];
        scene_crashed.wal[at] = (char)(old ^ (1 << dice(8)));
        snprintf(scene_command, sizeof scene_command, "byte %d of the WAL", (int)at);
        scene_prepare(scene_named("recovery"));
        scene_crashed.wal[at] = old;
        if (ledger_check(&w.book, w.path, 0)) scene_bad("%s", w.book.why);
        shorter += w.book.lost > 0;
        if (w.wrong) w.book.loss = LEDGER_LOSS_NONE;
        NOTHING_WRONG();
    }
    w.book.loss = LEDGER_LOSS_NONE;
    ASSERT((size_t)shorter > flips / 10); /* or the flips hit nothing */
    PASS();
}

/* Cut at every half page. A WAL that is cut costs a tail; a database that is cut is refused or
** says what is wrong, and is never taken for an empty one (as SQLite takes a file of one byte). */
TEST truncated_file_is_never_an_empty_queue(void)
{
    size_t bytes, all = scene_history.db_bytes;
    w.allowed = allowed_none;
    for (bytes = 2; bytes < all; bytes += bytes == 2 ? 2046 : 2048) {
        scene_history.db_bytes = bytes;
        snprintf(scene_command, sizeof scene_command, "the first %d bytes", (int)bytes);
        scene_prepare(scene_named("open"));
        scene_history.db_bytes = all;
        use_damaged();
        NOTHING_WRONG();
    }
    all = scene_crashed.wal_bytes;
    w.book.loss = LEDGER_LOSS_TAIL;
    for (bytes = 0; bytes <= all; bytes += 1024) {
        scene_crashed.wal_bytes = bytes;
        snprintf(scene_command, sizeof scene_command, "the first %d bytes of the WAL", (int)bytes);
        scene_prepare(scene_named("recovery"));
        scene_crashed.wal_bytes = all;
        if (ledger_check(&w.book, w.path, 0)) scene_bad("%s", w.book.why);
        if (w.wrong) w.book.loss = LEDGER_LOSS_NONE;
        NOTHING_WRONG();
    }
    w.book.loss = LEDGER_LOSS_NONE;
    PASS();
}

/* Things that are no database of ours; each is left as it was, byte for byte. */
TEST foreign_file_is_refused_untouched(void)
{
    static char noise[9000];
    static const struct { const char *what; eb_result want; size_t bytes; } foreign[] = {
        {"text", EB_ERR_SCHEMA, 700}, {"noise", EB_ERR_SCHEMA, sizeof noise},
        {"header", EB_ERR_SCHEMA, 100}, {"newer", EB_ERR_SCHEMA, 0}, {"sqlite", EB_ERR_SCHEMA, 0}};
    size_t i, k, bytes, after;
    char *before, *now;
    eb_bus *bus;
    w.allowed = allowed_none;
    for (i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        scene_prepare(scene_named(foreign[i].bytes ? "first_open" : "open"));
        for (k = 0; k < sizeof noise; k++)
            noise[k] = i == 0 ? "hello, world\n"[k % 13] : (char)dice(256);
        if (i == 2) memcpy(noise, "SQLite format 3", 16);
        if (foreign[i].bytes) scene_write("", noise, foreign[i].bytes);
        if (i == 3) t_sql(w.path, "UPDATE meta SET value=99 WHERE key='schema_version'", NULL, 0);
        if (i == 4) {
            scene_remove();
            t_sql(w.path, "CREATE TABLE events(mine); INSERT INTO events VALUES(1)", NULL, 0);
        }
        before = scene_read("", &bytes);
        bus = (eb_bus *)(void *)&w;
        T_IS(foreign[i].want, eb_open(&bus, &w.options));
        ASSERT(bus == NULL);
        now = scene_read("", &after);
        if (!now || after != bytes || memcmp(before, now, bytes) != 0) FAILm(foreign[i].what);
        free(before);
        free(now);
        before = scene_read("-wal", &bytes);
        if (bytes) FAILm("it left a WAL behind");
        free(before);
    }
    PASS();
}

TEST directory_and_missing_folder_are_io_errors(void)
{
    eb_options o = w.options;
    eb_bus *bus = NULL;
    char path[440];
    scene_remove();
    ASSERT_EQ(0, t_mkdir(w.path));
    T_IS(EB_ERR_IO, eb_open(&bus, &w.options));
    ASSERT(bus == NULL);
    ASSERT_EQ(0, rmdir(w.path));
    snprintf(path, sizeof path, "%s-none/x.db", w.path);
    o.path = path;
    T_IS(EB_ERR_IO, eb_open(&bus, &o));
    ASSERT(bus == NULL);
    PASS();
}

/* A file that may not be written: no bus. The trouble gone, everything is there. */
TEST read_only_file_is_refused_and_whole(void)
{
    eb_bus *bus = NULL;
    eb_result rc;
    w.allowed = allowed_none;
    scene_prepare(scene_named("open"));
    vfs_read_only = 1;
    rc = eb_open(&bus, &w.options);
    if (rc == EB_OK) rc = eb_post(bus, "ok", "{}", NULL);
    eb_destroy(bus);
    vfs_read_only = 0;
    T_IS(EB_ERR_IO, rc);
    scene_play(scene_named("open"), arm_nothing);
    scene_check();
    NOTHING_WRONG();
    PASS();
}

#ifndef _WIN32
/* Somebody deletes the file under a running bus. Whatever the bus says to that, it is documented;
** what it acknowledged is in the files that it had: the one that another name still shows, and
** the WAL, which SQLite leaves alone when it sees this. A new bus under the old name begins an
** empty queue. */
TEST unlinked_file_keeps_what_was_acknowledged(void)
{
    char saved[440], wal[440], saved_wal[446];
    static const eb_result fine[] = {EB_ERR_IO, EB_ERR_CORRUPT, EB_ERR_TIMEOUT, EB_ERR_UNKNOWN};
    int i, n;
    char payload[64], metadata[32];
    eb_id id;
    eb_result rc;
    size_t k;
    w.allowed = allowed_none;
    scene_prepare(scene_named("dispatch"));
    snprintf(saved, sizeof saved, "%s", t_path("faults-saved"));
    ASSERT_EQ(0, link(w.path, saved));
    ASSERT_EQ(0, unlink(w.path));
    for (i = 0; i < 6; i++) {
        eb_message m;
        n = ledger_attempt(&w.book, "ok", SCENE_MAX_ATTEMPTS, 0, payload, sizeof payload);
        snprintf(metadata, sizeof metadata, "{\"n\":\"%d\"}", n);
        memset(&m, 0, sizeof m);
        memset(&id, 0, sizeof id);
        m.type = "ok";
        m.payload = payload;
        m.metadata = metadata;
        rc = i % 2 ? eb_pump(w.bus, EB_NONE, NULL) : eb_send(w.bus, &m, 1, &id);
        if (i % 2 == 0) ledger_answer(&w.book, n, rc, &id);
        if (i % 2 == 0 && rc == EB_OK) ASSERT(t_is_v4(id.str));
        for (k = 0; rc < 0 && k < sizeof fine / sizeof *fine && fine[k] != rc; k++) {}
        if (rc < 0 && k == sizeof fine / sizeof *fine) FAILm(eb_strerror(rc));
    }
    eb_shutdown(w.bus);
    scene_close();
    ledger_crashed(&w.book);
    snprintf(wal, sizeof wal, "%s-wal", w.path);
    snprintf(saved_wal, sizeof saved_wal, "%s-wal", saved);
    rename(wal, saved_wal);
    if (ledger_check(&w.book, saved, 0)) FAILm(w.book.why);
    NOTHING_WRONG();
    t_path("faults-saved");
    scene_prepare(scene_named("first_open"));
    scene_play(scene_named("first_open"), arm_nothing);
    scene_check();
    NOTHING_WRONG();
    PASS();
}

#else
/* Windows does not let anybody delete a file that is open: the bus never notices that somebody
** tried. */
TEST open_file_cannot_be_deleted(void)
{
    w.allowed = allowed_none;
    scene_prepare(scene_named("dispatch"));
    ASSERT(remove(w.path) != 0);
    scene_play(scene_named("dispatch"), arm_nothing);
    scene_check();
    NOTHING_WRONG();
    PASS();
}
#endif

GREATEST_MAIN_DEFS();
int main(int argc, char **argv)
{
    static const char *const full[] = {"first_open", "send", "publish", "dispatch", "retry",
                                       "death", "snooze", "children", "subscribe", "start",
                                       "dlq_retry", "move", "purge", "recovery", "shutdown"};
    static const char *const locked[] = {"post", "send", "publish", "dispatch",
                                         "retry", "death", "snooze", "children", "subscribe",
                                         "start", "dlq_retry", "move", "purge", "recovery",
                                         "shutdown"};
    size_t i;
    if (argc == 2 && strcmp(argv[1], "few") == 0) {
        flips /= 10;
        sizes = 10;
        argc = 1;
    }
    GREATEST_MAIN_BEGIN();
    scene_init("faults");
    if (scene_thorough) flips *= 50;
    for (i = 0; i < sizeof full / sizeof *full; i++) {
        greatest_set_test_suffix(full[i]);
        RUN_TESTp(disk_full_at_every_size_is_said_and_passes, full[i]);
    }
    RUN_TEST(full_disk_stops_nothing_for_good);
    RUN_TESTp(failed_sync_is_unknown_and_the_bus_goes_on, 0);
    RUN_TESTp(failed_sync_is_unknown_and_the_bus_goes_on, 1);
#if EBI_THREADS
    RUN_TEST(failed_checkpoint_of_the_keeper_is_not_forgotten);
    greatest_set_test_suffix("post_first");
    RUN_TESTp(shared_commit_is_synced_if_one_of_it_must_be, 0);
    greatest_set_test_suffix("claim_first");
    RUN_TESTp(shared_commit_is_synced_if_one_of_it_must_be, 1);
#endif
    for (i = 0; i < sizeof locked / sizeof *locked; i++) {
        greatest_set_test_suffix(locked[i]);
        RUN_TESTp(locked_for_long_is_said_and_passes, locked[i]);
    }
    RUN_TESTp(busy_timeout_is_kept, EB_NONE);
    RUN_TESTp(busy_timeout_is_kept, 40);
    RUN_TESTp(busy_timeout_is_kept, 3000);
    RUN_TEST(flipped_byte_in_the_database_is_survived);
    RUN_TEST(flipped_byte_in_the_wal_costs_only_a_tail);
    RUN_TEST(truncated_file_is_never_an_empty_queue);
    RUN_TEST(foreign_file_is_refused_untouched);
    RUN_TEST(directory_and_missing_folder_are_io_errors);
    RUN_TEST(read_only_file_is_refused_and_whole);
#ifndef _WIN32
    RUN_TEST(unlinked_file_keeps_what_was_acknowledged);
#else
    RUN_TEST(open_file_cannot_be_deleted);
#endif
    scene_fini();
    GREATEST_MAIN_END();
}
