import { randomUUID } from 'node:crypto';

/** JSON text that is written unchanged: parsing and serializing would change numbers beyond 2^53. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** JSON.stringify with an indent of two that writes each `JsonText` in the value unchanged. */
export function toJson(value: unknown): string {
  const texts: string[] = [];
  const mark = randomUUID();
  const marked = JSON.stringify(
    value,
    (_key, each) => (each instanceof JsonText ? `${mark}${texts.push(each.text) - 1}` : each),
    2,
  );
  if (texts.length === 0) return marked;
  return marked.replace(new RegExp(`^( *)(.*)"${mark}(\\d+)"`, 'gm'), (_line, indent, before, index) => {
    return `${indent}${before}${indentJson(texts[Number(index)] as string, indent)}`;
  });
}

/** Formats JSON text like JSON.stringify with an indent of two. Numbers and strings are not changed. */
export function indentJson(text: string, indent = ''): string {
  let result = '';
  let depth = 0;
  const line = () => `\n${indent}${'  '.repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g) ?? [];
  for (const [i, token] of tokens.entries()) {
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
