/* SPDX-License-Identifier: Apache-2.0 */
/* A directory in which strangers have written: what no node of the cluster wrote is not believed, what is none of an
 * address is not followed, and the rest is found all the same. */
#include "node/directories.h"

#include <dlfcn.h>

/* libsodium's, to write what only somebody with the cluster key can. */
typedef int (*generichash)(unsigned char *out, size_t out_bytes, const unsigned char *in, unsigned long long in_bytes,
                           const unsigned char *key, size_t key_bytes);

typedef struct {
    generichash hash;
    unsigned char image_key[32], record_key[32];
} forger;

/* The address in a node's record as the directory has it, proven anew; as in lib/directory/names.h. */
static size_t make_record(const forger *f, const unsigned char *id, const char *text, size_t length,
                          unsigned char *out) {
    unsigned char proven[512];
    out[0] = 1;
    out[1] = (unsigned char)length;
    memcpy(out + 2, text, length);
    memcpy(proven, out, 2 + length);
    memcpy(proven + 2 + length, id, 16);
    assert_int_equal(f->hash(out + 2 + length, 16, proven, 2 + length + 16, f->record_key, 32), 0);
    return 2 + length + 16;
}

/* A node's id from the name of its record. */
static void id_of(const char *name, unsigned char *id) {
    for (int i = 0; i < 16; ++i) {
        unsigned byte = 0;
        assert_int_equal(sscanf(strrchr(name, ':') + 1 + 2 * i, "%2x", &byte), 1);
        id[i] = (unsigned char)byte;
    }
}

static bool become_forger(forger *f, const setup *s) {
    void *sodium = dlopen("libsodium.so.23", RTLD_NOW);
    if (sodium == NULL) sodium = dlopen("libsodium.so", RTLD_NOW);
    if (sodium == NULL) return false;
    f->hash = (generichash)dlsym(sodium, "crypto_generichash");
    char name[128];
    unsigned char id[16], ours[128];
    assert_int_equal(redis_names(&s->r, "pkv:n:*", name, sizeof name), 1);
    id_of(name, id);
    size_t length = 0;
    const char *const words[] = {"GET", name};
    const size_t sizes[] = {3, strlen(name)};
    char *record = redis_bulk(redis_say_bytes(&s->r, words, sizes, 2, NULL), &length);
    const address at = address_of(s->server);
    /* The versions of protocol and image format are the library's own: found by what they make of a record that is
     * good. */
    unsigned char identity[32], text[256] = "pagedkv directory 1";
    assert_int_equal(f->hash(identity, 32, (const unsigned char *)"pagedkv node identity", 22, NULL, 0), 0);
    const pkv_node_stats stats = node_stats(s->server);
    for (uint32_t both = 0; both < 32 * 32; ++both) {
        size_t used = 19;
        const uint32_t versions[2] = {both / 32, both % 32};
        for (int i = 0; i < 8; ++i) text[used++] = (unsigned char)(versions[i / 4] >> (8 * (i % 4)));
        memcpy(text + used, identity, 32);
        used += 32;
        memcpy(text + used, stats.provider, strlen(stats.provider));
        used += strlen(stats.provider);
        unsigned char names[64];
        assert_int_equal(f->hash(names, 64, text, used, test_cluster_key, 32), 0);
        memcpy(f->image_key, names, 32);
        memcpy(f->record_key, names + 32, 32);
        if (make_record(f, id, at.text, strlen(at.text), ours) == length && memcmp(ours, record, length) == 0) {
            free(record);
            return true;
        }
    }
    fail_msg("a record of this address, made as lib/directory/names.h says, is not the one in the directory");
    return false;
}

static void write_record(const setup *s, const char *name, const void *record, size_t length) {
    const char *const words[] = {"SET", name, record};
    const size_t sizes[] = {3, strlen(name), length};
    free(redis_good(redis_say_bytes(&s->r, words, sizes, 3, NULL)));
}
static void add_member(const setup *s, const char *name, const void *member, size_t length) {
    const char *const words[] = {"ZADD", name, "99999999999999", member};
    const size_t sizes[] = {4, strlen(name), 14, length};
    free(redis_good(redis_say_bytes(&s->r, words, sizes, 4, NULL)));
}

/* Adds a member to the entry of every image, as the one that ends last, or takes it out. */
static void change_all(const setup *s, bool add, const void *member, size_t length) {
    char *reply = redis_good(redis_say(&s->r, "KEYS", "pkv:k:*")), name[64];
    for (char *at = strstr(reply, "pkv:k:"); at != NULL; at = strstr(at + 1, "pkv:k:")) {
        (void)snprintf(name, sizeof name, "%.38s", at);
        if (add) {
            add_member(s, name, member, length);
        } else {
            const char *const words[] = {"ZREM", name, member};
            const size_t sizes[] = {4, 38, length};
            free(redis_good(redis_say_bytes(&s->r, words, sizes, 3, NULL)));
        }
    }
    free(reply);
}

