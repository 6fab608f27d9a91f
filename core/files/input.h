// input.h - reads files whole or line by line, and never without a limit. A file that is not regular is refused where a
// program could wait for it, or read from it, for ever. Streams are allowed for texts.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;
struct text;

enum input_kind {
    INPUT_REGULAR, // a regular file
    INPUT_STREAM,  // also a pipe such as <(..), a terminal or /dev/null
    INPUT_STDIN,   // also stdin, for "-" or NULL
};

// The maximum number of bytes that are read, by kind of file.
static const size_t INPUT_SETTINGS = (size_t)256 << 20; // limit of a file of settings, a vocabulary, a template
static const size_t INPUT_TEXTS = (size_t)2 << 30;      // limit of a file or stream of texts that is read whole
static const size_t INPUT_LINE = (size_t)64 << 20;

bool file_exists(const char *path); // a file of any type; follows symbolic links
bool file_is_directory(const char *path);

// Returns a descriptor to read from, which input_close closes; -1, with err set,
// if there is none or it is of another kind.
int input_open(const char *path, enum input_kind kind, struct error *err);
void input_close(int fd);                 // stdin stays open; -1 is allowed
const char *input_name(const char *path); // the name in messages: the path, "stdin" for INPUT_STDIN

// Returns whether an input that has ended without a byte is a named pipe to which nobody has written, and sets err
// then. It would be taken for an empty file.
bool input_is_silent(int fd, const char *name, struct error *err);

// Appends the whole content to `to`, whose s is never NULL afterwards. most: maximum number of bytes; more is an error.
bool input_read(const char *path, enum input_kind kind, size_t most, struct text *to, struct error *err);

char *file_text(const char *path, size_t *n, struct error *err); // the content of a small file and a NUL; free() it

// Reads lines as they come: a line is available as soon as its end is written.
struct lines {
    const char *name; // borrowed, for messages
    int fd;           // borrowed
    long number;      // lines count from 1
    bool failed;
    bool ended;
    char *buffer; // (capacity) bytes begin .. end - 1 are read but not yet returned in a line
    size_t begin, end, capacity;
};
void lines_begin(struct lines *l, int fd, const char *name);
void lines_of(struct lines *l, struct text *text, const char *name); // lines of a text, which it takes over
// Returns the next line without its '\n' and with a NUL after it; valid until the next call. Returns false at the end,
// or with l->failed and err set if the line cannot be read or is longer than INPUT_LINE.
bool lines_next(struct lines *l, char **line, size_t *n, struct error *err);
void lines_end(struct lines *l);
