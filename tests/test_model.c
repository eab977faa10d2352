/* test_model.c - the same random operations for a bus and for the model in model.h: whatever the bus
** does must be what the contract says.
**
** A seed makes a list of operations: publishing with keys, delays, idempotency keys and in batches;
** handlers that succeed, fail, reject, snooze, return late, publish, subscribe, unsubscribe, move and
** revive events, turn the clock, or end the process; operators with an SQL shell; a second process
** that publishes; dead-letter work through the bus's own store and from outside; a clock that steps
** both ways, also between two starts; a locked file, failed writes and syncs; clean restarts, kills,
** kills in the middle of a commit. One thread, eb_pump, a clock that only moves when told, and a disk
** in memory (fault/cutvfs.h). After every operation the whole file is compared with the model.
**
**     test_model                 the seeds of the suite, a hundred per test
**     test_model SEED COUNT      others: as many as you like
**     test_model SEED COUNT -k   goes on after a failure; one line for each
**     test_model SEED 1 -v       tells every step
**
** A seed that fails is made short: operations are left out and simplified as long as the same thing
** goes wrong. What is printed is that list, what happened, and what differed.
**
** test_model_small.c is the same program with room for four events in memory and two in a claim.
*/
#ifndef MODEL_SEEDS
#define MODEL_SEEDS 1200
#define MODEL_FIRST 1
#endif
#include "model.h"
#include "fault/cutvfs.h"
#ifndef _WIN32
#include <sys/mman.h>
#endif

enum { OPS_MAX = 80, BATCH_MAX = 60, PER_TEST = 100, TIMEOUT_MS = 40, BUSY_MS = 20 };
static const char PATH[] = "bus.db";

/* How the file says that a row must run alone. In version 1 of the schema it was d.suspect, which is
** how this program is tried on the header of 0.1.0. */
#ifndef SUSPECT
#define SUSPECT "ifnull(d.apart,0)=1"
#endif

/* ---- operations -------------------------------------------------------------------------------- */

enum {
    OP_NONE,
    OP_SEND,       /* a events; see op_send() */
    OP_PUMP,       /* a: budget, EB_NONE: none; b times */
    OP_WAIT,       /* both clocks move ms */
    OP_STEP,       /* the wall clock is set ms forward or back */
    OP_SUB,        /* a: pattern, b: policy, c: 1 = a time limit */
    OP_UNSUB,      /* a: which */
    OP_RETRY,      /* a: which, b: of what pool, c: 1 = through a store of its own */
    OP_RETRY_ALL,  /* a: pattern + 1, 0 = all; c */
    OP_PURGE,      /* a: days, b: 1 = by time of death; c */
    OP_MOVE,       /* a: which, b: of what pool, c */
    OP_OPERATOR,   /* a: which, b: of what pool; c: the new status */
    OP_RESTART,    /* a: which subscriptions stay, b: 1 = not started yet; ms: the clock meanwhile */
    OP_KILL,       /* the same without a shutdown */
    OP_START,
    OP_CUT,        /* the process ends at the a-th write from here on */
    OP_FAULT,      /* in the next operation the a-th call of kind b fails, c times */
    OP_LOCK,       /* during the next operation somebody else holds the write lock */
    OP_DRAIN,      /* eb_drain for ms */
    OP_WAIT_FOR,   /* a: which; eb_wait for ms */
    OP_LOOK,       /* lists and single events, all of them */
    OP_CHECKPOINT,
    OP_WAKE,
    OP_KINDS
};

typedef struct op {
    int kind, a, b, c;
    int64_t ms;
    /* OP_SEND */
    int type, key, idem;    /* type, key -1: each its own */
    int delayed;            /* 0 none; 1 all, 2 every second, 3 the last: delayed by ms; + 4: ms is
                               not a delay but where in time from now on */
    int second;             /* 1: by another bus that never starts */
    int who;                /* whose handlers do what script says: -1 all of them alike, -2 each its
                               own, else the who-th of the batch; the others succeed */
    uint64_t script;
    int scripted;           /* so many calls; what comes after succeeds */
} op;

/* What one handler call does: something beside, then a result. */
enum {
    DO_NOTHING, DO_POST, DO_SUB, DO_UNSUB, DO_UNSUB_SELF, DO_MOVE, DO_MOVE_SELF, DO_RETRY,
    DO_RETRY_ALL, DO_PURGE, DO_OPERATOR, DO_STEP, DO_WAIT, DO_KILL, DO_CUT, DO_SHUTDOWN, DO_PUMP,
    DO_KINDS
};
enum { SAY_OK, SAY_FAIL, SAY_REJECT, SAY_SNOOZE, SAY_CODE, SAY_DUPLICATE, SAY_LATE, SAY_KINDS };
typedef struct action {
    int what, a, b, c, say;
    int64_t ms, snooze_ms;
} action;

enum { SCRIPT_PLAIN = 1 << 8 }; /* in op.scripted: results only, nothing beside */

static int64_t pick_ms(luck *r, const int64_t *list, int count)
{
    return list[luck_below(r, count)];
}
static const int64_t steps_ms[] = {-3600000, -3000, -50, -1, 1, 50, 3000, 3600000};
static const int64_t waits_ms[] = {1, 3, 7, 30};
static const int64_t snoozes_ms[] = {0, 5, 50, 500, 3000};
#define PICK_MS(r, list) pick_ms(r, list, (int)(sizeof(list) / sizeof *(list)))

/* What call number `call` (from 0) of an event with this script does. */
static action script_action(uint64_t script, int scripted, int call)
{
    static const int weights[DO_KINDS] = {0, 22, 4, 6, 5, 9, 3, 6, 3, 3, 8, 5, 5, 3, 2, 1, 1};
    luck r = luck_seeded(script, (uint64_t)call);
    action x;
    int n, total = 0;
    memset(&x, 0, sizeof x);
    if (call >= (scripted & 255)) return x;
    if (!(scripted & SCRIPT_PLAIN) && luck_below(&r, 100) < 30) {
        for (n = 0; n < DO_KINDS; n++) total += weights[n];
        n = luck_below(&r, total);
        while (n >= weights[x.what]) n -= weights[x.what++];
    }
    x.a = luck_below(&r, 1000);
    x.b = luck_below(&r, 1000);
    x.c = luck_below(&r, 1000);
    x.ms = x.what == DO_STEP ? PICK_MS(&r, steps_ms) : PICK_MS(&r, waits_ms);
    x.snooze_ms = PICK_MS(&r, snoozes_ms);
    n = luck_below(&r, 100);
    x.say = n < 42 ? SAY_OK : n < 68 ? SAY_FAIL : n < 76 ? SAY_REJECT : n < 90 ? SAY_SNOOZE
            : n < 94 ? SAY_CODE : n < 96 ? SAY_DUPLICATE : SAY_LATE;
    return x;
}

static const char *const statuses[] = {"pending", "processing", "dlq", "done"};

static void action_text(const action *x, char *out, size_t cap)
{
    static const char *const whats[] = {
        "", "post some, ", "subscribe, ", "unsubscribe, ", "unsubscribe itself, ", "eb_dlq_move, ",
        "eb_dlq_move of itself, ", "eb_dlq_retry, ", "eb_dlq_retry_all, ", "purge, ",
        "operator's UPDATE, ", "step, ", "wait, ", "KILL, ", "cut, ", "eb_shutdown, ", "eb_pump, "};
    static const char *const says[] = {"ok", "fail", "reject", "snooze", "code", "duplicate", "late"};
    char more[40] = "";
    if (x->what == DO_STEP || x->what == DO_WAIT)
        snprintf(more, sizeof more, "(%+lld) ", (long long)x->ms);
    snprintf(out, cap, "%s%s%s", whats[x->what], more, says[x->say]);
    if (x->say == SAY_SNOOZE) {
        size_t n = strlen(out);
        snprintf(out + n, cap - n, " %lld", (long long)x->snooze_ms);
    }
}

static void op_text(const op *o, char *out, size_t cap)
{
    static const char *const kinds[OP_KINDS] = {
        "nothing", "send", "pump", "wait", "step the clock", "subscribe", "unsubscribe",
        "eb_dlq_retry", "eb_dlq_retry_all", "eb_dlq_purge", "eb_dlq_move", "operator", "restart",
        "KILL", "eb_start", "cut", "fault", "lock", "eb_drain", "eb_wait", "look", "eb_checkpoint",
        "eb_wake"};
    static const char *const pools[] = {"likely", "any", "claimed"};
    char text[120];
    size_t n;
    int i;
    snprintf(out, cap, "%s ", kinds[o->kind]);
    n = strlen(out);
#define ADD(...) (snprintf(out + n, cap - n, __VA_ARGS__), n += strlen(out + n))
    switch (o->kind) {
    case OP_SEND:
        ADD("%d x %s", o->a, o->type < 0 ? "mixed types" : m_types[o->type]);
        if (o->key < 0) ADD(" mixed keys");
        else if (o->key) ADD(" key %s", m_keys[o->key]);
        if (o->idem) ADD(" idempotency key %d", o->idem);
        if (o->delayed)
            ADD(" %s%s %+lld", (o->delayed & 3) == 2 ? "every second " : (o->delayed & 3) == 3
                               ? "the last " : "", o->delayed & 4 ? "deliver at" : "delayed",
                (long long)o->ms);
        if (o->second) ADD(" by a second bus");
        if (!o->scripted) break;
        if (o->who == -2) ADD("; handlers: each its own");
        else if (o->who == -1) ADD("; handlers:");
        else ADD("; handlers of number %d:", o->who % o->a);
        for (i = 0; i < (o->scripted & 255) && o->who != -2; i++) {
            action x = script_action(o->script, o->scripted, i);
            action_text(&x, text, sizeof text);
            ADD("%s %s", i ? "; then" : "", text);
        }
        break;
    case OP_PUMP:
        if (o->a == EB_NONE) ADD("until nothing is due");
        else ADD("budget %d, %d times", o->a, o->b);
        break;
    case OP_WAIT: case OP_STEP: case OP_DRAIN: ADD("%+lld", (long long)o->ms); break;
    case OP_SUB: ADD("%s policy %d%s", m_patterns[o->a % M_PATTERNS], o->b % M_POLICIES,
                     o->c ? " with a time limit" : ""); break;
    case OP_UNSUB: ADD("%d", o->a); break;
    case OP_WAIT_FOR: ADD("%d for %lld", o->a, (long long)o->ms); break;
    case OP_RETRY: case OP_MOVE:
        ADD("%d of %s%s", o->a, pools[o->b % 3], o->c ? " through another store" : ""); break;
    case OP_RETRY_ALL: ADD("%s%s", o->a ? m_patterns[(o->a - 1) % M_PATTERNS] : "all",
                           o->c ? " through another store" : ""); break;
    case OP_PURGE: ADD("%s%d days%s", o->b ? "dead " : "", o->a,
                       o->c ? " through another store" : ""); break;
    case OP_OPERATOR: ADD("%d of %s to %s", o->a, pools[o->b % 3], statuses[o->c & 3]); break;
    case OP_RESTART: case OP_KILL:
        ADD("keeping subscriptions %x, clock %+lld%s", (unsigned)o->a, (long long)o->ms,
            o->b ? ", without eb_start" : ""); break;
    case OP_CUT: ADD("at write %d", o->a); break;
    case OP_FAULT: ADD("at %s %d, %d times", o->b ? "sync" : "write", o->a, o->c); break;
    default: break;
    }
#undef ADD
}

/* ---- a list of operations from a seed ----------------------------------------------------------- */

typedef struct plan {
    uint64_t seed;
    int on_unmatched, durability, max_pending;
    int count;
    op ops[OPS_MAX];
} plan;

/* What a seed is fond of, so that each gets deep somewhere. */
typedef struct taste { int keys, bursts, scripts, delays, crashes, faults, operators, unmatched; } taste;

static void plan_send(op *o, luck *r, const taste *t)
{
    static const int64_t delays[] = {5, 50, 50, 1000, 100000};
    static const int64_t places[] = {-3000, -1, 50, 1000};
    int n = luck_below(r, 100);
    o->a = n < 55 - t->bursts ? 1 : n < 90 - t->bursts ? 2 + luck_below(r, 5)
                                                       : 7 + luck_below(r, BATCH_MAX - 6);
    o->type = luck_one_in(r, 3) ? -1 : luck_below(r, M_TYPES);
    if (luck_below(r, 100) < t->keys) o->key = luck_one_in(r, 3) ? -1 : 1 + luck_below(r, M_KEYS - 1);
    if (luck_one_in(r, 8)) o->idem = 1 + luck_below(r, 5);
    if (luck_below(r, 100) < t->delays) {
        o->delayed = 1 + luck_below(r, 3);
        o->ms = PICK_MS(r, delays);
        if (luck_one_in(r, 4)) {
            o->delayed += 4;
            o->ms = PICK_MS(r, places);
        }
    }
    o->second = luck_one_in(r, 20);
    if (luck_below(r, 100) >= t->scripts) return;
    o->script = luck_next(r);
    o->scripted = 1 + luck_below(r, 4);
    if (luck_one_in(r, 3)) o->scripted |= SCRIPT_PLAIN;
    o->who = luck_below(r, 5) < 3 ? -2 : luck_one_in(r, 2) ? -1 : luck_below(r, o->a);
}

