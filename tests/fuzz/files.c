// files.c - writes the files of an input to the fuzz target's folder.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/utf8.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "core/files/mapped.h"

void insist(bool holds)
{
    if (!holds)
        abort();
}

static char *folder;

static void remove_folder(void)
{
    char *command = xformat("rm -rf '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", folder);
    free(command);
}

const char *fuzz_folder(void)
{
    if (folder == NULL) {
        folder = xformat("%s/speclab-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(folder) == NULL) {
            perror(folder);
            exit(1);
        }
        atexit(remove_folder);
    }
    return folder;
}

char *fuzz_path(const char *name)
{
    return xformat("%s/%s", fuzz_folder(), name);
}

void fuzz_write(const char *name, const void *bytes, size_t n)
{
    char *path = fuzz_path(name);
    unlink(path); // a new inode: mappings of the previous file stay valid
    int fd = n == 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (n != 0 && (fd < 0 || write(fd, bytes, n) != (ssize_t)n)) {
        perror(path);
        exit(1);
    }
    if (fd >= 0)
        close(fd);
    free(path);
}

char *fuzz_seed_path(const char *program, const char *name)
{
    const char *slash = strrchr(program, '/');
    return slash != NULL ? xformat("%.*s/seeds/%s", (int)(slash - program), program, name) : xformat("seeds/%s", name);
}

uint8_t *fuzz_read(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "%s: cannot be read; write_seeds writes it\n", path);
        exit(1);
    }
    *n = (size_t)st.st_size;
    uint8_t *to = xmalloc(*n + 1);
    insist(read(fd, to, *n) == (ssize_t)*n);
    close(fd);
    return to;
}

void fuzz_split(const uint8_t *input, size_t n, struct fuzz_slice *to, int files)
{
    for (int i = 0; i < files; i++) {
        const uint8_t *nul = i + 1 < files && n > 0 ? memchr(input, 0, n) : NULL;
        to[i] = (struct fuzz_slice){ input, nul != NULL ? (size_t)(nul - input) : n };
        size_t consumed = to[i].n + (nul != NULL);
        if (n > 0)
            input += consumed;
        n -= consumed;
    }
}

void fuzz_write_files(const uint8_t *input, size_t n, const struct fuzz_file *file)
{
    struct fuzz_slice slice[FUZZ_FILES];
    int files = 0;
    while (file[files].name != NULL)
        files++;
    insist(files <= FUZZ_FILES);
    fuzz_split(input, n, slice, files);
    for (int i = 0; i < files; i++)
        fuzz_write(file[i].name, slice[i].at, slice[i].n);
}

void fuzz_tokenize(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct error err;
    struct ids ids = { 0 };
    struct decoding held = { 0 };
    struct text out = { 0 };
    const bool ok = tokenizer_encode(t, text, n, special, &ids, &err);
    insist(ok ? utf8_valid(text, n) == n : ids.n == 0 && err.text[0] != '\0');
    for (size_t i = 0; i < ids.n; i++) {
        size_t length;
        insist(ids.id[i] >= 0 && ids.id[i] < tokenizer_size(t) && tokenizer_token(t, ids.id[i], &length) != NULL);
        tokenizer_decode(t, &ids.id[i], 1, true, &held, &out);
        insist(held.n <= 3);
    }
    tokenizer_decode_end(&held, &out);
    insist(out.n == 0 || utf8_valid(out.s, out.n) == out.n);
    free(out.s);
    free(ids.id);
}

// ---- wrappers of file_map and file_unmap: a mapping ends at a page, a copy at its last byte, so that ASan sees overreads

bool __real_file_map(const char *path, struct mapping *to, struct error *err);
bool __wrap_file_map(const char *path, struct mapping *to, struct error *err);
void __real_file_unmap(struct mapping *m);
void __wrap_file_unmap(struct mapping *m);

bool __wrap_file_map(const char *path, struct mapping *to, struct error *err)
{
    insist(strstr(path, "/../") == NULL); // no input may name a file outside the folder
    if (!__real_file_map(path, to, err))
        return false;
    uint8_t *copy = xmalloc(to->n);
    struct mapping of = { copy, to->n };
    memcpy(copy, to->at, to->n);
    __real_file_unmap(to);
    *to = of;
    return true;
}

void __wrap_file_unmap(struct mapping *m)
{
    free((void *)(uintptr_t)m->at);
    *m = (struct mapping){ 0 };
}
