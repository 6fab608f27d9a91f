// datastore_command.c - `speclab datastore`: texts as tokens with their suffix array, for the drafter `rest`.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/datastore/suffix_array.h"
#include "commands/datastore/exclude.h"
#include "commands/json_lines.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/datastore.h"
#include "models/paths.h"
#include "tokenizers/tokenizer.h"

struct corpus {
    struct tokenizer *tokenizer;
    struct exclusions exclude;
    struct ids ids; // documents, each ended by the id behind the vocabulary
    uint64_t documents, excluded;
};

static void end_document(struct corpus *c, size_t begin)
{
    if (c->ids.n == begin)
        return;
    ids_add(&c->ids, tokenizer_size(c->tokenizer));
    c->documents++;
}

static bool add_text(struct corpus *c, const char *text, size_t n, struct error *err)
{
    const size_t begin = c->ids.n;
    if (strlen(text) != n)
        return fail(err, "a NUL character, at byte %zu, is no text", strlen(text));
    if (exclusions_match(&c->exclude, text)) {
        c->excluded++;
        return true;
    }
    if (!tokenizer_encode(c->tokenizer, text, n, false, &c->ids, err))
        return false;
    end_document(c, begin);
    return true;
}

struct visit {
    struct corpus *c;
    struct error *err;
};

static bool is_speaker(const char *key) // who speaks, in conversations of {from, value}
{
    return key != NULL && strcmp(key, "from") == 0;
}

static bool add_document(void *self, const char *key, const struct json *text)
{
    const struct visit *v = self;
    return is_speaker(key) || add_text(v->c, json_text(text), json_text_length(text), v->err);
}

static bool is_allowed(void *self, const char *key, const struct json *text)
{
    const struct visit *v = self;
    return is_speaker(key) || !exclusions_match(&v->c->exclude, json_text(text));
}

// A line with token ids is one document, of exactly these tokens; the line's texts tell whether it is excluded.
static bool add_line(struct corpus *c, const struct json_lines *l, struct error *err)
{
    struct error why;
    struct visit v = { c, &why };
    const size_t begin = c->ids.n;
    if (json_get(l->object, "input_ids") == NULL) // each text is one
        return each_text(l->object, add_document, &v) || json_lines_fail(l, err, "%s", why.text);
    if (!each_text(l->object, is_allowed, &v)) {
        c->excluded++;
        return true;
    }
    if (!json_lines_ids(l, "input_ids", tokenizer_size(c->tokenizer), &c->ids, err))
        return false;
    end_document(c, begin);
    return true;
}

static bool add_lines(struct corpus *c, const char *path, struct error *err)
{
    struct json_lines l;
    bool ok = json_lines_open(&l, path, err);
    if (!ok)
        return false;
    while (ok && json_lines_next(&l, err))
        ok = add_line(c, &l, err);
    ok = ok && !l.failed;
    json_lines_close(&l);
    return ok;
}

static bool add_file(struct corpus *c, const char *path, struct error *err)
{
    const size_t n = strlen(path);
    if ((n > 6 && strcmp(path + n - 6, ".jsonl") == 0) || strcmp(path, "-") == 0)
        return add_lines(c, path, err);
    struct mapping m = { 0 };
    struct error why;
    if (!file_map(path, &m, err))
        return false;
    char *text = xmalloc(m.n + 1); // the exclusions read up to a NUL
    memcpy(text, m.at, m.n);
    text[m.n] = '\0';
    const bool ok = add_text(c, text, m.n, &why) || fail(err, "%s: %s", path, why.text);
    free(text);
    file_unmap(&m);
    return ok;
}

// Whether the file is a datastore or does not exist: another file is not replaced.
static bool check_output(const char *path, struct error *err)
{
    struct datastore s = { 0 };
    struct error ignored;
    if (!file_exists(path))
        return true;
    const bool ok = datastore_open(&s, path, &ignored);
    datastore_close(&s);
    return ok || fail(err, "--out: %s exists, and is no datastore; it is not replaced", path);
}

