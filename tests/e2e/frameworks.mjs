// Runs the Vercel AI SDK as an agent, with a tool that writes a file, through the scenarios.
// The fact that matters is `written`: what the tool wrote. See `cells.mjs` for what is printed.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

import { QUESTION, SCHEMA, TIMEOUT, TOOL, flags, runAll, waysOf } from "./cells.mjs";

const MODELS = {
  "OpenAI chat": (root, model) => createOpenAI({ baseURL: `${root}/openai/v1`, apiKey: "k" }).chat(model),
  "Anthropic Messages": (root, model) => createAnthropic({ baseURL: `${root}/anthropic/v1`, apiKey: "k" })(model),
};

// Like the agents in Python: where to write is optional, what to write is not.
const AGENT_SCHEMA = { ...SCHEMA, required: ["content"] };

function agent(model, folder) {
  mkdirSync(folder, { recursive: true });
  let number = 0;
  const execute = async ({ path, content }) => {
    writeFileSync(join(folder, `${number++}`), content);
    return `wrote ${path}`;
  };
  const inputSchema = jsonSchema(AGENT_SCHEMA);
  return {
    model,
    prompt: QUESTION,
    tools: { [TOOL.name]: tool({ description: TOOL.description, inputSchema, execute }) },
    stopWhen: stepCountIs(5),
    maxRetries: 0,
    abortSignal: AbortSignal.timeout(TIMEOUT),
  };
}

async function plain(asked) {
  return (await generateText(asked)).text;
}

// An error reaches the caller as a part of the stream, through `onError`, or as a rejection.
async function streamed(asked) {
  let failure;
  let text = "";
  const onError = ({ error }) => { failure ??= error; };
  try {
    for await (const part of streamText({ ...asked, onError }).fullStream) {
      if (part.type === "text-delta") text += part.text;
      if (part.type === "error") failure ??= part.error;
    }
  } catch (error) {
    failure ??= error;
  }
  if (failure !== undefined) throw failure;
  return text;
}

function* cells(name, ways, scenarios, scratch) {
  let number = 0;
  for (const [wire, model] of Object.entries(MODELS)) {
    for (const [how, go] of [["streamed", streamed], ["plain", plain]]) {
      for (const scenario of scenarios) {
        for (const [via, root] of ways) {
          const folder = join(scratch, name, `${number++}`);
          const asked = agent(model(root, `sim-${scenario}`), folder);
          yield [{ framework: name, wire, how, scenario, via }, (facts) => run(facts, go, asked, folder)];
        }
      }
    }
  }
}

async function run(facts, go, asked, folder) {
  try {
    facts.text = await go(asked);
  } finally {
    facts.written = readdirSync(folder).sort().map((file) => readFileSync(join(folder, file), "utf8"));
  }
}

const { name, scenarios, scratch, ...rest } = flags();
const ways = waysOf(rest).filter(([via]) => via !== "observe");
await runAll(cells(name, ways, scenarios.split(","), scratch));
process.exit(0);
