//! New rows by `COPY`, in its binary form: the fastest way into a table.

use std::io::Cursor;
use std::pin::Pin;

use futures_util::SinkExt;
use tokio_postgres::{Client, CopyInSink};

use super::Failure;
use crate::columns::{COLUMNS, Cell, Kind};
use crate::load::Item;

/// Header: a signature, no flags, and no extension.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Milliseconds from 1970 to 2000, which Postgres counts from.
const EPOCH_MS: i64 = 946_684_800_000;

/// Rows that are sent first. The server takes them in while the others are encoded.
const FIRST: usize = 100;

/// Rows on their way.
pub(super) type Rows = Pin<Box<CopyInSink<Cursor<Vec<u8>>>>>;

/// Sends rows by a statement that names the columns in their order. The server takes them in until they are
/// finished.
pub(super) async fn send(
    client: &Client,
    statement: &str,
    items: &[Item<'_>],
) -> Result<Rows, Failure> {
    let mut sink = Box::pin(client.copy_in(statement).await?);
    let (first, others) = items.split_at(FIRST.min(items.len()));
    let mut rows = HEAD.to_vec();
    encode(&mut rows, first);
    sink.send(Cursor::new(rows)).await?;
    // The connection writes them.
    tokio::task::yield_now().await;
    let mut rows = Vec::new();
    encode(&mut rows, others);
    rows.extend((-1_i16).to_be_bytes());
    sink.send(Cursor::new(rows)).await?;
    tokio::task::yield_now().await;
    Ok(sink)
}

fn encode(rows: &mut Vec<u8>, items: &[Item<'_>]) {
    rows.reserve(512 * (1 + items.len()));
    for item in items {
        rows.extend((COLUMNS.len() as i16).to_be_bytes());
        for column in &COLUMNS {
            match (column.kind, (column.get)(&item.row)) {
                (Kind::Key, _) => field(rows, item.key.as_bytes()),
                (_, Cell::Null) => rows.extend((-1_i32).to_be_bytes()),
                (Kind::Time, Cell::Int(ms)) => {
                    field(rows, &((ms - EPOCH_MS) * 1000).to_be_bytes());
                }
                (_, Cell::Int(number)) => field(rows, &number.to_be_bytes()),
                (_, Cell::Flag(flag)) => field(rows, &[u8::from(flag)]),
                (_, Cell::Text(text)) => field(rows, text.as_bytes()),
                (_, Cell::Bytes(bytes)) => field(rows, &bytes),
            }
        }
    }
}

fn field(rows: &mut Vec<u8>, bytes: &[u8]) {
    rows.extend((bytes.len() as i32).to_be_bytes());
    rows.extend(bytes);
}
