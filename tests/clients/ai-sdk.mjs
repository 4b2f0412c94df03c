// Vercel's AI SDK with Cloudflare's workers-ai-provider. The provider's address stands in its source; its own `fetch` option
// is the only way to another one. It knows no batches, so a caller who wants them does it in that function, as `queueing`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { APICallError, embedMany, generateText, jsonSchema, Output, streamText, tool } from "ai";
import { createWorkersAI } from "workers-ai-provider";

import { ACCOUNT, API, API_KEY, CHAT_MODEL, EMBEDDER, ENGINE_URL, finished, MODEL } from "./settings.mjs";

const moved = (url, options) => fetch(String(url).replace("https://api.cloudflare.com/client/v4", API), options);
const provider = (through = moved) => createWorkersAI({ accountId: ACCOUNT, apiKey: API_KEY, fetch: through });

/** Submits the one request as a batch and answers with its result when the batch is done. */
async function queueing(url, options) {
  const post = (body) => moved(url, { ...options, body: JSON.stringify(body) });
  const submitted = await post({ requests: [JSON.parse(options.body)] });
  if (!submitted.ok) return submitted;
  const { request_id } = (await submitted.json()).result;
  const done = await finished(async () => (await (await post({ request_id })).json()).result);
  return Response.json({ ...done.responses[0], errors: [], messages: [] });
}

test("generateText answers with text, usage and cached tokens of a native model", async () => {
  const { text, usage, finishReason } = await generateText({ model: provider()(MODEL), prompt: "hello" });
  assert.deepEqual([text, finishReason], ["echo: hello", "stop"]);
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
  assert.ok(usage.inputTokenDetails.cacheReadTokens > 0, JSON.stringify(usage));
});

test("generateText answers with text of a chat completion model", async () => {
  const { text } = await generateText({ model: provider()(CHAT_MODEL), prompt: "hello" });
  assert.equal(text, "echo: hello");
});

test("streamText streams native frames to a proper end", () => streams(MODEL));

test("streamText streams chat completion frames to a proper end", () => streams(CHAT_MODEL));

async function streams(model) {
  const result = streamText({ model: provider()(model), prompt: "hello" });
  const pieces = [];
  for await (const piece of result.textStream) pieces.push(piece);
  assert.equal(pieces.join(""), "echo: hello");
  assert.ok(pieces.length > 1, "all in one piece");
  assert.equal(await result.finishReason, "stop");
  assert.ok((await result.usage).outputTokens > 0);
}

test("an object of a schema is answered in JSON mode", async () => {
  await script({ match: "a city", mode: "junk", body: JSON.stringify(completion({ content: '{"city": "Paris"}' })) });
  const output = Output.object({ schema: jsonSchema({ type: "object", properties: { city: { type: "string" } } }) });
  const answer = await generateText({ model: provider()(MODEL), prompt: "a city", output });
  assert.deepEqual(answer.output, { city: "Paris" });
});

test("tools are called with their arguments", async () => {
  const call = { id: "call-1", type: "function", function: { name: "weather", arguments: '{"city": "Paris"}' } };
  await script({ match: "weather?", mode: "junk", body: JSON.stringify(completion({ content: null, tool_calls: [call] })) });
  const weather = tool({ inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } } }) });
  for (const model of [MODEL, CHAT_MODEL]) {
    const { toolCalls } = await generateText({ model: provider()(model), prompt: "weather?", tools: { weather } });
    assert.deepEqual(toolCalls.map((each) => [each.toolName, each.input]), [["weather", { city: "Paris" }]]);
  }
});

test("embedMany answers a vector for each text", async () => {
  const values = ["one", "two", "one"];
  const { embeddings } = await embedMany({ model: provider().textEmbedding(EMBEDDER), values });
  assert.deepEqual(embeddings.map((vector) => vector.length), [8, 8, 8]);
  assert.deepEqual(embeddings[0], embeddings[2]);
  assert.notDeepEqual(embeddings[0], embeddings[1]);
});

test("a busy engine is tried again by the SDK itself", async () => {
  await script({ match: "busy?", mode: "status", status: 503, times: 1 });
  const statuses = [];
  const noting = async (...call) => {
    const response = await moved(...call);
    statuses.push(response.status);
    return response;
  };
  const { text } = await generateText({ model: provider(noting)(MODEL), prompt: "busy?" });
  assert.equal(text, "echo: busy?");
  assert.deepEqual(statuses, [429, 200]);
});

test("queueRequest and a fetch that wraps and polls answer from the queue", async () => {
  const urls = [];
  const noting = (url, options) => (urls.push(url), queueing(url, options));
  const settings = { queueRequest: true, sessionAffinity: "ses_1" };
  const { text, usage } = await generateText({ model: provider(noting)(MODEL, settings), prompt: "queued" });
  assert.equal(text, "echo: queued");
  assert.ok(usage.outputTokens > 0);
  assert.match(urls[0], /\?queueRequest=true$/);
});

test("queueRequest alone is refused at once with what to do, not lost later", async () => {
  const model = provider()(MODEL, { queueRequest: true });
  const error = await generateText({ model, prompt: "bare" }).catch((e) => e);
  assert.ok(APICallError.isInstance(error), String(error));
  assert.deepEqual([error.statusCode, error.isRetryable], [400, false]);
  assert.match(error.responseBody, /wrap the single request/);
});

/** Sets the fake engine's rules. */
const script = (...rules) => fetch(`${ENGINE_URL}/_script`, { method: "POST", body: JSON.stringify(rules) });

/** An engine's answer with this message. */
function completion(message) {
  const choice = { index: 0, finish_reason: message.tool_calls ? "tool_calls" : "stop", message: { role: "assistant", ...message } };
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
  return { id: "c", object: "chat.completion", created: 1, model: MODEL, choices: [choice], usage };
}
