// test_declared_tokens.c - tokens that stand in other files than tokenizer.json are what transformers' AutoTokenizer makes of them, or
// refused by name.
//
// Goldens: tests/cases/make_added_tokens.py.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

static void write_files(const char *directory, const struct json *files)
{
    DIR *d = opendir(directory);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char *old = xformat("%s/%s", directory, e->d_name);
        if (e->d_name[0] != '.')
            assert_int_equal(unlink(old), 0);
        free(old);
    }
    if (d != NULL)
        closedir(d);
    else
        assert_int_equal(mkdir(directory, 0777), 0);
    for (void *at = json_first(files); at != NULL; at = json_next(files, at)) {
        char *path = xformat("%s/%s", directory, json_key(at)), *text = json_write(json_value(at));
        file_write(path, text);
        free(path);
        free(text);
    }
}

static void check_ids(const struct tokenizer *t, const char *name, const char *text, const struct json *expected)
{
    struct ids ids = { 0 };
    assert_ok(tokenizer_encode(t, text, strlen(text), true, &ids, &err), err);
    bool same = ids.n == json_count(expected);
    for (size_t i = 0; i < ids.n && same; i++)
        same = ids.id[i] == json_int(json_at(expected, i));
    if (!same) {
        struct json *found = json_new_ids(ids.id, ids.n);
        char *shown = json_write(found), *wanted = json_write(expected);
        fail_msg("%s: \"%s\": %s, not %s", name, text, shown, wanted);
    }
    free(ids.id);
}

static void check_special(const struct tokenizer *t, const char *name, const struct json *ids,
                          const struct json *special)
{
    for (size_t i = 0; i < json_count(ids); i++)
        for (size_t k = 0; k < json_count(json_at(ids, i)); k++) {
            const int64_t id = json_int(json_at(json_at(ids, i), k));
            bool wanted = false;
            for (size_t s = 0; s < json_count(special); s++)
                wanted |= json_int(json_at(special, s)) == id;
            if (tokenizer_is_special(t, (int32_t)id) != wanted)
                fail_msg("%s: %lld is %s special token", name, (long long)id, wanted ? "no" : "a");
        }
}

static void check_refusal(const char *name, const char *text, const struct json *words)
{
    for (size_t i = 0; i < json_count(words); i++)
        if (strstr(text, json_text(json_at(words, i))) == NULL)
            fail_msg("%s: \"%s\" does not say %s", name, text, json_text(json_at(words, i)));
}

static void check_directory(const char *directory, const struct json *j)
{
    const char *name = json_text(json_get(j, "name"));
    const struct json *words = json_get(j, "refused");
    struct model_config c;
    write_files(directory, json_get(j, "files"));
    const bool configured = config_read_text(directory, &c, &err);
    if (!json_is_null(words)) {
        if (configured)
            fail_msg("%s: the configuration was read", name);
        check_refusal(name, err.text, words);
    } else {
        assert_ok(configured, err);
        config_free(&c);
    }
    struct tokenizer *t = tokenizer_open(directory, &err);
    if (!json_is_null(words)) {
        if (t != NULL)
            fail_msg("%s: the tokenizer was opened", name);
        check_refusal(name, err.text, words);
        return;
    }
    assert_ok(t != NULL, err);
    for (size_t i = 0; i < json_count(json_get(j, "texts")); i++)
        check_ids(t, name, json_text(json_at(json_get(j, "texts"), i)), json_at(json_get(j, "ids"), i));
    check_special(t, name, json_get(j, "ids"), json_get(j, "special"));
    tokenizer_close(t);
}

TEST(ids_and_special_tokens_are_those_of_AutoTokenizer)
{
    FILE *f = fopen(CASES "/added_tokens.jsonl", "re");
    char *line = NULL, *directory = test_path("declared");
    size_t capacity = 0;
    ssize_t n;
    int directories = 0;
    assert_non_null(f);
    while ((n = getline(&line, &capacity, f)) > 0) {
        struct json *j = json_parse(line, (size_t)n, "added_tokens.jsonl", &err);
        assert_ok(j != NULL, err);
        check_directory(directory, j);
        json_free(j);
        directories++;
    }
    assert_true(directories >= 40);
    fclose(f);
    free(line);
    free(directory);
}

// A byte-level tokenizer of five letters, with these files beside it.
static void write_text(const char *directory, const char *others)
{
    char *text = xformat(
        "{'tokenizer.json': {'added_tokens': [], 'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false}, "
        "'decoder': {'type': 'ByteLevel'}, 'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, '<': 2, '>': 3, "
        "'e': 4}, 'merges': []}}, %s}",
        others);
    struct json *files = json_of(text);
    write_files(directory, files);
    json_free(files);
    free(text);
}

// A text ends at a token that only another file declares, and the chat template gets the names of special_tokens_map.json.
TEST(the_configuration_knows_declared_tokens)
{
    static const char *const others[] = {
        "'tokenizer_config.json':{'eos_token':'<e>','bos_token':'<a>','added_tokens_decoder':"
        "{'5':{'content':'<a>','special':true},'6':{'content':'<e>','special':true}}}",
        "'special_tokens_map.json':{'eos_token':{'content':'<e>'},'bos_token':'<a>'},"
        "'added_tokens.json':{'<a>':5,'<e>':6}",
        "'special_tokens_map.json':{'eos_token':{'content':'<e>'},'bos_token':'<a>'}",
    };
    char *directory = test_path("configured");
    for (int i = 0; i < 3; i++) {
        struct model_config c;
        write_text(directory, others[i]);
        assert_ok(config_read_text(directory, &c, &err), err);
        assert_true(c.bos == 5 && c.n_end == 1 && c.end[0] == 6);
        assert_string_equal(json_text(json_get(c.special_tokens, "bos_token")), "<a>");
        assert_string_equal(json_text(json_get(c.special_tokens, "eos_token")), "<e>");
        config_free(&c);
    }
    free(directory);
}

// What other files add is part of what a cell is known by; what they only say again is not.
TEST(a_hash_has_what_is_added_and_nothing_else)
{
    static const char *const others[] = {
        "'unrelated.json':{}",
        "'tokenizer_config.json':{'extra_special_tokens':[],'tokenizer_class':'PreTrainedTokenizerFast'}",
        "'tokenizer_config.json':{'extra_special_tokens':['<a>']}",
        "'added_tokens.json':{'<a>':5}",
        "'added_tokens.json':{'<b>':5}",
    };
    enum { N = sizeof(others) / sizeof(*others) };
    struct hash hash[N];
    char *directory = test_path("hashed");
    for (int i = 0; i < N; i++) {
        write_text(directory, others[i]);
        struct tokenizer *t = tokenizer_open(directory, &err);
        assert_ok(t != NULL, err);
        hash[i] = tokenizer_hash(t);
        tokenizer_close(t);
    }
    assert_memory_equal(&hash[0], &hash[1], sizeof(*hash));
    for (int i = 2; i < N; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(&hash[i], &hash[k], sizeof(*hash));
    free(directory);
}

int main(void)
{
    const int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
