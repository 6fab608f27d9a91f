#include "tests/exact/table_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"

enum { LAYERS = 2, MESSAGE = 200 };

struct key { // a row of the cache; every number is exact in a float
    float token, text, position, slot;
};
enum { KEY = sizeof(struct key) / sizeof(float) };

struct expectation { // of a slot
    bool taken, decoding;
    int32_t token[TABLE_TEXT];
    int n, from;
    uint64_t text[TABLE_TEXT]; // of each pending row: the number of its text
    int length[TABLE_TEXT];    // and its number of tokens
};

struct model {
    struct backend backend; // first
    struct model_shape shape;
    struct table table;
    bool on_device, rejected_any; // rejected_any: a draft token was rejected
    enum flaw flaw;
    int rows;
    float *state; // (rows) the text that each row of the pass attended to
    struct expectation slot[TABLE_SLOTS];
    int64_t violations, rows_checked;
    char message[MESSAGE];
};

static struct model *active_model; // for the wrapped functions of the cache

const char *const flaw_names[FLAWS] = {
    [FLAWLESS] = "nothing",
    [END_CHECKED_AT_THE_END_OF_STEPS] = "M49 end-of-text is checked at the end of a step only",
    [PENALTY_AS_AT_THE_ROOT] = "M50 the penalty ignores the tokens of the draft",
    [PENALTY_TWICE_FOR_THE_LAST_TOKEN] = "M51 the penalty counts the last token twice",
    [PENALTY_FOR_REJECTED] = "M52 the penalty includes rejected tokens",
    [PENALTY_FOR_THE_PROMPT] = "the penalty counts the tokens of the prompt",
    [REJECTED_ROWS_ARE_KEPT] = "M54 the cache keeps rejected tokens",
    [ONE_ROW_TOO_FEW_IS_KEPT] = "M55 the cache keeps one row too few",
    [POSITIONS_BY_ROW] = "M56 positions count the rows of a tree",
    [POSITIONS_SHIFTED_AFTER_A_REJECTION] = "M56 positions are shifted by one after a rejection",
    [PATHS_GATHERED_BACKWARDS] = "M57 the rows of a path are gathered backwards",
    [PATHS_GATHERED_AS_IF_CHAINS] = "M57 the first rows of a tree are kept instead of the path's",
    [SIBLINGS_ARE_SEEN] = "M58 siblings are visible",
    [SLOTS_ARE_NOT_EMPTIED] = "a slot is not emptied",
};

// ---- the table

uint64_t text_number(int vocab, const int32_t *token, int n)
{
    uint64_t text = 0;
    for (int i = 0; i < n; i++)
        text = text_then(text, vocab, token[i]);
    return text;
}

uint64_t table_hash(uint64_t seed, uint64_t of) // splitmix64
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + of * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void table_weights(const struct table *t, uint64_t text, double *weight)
{
    uint64_t hash = table_hash(t->seed, text);
    int kind = (int)(hash % 5), peak = (int)(hash / 5 % (uint64_t)t->vocab);
    double sum = 0;
    for (int x = 0; x < t->vocab; x++) {
        uint64_t d = table_hash(hash, (uint64_t)x);
        weight[x] = 0.1 + (double)(d >> 11) * 0x1p-53;
        if (kind == 0 && x != peak && d % 2 == 0)
            weight[x] = 0;
        if (kind == 1 && x == peak)
            weight[x] += 8;
        sum += weight[x];
    }
    for (int x = 0; x < t->vocab; x++)
        weight[x] /= sum;
}

void table_logits(const struct table *t, uint64_t text, float *logit)
{
    double weight[TABLE_VOCAB];
    table_weights(t, text, weight);
    for (int x = 0; x < t->vocab; x++)
        logit[x] = logf((float)weight[x]);
}

// ---- the device: memory and moves of rows

static void *device_alloc(struct backend *b, size_t bytes)
{
    (void)b;
    return xcalloc(1, bytes);
}

static void device_release(struct backend *b, void *data)
{
    (void)b;
    free(data);
}

