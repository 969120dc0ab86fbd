/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libfabric that are no inline calls through tables, and the tables of the provider behind them. A read is
 * checked when it is posted, and copied when somebody looks at its completion queue. */
#include "fake.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { max_entries = 1024, max_registrations = 256, name_bytes = 16, flush_error = 5, first_error = 77 };
static const uint64_t raw_base = 0x1234500000000000u; /* a base address that is none */
static const uint64_t mapped_bit = 1ull << 40;        /* in keys that were mapped */

struct region {
    struct fid_mr mr;
    char *memory;
    uint64_t bytes;
    uint64_t access;
    uint64_t number; /* of its raw key */
};

struct entry {
    void *context;
    char *to;
    const char *from;
    uint64_t bytes;
    uint64_t due_ns;
    int error; /* FI_E* */
    int provider_error;
    char data[32];
};

struct queue {
    struct fid_cq cq;
    int descriptor;
    struct entry entries[max_entries];
    int count;
    int silent;        /* nothing more comes */
    char own_data[32]; /* what error entries point to */
};

struct addresses {
    struct fid_av av;
};

struct endpoint {
    struct fid_ep ep;
    struct queue *queue;
    uint64_t number;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fake_settings settings;
static struct fake_counts counts;
static struct region *regions[max_registrations];
static uint64_t locked, numbers;

static struct fid_fabric the_fabric;
static struct fid_domain the_domain;

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_settings *fake_settings(void) { return &settings; }

EXPORT struct fake_counts fake_counts(void) {
    pthread_mutex_lock(&mutex);
    const struct fake_counts copy = counts;
    pthread_mutex_unlock(&mutex);
    return copy;
}

EXPORT void fake_reset(void) {
    pthread_mutex_lock(&mutex);
    memset(&settings, 0, sizeof settings);
    settings.key_bytes = 8;
    counts.reads = counts.landed = counts.longest_read = counts.access = counts.last_key = 0;
    counts.asked[0] = '\0';
    pthread_mutex_unlock(&mutex);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int no_control(struct fid *fid, int command, void *argument) {
    (void)fid, (void)command, (void)argument;
    return -FI_ENOSYS;
}

static int no_bind(struct fid *fid, struct fid *other, uint64_t flags) {
    (void)fid, (void)other, (void)flags;
    return 0;
}

/* ---- registrations ---- */

static void raw_key_of(const struct region *region, uint8_t *key) {
    for (int i = 0; i < fake_raw_key_bytes; ++i) key[i] = (uint8_t)(0xA0 + i);
    key[fake_raw_key_bytes - 1] = (uint8_t)region->number; /* only the last byte tells one from another */
}

static int close_region(struct fid *fid) {
    struct region *region = (struct region *)fid;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < max_registrations; ++i)
        if (regions[i] == region) regions[i] = NULL;
    locked -= region->bytes;
    --counts.registrations;
    --counts.objects;
    pthread_mutex_unlock(&mutex);
    free(region);
    return 0;
}

static int control_region(struct fid *fid, int command, void *argument) {
    struct region *region = (struct region *)fid;
    if (command != FI_GET_RAW_MR) return -FI_ENOSYS;
    struct fi_mr_raw_attr *raw = argument;
    const size_t room = *raw->key_size;
    *raw->key_size = fake_raw_key_bytes;
    if (room < fake_raw_key_bytes) return -FI_ETOOSMALL;
    raw_key_of(region, raw->raw_key);
    *raw->base_addr = raw_base + region->number;
    return 0;
}

static struct fi_ops region_ops = {sizeof(struct fi_ops), close_region, no_bind, control_region, NULL, NULL, NULL};

static int register_locked(const void *memory, size_t bytes, uint64_t access, uint64_t key, struct fid_mr **opened) {
    counts.access |= access;
    if (settings.max_registration != 0 && bytes > settings.max_registration) return -FI_EINVAL;
    if (settings.max_registrations != 0 && counts.registrations >= settings.max_registrations) return -FI_ENOSPC;
    struct rlimit limit;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (settings.locks_memory && locked + bytes > limit.rlim_cur) return -FI_ENOMEM;
    int place = -1;
    for (int i = 0; i < max_registrations; ++i) {
        if (regions[i] == NULL) place = i;
        if (regions[i] != NULL && !settings.provider_keys && regions[i]->mr.key == key) return -FI_ENOKEY;
    }
    struct region *region = place < 0 ? NULL : calloc(1, sizeof *region);
    if (region == NULL) return -FI_ENOMEM;
    region->mr.fid.fclass = FI_CLASS_MR;
    region->mr.fid.ops = &region_ops;
    region->mr.mem_desc = region;
    region->memory = (char *)(uintptr_t)memory;
    region->bytes = bytes;
    region->access = access;
    region->number = ++numbers & 0xFF;
    region->mr.key = settings.raw_keys ? FI_KEY_NOTAVAIL : settings.provider_keys ? 1000 + region->number : key;
    counts.last_key = key;
    regions[place] = region;
    locked += bytes;
    ++counts.registrations;
    ++counts.objects;
    *opened = &region->mr;
    return 0;
}

static int register_memory(struct fid *fid, const void *memory, size_t bytes, uint64_t access, uint64_t offset,
                           uint64_t key, uint64_t flags, struct fid_mr **opened, void *context) {
    (void)fid, (void)offset, (void)flags, (void)context;
    pthread_mutex_lock(&mutex);
    const int error = register_locked(memory, bytes, access, key, opened);
    pthread_mutex_unlock(&mutex);
    return error;
}

static struct fi_ops_mr mr_ops = {sizeof(struct fi_ops_mr), register_memory, NULL, NULL};

/* The region that a read's key and address name; NULL if there is none. `at`: where in it. */
static struct region *find_region(uint64_t key, uint64_t address, uint64_t bytes, uint64_t *at) {
    for (int i = 0; i < max_registrations; ++i) {
        struct region *region = regions[i];
        if (region == NULL || (region->access & FI_REMOTE_READ) == 0) continue;
        if (key != (settings.raw_keys ? mapped_bit + region->number : region->mr.key)) continue;
        *at = settings.virtual_addresses ? address - (uint64_t)(uintptr_t)region->memory : address;
        if (*at <= region->bytes && bytes <= region->bytes - *at) return region;
    }
    return NULL;
}

/* ---- completions ---- */

static void signal_queue(struct queue *queue) {
    const uint64_t one = 1;
    if (queue->descriptor >= 0 && write(queue->descriptor, &one, sizeof one) < 0) return;
}

/* The next entry that is due; -1 if there is none. */
static int next_due(const struct queue *queue) {
    const uint64_t now = now_ns();
    int found = -1;
    for (int i = 0; i < queue->count && !queue->silent && !settings.held; ++i) {
        if (queue->entries[i].due_ns > now) continue;
        found = i;
        if (!settings.reversed) break;
    }
    return found;
}

static struct entry take_entry(struct queue *queue, int place) {
    const struct entry taken = queue->entries[place];
    --queue->count;
    memmove(&queue->entries[place], &queue->entries[place + 1], (size_t)(queue->count - place) * sizeof taken);
    return taken;
}

static ssize_t read_queue(struct fid_cq *cq, void *buffer, size_t count) {
    struct queue *queue = (struct queue *)cq;
    struct fi_cq_entry *out = buffer;
    size_t taken = 0;
    pthread_mutex_lock(&mutex);
    memset(queue->own_data, '?', sizeof queue->own_data - 1);
    int place = -1;
    while (taken < count && (place = next_due(queue)) >= 0 && queue->entries[place].error == 0) {
        const struct entry entry = take_entry(queue, place);
        memcpy(entry.to, entry.from, entry.bytes);
        ++counts.landed;
        out[taken++].op_context = entry.context;
    }
    pthread_mutex_unlock(&mutex);
    if (taken != 0) return (ssize_t)taken;
    return place >= 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t read_error(struct fid_cq *cq, struct fi_cq_err_entry *out, uint64_t flags) {
    struct queue *queue = (struct queue *)cq;
    (void)flags;
    pthread_mutex_lock(&mutex);
    const int place = next_due(queue);
    if (place < 0 || queue->entries[place].error == 0) {
        pthread_mutex_unlock(&mutex);
        return -FI_EAGAIN;
    }
    const struct entry entry = take_entry(queue, place);
    if (entry.context == NULL) queue->silent = 1;
    out->op_context = entry.context;
    out->err = entry.error;
    out->prov_errno = entry.provider_error;
    if (settings.own_error_data || out->err_data_size == 0) {
        memcpy(queue->own_data, entry.data, sizeof queue->own_data);
        out->err_data = queue->own_data;
        out->err_data_size = sizeof queue->own_data;
    } else {
        if (out->err_data_size > sizeof entry.data) out->err_data_size = sizeof entry.data;
        memcpy(out->err_data, entry.data, out->err_data_size);
    }
    pthread_mutex_unlock(&mutex);
    return 1;
}

static const char *explain(struct fid_cq *cq, int error, const void *data, char *buffer, size_t bytes) {
    struct queue *queue = (struct queue *)cq;
    memset(queue->own_data, '?', sizeof queue->own_data - 1);
    snprintf(buffer, bytes, "fake error %d: %s", error, (const char *)data);
    return buffer;
}

static ssize_t wait_queue(struct fid_cq *cq, void *buffer, size_t count, const void *condition, int timeout) {
    (void)condition, (void)timeout;
    return read_queue(cq, buffer, count);
}

static int close_queue(struct fid *fid) {
    struct queue *queue = (struct queue *)fid;
    if (queue->descriptor >= 0) close(queue->descriptor);
    pthread_mutex_lock(&mutex);
    --counts.objects;
    pthread_mutex_unlock(&mutex);
    free(queue);
    return 0;
}

static int control_queue(struct fid *fid, int command, void *argument) {
    if (command != FI_GETWAIT) return -FI_ENOSYS;
    *(int *)argument = ((struct queue *)fid)->descriptor;
    return 0;
}

static struct fi_ops queue_ops = {sizeof(struct fi_ops), close_queue, no_bind, control_queue, NULL, NULL, NULL};
static struct fi_ops_cq cq_ops = {.size = sizeof(struct fi_ops_cq),
                                  .read = read_queue,
                                  .readerr = read_error,
                                  .sread = wait_queue,
                                  .strerror = explain};

static int open_queue(struct fid_domain *domain, struct fi_cq_attr *attributes, struct fid_cq **opened, void *context) {
    (void)domain, (void)context;
    if (attributes->wait_obj == FI_WAIT_FD && settings.no_descriptor) return -FI_ENOSYS;
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return -FI_ENOMEM;
    queue->cq.fid.fclass = FI_CLASS_CQ;
    queue->cq.fid.ops = &queue_ops;
    queue->cq.ops = &cq_ops;
    queue->descriptor = attributes->wait_obj == FI_WAIT_FD ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    pthread_mutex_lock(&mutex);
    ++counts.objects;
    pthread_mutex_unlock(&mutex);
    *opened = &queue->cq;
    return 0;
}

static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count) {
    (void)fabric;
    for (int i = 0; i < count; ++i) {
        struct queue *queue = (struct queue *)fids[i];
        uint64_t value;
        if (queue->descriptor >= 0 && read(queue->descriptor, &value, sizeof value) < 0) value = 0;
        pthread_mutex_lock(&mutex);
        const int due = next_due(queue);
        pthread_mutex_unlock(&mutex);
        if (due >= 0) return -FI_EAGAIN;
    }
    return 0;
}

/* ---- addresses ---- */

static int insert(struct fid_av *av, const void *name, size_t count, fi_addr_t *address, uint64_t flags,
                  void *context) {
    (void)av, (void)flags, (void)context;
    if (count != 1 || memcmp(name, "fake", 4) != 0) return 0;
    *address = 0;
    return 1;
}

static int close_addresses(struct fid *fid) {
    pthread_mutex_lock(&mutex);
    --counts.objects;
    pthread_mutex_unlock(&mutex);
    free(fid);
    return 0;
}

static struct fi_ops addresses_ops = {sizeof(struct fi_ops), close_addresses, no_bind, no_control, NULL, NULL, NULL};
static struct fi_ops_av av_ops = {.size = sizeof(struct fi_ops_av), .insert = insert};

static int open_addresses(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **opened,
                          void *context) {
    (void)domain, (void)attributes, (void)context;
    struct addresses *addresses = calloc(1, sizeof *addresses);
    if (addresses == NULL) return -FI_ENOMEM;
    addresses->av.fid.fclass = FI_CLASS_AV;
    addresses->av.fid.ops = &addresses_ops;
    addresses->av.ops = &av_ops;
    pthread_mutex_lock(&mutex);
    ++counts.objects;
    pthread_mutex_unlock(&mutex);
    *opened = &addresses->av;
    return 0;
}

/* ---- endpoints ---- */

static ssize_t post_locked(struct endpoint *endpoint, void *to, size_t bytes, const void *descriptor, uint64_t address,
                           uint64_t key, void *context) {
    struct queue *queue = endpoint->queue;
    if (settings.again != 0) {
        if (settings.again > 0) --settings.again;
        return -FI_EAGAIN;
    }
    if (queue->count == max_entries) return -FI_EAGAIN;
    if (settings.max_message != 0 && bytes > settings.max_message) return -FI_EINVAL;
    const struct region *target = descriptor;
    if (settings.local_regions && (target == NULL || (target->access & FI_READ) == 0 || (char *)to < target->memory ||
                                   (uint64_t)((char *)to - target->memory) + bytes > target->bytes))
        return -FI_EINVAL;
    struct entry *entry = &queue->entries[queue->count++];
    memset(entry, 0, sizeof *entry);
    entry->context = context;
    entry->due_ns = now_ns() + settings.late_ns;
    ++counts.reads;
    if (bytes > counts.longest_read) counts.longest_read = bytes;
    uint64_t at = 0;
    const struct region *region = find_region(key, address, bytes, &at);
    if (settings.fail_at != 0 && counts.reads >= settings.fail_at) {
        const int first = counts.reads == settings.fail_at;
        entry->error = first ? FI_EIO : FI_ECANCELED;
        entry->provider_error = first ? first_error : flush_error;
        snprintf(entry->data, sizeof entry->data, "%s", first ? "cable pulled" : "flushed");
        if (settings.without_context) entry->context = NULL;
    } else if (region == NULL) {
        entry->error = FI_EACCES;
        entry->provider_error = first_error;
        snprintf(entry->data, sizeof entry->data, "no such key");
    } else {
        entry->to = to;
        entry->from = region->memory + at;
        entry->bytes = bytes;
    }
    signal_queue(queue);
    return 0;
}

static ssize_t post_read(struct fid_ep *ep, void *to, size_t bytes, void *descriptor, fi_addr_t peer, uint64_t address,
                         uint64_t key, void *context) {
    (void)peer;
    pthread_mutex_lock(&mutex);
    const ssize_t error = post_locked((struct endpoint *)ep, to, bytes, descriptor, address, key, context);
    pthread_mutex_unlock(&mutex);
    return error;
}

static int get_name(fid_t fid, void *name, size_t *bytes) {
    char own[name_bytes] = "fake";
    const size_t room = *bytes;
    snprintf(own + 4, sizeof own - 4, "%llu", (unsigned long long)((struct endpoint *)fid)->number);
    *bytes = name_bytes;
    memcpy(name, own, room < name_bytes ? room : name_bytes);
    return room < name_bytes ? -FI_ETOOSMALL : 0;
}

static int bind_endpoint(struct fid *fid, struct fid *other, uint64_t flags) {
    (void)flags;
    if (other->fclass == FI_CLASS_CQ) ((struct endpoint *)fid)->queue = (struct queue *)other;
    return 0;
}

static int enable_endpoint(struct fid *fid, int command, void *argument) {
    (void)argument;
    return command == FI_ENABLE && ((struct endpoint *)fid)->queue != NULL ? 0 : -FI_ENOCQ;
}

static int close_endpoint(struct fid *fid) {
    struct endpoint *endpoint = (struct endpoint *)fid;
    pthread_mutex_lock(&mutex);
    if (settings.busy_closes > 0) {
        --settings.busy_closes;
        pthread_mutex_unlock(&mutex);
        return -FI_EBUSY;
    }
    if (endpoint->queue != NULL) endpoint->queue->count = 0; /* what is under way is dropped */
    --counts.objects;
    pthread_mutex_unlock(&mutex);
    free(endpoint);
    return 0;
}

static struct fi_ops endpoint_ops = {
    sizeof(struct fi_ops), close_endpoint, bind_endpoint, enable_endpoint, NULL, NULL, NULL};
static struct fi_ops_ep ep_ops = {.size = sizeof(struct fi_ops_ep)};
static struct fi_ops_cm cm_ops = {.size = sizeof(struct fi_ops_cm), .getname = get_name};
static struct fi_ops_rma rma_ops = {.size = sizeof(struct fi_ops_rma), .read = post_read};

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **opened, void *context) {
    (void)domain, (void)info, (void)context;
    struct endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (endpoint == NULL) return -FI_ENOMEM;
    endpoint->ep.fid.fclass = FI_CLASS_EP;
    endpoint->ep.fid.ops = &endpoint_ops;
    endpoint->ep.ops = &ep_ops;
    endpoint->ep.cm = &cm_ops;
    endpoint->ep.rma = &rma_ops;
    pthread_mutex_lock(&mutex);
    endpoint->number = ++numbers;
    ++counts.objects;
    pthread_mutex_unlock(&mutex);
    *opened = &endpoint->ep;
    return 0;
}

