/* power.c - the power goes at every write and around every sync, and nothing that was acknowledged
** is lost: FULL loses nothing, NORMAL only the newest, OFF must be seen to lose, or the model is
** blind.
**
** A seed makes a workload: posts, batches, waiting publishes, handlers that succeed, fail, recover,
** die, reject and snooze, dead letters retried, moved and purged, restarts. It runs in one thread
** on the disk of cutvfs.h, first without a cut, to count the points where the power can go; then
** once per point, up to it. On what the cut leaves, un-synced data kept, dropped or torn, a second
** life begins, is cut at a random point of its own, often in the middle of its recovery, and the
** ledger checks what the third finds. Creation, recovery, checkpoints and shutdown lie among the
** points.
**
**     power                         3000 cuts, seed 1, and 200 compound faults
**     power CUTS SEED COMPOUND      other numbers, another seed
**     power --replay MODE SEED CUT  one cut alone; every failure prints this line
**     power --compound SEED         one compound fault alone; likewise
**
** make -C tests quick T=power, then tests/build/plain/power
*/
#include "work.h"
#include "cutvfs.h"
#include <time.h>

enum { ROOM = 600, STEPS = 20, STEPS_AFTER = 8, FAILURES_SHOWN = 5 };
static const char PATH[] = "bus.db";

enum { FAULTS_NONE, FAULTS_IO, FAULTS_ANY };

/* What this file knows about event n beyond the ledger. */
typedef struct marks {
    char keyed[ROOM + 1];    /* has an idempotency key: may be sent again */
    char gone[ROOM + 1];     /* purged, and that was acknowledged: must not come back */
    char anchored[ROOM + 1]; /* known to be on the platter: must stay, also at NORMAL */
} marks;

/* One scenario, and what became of it. */
typedef struct world {
    uint64_t seed;
    int mode; /* EB_DURABLE_ */
    int faults; /* FAULTS_: what calls may return while the power is on */
    ledger book;
    cv_disk *disk;
    luck random;
    t_time time;
    eb_bus *bus;
    int opened;    /* the last eb_open went well */
    int page_size;
    int wal_pages; /* few: early checkpoints, so that a short workload has many */
    marks marks;
    int64_t first_point; /* after the first eb_start */
    int64_t cuts, second_cuts, points, lost, losing_cuts, unreadable;
    int64_t met;     /* events that were there when they were sent again */
    int64_t life_ms; /* when this process began, by the injected clock */
    int failures;
    char command[80]; /* that replays what goes on */
    char why[2000];
} world;

static world w;
static long arg_cuts = 3000, arg_compound = 200;
static uint64_t arg_seed = 1;

static int talkative; /* replaying: say what happens */

