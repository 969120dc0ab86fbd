// SPDX-License-Identifier: Apache-2.0
// A part is what one fi_read() can take: it ends where the message limit, the peer's window or the target's registration does,
// so that it has one address on each side. Its context is an element of an array as long as the number in flight.
//
// Nothing here allocates: what a read needs came with it.
#include "fabric/reads.h"

#include <algorithm>
#include <cstdio>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <utility>

namespace pkv::fabric {

ReadList::~ReadList() {
    while (Read *read = take()) delete read;
}

void ReadList::append(Read *read) {
    read->before = last_;
    read->after = nullptr;
    (last_ != nullptr ? last_->after : first_) = read;
    last_ = read;
}

void ReadList::remove(Read *read) {
    (read->before != nullptr ? read->before->after : first_) = read->after;
    (read->after != nullptr ? read->after->before : last_) = read->before;
}

Read *ReadList::take() {
    Read *read = first_;
    if (read != nullptr) remove(read);
    return read;
}

void ReadList::take_all(ReadList &other) {
    first_ = std::exchange(other.first_, nullptr);
    last_ = std::exchange(other.last_, nullptr);
}

Reads::Reads(uint32_t max_in_flight, uint64_t max_message)
    : max_message_(max_message), num_parts_(max_in_flight), parts_(std::make_unique<Part[]>(max_in_flight)) {
    for (uint32_t i = num_parts_; i-- > 0;) {
        parts_[i].next_free = free_;
        free_ = &parts_[i];
    }
}

void Reads::accept(Read *read) {
    if (read->bytes == 0) {
        posted_.append(read);
        end(read, PKV_OK, 0);
        return;
    }
    next_deadline_ = std::min(next_deadline_, read->deadline_ns);
    waiting_.append(read);
    if (error_ != 0) end_waiting();
}

Reads::Piece Reads::next_piece(const Read &read) const {
    const Span &span = read.spans[read.span];
    Piece piece = {read.data + read.posted, 0, nullptr, span.address + read.span_offset, span.key};
    piece.descriptor = read.target->descriptor(piece.data, piece.bytes);
    piece.bytes = std::min({piece.bytes, span.bytes - read.span_offset, max_message_});
    return piece;
}

void Reads::begin_part(Part *part, Read *read, uint64_t bytes) {
    part->read = read;
    free_ = part->next_free;
    ++read->parts;
    read->posted += bytes;
    read->span_offset += bytes;
    if (read->span_offset == read->spans[read->span].bytes) {
        ++read->span;
        read->span_offset = 0;
    }
    if (read->posted == read->bytes) {
        waiting_.remove(read);
        posted_.append(read);
    }
}

bool Reads::post(fid_ep *endpoint, fi_addr_t peer) {
    bool moved = false;
    refused_ = false;
    while (free_ != nullptr && !waiting_.empty()) {
        Read *read = waiting_.first();
        const Piece piece = next_piece(*read);
        Part *part = free_;
        const ssize_t error = fi_read(endpoint, piece.data, piece.bytes, piece.descriptor, peer, piece.address,
                                      piece.key, &part->context);
        if (error == -FI_EAGAIN) {
            refused_ = true;
            break;
        }
        if (error != 0) {
            note(static_cast<int>(-error), "fi_read");
            end(read, PKV_ERR_IO, error_);
            end_waiting();
            break;
        }
        moved = true;
        begin_part(part, read, piece.bytes);
    }
    return moved;
}

bool Reads::copy(const PeerProcess &peer) {
    if (waiting_.empty()) return false;
    Read *read = waiting_.first();
    const Piece piece = next_piece(*read);
    Part *part = free_; // no other is out
    begin_part(part, read, piece.bytes);
    complete(&part->context, peer.read(piece.data, piece.address, piece.bytes, piece.key), "process_vm_readv");
    return true;
}

Reads::Part *Reads::part_of(void *context) {
    const auto at = reinterpret_cast<uintptr_t>(context), first = reinterpret_cast<uintptr_t>(parts_.get());
    if (at < first || at - first >= num_parts_ * sizeof(Part) || (at - first) % sizeof(Part) != 0) return nullptr;
    Part *part = &parts_[(at - first) / sizeof(Part)];
    return part->read != nullptr ? part : nullptr;
}

void Reads::complete(void *context, int error, const char *text) {
    Part *part = part_of(context);
    if (part == nullptr) {
        if (error != 0) fail_all(error, text);
        return;
    }
    Read *read = part->read;
    part->read = nullptr;
    part->next_free = free_;
    free_ = part;
    --read->parts;
    if (error != 0) note(error, text);
    if (read->ended) {
        if (read->parts == 0) {
            zombies_.remove(read);
            delete read;
        }
    } else if (error != 0) {
        end(read, PKV_ERR_IO, error_);
    } else if (read->posted == read->bytes && read->parts == 0) {
        end(read, PKV_OK, 0);
    }
    if (error != 0) end_waiting();
}

void Reads::fail_all(int error, const char *text) {
    note(error, text);
    end_waiting();
    while (!posted_.empty()) end(posted_.first(), PKV_ERR_IO, error_);
}

void Reads::expire(uint64_t now_ns) {
    if (now_ns < next_deadline_) return;
    next_deadline_ = UINT64_MAX;
    for (const ReadList *list : {&posted_, &waiting_}) {
        for (Read *read = list->first(), *after = nullptr; read != nullptr; read = after) {
            after = read->after;
            if (read->deadline_ns <= now_ns) {
                end(read, PKV_ERR_TIMEOUT, 0);
            } else {
                next_deadline_ = std::min(next_deadline_, read->deadline_ns);
            }
        }
    }
}

void Reads::cancel_all() {
    while (!posted_.empty()) end(posted_.first(), PKV_ERR_CANCELLED, 0);
    while (!waiting_.empty()) end(waiting_.first(), PKV_ERR_CANCELLED, 0);
}

void Reads::note(int error, const char *text) {
    failed_.store(true, std::memory_order_release);
    if (error_ != 0) return;
    error_ = error;
    const Lock lock(text_mutex_);
    std::snprintf(error_text_, sizeof error_text_, "%s (%s)", fi_strerror(error), text);
}

size_t Reads::describe_failure(char *text, size_t bytes) const {
    const Lock lock(text_mutex_);
    return static_cast<size_t>(std::snprintf(text, bytes, "%s", error_text_));
}

void Reads::end_waiting() {
    while (!waiting_.empty()) end(waiting_.first(), PKV_ERR_IO, error_);
}

void Reads::end(Read *read, pkv_status status, int32_t error) {
    (read->posted == read->bytes ? posted_ : waiting_).remove(read);
    if (status != PKV_OK) failed_.store(true, std::memory_order_release);
    read->ended = true;
    const Done done = read->done;
    void *user = read->user;
    if (read->parts != 0) {
        zombies_.append(read);
    } else {
        delete read;
    }
    done(user, status, error);
}

} // namespace pkv::fabric
