// The console where none was built: list, talk, stop. What is saved is read from the server, and what is only
// shown is kept apart from it and says so.

/** What the page says in English, said in Chinese. */
const CHINESE = {
  notBuilt: "这里没有构建完整的控制台：请运行 make web。本页可以查看对话、发送消息、停止回答。",
  conversations: "对话列表",
  begin: "新对话",
  message: "你的消息",
  send: "发送",
  stop: "停止",
};
/** What only this says. */
const WORDS = {
  notSaved: ["not saved yet", "尚未保存"],
  reconnecting: ["Reconnecting", "正在重新连接"],
  notSent: ["Not sent", "未发送"],
  key: ["This server needs a key:", "此服务器需要密钥："],
};
const chinese = navigator.language.startsWith("zh");
const say = (name) => WORDS[name][chinese ? 1 : 0];
if (chinese) {
  document.documentElement.lang = "zh-CN";
  for (const element of document.querySelectorAll("[data-say]")) element.textContent = CHINESE[element.dataset.say];
  for (const element of document.querySelectorAll("[data-name]")) element.setAttribute("aria-label", CHINESE[element.dataset.name]);
}

const ROOT = "/antiphon/v1";
const page = (id) => document.getElementById(id);
const [list, line, preview, state, form, text, stop] = ["list", "line", "preview", "state", "form", "text", "stop"].map(page);

let conversation = /^\/c\/([^/]+)$/.exec(location.pathname)?.[1] ?? null;
let run = null;
/** Where the line ends while a run is at work; the head follows only once something is saved. */
let leaf = null;
/** What is being sent has an id from its first try on: tried again, it is the same message. */
let id = null;

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
    const given = prompt(say("key"));
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
  const { data } = await ask("GET", `/conversations/${conversation}/line${leaf === null ? "" : `?leaf=${leaf}`}`);
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
      state.textContent = `${say("reconnecting")} (${error.message})`;
      await new Promise((done) => setTimeout(done, 2000));
      continue;
    }
    let shown;
    const events = frames.filter((frame) => frame.type === "durable");
    for (const frame of frames) {
      if (frame.type === "preview.snapshot") shown = frame;
      if (frame.type !== "durable") continue;
      const { event } = frame;
      after = frame.seq;
      if (["message.committed", "preview.withdrawn"].includes(event.type)) shown = undefined; // it was of before
      if (["message.placed", "message.committed", "results.placed"].includes(event.type)) leaf = event.message;
      if (event.type !== "run.changed") continue;
      const open = ["pending", "waiting", "unknown"].includes(event.status);
      run = open ? event.run : event.run === run ? null : run;
      if (run === null) leaf = null;
      state.textContent = event.status === "success" ? "" : [event.status, event.code].filter(Boolean).join(": ");
    }
    stop.hidden = run === null;
    if (events.length > 0) await showLine();
    preview.hidden = shown === undefined || run === null;
    preview.dataset.notSaved = say("notSaved");
    preview.textContent = shown?.blocks.map((block) => block.text).join("\n") ?? "";
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = text.value;
  id ??= `msg_${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
  try {
    const begins = conversation === null;
    if (begins) {
      conversation = (await ask("POST", "/conversations", {})).id;
      history.replaceState(null, "", `/c/${conversation}`);
    }
    await ask("POST", `/conversations/${conversation}/messages`, { id, content });
    id = null;
    text.value = "";
    if (begins) follow(0);
    showList();
  } catch (error) {
    state.textContent = `${say("notSent")}. ${error.message}`;
  }
});

text.addEventListener("input", () => (id = null));
stop.addEventListener("click", () => run && ask("POST", `/runs/${run}/cancel`, {}));

showList().catch((error) => (state.textContent = error.message));
if (conversation !== null) {
  showLine().then(
    () => follow(0),
    (error) => (state.textContent = error.message),
  );
}
