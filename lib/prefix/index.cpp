// SPDX-License-Identifier: Apache-2.0
#include "prefix/index.h"

#include "core/status.h"

#include <atomic>
#include <bit>
#include <cinttypes>
#include <cstring>

namespace pkv::prefix {

Index::~Index() {
    for (NodeId id = 0; id < fresh_node_; ++id) delete nodes_[id].extras;
}

pkv_status Index::create(uint64_t max_nodes, uint32_t page_tokens, uint32_t num_groups, bool digests) {
    page_tokens_ = page_tokens;
    more_groups_ = num_groups - 1;
    // At most two thirds full: a miss ends after about two slots, mostly on one cache line.
    const uint64_t num_slots = std::bit_ceil(max_nodes + max_nodes / 2 + 8);
    mask_ = num_slots - 1;
    const bool more = more_groups_ == 0 || more_pages_.reserve(max_nodes * more_groups_);
    const bool kept = !digests || images_.reserve(max_nodes);
    if (!more || !kept || !nodes_.reserve(max_nodes) || !timers_.reserve(max_nodes) ||
        !tokens_.reserve(max_nodes * page_tokens) || !slots_.reserve(num_slots))
        return fail(PKV_ERR_NO_MEMORY, "prefix index for %" PRIu64 " blocks of %u tokens", max_nodes, page_tokens);
    return PKV_OK;
}

uint64_t Index::bytes() const {
    const uint64_t more = more_groups_ * sizeof(pkv_page) + (keeps_digests() ? sizeof(NodeImage) : 0);
    return fresh_node_ * (sizeof(Node) + more) + slots_.size() * sizeof(uint64_t) + roots_.capacity() * sizeof(Root);
}

// ---- roots ---------------------------------------------------------------------------------------------------------

size_t Index::DigestHash::operator()(const Digest &digest) const {
    size_t value; // any 8 bytes of a cryptographic digest are a good hash
    std::memcpy(&value, digest.data(), sizeof value);
    return value;
}

NodeId Index::find_root(const Digest &digest) const {
    const auto found = root_of_.find(digest); // compares all 32 bytes
    return found != root_of_.end() ? found->second : no_node;
}

/// A slot for a root; it stays free until somebody takes it.
NodeId Index::free_root_slot() {
    if (free_roots_ == no_node) {
        roots_.emplace_back();
        free_roots_ = static_cast<NodeId>(roots_.size() - 1);
    }
    return free_roots_;
}

void Index::take_root_slot(NodeId slot, const Digest &digest, const Key &key) {
    free_roots_ = roots_[slot].first_child;
    roots_[slot] = Root{};
    roots_[slot].digest = digest;
    roots_[slot].key = key;
    roots_[slot].used = true;
    ++num_roots_;
}

NodeId Index::make_root(const Digest &digest, const Key &key) {
    const NodeId slot = free_root_slot();
    root_of_.emplace(digest, slot | root_bit);
    take_root_slot(slot, digest, key);
    return slot | root_bit;
}

void Index::replace_root(NodeId id) {
    const NodeId slot = free_root_slot();
    Root &old = root(id);
    take_root_slot(slot, old.digest, old.key);
    roots_[slot].retention = old.retention;
    roots_[slot].has_retention = old.has_retention;
    root_of_.find(old.digest)->second = slot | root_bit;
    old.dead = true;
}

void Index::drop_root_if_unused(NodeId id) {
    Root &item = root(id);
    if (!item.used || item.references != 0 || item.children != 0) return;
    if (item.has_retention && !item.dead) return;
    if (!item.dead) root_of_.erase(item.digest);
    item.used = false;
    item.first_child = free_roots_;
    free_roots_ = id & ~root_bit;
    --num_roots_;
}

void Index::mark_dead(NodeId id) {
    Root &item = root(id);
    if (!item.used || item.dead) return;
    root_of_.erase(item.digest);
    item.dead = true;
}

// ---- hash table ----------------------------------------------------------------------------------------------------

uint64_t Index::load_slot(uint64_t position) const {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t &>(slots_[position])).load(std::memory_order_relaxed);
}

void Index::store_slot(uint64_t position, uint64_t value) {
    std::atomic_ref<uint64_t>(slots_[position]).store(value, std::memory_order_relaxed);
}

void Index::insert_slot(uint32_t tag, NodeId id) {
    uint64_t position = home(tag);
    while (load_slot(position) != 0) position = (position + 1) & mask_;
    store_slot(position, uint64_t{tag} << 32 | (uint64_t{id} + 1));
}

void Index::remove_slot(uint32_t tag, NodeId id) {
    const uint64_t wanted = uint64_t{tag} << 32 | (uint64_t{id} + 1);
    uint64_t hole = home(tag);
    while (load_slot(hole) != wanted) hole = (hole + 1) & mask_;
    // Entries behind the hole move up, unless that would put them before their home.
    for (uint64_t next = (hole + 1) & mask_;; next = (next + 1) & mask_) {
        const uint64_t entry = load_slot(next);
        if (entry == 0) break;
        const uint64_t distance_home = (next - home(static_cast<uint32_t>(entry >> 32))) & mask_;
        if (distance_home < ((next - hole) & mask_)) continue;
        store_slot(hole, entry);
        hole = next;
    }
    store_slot(hole, 0);
}

