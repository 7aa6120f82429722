//! Reports beside a plain count of the rows: random rows, periods, filters, groups and time zones.

use endstop_store::{Dimension, Entry, Filter, Group, Period, Query, WordSeen};

use crate::model::{Dice, HOUR, Model, ODD, T0, any, query};
use crate::places::{self, Place};

const ZONES: [&str; 5] =
    ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Asia/Kathmandu"];

#[test]
fn in_sqlite() {
    against_plain_sql(&places::sqlite(), 1);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn in_postgres() {
    against_plain_sql(&places::postgres(), 2);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Postgres: set ENDSTOP_SERVERS=1")]
fn through_a_pooler() {
    against_plain_sql(&places::pooled(), 3);
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs ClickHouse: set ENDSTOP_SERVERS=1")]
fn in_clickhouse() {
    against_plain_sql(&places::clickhouse::clickhouse(), 4);
}

fn against_plain_sql(place: &Place, seed: u64) {
    let mut dice = Dice(seed);
    let mut model = Model::default();
    let mut store = place.open();
    store.migrate().unwrap();
    for round in 0..12 {
        let entries: Vec<Entry> = (0..100)
            .map(|_| {
                let number = dice.roll(600);
                any(&mut dice, number)
            })
            .collect();
        store.load(&entries).unwrap();
        model.load(&entries);
        if round % 3 == 0 {
            store.tend().unwrap();
        }
        if round == 8 {
            // As if an earlier version, whose sums had no words, had been there until now.
            let since = T0 + 31 * HOUR;
            place.run(&format!("INSERT INTO endstop_state VALUES ('words_since', {since})"));
        }
        for _ in 0..8 {
            let (asked, conditions) = random(&mut dice);
            let condition: Vec<String> = conditions.iter().map(Condition::sql).collect();
            let condition = condition.join(" AND ");
            let report = store.report(&asked).unwrap();
            assert_eq!((report.period, report.before), (asked.period, asked.before));
            let count = |period: Period| place.count(period.since, period.until, &condition);
            assert_eq!(report.total.now.count, count(asked.period), "{asked:?}");
            let before = report.total.before.map(|sums| sums.count);
            assert_eq!(before, asked.before.map(count), "{asked:?}");
            let words = store.words(&asked.filter, asked.period, 10_000).unwrap();
            let Period { since, until } = asked.period;
            assert_eq!(plain(&words), place.words(since, until, &condition), "{asked:?}");
            let fits = |record: &endstop::Record| conditions.iter().all(|it| it.fits(record));
            let mut wanted = model.groups(&asked, fits);
            if let Some(period) = asked.before {
                let total = |groups: &[Group]| groups.iter().map(|it| it.now.count).sum::<u64>();
                let earlier = model.groups(&Query { period, ..asked.clone() }, fits);
                assert_eq!(
                    (before, report.total.now.count),
                    (Some(total(&earlier)), total(&wanted))
                );
                continue;
            }
            let mut groups = report.groups;
            groups.sort_by(|one, other| one.key.cmp(&other.key));
            wanted.sort_by(|one, other| one.key.cmp(&other.key));
            assert_eq!(groups, wanted, "{asked:?}");
        }
    }
}

/// The parts of words and their counts, in order.
fn plain(words: &[WordSeen]) -> Vec<[String; 7]> {
    let parts = |word: &WordSeen| {
        let WordSeen { provider, model, dialect, field, word, reason, count, .. } = word.clone();
        [provider, model, dialect, field, word, reason, count.to_string()]
    };
    let mut plain: Vec<[String; 7]> = words.iter().map(parts).collect();
    plain.sort();
    plain
}

/// The value of a column.
type Of = fn(&endstop::Record) -> Option<&str>;

/// A filter of one column: a value, `null`, or what a value begins with.
struct Condition {
    column: &'static str,
    of: Of,
    value: String,
}

impl Condition {
    fn sql(&self) -> String {
        let Self { column, value, .. } = self;
        let literal = |text: &str| text.replace('\'', "''");
        match value.strip_suffix('*') {
            None if value == "true" => "true".to_owned(),
            None if value == "null" => format!("{column} IS NULL"),
            None => format!("{column} = '{}'", literal(value)),
            Some(start) => {
                let length = start.chars().count();
                format!("substr({column}, 1, {length}) = '{}'", literal(start))
            }
        }
    }

    fn fits(&self, record: &endstop::Record) -> bool {
        let (found, value) = ((self.of)(record), self.value.as_str());
        match value.strip_suffix('*') {
            None if value == "true" => true,
            None if value == "null" => found.is_none(),
            None => found == Some(value),
            Some(start) => found.is_some_and(|found| found.starts_with(start)),
        }
    }
}

/// Some filters, and none on the other columns.
fn conditions(dice: &mut Dice) -> Vec<Condition> {
    let odd = ODD[dice.roll(ODD.len() as u64) as usize];
    // A star is a pattern, and the word stands for a value that is missing.
    let all: [(&'static str, Of, &[&str]); 7] = [
        ("team_id", |it| it.team_id.as_deref(), &["a", "b", "", "null"]),
        ("key_id", |it| it.key_id.as_deref(), &["key", "null", "k*"]),
        ("provider", |it| Some(&it.provider), &["openai", "a*", "acme"]),
        ("model", |it| it.model.as_deref(), &[odd, "gpt*", "null", "a_*", "\"*"]),
        ("upstream", |it| Some(&it.upstream), &["openai", "nobody"]),
        ("reason", |it| Some(&it.reason), &["complete", "cut", "c*"]),
        ("finish_reason", |it| it.finish_reason.as_deref(), &["stop", "length", "null"]),
    ];
    let mut conditions = vec![Condition { column: "id", of: |_| None, value: "true".to_owned() }];
    for (column, of, values) in all {
        if dice.roll(5) == 0 {
            let value = values[dice.roll(values.len() as u64) as usize].to_owned();
            conditions.push(Condition { column, of, value });
        }
    }
    conditions
}

fn random(dice: &mut Dice) -> (Query, Vec<Condition>) {
    let since = T0 + dice.roll(72 * HOUR);
    let lengths = [1 + dice.roll(HOUR), 1 + dice.roll(72 * HOUR), HOUR, 24 * HOUR];
    let length = lengths[dice.roll(4) as usize];
    // Some begin and end with an hour.
    let (since, until) = if dice.roll(4) == 0 {
        (since / HOUR * HOUR, (since + length).div_ceil(HOUR) * HOUR)
    } else {
        (since, since + length)
    };
    let all = Dimension::ALL;
    let mut by = vec![all[dice.roll(all.len() as u64) as usize]];
    let other = all[dice.roll(all.len() as u64) as usize];
    if other != by[0] && dice.roll(2) == 0 {
        by.push(other);
    }
    let conditions = conditions(dice);
    let wanted = |column: &str| {
        let found = conditions.iter().find(|it| it.column == column);
        found.map(|it| it.value.clone())
    };
    let filter = Filter {
        team: wanted("team_id"),
        key: wanted("key_id"),
        provider: wanted("provider"),
        model: wanted("model"),
        upstream: wanted("upstream"),
        reason: wanted("reason"),
        finish_reason: wanted("finish_reason"),
    };
    let before = Period { since: since - (until - since), until: since };
    let asked = Query {
        by,
        period: Period { since, until },
        before: (dice.roll(4) == 0).then_some(before),
        zone: Some(ZONES[dice.roll(5) as usize].to_owned()),
        filter,
        ..query(&[])
    };
    (asked, conditions)
}

/// A period and the one before it have nothing in common and leave nothing out.
#[test]
fn compared_periods_are_disjoint() {
    let place = places::sqlite();
    let mut store = place.open();
    store.migrate().unwrap();
    let entries: Vec<Entry> = (0..120).map(|minute| at(minute, T0 + minute * 60_000)).collect();
    store.load(&entries).unwrap();
    let (since, until) = (T0 + 30 * 60_000, T0 + 60 * 60_000);
    let asked = Query {
        period: Period { since, until },
        before: Some(Period { since: T0, until: since }),
        ..query(&[])
    };
    let total = store.report(&asked).unwrap().total;
    assert_eq!((total.now.count, total.before.unwrap().count), (30, 30));
}

/// Where rows have been deleted, the ends of a period are moved to whole hours, and reported so.
#[test]
fn deleted_rows_move_the_ends_to_whole_hours() {
    let place = places::sqlite();
    let mut store = place.open();
    store.migrate().unwrap();
    let start = T0 / HOUR * HOUR;
    let entries: Vec<Entry> = (0..300).map(|minute| at(minute, start + minute * 60_000)).collect();
    store.load(&entries).unwrap();
    let asked = |since: u64, until: u64| Query {
        period: Period { since: start + since * 60_000, until: start + until * 60_000 },
        before: Some(Period { since: start, until: start + since * 60_000 }),
        ..query(&[])
    };
    assert_eq!(store.report(&asked(90, 270)).unwrap().total.now.count, 180);
    assert_eq!(store.forget(start + 100 * 60_000, 1000).unwrap(), 100);
    let report = store.report(&asked(90, 270)).unwrap();
    assert_eq!(report.period, Period { since: start + HOUR, until: start + 270 * 60_000 });
    assert_eq!(report.before, Some(Period { since: start, until: start + HOUR }));
    let total = report.total;
    assert_eq!((total.now.count, total.before.unwrap().count), (210, 60));
    assert!(store.report(&asked(10, 20)).unwrap_err().to_string().contains("whole hours"));
}

fn at(number: u64, created_at: u64) -> Entry {
    let mut entry = crate::model::entry(number);
    entry.record.created_at = created_at;
    entry
}

#[test]
fn an_unknown_time_zone_is_told() {
    let place = places::sqlite();
    let mut store = place.open();
    store.migrate().unwrap();
    let asked = Query { zone: Some("Mars/Olympus".to_owned()), ..query(&[]) };
    let error = store.report(&asked).unwrap_err().to_string();
    assert!(error.contains("unknown time zone `Mars/Olympus`"), "{error}");
}
