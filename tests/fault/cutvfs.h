/* cutvfs.h - a disk in memory that loses power, fails, and remembers what it was promised to keep.
**
** An SQLite VFS named "cut". Every file has what a process sees (`cache`) and what has reached the
** platter (`platter`); between them lies a list of writes and truncations that nobody synced yet.
** Names are un-synced data too: a file that was created or deleted is so for good only after the
** directory was synced, which happens where SQLite's unix VFS does it: in the first sync of a
** journal or WAL opened for creation, and in a deletion that asks for it. Shared memory and locks
** are plain memory and die with the machine.
**
** Every write, truncation, creation and deletion is a point where the power can go, every sync is
** two of them, before and after it. The points are counted; cut_at arms one. From there on
** every call fails, so that a bus can be destroyed without touching the disk again, and what is
** left is the state at the cut. cv_survivor() makes the disk that the next start finds: un-synced
** data is kept, dropped, or each piece kept, dropped, or torn into 512-byte sectors, some with
** garbage.
**
** cv_fail() makes the n-th call of one kind fail instead, once or for a while. A failed sync can
** also do what Linux does: forget that the pages were dirty (see CV_FAIL_SYNC_LOSES).
**
** One thread only. No allocation is checked: a test that runs out of memory may stop.
*/
#ifndef CUTVFS_H
#define CUTVFS_H
#include "sqlite3.h"
#include "luck.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CV_FN LUCK_FN

enum { CV_SECTOR = 512, CV_NAMES = 16, CV_PAST = 32, CV_NAME_MAX = 80, CV_REGIONS = 16 };

/* What becomes of un-synced data. */
enum { CV_KEEP, CV_DROP, CV_TORN, CV_MIXES };

/* Kinds of calls that can be made to fail. SYNC_LOSES is a sync that fails and drops the dirty data
** from the model's to-do list, while the process goes on seeing it. */
enum {
    CV_FAIL_NONE, CV_FAIL_READ, CV_FAIL_WRITE, CV_FAIL_SYNC, CV_FAIL_SYNC_LOSES, CV_FAIL_TRUNCATE,
    CV_FAIL_OPEN, CV_FAIL_DELETE, CV_FAIL_LOCK, CV_FAIL_SHM, CV_FAIL_KINDS
};

/* ---- the disk -------------------------------------------------------------------------------- */

typedef struct cv_bytes {
    unsigned char *at;
    size_t size, room;
} cv_bytes;

typedef struct cv_op { /* an un-synced write, or (data NULL) a truncation to `from` */
    struct cv_op *next;
    size_t from, len;
    unsigned char *data;
} cv_op;

struct cv_file;
typedef struct cv_inode {
    struct cv_inode *next; /* of all inodes of the disk */
    cv_bytes cache, platter;
    cv_op *ops, *ops_last;
    struct cv_file *files; /* open handles */
    unsigned char *shm[CV_REGIONS];
} cv_inode;

typedef struct cv_name { /* past[0] is what the platter has, past[count - 1] what a process sees */
    char text[CV_NAME_MAX];
    cv_inode *past[CV_PAST];
    int count;
} cv_name;

typedef struct cv_disk {
    cv_inode *inodes;
    cv_name names[CV_NAMES];
    int name_count;
    int safe_overwrite;       /* what SQLite is told: a torn sector harms only what was written */
    int harms_neighbours;     /* and the truth; see cv_survivor() */
    int64_t points, cut_at;   /* cut points so far; the one where the power goes, 0: none */
    int dead;                 /* it has gone */
    int64_t syncs, written;   /* totals, to see what a workload does */
    int fail_kind;
    int64_t fail_at;          /* the how-manieth call of fail_kind fails; 0: none */
    int64_t fail_times;       /* and how many then */
    int64_t failed;           /* how many calls failed that way */
} cv_disk;

typedef struct cv_file {
    sqlite3_file base;
    cv_disk *disk;
    cv_inode *inode;
    struct cv_file *next;
    int lock, sync_names, shm_on;
    unsigned shm_shared, shm_held;
} cv_file;

static cv_disk *cv_mounted; /* where names are looked up; open files keep their own disk */

