//! The record of each response, and the events about it that subscribers are told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use endstop::registry::Registry;
use endstop::{Ending, Reason, Record, RequestInfo, Wire};
use endstop_turn::observation::{
    DetectionFault, DetectionTimes, Observation, TerminationDetected, UnknownReasonFirstSeen,
};

use crate::client::Subscribers;

/// One of this many responses is timed.
const SAMPLE: u32 = 64;

/// State that the responses of a client share.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    responses: AtomicU32,
    /// Unknown finish reasons that were told; a bounded set.
    unknown: Mutex<Registry>,
}

/// A response under way.
#[derive(Debug)]
pub(crate) struct Observed {
    began: Instant,
    record: Record,
    times: Option<Box<DetectionTimes>>,
}

impl Observer {
    /// Begins the record of a response to the request `number` of a turn.
    pub(crate) fn begin(
        &self,
        (turn, number): (&str, u32),
        (wire, path): (&Wire, &str),
        info: &RequestInfo,
    ) -> Observed {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut record = Record {
            id: uuid::Uuid::now_v7().simple().to_string(),
            turn_id: turn.to_owned(),
            attempt: number.max(1),
            created_at: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            upstream: wire.provider().to_owned(),
            path: endstop::text::clean(path, endstop::text::WORD_CAP),
            ..Record::default()
        };
        record.ask(wire, info);
        let number = self.responses.fetch_add(1, Ordering::Relaxed);
        let times = number.is_multiple_of(SAMPLE).then(Box::default);
        Observed { began: Instant::now(), record, times }
    }

    /// Tells subscribers that a response is over.
    pub(crate) fn ended(
        &self,
        subscribers: &Subscribers,
        wire: &Wire,
        mut observed: Observed,
        ending: &Ending,
    ) {
        let record = &mut observed.record;
        record.end(ending);
        record.total_us = micros(observed.began.elapsed());
        let tell =
            |event: Observation<'_>| subscribers.iter().for_each(|known| known.event(&event));
        let times = observed.times.as_deref();
        tell(Observation::TerminationDetected(TerminationDetected::new(
            record,
            ending.reason,
            times,
        )));
        if let Some(fault) = DetectionFault::of(record, ending) {
            tell(Observation::DetectionFault(fault));
        }
        if ending.reason == Reason::Unknown {
            let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            let new = unknown.report_unknown(wire, ending);
            drop(unknown);
            if let Some(new) = &new {
                tell(Observation::UnknownReasonFirstSeen(UnknownReasonFirstSeen::from(new)));
            }
        }
    }
}

impl Observed {
    /// Notes that the head of the response has come.
    pub(crate) fn head(&mut self, status: u16) {
        self.record.status = Some(status);
        self.record.client_status = Some(status);
        self.record.first_byte_us = Some(micros(self.began.elapsed()));
    }

    /// Reads a chunk, and measures it if this response is in the sample.
    pub(crate) fn read<T>(&mut self, read: impl FnOnce() -> T) -> T {
        let Some(times) = &mut self.times else { return read() };
        let began = Instant::now();
        let done = read();
        times.add(began.elapsed());
        done
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
