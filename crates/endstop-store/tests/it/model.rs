//! Made-up traffic, and a plain model of what a store should say about it.

use std::collections::BTreeMap;

use endstop::{Reason, Record};
use endstop_store::{BOUNDS_US, Dimension, Entry, Filter, Group, Period, Query, Stored, Sums};

/// A Tuesday.
pub(crate) const T0: u64 = 1_700_000_000_000;
pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const DAY: u64 = 24 * HOUR;

/// All of the made-up traffic.
pub(crate) const ALL: Period = Period { since: T0 - DAY, until: T0 + 30 * DAY };

pub(crate) const ODD: [&str; 12] = [
    "gpt-5",
    "'; DROP TABLE gateway_requests; --",
    "100%",
    "a_b",
    "axb",
    "\"quoted",
    "",
    "[x]?",
    "back\\slash",
    "ünïcode 😀",
    "GPT-5",
    "\" OR 1=1",
];

/// Numbers that look random and are the same each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % below
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len() as u64) as usize]
    }

    fn maybe(&mut self, below: u64) -> Option<u64> {
        (self.roll(4) > 0).then(|| self.roll(below))
    }
}

pub(crate) fn id(number: u64) -> String {
    format!("018bcfe56800700080{number:014x}")
}

/// A response that ended well.
pub(crate) fn entry(number: u64) -> Entry {
    let record = Record {
        id: id(number),
        turn_id: id(number),
        attempt: 1,
        created_at: T0 + number,
        team_id: Some("team".to_owned()),
        provider: "openai".into(),
        upstream: "openai".to_owned(),
        model: Some("gpt-5".to_owned()),
        dialect: "openai_chat".into(),
        native_finish_reason: Some("stop".to_owned()),
        native_field: Some("finish_reason".into()),
        finish_reason: Some("stop".into()),
        reason: "complete".into(),
        confidence: "high".into(),
        tokens_out: Some(10),
        total_us: 1_000_000,
        rules: 1,
        ..Record::default()
    };
    Entry { sequence: 0, record }
}

/// Any response; the time belongs to the id.
pub(crate) fn any(dice: &mut Dice, number: u64) -> Entry {
    let reason = Reason::ALL[dice.roll(Reason::ALL.len() as u64) as usize];
    let record = Record {
        attempt: 1 + dice.roll(3) as u32,
        created_at: T0 + (number * 7_919_731) % (72 * HOUR),
        team_id: (dice.roll(4) > 0).then(|| dice.pick(&["a", "b", "", "null"]).to_owned()),
        key_id: (dice.roll(2) > 0).then(|| "key".to_owned()),
        provider: dice.pick(&["openai", "anthropic", "acme"]).to_owned().into(),
        model: (dice.roll(8) > 0).then(|| dice.pick(&ODD).to_owned()),
        native_finish_reason: (dice.roll(4) > 0).then(|| dice.pick(&ODD).to_owned()),
        native_field: (dice.roll(4) > 0).then(|| dice.pick(&["finish_reason", "status"]).into()),
        finish_reason: (dice.roll(4) > 0).then(|| dice.pick(&["stop", "length"]).into()),
        reason: reason.name().to_owned().into(),
        shown: if dice.roll(2) > 0 { vec!["at_cap".into()] } else { Vec::new() },
        tokens_in: dice.maybe(1000),
        tokens_out: dice.maybe(1000),
        tokens_reasoning: dice.maybe(1000),
        tokens_cached: dice.maybe(1000),
        first_byte_us: dice.maybe(400_000_000),
        total_us: dice.roll(400_000_000),
        streamed: dice.roll(2) > 0,
        status: dice.maybe(600).map(|status| status as u16),
        ..entry(number).record
    };
    Entry { sequence: dice.roll(4) as u32, record }
}

/// What is known after entries in this order: of each id the first with the highest sequence.
#[derive(Clone, Default)]
pub(crate) struct Model(pub(crate) BTreeMap<String, Entry>);

