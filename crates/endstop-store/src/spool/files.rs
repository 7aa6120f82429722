//! The spool's directory: who has it, its segments, how far it was loaded, what was damaged.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::spool::{Inspection, State, locked};

/// Most bytes of damaged and refused entries that are kept; the rest is only counted.
const MOST_QUARANTINE: u64 = 64 << 20;
/// Longest wait for a process that is about to end.
const PATIENCE: Duration = Duration::from_millis(500);
/// The name of the mark of the store.
const MARK: &str = "mark";
/// A line of the mark, of which there are two: one is whole while the other is written.
const LINE: usize = 96;

/// Progress of loading, and the first segment that should be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The oldest segment that has not been deleted.
    pub(super) first: u64,
    /// All before this segment was loaded,
    pub(super) segment: u64,
    /// and so many bytes of it.
    pub(super) offset: u64,
}

#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
    /// Held locked for as long as the spool is open.
    _lock: File,
    /// Mark of each sink, the store first: its file, and the number of times that it was written.
    marks: Vec<Mutex<(File, u64)>>,
    /// Bytes in quarantine.
    kept: AtomicU64,
}

/// Checks a directory and leaves nothing behind. The lock is held for a moment, which others wait out.
pub(super) fn check(path: &Path) -> Result<State, Error> {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if !existing.is_dir() {
        let what = format!("cannot create the spool's directory `{}`", path.display());
        return Err(Error::Io { what, source: ErrorKind::NotADirectory.into() });
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(existing, access).map_err(|error| Error::Io {
        what: format!("cannot write into `{}`", existing.display()),
        source: error.into(),
    })?;
    if existing != path {
        // Some file systems permit it and refuse nevertheless, such as `/proc`.
        create_and_remove(existing).map_err(|source| Error::Io {
            what: format!("cannot create the spool's directory `{}`", path.display()),
            source,
        })?;
        return Ok(State::Missing);
    }
    let Ok(lock) = File::open(path.join("lock")) else { return Ok(State::Free) };
    Ok(match lock.try_lock_shared() {
        Ok(()) => State::Free,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => State::InUse,
    })
}

/// Creates an entry in this directory and removes it at once.
pub(crate) fn create_and_remove(dir: &Path) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let entry = dir.join(format!(".endstop-check-{}-{number}", std::process::id()));
    fs::create_dir(&entry)?;
    fs::remove_dir(&entry)
}

/// Looks at a directory without changing it.
pub(super) fn inspect(path: &Path) -> io::Result<Inspection> {
    let mut found = Inspection::default();
    let mut segments: Vec<(u64, u64)> = Vec::new();
    let mut marks: Vec<(String, Mark)> = Vec::new();
    for file in fs::read_dir(path)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_suffix(".spool").and_then(|number| number.parse().ok()) {
            segments.push((number, file.metadata()?.len()));
        } else if name == MARK || name.starts_with(&mark_of("")) {
            let mark = fs::read(file.path())?;
            let lines = mark.chunks(LINE).filter_map(read_line);
            let newest = lines.max_by_key(|(turn, _)| *turn).map(|(_, mark)| mark);
            let sink = name.strip_prefix(&mark_of("")).unwrap_or("store");
            marks.push((sink.to_owned(), newest.unwrap_or_default()));
        }
    }
    found.segments = segments.len() as u64;
    found.bytes = segments.iter().map(|(_, bytes)| bytes).sum();
    for (sink, mark) in marks {
        let after = segments.iter().filter(|(number, _)| *number >= mark.segment);
        let bytes: u64 = after.map(|(_, bytes)| bytes).sum();
        let has = segments.iter().any(|(number, _)| *number == mark.segment);
        found.waiting.push((sink, bytes.saturating_sub(if has { mark.offset } else { 0 })));
    }
    found.waiting.sort();
    let refused = |name: &str| name.starts_with("refused.");
    for file in fs::read_dir(path.join("quarantine")).into_iter().flatten() {
        let file = file?;
        if !refused(&file.file_name().to_string_lossy()) {
            found.damaged += file.metadata()?.len();
        }
    }
    Ok(found)
}

