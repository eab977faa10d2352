/* model.h - the contract of eventbus.h as a small program: what an event may be, when its handler may
** start and when it has to, what every outcome, every operator and every crash makes of it.
**
** It knows no threads, no files and no engine. test_model.c feeds the same operations to this model
** and to a bus, and tells the model what it sees: handler calls, results, rows. Every rule stands
** beside the sentence of the contract that it is.
**
** The contract leaves some freedom: which of several due events comes first, what of a commit that
** failed half way is in the file, which events a bus holds claimed between two pumps. There the
** model follows what it sees: an event has one state that it should be in (`now`) and, while that is
** open, a list of older ones that a crash may bring back (`past`).
*/
#ifndef MODEL_H
#define MODEL_H
#include "test.h"

enum { M_EVENTS = 400, M_TYPES = 4, M_KEYS = 4, M_SUBS = 6, M_ERRORS = 16, M_DAY = 86400000 };

static const char *const m_types[M_TYPES] = {"a.x", "a.y", "b.x", "c"};
static const char *const m_keys[M_KEYS] = {NULL, "K1", "K2", "K3"};
static const char *const m_patterns[] = {"a.*", "*", "a.x", "b.*", "*.x", "c", "a.y"};
enum { M_PATTERNS = sizeof m_patterns / sizeof *m_patterns };

/* Retry policies, as a subscription gives them and as they resolve over the bus's default. */
static const int64_t m_schedule[2] = {5, 50};
typedef struct m_policy {
    eb_retry_policy given;
    int max_retries, scheduled;
    int64_t base_ms, max_ms;
} m_policy;
static const m_policy m_policies[] = {
    {{3, 100, 0, 0, 0, NULL, 0}, 3, 0, 100, 30000},
    {{EB_NONE, 0, 0, 0, 0, NULL, 0}, 0, 0, 1000, 30000},
    {{1, 10, 0, 0, 0, NULL, 0}, 1, 0, 10, 30000},
    {{2, EB_NONE, 0, 0, 0, NULL, 0}, 2, 0, 0, 30000},
    {{0, 0, 0, 0, 0, m_schedule, 2}, 2, 1, 0, 0},
    {{0, 0, 2500, 0, 0, NULL, 0}, 3, 0, 1000, 2500},
};
enum { M_POLICIES = sizeof m_policies / sizeof *m_policies, M_BUS_ATTEMPTS = 4 };