/* A node that says of itself that it has every image, and whose record is this. */
static void plant(const setup *s, const unsigned char *id, const void *record, size_t length) {
    char name[64] = "pkv:n:";
    for (int i = 0; i < 16; ++i) (void)sprintf(name + 6 + 2 * i, "%02x", id[i]);
    write_record(s, name, record, length);
    change_all(s, true, id, 16);
}

/* It is not followed, and the real one is found all the same. */
static void plant_in_vain(const setup *s, const unsigned char *id, const void *record, size_t length, bool counted,
                          const char *what) {
    const uint64_t bad = node_stats(s->reader).directory_bad_entries;
    plant(s, id, record, length);
    soon(found_soon(s->reader) == tokens);
    assert_int_equal(node_stats(s->reader).peers, 1);
    if (counted) soon(node_stats(s->reader).directory_bad_entries > bad);
    if (!counted && node_stats(s->reader).directory_bad_entries > bad) fail_msg("counted: %s", what);
    change_all(s, false, id, 16);
}

static void addresses_that_nobody_in_the_cluster_wrote_are_not_followed(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    forger f;
    if (!become_forger(&f, &s)) skip();
    /* Where a stranger would like nodes to connect to. */
    const int trap = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    assert_int_equal(bind(trap, (struct sockaddr *)&at, size) | listen(trap, 16) |
                         getsockname(trap, (struct sockaddr *)&at, &size),
                     0);
    char there[64];
    (void)snprintf(there, sizeof there, "127.0.0.1:%u", ntohs(at.sin_port));
    const size_t long_there = strlen(there);
    forger stranger = f; /* knows how, but not the key */
    memset(stranger.record_key, 7, sizeof stranger.record_key);
    unsigned char record[600], id[16] = {0xFE};

    plant_in_vain(&s, id, record, make_record(&stranger, id, there, long_there, record), true, "without the key");
    ++id[1];
    const unsigned char other[16] = {1};
    plant_in_vain(&s, id, record, make_record(&f, other, there, long_there, record), true, "the proof of another node");
    ++id[1];
    size_t length = make_record(&f, id, there, long_there, record);
    record[length - 1] ^= 1;
    plant_in_vain(&s, id, record, length, true, "a bit of the proof changed");
    ++id[1];
    length = make_record(&f, id, there, long_there, record);
    record[4] ^= 1;
    plant_in_vain(&s, id, record, length, true, "a bit of the address changed");
    ++id[1];
    length = make_record(&f, id, there, long_there, record);
    plant_in_vain(&s, id, record, length - 1, true, "cut short");
    ++id[1];
    length = make_record(&f, id, there, long_there, record);
    plant_in_vain(&s, id, record, length + 1, true, "with a tail");
    ++id[1];
    plant_in_vain(&s, id, "", 0, false, "nothing: as a node that is gone");
    ++id[1];
    plant_in_vain(&s, id, "\1", 1, true, "a byte");
    ++id[1];
    plant_in_vain(&s, id, there, long_there, true, "the address alone");
    ++id[1];
    char *huge = malloc(1 << 20);
    memset(huge, 1, 1 << 20);
    plant_in_vain(&s, id, huge, 1 << 20, true, "a megabyte");
    free(huge);

    /* So many that the real one is not among those who are asked for: that is a miss. */
    unsigned char many[16] = {0xFC};
    for (; many[1] < 9; ++many[1]) plant(&s, many, record, make_record(&stranger, many, there, long_there, record));
    pkv_node *fresh = fresh_reader(&s);
    soon(node_stats(fresh).directory_endpoints_up == 1);
    assert_int_equal(found_soon(fresh), 0);
    assert_int_equal(node_stats(fresh).peers, 0);
    assert_ok(pkv_node_close(fresh));
    assert_true(accept(trap, NULL, NULL) < 0); /* nobody came */

    /* The forger with the key is a node of the cluster for the directory; the other side still has to show that it
     * is one. */
    for (many[1] = 0; many[1] < 9; ++many[1]) change_all(&s, false, many, 16);
    ++id[1];
    plant(&s, id, record, make_record(&f, id, there, long_there, record));
    pkv_node *patient = patient_reader(&s);
    soon(found_soon(patient) == tokens);
    soon(accept(trap, NULL, NULL) >= 0);
    assert_int_equal(node_stats(patient).peers, 2);
    assert_int_equal(node_stats(patient).connected_peers, 1);
    assert_ok(pkv_node_close(patient));
    close(trap);
    end(&s);
}

