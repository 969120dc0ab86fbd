/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.layer_layout;

/**
 * Where a layer's rows lie: the K row of (page, token offset, head) is at {@code kBase + page * kPageStride + offset *
 * kTokenStride + head * kHeadStride}, V's the same. Addresses are for native kernels; 0 = there is no such memory.
 */
public record LayerLayout(
        long kBase, long vBase, long kPageStride, long kTokenStride, long kHeadStride, long vPageStride, long vTokenStride,
        long vHeadStride, long kRowBytes, long vRowBytes, int numKvHeads, int pageTokens, DType dtype, int scales, long kScales,
        long vScales, long scalePageStride) {

    static LayerLayout of(layer_layout s) {
        return new LayerLayout(s.getK_base_address(), s.getV_base_address(), s.getK_page_stride(), s.getK_token_stride(),
                s.getK_head_stride(), s.getV_page_stride(), s.getV_token_stride(), s.getV_head_stride(), s.getK_row_bytes(),
                s.getV_row_bytes(), (int) s.getNum_kv_heads(), (int) s.getPage_tokens(), DType.of(s.getDtype()), s.getScales(),
                s.getK_scales_address(), s.getV_scales_address(), s.getScale_page_stride());
    }
}