/* ---- domain and fabric: one of each ---- */

static int map_key(const struct fi_mr_map_raw *map) {
    uint8_t key[fake_raw_key_bytes];
    if (map->key_size != sizeof key) return -FI_EINVAL;
    for (int i = 0; i < max_registrations; ++i) {
        if (regions[i] == NULL) continue;
        raw_key_of(regions[i], key);
        if (memcmp(key, map->raw_key, sizeof key) != 0 || map->base_addr != raw_base + regions[i]->number) continue;
        *map->key = mapped_bit + regions[i]->number;
        ++counts.mapped_keys;
        return 0;
    }
    return -FI_ENOKEY;
}

static int control_domain(struct fid *fid, int command, void *argument) {
    (void)fid;
    int error = 0;
    pthread_mutex_lock(&mutex);
    if (command == FI_MAP_RAW_MR) {
        error = map_key(argument);
    } else if (command == FI_UNMAP_KEY) {
        --counts.mapped_keys;
    } else {
        error = -FI_ENOSYS;
    }
    pthread_mutex_unlock(&mutex);
    return error;
}

static int close_shared(struct fid *fid) {
    (void)fid;
    pthread_mutex_lock(&mutex);
    --counts.objects;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static struct fi_ops fabric_fid_ops = {sizeof(struct fi_ops), close_shared, no_bind, no_control, NULL, NULL, NULL};
static struct fi_ops domain_fid_ops = {sizeof(struct fi_ops), close_shared, no_bind, control_domain, NULL, NULL, NULL};
static struct fi_ops_domain domain_ops = {
    .size = sizeof(struct fi_ops_domain), .av_open = open_addresses, .cq_open = open_queue, .endpoint = open_endpoint};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **opened, void *context) {
    (void)fabric, (void)info, (void)context;
    pthread_mutex_lock(&mutex);
    the_domain.fid.fclass = FI_CLASS_DOMAIN;
    the_domain.fid.ops = &domain_fid_ops;
    the_domain.ops = &domain_ops;
    the_domain.mr = &mr_ops;
    ++counts.objects;
    pthread_mutex_unlock(&mutex);
    *opened = &the_domain;
    return 0;
}

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric), .domain = open_domain, .trywait = try_wait};