bool Index::likely(const Key &key) const {
    const uint32_t tag = tag_of(key);
    // Bounded: a racing change must not keep this loop going.
    uint64_t position = home(tag);
    for (int i = 0; i < 64; ++i, position = (position + 1) & mask_) {
        const uint64_t entry = load_slot(position);
        if (entry == 0) return false;
        if (static_cast<uint32_t>(entry >> 32) == tag) return true;
    }
    return true;
}

void Index::prefetch_node(const Key &key) const {
    const uint32_t tag = tag_of(key);
    for (uint64_t position = home(tag);; position = (position + 1) & mask_) {
        const uint64_t entry = load_slot(position);
        if (entry == 0) return;
        if (static_cast<uint32_t>(entry >> 32) != tag) continue;
        const NodeId id = static_cast<NodeId>(entry) - 1;
        prefetch(&nodes_[id]);
        const char *tokens = reinterpret_cast<const char *>(tokens_.data() + uint64_t{id} * page_tokens_);
        const uint64_t bytes = page_tokens_ * sizeof(pkv_token);
        for (uint64_t offset = 0; offset < bytes && offset < 512; offset += 64) prefetch(tokens + offset);
        return;
    }
}

// ---- nodes ---------------------------------------------------------------------------------------------------------

bool Index::matches(const Node &node, NodeId id, NodeId parent, const BlockName &name) const {
    if (node.parent != parent) return false;
    if (std::memcmp(tokens(id).data(), name.tokens.data(), page_tokens_ * sizeof(pkv_token)) != 0) return false;
    if ((node.extras == nullptr) != (name.extras == nullptr)) return false;
    return node.extras == nullptr || *node.extras == *name.extras;
}

NodeId Index::find(NodeId parent, const BlockName &name, uint64_t &collisions) const {
    const uint32_t tag = tag_of(name.key);
    bool collided = false;
    NodeId found = no_node;
    for (uint64_t position = home(tag); found == no_node; position = (position + 1) & mask_) {
        const uint64_t entry = load_slot(position);
        if (entry == 0) break;
        if (static_cast<uint32_t>(entry >> 32) != tag) continue;
        const NodeId id = static_cast<NodeId>(entry) - 1;
        const Node &candidate = nodes_[id];
        if (!(candidate.key == name.key)) continue;
        if (matches(candidate, id, parent, name))
            found = id;
        else
            collided = true;
    }
    collisions += collided;
    return found;
}

/// Blocks come in runs: what the next ones will be written to should be on its way, tokens two nodes ahead.
void Index::prefetch_free_nodes() const {
    if (free_nodes_ == no_node) return;
    const NodeId after = nodes_[free_nodes_].next_sibling;
    if (after == no_node) return;
    prefetch<true>(tokens_.data() + uint64_t{after} * page_tokens_);
    prefetch<true>(&nodes_[after]);
}

NodeId Index::insert(NodeId parent, const BlockName &name, Extras extras, uint32_t block) {
    NodeId id = free_nodes_;
    if (id != no_node) {
        free_nodes_ = nodes_[id].next_sibling;
        prefetch_free_nodes();
    } else {
        id = fresh_node_++;
    }
    Node &node = nodes_[id];
    NodeId *first = first_child_of(parent);
    node.key = name.key;
    node.parent = parent;
    node.first_child = no_node;
    node.next_sibling = *first;
    node.prev_sibling = no_node;
    node.children = 0;
    node.block = block;
    node.extras = extras.release();
    if (keeps_digests())
        images_[id] = {*name.digest, is_root(parent) ? namespace_tag(root(parent).digest) : images_[parent].tag, 0};
    node.pins = 0;
    node.priority = PKV_PRIORITY_DEFAULT;
    node.pinned = false;
    for (uint32_t group = 0; group <= more_groups_; ++group) set_page(id, group, PKV_NO_PAGE);
    if (*first != no_node) nodes_[*first].prev_sibling = id;
    *first = id;
    ++*children_of(parent);
    std::memcpy(tokens_.data() + uint64_t{id} * page_tokens_, name.tokens.data(), page_tokens_ * sizeof(pkv_token));
    insert_slot(tag_of(name.key), id);
    ++size_;
    return id;
}

void Index::remove(NodeId id) {
    Node &node = nodes_[id];
    remove_slot(tag_of(node.key), id);
    if (node.prev_sibling != no_node)
        nodes_[node.prev_sibling].next_sibling = node.next_sibling;
    else
        *first_child_of(node.parent) = node.next_sibling;
    if (node.next_sibling != no_node) nodes_[node.next_sibling].prev_sibling = node.prev_sibling;
    --*children_of(node.parent);
    delete node.extras;
    node.extras = nullptr;
    ++node.generation;
    node.next_sibling = free_nodes_;
    free_nodes_ = id;
    --size_;
}

} // namespace pkv::prefix
