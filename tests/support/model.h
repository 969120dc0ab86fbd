/* SPDX-License-Identifier: Apache-2.0 */
/* A model of a pool, its prefix index and its tables: what the public headers promise, done as simply as possible (plain
 * arrays, searched from end to end), so that the library can be compared with it after every call. It predicts statuses,
 * page ids, the order of eviction, all counters and events, and what every row of every page holds.
 *
 *   model.c            pages, eviction, what is in force at all times
 *   model_prefix.c     namespaces, matching, publishing, retention
 *   model_table.c      the life of a sequence
 *   model_branch.c     where sequences part: copies on write, fork, truncate, accepted drafts, windows, import
 *
 * A row's content is one number, its tag: a function of the namespace, of all tokens up to the row's and of their media.
 * Tag 0 is poison, as in new and freed pages. All groups hold the same tags: what differs is added by model_row(). */
#ifndef PKV_TESTS_MODEL_H
#define PKV_TESTS_MODEL_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>

enum {
    model_max_groups = 3,
    model_max_pages = 192, /* of a group */
    model_max_nodes = model_max_groups * model_max_pages,
    model_max_page_tokens = 100,
    model_max_tokens = 1200, /* of a sequence, named or committed */
    model_max_media = 4,
    model_layers = 2, /* of each group */
    model_max_tables = 16,
    model_max_ranges = 64,
    model_max_events = 8192, /* between two looks */
};

typedef struct {
    uint64_t position;
    uint64_t num_tokens;
    int digest; /* which of the driver's digests */
} model_media;

/* A prompt, or what a table knows of its sequence. tags[i] belongs to tokens[0 .. i]. */
typedef struct {
    int ns;
    uint64_t num_tokens;
    pkv_token tokens[model_max_tokens];
    uint64_t tags[model_max_tokens];
    int num_media;
    model_media media[model_max_media];
} model_prompt;

/* Where a cached page stands for eviction: what a window has passed goes first, then by priority; among equals by order.
 * Parked: it came up while blocks hang under it, and waits until they are gone. Pinned: it does not go at all. */
typedef enum { list_ordinary, list_passed, list_parked, list_pinned } model_list;

typedef struct {
    uint64_t count;
    uint64_t low; /* of these, the references of low-level callers */
    int node;     /* -1: not published */
    model_list list;
    uint32_t priority;
    int64_t order;     /* in its list */
    uint64_t released; /* when its count became 0, or its retention changed */
} model_page;

typedef struct {
    bool used;
    int root;
    int parent;      /* node, or -1: a first block */
    int children;    /* nodes */
    uint64_t serial; /* differs for all nodes ever made, and rises */
    uint64_t block;
    pkv_page pages[model_max_groups]; /* PKV_NO_PAGE: none */
    uint64_t tag;                     /* of its last token */
    pkv_token tokens[model_max_page_tokens];
    int num_media;
    model_media media[model_max_media]; /* positions count from the block's first token */
    uint32_t priority;
    bool pinned; /* itself */
    bool kept;   /* itself or a block after it is */
} model_node;

typedef struct {
    bool used;
    bool dead; /* cleared */
    int ns;
    uint64_t references; /* tables */
    bool has_retention;
    pkv_retention retention;
} model_root;

typedef struct {
    uint64_t begin;
    uint64_t end;
    pkv_retention retention;
} model_range;

typedef struct {
    int32_t kind;
    uint32_t group;
    uint64_t tag; /* of the block; of the namespace for PKV_EVENT_CLEARED */
    uint64_t parent_tag;
    uint64_t block;
} model_event;

typedef struct {
    bool alive;
    bool admitted;
    bool share;
    int root;
    uint64_t named;
    uint64_t committed;
    uint64_t matched;
    uint64_t written[model_max_groups][model_layers]; /* rows that gather may read, if more than `committed` */
    uint64_t num_blocks;
    pkv_page pages[model_max_groups][model_max_pages + 1];
    /* The true sequence: its first `named` tokens are named, the rest is what the engine has computed or will. */
    model_prompt sequence;
    /* How far it is published: blocks, and the node of the last one. */
    uint64_t published;
    int node;
    uint64_t node_serial;
    int num_ranges;
    model_range ranges[model_max_ranges];
    /* Groups without bytes: copies that the caller has to make, and the pages that are held for them. */
    uint32_t num_copies;
    pkv_page_copy copies[model_max_groups];
    pkv_page copy_sources[model_max_groups];
} model_table;