EXPORT int fi_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **opened, void *context) {
    (void)attributes, (void)context;
    pthread_mutex_lock(&mutex);
    the_fabric.fid.fclass = FI_CLASS_FABRIC;
    the_fabric.fid.ops = &fabric_fid_ops;
    the_fabric.ops = &fabric_ops;
    ++counts.objects;
    pthread_mutex_unlock(&mutex);
    *opened = &the_fabric;
    return 0;
}

/* ---- what providers there are ---- */

EXPORT void fi_freeinfo(struct fi_info *info) {
    while (info != NULL) {
        struct fi_info *next = info->next;
        free(info->domain_attr->name);
        free(info->fabric_attr->name);
        free(info->fabric_attr->prov_name);
        free(info->tx_attr);
        free(info->rx_attr);
        free(info->ep_attr);
        free(info->domain_attr);
        free(info->fabric_attr);
        free(info);
        info = next;
    }
}

static char *copy_of(const char *text) { return text != NULL ? strdup(text) : NULL; }

EXPORT struct fi_info *fi_dupinfo(const struct fi_info *from) {
    struct fi_info *info = calloc(1, sizeof *info);
    if (info == NULL) abort();
    if (from != NULL) *info = *from;
    info->next = NULL;
    info->tx_attr = calloc(1, sizeof *info->tx_attr);
    info->rx_attr = calloc(1, sizeof *info->rx_attr);
    info->ep_attr = calloc(1, sizeof *info->ep_attr);
    info->domain_attr = calloc(1, sizeof *info->domain_attr);
    info->fabric_attr = calloc(1, sizeof *info->fabric_attr);
    if (from != NULL) {
        *info->tx_attr = *from->tx_attr;
        *info->rx_attr = *from->rx_attr;
        *info->ep_attr = *from->ep_attr;
        *info->domain_attr = *from->domain_attr;
        *info->fabric_attr = *from->fabric_attr;
        info->domain_attr->name = copy_of(from->domain_attr->name);
        info->fabric_attr->name = copy_of(from->fabric_attr->name);
        info->fabric_attr->prov_name = copy_of(from->fabric_attr->prov_name);
    }
    return info;
}