CV_FN void cv_resize(cv_bytes *b, size_t size)
{
    if (size > b->room) {
        b->room = size + size / 2 + 4096;
        b->at = (unsigned char *)realloc(b->at, b->room);
        if (!b->at) abort();
    }
    if (size > b->size) memset(b->at + b->size, 0, size - b->size);
    b->size = size;
}
CV_FN void cv_put(cv_bytes *b, size_t from, const unsigned char *data, size_t len)
{
    if (len == 0) return;
    if (from + len > b->size) cv_resize(b, from + len);
    memcpy(b->at + from, data, len);
}

CV_FN cv_inode *cv_inode_new(cv_disk *d)
{
    cv_inode *n = (cv_inode *)calloc(1, sizeof *n);
    if (!n) abort();
    n->next = d->inodes;
    d->inodes = n;
    return n;
}
CV_FN void cv_ops_free(cv_inode *n)
{
    cv_op *op;
    while ((op = n->ops) != NULL) {
        n->ops = op->next;
        free(op);
    }
    n->ops_last = NULL;
}
CV_FN void cv_shm_free(cv_inode *n)
{
    int i;
    for (i = 0; i < CV_REGIONS; i++) {
        free(n->shm[i]);
        n->shm[i] = NULL;
    }
}

CV_FN cv_disk *cv_disk_new(int safe_overwrite)
{
    cv_disk *d = (cv_disk *)calloc(1, sizeof *d);
    if (!d) abort();
    d->safe_overwrite = safe_overwrite;
    d->harms_neighbours = !safe_overwrite;
    return d;
}
/* Every file on it must be closed. */
CV_FN void cv_disk_free(cv_disk *d)
{
    cv_inode *n;
    if (!d) return;
    while ((n = d->inodes) != NULL) {
        if (n->files) abort(); /* somebody leaked a connection */
        d->inodes = n->next;
        cv_ops_free(n);
        cv_shm_free(n);
        free(n->cache.at);
        free(n->platter.at);
        free(n);
    }
    if (cv_mounted == d) cv_mounted = NULL;
    free(d);
}

/* The entry of a name; NULL if there never was one and add is 0. */
CV_FN cv_name *cv_name_of(cv_disk *d, const char *text, int add)
{
    int i;
    for (i = 0; i < d->name_count; i++)
        if (strcmp(d->names[i].text, text) == 0) return &d->names[i];
    if (!add) return NULL;
    if (d->name_count == CV_NAMES || strlen(text) >= CV_NAME_MAX) abort();
    snprintf(d->names[i].text, sizeof d->names[i].text, "%s", text);
    d->names[i].count = 1; /* past[0] is NULL: the platter has no such file */
    d->name_count++;
    return &d->names[i];
}
CV_FN cv_inode *cv_name_now(const cv_name *e) { return e ? e->past[e->count - 1] : NULL; }
CV_FN void cv_name_set(cv_name *e, cv_inode *n)
{
    if (e->count == CV_PAST) { /* forget one in the middle: both ends matter most */
        memmove(&e->past[1], &e->past[2], (CV_PAST - 2) * sizeof e->past[0]);
        e->count--;
    }
    e->past[e->count++] = n;
}
CV_FN void cv_names_sync(cv_disk *d)
{
    int i;
    for (i = 0; i < d->name_count; i++) {
        d->names[i].past[0] = cv_name_now(&d->names[i]);
        d->names[i].count = 1;
    }
}

/* ---- points, faults -------------------------------------------------------------------------- */

/* A point where the power can go. 1: it is gone. */
CV_FN int cv_point(cv_disk *d)
{
    if (!d->dead && ++d->points == d->cut_at) d->dead = 1;
    return d->dead;
}

/* 1: this call has to fail. */
CV_FN int cv_fault(cv_disk *d, int kind)
{
    if (d->fail_kind != kind || d->fail_at == 0) return 0;
    if (d->fail_at > 1) {
        d->fail_at--;
        return 0;
    }
    if (--d->fail_times == 0) d->fail_at = 0;
    d->failed++;
    return 1;
}

/* From the n-th call (from 1) of a kind on, so many fail; then the disk works again. n 0: none. */
CV_FN void cv_fail(cv_disk *d, int kind, int64_t n, int64_t times)
{
    d->fail_kind = kind;
    d->fail_at = n;
    d->fail_times = times;
}

