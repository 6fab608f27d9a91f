#include "commands/checkpoint/head_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/safetensors.h"

static bool write_text(const char *path, const char *text, struct error *err)
{
    struct part *part = part_begin(path, err);
    if (part == NULL)
        return false;
    part_write(part, text, strlen(text));
    return part_end(part, err);
}

bool head_folder_write(const char *to, const struct safetensor *tensor, size_t n, part_put *put, void *context,
                       const char *config, struct error *err)
{
    char *part = xformat("%s.part", to), *weights = xformat("%s/model.safetensors", part),
         *config_path = xformat("%s/config.json", part);
    bool ok = mkdir(part, 0777) == 0 || fail(err, "%s: cannot be made: %s", part, strerror(errno));
    if (ok) {
        ok = safetensors_write(weights, tensor, n, NULL, put, context, err) && write_text(config_path, config, err) &&
             (rename(part, to) == 0 || fail(err, "%s: cannot be renamed: %s", to, strerror(errno)));
        if (!ok) {
            unlink(weights);
            unlink(config_path);
            rmdir(part);
        }
    }
    free(part);
    free(weights);
    free(config_path);
    return ok;
}
