/* SPDX-License-Identifier: Apache-2.0 */
/** A paged KV cache for LLM inference engines. */
module org.pagedkv {
    exports org.pagedkv;
}