impl Dir {
    /// Opens the directory, with a mark for the store and for each other sink. Marks of others are deleted.
    pub(super) fn open(path: &Path, sinks: &[String]) -> Result<Self, Error> {
        let said = |what: &str| {
            let what = format!("{what} `{}`", path.display());
            move |source| Error::Io { what, source }
        };
        let quarantine = path.join("quarantine");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&quarantine)
            .map_err(said("cannot create the spool's directory"))?;
        let lock = options().open(path.join("lock")).map_err(said("cannot lock the spool in"))?;
        take(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => Error::Refused {
                store: format!("the spool in `{}`", path.display()),
                why: "another process has it open: stop it, or choose another directory with `data` or \
                      --data"
                    .into(),
            },
            TryLockError::Error(source) => said("cannot lock the spool in")(source),
        })?;
        let names = [MARK.to_owned()].into_iter().chain(sinks.iter().map(|sink| mark_of(sink)));
        let names: Vec<String> = names.collect();
        forget_marks(path, &names).map_err(said("cannot write into"))?;
        let open =
            |name: &String| options().open(path.join(name)).map(|file| Mutex::new((file, 0)));
        let marks: io::Result<Vec<_>> = names.iter().map(open).collect();
        let marks = marks.map_err(said("cannot write into"))?;
        let kept = AtomicU64::new(sizes(&quarantine));
        Ok(Self { path: path.to_owned(), _lock: lock, marks, kept })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the disk that the directory is on.
    pub(super) fn disk(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.path).ok()?;
        disk.f_blocks.checked_mul(disk.f_frsize)
    }

    fn segment(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:020}.spool"))
    }

    /// The numbers of the segments that are there, in order.
    pub(super) fn segments(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for file in fs::read_dir(&self.path)? {
            let name = file?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".spool"));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    pub(super) fn create(&self, number: u64) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600).open(self.segment(number))
    }

    pub(super) fn reopen(&self, number: u64) -> io::Result<File> {
        OpenOptions::new().append(true).open(self.segment(number))
    }

    pub(super) fn delete(&self, number: u64) -> io::Result<()> {
        match fs::remove_file(self.segment(number)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Part of a segment, or less where it is shorter.
    pub(super) fn read(&self, number: u64, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.segment(number))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Puts a segment that cannot be read out of the way.
    pub(super) fn set_aside(&self, number: u64) -> io::Result<()> {
        let aside = self.path.join("quarantine").join(format!("{number:020}.spool"));
        fs::rename(self.segment(number), aside)
    }

    /// Makes new files' names durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn read_mark(&self, sink: usize) -> Option<Mark> {
        let mut bytes = [0; 2 * LINE];
        let mut mark = locked(self.marks.get(sink)?);
        let length = mark.0.read_at(&mut bytes, 0).ok()?;
        let lines = bytes.get(..length)?.chunks(LINE).filter_map(read_line);
        let (turn, newest) = lines.max_by_key(|(turn, _)| *turn)?;
        mark.1 = turn;
        Some(newest)
    }

    /// Written in place, so that it needs no room on a full disk.
    pub(super) fn write_mark(&self, sink: usize, new: Mark) -> io::Result<()> {
        let Some(mark) = self.marks.get(sink) else { return Ok(()) };
        let mut mark = locked(mark);
        mark.1 += 1;
        let at = (mark.1 % 2) * LINE as u64;
        mark.0.write_all_at(&line(mark.1, new), at)
    }

    pub(super) fn sync_marks(&self) -> io::Result<()> {
        self.marks.iter().try_for_each(|mark| locked(mark).0.sync_data())
    }

    /// Keeps damaged bytes; says whether they are new, as the same damage may be met again.
    pub(super) fn quarantine(&self, number: u64, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let path = self.path.join("quarantine").join(name(number, offset, bytes));
        if path.exists() {
            return Ok(false);
        }
        if self.has_room(bytes.len()) {
            options().open(path)?.write_all(bytes)?;
        }
        Ok(true)
    }

    /// Keeps an entry that the store will not take.
    pub(super) fn refuse(&self, line: &str) -> io::Result<()> {
        if !self.has_room(line.len()) {
            return Ok(());
        }
        let path = self.path.join("quarantine").join("refused.jsonl");
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(line.as_bytes())
    }

    fn has_room(&self, size: usize) -> bool {
        let size = size as u64;
        self.kept.fetch_add(size, Ordering::Relaxed) + size <= MOST_QUARANTINE
    }
}

