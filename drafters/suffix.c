// suffix.c - drafts the most frequent continuation of the last tokens, in the text and, on request, in earlier ones.
//
// SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975). For every number of last tokens that occurred before, the most
// frequent next token is followed step by step. The probability of a draft token is the share of its occurrences among
// its siblings', times that of its parent. Of these drafts the one with the largest sum is taken, which is the expected
// number of accepted tokens. A longer match may draft more.
#include <stdlib.h>

#include <string.h>

#include "core/error.h"
#include "core/hash_map.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "models/tokenizers/tokenizer.h"

// ---- all substrings of a growing text, with the number of their occurrences and the most recent one
//
// This is a suffix automaton (Blumer et al. 1985): a state is a set of substrings that end at the same positions. A
// token is appended in constant amortized time, and at most `depth` counts change with it: those of the substrings of
// up to `depth` tokens that end there. Counts of longer substrings are not kept.
struct suffix_state {
    int32_t length; // length of its longest substring
    int32_t link;   // the state of the longest suffix that ends at more positions; -1: this is state 0, of the empty
                    // string
    int32_t count;  // number of occurrences
    int32_t recent; // the first state, from this one along links, whose substrings have up to `depth` tokens, or the
                    // one before it
    int32_t edge;   // the first of its edges; -1: none
    int32_t top;    // the first state along links, from this one on, with substrings of up to `depth` tokens, or one
                    // before that
};

struct suffix_edge { // `token` may follow the substrings of `from`, which leads to substrings of `to`
    int32_t from, token, to, next;
};

struct automaton {              // start with automaton_begin
    int depth, last;            // last: the state of the whole text
    int32_t position;           // number of tokens so far
    struct suffix_state *state; // (states)
    struct suffix_edge *edge;   // (edges)
    struct hash_table next;     // indices of edges by state and token
    int32_t states, edges, state_capacity, edge_capacity;
};

static void automaton_free(struct automaton *a)
{
    free(a->state);
    free(a->edge);
    hash_table_free(&a->next);
    *a = (struct automaton){ 0 };
}

static int32_t add_state(struct automaton *a, struct suffix_state s)
{
    array_reserve(a->state, a->state_capacity, a->states + 1);
    a->state[a->states] = s;
    return a->states++;
}

static void automaton_clear(struct automaton *a)
{
    hash_table_clear(&a->next);
    a->states = a->edges = 0;
    a->position = 0;
    a->last = add_state(a, (struct suffix_state){ .link = -1, .edge = -1 });
}

static void automaton_begin(struct automaton *a, int depth)
{
    *a = (struct automaton){ .depth = depth };
    hash_table_begin(&a->next, 128);
    automaton_clear(a);
}

// ---- edges

// Returns the place of the edge, or the free place for it.
static int32_t *place_of(const struct automaton *a, int32_t state, int32_t token)
{
    int32_t *at = hash_table_first(&a->next, hash_of_pair(state, token));
    while (*at >= 0 && (a->edge[*at].from != state || a->edge[*at].token != token))
        at = hash_table_next(&a->next, at);
    return at;
}

static void add_edge(struct automaton *a, int32_t from, int32_t token, int32_t to)
{
    array_reserve(a->edge, a->edge_capacity, a->edges + 1);
    if (hash_table_enlarge(&a->next, (size_t)a->edges + 1))
        for (int32_t e = 0; e < a->edges; e++)
            *place_of(a, a->edge[e].from, a->edge[e].token) = e;
    *place_of(a, from, token) = a->edges;
    a->edge[a->edges] = (struct suffix_edge){ from, token, to, a->state[from].edge };
    a->state[from].edge = a->edges++;
}

static int32_t automaton_next(const struct automaton *a, int32_t state, int32_t token)
{
    const int32_t e = *place_of(a, state, token);
    return e < 0 ? -1 : a->edge[e].to;
}

// ---- states

