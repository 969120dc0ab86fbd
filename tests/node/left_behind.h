/* SPDX-License-Identifier: Apache-2.0 */
/* What tests with a second process look for when it has gone. */
#ifndef PKV_TESTS_LEFT_BEHIND_H
#define PKV_TESTS_LEFT_BEHIND_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Files of the shared memory provider that belong to a process. */
static inline int files_of(pid_t pid, bool and_remove) {
    char begin[32], path[300];
    const int length = snprintf(begin, sizeof begin, "%d:", (int)pid);
    int count = 0;
    DIR *folder = opendir("/dev/shm");
    if (folder == NULL) return 0;
    for (struct dirent *at; (at = readdir(folder)) != NULL;) {
        if (strncmp(at->d_name, begin, (size_t)length) != 0) continue;
        ++count;
        snprintf(path, sizeof path, "/dev/shm/%s", at->d_name);
        if (and_remove) unlink(path);
    }
    closedir(folder);
    return count;
}

#endif
