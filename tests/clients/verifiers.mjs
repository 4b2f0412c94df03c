// A webhook as it came, given in WEBHOOK as JSON, is genuine by the official verifiers; SECRET is the subscription's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Webhook as SvixWebhook } from "svix";
import { imported } from "./settings.mjs";

const { Webhook: StandardWebhook } = await imported("standardwebhooks");
const { headers, body } = JSON.parse(process.env.WEBHOOK);
const forged = body.replace("batch.succeeded", "batch.failed");

function verifies(Verifier) {
  const verifier = new Verifier(process.env.SECRET);
  assert.doesNotThrow(() => verifier.verify(body, headers));
  assert.throws(() => verifier.verify(forged, headers), /signature/i);
  assert.throws(() => new Verifier("whsec_" + "A".repeat(43) + "=").verify(body, headers), /signature/i);
}

test("standardwebhooks", () => verifies(StandardWebhook));

test("svix", () => verifies(SvixWebhook));