static void plan_op(op *o, luck *r, const taste *t)
{
    static const int64_t waits[] = {1, 5, 50, 100, 1000, 3000, 30000, 3600000, 2 * (int64_t)M_DAY};
    static const int64_t drains[] = {0, 50, 1000, 20000};
    static const int64_t meanwhile[] = {0, 0, 0, -3600000, -1000, 1000, 3600000};
    static const unsigned char weights[OP_KINDS] = {0, 24, 26, 9, 4, 5, 4, 4, 2, 2, 5, 4, 3, 3, 0,
                                                    1, 1, 2, 2, 2, 1, 1, 1};
    int total = 0, n, kind = 0;
    memset(o, 0, sizeof *o);
    for (n = 0; n < OP_KINDS; n++) total += weights[n];
    n = luck_below(r, total);
    while (n >= weights[kind]) n -= weights[kind++];
    if ((kind == OP_KILL || kind == OP_CUT) && luck_below(r, 100) >= t->crashes) kind = OP_PUMP;
    if ((kind == OP_FAULT || kind == OP_LOCK) && luck_below(r, 100) >= t->faults) kind = OP_PUMP;
    if (kind == OP_OPERATOR && luck_below(r, 100) >= t->operators) kind = OP_SEND;
    if (kind == OP_UNSUB && luck_below(r, 100) >= t->unmatched) kind = OP_SUB;
    o->kind = kind;
    o->a = luck_below(r, 1000);
    o->b = luck_below(r, 5);
    o->c = luck_one_in(r, 4);
    switch (kind) {
    case OP_SEND: o->b = o->c = 0; plan_send(o, r, t); break;
    case OP_PUMP:
        n = luck_below(r, 10);
        o->a = n < 4 ? EB_NONE : n < 8 ? 0 : n == 8 ? 5 : 50;
        o->b = o->a == EB_NONE ? 1 : 1 + luck_below(r, 8);
        break;
    case OP_WAIT: o->ms = PICK_MS(r, waits); break;
    case OP_STEP: o->ms = PICK_MS(r, steps_ms); break;
    case OP_SUB: o->a = luck_one_in(r, 3) ? luck_below(r, 2) : luck_below(r, M_PATTERNS);
                 o->b = luck_below(r, M_POLICIES); break;
    case OP_RETRY: case OP_MOVE: o->b = o->b == 0 ? 1 : o->b == 1 ? 2 : 0; break;
    case OP_RETRY_ALL: o->a = luck_one_in(r, 2) ? 0 : 1 + luck_below(r, M_PATTERNS); break;
    case OP_PURGE: o->a = luck_below(r, 2); o->b = luck_below(r, 2); break;
    case OP_OPERATOR: o->b = o->b % 3; n = luck_below(r, 10);
                      o->c = n < 3 ? 0 : n < 6 ? 1 : n < 9 ? 2 : 3; break;
    case OP_RESTART: case OP_KILL:
        o->a = luck_one_in(r, 2) ? 255 : luck_below(r, 256);
        o->b = luck_one_in(r, 8);
        o->ms = PICK_MS(r, meanwhile);
        break;
    case OP_CUT: o->a = 1 + luck_below(r, luck_one_in(r, 2) ? 12 : 60); break;
    case OP_FAULT: o->a = 1 + luck_below(r, 6); o->b = luck_one_in(r, 3);
                   o->c = 1 + luck_below(r, 3); break;
    case OP_DRAIN: case OP_WAIT_FOR: o->ms = PICK_MS(r, drains); break;
    default: break;
    }
}

static void plan_make(plan *p, uint64_t seed)
{
    luck r = luck_seeded(seed, 7);
    taste t;
    int i, subs;
    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->on_unmatched = luck_below(&r, 3);
    p->durability = 1 + luck_below(&r, 3);
    if (luck_one_in(&r, 12)) p->max_pending = 20 + luck_below(&r, 60);
    t.keys = luck_below(&r, 3) * 45;
    t.bursts = luck_below(&r, 3) * 10;
    t.scripts = 20 + luck_below(&r, 75);
    t.delays = luck_below(&r, 3) * 20;
    t.crashes = luck_below(&r, 3) * 40;
    t.faults = luck_one_in(&r, 2) ? 0 : 60;
    t.operators = luck_one_in(&r, 2) ? 0 : 90;
    t.unmatched = 30 + luck_below(&r, 70);
    subs = 1 + luck_below(&r, 3);
    p->count = 20 + luck_below(&r, OPS_MAX - 20);
    for (i = 0; i < p->count; i++) plan_op(&p->ops[i], &r, &t);
    for (i = 0; i < subs && i < p->count; i++) {
        memset(&p->ops[i], 0, sizeof p->ops[i]);
        p->ops[i].kind = OP_SUB;
        p->ops[i].a = i == 0 ? luck_below(&r, 2) : luck_below(&r, M_PATTERNS);
        p->ops[i].b = luck_below(&r, M_POLICIES);
    }
}

/* ---- the world: a disk, a bus, and what goes on --------------------------------------------------- */

/* What kind of thing went wrong; a seed is made short as long as it stays the same. */
enum {
    BAD_NONE, BAD_EARLY, BAD_ORDER, BAD_AGAIN, BAD_GIVEN_UP, BAD_HANDLER, BAD_DELIVERY, BAD_STRANDED,
    BAD_ROW, BAD_RESULT, BAD_NEXT, BAD_STATS, BAD_LIST, BAD_BUDGET, BAD_RECOVERY, BAD_ENDLESS,
    BAD_KINDS
};
static const char *const bad_names[BAD_KINDS] = {
    "", "started early", "order of a key", "ran again", "given up but started", "wrong handler",
    "wrong delivery", "stranded", "wrong row", "wrong result", "wrong next_ms", "wrong figures",
    "wrong list", "wrong budget", "wrong recovery", "endless"};

static struct {
    const plan *p;
    cv_disk *disk, *fresh; /* fresh: with the tables in it, copied for every run */
    eb_bus *bus;
    sqlite3 *shell;
    sqlite3_stmt *live, *dead, *fresh_rows, *finished, *counts, *claims;
    int state; /* of the bus */
    int inside;   /* a handler runs */
    int stopping; /* eb_shutdown was called inside one */
    int locked;   /* the shell holds the write lock */
    int fault;    /* something may fail in this operation */
    int loose;    /* it may have: results and rows may be late */
    int flushed;  /* eb_pump has committed all that was in memory */
    int64_t loose_until; /* monotonic: until then the bus may be waiting before it tries again */
    int calls;    /* of handlers, in this operation */
    int kill_a, kill_b; /* how the life after the next kill begins */
    int64_t kill_ms;
    /* the attempt under way */
    m_event *event;
    m_sub *sub;
    int failed;   /* how often the event had failed when it began */
    int revoked;  /* its outcome counts no more */
    int more;     /* other handlers of this attempt are to come */
    /* the pump under way */
    int pumping, ran;
    int64_t deadline_ms;
    m_row rows[M_EVENTS];
    int bad;
    char why[2000];
} w;

enum { BUS_CLOSED, BUS_OPEN, BUS_STARTED, BUS_STOPPED };

static int talkative;
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

static void bad(int kind, const char *fmt, ...) EB_PRINTF(2, 3);
static void bad(int kind, const char *fmt, ...)
{
    va_list args;
    if (w.bad || w.disk->dead) return;
    w.bad = kind;
    va_start(args, fmt);
    vsnprintf(w.why, sizeof w.why, fmt, args);
    va_end(args);
    say("!! %s: %s", bad_names[kind], w.why);
}

static int dead(void) { return w.disk->dead; }
static int over(void) { return w.bad || w.disk->dead; }

static void quiet(const eb_log_entry *e, void *user)
{
    (void)user;
    if (talkative > 1) say("      log: %s%s%s", e->message, e->error ? ": " : "", e->error ? e->error : "");
}

static eb_options options(void)
{
    eb_options o;
    memset(&o, 0, sizeof o);
    o.path = PATH;
    o.vfs = "cut";
    o.workers = EB_NONE;
    o.durability = w.p->durability;
    o.on_unmatched = w.p->on_unmatched;
    o.max_pending = w.p->max_pending;
    o.busy_timeout_ms = BUSY_MS;
    o.logger.func = quiet;
    o.clock.now_ms = t_now;
    o.clock.mono_ms = t_mono;
    o.clock.sleep_ms = t_sleep;
    o.clock.user = &model.time;
    return o;
}

/* SQLite's own clock, for the times that triggers write. */
static int vfs_time(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    (void)vfs;
    *out = model.time.now_ms + INT64_C(210866760000000); /* since noon of 4714 BC */
    return SQLITE_OK;
}
static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

/* ---- the shell: a plain connection that sees what an operator sees --------------------------------- */

static sqlite3_stmt *shell_statement(const char *sql)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(w.shell, sql, -1, &s, NULL) == SQLITE_OK) return s;
    fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(w.shell));
    abort();
}

static void shell_open(void)
{
    T_MUST(sqlite3_open_v2(PATH, &w.shell, SQLITE_OPEN_READWRITE, "cut") == SQLITE_OK);
    w.live = shell_statement(
        "SELECT d.seq,d.status,d.attempts,d.failed," SUSPECT ",d.due_ms,d.token,d.errors,"
        "d.max_attempts FROM deliveries AS d");
    w.dead = shell_statement("SELECT seq,failed,errors,died_at,subscription FROM dead_letters");
    w.fresh_rows = shell_statement(
        "SELECT seq,payload,id,type,ordering_key,idempotency_key,created_at FROM event_log"
        " WHERE seq>?1 ORDER BY seq");
    w.finished = shell_statement("SELECT attempts,errors FROM finished WHERE seq=?1");
    w.counts = shell_statement(
        "SELECT (SELECT count(*) FROM event_log),(SELECT count(*) FROM finished),"
        "(SELECT ifnull(max(seq),0) FROM event_log)");
    w.claims = shell_statement("SELECT count(*) FROM deliveries WHERE token IS NOT NULL");
}

static int64_t shell_floor(void)
{
    sqlite3_stmt *s = shell_statement("SELECT value FROM meta WHERE key='seq_floor'");
    int64_t floor = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return floor;
}

static void shell_close(void)
{
    sqlite3_stmt *s, *next;
    if (!w.shell) return;
    for (s = sqlite3_next_stmt(w.shell, NULL); s; s = next) {
        next = sqlite3_next_stmt(w.shell, s);
        sqlite3_finalize(s);
    }
    T_MUST(sqlite3_close(w.shell) == SQLITE_OK);
    w.shell = NULL;
}

static m_event *event_of_seq(int64_t seq)
{
    int lo = 0, hi = model.count; /* seq grows with n, but is not known for the last ones */
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (model.events[mid].seq == 0 || model.events[mid].seq > seq) hi = mid;
        else if (model.events[mid].seq == seq) return &model.events[mid];
        else lo = mid + 1;
    }
    for (lo = 0; lo < model.count; lo++)
        if (model.events[lo].seq == seq) return &model.events[lo];
    return NULL;
}

static int event_number(const char *payload)
{
    int n = -1;
    if (!payload || sscanf(payload, "{\"n\":%d}", &n) != 1 || n < 0 || n >= model.count) return -1;
    return n;
}

static void put_text(char *out, size_t cap, const unsigned char *text)
{
    snprintf(out, cap, "%s", text ? (const char *)text : "");
}
static int same_text(const unsigned char *is, const char *wanted)
{
    return is && wanted ? strcmp((const char *)is, wanted) == 0 : !is && !wanted;
}

static const char *idem_text(int idem, char *buf, size_t cap)
{
    if (!idem) return NULL;
    snprintf(buf, cap, "once-%d", idem);
    return buf;
}

/* Rows of the log that were not seen before: whose they are. */
static void read_fresh_rows(void)
{
    int64_t last = model.last_seq, from = 0;
    int i;
    for (i = 0; i < model.count; i++) { /* those whose seq is not known yet, and what is behind */
        const m_event *e = &model.events[i];
        if (e->seq > from) from = e->seq;
        if (e->seq == 0 && (e->now.place != M_NOWHERE || e->past_count || e->fuzzy)) break;
    }
    sqlite3_bind_int64(w.fresh_rows, 1, from);
    while (sqlite3_step(w.fresh_rows) == SQLITE_ROW && !w.bad) {
        int64_t seq = sqlite3_column_int64(w.fresh_rows, 0), created;
        int n = event_number((const char *)sqlite3_column_text(w.fresh_rows, 1));
        char idem[20];
        m_event *e = n < 0 ? NULL : &model.events[n];
        if (!e) {
            bad(BAD_ROW, "event_log has a row %lld that nobody published", (long long)seq);
            break;
        }
        if (e->seq && e->seq != seq) bad(BAD_ROW, "event %d is stored twice", n);
        if (!e->seq && seq <= last && e->now.place != M_GONE)
            bad(BAD_ROW, "event %d has seq %lld, but there was %lld already", n, (long long)seq,
                (long long)last);
        e->seq = seq;
        snprintf(e->id.str, sizeof e->id.str, "%s",
                 (const char *)sqlite3_column_text(w.fresh_rows, 2));
        created = ebi_time_parse((const char *)sqlite3_column_text(w.fresh_rows, 6));
        if (!same_text(sqlite3_column_text(w.fresh_rows, 3), m_types[e->type]) ||
            !same_text(sqlite3_column_text(w.fresh_rows, 4), m_keys[e->key]) ||
            !same_text(sqlite3_column_text(w.fresh_rows, 5),
                       idem_text(e->idem, idem, sizeof idem)) ||
            created < e->created_lo || created > e->created_hi)
            bad(BAD_ROW, "event %d: type, key or time in event_log are wrong", n);
        e->created_lo = e->created_hi = created;
    }
    sqlite3_reset(w.fresh_rows);
}

