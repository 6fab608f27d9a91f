#include "commands/distill/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/json_lines.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"

const char *const drop_names[DROPS] = { "", "excluded", "repeated", "short", "unended", "special", "empty", "long" };
const char *const drop_means[DROPS] = {
    "",
    "a user's turn shares 13 words in a row with an excluded file",
    "repeats an earlier prompt",
    "an invented turn of fewer than 3 words",
    "an invented turn that did not end",
    "a special token within a text",
    "an empty answer, or a prompt of which the template makes no text",
    "a prompt that does not fit into the context",
};

// ---- settings

static bool settings_agree(const char *path, const struct json *now, const struct json *then, struct error *err)
{
    for (void *at = json_first(now); at != NULL; at = json_next(now, at)) {
        const struct json *old = json_get(then, json_key(at));
        char *a = old != NULL ? json_write(old) : xstrdup("nothing"), *b = json_write(json_value(at));
        const bool same = strcmp(a, b) == 0;
        if (!same)
            fail(err,
                 "%s was begun with %s %.200s, found %.200s: the same options continue it, another --out begins anew",
                 path, json_key(at), a, b);
        free(a);
        free(b);
        if (!same)
            return false;
    }
    return true;
}

static bool settings_write_file(const char *path, const struct json *settings, struct error *err)
{
    struct part *p = part_begin(path, err);
    if (p == NULL)
        return false;
    char *text = json_write(settings);
    part_write(p, text, strlen(text));
    part_write(p, "\n", 1);
    free(text);
    return part_end(p, err);
}

static bool check_settings(const struct output *o, const struct json *settings, bool begun, struct error *err)
{
    char *path = xformat("%s.settings.json", o->path);
    bool ok;
    if (file_exists(path)) {
        struct json *then = json_read(path, err);
        ok = then != NULL && settings_agree(o->path, settings, then, err);
        json_free(then);
    } else if (begun) {
        ok = fail(err, "%s is not empty and has no %s: expected a file that distill has begun, or a new one", o->path,
                  path);
    } else {
        ok = settings_write_file(path, settings, err);
    }
    free(path);
    return ok;
}

// ---- files

