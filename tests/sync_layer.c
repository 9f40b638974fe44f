/* Stands between a program and libc, by LD_PRELOAD: writes down each sync, rename and unlink, and fails syncs on demand.
 *
 * LP_SYNC_EVENTS  the file to which a line is appended for each call, after it was made: "fdatasync /path/of/the/file".
 * LP_SYNC_FAIL    a file that holds a part of a path: while it is there, syncs of such files fail with EIO.
 *
 * See tests/sync_layer.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *what, const char *path, const char *more) {
    const char *events = getenv("LP_SYNC_EVENTS");
    if (events == NULL) return;
    int saved = errno;
    char line[2 * PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s %s%s%s\n", what, path, *more ? " " : "", more);
    int fd = open(events, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write(fd, line, length) != length) abort();
        close(fd);
    }
    errno = saved;
}

static void path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static int fails(const char *path) {
    const char *demand = getenv("LP_SYNC_FAIL");
    if (demand == NULL) return 0;
    int fd = open(demand, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char part[PATH_MAX];
    ssize_t length = read(fd, part, sizeof part - 1);
    close(fd);
    part[length < 0 ? 0 : length] = 0;
    return strstr(path, part) != NULL;
}

/* The path is asked for before the call, in case that another thread closes the file. */
#define SYNC(NAME, PARAMETERS, ...)                                     \
    int NAME PARAMETERS {                                               \
        static int (*real) PARAMETERS;                                  \
        if (real == NULL) real = dlsym(RTLD_NEXT, #NAME);               \
        char path[PATH_MAX];                                            \
        path_of(fd, path);                                              \
        if (fails(path)) {                                              \
            note("failed-" #NAME, path, "");                            \
            errno = EIO;                                                \
            return -1;                                                  \
        }                                                               \
        int result = real(__VA_ARGS__);                                 \
        if (result == 0) note(#NAME, path, "");                         \
        return result;                                                  \
    }

SYNC(fsync, (int fd), fd)
SYNC(fdatasync, (int fd), fd)
SYNC(sync_file_range, (int fd, off64_t from, off64_t count, unsigned int flags), fd, from, count, flags)

int rename(const char *from, const char *to) {
    static int (*real)(const char *, const char *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "rename");
    int result = real(from, to);
    if (result == 0) note("rename", from, to);
    return result;
}

int unlink(const char *path) {
    static int (*real)(const char *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "unlink");
    int result = real(path);
    if (result == 0) note("unlink", path, "");
    return result;
}
