// json.h - JSON, read and written. The only file that includes jansson.h is json.c.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest;
struct error;
struct json; // any JSON value; values inside another are borrowed from it

// Strict JSON; duplicate keys, trailing text, invalid UTF-8 and over-deep nesting are errors that say what: line:
// column.
struct json *json_parse(const char *text, size_t n, const char *what, struct error *err);
// the line-th of a file
struct json *json_parse_line(const char *text, size_t n, const char *what, int line, struct error *err);
struct json *json_read(const char *path, struct error *err); // a whole file
void json_free(struct json *j);                              // of a root; NULL is fine

bool json_is_object(const struct json *j); // all of these and the getters below: NULL is no object, no text, ...
bool json_is_array(const struct json *j);
bool json_is_text(const struct json *j);
bool json_is_int(const struct json *j);
bool json_is_number(const struct json *j);
bool json_is_bool(const struct json *j);
bool json_is_null(const struct json *j); // NULL or the value null

struct json *json_get(const struct json *object, const char *key); // NULL: no such key, or no object
size_t json_count(const struct json *j);                           // of an array or object; else 0
struct json *json_at(const struct json *array, size_t i);          // NULL: no such
const char *json_text(const struct json *j); // UTF-8, may hold NULs: see json_text_length; "" if no text
size_t json_text_length(const struct json *j);
int64_t json_int(const struct json *j);   // 0 if no integer
double json_number(const struct json *j); // of an integer or real
bool json_bool(const struct json *j);

void json_drop(struct json *object, const char *key); // no error if there is no such key
// Adds the value and all in it: kinds, texts, numbers, lists in their order, members of objects in that of their keys.
void json_digest(const struct json *j, struct digest *d);

// Walks the members of an object, in the order of the text:
//     for (void *at = json_first(o); at; at = json_next(o, at)) use(json_key(at), json_value(at));
void *json_first(const struct json *object);
void *json_next(const struct json *object, void *at);
const char *json_key(void *at);
struct json *json_value(void *at);

// Building. The setters take the value given them.
struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_new_text(const char *s); // not UTF-8: invalid bytes become U+FFFD
struct json *json_new_text_n(const char *s, size_t n);
struct json *json_new_int(int64_t v);
struct json *json_new_number(double v); // not finite: null
struct json *json_new_bool(bool v);
struct json *json_new_null(void);
struct json *json_new_ids(const int32_t *id, size_t n); // an array of integers
void json_set(struct json *object, const char *key, struct json *value);
void json_push(struct json *array, struct json *value);
char *json_write(const struct json *j); // on one line, keys in the order set; free() it
