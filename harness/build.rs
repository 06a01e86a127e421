//! Builds `verbgate-init`, which is executed in containers of any libc or of none: linked
//! statically, and carried in `verbgate` itself.
//!
//! A build of its own, with its own target directory, because cargo links all programs of one
//! build alike. Naming the target keeps the flags away from build scripts and procedural macros,
//! which cannot be static.

use std::env;
use std::fs;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// What the program is made of; a change in any of these builds it anew.
const SOURCES: [&str; 3] = ["../proxy/sys/init", "../proxy/sys/src", "../proxy/sys/Cargo.toml"];

fn main() -> Result<(), String> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let var = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let (out, target) = (PathBuf::from(var("OUT_DIR")?), var("TARGET")?);
    let dir = out.join("init");
    let mut cargo = Command::new(var("CARGO")?);
    cargo
        .args(["build", "--quiet", "--locked", "--release", "--target", &target])
        .args(["-p", "verbgate-sys", "--bin", "verbgate-init", "--target-dir"])
        .arg(&dir)
        .arg("--config")
        .arg(format!(r#"target.{target}.rustflags=["-C","target-feature=+crt-static"]"#))
        .args(["--config", r#"profile.release.opt-level="s""#])
        .args(["--config", r#"profile.release.panic="abort""#])
        .args(["--config", "profile.release.strip=true"])
        // What this build was told is not for that one: flags, and clippy in the compiler's place.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR");
    let status = cargo.status().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !status.success() {
        return Err(format!(
            "cannot build verbgate-init: cargo says why above (is the target there? `rustup \
             target add {target}`)"
        ));
    }
    let built = Path::new(&dir).join(&target).join("release/verbgate-init");
    println!("cargo::rustc-env=VERBGATE_INIT={}", built.display());
    println!("cargo::rustc-env=VERBGATE_INIT_ID={:016x}", id_of(&built)?);
    Ok(())
}

/// Tells the files of different builds apart, which containers of different ages execute.
fn id_of(file: &Path) -> Result<u64, String> {
    let bytes = fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(hasher.finish())
}
