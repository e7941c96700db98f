//! Tells the sources of the core that they are compiled alone, for tests.

#![expect(clippy::print_stdout, reason = "this is how a build script speaks with cargo")]

fn main() {
    println!("cargo:rustc-cfg=quorate_pure");
}
