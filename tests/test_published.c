// test_published.c - heads with the names, shapes and configurations of published ones, as sparse files of their true sizes:
// they are known for what they are and fit their targets, and of the gigabytes of zeros nothing is read.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/head.h"
#include "tests/check.h"
#include "tests/files.h"
#include "tests/tiny.h"

// ---- sparse files

struct entry {
    const char *name, *dtype;
    int64_t rows, width; // rows 0: a vector
};

struct sparse {
    int n;
    struct entry entry[64];
    char text[64][64]; // of names made up
};

static void add(struct sparse *s, const char *dtype, int64_t rows, int64_t width, const char *name)
{
    assert_true(s->n < 64);
    snprintf(s->text[s->n], sizeof(s->text[0]), "%s", name);
    s->entry[s->n] = (struct entry){ s->text[s->n], dtype, rows, width };
    s->n++;
}

static size_t size_of(const struct entry *e)
{
    const size_t each = strcmp(e->dtype, "F32") == 0    ? 4
                        : strcmp(e->dtype, "I64") == 0  ? 8
                        : strcmp(e->dtype, "BOOL") == 0 ? 1
                                                        : 2;
    return (size_t)((e->rows > 0 ? e->rows : 1) * e->width) * each;
}

// Of t2d the first `known` are true, as a d2t of zeros says.
static void write_sparse(const char *directory, const struct sparse *s, const char *config, int known)
{
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        fail_msg("%s cannot be made", directory);
    struct json *header = json_new_object();
    size_t end = 0, mask = 0;
    for (int i = 0; i < s->n; i++) {
        const struct entry *e = &s->entry[i];
        struct json *j = json_new_object(), *shape = json_new_array(), *offsets = json_new_array();
        if (e->rows > 0)
            json_push(shape, json_new_int(e->rows));
        json_push(shape, json_new_int(e->width));
        mask = strcmp(e->name, "t2d") == 0 ? end : mask;
        json_push(offsets, json_new_int((int64_t)end));
        end += size_of(e);
        json_push(offsets, json_new_int((int64_t)end));
        json_set(j, "dtype", json_new_text(e->dtype));
        json_set(j, "shape", shape);
        json_set(j, "data_offsets", offsets);
        json_set(header, e->name, j);
    }
    char *text = json_write(header), *path = xformat("%s/model.safetensors", directory);
    const uint64_t n = (strlen(text) + 7) / 8 * 8;
    char *padded = xcalloc(n, 1);
    memset(padded, ' ', n);
    memcpy(padded, text, strlen(text));
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0 && write(fd, &n, 8) == 8 && write(fd, padded, n) == (ssize_t)n);
    assert_int_equal(ftruncate(fd, (off_t)(8 + n + end)), 0);
    if (known > 0) {
        char *ones = xcalloc((size_t)known, 1);
        memset(ones, 1, (size_t)known);
        assert_int_equal(pwrite(fd, ones, (size_t)known, (off_t)(8 + n + mask)), known);
        free(ones);
    }
    close(fd);
    json_free(header);
    free(padded);
    free(text);
    free(path);
    path = xformat("%s/config.json", directory);
    file_write(path, config);
    free(path);
}

// ---- targets, by their configurations

struct known_target {
    const char *name;
    int layers, width, hidden, heads, kv_heads, vocab;
};
static const struct known_target vicuna_7b = { "vicuna-7b-v1.3", 32, 4096, 11008, 32, 32, 32000 };
static const struct known_target vicuna_13b = { "vicuna-13b-v1.3", 40, 5120, 13824, 40, 40, 32000 };
static const struct known_target llama_8b = { "Llama-3.1-8B-Instruct", 32, 4096, 14336, 32, 8, 128256 };
static const struct known_target llama_70b = { "Llama-3.3-70B-Instruct", 80, 8192, 28672, 64, 8, 128256 };

static struct model_shape shape_of(const struct known_target *t)
{
    return (struct model_shape){ .layers = t->layers, .width = t->width, .vocab = t->vocab };
}

static void add_layer(struct sparse *s, const struct known_target *t, const char *prefix, int64_t in)
{
    const int64_t kv = (int64_t)t->width / t->heads * t->kv_heads;
    const struct entry parts[] = {
        { "self_attn.q_proj.weight", "BF16", t->width, in },
        { "self_attn.k_proj.weight", "BF16", kv, in },
        { "self_attn.v_proj.weight", "BF16", kv, in },
        { "self_attn.o_proj.weight", "BF16", t->width, t->width },
        { "mlp.gate_proj.weight", "BF16", t->hidden, t->width },
        { "mlp.up_proj.weight", "BF16", t->hidden, t->width },
        { "mlp.down_proj.weight", "BF16", t->width, t->hidden },
        { "post_attention_layernorm.weight", "BF16", 0, t->width },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s%s", prefix, parts[i].name);
        add(s, parts[i].dtype, parts[i].rows, parts[i].width, name);
    }
}

