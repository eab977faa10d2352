/* work.h - the work that the benchmarks give to a bus, and how fast it must be beside raw SQLite.
**
** Three kinds of bus: one that only stores (never started), one whose worker thread runs an empty
** handler, and one that is pumped by the caller. A job is what callers do with it for a while; its
** rate counts events, and where it says "to done" the clock stops when the last ack is committed.
**
** Include after bench.h.
*/
#ifndef WORK_H
#define WORK_H

enum { W_STORE, W_LIVE, W_PUMP }; /* kinds of bus */

typedef struct w_bus {
    eb_bus *bus;
    int kind;
    int64_t handled; /* by the one thread that runs handlers */
} w_bus;

typedef struct w_job {
    const char *name;
    int kind;            /* of bus */
    int threads, batch;  /* batch 0: eb_post, EB_NONE: eb_publish, else events per eb_send */
    double full, normal; /* at least so many times a; 0: no goal, for the charts */
} w_job;

/* a = raw SQLite, one INSERT per transaction into a lean table, same durability, same seconds. */
static const w_job w_jobs[] = {
    {"eb_post, 1 thread", W_STORE, 1, 0, 0.9, 0.8},
    {"eb_post, 2 threads", W_STORE, 2, 0, 0, 0},
    {"eb_post, 4 threads", W_STORE, 4, 0, 0, 0},
    {"eb_post, 8 threads", W_STORE, 8, 0, 3.0, 1.0},
    {"eb_post, 16 threads", W_STORE, 16, 0, 0, 0},
    {"eb_post, 32 threads", W_STORE, 32, 0, 6.0, 1.0},
    {"eb_send, 10 per call", W_STORE, 1, 10, 0, 0},
    {"eb_send, 100 per call", W_STORE, 1, 100, 25, 4},
    {"eb_send, 1000 per call", W_STORE, 1, 1000, 0, 0},
    {"eb_post to done, 1 thread", W_LIVE, 1, 0, 0.8, 0.7},
    {"eb_post to done, 8 threads", W_LIVE, 8, 0, 2.3, 1.2},
    {"eb_post to done, 32 threads", W_LIVE, 32, 0, 0, 0},
    {"eb_send to done, 10 per call", W_LIVE, 1, 10, 0, 0},
    {"eb_send to done, 100 per call", W_LIVE, 1, 100, 18, 4.5},
    {"eb_send to done, 1000 per call", W_LIVE, 1, 1000, 0, 0},
    {"eb_publish, 1 thread", W_LIVE, 1, EB_NONE, 0.5, 0.4},
    {"eb_send 1000, then eb_pump to done", W_PUMP, 1, 1000, 20, 5},
};
enum { W_JOBS = sizeof w_jobs / sizeof *w_jobs, W_BATCH_MAX = 1000, W_THREADS_MAX = 32 };

static eb_result w_empty(eb_delivery *delivery, void *user)
{
    (void)delivery;
    ++*(int64_t *)user;
    return EB_OK;
}

static void w_open(w_bus *w, const char *path, int durability, int kind)
{
    eb_options options;
    memset(w, 0, sizeof *w);
    memset(&options, 0, sizeof options);
    options.path = path;
    options.durability = durability;
    options.workers = kind == W_PUMP ? EB_NONE : 0;
    options.on_unmatched = EB_UNMATCHED_KEEP;
    options.logger.func = b_quiet;
    w->kind = kind;
    B_OK(eb_open(&w->bus, &options));
    if (kind == W_STORE) return;
    B_OK(eb_subscribe(w->bus, "*", w_empty, &w->handled, NULL, NULL));
    B_OK(eb_start(w->bus));
}

static void w_close(w_bus *w) { eb_destroy(w->bus); }

/* One caller; several of them are threads. */
typedef struct w_caller {
    const w_job *job;
    eb_bus *bus;
    int64_t until_ns, events;
    unsigned number;
} w_caller;

static void w_call(w_caller *c, eb_message *messages, char (*payloads)[B_PAYLOAD_BYTES + 1])
{
    int i, batch = c->job->batch;
    if (batch <= 0) {
        b_payload(payloads[0], c->number++);
        if (batch == 0) B_OK(eb_post(c->bus, "order.placed", payloads[0], NULL));
        else B_OK(eb_publish(c->bus, "order.placed", payloads[0], NULL));
        c->events++;
        return;
    }
    for (i = 0; i < batch; i++) b_payload(payloads[i], c->number++);
    B_OK(eb_send(c->bus, messages, (size_t)batch, NULL));
    c->events += batch;
    if (c->job->kind == W_PUMP) B_OK(eb_pump(c->bus, EB_NONE, NULL));
}

static void *w_caller_main(void *arg)
{
    w_caller *c = (w_caller *)arg;
    int i, n = c->job->batch > 0 ? c->job->batch : 1;
    eb_message *messages = (eb_message *)calloc((size_t)n, sizeof *messages);
    char(*payloads)[B_PAYLOAD_BYTES + 1] =
        (char(*)[B_PAYLOAD_BYTES + 1])calloc((size_t)n, sizeof *payloads);
    if (!messages || !payloads) b_die("calloc", "out of memory");
    for (i = 0; i < n; i++) {
        messages[i].type = "order.placed";
        messages[i].payload = payloads[i];
        messages[i].payload_len = B_PAYLOAD_BYTES;
    }
    do w_call(c, messages, payloads);
    while (b_ns() < c->until_ns);
    free(messages);
    free(payloads);
    return NULL;
}

/* Does the job for so long, then waits for the end of it all if it says "to done": events/s. */
static double w_rate(const w_job *job, w_bus *w, double seconds)
{
    w_caller callers[W_THREADS_MAX];
    pthread_t threads[W_THREADS_MAX];
    int64_t begin, end, events = 0, before = w->handled;
    int i;
    if (job->kind != w->kind) b_die(job->name, "wrong kind of bus");
    memset(callers, 0, sizeof callers);
    begin = b_ns();
    for (i = 0; i < job->threads; i++) {
        callers[i].job = job;
        callers[i].bus = w->bus;
        callers[i].until_ns = begin + (int64_t)(seconds * 1e9);
        callers[i].number = (unsigned)i * 1000000;
        if (i > 0 && pthread_create(&threads[i], NULL, w_caller_main, &callers[i]) != 0)
            b_die("pthread_create", "failed");
    }
    w_caller_main(&callers[0]);
    for (i = 1; i < job->threads; i++) pthread_join(threads[i], NULL);
    if (w->kind == W_LIVE) B_OK(eb_drain(w->bus, 60000));
    end = b_ns();
    for (i = 0; i < job->threads; i++) events += callers[i].events;
    if (w->kind != W_STORE && w->handled - before != events)
        b_die(job->name, "not every event was handled once");
    b_sleep_ms(10); /* a checkpoint that is still to be done is ours, not the next one's */
    return (double)events * 1e9 / (double)(end - begin);
}

#endif /* WORK_H */
