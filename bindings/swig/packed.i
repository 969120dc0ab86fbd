/* SPDX-License-Identifier: Apache-2.0 */
/* Structs without pointers that come in arrays: languages unpack them from memory. Sizes and offsets are constants, so that
 * each language takes them from the C compiler: EVENT_BYTES, EVENT_AT_KIND ... Byte order is the machine's. */
%define PKV_SIZE(name, upper)
%constant uint32_t upper##_BYTES = sizeof(pkv_##name);
%enddef
%define PKV_OFFSET(name, upper, field, FIELD)
%constant uint32_t upper##_AT_##FIELD = offsetof(pkv_##name, field);
%enddef

PKV_SIZE(key, KEY) /* uint64_t low, uint64_t high */
PKV_SIZE(tier_key, TIER_KEY)
PKV_SIZE(event, EVENT)
PKV_OFFSET(event, EVENT, sequence, SEQUENCE) /* uint64_t */
PKV_OFFSET(event, EVENT, kind, KIND)         /* int32_t */
PKV_OFFSET(event, EVENT, group, GROUP)       /* uint32_t */
PKV_OFFSET(event, EVENT, key, KEY)           /* pkv_key */
PKV_OFFSET(event, EVENT, parent, PARENT)     /* pkv_key */
PKV_OFFSET(event, EVENT, block, BLOCK)       /* uint64_t */
PKV_SIZE(page_copy, PAGE_COPY)
PKV_OFFSET(page_copy, PAGE_COPY, group, GROUP) /* uint32_t */
PKV_OFFSET(page_copy, PAGE_COPY, src, SRC)     /* int32_t */
PKV_OFFSET(page_copy, PAGE_COPY, dst, DST)     /* int32_t */
PKV_SIZE(completion, COMPLETION)
PKV_OFFSET(completion, COMPLETION, user, USER)     /* uint64_t */
PKV_OFFSET(completion, COMPLETION, op, OP)         /* handle, 8 bytes */
PKV_OFFSET(completion, COMPLETION, status, STATUS) /* int32_t */
PKV_SIZE(node_peer, NODE_PEER) /* struct_size of the first one, a uint64_t at 0, is to be set to NODE_PEER_BYTES */
PKV_OFFSET(node_peer, NODE_PEER, address, ADDRESS)     /* text, terminated */
PKV_OFFSET(node_peer, NODE_PEER, name, NAME)           /* text, terminated */
PKV_OFFSET(node_peer, NODE_PEER, connected, CONNECTED) /* int32_t */
PKV_OFFSET(node_peer, NODE_PEER, status, STATUS)       /* int32_t */

/* Numbers that the headers write as expressions. */
%constant uint64_t MATCH_ALL = UINT64_MAX;
%constant uint64_t FOREVER = UINT64_MAX; /* as a timeout, or as "to the end" */
%constant uint64_t TIER_TAG_ALL = UINT64_MAX;
%constant uint32_t PULLS_UNLIMITED = UINT32_MAX;
%constant uint32_t ALL_GROUPS = UINT32_MAX;
%constant uint32_t ALL_LAYERS = UINT32_MAX;
%constant int32_t NO_PAGE = -1;
%constant int64_t NO_SLOT = -1;
