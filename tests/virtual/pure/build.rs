//! Tells the sources of the core that they are compiled alone, for tests.

fn main() {
    println!("cargo:rustc-cfg=quorate_pure");
}
