// SPDX-License-Identifier: Apache-2.0
//! Runs the conformance cases through the safe crate.
//!
//!     conformance [--show] [FILE [CASE]]
//!
//! What the safe crate's types rule out (a step without a batch, flags that are none, buffers that are too small) goes through
//! `pagedkv-sys`: the answers have to be the same. The format of the file is explained beside it.

mod line;
mod objects;
mod ops_pool;
mod ops_prefetch;
mod ops_step;
mod ops_table;
mod ops_tier;
mod rows;

use line::{expanded, Line};
use objects::Case;
use pagedkv::{Error, Status};
use std::process::ExitCode;

/// What an operation came to.
type Ran = Result<(), Error>;

/// A call of the low-level crate that has returned.
fn low(status: pagedkv_sys::pkv_status) -> Ran {
    match status {
        pagedkv_sys::PKV_OK => Ok(()),
        other => Err(Status::from_code(other).into()),
    }
}

/// `PKV_ERR_NO_PAGES` is `NO_PAGES`.
fn short_status<T>(result: &Result<T, Status>) -> String {
    match result {
        Ok(_) => "OK".to_string(),
        Err(status) => status.to_string().replace("PKV_ERR_", ""),
    }
}

#[derive(Default)]
struct Progress {
    cases: u64,
    checks: u64,
    failed: u64,
    show: bool,
    name: String,
}

impl Progress {
    fn check(&mut self, line: &Line, key: &str, got: Option<&str>, wanted: &str, why: &str) {
        self.checks += 1;
        if got == Some(wanted) {
            return;
        }
        let got = got.unwrap_or("nothing");
        eprintln!("FAIL {}, line {}: {}: {} is {}, not {}  {}", self.name, line.number, line.op, key, got, wanted, why);
        self.failed += 1;
    }

    fn run_line(&mut self, case: &mut Case, text: &str, number: u64) {
        let line = match Line::parse(text, number) {
            Ok(line) => line,
            Err(why) => {
                eprintln!("line {}: {}", number, why);
                self.failed += 1;
                return;
            }
        };
        let ran = [ops_pool::run, ops_table::run, ops_step::run, ops_tier::run, ops_prefetch::run]
            .iter()
            .find_map(|run| run(case, &line));
        let ran = match ran {
            Some(ran) => ran,
            None => {
                line.complain("there is no such operation");
                self.failed += 1;
                return;
            }
        };
        let why = ran.as_ref().err().map_or(String::new(), |error| error.message().to_string());
        let status = short_status(&ran.map_err(|error| error.status()));
        self.check(&line, "status", Some(&status), line.wanted("status").unwrap_or("OK"), &why);
        for (key, wanted) in line.all_wanted().filter(|(key, _)| *key != "status") {
            self.check(&line, key, line.output(key).as_deref(), &expanded(wanted), "");
        }
        if line.unused_or_broken() {
            self.failed += 1;
        }
        if self.show {
            println!("{:5} {} status={}{}", number, line.op, status, line.outputs());
        }
    }

    fn run_file(&mut self, text: &str, only: Option<&str>) {
        let mut case = Case::default();
        let mut wanted = false;
        for (i, text) in text.lines().enumerate() {
            let text = text.split('#').next().unwrap_or("").trim();
            if text.is_empty() {
                continue;
            }
            if let Some(name) = text.strip_prefix("case ") {
                case.end();
                self.name = name.trim().to_string();
                wanted = only.map_or(true, |only| only == self.name);
                self.cases += u64::from(wanted);
                if wanted && self.show {
                    println!("case {}", self.name);
                }
            } else if wanted {
                self.run_line(&mut case, text, i as u64 + 1);
            }
        }
    }
}

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let show = args.first().map_or(false, |arg| arg == "--show");
    if show {
        args.remove(0);
    }
    let path = args.first().map_or("bindings/conformance/cases.txt", |path| path);
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {}", path, error);
            return ExitCode::from(2);
        }
    };
    let mut progress = Progress { show, ..Default::default() };
    progress.run_file(&text, args.get(1).map(String::as_str));
    println!("conformance: {} cases, {} checks, {} failed", progress.cases, progress.checks, progress.failed);
    ExitCode::from(u8::from(progress.cases == 0 || progress.failed != 0))
}