static void say(const char *fmt, ...) EB_PRINTF(1, 2);
static void say(const char *fmt, ...)
{
    va_list args;
    if (!talkative) return;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

static void bad(const char *fmt, ...) EB_PRINTF(1, 2);
static void bad(const char *fmt, ...)
{
    va_list args;
    if (w.why[0]) return;
    va_start(args, fmt);
    vsnprintf(w.why, sizeof w.why, fmt, args);
    va_end(args);
}

/* The answer of a call that published event n. An error that comes after the end of the power is
** heard by nobody: the event is then one whose answer never came. */
static void answer(int n, eb_result rc, const eb_id *id)
{
    if (rc >= 0 || !w.disk->dead) ledger_answer(&w.book, n, rc, id);
}

/* ---- the handlers ---------------------------------------------------------------------------- */

/* Besides the types of work.h: chain, which publishes another event. */
static eb_result handler(eb_delivery *d, void *user)
{
    int n;
    (void)user;
    if (w.disk->dead) return eb_fail(d, "there is no power");
    n = ledger_run(&w.book, d);
    if (strcmp(d->event->type, "chain") == 0 && ledger_at(&w.book, n)->ok == 0 &&
        w.book.book->used < ROOM) {
        char payload[100];
        eb_id id;
        eb_result rc;
        int child = work_announce(&w.book, "ok", 0, payload, sizeof payload);
        rc = eb_post(d->bus, "ok", payload, &id);
        answer(child, rc, &id);
    }
    return work_handle(&w.book, d, n, 20);
}

static const char *random_type(void)
{
    static const char *const types[] = {"ok", "ok", "ok", "late", "bad", "no", "nap", "chain"};
    return types[luck_below(&w.random, 8)];
}

/* ---- what a host does ------------------------------------------------------------------------ */

/* A call that has no reason to fail but the end of the power, or a fault that was injected. */
static void expect(const char *what, eb_result rc)
{
    char msg[300];
    eb_errmsg(msg, sizeof msg);
    say("  %s: %s%s%s", what, eb_strerror(rc), rc < 0 ? ": " : "", rc < 0 ? msg : "");
    if (rc >= 0 || w.disk->dead || w.faults == FAULTS_ANY) return;
    if (w.faults == FAULTS_IO &&
        (rc == EB_ERR_IO || rc == EB_ERR_UNKNOWN || rc == EB_ERR_BUSY)) return;
    bad("%s: %s (%s)", what, eb_strerror(rc), msg);
}

static int announce(const char *type, char *payload, size_t cap)
{
    static const int pads[] = {0, 0, 40, 300, 1500, 5000};
    return work_announce(&w.book, type, pads[luck_below(&w.random, 6)], payload, cap);
}

static eb_result do_post_of(const char *type)
{
    char payload[6000];
    int n = announce(type, payload, sizeof payload);
    eb_id id;
    eb_result rc = eb_post(w.bus, type, payload, &id);
    answer(n, rc, &id);
    expect("eb_post", rc);
    return rc;
}

static eb_result do_post(void) { return do_post_of(random_type()); }

static void do_publish(void)
{
    char payload[6000];
    const char *type = random_type();
    int n = announce(type, payload, sizeof payload);
    eb_id id;
    eb_result rc;
    memset(&id, 0, sizeof id);
    rc = eb_publish(w.bus, type, payload, &id);
    answer(n, rc, &id);
    expect("eb_publish", rc);
}

/* The key under which event n can be sent again. */
static const char *key_of(int n, char *buf, size_t cap)
{
    if (!w.marks.keyed[n]) return NULL;
    snprintf(buf, cap, "key-%d", n);
    return buf;
}

/* Everything acknowledged up to event `last` is on the platter. */
static void anchor_all(int last)
{
    int n;
    for (n = 1; n <= last; n++)
        if (ledger_at(&w.book, n)->state == LEDGER_ACKED) w.marks.anchored[n] = 1;
}

static void do_send(void)
{
    static char payloads[8][6000];
    char keys[8][24];
    eb_message m[8];
    eb_id ids[8];
    int n[8], i, count = 1 + luck_below(&w.random, 8);
    eb_result rc;
    memset(m, 0, sizeof m);
    memset(ids, 0, sizeof ids);
    for (i = 0; i < count; i++) {
        m[i].type = random_type();
        n[i] = announce(m[i].type, payloads[i], sizeof payloads[i]);
        m[i].payload = payloads[i];
        w.marks.keyed[n[i]] = (char)luck_one_in(&w.random, 4);
        m[i].idempotency_key = key_of(n[i], keys[i], sizeof keys[i]);
        if (luck_one_in(&w.random, 4)) m[i].ordering_key = luck_below(&w.random, 2) ? "a" : "b";
        if (luck_one_in(&w.random, 6)) m[i].delay_ms = 1 + luck_below(&w.random, 60);
        if (w.mode == EB_DURABLE_NORMAL && luck_one_in(&w.random, 40))
            m[i].durability = EB_DURABLE_FULL;
    }
    rc = eb_send(w.bus, m, (size_t)count, ids);
    for (i = 0; i < count; i++) answer(n[i], rc, &ids[i]);
    /* Acknowledged at FULL: everything up to here is on the platter, whatever the bus's level. */
    for (i = 0; i < count; i++)
        if (rc >= 0 && m[i].durability == EB_DURABLE_FULL) anchor_all(n[count - 1]);
    expect("eb_send", rc);
}

/* Everything that has a key once more: what is there must be met, what is not must be there once
** after that. */
static void send_again(void)
{
    char payload[6000], key[24];
    int n, used = (int)w.book.book->used, there;
    for (n = 1; n <= used && !w.disk->dead; n++) {
        const ledger_event *e = ledger_at(&w.book, n);
        eb_message m;
        eb_id id;
        eb_result rc;
        there = e->state == LEDGER_ACKED;
        if (!key_of(n, key, sizeof key) || (there && e->notes & LEDGER_PURGED)) continue;
        memset(&m, 0, sizeof m);
        ledger_payload(n, e->pad, payload, sizeof payload);
        m.type = e->type;
        m.payload = payload;
        m.idempotency_key = key;
        if (!there) ledger_again(&w.book, n);
        rc = eb_send(w.bus, &m, 1, &id);
        if (!there) answer(n, rc, &id);
        else if (rc >= 0 && w.mode != EB_DURABLE_OFF &&
                 (rc != EB_DUPLICATE || (e->id[0] && strcmp(e->id, id.str) != 0)))
            bad("event %d is there as %s, and now as %s", n, e->id, id.str);
        w.met += there && rc == EB_DUPLICATE;
        expect("eb_send again", rc);
    }
}

/* ---- dead letters ---------------------------------------------------------------------------- */

/* The numbers of the dead; returns how many. */
static int the_dead(int *numbers, eb_id *ids, int cap)
{
    eb_query q;
    eb_event_list list;
    int i, count = 0;
    memset(&q, 0, sizeof q);
    q.limit = cap;
    if (eb_dlq_list(eb_bus_store(w.bus), &q, &list) != EB_OK) return 0;
    for (i = 0; i < (int)list.count && i < cap; i++) {
        numbers[count] = ledger_number(list.items[i].payload);
        ids[count++] = list.items[i].id;
    }
    eb_event_list_free(&list);
    return count;
}

static void do_dead(void)
{
    static int n[ROOM];
    static eb_id ids[ROOM];
    int count = the_dead(n, ids, ROOM), i, pick;
    eb_store *store = eb_bus_store(w.bus);
    eb_result rc;
    if (count == 0) return;
    pick = luck_below(&w.random, count);
    switch (luck_below(&w.random, 4)) {
    case 0:
    case 1:
        ledger_note(&w.book, n[pick], LEDGER_RETRIED);
        expect("eb_dlq_retry", eb_dlq_retry(store, ids[pick].str, NULL));
        break;
    case 2:
        for (i = 0; i < count; i++) ledger_note(&w.book, n[i], LEDGER_RETRIED);
        expect("eb_dlq_retry_all", eb_dlq_retry_all(store, NULL, NULL));
        break;
    default:
        for (i = 0; i < count; i++) ledger_note(&w.book, n[i], LEDGER_PURGED);
        rc = eb_dlq_purge(store, 0, NULL);
        for (i = 0; i < count && rc == EB_OK; i++) w.marks.gone[n[i]] = 1;
        expect("eb_dlq_purge", rc);
    }
}

/* Gives up on some event; it may be done already. */
static void do_move(void)
{
    int n, used = (int)w.book.book->used;
    eb_result rc;
    if (used == 0) return;
    n = 1 + luck_below(&w.random, used);
    if (ledger_at(&w.book, n)->state != LEDGER_ACKED || !ledger_at(&w.book, n)->id[0]) return;
    ledger_note(&w.book, n, LEDGER_MOVED);
    rc = eb_dlq_move(eb_bus_store(w.bus), ledger_at(&w.book, n)->id, "given up");
    if (rc != EB_ERR_STATE && rc != EB_ERR_NOT_FOUND) expect("eb_dlq_move", rc);
}

/* Looks, through the second connection. */
static void do_look(void)
{
    eb_stats st;
    eb_event_list list;
    expect("eb_stats_get", eb_stats_get(eb_bus_store(w.bus), &st));
    expect("eb_log_read", eb_log_read(eb_bus_store(w.bus), NULL, &list));
    eb_event_list_free(&list);
}

/* ---- a life ---------------------------------------------------------------------------------- */

/* Runs on every connection that SQLite opens: small pages, so that a short workload has many. */
static int on_open(sqlite3 *db, char **err, const struct sqlite3_api_routines *api)
{
    char sql[40];
    (void)err;
    (void)api;
    snprintf(sql, sizeof sql, "PRAGMA page_size=%d", w.page_size);
    sqlite3_exec(db, sql, NULL, NULL, NULL);
    return SQLITE_OK;
}

/* Sleeping moves the clock. A call that sleeps for an hour would never return. */
static void sleep_ms(int64_t ms, void *user)
{
    t_sleep(ms, user);
    if (w.time.mono_ms < w.life_ms + 3600 * 1000) return;
    fprintf(stderr, "\n%s\n    a call does not return\n", w.command);
    abort();
}

static void begin(void)
{
    eb_options o;
    eb_result rc;
    memset(&o, 0, sizeof o);
    o.path = PATH;
    o.vfs = "cut";
    o.workers = EB_NONE;
    o.durability = w.mode;
    o.retry.max_retries = WORK_ATTEMPTS - 1;
    o.retry.base_delay_ms = 10;
    o.busy_timeout_ms = 50;
    o.wal_pages = w.wal_pages;
    o.logger.func = t_quiet_func;
    o.clock.now_ms = t_now;
    o.clock.mono_ms = t_mono;
    o.clock.sleep_ms = sleep_ms;
    o.clock.user = &w.time;
    rc = eb_open(&w.bus, &o);
    w.opened = rc == EB_OK;
    expect("eb_open", rc);
    if (rc == EB_OK) {
        rc = eb_subscribe(w.bus, "*", handler, NULL, NULL, NULL);
        expect("eb_subscribe", rc);
    }
    if (rc == EB_OK) {
        rc = eb_start(w.bus);
        expect("eb_start", rc);
    }
    if (rc == EB_OK) return;
    eb_destroy(w.bus);
    w.bus = NULL;
}

static void step(void)
{
    switch (luck_below(&w.random, 16)) {
    case 0:
    case 1:
    case 2:
    case 3: do_post(); break;
    case 4: do_publish(); break;
    case 5:
    case 6:
    case 7: do_send(); break;
    case 8:
    case 9:
    case 10: expect("eb_pump", eb_pump(w.bus, luck_below(&w.random, 2) ? EB_NONE : 0, NULL)); break;
    case 11: t_advance(&w.time, 1 + luck_below(&w.random, 40)); break;
    case 12:
    case 13: do_dead(); break;
    case 14: luck_below(&w.random, 2) ? do_move() : do_look(); break;
    default: /* a clean restart, seldom */
        if (luck_below(&w.random, 4)) break;
        expect("eb_shutdown", eb_shutdown(w.bus));
        eb_destroy(w.bus);
        w.bus = NULL;
        begin();
    }
}

/* Puts a disk in; a process begins. */
static void boot(cv_disk *disk, uint64_t stream)
{
    say("life %d:", (int)stream);
    w.disk = cv_mounted = disk;
    w.life_ms = w.time.mono_ms;
    w.random = luck_seeded(w.seed, stream);
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, (int)(1 + w.seed * 16 + stream), NULL);
}

