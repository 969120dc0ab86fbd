// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/device.h"

#include "tensor/cuda/kernels.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <pagedkv/tensor.h>

using namespace pkv::cuda;

namespace pkv::cuda {
namespace {

constexpr int least_compute = 75;
/// CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS of CUDA 12 and later: before, the name was that of another one.
constexpr auto waits_for_64_bit_words = static_cast<CUdevice_attribute>(122);

std::vector<Kernel> all_kernels() {
    std::vector<Kernel> kernels;
    for (int op = 0; op < 4; ++op)
        for (int unit = 1; unit <= 16; unit *= 2)
            kernels.push_back({static_cast<Kernel::Op>(op), static_cast<uint8_t>(unit), 0, 0, false});
    for (const Kernel::Op op : {Kernel::Op::write, Kernel::Op::gather})
        for (uint8_t from = PKV_DTYPE_F32; from <= PKV_DTYPE_I8; ++from)
            for (uint8_t to = PKV_DTYPE_F32; to <= PKV_DTYPE_I8; ++to)
                for (const bool vector : {false, true}) kernels.push_back({op, 0, from, to, vector});
    return kernels;
}

/// cudaGetDeviceCount() with what its errors mean.
pkv_status count_devices(int &count, const Why &why) {
    count = 0;
    int installed = 0;
    (void)cudaDriverGetVersion(&installed); // 0: there is none, or none that can say
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return PKV_OK;
    count = 0;
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return why.fail(PKV_ERR_UNSUPPORTED, "the CUDA driver has no device");
    if (error == cudaErrorInsufficientDriver && installed == 0)
        return why.fail(PKV_ERR_UNSUPPORTED, "no CUDA driver (libcuda.so.1) on this machine");
    if (error == cudaErrorInsufficientDriver)
        return why.fail(PKV_ERR_UNSUPPORTED,
                        "the CUDA driver is too old: it is for CUDA %d.%d, this plug-in needs one for %d.%d",
                        installed / 1000, installed % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    (void)check(error, "the CUDA driver", why);
    return PKV_ERR_UNSUPPORTED;
}

pkv_status device_number(CUdevice device, CUdevice_attribute attribute, int &value, const Why &why) {
    return check_driver(driver().device_attribute(&value, attribute, device), "an attribute of the device", why);
}

} // namespace

int32_t device_count() {
    const Unnoticed unnoticed;
    int count = 0;
    (void)count_devices(count, Why(nullptr, 0));
    return count;
}

pkv_status device_available(int32_t index, const Why &why) {
    const Unnoticed unnoticed;
    int count = 0;
    if (const pkv_status status = count_devices(count, why); status != PKV_OK) return status;
    if (index < 0 || index >= count)
        return why.fail(PKV_ERR_UNSUPPORTED, "no CUDA device %d: there are %d", index, count);
    if (!driver().has_contexts()) return why.fail(PKV_ERR_UNSUPPORTED, "the CUDA driver lacks functions for contexts");
    int major = 0;
    int minor = 0;
    if (const pkv_status status =
            check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "the device", why);
        status != PKV_OK)
        return status;
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (10 * major + minor < least_compute)
        return why.fail(PKV_ERR_UNSUPPORTED, "CUDA device %d has compute capability %d.%d, %d.%d is needed", index,
                        major, minor, least_compute / 10, least_compute % 10);
    return PKV_OK;
}

uint32_t kernel_number(const Kernel &kernel) {
    if (kernel.unit != 0)
        return static_cast<uint32_t>(kernel.op) * 5 + static_cast<uint32_t>(std::countr_zero(kernel.unit));
    const uint32_t pair = kernel.from * 7u + kernel.to;
    return 20 + ((kernel.op == Kernel::Op::write ? 0 : 49) + pair) * 2 + (kernel.vector ? 1 : 0);
}

} // namespace pkv::cuda

/// Some engines have all streams share one queue of the device. What a stream waits for would stand behind it there.
static bool has_one_queue() {
    const char *text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return text != nullptr && std::strtol(text, nullptr, 10) == 1;
}

pkv_status pkv_device_context::read_facts(const Why &why) {
    facts.struct_size = sizeof facts;
    cudaDeviceProp properties;
    if (const pkv_status status = check(cudaGetDeviceProperties(&properties, index), "the device's properties", why);
        status != PKV_OK)
        return status;
    std::snprintf(facts.name, sizeof facts.name, "%.127s", properties.name);
    facts.memory_bytes = properties.totalGlobalMem;
    facts.multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
    facts.compute = static_cast<uint32_t>(10 * properties.major + properties.minor);
    int words = 0;
    if (driver().wait_value != nullptr && driver().write_value != nullptr)
        (void)device_number(device, waits_for_64_bit_words, words, Why(nullptr, 0));
    facts.waits_on_words = words != 0 && !has_one_queue();
    facts.batched_copies = driver().copy_batch != nullptr || driver().copy_batch_12 != nullptr;
    if (const pkv_status status = check(cudaDriverGetVersion(&facts.driver), "the driver's version", why);
        status != PKV_OK)
        return status;
    return check(cudaRuntimeGetVersion(&facts.runtime), "the runtime's version", why);
}

pkv_status pkv_device_context::load_kernels(const Why &why) {
    for (const Kernel &kernel : all_kernels()) {
        const void *const function = kernel_of(kernel);
        if (function == nullptr) continue; // no such conversion
        int blocks = 0;
        const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, block_threads, 0);
        if (const pkv_status status = check(error, "the kernels", why); status != PKV_OK) return status;
        blocks_at_once[kernel_number(kernel)] = static_cast<uint32_t>(std::max(blocks, 1)) * facts.multiprocessors;
    }
    return PKV_OK;
}

pkv_status pkv_device_context::open(int32_t device_index, const Why &why) {
    if (const pkv_status status = device_available(device_index, why); status != PKV_OK) return status;
    const Unnoticed unnoticed;
    index = device_index;
    if (const pkv_status status = check_driver(driver().device_get(&device, index), "the device", why);
        status != PKV_OK)
        return status;
    if (const pkv_status status = check_driver(driver().retain_primary(&primary, device), "the device's context", why);
        status != PKV_OK) {
        primary = nullptr;
        return status;
    }
    const Scope scope(primary);
    pkv_status status = scope.entered(why);
    if (status == PKV_OK) status = read_facts(why);
    if (status == PKV_OK) status = load_kernels(why);
    if (status == PKV_OK) status = staging.prepare(why);
    return status;
}

void pkv_device_context::close() {
    if (primary == nullptr) return;
    {
        const Scope scope(primary);
        if (scope.entered(Why(nullptr, 0)) == PKV_OK) {
            const std::lock_guard lock(mutex_);
            for (cudaStream_t stream : streams_) {
                (void)cudaStreamSynchronize(stream);
                (void)cudaStreamDestroy(stream);
            }
            streams_.clear();
            staging.clear();
        }
    }
    (void)driver().release_primary(device);
    primary = nullptr;
}

void pkv_device_context::add_stream(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
}

void pkv_device_context::remove_stream(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, stream);
}

bool pkv_device_context::owns(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    return std::find(streams_.begin(), streams_.end(), stream) != streams_.end();
}
