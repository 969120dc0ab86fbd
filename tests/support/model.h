/* SPDX-License-Identifier: Apache-2.0 */
/* A model of a pool, its prefix index and its tables: what the public headers promise, done as simply as possible (plain
 * arrays, searched from end to end), so that the library can be compared with it after every call. It predicts statuses,
 * page ids, the order of eviction, all counters, and what every row of every page holds.
 *
 * A row's content is one number, its tag: a function of the namespace, of all tokens up to the row's and of their media.
 * Tag 0 is poison, as in new and freed pages. */
#ifndef PKV_TESTS_MODEL_H
#define PKV_TESTS_MODEL_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>

enum {
    model_max_pages = 192,
    model_max_page_tokens = 100,
    model_max_tokens = 1200, /* of a sequence, named or committed */
    model_max_media = 4,
    model_layers = 2,
    model_max_tables = 16,
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

typedef struct {
    uint64_t count;
    uint64_t low;   /* of these, the references of low-level callers */
    int node;       /* -1: not published */
    uint64_t stamp; /* cached: when it was released */
} model_page;

typedef struct {
    bool used;
    int root;
    int parent;      /* node, or -1: a first block */
    uint64_t serial; /* differs for all nodes ever made, and rises */
    uint64_t block;
    pkv_page page;
    uint64_t tag; /* of its last token */
    pkv_token tokens[model_max_page_tokens];
    int num_media;
    model_media media[model_max_media]; /* positions count from the block's first token */
} model_node;

typedef struct {
    bool used;
    bool dead; /* cleared */
    int ns;
    uint64_t references; /* tables */
} model_root;

typedef struct {
    bool alive;
    bool admitted;
    int root;
    uint64_t named;
    uint64_t committed;
    uint64_t matched;
    uint64_t written[model_layers]; /* rows that gather may read */
    uint64_t num_pages;
    pkv_page pages[model_max_pages + 1];
    /* Ids only: the page that the caller has to copy from, still held, and where to; the copy may be taken already. */
    pkv_page copy_source;
    pkv_page copy_target;
    bool copy_waits;
    /* The true sequence: its first `named` tokens are named, the rest is what the engine has computed or will. */
    model_prompt sequence;
    /* How far it is published: blocks, and the node of the last one. */
    uint64_t published;
    int node;
    uint64_t node_serial;
} model_table;

typedef struct {
    uint64_t num_pages;
    uint32_t page_tokens;
    uint64_t max_cached; /* 0: no limit */
    bool bytes;          /* false: ids only */
    model_page pages[model_max_pages];
    pkv_page free_stack[model_max_pages];
    uint64_t num_free_stack;
    uint64_t fresh; /* pages from here on were never given out */
    uint64_t clock;
    model_node nodes[model_max_pages];
    uint64_t last_serial;
    model_root roots[model_max_tables * 4];
    int num_roots;
    int free_roots[model_max_tables * 4];
    int num_free_roots;
    model_table tables[model_max_tables];
    uint64_t *tags;       /* of all rows: [page][layer][offset] */
    pkv_pool_stats stats; /* the counters; gauges are filled in by model_gauges() */
} model;

model *model_create(uint64_t num_pages, uint32_t page_tokens, uint64_t max_cached, bool bytes);
void model_destroy(model *m);

/* Fills tags[] of a prompt from its tokens and media. */
void model_tag(model_prompt *prompt);
/* The bytes of one head's K (side 0) or V (side 1) in a row with this tag. */
void model_row(uint8_t *out, uint64_t bytes, uint64_t tag, uint32_t layer, int side, uint64_t head);
/* Makes `stats` complete; false when the model contradicts itself (R1, R2): counts against holders, states against N. */
bool model_gauges(model *m);

/* ---- pages and prefixes: as the functions of pool.h ---- */
pkv_status model_alloc(model *m, uint64_t num_pages, pkv_page *pages);
pkv_status model_retain(model *m, uint64_t num_pages, const pkv_page *pages);
pkv_status model_release(model *m, uint64_t num_pages, const pkv_page *pages, pkv_status *statuses);
uint64_t model_match(const model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, int *nodes);
uint64_t model_lookup(model *m, const model_prompt *prompt, uint64_t max_match, uint64_t capacity, pkv_page *pages);
pkv_status model_publish(model *m, const model_prompt *prompt, uint64_t first_block, uint64_t num_pages,
                         const pkv_page *pages, pkv_page *owner);
uint64_t model_evict(model *m, uint64_t num_pages);
void model_clear(model *m, int ns, pkv_clear_result *result); /* ns < 0: all */

/* ---- for the table half of the model ---- */
bool model_cached(const model *m, pkv_page page);
uint64_t model_num_free(const model *m);
uint64_t model_num_cached(const model *m);
uint64_t *model_tags(model *m, pkv_page page, uint32_t layer); /* of the rows of one layer of a page */
pkv_page model_take_page(model *m);
void model_retain_page(model *m, pkv_page page);
void model_release_page(model *m, pkv_page page);
int model_find_or_make_root(model *m, int ns);
void model_drop_root(model *m, int root);
/* -1: the page has another name already. */
int model_publish_block(model *m, int root, int parent, const model_prompt *prompt, uint64_t block, pkv_page page);

/* ---- tables: as the functions of table.h ---- */
pkv_status model_admit(model *m, model_table *t, const model_prompt *prompt, const pkv_admit_options *options,
                       uint64_t *matched_blocks);
pkv_status model_reserve(model *m, model_table *t, uint64_t num_tokens);
pkv_status model_set_tokens(model *m, model_table *t, uint64_t position, uint64_t num_tokens, const pkv_token *tokens);
/* The rows get the tags of the table's sequence, which must reach so far. */
pkv_status model_write(model *m, model_table *t, uint32_t layer, uint64_t position, uint64_t num_tokens);
pkv_status model_commit(model *m, model_table *t, uint64_t num_tokens);
pkv_status model_readable(model *m, const model_table *t, uint32_t layer, uint64_t position, uint64_t num_tokens);
pkv_status model_fork(model *m, model_table *t, model_table *twin);
pkv_status model_truncate(model *m, model_table *t, uint64_t num_tokens);
pkv_status model_slots(model *m, model_table *t, uint64_t position, uint64_t num_tokens, pkv_slot *slots);
void model_table_clear(model *m, model_table *t);
void model_table_destroy(model *m, model_table *t);
/* The block at `committed` is partly committed and somebody else may see its page. */
bool model_tail_shared(const model *m, const model_table *t);
uint64_t model_reserved(const model *m, const model_table *t);
/* Tag that a row of the table has now. */
uint64_t model_row_tag(model *m, const model_table *t, uint32_t layer, uint64_t position);

#endif
