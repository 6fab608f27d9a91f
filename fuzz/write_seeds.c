// write_seeds.c - writes the seed inputs of the fuzz targets with the tests' file writers: write_seeds FOLDER
//
// FOLDER/NAME/* are inputs of fuzz_NAME; FOLDER/{tiny.gguf,target.gguf,results.db} are files that some targets need.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/experiment.h"
#include "fuzz/fuzz.h"
#include "models/config.h"
#include "formats/gguf.h"
#include "models/packed_cache.h"
#include "formats/safetensors.h"
#include "models/weights.h"
#include "results/exact_rows.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/formats/head_edit.h"
#include "tests/support/small_heads.h"
#include "tests/formats/editable_tokenizer.h"
#include "tests/support/small_model.h"

static const char *folder;

static void must(bool ok, const struct error *err)
{
    if (!ok) {
        fprintf(stderr, "write_seeds: %s\n", err->text);
        exit(1);
    }
}

// FOLDER/target/name
static void put(const char *target, const char *name, const void *bytes, size_t n)
{
    char *of = xformat("%s/%s", folder, target), *path = xformat("%s/%s", of, name);
    mkdir(of, 0777);
    file_write_bytes(path, bytes, n);
    free(path);
    free(of);
}

#define PUT(target, name, literal) put(target, name, literal, sizeof(literal) - 1)

static void put_text(const char *target, const char *name, const struct text *t)
{
    put(target, name, t->n > 0 ? t->s : "", t->n);
}

// Appends a file of the directory; nothing if it does not exist.
static void add_file(struct text *to, const char *directory, const char *name)
{
    char *path = xformat("%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    if (f != NULL)
        fclose(f);
    if (f != NULL) {
        struct text bytes = checkpoint_bytes(path);
        text_add(to, bytes.s, bytes.n);
        free(bytes.s);
    }
    free(path);
}

static void add_nul(struct text *to)
{
    text_add(to, "", 1);
}

// ---- models

static void put_directory(const char *name, const char *directory, const struct small_model *t)
{
    static const char *const files[] = { "config.json", "generation_config.json", "tokenizer_config.json",
                                         "tokenizer.json", "chat_template.jinja" };
    struct text config = { 0 };
    small_write_hf(directory, t);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        if (i > 0)
            add_nul(&config);
        add_file(&config, directory, files[i]);
    }
    put_text("config", name, &config);
    free(config.s);
    if (t->shards == 0 && t->tokenizer)
        return;
    struct text one = { 0 };
    add_file(&one, directory, "model.safetensors.index.json");
    add_nul(&one);
    add_file(&one, directory, t->shards > 0 ? "model-00001-of-00002.safetensors" : "model.safetensors");
    put_text("safetensors", name, &one);
    free(one.s);
}

static void write_models(void)
{
    const struct small_model small = { .vocab = 270,
                                       .width = 8,
                                       .hidden = 8,
                                       .layers = 1,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 4,
                                       .tied = true,
                                       .tokenizer = true,
                                       .type = BF16 };
    const struct {
        const char *name;
        enum type type;
        enum rope_scaling rope;
        bool tied, bias, tokenizer, new_spelling;
        int shards, head_dim;
    } forms[] = {
        { "small", BF16, ROPE_PLAIN, true, false, true, false, 0, 4 },
        { "linear", F32, ROPE_LINEAR, false, true, false, false, 2, 4 },
        { "llama3", F16, ROPE_LLAMA3, true, false, true, true, 0, 4 },
        { "plain", F16, ROPE_LLAMA3, false, false, false, false, 0, 4 },
        { "q8_0", Q8_0, ROPE_PLAIN, true, false, false, false, 0, 16 },
        { "q4_0", Q4_0, ROPE_PLAIN, false, true, false, false, 0, 16 },
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct small_model t = small;
        const bool quantized = type_is_quantized(forms[i].type);
        t.type = forms[i].type;
        t.rope = forms[i].rope;
        t.tied = forms[i].tied;
        t.bias = forms[i].bias;
        t.tokenizer = forms[i].tokenizer;
        t.new_spelling = forms[i].new_spelling;
        t.shards = forms[i].shards;
        t.head_dim = forms[i].head_dim;
        t.factor = 8, t.low = 1, t.high = 4, t.original = 256;
        if (!t.tokenizer)
            t.vocab = 24;
        if (quantized)
            t.width = t.hidden = 32;
        struct text bytes = { 0 };
        char *directory = test_path(forms[i].name), *gguf = xformat("%s.gguf", directory);
        small_write_gguf(gguf, &t);
        bytes = checkpoint_bytes(gguf);
        put_text("gguf", forms[i].name, &bytes);
        free(bytes.s);
        if (i == 0) {
            struct text same = checkpoint_bytes(gguf);
            put(".", "tiny.gguf", same.s, same.n);
            free(same.s);
        }
        if (!quantized)
            put_directory(forms[i].name, directory, &t);
        free(directory);
        free(gguf);
    }
}

