//! Requests as every wire writes them.

use endstop::chat::{
    AssistantMessage, ChatMessage, ChatPart, ChatRequest, Image, ImageSource, JsonFormat, Native,
    PastCall, Tool, ToolChoice, ToolResult, Unwritable, write,
};
use endstop::next_request::{SoFar, Wording, continue_answer, set_cap};
use endstop::provider::{self, Profile};
use endstop::{RequestInfo, dialect};
use expect_test::expect_file;
use serde_json::{Value, json};

/// A wire of each dialect whose requests are written.
fn wires() -> Vec<&'static Profile> {
    let written = |dialect: &&&dialect::Dialect| dialect.request_shape.writer.is_some();
    let first = |dialect: &&dialect::Dialect| -> &Profile {
        let mut wires = provider::ALL.iter().flat_map(|provider| provider.wires());
        wires.find(|wire| wire.dialect.id == dialect.id).unwrap()
    };
    let wires: Vec<_> = dialect::ALL.iter().filter(written).map(first).collect();
    assert_eq!(wires.len(), 7);
    wires
}

fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" } },
        "required": ["path"],
    });
    Tool { name: "read_file".to_owned(), description: "Reads a file.".to_owned(), schema }
}

fn call(id: &str) -> PastCall {
    PastCall {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: r#"{"path":"a.txt"}"#.to_owned(),
    }
}

fn result(id: &str, is_error: bool) -> ToolResult {
    let (name, content) = ("read_file".to_owned(), "Once upon".to_owned());
    ToolResult { id: id.to_owned(), name, content, is_error }
}

fn called(calls: Vec<PastCall>, native: Option<Native>) -> ChatMessage {
    let text = "I will read it.".to_owned();
    ChatMessage::Assistant(AssistantMessage { text, calls, native, ..AssistantMessage::default() })
}

fn conversation() -> ChatRequest {
    ChatRequest::new("model-1")
        .with(ChatMessage::user("What is in a.txt?"))
        .with(called(vec![call("x1"), call("x2")], None))
        .with(ChatMessage::Tool { results: vec![result("x1", false), result("x2", true)] })
}

#[test]
fn every_wire_writes_a_conversation() {
    let mut table = String::new();
    for wire in wires() {
        let request = ChatRequest {
            system: "Be brief.".to_owned(),
            tools: vec![tool()],
            max_output_tokens: Some(100),
            temperature: Some(0.5),
            top_p: Some(0.9),
            ..conversation()
        };
        let written = write(wire, &request).unwrap();
        table += &format!("{} {}\n{}\n\n", wire.dialect.id, written.path, written.body);
        let streamed = write(wire, &ChatRequest { stream: true, ..request }).unwrap();
        for (text, is_streamed) in [(&written, false), (&streamed, true)] {
            let read = RequestInfo::from_request(wire, &text.path, text.body.as_bytes());
            assert_eq!(read.model.as_deref(), Some("model-1"), "{}", wire.dialect.id);
            assert_eq!(read.cap, Some(100), "{}", wire.dialect.id);
            let streamed = read.streamed.unwrap_or(false);
            assert_eq!(streamed, is_streamed, "{}: {}", wire.dialect.id, text.path);
        }
    }
    expect_file!["requests.table"].assert_eq(&table);
}

#[test]
fn every_wire_writes_settings_images_and_formats() {
    let mut table = String::new();
    let image = Image {
        media_type: "image/png".to_owned(),
        source: ImageSource::Base64("iVBORw0KGgo=".to_owned()),
    };
    for wire in wires() {
        let parts = vec![
            ChatPart::Text { text: "What is this?".to_owned() },
            ChatPart::Image(image.clone()),
        ];
        let name = "answer".to_owned();
        let request = ChatRequest {
            messages: vec![ChatMessage::User { parts }],
            format: Some(JsonFormat { name, schema: json!({ "type": "object" }) }),
            ..ChatRequest::new("model-1")
        };
        let written = write(wire, &request).unwrap();
        table += &format!("{}\n{}\n", wire.dialect.id, written.body);
        for choice in
            [ToolChoice::None, ToolChoice::Required, ToolChoice::Named("read_file".to_owned())]
        {
            let request = ChatRequest {
                tools: vec![tool()],
                tool_choice: choice.clone(),
                ..ChatRequest::new("m").with(ChatMessage::user("Hi"))
            };
            let body = write(wire, &request).map_or_else(|why| why.to_string(), |it| it.body);
            table += &format!("{choice:?}: {body}\n");
        }
        let stop = vec!["END".to_owned()];
        let request = ChatRequest { stop, ..ChatRequest::new("m").with(ChatMessage::user("Hi")) };
        let body = write(wire, &request).map_or_else(|why| why.to_string(), |it| it.body);
        table += &format!("stop: {body}\n\n");
    }
    expect_file!["settings.table"].assert_eq(&table);
}

/// Converse rejects a conversation with calls if it has no tools, and cannot forbid calls if it has some.
#[test]
fn converse_forbids_calls_by_writing_them_as_text() {
    let converse = wires().into_iter().find(|wire| wire.dialect.id == "bedrock-converse").unwrap();
    let tool_choice = ToolChoice::None;
    let request = ChatRequest { tools: vec![tool()], tool_choice, ..conversation() };
    let body = write(converse, &request).unwrap().body;
    for field in ["toolConfig", "toolUse", "toolResult"] {
        assert!(!body.contains(field), "{body}");
    }
    assert!(body.contains("I called the tool `read_file` with the arguments"), "{body}");
    assert_eq!(body.matches("Result of the tool `").count(), 1, "{body}");
    assert_eq!(body.matches("Error of the tool `").count(), 1, "{body}");
}

