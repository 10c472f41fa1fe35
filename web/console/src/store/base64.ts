/** Bytes as base64, whatever their number: a call with too many arguments would fail. */

const AT_ONCE = 0x8000;

export function base64Of(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += AT_ONCE) binary += String.fromCharCode(...bytes.subarray(at, at + AT_ONCE));
  return btoa(binary);
}
