// probe.h - how fast this machine's memory can be read: the bound under which every pass of a model stays.
#pragma once
#include <stddef.h>

struct probe {
    double bytes_per_second; // the median pass; 0: there was no memory to try it on
    size_t bytes;            // read in each pass, much more than caches hold where memory allows
    int threads, passes;
};

// Takes about a second. threads 0: one for each processor this process may use.
struct probe probe_read_bandwidth(int threads);
