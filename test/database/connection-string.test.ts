import { describe, expect, test } from 'vitest';
import { resolveConnectionForWriting } from '../../src/database/connection-options.ts';
import { parseConnectionString } from '../../src/database/connection-string.ts';
import { urlWithoutPassword } from '../../src/telemetry/redaction.ts';

describe('a connection string', () => {
  test('with one host is as it was given', () => {
    for (const text of [
      'postgres://app:secret@db.example:6432/shop?sslmode=disable',
      'postgresql://app@localhost/shop',
      'postgres://app:p%40ss,word@localhost:5432/shop',
      'postgres://app@/shop?host=/run/postgresql',
      'postgres://%2Frun%2Fpostgresql/shop',
      'socket:///run/postgresql?db=shop',
      '/run/postgresql shop',
    ]) {
      const { servers, attributes } = parseConnectionString(text);
      expect(servers.map(({ config }) => config.connectionString)).toEqual([text]);
      expect(attributes).toBe('primary');
    }
  });

  test('with several hosts is one for each, in order', () => {
    const server = (address: string, connectionString: string) => ({ address, config: { connectionString } });
    expect(parseConnectionString('postgres://app:a,b%40c@one:5433,two,[::1]:5434/shop?sslmode=disable')).toEqual({
      servers: [
        server('one:5433', 'postgres://app:a,b%40c@one:5433/shop?sslmode=disable'),
        server('two:5432', 'postgres://app:a,b%40c@two/shop?sslmode=disable'),
        server('::1:5434', 'postgres://app:a,b%40c@[::1]:5434/shop?sslmode=disable'),
      ],
      attributes: 'read-write',
    });
  });

  test.each(['read-write', 'primary', 'any'])('target_session_attrs=%s', (attributes) => {
    const text = `postgres://app@one,two/shop?target_session_attrs=${attributes}`;
    expect(parseConnectionString(text)).toMatchObject({ attributes });
    expect(resolveConnectionForWriting({ connectionString: text })).toMatchObject({
      attributes: attributes === 'any' ? 'primary' : attributes,
    });
  });

  test.each([
    ['postgres://app:secret@one,,two/shop', 'several hosts'],
    ['postgres://app:secret@/shop?host=one,two', 'several hosts'],
    ['postgres://app:secret@one/shop?port=5432,5433', 'several hosts'],
    ['postgres://app:secret@one,two/shop?port=5432', 'several hosts'],
    ['postgres://app:secret@one:x,two/shop', 'PostgreSQL URL'],
    ['postgres://app:secret@one:70000/shop', 'PostgreSQL URL'],
    ['mysql://app:secret@one/shop', 'PostgreSQL URL'],
    ['host=one dbname=shop password=secret', 'PostgreSQL URL'],
    ['postgres://app:secret@one/shop?target_session_attrs=standby', 'one of primary, read-write, any'],
    [7, 'PostgreSQL URL'],
    ...[
      'postgres://app:secret@one/shop',
      'postgres://app:secret@one,two/shop',
      'postgres://user@corp:sec/ret@one/shop',
      'postgres://one/shop?sslmode=disable&password=secret',
      'postgres://one/shop?PASSWORD=secret&sslmode=disable',
      'socket:/run/postgresql?db=shop&password=secret',
      'dbname=shop password=secret',
    ].map((url): [string, string] => [
      urlWithoutPassword(url),
      'the password was hidden when this command was printed',
    ]),
  ])('%j is refused, and not repeated', (text, why) => {
    const refusal = (() => {
      try {
        parseConnectionString(text);
      } catch (error) {
        return error as Error;
      }
    })();
    expect(refusal).toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringContaining(why) });
    expect(refusal?.message).not.toContain('secret');
  });

  test.each(['postgres://app:%2A%2A%2A@one/shop', 'postgres://app:a***@one/shop', 'postgres://app:****@one/shop'])(
    'a password of asterisks that is not the hidden one is accepted: %s',
    (text) => {
      expect(parseConnectionString(text).servers).toHaveLength(1);
    },
  );
});