static void addresses_that_are_none_are_not_followed(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    forger f;
    if (!become_forger(&f, &s)) skip();
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {
        {"", 0},
        {"127.0.0.1", 9},
        {"127.0.0.1:", 10},
        {"127.0.0.1:0", 11},
        {"127.0.0.1:65536", 15},
        {"127.0.0.1:00080", 15},
        {"127.0.0.1:80 ", 13},
        {" 127.0.0.1:80", 13},
        {"127.0.0.1:80\0", 13},
        {"127.0.0.1:-1", 12},
        {"127.1:80", 8},
        {"0x7f.0.0.1:80", 13},
        {"256.0.0.1:80", 12},
        {"localhost:80", 12},
        {"0.0.0.0:80", 10},
        {"224.0.0.1:80", 12},
        {"255.255.255.255:80", 18},
        {"[::]:80", 7},
        {"[ff02::1]:80", 12},
        {"[fe80::1%lo]:80", 15},
        {"[::ffff:127.0.0.1]:80", 21},
        {"[0:0:0:0:0:0:0:1]:80", 20},
        {"[::1]", 5},
        {"::1:80", 6},
        {"/tmp/socket:80", 14},
        {"1234567890123456789012345678901234567890123456789012345678901234.1:80", 69},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const unsigned char id[16] = {0xFD, (unsigned char)i};
        unsigned char record[600];
        plant_in_vain(&s, id, record, make_record(&f, id, cases[i].text, cases[i].length, record), true, cases[i].text);
    }
    end(&s);
}

static void values_of_another_kind_are_misses(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    /* The entry of one image is a text, that of another a list; the others have members of odd sizes besides. */
    char *reply = redis_good(redis_say(&s.r, "KEYS", "pkv:k:*")), name[64];
    int number = 0;
    for (char *at = strstr(reply, "pkv:k:"); at != NULL; at = strstr(at + 1, "pkv:k:"), ++number) {
        (void)snprintf(name, sizeof name, "%.38s", at);
        if (number < 2) {
            redis_do(&s.r, "DEL", name);
            redis_do(&s.r, number == 0 ? "SET" : "LPUSH", name, "text");
            continue;
        }
        add_member(&s, name, "", 0);
        add_member(&s, name, "fifteen bytes..", 15);
        add_member(&s, name, "seventeen bytes..", 17);
    }
    free(reply);
    assert_int_equal(number, blocks);
    assert_true(found_soon(s.reader) < tokens); /* up to the first of the two */
    const pkv_node_stats stats = node_stats(s.reader);
    assert_true(stats.directory_bad_entries > 0);
    assert_int_equal(stats.directory_endpoints_up, 1);
    /* Who writes there says so, too, and goes on with the rest. */
    assert_ok(pkv_pool_clear_all(s.pool, NULL));
    soon(node_stats(s.server).directory_bad_entries == 2);
    compute(s.pool, 1, tokens, tag);
    push_down(s.pool);
    soon(node_stats(s.server).directory_bad_entries == 4);
    /* A node's own record is made good by the next heartbeat. */
    (void)redis_names(&s.r, "pkv:n:*", name, sizeof name);
    redis_do(&s.r, "DEL", name);
    redis_do(&s.r, "LPUSH", name, "text");
    for (bool good = false; !good; usleep(1000)) {
        char *type = redis_say(&s.r, "TYPE", name);
        good = strncmp(type, "+string", 7) == 0;
        free(type);
    }
    assert_int_equal(node_stats(s.server).directory_endpoints_up, 1);
    end(&s);
}

/* A server that answers without end is not listened to without end. */
static void a_reply_without_bound_ends_the_connection(void **state) {
    (void)state;
    setup s;
    if (!begin(&s)) skip();
    char *huge = malloc(1 << 20);
    memset(huge, 'x', 1 << 20);
    change_all(&s, true, huge, 1 << 20);
    assert_int_equal(found_soon(s.reader), 0);
    assert_true(node_stats(s.reader).directory_failures > 0);
    change_all(&s, false, huge, 1 << 20);
    soon(node_stats(s.reader).directory_endpoints_up == 1);
    soon(found_soon(s.reader) == tokens);
    free(huge);
    end(&s);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_that_nobody_in_the_cluster_wrote_are_not_followed),
        cmocka_unit_test(addresses_that_are_none_are_not_followed),
        cmocka_unit_test(values_of_another_kind_are_misses),
        cmocka_unit_test(a_reply_without_bound_ends_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
