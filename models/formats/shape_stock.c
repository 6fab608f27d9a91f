#include "models/formats/shape_stock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/mapped.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "core/splitmix.h"

int memory_file(struct error *err)
{
    const int fd = memfd_create("shape", MFD_CLOEXEC);
    if (fd < 0)
        fail(err, "a model in memory: %s", strerror(errno));
    return fd;
}

bool memory_file_write(int fd, const void *bytes, size_t n, uint64_t at, struct error *err)
{
    for (const char *from = bytes; n > 0;) {
        const ssize_t some = pwrite(fd, from, n, (off_t)at);
        if (some <= 0)
            return fail(err, "a model in memory: %s", strerror(errno));
        from += some;
        n -= (size_t)some;
        at += (uint64_t)some;
    }
    return true;
}

struct stock stock_of(enum type type, float deviation, uint64_t seed)
{
    struct stock s = { .type = type, .deviation = deviation, .seed = seed, .unit = STOCK_PAGE, .fd = -1 };
    while (s.unit % (size_t)type_facts[type].bytes != 0)
        s.unit += STOCK_PAGE;
    return s;
}

void stock_want(struct stock *s, size_t bytes)
{
    s->wanted += stock_up_to(bytes, s->unit);
}

void stock_drop(struct stock *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

// The sum of the four 16-bit parts of a random number is nearly normal, with standard deviation 2 * 65536 / sqrt(12).
static void fill(float *x, int64_t n, float deviation, uint64_t stream)
{
    const float scale = deviation / 37837.0f;
    for (int64_t i = 0; i < n; i++) {
        uint64_t u = splitmix(&(uint64_t){ stream + (uint64_t)i });
        int32_t sum = (int16_t)u + (int16_t)(u >> 16) + (int16_t)(u >> 32) + (int16_t)(u >> 48);
        x[i] = scale * (float)sum;
    }
}

static bool is_prime(size_t n)
{
    for (size_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return true;
}

bool stock_make(struct stock *s, struct error *err)
{
    enum { MOST_NUMBERS = 1 << 25 };
    const struct type_facts *f = &type_facts[s->type];
    const int64_t numbers = (int64_t)(s->unit / (size_t)f->bytes) * f->block; // numbers of a unit
    const uint64_t stream = splitmix(&(uint64_t){ s->seed });
    size_t units = s->wanted / s->unit;
    if (units > MOST_NUMBERS / (size_t)numbers)
        for (units = MOST_NUMBERS / (size_t)numbers; !is_prime(units);)
            units--;
    s->bytes = units * s->unit;
    s->fd = memory_file(err);
    float *x = xcalloc((size_t)numbers, sizeof(*x));
    void *blocks = xmalloc(s->unit);
    bool ok = s->fd >= 0;
    for (size_t i = 0; i < units && ok; i++) {
        fill(x, numbers, s->deviation, stream + i * (uint64_t)numbers);
        ok = quantize_floats(s->type, x, numbers, blocks)
                 ? memory_file_write(s->fd, blocks, s->unit, i * s->unit, err)
                 : fail(err, "random numbers cannot be quantized to %s", f->name);
    }
    free(x);
    free(blocks);
    return ok;
}

void stock_add_parts(struct stock *s, uint64_t at, size_t bytes, struct mapped_parts *to)
{
    for (bytes = stock_up_to(bytes, STOCK_PAGE); bytes > 0;) {
        const size_t left = s->bytes - s->next, n = bytes < left ? bytes : left;
        to->part = xrealloc(to->part, (to->n + 1) * sizeof(*to->part));
        to->part[to->n++] = (struct mapped_part){ at, n, s->fd, s->next };
        s->next = (s->next + n) % s->bytes;
        at += n;
        bytes -= n;
    }
    s->next = stock_up_to(s->next, s->unit) % s->bytes;
}
