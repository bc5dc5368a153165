/**
 * Takes passwords out of connection strings in a text, wherever they stand: in a driver's message, in a line of the
 * config file that a parser quotes.
 */
export function redact(text: string): string {
  return (
    text
      // Greedy up to the last @, because a password that was not percent-encoded may hold one itself.
      .replace(/\b([a-z][a-z0-9+.-]*:\/\/[^\s:@/]*):[^\s'"`]*@/gi, '$1:***@')
      .replace(/\b(password\s*=\s*)('[^']*'|[^\s&'"`]+)/gi, '$1***')
  );
}
