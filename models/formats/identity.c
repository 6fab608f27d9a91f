#include "models/formats/identity.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "models/formats/gguf.h"

// ---- ignored keys

// Keys about provenance, training and usage hints. None of them changes a generated text or a time (pretraining_tp: how
// the training divided the products).
static const struct {
    const char *file, *keys;
} ignored[] = {
    { "config.json",
      "_name_or_path|transformers_version|torch_dtype|dtype|use_cache|initializer_range|pad_token_id|attention_dropout|"
      "resid_pdrop|embd_pdrop|router_jitter_noise|output_router_logits|router_aux_loss_coef|pretraining_tp|model_format|"
      "return_dict|_attn_implementation_autoset|_commit_hash|transformers.js_config|unsloth_fixed|unsloth_version" },
    { "generation_config.json",
      "_from_model_config|transformers_version|do_sample|temperature|top_k|top_p|min_p|repetition_penalty|max_length|"
      "max_new_tokens|pad_token_id|bos_token_id" },
    { "tokenizer_config.json",
      "tokenizer_class|model_max_length|clean_up_tokenization_spaces|padding_side|truncation_side|model_input_names|"
      "name_or_path|special_tokens_map_file|tokenizer_file|extra_special_tokens|backend|is_local" },
    { "tokenizer.json", "version|truncation|padding" },
};

// The keys general.* are descriptive, except those listed here.
static bool is_ignored_in_gguf(const char *key)
{
    if (choice_index("general.architecture|general.type|general.alignment", key) >= 0)
        return false;
    return strncmp(key, "general.", 8) == 0 || strncmp(key, "quantize.imatrix.", 17) == 0;
}

bool identity_ignores(const char *file, const char *key)
{
    if (file == NULL)
        return is_ignored_in_gguf(key);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
        if (strcmp(file, ignored[i].file) == 0)
            return choice_index(ignored[i].keys, key) >= 0;
    return false;
}

// ---- reading

struct json *identity_json(const char *path, struct digest *d, struct error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct json *j = json_read(path, err);
    if (j != NULL && !json_is_object(j)) {
        fail(err, "%s: expected a JSON object", path);
        json_free(j);
        return NULL;
    }
    if (j == NULL)
        return NULL;
    for (void *at = json_first(j), *next; at != NULL; at = next) {
        next = json_next(j, at);
        if (identity_ignores(name, json_key(at)))
            json_drop(j, json_key(at));
    }
    digest_text(d, name);
    json_digest(j, d);
    return j;
}

void identity_gguf(struct gguf *g, struct digest *d)
{
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        char *key = xstrndup(v->key.s, v->key.n);
        if (identity_ignores(NULL, key))
            gguf_hide(g, i);
        else {
            digest_text_n(d, v->key.s, v->key.n);
            digest_int(d, v->type);
            digest_int(d, v->type == GGUF_ARRAY ? (int64_t)v->element : -1);
            digest_int(d, (int64_t)v->n);
            digest_text_n(d, (const char *)v->raw, v->raw_bytes);
        }
        free(key);
    }
}