static bool write_store(const struct corpus *c, const char *path, struct error *err)
{
    const int32_t vocab = tokenizer_size(c->tokenizer);
    struct datastore_header h = { .magic = DATASTORE_MAGIC,
                                  .token_bytes = vocab <= UINT16_MAX ? 2 : 4,
                                  .vocab = (uint32_t)vocab,
                                  .tokens = c->ids.n,
                                  .documents = c->documents,
                                  .vocabulary = tokenizer_tokens_hash(c->tokenizer) };
    uint32_t *suffix = xmalloc(c->ids.n * sizeof(*suffix));
    bool ok = suffix_array(c->ids.id, c->ids.n, vocab, suffix, err);
    struct digest *d = digest_begin();
    digest_bytes(d, c->ids.id, c->ids.n * sizeof(*c->ids.id));
    h.text = digest_end(d);
    struct part *to = ok ? part_begin(path, err) : NULL;
    if (to != NULL) {
        part_write(to, &h, sizeof(h));
        for (size_t i = 0; i < c->ids.n && h.token_bytes == 2; i++)
            part_write(to, &(const uint16_t){ (uint16_t)c->ids.id[i] }, 2);
        if (h.token_bytes == 4)
            part_write(to, c->ids.id, c->ids.n * 4);
        part_pad(to, 8);
        part_write(to, suffix, c->ids.n * sizeof(*suffix));
    }
    ok = to != NULL && part_end(to, err);
    free(suffix);
    return ok;
}

static bool make(struct corpus *c, char **file, int n, const struct flag_texts *exclude, const char *out,
                 struct error *err)
{
    int ignored = 0;
    char *path = model_path(file[0], NULL, err);
    c->tokenizer = path != NULL ? tokenizer_open(path, err) : NULL;
    free(path);
    bool ok = c->tokenizer != NULL && check_output(out, err);
    for (int i = 0; i < exclude->n && ok; i++)
        ok = exclusions_read(&c->exclude, exclude->text[i], &ignored, err);
    for (int i = 1; i < n && ok; i++)
        ok = add_file(c, file[i], err);
    return ok && (c->ids.n > 0 || fail(err, "expected texts, found none")) && write_store(c, out, err);
}

static const char about[] =
    "Writes a datastore for the drafter `rest`: the texts as tokens of MODEL's tokenizer, with their suffix array. A .jsonl file\n"
    "has a document in each text of its lines (or `input_ids`, exactly these tokens); any other file is one document. Building\n"
    "needs 18 bytes of memory a token (23 above 65,535 ids), and about a minute for 100 million tokens.\n";

static const char examples[] =
    "  speclab datastore smollm2-135m-instruct data.jsonl --exclude experiments/data/prompts.jsonl --out chat.store\n"
    "  speclab generate smollm2-135m-instruct --drafter rest:datastore=chat.store 'Why is the sky blue?'\n";

int command_datastore(int argc, char **argv)
{
    struct corpus c = { 0 };
    struct flag_texts exclude = { 0 };
    const char *out = NULL;
    const struct flag flags[] = {
        { "out", FLAG_TEXT, &out, "FILE", "the datastore; required", 0, 0 },
        { "exclude", FLAG_TEXTS, &exclude, "FILE.jsonl",
          "leaves out documents that share 13 words in a row with a text of this file;\ncan be given several times", 0,
          0 },
        { 0 },
    };
    const struct usage u = { "datastore", "MODEL FILE...", about, flags, examples, 2, 1000 };
    struct error err;
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    if (out == NULL)
        return usage_fail(&u, "expected --out FILE");
    const bool ok = make(&c, operand, n, &exclude, out, &err);
    if (ok)
        fprintf(stderr, "%s: %zu tokens in %llu documents, %llu excluded\n", out, c.ids.n - (size_t)c.documents,
                (unsigned long long)c.documents, (unsigned long long)c.excluded);
    free(c.ids.id);
    exclusions_free(&c.exclude);
    tokenizer_close(c.tokenizer);
    return ok ? command_done(&u) : command_fail(&u, &err);
}
