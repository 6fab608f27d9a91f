// features.c - `speclab features`: the inputs of a head for training texts, as safetensors for a trainer
// (docs/training.md).
//
// A file has its final name once it is complete on the disk. A folder with files of the same settings is continued.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/features/datastore.h"
#include "commands/features/states.h"
#include "commands/features/target_file.h"
#include "commands/features/texts.h"
#include "core/clock.h"
#include "core/files/input.h"
#include "core/files/mapped.h"
#include "core/files/part.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "models/formats/safetensors.h"
#include "kernels/backend.h"

enum { MAX_TOP_K = 1024 };
enum kind { EAGLE3, EAGLE, MEDUSA, SMALL };
static const char *const kinds[] = { "eagle3", "eagle", "medusa", "small" };

struct features {
    int kind, type;                   // enum kind; 0: f32, 1: bf16
    const char *model, *layers, *out; // model: as given
    long long top_k, shard_tokens, limit, context, threads;
    bool to_stdout;
    struct speclab_target_options options;
    int packed; // enum packed_how

    struct speclab_target *target;
    struct text_reader reader;
    struct texts texts;
    struct text_states states;
    struct json *settings;          // metadata of all shards: keys and texts
    struct part *stream;            // NULL: a folder
    int shards;                     // number of shards so far
    int64_t kept, computed, tokens; // conversations, conversations, tokens computed
    double seconds;                 // seconds that computing and writing took
};

// ---- settings

static bool read_layers(struct features *f, int layers, struct error *err)
{
    struct taps *taps = &f->states.taps;
    if (f->kind == SMALL) {
        *taps = (struct taps){ 0 };
        return true;
    }
    if (f->kind != EAGLE3) {
        *taps = (struct taps){ 1, { FINAL_STATE } };
        return true;
    }
    if (f->layers == NULL) {
        *taps = (struct taps){ 3, { 2, layers / 2, layers - 3 } };
        return layers >= 7 || fail(err, "%s has only %d layers: name those that the head reads with --layers",
                                   f->target->path, layers);
    }
    for (const char *at = f->layers;; at++) {
        char *end = NULL;
        const long id = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (id < 0 || id > layers || (*end != ',' && *end != '\0') || taps->n == MAX_TAPS)
            return fail(err,
                        "--layers \"%s\": expected up to %d numbers from 0 to %d, separated by commas, as in 2,15,27",
                        f->layers, MAX_TAPS, layers);
        taps->layer[taps->n++] = (int)id;
        if (*end == '\0')
            return true;
        at = end;
    }
}

static bool read_setup(struct features *f, struct error *err)
{
    const struct model_shape *s = model_shape(f->target->model);
    if (f->target->backend->varies)
        return fail(err, "%s: its states depend on the rest of a pass, so a drafter would read others; use cuda",
                    f->target->backend->name);
    f->states.target = f->target;
    f->states.type = f->type == 0 ? F32 : BF16;
    f->states.top_k = (int)f->top_k;
    if (f->top_k > f->target->used_vocab)
        return fail(err, "--top-k %lld: the vocabulary of %s has %d tokens", f->top_k, f->target->path,
                    f->target->used_vocab);
    if (f->context > s->context)
        return fail(err, "--context %lld: the context of %s is %d", f->context, f->target->path, s->context);
    if (f->context == 0)
        f->context = s->context;
    return read_layers(f, s->layers, err);
}

// Returns all settings that the features depend on.
static struct json *settings(const struct features *f)
{
    struct text layers = { 0 };
    for (int i = 0; f->kind == EAGLE3 && i < f->states.taps.n; i++)
        text_printf(&layers, "%s%d", i > 0 ? "," : "", f->states.taps.layer[i]);
    struct json *j =
        json_object_of(JSON("format", "speclab-features-1"), JSON("kind", kinds[f->kind]), JSON("model", f->model),
                       JSON("model_hash", hash_text(model_identity(f->target->model)).s));
    if (layers.s != NULL)
        json_add(j, JSON("layers", layers.s));
    json_add(j, JSON("activations", activations_names[model_activations(f->target->model)]),
             JSON("cache", type_facts[f->target->cache].name), JSON("device", f->target->backend->name),
             JSON("data", hash_text(f->reader.hash).s));
    metadata_set(j, "vocab_size", "%d", model_shape(f->target->model)->vocab);
    metadata_set(j, "context", "%lld", f->context);
    metadata_set(j, "top_k", "%lld", f->top_k);
    json_add(j, JSON("type", type_facts[f->states.type].name));
    free(layers.s);
    return j;
}

// ---- files

