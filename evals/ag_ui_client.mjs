// A conversation by the protocol's own client: `node ag_ui_client.mjs URL TOKEN` prints what it saw, as JSON.
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const [url, token] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId: "a-page", headers: { Authorization: `Bearer ${token}` } });
const tools = [
  {
    name: "pick_colour",
    description: "Let the person pick a colour on the page.",
    parameters: { type: "object", properties: { hint: { type: "string" } }, required: ["hint"] },
  },
];
const runs = [];

async function run(resume) {
  const seen = { events: [], text: "", pending: [], interrupts: [], error: "" };
  const watcher = {
    onEvent: ({ event }) => {
      if (event.type !== seen.events.at(-1)) seen.events.push(event.type);
      if (event.type === "TEXT_MESSAGE_CONTENT") seen.text += event.delta;
    },
    onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => {
      seen.outcome = outcome;
      seen.pending = pendingToolCallIds ?? [];
    },
    onRunErrorEvent: ({ event }) => {
      seen.error = event.message;
    },
  };
  await agent.runAgent({ tools, ...(resume ? { resume } : {}) }, watcher);
  seen.interrupts = agent.pendingInterrupts.map(({ toolCallId, message }) => ({ toolCallId, message }));
  runs.push(seen);
  return seen;
}

function say(id, content) {
  agent.addMessage({ id, role: "user", content });
}

function answer(payload) {
  const answers = agent.pendingInterrupts.map(({ id }) => [id, { status: "resolved", payload }]);
  return buildResumeArray(agent.pendingInterrupts, Object.fromEntries(answers));
}

say("m1", "What is in this folder?");
await run();
say("m2", "Write it down.");
await run();
await run(answer({ approved: false, note: "not there" }));
say("m3", "Then there.");
await run();
await run(answer({ approved: true }));
say("m4", "Paint it.");
const paused = await run();
for (const id of paused.pending) agent.addMessage({ id: `r-${id}`, role: "tool", toolCallId: id, content: "red" });
await run();

const messages = agent.messages.map(({ role, content, toolCalls, toolCallId }) => ({
  role,
  content: content ?? "",
  calls: (toolCalls ?? []).map((call) => call.function),
  answers: toolCallId ?? "",
}));
console.log(JSON.stringify({ runs, messages }));
