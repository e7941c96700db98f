//! JSON for machines, which people see on terminals as well.

use serde_json::Value;

/// The text of `value`, with all characters escaped that a terminal would not show as they are.
pub(crate) fn escaped(value: &Value) -> String {
    let is_shown = |letter: char| matches!(letter, ' '..='~') || letter.escape_debug().len() == 1;
    let code = |unit: &u16| format!("\\u{unit:04x}");
    let shown = |letter: char| match is_shown(letter) {
        true => letter.to_string(),
        false => letter.encode_utf16(&mut [0; 2]).iter().map(code).collect(),
    };
    value.to_string().chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_reads_as_the_same_value() {
        let value =
            Value::from("müller \u{1F512} \"a\\b\"\n\u{7f}\u{202e}\u{2066}\u{feff}\u{e0001}");
        let text = escaped(&value);
        let expected = r#""müller 🔒 \"a\\b\"\n\u007f\u202e\u2066\ufeff\udb40\udc01""#;
        assert_eq!(text, expected);
        assert_eq!(text.parse::<Value>().unwrap(), value);
    }
}
