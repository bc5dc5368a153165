/**
 * Removes passwords of connection strings from a text, such as a driver's message or a line of the config file that a parser
 * quotes.
 */
export function redact(text: string): string {
  return (
    text
      // Greedy up to the last @: a password that is not percent-encoded may contain one.
      .replace(/\b([a-z][a-z0-9+.-]*:\/\/[^\s:@/]*):[^\s'"`]*@/gi, '$1:***@')
      .replace(/\b(password\s*=\s*)('[^']*'|[^\s&'"`]+)/gi, '$1***')
  );
}
