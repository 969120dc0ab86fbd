// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

// DeviceKind is what kind of memory pages lie in.
type DeviceKind int32

const (
	HostDevice DeviceKind = 0
	CUDADevice DeviceKind = 1
)

// Device is where the pages of a pool lie: device.h. Device{} is the host. Rows of a pool on a GPU are there, too: RowsAt.
type Device struct {
	Kind  DeviceKind
	Index int32 // as CUDA numbers them
}

// Available is nil where pools can be made on a device; ErrUnsupported, with the reason, where they cannot. It does not begin to use
// the device.
func (d Device) Available() error {
	return call(func() C.pkv_status { return C.pkv_device_available(C.int32_t(d.Kind), C.int32_t(d.Index)) })
}