// Divides state q: a new state gets its substrings of up to `length` tokens.
static int32_t divide(struct automaton *a, int32_t q, int32_t length)
{
    struct suffix_state part = a->state[q];
    part.length = length;
    part.edge = -1;
    const int32_t to = add_state(a, part);
    a->state[to].top = to;
    for (int32_t e = a->state[q].edge; e >= 0; e = a->edge[e].next)
        add_edge(a, to, a->edge[e].token, a->edge[e].to);
    a->state[q].link = to;
    return to;
}

// Returns the link of a new state, to which the token leads from the suffixes of the text before it.
static int32_t link_for(struct automaton *a, int32_t added, int32_t token)
{
    int32_t p = a->last;
    for (; p >= 0 && automaton_next(a, p, token) < 0; p = a->state[p].link)
        add_edge(a, p, token, added);
    if (p < 0)
        return 0;
    const int32_t q = automaton_next(a, p, token);
    if (a->state[q].length == a->state[p].length + 1)
        return q;
    const int32_t part = divide(a, q, a->state[p].length + 1);
    for (int32_t e; p >= 0 && (e = *place_of(a, p, token)) >= 0 && a->edge[e].to == q; p = a->state[p].link)
        a->edge[e].to = part;
    return part;
}

// A state between a state and its `top` may have been divided since. This finds the first state along links whose own
// link is shorter than the depth.
static int32_t automaton_suffix(struct automaton *a, int32_t state)
{
    int32_t top = a->state[state].top;
    while (top != 0 && a->state[a->state[top].link].length >= a->depth)
        top = a->state[a->state[top].link].top;
    a->state[state].top = top;
    return top;
}

static void automaton_add(struct automaton *a, int32_t token)
{
    const int32_t added =
        add_state(a, (struct suffix_state){ .length = a->position + 1, .edge = -1, .top = a->states });
    const int32_t link = link_for(a, added, token);
    a->state[added].link = link;
    if (a->state[link].length >= a->depth)
        a->state[added].top = a->state[link].top;
    a->last = added;
    a->position++;
    for (int32_t s = automaton_suffix(a, added); s > 0; s = a->state[s].link) {
        a->state[s].count++;
        a->state[s].recent = a->position;
    }
}

// ---- the drafter

enum { SEPARATOR = -1, MAX_TOKENS = 256 }; // SEPARATOR separates earlier texts

struct suffix_options {
    int depth, tokens, past;
    double factor, least;
};

struct reading { // matches of a slot's text; state and length refer to earlier texts
    struct ids text;
    int prompt;            // number of prompt tokens; 0: not yet known
    int32_t state, length; // the longest suffix of the text that occurs in earlier ones
};

struct suffix {
    struct drafter drafter; // must be first
    struct suffix_options o;
    int slots;
    struct automaton *own;   // (slots) automaton of each slot's text
    struct automaton past;   // automaton of the earlier texts, each followed by a separator
    struct ids past_text;    // the tokens of `past`
    struct reading *reading; // (slots)
};

static struct drafter *suffix_create(const struct drafter_env *env, const void *options, struct error *err)
{
    (void)err;
    struct suffix *g = xcalloc(1, sizeof(*g));
    g->o = *(const struct suffix_options *)options;
    g->slots = env->slots;
    g->own = xcalloc((size_t)g->slots, sizeof(*g->own));
    g->reading = xcalloc((size_t)g->slots, sizeof(*g->reading));
    for (int i = 0; i < g->slots; i++)
        automaton_begin(&g->own[i], g->o.depth);
    automaton_begin(&g->past, g->o.depth);
    g->drafter.nodes = 1 + g->o.tokens;
    return &g->drafter;
}

static void suffix_destroy(struct drafter *d)
{
    struct suffix *g = (struct suffix *)d;
    for (int i = 0; i < g->slots; i++) {
        automaton_free(&g->own[i]);
        free(g->reading[i].text.id);
    }
    automaton_free(&g->past);
    free(g->past_text.id);
    free(g->own);
    free(g->reading);
    free(g);
}

