/* vfs.h - a disk that fails when told to: a shim over SQLite's default VFS that counts operations
** by kind and lets the n-th of one kind fail, once or from then on until it is healed.
**
**     vfs_install();                     registers the VFS "fault", for eb_options.vfs
**     vfs_arm("sync", VFS_IOERR, 3, 0);  the third sync from now fails, once (1: and all after it)
**     vfs_again(4);                      and, if once, the fourth one after it
**     ... vfs_fired() ...                how many operations failed
**     vfs_heal();                        no more faults
**     vfs_count("sync")                  how many there were since vfs_arm(), or since vfs_heal()
**
** Kinds: open read write sync truncate delete access size lock shmmap shmlock. What fails is always
** something that SQLite asks for and can be refused; unlocking and closing never fail. VFS_IOERR is
** the code that the default VFS would give for that kind; VFS_LATE the same, but what was asked for
** happened all the same (writes, syncs, truncates and deletes): an error says nothing about what
** reached the disk. VFS_FULL on a write writes the first half, as a full disk does. Nothing else
** differs from the default VFS, except:
**   - no memory-mapped I/O, so that no write goes past the shim;
**   - vfs_rough = 1: a disk that may damage the neighbours of what it writes (no powersafe
**     overwrite), so that SQLite pads its commits to whole sectors;
**   - vfs_room >= 0: so many bytes may files still grow by; a write that needs more is cut short
**     there and is SQLITE_FULL, one that overwrites is not;
**   - vfs_read_only = 1: database files open for reading only, as without permission to write;
**   - vfs_no_sync = 1 answers syncs without doing them: quick, no loss unless the machine stops;
**   - vfs_sleep_max_us >= 0: SQLite's own pauses (while it waits for a WAL lock) are no longer.
** Any thread; the counters are shared by all connections.
*/
#ifndef VFS_H
#define VFS_H
#include "../test.h"

#define VFS_KINDS(X)                                                                               \
    X(OPEN, "open", SQLITE_CANTOPEN)                                                               \
    X(READ, "read", SQLITE_IOERR_READ)                                                             \
    X(WRITE, "write", SQLITE_IOERR_WRITE)                                                          \
    X(SYNC, "sync", SQLITE_IOERR_FSYNC)                                                            \
    X(TRUNCATE, "truncate", SQLITE_IOERR_TRUNCATE)                                                 \
    X(DELETE, "delete", SQLITE_IOERR_DELETE)                                                       \
    X(ACCESS, "access", SQLITE_IOERR_ACCESS)                                                       \
    X(SIZE, "size", SQLITE_IOERR_FSTAT)                                                            \
    X(LOCK, "lock", SQLITE_IOERR_LOCK)                                                             \
    X(SHMMAP, "shmmap", SQLITE_IOERR_SHMMAP)                                                       \
    X(SHMLOCK, "shmlock", SQLITE_IOERR_SHMLOCK)

#define VFS_ENUM(name, text, code) VFS_##name,
enum { VFS_KINDS(VFS_ENUM) VFS_KIND_COUNT };
#undef VFS_ENUM
#define VFS_NAME(name, text, code) text,
static const char *const vfs_names[] = {VFS_KINDS(VFS_NAME) NULL};
#undef VFS_NAME
#define VFS_CODE(name, text, code) code,
static const int vfs_codes[] = {VFS_KINDS(VFS_CODE) 0};
#undef VFS_CODE

enum { VFS_IOERR, VFS_FULL, VFS_BUSY, VFS_LATE };

typedef struct vfs_file {
    sqlite3_file base;
    sqlite3_file *real; /* right behind this struct */
} vfs_file;

static struct {
    sqlite3_vfs shim;
    sqlite3_vfs *real;
    /* the plan: kind -1 is none */
    int kind, code, sticky;
    int64_t at, again; /* 0: not again */
    /* counted */
    int64_t counts[VFS_KIND_COUNT], fired;
} vfs_state;

static int vfs_no_sync, vfs_rough, vfs_read_only;
static int vfs_sleep_max_us = -1;
static int64_t vfs_room = -1; /* one thread at a time, if it is used */

/* ---- the plan -------------------------------------------------------------------------------- */

/* -1: no such kind. */
T_UNUSED static int vfs_kind(const char *name)
{
    int k;
    for (k = 0; k < VFS_KIND_COUNT; k++)
        if (strcmp(vfs_names[k], name) == 0) return k;
    return -1;
}

static void vfs_plan(int kind, int code, int64_t at, int sticky)
{
    int k;
    __atomic_store_n(&vfs_state.kind, -1, __ATOMIC_SEQ_CST);
    for (k = 0; k < VFS_KIND_COUNT; k++)
        __atomic_store_n(&vfs_state.counts[k], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vfs_state.code, code, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vfs_state.at, at, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vfs_state.again, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vfs_state.sticky, sticky, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vfs_state.kind, kind, __ATOMIC_SEQ_CST);
}

