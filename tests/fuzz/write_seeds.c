// write_seeds.c - writes the seed inputs of the fuzz targets with the tests' file writers: write_seeds FOLDER
//
// FOLDER/NAME/* are inputs of fuzz_NAME; FOLDER/{tiny.gguf,target.gguf,results.db} are files that some targets need.
#include "tests/fuzz/write_seeds.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/experiment.h"
#include "tests/fuzz/fuzz.h"
#include "models/config.h"
#include "experiments/replay/packed_rows.h"
#include "models/packed_cache.h"
#include "models/weights.h"
#include "results/store.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static const char *folder;

static void must(bool ok, const struct error *err)
{
    if (!ok) {
        fprintf(stderr, "write_seeds: %s\n", err->text);
        exit(1);
    }
}

void put(const char *target, const char *name, const void *bytes, size_t n)
{
    char *of = xformat("%s/%s", folder, target), *path = xformat("%s/%s", of, name);
    mkdir(of, 0777);
    file_write_bytes(path, bytes, n);
    free(path);
    free(of);
}

void put_text(const char *target, const char *name, const struct text *t)
{
    put(target, name, t->n > 0 ? t->s : "", t->n);
}

void add_file(struct text *to, const char *directory, const char *name)
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

void add_nul(struct text *to)
{
    text_add(to, "", 1);
}

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
    struct packed_matrix p[4];
    int n = 0;
    for (size_t i = 0; n < 4 && i < w->n; i++) {
        const struct weight *t = &w->weight[i];
        struct tensor tensor;
        if (t->tensor.rows > 1 &&
            weights_get(w, t->name, t->tensor.rows, t->tensor.width, &tensor, &err)) // as in fuzz_packed_cache.c
            p[n++] = (struct packed_matrix){ tensor, tensor.data, t->bytes < 300 ? t->bytes : 300 };
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

// As fuzz_rows.c has them: a draft of a sampled token and one below it, its rows, compressed and not.
static void write_rows(void)
{
    enum { VOCAB = 16 };
    static const char draft[] = { 2, 0, 0, 0, 3, 0, 1, 5, 1, 0 }; // nodes - 1; token, parent, proposal of each
    static const int32_t child[] = { 3, 5 };
    float p[VOCAB];
    struct text rows = { 0 }, t = { 0 };
    size_t bytes;
    for (int i = 0; i < VOCAB; i++)
        p[i] = 1.0f / VOCAB;
    for (int i = 0; i < 4; i++) // p of three nodes, q of the root
        row_pack(p, VOCAB, i < 2 ? ROWS_FULL : 4, child, 2, (struct drawn){ -1, -1 }, &rows);
    void *packed = rows_pack(&rows, VOCAB, &bytes);
    for (int compress = 0; compress < 2; compress++) {
        const char flags = (char)compress;
        t.n = 0;
        text_add(&t, &flags, 1);
        text_add(&t, draft, sizeof(draft));
        text_add(&t, compress ? rows.s : packed, compress ? rows.n : bytes);
        put_text("rows", compress ? "raw" : "packed", &t);
    }
    free(packed);
    free(rows.s);
    free(t.s);
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
    write_rows();
    write_database();
    test_directory_remove();
    return 0;
}
