#include "results/output_files.h"

#include <errno.h>
#include <stdio.h>
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

bool output_file(const char *path, const struct text *content, struct text *out, struct error *err)
{
    struct stat st;
    FILE *f = fopen(path, "w");
    if (f == NULL)
        return fail(err, "%s: could not be created: %s", path, strerror(errno));
    bool ok = fwrite(content->s, 1, content->n, f) == content->n;
    ok = fclose(f) == 0 && ok;
    if (!ok) {
        fail(err, "%s: could not be written: %s", path, strerror(errno));
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) // no device
            unlink(path);                                // a truncated file would look complete
        return false;
    }
    text_printf(out, "%s\n", path);
    return true;
}
