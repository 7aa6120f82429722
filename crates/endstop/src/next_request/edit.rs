//! A request that is being rewritten: the ways of going on, and the JSON work below them.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{
    ConversationShape, Impossible, MessageList, NextRequest, RequestChange, Restriction, Scale,
    SoFar, Speaker, Temperature, Wording,
};
use crate::provider::{Prefill, Profile, Resume, Role, TRAILING, Token, TokenInput, TokenOf};

/// A request that is being rewritten.
pub(super) struct Edit<'a> {
    profile: &'a Profile,
    request: Value,
}

impl<'a> Edit<'a> {
    pub(super) fn new(profile: &'a Profile, request: &Value) -> Result<Self, Impossible> {
        match request {
            Value::Object(_) => Ok(Self { profile, request: request.clone() }),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(Impossible::Strange { field: "" }),
        }
    }

    pub(super) fn done(self, how: RequestChange, sentence: String) -> NextRequest {
        NextRequest {
            request: self.request,
            how,
            sentence,
            echoes: false,
            trimmed: 0,
            cap_counts_all: false,
            base_url: None,
        }
    }

    pub(super) fn by_prefill(
        mut self,
        prefill: Prefill,
        model: &str,
        so_far: &SoFar<'_>,
    ) -> Result<NextRequest, Impossible> {
        if let Some(bar) = self.barred_by(self.profile.request_shape.prefill_restrictions) {
            let because = format!("no prefill, because {}", bar.because);
            return Err(Impossible::NoPrefill { because });
        }
        let text = if prefill.trims { so_far.text.trim_end() } else { so_far.text };
        if text.trim_end().is_empty() {
            return Err(Impossible::NothingSoFar);
        }
        let talk = self.talk()?;
        match talk {
            ConversationShape::MessageList(turns) => self.prefill_turn(turns, prefill, text)?,
            ConversationShape::Prompt(field, echo) => self.prefill_prompt(field, echo, text)?,
            ConversationShape::Templated(field, raw) if self.is_true(raw) => {
                self.append(field, text)?
            }
            ConversationShape::Templated(..) | ConversationShape::Apart(..) => {
                let because =
                    "no prefill, because the prompt becomes a turn of the user".to_owned();
                return Err(Impossible::NoPrefill { because });
            }
        }
        for (flag, value) in prefill.request_flags {
            self.put(flag, json!(value))?;
        }
        let repeated = match talk {
            ConversationShape::Prompt(_, echo) => self.is_true(echo),
            ConversationShape::MessageList(_)
            | ConversationShape::Apart(..)
            | ConversationShape::Templated(..) => false,
        };
        let echoes = prefill.echoes || repeated;
        let sentence = format!(
            "the answer so far is prefilled, which {} goes on with for `{model}`",
            self.profile.provider
        );
        let trimmed = so_far.text.len() - text.len();
        let next = self.done(RequestChange::Prefill, sentence);
        Ok(NextRequest { echoes, trimmed, base_url: prefill.base_url, ..next })
    }

    pub(super) fn by_token(
        mut self,
        token: Token,
        so_far: &SoFar<'_>,
        hint: &str,
    ) -> Result<NextRequest, Impossible> {
        if let Some(bar) = self.barred_by(token.restrictions) {
            let because = format!("no {}, because {}", token.field, bar.because);
            return Err(Impossible::NoToken { because });
        }
        let given = match token.of {
            TokenOf::Response => so_far.id,
            TokenOf::Answer => so_far.token,
        };
        let held = token.held_by.is_some_and(|field| self.has(field));
        match given {
            _ if held => {}
            Some(given) => self.put(token.field, json!(given))?,
            None => {
                let because = format!("no {}, because the provider gave none", token.field);
                return Err(Impossible::NoToken { because });
            }
        }
        match token.input {
            TokenInput::Same => {}
            TokenInput::Hint(list, role) => {
                let turn = json!({ "role": role_name(role), "content": hint });
                self.put(list, json!([turn]))?;
            }
            TokenInput::HintText(field) => self.put(field, json!(hint))?,
            TokenInput::Token(field, input) => {
                let Some(token) = so_far.token else {
                    let because = format!("no {field}, because the provider gave none");
                    return Err(Impossible::NoToken { because });
                };
                self.put(field, json!(token))?;
                self.remove(input);
            }
        }
        let field = if held { token.held_by.unwrap_or(token.field) } else { token.field };
        let sentence = format!("{} knows the answer so far by `{field}`", self.profile.provider);
        let next = self.done(RequestChange::Token { field: field.to_owned() }, sentence);
        Ok(NextRequest { cap_counts_all: token.cap_counts_all, ..next })
    }