static void work(int steps)
{
    while (steps-- > 0 && w.bus && !w.disk->dead && w.book.book->used < ROOM - 40) step();
}

/* The process is gone: it cannot reach the disk any more. */
static void end(void)
{
    w.disk->dead = 1;
    eb_destroy(w.bus);
    w.bus = NULL;
}

/* Opens a bus on the disk and works with it until the power goes or the steps are done; then an
** orderly end. */
static void live(cv_disk *disk, uint64_t stream, int steps)
{
    boot(disk, stream);
    begin();
    if (stream == 1) w.first_point = disk->points;
    if (w.bus && stream > 1) send_again();
    work(steps);
    if (w.bus && !disk->dead) expect("eb_shutdown", eb_shutdown(w.bus));
    eb_destroy(w.bus);
    w.bus = NULL;
}

/* ---- after the cut --------------------------------------------------------------------------- */

static const char *const mode_names[] = {"", "full", "normal", "off"};
static const int mode_loss[] = {0, LEDGER_LOSS_NONE, LEDGER_LOSS_TAIL, LEDGER_LOSS_ANY};

/* Which events the file has. Returns 0 if it cannot be read. */
static int events_there(char *seen)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    int rc, n;
    memset(seen, 0, ROOM + 1);
    rc = sqlite3_open_v2(PATH, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "cut");
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "SELECT 1 FROM sqlite_schema WHERE name='event_log'", -1, &s,
                                NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    sqlite3_finalize(s);
    s = NULL;
    if (rc == SQLITE_ROW) {
        rc = sqlite3_prepare_v2(db, "SELECT payload FROM event_log", -1, &s, NULL);
        while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
            n = ledger_number((const char *)sqlite3_column_text(s, 0));
            if (n > 0 && n <= ROOM) seen[n] = 1;
            rc = SQLITE_OK;
        }
        sqlite3_finalize(s);
    }
    sqlite3_close(db);
    return rc == SQLITE_DONE;
}

/* Looks at what a cut left, on a copy, and draws the line under it: what is there now is there for
** good, what is not must never appear. */
static void survey(const cv_disk *left)
{
    cv_disk *copy = cv_survivor(left, CV_KEEP, NULL);
    char seen[ROOM + 1];
    int n, readable;
    cv_mounted = copy;
    w.book.loss = mode_loss[w.mode];
    if (ledger_look(&w.book, PATH)) bad("after the cut: %s", w.book.why);
    w.lost += w.book.lost;
    w.losing_cuts += w.book.lost > 0;
    readable = events_there(seen);
    cv_disk_free(copy);
    if (!readable) bad("after the cut: the file cannot be read");
    for (n = 1; n <= w.book.book->used; n++) {
        ledger_event *e = ledger_at(&w.book, n);
        if (seen[n]) {
            if (w.marks.gone[n]) bad("event %d was purged and is back", n);
            w.marks.anchored[n] = 1;
            e->state = LEDGER_ACKED;
        } else if (e->notes & LEDGER_PURGED) {
            w.marks.gone[n] = 1;
        } else {
            if (w.marks.anchored[n]) bad("event %d was on the platter and is lost", n);
            e->state = LEDGER_REFUSED;
            e->id[0] = 0; /* if it is sent again, it gets another */
        }
    }
}

