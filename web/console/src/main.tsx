import { createRoot } from "react-dom/client";
import { readyAhead } from "./ahead";
import { App } from "./app";
import { applyPrefs } from "./prefs";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/thread.css";
import "./styles/composer.css";
import "./styles/inspector.css";
import "./styles/sheet.css";

applyPrefs();
createRoot(document.getElementById("root")!).render(<App />);
readyAhead();
