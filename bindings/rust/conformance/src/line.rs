// SPDX-License-Identifier: Apache-2.0
//! A line of the file: arguments, what is wanted, what was given.

use crate::short_status;
use pagedkv::{Outcome, Page};
use std::cell::{Cell, RefCell};

struct Pair {
    key: String,
    value: String,
    used: Cell<bool>,
}

pub struct Line {
    pub number: u64,
    pub op: String,
    args: Vec<Pair>,
    wanted: Vec<Pair>,
    outputs: RefCell<Vec<(&'static str, String)>>,
    broken: Cell<bool>,
}

impl Line {
    pub fn parse(text: &str, number: u64) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let op = words.next().unwrap_or("").to_string();
        let (mut args, mut wanted, mut after_arrow) = (Vec::new(), Vec::new(), false);
        for word in words {
            if word == "->" {
                after_arrow = true;
                continue;
            }
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{}' is no key=value", word))?;
            let pair = Pair { key: key.into(), value: value.into(), used: Cell::new(false) };
            if after_arrow {
                wanted.push(pair);
            } else {
                args.push(pair);
            }
        }
        Ok(Self { number, op, args, wanted, outputs: RefCell::default(), broken: Cell::new(false) })
    }

    /// Says what is wrong with the line: it fails.
    pub fn complain(&self, what: &str) {
        eprintln!("line {}: {}: {}", self.number, self.op, what);
        self.broken.set(true);
    }

    pub fn unused_or_broken(&self) -> bool {
        for arg in self.args.iter().filter(|arg| !arg.used.get()) {
            self.complain(&format!("{}= means nothing here", arg.key));
        }
        self.broken.get()
    }

    // ---- arguments

    pub fn text(&self, key: &str) -> Option<&str> {
        let found = self.args.iter().find(|arg| arg.key == key)?;
        found.used.set(true);
        Some(&found.value)
    }

    pub fn has(&self, key: &str) -> bool {
        self.text(key).is_some()
    }

    pub fn number(&self, key: &str, otherwise: u64) -> u64 {
        match self.text(key) {
            None => otherwise,
            Some(value) => number(value).unwrap_or_else(|| {
                self.complain(&format!("{}={} is no number", key, value));
                0
            }),
        }
    }

    pub fn number32(&self, key: &str) -> u32 {
        self.number(key, 0) as u32
    }

    /// One of the names, as its place in the list plus `first`; other numbers stand for themselves.
    pub fn name(&self, key: &str, names: &[&str], first: i32, otherwise: i32) -> i32 {
        match self.text(key) {
            None => otherwise,
            Some(value) => self.name_of(value, names, first),
        }
    }

    pub fn name_of(&self, value: &str, names: &[&str], first: i32) -> i32 {
        if let Some(at) = names.iter().position(|name| *name == value) {
            return first + at as i32;
        }
        match number(value) {
            Some(number) => number as i32,
            None => {
                self.complain(&format!("{} is no name that is known", value));
                0
            }
        }
    }

    pub fn list(&self, key: &str) -> Vec<i64> {
        match self.text(key) {
            None => Vec::new(),
            Some(value) => list(value).unwrap_or_else(|| {
                self.complain(&format!("{}={} is no list of numbers", key, value));
                Vec::new()
            }),
        }
    }

    pub fn list32(&self, key: &str) -> Vec<i32> {
        self.list(key).into_iter().map(|item| item as i32).collect()
    }

    pub fn list_u64(&self, key: &str) -> Vec<u64> {
        self.list(key).into_iter().map(|item| item as u64).collect()
    }

    pub fn bytes(&self, key: &str) -> Vec<u8> {
        self.text(key).map_or(Vec::new(), |value| self.bytes_of(value))
    }

    /// Text, or hexadecimal digits after an @.
    pub fn bytes_of(&self, value: &str) -> Vec<u8> {
        match value.strip_prefix('@') {
            None => value.as_bytes().to_vec(),
            Some(digits) => (0..digits.len() / 2)
                .map(|i| {
                    u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap_or_else(|_| {
                        self.complain(&format!("{} are no hexadecimal digits", digits));
                        0
                    })
                })
                .collect(),
        }
    }

    // ---- what is wanted, and given

    pub fn wanted(&self, key: &str) -> Option<&str> {
        self.wanted.iter().find(|wanted| wanted.key == key).map(|wanted| &wanted.value[..])
    }

    pub fn all_wanted(&self) -> impl Iterator<Item = (&str, &str)> {
        self.wanted.iter().map(|wanted| (&wanted.key[..], &wanted.value[..]))
    }

    pub fn output(&self, key: &str) -> Option<String> {
        self.outputs.borrow().iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }

    pub fn outputs(&self) -> String {
        self.outputs.borrow().iter().map(|(key, value)| format!(" {}={}", key, value)).collect()
    }

    pub fn out(&self, key: &'static str, value: impl ToString) {
        self.outputs.borrow_mut().push((key, value.to_string()));
    }

    pub fn out_list<T: ToString>(&self, key: &'static str, items: &[T]) {
        let items: Vec<String> = items.iter().map(T::to_string).collect();
        self.out(key, if items.is_empty() { "none".to_string() } else { items.join(",") });
    }

    pub fn out_pages(&self, key: &'static str, items: &[Page]) {
        self.out_list(key, items);
    }

    pub fn out_statuses(&self, key: &'static str, items: &[Outcome]) {
        let items: Vec<String> = items.iter().map(short_status).collect();
        self.out_list(key, &items);
    }

    pub fn out_digest(&self, key: &'static str, bytes: &[u8]) {
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.out(key, format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)));
    }
}

/// Decimal, hexadecimal after 0x, "max", or below 0.
fn number(text: &str) -> Option<u64> {
    if text == "max" {
        Some(u64::MAX)
    } else if let Some(digits) = text.strip_prefix("0x") {
        u64::from_str_radix(digits, 16).ok()
    } else if text.starts_with('-') {
        text.parse::<i64>().ok().map(|number| number as u64)
    } else {
        text.parse().ok()
    }
}

fn list(text: &str) -> Option<Vec<i64>> {
    let mut items = Vec::new();
    if text.is_empty() || text == "none" {
        return Some(items);
    }
    for part in text.split(',') {
        if let Some((first, last)) = part.split_once("..") {
            items.extend(number(first)? as i64..=number(last)? as i64);
        } else if let Some((item, times)) = part.split_once('*') {
            items.extend(std::iter::repeat(number(item)? as i64).take(number(times)? as usize));
        } else {
            items.push(number(part)? as i64);
        }
    }
    Some(items)
}

/// An expected value, with ranges and repetitions written out.
pub fn expanded(value: &str) -> String {
    if !value.contains("..") && !value.contains('*') {
        return value.to_string();
    }
    match list(value) {
        Some(items) => items.iter().map(i64::to_string).collect::<Vec<_>>().join(","),
        None => value.to_string(),
    }
}