static void device_download(struct backend *b, void *host, const void *from, size_t bytes)
{
    (void)b;
    memcpy(host, from, bytes);
}

static void *device_host(struct backend *b, void *data)
{
    return ((struct model *)b)->on_device ? NULL : data;
}

static bool device_sync(struct backend *b, struct error *err)
{
    (void)b, (void)err;
    return true;
}

static float *row_of(struct tensor x, int64_t i)
{
    return (float *)x.data + i * x.width;
}

static void device_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row)
{
    (void)b;
    for (int64_t i = 0; i < out.rows; i++)
        memcpy(row_of(out, i), row_of(x, row[i]), (size_t)x.width * sizeof(float));
}

static void device_move(struct backend *b, const struct tensor *x, int count, const struct row_run *run, int runs)
{
    bool backwards = ((struct model *)b)->flaw == PATHS_GATHERED_BACKWARDS;
    float moved[TABLE_TEXT][KEY];
    for (int k = 0; k < count * runs; k++) {
        const struct row_run *r = &run[k % runs];
        for (int i = 0; i < r->n; i++)
            memcpy(moved[i], row_of(x[k / runs], r->row[backwards ? r->n - 1 - i : i]), sizeof(moved[i]));
        memcpy(row_of(x[k / runs], r->to), moved, (size_t)r->n * sizeof(moved[0]));
    }
}

static void device_stamp(struct backend *b, int number)
{
    (void)b, (void)number;
}

static int64_t device_between(struct backend *b, int from, int to)
{
    (void)b;
    return to - from;
}

static bool device_memory(struct backend *b, size_t *free_bytes, size_t *all)
{
    (void)b, (void)free_bytes, (void)all;
    return false;
}

// ---- the model

struct model *table_model_create(struct table t, int rows, bool on_device, enum flaw flaw)
{
    struct model *m = xcalloc(1, sizeof(*m));
    m->backend = (struct backend){ .name = "table",
                                   .queues = on_device,
                                   .alloc = device_alloc,
                                   .release = device_release,
                                   .download = device_download,
                                   .host = device_host,
                                   .sync = device_sync,
                                   .stamp = device_stamp,
                                   .between = device_between,
                                   .memory = device_memory,
                                   .take = device_take,
                                   .move = device_move };
    m->shape = (struct model_shape){ .layers = LAYERS, .width = 1, .vocab = t.vocab, .context = TABLE_TEXT };
    m->table = t;
    m->on_device = on_device;
    m->flaw = flaw;
    m->rows = rows;
    m->state = xcalloc((size_t)rows, sizeof(*m->state));
    active_model = m;
    return m;
}

void table_model_destroy(struct model *m)
{
    free(m->state);
    free(m);
    active_model = NULL;
}

void table_model_violation(struct model *m, const char *format, ...)
{
    va_list list;
    if (m->violations++ > 0)
        return;
    va_start(list, format);
    vsnprintf(m->message, sizeof(m->message), format, list);
    va_end(list);
}

int64_t table_model_violations(const struct model *m)
{
    return m->violations;
}

const char *table_model_message(const struct model *m)
{
    return m->message;
}

int64_t table_model_rows_checked(const struct model *m)
{
    return m->rows_checked;
}

void table_model_expect(struct model *m, int slot, const int32_t *token, int n, int from)
{
    struct expectation *e = &m->slot[slot];
    memcpy(e->token, token, (size_t)n * sizeof(*token));
    e->n = n;
    e->from = from;
    e->taken = e->decoding = true;
}

void table_model_start(struct model *m, const int32_t *token, int n)
{
    for (int s = 0; s < TABLE_SLOTS; s++)
        if (!m->slot[s].taken) {
            table_model_expect(m, s, token, n, 0);
            m->slot[s].taken = m->slot[s].decoding = false;
        }
}

void table_model_free_slot(struct model *m, int slot)
{
    m->slot[slot].taken = false;
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}

struct backend *model_backend(const struct model *m)
{
    return (struct backend *)(uintptr_t)&m->backend;
}

