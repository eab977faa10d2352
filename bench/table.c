/* table.c - Prints the table at the end: what build/summary.txt has collected, and where it ran. */
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

int main(void)
{
    char line[400];
    int pass = 0, miss = 0, slow = 0;
    FILE *f = fopen("build/summary.txt", "r");
    printf("\n== summary: a = raw SQLite, one INSERT per commit, same durability, same seconds\n");
    printf("   %s\n\n", b_machine());
    printf("      level   %-46s %10s %10s   %-33s %s\n", "what", "ours", "beside it",
           "figure, median [min .. max]", "goal");
    while (f && fgets(line, sizeof line, f)) {
        pass += strncmp(line, "PASS", 4) == 0;
        miss += strncmp(line, "MISS", 4) == 0;
        slow += line[4] == '*';
        fputs(line, stdout);
    }
    if (f) fclose(f);
    printf("\n%d goals reached, %d missed\n", pass, miss);
    if (slow) printf("* some of its turns fell into a slow spell of the disk: run it again\n");
    return 0;
}
