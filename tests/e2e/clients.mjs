// Runs one npm SDK through its calls and scenarios; see `cells.mjs` for what is printed.

import { QUESTION, SCHEMA, TIMEOUT, TOOL, flags, runAll, waysOf } from "./cells.mjs";

const MESSAGES = [{ role: "user", content: QUESTION }];

// What a caller saw of a turn: its text, the word for its end, its tool calls.
class Seen {
  text = "";
  word = null;
  calls = new Map();

  addText(text) {
    this.text += text ?? "";
  }

  addWord(word) {
    this.word = word ?? this.word;
  }

  addCall(key, name, args) {
    const call = this.calls.get(key) ?? { name: "", args: "" };
    call.name += name ?? "";
    call.args += typeof args === "object" ? JSON.stringify(args) : (args ?? "");
    this.calls.set(key, call);
  }

  facts() {
    return { text: this.text, word: this.word, calls: [...this.calls.values()] };
  }
}

// OpenAI

const chatTools = [{ type: "function", function: { ...TOOL, parameters: SCHEMA } }];
const responsesTools = [{ type: "function", ...TOOL, parameters: SCHEMA, strict: false }];

async function openai(root, options = { maxRetries: 0 }) {
  const { default: OpenAI } = await import("openai");
  return new OpenAI({ baseURL: `${root}/openai/v1`, apiKey: "k", timeout: TIMEOUT, ...options });
}

async function chatPlain(root, model, seen) {
  const client = await openai(root);
  const answer = await client.chat.completions.create({ model, messages: MESSAGES, tools: chatTools });
  seeChat(answer.choices[0], answer.choices[0].message, seen);
}

async function chatRaw(root, model, seen) {
  const client = await openai(root);
  const asked = { model, messages: MESSAGES, tools: chatTools, stream: true };
  for await (const chunk of await client.chat.completions.create(asked)) {
    for (const choice of chunk.choices) seeChat(choice, choice.delta, seen);
  }
}

async function chatHelper(root, model, seen) {
  const client = await openai(root);
  const stream = client.chat.completions.stream({ model, messages: MESSAGES, tools: chatTools });
  const [choice] = (await stream.finalChatCompletion()).choices;
  seeChat(choice, choice.message, seen);
}

function seeChat(choice, message, seen) {
  seen.addText(message.content);
  seen.addWord(choice.finish_reason);
  (message.tool_calls ?? []).forEach((call, at) =>
    seen.addCall(call.index ?? at, call.function?.name, call.function?.arguments));
}

async function responsesPlain(root, model, seen) {
  const client = await openai(root);
  seeResponse(await client.responses.create({ model, input: QUESTION, tools: responsesTools }), seen);
}

async function responsesRaw(root, model, seen) {
  const client = await openai(root);
  const asked = { model, input: QUESTION, tools: responsesTools, stream: true };
  for await (const event of await client.responses.create(asked)) {
    if (event.type === "response.output_text.delta") seen.addText(event.delta);
    if (event.type === "response.output_item.added" && event.item.type === "function_call")
      seen.addCall(event.output_index, event.item.name);
    if (event.type === "response.function_call_arguments.delta")
      seen.addCall(event.output_index, undefined, event.delta);
    if (/^response\.(completed|incomplete|failed)$/.test(event.type)) seen.addWord(event.response.status);
  }
}

async function responsesHelper(root, model, seen) {
  const client = await openai(root);
  const stream = client.responses.stream({ model, input: QUESTION, tools: responsesTools });
  seeResponse(await stream.finalResponse(), seen);
}

function seeResponse(answer, seen) {
  seen.addText(answer.output_text);
  seen.addWord(answer.status);
  answer.output.forEach((item, at) => {
    if (item.type === "function_call") seen.addCall(at, item.name, item.arguments);
  });
}

// A refused tool call would only repeat itself: the SDK, with the retries it makes by default,
// must ask once. `scripts/e2e` counts the requests that carry the tag.
async function chatPlainRetrying(root, model, seen) {
  const client = await openai(root, { defaultHeaders: { "x-sim-tag": RETRY_TAG } });
  const answer = await client.chat.completions.create({ model, messages: MESSAGES, tools: chatTools });
  seeChat(answer.choices[0], answer.choices[0].message, seen);
}

