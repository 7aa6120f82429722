//! A CSV or JSONL file: copied beside itself with our word in it.
//!
//! Lines that do not change keep their bytes (JSONL) or their values (CSV). Where the copy stands is noted
//! in a third file after each batch, so that a run that was interrupted goes on.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use csv::{ByteRecord, Position};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::{Backfill, Done, Progress, Said};
use crate::error::Error;

/// The longest line that is read: one that never ends must not fill the memory.
const LONGEST: u64 = 64 << 20;

pub(super) fn copy(
    backfill: &Backfill,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Done, Error> {
    let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    let delimiter = match kind.to_ascii_lowercase().as_str() {
        "csv" => Some(b','),
        "tsv" => Some(b'\t'),
        "jsonl" | "ndjson" => None,
        #[cfg(feature = "parquet")]
        "parquet" => return super::parquet::copy(backfill, path, progress),
        #[cfg(not(feature = "parquet"))]
        "parquet" => {
            return Err(Error::Query(format!(
                "cannot read `{}`: this build does not read Parquet; build it with `--features parquet`",
                path.display()
            )));
        }
        _ => {
            return Err(Error::Query(format!(
                "invalid source `{}`: expected `sqlite:FILE`, `postgres://…`, or a file that ends in .csv, \
                 .tsv, .jsonl, .ndjson or .parquet",
                path.display()
            )));
        }
    };
    let mut work = Work::open(backfill, path, kind)?;
    match delimiter {
        Some(delimiter) => work.csv(delimiter, progress)?,
        None => work.json_lines(progress)?,
    }
    work.finish()
}

pub(super) struct Work<'a> {
    backfill: &'a Backfill,
    path: &'a Path,
    to: PathBuf,
    part: PathBuf,
    note: PathBuf,
    from: File,
    size: u64,
    /// Positions in the source and in the copy.
    start: (u64, u64),
    out: Option<BufWriter<File>>,
    done: Done,
}

impl<'a> Work<'a> {
    pub(super) fn open(backfill: &'a Backfill, path: &'a Path, kind: &str) -> Result<Self, Error> {
        let from = File::open(path).map_err(|source| io("open", path, source))?;
        let size = from.metadata().map_err(|source| io("read", path, source))?.len();
        let to =
            backfill.to.clone().unwrap_or_else(|| path.with_extension(format!("endstop.{kind}")));
        if to == path {
            return Err(Error::Query("the copy needs another name than the file".to_owned()));
        }
        let [part, note] = ["part", "position"].map(|end| beside(&to, end));
        Ok(Self {
            backfill,
            path,
            to,
            part,
            note,
            from,
            size,
            start: (0, 0),
            out: None,
            done: Done::default(),
        })
    }

    /// Makes the copy, once the source is known to be right. Goes on where an earlier run stopped, if the source
    /// is as long as it was then.
    pub(super) fn go_on(&mut self) -> Result<(), Error> {
        if self.backfill.dry_run {
            return Ok(());
        }
        let noted = fs::read_to_string(&self.note).unwrap_or_default();
        let noted: Option<(u64, u64, u64)> = serde_json::from_str(&noted).ok();
        let written = fs::metadata(&self.part).map_or(0, |part| part.len());
        if let Some((read, wrote, size)) = noted
            && size == self.size
            && written >= wrote
        {
            self.start = (read, wrote);
        }
        let failed = |source| io("write", &self.part, source);
        let mut options = OpenOptions::new();
        let mut out =
            options.create(true).write(true).truncate(false).open(&self.part).map_err(failed)?;
        out.set_len(self.start.1).map_err(failed)?;
        out.seek(SeekFrom::End(0)).map_err(failed)?;
        self.out = Some(BufWriter::new(out));
        Ok(())
    }

    /// Notes how far the source is copied.
    fn note(&mut self, read: u64, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        progress(Progress { done: read, of: Some(self.size) });
        let Some(out) = &mut self.out else { return Ok(()) };
        let position = out.flush().and_then(|()| out.stream_position());
        let wrote = position.map_err(|source| io("write", &self.part, source))?;
        let new = beside(&self.note, "new");
        let noted = format!("[{read},{wrote},{}]", self.size);
        fs::write(&new, noted)
            .and_then(|()| fs::rename(&new, &self.note))
            .map_err(|source| io("write", &self.note, source))
    }

