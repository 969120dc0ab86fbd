// SPDX-License-Identifier: Apache-2.0

package pagedkv

// #include "shim.h"
import "C"

// PoolStats is about a pool, at one moment: pkv_pool_stats (stats.h).
type PoolStats struct {
	NumPages          uint64
	FreePages         uint64
	HeldPages         uint64
	CachedPages       uint64
	QuarantinedPages  uint64
	Tables            uint64
	Namespaces        uint64
	IndexBlocks       uint64
	PageBytes         uint64
	MetadataBytes     uint64
	Usage             float64
	MemoryKind        int32
	KeySeed           int32
	Requests          uint64
	AskedTokens       uint64
	HitTokens         uint64
	Retries           uint64
	Refused           uint64
	Probes            uint64
	AllocatedPages    uint64
	FailedAllocations uint64
	EvictedPages      uint64
	ClearedPages      uint64
	PublishedBlocks   uint64
	UnpublishedBlocks uint64
	DuplicateBlocks   uint64
	KeyCollisions     uint64
	CopiedPages       uint64
	PartialTokens     uint64
	SharedDuplicates  uint64
	ExpiredBlocks     uint64
	Events            uint64
	PinnedPages       uint64
	UnstoredPages     uint64
	StoredImages      uint64
	FailedStores      uint64
	DroppedImages     uint64
	LoadedBlocks      uint64
	AdoptedBlocks     uint64
	JoinedLoads       uint64
	SpilledBlocks     uint64
	LostBlocks        uint64
	ExposedNS         uint64
	TierHitTokens     uint64
	ImageBytes        uint64
}

func newPoolStats(c *C.pkv_pool_stats) PoolStats {
	return PoolStats{
		NumPages:          uint64(c.num_pages),
		FreePages:         uint64(c.free_pages),
		HeldPages:         uint64(c.held_pages),
		CachedPages:       uint64(c.cached_pages),
		QuarantinedPages:  uint64(c.quarantined_pages),
		Tables:            uint64(c.tables),
		Namespaces:        uint64(c.namespaces),
		IndexBlocks:       uint64(c.index_blocks),
		PageBytes:         uint64(c.page_bytes),
		MetadataBytes:     uint64(c.metadata_bytes),
		Usage:             float64(c.usage),
		MemoryKind:        int32(c.memory_kind),
		KeySeed:           int32(c.key_seed),
		Requests:          uint64(c.requests),
		AskedTokens:       uint64(c.asked_tokens),
		HitTokens:         uint64(c.hit_tokens),
		Retries:           uint64(c.retries),
		Refused:           uint64(c.refused),
		Probes:            uint64(c.probes),
		AllocatedPages:    uint64(c.allocated_pages),
		FailedAllocations: uint64(c.failed_allocations),
		EvictedPages:      uint64(c.evicted_pages),
		ClearedPages:      uint64(c.cleared_pages),
		PublishedBlocks:   uint64(c.published_blocks),
		UnpublishedBlocks: uint64(c.unpublished_blocks),
		DuplicateBlocks:   uint64(c.duplicate_blocks),
		KeyCollisions:     uint64(c.key_collisions),
		CopiedPages:       uint64(c.copied_pages),
		PartialTokens:     uint64(c.partial_tokens),
		SharedDuplicates:  uint64(c.shared_duplicates),
		ExpiredBlocks:     uint64(c.expired_blocks),
		Events:            uint64(c.events),
		PinnedPages:       uint64(c.pinned_pages),
		UnstoredPages:     uint64(c.unstored_pages),
		StoredImages:      uint64(c.stored_images),
		FailedStores:      uint64(c.failed_stores),
		DroppedImages:     uint64(c.dropped_images),
		LoadedBlocks:      uint64(c.loaded_blocks),
		AdoptedBlocks:     uint64(c.adopted_blocks),
		JoinedLoads:       uint64(c.joined_loads),
		SpilledBlocks:     uint64(c.spilled_blocks),
		LostBlocks:        uint64(c.lost_blocks),
		ExposedNS:         uint64(c.exposed_ns),
		TierHitTokens:     uint64(c.tier_hit_tokens),
		ImageBytes:        uint64(c.image_bytes),
	}
}

