// test_rest.c - drafts of `rest` are those of a plain search, on 200 random corpora: every occurrence of the longest end of the text, and the
// prefix tree of all continuations counted in loops.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "models/formats/datastore.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/small_model.h"
#include "tests/support/small_store.h"

enum { LONGEST_TEXT = 60, DOCUMENTS = 30, VOCAB = 288, NODES = 40 };

static char *model;

struct corpus { // documents of ids
    int n, length[DOCUMENTS];
    int32_t token[DOCUMENTS][LONGEST_TEXT];
};

static void write_store(const struct corpus *c, const char *path)
{
    static int32_t token[SMALL_STORE];
    int n = 0;
    for (int d = 0; d < c->n; d++) {
        memcpy(token + n, c->token[d], (size_t)c->length[d] * sizeof(*token));
        n += c->length[d];
        token[n++] = -1;
    }
    small_store_write_of(model, path, token, n);
}

struct choice {
    int n;
    int32_t token[16];
};

// Continuations of the last m tokens, in the order of their ids; a shorter text comes before a longer one.
static int occurrences(const struct corpus *c, const int32_t *text, int n, int m, int tokens, struct choice *to)
{
    int count = 0;
    for (int d = 0; d < c->n; d++)
        for (int at = 0; at + m <= c->length[d]; at++)
            if (memcmp(c->token[d] + at, text + n - m, (size_t)m * sizeof(*text)) == 0) {
                struct choice *o = &to[count++];
                for (o->n = 0; o->n < tokens && at + m + o->n < c->length[d]; o->n++)
                    o->token[o->n] = c->token[d][at + m + o->n];
            }
    return count;
}

// How often the choices begin with the path from the root to `node`, and then `token`.
static int frequency(const struct choice *c, int n, const int32_t *path, int depth, int32_t token)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += c[i].n > depth && memcmp(c[i].token, path, (size_t)depth * sizeof(*path)) == 0 &&
                 c[i].token[depth] == token;
    return count;
}

static int path_of(const struct draft *d, int node, int32_t *path)
{
    const int depth = draft_depth(d, node);
    for (int at = node, i = depth - 1; at > 0; at = d->parent[at], i--)
        path[i] = d->token[at];
    return depth;
}

static struct drafter *open_with(const char *path, int longest, int shortest, int nodes, int tokens)
{
    struct error err;
    char *line =
        xformat("rest:datastore=%s,longest=%d,shortest=%d,nodes=%d,tokens=%d", path, longest, shortest, nodes, tokens);
    struct drafter *d =
        lone_drafter(line, &(struct drafter_env){ .slots = 1, .length = 100, .used_vocab = VOCAB }, &err);
    assert_ok(d != NULL, err);
    free(line);
    return d;
}

static int check_draft(const struct corpus *c, struct drafter *d, int longest, int shortest, int nodes, int tokens)
{
    static struct choice choice[DOCUMENTS * LONGEST_TEXT];
    int32_t text[30], path[16];
    struct own_draft own;
    struct error err;
    const int n = 1 + below(25), vocab = 2 + below(6);
    for (int i = 0; i < n; i++)
        text[i] = below(vocab);
    if (below(2)) { // an end that occurs
        const int of = below(c->n), m = 1 + below(c->length[of] < n ? c->length[of] : n),
                  at = below(c->length[of] - m + 1);
        memcpy(text + n - m, c->token[of] + at, (size_t)m * sizeof(*text));
    }
    const struct draft *draft = own_draft_begin(&own, text[n - 1], 1 + (below(3) ? nodes : below(nodes)));
    struct request r = { .n = n, .token = text, .draft = &own.draft, .depth = below(4) ? 50 : below(4) };
    assert_ok(d->type->propose(d, &r, 1, &err), err);

    int m = longest < n ? longest : n, found = 0;
    while (m >= shortest && (found = occurrences(c, text, n, m, tokens, choice)) == 0)
        m--;
    int possible = 0; // nodes of the whole prefix tree within the depth
    for (int i = 0; i < found; i++)
        for (int depth = 0; depth < choice[i].n && depth < r.depth; depth++) {
            bool earlier = false;
            for (int j = 0; j < i; j++)
                earlier = earlier || (choice[j].n > depth && memcmp(choice[j].token, choice[i].token,
                                                                    (size_t)(depth + 1) * sizeof(int32_t)) == 0);
            possible += !earlier;
        }
    assert_int_equal(draft->n - 1, possible < draft->capacity - 1 ? possible : draft->capacity - 1);
    int least = found + 1;
    for (int node = 1; node < draft->n; node++) { // the most frequent first, each a continuation
        const int depth = path_of(draft, own.parent[node], path);
        const int count = frequency(choice, found, path, depth, own.token[node]);
        assert_true(count > 0 && count <= least && depth < tokens);
        least = count;
    }
    for (int node = 0; node < draft->n; node++) { // none that was left out is more frequent than the last one
        const int depth = path_of(draft, node, path);
        for (int32_t x = 0; x < 8 && depth < tokens && depth < r.depth; x++) {
            bool drafted = false;
            for (int child = 1; child < draft->n; child++)
                drafted = drafted || (own.parent[child] == node && own.token[child] == x);
            assert_true(drafted || frequency(choice, found, path, depth, x) <= least);
        }
    }
    return draft->n - 1;
}