// Anthropic

async function anthropic(root, model) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: `${root}/anthropic`, apiKey: "k", timeout: TIMEOUT, maxRetries: 0 });
  const tools = [{ ...TOOL, input_schema: SCHEMA }];
  return [client.messages, { model, max_tokens: 512, messages: MESSAGES, tools }];
}

async function anthropicPlain(root, model, seen) {
  const [messages, asked] = await anthropic(root, model);
  seeMessage(await messages.create(asked), seen);
}

async function anthropicRaw(root, model, seen) {
  const [messages, asked] = await anthropic(root, model);
  for await (const event of await messages.create({ ...asked, stream: true })) {
    if (event.type === "content_block_start" && event.content_block.type === "tool_use")
      seen.addCall(event.index, event.content_block.name);
    if (event.type === "content_block_delta") {
      seen.addText(event.delta.text);
      if (event.delta.type === "input_json_delta")
        seen.addCall(event.index, undefined, event.delta.partial_json);
    }
    if (event.type === "message_delta") seen.addWord(event.delta.stop_reason);
  }
}

async function anthropicHelper(root, model, seen) {
  const [messages, asked] = await anthropic(root, model);
  seeMessage(await messages.stream(asked).finalMessage(), seen);
}

function seeMessage(message, seen) {
  seen.addWord(message.stop_reason);
  message.content.forEach((block, at) => {
    seen.addText(block.text);
    if (block.type === "tool_use") seen.addCall(at, block.name, block.input);
  });
}

// Gemini

async function gemini(root, model) {
  const { GoogleGenAI } = await import("@google/genai");
  const httpOptions = { baseUrl: `${root}/gemini`, timeout: TIMEOUT, retryOptions: { attempts: 1 } };
  const declaration = { ...TOOL, parametersJsonSchema: SCHEMA };
  const config = { tools: [{ functionDeclarations: [declaration] }] };
  const client = new GoogleGenAI({ apiKey: "k", httpOptions });
  return [client.models, { model: `gemini-${model}`, contents: QUESTION, config }];
}

async function geminiPlain(root, model, seen) {
  const [models, asked] = await gemini(root, model);
  seeCandidates(await models.generateContent(asked), seen);
}

async function geminiStream(root, model, seen) {
  const [models, asked] = await gemini(root, model);
  for await (const chunk of await models.generateContentStream(asked)) seeCandidates(chunk, seen);
}

function seeCandidates(answer, seen) {
  for (const candidate of answer.candidates ?? []) {
    seen.addWord(candidate.finishReason);
    for (const part of candidate.content?.parts ?? []) {
      seen.addText(part.text);
      if (part.functionCall) seen.addCall(seen.calls.size, part.functionCall.name, part.functionCall.args);
    }
  }
}

// The Vercel AI SDK: one pair of calls over the models of each of its provider packages

const AI_MODELS = {
  async chat(root, model) {
    const { createOpenAI } = await import("@ai-sdk/openai");
    return createOpenAI({ baseURL: `${root}/openai/v1`, apiKey: "k" }).chat(model);
  },
  async responses(root, model) {
    const { createOpenAI } = await import("@ai-sdk/openai");
    return createOpenAI({ baseURL: `${root}/openai/v1`, apiKey: "k" }).responses(model);
  },
  async compatible(root, model) {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    return createOpenAICompatible({ name: "sim", baseURL: `${root}/openai/v1`, apiKey: "k" })(model);
  },
  async anthropic(root, model) {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: `${root}/anthropic/v1`, apiKey: "k" })(model);
  },
  async google(root, model) {
    const { createGoogleGenerativeAI } = await import("@ai-sdk/google");
    return createGoogleGenerativeAI({ baseURL: `${root}/gemini/v1beta`, apiKey: "k" })(`gemini-${model}`);
  },
};

