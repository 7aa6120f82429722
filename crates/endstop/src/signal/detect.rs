//! Detectors: what frameworks hand around, given to the dialect that it came in.
//!
//! Metadata that holds the provider's own event or body is read by the dialect itself. A part of one,
//! such as a lone candidate, is put back where the dialect's tables say that it stands. A bare word
//! becomes a word in the dialect's own field. The verdict then speaks as it does for bytes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{SignalContext, TerminationSignal};
use crate::dialect::Words;
use crate::ending::Said;
use crate::event::{Event, Word};
use crate::frame::{Frame, FrameKind};
use crate::provider::{self, Provider, Wire};
use crate::reader::Reader;
use crate::registry::{Clues, Registry};
use crate::request::RequestInfo;
use crate::shape;
use crate::text::{WORD_CAP, clean};
use crate::verdict::Meaning;

/// One piece of a stream, as frameworks hand it around.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// Whether it is the last, if anyone said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<bool>,
    /// The type of the event that it came in. Metadata may give it too, as `eventType` or
    /// `event_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The provider's word, if it carries one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Its text.
    pub text: String,
    /// The provider's own event, or a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A whole response, as frameworks hand it around.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Response {
    /// The provider's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// The status of a polled response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Its text.
    pub text: String,
    /// The provider's own body, or a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Anything that may end a response.
#[derive(Clone, Copy, Debug)]
pub enum SignalInput<'a> {
    /// A piece of a stream.
    Delta(&'a Delta),
    /// A whole response.
    Response(&'a Response),
    /// An event or a body exactly as the provider sent it.
    Native(&'a Value),
}

impl<'a> From<&'a Delta> for SignalInput<'a> {
    fn from(delta: &'a Delta) -> Self {
        Self::Delta(delta)
    }
}

impl<'a> From<&'a Response> for SignalInput<'a> {
    fn from(response: &'a Response) -> Self {
        Self::Response(response)
    }
}

impl<'a> From<&'a Value> for SignalInput<'a> {
    fn from(native: &'a Value) -> Self {
        Self::Native(native)
    }
}

/// Returns whether this ends the response: the `should_terminate` of [`detect_termination`].
///
/// A delta is taken as a piece of a stream and a response as whole; what is native is taken as the
/// context says, and as a piece where it does not.
pub fn is_terminal<'a>(input: impl Into<SignalInput<'a>>, context: &SignalContext) -> bool {
    Registry::default().is_terminal(input, context)
}

/// Returns what this says about the end of the response.
///
/// A delta is terminal if it carries the word, the proof of the end or an error, or says that it is
/// the last. An error counts more than any word, and of two words the less complete counts. A
/// response that is not streamed is over, unless its status says that it is still to come.
pub fn detect_termination<'a>(
    input: impl Into<SignalInput<'a>>,
    is_streaming: bool,
    context: &SignalContext,
) -> TerminationSignal {
    detect(&Registry::default(), input.into(), is_streaming, context)
}

impl Registry {
    /// Returns what an event or a response of this provider says about the end, with the providers
    /// that were registered at run time.
    ///
    /// ```
    /// use endstop::Reason;
    /// use endstop::registry::Registry;
    /// use serde_json::json;
    ///
    /// let chunk = json!({"candidates": [{"content": {}, "finishReason": "MAX_TOKENS"}]});
    /// let signal = Registry::default().detect_termination("google", &chunk, true);
    /// assert_eq!(signal.ending, Reason::OutputLimit);
    /// assert_eq!(signal.provider_specific.original_field, "finishReason");
    /// ```
    pub fn detect_termination<'a>(
        &self,
        provider: &str,
        response: impl Into<SignalInput<'a>>,
        is_streaming: bool,
    ) -> TerminationSignal {
        let context = SignalContext { provider: provider.to_owned(), ..SignalContext::default() };
        self.detect_termination_in(response, is_streaming, &context)
    }

    /// Returns the same where more than the provider is known.
    pub fn detect_termination_in<'a>(
        &self,
        response: impl Into<SignalInput<'a>>,
        is_streaming: bool,
        context: &SignalContext,
    ) -> TerminationSignal {
        detect(self, response.into(), is_streaming, context)
    }

    /// Returns whether this ends the response, with the providers that were registered at run time.
    pub fn is_terminal<'a>(
        &self,
        input: impl Into<SignalInput<'a>>,
        context: &SignalContext,
    ) -> bool {
        let input = input.into();
        let is_streaming = match input {
            SignalInput::Delta(_) => true,
            SignalInput::Response(_) => false,
            SignalInput::Native(_) => context.streamed != Some(false),
        };
        detect(self, input, is_streaming, context).should_terminate
    }
}

