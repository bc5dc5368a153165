import { randomUUID } from 'node:crypto';

/** JSON text that is written unchanged: parsing and serializing would change numbers beyond 2^53. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** JSON.stringify with an indent of two that writes each `JsonText` in the value unchanged, on one line. */
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
 * Formats JSON text like JSON.stringify with an indent of two: at least the first `charactersMax` characters of it, and not much
 * more. Numbers and strings are not changed. It is limited because the layout of deeply nested text can be a thousand times
 * as long as the text.
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
