/* SPDX-License-Identifier: Apache-2.0 */
/* org.pagedkv.internal.Core: the C API, name by name, for the classes of org.pagedkv. Handles and addresses are longs, arrays
 * Java's own (as long as the C function wants them, or longer), and a status that is not PKV_OK is a PagedKvException,
 * thrown when everything that the call gives has been written. */
%module Core

%{
#include "core.h"

/* The classes know how many tables a step has, and pass arrays of that length. */
#define PKVB_STEP_ROWS 0
%}

%pragma(java) jniclassimports=%{
import java.nio.ByteBuffer;
%}
%pragma(java) moduleimports=%{
import java.nio.ByteBuffer;
%}
%pragma(java) jniclasscode=%{
    static {
        Loader.load();
    }
%}

/* ---- structs: freed by close(), without a finalizer ---- */

%typemap(javafinalize) SWIGTYPE ""
%typemap(javainterfaces) SWIGTYPE "AutoCloseable"
%typemap(javacode) SWIGTYPE %{
  @Override
  public void close() {
    delete();
  }
%}

/* ---- numbers and texts ---- */

/* Java has no unsigned int: a long, of which no bit is lost silently. */
%typemap(in) uint32_t {
    if ($input < 0 || $input > (jlong)UINT32_MAX) {
        pkvj_out_of_range(jenv, "$1_name", $input);
        return $null;
    }
    $1 = (uint32_t)$input;
}

/* UTF-8, terminated, as bytes: JNI's own strings are of another encoding. */
%define PKVJ_TEXT(name)
%typemap(jni) const char *name "jbyteArray"
%typemap(jtype) const char *name "byte[]"
%typemap(jstype) const char *name "byte[]"
%typemap(javain) const char *name "$javainput"
%typemap(in) const char *name {
    $1 = $input != NULL ? (char *)(*jenv)->GetByteArrayElements(jenv, $input, NULL) : NULL;
}
%typemap(freearg) const char *name {
    if ($1 != NULL) (*jenv)->ReleaseByteArrayElements(jenv, $input, (jbyte *)$1, JNI_ABORT);
}
%enddef
PKVJ_TEXT(path)
PKVJ_TEXT(name)
PKVJ_TEXT(listen)
PKVJ_TEXT(provider)
PKVJ_TEXT(fabric_host)
PKVJ_TEXT(address)
PKVJ_TEXT(directory)
PKVJ_TEXT(advertise)
PKVJ_TEXT(directory_prefix)

/* ---- statuses ---- */

%define PKV_STATUS(type)
%typemap(jni) type "void"
%typemap(jtype) type "void"
%typemap(jstype) type "void"
%typemap(javaout) type "{
    $jnicall;
  }"
%typemap(out) type ""
%typemap(ret) type {
    if ($1 != PKV_OK) PKVJ_THROW_##type(jenv, $1);
}
%enddef
%{
#define PKVJ_THROW_pkv_status(env, status) pkvj_throw_last(env, status)
#define PKVJ_THROW_pkvb_status(env, status) pkvj_throw(env, status, "no memory for a copy")
%}
%apply int { pkv_status status };
%typemap(ret) pkv_status status ""

/* ---- handles ---- */

%define PKV_HANDLE(type, KIND)
%typemap(jni) type * "jlong"
%typemap(jtype) type * "long"
%typemap(jstype) type * "long"
%typemap(javain) type * "$javainput"
%typemap(in) type * "$1 = (type *)(uintptr_t)$input;"
PKVJ_GIVEN(type **, type *)
%enddef

%define PKV_HANDLES(type, name)
PKVJ_ARRAY_OF(type *const *name, arg2, jlong, Long, long, JNI_ABORT)
%enddef

/* A single number that a call gives: into element 0 of an array, or nowhere. */
%define PKVJ_GIVEN(parameter, type)
%typemap(jni) parameter "jlongArray"
%typemap(jtype) parameter "long[]"
%typemap(jstype) parameter "long[]"
%typemap(javain) parameter "$javainput"
%typemap(in) parameter (type value = 0) "$1 = $input != NULL ? &value : NULL;"
%typemap(argout) parameter "if ($input != NULL) pkvj_give(jenv, $input, (uint64_t)value$argnum);"
%enddef

%define PKV_VALUE_OUT(type, name)
PKVJ_GIVEN(type *name, type)
%enddef

/* ---- arrays ---- */

/* The elements are taken in the check, when all arguments are there. The classes pass arrays that are long enough: that one is
 * not is a fault of theirs, and what was taken before it is not given back. */
