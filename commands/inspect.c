// inspect.c - `speclab inspect`: facts about a checkpoint, the cost of a pass, and the speed limit set by memory.
//
// All facts are gathered into one JSON object, which --json prints; the text is printed from it, and from the
// configuration.
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
    double full_bytes; // bytes in a cache of the full context
    struct probe probe;
};

// ---- gathering

static void add_shape(struct inspect *in, const char *name)
{
    const struct model_config *c = &in->config;
    in->facts = json_object_of(
        JSON("model", model_is_shape(name) ? name : c->path), JSON("format", c->gguf ? "gguf" : "huggingface"),
        JSON("architecture", c->architecture->name), JSON("layers", c->layers), JSON("width", c->width),
        JSON("hidden", c->hidden), JSON("heads", c->heads), JSON("kv_heads", c->kv_heads),
        JSON("head_dim", c->head_dim), JSON("vocab", c->vocab), JSON("context", c->context),
        JSON("window", c->window > 0 ? json_new_int(c->window) : json_new_null()),
        JSON("windowed_layers", layer_set_count(&c->windowed)), JSON("experts", c->experts),
        JSON("experts_used", c->experts_used), JSON("expert_hidden", c->experts > 0 ? c->expert_hidden : 0),
        JSON("expert_layers", config_mixed_layers(c)), JSON("tied", c->tied), JSON("inflated_from", c->inflated),
        JSON("quantized_from", c->quantized), JSON("norm_eps", c->norm_eps), JSON("rope_theta", c->rope.theta),
        JSON("rope_scaling", config_rope_name(c->rope.scaling)),
        JSON("end_ids", json_new_ids(c->end, (size_t)c->n_end)),
        JSON("bos_id", c->add_bos && c->bos >= 0 ? json_new_int(c->bos) : json_new_null()),
        JSON("tokens", in->tokenizer != NULL ? json_new_int(tokenizer_size(in->tokenizer)) : json_new_null()),
        JSON("no_tokenizer", in->tokenizer == NULL ? in->no_tokenizer.text : NULL),
        JSON("chat", in->chat.kind == CHAT_CHATML  ? "chatml"
                     : in->chat.kind == CHAT_JINJA ? "jinja"
                                                   : NULL),
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
    in->probe = probe_read_bandwidth((int)in->threads);
    const double rate = in->probe.bytes_per_second > 0 ? in->probe.bytes_per_second : NAN;
    return json_object_of(JSON("bytes_per_second", rate), JSON("threads", in->probe.threads),
                          JSON("seconds_per_token", pass_bytes / rate), JSON("tokens_per_second", rate / pass_bytes));
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
    in->full_bytes = (double)kv_bytes(&full);
    const double flops = pass_flops(c, in->context), weights = model_pass_bytes(in->model, 1),
                 bytes = weights + config_positions_seen(c, (double)in->context) * (double)kv_bytes(&one) / c->layers;
    json_add(
        in->facts, JSON("activations", activations_names[model_activations(in->model)]),
        JSON("cache", type_facts[one.type].name), JSON("cache_bytes_per_token", kv_bytes(&one)),
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

// ---- text output

// "92.0 MB": three significant digits, decimal prefixes.
static const char *amount(double n, const char *unit, char to[32])
{
    static const char *const prefix[] = { "", "k", "M", "G", "T" };
    int k = 0;
    for (; n >= 999.5 && k < 4; k++)
        n /= 1000;
    snprintf(to, 32, "%.*f %s%s", k == 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2, n, prefix[k], unit);
    return to;
}

static void print_token(const struct inspect *in, int id)
{
    size_t n = 0;
    const char *s = in->tokenizer != NULL ? tokenizer_token(in->tokenizer, id, &n) : NULL;
    printf(" %d", id);
    if (s != NULL)
        printf(" %.*s", (int)n, s);
}

static void print_tokenizer(const struct inspect *in)
{
    const struct model_config *c = &in->config;
    if (in->tokenizer == NULL)
        printf("tokenizer   none: %s\n", in->no_tokenizer.text);
    else
        printf("tokenizer   byte-level BPE, %d tokens%s\n", tokenizer_size(in->tokenizer),
               tokenizer_size(in->tokenizer) < c->vocab ? "; larger ids are padding" : "");
    printf("ends with  ");
    for (int i = 0; i < c->n_end; i++)
        print_token(in, c->end[i]);
    printf(c->n_end == 0 ? " no end-of-text token\n" : "\n");
    if (c->add_bos && c->bos >= 0) {
        printf("begins with");
        print_token(in, c->bos);
        printf("\n");
    }
    if (in->chat.kind == CHAT_CHATML)
        printf("chat        chatml%s%s\n", in->chat.system != NULL ? ", system: " : "",
               in->chat.system != NULL ? in->chat.system : "");
    else if (in->chat.kind == CHAT_JINJA)
        printf("chat        its own template, by Jinja\n");
    else
        printf("chat        none: %s\n", in->no_chat.text);
}

static void print_shape(const struct inspect *in)
{
    const struct model_config *c = &in->config;
    printf("model       %s\n", json_text(json_get(in->facts, "model")));
    printf("family      %s, %s%s%s\n", c->architecture->name, c->gguf ? "GGUF" : "Hugging Face",
           c->wrapper != NULL ? ", the text model of " : "", c->wrapper != NULL ? c->wrapper->model_type : "");
    printf("shape       %d layers, width %d, hidden %d, vocabulary %d, context %d\n", c->layers, c->width, c->hidden,
           c->vocab, c->context);
    printf("attention   %d heads of %d, %d for keys and values%s\n", c->heads, c->head_dim, c->kv_heads,
           c->attention_bias ? ", with biases" : "");
    if (c->window > 0)
        printf("windows     of %d tokens in %d of %d layers\n", c->window, layer_set_count(&c->windowed), c->layers);
    if (c->experts > 0)
        printf("experts     %d of %d for a token, hidden %d, in %d of %d layers\n", c->experts_used, c->experts,
               c->expert_hidden, config_mixed_layers(c), c->layers);
    printf("rope        theta %g, %s", c->rope.theta, config_rope_name(c->rope.scaling));
    if (c->rope.scaling == ROPE_LINEAR || c->rope.scaling == ROPE_LLAMA3)
        printf(", factor %g", c->rope.factor);
    printf("\nhead        %s\n", c->tied ? "tied to the embedding" : "separate");
    if (c->inflated != NULL)
        printf("inflated    marked as inflated from %s; its speed is not that of a real model\n", c->inflated);
    if (c->quantized != NULL)
        printf("quantized   from %s\n", c->quantized);
}

static double number(const struct json *j, const char *key)
{
    return json_number(json_get(j, key));
}

static void print_tensors(const struct inspect *in)
{
    char a[32], b[32], c[32];
    const struct json *f = in->facts, *types = json_get(f, "types"), *ignored = json_get(f, "ignored"),
                      *pass = json_get(f, "pass");
    printf("parameters  %s", amount(number(f, "parameters"), "", a));
    if (in->config.experts > 0)
        printf(", of which %s active for a token", amount(number(f, "active_parameters"), "", b));
    printf("\ntensors     %zu, %s\n", in->weights->n, amount(number(f, "bytes"), "B", a));
    for (void *at = json_first(types); at != NULL; at = json_next(types, at)) {
        const struct json *type = json_value(at);
        const double bytes = number(type, "bytes"), parameters = number(type, "parameters");
        printf("            %5lld %-6s %9s, %.2f bits per parameter\n", (long long)json_int(json_get(type, "tensors")),
               json_key(at), amount(bytes, "B", a), parameters > 0 ? 8 * bytes / parameters : 0);
    }
    if (in->weights->of_images > 0)
        printf("            ignored: %zu tensors of the model of images: texts do not use them\n",
               in->weights->of_images);
    for (size_t i = 0; i < json_count(ignored); i++)
        printf("            ignored: %s\n", json_text(json_at(ignored, i)));
    if (in->model == NULL)
        return;
    printf("activations %s\n", json_text(json_get(f, "activations")));
    printf("cache       %s per token (%s), %s for the full context\n",
           amount(number(f, "cache_bytes_per_token"), "B", a), json_text(json_get(f, "cache")),
           amount(in->full_bytes, "B", b));
    printf("pass        one token at context %lld: %s, %s read,", in->context, amount(number(pass, "flops"), "FLOP", a),
           amount(number(pass, "bytes"), "B", b));
    printf(" of which %s weights: %.2f FLOP per byte\n", amount(number(pass, "weight_bytes"), "B", c),
           number(pass, "flops_per_byte"));
}

static void print_unions(const struct json *list)
{
    char a[32];
    if (list == NULL)
        return;
    printf(
        "mixture     experts of a layer, and bytes of weights, that a pass of n rows reads: expected values, if rows choose\n"
        "            their experts independently and uniformly (`bench` counts them)\n"
        "                n   experts    weights\n");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *u = json_at(list, i);
        printf("            %5.0f %9.2f %10s\n", number(u, "n"), number(u, "experts_per_layer"),
               amount(number(u, "weight_bytes"), "B", a));
    }
}

static void print_limit(const struct inspect *in)
{
    const struct json *device = json_get(in->facts, "device_memory"), *memory = json_get(in->facts, "memory");
    const double seconds = number(memory, "seconds_per_token");
    char a[32], b[32];
    if (!json_is_null(device))
        printf("memory      %s, of which %s free with the model loaded: %s\n", amount(number(device, "bytes"), "B", a),
               amount(number(device, "free_bytes"), "B", b), json_text(json_get(device, "device")));
    if (json_is_null(memory))
        return;
    if (in->probe.bytes_per_second == 0) {
        printf("memory      not enough free to measure the read bandwidth\n");
        return;
    }
    printf("memory      %s/s read by %d threads (median of %d passes over %s)\n",
           amount(in->probe.bytes_per_second, "B", a), in->probe.threads, in->probe.passes,
           amount((double)in->probe.bytes, "B", b));
    printf("limit       %.3g ms per token, %.3g tokens/s without speculation, if all data comes from memory\n",
           seconds * 1e3, 1 / seconds);
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && number(json_get(in->facts, "pass"), "bytes") < (double)cache)
        printf("            (fits into the processor's cache of %s and may be faster)\n",
               amount((double)cache, "B", a));
}

static void print_list(const struct json *list)
{
    printf("\n%-48s %-6s %8s x %-8s %12s\n", "tensor", "type", "rows", "width", "bytes");
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *t = json_at(list, i);
        printf("%-48s %-6s %8.0f x %-8.0f %12.0f\n", json_text(json_get(t, "name")), json_text(json_get(t, "type")),
               number(t, "rows"), number(t, "width"), number(t, "bytes"));
    }
}

static void print_text(const struct inspect *in)
{
    print_shape(in);
    print_tokenizer(in);
    print_tensors(in);
    print_unions(json_get(in->facts, "expected_unions"));
    print_limit(in);
    if (in->tensors)
        print_list(json_get(in->facts, "tensors"));
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
    if (in->json)
        json_print(json_incref(in->facts), stdout);
    else
        print_text(in);
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
        { "json", FLAG_ON, &in.json, NULL, "print one JSON object, with all digits", 0, 0 },
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
                        : mode == HEAD       ? inspect_head(operand[0], in.target, in.json, &err)
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