static void put_config(const char *name, const char *files[5])
{
    struct text t = { 0 };
    for (int i = 0; i < 5; i++) {
        if (i > 0)
            add_nul(&t);
        text_puts(&t, files[i]);
    }
    put_text("config", name, &t);
    free(t.s);
}

#define SIZES \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"vocab_size\":96,\"rms_norm_eps\":1e-5"

static void write_configs(void)
{
    put_config("tokens", (const char *[5]){
                             "{" SIZES ",\"eos_token_id\":[1,2],\"bos_token_id\":3,\"speclab_inflated_from\":\"a\"}",
                             "{\"eos_token_id\":[2,4]}",
                             "{\"eos_token\":{\"content\":\"<|im_end|>\"},\"bos_token\":\"<s>\",\"add_bos_token\":true,"
                             "\"chat_template\":[{\"name\":\"default\",\"template\":\"x\"}]}",
                             "{\"added_tokens\":[{\"id\":5,\"content\":\"<|im_end|>\"},{\"id\":6,\"content\":\"<s>\"}],"
                             "\"model\":{\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"Sequence\",\"processors\":"
                             "[{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}]}}",
                             "" });
    put_config("rope", (const char *[5]){
                           "{" SIZES ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":1e5,\"factor\":8,"
                           "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                           "\"original_max_position_embeddings\":64}}",
                           "", "{\"chat_template\":\"<|im_start|>\"}", "", "" });
    put_config("ends", (const char *[5]){ "{" SIZES ",\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12]}",
                                          "{\"eos_token_id\":[13,14,15]}", "{\"eos_token\":\"a\"}",
                                          "{\"model\":{\"vocab\":{\"a\":15,\"b\":16}}}", "" });
    put_config("refused", (const char *[5]){ "{" SIZES ",\"hidden_act\":\"gelu\",\"layer_types\":[\"full_attention\"],"
                                             "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
                                             "[]", "", "", "" });
    put_config("template", (const char *[5]){ "{" SIZES "}", "", "", "", "{% for m in messages %}<|im_start|>" });
}

static void write_safetensors(void)
{
    static const char *const types[] = { "F64", "F32",  "F16", "BF16",    "I64",    "I32",
                                         "U8",  "BOOL", "F4",  "F6_E2M3", "F8_E4M3" };
    struct text header = { 0 }, file = { 0 };
    uint64_t at = 0;
    text_puts(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        static const unsigned bits[] = { 64, 32, 16, 16, 64, 32, 8, 8, 4, 6, 8 };
        const uint64_t bytes = 8 * bits[i] / 8;
        text_printf(&header, ",\"%c\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", 'a' + (int)i,
                    types[i], i % 2 ? "8" : "2,4", (unsigned long long)at, (unsigned long long)(at + bytes));
        at += bytes;
    }
    text_puts(&header, "}");
    const uint64_t n = header.n;
    text_puts(&file,
              "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"one.safetensors\"}}");
    add_nul(&file);
    text_add(&file, (const char *)&n, 8);
    text_add(&file, header.s, header.n);
    for (uint64_t i = 0; i < at; i++)
        text_add(&file, "\1", 1);
    put_text("safetensors", "types", &file);
    PUT("safetensors", "empty", "\0\2\0\0\0\0\0\0\0{}"); // no tensors
    free(file.s);
    free(header.s);
}