    pub(super) fn by_resend(
        mut self,
        so_far: &SoFar<'_>,
        sums_up: &str,
    ) -> Result<NextRequest, Impossible> {
        let content = so_far.content.ok_or(Impossible::NoContent)?;
        if content.as_array().is_some_and(Vec::is_empty) || content.is_null() {
            return Err(Impossible::NoContent);
        }
        if let Some([only]) = content.as_array().map(Vec::as_slice)
            && only.get("type").and_then(Value::as_str) == Some(sums_up)
        {
            return Err(Impossible::SummedUp);
        }
        let ConversationShape::MessageList(turns) = self.talk()? else {
            return Err(unsupported(self.profile, "taking up a pause"));
        };
        let list = self.list(turns)?;
        list.push(turn_of(turns, turns.assistant, content.clone()));
        let sentence = "the answer goes back as it came, and the provider takes it up".to_owned();
        Ok(self.done(RequestChange::Resend, sentence))
    }

    pub(super) fn by_hint(
        mut self,
        role: Role,
        so_far: &SoFar<'_>,
        wording: &Wording,
    ) -> Result<NextRequest, Impossible> {
        if so_far.text.trim_end().is_empty() {
            return Err(Impossible::NothingSoFar);
        }
        let hint = match (role, self.talk()?) {
            (Role::System | Role::Developer, ConversationShape::MessageList(_)) => {
                wording.hint.to_string()
            }
            (_, ConversationShape::MessageList(_) | ConversationShape::Apart(..)) => {
                quoting(&wording.hint, tail(so_far.text, wording.tail))
            }
            // No turn of the assistant's holds the answer, so that all of it is quoted.
            (_, ConversationShape::Templated(..)) => quoting(&wording.hint, so_far.text),
            (_, ConversationShape::Prompt(..)) => return Err(unsupported(self.profile, "a hint")),
        };
        self.say(so_far.text, role, &hint)?;
        let sentence = format!("the model is asked to go on, by the {}", role_name(role));
        Ok(self.done(RequestChange::Hint { role }, sentence))
    }

    pub(super) fn messages(&self) -> Option<u32> {
        let count = |field: &str| match self.at(field) {
            Some(Value::Array(list)) => u32::try_from(list.len()).unwrap_or(u32::MAX),
            Some(Value::Null) | None => 0,
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => 1,
        };
        Some(match self.talk().ok()? {
            ConversationShape::MessageList(turns) => count(turns.list),
            ConversationShape::Apart(message, turns) => {
                count(turns.list).saturating_add(count(message))
            }
            ConversationShape::Prompt(field, _) | ConversationShape::Templated(field, _) => {
                count(field)
            }
        })
    }

    /// Appends the answer so far, if there is any, and then what we say.
    pub(super) fn say(&mut self, answer: &str, role: Role, ask: &str) -> Result<(), Impossible> {
        match self.talk()? {
            ConversationShape::MessageList(turns) => {
                let list = self.list(turns)?;
                if !answer.trim_end().is_empty() {
                    add(list, turns, Speaker::Assistant, answer);
                }
                add(list, turns, Speaker::Asker(role), ask);
                Ok(())
            }
            ConversationShape::Apart(message, turns) => self.say_apart(message, turns, answer, ask),
            ConversationShape::Prompt(field, _) | ConversationShape::Templated(field, _) => {
                self.append(field, &format!("\n\n{ask}"))
            }
        }
    }

    fn say_apart(
        &mut self,
        message: &'static str,
        turns: MessageList,
        answer: &str,
        ask: &str,
    ) -> Result<(), Impossible> {
        if answer.trim_end().is_empty() {
            return self.append(message, &format!("\n\n{ask}"));
        }
        let asked = self.at(message).cloned().unwrap_or_default();
        if !self.has(turns.list) {
            self.put(turns.list, json!([]))?;
        }
        let list = self.list(turns)?;
        list.push(turn_of(turns, turns.user, asked));
        list.push(turn_of(turns, turns.assistant, json!(answer)));
        self.put(message, json!(ask))
    }

