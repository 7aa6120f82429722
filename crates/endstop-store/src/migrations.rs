//! The tables, as numbered steps: `migrations/BACKEND/NNNN_name.sql`.
//!
//! Each step is plain SQL, so that other tools can apply it too. Each step for Postgres can run twice.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// One step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// Its number and name.
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

pub(crate) static SQLITE: [Migration; 5] = [
    Migration {
        name: "0001_requests",
        sql: include_str!("../migrations/sqlite/0001_requests.sql"),
    },
    Migration { name: "0002_hourly", sql: include_str!("../migrations/sqlite/0002_hourly.sql") },
    Migration {
        name: "0003_client_status",
        sql: include_str!("../migrations/sqlite/0003_client_status.sql"),
    },
    Migration { name: "0004_sums", sql: include_str!("../migrations/sqlite/0004_sums.sql") },
    Migration { name: "0005_words", sql: include_str!("../migrations/sqlite/0005_words.sql") },
];

pub(crate) static POSTGRES: [Migration; 5] = [
    Migration {
        name: "0001_requests",
        sql: include_str!("../migrations/postgres/0001_requests.sql"),
    },
    Migration { name: "0002_hourly", sql: include_str!("../migrations/postgres/0002_hourly.sql") },
    Migration {
        name: "0003_client_status",
        sql: include_str!("../migrations/postgres/0003_client_status.sql"),
    },
    Migration { name: "0004_sums", sql: include_str!("../migrations/postgres/0004_sums.sql") },
    Migration { name: "0005_words", sql: include_str!("../migrations/postgres/0005_words.sql") },
];

/// Table in which Postgres notes the steps that it has taken; not for `anon` to see, which the steps explain.
pub(crate) const POSTGRES_NOTES: &str = "CREATE TABLE IF NOT EXISTS public.endstop_migrations (
    name text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') AND NOT EXISTS (
        SELECT 1 FROM pg_class
        WHERE oid = 'public.endstop_migrations'::regclass AND relrowsecurity
    ) THEN
        ALTER TABLE public.endstop_migrations ENABLE ROW LEVEL SECURITY;
    END IF;
END
$$;
";

/// Writes the steps for Postgres as files that `supabase db push` applies, in order; `timestamp` is 14
/// digits, such as `20261116093000`, and each file has a later one. Gives their paths.
///
/// # Errors
/// The timestamp is none, or a file cannot be written.
pub fn export_migrations(dir: &Path, timestamp: &str) -> Result<Vec<PathBuf>, Error> {
    let digits = timestamp.len() == 14 && timestamp.bytes().all(|digit| digit.is_ascii_digit());
    let first: u64 = timestamp.parse().ok().filter(|_| digits).ok_or_else(|| {
        Error::Query(format!("invalid timestamp `{timestamp}`: expected 14 digits, year to second"))
    })?;
    std::fs::create_dir_all(dir).map_err(|source| io("make", dir, source))?;
    let mut paths = Vec::new();
    for (number, migration) in (first..).zip(&POSTGRES) {
        let Migration { name, sql } = migration;
        let path = dir.join(format!("{number}_endstop_{name}.sql"));
        let note = format!(
            "\n-- So that `endstop migrate` knows.\n{POSTGRES_NOTES}INSERT INTO \
             public.endstop_migrations (name) VALUES ('{name}') ON CONFLICT DO NOTHING;\n"
        );
        std::fs::write(&path, format!("{sql}{note}"))
            .map_err(|source| io("write", &path, source))?;
        paths.push(path);
    }
    Ok(paths)
}

fn io(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { what: format!("cannot {what} {}", path.display()), source }
}
