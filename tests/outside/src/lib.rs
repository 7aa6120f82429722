//! Depends on `endstop` as users do.

/// Returns the reason of an answer of OpenAI.
#[must_use]
pub fn reason(body: &[u8]) -> endstop::Reason {
    use endstop::{Collector, Head, RequestInfo, TransportEnd, provider};
    let head = Head { status: 200, content_type: "application/json" };
    let mut collector = Collector::new(&provider::OPENAI, head, RequestInfo::default());
    collector.push(body);
    collector.finish(TransportEnd::Eof).ending.reason
}

#[cfg(test)]
mod tests {
    /// `serde_json/preserve_order` would be switched on for the whole build of every dependent.
    #[test]
    fn maps_stay_sorted() {
        let map: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(r#"{"z":1,"a":2}"#).unwrap();
        assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "z"]);
    }

    #[test]
    fn an_answer_is_read() {
        let body = br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}"#;
        assert_eq!(super::reason(body), endstop::Reason::OutputLimit);
    }
}
