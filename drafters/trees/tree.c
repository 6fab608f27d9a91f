#include "drafters/trees/tree.h"

#include <assert.h>
#include <stdio.h>
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

// Shorter paths first, then in lexicographic order: parents before children, by depth, siblings by rank.
static int compare_paths(const void *a, const void *b)
{
    const struct path *x = a, *y = b;
    return x->n != y->n ? x->n - y->n : memcmp(x->rank, y->rank, (size_t)x->n);
}

static void write_path(const struct path *p, char *to, size_t capacity)
{
    size_t n = 0;
    for (int i = 0; i < p->n && n < capacity; i++)
        n += (size_t)snprintf(to + n, capacity - n, "%s%d", i == 0 ? "[" : ", ", p->rank[i]);
    if (n < capacity)
        snprintf(to + n, capacity - n, "]");
}

// The node at the first n ranks of p; -1: not in the tree.
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
    char text[TREE_DEPTH * 4 + 2];
    qsort(p->path, (size_t)p->n, sizeof(*p->path), compare_paths);
    *to = (struct tree){ .n = 1 };
    to->node[0] = (struct tree_node){ -1, 0, 0 };
    for (int i = 0; i < p->n; i++) {
        const struct path *path = &p->path[i];
        const int parent = find(to, path, path->n - 1);
        write_path(path, text, sizeof(text));
        if (parent < 0)
            return fail(err, "%s: path %s: its parent, the path without the last rank, is not in the tree", what, text);
        if (find(to, path, path->n) >= 0)
            return fail(err, "%s: path %s appears twice", what, text);
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

// Text that is neither a list nor the name of a JSON file was meant as a published tree; the message lists these.
static bool fail_unknown(const char *name, struct error *err)
{
    char *known = xstrdup("");
    for (const struct published_tree *t = published_trees; t->name != NULL; t++) {
        char *longer = xformat("%s%s%s", known, t == published_trees ? "" : ", ", t->name);
        free(known);
        known = longer;
    }
    fail(err, "tree: %s is not a published tree (%s), a list of paths or a .json file", name, known);
    free(known);
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

// The path with the largest product that is not in the tree while its parent is. Returns the product; 0: there is none.
static double next_best(const struct tree *t, const double *product, const double *share, int depth, int ranks,
                        struct path *best)
{
    double largest = 0;
    for (int node = 0; node < t->n; node++) {
        const int d = t->node[node].depth, rank = tree_children(t, node); // ranks are taken in order
        if (d >= depth || rank >= ranks || product[node] * share[d * ranks + rank] <= largest)
            continue;
        largest = product[node] * share[d * ranks + rank];
        *best = path_of(t, node);
        best->rank[best->n++] = (signed char)rank;
    }
    return largest;
}

void tree_best(const double *share, int depth, int ranks, int nodes, struct tree *to)
{
    struct paths paths = { 0, xcalloc(MAX_NODES, sizeof(*paths.path)) };
    struct tree *t = xcalloc(1, sizeof(*t)); // nodes in the order in which they are found
    double product[MAX_NODES] = { 1 };
    struct error ignored;
    assert(depth <= TREE_DEPTH && ranks <= TREE_RANKS && nodes < MAX_NODES);
    t->n = 1;
    t->node[0] = (struct tree_node){ -1, 0, 0 };
    while (t->n <= nodes) {
        struct path p;
        product[t->n] = next_best(t, product, share, depth, ranks, &p);
        if (product[t->n] <= 0)
            break;
        t->node[t->n] = (struct tree_node){ (short)find(t, &p, p.n - 1), p.rank[p.n - 1], (short)p.n };
        t->n++;
        paths.path[paths.n++] = p;
    }
    make_tree(&paths, "tree", to, &ignored); // cannot fail: all parents are in the list
    free(paths.path);
    free(t);
}

char *tree_write(const struct tree *t)
{
    char path[TREE_DEPTH * 4 + 2], *text = xstrdup("[");
    for (int node = 1; node < t->n; node++) {
        const struct path p = path_of(t, node);
        write_path(&p, path, sizeof(path));
        char *longer = xformat("%s%s%s", text, node > 1 ? ", " : "", path);
        free(text);
        text = longer;
    }
    char *closed = xformat("%s]", text);
    free(text);
    return closed;
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