// Writes to the stream, or to a file of the folder. metadata: taken over.
static bool write_file(struct features *f, const char *path, const struct safetensor *t, size_t n,
                       struct json *metadata, part_put *put, void *context, struct error *err)
{
    if (f->stream == NULL)
        return safetensors_write(path, t, n, metadata, put, context, err);
    return safetensors_stream(f->stream, t, n, metadata, put, context, err) &&
           ((!part_failed(f->stream) && fflush(stdout) == 0) || fail(err, "stdout: cannot be written"));
}

struct earlier { // a file that an earlier run wrote
    struct mapping file;
    struct tensor_list tensors;
    struct json *metadata;
};

// All settings must be equal, except the path of the model, which is identified by its hash.
static bool open_earlier(struct earlier *e, const char *path, const struct json *wanted, struct error *err)
{
    if (!file_map(path, &e->file, err) || !safetensors_read(path, &e->file, 0, &e->tensors, err))
        return false;
    e->metadata = safetensors_metadata(&e->file);
    for (void *at = json_first(wanted); at != NULL; at = json_next(wanted, at)) {
        const char *key = json_key(at), *want = json_text(json_value(at));
        const struct json *have = json_get(e->metadata, key);
        if (strcmp(key, "model") != 0 && (have == NULL || strcmp(json_text(have), want) != 0))
            return fail(err, "%s: made with %s \"%s\", not \"%s\"; use another folder, or remove this one", path, key,
                        json_text(have), want);
    }
    return true;
}

static void close_earlier(struct earlier *e)
{
    json_free(e->metadata);
    tensor_list_free(&e->tensors);
    file_unmap(&e->file);
}

static bool write_target(struct features *f, struct error *err)
{
    const bool layers = f->kind == SMALL;
    char *path = xformat("%s/target.safetensors", f->out != NULL ? f->out : "");
    struct json *metadata = target_file_metadata(f->target, f->model);
    struct target_file t = { 0 };
    struct earlier e = { 0 };
    bool ok;
    if (f->out != NULL && file_exists(path)) {
        ok = open_earlier(&e, path, metadata, err) &&
             (layers == (e.tensors.n > OUTER_TENSORS) ||
              fail(err, "%s: %s; use another folder, or remove this one", path,
                   layers ? "there are no layers, which --kind small needs" : "made with --kind small"));
        close_earlier(&e);
        json_free(metadata);
    } else if ((ok = target_file_begin(&t, f->target, layers, err))) {
        ok = write_file(f, path, t.tensor, t.n, metadata, target_file_put, &t, err);
    } else
        json_free(metadata);
    target_file_end(&t);
    free(path);
    return ok;
}

// If the folder has the shard, skips its conversations. A shard with other settings, or with other conversations, is an
// error.
static bool keep_shard(struct features *f, const char *path, struct error *err)
{
    struct earlier e = { 0 };
    int64_t n = 0;
    bool ok = open_earlier(&e, path, f->settings, err);
    for (size_t i = 0; i < e.tensors.n; i++) {
        const struct safetensor *t = &e.tensors.at[i];
        if (strcmp(t->name, "offsets") == 0 && strcmp(t->dtype, "I64") == 0 && t->dims == 1 && t->dim[0] > 1)
            n = t->dim[0] - 1;
    }
    ok = ok && (n > 0 || fail(err, "%s: expected a tensor offsets of 64-bit integers, found none", path));
    const char *first = json_text(json_get(e.metadata, "first"));
    if (ok && strtoll(first, NULL, 10) != f->reader.read)
        ok = fail(err, "%s: expected a shard that begins with conversation %lld, found %s; remove it", path,
                  (long long)f->reader.read, first);
    close_earlier(&e);
    f->kept += n;
    return ok && text_reader_skip(&f->reader, n, err);
}

static bool write_shard(struct features *f, const char *path, struct error *err)
{
    const struct texts *t = &f->texts;
    const struct text_states *s = &f->states;
    const int64_t n = t->offset[t->n], width = (int64_t)s->taps.n * model_shape(f->target->model)->width;
    const struct safetensor ids = described("input_ids", "I32", sizeof(*t->id), n, 0, t->id),
                            mask = described("loss_mask", "U8", sizeof(*t->mask), n, 0, t->mask);
    const struct safetensor states = s->type == BF16 ? described("states", "BF16", sizeof(uint16_t), n, width, s->state)
                                                     : described("states", "F32", sizeof(float), n, width, s->state);
    const struct safetensor tensors[] = {
        described("offsets", "I64", sizeof(*t->offset), t->n + 1, 0, t->offset), // ordered by their alignment
        described("top_ids", "I32", sizeof(*s->top_id), n, s->top_k, s->top_id),
        described("top_p", "F32", sizeof(*s->top_p), n, s->top_k, s->top_p),
        ids,
        width > 0 ? states : mask,
        mask,
    };
    struct json *metadata = json_clone(f->settings);
    metadata_set(metadata, "first", "%lld", (long long)t->first);
    return write_file(f, path, tensors, width > 0 ? 6 : 5, metadata, NULL, NULL, err);
}