/* The end of a scenario: what is left, then its recovery and the ledger's check. Frees the disk. */
static void settle(cv_disk *left)
{
    if (!w.why[0]) survey(left);
    cv_mounted = left;
    if (!w.why[0] && ledger_check(&w.book, PATH, 0)) bad("in the end: %s", w.book.why);
    cv_disk_free(left);
}

/* The power goes now; then the same. Frees the disk. */
static void cut_and_settle(cv_disk *disk, int mix, luck *r)
{
    cv_disk *left;
    end();
    ledger_crashed(&w.book);
    left = cv_survivor(disk, mix, r);
    cv_disk_free(disk);
    settle(left);
}

/* On an OFF bus anything can be left; the bus must only say so, not crash or hang. */
static void look_at_ruins(const cv_disk *left, cv_disk *image)
{
    cv_disk *copy = cv_survivor(left, CV_KEEP, NULL);
    cv_mounted = copy;
    w.book.loss = LEDGER_LOSS_ANY;
    if (ledger_look(&w.book, PATH)) w.unreadable++;
    else w.losing_cuts += w.book.lost > 0;
    w.lost += w.book.lost;
    cv_disk_free(copy);
    w.faults = FAULTS_ANY;
    live(image, 2, STEPS_AFTER);
    w.faults = FAULTS_NONE;
}

/* One outcome of one cut: a second life on what is left, a second cut in it, and the check. */
static void outcome(const cv_disk *cut, int mix, uint64_t stream)
{
    luck r = luck_seeded(w.seed, stream);
    cv_disk *image = cv_survivor(cut, mix, &r), *second;
    ledger_crashed(&w.book);
    if (w.mode == EB_DURABLE_OFF) {
        look_at_ruins(image, image);
        cv_disk_free(image);
        return;
    }
    survey(image);
    image->cut_at = 1 + luck_below(&r, luck_below(&r, 2) ? 30 : 200);
    if (!w.why[0]) live(image, 2, STEPS_AFTER);
    w.second_cuts += image->dead;
    ledger_crashed(&w.book);
    second = cv_survivor(image, luck_below(&r, CV_MIXES), &r);
    cv_disk_free(image);
    settle(second);
}

/* ---- a scenario ------------------------------------------------------------------------------ */

/* The settings that a seed stands for. */
static void setting(int mode, uint64_t seed)
{
    static const int pages[] = {4, 16, 1000}, sizes[] = {4096, 1024, 4096};
    luck r = luck_seeded(seed, 0);
    w.seed = seed;
    w.mode = mode;
    w.wal_pages = pages[luck_below(&r, 3)];
    w.page_size = sizes[luck_below(&r, 3)];
    w.why[0] = 0;
}

/* An empty disk, an empty ledger. */
static cv_disk *new_world(void)
{
    ledger_clear(&w.book);
    memset(&w.marks, 0, sizeof w.marks);
    t_clock(&w.time);
    return cv_disk_new((int)(w.seed & 1));
}

/* The first life, on a new disk, up to cut point `cut` (0: to its end). The disk as it is then. */
static cv_disk *first_life(int64_t cut)
{
    cv_disk *disk = new_world();
    disk->cut_at = cut;
    live(disk, 1, STEPS);
    return disk;
}

/* One cut and what it leaves; what is wrong goes to stderr. What becomes of un-synced data changes
** from point to point. */
static void one_cut(int mode, uint64_t seed, int64_t cut)
{
    static const int mixes[] = {CV_KEEP, CV_TORN, CV_DROP, CV_TORN};
    cv_disk *disk;
    setting(mode, seed);
    snprintf(w.command, sizeof w.command, "power --replay %s %llu %lld", mode_names[mode],
             (unsigned long long)seed, (long long)cut);
    disk = first_life(cut);
    if (!w.why[0]) outcome(disk, mixes[((uint64_t)cut + seed) % 4], 1000 + (uint64_t)cut);
    cv_disk_free(disk);
    w.cuts++;
    if (w.why[0] && ++w.failures <= FAILURES_SHOWN)
        fprintf(stderr, "\n%s\n    %s\n", w.command, w.why);
}

/* Cuts at every point of one workload after the other until `budget` cuts are spent. */
static void sweep(int mode, long budget, uint64_t seed)
{
    const uint64_t first = seed;
    char kind[40];
    long spent = 0;
    int64_t cut, points;
    cv_disk *disk;
    for (; spent < budget && w.failures < 100; seed++) {
        setting(mode, seed);
        disk = first_life(0);
        points = disk->points;
        cv_disk_free(disk);
        if (w.why[0]) {
            w.failures++;
            fprintf(stderr, "\npower --replay %s %llu 0\n    without a cut: %s\n", mode_names[mode],
                    (unsigned long long)seed, w.why);
        }
        w.points += points;
        /* Not every workload cuts creation again; at OFF there is little to see in it. */
        cut = seed % 3 == 1 && mode != EB_DURABLE_OFF ? 1 : w.first_point;
        for (; cut <= points && spent < budget; cut++, spent++) one_cut(mode, seed, cut);
    }
    snprintf(kind, sizeof kind, "power cuts at %s", mode_names[mode]);
    ledger_total(kind, spent + w.second_cuts, w.failures,
                 "seeds %llu to %llu; %lld while recovering; %lld of them lost %lld events; "
                 "%lld left an inconsistent file", (unsigned long long)first,
                 (unsigned long long)seed - 1, (long long)w.second_cuts, (long long)w.losing_cuts,
                 (long long)w.lost, (long long)w.unreadable);
}

/* ---- compound faults ------------------------------------------------------------------------- */

/* The disk works again: the bus must find back by itself, within its own backoff. */
static void heal(void)
{
    eb_result rc = EB_OK;
    int tries;
    for (tries = 0; tries < 4; tries++) {
        t_advance(&w.time, EBI_BACKOFF_MAX_MS + 1);
        rc = eb_pump(w.bus, EB_NONE, NULL);
        if (rc == EB_OK) rc = do_post();
        if (rc == EB_OK || w.disk->dead) return;
    }
    bad("the disk works again, the bus does not: %s", eb_strerror(rc));
}

/* What a kill left: everything that was written, synced or not, and so nothing is lost. */
static void survey_kill(const cv_disk *left)
{
    cv_disk *copy = cv_after_kill(left);
    cv_mounted = copy;
    w.book.loss = LEDGER_LOSS_NONE;
    if (ledger_look(&w.book, PATH)) bad("after the kill: %s", w.book.why);
    cv_disk_free(copy);
}

