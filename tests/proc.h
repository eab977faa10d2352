/* proc.h - helper processes, threads and waiting, for the tests that need the real thing.
**
** A child is this same program, started anew as `prog --child role arg...`: no fork without exec,
** so the sanitizers stay happy whatever threads the parent has. Parent and child talk in lines over
** two pipes. Nothing here sleeps and hopes: every wait polls, with P_LONG_MS as "never".
**
** The same on Windows: kill -9 is TerminateProcess, and an exit code above P_SIGNALLED stands for a
** signal. What has no counterpart there (fork, stopping a process, modes of files) is inside
** `#ifndef _WIN32` in the tests, and in the list at the end of `matrix`.
*/
#ifndef T_PROC_H
#define T_PROC_H
#include "test.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>
#ifdef _WIN32
#include <io.h>
#include <tlhelp32.h>
#else
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#endif

#define P_LONG_MS 60000 /* only a broken bus waits that long */
#define P_SLACK_MS 5000 /* how late a busy machine with sanitizers may be */

/* ---- asserting and waiting ------------------------------------------------------------------- */

/* low <= got <= high */
#define P_WITHIN(low, high, got)                                                                   \
    do {                                                                                           \
        int64_t t_l = (int64_t)(low), t_h = (int64_t)(high), t_g = (int64_t)(got);                 \
        if (t_g < t_l || t_g > t_h) {                                                              \
            fprintf(stderr, "\n%s:%d: %s\n  wanted %lld to %lld\n  got %lld\n", __FILE__,          \
                    __LINE__, #got, (long long)t_l, (long long)t_h, (long long)t_g);               \
            FAILm(#got);                                                                           \
        }                                                                                          \
    } while (0)

#define P_EVENTUALLY(cond)                                                                         \
    do {                                                                                           \
        int64_t p_end = p_ms() + P_LONG_MS;                                                        \
        while (!(cond)) {                                                                          \
            if (p_ms() > p_end) FAILm("never: " #cond);                                            \
            p_nap(2);                                                                              \
        }                                                                                          \
    } while (0)

T_UNUSED static int64_t p_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}
T_UNUSED static int64_t p_ms(void) { return p_us() / 1000; }

T_UNUSED static void p_nap_us(int64_t us)
{
    struct timespec ts;
    ts.tv_sec = (time_t)(us / 1000000);
    ts.tv_nsec = (long)(us % 1000000) * 1000L;
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) continue;
}
T_UNUSED static void p_nap(int ms) { p_nap_us((int64_t)ms * 1000); }

/* Flags and counters that several threads touch. */
T_UNUSED static int p_get(const int *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
T_UNUSED static void p_set(int *p, int value) { __atomic_store_n(p, value, __ATOMIC_SEQ_CST); }
T_UNUSED static int p_add(int *p, int by) { return __atomic_add_fetch(p, by, __ATOMIC_SEQ_CST); }

/* For handlers: waits for a flag, at most P_LONG_MS, so that a broken test ends too. */
T_UNUSED static void p_until(const int *flag, int at_least)
{
    int64_t end = p_ms() + P_LONG_MS;
    while (p_get(flag) < at_least && p_ms() < end) p_nap(1);
}

/* How many threads this process has; 0 where that cannot be known. */
#ifdef _WIN32
T_UNUSED static int p_threads(void)
{
    HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0);
    THREADENTRY32 entry;
    int n = 0, more;
    if (all == INVALID_HANDLE_VALUE) return 0;
    entry.dwSize = sizeof entry;
    for (more = Thread32First(all, &entry); more; more = Thread32Next(all, &entry))
        n += entry.th32OwnerProcessID == GetCurrentProcessId();
    CloseHandle(all);
    return n;
}
#else
T_UNUSED static int p_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;
    if (!dir) return 0;
    while ((entry = readdir(dir)) != NULL) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}
#endif

/* ---- looking at events ----------------------------------------------------------------------- */

