// SPDX-License-Identifier: Apache-2.0
// Errors of the runtime and of the driver as statuses, and calls that leave no trace of theirs.
#pragma once

#include "tensor/cuda/driver.h"
#include "tensor/cuda/why.h"

#include <cuda_runtime_api.h>

namespace pkv::cuda {

/// The status of an error, with what failed and the runtime's words. cudaSuccess is PKV_OK.
pkv_status check(cudaError_t error, const char *what, const Why &why);
pkv_status check_driver(CUresult error, const char *what, const Why &why);

/// The runtime keeps the last error of a thread until somebody asks for it. Inside the plug-in errors are taken from
/// what calls return; this takes those away again that they left, and none that was there before.
class Unnoticed {
  public:
    Unnoticed() : before_(cudaPeekAtLastError()) {}
    ~Unnoticed() {
        if (before_ == cudaSuccess && cudaPeekAtLastError() != cudaSuccess) (void)cudaGetLastError();
    }
    Unnoticed(const Unnoticed &) = delete;
    Unnoticed &operator=(const Unnoticed &) = delete;

  private:
    cudaError_t before_;
};

/// A device's context is this thread's for a while, whatever was before, and calls are allowed that somebody's capture
/// of another stream would forbid (allocations, queries of events). Pushed and popped, not set: setting the device back
/// would make a context on one that the thread has never used.
class Scope {
  public:
    explicit Scope(CUcontext context) : pushed_(driver().push(context) == CUDA_SUCCESS) {
        if (pushed_) (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    }
    ~Scope() {
        if (!pushed_) return;
        (void)cudaThreadExchangeStreamCaptureMode(&mode_);
        CUcontext popped = nullptr;
        (void)driver().pop(&popped);
    }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

    /// Whether the context is current.
    pkv_status entered(const Why &why) const {
        return pushed_ ? PKV_OK : why.fail(PKV_ERR_IO, "the device's context cannot be used any more");
    }

  private:
    Unnoticed unnoticed_;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    bool pushed_;
};

} // namespace pkv::cuda