fn detect(
    registry: &Registry,
    input: SignalInput<'_>,
    is_streaming: bool,
    context: &SignalContext,
) -> TerminationSignal {
    let given = Given::new(input, is_streaming);
    let wire = given.wire(registry, context);
    let asked = RequestInfo {
        model: context.model.as_deref().map(|model| clean(model, WORD_CAP)),
        streamed: context.streamed.or(Some(is_streaming)),
        cap: context.cap,
        ..RequestInfo::default()
    };
    let tongue = given.tongue(registry, &wire, context);
    let mut reader = Reader::of_pieces(wire, asked);
    reader.take(&Event::Usage(context.usage));
    given.read(context.choice.unwrap_or(0), &tongue, &mut reader);
    let ending = reader.so_far().unwrap_or_else(|| reader.under_way());
    TerminationSignal::from(&ending).within(context)
}

/// The parts of an input, whichever it is.
struct Given<'a> {
    native: Vec<&'a Value>,
    event: &'a str,
    words: [&'a str; 2],
    text: &'a str,
    kind: FrameKind,
    /// Nothing follows.
    last: bool,
    /// The provider sent it just so.
    verbatim: bool,
}

impl<'a> Given<'a> {
    fn new(input: SignalInput<'a>, is_streaming: bool) -> Self {
        let kind = if is_streaming { FrameKind::Event } else { FrameKind::Body };
        let native = match input {
            SignalInput::Delta(delta) => delta.metadata.as_ref(),
            SignalInput::Response(response) => response.metadata.as_ref(),
            SignalInput::Native(native) => Some(native),
        };
        let told = native.and_then(|native| native.get("eventType").or(native.get("event_type")));
        let told = told.and_then(Value::as_str).unwrap_or_default();
        let given = Self {
            native: native.map(parts).unwrap_or_default(),
            event: told,
            words: ["", ""],
            text: "",
            kind,
            last: !is_streaming,
            verbatim: matches!(input, SignalInput::Native(_)),
        };
        match input {
            SignalInput::Delta(delta) => Self {
                event: delta.event_type.as_deref().filter(|name| !name.is_empty()).unwrap_or(told),
                words: [word(delta.finish_reason.as_ref()), ""],
                text: &delta.text,
                last: given.last || delta.finished == Some(true),
                ..given
            },
            SignalInput::Response(response) => Self {
                words: [word(response.finish_reason.as_ref()), word(response.status.as_ref())],
                text: &response.text,
                kind: FrameKind::Body,
                last: true,
                ..given
            },
            SignalInput::Native(_) => given,
        }
    }

    /// The wire that reads it: the one that is named, else the provider's first whose shape it has,
    /// else the provider's first that knows its word.
    fn wire(&self, registry: &Registry, context: &SignalContext) -> Wire {
        let dialect = context.wire.as_deref().unwrap_or_default();
        let shape = self.shape();
        let clues = Clues {
            provider: &context.provider,
            dialect,
            version: context.api_version.as_deref().unwrap_or_default(),
            body: shape.as_bytes(),
            ..Clues::default()
        };
        let mut wire = registry.choose(&clues);
        let knows = |wire: &Wire| self.is_known_to(wire);
        if dialect.is_empty() && !self.is_of(&wire) && !knows(&wire) {
            let own = provider::by_id(&context.provider).unwrap_or(provider::GENERIC);
            let others = own
                .wires()
                .map(|other| registry.choose(&Clues { dialect: other.dialect.id, ..clues }));
            wire = others.into_iter().find(&knows).unwrap_or(wire);
        }
        // A word of its tables is as good as a shape.
        wire.profile.ambiguous &= !knows(&wire);
        wire
    }

    /// One of its words is in the tables of this wire.
    fn is_known_to(&self, wire: &Wire) -> bool {
        let bare = self.words.iter().filter(|word| !word.is_empty());
        let mut nested = self.native.iter().flat_map(|native| {
            wire.profile.tables().flat_map(move |table| words_of(table, native).into_iter())
        });
        bare.into_iter().any(|word| look_up(wire, word).is_some())
            || nested.any(|(_, word)| look_up(wire, &word.to_text()).is_some())
    }

