// SPDX-License-Identifier: Apache-2.0
// Images on their way from staging memory into pages of a device: put into one stream, one behind the other, and waited for
// together. Host pools have no use for it.
#pragma once

#include "device/turn.h"
#include "layout/image.h"

#include <pagedkv/types.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace pkv {

class Pool;

class DeviceImages {
  public:
    explicit DeviceImages(const Pool &pool) : pool_(pool) {}

    /// What is put into pages from now on comes after this.
    void come_after(const Fences &work) { after_ |= work; }
    /// Checks an image in full, and begins to put it into a page. With a slot it stays there until let_go(); without one it lies
    /// where it may be changed, and has been read when this returns. False, with the reason in `why`, if it is not the image of
    /// this name. A device that fails is no fault of the image's: see end().
    bool add(uint32_t group, pkv_page page, const ImageName &name, const std::byte *image, uint64_t bytes,
             const std::shared_ptr<std::byte> &slot, uint64_t deadline_ns, const char **why);
    /// The slots so far are not needed any more.
    void let_go();
    /// All is in place, or why not.
    pkv_status end();

  private:
    pkv_status put(uint32_t group, pkv_page page, const std::byte *image, int32_t layout);
    void note(pkv_status status) {
        if (status_ == PKV_OK) status_ = status;
    }

    const Pool &pool_;
    Turn turn_;
    bool begun_ = false;
    Fences after_;
    pkv_status status_ = PKV_OK;
    std::vector<std::shared_ptr<std::byte>> kept_;
};

} // namespace pkv