// TierUsage is what a tier says of itself: pkv_tier_usage (tier_ops.h).
type TierUsage struct {
	CapacityBytes     uint64
	UsedBytes         uint64
	Images            uint64
	PinnedImages      uint64
	EvictedImages     uint64
	RecoveredImages   uint64
	IOErrors          uint64
	Engine            int32
	RegisteredBuffers bool
}

func newTierUsage(c *C.pkv_tier_usage) TierUsage {
	return TierUsage{
		CapacityBytes:     uint64(c.capacity_bytes),
		UsedBytes:         uint64(c.used_bytes),
		Images:            uint64(c.images),
		PinnedImages:      uint64(c.pinned_images),
		EvictedImages:     uint64(c.evicted_images),
		RecoveredImages:   uint64(c.recovered_images),
		IOErrors:          uint64(c.io_errors),
		Engine:            int32(c.engine),
		RegisteredBuffers: c.registered_buffers != 0,
	}
}

// TierStats is about a tier: pkv_tier_stats (tier.h).
type TierStats struct {
	Lookups           uint64
	Hits              uint64
	Loads             uint64
	FailedLoads       uint64
	Stores            uint64
	FailedStores      uint64
	BytesLoaded       uint64
	BytesStored       uint64
	ChecksumFailures  uint64
	Timeouts          uint64
	DoubleCompletions uint64
	OpenRequests      uint64
	BreakerTrips      uint64
	Resting           bool
	Usage             TierUsage
}

func newTierStats(c *C.pkv_tier_stats) TierStats {
	return TierStats{
		Lookups:           uint64(c.lookups),
		Hits:              uint64(c.hits),
		Loads:             uint64(c.loads),
		FailedLoads:       uint64(c.failed_loads),
		Stores:            uint64(c.stores),
		FailedStores:      uint64(c.failed_stores),
		BytesLoaded:       uint64(c.bytes_loaded),
		BytesStored:       uint64(c.bytes_stored),
		ChecksumFailures:  uint64(c.checksum_failures),
		Timeouts:          uint64(c.timeouts),
		DoubleCompletions: uint64(c.double_completions),
		OpenRequests:      uint64(c.open_requests),
		BreakerTrips:      uint64(c.breaker_trips),
		Resting:           c.resting != 0,
		Usage:             newTierUsage(&c.usage),
	}
}

// PrefetchStats is about a session: pkv_prefetch_stats (prefetch.h).
type PrefetchStats struct {
	Needed            uint64
	OnTime            uint64
	Late              uint64
	OnDemand          uint64
	Failed            uint64
	Requests          uint64
	ReadyRequests     uint64
	Steps             uint64
	Ranges            uint64
	Prompts           uint64
	IONS              uint64
	ExposedNS         uint64
	MaskedNS          uint64
	OtherWaitNS       uint64
	Loads             uint64
	GoodLoads         uint64
	FailedLoads       uint64
	CancelledLoads    uint64
	BytesLoaded       uint64
	BytesUsed         uint64
	WastedBytes       uint64
	ChecksumFailures  uint64
	ReadyBytes        uint64
	BytesInFlight     uint64
	LoadsInFlight     uint64
	Depth             uint64
	Lookahead         uint64
	BlockPages        uint64
	StagingPages      uint64
	BufferSlices      uint64
	MaskingEfficiency float64
	Load              Histogram
	Queue             Histogram
	Exposed           Histogram
}