/* The first life of a compound fault: a disk that fails, then a kill or a cut, before or after it
** works again. Returns the disk of the second. */
static cv_disk *troubled_life(luck *r)
{
    cv_disk *disk = new_world(), *next;
    int kind = 1 + luck_below(r, CV_FAIL_KINDS - 1), times = luck_below(r, 3) ? 1 : 100;
    int healed = luck_below(r, 2), cut = luck_below(r, 2);
    /* What a failed sync lost cannot be had back if the power goes before the bus noticed. */
    if (kind == CV_FAIL_SYNC_LOSES && !healed) cut = 0;
    say("fault %d, %d times, %s%s", kind, times, cut ? "cut" : "kill",
        healed ? " after it works again" : "");
    boot(disk, 1);
    begin();
    work(3);
    w.faults = FAULTS_IO;
    cv_fail(disk, kind, 1 + luck_below(r, kind == CV_FAIL_WRITE || kind == CV_FAIL_SHM ? 60 : 12),
            times);
    if (!healed) disk->cut_at = disk->points + 1 + luck_below(r, 120);
    work(8);
    if (healed) {
        cv_fail(disk, CV_FAIL_NONE, 0, 0);
        w.faults = FAULTS_NONE;
        if (!w.bus) begin(); /* a restart fell into the fault */
        if (w.bus) heal();
        disk->cut_at = disk->points + 1 + luck_below(r, 80);
        work(6);
    }
    w.faults = FAULTS_NONE;
    say("%lld calls failed", (long long)disk->failed);
    end();
    ledger_crashed(&w.book);
    next = cut ? cv_survivor(disk, luck_below(r, CV_MIXES), r) : cv_after_kill(disk);
    cv_disk_free(disk);
    if (!w.why[0]) cut ? survey(next) : survey_kill(next);
    return next;
}

/* The second life begins with another fault, then works, then loses its power. */
static void one_compound(uint64_t seed)
{
    luck r = luck_seeded(seed, 50);
    cv_disk *disk;
    int kind;
    setting(luck_below(&r, 4) ? EB_DURABLE_FULL : EB_DURABLE_NORMAL, seed);
    snprintf(w.command, sizeof w.command, "power --compound %llu", (unsigned long long)seed);
    disk = troubled_life(&r);
    boot(disk, 2);
    do kind = 1 + luck_below(&r, CV_FAIL_KINDS - 1); while (kind == CV_FAIL_SYNC_LOSES);
    say("fault %d at the second start", kind);
    cv_fail(disk, kind, 1 + luck_below(&r, 20), 1);
    w.faults = FAULTS_IO;
    begin();
    cv_fail(disk, CV_FAIL_NONE, 0, 0);
    w.faults = FAULTS_NONE;
    if (!w.bus) begin();
    if (w.bus) {
        heal();
        send_again();
        disk->cut_at = disk->points + 1 + luck_below(&r, 80);
        work(6);
    }
    cut_and_settle(disk, luck_below(&r, CV_MIXES), &r);
    if (w.why[0] && ++w.failures <= FAILURES_SHOWN)
        fprintf(stderr, "\n%s\n    %s\n", w.command, w.why);
}

/* Every write of one eb_post fails, and so many after it; returns how many there were. */
static int failed_writes(int safe_overwrite, int times)
{
    int n, reached = 1;
    for (n = 1; reached && !w.why[0]; n++) {
        cv_disk *disk, *left;
        eb_result rc;
        setting(EB_DURABLE_FULL, 1);
        w.wal_pages = 1000; /* so that closing the connection has something to write too */
        cv_disk_free(new_world());
        disk = cv_disk_new(safe_overwrite);
        boot(disk, 1);
        begin();
        do_post();
        cv_fail(disk, CV_FAIL_WRITE, n, times);
        w.faults = FAULTS_IO;
        rc = do_post();
        w.faults = FAULTS_NONE;
        reached = disk->failed > 0;
        cv_fail(disk, CV_FAIL_NONE, 0, 0);
        end();
        ledger_crashed(&w.book);
        left = cv_after_kill(disk);
        cv_disk_free(disk);
        survey_kill(left);
        cv_mounted = left;
        if (!w.why[0] && ledger_check(&w.book, PATH, 0)) bad("%s", w.book.why);
        cv_disk_free(left);
        if (w.why[0])
            fprintf(stderr, "write %d fails, %d of them, safe_overwrite %d, eb_post: %s\n    %s\n",
                    n, times, safe_overwrite, eb_strerror(rc), w.why);
    }
    return n - 2;
}

/* The n-th sync fails and the kernel forgets what it should have written; the process goes on, or
** is killed and a new one begins; then something is acknowledged, and then the power goes. Returns
** 0 if there was no n-th sync. */
static int lost_sync(int n, int restart, int pages, int64_t later, int mix)
{
    luck r = luck_seeded((uint64_t)n, (uint64_t)later);
    cv_disk *disk, *next;
    int i, reached;
    setting(EB_DURABLE_FULL, arg_seed);
    w.wal_pages = pages;
    disk = new_world();
    boot(disk, 1);
    begin();
    cv_fail(disk, CV_FAIL_SYNC_LOSES, n, 1);
    w.faults = FAULTS_IO;
    for (i = 0; i < 12 && !disk->failed; i++) {
        do_post();
        if (!disk->failed) expect("eb_pump", eb_pump(w.bus, EB_NONE, NULL));
    }
    reached = disk->failed > 0;
    cv_fail(disk, CV_FAIL_NONE, 0, 0);
    w.faults = FAULTS_NONE;
    if (restart) {
        next = cv_after_kill(disk);
        end();
        cv_disk_free(disk);
        ledger_crashed(&w.book);
        survey_kill(next);
        disk = next;
        boot(disk, 2);
        begin();
    }
    if (w.bus) heal();
    disk->cut_at = disk->points + later;
    work(4);
    cut_and_settle(disk, mix, &r);
    return reached;
}