// ---- tokenizers

static void put_tokenizer(const char *name, struct json *j, const char *text)
{
    struct text t = { 0 };
    char *s = json_write(j);
    text_puts(&t, s);
    add_nul(&t);
    text_puts(&t, text);
    put_text("tokenizer", name, &t);
    free(t.s);
    free(s);
    json_free(j);
}

static void put_changed(const char *name, const char *path, const char *value);

// Each as the pattern of a Split: syntax common to Oniguruma and PCRE2, and syntax that is refused.
static void write_patterns(void)
{
    static const char *const patterns[] = { "\\\\d+|\\\\s*[^\\\\s\\\\d]",
                                            "(a|b)+?c{1,2}",
                                            "[\\\\p{L}-z]+|\\\\P{Nd}",
                                            "[\\\\D]",
                                            "\\\\x41|\\\\u00e9|\\\\x{1F600}",
                                            "(?=a)",
                                            "[a[b]]",
                                            "a{,2}",
                                            "\\\\pL",
                                            "\\\\q",
                                            "(*F)",
                                            "a++b{2}+",
                                            "\\\\p{^L}",
                                            "\\\\",
                                            "((a*)*)*b",
                                            "(?:" };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        char *value =
                 xformat("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                         "\"behavior\":\"%s\",\"invert\":%s},{\"type\":\"ByteLevel\"}]}",
                         patterns[i], i % 2 ? "Isolated" : "Removed", i % 4 < 2 ? "false" : "true"),
             *name = xformat("pattern_%zu", i);
        put_changed(name, "pre_tokenizer", value);
        free(value);
        free(name);
    }
}

static const char words_text[] = " the cat's aa 12 3\n\n <|x|> \xC3\xA9 e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD  .";

static void put_changed(const char *name, const char *path, const char *value)
{
    struct json *j = editable_json();
    editable_set(j, path, value);
    put_tokenizer(name, j, words_text);
}

static void write_tokenizers(void)
{
    static const char *const published[] = { "tokenizer_l3", "tokenizer_q2" };
    for (size_t i = 0; i < 2; i++) {
        struct text t = { 0 };
        char *directory = xformat("%s/%s", CASES, published[i]);
        add_file(&t, directory, "tokenizer.json");
        add_nul(&t);
        text_puts(&t, words_text);
        put_text("tokenizer", published[i], &t);
        free(t.s);
        free(directory);
    }
    put_tokenizer("made", editable_json(), words_text);
    put_changed("nfc", "normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}");
    put_changed(
        "cut", "pre_tokenizer",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
        "\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":false}]}");
    put_changed(
        "removed", "pre_tokenizer",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Removed\","
        "\"invert\":true},{\"type\":\"ByteLevel\"}]}");
    put_changed(
        "added", "added_tokens",
        "[{\"id\":260,\"content\":\"<|x|>\",\"special\":true,\"lstrip\":true,\"rstrip\":true,\"normalized\":false},"
        "{\"id\":261,\"content\":\"cat\",\"single_word\":true},{\"id\":262,\"content\":\"e\\u0301\",\"normalized\":true}]");
    put_changed("decoder", "decoder", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"}]}");
    put_changed("unknown", "model.unk_token", "\"the\"");
    put_changed("fused", "model.fuse_unk", "true");
    put_changed("ignore_merges", "model.ignore_merges", "true");
    put_changed("twice", "added_tokens", "[{\"id\":260,\"content\":\"x\"},{\"id\":261,\"content\":\"x\"}]");
    put_changed("spaced", "pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}");
    write_patterns();
}

// ---- experiments, prompts, templates, trees