/* "before attempt N (N >= 2) the wait is min(base * multiplier^(N-2), max_delay)"; a schedule lists
** the waits one by one, the last one repeats. */
static int64_t m_delay(const m_policy *p, int failed)
{
    int64_t wait = p->base_ms;
    int i;
    if (p->scheduled) return m_schedule[failed > 2 ? 1 : failed - 1];
    for (i = 1; i < failed && wait < p->max_ms; i++) wait *= 2;
    return wait < p->max_ms ? wait : p->max_ms;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Where an event is. NOWHERE: not stored (yet); GONE: purged. */
enum { M_NOWHERE, M_LIVE, M_DONE, M_DEAD, M_GONE };

/* What a live event waits for. DELAYED: untried; BY_HAND: an operator set it to processing. */
enum { M_AT_ONCE, M_DELAYED, M_RETRYING, M_SNOOZED, M_BY_HAND };

/* Texts of failed attempts. Of the last four the model knows only how they begin. */
enum { M_FAIL, M_CODE, M_REASON, M_OPERATOR, M_TIMED_OUT, M_INTERRUPTED, M_NO_HANDLER };
typedef struct m_error { short kind, arg; } m_error;

typedef struct m_state {
    int place, wait;
    int64_t due_ms;  /* of DELAYED, RETRYING and SNOOZED */
    int came;        /* that time was reached once while the bus worked: it may be taken as due */
    int failed;      /* "retry_count = number of failed attempts = length of last_error" */
    m_error errors[M_ERRORS];
    int tried;       /* a handler was called in this life */
    int fresh;       /* "published in a started bus and never attempted"; 2: one can argue */
    int suspect;     /* was claimed beside others in a process that died: runs alone */
} m_state;

typedef struct m_event {
    int behind;      /* the one of its key that it last had to wait for */
    int n, type, key, idem; /* n: position in the order of publishing */
    int64_t seq;            /* 0: not known yet */
    eb_id id;
    int64_t created_lo, created_hi, died_ms;
    m_state now, *past;
    int past_count, past_room;
    /* what its handlers do */
    uint64_t script;
    int scripted, calls;
    /* what was last seen of its row: a token, an attempt counted, status */
    int claimed, counted, row_attempts, row_pending;
    int crashes; /* handler starts in this life that ended the process */
    /* within one operation */
    int may;     /* it was startable at some moment since the bus could last claim it */
    int could;   /* the same without looking at keys */
    int ever;    /* likewise, at any time in this operation: it may have been claimed */
    int endable; /* nobody matched it at such a moment, and the policy ends it */
    int fuzzy;   /* what it is depends on something nobody promised: the row will tell */
    int dirty;   /* its outcome may still be in memory only */
    int unsettled; /* likewise, since a commit failed in an earlier operation */
    int ghost;   /* revoked from outside while claimed: the handler may still start, in vain */
    int foreign; /* changed from outside while the bus pumped: it need not have seen that */
    int revoked; /* given up through the bus's own store: must not start any more */
    int plain;   /* nothing ever happened to it: starts in order of publishing */
} m_event;

typedef struct m_sub {
    int alive, pattern, policy;
    int64_t timeout_ms; /* EB_NONE: none */
    int64_t order;
    eb_id id;
} m_sub;

/* The whole of it. */
static struct {
    t_time time;
    m_event *events;
    int count;
    m_sub subs[M_SUBS];
    int64_t orders;
    int matched[M_TYPES]; /* somebody subscribed to it */
    int started, on_unmatched;
    int64_t high_ms;   /* the highest wall time ever */
    int64_t lo_ms, hi_ms; /* the wall time was between these in this operation */
    int64_t last_seq;
    /* since the bus was opened; exact 0: something happened that makes them debatable */
    int64_t published, delivered, failed_attempts, died, unmatched;
    int exact;
} model;

static int64_t m_now(void) { return model.time.now_ms; }

/* The clock has moved. */
static void m_clock_seen(void)
{
    if (m_now() > model.high_ms) model.high_ms = m_now();
    if (m_now() < model.lo_ms) model.lo_ms = m_now();
    if (m_now() > model.hi_ms) model.hi_ms = m_now();
}

/* ---- "'*' matches any run of characters, dots included, also an empty run; nothing else" ------- */

static int m_glob(const char *pattern, const char *type)
{
    if (*pattern == '*') return m_glob(pattern + 1, type) || (*type && m_glob(pattern, type + 1));
    return *pattern == *type && (!*pattern || m_glob(pattern + 1, type + 1));
}

static int m_sub_matches(const m_sub *s, int type)
{
    return s->alive && m_glob(m_patterns[s->pattern], m_types[type]);
}

/* "All unnamed handlers that match an event run one after the other, in order of subscribing": the
** next one after `order`, NULL: none. */
static m_sub *m_sub_next(int type, int64_t order)
{
    m_sub *best = NULL;
    int i;
    for (i = 0; i < M_SUBS; i++) {
        m_sub *s = &model.subs[i];
        if (s->order > order && (!best || s->order < best->order) && m_sub_matches(s, type))
            best = s;
    }
    return best;
}

static void m_subs_changed(void)
{
    int i, type;
    for (type = 0; type < M_TYPES; type++) model.matched[type] = m_sub_next(type, 0) != NULL;
    for (i = 0; i < model.count; i++)
        if (!model.matched[model.events[i].type]) model.events[i].plain = 0;
}

/* The most attempts that a handler of this type grants. */
static int m_most_attempts(int type)
{
    int i, most = 1;
    for (i = 0; i < M_SUBS; i++)
        if (m_sub_matches(&model.subs[i], type) && m_policies[model.subs[i].policy].max_retries >= most)
            most = m_policies[model.subs[i].policy].max_retries + 1;
    return most;
}

/* ---- changing an event ------------------------------------------------------------------------- */

/* A new state; the old one is what a crash may bring back. */
static m_state *m_change(m_event *e)
{
    if (e->past_count == e->past_room) {
        e->past_room = e->past_room ? e->past_room * 2 : 4;
        e->past = (m_state *)realloc(e->past, (size_t)e->past_room * sizeof *e->past);
        T_MUST(e->past);
    }
    e->past[e->past_count++] = e->now;
    return &e->now;
}

/* "when [the call] returns, the event is on disk": what was before cannot come back. */
static void m_committed(m_event *e)
{
    e->past_count = 0;
    e->dirty = 0;
}

static void m_error_add(m_state *s, int kind, int arg)
{
    T_MUST(s->failed < M_ERRORS);
    s->errors[s->failed].kind = (short)kind;
    s->errors[s->failed].arg = (short)arg;
    s->failed++;
}

static void m_wait(m_state *s, int wait, int64_t due_ms)
{
    s->wait = wait;
    s->due_ms = due_ms;
    s->came = 0;
}

static void m_born(m_event *e, int64_t due_ms, int delayed)
{
    m_state *s = &e->now;
    memset(s, 0, sizeof *s);
    s->place = M_LIVE;
    m_wait(s, delayed ? M_DELAYED : M_AT_ONCE, due_ms);
    s->fresh = model.started;
    e->plain = !e->key && !delayed && model.matched[e->type];
}

/* "eb_dlq_retry: pending, retry_count 0, last_error NULL", due at once; `UPDATE events`: "dlq to
** pending is a DLQ retry; done to pending runs it again (retry_count 0)". Not fresh: "what ... was
** retried from the DLQ stays pending until somebody matches". */
static void m_revive(m_state *s)
{
    memset(s, 0, sizeof *s);
    s->place = M_LIVE;
    s->wait = M_AT_ONCE;
}

/* "an operator gives a live event up": a dead letter; "its text counts as one failed attempt". */
static void m_give_up(m_state *s, int kind, int arg)
{
    m_error_add(s, kind, arg);
    s->place = M_DEAD;
}

/* What a handler's attempt comes to. */
enum { M_OUT_DONE, M_OUT_FAIL, M_OUT_REJECT, M_OUT_SNOOZE };
static void m_outcome(m_state *s, int outcome, const m_sub *sub, int kind, int arg, int64_t ms)
{
    const m_policy *p = &m_policies[sub->policy];
    s->fresh = 0;
    s->tried = 1;
    switch (outcome) {
    case M_OUT_DONE: /* only that clears the suspicion: "its handler starts at most max_retries + 2
                     ** times", so no later crash of it may be in a batch, uncounted */
        s->suspect = 0;
        s->place = M_DONE;
        break;
    case M_OUT_SNOOZE: /* "later, without spending an attempt" */
        m_wait(s, M_SNOOZED, m_now() + ms);
        break;
    default:
        /* "The failing handler's policy decides the wait. ... The event dies when that reaches
        ** max_retries + 1." "eb_reject: no retry can help: dead-letter now" */
        m_error_add(s, kind, arg);
        if (outcome == M_OUT_REJECT || s->failed >= p->max_retries + 1) s->place = M_DEAD;
        else m_wait(s, M_RETRYING, m_now() + m_delay(p, s->failed));
    }
}

/* "its event gets one failed attempt ("interrupted ..."), due at once, or goes to the DLQ if that
** was its last." `most`: how many attempts it has. */
static void m_charge(m_state *s, int most)
{
    m_error_add(s, M_INTERRUPTED, 0);
    s->tried = 1;
    s->fresh = 0;
    s->suspect = 2; /* either: it runs alone anyway once it is counted */
    if (s->failed >= most) s->place = M_DEAD;
    else m_wait(s, M_AT_ONCE, 0);
}

/* "none is charged, and each runs again alone" */
static void m_acquit(m_state *s)
{
    m_wait(s, M_AT_ONCE, 0);
    s->suspect = 1;
    s->fresh = 0;
}

/* The unmatched policy: "DONE applies only to an event published in a started bus and never
** attempted", DLQ likewise; '"No handler" counts as one failed attempt'. */
static void m_end_unmatched(m_state *s)
{
    if (model.on_unmatched == EB_UNMATCHED_DLQ) m_give_up(s, M_NO_HANDLER, 0);
    else s->place = M_DONE;
}

/* ---- when a handler may start, and when it must -------------------------------------------------- */

/* Its time has come. "when it becomes due it takes its turn" */
static int m_due(const m_event *e)
{
    return e->now.wait == M_AT_ONCE || (e->now.wait != M_BY_HAND && e->now.due_ms <= m_now());
}

/* Whether a later one of its key has to wait for e. "a later one waits while an earlier one is
** running, due, waiting for a retry or snoozed. An earlier one does not hold up later ones while it
** is merely delayed and untried, dead, paused or matched by nobody"; "an event set to processing by
** hand holds it until that is changed or the next start".
** sure = 1: it must wait; 0: it may have to. */
static int m_holds(const m_event *e, int sure)
{
    if (e->now.place != M_LIVE || e->fuzzy) return !sure && e->fuzzy;
    if (e->now.wait == M_BY_HAND) return !sure || !(e->foreign || e->unsettled);
    if (!model.matched[e->type]) return 0;
    if (e->now.wait == M_DELAYED && !m_due(e)) return !sure && e->now.came;
    if (sure && (e->foreign || e->unsettled || e->endable)) return 0; /* it may be over */
    return 1;
}

/* An event that is in somebody's hands holds its key, wherever it stands: two of a key never run at the
** same time. */
static void m_hands(int *held, int sure)
{
    int i;
    for (i = 0; i < model.count; i++) {
        const m_event *e = &model.events[i];
        if (e->key && e->now.place == M_LIVE && e->now.wait == M_BY_HAND && m_holds(e, sure))
            held[e->key] = i + 1;
    }
}

/* Time has passed or something has changed while the bus could look: notes what may start now, what
** the policy ends, whose time has come. */
static void m_moment(void)
{
    int held[M_KEYS] = {0, 0, 0, 0}, i;
    m_clock_seen();
    m_hands(held, 1);
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        if (e->now.place != M_LIVE) continue;
        if (m_due(e)) e->now.came = 1;
        if (e->now.wait != M_BY_HAND && e->now.came) {
            if (model.matched[e->type]) {
                e->could = e->ever = 1;
                if (!e->key || !held[e->key]) e->may = 1;
                else e->behind = held[e->key] - 1;
            } else if (e->now.fresh && model.on_unmatched != EB_UNMATCHED_KEEP) {
                e->endable = 1;
            }
        }
        if (e->key && m_holds(e, 1)) held[e->key] = i + 1;
    }
}

