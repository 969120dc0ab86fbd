/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.group_options;

/** One layer group: layers that share geometry and attention. pkv_group_options (pool.h) says more about each field. */
public final class GroupOptions {
    private float[] kScales;
    private float[] vScales;
    private ByteBuffer[] kBase;
    private ByteBuffer[] vBase;
    private long numPages;
    private int numLayers;
    private int firstLayer;
    private int totalLayers;
    private int numKvHeads;
    private int firstHead;
    private int totalHeads;
    private int kHeadDim;
    private int vHeadDim;
    private int dtype = DType.F16.code;
    private int kRowBytes;
    private int vRowBytes;
    private int layout;
    private int arrangement;
    private int attention;
    private int window;
    private int sinks;
    private int memory;
    private long kPageStride;
    private long kTokenStride;
    private long kHeadStride;
    private long vPageStride;
    private long vTokenStride;
    private long vHeadStride;
    private long maxCachedPages;
    private int scales;
    private int auxBytes;

    /** Pages: 1 .. 2^31 - 1. */
    public GroupOptions numPages(long numPages) {
        this.numPages = numPages;
        return this;
    }

    /** Layers held here. */
    public GroupOptions numLayers(int numLayers) {
        this.numLayers = numLayers;
        return this;
    }

    /** The model's index of layer 0 of this shard. */
    public GroupOptions firstLayer(int firstLayer) {
        this.firstLayer = firstLayer;
        return this;
    }

    /** Layers of the group in the whole model; 0 = up to the last one here. */
    public GroupOptions totalLayers(int totalLayers) {
        this.totalLayers = totalLayers;
        return this;
    }

    /** KV heads held here. */
    public GroupOptions numKvHeads(int numKvHeads) {
        this.numKvHeads = numKvHeads;
        return this;
    }

    /** The model's index of head 0 of this shard. */
    public GroupOptions firstHead(int firstHead) {
        this.firstHead = firstHead;
        return this;
    }

    /** KV heads of the whole model; 0 = up to the last one here. */
    public GroupOptions totalHeads(int totalHeads) {
        this.totalHeads = totalHeads;
        return this;
    }

    /** Elements of a K row. */
    public GroupOptions kHeadDim(int kHeadDim) {
        this.kHeadDim = kHeadDim;
        return this;
    }

    /** Elements of a V row; 0 = no V. */
    public GroupOptions vHeadDim(int vHeadDim) {
        this.vHeadDim = vHeadDim;
        return this;
    }

    /** Type of the elements; F16 if nothing is said. */
    public GroupOptions dtype(DType dtype) {
        return dtype(dtype.code);
    }

    GroupOptions dtype(int dtype) {
        this.dtype = dtype;
        return this;
    }

    /** OPAQUE: bytes of a K row. */
    public GroupOptions kRowBytes(int kRowBytes) {
        this.kRowBytes = kRowBytes;
        return this;
    }

    /** OPAQUE: bytes of a V row. */
    public GroupOptions vRowBytes(int vRowBytes) {
        this.vRowBytes = vRowBytes;
        return this;
    }

    /** Order inside a page. */
    public GroupOptions layout(Layout layout) {
        return layout(layout.code);
    }

    GroupOptions layout(int layout) {
        this.layout = layout;
        return this;
    }

    /** Order of the layers. */
    public GroupOptions arrangement(Arrangement arrangement) {
        return arrangement(arrangement.code);
    }

    GroupOptions arrangement(int arrangement) {
        this.arrangement = arrangement;
        return this;
    }

    /** What the layers attend to. */
    public GroupOptions attention(Attention attention) {
        return attention(attention.code);
    }

    GroupOptions attention(int attention) {
        this.attention = attention;
        return this;
    }

    /** WINDOW: tokens of the window. */
    public GroupOptions window(int window) {
        this.window = window;
        return this;
    }

    /** WINDOW: first tokens that are always attended to. */
    public GroupOptions sinks(int sinks) {
        this.sinks = sinks;
        return this;
    }

    /** Whose memory. */
    public GroupOptions memory(Memory memory) {
        return memory(memory.code);
    }

    GroupOptions memory(int memory) {
        this.memory = memory;
        return this;
    }

    /** Bytes from page to page; 0 = dense. */
    public GroupOptions kPageStride(long kPageStride) {
        this.kPageStride = kPageStride;
        return this;
    }

    /** CALLER: bytes from token to token. */
    public GroupOptions kTokenStride(long kTokenStride) {
        this.kTokenStride = kTokenStride;
        return this;
    }

    /** CALLER: bytes from head to head. */
    public GroupOptions kHeadStride(long kHeadStride) {
        this.kHeadStride = kHeadStride;
        return this;
    }

    /** CALLER: as for K. */
    public GroupOptions vPageStride(long vPageStride) {
        this.vPageStride = vPageStride;
        return this;
    }

    /** CALLER: as for K. */
    public GroupOptions vTokenStride(long vTokenStride) {
        this.vTokenStride = vTokenStride;
        return this;
    }

    /** CALLER: as for K. */
    public GroupOptions vHeadStride(long vHeadStride) {
        this.vHeadStride = vHeadStride;
        return this;
    }

    /** At most so many cached pages; 0 = no limit. */
    public GroupOptions maxCachedPages(long maxCachedPages) {
        this.maxCachedPages = maxCachedPages;
        return this;
    }