static void write_words(void)
{
    static const struct {
        const char *target, *name, *text;
    } all[] = {
        { "prompts", "shapes",
          "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"one\", \"two\"], \"reference\": [\"a\", \"b\"]}\n"
          "{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\", \"entry_point\": \"f\", \"answer\": \"x\"}\n"
          "{\"question\": \"2 + 2?\", \"answer\": \"4\"}\n\n"
          "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}, "
          "{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"v\"}], \"answer\": \"\"}\n"
          "{\"id\": \"i\", \"input_ids\": [1, 2, 3], \"answer\": [\"y\"]}\n" },
        { "prompts", "one", "{\"prompt\": \"abc\"}\n" },
        { "prompts", "mark", "\xEF\xBB\xBF{\"prompt\": \"abc\", \"id\": 18446744073709551616}\n{\"prompt\": 1.5e3}\n" },
        { "prompts", "list", "[{\"prompt\": \"abc\"}]\n" },
        { "prompts", "gzip", "\x1F\x8B\x08" },
        { "experiment", "all",
          "name: all\ntarget: {model: target.gguf, device: cpu, activations: f32, cache: bf16}\nthreads: 1\n"
          "prompts: {file: prompts.jsonl, limit: 2, per_category: 1, chat: chatml}\n"
          "limits: {new_tokens: 24, context: 448, ignore_end: true, stop: [a, \"b\\n\"]}\nseed: 7\nrepeat: 2\n"
          "record: {trials: true, expected: true}\ncells:\n"
          "  sampling: [{temperature: 0}, {temperature: 0.8, top_p: 0.95, top_k: 40, min_p: 0.05}]\n  batch: [1, 3]\n"
          "  rule: [rejection]\n  drafter:\n    - none\n    - {kind: ngram, longest: 2, tokens: 6}\n"
          "    - {kind: small, model: target.gguf, tokens: 3, pick: greedy}\n" },
        { "experiment", "trees",
          "name: trees\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\ncells:\n  rule: [traversal, spectr]\n"
          "  drafter: [{kind: small, model: target.gguf, widths: [3, 2, 1], pick: sampled, distinct: true}]\n" },
        { "experiment", "file",
          "name: file\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\ncells:\n  rule: rejection\n"
          "  sampling: {temperature: 1, logit_bias: {11: -2.5, 198: 1}}\n"
          "  drafter:\n  - {kind: medusa, weights: target.gguf, tree: tree.json}\n  - {kind: small, model: target.gguf, tokens: 2, "
          "nodes: 8}\n" },
        { "experiment", "inline", "small:model=target.gguf,widths=[4,2],pick=sampled\n" },
        { "experiment", "published", "mc_sim_7b_63\n" },
        { "experiment", "paths", "[[0], [0, 0], [1]]\n" },
        { "experiment", "listed",
          "name: listed\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\nlimits: {stop: \"\\x7F\\x85\\u2028\"}\ncells:\n"
          "  rule: {kind: lenient, lenience: 1.5}\n  drafter: {kind: eagle3, weights: target.gguf, tree: [[0], [0, 0], [1]], "
          "pick: greedy}\n" },
        { "experiment", "quoted", "ngram:longest=\"3\",tokens=8\n" },
        { "experiment", "typical",
          "name: 'typical'\ntarget:\n  model: \"target.gguf\"\nprompts:\n  file: prompts.jsonl\ncells:\n  rule:\n  - {kind: typical}\n"
          "  - {kind: lenient}\n  - {kind: synthetic, rate: 0.5}\n  drafter: [ngram]\n" },
        { "chat", "smollm", "auto" },
        { "chat", "none", "none" },
        { "chat", "unknown", "word" },
        { "database", "nothing", "SELECT 1" },
        { "database", "values", "UPDATE run SET batch = 2 WHERE id % 2 = 0\nDELETE FROM step WHERE step = 1\n" },
        { "database", "schema", "ALTER TABLE step RENAME COLUMN tokens TO x\nPRAGMA user_version = 4\n" },
        { "database", "newer", "PRAGMA user_version = 99" },
        { "database", "others", "PRAGMA application_id = 3" },
        { "database", "views", "DROP VIEW run_summary\n" },
        { "database", "bytes", "!20 1\n!4100 255\n" },
        { "database", "magic", "!0 1\n" },
        { "database", "nulls", "UPDATE sequence SET text = NULL, category = NULL\nUPDATE step SET expected = NULL\n" },
        // fuzz_database allocates a table of this length.
        { "database", "depth", "UPDATE step SET depth = 9223372036854775807\n" },
        { "database", "names", "UPDATE run SET peers = peers || char(0) || 'x' \n" },
        { "database", "differ", "UPDATE sequence SET text = 'x', tokens = '[1]' WHERE id % 3 = 0\n" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct text t = { 0 };
        text_puts(&t, all[i].text);
        if (strcmp(all[i].target, "experiment") == 0) {
            add_nul(&t);
            text_puts(&t, i % 2 ? "[[0], [0, 0], [1], [0, 0, 0]]" : "{\"tree\": [[0], [1], [2], [0, 1]]}");
        }
        if (strcmp(all[i].target, "chat") == 0) {
            add_nul(&t);
            text_puts(&t, "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
                          "Face<|im_end|>\n' }}");
            add_nul(&t);
            text_puts(&t, "hello");
            add_nul(&t);
            text_puts(&t, "more");
        }
        put_text(all[i].target, all[i].name, &t);
        free(t.s);
    }
    PUT("chat", "template", "auto\0{{ messages }} a template that is not supported \xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4");
    PUT("chat", "nothing", "auto\0\0a\0b");
    PUT("chat", "chatml", "chatml\0'You are a helpful assistant.'\0a\0b");
}

// ---- heads

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

// An EAGLE-3 head in the format of `speculators`, with one key of its configuration set.
static void put_eagle3_with(const char *name, const char *key, struct json *value)
{
    struct head_shape s = small_head();
    char *directory = test_path(name);
    s.speculators = true;
    heads_write_eagle3(directory, &s);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "norm_before_residual", json_new_bool(false));
    json_set(head_edit_config(e), key, value);
    for (int i = 0; i < 3 && strcmp(key, "fc_norm") == 0; i++)
        head_edit_floats(e, 0, WIDTH, 1, "fc_norm.%d.weight", i);
    if (strcmp(key, "norm_before_fc") == 0)
        head_edit_floats(e, 0, 3 * WIDTH, 1, "input_norm.weight");
    head_edit_close(e);
    put_head(name, directory);
    free(directory);
}