    fn prefill_turn(
        &mut self,
        turns: MessageList,
        prefill: Prefill,
        text: &str,
    ) -> Result<(), Impossible> {
        let list = self.list(turns)?;
        // Where the reply repeats a prefill of the caller's own, the text so far holds it already.
        let repeats = prefill.echoes
            && list
                .last()
                .and_then(|turn| turn.get(turns.content)?.as_str())
                .is_some_and(|own| text.starts_with(own))
            && list.last().is_some_and(|turn| is_role(turn, turns.assistant));
        if repeats {
            list.pop();
        }
        add(list, turns, Speaker::Assistant, text);
        if let (Some(flag), Some(turn)) =
            (prefill.message_flag, list.last_mut().and_then(Value::as_object_mut))
        {
            turn.insert(flag.to_owned(), json!(true));
        }
        Ok(())
    }

    /// Appends to the text that the model goes on writing. Where its replies repeat that text, the
    /// answer so far begins with it already.
    fn prefill_prompt(
        &mut self,
        field: &'static str,
        echo: &str,
        text: &str,
    ) -> Result<(), Impossible> {
        let own = self.at(field).and_then(Value::as_str).unwrap_or_default();
        let new = text.strip_prefix(own).filter(|_| self.is_true(echo)).unwrap_or(text).to_owned();
        self.append(field, &new)
    }

    /// Forces the tool, and says in which field, or why not.
    pub(super) fn force(
        &mut self,
        model: &str,
        tool: &str,
    ) -> Result<Result<&'static str, &'static str>, Impossible> {
        let forced_tools = self.profile.request_shape.forced_tools;
        let Some(force) = forced_tools.iter().find(|force| self.has(force.tools)) else {
            let declared = TOOLS.iter().any(|field| self.has(field));
            let why = "this host takes no choice of a tool";
            return if declared { Ok(Err(why)) } else { Err(Impossible::NoTools) };
        };
        if !self.at(force.tools).is_some_and(|tools| declares(tools, tool)) {
            return Ok(Err("the request does not declare it"));
        }
        if !is_of(model, force.models) {
            return Ok(Err("this model takes no choice of a tool"));
        }
        if let Some(bar) = self.barred_by(force.restrictions) {
            return Ok(Err(bar.because));
        }
        self.put(force.field, (force.value)(tool))?;
        Ok(Ok(force.field))
    }

    /// Sets the temperature to 0, if it may be.
    pub(super) fn cool(&mut self, model: &str) -> Result<bool, Impossible> {
        let Temperature { field, refused_by, only_if_sent } =
            self.profile.request_shape.temperature;
        let refused = refused_by.iter().any(|known| model.contains(known));
        if field.is_empty() || refused || only_if_sent && !self.has(field) {
            return Ok(false);
        }
        // Where thinking forbids forcing, it forbids this too.
        let restrictions =
            self.profile.request_shape.forced_tools.iter().flat_map(|force| force.restrictions);
        if restrictions.into_iter().any(|bar| self.is_barred_by(bar)) {
            return Ok(false);
        }
        self.put(field, json!(0))?;
        Ok(true)
    }

    pub(super) fn tune(
        mut self,
        field: &'static str,
        from: Value,
        to: Value,
    ) -> Result<NextRequest, Impossible> {
        let was = if from.is_null() { String::new() } else { format!(" instead of {from}") };
        let sentence = format!("`{field}` is {to}{was}, so that the model reasons less");
        self.put(field, to.clone())?;
        Ok(self.done(RequestChange::Effort { field: field.to_owned(), from, to }, sentence))
    }

    pub(super) fn unsaid(&self, scale: Scale) -> Option<Value> {
        match scale {
            Scale::Words { unsaid, given, .. } => {
                let said = |(field, word)| self.at(field).and_then(Value::as_str) == Some(word);
                given.is_none_or(said).then_some(unsaid).flatten().map(|word| json!(word))
            }
            Scale::Tokens { unsaid, .. } => unsaid.map(|tokens| json!(tokens)),
            Scale::Default(_, off) => Some(json!(off)),
            Scale::Switch(..) | Scale::Flag => None,
        }
    }

