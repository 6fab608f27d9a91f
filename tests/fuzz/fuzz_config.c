// fuzz_config.c - arbitrary texts as the configuration files of a Hugging Face directory.
//
// Input: the files below, concatenated (fuzz.h).
// reader: models/config_hf.c models/config_json.c models/config_json_rope.c models/config_fp8.c models/config_read.c models/config.c models/formats/json_fields.c
// reader: models/formats/directory/declared_tokens.c
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tests/fuzz/fuzz.h"
#include "models/config.h"
#include "models/model.h"

static const struct fuzz_file files[] = {
    { "config.json", FUZZ_JSON },           { "generation_config.json", FUZZ_JSON },
    { "tokenizer_config.json", FUZZ_JSON }, { "tokenizer.json", FUZZ_JSON },
    { "chat_template.jinja", FUZZ_TEXT },   { "special_tokens_map.json", FUZZ_JSON },
    { "added_tokens.json", FUZZ_JSON },     { NULL, FUZZ_TEXT },
};
static const char words[] =
    "llama  linear  llama3  default  yarn  rope_scaling  rope_parameters  rope_type  type  factor  low_freq_factor  "
    "high_freq_factor  original_max_position_embeddings  partial_rotary_factor  rope_theta  quantization_config  "
    "quant_method  fp8  e4m3  dynamic  weight_block_size  compressed-tensors  float-quantized  config_groups  "
    "weights  num_bits  strategy  sliding_attention  full_attention  layer_types  head_dim  num_key_value_heads  "
    "num_attention_heads  hidden_size  hidden_act  sliding_window  mlp_bias  attention_bias  tie_word_embeddings  "
    "rms_norm_eps  text_config  longrope  long_factor  llama_4_scaling_beta  no_rope_layers  use_sliding_window  "
    "max_window_layers  sliding_window_pattern  rope_local_base_freq  num_experts  num_experts_per_tok  "
    "mlp_only_layers  query_pre_attn_scalar  model_type  architectures  LlamaForCausalLM  MedusaModelLlama  "
    "eos_token_id  bos_token_id  eos_token  bos_token  add_bos_token  content  added_tokens_decoder  "
    "extra_special_tokens  additional_special_tokens  pad_token  added_tokens  id  post_processor  processors  "
    "TemplateProcessing  single  SpecialToken  chat_template  template  name  speclab_inflated_from  "
    "speclab_quantised_from  <|im_end|>  <|endoftext|>  <s>";

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    struct model_config c;
    struct error err = { "" };
    fuzz_write_files(input, n, files);
    if (!config_read(fuzz_folder(), &c, &err)) {
        insist(strncmp(err.text, fuzz_folder(), strlen(fuzz_folder())) == 0 && c.path == NULL);
        return 0;
    }
    insist(c.heads > 0 && c.kv_heads > 0 && c.heads % c.kv_heads == 0 && c.head_dim % 2 == 0 && c.vocab > 0);
    insist(c.bos >= -1 && c.bos < c.vocab && (c.bos >= 0 || !c.add_bos));
    for (int i = 0; i < c.n_end; i++)
        insist(c.end[i] >= 0 && c.end[i] < c.vocab);
    const struct model_shape shape = model_shape_of(&c);
    insist(shape.width == c.width && model_scratch_bytes(&shape, 1) > 0);
    float *frequency = xcalloc((size_t)c.head_dim, sizeof(*frequency));
    config_rope(&c.rope, c.head_dim, c.rope.scaling == ROPE_LONG ? c.rope_long : NULL, frequency);
    for (int i = 0; i < config_rotated(&c.rope, c.head_dim) / 2; i++)
        insist(isfinite(frequency[i]));
    insist(c.experts_used <= c.experts && layer_set_count(&c.windowed) <= c.layers);
    free(frequency);
    config_free(&c);
    return 0;
}

FUZZ_MUTATOR(files, words)
