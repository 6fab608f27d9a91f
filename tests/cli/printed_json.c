// printed_json.c - see printed_json.h.
#include "tests/cli/printed_json.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/cli/child_process.h"

struct json *generated_json(const char *arguments)
{
    struct child_result s = child_run("generate --json %s", arguments);
    child_expect_success(&s, arguments);
    struct json *j = child_result_json(&s);
    int64_t kept = 0, accepted = 0;
    const struct json *steps = json_get(j, "steps");
    for (size_t i = 0; i < json_count(steps); i++) {
        const struct json *step = json_at(steps, i);
        kept += json_int(json_get(step, "kept"));
        accepted += json_int(json_get(step, "accepted"));
        assert_true(json_int(json_get(step, "accepted")) <= json_int(json_get(step, "depth")));
        assert_true(json_int(json_get(step, "depth")) <= json_int(json_get(step, "drafted")));
        assert_true(json_int(json_get(step, "verify_ns")) > 0);
    }
    assert_int_equal(kept, json_count(json_get(j, "new_ids")));
    assert_true(accepted <= kept);
    child_result_free(&s);
    return j;
}

void assert_same_ids(const struct json *a, const struct json *b, const char *what)
{
    a = json_get(a, "new_ids");
    b = json_get(b, "new_ids");
    assert_int_equal(json_count(a), json_count(b));
    for (size_t i = 0; i < json_count(a); i++)
        if (json_int(json_at(a, i)) != json_int(json_at(b, i)))
            fail_msg("%s: token %zu is %lld, expected %lld", what, i, (long long)json_int(json_at(b, i)),
                     (long long)json_int(json_at(a, i)));
}

size_t printed_lines(const struct child_result *s, struct json **to, size_t capacity)
{
    size_t n = 0;
    struct error err;
    for (const char *at = s->out; *at != '\0' && n < capacity; n++) {
        size_t length = strcspn(at, "\n");
        to[n] = json_parse(at, length, "line", &err);
        assert_non_null(to[n]);
        at += length + (at[length] == '\n');
    }
    return n;
}

char *ids_of(const char *text, const char *flags)
{
    struct json *line[1], *in = json_new_object();
    json_set(in, "text", json_new_text(text));
    char *written = json_write(in);
    struct child_result s = child_run_with(written, "inspect --tokenize %s %s", flags, models.gguf);
    child_expect_success(&s, "tokenize");
    assert_int_equal(printed_lines(&s, line, 1), 1);
    char *ids = json_write(json_get(line[0], "ids"));
    ids[strlen(ids) - 1] = '\0';
    memmove(ids, ids + 1, strlen(ids));
    json_free(line[0]);
    json_free(in);
    free(written);
    child_result_free(&s);
    return ids;
}