    /// Its event as a stream would carry it, for telling the wire by.
    fn shape(&self) -> String {
        let name = self.event.lines().next().unwrap_or_default();
        let data = self.native.first().map_or("{}".to_owned(), ToString::to_string);
        format!("event: {name}\ndata: {data}\n\n")
    }

    /// It has the shape of this wire.
    fn is_of(&self, wire: &Wire) -> bool {
        let data = self.native.first().map_or("{}".to_owned(), ToString::to_string);
        let frame = Frame { name: self.event, ..Frame::event(data.as_bytes()) };
        shape::is_of(&frame, wire.profile.dialect)
    }

    /// It is a whole body, rather than an event or a part of either.
    fn is_whole(&self, wire: &Wire) -> bool {
        let is_whole = |native: &&Value| {
            let known = || shape::claim(&Frame::event(native.to_string().as_bytes())).is_some();
            let mut places = wire.profile.tables().filter_map(place);
            places.any(|place| native.get(key(first(place))).is_some()) || known()
        };
        self.kind == FrameKind::Body
            && !self.native.is_empty()
            && (self.verbatim || self.native.iter().all(is_whole))
    }

    /// The wires whose words it may speak: where it is known which wire it came in, that one and the
    /// provider's main one, in whose words frameworks say what the others do.
    fn tongue(&self, registry: &Registry, wire: &Wire, context: &SignalContext) -> Vec<Wire> {
        let sure = context.wire.is_some() || self.is_of(wire);
        let all = provider::by_id(wire.profile.provider).into_iter().flat_map(Provider::wires);
        let others = all.take(if sure { 1 } else { usize::MAX }).map(|other| {
            let (provider, dialect) = (context.provider.as_str(), other.dialect.id);
            registry.choose(&Clues { provider, dialect, ..Clues::default() })
        });
        std::iter::once(wire.clone()).chain(others).collect()
    }

    fn read(&self, choice: u32, tongue: &[Wire], reader: &mut Reader) {
        for native in &self.native {
            self.read_native(native, reader);
        }
        if self.native.is_empty() && !self.event.is_empty() {
            self.read_frame(b"{}", reader);
        }
        let body = self.kind == FrameKind::Body && reader.facts().has_any_content();
        if !body && !self.is_whole(reader.wire()) {
            reader.set_partial();
        }
        for word in self.words.into_iter().filter(|word| !word.is_empty()) {
            self.read_word(choice, word, tongue, reader);
        }
        if !self.text.is_empty() && !reader.facts().has_content(choice) {
            reader.take(&Event::Text { choice, text: self.text });
        }
        if self.last && !reader.facts().proven && reader.facts().fault.is_none() {
            reader.take(&Event::Proof);
        }
    }

