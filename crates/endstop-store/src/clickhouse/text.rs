//! Values as ClickHouse writes and reads them: literals, tab-separated rows, binary rows.

use crate::columns::{COLUMNS, Cell, Row};
use crate::sql::Value;

/// Returns a text as a literal.
pub(super) fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for character in text.chars() {
        if matches!(character, '\'' | '\\') {
            literal.push('\\');
        }
        literal.push(character);
    }
    literal.push('\'');
    literal
}

/// Returns a name in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

/// Returns a statement with its values in their places, which are `$1`, `$2` and so on. Values are not looked at again.
pub(super) fn bound(text: &str, values: &[Value]) -> String {
    let mut pieces = text.split('$');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = piece.split_at_checked(digits).unwrap_or((piece, ""));
        let value = number.parse::<usize>().ok().and_then(|at| values.get(at.checked_sub(1)?));
        match value {
            Some(Value::Int(number)) => whole.push_str(&number.to_string()),
            Some(Value::Text(text)) => whole.push_str(&literal(text)),
            None => whole.push_str("NULL"),
        }
        whole.push_str(rest);
    }
    whole
}

/// Reads tab-separated rows.
pub(super) fn rows(body: &[u8]) -> Vec<Vec<Cell<'static>>> {
    if body.is_empty() {
        return Vec::new();
    }
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    let cells = |line: &[u8]| line.split(|byte| *byte == b'\t').map(cell).collect();
    body.split(|byte| *byte == b'\n').map(cells).collect()
}

fn cell(field: &[u8]) -> Cell<'static> {
    if field == b"\\N" {
        return Cell::Null;
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'\\' { unescaped(rest.next().unwrap_or(byte)) } else { byte });
    }
    Cell::Text(String::from_utf8_lossy(&bytes).into_owned().into())
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'0' => 0,
        other => other,
    }
}

/// Tells which columns may be null, in the order of [`COLUMNS`].
pub(super) fn nullable() -> [bool; COLUMNS.len()] {
    let nothing = crate::sink::Stored::default();
    let row = Row::from(&nothing);
    COLUMNS.each_ref().map(|column| (column.get)(&row) == Cell::Null)
}

/// Adds a row in the format `RowBinary`: all columns, then the version.
pub(super) fn push_row(
    to: &mut Vec<u8>,
    id: u128,
    row: &Row<'_>,
    nullable: &[bool; COLUMNS.len()],
    version: u64,
) {
    for (column, nullable) in COLUMNS.iter().zip(nullable) {
        let cell = (column.get)(row);
        if *nullable {
            to.push(u8::from(cell == Cell::Null));
        }
        match cell {
            Cell::Null => {}
            Cell::Text(_) if column.kind == crate::columns::Kind::Key => {
                to.extend(id.to_be_bytes());
            }
            Cell::Int(number) => to.extend(number.to_le_bytes()),
            Cell::Flag(flag) => to.push(u8::from(flag)),
            Cell::Text(text) => push_text(to, text.as_bytes()),
            Cell::Bytes(bytes) => push_text(to, &bytes),
        }
    }
    to.extend(version.to_le_bytes());
}

fn push_text(to: &mut Vec<u8>, text: &[u8]) {
    let mut length = text.len();
    while length >= 0x80 {
        to.push(length as u8 | 0x80);
        length >>= 7;
    }
    to.push(length as u8);
    to.extend(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_part_of_a_statement() {
        let values = [Value::Text("a'; DROP $2 \\".to_owned()), Value::Int(-7)];
        let whole = bound("SELECT $2, $1, $3 FROM t", &values);
        assert_eq!(whole, "SELECT -7, 'a\\'; DROP $2 \\\\', NULL FROM t");
        assert_eq!(quoted("a`b\\"), "`a\\`b\\\\`");
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let text = |text: &str| Cell::Text(text.to_owned().into());
        assert_eq!(rows(b""), Vec::<Vec<Cell<'_>>>::new());
        let read = rows(b"1\t\\N\ta\\tb\\\\N\\n\\'\\0\n\t\t\xc3\xa9\n");
        assert_eq!(read[0], [text("1"), Cell::Null, text("a\tb\\N\n'\0")]);
        assert_eq!(read[1], [text(""), text(""), text("é")]);
        assert_eq!(rows(b"\n"), [[text("")]]);
    }

    #[test]
    fn lengths_are_in_groups_of_seven_bits() {
        let mut bytes = Vec::new();
        push_text(&mut bytes, &[b'x'; 300]);
        assert_eq!(bytes[..2], [0xac, 2]);
        assert_eq!(bytes.len(), 302);
    }
}
