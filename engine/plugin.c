#include "engine/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/files/input.h"
#include "core/memory.h"
#include "core/registry.h"

static bool (*load_python)(const char *file, char *why, size_t size);
static void (*without_python)(const char *file);

void speclab_python_plugins(bool (*load)(const char *file, char *why, size_t size))
{
    load_python = load;
}

void plugins_without_python(void (*begin_anew)(const char *file))
{
    without_python = begin_anew;
}

// Where this code is in a library that was opened with local names, as Python opens it, plugins find its functions only
// after this.
static void make_names_global(void)
{
    Dl_info here;
    if (dladdr((void *)(uintptr_t)plugin_load, &here) != 0 && here.dli_fname != NULL)
        dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

// The handle stays open: the registries have pointers into the plugin.
static bool load_shared(const char *file, struct error *err)
{
    static const size_t layout[PLUGIN_SIZES] = PLUGIN_LAYOUT;
    make_names_global();
    char *path = strchr(file, '/') != NULL ? xstrdup(file) : xformat("./%s", file); // not a name to search for
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (handle == NULL)
        return fail(err, "%s: cannot be loaded as a plugin: %s", file, dlerror());
    const size_t *its = dlsym(handle, "speclab_plugin_layout");
    bool (*enter)(struct error *) = (bool (*)(struct error *))(uintptr_t)dlsym(handle, "speclab_plugin");
    if (its == NULL || enter == NULL)
        return fail(err, "%s: expected a plugin, which defines SPECLAB_PLUGIN (engine/plugin.h), found another library",
                    file);
    if (memcmp(its, layout, sizeof(layout)) != 0)
        return fail(err, "%s: was compiled with headers of another version of speclab: compile it again", file);
    struct error why;
    return enter(&why) || fail(err, "%s: %s", file, why.text);
}

static bool load_in_python(const char *file, struct error *err)
{
    char why[sizeof(err->text)] = "";
    if (load_python == NULL && without_python != NULL)
        without_python(file);
    if (load_python == NULL)
        return fail(err,
                    "%s: a plugin in Python needs Python: ./run COMMAND --plugin %s, or python -m speclab COMMAND ..",
                    file, file);
    return load_python(file, why, sizeof(why)) || fail(err, "%s", why);
}

static bool is_loaded(struct hash source) // notes it
{
    static struct hash loaded[MAX_REGISTERED];
    static int n;
    for (int i = 0; i < n; i++)
        if (hash_equal(loaded[i], source))
            return true;
    if (n < MAX_REGISTERED)
        loaded[n++] = source;
    return false;
}

bool plugin_load(const char *file, struct error *err)
{
    const bool python = ends_with(file, ".py");
    if (!python && !ends_with(file, ".so"))
        return fail_usage(err, "a plugin: expected a file that ends with .so or .py, found \"%s\"", file);
    size_t n;
    char *bytes = file_text(file, &n, err);
    if (bytes == NULL)
        return false;
    const struct hash source = hash_of(bytes, n);
    free(bytes);
    if (is_loaded(source))
        return true;
    registry_set_source(source);
    const bool ok = python ? load_in_python(file, err) : load_shared(file, err);
    registry_set_source((struct hash){ 0 });
    return ok;
}

// The file that word i names, in *next words; NULL: it is no --plugin.
static const char *plugin_at(int i, int argc, char **argv, int *next)
{
    static const char flag[] = "--plugin";
    const size_t n = sizeof(flag) - 1;
    *next = 1;
    if (strncmp(argv[i], flag, n) != 0 || (argv[i][n] != '\0' && argv[i][n] != '='))
        return NULL;
    if (argv[i][n] == '=')
        return argv[i] + n + 1;
    *next = 2;
    return i + 1 < argc ? argv[i + 1] : "";
}

bool plugins_take(int *argc, char **argv, struct error *err)
{
    int kept = 0;
    bool options = true;
    for (int i = 0, next; i < *argc; i += next) {
        const char *file = options ? plugin_at(i, *argc, argv, &next) : (next = 1, NULL);
        options = options && strcmp(argv[i], "--") != 0;
        if (file == NULL)
            argv[kept++] = argv[i];
        else if (!plugin_load(file, err))
            return false;
    }
    argv[ *argc = kept] = NULL;
    return true;
}