/* How many texts of last_error begin with "interrupted". */
T_UNUSED static int p_interrupted(const char *json)
{
    char text[1200];
    int i, n = t_errors(json, -1, NULL, 0), hits = 0;
    for (i = 0; i < n; i++) {
        t_errors(json, i, text, sizeof text);
        hits += strncmp(text, "interrupted", 11) == 0;
    }
    return hits;
}

/* A handler that waits at the p_gate it is given, until the test says p_set(&gate.release, 1). */
typedef struct p_gate {
    int calls, entered, release;
} p_gate;

T_UNUSED static eb_result p_wait_at(eb_delivery *d, void *user)
{
    p_gate *gate = (p_gate *)user;
    (void)d;
    p_add(&gate->calls, 1);
    p_set(&gate->entered, 1);
    p_until(&gate->release, 1);
    return EB_OK;
}

/* What `.restore` of the sqlite3 shell does. */
T_UNUSED static void p_restore(const char *from, const char *to)
{
    sqlite3 *source = NULL, *target = NULL;
    sqlite3_backup *backup;
    int rc;
    T_MUST(sqlite3_open(from, &source) == SQLITE_OK);
    T_MUST(sqlite3_open(to, &target) == SQLITE_OK);
    sqlite3_busy_timeout(source, 5000);
    sqlite3_busy_timeout(target, 5000);
    backup = sqlite3_backup_init(target, "main", source, "main");
    T_MUST(backup != NULL);
    while ((rc = sqlite3_backup_step(backup, -1)) == SQLITE_BUSY || rc == SQLITE_LOCKED) p_nap(1);
    T_MUST(rc == SQLITE_DONE);
    T_MUST(sqlite3_backup_finish(backup) == SQLITE_OK);
    sqlite3_close(source);
    sqlite3_close(target);
}

/* ---- threads --------------------------------------------------------------------------------- */

T_UNUSED static pthread_t p_go(void *(*func)(void *), void *arg)
{
    pthread_t thread;
    T_MUST(pthread_create(&thread, NULL, func, arg) == 0);
    return thread;
}
T_UNUSED static void p_join(pthread_t thread) { T_MUST(pthread_join(thread, NULL) == 0); }

/* ---- children: the parent's side ------------------------------------------------------------- */

enum { P_CHILDREN = 16, P_CHILD_ARGS = 8 };
#ifdef _WIN32
typedef unsigned p_size;
#else
typedef size_t p_size;
#endif
T_UNUSED static int64_t p_read(int fd, void *to, size_t n) { return read(fd, to, (p_size)n); }
T_UNUSED static int64_t p_write(int fd, const void *p, size_t n) { return write(fd, p, (p_size)n); }

typedef struct p_child {
    pid_t pid; /* 0: free slot */
    int to, from;
    size_t have;
    char buf[4096];
#ifdef _WIN32
    HANDLE process;
#endif
} p_child;

static p_child p_children[P_CHILDREN];

#ifdef _WIN32
enum { P_CHILD_IN = 0, P_CHILD_OUT = 1 };
#define SIGKILL 9
#define P_SIGNALLED 0x5000
#define WIFSIGNALED(status) ((status) > P_SIGNALLED)
#define WTERMSIG(status) ((status) - P_SIGNALLED)
#define WIFEXITED(status) (!WIFSIGNALED(status))
#define WEXITSTATUS(status) (status)

T_UNUSED static void p_proc_init(char **argv) { (void)argv; }

/* Starts a program with these handles as its stdin and stdout. */
T_UNUSED static void p_child_start(p_child *c, char **argv, int in, int out)
{
    static char self[1000], line[6000];
    STARTUPINFOA how;
    PROCESS_INFORMATION made;
    size_t at = 0;
    int tries = 0;
    memset(&how, 0, sizeof how);
    how.cb = sizeof how;
    how.dwFlags = STARTF_USESTDHANDLES;
    how.hStdInput = (HANDLE)_get_osfhandle(in);
    how.hStdOutput = (HANDLE)_get_osfhandle(out);
    how.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    T_MUST(SetHandleInformation(how.hStdInput, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT));
    T_MUST(SetHandleInformation(how.hStdOutput, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT));
    T_MUST(GetModuleFileNameA(NULL, self, sizeof self) > 0);
    for (; *argv; argv++) {
        T_MUST(!strpbrk(*argv, "\"\\") && at + strlen(*argv) + 4 < sizeof line);
        at += (size_t)snprintf(line + at, sizeof line - at, "\"%s\" ", *argv);
    }
    /* wine on a busy machine refuses one in some thousands; that is not what is tested here */
    for (; !CreateProcessA(self, line, NULL, NULL, TRUE, 0, NULL, NULL, &how, &made); Sleep(100))
        if (++tries == 20) fprintf(stderr, "CreateProcess: error %lu\n", GetLastError()), abort();
    CloseHandle(made.hThread);
    c->process = made.hProcess;
    c->pid = (pid_t)made.dwProcessId;
}

