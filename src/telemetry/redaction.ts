/** A quote inside a password: a quote that ends a quoted text is followed by the end, a blank or a punctuation mark. */
const innerQuote = String.raw`['"\`](?![\s,;:.)\]}\\]|$)`;
/** Greedy up to the last @: a password that is not percent-encoded may contain one. A user name may contain one too. */
const passwordInUrl = new RegExp(
  String.raw`\b([a-z][a-z0-9+.-]*:\/\/[^\s:/'"\`]*):(?:[^\s'"\`]|${innerQuote})*@`,
  'gi',
);
const passwordField = new RegExp(String.raw`\b(password\s*=\s*)('[^']*'|(?:[^\s&'"\`]|${innerQuote})+)`, 'gi');

/**
 * Removes passwords of connection strings from a text, such as a driver's message or a line of the config file that a parser
 * quotes. Where a URL ends in such a text is a guess: for a text that is one URL, `urlWithoutPassword` is exact.
 */
export function redact(text: string): string {
  return text.replace(passwordInUrl, '$1:***@').replace(passwordField, '$1***');
}

/**
 * A connection string without its password, whatever characters that has: all between the first colon of the user and the last @
 * is hidden, and so is a parameter of the query that is named like a password. A text that is neither a URL nor the path of a
 * socket is hidden as a whole.
 */
export function urlWithoutPassword(text: string): string {
  const [, scheme, rest = ''] = /^([a-z][a-z0-9+.-]*:\/\/|socket:|(?=\/))(.*)$/is.exec(text) ?? [];
  if (scheme === undefined) return '***';
  // Not the last @ before the first slash: in a URL that is not percent-encoded, the password may contain a slash.
  const at = rest.lastIndexOf('@');
  const colon = rest.indexOf(':');
  const shown = colon !== -1 && colon < at ? `${rest.slice(0, colon)}:***${rest.slice(at)}` : rest;
  const query = shown.indexOf('?') + 1;
  return query === 0 ? scheme + shown : scheme + shown.slice(0, query) + queryWithoutPassword(shown.slice(query));
}

function queryWithoutPassword(query: string): string {
  return query
    .split('&')
    .map((parameter) => {
      const [name = ''] = new URLSearchParams(parameter).keys();
      return /password/i.test(name) ? `${parameter.split('=', 1)[0]}=***` : parameter;
    })
    .join('&');
}
