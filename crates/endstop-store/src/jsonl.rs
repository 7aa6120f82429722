//! A file of endings, one JSON object a line, for programs that follow files.
//!
//! A batch is appended by one write. After a crash a batch may be in the file twice; an ending that became
//! known better has a later line. The last line of an id is the one that counts.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::open::refuse;
use crate::sink::{Entry, Loaded, Sink};
use crate::view::EndingView;

/// The beginning of the address of such a file.
pub(crate) const SCHEME: &str = "jsonl:";

/// Opens `jsonl:FILE`. The file is made when the first endings come.
pub(crate) fn open(url: &str) -> Result<Box<dyn Sink>, Error> {
    Ok(Box::new(Jsonl { file: file(url)?.to_owned() }))
}

/// Checks that the file could be written, without creating it.
pub(crate) fn check(url: &str) -> Result<(), Error> {
    use rustix::fs::{Access, access};
    let file = file(url)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let place = if file.exists() { file } else { folder.unwrap_or(Path::new(".")) };
    access(place, Access::WRITE_OK).map_err(|error| failed("write to", place)(error.into()))
}

fn file(url: &str) -> Result<&Path, Error> {
    let file = url.strip_prefix(SCHEME).unwrap_or_default();
    let file = file.strip_prefix("//").unwrap_or(file);
    if file.is_empty() || Path::new(file).is_dir() {
        return Err(refuse(url, "it does not name a file"));
    }
    Ok(Path::new(file))
}

struct Jsonl {
    file: PathBuf,
}

impl Sink for Jsonl {
    fn load(&mut self, entries: &[Entry]) -> Result<Loaded, Error> {
        let mut lines = Vec::with_capacity(1024 * entries.len());
        for entry in entries {
            let written = serde_json::to_writer(&mut lines, &EndingView::from(&entry.record));
            written.map_err(|error| failed("write to", &self.file)(error.into()))?;
            lines.push(b'\n');
        }
        // It is opened each time: whoever rotates files has moved it away.
        self.append(&lines).map_err(failed("write to", &self.file))?;
        Ok(Loaded { added: entries.len() as u64, ..Loaded::default() })
    }
}

impl Jsonl {
    fn append(&self, lines: &[u8]) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(&self.file)?;
        if is_torn(&mut file)? {
            // A process died while it wrote a line. That line is not valid JSON, and its ending is written again.
            file.write_all(b"\n")?;
        }
        file.write_all(lines)?;
        file.sync_data()
    }
}

/// Returns whether the last line has no end.
fn is_torn(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// A disk that is full, or a directory that is missing, may be mended: the batch is tried again.
fn failed(what: &str, file: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let store = format!("{SCHEME}{}", file.display());
    let what = what.to_owned();
    move |error| Error::Unavailable { store, why: format!("cannot {what} it: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Record;

    fn entry(id: &str) -> Entry {
        Entry { sequence: 1, record: Record { id: id.to_owned(), ..Record::default() } }
    }

    #[test]
    fn each_ending_is_a_line_and_a_torn_line_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("endings.jsonl");
        let url = format!("jsonl:{}", path.display());
        check(&url).unwrap();
        let mut sink = open(&url).unwrap();
        assert_eq!(sink.load(&[entry("a"), entry("b")]).unwrap().added, 2);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"id\":\"c").unwrap();
        sink.load(&[entry("c")]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let ids: Vec<Option<String>> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .map(|line| Some(line?["id"].as_str()?.to_owned()))
            .collect();
        let some = |id: &str| Some(id.to_owned());
        assert_eq!(ids, [some("a"), some("b"), None, some("c")]);
        // One that was moved away is made anew.
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        sink.load(&[entry("d")]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_tried_again() {
        let error = open("jsonl:/none/endings.jsonl").unwrap().load(&[entry("a")]).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(check("jsonl:/none/endings.jsonl").is_err());
        assert!(open("jsonl:").is_err());
        assert!(open("jsonl:/tmp").is_err());
    }
}
