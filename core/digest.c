// digest.c - the only file that includes xxhash.h.
#include "core/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/memory.h"

struct digest *digest_begin(void)
{
    XXH3_state_t *s = XXH3_createState();
    if (s == NULL || XXH3_128bits_reset(s) != XXH_OK)
        memory_out(0);
    return (struct digest *)s;
}

static XXH3_state_t *state_of(struct digest *d)
{
    return (XXH3_state_t *)d;
}

void digest_bytes(struct digest *d, const void *bytes, size_t n)
{
    if (n > 0 && XXH3_128bits_update(state_of(d), bytes, n) != XXH_OK)
        abort();
}

// Little-endian, so that a hash is the same on every machine.
void digest_int(struct digest *d, int64_t v)
{
    uint8_t byte[8];
    for (int i = 0; i < 8; i++)
        byte[i] = (uint8_t)((uint64_t)v >> (8 * i));
    digest_bytes(d, byte, sizeof(byte));
}

void digest_text_n(struct digest *d, const char *s, size_t n)
{
    digest_int(d, (int64_t)n);
    digest_bytes(d, s, n);
}

void digest_text(struct digest *d, const char *s)
{
    if (s == NULL)
        digest_int(d, -1);
    else
        digest_text_n(d, s, strlen(s));
}

void digest_hash(struct digest *d, struct hash h)
{
    digest_int(d, (int64_t)h.high);
    digest_int(d, (int64_t)h.low);
}

static struct hash from_xxhash(XXH128_hash_t h)
{
    return (struct hash){ h.high64, h.low64 };
}

struct hash digest_end(struct digest *d)
{
    XXH128_hash_t h = XXH3_128bits_digest(state_of(d));
    XXH3_freeState(state_of(d));
    return from_xxhash(h);
}

struct hash hash_of(const void *bytes, size_t n)
{
    return from_xxhash(XXH3_128bits(n > 0 ? bytes : "", n));
}

uint64_t fnv(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
    return hash;
}

bool hash_is_none(struct hash h)
{
    return h.high == 0 && h.low == 0;
}

bool hash_equal(struct hash a, struct hash b)
{
    return a.high == b.high && a.low == b.low;
}

void hash_write(struct hash h, char to[HASH_TEXT])
{
    snprintf(to, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, h.high, h.low);
}

struct hash_text hash_text(struct hash h)
{
    struct hash_text text;
    hash_write(h, text.s);
    return text;
}

bool hash_read(const char *s, size_t n, struct hash *to)
{
    uint64_t half[2] = { 0 };
    if (n != HASH_TEXT - 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef", *at = strchr(digits, s[i]);
        if (s[i] == '\0' || at == NULL)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)(at - digits);
    }
    *to = (struct hash){ half[0], half[1] };
    return true;
}