typedef struct {
    uint64_t num_pages;
    uint64_t max_cached; /* 0: no limit */
    uint64_t window;     /* 0: full attention */
    uint64_t sinks;
    bool bytes; /* false: ids only */
    model_page pages[model_max_pages];
    pkv_page free_stack[model_max_pages];
    uint64_t num_free_stack;
    uint64_t fresh; /* pages from here on were never given out */
    uint64_t num_cached;
    uint64_t *tags; /* of all rows: [page][layer][offset] */
} model_group;

typedef struct model {
    uint32_t page_tokens;
    uint32_t num_groups;
    model_group groups[model_max_groups];
    uint64_t clock;
    bool wrong_victim; /* the model's own order was not by age where it has to be */
    model_node nodes[model_max_nodes];
    int num_nodes; /* slots below this one were in use */
    uint64_t last_serial;
    model_root roots[model_max_tables * 4];
    int num_roots;
    int free_roots[model_max_tables * 4];
    int num_free_roots;
    model_table tables[model_max_tables];
    model_event events[model_max_events]; /* since the driver took them last */
    uint64_t num_events;
    bool clearing;
    pkv_pool_stats stats; /* the counters; gauges are filled in by model_gauges() */
    /* Asked where the order of eviction is not promised: which of these cached pages did the library take? */
    pkv_page (*choose)(void *user, uint32_t group, const pkv_page *pages, uint64_t num_pages);
    void *user;
} model;

/* A model without groups' bytes; the caller sets what is its own of each group, then calls model_begin(). */
model *model_create(uint32_t page_tokens, uint32_t num_groups);
void model_begin(model *m);
void model_destroy(model *m);

/* Fills tags[] of a prompt from its tokens and media. */
void model_tag(model_prompt *prompt);
uint64_t model_root_tag(int ns);
/* The bytes of one head's K (side 0) or V (side 1) in a row with this tag; layers are counted over all groups. */
void model_row(uint8_t *out, uint64_t bytes, uint64_t tag, uint32_t layer, int side, uint64_t head);
/* Makes `stats` complete for a group; false when the model contradicts itself (R1, R2): counts against holders, states
 * against N. */
bool model_gauges(model *m, uint32_t group);

/* ---- pages and prefixes: as the functions of pool.h ---- */
pkv_status model_alloc(model *m, uint32_t group, uint64_t num_pages, pkv_page *pages);
pkv_status model_retain(model *m, uint32_t group, uint64_t num_pages, const pkv_page *pages);
pkv_status model_release(model *m, uint32_t group, uint64_t num_pages, const pkv_page *pages, pkv_status *statuses);
uint64_t model_evict(model *m, uint32_t group, uint64_t num_pages);
uint64_t model_match(const model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, int *nodes);
uint64_t model_lookup(model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, pkv_page *pages);
pkv_status model_publish(model *m, uint32_t group, const model_prompt *prompt, uint64_t first_block, uint64_t num_pages,
                         const pkv_page *pages, pkv_page *owner);
void model_clear(model *m, int ns, pkv_clear_result *result); /* ns < 0: all */
uint64_t model_set_retention(model *m, const model_prompt *prompt, uint64_t first, uint64_t num_tokens,
                             const pkv_retention *retention);
void model_set_namespace_retention(model *m, int ns, const pkv_retention *retention);

