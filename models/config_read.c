// config_read.c - reads a configuration, whichever file has it.
#include "models/config_readers.h"

#include "core/error.h"
#include "core/files/input.h"
#include "core/json.h"
#include "core/memory.h"

// text: read only what concerns text.
static bool read(const char *path, bool text, struct model_config *to, struct error *err)
{
    struct digest *d = digest_begin();
    const bool directory = file_is_directory(path), other = text && !directory && !ends_with(path, ".gguf");
    *to = (struct model_config){ .path = xstrdup(path), .bos = -1, .special_tokens = json_new_object() };
    to->file = directory ? xformat("%s/config.json", path) : xstrdup(path);
    bool ok = other;
    if (directory)
        ok = config_from_directory(path, text, d, to, err);
    else if (!text && ends_with(path, ".safetensors"))
        fail(err, "%s: this file has weights only; name the directory, which has config.json", path);
    else if (!other)
        ok = config_from_gguf(path, text, d, to, err);
    to->hash = digest_end(d);
    ok = ok && (text || config_check(to, err));
    if (!ok)
        config_free(to);
    return ok;
}

bool config_read(const char *path, struct model_config *to, struct error *err)
{
    return read(path, false, to, err);
}

bool config_read_text(const char *path, struct model_config *to, struct error *err)
{
    return read(path, true, to, err);
}
