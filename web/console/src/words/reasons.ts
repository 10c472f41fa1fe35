/**
 * Why something failed, in words for people. The code beside it is what people search for; the server's
 * own sentence stands in where there is none of ours.
 */

import type { Language } from "../prefs";

const REASONS: Readonly<Record<string, readonly [en: string, zh: string]>> = {
  // What became of a dispatch
  outcome_unknown: [
    "The connection broke after the request had left, and it was not sent a second time. Answer again if you want to.",
    "请求发出后连接中断，没有再次发送。如有需要，可以重新回答。",
  ],
  stream_incomplete: ["The answer broke off before its end.", "回答在结束之前中断。"],
  missing_finish_reason: ["The answer ended without saying why, so it may not be whole.", "回答结束时没有给出结束原因，可能不完整。"],
  unclosed_arguments: ["A tool call was cut inside its arguments. It was not run.", "工具调用的参数被截断，没有执行。"],
  truncated_by_length: ["The limit of tokens was reached inside a tool call.", "在工具调用中达到 token 上限。"],
  content_filter: ["The provider's filter stopped the answer.", "提供方的内容过滤拦截了回答。"],
  malformed_event: ["The provider sent something that cannot be read.", "提供方发送了无法解析的数据。"],
  malformed_function_call: ["The provider called its own tool call malformed.", "提供方报告工具调用格式错误。"],
  orphan_argument_delta: ["Arguments came for a call that was never opened.", "收到了不属于任何调用的参数。"],
  empty_answer: ["The answer held nothing.", "回答为空。"],
  idle_timeout: ["The provider fell silent for too long.", "提供方长时间没有响应。"],
  refused: ["The provider refused the request.", "提供方拒绝了请求。"],
  rate_limited: ["The provider wants fewer requests for a while.", "提供方要求暂时减少请求。"],
  overloaded: ["The provider is overloaded.", "提供方过载。"],
  not_sent: ["The provider could not be reached. Nothing was sent.", "无法连接提供方，没有发送任何内容。"],
  model_call_limit: ["The run made as many model calls as it may.", "运行已达到模型调用次数上限。"],
  tool_limit: ["The run made as many tool calls as it may.", "运行已达到工具调用次数上限。"],
  tool_unknown: ["A tool was running when its process ended; it may have taken effect.", "工具执行期间进程结束，可能已经生效。"],
  over_window: ["The conversation does not fit into the model's window.", "对话超出模型的上下文窗口。"],
  canceled: ["It was stopped.", "已停止。"],
  // What the server refuses
  queue_full: ["Too many messages wait here already.", "排队的消息太多。"],
  conversation_busy: ["An answer is being written. Wait for it, or stop it.", "正在写回答。请等待或停止它。"],
  missing_tool_result: ["A tool call waits for its result. Give it, or stop the run.", "有工具调用在等待结果。请给出结果或停止运行。"],
  model_not_found: ["There is no model of this name.", "没有这个名称的模型。"],
  message_id_conflict: ["A message with this id says something else already.", "已有同一编号但内容不同的消息。"],
  outcome_unproven: ["Nothing is proven yet. Wait for the deadline, or stop waiting.", "尚无证据。请等到期限，或不再等待。"],
  dispatch_not_unknown: ["Its outcome is known by now.", "结果已经确定。"],
  server_unavailable: ["The server does not answer. What was sent is kept here and sent again under the same id.", "服务器没有响应。已写内容保存在这里，将以同一编号重发。"],
  not_antiphon: ["What answers there is not this server.", "响应者不是此服务器。"],
  bad_key: ["The key opens nothing here.", "密钥无效。"],
  forbidden: ["Your key may not do this.", "你的密钥没有此权限。"],
  erased: ["What was said here was erased.", "此处内容已被清除。"],
  digest_mismatch: ["It cannot be made again to the byte, so it is not shown as if it had been sent.", "无法逐字节还原，因此不会当作已发送的内容显示。"],
  content_missing: ["A part of what was sent is not stored any more.", "已发送内容的一部分已不再保存。"],
  block_not_allowed: ["The model's dialect has no place for one of the attachments.", "该模型不支持其中一个附件。"],
};

/** Return a sentence for `code`; `otherwise` is what the server said. */
export function reasonOf(language: Language, code: string | null | undefined, otherwise = ""): string {
  const known = code == null ? undefined : REASONS[code];
  return known === undefined ? otherwise : known[language === "zh" ? 1 : 0];
}
