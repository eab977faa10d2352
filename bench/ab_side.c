/* ab_side.c - one of the two headers of ab.c, with everything in it static: -DAB_HEADER says which,
** -DAB_SIDE what its function is called. */
#define EB_STATIC
#define EVENTBUS_IMPLEMENTATION
#include AB_HEADER
#include "bench.h"
#include "work.h"

double AB_SIDE(const char *path, int durability, int job, double seconds);

/* Events per second of a job; job < 0: closes everything. A bus per kind and durability stays open. */
double AB_SIDE(const char *path, int durability, int job, double seconds)
{
    static w_bus bus[4][3];
    int d, k;
    for (d = 0; d < 4 && job < 0; d++)
        for (k = 0; k < 3; k++)
            if (bus[d][k].bus) w_close(&bus[d][k]);
    if (job < 0) return 0;
    k = w_jobs[job].kind;
    if (!bus[durability][k].bus) {
        char file[600];
        snprintf(file, sizeof file, "%s-%d-%d", path, durability, k);
        w_open(&bus[durability][k], file, durability, k);
    }
    return w_rate(&w_jobs[job], &bus[durability][k], seconds);
}