static char *layer_config(const struct known_target *t, const char *more)
{
    return xformat(
        "\"hidden_act\": \"silu\", \"hidden_size\": %d, \"initializer_range\": 0.02, \"intermediate_size\": %d, "
        "\"max_position_embeddings\": 2048, \"model_type\": \"llama\", \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": %d, \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-05, "
        "\"tie_word_embeddings\": false, \"vocab_size\": %d%s",
        t->width, t->hidden, t->heads, t->kv_heads, t->vocab, more);
}

// ---- heads

static void write_eagle(const char *directory, const struct known_target *t, bool bias, bool embedding)
{
    static struct sparse s;
    s.n = 0;
    if (embedding)
        add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    add(&s, "BF16", t->width, 2 * (int64_t)t->width, "fc.weight");
    if (bias)
        add(&s, "BF16", 0, t->width, "fc.bias");
    add_layer(&s, t, "layers.0.", t->width);
    char *layer = layer_config(t, bias ? "" : ", \"bias\": false");
    char *config = xformat("{\"architectures\": [\"LlamaForCausalLM\"], \"torch_dtype\": \"float16\", %s}", layer);
    write_sparse(directory, &s, config, 0);
    free(layer);
    free(config);
}

static void write_eagle3(const char *directory, const struct known_target *t, bool speculators, bool embedding)
{
    enum { DRAFT = 32000 };
    static struct sparse s;
    const char *prefix = speculators ? "layers.0." : "midlayer.";
    char name[64];
    const bool reduced = t->vocab > DRAFT;
    s.n = 0;
    add(&s, "I64", 0, DRAFT, "d2t");
    add(&s, "BOOL", 0, t->vocab, "t2d");
    if (embedding)
        add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    add(&s, "BF16", t->width, 3 * (int64_t)t->width, "fc.weight");
    add(&s, "BF16", DRAFT, t->width, "lm_head.weight");
    add(&s, "BF16", 0, t->width, "norm.weight");
    snprintf(name, sizeof(name), "%shidden_norm.weight", prefix);
    add(&s, "BF16", 0, t->width, name);
    snprintf(name, sizeof(name), "%sinput_layernorm.weight", prefix);
    add(&s, "BF16", 0, t->width, name);
    add_layer(&s, t, prefix, 2 * (int64_t)t->width);
    char *layer = layer_config(t, speculators ? ", \"head_dim\": 128, \"rope_theta\": 10000.0, \"rope_scaling\": null, "
                                                "\"attention_bias\": false, \"mlp_bias\": false"
                                              : "");
    char *config =
        speculators
            ? xformat("{\"architectures\": [\"Eagle3Speculator\"], \"speculators_model_type\": \"eagle3\", "
                      "\"speculators_version\": \"0.1.0.dev14\", \"draft_vocab_size\": %d, "
                      "\"norm_before_residual\": false, \"target_hidden_size\": null, "
                      "\"eagle_aux_hidden_state_layer_ids\": null, \"norm_before_fc\": false, \"fc_norm\": false, "
                      "\"norm_output\": false, \"transformer_layer_config\": {%s}}",
                      DRAFT, layer)
            : xformat("{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"draft_vocab_size\": %d, %s}", DRAFT, layer);
    write_sparse(directory, &s, config, reduced ? DRAFT : t->vocab);
    free(layer);
    free(config);
}

static void write_speculators_eagle(const char *directory, const struct known_target *t)
{
    static struct sparse s;
    s.n = 0;
    add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    add(&s, "BF16", t->width, 2 * (int64_t)t->width, "fusion_fc.weight");
    add_layer(&s, t, "transformer.", t->width);
    char *layer = layer_config(t, ", \"rope_theta\": 500000.0");
    char *config =
        xformat("{\"architectures\": [\"EagleSpeculator\", \"LlamaDecoderLayer\"], \"speculators_model_type\": "
                "\"eagle\", \"fusion_bias\": false, \"layernorms\": false, \"transformer_layer_config\": {%s}}",
                layer);
    write_sparse(directory, &s, config, 0);
    free(layer);
    free(config);
}

