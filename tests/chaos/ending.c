/* Ends the process that loaded it, by SIGKILL, right before or after its n-th call that changes a file; or lets the disk
   be full from that call on, for some calls.

   Loaded before the C library (LD_PRELOAD), so that the calls of SQLite are counted with those of Python. Nothing is
   counted until `ending_arm` or `ending_fill` is called. Only calls on plain files count: what is told over a pipe is nobody's data. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long left, full;
static int after;

void ending_arm(long calls, int after_it) {
    after = after_it;
    atomic_store(&left, calls);
}

/* After `calls`, the next `many` calls that need room find none. */
void ending_fill(long calls, long many) {
    after = 2;
    atomic_store(&full, many);
    atomic_store(&left, calls);
}

long ending_full(void) { return atomic_load(&full); }

static int no_room(int needs_room) {
    if (!needs_room || after != 2 || atomic_load(&left) > 0 || atomic_load(&full) <= 0) return 0;
    if (atomic_fetch_sub(&full, 1) <= 0) return 0;
    errno = ENOSPC;
    return 1;
}

static void end(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

/* Whether this is the call. The one before which the process ends is never made. */
static int due(void) {
    if (atomic_load(&left) <= 0 || atomic_fetch_sub(&left, 1) != 1) return 0;
    if (!after) end();
    return after == 1;
}

static int counting(void) { return atomic_load(&left) > 0 || atomic_load(&full) > 0; }

static int plain(int fd) {
    struct stat found;
    return counting() && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

static int folder_or_plain(int fd) {
    struct stat found;
    return counting() && fstat(fd, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

#define COUNTED(type, name, given, passed, counts, needs_room)          \
    type name given {                                                   \
        static type (*real) given;                                      \
        if (!real) real = (type (*) given)dlsym(RTLD_NEXT, #name);      \
        int counted = (counts);                                         \
        if (counted && no_room(needs_room)) return -1;                  \
        int last = counted ? due() : 0;                                 \
        type out = real passed;                                         \
        if (last) end();                                                \
        return out;                                                     \
    }

COUNTED(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), plain(fd), 1)
COUNTED(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), plain(fd), 1)
COUNTED(ssize_t, pwrite64, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at), plain(fd), 1)
COUNTED(int, ftruncate, (int fd, off_t n), (fd, n), plain(fd), 0)
COUNTED(int, ftruncate64, (int fd, off64_t n), (fd, n), plain(fd), 0)
COUNTED(int, fsync, (int fd), (fd), folder_or_plain(fd), 1)
COUNTED(int, fdatasync, (int fd), (fd), folder_or_plain(fd), 1)
COUNTED(int, rename, (const char *from, const char *to), (from, to), 1, 1)
COUNTED(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), 1, 1)
COUNTED(int, renameat2, (int a, const char *from, int b, const char *to, unsigned how), (a, from, b, to, how), 1, 1)
COUNTED(int, link, (const char *from, const char *to), (from, to), 1, 1)
COUNTED(int, linkat, (int a, const char *from, int b, const char *to, int how), (a, from, b, to, how), 1, 1)
COUNTED(int, unlink, (const char *path), (path), 1, 0)
COUNTED(int, unlinkat, (int fd, const char *path, int how), (fd, path, how), 1, 0)
COUNTED(int, mkdir, (const char *path, mode_t mode), (path, mode), 1, 1)
COUNTED(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode), 1, 1)
