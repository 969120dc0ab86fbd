/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Looked up once, when the library is loaded, so that no thread does it later. */
static jclass exception_class, argument_class, bounds_class, memory_class;
static jmethodID make_exception;

static jclass global_class(JNIEnv *env, const char *name) {
    const jclass local = (*env)->FindClass(env, name);
    if (local == NULL) return NULL;
    const jclass global = (*env)->NewGlobalRef(env, local);
    (*env)->DeleteLocalRef(env, local);
    return global;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env = NULL;
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
    /* libfabric, which the first node loads, may bring libinfinipath in, and that takes SIGSEGV and SIGILL, which the virtual
     * machine lives by, unless it is told not to. */
    (void)setenv("IPATH_NO_BACKTRACE", "1", 0);
    if ((exception_class = global_class(env, "org/pagedkv/PagedKvException")) == NULL) return JNI_ERR;
    if ((argument_class = global_class(env, "java/lang/IllegalArgumentException")) == NULL) return JNI_ERR;
    if ((bounds_class = global_class(env, "java/lang/IndexOutOfBoundsException")) == NULL) return JNI_ERR;
    if ((memory_class = global_class(env, "java/lang/OutOfMemoryError")) == NULL) return JNI_ERR;
    make_exception = (*env)->GetStaticMethodID(env, exception_class, "of", "(I[B)Lorg/pagedkv/PagedKvException;");
    return make_exception != NULL ? JNI_VERSION_1_8 : JNI_ERR;
}

JNIEXPORT void JNICALL JNI_OnUnload(JavaVM *vm, void *reserved) {
    JNIEnv *env = NULL;
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) return;
    (*env)->DeleteGlobalRef(env, exception_class);
    (*env)->DeleteGlobalRef(env, argument_class);
    (*env)->DeleteGlobalRef(env, bounds_class);
    (*env)->DeleteGlobalRef(env, memory_class);
}

void pkvj_throw(JNIEnv *env, pkv_status status, const char *message) {
    if ((*env)->ExceptionCheck(env)) return;
    const jsize size = (jsize)strlen(message);
    const jbyteArray bytes = (*env)->NewByteArray(env, size); /* paths in messages are bytes, not JNI's kind of UTF-8 */
    if (bytes == NULL) return;
    (*env)->SetByteArrayRegion(env, bytes, 0, size, (const jbyte *)message);
    const jobject exception = (*env)->CallStaticObjectMethod(env, exception_class, make_exception, (jint)status, bytes);
    if ((*env)->ExceptionCheck(env)) return;
    (void)(*env)->Throw(env, (jthrowable)exception);
    (*env)->DeleteLocalRef(env, exception);
    (*env)->DeleteLocalRef(env, bytes);
}

void pkvj_throw_last(JNIEnv *env, pkv_status status) {
    char message[1024] = "";
    (void)pkv_last_error(message, sizeof message);
    pkvj_throw(env, status, message);
}

void pkvj_out_of_range(JNIEnv *env, const char *name, jlong value) {
    char message[160];
    (void)snprintf(message, sizeof message, "%s is %" PRId64 ", outside 0 .. 4294967295", name, (int64_t)value);
    (void)(*env)->ThrowNew(env, argument_class, message);
}

int pkvj_long_enough(JNIEnv *env, jarray array, uint64_t needed, const char *name) {
    const uint64_t length = (uint64_t)(*env)->GetArrayLength(env, array);
    char message[160];
    if (length >= needed) return 1;
    (void)snprintf(message, sizeof message, "%s has %" PRIu64 " elements, %" PRIu64 " are needed", name, length, needed);
    (void)(*env)->ThrowNew(env, bounds_class, message);
    return 0;
}

void pkvj_give(JNIEnv *env, jlongArray array, uint64_t value) {
    const jlong given = (jlong)value;
    (*env)->SetLongArrayRegion(env, array, 0, 1, &given);
}

pkv_tensor *pkvj_tensor(JNIEnv *env, jlongArray fields, pkv_tensor *tensor) {
    jlong values[5] = {0};
    if (fields == NULL) return NULL;
    (*env)->GetLongArrayRegion(env, fields, 0, 5, values);
    *tensor = (pkv_tensor)PKV_TENSOR_INIT;
    tensor->data = (void *)(uintptr_t)values[0];
    tensor->dtype = (int32_t)values[1];
    tensor->num_tokens = (uint64_t)values[2];
    tensor->token_stride = (uint64_t)values[3];
    tensor->head_stride = (uint64_t)values[4];
    return tensor;
}

/* One piece of memory: the list, then the bytes. */
int pkvj_open_pieces(JNIEnv *env, jobjectArray array, pkvj_pieces *pieces) {
    const jsize count = array != NULL ? (*env)->GetArrayLength(env, array) : 0;
    uint64_t bytes = 0;
    pieces->parts = NULL;
    pieces->count = (uint32_t)count;
    for (jsize i = 0; i < count; ++i) {
        const jbyteArray part = (*env)->GetObjectArrayElement(env, array, i);
        if (part != NULL) bytes += (uint64_t)(*env)->GetArrayLength(env, part);
        (*env)->DeleteLocalRef(env, part);
    }
    pieces->parts = malloc((size_t)count * sizeof *pieces->parts + (size_t)bytes + 1);
    if (pieces->parts == NULL) {
        (void)(*env)->ThrowNew(env, memory_class, "no memory for a copy");
        return 0;
    }
    unsigned char *at = (unsigned char *)(pieces->parts + count);
    uint64_t left = bytes; /* another thread may put a longer array there meanwhile */
    for (jsize i = 0; i < count; ++i) {
        const jbyteArray part = (*env)->GetObjectArrayElement(env, array, i);
        uint64_t size = part != NULL ? (uint64_t)(*env)->GetArrayLength(env, part) : 0;
        if (size > left) size = left;
        if (size != 0) (*env)->GetByteArrayRegion(env, part, 0, (jsize)size, (jbyte *)at);
        pieces->parts[i] = (pkv_bytes){at, size};
        at += size;
        left -= size;
        (*env)->DeleteLocalRef(env, part);
    }
    return 1;
}

void pkvj_close_pieces(pkvj_pieces *pieces) { free(pieces->parts); }