/* After a pump that ran until nothing was due: an event that should have run, NULL: none.
** *late: the earliest time at which one that waits must run, INT64_MAX: none. */
static m_event *m_left_over(int64_t *late)
{
    int held[M_KEYS] = {0, 0, 0, 0}, i;
    m_event *left = NULL;
    *late = INT64_MAX;
    m_hands(held, 0);
    for (i = 0; i < model.count; i++) /* the bus need not know yet that its head has gone */
        if (model.events[i].key && model.events[i].foreign) held[model.events[i].key] = i + 1;
    for (i = 0; i < model.count; i++) {
        m_event *e = &model.events[i];
        if (e->now.place != M_LIVE && !e->fuzzy) continue;
        if (!e->fuzzy && !e->foreign && !e->unsettled && e->now.wait != M_BY_HAND &&
            !(e->key && held[e->key])) {
            int ends = !model.matched[e->type] && e->now.fresh == 1 &&
                       model.on_unmatched != EB_UNMATCHED_KEEP;
            if (model.matched[e->type] || ends) {
                if (m_due(e)) left = left ? left : e;
                else if (e->now.due_ms < *late && model.matched[e->type]) *late = e->now.due_ms;
            }
        }
        if (e->key && m_holds(e, 0)) held[e->key] = 1;
    }
    return left;
}

