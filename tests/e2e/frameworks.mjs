// Runs one agent framework, with a tool that writes a file, through the scenarios.
// The fact that matters is `written`: what the tool wrote. See `cells.mjs` for what is printed. Each
// cell has a model name of its own, by which the provider's ledger counts its requests.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import {
  BARE, BARE_SCHEMA, QUESTION, SCHEMA, TIMEOUT, TOOL, WITHOUT_PARAMETERS, flags, runAll, waysOf,
} from "./cells.mjs";

// Like the agents in Python: where to write is optional, what to write is not.
const AGENT_SCHEMA = { ...SCHEMA, required: ["content"] };
const schemaOf = ({ bare }) => (bare ? BARE_SCHEMA : AGENT_SCHEMA);
const BOTH_WIRES = ["OpenAI chat", "Anthropic Messages"];

// The tool as a function: writes each call into a file of its own.
function writer({ folder, bare }) {
  mkdirSync(folder, { recursive: true });
  let number = 0;
  return async ({ path, content }) => {
    writeFileSync(join(folder, `${number++}`), bare ? BARE : content);
    return `wrote ${path}`;
  };
}

// A limit on retries, where they are to be off.
const limits = ({ retries }, off) => (retries === "none" ? off : {});

// Vercel AI SDK

async function aiModel({ wire, root, model }) {
  if (wire === "Anthropic Messages") {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: `${root}/anthropic/v1`, apiKey: "k" })(model);
  }
  const { createOpenAI } = await import("@ai-sdk/openai");
  const openai = createOpenAI({ baseURL: `${root}/openai/v1`, apiKey: "k" });
  return wire === "OpenAI Responses" ? openai.responses(model) : openai.chat(model);
}

async function aiAsked(asked) {
  const { jsonSchema, stepCountIs, tool } = await import("ai");
  const inputSchema = jsonSchema(schemaOf(asked));
  const execute = writer(asked);
  return {
    model: await aiModel(asked),
    prompt: QUESTION,
    tools: { [TOOL.name]: tool({ description: TOOL.description, inputSchema, execute }) },
    stopWhen: stepCountIs(5),
    ...limits(asked, { maxRetries: 0 }),
    abortSignal: AbortSignal.timeout(TIMEOUT),
  };
}

async function aiPlain(asked) {
  const { generateText } = await import("ai");
  return (await generateText(await aiAsked(asked))).text;
}

// An error reaches the caller as a part of the stream, through `onError`, or as a rejection.
async function aiStreamed(asked) {
  const { streamText } = await import("ai");
  let failure;
  let text = "";
  const onError = ({ error }) => { failure ??= error; };
  try {
    for await (const part of streamText({ ...(await aiAsked(asked)), onError }).fullStream) {
      if (part.type === "text-delta") text += part.text;
      if (part.type === "error") failure ??= part.error;
    }
  } catch (error) {
    failure ??= error;
  }
  if (failure !== undefined) throw failure;
  return text;
}

// Mastra

async function mastra(asked) {
  const { Agent } = await import("@mastra/core/agent");
  const { createTool } = await import("@mastra/core/tools");
  const { z } = await import("zod");
  const inputSchema = asked.bare
    ? z.object({})
    : z.object({ path: z.string().optional(), content: z.string() });
  const write = writer(asked);
  // What a tool is handed changed between versions: the arguments, or a context that holds them.
  const execute = async (given) => write(given.content === undefined ? given.context ?? {} : given);
  const write_file = createTool({ id: TOOL.name, description: TOOL.description, inputSchema, execute });
  const agent = new Agent({
    id: "writer", name: "writer", instructions: "Write the file.", model: await aiModel(asked),
    tools: { write_file }, ...limits(asked, { maxRetries: 0 }),
  });
  const options = { maxSteps: 5, abortSignal: AbortSignal.timeout(TIMEOUT) };
  if (asked.retries === "none") options.modelSettings = { maxRetries: 0 };
  return [agent, options];
}

async function mastraPlain(asked) {
  const [agent, options] = await mastra(asked);
  const answer = await agent.generate(QUESTION, options);
  if (answer.error) throw answer.error;
  return answer.text;
}

