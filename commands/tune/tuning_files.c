// tuning_files.c - the temporary files of a tuning: prompts, experiments, a database.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/temporary_folder.h"
#include "commands/tune/tuning.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "formats/file.h"
#include "kernels/backend.h"

// ---- files

// Whether some drafter has an option of this name that is a path, or a tree, which may be in a file.
static bool names_a_file(const char *key)
{
    for (const struct drafter_type *const *t = drafter_types; *t != NULL; t++)
        for (const struct option *o = (*t)->options; o != NULL && o->name != NULL; o++)
            if (strcmp(o->name, key) == 0 && o->type == OPTION_PATH)
                return true;
    return strcmp(key, "tree") == 0;
}

void tuning_make_absolute(struct settings *s)
{
    for (int i = 0; i < s->n; i++) {
        struct settings *item = s->item[i];
        tuning_make_absolute(item);
        char *path = s->kind == SETTINGS_MAP && item->kind == SETTINGS_SCALAR && names_a_file(s->key[i])
                         ? realpath(item->text, NULL)
                         : NULL;
        if (path != NULL) {
            free(item->text);
            item->text = path;
        }
    }
}

static bool write_text(const char *path, const char *text, size_t n, struct error *err)
{
    struct part *p = part_begin(path, err);
    if (p == NULL)
        return false;
    part_write(p, text, n);
    return part_end(p, err);
}

// The beginning of every line that is not blank; the caller frees it.
static const char **lines_of(const char *text, int *n)
{
    const char **line = NULL;
    for (*n = 0; *text != '\0'; text += strcspn(text, "\n"), text += *text == '\n') {
        if (strspn(text, " \t\r") >= strcspn(text, "\n"))
            continue;
        line = xrealloc(line, ((size_t)*n + 1) * sizeof(*line));
        line[(*n)++] = text;
    }
    return line;
}

// A file may be sorted by category, so lines are taken evenly from all of it.
static void set_digest(struct tuning *u, const struct text *prompts)
{
    const struct setting_tune *t = u->t;
    const char *const texts[] = { u->model, u->chat, t->rule, t->sampling, t->precision.device };
    const long long numbers[] = { t->limit,          t->tokens, t->context, t->batch, t->precision.activations,
                                  t->precision.cache };
    struct digest *d = digest_begin();
    digest_text_n(d, prompts->s, prompts->n);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        digest_text(d, texts[i]);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        digest_int(d, numbers[i]);
    hash_write(digest_end(d), u->digest);
    u->digest[8] = '\0';
}

bool tuning_divide_prompts(struct tuning *u, struct error *err)
{
    struct text all = { 0 }, half[2] = { { 0 } };
    text_puts(&all, "");
    if (!read_all(u->prompts, &all, err))
        return false;
    set_digest(u, &all);
    int lines;
    const char **line = lines_of(all.s, &lines);
    const long long taken = lines < 2 * u->t->limit ? lines : 2 * u->t->limit;
    for (long long i = 0; i < taken; i++) {
        const char *at = line[i * lines / taken];
        text_add(&half[i % 2], at, strcspn(at, "\n"));
        text_puts(&half[i % 2], "\n");
        u->n_prompts[i % 2]++;
    }
    bool ok = lines > 0 || fail(err, "%s: expected prompts, found an empty file", u->prompts);
    for (int i = 0; i < 2 && ok; i++) {
        const struct text *from = half[i].n > 0 ? &half[i] : &half[0];
        u->file[i] = xformat("%s/%s.jsonl", u->folder, i == 0 ? "probed" : "confirmed");
        ok = write_text(u->file[i], from->s, from->n, err);
    }
    for (int i = 0; i < 2; i++)
        free(half[i].s);
    free(all.s);
    free(line);
    return ok;
}

// ---- an experiment

static void put(struct settings *to, const char *key, const char *value)
{
    settings_put(to, key, settings_scalar(value));
}

static void put_int(struct settings *to, const char *key, long long value)
{
    char *text = xformat("%lld", value);
    put(to, key, text);
    free(text);
}

struct settings *tuning_experiment(const struct tuning *u, const char *name, const char *prompts, bool trials,
                                   struct settings *drafters)
{
    const struct setting_tune *t = u->t;
    struct settings *s = settings_map(), *target = settings_map(), *from = settings_map(), *limits = settings_map(),
                    *record = settings_map(), *cells = settings_map();
    put(s, "name", name);
    put(target, "model", u->model);
    put(target, "device", t->precision.device != NULL ? t->precision.device : "cpu");
    put(target, "activations", activations_names[t->precision.activations]);
    put(target, "cache", kv_type_names[t->precision.cache]);
    settings_put(s, "target", target);
    put_int(s, "threads", t->threads);
    put(from, "file", prompts);
    put(from, "chat", u->chat);
    settings_put(s, "prompts", from);
    put_int(limits, "new_tokens", t->tokens);
    put_int(limits, "context", t->context);
    settings_put(s, "limits", limits);
    if (trials) {
        put(record, "trials", "true");
        settings_put(s, "record", record);
    } else {
        settings_free(record);
    }
    settings_put(cells, "sampling", settings_copy(u->sampling));
    put_int(cells, "batch", t->batch);
    settings_put(cells, "rule", settings_copy(u->rule));
    settings_put(cells, "drafter", drafters);
    settings_put(s, "cells", cells);
    return s;
}

bool tuning_write(const char *path, const char *comment, struct settings *s, struct error *err)
{
    struct text t = { 0 };
    text_puts(&t, comment);
    for (int i = 0; i < s->n; i++) {
        text_printf(&t, "%s: ", s->key[i]);
        settings_write(s->item[i], &t);
        text_puts(&t, "\n");
    }
    const bool ok = write_text(path, t.s, t.n, err);
    free(t.s);
    settings_free(s);
    return ok;
}

struct settings *tuning_drafters(void)
{
    struct settings *list = settings_list(), *none = settings_map();
    put(none, "kind", "none");
    settings_append(list, none);
    return list;
}

// ---- their folder

bool tuning_open_folder(struct tuning *u, struct error *err)
{
    u->folder = temporary_folder("tune", err);
    return u->folder != NULL;
}

void tuning_remove_folder(struct tuning *u)
{
    static const char *const names[] = { "probed.jsonl", "confirmed.jsonl", "tune-probe.yaml", "tune-confirm.yaml",
                                         "tune.db",      "tune.db-wal",     "tune.db-shm" };
    for (size_t i = 0; u->folder != NULL && i < sizeof(names) / sizeof(*names); i++) {
        char *path = xformat("%s/%s", u->folder, names[i]);
        unlink(path);
        free(path);
    }
    if (u->folder != NULL)
        rmdir(u->folder);
    free(u->folder);
}
