/** The fields of a `pg` config that a connection string sets, so that a config beside it must not. */
export function fieldsOfUrl(text: string): UrlField[] {
  const fields: UrlField[] = ['host', 'port', 'database'];
  const url = /^postgres(?:ql)?:\/\/(?:([^/?#]*)@)?/is.exec(text);
  const query = new URLSearchParams(/\?([^#]*)/.exec(text)?.[1]);
  const [user, password] = [...(url?.[1] ?? '').split(/:(.*)/s), ''];
  if (user || query.has('user')) fields.push('user');
  if (password || query.has('password')) fields.push('password');
  if (['ssl', 'sslmode', 'sslcert', 'sslkey', 'sslrootcert'].some((name) => query.has(name))) fields.push('ssl');
  for (const name of ['sslnegotiation', 'options', 'statement_timeout', 'lock_timeout'] as const) {
    if (query.has(name)) fields.push(name);
  }
  return fields;
}

type UrlField =
  | 'host'
  | 'port'
  | 'database'
  | 'user'
  | 'password'
  | 'ssl'
  | 'sslnegotiation'
  | 'options'
  | 'statement_timeout'
  | 'lock_timeout';
