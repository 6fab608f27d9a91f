// devices.h - the devices that a program uses, each opened when it is first asked for: target and drafter may share one
// or have one each.
#pragma once
#include <stdbool.h>

struct backend;
struct devices;
struct error;

// threads: of the CPU; 0: one for each processor this process may use. wrap: what every backend is wrapped in, which
// then owns it (backend_timed); NULL: nothing. Nothing is opened yet.
struct devices *devices_create(int threads, struct backend *(*wrap)(struct backend *b));
// Destroys their backends: models and caches on them must be gone. NULL is fine.
void devices_destroy(struct devices *d);

// "cpu" (NULL is, too), "cuda" (which is cuda:0) or "cuda:1", "cuda:2", ..; "cublas" and "cublas:1", ..: the same GPUs,
// with products by cuBLAS, to compare with: another backend, which may be open beside the first.
#define DEVICE_NAMES "cpu, cuda, cuda:N, cublas or cublas:N"
// false: err says so, and begins with `what`.
bool device_name_check(const char *name, const char *what, struct error *err);
// Borrowed until devices_destroy; the same backend whenever the same device is meant. NULL: err says why there is none.
struct backend *devices_get(struct devices *d, const char *name, struct error *err);
// What a backend that devices_get gave is called: "cpu", "cuda:0", ..
const char *devices_name(const struct devices *d, const struct backend *b);