static void read_live_rows(void)
{
    while (sqlite3_step(w.live) == SQLITE_ROW) {
        int64_t seq = sqlite3_column_int64(w.live, 0);
        m_event *e = event_of_seq(seq);
        const char *status = (const char *)sqlite3_column_text(w.live, 1);
        m_row *r;
        if (!e) {
            bad(BAD_ROW, "deliveries has a row %lld that nobody published", (long long)seq);
            break;
        }
        r = &w.rows[e->n];
        r->place = M_LIVE;
        r->seq = seq;
        r->pending = status && strcmp(status, "pending") == 0;
        if (!r->pending && (!status || strcmp(status, "processing") != 0))
            bad(BAD_ROW, "event %d: status %s in deliveries", e->n, status ? status : "NULL");
        r->attempts = sqlite3_column_int(w.live, 2);
        r->failed = sqlite3_column_int(w.live, 3);
        r->suspect = sqlite3_column_int(w.live, 4);
        r->due_ms = sqlite3_column_type(w.live, 5) == SQLITE_NULL ? -1
                                                                  : sqlite3_column_int64(w.live, 5);
        r->token = sqlite3_column_type(w.live, 6) != SQLITE_NULL;
        put_text(r->errors, sizeof r->errors, sqlite3_column_text(w.live, 7));
        r->max_attempts = sqlite3_column_int(w.live, 8);
    }
    sqlite3_reset(w.live);
    while (sqlite3_step(w.dead) == SQLITE_ROW) {
        int64_t seq = sqlite3_column_int64(w.dead, 0);
        m_event *e = event_of_seq(seq);
        m_row *r;
        if (!e || w.rows[e->n].place != M_NOWHERE) {
            bad(BAD_ROW, "dead_letters has a row %lld that is %s", (long long)seq,
                e ? "live as well" : "nobody's");
            break;
        }
        r = &w.rows[e->n];
        r->place = M_DEAD;
        r->seq = seq;
        r->failed = sqlite3_column_int(w.dead, 1);
        put_text(r->errors, sizeof r->errors, sqlite3_column_text(w.dead, 2));
        r->died_ms = ebi_time_parse((const char *)sqlite3_column_text(w.dead, 3));
    }
    sqlite3_reset(w.dead);
}

/* Whether the event ended well. */
static void read_finished(const m_event *e)
{
    m_row *r = &w.rows[e->n];
    if (!e->seq || r->place != M_NOWHERE) return;
    sqlite3_bind_int64(w.finished, 1, e->seq);
    if (sqlite3_step(w.finished) == SQLITE_ROW) {
        r->place = M_DONE;
        r->seq = e->seq;
        r->failed = sqlite3_column_int(w.finished, 0);
        if (r->failed > 0) r->failed--;
        put_text(r->errors, sizeof r->errors, sqlite3_column_text(w.finished, 1));
    }
    sqlite3_reset(w.finished);
}

/* ---- comparing ------------------------------------------------------------------------------------- */

enum { EXACT, LOOSE, CRASHED };

static const char *differs(const m_event *e, const m_state *s)
{
    return m_row_differs(e, s, &w.rows[e->n]);
}

/* One event: finds the state that its row shows. */
static void settle_one(m_event *e, int how)
{
    const char *why = differs(e, &e->now);
    const m_row *r = &w.rows[e->n];
    char is[1200], should[1200];
    int i;
    if (how == EXACT && e->unsettled && !w.flushed) how = LOOSE; /* only a pump must commit it */
    if (how == LOOSE && r->token && e->fuzzy && e->past_count) { /* its outcome is still to come */
        e->unsettled = e->claimed = 1;
        return;
    }
    if (why && (e->fuzzy || how == CRASHED || (how == LOOSE && e->past_count))) {
        for (i = e->past_count - 1; i >= 0 && differs(e, &e->past[i]); i--) {}
        if (i >= 0 && how == LOOSE && !e->fuzzy) { /* its outcome waits for a commit */
            e->unsettled = 1;
            e->claimed = r->token;
            return;
        }
        if (i >= 0) {
            e->now = e->past[i];
            why = NULL;
        }
    }
    if (why && e->endable) { /* nobody matches it, and the policy has ended it */
        for (i = e->past_count; i >= 0 && why; i--) {
            m_state ended = i == e->past_count ? e->now : e->past[i];
            if (ended.place != M_LIVE || !ended.fresh) continue;
            if (i < e->past_count && !e->fuzzy && how != CRASHED) continue;
            m_end_unmatched(&ended);
            if (differs(e, &ended)) continue;
            if (ended.place == M_DONE) model.unmatched++;
            else model.failed_attempts++, model.died++;
            e->now = ended;
            why = NULL;
        }
    }
    if (!why && how != CRASHED && !e->fuzzy && w.loose_until == 0 && !e->unsettled)
        why = m_suspect_differs(&e->now, r);
    if (why) {
        m_describe(&e->now, should, sizeof should);
        m_describe_row(r, is, sizeof is);
        bad(BAD_ROW, "event %d (%s%s%s): %s: the file says %s; it should be %s", e->n,
            m_types[e->type], e->key ? " key " : "", e->key ? m_keys[e->key] : "", why, is, should);
        return;
    }
    m_learn(e, r);
    if (e->now.place == M_NOWHERE) e->seq = 0;
    e->fuzzy = e->dirty = e->unsettled = e->ghost = 0;
}

/* Reads the whole file and compares it with the model. all = 0: of what has ended before this
** operation only the number is looked at. */
static void settle(int how, int all)
{
    int64_t logged, finished, done = 0, stored = 0;
    int i;
    if (w.bad) return;
    sqlite3_exec(w.shell, "BEGIN", NULL, NULL, NULL); /* one snapshot */
    for (i = 0; i < model.count; i++) {
        memset(&w.rows[i], 0, sizeof w.rows[i]);
        w.rows[i].due_ms = -1;
    }
    read_fresh_rows();
    read_live_rows();
    for (i = 0; i < model.count && !w.bad; i++) {
        m_event *e = &model.events[i];
        if (e->now.place == M_DONE && !all && !e->past_count && !e->fuzzy)
            w.rows[i].place = M_DONE, w.rows[i].failed = -1;
        else read_finished(e);
    }
    T_MUST(sqlite3_step(w.counts) == SQLITE_ROW);
    logged = sqlite3_column_int64(w.counts, 0);
    finished = sqlite3_column_int64(w.counts, 1);
    if (sqlite3_column_int64(w.counts, 2) > model.last_seq)
        model.last_seq = sqlite3_column_int64(w.counts, 2);
    sqlite3_reset(w.counts);
    if (!w.locked) sqlite3_exec(w.shell, "COMMIT", NULL, NULL, NULL);
    for (i = 0; i < model.count && !w.bad; i++) {
        m_event *e = &model.events[i];
        if (w.rows[i].failed != -1) settle_one(e, how);
        done += w.rows[i].place == M_DONE;
        stored += w.rows[i].place == M_LIVE || w.rows[i].place == M_DONE ||
                  w.rows[i].place == M_DEAD;
    }
    if (!w.bad && (finished != done || logged != stored))
        bad(BAD_ROW, "%lld rows in event_log, %lld in finished; they should be %lld and %lld",
            (long long)logged, (long long)finished, (long long)stored, (long long)done);
}

/* Forgets what holds for one operation. */
static void next_operation(void)
{
    int i;
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        e->may = e->may && e->claimed;
        e->could = e->could && e->claimed;
        e->ever = e->claimed;
        if (e->foreign && e->now.place == M_DEAD) e->revoked = 1; /* by now the bus knows */
        e->endable = e->foreign = 0;
    }
    model.lo_ms = model.hi_ms = m_now();
    w.calls = 0;
}

/* ---- judging results --------------------------------------------------------------------------------- */

enum { NO, YES, MAYBE };

/* What a call that should have this result has done: nothing, what it says, or who knows. */
static int judge(const char *what, eb_result rc, eb_result wanted)
{
    char msg[300];
    if (talkative || rc != wanted) eb_errmsg(msg, sizeof msg);
    say("      %s: %s%s%s", what, eb_strerror(rc), rc < 0 ? ": " : "", rc < 0 ? msg : "");
    if (dead()) return MAYBE;
    if (w.locked && wanted >= 0) wanted = EB_ERR_BUSY;
    if (rc == wanted) return rc >= 0 ? YES : NO;
    if (w.locked && rc == EB_ERR_BUSY) return NO;
    if (w.fault && rc == EB_ERR_UNKNOWN) return MAYBE; /* "the event may or may not be stored" */
    if (w.fault && rc < 0) return NO;
    bad(BAD_RESULT, "%s: %s (%s), it should be: %s", what, eb_strerror(rc), rc < 0 ? msg : "",
        eb_strerror(wanted));
    return MAYBE;
}

/* An event has been changed by a call: what is known of it now. */
static void changed(m_event *e, int did)
{
    if (did == MAYBE) e->fuzzy = 1;
    else m_committed(e);
    e->plain = 0;
}

/* ---- publishing ---------------------------------------------------------------------------------------- */

static m_event *known_key(int idem)
{
    int i;
    for (i = 0; idem && i < model.count; i++)
        if (model.events[i].idem == idem && model.events[i].now.place != M_GONE &&
            model.events[i].now.place != M_NOWHERE)
            return &model.events[i];
    return NULL;
}

/* Whether it is unclear if a key is known. */
static int key_unclear(int idem)
{
    int i;
    for (i = 0; i < model.count; i++)
        if (model.events[i].idem == idem &&
            (model.events[i].fuzzy || model.events[i].unsettled || model.events[i].dirty || model.events[i].endable))
            return 1;
    return 0;
}

static void open_second(eb_bus **bus)
{
    eb_options o = options();
    eb_result rc = eb_open(bus, &o);
    if (rc != EB_OK && !dead()) judge("eb_open of a second bus", rc, EB_OK);
}

static int live_count(void)
{
    int i, n = 0;
    for (i = 0; i < model.count; i++) n += model.events[i].now.place == M_LIVE;
    return n;
}

static void do_send(const op *o)
{
    static eb_message msgs[BATCH_MAX];
    static eb_id ids[BATCH_MAX];
    static char payloads[BATCH_MAX][24];
    static char idems[BATCH_MAX][20];
    m_event *made[BATCH_MAX];
    int i, k, count = o->a < 1 ? 1 : o->a > BATCH_MAX ? BATCH_MAX : o->a, first = model.count;
    int fresh = 0, duplicates = 0, did, live = live_count();
    int64_t from = m_now();
    eb_bus *bus = w.bus, *second = NULL;
    eb_result rc, wanted;
    luck r = luck_seeded(o->script + (uint64_t)o->a, 99);
    if (count > M_EVENTS - model.count) count = M_EVENTS - model.count;
    if (count < 1) return;
    memset(msgs, 0, sizeof msgs);
    memset(ids, 0, sizeof ids);
    if (o->second && !w.inside && !w.locked && !w.fault) open_second(&second);
    if (over()) count = 0;
    if (second) bus = second;
    for (i = 0; i < count; i++) {
        int type = o->type < 0 ? luck_below(&r, M_TYPES) : o->type;
        int key = o->key < 0 ? luck_below(&r, M_KEYS) : o->key;
        int idem = o->idem && (i == 0 || i == count - 1) ? o->idem : 0;
        int delayed = (o->delayed & 3) == 1 || ((o->delayed & 3) == 2 && i % 2) ||
                      ((o->delayed & 3) == 3 && i == count - 1);
        int64_t due = 0;
        eb_message *msg = &msgs[i];
        m_event *e;
        if (idem && key_unclear(idem)) idem = 0;
        if (idem && (e = known_key(idem)) != NULL) {
            made[i] = e; /* known, or the first of this very batch */
            duplicates++;
        } else {
            e = made[i] = &model.events[model.count];
            free(e->past);
            memset(e, 0, sizeof *e);
            e->n = model.count++;
            e->type = type;
            e->key = key;
            e->idem = idem;
            e->script = o->who == -2 ? o->script + (uint64_t)i * 1000003u : o->script;
            e->scripted = o->who < 0 || o->who % count == i ? o->scripted : 0;
            fresh++;
        }
        snprintf(payloads[i], sizeof payloads[i], "{\"n\":%d}", made[i] == e ? e->n : 0);
        msg->type = m_types[type];
        msg->payload = payloads[i];
        msg->ordering_key = m_keys[key];
        msg->idempotency_key = idem_text(idem, idems[i], sizeof idems[i]);
        if (delayed && o->delayed & 4) due = msg->deliver_at_ms = m_now() + o->ms;
        else if (delayed) due = m_now() + (msg->delay_ms = o->ms);
        if (e->n >= first && e->now.place == M_NOWHERE) {
            m_born(e, due, delayed);
            if (second) e->now.fresh = 0;
            /* the policy may end it in the very commit that stores it */
            e->endable = e->now.fresh && m_due(e) && !model.matched[type] &&
                         model.on_unmatched != EB_UNMATCHED_KEEP;
        }
    }
    /* "max_pending: cap on live events"; it may be exceeded by 1,000 */
    wanted = w.state == BUS_STOPPED && !second ? EB_ERR_SHUTDOWN
             : duplicates                      ? EB_DUPLICATE
                                               : EB_OK;
    rc = count == 0 ? EB_ERR_IO
         : count == 1 && !msgs[0].ordering_key && !msgs[0].idempotency_key && !msgs[0].delay_ms &&
                 !msgs[0].deliver_at_ms
             ? eb_post(bus, msgs[0].type, msgs[0].payload, &ids[0])
             : eb_send(bus, msgs, (size_t)count, ids);
    m_clock_seen();
    if (rc == EB_ERR_FULL && w.p->max_pending && live + fresh > w.p->max_pending && fresh) {
        say("      eb_send: full");
        did = NO;
    } else {
        did = judge("eb_send", rc, wanted);
    }
    if (second) eb_destroy(second);
    if (second && w.pumping) T_MUST(0);
    for (i = first; i < model.count; i++) {
        m_event *e = &model.events[i];
        e->created_lo = from < m_now() ? from : m_now();
        e->created_hi = from < m_now() ? m_now() : from;
        if (e->now.wait == M_DELAYED && m_now() != from) e->fuzzy = 0;
        if (did == MAYBE) { /* it may not be there */
            m_state s = e->now;
            e->now.place = M_NOWHERE;
            *m_change(e) = s;
            e->fuzzy = 1;
            e->plain = 0;
        }
        if (did == NO) e->now.place = M_NOWHERE;
        say("      event %d: %s%s%s%s%s", e->n, m_types[e->type], e->key ? " key " : "",
            e->key ? m_keys[e->key] : "", e->now.wait == M_DELAYED ? ", delayed" : "",
            e->now.place == M_NOWHERE ? " (not stored)" : "");
    }
    if (did == YES) {
        if (!second) model.published += fresh;
        for (i = 0; i < count; i++) {
            m_event *e = made[i];
            if (e->n >= first && !e->id.str[0]) e->id = ids[i];
            else if (e->id.str[0] && strcmp(e->id.str, ids[i].str) != 0)
                bad(BAD_RESULT, "the id of the known event %d is %s, eb_send said %s", e->n,
                    e->id.str, ids[i].str);
            for (k = 0; k < i && e->n >= first; k++)
                if (made[k] != e && strcmp(ids[k].str, ids[i].str) == 0)
                    bad(BAD_RESULT, "two events of one batch have the id %s", ids[i].str);
        }
    } else if (did == NO) {
        model.count = first; /* "nothing was written" */
    } else {
        model.exact = 0;
    }
}

