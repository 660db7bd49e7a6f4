/* Counts the basic blocks that a build with -fsanitize-coverage=trace-pc runs through. */
#include <stdint.h>

static uint64_t steps;

void __sanitizer_cov_trace_pc(void) { steps++; }

uint64_t snapbid_steps(void) { return steps; }