static bool compute_shard(struct features *f, const char *path, const volatile int *stop, bool *more, struct error *err)
{
    const double from = clock_seconds();
    if (!text_reader_next(&f->reader, f->shard_tokens, &f->texts, err))
        return false;
    *more = f->texts.n > 0;
    if (!*more)
        return true;
    if (!text_states_compute(&f->states, &f->texts, stop, err) || !write_shard(f, path, err))
        return false;
    const int64_t tokens = f->texts.offset[f->texts.n];
    const double seconds = clock_seconds() - from;
    f->computed += f->texts.n;
    f->tokens += tokens;
    f->seconds += seconds;
    fprintf(stderr, "shard %d: %d conversations, %lld tokens, %.0f tokens/s\n", f->shards, f->texts.n,
            (long long)tokens, (double)tokens / seconds);
    return true;
}

static bool write_all(struct features *f, struct error *err)
{
    const volatile int *stop = interrupt_catch();
    bool ok = write_target(f, err);
    for (bool more = true; ok && more; f->shards++) {
        char *path = xformat("%s/features-%05d.safetensors", f->out != NULL ? f->out : "", f->shards);
        ok = f->out != NULL && file_exists(path) ? keep_shard(f, path, err) : compute_shard(f, path, stop, &more, err);
        free(path);
    }
    if (ok && f->kept + f->computed == 0)
        ok = fail(err, "%s: there are no conversations", f->reader.lines.lines.name);
    if (ok && f->stream != NULL) {
        part_zeros(f->stream, sizeof(uint64_t));
        ok = part_end(f->stream, err);
        f->stream = NULL;
    }
    return ok;
}

static void print_sum(const struct features *f)
{
    const int64_t n = f->kept + f->computed;
    fprintf(stderr, "%lld conversations", (long long)n);
    if (f->kept > 0)
        fprintf(stderr, ", of which %lld were there", (long long)f->kept);
    if (f->reader.cut > 0)
        fprintf(stderr, ", %lld cut at %lld tokens", (long long)f->reader.cut, f->context);
    if (f->tokens > 0)
        fprintf(stderr, "; %lld tokens computed, %.0f tokens/s", (long long)f->tokens, (double)f->tokens / f->seconds);
    fprintf(stderr, " (%s, activations %s, cache %s)\n", f->target->backend->describe(f->target->backend),
            activations_names[model_activations(f->target->model)], type_facts[f->target->cache].name);
}

// ---- the command

static const char about[] =
    "Runs the target over training texts and writes what a head reads of each token: the hidden states, to the bit those of\n"
    "drafting, and the target's most probable next tokens. DATA.jsonl: conversations with input_ids and loss_mask, as\n"
    "`speclab distill` writes them. The output is safetensors (docs/training.md): target.safetensors with the embedding, the LM\n"
    "head and the final norm, and shards features-00000.safetensors, .. of whole conversations, in a folder (--out) or end to\n"
    "end on stdout (--stream), each after its number of bytes. A folder that lacks shards is continued.\n\n"
    "With --datastore it writes a datastore for the drafter `rest` instead: the texts as tokens of MODEL's tokenizer, with their\n"
    "suffix array. A .jsonl file has a document in each text of its lines (or `input_ids`, exactly these tokens); any other file\n"
    "is one document. Building needs 18 bytes of memory a token (23 above 65,535 ids), and about a minute for 100 million tokens.\n";

static const char examples[] =
    "  speclab features smollm2-135m-instruct texts.jsonl --out features\n"
    "  speclab features smollm2-135m-instruct texts.jsonl --kind medusa --type bf16 --stream | train.py\n"
    "  speclab features smollm2-135m-instruct data.jsonl --datastore chat.store --exclude experiments/data/prompts.jsonl\n"
    "  speclab generate smollm2-135m-instruct --drafter rest:datastore=chat.store 'Why is the sky blue?'\n";

static const struct mode modes[] = {
    { "datastore", "exclude" },
    { NULL, "kind layers top-k type shard-tokens limit context out stream threads device activations cache packed" },
};
enum { DATASTORE }; // index of modes

