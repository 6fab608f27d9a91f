// tokenize.c - `speclab tokenize`: text to token ids and back, in JSON Lines.
#include <stdio.h>
#include <stdlib.h>

#include "core/json.h"
#include "core/memory.h"
#include "commands/command_line.h"
#include "commands/commands.h"
#include "engine/engine.h"
#include "commands/json_lines.h"
#include "models/paths.h"

struct tokenize {
    struct tokenizer *tokenizer;
    struct model_config config;
    bool plain; // --no-special
};

static void print_line(const char *key, struct json *value)
{
    struct json *j = json_new_object();
    json_set(j, key, value);
    char *line = json_write(j);
    printf("%s\n", line);
    free(line);
    json_free(j);
}

static bool encode_line(const struct tokenize *t, const struct json_lines *l, struct error *err)
{
    const struct json *text = json_get(l->object, "text");
    struct ids ids = { 0 };
    struct error reason;
    if (!json_is_text(text))
        return json_lines_fail(l, err, "\"text\": expected a text");
    bool ok = t->plain
                  ? tokenizer_encode(t->tokenizer, json_text(text), json_text_length(text), false, &ids, &reason)
                  : text_encode(t->tokenizer, &t->config, json_text(text), json_text_length(text), true, &ids, &reason);
    if (ok)
        print_line("ids", json_new_ids(ids.id, ids.n));
    else
        json_lines_fail(l, err, "%s", reason.text);
    free(ids.id);
    return ok;
}

static bool decode_line(const struct tokenize *t, const struct json_lines *l, struct error *err)
{
    struct ids ids = { 0 };
    struct decoding hold = { 0 };
    struct text text = { 0 };
    bool ok = json_lines_ids(l, "ids", tokenizer_size(t->tokenizer), &ids, err);
    if (ok) {
        text_puts(&text, "");
        tokenizer_decode(t->tokenizer, ids.id, ids.n, !t->plain, &hold, &text);
        tokenizer_decode_end(&hold, &text);
        print_line("text", json_new_text_n(text.s, text.n));
    }
    free(ids.id);
    free(text.s);
    return ok;
}

// The configuration is read only if the beginning-of-text token matters.
static bool open_model(struct tokenize *t, const char *name, bool decode, struct error *err)
{
    char *path = model_path(name, NULL, err);
    bool ok = path != NULL && (decode || t->plain || config_read(path, &t->config, err));
    if (ok)
        t->tokenizer = tokenizer_open(t->config.path != NULL ? t->config.path : path, err);
    free(path);
    return ok && t->tokenizer != NULL;
}

static const char about[] =
    "Reads {\"text\": \"...\"} lines and prints an {\"ids\": [...]} line for each: the model's tokenization, after the\n"
    "beginning-of-text token if the model has one. Special tokens in the text are recognized. Without FILE.jsonl it\n"
    "reads stdin. Stops at the first invalid line.\n";

static const char examples[] = "  echo '{\"text\": \"Hello, world\"}' | speclab tokenize smollm2-135m-instruct\n"
                               "  speclab tokenize smollm2-135m-instruct ids.jsonl --decode\n";

int command_tokenize(int argc, char **argv)
{
    struct tokenize t = { 0 };
    bool decode = false;
    const struct flag flags[] = {
        { "decode", FLAG_ON, &decode, NULL, "decode instead: {\"ids\"} lines in, {\"text\"} lines out", 0, 0 },
        { "no-special", FLAG_ON, &t.plain, NULL,
          "treat special tokens as ordinary text and add no beginning-of-text token;\n"
          "with --decode, leave special tokens out of the text",
          0, 0 },
        { 0 },
    };
    const struct usage u = { "tokenize", "MODEL [FILE.jsonl]", about, flags, examples, 1, 2 };
    struct error err;
    struct json_lines l = { 0 };
    char **operand;
    int n, status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;

    bool ok = open_model(&t, operand[0], decode, &err) && json_lines_open(&l, n > 1 ? operand[1] : NULL, &err);
    while (ok && !stdout_failed() && json_lines_next(&l, &err))
        ok = decode ? decode_line(&t, &l, &err) : encode_line(&t, &l, &err);
    status = ok && !l.failed ? 0 : command_fail(&u, &err);
    json_lines_close(&l);
    tokenizer_close(t.tokenizer);
    config_free(&t.config);
    return status != 0 ? status : command_done(&u);
}
