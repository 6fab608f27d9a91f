#include "tests/support/file_write.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/files/input.h"
#include "tests/support/check.h"

void file_write(const char *path, const char *text)
{
    file_write_bytes(path, text, strlen(text));
}

void file_write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(n == 0 || fwrite(bytes, 1, n, f) == n);
    assert_int_equal(fclose(f), 0);
}

void file_size_limit(long bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

void assert_no_partial_files(const char *path)
{
    glob_t found;
    char *pattern = xformat("%s.*part", path);
    const int status = glob(pattern, 0, NULL, &found);
    if (status != GLOB_NOMATCH)
        fail_msg("%s is left (glob: %d)", status == 0 ? found.gl_pathv[0] : "something", status);
    globfree(&found);
    free(pattern);
}

void file_flip(const char *path, long at, int bits)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    const int before = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fputc(before ^ bits, f), before ^ bits);
    assert_int_equal(fclose(f), 0);
}

void assert_golden_file(const char *name, const char *text, bool write)
{
    struct error err;
    char *path = xformat("%s/%s", CASES, name);
    if (write)
        file_write(path, text);
    char *golden = file_text(path, NULL, &err);
    assert_non_null(golden);
    size_t line = 1, begin = 0;
    for (size_t at = 0; text[at] != '\0' && text[at] == golden[at]; at++)
        if (text[at] == '\n') {
            line++;
            begin = at + 1;
        }
    if (strcmp(text, golden) != 0)
        fail_msg("line %zu of %s differs: %.*s", line, name, (int)strcspn(text + begin, "\n"), text + begin);
    free(golden);
    free(path);
}

struct json *golden_json(const char *name, ...)
{
    struct error err;
    char *file, *path;
    va_list values;
    va_start(values, name);
    assert_true(vasprintf(&file, name, values) >= 0);
    va_end(values);
    path = xformat("%s/%s", CASES, file);
    struct json *golden = json_read(path, &err);
    assert_ok(golden != NULL, err);
    free(file);
    free(path);
    return golden;
}

struct json *json_of(const char *text)
{
    struct error err;
    char *s = xstrdup(text);
    for (char *at = s; strchr(text, '"') == NULL && (at = strchr(at, '\'')) != NULL;)
        *at = '"';
    struct json *j = json_parse(s, strlen(s), text, &err);
    assert_ok(j != NULL, err);
    free(s);
    return j;
}

void json_file_set(const char *path, const char *members)
{
    struct error err;
    struct json *j = json_read(path, &err), *with = json_of(members);
    assert_ok(j != NULL, err);
    for (void *at = json_first(with); at != NULL; at = json_next(with, at))
        json_set(j, json_key(at), json_clone(json_value(at)));
    char *text = json_write(j);
    file_write(path, text);
    free(text);
    json_free(j);
    json_free(with);
}
