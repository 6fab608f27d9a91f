// protobuf.h - reads Protocol Buffers' wire format field by field (protobuf.dev, "Encoding"), without a schema.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct wire_field {
    int number;
    enum wire type;
    uint64_t value;             // value of VARINT, 64 and 32
    const unsigned char *bytes; // (n) content of BYTES: text, bytes or a message; borrowed
    size_t n;
};

struct wire_reader { // start with { data, n }
    const unsigned char *at;
    size_t n;
    bool damaged;
};
// Reads the next field. Returns false at the end of the message, and if it is damaged.
bool wire_next(struct wire_reader *r, struct wire_field *to);
float wire_float(const struct wire_field *f);
