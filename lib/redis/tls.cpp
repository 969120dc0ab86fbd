// SPDX-License-Identifier: Apache-2.0
// hiredis can make its own TLS contexts, but those do not look at whom a certificate was made for.
#include "redis/tls.h"

#if PKV_REDIS_TLS

#include <hiredis/hiredis_ssl.h>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace pkv::redis {
namespace {

bool is_numeric(const char *host) {
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/// Never freed; nullptr: there is none to be had.
SSL_CTX *shared_context() {
    static SSL_CTX *const context = [] {
        SSL_CTX *fresh = SSL_CTX_new(TLS_client_method());
        if (fresh == nullptr) return fresh;
        SSL_CTX_set_min_proto_version(fresh, TLS1_2_VERSION);
        SSL_CTX_set_verify(fresh, SSL_VERIFY_PEER, nullptr);
        SSL_CTX_set_default_verify_paths(fresh);
        return fresh;
    }();
    return context;
}

const char *reason() {
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text != nullptr ? text : "no reason given";
}

} // namespace

bool has_tls() { return true; }

pkv_status begin_tls(redisContext &context, const char *host, void *&session, const Why &why) {
    SSL_CTX *const shared = shared_context();
    SSL *const ssl = shared != nullptr ? SSL_new(shared) : nullptr;
    if (ssl == nullptr) return why.fail(PKV_ERR_NO_MEMORY, "a TLS context: %s", reason());
    const bool numeric = is_numeric(host);
    const int set = numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) : SSL_set1_host(ssl, host);
    if (set != 1 || (!numeric && SSL_set_tlsext_host_name(ssl, host) != 1)) {
        SSL_free(ssl);
        return why.fail(PKV_ERR_INVALID, "TLS with %s: %s", host, reason());
    }
    ERR_clear_error();
    session = ssl;
    if (redisInitiateSSL(&context, ssl) == REDIS_OK) return PKV_OK; // the context's now
    session = nullptr;
    const char *const failure = tls_failure(ssl);
    const pkv_status status = why.fail(PKV_ERR_IO, "TLS: %s", failure != nullptr ? failure : "no reason given");
    SSL_free(ssl);
    return status;
}

bool tls_wants_read(void *session) { return session != nullptr && SSL_want_read(static_cast<SSL *>(session)); }

const char *tls_failure(void *session) {
    const long verified = session != nullptr ? SSL_get_verify_result(static_cast<SSL *>(session)) : X509_V_OK;
    return verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                                 : ERR_reason_error_string(ERR_peek_last_error());
}

} // namespace pkv::redis

#else

namespace pkv::redis {

bool has_tls() { return false; }

pkv_status begin_tls(redisContext &, const char *, void *&, const Why &why) {
    return why.fail(PKV_ERR_UNSUPPORTED, "hiredis %d.%d.%d, which this was built with, has no TLS", HIREDIS_MAJOR,
                    HIREDIS_MINOR, HIREDIS_PATCH);
}

bool tls_wants_read(void *) { return false; }

const char *tls_failure(void *) { return nullptr; }

} // namespace pkv::redis

#endif
