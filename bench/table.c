/* table.c - Prints the table at the end: what build/summary.txt has collected, and where it ran. */
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "bench.h"

int main(void)
{
    char line[400];
    int pass = 0, miss = 0;
    FILE *f = fopen("build/summary.txt", "r");
    printf("\n== summary: a = raw SQLite, one INSERT per commit, same durability, same seconds\n");
    printf("   %s\n\n", b_machine());
    printf("      durability  %-47s %-49s %s\n", "what", "figure, median [min .. max]", "target");
    while (f && fgets(line, sizeof line, f)) {
        pass += strncmp(line, "PASS", 4) == 0;
        miss += strncmp(line, "MISS", 4) == 0;
        fputs(line, stdout);
    }
    if (f) fclose(f);
    printf("\n%d targets reached, %d missed\n", pass, miss);
    return 0;
}
