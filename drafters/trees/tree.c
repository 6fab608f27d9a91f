#include "drafters/trees/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

struct path {
    int n;
    signed char rank[TREE_DEPTH];
};

struct paths {
    int n;
    struct path *path; // (MAX_NODES)
};

// Orders shorter paths first, then lexicographically: parents before children, by depth, siblings by rank.
static int compare_paths(const void *a, const void *b)
{
    const struct path *x = a, *y = b;
    return x->n != y->n ? x->n - y->n : memcmp(x->rank, y->rank, (size_t)x->n);
}

static void put_path(struct text *to, const struct path *p)
{
    for (int i = 0; i < p->n; i++)
        text_printf(to, "%s%d", i == 0 ? "[" : ", ", p->rank[i]);
    text_puts(to, "]");
}

static bool fail_path(struct error *err, const char *what, const struct path *p, const char *why)
{
    struct text path = { 0 };
    put_path(&path, p);
    fail(err, "%s: path %s%s", what, path.s, why);
    free(path.s);
    return false;
}

// Returns the node at the first n ranks of p; -1: it is not in the tree.
static int find(const struct tree *t, const struct path *p, int n)
{
    int node = 0;
    for (int i = 0; i < n; i++) {
        int child = node + 1;
        while (child < t->n && (t->node[child].parent != node || t->node[child].rank != p->rank[i]))
            child++;
        if (child == t->n)
            return -1;
        node = child;
    }
    return node;
}

static bool make_tree(struct paths *p, const char *what, struct tree *to, struct error *err)
{
    qsort(p->path, (size_t)p->n, sizeof(*p->path), compare_paths);
    *to = (struct tree){ .n = 1 };
    to->node[0] = (struct tree_node){ -1, 0, 0 };
    for (int i = 0; i < p->n; i++) {
        const struct path *path = &p->path[i];
        const int parent = find(to, path, path->n - 1);
        if (parent < 0)
            return fail_path(err, what, path, ": its parent, the path without the last rank, is not in the tree");
        if (find(to, path, path->n) >= 0)
            return fail_path(err, what, path, " appears twice");
        to->node[to->n++] = (struct tree_node){ (short)parent, path->rank[path->n - 1], (short)path->n };
    }
    return true;
}

static bool read_path(const struct json *from, size_t index, const char *what, struct path *to, struct error *err)
{
    to->n = (int)json_count(from);
    if (!json_is_array(from) || json_count(from) < 1 || json_count(from) > TREE_DEPTH)
        return fail(err, "%s: path %zu: expected a list of 1 to %d ranks", what, index + 1, TREE_DEPTH);
    for (int i = 0; i < to->n; i++) {
        const struct json *v = json_at(from, (size_t)i);
        if (!json_is_int(v) || json_int(v) < 0 || json_int(v) >= TREE_RANKS)
            return fail(err, "%s: path %zu: expected ranks from 0 to %d", what, index + 1, TREE_RANKS - 1);
        to->rank[i] = (signed char)json_int(v);
    }
    return true;
}

static bool read_list(const struct json *list, const char *what, struct paths *to, struct error *err)
{
    if (!json_is_array(list) || json_count(list) < 1 || json_count(list) >= MAX_NODES)
        return fail(err, "%s: expected a list of 1 to %d paths, as in [[0], [0, 0], [1]]", what, MAX_NODES - 1);
    for (size_t i = 0; i < json_count(list); i++)
        if (!read_path(json_at(list, i), i, what, &to->path[to->n++], err))
            return false;
    return true;
}

static void read_words(const char *words, struct paths *to)
{
    for (const char *at = words; *at != '\0'; at += *at == ' ') {
        struct path *p = &to->path[to->n++];
        for (p->n = 0; *at != ' ' && *at != '\0'; at++)
            p->rank[p->n++] = (signed char)(*at - '0');
    }
}

static struct json *read_file(const char *name, const char *beside, char **path, struct error *err)
{
    *path = beside != NULL && *name != '/' ? xformat("%s/%s", beside, name) : xstrdup(name);
    return json_read(*path, err);
}

// text: a JSON list, or the name of a file.
static bool read_json(const char *text, const char *beside, struct paths *to, char **what, struct error *err)
{
    struct json *j = *text == '[' ? json_parse(text, strlen(text), "tree", err) : read_file(text, beside, what, err);
    const struct json *tree = json_is_object(j) ? json_get(j, "tree") : j;
    bool ok = j != NULL && read_list(tree, *what != NULL ? *what : "tree", to, err);
    json_free(j);
    return ok;
}

