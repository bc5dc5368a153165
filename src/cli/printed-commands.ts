import { shellQuoted } from '../format.ts';
import { urlWithoutPassword } from '../telemetry/redaction.ts';
import type { GlobalOptions } from './settings.ts';

/** Repeats in each command of a text the flags that choose the outbox, so that a copy of the command acts on the same one. */
export type RepeatFlags = (text: string) => string;

export function repeatFlags({ config, databaseUrl, schema, outbox }: GlobalOptions): RepeatFlags {
  const flags = [
    ['--config', config],
    // With *** for a password, a copy of the command is refused (parseConnectionString) until the password is filled in. Without the flag, or with a
    // variable in its place, it could act on another database.
    ['--database-url', databaseUrl === undefined ? undefined : urlWithoutPassword(databaseUrl)],
    ['--schema', schema],
    ['--outbox', outbox],
  ].flatMap(([flag, value]) => (value === undefined ? [] : [`${flag} ${shellQuoted(value)}`]));
  const command = ['npx postcommit', ...flags].join(' ');
  return (text) => text.replaceAll('npx postcommit', () => command);
}
