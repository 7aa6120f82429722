//! New rows by `COPY`, in its binary form: the fastest way into a table.

use std::io::Cursor;
use std::pin::pin;

use futures_util::SinkExt;
use tokio_postgres::{Client, CopyInSink};

use super::Failure;
use crate::columns::{COLUMNS, Cell, Kind};
use crate::load::Item;

/// Header: a signature, no flags, and no extension.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Milliseconds from 1970 to 2000, which Postgres counts from.
const EPOCH_MS: i64 = 946_684_800_000;

/// Copies rows by a statement that names the columns in their order.
pub(super) async fn copy(
    client: &Client,
    statement: &str,
    items: &[Item<'_>],
) -> Result<(), Failure> {
    let rows = Cursor::new(encode(items));
    let mut sink: std::pin::Pin<&mut CopyInSink<Cursor<Vec<u8>>>> =
        pin!(client.copy_in(statement).await?);
    sink.send(rows).await?;
    sink.finish().await?;
    Ok(())
}

fn encode(items: &[Item<'_>]) -> Vec<u8> {
    let mut rows = Vec::with_capacity(512 * (1 + items.len()));
    rows.extend(HEAD);
    for item in items {
        rows.extend((COLUMNS.len() as i16).to_be_bytes());
        for column in &COLUMNS {
            match (column.kind, (column.get)(&item.row)) {
                (Kind::Key, _) => field(&mut rows, item.key.as_bytes()),
                (_, Cell::Null) => rows.extend((-1_i32).to_be_bytes()),
                (Kind::Time, Cell::Int(ms)) => {
                    field(&mut rows, &((ms - EPOCH_MS) * 1000).to_be_bytes());
                }
                (_, Cell::Int(number)) => field(&mut rows, &number.to_be_bytes()),
                (_, Cell::Flag(flag)) => field(&mut rows, &[u8::from(flag)]),
                (_, Cell::Text(text)) => field(&mut rows, text.as_bytes()),
                (_, Cell::Bytes(bytes)) => field(&mut rows, &bytes),
            }
        }
    }
    rows.extend((-1_i16).to_be_bytes());
    rows
}

fn field(rows: &mut Vec<u8>, bytes: &[u8]) {
    rows.extend((bytes.len() as i32).to_be_bytes());
    rows.extend(bytes);
}