static const struct published_tree *published(const char *name)
{
    for (const struct published_tree *t = published_trees; t->name != NULL; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

// Text that is neither a list nor the name of a JSON file was meant as a published tree. The message lists these.
static bool fail_unknown(const char *name, struct error *err)
{
    struct text known = { 0 };
    for (const struct published_tree *t = published_trees; t->name != NULL; t++)
        text_printf(&known, "%s%s", t == published_trees ? "" : ", ", t->name);
    fail(err, "tree: %s is not a published tree (%s), a list of paths or a .json file", name, known.s);
    free(known.s);
    return false;
}

bool tree_read(const char *text, const char *beside, struct tree *to, struct error *err)
{
    struct paths paths = { 0, xcalloc(MAX_NODES, sizeof(*paths.path)) };
    const struct published_tree *known = published(text);
    char *what = NULL;
    bool ok = true;
    if (known != NULL)
        read_words(known->paths, &paths);
    else if (*text == '[' || ends_with(text, ".json"))
        ok = read_json(text, beside, &paths, &what, err);
    else
        ok = fail_unknown(text, err);
    ok = ok && make_tree(&paths, what != NULL ? what : "tree", to, err);
    free(what);
    free(paths.path);
    return ok;
}

static struct path path_of(const struct tree *t, int node)
{
    struct path p = { .n = t->node[node].depth };
    for (int i = p.n - 1; i >= 0; i--, node = t->node[node].parent)
        p.rank[i] = (signed char)t->node[node].rank;
    return p;
}

// The dynamic program of Chen et al. 2024 (Sequoia, arXiv 2402.12374, section 3.1), with shares that depend on the
// depth as well. below(d, n) is the expected depth that at most n draft tokens add below an accepted one at depth d.
// rest(d, r, n) is the same for children from rank r on.
struct tree_program {
    const double *share; // (depth, ranks)
    int depth, ranks, nodes;
    double *rest; // (depth, ranks + 1, nodes + 1)
    short *take;  // (depth, ranks + 1, nodes + 1) number of tokens in the subtree at that rank; 0: no such child
};

static size_t program_at(const struct tree_program *t, int d, int rank, int n)
{
    return ((size_t)d * (size_t)(t->ranks + 1) + (size_t)rank) * (size_t)(t->nodes + 1) + (size_t)n;
}

static double below(const struct tree_program *t, int d, int n)
{
    return d < t->depth ? t->rest[program_at(t, d, 0, n)] : 0;
}

// Among equal trees the one with fewer tokens is taken: a larger subtree must be better.
static void solve_rank(struct tree_program *t, int d, int rank, int n)
{
    const size_t at = program_at(t, d, rank, n);
    for (int m = 1; m <= n; m++) {
        const double value =
            t->share[d * t->ranks + rank] * (1 + below(t, d + 1, m - 1)) + t->rest[program_at(t, d, rank + 1, n - m)];
        if (value > t->rest[at]) {
            t->rest[at] = value;
            t->take[at] = (short)m;
        }
    }
}

// Adds the paths below `from` of the best tree of n draft tokens.
static void add_paths(const struct tree_program *t, struct path from, int n, struct paths *to)
{
    const int d = from.n;
    for (int rank = 0; d < t->depth && rank < t->ranks; rank++) {
        const int m = t->take[program_at(t, d, rank, n)];
        if (m == 0)
            return;
        struct path child = from;
        child.rank[child.n++] = (signed char)rank;
        to->path[to->n++] = child;
        add_paths(t, child, m - 1, to);
        n -= m;
    }
}

double tree_best(const double *share, int depth, int ranks, int nodes, struct tree *to)
{
    struct tree_program t = { share, depth, ranks, nodes, NULL, NULL };
    const size_t cells = program_at(&t, depth, 0, 0);
    struct paths paths = { 0, xcalloc(MAX_NODES, sizeof(*paths.path)) };
    struct error ignored;
    assert(depth <= TREE_DEPTH && ranks <= TREE_RANKS && nodes < MAX_NODES);
    t.rest = xcalloc(cells + 1, sizeof(*t.rest));
    t.take = xcalloc(cells + 1, sizeof(*t.take));
    for (int d = depth - 1; d >= 0; d--)
        for (int rank = ranks - 1; rank >= 0; rank--)
            for (int n = 1; n <= nodes; n++)
                solve_rank(&t, d, rank, n);
    add_paths(&t, (struct path){ 0 }, nodes, &paths);
    make_tree(&paths, "tree", to, &ignored); // cannot fail: all parents are in the list
    const double expected = below(&t, 0, nodes);
    free(t.rest);
    free(t.take);
    free(paths.path);
    return expected;
}

char *tree_write(const struct tree *t)
{
    struct text text = { 0 };
    text_puts(&text, "[");
    for (int node = 1; node < t->n; node++) {
        const struct path p = path_of(t, node);
        text_puts(&text, node > 1 ? ", " : "");
        put_path(&text, &p);
    }
    text_puts(&text, "]");
    return text.s;
}

int tree_max_depth(const struct tree *t)
{
    return t->n > 0 ? t->node[t->n - 1].depth : 0;
}

int tree_children(const struct tree *t, int node)
{
    int n = 0;
    for (int c = node + 1; c < t->n; c++)
        n += t->node[c].parent == node;
    return n;
}

bool tree_has_gaps(const struct tree *t)
{
    int next[MAX_NODES] = { 0 };
    for (int c = 1; c < t->n; c++)
        if (t->node[c].rank != next[t->node[c].parent]++)
            return true;
    return false;
}
