// SPDX-License-Identifier: Apache-2.0
//! Whether the declarations are those of the installed headers: a C program with the same names is compiled, and what it
//! prints has to be what Rust says.

#![allow(non_camel_case_types)]

use pagedkv_sys::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    mem::{align_of, size_of, size_of_val, MaybeUninit},
    path::PathBuf,
    process::Command,
    ptr::addr_of,
    slice,
};

/// What a struct is to Rust.
struct Struct {
    name: &'static str,
    size: usize,
    align: usize,
    /// Name, offset, size.
    fields: Vec<(&'static str, usize, usize)>,
}

macro_rules! each_struct {
    ($($name:ident { $($field:ident),* })*) => {
        fn structs() -> Vec<Struct> {
            vec![$({
                let value = MaybeUninit::<$name>::uninit();
                let base = value.as_ptr();
                fn size_behind<T>(_: *const T) -> usize { size_of::<T>() }
                Struct {
                    name: stringify!($name),
                    size: size_of::<$name>(),
                    align: align_of::<$name>(),
                    // Addresses are formed, nothing is read.
                    fields: vec![$({
                        let field = unsafe { addr_of!((*base).$field) };
                        (stringify!($field), field as usize - base as usize, size_behind(field))
                    }),*],
                }
            }),*]
        }
    };
}

/// The bytes of the members of an INIT value, without those between them.
struct Init {
    name: &'static str,
    of: &'static str,
    /// Name and bytes.
    fields: Vec<(&'static str, Vec<u8>)>,
}

macro_rules! each_init {
    ($($name:ident: $of:ident { $($field:ident),* })*) => {
        fn inits() -> Vec<Init> {
            vec![$({
                let value: $of = $name;
                Init {
                    name: stringify!($name),
                    of: stringify!($of),
                    fields: vec![$((stringify!($field), bytes_of(&value.$field))),*],
                }
            }),*]
        }
    };
}

fn bytes_of<T>(value: &T) -> Vec<u8> {
    // The structs have no padding: see `no_struct_with_an_init_value_has_padding`.
    unsafe { slice::from_raw_parts(value as *const T as *const u8, size_of_val(value)) }.to_vec()
}

macro_rules! each_number {
    ($($name:ident)*) => {
        fn numbers() -> Vec<(&'static str, i128)> {
            vec![$((stringify!($name), $name as i128)),*]
        }
    };
}

macro_rules! each_string {
    ($($name:ident)*) => {
        fn strings() -> Vec<(&'static str, &'static str)> {
            vec![$((stringify!($name), $name)),*]
        }
    };
}

include!("fields.rs");

/// The folder of the installed headers.
fn include_folder() -> String {
    let output = Command::new(std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into()))
        .args(["--variable=includedir", "pagedkv"])
        .output()
        .expect("pkg-config runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}", name, std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles a C program against the headers, runs it and returns what it prints.
fn run_c(name: &str, source: &str) -> String {
    let folder = scratch(name);
    let (file, program) = (folder.join("main.c"), folder.join("main"));
    fs::write(&file, source).unwrap();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = cc.split_whitespace();
    let compiled = Command::new(words.next().unwrap())
        .args(words)
        .args(["-std=c11", "-Wall", "-Werror", "-I"])
        .arg(include_folder())
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success());
    fs::remove_dir_all(folder).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

const HEAD: &str = "#include <pagedkv/pagedkv.h>\n#include <inttypes.h>\n#include <stdio.h>\n#include <string.h>\n";

#[test]
fn case_q17_structs_have_the_sizes_alignments_and_offsets_of_c() {
    let mut source = format!("{}#define F(s, f) printf(\"%s.%s %zu %zu\\n\", #s, #f, offsetof(s, f), sizeof((s *)0)->f)\nint main(void) {{\n", HEAD);
    let mut want = String::new();
    for one in structs() {
        writeln!(source, "printf(\"{0} %zu %zu\\n\", sizeof({0}), _Alignof({0}));", one.name).unwrap();
        writeln!(want, "{} {} {}", one.name, one.size, one.align).unwrap();
        for (field, offset, size) in &one.fields {
            writeln!(source, "F({}, {});", one.name, field).unwrap();
            writeln!(want, "{}.{} {} {}", one.name, field, offset, size).unwrap();
        }
    }
    source += "return 0;\n}\n";
    assert!(structs().len() > 30);
    assert_eq!(run_c("structs", &source), want);
}

#[test]
fn no_struct_with_an_init_value_has_padding() {
    let of_inits: BTreeSet<&str> = inits().iter().map(|init| init.of).collect();
    for one in structs().iter().filter(|one| of_inits.contains(one.name)) {
        let mut end = 0;
        for (field, offset, size) in &one.fields {
            assert_eq!(end, *offset, "before {}.{}", one.name, field);
            end = offset + size;
        }
        assert_eq!(end, one.size, "at the end of {}", one.name);
    }
}

#[test]
fn init_values_are_those_of_c() {
    let mut source = format!(
        "{}#define B(s, i, f) do {{ printf(\"%s.%s\", #i, #f); for (size_t n = 0; n < sizeof i##_.f; ++n) \
         printf(\" %02x\", ((const unsigned char *)&i##_.f)[n]); puts(\"\"); }} while (0)\nint main(void) {{\n",
        HEAD
    );
    let mut want = String::new();
    for one in inits() {
        writeln!(source, "static const {} {1}_ = {1};", one.of, one.name).unwrap();
        for (field, bytes) in &one.fields {
            writeln!(source, "B({}, {}, {});", one.of, one.name, field).unwrap();
            writeln!(
                want,
                "{}.{}{}",
                one.name,
                field,
                bytes.iter().map(|byte| format!(" {:02x}", byte)).collect::<String>()
            )
            .unwrap();
        }
    }
    source += "return 0;\n}\n";
    assert!(inits().len() > 20);
    assert_eq!(run_c("inits", &source), want);
}

#[test]
fn constants_are_those_of_c() {
    let mut source = format!(
        "{}#define N(n) do {{ if ((n) < 0) printf(\"%s %lld\\n\", #n, (long long)(n)); else printf(\"%s %llu\\n\", #n, \
         (unsigned long long)(n)); }} while (0)\n#pragma GCC diagnostic ignored \"-Wtype-limits\"\nint main(void) {{\n",
        HEAD
    );
    let mut want = String::new();
    for (name, value) in numbers() {
        writeln!(source, "N({});", name).unwrap();
        writeln!(want, "{} {}", name, value).unwrap();
    }
    for (name, value) in strings() {
        writeln!(source, "printf(\"%s %s\\n\", \"{0}\", {0});", name).unwrap();
        writeln!(want, "{} {}", name, value).unwrap();
    }
    source += "return 0;\n}\n";
    assert!(numbers().len() > 100);
    assert_eq!(run_c("constants", &source), want);
}

/// The text of all declarations.
fn declarations() -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/c");
    let mut text = String::new();
    for file in fs::read_dir(folder).unwrap() {
        text += &fs::read_to_string(file.unwrap().path()).unwrap();
    }
    text
}

/// Arguments and result, as Rust's text.
type Signature = (Vec<String>, String);

fn functions() -> BTreeMap<String, Signature> {
    let mut out = BTreeMap::new();
    for line in declarations().lines() {
        let line = match line.strip_prefix("    pub fn ") {
            Some(line) => line,
            None => continue,
        };
        let (name, rest) = line.split_once('(').unwrap();
        let (arguments, result) = rest.rsplit_once(')').unwrap();
        let arguments =
            arguments.split(", ").filter(|one| !one.is_empty()).map(|one| one.split_once(": ").unwrap().1.to_string());
        let result = result.trim_end_matches(';').trim_start_matches(" -> ");
        out.insert(name.to_string(), (arguments.collect(), result.to_string()));
    }
    out
}

/// The C type that a Rust type of a declaration stands for.
fn c_type(rust: &str) -> String {
    if let Some(behind) = rust.strip_prefix("*const ") {
        return format!("{} const *", c_type(behind));
    }
    if let Some(behind) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(behind));
    }
    let known = [
        ("c_void", "void"),
        ("c_char", "char"),
        ("i32", "int32_t"),
        ("u32", "uint32_t"),
        ("u64", "uint64_t"),
        ("i64", "int64_t"),
        ("u8", "uint8_t"),
        ("f32", "float"),
        ("f64", "double"),
        ("usize", "size_t"),
        ("", "void"),
    ];
    match known.iter().find(|(name, _)| *name == rust) {
        Some((_, c)) => c.to_string(),
        None => {
            assert!(rust.starts_with("pkv_"), "{}", rust);
            rust.to_string()
        }
    }
}

