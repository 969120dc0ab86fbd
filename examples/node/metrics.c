/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "metrics.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 2 };

/* "host:port", the host perhaps in brackets. */
static bool split(const char *text, char *host, size_t capacity, const char **port) {
    const char *const colon = strrchr(text, ':');
    size_t size = colon != NULL ? (size_t)(colon - text) : 0;
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        ++text;
        size -= 2;
    }
    if (size == 0 || size >= capacity) return false;
    memcpy(host, text, size);
    host[size] = '\0';
    *port = colon + 1;
    return true;
}

static bool name_of(int descriptor, char *out) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    char host[200], port[16];
    if (getsockname(descriptor, (struct sockaddr *)&at, &size) != 0 ||
        getnameinfo((struct sockaddr *)&at, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    (void)snprintf(out, 280, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
    return true;
}

bool metrics_listen(const char *host_port, int *descriptor, char *address) {
    char host[200];
    const char *port = NULL;
    struct addrinfo hints, *list = NULL;
    const int on = 1;
    *descriptor = -1;
    if (!split(host_port, host, sizeof host, &port)) {
        fprintf(stderr, "node: --metrics: '%s' is not of the form host:port\n", host_port);
        return false;
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const int error = getaddrinfo(host, port, &hints, &list);
    if (error != 0) {
        fprintf(stderr, "node: --metrics: %s: %s\n", host_port, gai_strerror(error));
        return false;
    }
    const int s = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
    const bool good = s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                      bind(s, list->ai_addr, list->ai_addrlen) == 0 && listen(s, 16) == 0 && name_of(s, address);
    if (!good) {
        fprintf(stderr, "node: --metrics: %s: %s\n", host_port, strerror(errno));
        if (s >= 0) (void)close(s);
    }
    freeaddrinfo(list);
    *descriptor = good ? s : -1;
    return good;
}

char *metrics_text(const pkv_prometheus_sources *sources) {
    uint64_t size = 0;
    pkv_status status = pkv_stats_prometheus(sources, NULL, 0, &size);
    while (status == PKV_OK) {
        const uint64_t capacity = size + size / 4 + 256; /* numbers grow */
        char *const text = malloc(capacity);
        if (text == NULL) return NULL;
        status = pkv_stats_prometheus(sources, text, capacity, &size);
        if (status == PKV_OK) return text;
        free(text);
        if (status == PKV_ERR_NO_SPACE) status = PKV_OK; /* size says what it takes by now */
    }
    return NULL;
}

static void send_all(int client, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t sent = send(client, text, left, MSG_NOSIGNAL);
        if (sent <= 0) return;
        text += sent;
        left -= (size_t)sent;
    }
}

static void answer(int client, const pkv_prometheus_sources *sources) {
    char request[2048], head[160];
    size_t size = 0;
    const time_t until = time(NULL) + LIMIT_SECONDS;
    request[0] = '\0';
    while (size + 1 < sizeof request && time(NULL) <= until && strstr(request, "\r\n\r\n") == NULL &&
           strstr(request, "\n\n") == NULL) {
        const ssize_t got = recv(client, request + size, sizeof request - 1 - size, 0);
        if (got <= 0) return;
        size += (size_t)got;
        request[size] = '\0';
    }
    if (strncmp(request, "GET /metrics ", 13) != 0) {
        send_all(client, "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    char *const text = metrics_text(sources);
    if (text == NULL) {
        send_all(client, "HTTP/1.0 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    (void)snprintf(head, sizeof head,
                   "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %zu\r\nConnection: "
                   "close\r\n\r\n",
                   strlen(text));
    send_all(client, head);
    send_all(client, text);
    free(text);
}

void metrics_answer(int descriptor, const pkv_prometheus_sources *sources) {
    const struct timeval limit = {LIMIT_SECONDS, 0};
    const int client = accept(descriptor, NULL, NULL);
    if (client < 0) return;
    (void)setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    answer(client, sources);
    (void)close(client);
}
