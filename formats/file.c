#include "formats/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"
#include "core/files/mapped.h"

bool file_map(const char *path, struct mapping *to, struct error *err)
{
    *to = (struct mapping){ 0 };
    const int fd = input_open(path, INPUT_REGULAR, err);
    struct stat st;
    if (fd < 0)
        return false;
    if (fstat(fd, &st) != 0)
        fail(err, "%s: %s", path, strerror(errno));
    else if (st.st_size == 0)
        fail(err, "%s: the file is empty", path);
    else {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            fail(err, "%s: cannot be mapped: %s", path, strerror(errno));
        else if (!mapped_add(path, &st, at, (size_t)st.st_size, err))
            munmap(at, (size_t)st.st_size);
        else
            *to = (struct mapping){ at, (size_t)st.st_size };
    }
    input_close(fd);
    return to->at != NULL;
}

void file_unmap(struct mapping *m)
{
    if (m->at != NULL) {
        mapped_remove(m->at);
        munmap((void *)(uintptr_t)m->at, m->n);
    }
    *m = (struct mapping){ 0 };
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_make_folders(const char *path)
{
    char *s = xstrdup(path), *last = strrchr(s, '/');
    for (char *slash = strchr(s + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(s, 0777); // may exist already; a failure shows in the check of the last folder
        if (slash == last)
            break;
        *slash = '/';
    }
    bool ok = last == NULL || last == s || file_is_directory(s);
    free(s);
    return ok;
}

char *file_text(const char *path, size_t *n, struct error *err)
{
    struct text text = { 0 };
    const bool ok = input_read(path, INPUT_REGULAR, (size_t)64 << 20, &text, err) &&
                    (text.n > 0 || fail(err, "%s: the file is empty", path));
    if (ok && n != NULL)
        *n = text.n;
    if (!ok)
        free(text.s);
    return ok ? text.s : NULL;
}