/// C allows to declare a function twice if both declarations agree.
#[test]
fn functions_have_the_arguments_and_results_of_c() {
    let mut source = HEAD.to_string();
    for (name, (arguments, result)) in functions() {
        let arguments = arguments.iter().map(|one| c_type(one)).collect::<Vec<_>>().join(", ");
        writeln!(source, "{} {}({});", c_type(&result), name, if arguments.is_empty() { "void" } else { &arguments })
            .unwrap();
    }
    source += "int main(void) { return 0; }\n";
    assert!(functions().len() > 80);
    run_c("functions", &source);
}

#[test]
fn every_function_of_the_headers_is_declared() {
    let mut of_headers = BTreeSet::new();
    for file in fs::read_dir(PathBuf::from(include_folder()).join("pagedkv")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for declaration in text.split("PKV_API ").skip(1) {
            let (before, _) = declaration.split_once('(').unwrap_or((declaration, ""));
            if let Some(name) = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next() {
                if name.starts_with("pkv_") {
                    of_headers.insert(name.to_string());
                }
            }
        }
    }
    assert_eq!(of_headers, functions().keys().cloned().collect());
}

/// Names of the library and of this crate meet when a function is called, so that all of them are: with nothing, which all
/// refuse or answer.
#[test]
fn the_library_has_every_function() {
    let output = Command::new(std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into()))
        .args(["--variable=libdir", "pagedkv"])
        .output()
        .unwrap();
    let library = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()).join("libpagedkv.so");
    let listed =
        match Command::new("nm").args(["-D", "--defined-only", "--without-symbol-versions"]).arg(&library).output() {
            Ok(listed) if listed.status.success() => String::from_utf8(listed.stdout).unwrap(),
            _ => {
                eprintln!("SKIP  nm is not installed");
                return;
            }
        };
    let exported: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.starts_with("pkv_"))
        .map(String::from)
        .collect();
    assert_eq!(exported, functions().keys().cloned().collect());
}

#[test]
fn the_library_has_the_version_of_the_headers() {
    assert_eq!(unsafe { pkv_version_number() }, PKV_VERSION_NUMBER);
}