// ---- texts

// The state of the text's suffix has longer and shorter strings. Since it was found it may have been divided, and the
// suffix may belong to its link.
static void normalize(const struct automaton *a, struct reading *f)
{
    while (f->length > 0 && a->state[a->state[f->state].link].length >= f->length)
        f->state = a->state[f->state].link;
}

// Follows the end of the text in the earlier ones.
static void follow(const struct suffix *g, struct reading *f, int32_t token)
{
    const struct automaton *a = &g->past;
    int32_t next;
    while ((next = automaton_next(a, f->state, token)) < 0 && f->state > 0) {
        f->state = a->state[f->state].link;
        f->length = a->state[f->state].length;
    }
    f->length = next < 0 ? 0 : f->length + 1;
    f->state = next < 0 ? 0 : next;
    normalize(a, f);
}

static void read_text(struct suffix *g, int slot, const int32_t *token, int n)
{
    struct automaton *a = &g->own[slot];
    for (int i = a->position; i < n; i++) {
        automaton_add(a, token[i]);
        if (g->o.past > 0) {
            follow(g, &g->reading[slot], token[i]);
            ids_add(&g->reading[slot].text, token[i]);
        }
    }
}

// Drops the earlier half of the earlier texts.
static void forget_half(struct suffix *g)
{
    struct ids *t = &g->past_text;
    const size_t from = t->n / 2;
    memmove(t->id, t->id + from, (t->n - from) * sizeof(*t->id));
    t->n -= from;
    automaton_clear(&g->past);
    for (size_t i = 0; i < t->n; i++)
        automaton_add(&g->past, t->id[i]);
    for (int slot = 0; slot < g->slots; slot++) {
        struct reading *f = &g->reading[slot];
        const size_t begin = f->text.n > (size_t)g->o.depth ? f->text.n - (size_t)g->o.depth : 0;
        f->state = f->length = 0;
        for (size_t i = begin; i < f->text.n; i++)
            follow(g, f, f->text.id[i]);
    }
}

static bool suffix_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)err;
    for (int i = 0; i < n; i++)
        read_text((struct suffix *)d, a[i].slot, a[i].sequence, a[i].length);
    return true;
}

static void suffix_forget(struct drafter *d, int slot)
{
    struct suffix *g = (struct suffix *)d;
    struct reading *f = &g->reading[slot];
    for (size_t i = (size_t)f->prompt; f->prompt > 0 && i <= f->text.n; i++) {
        const int32_t token = i < f->text.n ? f->text.id[i] : SEPARATOR;
        ids_add(&g->past_text, token);
        automaton_add(&g->past, token);
    }
    free(f->text.id);
    *f = (struct reading){ 0 };
    automaton_clear(&g->own[slot]);
    if (g->past_text.n > (size_t)g->o.past)
        forget_half(g);
}

// ---- drafts

// Finds the most frequent token after the strings of a state; of equally frequent ones, that of the most recent
// occurrence. Returns the state after it, and its share of all occurrences of a next token; -1: none.
static int32_t most_frequent(const struct automaton *a, int32_t state, int32_t *token, double *share)
{
    int32_t best = -1;
    int64_t all = 0;
    for (int32_t e = a->state[state].edge; e >= 0; e = a->edge[e].next) {
        const struct suffix_state *to = &a->state[a->edge[e].to];
        if (a->edge[e].token == SEPARATOR)
            continue;
        all += to->count;
        if (best < 0 || to->count > a->state[best].count ||
            (to->count == a->state[best].count && to->recent > a->state[best].recent)) {
            best = a->edge[e].to;
            *token = a->edge[e].token;
        }
    }
    *share = best >= 0 ? (double)a->state[best].count / (double)all : 0;
    return best;
}

struct path { // the most frequent tokens after a match
    const struct automaton *a;
    int32_t state; // state of the match
    int limit, n;
    double score;
    int32_t token[MAX_TOKENS];
};

