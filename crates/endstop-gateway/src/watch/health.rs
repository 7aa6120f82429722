//! The metrics of a gateway: counted endings, and the state of the spool and of the sinks.

use std::collections::BTreeMap;

use endstop_export::metrics::{MetricInfo, Text, names};
use endstop_store::{loader, spool};

use crate::settings::Shared;

/// Returns all metrics as Prometheus reads them, or `None` if endings are not counted.
pub(crate) fn text(shared: &Shared) -> Option<String> {
    let mut text = Text::default();
    shared.watch.metrics()?.write(&mut text);
    let streams = u64::try_from(shared.live.count()).unwrap_or(u64::MAX);
    text.family(&names::STREAMS, |samples| samples.number(&[], streams));
    if let Some(recording) = &shared.recording {
        let (spool, sinks) = recording.health();
        write_spool(&mut text, &spool, recording.admits().is_err());
        write_sinks(&mut text, &sinks);
    }
    let version = env!("CARGO_PKG_VERSION");
    text.family(&names::BUILD_INFO, |samples| samples.number(&[version], 1));
    Some(text.finish())
}

fn write_spool(text: &mut Text, status: &spool::Status, refuses: bool) {
    let failing = u64::from(status.error.is_some() || refuses);
    let numbers: [(&'static MetricInfo, u64); 6] = [
        (&names::SPOOL_BYTES, status.bytes),
        (&names::SPOOL_ENTRIES, status.entries),
        (&names::SPOOL_HELD, status.held),
        (&names::SPOOL_FAILING, failing),
        (&names::SPOOL_LOST, status.lost),
        (&names::SPOOL_UNRECORDED, status.unrecorded),
    ];
    for (metric, number) in numbers {
        text.family(metric, |samples| samples.number(&[], number));
    }
}

fn write_sinks(text: &mut Text, sinks: &BTreeMap<String, loader::Status>) {
    type Number = fn(&loader::Status) -> u64;
    let numbers: [(&'static MetricInfo, Number); 6] = [
        (&names::SINK_CONNECTED, |status| u64::from(status.connected)),
        (&names::SINK_LAG, |status| status.lag_entries),
        (&names::SINK_LOADED, |status| status.loaded),
        (&names::SINK_REFUSED, |status| status.refused),
        (&names::SINK_DROPPED, |status| status.dropped),
        (&names::SINK_FAILURES, |status| status.episodes),
    ];
    for (metric, number) in numbers {
        text.family(metric, |samples| {
            sinks.iter().for_each(|(sink, status)| samples.number(&[sink], number(status)));
        });
    }
}
