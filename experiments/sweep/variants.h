// variants.h - values that stand for several, under `cells` of an experiment:
//
//     {any: [2, 4, 8]}                   each of these
//     {from: 1, to: 8, step: 1}          1, 2, .. 8; step: default 1
//     {from: 1, to: 64, factor: 2}       1, 2, 4, .. 64
//     {zip: {a: [1, 2], b: [3, 4]}}      in a mapping: a = 1 with b = 3, then a = 2 with b = 4
//
// A value that contains them, such as a drafter, is repeated with each of their values; several multiply. A list is not
// one of them: it is the value of an option that is a list. Every value keeps a position in the file: the numbers of a
// range have that of the range.
#pragma once
struct error;
struct settings;

enum { MAX_VARIANTS = 1024 };

// Each returns a new list, or NULL on failure. what: the key in messages ("cells.batch").
struct settings *variants_read(const struct settings *s, const char *what,
                               struct error *err);                        // is called for each item, if s is a list
struct settings *zip_read(const struct settings *zip, struct error *err); // a mapping for each position of zip's lists
