// clock.h - time that has passed.
#pragma once
#include <stdint.h>

int64_t clock_ns(void); // nanoseconds from a moment long ago, the same of every thread; never goes back
double clock_seconds(void);