static bool open_output(struct features *f, struct error *err)
{
    f->settings = settings(f);
    if (f->out == NULL)
        f->stream = part_onto(stdout, "stdout");
    char *inside = xformat("%s/", f->out != NULL ? f->out : ".");
    const bool ok = file_make_folders(inside);
    free(inside);
    return ok || fail(err, "%s: the folder cannot be created", f->out);
}

static int run(struct features *f, const struct usage *u, char **operand)
{
    struct error err;
    f->model = operand[0];
    f->options.chat = "none";
    f->options.threads = (int)f->threads;
    f->options.packed_cache = f->packed;
    f->options.log = command_log;
    f->target = speclab_target_open(operand[0], &f->options, &err);
    bool ok = f->target != NULL && read_setup(f, &err) &&
              text_reader_open(&f->reader, operand[1], model_shape(f->target->model)->vocab, (int)f->context, f->limit,
                               &err) &&
              open_output(f, &err) && text_states_open(&f->states, TARGET_ROWS, &err) && write_all(f, &err);
    if (ok)
        print_sum(f);
    if (!ok && f->to_stdout && stdout_failed()) // a closed pipe ends quietly
        return command_done(u);
    return ok ? command_done(u) : command_fail(u, &err);
}

int command_features(int argc, char **argv)
{
    struct features f = { .top_k = 32, .shard_tokens = 32768 };
    struct flag_texts exclude = { 0 };
    const char *datastore = NULL;
    struct error err;
    const struct flag flags[] = {
        { "kind", FLAG_CHOICE, &f.kind, "eagle3|eagle|medusa|small",
          "of the head: streams entering three layers, or the final\nnormed state; small: a draft model made of the target's\n"
          "layers, which are written instead; default: eagle3",
          0, 0 },
        { "layers", FLAG_TEXT, &f.layers, "I,J,..", "layers whose input an EAGLE-3 head reads; default: 2, L/2, L-3", 0,
          0 },
        { "top-k", FLAG_INT, &f.top_k, "K", "probabilities of the target for each token; default: 32", 1, MAX_TOP_K },
        { "type", FLAG_CHOICE, &f.type, "f32|bf16", "element type of the states; default: f32", 0, 0 },
        { "shard-tokens", FLAG_INT, &f.shard_tokens, "N", "tokens of a shard, at least; default: 32768", 1, 1 << 24 },
        { "limit", FLAG_INT, &f.limit, "N", "the first N conversations; default: all", 1, INT32_MAX },
        { "context", FLAG_INT, &f.context, "N", "longer texts are cut at the end; default: the model's", 1, 1 << 24 },
        { "out", FLAG_TEXT, &f.out, "DIR", "the folder to write to, or to continue", 0, 0 },
        { "stream", FLAG_ON, &f.to_stdout, NULL, "write to stdout instead", 0, 0 },
        { "threads", FLAG_INT, &f.threads, "N", "number of threads; default: one for each processor", 1, MAX_THREADS },
        PRECISION_FLAGS(f.options),
        PACKED_FLAG(f.packed),
        { "datastore", FLAG_TEXT, &datastore, "FILE", "write a datastore of all texts to this file", 0, 0 },
        { "exclude", FLAG_TEXTS, &exclude, "FILE.jsonl",
          "with --datastore: leaves out documents that share 13 words\nin a row with a text of this file; can be given several\ntimes",
          0, 0 },
        { 0 },
    };
    const struct usage u = { "features", "MODEL DATA.jsonl...", about, flags, examples, 2, 1000 };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    const int mode = usage_mode(&u, modes);
    if (mode < 0)
        return 2;
    if (mode == DATASTORE)
        return datastore_make(operand, n, exclude.text, exclude.n, datastore, &err) ? command_done(&u)
                                                                                    : command_fail(&u, &err);
    if (n > 2)
        return usage_fail(&u, "unexpected argument \"%s\": several files go with --datastore", operand[2]);
    if (f.to_stdout == (f.out != NULL))
        return usage_fail(&u, "expected either --out DIR or --stream");
    if (f.to_stdout && isatty(STDOUT_FILENO))
        return usage_fail(&u, "--stream writes binary data: redirect stdout to a program or a file");
    if (f.layers != NULL && f.kind != EAGLE3)
        return usage_fail(&u, "--layers is for --kind eagle3, not %s", kinds[f.kind]);
    status = run(&f, &u, operand);
    part_abandon(f.stream);
    json_free(f.settings);
    texts_free(&f.texts);
    text_states_close(&f.states);
    text_reader_close(&f.reader);
    speclab_target_close(f.target);
    return status;
}
