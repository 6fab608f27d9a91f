// write_heads.c - seeds of fuzz_head, and its target.
#include "tests/fuzz/write_seeds.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "tests/formats/head_edit.h"
#include "tests/support/checkpoint.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

enum { WIDTH = 8, LAYERS = 8, VOCAB = 24 }; // as the target of fuzz_head.c

static struct head_shape small_head(void)
{
    return (struct head_shape){ .width = WIDTH,
                                .vocab = VOCAB,
                                .layers = LAYERS,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 4,
                                .hidden = 8,
                                .draft_vocab = 8,
                                .medusa_heads = 2,
                                .seed = 5 };
}

static void put_head(const char *name, const char *directory)
{
    struct text t = { 0 };
    add_file(&t, directory, "config.json");
    add_nul(&t);
    add_file(&t, directory, "model.safetensors");
    add_file(&t, directory, "medusa_lm_head.safetensors");
    put_text("head", name, &t);
    free(t.s);
}

// An EAGLE-3 head in the format of `speculators`, changed.
static void put_eagle3_with(const char *name, const char *changes)
{
    struct head_shape s = small_head();
    char *directory = test_path(name);
    s.speculators = true;
    heads_write_eagle3(directory, &s);
    head_change(directory, "norm_before_residual=false");
    head_change(directory, changes);
    put_head(name, directory);
    free(directory);
}

static void write_target(void)
{
    const struct small_model t = { SMALL_SIZES(VOCAB, WIDTH, 8, LAYERS, 2, 1, 4), .type = F32 };
    char *path = test_path("head_target.gguf");
    small_write_gguf(path, &t);
    struct text bytes = checkpoint_bytes(path);
    put(".", "target.gguf", bytes.s, bytes.n);
    free(bytes.s);
    free(path);
}

void write_heads(void)
{
    char *directory = test_path("head");
    write_target();
    for (int form = 0; form < 4; form++) {
        static const char *const names[][3] = { { "medusa", "eagle", "eagle3" },
                                                { "medusa_shared", "eagle_shared", "eagle3_shared" },
                                                { "medusa_as", "eagle_as", "eagle3_as" },
                                                { "medusa_all", "eagle_all", "eagle3_all" } };
        struct head_shape s = small_head();
        s.shared = form % 2 != 0;
        s.speculators = form > 1;
        s.draft_vocab = form % 2 != 0 ? 0 : 8;
        if (form < 2) {
            heads_write_medusa(directory, &s);
            put_head(names[form][0], directory);
        }
        char *of_eagle = xformat("%s_eagle_%d", directory, form), *of_eagle3 = xformat("%s_eagle3_%d", directory, form);
        heads_write_eagle(of_eagle, &s);
        put_head(names[form][1], of_eagle);
        heads_write_eagle3(of_eagle3, &s);
        put_head(names[form][2], of_eagle3);
        free(of_eagle);
        free(of_eagle3);
    }
    put_eagle3_with("fc_norm",
                    "fc_norm=true; +fc_norm.0.weight 0 8 1; +fc_norm.1.weight 0 8 1; +fc_norm.2.weight 0 8 1");
    put_eagle3_with("norm_before_fc", "norm_before_fc=true; +input_norm.weight 0 24 1");
    put_eagle3_with("norm_output", "norm_output=true");
    put_eagle3_with("norm_before_residual", "norm_before_residual=null");
    put_eagle3_with("layers", "eagle_aux_hidden_state_layer_ids=[0,1,2]");
    put_eagle3_with("most_layers", "eagle_aux_hidden_state_layer_ids=[0,1,2,3,4,5,6,7]");
    put_eagle3_with("dflash_config", "dflash_config=null");
    put_eagle3_with("eagle_config", "eagle_config={\"eagle_aux_hidden_state_layer_ids\":[0,1,2]}");
    free(directory);
}
