//! The exporter of programs without a gateway.

use std::sync::Arc;
use std::time::Duration;

use endstop::Reason;
use endstop_export::axiom::Axiom;
use endstop_export::{Background, Exporter, Metrics, Noted};
use endstop_turn::observation::{Observation, Subscriber as _, TerminationDetected};

use crate::record;
use crate::stand_in::{StandIn, TOKEN, Trouble};

fn axiom(stand_in: &StandIn, token: &str) -> Axiom {
    let url = stand_in.url();
    let place = url.strip_prefix("axiom:").unwrap();
    Axiom::new(place, Some(token.to_owned().into()), &|_| None).unwrap()
}

fn tell(background: &Background, count: u32) {
    for number in 0..count {
        let record = record(number, "complete");
        let ended = TerminationDetected::new(&record, Reason::Complete, None);
        background.event(&Observation::TerminationDetected(ended));
    }
}

#[test]
fn records_arrive_after_trouble() {
    let stand_in = StandIn::start(&[Trouble::TooMany, Trouble::Error, Trouble::Close]);
    let metrics = Arc::<Metrics>::default();
    let background = Background::start(Box::new(axiom(&stand_in, TOKEN)), metrics).unwrap();
    tell(&background, 700);
    assert!(background.flush(Duration::from_secs(60)));
    assert_eq!((stand_in.newest().len(), background.dropped()), (700, 0));
    assert!(background.metrics().text().contains("} 700\n"));
}

#[test]
fn what_cannot_be_sent_is_dropped_and_counted() {
    let stand_in = StandIn::start(&[]);
    let metrics = Arc::<Metrics>::default();
    let background = Background::start(Box::new(axiom(&stand_in, "xaat-wrong")), metrics).unwrap();
    tell(&background, 3);
    assert!(background.flush(Duration::from_secs(60)));
    assert_eq!((stand_in.events().len(), background.dropped()), (0, 3));
    let text = background.metrics().text();
    assert!(text.contains("endstop_records_dropped_total{cause=\"unsent\"} 3\n"), "{text}");
}

/// An endpoint that takes what it is sent never.
struct Stuck;

impl Exporter for Stuck {
    fn send(&mut self, _: &[Noted<'_>]) -> Result<Vec<(usize, String)>, endstop_export::Error> {
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn nobody_waits_for_a_stuck_exporter() {
    let background = Background::start(Box::new(Stuck), Arc::default()).unwrap();
    tell(&background, 20_000);
    // The queue and one batch are all that it may have.
    assert!(background.dropped() >= 20_000 - 4096 - 500, "{}", background.dropped());
    assert!(!background.flush(Duration::from_millis(50)));
}

#[test]
fn refused_events_are_found_in_their_batch() {
    let stand_in = StandIn::start(&[Trouble::Partial]);
    let mut axiom = axiom(&stand_in, TOKEN);
    let records = [record(1, "complete"), record(2, "complete")];
    let noted: Vec<Noted<'_>> =
        records.iter().map(|record| Noted { record, sequence: 1 }).collect();
    let refused = axiom.send(&noted).unwrap();
    assert!(refused.len() == 1 && refused[0].0 == 0, "{refused:?}");
    assert!(refused[0].1.contains("field type conflict"), "{refused:?}");
    assert_eq!(stand_in.events().len(), 1);
}

#[test]
fn a_wait_that_was_asked_for_is_kept() {
    let stand_in = StandIn::start(&[Trouble::TooMany]);
    let mut axiom = axiom(&stand_in, TOKEN);
    let record = record(1, "complete");
    let noted = [Noted { record: &record, sequence: 1 }];
    let error = axiom.send(&noted).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("rate limit exceeded"), "{error}");
    // It is not asked again by then.
    assert!(axiom.send(&noted).unwrap_err().is_retryable());
    assert_eq!(stand_in.requests(), 1);
}
