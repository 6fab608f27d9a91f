// inspect.c - `speclab inspect`: facts about a checkpoint, the cost of a pass, and the speed limit set by memory.
//
// All facts are gathered into one JSON object. python/speclab/words/inspect.py prints it as text.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "engine/engine.h"
#include "commands/inspect_checkpoint.h"
#include "commands/inspect_texts.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "kernels/cpu/probe.h"
#include "models/architectures.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "models/paths.h"
#include "models/weights.h"

enum { DEFAULT_CONTEXT = 1024 };

// Rows of the passes whose bytes are stated of a mixture of experts.
static const int union_rows[] = { 1, 2, 4, 8, 16, 32, 64 };
enum { UNIONS = sizeof(union_rows) / sizeof(*union_rows) };

struct inspect {
    struct inspect_texts texts; // its members are those of the flags
    const char *target;         // a head's; NULL: a model is inspected
    bool json, tensors, no_probe;
    long long context, threads;
    struct speclab_target_options options;

    struct model_config config;
    struct weights *weights;
    struct tokenizer *tokenizer;
    struct error no_tokenizer;
    struct chat_format chat;
    struct error no_chat; // empty: the model has a chat template
    struct devices *devices;
    struct backend *backend;
    struct model *model; // NULL: it cannot be run, for the reason in no_model
    struct error no_model;

    struct json *facts;
};

// ---- gathering

static struct json *token_json(const struct inspect *in, int id)
{
    size_t n = 0;
    const char *s = in->tokenizer != NULL ? tokenizer_token(in->tokenizer, id, &n) : NULL;
    return s != NULL ? json_new_text_n(s, n) : json_new_null();
}

static void add_shape(struct inspect *in, const char *name)
{
    const struct model_config *c = &in->config;
    const bool begins = c->add_bos && c->bos >= 0,
               scales = c->rope.scaling == ROPE_LINEAR || c->rope.scaling == ROPE_LLAMA3;
    struct json *end_tokens = json_new_array();
    for (int i = 0; i < c->n_end; i++)
        json_push(end_tokens, token_json(in, c->end[i]));
    in->facts = json_object_of(
        JSON("model", model_is_shape(name) ? name : c->path), JSON("format", c->gguf ? "gguf" : "huggingface"),
        JSON("architecture", c->architecture->name),
        JSON("wrapper", c->wrapper != NULL ? c->wrapper->model_type : NULL), JSON("layers", c->layers),
        JSON("width", c->width), JSON("hidden", c->hidden), JSON("heads", c->heads), JSON("kv_heads", c->kv_heads),
        JSON("head_dim", c->head_dim), JSON("vocab", c->vocab), JSON("context", c->context),
        JSON("window", c->window > 0 ? json_new_int(c->window) : json_new_null()),
        JSON("windowed_layers", layer_set_count(&c->windowed)), JSON("experts", c->experts),
        JSON("experts_used", c->experts_used), JSON("expert_hidden", c->experts > 0 ? c->expert_hidden : 0),
        JSON("expert_layers", config_mixed_layers(c)), JSON("attention_bias", c->attention_bias), JSON("tied", c->tied),
        JSON("inflated_from", c->inflated), JSON("quantized_from", c->quantized), JSON("norm_eps", c->norm_eps),
        JSON("rope_theta", c->rope.theta), JSON("rope_scaling", config_rope_name(c->rope.scaling)),
        JSON("rope_factor", scales ? c->rope.factor : NAN), JSON("end_ids", json_new_ids(c->end, (size_t)c->n_end)),
        JSON("end_tokens", end_tokens), JSON("bos_id", begins ? json_new_int(c->bos) : json_new_null()),
        JSON("bos_token", begins ? token_json(in, c->bos) : json_new_null()),
        JSON("tokens", in->tokenizer != NULL ? json_new_int(tokenizer_size(in->tokenizer)) : json_new_null()),
        JSON("no_tokenizer", in->tokenizer == NULL ? in->no_tokenizer.text : NULL),
        JSON("chat", in->chat.kind == CHAT_CHATML  ? "chatml"
                     : in->chat.kind == CHAT_JINJA ? "jinja"
                                                   : NULL),
        JSON("chat_system", in->chat.kind == CHAT_CHATML ? in->chat.system : NULL),
        JSON("no_chat", in->chat.kind == CHAT_NONE ? in->no_chat.text : NULL));
}

