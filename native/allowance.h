/* The time that a search may take: the request's deadline, and processor time. */
#ifndef SNAPBID_ALLOWANCE_H
#define SNAPBID_ALLOWANCE_H

#include <stdint.h>
#include <time.h>

#define SB_LOOK_STEPS 1024 /* between two readings of the clock; some 20 us of searching */

/* Times are in nanoseconds. A step is a block, a candidate or the like. Checks read a monotonic
 * clock, without a system call. The thread's processor time takes one, so it is only read once an
 * eighth of the allowance has passed by the clock, which most searches do not reach, and after that
 * only when the remainder could be used up by the clock: a thread that waited for its processor is
 * not cut short for that. The time before the first reading counts as an eighth: it is at most that,
 * plus the steps between two checks, some 20 us. */
typedef struct {
    int64_t steps; /* until the next check */
    int64_t began, until;
    int64_t processor; /* allowed */
    int64_t used;      /* the thread's processor time when first read; 0: not read yet */
    int is_over;
} sb_allowance;

static inline int64_t sb_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline int64_t sb_ns(double seconds) {
    return seconds >= 1e9 ? (int64_t)1e18 : seconds <= 0 ? 0 : (int64_t)(seconds * 1e9);
}

static inline void sb_allow_all(sb_allowance *allowance) {
    allowance->steps = allowance->until = allowance->processor = INT64_MAX;
    allowance->began = 0;
    allowance->is_over = 0;
}

static inline void sb_allow(sb_allowance *allowance, double left_s, double processor_s) {
    allowance->began = sb_clock(CLOCK_MONOTONIC);
    allowance->until = allowance->began + sb_ns(left_s);
    allowance->processor = sb_ns(processor_s);
    allowance->used = 0;
    allowance->steps = SB_LOOK_STEPS;
    allowance->is_over = 0;
}

/* Whether the time is up. */
static int sb_look(sb_allowance *allowance) {
    int64_t now = sb_clock(CLOCK_MONOTONIC), elapsed = now - allowance->began;
    if (allowance->is_over) return 1;
    allowance->steps = SB_LOOK_STEPS;
    if (!allowance->used && elapsed >= allowance->processor / 8)
        allowance->used = sb_clock(CLOCK_THREAD_CPUTIME_ID);
    allowance->is_over = now >= allowance->until
        || (elapsed >= allowance->processor
            && sb_clock(CLOCK_THREAD_CPUTIME_ID) - allowance->used
                   >= allowance->processor - allowance->processor / 8);
    if (allowance->is_over) allowance->steps = 0;
    return allowance->is_over;
}

/* Spends steps; returns whether the time is up. */
static inline int sb_spend(sb_allowance *allowance, int64_t steps) {
    allowance->steps -= steps;
    return allowance->steps < 0 && sb_look(allowance);
}

#endif
