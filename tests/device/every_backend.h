// every_backend.h - every backend of this machine, one after the other, and tensors for it: the set-up of tests of operations.
//
// A program's arguments are [cpu|emulated|emulated-cublas|cuda|cublas [small]]: one kind of device only; smaller shapes, for slow
// checkers. Backends whose bits vary (backend.varies) are compared bit by bit only in operations that copy rows.
#pragma once
#include <stdbool.h>
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/device/gpus.h"
#include "tests/device/random_tensors.h"
#include "tests/device/reference_operations.h"
#include "tests/support/check.h"

enum { CPUS = 8, MAX_BACKENDS = CPUS + MAX_GPUS_HERE }; // CPUS: instruction sets
extern struct backend *backends[MAX_BACKENDS];
extern bool slow[MAX_BACKENDS]; // large shapes are skipped on slow backends
extern int n_backends;

bool backends_open(int argc, char **argv); // false: there are none
// Notes the distance of a result from its reference (reference_distance). The largest of each backend is printed in the end.
void backends_note(const struct backend *b, double distance);
int backends_close(void **state); // a group's tear-down
