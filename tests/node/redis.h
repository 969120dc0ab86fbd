/* SPDX-License-Identifier: Apache-2.0 */
/* A real redis-server (or valkey-server) for a test: on a free port of loopback, with nothing on disk, gone with the
 * process that started it; and a client that says to it what a test wants. */
#ifndef PKV_TESTS_REDIS_H
#define PKV_TESTS_REDIS_H

#include "support/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    pid_t pid; /* 0: does not run */
    uint16_t port;
    const char *host;        /* NULL = loopback */
    const char *options[12]; /* more of its command line, NULL at the end */
    const char *password;    /* for the client below */
} redis;

/* ---- the client: one connection for each command */

/* The reply as it comes, terminated besides; NULL: no connection. For the caller to free. */
static inline char *redis_say_bytes(const redis *r, const char *const *words, const size_t *sizes, int count,
                                    size_t *length) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(r->port)};
    to.sin_addr.s_addr = r->host != NULL ? inet_addr(r->host) : htonl(INADDR_LOOPBACK);
    const int line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval limit = {10, 0};
    setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(line, (struct sockaddr *)&to, sizeof to) != 0) {
        close(line);
        return NULL;
    }
    FILE *out = fdopen(line, "r+");
    setvbuf(out, NULL, _IONBF, 0);
    if (r->password != NULL) {
        char okay[256];
        fprintf(out, "*2\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n", strlen(r->password), r->password);
        assert_non_null(fgets(okay, sizeof okay, out));
    }
    size_t size = 64;
    for (int i = 0; i < count; ++i) size += sizes[i] + 32;
    char *message = malloc(size);
    size_t used = (size_t)sprintf(message, "*%d\r\n", count);
    for (int i = 0; i < count; ++i) {
        used += (size_t)sprintf(message + used, "$%zu\r\n", sizes[i]);
        memcpy(message + used, words[i], sizes[i]);
        used += sizes[i];
        memcpy(message + used, "\r\n", 2);
        used += 2;
    }
    assert_int_equal(send(line, message, used, MSG_NOSIGNAL), used);
    shutdown(line, SHUT_WR); /* the server answers, and closes */
    free(message);
    char *reply = NULL;
    size_t got = 0;
    for (ssize_t more = 1; more > 0; got += (size_t)(more > 0 ? more : 0)) {
        reply = realloc(reply, got + 65537);
        more = recv(line, reply + got, 65536, 0);
    }
    reply[got] = '\0';
    if (length != NULL) *length = got;
    fclose(out);
    return reply;
}

/* Words of text, NULL at the end. */
#define redis_say(r, ...) redis_say_words((r), (const char *const[]){__VA_ARGS__, NULL})
static inline char *redis_say_words(const redis *r, const char *const *words) {
    size_t sizes[16];
    int count = 0;
    for (; words[count] != NULL; ++count) sizes[count] = strlen(words[count]);
    return redis_say_bytes(r, words, sizes, count, NULL);
}

/* A command that has to succeed. */
#define redis_do(r, ...) free(redis_good(redis_say(r, __VA_ARGS__)))
static inline char *redis_good(char *reply) {
    assert_non_null(reply);
    if (*reply == '\0' || *reply == '-') fail_msg("the server says: %s", reply);
    return reply;
}
/* A number that a command gives. */
#define redis_number(r, ...) redis_number_of(redis_say(r, __VA_ARGS__))
static inline long long redis_number_of(char *reply) {
    (void)redis_good(reply);
    assert_int_equal(*reply, ':');
    const long long number = strtoll(reply + 1, NULL, 10);
    free(reply);
    return number;
}
/* What GET gives, or whatever else answers with one string; for the caller to free. */
static inline char *redis_bulk(char *reply, size_t *length) {
    char *at = redis_good(reply);
    assert_int_equal(*at, '$');
    const long size = strtol(at + 1, &at, 10);
    assert_true(size >= 0);
    char *text = malloc((size_t)size + 1);
    memcpy(text, at + 2, (size_t)size);
    text[size] = '\0';
    if (length != NULL) *length = (size_t)size;
    free(reply);
    return text;
}
/* How many names match a pattern; the last of them in `name`, if that is not NULL. */
static inline int redis_names(const redis *r, const char *pattern, char *name, size_t capacity) {
    char *reply = redis_good(redis_say(r, "KEYS", pattern)), *at = reply;
    assert_int_equal(*at, '*');
    const int count = (int)strtol(at + 1, &at, 10);
    for (int i = 0; i < count; ++i) {
        const long size = strtol(at + 3, &at, 10); /* behind \r\n$ */
        if (name != NULL) (void)snprintf(name, capacity, "%.*s", (int)size, at + 2);
        at += 2 + size;
    }
    free(reply);
    return count;
}

/* ---- the server */

static inline uint16_t free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at) | getsockname(s, (struct sockaddr *)&at, &size), 0);
    close(s);
    return ntohs(at.sin_port);
}

/* Becomes the server. */
static inline void redis_exec(uint16_t port, const char *host, const char *const *options) {
    char number[8];
    (void)snprintf(number, sizeof number, "%u", port);
    const char *words[32] = {
        "redis-server", "--port",           number, "--bind",      host, "--save", "", "--appendonly",
        "no",           "--protected-mode", "no",   "--daemonize", "no"};
    int count = 13;
    for (; *options != NULL; ++options) words[count++] = *options;
    const int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp("redis-server", (char *const *)words);
    words[0] = "valkey-server";
    execvp("valkey-server", (char *const *)words);
    _exit(127);
}

/* Starts it on the port that it had before, or on a free one; false when there is none on this machine. */
static inline bool redis_start(redis *r) {
    const bool again = r->port != 0;
    for (int turn = 0; turn < 5; ++turn) {
        if (!again) r->port = free_port();
        r->pid = fork();
        assert_true(r->pid >= 0);
        if (r->pid == 0) redis_exec(r->port, "127.0.0.1", r->options);
        for (int waited = 0; waited < 60000; ++waited) {
            char *reply = redis_say(r, "PING");
            const bool there = reply != NULL && *reply != '\0' && strncmp(reply, "-LOADING", 8) != 0;
            free(reply);
            int status = 0;
            if (waitpid(r->pid, &status, WNOHANG) ==
                r->pid) { /* nobody else answers in its place: the port was not free */
                r->pid = 0;
                if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
                    print_message("no redis-server here\n");
                    return false;
                }
                break;
            }
            if (there) return true;
            usleep(1000);
        }
        if (r->pid != 0) fail_msg("redis-server does not answer");
    }
    fail_msg("redis-server does not start");
    return false;
}

static inline void redis_end(redis *r) {
    if (r->pid == 0) return;
    kill(r->pid, SIGKILL);
    kill(r->pid, SIGCONT);
    waitpid(r->pid, NULL, 0);
    r->pid = 0;
}

#endif
