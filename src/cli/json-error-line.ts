/**
 * The line at which a text stops being JSON. V8 does not always tell, so it is asked about beginnings of the text: one
 * that ends before the error is merely unfinished.
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

/** Whether the text is JSON, or could become JSON by adding to it. */
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
