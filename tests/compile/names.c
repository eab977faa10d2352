/* The bus first, then names that the GNU dialects show and strict POSIX does not: a header must not
** hide them from the file that includes it. */
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "smoke.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static double circumference(double radius) { return 2 * M_PI * radius; }

int main(void)
{
    usleep(1);
    srandom(1);
    return random() < 0 || circumference(1) < 6 ? 1 : smoke();
}
