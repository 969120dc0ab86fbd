/* SPDX-License-Identifier: Apache-2.0 */
/* TLS, where hiredis has it: a server is believed if the system trusts its certificate, and if that is one for the
 * host that was asked for. Each case is a process of its own, since OpenSSL looks once for what the system trusts. */
#include "redis/redis_plugin.h"

static char folder[64], certificate[96], key[96], other[96], other_key[96];

static bool make_certificate(const char *names, const char *to, const char *key_to) {
    char command[512];
    (void)snprintf(
        command, sizeof command,
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=%s -out %s -keyout %s "
        "> /dev/null 2>&1",
        names, to, key_to);
    return system(command) == 0;
}

static bool begin(redis *r, uint16_t *tls_port) {
    static char number[8];
    if (!load()) return false;
    if (table->tls == 0) {
        print_message("hiredis %s has no TLS\n", table->hiredis);
        return false;
    }
    (void)snprintf(folder, sizeof folder, "/tmp/pkv-tls-%d", (int)getpid());
    (void)snprintf(certificate, sizeof certificate, "%s/cert.pem", folder);
    (void)snprintf(key, sizeof key, "%s/key.pem", folder);
    (void)snprintf(other, sizeof other, "%s/other.pem", folder);
    (void)snprintf(other_key, sizeof other_key, "%s/other-key.pem", folder);
    if (mkdir(folder, 0700) != 0 || !make_certificate("IP:127.0.0.1,DNS:localhost", certificate, key) ||
        !make_certificate("IP:127.0.0.2,DNS:elsewhere", other, other_key)) {
        print_message("no openssl here to make certificates with\n");
        return false;
    }
    *tls_port = free_port();
    (void)snprintf(number, sizeof number, "%u", *tls_port);
    const char *const options[] = {"--tls-port",
                                   number,
                                   "--tls-cert-file",
                                   certificate,
                                   "--tls-key-file",
                                   key,
                                   "--tls-ca-cert-file",
                                   certificate,
                                   "--tls-auth-clients",
                                   "no",
                                   NULL};
    memcpy(r->options, options, sizeof options);
    return redis_start(r);
}

static void end(redis *r) {
    redis_end(r);
    unlink(certificate);
    unlink(key);
    unlink(other);
    unlink(other_key);
    rmdir(folder);
}

/* In a process that trusts this certificate and no other: a command over TLS. */
static pkv_status talk(const char *trusted, const char *host, uint16_t port) {
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("SSL_CERT_FILE", trusted, 1);
        setenv("SSL_CERT_DIR", "/nowhere", 1);
        pkv_redis_server server = {.struct_size = sizeof server, .host = host, .port = port, .tls = 1, .wake_fd = -1};
        pkv_redis_line *line = NULL;
        pkv_status status = table->open(&server, in(5), &line, why, sizeof why);
        if (status == PKV_OK) {
            const char *words[] = {"ECHO", why};
            size_t sizes[] = {4, sizeof why};
            replies got;
            memset(&got, 0, sizeof got);
            for (int i = 0; status == PKV_OK && i < 1000; ++i) status = table->append(line, 2, words, sizes);
            if (status == PKV_OK) status = table->exchange(line, 1000, 1 << 20, in(5), take, &got, why, sizeof why);
            if (status == PKV_OK && got.next != 1000) status = PKV_ERR_INTERNAL;
            table->close(line);
        }
        if (status != PKV_OK) print_message("%s: %s\n", host, why);
        _exit(-status);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void a_trusted_server_of_the_right_name_is_talked_to_and_no_other(void **state) {
    (void)state;
    redis r = {0};
    uint16_t port = 0;
    if (!begin(&r, &port)) skip();
    assert_int_equal(talk(certificate, "127.0.0.1", port), PKV_OK);
    assert_int_equal(talk(certificate, "localhost", port), PKV_OK);
    assert_int_equal(talk(other, "127.0.0.1", port), PKV_ERR_IO);  /* whom nobody knows */
    assert_true(talk(certificate, "127.0.0.1", r.port) != PKV_OK); /* who does not talk TLS */
    redis_end(&r);
    /* The same port, and somebody else's certificate, though a trusted one. */
    r.options[3] = other;
    r.options[5] = other_key;
    assert_true(redis_start(&r));
    assert_int_equal(talk(other, "127.0.0.1", port), PKV_ERR_IO);
    assert_int_equal(talk(other, "localhost", port), PKV_ERR_IO);
    end(&r);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_trusted_server_of_the_right_name_is_talked_to_and_no_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
