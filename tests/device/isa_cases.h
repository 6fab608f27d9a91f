// isa_cases.h - operations whose results have the same bits with every instruction set that has fused multiply-adds, on x86 and on ARM:
// for the comparison of instruction sets of one processor (test_isa.c) and of two (write_bits.c). Neither cmocka nor a library is used.
#pragma once
#include <stddef.h>

struct backend;

// Runs each operation on b and calls result() with its name and its result, in an order and with inputs that are always the same.
void isa_cases(struct backend *b, void (*result)(void *self, const char *name, const void *data, size_t bytes),
               void *self);
