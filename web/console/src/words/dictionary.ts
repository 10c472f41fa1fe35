/**
 * Every word that the console says, in both languages side by side, so that neither can be forgotten.
 *
 * A phrase with a gap is a function. What a model, a person or the server said is not in here.
 */

type Phrase = string | ((...gaps: never[]) => string);

const s = (count: number) => (count === 1 ? "" : "s");

const KEY_WORDS: Readonly<Record<string, readonly [string, string]>> = {
  next: ["Next message", "下一条消息"],
  previous: ["Previous message", "上一条消息"],
  olderVersion: ["Previous version", "上一个版本"],
  newerVersion: ["Next version", "下一个版本"],
  edit: ["Edit your message", "编辑你的消息"],
  regenerate: ["Answer again", "重新回答"],
  why: ["Why this answer?", "为什么这样回答？"],
  stop: ["Stop", "停止"],
  tree: ["Whole tree", "整棵树"],
  write: ["Write", "开始输入"],
  begin: ["New conversation", "新对话"],
  find: ["Search", "搜索"],
  help: ["This help", "显示帮助"],
  palette: ["Go to, or do", "跳转或执行"],
};

/** The labels of our metrics, which are English words themselves. */
const LABELS: Readonly<Record<string, string>> = {
  success: "成功",
  error: "失败",
  canceled: "已停止",
  unknown: "未知",
  replayed: "复用",
  input: "输入",
  output: "输出",
};

