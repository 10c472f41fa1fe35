/** What an answer took: tokens, what of them a cache gave, money. */

import type { Cost, Used } from "@antiphon/client";
import { useTimes, useWords } from "../words";

/** Tokens in and out, and what is inside these, where there is any. */
export function Taken({ used }: { readonly used: Omit<Used, "cost"> }) {
  const words = useWords();
  const times = useTimes();
  const { input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens } = used;
  const share = times.share(cached_tokens / Math.max(1, input_tokens));
  const more = [
    ...(cached_tokens > 0 ? [words.cachedOf(times.number(cached_tokens), share)] : []),
    ...(cache_write_tokens > 0 ? [words.cacheWrites(times.number(cache_write_tokens))] : []),
    ...(reasoning_tokens > 0 ? [words.thoughtTokens(times.number(reasoning_tokens))] : []),
  ];
  return (
    <>
      {words.tokensInOut(times.number(input_tokens), times.number(output_tokens))}
      {more.length > 0 && <span className="inside">{more.join(" · ")}</span>}
    </>
  );
}

/** Money, and by which prices; or that nobody knows. */
export function Price({ cost }: { readonly cost: Cost | null }) {
  const words = useWords();
  const times = useTimes();
  if (cost === null) return <span title={words.costUnknownSay}>{words.costUnknown}</span>;
  return (
    <>
      {times.money(cost)}
      <span className="inside">{cost.prices_of === null ? words.pricesSet : words.pricesOf(cost.prices_of)}</span>
    </>
  );
}
