#include "commands/temporary_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

char *temporary_folder(const char *kind, struct error *err)
{
    const char *base = getenv("TMPDIR");
    char *path = xformat("%s/speclab-%s-XXXXXX", base != NULL && *base != '\0' ? base : "/tmp", kind);
    if (mkdtemp(path) != NULL)
        return path;
    fail(err, "%s: could not be created: %s", path, strerror(errno));
    free(path);
    return NULL;
}

char *temporary_folder_of(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/speclab-")) != NULL;) {
        at++;
        const char *end = at + strcspn(at, "/");
        if (*end == '/' && end - at > 15 && end[-7] == '-') // speclab-KIND-XXXXXX
            return xstrndup(path, (size_t)(end - path));
    }
    return NULL;
}