/* ---- un-synced data -------------------------------------------------------------------------- */

CV_FN void cv_op_add(cv_inode *n, size_t from, const void *data, size_t len)
{
    cv_op *op = (cv_op *)malloc(sizeof *op + len);
    if (!op) abort();
    op->next = NULL;
    op->from = from;
    op->len = len;
    op->data = data ? (unsigned char *)(op + 1) : NULL;
    if (data) memcpy(op->data, data, len);
    if (n->ops_last) n->ops_last->next = op;
    else n->ops = op;
    n->ops_last = op;
}

CV_FN void cv_op_apply(cv_bytes *b, const cv_op *op)
{
    if (op->data) cv_put(b, op->from, op->data, op->len);
    else cv_resize(b, op->from);
}

CV_FN void cv_inode_sync(cv_inode *n)
{
    const cv_op *op;
    for (op = n->ops; op; op = op->next) cv_op_apply(&n->platter, op);
    cv_ops_free(n);
}

/* One write that the cut caught half way: each sector it touches is new, old, or garbage. */
CV_FN void cv_op_tear(cv_bytes *b, const cv_op *op, int harms_neighbours, luck *r)
{
    size_t at = op->from, end = op->from + op->len, stop, i;
    while (at < end) {
        int fate = luck_below(r, 8);
        stop = (at / CV_SECTOR + 1) * CV_SECTOR;
        if (stop > end) stop = end;
        if (fate < 4) {
            cv_put(b, at, op->data + (at - op->from), stop - at);
        } else if (fate == 4) {
            size_t from = harms_neighbours ? at / CV_SECTOR * CV_SECTOR : at;
            size_t to = harms_neighbours ? from + CV_SECTOR : stop;
            if (b->size < stop) cv_resize(b, stop);
            if (to > b->size) to = b->size;
            for (i = from; i < to; i++) b->at[i] = (unsigned char)luck_next(r);
        }
        at = stop;
    }
}

/* What is left of a file: its platter, and of the rest what the mix says. */
CV_FN void cv_inode_survive(const cv_inode *n, cv_bytes *out, int mix, int harms_neighbours,
                            luck *r)
{
    const cv_op *op;
    int fate;
    cv_resize(out, n->platter.size);
    if (n->platter.size) memcpy(out->at, n->platter.at, n->platter.size);
    for (op = n->ops; op && mix != CV_DROP; op = op->next) {
        fate = mix == CV_KEEP ? 0 : luck_below(r, 20);
        if (fate < (op->data ? 9 : 10)) cv_op_apply(out, op);
        else if (op->data && fate >= 16) cv_op_tear(out, op, harms_neighbours, r);
    }
}

/* The disk that the next start finds after the power went. d is not changed, so that it can be
** asked again, with another mix. Not armed for anything.
**
** A disk that harms the bytes beside a write does so in its first cut only. SQLite pads a commit in
** the WAL to the end of its sector for such disks; but if the cut takes the padding, the commit is
** found again and the next one is written right behind it, into the same sector, where a second cut
** can harm it. That is a limit of SQLite on disks which nobody sells any more. */
CV_FN cv_disk *cv_survivor(const cv_disk *d, int mix, luck *r)
{
    cv_disk *out = cv_disk_new(d->safe_overwrite);
    int i, pick;
    out->harms_neighbours = 0;
    for (i = 0; i < d->name_count; i++) {
        const cv_name *e = &d->names[i];
        cv_inode *fresh;
        pick = mix == CV_KEEP ? e->count - 1 : mix == CV_DROP ? 0 : luck_below(r, e->count);
        if (!e->past[pick]) continue;
        fresh = cv_inode_new(out);
        cv_inode_survive(e->past[pick], &fresh->platter, mix, d->harms_neighbours, r);
        cv_put(&fresh->cache, 0, fresh->platter.at, fresh->platter.size);
        cv_name_of(out, e->text, 1)->past[0] = fresh;
    }
    return out;
}