export const dictionary = {
  // The frame
  product: ["Antiphon", "Antiphon"],
  skip: ["Skip to the conversation", "跳到对话"],
  conversations: ["Conversations", "对话"],
  newConversation: ["New conversation", "新对话"],
  searchConversations: ["Search titles and texts", "搜索标题和内容"],
  noMatches: [(words: string) => `Nothing holds “${words}”.`, (words: string) => `没有找到“${words}”。`],
  noConversations: ["Nothing has been said yet.", "这里还没有对话。"],
  moreConversations: ["Show older", "显示更早的"],
  untitledAt: [(when: string) => `Of ${when}`, (when: string) => `${when} 的对话`],
  untitled: ["Untitled", "未命名"],
  operations: ["Operations", "运维"],
  keys: ["Keys", "密钥"],
  preferences: ["Preferences", "偏好设置"],
  language: ["Language", "语言"],
  theme: ["Theme", "主题"],
  themeSystem: ["As the system", "跟随系统"],
  themeLight: ["Light", "浅色"],
  themeDark: ["Dark", "深色"],
  openSidebar: ["Show conversations", "显示对话列表"],
  closeSidebar: ["Hide conversations", "隐藏对话列表"],
  shortcuts: ["Keyboard shortcuts", "键盘快捷键"],
  keyDoes: [
    (does: string) => KEY_WORDS[does]?.[0] ?? does,
    (does: string) => KEY_WORDS[does]?.[1] ?? does,
  ],
  close: ["Close", "关闭"],
  cancel: ["Cancel", "取消"],
  save: ["Save", "保存"],
  retry: ["Try again", "重试"],
  copied: ["Copied", "已复制"],
  copy: ["Copy", "复制"],
  copyCode: ["Copy code", "复制代码"],
  more: ["More", "更多"],
  justNow: ["now", "刚刚"],
  loading: ["Loading…", "加载中…"],
  forget: ["Forget the key", "忘记密钥"],

  // The way to the server
  connecting: ["Connecting…", "连接中…"],
  reconnecting: ["Reconnecting. What was saved stays.", "正在重新连接。已保存的内容不会丢失。"],
  connectionClosed: ["This conversation is not followed any more.", "已停止跟踪此对话。"],
  serverGone: ["The server does not answer.", "服务器没有响应。"],
  notFound: ["There is no such conversation.", "没有这个对话。"],
  notFoundSay: [
    "It was deleted, or it belongs to somebody else.",
    "它已被删除，或属于其他人。",
  ],
  wentWrong: ["This did not work.", "操作没有成功。"],
  keyNeeded: ["This server needs a key.", "此服务器需要密钥。"],
  keyNeededSay: [
    "Who runs the server makes one: antiphon keys create --name NAME. It stays in this browser.",
    "由服务器管理员创建：antiphon keys create --name NAME。密钥只保存在此浏览器中。",
  ],
  keyField: ["Key", "密钥"],
  keyUse: ["Use this key", "使用此密钥"],

  // Starting
  startTitle: ["What shall be answered?", "想问什么？"],
  startSay: [
    "Say it below. What is sent is stored before anything answers, and nothing on this page claims to be saved before it is.",
    "在下面输入。消息先保存，再作答；页面上显示“已保存”的内容，一定已经保存。",
  ],
  rehearsalSay: [
    "The rehearsal model is a script on this machine that stands in for a real one. Try:",
    "排演模型是本机上的脚本，用来代替真实模型。可以试试：",
  ],

  // Composer
  composer: ["Your message", "你的消息"],
  composerPlaceholder: ["Write a message", "输入消息"],
  send: ["Send", "发送"],
  sendLater: ["Send when this answer has ended", "当前回答结束后发送"],
  stop: ["Stop", "停止"],
  stopping: ["Stopping…", "正在停止…"],
  model: ["Model", "模型"],
  tooLarge: [(name: string) => `${name} is larger than 15 MB.`, (name: string) => `${name} 超过 15 MB。`],
  attach: ["Attach a file", "添加附件"],
  detach: [(name: string) => `Remove ${name}`, (name: string) => `移除 ${name}`],
  composerHint: ["Enter sends, Shift+Enter breaks the line", "Enter 发送，Shift+Enter 换行"],
  sending: ["Sending…", "发送中…"],
  notSent: ["Not sent.", "没有发送。"],
  sendAgain: ["Send again", "重新发送"],
  discard: ["Discard", "丢弃"],
  waitsForCalls: [
    "The run waits for results of tools. Answer or stop it first.",
    "运行正在等待工具结果。请先给出结果或停止。",
  ],

  // Thread
  thread: ["Conversation", "对话内容"],
  you: ["You", "你"],
  answer: ["Answer", "回答"],
  systemMessage: ["System", "系统"],
  toBottom: ["To the newest", "回到最新"],
  notSavedYet: ["not saved yet", "尚未保存"],
  saved: ["Saved", "已保存"],
  thinking: ["Thinking", "思考中"],
  thought: ["Thoughts", "思考过程"],
  waitingForModel: [(model: string) => `${model} has been asked`, (model: string) => `已向 ${model} 提问`],
  working: ["Working", "处理中"],
  edit: ["Edit", "编辑"],
  editSay: [
    "A second version beside this one. Nothing is overwritten.",
    "作为另一个版本并存，不会覆盖原文。",
  ],
  editField: ["New version of your message", "消息的新版本"],
  regenerate: ["Answer again", "重新回答"],
  regenerateWith: [(model: string) => `Answer again with ${model}`, (model: string) => `用 ${model} 重新回答`],
  why: ["Why this answer?", "为什么这样回答？"],
  fork: ["Fork from here", "从这里分出新对话"],
  forkedTitle: [(title: string) => `${title} (fork)`, (title: string) => `${title}（分支）`],
  remove: ["Delete", "删除"],
  removeTitle: ["Delete this message?", "删除这条消息？"],
  removeSay: [
    (below: number) =>
      below === 0
        ? "It is left out of every line from now on. It stays stored, but not shown."
        : `It is left out of every line from now on. The ${below} message${s(below)} below it stay${below === 1 ? "s" : ""}.`,
    (below: number) =>
      below === 0 ? "此后它不再出现在任何路径中；数据仍保留，但不再显示。" : `此后它不再出现在任何路径中。其下的 ${below} 条消息保留。`,
  ],
  versions: ["Versions", "版本"],
  version: [(at: number, of: number) => `Version ${at} of ${of}`, (at: number, of: number) => `第 ${at} 个版本，共 ${of} 个`],
  versionShort: [(at: number, of: number) => `${at}/${of}`, (at: number, of: number) => `${at}/${of}`],
  previousVersion: ["Previous version", "上一个版本"],
  nextVersion: ["Next version", "下一个版本"],
  cutByLength: ["Cut: the limit of tokens was reached.", "已截断：达到 token 上限。"],
  canceledText: ["Stopped. Not part of the conversation.", "已停止。不属于对话内容。"],
  keepText: ["Keep this text", "保留这段文字"],
  keptText: ["Kept by you", "由你保留"],
  erased: ["This was erased.", "内容已被清除。"],
  importedText: ["Imported", "导入"],
  failedMessage: ["Not answered", "未得到回答"],
  tokensInOut: [
    (read: string, written: string) => `${read} in, ${written} out`,
    (read: string, written: string) => `输入 ${read}，输出 ${written}`,
  ],

  picture: ["Picture", "图片"],

  // Outcomes
  whatHappened: ["What happened?", "发生了什么？"],
  checkNow: ["Look again", "再次检查"],
  deadlineIn: [
    (span: string) => `Nothing of it can come any more in ${span} at the latest.`,
    (span: string) => `最迟 ${span} 后，可以确定不会再有结果。`,
  ],
  withdrawnTitle: [
    (attempt: number) => `An unfinished answer was taken back (generation ${attempt})`,
    (attempt: number) => `一段未完成的回答已撤回（第 ${attempt} 代）`,
  ],
  withdrawnShow: ["Show what it said", "显示撤回的内容"],
  withdrawnSay: ["It never became part of the conversation.", "它从未成为对话的一部分。"],
  failedTitle: ["No answer", "没有回答"],
  unknownTitle: ["Nobody knows whether the provider answered.", "无法确定提供方是否已回答。"],
  unknownSay: [
    "The connection broke after the request had left. It is not sent again as long as the first one may still be worked on.",
    "请求发出后连接中断。在第一次请求可能仍在处理时，不会再次发送。",
  ],
  settle: ["Settle it", "按证据结案"],
  settleSay: ["It is proven that nothing of it can reach us any more.", "已证明它不会再有任何结果到达。"],
  endedByMe: ["It has ended: I know it", "我确认它已结束"],
  endedWhy: ["How do you know?", "依据是什么？"],
  cancelRun: ["Stop waiting", "不再等待"],
  queuedTitle: [
    (ahead: number) => (ahead === 0 ? "Next in turn" : `Waits its turn, ${ahead} before it`),
    (ahead: number) => (ahead === 0 ? "下一个处理" : `排队中，前面还有 ${ahead} 条`),
  ],
  withdrawQueued: ["Withdraw", "撤回"],

  // Tools
  call: ["Tool call", "工具调用"],
  callPending: ["waits", "等待"],
  callNeedsApproval: ["needs your approval", "需要你的批准"],
  callNeedsOutput: ["waits for a result", "等待结果"],
  callExecuting: ["runs", "执行中"],
  callSuccess: ["done", "完成"],
  callError: ["failed", "失败"],
  callCanceled: ["not run", "未执行"],
  callUnknown: ["fate unknown", "结果未知"],
  callReused: [
    "Answered from the ledger; not run again.",
    "结果来自账本，没有再次执行。",
  ],
  callArguments: ["Arguments", "参数"],
  callResult: ["Result", "结果"],
  callChanged: ["Changed by who approved it", "批准者修改过"],
  approve: ["Approve", "批准"],
  approveChanged: ["Approve with these", "按修改后的参数批准"],
  editArguments: ["Edit arguments", "修改参数"],
  refuse: ["Refuse", "拒绝"],
  refuseWhy: ["Reason, for the model", "给模型的理由"],
  badJson: ["This is not a JSON object.", "这不是 JSON 对象。"],
  giveResult: ["Give the result", "提交结果"],
  resultField: [(name: string) => `Result of ${name}`, (name: string) => `${name} 的结果`],
  isError: ["It failed", "执行失败"],
  unknownCallSay: [
    "It was running when its process ended. It may have taken effect. Say what became of it:",
    "进程结束时它正在执行，可能已经生效。请说明结果：",
  ],
  attempt: [(n: number) => `attempt ${n}`, (n: number) => `第 ${n} 次`],

  // The conversation's own actions
  rename: ["Rename", "重命名"],
  titleField: ["Title", "标题"],
  exportConversation: ["Export", "导出"],
  deleteConversation: ["Delete conversation", "删除对话"],
  deleteConversationTitle: ["Delete this conversation?", "删除这个对话？"],
  deleteConversationSay: [
    "Whatever works in it is stopped. This cannot be taken back.",
    "其中正在进行的工作会停止。此操作无法撤销。",
  ],
  conversationMenu: ["Conversation menu", "对话菜单"],
  wholeTree: ["Whole tree", "整棵树"],
  treeTitle: ["Every version of this conversation", "此对话的所有版本"],
  treeSay: [
    (messages: number, leaves: number) => `${messages} message${s(messages)}, ${leaves} end${s(leaves)}. Choose where to go on.`,
    (messages: number, leaves: number) => `${messages} 条消息，${leaves} 个分支。选择从哪里继续。`,
  ],
  treeHere: ["shown now", "当前显示"],

  // Sessions
  sessions: ["Sessions and goals", "会话与目标"],
  sessionsSay: [
    "A session is a stretch with one goal, and has a tree of its own. You see them as one conversation.",
    "一个会话围绕一个目标，有自己的消息树；你看到的是连续的一段对话。",
  ],
  noGoal: ["No goal", "无目标"],
  goalNow: ["now", "当前"],
  goalArchived: ["archived", "已归档"],
  sessionBegins: ["A new session begins", "新会话开始"],
  sessionCause: [
    (cause: string) =>
      ({
        idle: "after a long pause",
        decision: "since the question was about something else",
        tool: "since the model asked for it",
        closing: "since the goal was reached",
        person: "since you asked for it",
      })[cause] ?? cause,
    (cause: string) =>
      ({
        idle: "因为停顿较久",
        decision: "因为问题换了主题",
        tool: "由模型提出",
        closing: "因为目标已完成",
        person: "由你发起",
      })[cause] ?? cause,
  ],
  handedOver: ["What was handed over", "交接内容"],
  handoverSummary: ["Summary", "摘要"],
  handoverIds: ["Names and numbers", "标识"],
  handoverFacts: ["Facts", "事实"],
  handoverOpen: ["Open", "未完成"],
  handoverPrecis: ["In brief", "概要"],
  undoSwitch: ["Undo", "撤销"],
  undoSwitchSay: ["Go on in the session before, with what was said since", "回到上一个会话，并保留之后的内容"],
  beginSession: ["Begin a new session", "开始新会话"],
  goalField: ["Its goal, in one sentence; empty for none", "目标（一句话，可留空）"],
  schedulingField: ["Sessions come and go by themselves", "自动切换会话"],
  schedulingAuto: ["As the server is set", "按服务器设置"],
  schedulingOn: ["On", "开启"],
  schedulingOff: ["Off", "关闭"],

  // The palette
  palette: ["Go to, or do", "跳转或执行"],
  paletteField: ["A conversation, a page, an action", "对话、页面或操作"],

  // States
  stateQueued: ["queued", "排队"],
  statePending: ["answering", "回答中"],
  stateWaiting: ["waiting", "等待"],
  stateUnknown: ["unknown", "未知"],
  stateSuccess: ["saved", "已保存"],
  stateError: ["failed", "失败"],
  stateCanceled: ["stopped", "已停止"],

  // Why this answer?
  state: ["State", "状态"],
  took: ["Took", "用时"],
  tokens: ["Tokens", "Token 数"],
  attempts: ["Work", "过程"],
  attemptsOf: [
    (attempts: number, steps: number, calls: number) =>
      `${attempts} attempt${s(attempts)} at ${steps} step${s(steps)}${calls === 0 ? "" : `, ${calls} call${s(calls)}`}`,
    (attempts: number, steps: number, calls: number) =>
      `${steps} 步，${attempts} 次尝试${calls === 0 ? "" : `，${calls} 次工具调用`}`,
  ],
  tabTimeline: ["What happened", "经过"],
  tabPrompt: ["Prompt", "提示"],
  tabRequest: ["Request", "请求"],
  tabRecord: ["Record", "记录"],
  spanQueue: ["Waited its turn", "排队"],
  spanApproval: [(name: string) => `${name} waited for a person`, (name: string) => `${name} 等待人工`],
  attemptAt: [
    (step: number, n: number) => (n === 1 ? `Model call ${step}` : `Model call ${step}, attempt ${n}`),
    (step: number, n: number) => (n === 1 ? `第 ${step} 次模型调用` : `第 ${step} 次模型调用，第 ${n} 次尝试`),
  ],
  partPrepare: ["prepared", "准备"],
  partSend: ["sending", "发送"],
  partWait: ["waiting", "等待"],
  partStream: ["streaming", "接收"],
  partTool: ["tool", "工具"],
  proof: ["Ended, since", "已结束，依据："],
  everyEvent: ["Every event", "全部事件"],
  dispatch: ["Dispatch", "调用"],
  stepAt: [(n: number) => `Model call ${n}`, (n: number) => `第 ${n} 次模型调用`],
  compare: ["Compare with the request before", "与上一次请求对比"],
  nothingSent: ["Nothing was sent for this run.", "此运行没有发送任何请求。"],
  verified: [
    (bytes: string) => `Made again from what is stored, ${bytes} bytes; its digest is that of what was sent:`,
    (bytes: string) => `由存储内容重新生成，${bytes} 字节；摘要与发送时一致：`,
  ],
  prefixKept: [
    (kept: string, last: string) => `Begins with ${kept} of the ${last} bytes of the request before.`,
    (kept: string, last: string) => `与上一次请求（${last} 字节）的前 ${kept} 字节相同。`,
  ],
  copyCurl: ["Copy as curl", "复制为 curl"],
  copyBody: ["Copy the body", "复制请求体"],
  promptPart: ["Part", "部分"],
  promptPieces: ["Pieces", "数量"],
  promptCacheable: ["Stays the same", "保持不变"],
  yes: ["yes", "是"],
  no: ["no", "否"],
  kindPolicy: ["Instructions", "指令"],
  kindTools: ["Tools", "工具"],
  kindStable: ["Stable context", "稳定上下文"],
  kindTranscript: ["Transcript", "对话记录"],
  kindDynamic: ["Dynamic context", "动态上下文"],
  retrievalWas: [
    (status: string, candidates: number | null) => `Retrieval: ${status}${candidates === null ? "" : `, ${candidates} candidates`}.`,
    (status: string, candidates: number | null) => `检索：${status}${candidates === null ? "" : `，候选 ${candidates} 条`}。`,
  ],
  leftOut: ["Left out", "未包含"],
  nothingLeftOut: ["Nothing of the line was left out.", "此路径上的内容全部包含。"],
  messagesLeftOut: [(count: number) => `${count} message${s(count)}`, (count: number) => `${count} 条消息`],
  windowUnknown: [(used: string) => `${used} tokens; nobody told how large the window is.`, (used: string) => `${used} token；窗口大小未知。`],
  windowUsed: [(used: string, all: string) => `${used} of ${all} tokens of the window.`, (used: string, all: string) => `窗口 ${all} token，已用 ${used}。`],
  windowOutput: [(tokens: string) => `The answer may have ${tokens}.`, (tokens: string) => `回答最多 ${tokens}。`],
  windowReduced: [(tokens: string) => `${tokens} had been asked for it.`, (tokens: string) => `原要求 ${tokens}。`],
  countedBy: [(name: string) => `Counted by ${name}.`, (name: string) => `计数方式：${name}。`],
  prefix: ["Prefix", "前缀"],
  prefixMoved: ["What moved the rest:", "其余变化来自："],
  mappings: ["Changed on the way", "发送时的改写"],
  quarantined: ["Came too late, and changed nothing", "迟到，未产生任何影响"],

  // Operations
  lookedAgain: [(seconds: number) => `Looks again every ${seconds} s`, (seconds: number) => `每 ${seconds} 秒刷新`],
  unsureTitle: ["Outcome unknown", "结果未知"],
  unsureNone: ["Nothing: every dispatch has a known outcome.", "没有：所有调用的结果都已确定。"],
  workingTitle: ["Under way", "进行中"],
  age: [(span: string) => `${span} old`, (span: string) => `已 ${span}`],
  nextStep: [(next: string) => `What comes next: ${next}.`, (next: string) => `下一步：${next}。`],
  endedSay: [
    "Say this only if you know that the provider will send nothing more of it. What you write is kept as the proof.",
    "只有在确知提供方不会再返回任何内容时才这样做。所写依据会被保存。",
  ],
  unknownCallShort: [
    "It was running when its process ended, and may have taken effect. Say what became of it in its conversation.",
    "进程结束时它正在执行，可能已经生效。请在对话中说明结果。",
  ],
  openConversation: ["Open the conversation", "打开对话"],
  figuresTitle: ["Since the server was started", "自服务器启动以来"],
  figureRuns: ["Runs", "运行"],
  figureLabel: [(label: string) => label, (label: string) => LABELS[label] ?? label],
  figureTokens: ["Tokens", "Token 用量"],
  figureWithdrawn: ["Previews taken back", "撤回的预览"],
  figureLate: ["Late, and without effect", "迟到且无影响"],
  figureCalls: ["Tool calls", "工具调用"],
  figureStreams: ["Open streams", "打开的流"],
  figurePartial: ["Tools run from half an answer", "由半截回答触发的工具"],
  figureConflicts: ["Answers for a base that moved", "基线已移动的回答"],
  figureStays: ["stays 0", "始终为 0"],
  allMetrics: ["All of them, as Prometheus reads them", "全部指标（Prometheus 格式）"],
  refusedTitle: ["Refused before anything was sent", "发送前被拒绝"],
  refusedSay: ["Requests that a provider would have refused, by the rule that they break.", "提供方会拒绝的请求，按违反的规则统计。"],
  refusedNone: ["None.", "没有。"],

  // Keys
  makeKey: ["New key", "新建密钥"],
  makeKeySay: [
    "From the first key on, everybody needs one. Give the first one the right to manage keys.",
    "有了第一个密钥之后，所有人都需要密钥。请给第一个密钥管理权限。",
  ],
  keyName: ["Name", "名称"],
  rights: ["Rights", "权限"],
  rightNamed: [
    (right: string) => right,
    (right: string) =>
      ({ read: "读取", write: "写入", instruct: "指令", operate: "运维", admin: "管理" })[right] ?? right,
  ],
  rightMeans: [
    (right: string) =>
      ({
        read: "see conversations",
        write: "talk, edit, delete",
        instruct: "write what a model takes for the operator’s word",
        operate: "settle unknown outcomes, read metrics",
        admin: "make and revoke keys",
      })[right] ?? "",
    (right: string) =>
      ({
        read: "查看对话",
        write: "发言、编辑、删除",
        instruct: "写入模型视为运营者指令的内容",
        operate: "处理未知结果、查看指标",
        admin: "创建和吊销密钥",
      })[right] ?? "",
  ],
  daysValid: ["Days until it ends; empty for never", "有效天数；留空表示永久"],
  secretTitle: [(name: string) => `The secret of ${name}`, (name: string) => `${name} 的密钥`],
  secretSay: ["It is told here, once. Of it only a digest is kept.", "只在此显示一次；服务器仅保存摘要。"],
  secretKept: ["I have it", "已保存"],
  revoke: ["Revoke", "吊销"],
  revokeTitle: [(name: string) => `Revoke ${name}?`, (name: string) => `吊销 ${name}？`],
  revokeSay: ["Whoever uses it is shut out at once, for good.", "使用它的人将立即、永久失去访问权。"],
  revokedAt: [(when: string) => `Revoked ${when}`, (when: string) => `已于 ${when} 吊销`],
  expiresAt: [(when: string) => `Ends ${when}`, (when: string) => `${when} 到期`],
  neverExpires: ["Never ends", "永久有效"],
  noKeys: ["Everybody on this machine may do everything.", "本机上的任何人都可以做任何事。"],
  noKeysSay: [
    "No key is defined, so the server listens to this machine only. Make keys before others may reach it.",
    "尚未定义密钥，因此服务器只接受本机访问。让他人访问之前请先创建密钥。",
  ],

  // What is said aloud
  saidAnswering: ["The answer is being written.", "正在写回答。"],
  saidSaved: ["The answer is saved.", "回答已保存。"],
  saidWithdrawn: ["An unfinished answer was taken back.", "一段未完成的回答已撤回。"],
  saidFailed: ["There is no answer.", "没有得到回答。"],
  saidStopped: ["Stopped.", "已停止。"],
  saidUnknown: ["The outcome is unknown.", "结果未知。"],
  saidWaiting: ["The run waits for you.", "运行在等待你的决定。"],
} satisfies Record<string, readonly [Phrase, Phrase]>;
