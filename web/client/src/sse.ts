/** Server-sent events out of text that comes in pieces of any size. */

/** Feed it text; take the data of each event that is complete. What is unterminated is no event. */
export class EventStream {
  #line = "";
  #data: string[] = [];
  #afterReturn = false;

  /** Return the data of each event that `text` completes. */
  feed(text: string): string[] {
    const events: string[] = [];
    let from = 0;
    if (this.#afterReturn && text.startsWith("\n")) from = 1;
    if (text !== "") this.#afterReturn = text.endsWith("\r");
    for (const { index, 0: end } of text.matchAll(/\r\n|\n|\r/g)) {
      if (index < from) continue;
      this.#take(this.#line + text.slice(from, index), events);
      this.#line = "";
      from = index + end.length;
    }
    this.#line += text.slice(from);
    return events;
  }

  #take(line: string, events: string[]): void {
    if (line === "") {
      if (this.#data.length > 0) events.push(this.#data.join("\n"));
      this.#data = [];
    } else if (line.startsWith("data:")) {
      this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}
