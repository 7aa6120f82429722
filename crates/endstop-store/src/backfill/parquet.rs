//! A Parquet file: its rows are copied as JSON lines, with our word in them.
//!
//! A copy in Parquet would need a schema with another column, and every reader of Parquet reads JSON lines too. A run that
//! was interrupted begins again.

use std::fs::File;
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::files::Work;
use super::{Backfill, Done, Progress};
use crate::error::Error;

pub(super) fn copy(
    backfill: &Backfill,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Done, Error> {
    let failed = |error: ParquetError| unreadable(path, &error);
    let file = File::open(path)
        .map_err(|source| Error::Io { what: format!("cannot open {}", path.display()), source })?;
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata();
    let of = u64::try_from(schema.num_rows()).ok();
    let fields = schema.schema().get_fields();
    check(backfill, &fields.iter().map(|field| field.name()).collect::<Vec<_>>())?;
    let mut work = Work::open(backfill, path, "jsonl")?;
    work.go_on()?;
    let rows = reader.get_row_iter(None).map_err(failed)?;
    for (done, row) in (1..).zip(rows) {
        let mut line = row.map_err(failed)?.to_json_value().to_string();
        line.push('\n');
        work.line(line.as_bytes())?;
        if done % backfill.batch as u64 == 0 {
            progress(Progress { done, of });
        }
    }
    work.finish()
}

/// Checks that the columns that are read are there.
fn check(backfill: &Backfill, found: &[&str]) -> Result<(), Error> {
    let columns = &backfill.columns;
    let provider = backfill.provider.is_none().then_some(&columns.provider);
    for name in provider.into_iter().chain([&columns.native]) {
        if !found.contains(&name.as_str()) {
            let (file, found) = (&backfill.from, found.join(", "));
            return Err(Error::Query(format!("`{file}` has no column `{name}`; it has: {found}")));
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &ParquetError) -> Error {
    Error::Query(format!("cannot read `{}` as Parquet: {error}", path.display()))
}