impl Model {
    pub(crate) fn load(&mut self, entries: &[Entry]) {
        for entry in entries {
            let known = self.0.entry(entry.record.id.clone()).or_insert_with(|| entry.clone());
            if entry.sequence > known.sequence {
                known.clone_from(entry);
            }
        }
    }

    pub(crate) fn stored(&self) -> Vec<Stored> {
        let stored = |entry: &Entry| Stored {
            record: entry.record.clone(),
            sequence: entry.sequence,
            ..Stored::default()
        };
        self.0.values().map(stored).collect()
    }

    /// The groups of a period, by key.
    pub(crate) fn groups(&self, query: &Query, fits: impl Fn(&Record) -> bool) -> Vec<Group> {
        let mut groups: BTreeMap<Vec<Option<String>>, Sums> = BTreeMap::new();
        let Period { since, until } = query.period;
        for Entry { record, .. } in self.0.values().filter(|entry| fits(&entry.record)) {
            if !(since..until).contains(&record.created_at) {
                continue;
            }
            let zone = query.zone.as_deref().unwrap_or("UTC");
            let key = query.by.iter().map(|by| key(*by, record, zone)).collect();
            count(groups.entry(key).or_default(), record);
        }
        groups.into_iter().map(|(key, now)| Group { key, now, before: None }).collect()
    }
}

fn key(by: Dimension, record: &Record, zone: &str) -> Option<String> {
    match by {
        Dimension::FinishReason => record.finish_reason.clone().map(Into::into),
        Dimension::Reason => Some(record.reason.clone().into()),
        Dimension::Provider => Some(record.provider.clone().into()),
        Dimension::Model => record.model.clone(),
        Dimension::Team => record.team_id.clone(),
        Dimension::Key => record.key_id.clone(),
        Dimension::Upstream => Some(record.upstream.clone()),
        Dimension::Action => Some(record.action.clone().into()),
        Dimension::Status => record.status.map(|status| status.to_string()),
        Dimension::Streamed => Some(record.streamed.to_string()),
        Dimension::Dialect => Some(record.dialect.clone().into()),
        Dimension::Hour => Some(start(record.created_at, zone, false)),
        Dimension::Day => Some(start(record.created_at, zone, true)),
    }
}

/// The first millisecond of the hour or day of a time.
fn start(ms: u64, zone: &str, day: bool) -> String {
    let at = jiff::Timestamp::from_millisecond(ms as i64).unwrap().in_tz(zone).unwrap();
    let hour = at.with().minute(0).second(0).subsec_nanosecond(0);
    let start = if day { at.start_of_day() } else { hour.build() };
    start.unwrap().timestamp().as_millisecond().to_string()
}

fn count(sums: &mut Sums, record: &Record) {
    sums.count += 1;
    *sums.reasons.entry(record.reason.clone().into()).or_default() += 1;
    if record.attempt > 1 {
        sums.repeated += 1;
        if ["complete", "stop_sequence", "tool_call"].contains(&record.reason.as_ref()) {
            sums.repeated_well += 1;
        }
    }
    sums.tokens_in += record.tokens_in.unwrap_or(0);
    sums.tokens_out += record.tokens_out.unwrap_or(0);
    sums.tokens_reasoning += record.tokens_reasoning.unwrap_or(0);
    sums.tokens_cached += record.tokens_cached.unwrap_or(0);
    if ["output_limit", "context_limit", "cut", "timed_out"].contains(&record.reason.as_ref()) {
        sums.tokens_of_cut += record.tokens_out.unwrap_or(0);
    }
    sums.counted += u64::from(record.tokens_out.is_some());
    if let Some(us) = record.first_byte_us {
        sums.first_byte.0[BOUNDS_US.iter().filter(|bound| us >= **bound).count()] += 1;
    }
    if record.total_us > 0 {
        sums.total.0[BOUNDS_US.iter().filter(|bound| record.total_us >= **bound).count()] += 1;
    }
}

pub(crate) fn query(by: &[Dimension]) -> Query {
    Query {
        by: by.to_vec(),
        period: ALL,
        before: None,
        zone: None,
        filter: Filter::default(),
        limit: 10_000,
    }
}