    /// Returns how an answer to this request can be resumed. A text that the model goes on writing needs no
    /// rule.
    pub(super) fn rule(&self, model: &str) -> Result<Resume, Impossible> {
        let rule = self.profile.resume_for(model);
        let hinted = matches!(rule, Resume::Hint(_));
        let is_text = match self.profile.request_shape.talk {
            [] => false,
            _ if !hinted => false,
            _ => match self.talk()? {
                ConversationShape::Prompt(..) => true,
                ConversationShape::Templated(_, raw) => self.is_true(raw),
                ConversationShape::MessageList(_) | ConversationShape::Apart(..) => false,
            },
        };
        Ok(if is_text { Resume::Prefill(TRAILING) } else { rule })
    }

    fn talk(&self) -> Result<ConversationShape, Impossible> {
        let all = self.profile.request_shape.talk;
        let first =
            all.first().ok_or_else(|| unsupported(self.profile, "a longer conversation"))?;
        let here = all.iter().find(|talk| self.has(talk.field()));
        here.copied().ok_or(Impossible::Strange { field: first.field() })
    }

    /// The list of turns. One text in its place is made the user's turn.
    fn list(&mut self, turns: MessageList) -> Result<&mut Vec<Value>, Impossible> {
        if let Some(text) = self.at(turns.list).filter(|list| list.is_string()) {
            let turn = turn_of(turns, turns.user, text.clone());
            self.put(turns.list, json!([turn]))?;
        }
        let either_case = self.profile.request_shape.either_case;
        let list = at_mut(&mut self.request, turns.list, either_case).and_then(Value::as_array_mut);
        list.ok_or(Impossible::Strange { field: turns.list })
    }

    /// Appends to the text in this field, or to the only text of the list there.
    fn append(&mut self, field: &'static str, text: &str) -> Result<(), Impossible> {
        let either_case = self.profile.request_shape.either_case;
        let mut at = at_mut(&mut self.request, field, either_case);
        if let Some(Value::Array(list)) = at {
            at = if list.len() == 1 { list.first_mut() } else { None };
        }
        match at {
            Some(Value::String(prompt)) => {
                prompt.push_str(text);
                Ok(())
            }
            _ => Err(Impossible::Strange { field }),
        }
    }

    fn barred_by(&self, restrictions: &'static [Restriction]) -> Option<&'static Restriction> {
        restrictions.iter().find(|bar| self.is_barred_by(bar))
    }

    fn is_barred_by(&self, bar: &Restriction) -> bool {
        match self.at(bar.field) {
            None | Some(Value::Null) => bar.by_default,
            Some(Value::Bool(on)) => *on != bar.fine.contains(&"true"),
            Some(Value::String(word)) => !bar.fine.contains(&word.as_str()),
            Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => true,
        }
    }

    fn is_true(&self, field: &str) -> bool {
        self.at(field) == Some(&Value::Bool(true))
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.at(field).is_some_and(|value| !value.is_null())
    }

    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        let either_case = self.profile.request_shape.either_case;
        path.split('.').try_fold(&self.request, |value, name| {
            let object = value.as_object()?;
            object.get(&*spelled(object, name, either_case))
        })
    }

    pub(super) fn put(&mut self, path: &'static str, value: Value) -> Result<(), Impossible> {
        let mut at = &mut self.request;
        for name in path.split('.') {
            if at.is_null() {
                *at = json!({});
            }
            let object = at.as_object_mut().ok_or(Impossible::Strange { field: path })?;
            let name = spelled(object, name, self.profile.request_shape.either_case).into_owned();
            at = object.entry(name).or_insert(Value::Null);
        }
        *at = value;
        Ok(())
    }

    fn remove(&mut self, field: &str) {
        if let Some(object) = self.request.as_object_mut() {
            object.remove(field);
        }
    }
}

impl ConversationShape {
    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::MessageList(turns) => turns.list,
            Self::Apart(field, _) | Self::Prompt(field, _) | Self::Templated(field, _) => field,
        }
    }
}

/// The fields where requests declare tools, on wires that cannot force one.
const TOOLS: &[&str] = &["tools", "functions", "input.tools", "parameters.tools"];

