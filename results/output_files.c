#include "results/output_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"

bool output_folder(const char *path, struct error *err)
{
    struct stat st;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return true;
    return fail(err, "%s: could not be created: %s", path, strerror(errno));
}

static bool is_database(const char *path)
{
    static const char magic[] = "SQLite format 3";
    char head[sizeof(magic)] = "";
    FILE *f = fopen(path, "r");
    const bool is =
        f != NULL && fread(head, 1, sizeof(head), f) == sizeof(head) && memcmp(head, magic, sizeof(head)) == 0;
    if (f != NULL)
        fclose(f);
    return is;
}

static bool write_all(const char *path, const struct text *content, struct error *err)
{
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return fail(err, "%s: could not be created: %s", path, strerror(errno));
    bool ok = fwrite(content->s, 1, content->n, f) == content->n;
    ok = fclose(f) == 0 && ok;
    return ok || fail(err, "%s: could not be written: %s", path, strerror(errno));
}

// A file of this name is replaced once the new one is whole; a link leads to the file that is replaced.
static bool replace(const char *path, const struct text *content, struct error *err)
{
    char *real = realpath(path, NULL), *part = xformat("%s.part", real != NULL ? real : path);
    bool ok = write_all(part, content, err);
    if (ok && rename(part, real != NULL ? real : path) != 0)
        ok = fail(err, "%s: could not be written: %s", path, strerror(errno));
    if (!ok)
        unlink(part);
    free(part);
    free(real);
    return ok;
}

bool output_file(const char *path, const struct text *content, struct text *out, struct error *err)
{
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    if (exists && S_ISREG(st.st_mode) && is_database(path))
        return fail(err, "%s: is a database: expected another file to write to", path);
    const bool device = exists && !S_ISREG(st.st_mode); // written in place, as /dev/stdout
    if (!(device ? write_all(path, content, err) : replace(path, content, err)))
        return false;
    text_printf(out, "%s\n", path);
    return true;
}
