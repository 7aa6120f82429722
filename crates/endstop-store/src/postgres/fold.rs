//! Folds deltas, and sums of an earlier version, into the sums and words.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::Failure;
use super::arrays::{Array, parameters, places};
use crate::delta::{DAMAGED, Delta};
use crate::sums::NAMES;

/// The most deltas, or old chunks, that are folded at once.
const FOLD: usize = 500;
/// A lock that no other program takes: one process folds at a time.
const LOCK: i64 = 0x656e_6473_746f_7032;

const DELTAS: &str = "DELETE FROM public.endstop_deltas WHERE id IN (SELECT id FROM \
    public.endstop_deltas ORDER BY id LIMIT $1) RETURNING packed";
const CHUNKS: &str = "DELETE FROM public.endstop_chunks WHERE (hour, chunk) IN (SELECT hour, chunk \
    FROM public.endstop_chunks ORDER BY hour, chunk LIMIT $1) RETURNING hour, chunk, lines";
const WORDS: &str = "INSERT INTO public.endstop_words AS w \
    (provider, model, dialect, field, word, reason, seen, first_seen, last_seen) \
    SELECT * FROM UNNEST($1, $2, $3, $4, $5, $6, $7, $8, $9) \
    ON CONFLICT (provider, model, dialect, field, word, reason) \
    DO UPDATE SET first_seen = LEAST(w.first_seen, excluded.first_seen), \
    last_seen = GREATEST(w.last_seen, excluded.last_seen), seen = w.seen + excluded.seen";

/// Folds some. Returns whether there are more.
pub(super) async fn fold(client: &Client) -> Result<bool, Failure> {
    let lock = "SELECT pg_try_advisory_xact_lock($1)";
    let locked = client.query_typed(lock, &[(&LOCK, Type::INT8)]).await?;
    if locked.first().and_then(|row| row.try_get(0).ok()) != Some(true) {
        return Ok(false);
    }
    let damaged = || Failure::Refused(DAMAGED.to_owned());
    let most: [(&(dyn ToSql + Sync), Type); 1] = [(&(FOLD as i64), Type::INT8)];
    let mut delta = Delta::default();
    let deltas = client.query_typed(DELTAS, &most).await?;
    for row in &deltas {
        delta.unpack(row.try_get(0)?).ok_or_else(damaged)?;
    }
    let chunks = client.query_typed(CHUNKS, &most).await?;
    for row in &chunks {
        let (hour, chunk) = (row.try_get(0)?, row.try_get(1)?);
        delta.unpack_chunk(hour, chunk, row.try_get(2)?).ok_or_else(damaged)?;
    }
    add(client, &delta).await?;
    Ok(deltas.len() == FOLD || chunks.len() == FOLD)
}

async fn add(client: &Client, delta: &Delta) -> Result<(), Failure> {
    if !delta.lines.is_empty() {
        let number = |at: usize| delta.lines.values().map(|all| all.get(at).copied()).collect();
        let mut arrays = vec![
            Array::Ints(delta.lines.keys().map(|(hour, _)| Some(*hour)).collect()),
            Array::Ints(delta.lines.keys().map(|(_, series)| Some(*series)).collect()),
        ];
        arrays.extend((0..NAMES.len()).map(|at| Array::Ints(number(at))));
        let added: Vec<String> =
            NAMES.iter().map(|name| format!("{name} = s.{name} + excluded.{name}")).collect();
        let sums = format!(
            "INSERT INTO public.endstop_sums AS s (hour, series, {}) SELECT * FROM UNNEST({}) \
             ON CONFLICT (hour, series) DO UPDATE SET {}",
            NAMES.join(", "),
            places(2 + NAMES.len()),
            added.join(", ")
        );
        client.execute_typed(&sums, &parameters(&arrays)).await?;
    }
    let words = delta.words();
    if !words.is_empty() {
        let text = |part: usize| {
            words.keys().map(|word| word.get(part).map(|text| text.as_str().into())).collect()
        };
        let mut arrays: Vec<Array<'_>> = (0..6).map(|part| Array::Texts(text(part))).collect();
        arrays.push(Array::Ints(words.values().map(|seen| Some(seen.count)).collect()));
        arrays.push(Array::Ints(words.values().map(|seen| Some(seen.first)).collect()));
        arrays.push(Array::Ints(words.values().map(|seen| Some(seen.last)).collect()));
        client.execute_typed(WORDS, &parameters(&arrays)).await?;
    }
    Ok(())
}
