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
  copiedText: ["Carried over", "承接自上一会话"],
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

  // States
  stateQueued: ["queued", "排队"],
  statePending: ["answering", "回答中"],
  stateWaiting: ["waiting", "等待"],
  stateUnknown: ["unknown", "未知"],
  stateSuccess: ["saved", "已保存"],
  stateError: ["failed", "失败"],
  stateCanceled: ["stopped", "已停止"],

  // What is said aloud
  saidAnswering: ["The answer is being written.", "正在写回答。"],
  saidSaved: ["The answer is saved.", "回答已保存。"],
  saidWithdrawn: ["An unfinished answer was taken back.", "一段未完成的回答已撤回。"],
  saidFailed: ["There is no answer.", "没有得到回答。"],
  saidStopped: ["Stopped.", "已停止。"],
  saidUnknown: ["The outcome is unknown.", "结果未知。"],
  saidWaiting: ["The run waits for you.", "运行在等待你的决定。"],
} satisfies Record<string, readonly [Phrase, Phrase]>;
