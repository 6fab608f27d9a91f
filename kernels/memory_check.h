// memory_check.h - checks for sufficient device memory before a large allocation.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct backend;
struct error;

// Returns false and sets err (the purpose, the bytes needed, and the bytes free) if `bytes` are not free on the device. what: the
// purpose, such as "the weights of x.gguf". A device that uses the host's memory always passes.
bool memory_check(struct backend *b, size_t bytes, const char *what, struct error *err);
