/* throughput.c - How many events per second, beside raw SQLite with one INSERT per transaction?
**
** Every way to publish and every way to get done, see work.h: from one thread and from many, one by
** one and in batches, stored only and to the end of the event's life. A round takes them one after
** the other, with a run of raw SQLite (a) between each two. The ratio is to the mean of the runs
** before and after; given are its median and the extremes of all rounds. eb_post from one thread
** also stands beside raw SQLite that writes the same rows to the same tables.
**
** Writes build/throughput.tsv for the charts. Goals: the last two columns of w_jobs in work.h, and
** eb_post >= 0.8 of raw SQLite with the same tables.
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"
#include "work.h"

enum { ROUNDS = 5, SPARE = 8 };
static const double SECONDS = 0.2;

typedef struct turn {
    const w_job *job;
    w_bus *bus;
} turn;

static double work(void *arg)
{
    const turn *t = (const turn *)arg;
    return w_rate(t->job, t->bus, SECONDS);
}

static double work_raw(void *arg) { return b_raw_rate((b_raw *)arg, SECONDS); }

static void report(FILE *data, const char *level, const w_job *job, b_samples *rate,
                   b_samples *ratio, b_anchor *a)
{
    double goal = strcmp(level, "FULL") == 0 ? job->full : job->normal;
    fprintf(data, "%s\t%s\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\n", level, job->name,
            job->kind, job->threads, job->batch > 0 ? job->batch : 1, b_median(rate), b_min(rate),
            b_max(rate), b_median(ratio), b_min(ratio), b_max(ratio));
    printf("   %-36s %8.0f/s [%6.0f .. %6.0f]   %s a\n", job->name, b_median(rate), b_min(rate),
           b_max(rate), b_spread(ratio));
    if (goal > 0)
        b_verdict(level, job->name, b_rate(rate), b_rate(&a->rates),
                  b_text("%s a", b_spread(ratio)), b_text(">= %g a", goal),
                  b_median(ratio) >= goal);
}

/* eb_post from one thread beside the same rows written by plain SQL, round by round. */
static void report_same(const char *level, b_samples *post, b_samples *same)
{
    b_samples ratio = {0};
    size_t i;
    for (i = 0; i < post->n; i++) b_add(&ratio, post->v[i] / same->v[i]);
    b_verdict(level, "eb_post, 1 thread, raw with the same tables", b_rate(post),
              b_rate(same), b_spread(&ratio), ">= 0.8", b_median(&ratio) >= 0.8);
    b_free(&ratio);
}

static void measure(FILE *data, int durability)
{
    static const char *const names[] = {"store", "live", "pump"};
    b_samples rate[W_JOBS], ratio[W_JOBS], same_rate = {0}, same_ratio = {0};
    const char *level = b_durability(durability);
    w_bus bus[3];
    b_raw same;
    b_anchor a;
    turn t;
    int round, k, rounds = b_turns(ROUNDS);

    memset(rate, 0, sizeof rate);
    memset(ratio, 0, sizeof ratio);
    for (k = 0; k < 3; k++) w_open(&bus[k], b_path(names[k]), durability, k);
    b_anchor_open(&a, b_path("raw"), durability, SPARE);
    b_raw_open_same(&same, b_path("same"), durability);
    work_raw(&same);
    for (k = 0; k < W_JOBS; k++) /* warm up: statements are prepared, the WALs have their size */
        if (w_jobs[k].batch == 100 || w_jobs[k].kind == W_PUMP)
            w_rate(&w_jobs[k], &bus[w_jobs[k].kind], SECONDS);
    for (round = 0; round < rounds; round++) {
        b_turn(&a, work_raw, &same, &same_rate, &same_ratio);
        for (k = 0; k < W_JOBS; k++) {
            t.job = &w_jobs[k];
            t.bus = &bus[t.job->kind];
            b_turn(&a, work, &t, &rate[k], &ratio[k]);
            b_progress(level, round * W_JOBS + k + 1, rounds * W_JOBS);
        }
    }
    printf("   durability %s, %d rounds, median [min .. max]; turns repeated for a slow disk: %d\n",
           level, rounds, a.repeated);
    printf("   %-36s %8.0f/s [%6.0f .. %6.0f]\n", "a: raw SQLite, one INSERT per commit",
           b_median(&a.rates), b_min(&a.rates), b_max(&a.rates));
    if (durability == EB_DURABLE_FULL && b_median(&a.rates) < 1000)
        printf("   note: an fsync took %.1f ms throughout, which flatters shared commits\n",
               1000 / b_median(&a.rates));
    fprintf(data, "%s\traw\t-1\t1\t1\t%.0f\t%.0f\t%.0f\t1\t1\t1\n", level, b_median(&a.rates),
            b_min(&a.rates), b_max(&a.rates));
    report_same(level, &rate[0], &same_rate);
    for (k = 0; k < W_JOBS; k++) {
        report(data, level, &w_jobs[k], &rate[k], &ratio[k], &a);
        b_free(&rate[k]), b_free(&ratio[k]);
    }
    b_free(&same_rate), b_free(&same_ratio);
    for (k = 0; k < 3; k++) w_close(&bus[k]);
    b_raw_close(&same);
    b_anchor_close(&a);
}

int main(void)
{
    FILE *data;
    b_heading("throughput: events per second, as multiples of a");
    data = b_data("throughput", "level\tjob\tkind (0 stored only, 1 to done, 2 pumped, -1 raw)\t"
                                "threads\tbatch\trate\tmin\tmax\tratio\tmin\tmax");
    measure(data, EB_DURABLE_FULL);
    measure(data, EB_DURABLE_NORMAL);
    fclose(data);
    return 0;
}
