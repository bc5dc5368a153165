import { randomUUID } from 'node:crypto';

/** JSON text that is to be written as it is: parsed and written again, a number beyond 2^53 would be another one. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** As JSON.stringify with an indent of two, with each `JsonText` inside of the value as its own text, on one line. */
export function toJson(value: unknown): string {
  const texts: string[] = [];
  const mark = randomUUID();
  const marked = JSON.stringify(
    value,
    (_key, each) => (each instanceof JsonText ? `${mark}${texts.push(each.text) - 1}` : each),
    2,
  );
  if (texts.length === 0) return marked;
  return marked.replace(new RegExp(`"${mark}(\\d+)"`, 'g'), (_marked, index) => texts[Number(index)] as string);
}

/**
 * JSON text of PostgreSQL laid out as JSON.stringify does it with an indent of two: at least the first `charactersMax`
 * characters of it, and not much more. Numbers and strings stay as they are written. Limited because the layout can be a
 * thousand times as long as the text, if that is nested deeply.
 */
export function indentJson(text: string, charactersMax: number): string {
  let result = '';
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  // The layout is no shorter than the text. A string that ends at the limit has no closing quote.
  const tokens = text.slice(0, charactersMax).match(/"(?:[^"\\]|\\.?)*"?|[{}[\],:]|[^\s"{}[\],:]+/g) ?? [];
  for (const [i, token] of tokens.entries()) {
    if (result.length >= charactersMax) break;
    const isEmpty = /[[{]/.test(tokens[i - 1] ?? '') && (tokens[i - 1] ?? '').length === 1;
    if (token === '}' || token === ']') {
      depth--;
      result += isEmpty ? token : `${line()}${token}`;
      continue;
    }
    if (isEmpty) result += line();
    if (token === '{' || token === '[') depth++;
    result += token === ',' ? `,${line()}` : token === ':' ? ': ' : token;
  }
  return result;
}
