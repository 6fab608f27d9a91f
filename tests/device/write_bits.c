// write_bits.c - prints a hash of the result of each operation whose bits do not depend on the instruction set, for the comparison of two
// processors (./run arm): `write_bits [ISA]`, by default the fastest, whose name goes to stderr.
#include <inttypes.h>
#include <stdio.h>

#include "core/error.h"
#include "kernels/backend.h"
#include "tests/device/isa_cases.h"

// FNV-1a
static void print_hash(void *self, const char *name, const void *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325;
    (void)self;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
    printf("%016" PRIx64 " %s\n", hash, name);
}

int main(int argc, char **argv)
{
    struct error err;
    struct backend *b = backend_cpu_with(2, argc > 1 ? argv[1] : NULL, &err);
    fprintf(stderr, "%s\n", b != NULL ? b->describe(b) : err.text);
    if (b == NULL)
        return 2;
    isa_cases(b, print_hash, NULL);
    b->destroy(b);
    return 0;
}