/* ---- between the files of the model ---- */
uint64_t model_blocks(const model *m, uint64_t tokens);
bool model_cached(const model_group *g, pkv_page page);
uint64_t model_num_free(const model_group *g);
uint64_t model_room(const model_group *g);                                     /* free or evictable */
uint64_t *model_tags(model *m, uint32_t group, pkv_page page, uint32_t layer); /* of the rows of one layer of a page */
pkv_page model_take_page(model *m, uint32_t group);
void model_retain_page(model *m, uint32_t group, pkv_page page);
void model_release_page(model *m, uint32_t group, pkv_page page);
void model_make_free(model *m, uint32_t group, pkv_page page);
void model_trim(model *m, uint32_t group);
void model_record(model *m, int32_t kind, uint32_t group, int node);
void model_detach(model *m, int node, uint32_t group);
void model_drop_below(model *m, int root, int parent, pkv_clear_result *result);
int model_newest_child(const model *m, int root, int parent, uint64_t before); /* of those with a smaller serial */
void model_apply_retention(model *m, int node, const pkv_retention *retention);
void model_set_pinned(model *m, int node, bool pinned);
int model_find_or_make_root(model *m, int ns);
void model_drop_root(model *m, int root);
/* Whether tokens from `length` on attend to a block. */
bool model_reaches(const model *m, uint32_t group, uint64_t block, uint64_t length);
/* The node of a block, made if need be, for pages of all groups (PKV_NO_PAGE: none), which it may replace (`share`). -1:
 * one of the pages has another name already. */
int model_publish_block(model *m, int root, int parent, const model_prompt *prompt, uint64_t block, pkv_page *pages,
                        bool share, const model_range *ranges, int num_ranges);

/* ---- tables: as the functions of table.h ---- */
pkv_status model_admit(model *m, model_table *t, const model_prompt *prompt, const pkv_admit_options *options);
pkv_status model_reserve(model *m, model_table *t, uint64_t num_tokens);
pkv_status model_set_tokens(model *m, model_table *t, uint64_t position, uint64_t num_tokens, const pkv_token *tokens);
pkv_status model_write(model *m, model_table *t, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                       const uint64_t *tags);
pkv_status model_commit(model *m, model_table *t, uint64_t num_tokens);
uint64_t model_readable_end(const model_table *t, uint32_t group, uint32_t layer);
pkv_status model_readable(model *m, const model_table *t, uint32_t group, uint32_t layer, uint64_t position,
                          uint64_t num_tokens);
pkv_status model_slots(model *m, model_table *t, uint32_t group, uint64_t position, uint64_t num_tokens,
                       pkv_slot *slots);
pkv_status model_table_set_retention(model *m, model_table *t, uint64_t first, uint64_t num_tokens,
                                     const pkv_retention *retention);
pkv_status model_fork(model *m, model_table *t, model_table *twin);
pkv_status model_truncate(model *m, model_table *t, uint64_t num_tokens);
/* `after` is the true sequence once the drafts at these positions are its next tokens. */
pkv_status model_accept(model *m, model_table *t, uint64_t num_positions, const uint64_t *positions,
                        const model_prompt *after);
pkv_status model_window(model *m, model_table *t);
/* From a table of this pool, with what it holds now. */
pkv_status model_import(model *m, model_table *t, const model_table *source);
void model_table_clear(model *m, model_table *t);
void model_table_destroy(model *m, model_table *t);
void model_table_create(model_table *t);
/* Bit mask of groups in which the block at `committed` is partly committed and somebody else may see its page. */
uint32_t model_tail_shared(const model *m, const model_table *t);
uint64_t model_reserved(const model *m, const model_table *t);
bool model_has_bytes(const model *m); /* in all groups */
/* Tag that a row of the table has now; its block has a page. */
uint64_t model_row_tag(model *m, const model_table *t, uint32_t group, uint32_t layer, uint64_t position);

/* ---- between the files of the table half ---- */
void model_publish_table(model *m, model_table *t);
void model_drop_media_from(model_prompt *sequence, uint64_t position);
void model_drop_copies(model *m, model_table *t);
/* Adds blocks in all groups, and copies the block at `committed` in groups of a bit mask: all or nothing. */
pkv_status model_extend(model *m, model_table *t, uint64_t num_blocks, uint32_t copy);
pkv_status model_make_tail_private(model *m, model_table *t);
/* Releases the blocks of a table from one on, in the order in which they should be evicted. */
void model_release_blocks(model *m, model_table *t, uint64_t first);

#endif
