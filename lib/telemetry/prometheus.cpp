// SPDX-License-Identifier: Apache-2.0
// Which field of the statistics is which family stands in the tables below. Names follow Prometheus' own conventions: base
// units, _total for what only grows, and states whose sum means something are one family with a label.
#include "telemetry/prometheus.h"

#include "telemetry/histogram.h"

#include <charconv>
#include <cstdint>
#include <string_view>

namespace pkv {
namespace {

constexpr const char *counter = "counter";
constexpr const char *gauge = "gauge";

enum class Unit { plain, seconds /* of a field in nanoseconds */ };

/// A field that is a family of its own.
template <class Stats> struct Field {
    const char *name;
    const char *type;
    const char *help;
    uint64_t Stats::*value;
    Unit unit = Unit::plain;
};

/// Fields that are one family, told apart by a label.
template <class Stats> struct Parts {
    const char *name;
    const char *type;
    const char *help;
    const char *label;
    struct {
        const char *name;
        uint64_t Stats::*value;
    } parts[4];
    Unit unit = Unit::plain;
};

template <class Stats> struct Ratio {
    const char *name;
    const char *help;
    double Stats::*value;
};

template <class Stats> struct Histogram {
    const char *name;
    const char *help;
    pkv_histogram Stats::*value;
};

// ---- pools ---------------------------------------------------------------------------------------------------------

using Pools = pkv_pool_stats;

constexpr Parts<Pools> group_parts[] = {
    {"pagedkv_pool_pages",
     gauge,
     "Pages of a layer group by state.",
     "state",
     {{"free", &Pools::free_pages},
      {"held", &Pools::held_pages},
      {"cached", &Pools::cached_pages},
      {"quarantined", &Pools::quarantined_pages}}},
};

constexpr Field<Pools> group_fields[] = {
    {"pagedkv_pool_capacity_pages", gauge, "Pages that a layer group has.", &Pools::num_pages},
    {"pagedkv_pool_page_bytes", gauge, "K and V bytes of a page over its layers.", &Pools::page_bytes},
    {"pagedkv_pool_image_bytes", gauge, "Bytes of a page image in a tier.", &Pools::image_bytes},
    {"pagedkv_pool_pinned_pages", gauge, "Cached pages that are pinned, and so not evictable.", &Pools::pinned_pages},
    {"pagedkv_pool_unstored_pages", gauge, "Cached pages that wait to be stored in a tier.", &Pools::unstored_pages},
};

constexpr Ratio<Pools> group_ratios[] = {
    {"pagedkv_pool_usage_ratio", "Held pages of all pages of a layer group.", &Pools::usage},
};

constexpr Field<Pools> pool_fields[] = {
    {"pagedkv_pool_tables", gauge, "Live tables.", &Pools::tables},
    {"pagedkv_pool_namespaces", gauge, "Namespaces with blocks, tables or a default retention.", &Pools::namespaces},
    {"pagedkv_pool_index_blocks", gauge, "Blocks in the prefix index.", &Pools::index_blocks},
    {"pagedkv_pool_metadata_bytes", gauge, "Memory besides page bytes and the tokens kept for comparison.",
     &Pools::metadata_bytes},
    {"pagedkv_pool_requests_total", counter, "Sequences admitted and lookups made.", &Pools::requests},
    {"pagedkv_pool_asked_tokens_total", counter, "Tokens of requests that might have matched.", &Pools::asked_tokens},
    {"pagedkv_pool_hit_tokens_total", counter, "Tokens of requests that did match.", &Pools::hit_tokens},
    {"pagedkv_pool_tier_hit_tokens_total", counter, "Of the tokens that matched, those found in tiers.",
     &Pools::tier_hit_tokens},
    {"pagedkv_pool_partial_tokens_total", counter, "Of the tokens that matched, those inside a block, copied.",
     &Pools::partial_tokens},
    {"pagedkv_pool_retries_total", counter, "Admissions of requests that had been counted before.", &Pools::retries},
    {"pagedkv_pool_refused_total", counter, "Admissions that failed for want of pages.", &Pools::refused},
    {"pagedkv_pool_probes_total", counter, "Probes.", &Pools::probes},
    {"pagedkv_pool_allocated_pages_total", counter, "Pages handed out.", &Pools::allocated_pages},
    {"pagedkv_pool_failed_allocations_total", counter, "Calls that found no pages, admissions not included.",
     &Pools::failed_allocations},
    {"pagedkv_pool_evicted_pages_total", counter, "Cached pages evicted.", &Pools::evicted_pages},
    {"pagedkv_pool_cleared_pages_total", counter, "Cached pages cleared.", &Pools::cleared_pages},
    {"pagedkv_pool_published_blocks_total", counter, "Blocks that became findable.", &Pools::published_blocks},
    {"pagedkv_pool_unpublished_blocks_total", counter, "Blocks that ceased to be findable.",
     &Pools::unpublished_blocks},
    {"pagedkv_pool_duplicate_blocks_total", counter, "Pages offered for a block that had one.",
     &Pools::duplicate_blocks},
    {"pagedkv_pool_shared_duplicates_total", counter, "Of these, those given up for the published page.",
     &Pools::shared_duplicates},
    {"pagedkv_pool_expired_blocks_total", counter, "Blocks whose retention ran out.", &Pools::expired_blocks},
    {"pagedkv_pool_key_collisions_total", counter, "Looks at the index that met a key of another block.",
     &Pools::key_collisions},
    {"pagedkv_pool_copied_pages_total", counter, "Copy-on-write copies.", &Pools::copied_pages},
    {"pagedkv_pool_events_total", counter, "Events recorded.", &Pools::events},
    {"pagedkv_pool_stored_images_total", counter, "Page images stored, each tier counted.", &Pools::stored_images},
    {"pagedkv_pool_failed_stores_total", counter, "Page images that no tier took.", &Pools::failed_stores},
    {"pagedkv_pool_dropped_images_total", counter, "Pages evicted while their image was in no tier.",
     &Pools::dropped_images},
    {"pagedkv_pool_loaded_blocks_total", counter, "Blocks of sequences brought back from tiers.",
     &Pools::loaded_blocks},
    {"pagedkv_pool_adopted_blocks_total", counter, "Blocks to be brought back that were found in a page by then.",
     &Pools::adopted_blocks},
    {"pagedkv_pool_joined_loads_total", counter, "Waits for loads that were under way for somebody else.",
     &Pools::joined_loads},
    {"pagedkv_pool_spilled_blocks_total", counter, "Blocks of live sequences moved into tiers.",
     &Pools::spilled_blocks},
    {"pagedkv_pool_lost_blocks_total", counter, "Blocks that no tier could give back.", &Pools::lost_blocks},
    {"pagedkv_pool_exposed_seconds_total", counter, "Time that gathers waited for blocks.", &Pools::exposed_ns,
     Unit::seconds},
};

// ---- tiers ---------------------------------------------------------------------------------------------------------

using Tiers = pkv_tier_stats;
using Usage = pkv_tier_usage;

constexpr Field<Usage> usage_fields[] = {
    {"pagedkv_tier_capacity_bytes", gauge, "Room for page images.", &Usage::capacity_bytes},
    {"pagedkv_tier_used_bytes", gauge, "Room in use.", &Usage::used_bytes},
    {"pagedkv_tier_images", gauge, "Page images that can be found.", &Usage::images},
    {"pagedkv_tier_pinned_images", gauge, "Page images that are pinned.", &Usage::pinned_images},
    {"pagedkv_tier_evicted_images_total", counter, "Page images forgotten to make room.", &Usage::evicted_images},
    {"pagedkv_tier_recovered_images_total", counter, "Page images found by a restart.", &Usage::recovered_images},
    {"pagedkv_tier_io_errors_total", counter, "Reads and writes that failed or came short.", &Usage::io_errors},
};

constexpr Field<Tiers> tier_fields[] = {
    {"pagedkv_tier_lookups_total", counter, "Page images asked for.", &Tiers::lookups},
    {"pagedkv_tier_hits_total", counter, "Page images asked for and found.", &Tiers::hits},
    {"pagedkv_tier_loads_total", counter, "Page images loaded and verified.", &Tiers::loads},
    {"pagedkv_tier_failed_loads_total", counter, "Loads that gave no page image.", &Tiers::failed_loads},
    {"pagedkv_tier_stores_total", counter, "Page images stored.", &Tiers::stores},
    {"pagedkv_tier_failed_stores_total", counter, "Stores that failed.", &Tiers::failed_stores},
    {"pagedkv_tier_loaded_bytes_total", counter, "Bytes of page images loaded and verified.", &Tiers::bytes_loaded},
    {"pagedkv_tier_stored_bytes_total", counter, "Bytes of page images stored.", &Tiers::bytes_stored},
    {"pagedkv_tier_checksum_failures_total", counter, "Loads whose bytes were not the page image.",
     &Tiers::checksum_failures},
    {"pagedkv_tier_timeouts_total", counter, "Requests whose deadline passed.", &Tiers::timeouts},
    {"pagedkv_tier_double_completions_total", counter, "Items completed more than once.", &Tiers::double_completions},
    {"pagedkv_tier_open_requests", gauge, "Batches under way.", &Tiers::open_requests},
    {"pagedkv_tier_breaker_trips_total", counter, "Times that repeated failures made the tier rest.",
     &Tiers::breaker_trips},
};

// ---- sessions ------------------------------------------------------------------------------------------------------

using Sessions = pkv_prefetch_stats;

constexpr Parts<Sessions> session_parts[] = {
    {"pagedkv_prefetch_needed_total",
     counter,
     "Absent parts asked for, by how far their load was.",
     "outcome",
     {{"on_time", &Sessions::on_time}, {"late", &Sessions::late}, {"on_demand", &Sessions::on_demand}}},
    {"pagedkv_prefetch_io_seconds_total",
     counter,
     "Time in which loads were outstanding, by whether a caller waited.",
     "state",
     {{"masked", &Sessions::masked_ns}, {"exposed", &Sessions::exposed_ns}},
     Unit::seconds},
    {"pagedkv_prefetch_ended_loads_total",
     counter,
     "Loads that ended, by how.",
     "outcome",
     {{"good", &Sessions::good_loads}, {"failed", &Sessions::failed_loads}, {"cancelled", &Sessions::cancelled_loads}}},
};

constexpr Field<Sessions> session_fields[] = {
    {"pagedkv_prefetch_failed_total", counter, "Absent parts asked for that could not be had.", &Sessions::failed},
    {"pagedkv_prefetch_requests_total", counter, "Calls, and tables of steps, that needed absent parts.",
     &Sessions::requests},
    {"pagedkv_prefetch_ready_requests_total", counter, "Of these, those whose parts were all on time.",
     &Sessions::ready_requests},
    {"pagedkv_prefetch_steps_total", counter, "Steps.", &Sessions::steps},
    {"pagedkv_prefetch_ranges_total", counter, "Layers, or ranges of them, acquired.", &Sessions::ranges},
    {"pagedkv_prefetch_prompts_total", counter, "Prompts.", &Sessions::prompts},
    {"pagedkv_prefetch_other_wait_seconds_total", counter, "Time in which a caller waited and no load was outstanding.",
     &Sessions::other_wait_ns, Unit::seconds},
    {"pagedkv_prefetch_loads_total", counter, "Loads begun.", &Sessions::loads},
    {"pagedkv_prefetch_loaded_bytes_total", counter, "Bytes of good loads.", &Sessions::bytes_loaded},
    {"pagedkv_prefetch_used_bytes_total", counter, "Of these, bytes that were asked for.", &Sessions::bytes_used},
    {"pagedkv_prefetch_wasted_bytes_total", counter, "Of these, bytes dropped without having been asked for.",
     &Sessions::wasted_bytes},
    {"pagedkv_prefetch_checksum_failures_total", counter, "Loads whose bytes were not the page image.",
     &Sessions::checksum_failures},
    {"pagedkv_prefetch_ready_bytes", gauge, "Bytes loaded and not asked for yet.", &Sessions::ready_bytes},
    {"pagedkv_prefetch_in_flight_bytes", gauge, "Bytes of loads under way.", &Sessions::bytes_in_flight},
    {"pagedkv_prefetch_in_flight_loads", gauge, "Loads under way.", &Sessions::loads_in_flight},
    {"pagedkv_prefetch_depth_ranges", gauge, "Layers, or ranges, that are loaded ahead at present.", &Sessions::depth},
    {"pagedkv_prefetch_lookahead_blocks", gauge, "Blocks that are loaded ahead at present.", &Sessions::lookahead},
    {"pagedkv_prefetch_block_pages", gauge, "Pages that loaded blocks take.", &Sessions::block_pages},
    {"pagedkv_prefetch_staging_pages", gauge, "Pages taken as staging memory.", &Sessions::staging_pages},
    {"pagedkv_prefetch_buffer_slices", gauge, "Absent slices that a buffer holds in group 0.",
     &Sessions::buffer_slices},
};

constexpr Ratio<Sessions> session_ratios[] = {
    {"pagedkv_prefetch_masking_efficiency_ratio", "Masked time of all time in which loads were outstanding.",
     &Sessions::masking_efficiency},
};

constexpr Histogram<Sessions> session_histograms[] = {
    {"pagedkv_prefetch_load_seconds", "Loads, from hand-over to the tier until the bytes were in place.",
     &Sessions::load},
    {"pagedkv_prefetch_queue_seconds", "From when a load was wanted until hand-over.", &Sessions::queue},
    {"pagedkv_prefetch_exposed_seconds", "Waits of callers for loads.", &Sessions::exposed},
};

// ---- nodes ---------------------------------------------------------------------------------------------------------

using Nodes = pkv_node_stats;

constexpr Field<Nodes> node_fields[] = {
    {"pagedkv_node_guests", gauge, "Readers that are connected.", &Nodes::guests},
    {"pagedkv_node_accepted_connections_total", counter, "Connections of readers that came to be.", &Nodes::accepted},
    {"pagedkv_node_refused_connections_total", counter, "Connections of readers that did not.", &Nodes::refused},
    {"pagedkv_node_served_lookups_total", counter, "Page images that readers asked for.", &Nodes::lookups_served},
    {"pagedkv_node_served_fetches_total", counter, "Ranges of page images that readers asked for.",
     &Nodes::fetches_served},
    {"pagedkv_node_served_bytes_total", counter, "Bytes put where readers read them.", &Nodes::bytes_served},
    {"pagedkv_node_leases", gauge, "Page images that are leased to readers.", &Nodes::leases},
    {"pagedkv_node_expired_leases_total", counter, "Leases that ended by themselves.", &Nodes::expired_leases},
    {"pagedkv_node_bad_messages_total", counter, "Messages that were none.", &Nodes::bad_messages},
    {"pagedkv_node_promoted_images_total", counter, "Page images copied to the first tier.", &Nodes::promoted},
    {"pagedkv_node_peers", gauge, "Nodes to read from.", &Nodes::peers},
    {"pagedkv_node_connected_peers", gauge, "Nodes to read from that are connected.", &Nodes::connected_peers},
    {"pagedkv_node_reads_total", counter, "Ranges of page images read from other nodes.", &Nodes::reads},
    {"pagedkv_node_failed_reads_total", counter, "Reads from other nodes that failed.", &Nodes::failed_reads},
    {"pagedkv_node_read_bytes_total", counter, "Bytes read from other nodes.", &Nodes::bytes_read},
    {"pagedkv_node_late_answers_total", counter, "Questions that other nodes did not answer in time.",
     &Nodes::late_answers},
    {"pagedkv_node_ended_connections_total", counter, "Connections to other nodes that ended.", &Nodes::reconnects},
    {"pagedkv_node_open_offers", gauge, "Sequences that are offered.", &Nodes::open_offers},
    {"pagedkv_node_offers_total", counter, "Sequences that were offered.", &Nodes::offers},
    {"pagedkv_node_expired_offers_total", counter, "Offers that ended by themselves.", &Nodes::expired_offers},
    {"pagedkv_node_served_pulls_total", counter, "Pulls of offers that came to their end.", &Nodes::pulls_served},
    {"pagedkv_node_failed_served_pulls_total", counter, "Pulls of offers that ended before.",
     &Nodes::failed_pulls_served},
    {"pagedkv_node_handed_bytes_total", counter, "Bytes of sequences put where others pull them.",
     &Nodes::handed_bytes},
    {"pagedkv_node_pulls_total", counter, "Sequences pulled from other nodes.", &Nodes::pulls},
    {"pagedkv_node_failed_pulls_total", counter, "Pulls from other nodes that ended before.", &Nodes::failed_pulls},
    {"pagedkv_node_pulled_bytes_total", counter, "Bytes of rows pulled from other nodes.", &Nodes::pulled_bytes},
    {"pagedkv_node_directory_endpoints", gauge, "Servers of the directory.", &Nodes::directory_endpoints},
    {"pagedkv_node_directory_endpoints_up", gauge, "Servers of the directory that are connected.",
     &Nodes::directory_endpoints_up},
    {"pagedkv_node_directory_peers", gauge, "Nodes to read from that the directory has led to.",
     &Nodes::directory_peers},
    {"pagedkv_node_directory_lookups_total", counter, "Page images that the directory was asked for.",
     &Nodes::directory_lookups},
    {"pagedkv_node_directory_hits_total", counter, "Of these, those of which it named another node.",
     &Nodes::directory_hits},
    {"pagedkv_node_directory_failures_total", counter,
     "Page images of which it said nothing in time, and entries refused.", &Nodes::directory_failures},
    {"pagedkv_node_directory_published_entries_total", counter, "Entries written to the directory, renewals too.",
     &Nodes::directory_published},
    {"pagedkv_node_directory_dropped_changes_total", counter, "Changes that could not wait until they are written.",
     &Nodes::directory_dropped},
    {"pagedkv_node_directory_bad_entries_total", counter, "Entries of the directory that no node of the cluster wrote.",
     &Nodes::directory_bad_entries},
};

// ---- the format ----------------------------------------------------------------------------------------------------

/// Statistics, and the labels that say whose.
template <class Stats> struct Source {
    std::string labels;
    const Stats *stats;
};
template <class Stats> using Sources = std::vector<Source<Stats>>;

std::string label(const char *name, std::string_view value) {
    std::string text = std::string(name) + "=\"";
    for (const char c : value) {
        if (c == '\\' || c == '"') text += '\\';
        if (c == '\n')
            text += "\\n";
        else
            text += c;
    }
    return text + '"';
}

/// Nanoseconds as seconds, exactly.
std::string seconds(uint64_t ns) {
    std::string text = std::to_string(ns % 1'000'000'000);
    text.insert(0, 9 - text.size(), '0');
    text.erase(text.find_last_not_of('0') + 1);
    if (!text.empty()) text.insert(0, 1, '.');
    return std::to_string(ns / 1'000'000'000) + text;
}

std::string number(uint64_t value, Unit unit) { return unit == Unit::seconds ? seconds(value) : std::to_string(value); }

/// The shortest digits that are read as the same value; in no locale.
std::string number(double value) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    return {text, end};
}

class Writer {
  public:
    explicit Writer(std::string &out) : out_(out) {}

    void family(const char *name, const char *type, const char *help) {
        out_ += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
    }
    void sample(std::string_view name, std::string_view labels, std::string_view value) {
        out_.append(name).append("{").append(labels).append("} ").append(value).append("\n");
    }

    template <class Stats> void write(const Sources<Stats> &sources, const Field<Stats> &field) {
        family(field.name, field.type, field.help);
        for (const auto &[labels, stats] : sources) sample(field.name, labels, number(stats->*field.value, field.unit));
    }
    template <class Stats> void write(const Sources<Stats> &sources, const Parts<Stats> &family_of) {
        family(family_of.name, family_of.type, family_of.help);
        for (const auto &[labels, stats] : sources)
            for (const auto &part : family_of.parts)
                if (part.name != nullptr)
                    sample(family_of.name, labels + ',' + label(family_of.label, part.name),
                           number(stats->*part.value, family_of.unit));
    }
    template <class Stats> void write(const Sources<Stats> &sources, const Ratio<Stats> &ratio) {
        family(ratio.name, gauge, ratio.help);
        for (const auto &[labels, stats] : sources) sample(ratio.name, labels, number(stats->*ratio.value));
    }
    template <class Stats> void write(const Sources<Stats> &sources, const Histogram<Stats> &histogram) {
        family(histogram.name, "histogram", histogram.help);
        for (const auto &[labels, stats] : sources) write_buckets(histogram.name, labels, stats->*histogram.value);
    }
    template <class Stats, class Table> void write_all(const Sources<Stats> &sources, const Table &table) {
        if (sources.empty()) return;
        for (const auto &entry : table) write(sources, entry);
    }

  private:
    void write_buckets(const std::string &name, const std::string &labels, const pkv_histogram &histogram) {
        uint64_t count = 0;
        for (size_t bucket = 0; bucket < PKV_HISTOGRAM_BUCKETS; ++bucket) {
            count += histogram.buckets[bucket];
            const std::string bound = bucket < last_bucket ? seconds(longest_of(bucket)) : "+Inf";
            sample(name + "_bucket", labels + ',' + label("le", bound), std::to_string(count));
        }
        sample(name + "_sum", labels, seconds(histogram.sum_ns));
        sample(name + "_count", labels, std::to_string(count));
    }

    std::string &out_;
};

const char *name_of_memory(int32_t kind) {
    switch (kind) {
    case PKV_MEMORY_KIND_NONE: return "none";
    case PKV_MEMORY_KIND_CALLER: return "caller";
    case PKV_MEMORY_KIND_PAGES: return "pages";
    case PKV_MEMORY_KIND_TRANSPARENT_HUGE: return "transparent_huge";
    case PKV_MEMORY_KIND_HUGETLB: return "hugetlb";
    case PKV_MEMORY_KIND_DEVICE: return "device";
    default: return "unknown";
    }
}

const char *name_of_engine(int32_t engine) {
    switch (engine) {
    case 0: return "none";
    case PKV_IO_URING: return "io_uring";
    case PKV_IO_THREADS: return "threads";
    default: return "unknown";
    }
}

/// What is fixed and no number: labels of a gauge that is always 1.
void write_infos(Writer &writer, const Sources<Pools> &groups, const Sources<Tiers> &tiers,
                 const Sources<Nodes> &nodes) {
    if (!groups.empty())
        writer.family("pagedkv_pool_info", gauge, "Memory of a layer group, and the seed of block keys.");
    for (const auto &[labels, stats] : groups)
        writer.sample("pagedkv_pool_info",
                      labels + ',' + label("memory", name_of_memory(stats->memory_kind)) + ',' +
                          label("key_seed", stats->key_seed == PKV_KEY_SEED_FIXED ? "fixed" : "random"),
                      "1");
    if (!tiers.empty()) writer.family("pagedkv_tier_info", gauge, "How a tier reads and writes.");
    for (const auto &[labels, stats] : tiers)
        writer.sample("pagedkv_tier_info",
                      labels + ',' + label("engine", name_of_engine(stats->usage.engine)) + ',' +
                          label("registered_buffers", stats->usage.registered_buffers != 0 ? "1" : "0"),
                      "1");
    if (!nodes.empty()) writer.family("pagedkv_node_info", gauge, "What carries a node's page bytes.");
    for (const auto &[labels, stats] : nodes)
        writer.sample("pagedkv_node_info", labels + ',' + label("provider", stats->provider), "1");
}

} // namespace

void write_prometheus(std::string &out, std::span<const NamedPool> pools, std::span<const NamedTier> tiers,
                      std::span<const NamedSession> sessions, std::span<const NamedNode> nodes) {
    Sources<Pools> of_groups, of_pools;
    for (const NamedPool &pool : pools) {
        of_pools.push_back({label("pool", pool.name), &pool.groups[0]});
        for (size_t group = 0; group < pool.groups.size(); ++group)
            of_groups.push_back(
                {label("pool", pool.name) + ',' + label("group", std::to_string(group)), &pool.groups[group]});
    }
    Sources<Tiers> of_tiers;
    Sources<Usage> of_usage;
    for (const NamedTier &tier : tiers) {
        of_tiers.push_back({label("tier", tier.name), &tier.stats});
        of_usage.push_back({label("tier", tier.name), &tier.stats.usage});
    }
    Sources<Sessions> of_sessions;
    for (const NamedSession &session : sessions)
        of_sessions.push_back({label("session", session.name), &session.stats});

    Sources<Nodes> of_nodes;
    for (const NamedNode &node : nodes) of_nodes.push_back({label("node", node.name), &node.stats});

    Writer writer(out);
    write_infos(writer, of_groups, of_tiers, of_nodes);
    writer.write_all(of_groups, group_parts);
    writer.write_all(of_groups, group_fields);
    writer.write_all(of_groups, group_ratios);
    writer.write_all(of_pools, pool_fields);
    writer.write_all(of_usage, usage_fields);
    writer.write_all(of_tiers, tier_fields);
    if (!tiers.empty()) writer.family("pagedkv_tier_resting", gauge, "1 while the tier rests after repeated failures.");
    for (const auto &[labels, stats] : of_tiers)
        writer.sample("pagedkv_tier_resting", labels, stats->resting != 0 ? "1" : "0");
    writer.write_all(of_sessions, session_parts);
    writer.write_all(of_sessions, session_fields);
    writer.write_all(of_sessions, session_ratios);
    writer.write_all(of_sessions, session_histograms);
    writer.write_all(of_nodes, node_fields);
}

} // namespace pkv