/* ---- what an event may be chosen from ------------------------------------------------------------------ */

enum { POOL_LIKELY, POOL_ANY, POOL_CLAIMED };

/* The pick-th of those in this place that are beyond doubt; NULL: there is none. */
static m_event *choose(int pick, int pool, int place)
{
    m_event *list[M_EVENTS];
    int i, n = 0;
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        int p = e->now.place;
        if (e->fuzzy || e->unsettled || e->dirty || e->ghost || e->foreign || p == M_NOWHERE ||
            !e->id.str[0])
            continue;
        if (e->endable || (w.event == e && w.revoked)) continue;
        if (pool == POOL_ANY || (p == place && (pool != POOL_CLAIMED || e->claimed)))
            list[n++] = e;
    }
    if (n == 0 && pool == POOL_CLAIMED) return choose(pick, POOL_LIKELY, place);
    return n ? list[pick % n] : NULL;
}

/* A store: the bus's own or one just for this call. */
static eb_store *store_open(int other)
{
    eb_options o = options();
    eb_store *store = NULL;
    eb_result rc;
    if (!other || w.locked || w.fault) return eb_bus_store(w.bus);
    rc = eb_store_open(&store, &o);
    if (rc != EB_OK) judge("eb_store_open", rc, EB_OK);
    return store;
}
static int store_is_other(const eb_store *store) { return store != eb_bus_store(w.bus); }

/* Whether the row of e has a token; read when nothing else can tell. */
static int row_claimed(const m_event *e, int *processing)
{
    sqlite3_stmt *s = shell_statement("SELECT token IS NOT NULL,status FROM deliveries WHERE seq=?1");
    int claimed = 0;
    sqlite3_bind_int64(s, 1, e->seq);
    if (processing) *processing = 0;
    if (sqlite3_step(s) == SQLITE_ROW) {
        claimed = sqlite3_column_int(s, 0);
        if (processing)
            *processing = strcmp((const char *)sqlite3_column_text(s, 1), "processing") == 0;
    }
    sqlite3_finalize(s);
    return claimed;
}

static int64_t seq_of(m_event *e)
{
    sqlite3_stmt *s;
    if (e->seq) return e->seq;
    s = shell_statement("SELECT seq FROM event_log WHERE id=?1"); /* published in this operation */
    sqlite3_bind_text(s, 1, e->id.str, -1, SQLITE_STATIC);
    if (sqlite3_step(s) == SQLITE_ROW) e->seq = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return e->seq;
}

/* ---- dead letters ---------------------------------------------------------------------------------------- */

/* "[0.2] It must not start once the call has returned (through eb_bus_store)"; from elsewhere: from
** the next eb_pump on. */
static void do_move(int pick, int pool, int other, m_event *e)
{
    eb_store *store;
    char reason[40];
    int did, outside, claimed;
    eb_result rc;
    if (!e) e = choose(pick, pool, M_LIVE);
    if (!e || !seq_of(e)) return;
    store = store_open(other);
    if (!store) return;
    outside = store_is_other(store);
    claimed = w.inside && outside && row_claimed(e, NULL);
    snprintf(reason, sizeof reason, "given up %d", pick);
    rc = eb_dlq_move(store, e->id.str, reason);
    say("      eb_dlq_move of event %d%s", e->n, outside ? " through another store" : "");
    did = judge("eb_dlq_move", rc, e->now.place == M_LIVE   ? EB_OK
                                   : e->now.place == M_GONE ? EB_ERR_NOT_FOUND
                                                            : EB_ERR_STATE);
    if (outside) eb_store_close(store);
    if (did == NO || (did == MAYBE && e->now.place != M_LIVE)) return;
    m_give_up(m_change(e), M_REASON, pick);
    changed(e, did);
    if (did == YES) e->revoked = !outside || !w.inside;
    e->ghost = claimed;
    e->foreign = outside && w.inside;
    if (w.event == e && did == YES) w.revoked = 1; /* else what its handler returns may count, or not */
    if (did == MAYBE) model.exact = 0;
}

static void revive(m_event *e, int did, int outside)
{
    m_revive(m_change(e));
    changed(e, did);
    e->revoked = e->crashes = 0;
    e->foreign = outside && w.inside;
    if (w.event == e && did == YES) w.revoked = 1;
    if (did == MAYBE) model.exact = 0;
}

static void do_retry(int pick, int pool, int other)
{
    m_event *e = choose(pick, pool, M_DEAD);
    eb_store *store;
    int did, outside;
    eb_result rc;
    if (!e) return;
    store = store_open(other);
    if (!store) return;
    outside = store_is_other(store);
    rc = eb_dlq_retry(store, e->id.str, NULL);
    say("      eb_dlq_retry of event %d%s", e->n, outside ? " through another store" : "");
    did = judge("eb_dlq_retry", rc, e->now.place == M_DEAD   ? EB_OK
                                    : e->now.place == M_GONE ? EB_ERR_NOT_FOUND
                                                             : EB_ERR_STATE);
    if (outside) eb_store_close(store);
    if (did == YES || (did == MAYBE && e->now.place == M_DEAD)) revive(e, did, outside);
}

/* Whether nobody can say for sure that e is dead, or that it is not. */
static int doubtful(const m_event *e)
{
    int i;
    if (e->endable && model.on_unmatched == EB_UNMATCHED_DLQ && e->now.place == M_LIVE) return 1;
    if (!e->fuzzy && !e->dirty && !e->unsettled) return 0;
    if (e->now.place == M_DEAD) return 1;
    for (i = 0; i < e->past_count; i++)
        if (e->past[i].place == M_DEAD) return 1;
    return 0;
}

/* e may be dead, or it may not, when something happens to all that are. */
static void doubt(m_event *e, int place, int outside)
{
    m_state s;
    memset(&s, 0, sizeof s);
    if (place == M_GONE) s.place = M_GONE;
    else m_revive(&s);
    s.fresh = e->now.fresh ? 2 : 0; /* it may have lived on as it was */
    if (e->now.place == M_LIVE && e->endable) {
        m_state dead_one = e->now;
        m_end_unmatched(&dead_one);
        *m_change(e) = dead_one;
    }
    *m_change(e) = s;
    e->fuzzy = 1;
    e->plain = e->revoked = e->crashes = 0;
    e->foreign = outside && w.inside;
    model.exact = 0;
}

static void do_retry_all(int pattern, int other)
{
    int64_t count = -1, sure = 0, most = 0;
    eb_store *store = store_open(other);
    int i, did, outside, any = 0;
    eb_query q;
    eb_result rc;
    if (!store) return;
    outside = store_is_other(store);
    memset(&q, 0, sizeof q);
    if (pattern) q.pattern = m_patterns[(pattern - 1) % M_PATTERNS];
    rc = eb_dlq_retry_all(store, pattern ? &q : NULL, &count);
    for (i = 0; i < model.count; i++) {
        const m_event *e = &model.events[i];
        if (!pattern || m_glob(q.pattern, m_types[e->type]))
            any |= doubtful(e) || e->now.place == M_DEAD;
    }
    if (rc == EB_OK && !any) did = YES; /* nothing to write: whatever is locked or fails */
    else did = judge("eb_dlq_retry_all", rc, EB_OK);
    if (outside) eb_store_close(store);
    if (did == NO) return;
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        if (pattern && !m_glob(q.pattern, m_types[e->type])) continue;
        if (doubtful(e)) {
            most++;
            doubt(e, M_LIVE, outside);
        } else if (e->now.place == M_DEAD) {
            sure++;
            revive(e, did, outside);
        }
    }
    if (did == YES && (count < sure || count > sure + most))
        bad(BAD_RESULT, "eb_dlq_retry_all counted %lld, there were %lld", (long long)count,
            (long long)sure);
}

/* "eb_dlq_purge: created_at <= now - days, inclusive; eb_dlq_purge_dead: the same by time of death".
** "A purge that removes an event's last life removes its log row too." */
static void do_purge(int days, int by_death, int other)
{
    int64_t count = -1, sure = 0, most = 0, limit;
    eb_store *store = store_open(other);
    int i, did, outside;
    eb_result rc;
    if (!store) return;
    outside = store_is_other(store);
    limit = m_now() - (int64_t)days * M_DAY;
    rc = by_death ? eb_dlq_purge_dead(store, days, &count) : eb_dlq_purge(store, days, &count);
    did = judge(by_death ? "eb_dlq_purge_dead" : "eb_dlq_purge", rc, EB_OK);
    if (outside) eb_store_close(store);
    if (did == NO) return;
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        if (doubtful(e) || (e->now.place == M_DEAD && w.inside && by_death)) {
            most++;
            doubt(e, M_GONE, outside);
        } else if (e->now.place == M_DEAD && (by_death ? e->died_ms : e->created_lo) <= limit) {
            sure++;
            m_change(e)->place = M_GONE;
            changed(e, did);
        }
    }
    if (did == YES && (count < sure || count > sure + most))
        bad(BAD_RESULT, "the purge counted %lld, there were %lld", (long long)count,
            (long long)sure);
}

/* ---- an operator with an SQL shell -------------------------------------------------------------------------- */

static void do_operator(int pick, int pool, int to)
{
    m_event *e = choose(pick, pool == POOL_CLAIMED ? POOL_CLAIMED : pool,
                        pick % 3 ? M_LIVE : pick % 2 ? M_DEAD : M_DONE);
    static const char *const names[] = {"nowhere", "", "done", "dlq", "gone"};
    const char *from;
    char sql[200], *msg = NULL;
    int claimed = 0, processing = 0, legal, rc, same;
    if (!e || !seq_of(e) || w.locked || e->now.place == M_GONE) return;
    if (e->now.place == M_LIVE) claimed = row_claimed(e, &processing);
    from = e->now.place == M_LIVE ? processing ? "processing" : "pending" : names[e->now.place];
    same = strcmp(from, statuses[to]) == 0;
    legal = same || (to == 0 && strcmp(from, "pending") != 0) ||
            (to == 1 && strcmp(from, "pending") == 0) || (to == 2 && e->now.place == M_LIVE);
    snprintf(sql, sizeof sql, "UPDATE events SET status='%s' WHERE seq=%lld", statuses[to],
             (long long)e->seq);
    rc = sqlite3_exec(w.shell, sql, NULL, NULL, &msg);
    say("      event %d: %s to %s%s%s", e->n, from, statuses[to], msg ? ": " : "", msg ? msg : "");
    sqlite3_free(msg);
    if (!dead() && !w.fault && (rc == SQLITE_OK) != legal)
        bad(BAD_RESULT, "UPDATE of event %d from %s to %s: %s", e->n, from, statuses[to],
            rc == SQLITE_OK ? "was let through" : sqlite3_errmsg(w.shell));
    if (rc != SQLITE_OK && !dead()) return;
    if (!legal || same) return;
    if (e->now.place != M_LIVE) { /* "dlq to pending is a DLQ retry; done to pending runs it again" */
        revive(e, dead() ? MAYBE : YES, 1);
        return;
    }
    if (to == 2) { /* "a dead letter 'moved by operator'" */
        m_give_up(m_change(e), M_OPERATOR, 0);
    } else if (to == 1) { /* "as after a crash" */
        m_wait(m_change(e), M_BY_HAND, 0);
        e->now.suspect = e->now.suspect ? 2 : 0; /* which then counts as running alone anyway */
        if (e->now.fresh) e->now.fresh = 2;
    } else { /* "revokes the claim or ends a wait: due at once" */
        m_wait(m_change(e), M_AT_ONCE, 0);
        e->now.suspect = e->now.suspect ? 2 : 0;
        e->now.came = 1;
        if (e->now.fresh) e->now.fresh = 2;
        e->claimed = 0;
    }
    changed(e, dead() ? MAYBE : YES);
    if (e->now.place == M_DEAD && !w.inside && !dead()) e->revoked = 1;
    e->foreign = w.inside;
    if (w.inside && claimed) { /* the bus need not know yet that its claim is gone */
        e->ghost = 1;
        if (to != 2) {
            m_change(e);
            e->fuzzy = 1;
        }
    }
    if (!w.inside) e->may = e->could = 0;
    if (w.event == e) w.revoked = 1;
    model.exact = 0;
}

