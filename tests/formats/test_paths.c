// test_paths.c - how model names are resolved to paths, in caches made for the test.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/paths.h"
#include "tests/support/tests.h"
#include "tests/support/small_model.h"

static struct error err;

static void assert_path(const char *name, const char *beside, const char *expected)
{
    char *found = model_path(name, beside, &err);
    assert_ok(found != NULL, err);
    assert_string_equal(found, expected);
    free(found);
}

TEST(model_names_are_resolved_to_paths)
{
    char *root = test_path("cache"), *hub = xformat("%s/huggingface/hub/models--org--name.v1", root);
    char *command = xformat(
        "mkdir -p %s/speclab/models %s/refs %s/snapshots/0123abcd %s/snapshots/ffff && cd %s/speclab/models && "
        "touch one.gguf && mkdir two && printf 0123abcd > %s/refs/main && touch %s/snapshots/0123abcd/config.json "
        "%s/snapshots/ffff/only.gguf",
        root, hub, hub, hub, root, hub, hub, hub);
    assert_int_equal(system(command), 0);
    setenv("XDG_CACHE_HOME", root, 1);
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    char *models = xformat("%s/speclab/models", root), *cache = model_cache();
    assert_string_equal(cache, models);

    char *one = xformat("%s/one.gguf", models), *two = xformat("%s/two", models);
    char *main = xformat("%s/snapshots/0123abcd", hub), *other = xformat("%s/snapshots/ffff/only.gguf", hub);
    assert_path("one", NULL, one);
    assert_path("one.gguf", NULL, one);
    assert_path("two", "/nowhere", two);
    assert_path(one, "/nowhere", one);
    assert_path("one.gguf", models, one); // beside the experiment
    assert_path("org/name.v1", NULL, main);
    assert_path("org/name.v1@main", NULL, main);
    assert_path("org/name.v1@ffff", NULL, other); // a commit; its one GGUF file
    char *home = xformat("%s/huggingface", root);
    setenv("XDG_CACHE_HOME", "/nonexistent", 1);
    setenv("HF_HOME", home, 1);
    assert_path("org/name.v1", NULL, main);
    setenv("HF_HUB_CACHE", "/nonexistent", 1); // takes precedence over HF_HOME

    static const char *const missing[] = { "org/name.v1", "org/name.v1@../../x", "three",     "",      "../x",
                                           "org/name@",   "/etc/nothing",        "~/nothing", "org/.." };
    for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
        assert_null(model_path(missing[i], i % 2 ? "." : NULL, &err));
        print_message("%s\n", err.text);
    }
    free(root);
    free(hub);
    free(command);
    free(models);
    free(cache);
    free(one);
    free(two);
    free(main);
    free(other);
    free(home);
}

RUN_TESTS(NULL, NULL)
