// digest.h - a 128-bit hash of the inputs of a result: XXH3 of xxHash (Yann Collet), which runs at memory speed. Two
// different inputs collide with probability 2^-128. The hash is not cryptographic.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash { // { 0 }: no hash
    uint64_t high, low;
};

enum { HASH_TEXT = 33 }; // 32 hexadecimal digits and a NUL

struct digest *digest_begin(void);
void digest_bytes(struct digest *d, const void *bytes, size_t n); // omits the length: the caller delimits the bytes
void digest_int(struct digest *d, int64_t v);
// includes the length, so that "ab", "c" differs from "a", "bc"
void digest_text_n(struct digest *d, const char *s, size_t n);
void digest_text(struct digest *d, const char *s); // NULL differs from ""
void digest_hash(struct digest *d, struct hash h);
struct hash digest_end(struct digest *d); // frees d

struct hash hash_of(const void *bytes, size_t n);
// FNV-1a of 64 bits. hash: FNV_EMPTY, or what it returned for the bytes before these.
#define FNV_EMPTY 0xCBF29CE484222325u
uint64_t fnv(uint64_t hash, const void *bytes, size_t n);
bool hash_is_none(struct hash h);
bool hash_equal(struct hash a, struct hash b);
void hash_write(struct hash h, char to[HASH_TEXT]);
struct hash_text {
    char s[HASH_TEXT];
};
struct hash_text hash_text(struct hash h);                // hash_text(h).s is the text
bool hash_read(const char *s, size_t n, struct hash *to); // false: s is not the exact output of hash_write