T_UNUSED static void p_pipe(int ends[2])
{
    HANDLE raw[2];
    int i;
    T_MUST(CreatePipe(&raw[0], &raw[1], NULL, 0));
    for (i = 0; i < 2; i++) {
        ends[i] = _open_osfhandle((intptr_t)raw[i], _O_BINARY);
        T_MUST(ends[i] >= 0);
    }
}

/* Waits a moment; 1: there is something to read, or the end. */
T_UNUSED static int p_readable(int fd)
{
    DWORD size = 0;
    if (!PeekNamedPipe((HANDLE)_get_osfhandle(fd), NULL, 0, NULL, &size, NULL) || size) return 1;
    p_nap(1);
    return 0;
}

/* kill -9, without waiting for the end. */
T_UNUSED static void p_shoot(p_child *c) { TerminateProcess(c->process, P_SIGNALLED + SIGKILL); }

/* The child stands still (1), or goes on (0). Only the lower half of Windows has this. */
T_UNUSED static void p_stop(p_child *c, int still)
{
    HMODULE nt = GetModuleHandleA("ntdll.dll");
    LONG(WINAPI * func)(HANDLE);
    FARPROC found = GetProcAddress(nt, still ? "NtSuspendProcess" : "NtResumeProcess");
    T_MUST(found);
    memcpy(&func, &found, sizeof func);
    T_MUST(func(c->process) == 0);
}

/* 1: it has ended, with this status. */
T_UNUSED static int p_ended(p_child *c, int *status)
{
    DWORD code = 0;
    if (WaitForSingleObject(c->process, 0) != WAIT_OBJECT_0) return 0;
    T_MUST(GetExitCodeProcess(c->process, &code));
    *status = (int)code;
    CloseHandle(c->process);
    return 1;
}
#else
enum { P_CHILD_IN = 3, P_CHILD_OUT = 4 };
extern char **environ;
static const char *p_self = "/proc/self/exe";

/* Call first in main: remembers how to start this program again. T_SELF names a script that does,
** for a program that runs in an emulator. */
T_UNUSED static void p_proc_init(char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (getenv("T_SELF")) p_self = getenv("T_SELF");
    else if (access(p_self, X_OK) != 0) p_self = argv[0];
}

T_UNUSED static void p_child_start(p_child *c, char **argv, int in, int out)
{
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in, P_CHILD_IN);
    posix_spawn_file_actions_adddup2(&fa, out, P_CHILD_OUT);
    T_MUST(posix_spawn(&c->pid, argv[0], &fa, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&fa);
}

/* A pipe whose ends lie above the descriptors that children use and close on exec. */
T_UNUSED static void p_pipe(int ends[2])
{
    int i, raw[2];
    T_MUST(pipe(raw) == 0);
    for (i = 0; i < 2; i++) {
        ends[i] = fcntl(raw[i], F_DUPFD_CLOEXEC, 20);
        T_MUST(ends[i] >= 20);
        close(raw[i]);
    }
}

/* Waits a moment; 1: there is something to read, or the end. */
T_UNUSED static int p_readable(int fd)
{
    struct pollfd p;
    p.fd = fd;
    p.events = POLLIN;
    p.revents = 0;
    return poll(&p, 1, 5) > 0;
}

/* kill -9, without waiting for the end. */
T_UNUSED static void p_shoot(p_child *c) { kill(c->pid, SIGKILL); }

