#include "models/paths.h"

#include <ctype.h>
#include <dirent.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "models/formats/shape.h"
#include "kernels/cpu/probe.h"

static const char *home(void)
{
    const char *h = getenv("HOME");
    if (h != NULL && *h != '\0')
        return h;
    const struct passwd *user = getpwuid(getuid());
    return user != NULL && user->pw_dir != NULL ? user->pw_dir : "/";
}

// Returns an environment variable; NULL if it is empty. absolute: values that are not absolute paths are ignored, as
// XDG requires.
static const char *setting(const char *name, bool absolute)
{
    const char *v = getenv(name);
    return v != NULL && (absolute ? *v == '/' : *v != '\0') ? v : NULL;
}

static char *cache(const char *below)
{
    const char *xdg = setting("XDG_CACHE_HOME", true);
    return xdg != NULL ? xformat("%s/%s", xdg, below) : xformat("%s/.cache/%s", home(), below);
}

char *model_cache(void)
{
    return cache("speclab/models");
}

char *weights_cache(void)
{
    return cache("speclab/weights");
}

static char *hugging_face_cache(void)
{
    static const char *const hubs[][2] = { { "HF_HUB_CACHE", "" },
                                           { "HUGGINGFACE_HUB_CACHE", "" },
                                           { "HF_HOME", "/hub" } };
    for (size_t i = 0; i < sizeof(hubs) / sizeof(*hubs); i++)
        if (setting(hubs[i][0], false) != NULL)
            return xformat("%s%s", setting(hubs[i][0], false), hubs[i][1]);
    return cache("huggingface/hub");
}

struct search {
    struct text places; // places that were searched without success
    char *found;
};

// Takes ownership of the path. Returns true if the file exists, which ends the search.
static bool try_path(struct search *s, char *path)
{
    if (file_exists(path)) {
        s->found = path;
        return true;
    }
    text_printf(&s->places, "%s%s", s->places.n != 0 ? ", " : "", path);
    free(path);
    return false;
}

static bool is_word(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && strchr("._-", s[i]) == NULL)
            return false;
    return n != 0 && *s != '.' && memchr(s, '\0', n) == NULL;
}

struct repository { // org/name[@revision]
    const char *org, *name, *revision;
    int org_n, name_n;
};

static bool is_repository(const char *s, struct repository *to)
{
    const char *slash = strchr(s, '/'), *at = strchr(s, '@');
    if (slash == NULL || (at != NULL && at < slash))
        return false;
    size_t n = at != NULL ? (size_t)(at - slash) - 1 : strlen(slash + 1);
    *to = (struct repository){ s, slash + 1, at != NULL ? at + 1 : "main", (int)(slash - s), (int)n };
    bool revision = *to->revision != '\0' && *to->revision != '/' && strstr(to->revision, "..") == NULL;
    return is_word(to->org, (size_t)to->org_n) && is_word(to->name, n) && revision;
}

// Returns the commit of a branch or tag in the cache; the revision itself if it is neither. The caller frees it.
static char *commit_of(const char *folder, const char *revision)
{
    char *ref = xformat("%s/refs/%s", folder, revision);
    struct error ignored;
    char *commit = file_exists(ref) && !file_is_directory(ref) ? file_text(ref, NULL, &ignored) : NULL;
    free(ref);
    if (commit == NULL)
        return xstrdup(revision);
    commit[strspn(commit, "0123456789abcdef")] = '\0';
    return commit;
}

static int is_gguf(const struct dirent *e)
{
    return ends_with(e->d_name, ".gguf");
}

// Returns the model in a snapshot: the directory, or, without config.json, its only GGUF file. Takes ownership of the
// path.
static char *model_of_snapshot(char *snapshot, struct error *err)
{
    struct dirent **file = NULL;
    char *config = xformat("%s/config.json", snapshot), *found = NULL;
    const int n = file_exists(config) ? 0 : scandir(snapshot, &file, is_gguf, NULL);
    free(config);
    if (n == 1)
        found = xformat("%s/%s", snapshot, file[0]->d_name);
    else if (n > 1)
        fail(err, "%s: there are %d GGUF files; give the path of one of them", snapshot, n);
    else
        found = xstrdup(snapshot);
    for (int i = 0; i < n; i++)
        free(file[i]);
    free(file);
    free(snapshot);
    return found;
}

// Relative names are looked up in the folder of the experiment's file first, then in the current directory.
static bool find_file(struct search *s, const char *name, const char *beside)
{
    if (strncmp(name, "~/", 2) == 0)
        return try_path(s, xformat("%s/%s", home(), name + 2));
    if (*name != '/' && beside != NULL && *beside != '\0' && try_path(s, xformat("%s/%s", beside, name)))
        return true;
    return try_path(s, xstrdup(name));
}

static bool find_name(struct search *s, const char *name)
{
    char *folder = model_cache();
    bool found = try_path(s, xformat("%s/%s", folder, name)) || try_path(s, xformat("%s/%s.gguf", folder, name));
    free(folder);
    return found;
}

static bool find_repository(struct search *s, const struct repository *r)
{
    char *root = hugging_face_cache();
    char *folder = xformat("%s/models--%.*s--%.*s", root, r->org_n, r->org, r->name_n, r->name);
    char *commit = commit_of(folder, r->revision);
    bool found = try_path(s, xformat("%s/snapshots/%s", folder, commit));
    free(commit);
    free(folder);
    free(root);
    return found;
}

bool model_is_shape(const char *name)
{
    return is_shape(name);
}

char *model_path(const char *name, const char *beside, struct error *err)
{
    struct search s = { 0 };
    struct repository r = { 0 };
    if (*name == '\0') {
        fail(err, "the name of a model is empty");
        return NULL;
    }
    if (is_shape(name))
        return shape_path(name, probe_memory(), err);
    bool bare = strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    bool repository = is_repository(name, &r);
    if (!find_file(&s, name, beside) && !(bare && find_name(&s, name)) && repository && find_repository(&s, &r))
        s.found = model_of_snapshot(s.found, err);
    else if (s.found == NULL)
        fail(err, "%s: there is no such model; looked at %s%s%s", name, s.places.s,
             bare || repository ? "; fetch it with: ./run model " : "", bare || repository ? name : "");
    free(s.places.s);
    return s.found;
}
