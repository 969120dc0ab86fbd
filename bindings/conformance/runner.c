/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of a file against the C API.
 *
 *   conformance [--show] [FILE [CASE]]
 *
 * --show prints what each line gave: how expected values are found when a case is written, to be checked by hand. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    long cases, checks, failed;
    bool show;
    char name[128];
} progress;

static operation find_operation(const char *name) {
    static const named_operation *const lists[] = {pool_operations, table_operations, tier_operations, prefetch_operations};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; ++i)
        for (const named_operation *o = lists[i]; o->name != NULL; ++o)
            if (strcmp(o->name, name) == 0) return o->run;
    return NULL;
}

static const char *output(const line *l, const char *key) {
    for (int i = 0; i < l->num_outputs; ++i)
        if (strcmp(l->outputs[i].key, key) == 0) return l->outputs[i].value;
    return NULL;
}

static void check(progress *p, const line *l, const char *key, const char *got, const char *wanted) {
    ++p->checks;
    if (got != NULL && strcmp(got, wanted) == 0) return;
    char detail[256] = "";
    if (strcmp(key, "status") == 0 && strcmp(got, "OK") != 0) (void)pkv_last_error(detail, sizeof detail);
    fprintf(stderr, "FAIL %s, line %ld: %s: %s is %s, not %s  %s\n", p->name, l->number, l->op, key, got != NULL ? got : "nothing",
            wanted, detail);
    ++p->failed;
}

static void run_line(progress *p, char *text, long number) {
    line l = {.number = number};
    if (!parse_line(text, &l)) {
        ++p->failed;
        return;
    }
    const operation run = find_operation(l.op);
    if (run == NULL) {
        complain(&l, "there is no such operation");
        ++p->failed;
        return;
    }
    const pkv_status status = run(&l);
    const char *wanted_status = "OK";
    for (int i = 0; i < l.num_wanted; ++i)
        if (strcmp(l.wanted[i].key, "status") == 0) wanted_status = l.wanted[i].value;
    check(p, &l, "status", short_status(status), wanted_status);
    for (int i = 0; i < l.num_wanted; ++i) {
        if (strcmp(l.wanted[i].key, "status") == 0) continue;
        char *const wanted = expanded(l.wanted[i].value);
        check(p, &l, l.wanted[i].key, output(&l, l.wanted[i].key), wanted);
        free(wanted);
    }
    for (int i = 0; i < l.num_args; ++i)
        if (!l.args[i].used) complain(&l, "%s= means nothing here", l.args[i].key);
    if (l.broken) ++p->failed;
    if (p->show) {
        printf("%5ld %s status=%s", number, l.op, short_status(status));
        for (int i = 0; i < l.num_outputs; ++i) printf(" %s=%s", l.outputs[i].key, l.outputs[i].value);
        putchar('\n');
    }
    free_line(&l);
}

static int run_file(progress *p, FILE *file, const char *only) {
    static char text[65536];
    bool wanted = false;
    for (long number = 1; fgets(text, sizeof text, file) != NULL; ++number) {
        char *const hash = strchr(text, '#');
        if (hash != NULL) *hash = '\0';
        if (text[strspn(text, " \t\n")] == '\0') continue;
        if (sscanf(text, "case %127s", p->name) == 1) {
            end_objects();
            wanted = only == NULL || strcmp(only, p->name) == 0;
            if (wanted) ++p->cases;
            if (wanted && p->show) printf("case %s\n", p->name);
        } else if (wanted) {
            run_line(p, text, number);
        }
    }
    end_objects();
    printf("conformance: %ld cases, %ld checks, %ld failed\n", p->cases, p->checks, p->failed);
    return p->cases > 0 && p->failed == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    progress p = {.name = "(before the first case)"};
    int next = 1;
    if (next < argc && strcmp(argv[next], "--show") == 0) p.show = ++next > 0;
    const char *const path = next < argc ? argv[next] : "bindings/conformance/cases.txt";
    FILE *const file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return 2;
    }
    const int status = run_file(&p, file, next + 1 < argc ? argv[next + 1] : NULL);
    (void)fclose(file);
    return status;
}
