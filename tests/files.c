#include "tests/files.h"

#include <stdio.h>
#include <string.h>

#include "tests/check.h"

void file_write(const char *path, const char *text)
{
    file_write_bytes(path, text, strlen(text));
}

void file_write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}
