import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { Markdown } from "./markdown";

const drawn = (text: string) => renderToStaticMarkup(createElement(Markdown, { text }));

describe("an answer", () => {
  it.each([
    "<script>alert(1)</script>",
    "before <img src=x onerror=alert(1)> after",
    "<div onclick='x'>\n\n*text*\n\n</div>",
    "| <b onclick=x> |\n|---|\n| <script>1</script> |",
    "> <iframe src=https://example.org>",
  ])("has no tags of its own: %s", (text) => {
    const html = drawn(text);
    expect(html).not.toMatch(/<(script|img|iframe|div on|b on)/);
    expect(html).toContain("&lt;");
  });

  it.each(["javascript:alert(1)", "data:text/html,x", "vbscript:x", " javascript:x", "file:///etc/passwd", "//host/x"])(
    "does not lead to %s",
    (href) => {
      expect(drawn(`[go](<${href}>) ![look](<${href}>)`)).not.toContain("href");
    },
  );

  it("leads elsewhere without telling from where", () => {
    expect(drawn("[go](https://example.org/a)")).toContain('rel="noopener noreferrer nofollow"');
  });

  it("loads no picture: it is a link", () => {
    const html = drawn("![a cat](https://example.org/cat.png)");
    expect(html).not.toContain("<img");
    expect(html).toContain('href="https://example.org/cat.png"');
    expect(html).toContain("a cat");
  });

  it("is drawn as it was meant", () => {
    const html = drawn("# One\n\nA **b** `c <d>` e\n\n1. x\n2. y\n\n```py\nprint(1 < 2)\n```\n\n|a|b|\n|-|-:|\n|1|2|");
    expect(html).toContain("<h3>One</h3>");
    expect(html).toContain("<strong>b</strong>");
    expect(html).toContain("<code>c &lt;d&gt;</code>");
    expect(html).toMatch(/<ol start="1"><li>x<\/li>/);
    expect(html).toContain("print(1 &lt; 2)");
    expect(html).toContain('<td class="to-right">2</td>');
  });

  it("that is half there is drawn as far as it goes", () => {
    for (let end = 1; end < 60; end++) drawn("Text **bold `code` [link](https://example.org) ```js\nx = 1\n```".slice(0, end));
  });
});
