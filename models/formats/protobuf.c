#include "models/formats/protobuf.h"

#include <string.h>

static bool varint(struct wire_reader *r, uint64_t *to)
{
    *to = 0;
    for (int shift = 0; shift < 64 && r->n > 0; shift += 7) {
        const unsigned char b = *r->at++;
        r->n--;
        *to |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

static bool fixed(struct wire_reader *r, size_t bytes, uint64_t *to)
{
    if (r->n < bytes)
        return false;
    *to = 0;
    for (size_t i = 0; i < bytes; i++)
        *to |= (uint64_t)r->at[i] << 8 * i;
    r->at += bytes;
    r->n -= bytes;
    return true;
}

static bool bytes_of(struct wire_reader *r, struct wire_field *to)
{
    uint64_t n;
    if (!varint(r, &n) || n > r->n)
        return false;
    to->bytes = r->at;
    to->n = (size_t)n;
    r->at += n;
    r->n -= (size_t)n;
    return true;
}

bool wire_next(struct wire_reader *r, struct wire_field *to)
{
    uint64_t key;
    *to = (struct wire_field){ 0 };
    if (r->n == 0 || r->damaged)
        return false;
    bool ok = varint(r, &key) && key >> 3 > 0 && key >> 3 < 1 << 29;
    if (ok) {
        to->number = (int)(key >> 3);
        to->type = (enum wire)(key & 7);
        ok = to->type == WIRE_VARINT  ? varint(r, &to->value)
             : to->type == WIRE_64    ? fixed(r, 8, &to->value)
             : to->type == WIRE_32    ? fixed(r, 4, &to->value)
             : to->type == WIRE_BYTES ? bytes_of(r, to)
                                      : false;
    }
    r->damaged = !ok;
    return ok;
}

float wire_float(const struct wire_field *f)
{
    const uint32_t bits = (uint32_t)f->value;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
