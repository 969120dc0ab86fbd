// SPDX-License-Identifier: Apache-2.0
//! Statistics, text for Prometheus, traces, messages.

mod common;

use common::*;
use pagedkv::*;
use std::sync::{Arc, Mutex};

#[test]
fn prometheus_has_every_source_under_its_name() {
    let tier = host_tier(1 << 20);
    let pool = pool_over(16, vec![attached(&tier)]);
    let session = Session::open(&pool, &SessionOptions::default()).unwrap();
    drop(computed(&pool, &tokens(1, 40)));
    let text = Prometheus::new()
        .pool("a \"pool\"", &pool)
        .tier("host", &tier)
        .session("s", session.monitor())
        .render()
        .unwrap();
    assert!(text.contains("pool=\"a \\\"pool\\\"\""), "{}", text);
    assert!(text.contains("tier=\"host\"") && text.contains("session=\"s\""));
    assert!(text.ends_with('\n'));
    assert_eq!(status(Prometheus::new().pool("x".repeat(300), &pool).render()), Status::Invalid);
    assert_eq!(status(Prometheus::new().pool("x\0", &pool).render()), Status::Invalid);
    let monitor = session.monitor();
    drop(session);
    assert_eq!(status(Prometheus::new().session("s", monitor).render()), Status::Handle);
}

#[test]
fn a_trace_is_written_once() {
    let path = Scratch(scratch("trace"));
    let tier = host_tier(1 << 20);
    let pool = pool_over(16, vec![attached(&tier)]);
    let trace = Trace::start(0).unwrap();
    assert_eq!(status(Trace::start(0)), Status::State);
    let mut table = computed(&pool, &tokens(1, 40));
    table.spill(0..u64::MAX, NOW).unwrap();
    table.restore(0..u64::MAX, LONG).unwrap();
    assert_eq!(trace.stop(&path.0).unwrap(), 0);
    let text = std::fs::read_to_string(&path.0).unwrap();
    assert!(text.contains("traceEvents") && text.contains("restore"), "{}", text);
    drop(Trace::start(16).unwrap());
    let trace = Trace::start(16).unwrap();
    assert_eq!(status(trace.stop("/nonexistent/folder/trace")), Status::Io);
    drop(Trace::start(16).unwrap());
}

#[test]
fn case_q16_messages_reach_the_last_receiver_and_panics_stay_in_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&seen);
    set_log(LogLevel::Info, |_, _| panic!("a receiver panics"));
    drop(pool(8));
    set_log(LogLevel::Info, move |level, message| own.lock().unwrap().push((level, message.to_string())));
    drop(pool(8));
    clear_log();
    let before = seen.lock().unwrap().len();
    drop(pool(8));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), before);
    assert!(seen.iter().any(|(level, message)| *level == LogLevel::Info && !message.is_empty()), "{:?}", seen);
}

#[test]
fn the_library_says_what_it_is() {
    assert!(version().starts_with("0.1."), "{}", version());
    assert!(["avx512", "avx2", "neon", "portable"].contains(&cpu_kernels()));
    assert_eq!((DType::F32.bytes(), DType::F16.bytes(), DType::Opaque.bytes(), DType::Other(77).bytes()), (4, 2, 0, 0));
    assert_eq!(Histogram::default().buckets.len(), 48);
}
