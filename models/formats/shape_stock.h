// shape_stock.h - random numbers that the matrices of a shape share (shape.h): they are in memory once, and file_map() shows them again and again.
//
// A matrix begins at a unit, which is whole pages and whole blocks of its type, the first behind the end of the matrix before it. A stock that is
// smaller than its matrices has a prime number of units, so that equal rows of a matrix are far apart.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct error;
struct mapped_parts;

enum { STOCK_PAGE = 4096 };

struct stock {
    enum type type;
    float deviation;
    uint64_t seed;
    size_t unit;          // bytes
    size_t wanted, bytes; // of its matrices; of the stock
    size_t next;          // where the next matrix begins
    int fd;               // of a file in memory; -1: it is not made yet
};

// Nearly normal numbers. All matrices are wanted before it is made, and then get their parts in the same order.
struct stock stock_of(enum type type, float deviation, uint64_t seed);
void stock_want(struct stock *s, size_t bytes);
bool stock_make(struct stock *s, struct error *err);
// The parts that a matrix of so many bytes at `at` of a file is; beyond its end up to the next page.
void stock_add_parts(struct stock *s, uint64_t at, size_t bytes, struct mapped_parts *to);
void stock_drop(struct stock *s);

static inline size_t stock_up_to(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

int memory_file(struct error *err); // an empty one; -1 and err set on failure
bool memory_file_write(int fd, const void *bytes, size_t n, uint64_t at, struct error *err);
