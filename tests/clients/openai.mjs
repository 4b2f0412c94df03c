// OpenAI's client for Node as it is: only `baseURL` and the key are ours.

import assert from "node:assert/strict";
import { test } from "node:test";

import { API_KEY, BASE_URL, EMBEDDER, finished, imported, MODEL } from "./settings.mjs";

const { default: OpenAI, toFile } = await imported("openai");
const client = new OpenAI({ apiKey: API_KEY, baseURL: `${BASE_URL}/v1`, maxRetries: 0 });
const chat = { model: MODEL, messages: [{ role: "user", content: "hello" }] };

test("chat is answered whole, and streamed with its usage", async () => {
  const whole = await client.chat.completions.create(chat);
  assert.equal(whole.choices[0].message.content, "echo: hello");
  const chunks = [];
  const stream = await client.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) chunks.push(chunk);
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "echo: hello");
  assert.ok(chunks.at(-1).usage.completion_tokens > 0);
});

test("a response is answered whole and streamed", async () => {
  assert.equal((await client.responses.create({ model: MODEL, input: "hello" })).output_text, "echo: hello");
  const types = [];
  for await (const event of await client.responses.create({ model: MODEL, input: "hello", stream: true })) types.push(event.type);
  assert.deepEqual([types[0], types.at(-1)], ["response.created", "response.completed"]);
});

test("vectors have their length, asked for as numbers or, as the client does by itself, as base64", async () => {
  const found = [];
  for (const format of [{}, { encoding_format: "float" }]) {
    const { data } = await client.embeddings.create({ model: EMBEDDER, input: ["one", "two"], ...format });
    found.push(data.map((each) => each.embedding.map((number) => number.toFixed(4))));
  }
  assert.equal(found[0][0].length, 8);
  assert.deepEqual(found[0], found[1]);
});

test("a batch of a file is done, and its results are a line each", async () => {
  const texts = ["one", "two\u2028three"];
  const lines = texts.map((content, n) =>
    JSON.stringify({ custom_id: `${n}`, method: "POST", url: "/v1/chat/completions", body: { ...chat, messages: [{ role: "user", content }] } }),
  );
  const file = await client.files.create({ file: await toFile(Buffer.from(lines.join("\n")), "input.jsonl"), purpose: "batch" });
  const wish = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  const { id } = await client.batches.create(wish);
  const done = await finished(async () => {
    const batch = await client.batches.retrieve(id);
    return { ...batch, status: batch.completed_at ? batch.status : "running" };
  });
  assert.deepEqual([done.status, done.request_counts.completed], ["completed", 2]);
  const text = await (await client.files.content(done.output_file_id)).text();
  const said = text.trimEnd().split(/[\n\u2028]/).map((line) => JSON.parse(line).response.body.choices[0].message.content);
  assert.deepEqual(said, texts.map((each) => `echo: ${each}`));
});

test("lists are paged to their end", async () => {
  const made = [];
  for (const name of ["a", "b", "c"]) made.push(await client.files.create({ file: await toFile(Buffer.from("{}"), name), purpose: "user_data" }));
  const listed = [];
  for await (const file of client.files.list({ purpose: "user_data", limit: 2 })) listed.push(file.id);
  assert.deepEqual(listed, made.map((file) => file.id).reverse());
  for (const { id } of made) assert.equal((await client.files.delete(id)).deleted, true);
});

test("what is refused is an error of the client's own", async () => {
  const unknown = await client.chat.completions.create({ ...chat, model: "none" }).catch((e) => e);
  assert.ok(unknown instanceof OpenAI.NotFoundError, String(unknown));
  assert.equal(unknown.code, "model_not_found");
  const other = client.withOptions({ apiKey: "wrong" });
  const wrong = await other.models.list().catch((e) => e);
  assert.ok(wrong instanceof OpenAI.AuthenticationError, String(wrong));
});