int model_rows(const struct model *m)
{
    return m->rows;
}

struct kv_shape model_kv_shape(const struct model *m, int slots, int length, int pending)
{
    int extra = m->flaw == FLAWLESS ? 0 : 8 * TABLE_TEXT; // for flaws that keep too many rows
    return (struct kv_shape){ .layers = LAYERS,
                              .width = KEY,
                              .head_dim = KEY,
                              .slots = slots,
                              .length = length + extra,
                              .pending = pending,
                              .type = F32 };
}

// Copies the keys that row i of a pass attends to, in the cache's order, to `seen` and returns their number; the row
// itself is appended by the caller. *equal: all layers, keys and values agree.
static int attend(const struct model *m, struct kv_cache *c, const struct layout *l, int i, struct key *seen,
                  bool *equal)
{
    int n = 0, first = l->slot[i] * l->length, own = l->place[i] - first - l->prefix[i];
    for (int r = 0; r < l->prefix[i] + own; r++) {
        int pending = r - l->prefix[i];
        bool visible = pending < 0 || (l->ancestors[i * l->words + pending / 64] >> pending % 64 & 1) != 0 ||
                       m->flaw == SIBLINGS_ARE_SEEN;
        if (!visible)
            continue;
        const float *key = row_of(kv_keys(c, 0), first + r);
        for (int k = 0; k < LAYERS; k++)
            *equal = *equal && memcmp(key, row_of(kv_keys(c, k), first + r), sizeof(*seen)) == 0 &&
                     memcmp(key, row_of(kv_values(c, k), first + r), sizeof(*seen)) == 0;
        memcpy(&seen[n++], key, sizeof(*seen));
    }
    return n;
}

// The number of the text of n keys, the last one being the row itself. *whole: each has the number of the text up to
// it, its place and this slot. A text that is not whole gets a number out of the range of texts.
static uint64_t attended_text(const struct model *m, const struct key *seen, int n, bool *whole)
{
    uint64_t text = 0, all = 0;
    for (int k = 0; k < n; k++) {
        text = text_then(text, m->table.vocab, (int32_t)seen[k].token);
        *whole = *whole && seen[k].position == (float)k && seen[k].slot == seen[n - 1].slot &&
                 (k == n - 1 || seen[k].text == (float)text);
        all = table_hash(all, (uint64_t)seen[k].token << 40 | (uint64_t)seen[k].position);
    }
    return *whole ? text : (1u << 22) + all % (1u << 22);
}

static void format_keys(char *to, const struct key *seen, int n)
{
    for (int k = 0; k < n && k < TABLE_TEXT; k++)
        to += sprintf(to, " %d@%d", (int)seen[k].token, (int)seen[k].position);
}

static int position(const struct model *m, const struct layout *l, int i, int row)
{
    bool decoding = m->slot[l->slot[i]].decoding;
    if (m->flaw == POSITIONS_BY_ROW)
        return l->prefix[i] + row;
    return l->position[i] + (m->flaw == POSITIONS_SHIFTED_AFTER_A_REJECTION && decoding && m->rejected_any);
}

// Sets the expected text of row `row` of a slot's pass.
static void expect_row(struct expectation *e, int vocab, int row, int parent, int32_t token)
{
    uint64_t before = parent < 0 ? text_number(vocab, e->token, e->from) : e->text[parent];
    int n = parent < 0 ? e->from : e->length[parent];
    e->text[row] = text_then(before, vocab, n < e->n ? e->token[n] : token);
    e->length[row] = n + 1;
}

