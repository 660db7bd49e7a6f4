/* Sets the time of day of the processes that load it: LD_PRELOAD=program_clock.so, and one of
 *
 *     CLOCK_OFFSET=FILE   FILE holds the nanoseconds to add
 *     CLOCK_TIME=FILE     FILE holds the nanoseconds since 1970: time stands still between writes
 *
 * FILE has an int64 and is read at each look at the clock. The monotonic clocks stay as they are, as
 * they do when somebody sets a real machine's clock. With CLOCK_TIME the processor's clock, by which
 * Valkey counts on from the time of day, is as if it were not known. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_ns, *time_ns;
static int (*real)(clockid_t, struct timespec *);

static const volatile int64_t *mapped(const char *variable) {
    const char *path = getenv(variable);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return NULL;
    void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return found == MAP_FAILED ? NULL : found;
}

__attribute__((constructor)) static void load(void) {
    offset_ns = mapped("CLOCK_OFFSET");
    time_ns = mapped("CLOCK_TIME");
    real = dlsym(RTLD_NEXT, "clock_gettime");
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    if (time_ns && strcmp(path, "/proc/cpuinfo") == 0) return NULL;
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen64");
    return next(path, mode);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = real ? real(clock, at) : (int)syscall(SYS_clock_gettime, clock, at);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + (offset_ns ? *offset_ns : 0);
    if (time_ns) ns = *time_ns;
    at->tv_sec = ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
