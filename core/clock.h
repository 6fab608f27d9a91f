// clock.h - a monotonic clock.
#pragma once
#include <stdint.h>

int64_t clock_ns(void); // nanoseconds since an arbitrary fixed moment, equal in all threads; never decreases
double clock_seconds(void);
