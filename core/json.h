// json.h - reads and writes JSON by Jansson, whose json_t is `struct json` here, and adds what Jansson lacks. It is the
// only file that includes jansson.h.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define json_t json
#include <jansson.h>
#undef json_t
#undef json_is_null

struct digest;
struct error;

// ---- Jansson's functions

// The functions that read return NULL, 0 or false for NULL and for a value of another type. Values inside another are
// borrowed from it.
#define json_free json_decref // frees a root
#define json_is_text json_is_string
#define json_is_int json_is_integer
#define json_is_bool json_is_boolean // json_is_object, json_is_array and json_is_number exist as well
#define json_get json_object_get     // member of an object
#define json_at json_array_get       // element of an array
#define json_int json_integer_value
#define json_number json_number_value // value of an integer or real
#define json_bool json_is_true
#define json_text_length json_string_length
#define json_clone json_deep_copy
#define json_drop json_object_del // a missing key is no error
#define json_new_object json_object
#define json_new_array json_array
#define json_new_int json_integer
#define json_new_null json_null
#define json_push json_array_append_new // takes ownership of the value

// Iterates over the members of an object, in the order of the text:
//     for (void *at = json_first(o); at; at = json_next(o, at)) use(json_key(at), json_value(at));
#define json_first(object) json_object_iter((struct json *)(uintptr_t)(object))
#define json_next(object, at) json_object_iter_next((struct json *)(uintptr_t)(object), at)
#define json_key json_object_iter_key
#define json_value json_object_iter_value

// ---- reading

// Parses strict JSON: duplicate keys, trailing text, invalid UTF-8 and too deep nesting are errors. On failure returns
// NULL with err set to what, line and column.
struct json *json_parse(const char *text, size_t n, const char *what, struct error *err);
// Parses a text that begins at this line of a file.
struct json *json_parse_line(const char *text, size_t n, const char *what, int line, struct error *err);
struct json *json_read(const char *path,
                       struct error *err); // reads a whole regular file of at most INPUT_SETTINGS bytes
                                           // (core/files/input.h)

bool json_is_null(const struct json *j); // NULL or the value null
// Describes a value for messages: "nothing", "a text", "a list", ..
const char *json_described(const struct json *j);
const char *json_text(const struct json *j); // UTF-8, may contain NULs: see json_text_length; "" if not a string
size_t json_count(const struct json *j);     // elements or members; 0 for other values
// Adds the value to the digest: types, strings, numbers, arrays in their order, members of objects sorted by key.
void json_digest(const struct json *j, struct digest *d);

// ---- building

struct json *json_new_text(const char *s); // invalid UTF-8 bytes become U+FFFD; NULL: null
struct json *json_new_text_n(const char *s, size_t n);
struct json *json_new_number(double v); // not finite: null
struct json *json_new_bool(bool v);
struct json *json_new_ids(const int32_t *id, size_t n);                  // an array of integers
struct json *json_choices(const char *choices);                          // the words of "a|b", an array
void json_set(struct json *object, const char *key, struct json *value); // takes ownership of the value
char *json_write(const struct json *j);                                  // one line, keys in insertion order; free() it
void json_print(struct json *j, FILE *to);                               // writes that line and its end; frees j

// Adds several members at once: json_add(j, JSON("n", 1), JSON("name", text)); json_object_of(JSON("n", 1)) makes a new
// object. A value is a bool, a number, a text (NULL: null) or JSON, which is taken over. A comparison is an int in C:
// json_new_bool(a > b).
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
