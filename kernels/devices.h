// devices.h - the devices that a program uses, each opened on first use: target and drafter may share a device or use
// two.
#pragma once
#include <stdbool.h>

struct backend;
struct devices;
struct error;

// Opens no device yet. threads: the CPU's; 0: one for each processor this process may use.
struct devices *devices_create(int threads);
// Sets backend.log of the devices that are opened from now on.
void devices_log(struct devices *d, void (*log)(void *self, const char *sentence), void *self);
// Destroys the backends. Destroy the models and caches on them before. d may be NULL.
void devices_destroy(struct devices *d);

// Device names: "cpu" (or NULL); "cpu:avx2", .., with an instruction set other than the fastest of this processor;
// "cuda" (cuda:0), "cuda:1", ..; "cublas" and "cublas:1", .., the same GPUs with products by cuBLAS, for comparison.
// cuda:N and cublas:N are separate backends and may be open at the same time.
#define DEVICE_NAMES "cpu, cpu:ISA, cuda, cuda:N, cublas or cublas:N"
// Returns false and sets err if name is none of these; the message begins with `what`.
bool device_name_check(const char *name, const char *what, struct error *err);
// Opens a device, or returns its backend if it is open. Borrowed until devices_destroy. Returns NULL and sets err on
// failure.
struct backend *devices_get(struct devices *d, const char *name, struct error *err);
// Returns the name of a backend from devices_get: "cpu", "cuda:0", ..
const char *devices_name(const struct devices *d, const struct backend *b);