async function aiCall(model) {
  const { jsonSchema, tool } = await import("ai");
  // Without `execute` a call is handed to the caller and the turn is over.
  const tools = { [TOOL.name]: tool({ description: TOOL.description, inputSchema: jsonSchema(SCHEMA) }) };
  const abortSignal = AbortSignal.timeout(TIMEOUT);
  return { model, prompt: QUESTION, tools, maxRetries: 0, abortSignal };
}

function aiPlain(kind) {
  return async (root, model, seen) => {
    const { generateText } = await import("ai");
    const answer = await generateText(await aiCall(await AI_MODELS[kind](root, model)));
    seen.addText(answer.text);
    seen.addWord(answer.finishReason);
    for (const call of answer.toolCalls) seen.addCall(call.toolCallId, call.toolName, call.input);
  };
}

// An error reaches the caller as a part of the stream, through `onError`, or as a rejection.
function aiStream(kind) {
  return async (root, model, seen) => {
    const { streamText } = await import("ai");
    let failure;
    const onError = ({ error }) => { failure ??= error; };
    const asked = await aiCall(await AI_MODELS[kind](root, model));
    try {
      for await (const part of streamText({ ...asked, onError }).fullStream) {
        if (part.type === "text-delta") seen.addText(part.text);
        if (part.type === "tool-call") seen.addCall(part.toolCallId, part.toolName, part.input);
        if (part.type === "finish") seen.addWord(part.finishReason);
        if (part.type === "error") failure ??= part.error;
      }
    } catch (error) {
      failure ??= error;
    }
    if (failure !== undefined) throw failure;
  };
}

function aiCalls(wire, kind) {
  return [[wire, "generateText", aiPlain(kind)], [wire, "streamText", aiStream(kind)]];
}

const CLIENTS = {
  openai: [
    ["OpenAI chat", "create", chatPlain],
    ["OpenAI chat", "create({stream})", chatRaw],
    ["OpenAI chat", "stream()", chatHelper],
    ["OpenAI Responses", "create", responsesPlain],
    ["OpenAI Responses", "create({stream})", responsesRaw],
    ["OpenAI Responses", "stream()", responsesHelper],
  ],
  "@anthropic-ai/sdk": [
    ["Anthropic Messages", "create", anthropicPlain],
    ["Anthropic Messages", "create({stream})", anthropicRaw],
    ["Anthropic Messages", "stream()", anthropicHelper],
  ],
  "@google/genai": [
    ["Gemini", "generateContent", geminiPlain],
    ["Gemini", "generateContentStream", geminiStream],
  ],
  "ai + @ai-sdk/openai": [
    ...aiCalls("OpenAI chat", "chat"),
    ...aiCalls("OpenAI Responses", "responses"),
  ],
  "ai + @ai-sdk/openai-compatible": aiCalls("OpenAI chat", "compatible"),
  "ai + @ai-sdk/anthropic": aiCalls("Anthropic Messages", "anthropic"),
  "ai + @ai-sdk/google": aiCalls("Gemini", "google"),
};

const RETRY_TAG = "e2e-retry";
const RETRIED = ["OpenAI chat", "create, default retries", chatPlainRetrying];

function* cells(name, ways, scenarios) {
  for (const [wire, call, ask] of CLIENTS[name]) {
    for (const scenario of scenarios) {
      for (const [via, root] of ways) yield cell(name, { wire, call, scenario, via }, ask, root);
    }
  }
  const guard = ways.find(([via]) => via === "guard");
  if (name === "openai" && guard) {
    const [wire, call, ask] = RETRIED;
    const facts = { wire, call, scenario: "length-whole-args", via: "guard", tag: RETRY_TAG };
    yield cell(name, facts, ask, guard[1]);
  }
}

function cell(name, facts, ask, root) {
  const run = async (facts) => {
    const seen = new Seen();
    try {
      await ask(root, `sim-${facts.scenario}`, seen);
    } finally {
      Object.assign(facts, seen.facts());
    }
  };
  return [{ client: `npm ${name}`, ...facts }, run];
}

const { name, scenarios, ...rest } = flags();
await runAll(cells(name, waysOf(rest), scenarios.split(",")));
process.exit(0);