/// The name of the mark of a sink.
fn mark_of(sink: &str) -> String {
    format!("{MARK}.{sink}")
}

/// Deletes the marks of sinks that are gone: they would keep segments for nobody.
fn forget_marks(path: &Path, names: &[String]) -> io::Result<()> {
    for file in fs::read_dir(path)? {
        let name = file?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(&mark_of(""))) else {
            continue;
        };
        if !names.iter().any(|known| known == name) {
            fs::remove_file(path.join(name))?;
        }
    }
    Ok(())
}

/// Locks it, with some patience for a process that is about to end.
fn take(lock: &File) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => {
                std::thread::sleep(PATIENCE / 50);
            }
            taken => return taken,
        }
    }
}

/// The same damage has the same name.
fn name(number: u64, offset: u64, bytes: &[u8]) -> String {
    format!("{number:020}-{offset}-{:08x}.bin", crc32fast::hash(bytes))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

fn sizes(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

fn line(turn: u64, mark: Mark) -> [u8; LINE] {
    let text = format!("{turn} {} {} {} ", mark.first, mark.segment, mark.offset);
    let text = format!("{text}{:08x}\n", crc32fast::hash(text.as_bytes()));
    let mut line = [b' '; LINE];
    for (to, from) in line.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    line
}

fn read_line(bytes: &[u8]) -> Option<(u64, Mark)> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let (said, checksum) = text.split_at_checked(text.len().checked_sub(8)?)?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(said.as_bytes()) {
        return None;
    }
    let mut numbers = said.split_ascii_whitespace().map_while(|number| number.parse().ok());
    let turn = numbers.next()?;
    let mark = Mark { first: numbers.next()?, segment: numbers.next()?, offset: numbers.next()? };
    Some((turn, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_survives_damage_to_its_newest_line() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path(), &[]).unwrap();
        assert_eq!(dir.read_mark(0), None);
        let mark = |offset| Mark { first: 1, segment: u64::MAX, offset };
        for offset in 0..5 {
            dir.write_mark(0, mark(offset)).unwrap();
            assert_eq!(dir.read_mark(0), Some(mark(offset)));
        }
        let path = temp.path().join("mark");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&path, &bytes).unwrap();
            let read = dir.read_mark(0).unwrap();
            assert!([mark(3), mark(4)].contains(&read), "{read:?}");
        }
        fs::write(&path, b"").unwrap();
        assert_eq!(dir.read_mark(0), None);
    }

    #[test]
    fn damage_is_counted_once_and_kept_within_bounds() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path(), &[]).unwrap();
        assert!(dir.quarantine(1, 2, b"x").unwrap());
        assert!(!dir.quarantine(1, 2, b"x").unwrap());
        assert!(dir.quarantine(1, 2, b"y").unwrap());
        let big = vec![0; 40 << 20];
        assert!(dir.quarantine(2, 0, &big).unwrap() && dir.quarantine(3, 0, &big).unwrap());
        assert!(sizes(&temp.path().join("quarantine")) <= MOST_QUARANTINE);
    }
}