/* Whether some live event waits for exactly this time. */
static int m_somebody_waits_until(int64_t due_ms)
{
    int i;
    for (i = 0; i < model.count; i++) {
        const m_event *e = &model.events[i];
        if (e->fuzzy || e->unsettled || e->foreign) return 1;
        if (e->now.place == M_LIVE && e->now.wait != M_AT_ONCE && e->now.wait != M_BY_HAND &&
            e->now.due_ms == due_ms)
            return 1;
    }
    return 0;
}

/* ---- what the file may say --------------------------------------------------------------------- */

typedef struct m_row { /* of one event, wherever it is */
    int place;
    int64_t seq;
    int pending; /* status: 1 pending, 0 processing */
    int attempts, failed, suspect, max_attempts; /* max_attempts 0: NULL */
    int64_t due_ms; /* -1: NULL */
    int token;      /* there is one */
    int64_t died_ms;
    char errors[1000]; /* "" : NULL */
} m_row;

static void m_error_text(const m_error *e, char *out, size_t cap)
{
    switch (e->kind) {
    case M_FAIL: snprintf(out, cap, "failed %d", e->arg); break;
    case M_CODE: snprintf(out, cap, "%s", eb_strerror((eb_result)e->arg)); break;
    case M_REASON: snprintf(out, cap, "given up %d", e->arg); break;
    case M_OPERATOR: snprintf(out, cap, "moved by operator"); break;
    case M_TIMED_OUT: snprintf(out, cap, "timed out"); break;
    case M_INTERRUPTED: snprintf(out, cap, "interrupted"); break;
    default: snprintf(out, cap, "no handler");
    }
}

