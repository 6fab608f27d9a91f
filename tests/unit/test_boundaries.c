// test_boundaries.c - prompts and trees around internal block sizes: chunks of 256 tokens of a prompt, 256 positions of
// attention, 32 and 64 nodes of a draft. The verifier's logits are compared with scalar loops in double over the same weights,
// one row at a time, each attending to its own ancestors.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/pairings.h"
#include "tests/device/reference_operations.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

enum { WIDTH = 32, HIDDEN = 48, LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 8, WIDE = 300, TEXT = 513, NODES = 130 };
enum { Q = HEADS * DIM, KV = KV_HEADS * DIM };

// Unusual values, so that code which ignores theta or epsilon fails.
static const struct small_model shape = { .vocab = WIDE,
                                          .width = WIDTH,
                                          .hidden = HIDDEN,
                                          .layers = LAYERS,
                                          .heads = HEADS,
                                          .kv_heads = KV_HEADS,
                                          .head_dim = DIM,
                                          .context = 1024,
                                          .theta = 700,
                                          .eps = 0.125,
                                          .sharp = true,
                                          .seed = 23 };

// ---- scalar loops

enum { NORM, Q_PROJ, K_PROJ, V_PROJ, O_PROJ, AFTER, GATE, UP, DOWN, PARTS };

static struct {
    float *embedding, *head, *last, *layer[LAYERS][PARTS];
} weights;

struct row {
    int parent, position; // parent -1: the first token
    double key[LAYERS][KV], value[LAYERS][KV], logits[WIDE];
};

static float *tensor(const char *form, int layer)
{
    int64_t rows, width;
    char *name = xformat(form, layer);
    float *v = small_tensor(&shape, name, &rows, &width);
    if (v == NULL)
        fail_msg("no tensor %s", name);
    free(name);
    return v;
}