/* The disk as it is for a process that comes after a kill: the cache survives, locks and shared
** memory do not, and what was not synced is still not synced. */
CV_FN cv_disk *cv_after_kill(const cv_disk *d)
{
    cv_disk *out = cv_disk_new(d->safe_overwrite);
    const cv_inode *from;
    const cv_op *op;
    cv_inode *to[64];
    int i, k, count = 0;
    out->harms_neighbours = 0; /* see cv_survivor() */
    for (from = d->inodes; from; from = from->next) {
        if (count == 64) abort();
        to[count] = cv_inode_new(out);
        cv_put(&to[count]->cache, 0, from->cache.at, from->cache.size);
        cv_put(&to[count]->platter, 0, from->platter.at, from->platter.size);
        for (op = from->ops; op; op = op->next) cv_op_add(to[count], op->from, op->data, op->len);
        count++;
    }
    for (i = 0; i < d->name_count; i++) {
        out->names[i] = d->names[i];
        for (k = 0; k < d->names[i].count; k++) {
            int index = 0;
            if (!d->names[i].past[k]) continue;
            for (from = d->inodes; from != d->names[i].past[k]; from = from->next) index++;
            out->names[i].past[k] = to[index];
        }
    }
    out->name_count = d->name_count;
    return out;
}

/* ---- files ----------------------------------------------------------------------------------- */

CV_FN cv_file *cv_cast(sqlite3_file *f) { return (cv_file *)(void *)f; }

CV_FN int cv_close(sqlite3_file *file)
{
    cv_file *f = cv_cast(file), **at = &f->inode->files;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    f->base.pMethods = NULL;
    return SQLITE_OK; /* an inode without a name lives on: the cut may bring the name back */
}

CV_FN int cv_read(sqlite3_file *file, void *out, int len, sqlite3_int64 from)
{
    cv_file *f = cv_cast(file);
    const cv_bytes *b = &f->inode->cache;
    size_t start = (size_t)from, have = start < b->size ? b->size - start : 0;
    if (f->disk->dead || cv_fault(f->disk, CV_FAIL_READ)) return SQLITE_IOERR_READ;
    if (have > (size_t)len) have = (size_t)len;
    if (have) memcpy(out, b->at + start, have);
    if (have == (size_t)len) return SQLITE_OK;
    memset((char *)out + have, 0, (size_t)len - have);
    return SQLITE_IOERR_SHORT_READ;
}

CV_FN int cv_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 from)
{
    cv_file *f = cv_cast(file);
    if (f->disk->dead) return SQLITE_IOERR_WRITE;
    if (cv_fault(f->disk, CV_FAIL_WRITE)) { /* half of it is written */
        cv_op_add(f->inode, (size_t)from, data, (size_t)len / 2);
        cv_put(&f->inode->cache, (size_t)from, (const unsigned char *)data, (size_t)len / 2);
        return SQLITE_IOERR_WRITE;
    }
    cv_op_add(f->inode, (size_t)from, data, (size_t)len);
    cv_put(&f->inode->cache, (size_t)from, (const unsigned char *)data, (size_t)len);
    f->disk->written += len;
    return cv_point(f->disk) ? SQLITE_IOERR_WRITE : SQLITE_OK;
}

CV_FN int cv_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    cv_file *f = cv_cast(file);
    if (f->disk->dead || cv_fault(f->disk, CV_FAIL_TRUNCATE)) return SQLITE_IOERR_TRUNCATE;
    cv_op_add(f->inode, (size_t)size, NULL, 0);
    cv_resize(&f->inode->cache, (size_t)size);
    return cv_point(f->disk) ? SQLITE_IOERR_TRUNCATE : SQLITE_OK;
}

