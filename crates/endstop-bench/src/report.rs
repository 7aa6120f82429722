//! Markdown report, printed while it is built.

use std::path::Path;

use anyhow::Result;

/// Report text so far.
#[derive(Default)]
pub(crate) struct Report {
    text: String,
}

impl Report {
    pub(crate) fn heading(&mut self, text: &str) {
        self.line(&format!("\n## {text}\n"));
    }

    pub(crate) fn line(&mut self, text: &str) {
        println!("{text}");
        self.text += text;
        self.text.push('\n');
    }

    /// Adds a table with aligned columns.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.line(&table(head, rows));
    }

    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.text.trim_start())?;
        Ok(())
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
    let width = |at: usize, name: &str| {
        rows.iter().map(|row| cell(row, at).chars().count()).max().unwrap_or(0).max(name.len())
    };
    let widths: Vec<usize> = head.iter().enumerate().map(|(at, name)| width(at, name)).collect();
    let mut text = String::new();
    for (at, (name, width)) in head.iter().zip(&widths).enumerate() {
        push(&mut text, at, name, *width);
    }
    text += "|\n";
    for (at, width) in widths.iter().enumerate() {
        let dashes = "-".repeat(width + 1);
        text += &if at == 0 { format!("|-{dashes}") } else { format!("|{dashes}:") };
    }
    text += "|\n";
    for row in rows {
        for (at, width) in widths.iter().enumerate() {
            push(&mut text, at, &cell(row, at), *width);
        }
        text += "|\n";
    }
    text
}

/// Adds a cell: the first column is aligned left, the others right.
fn push(text: &mut String, at: usize, value: &str, width: usize) {
    *text += &match at {
        0 => format!("| {value:<width$} "),
        _ => format!("| {value:>width$} "),
    };
}

/// Formats a number with about three digits; a dash if it is not finite.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a number with its sign.
pub(crate) fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_value() {
        let rows = vec![vec!["a".to_owned(), "1.00".to_owned()], vec!["bcd".to_owned()]];
        let expected = "| n   |    x |\n|-----|-----:|\n| a   | 1.00 |\n| bcd |      |\n";
        assert_eq!(table(&["n", "x"], &rows), expected);
    }

    #[test]
    fn numbers_are_short() {
        let text = [1.234, 12.34, 1234.5, f64::NAN].map(number);
        assert_eq!(text, ["1.23", "12.3", "1234", "–"]);
        assert_eq!(signed(1.0), "+1.00");
        assert_eq!(signed(-1.0), "-1.00");
    }
}
