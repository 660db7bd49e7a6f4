/* Replaces the clock of the processes that load it: LD_PRELOAD=clock.so CLOCK_TIME=FILE.
 *
 * FILE holds the time of day in nanoseconds since 1970, as int64, and is read at each look at the
 * clock; it stands still until somebody writes there. The monotonic clocks stay as they are. That of
 * the processor, by which Valkey counts on from the time of day, is as if it were not known. */
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

static const volatile int64_t *time_ns;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("CLOCK_TIME");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        time_ns = found == MAP_FAILED ? NULL : found;
        close(file);
    }
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    if (time_ns && strcmp(path, "/proc/cpuinfo") == 0) return NULL;
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen64");
    return next(path, mode);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (time_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = *time_ns;
        at->tv_sec = ns / 1000000000;
        at->tv_nsec = ns % 1000000000;
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, at);
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
