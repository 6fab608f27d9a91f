// report_figures.c - `speclab report --html FILE --svg FOLDER --pdf FOLDER`: reads each figure once, draws its panels, and writes the files.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "results/figures/figures.h"
#include "results/output_files.h"
#include "results/report.h"
#include "results/report_parts.h"
#include "results/tally.h"

extern const char figure_css[];

static bool draw(const struct figure *f, struct drawing *to, struct error *err)
{
    bool ok = true;
    *to = (struct drawing){ .figure = f };
    to->panel = figure_panels(f, &to->n);
    to->svg = xcalloc((size_t)to->n + 1, sizeof(*to->svg));
    for (int i = 0; i < to->n && ok; i++)
        ok = panel_draw(f, &to->panel[i], PICTURE_SVG, &to->svg[i], err);
    return ok;
}

// A picture of its own: the style stands within it.
static bool write_svg(const struct drawing *d, const char *folder, struct text *out, struct error *err)
{
    bool ok = output_folder(folder, err);
    for (int i = 0; i < d->n && ok; i++) {
        struct text file = { 0 };
        const char *svg = d->svg[i].s, *rest = strchr(svg, '>');
        char *path = xformat("%s/%s-%d.svg", folder, d->figure->kind->name, i + 1);
        text_puts(&file, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
        text_add(&file, svg, (size_t)(rest - svg));
        text_printf(&file, ">\n<style>\n%s</style>%s", figure_css, rest + 1);
        ok = output_file(path, &file, out, err);
        free(path);
        free(file.s);
    }
    return ok;
}

static bool write_pdf(const struct drawing *d, const char *folder, struct text *out, struct error *err)
{
    bool ok = output_folder(folder, err);
    for (int i = 0; i < d->n && ok; i++) {
        struct text file = { 0 };
        char *path = xformat("%s/%s-%d.pdf", folder, d->figure->kind->name, i + 1);
        ok = panel_draw(d->figure, &d->panel[i], PICTURE_PDF, &file, err) && output_file(path, &file, out, err);
        free(path);
        free(file.s);
    }
    return ok;
}

static void drawing_free(struct drawing *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->svg[i].s);
    free(d->svg);
    panels_free(d->panel, d->n);
}

bool report_figures(struct store *s, const struct comparisons *all, const struct report_options *o, struct text *out,
                    struct error *err)
{
    struct figure *figure = xcalloc((size_t)figure_kinds_n, sizeof(*figure));
    struct drawing *drawing = xcalloc((size_t)figure_kinds_n, sizeof(*drawing));
    bool ok = true;
    for (int i = 0; i < figure_kinds_n && ok; i++)
        ok = figure_read(&figure_kinds[i], s, all, &figure[i], err) && draw(&figure[i], &drawing[i], err);
    if (ok && o->html != NULL) {
        struct text page = { 0 };
        ok = page_write(s, o->experiment, all, drawing, figure_kinds_n, &page, err) &&
             output_file(o->html, &page, out, err);
        free(page.s);
    }
    for (int i = 0; i < figure_kinds_n && ok && o->svg != NULL; i++)
        ok = write_svg(&drawing[i], o->svg, out, err);
    for (int i = 0; i < figure_kinds_n && ok && o->pdf != NULL; i++)
        ok = write_pdf(&drawing[i], o->pdf, out, err);
    for (int i = 0; i < figure_kinds_n; i++) {
        drawing_free(&drawing[i]);
        figure_free(&figure[i]);
    }
    free(drawing);
    free(figure);
    return ok;
}
