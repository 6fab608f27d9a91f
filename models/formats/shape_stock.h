// shape_stock.h - random numbers that the matrices of a shape share (shape.h): they are in memory once, and file_map()
// shows them repeatedly.
//
// A matrix begins at a unit, which is whole pages and whole blocks of its type: the first unit after the end of the
// previous matrix. A stock that is smaller than its matrices has a prime number of units, so that equal rows of a
// matrix are far apart.
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
    size_t unit;          // bytes of a unit
    size_t wanted, bytes; // bytes of its matrices; bytes of the stock
    size_t next;          // offset of the next matrix
    int fd;               // descriptor of a file in memory; -1: not made yet
};

// Returns a stock of nearly normal numbers. All matrices are requested before it is made, and get their parts in that
// order afterwards.
struct stock stock_of(enum type type, float deviation, uint64_t seed);
void stock_want(struct stock *s, size_t bytes);
bool stock_make(struct stock *s, struct error *err);
// Adds the parts that make up a matrix of so many bytes at offset `at` of a file, up to the page after its end.
void stock_add_parts(struct stock *s, uint64_t at, size_t bytes, struct mapped_parts *to);
void stock_drop(struct stock *s);

static inline size_t stock_up_to(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

int memory_file(struct error *err); // an empty file; -1 and err set on failure
bool memory_file_write(int fd, const void *bytes, size_t n, uint64_t at, struct error *err);
