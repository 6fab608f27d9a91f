#include "commands/texts.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/tokenizers/tokenizer.h"

void texts_free(struct texts *t)
{
    free(t->offset);
    free(t->id);
    free(t->mask);
    *t = (struct texts){ 0 };
}

bool text_reader_open(struct text_reader *r, const char *path, int vocab, int context, int64_t limit, struct error *err)
{
    *r = (struct text_reader){ .vocab = vocab, .context = context, .limit = limit };
    return json_lines_open(&r->lines, path, err);
}

void text_reader_close(struct text_reader *r)
{
    json_lines_close(&r->lines);
}

static void reserve(struct texts *t, int64_t tokens)
{
    const bool none = t->offset == NULL;
    array_reserve(t->offset, t->conversations, t->n + 2);
    if (none)
        t->offset[0] = 0;
    if (t->offset[t->n] + tokens > t->tokens) {
        t->tokens = (int64_t)next_capacity((size_t)t->tokens, (size_t)(t->offset[t->n] + tokens));
        t->id = xrealloc(t->id, (size_t)t->tokens * sizeof(*t->id));
        t->mask = xrealloc(t->mask, (size_t)t->tokens * sizeof(*t->mask));
    }
}

void texts_begin(struct texts *t)
{
    reserve(t, 0);
    t->offset[t->n + 1] = t->offset[t->n];
    t->n++;
}

void texts_add(struct texts *t, const int32_t *id, size_t n, uint8_t mask)
{
    reserve(t, (int64_t)n);
    memcpy(t->id + t->offset[t->n], id, n * sizeof(*id));
    memset(t->mask + t->offset[t->n], mask, n);
    t->offset[t->n] += (int64_t)n;
}

static bool read_mask(const struct json *line, size_t n, uint8_t *to, struct error *err)
{
    const struct json *mask = json_get(line, "loss_mask");
    if (!json_is_array(mask) || json_count(mask) != n)
        return fail(err, "\"loss_mask\": expected a list of %zu entries, as many as input_ids has", n);
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_at(mask, i);
        if (!json_is_int(v) || (json_int(v) != 0 && json_int(v) != 1))
            return fail(err, "\"loss_mask\": entry %zu: expected 0 or 1", i + 1);
        to[i] = (uint8_t)json_int(v);
    }
    return true;
}

static bool add(struct text_reader *r, struct texts *t, struct error *err)
{
    const struct json *line = r->lines.value;
    struct ids ids = { 0 };
    if (json_is_null(json_get(line, "input_ids")))
        return fail(err, "expected \"input_ids\" and \"loss_mask\", as `speclab distill` writes them; a text "
                         "without ids would be tokenized otherwise than the target wrote it");
    bool ok = json_read_ids(json_get(line, "input_ids"), "\"input_ids\"", r->vocab, &ids, err) &&
              (ids.n > 0 || fail(err, "\"input_ids\": expected at least one token"));
    if (ok) {
        texts_begin(t);
        texts_add(t, ids.id, ids.n, 0);
        ok = read_mask(line, ids.n, t->mask + t->offset[t->n - 1], err);
        if (ids.n > (size_t)r->context) {
            t->offset[t->n] = t->offset[t->n - 1] + r->context;
            r->cut++;
        }
    }
    free(ids.id);
    return ok;
}

// Whether there is another line. At the end of the file err is unchanged.
static bool next_line(struct text_reader *r, struct error *err)
{
    if ((r->limit > 0 && r->read >= r->limit) || !json_lines_next(&r->lines, err))
        return false;
    r->read++;
    return true;
}

bool text_reader_next(struct text_reader *r, int64_t tokens, struct texts *t, struct error *err)
{
    t->n = 0;
    t->first = r->read;
    reserve(t, 0);
    while (t->offset[t->n] < tokens && next_line(r, err))
        if (!add(r, t, err))
            return json_lines_place(&r->lines, err);
    return !r->lines.failed;
}
