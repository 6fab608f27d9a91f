// gpus.h - the devices, besides the CPU, that tests can run on here: the emulated GPU, and a real one.
#pragma once

struct backend;
struct error;

enum { MAX_GPUS_HERE = 2 };
struct gpu_here {
    const char *name; // "emulated", "cuda"
    struct backend *(*open)(struct error *err);
};
int gpus_here(struct gpu_here to[MAX_GPUS_HERE]); // how many; says on stdout what is not on this machine
