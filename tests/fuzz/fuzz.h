// fuzz.h - shared by the fuzz targets: files for readers that open files, inputs of several files, and structure-aware
// mutations, which get past a reader's first checks.
//
// An input of several files is their concatenation with a NUL between them; the last one takes the rest, including NULs.
// An empty one means that the file does not exist.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// libFuzzer's.
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max_size);

void insist(bool holds); // an assertion of the fuzz target: aborts if it does not hold

// A temporary folder of this process, in /dev/shm if it exists, removed at exit. Failures end the program.
const char *fuzz_folder(void);
char *fuzz_path(const char *name);                              // a path in the folder; free() it
void fuzz_write(const char *name, const void *bytes, size_t n); // n = 0: removes the file
// Path of a file written by write_seeds, in the folder `seeds` beside the program. program: argv[0]. free() it.
char *fuzz_seed_path(const char *program, const char *name);
uint8_t *fuzz_read(const char *path, size_t *n); // a whole file; free() it

// Encodes a text and decodes its ids one by one: they are in range, and what comes back is UTF-8.
struct tokenizer;
void fuzz_tokenize(const struct tokenizer *t, const char *text, size_t n, bool special);

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
void fuzz_split(const uint8_t *input, size_t n, struct fuzz_slice *to, int files); // missing ones are empty
void fuzz_write_files(const uint8_t *input, size_t n,
                      const struct fuzz_file *file); // the list ends with a name of NULL

// Random numbers for mutations; deterministic in the seed.
void fuzz_seed(unsigned seed);
size_t fuzz_below(size_t n); // 0 .. n - 1

// Mutates one of the files according to its kind: of JSON, a value is replaced, removed, duplicated, renamed or replaced
// by another value of the file; likewise of a safetensors header, with its length corrected; of FUZZ_WORDS, a word or a
// line. words: keys and texts to use, two spaces between them.
size_t fuzz_change(uint8_t *data, size_t n, size_t max_size, unsigned seed, const struct fuzz_file *file,
                   const char *words);
const char *fuzz_word(const char *words); // one of them
#define FUZZ_MUTATOR(files, words) \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed) \
    { \
        return fuzz_change(data, n, max_size, seed, files, words); \
    }

// A row that write_seeds stores in its database and fuzz_database looks up.
#define FUZZ_EXACT_ROW \
    { \
        .experiment = "e", .cell = "0", .settings = "{}", .target = "t", .drafter = "d", .rule = "r", .sampling = "s", \
        .machine = "m", .revision = "v", .lossless = true, .batch = 1, .seed = 1 \
    }

// Modification time of the model whose packed weights fuzz_packed_cache and write_seeds use.
#define FUZZ_MODEL_TIME ((const struct timespec[2]){ { 1000000000, 0 }, { 1000000000, 0 } })
