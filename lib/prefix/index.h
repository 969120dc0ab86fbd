// SPDX-License-Identifier: Apache-2.0
// The prefix index: a tree with one node a block, which names the block's page in each layer group, under one root a
// namespace; and a hash table from keys to nodes.
//
// A key only finds candidates. A node is believed after its parent, its tokens and its media extras were compared in full,
// so that two blocks with one key are two nodes, and a collision is a miss.
//
// Locking: the pool's mutex guards everything, except likely(), which reads the hash table without it.
#pragma once

#include "core/prefetch.h"
#include "core/virtual_array.h"
#include "prefix/keys.h"

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace pkv::prefix {

/// A node or a root, as a parent. Roots have the top bit set.
using NodeId = uint32_t;
constexpr NodeId no_node = UINT32_MAX;
constexpr NodeId root_bit = uint32_t{1} << 31;

constexpr bool is_root(NodeId id) { return (id & root_bit) != 0; }

/// Extras of a node; nullptr when there are none, as for nearly all.
using Extras = std::unique_ptr<std::string>;

struct alignas(64) Node {
    Key key;
    NodeId parent;
    NodeId first_child;
    NodeId next_sibling; // also the chain of free nodes
    NodeId prev_sibling;
    uint32_t children;
    pkv_page page;       // of group 0; see Index::page()
    uint32_t generation; // raised when the node is freed: tells a stale reference
    uint32_t block;      // depth: 0 = first block of a prefix
    const std::string *extras;
    uint32_t pins;    // 1 if pinned, and 1 for each child with pins: not evicted while there are any
    uint8_t priority; // of the block's retention
    bool pinned;
};
static_assert(sizeof(Node) == 64);

/// What an image of a block's page in a tier is called, and how long it is to be kept.
struct NodeImage {
    Digest digest;        // of the prefix up to the block's end
    uint64_t tag;         // of the namespace: namespace_tag()
    uint64_t deadline_ns; // of its retention; 0 = none
};

/// A namespace in use. It lives while a table refers to it or a block hangs under it.
struct Root {
    Digest digest{};
    Key key;
    uint64_t references = 0;                      // tables
    pkv_retention retention = PKV_RETENTION_INIT; // of blocks published from now on
    bool has_retention = false;                   // keeps the root alive
    NodeId first_child = no_node;                 // of an unused one: the next unused
    uint32_t children = 0;
    bool used = false;
    bool dead = false; // cleared: its tables publish nothing more, new prompts get a new root
};

/// What a block is called: the input of find() and insert().
struct BlockName {
    Key key;
    std::span<const pkv_token> tokens;
    const std::string *extras;      // nullptr = none
    const Digest *digest = nullptr; // of the prefix up to this block's end: insert() needs it where digests are kept
};

class Index {
  public:
    Index() = default;
    ~Index();
    Index(const Index &) = delete;
    Index &operator=(const Index &) = delete;

    /// Reserves memory for `max_nodes` blocks; with `digests` each keeps the digest of its prefix, and when its retention
    /// ends.
    pkv_status create(uint64_t max_nodes, uint32_t page_tokens, uint32_t num_groups, bool digests);
    bool keeps_digests() const { return images_.size() != 0; }
    const Digest &digest(NodeId id) const { return images_[id].digest; }
    uint64_t tag(NodeId id) const { return images_[id].tag; }
    uint64_t deadline(NodeId id) const { return images_[id].deadline_ns; }
    void set_deadline(NodeId id, uint64_t deadline_ns) {
        if (keeps_digests()) images_[id].deadline_ns = deadline_ns;
    }

    // Roots.
    NodeId find_root(const Digest &digest) const;
    NodeId make_root(const Digest &digest, const Key &key); ///< throws std::bad_alloc with nothing changed
    Root &root(NodeId id) { return roots_[id & ~root_bit]; }
    const Root &root(NodeId id) const { return roots_[id & ~root_bit]; }
    void drop_root_if_unused(NodeId id);
    /// A new root in the place of one that tables still refer to, with its retention; the old one is dead then. Throws
    /// std::bad_alloc with nothing changed.
    void replace_root(NodeId id);
    void mark_dead(NodeId id); ///< forgets the digest; the root goes with its last reference
    uint64_t num_roots() const { return num_roots_; }
    NodeId root_slots() const { return static_cast<NodeId>(roots_.size()); }

    // Nodes.
    Node &node(NodeId id) { return nodes_[id]; }
    const Node &node(NodeId id) const { return nodes_[id]; }
    uint64_t size() const { return size_; }
    /// The block's page in a group, or PKV_NO_PAGE.
    pkv_page page(NodeId id, uint32_t group) const {
        return group == 0 ? nodes_[id].page : more_pages_[uint64_t{id} * more_groups_ + group - 1];
    }
    void set_page(NodeId id, uint32_t group, pkv_page page) {
        (group == 0 ? nodes_[id].page : more_pages_[uint64_t{id} * more_groups_ + group - 1]) = page;
    }
    bool has_pages(NodeId id) const {
        for (uint32_t group = 0; group <= more_groups_; ++group)
            if (page(id, group) != PKV_NO_PAGE) return true;
        return false;
    }
    uint32_t children(NodeId id) const { return is_root(id) ? roots_[id & ~root_bit].children : nodes_[id].children; }
    NodeId first_child(NodeId id) const {
        return is_root(id) ? roots_[id & ~root_bit].first_child : nodes_[id].first_child;
    }
    std::span<const pkv_token> tokens(NodeId id) const {
        return {tokens_.data() + uint64_t{id} * page_tokens_, page_tokens_};
    }

    /// The child of `parent` with this name, or no_node. `collisions` counts once if other blocks have this key.
    NodeId find(NodeId parent, const BlockName &name, uint64_t &collisions) const;
    /// Nodes that can still be made. There is one for every page and more; only chains of blocks without pages, in pools
    /// without full attention, use them up.
    uint64_t room() const { return nodes_.size() - size_; }
    /// Raised when a block's retention changes: tells a timer that comes too late. (A freed node is told by its generation.)
    uint32_t &timer(NodeId id) { return timers_[id]; }
    /// Adds a child that find() does not know, without pages. There must be room.
    NodeId insert(NodeId parent, const BlockName &name, Extras extras, uint32_t block);
    /// Key of the parent: of the block before, or of the namespace.
    const Key &key_of(NodeId id) const { return is_root(id) ? roots_[id & ~root_bit].key : nodes_[id].key; }
    /// Takes out a node without children. The parent stays, even a root with nothing left.
    void remove(NodeId id);

    /// Whether the hash table may hold this key. Needs no lock: a racing change can make it wrong either way.
    bool likely(const Key &key) const;
    void prefetch_slot(const Key &key) const { prefetch(&slots_[home(tag_of(key))]); }
    /// Begins to load the first candidate for a key, so that a find() soon after does not wait for memory.
    void prefetch_node(const Key &key) const;

    uint64_t bytes() const; ///< memory in use, without the tokens

  private:
    // A slot of the hash table: tag << 32 | node + 1; 0 = empty. Linear probing, deletion by shifting back.
    static uint32_t tag_of(const Key &key) { return static_cast<uint32_t>(key.low); }
    uint64_t home(uint32_t tag) const { return tag & mask_; }
    uint64_t load_slot(uint64_t position) const;
    void store_slot(uint64_t position, uint64_t value);
    NodeId free_root_slot();
    void take_root_slot(NodeId slot, const Digest &digest, const Key &key);
    void prefetch_free_nodes() const;
    void insert_slot(uint32_t tag, NodeId id);
    void remove_slot(uint32_t tag, NodeId id);
    bool matches(const Node &node, NodeId id, NodeId parent, const BlockName &name) const;

    NodeId *first_child_of(NodeId parent) {
        return is_root(parent) ? &roots_[parent & ~root_bit].first_child : &nodes_[parent].first_child;
    }
    uint32_t *children_of(NodeId parent) {
        return is_root(parent) ? &roots_[parent & ~root_bit].children : &nodes_[parent].children;
    }

    struct DigestHash {
        size_t operator()(const Digest &digest) const;
    };

    uint32_t page_tokens_ = 0;
    uint32_t more_groups_ = 0; // groups besides the first
    VirtualArray<Node> nodes_;
    VirtualArray<pkv_page> more_pages_; // [node, group - 1]
    VirtualArray<uint32_t> timers_;     // apart from the nodes: few blocks ever have a timer
    VirtualArray<pkv_token> tokens_;
    VirtualArray<NodeImage> images_; // empty without digests
    VirtualArray<uint64_t> slots_;
    uint64_t mask_ = 0;
    NodeId free_nodes_ = no_node;
    NodeId fresh_node_ = 0; // nodes from here on were never used
    uint64_t size_ = 0;
    std::vector<Root> roots_;
    NodeId free_roots_ = no_node;
    std::unordered_map<Digest, NodeId, DigestHash> root_of_;
    uint64_t num_roots_ = 0;
};

} // namespace pkv::prefix