static void extend(const struct suffix *g, struct path *p)
{
    double probability = 1, share;
    int32_t state = p->state, token;
    for (p->n = 0; p->n < p->limit && (state = most_frequent(p->a, state, &token, &share)) >= 0; p->n++) {
        probability *= share;
        if (probability < g->o.least)
            break;
        p->score += probability;
        p->token[p->n] = token;
    }
}

// Finds the best path after any of the matches that end in this state or along its links. A state has matches of
// several lengths with equal continuations; the one that allows the longest draft counts.
static void search(const struct suffix *g, struct automaton *a, int32_t state, int matched, int depth,
                   struct path *best)
{
    const double factor = g->o.factor;
    matched = matched < g->o.depth ? matched : g->o.depth - 1;
    for (state = automaton_suffix(a, state); state > 0; state = a->state[state].link) {
        const int shortest = a->state[a->state[state].link].length + 1;
        const int longest = a->state[state].length < matched ? a->state[state].length : matched;
        int match = (int)((g->o.depth + factor) / (1 + factor));
        match = match < shortest ? shortest : match > longest ? longest : match;
        struct path p = { .a = a, .state = state, .limit = (int)(factor * match + 1e-9) };
        const int most[] = { g->o.depth - match, g->o.tokens, depth };
        for (int i = 0; i < 3; i++)
            p.limit = most[i] < p.limit ? most[i] : p.limit;
        extend(g, &p);
        if (p.score > best->score)
            *best = p;
    }
}

static bool suffix_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    struct suffix *g = (struct suffix *)d;
    for (int i = 0; i < n; i++) {
        struct automaton *own = &g->own[r[i].slot];
        struct reading *f = &g->reading[r[i].slot];
        struct path best = { .score = 0 };
        read_text(g, r[i].slot, r[i].token, r[i].n);
        if (f->prompt == 0)
            f->prompt = r[i].n;
        const int32_t again = own->state[own->last].link; // the longest suffix that occurred before
        search(g, own, again, own->state[again].length, r[i].depth, &best);
        if (g->o.past > 0) {
            normalize(&g->past, f);
            search(g, &g->past, f->state, f->length, r[i].depth, &best);
        }
        for (int k = 0, node = 0; k < best.n && node >= 0; k++)
            node = draft_add(r[i].draft, node, best.token[k], DETERMINISTIC);
    }
    return true;
}

static enum draft_memory suffix_remembers(const void *options)
{
    return ((const struct suffix_options *)options)->past > 0 ? DRAFTS_OF_OTHERS : DRAFTS_OF_TEXT;
}

// clang-format off
static const struct option suffix_options[] = {
    { "max_tree_depth", OPTION_INT, offsetof(struct suffix_options, depth), "64", "tokens of a match and its continuation", 2, 256, NULL },
    { "max_spec_factor", OPTION_REAL, offsetof(struct suffix_options, factor), "1", "maximum number of draft tokens for each token of the match", 0.01, 256, NULL },
    { "min_token_prob", OPTION_REAL, offsetof(struct suffix_options, least), "0.1", "a draft ends before a token whose probability, by counts, is below this", 0, 1, NULL },
    { "tokens", OPTION_INT, offsetof(struct suffix_options, tokens), "8", "maximum number of draft tokens", 1, MAX_TOKENS, NULL },
    { "past", OPTION_INT, offsetof(struct suffix_options, past), "0", "tokens of earlier outputs to draft from as well; then drafts depend on what was decoded before", 0, 100000000, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type suffix_drafter = {
    .name = "suffix",
    .summary = "SuffixDecoding: the most frequent continuation of the last tokens",
    .options = suffix_options,
    .options_size = sizeof(struct suffix_options),
    .create = suffix_create,
    .propose = suffix_propose,
    .advance = suffix_advance,
    .forget = suffix_forget,
    .destroy = suffix_destroy,
    .remembers = suffix_remembers,
};
