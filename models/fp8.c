#include "models/fp8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/weights.h"

static const char *const suffixes[] = { "_scale_inv", "_scale" };

static struct weight *find_scale(const struct weights *w, const char *matrix)
{
    struct weight *found = NULL;
    for (size_t i = 0; i < 2 && found == NULL; i++) {
        char *name = xformat("%s%s", matrix, suffixes[i]);
        found = weights_find(w, name);
        free(name);
    }
    return found;
}

static int64_t blocks(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

bool fp8_find(struct weights *w, struct weight *t, struct fp8_matrix *to, struct error *err)
{
    const int block = type_facts[F8_E4M3].block;
    const int64_t rows = t->tensor.rows, width = t->tensor.width;
    struct weight *s = find_scale(w, t->name);
    if (width % block != 0)
        return fail(err, "%s: tensor %s: expected rows of a multiple of %d numbers in F8_E4M3, found %" PRId64, t->file,
                    t->stored, block, width);
    if (s == NULL)
        return fail(err, "%s: tensor %s: expected its scales, %s%s, found none", t->file, t->stored, t->stored,
                    suffixes[0]);
    if (!s->known || (s->tensor.type != F32 && s->tensor.type != BF16))
        return fail(err, "%s: tensor %s: expected F32 or BF16, found %s", s->file, s->stored, s->type_name);
    *to = (struct fp8_matrix){ t->in_file, rows, width, s->tensor, w->fp8.rows, w->fp8.columns };
    to->scale.data = (void *)(uintptr_t)s->in_file;
    if (w->fp8.rows == 0) { // a scale for each row, or one
        to->block_rows = s->tensor.rows * s->tensor.width == rows ? 1 : rows;
        to->block_columns = width;
        if (s->tensor.rows == 1) // (rows) or one number
            to->scale = tensor_of(to->scale.data, s->tensor.type, s->tensor.width, 1);
    }
    const int64_t down = blocks(rows, to->block_rows), across = blocks(width, to->block_columns);
    if (to->scale.rows != down || to->scale.width != across)
        return fail(err,
                    "%s: tensor %s: expected %" PRId64 " rows of %" PRId64 " scales, found %" PRId64 " of %" PRId64,
                    s->file, s->stored, down, across, s->tensor.rows, s->tensor.width);
    s->requested = true;
    return true;
}

// Number i of scales of F32 or BF16, which may be misaligned.
static float scale_at(const struct tensor *t, int64_t i)
{
    const uint8_t *at = (const uint8_t *)t->data + (size_t)i * (size_t)type_facts[t->type].bytes;
    uint32_t bits = 0;
    float x;
    if (t->type == F32)
        memcpy(&bits, at, 4);
    else
        bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

void fp8_rows(const struct fp8_matrix *m, int64_t first, int64_t n, uint8_t *to)
{
    const int block = type_facts[F8_E4M3].block;
    for (int64_t r = first; r < first + n; r++)
        for (int64_t k = 0; k < m->width; k += block, to += type_facts[F8_E4M3].bytes) {
            const float scale = scale_at(&m->scale, r / m->block_rows * m->scale.width + k / m->block_columns);
            memcpy(to, &scale, sizeof(scale));
            memcpy(to + sizeof(scale), m->numbers + r * m->width + k, (size_t)block);
        }
}