    /** Scales of fp8 and int8 elements. */
    public GroupOptions scales(Scales scales) {
        return scales(scales.code);
    }

    GroupOptions scales(int scales) {
        this.scales = scales;
        return this;
    }

    /** Bytes of the caller's own beside each page. */
    public GroupOptions auxBytes(int auxBytes) {
        this.auxBytes = auxBytes;
        return this;
    }

    /** TENSOR: one for each layer; HEAD: one for each head of each layer. null for V where there is none. */
    public GroupOptions scaleFactors(float[] k, float[] v) {
        kScales = k != null ? k.clone() : null;
        vScales = v != null ? v.clone() : null;
        return this;
    }

    /**
     * CALLER: a direct buffer for each layer, whose position is page 0, token 0, head 0. The pool keeps them. null for V where
     * there is none.
     */
    public GroupOptions base(ByteBuffer[] k, ByteBuffer[] v) {
        kBase = k != null ? k.clone() : null;
        vBase = v != null ? v.clone() : null;
        return this;
    }

    long auxBytes() {
        return Bytes.unsigned(auxBytes);
    }

    /* What the pool has to keep. */
    void keep(List<Object> kept) {
        for (ByteBuffer[] side : new ByteBuffer[][] {kBase, vBase}) {
            if (side != null) {
                kept.addAll(List.of(side));
            }
        }
    }

    /* Addresses of a side's layers, when all of its pages are inside of the buffers. */
    private long[] addresses(ByteBuffer[] side, boolean isK, long pageTokens) {
        if (side == null) {
            return null;
        }
        long row = rowBytes(isK);
        long heads = Bytes.unsigned(numKvHeads);
        long[] strides = isK ? new long[] {kPageStride, kTokenStride, kHeadStride} : new long[] {vPageStride, vTokenStride, vHeadStride};
        if (strides[0] == 0 && strides[1] == 0 && strides[2] == 0) {
            boolean nhd = layout == Layout.NHD.code;
            strides = new long[] {pageTokens * heads * row, nhd ? heads * row : row, nhd ? row : pageTokens * row};
        }
        long needed;
        try {
            needed = row;
            needed = Math.addExact(needed, Math.multiplyExact(Math.max(numPages - 1, 0), strides[0]));
            needed = Math.addExact(needed, Math.multiplyExact(Math.max(pageTokens - 1, 0), strides[1]));
            needed = Math.addExact(needed, Math.multiplyExact(Math.max(heads - 1, 0), strides[2]));
        } catch (ArithmeticException e) {
            needed = Long.MAX_VALUE;
        }
        List<Long> addresses = new ArrayList<>();
        for (ByteBuffer buffer : side) {
            if (buffer.isReadOnly()) {
                throw new java.nio.ReadOnlyBufferException();
            }
            if (buffer.remaining() < needed || strides[0] < 0 || strides[1] < 0 || strides[2] < 0) {
                throw new IndexOutOfBoundsException(numPages + " pages take " + needed + " bytes, " + buffer.remaining() + " are there");
            }
            addresses.add(Bytes.address(buffer));
        }
        return addresses.stream().mapToLong(Long::longValue).toArray();
    }

    private long rowBytes(boolean isK) {
        int element = DType.bytes(dtype);
        return element == 0 ? Bytes.unsigned(isK ? kRowBytes : vRowBytes) : Bytes.unsigned(isK ? kHeadDim : vHeadDim) * element;
    }

    /* to be closed */
    group_options open(long pageTokens) {
        group_options to = new group_options();
        to.setNum_pages(numPages);
        to.setNum_layers(Bytes.unsigned(numLayers));
        to.setFirst_layer(Bytes.unsigned(firstLayer));
        to.setTotal_layers(Bytes.unsigned(totalLayers));
        to.setNum_kv_heads(Bytes.unsigned(numKvHeads));
        to.setFirst_head(Bytes.unsigned(firstHead));
        to.setTotal_heads(Bytes.unsigned(totalHeads));
        to.setK_head_dim(Bytes.unsigned(kHeadDim));
        to.setV_head_dim(Bytes.unsigned(vHeadDim));
        to.setDtype(dtype);
        to.setK_row_bytes(Bytes.unsigned(kRowBytes));
        to.setV_row_bytes(Bytes.unsigned(vRowBytes));
        to.setLayout(layout);
        to.setArrangement(arrangement);
        to.setAttention(attention);
        to.setWindow(Bytes.unsigned(window));
        to.setSinks(Bytes.unsigned(sinks));
        to.setMemory(memory);
        to.setK_page_stride(kPageStride);
        to.setK_token_stride(kTokenStride);
        to.setK_head_stride(kHeadStride);
        to.setV_page_stride(vPageStride);
        to.setV_token_stride(vTokenStride);
        to.setV_head_stride(vHeadStride);
        to.setMax_cached_pages(maxCachedPages);
        to.setScales(scales);
        to.setAux_bytes(Bytes.unsigned(auxBytes));
        try {
            set(to, pageTokens);
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }

    private void set(group_options to, long pageTokens) {
        if (kScales != null) {
            to.set_k_scales(kScales, kScales.length);
        }
        if (vScales != null) {
            to.set_v_scales(vScales, vScales.length);
        }
        long[] k = addresses(kBase, true, pageTokens);
        long[] v = addresses(vBase, false, pageTokens);
        if (k != null) {
            to.set_k_base(k, k.length);
        }
        if (v != null) {
            to.set_v_base(v, v.length);
        }
    }
}