/* ---- subscriptions -------------------------------------------------------------------------------------------- */

static eb_result on_event(eb_delivery *d, void *user);

/* Subscribes what is in the slot. */
static eb_result sub_now(m_sub *s)
{
    eb_subscribe_options o;
    memset(&o, 0, sizeof o);
    o.retry = m_policies[s->policy].given;
    o.timeout_ms = s->timeout_ms;
    return eb_subscribe(w.bus, m_patterns[s->pattern], on_event, s, &o, &s->id);
}

static void do_sub(int pattern, int policy, int limited)
{
    m_sub *s = NULL;
    int i, did;
    for (i = 0; i < M_SUBS && !s; i++)
        if (!model.subs[i].alive) s = &model.subs[i];
    if (!s) return;
    memset(s, 0, sizeof *s);
    s->pattern = pattern % M_PATTERNS;
    s->policy = policy % M_POLICIES;
    s->timeout_ms = limited ? TIMEOUT_MS : 0;
    did = judge("eb_subscribe", sub_now(s), w.state == BUS_STOPPED ? EB_ERR_SHUTDOWN : EB_OK);
    if (did != YES) return;
    s->alive = 1;
    s->order = ++model.orders;
    say("      subscription %d: %s", (int)(s - model.subs), m_patterns[s->pattern]);
    m_subs_changed();
}

static void do_unsub(int pick, m_sub *s)
{
    int i, n = 0;
    eb_result rc;
    for (i = 0; i < M_SUBS; i++) n += model.subs[i].alive;
    if (n == 0) return;
    if (!s) {
        pick %= n;
        for (i = 0; !model.subs[i].alive || pick > 0; i++) pick -= model.subs[i].alive;
        s = &model.subs[i];
    }
    if (!s->alive) return;
    rc = eb_unsubscribe(w.bus, s->id.str);
    say("      unsubscribed %d: %s", (int)(s - model.subs), eb_strerror(rc));
    if (rc != EB_OK && !dead())
        bad(BAD_RESULT, "eb_unsubscribe: %s", eb_strerror(rc));
    s->alive = 0;
    m_subs_changed();
}

/* ---- inside a handler ------------------------------------------------------------------------------------------- */

static void describe_now(const m_event *e, char *out, size_t cap)
{
    m_describe(&e->now, out, cap);
}

/* May this attempt begin? */
static void check_start(eb_delivery *d, m_event *e, const m_sub *s)
{
    char text[1200];
    int i, fits;
    describe_now(e, text, sizeof text);
    if (e->revoked) {
        bad(BAD_GIVEN_UP, "event %d was given up, but its handler starts (%s)", e->n, text);
        return;
    }
    fits = d->attempt == e->now.failed + 1;
    if (e->fuzzy || e->ghost) {
        for (i = 0; i < e->past_count && !fits; i++) fits = d->attempt == e->past[i].failed + 1;
        if (!fits && !e->ghost)
            bad(BAD_DELIVERY, "event %d: attempt %d (%s)", e->n, d->attempt, text);
        return;
    }
    if (e->now.place != M_LIVE)
        bad(BAD_AGAIN, "event %d starts but is %s", e->n, text);
    else if (e->now.wait == M_BY_HAND)
        bad(BAD_EARLY, "event %d starts though an operator set it to processing", e->n);
    else if (!e->could)
        bad(BAD_EARLY, "event %d starts before its time: %s", e->n, text);
    else if (!e->may)
        bad(BAD_ORDER, "event %d starts before event %d of %s", e->n, e->behind, m_keys[e->key]);
    else if (!fits)
        bad(BAD_DELIVERY, "event %d: attempt %d, but %s", e->n, d->attempt, text);
    if (s != m_sub_next(e->type, 0))
        bad(BAD_HANDLER, "event %d: the first handler is not the first subscription", e->n);
    /* events without anything special start in order of publishing */
    for (i = 0; i < e->n && e->plain; i++) {
        const m_event *f = &model.events[i];
        if (f->plain && f->now.place == M_LIVE && !f->now.tried && !f->fuzzy && !f->unsettled &&
            !f->foreign)
            bad(BAD_ORDER, "event %d starts before event %d: no keys, no retries, no delays", e->n,
                f->n);
    }
    /* "each runs again alone" */
    if (e->now.suspect == 1 && !w.locked) {
        if (sqlite3_step(w.claims) == SQLITE_ROW && sqlite3_column_int(w.claims, 0) != 1)
            bad(BAD_RECOVERY, "event %d must run alone, but %d are claimed", e->n,
                sqlite3_column_int(w.claims, 0));
        sqlite3_reset(w.claims);
    }
}

/* What the handler is shown. */
static void check_delivery(const eb_delivery *d, const m_event *e, const m_sub *s)
{
    const eb_event *v = d->event;
    int64_t limit = s->timeout_ms ? s->timeout_ms : 30000;
    char idem[20];
    const m_state *state = &e->now;
    if (e->id.str[0] && strcmp(v->id.str, e->id.str) != 0)
        bad(BAD_DELIVERY, "event %d is shown with a wrong id", e->n);
    if (strcmp(v->type, m_types[e->type]) != 0 ||
        !same_text((const unsigned char *)v->ordering_key, m_keys[e->key]) ||
        !same_text((const unsigned char *)v->idempotency_key,
                   idem_text(e->idem, idem, sizeof idem)) ||
        v->status != EB_PROCESSING || v->created_at_ms < e->created_lo ||
        v->created_at_ms > e->created_hi)
        bad(BAD_DELIVERY, "event %d: wrong type, key, time or status", e->n);
    if (v->retry_count != d->attempt - 1 ||
        (!e->fuzzy && !e->ghost && !w.revoked && !m_errors_fit(state, v->last_error)))
        bad(BAD_DELIVERY, "event %d: retry_count %d, last_error %s", e->n, v->retry_count,
            v->last_error ? v->last_error : "NULL");
    if (d->max_attempts != m_policies[s->policy].max_retries + 1)
        bad(BAD_DELIVERY, "event %d: max_attempts %d", e->n, d->max_attempts);
    if (d->deadline_ms != m_now() + limit)
        bad(BAD_DELIVERY, "event %d: deadline in %lld ms, not %lld", e->n,
            (long long)(d->deadline_ms - m_now()), (long long)limit);
}

static void do_kill(int a, int b, int64_t ms)
{
    w.kill_a = a;
    w.kill_b = b;
    w.kill_ms = ms;
    w.disk->dead = 1;
    say("      the process ends");
}

/* The thing that a handler does beside its result. */
static void act(const action *x, m_event *e, m_sub *s, eb_delivery *d)
{
    op o;
    memset(&o, 0, sizeof o);
    switch (x->what) {
    case DO_POST:
        o.a = 1 + (x->a % 8 == 0) * 3;
        o.type = x->a % 5 ? e->type : x->b % M_TYPES;
        o.key = x->b % 3 ? e->key : x->c % M_KEYS;
        o.idem = x->c % 7 == 0 ? 1 + x->b % 5 : 0;
        o.delayed = x->a % 4 == 0;
        o.ms = x->snooze_ms + 1;
        o.script = e->script + 17;
        o.scripted = e->n < 200 ? (1 | SCRIPT_PLAIN) : 0;
        o.who = -1;
        do_send(&o);
        break;
    case DO_SUB: do_sub(x->a, x->b, x->c % 4 == 0); break;
    case DO_UNSUB: do_unsub(x->a, NULL); break;
    case DO_UNSUB_SELF: do_unsub(0, s); break;
    case DO_MOVE: do_move(x->a, x->b % 5 == 0 ? POOL_ANY : POOL_LIKELY, x->c % 3 == 0, NULL); break;
    case DO_MOVE_SELF: if (!e->fuzzy && !w.revoked) do_move(x->a, 0, x->c % 3 == 0, e); break;
    case DO_RETRY: do_retry(x->a, x->b % 5 == 0 ? POOL_ANY : POOL_LIKELY, x->c % 3 == 0); break;
    case DO_RETRY_ALL: do_retry_all(x->a % 2 ? 0 : x->b, x->c % 3 == 0); break;
    case DO_PURGE: do_purge(x->a % 2, x->b % 2, x->c % 3 == 0); break;
    case DO_OPERATOR: do_operator(x->a, x->b % 4 == 0 ? POOL_ANY : POOL_LIKELY, x->c & 3); break;
    case DO_STEP: model.time.now_ms += x->ms; break;
    case DO_WAIT: t_advance(&model.time, x->ms); break;
    case DO_KILL: do_kill(255, 0, x->a % 3 ? 0 : -1000); break;
    case DO_CUT: if (!w.disk->cut_at) w.disk->cut_at = w.disk->points + 1 + x->a % 8; break;
    case DO_SHUTDOWN: /* "eb_shutdown begins the shutdown and returns EB_OK at once" */
        judge("eb_shutdown", eb_shutdown(d->bus), EB_OK);
        w.stopping = 1;
        w.state = BUS_STOPPED;
        break;
    case DO_PUMP: /* "eb_wait, eb_drain and eb_pump are EB_ERR_STATE" */
        if (eb_pump(d->bus, 0, NULL) != EB_ERR_STATE || eb_drain(d->bus, 0) != EB_ERR_STATE ||
            eb_wait(d->bus, e->id.str, 0) != EB_ERR_STATE)
            bad(BAD_RESULT, "eb_pump, eb_drain or eb_wait inside a handler");
        break;
    default: break;
    }
}

/* The handler has returned: what becomes of the event. Without an outcome other handlers follow. */
static void attempt_ends(m_event *e, m_sub *s, int outcome, int kind, int arg, int64_t ms)
{
    m_state from = e->now;
    int i;
    if (outcome == M_OUT_DONE && m_sub_next(e->type, s->order)) {
        w.more = 1;
        return;
    }
    w.more = 0;
    w.event = NULL;
    model.delivered += outcome == M_OUT_DONE;
    model.failed_attempts += outcome == M_OUT_FAIL || outcome == M_OUT_REJECT;
    if (w.revoked) { /* "a late finisher ... changes nothing" */
        model.exact = 0;
        return;
    }
    if (e->fuzzy || e->ghost) {
        model.exact = 0;
        for (i = e->past_count - 1; i >= 0; i--) {
            if (from.place == M_LIVE && from.failed == w.failed) break;
            from = e->past[i];
        }
        if (from.failed != w.failed || from.place != M_LIVE) return;
        m_change(e); /* if the claim was gone it makes no difference */
        e->fuzzy = 1;
    }
    m_outcome(&from, outcome, s, kind, arg, ms);
    *m_change(e) = from;
    e->dirty = 1;
    e->claimed = e->may = e->could = 0;
    if (e->now.place == M_DEAD && outcome != M_OUT_DONE) model.died++;
}

/* Every call of every handler. */
static eb_result on_event(eb_delivery *d, void *user)
{
    m_sub *s = (m_sub *)user;
    int n = event_number(d->event->payload);
    m_event *e = n < 0 ? NULL : &model.events[n];
    action x;
    char text[200];
    eb_result rc = EB_OK;
    int code;
    if (over()) return EB_OK;
    if (!e || !s->alive) {
        bad(BAD_HANDLER, e ? "event %d: a handler that was unsubscribed is called"
                           : "event %d was never published", n);
        return EB_OK;
    }
    if (++w.calls > 4000) {
        bad(BAD_ENDLESS, "4000 handler calls in one operation");
        return EB_OK;
    }
    m_moment();
    if (w.more && e != w.event && !w.revoked)
        bad(BAD_HANDLER, "event %d: not all of its handlers were called", w.event->n);
    if (w.more && e == w.event) {
        if (w.revoked && e->revoked)
            bad(BAD_GIVEN_UP, "event %d was given up, but its next handler starts", e->n);
        else if (s != m_sub_next(e->type, w.sub->order))
            bad(BAD_HANDLER, "event %d: the next handler is not the next subscription", e->n);
    } else {
        w.revoked = 0;
        w.failed = d->attempt - 1;
        check_start(d, e, s);
        /* "no handler but the first starts after budget_ms" */
        if (w.pumping && w.ran > 0 && model.time.mono_ms >= w.deadline_ms)
            bad(BAD_BUDGET, "event %d starts after the budget is spent", e->n);
        w.ran++;
    }
    check_delivery(d, e, s);
    if (!e->seq) e->seq = d->event->seq;
    if (e->seq != d->event->seq) bad(BAD_DELIVERY, "event %d is shown with a wrong seq", e->n);
    if (!e->id.str[0]) e->id = d->event->id;
    if (over()) return EB_OK;
    w.event = e;
    w.sub = s;
    w.more = 0;
    w.inside = 1;
    e->now.tried = 1;
    e->plain = 0;
    if (e->now.fresh) e->now.fresh = 0;
    x = script_action(e->script, e->scripted, e->calls++);
    action_text(&x, text, sizeof text);
    say("    event %d (%s%s%s), attempt %d, handler %d: %s", e->n, m_types[e->type],
        e->key ? " " : "", e->key ? m_keys[e->key] : "", d->attempt, (int)(s - model.subs), text);
    act(&x, e, s, d);
    w.inside = 0;
    if (over()) return EB_OK;
    if (x.say == SAY_LATE) t_advance(&model.time, (s->timeout_ms ? s->timeout_ms : 30000) + 1);
    code = x.a % 2 ? EB_ERR_IO : EB_ERR_BUSY;
    switch (x.say) {
    case SAY_FAIL: rc = eb_fail(d, "failed %d", e->calls); break;
    case SAY_REJECT: rc = eb_reject(d, "failed %d", e->calls); break;
    case SAY_SNOOZE: rc = eb_snooze(d, x.snooze_ms); break;
    case SAY_CODE: rc = (eb_result)code; break;
    case SAY_DUPLICATE: rc = EB_DUPLICATE; break;
    default: break;
    }
    switch (x.say) {
    case SAY_FAIL: attempt_ends(e, s, M_OUT_FAIL, M_FAIL, e->calls, 0); break;
    case SAY_REJECT: attempt_ends(e, s, M_OUT_REJECT, M_FAIL, e->calls, 0); break;
    case SAY_SNOOZE: attempt_ends(e, s, M_OUT_SNOOZE, 0, 0, x.snooze_ms); break;
    case SAY_CODE: attempt_ends(e, s, M_OUT_FAIL, M_CODE, code, 0); break;
    case SAY_LATE: attempt_ends(e, s, M_OUT_FAIL, M_TIMED_OUT, 0, 0); break;
    default: attempt_ends(e, s, M_OUT_DONE, 0, 0, 0);
    }
    m_moment();
    return rc;
}

