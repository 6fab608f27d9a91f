// capacity.h - whether a device has room for what is about to be put there.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct backend;
struct error;

// false: so many bytes are not free there; err says what for, how many there are and how many are free. what: "the weights of
// x.gguf". A device that has the host's memory is believed to have it.
bool memory_check(struct backend *b, size_t bytes, const char *what, struct error *err);