static void count(struct json *j, const char *key, int64_t n)
{
    struct json *sum = json_get(j, key);
    json_integer_set(sum, json_int(sum) + n);
}

static void add_weights(struct inspect *in)
{
    const struct model_config *c = &in->config;
    struct json *types = json_new_object(), *ignored = json_new_array(), *list = json_new_array();
    int64_t all = 0;
    for (const struct weight *t = in->weights->weight; t < in->weights->weight + in->weights->n; t++) {
        const int64_t parameters = t->tensor.rows * t->tensor.width;
        if (json_get(types, t->type_name) == NULL)
            json_set(types, t->type_name, json_object_of(JSON("tensors", 0), JSON("parameters", 0), JSON("bytes", 0)));
        struct json *type = json_get(types, t->type_name);
        count(type, "tensors", 1);
        count(type, "parameters", parameters);
        count(type, "bytes", (int64_t)t->bytes);
        all += parameters;
        json_push(list, json_object_of(JSON("name", t->name), JSON("type", t->type_name), JSON("rows", t->tensor.rows),
                                       JSON("width", t->tensor.width), JSON("bytes", t->bytes)));
    }
    // Without those of the experts that a token does not use.
    const int64_t unused =
        (int64_t)config_mixed_layers(c) * (c->experts - c->experts_used) * 3 * c->width * c->expert_hidden;
    json_add(in->facts, JSON("parameters", all), JSON("active_parameters", all - unused),
             JSON("bytes", weights_bytes(in->weights)), JSON("types", types));
    for (size_t i = 0; in->model != NULL && model_unused(in->model, i) != NULL; i++)
        json_push(ignored, json_new_text(model_unused(in->model, i)));
    json_add(in->facts, JSON("ignored", ignored));
    if (in->weights->of_images > 0)
        json_add(in->facts, JSON("ignored_of_images", in->weights->of_images));
    if (in->tensors)
        json_add(in->facts, JSON("tensors", list));
    else
        json_free(list);
    json_add(in->facts, JSON("problem", in->model == NULL ? in->no_model.text : NULL));
}

// Two operations for each weight of a product, and in attention for each element of the keys and values that are read.
static double pass_flops(const struct model_config *c, long long context)
{
    const double heads = (double)c->heads * c->head_dim;
    return 2 *
           (config_products(c) + 2 * heads * config_positions_seen(c, (double)context) + (double)c->width * c->vocab);
}

static struct json *unions(const struct inspect *in)
{
    struct json *list = json_new_array();
    for (int i = 0; i < UNIONS; i++)
        json_push(list, json_object_of(JSON("n", union_rows[i]),
                                       JSON("experts_per_layer", config_experts_expected(&in->config, union_rows[i])),
                                       JSON("weight_bytes", model_pass_bytes(in->model, union_rows[i]))));
    return list;
}

static struct json *probed(struct inspect *in, double pass_bytes)
{
    const struct probe p = probe_read_bandwidth((int)in->threads);
    const double rate = p.bytes_per_second > 0 ? p.bytes_per_second : NAN; // NAN: not enough free memory
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return json_object_of(JSON("bytes_per_second", rate), JSON("threads", p.threads), JSON("passes", p.passes),
                          JSON("bytes", p.bytes), JSON("seconds_per_token", pass_bytes / rate),
                          JSON("tokens_per_second", rate / pass_bytes),
                          JSON("processor_cache_bytes", cache > 0 ? json_new_int(cache) : json_new_null()));
}

// The index of a flag's value; 0 without one.
static int chosen(const char *choices, const char *value)
{
    return value != NULL ? choice_index(choices, value) : 0;
}