    fn read_native(&self, native: &Value, reader: &mut Reader) {
        match native {
            Value::Object(fields) => {
                let whole = put_back(fields, reader.wire());
                if !self.read_frame(whole.to_string().as_bytes(), reader) {
                    self.search(native, reader);
                }
            }
            // The data of an event as it came, such as the marker of the end.
            Value::String(data) => {
                self.read_frame(data.as_bytes(), reader);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
        }
    }

    fn read_frame(&self, data: &[u8], reader: &mut Reader) -> bool {
        reader.take_frame(&Frame { kind: self.kind, name: self.event, data, end: 0 })
    }

    /// Looks for words where the tables say that they stand, in what the dialect did not read as its
    /// own. Others that stand there say nothing: it may be anybody's.
    fn search(&self, native: &Value, reader: &mut Reader) {
        let facts = reader.facts();
        if facts.any_said() || facts.pending.is_some() || facts.fault.is_some() {
            return;
        }
        for table in reader.wire().profile.tables().collect::<Vec<_>>() {
            for (choice, word) in words_of(table, native) {
                let text = word.to_text();
                let is_known = reader.wire().meaning(table.field, &word) != Meaning::Unknown;
                if table.pending.contains(&&*text) && self.kind == FrameKind::Body {
                    reader.take(&Event::Pending { field: table.field, word: &text });
                } else if is_known {
                    reader.take(&Event::Word { choice, field: table.field, word });
                }
            }
        }
    }

    /// A word that stands alone, in the field of the wire that it is known in.
    fn read_word(&self, choice: u32, word: &str, tongue: &[Wire], reader: &mut Reader) {
        let found = tongue.iter().find_map(|wire| look_up(wire, word));
        let first =
            reader.wire().profile.tables().next().map_or("finish_reason", |table| table.field);
        let (field, spoken) = found.unwrap_or((first, Spoken::Word(Meaning::Unknown)));
        match spoken {
            Spoken::Pending if self.kind == FrameKind::Body => {
                reader.take(&Event::Pending { field, word });
            }
            Spoken::Pending => {}
            Spoken::Word(meaning) => {
                reader.say(choice, Said::new(field, clean(word, WORD_CAP)), meaning);
            }
        }
    }
}

/// A list is read element by element, as its framing would hand it over.
fn parts(native: &Value) -> Vec<&Value> {
    match native {
        Value::Array(list) => list.iter().collect(),
        Value::Object(_) | Value::String(_) => vec![native],
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// The word, unless it is one that says nothing.
fn word(word: Option<&String>) -> &str {
    word.map(String::as_str).filter(|word| *word != "null").unwrap_or_default()
}

/// What a lone word is on a wire.
#[derive(Clone, Copy)]
enum Spoken {
    /// The response is still to come.
    Pending,
    /// A word for the end.
    Word(Meaning),
}

/// The field in which a wire knows a word, if it does.
fn look_up(wire: &Wire, word: &str) -> Option<(&'static str, Spoken)> {
    let text = Word::Text(word.into());
    let number = word.parse().map(Word::Number).ok();
    let meaning = |field: &str| {
        let words = std::iter::once(&text).chain(&number);
        let mut meanings = words.map(|word| wire.meaning(field, word));
        meanings.find(|meaning| *meaning != Meaning::Unknown)
    };
    wire.profile.tables().find_map(|table| {
        if table.pending.contains(&word) {
            return Some((table.field, Spoken::Pending));
        }
        meaning(table.field).map(|meaning| (table.field, Spoken::Word(meaning)))
    })
}

/// Puts a part of an event back where the tables say that it stands: a lone candidate into the list
/// of candidates, a lone choice into that of choices. What is whole stays as it is.
fn put_back(part: &Map<String, Value>, wire: &Wire) -> Value {
    let mut whole = part.clone();
    for table in wire.profile.tables() {
        let Some(place) = place(table) else { continue };
        let first = first(place);
        if part.contains_key(key(first)) || !part.contains_key(key(self::first(table.field))) {
            continue;
        }
        let inside = place.split('.').skip(1).collect::<Vec<_>>().into_iter().rev();
        let inside = inside.fold(Value::Object(part.clone()), |inside, step| {
            Value::Object(Map::from_iter([(key(step).to_owned(), listed(step, inside))]))
        });
        whole.insert(key(first).to_owned(), listed(first, inside));
    }
    Value::Object(whole)
}

/// Where the field of a table stands, unless it stands at the top.
fn place(table: &Words) -> Option<&'static str> {
    table.path.strip_suffix(table.field)?.strip_suffix('.')
}

/// The first step of a path.
fn first(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The key of a step: `choices` of `choices[]`.
fn key(step: &str) -> &str {
    step.strip_suffix("[]").unwrap_or(step)
}

/// The value as this step of a path holds it.
fn listed(step: &str, value: Value) -> Value {
    if step.ends_with("[]") { Value::Array(vec![value]) } else { value }
}

/// The words of a table that stand in an event or in a part of one.
fn words_of<'v>(table: &Words, native: &'v Value) -> Vec<(u32, Word<'v>)> {
    let mut found = find(native, table.path);
    if found.is_empty() {
        found = find(native, table.field);
    }
    // A number is a word only where the wire counts its words.
    found.retain(|(_, word)| matches!(word, Word::Text(_)) || !table.numbers.is_empty());
    found
}

/// The words at a path, with the choices that they belong to.
fn find<'v>(native: &'v Value, path: &str) -> Vec<(u32, Word<'v>)> {
    let mut found = vec![(0, native)];
    for step in path.split('.') {
        let inside =
            found.into_iter().filter_map(|(choice, value)| Some((choice, value.get(key(step))?)));
        found = if step.ends_with("[]") {
            let lists = inside.filter_map(|(_, value)| value.as_array());
            lists.flat_map(|list| (0..).zip(list)).collect()
        } else {
            inside.collect()
        };
    }
    let word = |value: &'v Value| match value {
        Value::String(text) if !text.is_empty() && text != "null" => {
            Some(Word::Text(text.as_str().into()))
        }
        Value::Number(number) => number.as_i64().map(Word::Number),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    };
    found.into_iter().filter_map(|(choice, value)| Some((choice, word(value)?))).collect()
}
