// test_suffix.c - drafts of `suffix` are those of a plain search: every number of last tokens, every occurrence, counted in loops over the text.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"
#include "tests/support/lone_drafter.h"

enum { LENGTH = 160, TEXTS = 4, NODES = 64 };

struct settings_of { // the drafter's options
    int depth, tokens, past;
    double factor, least;
};

// ---- the plain search

struct corpus {
    const int32_t *token;
    int n;
};

// How often `s` (n) occurs with `token` behind it, and where it did last; token -2: any, or the end.
static int occurrences(struct corpus c, const int32_t *s, int n, int32_t token, int *recent)
{
    int count = 0;
    for (int at = 0; at + n <= c.n; at++) {
        bool same = token == -2 || (at + n < c.n && c.token[at + n] == token);
        for (int i = 0; i < n && same; i++)
            same = c.token[at + i] == s[i];
        count += same;
        if (same)
            *recent = at + n;
    }
    return count;
}

struct plain_path {
    double score;
    int n;
    int32_t token[NODES];
};

static void follow(const struct settings_of *o, struct corpus c, const int32_t *match, int n, int limit, int vocab,
                   struct plain_path *p)
{
    int32_t s[2 * LENGTH];
    double probability = 1;
    memcpy(s, match, (size_t)n * sizeof(*s));
    for (; p->n < limit; n++) {
        int best = -1, best_count = 0, best_recent = -1, all = 0;
        for (int token = 0; token < vocab; token++) {
            int recent = -1;
            const int count = occurrences(c, s, n, token, &recent);
            all += count;
            if (count > best_count || (count == best_count && count > 0 && recent > best_recent)) {
                best = token;
                best_count = count;
                best_recent = recent;
            }
        }
        if (best < 0 || (probability *= (double)best_count / (double)all) < o->least)
            return;
        p->score += probability;
        p->token[p->n++] = s[n] = best;
    }
}

// The ends of `text` that occur in the corpus `least` times: those with the same occurrences are one match.
static void search(const struct settings_of *o, struct corpus c, struct corpus text, int least, int depth, int vocab,
                   struct plain_path *best)
{
    int count[LENGTH + 2] = { 0 }, longest = 0, ignored;
    for (int n = 1; n <= text.n && (count[n] = occurrences(c, text.token + text.n - n, n, -2, &ignored)) >= least; n++)
        longest = n;
    for (int high = longest, low; high > 0; high = low - 1) {
        for (low = high; low > 1 && count[low - 1] == count[high];)
            low--;
        int most = high < o->depth ? high : o->depth - 1, match = (int)((o->depth + o->factor) / (1 + o->factor));
        match = match > most ? most : match;
        match = match < low ? low : match;
        int limit = (int)(o->factor * match + 1e-9);
        limit = limit < o->depth - match ? limit : o->depth - match;
        limit = limit < o->tokens ? limit : o->tokens;
        limit = limit < depth ? limit : depth;
        struct plain_path p = { 0 };
        follow(o, c, text.token + text.n - low, low, limit, vocab, &p);
        if (p.score > best->score)
            *best = p;
    }
}

// ---- the drafter

static struct drafter *open_with(const struct settings_of *o, int slots)
{
    struct error err;
    char *line = xformat("suffix:max_tree_depth=%d,tokens=%d,past=%d,max_spec_factor=%g,min_token_prob=%.17g", o->depth,
                         o->tokens, o->past, o->factor, o->least);
    struct drafter *d = lone_drafter(line, &(struct drafter_env){ .slots = slots, .length = LENGTH }, &err);
    assert_ok(d != NULL, err);
    free(line);
    return d;
}

// The next tokens of a text: a copy of some that occurred, or new ones.
static void write_text(int32_t *token, int from, int to, int vocab)
{
    while (from < to) {
        const int n = 1 + below(12), at = from > 0 ? below(from) : 0;
        const bool copy = from > 0 && below(3) > 0;
        for (int i = 0; i < n && from < to; i++, from++)
            token[from] = copy ? token[at + i] : below(vocab);
    }
}

static int check_history(const struct settings_of *o, int vocab)
{
    int32_t past[TEXTS * (LENGTH + 1)], token[LENGTH];
    struct own_draft own;
    struct drafter *d = open_with(o, 2);
    struct error err;
    int n_past = 0, drafted = 0;
    for (int t = 0; t < TEXTS; t++) {
        const int prompt = 1 + below(40), slot = below(2);
        write_text(token, 0, LENGTH, vocab);
        for (int n = prompt; n < LENGTH; n += 1 + below(5)) {
            const struct draft *draft = own_draft_begin(&own, token[n - 1], NODES);
            const int depth = below(4) > 0 ? 100 : below(4);
            struct request r = { .slot = slot, .n = n, .token = token, .draft = &own.draft, .depth = depth };
            if (n > prompt && below(2)) { // a text is read at its advances, or at the next draft
                const struct advance a = { .slot = slot, .sequence = token, .length = n };
                assert_ok(d->type->advance(d, &a, 1, &err), err);
            }
            assert_ok(d->type->propose(d, &r, 1, &err), err);
            struct plain_path best = { 0 };
            search(o, (struct corpus){ token, n }, (struct corpus){ token, n }, 2, depth, vocab, &best);
            if (o->past > 0)
                search(o, (struct corpus){ past, n_past }, (struct corpus){ token, n }, 1, depth, vocab, &best);
            assert_int_equal(draft->n - 1, best.n);
            for (int i = 0; i < best.n; i++) {
                assert_int_equal(draft->token[i + 1], best.token[i]);
                assert_int_equal(draft->parent[i + 1], i);
                assert_int_equal(draft->proposal[i + 1], DETERMINISTIC);
            }
            drafted += best.n;
            if (n + 5 >= LENGTH) { // this is what the drafter has seen of the text
                for (int i = prompt; o->past > 0 && i <= n; i++)
                    past[n_past++] = i < n ? token[i] : -1;
                break;
            }
        }
        d->type->forget(d, slot);
        if (n_past > o->past) { // the later half is left
            memmove(past, past + n_past / 2, (size_t)(n_past - n_past / 2) * sizeof(*past));
            n_past -= n_past / 2;
        }
    }
    drafter_destroy(d);
    return drafted;
}

TEST(drafts_are_those_of_a_plain_search)
{
    int drafted = 0;
    for (int history = 0; history < 200; history++) {
        const struct settings_of o = { .depth = 2 + below(20),
                                       .tokens = 1 + below(16),
                                       .past = below(2) ? 0 : 100 + below(500),
                                       .factor = below(2) ? 1 : 0.25 * (1 + below(12)),
                                       .least = 0.05 * below(8) };
        drafted += check_history(&o, 2 + below(8));
    }
    print_message("%d draft tokens\n", drafted);
    assert_true(drafted > 10000);
}

RUN_TESTS(NULL, NULL)
