const shownMax = 160;

/**
 * A short form of another session's query to recognise it: one line, without string literals, which may contain passwords or
 * customer data.
 */
export function queryText(query: string): string {
  const masked = query
    // A truncated literal extends to the end of the text.
    .replace(/\$([a-z_]\w*)?\$[\s\S]*?(\$\1\$|$)/gi, '$$…$$')
    .replace(/'(?:[^'\\]|''|\\[\s\S])*('|$)/g, "'…'")
    .replace(/\s+/g, ' ')
    .trim();
  return masked.length > shownMax ? `${masked.slice(0, shownMax - 1)}…` : masked;
}
