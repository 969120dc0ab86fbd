// SPDX-License-Identifier: Apache-2.0
//! Prompts, and rows with the pattern of the cases.

use crate::line::Line;
use pagedkv::*;

pub const DTYPES: [&str; 7] = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "opaque"];

/// What a prompt borrows.
pub struct PromptParts {
    tokens: Vec<Token>,
    parts: Option<[Vec<u8>; 3]>,
    adapter: (u64, u64),
    media: Vec<(u64, u64, Vec<u8>)>,
}

impl PromptParts {
    pub fn of(line: &Line) -> Self {
        let keys = ["model", "adapter", "adapter_id", "generation", "salt"];
        let named = keys.iter().filter(|key| line.has(key)).count() > 0;
        let media = line.text("media").unwrap_or("").split('/').filter(|one| !one.is_empty());
        let media = media
            .filter_map(|one| {
                let mut parts = one.splitn(3, ':');
                let found = (|| {
                    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, line.bytes_of(parts.next()?)))
                })();
                if found.is_none() {
                    line.complain(&format!("media is POSITION:TOKENS:DIGEST/..., not {}", one));
                }
                found
            })
            .collect();
        Self {
            tokens: line.list32("tokens"),
            parts: named.then(|| [line.bytes("model"), line.bytes("adapter"), line.bytes("salt")]),
            adapter: (line.number("adapter_id", 0), line.number("generation", 0)),
            media,
        }
    }

    /// Calls something with the prompt, and with its namespace if one is named.
    pub fn with<R>(&self, call: impl FnOnce(&Prompt<'_>, Option<&Namespace<'_>>) -> R) -> R {
        let media: Vec<Media<'_>> =
            self.media.iter().map(|(at, tokens, digest)| Media::new(*at, *tokens, digest)).collect();
        let prompt = Prompt::new(&self.tokens).media(&media);
        match &self.parts {
            None => call(&prompt, None),
            Some([model, adapter, salt]) => {
                let namespace =
                    Namespace::new().model(model).adapter(adapter, self.adapter.0, self.adapter.1).salt(salt);
                call(&prompt.namespace(&namespace), Some(&namespace))
            }
        }
    }
}

/// The low-level crate's prompt, for calls with buffers of a size that the safe crate does not use.
pub fn with_raw_prompt<R>(line: &Line, call: impl FnOnce(&pagedkv_sys::pkv_prompt) -> R) -> R {
    let parts = PromptParts::of(line);
    let bytes = |part: &[u8]| pagedkv_sys::pkv_bytes { data: part.as_ptr() as *const _, size: part.len() as u64 };
    let mut namespace = pagedkv_sys::PKV_NAMESPACE_INIT;
    let mut raw = pagedkv_sys::PKV_PROMPT_INIT;
    if let Some([model, adapter, salt]) = &parts.parts {
        namespace.model = bytes(model);
        namespace.adapter = bytes(adapter);
        namespace.salt = bytes(salt);
        namespace.adapter_id = parts.adapter.0;
        namespace.adapter_generation = parts.adapter.1;
        raw.ns = &namespace;
    }
    let media: Vec<_> = parts
        .media
        .iter()
        .map(|(position, num_tokens, digest)| pagedkv_sys::pkv_media {
            position: *position,
            num_tokens: *num_tokens,
            digest: bytes(digest),
        })
        .collect();
    raw.tokens = parts.tokens.as_ptr();
    raw.num_tokens = parts.tokens.len() as u64;
    raw.media = media.as_ptr();
    raw.num_media = media.len() as u64;
    call(&raw)
}

fn byte_pattern(tag: u64, side: u64, layer: u64, token: u64, head: u64, i: u64) -> u8 {
    (tag * 7 + side * 101 + layer * 53 + token * 29 + (token >> 8) * 11 + head * 17 + i * 3) as u8
}

fn value_pattern(tag: u64, side: u64, layer: u64, token: u64, head: u64, i: u64) -> f32 {
    ((tag + side * 5 + layer * 3 + token * 7 + head * 2 + i) % 17) as f32 - 8.0
}

/// Rows of K and V; none of a side that is not wanted.
pub struct RowBytes {
    dtype: DType,
    pub sides: [Option<Vec<u8>>; 2],
}

impl RowBytes {
    /// Rows for `count` tokens of a group, filled by the pattern of fill= for `position`, `position` + 1 ...
    pub fn new(
        line: &Line, pool: &Pool, group: u32, layer: u32, position: u64, count: u64, fill: bool,
    ) -> Option<Self> {
        // A handle or a group that is no good is for the call to refuse.
        let layout = pool.layout(group, 0).ok();
        let stored = layout.map_or(DType::F32, |layout| layout.dtype);
        let dtype = DType::from_code(line.name("dtype", &DTYPES, 1, stored.code()));
        if dtype != stored && dtype != DType::F32 {
            line.complain("rows are of the group's type or of f32");
            return None;
        }
        let size = |dtype: DType| dtype.bytes().max(1);
        let values = dtype == DType::F32 && stored != DType::F32;
        let tag = line.number("fill", 0);
        let wanted = line.text("sides").unwrap_or("kv");
        let heads = layout.map_or(0, |layout| u64::from(layout.num_kv_heads));
        let rows = layout.map_or([0, 0], |layout| [layout.k_row_bytes, layout.v_row_bytes]);
        let mut sides = [None, None];
        for (side, name) in [(0, 'k'), (1, 'v')] {
            let bytes = rows[side] / size(stored) * size(dtype);
            if !wanted.contains(name) || (side == 1 && bytes == 0 && layout.is_some()) {
                continue;
            }
            let mut data = vec![0u8; (count.min(1 << 24) * heads * bytes) as usize];
            let places = (0..count).flat_map(|t| (0..heads).map(move |h| (t, h)));
            for ((t, h), row) in places.zip(data.chunks_exact_mut(bytes.max(1) as usize)).filter(|_| fill) {
                let (token, layer, side) = (position + t, u64::from(layer), side as u64);
                if values {
                    for (i, element) in row.chunks_exact_mut(4).enumerate() {
                        element.copy_from_slice(&value_pattern(tag, side, layer, token, h, i as u64).to_ne_bytes());
                    }
                } else {
                    for (i, byte) in row.iter_mut().enumerate() {
                        *byte = byte_pattern(tag, side, layer, token, h, i as u64);
                    }
                }
            }
            sides[side] = Some(data);
        }
        Some(Self { dtype, sides })
    }

    pub fn k(&self) -> Rows<'_> {
        Rows::of_bytes(self.dtype, self.sides[0].as_deref().unwrap_or(&[]))
    }

    pub fn v(&self) -> Option<Rows<'_>> {
        self.sides[1].as_deref().map(|bytes| Rows::of_bytes(self.dtype, bytes))
    }

    pub fn out(&mut self) -> (Option<RowsMut<'_>>, Option<RowsMut<'_>>) {
        let dtype = self.dtype;
        let [k, v] = &mut self.sides;
        let rows = |side| RowsMut::of_bytes(dtype, side);
        (k.as_deref_mut().map(rows), v.as_deref_mut().map(rows))
    }

    pub fn digests(&self, line: &Line) {
        for (side, key) in [(0, "k"), (1, "v")] {
            if let Some(bytes) = &self.sides[side] {
                line.out_digest(key, bytes);
            }
        }
    }
}