T_UNUSED static void vfs_heal(void) { vfs_plan(-1, 0, 0, 0); }

T_UNUSED static void vfs_arm(const char *kind, int code, int64_t at, int sticky)
{
    T_MUST(vfs_kind(kind) >= 0);
    __atomic_store_n(&vfs_state.fired, 0, __ATOMIC_SEQ_CST);
    vfs_plan(vfs_kind(kind), code, at, sticky);
}

T_UNUSED static void vfs_again(int64_t later)
{
    int64_t at = __atomic_load_n(&vfs_state.at, __ATOMIC_SEQ_CST);
    __atomic_store_n(&vfs_state.again, at + later, __ATOMIC_SEQ_CST);
}

T_UNUSED static int64_t vfs_fired(void)
{
    return __atomic_load_n(&vfs_state.fired, __ATOMIC_SEQ_CST);
}
T_UNUSED static int64_t vfs_count(const char *kind)
{
    T_MUST(vfs_kind(kind) >= 0);
    return __atomic_load_n(&vfs_state.counts[vfs_kind(kind)], __ATOMIC_SEQ_CST);
}

/* One operation of this kind happens: SQLITE_OK, or the code it has to fail with. */
static int vfs_step(int kind)
{
    int64_t count = __atomic_add_fetch(&vfs_state.counts[kind], 1, __ATOMIC_SEQ_CST);
    int64_t at = __atomic_load_n(&vfs_state.at, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&vfs_state.kind, __ATOMIC_SEQ_CST) != kind) return SQLITE_OK;
    if (count < at) return SQLITE_OK;
    if (count > at && !__atomic_load_n(&vfs_state.sticky, __ATOMIC_SEQ_CST) &&
        count != __atomic_load_n(&vfs_state.again, __ATOMIC_SEQ_CST))
        return SQLITE_OK;
    __atomic_add_fetch(&vfs_state.fired, 1, __ATOMIC_SEQ_CST);
    switch (__atomic_load_n(&vfs_state.code, __ATOMIC_SEQ_CST)) {
    case VFS_FULL: return SQLITE_FULL;
    case VFS_BUSY: return SQLITE_BUSY;
    default: return vfs_codes[kind];
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Whether an operation that fails with rc is done nevertheless. */
static int vfs_late(int rc)
{
    return rc && __atomic_load_n(&vfs_state.code, __ATOMIC_SEQ_CST) == VFS_LATE;
}

static sqlite3_file *vfs_real(sqlite3_file *file) { return ((vfs_file *)file)->real; }

static int vfs_close(sqlite3_file *file)
{
    sqlite3_file *real = vfs_real(file);
    return real->pMethods ? real->pMethods->xClose(real) : SQLITE_OK;
}
static int vfs_read(sqlite3_file *file, void *to, int n, sqlite3_int64 at)
{
    int rc = vfs_step(VFS_READ);
    return rc ? rc : vfs_real(file)->pMethods->xRead(vfs_real(file), to, n, at);
}
static int vfs_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 at)
{
    sqlite3_file *real = vfs_real(file);
    int rc = vfs_step(VFS_WRITE);
    if (vfs_room >= 0 && !rc) {
        sqlite3_int64 size = 0, grow;
        real->pMethods->xFileSize(real, &size);
        grow = at + n - (size > at ? size : at);
        if (grow > vfs_room) {
            n -= (int)(grow - vfs_room);
            vfs_room = 0;
            if (n > 0) real->pMethods->xWrite(real, from, n, at);
            return SQLITE_FULL;
        }
        if (grow > 0) vfs_room -= grow;
    }
    if (rc == SQLITE_FULL && n > 1) real->pMethods->xWrite(real, from, n / 2, at);
    if (vfs_late(rc)) real->pMethods->xWrite(real, from, n, at);
    return rc ? rc : real->pMethods->xWrite(real, from, n, at);
}
static int vfs_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = vfs_step(VFS_TRUNCATE);
    if (vfs_late(rc)) vfs_real(file)->pMethods->xTruncate(vfs_real(file), size);
    return rc ? rc : vfs_real(file)->pMethods->xTruncate(vfs_real(file), size);
}
static int vfs_sync(sqlite3_file *file, int flags)
{
    int rc = vfs_step(VFS_SYNC);
    if (rc || vfs_no_sync) return rc;
    return vfs_real(file)->pMethods->xSync(vfs_real(file), flags);
}
static int vfs_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int rc = vfs_step(VFS_SIZE);
    return rc ? rc : vfs_real(file)->pMethods->xFileSize(vfs_real(file), size);
}
static int vfs_lock(sqlite3_file *file, int level)
{
    int rc = vfs_step(VFS_LOCK);
    return rc ? rc : vfs_real(file)->pMethods->xLock(vfs_real(file), level);
}
static int vfs_unlock(sqlite3_file *file, int level)
{
    return vfs_real(file)->pMethods->xUnlock(vfs_real(file), level);
}
static int vfs_reserved(sqlite3_file *file, int *out)
{
    return vfs_real(file)->pMethods->xCheckReservedLock(vfs_real(file), out);
}
static int vfs_control(sqlite3_file *file, int op, void *arg)
{
    return vfs_real(file)->pMethods->xFileControl(vfs_real(file), op, arg);
}
static int vfs_sector(sqlite3_file *file)
{
    return vfs_real(file)->pMethods->xSectorSize(vfs_real(file));
}
static int vfs_device(sqlite3_file *file)
{
    int can = vfs_real(file)->pMethods->xDeviceCharacteristics(vfs_real(file));
    return vfs_rough ? can & ~SQLITE_IOCAP_POWERSAFE_OVERWRITE : can;
}
static int vfs_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    int rc = vfs_step(VFS_SHMMAP);
    *out = NULL;
    return rc ? rc : vfs_real(file)->pMethods->xShmMap(vfs_real(file), page, size, extend, out);
}
static int vfs_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    int rc = flags & SQLITE_SHM_LOCK ? vfs_step(VFS_SHMLOCK) : SQLITE_OK;
    return rc ? rc : vfs_real(file)->pMethods->xShmLock(vfs_real(file), offset, n, flags);
}
static void vfs_shm_barrier(sqlite3_file *file)
{
    vfs_real(file)->pMethods->xShmBarrier(vfs_real(file));
}
static int vfs_shm_unmap(sqlite3_file *file, int remove_it)
{
    return vfs_real(file)->pMethods->xShmUnmap(vfs_real(file), remove_it);
}

