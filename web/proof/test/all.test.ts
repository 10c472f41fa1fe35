/** One process, so that one browser is enough for all of it. */

import { after, before } from "node:test";
import { raise, strike } from "../src/stage.ts";

before(raise);
after(strike);

const only = process.env["PROOF"]?.split(",") ?? ["protocol", "pages", "console", "network", "people", "size", "fallback", "pictures"];
for (const name of only) await import(`./${name}.test.js`);
