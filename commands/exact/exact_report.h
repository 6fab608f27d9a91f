// exact_report.h - prints a verdict, and stores it in the database.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct observed;
struct store;
struct verdict;

void exact_print(FILE *to, const struct verdict *v, const struct observed *seen, int64_t texts);
bool exact_store(struct store *s, int64_t id, const struct verdict *v, const struct observed *seen, struct error *err);
