// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/functions.h"

#include <memory>

/// The table's handle of an event.
struct pkv_device_event {
    cudaEvent_t event = nullptr;
};

namespace pkv::cuda {
namespace {

cudaStream_t stream_of(void *stream) { return static_cast<cudaStream_t>(stream); }

pkv_status make_stream(pkv_device_context *context, int32_t urgent, void **stream, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (stream == nullptr) return why.fail(PKV_ERR_INVALID, "stream is NULL");
    *stream = nullptr;
    return in_context(context, why, [&]() -> pkv_status {
        int least = 0;
        int greatest = 0;
        if (const pkv_status status = check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "a stream", why);
            status != PKV_OK)
            return status;
        cudaStream_t made = nullptr;
        const cudaError_t error =
            cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, urgent != 0 ? greatest : least);
        if (const pkv_status status = check(error, "a stream", why); status != PKV_OK) return status;
        try {
            context->add_stream(made);
        } catch (...) {
            (void)cudaStreamDestroy(made);
            throw;
        }
        *stream = made;
        return PKV_OK;
    });
}

void end_stream(pkv_device_context *context, void *stream) {
    if (stream == nullptr) return;
    (void)in_context(context, Why(nullptr, 0), [&] {
        context->remove_stream(stream_of(stream));
        (void)cudaStreamDestroy(stream_of(stream)); // its work goes on to the end
        return PKV_OK;
    });
}

pkv_status capturing(pkv_device_context *context, void *stream, int32_t *capturing, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (capturing == nullptr) return why.fail(PKV_ERR_INVALID, "capturing is NULL");
    return in_context(context, why, [&] {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        const pkv_status status = check(cudaStreamIsCapturing(stream_of(stream), &capture), "the stream", why);
        if (status == PKV_OK) *capturing = capture != cudaStreamCaptureStatusNone;
        return status;
    });
}

pkv_status wait_stream(pkv_device_context *context, void *stream, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    return in_context(context, why,
                      [&] { return check(cudaStreamSynchronize(stream_of(stream)), "a wait for the stream", why); });
}

uint64_t stream_id(pkv_device_context *context, void *stream) {
    unsigned long long id = 0;
    (void)in_context(context, Why(nullptr, 0), [&] {
        if (driver().stream_id == nullptr || driver().stream_id(stream_of(stream), &id) != CUDA_SUCCESS) id = 0;
        return PKV_OK;
    });
    return id;
}

pkv_status make_event(pkv_device_context *context, int32_t timed, pkv_device_event **event, char *text,
                      size_t text_bytes) {
    const Why why(text, text_bytes);
    if (event == nullptr) return why.fail(PKV_ERR_INVALID, "event is NULL");
    *event = nullptr;
    return in_context(context, why, [&]() -> pkv_status {
        auto made = std::make_unique<pkv_device_event>();
        const unsigned flags = cudaEventBlockingSync | (timed != 0 ? 0 : cudaEventDisableTiming);
        if (const pkv_status status = check(cudaEventCreateWithFlags(&made->event, flags), "an event", why);
            status != PKV_OK)
            return status;
        *event = made.release();
        return PKV_OK;
    });
}

void end_event(pkv_device_context *context, pkv_device_event *event) {
    if (event == nullptr) return;
    (void)in_context(context, Why(nullptr, 0), [&] {
        (void)cudaEventDestroy(event->event);
        return PKV_OK;
    });
    delete event;
}

/// The functions that need an event.
template <class Body>
pkv_status with_event(pkv_device_context *context, const void *event, char *text, size_t text_bytes, Body body) {
    const Why why(text, text_bytes);
    if (event == nullptr) return why.fail(PKV_ERR_INVALID, "the event is NULL");
    return in_context(context, why, [&] { return body(why); });
}

pkv_status record(pkv_device_context *context, pkv_device_event *event, void *stream, char *text, size_t text_bytes) {
    return with_event(context, event, text, text_bytes, [&](const Why &why) {
        return check(cudaEventRecord(event->event, stream_of(stream)), "an event", why);
    });
}

