//! Detectors: deltas and responses of frameworks, read by the dialect of the provider.
//!
//! If the metadata holds the provider's event or body, the dialect reads it. A part of an event,
//! such as a single candidate, is first put back at the path that the dialect's tables give. A bare
//! finish reason is read as the value of the dialect's field. The verdict is the same as for bytes.

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

/// One chunk of a stream, in the form that frameworks use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// Whether this is the last delta, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<bool>,
    /// Type of its event. Metadata may give it too, as `eventType` or `event_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The provider's finish reason, if the delta has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Text of the delta.
    pub text: String,
    /// The provider's event, or part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A whole response, in the form that frameworks use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Response {
    /// The provider's finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Status of a polled response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Text of the response.
    pub text: String,
    /// The provider's body, or part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Input of the detectors.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SignalInput<'a> {
    /// A chunk of a stream.
    Delta(&'a Delta),
    /// A whole response.
    Response(&'a Response),
    /// An unchanged event or body of the provider.
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

/// Reports whether the input ends the response: the `should_terminate` of [`detect_termination`].
///
/// A delta is read as part of a stream, and a response as a whole. A native value is read as part
/// of a stream unless the context says that the response is not streamed.
pub fn is_terminal<'a>(input: impl Into<SignalInput<'a>>, context: &SignalContext) -> bool {
    Registry::default().is_terminal(input, context)
}

/// Returns the termination signal of a delta, a response or a native value.
///
/// A delta is terminal if it has a finish reason, an end marker or an error, or if it is marked as
/// the last. An error takes precedence over a finish reason. Of two finish reasons, the less
/// complete one counts. A response that is not streamed is over, unless its status is pending.
pub fn detect_termination<'a>(
    input: impl Into<SignalInput<'a>>,
    is_streaming: bool,
    context: &SignalContext,
) -> TerminationSignal {
    detect(&Registry::default(), input.into(), is_streaming, context)
}

impl Registry {
    /// Returns the termination signal of an event or a response, with the providers that were
    /// registered at run time.
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

    /// Returns the termination signal if more than the provider is known.
    pub fn detect_termination_in<'a>(
        &self,
        response: impl Into<SignalInput<'a>>,
        is_streaming: bool,
        context: &SignalContext,
    ) -> TerminationSignal {
        detect(self, response.into(), is_streaming, context)
    }

    /// Reports whether the input ends the response, with the providers that were registered at run
    /// time.
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
    let request = RequestInfo {
        streamed: context.streamed.or(Some(is_streaming)),
        cap: context.cap,
        ..RequestInfo::default()
    };
    let candidate_wires = given.candidate_wires(registry, &wire, context);
    let mut reader = Reader::of_pieces(wire, request);
    reader.take(&Event::Usage(context.usage));
    given.read(context.choice.unwrap_or(0), &candidate_wires, &mut reader);
    let ending = reader.so_far().unwrap_or_else(|| reader.under_way());
    TerminationSignal::from(&ending).within(context)
}