// Adds the cost of a pass of one token at the requested context, and the memory that it reads.
static bool add_pass(struct inspect *in, struct error *err)
{
    const struct model_config *c = &in->config;
    struct kv_shape one = model_kv_shape(in->model, 1, 1, 1), full = model_kv_shape(in->model, 1, c->context, 1);
    one.type = full.type = kv_type_resolve((enum kv_type)chosen(KV_CHOICES, in->options.cache));
    if (!kv_fits(&one, err))
        return false;
    const double flops = pass_flops(c, in->context), weights = model_pass_bytes(in->model, 1),
                 bytes = weights + config_positions_seen(c, (double)in->context) * (double)kv_bytes(&one) / c->layers;
    json_add(
        in->facts, JSON("activations", activations_names[model_activations(in->model)]),
        JSON("cache", type_facts[one.type].name), JSON("cache_bytes_per_token", kv_bytes(&one)),
        JSON("cache_bytes_of_context", kv_bytes(&full)),
        JSON("pass", json_object_of(JSON("context", in->context), JSON("flops", flops), JSON("weight_bytes", weights),
                                    JSON("bytes", bytes), JSON("flops_per_byte", flops / bytes))));
    if (c->experts > 0)
        json_add(in->facts, JSON("expected_unions", unions(in)));
    size_t free_bytes, all_bytes;
    const bool own = in->backend->memory(in->backend, &free_bytes, &all_bytes); // the probe measures host memory
    json_add(in->facts, JSON("memory", in->no_probe || own ? json_new_null() : probed(in, bytes)),
             JSON("device_memory", !own ? json_new_null()
                                        : json_object_of(JSON("device", in->backend->describe(in->backend)),
                                                         JSON("bytes", all_bytes), JSON("free_bytes", free_bytes))));
    return true;
}

static bool gather(struct inspect *in, const char *name, struct error *err)
{
    char *path = model_path(name, NULL, err);
    bool ok = path != NULL && config_read(path, &in->config, err);
    free(path);
    if (!ok)
        return false;
    if (in->context > in->config.context)
        return fail(err, "--context %lld: the context of %s is %d tokens", in->context, in->config.path,
                    in->config.context);
    if (in->context == 0)
        in->context = in->config.context < DEFAULT_CONTEXT ? in->config.context : DEFAULT_CONTEXT;
    in->weights = weights_open(&in->config, err);
    if (in->weights == NULL)
        return false;
    in->tokenizer = tokenizer_open(in->config.path, &in->no_tokenizer);
    const struct chat_request chat = {
        .name = "auto", .jinja = in->config.chat_template, .tokens = in->config.special_tokens, .now = "2025-01-01"
    };
    if (!chat_choose(&chat, &in->chat, &in->no_chat))
        in->chat.kind = CHAT_NONE;
    else
        in->no_chat.text[0] = '\0';
    in->devices = devices_create((int)in->threads);
    in->backend = devices_get(in->devices, in->options.device, err);
    if (in->backend == NULL)
        return false;
    in->model = model_open(in->config.path, in->backend,
                           (enum activations)chosen(ACTIVATIONS_CHOICES, in->options.activations), 1, &in->no_model);
    add_shape(in, name);
    add_weights(in);
    return in->model == NULL || add_pass(in, err);
}

static void forget(struct inspect *in)
{
    json_free(in->facts);
    chat_close(&in->chat);
    model_close(in->model);
    devices_destroy(in->devices);
    tokenizer_close(in->tokenizer);
    weights_close(in->weights);
    config_free(&in->config);
}

// ---- the command

