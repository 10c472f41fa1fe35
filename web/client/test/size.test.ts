/** What a page loads for all of this. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

test("the whole of it is at most 8 KB, minified and compressed, and needs nothing else", async (t) => {
  const entry = fileURLToPath(new URL("../../src/index.ts", import.meta.url));
  const built = await build({ entryPoints: [entry], bundle: true, minify: true, format: "esm", write: false, metafile: true });
  const size = gzipSync(built.outputFiles[0]?.contents ?? "", { level: 9 }).length;
  t.diagnostic(`${size} bytes`);
  assert.ok(size > 1_000 && size <= 8 * 1024, `${size} bytes`);
  for (const input of Object.keys(built.metafile.inputs)) assert.match(input, /src\/\w+\.ts$/);
});