CV_FN int cv_sync(sqlite3_file *file, int flags)
{
    cv_file *f = cv_cast(file);
    cv_disk *d = f->disk;
    (void)flags;
    if (d->dead || cv_fault(d, CV_FAIL_SYNC)) return SQLITE_IOERR_FSYNC;
    if (cv_fault(d, CV_FAIL_SYNC_LOSES)) {
        cv_ops_free(f->inode);
        return SQLITE_IOERR_FSYNC;
    }
    if (cv_point(d)) return SQLITE_IOERR_FSYNC;
    cv_inode_sync(f->inode);
    d->syncs++;
    if (cv_point(d)) return SQLITE_IOERR_FSYNC;
    if (!f->sync_names) return SQLITE_OK;
    f->sync_names = 0;
    cv_names_sync(d);
    return cv_point(d) ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

CV_FN int cv_size(sqlite3_file *file, sqlite3_int64 *size)
{
    cv_file *f = cv_cast(file);
    if (f->disk->dead) return SQLITE_IOERR_FSTAT;
    *size = (sqlite3_int64)f->inode->cache.size;
    return SQLITE_OK;
}

/* The highest lock that another handle of the file has; *shared: how many others have one. */
CV_FN int cv_other_lock(const cv_file *f, int *shared)
{
    const cv_file *o;
    int top = SQLITE_LOCK_NONE;
    *shared = 0;
    for (o = f->inode->files; o; o = o->next) {
        if (o == f) continue;
        *shared += o->lock >= SQLITE_LOCK_SHARED;
        if (o->lock > top) top = o->lock;
    }
    return top;
}

CV_FN int cv_lock(sqlite3_file *file, int level)
{
    cv_file *f = cv_cast(file);
    int shared, other = cv_other_lock(f, &shared);
    if (f->disk->dead || cv_fault(f->disk, CV_FAIL_LOCK)) return SQLITE_IOERR_LOCK;
    if (level <= f->lock) return SQLITE_OK;
    if (f->lock == SQLITE_LOCK_NONE && other >= SQLITE_LOCK_PENDING) return SQLITE_BUSY;
    if (level >= SQLITE_LOCK_RESERVED && other >= SQLITE_LOCK_RESERVED) return SQLITE_BUSY;
    if (level == SQLITE_LOCK_EXCLUSIVE && shared > 0) {
        f->lock = SQLITE_LOCK_PENDING;
        return SQLITE_BUSY;
    }
    f->lock = level;
    return SQLITE_OK;
}
CV_FN int cv_unlock(sqlite3_file *file, int level)
{
    cv_file *f = cv_cast(file);
    if (level < f->lock) f->lock = level;
    return SQLITE_OK;
}
CV_FN int cv_check_reserved(sqlite3_file *file, int *out)
{
    cv_file *f = cv_cast(file);
    int shared;
    if (f->disk->dead) return SQLITE_IOERR_CHECKRESERVEDLOCK;
    *out = f->lock >= SQLITE_LOCK_RESERVED || cv_other_lock(f, &shared) >= SQLITE_LOCK_RESERVED;
    return SQLITE_OK;
}

CV_FN int cv_control(sqlite3_file *file, int op, void *arg)
{
    (void)file;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}
CV_FN int cv_sector_size(sqlite3_file *file)
{
    (void)file;
    return CV_SECTOR;
}
CV_FN int cv_characteristics(sqlite3_file *file)
{
    return cv_cast(file)->disk->safe_overwrite ? SQLITE_IOCAP_POWERSAFE_OVERWRITE : 0;
}

/* ---- shared memory --------------------------------------------------------------------------- */

CV_FN int cv_shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **out)
{
    cv_file *f = cv_cast(file);
    *out = NULL;
    if (f->disk->dead || cv_fault(f->disk, CV_FAIL_SHM)) return SQLITE_IOERR_SHMMAP;
    if (region >= CV_REGIONS) return SQLITE_FULL;
    f->shm_on = 1;
    if (!f->inode->shm[region] && extend) {
        f->inode->shm[region] = (unsigned char *)calloc(1, (size_t)size);
        if (!f->inode->shm[region]) abort();
    }
    *out = f->inode->shm[region];
    return SQLITE_OK;
}

CV_FN int cv_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    cv_file *f = cv_cast(file);
    const cv_file *o;
    unsigned mask = ((1u << n) - 1u) << offset;
    if (flags & SQLITE_SHM_UNLOCK) {
        f->shm_shared &= ~mask;
        f->shm_held &= ~mask;
        return SQLITE_OK;
    }
    if (f->disk->dead || cv_fault(f->disk, CV_FAIL_SHM)) return SQLITE_IOERR_SHMLOCK;
    for (o = f->inode->files; o; o = o->next) {
        if (o == f) continue;
        if (o->shm_held & mask) return SQLITE_BUSY;
        if ((flags & SQLITE_SHM_EXCLUSIVE) && (o->shm_shared & mask)) return SQLITE_BUSY;
    }
    if (flags & SQLITE_SHM_EXCLUSIVE) f->shm_held |= mask;
    else f->shm_shared |= mask;
    return SQLITE_OK;
}
CV_FN void cv_shm_barrier(sqlite3_file *file) { (void)file; }

