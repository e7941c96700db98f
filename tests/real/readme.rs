//! The first program of the README, as users copy it.

use quorate_tests::Nodes;

use crate::examples::run;

const README: &str = include_str!("../../README.md");
const EXAMPLE: &str = include_str!("../../examples/first.rs");

/// The addresses in the README; the example takes those of the test.
const ADDRESSES: &str = r#"["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]"#;

#[test]
fn the_first_program_of_the_readme_leaves_the_lock_free() {
    let (_, block) = README.split_once("```rust").unwrap();
    let (_, code) = block.split_once('\n').unwrap();
    let (code, _) = code.split_once("```").unwrap();
    assert!(code.contains(ADDRESSES));
    let words = |code: &str| code.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let code = words(&code.replace(ADDRESSES, "std::env::args().skip(1)"));
    let example = words(EXAMPLE);
    let is_there = example.windows(code.len()).any(|part| part == code);
    assert!(is_there, "examples/first.rs is another program");

    let nodes = &Nodes::start(5);
    for _ in 0..30 {
        let output = run("first", &nodes.addresses());
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "only this process ships 42\n",
            "{output:?}"
        );
        // The program ends when a quorum has answered the release.
        assert!(nodes.keys_left().len() < 3, "{:?}", nodes.keys_left());
    }
}
