// store_schema.h - the tables and views that a database of results has, and the check that a file has these and nothing
// in their place.
#pragma once
#include <stdbool.h>

struct error;
struct store;

enum { SCHEMA_TABLES = 4, SCHEMA_VIEWS = 3 };
extern const char *const schema_tables[SCHEMA_TABLES]; // results/schema*.sql
extern const char *const schema_views[SCHEMA_VIEWS];   // results/views*.sql, ordered as they are made

// Limits in bytes of what is stored, also by this program: a name; and an experiment's file, settings with all defaults
// filled in, and the texts that show them.
enum { SCHEMA_NAME_BYTES = 1 << 20, SCHEMA_SETTINGS_BYTES = 16 << 20 };
// Checks whether columns of a run or a test may have these values. NULL is allowed.
struct shown_settings {
    const char *experiment, *settings, *file, *sampling, *drafter, *rule;
};
bool schema_fits(const struct shown_settings *s, struct error *err);

int schema_version(void); // version of the tables in schema.sql
// path: the file's, for messages.
bool schema_check(struct store *s, const char *path, struct error *err);
bool schema_has_views(struct store *s); // returns false on failure as well
