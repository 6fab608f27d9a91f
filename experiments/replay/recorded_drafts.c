#include "experiments/replay/recorded_drafts.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/pairs/paired_run.h"
#include "experiments/cells.h"
#include "results/query.h"

// ---- drafts

// Returns the integers of column `at`, each from min to max; NULL on failure. *n: their number.
static int32_t *read_ids(struct query *q, int at, int64_t min, int64_t max, int *n)
{
    struct error ignored;
    const char *text = query_text(q, at);
    struct json *j = json_parse(text, strlen(text), "", &ignored);
    int32_t *id = xmalloc((json_count(j) + 1) * sizeof(*id));
    bool ok = json_is_array(j);
    *n = (int)json_count(j);
    for (int i = 0; i < *n && ok; i++) {
        const struct json *v = json_at(j, (size_t)i);
        ok = json_is_int(v) && json_int(v) >= min && json_int(v) <= max;
        id[i] = (int32_t)json_int(v);
    }
    json_free(j);
    if (ok)
        return id;
    free(id);
    return NULL;
}

static bool is_tree(const int32_t *parent, int n)
{
    if (n < 1 || n > MAX_NODES || parent[0] != -1)
        return false;
    for (int i = 1; i < n; i++)
        if (parent[i] < 0 || parent[i] >= i)
            return false;
    return true;
}

static bool read_draft(struct recorded_text *t, struct recorded_draft *to, struct query *q)
{
    struct draft *d = &to->draft;
    int n_parents = 0, n_proposals = 0;
    to->step = (int)query_int(q, 7);
    to->position = (int)query_int(q, 8);
    d->token = read_ids(q, 9, 0, INT32_MAX, &d->n);
    d->parent = read_ids(q, 10, -1, MAX_NODES, &n_parents);
    int32_t *proposal = read_ids(q, 11, DETERMINISTIC, SAMPLED_WITHOUT_REPLACEMENT, &n_proposals),
            *out = read_ids(q, 12, 0, INT32_MAX, &to->n_out);
    bool ok = d->token != NULL && d->parent != NULL && proposal != NULL && out != NULL && to->n_out >= 1 &&
              n_parents == d->n && n_proposals == d->n && is_tree(d->parent, d->n);
    d->capacity = d->n;
    d->proposal = xcalloc((size_t)d->n + 1, sizeof(*d->proposal));
    for (int i = 0; ok && i < d->n; i++)
        d->proposal[i] = (uint8_t)proposal[i];
    t->out = xrealloc(t->out, ((size_t)t->n_out + (size_t)to->n_out + 1) * sizeof(*t->out));
    for (int i = 0; ok && i < to->n_out; i++)
        t->out[t->n_out++] = out[i];
    free(proposal);
    free(out);
    const void *packed = query_blob(q, 13, &to->bytes);
    to->packed = xmalloc(to->bytes + 1);
    if (to->bytes > 0)
        memcpy(to->packed, packed, to->bytes);
    return ok;
}

bool recorded_text_add(struct recorded_text *t, struct query *q, const char *path, struct error *err)
{
    if (t->n == 0) {
        t->sequence = query_int(q, 0);
        if (query_int(q, 1) >= MAX_PROMPTS || query_int(q, 2) >= MAX_TURNS || query_int(q, 3) >= MAX_REPEATS)
            return fail(err, "%s: sequence %lld: its prompt, turn or repeat is damaged", path, (long long)t->sequence);
        t->number = sequence_number(query_int(q, 1), (int)query_int(q, 2), (int)query_int(q, 3));
        t->conversation = sequence_number(query_int(q, 1), 0, (int)query_int(q, 3));
        t->prompt_tokens = (int)query_int(q, 4);
        t->new_tokens = (int)query_int(q, 5);
        t->string = strcmp(query_text(q, 6), "string") == 0;
    }
    t->draft = xrealloc(t->draft, ((size_t)t->n + 1) * sizeof(*t->draft));
    struct recorded_draft *d = &t->draft[t->n++];
    *d = (struct recorded_draft){ 0 };
    const struct recorded_draft *before = t->n > 1 ? d - 1 : NULL;
    const bool ok = read_draft(t, d, q);
    const int expected = before != NULL ? before->position + before->n_out : t->prompt_tokens - 1;
    return (ok && d->step == t->n - 1 && d->position == expected) ||
           fail(err, "%s: sequence %lld, step %d: its draft is damaged, or the draft of an earlier step is missing",
                path, (long long)t->sequence, d->step);
}

void recorded_text_free(struct recorded_text *t)
{
    for (int i = 0; i < t->n; i++) {
        struct recorded_draft *d = &t->draft[i];
        free(d->draft.token);
        free(d->draft.parent);
        free(d->draft.proposal);
        free(d->packed);
    }
    free(t->out);
    free(t->draft);
    *t = (struct recorded_text){ 0 };
}

// ---- rows

