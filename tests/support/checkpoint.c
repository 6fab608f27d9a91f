#include "tests/support/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "tests/support/check.h"

struct checkpoint checkpoint_open(const char *path)
{
    struct checkpoint o = { .weights = NULL };
    struct error err;
    assert_ok(config_read(path, &o.config, &err) && (o.weights = weights_open(&o.config, &err)) != NULL, err);
    return o;
}

void checkpoint_close(struct checkpoint *o)
{
    weights_close(o->weights);
    config_free(&o->config);
}

struct tensor checkpoint_tensor(const struct checkpoint *o, const char *name, int64_t rows, int64_t width)
{
    struct tensor t = { 0 };
    struct error err;
    assert_ok(weights_get(o->weights, name, rows, width, &t, &err), err);
    return t;
}

void assert_error_mentions(const struct error *err, const char *path, const char *words)
{
    print_message("%s\n", err->text);
    if (strstr(err->text, path) == NULL || strstr(err->text, words) == NULL)
        fail_msg("expected an error about %s with \"%s\"", path, words);
}

bool fault_next(char **rest, struct fault *to)
{
    char *one = strtok_r(*rest, ";", rest);
    if (one == NULL)
        return false;
    to->key = one + strspn(one, " ");
    to->value = strchr(one, '=');
    to->words = strstr(one, " (");
    if (to->words != NULL) {
        *to->words = '\0';
        to->words += 2;
        *strrchr(to->words, ')') = '\0';
        for (char *at = to->words; (at = strchr(at, '\'')) != NULL;)
            *at = '"';
    }
    *to->value++ = '\0';
    return true;
}

struct text checkpoint_bytes(const char *path)
{
    struct text t = { 0 };
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), f)) != 0;)
        text_add(&t, chunk, n);
    fclose(f);
    return t;
}
