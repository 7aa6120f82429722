// What the Node runners share: the question, the tool, and how a cell is run and reported.
//   node RUNNER.mjs NAME [--direct URL] [--observe URL] [--guard URL] --scenarios A,B,C
// A runner prints one JSON line per cell and judges nothing: `scripts/e2e` does.

export const TIMEOUT = 30_000; // milliseconds; only there so that nothing hangs
const CELLS_AT_ONCE = 4;

export const QUESTION = "Write a haiku about the end of a stream into haiku.txt.";
export const TOOL = { name: "write_file", description: "Writes content to a file." };
export const SCHEMA = {
  type: "object",
  properties: {
    path: { type: "string", description: "where to write" },
    content: { type: "string", description: "what to write" },
  },
  required: ["path", "content"],
  additionalProperties: false,
};

// In these scenarios the tool has no parameters, and writes this.
export const WITHOUT_PARAMETERS = "tool-call-no-args";
export const BARE = "without parameters";
export const BARE_SCHEMA = { type: "object", properties: {}, additionalProperties: false };

// The command line: the name, and the flags by their names.
export function flags() {
  const [name, ...rest] = process.argv.slice(2);
  const named = { name };
  for (let at = 0; at < rest.length; at += 2) named[rest[at].replace(/^--/, "")] = rest[at + 1];
  return named;
}

// The roots that were given, by the way to the provider.
export function waysOf(given) {
  return ["direct", "observe", "guard"].filter((via) => given[via]).map((via) => [via, given[via]]);
}

// Runs `[facts, run]` pairs, some at once; `run` fills in the facts and may throw.
export async function runAll(cells) {
  const work = async () => { for (const cell of cells) await run(...cell); };
  await Promise.all(Array.from({ length: CELLS_AT_ONCE }, work));
}

async function run(facts, call) {
  Object.assign(facts, { raised: null, hung: false });
  try {
    await call(facts);
  } catch (error) {
    Object.assign(facts, { raised: describe(error), hung: isTimeout(error) });
  }
  console.log(JSON.stringify(facts));
}

// A failure in one line, with the name of its class first.
function describe(error) {
  const name = error?.constructor?.name ?? typeof error;
  const message = [error?.message ?? JSON.stringify(error), error?.cause?.message];
  return `${name}: ${message.filter(Boolean).join(": ")}`.replace(/\s+/g, " ").slice(0, 400);
}

// Whether we gave up waiting: that is a hang, which no cell may count as a refusal.
function isTimeout(error) {
  for (let e = error; e; e = e.cause) {
    if (/Timeout/.test(`${e.constructor?.name} ${e.name}`) || /timed out/i.test(e.message)) return true;
  }
  return false;
}

// The AI SDK writes warnings about unknown models to standard output, which is ours.
globalThis.AI_SDK_LOG_WARNINGS = false;
// A helper may also reject promises that nobody asked for; the one asked for is what counts.
process.on("unhandledRejection", () => {});