#[test]
fn a_longer_conversation_is_the_earlier_request_and_a_suffix() {
    for wire in wires() {
        let first = ChatRequest { tools: vec![tool()], ..conversation() };
        let more = first
            .clone()
            .with(ChatMessage::assistant("It says: once upon."))
            .with(ChatMessage::user("And then?"));
        let (first, more) = (write(wire, &first).unwrap(), write(wire, &more).unwrap());
        let (first, more) = (first.body, more.body);
        let prefix = first.strip_suffix("]}").unwrap();
        assert!(more.starts_with(prefix), "{}:\n{first}\n{more}", wire.dialect.id);
    }
}

#[test]
fn written_requests_can_be_continued() {
    for wire in wires() {
        let request = ChatRequest { max_output_tokens: Some(64), ..conversation() };
        let written = write(wire, &request).unwrap().body;
        let so_far = SoFar { text: "Once upon", ..SoFar::default() };
        let next = continue_answer(wire, "m", &written, &so_far, &Wording::default()).unwrap();
        let text = next.request.get();
        assert!(text.contains("Once upon"), "{}: {text}", wire.dialect.id);
        let raised = set_cap(wire, &written, 128).unwrap();
        assert_eq!(raised.request.get(), written.replace("64", "128"), "{}", wire.dialect.id);
    }
}

#[test]
fn ids_and_content_of_a_provider_are_sent_to_no_other() {
    for wire in wires() {
        let native = |provider: &str, dialect: &str| Native {
            provider: provider.to_owned(),
            dialect: dialect.to_owned(),
            content: r#"[{"signature":"secret"}]"#.to_owned(),
        };
        let asked = |native: Option<Native>| {
            let request = ChatRequest::new("m")
                .with(ChatMessage::user("Hi"))
                .with(called(vec![call("toolu_foreign"), call("toolu_second")], native))
                .with(ChatMessage::Tool {
                    // Results may come in another order.
                    results: vec![result("toolu_second", false), result("toolu_foreign", false)],
                });
            write(wire, &request).unwrap().body
        };
        for foreign in [
            asked(None),
            asked(Some(native("elsewhere", wire.dialect.id))),
            asked(Some(native(wire.provider, "another-dialect"))),
        ] {
            assert!(!foreign.contains("toolu_"), "{}: {foreign}", wire.dialect.id);
            assert!(!foreign.contains("secret"), "{}: {foreign}", wire.dialect.id);
            // Each id stands in its call and in its result, if the wire has ids.
            for id in ["call00001", "call00002"] {
                let count = foreign.matches(id).count();
                assert!(count == 0 || count == 2, "{}: {foreign}", wire.dialect.id);
            }
        }
        let own = asked(Some(native(wire.provider, wire.dialect.id)));
        assert!(!own.contains("call0000"), "{}: {own}", wire.dialect.id);
    }
}

#[test]
fn own_fields_take_precedence_and_objects_are_merged() {
    let wire = &provider::GOOGLE.main;
    let extra =
        json!({ "generationConfig": { "topK": 4, "temperature": 0.1 }, "safetySettings": [] });
    let Value::Object(extra) = extra else { panic!("an object") };
    let request = ChatRequest {
        extra,
        temperature: Some(0.9),
        max_output_tokens: Some(5),
        ..ChatRequest::new("m").with(ChatMessage::user("Hi"))
    };
    assert_eq!(
        write(wire, &request).unwrap().body,
        r#"{"generationConfig":{"maxOutputTokens":5,"temperature":0.1,"topK":4},"safetySettings":[],"contents":[{"parts":[{"text":"Hi"}],"role":"user"}]}"#
    );
}

#[test]
fn what_a_wire_cannot_say_is_an_error() {
    let hi = || ChatRequest::new("m").with(ChatMessage::user("Hi"));
    let completions = provider::OPENAI.wire_of("openai-completions").unwrap();
    let error = write(completions, &hi()).unwrap_err();
    assert_eq!(error.to_string(), "requests of `openai-completions` cannot be written");
    assert_eq!(write(&provider::OPENAI.main, &ChatRequest::new("m")), Err(Unwritable::Empty));
    let source = ImageSource::Url("https://example.com/a.png".to_owned());
    let image = Image { media_type: "image/png".to_owned(), source };
    let request =
        ChatRequest::new("m").with(ChatMessage::User { parts: vec![ChatPart::Image(image)] });
    for wire in [&provider::OLLAMA.main, &provider::BEDROCK.main] {
        let error = write(wire, &request).unwrap_err().to_string();
        assert!(error.ends_with("have no field for image URLs"), "{error}");
    }
    let broken = PastCall { arguments: "[1]".to_owned(), ..call("x") };
    let error = write(&provider::ANTHROPIC.main, &hi().with(called(vec![broken], None)));
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "the arguments of an earlier call of `read_file` are not a JSON object");
}

#[test]
fn models_in_paths_are_escaped() {
    let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-v1:0";
    let request = ChatRequest::new(arn).with(ChatMessage::user("Hi"));
    let written = write(&provider::BEDROCK.main, &request).unwrap();
    let model =
        "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude-v1%3A0";
    assert_eq!(written.path, format!("/model/{model}/converse"));
}

#[test]
fn requests_read_back_from_json() {
    let request = ChatRequest {
        tools: vec![tool()],
        tool_choice: ToolChoice::Named("read_file".to_owned()),
        ..conversation()
    };
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<ChatRequest>(&text).unwrap(), request);
}
