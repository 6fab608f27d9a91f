// digest.h - a 128-bit hash of what a result depends on: XXH3 of xxHash (Yann Collet), which is as fast as memory. Two
// inputs that differ have the same hash by accident once in 2^128; it is no defence against somebody who tries.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash { // { 0 }: of nothing
    uint64_t high, low;
};

enum { HASH_TEXT = 33 }; // 32 hexadecimal digits and a NUL

struct digest *digest_begin(void);
void digest_bytes(struct digest *d, const void *bytes, size_t n); // as they are: the caller says where they end
void digest_int(struct digest *d, int64_t v);
void digest_text_n(struct digest *d, const char *s, size_t n); // with its length, so that "ab", "c" is not "a", "bc"
void digest_text(struct digest *d, const char *s);             // NULL is not ""
void digest_hash(struct digest *d, struct hash h);
struct hash digest_end(struct digest *d); // frees d

struct hash hash_of(const void *bytes, size_t n);
bool hash_is_none(struct hash h);
bool hash_equal(struct hash a, struct hash b);
void hash_write(struct hash h, char to[HASH_TEXT]);
bool hash_read(const char *s, size_t n, struct hash *to); // what hash_write wrote and nothing else; false: it is not
