/* ab.c - is this header as fast as another one? Both in one program, every job in turn: A B, A B, ...
** Given are the median of the ratios B / A of all pairs, their extremes, and whether the median is at
** least 0.97. A is the old one: make -C bench ab OLD=/path/to/eventbus.h; AB='to done' for the rows
** with that in their name.
*/
#define EB_STATIC
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"
#include "work.h"

double ab_old(const char *path, int durability, int job, double seconds);
double ab_new(const char *path, int durability, int job, double seconds);

enum { PAIRS = 9 };

int main(void)
{
    static const int levels[] = {EB_DURABLE_FULL, EB_DURABLE_NORMAL};
    char a[500], b[500];
    const char *rows = getenv("AB");
    int l, job, pair, missed = 0, all = 0;
    b_heading("ab: this header beside an older one, B / A");
    snprintf(a, sizeof a, "%s", b_path("ab-old"));
    snprintf(b, sizeof b, "%s", b_path("ab-new"));
    for (l = 0; l < 2; l++) {
        for (job = 0; job < W_JOBS; job++) {
            b_samples ratio = {0}, rate = {0};
            if (rows && !strstr(w_jobs[job].name, rows)) continue;
            all++;
            ab_old(a, levels[l], job, 0.1);
            ab_new(b, levels[l], job, 0.1);
            for (pair = 0; pair < b_turns(PAIRS); pair++) {
                double x, y;
                if (pair % 2) { /* neither is always the first */
                    y = ab_new(b, levels[l], job, 0.2);
                    x = ab_old(a, levels[l], job, 0.2);
                } else {
                    x = ab_old(a, levels[l], job, 0.2);
                    y = ab_new(b, levels[l], job, 0.2);
                }
                b_add(&ratio, y / x);
                b_add(&rate, y);
            }
            missed += b_median(&ratio) < 0.97;
            printf("   %-7s %-36s %8.0f/s   %s  %s\n", b_durability(levels[l]), w_jobs[job].name,
                   b_median(&rate), b_spread(&ratio), b_median(&ratio) < 0.97 ? "MISS" : "ok");
            fflush(stdout);
            b_free(&ratio), b_free(&rate);
        }
    }
    ab_old(a, 0, -1, 0);
    ab_new(b, 0, -1, 0);
    printf("   %d of %d rows below 0.97\n", missed, all);
    return 0;
}
