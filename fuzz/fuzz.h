// fuzz.h - what the fuzz targets share: files for readers that open files, inputs that are several files, and changes that
// know what a file looks like, so that they get past its first check.
//
// An input of several files has them one behind the other with a NUL between; the last one takes the rest, NULs and all. An
// empty one stands for a file that is not there.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// libFuzzer's.
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);

void insist(bool holds); // that it holds is what the target is there for

// A folder of this process's own, in memory where there is /dev/shm; it goes with the process. Failures end the program.
const char *fuzz_folder(void);
char *fuzz_path(const char *name);                              // in it; free() it
void fuzz_write(const char *name, const void *bytes, size_t n); // n 0: there is no such file
// What write_seeds made: a file of the folder `seeds` beside the program. program: argv[0]. free() it.
char *fuzz_made(const char *program, const char *name);
uint8_t *fuzz_read(const char *path, size_t *n); // a whole file; free() it

enum fuzz_kind { FUZZ_TEXT, FUZZ_WORDS, FUZZ_JSON, FUZZ_JSON_LINES, FUZZ_SAFETENSORS, FUZZ_BYTES };

struct fuzz_file {
    const char *name;
    enum fuzz_kind kind;
};

enum { FUZZ_FILES = 8 };
struct fuzz_slice {
    const uint8_t *at;
    size_t n;
};
void fuzz_split(const uint8_t *input, size_t n, struct fuzz_slice *to, int files);   // those that are missing are empty
void fuzz_write_files(const uint8_t *input, size_t n, const struct fuzz_file *file); // up to a name of NULL

// Chance for changes: the same for the same seed.
void fuzz_seed(unsigned seed);
size_t fuzz_below(size_t n); // 0 .. n - 1

// One of the files changed as its kind is: a value of JSON replaced, left out, written twice, under another key, or as another
// one of it; a safetensors file's header likewise, its length put right; of a text of words (FUZZ_WORDS) a word or a line. words: keys and texts to use, up to NULL.
size_t fuzz_change(uint8_t *data, size_t n, size_t most, unsigned seed, const struct fuzz_file *file,
                   const char *const *words);

// A row that write_seeds puts into its database and fuzz_database looks for.
#define FUZZ_EXACT_ROW \
    { \
        .experiment = "e", .cell = "0", .settings = "{}", .target = "t", .drafter = "d", .rule = "r", .sampling = "s", \
        .machine = "m", .revision = "v", .lossless = true, .batch = 1, .seed = 1 \
    }

// When the model was written whose packed weights fuzz_kept and write_seeds have.
#define FUZZ_THEN ((const struct timespec[2]){ { 1000000000, 0 }, { 1000000000, 0 } })
