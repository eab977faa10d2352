/* ladder_io.c - a disk that fails at any moment loses nothing.
**
** For every scene of scenes.h and every kind of disk operation of vfs.h the n-th operation fails,
** n = 1, 2, 3, ... until the scene does not reach it any more; once, or from then on until the disk
** is healed. How it fails:
**     ioerr   with an I/O error
**     late    the same, but a write, truncate or delete has happened nevertheless
**     rough   ioerr, on a disk for which SQLite pads its commits
**     full    as on a full disk, with half of the write done; not for a sync: a full disk found
**             then is an I/O error
**     busy    as if somebody had it locked; only where something is locked: a VFS that says
**             SQLITE_BUSY to a read, write or sync breaks its contract, a checkpoint takes it for
**             "there are readers"
** And twice: the n-th write fails late, and another one while the bus is at mending that, the 1st
** to 12th after it; the same with syncs.
** Every call must succeed or say what happened; nothing may leak; the same bus must work when the
** disk does; the ledger must agree: what was refused is not there, what was acknowledged is, and
** EB_ERR_UNKNOWN means either.
**
**     ladder_io                          everything
**     ladder_io every 20                 every 20th step only
**     ladder_io post sync ioerr once 3   one step alone; every failure prints this line
**     ladder_io post write late 4 3      the third write, and the fourth after it
**
** Files and ledgers that were judged before are not judged again; FAULT_THOROUGH=1 in the
** environment: always. make -C tests quick T=ladder_io, then tests/build/plain/ladder_io
*/
#include "scenes.h"

static const struct { const char *name; int code, rough; } codes[] = {
    {"ioerr", VFS_IOERR, 0}, {"late", VFS_LATE, 0}, {"rough", VFS_IOERR, 1}, {"full", VFS_FULL, 0},
    {"busy", VFS_BUSY, 0}};
enum { IOERR, LATE, CODES = (int)(sizeof codes / sizeof *codes) };
enum { AGAIN = 12 }; /* a second fault comes so many operations later at most */

static struct { int kind, code, sticky, again; int64_t at; } plan;
static int64_t unknown_answers;

/* Whether a disk could answer so, and differently from a plain I/O error. */
static int possible(int kind, int code)
{
    if (codes[code].code == VFS_LATE)
        return kind == VFS_WRITE || kind == VFS_TRUNCATE || kind == VFS_DELETE;
    if (codes[code].code == VFS_FULL) return kind != VFS_SYNC;
    if (codes[code].rough) return kind == VFS_WRITE || kind == VFS_SYNC;
    if (codes[code].code == VFS_BUSY)
        return kind == VFS_LOCK || kind == VFS_SHMLOCK || kind == VFS_SHMMAP;
    return 1;
}

static void arm(void)
{
    vfs_arm(vfs_names[plan.kind], codes[plan.code].code, plan.at, plan.sticky);
    if (plan.again) vfs_again(plan.again);
}

/* The name of the fault, "unknown" from a commit, and a wait that ran out; a lock that cannot be
** had when starting looks like another owner. */
static int allowed(const char *call, eb_result rc)
{
    int code = codes[plan.code].code;
    if (rc == EB_ERR_UNKNOWN) return LEDGER_ADD(unknown_answers, 1) > 0;
    if (rc == EB_ERR_TIMEOUT) return strncmp(call, "eb_drain", 8) == 0;
    if (rc == EB_ERR_OWNED) return code == VFS_BUSY && strncmp(call, "eb_start", 8) == 0;
    if (rc == EB_ERR_IO) return code == VFS_IOERR || code == VFS_LATE;
    if (rc == EB_ERR_FULL) return code == VFS_FULL;
    if (rc == EB_ERR_BUSY) return code == VFS_BUSY;
    return 0;
}

/* The scene with the at-th operation failing; 0: it noticed nothing, there are fewer. */
static int rung(const scene *s, int64_t at)
{
    char mode[16];
    plan.at = at;
    snprintf(mode, sizeof mode, "%d", plan.again);
    snprintf(scene_command, sizeof scene_command, "ladder_io %s %s %s %s %lld", s->name,
             vfs_names[plan.kind], codes[plan.code].name,
             plan.again ? mode : plan.sticky ? "sticky" : "once", (long long)at);
    vfs_rough = codes[plan.code].rough;
    scene_fault(s, arm);
    return vfs_fired() > 0;
}

/* All steps of one scene with one kind of operation and one code. */
TEST climb(const scene *s, int kind, int code)
{
    int failures;
    plan.kind = kind;
    plan.code = code;
    plan.sticky = 0;
    failures = scene_climb(s, rung);
    plan.sticky = 1;
    failures += scene_climb(s, rung);
    if (failures) FAILm("see above");
    PASS();
}

/* All steps of one scene, and a second fault behind each. */
TEST climb_twice(const scene *s, int kind, int code)
{
    int failures = 0;
    plan.kind = kind;
    plan.code = code;
    plan.sticky = 0;
    for (plan.again = 1; plan.again <= AGAIN; plan.again++) failures += scene_climb(s, rung);
    plan.again = 0;
    if (failures) FAILm("see above");
    PASS();
}

/* One step again. */
static int replay(char **argv)
{
    int i, kind, code;
    for (i = 0; i < SCENES; i++)
        for (kind = 0; kind < VFS_KIND_COUNT; kind++)
            for (code = 0; code < CODES; code++) {
                if (strcmp(scenes[i].name, argv[1]) || strcmp(vfs_names[kind], argv[2]) ||
                    strcmp(codes[code].name, argv[3]))
                    continue;
                plan.kind = kind;
                plan.code = code;
                plan.sticky = strcmp(argv[4], "sticky") == 0;
                plan.again = atoi(argv[4]);
                return scene_replayed(rung(&scenes[i], atoll(argv[5])));
            }
    fprintf(stderr, "%s SCENE KIND ioerr|late|rough|full|busy once|sticky|AGAIN N\n", argv[0]);
    return 2;
}

GREATEST_MAIN_DEFS();
int main(int argc, char **argv)
{
    int i, kind, code, failed = 0;
    char suffix[80];
    scene_init("ladder-io");
    w.allowed = allowed;
    if (argc == 6) {
        failed = replay(argv);
        scene_fini();
        return failed;
    }
    if (scene_arguments(argc, argv)) argc = 1;
    {
        GREATEST_MAIN_BEGIN();
        for (i = 0; i < SCENES; i++)
            for (kind = 0; kind < VFS_KIND_COUNT; kind++)
                for (code = 0; code < CODES; code++) {
                    if (!possible(kind, code)) continue;
                    snprintf(suffix, sizeof suffix, "%s_%s_%s", scenes[i].name, vfs_names[kind],
                             codes[code].name);
                    greatest_set_test_suffix(suffix);
                    RUN_TESTp(climb, &scenes[i], kind, code);
                }
        for (i = 0; i < SCENES; i++) {
            snprintf(suffix, sizeof suffix, "%s_write", scenes[i].name);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(climb_twice, &scenes[i], VFS_WRITE, LATE);
            snprintf(suffix, sizeof suffix, "%s_sync", scenes[i].name);
            greatest_set_test_suffix(suffix);
            RUN_TESTp(climb_twice, &scenes[i], VFS_SYNC, IOERR);
        }
        scene_fini();
        putchar('\n');
        ledger_total("failed disk operations", scene_steps, scene_failed,
                     "1 of %lld taken; %lld answers were \"unknown\"", (long long)scene_every,
                     (long long)unknown_answers);
        GREATEST_MAIN_END();
    }
}