func newPrefetchStats(c *C.pkv_prefetch_stats) PrefetchStats {
	return PrefetchStats{
		Needed:            uint64(c.needed),
		OnTime:            uint64(c.on_time),
		Late:              uint64(c.late),
		OnDemand:          uint64(c.on_demand),
		Failed:            uint64(c.failed),
		Requests:          uint64(c.requests),
		ReadyRequests:     uint64(c.ready_requests),
		Steps:             uint64(c.steps),
		Ranges:            uint64(c.ranges),
		Prompts:           uint64(c.prompts),
		IONS:              uint64(c.io_ns),
		ExposedNS:         uint64(c.exposed_ns),
		MaskedNS:          uint64(c.masked_ns),
		OtherWaitNS:       uint64(c.other_wait_ns),
		Loads:             uint64(c.loads),
		GoodLoads:         uint64(c.good_loads),
		FailedLoads:       uint64(c.failed_loads),
		CancelledLoads:    uint64(c.cancelled_loads),
		BytesLoaded:       uint64(c.bytes_loaded),
		BytesUsed:         uint64(c.bytes_used),
		WastedBytes:       uint64(c.wasted_bytes),
		ChecksumFailures:  uint64(c.checksum_failures),
		ReadyBytes:        uint64(c.ready_bytes),
		BytesInFlight:     uint64(c.bytes_in_flight),
		LoadsInFlight:     uint64(c.loads_in_flight),
		Depth:             uint64(c.depth),
		Lookahead:         uint64(c.lookahead),
		BlockPages:        uint64(c.block_pages),
		StagingPages:      uint64(c.staging_pages),
		BufferSlices:      uint64(c.buffer_slices),
		MaskingEfficiency: float64(c.masking_efficiency),
		Load:              newHistogram(&c.load),
		Queue:             newHistogram(&c.queue),
		Exposed:           newHistogram(&c.exposed),
	}
}

// NodeStats is about a node: pkv_node_stats (node.h).
type NodeStats struct {
	Guests               uint64
	Accepted             uint64
	Refused              uint64
	LookupsServed        uint64
	FetchesServed        uint64
	BytesServed          uint64
	Leases               uint64
	ExpiredLeases        uint64
	BadMessages          uint64
	Peers                uint64
	ConnectedPeers       uint64
	Reads                uint64
	FailedReads          uint64
	BytesRead            uint64
	LateAnswers          uint64
	Reconnects           uint64
	Promoted             uint64
	OpenOffers           uint64
	Offers               uint64
	ExpiredOffers        uint64
	PullsServed          uint64
	FailedPullsServed    uint64
	HandedBytes          uint64
	Pulls                uint64
	FailedPulls          uint64
	PulledBytes          uint64
	DirectoryEndpoints   uint64
	DirectoryEndpointsUp uint64
	DirectoryPeers       uint64
	DirectoryLookups     uint64
	DirectoryHits        uint64
	DirectoryFailures    uint64
	DirectoryPublished   uint64
	DirectoryDropped     uint64
	DirectoryBadEntries  uint64
	Provider             string
}

func newNodeStats(c *C.pkv_node_stats) NodeStats {
	return NodeStats{
		Guests:               uint64(c.guests),
		Accepted:             uint64(c.accepted),
		Refused:              uint64(c.refused),
		LookupsServed:        uint64(c.lookups_served),
		FetchesServed:        uint64(c.fetches_served),
		BytesServed:          uint64(c.bytes_served),
		Leases:               uint64(c.leases),
		ExpiredLeases:        uint64(c.expired_leases),
		BadMessages:          uint64(c.bad_messages),
		Peers:                uint64(c.peers),
		ConnectedPeers:       uint64(c.connected_peers),
		Reads:                uint64(c.reads),
		FailedReads:          uint64(c.failed_reads),
		BytesRead:            uint64(c.bytes_read),
		LateAnswers:          uint64(c.late_answers),
		Reconnects:           uint64(c.reconnects),
		Promoted:             uint64(c.promoted),
		OpenOffers:           uint64(c.open_offers),
		Offers:               uint64(c.offers),
		ExpiredOffers:        uint64(c.expired_offers),
		PullsServed:          uint64(c.pulls_served),
		FailedPullsServed:    uint64(c.failed_pulls_served),
		HandedBytes:          uint64(c.handed_bytes),
		Pulls:                uint64(c.pulls),
		FailedPulls:          uint64(c.failed_pulls),
		PulledBytes:          uint64(c.pulled_bytes),
		DirectoryEndpoints:   uint64(c.directory_endpoints),
		DirectoryEndpointsUp: uint64(c.directory_endpoints_up),
		DirectoryPeers:       uint64(c.directory_peers),
		DirectoryLookups:     uint64(c.directory_lookups),
		DirectoryHits:        uint64(c.directory_hits),
		DirectoryFailures:    uint64(c.directory_failures),
		DirectoryPublished:   uint64(c.directory_published),
		DirectoryDropped:     uint64(c.directory_dropped),
		DirectoryBadEntries:  uint64(c.directory_bad_entries),
		Provider:             goText(c.provider[:]),
	}
}