/* The same on a NORMAL bus, where only checkpoints sync: what was committed before is gone from the
** WAL. Then one event is asked to be as safe as on a FULL bus, and the power goes. */
static int lost_checkpoint(int n, int mix)
{
    luck r = luck_seeded((uint64_t)n, (uint64_t)mix);
    cv_disk *disk;
    char payload[100];
    eb_message m;
    eb_result rc;
    eb_id id;
    int i, number, reached;
    setting(EB_DURABLE_NORMAL, arg_seed);
    w.wal_pages = 6;
    disk = new_world();
    boot(disk, 1);
    begin();
    cv_fail(disk, CV_FAIL_SYNC_LOSES, n, 1);
    w.faults = FAULTS_IO;
    for (i = 0; i < 60 && !disk->failed; i++) do_post();
    reached = disk->failed > 0;
    cv_fail(disk, CV_FAIL_NONE, 0, 0);
    w.faults = FAULTS_NONE;
    memset(&m, 0, sizeof m);
    m.type = "ok";
    m.payload = payload;
    m.durability = EB_DURABLE_FULL;
    number = work_announce(&w.book, m.type, 0, payload, sizeof payload);
    rc = eb_send(w.bus, &m, 1, &id);
    answer(number, rc, &id);
    expect("eb_send", rc);
    anchor_all(number);
    cut_and_settle(disk, mix, &r);
    return reached;
}

/* ---- migration ------------------------------------------------------------------------------- */

