// fuzz_prompts.c - arbitrary bytes as a file of prompts, with and without answers, as lines of token ids, and as training texts.
//
// reader: engine/prompts.c core/files/json_lines.c commands/texts.c core/json.c core/files/input.c
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "commands/texts.h"
#include "core/files/json_lines.h"
#include "engine/prompts.h"
#include "tests/fuzz/fuzz.h"
#include "models/tokenizers/tokenizer.h"

static const struct fuzz_file files[] = { { "prompts.jsonl", FUZZ_JSON_LINES }, { NULL, FUZZ_TEXT } };
static const char words[] =
    "turns  messages  input_ids  prompt  question  role  content  system  user  assistant  question_id  id  task_id  "
    "category  answer  reference  entry_point  ids  text  loss_mask  \xC3\xA4";

static void check(const struct prompts *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct prompt *q = &p->prompt[i];
        insist(q->line > 0 && *q->id != '\0' && q->n_turns >= 1 && q->n_turns <= MAX_TURNS);
        insist((q->ids != NULL) == (q->n_ids > 0) && (q->ids == NULL) == (q->turn != NULL));
        for (int k = 0; k < q->n_turns && q->turn != NULL; k++)
            insist(*q->turn[k] != '\0');
        insist(!p->answered || (q->n_answers >= 1 && q->n_answers <= q->n_turns));
        for (int k = 0; k < i; k++)
            insist(strcmp(p->prompt[k].id, q->id) != 0);
    }
}

static void use_prompts(const char *path)
{
    struct prompts p;
    struct error err = { "" };
    int all = 0;
    for (int limit = 0; limit < 2; limit++)
        for (int per_category = 0; per_category < 2; per_category++) {
            if (!prompts_read(path, limit, per_category, &p, &err)) {
                insist(strncmp(err.text, path, strlen(path)) == 0 && all == 0);
                continue;
            }
            insist(all == 0 || p.n <= all);
            insist(limit == 0 || p.n <= limit);
            all = all == 0 ? p.n : all;
            check(&p);
            prompts_free(&p);
        }
    if (prompts_read_answered(path, &p, &err)) {
        insist(p.n == all);
        check(&p);
        prompts_free(&p);
    }
}

static void use_lines(const char *path)
{
    struct json_lines l;
    struct error err = { "" };
    struct ids ids = { 0 };
    insist(json_lines_open(&l, path, &err));
    long line = 0;
    while (json_lines_next(&l, &err)) {
        insist(l.lines.number > line && json_is_object(l.value));
        line = l.lines.number;
        char *text = json_write(l.value);
        struct json *again = json_parse(text, strlen(text), "again", &err);
        insist(again != NULL);
        char *twice = json_write(again);
        insist(strcmp(text, twice) == 0);
        json_free(again);
        free(text);
        free(twice);
        const size_t before = ids.n;
        if (!json_read_ids(json_get(l.value, "input_ids"), "\"input_ids\"", 100, &ids, &err))
            insist(!json_lines_place(&l, &err) && strncmp(err.text, path, strlen(path)) == 0);
        for (size_t i = before; i < ids.n; i++)
            insist(ids.id[i] >= 0 && ids.id[i] < 100);
    }
    insist(!l.failed || strncmp(err.text, path, strlen(path)) == 0);
    json_lines_close(&l);
    free(ids.id);
}

// Shards of one, and of at least 3 tokens, hold the same conversations, of at most 5 tokens each.
static void use_texts(const char *path)
{
    enum { VOCAB = 100, CONTEXT = 5 };
    int64_t tokens[2] = { 0 }, conversations[2] = { 0 };
    bool whole[2];
    for (int pass = 0; pass < 2; pass++) {
        struct text_reader r;
        struct texts t = { 0 };
        struct error err = { "" };
        bool ok = text_reader_open(&r, path, VOCAB, CONTEXT, 0, &err);
        while (ok && (ok = text_reader_next(&r, pass == 0 ? 1 : 3, &t, &err)) && t.n > 0) {
            insist(t.first == conversations[pass] && t.offset[0] == 0);
            for (int i = 0; i < t.n; i++)
                insist(t.offset[i + 1] > t.offset[i] && t.offset[i + 1] - t.offset[i] <= CONTEXT);
            for (int64_t i = 0; i < t.offset[t.n]; i++)
                insist(t.id[i] >= 0 && t.id[i] < VOCAB && t.mask[i] <= 1);
            conversations[pass] += t.n;
            tokens[pass] += t.offset[t.n];
        }
        insist(ok || strncmp(err.text, path, strlen(path)) == 0);
        whole[pass] = ok;
        texts_free(&t);
        text_reader_close(&r);
    }
    insist(whole[0] == whole[1] && (!whole[0] || (tokens[0] == tokens[1] && conversations[0] == conversations[1])));
}

static size_t walk(const struct json *j)
{
    size_t n = 1;
    for (size_t i = 0; json_is_array(j) && i < json_count(j); i++)
        n += walk(json_at(j, i));
    for (void *at = json_first(j); at != NULL; at = json_next(j, at)) {
        insist(json_get(j, json_key(at)) == json_value(at));
        n += walk(json_value(at));
    }
    insist(json_is_number(j) || json_number(j) == 0);
    insist(json_is_bool(j) || !json_bool(j));
    insist(json_is_text(j) || json_text_length(j) == 0);
    return n;
}

// The whole input as one JSON value.
static void use_json(const char *path)
{
    struct error err = { "" };
    struct json *j = json_read(path, &err), *again;
    insist(j != NULL || strncmp(err.text, path, strlen(path)) == 0);
    if (j == NULL)
        return;
    char *text = json_write(j);
    again = json_parse(text, strlen(text), "again", &err);
    insist(again != NULL && walk(again) == walk(j));
    json_free(again);
    json_free(j);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    char *path = fuzz_path(files[0].name);
    fuzz_write(files[0].name, input, n);
    if (n > 0) {
        use_prompts(path);
        use_lines(path);
        use_texts(path);
        use_json(path);
    }
    free(path);
    return 0;
}

FUZZ_MUTATOR(files, words)
