//! Columns of many rows as arrays, which `UNNEST` makes rows of again.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::columns::{COLUMNS, Cell, Kind, Row};

/// The values of one column.
pub(super) enum Array<'a> {
    Keys(Vec<Uuid>),
    Times(Vec<SystemTime>),
    Texts(Vec<Option<Cow<'a, str>>>),
    Ints(Vec<Option<i64>>),
    Flags(Vec<Option<bool>>),
}

pub(super) fn arrays<'a>(rows: &[(Uuid, Row<'a>)]) -> Vec<Array<'a>> {
    let array = |column: &crate::columns::Column| {
        let cells = rows.iter().map(|(_, row)| (column.get)(row));
        match column.kind {
            Kind::Key => Array::Keys(rows.iter().map(|(key, _)| *key).collect()),
            Kind::Time => Array::Times(cells.map(|cell| system_time(&cell)).collect()),
            Kind::Text => Array::Texts(cells.map(as_text).collect()),
            Kind::Int => Array::Ints(cells.map(|cell| cell.as_int()).collect()),
            Kind::Flag => {
                Array::Flags(cells.map(|cell| cell.as_int().map(|flag| flag == 1)).collect())
            }
        }
    };
    COLUMNS.iter().map(array).collect()
}

fn system_time(cell: &Cell<'_>) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(cell.as_count().unwrap_or_default())
}

fn as_text(cell: Cell<'_>) -> Option<Cow<'_, str>> {
    match cell {
        Cell::Text(text) => Some(text),
        Cell::Null | Cell::Int(_) | Cell::Flag(_) | Cell::Bytes(_) => None,
    }
}

pub(super) fn parameters<'b>(arrays: &'b [Array<'_>]) -> Vec<(&'b (dyn ToSql + Sync), Type)> {
    let parameter = |array: &'b Array<'_>| -> (&'b (dyn ToSql + Sync), Type) {
        match array {
            Array::Keys(keys) => (keys, Type::UUID_ARRAY),
            Array::Times(times) => (times, Type::TIMESTAMPTZ_ARRAY),
            Array::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Array::Ints(ints) => (ints, Type::INT8_ARRAY),
            Array::Flags(flags) => (flags, Type::BOOL_ARRAY),
        }
    };
    arrays.iter().map(parameter).collect()
}

/// Returns the places of this many parameters: `$1, $2, …`.
pub(super) fn places(count: usize) -> String {
    let places: Vec<String> = (1..=count).map(|place| format!("${place}")).collect();
    places.join(", ")
}