TEST(drafts_are_the_most_frequent_continuations)
{
    static struct corpus c;
    char *path = test_path("texts.store");
    int drafted = 0;
    for (int history = 0; history < 200; history++) {
        const int vocab = 2 + below(6), longest = 1 + below(8), shortest = 1 + below(longest), nodes = 1 + below(NODES),
                  tokens = 1 + below(10);
        c.n = 1 + below(DOCUMENTS);
        for (int d = 0; d < c.n; d++) {
            c.length[d] = 1 + below(LONGEST_TEXT);
            for (int i = 0; i < c.length[d]; i++)
                c.token[d][i] = below(vocab);
        }
        write_store(&c, path);
        struct drafter *d = open_with(path, longest, shortest, nodes, tokens);
        for (int i = 0; i < 10; i++)
            drafted += check_draft(&c, d, longest, shortest, nodes, tokens);
        drafter_destroy(d);
    }
    print_message("%d draft tokens\n", drafted);
    assert_true(drafted > 5000);
    free(path);
}

// Whatever the bytes are: no read outside the file.
TEST(damaged_datastores_are_refused_or_harmless)
{
    static struct corpus c = { 2, { 40, 30 }, { { 1, 2, 3, 1, 2 }, { 3, 1, 2 } } };
    char *path = test_path("texts.store"), *damaged = test_path("damaged.store");
    size_t n;
    struct error err;
    int opened = 0;
    write_store(&c, path);
    char *bytes = file_text(path, &n, &err);
    for (int i = 0; i < 300; i++) {
        const size_t at = (size_t)below((int)n), length = below(3) ? n : (size_t)below((int)n);
        FILE *f = fopen(damaged, "wb");
        const char kept = bytes[at];
        bytes[at] = (char)below(256);
        fwrite(bytes, 1, length > 0 ? length : 1, f);
        fclose(f);
        bytes[at] = kept;
        struct datastore s = { 0 };
        if (!datastore_open(&s, damaged, &err)) {
            assert_non_null(strstr(err.text, "datastore"));
            continue;
        }
        datastore_close(&s);
        struct drafter *d = NULL;
        opened++;
        if (i % 3 == 0) {
            d = open_with(damaged, 4, 1, 20, 8);
            static const int32_t text[] = { 3, 1, 2 };
            struct own_draft own;
            struct request r = { .n = 3, .token = text, .draft = own_draft_begin(&own, 2, 21), .depth = 9 };
            assert_ok(d->type->propose(d, &r, 1, &err), err);
            drafter_destroy(d);
        }
    }
    assert_true(opened > 20);
    free(bytes);
    free(path);
    free(damaged);
}

static int make(void **unused)
{
    small_write_hf(model = test_path("model"), &small_default);
    return 0;
}

static int clean(void **unused)
{
    free(model);
    test_directory_remove();
    return 0;
}

RUN_TESTS(make, clean)
