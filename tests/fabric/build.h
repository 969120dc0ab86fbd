/* SPDX-License-Identifier: Apache-2.0 */
/* Where the libraries of the variant under test are. */
#ifndef PKV_TESTS_BUILD_H
#define PKV_TESTS_BUILD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* A path below the folder that the variant under test was built in. */
static inline void build_path(char *path, size_t bytes, const char *below) {
    char self[4096];
    const char *build = getenv("BUILD");
    if (build == NULL) {
        const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        if (length < 0) exit(2);
        self[length] = '\0';
        for (int i = 0; i < 3; ++i) *strrchr(self, '/') = '\0'; /* tests/fabric/program */
        build = self;
    }
    snprintf(path, bytes, "%s/%s", build, below);
}

#endif