    pub(super) fn finish(mut self) -> Result<Done, Error> {
        let Some(out) = self.out.take() else { return Ok(self.done) };
        let synced = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|out| out.sync_all());
        synced
            .and_then(|()| fs::rename(&self.part, &self.to))
            .map_err(|source| io("write", &self.to, source))?;
        // Without a note, the next run begins at the start.
        let _ = fs::remove_file(&self.note);
        self.done.file = Some(self.to);
        Ok(self.done)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(out) = &mut self.out else { return Ok(()) };
        out.write_all(bytes).map_err(|source| io("write", &self.part, source))
    }

    fn json_lines(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        self.go_on()?;
        let failed = |source| io("read", self.path, source);
        let mut from = BufReader::new(self.from.try_clone().map_err(failed)?);
        let mut read = self.start.0;
        from.seek(SeekFrom::Start(read)).map_err(failed)?;
        let mut line = Vec::new();
        loop {
            line.clear();
            let size = std::io::Read::take(&mut from, LONGEST).read_until(b'\n', &mut line);
            let size = size.map_err(|source| io("read", self.path, source))?;
            if size == 0 {
                return self.note(read, progress);
            }
            read += size as u64;
            self.line(&line)?;
            if self.done.rows.is_multiple_of(self.backfill.batch as u64) {
                self.note(read, progress)?;
            }
        }
    }

    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        if line.trim_ascii().is_empty() {
            return self.write(line);
        }
        self.done.rows += 1;
        let Ok(mut fields) = serde_json::from_slice::<Fields>(line) else {
            self.done.unread += 1;
            return self.write(line);
        };
        let columns = &self.backfill.columns;
        let said = Said {
            provider: fields.text(&columns.provider),
            native: fields.text(&columns.native),
            finish_reason: fields.text(&columns.finish_reason),
        };
        let judged = self.backfill.judge(&said, &mut self.done);
        let Some(to) = judged.and_then(|judged| judged.new_word()) else {
            return self.write(line);
        };
        let written = to_raw_value(to).and_then(|to| {
            fields.set(&columns.finish_reason, to);
            serde_json::to_vec(&fields)
        });
        let mut bytes = written.map_err(|error| Error::Query(error.to_string()))?;
        bytes.push(b'\n');
        self.write(&bytes)
    }

    fn csv(&mut self, delimiter: u8, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let failed = |error: csv::Error| io("read", self.path, error.into());
        let from = self.from.try_clone().map_err(|source| io("read", self.path, source))?;
        let mut from = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .flexible(true)
            .has_headers(false)
            .from_reader(from);
        let mut head = ByteRecord::new();
        from.read_byte_record(&mut head).map_err(failed)?;
        let at = Places::find(self.backfill, &head)?;
        self.go_on()?;
        if self.start.0 == 0 {
            if at.added {
                head.push_field(self.backfill.columns.finish_reason.as_bytes());
            }
            self.record(delimiter, &head)?;
        } else {
            let mut position = Position::new();
            position.set_byte(self.start.0);
            from.seek(position).map_err(failed)?;
        }
        let mut record = ByteRecord::new();
        while from
            .read_byte_record(&mut record)
            .map_err(|error| io("read", self.path, error.into()))?
        {
            self.done.rows += 1;
            let text = |at: Option<usize>| {
                let text = record.get(at?).filter(|text| !text.is_empty())?;
                Some(String::from_utf8_lossy(text).into_owned())
            };
            let said = Said {
                provider: text(at.provider),
                native: text(Some(at.native)),
                finish_reason: text(Some(at.finish_reason)),
            };
            let judged = self.backfill.judge(&said, &mut self.done);
            let to = judged.and_then(|judged| judged.new_word());
            let present = said.finish_reason.unwrap_or_default();
            let word = to.unwrap_or(&present).as_bytes();
            let mut fields: Vec<&[u8]> = record.iter().collect();
            if fields.len() <= at.finish_reason && (at.added || to.is_some()) {
                fields.resize(at.finish_reason + 1, b"");
            }
            if let Some(field) = fields.get_mut(at.finish_reason) {
                *field = word;
            }
            let copied = ByteRecord::from(fields);
            self.record(delimiter, &copied)?;
            if self.done.rows.is_multiple_of(self.backfill.batch as u64) {
                self.note(from.position().byte(), progress)?;
            }
        }
        self.note(self.size, progress)
    }

    fn record(&mut self, delimiter: u8, record: &ByteRecord) -> Result<(), Error> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let mut writer =
            csv::WriterBuilder::new().delimiter(delimiter).flexible(true).from_writer(out);
        let written = writer.write_byte_record(record).map_err(Into::into);
        let written = written.and_then(|()| writer.flush());
        written.map_err(|source| io("write", &self.part, source))
    }
}

/// Places of the columns of a CSV file.
struct Places {
    provider: Option<usize>,
    native: usize,
    finish_reason: usize,
    /// Our column is a new one.
    added: bool,
}

impl Places {
    fn find(backfill: &Backfill, head: &ByteRecord) -> Result<Self, Error> {
        let columns = &backfill.columns;
        let find = |name: &str| {
            let bare = |field: &[u8]| {
                field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field) == name.as_bytes()
            };
            head.iter().position(bare)
        };
        let missing = |name: &str| {
            let found: Vec<_> = head.iter().map(String::from_utf8_lossy).collect();
            let file = &backfill.from;
            Error::Query(format!("`{file}` has no column `{name}`; it has: {}", found.join(", ")))
        };
        let provider = find(&columns.provider);
        if provider.is_none() && backfill.provider.is_none() {
            return Err(missing(&columns.provider));
        }
        let native = find(&columns.native).ok_or_else(|| missing(&columns.native))?;
        let known = find(&columns.finish_reason);
        let finish_reason = known.unwrap_or(head.len());
        Ok(Self { provider, native, finish_reason, added: known.is_none() })
    }
}

/// The fields of an object, in their order and as they were written.
struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    fn text(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        match serde_json::from_str(value.get()).ok()? {
            serde_json::Value::String(text) => Some(text),
            serde_json::Value::Number(number) => Some(number.to_string()),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_) => None,
        }
    }

    fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Object)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{end}"));
    name.into()
}

fn io(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { what: format!("cannot {what} {}", path.display()), source }
}