/* Puts the live rows of the mounted disk in words, and returns the version of its schema. Of a file
** of version 1 it tells what version 2 must make of the rows: all that they say but this: a suspect
** waits for no time, and what was set to processing by hand is marked. */
static int live_rows(char *text, size_t cap)
{
    static const char *const own[] = {
        "iif(suspect AND status='pending' AND token IS NULL AND (due_ms IS NULL OR snoozes=0),"
        "'alone',iif(status='processing' AND token IS NULL AND due_ms IS NULL,'by hand',due_ms))",
        "CASE apart WHEN 1 THEN 'alone' WHEN 2 THEN 'by hand' ELSE due_ms END"};
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    char sql[800];
    int version;
    T_MUST(sqlite3_open_v2(PATH, &db, SQLITE_OPEN_READWRITE, "cut") == SQLITE_OK);
    version = work_schema(db, w.why, sizeof w.why);
    snprintf(sql, sizeof sql,
             "SELECT group_concat(format('%%d %%s %%d-%%d/%%d %%d %%s %%s %%s %%s %%s %%s;',seq,"
             "status,attempts,failed,max_attempts,snoozes,born,owner,errors,ordering_key,"
             "ifnull(retried_at,'')||token,%s),' ') FROM (SELECT * FROM deliveries ORDER BY seq)",
             own[version > 1]);
    text[0] = 0;
    if (version > 0 && sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        snprintf(text, cap, "%s", ledger_text(s, 0));
    sqlite3_finalize(s);
    sqlite3_close(db);
    return version;
}

static char old_rows[8000];

/* A disk with some events in a file of schema version 1. Of the live ones some wait for nothing,
** one for its retry, one snoozes, two are to be run alone after a crash among others, and one was
** set to processing by hand. */
static cv_disk *old_version(void)
{
    cv_disk *disk;
    sqlite3 *db = NULL;
    int i;
    setting(EB_DURABLE_FULL, arg_seed);
    disk = new_world();
    boot(disk, 1);
    begin();
    work(6);
    do_post_of("bad");
    do_post_of("nap");
    expect("eb_pump", eb_pump(w.bus, EB_NONE, NULL));
    for (i = 0; i < 6; i++) do_post();
    expect("eb_shutdown", eb_shutdown(w.bus));
    eb_destroy(w.bus);
    w.bus = NULL;
    T_MUST(sqlite3_open_v2(PATH, &db, SQLITE_OPEN_READWRITE, "cut") == SQLITE_OK);
    T_MUST(sqlite3_exec(db, "UPDATE deliveries SET apart=1,due_ms=NULL"
                            " WHERE seq>(SELECT max(seq)-2 FROM deliveries);"
                            "UPDATE events SET status='processing'"
                            " WHERE seq=(SELECT max(seq)-2 FROM deliveries)",
                        NULL, NULL, NULL) == SQLITE_OK);
    T_MUST(work_back(db, 1) == SQLITE_OK);
    sqlite3_close(db);
    T_MUST(live_rows(old_rows, sizeof old_rows) == 1);
    T_MUST(strstr(old_rows, "alone") && strstr(old_rows, "by hand"));
    return disk;
}

/* The migration of a copy, cut at a point; *points: how many there are until it is through. Returns
** the version that the cut left, as far as that is what eb_open left. */
static int migrate(const cv_disk *old, int64_t cut, int mix, int64_t *points)
{
    luck r = luck_seeded(arg_seed, (uint64_t)(500 + cut * 4 + mix));
    cv_disk *disk = cv_survivor(old, CV_KEEP, NULL), *left;
    char rows[sizeof old_rows];
    int version;
    disk->cut_at = cut;
    boot(disk, 2);
    begin();
    *points = disk->points;
    end();
    ledger_crashed(&w.book);
    left = cv_survivor(disk, mix, &r);
    cv_disk_free(disk);
    survey(left);
    cv_mounted = left;
    version = live_rows(rows, sizeof rows);
    if (!w.why[0] && version != 1 && version != EBI_SCHEMA_LATEST)
        bad("version %d, neither old nor new", version);
    if (!w.opened && strcmp(rows, old_rows) != 0) bad("not %s\nbut %s", old_rows, rows);
    if (!w.why[0] && ledger_check(&w.book, PATH, 0)) bad("in the end: %s", w.book.why);
    if (!w.why[0] && live_rows(rows, sizeof rows) != EBI_SCHEMA_LATEST) bad("not migrated");
    cv_disk_free(left);
    return w.opened ? 0 : version;
}

static void fresh_totals(void)
{
    w.cuts = w.second_cuts = w.points = w.lost = w.losing_cuts = w.unreadable = w.met = 0;
    w.failures = 0;
}

/* ---- the model itself ------------------------------------------------------------------------ */

static sqlite3_file *file_open(const char *name, int kind)
{
    sqlite3_file *f = (sqlite3_file *)calloc(1, sizeof(cv_file));
    T_MUST(f);
    T_MUST(cv_open(NULL, name, f, kind | SQLITE_OPEN_CREATE | SQLITE_OPEN_READWRITE, NULL) ==
           SQLITE_OK);
    return f;
}
static void file_close(sqlite3_file *f)
{
    cv_close(f);
    free(f);
}
static void file_fill(sqlite3_file *f, int byte, int len, int from)
{
    unsigned char data[4096];
    memset(data, byte, sizeof data);
    T_MUST(cv_write(f, data, len, from) == SQLITE_OK);
}

/* The byte at an offset of what survives; -1: past the end, or no such file. */
static int left_at(const cv_disk *d, const char *name, int mix, uint64_t seed, size_t at)
{
    luck r = luck_seeded(seed, 1);
    cv_disk *left = cv_survivor(d, mix, &r);
    cv_inode *n = cv_name_now(cv_name_of(left, name, 0));
    int byte = n && at < n->cache.size ? n->cache.at[at] : -1;
    cv_disk_free(left);
    return byte;
}

TEST the_model_keeps_what_was_synced_and_tears_the_rest(void)
{
    cv_disk *d = cv_mounted = cv_disk_new(1);
    sqlite3_file *f = file_open("x-wal", SQLITE_OPEN_WAL);
    int seen[4] = {0, 0, 0, 0}, first, second, i;
    file_fill(f, 1, 2048, 0);
    T_MUST(cv_sync(f, SQLITE_SYNC_NORMAL) == SQLITE_OK);
    file_fill(f, 2, 1024, 1024);
    file_fill(f, 3, 512, 2048);
    ASSERT_EQ(2, left_at(d, "x-wal", CV_KEEP, 0, 1024));
    ASSERT_EQ(3, left_at(d, "x-wal", CV_KEEP, 0, 2048));
    ASSERT_EQ(1, left_at(d, "x-wal", CV_DROP, 0, 1024));
    ASSERT_EQ(-1, left_at(d, "x-wal", CV_DROP, 0, 2048));
    for (i = 0; i < 400; i++) {
        first = left_at(d, "x-wal", CV_TORN, (uint64_t)i, 1030);
        second = left_at(d, "x-wal", CV_TORN, (uint64_t)i, 1024 + 512 + 7);
        ASSERT_EQ(1, left_at(d, "x-wal", CV_TORN, (uint64_t)i, 1023));
        seen[0] += first == 2 && second == 2;
        seen[1] += first == 1 && second == 1;
        seen[2] += first == 1 && second == 2; /* torn, and not from the front */
        seen[3] += first > 2 || second > 2;   /* garbage */
    }
    ASSERT(seen[0] > 50 && seen[1] > 50 && seen[2] > 2 && seen[3] > 2);
    file_close(f);
    cv_disk_free(d);
    PASS();
}

TEST the_model_keeps_names_once_the_directory_is_synced(void)
{
    cv_disk *d = cv_mounted = cv_disk_new(1);
    sqlite3_file *db = file_open("x", SQLITE_OPEN_MAIN_DB), *wal;
    file_fill(db, 1, 512, 0);
    T_MUST(cv_sync(db, SQLITE_SYNC_NORMAL) == SQLITE_OK);
    ASSERT_EQm("its data is synced, its name is not", -1, left_at(d, "x", CV_DROP, 0, 0));
    wal = file_open("x-wal", SQLITE_OPEN_WAL);
    T_MUST(cv_sync(wal, SQLITE_SYNC_NORMAL) == SQLITE_OK);
    ASSERT_EQ(1, left_at(d, "x", CV_DROP, 0, 0));
    file_close(wal);
    T_MUST(cv_delete(NULL, "x", 0) == SQLITE_OK);
    ASSERT_EQm("deleted, but not for good", 1, left_at(d, "x", CV_DROP, 0, 0));
    ASSERT_EQ(-1, left_at(d, "x", CV_KEEP, 0, 0));
    T_MUST(cv_delete(NULL, "x-wal", 1) == SQLITE_OK);
    ASSERT_EQ(-1, left_at(d, "x", CV_DROP, 0, 0));
    file_close(db);
    cv_disk_free(d);
    PASS();
}

TEST after_the_cut_nothing_reaches_the_disk(void)
{
    cv_disk *d = cv_mounted = cv_disk_new(1);
    sqlite3_file *f = file_open("x-wal", SQLITE_OPEN_WAL);
    int found = 1;
    file_fill(f, 1, 512, 0);
    d->cut_at = d->points + 2; /* after the data reached the platter, before its name */
    ASSERT_EQ(SQLITE_IOERR_FSYNC, cv_sync(f, SQLITE_SYNC_NORMAL));
    ASSERT(d->dead);
    ASSERT_EQ(SQLITE_IOERR_WRITE, cv_write(f, "2", 1, 0));
    ASSERT_EQ(SQLITE_IOERR_FSYNC, cv_sync(f, SQLITE_SYNC_NORMAL));
    ASSERT_EQ(SQLITE_IOERR_DELETE, cv_delete(NULL, "x-wal", 1));
    ASSERT_EQ(SQLITE_IOERR_ACCESS, cv_access(NULL, "x-wal", 0, &found));
    ASSERT_EQ(1, left_at(d, "x-wal", CV_KEEP, 0, 0));
    ASSERT_EQ(-1, left_at(d, "x-wal", CV_DROP, 0, 0));
    file_close(f);
    cv_disk_free(d);
    PASS();
}

/* ---- the tests ------------------------------------------------------------------------------- */

TEST full_loses_nothing_that_was_acknowledged(void)
{
    fresh_totals();
    sweep(EB_DURABLE_FULL, arg_cuts * 6 / 10, arg_seed);
    ASSERT_EQ_FMT(0, w.failures, "%d");
    ASSERT_EQm("acknowledged at FULL and lost", 0, w.lost);
    ASSERTm("nothing that was there was sent again", arg_cuts < 300 || w.met > 0);
    PASS();
}

TEST normal_is_consistent_and_loses_only_the_newest(void)
{
    fresh_totals();
    sweep(EB_DURABLE_NORMAL, arg_cuts * 3 / 10, arg_seed);
    ASSERT_EQ_FMT(0, w.failures, "%d");
    ASSERTm("NORMAL never lost anything: the model is blind", w.lost > 0 || arg_cuts < 1000);
    PASS();
}

TEST off_is_seen_to_lose(void)
{
    fresh_totals();
    sweep(EB_DURABLE_OFF, arg_cuts - arg_cuts * 9 / 10, arg_seed);
    ASSERT_EQ_FMT(0, w.failures, "%d");
    ASSERTm("OFF never lost anything: the model is blind", w.lost > 0 || arg_cuts < 1000);
    ASSERTm("OFF never left an inconsistent file: the model is blind",
            w.unreadable > 0 || arg_cuts < 1000);
    PASS();
}

TEST an_error_and_then_a_kill_or_a_cut_lose_nothing(void)
{
    long i;
    fresh_totals();
    for (i = 0; i < arg_compound && w.failures < 100; i++) one_compound(arg_seed + (uint64_t)i);
    ledger_total("compound faults", i, w.failures, "seeds %llu to %llu",
                 (unsigned long long)arg_seed, (unsigned long long)arg_seed + (uint64_t)i - 1);
    ASSERT_EQ_FMT(0, w.failures, "%d");
    PASS();
}

TEST a_migration_is_cut_and_is_whole_or_not_there(void)
{
    cv_disk *old = old_version();
    ledger_book *saved = (ledger_book *)malloc(w.book.bytes);
    marks saved_marks = w.marks;
    int64_t cut, points = 0;
    int mix, left, seen[2] = {0, 0};
    T_MUST(saved);
    memcpy(saved, w.book.book, w.book.bytes);
    ASSERT_STR_EQ("", w.why);
    migrate(old, 0, CV_KEEP, &points);
    ASSERT_STR_EQ("", w.why);
    ASSERT(points > 10);
    for (cut = 1; cut <= points * CV_MIXES && !w.why[0]; cut++) {
        int64_t unused;
        mix = (int)(cut % CV_MIXES);
        memcpy(w.book.book, saved, w.book.bytes);
        w.marks = saved_marks;
        left = migrate(old, (cut - 1) / CV_MIXES + 1, mix, &unused);
        if (left > 0) seen[left == EBI_SCHEMA_LATEST]++;
        if (w.why[0])
            fprintf(stderr, "cut %d, outcome %d: %s\n", (int)((cut - 1) / CV_MIXES + 1), mix,
                    w.why);
    }
    ASSERT_STR_EQ("", w.why);
    ASSERTm("the cuts left but one version", seen[0] > 10 && seen[1] > 0);
    free(saved);
    cv_disk_free(old);
    PASS();
}

TEST a_failed_sync_that_lost_its_data_is_made_good(void)
{
    int n, later, runs = 0, reached = 0;
    for (n = 1; n <= 24; n++) {
        for (later = 1; later < 60; later += 6, runs++) {
            int restart = runs % 2, mix = runs % 3, pages = runs / 2 % 2 ? 6 : 1000;
            reached += lost_sync(n, restart, pages, later, mix);
            if (w.why[0]) {
                fprintf(stderr, "sync %d, %s, %d pages per checkpoint, cut %d later, outcome %d\n",
                        n, restart ? "killed" : "went on", pages, later, mix);
                FAILm(w.why);
            }
        }
    }
    ASSERT(reached > runs / 2);
    for (n = 1, reached = 0; n <= 12; n++) {
        reached += lost_checkpoint(n, n % 2 ? CV_DROP : CV_TORN);
        if (w.why[0]) {
            fprintf(stderr, "sync %d of a NORMAL bus\n", n);
            FAILm(w.why);
        }
    }
    ASSERT(reached > 6);
    PASS();
}

TEST a_failed_write_of_a_commit_means_what_it_says(void)
{
    int times;
    w.why[0] = 0;
    for (times = 1; times <= 4; times++) {
        int safe = failed_writes(1, times), padded = w.why[0] ? 0 : failed_writes(0, times);
        ASSERT_STR_EQ("", w.why);
        ASSERT(safe >= 4 && padded > safe); /* two writes per page, and padding */
    }
    PASS();
}

GREATEST_MAIN_DEFS();

static void prepare(void)
{
    cv_init();
    sqlite3_auto_extension((void (*)(void))on_open);
    ledger_open(&w.book, NULL, ROOM);
    w.book.vfs = "cut";
}

/* power --replay MODE SEED CUT; greatest has no say here. */
static int replay(char **argv)
{
    int mode = strcmp(argv[0], "full") == 0     ? EB_DURABLE_FULL
               : strcmp(argv[0], "normal") == 0 ? EB_DURABLE_NORMAL
                                                : EB_DURABLE_OFF;
    talkative = 1;
    one_cut(mode, strtoull(argv[1], NULL, 10), strtoll(argv[2], NULL, 10));
    printf("%s\n", w.failures ? "it fails" : "it passes");
    return w.failures > 0;
}

int main(int argc, char **argv)
{
    prepare();
    if (argc == 5 && strcmp(argv[1], "--replay") == 0) return replay(argv + 2);
    if (argc == 3 && strcmp(argv[1], "--compound") == 0) {
        talkative = 1;
        one_compound(strtoull(argv[2], NULL, 10));
        printf("%s\n", w.failures ? "it fails" : "it passes");
        return w.failures > 0;
    }
    if (argc > 1) arg_cuts = strtol(argv[1], NULL, 10);
    if (argc > 2) arg_seed = strtoull(argv[2], NULL, 10);
    if (argc > 3) arg_compound = strtol(argv[3], NULL, 10);
    {
        GREATEST_INIT(); /* the arguments are ours */
        RUN_TEST(the_model_keeps_what_was_synced_and_tears_the_rest);
        RUN_TEST(the_model_keeps_names_once_the_directory_is_synced);
        RUN_TEST(after_the_cut_nothing_reaches_the_disk);
        RUN_TEST(full_loses_nothing_that_was_acknowledged);
        RUN_TEST(normal_is_consistent_and_loses_only_the_newest);
        RUN_TEST(off_is_seen_to_lose);
        RUN_TEST(a_migration_is_cut_and_is_whole_or_not_there);
        RUN_TEST(a_failed_sync_that_lost_its_data_is_made_good);
        RUN_TEST(a_failed_write_of_a_commit_means_what_it_says);
        RUN_TEST(an_error_and_then_a_kill_or_a_cut_lose_nothing);
        GREATEST_MAIN_END();
    }
}