/* last_error is "a JSON array, one text per failed attempt", NULL if there is none. */
static int m_errors_fit(const m_state *s, const char *json)
{
    char is[200], wanted[200];
    int i;
    if (!json || !json[0]) return s->failed == 0;
    if (t_errors(json, 0, is, sizeof is) != s->failed || s->failed == 0) return 0;
    for (i = 0; i < s->failed; i++) {
        m_error_text(&s->errors[i], wanted, sizeof wanted);
        t_errors(json, i, is, sizeof is);
        if (s->errors[i].kind >= M_TIMED_OUT) is[strlen(wanted)] = 0;
        if (strcmp(is, wanted) != 0) return 0;
    }
    return 1;
}

/* 0.1.0 wrote the time of day for "at once". */
static int m_at_once_fits(int64_t due_ms)
{
#ifdef MODEL_OLD
    return due_ms <= model.high_ms;
#else
    return due_ms <= 0;
#endif
}

/* NULL if the row shows event e in state s, else what differs. */
static const char *m_row_differs(const m_event *e, const m_state *s, const m_row *r)
{
    if (s->place != r->place && !(s->place == M_NOWHERE && r->place == M_GONE) &&
        !(s->place == M_GONE && r->place == M_NOWHERE))
        return "where it is";
    if (s->place == M_NOWHERE || s->place == M_GONE) return NULL;
    if (s->failed != r->failed) return "retry_count";
    if (!m_errors_fit(s, r->errors)) return "the error texts";
    if (s->place != M_LIVE) return NULL;
    if (r->token) { /* claimed */
        if (s->wait == M_BY_HAND) return "a claim on what an operator set to processing";
        if (r->pending) return "claimed but pending";
        if (r->due_ms != -1) return "claimed but with a due time";
        if (s->wait != M_AT_ONCE && !s->came && !e->claimed) return "a claim before its time";
        if (!e->ever && !e->claimed) return "a claim before its time or without a handler";
        return NULL;
    }
    if (s->wait == M_BY_HAND) {
        if (r->pending) return "pending though an operator set it to processing";
        return r->due_ms == -1 ? NULL : "a due time though an operator set it to processing";
    }
    if (s->failed == 0 && !r->pending) return "processing though nobody works on it";
    if (s->wait == M_AT_ONCE)
        return m_at_once_fits(r->due_ms) ? NULL : "a due time though it is due at once";
    /* "A retry stays processing until its last attempt" */
    if (s->failed > 0 && r->pending && !s->came) return "pending though it waits for a retry";
    if (r->due_ms == s->due_ms || (s->came && m_at_once_fits(r->due_ms))) return NULL;
    return "its due time";
}