/// Adds words to a list of turns: to its last turn where that is the same speaker's, since many
/// hosts refuse two in a row.
fn add(list: &mut Vec<Value>, turns: MessageList, speaker: Speaker, text: &str) {
    let role = match speaker {
        Speaker::Assistant => turns.assistant,
        Speaker::Asker(Role::User) => turns.user,
        Speaker::Asker(role @ (Role::System | Role::Developer)) => role_name(role),
    };
    let last = list.last_mut().filter(|turn| is_role(turn, role));
    match last.and_then(|turn| turn.get_mut(turns.content)) {
        Some(Value::String(own)) => {
            if speaker != Speaker::Assistant {
                own.push_str("\n\n");
            }
            own.push_str(text);
        }
        Some(Value::Array(parts)) => parts.push((turns.part)(speaker, text)),
        _ => {
            let content =
                if turns.plain { json!(text) } else { json!([(turns.part)(speaker, text)]) };
            list.push(turn_of(turns, role, content));
        }
    }
}

fn turn_of(turns: MessageList, role: &str, content: Value) -> Value {
    let mut turn = Map::new();
    turn.insert("role".to_owned(), json!(role));
    turn.insert(turns.content.to_owned(), content);
    Value::Object(turn)
}

fn is_role(turn: &Value, role: &str) -> bool {
    turn.get("role").and_then(Value::as_str) == Some(role)
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
    }
}

fn quoting(hint: &str, text: &str) -> String {
    format!(
        "{hint}\n\nThe previous response ended with:\n<previous_response_end>\n{text}\n</previous_response_end>"
    )
}

/// The last characters of a text.
fn tail(text: &str, characters: usize) -> &str {
    let start = characters.checked_sub(1).and_then(|back| text.char_indices().rev().nth(back));
    match start {
        Some((start, _)) => text.get(start..).unwrap_or(text),
        None if characters == 0 => "",
        None => text,
    }
}

/// Whether something in here is called by this name.
fn declares(tools: &Value, tool: &str) -> bool {
    match tools {
        Value::Array(tools) => tools.iter().any(|inner| declares(inner, tool)),
        Value::Object(fields) => {
            fields.get("name").and_then(Value::as_str) == Some(tool)
                || fields.values().any(|inner| declares(inner, tool))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The next lower value; none if there is none.
pub(super) fn lower(scale: Scale, from: &Value) -> Option<Value> {
    match scale {
        Scale::Words { words, .. } => lower_word(words, from.as_str()?),
        Scale::Tokens { least, unsaid } => match from.as_u64() {
            Some(tokens) => (tokens > least).then(|| json!((tokens / 2).max(least))),
            None => from.is_number().then(|| json!(unsaid.unwrap_or(least))),
        },
        Scale::Switch(on, off) | Scale::Default(on, off) => {
            (from.as_str() == Some(on)).then(|| json!(off))
        }
        Scale::Flag => (from == &Value::Bool(true)).then_some(Value::Bool(false)),
    }
}

fn lower_word(words: &[&str], from: &str) -> Option<Value> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(from))?;
    let to = words.get(at + 1)?;
    let shouts = from.chars().all(|letter| !letter.is_lowercase());
    Some(if shouts { json!(to.to_uppercase()) } else { json!(to) })
}

pub(super) fn is_of(model: &str, models: &[&str]) -> bool {
    models.is_empty() || models.iter().any(|known| model.contains(known))
}

pub(super) fn unsupported(profile: &Profile, what: &'static str) -> Impossible {
    Impossible::Unsupported { wire: profile.dialect.id, what }
}

fn at_mut<'a>(request: &'a mut Value, path: &str, either_case: bool) -> Option<&'a mut Value> {
    path.split('.').try_fold(request, |value, name| {
        let object = value.as_object_mut()?;
        let name = spelled(object, name, either_case).into_owned();
        object.get_mut(&name)
    })
}

/// The name as this object spells it.
fn spelled<'a>(object: &Map<String, Value>, name: &'a str, either_case: bool) -> Cow<'a, str> {
    if !either_case || object.contains_key(name) {
        return Cow::Borrowed(name);
    }
    let snake = name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    });
    if object.contains_key(&snake) { Cow::Owned(snake) } else { Cow::Borrowed(name) }
}
