//! Hand-made endings, for tests that read no bytes.

use endstop::{
    ChoiceEnding, Closed, Confidence, Ending, Fault, FaultKind, Reason, Said, Shown, Usage,
};

/// The content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Text,
    Nothing,
    Reasoning,
    Call,
    CutCall,
}

pub(crate) const HOLDS: [Holds; 5] =
    [Holds::Text, Holds::Nothing, Holds::Reasoning, Holds::Call, Holds::CutCall];

impl Holds {
    pub(crate) fn shown(self) -> Shown {
        let none = Shown::default();
        match self {
            Self::Text => Shown { text: true, ..none },
            Self::Nothing => none,
            Self::Reasoning => Shown { reasoning: true, ..none },
            Self::Call => Shown { text: true, tool_calls: 1, ..none },
            Self::CutCall => Shown { text: true, tool_calls: 1, unfinished_tool_calls: 1, ..none },
        }
    }
}

pub(crate) fn ending(reason: Reason, confidence: Confidence, shown: Shown) -> Ending {
    let sentence = format!("the provider said `{}`", reason.name());
    let said = Some(Said { field: "finish_reason", word: reason.name().to_owned() });
    Ending {
        provider: "acme".to_owned(),
        dialect: "acme-chat",
        model: Some("m".to_owned()),
        said: said.clone(),
        closed: if reason == Reason::Cut { Closed::Reset } else { Closed::Proven },
        shown,
        reason,
        confidence,
        sentence: sentence.clone(),
        over: true,
        fault: None,
        usage: Usage::default(),
        choices: vec![ChoiceEnding { index: 0, said, shown, reason, confidence, sentence }],
        details: Vec::new(),
        ratings: Vec::new(),
        streamed: None,
        cap: None,
        api_version: None,
        bytes: 0,
        events: 0,
    }
}

/// Creates an ending with high confidence and text.
pub(crate) fn plain(reason: Reason) -> Ending {
    ending(reason, Confidence::High, Holds::Text.shown())
}

pub(crate) fn used(ending: Ending, input: u64, output: u64) -> Ending {
    let usage = Usage { input: Some(input), output: Some(output), ..ending.usage };
    Ending { usage, ..ending }
}

pub(crate) fn failed(kind: FaultKind) -> Ending {
    let fault = Fault { kind, ..Fault::default() };
    let nothing = ending(Reason::Failed, Confidence::High, Shown::default());
    Ending { fault: Some(fault), said: None, closed: Closed::Error, ..nothing }
}

/// A small random number generator with a fixed seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize]
    }
}