/* The suspect mark, where it is a promise. */
static const char *m_suspect_differs(const m_state *s, const m_row *r)
{
#ifdef MODEL_OLD
    (void)s;
    (void)r;
    return NULL;
#else
    if (s->place != M_LIVE || s->suspect == 2 || s->suspect == (r->suspect > 0)) return NULL;
    return s->suspect ? "not marked though it must run alone" : "marked as a suspect";
#endif
}

/* Follows the row where the model left it open. */
static void m_learn(m_event *e, const m_row *r)
{
    m_state *s = &e->now;
    e->past_count = 0;
    e->claimed = e->counted = e->row_attempts = e->row_pending = 0;
    if (r->seq) e->seq = r->seq;
    if (s->place == M_DEAD) e->died_ms = r->died_ms;
    if (s->place != M_LIVE) return;
    e->claimed = r->token;
    e->counted = r->attempts > r->failed;
    e->row_attempts = r->max_attempts;
    e->row_pending = r->pending;
    s->suspect = r->suspect > 0;
    if (s->suspect) e->plain = 0;
    if (s->wait == M_AT_ONCE || s->wait == M_BY_HAND) return;
    if (r->token) return; /* its outcome may wait for the lock, and will say what it was */
    if (r->due_ms <= 0 || r->due_ms != s->due_ms) m_wait(s, M_AT_ONCE, 0);
}

static void m_describe(const m_state *s, char *out, size_t cap)
{
    static const char *const places[] = {"nowhere", "live", "done", "dead", "purged"};
    static const char *const waits[] = {"at once", "delayed", "retrying", "snoozed", "by hand"};
    size_t n;
    int i;
    snprintf(out, cap, "%s", places[s->place]);
    n = strlen(out);
    if (s->place == M_LIVE && n < cap)
        snprintf(out + n, cap - n, ", %s", waits[s->wait]);
    n = strlen(out);
    if (s->place == M_LIVE && s->wait >= M_DELAYED && s->wait <= M_SNOOZED)
        snprintf(out + n, cap - n, " until %+lld", (long long)(s->due_ms - m_now()));
    for (i = 0; i < s->failed; i++) {
        char text[120];
        m_error_text(&s->errors[i], text, sizeof text);
        n = strlen(out);
        if (n < cap) snprintf(out + n, cap - n, "%s%s", i ? ", " : ", errors: ", text);
    }
}

static void m_describe_row(const m_row *r, char *out, size_t cap)
{
    static const char *const places[] = {"nowhere", "live", "done", "dead", "purged"};
    size_t n;
    snprintf(out, cap, "%s", places[r->place]);
    n = strlen(out);
    if (r->place == M_LIVE && r->due_ms >= 0)
        snprintf(out + n, cap - n, ", due_ms %s%lld", r->due_ms ? "now " : "",
                 (long long)(r->due_ms ? r->due_ms - m_now() : 0));
    n = strlen(out);
    if (r->place == M_LIVE)
        snprintf(out + n, cap - n, ", %s, attempts %d, failed %d, suspect %d%s",
                 r->pending ? "pending" : "processing", r->attempts, r->failed, r->suspect,
                 r->token ? ", claimed" : "");
    n = strlen(out);
    if (r->errors[0] && n < cap) snprintf(out + n, cap - n, ", errors %s", r->errors);
}
#endif /* MODEL_H */
