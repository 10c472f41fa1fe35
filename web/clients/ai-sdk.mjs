// The Vercel AI SDK as an unchanged client: each line of standard input is one job, each line of standard output what
// the application that asked would have seen. Nothing of the SDK is configured but base URL, key and model.

import { createInterface } from "node:readline";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const MODEL = "rehearsal";

/** A model as each provider package makes it, at the base URL that its clients are given. */
const doors = {
  chat: (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "any" }).chat(MODEL),
  compatible: (url) => createOpenAICompatible({ name: "antiphon", baseURL: `${url}/v1`, apiKey: "any" })(MODEL),
  responses: (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "any" }).responses(MODEL),
  messages: (url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: "any" })(MODEL),
};

/** What is seen of an error, wherever it comes: the SDK wraps the last of those that it tried again. */
function seen(error) {
  const last = error?.lastError ?? error;
  const told = last?.data?.error ?? last?.error ?? {};
  return {
    name: last?.name ?? String(last),
    message: String(last?.message ?? told.message ?? ""),
    status: last?.statusCode ?? null,
    body: last?.responseBody ?? null,
    retryable: last?.isRetryable ?? null,
    tries: error?.errors?.length ?? 1,
  };
}

async function work(job) {
  const asked = [];
  const weather = tool({
    description: "Tell the weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      asked.push(city);
      return `rain in ${city}`;
    },
  });
  const shown = [];
  const failed = [];
  const call = {
    model: doors[job.door](job.url),
    ...(job.messages ? { messages: job.messages } : { prompt: "What is the weather in Oslo?" }),
    ...(job.system ? { instructions: job.system } : {}),
    ...(job.tools ? { tools: { weather }, stopWhen: isStepCount(5) } : {}),
  };
  const result = { shown, asked, failed };
  try {
    if (job.stream) {
      const streamed = streamText({ ...call, onError: ({ error }) => void failed.push(seen(error)) });
      for await (const text of streamed.textStream) shown.push(text);
      for (const name of ["text", "finishReason", "totalUsage", "steps"]) {
        result[name] = await streamed[name];
      }
    } else {
      const whole = await generateText(call);
      for (const name of ["text", "finishReason", "totalUsage", "steps"]) result[name] = whole[name];
    }
    result.steps = result.steps.map((step) => step.finishReason);
  } catch (error) {
    delete result.steps;
    result.error = seen(error);
  }
  return result;
}

process.on("unhandledRejection", (error) => {
  console.log(JSON.stringify({ unhandled: seen(error) }));
  process.exitCode = 1;
});

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await work(JSON.parse(line))));
}
