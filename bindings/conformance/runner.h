/* SPDX-License-Identifier: Apache-2.0 */
/* The reference runner of the conformance cases: what a line of cases.txt is, and what operations make of it (README.md). */
#ifndef CONFORMANCE_RUNNER_H
#define CONFORMANCE_RUNNER_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_ARGS = 40, MAX_OUTPUTS = 64, MAX_OBJECTS = 64 };

typedef struct {
    char *key, *value;
    bool used;
} pair;

typedef struct {
    long number;
    char *op;
    pair args[MAX_ARGS], wanted[MAX_ARGS];
    int num_args, num_wanted;
    pair outputs[MAX_OUTPUTS]; /* keys are literals; values are malloc'ed */
    int num_outputs;
    bool broken; /* the line itself is wrong: complain() was called */
} line;

typedef struct {
    int64_t *items;
    uint64_t count;
} list;

/* ---- arguments of a line (line.c) ---- */

bool parse_line(char *text, line *out);
void free_line(line *l);
/* Says on stderr what is wrong with the line: the case fails. */
void complain(line *l, const char *format, ...);

bool has(line *l, const char *key);
const char *text_arg(line *l, const char *key, const char *otherwise);
uint64_t number_arg(line *l, const char *key, uint64_t otherwise);
/* One of the names (NULL at the end), as its place in the list plus `first`. */
int32_t name_arg(line *l, const char *key, const char *const *names, int32_t first, int32_t otherwise);
list list_arg(line *l, const char *key); /* to be freed with free_list */
void free_list(list *items);
int32_t *narrow(const list *items); /* int32 copies; to be freed */
/* Text, or bytes in hexadecimal after an @, in turn in one of a few static buffers. */
pkv_bytes bytes_arg(line *l, const char *key);
pkv_bytes bytes_of(line *l, const char *text, size_t length);

/* ---- outputs of a line (line.c) ---- */

void out_text(line *l, const char *key, const char *value);
void out_number(line *l, const char *key, uint64_t value);
void out_signed(line *l, const char *key, int64_t value);
void out_list(line *l, const char *key, const int64_t *items, uint64_t count);
void out_unsigned(line *l, const char *key, const uint64_t *items, uint64_t count);
void out_pages(line *l, const char *key, const int32_t *items, uint64_t count);
void out_statuses(line *l, const char *key, const pkv_status *items, uint64_t count);
void out_digest(line *l, const char *key, const void *data, uint64_t size); /* FNV-1a, 64 bits */
const char *short_status(pkv_status status);                                /* without PKV_ERR_ */
/* Lists are written out: ranges and repetitions become their items. To be freed. */
char *expanded(const char *value);

/* ---- objects of a case (objects.c) ---- */

typedef enum { POOL, TABLE, BATCH, TIER, QUEUE, OP, SESSION, COUNTER, GROUP, KINDS } kind;

typedef struct {
    int32_t *block_table, *lengths, *last_page_len;
    int64_t *slot_mapping;
    uint64_t max_tables, max_blocks, max_tokens;
    uint32_t rows;
} batch_memory;

typedef struct {
    kind kind;
    char *name;
    void *handle;
    uint64_t counter;        /* COUNTER */
    pkv_group_options group; /* GROUP */
    batch_memory arrays;     /* BATCH */
    uint32_t rows;           /* SESSION: tables of the step */
} object;

object *make_object(line *l, kind k, const char *key);
/* NULL where the line names none, or one that is not there (a complaint). */
object *object_arg(line *l, kind k, const char *key);
void *handle_arg(line *l, kind k, const char *key);
object *find_object(kind k, const char *name);
void end_objects(void); /* closes all, the last one first */

const pkv_sync *sync_arg(line *l, pkv_sync *sync); /* sync=COUNTER:VALUE; NULL without it */
const char *scratch_path(const char *name);

/* ---- prompts and rows (rows.c) ---- */

typedef struct {
    pkv_prompt prompt;
    pkv_namespace ns;
    pkv_media media[16];
    int32_t *tokens;
} prompt_memory;
/* tokens= model= adapter= adapter_id= generation= salt= media= */
const pkv_prompt *prompt_arg(line *l, prompt_memory *memory);
const pkv_namespace *namespace_arg(line *l, pkv_namespace *ns); /* NULL where no part is named */
void free_prompt(prompt_memory *memory);

typedef struct {
    pkv_tensor tensor[2];
    bool given[2];
    uint64_t bytes[2];
    unsigned char *data[2];
} row_memory;
/* Rows for `count` tokens of a group of the pool, filled by the pattern of fill= for position, position + 1 ... */
bool make_rows(line *l, pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t position, uint64_t count, bool fill,
               row_memory *rows);
const pkv_tensor *side(row_memory *rows, int which);
void out_rows(line *l, row_memory *rows); /* digests: k, v */
void free_rows(row_memory *rows);

/* ---- operations ---- */

typedef pkv_status (*operation)(line *l);
typedef struct {
    const char *name;
    operation run;
} named_operation;
extern const named_operation pool_operations[], table_operations[], tier_operations[], prefetch_operations[];

/* Options of a layer group, from a line. */
pkv_group_options group_args(line *l);

#endif
