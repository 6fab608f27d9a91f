// config_readers.h - the readers of configurations: config_read.c calls the one of the format. Heads have
// configurations in JSON, too.
#pragma once
#include "models/config.h"

struct digest;
struct fields;
struct wrapper;

// Each sets the fields that its format specifies, and adds all content that it reads to d. text: read only what
// concerns text (BOS, end tokens, chat template, special tokens), and require no file of a directory. config_read()
// calls config_check() afterwards. (config_gguf.c, config_hf.c)
bool config_from_gguf(const char *path, bool text, struct digest *d, struct model_config *to, struct error *err);
bool config_from_directory(const char *path, bool text, struct digest *d, struct model_config *to, struct error *err);

// The following read the object of a config.json, or a part of it (config_json.c).

// Reads the architecture that model_type names. If it is missing and not required, as in a head's configuration, the
// architecture is llama.
bool config_read_family(const struct fields *f, bool required, struct model_config *to);
// Sets *text to the fields of text_config, and the architecture to that of its model_type.
bool config_read_wrapper(const struct fields *f, const struct wrapper *w, struct fields *text, struct model_config *to);
// Reads only sizes, norms, biases and RoPE, from an object with the keys of config.json.
bool config_from_json(const struct fields *f, struct model_config *to);
// Reads quantization_config. Without it, to->fp8 remains unset. Anything except FP8 with scales of weights alone is
// refused (config_fp8.c).
bool config_read_fp8(const struct fields *f, struct model_config *to);
bool config_read_rope(const struct fields *f, struct model_config *to); // reads RoPE alone (config_json_rope.c)
