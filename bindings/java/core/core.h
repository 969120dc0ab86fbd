/* SPDX-License-Identifier: Apache-2.0 */
/* What the wrapper that SWIG makes calls. */
#ifndef PKV_JAVA_CORE_H
#define PKV_JAVA_CORE_H

#include <jni.h>
#include <pagedkv/pagedkv.h>
#include <stddef.h>
#include <stdint.h>

#define PKVJ_HIDDEN __attribute__((visibility("hidden")))

/* Throws PagedKvException with a message, or with that of this thread's last failure. */
PKVJ_HIDDEN void pkvj_throw(JNIEnv *env, pkv_status status, const char *message);
PKVJ_HIDDEN void pkvj_throw_last(JNIEnv *env, pkv_status status);
/* IllegalArgumentException for a number that is no uint32_t. */
PKVJ_HIDDEN void pkvj_out_of_range(JNIEnv *env, const char *name, jlong value);
/* 0, and IndexOutOfBoundsException, if an array has fewer elements than are needed. */
PKVJ_HIDDEN int pkvj_long_enough(JNIEnv *env, jarray array, uint64_t needed, const char *name);

/* array[0] = value */
PKVJ_HIDDEN void pkvj_give(JNIEnv *env, jlongArray array, uint64_t value);

/* {address, dtype, num_tokens, token_stride, head_stride}, or NULL */
PKVJ_HIDDEN pkv_tensor *pkvj_tensor(JNIEnv *env, jlongArray fields, pkv_tensor *tensor);

/* Copies of a byte[][]. */
typedef struct {
    pkv_bytes *parts;
    uint32_t count;
} pkvj_pieces;
PKVJ_HIDDEN int pkvj_open_pieces(JNIEnv *env, jobjectArray array, pkvj_pieces *pieces);
PKVJ_HIDDEN void pkvj_close_pieces(pkvj_pieces *pieces);

#endif