// TableInfo has the numbers of a table, in tokens and blocks: pkv_table_info (table.h).
type TableInfo struct {
	Named           uint64
	Reserved        uint64
	Committed       uint64
	Published       uint64
	Matched         uint64
	Blocks          uint64
	CommittedBlocks uint64
	Valid           uint64
	AbsentBlocks    uint64
}

func newTableInfo(c *C.pkv_table_info) TableInfo {
	return TableInfo{
		Named:           uint64(c.named),
		Reserved:        uint64(c.reserved),
		Committed:       uint64(c.committed),
		Published:       uint64(c.published),
		Matched:         uint64(c.matched),
		Blocks:          uint64(c.blocks),
		CommittedBlocks: uint64(c.committed_blocks),
		Valid:           uint64(c.valid),
		AbsentBlocks:    uint64(c.absent_blocks),
	}
}

// PageInfo is the state of a page (0 free, 1 held, 2 cached): pkv_page_info (pool.h).
type PageInfo struct {
	Count     uint64
	State     int32
	Published bool
	Block     uint64
	Priority  uint32
	Pinned    bool
}

func newPageInfo(c *C.pkv_page_info) PageInfo {
	return PageInfo{
		Count:     uint64(c.count),
		State:     int32(c.state),
		Published: c.published != 0,
		Block:     uint64(c.block),
		Priority:  uint32(c.priority),
		Pinned:    c.pinned != 0,
	}
}

// ClearResult is what Clear did: cached pages that became free, and pages still held by somebody.
type ClearResult struct {
	Freed uint64
	Held  uint64
}

func newClearResult(c *C.pkv_clear_result) ClearResult {
	return ClearResult{
		Freed: uint64(c.freed),
		Held:  uint64(c.held),
	}
}

// SpillResult is what Spill did: blocks now in tiers, and pages that stayed because somebody else holds them.
type SpillResult struct {
	SpilledBlocks uint64
	SharedPages   uint64
}

func newSpillResult(c *C.pkv_spill_result) SpillResult {
	return SpillResult{
		SpilledBlocks: uint64(c.spilled_blocks),
		SharedPages:   uint64(c.shared_pages),
	}
}

// RequireResult is where required blocks came from: pkv_require_result (prefetch.h).
type RequireResult struct {
	Resident uint64
	OnTime   uint64
	Late     uint64
	OnDemand uint64
	WaitedNS uint64
}

func newRequireResult(c *C.pkv_require_result) RequireResult {
	return RequireResult{
		Resident: uint64(c.resident),
		OnTime:   uint64(c.on_time),
		Late:     uint64(c.late),
		OnDemand: uint64(c.on_demand),
		WaitedNS: uint64(c.waited_ns),
	}
}

// Histogram has times in powers of two: bucket 0 counts zeros, bucket b 2^(b-1) .. 2^b - 1 nanoseconds, the last one all above.
type Histogram struct {
	Count   uint64
	SumNS   uint64
	Buckets [48]uint64
}

func newHistogram(c *C.pkv_histogram) Histogram {
	h := Histogram{Count: uint64(c.count), SumNS: uint64(c.sum_ns)}
	for i := range h.Buckets {
		h.Buckets[i] = uint64(c.buckets[i])
	}
	return h
}