/* ---- running ------------------------------------------------------------------------------------------------------ */

/* eb_drain and eb_wait of 0.1.0 left acks in memory when their time ran out. */
static int acks_late(eb_result rc)
{
#ifdef MODEL_OLD
    return rc == EB_ERR_TIMEOUT;
#else
    (void)rc;
    return 0;
#endif
}

static int exactly(void) { return !w.loose && model.time.mono_ms >= w.loose_until; }

/* Something pumped: no attempt may be half done. */
static void pumped(void)
{
    w.pumping = 0;
    m_moment();
    if (w.more && !w.revoked && !w.stopping)
        bad(BAD_HANDLER, "event %d: not all of its handlers were called", w.event->n);
    if (w.more && !w.revoked && w.stopping) { /* the shutdown may have ended the attempt half way */
        m_state s = w.event->now;
        s.place = M_DONE;
        *m_change(w.event) = s;
        w.event->fuzzy = 1;
        model.exact = 0;
    }
    w.more = w.revoked = 0;
    w.event = NULL;
}

static void do_pump_once(int64_t budget)
{
    int64_t next = -7, late;
    int first, was_claimed = 0, i;
    m_event *left;
    eb_result rc, wanted;
    w.pumping = 1;
    w.ran = 0;
    w.deadline_ms = budget == EB_NONE ? INT64_MAX : model.time.mono_ms + budget;
    if (w.state == BUS_STARTED) m_moment();
    left = m_left_over(&late);
    first = left && model.matched[left->type];
    rc = eb_pump(w.bus, budget, &next);
    pumped();
    if (over()) return;
    say("      eb_pump: %s, next_ms %lld", eb_strerror(rc), (long long)next);
    wanted = w.stopping && w.ran ? rc : w.state == BUS_OPEN ? EB_ERR_STATE
             : w.state == BUS_STOPPED ? EB_ERR_SHUTDOWN : EB_OK;
    if (w.stopping && rc != EB_OK && rc != EB_ERR_SHUTDOWN) wanted = EB_OK;
    if (w.state == BUS_STARTED && (w.locked || w.fault || !exactly())) {
        if (rc < 0 || next > 2001) {
            if (rc >= 0) goto settled;
            w.loose = 1;
        }
settled:
        settle(LOOSE, 0);
        return;
    }
    if (rc != wanted) {
        judge("eb_pump", rc, wanted);
        return;
    }
    w.flushed = w.state == BUS_STARTED;
    settle(EXACT, 0);
    if (w.bad || w.state != BUS_STARTED) return;
    for (i = 0; i < model.count; i++) was_claimed += model.events[i].claimed;
    left = m_left_over(&late);
    if (budget == EB_NONE && was_claimed)
        bad(BAD_STRANDED, "%d events are claimed after eb_pump without a limit", was_claimed);
    if (budget != EB_NONE && first && w.ran == 0)
        bad(BAD_BUDGET, "something was due, but nothing ran");
    if (left && (budget == EB_NONE || model.time.mono_ms < w.deadline_ms)) {
        char text[1200], row[1200];
        describe_now(left, text, sizeof text);
        m_describe_row(&w.rows[left->n], row, sizeof row);
        bad(BAD_STRANDED, "event %d (%s%s%s) did not run: %s; the file says %s", left->n,
            m_types[left->type], left->key ? " key " : "", left->key ? m_keys[left->key] : "", text,
            row);
    }
    /* "next_ms: ms until the next due event or schedule, 0 more now, -1 none" */
    if (left && next != 0 && model.matched[left->type])
        bad(BAD_NEXT, "next_ms is %lld though event %d is due", (long long)next, left->n);
    else if (!left && next == 0 && budget == EB_NONE)
        bad(BAD_NEXT, "next_ms is 0 though nothing is due");
    else if (!left && next < 0 && (next != -1 || late != INT64_MAX))
        bad(BAD_NEXT, "next_ms is %lld though something is due in %lld ms", (long long)next,
            (long long)(late - m_now()));
    else if (!left && next > 0 && (m_now() + next > late || !m_somebody_waits_until(m_now() + next)))
        bad(BAD_NEXT, "next_ms is %lld, %s", (long long)next,
            m_now() + next > late ? "but something is due earlier" : "but nothing is due then");
}

static void do_pump(const op *o)
{
    int i;
    for (i = 0; i < o->b && !over() && !w.stopping; i++) {
        if (i) next_operation();
        do_pump_once(o->a);
    }
}

/* "until no life that this bus works on is pending or processing, delayed and retrying included; ...
** kept unmatched ones, and those an operator paused or blocked, do not count" */
static void do_drain(int64_t ms)
{
    int64_t until = model.time.mono_ms + ms;
    int i, left = 0, debatable = 0;
    eb_result rc;
    if (w.state == BUS_STARTED) m_moment();
    rc = eb_drain(w.bus, ms);
    pumped();
    if (over()) return;
    say("      eb_drain: %s", eb_strerror(rc));
    if (w.locked || w.fault || !exactly() || acks_late(rc)) {
        w.loose = 1;
        settle(LOOSE, 0);
        return;
    }
    w.flushed = w.state == BUS_STARTED;
    settle(EXACT, 0);
    if (w.bad || w.stopping) return;
    if (w.state != BUS_STARTED) {
        judge("eb_drain", rc, w.state == BUS_OPEN ? EB_ERR_STATE : rc);
        return;
    }
    for (i = 0; i < model.count; i++) {
        const m_event *e = &model.events[i];
        if (e->now.place != M_LIVE) continue;
        if (e->now.wait == M_BY_HAND || e->foreign || !model.matched[e->type] || m_holds(e, 0) == 0) {
            debatable = 1;
            continue;
        }
        left++;
    }
    for (i = 0; i < model.count && debatable && left; i++) /* behind one that is set to processing */
        if (model.events[i].now.place == M_LIVE && model.events[i].now.wait == M_BY_HAND) left = -1;
    if (rc == EB_OK && left > 0) bad(BAD_RESULT, "eb_drain says ok, but %d events are left", left);
    else if (rc == EB_ERR_TIMEOUT && left == 0 && !debatable && ms > 0) /* 0 only looks, in memory too */
        bad(BAD_RESULT, "eb_drain ran out of time though nothing is left");
    else if (rc == EB_ERR_TIMEOUT && model.time.mono_ms < until)
        bad(BAD_RESULT, "eb_drain gave up %lld ms too early",
            (long long)(until - model.time.mono_ms));
    else if (rc != EB_OK && rc != EB_ERR_TIMEOUT) judge("eb_drain", rc, EB_OK);
}

static void do_wait_for(int pick, int64_t ms)
{
    m_event *e = choose(pick, POOL_ANY, 0);
    eb_result rc, wanted;
    if (!e || w.state != BUS_STARTED) return;
    m_moment();
    rc = eb_wait(w.bus, e->id.str, ms);
    pumped();
    if (over()) return;
    say("      eb_wait for event %d: %s", e->n, eb_strerror(rc));
    if (w.locked || w.fault || !exactly() || acks_late(rc)) {
        w.loose = 1;
        settle(LOOSE, 0);
        return;
    }
    settle(EXACT, 0);
    if (w.bad || w.stopping) return;
    wanted = e->now.place == M_DONE   ? EB_OK
             : e->now.place == M_DEAD ? EB_DEAD
             : e->now.place == M_GONE ? EB_ERR_NOT_FOUND
                                      : EB_ERR_TIMEOUT;
    if (rc != wanted && !e->foreign) judge("eb_wait", rc, wanted);
}

/* ---- starting and stopping ------------------------------------------------------------------------------------------ */

/* Crash recovery: '[0.2] if exactly one handler was running in the process that died, and its claim
** was counted, its event gets one failed attempt ("interrupted ..."), due at once, or goes to the DLQ
** if that was its last. If several were running, ... none is charged, and each runs again alone. ...
** The same holds for events that were claimed in a batch'. "A row that was set to processing by hand
** counts as running alone." */
static void recover(void)
{
    int i, claims = 0, counted = 0;
    for (i = 0; i < model.count; i++) {
        claims += model.events[i].claimed;
        counted += model.events[i].claimed && model.events[i].counted;
    }
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        int hand = e->now.place == M_LIVE && e->now.wait == M_BY_HAND;
        int charged = hand || (e->claimed && e->counted && claims == 1);
#ifdef MODEL_OLD
        charged = hand || (e->claimed && e->counted);
#endif
        e->now.fresh = 0; /* from here on it is "found on disk" */
        e->may = e->could = 0;
        if (!hand && !e->claimed) continue;
        e->plain = 0;
        if (charged) { /* how many attempts it has: what its claim said, else what there is now */
            int least = M_BUS_ATTEMPTS, most = M_BUS_ATTEMPTS, now = m_most_attempts(e->type);
            m_state dies, lives;
            if (e->row_attempts && !hand) least = most = e->row_attempts;
            if (e->row_attempts && e->row_attempts < least) least = e->row_attempts;
            if (e->row_attempts > most) most = e->row_attempts;
            if (hand && now < least) least = now;
            if (hand && now > most) most = now;
            dies = lives = e->now;
            m_charge(&dies, least);
            m_charge(&lives, most);
            *m_change(e) = dies;
            if (lives.place != dies.place) {
                *m_change(e) = lives;
                e->fuzzy = 1;
            }
        } else {
            m_acquit(m_change(e));
            e->now.came = 1;
        }
        e->claimed = 0;
    }
    (void)counted;
}

static void do_start(void)
{
    if (w.state != BUS_OPEN || w.locked || w.fault) return;
    recover();
    if (judge("eb_start", eb_start(w.bus), EB_OK) != YES) return;
    w.state = BUS_STARTED;
    model.started = 1;
}

/* Opens the bus with the subscriptions of this mask. */
static void bus_open(int mask, int start)
{
    eb_options o = options();
    int i;
    eb_result rc = eb_open(&w.bus, &o);
    model.published = model.delivered = model.failed_attempts = model.died = model.unmatched = 0;
    model.exact = 1;
    model.started = 0;
    if (rc != EB_OK) {
        judge("eb_open", rc, EB_OK);
        return;
    }
    w.state = BUS_OPEN;
    for (i = 0; i < model.count; i++) model.events[i].now.fresh = 0;
    for (i = 0; i < M_SUBS; i++) {
        m_sub *s = &model.subs[i];
        if (!s->alive) continue;
        s->alive = (mask >> i & 1) && !dead();
        if (!s->alive) continue;
        if (judge("eb_subscribe", sub_now(s), EB_OK) == YES) s->order = ++model.orders;
        else s->alive = 0;
    }
    m_subs_changed();
    if (start && !over()) do_start();
}

static void bus_close(void)
{
    eb_destroy(w.bus);
    w.bus = NULL;
    w.state = BUS_CLOSED;
    model.started = 0;
}

/* "everything not finished is on disk and resumes at the next start" */
static void do_restart(int mask, int later, int64_t ms)
{
    static char was_claimed[M_EVENTS];
    int i, claimed = 0, unstarted;
    for (i = 0; i < model.count; i++)
        was_claimed[i] = model.events[i].claimed || model.events[i].could;
    unstarted = w.state == BUS_OPEN;
    if (w.bus) {
        eb_result rc = w.state == BUS_CLOSED ? EB_OK : eb_shutdown(w.bus);
        if (rc != EB_OK && !dead() && exactly()) judge("eb_shutdown", rc, EB_OK);
        if (mask & 1) shell_close(); /* sometimes the bus is the last one in the file */
        bus_close();
    }
    if (over()) return;
    if (!w.shell) {
        int64_t cut_at = w.disk->cut_at; /* it is the bus whose process ends, not the shell's */
        w.disk->cut_at = 0;
        shell_open();
        w.disk->cut_at = cut_at > w.disk->points ? cut_at : 0;
    }
    settle(exactly() ? EXACT : CRASHED, 0);
    for (i = 0; i < model.count; i++) claimed += model.events[i].claimed;
    if (unstarted) claimed = 0; /* what a dead process had waits for the next start */
    if (claimed && exactly()) bad(BAD_STRANDED, "%d events are claimed after a shutdown", claimed);
    for (i = 0; i < model.count; i++) /* handed back: ahead of or behind the others */
        if (was_claimed[i]) model.events[i].plain = 0;
    model.time.now_ms += ms;
    m_clock_seen();
    w.stopping = 0;
    if (!w.bad) bus_open(mask, !later);
    w.loose_until = 0;
    if (!over()) settle(EXACT, 1);
}

