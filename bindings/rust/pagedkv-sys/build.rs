// SPDX-License-Identifier: Apache-2.0
//! Finds libpagedkv through pkg-config and says how to link it.
//!
//! PKG_CONFIG names another pkg-config; PKG_CONFIG_PATH and its other variables mean what they always do.
//! PAGEDKV_STATIC=1 links libpagedkv.a, with what it needs. On docs.rs nothing is linked.

use std::{env, process::Command};

/// The library's ABI may change with a minor version while the major one is 0.
const AT_LEAST: &str = "0.1.0";
const BELOW: &str = "0.2.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR", "PAGEDKV_STATIC"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Err(why) = find() {
        eprintln!("libpagedkv was not found: {}", why);
        eprintln!("Install it (`make install`), and name the folder of pagedkv.pc in PKG_CONFIG_PATH if it is not a usual one.");
        std::process::exit(1);
    }
}

fn find() -> Result<(), String> {
    let version = pkg_config(&["--modversion", "pagedkv"])?;
    let version = version.trim();
    pkg_config(&["--exists", "--print-errors", &format!("pagedkv >= {} pagedkv < {}", AT_LEAST, BELOW)]).map_err(
        |_| format!("version {} is installed; this crate needs {} or later, below {}", version, AT_LEAST, BELOW),
    )?;
    let alone = env::var_os("PAGEDKV_STATIC").map_or(false, |value| value != "0");
    let flags = pkg_config(if alone { &["--libs", "--static", "pagedkv"] } else { &["--libs", "pagedkv"] })?;
    for flag in flags.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={}", folder);
        } else if let Some(name) = flag.strip_prefix("-l") {
            let kind = if alone && name == "pagedkv" { "static=" } else { "" };
            println!("cargo:rustc-link-lib={}{}", kind, name);
        } else if flag == "-pthread" {
            println!("cargo:rustc-link-lib=pthread");
        }
    }
    println!("cargo:rerun-if-changed={}/pagedkv.pc", pkg_config(&["--variable", "pcfiledir", "pagedkv"])?.trim());
    // What crates that depend on this one see as DEP_PAGEDKV_*.
    println!("cargo:version={}", version);
    for (key, variable) in [("include", "includedir"), ("libdir", "libdir")] {
        println!("cargo:{}={}", key, pkg_config(&["--variable", variable, "pagedkv"])?.trim());
    }
    Ok(())
}

fn pkg_config(arguments: &[&str]) -> Result<String, String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    // Folders of the system come, too: a library there may be linked statically.
    let output = Command::new(&program)
        .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run {}: {}", program.to_string_lossy(), error))?;
    if !output.status.success() {
        return Err(format!(
            "{} {}: {}",
            program.to_string_lossy(),
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
