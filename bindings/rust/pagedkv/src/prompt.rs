// SPDX-License-Identifier: Apache-2.0
//! Prompts, and what else decides their keys.

use crate::error::{check, Result};
use crate::text::{address, bytes, nanoseconds};
use crate::{Token, PRIORITY_DEFAULT};
use pagedkv_sys as sys;
use std::{fmt, marker::PhantomData, time::Duration};

/// What else decides whether KV may be reused, besides the tokens. Each part is kept apart from the others: an adapter "x" and
/// a salt "x" are different namespaces. A part may have 2^20 bytes.
///
/// ```
/// # use pagedkv::Namespace;
/// let namespace = Namespace::new().model(b"llama-3.1-8b fp16").salt(b"tenant 7");
/// ```
#[derive(Clone, Copy)]
pub struct Namespace<'a> {
    raw: sys::pkv_namespace,
    borrowed: PhantomData<&'a [u8]>,
}

unsafe impl Send for Namespace<'_> {}
unsafe impl Sync for Namespace<'_> {}

impl<'a> Namespace<'a> {
    /// The one whose parts are all empty.
    pub fn new() -> Self {
        Self { raw: sys::PKV_NAMESPACE_INIT, borrowed: PhantomData }
    }

    /// Identity of model and weights: name, revision, quantisation ...
    pub fn model(mut self, model: &'a [u8]) -> Self {
        self.raw.model = bytes(model);
        self
    }

    /// Name of the adapter (LoRA), its id, and a generation that is raised when an adapter is loaded again under its name.
    pub fn adapter(mut self, name: &'a [u8], id: u64, generation: u64) -> Self {
        self.raw.adapter = bytes(name);
        self.raw.adapter_id = id;
        self.raw.adapter_generation = generation;
        self
    }

    /// Tenant: other salts neither hit this one's pages nor see them by timing.
    pub fn salt(mut self, salt: &'a [u8]) -> Self {
        self.raw.salt = bytes(salt);
        self
    }

    pub(crate) fn raw(&self) -> *const sys::pkv_namespace {
        &self.raw
    }
}

impl Default for Namespace<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Namespace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = &self.raw;
        write!(
            f,
            "Namespace(model {} bytes, adapter {} bytes, salt {} bytes)",
            raw.model.size, raw.adapter.size, raw.salt.size
        )
    }
}

/// An image, sound or other input that stands behind placeholder tokens. Its digest becomes part of the key of the block that
/// `position` falls into, and so of all blocks after it. Two inputs that lead to other KV need other digests: see
/// [`digest()`].
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Media<'a> {
    raw: sys::pkv_media,
    borrowed: PhantomData<&'a [u8]>,
}

unsafe impl Send for Media<'_> {}
unsafe impl Sync for Media<'_> {}

impl<'a> Media<'a> {
    /// * `position`: token index of its first placeholder; ascending in a list, below the prompt's tokens
    /// * `num_tokens`: placeholders it fills
    /// * `digest`: 1 .. 256 bytes; all of them count
    pub fn new(position: u64, num_tokens: u64, digest: &'a [u8]) -> Self {
        Self { raw: sys::pkv_media { position, num_tokens, digest: bytes(digest) }, borrowed: PhantomData }
    }
}

impl fmt::Debug for Media<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Media({} tokens at {})", self.raw.num_tokens, self.raw.position)
    }
}

/// A prompt: tokens, at most 2^40, and what else decides its keys.
///
/// ```
/// # use pagedkv::{Media, Namespace, Prompt};
/// let tokens = [1, 2, 3, 4];
/// let namespace = Namespace::new().salt(b"tenant 7");
/// let image = [Media::new(1, 2, b"digest of the image")];
/// let prompt = Prompt::new(&tokens).namespace(&namespace).media(&image);
/// ```
#[derive(Clone, Copy)]
pub struct Prompt<'a> {
    raw: sys::pkv_prompt,
    borrowed: PhantomData<&'a [Token]>,
}

unsafe impl Send for Prompt<'_> {}
unsafe impl Sync for Prompt<'_> {}

impl<'a> Prompt<'a> {
    /// Tokens in the namespace whose parts are empty, without media.
    pub fn new(tokens: &'a [Token]) -> Self {
        let mut raw = sys::PKV_PROMPT_INIT;
        raw.tokens = address(tokens);
        raw.num_tokens = tokens.len() as u64;
        Self { raw, borrowed: PhantomData }
    }

    /// Another namespace.
    pub fn namespace(mut self, namespace: &'a Namespace<'a>) -> Self {
        self.raw.ns = namespace.raw();
        self
    }

    /// Images and the like, in order of position, at most 2^20.
    pub fn media(mut self, media: &'a [Media<'a>]) -> Self {
        self.raw.media = address(media) as *const sys::pkv_media; // Media is one, and a borrow
        self.raw.num_media = media.len() as u64;
        self
    }

    pub(crate) fn num_tokens(&self) -> u64 {
        self.raw.num_tokens
    }

    pub(crate) fn raw(&self) -> *const sys::pkv_prompt {
        &self.raw
    }
}

impl fmt::Debug for Prompt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prompt({} tokens, {} media)", self.raw.num_tokens, self.raw.num_media)
    }
}

/// How long cached blocks are kept in comparison with others. Of evictable pages those of the lowest priority go first; among
/// equals, the least recently released; a cached block whose retention changes, or ends, counts as released at that moment. A
/// block that is kept also keeps the blocks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// 0 .. 100
    pub priority: u32,
    /// Not evicted at all, until the pin is taken back or `ttl` has passed; clearing and `Status::NoPages` are what remains
    pub pin: bool,
    /// After so long the blocks go back to the default priority, unpinned; zero = never
    pub ttl: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { priority: PRIORITY_DEFAULT, pin: false, ttl: Duration::ZERO }
    }
}

impl Retention {
    pub(crate) fn raw(&self) -> sys::pkv_retention {
        let mut raw = sys::PKV_RETENTION_INIT;
        raw.priority = self.priority;
        raw.pin = self.pin as i32;
        raw.ttl_ns = nanoseconds(self.ttl);
        raw
    }

    pub(crate) fn from_raw(raw: &sys::pkv_retention) -> Self {
        Self { priority: raw.priority, pin: raw.pin != 0, ttl: Duration::from_nanos(raw.ttl_ns) }
    }
}

/// BLAKE2b-256 (RFC 7693) of the number of parts and then of each part, preceded by its size, so that ("ab", "c") and
/// ("a", "bc") differ. Meant for what goes into a key besides tokens: for an image pass its decoded bytes and its shape, type
/// and mode as parts of their own.
pub fn digest(parts: &[&[u8]]) -> Result<[u8; 32]> {
    let parts: Vec<sys::pkv_bytes> = parts.iter().map(|part| bytes(part)).collect();
    let mut out = [0; sys::PKV_DIGEST_BYTES as usize];
    // An empty list is one, too.
    check(unsafe { sys::pkv_digest(parts.as_ptr(), parts.len() as u64, out.as_mut_ptr()) })?;
    Ok(out)
}
