//! Reads rows from Postgres.

use std::pin::pin;

use futures_util::TryStreamExt;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{Failed, Failure, Postgres};
use crate::ask::Reads;
use crate::columns::Cell;
use crate::error::Error;
use crate::sql::{Flavor, Sql, Value};

impl Reads for Postgres {
    fn flavor(&mut self) -> Result<Flavor, Error> {
        Ok(self.table()?.flavor.clone())
    }

    fn read(&mut self, sql: &Sql<'_>) -> Result<Vec<Vec<Cell<'static>>>, Error> {
        let begin = self.begin(" READ ONLY");
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
            sql.values.iter().map(parameter).collect();
        let read = async |client: &Client| {
            let rows = client.query_typed(&sql.text, &parameters).await?;
            let cells: Result<Vec<_>, tokio_postgres::Error> = rows.iter().map(cells).collect();
            Ok(cells?)
        };
        self.transact(&begin, read).map_err(|Failed { error, data, .. }| match data {
            // A value that the column cannot hold, such as a team that is not a UUID.
            Some(why) => Error::Query(why),
            None => error,
        })
    }

    fn read_each<T>(
        &mut self,
        statements: &[Sql<'_>],
        start: impl Fn() -> T,
        add: impl Fn(&mut T, usize, Vec<Cell<'static>>),
    ) -> Result<T, Error> {
        let begin = self.begin(" ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let read = async |client: &Client| {
            let mut sums = start();
            for (index, statement) in statements.iter().enumerate() {
                each_row(client, statement, |row| add(&mut sums, index, row)).await?;
            }
            Ok(sums)
        };
        self.transact(&begin, read).map_err(|failed| match failed.data {
            Some(why) => Error::Query(why),
            None => failed.error,
        })
    }
}

/// Hands over each row that a statement gives, as it comes.
async fn each_row(
    client: &Client,
    sql: &Sql<'_>,
    mut each: impl FnMut(Vec<Cell<'static>>),
) -> Result<(), Failure> {
    let values = sql.values.iter().map(parameter);
    let mut rows = pin!(client.query_typed_raw(&sql.text, values).await?);
    while let Some(row) = rows.try_next().await? {
        each(cells(&row)?);
    }
    Ok(())
}

fn parameter(value: &Value) -> (&(dyn ToSql + Sync), Type) {
    match value {
        Value::Int(number) => (number, Type::INT8),
        Value::Text(text) => (text, Type::TEXT),
    }
}

/// The cells of a row that has only numbers, flags and texts.
pub(super) fn cells(
    row: &tokio_postgres::Row,
) -> Result<Vec<Cell<'static>>, tokio_postgres::Error> {
    let cell = |(index, column): (usize, &tokio_postgres::Column)| {
        Ok(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.map_or(Cell::Null, Cell::Int),
            Type::BYTEA => {
                row.try_get::<_, Option<Vec<u8>>>(index)?.map_or(Cell::Null, Cell::Bytes)
            }
            Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map_or(Cell::Null, Cell::Flag),
            _ => {
                let text = row.try_get::<_, Option<String>>(index)?;
                text.map_or(Cell::Null, |text| Cell::Text(text.into()))
            }
        })
    };
    row.columns().iter().enumerate().map(cell).collect()
}
