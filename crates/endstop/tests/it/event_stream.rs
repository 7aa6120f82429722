//! Compares the event-stream reader with that of the AWS SDK.

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder, write_message_to};
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::BytesMut;
use endstop::frame::aws::Aws;
use endstop::frame::{Broken, FrameKind, Rest};

use crate::sample::Dice;

fn messages(dice: &mut Dice) -> Vec<Message> {
    let count = 1 + dice.roll(6);
    (0..count)
        .map(|number| {
            let payload: Vec<u8> =
                (0..dice.roll(300)).map(|_| u8::try_from(dice.roll(256)).unwrap()).collect();
            Message::new(payload)
                .add_header(Header::new(
                    ":event-type",
                    HeaderValue::String(format!("event{number}").into()),
                ))
                .add_header(Header::new("flag", HeaderValue::Bool(number % 2 == 0)))
                .add_header(Header::new("small", HeaderValue::Byte(3)))
                .add_header(Header::new("number", HeaderValue::Int64(-7)))
                .add_header(Header::new("bytes", HeaderValue::ByteArray(vec![1, 2, 3].into())))
                .add_header(Header::new(":message-type", HeaderValue::String("event".into())))
        })
        .collect()
}

/// Returns the messages that the SDK reads, or `None` if it fails.
fn oracle(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut buffer = BytesMut::from(bytes);
    let mut decoder = MessageFrameDecoder::new();
    let mut payloads = Vec::new();
    loop {
        match decoder.decode_frame(&mut buffer) {
            Ok(DecodedFrame::Complete(message)) => payloads.push(message.payload().to_vec()),
            Ok(DecodedFrame::Incomplete) => return Some(payloads),
            Err(_) => return None,
        }
    }
}

#[test]
fn reads_what_the_sdk_writes() {
    let mut dice = Dice(0xa076_1d64_78bd_642f);
    for _ in 0..300 {
        let mut bytes = Vec::new();
        let messages = messages(&mut dice);
        for message in &messages {
            write_message_to(message, &mut bytes).unwrap();
        }
        let mut aws = Aws::new(1 << 20);
        let mut read = Vec::new();
        for piece in dice.cut(&bytes, 50) {
            aws.push(piece, |frame| {
                read.push((frame.kind, frame.name.to_owned(), frame.data.to_vec()));
            })
            .unwrap();
        }
        assert_eq!(aws.finish(), Rest::Nothing);
        let want = messages.iter().enumerate().map(|(number, message)| {
            (FrameKind::Event, format!("event{number}"), message.payload().to_vec())
        });
        assert_eq!(read, want.collect::<Vec<_>>());
    }
}

#[test]
fn refuses_what_the_sdk_refuses() {
    let mut dice = Dice(0xe703_7ed1_a0b4_28db);
    for _ in 0..3000 {
        let mut bytes = Vec::new();
        for message in messages(&mut dice) {
            write_message_to(&message, &mut bytes).unwrap();
        }
        let at = dice.roll(bytes.len());
        bytes[at] ^= 1 << dice.roll(8);
        let mut ours = Vec::new();
        let result = Aws::new(1 << 20).push(&bytes, |frame| ours.push(frame.data.to_vec()));
        match oracle(&bytes) {
            // The SDK waits for the bytes that a damaged length announces; this reader detects the
            // damage.
            Some(theirs) => assert_eq!((&ours, result), (&theirs, Err(Broken::Corrupt))),
            None => assert!(result.is_err()),
        }
    }
}