/* The process has ended: nothing that it did reaches the disk any more. A new one begins. */
static void life_after(void)
{
    cv_disk *old = w.disk;
    m_event *e = w.event;
    int tries, i;
    for (tries = 0; tries < 3 && w.disk->dead && !w.bad; tries++) {
        old = w.disk;
        shell_close();
        eb_destroy(w.bus);
        w.bus = NULL;
        w.state = BUS_CLOSED;
        model.started = 0;
        w.disk = cv_after_kill(old);
        cv_disk_free(old);
        cv_mounted = w.disk;
        w.locked = w.fault = w.stopping = w.inside = w.more = w.revoked = w.pumping = 0;
        w.event = NULL;
        shell_open();
        settle(CRASHED, 1);
        if (w.bad) return;
        for (i = 0; i < model.count; i++) model.events[i].revoked = 0;
        /* "counted before its handler runs wherever a crash could be the handler's doing" */
        if (e && tries == 0 && !e->fuzzy && !w.loose && e->now.place == M_LIVE) {
            if (!e->claimed && e->now.wait != M_BY_HAND && e->claimed + e->now.tried)
                bad(BAD_RECOVERY, "event %d ran when the process ended, but it is not claimed",
                    e->n);
            if (++e->crashes > (e->row_attempts ? e->row_attempts : M_BUS_ATTEMPTS) + 1)
                bad(BAD_RECOVERY, "event %d ended the process for the %dth time", e->n, e->crashes);
        }
        model.time.now_ms += w.kill_ms;
        m_clock_seen();
        say("      a new process begins");
        bus_open(w.kill_a, !w.kill_b);
        w.loose = 0;
        w.loose_until = 0;
        if (!over()) settle(EXACT, 1);
    }
}

/* ---- looking -------------------------------------------------------------------------------------------------------- */

static void check_stats(void)
{
    int64_t pending = 0, live = 0, done = 0, deads = 0, oldest = -1, eldest = -1;
    eb_stats s;
    eb_result rc;
    int i;
    if (over() || w.state == BUS_CLOSED) return;
    rc = eb_stats_get(eb_bus_store(w.bus), &s);
    if (rc != EB_OK) {
        bad(BAD_RESULT, "eb_stats_get: %s", eb_strerror(rc));
        return;
    }
    for (i = 0; i < model.count; i++) {
        const m_event *e = &model.events[i];
        if (e->unsettled || e->fuzzy) return;
        live += e->now.place == M_LIVE;
        done += e->now.place == M_DONE;
        deads += e->now.place == M_DEAD;
        if (e->now.place == M_LIVE && e->row_pending) {
            int64_t age = m_now() - e->created_lo;
            pending++;
            if (oldest < 0) oldest = age > 0 ? age : 0;
            if (age > eldest) eldest = age;
        }
    }
    if (s.pending != pending || s.processing != live - pending || s.done != done || s.dlq != deads)
        bad(BAD_STATS, "pending %lld processing %lld done %lld dlq %lld; they should be %lld, %lld, "
            "%lld, %lld", (long long)s.pending, (long long)s.processing, (long long)s.done,
            (long long)s.dlq, (long long)pending, (long long)(live - pending), (long long)done,
            (long long)deads);
    if (s.last_seq > model.last_seq && s.last_seq == shell_floor())
        model.last_seq = s.last_seq; /* published, dead and purged before it could be seen */
    if (s.last_seq != model.last_seq)
        bad(BAD_STATS, "last_seq %lld, not %lld", (long long)s.last_seq, (long long)model.last_seq);
    if (s.oldest_pending_ms != (oldest > 0 ? oldest : 0) &&
        s.oldest_pending_ms != (eldest > 0 ? eldest : 0))
        bad(BAD_STATS, "oldest_pending_ms %lld, not %lld", (long long)s.oldest_pending_ms,
            (long long)oldest);
    if (!model.exact || !exactly()) return;
    if (s.published != model.published || s.delivered != model.delivered ||
        s.failed_attempts != model.failed_attempts || s.died != model.died)
        bad(BAD_STATS, "published %lld delivered %lld failed_attempts %lld died %lld; they should be"
            " %lld, %lld, %lld, %lld", (long long)s.published, (long long)s.delivered,
            (long long)s.failed_attempts, (long long)s.died, (long long)model.published,
            (long long)model.delivered, (long long)model.failed_attempts, (long long)model.died);
#ifndef MODEL_OLD
    if (s.unmatched != model.unmatched)
        bad(BAD_STATS, "unmatched %lld, not %lld", (long long)s.unmatched, (long long)model.unmatched);
#endif
}

static void check_item(const eb_event *v, const m_event *e)
{
    static const eb_status status[] = {EB_PENDING, EB_PROCESSING, EB_DONE, EB_DLQ, EB_DONE};
    char idem[20];
    eb_status wanted = e->now.place == M_LIVE && e->row_pending ? EB_PENDING
                                                                : status[e->now.place];
    if (v->seq != e->seq || strcmp(v->id.str, e->id.str) != 0 || v->status != wanted ||
        strcmp(v->type, m_types[e->type]) != 0 || v->retry_count != e->now.failed ||
        !m_errors_fit(&e->now, v->last_error) || v->created_at_ms != e->created_lo ||
        !same_text((const unsigned char *)v->ordering_key, m_keys[e->key]) ||
        !same_text((const unsigned char *)v->idempotency_key,
                   idem_text(e->idem, idem, sizeof idem)) ||
        (v->dlq_at_ms != 0) != (e->now.place == M_DEAD) || event_number(v->payload) != e->n)
        bad(BAD_LIST, "event %d: seq %lld status %d retry_count %d last_error %s dlq_at_ms %lld",
            e->n, (long long)v->seq, (int)v->status, v->retry_count,
            v->last_error ? v->last_error : "NULL", (long long)v->dlq_at_ms);
#ifndef MODEL_OLD
    {
        /* "due_ms: waits until (delay, retry, snooze); claimed_ms: somebody works on it since" */
        const m_row *r = &w.rows[e->n];
        int64_t due = e->now.place == M_LIVE && r->due_ms > 0 ? r->due_ms : 0;
        if (v->due_ms != due)
            bad(BAD_LIST, "event %d: due_ms %lld, not %lld", e->n, (long long)v->due_ms,
                (long long)due);
        if (e->now.place == M_LIVE && e->now.wait != M_BY_HAND &&
            (v->claimed_ms != 0) != (e->claimed != 0))
            bad(BAD_LIST, "event %d: claimed_ms %lld", e->n, (long long)v->claimed_ms);
    }
#endif
}

/* One event, or everything that can be listed. After settle(). */
static void check_lists(int all)
{
    eb_store *store = w.bus ? eb_bus_store(w.bus) : NULL;
    eb_event_list list;
    eb_query q;
    eb_result rc;
    int i, n = 0, deads = 0;
    if (!store || over() || model.count == 0) return;
    for (i = 0; i < model.count; i++)
        if (model.events[i].unsettled || model.events[i].fuzzy) return;
    for (i = w.calls % model.count; i < model.count && !all; i++) {
        m_event *e = &model.events[i];
        if (!e->id.str[0] || e->now.place == M_NOWHERE) continue;
        memset(&list, 0, sizeof list);
        rc = eb_get(store, e->id.str, &list);
        if (rc != (e->now.place == M_GONE ? EB_ERR_NOT_FOUND : EB_OK))
            bad(BAD_RESULT, "eb_get of event %d: %s", e->n, eb_strerror(rc));
        else if (rc == EB_OK) check_item(&list.items[0], e);
        eb_event_list_free(&list);
        return;
    }
    if (!all) return;
    memset(&q, 0, sizeof q);
    memset(&list, 0, sizeof list);
    q.limit = M_EVENTS;
    rc = eb_log_read(store, &q, &list);
    if (rc != EB_OK) bad(BAD_RESULT, "eb_log_read: %s", eb_strerror(rc));
    for (i = 0; i < model.count && !w.bad; i++) {
        m_event *e = &model.events[i];
        if (e->now.place == M_NOWHERE || e->now.place == M_GONE) continue;
        deads += e->now.place == M_DEAD;
        if ((size_t)n >= list.count) bad(BAD_LIST, "eb_log_read does not list event %d", e->n);
        else check_item(&list.items[n++], e);
    }
    if ((size_t)n < list.count) bad(BAD_LIST, "eb_log_read lists %d too many", (int)list.count - n);
    eb_event_list_free(&list);
    if (w.bad) return;
    rc = eb_dlq_list(store, &q, &list);
    if (rc != EB_OK || list.total != deads || list.count != (size_t)deads)
        bad(BAD_LIST, "eb_dlq_list: %s, %d of %lld, there are %d", eb_strerror(rc), (int)list.count,
            (long long)list.total, deads);
    for (i = 0; i < (int)list.count && !w.bad; i++) { /* "descending by created_at" */
        int e = event_number(list.items[i].payload);
        if (e < 0) bad(BAD_LIST, "eb_dlq_list shows somebody else's event");
        else check_item(&list.items[i], &model.events[e]);
        if (i && list.items[i].created_at_ms > list.items[i - 1].created_at_ms)
            bad(BAD_LIST, "eb_dlq_list is not descending by created_at");
    }
    eb_event_list_free(&list);
}

/* ---- one operation, one run ------------------------------------------------------------------------------------------- */

static void do_op(const op *o)
{
    switch (o->kind) {
    case OP_SEND: do_send(o); break;
    case OP_PUMP: do_pump(o); break;
    case OP_WAIT: t_advance(&model.time, o->ms); break;
    case OP_STEP: model.time.now_ms += o->ms; break;
    case OP_SUB: do_sub(o->a, o->b, o->c); break;
    case OP_UNSUB: do_unsub(o->a, NULL); break;
    case OP_RETRY: do_retry(o->a, o->b % 3, o->c); break;
    case OP_RETRY_ALL: do_retry_all(o->a, o->c); break;
    case OP_PURGE: do_purge(o->a, o->b, o->c); break;
    case OP_MOVE: do_move(o->a, o->b % 3, o->c, NULL); break;
    case OP_OPERATOR: do_operator(o->a, o->b, o->c & 3); break;
    case OP_START: do_start(); break;
    case OP_RESTART: if (!w.locked && !w.fault) do_restart(o->a, o->b, o->ms); break;
    case OP_KILL: do_kill(o->a, o->b, o->ms); break;
    case OP_DRAIN: do_drain(o->ms); break;
    case OP_WAIT_FOR: do_wait_for(o->a, o->ms); break;
#ifndef MODEL_OLD
    case OP_CHECKPOINT: {
        eb_result rc = eb_checkpoint(eb_bus_store(w.bus));
        if (rc != EB_OK && rc != EB_ERR_BUSY) judge("eb_checkpoint", rc, EB_OK);
        break;
    }
#endif
    case OP_WAKE: eb_wake(w.bus); break;
    default: break;
    }
}