/* The child stands still (1), or goes on (0). */
T_UNUSED static void p_stop(p_child *c, int still)
{
    T_MUST(kill(c->pid, still ? SIGSTOP : SIGCONT) == 0);
}

/* 1: it has ended, with this status. */
T_UNUSED static int p_ended(p_child *c, int *status)
{
    return waitpid(c->pid, status, WNOHANG) != 0;
}
#endif

/* Starts `prog --child role args...`; the list ends with NULL. */
T_UNUSED static p_child *p_spawn(const char *role, ...)
{
    char store[P_CHILD_ARGS + 3][420], *argv[P_CHILD_ARGS + 4];
    const char *arg;
    p_child *c = p_children;
    va_list ap;
    int n = 0, i, down[2], up[2];
    while (c->pid) T_MUST(++c < p_children + P_CHILDREN);
#ifdef _WIN32
    snprintf(store[n++], sizeof store[0], "self");
#else
    snprintf(store[n++], sizeof store[0], "%s", p_self);
#endif
    snprintf(store[n++], sizeof store[0], "--child");
    snprintf(store[n++], sizeof store[0], "%s", role);
    va_start(ap, role);
    while ((arg = va_arg(ap, const char *)) != NULL) {
        T_MUST(n < P_CHILD_ARGS + 3);
        snprintf(store[n++], sizeof store[0], "%s", arg);
    }
    va_end(ap);
    for (i = 0; i < n; i++) argv[i] = store[i];
    argv[n] = NULL;
    p_pipe(down);
    p_pipe(up);
    memset(c, 0, sizeof *c);
    p_child_start(c, argv, down[0], up[1]);
    close(down[0]);
    close(up[1]);
    c->to = down[1];
    c->from = up[0];
    return c;
}

/* One line of the child, without its end: 1; 0: the pipe is closed; -1: nothing came. */
T_UNUSED static int p_hear_within(p_child *c, char *line, size_t cap, int64_t within_ms)
{
    int64_t end = p_ms() + within_ms;
    for (;;) {
        char *nl = (char *)memchr(c->buf, '\n', c->have);
        int64_t got;
        if (nl) {
            size_t len = (size_t)(nl - c->buf);
            snprintf(line, cap, "%.*s", (int)len, c->buf);
            c->have -= len + 1;
            memmove(c->buf, nl + 1, c->have);
            return 1;
        }
        T_MUST(c->have < sizeof c->buf);
        if (p_readable(c->from)) {
            got = p_read(c->from, c->buf + c->have, sizeof c->buf - c->have);
            if (got == 0) return 0;
            if (got > 0) c->have += (size_t)got;
        } else if (p_ms() >= end) {
            return -1;
        }
    }
}
T_UNUSED static int p_hear(p_child *c, char *line, size_t cap)
{
    return p_hear_within(c, line, cap, P_LONG_MS);
}

/* Asserts that the child's next line is exactly this. */
#define P_HEAR(child, text)                                                                        \
    do {                                                                                           \
        char t_line[300];                                                                          \
        t_copy(t_line, sizeof t_line, "");                                                         \
        T_EQ(1, p_hear(child, t_line, sizeof t_line));                                             \
        ASSERT_STR_EQ(text, t_line);                                                               \
    } while (0)

/* Sends one line to the child; a dead child does not mind. */
T_UNUSED static void p_tell(p_child *c, const char *text)
{
    char line[440];
    int len = snprintf(line, sizeof line, "%s\n", text);
    (void)p_write(c->to, line, (size_t)len);
}

T_UNUSED static void p_child_forget(p_child *c)
{
    close(c->to);
    close(c->from);
    c->pid = 0;
}

/* Closes the child's orders, waits for its end and returns the status of waitpid. A child that does
** not end is killed: -1. */
T_UNUSED static int p_end(p_child *c)
{
    int64_t end = p_ms() + P_LONG_MS;
    int status = 0;
    close(c->to);
    c->to = -1;
    while (!p_ended(c, &status)) {
        if (p_ms() > end) {
            p_shoot(c);
            while (!p_ended(c, &status)) p_nap(1);
            status = -1;
            break;
        }
        p_nap(1);
    }
    p_child_forget(c);
    return status;
}

