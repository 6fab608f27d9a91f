// fuzz_head.c - an arbitrary configuration and safetensors file as a head, checked against a target: heads of Medusa,
// EAGLE and EAGLE-3, as published and as `speculators` writes them.
//
// Input: config.json, then the tensors.
// reader: models/heads/head.c models/heads/fits.c models/heads/eagle.c models/config_json.c models/config_json_rope.c models/formats/json_fields.c
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/fuzz/fuzz.h"
#include "kernels/backend.h"
#include "models/heads/eagle.h"
#include "models/heads/head.h"
#include "models/heads/medusa.h"
#include "models/model.h"

static const struct fuzz_file files[] = { { "config.json", FUZZ_JSON },
                                          { "model.safetensors", FUZZ_SAFETENSORS },
                                          { NULL, FUZZ_TEXT } };
static const char words[] =
    "speculators_model_type  eagle  eagle3  medusa  dflash_config  transformer_layer_config  eagle_config  "
    "eagle_aux_hidden_state_layer_ids  norm_before_residual  norm_before_fc  fc_norm  norm_output  draft_vocab_size  "
    "bias  fusion_bias  qkv_bias  model_type  llama  num_hidden_layers  hidden_size  medusa_num_heads  "
    "medusa_num_layers  rope_scaling  rope_parameters  rope_type  linear  llama3  factor  low_freq_factor  "
    "high_freq_factor  original_max_position_embeddings  rope_theta  partial_rotary_factor  layer_types  "
    "full_attention  head_dim  attention_bias  shape  dtype  data_offsets  0.0.linear.weight  0.0.linear.bias  "
    "0.1.weight  blocks.0.layers.0.weight  lm_heads.0.weight  token_map  fc.weight  fc.bias  "
    "layers.0.hidden_norm.weight  layers.0.self_attn.q_proj.weight  midlayer.hidden_norm.weight  d2t  t2d  "
    "lm_head.weight  norm.weight  embed_tokens.weight  fc_norm.0.weight  F32  F16  BF16  I64  BOOL";

// The targets of the heads that write_heads.c writes, and one with too few layers for three taps.
static const struct model_shape targets[] = {
    { .layers = 8, .width = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .hidden = 8, .vocab = 24, .context = 512 },
    { .layers = 3, .width = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .hidden = 8, .vocab = 24, .context = 512 },
};

static void check(const struct head_facts *f, enum head_kind kind, const struct model_shape *t)
{
    insist((kind == HEAD_MEDUSA) == (f->heads > 0));
    insist(f->vocab >= 1 && f->vocab <= t->vocab && f->width >= 1);
    insist(f->taps.n >= 1 && f->taps.n <= MAX_TAPS);
    for (int i = 0; i < f->taps.n; i++)
        insist(f->taps.layer[i] >= FINAL_STATE && f->taps.layer[i] <= t->layers);
}

static struct backend *backend;
static struct model *target; // of the first shape

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct error err = { "" };
    (void)argc;
    char *path = fuzz_seed_path((*argv)[0], "target.gguf");
    insist((backend = backend_cpu(1, &err)) != NULL);
    target = model_open(path, backend, ACTIVATIONS_F32, 1, &err);
    if (target == NULL)
        fprintf(stderr, "%s\n", err.text);
    insist(target != NULL && model_shape(target)->width == targets[0].width &&
           model_shape(target)->layers == targets[0].layers);
    free(path);
    return 0;
}

static void check_ids(const int32_t *id, int n)
{
    for (int i = 0; id != NULL && i < n; i++)
        insist(id[i] >= 0 && id[i] < targets[0].vocab);
}

// A head that fits can be opened, unless a number in it is not finite.
static void open_it(const char *path, enum head_kind kind)
{
    struct error err = { "" };
    if (kind == HEAD_MEDUSA) {
        struct medusa *m = medusa_open(path, target, backend, ACTIVATIONS_F32, QUANTIZE_NONE, 1, &err);
        insist(m != NULL || *err.text != '\0');
        if (m != NULL) {
            check_ids(medusa_facts(m)->target_id, medusa_facts(m)->vocab);
        }
        medusa_close(m);
        return;
    }
    const struct eagle_setup setup = {
        .kind = kind, .activations = ACTIVATIONS_F32, .norm_before_residual = TRI_TRUE, .rows = 1
    };
    struct eagle *e = eagle_open(path, target, backend, &setup, &err);
    insist(e != NULL || *err.text != '\0');
    if (e != NULL) {
        check_ids(eagle_facts(e)->target_id, eagle_facts(e)->vocab);
        insist(eagle_facts(e)->vocab <= targets[0].vocab && eagle_facts(e)->memory > 0);
    }
    eagle_close(e);
}

static void use(const char *path)
{
    struct error err = { "" };
    for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
        struct head_facts facts = { 0 };
        struct head h;
        enum head_kind kind;
        const bool fits = head_fits(path, &targets[i], &kind, &facts, &err);
        insist(fits || *err.text != '\0');
        if (fits)
            check(&facts, kind, &targets[i]);
        if (fits && i == 0)
            open_it(path, kind);
        if (head_open(&h, path, HEAD_EAGLE3, "head", &err)) {
            const struct eagle_setup silent = { .kind = HEAD_EAGLE3, .layer_ids = LAYERS_LEFT };
            insist(h.kind == HEAD_EAGLE3);
            head_hash(&h);
            if (eagle_fits(h, &targets[i], &silent, &facts, &err))
                check(&facts, HEAD_EAGLE3, &targets[i]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    char *file = fuzz_path(files[1].name);
    fuzz_write_files(input, n, files);
    use(n > 0 && input[n - 1] % 2 != 0 ? file : fuzz_folder());
    free(file);
    return 0;
}

FUZZ_MUTATOR(files, words)
