// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/errors.h"

namespace pkv::cuda {
namespace {

pkv_status status_of(cudaError_t error) {
    switch (error) {
    case cudaErrorMemoryAllocation: return PKV_ERR_NO_MEMORY;
    case cudaErrorNotReady: return PKV_ERR_AGAIN;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent: return PKV_ERR_CAPTURE;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidHostPointer:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered: return PKV_ERR_INVALID;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNotSupported:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return PKV_ERR_UNSUPPORTED;
    case cudaErrorCudartUnloading: return PKV_ERR_CLOSED;
    default: return PKV_ERR_IO;
    }
}

} // namespace

pkv_status check(cudaError_t error, const char *what, const Why &why) {
    if (error == cudaSuccess) return PKV_OK;
    return why.fail(status_of(error), "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

pkv_status check_driver(CUresult error, const char *what, const Why &why) {
    if (error == CUDA_SUCCESS) return PKV_OK;
    const char *name = nullptr;
    if (driver().error_name == nullptr || driver().error_name(error, &name) != CUDA_SUCCESS || name == nullptr)
        name = "unknown";
    // The runtime's errors have the driver's numbers.
    return why.fail(status_of(static_cast<cudaError_t>(error)), "%s: %s (%d)", what, name, static_cast<int>(error));
}

} // namespace pkv::cuda