static void check_row(struct model *m, struct kv_cache *c, const struct layout *l, const struct pass *p, int i)
{
    struct key seen[10 * TABLE_TEXT];
    int slot = p->slot[i], row = l->place[i] - slot * l->length - l->prefix[i];
    struct expectation *e = &m->slot[slot];
    bool whole = true;
    expect_row(e, m->table.vocab, row, p->parent[i], p->token[i]);
    int n = attend(m, c, l, i, seen, &whole);
    struct key *own = &seen[n++];
    *own = (struct key){ (float)p->token[i], 0, (float)position(m, l, i, row), (float)slot };
    uint64_t text = attended_text(m, seen, n, &whole);
    if (!whole || n != e->length[row] || text != e->text[row]) {
        char message[16 * TABLE_TEXT] = "";
        format_keys(message, seen, n);
        table_model_violation(m, "slot %d, row %d: it attends to%s; expected %d tokens, text number %d", slot, row,
                              message, e->length[row], (int)e->text[row]);
    }
    own->text = m->state[i] = (float)text;
    for (int k = 0; k < LAYERS; k++) {
        memcpy(row_of(kv_keys(c, k), l->place[i]), own, sizeof(*own));
        memcpy(row_of(kv_values(c, k), l->place[i]), own, sizeof(*own));
    }
    m->rows_checked++;
}

bool model_forward(struct model *m, struct kv_cache *c, const struct pass *p, const struct taps *taps,
                   struct states *out, struct error *err)
{
    (void)err;
    const struct layout *l = kv_admit(c, p, p->n);
    for (int i = 0; i < p->n; i++)
        check_row(m, c, l, p, i);
    for (int i = 0; i < p->n; i++) // the next chunk of a prompt follows this one
        m->slot[p->slot[i]].from += !m->slot[p->slot[i]].decoding;
    out->last = tensor_of(m->state, F32, p->n, 1);
    out->tapped = taps->n > 0 ? out->last : tensor_of(NULL, F32, 0, 0);
    return true;
}

bool model_append(struct model *m, struct kv_cache *c, int slot, const int32_t *token, int n, const struct taps *taps,
                  struct states *out, struct error *err)
{
    int32_t slots[MAX_APPENDED], parent[MAX_APPENDED], row[MAX_APPENDED];
    for (int i = 0; i < n; i++) {
        slots[i] = slot;
        parent[i] = i - 1;
        row[i] = i;
    }
    const struct pass pass = { .n = n, .token = token, .slot = slots, .parent = parent };
    const bool ok = model_forward(m, c, &pass, taps, out, err);
    kv_keep(c, slot, row, n);
    return ok;
}

void model_logits(const struct model *m, struct tensor out, struct tensor state)
{
    for (int64_t i = 0; i < out.rows; i++)
        table_logits(&m->table, (uint64_t)*row_of(state, i), row_of(out, i));
}

int64_t model_experts_touched(const struct model *m)
{
    (void)m;
    return 0;
}

// ---- the cache, wrapped by the linker: the real one, or one with a flaw after decoding has begun

void __real_kv_keep(struct kv_cache *c, int slot, const int32_t *row, int n);
void __wrap_kv_keep(struct kv_cache *c, int slot, const int32_t *row, int n);
int __real_kv_truncate(struct kv_cache *c, int slot, int length);
int __wrap_kv_truncate(struct kv_cache *c, int slot, int length);

void __wrap_kv_keep(struct kv_cache *c, int slot, const int32_t *row, int n)
{
    static const int32_t identity[TABLE_TEXT] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    enum flaw flaw = active_model->slot[slot].decoding ? active_model->flaw : FLAWLESS;
    active_model->rejected_any =
        active_model->rejected_any || (active_model->slot[slot].decoding && n < kv_pending(c, slot));
    if (flaw == REJECTED_ROWS_ARE_KEPT)
        __real_kv_keep(c, slot, identity, kv_pending(c, slot));
    else if (flaw == PATHS_GATHERED_AS_IF_CHAINS)
        __real_kv_keep(c, slot, identity, n);
    else
        __real_kv_keep(c, slot, row, flaw == ONE_ROW_TOO_FEW_IS_KEPT ? n - 1 : n);
}

int __wrap_kv_truncate(struct kv_cache *c, int slot, int length)
{
    active_model->rejected_any = false;
    return __real_kv_truncate(c, slot, active_model->flaw == SLOTS_ARE_NOT_EMPTIED ? kv_length(c, slot) : length);
}