static struct json *layer_ids(int n)
{
    struct json *list = json_new_array();
    for (int i = 0; i < n; i++)
        json_push(list, json_new_int(i));
    return list;
}

static void write_target(void)
{
    const struct small_model t = { .vocab = VOCAB,
                                   .width = WIDTH,
                                   .hidden = 8,
                                   .layers = LAYERS,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 4,
                                   .type = F32 };
    char *path = test_path("head_target.gguf");
    small_write_gguf(path, &t);
    struct text bytes = checkpoint_bytes(path);
    put(".", "target.gguf", bytes.s, bytes.n);
    free(bytes.s);
    free(path);
}

static void write_heads(void)
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
    put_eagle3_with("fc_norm", "fc_norm", json_new_bool(true));
    put_eagle3_with("norm_before_fc", "norm_before_fc", json_new_bool(true));
    put_eagle3_with("norm_output", "norm_output", json_new_bool(true));
    put_eagle3_with("norm_before_residual", "norm_before_residual", json_new_null());
    put_eagle3_with("layers", "eagle_aux_hidden_state_layer_ids", layer_ids(3));
    put_eagle3_with("most_layers", "eagle_aux_hidden_state_layer_ids", layer_ids(8));
    put_eagle3_with("dflash_config", "dflash_config", json_new_null());
    struct json *inner = json_new_object();
    json_set(inner, "eagle_aux_hidden_state_layer_ids", layer_ids(3));
    put_eagle3_with("eagle_config", "eagle_config", inner);
    free(directory);
}

// ---- packed weights, a database