/* kill -9, then as p_end. */
T_UNUSED static int p_kill(p_child *c)
{
    p_shoot(c);
    return p_end(c);
}

#define P_ENDS_CLEANLY(child)                                                                      \
    do {                                                                                           \
        int t_status = p_end(child);                                                               \
        ASSERTm("the child ended cleanly", t_status != -1 && WIFEXITED(t_status));                 \
        T_EQ(0, WEXITSTATUS(t_status));                                                            \
    } while (0)

T_UNUSED static int p_is_killed(int status)
{
    return status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* SET_TEARDOWN: what a failed test left running. */
T_UNUSED static void p_reap(void *unused)
{
    int i;
    (void)unused;
    for (i = 0; i < P_CHILDREN; i++)
        if (p_children[i].pid) p_kill(&p_children[i]);
}

/* Runs a suite with that teardown, which greatest forgets after each suite. */
#define P_RUN(suite)                                                                               \
    do {                                                                                           \
        SET_TEARDOWN(p_reap, NULL);                                                                \
        RUN_SUITE(suite);                                                                          \
    } while (0)

/* ---- children: their own side ---------------------------------------------------------------- */

/* Call first in a child: it dies with its parent's patience, and leaves no core file. */
#ifdef _WIN32
T_UNUSED static void p_win_aborted(int sig)
{
    TerminateProcess(GetCurrentProcess(), (UINT)(P_SIGNALLED + sig));
}
T_UNUSED static void *p_win_alarm(void *unused)
{
    Sleep(240000);
    TerminateProcess(GetCurrentProcess(), P_SIGNALLED + 14);
    return unused;
}
T_UNUSED static void p_child_init(void)
{
    pthread_t thread;
    signal(SIGABRT, p_win_aborted);
    T_MUST(pthread_create(&thread, NULL, p_win_alarm, NULL) == 0);
    _setmode(P_CHILD_IN, _O_BINARY);
    _setmode(P_CHILD_OUT, _O_BINARY);
    SetHandleInformation((HANDLE)_get_osfhandle(P_CHILD_IN), HANDLE_FLAG_INHERIT, 0);
    SetHandleInformation((HANDLE)_get_osfhandle(P_CHILD_OUT), HANDLE_FLAG_INHERIT, 0);
}
#else
T_UNUSED static void p_child_init(void)
{
    struct rlimit none;
    none.rlim_cur = none.rlim_max = 0;
    setrlimit(RLIMIT_CORE, &none);
    alarm(240);
    fcntl(P_CHILD_IN, F_SETFD, FD_CLOEXEC);
    fcntl(P_CHILD_OUT, F_SETFD, FD_CLOEXEC);
}
#endif

/* One line to the parent, in one write. */
T_UNUSED static void p_report(const char *fmt, ...) EB_PRINTF(1, 2);
T_UNUSED static void p_report(const char *fmt, ...)
{
    char line[300];
    int len;
    va_list ap;
    va_start(ap, fmt);
    len = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    T_MUST(len >= 0 && (size_t)len < sizeof line - 1);
    line[len] = '\n';
    T_MUST(p_write(P_CHILD_OUT, line, (size_t)len + 1) == len + 1);
}

/* Waits for one line from the parent; 0: there are no more. */
T_UNUSED static int p_order(char *line, size_t cap)
{
    size_t len = 0;
    char ch;
    int64_t got;
    for (;;) {
        got = p_read(P_CHILD_IN, &ch, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        if (ch == '\n') break;
        if (len + 1 < cap) line[len++] = ch;
    }
    line[len] = 0;
    return 1;
}

/* The whole process dies here, now. */
T_UNUSED static void p_die(void)
{
#ifdef _WIN32
    TerminateProcess(GetCurrentProcess(), P_SIGNALLED + SIGKILL);
#else
    kill(getpid(), SIGKILL);
#endif
    for (;;) p_nap(1000);
}

#endif /* T_PROC_H */
