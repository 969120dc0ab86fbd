/* SPDX-License-Identifier: Apache-2.0 */
#include "svg.h"

#include <inttypes.h>
#include <math.h>

#define WIDTH 860.0
#define HEIGHT 520.0
#define LEFT 76.0
#define RIGHT 30.0
#define TOP 104.0
#define BOTTOM 66.0

/* What the axes span: x is logarithmic. */
typedef struct axes {
    double x_min, x_max; /* capacities */
    double y_max;        /* hit rate; the axis starts at 0 */
    double y_step;
} axes;

static double x_of(const axes *a, double capacity) {
    return LEFT + (WIDTH - LEFT - RIGHT) * log(capacity / a->x_min) / log(a->x_max / a->x_min);
}

static double y_of(const axes *a, double rate) { return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / a->y_max; }

static void text(FILE *f, const char *s) {
    for (; *s != '\0'; ++s) {
        switch (*s) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        default: fputc((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e ? '?' : *s, f); break;
        }
    }
}

static double smaller(double a, double b) { return a < b ? a : b; }

static double larger(double a, double b) { return a > b ? a : b; }

static axes make_axes(const svg_plot *plot) {
    const double first = (double)plot->points[0].capacity, chosen = (double)plot->checked.capacity;
    const double last = (double)plot->points[plot->num_points - 1].capacity;
    const double rate = larger(plot->points[plot->num_points - 1].hit_rate, 0.01);
    axes a = {0.8 * smaller(first, chosen), 1.25 * larger(last, chosen), 0, 0};
    /* The smallest round step that needs at most eight steps. */
    static const double steps[] = {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2};
    size_t s = 0;
    while (s + 1 < sizeof steps / sizeof *steps && rate * 1.08 / steps[s] > 8) ++s;
    a.y_step = steps[s];
    a.y_max = a.y_step * ceil(rate * 1.08 / a.y_step);
    return a;
}

static void draw_head(FILE *f, const svg_plot *plot) {
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#1f2937\">\n"
            "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(f, "<text x=\"%.1f\" y=\"32\" font-size=\"18\" font-weight=\"bold\">", LEFT);
    text(f, plot->title);
    fprintf(f, "</text>\n<text x=\"%.1f\" y=\"54\" fill=\"#6b7280\">", LEFT);
    text(f, plot->subtitle);
    fputs("</text>\n", f);
}

static void draw_y_axis(FILE *f, const axes *a) {
    for (int i = 0; i * a->y_step <= a->y_max * 1.0001; ++i) {
        const double rate = i * a->y_step, y = y_of(a, rate);
        fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", LEFT, y, WIDTH - RIGHT, y,
                i == 0 ? "#374151" : "#e5e7eb");
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*f %%</text>\n", LEFT - 8, y + 4.5,
                a->y_step < 0.01 ? 1 : 0, rate * 100);
    }
    fprintf(f, "<text transform=\"translate(20 %.1f) rotate(-90)\" text-anchor=\"middle\">hit rate</text>\n",
            TOP + (HEIGHT - TOP - BOTTOM) / 2);
}

/* "3,000" */
static void number(FILE *f, uint64_t n) {
    if (n >= 1000) {
        number(f, n / 1000);
        fprintf(f, ",%03" PRIu64, n % 1000);
    } else
        fprintf(f, "%" PRIu64, n);
}

static void draw_x_axis(FILE *f, const axes *a) {
    const double base = HEIGHT - BOTTOM;
    for (uint64_t decade = 1; (double)decade <= a->x_max; decade *= 10) {
        for (uint64_t digit = 1; digit <= 9; ++digit) {
            const double capacity = (double)(decade * digit), x = x_of(a, capacity);
            if (capacity < a->x_min || capacity > a->x_max) continue;
            const bool labelled = digit == 1 || digit == 3;
            fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#374151\"/>\n", x, base, x,
                    base + (labelled ? 7 : 4));
            if (!labelled) continue;
            fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x, base + 22);
            number(f, decade * digit);
            fputs("</text>\n", f);
        }
    }
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">cache capacity in blocks of 512 tokens</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 18);
}

static void draw_unlimited(FILE *f, const axes *a, double rate) {
    const double y = y_of(a, rate);
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#b45309\" stroke-dasharray=\"6 4\"/>\n",
            LEFT, y, WIDTH - RIGHT, y);
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#b45309\">unlimited: %.2f %%</text>\n", LEFT + 10, y - 7,
            rate * 100);
}

static void draw_points(FILE *f, const axes *a, const svg_plot *plot) {
    fputs("<polyline fill=\"none\" stroke=\"#2563eb\" stroke-width=\"2\" points=\"", f);
    for (size_t i = 0; i < plot->num_points; ++i)
        fprintf(f, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(a, (double)plot->points[i].capacity),
                y_of(a, plot->points[i].hit_rate));
    fputs("\"/>\n", f);
    for (size_t i = 0; i < plot->num_points; ++i) {
        const double x = x_of(a, (double)plot->points[i].capacity), y = y_of(a, plot->points[i].hit_rate);
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#2563eb\"/>\n", x, y);
        /* Below the point, where a rising curve is not; the last one is labelled by the line of the unlimited cache. */
        if (i + 1 < plot->num_points)
            fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"11\" fill=\"#1d4ed8\">%.1f</text>\n", x + 8, y + 15,
                    plot->points[i].hit_rate * 100);
    }
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"none\" stroke=\"#dc2626\" stroke-width=\"2\"/>\n",
            x_of(a, (double)plot->checked.capacity), y_of(a, plot->checked.hit_rate));
}

static void draw_legend(FILE *f) {
    const double x = LEFT + 5, y = 78;
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#2563eb\"/>\n", x, y);
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">measured, least recently used</text>\n", x + 12, y + 4.5);
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"none\" stroke=\"#dc2626\" stroke-width=\"2\"/>\n",
            x + 236, y);
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">the run with every byte checked</text>\n", x + 252, y + 4.5);
}

bool svg_write(FILE *file, const svg_plot *plot) {
    const axes a = make_axes(plot);
    draw_head(file, plot);
    draw_y_axis(file, &a);
    draw_x_axis(file, &a);
    draw_unlimited(file, &a, plot->points[plot->num_points - 1].hit_rate);
    draw_points(file, &a, plot);
    draw_legend(file);
    fputs("</svg>\n", file);
    return fflush(file) == 0 && !ferror(file);
}
