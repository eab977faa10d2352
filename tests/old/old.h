/* old.h - what old.c offers to test_old.c. It names no type of eventbus.h: there are two of them. */
#ifndef OLD_H
#define OLD_H
#include <stddef.h>

/* The wall time at which the files begin: 2026-11-18T05:32:10.000Z, T_EPOCH of test.h. The handler
** that ends the process runs OLD_KILLED_MS later. */
#define OLD_BEGIN_MS INT64_C(1794979930000)
#define OLD_KILLED_MS 240000

enum { OLD_ANSWER = 280 }; /* how long an answer may be, with its zero */

/* Carries out one line (see the list in old.c) with version 0.1.0 and answers in one line, usually
** the name of a result. One bus or store at a time, by one thread. */
void old_command(const char *line, char *answer, size_t cap);

/* Makes one of the files, as it is before it is sealed. Its last step is the death of this process,
** by kill -9 inside a handler. what: "plain" or "spaces"; or "second", which returns. */
void old_fill(const char *what, const char *path);

/* Brings the WAL that a dead process has left into the file. With SQLite alone: nobody recovers
** anything. */
void old_seal(const char *path);

#endif