static bool has_sampled_child(const struct draft *d, int node)
{
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        if (d->proposal[c] != DETERMINISTIC)
            return true;
    return false;
}

static const float *view_row(struct rows *self, int node)
{
    struct rows_view *v = (struct rows_view *)self;
    struct recorded_rows *r = v->of;
    const int at = r->node[node] + (v->q ? r->nodes : 0);
    const struct kept_row *kept = &r->kept.row[r->at[at].kept];
    r->incomplete = r->incomplete || kept->rest > 0;
    if (r->at[at].row == NULL)
        r->at[at].row = xmalloc((size_t)r->vocab * sizeof(float));
    if (!r->at[at].made)
        row_write(kept, r->vocab, r->at[at].row);
    r->at[at].made = true;
    return r->at[at].row;
}

// The row must be one that view_row gave.
static int source_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    const struct recorded_source *s = (const struct recorded_source *)self;
    struct recorded_rows *r = s->of;
    for (int i = 0; at.purpose == FOR_TOKEN && i < 2 * r->nodes; i++) {
        if (r->at[i].row != weight || !r->at[i].made)
            continue;
        const struct kept_row *kept = &r->kept.row[r->at[i].kept];
        if (kept->rest > 0 && kept->drawn.token >= 0 && kept->drawn.position == at.position)
            return kept->drawn.token;
        r->uncertain = r->uncertain || kept->rest > 0;
        break;
    }
    return s->pick_row(self, weight, n, at);
}

static bool sums_to_one(const struct kept_row *r)
{
    double sum = r->rest;
    for (int i = 0; i < r->n; i++)
        sum += (double)r->entry[i].p;
    return sum > 0.99 && sum < 1.01;
}

static bool has_token(const struct kept_row *r, int32_t token)
{
    int i = 0;
    while (i < r->n && r->entry[i].token < token)
        i++;
    // No smaller entry was ever drawn.
    return i < r->n && r->entry[i].token == token && (double)r->entry[i].p >= 0x1p-50;
}

// Returns whether no earlier sibling has the node's token.
static bool is_new_token(const struct draft *d, int node)
{
    for (int s = draft_next_child(d, d->parent[node], 0); s < node; s = draft_next_child(d, d->parent[node], s))
        if (d->token[s] == d->token[node])
            return false;
    return true;
}

// Checks what rules rely on: rows are distributions, and each sampled token was drawn from its row.
static bool rows_fit(const struct recorded_rows *r, const struct draft *d)
{
    for (int i = 0; i < r->kept.n; i++)
        if (!sums_to_one(&r->kept.row[i]))
            return false;
    for (int i = 0; i < d->n; i++)
        if (d->token[i] >= r->vocab)
            return false;
    for (int i = 1; i < d->n; i++)
        if (d->proposal[i] != DETERMINISTIC &&
            (!has_token(&r->kept.row[r->at[r->nodes + d->parent[i]].kept], d->token[i]) ||
             (d->proposal[i] == SAMPLED_WITHOUT_REPLACEMENT && !is_new_token(d, i))))
            return false;
    return true;
}

bool recorded_rows_open(struct recorded_rows *r, const struct recorded_draft *d, const char *what, struct error *err)
{
    rows_free(&r->kept);
    if (!rows_unpack(d->packed, d->bytes, what, &r->kept, err))
        return false;
    if (r->vocab != 0 && r->vocab != r->kept.vocab)
        return fail(err, "%s: rows: expected a vocabulary of %d as before, found %d", what, r->vocab, r->kept.vocab);
    int n = 0;
    r->nodes = d->draft.n;
    for (int at = 0; at < 2 * r->nodes; at++) {
        r->at[at].made = false;
        r->at[at].kept = at < r->nodes || has_sampled_child(&d->draft, at - r->nodes) ? n++ : -1;
    }
    r->vocab = r->kept.vocab;
    r->p = (struct rows_view){ { r->vocab, view_row }, r, false };
    r->q = (struct rows_view){ { r->vocab, view_row }, r, true };
    if (n != r->kept.n)
        return fail(err, "%s: rows: expected %d for this draft, found %d", what, n, r->kept.n);
    return rows_fit(r, &d->draft) ||
           fail(err, "%s: rows: expected distributions with every sampled token, found others", what);
}

void recorded_rows_point(struct recorded_rows *r, const int *node, uint64_t seed, int64_t sequence, int root)
{
    r->node = node;
    r->incomplete = r->uncertain = false;
    r->source = (struct recorded_source){ .philox = philox_source(seed, (uint64_t)sequence), .of = r };
    r->source.pick_row = r->source.philox.rng.pick_row;
    r->source.philox.rng.pick_row = source_pick_row;
    r->source.philox.rng.root = root;
}

void recorded_rows_destroy(struct recorded_rows *r)
{
    rows_free(&r->kept);
    for (int at = 0; at < 2 * MAX_NODES; at++)
        free(r->at[at].row);
    *r = (struct recorded_rows){ 0 };
}