/// Parts of an input of any kind.
struct Given<'a> {
    native: Vec<&'a Value>,
    event: &'a str,
    words: [&'a str; 2],
    text: &'a str,
    kind: FrameKind,
    /// Nothing follows this input.
    last: bool,
    /// The input is an unchanged value of the provider.
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

    /// Returns the wire to read the input with: the named wire, or else the provider's first wire
    /// of this shape, or else the provider's first wire that knows the finish reason.
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
        // A finish reason in the wire's tables identifies the wire as well as a shape does.
        wire.profile.ambiguous &= !knows(&wire);
        wire
    }

    /// Reports whether one of the finish reasons is in the tables of this wire.
    fn is_known_to(&self, wire: &Wire) -> bool {
        let bare = self.words.iter().filter(|word| !word.is_empty());
        let mut nested = self.native.iter().flat_map(|native| {
            wire.profile.tables().flat_map(move |table| words_of(table, native).into_iter())
        });
        bare.into_iter().any(|word| look_up(wire, word).is_some())
            || nested.any(|(_, word)| look_up(wire, &word.to_text()).is_some())
    }

    /// Returns the event in the form of a stream, to detect the wire.
    fn shape(&self) -> String {
        let name = self.event.lines().next().unwrap_or_default();
        let data = self.native.first().map_or("{}".to_owned(), ToString::to_string);
        format!("event: {name}\ndata: {data}\n\n")
    }

    /// Reports whether the input has the shape of this wire.
    fn is_of(&self, wire: &Wire) -> bool {
        let data = self.native.first().map_or("{}".to_owned(), ToString::to_string);
        let frame = Frame { name: self.event, ..Frame::event(data.as_bytes()) };
        shape::is_of(&frame, wire.profile.dialect)
    }

    /// Reports whether the input is a whole body, not an event or a part.
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

    /// Returns the wires whose finish reasons the input may use. If the wire is known, these are
    /// that wire and the provider's main wire, because frameworks translate finish reasons to the
    /// main wire.
    fn candidate_wires(
        &self,
        registry: &Registry,
        wire: &Wire,
        context: &SignalContext,
    ) -> Vec<Wire> {
        let sure = context.wire.is_some() || self.is_of(wire);
        let all = provider::by_id(wire.profile.provider).into_iter().flat_map(Provider::wires);
        let others = all.take(if sure { 1 } else { usize::MAX }).map(|other| {
            let (provider, dialect) = (context.provider.as_str(), other.dialect.id);
            registry.choose(&Clues { provider, dialect, ..Clues::default() })
        });
        std::iter::once(wire.clone()).chain(others).collect()
    }

    fn read(&self, choice: u32, candidate_wires: &[Wire], reader: &mut Reader) {
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
            self.read_word(choice, word, candidate_wires, reader);
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
            // Raw data of an event, such as an end marker.
            Value::String(data) => {
                self.read_frame(data.as_bytes(), reader);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
        }
    }

    fn read_frame(&self, data: &[u8], reader: &mut Reader) -> bool {
        reader.take_frame(&Frame { kind: self.kind, name: self.event, data, end: 0 })
    }

    /// Looks for finish reasons at the paths of the tables, in a value that the dialect did not
    /// read. Unknown values there are ignored, because the value may have any format.
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

    /// Reads a bare finish reason as the value of the field whose table contains it.
    fn read_word(&self, choice: u32, word: &str, candidate_wires: &[Wire], reader: &mut Reader) {
        let found = candidate_wires.iter().find_map(|wire| look_up(wire, word));
        let first = reader.wire().profile.main_field();
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

/// Splits a list into its elements, as the framing of a stream does.
fn parts(native: &Value) -> Vec<&Value> {
    match native {
        Value::Array(list) => list.iter().collect(),
        Value::Object(_) | Value::String(_) => vec![native],
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Returns the finish reason; empty if it is missing or `null`.
fn word(word: Option<&String>) -> &str {
    word.map(String::as_str).filter(|word| *word != "null").unwrap_or_default()
}

/// Meaning of a bare finish reason on a wire.
#[derive(Clone, Copy)]
enum Spoken {
    /// The response is pending.
    Pending,
    /// Finish reason.
    Word(Meaning),
}

/// Returns the field whose table contains a finish reason, and its meaning.
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

/// Puts a part of an event back at the path that the tables give, such as a single candidate into
/// the list of candidates. A whole event stays unchanged.
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

/// Returns the path to the object that holds the field of a table; `None` at the top level.
fn place(table: &Words) -> Option<&'static str> {
    table.path.strip_suffix(table.field)?.strip_suffix('.')
}

/// Returns the first step of a path.
fn first(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// Returns the key of a step: `choices` for `choices[]`.
fn key(step: &str) -> &str {
    step.strip_suffix("[]").unwrap_or(step)
}

/// Wraps the value in a list if this step of a path is a list.
fn listed(step: &str, value: Value) -> Value {
    if step.ends_with("[]") { Value::Array(vec![value]) } else { value }
}

/// Returns the values of a table's field in an event or in part of one.
fn words_of<'v>(table: &Words, native: &'v Value) -> Vec<(u32, Word<'v>)> {
    let mut found = find(native, table.path);
    if found.is_empty() {
        found = find(native, table.field);
    }
    // A number is a finish reason only on wires that number their finish reasons.
    found.retain(|(_, word)| matches!(word, Word::Text(_)) || !table.numbers.is_empty());
    found
}

/// Returns the values at a path, each with its choice.
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
