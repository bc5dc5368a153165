import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { migrationSql } from '../../src/index.ts';
import { jsonError, projectFolder, runCli } from './run-cli.ts';

// test/adapters/migrations.test.ts runs the files with the tools.
describe('postcommit sql --for', () => {
  async function write(cwd: string, ...args: string[]): Promise<string[]> {
    const { code, stdout, stderr } = await runCli(['sql', '--json', '--for', ...args], { cwd });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    return (JSON.parse(stdout) as { files: string[] }).files.map((file) => relative(cwd, file));
  }

  it('writes the file where the tool looks for it', async () => {
    const cwd = projectFolder({ 'package.json': '{}' });
    const files = [];
    for (const tool of [
      'prisma',
      'drizzle',
      'knex',
      'typeorm',
      'mikro-orm',
      'sequelize',
      'kysely',
      'node-pg-migrate',
    ]) {
      files.push((await write(cwd, tool))[0]);
    }
    expect(files).toEqual([
      expect.stringMatching(/^prisma\/migrations\/\d{14}_postcommit\/migration\.sql$/),
      'drizzle/0000_postcommit.sql',
      expect.stringMatching(/^migrations\/\d{14}_postcommit\.js$/),
      expect.stringMatching(/^src\/migrations\/\d{13}-Postcommit\.js$/),
      expect.stringMatching(/^migrations\/Migration\d{14}_postcommit\.js$/),
      expect.stringMatching(/^migrations\/\d{14}-postcommit\.js$/),
      expect.stringMatching(/^migrations\/\d{13}_postcommit\.js$/),
      expect.stringMatching(/^migrations\/\d{13}_postcommit\.sql$/),
    ]);
    expect(readFileSync(join(cwd, files[0] ?? ''), 'utf8')).toBe(migrationSql());
  }, 60_000);

  it.each([
    ['knex', {}, '.js', 'export async function up(knex)'],
    ['knex', { 'package.json': '{}' }, '.js', 'exports.up = async (knex)'],
    ['knex', { 'package.json': '{}', 'tsconfig.json': '{}' }, '.ts', 'up(knex: Knex): Promise<void>'],
    ['sequelize', { 'tsconfig.json': '{}' }, '.cjs', 'module.exports = {'],
  ])('writes %s in the language of the project %o', async (tool, project, suffix, code) => {
    const cwd = projectFolder(project as Record<string, string>);
    const [file = ''] = await write(cwd, tool);
    expect(file.slice(file.lastIndexOf('.'))).toBe(suffix);
    expect(readFileSync(join(cwd, file), 'utf8')).toContain(code);
  });

  it('an upgrade has only what is new, and cannot be undone', async () => {
    const cwd = projectFolder({});
    const [file = ''] = await write(cwd, 'kysely', '--after', '1', '--output', 'db', '--language', 'cjs');
    expect(file).toMatch(/^db\/\d{13}_postcommit\.cjs$/);
    const text = readFileSync(join(cwd, file), 'utf8');
    expect(text).not.toContain('create table "postcommit".outbox_events');
    expect(text).toContain('cannot be undone');
    expect(text).not.toContain('drop schema');
  });

  it('overwrites nothing, and changes no journal that it does not know', async () => {
    const cwd = projectFolder({});
    mkdirSync(join(cwd, 'drizzle'));
    writeFileSync(join(cwd, 'drizzle/0000_postcommit.sql'), 'mine');
    const existing = await runCli(['sql', '--json', '--for', 'drizzle'], { cwd });
    expect(jsonError(existing)).toMatchObject({
      code: 'POSTCOMMIT_E_USAGE',
      message: expect.stringContaining('already exists'),
    });
    expect(readFileSync(join(cwd, 'drizzle/0000_postcommit.sql'), 'utf8')).toBe('mine');
    mkdirSync(join(cwd, 'drizzle/meta'));
    writeFileSync(join(cwd, 'drizzle/meta/_journal.json'), '{"dialect":"mysql","entries":[]}');
    const unknown = await runCli(['sql', '--json', '--for', 'drizzle'], { cwd });
    expect(jsonError(unknown)).toMatchObject({
      code: 'POSTCOMMIT_E_USAGE',
      message: expect.stringContaining('_journal.json'),
    });
    expect(readdirSync(join(cwd, 'drizzle'))).toHaveLength(2);
  });

  it.each([
    [['--for', 'liquibase'], /prisma, drizzle, knex/],
    [['--output', 'db'], /--output needs --for/],
    [['--language', 'ts'], /--language needs --for/],
    [['--for', 'knex', '--schema', 'a\\?b'], /Knex cannot run/],
  ])('refuses %j', async (args, message) => {
    const result = await runCli(['sql', '--json', ...args], { cwd: projectFolder({}) });
    expect(jsonError(result).message).toMatch(message);
    expect(result.code).not.toBe(0);
  });
});
