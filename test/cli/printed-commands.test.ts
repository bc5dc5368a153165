import { describe, expect, it } from 'vitest';
import { repeatFlags } from '../../src/cli/printed-commands.ts';
import type { GlobalOptions } from '../../src/cli/settings.ts';

describe('the flags that a printed command repeats', () => {
  it.each<[GlobalOptions, string]>([
    [{}, 'npx postcommit migrate'],
    [{ config: './my config.ts' }, "npx postcommit --config './my config.ts' migrate"],
    [{ outbox: 'billing' }, 'npx postcommit --outbox billing migrate'],
    [{ schema: "Bob's" }, String.raw`npx postcommit --schema 'Bob'\''s' migrate`],
    [{ databaseUrl: 'postgres://app@db/shop' }, 'npx postcommit --database-url postgres://app@db/shop migrate'],
    [
      { databaseUrl: 'postgres://db/shop?a=1&b=2' },
      "npx postcommit --database-url 'postgres://db/shop?a=1&b=2' migrate",
    ],
    [{ config: 'a.ts', outbox: 'b', schema: 'c' }, 'npx postcommit --config a.ts --schema c --outbox b migrate'],
  ])('%o', (options, command) => {
    expect(repeatFlags(options)('npx postcommit migrate')).toBe(command);
  });

  it.each([
    'postgres://app:secret@db/shop',
    "postgres://app:p'secret@db/shop",
    'postgres://app:a "secret@db/shop',
    'postgres://user@corp:secret@db/shop',
    'postgres://app:a/secret@db/shop',
    "postgres://db/shop?password=a'secret",
    'postgres://db/shop?PASSWORD=a%20secret',
    "host=db password='a secret'",
  ])('never have the password of %s', (databaseUrl) => {
    const printed = repeatFlags({ databaseUrl })('npx postcommit migrate');
    expect(printed).not.toContain('secret');
    expect(printed).toContain('***');
  });
});
