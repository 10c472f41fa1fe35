/**
 * Answers as their models meant them: Markdown, drawn as elements and never as HTML.
 *
 * A model's text is data. Tags in it are shown as the letters they are, an address leads nowhere
 * unless a person follows it, and a picture from elsewhere is a link: loading it would tell its
 * host that this was read.
 */

import { marked, type Token, type Tokens } from "marked";
import { memo, type ReactNode } from "react";
import { CopyButton } from "../ui/copying";
import { useWords } from "../words";

/** Text as Markdown. Blocks that did not change are not drawn again, so a stream costs its last one. */
export const Markdown = memo(function Markdown({ text }: { readonly text: string }) {
  return (
    <div className="prose">
      {marked.lexer(text, { gfm: true }).map((token, at) => (
        <Block key={at} raw={token.raw} token={token} />
      ))}
    </div>
  );
});

const Block = memo(
  function Block({ token }: { readonly raw: string; readonly token: Token }) {
    return <>{block(token)}</>;
  },
  (before, after) => before.raw === after.raw && before.token.type === after.token.type,
);

function block(token: Token): ReactNode {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const heading = token as Tokens.Heading;
      const Level = `h${Math.min(6, heading.depth + 2)}` as "h3";
      return <Level>{inlines(heading.tokens)}</Level>;
    }
    case "paragraph":
      return <p>{inlines((token as Tokens.Paragraph).tokens)}</p>;
    case "blockquote":
      return <blockquote>{blocks((token as Tokens.Blockquote).tokens)}</blockquote>;
    case "code": {
      const code = token as Tokens.Code;
      return <Code text={code.text} language={code.lang?.split(/\s/)[0] ?? ""} />;
    }
    case "list":
      return <List list={token as Tokens.List} />;
    case "table":
      return <Table table={token as Tokens.Table} />;
    case "hr":
      return <hr />;
    case "text": {
      const text = token as Tokens.Text;
      return text.tokens === undefined ? text.text : inlines(text.tokens);
    }
    default: // HTML, and what a later release of the parser knows
      return <p className="literal">{token.raw.trimEnd()}</p>;
  }
}

function blocks(tokens: readonly Token[]): ReactNode {
  return tokens.map((token, at) => <Block key={at} raw={token.raw} token={token} />);
}

function List({ list }: { readonly list: Tokens.List }) {
  const items = list.items.map((item, at) => (
    <li key={at} className={item.task ? "task" : undefined}>
      {item.task && <span aria-hidden="true">{item.checked === true ? "☑ " : "☐ "}</span>}
      {blocks(item.tokens)}
    </li>
  ));
  return list.ordered ? <ol start={list.start === "" ? 1 : list.start}>{items}</ol> : <ul>{items}</ul>;
}

function Table({ table }: { readonly table: Tokens.Table }) {
  const cells = (row: readonly Tokens.TableCell[], Cell: "th" | "td") =>
    row.map((cell, at) => (
      <Cell key={at} className={cell.align === null ? undefined : `to-${cell.align}`}>
        {inlines(cell.tokens)}
      </Cell>
    ));
  return (
    <div className="wide" tabIndex={0}>
      <table>
        <thead>
          <tr>{cells(table.header, "th")}</tr>
        </thead>
        <tbody>
          {table.rows.map((row, at) => (
            <tr key={at}>{cells(row, "td")}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A block of code, with a button that copies it. */
export function Code({ text, language = "" }: { readonly text: string; readonly language?: string }) {
  const words = useWords();
  return (
    <figure className="code">
      <figcaption>
        <span>{language}</span>
        <CopyButton label={words.copyCode} text={() => text} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}

function inlines(tokens: readonly Token[] | undefined): ReactNode {
  return tokens?.map((token, at) => <Inline key={at} token={token} />);
}

function Inline({ token }: { readonly token: Token }): ReactNode {
  switch (token.type) {
    case "text": {
      const text = token as Tokens.Text;
      return text.tokens === undefined ? unescaped(text.text) : inlines(text.tokens);
    }
    case "escape":
      return (token as Tokens.Escape).text;
    case "strong":
      return <strong>{inlines((token as Tokens.Strong).tokens)}</strong>;
    case "em":
      return <em>{inlines((token as Tokens.Em).tokens)}</em>;
    case "del":
      return <del>{inlines((token as Tokens.Del).tokens)}</del>;
    case "codespan":
      return <code>{(token as Tokens.Codespan).text}</code>;
    case "br":
      return <br />;
    case "link": {
      const link = token as Tokens.Link;
      return <Link href={link.href}>{inlines(link.tokens)}</Link>;
    }
    case "image": {
      const image = token as Tokens.Image;
      return <Link href={image.href}>{image.text === "" ? image.href : image.text}</Link>;
    }
    default:
      return token.raw;
  }
}

/** Where a link of a model may lead: to pages and people, and to nothing that runs. */
const LEADS = /^(https?:\/\/|mailto:)/i;

function Link({ href, children }: { readonly href: string; readonly children: ReactNode }) {
  if (!LEADS.test(href)) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" title={href}>
      {children}
    </a>
  );
}

const ENTITIES: Readonly<Record<string, string>> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
};

/** The few entities that people write in Markdown; every other one stays as it is. */
function unescaped(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|apos|nbsp);/g, (whole, name: string) => ENTITIES[name] ?? whole);
}
