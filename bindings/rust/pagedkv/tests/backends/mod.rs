// SPDX-License-Identifier: Apache-2.0
//! Tiers of one's own: one that works, with a thread, and those that fail in some way.
#![allow(dead_code)]

use pagedkv::*;
use std::{
    collections::HashMap,
    ptr::NonNull,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc, Arc, Mutex,
    },
    thread::JoinHandle,
};

struct Image {
    bytes: Vec<u8>,
    tag: u64,
    pins: u64,
}

/// What a backend keeps, and what tests look at.
#[derive(Default)]
pub struct Store {
    images: Mutex<HashMap<TierKey, Image>>,
    /// Images that somebody may still read in place.
    gone: Mutex<Vec<Image>>,
    pub dropped: AtomicBool,
    pub served: AtomicU64,
    pub cancelled: AtomicU64,
    pub addresses: AtomicU64,
    pub memory: AtomicU64,
    /// Panics when an image is stored.
    pub panic_on_store: AtomicBool,
    /// Drops items instead of completing them.
    pub drop_items: AtomicBool,
    /// Gives other bytes back.
    pub spoil: AtomicBool,
}

impl Store {
    fn serve(&self, item: &mut TierItem) -> std::result::Result<u64, Status> {
        self.served.fetch_add(1, Ordering::Relaxed);
        let key = item.key();
        let mut images = self.images.lock().unwrap();
        match item.ask() {
            Ask::Lookup { pin } => {
                let image = images.get_mut(&key).ok_or(Status::NotFound)?;
                image.pins += u64::from(pin);
                Ok(image.bytes.len() as u64)
            }
            Ask::Probe => Ok(images.get(&key).ok_or(Status::NotFound)?.bytes.len() as u64),
            Ask::Store { image, tag, pin, .. } => {
                if self.panic_on_store.load(Ordering::Relaxed) {
                    drop(images);
                    panic!("a backend panics");
                }
                let kept = images.entry(key).or_insert_with(|| Image { bytes: image.to_vec(), tag, pins: 0 });
                kept.pins += u64::from(pin);
                Ok(0)
            }
            Ask::Load { offset, into } => {
                let image = images.get(&key).ok_or(Status::NotFound)?;
                let part = image.bytes.get(offset as usize..offset as usize + into.len()).ok_or(Status::Invalid)?;
                into.copy_from_slice(part);
                if self.spoil.load(Ordering::Relaxed) {
                    let middle = into.len() / 2;
                    into[middle] ^= 0x10;
                }
                Ok(into.len() as u64)
            }
            Ask::Remove { force } => match images.get(&key) {
                Some(image) if image.pins > 0 && !force => Err(Status::Busy),
                _ => {
                    self.gone.lock().unwrap().extend(images.remove(&key));
                    Ok(0)
                }
            },
            Ask::Unpin => {
                let image = images.get_mut(&key).ok_or(Status::NotFound)?;
                image.pins = image.pins.checked_sub(1).ok_or(Status::NotFound)?;
                Ok(0)
            }
            Ask::Retain { .. } => images.get(&key).map(|_| 0).ok_or(Status::NotFound),
            Ask::Clear { tag } => {
                let cleared = |image: &Image| image.tag == tag || (tag == TAG_ALL && image.tag != TAG_PRIVATE);
                let keys: Vec<TierKey> =
                    images.iter().filter(|(_, image)| cleared(image)).map(|(key, _)| *key).collect();
                self.gone.lock().unwrap().extend(keys.iter().filter_map(|key| images.remove(key)));
                Ok(0)
            }
            _ => Err(Status::Unsupported),
        }
    }

    /// As if all had been evicted.
    pub fn forget_all(&self) {
        let all = std::mem::take(&mut *self.images.lock().unwrap());
        self.gone.lock().unwrap().extend(all.into_values());
    }

    fn usage(&self) -> TierUsage {
        let images = self.images.lock().unwrap();
        let mut usage = TierUsage::default();
        usage.images = images.len() as u64;
        usage.used_bytes = images.values().map(|image| image.bytes.len() as u64).sum();
        usage.pinned_images = images.values().filter(|image| image.pins > 0).count() as u64;
        usage
    }

    fn work(&self, batch: TierBatch) {
        for mut item in batch {
            let outcome = self.serve(&mut item);
            if !self.drop_items.load(Ordering::Relaxed) {
                let _ = item.complete(outcome);
            }
        }
    }
}

/// A thread of its own serves the batches.
pub struct Threaded {
    store: Arc<Store>,
    queue: Option<mpsc::Sender<TierBatch>>,
    sender: Mutex<()>,
    worker: Option<JoinHandle<()>>,
}

impl Threaded {
    pub fn new() -> (Self, Arc<Store>) {
        let store = Arc::new(Store::default());
        let (queue, batches) = mpsc::channel::<TierBatch>();
        let own = Arc::clone(&store);
        let work = move || batches.into_iter().for_each(|batch| own.work(batch));
        let worker = Some(std::thread::spawn(work));
        (Self { store: Arc::clone(&store), queue: Some(queue), sender: Mutex::new(()), worker }, store)
    }
}

// A sender may be shared since Rust 1.72; here each send has the lock.
unsafe impl Sync for Threaded {}

impl TierBackend for Threaded {
    fn name(&self) -> &str {
        "threaded"
    }

    fn submit(&self, batch: TierBatch) {
        let _lock = self.sender.lock().unwrap();
        let _ = self.queue.as_ref().unwrap().send(batch);
    }

    fn cancel(&self, _request: RequestId) {
        self.store.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    fn memory(&self, base: *mut u8, bytes: u64, added: bool) {
        assert!(!base.is_null() && bytes > 0);
        if added {
            self.store.memory.fetch_add(1, Ordering::Relaxed);
        } else {
            self.store.memory.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn usage(&self) -> TierUsage {
        self.store.usage()
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        drop(self.queue.take());
        self.worker.take().unwrap().join().unwrap();
        self.store.dropped.store(true, Ordering::SeqCst);
    }
}

/// Serves inside of `submit`.
pub struct Direct(pub Arc<Store>);

impl TierBackend for Direct {
    fn submit(&self, batch: TierBatch) {
        self.0.work(batch);
    }

    fn usage(&self) -> TierUsage {
        self.0.usage()
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.0.dropped.store(true, Ordering::SeqCst);
    }
}

/// As `Direct`, and shows where images lie. Those that are gone stay readable until it is dropped.
pub struct Mapped {
    store: Arc<Store>,
}

impl Mapped {
    pub fn new() -> (Self, Arc<Store>) {
        let store = Arc::new(Store::default());
        (Self { store: Arc::clone(&store) }, store)
    }
}

impl TierBackend for Mapped {
    fn submit(&self, batch: TierBatch) {
        self.store.work(batch);
    }

    fn usage(&self) -> TierUsage {
        self.store.usage()
    }
}

unsafe impl MappedTier for Mapped {
    fn address(&self, key: &TierKey) -> Option<NonNull<u8>> {
        self.store.addresses.fetch_add(1, Ordering::Relaxed);
        self.store.images.lock().unwrap().get(key).map(|image| NonNull::from(&image.bytes[0]))
    }

    fn victims(&self, max: usize) -> Vec<Victim> {
        let images = self.store.images.lock().unwrap();
        let unpinned = images.iter().filter(|(_, image)| image.pins == 0);
        let victim = |(key, image): (&TierKey, &Image)| Victim {
            key: *key,
            bytes: image.bytes.len() as u64,
            tag: image.tag,
            retention: Retention::default(),
        };
        unpinned.map(victim).take(max).collect()
    }
}
