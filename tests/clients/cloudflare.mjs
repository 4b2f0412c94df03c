// Cloudflare's TypeScript SDK as it is: only `baseURL` and the token are ours.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ACCOUNT, API, API_KEY, CHAT_MODEL, finished, imported, MODEL } from "./settings.mjs";

const { default: Cloudflare } = await imported("cloudflare");
const made = (options) => new Cloudflare({ apiToken: API_KEY, baseURL: API, ...options });
const client = made({});
const run = (model, body, options) => client.ai.run(model, { account_id: ACCOUNT, ...body }, options);
const messages = [{ role: "user", content: "hello" }];

test("a prompt is answered in the native shape", async () => {
  const result = await run(MODEL, { prompt: "hello", max_tokens: 8 });
  assert.equal(result.response, "echo: hello");
  assert.ok(result.usage.prompt_tokens_details.cached_tokens > 0);
});

test("a model whose name has slashes is answered as a chat completion", async () => {
  const result = await run(CHAT_MODEL, { messages });
  assert.equal(result.choices[0].message.content, "echo: hello");
});

test("a stream has native frames and ends in DONE", async () => {
  const response = await run(MODEL, { messages, stream: true }).asResponse();
  const text = await response.text();
  const frames = text.split("\n\n").filter(Boolean).map((frame) => frame.replace(/^data: /, ""));
  assert.equal(frames.pop(), "[DONE]");
  const said = frames.map((frame) => JSON.parse(frame).response ?? "").join("");
  assert.equal(said, "echo: hello");
});

test("a batch is submitted with queueRequest and polled", async () => {
  const requests = ["one", "two"].map((prompt) => ({ prompt, external_reference: `ref-${prompt}` }));
  const queued = await run(MODEL, { requests }, { query: { queueRequest: true } });
  assert.deepEqual([queued.status, queued.model], ["queued", MODEL]);
  const done = await finished(() => run(MODEL, { request_id: queued.request_id }));
  assert.deepEqual(done.responses.map((r) => [r.id, r.success, r.external_reference, r.result.response]), [
    [0, true, "ref-one", "echo: one"],
    [1, true, "ref-two", "echo: two"],
  ]);
});

test("an unknown model is an error of the client's own with code 5007, not tried again", async () => {
  let calls = 0;
  const counting = made({ fetch: (...call) => (calls++, fetch(...call)) });
  const error = await counting.ai.run("@cf/no/such", { account_id: ACCOUNT, prompt: "x" }).catch((e) => e);
  assert.ok(error instanceof Cloudflare.BadRequestError, String(error));
  assert.equal(error.errors[0].code, 5007);
  assert.equal(calls, 1);
});

test("a wrong token is the client's AuthenticationError", async () => {
  const error = await made({ apiToken: "wrong" }).ai.run(MODEL, { account_id: ACCOUNT, prompt: "x" }).catch((e) => e);
  assert.ok(error instanceof Cloudflare.AuthenticationError, String(error));
});

test("the list of models ends and names every model once", async () => {
  const names = [];
  for await (const model of client.ai.models.list({ account_id: ACCOUNT })) {
    names.push(model.name);
    assert.ok(names.length < 1000, "the pages do not end");
  }
  assert.ok(names.includes(MODEL) && names.includes(CHAT_MODEL), String(names));
  assert.equal(new Set(names).size, names.length);
});