static void write_packed_caches(void)
{
    struct error err;
    struct model_config c;
    char *path = test_path("packed.gguf"), *beside = xformat("%s.packed", path),
         *from = xformat("%s/tiny.gguf", folder);
    struct text model = checkpoint_bytes(from), t = { 0 };
    file_write_bytes(path, model.s, model.n);
    if (utimensat(AT_FDCWD, path, FUZZ_MODEL_TIME, 0) != 0)
        perror(path);
    must(config_read(path, &c, &err), &err);
    struct weights *w = weights_open(&c, &err);
    must(w != NULL, &err);
    const char *name, *type;
    int64_t rows, width;
    size_t bytes;
    struct packed_matrix p[4];
    int n = 0;
    for (size_t i = 0; n < 4 && weights_list(w, i, &name, &type, &rows, &width, &bytes); i++) {
        struct tensor tensor;
        if (rows > 1 && weights_get(w, name, rows, width, &tensor, &err)) // as in fuzz_packed_cache.c
            p[n++] = (struct packed_matrix){ tensor, tensor.data, bytes < 300 ? bytes : 300 };
    }
    struct packed_cache *k = packed_cache_open(&c, w, 7);
    packed_cache_write(k, p, (size_t)n);
    packed_cache_close(k);
    struct text file = checkpoint_bytes(beside);
    static const char flags[] = { 0, 1, 3, 9, 11, 15, 16 }; // as in fuzz_packed_cache.c
    for (size_t i = 0; i < sizeof(flags); i++) {
        t.n = 0;
        text_add(&t, &flags[i], 1);
        text_add(&t, file.s, file.n);
        char *as = xformat("flags_%d", flags[i]);
        put_text("packed_cache", as, &t);
        free(as);
    }
    weights_close(w);
    config_free(&c);
    free(file.s);
    free(model.s);
    free(t.s);
    free(path);
    free(beside);
    free(from);
}

static void write_database(void)
{
    static const char yaml[] =
        "name: seeds\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: prompts.jsonl, chat: none}\n"
        "limits: {new_tokens: 10, context: 160, ignore_end: true}\nseed: 7\nrecord: {trials: true, expected: true}\n"
        "cells:\n  sampling: [{temperature: 0}, {temperature: 0.8}]\n  batch: [1]\n  rule: [rejection, match]\n"
        "  drafter: [none, {kind: ngram, longest: 1, tokens: 3}]\n";
    static const char conversations[] =
        "{\"id\": \"a\", \"category\": \"chat\", \"turns\": [\"one two one two\", \"again\"]}\n"
        "{\"id\": \"b\", \"category\": \"code\", \"prompt\": \"a b c a b c\"}\n"
        "{\"id\": \"c\", \"category\": \"chat\", \"prompt\": \"x = x + 1\"}\n";
    struct error err;
    const struct small_model t = small_default;
    char *target = test_path("target.gguf"), *prompts = test_path("prompts.jsonl"), *file = test_path("x.yaml"),
         *path = test_path("results.db");
    small_write_gguf(target, &t);
    file_write(prompts, conversations);
    file_write(file, yaml);
    struct store *s = store_open(path, &err);
    must(s != NULL, &err);
    struct experiment *e = experiment_load(file, &err);
    must(e != NULL, &err);
    FILE *nowhere = fopen("/dev/null", "w");
    must(nowhere != NULL && experiment_run(e, s, nowhere, NULL, &err), &err);
    fclose(nowhere);
    experiment_free(e);
    const struct exact_row row = FUZZ_EXACT_ROW;
    double sum[10] = { 1, 2, 3 };
    struct exact_sums sums = { .sum = sum, .n = 10 };
    int64_t id;
    must(store_exact(s, &row, &id, &sums, &err) && store_exact_sums(s, id, &sums, &err), &err);
    store_close(s); // merges the -wal file into the database
    struct text bytes = checkpoint_bytes(path);
    put(".", "results.db", bytes.s, bytes.n);
    put("database", "complete", bytes.s, bytes.n < 65536 ? bytes.n : 65536);
    free(bytes.s);
    free(target);
    free(prompts);
    free(file);
    free(path);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: write_seeds FOLDER\n");
        return 2;
    }
    folder = argv[1];
    mkdir(folder, 0777);
    write_models();
    write_configs();
    write_safetensors();
    write_tokenizers();
    write_words();
    write_heads();
    write_packed_caches();
    write_database();
    test_directory_remove();
    return 0;
}
