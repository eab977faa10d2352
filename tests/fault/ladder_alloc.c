/* ladder_alloc.c - running out of memory at any moment loses nothing, leaks nothing and crashes
** nothing.
**
** For every scene of scenes.h the n-th allocation fails, n = 1, 2, 3, ... until the scene does not
** reach it any more: of the bus's own allocations (eb_options.allocator), or of SQLite's (lookaside
** off, so that all of them are seen); once, or from the n-th on. Every call must say EB_ERR_NOMEM
** or succeed; both allocators must balance when the bus is closed; the same bus must work
** afterwards; the ledger must agree.
**
**     ladder_alloc                       everything
**     ladder_alloc every 40              every 40th step only
**     ladder_alloc post sqlite once 17   one step alone; every failure prints this line
**
** Files and ledgers that were judged before are not judged again; FAULT_THOROUGH=1 in the
** environment: always. make -C tests quick T=ladder_alloc, then tests/build/plain/ladder_alloc
*/
#include "scenes.h"

/* ---- two allocators that fail ---------------------------------------------------------------- */

enum { OURS = 1, SQLITES = 2 };

static struct {
    int who, sticky; /* who 0: nobody */
    int64_t at, count, fired;
} mem;
static sqlite3_mem_methods real_mem;

/* 1 if this allocation has to fail. */
static int mem_step(int who)
{
    int64_t count, at = __atomic_load_n(&mem.at, __ATOMIC_SEQ_CST);
    if (!(__atomic_load_n(&mem.who, __ATOMIC_SEQ_CST) & who)) return 0;
    count = __atomic_add_fetch(&mem.count, 1, __ATOMIC_SEQ_CST);
    if (count < at || (count > at && !mem.sticky)) return 0;
    __atomic_add_fetch(&mem.fired, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static int ours_fail(void) { return mem_step(OURS); }
static void *sqlite_malloc(int size) { return mem_step(SQLITES) ? NULL : real_mem.xMalloc(size); }
static void *sqlite_realloc(void *ptr, int size)
{
    return mem_step(SQLITES) ? NULL : real_mem.xRealloc(ptr, size);
}

static void mem_heal(void) { __atomic_store_n(&mem.who, 0, __ATOMIC_SEQ_CST); }

/* Before SQLite is used. */
static void mem_install(void)
{
    sqlite3_mem_methods m;
    T_MUST(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_mem) == SQLITE_OK);
    m = real_mem;
    m.xMalloc = sqlite_malloc;
    m.xRealloc = sqlite_realloc;
    T_MUST(sqlite3_config(SQLITE_CONFIG_MALLOC, &m) == SQLITE_OK);
    T_MUST(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) == SQLITE_OK);
}

/* ---- one step -------------------------------------------------------------------------------- */

static const struct { const char *name; int who; } kinds[] = {{"ours", OURS}, {"sqlite", SQLITES}};
enum { KINDS = (int)(sizeof kinds / sizeof *kinds) };
static const char *const modes[] = {"once", "sticky"};

static struct { int kind, sticky; int64_t at; } plan;

static void arm(void)
{
    mem.count = mem.fired = 0;
    mem.at = plan.at;
    mem.sticky = plan.sticky;
    __atomic_store_n(&mem.who, kinds[plan.kind].who, __ATOMIC_SEQ_CST);
}

/* Out of memory is said as such. A commit that was cut short by it may be "unknown"; waiting for
** the end of what cannot be recorded may time out. */
static int allowed(const char *call, eb_result rc)
{
    return rc == EB_ERR_NOMEM || rc == EB_ERR_UNKNOWN ||
           (rc == EB_ERR_TIMEOUT && strncmp(call, "eb_drain", 8) == 0);
}

/* The scene with the at-th allocation failing; 0: it noticed nothing, there are fewer. */
static int rung(const scene *s, int64_t at)
{
    plan.at = at;
    snprintf(scene_command, sizeof scene_command, "ladder_alloc %s %s %s %lld", s->name,
             kinds[plan.kind].name, modes[plan.sticky], (long long)at);
    scene_fault(s, arm);
    return mem.fired > 0;
}

/* All steps of one scene. */
TEST climb(const scene *s, int kind, int sticky)
{
    plan.kind = kind;
    plan.sticky = sticky;
    if (scene_climb(s, rung)) FAILm("see above");
    PASS();
}

/* One step again. */
static int replay(char **argv)
{
    int i, kind, sticky;
    for (i = 0; i < SCENES; i++)
        for (kind = 0; kind < KINDS; kind++)
            for (sticky = 0; sticky < 2; sticky++) {
                if (strcmp(scenes[i].name, argv[1]) || strcmp(kinds[kind].name, argv[2]) ||
                    strcmp(modes[sticky], argv[3])) continue;
                plan.kind = kind;
                plan.sticky = sticky;
                return scene_replayed(rung(&scenes[i], atoll(argv[4])));
            }
    fprintf(stderr, "%s SCENE ours|sqlite once|sticky N\n", argv[0]);
    return 2;
}

GREATEST_MAIN_DEFS();
int main(int argc, char **argv)
{
    int i, kind, sticky, failed = 0;
    char suffix[80];
    mem_install();
    scene_init("ladder-alloc");
    scene_no_memory = ours_fail;
    w.allowed = allowed;
    w.heal = mem_heal;
    if (argc == 5) {
        failed = replay(argv);
        scene_fini();
        return failed;
    }
    if (scene_arguments(argc, argv)) argc = 1;
    {
        GREATEST_MAIN_BEGIN();
        for (i = 0; i < SCENES; i++)
            for (kind = 0; kind < KINDS; kind++)
                for (sticky = 0; sticky < 2; sticky++) {
                    snprintf(suffix, sizeof suffix, "%s_%s_%s", scenes[i].name, kinds[kind].name,
                             modes[sticky]);
                    greatest_set_test_suffix(suffix);
                    RUN_TESTp(climb, &scenes[i], kind, sticky);
                }
        scene_fini();
        putchar('\n');
        ledger_total("failed allocations", scene_steps, scene_failed, "1 of %lld taken",
                     (long long)scene_every);
        GREATEST_MAIN_END();
    }
}