pkv_status query(pkv_device_context *context, pkv_device_event *event, char *text, size_t text_bytes) {
    return with_event(context, event, text, text_bytes,
                      [&](const Why &why) { return check(cudaEventQuery(event->event), "an event", why); });
}

pkv_status wait_event(pkv_device_context *context, pkv_device_event *event, char *text, size_t text_bytes) {
    return with_event(context, event, text, text_bytes, [&](const Why &why) {
        return check(cudaEventSynchronize(event->event), "a wait for an event", why);
    });
}

pkv_status order_after(pkv_device_context *context, void *stream, pkv_device_event *event, char *text,
                       size_t text_bytes) {
    return with_event(context, event, text, text_bytes, [&](const Why &why) {
        return check(cudaStreamWaitEvent(stream_of(stream), event->event, 0), "an event to wait for", why);
    });
}

pkv_status order_after_caller(pkv_device_context *context, void *stream, void *event, char *text, size_t text_bytes) {
    return with_event(context, event, text, text_bytes, [&](const Why &why) {
        return check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event), 0), "the caller's event",
                     why);
    });
}

pkv_status query_caller(pkv_device_context *context, void *event, char *text, size_t text_bytes) {
    return with_event(context, event, text, text_bytes, [&](const Why &why) {
        return check(cudaEventQuery(static_cast<cudaEvent_t>(event)), "the caller's event", why);
    });
}

pkv_status elapsed_ns(pkv_device_context *context, pkv_device_event *from, pkv_device_event *to, uint64_t *ns,
                      char *text, size_t text_bytes) {
    return with_event(context, from, text, text_bytes, [&](const Why &why) -> pkv_status {
        if (to == nullptr || ns == nullptr) return why.fail(PKV_ERR_INVALID, "to or ns is NULL");
        float milliseconds = 0;
        const cudaError_t error = cudaEventElapsedTime(&milliseconds, from->event, to->event);
        if (const pkv_status status = check(error, "the time between events", why); status != PKV_OK) return status;
        *ns = milliseconds > 0 ? static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6) : 0;
        return PKV_OK;
    });
}

// Pinned memory has one address on host and device.
CUdeviceptr device_address(const void *word) { return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(word)); }

pkv_status check_word(const pkv_device_context *context, const uint64_t *word, const Why &why) {
    if (context == nullptr || word == nullptr || reinterpret_cast<uintptr_t>(word) % sizeof *word != 0)
        return why.fail(PKV_ERR_INVALID, "the word is NULL or not aligned to 8 bytes");
    if (context->facts.waits_on_words == 0)
        return why.fail(PKV_ERR_UNSUPPORTED, "device %d, or its driver, has no streams that wait for words",
                        context->index);
    return PKV_OK;
}

pkv_status wait_word(pkv_device_context *context, void *stream, const uint64_t *word, uint64_t value, char *text,
                     size_t text_bytes) {
    const Why why(text, text_bytes);
    if (const pkv_status status = check_word(context, word, why); status != PKV_OK) return status;
    return in_context(context, why, [&] {
        return check_driver(
            driver().wait_value(stream_of(stream), device_address(word), value, CU_STREAM_WAIT_VALUE_GEQ),
            "a word to wait for", why);
    });
}

pkv_status write_word(pkv_device_context *context, void *stream, uint64_t *word, uint64_t value, char *text,
                      size_t text_bytes) {
    const Why why(text, text_bytes);
    if (const pkv_status status = check_word(context, word, why); status != PKV_OK) return status;
    return in_context(context, why, [&] {
        return check_driver(
            driver().write_value(stream_of(stream), device_address(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
            "a word to write", why);
    });
}

} // namespace

void fill_streams(pkv_device_table &table) {
    table.make_stream = make_stream;
    table.end_stream = end_stream;
    table.capturing = capturing;
    table.wait_stream = wait_stream;
    table.stream_id = stream_id;
    table.make_event = make_event;
    table.end_event = end_event;
    table.record = record;
    table.query = query;
    table.wait_event = wait_event;
    table.order_after = order_after;
    table.order_after_caller = order_after_caller;
    table.query_caller = query_caller;
    table.elapsed_ns = elapsed_ns;
    table.wait_word = wait_word;
    table.write_word = write_word;
}

} // namespace pkv::cuda
