//! Rust source without what the compiler does not read: comments, strings, the tests at the end.

/// Blanks comments and the insides of literals, and cuts a closing `#[cfg(test)] mod`. Lines stay.
pub(crate) fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (skipped, length) = match skip(rest, code.chars().next_back()) {
            0 => (false, first.len_utf8()),
            length => (true, length),
        };
        let (piece, after) = rest.split_at(length);
        if skipped {
            code.push(' ');
            code.extend(piece.chars().filter(|c| *c == '\n'));
        } else {
            code.push_str(piece);
        }
        rest = after;
    }
    without_tests(&code).to_owned()
}

/// The length of the comment or literal that begins here; 0 if none does.
fn skip(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return string(rest);
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_word && let Some(raw) = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r')) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let begin = rest.len() - raw.len() + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            return rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len());
        }
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return at + 1,
            '\\' => {
                chars.next();
            }
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` and `'\n'`, but not the lifetime `'a`.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1)
        }
        _ => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
    }
}

fn without_tests(code: &str) -> &str {
    code.match_indices("#[cfg(test)]")
        .find(|(at, attribute)| code[at + attribute.len()..].trim_start().starts_with("mod "))
        .map_or(code, |(at, _)| &code[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank_and_lines_stay() {
        let source =
            "a // x\nb /* x /* x */ x\n */ c\n\"x \\\" x\" d 'x' e '\\'' f\nr#\"x \" x\"# g\n";
        let code = code_of(source);
        assert!(!code.contains('x'), "{code}");
        assert_eq!(code.split_whitespace().collect::<String>(), "abcdefg");
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn lifetimes_and_names_are_code() {
        for source in ["fn f<'a>(x: &'a str) {}", "for r in bar {}", "'x: loop {}", "r#fn()"] {
            assert_eq!(code_of(source), source);
        }
    }

    #[test]
    fn the_tests_at_the_end_are_cut_and_nothing_else() {
        assert_eq!(code_of("a\n#[cfg(test)]\nmod tests { x }\n"), "a\n");
        let helper = "#[cfg(test)]\nfn a() {}\n";
        assert_eq!(code_of(helper), helper);
    }

    #[test]
    fn what_does_not_end_is_no_endless_loop() {
        for source in ["/* x", "\"x", "r#\"x", "'", "'\\", "//"] {
            code_of(source);
        }
    }
}
