/** Two pages that somebody else could have written, made of nothing but packages from npm. */

import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  root: "pages",
  base: "/pages/",
  plugins: [react()],
  build: {
    outDir: "../dist",
    emptyOutDir: true,
    sourcemap: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2_000,
    rolldownOptions: { input: ["pages/usechat.html", "pages/assistant.html"] },
  },
});
