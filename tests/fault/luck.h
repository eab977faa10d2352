/* luck.h - random numbers for tests: the same everywhere for the same seed, so that a failure can
** be replayed. No state but the caller's.
*/
#ifndef LUCK_H
#define LUCK_H
#include <stdint.h>

#if defined(__GNUC__)
#define LUCK_FN __attribute__((unused)) static
#else
#define LUCK_FN static
#endif

typedef struct luck { uint64_t state; } luck;

/* SplitMix64: any state is a good one. */
LUCK_FN uint64_t luck_next(luck *l)
{
    uint64_t z = (l->state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* 0 to n - 1; n > 0 */
LUCK_FN int luck_below(luck *l, int n) { return (int)(luck_next(l) % (uint64_t)n); }

/* One of n: luck_one_in(l, 4) is 1 a quarter of the time. */
LUCK_FN int luck_one_in(luck *l, int n) { return luck_below(l, n) == 0; }

/* A generator of its own for everything that has a number. */
LUCK_FN luck luck_seeded(uint64_t seed, uint64_t stream)
{
    luck l;
    l.state = seed * UINT64_C(0xD1342543DE82EF95) + stream * UINT64_C(0x9E6C63D0876A9A47) + 1;
    luck_next(&l);
    return l;
}
#endif /* LUCK_H */