/* One operation with what is armed for it, and the comparison after it. */
static void step(const op *o, int fault_from, const op *fault, int lock)
{
    (void)fault_from;
    next_operation();
    if (lock && o->kind != OP_OPERATOR && o->kind != OP_RESTART && o->kind != OP_KILL &&
        sqlite3_exec(w.shell, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK)
        w.locked = 1;
    if (fault && o->kind != OP_OPERATOR && o->kind != OP_RESTART && o->kind != OP_KILL &&
        o->kind != OP_START) {
        w.fault = 1;
        cv_fail(w.disk, fault->b ? CV_FAIL_SYNC : CV_FAIL_WRITE, fault->a, fault->c);
    }
    if (w.locked || w.fault) w.loose = 1;
    do_op(o);
    m_clock_seen();
    cv_fail(w.disk, CV_FAIL_NONE, 0, 0);
    if (w.locked && w.shell) sqlite3_exec(w.shell, "ROLLBACK", NULL, NULL, NULL);
    w.locked = w.fault = 0;
    if (w.loose && !dead()) {
        w.loose_until = model.time.mono_ms + 2001; /* "a backoff of at most 2 s" */
        model.exact = 0;
    }
    if (dead() && !w.bad) life_after();
    if (w.bad) return;
    if (w.stopping) do_restart(255, 0, 0);
    if (over()) return;
    settle(w.loose || !exactly() ? LOOSE : EXACT, o->kind == OP_LOOK);
    w.loose = w.flushed = 0;
    check_stats();
    check_lists(o->kind == OP_LOOK);
    if (model.time.mono_ms >= w.loose_until) {
        int i;
        for (i = 0; i < model.count && !model.events[i].unsettled; i++) {}
        if (i == model.count) w.loose_until = 0;
    }
}

/* At the end nothing is armed any more and everything has to come out right. */
static void finish(void)
{
    static const op pump = {.kind = OP_PUMP, .a = EB_NONE, .b = 1}, look = {.kind = OP_LOOK};
    static const op wait = {.kind = OP_WAIT, .ms = 3000};
    int i;
    w.disk->cut_at = 0;
    for (i = 0; i < 2 && !w.bad; i++) {
        if (w.state == BUS_OPEN) do_start();
        if (!w.bad) step(&wait, 0, NULL, 0);
        if (!w.bad) step(&pump, 0, NULL, 0);
    }
    if (!w.bad) step(&look, 0, NULL, 0);
}

static void world_end(void)
{
    int i;
    w.disk->cut_at = 0;
    cv_fail(w.disk, CV_FAIL_NONE, 0, 0);
    w.disk->dead = 1; /* no need to tidy up */
    shell_close();
    eb_destroy(w.bus);
    w.bus = NULL;
    cv_disk_free(w.disk);
    w.disk = NULL;
    for (i = 0; i < M_EVENTS; i++) {
        free(model.events[i].past);
        model.events[i].past = NULL;
    }
}

/* Runs a plan; returns what went wrong, BAD_NONE if nothing did. */
static int run_plan(const plan *p)
{
    m_event *events = model.events;
    cv_disk *fresh = w.fresh;
    const op *fault = NULL;
    int i, lock = 0;
    char text[600];
    memset(events, 0, M_EVENTS * sizeof *events);
    memset(&model, 0, sizeof model);
    memset(&w, 0, sizeof w);
    model.events = events;
    model.on_unmatched = p->on_unmatched;
    (void)t_clock(&model.time);
    model.lo_ms = model.hi_ms = model.high_ms = m_now();
    w.p = p;
    w.fresh = fresh;
    w.disk = fresh ? cv_after_kill(fresh) : cv_disk_new(1);
    cv_mounted = w.disk;
    w.kill_a = 255;
    bus_open(0, 1);
    if (!w.bad) shell_open();
    for (i = 0; i < p->count && !w.bad; i++) {
        const op *o = &p->ops[i];
        if (o->kind == OP_NONE) continue;
        op_text(o, text, sizeof text);
        say("%d. %s  [now %+lld]", i, text, (long long)(m_now() - T_EPOCH));
        if (o->kind == OP_CUT) {
            w.disk->cut_at = w.disk->points + o->a;
        } else if (o->kind == OP_FAULT) {
            fault = o;
        } else if (o->kind == OP_LOCK) {
            lock = 1;
        } else {
            w.kill_a = 255;
            w.kill_b = 0;
            w.kill_ms = 0;
            step(o, 0, fault, lock);
            fault = NULL;
            lock = 0;
        }
    }
    if (!w.bad) finish();
    i = w.bad;
    world_end();
    return i;
}

/* The tables are created once; every run gets a copy of that disk. */
static void prepare(void)
{
    static plan empty;
    sqlite3_vfs *vfs;
    cv_init();
    vfs = sqlite3_vfs_find("cut");
    T_MUST(vfs);
    vfs->xCurrentTimeInt64 = vfs_time;
    vfs->xSleep = vfs_sleep;
    model.events = (m_event *)calloc(M_EVENTS, sizeof *model.events);
    T_MUST(model.events);
    (void)t_clock(&model.time);
    empty.durability = EB_DURABLE_NORMAL;
    w.p = &empty;
    w.disk = cv_disk_new(1);
    cv_mounted = w.disk;
    {
        eb_options o = options();
        eb_bus *bus = t_open(&o);
        eb_destroy(bus);
    }
    w.fresh = w.disk;
    w.disk = NULL;
}

/* ---- in a child of its own: a bus that aborts or hangs is a failure like any other ------------------------------------------ */

static char shown[2000]; /* why the last run failed */

#ifndef _WIN32
static struct board { /* shared with the child */
    uint64_t seed;
    int bad;
    char why[2000];
} *board;
enum { BAD_ABORT = BAD_KINDS, BAD_HANG };

static void board_make(void)
{
    FILE *file = tmpfile();
    T_MUST(file && ftruncate(fileno(file), (off_t)sizeof *board) == 0);
    board = (struct board *)mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED,
                                 fileno(file), 0);
    T_MUST(board != MAP_FAILED);
    fclose(file);
}

static int run_alone(const plan *p, int loud, unsigned seconds)
{
    int status;
    pid_t pid;
    board->bad = BAD_ABORT;
    snprintf(board->why, sizeof board->why, "the process ended");
    fflush(NULL);
    pid = fork();
    T_MUST(pid >= 0);
    if (pid == 0) {
        alarm(seconds);
        talkative = loud;
        if (!loud && !freopen("/dev/null", "w", stderr)) _exit(1);
        board->bad = run_plan(p);
        snprintf(board->why, sizeof board->why, "%s", w.why);
        _exit(0);
    }
    T_MUST(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        board->bad = BAD_HANG;
        snprintf(board->why, sizeof board->why, "no end after %u s", seconds);
    } else if (WIFSIGNALED(status)) {
        snprintf(board->why, sizeof board->why, "signal %d", WTERMSIG(status));
    }
    snprintf(shown, sizeof shown, "%s", board->why);
    return board->bad;
}
static const char *bad_name(int kind)
{
    return kind == BAD_ABORT ? "crash" : kind == BAD_HANG ? "hang" : bad_names[kind];
}
#else
static int run_alone(const plan *p, int loud, unsigned seconds)
{
    int kind;
    (void)seconds;
    talkative = loud;
    kind = run_plan(p);
    talkative = 0;
    snprintf(shown, sizeof shown, "%s", w.why);
    return kind;
}
static const char *bad_name(int kind) { return bad_names[kind]; }
#endif

/* ---- making it short ----------------------------------------------------------------------------------------------------------- */

static int64_t shrink_until_us;

/* Keeps the candidate if the same thing goes wrong. */
static int keep_if_bad(plan *best, const plan *candidate, int kind)
{
    if (ebi_platform_mono_us() > shrink_until_us) return 0;
    if (run_alone(candidate, 0, 2) != kind) return 0;
    *best = *candidate;
    return 1;
}

static void drop_ops(plan *best, int kind)
{
    static plan c;
    int chunk, at, i, again = 1;
    for (chunk = best->count / 2; chunk >= 1; chunk = chunk > 1 ? chunk / 2 : again ? 1 : 0) {
        again = 0;
        for (at = 0; at < best->count;) {
            c = *best;
            c.count -= c.count - at < chunk ? c.count - at : chunk;
            for (i = at; i < c.count; i++) c.ops[i] = best->ops[i + (best->count - c.count)];
            if (keep_if_bad(best, &c, kind)) again = 1;
            else at += chunk;
        }
    }
}

/* One operation, a little simpler; 0: there is no such way. */
static int simpler(op *o, int way)
{
    op was = *o;
    switch (way) {
    case 0: if (o->kind == OP_SEND) o->scripted = 0; break;
    case 1: if (o->kind == OP_SEND) o->a = 1; break;
    case 2: if (o->kind == OP_SEND && o->a > 1) o->a /= 2; break;
    case 3: if (o->kind == OP_SEND && o->a > 1) o->a--; break;
    case 4: if (o->kind == OP_SEND) o->idem = 0; break;
    case 5: if (o->kind == OP_SEND && o->key) o->key = 0; break;
    case 6: if (o->kind == OP_SEND && o->key < 0) o->key = 1; break;
    case 7: if (o->kind == OP_SEND && o->type < 0) o->type = 0; break;
    case 8: if (o->kind == OP_SEND) o->delayed = 0; break;
    case 9: if (o->kind == OP_SEND && o->scripted) o->scripted |= SCRIPT_PLAIN; break;
    case 10: if (o->kind == OP_SEND && (o->scripted & 255) > 1) o->scripted--; break;
    case 11: if (o->kind == OP_SEND && o->who == -2) o->who = -1; break;
    case 12: if (o->kind == OP_SEND && o->who == -1 && o->a > 1) o->who = 0; break;
    case 13: if (o->kind == OP_SEND) o->second = 0; break;
    case 14: if (o->kind == OP_PUMP && o->b > 1) o->b--; break;
    case 15: if (o->kind == OP_PUMP) o->a = EB_NONE, o->b = 1; break;
    case 16: if (o->kind != OP_SEND && o->kind != OP_SUB) o->c = 0; break;
    case 17: if (o->kind == OP_RESTART || o->kind == OP_KILL) o->ms = 0; break;
    case 18: if (o->kind == OP_RESTART || o->kind == OP_KILL) o->a = 255; break;
    case 19: if (o->kind == OP_RESTART || o->kind == OP_KILL) o->b = 0; break;
    case 20: if (o->kind == OP_KILL) o->kind = OP_RESTART; break;
    case 21: if (o->kind == OP_SUB) o->a = 1, o->b = 0, o->c = 0; break;
    case 22: if (o->kind == OP_SEND && o->type > 0) o->type = 0; break;
    case 23: if (o->kind == OP_MOVE || o->kind == OP_RETRY || o->kind == OP_OPERATOR) o->a %= 8; break;
    default: return 0;
    }
    return memcmp(&was, o, sizeof was) != 0;
}

static void simplify_ops(plan *best, int kind)
{
    static plan c;
    int i, way;
    for (i = 0; i < best->count; i++) {
        for (way = 0; way < 24; way++) {
            do c = *best;
            while (simpler(&c.ops[i], way) && keep_if_bad(best, &c, kind));
        }
    }
    c = *best;
    c.max_pending = 0;
    if (best->max_pending) keep_if_bad(best, &c, kind);
    c = *best;
    c.on_unmatched = EB_UNMATCHED_DONE;
    if (best->on_unmatched != EB_UNMATCHED_DONE) keep_if_bad(best, &c, kind);
}

static void report(uint64_t seed, int kind)
{
    static plan best;
    static const char *const policies[] = {"DONE", "DLQ", "KEEP"};
    char text[600];
    int i, count;
    plan_make(&best, seed);
    shrink_until_us = ebi_platform_mono_us() + 5000000;
    do {
        count = best.count;
        drop_ops(&best, kind);
        simplify_ops(&best, kind);
    } while (best.count < count && ebi_platform_mono_us() < shrink_until_us);
    run_alone(&best, 0, 5);
    printf("\nseed %llu: %s: %s\n", (unsigned long long)seed, bad_name(kind), shown);
    printf("  on_unmatched = %s, durability %d%s\n", policies[best.on_unmatched], best.durability,
           best.max_pending ? ", max_pending" : "");
    for (i = 0; i < best.count; i++) {
        op_text(&best.ops[i], text, sizeof text);
        printf("  %2d. %s\n", i, text);
    }
    printf("  this is what happens:\n");
    fflush(stdout);
    run_alone(&best, 1, 5);
}

/* ---- many seeds ------------------------------------------------------------------------------------------------------------------ */

/* Runs seeds until one fails: its number and *kind, or 0. */
static uint64_t run_seeds(uint64_t first, uint64_t count, int *kind)
{
    static plan p;
    uint64_t seed;
#ifndef _WIN32
    int status;
    pid_t pid;
    board->bad = BAD_NONE;
    fflush(NULL);
    pid = fork();
    T_MUST(pid >= 0);
    if (pid > 0) {
        T_MUST(waitpid(pid, &status, 0) == pid);
        if (WIFSIGNALED(status)) board->bad = WTERMSIG(status) == SIGALRM ? BAD_HANG : BAD_ABORT;
        else if (WEXITSTATUS(status) && !board->bad) board->bad = BAD_ABORT;
        *kind = board->bad;
        snprintf(shown, sizeof shown, "%s", board->why);
        return board->bad ? board->seed : 0;
    }
#endif
    for (seed = first; seed < first + count; seed++) {
#ifndef _WIN32
        board->seed = seed;
        snprintf(board->why, sizeof board->why, "the process ended");
        alarm(30);
#endif
        plan_make(&p, seed);
        *kind = run_plan(&p);
        if (*kind != BAD_NONE) break;
    }
#ifndef _WIN32
    board->bad = seed < first + count ? *kind : BAD_NONE;
    snprintf(board->why, sizeof board->why, "%s", w.why);
    exit(0);
#else
    snprintf(shown, sizeof shown, "%s", w.why);
    return seed < first + count ? seed : 0;
#endif
}

TEST the_bus_does_what_the_contract_says(uint64_t first, uint64_t count)
{
    int kind = BAD_NONE;
    uint64_t seed = run_seeds(first, count, &kind);
    if (!seed) PASS();
    report(seed, kind);
    FAILm("a seed fails; see the list above");
}

/* Goes on after a failure and says only what kind it is. */
static int tally_seeds(uint64_t first, uint64_t count)
{
    uint64_t seed, end = first + count, failed = 0;
    int kind;
    while (first < end && (seed = run_seeds(first, end - first, &kind)) != 0) {
        printf("%llu %s: %s\n", (unsigned long long)seed, bad_name(kind), shown);
        fflush(stdout);
        failed++;
        first = seed + 1;
    }
    printf("%llu of %llu seeds fail\n", (unsigned long long)failed, (unsigned long long)count);
    return failed > 0;
}

/* Sanitizers make it some ten times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MODEL_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MODEL_SLOW 1
#endif
#endif
#ifndef MODEL_SLOW
#define MODEL_SLOW 0
#endif

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    uint64_t first = MODEL_FIRST, count = MODEL_SLOW ? MODEL_SEEDS / 8 : MODEL_SEEDS, n;
    char suffix[40];
    prepare();
#ifndef _WIN32
    board_make();
#endif
    if (argc > 1) first = strtoull(argv[1], NULL, 10);
    if (argc > 2) count = strtoull(argv[2], NULL, 10);
    if (argc > 3 && strcmp(argv[3], "-k") == 0) return tally_seeds(first, count);
    if (argc > 3) {
        static plan p;
        int kind;
        plan_make(&p, first);
        kind = run_alone(&p, argv[3][1] == 'v' && argv[3][2] == 'v' ? 2 : 1, 30);
        printf("seed %llu: %s%s%s\n", (unsigned long long)first, kind ? bad_name(kind) : "passes",
               kind ? ": " : "", kind ? shown : "");
        return kind != BAD_NONE;
    }
    {
        GREATEST_INIT(); /* the arguments are ours */
        printf("seeds %llu to %llu\n", (unsigned long long)first,
               (unsigned long long)(first + count - 1));
        for (n = 0; n < count; n += PER_TEST) {
            snprintf(suffix, sizeof suffix, "%llu", (unsigned long long)(first + n));
            greatest_set_test_suffix(suffix);
            RUN_TESTp(the_bus_does_what_the_contract_says, first + n,
                      count - n < PER_TEST ? count - n : PER_TEST);
        }
        GREATEST_MAIN_END();
    }
}
