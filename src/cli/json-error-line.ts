/**
 * The line of a syntax error in JSON. V8 does not always report it, so this bisects the text: a prefix that ends before the
 * error is incomplete, but valid so far.
 */
export function jsonErrorLine(text: string): number {
  let unfinished = 0;
  let broken = text.length + 1;
  while (broken - unfinished > 1) {
    const middle = Math.floor((unfinished + broken) / 2);
    if (isBeginning(text.slice(0, middle))) unfinished = middle;
    else broken = middle;
  }
  return text.slice(0, unfinished).split('\n').length;
}

/** Whether the text is JSON or the beginning of JSON. */
function isBeginning(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const { message } = error as Error;
    const position = /at position (\d+)/.exec(message)?.[1];
    return /end of JSON input|Unterminated string/.test(message) || Number(position) === text.length;
  }
}