static int open_lines(const char *path, struct error *err)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        fail(err, "%s: cannot write it: %s", path, strerror(errno));
        return -1;
    }
    struct stat st;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        fail(err, "%s: expected a regular file, which a later run can continue", path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        fail(err, "%s: another process writes it", path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

// Cuts what follows the last newline.
static bool cut_torn_line(int fd, const char *path, struct error *err)
{
    off_t end = lseek(fd, 0, SEEK_END), keep = end;
    char c = '\0';
    while (keep > 0 && pread(fd, &c, 1, keep - 1) == 1 && c != '\n')
        keep--;
    return end == keep || ftruncate(fd, keep) == 0 ||
           fail(err, "%s: cannot cut its last line, which is incomplete: %s", path, strerror(errno));
}

static bool write_line(int fd, const char *path, const struct json *line, struct error *err)
{
    char *json = json_write(line), *text = xformat("%s\n", json);
    const size_t n = strlen(text);
    ssize_t written;
    do
        written = write(fd, text, n);
    while (written < 0 && errno == EINTR);
    free(json);
    free(text);
    if (written < 0)
        return fail(err, "%s: cannot write: %s", path, strerror(errno));
    return written == (ssize_t)n ||
           fail(err, "%s: cannot write: a line of %zu bytes, of which %zd fit", path, n, written);
}

static struct hash hash_of_id(const char *id)
{
    return hash_of(id, strlen(id));
}

// ---- reading them

struct reading {
    struct output *output;
    void (*each)(void *self, const char *id, const char *user);
    void *self;
    bool dropped; // which file
};

static const char *first_user(const struct json *conversations)
{
    for (size_t i = 0; i < json_count(conversations); i++)
        if (strcmp(json_text(json_get(json_at(conversations, i), "role")), "user") == 0)
            return json_text(json_get(json_at(conversations, i), "content"));
    return "";
}

static bool read_conversation(struct reading *r, const struct json_lines *l, struct error *err)
{
    const struct json *id = json_get(l->object, "id"), *mask = json_get(l->object, "loss_mask");
    const struct json *conversations = json_get(l->object, "conversations");
    if (!json_is_text(id) || !json_is_array(mask) || !json_is_array(conversations))
        return json_lines_fail(l, err, "expected a conversation with id, conversations and loss_mask");
    for (size_t i = 0; i < json_count(mask); i++)
        r->output->answer_tokens += json_int(json_at(mask, i)) == 1;
    r->output->conversations++;
    r->each(r->self, json_text(id), first_user(conversations));
    return true;
}

static bool read_dropped(struct reading *r, const struct json_lines *l, struct error *err)
{
    const struct json *id = json_get(l->object, "id"), *user = json_get(l->object, "user");
    const char *reason = json_text(json_get(l->object, "reason"));
    int which = 1;
    while (which < DROPS && strcmp(reason, drop_names[which]) != 0)
        which++;
    if (!json_is_text(id) || which == DROPS)
        return json_lines_fail(l, err, "expected an id and a reason that distill knows");
    r->output->dropped[which]++;
    r->each(r->self, json_text(id), json_text(user));
    return true;
}

static bool read_lines(struct reading *r, const char *path, struct error *err)
{
    struct json_lines l;
    if (!json_lines_open(&l, path, err))
        return false;
    bool ok = true;
    while (ok && json_lines_next(&l, err)) {
        ok = r->dropped ? read_dropped(r, &l, err) : read_conversation(r, &l, err);
        const char *id = json_text(json_get(l.object, "id"));
        if (ok && output_has(r->output, id))
            ok = json_lines_fail(&l, err, "expected each id once, found \"%s\" again", id);
        if (ok)
            hash_map_add(&r->output->done, hash_of_id(id), 0);
    }
    ok = ok && !l.failed;
    json_lines_close(&l);
    return ok;
}

bool output_open(struct output *o, const char *path, const struct json *settings,
                 void (*each)(void *self, const char *id, const char *user), void *self, struct error *err)
{
    *o = (struct output){
        .path = xstrdup(path), .dropped_path = xformat("%s.dropped", path), .fd = -1, .dropped_fd = -1
    };
    struct reading r = { o, each, self, false };
    struct stat st;
    if ((o->fd = open_lines(path, err)) < 0 || fstat(o->fd, &st) != 0 ||
        !check_settings(o, settings, st.st_size > 0, err) || (o->dropped_fd = open_lines(o->dropped_path, err)) < 0 ||
        !cut_torn_line(o->fd, path, err) || !cut_torn_line(o->dropped_fd, o->dropped_path, err) ||
        !read_lines(&r, path, err))
        return false;
    r.dropped = true;
    return read_lines(&r, o->dropped_path, err);
}

bool output_has(const struct output *o, const char *id)
{
    return hash_map_find(&o->done, hash_of_id(id)) != NULL;
}

bool output_write(struct output *o, const struct json *conversation, int answer_tokens, struct error *err)
{
    if (!write_line(o->fd, o->path, conversation, err))
        return false;
    hash_map_add(&o->done, hash_of_id(json_text(json_get(conversation, "id"))), 0);
    o->conversations++;
    o->answer_tokens += answer_tokens;
    return true;
}

bool output_drop(struct output *o, const char *id, enum drop reason, const char *user, struct error *err)
{
    struct json *line = json_new_object();
    json_set(line, "id", json_new_text(id));
    json_set(line, "reason", json_new_text(drop_names[reason]));
    json_set(line, "user", json_new_text(user));
    const bool ok = write_line(o->dropped_fd, o->dropped_path, line, err);
    json_free(line);
    hash_map_add(&o->done, hash_of_id(id), 0);
    o->dropped[reason] += ok;
    return ok;
}

void output_close(struct output *o)
{
    if (o->path == NULL)
        return;
    if (o->fd >= 0)
        close(o->fd);
    if (o->dropped_fd >= 0)
        close(o->dropped_fd);
    hash_map_free(&o->done);
    free(o->path);
    free(o->dropped_path);
    *o = (struct output){ 0 };
}