static void write_medusa(const char *directory, const struct known_target *t)
{
    static struct sparse s;
    s.n = 0;
    for (int h = 0; h < 5; h++) {
        char name[64];
        snprintf(name, sizeof(name), "%d.0.linear.weight", h);
        add(&s, "F16", t->width, t->width, name);
        snprintf(name, sizeof(name), "%d.0.linear.bias", h);
        add(&s, "F16", 0, t->width, name);
        snprintf(name, sizeof(name), "%d.1.weight", h);
        add(&s, "F16", t->vocab, t->width, name);
    }
    char *config = xformat(
        "{\"medusa_num_heads\": 2, \"medusa_num_layers\": 1, \"base_model_name_or_path\": \"lmsys/%s\"}", t->name);
    write_sparse(directory, &s, config, 0);
    free(config);
}

// ---- the tests

static int64_t resident_kb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

struct expected {
    const char *name;
    const struct known_target *target;
    enum head_kind kind;
    int heads, vocab, taps, first_tap;
    double least_gb; // of the file
};

static void published_heads_fit_their_targets(void **unused)
{
    (void)unused;
    static const struct expected list[] = {
        { "EAGLE-Vicuna-7B-v1.3", &vicuna_7b, HEAD_EAGLE, 0, 32000, 1, FINAL_STATE, 0.7 },
        { "EAGLE-LLaMA3.1-Instruct-8B", &llama_8b, HEAD_EAGLE, 0, 128256, 1, FINAL_STATE, 1.5 },
        { "EAGLE3-Vicuna1.3-13B", &vicuna_13b, HEAD_EAGLE3, 0, 32000, 3, 2, 1.0 },
        { "EAGLE3-LLaMA3.1-Instruct-8B", &llama_8b, HEAD_EAGLE3, 0, 32000, 3, 2, 0.8 },
        { "EAGLE3-LLaMA3.3-Instruct-70B", &llama_70b, HEAD_EAGLE3, 0, 32000, 3, 2, 2.5 },
        { "medusa-vicuna-7b-v1.3", &vicuna_7b, HEAD_MEDUSA, 5, 32000, 1, FINAL_STATE, 1.4 },
        { "EAGLE3-LLaMA3.1-Instruct-8B-converted", &llama_8b, HEAD_EAGLE3, 0, 32000, 3, 2, 0.8 },
        { "eagle-llama3.1-8b-converted", &llama_8b, HEAD_EAGLE, 0, 128256, 1, FINAL_STATE, 1.5 },
    };
    const size_t n = sizeof(list) / sizeof(*list);
    char *path[sizeof(list) / sizeof(*list)];
    for (size_t i = 0; i < n; i++)
        path[i] = tiny_path(list[i].name);
    write_eagle(path[0], &vicuna_7b, true, true);
    write_eagle(path[1], &llama_8b, false, true);
    write_eagle3(path[2], &vicuna_13b, false, false);
    write_eagle3(path[3], &llama_8b, false, false);
    write_eagle3(path[4], &llama_70b, false, false);
    write_medusa(path[5], &vicuna_7b);
    write_eagle3(path[6], &llama_8b, true, true);
    write_speculators_eagle(path[7], &llama_8b);
    const int64_t before = resident_kb();
    for (size_t i = 0; i < n; i++) {
        const struct expected *e = &list[i];
        const struct model_shape shape = shape_of(e->target),
                                 other = shape_of(e->target == &llama_70b ? &llama_8b : &llama_70b);
        struct head_facts f;
        struct error err = { "" };
        enum head_kind kind;
        struct stat st;
        char *file = xformat("%s/model.safetensors", path[i]);
        assert_int_equal(stat(file, &st), 0);
        free(file);
        assert_true((double)st.st_size > e->least_gb * 1e9 && (double)st.st_blocks * 512 < 1e7);
        if (!head_fits(path[i], &shape, &kind, &f, &err))
            fail_msg("%s: %s", e->name, err.text);
        assert_int_equal(kind, e->kind);
        assert_int_equal(f.heads, e->heads);
        assert_int_equal(f.vocab, e->vocab);
        assert_int_equal(f.taps.n, e->taps);
        assert_int_equal(f.taps.layer[0], e->first_tap);
        if (e->taps == 3) {
            assert_int_equal(f.taps.layer[1], e->target->layers / 2);
            assert_int_equal(f.taps.layer[2], e->target->layers - 3);
        }
        assert_false(head_fits(path[i], &other, &kind, &f, &err)); // both numbers are said
        assert_non_null(strstr(err.text, "a head for"));
        assert_non_null(
            strstr(err.text, e->target->vocab != other.vocab && e->kind != HEAD_MEDUSA ? "128256" : "8192"));
        free(path[i]);
    }
    assert_true(resident_kb() - before < 100000); // of 11 GB
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(published_heads_fit_their_targets) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_clean();
    return failed;
}