/* The last one to leave takes it away: whoever comes next rebuilds it from the WAL. */
CV_FN int cv_shm_unmap(sqlite3_file *file, int delete_it)
{
    cv_file *f = cv_cast(file);
    const cv_file *o;
    (void)delete_it;
    f->shm_on = 0;
    f->shm_shared = f->shm_held = 0;
    for (o = f->inode->files; o; o = o->next)
        if (o->shm_on) return SQLITE_OK;
    cv_shm_free(f->inode);
    return SQLITE_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const sqlite3_io_methods cv_methods = {
    2,          cv_close,         cv_read,     cv_write,       cv_truncate,
    cv_sync,    cv_size,          cv_lock,     cv_unlock,      cv_check_reserved,
    cv_control, cv_sector_size,   cv_characteristics, /* version 2: no memory mapping */
    cv_shm_map, cv_shm_lock,      cv_shm_barrier, cv_shm_unmap, NULL, NULL};

CV_FN int cv_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    cv_disk *d = cv_mounted;
    cv_file *f = cv_cast(file);
    cv_name *entry;
    cv_inode *n;
    (void)vfs;
    memset(f, 0, sizeof *f);
    if (!d || d->dead || cv_fault(d, CV_FAIL_OPEN)) return SQLITE_CANTOPEN;
    entry = name ? cv_name_of(d, name, (flags & SQLITE_OPEN_CREATE) != 0) : NULL;
    n = cv_name_now(entry);
    if (!n && !(flags & SQLITE_OPEN_CREATE)) return SQLITE_CANTOPEN;
    if (!n) {
        n = cv_inode_new(d);
        if (entry) {
            cv_name_set(entry, n);
            if (cv_point(d)) return SQLITE_CANTOPEN;
        }
    }
    f->base.pMethods = &cv_methods;
    f->disk = d;
    f->inode = n;
    f->sync_names = (flags & SQLITE_OPEN_CREATE) &&
                    (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) != 0;
    f->next = n->files;
    n->files = f;
    if (out) *out = flags;
    return SQLITE_OK;
}

CV_FN int cv_delete(sqlite3_vfs *vfs, const char *name, int sync_names)
{
    cv_disk *d = cv_mounted;
    cv_name *entry = d ? cv_name_of(d, name, 0) : NULL;
    (void)vfs;
    if (!d || d->dead || cv_fault(d, CV_FAIL_DELETE)) return SQLITE_IOERR_DELETE;
    if (!cv_name_now(entry)) return SQLITE_IOERR_DELETE_NOENT;
    cv_name_set(entry, NULL);
    if (cv_point(d)) return SQLITE_IOERR_DELETE;
    if (!sync_names) return SQLITE_OK;
    cv_names_sync(d);
    return cv_point(d) ? SQLITE_IOERR_DELETE : SQLITE_OK;
}

CV_FN int cv_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    cv_disk *d = cv_mounted;
    (void)vfs;
    (void)flags;
    if (!d || d->dead) return SQLITE_IOERR_ACCESS;
    *out = cv_name_now(cv_name_of(d, name, 0)) != NULL;
    return SQLITE_OK;
}

CV_FN int cv_full_path(sqlite3_vfs *vfs, const char *name, int cap, char *out)
{
    (void)vfs;
    return snprintf(out, (size_t)cap, "%s", name) < cap ? SQLITE_OK : SQLITE_CANTOPEN;
}

/* Registers the VFS, once. It is never the default one. */
CV_FN void cv_init(void)
{
    static sqlite3_vfs vfs;
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    if (vfs.zName || !real) return;
    vfs = *real; /* time, sleep and randomness are the real ones */
    vfs.zName = "cut";
    vfs.pNext = NULL;
    vfs.szOsFile = (int)sizeof(cv_file);
    vfs.mxPathname = CV_NAME_MAX;
    vfs.xOpen = cv_open;
    vfs.xDelete = cv_delete;
    vfs.xAccess = cv_access;
    vfs.xFullPathname = cv_full_path;
    if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK) abort();
}
#endif /* CUTVFS_H */