static const char about[] =
    "Describes a checkpoint: shape, tokenizer, chat template, tensors by type, size of the KV cache, operations and bytes\n"
    "of a pass of one token, and the tokens/s that the memory bandwidth allows (measured in about two seconds). Every\n"
    "weight is checked: a missing tensor, a wrong shape or a value that is not a number is an error. With --target, MODEL\n"
    "is a drafter's head (Medusa, EAGLE or EAGLE-3): describes its kind and the hidden states that it reads, and checks\n"
    "that it fits the target. The weights of head and target are not read in that case.\n\n"
    "With --tokenize, --detokenize or --score it reads lines of JSON from FILE.jsonl, or stdin, and prints a line for each, up to\n"
    "the first invalid line.\n\n"
    "--tokenize: {\"text\": \"...\"} becomes {\"ids\": [...]}, after the beginning-of-text token if the model has one. Special tokens\n"
    "in the text are recognized. {\"messages\": [{\"role\": .., \"content\": ..}]} is a conversation, rendered by the chat template up\n"
    "to the answer: {\"text\", \"ids\"}. MODEL can be a vocabulary alone: a GGUF file, tokenizer.json, tokenizer.model\n"
    "(SentencePiece, tiktoken), tekken.json. --detokenize: {\"ids\"} becomes {\"text\"}.\n\n"
    "--score: {\"ids\": [...]} or {\"text\": \"...\"} becomes {\"logprobs\": [...], \"perplexity\": x}: the natural logarithm of the\n"
    "probability of each token given those before it (one fewer than there are ids), and the exponential of their negated mean.\n"
    "The perplexity over all tokens goes to stderr. With --answers the lines are prompts in the format of experiments, each with\n"
    "an \"answer\": a text, or a list with one text for each turn. Only the tokens of the answers are scored, each after its prompt\n"
    "and the earlier turns.\n";

static const char examples[] =
    "  speclab inspect smollm2-135m-instruct\n"
    "  speclab inspect EAGLE3-LLaMA3.1-Instruct-8B --target Llama-3.1-8B-Instruct\n"
    "  speclab inspect target.gguf --context 4096 --json --no-probe\n"
    "  echo '{\"text\": \"Hello, world\"}' | speclab inspect smollm2-135m-instruct --tokenize\n"
    "  speclab inspect smollm2-135m-instruct answers.jsonl --score --answers --activations int8 --cache q8_0 > /dev/null\n";

static const struct mode modes[] = {
    { "checkpoint", "" },
    { "target", "json" },
    { "tokenize", "no-special chat chat-template-kwargs" },
    { "detokenize", "no-special" },
    { "score", "answers chat chat-template-kwargs layers positions context threads device activations cache packed" },
    { NULL, "context tensors threads device activations cache no-probe json" },
};
enum { CHECKPOINT, HEAD, TOKENIZE, DETOKENIZE, SCORE, MODEL }; // indices of modes

static bool describe(struct inspect *in, const struct usage *u, const char *name, int *status, struct error *err)
{
    const bool gathered = gather(in, name, err);
    if (in->model == NULL && inspect_is_head(name)) {
        *status = usage_fail(u, "%s: a drafter's head; name its target with --target MODEL", name);
        return true;
    }
    if (!gathered)
        return false;
    json_print(json_incref(in->facts), stdout);
    if (in->model == NULL)
        *err = in->no_model;
    return in->model != NULL;
}

// Checks what the flags say together, and sets what text modes read.
static int check(struct inspect *in, const struct usage *u, int mode, char **operand, int n, const char *variables)
{
    struct inspect_texts *t = &in->texts;
    struct error err;
    t->model = operand[0];
    t->path = n > 1 && strcmp(operand[1], "-") != 0 ? operand[1] : NULL;
    t->options = in->options;
    t->threads = in->threads;
    t->context = in->context != 0 ? in->context : 512;
    if (n > 1 && (mode < TOKENIZE || mode == MODEL))
        return usage_fail(u, "unexpected argument \"%s\": a file goes with --tokenize, --detokenize or --score",
                          operand[1]);
    if (t->layers && (t->answers || t->path == NULL))
        return usage_fail(u, t->answers ? "--layers and --answers exclude each other" : "--layers requires FILE.jsonl");
    if (mode == SCORE && (t->chat != NULL || variables != NULL) && !t->answers)
        return usage_fail(u, "with --score, %s requires --answers",
                          t->chat != NULL ? "--chat" : "--chat-template-kwargs");
    if (mode == SCORE && in->context != 0 && !t->layers)
        return usage_fail(u, "with --score, --context requires --layers");
    if (t->chat != NULL && !chat_name_known(t->chat, &err))
        return usage_fail(u, "--chat: %s", err.text);
    if (!chat_variables_read(variables, &t->variables, &err))
        return usage_fail(u, "--chat-template-kwargs: %s", err.text);
    return USAGE_OK;
}

