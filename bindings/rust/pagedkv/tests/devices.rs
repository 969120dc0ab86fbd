// SPDX-License-Identifier: Apache-2.0
//! Pools on a device.

mod common;

use common::*;
use pagedkv::*;
use std::{os::raw::c_void, path::Path, process::Command, time::Duration};

#[test]
fn a_device_that_is_not_there_is_said_to_be_so() {
    Device::Host.available().unwrap();
    let none = Device::Cuda(1000);
    assert_eq!(status(none.available()), Status::Unsupported);
    assert_eq!(status(Pool::new(&PoolOptions { device: none, ..options(8) })), Status::Unsupported);
    assert_eq!(status(Device::Cuda(-1).available()), Status::Invalid);
}

#[test]
fn a_host_pool_has_nothing_to_order_and_takes_no_stream() {
    pool(8).order(NOW).unwrap();
    let mut nothing = 0u64;
    let in_place = Some(unsafe { InPlace::cuda_stream(&mut nothing as *mut u64 as *mut c_void) });
    assert_eq!(status(Pool::new(&PoolOptions { in_place, ..options(8) })), Status::Invalid);
}

/// What is a device to the library, and memory to a test that knows it: rows go from another pool's pages to a pool's, and back. It runs
/// in a process of its own, whose plug-in is that device.
#[test]
fn a_pool_on_a_device() {
    let name = "a_pool_on_a_device";
    if std::env::var_os("PKV_FAKE_DEVICE").is_some() {
        return on_the_device();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../../../tests/device/fake");
    if !folder.join("libpagedkv-cuda.so").exists() || under_valgrind() {
        println!("SKIP  no device of host memory is built");
        return;
    }
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .envs([("PKV_FAKE_DEVICE", "open".as_ref()), ("PKV_PLUGIN_DIR", folder.as_os_str())])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("rows went there and back"), "{}", text);
}

fn on_the_device() {
    let device = Device::Cuda(0);
    device.available().unwrap();
    let there = PoolOptions { device, transfer_blocks: 4, debug_hot_pages: true, ..options(8) };
    let (pool, other) = (Pool::new(&there).unwrap(), Pool::new(&there).unwrap());
    assert_eq!(pool.stats(0).unwrap().memory_kind, MemoryKind::Device);
    let address = other.layout(0, 0).unwrap().k_base as *mut f32;
    // Safe: memory of a pool that lives, that nobody else uses, and that the host can reach.
    let memory = unsafe { std::slice::from_raw_parts_mut(address, 20 * ROW) };
    let bytes = 20 * ROW * 4;
    let pattern: Vec<f32> = (0..20 * ROW).map(|i| i as f32).collect();
    memory.copy_from_slice(&pattern);
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&tokens(1, 20)), &Default::default()).unwrap();
    let here = || unsafe { Rows::at(DType::F32, address as *const c_void, bytes) };
    for layer in 0..LAYERS {
        table.write(0, layer, 0..20, here(), Some(here()), NOW).unwrap();
    }
    table.commit(20, NOW).unwrap();
    pool.order(NOW).unwrap();
    memory.fill(0.0);
    let back = |bytes| unsafe { RowsMut::at(DType::F32, address as *mut c_void, bytes) };
    table.gather(0, 1, 0..20, Some(back(bytes)), None, NOW).unwrap();
    assert_eq!(memory, &pattern[..]);
    assert_eq!(status(table.gather(0, 1, 0..20, Some(back(bytes - 1)), None, NOW)), Status::Invalid);
    step_on_the_device();
    println!("rows went there and back");
}

/// Views for kernels in a stream have addresses; without a stream the call has waited, and what is there may be read.
fn step_on_the_device() {
    let prompt = tokens(1, 100);
    let tier = host_tier(1 << 22);
    let pool =
        Pool::new(&PoolOptions { device: Device::Cuda(0), tiers: vec![attached(&tier)], ..options(64) }).unwrap();
    let memory: Vec<f32> = (0..100 * ROW).map(|i| i as f32).collect(); // the device reads all memory of the host
    let mut table = pool.table().unwrap();
    table.admit(&Prompt::new(&prompt), &Default::default()).unwrap();
    for layer in 0..LAYERS {
        table.write(0, layer, 0..100, Rows::of(&memory), Some(Rows::of(&memory)), NOW).unwrap();
    }
    table.commit(100, NOW).unwrap();
    assert_eq!(table.spill(0..4, NOW).unwrap().spilled_blocks, 4);
    let how = SessionOptions { num_buffers: 2, max_tables: 2, staging_pages: vec![16], ..Default::default() };
    let mut session = Session::open(&pool, &how).unwrap();
    let step = session.step([&mut table], None).unwrap();
    let mut seen = 0;
    loop {
        let view = step.acquire_in(0, Duration::MAX, NOW).unwrap();
        assert_eq!((view.index(), view.num_tables()), (0, 1));
        // Safe: the call has waited for what is there.
        let slices = unsafe { std::slice::from_raw_parts(view.slices(), view.num_slices() as usize) };
        for &slice in slices {
            let row = view.layout().k_address(slice, 0, 0) as *const f32;
            assert_eq!(unsafe { *row }, (seen * 16 * ROW) as f32);
            seen += 1;
        }
        if view.last() {
            break;
        }
    }
    assert_eq!(seen, 7);
    assert_eq!(step.end().unwrap(), [Ok(())]);
}
