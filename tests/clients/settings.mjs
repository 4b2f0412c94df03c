// Where the tests' installation is, which version of a client is tried, and how a caller waits for a batch.

import { setTimeout as sleep } from "node:timers/promises";

export const { BASE_URL, API_KEY, ACCOUNT, MODEL, CHAT_MODEL, EMBEDDER, ENGINE_URL } = process.env;
export const API = `${BASE_URL}/client/v4`;

/** The client of this name; with BEFORE, that of about a year before. */
export const imported = (name) => import(process.env.BEFORE ? `${name}-before` : name);

/** The result of a batch, once `poll` says neither "queued" nor "running", as Workers AI's documentation loops. */
export async function finished(poll) {
  for (const end = Date.now() + 20_000; Date.now() < end; await sleep(100)) {
    const result = await poll();
    if (result.status !== "queued" && result.status !== "running") return result;
  }
  throw new Error("the batch is not done after 20 s");
}