async function mastraStreamed(asked) {
  const [agent, options] = await mastra(asked);
  const answer = await agent.stream(QUESTION, options);
  let failure;
  let text = "";
  for await (const part of answer.fullStream) {
    if (part.type === "text-delta") text += part.payload?.text ?? "";
    if (part.type === "error") failure ??= part.payload?.error ?? part;
  }
  failure ??= answer.error;
  if (failure !== undefined) throw failure instanceof Error ? failure : new Error(JSON.stringify(failure));
  return text;
}

// LangGraph

async function langgraph(asked, streaming) {
  const { createReactAgent } = await import("@langchain/langgraph/prebuilt");
  const { tool } = await import("@langchain/core/tools");
  const { wire, root, model } = asked;
  const common = { model, apiKey: "k", streaming, ...limits(asked, { maxRetries: 0 }) };
  let llm;
  if (wire === "OpenAI chat") {
    const { ChatOpenAI } = await import("@langchain/openai");
    llm = new ChatOpenAI({ ...common, timeout: TIMEOUT, configuration: { baseURL: `${root}/openai/v1` } });
  } else {
    const { ChatAnthropic } = await import("@langchain/anthropic");
    llm = new ChatAnthropic({ ...common, maxTokens: 512, anthropicApiUrl: `${root}/anthropic` });
  }
  const write_file = tool(writer(asked), { ...TOOL, schema: schemaOf(asked) });
  return createReactAgent({ llm, tools: [write_file] });
}

const asMessages = { messages: [{ role: "user", content: QUESTION }] };
const bounded = () => ({ signal: AbortSignal.timeout(TIMEOUT), recursionLimit: 10 });

async function langgraphPlain(asked) {
  const agent = await langgraph(asked, false);
  const { messages } = await agent.invoke(asMessages, bounded());
  return messages.at(-1).text;
}

async function langgraphStreamed(asked) {
  const agent = await langgraph(asked, true);
  let text = "";
  for await (const [piece] of await agent.stream(asMessages, { ...bounded(), streamMode: "messages" })) {
    if (piece.getType() === "ai") text += piece.text;
  }
  return text;
}

const FRAMEWORKS = {
  "AI SDK": [[...BOTH_WIRES, "OpenAI Responses"], aiStreamed, aiPlain],
  Mastra: [[...BOTH_WIRES, "OpenAI Responses"], mastraStreamed, mastraPlain],
  "LangGraph.js": [BOTH_WIRES, langgraphStreamed, langgraphPlain],
};

function* cells(name, ways, rows, scratch) {
  const [wires, streamed, plain] = FRAMEWORKS[name];
  const slug = name.toLowerCase().replace(/\W+/g, "");
  let number = 0;
  for (const wire of wires) {
    for (const [how, go] of [["streamed", streamed], ["plain", plain]]) {
      for (const [scenario, retries] of rows) {
        for (const [via, root] of ways) {
          const folder = join(scratch, name, `${number}`);
          const model = `${slug}${number++}-sim-${scenario}`;
          const facts = { framework: name, wire, how, scenario, via, retries, model };
          const bare = scenario.startsWith(WITHOUT_PARAMETERS);
          yield [facts, (facts) => run(facts, go, { wire, root, model, folder, retries, bare })];
        }
      }
    }
  }
}

async function run(facts, go, asked) {
  mkdirSync(asked.folder, { recursive: true });
  try {
    facts.text = await go(asked);
  } finally {
    const files = readdirSync(asked.folder).sort();
    facts.written = files.map((file) => readFileSync(join(asked.folder, file), "utf8"));
  }
}

const { name, scenarios, retried, scratch, ...rest } = flags();
const ways = waysOf(rest).filter(([via]) => via !== "observe");
const rows = (names, retries) => names.filter(Boolean).map((scenario) => [scenario, retries]);
const once = rows(scenarios.split(","), "none");
await runAll(cells(name, ways, [...once, ...rows(retried.split(" "), "default")], scratch));
process.exit(0);