static void make_weights(void)
{
    static const char *const parts[PARTS] = { "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
                                              "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                                              "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj" };
    weights.embedding = tensor("model.embed_tokens.weight", 0);
    weights.head = tensor("lm_head.weight", 0);
    weights.last = tensor("model.norm.weight", 0);
    for (int i = 0; i < LAYERS * PARTS; i++) {
        char *form = xformat("model.layers.%%d.%s.weight", parts[i % PARTS]);
        weights.layer[i / PARTS][i % PARTS] = tensor(form, i / PARTS);
        free(form);
    }
}

static void free_weights(void)
{
    free(weights.embedding), free(weights.head), free(weights.last);
    for (int i = 0; i < LAYERS * PARTS; i++)
        free(weights.layer[i / PARTS][i % PARTS]);
}

static void times(double *out, const float *w, int m, const double *x, int k)
{
    for (int j = 0; j < m; j++) {
        out[j] = 0;
        for (int i = 0; i < k; i++)
            out[j] += (double)w[j * k + i] * x[i];
    }
}

static void norm(double *out, const double *x, const float *w)
{
    double squares = 0;
    for (int i = 0; i < WIDTH; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < WIDTH; i++)
        out[i] = x[i] / sqrt(squares / WIDTH + shape.eps) * (double)w[i];
}

static void rotate(double *x, int heads, int position)
{
    for (int h = 0; h < heads; h++)
        for (int d = 0; d < DIM / 2; d++) {
            const double angle = position * pow(shape.theta, -2.0 * d / DIM);
            double *a = x + h * DIM + d, *b = a + DIM / 2, was = *a;
            *a = was * cos(angle) - *b * sin(angle);
            *b = *b * cos(angle) + was * sin(angle);
        }
}

// Attention of head h over the row and its ancestors.
static void attend(double *out, const double *q, const struct row *all, int at, int l, int h)
{
    static double weight[TEXT + NODES + 2];
    const int kv = h / (HEADS / KV_HEADS) * DIM;
    double total = 0;
    int n = 0;
    for (int i = at; i >= 0; i = all[i].parent) {
        double dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += q[h * DIM + d] * all[i].key[l][kv + d];
        total += weight[n++] = exp(dot / sqrt(DIM));
    }
    n = 0;
    for (int d = 0; d < DIM; d++)
        out[h * DIM + d] = 0;
    for (int i = at; i >= 0; i = all[i].parent, n++)
        for (int d = 0; d < DIM; d++)
            out[h * DIM + d] += weight[n] / total * all[i].value[l][kv + d];
}

static void compute(struct row *all, int at, int32_t token)
{
    struct row *r = &all[at];
    double x[WIDTH], h[WIDTH], q[Q], seen[Q], more[WIDTH], gate[HIDDEN], up[HIDDEN];
    r->position = r->parent < 0 ? 0 : all[r->parent].position + 1;
    for (int i = 0; i < WIDTH; i++)
        x[i] = (double)weights.embedding[token * WIDTH + i];
    for (int l = 0; l < LAYERS; l++) {
        norm(h, x, weights.layer[l][NORM]);
        times(q, weights.layer[l][Q_PROJ], Q, h, WIDTH);
        times(r->key[l], weights.layer[l][K_PROJ], KV, h, WIDTH);
        times(r->value[l], weights.layer[l][V_PROJ], KV, h, WIDTH);
        rotate(q, HEADS, r->position);
        rotate(r->key[l], KV_HEADS, r->position);
        for (int head = 0; head < HEADS; head++)
            attend(seen, q, all, at, l, head);
        times(more, weights.layer[l][O_PROJ], WIDTH, seen, Q);
        for (int i = 0; i < WIDTH; i++)
            x[i] += more[i];
        norm(h, x, weights.layer[l][AFTER]);
        times(gate, weights.layer[l][GATE], HIDDEN, h, WIDTH);
        times(up, weights.layer[l][UP], HIDDEN, h, WIDTH);
        for (int i = 0; i < HIDDEN; i++)
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        times(more, weights.layer[l][DOWN], WIDTH, gate, HIDDEN);
        for (int i = 0; i < WIDTH; i++)
            x[i] += more[i];
    }
    norm(h, x, weights.last);
    times(r->logits, weights.head, WIDE, h, WIDTH);
}

// ---- the verifier

static struct {
    int32_t text[TEXT];
    struct row row[TEXT + NODES + 1]; // of the text, and of one tree; then the token after its path
} plain;

struct scored {
    float logits[2][NODES * WIDE]; // per slot
};

static void keep_scored(void *self, const struct request *r, struct tensor logits)
{
    memcpy(((struct scored *)self)->logits[r->slot], logits.data, tensor_bytes(logits));
}

// A rule that accepts the last child of every node, then token 7, so that nodes all over the draft are kept.
static void accept_last_child(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                              struct rng *rng, struct verification *out)
{
    out->n = 0;
    for (int node = 0; node >= 0;) {
        int last = -1;
        for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
            last = c;
        out->node[out->n] = node;
        out->token[out->n++] = last >= 0 ? d->token[last] : 7;
        node = last;
    }
}

static const struct rule last_child_rule = { .name = "last",
                                             .takes = TAKES_DETERMINISTIC | TAKES_TREES,
                                             .verify = accept_last_child };

struct tree {
    struct own_draft own;
    int32_t path[TEXT + NODES];
};

// Half of the nodes follow the node before them, the others any earlier node; siblings differ. After 193 tokens the first hundred
// nodes form a chain, so that rows are at their positions over more than one word of the mask. After 192 tokens all nodes from
// the 65th on form a chain: a word of the mask with gaps, then one without.
static void build_tree(struct tree *to, int n, int nodes)
{
    uint64_t state = (uint64_t)(n * 1000 + nodes);
    own_draft_begin(&to->own, plain.text[n - 1], NODES);
    for (int i = 1; i < nodes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        draft_add(&to->own.draft,
                  (state >> 40 & 1) || (n == 193 && i < 100) || (n == 192 && i > 64)
                      ? i - 1
                      : (int)((state >> 33) % (uint64_t)i),
                  (i * 7 + n) % WIDE, DETERMINISTIC);
    }
}

// Computes the rows of the tree after n tokens of the text; replaces the rows of another tree.
static void compute_tree(const struct tree *t, int n)
{
    for (int i = 1; i < t->own.draft.n; i++) {
        plain.row[TEXT + i].parent = t->own.parent[i] == 0 ? n - 1 : TEXT + t->own.parent[i];
        compute(plain.row, TEXT + i, t->own.token[i]);
    }
}

static void expect_logits(const float *is, int row, const char *what, int n, int nodes, int node)
{
    const double d = reference_distance(is, plain.row[row].logits, WIDE);
    if (!(d < 1e-5))
        fail_msg("%s, %d tokens, %d nodes, node %d: logits differ by %g of the largest", what, n, nodes, node, d);
}

static struct request request(struct tree *t, int slot, int n, const int32_t *token)
{
    return (struct request){ .slot = slot, .n = n, .token = token, .draft = &t->own.draft, .depth = NODES };
}

struct size {
    int text, nodes;
};

// Two slots in one pass; then one more pass after each accepted path.
static void check_pass(struct verifier *v, struct scored *s, const struct size size[2])
{
    static struct tree tree[2];
    struct error err;
    struct advance a[2];
    struct request r[2];
    for (int i = 0; i < 2; i++) {
        while (verifier_prefill(v, i, plain.text, size[i].text, &a[i], &err) && a[i].n > 0)
            ;
        build_tree(&tree[i], size[i].text, size[i].nodes);
        r[i] = request(&tree[i], i, size[i].text, plain.text);
    }
    assert_true(verifier_score(v, r, 2, &err) && verifier_accept(v, r, 2, a, &err));
    for (int i = 0; i < 2; i++) {
        const int n = size[i].text, nodes = size[i].nodes;
        compute_tree(&tree[i], n);
        for (int node = 0; node < nodes; node++)
            expect_logits(s->logits[i] + (size_t)node * WIDE, node == 0 ? n - 1 : TEXT + node, "a draft", n, nodes,
                          node);
        const int last = a[i].node[a[i].n - 1], next_n = n + a[i].n;
        memcpy(tree[i].path, plain.text, (size_t)n * sizeof(int32_t));
        memcpy(tree[i].path + n, a[i].token, (size_t)a[i].n * sizeof(int32_t));
        plain.row[TEXT + NODES].parent = last == 0 ? n - 1 : TEXT + last;
        compute(plain.row, TEXT + NODES, 7);
        own_draft_begin(&tree[i].own, 7, NODES);
        struct request next = request(&tree[i], i, next_n, tree[i].path);
        struct advance after;
        assert_true(verifier_score(v, &next, 1, &err) && verifier_accept(v, &next, 1, &after, &err));
        expect_logits(s->logits[i], TEXT + NODES, "after the accepted path", n, nodes, last);
        verifier_forget(v, i);
    }
}

TEST(logits_agree_with_scalar_loops_at_every_boundary)
{
    static const struct size sizes[][2] = {
        { { 1, 65 }, { 2, 31 } },     { { 255, 32 }, { 256, 33 } }, { { 257, 64 }, { 254, 2 } },
        { { 511, 63 }, { 512, 65 } }, { { 513, 64 }, { 480, 33 } }, { { 192, 130 }, { 193, 129 } },
    };
    static struct scored scored;
    struct error err;
    char *path = test_path("boundaries.gguf");
    small_write_gguf(path, &shape);
    make_weights();
    for (int i = 0; i < TEXT; i++) {
        plain.text[i] = (int32_t)((uint32_t)(i * i + 37 * i) * 2654435761u >> 8) % WIDE;
        plain.row[i].parent = i - 1;
        compute(plain.row, i, plain.text[i]);
    }
    struct pair *p = pair_open(path, path, "none", "{temperature: 0}", &last_child_rule, 2, TEXT + 2 * NODES);
    struct verifier_setup with = *verifier_setup(p->verifier);
    with.nodes = NODES;
    with.observer = (struct step_observer){ .scored = keep_scored, .self = &scored };
    struct verifier *v = verifier_create(&with, &err);
    assert_non_null(v);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        check_pass(v, &scored, sizes[i]);
    verifier_destroy(v);
    pair_close(p);
    free_weights();
    free(path);
}

RUN_TESTS(NULL, NULL)