/* Version 2: shared memory, but no xFetch. */
static const sqlite3_io_methods vfs_methods = {
    2, vfs_close, vfs_read, vfs_write, vfs_truncate, vfs_sync, vfs_size, vfs_lock, vfs_unlock,
    vfs_reserved, vfs_control, vfs_sector, vfs_device, vfs_shm_map, vfs_shm_lock, vfs_shm_barrier,
    vfs_shm_unmap, NULL, NULL};

/* ---- the VFS --------------------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    vfs_file *f = (vfs_file *)file;
    int rc = vfs_step(VFS_OPEN);
    (void)vfs;
    f->base.pMethods = NULL; /* so that SQLite does not close what was never open */
    if (rc) return rc;
    if (vfs_read_only && flags & SQLITE_OPEN_MAIN_DB)
        flags = (flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY;
    f->real = (sqlite3_file *)(f + 1);
    memset(f->real, 0, (size_t)vfs_state.real->szOsFile);
    rc = vfs_state.real->xOpen(vfs_state.real, name, f->real, flags, out);
    if (rc == SQLITE_OK) f->base.pMethods = &vfs_methods;
    else if (f->real->pMethods) f->real->pMethods->xClose(f->real);
    return rc;
}
static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    int rc = vfs_step(VFS_DELETE);
    (void)vfs;
    if (vfs_late(rc)) vfs_state.real->xDelete(vfs_state.real, name, 0);
    return rc ? rc : vfs_state.real->xDelete(vfs_state.real, name, sync_dir && !vfs_no_sync);
}
static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    int rc = vfs_step(VFS_ACCESS);
    (void)vfs;
    return rc ? rc : vfs_state.real->xAccess(vfs_state.real, name, flags, out);
}
static int vfs_full_name(sqlite3_vfs *vfs, const char *name, int cap, char *out)
{
    (void)vfs;
    return vfs_state.real->xFullPathname(vfs_state.real, name, cap, out);
}
static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    int pause = vfs_sleep_max_us >= 0 && us > vfs_sleep_max_us ? vfs_sleep_max_us : us;
    (void)vfs;
    if (pause > 0) vfs_state.real->xSleep(vfs_state.real, pause);
    return us;
}

/* Registers the VFS "fault" and makes it ready; nothing fails yet. Safe to call again. */
T_UNUSED static void vfs_install(void)
{
    T_MUST(sqlite3_initialize() == SQLITE_OK);
    if (!vfs_state.real) {
        vfs_state.real = sqlite3_vfs_find(NULL);
        T_MUST(vfs_state.real && (sizeof(vfs_file) & 7) == 0);
        vfs_state.shim = *vfs_state.real;
        vfs_state.shim.zName = "fault";
        vfs_state.shim.pNext = NULL;
        vfs_state.shim.szOsFile = (int)sizeof(vfs_file) + vfs_state.real->szOsFile;
        vfs_state.shim.xOpen = vfs_open;
        vfs_state.shim.xDelete = vfs_delete;
        vfs_state.shim.xAccess = vfs_access;
        vfs_state.shim.xFullPathname = vfs_full_name;
        vfs_state.shim.xSleep = vfs_sleep;
    }
    T_MUST(sqlite3_vfs_register(&vfs_state.shim, 0) == SQLITE_OK);
    vfs_heal();
}

#endif /* VFS_H */