int command_inspect(int argc, char **argv)
{
    struct inspect in = { .texts.positions = 20 };
    bool way[MODEL] = { false };
    const char *variables = NULL;
    const struct flag flags[] = {
        { "context", FLAG_INT, &in.context, "N",
          "cached tokens of the pass; default: 1024, or the model's context if smaller", 1, 1 << 24 },
        { "tensors", FLAG_ON, &in.tensors, NULL, "list all tensors by their Hugging Face names", 0, 0 },
        { "threads", FLAG_INT, &in.threads, "N", "number of threads; default: one for each processor", 1, MAX_THREADS },
        PRECISION_FLAGS(in.options),
        { "target", FLAG_TEXT, &in.target, "MODEL", "MODEL is a head; check it against this target", 0, 0 },
        { "no-probe", FLAG_ON, &in.no_probe, NULL, "do not measure the memory bandwidth", 0, 0 },
        { "json", FLAG_ON, &in.json, NULL,
          "print one JSON object, with all digits; without it, ./run inspect prints text", 0, 0 },
        { "checkpoint", FLAG_ON, &way[CHECKPOINT], NULL,
          "print as JSON what a tool needs that writes MODEL in another form; no weight is read", 0, 0 },
        { "tokenize", FLAG_ON, &way[TOKENIZE], NULL, "print the token ids of texts and conversations", 0, 0 },
        { "detokenize", FLAG_ON, &way[DETOKENIZE], NULL, "print the texts of token ids", 0, 0 },
        { "no-special", FLAG_ON, &in.texts.plain, NULL,
          "treat special tokens as ordinary text and add no beginning-of-text token;\n"
          "with --detokenize, leave special tokens out of the text",
          0, 0 },
        { "score", FLAG_ON, &way[SCORE], NULL, "print the log-probabilities and the perplexity of texts", 0, 0 },
        { "answers", FLAG_ON, &in.texts.answers, NULL,
          "with --score: the lines are prompts with answers; score only the answers", 0, 0 },
        { "chat", FLAG_TEXT, &in.texts.chat, CHAT_CHOICES,
          "chat format of messages and prompts: the model's own template (auto),\nor none; default: auto", 0, 0 },
        CHAT_VARIABLES_FLAG(variables),
        { "layers", FLAG_ON, &in.texts.layers, NULL,
          "with --score: score sets of layers, which lines of stdin name, on conversations\n"
          "in FILE.jsonl, of which --context tokens are read (512): for ./run tune MODEL FILE.jsonl",
          0, 0 },
        { "positions", FLAG_INT, &in.texts.positions, "N", "with --layers: positions of each text; default: 20", 1,
          10000 },
        PACKED_FLAG(in.texts.packed),
        { 0 },
    };
    const struct usage u = { "inspect", "MODEL [FILE.jsonl]", about, flags, examples, 1, 2 };
    struct error err;
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    const int mode = status == USAGE_OK ? usage_mode(&u, modes) : -1;
    if (mode < 0)
        return status == USAGE_OK ? 2 : status;
    status = check(&in, &u, mode, operand, n, variables);
    if (status == USAGE_OK) {
        status = 0;
        const bool ok = mode == CHECKPOINT   ? inspect_checkpoint(operand[0], &err)
                        : mode == HEAD       ? inspect_head(operand[0], in.target, &err)
                        : mode == TOKENIZE   ? inspect_tokens(&in.texts, &err)
                        : mode == DETOKENIZE ? inspect_detokens(&in.texts, &err)
                        : mode == SCORE      ? inspect_scores(&in.texts, &err)
                                             : describe(&in, &u, operand[0], &status, &err);
        status = ok ? status : command_fail(&u, &err);
    }
    json_free(in.texts.variables);
    forget(&in);
    return status != 0 ? status : command_done(&u);
}
