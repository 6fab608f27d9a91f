// json.h - reading and writing JSON. Only json.c includes jansson.h.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct digest;
struct error;
struct json; // any JSON value; values inside another are borrowed from it

// Strict JSON: duplicate keys, trailing text, invalid UTF-8 and too deep nesting are errors. NULL: err is set, with what,
// line and column.
struct json *json_parse(const char *text, size_t n, const char *what, struct error *err);
// The same for a text that begins at this line of a file.
struct json *json_parse_line(const char *text, size_t n, const char *what, int line, struct error *err);
struct json *json_read(const char *path,
                       struct error *err); // a whole regular file, at most INPUT_SETTINGS (core/files/input.h)
void json_free(struct json *j);            // a root; NULL is allowed

bool json_is_object(const struct json *j); // for NULL all of these are false, json_is_null excepted
bool json_is_array(const struct json *j);
bool json_is_text(const struct json *j);
bool json_is_int(const struct json *j);
bool json_is_number(const struct json *j);
bool json_is_bool(const struct json *j);
bool json_is_null(const struct json *j);          // NULL or the value null
const char *json_described(const struct json *j); // what a value is, for messages: "nothing", "a text", "a list", ..

struct json *json_get(const struct json *object, const char *key); // NULL: no such key, or not an object
size_t json_count(const struct json *j);                           // elements or members; 0 for other values
struct json *json_at(const struct json *array, size_t i);          // NULL: no such element, or not an array
const char *json_text(const struct json *j); // UTF-8, may contain NULs: see json_text_length; "" if not a string
size_t json_text_length(const struct json *j);
int64_t json_int(const struct json *j);   // 0 if not an integer
double json_number(const struct json *j); // of an integer or real
bool json_bool(const struct json *j);

void json_drop(struct json *object, const char *key); // a missing key is no error
// Adds the value to the digest: types, strings, numbers, arrays in their order, members of objects sorted by key.
void json_digest(const struct json *j, struct digest *d);

// Iterates over the members of an object, in the order of the text:
//     for (void *at = json_first(o); at; at = json_next(o, at)) use(json_key(at), json_value(at));
void *json_first(const struct json *object);
void *json_next(const struct json *object, void *at);
const char *json_key(void *at);
struct json *json_value(void *at);

// Building. json_set and json_push take ownership of the value.
struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_new_text(const char *s); // invalid UTF-8 bytes become U+FFFD; NULL: null
struct json *json_new_text_n(const char *s, size_t n);
struct json *json_new_int(int64_t v);
struct json *json_new_number(double v); // not finite: null
struct json *json_new_bool(bool v);
struct json *json_clone(const struct json *j); // deep
struct json *json_new_null(void);
struct json *json_new_ids(const int32_t *id, size_t n); // an array of integers
void json_set(struct json *object, const char *key, struct json *value);
void json_push(struct json *array, struct json *value);
char *json_write(const struct json *j);    // one line, keys in insertion order; free() it
void json_print(struct json *j, FILE *to); // writes that line and its end; frees j

// Several members at once: json_add(j, JSON("n", 1), JSON("name", text)); json_object_of(JSON("n", 1)) is a new object. A value is a bool, a
// number, a text (NULL: null) or JSON, which is taken over. A comparison is an int in C: json_new_bool(a > b).
struct json_member {
    const char *key;
    struct json *value;
};
struct json *json_add_members(struct json *object, const struct json_member *member, size_t n); // returns the object
struct json *json_itself(struct json *j);
#define JSON(name, of) \
    (struct json_member) \
    { \
        name, _Generic((of), \
            bool: json_new_bool, \
            float: json_new_number, \
            double: json_new_number, \
            char *: json_new_text, \
            const char *: json_new_text, \
            struct json *: json_itself, \
            default: json_new_int)(of) \
    }
#define json_add(object, ...) \
    json_add_members(object, (const struct json_member[]){ __VA_ARGS__ }, \
                     sizeof((const struct json_member[]){ __VA_ARGS__ }) / sizeof(struct json_member))
#define json_object_of(...) json_add(json_new_object(), __VA_ARGS__)