%define PKVJ_ARRAY_OF(parameter, needed, jelement, Element, element, mode)
%typemap(jni) parameter #jelement "Array"
%typemap(jtype) parameter #element "[]"
%typemap(jstype) parameter #element "[]"
%typemap(javain) parameter "$javainput"
%typemap(in) parameter "$1 = NULL;"
%typemap(check) parameter {
    if ($input != NULL) {
        if (!pkvj_long_enough(jenv, $input, (uint64_t)(needed), "$1_name")) return $null;
        $1 = ($1_ltype)(*jenv)->Get##Element##ArrayElements(jenv, $input, NULL);
        if ($1 == NULL) return $null;
    }
}
%typemap(argout) parameter ""
%typemap(freearg) parameter {
    if ($1 != NULL) (*jenv)->Release##Element##ArrayElements(jenv, $input, (jelement *)$1, mode);
}
%enddef

%define PKVJ_ARRAY(parameter, name, jelement, Element, element, mode)
PKVJ_ARRAY_OF(parameter, PKVB_EXTENT_$symname_##name, jelement, Element, element, mode)
%enddef

%define PKVJ_IN_pkv_token(name)
PKVJ_ARRAY(const pkv_token *name, name, jint, Int, int, JNI_ABORT)
%enddef
%define PKVJ_IN_pkv_page(name)
PKVJ_ARRAY(const pkv_page *name, name, jint, Int, int, JNI_ABORT)
%enddef
%define PKVJ_IN_pkv_slot(name)
PKVJ_ARRAY(const pkv_slot *name, name, jlong, Long, long, JNI_ABORT)
%enddef
%define PKVJ_IN_uint64_t(name)
PKVJ_ARRAY(const uint64_t *name, name, jlong, Long, long, JNI_ABORT)
%enddef
%define PKVJ_IN_uint32_t(name)
PKVJ_ARRAY(const uint32_t *name, name, jint, Int, int, JNI_ABORT)
%enddef
%define PKVJ_IN_float(name)
PKVJ_ARRAY(const float *name, name, jfloat, Float, float, JNI_ABORT)
%enddef
%define PKVJ_OUT_pkv_page(name)
PKVJ_ARRAY(pkv_page *name, name, jint, Int, int, 0)
%enddef
%define PKVJ_OUT_pkv_slot(name)
PKVJ_ARRAY(pkv_slot *name, name, jlong, Long, long, 0)
%enddef
%define PKVJ_OUT_pkv_status(name)
PKVJ_ARRAY(pkv_status *name, name, jint, Int, int, 0)
%enddef
%define PKVJ_OUT_int32_t(name)
PKVJ_ARRAY(int32_t *name, name, jint, Int, int, 0)
%enddef
%define PKVJ_OUT_uint64_t(name)
PKVJ_ARRAY(uint64_t *name, name, jlong, Long, long, 0)
%enddef
%define PKVJ_OUT_uint8_t(name)
PKVJ_ARRAY(uint8_t *name, name, jbyte, Byte, byte, 0)
%enddef

%define PKV_ARRAY_IN(type, name)
PKVJ_IN_##type(name)
%enddef
%define PKV_ARRAY_OUT(type, name)
PKVJ_OUT_##type(name)
%enddef

/* Arrays of structs: bytes. */
%define PKV_PACKED_IN(type, name)
PKVJ_ARRAY_OF(const type *name, pkvb_times(PKVB_EXTENT_$symname_##name, sizeof(type)), jbyte, Byte, byte, JNI_ABORT)
%enddef
%define PKV_PACKED_OUT(type, name)
PKVJ_ARRAY_OF(type *name, pkvb_times(PKVB_EXTENT_$symname_##name, sizeof(type)), jbyte, Byte, byte, 0)
%enddef

/* ---- bytes ---- */

%typemap(jni) (const void *data, uint64_t size) "jbyteArray"
%typemap(jtype) (const void *data, uint64_t size) "byte[]"
%typemap(jstype) (const void *data, uint64_t size) "byte[]"
%typemap(javain) (const void *data, uint64_t size) "$javainput"
%define PKV_BYTES_IN
%typemap(in) (const void *data, uint64_t size) {
    $1 = NULL;
    $2 = 0;
    if ($input != NULL) {
        $1 = (*jenv)->GetByteArrayElements(jenv, $input, NULL);
        if ($1 == NULL) return $null;
        $2 = (uint64_t)(*jenv)->GetArrayLength(jenv, $input);
    }
}
%typemap(freearg) (const void *data, uint64_t size) {
    if ($1 != NULL) (*jenv)->ReleaseByteArrayElements(jenv, $input, (jbyte *)$1, JNI_ABORT);
}
%enddef

/* What may be large is an address: of a direct buffer that the class holds, and has measured. */
%define PKV_BYTES_OUT(name)
%typemap(jni) void *name "jlong"
%typemap(jtype) void *name "long"
%typemap(jstype) void *name "long"
%typemap(javain) void *name "$javainput"
%typemap(in) void *name "$1 = (void *)(uintptr_t)$input;"
%clear (const void *name, uint64_t size);
%apply void *name { const void *name };
%enddef

%define PKV_TEXT_OUT
PKVJ_ARRAY_OF(char *buffer, PKVJ_CAPACITY_$symname, jbyte, Byte, byte, 0)
%enddef
%{
#define PKVJ_CAPACITY_node_address arg3
#define PKVJ_CAPACITY_stats_prometheus arg3
%}

%define PKV_BYTES_LIST
%typemap(jni) (const pkv_bytes *parts, uint64_t num_parts) "jobjectArray"
%typemap(jtype) (const pkv_bytes *parts, uint64_t num_parts) "byte[][]"
%typemap(jstype) (const pkv_bytes *parts, uint64_t num_parts) "byte[][]"
%typemap(javain) (const pkv_bytes *parts, uint64_t num_parts) "$javainput"
%typemap(in) (const pkv_bytes *parts, uint64_t num_parts) (pkvj_pieces pieces) {
    if (!pkvj_open_pieces(jenv, $input, &pieces)) return $null;
    $1 = pieces.parts;
    $2 = pieces.count;
}
%typemap(freearg) (const pkv_bytes *parts, uint64_t num_parts) "pkvj_close_pieces(&pieces$argnum);"
%enddef
%define PKV_TICKETS
%typemap(jni) (uint32_t num_tickets, const pkv_bytes *tickets) "jobjectArray"
%typemap(jtype) (uint32_t num_tickets, const pkv_bytes *tickets) "byte[][]"
%typemap(jstype) (uint32_t num_tickets, const pkv_bytes *tickets) "byte[][]"
%typemap(javain) (uint32_t num_tickets, const pkv_bytes *tickets) "$javainput"
%typemap(in) (uint32_t num_tickets, const pkv_bytes *tickets) (pkvj_pieces pieces) {
    if (!pkvj_open_pieces(jenv, $input, &pieces)) return $null;
    $2 = pieces.parts;
    $1 = pieces.count;
}
%typemap(freearg) (uint32_t num_tickets, const pkv_bytes *tickets) "pkvj_close_pieces(&pieces$argnum);"
%enddef

/* ---- structs that are filled in: objects, as SWIG has them ---- */

%define PKV_STRUCT_OUT(type, name)
%enddef

/* ---- rows: address, type, tokens, strides; the class has measured the memory ---- */

%define PKV_TENSOR(name)
%typemap(jni) const pkv_tensor *name "jlongArray"
%typemap(jtype) const pkv_tensor *name "long[]"
%typemap(jstype) const pkv_tensor *name "long[]"
%typemap(javain) const pkv_tensor *name "$javainput"
%typemap(in) const pkv_tensor *name (pkv_tensor tensor) "$1 = pkvj_tensor(jenv, $input, &tensor);"
%enddef

%include "pagedkv.i"
%include "headers.i"

/* ---- the binding's own ---- */

%rename("%s") memory_address;
%rename("%s") memory_to_ints;
%rename("%s") memory_to_longs;
%rename("%s") memory_to_bytes;
%rename("%s") memory_from_bytes;
%rename("%s") headers_version;
%typemap(jni) void *direct "jobject"
%typemap(jtype) void *direct "ByteBuffer"
%typemap(jstype) void *direct "ByteBuffer"
%typemap(javain) void *direct "$javainput"
%typemap(in) void *direct "$1 = (*jenv)->GetDirectBufferAddress(jenv, $input);"
PKVJ_ARRAY_OF(int32_t *ints, arg2, jint, Int, int, 0)
PKVJ_ARRAY_OF(int64_t *longs, arg2, jlong, Long, long, 0)
PKVJ_ARRAY_OF(uint8_t *read, arg2, jbyte, Byte, byte, 0)
PKVJ_ARRAY_OF(const uint8_t *written, arg2, jbyte, Byte, byte, JNI_ABORT)
%inline %{
/* Of a direct buffer, from its index 0. */
static uint64_t memory_address(void *direct) { return (uint64_t)(uintptr_t)direct; }
static void memory_to_ints(uint64_t address, uint64_t count, int32_t *ints) {
    if (count != 0) memcpy(ints, (const void *)(uintptr_t)address, count * sizeof *ints);
}
static void memory_to_longs(uint64_t address, uint64_t count, int64_t *longs) {
    if (count != 0) memcpy(longs, (const void *)(uintptr_t)address, count * sizeof *longs);
}
static void memory_to_bytes(uint64_t address, uint64_t count, uint8_t *read) {
    if (count != 0) memcpy(read, (const void *)(uintptr_t)address, count);
}
static void memory_from_bytes(uint64_t address, uint64_t count, const uint8_t *written) {
    if (count != 0) memcpy((void *)(uintptr_t)address, written, count);
}
/* What this file was compiled with. */
static int32_t headers_version(void) { return PKV_VERSION_NUMBER; }
%}
