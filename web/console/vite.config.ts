import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Where `npm run dev` finds a server; the built console is served by the server itself. */
const SERVER = process.env["ANTIPHON_URL"] ?? "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "@antiphon/client": here("../client/src/index.ts") } },
  build: {
    outDir: here("../../src/antiphon/server/console/dist"),
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    assetsInlineLimit: 0, // an inlined file would be a data: address, which the policy forbids
    modulePreload: { polyfill: false },
    license: { fileName: "licenses.md" }, // of what is in the bundle and not ours
    rolldownOptions: {
      input: { console: here("index.html") },
      // Names without hashes: the server tells versions apart, and the history of the bundle can be followed.
      output: { entryFileNames: "assets/[name].js", assetFileNames: "assets/[name][extname]", codeSplitting: false },
    },
  },
  server: { proxy: { "/antiphon": SERVER, "/healthz": SERVER, "/metrics": SERVER } },
  test: { environment: "node", include: ["src/**/*.test.ts"] },
});
