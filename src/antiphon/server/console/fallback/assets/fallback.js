// The console where none was built: list, talk, stop. What is saved is read from the server, and what is only
// shown is kept apart from it and says so.

const ROOT = "/antiphon/v1";
const page = (id) => document.getElementById(id);
const [list, line, preview, state, form, text, stop] = ["list", "line", "preview", "state", "form", "text", "stop"].map(page);

let conversation = /^\/c\/([^/]+)$/.exec(location.pathname)?.[1] ?? null;
let run = null;

async function ask(method, path, body) {
  const init = { method, headers: {} };
  const key = localStorage.getItem("antiphon.key");
  if (key) init.headers.authorization = `Bearer ${key}`;
  if (body) {
    init.headers["content-type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  const answer = await fetch(ROOT + path, init);
  if (answer.status === 401) {
    const given = prompt("This server needs a key:");
    if (given) {
      localStorage.setItem("antiphon.key", given);
      return ask(method, path, body);
    }
  }
  const told = await answer.json();
  if (!answer.ok) throw new Error(`${told.error.code}: ${told.error.message}`);
  return told;
}

function item(tag, content, attributes) {
  const element = document.createElement(tag);
  element.textContent = content;
  Object.assign(element, attributes);
  return element;
}

async function showList() {
  const { data } = await ask("GET", "/conversations");
  list.replaceChildren(
    ...data.map((row) => {
      const entry = document.createElement("li");
      entry.append(item("a", row.title ?? new Date(row.created_ms).toLocaleString(), { href: `/c/${row.id}` }));
      return entry;
    }),
  );
}

async function showLine() {
  const { data } = await ask("GET", `/conversations/${conversation}/line`);
  line.replaceChildren(
    ...data.map((message) => {
      const entry = item("li", message.blocks.map((block) => block.text ?? `[${block.kind}]`).join(""));
      entry.dataset.role = message.role;
      return entry;
    }),
  );
}

// A poll returns at least once a second while an answer is shown, with all of it so far.
async function follow(after) {
  for (;;) {
    let frames = [];
    try {
      ({ frames } = await ask("GET", `/conversations/${conversation}/events/poll?after=${after}`));
    } catch (error) {
      state.textContent = `Reconnecting (${error.message})`;
      await new Promise((done) => setTimeout(done, 2000));
      continue;
    }
    const shown = frames.findLast((frame) => frame.type === "preview.snapshot");
    const events = frames.filter((frame) => frame.type === "durable");
    for (const { seq, event } of events) {
      after = seq;
      if (event.type !== "run.changed") continue;
      const open = ["pending", "waiting", "unknown"].includes(event.status);
      run = open ? event.run : event.run === run ? null : run;
      state.textContent = event.status === "success" ? "" : [event.status, event.code].filter(Boolean).join(": ");
    }
    if (events.length > 0) await showLine();
    preview.hidden = shown === undefined || run === null;
    preview.textContent = shown?.blocks.map((block) => block.text).join("\n") ?? "";
    stop.hidden = run === null;
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = text.value;
  try {
    const begins = conversation === null;
    if (begins) {
      conversation = (await ask("POST", "/conversations", {})).id;
      history.replaceState(null, "", `/c/${conversation}`);
    }
    await ask("POST", `/conversations/${conversation}/messages`, { content });
    text.value = "";
    if (begins) follow(0);
    showList();
  } catch (error) {
    state.textContent = `Not sent. ${error.message}`;
  }
});

stop.addEventListener("click", () => run && ask("POST", `/runs/${run}/cancel`, {}));

showList().catch((error) => (state.textContent = error.message));
if (conversation !== null) {
  showLine().then(
    () => follow(0),
    (error) => (state.textContent = error.message),
  );
}
