const shownMax = 160;

/**
 * Another session's query, to be recognised by and no more: on one line, short, and without its string literals, which
 * may be a password or a customer's data.
 */
export function queryText(query: string): string {
  const masked = query
    // A literal that was cut off before its end reaches to the end of the text.
    .replace(/\$([a-z_]\w*)?\$[\s\S]*?(\$\1\$|$)/gi, '$$…$$')
    .replace(/'(?:[^'\\]|''|\\[\s\S])*('|$)/g, "'…'")
    .replace(/\s+/g, ' ')
    .trim();
  return masked.length > shownMax ? `${masked.slice(0, shownMax - 1)}…` : masked;
}
