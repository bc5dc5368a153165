// Literals, quoted names, comments and dollar quotes first: what looks like a placeholder inside of them is none.
const tokens =
  /\b[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$(?<tag>[A-Za-z_]\w*)?\$[\s\S]*?\$\k<tag>\$|\$(?<number>\d+)|\?/g;

/**
 * Rewrites a statement for a client whose placeholder is `?`: each `$n` becomes one, with its value in order. A `?` that is an
 * operator or part of a literal is written as `escaped`.
 */
export function toQuestionMarks(
  text: string,
  values: readonly unknown[],
  escaped: string,
): { text: string; values: unknown[] } {
  const inOrder: unknown[] = [];
  const rewritten = text.replace(tokens, (token, ...rest) => {
    const { number } = rest.at(-1) as { number?: string };
    if (number === undefined) return token.replaceAll('?', () => escaped);
    inOrder.push(values[Number(number) - 1]);
    return '?';
  });
  return { text: rewritten, values: inOrder };
}