EXPORT int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **list) {
    (void)version, (void)node, (void)service, (void)flags;
    const char *name = hints->fabric_attr->prov_name;
    pthread_mutex_lock(&mutex);
    const size_t used = strlen(counts.asked);
    snprintf(counts.asked + used, sizeof counts.asked - used, "%s ", name);
    pthread_mutex_unlock(&mutex);
    if (strcmp(name, "fake") != 0) return -FI_ENODATA;
    struct fi_info *info = fi_dupinfo(NULL);
    info->caps = hints->caps;
    info->ep_attr->type = FI_EP_RDM;
    info->ep_attr->max_msg_size = settings.max_message != 0 ? settings.max_message : SIZE_MAX;
    info->tx_attr->size = 64;
    info->rx_attr->size = 64;
    info->domain_attr->name = strdup("fake0");
    info->domain_attr->mr_mode = (settings.virtual_addresses ? FI_MR_VIRT_ADDR : 0) |
                                 (settings.local_regions ? FI_MR_LOCAL : 0) |
                                 (settings.provider_keys ? FI_MR_PROV_KEY : 0) | (settings.raw_keys ? FI_MR_RAW : 0);
    info->domain_attr->mr_key_size = settings.key_bytes;
    info->domain_attr->mr_cnt = settings.max_registrations;
    info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    info->fabric_attr->name = strdup("fake fabric");
    info->fabric_attr->prov_name = strdup("fake");
    *list = info;
    return 0;
}
